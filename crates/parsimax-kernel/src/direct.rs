//! Sparsemax and 1.5-entmax on short rows: few looks at whole rows, and no list.
//!
//! Plainly, for each row: maximum, a lower bound on τ, Newton steps, write `[x − τ]₊^e`. Where a term costs five
//! instructions, gathering the candidates of a row of 64 costs more than it saves, and on dense rows it saves nothing. So
//! whole rows are looked at, and what comes between two looks is done for `LANES` rows at once, one row per lane.
//!
//! 1. Where lanes are many, narrow rows go by order, too, or by looks at all their entries that waste nothing between them
//!    (`quarters.rs`, `looks.rs`); where they are few, their largest entries are found, and Newton steps made on these.
//! 2. Of rows of middling width the order of the two largest entries of every lane tells the threshold, and the pass that
//!    writes whether that was all (`ordered.rs`); of wider ones only the vectors that matter are looked at again (`peaks.rs`).
//! 3. What is left goes by passes, put together so that no lane is idle, as many rows as the first-level cache holds
//!    (`refine.rs`); of wide ones, by fewer, which begin from a sample (`crowded.rs`).
//!
//! What becomes of a row does not depend on its neighbours.

use super::group::{Block, Group, Rows};
use super::profile::{Direct, Tau};
use super::refine::{first_guesses, refine};
use super::scan::lane_maxima;
use super::solve::Frame;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense};
use super::{Forward, Status, crowded, long, ordered, peaks, quarters, ranked};

/// Width from which on it is worth to look for rows with few candidates.
const WIDE: usize = 128;

/// Widest row that is served.
pub(super) const WIDEST: usize = 4096;

/// Most groups of `LANES` rows that go through the steps together: what one waits for, the others
/// fill with work.
pub(super) const GROUPS: usize = 4;

/// Floats of rows that go by passes together, so that they stay in the first-level cache beside what is written.
/// Lanes that this leaves empty cost less than a second look that waits.
const ROOM: usize = 6144;

/// Floats that rows of middling width may have together, so that they stay in the second-level cache.
const MANY: usize = 65_536;

/// How many rows of width `d` go through the steps together.
fn together<V: Vector>(d: usize) -> usize {
    if peaks::serves(d) {
        return (MANY / d / V::LANES).clamp(1, GROUPS) * V::LANES;
    }
    let rows = ROOM / d;
    if rows < V::LANES { rows } else { V::LANES * (rows / V::LANES).min(GROUPS) }
}

/// The share of the lanes with an entry in the support from which on a row counts as dense.
const CROWDED: f32 = 0.77;

/// The same of the two largest entries of every lane, where the other way is to look at few vectors of many.
const PACKED: f32 = 0.9;

/// Forward pass of a block of short rows. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector, P: Direct>(prof: P, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    // SAFETY: as the caller vouches.
    unsafe {
        // Kept from call to call: they are as many bytes as some rows.
        let mut kept = std::mem::take(&mut job.scratch.groups);
        let groups = kept.get_or_insert_with(|| Box::new([Group::NEW; quarters::GROUPS]));
        for (i, group) in groups.iter_mut().enumerate() {
            group.at = std::array::from_fn(|k| (i * V::LANES + k) as u16);
        }
        let (solve, many): (Solve<P>, _) = match (quarters::serves::<V>(job.d), peaks::serves(job.d), &loss) {
            (true, _, None) => (quarters::solve_groups::<V, P, true>, quarters::GROUPS * V::LANES),
            (true, _, Some(_)) => (quarters::solve_groups::<V, P, false>, quarters::GROUPS * V::LANES),
            (_, true, None) => (solve_wide::<V, P, true>, together::<V>(job.d)),
            (_, true, Some(_)) => (solve_wide::<V, P, false>, together::<V>(job.d)),
            (_, _, None) => (solve_groups::<V, P, true>, together::<V>(job.d)),
            (_, _, Some(_)) => (solve_groups::<V, P, false>, together::<V>(job.d)),
        };
        blocks::<V, P>(prof, job, loss, many, solve, groups);
        job.scratch.groups = kept;
    }
}

/// Thresholds of a block of rows, and their probabilities if no loss is wanted; whether all are fit.
type Solve<P> = unsafe fn(P, Rows, *mut [Group; quarters::GROUPS]) -> bool;

/// Solves `many` rows at a time, and sees to what is wanted beside probabilities, and to rows that are not fit.
///
/// # Safety
/// As [`forward`]; the groups have room for `many` rows.
unsafe fn blocks<V: Vector, P: Direct>(
    prof: P,
    job: &mut Forward<'_>,
    loss: Option<(f32, &mut [RowSum])>,
    many: usize,
    solve: Solve<P>,
    groups: &mut [Group; quarters::GROUPS],
) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (gain, mut sums) = loss.unzip();
    let rows = job.status.len();
    let (one, bit) = std::hint::black_box((1.0f32, f32::from_bits(1)));
    for first in (0..rows).step_by(many) {
        let here = (rows - first).min(many);
        // SAFETY: `here` rows of `d` floats start at row `first`.
        unsafe {
            let z = job.z.as_ptr().add(first * d);
            let out = job.out.as_mut_ptr().add(first * d);
            let block = Rows { z, out, d, rows: here, scale, one, bit };
            let plain = solve(prof, block, groups);
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
        groups: *mut [Group; quarters::GROUPS],
    ) -> bool => solve_groups_any
}

/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn solve_groups_any<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group; quarters::GROUPS],
) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { solve_any::<V, P, WRITE, false>(prof, rows, groups) }
}

outlined! {
    /// The same for rows that `peaks.rs` serves: apart, because it takes much of the stack.
    ///
    /// # Safety
    /// As [`solve_groups`].
    unsafe fn solve_wide<V, P: Direct; WRITE>(
        prof: P,
        rows: Rows,
        groups: *mut [Group; quarters::GROUPS],
    ) -> bool => solve_wide_any
}

/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn solve_wide_any<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group; quarters::GROUPS],
) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { solve_any::<V, P, WRITE, true>(prof, rows, groups) }
}

/// [`solve_groups`], or [`solve_wide`] if `PEAKS`.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn solve_any<V: Vector, P: Direct, const WRITE: bool, const PEAKS: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group; quarters::GROUPS],
) -> bool {
    // SAFETY: rows and buffers are in bounds as the caller vouches.
    unsafe {
        let groups = &mut (&mut *groups)[..rows.rows.div_ceil(V::LANES)];
        let mut gaps = [Block::uninit(); 2 * GROUPS];
        let (gaps, size) = (gaps.as_mut_ptr().cast::<f32>(), 2 * V::LANES * V::LANES);
        for (g, group) in groups.iter_mut().enumerate() {
            let gaps = gaps.add(g * size);
            if PEAKS {
                peaks::settle::<V, P, WRITE>(prof, rows, g * V::LANES, group, gaps);
            } else if rows.d >= WIDE {
                ordered::settle::<V, P, WRITE>(prof, rows, g * V::LANES, group, gaps);
            } else {
                survey::<V>(rows.from(g * V::LANES), group, gaps);
            }
        }
        first_guesses::<V, P>(prof, rows, groups, gaps, tops::<V>(rows.d));
        let (mut unfit, mut late, mut most) = (0, 0, 0);
        for (g, group) in groups.iter().enumerate() {
            unfit |= group.bad | group.empty | group.alone;
            late += group.active.count_ones();
            most += (rows.rows - g * V::LANES).min(V::LANES) as u32;
        }
        let room = (ROOM / rows.d).max(1);
        if late == most && most as usize <= room {
            to_the_end::<V, P, WRITE>(prof, rows, groups);
        } else if late > 0 {
            let mut active = [0; GROUPS * MAX_LANES];
            let active = list(groups, V::LANES, &mut active);
            for some in active.chunks(room.min(GROUPS * V::LANES)) {
                let mut put_together = [Group::NEW; GROUPS];
                gather::<V>(groups, some, &mut put_together);
                let put_together = &mut put_together[..some.len().div_ceil(V::LANES)];
                to_the_end::<V, P, WRITE>(prof, rows, put_together);
                scatter::<V>(put_together, some, groups);
            }
        }
        unfit == 0
    }
}

/// What is left of some groups, by passes.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn to_the_end<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, groups: &mut [Group]) {
    // SAFETY: as the caller vouches.
    unsafe {
        if rows.d >= crowded::WIDE {
            crowded::refine::<V, P, WRITE>(prof, rows, groups);
        } else {
            refine::<V, P, WRITE>(prof, rows, groups);
        }
    }
}

/// Lists the rows that are still active.
fn list<'a>(groups: &[Group], lanes: usize, to: &'a mut [u16; GROUPS * MAX_LANES]) -> &'a [u16] {
    let mut n = 0;
    for (g, group) in groups.iter().enumerate() {
        let mut left = group.active;
        while left != 0 {
            to[n] = (g * lanes) as u16 + left.trailing_zeros() as u16;
            left &= left - 1;
            n += 1;
        }
    }
    &to[..n]
}

/// Puts some rows together.
pub(super) fn gather<V: Vector>(groups: &[Group], rows: &[u16], to: &mut [Group; GROUPS]) {
    for (n, row) in rows.iter().enumerate() {
        let (group, k) = (&groups[usize::from(*row) / V::LANES], usize::from(*row) % V::LANES);
        let (to, i) = (&mut to[n / V::LANES], n % V::LANES);
        (to.at[i], to.max[i]) = (*row, group.max[k]);
        (to.hi[i], to.lo[i]) = (group.hi[k], group.lo[k]);
        to.far |= group.far;
        to.active |= 1 << i;
    }
}

/// Puts the thresholds of rows that were put together where they came from.
pub(super) fn scatter<V: Vector>(from: &[Group], rows: &[u16], groups: &mut [Group]) {
    for (i, row) in rows.iter().enumerate() {
        let (group, k) = (&from[i / V::LANES], i % V::LANES);
        let (to, row) = (&mut groups[usize::from(*row) / V::LANES], usize::from(*row) % V::LANES);
        (to.hi[row], to.lo[row]) = (group.hi[k], group.lo[k]);
    }
}

/// How many vectors of maxima a group has to begin with: of eight lanes, two vectors tell more.
fn tops<V: Vector>(d: usize) -> usize {
    if V::LANES < MAX_LANES && d < WIDE { 2 * V::LANES } else { V::LANES }
}

/// Maxima of the first `LANES` rows, and the distances of the largest entries of their lanes from them, into `gaps`.
///
/// # Safety
/// The rows are readable, `gaps` is writable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn survey<V: Vector>(rows: Rows, group: &mut Group, gaps: *mut f32) {
    // SAFETY: as the caller vouches; the blocks hold two vectors for each lane.
    unsafe {
        let (none, scale) = (V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let mut largest = [Block::uninit(); 2];
        let largest = largest.as_mut_ptr().cast::<f32>();
        let (size, here, tops) = (V::LANES * V::LANES, rows.rows.min(V::LANES), tops::<V>(rows.d));
        let mut bad = 0u32;
        for r in 0..V::LANES {
            let mut two = [none; 2];
            if r < here {
                let nan;
                let z = rows.z.add(r * rows.d);
                if tops == V::LANES {
                    (two[0], nan) = lane_maxima::<V>(z, rows.d);
                } else {
                    (two, nan) = two_maxima::<V>(z, rows.d);
                }
                bad |= u32::from(nan) << r;
            }
            two[0].store(largest.add(r * V::LANES));
            if tops > V::LANES {
                two[1].store(largest.add(size + r * V::LANES));
            }
        }
        for at in (0..tops / V::LANES).map(|part| part * size) {
            V::transpose(largest.add(at), V::LANES, gaps.add(at));
        }
        let max = group.meet((bad, 0), here, (gaps, tops), scale);
        for gap in (0..tops).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(scale).store(gap);
        }
        group.dense = group.active;
    }
}

/// Rows in which most of the two largest entries of all lanes are in the support, likewise.
///
/// # Safety
/// `gaps` is readable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn crowded<V: Vector>(gaps: *const f32) -> u32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut sums = [V::splat(1.0), V::splat(0.0), V::splat(0.0), V::splat(0.0)];
        for k in (0..2 * V::LANES).step_by(4) {
            for j in 0..4 {
                sums[j] = sums[j].add(V::load(gaps.add((k + j) * V::LANES)));
            }
        }
        let share = V::splat(0.5 / V::LANES as f32);
        let t = sums[0].add(sums[1]).add(sums[2].add(sums[3])).mul(share);
        let many = above::<V>(gaps, t).add(above::<V>(gaps.add(V::LANES * V::LANES), t));
        V::bits(many.gt(V::splat(2.0 * PACKED * V::LANES as f32)))
    }
}

/// Rows in which most lanes have an entry of the support, one bit each, by the threshold that all their largest entries
/// would have: it is not too high.
///
/// # Safety
/// `gaps` is readable for `LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn dense<V: Vector>(gaps: *const f32) -> u32 {
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
