//! Which algorithm serves which mapping, for any instruction set.

use super::alpha::Below;
use super::anchored::Anchored;
use super::dense::{Smooth, Steep};
use super::profile::{Entmax15, Slope, Sparsemax, Whole};
use super::vector::Vector;
use super::verge::{self, Verge};
use super::write::RowSum;
use super::{Forward, Map, abreast, anchored, direct, evsoftmax, long, short, softmax};

/// Probabilities, whatever the mapping.
///
/// # Safety
/// The slices have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(map: Map, job: &mut Forward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::EvSoftmax => evsoftmax::forward::<V>(job),
            _ => regularised::<V>(map, job, None),
        }
    }
}

/// The regularised mappings, as probabilities or as part of a loss: its gain, and room for
/// one sum a row.
///
/// # Safety
/// As [`forward`].
pub(crate) unsafe fn regularised<V: Vector>(map: Map, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let (s, e) = (Sparsemax(1.0), Entmax15);
    // SAFETY: as the caller vouches.
    unsafe {
        let is_short = job.d <= short::SHORT;
        match map {
            Map::Softmax | Map::EvSoftmax => softmax::forward::<V>(job, loss),
            Map::Sparsemax if job.d <= direct::WIDEST => direct::forward::<V, _>(s, job, loss),
            Map::Sparsemax => long::forward::<V, _, _>((s, s), job, loss),
            Map::Entmax15 if job.d <= direct::WIDEST => direct::forward::<V, _>(e, job, loss),
            Map::Entmax15 => long::forward::<V, _, _>((e, e), job, loss),
            Map::Entmax(alpha) if is_short && Anchored::serves(alpha) => {
                anchored::forward::<V>(Anchored::new(alpha, job.scale), job, loss);
            }
            Map::Entmax(alpha) if !Anchored::serves(alpha) => {
                verge::forward::<V>(Verge::new(alpha, job.scale), job, loss)
            }
            Map::Entmax(alpha) if alpha < 2.0 => {
                let prof = Below::new(alpha);
                let bounds = Whole::over(1.0 / (alpha - 1.0), prof.inner());
                match Whole::exactly(alpha) {
                    // Higher powers leave too many candidates for lists.
                    Some(w) if w.n <= 4 && job.d <= abreast::WIDEST => {
                        abreast::forward::<V, _, _>(Anchored::new(alpha, job.scale), (w, w), job, loss);
                    }
                    Some(w) => long::forward::<V, _, _>((w, w), job, loss),
                    None if alpha > 1.25 && job.d <= abreast::WIDEST => {
                        let alone = (bounds, Smooth::<false>::new(alpha));
                        abreast::forward::<V, _, _>(Anchored::new(alpha, job.scale), alone, job, loss);
                    }
                    None if alpha < 1.25 => long::forward::<V, _, _>((bounds, Smooth::<true>::new(alpha)), job, loss),
                    None => long::forward::<V, _, _>((bounds, Smooth::<false>::new(alpha)), job, loss),
                }
            }
            Map::Entmax(alpha) => {
                let prof = Steep::new(alpha);
                let bounds = Sparsemax(prof.inner());
                if job.d <= abreast::WIDEST {
                    abreast::forward::<V, _, _>(Anchored::new(alpha, job.scale), (bounds, prof), job, loss);
                } else {
                    long::forward::<V, _, _>((bounds, prof), job, loss);
                }
            }
        }
    }
}
