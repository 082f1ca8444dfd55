//! Softmax: `p = exp(scale·(z − max)) / Σ`.
//!
//! Three passes over a row: the maximum; exponentials, stored and summed (in f32 for a
//! few terms a lane, then in f64); the division, as a product with the reciprocal.

use super::expo::{exp2_nonpos, exp2_scaled};
use super::scan::{lane_maxima, row_max};
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Rows that go through a step together: what one waits for at its end, the next fills with work.
pub(crate) const TOGETHER: usize = 16;

/// Floats of such rows that stay in the first-level cache from step to step.
const ROOM: usize = 2048;

/// Widest row whose lanes are summed in f32 and joined for `LANES` rows at once.
const NARROW: usize = 128;

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
        if sums.is_none() && job.tau.is_none() && known[..here].iter().all(|known| known.max.is_finite()) {
            job.status[first..first + here].fill(Status::Ok);
            continue;
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
        if d <= NARROW {
            narrow_maxima::<V>(z, d, known);
        } else {
            for (r, known) in known.iter_mut().enumerate() {
                known.max = row_max::<V>(z.add(r * d), d);
            }
        }
        weigh_rows::<V>(z, out, d, scale, gain, known);
    }
}

/// Maxima of some rows, NaN if there is a NaN: those of their lanes are turned into lanes of rows.
///
/// # Safety
/// `z` is readable for `known.len() ≤ TOGETHER` rows of `d` floats; the CPU has the instruction set.
#[inline(always)]
unsafe fn narrow_maxima<V: Vector>(z: *const f32, d: usize, known: &mut [Known]) {
    let mut across = Across::uninit();
    let across = across.as_mut_ptr().cast::<f32>();
    // SAFETY: as the caller vouches; `across` holds a vector for every row, and for those missing in a group.
    unsafe {
        let mut nans = 0u32;
        for r in 0..known.len().next_multiple_of(V::LANES) {
            let (max, nan) = if r < known.len() { lane_maxima::<V>(z.add(r * d), d) } else { (V::splat(0.0), false) };
            max.store(across.add(r * V::LANES));
            nans |= u32::from(nan) << r;
        }
        let mut maxima = [0.0f32; TOGETHER];
        for first in (0..known.len()).step_by(V::LANES) {
            V::row_maxima(across.add(first * V::LANES)).store(maxima.as_mut_ptr().add(first));
        }
        for (r, (known, max)) in known.iter_mut().zip(maxima).enumerate() {
            known.max = if nans >> r & 1 == 1 { f32::NAN } else { max };
        }
    }
}

/// A vector for each of some rows.
type Across = std::mem::MaybeUninit<[f32; MAX_LANES * TOGETHER]>;

/// Writes `gain·p` of the rows whose maximum is finite, and notes the sums of their exponentials.
///
/// # Safety
/// As [`rows`], for at most `TOGETHER` rows.
#[inline(always)]
pub(crate) unsafe fn weigh_rows<V: Vector>(
    z: *const f32,
    out: *mut f32,
    d: usize,
    scale: f32,
    gain: f32,
    known: &mut [Known],
) {
    let mut across = Across::uninit();
    let across = across.as_mut_ptr().cast::<f32>();
    let mut by = [0.0f32; TOGETHER];
    // SAFETY: as the caller vouches; `across` holds a vector for every row, and for those missing in a group.
    unsafe {
        for (r, known) in known.iter_mut().enumerate() {
            let mut lanes = V::splat(1.0);
            if known.max.is_finite() {
                lanes = exponentials::<V>(z.add(r * d), out.add(r * d), d, known, scale);
            }
            if d <= NARROW {
                lanes.store(across.add(r * V::LANES));
            } else {
                by[r] = (f64::from(gain) / known.total) as f32;
            }
        }
        if d <= NARROW {
            let mut totals = [0.0f32; TOGETHER];
            for r in known.len()..known.len().next_multiple_of(V::LANES) {
                V::splat(1.0).store(across.add(r * V::LANES));
            }
            for first in (0..known.len()).step_by(V::LANES) {
                let total = V::row_sums(across.add(first * V::LANES));
                total.store(totals.as_mut_ptr().add(first));
                V::splat(gain).div(total).store(by.as_mut_ptr().add(first));
            }
            for (known, total) in known.iter_mut().zip(totals) {
                known.total = f64::from(total);
            }
        }
        for (r, _) in known.iter().enumerate().filter(|(_, known)| known.max.is_finite()) {
            rescale::<V>(out.add(r * d), d, by[r]);
        }
    }
}

/// Largest `|scale·z|`, in powers of two, for which whole and fractional parts are exact.
const NEAR: f32 = 1_048_576.0;

/// Stores `exp(scale·z)·2^−whole` of the entries that are not below `least`, 0 of the others. `whole` is such
/// that the largest is about 1. The sum is noted; that of a narrow row is returned instead, lane by lane.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, the maximum is finite; the CPU has the
/// instruction set.
#[inline(always)]
unsafe fn exponentials<V: Vector>(z: *const f32, out: *mut f32, d: usize, known: &mut Known, scale: f32) -> V {
    let (scale, inverse) = (scale * std::f32::consts::LOG2_E, std::f32::consts::LN_2 / scale);
    let top = known.max * scale;
    // SAFETY: as the caller vouches.
    unsafe {
        if V::FUSED && top.abs() < NEAR {
            known.whole = top.round();
            // 2⁻¹²⁵ and less counts as nothing. The bound is a score, so that it can be compared at once.
            let least = V::splat(known.least.max((known.whole - 125.0) * inverse));
            let weigh = Weigh::<V, true> { least, scale: V::splat(scale), from: V::splat(known.whole) };
            weighted(z, out, d, weigh, &mut known.total)
        } else {
            // Products that are rounded, or so large that neighbouring scores differ by more than 1/8.
            let (from, least) = (V::splat(known.max), V::splat(known.least));
            known.whole = f32::NAN;
            weighted(z, out, d, Weigh::<V, false> { least, scale: V::splat(scale), from }, &mut known.total)
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

/// Stores the weight of every entry; their sum as [`exponentials`] has it.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set.
#[inline(always)]
unsafe fn weighted<V: Vector, const NEAR: bool>(
    z: *const f32,
    out: *mut f32,
    d: usize,
    weigh: Weigh<V, NEAR>,
    total: &mut f64,
) -> V {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        if d <= NARROW {
            return weighted_part(z, out, (0, d), weigh);
        }
        let mut wide = V::wide_zero();
        for first in (0..d).step_by(V::LANES * BLOCK) {
            let end = d.min(first + V::LANES * BLOCK);
            wide = V::wide_add(wide, weighted_part(z, out, (first, end), weigh));
        }
        *total = V::wide_total(wide);
        zero
    }
}

/// Stores the weight of every entry of a part of a row, and returns their sum, lane by lane.
///
/// # Safety
/// As [`weighted`].
#[inline(always)]
unsafe fn weighted_part<V: Vector, const NEAR: bool>(
    z: *const f32,
    out: *mut f32,
    (first, end): (usize, usize),
    weigh: Weigh<V, NEAR>,
) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        // One vector at a time: two would want more registers than there are, and the processor looks
        // ahead by itself.
        let (mut sum, mut i) = (V::splat(0.0), first);
        while i + V::LANES <= end {
            let x = weigh.of(V::load(z.add(i)));
            x.store(out.add(i));
            sum = sum.add(x);
            i += V::LANES;
        }
        if i < end {
            let x = weigh.of(V::load_first(z.add(i), end - i, f32::NEG_INFINITY));
            x.store_first(out.add(i), end - i);
            sum = sum.add(x);
        }
        sum
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
