//! Sparsemax and 1.5-entmax of wide rows with few candidates: read once, written once, and put right in a few places.
//!
//! Plainly, for a few rows, one a lane: zeros for the whole row while it is read, the threshold that the largest entries
//! of the lanes alone have (`ranked.rs`), the entries above it, τ on those (`picked.rs`), and their probabilities. Reading
//! and writing at once take no longer than a copy. What comes after does not read the row again: its first look leaves
//! the maxima of tiles behind, of [`TALL`] vectors lane by lane, and only where one is above the threshold is a lane of a
//! tile looked at.

use super::direct::dense;
use super::group::{Block, Group, Room, Rows};
use super::profile::Direct;
use super::vector::{MAX_LANES, Vector};
use super::{picked, ranked};

/// Vectors of a tile.
pub(super) const TALL: usize = 8;

/// Floats that rows may have together, so that they stay in the second-level cache with what is written.
pub(super) const ROOM: usize = 65_536;

/// Maxima of the tiles of such rows, the last of which may be a part.
pub(super) type Maxima = Room<{ ROOM / TALL + MAX_LANES * MAX_LANES }>;

/// Vectors of a row that tell whether it is dense.
const SAMPLE: usize = 8;

/// How many vectors of maxima a row has.
#[inline(always)]
pub(super) fn count<V: Vector>(d: usize) -> usize {
    d.div_ceil(TALL * V::LANES)
}

/// Thresholds of at most `LANES` rows and with `WRITE` their probabilities; rows with many candidates are left alone.
///
/// # Safety
/// The rows are readable and writable, of at least [`SAMPLE`] vectors and at most [`ROOM`] floats together; `gaps` is
/// writable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn settle<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    group: &mut Group,
    gaps: *mut f32,
) {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane, and the maxima those of all tiles.
    unsafe {
        let mut maxima = Maxima::uninit();
        let maxima = maxima.as_mut_ptr();
        let mut largest = [Block::uninit(); 2];
        let largest = largest.as_mut_ptr().cast::<f32>();
        let (size, none, scale) = (V::LANES * V::LANES, V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        // Of 1.5-entmax by the measure of sparsemax, whose support is smaller.
        let crowded = crowded::<V>(rows, rows.scale / prof.inner(), gaps);
        let mut bad = 0u32;
        for r in 0..V::LANES {
            let mut two = [none; 2];
            if r < rows.rows && crowded >> r & 1 == 0 {
                let (z, out) = (rows.z.add(r * rows.d), rows.out.add(r * rows.d));
                let nan;
                (two, nan) = look::<V, WRITE>(z, out, rows.d, maxima.add(r * count::<V>(rows.d) * V::LANES));
                bad |= u32::from(nan) << r;
            }
            two[0].store(largest.add(r * V::LANES));
            two[1].store(largest.add(size + r * V::LANES));
        }
        V::transpose(largest, V::LANES, gaps);
        V::transpose(largest.add(size), V::LANES, gaps.add(size));
        let max = group.meet((bad, crowded), rows.rows.min(V::LANES), (gaps, V::LANES), scale);
        if group.active == 0 {
            return;
        }
        for gap in (0..2 * V::LANES).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(scale).store(gap);
        }
        let bound = ranked::solve::<V, P>(prof, gaps, &rows).hi;
        let Rows { z, out, d, .. } = rows;
        let of_group = picked::Rows { z, out, d, maxima, max, scale, bound, wanted: group.active };
        let (done, hi, lo) = picked::solve::<V, P, WRITE>(prof, &of_group);
        group.put_below(hi, lo, scale);
        group.alone |= group.active & !done;
        group.active = 0;
    }
}

/// The first look at a row: the maxima of its tiles, the two largest of them in every lane, and whether there is a NaN;
/// with `WRITE`, zeros.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, `maxima` for as many vectors as there are tiles; the CPU has the
/// instruction set.
#[inline(always)]
unsafe fn look<V: Vector, const WRITE: bool>(
    z: *const f32,
    out: *mut f32,
    d: usize,
    mut maxima: *mut f32,
) -> ([V; 2], bool) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (none, zero) = (V::splat(f32::NEG_INFINITY), V::splat(0.0));
        let (mut first, mut second) = (none, none);
        let mut nan = none.unordered(none);
        let mut i = 0;
        while i + TALL * V::LANES <= d {
            let mut m = [none; 4];
            for k in 0..4 {
                let at = i + 2 * k * V::LANES;
                let (a, b) = (V::load(z.add(at)), V::load(z.add(at + V::LANES)));
                nan = V::or(nan, a.unordered(b));
                m[k] = a.max(b);
                if WRITE {
                    zero.store(out.add(at));
                    zero.store(out.add(at + V::LANES));
                }
            }
            let most = m[0].max(m[1]).max(m[2].max(m[3]));
            most.store(maxima);
            maxima = maxima.add(V::LANES);
            second = first.min(most).max(second);
            first = most.max(first);
            i += TALL * V::LANES;
        }
        if i < d {
            let mut most = none;
            while i < d {
                let n = (d - i).min(V::LANES);
                let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
                nan = V::or(nan, v.unordered(v));
                most = v.max(most);
                if WRITE {
                    zero.store_first(out.add(i), n);
                }
                i += n;
            }
            most.store(maxima);
            second = first.min(most).max(second);
            first = most.max(first);
        }
        ([first, second], V::bits(nan) != 0)
    }
}

/// Rows that are dense as some vectors tell, before anything else is asked of them, one bit each.
///
/// # Safety
/// As [`settle`]; the CPU has the instruction set.
#[inline(always)]
unsafe fn crowded<V: Vector>(rows: Rows, scale: f32, gaps: *mut f32) -> u32 {
    // SAFETY: the last vector of a row ends with it; the block holds a vector for each lane.
    unsafe {
        let mut largest = Block::uninit();
        let largest = largest.as_mut_ptr();
        let stride = (rows.d - V::LANES) / (SAMPLE - 1);
        for r in 0..V::LANES {
            let mut most = [V::splat(f32::NEG_INFINITY); 2];
            if r < rows.rows {
                let z = rows.z.add(r * rows.d);
                for k in (0..SAMPLE).step_by(2) {
                    for j in 0..2 {
                        most[j] = V::load(z.add((k + j) * stride)).max(most[j]);
                    }
                }
            }
            most[0].max(most[1]).store(largest.add(r * V::LANES));
        }
        V::transpose(largest, V::LANES, gaps);
        let mut max = [V::load(gaps); 2];
        for k in (0..V::LANES).step_by(2) {
            for j in 0..2 {
                max[j] = V::load(gaps.add((k + j) * V::LANES)).max(max[j]);
            }
        }
        let (max, scale) = (max[0].max(max[1]), V::splat(scale));
        for gap in (0..V::LANES).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(scale).store(gap);
        }
        dense::<V>(gaps) & ((1u64 << rows.rows.min(V::LANES)) - 1) as u32
    }
}
