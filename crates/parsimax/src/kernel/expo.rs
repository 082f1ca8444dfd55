//! Elementary functions on lanes.

use super::vector::Vector;

/// `1.5·2²³`: adding it rounds a small float to an integer held in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `eˣ` for `x ≤ 0`; `x < −87.33` (where the result would be denormal) and `−inf` give 0.
///
/// `x = n·ln 2 + r`, `eˣ = 2ⁿ·eʳ` with `|r| ≤ ½ ln 2` and a degree-5 minimax polynomial
/// whose relative error is 1.05e−7.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn exp_nonpos<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magic = V::splat(ROUND);
        let k = x.fma(V::splat(std::f32::consts::LOG2_E), magic);
        let r = k.sub(magic).fnma(V::splat(std::f32::consts::LN_2), x);
        let mut y = V::splat(0.008_312_525).fma(r, V::splat(0.041_890_115));
        y = y.fma(r, V::splat(0.166_671_14));
        y = y.fma(r, V::splat(0.499_992_3));
        y = y.fma(r, V::splat(1.0));
        y = y.fma(r, V::splat(1.0));
        y.shift_exponent(k).keep(x.gt(V::splat(-87.33)))
    }
}

/// `ln u` for positive numbers.
///
/// `u = m·2ᵏ` with `m` in `[√½, √2)`, then `ln m` by a degree-9 polynomial in `m − 1`
/// (relative error 3e−8). Numbers below the normal range are scaled up first, as large
/// exponents of `α` send them back into sight.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn ln<V: Vector>(u: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { ln_of_parts(parts(u)) }
}

/// `ln u` for `0 < u ≤ 1`, given `w = u − 1` to full relative accuracy: near `u = 1`, where
/// `u` itself has lost the digits of its logarithm, `w` takes the place of `m − 1`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn ln_near_one<V: Vector>(u: V, w: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (r, k) = parts(u);
        ln_of_parts((w.select(u.gt(V::splat(0.708)), r), k))
    }
}

/// `(m − 1, k)`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn parts<V: Vector>(u: V) -> (V, V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let tiny = V::splat(f32::MIN_POSITIVE).gt(u);
        let up = u.mul(V::splat(16_777_216.0)).select(tiny, u);
        let (m, k) = up.split_exponent();
        (m.sub(V::splat(1.0)), k.sub(V::splat(24.0).keep(tiny)))
    }
}

/// `k·ln 2 + ln(1 + r)`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn ln_of_parts<V: Vector>((r, k): (V, V)) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut y = V::splat(0.087_004_35).fma(r, V::splat(-0.142_674_94));
        y = y.fma(r, V::splat(0.149_147_7));
        y = y.fma(r, V::splat(-0.165_775_84));
        y = y.fma(r, V::splat(0.199_630_63));
        y = y.fma(r, V::splat(-0.250_013_38));
        y = y.fma(r, V::splat(0.333_339_1));
        let square = r.mul(r);
        let y = y.fma(r, V::splat(-0.5)).fma(square, r);
        k.fma(V::splat(std::f32::consts::LN_2), y)
    }
}
