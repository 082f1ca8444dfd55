//! Steps towards the thresholds of α-entmax, one row per lane.
//!
//! With `f = Σp`, `g = Σ p/u` and `h = Σ p/u²` the curve `A + B·(y + τ₀ − τ)^e`, `y = g/h`, shares value, slope and
//! curvature with the sum at τ₀: entries in one place (`y` is their `u`) and a single entry on the threshold (`y` is its
//! `u`) both solve it at once, and in between it converges with the third power of the residual, which powers as dear
//! as these are worth. Far from the root it is led astray by entries that happen to be on the threshold, and `y = f/g`,
//! which makes it Newton's step on the norm, does better.

use super::anchored::{Anchored, Place, TINY};
use super::pair::Pair;
use super::vector::Vector;

/// Steps for α > 2 by powers that are no more than a guess, which cost less: until the residual is of their size, better ones
/// tell no more.
const ROUGH_STEPS: usize = 3;

/// A residual from which on, for α > 2, `f/g`, the mean of `u` by its slopes, is the better `y`.
const FAR: f32 = 0.05;

/// The same for α < 2.
const FAR_SMOOTH: f32 = 0.3;

/// Slots whose terms are added before they join the others.
const BLOCK: usize = 16;

/// A residual that the step after it reduces to rounding noise.
const CLOSE: f32 = 2e-3;

/// The same for α > 2, where an entry next to the threshold spoils the order of the steps.
const CLOSE_STEEP: f32 = 2e-4;

/// A residual that is rounding noise.
const NOISE: f32 = 1.5e-7;

/// How closely `q` is known, relative to itself, before its middle is no longer of use.
const NARROW: f32 = 1e-3;

/// The largest `|x|` for which `(1 + x)^δ − 1` is summed as a series, and its coefficients.
const SMALL: f32 = 0.08;
const TERMS: usize = 6;

/// A step `x` times the width of a row, relative to its largest `u`, that leaves nothing but noise: the narrower the
/// row, the nearer the curve is to the sum.
const ALIKE: f32 = 0.015;

/// The share of the largest `u` that the smallest has in such a row, at least.
const LEVEL: f32 = 0.3;

/// What a step needs: `Σp`, `Σ p/u`, `Σ p/u²`, and the smallest entry of the support.
struct Sums<V> {
    f: V,
    g: V,
    h: V,
    least: V,
}

/// A residual that the step after it reduces to what the pass that writes the row can mend.
const MENDED: f32 = 0.05;

/// Adds to a sum; what it loses goes into the next term. A lane that has no term is left as it is: how many slots
/// there are behind the last candidate of a row depends on its neighbours.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn carry<V: Vector>(sum: V, lost: V, term: V) -> (V, V) {
    // SAFETY: as the caller vouches.
    let is_term = term.gt(unsafe { V::splat(0.0) });
    let next = term.add(lost);
    let total = sum.add(next);
    (total.select(is_term, sum), next.sub(total.sub(sum)).select(is_term, lost))
}

/// What steps go by.
#[derive(Clone, Copy)]
pub(super) struct Goal<V: Vector> {
    pub(super) mass: f32,
    /// Steps at most.
    pub(super) steps: usize,
    /// At least `u` of the largest entry.
    pub(super) least: f32,
    /// Lanes that step at all, and those of them that start far from the root.
    pub(super) active: V::Mask,
    pub(super) far: V::Mask,
}

/// Vectors of entries: an even number `slots` of them, of which two are looked at, and then two so many further on.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) c: *const f32,
    pub(super) slots: usize,
    pub(super) apart: usize,
}

impl Columns {
    /// All of them.
    pub(super) fn all(c: *const f32, slots: usize) -> Columns {
        Columns { c, slots: slots.next_multiple_of(2), apart: 2 }
    }
}

/// Steps on the way, for α < 2: `u` of the largest entries, what it is at least and at most, and the mass that is sought.
#[derive(Clone, Copy)]
pub(super) struct Search<V: Vector> {
    pub(super) level: V,
    pub(super) less: V,
    pub(super) more: V,
    pub(super) active: V::Mask,
    pub(super) mass: V,
}

impl<V: Vector> Search<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn new(prof: &Anchored, level: V, goal: Goal<V>) -> Search<V> {
        // Of a sample the maximum may not be part.
        let more = if goal.mass > 1.0 { f64::from(goal.mass).powf(prof.delta) } else { 1.0 } * (1.0 + 1e-5);
        // SAFETY: as the caller vouches.
        let (less, more, mass) = unsafe { (V::splat(goal.least), V::splat(more as f32), V::splat(goal.mass)) };
        Search { level, less, more, active: goal.active, mass }
    }
}

impl Anchored {
    /// As [`settle`](Anchored::settle), for α < 2, measured from the maximum: the sum is convex there, and an entry next
    /// to the threshold has nothing to say.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    pub(super) unsafe fn settle_smooth<V: Vector>(
        &self,
        columns: Columns,
        max: V,
        place: &mut Place<V>,
        goal: Goal<V>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            let mut search = Search::new(self, place.level, goal);
            for _ in 0..goal.steps {
                self.advance(columns, max, &mut search);
                if V::bits(search.active) == 0 {
                    break;
                }
            }
            place.level = search.level;
        }
    }

    /// One step of a search, in its active lanes.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    pub(super) unsafe fn advance<V: Vector>(&self, columns: Columns, max: V, search: &mut Search<V>) {
        // SAFETY: as the caller vouches.
        unsafe {
            let Search { level, mut less, mut more, active, mass } = *search;
            let (to, lack) = self.ahead(columns, max, level, mass);
            let (zero, size) = (V::splat(0.0), lack.max(V::splat(0.0).sub(lack)));
            let is_below = lack.gt(zero);
            (less, more) = (level.select(is_below, less), more.select(is_below, level));
            let inside = V::and(to.ge(less), more.ge(to));
            let level = to.select(inside, less.sqrt().mul(more.sqrt())).select(active, level);
            let done = V::and(inside, V::splat(MENDED).gt(size));
            let active = V::lanes_of(V::bits(active) & !V::bits(done));
            *search = Search { level, less, more, active, mass };
        }
    }

    /// Where the curve leads from a level of the maximum, for α < 2: there, and what the mass lacks here.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    pub(super) unsafe fn ahead<V: Vector>(
        &self,
        Columns { c, slots, apart }: Columns,
        max: V,
        here: V,
        mass: V,
    ) -> (V, V) {
        // SAFETY: every load stays within `slots` vectors.
        unsafe {
            let (top, level) = (Pair::twice(max), Pair::twice(here));
            // The least number that has a power; its own is 0, and so are its slopes.
            let (scale, least) = (Pair::<V>::splat(self.scale), Pair::<V>::splat(self.nothing()));
            let [mut f, mut g, mut h] = [Pair::<V>::splat(0.0); 3];
            for k in (0..slots).step_by(apart) {
                let u = Pair::<V>::load(c.add(k * V::LANES)).sub(top).fma(scale, level).max(least);
                let bend = self.bend(u);
                let slope = bend.mul(u);
                (f, g, h) = (slope.fma(u, f), g.add(slope), h.add(bend));
            }
            let ((f, f2), (g, g2), (h, h2)) = (f.halves(), g.halves(), h.halves());
            let (f, g, h) = (f.add(f2), g.add(g2), h.add(h2));
            let (lack, one) = (mass.sub(f), V::splat(1.0));
            // Far away the curvature is that of the few entries that happen to be on the threshold.
            let is_far = lack.max(V::splat(0.0).sub(lack)).gt(mass.mul(V::splat(FAR_SMOOTH)));
            let (over, under) = (f.select(is_far, g), g.select(is_far, h));
            let (y, x) = (over.div(under), lack.mul(under).div(over.mul(g)));
            (y.fma(self.steepen(one.add(x)).sub(one), here), lack)
        }
    }

    /// Steps towards the threshold at which the entries have that mass, in the lanes that are active; of these some
    /// start `far` from it.
    ///
    /// Steps are watched in `u` of the largest entry, in which the sum grows: one that leaves what is known of
    /// it (`least` to begin with), or follows one that did not lessen the residual, goes between the ends instead.
    /// A lane that is not settled in the end is left where the mass is too large for certain.
    ///
    /// # Safety
    /// `c` is readable for `slots` vectors, an even number; the CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn settle<V: Vector>(
        &self,
        (c, slots): (*const f32, usize),
        max: V,
        place: &mut Place<V>,
        Goal { mass, steps, least, mut active, far, .. }: Goal<V>,
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, scale, tiny) = (V::splat(0.0), V::splat(1.0), V::splat(self.scale), V::splat(TINY));
            let close = V::splat(if self.delta > 1.0 { CLOSE_STEEP } else { CLOSE });
            let noise = V::splat(NOISE);
            let more = f64::from(mass).powf(self.delta) * (1.0 + 1e-5);
            let (mut less, mut more, mut before) = (V::splat(least), V::splat(more as f32), V::splat(f32::INFINITY));
            let (mut lacking, mut excess) = (one, one);
            // δ over 1, 2 and so on: the binomial series without its 1.
            let mut series = [self.steep; TERMS];
            for k in 1..TERMS {
                series[k] = series[k - 1] * (self.steep - k as f32) / (k + 1) as f32;
            }
            for _ in 0..if V::bits(far) == 0 { 0 } else { ROUGH_STEPS } {
                let sums = self.sums::<V, true>(c, slots, *place);
                let (low, y) = self.curve(&sums, *place, V::splat(1.0));
                let rise = self.steepen(V::splat(mass).sub(sums.f).div(y.mul(sums.g)).add(one)).sub(one);
                let top = max.sub(sums.least).fma(scale, y.fma(rise, low));
                let top = top.select(more.gt(top), more);
                place.from = max.select(far, place.from);
                place.level = top.select(top.gt(less), less).select(far, place.level);
            }
            for _ in 0..steps {
                let sums = self.sums::<V, false>(c, slots, *place);
                let lack = V::splat(mass).sub(sums.f);
                let size = lack.max(zero.sub(lack));
                let top = max.sub(place.from).fma(scale, place.level).max(tiny);
                let below = lack.gt(zero);
                (less, lacking) = (top.select(below, less), size.select(below, lacking));
                (more, excess) = (more.select(below, top), excess.select(below, size));
                // Where the curve leads.
                let (low, y) = self.curve(&sums, *place, size);
                let x = lack.div(y.mul(sums.g));
                // (1 + x)^δ − 1, by its series where a difference of powers would lose it.
                let near = series.iter().rev().fold(zero, |sum, c| sum.fma(x, V::splat(*c))).mul(x);
                let small = V::splat(SMALL).gt(x.max(zero.sub(x)));
                let rise = near.select(small, self.steepen(one.add(x)).sub(one));
                let level = y.fma(rise, low);
                let alike = top.mul(V::splat(ALIKE)).gt(top.sub(low).mul(x.max(zero.sub(x))));
                let alike = V::and(alike, low.gt(top.mul(V::splat(LEVEL))));
                let enough = V::or(V::and(V::or(close.gt(size), alike), small), noise.gt(size));
                let near = V::and(enough, level.gt(zero));
                if V::bits(active) & !V::bits(near) == 0 {
                    place.from = sums.least.select(active, place.from);
                    place.level = level.select(active, place.level);
                    return;
                }
                // If the entries above the smallest one have less than all, it is in the support, and Newton
                // in its probability, in which the sum is convex, does not pass the root.
                let w = self.power(low.max(tiny));
                let found = V::and(zero.gt(lack), V::splat(mass).gt(sums.f.sub(w)));
                let newton = low.mul(self.steepen(lack.div(low.mul(sums.g)).add(one)));
                let level = newton.select(V::and(found, zero.ge(level)), level);
                // Between neighbours that are hardly told apart the curve alone knows the way.
                let there = max.sub(sums.least).fma(scale, level);
                let narrow = V::or(more.mul(V::splat(NARROW)).gt(more.sub(less)), found);
                let inside = V::and(there.add(tiny).ge(less), V::or(narrow, more.gt(there)));
                let near = V::and(enough, level.gt(zero));
                let good = V::or(near, V::and(inside, V::or(narrow, before.gt(size))));
                // Far apart the ends tell nothing of the way between them but its length.
                let share = lacking.div(lacking.add(excess)).max(V::splat(0.25));
                let share = one.sub(one.sub(share).max(V::splat(0.25)));
                let apart = more.gt(less.mul(V::splat(4.0)));
                let middle = less.sqrt().mul(more.sqrt()).select(apart, more.sub(less).fma(share, less));
                place.from = sums.least.select(good, max).select(active, place.from);
                place.level = level.select(good, middle).select(active, place.level);
                before = size;
                active = V::lanes_of(V::bits(active) & !V::bits(near));
            }
            place.from = max.select(active, place.from);
            place.level = more.mul(V::splat(1.0 + 1e-6)).select(active, place.level);
        }
    }

    /// `p^δ`, and 0 if `p` is not positive; at most 2⁶⁰.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn steepen<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let tiny = V::splat(TINY);
            // A factor of 2⁶⁰ is more than anybody needs.
            let most = V::splat(self.most);
            let base = most.select(p.gt(most), p).max(tiny);
            let power = match self.steep {
                2.0 => base.mul(base),
                3.0 => base.mul(base).mul(base),
                _ => base.raised(&self.root),
            };
            power.keep(p.gt(tiny))
        }
    }

    /// `u` of the smallest entry, and `y`, given the size of the residual.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn curve<V: Vector>(&self, sums: &Sums<V>, place: Place<V>, size: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        let (scale, tiny, far) = unsafe { (V::splat(self.scale), V::splat(TINY), V::splat(FAR)) };
        let low = sums.least.sub(place.from).fma(scale, place.level);
        let mut y = sums.g.div(sums.h);
        if self.delta > 1.0 {
            // Far away the curvature is that of the one entry that happens to be on the threshold.
            y = sums.f.div(sums.g).select(size.gt(far), y);
        }
        (low, y.max(low).max(tiny))
    }

    /// The sums of every lane, by rough powers or by good ones.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    unsafe fn sums<V: Vector, const ROUGH: bool>(&self, c: *const f32, slots: usize, place: Place<V>) -> Sums<V> {
        // SAFETY: every load stays within `slots` vectors.
        unsafe {
            let (from, level) = (Pair::twice(place.from), Pair::twice(place.level));
            let (scale, zero) = (Pair::<V>::splat(self.scale), Pair::<V>::splat(0.0));
            let (tiny, beyond) = (Pair::<V>::splat(TINY), Pair::<V>::splat(f32::NEG_INFINITY));
            let e = Pair::<V>::splat(self.e);
            let (mut f, mut g, mut h, mut least) = (zero, zero, zero, beyond);
            let mut lost = zero;
            let mut k = 0;
            while k < slots {
                // A few terms at a time, so that a long sum does not lose them.
                let mut part = zero;
                let end = slots.min(k + BLOCK);
                while k < end {
                    let z = Pair::<V>::load(c.add(k * V::LANES));
                    let u = z.sub(from).fma(scale, level);
                    let on = u.gt(zero);
                    let u = u.max(tiny);
                    let p = if ROUGH { u.rough_power(e) } else { self.power(u) }.keep(on);
                    let inverse = u.rough_inverse();
                    let slope = p.mul(inverse);
                    part = part.add(p);
                    g = g.add(slope);
                    h = slope.fma(inverse, h);
                    least = zero.sub(z).select(on, beyond).max(least);
                    k += 2;
                }
                (f, lost) = carry(f, lost, part);
            }
            let ((fa, fb), (ga, gb), (ha, hb)) = (f.halves(), g.halves(), h.halves());
            let (a, b) = least.halves();
            Sums { f: fa.add(fb), g: ga.add(gb), h: ha.add(hb), least: V::splat(0.0).sub(a.max(b)) }
        }
    }
}
