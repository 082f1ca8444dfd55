//! Ev-softmax: softmax over the entries that are not below the mean.
//!
//! Plainly: mean and maximum in one pass, exponentials of the entries `z ≥ mean` in a
//! second, division in a third. The mean is that of the entries that are not `−inf` and is
//! summed in f64, where a row of equal entries sums exactly; the threshold is the smallest
//! f32 not below it, and never above the maximum.

use super::softmax::{Known, Survey, replace, weigh};
use super::vector::Vector;
use super::{Forward, Status};

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z` over the support.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe { weigh::<V, Evidence>(Evidence, job, None) }
}

/// Replaces a row of scores by its probabilities; one that is not fit is left as it is.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn in_place<V: Vector>(x: &mut [f32], scale: f32) -> Status {
    // SAFETY: as the caller vouches.
    unsafe { replace::<V, Evidence>(Evidence, x, scale) }
}

/// The entries that are not below the mean count.
#[derive(Clone, Copy)]
struct Evidence;

impl Survey for Evidence {
    #[inline(always)]
    unsafe fn rows<V: Vector>(self, z: *const f32, d: usize, known: &mut [Known]) {
        for (r, known) in known.iter_mut().enumerate() {
            // SAFETY: row `r` is readable, as the caller vouches.
            let (max, mean) = unsafe { survey::<V>(z.add(r * d), d) };
            (known.max, known.least) = (max, ceil32(mean).min(max));
        }
    }
    #[inline(always)]
    unsafe fn least<V: Vector>(self, z: *const f32, d: usize) -> f32 {
        // SAFETY: as the caller vouches.
        ceil32(unsafe { survey::<V>(z, d) }.1)
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

/// Adds the entries that are not `−inf` to a sum, and counts them.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn add<V: Vector>((sum, counted): (V::Wide, u32), z: V) -> (V::Wide, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let masked = none.ge(z);
        (V::wide_add(sum, zero.select(masked, z)), counted + V::LANES as u32 - V::bits(masked).count_ones())
    }
}

/// Maximum (NaN if there is a NaN) and mean of the entries that are not `−inf`.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn survey<V: Vector>(z: *const f32, d: usize) -> (f32, f64) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (mut max, mut sum) = (V::splat(f32::NEG_INFINITY), (V::wide_zero(), 0));
        let mut i = 0;
        while i + V::LANES <= d {
            let v = V::load(z.add(i));
            max = v.max(max);
            sum = add(sum, v);
            i += V::LANES;
        }
        if i < d {
            let v = V::load_first(z.add(i), d - i, f32::NEG_INFINITY);
            max = v.max(max);
            sum = add(sum, v);
        }
        // A NaN that the maximum passed over is in the sum.
        let (total, counted) = (V::wide_total(sum.0), sum.1);
        (if total.is_nan() { f32::NAN } else { max.reduce_max() }, total / f64::from(counted))
    }
}
