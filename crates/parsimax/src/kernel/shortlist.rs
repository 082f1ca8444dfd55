//! Sparsemax of long rows with a minority in the support: a list of whatever may be in it, and τ on the list.
//!
//! A sample says where the threshold is likely to be. One sweep lists all entries that are above a cut somewhat below, and
//! the list is solved. τ of a part of the entries is not right of τ of all; so if τ of the list is above the cut, nothing
//! that was left out has a say, and it is τ of the row. Else it is a lower bound, and a second list by that is complete.

use super::profile::{Direct, STEPS, Tau};
use super::solve::floor32;
use super::sweep::{Ask, Guess, Row, sums};
use super::vector::{Vector, outlined};

/// Floats that a list may take, with those that are looked at before its length is.
pub(super) const ROOM: usize = 8192;

/// Entries that are listed at most in rows that are longer.
const LISTED: usize = ROOM - BLOCK;

/// Entries between two looks at the length of the list.
const BLOCK: usize = 4096;

/// Lists that are made at most: the second is complete, but for rounding.
const LISTS: usize = 3;

/// What rounding may take from a bound.
const LOWER: f64 = 1e-6;

/// τ in the units of `scale·z`, given a lower bound on it and a guess; `None` if a list would be too long.
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
    let mut cut = floor32(bound.max(guess.tau - guess.margin));
    for _ in 0..LISTS {
        // SAFETY: as the caller vouches; so many were listed.
        unsafe {
            let n = collect::<V>(row, cut, list)?;
            let found = settle::<V, P>(prof, (list, n), guess.tau - f64::from(cut))?;
            let tau = f64::from(cut) + found;
            if found >= 0.0 {
                return Some(tau);
            }
            cut = floor32(tau - LOWER * (found.abs() + tau.abs()));
        }
    }
    None
}

/// τ of a list, from a guess on either side of it; `None` for an empty one.
///
/// # Safety
/// `list` is readable for `n` floats; the CPU has the instruction set of `V`.
unsafe fn settle<V: Vector, P: Direct>(prof: P, (list, n): (*const f32, usize), guess: f64) -> Option<f64> {
    let entries = Row { z: list, d: n, scale: 1.0 };
    let (mut tau, mut before) = (guess, 0.0);
    for _ in 0..STEPS {
        let at = Tau { hi: floor32(tau), ..Tau::default() };
        // SAFETY: as the caller vouches.
        let sums = unsafe { sums::<V, P>(prof, entries, at, Ask { count: false, fine: false }) };
        if sums.g <= 0.0 {
            if tau <= 0.0 {
                return None;
            }
            // Right of all of them.
            tau = 0.0;
            continue;
        }
        tau = at.value() + prof.step_wide(sums.f, sums.g);
        // As many as at the threshold that led here: the same ones, and that step was exact but for rounding.
        if sums.g == before {
            break;
        }
        before = sums.g;
    }
    Some(tau)
}

outlined! {
    /// The entries above `cut`, as their distance from it, in `list`; how many, or `None` if those are too many.
    ///
    /// # Safety
    /// As [`root`].
    unsafe fn collect<V>(row: Row, cut: f32, list: *mut f32) -> Option<usize> => collect_any
}

/// # Safety
/// As [`collect`].
#[inline(always)]
unsafe fn collect_any<V: Vector>(row: Row, cut: f32, list: *mut f32) -> Option<usize> {
    // SAFETY: every load stays within `d` floats; between two looks at its length, which is at most `LISTED` then, the
    // list grows by as many as are looked at, and a vector is written at its end.
    unsafe {
        let (scale, back, zero) = (V::splat(row.scale), V::splat(-cut), V::splat(0.0));
        let (mut n, mut i) = (0, 0);
        let group = 4 * V::LANES;
        while i < row.d {
            let end = row.d.min(i + BLOCK);
            while i + group <= end {
                let x: [V; 4] = [
                    V::load(row.z.add(i)).fma(scale, back),
                    V::load(row.z.add(i + V::LANES)).fma(scale, back),
                    V::load(row.z.add(i + 2 * V::LANES)).fma(scale, back),
                    V::load(row.z.add(i + 3 * V::LANES)).fma(scale, back),
                ];
                for k in 0..4 {
                    n += x[k].compress(x[k].gt(zero), list.add(n));
                }
                i += group;
            }
            while i < end {
                let len = (end - i).min(V::LANES);
                let x = V::load_first(row.z.add(i), len, f32::NEG_INFINITY).fma(scale, back);
                n += x.compress(x.gt(zero), list.add(n));
                i += len;
            }
            if n > LISTED && i < row.d {
                return None;
            }
        }
        Some(n)
    }
}
