//! First looks at a row: its maximum, whether it is fit to use, its candidates.

use super::vector::Vector;

/// Lane maxima of a row in four vectors, and whether it holds a NaN.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn lane_maxima<V: Vector>(z: *const f32, d: usize) -> ([V; 4], bool) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut m = [none; 4];
        let mut nan = V::or(none.unordered(none), none.unordered(none));
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
        (m, V::bits(nan) != 0)
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
    if nan {
        return f32::NAN;
    }
    m[0].max(m[1]).max(m[2].max(m[3])).reduce_max()
}

/// Appends the entries above `cut` to `out`; returns how many.
///
/// # Safety
/// `z` is readable for `d` floats and `out` writable for `d + LANES`; the CPU has the
/// instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn collect<V: Vector>(z: *const f32, d: usize, cut: f32, out: *mut f32) -> usize {
    // SAFETY: at most `i` entries were kept before entry `i`, so a store ends at most
    // `LANES` past `d`.
    unsafe {
        let cut = V::splat(cut);
        let (mut i, mut n) = (0, 0);
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

/// As [`collect`], for rows in which candidates are rare: looks at four vectors at once,
/// and also records where each entry stands (`base` is the position of `z[0]`).
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
