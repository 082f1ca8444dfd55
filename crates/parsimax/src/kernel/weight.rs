//! What an entry weighs in a Jacobian: `s = p^{2−α}` on the support, for the α of each mapping.

use super::expo::{exp2_nonpos, log2};
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
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { p.scaled_root(V::splat(self.0)) }
    }
}

/// `s = p^{2−α}` for 1 ≤ α ≤ 2.
#[derive(Clone, Copy)]
pub(super) struct Power {
    scale: f32,
    exponent: f32,
    /// Least `p^δ`, as a share of the largest of its row, that a difference of scores tells well enough.
    least: f32,
}

impl Power {
    /// For that α.
    pub(super) fn new(alpha: f64, scale: f32) -> Power {
        // An error ε of u is one of ε u^{(1−2δ)/δ} in u^{(1−δ)/δ}, and may be ten times ε.
        let delta = alpha - 1.0;
        let least = if delta > 0.5 { 0.1f64.powf(delta / (2.0 * delta - 1.0)) as f32 } else { 0.0 };
        Power { scale, exponent: (2.0 - alpha) as f32, least }
    }
}

impl Weight for Power {
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
            let s = exp2_nonpos(log2(p).mul(V::splat(self.exponent)));
            s.mul(V::splat(self.scale)).keep(on)
        }
    }
    /// `p^{2−α} = p/p^δ`: no logarithm, unless `u` is so small that it has lost digits.
    #[inline(always)]
    unsafe fn weight_at<V: Vector>(&self, p: V, u: V, inverse: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let s = p.mul(inverse.mul(V::splat(self.scale))).div(u);
            let small = V::and(V::splat(self.least).gt(u), p.gt(V::splat(0.0)));
            if V::bits(small) == 0 { s } else { self.weight(p).select(small, s) }
        }
    }
}

/// What a first pass kept: `scale · s` itself.
#[derive(Clone, Copy)]
pub(super) struct Known;

impl Weight for Known {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        p
    }
}
