//! Softmax: `p = exp(scale·(z − max)) / Σ`.
//!
//! Three passes over a row: the maximum; exponentials, stored and summed (in f32 for a
//! few terms a lane, then in f64); the division, as a product with the reciprocal.

use super::expo::{exp2_nonpos, exp2_scaled};
use super::scan::row_max;
use super::vector::{Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Rows that go through a step together: what one waits for at its end, the next fills with work.
pub(crate) const TOGETHER: usize = 16;

/// Floats of such rows that stay in the first-level cache from step to step.
const ROOM: usize = 4096;

/// How many rows of width `d` take each step together.
pub(crate) fn together(d: usize) -> usize {
    (ROOM / d).clamp(1, TOGETHER)
}

/// What is known of a row of exponentials.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// NaN if there is a NaN.
    pub(crate) max: f32,
    /// The least score that counts.
    pub(crate) least: f32,
    /// Sum of the exponentials of `scale·z`, times `2^−whole`; if that is NaN, of `scale·(z − max)`.
    pub(crate) total: f64,
    pub(crate) whole: f32,
}

impl Known {
    pub(crate) const NOTHING: Known = Known { max: f32::NAN, least: f32::NEG_INFINITY, total: 1.0, whole: 0.0 };

    /// The log-sum-exp of `scale·(z − max)`.
    pub(crate) fn log_sum(&self, scale: f32) -> f64 {
        if self.whole.is_nan() {
            // Measured from the maximum itself.
            return self.total.ln();
        }
        // In the units in which the exponentials were taken.
        let top = f64::from(self.max) * f64::from(scale * std::f32::consts::LOG2_E);
        self.total.ln() + (f64::from(self.whole) - top) * std::f64::consts::LN_2
    }
}

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z`. `loss` as in
/// `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let (d, many) = (job.d, together(job.d));
    let (gain, mut sums) = loss.unzip();
    let mut known = [Known::NOTHING; TOGETHER];
    for first in (0..job.status.len()).step_by(many) {
        let here = (job.status.len() - first).min(many);
        // SAFETY: `here` rows from `first` on lie within both slices.
        unsafe {
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            rows::<V>(z, out, d, job.scale, gain.unwrap_or(1.0), &raw mut known[..here]);
        }
        for (r, known) in (first..).zip(&known[..here]) {
            if let Some(sums) = sums.as_deref_mut() {
                sums[r] = RowSum { max: known.max, tau: known.log_sum(job.scale), pu: 0.0 };
            }
            report(job, r, known);
        }
    }
}

/// Sets status and τ of a row of exponentials, and fills it if it is not fit.
pub(crate) fn report(job: &mut Forward<'_>, r: usize, known: &Known) {
    let status = Status::of_max(known.max);
    job.status[r] = status;
    if status != Status::Ok {
        job.out[r * job.d..(r + 1) * job.d].fill(status.fill());
    }
    if let Some(t) = job.tau.as_deref_mut() {
        t[r] = status.tau(f64::from(job.scale) * f64::from(known.max) + known.log_sum(job.scale));
    }
}

outlined! {
    /// Maxima (NaN if there is a NaN) and sums of the exponentials of some rows; writes `gain·p`
    /// of those whose maximum is finite.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `known.len()` rows of `d` floats; the CPU has the
    /// instruction set.
    unsafe fn rows<V>(
        z: *const f32,
        out: *mut f32,
        d: usize,
        scale: f32,
        gain: f32,
        known: *mut [Known],
    ) -> () => rows_any
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, scale: f32, gain: f32, known: *mut [Known]) {
    // SAFETY: as the caller vouches.
    unsafe {
        let known = &mut *known;
        for (r, known) in known.iter_mut().enumerate() {
            known.max = row_max::<V>(z.add(r * d), d);
        }
        for (r, known) in known.iter_mut().enumerate().filter(|(_, known)| known.max.is_finite()) {
            exponentials::<V>(z.add(r * d), out.add(r * d), d, known, scale);
        }
        for (r, known) in known.iter().enumerate().filter(|(_, known)| known.max.is_finite()) {
            rescale::<V>(out.add(r * d), d, (f64::from(gain) / known.total) as f32);
        }
    }
}

/// Largest `|scale·z|`, in powers of two, for which whole and fractional parts are exact.
const NEAR: f32 = 1_048_576.0;

/// Stores `exp(scale·z)·2^−whole` of the entries that are not below `least`, 0 of the others, and notes
/// the sum. `whole` is such that the largest is about 1.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, the maximum is finite; the CPU has the
/// instruction set.
#[inline(always)]
pub(crate) unsafe fn exponentials<V: Vector>(z: *const f32, out: *mut f32, d: usize, known: &mut Known, scale: f32) {
    let scale = scale * std::f32::consts::LOG2_E;
    let top = known.max * scale;
    // SAFETY: as the caller vouches.
    unsafe {
        if V::FUSED && top.abs() < NEAR {
            known.whole = top.round();
            // 2⁻¹²⁵ and less counts as nothing. The bound is a score, so that it can be compared at once.
            let least = V::splat(known.least.max((known.whole - 125.0) / scale));
            let weigh = Weigh::<V, true> { least, scale: V::splat(scale), from: V::splat(known.whole) };
            known.total = weighted(z, out, d, weigh);
        } else {
            // Products that are rounded, or so large that neighbouring scores differ by more than 1/8.
            let (from, least) = (V::splat(known.max), V::splat(known.least));
            known.whole = f32::NAN;
            known.total = weighted(z, out, d, Weigh::<V, false> { least, scale: V::splat(scale), from });
        }
    }
}

/// What an entry weighs: `2^(z·scale − from)` if `NEAR`, else `2^((z − from)·scale)`.
#[derive(Clone, Copy)]
struct Weigh<V, const NEAR: bool> {
    least: V,
    scale: V,
    from: V,
}

impl<V: Vector, const NEAR: bool> Weigh<V, NEAR> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn of(&self, v: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let x = match NEAR {
                true => exp2_scaled(v, self.scale, self.from),
                false => exp2_nonpos(v.sub(self.from).mul(self.scale)),
            };
            x.keep(v.ge(self.least))
        }
    }
}

/// Stores the weight of every entry and returns their sum.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
#[inline(always)]
unsafe fn weighted<V: Vector, const NEAR: bool>(z: *const f32, out: *mut f32, d: usize, weigh: Weigh<V, NEAR>) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let mut wide = V::wide_zero();
        let mut i = 0;
        while i + V::LANES <= d {
            let mut sum = [V::splat(0.0); 2];
            let end = d.min(i + V::LANES * BLOCK);
            while i + 2 * V::LANES <= end {
                let x = [weigh.of(V::load(z.add(i))), weigh.of(V::load(z.add(i + V::LANES)))];
                x[0].store(out.add(i));
                x[1].store(out.add(i + V::LANES));
                sum = [sum[0].add(x[0]), sum[1].add(x[1])];
                i += 2 * V::LANES;
            }
            if i + V::LANES <= end {
                let x = weigh.of(V::load(z.add(i)));
                x.store(out.add(i));
                sum[0] = sum[0].add(x);
                i += V::LANES;
            }
            wide = V::wide_add(wide, sum[0].add(sum[1]));
        }
        if i < d {
            let x = weigh.of(V::load_first(z.add(i), d - i, f32::NEG_INFINITY));
            x.store_first(out.add(i), d - i);
            wide = V::wide_add(wide, x);
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
