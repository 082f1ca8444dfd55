//! Thresholded mappings on long rows, at the speed of memory.
//!
//! Plainly: maximum, candidates above a lower bound on τ, τ on the candidates, write.
//! A long row must be read from memory once and written once and no more, so these steps run
//! over chunks that fit the first-level cache: the maximum of a chunk and zeros for its
//! output, the bound the maximum brings, and its candidates while it is still close. The
//! bound comes from lane maxima, a subset of the row, and is far tighter than `max − 1`.
//! Candidates keep their position, so a sparse result is a row of zeros with a few entries
//! put in, and the scores are not read again.
//!
//! The list has room for [`ROOM`] candidates, however long the row. When it gets crowded it
//! is pruned by the bound that the list itself brings. Rows whose support is dense would fill
//! it for nothing: it is given up, and τ is solved on the row itself, which for sparsemax and
//! 1.5-entmax needs no more of the scan (`sweep.rs`).

use super::group::Room;
use super::profile::{At, Profile, Slope, Tau};
use super::scan::{
    Above, TILE, Zeros, collect, collect_few_of_tile, collect_indexed, reaching, tile_maxima, tiles_above,
};
use super::solve::{Frame, bound, cut, make_ready};
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense};
use super::{Forward, Scratch, Status, dense};

/// Entries looked at together: 16 KiB.
const CHUNK: usize = 4096;

/// A list this long is pruned, or given up, before it grows further.
const CROWDED: usize = 64;

/// Candidates that are listed at most: 128 KiB of scores and positions.
const ROOM: usize = 16_384;

/// The part of the maxima in a chunk that are candidates from which on a list is not worth its making.
const SWEPT: usize = 8;

/// More tiles than this with candidates are worth a better bound.
const MANY_TILES: u32 = 12;

/// Rows tend to be alike: after a sparse one zeros are written before they are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Habit {
    /// Zeros wait for a look at the first chunk.
    late: bool,
    /// Many zeros will be overwritten.
    many: bool,
}

/// How a row is scanned.
#[derive(Clone, Copy)]
struct Manner {
    /// Zeros are written before they are asked for.
    early: bool,
    /// They are streamed.
    stream: bool,
    /// A row with many candidates is swept, which is cheaper than a long list.
    sweep: bool,
}

impl Habit {
    /// After rows that are written entry by entry.
    pub(super) const CROWDED: Habit = Habit { late: true, many: true };

    /// How zeros are written before they are asked for, if at all.
    pub(super) fn zeros(self, stream: bool) -> Zeros {
        match self.late {
            true => Zeros::None,
            false if stream && !self.many => Zeros::Streamed,
            false => Zeros::Stored,
        }
    }

    /// Zeros are streamed if hardly any will be overwritten, since those would have to be fetched again.
    fn manner(self, stream: bool, sweep: bool) -> Manner {
        Manner { early: !self.late, stream: stream && !self.many, sweep }
    }
}

/// What a scan of one row finds.
struct Found {
    frame: Frame,
    /// A lower bound on τ.
    tau: f64,
    /// Length of the candidate list, or `None` when it was given up. With a list the output
    /// is all zeros.
    listed: Option<usize>,
    /// Whether none of the output was written.
    untouched: bool,
    /// Whether only a part of the row was looked at, which has too many candidates for a list.
    is_part: bool,
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
    for r in 0..job.status.len() {
        // SAFETY: row `r` lies within both slices.
        let solved = unsafe {
            let to =
                Place { z: job.z.as_ptr().add(r * d), out: job.out.as_mut_ptr().add(r * d), d, stream: job.stream };
            row::<V, B, P>((bounds, prof), to, scale, gain, job.scratch)
        };
        let tau = match &solved {
            Ok(sum) => f64::from(scale) * f64::from(sum.max) + sum.tau,
            Err(status) => {
                job.out[r * d..(r + 1) * d].fill(status.fill());
                0.0
            }
        };
        let status = solved.err().unwrap_or(Status::Ok);
        if let (Some(sums), Ok(sum)) = (sums.as_deref_mut(), solved) {
            sums[r] = sum;
        }
        job.status[r] = status;
        if let Some(t) = job.tau.as_deref_mut() {
            t[r] = status.tau(tau);
        }
    }
    if job.stream {
        V::fence();
    }
}

/// A row and the place of its result.
#[derive(Clone, Copy)]
struct Place {
    z: *const f32,
    out: *mut f32,
    d: usize,
    stream: bool,
}

/// One row: solved and written, unless it is not fit.
///
/// # Safety
/// The row is readable and its place writable; the CPU has the instruction set of `V`.
unsafe fn row<V: Vector, B: Slope, P: Profile>(
    (bounds, prof): (B, P),
    Place { z, out, d, stream }: Place,
    scale: f32,
    gain: Option<f32>,
    scratch: &mut Scratch,
) -> Result<RowSum, Status> {
    let (list, index) = scratch.lists(d.min(ROOM) + TILE + 2 * MAX_LANES);
    let mut sweep = P::SWEEPS && V::FUSED;
    // SAFETY: as the caller vouches; the lists have the room that a scan asks for.
    unsafe {
        loop {
            let manner = scratch.habit.manner(stream, sweep);
            let found = scan::<V, B>(bounds, z, out, d, scale, (list, index), manner)?;
            let mut frame = found.frame;
            // What was just written is in a cache.
            let out_dense = (out, stream && found.untouched);
            scratch.habit = Habit {
                late: found.listed.is_none_or(|n| !P::DEAR && n >= d / 16),
                many: found.listed.is_none_or(|n| n >= d / 64),
            };
            scratch.listed = found.listed;
            let (t, pu) = match found.listed {
                Some(n) => {
                    let t = if P::REFRAMES {
                        let t;
                        (frame, t) = prof.framed_root::<V>(list, n, frame, found.tau);
                        make_ready::<V>(list, n, frame);
                        t
                    } else {
                        make_ready::<V>(list, n, frame);
                        prof.root::<V, true>(list, n, frame, found.tau)
                    };
                    let c = (list, index, n);
                    let (pu, kept) = match gain {
                        _ if !P::DEAR && n >= d / 16 => (any_dense::<V, P>(prof, z, out_dense, d, frame, t, gain), n),
                        None => scatter::<V, P, false>(prof, c, out, t, 1.0),
                        Some(g) => scatter::<V, P, true>(prof, c, out, t, g),
                    };
                    scratch.listed = Some(kept);
                    (t, pu)
                }
                None if found.is_part => match prof.sweep::<V>((z, d), out_dense, frame, found.tau, gain, list) {
                    Some(swept) => swept,
                    // There is something in the rest of the row that this way is not for.
                    None => {
                        sweep = false;
                        continue;
                    }
                },
                None => {
                    let t;
                    (frame, t) = prof.framed_root::<V>(z, d, frame, found.tau);
                    let pu = match gain {
                        _ if !P::DEAR => any_dense::<V, P>(prof, z, out_dense, d, frame, t, gain),
                        None => dense::write::<V, P, false>(prof, z, out, d, frame, t, 1.0),
                        Some(g) => dense::write::<V, P, true>(prof, z, out, d, frame, t, g),
                    };
                    (t, pu)
                }
            };
            return Ok(RowSum { max: frame.max, tau: t.value(), pu });
        }
    }
}

/// Row `r` of a block by itself.
///
/// # Safety
/// As [`forward`].
pub(crate) unsafe fn one_row<V: Vector, B: Slope, P: Profile>(
    profiles: (B, P),
    job: &mut Forward<'_>,
    r: usize,
    gain: Option<f32>,
    sums: Option<&mut [RowSum]>,
) {
    let at = r * job.d..(r + 1) * job.d;
    let mut row = Forward {
        z: &job.z[at.clone()],
        d: job.d,
        scale: job.scale,
        out: &mut job.out[at],
        stream: job.stream,
        tau: job.tau.as_deref_mut().map(|tau| &mut tau[r..=r]),
        status: &mut job.status[r..=r],
        scratch: &mut *job.scratch,
    };
    let loss = gain.zip(sums.map(|sums| &mut sums[r..=r]));
    // SAFETY: as the caller vouches, for one row.
    unsafe { forward::<V, B, P>(profiles, &mut row, loss) };
}

outlined! {
    /// One pass over the row: maximum, bound, candidates, zeros. A row that is dense from its
    /// first chunk needs no zeros; they come early, or after a look at that chunk.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats; the lists of scores and positions are
    /// writable for the smaller of `d` and [`ROOM`], a tile and two vectors; the CPU has the
    /// instruction set of `V`.
    unsafe fn scan<V, P: Slope>(
        prof: P,
        z: *const f32,
        out: *mut f32,
        d: usize,
        scale: f32,
        lists: (*mut f32, *mut u32),
        manner: Manner,
    ) -> Result<Found, Status> => scan_any
}

/// Lane maxima of the tiles of a chunk, and a vector more.
type Maxima = Room<{ CHUNK / TILE * MAX_LANES + MAX_LANES }>;

/// # Safety
/// As [`scan`].
#[inline(always)]
unsafe fn scan_any<V: Vector, P: Slope>(
    prof: P,
    z: *const f32,
    out: *mut f32,
    d: usize,
    scale: f32,
    (list, index): (*mut f32, *mut u32),
    Manner { early, stream, sweep }: Manner,
) -> Result<Found, Status> {
    // SAFETY: chunks lie within the row, and the list is cut short before it outgrows its room.
    unsafe {
        let (mut tiles, mut best) = (Maxima::uninit(), Maxima::uninit());
        let (tiles, best) = (tiles.as_mut_ptr(), best.as_mut_ptr());
        let mut frame = Frame { max: f32::NEG_INFINITY, scale };
        let (mut limit, mut untouched) = (f32::NEG_INFINITY, true);
        let (mut tau, mut n, mut sparse) = (-1.0f64, 0usize, true);
        // What the first chunk lists bounds τ for the others.
        let mut crowded = if d > CHUNK { CROWDED } else { (d / 8 * 3).max(1024) };
        let most = (d / 2).clamp(TILE, ROOM / 2);
        let (mut start, mut usual) = (0, MANY_TILES);
        while start < d {
            let len = (d - start).min(CHUNK);
            let chunk = z.add(start);
            let zeros = match sparse && (early || start > 0) {
                true if stream => Zeros::Streamed,
                true => Zeros::Stored,
                false => Zeros::None,
            };
            untouched &= zeros == Zeros::None;
            let from = limit;
            // The maxima of the tiles are kept where they are sure to be asked for.
            let mut is_kept = start == 0;
            let (m, nan, mut above) = if is_kept {
                let (m, nan) = tile_maxima::<V>(chunk, len, tiles, out.add(start), zeros);
                (m, nan, Above::default())
            } else {
                reaching::<V>(chunk, len, (out.add(start), zeros), from)
            };
            let top = m.reduce_max();
            if nan || top == f32::INFINITY {
                return Err(Status::Bad);
            }
            if top > frame.max {
                // A new maximum moves the frame, and with it the bound.
                let moved = tau - f64::from(top - frame.max) * f64::from(scale) - 1e-6;
                frame.max = top;
                // A bound below −1 says nothing.
                tau = if moved > -1.0 { moved } else { lane_bound::<V, P>(prof, m, frame) };
                limit = limit.max(cut(tau as f32, frame));
            }
            if start == 0 && d > CHUNK {
                limit = limit.max(outlook::<V, P>(prof, z, d, frame));
            }
            if sparse && top > limit {
                let count = len.div_ceil(TILE);
                let is_asked =
                    limit > from && above.tiles.count_ones() > MANY_TILES || above.tiles.count_ones() > usual;
                if is_asked && !is_kept {
                    maxima::<V>(chunk, len, tiles);
                    is_kept = true;
                }
                if is_kept {
                    above = tiles_above::<V>(tiles, count, limit);
                }
                let all = count * V::LANES;
                // Looking at all of the row costs less than a list of an eighth of it.
                let is_swept = |many: usize, part: usize, limit: f32| {
                    sweep && many * SWEPT >= all * part && (d <= CHUNK || is_even::<V>(z, d, limit, V::LANES / 4))
                };
                sparse = !is_swept(above.many as usize, SWEPT - 2, limit);
                if sparse && above.tiles.count_ones() > usual {
                    // The maxima of the tiles are a larger subset.
                    let k = collect::<V>(tiles, count * V::LANES, limit, best);
                    tau = tau.max(bound::<V, P>(prof, best, k, frame, tau, 4) - 1e-6);
                    limit = limit.max(cut(tau as f32, frame));
                    above = tiles_above::<V>(tiles, count, limit);
                    // The next chunk would tell no more, unless it is another kind.
                    usual = usual.max(above.tiles.count_ones() * 5 / 4);
                }
                // Where nearly every maximum is a candidate, so is a third or more of what lies below it; what is masked
                // at the end of a row changes nothing of that.
                let reached = above.tiles.count_ones() as usize;
                if sparse && 2 * reached >= count && above.many as usize * 32 >= reached * V::LANES * 31 {
                    sparse = n + len / 2 < most && (start > 0 || !is_even::<V>(z, d, limit, V::LANES));
                }
                sparse &= !is_swept(above.many as usize, 1, limit);
                let few = (above.many as usize) < 2 * reached;
                let mut mask = above.tiles;
                while sparse && mask != 0 {
                    let t = mask.trailing_zeros() as usize;
                    let at = t * TILE;
                    let (tile, rest, place) = (chunk.add(at), (len - at).min(TILE), (start + at) as u32);
                    n += if few {
                        collect_few_of_tile::<V>(tile, rest, limit, place, list.add(n), index.add(n))
                    } else {
                        collect_indexed::<V>(tile, rest, limit, place, list.add(n), index.add(n))
                    };
                    mask &= mask - 1;
                    if n > crowded {
                        tau = tau.max(bound::<V, P>(prof, list, n, frame, tau, 4) - 1e-6);
                        limit = limit.max(cut(tau as f32, frame));
                        n = prune::<V>(list, index, n, limit);
                        sparse = n <= most;
                        crowded = CROWDED.max(2 * n);
                    }
                }
            }
            if !sparse && sweep {
                return Ok(Found { frame, tau, listed: None, untouched, is_part: true });
            }
            if sparse && start == 0 && !early {
                std::ptr::write_bytes(out, 0, len);
                untouched = false;
            }
            start += len;
        }
        if frame.max == f32::NEG_INFINITY {
            return Err(Status::Empty);
        }
        Ok(Found { frame, tau, listed: sparse.then_some(n), untouched, is_part: false })
    }
}

outlined! {
    /// Lane maxima of the tiles of a chunk that was looked at before.
    ///
    /// # Safety
    /// `z` is readable for `len` floats, `tiles` writable for a vector per (begun) tile; the CPU has the instruction set.
    unsafe fn maxima<V>(z: *const f32, len: usize, tiles: *mut f32) -> () => maxima_any
}

/// # Safety
/// As [`maxima`].
#[inline(always)]
unsafe fn maxima_any<V: Vector>(z: *const f32, len: usize, tiles: *mut f32) {
    // SAFETY: as the caller vouches.
    unsafe { tile_maxima::<V>(z, len, tiles, std::ptr::null_mut(), Zeros::None) };
}

/// A lower bound on τ from one vector of entries, by Newton steps from `−1`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn lane_bound<V: Vector, P: Slope>(prof: P, m: V, frame: Frame) -> f64 {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let x = m.sub(V::splat(frame.max)).mul(V::splat(frame.scale));
        let mut tau = -1.0;
        for _ in 0..4 {
            let (f, g) = prof.terms(x, &At::new(Tau { hi: tau as f32, ..Tau::default() }));
            let (f, g) = f.totals(g);
            tau += prof.step_wide(f64::from(f), f64::from(g));
        }
        tau - 1e-6
    }
}

/// A limit from vectors further on in the row, if they reach above its first chunk: a row in
/// ascending order would list every chunk in turn. `−inf` if they have nothing to say.
///
/// # Safety
/// `z` is readable for `d > CHUNK` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn outlook<V: Vector, P: Slope>(prof: P, z: *const f32, d: usize, first: Frame) -> f32 {
    // SAFETY: the last vector read ends at `d`.
    unsafe {
        let [a, b, c] = ahead::<V>(z, d);
        let m = a.max(b).max(c);
        let max = m.reduce_max();
        if max > first.max && max < f32::INFINITY {
            let frame = Frame { max, ..first };
            let limit = cut(lane_bound::<V, P>(prof, m, frame) as f32, frame);
            // A NaN makes the limit NaN; the row is bad and the scan will say so.
            if limit.is_nan() { f32::NEG_INFINITY } else { limit }
        } else {
            f32::NEG_INFINITY
        }
    }
}

/// Three vectors from the rest of a row with several chunks.
///
/// # Safety
/// As [`outlook`].
#[inline(always)]
unsafe fn ahead<V: Vector>(z: *const f32, d: usize) -> [V; 3] {
    // SAFETY: the last vector read ends at `d`.
    unsafe { [V::load(z.add(d / 2)), V::load(z.add(d / 4 * 3)), V::load(z.add(d - V::LANES))] }
}

/// Whether the rest of the row has more candidates than some among the three vectors of a glance.
///
/// # Safety
/// As [`outlook`].
#[inline(always)]
unsafe fn is_even<V: Vector>(z: *const f32, d: usize, limit: f32, some: usize) -> bool {
    // SAFETY: as the caller vouches.
    let above = |v: V| unsafe { V::bits(v.gt(V::splat(limit))).count_ones() as usize };
    // SAFETY: as the caller vouches.
    d > CHUNK && unsafe { ahead::<V>(z, d) }.map(above).iter().sum::<usize>() > some
}

/// Leaves the entries of a list that are above `limit`; returns how many.
///
/// # Safety
/// The lists hold `n` entries and have room for a vector more; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn prune<V: Vector>(list: *mut f32, index: *mut u32, n: usize, limit: f32) -> usize {
    // SAFETY: what is kept never outgrows what was read. Positions are moved as they are, whatever number their bits
    // would be.
    unsafe {
        let (limit, mut kept) = (V::splat(limit), 0);
        V::splat(f32::NEG_INFINITY).store(list.add(n));
        for k in (0..n).step_by(V::LANES) {
            let (v, place) = (V::load(list.add(k)), V::load(index.add(k).cast()));
            let is_above = v.gt(limit);
            place.compress(is_above, index.add(kept).cast());
            kept += v.compress(is_above, list.add(kept));
        }
        kept
    }
}

outlined! {
    /// `gain · [x − τ]₊^e` of the `n` candidates `x`, put into a row of zeros; the list keeps those above 0. With `LOSS`
    /// returns `Σ p·u`; without, the gain is 1 and nothing is summed. And how many are kept: what was streamed must be
    /// fetched to be written to, so the fewer the better.
    ///
    /// # Safety
    /// Both lists are readable and writable for `n` entries and a vector more, every position of `index` lies within `out`;
    /// the CPU has the instruction set of `V`.
    unsafe fn scatter<V, P: Profile; LOSS>(
        prof: P,
        list: (*mut f32, *mut u32, usize),
        out: *mut f32,
        tau: Tau,
        gain: f32,
    ) -> (f64, usize) => scatter_any
}

/// # Safety
/// As [`scatter`].
#[inline(always)]
unsafe fn scatter_any<V: Vector, P: Profile, const LOSS: bool>(
    prof: P,
    (c, index, n): (*mut f32, *mut u32, usize),
    out: *mut f32,
    tau: Tau,
    gain: f32,
) -> (f64, usize) {
    // SAFETY: as the caller vouches; what is kept never outgrows what was read.
    unsafe {
        let (at, gain, zero) = (At::new(tau), V::splat(gain), V::splat(0.0));
        let (mut wide, mut kept) = (V::wide_zero(), 0);
        // What lies behind the list in its last vector must not count.
        V::splat(f32::NEG_INFINITY).store(c.add(n));
        for i in (0..n).step_by(V::LANES) {
            let (u, mut p) = prof.prob(V::load(c.add(i)), &at);
            let place = V::load(index.add(i).cast());
            let is_kept = p.gt(zero);
            if LOSS {
                wide = V::wide_add(wide, p.mul(u));
                p = p.mul(gain);
            }
            // Positions are moved as they are, whatever number their bits would be.
            place.compress(is_kept, index.add(kept).cast());
            kept += p.compress(is_kept, c.add(kept));
        }
        for k in 0..kept {
            *out.add(*index.add(k) as usize) = *c.add(k);
        }
        (if LOSS { V::wide_total(wide) } else { 0.0 }, kept)
    }
}
