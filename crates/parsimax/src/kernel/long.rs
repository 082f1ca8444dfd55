//! Thresholded mappings on long rows, at the speed of memory.
//!
//! Plainly: maximum, candidates above a lower bound on τ, τ on the candidates, write.
//! A long row must be read from memory once and no more, so the first two steps run over
//! chunks that fit the first-level cache: the maximum of a chunk, the bound it brings, and
//! its candidates while it is still close. The bound comes from lane maxima, a subset of
//! the row, and is far tighter than `max − 1`. Candidates keep their position, so a sparse
//! result is a row of zeros with a few entries put in, and the scores are not read again.
//!
//! Rows whose support is dense would fill the list for nothing: when the list outgrows a
//! share of what was read even after its own Newton steps, it is given up, and τ is solved
//! on the row itself.

use super::profile::Profile;
use super::scan::{collect_indexed, lane_maxima};
use super::solve::{Frame, bound, cut, solve, sums};
use super::vector::{MAX_LANES, Vector};
use super::write::{dense, scattered};
use super::{Forward, Status};

/// Entries looked at together: 16 KiB.
const CHUNK: usize = 4096;

/// A list this long is pruned, or given up, before it grows further.
const CROWDED: usize = 1024;

/// What a scan of one row finds.
struct Found {
    frame: Frame,
    /// A lower bound on τ.
    tau: f64,
    /// Length of the candidate list, or `None` when it was given up.
    listed: Option<usize>,
}

/// Forward pass of a block of long rows.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn forward<V: Vector, P: Profile>(prof: P, job: &mut Forward<'_>) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (list, index) = job.scratch.lists(d + 2 * MAX_LANES);
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices; the lists hold a row and two vectors.
        unsafe {
            let z = job.z.as_ptr().add(r * d);
            let out = job.out.as_mut_ptr().add(r * d);
            let mut tau = 0.0;
            let status = match scan::<V, P>(prof, z, d, scale, list, index) {
                Err(status) => {
                    std::slice::from_raw_parts_mut(out, d).fill(status.fill());
                    status
                }
                Ok(found) => {
                    let frame = found.frame;
                    let (from, len) = match found.listed {
                        Some(n) => (list.cast_const(), n),
                        None => (z, d),
                    };
                    let t = solve::<V, P>(prof, from, len, frame, found.tau);
                    match found.listed {
                        Some(n) if n < d / 16 => {
                            scattered::<V, P>(prof, list, index, n, out, d, frame, t);
                        }
                        _ => dense::<V, P>(prof, z, out, d, frame, t),
                    }
                    tau = f64::from(scale) * f64::from(frame.max) + t;
                    Status::Ok
                }
            };
            job.status[r] = status;
            if let Some(t) = job.tau.as_deref_mut() {
                t[r] = status.tau(tau);
            }
        }
    }
}

/// One pass over the row: maximum, bound, candidates.
///
/// # Safety
/// `z` is readable for `d` floats; `list` and `index` are writable for `d + 2·LANES`; the
/// CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn scan<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    d: usize,
    scale: f32,
    list: *mut f32,
    index: *mut u32,
) -> Result<Found, Status> {
    // SAFETY: chunks lie within the row, and the list never outgrows what was read.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut frame = Frame { max: f32::NEG_INFINITY, scale };
        let mut maxima = [none; 4];
        let (mut tau, mut limit) = (-1.0f64, f32::NEG_INFINITY);
        let (mut n, mut crowded, mut sparse) = (0usize, CROWDED, true);
        let mut start = 0;
        while start < d {
            let len = (d - start).min(CHUNK);
            let chunk = z.add(start);
            let (m, nan) = lane_maxima::<V>(chunk, len);
            let top = m[0].max(m[1]).max(m[2].max(m[3])).reduce_max();
            if nan || top == f32::INFINITY {
                return Err(Status::Bad);
            }
            if top > limit {
                if top > frame.max {
                    // A new maximum moves the frame, and with it the bound.
                    frame.max = top;
                    let mut best = [0.0f32; 4 * MAX_LANES];
                    for k in 0..4 {
                        maxima[k] = m[k].max(maxima[k]);
                        maxima[k].store(best.as_mut_ptr().add(k * V::LANES));
                    }
                    tau = bound::<V, P>(prof, best.as_ptr(), 4 * V::LANES, frame) - 1e-6;
                    // Rounding aside, the limit never falls; keep what was gained before.
                    limit = limit.max(cut(tau as f32, frame));
                }
                if sparse {
                    let at = start as u32;
                    n += collect_indexed::<V>(chunk, len, limit, at, list.add(n), index.add(n));
                    if n > crowded {
                        for _ in 0..2 {
                            let (f, g) = sums::<V, P>(prof, list, n, frame, tau);
                            tau += prof.step_wide(f, g);
                        }
                        tau -= 1e-6;
                        limit = limit.max(cut(tau as f32, frame));
                        n = prune(list, index, n, limit);
                        sparse = n <= (start + len) / 4;
                        crowded = CROWDED + 2 * n;
                    }
                }
            }
            start += len;
        }
        if frame.max == f32::NEG_INFINITY {
            return Err(Status::Empty);
        }
        Ok(Found { frame, tau, listed: sparse.then_some(n) })
    }
}

/// Drops the listed entries that are not above `limit`; returns how many stay.
///
/// # Safety
/// `list` and `index` are readable and writable for `n` elements.
#[inline(always)]
unsafe fn prune(list: *mut f32, index: *mut u32, n: usize, limit: f32) -> usize {
    let mut kept = 0;
    for k in 0..n {
        // SAFETY: `kept ≤ k < n`.
        unsafe {
            let (v, i) = (*list.add(k), *index.add(k));
            *list.add(kept) = v;
            *index.add(kept) = i;
            kept += usize::from(v > limit);
        }
    }
    kept
}
