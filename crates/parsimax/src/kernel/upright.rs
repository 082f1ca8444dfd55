//! α-entmax of whole rows upright: one row per lane, all its entries.
//!
//! Picking the candidates of a row of 64 costs as much as two passes over the whole of it, and saves nothing where most
//! entries are in the support. So the rows of a narrow group are transposed as they are, and so are crowded rows of any
//! width; what is wanted of a row is one number a lane from the first pass on.
//!
//! **α < 2.** `f = Σu^e` as a norm, `f^δ`, is convex and close to a straight line: a few steps of Newton on it, from 1 down,
//! by powers that are no more than a guess, come as near to the root as such powers can tell. What they leave, a few
//! percent, one step of third order with good powers takes (`settle.rs`), and the pass that writes the row mends the rest.
//! Narrow rows of which these steps leave few entries are put on lists after all, for the dear steps and for writing.
//!
//! **α > 2.** The largest entries of every row are put in order (`topmost.rs`).

use super::anchored::{Anchored, Group, Place};
use super::finish::Rows;
use super::pair::Pair;
use super::survey::Seen;
use super::topmost::steep;
use super::vector::{MAX_LANES, Vector};

/// Widest row that is stood upright.
pub(super) const WIDEST: usize = 128;

/// Steps by rough powers, for α < 2, before candidates are counted; more of them, and those by good ones, at most.
const FIRST_STEPS: usize = 2;
const ROUGH_STEPS: usize = 8;
const STEPS: usize = 16;

/// An excess after which the next step leaves no more than rough powers tell.
const ROUGHLY: f32 = 0.3;

/// More than 1 by what rough powers may take from a bound on `u` of the largest entry.
const ROUGH_BOUND: f32 = 1.05;

/// The share of a row above a bound from which on no list is made of it.
const CROWD: f32 = 0.3;

/// A residual that the step after it reduces to what the pass that writes the row can mend.
const MENDED: f32 = 0.06;

/// Maxima and thresholds of `here ≤ LANES` rows; for α < 2 rows with few candidates are left open.
///
/// # Safety
/// `z` is readable for `here` rows of `d ≤ WIDEST` floats; `c` is writable for as many vectors as `d` rounded up to
/// whole ones; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn solve<V: Vector>(
    prof: &Anchored,
    z: *const f32,
    (d, here): (usize, usize),
    c: *mut f32,
) -> (Group, Seen<V>) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        stand::<V>(z, (d, here), c);
        let slots = d.next_multiple_of(4);
        let (max, nan) = largest::<V>(c, slots);
        let (mut group, max, mut open) = Group::of_maxima(max, nan, here);
        // Rows that begin with equal entries may be so altogether, and then there is nothing to solve.
        let [first, second] = [V::load(c), V::load(c.add(V::LANES))].map(|z| V::or(z.ge(max), none.ge(z)));
        group.find_equals::<V>((z, d), V::bits(V::and(first, second)) & open);
        open &= !group.equal;
        let mut seen = Seen { max, place: Place { from: max, level: V::splat(1.0) }, cut: none, open, far: 0, tied: 0 };
        if open != 0 && prof.delta < 1.0 {
            narrow(prof, (c, d), &mut seen);
        } else if open != 0 {
            seen.place = steep(prof, (c, slots), max, (d, open));
            seen.open = 0;
        }
        seen.place = prof.share(&group, max).select(V::lanes_of(group.equal), seen.place);
        (group, seen)
    }
}

/// Thresholds of the open rows for α < 2, or where to begin and what to choose, if that is few.
///
/// # Safety
/// As [`largest`], with `c` writable for `d` vectors, rounded up to 4.
#[inline(always)]
unsafe fn narrow<V: Vector>(prof: &Anchored, (c, d): (*mut f32, usize), seen: &mut Seen<V>) {
    // SAFETY: as the caller vouches.
    unsafe {
        let slots = d.next_multiple_of(4);
        prof.measure((c, c, slots), seen.max);
        let (mut level, mut far) = (V::splat(1.0), V::lanes_of(seen.open));
        for _ in 0..FIRST_STEPS {
            (level, far) = prof.approach((c, slots), (level, far));
        }
        // From above Newton does not pass the root, and rough powers are not so wrong.
        let bound = level.mul(V::splat(ROUGH_BOUND));
        let (mut above, lowest) = ([V::splat(0.0); 2], V::splat(0.0).sub(bound));
        for k in (0..slots).step_by(2) {
            for j in 0..2 {
                above[j] = above[j].tally(V::load(c.add((k + j) * V::LANES)).gt(lowest));
            }
        }
        let many = above[0].tallied().add(above[1].tallied()).gt(V::splat(CROWD * d as f32));
        let crowd = V::bits(many) & seen.open;
        seen.place.level = level;
        seen.cut = prof.cut(Place { from: seen.max, level: bound });
        if crowd != 0 {
            let found = settle(prof, (c, slots), (level, crowd, V::bits(far) & crowd));
            seen.place.level = found.select(V::lanes_of(crowd), level);
        }
        (seen.open, seen.far) = (seen.open & !crowd, V::bits(far) & !crowd);
    }
}

/// Rows into lanes; behind the last entry, and where rows are missing, −∞.
///
/// # Safety
/// As [`solve`].
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

/// The largest entry of every lane, and a bit for every lane with a NaN.
///
/// # Safety
/// `c` is readable for `slots` vectors, a multiple of 4; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn largest<V: Vector>(c: *const f32, slots: usize) -> (V, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let (mut max, mut nan) = ([none; 2], none.unordered(none));
        for k in (0..slots).step_by(4) {
            for j in [0, 2] {
                let (a, b) = (V::load(c.add((k + j) * V::LANES)), V::load(c.add((k + j + 1) * V::LANES)));
                max = [a.max(max[0]), b.max(max[1])];
                nan = V::or(nan, a.unordered(b));
            }
        }
        (max[0].max(max[1]), V::bits(nan))
    }
}

/// `u` of the maxima of the rows that are `asked` for, for α < 2, from a start. `d` entries a lane are at `c`, and so many
/// vectors, rounded up to 4, are writable at `x`, which may be the same place; what is behind the last is −∞.
///
/// # Safety
/// As [`largest`].
#[inline(always)]
pub(super) unsafe fn smooth<V: Vector>(
    prof: &Anchored,
    (c, x, d): (*const f32, *mut f32, usize),
    max: V,
    (start, asked, far): (V, u32, u32),
) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let slots = d.next_multiple_of(4);
        prof.measure((c, x, slots), max);
        settle(prof, (x, slots), (start, asked, far))
    }
}

/// The same for entries that are distances from the maxima, in the units of `u`.
///
/// # Safety
/// As [`largest`].
#[inline(always)]
unsafe fn settle<V: Vector>(prof: &Anchored, (c, slots): (*const f32, usize), (start, asked, far): (V, u32, u32)) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let (one, least) = (V::splat(1.0), V::splat(prof.least(slots)));
        let (mut level, mut far) = (start, V::lanes_of(far));
        for _ in 0..ROUGH_STEPS {
            if V::bits(far) == 0 {
                break;
            }
            (level, far) = prof.approach((c, slots), (level, far));
        }
        let (mut less, mut more, mut active) = (least, one, V::lanes_of(asked));
        for _ in 0..STEPS {
            let (to, lack) = prof.onward((c, slots), level);
            let is_below = lack.gt(V::splat(0.0));
            (less, more) = (level.select(is_below, less), more.select(is_below, level));
            let inside = V::and(to.ge(less), more.ge(to));
            level = to.select(inside, less.sqrt().mul(more.sqrt())).select(active, level);
            let done = V::and(inside, V::splat(MENDED).gt(lack.max(V::splat(0.0).sub(lack))));
            active = V::lanes_of(V::bits(active) & !V::bits(done));
            if V::bits(active) == 0 {
                break;
            }
        }
        level
    }
}

impl Anchored {
    /// Entries at `c` as distances from the maxima, in the units of `u`, at `x`.
    ///
    /// # Safety
    /// As [`largest`], with `x` writable.
    #[inline(always)]
    unsafe fn measure<V: Vector>(&self, (c, x, slots): (*const f32, *mut f32, usize), max: V) {
        // SAFETY: as the caller vouches.
        unsafe {
            for at in (0..slots).map(|k| k * V::LANES) {
                V::load(c.add(at)).sub(max).mul(V::splat(self.scale)).store(x.add(at));
            }
        }
    }

    /// A step of Newton on the norm by rough powers, from a level of the maximum, in the lanes that are far from the root;
    /// and which of them still are.
    ///
    /// # Safety
    /// As [`largest`].
    #[inline(always)]
    unsafe fn approach<V: Vector>(&self, (c, slots): (*const f32, usize), (level, far): (V, V::Mask)) -> (V, V::Mask) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, tiny) = (V::splat(0.0), V::splat(1.0), V::splat(1e-12));
            let (exponent, [mut f, mut g]) = (V::splat(self.e - 1.0), [[zero; 2]; 2]);
            for k in (0..slots).step_by(2) {
                for j in 0..2 {
                    let x = V::load(c.add((k + j) * V::LANES)).add(level);
                    let u = x.max(tiny);
                    let slope = u.rough_root(exponent).keep(x.gt(zero));
                    (f[j], g[j]) = (slope.fma(u, f[j]), g[j].add(slope));
                }
            }
            // The norm N less 1, over its slope: f·(1 − 1/N)/g.
            let (f, g) = (f[0].add(f[1]), g[0].add(g[1]));
            let to = level.sub(f.mul(one.sub(one.div(self.steepen(f)))).div(g));
            let to = to.max(V::splat(self.least(slots))).min(one);
            let excess = f.sub(one);
            let is_far = excess.max(zero.sub(excess)).gt(V::splat(ROUGHLY));
            (to.select(far, level), V::and(far, is_far))
        }
    }

    /// Where the curve of `settle.rs` leads from a level of the maximum: there, and what the mass lacks here.
    ///
    /// # Safety
    /// As [`largest`].
    #[inline(always)]
    unsafe fn onward<V: Vector>(&self, (c, slots): (*const f32, usize), here: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            // The least number that has a power; that of the least number is 0, and so are its slopes.
            let (zero, least) = (Pair::<V>::splat(0.0), Pair::<V>::splat(f32::MIN_POSITIVE));
            let (level, e) = (Pair::twice(here), Pair::<V>::splat(self.e));
            let (mut f, mut g, mut h) = (zero, zero, zero);
            for k in (0..slots).step_by(2) {
                let u = Pair::<V>::load(c.add(k * V::LANES)).add(level).max(least);
                let (p, inverse) = (u.power(e), u.rough_inverse());
                let slope = p.mul(inverse);
                (f, g, h) = (f.add(p), g.add(slope), slope.fma(inverse, h));
            }
            let ((f, f2), (g, g2), (h, h2)) = (f.halves(), g.halves(), h.halves());
            let (one, g) = (V::splat(1.0), g.add(g2));
            let lack = one.sub(f.add(f2));
            let y = g.div(h.add(h2));
            let x = lack.div(y.mul(g));
            (y.fma(self.steepen(one.add(x)).sub(one), here), lack)
        }
    }
}

/// Writes the rows whose bits are set from the lists of their probabilities, `stride` floats apart: what is above the cut has
/// its own, in order, and the rest 0.
///
/// # Safety
/// The rows are readable and writable; the lists have as many entries as there are above the cuts, and a vector more is
/// readable. The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn spread<V: Vector>(rows: Rows, asked: u32, cut: V, (lists, stride): (*const f32, usize)) {
    let mut cuts = [0.0f32; MAX_LANES];
    // SAFETY: every access stays within a row; the array holds a vector.
    unsafe {
        cut.store(cuts.as_mut_ptr());
        let gain = V::splat(rows.gain);
        for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
            let (mut list, cut) = (lists.add(r * stride), V::splat(cuts[r]));
            for i in (0..rows.d).step_by(V::LANES) {
                let (at, n) = (r * rows.d + i, (rows.d - i).min(V::LANES));
                let above = V::load_first(rows.z.add(at), n, f32::NEG_INFINITY).gt(cut);
                let p = V::expand(above, list).mul(gain);
                if n == V::LANES {
                    p.store(rows.out.add(at))
                } else {
                    p.store_first(rows.out.add(at), n)
                }
                list = list.add(V::bits(above).count_ones() as usize);
            }
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
        const LANES: usize = Portable::LANES;
        let mut rng = fastrand::Rng::with_seed(75);
        for alpha in [1.3, 1.6, 1.75, 1.9] {
            let prof = Anchored::new(alpha, 1.0);
            let (mut left, mut rows) = (0.0, 0);
            for (d, width) in
                [1usize, 2, 5, 20, 64, 300].into_iter().flat_map(|d| [1e-3, 0.1, 1.0, 9.0].map(|w| (d, w)))
            {
                let slots = d.next_multiple_of(LANES);
                let z: Vec<f32> = (0..slots * LANES)
                    .map(|i| match i / LANES {
                        // The maximum.
                        0 => 0.0,
                        k if k < d => -width * rng.f32(),
                        _ => f32::NEG_INFINITY,
                    })
                    .collect();
                let (mut x, mut level) = (z.clone(), [0.0f32; LANES]);
                let all = (1 << LANES) - 1;
                // SAFETY: the portable path asks for no instruction set, and there are enough vectors.
                unsafe {
                    let (max, start) = (Portable::splat(0.0), Portable::splat(1.0));
                    smooth(&prof, (z.as_ptr(), x.as_mut_ptr(), d), max, (start, all, all)).store(level.as_mut_ptr());
                }
                for r in 0..LANES {
                    let p = |z: f32| {
                        (f64::from(z) * (alpha - 1.0) + f64::from(level[r])).max(0.0).powf(1.0 / (alpha - 1.0))
                    };
                    let sum: f64 = z.iter().skip(r).step_by(LANES).map(|z| p(*z)).sum();
                    assert!((sum - 1.0).abs() < 0.05, "α = {alpha}, d = {d}, width = {width}: {sum}");
                    left += (sum - 1.0).abs();
                    rows += 1;
                }
            }
            assert!(left < 1e-3 * f64::from(rows), "α = {alpha}: {}", left / f64::from(rows));
        }
    }

    #[test]
    fn lists_are_spread_over_their_rows() {
        const LANES: usize = Portable::LANES;
        let mut rng = fastrand::Rng::with_seed(76);
        for d in [1, 7, 64, 100] {
            let stride = d + 2 * LANES;
            let z: Vec<f32> = (0..d * LANES).map(|_| rng.f32()).collect();
            let (mut lists, mut out) = (vec![0.0; stride * LANES], vec![7.0; d * LANES]);
            for (row, list) in z.chunks(d).zip(lists.chunks_mut(stride)) {
                row.iter().filter(|z| **z > 0.6).zip(list).for_each(|(z, p)| *p = *z);
            }
            let rows = Rows { z: z.as_ptr(), out: out.as_mut_ptr(), d, gain: 2.0 };
            // SAFETY: the portable path asks for no instruction set; rows and lists are as long as they should be.
            unsafe { spread::<Portable>(rows, 0b101, Portable::splat(0.6), (lists.as_ptr(), stride)) };
            for (i, (p, z)) in out.iter().zip(&z).enumerate() {
                let want = if [0, 2].contains(&(i / d)) { if *z > 0.6 { 2.0 * z } else { 0.0 } } else { 7.0 };
                assert_eq!(*p, want, "d = {d}, entry {i}");
            }
        }
    }
}
