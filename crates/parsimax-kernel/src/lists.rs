//! Thresholds and probabilities of α-entmax from lists of candidates, one list a row, several rows at a time.
//!
//! Sums over a list are vectors until its end, and a step that one row takes alone is a chain of operations on single
//! numbers, each waiting for the one before. So the sums of all rows are turned into lanes together, and the steps are
//! taken in lanes. Unlike lists that are put into lanes themselves, long ones next to short ones cost nothing.

use super::anchored::{Anchored, Place, TINY};
use super::finish::shift;
use super::pair::Pair;
use super::scan::TILE;
use super::vector::{MAX_LANES, Vector};

/// Most candidates of a row.
pub(super) const MOST: usize = 1024;

/// Floats from one list to the next: what one more tile may bring, and two vectors.
pub(super) const STRIDE: usize = MOST + TILE + 2 * MAX_LANES;

/// Candidates of a row at most that are put into lanes; where they are more, passes over lists leave fewer lanes idle.
const FEW: usize = 64;

/// Steps by powers that are no more than a guess, at most, and a residual after which better ones are due.
const ROUGH_STEPS: usize = 6;
const ROUGHLY: f32 = 0.12;

/// Steps at most, and a residual that the step after it reduces to what can be mended.
const STEPS: usize = 16;
const MENDED: f32 = 0.02;

/// Steps on maxima by whole powers.
const FIRST_STEPS: usize = 4;

/// Vectors in the sample of a crowded row, and a residual after which it has no more to tell.
const SAMPLE: usize = 32;
const SAMPLED: f32 = 0.1;

/// Passes over such a row at most, entries that are looked at together, and a residual that the step after it reduces to
/// what can be mended when the row is written.
const PASSES: usize = 3;
const CHUNK: usize = 512;
const FINISHED: f32 = 0.04;

/// How often lists are weighed before another way is taken.
const TIMES: usize = 6;

/// Scores and probabilities of a group of rows, [`STRIDE`] floats each.
#[derive(Clone, Copy)]
pub(super) struct Lists {
    pub(super) z: *mut f32,
    pub(super) p: *mut f32,
}

/// What is known of the lists of a group: how many entries, the threshold (as [`Place`] has it), and `Σ p·u`.
#[derive(Default)]
pub(super) struct Weighed {
    pub(super) kept: [usize; MAX_LANES],
    pub(super) from: [f32; MAX_LANES],
    pub(super) level: [f32; MAX_LANES],
    pub(super) pu: [f32; MAX_LANES],
}

/// Sums of every row by lanes, and then one a lane.
type Across = [[f32; MAX_LANES * MAX_LANES]; 3];

/// How `u^e` is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Rough,
    Good,
    Third,
    Fourth,
}

/// The mapping, and its exponent if that is 3 or 4, where products do.
pub(super) struct Powers {
    pub(super) prof: Anchored,
    pub(super) whole: u32,
}

impl Powers {
    pub(super) fn new(prof: Anchored) -> Powers {
        let e = 1.0 / prof.delta;
        let is = |n: u32| (e - f64::from(n)).abs() < 1e-9;
        Powers { prof, whole: [3, 4].into_iter().find(|n| is(*n)).unwrap_or(0) }
    }

    /// Whether a list of so many is to be put into lanes.
    pub(super) fn is_few(&self, kept: usize) -> bool {
        self.prof.delta >= 1.0 || (self.whole == 0 && kept <= FEW)
    }

    /// Whether rows with too many candidates for a list are solved in passes over them.
    pub(super) fn is_swept(&self) -> bool {
        self.prof.delta < 1.0 && self.whole == 0
    }

    fn good(&self) -> Way {
        match self.whole {
            3 => Way::Third,
            4 => Way::Fourth,
            _ => Way::Good,
        }
    }

    /// `p = u^e`, `p/u` and `p/u²` for `u > 0`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, u: V, way: Way) -> [V; 3] {
        // SAFETY: as the caller vouches.
        unsafe {
            match way {
                Way::Third => {
                    let u = u.positive();
                    let square = u.mul(u);
                    [square.mul(u), square, u]
                }
                Way::Fourth => {
                    let u = u.positive();
                    let square = u.mul(u);
                    [square.mul(square), square.mul(u), square]
                }
                _ => {
                    let (on, u) = (u.gt(V::splat(0.0)), u.max(V::splat(TINY)));
                    let p = if way == Way::Rough { u.rough_power(V::splat(self.prof.e)) } else { self.prof.power(u) };
                    let (p, inverse) = (p.keep(on), u.rough_inverse());
                    let slope = p.mul(inverse);
                    [p, slope, slope.mul(inverse)]
                }
            }
        }
    }

    /// Where the curve leads that shares value, slope and curvature with the sum (`settle.rs`), given the sums at a level;
    /// and what the mass lacks there.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn ahead<V: Vector>(&self, [f, g, h]: [V; 3], level: V, mass: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (lack, y, one) = (mass.sub(f), g.div(h), V::splat(1.0));
            let x = lack.div(y.mul(g));
            (y.fma(self.prof.steepen(one.add(x)).sub(one), level), lack)
        }
    }

    /// Levels of the maximum at which maxima, one row per lane, have a mass, roughly.
    ///
    /// # Safety
    /// `c` is readable for `slots` vectors; the CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn settle_maxima<V: Vector>(
        &self,
        (c, slots): (*const f32, usize),
        max: V,
        mut place: Place<V>,
        mass: f32,
    ) -> Place<V> {
        // SAFETY: every load stays within `slots` vectors.
        unsafe {
            let (scale, mass) = (V::splat(self.prof.scale), V::splat(mass));
            // No less than equal entries have, and no more than one alone.
            let least = V::splat(0.9 * (slots as f64).powf(-self.prof.delta) as f32);
            let most = self.prof.steepen(mass);
            for _ in 0..FIRST_STEPS {
                let mut sums = [V::splat(0.0); 3];
                for k in 0..slots {
                    let u = V::load(c.add(k * V::LANES)).sub(max).fma(scale, place.level);
                    let [p, slope, curve] = self.terms(u, self.good());
                    sums = [sums[0].add(p), sums[1].add(slope), sums[2].add(curve)];
                }
                let (to, _) = self.ahead(sums, place.level, mass);
                place.level = to.min(most).max(least);
            }
            place
        }
    }

    /// Moves the levels of the rows that are `asked` for, which are measured from their maxima, to where their lists sum
    /// to 1 but for what can be mended, if one of their entries stands for `share` of them. For α < 2.
    ///
    /// # Safety
    /// There are lists of as many candidates as is noted, with room for a vector more; the CPU has the instruction set of
    /// `V`.
    #[inline(always)]
    pub(super) unsafe fn settle<V: Vector>(&self, lists: Lists, asked: u32, share: f32, rows: &mut Weighed) {
        // SAFETY: as the caller vouches; the blocks hold a vector of every row.
        unsafe {
            let (zero, mass) = (V::splat(0.0), V::splat(1.0 / share));
            // A sample is no better than that.
            let close = if share > 1.0 { SAMPLED } else { MENDED };
            let [roughly, close] = [ROUGHLY / share, close / share];
            let mut across: Across = [[0.0; MAX_LANES * MAX_LANES]; 3];
            let (mut less, mut more) = (V::splat(TINY), V::splat(1.0 + 1e-5));
            let mut far = if self.whole > 0 { 0 } else { asked };
            for _ in 0..ROUGH_STEPS {
                if far == 0 {
                    break;
                }
                let level = V::load(rows.level.as_ptr());
                let (to, lack) = self.ahead(self.sums(lists, rows, far, Way::Rough, &mut across), level, mass);
                to.min(more).max(less).select(V::lanes_of(far), level).store(rows.level.as_mut_ptr());
                far &= V::bits(lack.max(zero.sub(lack)).gt(V::splat(roughly)));
            }
            let mut active = asked;
            for _ in 0..STEPS {
                let level = V::load(rows.level.as_ptr());
                let (to, lack) = self.ahead(self.sums(lists, rows, active, self.good(), &mut across), level, mass);
                let is_below = lack.gt(zero);
                less = level.select(is_below, less);
                more = more.select(is_below, level);
                let inside = V::and(to.ge(less), more.ge(to));
                let middle = less.sqrt().mul(more.sqrt());
                to.select(inside, middle).select(V::lanes_of(active), level).store(rows.level.as_mut_ptr());
                active &= !V::bits(V::and(inside, V::splat(close).gt(lack.max(zero.sub(lack)))));
                if active == 0 {
                    return;
                }
            }
        }
    }

    /// Moves the levels of rows that are too crowded to be listed, as [`settle`](Powers::settle) does: by a sample, which
    /// takes the place of their lists, and then by passes over all of a row.
    ///
    /// # Safety
    /// As [`settle`](Powers::settle), and the rows are readable for `d ≥ SAMPLE·LANES` floats each.
    #[inline(always)]
    pub(super) unsafe fn settle_crowd<V: Vector>(
        &self,
        (z, d): (*const f32, usize),
        lists: Lists,
        asked: u32,
        rows: &mut Weighed,
    ) {
        // SAFETY: as the caller vouches; the last vector of a sample ends within the row.
        unsafe {
            let stride = (d - V::LANES) / (SAMPLE - 1);
            for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
                for k in 0..SAMPLE {
                    V::load(z.add(r * d + k * stride)).store(lists.z.add(r * STRIDE + k * V::LANES));
                }
                rows.kept[r] = SAMPLE * V::LANES;
            }
            self.settle::<V>(lists, asked, d as f32 / (SAMPLE * V::LANES) as f32, rows);
            let (zero, mut active) = (V::splat(0.0), asked);
            let mut across: Across = [[0.0; MAX_LANES * MAX_LANES]; 3];
            for _ in 0..PASSES {
                for r in (0..V::LANES).filter(|r| active >> r & 1 == 1) {
                    let sums = self.row::<V>((z.add(r * d), d), (rows.from[r], rows.level[r]));
                    for (to, sum) in across.iter_mut().zip(sums) {
                        sum.store(to.as_mut_ptr().add(r * V::LANES));
                    }
                }
                let sums = across.each_ref().map(|sums| V::row_sums(sums.as_ptr()));
                let level = V::load(rows.level.as_ptr());
                let (to, lack) = self.ahead(sums, level, V::splat(1.0));
                to.max(V::splat(TINY)).select(V::lanes_of(active), level).store(rows.level.as_mut_ptr());
                active &= V::bits(lack.max(zero.sub(lack)).gt(V::splat(FINISHED)));
                if active == 0 {
                    return;
                }
            }
        }
    }

    /// The three sums of a whole row, by lanes. Entries that have no part in them cost more in powers than in being left
    /// out.
    ///
    /// # Safety
    /// The row is readable for `d` floats; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn row<V: Vector>(&self, (z, d): (*const f32, usize), (from, level): (f32, f32)) -> [V; 3] {
        let mut list = std::mem::MaybeUninit::<[f32; CHUNK + 3 * MAX_LANES]>::uninit();
        let list = list.as_mut_ptr().cast::<f32>();
        // SAFETY: every load stays within the row, and what is kept of a chunk within the list.
        unsafe {
            let (scale, lanes, zero) = (V::splat(self.prof.scale), Pair::<V>::LANES, V::splat(0.0));
            let (from, level) = (V::splat(from), V::splat(level));
            let mut sums = [Pair::<V>::splat(0.0); 3];
            for first in (0..d).step_by(CHUNK) {
                let (mut k, mut n, end) = (first, 0, d.min(first + CHUNK));
                while k < end {
                    let z = match end - k {
                        rest if rest >= V::LANES => V::load(z.add(k)),
                        rest => V::load_first(z.add(k), rest, f32::NEG_INFINITY),
                    };
                    let u = z.sub(from).fma(scale, level);
                    n += u.compress(u.gt(zero), list.add(n));
                    k += V::LANES;
                }
                zero.store(list.add(n));
                zero.store(list.add(n + V::LANES));
                for k in (0..n).step_by(lanes) {
                    let [p, slope, curve] = self.terms(Pair::<V>::load(list.add(k)), self.good());
                    sums = [sums[0].add(p), sums[1].add(slope), sums[2].add(curve)];
                }
            }
            let [(f, f2), (g, g2), (h, h2)] = [sums[0].halves(), sums[1].halves(), sums[2].halves()];
            [f.add(f2), g.add(g2), h.add(h2)]
        }
    }

    /// The three sums of the rows that are `asked` for; those of others are what they were.
    ///
    /// # Safety
    /// As [`settle`](Powers::settle).
    #[inline(always)]
    unsafe fn sums<V: Vector>(
        &self,
        lists: Lists,
        rows: &Weighed,
        asked: u32,
        way: Way,
        across: &mut Across,
    ) -> [V; 3] {
        // SAFETY: as the caller vouches.
        unsafe {
            let (scale, none) = (V::splat(self.prof.scale), V::splat(f32::NEG_INFINITY));
            for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
                let (z, n) = (lists.z.add(r * STRIDE), rows.kept[r]);
                let (from, level) = (V::splat(rows.from[r]), V::splat(rows.level[r]));
                // What lies behind the list in its last vectors must not count.
                none.store(z.add(n));
                none.store(z.add(n + V::LANES));
                let mut sums = [[V::splat(0.0); 3]; 2];
                for k in (0..n).step_by(2 * V::LANES) {
                    for half in 0..2 {
                        let u = V::load(z.add(k + half * V::LANES)).sub(from).fma(scale, level);
                        let [p, slope, curve] = self.terms(u, way);
                        let [f, g, h] = sums[half];
                        sums[half] = [f.add(p), g.add(slope), h.add(curve)];
                    }
                }
                for i in 0..3 {
                    sums[0][i].add(sums[1][i]).store(across[i].as_mut_ptr().add(r * V::LANES));
                }
            }
            [V::row_sums(across[0].as_ptr()), V::row_sums(across[1].as_ptr()), V::row_sums(across[2].as_ptr())]
        }
    }

    /// Probabilities of the rows that are `asked` for; what they were written with and their `Σ p·u` is noted. Returns a
    /// bit for each that sums to 1. A sum that is off by little is mended, as in `finish.rs`.
    ///
    /// # Safety
    /// As [`settle`](Powers::settle).
    #[inline(always)]
    pub(super) unsafe fn weigh<V: Vector>(&self, lists: Lists, asked: u32, rows: &mut Weighed) -> u32 {
        // SAFETY: as the caller vouches; the blocks hold a vector of every row.
        unsafe {
            let (one, prof) = (V::splat(1.0), &self.prof);
            let e = V::splat(prof.e);
            let mut across: Across = [[0.0; MAX_LANES * MAX_LANES]; 3];
            let (mut todo, mut good) = (asked, 0);
            for _ in 0..TIMES {
                for r in (0..V::LANES).filter(|r| todo >> r & 1 == 1) {
                    let sums = self.weigh_one::<V>(lists, rows, r);
                    for (to, sum) in across.iter_mut().zip(sums) {
                        sum.store(to.as_mut_ptr().add(r * V::LANES));
                    }
                }
                let (total, slope) = (V::row_sums(across[0].as_ptr()), V::row_sums(across[1].as_ptr()));
                let (step, near, exact) = shift(prof, V::LANES, total, slope);
                let (near, done) = (near & todo, (near | exact) & todo);
                let mut shifts = [0.0f32; MAX_LANES];
                let step = step.keep(V::lanes_of(near));
                step.store(shifts.as_mut_ptr());
                for r in (0..V::LANES).filter(|r| near >> r & 1 == 1) {
                    self.mend::<V>(lists, rows, r, shifts[r]);
                }
                let pu = step.fma(e.add(one), V::row_sums(across[2].as_ptr()));
                pu.select(V::lanes_of(done), V::load(rows.pu.as_ptr())).store(rows.pu.as_mut_ptr());
                // Newton on the norm, where more is lacking.
                let norm = one.div(prof.steepen(total).max(V::splat(TINY))).sub(one);
                let step = total.mul(norm).div(slope).select(V::lanes_of(todo & !done), step);
                let level = V::load(rows.level.as_ptr());
                level.add(step).select(V::lanes_of(todo), level).store(rows.level.as_mut_ptr());
                (good, todo) = (good | done, todo & !done);
                if todo == 0 || prof.delta >= 1.0 {
                    break;
                }
            }
            good
        }
    }

    /// The probabilities of row `r`; returns `Σp`, `Σ p/u` and `Σ p·u`, by lanes.
    ///
    /// # Safety
    /// As [`settle`](Powers::settle).
    #[inline(always)]
    unsafe fn weigh_one<V: Vector>(&self, lists: Lists, rows: &Weighed, r: usize) -> [V; 3] {
        // SAFETY: as the caller vouches.
        unsafe {
            let scale = V::splat(self.prof.scale);
            let (z, to, n) = (lists.z.add(r * STRIDE), lists.p.add(r * STRIDE), rows.kept[r]);
            let (from, level) = (V::splat(rows.from[r]), V::splat(rows.level[r]));
            // What lies behind the list in its last vector must not count.
            V::splat(f32::NEG_INFINITY).store(z.add(n));
            let mut sums = [V::splat(0.0); 3];
            for k in (0..n).step_by(V::LANES) {
                let u = V::load(z.add(k)).sub(from).fma(scale, level);
                let [p, slope, _] = self.terms(u, self.good());
                p.store(to.add(k));
                sums = [sums[0].add(p), sums[1].add(slope), p.fma(u.positive(), sums[2])];
            }
            sums
        }
    }

    /// Moves the probabilities of row `r` by their slopes times a step of the threshold.
    ///
    /// # Safety
    /// As [`settle`](Powers::settle).
    #[inline(always)]
    unsafe fn mend<V: Vector>(&self, lists: Lists, rows: &Weighed, r: usize, step: f32) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (scale, tiny, zero, one) = (V::splat(self.prof.scale), V::splat(TINY), V::splat(0.0), V::splat(1.0));
            let (z, p) = (lists.z.add(r * STRIDE), lists.p.add(r * STRIDE));
            let (from, level, by) = (V::splat(rows.from[r]), V::splat(rows.level[r]), V::splat(step * self.prof.e));
            for k in (0..rows.kept[r]).step_by(V::LANES) {
                let u = V::load(z.add(k)).sub(from).fma(scale, level).max(tiny);
                V::load(p.add(k)).mul(u.rough_inverse().fma(by, one).max(zero)).store(p.add(k));
            }
        }
    }
}
