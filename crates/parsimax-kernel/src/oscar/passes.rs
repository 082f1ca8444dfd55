//! Passes over a row of oscarmax, with vectors: the range of its candidates, counts and sums of its buckets, the
//! scores of some of them, and the probabilities.

use crate::scan::lane_maxima;
use crate::vector::{MAX_LANES, Vector, outlined};

/// Scores are whole numbers below this, in units of a scale.
const WHOLE: f32 = (1u32 << WHOLE_BITS) as f32;
const WHOLE_BITS: u32 = 30;

/// Scores that are tallied before the tables are read: their whole numbers add up to 2⁴⁴ at most.
pub(super) const TALLIED: usize = 1 << 14;

/// An entry of a table is a count above a sum of so many bits.
const SUM_BITS: u32 = 44;

/// Tables side by side, so that an addition seldom waits for the last one of the same bucket.
pub(super) const TABLES: usize = 4;

/// Scores between two looks at a list.
const BLOCK: usize = 512;

/// How scores are put in buckets: the distance from the largest is multiplied by a power of two, which is exact, and
/// its highest bits are the bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) max: f32,
    /// Buckets, a power of two; beyond the last of them is what is too low.
    pub(super) count: usize,
    lowest: f32,
    factor: f32,
    shift: u32,
}

impl Scale {
    /// For scores from the largest to the lowest, and perhaps some that are lower.
    pub(super) fn new((max, lowest): (f32, f32), count: usize) -> Scale {
        // Where all are equal, any factor does.
        let range = (max - lowest).max(1e-28);
        let exponent = (range.to_bits() >> 23) + 1;
        let factor = f32::from_bits((254 + WHOLE_BITS - exponent) << 23);
        Scale { max, count, lowest, factor, shift: WHOLE_BITS - count.trailing_zeros() }
    }
    /// The bucket of a score.
    #[inline(always)]
    pub(super) fn bucket(&self, z: f32) -> usize {
        let whole = (self.max - z) * self.factor;
        // SAFETY: a distance is not negative, and no NaN: scores are not above the maximum, which is finite.
        unsafe { (if whole < WHOLE { whole } else { WHOLE }).to_int_unchecked::<u32>() as usize >> self.shift }
    }
    /// How far scores of a bucket are from one another.
    pub(super) fn width(&self) -> f64 {
        f64::from(1u32 << self.shift) / f64::from(self.factor)
    }
    /// How far the lowest score is from the largest.
    pub(super) fn range(&self) -> f64 {
        f64::from(self.max) - f64::from(self.lowest)
    }
    /// The largest distance of a score of the bucket.
    pub(super) fn depth(&self, bucket: usize) -> f32 {
        (((bucket as u32 + 1) << self.shift) as f32 / self.factor).next_down()
    }
}

/// Scores down to a distance from the largest, of those that no step before covers, have a probability.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) depth: f32,
    pub(super) p: f32,
}

outlined! {
    /// The maximum of a row (NaN if it holds one), and the lowest of its candidates, which are less than `window` below
    /// it.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
    pub(super) unsafe fn survey<V>(z: *const f32, d: usize, window: f64) -> (f32, f32) => survey_any
}

/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn survey_any<V: Vector>(z: *const f32, d: usize, window: f64) -> (f32, f32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (m, nan) = lane_maxima::<V>(z, d);
        let max = m.reduce_max();
        if nan || !max.is_finite() {
            return (if nan { f32::NAN } else { max }, 0.0);
        }
        // The step down covers the rounding of the limit.
        let limit = V::splat(((f64::from(max) - window * (1.0 + 1e-6)) as f32).next_down());
        // Negated, for there are maxima of lanes alone.
        let mut high = [V::splat(-max); 2];
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            for k in 0..2 {
                let v = V::load(z.add(i + k * V::LANES));
                high[k] = V::splat(0.0).sub(v).select(v.gt(limit), high[k]).max(high[k]);
            }
            i += 2 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            high[0] = V::splat(0.0).sub(v).select(v.gt(limit), high[0]).max(high[0]);
            i += n;
        }
        (max, -high[0].max(high[1]).reduce_max())
    }
}

outlined! {
    /// Adds scores to the tables: 1 to the count of a bucket, and the whole number of the score to its sum.
    ///
    /// # Safety
    /// `z` is readable for `d` floats, none of them NaN or above the maximum; the tables are readable and writable for
    /// [`TABLES`] times one more than the buckets; the CPU has the instruction set of `V`.
    pub(super) unsafe fn tally<V>(z: *const f32, d: usize, scale: Scale, tables: *mut u64) -> () => tally_any
}

/// # Safety
/// As [`tally`].
#[inline(always)]
unsafe fn tally_any<V: Vector>(z: *const f32, d: usize, scale: Scale, tables: *mut u64) {
    // SAFETY: every load stays within `d` floats; no whole number is larger than `WHOLE`, whose bucket is the last.
    unsafe {
        let (max, factor, whole) = (V::splat(scale.max), V::splat(scale.factor), V::splat(WHOLE));
        let mut wholes = [0u32; BLOCK];
        for first in (0..d).step_by(BLOCK) {
            let len = (d - first).min(BLOCK);
            let mut i = 0;
            while i < len {
                let n = (len - i).min(V::LANES);
                let v = V::load_first(z.add(first + i), n, f32::NEG_INFINITY);
                max.sub(v).mul(factor).min(whole).store_whole(wholes.as_mut_ptr().add(i));
                i += V::LANES;
            }
            // Whole vectors: those behind the last score are too low.
            for i in (0..len).step_by(TABLES) {
                for k in 0..TABLES {
                    let whole = wholes.as_ptr().add(i + k).read();
                    let entry = tables.add((whole >> scale.shift) as usize * TABLES + k);
                    *entry = (*entry).wrapping_add(u64::from(whole) + (1 << SUM_BITS));
                }
            }
        }
    }
}

/// The count of a bucket in the tables, and the sum of the distances from the largest score.
pub(super) fn tallied(tables: &[u64], bucket: usize, scale: Scale) -> (usize, f64) {
    let all: u64 = tables[bucket * TABLES..][..TABLES].iter().sum();
    let sum = all & ((1 << SUM_BITS) - 1);
    ((all >> SUM_BITS) as usize, sum as f64 / f64::from(scale.factor))
}

/// Calls `visit` with every score of a range of buckets, and its place.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(super) unsafe fn between<V: Vector>(
    z: &[f32],
    scale: Scale,
    (from, to): (usize, usize),
    mut visit: impl FnMut(f32, usize),
) {
    let range = ((from << scale.shift) as f32, (to << scale.shift) as f32);
    let (mut list, mut index) = ([0.0f32; BLOCK + MAX_LANES], [0u32; BLOCK + MAX_LANES]);
    for (b, z) in z.chunks(BLOCK).enumerate() {
        // SAFETY: the lists hold a block and a vector; the caller vouches for the instruction set.
        let n = unsafe { pick::<V>(z.as_ptr(), z.len(), scale, range, list.as_mut_ptr(), index.as_mut_ptr()) };
        list[..n].iter().zip(&index).for_each(|(z, i)| visit(*z, b * BLOCK + *i as usize));
    }
}

outlined! {
    /// Lists the scores whose whole numbers are in a range, and their places; how many they are.
    ///
    /// # Safety
    /// `z` is readable for `d` floats, `list` and `index` writable for a vector more; the CPU has the instruction set
    /// of `V`.
    unsafe fn pick<V>(
        z: *const f32,
        d: usize,
        scale: Scale,
        range: (f32, f32),
        list: *mut f32,
        index: *mut u32,
    ) -> usize => pick_any
}

/// # Safety
/// As [`pick`].
#[inline(always)]
unsafe fn pick_any<V: Vector>(
    z: *const f32,
    d: usize,
    scale: Scale,
    (from, to): (f32, f32),
    list: *mut f32,
    index: *mut u32,
) -> usize {
    // SAFETY: as the caller vouches; no more is listed than was read.
    unsafe {
        let (max, factor) = (V::splat(scale.max), V::splat(scale.factor));
        let (from, to) = (V::splat(from), V::splat(to));
        let (mut i, mut n) = (0, 0);
        while i < d {
            let v = V::load_first(z.add(i), (d - i).min(V::LANES), f32::NEG_INFINITY);
            let whole = max.sub(v).mul(factor);
            let m = V::and(whole.ge(from), to.gt(whole));
            if V::bits(m) != 0 {
                V::compress_index(m, i as u32, index.add(n));
                n += v.compress(m, list.add(n));
            }
            i += V::LANES;
        }
        n
    }
}

outlined! {
    /// Writes a row of probabilities.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats; the steps are readable; the CPU has the instruction set of
    /// `V`.
    pub(super) unsafe fn write<V>(
        z: *const f32,
        out: *mut f32,
        d: usize,
        max: f32,
        steps: *const [Step],
    ) -> () => write_any
}

/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, max: f32, steps: *const [Step]) {
    // SAFETY: every access stays within `d` floats, or is the caller's to vouch for.
    unsafe {
        let (max, zero, steps) = (V::splat(max), V::splat(0.0), &*steps);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            let (mut y, mut p) = ([zero; 4], [zero; 4]);
            for k in 0..4 {
                y[k] = max.sub(V::load(z.add(i + k * V::LANES)));
            }
            for step in steps.iter().rev() {
                let (depth, value) = (V::splat(step.depth), V::splat(step.p));
                for k in 0..4 {
                    p[k] = value.select(depth.ge(y[k]), p[k]);
                }
            }
            for k in 0..4 {
                p[k].store(out.add(i + k * V::LANES));
            }
            i += 4 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let y = max.sub(V::load_first(z.add(i), n, f32::NEG_INFINITY));
            let mut p = zero;
            for step in steps.iter().rev() {
                p = V::splat(step.p).select(V::splat(step.depth).ge(y), p);
            }
            p.store_first(out.add(i), n);
            i += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::Portable;

    #[test]
    fn every_score_is_counted_searched_and_written_as_of_one_bucket() {
        let mut rng = fastrand::Rng::with_seed(61);
        for count in [16, 256] {
            for range in [0.0, 1e-20, 0.1, 7.9, 8.0, 1e4] {
                let mut z: Vec<f32> = (0..1500).map(|_| 3.0 - rng.f32() * range).collect();
                (z[3], z[7], z[9]) = (3.0, 3.0 - range, f32::NEG_INFINITY);
                let scale = Scale::new((3.0, 3.0 - range), count);
                let mut tables = vec![0; TABLES * (count + 1)];
                // SAFETY: the tables are as large as the scale asks for; every CPU has the portable instance.
                unsafe { tally::<Portable>(z.as_ptr(), z.len(), scale, tables.as_mut_ptr()) };
                let mut all = 0;
                for b in 0..count {
                    let own: Vec<usize> = (0..z.len()).filter(|i| scale.bucket(z[*i]) == b).collect();
                    let (len, sum) = tallied(&tables, b, scale);
                    assert_eq!(len, own.len(), "{count} {range} {b}");
                    let want: f64 = own.iter().map(|i| f64::from(3.0 - z[*i])).sum();
                    // Whole numbers are cut to a part in 2²⁹ of the range.
                    assert!(
                        (sum - want).abs() <= 1500.0 * f64::from(range) * 2e-9,
                        "{count} {range} {b}: {sum} {want}"
                    );
                    let mut found = Vec::new();
                    // SAFETY: as above.
                    unsafe { between::<Portable>(&z, scale, (b, b + 1), |_, i| found.push(i)) };
                    assert_eq!(found, own, "{count} {range} {b}");
                    let steps = [Step { depth: scale.depth(b), p: 1.0 }];
                    let mut out = vec![7.0; z.len()];
                    // SAFETY: as above.
                    unsafe { write::<Portable>(z.as_ptr(), out.as_mut_ptr(), z.len(), 3.0, &raw const steps[..]) };
                    for (p, z) in out.iter().zip(&z) {
                        assert_eq!(*p == 1.0, scale.bucket(*z) <= b, "{count} {range} {b}: {z}");
                    }
                    all += len;
                }
                assert_eq!(all, z.len() - 1, "all but the masked one");
            }
        }
    }
}
