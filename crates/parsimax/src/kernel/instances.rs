//! The entry points of each instruction set. Everything below them is inlined into them,
//! and so compiled with their features.

use super::profile::{Entmax15, Sparsemax};
use super::vector::Vector;
use super::{Backward, Forward, Map};
use super::{backward, long, short, softmax};

/// # Safety
/// The slices have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has the
/// instruction set of `V`.
#[inline(always)]
unsafe fn forward_any<V: Vector>(map: Map, job: &mut Forward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        let is_short = job.d <= short::SHORT;
        match map {
            Map::Softmax => softmax::forward::<V>(job),
            Map::Sparsemax if is_short => short::forward::<V, _>(Sparsemax, job),
            Map::Sparsemax => long::forward::<V, _>(Sparsemax, job),
            Map::Entmax15 if is_short => short::forward::<V, _>(Entmax15, job),
            Map::Entmax15 => long::forward::<V, _>(Entmax15, job),
        }
    }
}

/// Defines the entry points of one instance.
macro_rules! instance {
    ($(#[$attr:meta])* $name:ident, $vector:ty) => {
        pub(super) mod $name {
            use super::{Backward, Forward, Map};

            /// # Safety
            /// As `forward_any`.
            $(#[$attr])*
            pub(in super::super) unsafe fn forward(map: Map, job: &mut Forward<'_>) {
                // SAFETY: as the caller vouches.
                unsafe { super::forward_any::<$vector>(map, job) }
            }

            /// # Safety
            /// As `backward::any`.
            $(#[$attr])*
            pub(in super::super) unsafe fn backward(map: Map, job: &mut Backward<'_>) {
                // SAFETY: as the caller vouches.
                unsafe { super::backward::any::<$vector>(map, job) }
            }
        }
    };
}

instance!(portable, crate::kernel::portable::Portable);
#[cfg(target_arch = "x86_64")]
instance!(
    #[target_feature(enable = "avx2,fma,popcnt")]
    avx2,
    crate::kernel::avx2::Avx2
);
