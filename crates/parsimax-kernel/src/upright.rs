//! α-entmax of whole rows upright: one row per lane, all its entries.
//!
//! Picking the candidates of a row of 64 costs more than two passes of powers over the whole of it. So the rows of a narrow
//! group are transposed as they are, and so are crowded rows of any width; what is wanted of a row is one number a lane from
//! the first pass on. Two groups take turns: what one waits for, the other fills with work.
//!
//! **α < 2.** `f = Σu^e` as a norm, `f^δ`, is convex and close to a straight line: Newton's steps on it, from 1 down, by
//! powers that are no more than a guess, come near to the root for the largest of every four entries and then of every two.
//! Steps of third order on all of them do the rest (`settle.rs`), of which two are enough as a rule, and the pass that writes
//! the row mends what they leave.
//!
//! **α > 2.** The largest entries of every row are put in order (`topmost.rs`).

use super::anchored::{Anchored, Group, Place};
use super::finish::Rows;
use super::settle::{Columns, Goal, Search};
use super::topmost::steep;
use super::vector::{MAX_LANES, Vector, outlined};

/// Widest row that is stood upright.
pub(super) const WIDEST: usize = 128;

/// Groups that take turns.
pub(super) const TWO: usize = 2;

/// Columns of a group are a multiple of this.
const STEP: usize = 8;

/// Steps at most on all entries, for α < 2.
const STEPS: usize = 16;

/// Steps on the largest of every four entries: the nearer to a straight line, the more.
fn first_steps(delta: f64) -> usize {
    if delta < 0.55 { 1 } else { 2 }
}

/// The largest exponent for powers that are no more than a guess.
const MOST_ROUGH: f32 = 4.0;

/// Floats that the columns of a group take.
fn size<V: Vector>(d: usize) -> usize {
    d.next_multiple_of(STEP.max(V::LANES)) * V::LANES
}

/// Floats that two groups of rows take: all columns, the largest of every two and of every four.
pub(super) fn room<V: Vector>(d: usize) -> usize {
    TWO * 2 * size::<V>(d)
}

/// What is known of a group: its columns, the largest of every two and of every four; maxima; what is open; thresholds, and
/// for α < 2 the way there.
#[derive(Clone, Copy)]
struct Upright<V: Vector> {
    all: *mut f32,
    pairs: *mut f32,
    fours: *mut f32,
    max: V,
    open: u32,
    place: Place<V>,
    search: Search<V>,
}

outlined! {
    /// Maxima and thresholds of `here ≤ TWO · LANES` rows, by groups.
    ///
    /// # Safety
    /// `prof` is readable, `groups` is writable; there are `here` rows of `d ≤ WIDEST` floats; `c` is writable for as many
    /// floats as [`room`] says; the CPU has the instruction set of `V`.
    pub(super) unsafe fn solve<V>(
        prof: *const Anchored,
        rows: Rows,
        here: usize,
        c: *mut f32,
        groups: *mut [Group; TWO],
    ) -> () => solve_any
}

/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn solve_any<V: Vector>(prof: *const Anchored, rows: Rows, here: usize, c: *mut f32, groups: *mut [Group; TWO]) {
    // SAFETY: as the caller vouches; the arrays of a group hold a vector.
    unsafe {
        let (prof, d, many) = (&*prof, rows.d, here.div_ceil(V::LANES));
        let groups = &mut (&mut *groups)[..many];
        let slots = d.next_multiple_of(STEP);
        let (none, one) = (V::splat(f32::NEG_INFINITY), V::splat(1.0));
        let idle =
            Goal { mass: 1.0, steps: STEPS, least: prof.least(slots), active: V::lanes_of(0), far: V::lanes_of(0) };
        let (place, search) = (Place { from: none, level: one }, Search::new(prof, one, idle));
        let mut two = [Upright { all: c, pairs: c, fours: c, max: none, open: 0, place, search }; TWO];
        for (g, group) in groups.iter_mut().enumerate() {
            let (z, size) = (rows.z.add(g * V::LANES * d), size::<V>(d));
            let all = c.add(2 * g * size);
            let (pairs, fours) = (all.add(size), all.add(size + slots / 2 * V::LANES));
            let here = (here - g * V::LANES).min(V::LANES);
            stand::<V>(z, (d, here), all);
            for k in d.next_multiple_of(V::LANES)..slots {
                none.store(all.add(k * V::LANES));
            }
            let (max, nan) = largest::<V>((all, slots), pairs, fours);
            let (found, max, mut open) = Group::of_maxima(max, nan, here);
            *group = found;
            // Rows that begin with equal entries may be so altogether, and then there is nothing to solve.
            let [first, second] = [V::load(all), V::load(all.add(V::LANES))].map(|z| V::or(z.ge(max), none.ge(z)));
            group.find_equals::<V>((z, d), V::bits(V::and(first, second)) & open);
            open &= !group.equal;
            let (place, search) = (Place { from: max, ..place }, Search { active: V::lanes_of(open), ..search });
            two[g] = Upright { all, pairs, fours, max, open, place, search };
        }
        if prof.delta < 1.0 {
            smooth(prof, &mut two[..many], slots);
        } else {
            for rows in two[..many].iter_mut().filter(|rows| rows.open != 0) {
                rows.place = steep(prof, (rows.all, slots), rows.max, (d, rows.open));
            }
        }
        for (group, rows) in groups.iter_mut().zip(&two) {
            let place = prof.share(group, rows.max).select(V::lanes_of(group.equal), rows.place);
            place.from.store(group.from.as_mut_ptr());
            place.level.store(group.level.as_mut_ptr());
        }
    }
}

/// Thresholds of the open rows for α < 2.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn smooth<V: Vector>(prof: &Anchored, two: &mut [Upright<V>], slots: usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        if two.iter().all(|rows| rows.open == 0) {
            return;
        }
        for _ in 0..first_steps(prof.delta) {
            for rows in two.iter_mut() {
                prof.approach((rows.fours, slots / 4), rows.max, &mut rows.search);
            }
        }
        for rows in two.iter_mut() {
            prof.approach((rows.pairs, slots / 2), rows.max, &mut rows.search);
        }
        for _ in 0..STEPS {
            let mut active = 0;
            for rows in two.iter_mut() {
                if V::bits(rows.search.active) != 0 {
                    prof.advance(Columns::all(rows.all, slots), rows.max, &mut rows.search);
                    active |= V::bits(rows.search.active);
                }
            }
            if active == 0 {
                break;
            }
        }
        for rows in two.iter_mut() {
            rows.place.level = rows.search.level;
        }
    }
}

/// Rows into lanes; behind the last entry, and where rows are missing, −∞.
///
/// # Safety
/// `z` is readable for `here` rows of `d` floats; `c` is writable for as many vectors as `d` rounded up to whole ones; the CPU
/// has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn stand<V: Vector>(z: *const f32, (d, here): (usize, usize), c: *mut f32) {
    // SAFETY: as the caller vouches; the block holds `LANES` vectors.
    unsafe {
        let mut block = [f32::NEG_INFINITY; MAX_LANES * MAX_LANES];
        for k in (0..d).step_by(V::LANES) {
            let to = c.add(k * V::LANES);
            if here == V::LANES && k + V::LANES <= d {
                V::transpose(z.add(k), d, to);
            } else {
                for r in 0..here {
                    let entries = V::load_first(z.add(r * d + k), (d - k).min(V::LANES), f32::NEG_INFINITY);
                    entries.store(block.as_mut_ptr().add(r * V::LANES));
                }
                V::transpose(block.as_ptr(), V::LANES, to);
            }
        }
    }
}

/// The largest entry of every lane, and a bit for every lane with a NaN; the largest of every two columns and of every four,
/// as far from each other as can be: neighbours are often alike.
///
/// # Safety
/// `c` is readable for `slots` vectors, a multiple of 4, and the others are writable for a half and a quarter of that; the CPU
/// has the instruction set of `V`.
#[inline(always)]
unsafe fn largest<V: Vector>((c, slots): (*const f32, usize), pairs: *mut f32, fours: *mut f32) -> (V, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let (mut max, mut nan) = ([none; 2], none.unordered(none));
        let far = slots / 4 * V::LANES;
        for i in 0..slots / 4 {
            let at = i * V::LANES;
            let (a, b) = (V::load(c.add(at)), V::load(c.add(at + far)));
            let (e, f) = (V::load(c.add(at + 2 * far)), V::load(c.add(at + 3 * far)));
            nan = V::or(nan, V::or(a.unordered(b), e.unordered(f)));
            let (ab, ef) = (a.max(b), e.max(f));
            ab.store(pairs.add(2 * at));
            ef.store(pairs.add(2 * at + V::LANES));
            let four = ab.max(ef);
            four.store(fours.add(at));
            max[i % 2] = four.max(max[i % 2]);
        }
        (max[0].max(max[1]), V::bits(nan))
    }
}

impl Anchored {
    /// A step of Newton on the norm by rough powers, for α < 2, from a level of the maximum.
    ///
    /// # Safety
    /// `c` is readable for `slots` vectors, an even number; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn approach<V: Vector>(&self, (c, slots): (*const f32, usize), max: V, search: &mut Search<V>) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, tiny, scale) = (V::splat(0.0), V::splat(1.0), V::splat(1e-12), V::splat(self.scale));
            let level = search.level;
            if self.e > MOST_ROUGH {
                let (to, _) = self.ahead(Columns::all(c, slots), max, level, one);
                search.level = to.max(search.less).min(one);
                return;
            }
            let (exponent, [mut f, mut g]) = (V::splat(self.e - 1.0), [[zero; 2]; 2]);
            for k in (0..slots).step_by(2) {
                for j in 0..2 {
                    let x = V::load(c.add((k + j) * V::LANES)).sub(max).fma(scale, level);
                    let u = x.max(tiny);
                    let slope = u.rough_root(exponent).keep(x.gt(zero));
                    (f[j], g[j]) = (slope.fma(u, f[j]), g[j].add(slope));
                }
            }
            // The norm N less 1, over its slope: f·(1 − 1/N)/g.
            let (f, g) = (f[0].add(f[1]), g[0].add(g[1]));
            let norm = self.steepen(f);
            let to = level.sub(f.mul(norm.sub(one)).div(g.mul(norm)));
            search.level = to.max(search.less).min(one);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::portable::Portable;
    use super::*;

    /// A row that misses its threshold by more than can be mended is written again, so that only this shows it.
    #[test]
    fn steps_leave_little_to_mend() {
        const ROWS: usize = 2 * Portable::LANES;
        let mut rng = fastrand::Rng::with_seed(75);
        for alpha in [1.3, 1.6, 1.75, 1.9] {
            let prof = Anchored::new(alpha, 1.0);
            let (mut left, mut rows) = (0.0, 0);
            for (d, width) in
                [1usize, 2, 5, 20, 64, 100].into_iter().flat_map(|d| [1e-3, 0.1, 1.0, 9.0].map(|w| (d, w)))
            {
                let z: Vec<f32> = (0..ROWS * d).map(|_| width * rng.f32()).collect();
                let mut c = vec![0.0f32; room::<Portable>(d)];
                let mut groups = [Group::default(), Group::default()];
                let all = Rows { z: z.as_ptr(), out: std::ptr::null_mut(), d, gain: 1.0 };
                // SAFETY: the portable path asks for no instruction set, there is room enough, and nothing is written.
                unsafe { solve::<Portable>(&raw const prof, all, ROWS, c.as_mut_ptr(), &raw mut groups) };
                for (r, row) in z.chunks(d).enumerate() {
                    let (group, k) = (&groups[r / Portable::LANES], r % Portable::LANES);
                    let u = |z: f32| f64::from(z - group.from[k]) * (alpha - 1.0) + f64::from(group.level[k]);
                    let sum: f64 = row.iter().map(|z| u(*z).max(0.0).powf(1.0 / (alpha - 1.0))).sum();
                    assert!((sum - 1.0).abs() < 0.05, "α = {alpha}, d = {d}, width = {width}: {sum}");
                    left += (sum - 1.0).abs();
                    rows += 1;
                }
            }
            assert!(left < 1e-3 * f64::from(rows), "α = {alpha}: {}", left / f64::from(rows));
        }
    }
}
