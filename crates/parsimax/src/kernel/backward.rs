//! Vector–Jacobian products from `p` alone.
//!
//! With `s_i = p_i^{2−α}` on the support and 0 off it, `Jv = scale · s ⊙ (v − <s,v>/Σs)`:
//! softmax has `s = p` (and `Σs = 1` is not assumed), sparsemax `s = 1`, 1.5-entmax `s = √p`.
//! Two passes: the two sums, then the products. In a long row that is sparse the first pass writes
//! zeros and notes which blocks hold any of the support; `v` is read in those alone. Entries of `v` off the support are masked out before anything is done with them, so an
//! infinity there does no harm. In a short row `s = 0` is mask enough for numbers that are finite;
//! if one is not, the sum tells, and the row is done again with care.

use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::{Identity, Indicator, Known, Power, Root, Weight};
use super::{Backward, Map, steep_backward};

/// Vectors in a block, the unit in which long rows are skipped or read.
const BLOCK: usize = 4;

/// Widest row whose sums are finished together with those of its neighbours.
const NARROW: usize = 128;

/// Widest row that is read as a whole, and whose sums may stay in f32.
pub(super) const SHORT: usize = 512;

/// Dispatch on the mapping.
///
/// # Safety
/// `p`, `v` and `out` hold the same whole number of rows of `d ≥ 1` floats, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn any<V: Vector>(map: Map, job: &mut Backward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::Softmax | Map::EvSoftmax => rows::<V, _>(Identity(job.scale), job),
            Map::Sparsemax => rows::<V, _>(Indicator(job.scale), job),
            Map::Entmax15 => rows::<V, _>(Root(job.scale), job),
            Map::Entmax(alpha) if alpha < 2.0 => rows::<V, _>(Power::new(alpha, job.scale), job),
            Map::Entmax(alpha) => steep_backward::without_scores::<V>(alpha, job),
        }
    }
}

/// The rows of a block, by pointer.
#[derive(Clone, Copy)]
struct Rows {
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
}

impl Rows {
    /// From row `r` on.
    ///
    /// # Safety
    /// There are at least `r` rows.
    #[inline(always)]
    unsafe fn from(self, r: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { self.past(r * self.d) }
    }

    /// From entry `at` on.
    ///
    /// # Safety
    /// There are at least `at` entries.
    #[inline(always)]
    unsafe fn past(self, at: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { Rows { p: self.p.add(at), v: self.v.add(at), out: self.out.add(at), ..self } }
    }
}

/// # Safety
/// As [`any`].
unsafe fn rows<V: Vector, W: Weight>(weight: W, job: &mut Backward<'_>) {
    let (d, n) = (job.d, job.out.len() / job.d);
    let (p, v, out) = (job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
    let all = Rows { p, v, out, d };
    // SAFETY: as the caller vouches; two positions make room for one word.
    unsafe {
        if d <= held::<V>() * V::LANES {
            held_rows::<V, W>(weight, all, n);
        } else if d <= NARROW {
            narrow_rows::<V, W>(weight, all, n);
        } else if d <= SHORT {
            short_rows::<V, W>(weight, all, n);
        } else {
            let words = job.scratch.positions(2 * (d / (BLOCK * V::LANES)).div_ceil(64));
            long_rows::<V, W>(weight, all, n, words.cast());
        }
    }
}

outlined! {
    /// Rows one by one.
    ///
    /// # Safety
    /// As [`any`], for `n` rows; `words` is writable, if not aligned, for a bit a whole block of a row.
    unsafe fn long_rows<V, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) -> () => long_rows_any
}

/// # Safety
/// As [`long_rows`].
#[inline(always)]
unsafe fn long_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) {
    let (step, mut is_crowded) = (BLOCK * V::LANES, false);
    let whole = rows.d / step * step;
    for r in 0..n {
        // SAFETY: row `r` lies within all three slices, and so do its blocks.
        unsafe {
            let row = rows.from(r);
            // A row is likely to be as the one before. Either way leads to the same numbers.
            if r == 0 {
                is_crowded = seems_crowded::<V>(row);
            }
            let (mean, busy) = match is_crowded {
                true => crowded_mean::<V, W>(weight, row),
                false => sparse_mean::<V, W>(weight, row, words),
            };
            match (is_crowded, W::KEPT) {
                (true, true) => crowded_products::<V, _>(Known, Rows { p: row.out, ..row }, whole, mean),
                (true, false) => crowded_products::<V, W>(weight, row, whole, mean),
                (false, true) => sparse_products::<V, _>(Known, Rows { p: row.out, ..row }, words, mean),
                (false, false) => sparse_products::<V, W>(weight, row, words, mean),
            }
            products::<V, W>(weight, row.past(whole), row.d - whole, mean);
            is_crowded = busy * 2 * step > whole;
        }
    }
}

/// Vectors of a row that tell at a glance what it is like.
const GLANCE: usize = 16;

/// Whether most of a few vectors hold any of the support.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn seems_crowded<V: Vector>(row: Rows) -> bool {
    let mut busy = 0;
    for k in 0..GLANCE {
        // SAFETY: a long row holds more vectors than that, and these end before it does.
        let p = unsafe { V::load(row.p.add(k * (row.d / GLANCE / V::LANES * V::LANES))) };
        // SAFETY: the caller vouches for the instruction set.
        busy += usize::from(V::bits(p.gt(unsafe { V::splat(0.0) })) != 0);
    }
    busy * 2 > GLANCE
}

/// The products of the blocks that hold any of the support.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn sparse_products<V: Vector, W: Weight>(weight: W, row: Rows, words: *const u64, mean: f32) {
    let step = BLOCK * V::LANES;
    for w in 0..(row.d / step).div_ceil(64) {
        // SAFETY: a bit stands for a block within the row.
        unsafe {
            let mut word = words.add(w).read_unaligned();
            while word != 0 {
                let at = (w * 64 + word.trailing_zeros() as usize) * step;
                products::<V, W>(weight, row.past(at), step, mean);
                word &= word - 1;
            }
        }
    }
}

/// Longest row of which the one after it is asked for while it is finished: as much as the caches hold beside it.
const ASKED: usize = 1 << 15;

/// The first `len` products of a row, a whole number of blocks, of which most are not 0.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn crowded_products<V: Vector, W: Weight>(weight: W, row: Rows, len: usize, mean: f32) {
    let step = BLOCK * V::LANES;
    // SAFETY: every access but those that only ask stays within `len` floats.
    unsafe {
        if row.d > ASKED {
            // From its end, which the caches still hold.
            for at in (0..len).step_by(step).rev() {
                products::<V, W>(weight, row.past(at), step, mean);
            }
            return;
        }
        for at in (0..len).step_by(step) {
            for k in 0..BLOCK {
                V::prefetch(row.p.wrapping_add(row.d + at + k * V::LANES));
                V::prefetch(row.v.wrapping_add(row.d + at + k * V::LANES));
            }
            products::<V, W>(weight, row.past(at), step, mean);
        }
    }
}

/// `<s,v>` and `Σs`, as they are summed in long rows: a few terms a lane in f32, then in f64.
struct Sums<V: Vector> {
    sv: [V; BLOCK],
    s: [V; BLOCK],
    wide_sv: V::Wide,
    wide_s: V::Wide,
}

impl<V: Vector> Sums<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: as the caller vouches.
        unsafe {
            let none = [V::splat(0.0); BLOCK];
            Sums { sv: none, s: none, wide_sv: V::wide_zero(), wide_s: V::wide_zero() }
        }
    }

    /// Adds a block, whose weights go to `out` if they are worth keeping. One without support adds nothing to any sum.
    ///
    /// # Safety
    /// All three are accessible for a block; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add<W: Weight>(&mut self, weight: W, part: Rows) {
        for k in 0..BLOCK {
            // SAFETY: as the caller vouches.
            unsafe {
                let q = V::load(part.p.add(k * V::LANES));
                let weighed = weight.weight(q);
                if W::KEPT {
                    weighed.store(part.out.add(k * V::LANES));
                }
                let v = V::load(part.v.add(k * V::LANES)).keep(q.gt(V::splat(0.0)));
                self.sv[k] = weighed.fma(v, self.sv[k]);
                self.s[k] = self.s[k].add(weighed);
            }
        }
    }

    /// Moves the sums to f64, after 64 blocks at most.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn widen(&mut self) {
        self.wide_sv = V::wide_add(self.wide_sv, together(self.sv));
        self.wide_s = V::wide_add(self.wide_s, together(self.s));
        // SAFETY: as the caller vouches.
        (self.sv, self.s) = unsafe { ([V::splat(0.0); BLOCK], [V::splat(0.0); BLOCK]) };
    }

    /// The mean, with the entries behind the last whole block of a row.
    ///
    /// # Safety
    /// As [`long_rows`], for one row.
    #[inline(always)]
    unsafe fn mean<W: Weight>(self, weight: W, row: Rows) -> f32 {
        let whole = row.d - row.d % (BLOCK * V::LANES);
        // SAFETY: as the caller vouches.
        let (sv, s) = unsafe { lane_sums::<V, W, true>(weight, Rows { d: row.d - whole, ..row.past(whole) }) };
        let sv = V::wide_total(V::wide_add(self.wide_sv, sv));
        let s = V::wide_total(V::wide_add(self.wide_s, s));
        if s > 0.0 { (sv / s) as f32 } else { 0.0 }
    }
}

/// `<s,v>/Σs` of a row most of whose blocks hold some of the support, and how many do.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn crowded_mean<V: Vector, W: Weight>(weight: W, row: Rows) -> (f32, usize) {
    let step = BLOCK * V::LANES;
    let (blocks, mut busy) = (row.d / step, 0);
    // SAFETY: block `i` lies within the row for `i < blocks`.
    unsafe {
        let mut sums = Sums::<V>::new();
        for first in (0..blocks).step_by(64) {
            for i in first..blocks.min(first + 64) {
                let part = row.past(i * step);
                busy += usize::from(holds_support::<V>(part.p));
                sums.add(weight, part);
            }
            sums.widen();
        }
        (sums.mean(weight, row), busy)
    }
}

/// The same of a row most of whose blocks hold none: `v` is read in the others alone, whose bits are left in `words`.
/// Writes zeros.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn sparse_mean<V: Vector, W: Weight>(weight: W, row: Rows, words: *mut u64) -> (f32, usize) {
    let step = BLOCK * V::LANES;
    let (blocks, mut busy) = (row.d / step, 0);
    // SAFETY: block `i` lies within the row for `i < blocks`.
    unsafe {
        let mut sums = Sums::<V>::new();
        for w in 0..blocks.div_ceil(64) {
            // First the bits, without a branch to guess; then the blocks, still in cache. Zeros are written on the way:
            // reading and writing at once take no longer than a copy.
            let mut word = 0u64;
            for i in w * 64..blocks.min(w * 64 + 64) {
                word |= u64::from(holds_support::<V>(row.p.add(i * step))) << (i % 64);
                for k in 0..BLOCK {
                    V::splat(0.0).store(row.out.add(i * step + k * V::LANES));
                }
            }
            words.add(w).write_unaligned(word);
            busy += word.count_ones() as usize;
            while word != 0 {
                sums.add(weight, row.past((w * 64 + word.trailing_zeros() as usize) * step));
                word &= word - 1;
            }
            sums.widen();
        }
        (sums.mean(weight, row), busy)
    }
}

/// Whether any probability of a block is positive.
///
/// # Safety
/// `p` is readable for a block; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn holds_support<V: Vector>(p: *const f32) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        let q = [V::load(p), V::load(p.add(V::LANES)), V::load(p.add(2 * V::LANES)), V::load(p.add(3 * V::LANES))];
        V::bits(q[0].max(q[1]).max(q[2].max(q[3])).gt(V::splat(0.0))) != 0
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
    unsafe fn held_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> () => held_rows_any
}

/// # Safety
/// As [`held_rows`].
#[inline(always)]
unsafe fn held_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) {
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

/// [`held_rows`] of `N` vectors a row, the last of which may be a part of one.
///
/// # Safety
/// As [`held_rows`].
#[inline(always)]
unsafe fn held_rows_of<V: Vector, W: Weight, const N: usize>(weight: W, rows: Rows, n: usize) {
    let last = rows.d - (N - 1) * V::LANES;
    for r in 0..n {
        // SAFETY: row `r` lies within all three for `r < n`.
        unsafe {
            let (row, zero) = (rows.from(r), V::splat(0.0));
            let (mut s, mut v) = ([zero; N], [zero; N]);
            let (mut sv, mut total) = ([zero; 2], [zero; 2]);
            for k in 0..N {
                let (at, len) = (k * V::LANES, if k + 1 < N { V::LANES } else { last });
                s[k] = weight.weight(read::<V>(row.p.add(at), len));
                v[k] = read::<V>(row.v.add(at), len);
                sv[k % 2] = s[k].fma(v[k], sv[k % 2]);
                total[k % 2] = total[k % 2].add(s[k]);
            }
            let (sv, total) = sv[0].add(sv[1]).totals(total[0].add(total[1]));
            let mean = sv / total;
            if mean.abs() <= MOST {
                let mean = V::splat(mean);
                for k in 0..N {
                    let len = if k + 1 < N { V::LANES } else { last };
                    // Adding 0 leaves no −0 where the weight is 0.
                    write(s[k].fma(v[k].sub(mean), zero), row.out.add(k * V::LANES), len);
                }
            } else {
                short_products::<V, W>(weight, row, mean);
            }
        }
    }
}

outlined! {
    /// Rows by `LANES`: their sums are left in their lanes, transposed, and finished together.
    ///
    /// # Safety
    /// As [`any`], for `n` rows of `d ≤ NARROW`.
    unsafe fn narrow_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> () => narrow_rows_any
}

/// # Safety
/// As [`narrow_rows`].
#[inline(always)]
unsafe fn narrow_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) {
    // Outside the loop: clearing them costs as much as some rows.
    let mut lane = [[0.0f32; MAX_LANES * MAX_LANES]; 2];
    let mut means = [0.0f32; MAX_LANES];
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
                short_products::<V, W>(weight, rows.from(r), means[r]);
            }
        }
    }
}

outlined! {
    /// Short rows.
    ///
    /// # Safety
    /// As [`any`], for `n ≥ 1` rows of `d ≤ SHORT`.
    unsafe fn short_rows<V, W: Weight>(weight: W, rows: Rows, n: usize) -> () => short_rows_any
}

/// # Safety
/// As [`short_rows`].
#[inline(always)]
unsafe fn short_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize) {
    // The mean of a row is known some time after its first pass. The second pass of the row before
    // fills that time.
    // SAFETY: every row lies within the `n` rows.
    unsafe {
        let mut mean = short_mean::<V, W, false>(weight, rows);
        for r in 1..n {
            let next = short_mean::<V, W, false>(weight, rows.from(r));
            short_products::<V, W>(weight, rows.from(r - 1), mean);
            mean = next;
        }
        short_products::<V, W>(weight, rows.from(n - 1), mean);
    }
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
const MOST: f32 = 1e30;

/// The second pass over a short row, whose first pass left its weights in `out` if they are kept.
///
/// # Safety
/// As [`short_rows`], for one row.
#[inline(always)]
unsafe fn short_products<V: Vector, W: Weight>(weight: W, row: Rows, mean: f32) {
    // SAFETY: as the caller vouches.
    unsafe {
        if mean.abs() <= MOST {
            plain_products::<V, W>(weight, row, mean);
        } else {
            let mean = short_mean::<V, W, true>(weight, row);
            products::<V, W>(weight, row, row.d, mean);
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
unsafe fn lane_sums<V: Vector, W: Weight, const CAREFUL: bool>(weight: W, row: Rows) -> (V, V) {
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

/// The sum of a block.
#[inline(always)]
fn together<V: Vector>(x: [V; BLOCK]) -> V {
    x[0].add(x[1]).add(x[2].add(x[3]))
}

/// The first `len` products of a row.
///
/// # Safety
/// `p` and `v` are readable and `out` writable for `len` floats; the CPU has the instruction set
/// of `V`.
#[inline(always)]
unsafe fn products<V: Vector, W: Weight>(weight: W, row: Rows, len: usize, mean: f32) {
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
