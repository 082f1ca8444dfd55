//! Ev-softmax: softmax over the entries that are not below the mean.
//!
//! Plainly: mean and maximum in one pass, exponentials of the entries `z ≥ mean` in a
//! second, division in a third. The mean is that of the entries that are not `−inf` and is
//! summed in f64, where a row of equal entries sums exactly; the threshold is the smallest
//! f32 not below it, and never above the maximum.

use super::Forward;
use super::expo::exp2_nonpos;
use super::softmax::{report, rescale};
use super::vector::{Vector, outlined};

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z` over the support.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>) {
    let d = job.d;
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices.
        let (max, total) = unsafe {
            let (z, out) = (job.z.as_ptr().add(r * d), job.out.as_mut_ptr().add(r * d));
            row::<V>(z, out, d, job.scale)
        };
        report(job, r, max, total);
    }
}

outlined! {
    /// Maximum (NaN if there is a NaN) and sum of the exponentials of a row; writes `p` if the
    /// maximum is finite.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
    unsafe fn row<V>(z: *const f32, out: *mut f32, d: usize, scale: f32) -> (f32, f64) => row_any
}

/// # Safety
/// As [`row`].
#[inline(always)]
unsafe fn row_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, scale: f32) -> (f32, f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (max, mean) = survey::<V>(z, d);
        if !max.is_finite() {
            return (max, 1.0);
        }
        let total = exponentials::<V>(z, out, d, max, ceil32(mean).min(max), scale);
        rescale::<V>(out, d, (1.0 / total) as f32);
        (max, total)
    }
}

/// The smallest f32 that is not below `x`.
fn ceil32(x: f64) -> f32 {
    let t = x as f32;
    if f64::from(t) < x { t.next_up() } else { t }
}

/// Maximum (NaN if there is a NaN) and mean of the entries that are not `−inf`.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn survey<V: Vector>(z: *const f32, d: usize) -> (f32, f64) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (none, one) = (V::splat(f32::NEG_INFINITY), V::splat(1.0));
        let (mut max, mut nan) = (none, none.unordered(none));
        let (mut sum, mut counted) = (V::wide_zero(), 0usize);
        let mut i = 0;
        while i < d {
            // Counts stay exact in f32 for a block.
            let end = d.min(i + 1024 * V::LANES);
            let mut count = V::splat(0.0);
            while i < end {
                let n = (d - i).min(V::LANES);
                let v = if n == V::LANES { V::load(z.add(i)) } else { V::load_first(z.add(i), n, f32::NEG_INFINITY) };
                max = v.max(max);
                nan = V::or(nan, v.unordered(v));
                let live = v.gt(none);
                sum = V::wide_add(sum, v.keep(live));
                count = count.add(one.keep(live));
                i += n;
            }
            counted += V::wide_total(V::wide_add(V::wide_zero(), count)) as usize;
        }
        let max = if V::bits(nan) != 0 { f32::NAN } else { max.reduce_max() };
        (max, V::wide_total(sum) / counted as f64)
    }
}

/// Stores `exp(scale·(z − max))` where `z ≥ least` and 0 elsewhere; returns the sum.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
#[inline(always)]
unsafe fn exponentials<V: Vector>(z: *const f32, out: *mut f32, d: usize, max: f32, least: f32, scale: f32) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let scale = scale * std::f32::consts::LOG2_E;
        let (max, scale, least) = (V::splat(max), V::splat(scale), V::splat(least));
        let mut wide = V::wide_zero();
        let mut i = 0;
        while i + V::LANES <= d {
            let v = V::load(z.add(i));
            let x = exp2_nonpos(v.sub(max).mul(scale)).keep(v.ge(least));
            x.store(out.add(i));
            wide = V::wide_add(wide, x);
            i += V::LANES;
        }
        if i < d {
            let v = V::load_first(z.add(i), d - i, f32::NEG_INFINITY);
            let x = exp2_nonpos(v.sub(max).mul(scale)).keep(v.ge(least));
            x.store_first(out.add(i), d - i);
            wide = V::wide_add(wide, x);
        }
        V::wide_total(wide)
    }
}
