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
use super::scan::collect_indexed;
use super::short::{lane_bounds, lanes_of_maxima};
use super::solve::{Frame, cut};
use super::structured::{Rows, Work};
use super::tv::{self, Piece, Stretch};
use super::vector::{MAX_LANES, Vector, outlined};

/// What the maxima of rows tell, one row a lane.
struct Tops {
    /// The largest score; NaN if there is one.
    max: [f32; MAX_LANES],
    /// A lower bound on sparsemax's `(t − max)/γ`.
    bound: [f32; MAX_LANES],
}

outlined! {
    /// The tops of `here ≤ LANES` rows.
    ///
    /// # Safety
    /// `z` is readable for that many rows of `d` floats; the CPU has the instruction set of `V`.
    unsafe fn tops<V>(z: *const f32, d: usize, here: usize, scale: f32) -> Tops => tops_any
}

/// # Safety
/// As [`tops`].
#[inline(always)]
unsafe fn tops_any<V: Vector>(z: *const f32, d: usize, here: usize, scale: f32) -> Tops {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let mut across = [0.0f32; MAX_LANES * MAX_LANES];
        let (max, nans) = lanes_of_maxima::<V>(z, (d, here), &mut across);
        let mut tops = Tops { max: [0.0; MAX_LANES], bound: [0.0; MAX_LANES] };
        max.store(tops.max.as_mut_ptr());
        for r in (0..here).filter(|r| nans >> r & 1 == 1) {
            tops.max[r] = f32::NAN;
        }
        // A maximum of −inf would turn differences into NaN; with 0 they stay −inf.
        let max = max.select(max.gt(none), zero);
        let bound = lane_bounds::<V, Sparsemax>(Sparsemax(1.0), across.as_ptr(), max, V::splat(scale), 4);
        bound.sub(V::splat(1e-6)).store(tops.bound.as_mut_ptr());
        tops
    }
}

outlined! {
    /// Lists the candidates of a row, its scores above `limit`, and how many they are.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; `list` and `index` are writable for `d + 2·LANES`; the CPU has the
    /// instruction set of `V`.
    unsafe fn candidates<V>(z: *const f32, d: usize, limit: f32, list: *mut f32, index: *mut u32) -> usize
        => candidates_any
}

/// # Safety
/// As [`candidates`].
#[inline(always)]
unsafe fn candidates_any<V: Vector>(z: *const f32, d: usize, limit: f32, list: *mut f32, index: *mut u32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { collect_indexed::<V>(z, d, limit, 0, list, index) }
}

/// Rows of width `d`, in groups of as many as a vector has lanes.
///
/// # Safety
/// The slices hold as many rows as `status`; the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: Rows<'_>, lambda: f64, gamma: f64) {
    let Rows { z, d, out, status, work } = job;
    let group = V::LANES * d;
    for ((z, out), status) in z.chunks(group).zip(out.chunks_mut(group)).zip(status.chunks_mut(V::LANES)) {
        // SAFETY: the chunks hold as many rows as `status`; the caller vouches for the instruction set.
        let tops = unsafe { tops::<V>(z.as_ptr(), d, status.len(), (1.0 / gamma) as f32) };
        for (r, ((z, out), status)) in z.chunks(d).zip(out.chunks_mut(d)).zip(status).enumerate() {
            *status = Status::of_max(tops.max[r]);
            out.fill(status.fill());
            if *status == Status::Ok {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { row::<V>(z, out, (tops.max[r], tops.bound[r]), lambda, gamma, work) };
            }
        }
    }
}

/// One row of which the tops are known, onto zeros.
///
/// # Safety
/// The CPU has the instruction set of `V`.
unsafe fn row<V: Vector>(
    z: &[f32],
    out: &mut [f32],
    (max, bound): (f32, f32),
    lambda: f64,
    gamma: f64,
    work: &mut Work,
) {
    let (list, index) = work.lists(z.len());
    let bound = f64::from(bound);
    let frame = Frame { max, scale: (1.0 / gamma) as f32 };
    let limit = cut((bound - 4.0 * lambda * (1.0 + 1e-6)) as f32, frame);
    // SAFETY: the lists hold a row and two vectors; the caller vouches for the instruction set; that is how
    // many were written.
    unsafe {
        let n = candidates::<V>(z.as_ptr(), z.len(), limit, list, index);
        work.hold(n);
    }
    let Work { list, index, pieces, hulls, .. } = work;
    pieces.clear();
    stretches(z, index, |range, free| {
        let stretch = Stretch { z: &list[range], top: f64::from(max), free };
        tv::prox(stretch, lambda * gamma, hulls, |piece| pieces.push(piece));
    });
    let t = threshold(pieces, (bound - 2.0 * lambda) * gamma, gamma);
    let mut start = 0;
    for piece in pieces.iter() {
        let len = piece.len as usize;
        // Whether a piece has mass is hard to guess: zeros are written again rather than asked about.
        put(out, &index[start..start + len], ((piece.value - t) / gamma).max(0.0) as f32);
        start += len;
    }
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
    let (mut t, mut before) = (start, f64::INFINITY);
    loop {
        let (mut sum, mut count) = (0.0, 0.0);
        for piece in pieces {
            let len = if piece.value > t { f64::from(piece.len) } else { 0.0 };
            sum += piece.value * len;
            count += len;
        }
        // Rounding may leave nothing above an average; the last one stands.
        if count == 0.0 || count >= before {
            return t;
        }
        (t, before) = ((sum - total) / count, count);
    }
}
