//! Products of small matrices, and sums of a few rows of a matrix.
//!
//! Plainly, a product is three nested loops. Here the outer two are cut into blocks whose sums
//! stay in registers: `MR` rows by two vectors, so that each number loaded is used many times.

use super::vector::Vector;

/// Rows of the block that one product keeps in registers: 6 × 2 vectors of sums, two of the
/// right factor and one of the left are 15 of 16 registers.
pub(super) const MR: usize = 6;

/// Keys whose values are multiplied for a whole row block before the next: as many as the
/// first-level cache holds.
const KEYS: usize = 128;

/// Adds the product of `MR` rows of `a`, `lda` apart, with `depth` rows of two vectors of `b`,
/// `step` apart, the second vector `gap` behind the first.
///
/// # Safety
/// All those floats are readable, and the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn product<V: Vector>(
    mut sums: [[V; 2]; MR],
    (a, lda): (*const f32, usize),
    (b, step, gap): (*const f32, usize, usize),
    depth: usize,
) -> [[V; 2]; MR] {
    for i in 0..depth {
        // SAFETY: as the caller vouches.
        unsafe {
            let (b0, b1) = (V::load(b.add(i * step)), V::load(b.add(i * step + gap)));
            for r in 0..MR {
                let x = V::splat(*a.add(r * lda + i));
                sums[r][0] = x.fma(b0, sums[r][0]);
                sums[r][1] = x.fma(b1, sums[r][1]);
            }
        }
    }
    sums
}

/// Positions that are written behind the last one, at most.
pub(super) const SPILL: usize = 4;

/// One bit for each weight, set where it is not zero; returns how many are.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn marks<V: Vector>(p: &[f32], words: &mut [u64]) -> usize {
    let mut count = 0;
    for (p, word) in p.chunks(64).zip(words) {
        let (n, mut i) = (p.len(), 0);
        *word = 0;
        // SAFETY: loads stay below `n`.
        unsafe {
            let zero = V::splat(0.0);
            while i + V::LANES <= n {
                *word |= u64::from(V::bits(V::load(p.as_ptr().add(i)).gt(zero))) << i;
                i += V::LANES;
            }
            if i < n {
                *word |= u64::from(V::bits(V::load_first(p.as_ptr().add(i), n - i, 0.0).gt(zero))) << i;
            }
        }
        count += word.count_ones() as usize;
    }
    count
}

/// Lists the positions of the set bits. A few are written at once whether they exist or not: how
/// many bits a word has is what a processor cannot predict.
///
/// # Safety
/// `list` is writable for as many integers as there are bits, and `SPILL` more.
#[inline(always)]
pub(super) unsafe fn positions(words: &[u64], list: *mut u32) {
    let (mut count, mut base) = (0, 0);
    for &all in words {
        let (mut word, end) = (all, count + all.count_ones() as usize);
        while count < end {
            for i in 0..SPILL {
                // SAFETY: `count` is below the number of bits.
                unsafe { *list.add(count + i) = base + word.trailing_zeros() };
                word &= word.wrapping_sub(1);
            }
            count += SPILL;
        }
        count = end;
        base += 64;
    }
}

/// Sums of the listed values alone, up to eight vectors of a row at a time.
///
/// # Safety
/// Listed positions are rows of `v`, whose rows and `out` have `width` floats, a multiple of
/// `2 · LANES`; `p` is readable at them; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn sparse<V: Vector>(p: *const f32, list: &[u32], v: *const f32, width: usize, out: *mut f32) {
    let mut c = 0;
    while c < width {
        // SAFETY: `c` and what is added to it stay within `width`.
        unsafe {
            let (v, out) = (v.add(c), out.add(c));
            c += match width - c {
                left if left >= 8 * V::LANES => sparse_columns::<V, 8>(p, list, v, width, out),
                left if left >= 4 * V::LANES => sparse_columns::<V, 4>(p, list, v, width, out),
                _ => sparse_columns::<V, 2>(p, list, v, width, out),
            };
        }
    }
}

/// The same for `N` vectors of a row; returns their floats.
///
/// # Safety
/// As [`sparse`].
#[inline(always)]
unsafe fn sparse_columns<V: Vector, const N: usize>(
    p: *const f32,
    list: &[u32],
    v: *const f32,
    width: usize,
    out: *mut f32,
) -> usize {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut sums = [V::splat(0.0); N];
        for &j in list {
            let (weight, row) = (V::splat(*p.add(j as usize)), v.add(j as usize * width));
            for b in 0..N {
                sums[b] = weight.fma(V::load(row.add(b * V::LANES)), sums[b]);
            }
        }
        for b in 0..N {
            sums[b].store(out.add(b * V::LANES));
        }
    }
    N * V::LANES
}

/// Sums of all values for `MR` rows of weights, `KEYS` values at a time.
///
/// # Safety
/// `p` is readable for `MR · n` floats, `v` for `n · width`, and `out` writable for
/// `MR · width`; `width` is a multiple of `2 · LANES`; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn dense<V: Vector>(p: *const f32, n: usize, v: *const f32, width: usize, out: *mut f32) {
    for first in (0..n).step_by(KEYS) {
        let depth = KEYS.min(n - first);
        for c in (0..width).step_by(2 * V::LANES) {
            // SAFETY: rows `first..first + depth` of `v` and columns `c..` of both are in bounds.
            unsafe {
                let mut sums = [[V::splat(0.0); 2]; MR];
                let to = out.add(c);
                if first > 0 {
                    for r in 0..MR {
                        sums[r] = [V::load(to.add(r * width)), V::load(to.add(r * width + V::LANES))];
                    }
                }
                let b = (v.add(first * width + c), width, V::LANES);
                sums = product::<V>(sums, (p.add(first), n), b, depth);
                for r in 0..MR {
                    sums[r][0].store(to.add(r * width));
                    sums[r][1].store(to.add(r * width + V::LANES));
                }
            }
        }
    }
}
