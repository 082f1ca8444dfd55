//! Sparsemax and 1.5-entmax on short rows: few looks at whole rows, and no list.
//!
//! Plainly, for each row: maximum, a lower bound on τ, Newton steps, write `[x − τ]₊^e`. Where a term costs five
//! instructions, gathering the candidates of a row of 64 costs more than it saves, and on dense rows it saves nothing. So
//! whole rows are looked at, and what comes between two looks is done for `LANES` rows at once, one row per lane.
//!
//! 1. Of a wide row, the two largest entries of every lane, and from their order the threshold that these alone have
//!    (`ranked.rs`): a lower bound, and τ itself unless three of the support share a lane, which on scattered scores is the
//!    exception. Of a narrow or dense row, the largest entries, and Newton steps on them (`refine.rs`).
//! 2. Where order has told enough, the next look writes, and counts. A row with as many entries above the threshold as
//!    there were among the largest ones is done: they are the same ones.
//! 3. What is left of wide rows is solved on a list, if that is short (`picked.rs`).
//! 4. Other rows go by passes over them, put together so that no lane is idle (`refine.rs`); the widest go to `long.rs`.
//!
//! Narrow rows go another way altogether where lanes are many (`turned.rs`). What becomes of a row does not depend on its neighbours.

use super::group::{Block, Excess, Group, Rows};
use super::profile::{Direct, Tau};
use super::refine::{first_guesses, refine};
use super::scan::lane_maxima;
use super::solve::Frame;
use super::sweep::LARGE;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense};
use super::{Forward, Status, long, picked, ranked, short, turned};

/// Width from which on it is worth to look for rows with few candidates.
const WIDE: usize = 128;

/// Widest row that is served.
pub(super) const WIDEST: usize = 4096;

/// Most groups of `LANES` rows that go through the steps together: what one waits for, the others
/// fill with work.
pub(super) const GROUPS: usize = 4;

/// Floats that the rows of such groups may have, so that they stay in the first-level cache.
const ROOM: usize = 4096;

/// Floats that the rows of one group may have. Wider rows leave lanes empty: what is done for all lanes at once is
/// little beside such rows, and a second look at them is not to wait for a far cache.
const GROUP_ROOM: usize = 16_384;

/// How many rows of width `d` go through the steps together.
fn together<V: Vector>(d: usize) -> usize {
    if V::LANES * d <= GROUP_ROOM {
        V::LANES * (ROOM / (V::LANES * d)).clamp(1, GROUPS)
    } else {
        (GROUP_ROOM / d).clamp(1, V::LANES)
    }
}

/// The share of the lanes with an entry in the support from which on a row counts as dense.
const CROWDED: f32 = 0.77;

/// Vectors of a long row that tell whether it is.
const SAMPLE: usize = 8;

/// Forward pass of a block of short rows. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector, P: Direct>(prof: P, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (gain, mut sums) = loss.unzip();
    let rows = job.status.len();
    let many = together::<V>(d);
    let mut groups = [Group::NEW; GROUPS];
    for (i, group) in groups.iter_mut().enumerate() {
        group.at = std::array::from_fn(|k| (i * V::LANES + k) as u16);
    }
    let one = std::hint::black_box(1.0f32);
    for first in (0..rows).step_by(many) {
        let here = (rows - first).min(many);
        // SAFETY: `here` rows of `d` floats start at row `first`.
        unsafe {
            let z = job.z.as_ptr().add(first * d);
            let out = job.out.as_mut_ptr().add(first * d);
            let block = Rows { z, out, d, rows: here, scale, one };
            let plain = match (gain, turned::serves::<V>(d)) {
                (None, true) => turned::solve_groups::<V, P, true>(prof, block, &raw mut groups),
                (Some(_), true) => turned::solve_groups::<V, P, false>(prof, block, &raw mut groups),
                (None, false) => solve_groups::<V, P, true>(prof, block, &raw mut groups),
                (Some(_), false) => solve_groups::<V, P, false>(prof, block, &raw mut groups),
            };
            if plain && gain.is_none() && job.tau.is_none() {
                job.status[first..first + here].fill(Status::Ok);
                continue;
            }
            for r in 0..here {
                let (group, k) = (&groups[r / V::LANES], r % V::LANES);
                let (max, tau) = (group.max[k], f64::from(group.hi[k]) + f64::from(group.lo[k]));
                let top = f64::from(scale) * f64::from(max);
                let tau = if V::FUSED { tau - top } else { tau };
                let status = Status::from_flags(group.bad >> k & 1 == 1, group.empty >> k & 1 == 1);
                job.status[first + r] = status;
                if status == Status::Ok && group.alone >> k & 1 == 1 {
                    long::one_row::<V, P, P>((prof, prof), job, first + r, gain, sums.as_deref_mut());
                    continue;
                }
                if let Some(t) = job.tau.as_deref_mut() {
                    t[first + r] = status.tau(top + tau);
                }
                let (z, out) = (z.add(r * d), out.add(r * d));
                if status != Status::Ok {
                    std::slice::from_raw_parts_mut(out, d).fill(status.fill());
                } else if let Some(sums) = sums.as_deref_mut() {
                    let pu = any_dense::<V, P>(prof, z, (out, false), d, Frame { max, scale }, Tau::new(tau), gain);
                    sums[first + r] = RowSum { max, tau, pu };
                }
            }
        }
    }
}

outlined! {
    /// Thresholds of at most `GROUPS · LANES` rows, and their probabilities if `WRITE`; whether all are
    /// fit.
    ///
    /// # Safety
    /// The rows are readable and writable, `groups` is writable; the CPU has the instruction set of `V`.
    unsafe fn solve_groups<V, P: Direct; WRITE>(
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
        let mut gaps = [Block::uninit(); 2 * GROUPS];
        let (gaps, size) = (gaps.as_mut_ptr().cast::<f32>(), 2 * V::LANES * V::LANES);
        for (g, group) in groups.iter_mut().enumerate() {
            survey::<V, P>(prof, rows.from(g * V::LANES), group, gaps.add(g * size));
        }
        first_guesses::<V, P>(prof, rows, groups, gaps, tops::<V, P>(rows.d));
        for (g, group) in groups.iter_mut().enumerate().filter(|_| rows.d >= WIDE) {
            group.few &= few::<V>(gaps.add(g * size), V::splat(0.0).sub(group.below(V::splat(rows.scale))));
        }
        let (mut unfit, mut late, mut most) = (0, 0, 0);
        for (g, group) in groups.iter_mut().enumerate() {
            let here = rows.from(g * V::LANES);
            if group.active & group.ordered != 0 {
                settle_ordered::<V, P, WRITE>(prof, here, group);
            }
            if rows.d >= WIDE && group.active & group.few != 0 {
                settle_few::<V, P, WRITE>(prof, here, group);
            }
            if rows.d > short::SHORT {
                group.alone |= group.active;
                group.active = 0;
            }
            unfit |= group.bad | group.empty | group.alone;
            late += group.active.count_ones();
            most += here.rows.min(V::LANES) as u32;
        }
        if late == most {
            refine::<V, P, WRITE>(prof, rows, groups);
        } else if late > 0 {
            let mut put_together = [Group::NEW; GROUPS];
            gather::<V>(groups, &mut put_together);
            let put_together = &mut put_together[..(late as usize).div_ceil(V::LANES)];
            refine::<V, P, WRITE>(prof, rows, put_together);
            scatter::<V>(put_together, late as usize, groups);
        }
        unfit == 0
    }
}

/// Puts the rows that are still active together.
fn gather<V: Vector>(groups: &[Group], to: &mut [Group; GROUPS]) {
    let mut n = 0;
    for group in groups {
        let mut left = group.active;
        while left != 0 {
            let (k, i) = (left.trailing_zeros() as usize, n % V::LANES);
            left &= left - 1;
            let to = &mut to[n / V::LANES];
            (to.at[i], to.max[i]) = (group.at[k], group.max[k]);
            (to.hi[i], to.lo[i]) = (group.hi[k], group.lo[k]);
            to.far |= group.far;
            to.active |= 1 << i;
            n += 1;
        }
    }
}

/// Puts the thresholds of `n` rows that were put together where they came from.
fn scatter<V: Vector>(from: &[Group], n: usize, groups: &mut [Group]) {
    for i in 0..n {
        let (group, k) = (&from[i / V::LANES], i % V::LANES);
        let row = usize::from(group.at[k]);
        let to = &mut groups[row / V::LANES];
        (to.hi[row % V::LANES], to.lo[row % V::LANES]) = (group.hi[k], group.lo[k]);
    }
}

/// How many vectors of maxima a group has to begin with: of eight lanes, two vectors tell more.
fn tops<V: Vector, P: Direct>(d: usize) -> usize {
    if V::LANES < MAX_LANES && !by_order::<P>(d) { 2 * V::LANES } else { V::LANES }
}

/// Maxima of the first `LANES` rows, the distances of the largest entries of their lanes from them, into `gaps`, and what
/// the order of those tells.
///
/// # Safety
/// The rows are readable, `gaps` is writable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn survey<V: Vector, P: Direct>(prof: P, rows: Rows, group: &mut Group, gaps: *mut f32) {
    // SAFETY: as the caller vouches; the blocks hold two vectors for each lane.
    unsafe {
        let (zero, none, scale) = (V::splat(0.0), V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let mut largest = [Block::uninit(); 2];
        let largest = largest.as_mut_ptr().cast::<f32>();
        let (size, here) = (V::LANES * V::LANES, rows.rows.min(V::LANES));
        let (tops, by_order) = (tops::<V, P>(rows.d), by_order::<P>(rows.d));
        let (mut bad, mut crowded) = (0u32, 0u32);
        for r in 0..V::LANES {
            let (mut two, mut nan) = ([none; 2], false);
            if r < here {
                let z = rows.z.add(r * rows.d);
                if rows.d > short::SHORT && is_crowded::<V>(z, rows.d, rows.scale) {
                    crowded |= 1 << r;
                } else if by_order {
                    (two, nan) = ranked::two_largest::<V>(z, rows.d);
                } else if tops == V::LANES {
                    (two[0], nan) = lane_maxima::<V>(z, rows.d);
                } else {
                    (two, nan) = two_maxima::<V>(z, rows.d);
                }
                bad |= u32::from(nan) << r;
            }
            two[0].store(largest.add(r * V::LANES));
            if by_order || tops > V::LANES {
                two[1].store(largest.add(size + r * V::LANES));
            }
        }
        for at in (0..tops / V::LANES).map(|part| part * size) {
            V::transpose(largest.add(at), V::LANES, gaps.add(at));
        }
        let mut max = [V::load(gaps), V::load(gaps.add(V::LANES))];
        for k in (2..tops).step_by(2) {
            for j in 0..2 {
                max[j] = V::load(gaps.add((k + j) * V::LANES)).max(max[j]);
            }
        }
        let max = max[0].max(max[1]);
        group.bad = bad | V::bits(max.ge(V::splat(f32::INFINITY)));
        group.empty = V::bits(none.ge(max)) & !crowded;
        group.alone = crowded | V::bits(max.max(zero.sub(max)).mul(scale).ge(V::splat(LARGE)));
        group.active = !(group.bad | group.empty | group.alone) & ((1u64 << here) - 1) as u32;
        // A maximum of −inf would turn differences into NaN; with 0 they stay infinite.
        let max = max.select(max.gt(none), zero);
        max.store(group.max.as_mut_ptr());
        V::splat(f32::INFINITY).store(group.before.as_mut_ptr());
        for gap in (0..tops).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(scale).store(gap);
        }
        group.dense = group.active & if by_order { dense::<V>(gaps) } else { u32::MAX };
        (group.ordered, group.few, group.far) = (group.active & !group.dense, group.active, false);
        if group.ordered != 0 {
            V::transpose(largest.add(size), V::LANES, gaps.add(size));
            for gap in (V::LANES..2 * V::LANES).map(|j| gaps.add(j * V::LANES)) {
                max.sub(V::load(gap)).mul(scale).store(gap);
            }
            let ranked = ranked::solve::<V, P>(prof, gaps, V::splat(rows.one));
            ranked.count.store(group.count.as_mut_ptr());
            // With many of them in the support, there are others.
            group.ordered &= V::bits(V::splat(P::ORDERED).gt(ranked.count));
            group.put_below(ranked.hi, ranked.lo, scale);
        }
    }
}

/// Whether order tells enough: there are few entries in the support, or so many others that it is worth to know.
fn by_order<P: Direct>(d: usize) -> bool {
    if P::LOOKS_TWICE { d >= WIDE } else { d > short::SHORT }
}

/// Rows in which most lanes have an entry of the support, one bit each, by the threshold that all their largest entries
/// would have: it is not too high.
///
/// # Safety
/// `gaps` is readable for `LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn dense<V: Vector>(gaps: *const f32) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut sums = [V::splat(1.0), V::splat(0.0), V::splat(0.0), V::splat(0.0)];
        for k in (0..V::LANES).step_by(4) {
            for j in 0..4 {
                sums[j] = sums[j].add(V::load(gaps.add((k + j) * V::LANES)));
            }
        }
        let t = sums[0].add(sums[1]).add(sums[2].add(sums[3])).mul(V::splat(1.0 / V::LANES as f32));
        V::bits(above::<V>(gaps, t).gt(V::splat(CROWDED * V::LANES as f32)))
    }
}

/// Whether some vectors of a long row tell that it is dense, before anything else is asked of it.
///
/// # Safety
/// `z` is readable for `d` floats, at least [`SAMPLE`] vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn is_crowded<V: Vector>(z: *const f32, d: usize, scale: f32) -> bool {
    // SAFETY: the last vector ends within the row.
    unsafe {
        let (stride, zero) = ((d - V::LANES) / (SAMPLE - 1), V::splat(0.0));
        let mut most = [V::splat(f32::NEG_INFINITY); 2];
        for k in (0..SAMPLE).step_by(2) {
            for j in 0..2 {
                most[j] = V::load(z.add((k + j) * stride)).max(most[j]);
            }
        }
        let most = most[0].max(most[1]);
        let gaps = V::splat(most.reduce_max()).sub(most).mul(V::splat(scale));
        let t = (1.0 + gaps.totals(zero).0) / V::LANES as f32;
        V::bits(V::splat(t).gt(gaps)).count_ones() as f32 > CROWDED * V::LANES as f32
    }
}

/// How many lanes have their largest entry above `−t`.
///
/// # Safety
/// As [`dense`].
#[inline(always)]
unsafe fn above<V: Vector>(gaps: *const f32, t: V) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut lanes = [V::splat(0.0); 4];
        for k in (0..V::LANES).step_by(4) {
            for j in 0..4 {
                lanes[j] = lanes[j].tally(t.gt(V::load(gaps.add((k + j) * V::LANES))));
            }
        }
        ranked::tallied(lanes)
    }
}

/// Rows with so few lanes in the support that a list may be short, given `t = −τ`: one bit each.
///
/// # Safety
/// `gaps` is readable for `LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn few<V: Vector>(gaps: *const f32, t: V) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe { V::bits(V::splat((V::LANES - V::LANES / 8) as f32 + 0.5).gt(above::<V>(gaps, t))) }
}

/// Looks at the rows that order has told enough of, and with `WRITE` writes them: those with as many entries in
/// the support as their largest ones have are settled.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn settle_ordered<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &mut Group) {
    // SAFETY: as the caller vouches; the block holds a vector for each lane.
    unsafe {
        let mut counts = Block::uninit();
        let counts = counts.as_mut_ptr().cast::<f32>();
        let wanted = group.active & group.ordered;
        if wanted.count_ones() < V::LANES as u32 {
            for r in 0..V::LANES {
                V::splat(0.0).store(counts.add(r * V::LANES));
            }
        }
        let mut left = wanted;
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            count_row::<V, P, WRITE>(prof, rows.from(r), group, r).store(counts.add(r * V::LANES));
        }
        let (found, expected) = (V::row_sums(counts), V::load(group.count.as_ptr()));
        let same = V::and(found.ge(expected), expected.ge(found));
        group.active &= !(V::bits(same) & wanted);
    }
}

/// How many entries of a row are above its threshold, lane by lane; with `WRITE`, writes it.
///
/// # Safety
/// The row is readable and writable; the CPU has the instruction set.
#[inline(always)]
unsafe fn count_row<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &Group, k: usize) -> V {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let Rows { z, out, d, .. } = rows;
        let (zero, excess) = (V::splat(0.0), Excess::<V>::new(&rows, group, k));
        let mut n = [zero; 4];
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            for k in 0..4 {
                let u = excess.of(V::load(z.add(i + k * V::LANES)));
                if WRITE {
                    prof.power(u).store(out.add(i + k * V::LANES));
                }
                n[k] = n[k].tally(u.gt(zero));
            }
            i += 4 * V::LANES;
        }
        while i < d {
            let len = (d - i).min(V::LANES);
            let u = excess.of(V::load_first(z.add(i), len, f32::NEG_INFINITY));
            if WRITE {
                if d >= V::LANES {
                    // The last vector overlaps the one before and writes the same numbers again.
                    let at = i + len - V::LANES;
                    prof.power(excess.of(V::load(z.add(at)))).store(out.add(at));
                } else {
                    prof.power(u).store_first(out, d);
                }
            }
            n[0] = n[0].tally(u.gt(zero));
            i += len;
        }
        ranked::tallied(n)
    }
}

/// Solves, and with `WRITE` writes, the rows of a group that have few candidates.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn settle_few<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &mut Group) {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let (max, scale) = (V::load(group.max.as_ptr()), V::splat(rows.scale));
        let Rows { z, out, d, .. } = rows;
        let (bound, wanted) = (group.below(scale), group.active & group.few);
        let of_group = picked::Rows { z, out, d, max, scale, bound, wanted };
        let (done, hi, lo) = picked::solve::<V, P, WRITE>(prof, &of_group);
        let before = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        group.put_below(hi, lo, scale);
        let is_done = V::lanes_of(done);
        let now = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        now.0.select(is_done, before.0).store(group.hi.as_mut_ptr());
        now.1.select(is_done, before.1).store(group.lo.as_mut_ptr());
        group.active &= !done;
    }
}

/// Two vectors of maxima that share no entry; whether there is a NaN.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn two_maxima<V: Vector>(z: *const f32, d: usize) -> ([V; 2], bool) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut m = [none; 2];
        let mut nan = none.unordered(none);
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            let (a, b) = (V::load(z.add(i)), V::load(z.add(i + V::LANES)));
            m = [a.max(m[0]), b.max(m[1])];
            nan = V::or(nan, a.unordered(b));
            i += 2 * V::LANES;
        }
        let mut k = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            m[k] = v.max(m[k]);
            nan = V::or(nan, v.unordered(v));
            i += n;
            k = 1;
        }
        (m, V::bits(nan) != 0)
    }
}
