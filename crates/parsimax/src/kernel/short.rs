//! Thresholded mappings on short rows: `LANES` rows at a time.
//!
//! Plainly, for each row: find the maximum, a lower bound on τ, keep the entries above the
//! bound, solve for τ on them, write `[x − τ]₊^e`. A short row spends its time not on its
//! entries but on the chains between those steps (horizontal sums, divisions, branches).
//! So each step is done for `LANES` rows before the next begins, and the scalar part of a
//! step is done for all of them at once, one row per lane: the lane maxima of the rows are
//! transposed, bounds are found lane by lane, and so are the thresholds.

use super::profile::{At, Profile, Tau};
use super::scan::{collect, lane_maxima};
use super::solve::{Frame, make_ready, solve_lanes};
use super::vector::{MAX_LANES, Vector};
use super::write::{RowSum, dense};
use super::{Forward, Status};

/// Widest row for which whole groups of rows are solved together.
pub(crate) const SHORT: usize = 1024;

/// A row with more candidates than this is solved on its own, lengthwise.
const LANE_SLOTS: usize = 64;

/// Lane-wise lower bounds on τ from the transposed lane maxima `t`, by three Newton steps
/// from `−1` (every iterate from the left is a bound).
///
/// # Safety
/// `t` is readable for `LANES` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn lane_bounds<V: Vector, P: Profile>(prof: P, t: *const f32, max: V, scale: V) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let zero = V::splat(0.0);
        let mut tau = V::splat(-1.0);
        for _ in 0..3 {
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

/// Forward pass of a block of short rows. With `LOSS` the probabilities are multiplied by
/// `gain`, and `sums` gets what the loss of each row needs. `bounds` filters, `prof` solves;
/// the root of the one is not right of that of the other.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn forward<V: Vector, B: Profile, P: Profile, const LOSS: bool>(
    (bounds, prof): (B, P),
    job: &mut Forward<'_>,
    gain: f32,
    sums: &mut [RowSum],
) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    // Candidates of one row and its padding; behind all rows the transposed block.
    let stride = d.next_multiple_of(V::LANES) + LANE_SLOTS + V::LANES;
    let buffer = job.scratch.floats(V::LANES * (stride + LANE_SLOTS + V::LANES));
    let rows = job.status.len();
    let mut first = 0;
    while first < rows {
        let here = (rows - first).min(V::LANES);
        // SAFETY: `here` rows of `d` floats start at row `first`; the scratch was sized
        // above.
        unsafe {
            group::<V, B, P, LOSS>((bounds, prof), job, scale, (first, here), (buffer, stride), gain, sums);
        }
        first += here;
    }
}

/// One group of `here ≤ LANES` rows. Missing rows are lanes that are never active.
///
/// # Safety
/// As [`forward`]; `buffer` is writable for `LANES` rows of `stride` floats and
/// `LANE_SLOTS + LANES` vectors.
#[inline(always)]
unsafe fn group<V: Vector, B: Profile, P: Profile, const LOSS: bool>(
    (bounds, prof): (B, P),
    job: &mut Forward<'_>,
    scale: f32,
    (first, here): (usize, usize),
    (buffer, stride): (*mut f32, usize),
    gain: f32,
    sums: &mut [RowSum],
) {
    // SAFETY: rows, scratch and lane buffers are in bounds as the caller vouches.
    unsafe {
        let d = job.d;
        let z = job.z.as_ptr().add(first * d);
        let out = job.out.as_mut_ptr().add(first * d);
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));

        // 1. Lane maxima of every row, then rows into lanes.
        let mut maxima = [0.0f32; MAX_LANES * MAX_LANES];
        let mut across = [0.0f32; MAX_LANES * MAX_LANES];
        let mut bad = 0u32;
        for r in 0..here {
            let (m, nan) = lane_maxima::<V>(z.add(r * d), d);
            m.store(maxima.as_mut_ptr().add(r * V::LANES));
            bad |= u32::from(nan) << r;
        }
        V::transpose(maxima.as_ptr(), V::LANES, across.as_mut_ptr());
        let mut max = V::load(across.as_ptr());
        for j in 1..V::LANES {
            max = V::load(across.as_ptr().add(j * V::LANES)).max(max);
        }
        bad |= V::bits(max.ge(V::splat(f32::INFINITY)));
        let empty = V::bits(none.ge(max));
        // A maximum of −inf would turn differences into NaN; with 0 they stay −inf.
        let max = max.select(max.gt(none), zero);

        // 2. Bounds, lane by lane.
        let scales = V::splat(scale);
        let tau0 = lane_bounds::<V, B>(bounds, across.as_ptr(), max, scales).sub(V::splat(1e-6));
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
            for r in 0..V::LANES {
                let mut k = kept[r];
                while k < slots.next_multiple_of(V::LANES) {
                    none.store(buffer.add(r * stride + k));
                    k += V::LANES;
                }
            }
            let mut k = 0;
            while k < slots {
                V::transpose(buffer.add(k), stride, lanes.add(k * V::LANES));
                k += V::LANES;
            }
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

        // 5. Probabilities.
        for r in 0..here {
            let status = Status::from_flags(bad >> r & 1 == 1, empty >> r & 1 == 1);
            job.status[first + r] = status;
            if let Some(t) = job.tau.as_deref_mut() {
                t[first + r] = status.tau(f64::from(scale) * f64::from(maxs[r]) + tau[r]);
            }
            if status == Status::Ok {
                let (frame, row) = (Frame { max: maxs[r], scale }, z.add(r * d));
                let pu = dense::<V, P, LOSS>(prof, row, out.add(r * d), d, frame, Tau::new(tau[r]), gain);
                if LOSS {
                    sums[first + r] = RowSum { max: maxs[r], tau: tau[r], pu };
                }
            } else {
                let row = std::slice::from_raw_parts_mut(out.add(r * d), d);
                row.fill(status.fill());
            }
        }
    }
}
