//! Sparsemax and 1.5-entmax of wide rows with much of a row in the support: few passes over whole rows.
//!
//! Plainly: a threshold from a part of the row, steps from sums over all of it, write `[x − τ]₊^e`. A pass over a wide row is
//! dear, and one that writes is dearer; so steps are made of the third order, by how the slope changes (sparsemax) or by the
//! number of entries (1.5-entmax), and rows are written when the next sum is likely to stand.

use super::direct::GROUPS;
use super::group::{Excess, Group, Rows};
use super::ordered;
use super::profile::{Direct, STEPS};
use super::refine::passes;
use super::sweep::Sums;
use super::vector::{MAX_LANES, Vector};

/// Widths from which on rows go this way.
pub(super) const WIDE: usize = 1024;

/// How much of the slope's fall over a step of sparsemax, times the step, leaves something to a next one.
const FAR: f32 = 1e-6;

/// How far from 1 the sum of 1.5-entmax may be from which a step that knows how many its terms are finds the root.
const NEAR: f32 = 0.03;

/// A sum this far from 1 is left, if it was mended twice.
const MENDED: f32 = 1e-6;

/// Vectors in a sample, and steps on it.
const SAMPLE: usize = 32;
const SAMPLE_STEPS: usize = 6;

/// A sum over a sample from which a step leads as near to its root as the sample is likely to be to that of the row.
const SAMPLED: f32 = 0.1;

/// Guesses at τ for the active rows of some groups, wide ones, by steps on a part of their vectors for as large a part of
/// the sum; and how the slope falls there.
///
/// # Safety
/// The rows are readable, of at least [`WIDE`] floats; the CPU has the instruction set.
#[inline(always)]
unsafe fn sample<V: Vector, P: Direct>(prof: P, rows: Rows, groups: &mut [Group]) {
    // SAFETY: the last vector ends within the row.
    unsafe {
        let (zero, bit) = (V::splat(0.0), V::splat(rows.bit));
        let stride = rows.d / V::LANES / SAMPLE * V::LANES;
        let share = rows.d as f32 / (SAMPLE * V::LANES) as f32;
        for group in groups {
            group.far = false;
            for k in (0..V::LANES).filter(|k| group.active >> k & 1 == 1) {
                let row = rows.from(usize::from(group.at[k]));
                let top = if V::FUSED { group.max[k] * rows.scale } else { 0.0 };
                let least = top - 1.0;
                let (mut tau, mut before, mut bend) = (group.hi[k].max(least), (0.0, 0.0), 0.0f32);
                for n in 0..SAMPLE_STEPS {
                    (group.hi[k], group.lo[k]) = (tau, 0.0);
                    let excess = Excess::<V>::new(&row, group, k);
                    let (mut f, mut g, mut count) = ([zero; 4], [zero; 4], [zero; 2]);
                    for i in (0..SAMPLE).step_by(4) {
                        for j in 0..4 {
                            let u = excess.rough(V::load(row.z.add((i + j) * stride)));
                            (f[j], g[j]) = prof.take(u, f[j], g[j], bit);
                            if P::CURVED {
                                count[j % 2] = count[j % 2].tally_above(u, bit);
                            }
                        }
                    }
                    let f = f[0].add(f[1]).add(f[2].add(f[3]));
                    let (f, g) = f.totals(prof.taken_of(g));
                    let (f, g) = (f * share, g * share);
                    if g <= 0.0 {
                        // Right of all of them.
                        tau = 0.5 * (tau + least);
                        continue;
                    }
                    let step = if P::CURVED {
                        let count = count[0].tallied().add(count[1].tallied()).totals(zero).0 * share;
                        prof.leap(Sums { f: f.into(), g: g.into(), count: Some(count.into()) }) as f32
                    } else {
                        if n > 0 && tau != before.0 {
                            bend = ((before.1 - g) / (tau - before.0)).max(0.0);
                        }
                        let square = (g * g - 2.0 * bend * (f - 1.0)).max(0.25 * g * g);
                        2.0 * (f - 1.0) / (g + square.sqrt())
                    };
                    before = (tau, g);
                    tau = (tau + step).max(least);
                    if (P::CURVED || n > 0) && (f - 1.0).abs() < SAMPLED {
                        break;
                    }
                }
                (group.hi[k], group.bend[k]) = (tau.min(top - 1.0 / rows.d as f32), bend);
                group.far |= bend > 0.0;
            }
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
        for group in groups.iter_mut() {
            (group.bend, group.moved) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
        }
        sample::<V, P>(prof, rows, groups);
        let mut going = true;
        let mut n = 0;
        while going && n < STEPS {
            going = false;
            for group in groups.iter_mut().filter(|group| group.active != 0) {
                if P::LOOKS_TWICE {
                    let sums = if group.far {
                        passes::<V, P, false, true>(prof, rows, group, group.active)
                    } else {
                        passes::<V, P, WRITE, true>(prof, rows, group, group.active)
                    };
                    advance::<V, P>(prof, &rows, group, sums, n);
                } else {
                    approach::<V, P>(prof, rows, group, n);
                }
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

/// How many steps know of the bend of what they are to find the root of: then they are Newton's, which have no slow case.
const BENT: usize = 4;

/// A step of the active rows, by the number of entries, too; those that it brings near the root are active no more.
///
/// # Safety
/// As [`refine`].
#[inline(always)]
unsafe fn approach<V: Vector, P: Direct>(prof: P, rows: Rows, group: &mut Group, n: usize) {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let [f, g, count] = ordered::count::<V, P>(prof, rows, group, group.active);
        let step = if n < BENT { prof.curved_step(f, g, count) } else { prof.step(f, g) };
        // The sums were taken at `hi` alone.
        let (was, lo) = (V::lanes_of(group.active), V::load(group.lo.as_ptr()));
        group.put(V::load(group.hi.as_ptr()), step.select(was, lo));
        let is_far = if n < BENT {
            // With all entries in the support a step misses none but those that it removes: rounding is what limits it.
            let near = V::splat(1.0).select(count.gt(V::splat(rows.d as f32 - 0.5)), V::splat(NEAR));
            distance(f).gt(near)
        } else {
            prof.goes_on((f, g), V::splat(0.0), step, V::splat(rows.d as f32))
        };
        group.active &= V::bits(is_far);
    }
}

/// Writes rows whose thresholds nearly stand: the sum of what was written tells whether there is a step to make, and to
/// write once more.
///
/// # Safety
/// As [`refine`].
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &mut Group, wanted: u32) {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let mut left = wanted;
        for n in 0..STEPS {
            if left == 0 {
                return;
            }
            let (f, g) = passes::<V, P, WRITE, true>(prof, rows, group, left);
            left &= !V::bits(prof.stands((f, g), g));
            if n >= 2 {
                left &= V::bits(distance(f).gt(V::splat(MENDED)));
            }
            let step = prof.step(f, g).keep(V::lanes_of(left));
            group.put(V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()).add(step));
        }
    }
}

/// How far a sum is from 1.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn distance<V: Vector>(f: V) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let off = f.sub(V::splat(1.0));
        off.max(V::splat(0.0).sub(off))
    }
}

/// A step of the rows that are active, and which of them stay so.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn advance<V: Vector, P: Direct>(prof: P, rows: &Rows, group: &mut Group, (f, g): (V, V), n: usize) {
    // SAFETY: the caller vouches for the instruction set; the arrays hold a vector.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let (h, l) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        let (before, moved) = (V::load(group.before.as_ptr()), V::load(group.moved.as_ptr()));
        // After a step back nothing is known of the slope.
        let known = V::splat(f32::INFINITY).select(zero.gt(moved), before);
        let (mut step, mut is_bent) = (prof.step(f, g), zero.gt(zero));
        if n < BENT {
            if n > 0 {
                before.sub(g).div(moved).store(group.bend.as_mut_ptr());
            }
            // f − g·s + bend·s²/2 = 1
            let (off, bend) = (f.sub(one), V::load(group.bend.as_ptr()));
            let square = g.mul(g).sub(bend.mul(off).mul(V::splat(2.0)));
            let least = V::splat(0.25).mul(g).mul(g);
            let bent = off.add(off).div(g.add(square.max(least).sqrt()));
            is_bent = V::and(bend.gt(zero), V::splat(f32::MAX).ge(bend));
            step = bent.select(is_bent, step);
            // The largest entry has its share, at least.
            let top = V::load(group.max.as_ptr()).mul(V::splat(rows.scale));
            let above = if V::FUSED { top.sub(h) } else { zero.sub(h) };
            step = step.min(above.sub(V::splat(1.0 / rows.d as f32)));
        }
        let unsettled = prof.goes_on((f, g), known, step, V::splat(rows.d as f32));
        let was = V::lanes_of(group.active);
        let moves = V::and(was, unsettled);
        // Rows that stay make a step of zero, which moves nothing: if results were chosen lane by lane,
        // compilers would write them by masked stores, which some CPUs do slowly.
        let step = step.keep(moves);
        group.put(h, l.add(step));
        step.store(group.moved.as_mut_ptr());
        g.store(group.before.as_mut_ptr());
        // A row that has settled where nothing was written waits for a pass that writes.
        if !group.far {
            group.active &= V::bits(unsettled);
        }
        let rest = V::load(group.bend.as_ptr()).mul(step).mul(step);
        let is_far = V::and(is_bent, rest.gt(V::splat(FAR)));
        group.far = n < BENT && group.active & V::bits(is_far) != 0;
    }
}
