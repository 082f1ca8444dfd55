//! α-entmax of rows whose entries are nearly equal: where to start, one row per lane.
//!
//! With `n` entries, `x` their distances from the mean in the units of `u`, and `ū` the `u` of the mean,
//! `Σ (ū + x)^e = n ū^e (1 + e(e−1)/2 · m₂/ū² + e(e−1)(e−2)/6 · m₃/ū³ + …)`: the first moments of a row tell `ū` up to the
//! fourth power of its spread, and no power of an entry is taken. Equal entries have no spread at all.

use super::anchored::{Anchored, Place};
use super::vector::Vector;

/// The least share of the mean's `u` that the smallest entry of such a row has, and the most that the largest has.
const SHARE: (f32, f32) = (0.25, 2.5);

/// What the first moments may leave of a residual, for the pass that writes the row to mend.
const LEFT: f32 = 1e-4;

/// How often the moments are put in units of the last `ū`.
const ROUNDS: usize = 3;

/// The smallest finite entry of every lane among `slots` vectors; `+inf` if there is none.
///
/// # Safety
/// `c` is readable for `slots` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn least<V: Vector>((c, slots): (*const f32, usize)) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let (none, zero) = (V::splat(f32::NEG_INFINITY), V::splat(0.0));
        let mut low = [none; 2];
        for k in 0..slots {
            let z = V::load(c.add(k * V::LANES));
            low[k % 2] = zero.sub(z).select(z.gt(none), none).max(low[k % 2]);
        }
        zero.sub(low[0].max(low[1]))
    }
}

/// How many entries of a row there are, if all of them equal one score or are masked.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn equals<V: Vector>((z, d): (*const f32, usize), score: f32) -> Option<usize> {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (score, none, mut n) = (V::splat(score), V::splat(f32::NEG_INFINITY), 0);
        for i in (0..d).step_by(V::LANES) {
            let z = V::load_first(z.add(i), (d - i).min(V::LANES), f32::NEG_INFINITY);
            let (same, masked) = (V::bits(V::and(z.ge(score), score.ge(z))), V::bits(none.ge(z)));
            if same | masked != (((1u64 << V::LANES) - 1) as u32) {
                return None;
            }
            n += same.count_ones() as usize;
        }
        Some(n)
    }
}

/// What moments tell of a group of rows.
pub(super) struct Level<V> {
    pub(super) place: Place<V>,
    /// One bit a row: nearly equal; so nearly that the pass that writes the row can mend the rest.
    pub(super) rows: u32,
    pub(super) near: u32,
}

impl Anchored {
    /// Thresholds of the rows among those `asked` for whose candidates, `counts` of them in every lane, are nearly equal.
    ///
    /// # Safety
    /// As [`settle`](Anchored::settle).
    #[inline(always)]
    pub(super) unsafe fn level<V: Vector>(
        &self,
        (c, slots): (*const f32, usize),
        max: V,
        counts: V,
        asked: u32,
    ) -> Level<V> {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, none) = (V::splat(0.0), V::splat(1.0), V::splat(f32::NEG_INFINITY));
            let (scale, share) = (V::splat(self.scale), one.div(counts.max(one)));
            let mut sum = [zero; 2];
            for k in 0..slots {
                let z = V::load(c.add(k * V::LANES));
                sum[k % 2] = sum[k % 2].add(z.sub(max).keep(z.gt(none)));
            }
            let mean = sum[0].add(sum[1]).mul(share);
            // `u` of the mean, if all were equal, and how far the ends are from it.
            let mut u = self.steepen(share);
            let below = max.add(mean).sub(least::<V>((c, slots))).mul(scale);
            let above = zero.sub(mean).mul(scale);
            let (low, high) = (V::splat(1.0 - SHARE.0), V::splat(SHARE.1 - 1.0));
            let is_level = V::and(u.mul(low).ge(below), u.mul(high).ge(above));
            let rows = V::bits(is_level) & asked;
            let mut near = 0;
            if rows != 0 {
                let (mut second, mut third) = (zero, zero);
                for k in 0..slots {
                    let z = V::load(c.add(k * V::LANES));
                    let x = z.sub(max).sub(mean).keep(z.gt(none)).mul(scale);
                    let square = x.mul(x);
                    second = second.add(square);
                    third = square.fma(x, third);
                }
                let e = self.e;
                let spread = second.mul(share);
                let second = second.mul(share).mul(V::splat(e * (e - 1.0) / 2.0));
                let third = third.mul(share).mul(V::splat(e * (e - 1.0) * (e - 2.0) / 6.0));
                for _ in 0..ROUNDS {
                    let inverse = one.div(u);
                    let more = third.fma(inverse, second).mul(inverse).fma(inverse, one);
                    u = self.steepen(share.div(more.max(V::splat(0.1))));
                }
                if self.delta < 1.0 {
                    // The fourth moment of entries that scatter normally is three squares of the second.
                    let fourth = V::splat((e * (e - 1.0) * (e - 2.0) * (e - 3.0) / 8.0).abs());
                    let ratio = spread.div(u.mul(u));
                    near = V::bits(V::splat(LEFT).ge(ratio.mul(ratio).mul(fourth))) & rows;
                }
            }
            Level { place: Place { from: max, level: u.add(above) }, rows, near }
        }
    }
}
