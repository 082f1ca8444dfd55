//! Sparsemax of narrow rows, of four vectors: by order and a proof, else in lanes.
//!
//! Plainly, for `LANES` rows, one a lane: the two largest of the four entries in every lane, the threshold that the
//! nearest eight of these have by their order, and `[x − τ]₊`. A small support hardly ever has three entries in one lane,
//! and only its largest entries are turned. It is the whole support, and the threshold τ, unless an entry that was left
//! out is above it: the third of a lane, the lesser second of two lanes, or a ninth of those in order.
//!
//! Rows of which that is not so are put together and go to `turned.rs`; so do crowded rows, which a glance at the
//! largest entries tells beforehand. Crowded rows come in crowds: behind one, all are turned at once, and those that turn
//! out to be others are put together. 1.5-entmax has twice the support, of which order seldom tells all.

use super::group::{Block, Excess, Group, Rows};
use super::network::sort_eight;
use super::profile::Direct;
use super::turned::{self, NARROW};
use super::vector::{MAX_LANES, Vector, outlined};

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
        // Narrower rows are as quickly turned as they are put in order.
        if P::CROWDED == f32::INFINITY || rows.d <= 3 * V::LANES {
            turned::solve::<V, P, WRITE, false>(prof, rows, groups, rows.rows, true);
        } else {
            by_order_or_turned::<V, P, WRITE>(prof, rows, groups);
        }
        groups.iter().all(|group| group.bad | group.empty | group.alone == 0)
    }
}

/// # Safety
/// As [`solve_groups`], for rows of four vectors.
#[inline(always)]
unsafe fn by_order_or_turned<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, groups: &mut [Group]) {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut open = 0;
        // What is left in the groups is of the rows before.
        let mut crowd = is_crowd::<V>(&groups[groups.len() - 1..]);
        for (i, some) in groups.chunks_mut(SOME).enumerate() {
            let left = rows.rows - i * SOME * V::LANES;
            if crowd {
                turned::solve::<V, P, WRITE, false>(prof, rows, some, left.min(SOME * V::LANES), false);
            } else {
                by_order::<V, P, WRITE>(prof, rows, some, left);
            }
            crowd = is_crowd::<V>(some);
            open |= some.iter().fold(0, |open, group| open | group.active);
        }
        if open == 0 {
            return;
        }
        let mut some = [Group::NEW; SOME];
        loop {
            let n = take_out::<V>(groups, |group| group.active & !group.dense, &mut some);
            if n == 0 {
                break;
            }
            by_order::<V, P, WRITE>(prof, rows, &mut some[..n.div_ceil(V::LANES)], n);
            put_back::<V>(&some, n, groups);
        }
        loop {
            let n = take_out::<V>(groups, |group| group.active, &mut some);
            if n == 0 {
                break;
            }
            turned::solve::<V, P, WRITE, true>(prof, rows, &mut some, n, true);
            put_back::<V>(&some, n, groups);
        }
    }
}

/// Takes as many of some active rows as there is room for out of their groups and puts them together; how many.
fn take_out<V: Vector>(groups: &mut [Group], some: impl Fn(&Group) -> u32, to: &mut [Group; SOME]) -> usize {
    let mut n = 0;
    for group in groups {
        let mut left = some(group);
        while left != 0 && n < SOME * V::LANES {
            let k = left.trailing_zeros() as usize;
            left &= left - 1;
            group.active &= !(1 << k);
            to[n / V::LANES].at[n % V::LANES] = group.at[k];
            n += 1;
        }
    }
    n
}

/// Puts what is known of `n` rows that were put together where they came from.
fn put_back<V: Vector>(from: &[Group; SOME], n: usize, groups: &mut [Group]) {
    for i in 0..n {
        let (from, k) = (&from[i / V::LANES], i % V::LANES);
        let row = usize::from(from.at[k]);
        let (to, at) = (&mut groups[row / V::LANES], row % V::LANES);
        (to.hi[at], to.lo[at]) = (from.hi[k], from.lo[k]);
        to.active |= (from.active >> k & 1) << at;
        to.dense |= (from.dense >> k & 1) << at;
    }
}

/// Whether most rows of each group are crowded.
fn is_crowd<V: Vector>(groups: &[Group]) -> bool {
    groups.iter().all(|group| group.dense.count_ones() as usize > V::LANES / 2)
}

/// The first way, for the first `left` rows of one or two groups. What it leaves open stays active, and is dense.
///
/// # Safety
/// As [`solve_groups`], for rows of four vectors.
#[inline(always)]
unsafe fn by_order<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, groups: &mut [Group], left: usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        if rows.d == 4 * V::LANES {
            by_order_of::<V, P, WRITE, true>(prof, rows, groups, left);
        } else {
            by_order_of::<V, P, WRITE, false>(prof, rows, groups, left);
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
) {
    // SAFETY: as the caller vouches; a block holds a vector for each lane.
    unsafe {
        let (scale, zero) = (V::splat(rows.scale), V::splat(0.0));
        let mut gaps = [[Block::uninit(); 2]; SOME];
        let mut third = [zero; SOME];
        let here = |g: usize| (left - g * V::LANES).min(V::LANES);
        for (g, group) in groups.iter_mut().enumerate() {
            third[g] = survey::<V, WHOLE>(&rows, here(g), group, gaps[g].as_mut_ptr().cast());
        }
        for (g, group) in groups.iter_mut().enumerate() {
            let gaps = gaps[g].as_mut_ptr().cast::<f32>();
            group.dense = group.active & crowded_gaps::<V, P>(|k| V::load(gaps.add(k * V::LANES)));
            if group.active != group.dense {
                let (t, step, missed) = solve::<V, P>(prof, gaps, &rows);
                group.dense |= group.active & (missed | V::bits(t.gt(third[g])));
                group.put_below(zero.sub(t), step, scale);
            }
        }
        for (g, group) in groups.iter_mut().enumerate() {
            if WRITE && group.active != group.dense {
                for r in 0..here(g) {
                    write::<V, P, WHOLE>(prof, &rows, group, r);
                }
            }
            group.active &= group.dense;
        }
    }
}

/// The two largest entries of every lane of the first `here` rows, as distances from the maxima of their rows,
/// and the least distance of all that come third. Rows are told apart by what they are fit for.
///
/// # Safety
/// As [`by_order`]; `gaps` is writable for `2·LANES` vectors.
#[inline(always)]
unsafe fn survey<V: Vector, const WHOLE: bool>(rows: &Rows, here: usize, group: &mut Group, gaps: *mut f32) -> V {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane.
    unsafe {
        let (mut largest, mut thirds) = ([Block::uninit(); 2], Block::uninit());
        let (largest, thirds) = (largest.as_mut_ptr().cast::<f32>(), thirds.as_mut_ptr());
        let (size, none, scale) = (V::LANES * V::LANES, V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let mut nan = none.unordered(none);
        for r in 0..V::LANES {
            let z = rows.z.add(usize::from(group.at[if r < here { r } else { 0 }]) * rows.d);
            let [a, b, c, e] = row::<V, WHOLE>(z, rows.d);
            for k in 0..4 {
                // What the next groups will read is on its way while these are worked on.
                V::prefetch(z.wrapping_add(SOME * V::LANES * rows.d + k * V::LANES));
            }
            nan = V::or(nan, V::or(a.unordered(b), c.unordered(e)));
            let (ab, ce) = (a.max(b), c.max(e));
            // In the middle are the lesser of the two winners and the better of the two losers.
            let (x, y) = (ab.min(ce), a.min(b).max(c.min(e)));
            ab.max(ce).store(largest.add(r * V::LANES));
            x.max(y).store(largest.add(size + r * V::LANES));
            x.min(y).store(thirds.add(r * V::LANES));
        }
        // Which row it is in is asked only if there is one.
        let bad = if V::bits(nan) == 0 { 0 } else { with_nan(rows, &group.at[..here]) };
        V::transpose(largest, V::LANES, gaps);
        V::transpose(largest.add(size), V::LANES, gaps.add(size));
        let max = group.meet((bad, 0), here, (gaps, V::LANES), scale);
        for gap in (0..2 * V::LANES).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(scale).store(gap);
        }
        max.sub(V::row_maxima(thirds)).mul(scale)
    }
}

/// Which of some rows hold a NaN, one bit each.
///
/// # Safety
/// The rows are readable.
#[cold]
unsafe fn with_nan(rows: &Rows, some: &[u16]) -> u32 {
    some.iter().enumerate().fold(0, |bad, (r, at)| {
        // SAFETY: as the caller vouches.
        let row = unsafe { std::slice::from_raw_parts(rows.z.add(usize::from(*at) * rows.d), rows.d) };
        bad | u32::from(row.iter().any(|z| z.is_nan())) << r
    })
}

/// A row of four vectors, the last of which may be a part of one; behind its end is `−inf`.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn row<V: Vector, const WHOLE: bool>(z: *const f32, d: usize) -> [V; 4] {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let last = z.add(3 * V::LANES);
        let last = if WHOLE { V::load(last) } else { V::load_first(last, d - 3 * V::LANES, f32::NEG_INFINITY) };
        [V::load(z), V::load(z.add(V::LANES)), V::load(z.add(2 * V::LANES)), last]
    }
}

/// Rows whose largest entries, of every lane, are so near to the maximum that order is not likely to tell all, one bit
/// each. Lane by lane they are `fours`, as in `turned.rs`.
///
/// # Safety
/// `fours` is readable for `LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn crowded<V: Vector, P: Direct>(fours: *const f32, max: V, scale: V) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe { crowded_gaps::<V, P>(|k| max.sub(V::load(fours.add(k * V::LANES))).mul(scale)) }
}

/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn crowded_gaps<V: Vector, P: Direct>(gap: impl Fn(usize) -> V) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let (mut sums, one) = ([V::splat(0.0); 4], V::splat(1.0));
        for k in (0..V::LANES).step_by(4) {
            for j in 0..4 {
                // Whatever is farther off than 1 is out of reach, and so is what a row lacks.
                sums[j] = sums[j].add(gap(k + j).order(one).0);
            }
        }
        let sum = sums[0].add(sums[1]).add(sums[2].add(sums[3]));
        V::bits(V::splat(P::CROWDED * V::LANES as f32).gt(sum))
    }
}

/// `−τ` by order, the step that takes what rounding has left, and the rows of which order does not tell all, one bit each.
///
/// # Safety
/// `gaps` is readable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn solve<V: Vector, P: Direct>(prof: P, gaps: *const f32, rows: &Rows) -> (V, V, u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let eight = |from: usize| std::array::from_fn(|j| V::load(gaps.add((from + j) * V::LANES)));
        let (mut y, mut next): ([V; RANKS], [V; RANKS]) = (eight(0), eight(RANKS));
        let (mut second, mut lesser): ([V; RANKS], [V; RANKS]) = (eight(2 * RANKS), eight(3 * RANKS));
        for j in 0..RANKS {
            (second[j], lesser[j]) = second[j].order(lesser[j]);
        }
        sort(&mut y);
        sort(&mut next);
        sort(&mut second);
        merge(&mut y, &next);
        merge(&mut y, &second);
        let lesser = least(lesser);
        let (one, bit, zero) = (V::splat(rows.one), V::splat(rows.bit), V::splat(0.0));
        let t = prof.by_rank(&y, one);
        let (mut f, mut g) = ([zero; 2], [zero; 2]);
        for k in (0..RANKS).step_by(2) {
            for j in 0..2 {
                let u = t.sub(y[k + j]).positive();
                (f[j], g[j]) = prof.take(u, f[j], g[j], bit);
            }
        }
        let step = prof.step(f[0].add(f[1]), prof.taken(g[0]).add(prof.taken(g[1])));
        (t, step, V::bits(V::or(t.gt(lesser), t.gt(y[RANKS - 1]))))
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

/// The smallest of all.
#[inline(always)]
fn least<V: Vector>(y: [V; RANKS]) -> V {
    let least = |j: usize| y[j].order(y[j + 1]).0;
    least(0).order(least(2)).0.order(least(4).order(least(6)).0).0
}

/// Writes the probabilities of row `r` of a group.
///
/// # Safety
/// The row is readable and writable, of four vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const WHOLE: bool>(prof: P, rows: &Rows, group: &Group, r: usize) {
    // SAFETY: every access stays within the row.
    unsafe {
        let start = usize::from(group.at[r]) * rows.d;
        let (excess, out) = (Excess::<V>::new(rows, group, r), rows.out.add(start));
        let p = row::<V, WHOLE>(rows.z.add(start), rows.d).map(|z| prof.power(excess.of(z)));
        for k in 0..3 {
            p[k].store(out.add(k * V::LANES));
        }
        let last = out.add(3 * V::LANES);
        if WHOLE { p[3].store(last) } else { p[3].store_first(last, rows.d - 3 * V::LANES) }
    }
}
