//! Rows of α-entmax written where they stand, or on lists, and set right on the spot.
//!
//! The pass that writes a row sums what it writes, and for α < 2 the slopes as well. A sum that is off by little is
//! mended without another power: `p` moves by its slope `e·p/u` times a step of the threshold. That is off by at most
//! the step to the power `e`, next to the threshold, and by the square of the step elsewhere. A sum that is off by more
//! takes a step of Newton on the norm, and the row is written again. What is one number a row is worked out for a group
//! of them at once.

use super::anchored::{Anchored, Lined, Place, TINY};
use super::pair::Pair;
use super::settle::carry;
use super::vector::{MAX_LANES, Vector, outlined};
use std::mem::MaybeUninit;

/// How far the sum of a row may be from 1; a long one adds its own noise.
fn exact(d: usize) -> f32 {
    if d < 256 { 6e-7 } else { 8e-7 }
}

/// A residual whose square is noise.
const SMALL: f32 = 2e-4;

/// A step of the threshold whose power `e` is noise.
pub(super) fn reach(delta: f64) -> f32 {
    2e-7f64.powf(delta) as f32
}

/// How often a row is written before another way is taken.
const TIMES: usize = 4;

/// Pairs of vectors whose terms are added before they join the others.
const BLOCK: usize = 8;

/// Rows of a group, by pointer, and what their probabilities are multiplied by.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) z: *const f32,
    pub(super) out: *mut f32,
    pub(super) d: usize,
    pub(super) gain: f32,
}

/// What rows were written with: `u` of the entry that each is measured from, `Σ p·u`, and a bit for every row whose sum
/// is 1.
#[derive(Default)]
pub(super) struct Finished {
    pub(super) level: [f64; MAX_LANES],
    pub(super) pu: [f32; MAX_LANES],
    pub(super) exact: u32,
}

/// Sums that rows have in their lanes: `Σp`, `Σ p/u` for α < 2, and `Σ p·u` of a loss, each a square block.
type Across = MaybeUninit<Lined<{ 3 * SQUARE }>>;
const SQUARE: usize = MAX_LANES * MAX_LANES;

outlined! {
    /// `gain · u^e` of the rows whose bit is set, from the places of a group. Without a `LOSS` there is no gain, and `Σ p·u`
    /// is not asked for.
    ///
    /// # Safety
    /// `prof` is readable, those rows are readable and writable; the CPU has the instruction set of `V`.
    pub(super) unsafe fn finish<V; LOSS>(
        prof: *const Anchored,
        rows: Rows,
        asked: u32,
        places: ([f32; MAX_LANES], [f32; MAX_LANES]),
    ) -> Finished => finish_any
}

/// # Safety
/// As [`finish`].
#[inline(always)]
unsafe fn finish_any<V: Vector, const LOSS: bool>(
    prof: *const Anchored,
    rows: Rows,
    asked: u32,
    (from, level): ([f32; MAX_LANES], [f32; MAX_LANES]),
) -> Finished {
    let mut across = Across::uninit();
    let across = across.as_mut_ptr().cast::<f32>();
    let (mut levels, mut shifts) = (level, [0.0f32; MAX_LANES]);
    let mut done = Finished { level: level.map(f64::from), pu: [0.0; MAX_LANES], exact: 0 };
    let mut todo = asked;
    // SAFETY: as the caller vouches; the arrays hold `LANES` vectors.
    unsafe {
        // A copy, which nothing that is written can be part of.
        let prof = &{ *prof };
        let (zero, one, e) = (V::splat(0.0), V::splat(1.0), V::splat(prof.e));
        for r in (0..V::LANES).filter(|r| asked >> r & 1 == 0) {
            for k in 0..3 {
                zero.store(across.add(k * SQUARE + r * V::LANES));
            }
        }
        for _ in 0..TIMES {
            for r in (0..V::LANES).filter(|r| todo >> r & 1 == 1) {
                let sums = rows.write::<V, LOSS>(prof, r, (from[r], levels[r]));
                for (k, sum) in sums.into_iter().enumerate() {
                    sum.store(across.add(k * SQUARE + r * V::LANES));
                }
            }
            let total = V::row_sums(across);
            let slope = if prof.delta < 1.0 { V::row_sums(across.add(SQUARE)) } else { one };
            if LOSS {
                // Rows that are done have theirs, mended.
                let (pu, before) = (V::row_sums(across.add(2 * SQUARE)), V::load(done.pu.as_ptr()));
                pu.select(V::lanes_of(todo), before).store(done.pu.as_mut_ptr());
            }
            let (step, near, exact) = shift(prof, rows.d, total, slope);
            (done.exact, todo) = (done.exact | exact & todo, todo & !exact);
            if todo == 0 || prof.delta >= 1.0 {
                break;
            }
            let near = near & todo;
            step.mul(e).store(shifts.as_mut_ptr());
            for r in (0..V::LANES).filter(|r| near >> r & 1 == 1) {
                rows.mend::<V>(prof, r, (from[r], levels[r]), shifts[r]);
                done.level[r] = f64::from(levels[r]) + f64::from(shifts[r]) * prof.delta;
                done.pu[r] += shifts[r] * (1.0 + prof.steep);
            }
            (done.exact, todo) = (done.exact | near, todo & !near);
            if todo == 0 {
                break;
            }
            let norm = one.div(prof.steepen(total).max(V::splat(TINY))).sub(one);
            let to = total.mul(norm).div(slope).add(V::load(levels.as_ptr()));
            to.store(levels.as_mut_ptr());
            (0..MAX_LANES).filter(|r| todo >> r & 1 == 1).for_each(|r| done.level[r] = f64::from(levels[r]));
        }
    }
    done
}

/// The step of the threshold that makes up for what `Σp` lacks, given `Σ p/u`; a bit for every row that it mends, and for
/// every row that lacks nothing.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn shift<V: Vector>(prof: &Anchored, d: usize, total: V, slope: V) -> (V, u32, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let lack = one.sub(total);
        let size = lack.max(zero.sub(lack));
        let exact = V::bits(V::splat(exact(d)).ge(size));
        let step = lack.div(slope.mul(V::splat(prof.e)));
        let near = V::and(V::splat(SMALL).ge(size), V::splat(prof.reach).ge(step.max(zero.sub(step))));
        let near = if prof.delta < 1.0 { V::bits(near) & !exact } else { 0 };
        (step, near, exact)
    }
}

impl Rows {
    /// Without the first `n`.
    ///
    /// # Safety
    /// There are `n`.
    #[inline(always)]
    pub(super) unsafe fn from(self, n: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { Rows { z: self.z.add(n * self.d), out: self.out.add(n * self.d), ..self } }
    }

    /// Writes row `r`; returns its sums, by lanes.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn write<V: Vector, const LOSS: bool>(
        &self,
        prof: &Anchored,
        r: usize,
        (from, level): (f32, f32),
    ) -> [V; 3] {
        // SAFETY: every access stays within the row.
        unsafe {
            let (z, out, d) = (self.z.add(r * self.d), self.out.add(r * self.d), self.d);
            let place = Place { from: Pair::<V>::splat(from), level: Pair::<V>::splat(level) };
            let (gain, zero, lanes) = (Pair::<V>::splat(self.gain), Pair::<V>::splat(0.0), Pair::<V>::LANES);
            let mut all = [zero; 3];
            let mut i = 0;
            while i < d {
                let mut part = [zero; 3];
                let end = d.min(i + BLOCK * lanes);
                while i + lanes <= end {
                    let p = prof.weigh::<_, LOSS>(Pair::load(z.add(i)), place, &mut part);
                    if LOSS { p.mul(gain) } else { p }.store(out.add(i));
                    i += lanes;
                }
                if i < end {
                    let z = Pair::load_first(z.add(i), end - i, f32::NEG_INFINITY);
                    prof.weigh::<_, LOSS>(z, place, &mut part).mul(gain).store_first(out.add(i), end - i);
                    i = end;
                }
                all = [all[0].add(part[0]), all[1].add(part[1]), all[2].add(part[2])];
            }
            let ((a, b), (c, d), (e, f)) = (all[0].halves(), all[1].halves(), all[2].halves());
            [a.add(b), c.add(d), e.add(f)]
        }
    }

    /// Multiplies what was written of row `r` by `1 + shift/u`.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn mend<V: Vector>(&self, prof: &Anchored, r: usize, (from, level): (f32, f32), shift: f32) {
        // SAFETY: every access stays within the row.
        unsafe {
            let (z, out, d) = (self.z.add(r * self.d), self.out.add(r * self.d), self.d);
            let place = Place { from: V::splat(from), level: V::splat(level) };
            let shift = V::splat(shift);
            let mut i = 0;
            while i + V::LANES <= d {
                let factor = prof.factor(V::load(z.add(i)), place, shift);
                V::load(out.add(i)).mul(factor).store(out.add(i));
                i += V::LANES;
            }
            if i < d {
                let factor = prof.factor(V::load_first(z.add(i), d - i, f32::NEG_INFINITY), place, shift);
                V::load_first(out.add(i), d - i, 0.0).mul(factor).store_first(out.add(i), d - i);
            }
        }
    }
}

impl Anchored {
    /// `u^e` of a block of entries, in their place, and their `u` elsewhere; mended where that is enough. Returns a bit for
    /// every row whose sum is 1, `Σ p·u`, and `u` of the entries that rows are measured from.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle), with both blocks writable.
    #[inline(always)]
    pub(super) unsafe fn list<V: Vector>(
        &self,
        (c, us): (*mut f32, *mut f32),
        slots: usize,
        place: Place<V>,
        d: usize,
    ) -> (u32, V, V) {
        // SAFETY: every access stays within `slots` vectors.
        unsafe {
            let (from, level) = (Pair::twice(place.from), Pair::twice(place.level));
            let (scale, zero) = (Pair::<V>::splat(self.scale), Pair::<V>::splat(0.0));
            let (mut total, mut lost, mut slope, mut pu) = (zero, zero, zero, zero);
            for k in (0..slots).step_by(2) {
                let at = c.add(k * V::LANES);
                let u = Pair::<V>::load(at).sub(from).fma(scale, level);
                let on = u.gt(zero);
                let p;
                if self.delta < 1.0 {
                    let u = u.max(Pair::<V>::splat(self.nothing()));
                    let steepness = self.slope(u);
                    p = steepness.mul(u);
                    u.max(Pair::<V>::splat(TINY)).store(us.add(k * V::LANES));
                    slope = slope.add(steepness);
                } else {
                    p = self.power(u.max(Pair::<V>::splat(TINY))).keep(on);
                }
                p.store(at);
                pu = p.fma(u.max(zero), pu);
                (total, lost) = carry(total, lost, p);
            }
            let ((a, b), (g, g2), (c1, c2)) = (total.halves(), slope.halves(), pu.halves());
            let (step, near, exact) = shift(self, d, a.add(b), g.add(g2));
            let (mended, e) = (V::lanes_of(near), V::splat(self.e));
            let step = step.keep(mended);
            if near != 0 {
                let (by, one) = (Pair::twice(step.mul(e)), Pair::<V>::splat(1.0));
                for k in (0..slots).step_by(2) {
                    let at = c.add(k * V::LANES);
                    let u = Pair::<V>::load(us.add(k * V::LANES));
                    Pair::<V>::load(at).mul(u.rough_inverse().fma(by, one).max(zero)).store(at);
                }
            }
            (exact | near, step.fma(e.add(V::splat(1.0)), c1.add(c2)), place.level.add(step))
        }
    }

    /// `u^e` of a vector, and its terms to the sums.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn weigh<V: Vector, const LOSS: bool>(&self, z: V, place: Place<V>, sums: &mut [V; 3]) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = z.sub(place.from).fma(V::splat(self.scale), place.level);
            let p;
            if self.delta < 1.0 {
                // The least number that has a power has 0.
                let u = u.max(V::splat(self.nothing()));
                let slope = self.slope(u);
                p = slope.mul(u);
                sums[1] = sums[1].add(slope);
            } else {
                p = self.power(u.max(V::splat(TINY))).keep(u.gt(V::splat(0.0)));
            }
            sums[0] = sums[0].add(p);
            if LOSS {
                sums[2] = p.fma(u.max(V::splat(0.0)), sums[2]);
            }
            p
        }
    }

    /// `1 + shift/u`, at least 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn factor<V: Vector>(&self, z: V, place: Place<V>, shift: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = z.sub(place.from).fma(V::splat(self.scale), place.level).max(V::splat(TINY));
            u.rough_inverse().fma(shift, V::splat(1.0)).max(V::splat(0.0))
        }
    }
}
