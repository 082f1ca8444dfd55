//! Sparsemax of long rows with much of the row in the support: sums above a band around τ, and a list of what is in it.
//!
//! A step of sparsemax is exact while the support stands, and how many steps that takes depends on the few entries next to
//! the threshold. So one sweep takes the sums of what is above a band where the threshold is likely to be, and lists what
//! is in it: the rest is done on the list. A row whose τ is elsewhere is swept again, with a band that is narrower and
//! better placed.

use super::profile::{Direct, STEPS, Tau};
use super::sweep::{Ask, Guess, Lanes, Row, Sums, sums, sums_of};
use super::vector::{Vector, outlined};

/// Sweeps before the slower, safer way is taken.
const SWEEPS: usize = 12;

/// The part of a step by which the next threshold is looked for further on.
const BEYOND: f64 = 0.25;

/// What rounding may take from a bound, as a part of it and as mass.
const WIDER: (f64, f64) = (1.0 + 1e-6, 1e-6);

/// How far from τ sums may be taken last: over more, entries are rounded.
const FAR: f64 = 1.0;

/// Entries that are listed at most.
const LISTED: usize = 2048;

/// The part of what a guess may well be off by that the first band has on either side.
const LIKELY: f64 = 0.4;

/// Pairs of vectors whose terms are summed in f32 before the sums move to f64.
const BLOCK: usize = 32;

/// τ in the units of `scale·z`, given a lower bound on it and a guess; `None` if it does not settle.
///
/// # Safety
/// `row` is readable; `list` is writable for twice [`LISTED`] floats, or for as many as the row has if that is less, and
/// two vectors more; the CPU has the instruction set of `V`.
pub(super) unsafe fn root<V: Vector, P: Direct>(
    prof: P,
    row: Row,
    start: f64,
    guess: Guess,
    list: *mut f32,
) -> Option<f64> {
    let margin = LIKELY * guess.margin;
    let (mut top, mut depth) = (start.max(guess.tau) + margin, 2.0 * margin);
    let mut before = f64::INFINITY;
    for _ in 0..SWEEPS {
        // SAFETY: as the caller vouches.
        let (above, listed) = unsafe { narrow::<V, P>(prof, row, Tau::new(top), -depth as f32, list) };
        if !above.f.is_finite() {
            return None;
        }
        let step = prof.step_wide(above.f, above.g);
        if above.f > 1.0 {
            if step <= FAR && prof.is_swept(above, before, step, row.d as f64) {
                return Some(top + step);
            }
            // A step leaves a small part of itself to the next one: not far right of where it leads is the root.
            depth = BEYOND * step * WIDER.0;
            top += (1.0 + BEYOND) * step;
            before = above.g;
            continue;
        }
        // The root is between the two.
        let least = if above.g > 0.0 { start.max(top + step - WIDER.1 / above.g) } else { start };
        if listed > LISTED {
            (top, depth, before) = (least, 0.0, f64::INFINITY);
            continue;
        }
        // SAFETY: so many were listed.
        if let Some(below) = unsafe { settle::<V, P>(prof, (list, listed), above, -depth, row.d) } {
            if depth <= FAR {
                return Some(top + below);
            }
            // Once more, from near by.
            let near = depth * (WIDER.0 - 1.0);
            (top, depth) = (top + below + near, 2.0 * near);
            continue;
        }
        depth = (top - least) * WIDER.0;
    }
    None
}

/// τ less the threshold at which the sums were taken, given a bound on it and the entries between, as distances from that
/// threshold; `None` if it is below the bound.
///
/// # Safety
/// `list` is readable for `n` floats; the CPU has the instruction set of `V`.
unsafe fn settle<V: Vector, P: Direct>(
    prof: P,
    (list, n): (*const f32, usize),
    above: Sums,
    bound: f64,
    d: usize,
) -> Option<f64> {
    let (mut tau, mut before) = (bound, f64::INFINITY);
    for _ in 0..STEPS {
        let at = Tau::new(tau);
        let between = Row { z: list, d: n, scale: 1.0 };
        // SAFETY: as the caller vouches.
        let sums = unsafe { sums::<V, P>(prof, between, at, Ask { count: false, fine: true }) };
        // Those above have as much more as the threshold is lower.
        let sums = Sums { f: sums.f + above.f - above.g * at.value(), g: sums.g + above.g, count: None };
        let step = prof.step_wide(sums.f, sums.g);
        if tau == bound && sums.f < 1.0 && !prof.is_swept(sums, before, step, d as f64) {
            return None;
        }
        tau = at.value() + step;
        if sums.g >= before {
            break;
        }
        before = sums.g;
    }
    Some(tau)
}

outlined! {
    /// The sums at τ, and the entries that are not above it by less than `−width`, as their distance from it, in `list`:
    /// how many, or more than [`LISTED`] if those were too many.
    ///
    /// # Safety
    /// As [`root`].
    unsafe fn narrow<V, P: Direct>(prof: P, row: Row, tau: Tau, width: f32, list: *mut f32) -> (Sums, usize) => narrow_any
}

/// # Safety
/// As [`narrow`].
#[inline(always)]
unsafe fn narrow_any<V: Vector, P: Direct>(prof: P, row: Row, tau: Tau, width: f32, list: *mut f32) -> (Sums, usize) {
    // SAFETY: every load stays within `d` floats; between two looks at its length, which is at most `LISTED` then, the
    // list grows by as many as are looked at.
    unsafe {
        let (scale, zero) = (V::splat(row.scale), V::splat(0.0));
        let (hi, lo, width) = (V::splat(-tau.hi), V::splat(-tau.lo), V::splat(width));
        let mut wide = [V::wide_zero(); 2];
        let (mut n, mut i) = (0, 0);
        let group = 2 * V::LANES;
        while i < row.d && n <= LISTED {
            let mut sums = Lanes::<V>::new();
            let end = row.d.min(i + group * BLOCK);
            while i < end {
                let mut x = [zero; 2];
                if i + group <= end {
                    for k in 0..2 {
                        x[k] = V::load(row.z.add(i + k * V::LANES));
                    }
                } else {
                    for k in 0..2 {
                        let at = (i + k * V::LANES).min(end);
                        x[k] = V::load_first(row.z.add(at), (end - at).min(V::LANES), f32::NEG_INFINITY);
                    }
                }
                let mut near = [zero.gt(zero); 2];
                for k in 0..2 {
                    x[k] = x[k].fma(scale, hi).add(lo);
                    near[k] = V::and(x[k].gt(width), zero.ge(x[k]));
                    sums.add::<P, false>(prof, k, x[k].positive());
                }
                if V::bits(V::or(near[0], near[1])) != 0 {
                    for k in 0..2 {
                        n += x[k].compress(near[k], list.add(n));
                    }
                }
                i += group;
            }
            let [f, g, _] = sums.total::<P>();
            wide = [V::wide_add(wide[0], f), V::wide_add(wide[1], g)];
        }
        if n > LISTED {
            return (sums_of::<V, P, false, true>(prof, row, tau), n);
        }
        (Sums { f: V::wide_total(wide[0]), g: V::wide_total(wide[1]), count: None }, n)
    }
}
