//! Vector–Jacobian products of long rows, one by one: two passes, the sums and then the products.
//!
//! In a row that is sparse the first pass writes zeros and notes which blocks hold any of the support; `v` is read in those
//! alone.

use super::backward::{BLOCK, Rows, lane_sums, products};
use super::vector::{Vector, outlined};
use super::weight::{Known, Weight};

outlined! {
    /// Rows one by one; returns whether any of them is bad.
    ///
    /// # Safety
    /// As [`any`](super::backward::any), for `n` rows; `words` is writable, if not aligned, for a bit a whole block of a row.
    pub(super) unsafe fn long_rows<V, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) -> bool => long_rows_any
}

/// # Safety
/// As [`long_rows`].
#[inline(always)]
unsafe fn long_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) -> bool {
    let (step, mut is_crowded, mut is_bad) = (BLOCK * V::LANES, false, false);
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
            is_bad |= row.is_bad();
        }
    }
    is_bad
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

/// The sum of a block.
#[inline(always)]
fn together<V: Vector>(x: [V; BLOCK]) -> V {
    x[0].add(x[1]).add(x[2].add(x[3]))
}
