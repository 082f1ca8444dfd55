//! α-entmax of narrow rows for α > 2, one row per lane: the largest entries in order.
//!
//! The [`RANKS`] largest entries of every row are put in order by a network, and halving tells which of them is the smallest
//! in the support: the `k`-th is, if those above it, measured from it, have less than all the mass. Then steps along the curve
//! of `settle.rs` lead to its probability, with no entry that comes or goes on the way. Rows with more entries in the support
//! take steps over all of them.

use super::anchored::{Anchored, Place, TINY};
use super::network::sort_sixteen;
use super::settle::Goal;
use super::vector::Vector;

/// Entries that are put in order, for α > 2.
const RANKS: usize = 16;

/// Steps on these at most; the pass that writes the row tells if they were not enough.
const RANKED_STEPS: usize = 12;

/// The same where they are no more than a guess at what all entries have.
const GUESS_STEPS: usize = 2;

/// The same on all entries.
const STEPS: usize = 16;

/// A residual that the step after it reduces to rounding noise: the support is known, and no entry of it is a surprise.
const CLOSE: f32 = 2e-4;

/// Thresholds of the rows that are `asked` for, for α > 2.
///
/// # Safety
/// As [`ranks`], for `d` entries.
#[inline(always)]
pub(super) unsafe fn steep<V: Vector>(
    prof: &Anchored,
    (c, slots): (*const f32, usize),
    max: V,
    (d, asked): (usize, u32),
) -> Place<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let top = ranks::<V>(c, slots);
        let found = find(prof, &top, asked);
        let open = if d > RANKS { found.all & asked } else { 0 };
        let mut place = Place { from: max, level: V::splat(1.0) };
        if asked & !open != 0 {
            place = probable(prof, &top, &found, asked & !open, RANKED_STEPS);
        }
        if open != 0 {
            // Fewer entries leave more to the largest.
            let some = probable(prof, &top, &found, open, GUESS_STEPS);
            let level = max.sub(some.from).fma(V::splat(prof.scale), some.level);
            let mut crowd = Place { from: max, level };
            let counts = count::<V>(c, slots);
            let tell = prof.level((c, slots), max, counts, open);
            crowd = tell.place.select(V::lanes_of(tell.rows), crowd);
            let (active, far) = (V::lanes_of(open & !tell.near), V::lanes_of(open & !tell.rows));
            let goal = Goal { mass: 1.0, steps: STEPS, least: prof.least(d), active, far };
            prof.settle((c, slots), max, &mut crowd, goal);
            place = crowd.select(V::lanes_of(open), place);
        }
        place
    }
}

/// How many entries of every lane are not masked.
///
/// # Safety
/// As [`ranks`].
#[inline(always)]
unsafe fn count<V: Vector>(c: *const f32, slots: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut counts = V::splat(0.0);
        for k in 0..slots {
            counts = counts.tally(V::load(c.add(k * V::LANES)).gt(none));
        }
        counts.tallied()
    }
}

/// Exchanges what is in the wrong order.
macro_rules! exchange {
    ($y:ident: $($i:literal $j:literal),* $(,)?) => {$(
        ($y[$i], $y[$j]) = ($y[$i].max($y[$j]), $y[$j].min($y[$i]));
    )*};
}

/// The largest entries of every lane, in descending order.
///
/// # Safety
/// `c` is readable for `slots` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn ranks<V: Vector>(c: *const f32, slots: usize) -> [V; RANKS] {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut top = sorted::<V>(c, slots, 0);
        for first in (RANKS..slots).step_by(RANKS) {
            let next = sorted::<V>(c, slots, first);
            // The larger ones of two descending sequences, one of them backwards, fall and then rise.
            for j in 0..RANKS {
                top[j] = top[j].max(next[RANKS - 1 - j]);
            }
            exchange!(top: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15);
            exchange!(top: 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15);
            exchange!(top: 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15);
            exchange!(top: 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
        }
        top
    }
}

/// [`RANKS`] vectors from `first` on, every lane in descending order; −∞ behind the last.
///
/// # Safety
/// As [`ranks`].
#[inline(always)]
unsafe fn sorted<V: Vector>(c: *const f32, slots: usize, first: usize) -> [V; RANKS] {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut y = [V::splat(f32::NEG_INFINITY); RANKS];
        if first + RANKS <= slots {
            for k in 0..RANKS {
                y[k] = V::load(c.add((first + k) * V::LANES));
            }
        } else {
            for k in 0..slots - first {
                y[k] = V::load(c.add((first + k) * V::LANES));
            }
        }
        sort_sixteen!(exchange, y);
        y
    }
}

/// The smallest entries of the support among some in order.
struct Found<V> {
    from: V,
    /// What those above have, measured from it.
    above: V,
    /// A bit for every row with all of them in the support.
    all: u32,
}

/// Halves the ranks until one is left.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn find<V: Vector>(prof: &Anchored, y: &[V; RANKS], asked: u32) -> Found<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let one = V::splat(1.0);
        let (mut from, mut above) = (y[0], V::splat(0.0));
        // Whether the entry in the middle of what is left is in the support, which so many may be above.
        macro_rules! look {
            ($middle:expr, $most:expr) => {{
                let middle = $middle;
                let sum = prof.above(&y[..$most], middle);
                let is_in = V::and(one.gt(sum), middle.gt(V::splat(f32::NEG_INFINITY)));
                (from, above) = (middle.select(is_in, from), sum.select(is_in, above));
                is_in
            }};
        }
        // The last rank that any of the rows may have.
        let mut most = RANKS;
        let a = look!(y[8], 8);
        most -= if V::bits(a) & asked == 0 { 8 } else { 0 };
        let b = look!(y[12].select(a, y[4]), most - 4);
        most -= if V::bits(b) & asked == 0 { 4 } else { 0 };
        let c = look!(y[14].select(b, y[10]).select(a, y[6].select(b, y[2])), most - 2);
        most -= if V::bits(c) & asked == 0 { 2 } else { 0 };
        let high = y[15].select(c, y[13]).select(b, y[11].select(c, y[9]));
        let low = y[7].select(c, y[5]).select(b, y[3].select(c, y[1]));
        let d = look!(high.select(a, low), most - 1);
        Found { from, above, all: V::bits(V::and(V::and(a, b), V::and(c, d))) }
    }
}

impl Anchored {
    /// What entries have above `from`, measured from it; more than all is as good as all.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn above<V: Vector>(&self, y: &[V], from: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, scale, tiny) = (V::splat(0.0), V::splat(1.0), V::splat(self.scale), V::splat(TINY));
            let mut sum = zero;
            for y in y {
                let u = y.sub(from).mul(scale);
                // One entry that has more than all is enough.
                sum = sum.add(self.power(u.min(one).max(tiny)).keep(u.gt(zero)));
            }
            sum
        }
    }
}

/// Thresholds of the rows that are `asked` for, given the smallest entries of their supports.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn probable<V: Vector>(prof: &Anchored, y: &[V; RANKS], found: &Found<V>, asked: u32, steps: usize) -> Place<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one, tiny, scale) = (V::splat(0.0), V::splat(1.0), V::splat(TINY), V::splat(prof.scale));
        let (from, mut active) = (found.from, V::lanes_of(asked));
        let (mut ties, mut n) = (zero, 0);
        for k in 0..RANKS {
            let is_in = y[k].ge(from);
            n += usize::from(V::bits(is_in) & asked != 0);
            ties = ties.add(one.keep(V::and(is_in, from.ge(y[k]))));
        }
        // At most what is left, shared by those that are equal.
        let mut level = prof.steepen(one.sub(found.above).div(ties.max(one)).max(tiny)).max(tiny);
        for _ in 0..steps {
            let (mut f, mut g, mut h) = (zero, zero, zero);
            for y in &y[..n] {
                let u = y.sub(from).fma(scale, level).max(tiny);
                let p = prof.power(u).keep(y.ge(from));
                let inverse = u.rough_inverse();
                let slope = p.mul(inverse);
                (f, g, h) = (f.add(p), g.add(slope), slope.fma(inverse, h));
            }
            let lack = one.sub(f);
            let size = lack.max(zero.sub(lack));
            let y = g.div(h).max(level);
            let x = lack.div(y.mul(g));
            let mut to = y.fma(prof.steepen(one.add(x)).sub(one), level);
            if V::bits(zero.ge(to)) & V::bits(active) != 0 {
                // Newton in the probability of the smallest entry, in which the sum is convex, does not pass the root.
                let newton = level.mul(prof.steepen(lack.div(level.mul(g)).add(one)));
                to = to.select(to.gt(zero), newton);
            }
            level = to.max(tiny).select(active, level);
            active = V::and(active, size.gt(V::splat(CLOSE)));
            if V::bits(active) == 0 {
                break;
            }
        }
        Place { from, level }
    }
}

#[cfg(test)]
mod tests {
    use super::super::portable::Portable;
    use super::*;

    const LANES: usize = Portable::LANES;

    #[test]
    fn the_largest_are_in_order() {
        let mut rng = fastrand::Rng::with_seed(77);
        for n in [4, 12, 16, 20, 64, 100] {
            let z: Vec<f32> = (0..n * LANES).map(|_| f32::from(rng.u8(0..40))).collect();
            // SAFETY: the portable path asks for no instruction set, and there are `n` vectors.
            let top = unsafe { ranks::<Portable>(z.as_ptr(), n) };
            for r in 0..LANES {
                let mut want: Vec<f32> = z.iter().copied().skip(r).step_by(LANES).collect();
                want.sort_by(|a, b| b.total_cmp(a));
                want.resize(RANKS.max(n), f32::NEG_INFINITY);
                for k in 0..RANKS {
                    let mut lanes = [0.0f32; LANES];
                    // SAFETY: the array holds a vector.
                    unsafe { top[k].store(lanes.as_mut_ptr()) };
                    assert_eq!(lanes[r], want[k], "n = {n}, rank {k}");
                }
            }
        }
    }

    /// A row that misses its threshold is solved again elsewhere, so that only this shows it.
    #[test]
    fn thresholds_need_no_second_look() {
        let mut rng = fastrand::Rng::with_seed(78);
        for alpha in [2.2, 3.0, 4.0, 8.0] {
            let (prof, scale) = (Anchored::new(alpha, 1.0), f64::from(Anchored::new(alpha, 1.0).scale));
            for (n, width) in [4, 16, 64, 100].into_iter().flat_map(|n| [1e-3, 0.03, 0.3, 3.0].map(|w| (n, w))) {
                let z: Vec<f32> = (0..n * LANES).map(|_| width * rng.f32()).collect();
                let lane = |r: usize| z.iter().copied().skip(r).step_by(LANES);
                let max: [f32; LANES] = std::array::from_fn(|r| lane(r).fold(0.0, f32::max));
                let (mut from, mut level) = ([0.0f32; LANES], [0.0f32; LANES]);
                // SAFETY: the portable path asks for no instruction set, and there are `n` vectors.
                unsafe {
                    let place = steep(&prof, (z.as_ptr(), n), Portable::load(max.as_ptr()), (n, (1 << LANES) - 1));
                    place.from.store(from.as_mut_ptr());
                    place.level.store(level.as_mut_ptr());
                }
                for r in 0..LANES {
                    let u = |z: f32| (f64::from(z) - f64::from(from[r])) * scale + f64::from(level[r]);
                    let sum: f64 = lane(r).map(|z| u(z).max(0.0).powf(1.0 / (alpha - 1.0))).sum();
                    assert!((sum - 1.0).abs() < 6e-7, "α = {alpha}, n = {n}, width = {width}: {sum}");
                }
            }
        }
    }
}
