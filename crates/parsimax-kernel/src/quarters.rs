//! Sparsemax and 1.5-entmax of narrow rows, of up to four vectors: by order, or by looks, and a check.
//!
//! Plainly, for `LANES` rows, one a lane: the larger ones of two entries in every lane of a row, twice; the threshold that
//! the nearest eight of these have by their order; write `[x − τ]₊`, and see that the sum is 1. A small support hardly ever
//! has two entries in one place, so that for most rows that is all.
//!
//! Crowded rows, which a glance at the largest entries tells beforehand, go to `looks.rs`. They come in crowds: behind one,
//! no order is tried, unless there is another row among them. What is still open at the end is put together, so that
//! no lane is idle, and goes on by looks. 1.5-entmax has twice the support, of which order seldom tells all.

use super::direct::{self, gather, scatter};
use super::group::{Block, Excess, Group, Rows};
use super::looks::{self, Begin};
use super::network::sort_eight;
use super::profile::Direct;
use super::refine::refine;
use super::vector::{MAX_LANES, Vector, outlined};

/// Widest row that is served: in wider ones order tells enough to leave most entries alone (`direct.rs`).
const NARROW: usize = 64;

/// Groups that go through the steps together: of so many rows, enough are left open to fill lanes.
pub(super) const GROUPS: usize = 16;

/// Groups whose steps are taken together, and which are judged by those before them.
const SOME: usize = 2;

/// Candidates that are put in order.
const RANKS: usize = 8;

/// Whether rows of width `d` go this way. It takes lanes for sixteen rows: eight are too few to pay for the turn.
pub(super) fn serves<V: Vector>(d: usize) -> bool {
    V::LANES == MAX_LANES && d <= NARROW
}

outlined! {
    /// Thresholds of at most `GROUPS · LANES` rows that this [`serves`], and their probabilities if `WRITE`; whether all
    /// are fit.
    ///
    /// # Safety
    /// The rows are readable and writable, `groups` is writable; the CPU has the instruction set of `V`.
    pub(super) unsafe fn solve_groups<V, P: Direct; WRITE>(
        prof: P,
        rows: Rows,
        groups: *mut [Group; GROUPS],
    ) -> bool => solve_groups_any
}

/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn solve_groups_any<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group; GROUPS],
) -> bool {
    // SAFETY: rows and buffers are in bounds as the caller vouches.
    unsafe {
        let groups = &mut (&mut *groups)[..rows.rows.div_ceil(V::LANES)];
        // Where vectors are few, a look costs less than order.
        if P::CURVED || rows.d <= 2 * V::LANES {
            looks::solve::<V, P, WRITE>(
                prof,
                rows,
                groups,
                rows.rows,
                Begin { apart: false, known: false, crowds: false },
            );
        } else {
            let mut crowd = false;
            for (i, some) in groups.chunks_mut(SOME).enumerate() {
                let left = rows.rows - i * SOME * V::LANES;
                crowd = crowd && by_looks::<V, P, WRITE>(prof, rows, some, left);
                crowd = crowd || by_order::<V, P, WRITE>(prof, rows, some, left);
            }
            settle::<V, P, WRITE>(prof, rows, groups, true);
        }
        settle::<V, P, WRITE>(prof, rows, groups, false);
        groups.iter().all(|group| group.bad | group.empty | group.alone == 0)
    }
}

/// The second way, for the first `left` rows of one or two groups if all of them are crowded; whether they are.
///
/// # Safety
/// As [`solve_groups`], for rows of more than two vectors.
#[inline(always)]
unsafe fn by_looks<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    left: usize,
) -> bool {
    let begin = Begin { apart: false, known: false, crowds: true };
    // SAFETY: as the caller vouches.
    unsafe { looks::solve::<V, P, WRITE>(prof, rows, groups, left.min(SOME * V::LANES), begin) };
    let is_crowd = groups.iter().all(|group| group.active & !group.dense == 0);
    if is_crowd {
        groups.iter_mut().for_each(|group| group.dense = 0);
    }
    is_crowd
}

/// Puts the active rows that are `dense` or are not together, and settles them by looks, dense ones from the beginning.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn settle<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, groups: &mut [Group], dense: bool) {
    let (mut open, mut n) = ([0; GROUPS * MAX_LANES], 0);
    for (g, group) in groups.iter().enumerate() {
        let mut left = group.active & if dense { group.dense } else { !group.dense };
        while left != 0 {
            open[n] = (g * V::LANES) as u16 + left.trailing_zeros() as u16;
            left &= left - 1;
            n += 1;
        }
    }
    for some in open[..n].chunks(SOME * V::LANES) {
        let mut put_together = [Group::NEW; direct::GROUPS];
        gather::<V>(groups, some, &mut put_together);
        let put_together = &mut put_together[..some.len().div_ceil(V::LANES)];
        // SAFETY: as the caller vouches.
        unsafe {
            if dense {
                looks::solve::<V, P, WRITE>(
                    prof,
                    rows,
                    put_together,
                    some.len(),
                    Begin { apart: true, known: false, crowds: false },
                );
            }
            looks::solve::<V, P, WRITE>(
                prof,
                rows,
                put_together,
                some.len(),
                Begin { apart: true, known: true, crowds: false },
            );
            refine::<V, P, WRITE>(prof, rows, put_together);
        }
        scatter::<V>(put_together, some, groups);
    }
}

/// The first way, for the first `left` rows of one or two groups. What it leaves open stays active; crowded rows are
/// dense. Whether all are, and went the second way.
///
/// # Safety
/// As [`solve_groups`], for rows of more than two vectors.
#[inline(always)]
unsafe fn by_order<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    left: usize,
) -> bool {
    // SAFETY: as the caller vouches.
    unsafe {
        if rows.d == 4 * V::LANES {
            by_order_of::<V, P, WRITE, true>(prof, rows, groups, left)
        } else {
            by_order_of::<V, P, WRITE, false>(prof, rows, groups, left)
        }
    }
}

/// [`by_order`] of rows that fill their vectors, if `WHOLE`. Each step is taken for both groups before the next: what one
/// waits for, the other fills with work.
///
/// # Safety
/// As [`by_order`].
#[inline(always)]
unsafe fn by_order_of<V: Vector, P: Direct, const WRITE: bool, const WHOLE: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    left: usize,
) -> bool {
    // SAFETY: as the caller vouches; a block holds a vector for each lane.
    unsafe {
        let (scale, zero) = (V::splat(rows.scale), V::splat(0.0));
        let mut pairs = [[Block::uninit(); 2]; SOME];
        let here = |g: usize| (left - g * V::LANES).min(V::LANES);
        for (g, group) in groups.iter_mut().enumerate() {
            survey::<V, WHOLE>(&rows, here(g), group, pairs[g].as_mut_ptr().cast());
        }
        let mut sparse = 0;
        for (g, group) in groups.iter_mut().enumerate() {
            group.dense = group.active
                & crowded::<V>((pairs[g].as_ptr().cast(), V::LANES * V::LANES), V::load(group.max.as_ptr()), scale);
            sparse |= group.active & !group.dense;
        }
        if sparse == 0 {
            return by_looks::<V, P, WRITE>(prof, rows, groups, left);
        }
        // How many entries order counts, and how far the threshold is below the maximum.
        let [mut counts, mut depths] = [[zero; SOME]; 2];
        for (g, group) in groups.iter_mut().enumerate() {
            let (t, step, count) = solve::<V, P>(prof, pairs[g].as_ptr().cast(), V::load(group.max.as_ptr()), &rows);
            group.put_below(zero.sub(t), step, scale);
            (counts[g], depths[g]) = (count, t.sub(step));
        }
        for (g, group) in groups.iter_mut().enumerate() {
            if group.active & !group.dense != 0 {
                let f = write_all::<V, P, WRITE, WHOLE>(prof, &rows, group, here(g));
                let open = group.active & !group.dense & !V::bits(stands(f));
                group.active &= group.dense | open;
                if open != 0 {
                    // Most likely one entry is missing; more are, where the largest would not make up for the sum. Whatever
                    // they are, the step does not reach the maximum.
                    let one = V::splat(1.0);
                    let over = f.sub(one);
                    let step = over.div(counts[g].add(over.div(depths[g]).max(one))).keep(V::lanes_of(open));
                    group.put(V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()).add(step));
                }
            }
        }
        false
    }
}

/// How far the largest entries of the lanes are from the maximum, in the mean, if their order is not likely to tell all.
const CROWDED: f32 = 0.3;

/// Rows whose largest entries, of every lane, are so near to the maximum that order is not likely to tell all, one bit
/// each. They are the larger ones of `some` and of what is `others` further on.
///
/// # Safety
/// Both are readable for `LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn crowded<V: Vector>((some, others): (*const f32, usize), max: V, scale: V) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe {
        // Whatever is farther off than 1 is out of reach, and so is what a row lacks. Half of the lanes tell enough.
        let (mut sums, reach) = ([V::splat(0.0); 2], V::splat(1.0).div(scale));
        for k in (0..V::LANES).step_by(4) {
            for j in 0..2 {
                let at = some.add((k + j) * V::LANES);
                let gap = max.sub(V::load(at).max(V::load(at.add(others))));
                sums[j] = sums[j].add(gap.order(reach).0);
            }
        }
        let few = V::splat(CROWDED * (V::LANES / 2) as f32).mul(reach);
        V::bits(few.gt(sums[0].add(sums[1])))
    }
}

/// Whether a sum is 1 as far as its rounding tells.
#[inline(always)]
pub(super) fn stands<V: Vector>(f: V) -> V::Mask {
    // SAFETY: `f` exists.
    let [most, least] = unsafe { [1.0 + OFF, 1.0 - OFF].map(|x| V::splat(x)) };
    V::and(f.ge(least), most.ge(f))
}

/// How far a sum may be from 1.
const OFF: f32 = 2.4e-7;

/// The larger ones of the first and the third, and of the second and the fourth vector of the first `here` rows, turned; the
/// maxima; rows are told apart by what they are fit for.
///
/// # Safety
/// As [`by_order`]; `pairs` is writable for `2·LANES` vectors.
#[inline(always)]
unsafe fn survey<V: Vector, const WHOLE: bool>(rows: &Rows, here: usize, group: &mut Group, pairs: *mut f32) {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane.
    unsafe {
        let (size, none, scale) = (V::LANES * V::LANES, V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let mut nan = none.unordered(none);
        let mut starts = [rows.z; MAX_LANES];
        for r in 0..V::LANES {
            starts[r] = rows.z.add(usize::from(group.at[if r < here { r } else { 0 }]) * rows.d);
        }
        for part in 0..2 {
            let mut larger = [none; MAX_LANES];
            for r in 0..V::LANES {
                let z = starts[r].add(part * V::LANES);
                let (a, b) = (V::load(z), part_of::<V, WHOLE>(starts[r], rows.d, 2 + part));
                // What the next groups will read is on its way while these are worked on.
                V::prefetch(z.wrapping_add(SOME * V::LANES * rows.d));
                nan = V::or(nan, a.unordered(b));
                larger[r] = a.max(b);
            }
            V::turn_all(&larger, pairs.add(part * size));
        }
        // Which row it is in is asked only if there is one.
        let bad = if V::bits(nan) == 0 { 0 } else { with_nan(rows, &group.at[..here]) };
        group.meet((bad, 0), here, (pairs, 2 * V::LANES), scale);
    }
}

/// Which of some rows hold a NaN, one bit each.
///
/// # Safety
/// The rows are readable.
#[cold]
pub(super) unsafe fn with_nan(rows: &Rows, some: &[u16]) -> u32 {
    some.iter().enumerate().fold(0, |bad, (r, at)| {
        // SAFETY: as the caller vouches.
        let row = unsafe { std::slice::from_raw_parts(rows.z.add(usize::from(*at) * rows.d), rows.d) };
        bad | u32::from(row.iter().any(|z| z.is_nan())) << r
    })
}

/// Vector `k` of a row, which may be a part of one, or nothing; behind the end is `−inf`.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn part_of<V: Vector, const WHOLE: bool>(z: *const f32, d: usize, k: usize) -> V {
    let at = z.wrapping_add(k * V::LANES);
    // SAFETY: the load stays within `d` floats.
    unsafe { if WHOLE { V::load(at) } else { V::load_first(at, length::<V>(d, k), f32::NEG_INFINITY) } }
}

/// How many entries vector `k` of a row has.
#[inline(always)]
fn length<V: Vector>(d: usize, k: usize) -> usize {
    d.saturating_sub(k * V::LANES).min(V::LANES)
}

/// `−τ` by order, the step that takes what rounding has left, and how many entries it counts.
///
/// # Safety
/// `pairs` is readable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn solve<V: Vector, P: Direct>(prof: P, pairs: *const f32, max: V, rows: &Rows) -> (V, V, V) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (mut y, mut next, mut lesser) = ([max; RANKS], [max; RANKS], [max; RANKS]);
        for j in 0..RANKS {
            let mut gaps = [max; 4];
            for k in 0..4 {
                gaps[k] = max.sub(V::load(pairs.add((j + k * RANKS) * V::LANES)));
            }
            let ((a, b), (c, e)) = (gaps[0].order(gaps[2]), gaps[1].order(gaps[3]));
            (y[j], next[j], lesser[j]) = (a, c, b.order(e).0);
        }
        sort(&mut y);
        sort(&mut next);
        sort(&mut lesser);
        merge(&mut y, &next);
        merge(&mut y, &lesser);
        let scale = V::splat(rows.scale);
        for k in 0..RANKS {
            y[k] = y[k].mul(scale);
        }
        let (one, bit, zero) = (V::splat(rows.one), V::splat(rows.bit), V::splat(0.0));
        let t = prof.by_rank(&y, one);
        let (mut f, mut g) = ([zero; 2], [zero; 2]);
        for k in (0..RANKS).step_by(2) {
            for j in 0..2 {
                let u = t.sub(y[k + j]).positive();
                (f[j], g[j]) = prof.take(u, f[j], g[j], bit);
            }
        }
        let g = prof.taken(g[0]).add(prof.taken(g[1]));
        let step = prof.step(f[0].add(f[1]), g);
        (t, step, g)
    }
}

/// Exchanges what is in the wrong order.
macro_rules! exchange {
    ($y:ident: $($i:literal $j:literal),* $(,)?) => {$(
        ($y[$i], $y[$j]) = $y[$i].order($y[$j]);
    )*};
}

/// Ascending order, lane by lane.
#[inline(always)]
fn sort<V: Vector>(y: &mut [V; RANKS]) {
    sort_eight!(exchange, y);
}

/// The smallest of both, in ascending order like each of them.
#[inline(always)]
fn merge<V: Vector>(y: &mut [V; RANKS], other: &[V; RANKS]) {
    // The smaller ones of two ascending sequences, one of them backwards, rise and then fall.
    for j in 0..RANKS {
        y[j] = y[j].order(other[RANKS - 1 - j]).0;
    }
    exchange!(y: 0 4, 1 5, 2 6, 3 7);
    exchange!(y: 0 2, 1 3, 4 6, 5 7);
    exchange!(y: 0 1, 2 3, 4 5, 6 7);
}

/// Writes the probabilities of the first `here` rows of a group, if `WRITE`; their sums.
///
/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_all<V: Vector, P: Direct, const WRITE: bool, const WHOLE: bool>(
    prof: P,
    rows: &Rows,
    group: &Group,
    here: usize,
) -> V {
    // SAFETY: as the caller vouches; the block holds a vector for each lane.
    unsafe {
        let mut sums = Block::uninit();
        let sums = sums.as_mut_ptr();
        for r in 0..here {
            write::<V, P, WRITE, WHOLE>(prof, rows, group, r).store(sums.add(r * V::LANES));
        }
        for r in here..V::LANES {
            V::splat(0.0).store(sums.add(r * V::LANES));
        }
        V::row_sums(sums)
    }
}

/// Writes the probabilities of row `r` of a group, if `WRITE`; their sum, lane by lane.
///
/// # Safety
/// The row is readable and writable, of four vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const WRITE: bool, const WHOLE: bool>(
    prof: P,
    rows: &Rows,
    group: &Group,
    r: usize,
) -> V {
    // SAFETY: every access stays within the row.
    unsafe {
        let start = usize::from(group.at[r]) * rows.d;
        let (excess, out) = (Excess::<V>::new(rows, group, r), rows.out.add(start));
        let z = rows.z.add(start);
        V::prefetch(z.wrapping_add(SOME * V::LANES * rows.d + 2 * V::LANES));
        V::prefetch(z.wrapping_add(SOME * V::LANES * rows.d + 3 * V::LANES));
        let mut p = [V::splat(0.0); 4];
        for k in 0..4 {
            let z = if k < 2 { V::load(z.add(k * V::LANES)) } else { part_of::<V, WHOLE>(z, rows.d, k) };
            p[k] = prof.power(excess.of(z));
        }
        for k in 0..4 {
            let out = out.wrapping_add(k * V::LANES);
            if WRITE && (WHOLE || k < 2) {
                p[k].store(out);
            } else if WRITE {
                p[k].store_first(out, length::<V>(rows.d, k));
            }
        }
        p[0].add(p[1]).add(p[2].add(p[3]))
    }
}
