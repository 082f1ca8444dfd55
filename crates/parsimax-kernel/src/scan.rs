//! First looks at a row: its maximum, whether it is fit to use, its candidates.

use super::vector::{MAX_LANES, Vector, outlined};

/// Lane maxima of a row, and whether it holds a NaN.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn lane_maxima<V: Vector>(z: *const f32, d: usize) -> (V, bool) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut m = [none; 4];
        let mut nan = none.unordered(none);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            let v: [V; 4] = [
                V::load(z.add(i)),
                V::load(z.add(i + V::LANES)),
                V::load(z.add(i + 2 * V::LANES)),
                V::load(z.add(i + 3 * V::LANES)),
            ];
            for k in 0..4 {
                m[k] = v[k].max(m[k]);
            }
            nan = V::or(nan, V::or(v[0].unordered(v[1]), v[2].unordered(v[3])));
            i += 4 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            m[0] = v.max(m[0]);
            nan = V::or(nan, v.unordered(v));
            i += n;
        }
        (m[0].max(m[1]).max(m[2].max(m[3])), V::bits(nan) != 0)
    }
}

/// Maximum of a row; NaN if it holds a NaN.
///
/// # Safety
/// As [`lane_maxima`].
#[inline(always)]
pub(crate) unsafe fn row_max<V: Vector>(z: *const f32, d: usize) -> f32 {
    // SAFETY: as the caller vouches.
    let (m, nan) = unsafe { lane_maxima::<V>(z, d) };
    if nan { f32::NAN } else { m.reduce_max() }
}

/// Entries in a tile, the unit in which long rows are looked at.
pub(crate) const TILE: usize = 64;

/// How far ahead scores are asked for where zeros are streamed beside them: so far that they are on their way while the
/// candidates of a chunk are looked at.
const AHEAD: usize = CHUNK;

/// How many zeros are stored at once: a block of them takes less than stores between loads do, and no more than what was
/// just read beside it should leave the first-level cache.
const CLEARED: usize = 1024;

/// Whether zeros are written beside what is read, and how.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zeros {
    None,
    Stored,
    Streamed,
}

/// What is above a limit in a chunk of at most 64 tiles.
#[derive(Clone, Copy, Default)]
pub(crate) struct Above {
    /// The tiles that reach above it, one bit each.
    pub(crate) tiles: u64,
    /// How many of their lane maxima do.
    pub(crate) many: u32,
}

impl Above {
    /// Takes up the maxima of tile `t`.
    #[inline(always)]
    fn add<V: Vector>(&mut self, t: usize, maxima: V, limit: V) {
        let bits = V::bits(maxima.gt(limit));
        self.tiles |= u64::from(bits != 0) << t;
        self.many += bits.count_ones();
    }
}

/// Lane maxima of every tile of a chunk, stored one vector a tile; the lane maxima of the
/// whole; whether there is a NaN. Zeros are written to `out` on the way, if any: reading and
/// writing at once take no longer than a copy.
///
/// # Safety
/// `z` is readable for `len` floats, `tiles` writable for a vector per (begun) tile, and
/// `out` for `len` floats unless there are to be no zeros; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn tile_maxima<V: Vector>(
    z: *const f32,
    len: usize,
    tiles: *mut f32,
    out: *mut f32,
    zeros: Zeros,
) -> (V, bool) {
    // SAFETY: as the caller vouches.
    let (m, nan, _) = unsafe { through::<V, true>(z, len, (out, zeros), tiles, 0.0) };
    (m, nan)
}

/// Of a chunk of at most 64 tiles, the lane maxima of the whole, whether there is a NaN, and what is above a limit. As
/// [`tile_maxima`], but nothing is stored but zeros: what is stored between them takes more time than its part of them.
///
/// # Safety
/// As [`tile_maxima`].
#[inline(always)]
pub(crate) unsafe fn reaching<V: Vector>(
    z: *const f32,
    len: usize,
    to: (*mut f32, Zeros),
    limit: f32,
) -> (V, bool, Above) {
    // SAFETY: as the caller vouches.
    unsafe { through::<V, false>(z, len, to, std::ptr::null_mut(), limit) }
}

/// [`tile_maxima`] if these are to be `KEPT`, else [`reaching`].
///
/// # Safety
/// As these.
#[inline(always)]
unsafe fn through<V: Vector, const KEPT: bool>(
    z: *const f32,
    len: usize,
    (out, zeros): (*mut f32, Zeros),
    tiles: *mut f32,
    limit: f32,
) -> (V, bool, Above) {
    // SAFETY: as the caller vouches. What is streamed goes to the next aligned place, which needs a vector more;
    // the first vector is stored as it lies, and so are the tiles at the end.
    unsafe {
        match zeros {
            Zeros::None => through_with::<V, 0, KEPT>(z, len, tiles, (out, out), 0, limit),
            Zeros::Stored => through_with::<V, 1, KEPT>(z, len, tiles, (out, out), 0, limit),
            Zeros::Streamed => {
                let tail = len.saturating_sub(V::LANES) / TILE * TILE;
                if tail > 0 {
                    V::splat(0.0).store(out);
                }
                let aligned = out.add(out.align_offset(V::LANES * size_of::<f32>()));
                through_with::<V, 2, KEPT>(z, len, tiles, (out, aligned), tail, limit)
            }
        }
    }
}

/// [`through`] with zeros: none, stored, or streamed to the second place of `out` as far as `streamed`.
///
/// # Safety
/// As [`through`].
#[inline(always)]
unsafe fn through_with<V: Vector, const ZEROS: u8, const KEPT: bool>(
    z: *const f32,
    len: usize,
    tiles: *mut f32,
    (out, aligned): (*mut f32, *mut f32),
    streamed: usize,
    limit: f32,
) -> (V, bool, Above) {
    // SAFETY: every access stays within `len` floats.
    unsafe {
        let (none, zero, limit) = (V::splat(f32::NEG_INFINITY), V::splat(0.0), V::splat(limit));
        let (mut all, mut nan) = (none, none.unordered(none));
        let (mut i, mut t) = (0, 0);
        let mut above = Above::default();
        macro_rules! take {
            ($maxima:expr) => {{
                let m = $maxima;
                if KEPT {
                    m.store(tiles.add(t * V::LANES));
                } else {
                    above.add(t, m, limit);
                }
                all = m.max(all);
            }};
        }
        while i + TILE <= len {
            let mut m = [none; 2];
            let mut k = 0;
            while k < TILE {
                let a = V::load(z.add(i + k));
                let b = V::load(z.add(i + k + V::LANES));
                m[0] = a.max(m[0]);
                m[1] = b.max(m[1]);
                nan = V::or(nan, a.unordered(b));
                if ZEROS == 2 {
                    V::prefetch(z.wrapping_add(i + k + AHEAD));
                    V::prefetch(z.wrapping_add(i + k + AHEAD + V::LANES));
                }
                if ZEROS == 2 && i < streamed {
                    zero.stream(aligned.add(i + k));
                    zero.stream(aligned.add(i + k + V::LANES));
                } else if ZEROS == 2 {
                    zero.store(out.add(i + k));
                    zero.store(out.add(i + k + V::LANES));
                }
                k += 2 * V::LANES;
            }
            take!(m[0].max(m[1]));
            t += 1;
            i += TILE;
            if ZEROS == 1 && (i % CLEARED == 0 || i + TILE > len) {
                let first = (i - 1) / CLEARED * CLEARED;
                std::ptr::write_bytes(out.add(first), 0, i - first);
            }
        }
        let mut bad = V::bits(nan) != 0;
        if i < len {
            let (m, nan) = lane_maxima::<V>(z.add(i), len - i);
            take!(m);
            bad |= nan;
            if ZEROS > 0 {
                std::ptr::write_bytes(out.add(i), 0, len - i);
            }
        }
        (all, bad, above)
    }
}

/// What is above `limit` in the maxima of `count` tiles, of at most 64.
///
/// # Safety
/// `tiles` is readable for `count` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn tiles_above<V: Vector>(tiles: *const f32, count: usize, limit: f32) -> Above {
    // SAFETY: as the caller vouches.
    unsafe {
        let (limit, mut above) = (V::splat(limit), Above::default());
        for t in 0..count {
            above.add(t, V::load(tiles.add(t * V::LANES)), limit);
        }
        above
    }
}

/// As [`collect_indexed`], for one tile in which few are expected: one by one.
///
/// # Safety
/// As [`collect_indexed`], with `len ≤ TILE`.
#[inline(always)]
pub(crate) unsafe fn collect_few_of_tile<V: Vector>(
    z: *const f32,
    len: usize,
    cut: f32,
    base: u32,
    out: *mut f32,
    index: *mut u32,
) -> usize {
    // SAFETY: bits stand for entries of the tile.
    unsafe {
        let (cut, mut above) = (V::splat(cut), 0u64);
        if len == TILE {
            for i in (0..TILE).step_by(V::LANES) {
                above |= u64::from(V::bits(V::load(z.add(i)).gt(cut))) << i;
            }
        } else {
            for i in (0..len).step_by(V::LANES) {
                let v = V::load_first(z.add(i), (len - i).min(V::LANES), f32::NEG_INFINITY);
                above |= u64::from(V::bits(v.gt(cut))) << i;
            }
        }
        let mut n = 0;
        while above != 0 {
            let i = above.trailing_zeros();
            above &= above - 1;
            *out.add(n) = *z.add(i as usize);
            *index.add(n) = base + i;
            n += 1;
        }
        n
    }
}

/// Puts the entries above `cut` at `out`; returns how many.
///
/// Plainly: compress every vector. In a row of some width most vectors hold no candidate,
/// and compressing costs three times as much as copying, so whole vectors are kept first
/// (stored always, advanced past only if a lane counts: no branch to guess), and the few
/// that stay are compressed in place.
///
/// # Safety
/// `z` is readable for `d` floats and `out` writable for `d + LANES` rounded up to whole
/// vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn collect<V: Vector>(z: *const f32, d: usize, cut: f32, out: *mut f32) -> usize {
    // SAFETY: what is kept never outgrows what was read, so a store ends at most one vector
    // past `d`; compressing in place writes at or before the vector just read.
    unsafe {
        let cut = V::splat(cut);
        let (mut i, mut n) = (0, 0);
        if d >= 16 * V::LANES {
            while i + V::LANES <= d {
                let v = V::load(z.add(i));
                v.store(out.add(n));
                n += V::LANES * usize::from(V::bits(v.gt(cut)) != 0);
                i += V::LANES;
            }
            let whole = n;
            (n, i) = (0, d - d % V::LANES);
            let mut k = 0;
            while k < whole {
                let v = V::load(out.add(k));
                n += v.compress(v.gt(cut), out.add(n));
                k += V::LANES;
            }
        }
        while i + V::LANES <= d {
            let v = V::load(z.add(i));
            n += v.compress(v.gt(cut), out.add(n));
            i += V::LANES;
        }
        if i < d {
            let v = V::load_first(z.add(i), d - i, f32::NEG_INFINITY);
            n += v.compress(v.gt(cut), out.add(n));
        }
        n
    }
}

/// Lists of candidates, one a row, as vectors with one row a lane: `kept` entries of each of `LANES` rows, `stride`
/// floats apart, become `slots` vectors at `lanes`; what a row lacks is −∞, and what it has more stays behind.
///
/// # Safety
/// Rounded up to whole vectors, `buffer` is writable for `slots` floats past each row's start, plus one vector, and
/// `lanes` for that many vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn into_lanes<V: Vector>(
    buffer: *mut f32,
    stride: usize,
    kept: &[usize; MAX_LANES],
    slots: usize,
    lanes: *mut f32,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        for (r, &kept) in kept.iter().enumerate().take(V::LANES) {
            let mut k = kept;
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
    }
}

/// Entries of a long row that are looked at before its list is.
pub(crate) const CHUNK: usize = 4096;

/// As [`collect_indexed`] from 0 on, if there is room for what may come; `None` if a row may hold more than `room`.
///
/// # Safety
/// `z` is readable for `d` floats; `out` and `index` are writable for `d`, or `room` if that is less, and `2·LANES`
/// more; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn collect_few<V: Vector>(
    z: *const f32,
    d: usize,
    cut: f32,
    room: usize,
    out: *mut f32,
    index: *mut u32,
) -> Option<usize> {
    if d <= room {
        // SAFETY: as the caller vouches.
        return Some(unsafe { collect_indexed::<V>(z, d, cut, 0, out, index) });
    }
    let mut n = 0;
    for first in (0..d).step_by(CHUNK) {
        let len = (d - first).min(CHUNK);
        if n + len > room {
            return None;
        }
        // SAFETY: the chunk lies within the row, and what it may bring within the lists.
        n += unsafe { collect_indexed::<V>(z.add(first), len, cut, first as u32, out.add(n), index.add(n)) };
    }
    Some(n)
}

/// As [`collect`], and records where each entry stands: `index` gets `base` plus the
/// position in `z`.
///
/// # Safety
/// As [`collect`], with `index` writable as `out` is.
#[inline(always)]
pub(crate) unsafe fn collect_indexed<V: Vector>(
    z: *const f32,
    d: usize,
    cut: f32,
    base: u32,
    out: *mut f32,
    index: *mut u32,
) -> usize {
    // SAFETY: as in `collect`.
    unsafe {
        let cut = V::splat(cut);
        let (mut i, mut n) = (0, 0);
        while i + 4 * V::LANES <= d {
            let v: [V; 4] = [
                V::load(z.add(i)),
                V::load(z.add(i + V::LANES)),
                V::load(z.add(i + 2 * V::LANES)),
                V::load(z.add(i + 3 * V::LANES)),
            ];
            let m = [v[0].gt(cut), v[1].gt(cut), v[2].gt(cut), v[3].gt(cut)];
            if V::bits(V::or(V::or(m[0], m[1]), V::or(m[2], m[3]))) != 0 {
                for k in 0..4 {
                    V::compress_index(m[k], base + (i + k * V::LANES) as u32, index.add(n));
                    n += v[k].compress(m[k], out.add(n));
                }
            }
            i += 4 * V::LANES;
        }
        while i < d {
            let len = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), len, f32::NEG_INFINITY);
            let m = v.gt(cut);
            V::compress_index(m, base + i as u32, index.add(n));
            n += v.compress(m, out.add(n));
            i += len;
        }
        n
    }
}

outlined! {
    /// The entries above 0, and their positions at `index`; returns how many.
    ///
    /// # Safety
    /// As [`collect_indexed`].
    pub(crate) unsafe fn support<V>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize => support_any
}

/// # Safety
/// As [`support`].
#[inline(always)]
unsafe fn support_any<V: Vector>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { collect_indexed::<V>(p, d, 0.0, 0, list, index) }
}

/// [`support`] of a row, as the contents of two lists.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn positive<V: Vector>(p: &[f32], value: &mut Vec<f32>, index: &mut Vec<u32>) {
    value.clear();
    index.clear();
    value.reserve(p.len() + 2 * MAX_LANES);
    index.reserve(p.len() + 2 * MAX_LANES);
    // SAFETY: both have the room that a list asks for, and so many entries of each were written.
    unsafe {
        let n = support::<V>(p.as_ptr(), p.len(), value.as_mut_ptr(), index.as_mut_ptr());
        value.set_len(n);
        index.set_len(n);
    }
}
