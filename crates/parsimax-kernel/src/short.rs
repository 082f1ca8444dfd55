//! Short rows, `LANES` at a time: their maxima, and bounds on their thresholds.
//!
//! A short row spends its time not on its entries but on the chains between the steps (horizontal sums, divisions,
//! branches). So each step is done for `LANES` rows before the next begins, and the scalar part of a step is done for
//! all of them at once, one row per lane: the lane maxima of the rows are transposed, and bounds are found lane by lane.

use super::profile::{At, Profile};
use super::scan::lane_maxima;
use super::vector::{MAX_LANES, Vector};

/// Widest row for which whole groups of rows are solved together.
pub(crate) const SHORT: usize = 1024;

/// The lane maxima of `here ≤ LANES` rows, turned into lanes of rows; returns the maxima of the rows, and a bit for
/// every row with a NaN. The maximum of a row that is missing is 0.
///
/// # Safety
/// `z` is readable for `here` rows of `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn lanes_of_maxima<V: Vector>(
    z: *const f32,
    (d, here): (usize, usize),
    across: &mut [f32; MAX_LANES * MAX_LANES],
) -> (V, u32) {
    // SAFETY: as the caller vouches; both blocks hold a vector for each lane.
    unsafe {
        let mut maxima = [0.0f32; MAX_LANES * MAX_LANES];
        let mut nans = 0u32;
        for r in 0..here {
            let (m, nan) = lane_maxima::<V>(z.add(r * d), d);
            m.store(maxima.as_mut_ptr().add(r * V::LANES));
            nans |= u32::from(nan) << r;
        }
        V::transpose(maxima.as_ptr(), V::LANES, across.as_mut_ptr());
        let mut max = V::load(across.as_ptr());
        for j in 1..V::LANES {
            max = V::load(across.as_ptr().add(j * V::LANES)).max(max);
        }
        (max, nans)
    }
}

/// Lane-wise lower bounds on τ from the transposed lane maxima `t`, by Newton steps from `−1`
/// (every iterate from the left is a bound).
///
/// # Safety
/// `t` is readable for `LANES` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn lane_bounds<V: Vector, P: Profile>(prof: P, t: *const f32, max: V, scale: V, steps: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let zero = V::splat(0.0);
        let mut tau = V::splat(-1.0);
        for _ in 0..steps {
            let (mut f, mut g) = ([zero; 2], [zero; 2]);
            for j in 0..V::LANES {
                let x = V::load(t.add(j * V::LANES)).sub(max).mul(scale);
                let (a, b) = prof.terms(x, &At::lanes(tau));
                f[j % 2] = f[j % 2].add(a);
                g[j % 2] = g[j % 2].add(b);
            }
            tau = tau.add(prof.step(f[0].add(f[1]), g[0].add(g[1])));
        }
        tau
    }
}
