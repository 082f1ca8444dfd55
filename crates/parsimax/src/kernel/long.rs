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

use super::profile::{Profile, Slope};
use super::scan::{TILE, collect_indexed, tile_maxima};
use super::solve::{Frame, bound, cut, make_ready};
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense, scattered};
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

/// Forward pass of a block of long rows. For a `loss` the probabilities are
/// multiplied by its gain, and its sums get what the loss of each row needs. `bounds` filters, `prof` solves;
/// the root of the one is not right of that of the other.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector, B: Slope, P: Profile>(
    (bounds, prof): (B, P),
    job: &mut Forward<'_>,
    loss: Option<(f32, &mut [RowSum])>,
) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (gain, mut sums) = loss.unzip();
    let (list, index) = job.scratch.lists(d + 2 * MAX_LANES);
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices; the lists hold a row and two vectors.
        unsafe {
            let z = job.z.as_ptr().add(r * d);
            let out = job.out.as_mut_ptr().add(r * d);
            let mut tau = 0.0;
            let status = match scan::<V, B>(bounds, z, d, scale, list, index) {
                Err(status) => {
                    std::slice::from_raw_parts_mut(out, d).fill(status.fill());
                    status
                }
                Ok(found) => {
                    let frame = found.frame;
                    job.scratch.listed = found.listed;
                    let (t, pu);
                    match found.listed {
                        Some(n) => {
                            make_ready::<V>(list, n, frame);
                            t = prof.root::<V, true>(list, n, frame, found.tau);
                            let c = (list, index.cast_const(), n);
                            pu = match gain {
                                _ if !P::DEAR && n >= d / 16 => any_dense::<V, P>(prof, z, out, d, frame, t, gain),
                                None => scattered::<V, P, false>(prof, c, out, d, t, 1.0),
                                Some(g) => scattered::<V, P, true>(prof, c, out, d, t, g),
                            };
                        }
                        None => {
                            t = prof.root::<V, false>(z, d, frame, found.tau);
                            pu = any_dense::<V, P>(prof, z, out, d, frame, t, gain);
                        }
                    }
                    if let Some(sums) = sums.as_deref_mut() {
                        sums[r] = RowSum { max: frame.max, tau: t.value(), pu };
                    }
                    tau = f64::from(scale) * f64::from(frame.max) + t.value();
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

outlined! {
    /// One pass over the row: maximum, bound, candidates.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; `list` and `index` are writable for `d + 2·LANES`; the
    /// CPU has the instruction set of `V`.
    unsafe fn scan<V, P: Slope>(
        prof: P,
        z: *const f32,
        d: usize,
        scale: f32,
        list: *mut f32,
        index: *mut u32,
    ) -> Result<Found, Status> => scan_any
}

/// # Safety
/// As [`scan`].
#[inline(always)]
unsafe fn scan_any<V: Vector, P: Slope>(
    prof: P,
    z: *const f32,
    d: usize,
    scale: f32,
    list: *mut f32,
    index: *mut u32,
) -> Result<Found, Status> {
    // SAFETY: chunks lie within the row, and the list never outgrows what was read.
    unsafe {
        let mut frame = Frame { max: f32::NEG_INFINITY, scale };
        let mut limit = f32::NEG_INFINITY;
        if d > CHUNK {
            limit = first_limit::<V, P>(prof, z, d, scale);
        }
        let mut tiles = [0.0f32; CHUNK / TILE * MAX_LANES];
        let (mut tau, mut n, mut sparse) = (-1.0f64, 0usize, true);
        let mut start = 0;
        while start < d {
            let len = (d - start).min(CHUNK);
            let chunk = z.add(start);
            let (m, nan) = tile_maxima::<V>(chunk, len, tiles.as_mut_ptr());
            let top = m.reduce_max();
            if nan || top == f32::INFINITY {
                return Err(Status::Bad);
            }
            if top > limit {
                let many = len.div_ceil(TILE) * V::LANES;
                if top > frame.max {
                    // A new maximum moves the frame, and with it the bound.
                    frame.max = top;
                    let mut best = [0.0f32; MAX_LANES];
                    m.store(best.as_mut_ptr());
                    tau = bound::<V, P>(prof, best.as_ptr(), V::LANES, frame, -1.0, 4) - 1e-6;
                    limit = limit.max(cut(tau as f32, frame));
                }
                if sparse {
                    // Many tiles that reach above the limit: their maxima are a larger
                    // subset, and bring a better bound.
                    if above::<V>(tiles.as_ptr(), many, limit) > 8 * V::LANES {
                        let t = bound::<V, P>(prof, tiles.as_ptr(), many, frame, tau, 4) - 1e-6;
                        if t > tau {
                            tau = t;
                            limit = limit.max(cut(t as f32, frame));
                        }
                    }
                    let limits = V::splat(limit);
                    let mut t = 0;
                    while t * TILE < len {
                        if V::bits(V::load(tiles.as_ptr().add(t * V::LANES)).gt(limits)) != 0 {
                            let (at, rest) = (t * TILE, (len - t * TILE).min(TILE));
                            n += collect_indexed::<V>(
                                chunk.add(at),
                                rest,
                                limit,
                                (start + at) as u32,
                                list.add(n),
                                index.add(n),
                            );
                            if n > CROWDED && n > (start + at) / 2 {
                                sparse = false;
                                break;
                            }
                        }
                        t += 1;
                    }
                }
            }
            start += len;
        }
        if frame.max == f32::NEG_INFINITY {
            // Every entry is −inf, or the limit of the sample hid the chunks: it cannot,
            // since the sample's maximum is above its own limit.
            return Err(Status::Empty);
        }
        Ok(Found { frame, tau, listed: sparse.then_some(n) })
    }
}

/// A limit to begin with, from vectors spread over the row, so that a row in ascending
/// order does not list every chunk in turn. `−inf` if the sample has nothing to say.
///
/// # Safety
/// `z` is readable for `d > CHUNK` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn first_limit<V: Vector, P: Slope>(prof: P, z: *const f32, d: usize, scale: f32) -> f32 {
    const SAMPLES: usize = 32;
    // SAFETY: the last vector read ends at `d`.
    unsafe {
        let mut sample = [0.0f32; SAMPLES * MAX_LANES];
        let mut m = V::splat(f32::NEG_INFINITY);
        // No entry twice: τ of a multiset is no bound. The last vector stands alone.
        let stride = (d - 2 * V::LANES) / (SAMPLES - 2);
        for k in 0..SAMPLES {
            let at = if k + 1 < SAMPLES { k * stride } else { d - V::LANES };
            let v = V::load(z.add(at));
            m = v.max(m);
            v.store(sample.as_mut_ptr().add(k * V::LANES));
        }
        let max = m.reduce_max();
        if !max.is_finite() {
            return f32::NEG_INFINITY;
        }
        let frame = Frame { max, scale };
        let tau = bound::<V, P>(prof, sample.as_ptr(), SAMPLES * V::LANES, frame, -1.0, 4);
        let limit = cut(tau as f32, frame);
        // A NaN in the sample makes the limit NaN; the row is bad and the scan will say so.
        if limit.is_nan() { f32::NEG_INFINITY } else { limit }
    }
}

/// How many of `n` floats (whole vectors) are above `limit`.
///
/// # Safety
/// `p` is readable for `n` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn above<V: Vector>(p: *const f32, n: usize, limit: f32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe {
        let limit = V::splat(limit);
        let (mut i, mut count) = (0, 0);
        while i < n {
            count += V::bits(V::load(p.add(i)).gt(limit)).count_ones() as usize;
            i += V::LANES;
        }
        count
    }
}
