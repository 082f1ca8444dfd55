//! α-entmax of short rows for α ≥ 1.1: `LANES` rows at a time, measured from their smallest supported entry.
//!
//! Plainly, for each row: keep the entries that may be in the support, find τ, write `[δx − τ]₊^e` with
//! `δ = α − 1` and `e = 1/δ`. Three things are peculiar.
//!
//! **The unknown.** For α > 2 an entry just above τ has a probability that no representable τ expresses.
//! So τ is held as an entry `a` of the row and the number `t = δa − τ`: `u = δ(z − a) + t`, where the
//! difference of two scores that are close is exact, and `t` is `u` of the entry itself.
//!
//! **The root.** By steps along a curve that shares value, slope and curvature with the sum (`settle.rs`); for α > 2,
//! where most rows have few candidates, these are put in order instead (`sorted.rs`). Narrow rows and crowded ones are
//! looked at as a whole (`upright.rs`, `topmost.rs`).
//!
//! **The proof.** Not all on the way is a bound: in wide rows the entries that are kept come from steps towards
//! the root for the maxima of parts, and the last step is not looked at again. But the pass that writes the row sums
//! what it writes, over all entries, and every probability is off by at most as much as the sum. A row that lacks little
//! is mended (`finish.rs`); one that fails is solved by itself, in f64 ([`alone`]).

use super::alpha::alone;
use super::expo::Known;
use super::finish::{Finished, Rows, finish, reach};
use super::level;
use super::profile::{Whole, whole_power};
use super::scan::{collect_indexed, into_lanes};
use super::settle::Goal;
use super::sorted;
use super::survey::{Seen, survey};
use super::upright;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::RowSum;
use super::{Forward, Status};

/// The largest exponent `e`.
const MOST_EXPONENT: f64 = 10.0;

/// Steps at most on the candidates.
const STEPS: usize = 16;

/// Smaller than any `u` that is told from 0, and so large that its powers and quotients are numbers.
pub(super) const TINY: f32 = 1e-37;

/// The mapping, for one α and one scale.
#[derive(Clone, Copy)]
pub(crate) struct Anchored {
    pub(super) delta: f64,
    /// `δ` as a number of lanes, and its inverse.
    pub(super) steep: f32,
    pub(super) e: f32,
    /// `δ · scale`.
    pub(super) scale: f32,
    /// A probability whose power δ is 2⁶⁰.
    pub(super) most: f32,
    /// A step of the threshold that needs no powers to follow.
    pub(super) reach: f32,
    /// Powers: of `u` to probabilities, their slopes and curvatures, and from a probability back.
    pub(super) power: Known,
    pub(super) slope: Known,
    pub(super) bend: Known,
    pub(super) root: Known,
    /// The exponent `e`, if products do for powers, or 0.
    whole: u32,
}

impl Anchored {
    pub(crate) fn new(alpha: f64, scale: f32) -> Anchored {
        let delta = alpha - 1.0;
        let most = (60.0 / delta).min(120.0).exp2() as f32;
        let e = 1.0 / delta;
        Anchored {
            delta,
            steep: delta as f32,
            e: e as f32,
            scale: delta as f32 * scale,
            most,
            reach: reach(delta),
            power: Known::new(e),
            slope: Known::within(e - 1.0),
            bend: Known::within(e - 2.0),
            root: Known::new(delta),
            whole: Whole::exactly(alpha).map_or(0, |whole| if whole.n > 2 { whole.n } else { 0 }),
        }
    }

    /// Whether the mapping goes this way: near α = 1 powers ask for more digits of `u` than there are.
    pub(crate) fn serves(alpha: f64) -> bool {
        (alpha - 1.0) * MOST_EXPONENT >= 1.0 - 1e-9
    }

    /// A little less than the least `u` that the largest of `n` entries can have, that of equal ones.
    pub(super) fn least(&self, n: usize) -> f32 {
        (0.9 * (n as f64).powf(-self.delta) as f32).max(TINY)
    }

    /// What counts as a `u` of 0, for α < 2, and has the power 0.
    pub(super) fn nothing(&self) -> f32 {
        if self.whole > 0 { 0.0 } else { Known::NOTHING }
    }

    /// `u^{e−1}` for α < 2 and `u` from [`nothing`](Anchored::nothing) on.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn slope<V: Vector>(&self, u: V) -> V {
        if self.whole > 0 { whole_power(u, self.whole - 1) } else { u.raised_within(&self.slope) }
    }

    /// The same of `u^{e−2}`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn bend<V: Vector>(&self, u: V) -> V {
        if self.whole > 0 { whole_power(u, self.whole - 2) } else { u.raised_within(&self.bend) }
    }

    /// `u^e` for `u ≥ TINY`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn power<V: Vector>(&self, u: V) -> V {
        // At α = 3, which no logarithm comes near.
        // SAFETY: the caller vouches for the instruction set.
        unsafe { if self.e == 0.5 { u.scaled_root(V::splat(1.0)) } else { u.raised(&self.power) } }
    }
}

/// Floats from a line of the cache on: vectors that cross two lines cost twice as much.
#[repr(align(64))]
pub(super) struct Lined<const N: usize>(pub(super) [f32; N]);

/// A threshold a lane: `u = scale·(z − from) + level`.
#[derive(Clone, Copy)]
pub(super) struct Place<V> {
    pub(super) from: V,
    pub(super) level: V,
}

impl<V: Vector> Place<V> {
    /// `self` in the lanes of `m`, `other` elsewhere.
    #[inline(always)]
    pub(super) fn select(self, m: V::Mask, other: Place<V>) -> Place<V> {
        Place { from: self.from.select(m, other.from), level: self.level.select(m, other.level) }
    }
}

/// What is known of a group of rows.
#[derive(Default)]
pub(super) struct Group {
    /// One bit a row: a NaN or `+inf`; nothing but `−inf`.
    pub(super) bad: u32,
    pub(super) empty: u32,
    /// Nothing but equal entries, as many as are kept.
    pub(super) equal: u32,
    pub(super) max: [f32; MAX_LANES],
    pub(super) from: [f32; MAX_LANES],
    pub(super) level: [f32; MAX_LANES],
    /// How many candidates each row has. Where they are listed, the list holds their probabilities, and `pu` their sum
    /// `Σ p·u`.
    pub(super) kept: [usize; MAX_LANES],
    pub(super) listed: u32,
    pub(super) pu: [f32; MAX_LANES],
}

impl Group {
    /// What maxima tell, given a bit for every row with a NaN: the group, the maxima with 0 for −∞, and a bit for every row
    /// that is fit.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn of_maxima<V: Vector>(max: V, nan: u32, here: usize) -> (Group, V, u32) {
        // SAFETY: as the caller vouches; the array holds a vector.
        unsafe {
            let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
            let bad = nan | V::bits(max.ge(V::splat(f32::INFINITY)));
            let empty = V::bits(none.ge(max));
            let mut group = Group { bad, empty, ..Group::default() };
            let max = max.select(max.gt(none), zero);
            max.store(group.max.as_mut_ptr());
            (group, max, !(bad | empty) & ((1u64 << here) - 1) as u32)
        }
    }

    /// Which of the rows that are `asked` for have nothing but equal entries.
    ///
    /// # Safety
    /// As [`solve_group`], once the maxima are known.
    #[inline(always)]
    pub(super) unsafe fn find_equals<V: Vector>(&mut self, (z, d): (*const f32, usize), asked: u32) {
        for r in (0..V::LANES).filter(|r| asked >> r & 1 == 1) {
            // SAFETY: as the caller vouches.
            if let Some(n) = unsafe { level::equals::<V>((z.add(r * d), d), self.max[r]) } {
                self.equal |= 1 << r;
                self.kept[r] = n;
            }
        }
    }
}

/// Whether a row of so many candidates is written from their list; a question of the row alone, so that its bits do not
/// depend on its neighbours.
fn is_listed(d: usize, kept: usize) -> bool {
    2 * kept <= d
}

/// Forward pass of a block of short rows. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(prof: Anchored, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let d = job.d;
    let (gain, mut sums) = loss.unzip();
    let is_narrow = d <= upright::WIDEST;
    let many = if is_narrow { upright::TWO * V::LANES } else { V::LANES };
    // Candidates of one row and its padding; behind all rows the transposed block.
    let stride = d.next_multiple_of(V::LANES) + 2 * V::LANES;
    let room = if is_narrow { upright::room::<V>(d) } else { 2 * V::LANES * stride };
    for first in (0..job.status.len()).step_by(many) {
        let here = (job.status.len() - first).min(many);
        // SAFETY: `here` rows of `d` floats start at row `first`; the scratch was sized above.
        unsafe {
            let (buffer, index) = job.scratch.lists(room + MAX_LANES);
            // Whole lines of the cache: vectors that cross two cost twice as much.
            let buffer = buffer.add(buffer.align_offset(MAX_LANES * size_of::<f32>()));
            let (z, out) = (job.z.as_ptr().add(first * d), job.out.as_mut_ptr().add(first * d));
            let rows = Rows { z, out, d, gain: gain.unwrap_or(1.0) };
            let mut groups = [Group::default(), Group::default()];
            if is_narrow {
                upright::solve::<V>(&raw const prof, rows, here, buffer, &raw mut groups);
            } else {
                groups[0] = solve_group::<V>(&raw const prof, rows, here, (buffer, index, stride));
            }
            let mut done = 0;
            for group in &groups[..here.div_ceil(V::LANES)] {
                let rows = rows.from(done);
                let here = (here - done).min(V::LANES);
                conclude::<V>(
                    &prof,
                    job,
                    (rows, first + done, here),
                    group,
                    (buffer, index, stride),
                    sums.as_deref_mut(),
                );
                done += here;
            }
        }
    }
}

/// Writes the `here` rows of a group that has been solved, from row `first` of a job on, and all that is asked for beside them.
///
/// # Safety
/// As [`solve_group`], whose buffers these are; the lengths of `job` are those that it promises.
unsafe fn conclude<V: Vector>(
    prof: &Anchored,
    job: &mut Forward<'_>,
    (rows, first, here): (Rows, usize, usize),
    group: &Group,
    (buffer, index, stride): (*mut f32, *mut u32, usize),
    mut sums: Option<&mut [RowSum]>,
) {
    let (d, all) = (rows.d, ((1u64 << here) - 1) as u32);
    let written = all & !(group.bad | group.empty | group.equal | group.listed);
    // SAFETY: as the caller vouches.
    unsafe {
        let done = match &sums {
            _ if written == 0 => Finished::default(),
            Some(_) => finish::<V, true>(prof, rows, written, (group.from, group.level)),
            None => finish::<V, false>(prof, rows, written, (group.from, group.level)),
        };
        if done.exact == all && job.tau.is_none() && sums.is_none() {
            job.status[first..first + here].fill(Status::Ok);
            return;
        }
        for r in 0..here {
            let (z, out) = (rows.z.add(r * d), rows.out.add(r * d));
            let status = Status::from_flags(group.bad >> r & 1 == 1, group.empty >> r & 1 == 1);
            job.status[first + r] = status;
            let mut sum = RowSum { max: group.max[r], ..RowSum::default() };
            if status == Status::Ok {
                let n = group.kept[r];
                let mut level = f64::from(group.level[r]);
                let mut is_exact = true;
                sum.pu = f64::from(group.pu[r]);
                if group.equal >> r & 1 == 1 {
                    share((z, out, d), (sum.max, n), rows.gain);
                    sum.pu = level;
                } else if group.listed >> r & 1 == 1 {
                    let row = std::slice::from_raw_parts_mut(out, d);
                    let list = std::slice::from_raw_parts(buffer.add(r * stride), n);
                    let index = std::slice::from_raw_parts(index.add(r * stride), n);
                    row.fill(0.0);
                    list.iter().zip(index).for_each(|(q, i)| row[*i as usize] = q * rows.gain);
                } else {
                    is_exact = done.exact >> r & 1 == 1;
                    (level, sum.pu) = (done.level[r], f64::from(done.pu[r]));
                }
                sum.tau = f64::from(prof.scale) * (f64::from(group.from[r]) - f64::from(sum.max)) - level;
                if !is_exact {
                    // Behind the lists, or where rows stood upright, nothing is looked at again.
                    let spare = if d <= upright::WIDEST { buffer } else { buffer.add(V::LANES * stride) };
                    (sum.tau, sum.pu) = alone((prof.delta, prof.scale), (z, out, d), (spare, sum.max), rows.gain);
                }
            } else {
                std::slice::from_raw_parts_mut(out, d).fill(status.fill());
            }
            if let Some(t) = job.tau.as_deref_mut() {
                t[first + r] = status.tau(f64::from(prof.scale) * f64::from(sum.max) + sum.tau);
            }
            if let Some(sums) = sums.as_deref_mut() {
                sums[first + r] = sum;
            }
        }
    }
}

/// A row of `n` entries that equal the maximum and others that are masked.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats.
unsafe fn share((z, out, d): (*const f32, *mut f32, usize), (max, n): (f32, usize), gain: f32) {
    // SAFETY: as the caller vouches.
    let (z, out) = unsafe { (std::slice::from_raw_parts(z, d), std::slice::from_raw_parts_mut(out, d)) };
    let each = gain / n as f32;
    if n == d {
        out.fill(each);
    } else {
        out.iter_mut().zip(z).for_each(|(p, z)| *p = if *z == max { each } else { 0.0 });
    }
}

outlined! {
    /// Maxima and thresholds of a group of `here ≤ LANES` wide rows, and lists of the probabilities of those with few
    /// candidates.
    ///
    /// # Safety
    /// `prof` is readable; there are `here` rows, readable and writable; the buffers are writable for `2·LANES` rows of their
    /// stride, which has room for `d` rounded up and two vectors; the CPU has the instruction set of `V`.
    unsafe fn solve_group<V>(
        prof: *const Anchored,
        rows: Rows,
        here: usize,
        buffers: (*mut f32, *mut u32, usize),
    ) -> Group => solve_group_any
}

/// # Safety
/// As [`solve_group`].
#[inline(always)]
unsafe fn solve_group_any<V: Vector>(
    prof: *const Anchored,
    rows: Rows,
    here: usize,
    (buffer, index, stride): (*mut f32, *mut u32, usize),
) -> Group {
    let (z, d) = (rows.z, rows.d);
    // SAFETY: rows, scratch and lane buffers are in bounds as the caller vouches.
    unsafe {
        let prof = &*prof;
        // 1. What a first look tells.
        let lanes = buffer.add(V::LANES * stride);
        let mut tops = Lined([0.0; 2 * MAX_LANES * MAX_LANES]);
        let is_steep = prof.delta >= 1.0;
        let (mut group, seen) = survey::<V>(prof, z, (d, here), (buffer, &mut tops));
        let Seen { max, mut place, mut cut, open: fit, tied } = seen;
        if fit == 0 {
            place.from.store(group.from.as_mut_ptr());
            place.level.store(group.level.as_mut_ptr());
            return group;
        }

        // 2. Candidates, row by row, and then into lanes.
        let mut kept = [0usize; MAX_LANES];
        collect_rows::<V>((z, d), cut, fit, (buffer, index, stride), &mut kept);
        let (mut few, mut many) = (0, fit);
        if is_steep {
            // Where a bound leaves too many to sort, the maxima tell more, in order.
            many = crowded(&kept, fit);
            // Maxima that are all equal tell nothing by their order.
            let unordered = many & !tied;
            if unordered != 0 {
                let by_order = sorted::place::<V>(prof, tops.0.as_ptr(), &[2 * V::LANES; MAX_LANES], unordered);
                let is_here = V::lanes_of(unordered);
                place = by_order.select(is_here, place);
                // Rounding must not make it too high.
                let lower = Place { level: place.level.mul(V::splat(1.0 + 1e-5)), ..place };
                cut = prof.cut(lower).select(is_here, cut);
                collect_rows::<V>((z, d), cut, unordered, (buffer, index, stride), &mut kept);
            }
            many = crowded(&kept, fit);
            few = fit & !many;
        }
        let slots = kept[..here].iter().copied().max().unwrap_or(0);
        into_lanes::<V>(buffer, stride, &kept, slots, lanes);

        // 3. The root for the candidates: by order, where they are few and α is large.
        if !is_steep {
            prof.whole((lanes, slots), max, &mut place, fit);
        } else if many != 0 {
            let candidates = (lanes.cast_const(), slots.next_multiple_of(2));
            let crowd = (0..here).fold(0, |rows, r| rows | u32::from(2 * kept[r] >= d) << r);
            let (mut far, mut open) = (many, many);
            if many & crowd != 0 {
                let counts = kept.map(|n| n as f32);
                let level = prof.level(candidates, max, V::load(counts.as_ptr()), many & crowd);
                far &= !level.rows;
                open &= !level.near;
                place = level.place.select(V::lanes_of(level.rows), place);
            }
            if open != 0 {
                let (active, far) = (V::lanes_of(open), V::lanes_of(far));
                let goal = Goal { mass: 1.0, steps: STEPS, least: prof.least(d), active, far };
                prof.settle(candidates, max, &mut place, goal);
            }
        }
        if few != 0 {
            place = sorted::place::<V>(prof, lanes, &kept, few).select(V::lanes_of(few), place);
        }
        (0..here).filter(|r| fit >> r & 1 == 1).for_each(|r| group.kept[r] = kept[r]);
        place.from.store(group.from.as_mut_ptr());
        place.level.store(group.level.as_mut_ptr());

        // 4. Where candidates are few, their probabilities, while they are side by side.
        let listed = (0..here).fold(0, |rows, r| rows | u32::from(is_listed(d, kept[r])) << r) & fit;
        if listed != 0 {
            let (mut exact, pu, level) = prof.list::<V>((lanes, buffer), slots.next_multiple_of(2), place, d);
            // No entry that was left out may be in the support after all.
            exact &= V::bits(V::splat(0.0).ge(cut.sub(place.from).fma(V::splat(prof.scale), level)));
            group.listed = listed & exact;
            level.select(V::lanes_of(group.listed), place.level).store(group.level.as_mut_ptr());
            pu.store(group.pu.as_mut_ptr());
            let mut block = Lined([0.0f32; MAX_LANES * MAX_LANES]);
            let block = &mut block.0;
            for k in (0..slots).step_by(V::LANES) {
                V::transpose(lanes.add(k * V::LANES), V::LANES, block.as_mut_ptr());
                for r in 0..here {
                    V::load(block.as_ptr().add(r * V::LANES)).store(buffer.add(r * stride + k));
                }
            }
        }
        group
    }
}

/// Candidates of the rows whose bits are set, each behind the last in its part of the buffers; how many go to `kept`.
///
/// # Safety
/// As [`solve_group`].
#[inline(always)]
unsafe fn collect_rows<V: Vector>(
    (z, d): (*const f32, usize),
    cut: V,
    rows: u32,
    (buffer, index, stride): (*mut f32, *mut u32, usize),
    kept: &mut [usize; MAX_LANES],
) {
    let mut cuts = [0.0f32; MAX_LANES];
    // SAFETY: as the caller vouches.
    unsafe {
        cut.store(cuts.as_mut_ptr());
        for r in (0..V::LANES).filter(|r| rows >> r & 1 == 1) {
            let at = r * stride;
            kept[r] = collect_indexed::<V>(z.add(r * d), d, cuts[r], 0, buffer.add(at), index.add(at));
        }
    }
}

/// Which of the rows have more candidates than are put in order.
fn crowded(kept: &[usize; MAX_LANES], rows: u32) -> u32 {
    let too_many = |(r, &kept): (usize, &usize)| u32::from(!(1..=sorted::MOST).contains(&kept)) << r;
    kept.iter().enumerate().map(too_many).sum::<u32>() & rows
}

impl Anchored {
    /// Thresholds of the rows of a group whose entries are equal.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn share<V: Vector>(&self, group: &Group, max: V) -> Place<V> {
        // SAFETY: the caller vouches for the instruction set; the array holds a vector.
        unsafe {
            if group.equal == 0 {
                return Place { from: max, level: max };
            }
            let counts = group.kept.map(|n| n.max(1) as f32);
            Place { from: max, level: self.steepen(V::splat(1.0).div(V::load(counts.as_ptr()))) }
        }
    }
}
