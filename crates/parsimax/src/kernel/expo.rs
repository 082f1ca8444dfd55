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
        y = y.fma(r, V::splat(0.499_992_31));
        y = y.fma(r, V::splat(1.0));
        y = y.fma(r, V::splat(1.0));
        y.shift_exponent(k).keep(x.gt(V::splat(-87.33)))
    }
}
