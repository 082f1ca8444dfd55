//! The first look at wide rows of α-entmax: maxima of their parts, what of a row may be in the support, and crowded rows.

use super::anchored::{Anchored, Group, Lined, Place};
use super::direct::two_maxima;
use super::level;
use super::settle::{Columns, Goal};
use super::upright;
use super::vector::{MAX_LANES, Vector};

/// The mass that the maxima are to share: a little more than 1, so that no entry is missed.
const SHARED: f32 = 1.1;

/// The share of a row above a bound from which on no list is made of it: one in so many.
const CROWD: usize = 2;

/// The exponent from which on that is certain.
const MANY: f32 = 3.99;

/// Vectors of a row that tell.
const SAMPLE: usize = 4;

/// Of so many columns two are a sample of crowded rows, and steps on it.
const SPACING: usize = 8;
const SAMPLE_STEPS: usize = 2;

/// Steps on the maxima: for α < 2 to their root, at most, and for α > 2 to a bound.
const FIRST_STEPS: usize = 4;
const STEPS: usize = 16;
const BOUND_STEPS: usize = 3;

/// What the first look at a group of rows tells.
pub(super) struct Seen<V> {
    pub(super) max: V,
    /// Thresholds, or where to begin.
    pub(super) place: Place<V>,
    /// Scores above which all entries of the support are.
    pub(super) cut: V,
    /// One bit a row: not solved yet; the maxima of its parts are all equal.
    pub(super) open: u32,
    pub(super) tied: u32,
}

/// Looks at two vectors of maxima of every row, and solves equal rows and, for α < 2, crowded ones.
///
/// # Safety
/// As `solve_group`; `c` is writable for `d` vectors, rounded up to `LANES`.
#[inline(always)]
pub(super) unsafe fn survey<V: Vector>(
    prof: &Anchored,
    z: *const f32,
    (d, here): (usize, usize),
    (c, tops): (*mut f32, &mut Lined<{ 2 * MAX_LANES * MAX_LANES }>),
) -> (Group, Seen<V>) {
    // SAFETY: as the caller vouches; `tops` holds `2·LANES` vectors.
    unsafe {
        let (tops, count) = (tops.0.as_mut_ptr(), 2 * V::LANES);
        let (max, nan) = parts::<V>(z, (d, here), tops);
        let (mut group, max, mut open) = Group::of_maxima(max, nan, here);
        // Rows whose maxima are all equal may be so altogether, and then there is nothing to solve.
        let tied = V::bits(level::least::<V>((tops, count)).ge(max)) & open;
        group.find_equals::<V>((z, d), tied);
        open &= !group.equal;

        // What of a row may be in the support, and a first guess: from a bound on `u` of the largest entry, or from the
        // root for the maxima.
        let mut place = Place { from: max, level: V::splat(0.0) };
        let mut start = place;
        if prof.delta >= 1.0 {
            start.level = prof.bound(tops, max);
            // The root is the further below the bound, the further `e` is below 1.
            place.level = start.level.mul(V::splat(1.0 - 0.4 * (1.0 - prof.e)));
        } else if open != 0 {
            place.level = V::splat(0.35f64.powf(prof.delta) as f32);
            let (least, all) = (prof.least(count), V::lanes_of(open));
            let goal = Goal { mass: SHARED, steps: FIRST_STEPS, least, active: all, far: all };
            prof.settle_smooth(Columns::all(tops, count), max, &mut place, goal);
            start = place;
        }
        let cut = prof.cut(start);
        let crowd = match prof.e {
            ..1.0 => 0,
            // Lists of all that such powers leave would be long.
            MANY.. => open,
            _ => crowds::<V>((z, d), cut, open),
        };
        if crowd != 0 {
            upright::stand::<V>(z, (d, here), c);
            // What a sample tells, which has its share of the mass, is nearer than what maxima do.
            let (active, none) = (V::lanes_of(crowd), V::lanes_of(0));
            let sample = Columns { c, slots: d, apart: SPACING };
            let mass = (2 * d.div_ceil(SPACING)) as f32 / d as f32;
            let goal = Goal { mass, steps: SAMPLE_STEPS, least: prof.least(d), active, far: none };
            prof.settle_smooth(sample, max, &mut place, goal);
            prof.whole((c, d), max, &mut place, crowd);
        }
        let place = prof.share(&group, max).select(V::lanes_of(group.equal), place);
        let open = open & !crowd;
        (group, Seen { max, place, cut, open, tied })
    }
}

/// Two vectors of maxima of every row, into lanes of rows at `tops`; the maxima of the rows, and a bit for every row with a
/// NaN.
///
/// # Safety
/// As `solve_group`; `tops` is writable for `2·LANES` vectors.
#[inline(always)]
unsafe fn parts<V: Vector>(z: *const f32, (d, here): (usize, usize), tops: *mut f32) -> (V, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut parts = Lined([f32::NEG_INFINITY; 2 * MAX_LANES * MAX_LANES]);
        let parts = parts.0.as_mut_ptr();
        let mut bad = 0u32;
        for r in 0..here {
            let (maxima, nan) = two_maxima::<V>(z.add(r * d), d);
            bad |= u32::from(nan) << r;
            maxima[0].store(parts.add(2 * r * V::LANES));
            maxima[1].store(parts.add((2 * r + 1) * V::LANES));
        }
        V::transpose(parts, 2 * V::LANES, tops);
        V::transpose(parts.add(V::LANES), 2 * V::LANES, tops.add(V::LANES * V::LANES));
        let mut max = none;
        for j in 0..2 * V::LANES {
            max = V::load(tops.add(j * V::LANES)).max(max);
        }
        (max, bad)
    }
}

/// Which of the rows whose bits are set have so many entries above their cuts that a list of them saves nothing, as some
/// vectors of each tell.
///
/// # Safety
/// As `solve_group`.
#[inline(always)]
unsafe fn crowds<V: Vector>((z, d): (*const f32, usize), cut: V, rows: u32) -> u32 {
    let (mut cuts, mut crowds) = ([0.0f32; MAX_LANES], 0);
    if d < SAMPLE * V::LANES {
        return rows;
    }
    // SAFETY: as the caller vouches; the last vector ends within the row.
    unsafe {
        cut.store(cuts.as_mut_ptr());
        let apart = (d - V::LANES) / (SAMPLE - 1);
        for r in (0..V::LANES).filter(|r| rows >> r & 1 == 1) {
            let (mut above, cut) = (0, V::splat(cuts[r]));
            for k in 0..SAMPLE {
                above += V::bits(V::load(z.add(r * d + k * apart)).gt(cut)).count_ones() as usize;
            }
            crowds |= u32::from(CROWD * above > SAMPLE * V::LANES) << r;
        }
    }
    crowds
}

impl Anchored {
    /// Thresholds of the rows that are `asked` for, for α < 2, from where they are: `n` entries a lane, rounded up to an even
    /// number; what is behind the last is −∞.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    pub(super) unsafe fn whole<V: Vector>(
        &self,
        (c, n): (*const f32, usize),
        max: V,
        place: &mut Place<V>,
        asked: u32,
    ) {
        // SAFETY: as the caller vouches.
        unsafe {
            let goal =
                Goal { mass: 1.0, steps: STEPS, least: self.least(n), active: V::lanes_of(asked), far: V::lanes_of(0) };
            self.settle_smooth(Columns::all(c, n), max, place, goal);
        }
    }

    /// The scores above which all entries of the support are, if the thresholds are lower bounds.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn cut<V: Vector>(&self, start: Place<V>) -> V {
        // SAFETY: the caller vouches for the instruction set.
        let (zero, scale, grain) = unsafe { (V::splat(0.0), V::splat(self.scale), V::splat(2.4e-7)) };
        let depth = start.level.div(scale);
        let slack = start.from.max(zero.sub(start.from)).add(depth.max(zero.sub(depth))).mul(grain);
        start.from.sub(depth).sub(slack)
    }

    /// At least `u` of the largest entry, for α > 2: `u ≤ u^e` for `u ≤ 1`, so the root of `Σu = 1` for some of the entries is
    /// not below it; and Newton, from 1 down, does not pass that root.
    ///
    /// # Safety
    /// `tops` is readable for two blocks of `LANES` vectors; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn bound<V: Vector>(&self, tops: *const f32, max: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, scale) = (V::splat(0.0), V::splat(1.0), V::splat(self.scale));
            let mut most = one;
            for _ in 0..BOUND_STEPS {
                let [mut f, mut g] = [[zero; 2]; 2];
                for j in (0..2 * V::LANES).step_by(2) {
                    for half in 0..2 {
                        let gap = V::load(tops.add((j + half) * V::LANES)).sub(max);
                        let u = gap.fma(scale, most).max(zero);
                        (f[half], g[half]) = (f[half].add(u), g[half].add(one.keep(u.gt(zero))));
                    }
                }
                let (f, g) = (f[0].add(f[1]), g[0].add(g[1]));
                most = most.sub(f.sub(one).div(g));
            }
            // Rounding must not make it too small.
            most.mul(V::splat(1.0 + 1e-6))
        }
    }
}
