//! α-entmax on rows of a few thousand scores, `LANES` of them abreast: scanned row by row, solved one row a lane.
//!
//! Plainly, for each row: the largest entries of its lanes, the threshold that these alone would have, the entries above
//! it, their own threshold, and their probabilities put into a row of zeros. Of some thousand scores of scale 1 a few
//! are left after the second step, and what is to be done with them is a chain of sums and powers, each waiting for the
//! one before: done for one row it takes longer than reading the row, done for `LANES` rows at once hardly more than for
//! one.
//!
//! Longer lists stay where they are, and only their sums are turned into lanes (`lists.rs`); so do rows with more than
//! [`MOST`] candidates for α < 2, which are written entry by entry in the end.
//!
//! The first threshold is a bound only as far as its steps went. But the lists are summed when they are written, and no
//! entry that was left out may be above the threshold that was found. A row that fails is solved by itself (`long.rs`).

use super::anchored::{Anchored, Place, TINY};
use super::finish::{Rows, finish};
use super::lists::{Lists, MOST, Powers, STRIDE, Weighed};
use super::long::{self, Habit};
use super::profile::{Profile, Slope};
use super::scan::{TILE, Zeros, collect_indexed, into_lanes, tile_maxima};
use super::settle::{Columns, Goal};
use super::sorted;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// Tiles of a row at most: one bit each.
const TILES: usize = 64;

/// Widest row that is served.
pub(super) const WIDEST: usize = TILES * TILE;

/// More tiles with candidates than this are worth a better bound.
const MANY_TILES: u32 = 20;

/// Tiles after which a row is given up if the others promise far too many candidates.
const GLANCE: usize = 8;

/// The mass that maxima are to share: a little more than 1, so that no entry is missed.
const SHARED: f32 = 1.05;

/// Steps on maxima, and at most on candidates.
const FIRST_STEPS: usize = 4;
const STEPS: usize = 16;

/// The maxima of the tiles of a row, and of every row.
type Heads = [[f32; TILES]; MAX_LANES];

/// What is known of a group of rows, one bit or number each.
#[derive(Default)]
struct Group {
    bad: u32,
    empty: u32,
    max: [f32; MAX_LANES],
    /// Rows whose probabilities are listed; the others that are fit are to be solved alone.
    lists: Weighed,
    listed: u32,
    /// Those with so many candidates that they are written entry by entry.
    crowded: u32,
}

/// Forward pass of a block of rows of at most [`WIDEST`] entries. `loss` as in `long::forward`, to which `profiles` go
/// with the rows that are to be solved alone.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `1 ≤ d ≤ WIDEST`, and the CPU has the instruction set
/// of `V`.
pub(crate) unsafe fn forward<V: Vector, B: Slope, P: Profile>(
    prof: Anchored,
    profiles: (B, P),
    job: &mut Forward<'_>,
    loss: Option<(f32, &mut [RowSum])>,
) {
    let (d, rows) = (job.d, job.status.len());
    let (gain, mut sums) = loss.unzip();
    for first in (0..rows).step_by(V::LANES) {
        let here = (rows - first).min(V::LANES);
        let zeros = job.scratch.habit.zeros(job.stream);
        // SAFETY: `here` rows of `d` floats start at row `first`; the lists have the room that a group asks for.
        unsafe {
            let lists = (job.scratch.floats(2 * V::LANES * STRIDE), job.scratch.positions(V::LANES * STRIDE));
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            let mut group = solve_group::<V>(prof, (z, out), (d, here), zeros, lists);
            let (mut exact, mut levels) = (0, group.lists.level.map(f64::from));
            if group.crowded != 0 {
                let rows = Rows { z, out, d, gain: gain.unwrap_or(1.0) };
                let places = (group.lists.from, group.lists.level);
                let done = match gain {
                    Some(_) => finish::<V, true>(&raw const prof, rows, group.crowded, places),
                    None => finish::<V, false>(&raw const prof, rows, group.crowded, places),
                };
                exact = done.exact & group.crowded;
                for r in (0..here).filter(|r| exact >> r & 1 == 1) {
                    (levels[r], group.lists.pu[r]) = (done.level[r], done.pu[r]);
                }
            }
            for r in 0..here {
                let status = Status::from_flags(group.bad >> r & 1 == 1, group.empty >> r & 1 == 1);
                job.status[first + r] = status;
                let row = std::slice::from_raw_parts_mut(out.add(r * d), d);
                let mut sum = RowSum { max: group.max[r], ..RowSum::default() };
                if status != Status::Ok {
                    row.fill(status.fill());
                } else if group.listed >> r & 1 == 1 {
                    if zeros == Zeros::None {
                        row.fill(0.0);
                    }
                    let list = (lists.0.add((V::LANES + r) * STRIDE), lists.1.add(r * STRIDE), group.lists.kept[r]);
                    put(list, row, gain);
                }
                if status == Status::Ok {
                    sum.pu = f64::from(group.lists.pu[r]);
                    let from = f64::from(group.lists.from[r]) - f64::from(sum.max);
                    sum.tau = f64::from(prof.scale) * from - levels[r];
                }
                if let Some(t) = job.tau.as_deref_mut() {
                    t[first + r] = status.tau(f64::from(prof.scale) * f64::from(sum.max) + sum.tau);
                }
                if let Some(sums) = sums.as_deref_mut() {
                    sums[first + r] = sum;
                }
            }
            let is_crowd = 2 * group.crowded.count_ones() as usize > here;
            job.scratch.habit = if is_crowd { Habit::CROWDED } else { Habit::default() };
            // Its list is the first.
            job.scratch.listed = (rows == 1 && group.listed == 1).then_some(group.lists.kept[0]);
            let alone = !(group.bad | group.empty | group.listed | exact);
            for r in (0..here).filter(|r| alone >> r & 1 == 1) {
                long::one_row::<V, B, P>(profiles, job, first + r, gain, sums.as_deref_mut());
            }
        }
    }
    if job.stream {
        V::fence();
    }
}

/// Puts a list into a row of zeros, times the gain.
///
/// # Safety
/// The list holds so many entries and places, which lie within the row.
unsafe fn put((p, place, n): (*mut f32, *mut u32, usize), row: &mut [f32], gain: Option<f32>) {
    let gain = gain.unwrap_or(1.0);
    for k in 0..n {
        // SAFETY: as the caller vouches.
        unsafe { *row.get_unchecked_mut(*place.add(k) as usize) = gain * *p.add(k) };
    }
}

outlined! {
    /// Thresholds and probabilities of a group of `here ≤ LANES` rows, these in lists behind the first `LANES` ones, and
    /// zeros in the rows.
    ///
    /// # Safety
    /// Rows are readable and writable for `here` rows of `d` floats; there is room for `2·LANES` lists; the CPU has the
    /// instruction set of `V`.
    unsafe fn solve_group<V>(
        prof: Anchored,
        rows: (*const f32, *mut f32),
        size: (usize, usize),
        zeros: Zeros,
        lists: (*mut f32, *mut u32),
    ) -> Group => solve_group_any
}

/// # Safety
/// As [`solve_group`].
#[inline(always)]
unsafe fn solve_group_any<V: Vector>(
    prof: Anchored,
    (z, out): (*const f32, *mut f32),
    (d, here): (usize, usize),
    zeros: Zeros,
    (list, index): (*mut f32, *mut u32),
) -> Group {
    // SAFETY: rows and lists are in bounds as the caller vouches.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let lanes = list.add(V::LANES * STRIDE);
        let mut group = Group::default();

        // 1. Maxima of lanes and of tiles, row by row, and then rows into lanes.
        let mut heads: Heads = [[f32::NEG_INFINITY; TILES]; MAX_LANES];
        let mut tops = [f32::NEG_INFINITY; MAX_LANES * MAX_LANES];
        for r in 0..here {
            let (m, nan) = survey::<V>((z.add(r * d), out.add(r * d)), d, zeros, &mut heads[r]);
            group.bad |= u32::from(nan) << r;
            m.store(tops.as_mut_ptr().add(r * V::LANES));
        }
        V::transpose(tops.as_ptr(), V::LANES, lanes);
        let (mut max, mut least) = (V::load(lanes), V::load(lanes));
        for j in 1..V::LANES {
            let next = V::load(lanes.add(j * V::LANES));
            (max, least) = (next.max(max), next.min(least));
        }
        group.bad |= V::bits(max.ge(V::splat(f32::INFINITY)));
        group.empty = V::bits(none.ge(max));
        let all = ((1u64 << here) - 1) as u32;
        // Maxima that are all equal tell nothing.
        let fit = !(group.bad | group.empty | V::bits(least.ge(max))) & all;
        let max = max.select(max.gt(none), zero);
        max.store(group.max.as_mut_ptr());

        // 2. What is left of the rows, and whence.
        let powers = Powers::new(prof);
        let Limits { place, cut, tiles } = limits::<V>(&powers, &heads, lanes, max, fit);
        let mut cuts = [0.0f32; MAX_LANES];
        cut.store(cuts.as_mut_ptr());

        // 3. Candidates, row by row.
        let (mut some, mut kept) = (fit, [0usize; MAX_LANES]);
        for r in (0..here).filter(|r| fit >> r & 1 == 1) {
            let to = (list.add(r * STRIDE), index.add(r * STRIDE));
            match collect_tiles::<V>((z.add(r * d), d), tiles[r], cuts[r], to) {
                Some(n) if n > 0 => kept[r] = n,
                _ => some &= !(1 << r),
            }
        }

        // 4. Their thresholds, in lanes or from lists, and their probabilities. No entry that was left out may be in the
        // support after all.
        let few = (0..here).fold(0, |rows, r| rows | u32::from(powers.is_few(kept[r])) << r) & some;
        let mut place = place;
        if few != 0 {
            let slots = (0..here).filter(|r| few >> r & 1 == 1).map(|r| kept[r]).max().unwrap_or(0);
            into_lanes::<V>(list, STRIDE, &kept, slots, lanes);
            place = last_place::<V>(&prof, (lanes, slots.next_multiple_of(2)), (max, place), &kept, few);
        }
        group.lists.kept = kept;
        place.from.store(group.lists.from.as_mut_ptr());
        place.level.store(group.lists.level.as_mut_ptr());
        let lists = Lists { z: list, p: lanes };
        if some & !few != 0 {
            powers.settle::<V>(lists, some & !few, 1.0, &mut group.lists);
        }
        group.listed = powers.weigh::<V>(lists, some, &mut group.lists);
        // Where too many are left, all of the row takes part.
        group.crowded = if powers.is_swept() { fit & !some } else { 0 };
        if group.crowded != 0 {
            powers.settle_crowd::<V>((z, d), lists, group.crowded, &mut group.lists);
        }
        let level = V::load(group.lists.level.as_ptr());
        group.listed &= V::bits(zero.ge(cut.sub(place.from).fma(V::splat(prof.scale), level)));
        group
    }
}

/// What bounds the candidates of a group: a threshold, the score that goes with it, and the tiles that reach above.
struct Limits<V> {
    place: Place<V>,
    cut: V,
    tiles: [u64; MAX_LANES],
}

/// The threshold of the maxima of lanes, which are at `lanes`; also of those of tiles, where that leaves many.
///
/// # Safety
/// `lanes` is readable for `LANES` vectors and writable for [`TILES`] of them; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn limits<V: Vector>(powers: &Powers, heads: &Heads, lanes: *mut f32, max: V, fit: u32) -> Limits<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let prof = &powers.prof;
        let start = Place { from: max, level: V::splat(0.35f64.powf(prof.delta) as f32) };
        let mut place = first_place::<V>(powers, (lanes, V::LANES), (max, start), fit);
        let mut cut = below(prof, place);
        let (mut tiles, mut crowd) = ([0u64; MAX_LANES], 0);
        reaching::<V>(heads, cut, fit, &mut tiles);
        for r in (0..V::LANES).filter(|r| fit >> r & 1 == 1) {
            crowd |= u32::from(tiles[r].count_ones() > MANY_TILES) << r;
        }
        if crowd != 0 {
            for k in (0..TILES).step_by(V::LANES) {
                V::transpose(heads.as_ptr().cast::<f32>().add(k), TILES, lanes.add(k * V::LANES));
            }
            let better = first_place::<V>(powers, (lanes, TILES), (max, place), crowd);
            let higher = below(prof, better);
            let is_better = V::and(V::lanes_of(crowd), higher.gt(cut));
            (place, cut) = (choose(is_better, better, place), higher.select(is_better, cut));
            reaching::<V>(heads, cut, crowd, &mut tiles);
        }
        Limits { place, cut, tiles }
    }
}

/// Lane maxima of a row, and whether it holds a NaN; the maxima of its tiles go to `heads`, which has room for vectors,
/// and zeros to its place, if any.
///
/// # Safety
/// The row is readable and its place writable for `d ≤ WIDEST` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn survey<V: Vector>(
    (z, out): (*const f32, *mut f32),
    d: usize,
    zeros: Zeros,
    heads: &mut [f32; TILES],
) -> (V, bool) {
    let mut tiles = std::mem::MaybeUninit::<[f32; TILES * MAX_LANES]>::uninit();
    let tiles = tiles.as_mut_ptr().cast::<f32>();
    // SAFETY: there is room for a vector of every tile, and a multiple of `LANES` of them.
    unsafe {
        let (m, nan) = tile_maxima::<V>(z, d, tiles, out, zeros);
        let count = d.div_ceil(TILE);
        for t in count..count.next_multiple_of(V::LANES) {
            V::splat(f32::NEG_INFINITY).store(tiles.add(t * V::LANES));
        }
        for t in (0..count).step_by(V::LANES) {
            V::row_maxima(tiles.add(t * V::LANES)).store(heads.as_mut_ptr().add(t));
        }
        (m, nan)
    }
}

/// Which tiles of the rows that are `asked` for reach above `cut`, one bit each.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn reaching<V: Vector>(heads: &Heads, cut: V, asked: u32, tiles: &mut [u64; MAX_LANES]) {
    let mut cuts = [0.0f32; MAX_LANES];
    // SAFETY: as the caller vouches.
    unsafe {
        cut.store(cuts.as_mut_ptr());
        for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
            let (cut, mut bits) = (V::splat(cuts[r]), 0u64);
            for k in (0..TILES).step_by(V::LANES) {
                bits |= u64::from(V::bits(V::load(heads[r].as_ptr().add(k)).gt(cut))) << k;
            }
            tiles[r] = bits;
        }
    }
}

/// Lists the entries of some tiles of a row that are above `cut`, and their places; how many, or `None` if they are more
/// than [`MOST`].
///
/// # Safety
/// The row is readable for `d` floats, the lists are writable for [`STRIDE`]; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn collect_tiles<V: Vector>(
    (z, d): (*const f32, usize),
    mut tiles: u64,
    cut: f32,
    (list, index): (*mut f32, *mut u32),
) -> Option<usize> {
    let (mut n, all, mut seen) = (0, tiles.count_ones() as usize, 0);
    while tiles != 0 {
        let at = tiles.trailing_zeros() as usize * TILE;
        tiles &= tiles - 1;
        // SAFETY: the tile lies within the row, and what it may bring within the lists.
        n += unsafe { collect_indexed::<V>(z.add(at), (d - at).min(TILE), cut, at as u32, list.add(n), index.add(n)) };
        seen += 1;
        if n > MOST || (seen == GLANCE && n * all > 2 * GLANCE * MOST) {
            return None;
        }
    }
    Some(n)
}

/// A little below the thresholds that the maxima at `c` alone have, in the rows that are `asked` for.
///
/// # Safety
/// `c` is readable and writable for `slots` vectors, an even power of two; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn first_place<V: Vector>(
    powers: &Powers,
    (c, slots): (*mut f32, usize),
    (max, mut place): (V, Place<V>),
    asked: u32,
) -> Place<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let prof = &powers.prof;
        if powers.whole > 0 {
            return powers.settle_maxima((c, slots), max, place, SHARED);
        }
        if prof.delta < 1.0 {
            let active = V::lanes_of(asked);
            let goal = Goal { mass: SHARED, steps: FIRST_STEPS, least: least(prof, slots), active, far: active };
            prof.settle_smooth(Columns::all(c, slots), max, &mut place, goal);
            return place;
        }
        // Where they are too many to be put in order, the larger ones of two.
        for k in sorted::MOST..slots {
            let to = c.add((k - sorted::MOST) * V::LANES);
            V::load(c.add(k * V::LANES)).max(V::load(to)).store(to);
        }
        let place = sorted::place::<V>(prof, c, &[slots.min(sorted::MOST); MAX_LANES], asked);
        // Rounding must not make it too high.
        Place { level: place.level.mul(V::splat(1.0 + 1e-5)), ..place }
    }
}

/// The thresholds of the candidates, from a first guess: by order, where they are few and α is large.
///
/// # Safety
/// `c` is readable for `slots` vectors, an even number; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn last_place<V: Vector>(
    prof: &Anchored,
    (c, slots): (*const f32, usize),
    (max, mut place): (V, Place<V>),
    kept: &[usize; MAX_LANES],
    asked: u32,
) -> Place<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let is_steep = prof.delta >= 1.0;
        let ordered =
            (0..V::LANES).fold(0, |rows, r| rows | u32::from(is_steep && kept[r] <= sorted::MOST) << r) & asked;
        let stepping = asked & !ordered;
        if stepping != 0 {
            let active = V::lanes_of(stepping);
            let goal = Goal { mass: 1.0, steps: STEPS, least: least(prof, MOST), active, far: active };
            if is_steep {
                prof.settle((c, slots), max, &mut place, goal);
            } else {
                prof.settle_smooth(Columns::all(c, slots), max, &mut place, goal);
            }
        }
        if ordered != 0 {
            let by_order = sorted::place::<V>(prof, c, kept, ordered);
            place = choose(V::lanes_of(ordered), by_order, place);
        }
        place
    }
}

/// A little less than the least `u` that the largest of `n` entries can have, that of equal ones.
fn least(prof: &Anchored, n: usize) -> f32 {
    (0.9 * (n as f64).powf(-prof.delta) as f32).max(TINY)
}

/// The score at or below which no entry is in the support, if the threshold is a lower bound: less by more than all
/// roundings on the way.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn below<V: Vector>(prof: &Anchored, place: Place<V>) -> V {
    // SAFETY: the caller vouches for the instruction set.
    let (zero, scale, grain) = unsafe { (V::splat(0.0), V::splat(prof.scale), V::splat(2.4e-7)) };
    let depth = place.level.div(scale);
    let slack = place.from.max(zero.sub(place.from)).add(depth.max(zero.sub(depth))).mul(grain);
    place.from.sub(depth).sub(slack)
}

/// `one` in the lanes of `m`, `other` elsewhere.
#[inline(always)]
fn choose<V: Vector>(m: V::Mask, one: Place<V>, other: Place<V>) -> Place<V> {
    Place { from: one.from.select(m, other.from), level: one.level.select(m, other.level) }
}

#[cfg(test)]
mod tests {
    use super::super::portable::Portable;
    use super::*;

    /// A normal number.
    fn normal(rng: &mut fastrand::Rng) -> f32 {
        (-2.0 * (1.0 - rng.f32()).ln()).sqrt() * (std::f32::consts::TAU * rng.f32()).cos()
    }

    /// What fails its proof is solved again elsewhere, so that only this shows it.
    #[test]
    fn lists_and_crowds_need_no_second_look() {
        const LANES: usize = Portable::LANES;
        let (d, all) = (4096, (1u32 << LANES) - 1);
        let mut rng = fastrand::Rng::with_seed(83);
        for (alpha, sigma) in
            [(1.25, 1.0), (4.0 / 3.0, 2.0), (1.75, 1.0), (1.75, 0.1), (1.9, 0.1), (3.0, 1.0), (4.0, 0.1)]
        {
            let z: Vec<f32> = (0..LANES * d).map(|_| sigma * normal(&mut rng)).collect();
            let (mut out, mut list) = (vec![0.0f32; LANES * d], vec![0.0f32; 2 * LANES * STRIDE]);
            let mut index = vec![0u32; LANES * STRIDE];
            let lists = (list.as_mut_ptr(), index.as_mut_ptr());
            // SAFETY: the portable path asks for no instruction set; rows and lists are as long as they are to be.
            let group = unsafe {
                let rows = (z.as_ptr(), out.as_mut_ptr());
                solve_group::<Portable>(Anchored::new(alpha, 1.0), rows, (d, LANES), Zeros::Stored, lists)
            };
            assert_eq!(group.listed, all, "α = {alpha}, σ = {sigma}");
        }
    }
}
