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

use super::expo::{exp2_nonpos, log2};
use super::solve::{Frame, solve};
use super::sweep;
use super::vector::Vector;

/// More steps than the argument above allows for `d = 2³²` and f32 residuals.
pub(crate) const STEPS: usize = 64;

/// A threshold `hi + lo`, to about 48 bits.
///
/// For α > 2 even that is not enough: there `hi` is the smallest supported `x`, and `w` is
/// the probability of the entries that equal it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tau {
    pub(crate) hi: f32,
    pub(crate) lo: f32,
    pub(crate) w: f32,
}

impl Tau {
    /// Splits a number.
    #[inline(always)]
    pub(crate) fn new(tau: f64) -> Tau {
        let hi = tau as f32;
        Tau { hi, lo: (tau - f64::from(hi)) as f32, w: 0.0 }
    }
    /// The number.
    #[inline(always)]
    pub(crate) fn value(self) -> f64 {
        f64::from(self.hi) + f64::from(self.lo)
    }
}

/// A threshold in every lane, in the forms that profiles want; what a profile does not use
/// is never computed.
#[derive(Clone, Copy)]
pub(crate) struct At<V> {
    zero: V,
    hi: V,
    lo: V,
    /// `1 + τ`, in two parts.
    near: (V, V),
    pub(crate) w: V,
}

impl<V: Vector> At<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(crate) unsafe fn new(tau: Tau) -> At<V> {
        let near = Tau::new(1.0 + tau.value());
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            At {
                zero: V::splat(0.0),
                hi: V::splat(tau.hi),
                lo: V::splat(tau.lo),
                near: (V::splat(near.hi), V::splat(near.lo)),
                w: V::splat(tau.w),
            }
        }
    }
    /// One threshold a lane, as f32.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(crate) unsafe fn lanes(tau: V) -> At<V> {
        // SAFETY: the caller vouches for the instruction set.
        let (zero, one) = unsafe { (V::splat(0.0), V::splat(1.0)) };
        let near = one.add(tau);
        At { zero, hi: tau, lo: zero, near: (near, tau.sub(near.sub(one))), w: zero }
    }
    /// `[x − τ]₊` for a τ that is an f32.
    #[inline(always)]
    pub(crate) fn rough(&self, x: V) -> V {
        x.sub(self.hi).max(self.zero)
    }
    /// `[x − τ]₊`.
    #[inline(always)]
    pub(crate) fn excess(&self, x: V) -> V {
        x.sub(self.hi).sub(self.lo).max(self.zero)
    }
    /// Entries that are not below the threshold, and perhaps some that are, by an ulp.
    #[inline(always)]
    pub(crate) fn is_above(&self, x: V) -> V::Mask {
        x.ge(self.hi)
    }
    /// Entries that are the anchor `hi` itself.
    #[inline(always)]
    pub(crate) fn is_anchor(&self, x: V) -> V::Mask {
        V::and(x.ge(self.hi), self.hi.ge(x))
    }
    /// What the rounded difference `rough = x − hi` lacks, for `x ≥ hi` and `|hi| ≥ |x|`.
    #[inline(always)]
    fn lost(&self, x: V, rough: V) -> V {
        x.sub(rough.add(self.hi))
    }
    /// `x − τ − 1`, without cancellation near 0.
    #[inline(always)]
    pub(crate) fn below_one(&self, x: V) -> V {
        x.sub(self.near.0).sub(self.near.1)
    }
}

/// The two sums of a Newton step: enough for a bound.
pub(crate) trait Slope: Copy {
    /// Whether residuals are taken at a τ rounded to f32.
    const ROUGH: bool = true;
    /// Whether terms are so dear (logarithms) that zeros should be written without them.
    const DEAR: bool = false;
    /// `x = inner · scale · (z − max)`.
    fn inner(&self) -> f32;
    /// The terms of the residual sum `f` and of the slope sum `g`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V);
    /// Newton step from the two sums.
    fn step_wide(&self, f: f64, g: f64) -> f64;
}

/// The power of a thresholded mapping and how its threshold is found.
pub(crate) trait Profile: Slope {
    /// Lane-wise Newton step.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V;
    /// Lanes that need another step after this one. `n` is the number of terms.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn unsettled<V: Vector>(&self, sums: (V, V), before: V, step: V, n: V) -> V::Mask;
    /// The same for one row.
    fn unsettled_wide(&self, sums: (f64, f64), before: f64, step: f64, n: f64) -> bool;
    /// `u` and `u^e`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V);
    /// τ of a list of entries, from a start that is not right of it.
    ///
    /// # Safety
    /// As [`solve`].
    unsafe fn root<V: Vector, const READY: bool>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> Tau {
        // SAFETY: as the caller vouches.
        Tau::new(unsafe { solve::<V, Self, READY>(*self, z, len, frame, start) })
    }
    /// Whether τ is looked for in a frame of its own: [`framed_root`](Profile::framed_root).
    const REFRAMES: bool = false;
    /// τ of a list of scores, and the frame that it is measured in.
    ///
    /// # Safety
    /// As [`solve`].
    unsafe fn framed_root<V: Vector>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> (Frame, Tau) {
        // SAFETY: as the caller vouches.
        (frame, unsafe { self.root::<V, false>(z, len, frame, start) })
    }
    /// Whether there may be a quicker way to long rows with many candidates: [`sweep`](Profile::sweep).
    const SWEEPS: bool = false;
    /// Solves and writes a long row with many candidates, if there is a quicker way than [`root`](Profile::root).
    ///
    /// # Safety
    /// As [`sweep::row`].
    unsafe fn sweep<V: Vector>(
        &self,
        _row: (*const f32, usize),
        _out: (*mut f32, bool),
        _frame: Frame,
        _start: f64,
        _gain: Option<f32>,
        _list: *mut f32,
    ) -> Option<(Tau, f64)> {
        None
    }
}

/// [`Profile::sweep`] of a mapping that is [`Direct`].
macro_rules! swept {
    () => {
        const SWEEPS: bool = true;
        unsafe fn sweep<V: Vector>(
            &self,
            row: (*const f32, usize),
            out: (*mut f32, bool),
            frame: Frame,
            start: f64,
            gain: Option<f32>,
            list: *mut f32,
        ) -> Option<(Tau, f64)> {
            // SAFETY: as the caller vouches.
            unsafe { sweep::row::<V, Self>(*self, row, out, frame, start, gain, list) }
        }
    };
}

/// `e = 1`: residual `Σu − 1`, slope `|S|`. The field is the factor on `x`: 1 for the
/// mapping; others use the bound, which holds for every `e ≤ 1`.
#[derive(Clone, Copy)]
pub(crate) struct Sparsemax(pub(crate) f32);

/// A residual that one more step turns into rounding noise: at most this much mass can
/// belong to entries that the step itself removes from the support.
const CLOSE: f32 = 4.8e-7;

impl Slope for Sparsemax {
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.0
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.rough(x);
        // SAFETY: the caller vouches for the instruction set.
        (u, unsafe { V::splat(1.0) }.keep(u.gt(at.zero)))
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        (f - 1.0) / g
    }
}

impl Profile for Sparsemax {
    swept!();
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        f.sub(unsafe { V::splat(1.0) }).div(g)
    }
    /// The equation is linear while the support stands: same count, same root. A step back, from a τ
    /// that rounding has put right of the root, may bring entries into the support that its slope did not
    /// know; then there is one more to make.
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, (f, g): (V, V), before: V, step: V, n: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let (close, near, zero) = unsafe { (V::splat(CLOSE), V::splat(1.0 + CLOSE), V::splat(0.0)) };
        V::or(V::and(before.gt(g), f.gt(near)), n.mul(zero.sub(step)).gt(close))
    }
    #[inline(always)]
    fn unsettled_wide(&self, (f, g): (f64, f64), before: f64, step: f64, n: f64) -> bool {
        (before > g && f > 1.0 + f64::from(CLOSE)) || n * -step > f64::from(CLOSE)
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.excess(x);
        (u, u)
    }
}

/// `e = 2`: Newton on `N = ‖u‖₂`, slope `Σu / N`.
#[derive(Clone, Copy)]
pub(crate) struct Entmax15;

/// The second derivative of the norm is at most `n / N`, so a step `s` leaves a residual
/// of at most `n s² / 2`; below this it is rounding noise.
const CURVED: f32 = 1e-7;

/// A sum of 1.5-entmax this far from 1 is one as far as its rounding tells.
const STANDS: f32 = 1e-7;

/// A step as short as the spacing of the f32 at which residuals are taken.
const GRAIN: f32 = 1.2e-7;

impl Slope for Entmax15 {
    #[inline(always)]
    fn inner(&self) -> f32 {
        0.5
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.rough(x);
        (u.mul(u), u)
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        // (N − 1)·N = f − √f
        (f - f.sqrt()) / g
    }
}

impl Profile for Entmax15 {
    swept!();
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // f − √f, without the digits that a difference of two roundings would lose.
        // SAFETY: the caller vouches for the instruction set.
        let (one, root) = (unsafe { V::splat(1.0) }, f.sqrt());
        f.sub(one).mul(root).div(root.add(one).mul(g))
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
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.excess(x);
        (u, u.mul(u))
    }
}

/// `u^n` for a whole `n ≥ 1`, by products. Where `n ≥ e`, `u^n ≤ u^e` for `u ≤ 1`, so its
/// root is a lower bound on that of `e`, and needs no logarithm. `n = 0` bounds nothing.
#[derive(Clone, Copy)]
pub(crate) struct Whole {
    pub(crate) inner: f32,
    pub(crate) n: u32,
}

/// From the next power on, what rounding takes from `u` shows in `u^n`, and is put back to first order.
const MAGNIFIED: u32 = 4;

impl Whole {
    /// The mapping itself, if its exponent is whole and small: α = 4/3, 5/4 … 11/10.
    pub(crate) fn exactly(alpha: f64) -> Option<Whole> {
        let e = 1.0 / (alpha - 1.0);
        let n = e.round();
        let whole = (2.0..=10.0).contains(&n) && (e - n).abs() < 1e-9 * n;
        whole.then_some(Whole { inner: (alpha - 1.0) as f32, n: n as u32 })
    }
    /// The bound for exponent `e`, as long as products are cheaper than logarithms.
    pub(crate) fn over(e: f64, inner: f32) -> Whole {
        Whole { inner, n: if e <= 16.0 { e.ceil() as u32 } else { 0 } }
    }
}

/// `u^n` for `n ≥ 1`, by squares.
#[inline(always)]
pub(super) fn whole_power<V: Vector>(u: V, n: u32) -> V {
    let square = u.mul(u);
    let fourth = square.mul(square);
    match n {
        1 => u,
        2 => square,
        3 => square.mul(u),
        4 => fourth,
        5 => fourth.mul(u),
        6 => fourth.mul(square),
        7 => fourth.mul(square).mul(u),
        8 => fourth.mul(fourth),
        9 => fourth.mul(fourth).mul(u),
        _ => (10..n).fold(fourth.mul(fourth).mul(square), |p, _| p.mul(u)),
    }
}

impl Slope for Whole {
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.inner
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.rough(x);
        let g = match self.n {
            // SAFETY: the caller vouches for the instruction set.
            0 | 1 => unsafe { V::splat(1.0) }.keep(u.gt(at.zero)),
            n => whole_power(u, n - 1),
        };
        if self.n <= MAGNIFIED {
            return (g.mul(u), g);
        }
        let lost = at.lost(x, x.sub(at.hi)).keep(u.gt(at.zero));
        // SAFETY: as above.
        (g.mul(lost.fma(unsafe { V::splat(self.n as f32) }, u)), g)
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        match self.n {
            0 => 0.0,
            // Roots of roots are far cheaper than a power.
            2 => (f - f.sqrt()) / g,
            4 => (f - f.sqrt() * f.sqrt().sqrt()) / g,
            8 => (f - f.sqrt() * f.sqrt().sqrt() * f.sqrt().sqrt().sqrt()) / g,
            n => (f - f.powf(1.0 - 1.0 / f64::from(n))) / g,
        }
    }
}

impl Profile for Whole {
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let root = log2(f).mul(V::splat(-1.0 / self.n as f32));
            f.mul(V::splat(1.0).sub(exp2_nonpos(root))).div(g)
        }
    }
    /// As for `n = 2`, whose second derivative the power multiplies by at most `n − 1`.
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, _: (V, V), _: V, step: V, n: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let curve = n.mul(V::splat(self.n.max(2) as f32 - 1.0));
            let far = curve.mul(step).mul(step).gt(V::splat(CURVED));
            V::and(far, step.gt(V::splat(GRAIN)))
        }
    }
    #[inline(always)]
    fn unsettled_wide(&self, _: (f64, f64), _: f64, step: f64, n: f64) -> bool {
        let curve = n * (f64::from(self.n.max(2)) - 1.0);
        curve * step * step > f64::from(CURVED) && step > f64::from(GRAIN)
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        let u = at.excess(x);
        if self.n <= MAGNIFIED {
            return (u, whole_power(u, self.n));
        }
        let g = whole_power(u, self.n - 1);
        let rough = x.sub(at.hi);
        let lost = at.lost(x, rough).add(rough.sub(u).sub(at.lo)).keep(u.gt(at.zero));
        // SAFETY: the caller vouches for the instruction set.
        (u, g.mul(lost.fma(unsafe { V::splat(self.n as f32) }, u)))
    }
}

/// A mapping whose terms are so cheap that a pass over a whole short row is the cheapest way
/// to its sums.
pub(crate) trait Direct: Profile {
    /// Whether a step is exact or wrong (sparsemax: as the support stands or falls), so that only a
    /// look at the result tells.
    const LOOKS_TWICE: bool;
    /// Up to how many ranks in the support they are likely to be all there is.
    const ORDERED: f32;
    /// Adds the terms of `u = [x − τ]₊` to the two sums of a Newton step. `one` is 1, as an operand.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn gather<V: Vector>(&self, u: V, f: V, g: V, one: V) -> (V, V);
    /// The same where the second sum may be a tally: [`taken`](Direct::taken) makes it a number. `bit` is the float of
    /// bit pattern 1, as an operand.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn take<V: Vector>(&self, u: V, f: V, g: V, bit: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe { self.gather(u, f, g, bit) }
    }
    /// What the second of these sums stands for.
    #[inline(always)]
    fn taken<V: Vector>(&self, g: V) -> V {
        g
    }
    /// The sum of four such.
    #[inline(always)]
    fn taken_of<V: Vector>(&self, [a, b, c, d]: [V; 4]) -> V {
        self.taken(a).add(self.taken(b)).add(self.taken(c).add(self.taken(d)))
    }
    /// Whether probabilities with these sums are what they should be, where the step that led to them had the slope
    /// `before`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn stands<V: Vector>(&self, sums: (V, V), before: V) -> V::Mask;
    /// A step from the two sums and the number `n` of entries in the support.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn curved_step<V: Vector>(&self, f: V, g: V, n: V) -> V;
    /// Lanes that need another step, as [`Profile::unsettled`], from a τ on either side of the root.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn goes_on<V: Vector>(&self, sums: (V, V), before: V, step: V, n: V) -> V::Mask;
    /// `u^e`
    fn power<V: Vector>(&self, u: V) -> V;
    /// `−τ` of entries by their distances from the largest, in ascending order; the first is 0. `one` as above.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn by_rank<V: Vector>(&self, y: &[V], one: V) -> V;
    /// Whether the number of entries in the support makes a step better.
    const CURVED: bool;
    /// The step from the sums over a whole row.
    fn leap(&self, sums: sweep::Sums) -> f64;
    /// Whether the step, from either side, leaves nothing but rounding noise: as [`Profile::unsettled_wide`].
    fn is_swept(&self, sums: sweep::Sums, before: f64, step: f64, n: f64) -> bool;
}

impl Direct for Sparsemax {
    const LOOKS_TWICE: bool = true;
    const ORDERED: f32 = 12.0;
    #[inline(always)]
    unsafe fn gather<V: Vector>(&self, u: V, f: V, g: V, one: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        let zero = unsafe { V::splat(0.0) };
        (u.fma(one, f), g.add(one.keep(u.gt(zero))))
    }
    #[inline(always)]
    unsafe fn take<V: Vector>(&self, u: V, f: V, g: V, bit: V) -> (V, V) {
        (f.add(u), g.tally_above(u, bit))
    }
    #[inline(always)]
    fn taken<V: Vector>(&self, g: V) -> V {
        g.tallied()
    }
    /// The support is the one that the step was exact for, or the sum tells that this makes no difference.
    #[inline(always)]
    unsafe fn stands<V: Vector>(&self, (f, g): (V, V), before: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let [most, least, off] =
            unsafe { [1.0 + 0.5 * CLOSE, 1.0 - 0.5 * CLOSE, 1.0 + 4.0 * CLOSE].map(|x| V::splat(x)) };
        let same = V::and(g.ge(before), before.ge(g));
        V::and(f.ge(least), V::or(most.ge(f), V::and(same, off.ge(f))))
    }
    #[inline(always)]
    unsafe fn curved_step<V: Vector>(&self, f: V, g: V, _: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { self.step(f, g) }
    }
    /// A row that does not go on stays where its sum was taken, so that the sum is all there is to judge. A support
    /// that stands is no excuse for a sum that is far off: the step that led there may have been as inexact as a
    /// sum of hundreds is.
    #[inline(always)]
    unsafe fn goes_on<V: Vector>(&self, (f, g): (V, V), before: V, _: V, _: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let [most, least, off] =
            unsafe { [1.0 + 0.5 * CLOSE, 1.0 - 0.5 * CLOSE, 1.0 + 4.0 * CLOSE].map(|x| V::splat(x)) };
        V::or(V::and(before.gt(g), f.gt(most)), V::or(least.gt(f), f.gt(off)))
    }
    #[inline(always)]
    fn power<V: Vector>(&self, u: V) -> V {
        u
    }
    /// The least of `(1 + Σy)/k` over the first `k`: an entry lowers the quotient as long as it is in the support.
    #[inline(always)]
    unsafe fn by_rank<V: Vector>(&self, y: &[V], one: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (mut sum, mut t) = (V::splat(1.0), V::splat(1.0));
            for k in 1..y.len() {
                sum = y[k].fma(one, sum);
                t = t.order(sum.mul(V::splat(1.0 / (k + 1) as f32))).0;
            }
            t
        }
    }
    const CURVED: bool = false;
    fn leap(&self, sweep::Sums { f, g, .. }: sweep::Sums) -> f64 {
        self.step_wide(f, g)
    }
    fn is_swept(&self, sweep::Sums { f, g, .. }: sweep::Sums, before: f64, step: f64, n: f64) -> bool {
        !self.unsettled_wide((f, g), before, step, n)
    }
}

impl Direct for Entmax15 {
    const LOOKS_TWICE: bool = false;
    const ORDERED: f32 = 17.0;
    #[inline(always)]
    unsafe fn gather<V: Vector>(&self, u: V, f: V, g: V, _: V) -> (V, V) {
        (u.fma(u, f), g.add(u))
    }
    /// Each is off by no more than their sum.
    #[inline(always)]
    unsafe fn stands<V: Vector>(&self, (f, _): (V, V), _: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        let [most, least] = unsafe { [1.0 + STANDS, 1.0 - STANDS].map(|x| V::splat(x)) };
        V::and(f.ge(least), most.ge(f))
    }
    /// The nearer root of `n t² − 2 g t + f = 1`, or Newton's step where there is none.
    #[inline(always)]
    unsafe fn curved_step<V: Vector>(&self, f: V, g: V, n: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let rest = f.sub(V::splat(1.0));
            let square = g.mul(g).sub(n.mul(rest));
            let (leap, is_real) = (rest.div(g.add(square.sqrt())), square.ge(V::splat(0.0)));
            if V::bits(is_real).count_ones() as usize == V::LANES {
                leap
            } else {
                leap.select(is_real, self.step(f, g))
            }
        }
    }
    /// Residuals are taken at a τ in two floats, so that no step is too short to be made.
    #[inline(always)]
    unsafe fn goes_on<V: Vector>(&self, _: (V, V), _: V, step: V, n: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        n.mul(step).mul(step).gt(unsafe { V::splat(4.0 * CURVED) })
    }
    #[inline(always)]
    fn power<V: Vector>(&self, u: V) -> V {
        u.mul(u)
    }
    /// Entry `k` is in the support if those before it have less than 1 at its place: `D = Σ(y_k − y_j)² < 1`. From there
    /// `kv² + 2Av + D = 1` with `A = Σ(y_k − y_j)` leads on to `−τ = y_k + v`. Both sums grow by what lies between
    /// neighbours, so that nothing cancels.
    #[inline(always)]
    unsafe fn by_rank<V: Vector>(&self, y: &[V], _: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (zero, one) = (V::splat(0.0), V::splat(1.0));
            let (mut lines, mut squares) = (zero, zero);
            let (mut from, mut a, mut d, mut count) = (zero, zero, zero, one);
            for k in 1..y.len() {
                let gap = y[k].sub(y[k - 1]);
                let next = gap.fma(V::splat(k as f32), lines);
                squares = gap.fma(next.add(lines), squares);
                lines = next;
                let inside = one.gt(squares);
                (from, a) = (y[k].select(inside, from), lines.select(inside, a));
                (d, count) = (squares.select(inside, d), V::splat((k + 1) as f32).select(inside, count));
            }
            let rest = one.sub(d);
            from.add(rest.div(a.add(a.fma(a, count.mul(rest)).sqrt())))
        }
    }
    const CURVED: bool = true;
    /// The nearer root of `n t² − 2 g t + f = 1`, or Newton's step where there is none.
    fn leap(&self, sweep::Sums { f, g, count }: sweep::Sums) -> f64 {
        match count.map(|n| g * g - n * (f - 1.0)) {
            Some(square) if square >= 0.0 => (f - 1.0) / (g + square.sqrt()),
            _ => self.step_wide(f, g),
        }
    }
    /// A τ that was rounded to f32 first is left by a step of its spacing, which is below 5e−7 where that is done.
    fn is_swept(&self, _: sweep::Sums, _: f64, step: f64, n: f64) -> bool {
        n * step * step <= f64::from(CURVED) || step.abs() <= 4.0 * f64::from(GRAIN)
    }
}
