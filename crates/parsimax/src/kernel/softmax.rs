//! Softmax: `p = exp(scale·(z − max)) / Σ`.
//!
//! Three passes over a row: the maximum; exponentials, stored and summed (in f32 for a
//! few terms a lane, then in f64); the division, as a product with the reciprocal.

use super::expo::exp2_nonpos;
use super::pair::Pair;
use super::scan::row_max;
use super::vector::{Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z`. `loss` as in
/// `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let d = job.d;
    let (gain, mut sums) = loss.unzip();
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices.
        let (max, total) = unsafe {
            let (z, out) = (job.z.as_ptr().add(r * d), job.out.as_mut_ptr().add(r * d));
            row::<V>(z, out, d, job.scale, gain.unwrap_or(1.0))
        };
        if let Some(sums) = sums.as_deref_mut() {
            sums[r] = RowSum { max, tau: total.ln(), pu: 0.0 };
        }
        report(job, r, max, total);
    }
}

/// Sets status and τ of a row of exponentials, and fills it if it is not fit.
pub(crate) fn report(job: &mut Forward<'_>, r: usize, max: f32, total: f64) {
    let status = Status::of_max(max);
    job.status[r] = status;
    if status != Status::Ok {
        job.out[r * job.d..(r + 1) * job.d].fill(status.fill());
    }
    if let Some(t) = job.tau.as_deref_mut() {
        t[r] = status.tau(f64::from(job.scale) * f64::from(max) + total.ln());
    }
}

outlined! {
    /// Maximum (NaN if there is a NaN) and sum of the exponentials of a row; writes `gain·p`
    /// if the maximum is finite.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
    unsafe fn row<V>(
        z: *const f32,
        out: *mut f32,
        d: usize,
        scale: f32,
        gain: f32,
    ) -> (f32, f64) => row_any
}

/// # Safety
/// As [`row`].
#[inline(always)]
unsafe fn row_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, scale: f32, gain: f32) -> (f32, f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        let max = row_max::<V>(z, d);
        if !max.is_finite() {
            return (max, 1.0);
        }
        let total = exponentials::<V>(z, out, d, max, scale);
        rescale::<V>(out, d, (f64::from(gain) / total) as f32);
        (max, total)
    }
}

/// Stores `exp(scale·(z − max))` and returns its sum.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn exponentials<V: Vector>(z: *const f32, out: *mut f32, d: usize, max: f32, scale: f32) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let scale = scale * std::f32::consts::LOG2_E;
        let mut wide = V::wide_zero();
        let mut i = 0;
        while i + Pair::<V>::LANES <= d {
            let (max, scale) = (Pair::<V>::splat(max), Pair::<V>::splat(scale));
            let mut sum = Pair::<V>::splat(0.0);
            let end = d.min(i + Pair::<V>::LANES * BLOCK);
            while i + Pair::<V>::LANES <= end {
                let x = exp2_nonpos(Pair::<V>::load(z.add(i)).sub(max).mul(scale));
                x.store(out.add(i));
                sum = sum.add(x);
                i += Pair::<V>::LANES;
            }
            wide = sum.wide_halves(wide);
        }
        let (max, scale) = (V::splat(max), V::splat(scale));
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            let x = exp2_nonpos(v.sub(max).mul(scale));
            x.store_first(out.add(i), n);
            wide = V::wide_add(wide, x);
            i += n;
        }
        V::wide_total(wide)
    }
}

/// Multiplies a row by a number.
///
/// # Safety
/// `out` is readable and writable for `d` floats; the CPU has the instruction set.
#[inline(always)]
pub(crate) unsafe fn rescale<V: Vector>(out: *mut f32, d: usize, by: f32) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let by = V::splat(by);
        let mut i = 0;
        while i + V::LANES <= d {
            V::load(out.add(i)).mul(by).store(out.add(i));
            i += V::LANES;
        }
        if i < d {
            V::load_first(out.add(i), d - i, 0.0).mul(by).store_first(out.add(i), d - i);
        }
    }
}
