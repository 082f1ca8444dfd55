//! Softmax: `p = exp(scale·(z − max)) / Σ`.
//!
//! Three passes over a row: the maximum; exponentials, stored and summed (in f32 for a
//! few terms a lane, then in f64); the division, as a product with the reciprocal. Narrow rows take
//! each pass a vector's worth of them at a time, and what is one number a row is computed for all of them at once.
//!
//! Ev-softmax differs in the entries that count, which a [`Survey`] tells.

use super::expo::exp2_nonpos;
use super::scan::row_max;
use super::vector::{MAX_LANES, Vector, outlined, write};
use super::write::RowSum;
use super::{Forward, Status};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Rows that go through a step together: what one waits for at its end, the next fills with work.
const TOGETHER: usize = 16;

/// Floats of such rows that stay in the first-level cache from step to step.
const ROOM: usize = 2048;

/// Widest row whose lanes are summed in f32 and joined for `LANES` rows at once.
const NARROW: usize = 128;

/// Most vectors of a row that is narrow.
const FEW: usize = NARROW / MAX_LANES;

/// How many rows of width `d` take each step together.
fn together(d: usize) -> usize {
    (ROOM / d).clamp(1, TOGETHER)
}

/// Widest row of which the one after it is asked for while it is at work: more would push each other out of the caches.
const ASKED: usize = 1 << 15;

/// How far ahead of the exponentials scores are asked for. They take longer than memory does, and without being asked it
/// would rest meanwhile.
fn ahead(d: usize) -> usize {
    if d <= ASKED { d * together(d) } else { 0 }
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

/// Which entries of a row count.
pub(crate) trait Survey: Copy {
    /// Notes maximum, NaN if there is a NaN, and least score that counts of some rows.
    ///
    /// # Safety
    /// `z` is readable for `known.len()` rows of `d` floats; the CPU has the instruction set.
    unsafe fn rows<V: Vector>(self, z: *const f32, d: usize, known: &mut [Known]);
    /// The least score that counts, or one above the maximum, of a row of numbers that are finite or `−inf`.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; the CPU has the instruction set.
    unsafe fn least<V: Vector>(self, z: *const f32, d: usize) -> f32;
}

/// Every entry counts.
#[derive(Clone, Copy)]
struct All;

impl Survey for All {
    #[inline(always)]
    unsafe fn rows<V: Vector>(self, z: *const f32, d: usize, known: &mut [Known]) {
        for (r, known) in known.iter_mut().enumerate() {
            // SAFETY: row `r` is readable, as the caller vouches.
            known.max = unsafe { row_max::<V>(z.add(r * d), d) };
        }
    }
    #[inline(always)]
    unsafe fn least<V: Vector>(self, _z: *const f32, _d: usize) -> f32 {
        f32::NEG_INFINITY
    }
}

/// Forward pass of a block of rows. τ is the log-sum-exp of `scale·z`. `loss` as in
/// `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    // SAFETY: as the caller vouches.
    unsafe { weigh::<V, All>(All, job, loss) }
}

/// Replaces a row of scores by its probabilities; one that is not fit is left as it is.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn in_place<V: Vector>(x: &mut [f32], scale: f32) -> Status {
    // SAFETY: as the caller vouches.
    unsafe { replace::<V, All>(All, x, scale) }
}

/// [`in_place`] over the entries that count.
///
/// # Safety
/// As [`in_place`].
pub(crate) unsafe fn replace<V: Vector, S: Survey>(survey: S, x: &mut [f32], scale: f32) -> Status {
    let (place, mut known) = (x.as_mut_ptr(), [Known::NOTHING]);
    let block = Block { z: place, out: place, d: x.len(), scale, gain: 1.0 };
    // SAFETY: as the caller vouches; what is stored takes the place of what was read for the last time.
    unsafe { rows::<V, S>(survey, block, &raw mut known[..]) };
    Status::of_max(known[0].max)
}

/// Some rows by pointer, and the factors on their scores and on their probabilities.
#[derive(Clone, Copy)]
struct Block {
    z: *const f32,
    out: *mut f32,
    d: usize,
    scale: f32,
    gain: f32,
}

/// [`forward`] over the entries that count.
///
/// # Safety
/// As [`forward`].
pub(crate) unsafe fn weigh<V: Vector, S: Survey>(survey: S, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let (d, n, scale) = (job.d, job.status.len(), job.scale);
    let (gain, mut sums) = loss.unzip();
    let (is_narrow, is_quiet) = (V::FUSED && d <= FEW * V::LANES, sums.is_none() && job.tau.is_none());
    let mut known = [Known::NOTHING; TOGETHER];
    let mut first = 0;
    while first < n {
        let (left, mut done) = (n - first, 0);
        // SAFETY: the rows from `first` on lie within both slices, and `known` has room for those that are noted.
        unsafe {
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            let block = Block { z, out, d, scale, gain: gain.unwrap_or(1.0) };
            if is_narrow && is_quiet {
                done = narrow_rows::<V, S>(survey, block, left, std::ptr::null_mut());
                job.status[first..first + done].fill(Status::Ok);
                first += done;
                if done > 0 {
                    continue;
                }
            } else if is_narrow {
                done = narrow_rows::<V, S>(survey, block, left.min(TOGETHER), known.as_mut_ptr());
            }
            if done == 0 {
                done = left.min(together(d));
                rows::<V, S>(survey, block, &raw mut known[..done]);
            }
        }
        for (r, known) in (first..).zip(&known[..done]) {
            if let Some(sums) = sums.as_deref_mut() {
                sums[r] = RowSum { max: known.max, tau: known.log_sum(scale), pu: 0.0 };
            }
            report(job, r, known);
        }
        first += done;
    }
}

/// Sets status and τ of a row of exponentials, and fills it if it is not fit.
fn report(job: &mut Forward<'_>, r: usize, known: &Known) {
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
    /// Writes `gain·p` of `n` rows of at most [`FEW`] vectors, as far as these are finite and of a size that is common; returns how
    /// many it wrote. What is known of them is noted if there is room for it.
    ///
    /// # Safety
    /// The block has `n` rows, and `known` is null or writable for as many; `V::FUSED`; the CPU has the instruction set.
    unsafe fn narrow_rows<V, S: Survey>(survey: S, block: Block, n: usize, known: *mut Known) -> usize => narrow_rows_any
}

/// # Safety
/// As [`narrow_rows`].
#[inline(always)]
unsafe fn narrow_rows_any<V: Vector, S: Survey>(survey: S, block: Block, n: usize, known: *mut Known) -> usize {
    // SAFETY: as the caller vouches.
    unsafe {
        match block.d.div_ceil(V::LANES) {
            1 => narrow_rows_of::<V, S, 1>(survey, block, n, known),
            2 => narrow_rows_of::<V, S, 2>(survey, block, n, known),
            3 => narrow_rows_of::<V, S, 3>(survey, block, n, known),
            4 => narrow_rows_of::<V, S, 4>(survey, block, n, known),
            5 => narrow_rows_of::<V, S, 5>(survey, block, n, known),
            6 => narrow_rows_of::<V, S, 6>(survey, block, n, known),
            7 => narrow_rows_of::<V, S, 7>(survey, block, n, known),
            _ => narrow_rows_of::<V, S, 8>(survey, block, n, known),
        }
    }
}

/// [`narrow_rows`] of `N` vectors a row, the last of which may be a part of one.
///
/// # Safety
/// As [`narrow_rows`].
#[inline(always)]
unsafe fn narrow_rows_of<V: Vector, S: Survey, const N: usize>(
    survey: S,
    block: Block,
    n: usize,
    known: *mut Known,
) -> usize {
    let Block { d, scale, gain, .. } = block;
    let (unit, inverse) = (scale * std::f32::consts::LOG2_E, std::f32::consts::LN_2 / scale);
    let (mut across, mut by) = ([0.0f32; MAX_LANES * MAX_LANES], [0.0f32; MAX_LANES]);
    let (mut least, mut whole) = ([0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
    let last = d - (N - 1) * V::LANES;
    // Exponentials lie here in whole vectors: a part of one that was just written is slow to read.
    let (mut room, wide) = (std::mem::MaybeUninit::<[f32; MAX_LANES * NARROW]>::uninit(), N * V::LANES);
    let room = room.as_mut_ptr().cast::<f32>();
    for first in (0..n).step_by(V::LANES) {
        let here = (n - first).min(V::LANES);
        // SAFETY: `here` rows from `first` on lie within the block; `across` holds a vector for each, the others a number.
        unsafe {
            let (z, out) = (block.z.add(first * d), block.out.add(first * d));
            let none = V::splat(f32::NEG_INFINITY);
            let mut nan = none.unordered(none);
            for r in 0..here {
                let (row, mut most, mut before) = (z.add(r * d), none, none);
                for k in 0..N {
                    let scores = part::<V, N>(row, k, last);
                    most = scores.max(most);
                    // By twos. The sum does not tell: an exponential may turn a NaN into a number, by way of its bits.
                    if k % 2 == 1 || k + 1 == N {
                        nan = V::or(nan, scores.unordered(before));
                    }
                    before = scores;
                }
                most.store(across.as_mut_ptr().add(r * V::LANES));
                least[r] = survey.least::<V>(z.add(r * d), d);
            }
            let max = V::row_maxima(across.as_ptr());
            let top = max.mul(V::splat(unit));
            let from = top.add(V::splat(ROUND)).sub(V::splat(ROUND));
            let low = V::load(least.as_ptr());
            let low = max.select(low.gt(max), low).max(from.sub(V::splat(125.0)).mul(V::splat(inverse)));
            low.store(least.as_mut_ptr());
            from.store(whole.as_mut_ptr());
            for r in 0..here {
                let (least, from) = (V::splat(least[r]), V::splat(whole[r]));
                let weigh = Weigh::<V, true> { least, scale: V::splat(unit), from };
                let sum = weighted_whole::<V, N>(z.add(r * d), room.add(r * wide), d, weigh);
                sum.store(across.as_mut_ptr().add(r * V::LANES));
            }
            let total = V::row_sums(across.as_ptr());
            let is_near = V::and(V::splat(NEAR).gt(top), top.gt(V::splat(-NEAR)));
            let is_common = V::bits(V::and(is_near, V::splat(f32::INFINITY).gt(total)));
            if is_common.trailing_ones() < here as u32 || V::bits(nan) != 0 {
                return first;
            }
            V::splat(gain).div(total).store(by.as_mut_ptr());
            for r in 0..here {
                let (from, out, by) = (room.add(r * wide), out.add(r * d), V::splat(by[r]));
                for k in 0..N {
                    let len = if k + 1 < N { V::LANES } else { last };
                    write(V::load(from.add(k * V::LANES)).mul(by), out.add(k * V::LANES), len);
                }
            }
            if !known.is_null() {
                // What was in these is used up.
                max.store(by.as_mut_ptr());
                total.store(least.as_mut_ptr());
                for r in 0..here {
                    let total = f64::from(least[r]);
                    *known.add(first + r) = Known { max: by[r], total, whole: whole[r], ..Known::NOTHING };
                }
            }
        }
    }
    n
}

/// Stores the weights of a row of `N` vectors, the last one whole too; their sum, lane by lane.
///
/// # Safety
/// `z` is readable for `d` floats and `to` writable for `N` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn weighted_whole<V: Vector, const N: usize>(z: *const f32, to: *mut f32, d: usize, weigh: Weigh<V, true>) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut sum = V::splat(0.0);
        for k in 0..N {
            // The rows after these, as in [`ahead`].
            V::prefetch(z.wrapping_add(V::LANES * d + k * V::LANES));
            let x = weigh.of(part::<V, N>(z, k, d - (N - 1) * V::LANES));
            x.store(to.add(k * V::LANES));
            sum = sum.add(x);
        }
        sum
    }
}

/// Vector `k` of a row of `N`, the last of which has `last` floats and `−inf` behind them.
///
/// # Safety
/// Those floats are readable; the CPU has the instruction set.
#[inline(always)]
unsafe fn part<V: Vector, const N: usize>(row: *const f32, k: usize, last: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        match k + 1 < N || last == V::LANES {
            true => V::load(row.add(k * V::LANES)),
            false => V::load_first(row.add(k * V::LANES), last, f32::NEG_INFINITY),
        }
    }
}

outlined! {
    /// Maxima (NaN if there is a NaN) and sums of the exponentials of some rows; writes `gain·p`
    /// of those whose maximum is finite.
    ///
    /// # Safety
    /// The block has `known.len() ≤ TOGETHER` rows; the CPU has the instruction set.
    unsafe fn rows<V, S: Survey>(survey: S, block: Block, known: *mut [Known]) -> () => rows_any
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_any<V: Vector, S: Survey>(survey: S, block: Block, known: *mut [Known]) {
    // SAFETY: as the caller vouches.
    unsafe {
        let known = &mut *known;
        survey.rows::<V>(block.z, block.d, known);
        weigh_rows::<V>(block, known);
    }
}

/// A vector for each of some rows.
type Across = std::mem::MaybeUninit<[f32; MAX_LANES * TOGETHER]>;

/// Writes `gain·p` of the rows whose maximum is finite, and notes the sums of their exponentials.
///
/// # Safety
/// As [`rows`], for at most `TOGETHER` rows.
#[inline(always)]
unsafe fn weigh_rows<V: Vector>(block: Block, known: &mut [Known]) {
    let Block { z, out, d, scale, gain } = block;
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

/// `1.5·2²³`: what is added to it becomes a whole number.
const ROUND: f32 = 12_582_912.0;

/// Largest `|scale·z|`, in powers of two, for which whole and fractional parts are exact.
const NEAR: f32 = 262_144.0;

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
            known.whole = top + ROUND - ROUND;
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
                true => v.exp2_scaled(self.scale, self.from),
                false => exp2_nonpos(v.sub(self.from).mul(self.scale)),
            };
            x.keep(v.not_below(self.least))
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
            return weighted_part(z, out, (0, d), weigh, ahead(d));
        }
        let mut wide = V::wide_zero();
        for first in (0..d).step_by(V::LANES * BLOCK) {
            let end = d.min(first + V::LANES * BLOCK);
            wide = V::wide_add(wide, weighted_part(z, out, (first, end), weigh, ahead(d)));
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
    ahead: usize,
) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        // One vector at a time: two would want more registers than there are, and the processor looks
        // ahead by itself.
        let (mut sum, mut i) = (V::splat(0.0), first);
        while i + V::LANES <= end {
            V::prefetch(z.wrapping_add(i + ahead));
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
unsafe fn rescale<V: Vector>(out: *mut f32, d: usize, by: f32) {
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
