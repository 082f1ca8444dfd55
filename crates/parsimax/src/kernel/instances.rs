//! The entry points of each instruction set.
//!
//! Everything below an entry point is inlined into it, and so compiled with its features. Each variant of
//! an operation has an entry point of its own: in one function together they would take the compiler
//! minutes.

use super::alpha::{Above, Below};
use super::backward::{Identity, Indicator, Root};
use super::profile::{Entmax15, Slope, Sparsemax, Whole};
use super::write::RowSum;
use super::{Backward, Forward, Loss, Map};
use super::{alpha_backward, backward, evsoftmax, long, loss, short, softmax};

/// Defines entry points: functions over the vector `$vector`, compiled with the features `$attr`.
macro_rules! entries {
    ($attr:tt $vector:ty; $($name:ident($($arg:ident: $type:ty),*) $body:expr;)*) => {$(
        entries!(@one $attr $vector; $name($($arg: $type),*) $body);
    )*};
    (@one [$(#[$attr:meta])*] $vector:ty; $name:ident($($arg:ident: $type:ty),*) $body:expr) => {
        /// # Safety
        /// The slices of the job have the lengths that its type promises, `d ≥ 1`, and the CPU has the
        /// instruction set.
        $(#[$attr])*
        unsafe fn $name<const LOSS: bool>($($arg: $type),*) {
            type V = $vector;
            // SAFETY: as the caller vouches.
            unsafe { $body }
        }
    };
}

/// Defines the module of one instance: what the dispatcher calls.
macro_rules! instance {
    ($attr:tt $name:ident, $vector:ty) => {
        pub(super) mod $name {
            use super::*;

            entries! { $attr $vector;
                softmax(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    softmax::forward::<V, LOSS>(job, gain, sums);
                sparsemax_short(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    short::forward::<V, _, _, LOSS>((Sparsemax(1.0), Sparsemax(1.0)), job, gain, sums);
                sparsemax_long(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    long::forward::<V, _, _, LOSS>((Sparsemax(1.0), Sparsemax(1.0)), job, gain, sums);
                entmax15_short(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    short::forward::<V, _, _, LOSS>((Entmax15, Entmax15), job, gain, sums);
                entmax15_long(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    long::forward::<V, _, _, LOSS>((Entmax15, Entmax15), job, gain, sums);
                whole_short(whole: Whole, job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    short::forward::<V, _, _, LOSS>((whole, whole), job, gain, sums);
                whole_long(whole: Whole, job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    long::forward::<V, _, _, LOSS>((whole, whole), job, gain, sums);
                below_short(pair: (Whole, Below), job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    short::forward::<V, _, _, LOSS>(pair, job, gain, sums);
                below_long(pair: (Whole, Below), job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum])
                    long::forward::<V, _, _, LOSS>(pair, job, gain, sums);
                above(alpha: f64, job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum]) {
                    let prof = Above::new(alpha);
                    let bounds = Sparsemax(prof.inner());
                    long::forward::<V, _, _, LOSS>((bounds, prof), job, gain, sums);
                };
                ev_softmax(job: &mut Forward<'_>) evsoftmax::forward::<V>(job);
                backward_softmax(job: &mut Backward<'_>) backward::rows::<V, _>(Identity, job);
                backward_sparsemax(job: &mut Backward<'_>) backward::rows::<V, _>(Indicator, job);
                backward_entmax15(job: &mut Backward<'_>) backward::rows::<V, _>(Root, job);
                backward_entmax(alpha: f64, job: &mut Backward<'_>, slopes: Option<&mut [f64]>)
                    alpha_backward::rows::<V>(alpha, job, slopes);
            }

            /// The regularised mappings, as probabilities or, with `LOSS`, as part of a loss.
            ///
            /// # Safety
            /// As the entries; with `LOSS`, `sums` has one element a row.
            unsafe fn regularised<const LOSS: bool>(map: Map, job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum]) {
                let is_short = job.d <= short::SHORT;
                // SAFETY: as the caller vouches.
                unsafe {
                    match map {
                        Map::Softmax | Map::EvSoftmax => softmax::<LOSS>(job, gain, sums),
                        Map::Sparsemax if is_short => sparsemax_short::<LOSS>(job, gain, sums),
                        Map::Sparsemax => sparsemax_long::<LOSS>(job, gain, sums),
                        Map::Entmax15 if is_short => entmax15_short::<LOSS>(job, gain, sums),
                        Map::Entmax15 => entmax15_long::<LOSS>(job, gain, sums),
                        Map::Entmax(alpha) if alpha < 2.0 => {
                            let prof = Below::new(alpha);
                            let bounds = Whole::over(1.0 / (alpha - 1.0), prof.inner());
                            match Whole::exactly(alpha) {
                                Some(whole) if is_short => whole_short::<LOSS>(whole, job, gain, sums),
                                Some(whole) => whole_long::<LOSS>(whole, job, gain, sums),
                                // Thresholds in the lanes are f32: too coarse for α near 1.
                                None if is_short && (1..=8).contains(&bounds.n) => {
                                    below_short::<LOSS>((bounds, prof), job, gain, sums);
                                }
                                None => below_long::<LOSS>((bounds, prof), job, gain, sums),
                            }
                        }
                        Map::Entmax(alpha) => above::<LOSS>(alpha, job, gain, sums),
                    }
                }
            }

            /// # Safety
            /// As the entries.
            pub(in super::super) unsafe fn forward(map: Map, job: &mut Forward<'_>) {
                // SAFETY: as the caller vouches.
                unsafe {
                    match map {
                        Map::EvSoftmax => ev_softmax::<false>(job),
                        _ => regularised::<false>(map, job, 1.0, &mut []),
                    }
                }
            }

            /// # Safety
            /// As the entries.
            pub(in super::super) unsafe fn backward(map: Map, job: &mut Backward<'_>) {
                // SAFETY: as the caller vouches.
                unsafe {
                    match map {
                        Map::Softmax | Map::EvSoftmax => backward_softmax::<false>(job),
                        Map::Sparsemax => backward_sparsemax::<false>(job),
                        Map::Entmax15 => backward_entmax15::<false>(job),
                        Map::Entmax(alpha) => backward_entmax::<false>(alpha, job, None),
                    }
                }
            }

            /// # Safety
            /// As the entries.
            pub(in super::super) unsafe fn alpha_backward(
                alpha: f64,
                job: &mut Backward<'_>,
                slopes: Option<&mut [f64]>,
            ) {
                // SAFETY: as the caller vouches.
                unsafe { backward_entmax::<false>(alpha, job, slopes) }
            }

            /// # Safety
            /// As the entries.
            pub(in super::super) unsafe fn loss(map: Map, job: &mut Loss<'_>) {
                // SAFETY: as the caller vouches.
                unsafe { loss::rows(map, job, regularised::<true>) }
            }
        }
    };
}

instance!([] portable, crate::kernel::portable::Portable);
#[cfg(target_arch = "x86_64")]
instance!([#[target_feature(enable = "avx2,fma,popcnt")]] avx2, crate::kernel::avx2::Avx2);
#[cfg(target_arch = "x86_64")]
instance!([#[target_feature(enable = "avx512f,popcnt")]] avx512, crate::kernel::avx512::Avx512);
#[cfg(target_arch = "aarch64")]
instance!([#[target_feature(enable = "neon")]] neon, crate::kernel::neon::Neon);
