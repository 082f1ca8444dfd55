//! Thresholded mappings on short rows: `LANES` rows at a time.
//!
//! Plainly, for each row: find the maximum, a lower bound on τ, keep the entries above the
//! bound, solve for τ on them, write `[x − τ]₊^e`. A short row spends its time not on its
//! entries but on the chains between those steps (horizontal sums, divisions, branches).
//! So each step is done for `LANES` rows before the next begins, and the scalar part of a
//! step is done for all of them at once, one row per lane: the lane maxima of the rows are
//! transposed, bounds are found lane by lane, and so are the thresholds.

use super::profile::{At, Profile, Tau};
use super::scan::{collect, into_lanes, lane_maxima};
use super::solve::{Frame, make_ready, solve_lanes};
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense, dense_any};
use super::{Forward, Status};

/// Widest row for which whole groups of rows are solved together.
pub(crate) const SHORT: usize = 1024;

/// A row with more candidates than this is solved on its own, lengthwise.
const LANE_SLOTS: usize = 512;

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

/// Steps towards a bound: the narrower a row, the less there is to leave out of its list.
fn bound_steps(d: usize) -> usize {
    if d <= 256 { 1 } else { 3 }
}

/// What the first four steps find out about a group of rows.
struct Solved {
    /// One bit a row: a NaN or `+inf`; nothing but `−inf`.
    bad: u32,
    empty: u32,
    max: [f32; MAX_LANES],
    tau: [f64; MAX_LANES],
}

/// Forward pass of a block of short rows. `bounds` filters, `prof` solves; the root of the
/// one is not right of that of the other. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector, B: Profile, P: Profile>(
    (bounds, prof): (B, P),
    job: &mut Forward<'_>,
    loss: Option<(f32, &mut [RowSum])>,
) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (gain, mut sums) = loss.unzip();
    // Candidates of one row and its padding; behind all rows the transposed block.
    let stride = d.next_multiple_of(V::LANES) + LANE_SLOTS + V::LANES;
    let room = V::LANES * (stride + LANE_SLOTS + V::LANES);
    let buffer = job.scratch.floats(room);
    let rows = job.status.len();
    for first in (0..rows).step_by(V::LANES) {
        let here = (rows - first).min(V::LANES);
        // SAFETY: `here` rows of `d` floats start at row `first`; the scratch was sized
        // above.
        unsafe {
            let z = job.z.as_ptr().add(first * d);
            let out = job.out.as_mut_ptr().add(first * d);
            let group = solve_group::<V, B, P>(bounds, prof, z, d, here, scale, (buffer, stride));
            // 5. Probabilities.
            let plain = gain.is_none() && group.bad | group.empty == 0;
            if plain {
                write_group::<V, P>(prof, z, out, d, here, scale, &group);
            }
            for r in 0..here {
                let (max, tau) = (group.max[r], group.tau[r]);
                let status = Status::from_flags(group.bad >> r & 1 == 1, group.empty >> r & 1 == 1);
                job.status[first + r] = status;
                if let Some(t) = job.tau.as_deref_mut() {
                    t[first + r] = status.tau(f64::from(scale) * f64::from(max) + tau);
                }
                if plain {
                    continue;
                }
                let (z, out) = (z.add(r * d), out.add(r * d));
                if status != Status::Ok {
                    std::slice::from_raw_parts_mut(out, d).fill(status.fill());
                    continue;
                }
                let (frame, at) = (Frame { max, scale }, Tau::new(tau));
                let pu = any_dense::<V, P>(prof, z, (out, false), d, frame, at, gain);
                if let Some(sums) = sums.as_deref_mut() {
                    sums[first + r] = RowSum { max, tau, pu };
                }
            }
        }
    }
}

outlined! {
    /// Writes all rows of a group: nothing but [`dense_any`], without a call for each.
    ///
    /// # Safety
    /// As `dense`, for `here` rows.
    unsafe fn write_group<V, P: Profile>(
        prof: P,
        z: *const f32,
        out: *mut f32,
        d: usize,
        here: usize,
        scale: f32,
        group: *const Solved,
    ) -> () => write_group_any
}

/// # Safety
/// As [`write_group`].
#[inline(always)]
unsafe fn write_group_any<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    out: *mut f32,
    d: usize,
    here: usize,
    scale: f32,
    group: *const Solved,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let group = &*group;
        for r in 0..here {
            let (frame, tau) = (Frame { max: group.max[r], scale }, Tau::new(group.tau[r]));
            dense_any::<V, P, false>(prof, z.add(r * d), (out.add(r * d), false), d, frame, tau, 1.0);
        }
    }
}

outlined! {
    /// Maxima and thresholds of a group of `here ≤ LANES` rows. Missing rows are lanes that
    /// are never active.
    ///
    /// # Safety
    /// `z` is readable for `here` rows of `d` floats; the buffer is writable for `LANES` rows
    /// of its stride and `LANE_SLOTS + LANES` vectors; the CPU has the instruction set of `V`.
    unsafe fn solve_group<V, B: Profile, P: Profile>(
        bounds: B,
        prof: P,
        z: *const f32,
        d: usize,
        here: usize,
        scale: f32,
        buffer: (*mut f32, usize),
    ) -> Solved => solve_group_any
}

/// # Safety
/// As [`solve_group`].
#[inline(always)]
unsafe fn solve_group_any<V: Vector, B: Profile, P: Profile>(
    bounds: B,
    prof: P,
    z: *const f32,
    d: usize,
    here: usize,
    scale: f32,
    (buffer, stride): (*mut f32, usize),
) -> Solved {
    // SAFETY: rows, scratch and lane buffers are in bounds as the caller vouches.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));

        // 1. Lane maxima of every row, then rows into lanes.
        let mut across = [0.0f32; MAX_LANES * MAX_LANES];
        let (max, nans) = lanes_of_maxima::<V>(z, (d, here), &mut across);
        let bad = nans | V::bits(max.ge(V::splat(f32::INFINITY)));
        let empty = V::bits(none.ge(max));
        // A maximum of −inf would turn differences into NaN; with 0 they stay −inf.
        let max = max.select(max.gt(none), zero);

        // 2. Bounds, lane by lane.
        let scales = V::splat(scale);
        let tau0 = lane_bounds::<V, B>(bounds, across.as_ptr(), max, scales, bound_steps(d)).sub(V::splat(1e-6));
        let (mut maxs, mut taus) = ([0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
        max.store(maxs.as_mut_ptr());
        tau0.store(taus.as_mut_ptr());
        let depth = tau0.sub(V::splat(1e-6)).div(scales);
        let room = max.max(zero.sub(max)).sub(depth).mul(V::splat(2.4e-7));
        let mut cuts = [0.0f32; MAX_LANES];
        max.add(depth).sub(room).store(cuts.as_mut_ptr());

        // 3. Candidates, row by row; long lists are solved at once.
        let mut counts = [0.0f32; MAX_LANES];
        let mut kept = [0usize; MAX_LANES];
        let mut tau = [0.0f64; MAX_LANES];
        let mut slots = 0;
        for r in 0..here {
            if (bad | empty) >> r & 1 == 1 {
                continue;
            }
            // The row that this lane will hold next, on its way while this one is worked on.
            let mut ahead = 0;
            while ahead < d {
                V::prefetch(z.wrapping_add((V::LANES + r) * d + ahead));
                ahead += 16;
            }
            let list = buffer.add(r * stride);
            let n = collect::<V>(z.add(r * d), d, cuts[r], list);
            if n <= LANE_SLOTS {
                slots = slots.max(n);
                kept[r] = n;
                counts[r] = n as f32;
            } else {
                let frame = Frame { max: maxs[r], scale };
                make_ready::<V>(list, n, frame);
                tau[r] = prof.root::<V, true>(list, n, frame, f64::from(taus[r])).value();
            }
        }

        // 4. The short lists, one row per lane.
        if slots > 0 {
            let lanes = buffer.add(V::LANES * stride);
            into_lanes::<V>(buffer, stride, &kept, slots, lanes);
            let slots = slots.next_multiple_of(4);
            for k in 0..slots {
                let x = V::load(lanes.add(k * V::LANES)).sub(max).mul(scales);
                x.store(lanes.add(k * V::LANES));
            }
            let terms = V::load(counts.as_ptr());
            let mut start = tau0;
            if P::DEAR {
                // Most of the way by the cheaper profile.
                let (near, step) = solve_lanes::<V, B>(bounds, lanes, slots, start, terms);
                start = near.add(step).sub(V::splat(1e-7));
            }
            let (hi, lo) = solve_lanes::<V, P>(prof, lanes, slots, start, terms);
            let (mut his, mut los) = ([0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
            hi.store(his.as_mut_ptr());
            lo.store(los.as_mut_ptr());
            for r in 0..here {
                if counts[r] > 0.0 {
                    tau[r] = f64::from(his[r]) + f64::from(los[r]);
                }
            }
        }

        Solved { bad, empty, max: maxs, tau }
    }
}
