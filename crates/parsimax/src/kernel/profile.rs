//! What tells one thresholded mapping from another.
//!
//! Every mapping here has the form `p_i = u_i^e` with `u_i = [x_i − τ]₊`, where `x` is a
//! multiple of `z − max z`, and τ is the root of `Σ u_i^e = 1`. A [`Profile`] holds the
//! power and the Newton step that finds the root; scanning, filtering and writing are
//! shared.
//!
//! # Why Newton from the left, and why it has no slow case
//! `F(τ) = Σ u^e − 1` (sparsemax, `e = 1`) and the norm `N(τ) − 1 = (Σ u^e)^{1/e} − 1`
//! (`e > 1`) are convex and decreasing. Newton on a convex decreasing function that starts
//! left of the root never passes it, so every iterate is a valid lower bound on τ and the
//! set `{x > τ}` only shrinks. With `f_n` the residual and `g_n` minus the slope at step n,
//! convexity gives `f_{n+1}/f_n + g_{n+1}/g_n ≤ 1`: at every step the residual or the slope
//! at least halves. The slope of sparsemax is an integer in `[1, d]`, so `log₂ d` steps
//! halve it at most, and the rest halve the residual: the step count is
//! `O(log d + log 1/ε)` whatever the input. There is no quadratic case as there is for the
//! textbook bound of Michelot's method. `STEPS` caps the loop against rounding noise only.

use super::vector::Vector;

/// More steps than the argument above allows for `d = 2³²` and f32 residuals.
pub(crate) const STEPS: usize = 64;

/// The power of a thresholded mapping and its Newton step.
pub(crate) trait Profile: Copy {
    /// `x = inner · scale · (z − max)`.
    fn inner(&self) -> f32;
    /// The terms of the residual sum `f` and of the slope sum `g` for `u ≥ 0`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn terms<V: Vector>(&self, u: V) -> (V, V);
    /// Newton step from the two sums.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V;
    /// The same for one row, in f64.
    fn step_wide(&self, f: f64, g: f64) -> f64;
    /// Lanes that need another step after this one. `n` is the number of terms.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn unsettled<V: Vector>(&self, sums: (V, V), before: V, step: V, n: V) -> V::Mask;
    /// The same for one row.
    fn unsettled_wide(&self, sums: (f64, f64), before: f64, step: f64, n: f64) -> bool;
    /// `u^e`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn prob<V: Vector>(&self, u: V) -> V;
}

/// `e = 1`: residual `Σu − 1`, slope `|S|`.
#[derive(Clone, Copy)]
pub(crate) struct Sparsemax;

/// A residual that one more step turns into rounding noise: at most this much mass can
/// belong to entries that the step itself removes from the support.
const CLOSE: f32 = 4.8e-7;

impl Profile for Sparsemax {
    #[inline(always)]
    fn inner(&self) -> f32 {
        1.0
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, u: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        let (zero, one) = unsafe { (V::splat(0.0), V::splat(1.0)) };
        (u, one.keep(u.gt(zero)))
    }
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        f.sub(unsafe { V::splat(1.0) }).div(g)
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        (f - 1.0) / g
    }
    /// The equation is linear while the support stands: same count, same root.
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, (f, g): (V, V), before: V, _: V, _: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let close = unsafe { V::splat(1.0 + CLOSE) };
        V::and(before.gt(g), f.gt(close))
    }
    #[inline(always)]
    fn unsettled_wide(&self, (f, g): (f64, f64), before: f64, _: f64, _: f64) -> bool {
        before > g && f > 1.0 + f64::from(CLOSE)
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, u: V) -> V {
        u
    }
}

/// `e = 2`: Newton on `N = ‖u‖₂`, slope `Σu / N`.
#[derive(Clone, Copy)]
pub(crate) struct Entmax15;

/// The second derivative of the norm is at most `n / N`, so a step `s` leaves a residual
/// of at most `n s² / 2`; below this it is rounding noise.
const CURVED: f32 = 1e-7;

/// A step as short as the spacing of the f32 at which residuals are taken.
const GRAIN: f32 = 1.2e-7;

impl Profile for Entmax15 {
    #[inline(always)]
    fn inner(&self) -> f32 {
        0.5
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, u: V) -> (V, V) {
        (u.mul(u), u)
    }
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // (N − 1)·N = f − √f
        f.sub(f.sqrt()).div(g)
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        (f - f.sqrt()) / g
    }
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, _: (V, V), _: V, step: V, n: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let (curved, grain) = unsafe { (V::splat(CURVED), V::splat(GRAIN)) };
        V::and(n.mul(step).mul(step).gt(curved), step.gt(grain))
    }
    #[inline(always)]
    fn unsettled_wide(&self, _: (f64, f64), _: f64, step: f64, n: f64) -> bool {
        n * step * step > f64::from(CURVED) && step > f64::from(GRAIN)
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, u: V) -> V {
        u.mul(u)
    }
}
