//! Rows in the place of their result: scores in, probabilities out, in one slice.
//!
//! A long row whose scores do not lie as the kernels want them, because a mask takes some of them out or because they
//! are scattered over memory, is put where its result will be and solved there, so that it takes no memory of its own.
//! Plainly: the maximum, the threshold from passes over all entries, the probabilities entry by entry.
//!
//! The same for gradients: `v` in, `Jᵀv` out.

use super::dense::{Smooth, Steep};
use super::expo::Known;
use super::norm::entries;
use super::profile::{At, Entmax15, Profile, Sparsemax, Tau, Whole};
use super::scan::row_max;
use super::solve::Frame;
use super::vector::{Vector, outlined, write};
use super::weight::{Identity, Indicator, Power, Root, Weight};
use super::{Map, Status, evsoftmax, softmax};

/// Replaces a row of scores by its probabilities.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn forward<V: Vector>(map: Map, x: &mut [f32], scale: f32) -> Status {
    // SAFETY: as the caller vouches.
    let status = unsafe {
        match map {
            Map::Softmax => softmax::in_place::<V>(x, scale),
            Map::EvSoftmax => evsoftmax::in_place::<V>(x, scale),
            Map::Sparsemax => threshold::<V, _>(Sparsemax(1.0), x, scale),
            Map::Entmax15 => threshold::<V, _>(Entmax15, x, scale),
            Map::Entmax(alpha) if alpha > 2.0 => threshold::<V, _>(Steep::new(alpha), x, scale),
            Map::Entmax(alpha) => match Whole::exactly(alpha) {
                Some(whole) => threshold::<V, _>(whole, x, scale),
                None if alpha < 1.25 => threshold::<V, _>(Smooth::<true>::new(alpha), x, scale),
                None => threshold::<V, _>(Smooth::<false>::new(alpha), x, scale),
            },
        }
    };
    if status != Status::Ok {
        x.fill(status.fill());
    }
    status
}

/// A mapping with a threshold; a row that is not fit is left as it is.
///
/// # Safety
/// As [`forward`].
unsafe fn threshold<V: Vector, P: Profile>(prof: P, x: &mut [f32], scale: f32) -> Status {
    let (x, d) = (x.as_mut_ptr(), x.len());
    // SAFETY: as the caller vouches.
    unsafe {
        let max = maximum::<V>(x, d);
        let status = Status::of_max(max);
        if status == Status::Ok {
            let frame = Frame { max, scale: prof.inner() * scale };
            // The threshold is at most 1 below the maximum.
            let (frame, tau) = prof.framed_root::<V>(x, d, frame, -1.0);
            replace::<V, P>(prof, x, d, frame, tau);
        }
        status
    }
}

outlined! {
    /// [`row_max`].
    ///
    /// # Safety
    /// As [`row_max`].
    unsafe fn maximum<V>(x: *const f32, d: usize) -> f32 => row_max
}

outlined! {
    /// Replaces scores by `[x − τ]₊^e`.
    ///
    /// # Safety
    /// `x` is readable and writable for `d` floats; the CPU has the instruction set of `V`.
    unsafe fn replace<V, P: Profile>(prof: P, x: *mut f32, d: usize, frame: Frame, tau: Tau) -> () => replace_any
}

/// # Safety
/// As [`replace`].
#[inline(always)]
unsafe fn replace_any<V: Vector, P: Profile>(prof: P, x: *mut f32, d: usize, frame: Frame, tau: Tau) {
    // SAFETY: as the caller vouches.
    unsafe {
        let at = At::<V>::new(tau);
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let mut i = 0;
        while i < d {
            let (_, p) = prof.prob(entries::<V>(x.add(i), d - i).sub(max).mul(scale), &at);
            write(p, x.add(i), (d - i).min(V::LANES));
            i += V::LANES;
        }
    }
}

/// Replaces the gradient `v` in the probabilities `p` by `Jᵀv`; `false` if that takes more than these, and nothing was
/// changed.
///
/// # Safety
/// The slices are of one length; the CPU has the instruction set of `V`.
pub(crate) unsafe fn backward<V: Vector>(map: Map, p: &[f32], v: &mut [f32], scale: f32) -> bool {
    let row = (p.as_ptr(), v.as_mut_ptr(), p.len());
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::Softmax | Map::EvSoftmax => centre::<V, _>(Identity(scale), row),
            Map::Sparsemax => centre::<V, _>(Indicator(scale), row),
            Map::Entmax15 => centre::<V, _>(Root(scale), row),
            Map::Entmax(alpha) if alpha <= 2.0 => centre::<V, _>(Power::new(&Known::new(2.0 - alpha), scale), row),
            Map::Entmax(_) => return false,
        }
    }
    true
}

outlined! {
    /// Replaces `v` by `s ⊙ (v − <s, v>/Σs)`.
    ///
    /// # Safety
    /// `p` is readable, `v` readable and writable for so many floats; the CPU has the instruction set of `V`.
    unsafe fn centre<V, W: Weight>(weight: W, row: (*const f32, *mut f32, usize)) -> () => centre_any
}

/// # Safety
/// As [`centre`].
#[inline(always)]
unsafe fn centre_any<V: Vector, W: Weight>(weight: W, (p, v, d): (*const f32, *mut f32, usize)) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let (mut all, mut along) = (V::wide_zero(), V::wide_zero());
        let mut i = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(p.add(i), n, 0.0);
            let s = weight.weight(q);
            all = V::wide_add(all, s);
            along = V::wide_add(along, s.mul(V::load_first(v.add(i), n, 0.0).keep(q.gt(zero))));
            i += n;
        }
        let all = V::wide_total(all);
        let mean = if all == 0.0 { 0.0 } else { V::wide_total(along) / all };
        let mut i = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let (q, g) = (V::load_first(p.add(i), n, 0.0), V::load_first(v.add(i), n, 0.0));
            write(weight.product(q, g, mean as f32), v.add(i), n);
            i += n;
        }
    }
}
