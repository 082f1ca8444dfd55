//! The entry points of each instruction set. Everything below them is inlined into them,
//! and so compiled with their features.

use super::alpha::{Above, Below};
use super::profile::{Entmax15, Slope, Sparsemax, Whole};
use super::vector::Vector;
use super::write::RowSum;
use super::{Backward, Forward, Loss, Map};
use super::{alpha_backward, backward, evsoftmax, long, loss, short, softmax};

/// Probabilities, whatever the mapping.
///
/// # Safety
/// The slices have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has the
/// instruction set of `V`.
#[inline(always)]
unsafe fn forward_any<V: Vector>(map: Map, job: &mut Forward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::EvSoftmax => evsoftmax::forward::<V>(job),
            _ => regularised::<V, false>(map, job, 1.0, &mut []),
        }
    }
}

/// The regularised mappings, as probabilities or, with `LOSS`, as part of a loss.
///
/// # Safety
/// As [`forward_any`]; with `LOSS`, `sums` has one element a row.
#[inline(always)]
pub(crate) unsafe fn regularised<V: Vector, const LOSS: bool>(
    map: Map,
    job: &mut Forward<'_>,
    gain: f32,
    sums: &mut [RowSum],
) {
    let (s, e) = (Sparsemax(1.0), Entmax15);
    // SAFETY: as the caller vouches.
    unsafe {
        let is_short = job.d <= short::SHORT;
        match map {
            Map::Softmax | Map::EvSoftmax => softmax::forward::<V, LOSS>(job, gain, sums),
            Map::Sparsemax if is_short => short::forward::<V, _, LOSS>(s, job, gain, sums),
            Map::Sparsemax => long::forward::<V, _, _, LOSS>((s, s), job, gain, sums),
            Map::Entmax15 if is_short => short::forward::<V, _, LOSS>(e, job, gain, sums),
            Map::Entmax15 => long::forward::<V, _, _, LOSS>((e, e), job, gain, sums),
            Map::Entmax(alpha) if is_short && (1.05..2.0).contains(&alpha) => {
                short::forward::<V, _, LOSS>(Below::new(alpha), job, gain, sums);
            }
            Map::Entmax(alpha) if alpha < 2.0 => {
                let prof = Below::new(alpha);
                let bounds = Whole::over(1.0 / (alpha - 1.0), prof.inner());
                long::forward::<V, _, _, LOSS>((bounds, prof), job, gain, sums);
            }
            Map::Entmax(alpha) => {
                let prof = Above::new(alpha);
                let bounds = Sparsemax(prof.inner());
                long::forward::<V, _, _, LOSS>((bounds, prof), job, gain, sums);
            }
        }
    }
}

/// Defines the entry points of one instance.
macro_rules! instance {
    ($(#[$attr:meta])* $name:ident, $vector:ty) => {
        pub(super) mod $name {
            use super::{Backward, Forward, Loss, Map};

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

            /// # Safety
            /// As `alpha_backward::rows`.
            $(#[$attr])*
            pub(in super::super) unsafe fn alpha_backward(
                alpha: f64,
                job: &mut Backward<'_>,
                dalpha: Option<&mut [f64]>,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { super::alpha_backward::rows::<$vector>(alpha, job, dalpha) }
            }

            /// # Safety
            /// As `loss::rows`.
            $(#[$attr])*
            pub(in super::super) unsafe fn loss(map: Map, job: &mut Loss<'_>) {
                // SAFETY: as the caller vouches.
                unsafe { super::loss::rows::<$vector>(map, job) }
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
#[cfg(target_arch = "x86_64")]
instance!(
    #[target_feature(enable = "avx512f,popcnt")]
    avx512,
    crate::kernel::avx512::Avx512
);
#[cfg(target_arch = "aarch64")]
instance!(
    #[target_feature(enable = "neon")]
    neon,
    crate::kernel::neon::Neon
);
