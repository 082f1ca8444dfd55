//! Fusedmax: the total-variation prox of a row, projected onto the simplex.
//!
//! Plainly: prox, threshold, write. In units of the scores, with `l = λγ`: `p = [x − t]₊/γ` where `x` is the
//! prox of `z` with penalty `l` and `Σ [x − t]₊ = γ`.
//!
//! **Few scores matter.** `|x_i − z_i| ≤ 2l` for every entry, so `t` is at most `2l` below the threshold of
//! sparsemax, for which a lower bound `b` comes with the maximum. A score of `b − 4l` or less is thus `2l` or
//! more below `t`, and such an entry is in no set `{x > c}` with `c ≥ t`: leaving it out of the set saves its
//! `c − z_i ≥ 2l` and costs two borders of `l` at most. So it is below its neighbours wherever they have mass,
//! and all they feel of it is the pull of `l` on the end of their stretch. The row falls into stretches of
//! candidates that are solved one by one; what lies between is 0.
//!
//! **Masked entries** (−∞) are no neighbours: candidates on either side of a gap of them are.
//!
//! The threshold runs over pieces, not entries. Everything after the first look is in `f64`.

use super::Status;
use super::profile::Sparsemax;
use super::scan::{collect_indexed, lane_maxima};
use super::solve::{Frame, bound, cut};
use super::structured::Work;
use super::tv::{self, Piece, Stretch};
use super::vector::{MAX_LANES, Vector, outlined};

outlined! {
    /// The maximum of a row (NaN if it holds one), a lower bound on `(t − max)/γ`, and the number of its
    /// candidates, which it lists.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; `list` and `index` are writable for `d + 2·LANES`; the CPU has the
    /// instruction set of `V`.
    unsafe fn survey<V>(
        z: *const f32,
        d: usize,
        lambda: f64,
        gamma: f64,
        list: *mut f32,
        index: *mut u32,
    ) -> (f32, f64, usize) => survey_any
}

/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn survey_any<V: Vector>(
    z: *const f32,
    d: usize,
    lambda: f64,
    gamma: f64,
    list: *mut f32,
    index: *mut u32,
) -> (f32, f64, usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (m, nan) = lane_maxima::<V>(z, d);
        let max = m.reduce_max();
        if nan || !max.is_finite() {
            return (if nan { f32::NAN } else { max }, 0.0, 0);
        }
        let mut best = [0.0f32; MAX_LANES];
        m.store(best.as_mut_ptr());
        let frame = Frame { max, scale: (1.0 / gamma) as f32 };
        let tau = bound::<V, Sparsemax>(Sparsemax(1.0), best.as_ptr(), V::LANES, frame, -1.0, 4) - 1e-6;
        let limit = cut((tau - 4.0 * lambda * (1.0 + 1e-6)) as f32, frame);
        (max, tau - 2.0 * lambda, collect_indexed::<V>(z, d, limit, 0, list, index))
    }
}

/// One row.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn row<V: Vector>(z: &[f32], out: &mut [f32], lambda: f64, gamma: f64, work: &mut Work) -> Status {
    let (list, index) = work.lists(z.len());
    // SAFETY: the lists hold a row and two vectors; the caller vouches for the instruction set.
    let (max, bound, n) = unsafe { survey::<V>(z.as_ptr(), z.len(), lambda, gamma, list, index) };
    let status = Status::of_max(max);
    out.fill(status.fill());
    if status != Status::Ok {
        return status;
    }
    // SAFETY: that is how many were written.
    unsafe { work.hold(n) };
    let Work { list, index, pieces, hulls, .. } = work;
    pieces.clear();
    stretches(z, index, |range, free| {
        let stretch = Stretch { z: &list[range], top: f64::from(max), free };
        tv::prox(stretch, lambda * gamma, hulls, pieces);
    });
    let t = threshold(pieces, bound * gamma, gamma);
    let mut start = 0;
    for piece in pieces.iter() {
        let place = &index[start..start + piece.len];
        start += piece.len;
        let p = ((piece.value - t) / gamma) as f32;
        if p > 0.0 {
            put(out, place, p);
        }
    }
    status
}

/// Writes `value` to ascending places.
pub(crate) fn put(out: &mut [f32], place: &[u32], value: f32) {
    let (first, last) = (place[0] as usize, place[place.len() - 1] as usize);
    if last - first < place.len() {
        out[first..=last].fill(value);
    } else {
        place.iter().for_each(|i| out[*i as usize] = value);
    }
}

/// Calls `visit` with every stretch of the candidates: those with nothing but masked entries between them, and
/// whether its ends are those of the row.
pub(crate) fn stretches(z: &[f32], index: &[u32], mut visit: impl FnMut(std::ops::Range<usize>, (bool, bool))) {
    let masked = |z: &[f32]| z.iter().all(|z| *z == f32::NEG_INFINITY);
    let mut left = masked(&z[..index[0] as usize]);
    let mut start = 0;
    for k in 1..index.len() {
        let (before, next) = (index[k - 1] as usize + 1, index[k] as usize);
        if before != next && (z[before] > f32::NEG_INFINITY || !masked(&z[before..next])) {
            visit(start..k, (left, false));
            (start, left) = (k, false);
        }
    }
    let right = masked(&z[index[index.len() - 1] as usize + 1..]);
    visit(start..index.len(), (left, right));
}

/// `t` with `Σ [x − t]₊ = total`, from a start that is not above it: repeated averaging of what is above the last average (Michelot 1986), which
/// is Newton's method on a convex function and has no slow case (`profile.rs`).
pub(crate) fn threshold(pieces: &[Piece], start: f64, total: f64) -> f64 {
    let (mut t, mut before) = (start, usize::MAX);
    loop {
        let (mut sum, mut count) = (0.0, 0);
        for piece in pieces {
            let len = if piece.value > t { piece.len } else { 0 };
            sum += piece.value * len as f64;
            count += len;
        }
        // Rounding may leave nothing above an average; the last one stands.
        if count == 0 || count >= before {
            return t;
        }
        (t, before) = ((sum - total) / count as f64, count);
    }
}
