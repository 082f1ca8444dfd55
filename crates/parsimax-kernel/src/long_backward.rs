//! Vector–Jacobian products of long rows: two passes, the sums and then the products.
//!
//! The first vectors of a row tell whether it is crowded. If it is not, the first pass reads `p` alone, writes zeros and
//! notes which vectors hold any of the support; sums and products are of those. They have to wait for their `v`, so they
//! are taken when the next row has been gone through.

use super::backward::{BLOCK, MOST, Rows, lane_sums, products};
use super::vector::{Vector, outlined, read, write};
use super::weight::{Kept, Weight};

outlined! {
    /// Rows one by one; returns whether any of them is bad.
    ///
    /// # Safety
    /// As [`any`](super::backward::any), for `n` rows; `words` is writable, if not aligned, for [`words`] of two rows.
    pub(super) unsafe fn long_rows<V, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) -> bool => long_rows_any
}

/// Words with a bit for every vector of a row of that width.
pub(super) const fn words<V: Vector>(d: usize) -> usize {
    d.div_ceil(V::LANES).div_ceil(64)
}

/// # Safety
/// As [`long_rows`].
#[inline(always)]
unsafe fn long_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, n: usize, words: *mut u64) -> bool {
    let (mut waiting, mut is_bad) = (None, false);
    for r in 0..n {
        // SAFETY: row `r` lies within all three slices, and there are words for two rows.
        unsafe {
            let row = rows.from(r);
            is_bad |= row.is_bad();
            let here = words.add(r % 2 * self::words::<V>(rows.d));
            let is_crowded = seems_crowded::<V>(row);
            if !is_crowded {
                mark::<V>(row, here);
            }
            if let Some((row, words)) = waiting.take() {
                sparse::<V, W>(weight, row, words);
            }
            if is_crowded {
                crowded::<V, W>(weight, row);
            } else {
                waiting = Some((row, here));
            }
        }
    }
    if let Some((row, words)) = waiting {
        // SAFETY: as above.
        unsafe { sparse::<V, W>(weight, row, words) };
    }
    is_bad
}

/// Vectors of a row that tell at a glance what it is like: the first ones, which are read next in any case.
const GLANCE: usize = 16;

/// Whether many of a few vectors hold any of the support.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn seems_crowded<V: Vector>(row: Rows) -> bool {
    let mut busy = 0;
    for k in 0..GLANCE {
        // SAFETY: a long row holds more vectors than that; the caller vouches for the instruction set.
        busy += unsafe { usize::from(V::bits(V::load(row.p.add(k * V::LANES)).gt(V::splat(0.0))) != 0) };
    }
    busy * 3 > GLANCE
}

/// Writes zeros, notes which vectors of a row hold any of the support, and asks for their `v`.
///
/// # Safety
/// As [`long_rows`], for one row and its words.
#[inline(always)]
unsafe fn mark<V: Vector>(row: Rows, words: *mut u64) {
    let (Rows { p, v, out, d }, step) = (row, BLOCK * V::LANES);
    // SAFETY: every access stays within `d` floats, and there is a bit for every vector.
    unsafe {
        let zero = V::splat(0.0);
        for w in 0..self::words::<V>(d) {
            let first = w * 64 * V::LANES;
            let (len, mut word) = ((d - first).min(64 * V::LANES), 0u64);
            // Reading and writing at once take no longer than a copy.
            let whole = len / step * step;
            for i in (0..whole).step_by(step) {
                let mut busy = 0;
                for k in 0..BLOCK {
                    let at = first + i + k * V::LANES;
                    busy |= u64::from(V::bits(V::load(p.add(at)).gt(zero)) != 0) << k;
                    zero.store(out.add(at));
                }
                word |= busy << (i / V::LANES);
            }
            for i in (whole..len).step_by(V::LANES) {
                write(zero, out.add(first + i), (len - i).min(V::LANES));
                word |= 1 << (i / V::LANES);
            }
            words.add(w).write_unaligned(word);
            while word != 0 {
                V::prefetch(v.add(first + word.trailing_zeros() as usize * V::LANES));
                word &= word - 1;
            }
        }
    }
}

/// The sums of a row that is marked, and its products where they are not 0.
///
/// # Safety
/// As [`mark`], for a row that is marked.
#[inline(always)]
unsafe fn sparse<V: Vector, W: Weight>(weight: W, row: Rows, words: *const u64) {
    let Rows { p, v, out, d } = row;
    // SAFETY: a bit stands for a vector within the row.
    unsafe {
        let mut sums = Sums::<V>::new();
        for w in 0..self::words::<V>(d) {
            let mut word = words.add(w).read_unaligned();
            while word != 0 {
                let at = (w * 64 + word.trailing_zeros() as usize) * V::LANES;
                let len = (d - at).min(V::LANES);
                let q = read::<V>(p.add(at), len);
                let s = weight.weight(q);
                if W::KEPT {
                    write(s, out.add(at), len);
                }
                let g = read::<V>(v.add(at), len).keep(q.gt(V::splat(0.0)));
                (sums.sv, sums.s) = (s.fma(g, sums.sv), sums.s.add(s));
                word &= word - 1;
            }
            sums.widen();
        }
        let mean = sums.mean();
        for w in 0..self::words::<V>(d) {
            let mut word = words.add(w).read_unaligned();
            while word != 0 {
                let at = (w * 64 + word.trailing_zeros() as usize) * V::LANES;
                let len = (d - at).min(V::LANES);
                let g = read::<V>(v.add(at), len);
                let product = match W::KEPT {
                    true => Kept.product(read::<V>(out.add(at), len), g, mean),
                    false => weight.product(read::<V>(p.add(at), len), g, mean),
                };
                write(product, out.add(at), len);
                word &= word - 1;
            }
        }
    }
}

/// `<s,v>` and `Σs`: up to 64 terms a lane in f32, then in f64.
struct Sums<V: Vector> {
    sv: V,
    s: V,
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
            let zero = V::splat(0.0);
            Sums { sv: zero, s: zero, wide_sv: V::wide_zero(), wide_s: V::wide_zero() }
        }
    }

    /// Moves the sums to f64.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn widen(&mut self) {
        self.wide_sv = V::wide_add(self.wide_sv, self.sv);
        self.wide_s = V::wide_add(self.wide_s, self.s);
        // SAFETY: as the caller vouches.
        (self.sv, self.s) = unsafe { (V::splat(0.0), V::splat(0.0)) };
    }

    /// `<s,v>/Σs`, or 0 if there is no support.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn mean(mut self) -> f32 {
        // SAFETY: as the caller vouches.
        unsafe { self.widen() };
        let (sv, s) = (V::wide_total(self.wide_sv), V::wide_total(self.wide_s));
        if s > 0.0 { (sv / s) as f32 } else { 0.0 }
    }
}

/// Longest row that is asked for so little ahead that the first cache holds it; longer ones come from further away.
const NEAR: usize = 8192;

/// How far ahead of where it is a pass over a crowded row asks, in floats.
const fn ahead(d: usize) -> usize {
    if d <= NEAR { 512 } else { 2048 }
}

/// A row most of whose vectors hold some of the support.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn crowded<V: Vector, W: Weight>(weight: W, row: Rows) {
    // SAFETY: as the caller vouches.
    unsafe {
        let mean = crowded_mean::<V, W, false>(weight, row);
        // What is 0 is mask enough for numbers that are finite. If one is not, the sum tells.
        if mean.abs() > MOST || mean.is_nan() {
            let mean = crowded_mean::<V, W, true>(weight, row);
            products::<V, W>(weight, row, row.d, mean);
        } else if W::KEPT {
            crowded_products::<V, _>(Kept, Rows { p: row.out, ..row }, mean);
        } else {
            crowded_products::<V, W>(weight, row, mean);
        }
    }
}

/// `<s,v>/Σs` of a row, whose weights go to `out` if they are worth keeping. Unless `CAREFUL`, an entry of `v` off the
/// support that is not finite spoils it.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn crowded_mean<V: Vector, W: Weight, const CAREFUL: bool>(weight: W, row: Rows) -> f32 {
    let (step, ahead) = (BLOCK * V::LANES, ahead(row.d));
    let whole = row.d / step * step;
    // SAFETY: every access but those that only ask stays within `d` floats.
    unsafe {
        let (zero, mut sums) = (V::splat(0.0), Sums::<V>::new());
        for first in (0..whole).step_by(64 * step) {
            let (mut sv, mut s) = ([zero; BLOCK], [zero; BLOCK]);
            for i in (first..whole.min(first + 64 * step)).step_by(step) {
                for k in 0..BLOCK {
                    let at = i + k * V::LANES;
                    V::prefetch(row.p.wrapping_add(at + ahead));
                    V::prefetch(row.v.wrapping_add(at + ahead));
                    let q = V::load(row.p.add(at));
                    let w = weight.weight(q);
                    let g = V::load(row.v.add(at));
                    sv[k] = w.fma(if CAREFUL { g.keep(q.gt(zero)) } else { g }, sv[k]);
                    s[k] = s[k].add(w);
                    if W::KEPT {
                        w.store(row.out.add(at));
                    }
                }
            }
            (sums.sv, sums.s) = (together(sv), together(s));
            sums.widen();
        }
        (sums.sv, sums.s) = lane_sums::<V, W, CAREFUL>(weight, Rows { d: row.d - whole, ..row.past(whole) });
        sums.mean()
    }
}

/// The products of a crowded row of finite numbers.
///
/// # Safety
/// As [`long_rows`], for one row.
#[inline(always)]
unsafe fn crowded_products<V: Vector, W: Weight>(weight: W, row: Rows, mean: f32) {
    let (step, ahead) = (BLOCK * V::LANES, ahead(row.d));
    let whole = row.d / step * step;
    // SAFETY: every access but those that only ask stays within `d` floats.
    unsafe {
        let (centre, zero) = (V::splat(mean), V::splat(0.0));
        for i in (0..whole).step_by(step) {
            for k in 0..BLOCK {
                let at = i + k * V::LANES;
                V::prefetch(row.out.wrapping_add(at + ahead));
                let s = weight.weight(V::load(row.p.add(at)));
                // Adding 0 leaves no −0 where the weight is 0.
                s.fma(V::load(row.v.add(at)).sub(centre), zero).store(row.out.add(at));
            }
        }
        products::<V, W>(weight, row.past(whole), row.d - whole, mean);
    }
}

/// The sum of a block.
#[inline(always)]
fn together<V: Vector>(x: [V; BLOCK]) -> V {
    x[0].add(x[1]).add(x[2].add(x[3]))
}
