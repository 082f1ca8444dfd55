//! Fusedmax of short rows: `LANES` rows at a time.
//!
//! Plainly, as in `fused.rs`: candidates, prox, threshold, write. What a short row spends its time on there is not the
//! prox but the way to it: of 64 normal scores some nine are candidates, of which most stand alone, the others in twos,
//! and where they stand nobody can guess.
//!
//! **One or two.** A candidate between two scores that are none is pulled down by λ from either side. Of two, with such
//! neighbours, each is pulled once from outside, and towards their mean by λ at most. So both are a few operations on a
//! vector of scores and those beside them, in units of γ. Whatever else there is, more than two in a row, or candidates
//! beside the end of the row or a masked entry, is marked and solved by `tv.rs`.
//!
//! **The rest** is sparsemax of what came out, one row a lane (`solve.rs`). Values of the prox wait in the place of the
//! result, where −∞ stands for what has no mass.
//!
//! **Digits.** In f32: scores are less than 2 below the largest, and four roundings are less than 5·10⁻⁷.

use super::tops_any;
use crate::profile::{At, Sparsemax, Tau};
use crate::scan::{collect, into_lanes};
use crate::solve::{Frame, cut, solve_lanes};
use crate::structured::Work;
use crate::tv::{self, Stretch};
use crate::vector::{MAX_LANES, Vector, outlined};

/// Widest row.
pub(super) const WIDEST: usize = 512;

/// Largest λ.
const MAX_LAMBDA: f64 = 0.25;

/// Lists of candidates, a row each, and the lists turned.
pub(super) const ROOM: usize = MAX_LANES * (STRIDE + WIDEST + MAX_LANES);
const STRIDE: usize = WIDEST + 2 * MAX_LANES;

/// Marks of a row, one word a vector of at least four.
type Marks = [u32; WIDEST / 4];

/// Whether rows of width `d` are solved here.
pub(super) fn fits(d: usize, lambda: f64) -> bool {
    d <= WIDEST && lambda <= MAX_LAMBDA
}

outlined! {
    /// Solves and writes `here ≤ LANES` rows that [fit](fits); their maxima, NaN where there is one. Rows without a finite
    /// maximum are left as they are.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for that many rows of `d ≥ 1` floats; `buffer` is writable for [`ROOM`] floats;
    /// `work` is nobody else's; the CPU has the instruction set of `V`.
    pub(super) unsafe fn rows<V>(
        z: *const f32,
        out: *mut f32,
        d: usize,
        here: usize,
        strength: (f64, f64),
        buffer: *mut f32,
        work: *mut Work,
    ) -> [f32; MAX_LANES] => rows_any
}

/// A row, and how it is measured.
struct Row {
    z: *const f32,
    out: *mut f32,
    d: usize,
    frame: Frame,
    /// Candidates are above.
    limit: f32,
    /// Values of the prox with mass are above, in units of γ.
    start: f32,
    lambda: f64,
    gamma: f64,
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_any<V: Vector>(
    z: *const f32,
    out: *mut f32,
    d: usize,
    here: usize,
    (lambda, gamma): (f64, f64),
    buffer: *mut f32,
    work: *mut Work,
) -> [f32; MAX_LANES] {
    // SAFETY: as the caller vouches; a row has no more candidates than entries.
    unsafe {
        let scale = (1.0 / gamma) as f32;
        let tops = tops_any::<V>(z, d, here, scale);
        let (mut kept, mut slots) = ([0; MAX_LANES], 0);
        let (mut counts, mut starts) = ([0.0f32; MAX_LANES], [-1.0f32; MAX_LANES]);
        for r in (0..here).filter(|r| tops.max[*r].is_finite()) {
            let frame = Frame { max: tops.max[r], scale };
            let bound = f64::from(tops.bound[r]);
            let limit = cut((bound - 4.0 * lambda * (1.0 + 1e-6)) as f32, frame);
            let start = (bound - 2.0 * lambda - 1e-6) as f32;
            let row = Row { z: z.add(r * d), out: out.add(r * d), d, frame, limit, start, lambda, gamma };
            kept[r] = row.prox::<V>(buffer.add(r * STRIDE), &mut *work);
            (counts[r], starts[r]) = (kept[r] as f32, start);
            slots = slots.max(kept[r]);
        }
        let lanes = buffer.add(MAX_LANES * STRIDE);
        into_lanes::<V>(buffer, STRIDE, &kept, slots, lanes);
        let (start, counts) = (V::load(starts.as_ptr()), V::load(counts.as_ptr()));
        let (hi, lo) = solve_lanes::<V, Sparsemax>(Sparsemax(1.0), lanes, slots.next_multiple_of(4), start, counts);
        let (mut his, mut los) = ([0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
        hi.store(his.as_mut_ptr());
        lo.store(los.as_mut_ptr());
        for r in (0..here).filter(|r| kept[*r] > 0) {
            project::<V>(out.add(r * d), d, Tau::new(f64::from(his[r]) + f64::from(los[r])));
        }
        tops.max
    }
}

/// Replaces values of the prox by probabilities.
///
/// # Safety
/// `x` is readable and writable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn project<V: Vector>(x: *mut f32, d: usize, tau: Tau) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let at = At::<V>::new(tau);
        let mut i = 0;
        while i + V::LANES <= d {
            at.excess(V::load(x.add(i))).store(x.add(i));
            i += V::LANES;
        }
        if i < d {
            at.excess(V::load_first(x.add(i), d - i, f32::NEG_INFINITY)).store_first(x.add(i), d - i);
        }
    }
}

/// All of these ask of their callers what [`rows`] does.
impl Row {
    /// Writes the values of the prox to `out`, −∞ for those that are no candidates, and lists those that can have mass;
    /// how many.
    ///
    /// # Safety
    /// As [`rows`], with `list` writable for `d + 2·LANES` floats.
    #[inline(always)]
    unsafe fn prox<V: Vector>(&self, list: *mut f32, work: &mut Work) -> usize {
        // SAFETY: every access stays within the row or the list.
        unsafe {
            let mut marks: Marks = [0; WIDEST / 4];
            let (mut any, mut i, mut n) = (0, 0, 0);
            while i < self.d {
                let len = (self.d - i).min(V::LANES);
                let (x, marked) = self.vector::<V>(i, len);
                x.store_first(self.out.add(i), len);
                n += x.compress(x.gt(V::splat(self.start)), list.add(n));
                marks[i / V::LANES] = marked;
                any |= marked;
                i += V::LANES;
            }
            if any != 0 {
                self.mend(&marks[..self.d.div_ceil(V::LANES)], V::LANES, work);
                n = collect::<V>(self.out, self.d, self.start, list);
            }
            n
        }
    }

    /// Values of the prox of `len` scores from `i` on, as if candidates stood alone or in twos, and the lanes of those
    /// that do not, or that have no neighbour on either side.
    ///
    /// # Safety
    /// As [`rows`]; so many scores are there.
    #[inline(always)]
    unsafe fn vector<V: Vector>(&self, i: usize, len: usize) -> (V, u32) {
        // SAFETY: as the caller vouches; what is missing beside the row is filled in.
        unsafe {
            let none = V::splat(f32::NEG_INFINITY);
            let z = V::load_first(self.z.add(i), len, f32::NEG_INFINITY);
            let limit = V::splat(self.limit);
            let here = z.gt(limit);
            if V::bits(here) == 0 {
                return (none, 0);
            }
            let before =
                if i == 0 { V::load_after(self.z, len, f32::NEG_INFINITY) } else { V::load(self.z.add(i - 1)) };
            let after = V::load_first(self.z.add(i + 1), (self.d - i - 1).min(V::LANES), f32::NEG_INFINITY);
            let long = V::and(before.gt(limit), after.gt(limit));
            let lonely = V::or(none.ge(before), none.ge(after));
            let marked = V::bits(V::and(here, V::or(long, lonely)));

            let (max, scale) = (V::splat(self.frame.max), V::splat(self.frame.scale));
            let (lambda, half) = (V::splat(self.lambda as f32), V::splat(0.5));
            let neighbour = before.max(after);
            let (x, y) = (z.sub(max).mul(scale), neighbour.sub(max).mul(scale));
            let (low, high) = (x.sub(lambda), x.add(lambda));
            let one = low.sub(lambda);
            // The same bits for both of two that meet.
            let two = x.add(y).mul(half).max(low).min(high).sub(lambda);
            (two.select(neighbour.gt(limit), one).select(here, none), marked)
        }
    }

    /// Solves the stretches of candidates that are marked.
    ///
    /// # Safety
    /// As [`rows`].
    // Inlined, it takes the registers of what most rows need.
    #[inline(never)]
    unsafe fn mend(&self, marks: &[u32], lanes: usize, work: &mut Work) {
        // SAFETY: as the caller vouches.
        let z = unsafe { std::slice::from_raw_parts(self.z, self.d) };
        let (mut done, mut first) = (0usize, 0);
        for bits in marks {
            // Those of a stretch that was not solved with an earlier one.
            let left = |done: usize| {
                let skip = done.saturating_sub(first) as u32;
                bits.checked_shr(skip).map_or(0, |bits| bits << skip)
            };
            while left(done) != 0 {
                let i = first + left(done).trailing_zeros() as usize;
                // SAFETY: as the caller vouches.
                done = unsafe { self.stretch(z, i, work) };
            }
            first += lanes;
        }
    }

    /// Solves the stretch that `i` belongs to; the place behind it.
    ///
    /// # Safety
    /// As [`rows`].
    unsafe fn stretch(&self, z: &[f32], i: usize, work: &mut Work) -> usize {
        let (mut first, mut free) = (i, (true, true));
        for (k, z) in z[..i].iter().enumerate().rev().filter(|(_, z)| **z > f32::NEG_INFINITY) {
            if *z <= self.limit {
                free.0 = false;
                break;
            }
            first = k;
        }
        // Behind the stretch, behind its last candidate, and how many there are.
        let (mut end, mut last, mut count) = (first, first, 0);
        while end < z.len() && (z[end] > self.limit || z[end] == f32::NEG_INFINITY) {
            let is_candidate = z[end] > self.limit;
            end += 1;
            last = if is_candidate { end } else { last };
            count += usize::from(is_candidate);
        }
        free.1 = end == z.len();
        let (top, l) = (f64::from(self.frame.max), self.lambda * self.gamma);
        let x = |value: f64| (value / self.gamma) as f32;
        if count == last - first {
            // SAFETY: the candidates are neighbours in the row.
            let mut out = unsafe { std::slice::from_raw_parts_mut(self.out.add(first), count) };
            tv::prox(Stretch { z: &z[first..last], top, free }, l, &mut work.hulls, |piece| {
                let (here, behind) = std::mem::take(&mut out).split_at_mut(piece.len as usize);
                here.fill(x(piece.value));
                out = behind;
            });
            return end;
        }
        let Work { list, index, hulls, .. } = work;
        list.clear();
        index.clear();
        for k in (first..last).filter(|k| z[*k] > self.limit) {
            list.push(z[k]);
            index.push(k as u32);
        }
        let mut places = index.iter();
        tv::prox(Stretch { z: &list[..], top, free }, l, hulls, |piece| {
            let x = x(piece.value);
            // SAFETY: the places lie within the row.
            places.by_ref().take(piece.len as usize).for_each(|k| unsafe { *self.out.add(*k as usize) = x });
        });
        end
    }
}
