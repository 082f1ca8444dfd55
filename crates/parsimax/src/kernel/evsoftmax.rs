//! Ev-softmax: softmax over the entries that are not below the mean.
//!
//! Plainly: mean and maximum in one pass, exponentials of the entries `z ≥ mean` in a
//! second, division in a third. The mean is that of the entries that are not `−inf` and is
//! summed in f64, where a row of equal entries sums exactly; the threshold is the smallest
//! f32 not below it, and never above the maximum.

use super::Forward;
use super::softmax::{Known, TOGETHER, report, together, weigh_rows};
use super::vector::{Vector, outlined};

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z` over the support.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>) {
    let (d, many) = (job.d, together(job.d));
    let mut known = [Known::NOTHING; TOGETHER];
    for first in (0..job.status.len()).step_by(many) {
        let here = (job.status.len() - first).min(many);
        // SAFETY: `here` rows from `first` on lie within both slices.
        unsafe {
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            rows::<V>(z, out, d, job.scale, &raw mut known[..here]);
        }
        for (r, known) in (first..).zip(&known[..here]) {
            report(job, r, known);
        }
    }
}

outlined! {
    /// Maxima (NaN if there is a NaN) and sums of the exponentials of some rows; writes `p` of
    /// those whose maximum is finite.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `known.len()` rows of `d` floats; the CPU has the
    /// instruction set.
    unsafe fn rows<V>(z: *const f32, out: *mut f32, d: usize, scale: f32, known: *mut [Known]) -> () => rows_any
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, scale: f32, known: *mut [Known]) {
    // SAFETY: as the caller vouches.
    unsafe {
        let known = &mut *known;
        for (r, known) in known.iter_mut().enumerate() {
            let (max, mean) = survey::<V>(z.add(r * d), d);
            (known.max, known.least) = (max, ceil32(mean).min(max));
        }
        weigh_rows::<V>(z, out, d, scale, 1.0, known);
    }
}

/// The smallest f32 that is not below `x`, without a branch that nobody could foretell.
#[inline(always)]
fn ceil32(x: f64) -> f32 {
    let t = x as f32;
    // One unit up: away from zero for positive numbers, towards it for negative ones.
    let up = 1 | (t.to_bits() as i32 >> 31);
    f32::from_bits((t.to_bits() as i32 + up * i32::from(f64::from(t) < x)) as u32)
}

/// Maximum (NaN if there is a NaN) and mean of the entries that are not `−inf`.
///
/// A finite sum says that nothing is masked and nothing unfit, which is the common case and asks for
/// no comparison.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn survey<V: Vector>(z: *const f32, d: usize) -> (f32, f64) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (mut max, mut sum) = (V::splat(f32::NEG_INFINITY), V::wide_zero());
        let mut i = 0;
        while i + V::LANES <= d {
            let v = V::load(z.add(i));
            max = v.max(max);
            sum = V::wide_add(sum, v);
            i += V::LANES;
        }
        let mut total = V::wide_total(sum);
        let mut top = max.reduce_max();
        for k in i..d {
            total += f64::from(*z.add(k));
            top = top.max(*z.add(k));
        }
        if total.is_finite() { (top, total / d as f64) } else { masked_survey::<V>(z, d) }
    }
}

/// [`survey`] of any row.
///
/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn masked_survey<V: Vector>(z: *const f32, d: usize) -> (f32, f64) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let (mut max, mut nan) = (none, none.unordered(none));
        let (mut sum, mut counted) = (V::wide_zero(), 0);
        let mut i = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            max = v.max(max);
            nan = V::or(nan, v.unordered(v));
            let live = v.gt(none);
            sum = V::wide_add(sum, v.keep(live));
            counted += V::bits(live).count_ones();
            i += n;
        }
        let max = if V::bits(nan) != 0 { f32::NAN } else { max.reduce_max() };
        (max, V::wide_total(sum) / f64::from(counted))
    }
}
