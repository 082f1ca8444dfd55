//! Sparsemax and 1.5-entmax on short rows: passes over whole rows until their thresholds stand.
//!
//! A pass takes the two sums of a Newton step; the sum over lanes, the division and the question whether to go on are
//! left to all rows of a group at once: their lane sums are transposed, one row per lane. What is added to a lane's sums
//! does not depend on the neighbours, so neither does the row.

use super::direct::GROUPS;
use super::group::{Block, Excess, Group, Rows};
use super::profile::{Direct, STEPS};
use super::vector::Vector;

/// A sum of terms beyond which the next step hardly finds the root.
const FAR: f32 = 1.25;

/// Guesses at τ for the dense rows of some groups, of whose entries little is known: Newton steps on `tops` vectors of
/// maxima a group, of all groups in turn.
///
/// For sparsemax they go on from there in the rows where most maxima are in the support. If every one of those `slope`
/// entries stood for κ entries, τ would be larger by `(1 − 1/κ)/slope`. What they have in the mean, `1/slope`, against
/// how far the largest is above their mean tells how dense the row is; on normal scores the κ below saves two of five
/// passes. A guess may be on either side of τ: from the right, the next step goes to the left.
///
/// # Safety
/// `gaps` is readable for `2·LANES` vectors a group, the first `tops` of them written; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn first_guesses<V: Vector, P: Direct>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    gaps: *const f32,
    tops: usize,
) {
    // SAFETY: the caller vouches for the instruction set and the vectors.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let (bit, back) = (V::splat(rows.bit), V::splat(-rows.one));
        let (mut t, mut slope) = ([one; GROUPS], [one; GROUPS]);
        for _ in 0..if P::LOOKS_TWICE { 3 } else { 2 } {
            for g in (0..groups.len()).filter(|g| groups[*g].dense != 0) {
                let gaps = gaps.add(2 * g * V::LANES * V::LANES);
                let (mut f, mut s) = ([zero; 4], [zero; 4]);
                for k in (0..tops).step_by(4) {
                    for j in 0..4 {
                        let u = V::load(gaps.add((k + j) * V::LANES)).fma(back, t[g]).positive();
                        (f[j], s[j]) = prof.take(u, f[j], s[j], bit);
                    }
                }
                slope[g] = prof.taken_of(s);
                t[g] = t[g].sub(prof.step(f[0].add(f[1]).add(f[2].add(f[3])), slope[g]));
            }
        }
        for (g, group) in groups.iter_mut().enumerate().filter(|(_, group)| group.dense != 0) {
            let mut guess = zero.sub(t[g]);
            if P::LOOKS_TWICE {
                let most = slope[g].gt(V::splat(0.5 * tops as f32));
                let guessed = group.dense & V::bits(most);
                group.far = guessed != 0;
                if group.far {
                    let spread = t[g].fma(slope[g], V::splat(-1.0)).max(V::splat(1e-3));
                    // No more than half of what each stands for.
                    let half = (rows.d as f32 / (2 * tops) as f32).max(1.5);
                    let kept = V::splat(0.43).div(spread).add(V::splat(1.2));
                    let share = V::splat(1.0 / half).max(one.div(kept));
                    guess = one.sub(share).div(slope[g]).keep(most).add(guess);
                }
            }
            let (hi, lo) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
            group.put_below(guess, zero, V::splat(rows.scale));
            let (is_dense, now) = (V::lanes_of(group.dense), V::load(group.hi.as_ptr()));
            now.select(is_dense, hi).store(group.hi.as_mut_ptr());
            V::load(group.lo.as_ptr()).select(is_dense, lo).store(group.lo.as_mut_ptr());
        }
    }
}

/// Thresholds of the active rows of some groups, and their probabilities if `WRITE`.
///
/// # Safety
/// The rows are readable and writable; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn refine<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, groups: &mut [Group]) {
    // SAFETY: as the caller vouches.
    unsafe {
        let wanted: [u32; GROUPS] = std::array::from_fn(|g| groups.get(g).map_or(0, |group| group.active));
        let mut going = true;
        let mut n = 0;
        while going && n < STEPS {
            // Sums of all groups, then what follows from them for all groups.
            let mut sums = [(V::splat(0.0), V::splat(0.0)); GROUPS];
            let fine = n > 0 || P::LOOKS_TWICE;
            for (g, group) in groups.iter().enumerate().filter(|(_, group)| group.active != 0) {
                sums[g] = match (fine, group.far) {
                    (true, false) if P::LOOKS_TWICE => passes::<V, P, WRITE, true>(prof, rows, group, group.active),
                    (true, _) => passes::<V, P, false, true>(prof, rows, group, group.active),
                    (false, _) => passes::<V, P, false, false>(prof, rows, group, group.active),
                };
            }
            going = false;
            for (g, group) in groups.iter_mut().enumerate().filter(|(_, group)| group.active != 0) {
                advance::<V, P>(prof, group, sums[g], fine, rows.d);
                going |= group.active != 0;
            }
            n += 1;
        }
        if !P::LOOKS_TWICE {
            for (group, wanted) in groups.iter_mut().zip(wanted) {
                write::<V, P, WRITE>(prof, rows, group, wanted);
            }
        }
    }
}

/// Writes rows whose thresholds stand but for the rounding of the last sums. Once more, if that shows: the sum of what was
/// written tells what a step from there is to mend.
///
/// # Safety
/// As [`refine`].
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &mut Group, wanted: u32) {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let mut left = wanted;
        for _ in 0..2 {
            let (f, g) = passes::<V, P, WRITE, true>(prof, rows, group, left);
            left &= !V::bits(prof.stands((f, g), g));
            if left == 0 {
                return;
            }
            let step = prof.step(f, g).keep(V::lanes_of(left));
            group.put(V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()).add(step));
        }
        passes::<V, P, WRITE, true>(prof, rows, group, left);
    }
}

/// A Newton step of the rows that are active, and which of them stay so.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn advance<V: Vector, P: Direct>(prof: P, group: &mut Group, (f, g): (V, V), fine: bool, d: usize) {
    // SAFETY: the caller vouches for the instruction set; the arrays hold a vector.
    unsafe {
        let (h, l) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        let b = V::load(group.before.as_ptr());
        let step = prof.step(f, g);
        let unsettled = prof.goes_on((f, g), b, step, V::splat(d as f32));
        let was = V::lanes_of(group.active);
        let moves = if fine && P::LOOKS_TWICE { V::and(was, unsettled) } else { was };
        // Rows that stay make a step of zero, which moves nothing: if results were chosen lane by lane,
        // compilers would write them by masked stores, which some CPUs do slowly.
        let step = step.keep(moves);
        // A first step was taken at `hi` alone.
        group.put(h, if fine { l.add(step) } else { step.select(was, l) });
        // After a step back nothing is known of the slope.
        V::splat(f32::INFINITY).select(V::splat(0.0).gt(step), g).store(group.before.as_mut_ptr());
        if P::LOOKS_TWICE {
            // A row that has settled where nothing was written waits for a pass that writes.
            if fine && !group.far {
                group.active &= V::bits(unsettled);
            }
            // Two passes in a row that write nothing would be one too many.
            group.far = !group.far && group.active & V::bits(f.gt(V::splat(FAR))) != 0;
        } else {
            group.active &= V::bits(unsettled);
        }
    }
}

/// The two sums of every wanted row, one row per lane; other lanes hold anything. With `WRITE`, writes the rows.
///
/// # Safety
/// As [`refine`].
#[inline(always)]
pub(super) unsafe fn passes<V: Vector, P: Direct, const WRITE: bool, const FINE: bool>(
    prof: P,
    rows: Rows,
    group: &Group,
    wanted: u32,
) -> (V, V) {
    // SAFETY: as the caller vouches; the buffers hold a vector for each lane.
    unsafe {
        let (mut f, mut g) = (Block::uninit(), Block::uninit());
        let (fs, gs) = (f.as_mut_ptr(), g.as_mut_ptr());
        if wanted.count_ones() < V::LANES as u32 {
            for r in 0..V::LANES {
                V::splat(0.0).store(fs.add(r * V::LANES));
                V::splat(0.0).store(gs.add(r * V::LANES));
            }
        }
        let mut left = wanted;
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let (f, g) = pass::<V, P, WRITE, FINE>(prof, rows, group, r);
            f.store(fs.add(r * V::LANES));
            g.store(gs.add(r * V::LANES));
        }
        (V::row_sums(fs), V::row_sums(gs))
    }
}

/// The two sums of row `k` of a group at `τ = hi + lo`, lane by lane; writes its probabilities if `WRITE`.
/// Without `FINE`, τ is `hi`.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn pass<V: Vector, P: Direct, const WRITE: bool, const FINE: bool>(
    prof: P,
    rows: Rows,
    group: &Group,
    k: usize,
) -> (V, V) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let row = rows.from(usize::from(group.at[k]));
        let Rows { z, out, d, .. } = row;
        let (zero, bit) = (V::splat(0.0), V::splat(rows.bit));
        let from = Excess::<V>::new(&row, group, k);
        macro_rules! excess {
            ($z:expr) => {
                if FINE { from.of($z) } else { from.rough($z) }
            };
        }
        let (mut f, mut g) = ([zero; 4], [zero; 2]);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            for k in 0..4 {
                let u = excess!(V::load(z.add(i + k * V::LANES)));
                if WRITE {
                    prof.power(u).store(out.add(i + k * V::LANES));
                }
                (f[k], g[k % 2]) = prof.take(u, f[k], g[k % 2], bit);
            }
            i += 4 * V::LANES;
        }
        while i + V::LANES <= d {
            let u = excess!(V::load(z.add(i)));
            if WRITE {
                prof.power(u).store(out.add(i));
            }
            (f[0], g[0]) = prof.take(u, f[0], g[0], bit);
            i += V::LANES;
        }
        if i < d {
            let u = excess!(V::load_first(z.add(i), d - i, f32::NEG_INFINITY));
            (f[1], g[1]) = prof.take(u, f[1], g[1], bit);
            if WRITE && d >= V::LANES {
                // The last vector overlaps the one before and writes the same numbers again.
                prof.power(excess!(V::load(z.add(d - V::LANES)))).store(out.add(d - V::LANES));
            } else if WRITE {
                prof.power(u).store_first(out, d);
            }
        }
        (f[0].add(f[1]).add(f[2].add(f[3])), prof.taken(g[0]).add(prof.taken(g[1])))
    }
}
