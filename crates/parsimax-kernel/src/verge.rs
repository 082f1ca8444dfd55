//! α-entmax for 1 < α < 1.1, where it verges on softmax.
//!
//! With `δ = α − 1` and `e = 1/δ` a probability is `(1 + q)^e`, `q = δ(x − t)`: the nearer α is to 1, the more digits of
//! `1 + q` the power asks for, and the less it differs from `exp(x − t)`. So a row is measured by `q`, which rounding
//! leaves whole, and found by few steps, as the sum is almost a multiple of an exponential in `t`.
//!
//! Plainly, for some rows at a time: the maxima; steps along the curve of `settle.rs` in `c`, the `q` of the maximum, with
//! what is one number a row computed for all of them at once; a pass that writes probabilities and sums them; and a pass
//! that multiplies them by `(1 + δs/u)^e`, `u = 1 + q`, by a few terms of its series, where `s` makes up for what the sum
//! lacks. The sum is the proof: a row that fails is solved by itself (`long.rs`).

use super::dense::Smooth;
use super::finish::Rows;
use super::long;
use super::pair::Pair;
use super::profile::{Slope, Whole};
use super::settle::carry;
use super::short::lanes_of_maxima;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// Floats of the rows that take each step together: they stay in the first-level cache.
const ROOM: usize = 8192;

/// Steps at most.
const STEPS: usize = 16;

/// A residual of which the step after it leaves less than [`REACH`].
const NEAR: f32 = 0.4;

/// A residual, as a share of the mass, from which on `f/g` is the better `y`.
const FAR: f32 = 0.3;

/// A residual that is rounding noise.
const NOISE: f32 = 4e-7;

/// The largest `s` whose fourth power is noise.
const REACH: f32 = 0.03;

/// How often a row is written before another way is taken.
const TIMES: usize = 3;

/// Pairs of vectors whose terms are added before they join the others.
const BLOCK: usize = 8;

/// Smaller than any `u` with a probability, and so large that its inverse is a number.
const TINY: f32 = 1e-37;

/// A `u` whose probability is noise: what is not above it needs no exact factor, but one that is a number.
const LOW: f32 = 0.05;

/// Sums of rows in their lanes, a square block each.
const SQUARE: usize = MAX_LANES * MAX_LANES;

/// The mapping, for one α and one scale.
#[derive(Clone, Copy)]
pub(crate) struct Verge {
    alpha: f64,
    delta: f64,
    steep: f32,
    e: f32,
    /// `δ · scale`.
    scale: f32,
    /// `log₂ p` of `q`, over `q`, highest power first: a guess.
    guess: [f32; TERMS],
}

/// Coefficients of a guess: it is off by less than a hundredth.
const TERMS: usize = 8;

/// The logarithm of the least probability that a guess is good for.
const LEAST_LOG: f64 = 16.0;

impl Verge {
    pub(crate) fn new(alpha: f64, scale: f32) -> Verge {
        let delta = alpha - 1.0;
        let (steep, e) = (delta as f32, (1.0 / delta) as f32);
        Verge { alpha, delta, steep, e, scale: steep * scale, guess: guess(delta) }
    }
}

/// The polynomial through `ln(1 + q)/(δ q ln 2)` at the zeros of a Chebyshev polynomial, from the least `q` that matters to 0.
fn guess(delta: f64) -> [f32; TERMS] {
    let half = 0.5 * (-LEAST_LOG * delta).exp_m1();
    let at: [f64; TERMS] =
        std::array::from_fn(|k| half * (1.0 + (std::f64::consts::PI * (k as f64 + 0.5) / TERMS as f64).cos()));
    let mut slopes = at.map(|q| q.ln_1p() / (q * delta * std::f64::consts::LN_2));
    // Newton's divided differences, then its products multiplied out.
    for order in 1..TERMS {
        for k in (order..TERMS).rev() {
            slopes[k] = (slopes[k] - slopes[k - 1]) / (at[k] - at[k - order]);
        }
    }
    let mut powers = [0.0; TERMS];
    for k in (0..TERMS).rev() {
        for j in (1..TERMS).rev() {
            powers[j] = powers[j - 1] - at[k] * powers[j];
        }
        powers[0] = slopes[k] - at[k] * powers[0];
    }
    powers.reverse();
    powers.map(|power| power as f32)
}

/// What is known of a group of rows that were written.
struct Done {
    bad: u32,
    empty: u32,
    /// A bit for every row whose sum is 1.
    exact: u32,
    max: [f32; MAX_LANES],
    /// `q` of the maximum, and the shift that made up for what the sum lacked.
    c: [f32; MAX_LANES],
    shift: [f32; MAX_LANES],
    /// `Σ p`, `Σ p/u`, `Σ p/u²` and `Σ p·q` before it did.
    sums: [[f32; MAX_LANES]; 4],
}

/// Forward pass of a block of rows. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(prof: Verge, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let d = job.d;
    let (gain, mut sums) = loss.unzip();
    let many = (ROOM / d).clamp(1, V::LANES);
    for first in (0..job.status.len()).step_by(many) {
        let here = (job.status.len() - first).min(many);
        // SAFETY: `here` rows of `d` floats start at row `first`.
        let done = unsafe {
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            let rows = Rows { z, out, d, gain: gain.unwrap_or(1.0) };
            match gain {
                None => write_group::<V, false>(&raw const prof, rows, here),
                Some(_) => write_group::<V, true>(&raw const prof, rows, here),
            }
        };
        let all = ((1u64 << here) - 1) as u32;
        if done.exact == all && job.tau.is_none() && sums.is_none() {
            job.status[first..first + here].fill(Status::Ok);
            continue;
        }
        for r in 0..here {
            let status = Status::from_flags(done.bad >> r & 1 == 1, done.empty >> r & 1 == 1);
            if status == Status::Ok && done.exact >> r & 1 == 0 {
                let bounds = Whole::over(1.0 / prof.delta, Smooth::<true>::new(prof.alpha).inner());
                let alone = (bounds, Smooth::<true>::new(prof.alpha));
                // SAFETY: as the caller vouches.
                unsafe { long::one_row::<V, _, _>(alone, job, first + r, gain, sums.as_deref_mut()) };
                continue;
            }
            if status != Status::Ok {
                job.out[(first + r) * d..(first + r + 1) * d].fill(status.fill());
            }
            job.status[first + r] = status;
            let sum = prof.row_sum(&done, r);
            if let Some(tau) = job.tau.as_deref_mut() {
                tau[first + r] = status.tau(f64::from(prof.scale) * f64::from(sum.max) + sum.tau);
            }
            if let Some(sums) = sums.as_deref_mut() {
                sums[first + r] = sum;
            }
        }
    }
}

impl Verge {
    /// What the loss of a row asks for.
    ///
    /// Its value is `τ/δ + Σ p·u/α` but for constants, which is convex in τ and least at the root: `Σ p·u` is that of the
    /// threshold that was written with, and the shift enters by three terms of a series.
    fn row_sum(&self, done: &Done, r: usize) -> RowSum {
        let [f, g, h, pq] = done.sums.map(|sums| f64::from(sums[r]));
        let s = f64::from(done.shift[r]);
        let pu = f + pq + self.alpha * s * (f + s * (0.5 * g + s * h * (1.0 - self.delta) / 6.0));
        RowSum { max: done.max[r], tau: -(1.0 + f64::from(done.c[r]) + self.delta * s), pu }
    }

    /// `q` of the scores of a row whose largest has `c`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn below<V: Vector>(&self, z: V, (max, c): (V, V)) -> V {
        // SAFETY: as the caller vouches.
        z.sub(max).fma(unsafe { V::splat(self.scale) }, c)
    }

    /// `p` and `1/u` of `q`; where there is no support, 0 and anything.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn power<V: Vector>(&self, q: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = q.add(V::splat(1.0));
            let on = u.gt(V::splat(TINY));
            let u = u.max(V::splat(TINY));
            (u.power_near_one(q, V::splat(self.e)).keep(on), u.rough_inverse())
        }
    }

    /// Factors of `x²` and `x³` in `(1 + δx)^e`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn series<V: Vector>(&self) -> [V; 2] {
        let second = 0.5 * (1.0 - self.steep);
        // SAFETY: as the caller vouches.
        unsafe { [V::splat(second), V::splat(second * (1.0 - 2.0 * self.steep) / 3.0)] }
    }

    /// The `s` that makes up for what a sum lacks, given `Σ p/u` and `Σ p/u²` beside it.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn shift<V: Vector>(&self, f: V, g: V, h: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let [bend, twist] = self.series::<V>();
            // The sum of the cubes as good as follows from the others.
            let (h, third) = (h.mul(bend), h.mul(h).div(g).mul(twist));
            let lack = V::splat(1.0).sub(f);
            let mut s = lack.div(g);
            for _ in 0..2 {
                let more = s.fma(third, h).mul(s).mul(s);
                s = lack.sub(more).div(g);
            }
            s
        }
    }

    /// A guess at `p`, and `1/u`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn rough_power<V: Vector>(&self, q: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = q.add(V::splat(1.0));
            // By halves: the chain of dependent operations is what limits a row.
            let [a, b, c, d, e, f, g, h] = self.guess;
            let (square, pair) = (q.mul(q), |high, low| q.fma(V::splat(high), V::splat(low)));
            let (high, low) = (pair(a, b).fma(square, pair(c, d)), pair(e, f).fma(square, pair(g, h)));
            let log = high.fma(square.mul(square), low);
            let p = rough_exp2(log.mul(q)).keep(u.gt(V::splat(TINY)));
            (p, u.max(V::splat(TINY)).rough_inverse())
        }
    }

    /// `(1 + x)^δ − 1`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn rise<V: Vector>(&self, x: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let one = V::splat(1.0);
            let log = one.add(x).max(V::splat(TINY)).log2_near_one(x);
            let w = log.mul(V::splat(self.steep * std::f32::consts::LN_2));
            // eʷ − 1 for a `w` that is hardly below −1.
            let mut sum = V::splat(0.0);
            for k in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0] {
                sum = sum.fma(w, V::splat(k));
            }
            sum.mul(w)
        }
    }
}

outlined! {
    /// Solves and writes `here ≤ LANES` rows.
    ///
    /// # Safety
    /// `prof` is readable, there are `here` rows of `d` floats; the CPU has the instruction set of `V`.
    unsafe fn write_group<V; LOSS>(prof: *const Verge, rows: Rows, here: usize) -> Done => write_group_any
}

/// # Safety
/// As [`write_group`].
#[inline(always)]
unsafe fn write_group_any<V: Vector, const LOSS: bool>(prof: *const Verge, rows: Rows, here: usize) -> Done {
    let mut across = [1.0f32; 4 * SQUARE];
    let across = across.as_mut_ptr();
    let mut done = Done {
        bad: 0,
        empty: 0,
        exact: 0,
        max: [0.0; MAX_LANES],
        c: [0.0; MAX_LANES],
        shift: [0.0; MAX_LANES],
        sums: [[0.0; MAX_LANES]; 4],
    };
    // SAFETY: as the caller vouches; the arrays hold a vector, or one for each lane.
    unsafe {
        // A copy, which nothing that is written can be part of.
        let prof = &{ *prof };
        let (zero, one, none) = (V::splat(0.0), V::splat(1.0), V::splat(f32::NEG_INFINITY));
        let all = ((1u64 << here) - 1) as u32;
        let mut block = [0.0f32; SQUARE];
        let (max, nan) = lanes_of_maxima::<V>(rows.z, (rows.d, here), &mut block);
        done.bad = nan | V::bits(max.ge(V::splat(f32::INFINITY)));
        done.empty = V::bits(none.ge(max));
        max.store(done.max.as_mut_ptr());
        let fit = all & !(done.bad | done.empty);
        // n equal entries have the least `c`.
        let least = ((rows.d as f64).ln() * -prof.delta).exp_m1() * (1.0 + 1e-6);
        let (mut c, mut less, mut more) = (zero, V::splat(least as f32), zero);
        let (apart, share) = sample::<V>(rows.d);
        // Rows whose sample is not solved, and rows that are not. What becomes of a row depends on it alone.
        let (mut sampled, mut open) = (if apart > 1 { fit } else { 0 }, fit);
        let (mut steps, mut looks) = (0, 0);
        while looks < STEPS {
            c.store(done.c.as_mut_ptr());
            let is_sample = sampled != 0;
            let (asked, apart, mass) = if is_sample { (sampled, apart, V::splat(share)) } else { (open, 1, one) };
            for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
                let sums = prof.look::<V>(rows, r, (done.max[r], done.c[r]), apart);
                for (k, sum) in sums.into_iter().enumerate() {
                    sum.store(across.add(k * SQUARE + r * V::LANES));
                }
            }
            let (f, g, h) = (V::row_sums(across), V::row_sums(across.add(SQUARE)), V::row_sums(across.add(2 * SQUARE)));
            let lack = mass.sub(f);
            // Far away Newton on the norm leads further.
            let is_far = lack.max(zero.sub(lack)).gt(mass.mul(V::splat(FAR)));
            let y = f.select(is_far, g).div(g.select(is_far, h));
            let to = y.fma(prof.rise(lack.div(y.mul(g))), c);
            let is_near = V::splat(NEAR).mul(mass).gt(lack.max(zero.sub(lack)));
            if is_sample {
                // No bound; and nothing, if nothing of the sample is in the support.
                let to = to.max(less).min(more).select(to.ge(to), c);
                c = to.select(V::lanes_of(sampled), c);
                steps += 1;
                sampled &= if steps < most_sampled(apart) { !V::bits(is_near) } else { 0 };
                continue;
            }
            looks += 1;
            let is_below = lack.gt(zero);
            (less, more) = (c.select(is_below, less), more.select(is_below, c));
            let inside = V::and(to.ge(less), more.ge(to));
            let middle = less.add(more).mul(V::splat(0.5));
            c = to.select(inside, middle).select(V::lanes_of(open), c);
            open &= !V::bits(V::and(inside, is_near));
            if open == 0 {
                break;
            }
        }
        let mut todo = fit;
        for _ in 0..TIMES {
            c.store(done.c.as_mut_ptr());
            for r in (0..V::LANES).filter(|r| todo >> r & 1 == 1) {
                for (k, sum) in prof.write::<V, LOSS>(rows, r, (done.max[r], done.c[r])).into_iter().enumerate() {
                    sum.store(across.add(k * SQUARE + r * V::LANES));
                }
            }
            let (f, g, h) = (V::row_sums(across), V::row_sums(across.add(SQUARE)), V::row_sums(across.add(2 * SQUARE)));
            f.store(done.sums[0].as_mut_ptr());
            g.store(done.sums[1].as_mut_ptr());
            h.store(done.sums[2].as_mut_ptr());
            if LOSS {
                V::row_sums(across.add(3 * SQUARE)).store(done.sums[3].as_mut_ptr());
            }
            let lack = one.sub(f);
            let s = prof.shift(f, g, h);
            let size = s.max(zero.sub(s));
            let near = V::bits(V::splat(REACH).ge(size)) & todo;
            let s = s.keep(V::and(V::lanes_of(near), size.gt(V::splat(NOISE))));
            s.select(V::lanes_of(todo), V::load(done.shift.as_ptr())).store(done.shift.as_mut_ptr());
            let lacking = near & V::bits(size.gt(V::splat(NOISE)));
            for r in (0..V::LANES).filter(|r| lacking >> r & 1 == 1) {
                prof.mend::<V>(rows, r, (done.max[r], done.c[r]), done.shift[r]);
            }
            (done.exact, todo) = (done.exact | near, todo & !near);
            if todo == 0 {
                break;
            }
            let y = f.div(g);
            let to = y.fma(prof.rise(lack.div(f)), c);
            c = to.select(V::lanes_of(todo), c);
        }
    }
    done
}

impl Verge {
    /// Guesses at `Σ p`, `Σ p/u` and `Σ p/u²` of every so many pairs of vectors of row `r`, by lanes.
    ///
    /// # Safety
    /// As [`write_group`].
    #[inline(always)]
    unsafe fn look<V: Vector>(&self, rows: Rows, r: usize, (max, c): (f32, f32), apart: usize) -> [V; 3] {
        // SAFETY: every access stays within the row.
        unsafe {
            let (z, d, at) = (rows.z.add(r * rows.d), rows.d, (Pair::<V>::splat(max), Pair::<V>::splat(c)));
            let mut all = [Pair::<V>::splat(0.0); 3];
            for i in (0..d).step_by(apart * Pair::<V>::LANES) {
                let (p, inverse) = self.rough_power(self.below(scores::<Pair<V>>(z.add(i), d - i), at));
                let slope = p.mul(inverse);
                all = [all[0].add(p), all[1].add(slope), slope.fma(inverse, all[2])];
            }
            joined(all)
        }
    }

    /// Writes row `r`; returns `Σ p`, `Σ p/u`, `Σ p/u²` and, for a loss, `Σ p·q`, by lanes.
    ///
    /// # Safety
    /// As [`write_group`].
    #[inline(always)]
    unsafe fn write<V: Vector, const LOSS: bool>(&self, rows: Rows, r: usize, (max, c): (f32, f32)) -> [V; 4] {
        // SAFETY: every access stays within the row.
        unsafe {
            let (z, out, d) = (rows.z.add(r * rows.d), rows.out.add(r * rows.d), rows.d);
            let (at, gain) = ((Pair::<V>::splat(max), Pair::<V>::splat(c)), Pair::<V>::splat(rows.gain));
            let (zero, width) = (Pair::<V>::splat(0.0), Pair::<V>::LANES);
            let (mut all, mut lost) = ([zero; 4], zero);
            let mut i = 0;
            while i < d {
                let mut part = [zero; 4];
                let end = d.min(i + BLOCK * width);
                while i < end {
                    let n = (end - i).min(width);
                    let q = self.below(scores::<Pair<V>>(z.add(i), n), at);
                    let (p, inverse) = self.power(q);
                    part[0] = part[0].add(p);
                    let slope = p.mul(inverse);
                    (part[1], part[2]) = (part[1].add(slope), slope.fma(inverse, part[2]));
                    if LOSS {
                        part[3] = p.fma(q.max(Pair::<V>::splat(-1.0)), part[3]);
                    }
                    super::vector::write(if LOSS { p.mul(gain) } else { p }, out.add(i), n);
                    i += n;
                }
                (all[0], lost) = carry(all[0], lost, part[0]);
                for k in 1..4 {
                    all[k] = all[k].add(part[k]);
                }
            }
            let [a, b, c] = joined([all[0], all[1], all[2]]);
            let (q, q2) = all[3].halves();
            [a, b, c, q.add(q2)]
        }
    }

    /// Multiplies what was written of row `r` by `(1 + δs/u)^e`, as far as the cube of `s`.
    ///
    /// # Safety
    /// As [`write_group`].
    #[inline(always)]
    unsafe fn mend<V: Vector>(&self, rows: Rows, r: usize, (max, c): (f32, f32), s: f32) {
        // SAFETY: every access stays within the row.
        unsafe {
            let (z, out, d) = (rows.z.add(r * rows.d), rows.out.add(r * rows.d), rows.d);
            let (at, one) = ((V::splat(max), V::splat(c)), V::splat(1.0));
            let (s, [bend, twist]) = (V::splat(s), self.series::<V>());
            for i in (0..d).step_by(V::LANES) {
                let n = (d - i).min(V::LANES);
                let u = self.below(scores::<V>(z.add(i), n), at).add(one).max(V::splat(LOW));
                let step = s.mul(u.rough_inverse());
                let factor = step.fma(twist, bend).fma(step, one).fma(step, one).max(V::splat(0.0));
                super::vector::write(super::vector::read::<V>(out.add(i), n).mul(factor), out.add(i), n);
            }
        }
    }
}

/// Every how many pairs of vectors are looked at first, and what part of a row of so many scores they are.
fn sample<V: Vector>(d: usize) -> (usize, f32) {
    let pairs = d / Pair::<V>::LANES;
    let apart = if pairs >= 32 {
        8
    } else if pairs >= 2 {
        2
    } else {
        1
    };
    let seen: usize = (0..d).step_by(apart * Pair::<V>::LANES).map(|i| (d - i).min(Pair::<V>::LANES)).sum();
    (apart, seen as f32 / d as f32)
}

/// Steps at most on such a sample: the smaller it is, the less they cost.
fn most_sampled(apart: usize) -> usize {
    if apart > 2 { 4 } else { 1 }
}

/// `2ᵗ` for `t ≤ 0` to a relative error of 1e−4, as [`exp2_nonpos`](super::expo::exp2_nonpos).
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn rough_exp2<V: Vector>(t: V) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let magic = V::splat(12_582_912.0);
        let k = t.add(magic);
        let f = t.sub(k.sub(magic));
        let (high, low) = (
            f.fma(V::splat(0.055_838_28), V::splat(0.242_639_48)),
            f.fma(V::splat(0.693_136_73), V::splat(0.999_924_56)),
        );
        let power = high.fma(f.mul(f), low);
        power.shift_exponent(k).keep(t.gt(V::splat(-126.0)))
    }
}

/// The sums of both halves.
#[inline(always)]
fn joined<V: Vector>([a, b, c]: [Pair<V>; 3]) -> [V; 3] {
    let ((a, a2), (b, b2), (c, c2)) = (a.halves(), b.halves(), c.halves());
    [a.add(a2), b.add(b2), c.add(c2)]
}

/// The first `n` scores, or a whole vector of them; `−inf` behind them.
///
/// # Safety
/// As [`Vector::load_first`].
#[inline(always)]
unsafe fn scores<V: Vector>(z: *const f32, n: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe { if n >= V::LANES { V::load(z) } else { V::load_first(z, n, f32::NEG_INFINITY) } }
}
