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

/// Maximum (NaN if there is a NaN) and mean of the entries that are not `−inf`.
///
/// # Safety
/// `z` is readable for `d ≥ 1` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn survey<V: Vector>(z: *const f32, d: usize) -> (f32, f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        // Padding is at the end, if anywhere.
        let d = unpadded::<V>(z, d);
        let (max, total, _) = sums::<V, false>(z, d);
        if total != f64::NEG_INFINITY {
            return (max, total / d as f64);
        }
        let (max, total, masked) = sums::<V, true>(z, d);
        (max, total / (d - masked) as f64)
    }
}

/// How long the row is without the `−inf` at its end.
///
/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn unpadded<V: Vector>(z: *const f32, mut d: usize) -> usize {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        if *z.add(d - 1) != f32::NEG_INFINITY {
            return d;
        }
        let none = V::splat(f32::NEG_INFINITY);
        while d >= V::LANES && V::bits(none.ge(V::load(z.add(d - V::LANES)))).count_ones() as usize == V::LANES {
            d -= V::LANES;
        }
        while d > 0 && *z.add(d - 1) == f32::NEG_INFINITY {
            d -= 1;
        }
        d
    }
}

/// Maximum (NaN if there is a NaN) and sum; with `MASKED` the sum leaves out entries that are `−inf`, which are counted.
///
/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn sums<V: Vector, const MASKED: bool>(z: *const f32, d: usize) -> (f32, f64, usize) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let (mut max, mut sum, mut masked) = ([none; 2], [V::wide_zero(); 2], 0);
        macro_rules! take {
            ($k:expr, $v:expr, $counts:expr) => {{
                let v = $v;
                max[$k] = v.max(max[$k]);
                let mut term = $counts;
                if MASKED {
                    let is_masked = none.ge(term);
                    masked += V::bits(is_masked).count_ones() as usize;
                    term = zero.select(is_masked, term);
                }
                sum[$k] = V::wide_add(sum[$k], term);
            }};
        }
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            let (a, b) = (V::load(z.add(i)), V::load(z.add(i + V::LANES)));
            take!(0, a, a);
            take!(1, b, b);
            i += 2 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            take!(0, V::load_first(z.add(i), n, f32::NEG_INFINITY), V::load_first(z.add(i), n, 0.0));
            i += n;
        }
        // A NaN that the maximum passed over is in the sum.
        let total = V::wide_total(sum[0]) + V::wide_total(sum[1]);
        (if total.is_nan() { f32::NAN } else { max[0].max(max[1]).reduce_max() }, total, masked)
    }
}
