//! Sparsemax and 1.5-entmax of narrow rows of which order tells too little: looks at rows as they are, four vectors each.
//!
//! Plainly, for `LANES` rows, one a lane: the largest of the four entries in every lane, turned; steps on these alone; looks
//! at all entries, each of which takes the sums that the next step wants; write `[x − τ]₊^e`, and see that the sum is 1.
//!
//! While the support stands, the sum is a polynomial of τ, of degree one (sparsemax) or two (1.5-entmax), whose
//! coefficients a look takes: its root is τ. So two looks are enough for nearly all rows. The others are put together
//! by the caller, and go on from where they are.
//!
//! A row is never turned as a whole: its lane sums are put together with those of its neighbours, which takes half the
//! shuffles of a transposition.

use super::group::{Block, Excess, Group, Rows};
use super::profile::Direct;
use super::quarters::{crowded, stands, with_nan};
use super::vector::{MAX_LANES, Vector, outlined};

/// Groups whose steps are taken in turn: what one waits for, the other fills with work.
const TWO: usize = 2;

/// Looks at rows that have been put together, at most, before they are left to `refine.rs`.
const ROUNDS: usize = 6;

/// What is known of the rows of some groups: whether they follow each other from the first on or were put together, and
/// whether they have thresholds to begin with.
#[derive(Clone, Copy)]
pub(super) struct Begin {
    pub(super) apart: bool,
    pub(super) known: bool,
    /// Whether rows that are not crowded (`quarters.rs`) are not to be solved, nor is any beside them.
    pub(super) crowds: bool,
}

outlined! {
    /// Thresholds of the first `n` rows of some groups, and their probabilities if `WRITE`; rows that are not settled are
    /// left active.
    ///
    /// # Safety
    /// The rows are readable and writable, of at most four vectors, and fill the groups but for the last; `groups` is
    /// writable, vectors have sixteen lanes, and the CPU has their instruction set.
    pub(super) unsafe fn solve<V, P: Direct; WRITE>(
        prof: P,
        rows: Rows,
        groups: *mut [Group],
        n: usize,
        begin: Begin,
    ) -> () => solve_any
}

/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn solve_any<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group],
    n: usize,
    begin: Begin,
) {
    if V::LANES < MAX_LANES {
        return;
    }
    // SAFETY: as the caller vouches.
    unsafe {
        for (i, two) in (&mut *groups).chunks_mut(TWO).enumerate() {
            let left = (n - i * TWO * V::LANES, begin);
            match rows.d.div_ceil(V::LANES) {
                1 => solve_two::<V, P, WRITE, 1, false>(prof, rows, two, left),
                2 => solve_two::<V, P, WRITE, 2, false>(prof, rows, two, left),
                3 => solve_two::<V, P, WRITE, 3, false>(prof, rows, two, left),
                _ if rows.d < 4 * V::LANES => solve_two::<V, P, WRITE, 4, false>(prof, rows, two, left),
                _ => solve_two::<V, P, WRITE, 4, true>(prof, rows, two, left),
            }
        }
    }
}

/// [`solve`] of one or two groups of rows of `N` vectors, the last of which is `WHOLE` or a part of one.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn solve_two<V: Vector, P: Direct, const WRITE: bool, const N: usize, const WHOLE: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    (n, begin): (usize, Begin),
) {
    // SAFETY: as the caller vouches; a block holds a vector for each lane.
    unsafe {
        let here = |g: usize| (n - g * V::LANES).min(V::LANES);
        if !begin.known {
            let mut fours = [Block::uninit(); TWO];
            for (g, group) in groups.iter_mut().enumerate() {
                survey::<V, N, WHOLE>(&rows, (here(g), begin.apart), group, fours[g].as_mut_ptr());
            }
            if begin.crowds {
                let mut sparse = 0;
                for (g, group) in groups.iter_mut().enumerate() {
                    let max = V::load(group.max.as_ptr());
                    group.dense = group.active & crowded::<V>((fours[g].as_mut_ptr(), 0), max, V::splat(rows.scale));
                    sparse |= group.active & !group.dense;
                }
                if sparse != 0 {
                    return;
                }
            }
            for (g, group) in groups.iter_mut().enumerate() {
                guess::<V, P>(prof, &rows, group, fours[g].as_mut_ptr());
            }
            for (g, group) in groups.iter_mut().enumerate() {
                look::<V, P, N, WHOLE, true>(prof, &rows, group, (here(g), begin.apart));
            }
            if !P::CURVED {
                for (g, group) in groups.iter_mut().enumerate() {
                    look::<V, P, N, WHOLE, false>(prof, &rows, group, (here(g), begin.apart));
                }
            }
        }
        for _ in 0..if begin.known { ROUNDS } else { 1 } {
            let mut active = 0;
            for (g, group) in groups.iter_mut().enumerate().filter(|(_, group)| group.active != 0) {
                look::<V, P, N, WHOLE, false>(prof, &rows, group, (here(g), begin.apart));
            }
            for (g, group) in groups.iter_mut().enumerate().filter(|(_, group)| group.active != 0) {
                let f = write::<V, P, WRITE, N, WHOLE>(prof, &rows, group, (here(g), begin.apart));
                group.active &= !V::bits(stands(f));
                active |= group.active;
            }
            if active == 0 {
                break;
            }
        }
    }
}

/// Asks for vector `k` of the row that takes the place of row `z` in the next groups: what they will read is on its way while
/// these are worked on, a part of it in each pass.
#[inline(always)]
fn ask<V: Vector, const N: usize>(rows: &Rows, z: *const f32, k: usize) {
    if k < N {
        V::prefetch(z.wrapping_add(TWO * V::LANES * rows.d + k * V::LANES));
    }
}

/// Which row of the block row `r` of a group is. Those that follow each other are not asked one by one.
#[inline(always)]
fn place(group: &Group, r: usize, apart: bool) -> usize {
    if apart { usize::from(group.at[r]) } else { usize::from(group.at[0]) + r }
}

/// A row of `N` vectors; behind its end is `−inf`.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn row<V: Vector, const N: usize, const WHOLE: bool>(z: *const f32, d: usize) -> [V; N] {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let mut row = [V::splat(f32::NEG_INFINITY); N];
        for k in 0..N {
            let at = z.add(k * V::LANES);
            row[k] =
                if WHOLE || k + 1 < N { V::load(at) } else { V::load_first(at, d - k * V::LANES, f32::NEG_INFINITY) };
        }
        row
    }
}

/// The largest of every lane of the first `here` rows, turned; what these rows are fit for.
///
/// # Safety
/// As [`solve`]; `fours` is writable for `LANES` vectors.
#[inline(always)]
unsafe fn survey<V: Vector, const N: usize, const WHOLE: bool>(
    rows: &Rows,
    (here, apart): (usize, bool),
    group: &mut Group,
    fours: *mut f32,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let (mut nan, mut largest) = (none.unordered(none), [none; MAX_LANES]);
        for r in 0..V::LANES {
            let z = rows.z.add(place(group, if r < here { r } else { 0 }, apart) * rows.d);
            let row = row::<V, N, WHOLE>(z, rows.d);
            ask::<V, N>(rows, z, 0);
            largest[r] = row[0];
            for k in 1..N {
                largest[r] = largest[r].max(row[k]);
            }
            for k in 0..N.div_ceil(2) {
                nan = V::or(nan, row[k].unordered(row[N - 1 - k]));
            }
        }
        V::turn_all(&largest, fours);
        // Which row it is in is asked only if there is one.
        let bad = if V::bits(nan) == 0 { 0 } else { with_nan(rows, &group.at[..here]) };
        group.meet((bad, 0), here, (fours, V::LANES), V::splat(rows.scale));
    }
}

/// Steps on the largest entries of the lanes, from the lowest threshold there can be.
///
/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn guess<V: Vector, P: Direct>(prof: P, rows: &Rows, group: &mut Group, fours: *const f32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, bit, scale) = (V::splat(0.0), V::splat(rows.bit), V::splat(rows.scale));
        let max = V::load(group.max.as_ptr());
        let mut t = V::splat(1.0);
        for _ in 0..if P::CURVED { 1 } else { 2 } {
            let (mut f, mut g, mut n) = ([zero; 4], [zero; 4], [zero; 4]);
            for i in (0..V::LANES).step_by(4) {
                for k in 0..4 {
                    let u = V::load(fours.add((i + k) * V::LANES)).sub(max).fma(scale, t).positive();
                    (f[k], g[k]) = prof.take(u, f[k], g[k], bit);
                    n[k] = n[k].tally_above(u, bit);
                }
            }
            let f = f[0].add(f[1]).add(f[2].add(f[3]));
            let n = n[0].tallied().add(n[1].tallied()).add(n[2].tallied().add(n[3].tallied()));
            t = t.sub(prof.curved_step(f, prof.taken_of(g), n));
        }
        group.put_below(zero.sub(t), zero, scale);
        zero.store(group.lo.as_mut_ptr());
    }
}

/// A look at all entries of the first `here` rows of a group from `hi`, and the step that follows. The `FIRST` time the
/// number of entries in the support is estimated: those that are spread evenly above the threshold have sums that tell.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn look<V: Vector, P: Direct, const N: usize, const WHOLE: bool, const FIRST: bool>(
    prof: P,
    rows: &Rows,
    group: &mut Group,
    (here, apart): (usize, bool),
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, bit) = (V::splat(0.0), V::splat(rows.bit));
        let counts = P::CURVED && !FIRST;
        // Rows that are settled stay where they are, whatever their neighbours do.
        let (active, hi, lo) = (V::lanes_of(group.active), V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        hi.add(lo.keep(active)).store(group.hi.as_mut_ptr());
        let [mut fs, mut gs, mut ns] = [[zero; FOUR]; 3];
        for q in 0..FOUR {
            let [mut f, mut g, mut n] = [[zero; 4]; 3];
            for j in 0..4 {
                let r = 4 * q + j;
                let z = rows.z.add(place(group, if r < here { r } else { 0 }, apart) * rows.d);
                let excess = Excess::<V>::new(rows, group, r);
                ask::<V, N>(rows, z, if FIRST { 1 } else { 2 });
                for z in row::<V, N, WHOLE>(z, rows.d) {
                    let u = excess.rough(z);
                    (f[j], g[j]) = prof.take(u, f[j], g[j], bit);
                    if counts {
                        n[j] = n[j].tally_above(u, bit);
                    }
                }
                (g[j], n[j]) = (prof.taken(g[j]), n[j].tallied());
            }
            (fs[q], gs[q]) = (V::quarter_sums(f), V::quarter_sums(g));
            if counts {
                ns[q] = V::quarter_sums(n);
            }
        }
        let (f, g) = (V::whole_sums(fs), V::whole_sums(gs));
        let n = if counts {
            V::whole_sums(ns)
        } else {
            g.mul(g).div(f).mul(V::splat(4.0 / 3.0)).min(V::splat(rows.d as f32))
        };
        prof.curved_step(f, g, n).select(active, lo).store(group.lo.as_mut_ptr());
    }
}

/// So many times four rows are one a lane.
const FOUR: usize = MAX_LANES / 4;

/// Writes the probabilities of the first `here` rows of a group, if `WRITE`; their sums.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const WRITE: bool, const N: usize, const WHOLE: bool>(
    prof: P,
    rows: &Rows,
    group: &Group,
    (here, apart): (usize, bool),
) -> V {
    // SAFETY: every access stays within a row.
    unsafe {
        let mut sums = [V::splat(0.0); FOUR];
        for q in 0..FOUR {
            let mut four = [V::splat(0.0); 4];
            for j in 0..4 {
                if 4 * q + j < here {
                    let at = place(group, 4 * q + j, apart) * rows.d;
                    let (excess, out) = (Excess::<V>::new(rows, group, 4 * q + j), rows.out.add(at));
                    ask::<V, N>(rows, rows.z.add(at), 3);
                    let mut p = row::<V, N, WHOLE>(rows.z.add(at), rows.d);
                    for k in 0..N {
                        p[k] = prof.power(excess.of(p[k]));
                        four[j] = four[j].add(p[k]);
                        let out = out.add(k * V::LANES);
                        if WRITE && (WHOLE || k + 1 < N) {
                            p[k].store(out);
                        } else if WRITE {
                            p[k].store_first(out, rows.d - k * V::LANES);
                        }
                    }
                }
            }
            sums[q] = V::quarter_sums(four);
        }
        V::whole_sums(sums)
    }
}
