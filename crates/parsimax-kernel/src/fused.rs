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
//!
//! **Many candidates** are not listed: a row that has more than `ROOM` is solved in the place of its result, where
//! scores, values of the prox and probabilities take turns in f32 (`in_place`).

mod lanes;

use super::Status;
use super::norm::entries;
use super::profile::{At, Sparsemax, Tau};
use super::scan::collect_few;
use super::short::{lane_bounds, lanes_of_maxima};
use super::solve::{Frame, cut, solve};
use super::structured::{Rows, Work};
use super::tv::{self, Hulls, Part, Piece, Stretch};
use super::vector::{MAX_LANES, Vector, outlined, write};
use std::cell::Cell;
use std::ops::Range;

/// Candidates that are listed at most, 64 KiB with their positions, and 128 KiB of pieces if none of them fuse.
const ROOM: usize = 8192;

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
    /// Lists the candidates of a row, its scores above `limit`, and how many they are; `None` if they may be more
    /// than [`ROOM`].
    ///
    /// # Safety
    /// `z` is readable for `d` floats; `list` and `index` are writable for `d`, or [`ROOM`] if that is less, and
    /// `2·LANES` more; the CPU has the instruction set of `V`.
    unsafe fn candidates<V>(z: *const f32, d: usize, limit: f32, list: *mut f32, index: *mut u32) -> Option<usize>
        => candidates_any
}

/// # Safety
/// As [`candidates`].
#[inline(always)]
unsafe fn candidates_any<V: Vector>(
    z: *const f32,
    d: usize,
    limit: f32,
    list: *mut f32,
    index: *mut u32,
) -> Option<usize> {
    // SAFETY: as the caller vouches.
    unsafe { collect_few::<V>(z, d, limit, ROOM, list, index) }
}

/// Rows of width `d`, in groups of as many as a vector has lanes.
///
/// # Safety
/// The slices hold as many rows as `status`; the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: Rows<'_>, lambda: f64, gamma: f64) {
    if lanes::fits(job.d, lambda) {
        // SAFETY: as the caller vouches.
        return unsafe { forward_short::<V>(job, lambda, gamma) };
    }
    let Rows { z, d, out, status, work } = job;
    let group = V::LANES * d;
    for ((z, out), status) in z.chunks(group).zip(out.chunks_mut(group)).zip(status.chunks_mut(V::LANES)) {
        // SAFETY: the chunks hold as many rows as `status`; the caller vouches for the instruction set.
        let tops = unsafe { tops::<V>(z.as_ptr(), d, status.len(), (1.0 / gamma) as f32) };
        for (r, ((z, out), status)) in z.chunks(d).zip(out.chunks_mut(d)).zip(status).enumerate() {
            *status = Status::of_max(tops.max[r]);
            if *status == Status::Ok {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { row::<V>(z, out, (tops.max[r], tops.bound[r]), lambda, gamma, work) };
            } else {
                out.fill(status.fill());
            }
        }
    }
}

/// The same for rows that are solved group by group.
///
/// # Safety
/// As [`forward`].
unsafe fn forward_short<V: Vector>(job: Rows<'_>, lambda: f64, gamma: f64) {
    let Rows { z, d, out, status, work } = job;
    let group = V::LANES * d;
    let mut buffer = std::mem::take(&mut work.lanes);
    buffer.reserve(lanes::ROOM);
    for ((z, out), status) in z.chunks(group).zip(out.chunks_mut(group)).zip(status.chunks_mut(V::LANES)) {
        let (rows, here, room) = ((z.as_ptr(), out.as_mut_ptr()), status.len(), buffer.as_mut_ptr());
        // SAFETY: the chunks hold as many rows as `status`, the buffer what they need; the caller vouches for the
        // instruction set.
        let max = unsafe { lanes::rows::<V>(rows.0, rows.1, d, here, (lambda, gamma), room, work) };
        for ((out, status), max) in out.chunks_mut(d).zip(status).zip(max) {
            *status = Status::of_max(max);
            if *status != Status::Ok {
                out.fill(status.fill());
            }
        }
    }
    work.lanes = buffer;
}

/// One row of which the tops are known.
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
    let (list, index) = work.lists(z.len().min(ROOM));
    let limit = limit_of((max, f64::from(bound)), lambda, gamma);
    // SAFETY: the lists hold a row or `ROOM` entries, and two vectors; the caller vouches for the instruction set;
    // that is how many were written.
    unsafe {
        let Some(n) = candidates::<V>(z.as_ptr(), z.len(), limit, list, index) else {
            return through_place::<V>(z, out, (max, bound), lambda, gamma, &mut work.hulls);
        };
        work.hold(n);
    }
    out.fill(0.0);
    let Work { list, index, pieces, hulls, .. } = work;
    pieces.clear();
    stretches(z, index, |range, free| {
        let stretch = Stretch { z: &list[range], top: f64::from(max), free };
        tv::prox(stretch, lambda * gamma, hulls, |piece| pieces.push(piece));
    });
    let t = threshold(pieces, (f64::from(bound) - 2.0 * lambda) * gamma, gamma);
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

/// Whether nothing of it takes part.
fn is_masked(z: &[f32]) -> bool {
    z.iter().all(|z| *z == f32::NEG_INFINITY)
}

/// Calls `visit` with every stretch of the candidates: those with nothing but masked entries between them, and
/// whether its ends are those of the row.
pub(crate) fn stretches(z: &[f32], index: &[u32], mut visit: impl FnMut(Range<usize>, (bool, bool))) {
    let mut left = is_masked(&z[..index[0] as usize]);
    let mut start = 0;
    for k in 1..index.len() {
        let (before, next) = (index[k - 1] as usize + 1, index[k] as usize);
        if before != next && (z[before] > f32::NEG_INFINITY || !is_masked(&z[before..next])) {
            visit(start..k, (left, false));
            (start, left) = (k, false);
        }
    }
    let right = is_masked(&z[index[index.len() - 1] as usize + 1..]);
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

/// Up to this λ values of the prox are measured from the largest score, which is at most 2λ above the largest of
/// them: a value with mass is less than 3 below, and what rounding to f32 takes from it is 1.2·10⁻⁷ at most.
const NEAR: f64 = 1.0;

/// A row of more candidates than are listed, in the place of its result: its scores move to the front of `out`, one
/// behind the other, so that masked entries are no neighbours there, and their probabilities back to where they belong.
///
/// # Safety
/// The CPU has the instruction set of `V`; there is a candidate.
unsafe fn through_place<V: Vector>(
    z: &[f32],
    out: &mut [f32],
    tops: (f32, f32),
    lambda: f64,
    gamma: f64,
    hulls: &mut Hulls,
) {
    if z.iter().fold(true, |all, z| all & (*z > f32::NEG_INFINITY)) {
        out.copy_from_slice(z);
        // SAFETY: as the caller vouches.
        return unsafe { replace::<V>(out, tops, lambda, gamma, hulls) };
    }
    let mut n = 0;
    for z in z {
        out[n] = *z;
        n += usize::from(*z > f32::NEG_INFINITY);
    }
    // SAFETY: as the caller vouches.
    unsafe { replace::<V>(&mut out[..n], tops, lambda, gamma, hulls) };
    // From the last on: what is still to be moved lies before the place of its successor.
    for (i, z) in z.iter().enumerate().rev() {
        let takes_part = *z > f32::NEG_INFINITY;
        n -= usize::from(takes_part);
        out[i] = if takes_part { out[n] } else { 0.0 };
    }
}

/// Replaces the scores of a row, all finite, by its probabilities.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn in_place<V: Vector>(x: &mut [f32], lambda: f64, gamma: f64, hulls: &mut Hulls) -> Status {
    // SAFETY: as the caller vouches.
    let tops = unsafe { tops::<V>(x.as_ptr(), x.len(), 1, (1.0 / gamma) as f32) };
    let status = Status::of_max(tops.max[0]);
    if status == Status::Ok {
        // SAFETY: as the caller vouches.
        unsafe { replace::<V>(x, (tops.max[0], tops.bound[0]), lambda, gamma, hulls) };
    } else {
        x.fill(status.fill());
    }
    status
}

/// [`in_place`], of a row of which the tops are known.
///
/// Plainly: the values of the prox take the place of the scores, −∞ that of scores that are no candidates; then the
/// probabilities theirs. The threshold runs over entries, with vectors. Beyond the row it takes the memory of the hulls
/// alone (`tv.rs`).
///
/// # Safety
/// As [`in_place`].
unsafe fn replace<V: Vector>(row: &mut [f32], (max, bound): (f32, f32), lambda: f64, gamma: f64, hulls: &mut Hulls) {
    let (l, bound) = (lambda * gamma, f64::from(bound));
    let limit = limit_of((max, bound), lambda, gamma);
    let x = Cell::from_mut(&mut *row).as_slice_of_cells();
    let mut origin = 0.0;
    if lambda > NEAR {
        origin = f64::NEG_INFINITY;
        pieces(x, (max, limit), l, hulls, |_, value| origin = origin.max(value));
    }
    pieces(x, (max, limit), l, hulls, |x, value| {
        let value = ((value - origin) / gamma) as f32;
        x.iter().for_each(|x| x.set(value));
    });
    // Rounding moves the threshold by no more than the values.
    let start = bound - 2.0 * lambda - origin / gamma - 1e-6;
    let frame = Frame { max: 0.0, scale: 1.0 };
    // SAFETY: as the caller vouches.
    unsafe {
        let tau = solve::<V, Sparsemax, true>(Sparsemax(1.0), row.as_ptr(), row.len(), frame, start);
        excess::<V>(row.as_mut_ptr(), row.len(), Tau::new(tau));
    }
}

/// Candidates are above.
fn limit_of((max, bound): (f32, f64), lambda: f64, gamma: f64) -> f32 {
    cut((bound - 4.0 * lambda * (1.0 + 1e-6)) as f32, Frame { max, scale: (1.0 / gamma) as f32 })
}

/// How many of the first have a property; many at a time, for they often are.
fn alike<T>(x: &[T], property: impl Fn(&T) -> bool) -> usize {
    const BLOCK: usize = 64;
    let blocks = x.chunks_exact(BLOCK).take_while(|block| block.iter().fold(true, |all, x| all & property(x)));
    let whole = BLOCK * blocks.count();
    whole + x[whole..].iter().take_while(|x| property(x)).count()
}

/// Calls `visit` with the place of every piece of the prox in a row without masked entries, and its value, measured
/// from the maximum; for what is not above the limit that is −∞. The place may be written.
fn pieces(
    x: &[Cell<f32>],
    (max, limit): (f32, f32),
    l: f64,
    hulls: &mut Hulls,
    mut visit: impl FnMut(&[Cell<f32>], f64),
) {
    let mut start = 0;
    while start < x.len() {
        let is_candidate = x[start].get() > limit;
        let len = alike(&x[start..], |x| (x.get() > limit) == is_candidate);
        let (mut rest, end) = (&x[start..start + len], start + len);
        if is_candidate {
            let stretch = Stretch { z: rest, top: f64::from(max), free: (start == 0, end == x.len()) };
            tv::prox(stretch, l, hulls, |piece| {
                let (place, behind) = rest.split_at(piece.len as usize);
                visit(place, piece.value);
                rest = behind;
            });
        } else {
            visit(rest, f64::NEG_INFINITY);
        }
        start = end;
    }
}

/// Calls `visit` with the place of every piece of the prox of a row of finite scores that are handed out one by one,
/// and its value, in units of γ and measured from the maximum; for scores that are too low to have mass that is −∞. A
/// score is not asked for once its piece has been visited. It takes the memory of the hulls alone.
pub fn fused_pieces(
    n: usize,
    score: impl Fn(usize) -> f32,
    (lambda, gamma): (f64, f64),
    mut visit: impl FnMut(Range<usize>, f64),
) {
    let mut hulls = Hulls::default();
    let max = (0..n).map(&score).fold(f32::NEG_INFINITY, f32::max);
    // No threshold of sparsemax is further below the maximum.
    let limit = limit_of((max, -1.0), lambda, gamma);
    let mut start = 0;
    while start < n {
        let is_candidate = score(start) > limit;
        let mut end = start + 1;
        while end < n && (score(end) > limit) == is_candidate {
            end += 1;
        }
        if is_candidate {
            let z = Part { of: &score, range: (start, end) };
            let stretch = Stretch { z, top: f64::from(max), free: (start == 0, end == n) };
            tv::prox(stretch, lambda * gamma, &mut hulls, |piece| {
                let next = start + piece.len as usize;
                visit(start..next, piece.value / gamma);
                start = next;
            });
        } else {
            visit(start..end, f64::NEG_INFINITY);
        }
        start = end;
    }
}

outlined! {
    /// Replaces `n` entries by `[x − τ]₊`.
    ///
    /// # Safety
    /// `x` is readable and writable for `n` floats; the CPU has the instruction set of `V`.
    unsafe fn excess<V>(x: *mut f32, n: usize, tau: Tau) -> () => excess_any
}

/// # Safety
/// As [`excess`].
#[inline(always)]
unsafe fn excess_any<V: Vector>(x: *mut f32, n: usize, tau: Tau) {
    // SAFETY: as the caller vouches.
    unsafe {
        let at = At::<V>::new(tau);
        let mut i = 0;
        while i < n {
            write(at.excess(entries::<V>(x.add(i), n - i)), x.add(i), (n - i).min(V::LANES));
            i += V::LANES;
        }
    }
}
