//! Softmax: `p = exp(scale·(z − max)) / Σ`.
//!
//! Three passes over a row: the maximum; exponentials, stored and summed (in f32 for a
//! few terms a lane, then in f64); the division, as a product with the reciprocal.

use super::expo::exp2_nonpos;
use super::pair::Pair;
use super::scan::row_max;
use super::vector::Vector;
use super::write::RowSum;
use super::{Forward, Status};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z`. `LOSS`, `gain` and
/// `sums` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn forward<V: Vector, const LOSS: bool>(job: &mut Forward<'_>, gain: f32, sums: &mut [RowSum]) {
    let d = job.d;
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices.
        unsafe {
            let z = job.z.as_ptr().add(r * d);
            let out = job.out.as_mut_ptr().add(r * d);
            let max = row_max::<V>(z, d);
            let status = Status::of_max(max);
            job.status[r] = status;
            let mut tau = 0.0;
            if status == Status::Ok {
                let total = exponentials::<V>(z, out, d, max, job.scale);
                rescale::<V>(out, d, (f64::from(gain) / total) as f32);
                tau = f64::from(job.scale) * f64::from(max) + total.ln();
                if LOSS {
                    sums[r] = RowSum { max, tau: total.ln(), pu: 0.0 };
                }
            } else {
                std::slice::from_raw_parts_mut(out, d).fill(status.fill());
            }
            if let Some(t) = job.tau.as_deref_mut() {
                t[r] = status.tau(tau);
            }
        }
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
