//! Long rows with a minority in the support: a list of whatever may be in it, and τ on the list.
//!
//! A sample says where the threshold is likely to be. One sweep lists all entries that are above a cut somewhat below, and
//! the list is solved. τ of a part of the entries is not right of τ of all; so if τ of the list is above the cut, nothing
//! that was left out has a say, and it is τ of the row. Else it is a lower bound, and a second list by that is complete.

use super::profile::{Direct, STEPS, Tau};
use super::scan::collect;
use super::solve::floor32;
use super::sweep::{Ask, Guess, Row, sums};
use super::vector::{Vector, outlined};

/// Floats that a list may take, with those that are looked at before its length is.
pub(super) const ROOM: usize = 16_384;

/// Entries that are listed at most in rows that are longer.
const LISTED: usize = ROOM - BLOCK;

/// The part of a row in the support from which on a list of it is not worth its making.
const FEW: f64 = 0.25;

/// Entries in the support for which a list is likely to have room, with those that turn out not to be in it.
const ROOMY: f64 = LISTED as f64 / 1.5;

/// Entries between two looks at the length of the list.
const BLOCK: usize = 4096;

/// Lists that are made at most: the second is complete, but for rounding.
const LISTS: usize = 3;

/// What rounding may take from a bound.
const LOWER: f64 = 1e-6;

/// How far above the cut τ may be found.
const FAR: f64 = 1.0;

/// τ in the units of `scale·z`, given a lower bound on it and a guess; `None` if a list would be too long
/// to be worth its making.
///
/// # Safety
/// `row` is readable; `list` is writable for [`ROOM`] floats, or for as many as the row has if that is less, and a vector
/// more; the CPU has the instruction set of `V`.
pub(super) unsafe fn root<V: Vector, P: Direct>(
    prof: P,
    row: Row,
    bound: f64,
    guess: Guess,
    list: *mut f32,
) -> Option<f64> {
    if guess.many > ROOMY.min(FEW * row.d as f64) {
        return None;
    }
    let mut cut = floor32(bound.max(guess.tau - guess.margin));
    for _ in 0..LISTS {
        // SAFETY: as the caller vouches; so many were listed.
        unsafe {
            let (n, least) = list_above::<V>(row, cut, list)?;
            let found = settle::<V, P>(prof, (list, n), guess.tau - f64::from(cut))?;
            let tau = f64::from(cut) + found;
            // Far from the cut, entries have been rounded.
            if found >= f64::from(least) && found <= FAR {
                return Some(tau);
            }
            cut = floor32(tau - LOWER * (found.abs() + tau.abs()));
        }
    }
    None
}

/// τ of a list, from a guess on either side of it; `None` for an empty one, and for one that is not finite.
///
/// # Safety
/// `list` is readable for `n` floats; the CPU has the instruction set of `V`.
unsafe fn settle<V: Vector, P: Direct>(prof: P, (list, n): (*const f32, usize), guess: f64) -> Option<f64> {
    let entries = Row { z: list, d: n, scale: 1.0 };
    let (mut tau, mut before) = (guess, f64::INFINITY);
    for _ in 0..STEPS {
        let at = Tau { hi: floor32(tau), ..Tau::default() };
        // SAFETY: as the caller vouches.
        let sums = unsafe { sums::<V, P>(prof, entries, at, Ask { count: P::CURVED, fine: false }) };
        if !sums.f.is_finite() {
            return None;
        }
        if sums.g <= 0.0 {
            if tau <= 0.0 {
                return None;
            }
            // Right of all of them.
            tau = 0.0;
            continue;
        }
        let step = prof.leap(sums);
        tau = at.value() + step;
        // As many as at the threshold that led here: the same ones, and that step was exact but for rounding.
        if if P::CURVED { prof.is_swept(sums, before, step, n as f64) } else { sums.g == before } {
            break;
        }
        before = sums.g;
    }
    Some(tau)
}

outlined! {
    /// The entries above `cut`, as their distance from it, in `list`, and how far above it one that was left out may be;
    /// how many, or `None` if those are too many.
    ///
    /// # Safety
    /// As [`root`].
    unsafe fn list_above<V>(row: Row, cut: f32, list: *mut f32) -> Option<(usize, f32)> => list_above_any
}

/// # Safety
/// As [`list_above`].
#[inline(always)]
unsafe fn list_above_any<V: Vector>(row: Row, cut: f32, list: *mut f32) -> Option<(usize, f32)> {
    // SAFETY: every load stays within `d` floats; between two looks at its length, which is at most `LISTED` then, the
    // list grows by as many as are looked at, and a vector is written at its end.
    unsafe {
        let (mut n, limit) = (0, cut / row.scale);
        for first in (0..row.d).step_by(BLOCK) {
            if n > LISTED {
                return None;
            }
            n += collect::<V>(row.z.add(first), (row.d - first).min(BLOCK), limit, list.add(n));
        }
        let (scale, back) = (V::splat(row.scale), V::splat(-cut));
        for k in (0..n).step_by(V::LANES) {
            V::load(list.add(k)).fma(scale, back).store(list.add(k));
        }
        Some((n, limit.mul_add(row.scale, -cut)))
    }
}
