//! Vector–Jacobian products from `p` alone.
//!
//! With `s_i = p_i^{2−α}` on the support and 0 off it, `Jv = scale · s ⊙ (v − <s,v>/Σs)`:
//! softmax has `s = p` (and `Σs = 1` is not assumed), sparsemax `s = 1`, 1.5-entmax `s = √p`.
//! Two passes: the two sums, then the products; long rows are apart (`long_backward.rs`). Entries of `v` off the support
//! are masked out before anything is done with them, so an infinity there does no harm. In a short row `s = 0` is mask
//! enough for numbers that are finite; if one is not, the sum tells, and the row is done again with care. The same sum
//! tells rows that the forward pass has filled with NaN.

use super::expo::Known;
use super::long_backward::{long_rows, words};
use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::{Identity, Indicator, Power, Root, Weight};
use super::{Backward, Map, steep_backward};

/// Vectors in a block, the unit in which long rows are skipped or read.
pub(super) const BLOCK: usize = 4;

/// Widest row whose sums are finished together with those of its neighbours.
const NARROW: usize = 128;

/// How far ahead of where they are both passes over a short row ask, in floats: some row behind it.
const AHEAD: usize = 512;

/// Widest row that is read as a whole, and whose sums may stay in f32.
const SHORT: usize = 512;

/// Dispatch on the mapping; returns whether any row of `p` is bad: whether it begins with a NaN.
///
/// # Safety
/// `p`, `v` and `out` hold the same whole number of rows of `d ≥ 1` floats, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn any<V: Vector>(map: Map, job: &mut Backward<'_>) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::Softmax | Map::EvSoftmax => rows::<V, _>(Identity(job.scale), job),
            Map::Sparsemax => rows::<V, _>(Indicator(job.scale), job),
            Map::Entmax15 => rows::<V, _>(Root(job.scale), job),
            Map::Entmax(alpha) if alpha < 2.0 => rows::<V, _>(Power::new(&Known::new(2.0 - alpha), job.scale), job),
            Map::Entmax(alpha) => {
                steep_backward::without_scores::<V>(alpha, job);
                job.p.chunks(job.d).any(|row| row[0].is_nan())
            }
        }
    }
}

/// The rows of a block, by pointer.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) p: *const f32,
    pub(super) v: *const f32,
    pub(super) out: *mut f32,
    pub(super) d: usize,
}

impl Rows {
    /// From row `r` on.
    ///
    /// # Safety
    /// There are at least `r` rows.
    #[inline(always)]
    pub(super) unsafe fn from(self, r: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { self.past(r * self.d) }
    }

    /// From entry `at` on.
    ///
    /// # Safety
    /// There are at least `at` entries.
    #[inline(always)]
    pub(super) unsafe fn past(self, at: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { Rows { p: self.p.add(at), v: self.v.add(at), out: self.out.add(at), ..self } }
    }

    /// Whether the forward pass has filled the first row with NaN.
    ///
    /// # Safety
    /// There is a row.
    #[inline(always)]
    pub(super) unsafe fn is_bad(self) -> bool {
        // SAFETY: a row holds a float at least.
        unsafe { (*self.p).is_nan() }
    }
}

/// # Safety
/// As [`any`].
unsafe fn rows<V: Vector, W: Weight>(weight: W, job: &mut Backward<'_>) -> bool {
    let (d, n) = (job.d, job.out.len() / job.d);
    let (p, v, out) = (job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
    let all = Rows { p, v, out, d };
    // SAFETY: as the caller vouches; two positions make room for a word.
    unsafe {
        if !W::BY_LOG && d <= held::<V>() * V::LANES {
            held_rows::<V, W>(weight, all, n)
        } else if d <= NARROW {
            narrow_rows::<V, W>(weight, all, n)
        } else if d <= SHORT {
            short_rows::<V, W>(weight, all, n)
        } else {
            let words = job.scratch.positions(4 * words::<V>(d));
            long_rows::<V, W>(weight, all, n, words.cast())
        }
    }
}

/// Most vectors of a row whose weights and gradients stay in registers: half of them.
const fn held<V: Vector>() -> usize {
    if V::LANES == MAX_LANES { 8 } else { 4 }
}

outlined! {
    /// Rows one by one, each read once.
    ///
    /// # Safety
    /// As [`any`], for `n` rows of at most [`held`] vectors.
    unsafe fn held_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> bool => held_rows_any
}

/// # Safety
/// As [`held_rows`].
#[inline(always)]
unsafe fn held_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        match rows.d.div_ceil(V::LANES) {
            1 => held_rows_of::<V, W, 1>(weight, rows, n),
            2 => held_rows_of::<V, W, 2>(weight, rows, n),
            3 => held_rows_of::<V, W, 3>(weight, rows, n),
            4 => held_rows_of::<V, W, 4>(weight, rows, n),
            5 => held_rows_of::<V, W, 5>(weight, rows, n),
            6 => held_rows_of::<V, W, 6>(weight, rows, n),
            7 => held_rows_of::<V, W, 7>(weight, rows, n),
            _ => held_rows_of::<V, W, 8>(weight, rows, n),
        }
    }
}

/// [`held_rows`] of `N` vectors a row, the last of which may be a part of one. Products are taken when the sums of the next
/// row have been: a row by itself is a long chain.
///
/// # Safety
/// As [`held_rows`].
#[inline(always)]
unsafe fn held_rows_of<V: Vector, W: Weight, const N: usize>(weight: W, rows: Rows, n: usize) -> bool {
    let mut is_bad = false;
    // SAFETY: row `r` lies within all three for `r < n`, of which there is one at least.
    unsafe {
        let (mut s, sums) = held_sums::<V, W, N>(weight, rows);
        let mut mean = mean_of(sums);
        for r in 1..n {
            let (next, sums) = held_sums::<V, W, N>(weight, rows.from(r));
            is_bad |= held_products::<V, W, N>(weight, rows.from(r - 1), s, mean);
            (s, mean) = (next, mean_of(sums));
        }
        is_bad | held_products::<V, W, N>(weight, rows.from(n - 1), s, mean)
    }
}

/// `<s,v>/Σs`, from sums by lanes.
#[inline(always)]
fn mean_of<V: Vector>((sv, s): (V, V)) -> f32 {
    let (sv, s) = sv.totals(s);
    sv / s
}

/// Where the `k`-th of `N` vectors of a row of width `d` is, and how much of it belongs to the row.
#[inline(always)]
const fn span<V: Vector, const N: usize>(k: usize, d: usize) -> (usize, usize) {
    (k * V::LANES, if k + 1 < N { V::LANES } else { d - (N - 1) * V::LANES })
}

/// The weights of a row, and `<s,v>` and `Σs` by lanes.
///
/// # Safety
/// As [`held_rows`], for one row.
#[inline(always)]
unsafe fn held_sums<V: Vector, W: Weight, const N: usize>(weight: W, row: Rows) -> ([V; N], (V, V)) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let (mut s, mut sv, mut total) = ([zero; N], [zero; 2], [zero; 2]);
        for k in 0..N {
            let (at, len) = span::<V, N>(k, row.d);
            s[k] = weight.weight(read::<V>(row.p.add(at), len));
            sv[k % 2] = s[k].fma(read::<V>(row.v.add(at), len), sv[k % 2]);
            total[k % 2] = total[k % 2].add(s[k]);
        }
        (s, (sv[0].add(sv[1]), total[0].add(total[1])))
    }
}

/// The products of a row with its weights; returns whether it is bad.
///
/// # Safety
/// As [`held_rows`], for one row.
#[inline(always)]
unsafe fn held_products<V: Vector, W: Weight, const N: usize>(weight: W, row: Rows, s: [V; N], mean: f32) -> bool {
    if mean.is_nan() || mean.abs() > MOST {
        // SAFETY: as the caller vouches.
        return unsafe { short_products::<V, W>(weight, row, mean) };
    }
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (mean, zero) = (V::splat(mean), V::splat(0.0));
        for k in 0..N {
            let (at, len) = span::<V, N>(k, row.d);
            // Adding 0 leaves no −0 where the weight is 0.
            write(s[k].fma(read::<V>(row.v.add(at), len).sub(mean), zero), row.out.add(at), len);
        }
        false
    }
}

outlined! {
    /// Rows by `LANES`: their sums are left in their lanes, transposed, and finished together.
    ///
    /// # Safety
    /// As [`any`], for `n` rows of `d ≤ NARROW`.
    unsafe fn narrow_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> bool => narrow_rows_any
}

/// # Safety
/// As [`narrow_rows`].
#[inline(always)]
unsafe fn narrow_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) -> bool {
    // Outside the loop: clearing them costs as much as some rows.
    let mut lane = [[0.0f32; MAX_LANES * MAX_LANES]; 2];
    let (mut means, mut is_bad) = ([0.0f32; MAX_LANES], false);
    for first in (0..n).step_by(V::LANES) {
        let here = (n - first).min(V::LANES);
        // SAFETY: row `r` lies within all three for `r < n`.
        unsafe {
            let rows = rows.from(first);
            for r in 0..here {
                let (sv, s) = lane_sums::<V, W, false>(weight, rows.from(r));
                sv.store(lane[0].as_mut_ptr().add(r * V::LANES));
                s.store(lane[1].as_mut_ptr().add(r * V::LANES));
            }
            let (sv, s) = (V::row_sums(lane[0].as_ptr()), V::row_sums(lane[1].as_ptr()));
            sv.div(s).store(means.as_mut_ptr());
            for r in 0..here {
                is_bad |= short_products::<V, W>(weight, rows.from(r), means[r]);
            }
        }
    }
    is_bad
}

outlined! {
    /// Short rows.
    ///
    /// # Safety
    /// As [`any`], for `n ≥ 1` rows of `d ≤ SHORT`.
    unsafe fn short_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> bool => short_rows_any
}

/// # Safety
/// As [`short_rows`].
#[inline(always)]
unsafe fn short_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) -> bool {
    let mut is_bad = false;
    for r in 0..n {
        // SAFETY: every row lies within the `n` rows.
        unsafe {
            let mean = short_mean::<V, W, false>(weight, rows.from(r));
            is_bad |= short_products::<V, W>(weight, rows.from(r), mean);
        }
    }
    is_bad
}

/// The first pass over a short row: its mean `<s,v>/Σs`; unless `CAREFUL`, not a number if there is no support.
///
/// # Safety
/// As [`short_rows`], for one row.
#[inline(always)]
unsafe fn short_mean<V: Vector, W: Weight, const CAREFUL: bool>(weight: W, row: Rows) -> f32 {
    // SAFETY: as the caller vouches.
    let (sv, s) = unsafe { lane_sums::<V, W, CAREFUL>(weight, row) };
    let (sv, s) = sv.totals(s);
    if s > 0.0 || !CAREFUL { sv / s } else { 0.0 }
}

/// The largest mean from which no finite number is infinitely far.
pub(super) const MOST: f32 = 1e30;

/// The second pass over a short row, whose first pass left its weights in `out` if they are kept; returns whether the row
/// is bad.
///
/// # Safety
/// As [`short_rows`], for one row.
#[inline(always)]
unsafe fn short_products<V: Vector, W: Weight>(weight: W, row: Rows, mean: f32) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        if mean.abs() <= MOST {
            plain_products::<V, W>(weight, row, mean);
            false
        } else {
            let mean = short_mean::<V, W, true>(weight, row);
            products::<V, W>(weight, row, row.d, mean);
            row.is_bad()
        }
    }
}

/// [`short_products`] of a row of finite numbers.
///
/// # Safety
/// As [`short_rows`], for one row.
#[inline(always)]
unsafe fn plain_products<V: Vector, W: Weight>(weight: W, row: Rows, mean: f32) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (mean, zero) = (V::splat(mean), V::splat(0.0));
        let from = if W::KEPT { row.out } else { row.p };
        let mut i = 0;
        while i + BLOCK * V::LANES <= row.d {
            for k in 0..BLOCK {
                let at = i + k * V::LANES;
                V::prefetch(row.p.wrapping_add(at + AHEAD));
                V::prefetch(row.v.wrapping_add(at + AHEAD));
                let s = V::load(from.add(at));
                let s = if W::KEPT { s } else { weight.weight(s) };
                // Adding 0 leaves no −0 where the weight is 0.
                s.fma(V::load(row.v.add(at)).sub(mean), zero).store(row.out.add(at));
            }
            i += BLOCK * V::LANES;
        }
        while i < row.d {
            let n = (row.d - i).min(V::LANES);
            let s = read::<V>(from.add(i), n);
            let s = if W::KEPT { s } else { weight.weight(s) };
            write(s.fma(read::<V>(row.v.add(i), n).sub(mean), zero), row.out.add(i), n);
            i += n;
        }
    }
}

/// `<s, v>` and `Σ s` lane by lane, in f32: at most `SHORT / LANES` terms each; `s` goes to `out` if it is worth
/// keeping. Unless `CAREFUL`, an entry of `v` off the support that is not finite spoils the sum.
///
/// # Safety
/// `p` and `v` are readable and `out` writable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn lane_sums<V: Vector, W: Weight, const CAREFUL: bool>(weight: W, row: Rows) -> (V, V) {
    let Rows { p, v, out, d } = row;
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        // Two sums of each: more would not stay in registers, beside what a weight needs.
        let (mut sv, mut s) = ([zero; 2], [zero; 2]);
        let mut i = 0;
        while i + BLOCK * V::LANES <= d {
            for k in 0..BLOCK {
                let at = i + k * V::LANES;
                V::prefetch(p.wrapping_add(at + AHEAD));
                V::prefetch(v.wrapping_add(at + AHEAD));
                let q = V::load(p.add(at));
                let w = weight.weight(q);
                let g = V::load(v.add(at));
                sv[k % 2] = w.fma(if CAREFUL { g.keep(q.gt(zero)) } else { g }, sv[k % 2]);
                s[k % 2] = s[k % 2].add(w);
                if W::KEPT {
                    w.store(out.add(at));
                }
            }
            i += BLOCK * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(p.add(i), n, 0.0);
            let w = weight.weight(q);
            let g = V::load_first(v.add(i), n, 0.0);
            sv[0] = w.fma(if CAREFUL { g.keep(q.gt(zero)) } else { g }, sv[0]);
            s[0] = s[0].add(w);
            if W::KEPT {
                w.store_first(out.add(i), n);
            }
            i += n;
        }
        (sv[0].add(sv[1]), s[0].add(s[1]))
    }
}

/// The first `len` products of a row.
///
/// # Safety
/// `p` and `v` are readable and `out` writable for `len` floats; the CPU has the instruction set
/// of `V`.
#[inline(always)]
pub(super) unsafe fn products<V: Vector, W: Weight>(weight: W, row: Rows, len: usize, mean: f32) {
    // SAFETY: every access stays within `len` floats.
    unsafe {
        let mut i = 0;
        while i + BLOCK * V::LANES <= len {
            for k in 0..BLOCK {
                let at = i + k * V::LANES;
                weight.product(V::load(row.p.add(at)), V::load(row.v.add(at)), mean).store(row.out.add(at));
            }
            i += BLOCK * V::LANES;
        }
        while i < len {
            let n = (len - i).min(V::LANES);
            let (p, v) = (V::load_first(row.p.add(i), n, 0.0), V::load_first(row.v.add(i), n, 0.0));
            weight.product(p, v, mean).store_first(row.out.add(i), n);
            i += n;
        }
    }
}
