//! What an entry weighs in a Jacobian: `s = p^{2−α}` on the support, for the α of each mapping.

use super::expo::{Known, exp2_nonpos, log2};
use super::vector::Vector;

/// `scale · s` as a function of `p`. The factor is here because it costs nothing here: the mean
/// of `v` does not see it.
pub(crate) trait Weight: Copy {
    /// Whether `s` is worth keeping from the first pass to the second.
    const KEPT: bool = false;
    /// `scale · s(p)`; 0 where `p` is 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn weight<V: Vector>(&self, p: V) -> V;
    /// Whether weights are powers by way of logarithms.
    const BY_LOG: bool = false;
    /// Whether probabilities tell enough of the gradient in α.
    const PLAIN: bool = false;
    /// The same of entries whose logarithm is known, or is that of the least normal number where there are smaller ones.
    ///
    /// # Safety
    /// As [`weight`](Weight::weight).
    #[inline(always)]
    unsafe fn weight_by_log<V: Vector>(&self, p: V, _log: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.weight(p) }
    }
    /// The same of entries whose `p^δ` is `u/inverse`, where that is of use.
    ///
    /// # Safety
    /// As [`weight`](Weight::weight).
    #[inline(always)]
    unsafe fn weight_at<V: Vector>(&self, p: V, _u: V, _inverse: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.weight(p) }
    }
    /// `scale · s(p) · (v − mean)` where `p > 0`, 0 elsewhere.
    ///
    /// # Safety
    /// As [`weight`](Weight::weight).
    #[inline(always)]
    unsafe fn product<V: Vector>(&self, p: V, v: V, mean: f32) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.weight(p).mul(v.sub(V::splat(mean)).keep(p.gt(V::splat(0.0)))) }
    }
}

/// `s = p`.
#[derive(Clone, Copy)]
pub(super) struct Identity(pub f32);

impl Weight for Identity {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { p.mul(V::splat(self.0)) }
    }
}

/// `s = 1` on the support.
#[derive(Clone, Copy)]
pub(super) struct Indicator(pub f32);

impl Weight for Indicator {
    const PLAIN: bool = true;
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { V::splat(self.0).keep(p.gt(V::splat(0.0))) }
    }
    #[inline(always)]
    unsafe fn product<V: Vector>(&self, p: V, v: V, mean: f32) -> V {
        // SAFETY: as the caller vouches.
        unsafe { v.sub(V::splat(mean)).mul(V::splat(self.0)).keep(p.gt(V::splat(0.0))) }
    }
}

/// `s = √p`.
#[derive(Clone, Copy)]
pub(super) struct Root(pub f32);

impl Weight for Root {
    const PLAIN: bool = true;
    const KEPT: bool = true;
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { p.scaled_root(V::splat(self.0)) }
    }
}

/// `s = p^{2−α}` for 1 ≤ α ≤ 2.
#[derive(Clone, Copy)]
pub(super) struct Power<'a> {
    scale: f32,
    exponent: &'a Known,
}

impl<'a> Power<'a> {
    /// For the exponent 2 − α.
    pub(super) fn new(exponent: &'a Known, scale: f32) -> Power<'a> {
        Power { scale, exponent }
    }
}

impl Weight for Power<'_> {
    const PLAIN: bool = true;
    const KEPT: bool = true;
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let on = p.gt(V::splat(0.0));
            // A power costs more than a branch that was guessed wrong.
            if V::bits(on) == 0 {
                return V::splat(0.0);
            }
            let (exponent, scale) = (V::splat(self.exponent.e), V::splat(self.scale));
            // A power may send what is below the normal range back into sight.
            let is_tiny = V::and(on, V::splat(f32::MIN_POSITIVE).gt(p));
            let s = if V::bits(is_tiny) == 0 { p.raised(self.exponent) } else { exp2_nonpos(log2(p).mul(exponent)) };
            s.mul(scale).keep(on)
        }
    }
    const BY_LOG: bool = true;
    #[inline(always)]
    unsafe fn weight_by_log<V: Vector>(&self, p: V, log: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let s = log.power_of_log2(V::splat(self.exponent.e)).mul(V::splat(self.scale));
            s.keep(p.gt(V::splat(0.0)))
        }
    }
}

/// The same for α up to 1.5 where `p^δ` is known from a difference of scores. Beyond, the smallest entries weigh more than
/// that knows: an error ε of `u` is one of `ε u^{(1−2δ)/δ}` in `u^{(1−δ)/δ}`.
#[derive(Clone, Copy)]
pub(super) struct Quotient<'a>(pub Power<'a>);

impl Weight for Quotient<'_> {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.0.weight(p) }
    }
    /// `p^{2−α} = p/p^δ`: no logarithm.
    #[inline(always)]
    unsafe fn weight_at<V: Vector>(&self, p: V, u: V, inverse: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { p.mul(inverse.mul(V::splat(self.0.scale))).mul(u.rough_inverse()) }
    }
}

/// What a first pass kept: `scale · s` itself.
#[derive(Clone, Copy)]
pub(super) struct Kept;

impl Weight for Kept {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        p
    }
}
