//! α-entmax for any α > 1: `p = [δx − τ]₊^{1/δ}` with `δ = α − 1`.
//!
//! Two profiles, because a threshold in floating point loses digits at both ends.
//!
//! **α < 2.** Newton on the norm (`e = 1/δ > 1`), with `ln u` taken from `u` where `u` is
//! small and from `u − 1` where it is near 1: for α → 1 the exponent magnifies every error of
//! `u`, but `u − 1 = δ(x − t)` has none to magnify, and `p` goes over into softmax.
//!
//! **α > 2.** `u^e` with `e < 1` is steep at 0: an entry just above τ has a probability that
//! no representable τ expresses. Two facts help. All `p` grow together as τ falls, so each
//! is off by no more than the residual `|Σp − 1|`. And where the residual cannot be made
//! small because an entry `x_k` sits on the threshold, τ is replaced by `x_k` and the
//! probability `w` of that entry: `p = (x − x_k + w^δ)^e`, whose differences are exact.

use super::expo::{exp2_nonpos, log2};
use super::profile::{At, Profile, Slope, Tau, Whole};
use super::solve::{Frame, solve, sums};
use super::vector::Vector;

/// `1 < α < 2`.
#[derive(Clone, Copy)]
pub(crate) struct Below {
    delta: f64,
    inner: f32,
    e: f32,
}

impl Below {
    pub(crate) fn new(alpha: f64) -> Below {
        let delta = alpha - 1.0;
        Below { delta, inner: delta as f32, e: (1.0 / delta) as f32 }
    }
}

/// A residual that the step after it reduces to rounding noise.
const CLOSE: f64 = 2e-6;

impl Slope for Below {
    const ROUGH: bool = false;
    const DEAR: bool = true;
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.inner
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (u, p) = self.prob(x, at);
            (p, p.div(u).keep(u.gt(V::splat(0.0))))
        }
    }
    /// With `N = f^δ`: `(N − 1)/|N′| = f (1 − f^{−δ})/g`.
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        -f * (-self.delta * f.ln()).exp_m1() / g
    }
}

impl Profile for Below {
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let one = V::splat(1.0);
            let back = log2(f).mul(V::splat(-self.inner));
            f.mul(one.sub(exp2_nonpos(back))).div(g)
        }
    }
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, (f, _): (V, V), _: V, _: V, _: V) -> V::Mask {
        // SAFETY: the caller vouches for the instruction set.
        f.gt(unsafe { V::splat(1.0 + CLOSE as f32) })
    }
    #[inline(always)]
    fn unsettled_wide(&self, (f, _): (f64, f64), _: f64, _: f64, _: f64) -> bool {
        f > 1.0 + CLOSE
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let u = at.excess(x);
            let p = u.max(V::splat(f32::MIN_POSITIVE)).power_near_one(at.below_one(x), V::splat(self.e));
            (u, p.keep(u.gt(V::splat(0.0))))
        }
    }
    /// Most of the way goes by products: the root of the next whole power is a lower bound.
    unsafe fn root<V: Vector, const READY: bool>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> Tau {
        // SAFETY: as the caller vouches.
        unsafe {
            let near = Whole::over(1.0 / self.delta, self.inner);
            let from = if near.n > 0 { solve::<V, Whole, READY>(near, z, len, frame, start) - 1e-7 } else { start };
            Tau::new(solve::<V, Below, READY>(*self, z, len, frame, from))
        }
    }
}

/// `α > 2`.
#[derive(Clone, Copy)]
pub(crate) struct Above {
    delta: f64,
    inner: f32,
    e: f32,
}

impl Above {
    pub(crate) fn new(alpha: f64) -> Above {
        let delta = alpha - 1.0;
        Above { delta, inner: delta as f32, e: (1.0 / delta) as f32 }
    }

    /// `u^e`; anything where `u` is 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn power<V: Vector>(&self, u: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            match self.e {
                0.5 => u.sqrt(),
                // Powers of numbers below the normal range are in sight.
                ..0.2 => exp2_nonpos(log2(u).mul(V::splat(self.e))),
                _ => u.max(V::splat(f32::MIN_POSITIVE)).power(V::splat(self.e)),
            }
        }
    }
}

impl Slope for Above {
    const ROUGH: bool = false;
    const DEAR: bool = true;
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.inner
    }
    /// The second sum counts the entries at `hi` itself.
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (_, p) = self.prob(x, at);
            (p, V::splat(1.0).keep(at.is_anchor(x)))
        }
    }
    fn step_wide(&self, _: f64, _: f64) -> f64 {
        0.0
    }
}

impl Profile for Above {
    unsafe fn step<V: Vector>(&self, f: V, _: V) -> V {
        f
    }
    unsafe fn unsettled<V: Vector>(&self, (f, _): (V, V), _: V, _: V, _: V) -> V::Mask {
        f.gt(f)
    }
    fn unsettled_wide(&self, _: (f64, f64), _: f64, _: f64, _: f64) -> bool {
        false
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let u = at.excess(x);
            let p = self.power(u).keep(u.gt(V::splat(0.0)));
            // `w^δ` may vanish in f32 where `w` does not. Without an anchor `w` is 0.
            (u, p.max(at.w.keep(at.is_anchor(x))))
        }
    }

    unsafe fn root<V: Vector, const READY: bool>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> Tau {
        // SAFETY: as the caller vouches.
        unsafe { self.root_below::<V, READY>(z, len, frame, (0.0, start)) }
    }
}

impl Above {
    /// Bracket and bisect, in the probability `q = (top − τ)^e` of the maximum, for a small residual; then, if an entry sits
    /// on the threshold, in its probability `w`. In a frame where the maximum is at `top`, from a start that is not right of
    /// τ.
    ///
    /// # Safety
    /// As [`root`](Profile::root).
    pub(super) unsafe fn root_below<V: Vector, const READY: bool>(
        &self,
        z: *const f32,
        len: usize,
        frame: Frame,
        (top, start): (f64, f64),
    ) -> Tau {
        // SAFETY: as the caller vouches.
        unsafe {
            let (delta, e) = (self.delta, 1.0 / self.delta);
            // n·q ≥ Σp ≥ q: the maximum has at least 1/n, and at most what the start gives.
            let mut q = Bracket::new(1.0 / len as f64, (top - start).clamp(0.0, 1.0).powf(e));
            let mut anchored: Option<(f32, Bracket)> = None;
            let mut tau = Tau::default();
            for _ in 0..200 {
                // One place evaluates, so that it is compiled once.
                tau = match &anchored {
                    None => Tau::new(top - q.mid().powf(delta)),
                    Some((x, w)) => {
                        let w = w.mid();
                        Tau { hi: *x, lo: -(w.powf(delta) as f32), w: w as f32 }
                    }
                };
                let (f, _) = sums::<V, Above, READY>(*self, z, len, frame, tau);
                if (f - 1.0).abs() <= 2.5e-7 {
                    break;
                }
                match &mut anchored {
                    None => {
                        q.update(f - 1.0);
                        if q.is_narrow() {
                            let window = (top - q.hi.powf(delta), top - q.lo.powf(delta), 1e-9 * top);
                            match self.anchor::<V, READY>(z, len, frame, window) {
                                Some(found) => anchored = Some(found),
                                None => break,
                            }
                        }
                    }
                    Some((_, w)) => {
                        w.update(f - 1.0);
                        if w.is_narrow() {
                            break;
                        }
                    }
                }
            }
            tau
        }
    }

    /// An entry of the support, the smallest but for rounding, given that τ lies between `from` and `to`, and a bracket
    /// for its probability. Entries are tried downwards from `to`: `x_k` is supported if the
    /// entries above it, measured from it, have less than all the mass.
    ///
    /// # Safety
    /// As [`sums`].
    unsafe fn anchor<V: Vector, const READY: bool>(
        &self,
        z: *const f32,
        len: usize,
        frame: Frame,
        (from, to, rounding): (f64, f64, f64),
    ) -> Option<(f32, Bracket)> {
        // SAFETY: as the caller vouches.
        unsafe {
            let slack = 1e-6 * to.abs() + rounding;
            let mut found = None;
            let mut x = f32::INFINITY;
            for _ in 0..64 {
                // The largest entry below the last one tried, in the window.
                let mut next = f32::NEG_INFINITY;
                for i in 0..len {
                    let v = *z.add(i);
                    let v = if READY { v } else { (v - frame.max) * frame.scale };
                    if v < x && v > next && f64::from(v) <= to + slack {
                        next = v;
                    }
                }
                if f64::from(next) < from - slack {
                    break;
                }
                x = next;
                let tau = Tau { hi: x, lo: 0.0, w: 0.0 };
                let (g, ties) = sums::<V, Above, READY>(*self, z, len, frame, tau);
                if g >= 1.0 {
                    break;
                }
                // More than this and the tied entries alone would have too much.
                found = Some((x, Bracket::new(0.0, (1.0 - g) / ties.max(1.0))));
            }
            found
        }
    }
}

/// A short row by itself, in f64: the smallest supported entry by search among the sorted candidates, then its
/// probability. Writes the row and returns `τ − δ·max` and `Σ p·u`; `scale` has the factor δ.
///
/// # Safety
/// `z` is readable and `out` and `list` writable for `d` floats.
pub(super) unsafe fn alone(
    (delta, scale): (f64, f32),
    (z, out, d): (*const f32, *mut f32, usize),
    (list, max): (*mut f32, f32),
    gain: f32,
) -> (f64, f64) {
    // SAFETY: as the caller vouches.
    let (z, out, list) = unsafe {
        let list = std::slice::from_raw_parts_mut(list, d);
        (std::slice::from_raw_parts(z, d), std::slice::from_raw_parts_mut(out, d), list)
    };
    let (e, scale) = (1.0 / delta, f64::from(scale));
    let mut n = 0;
    for &v in z.iter().filter(|v| (f64::from(max) - f64::from(**v)) * scale <= 1.0) {
        list[n] = v;
        n += 1;
    }
    let list = &mut list[..n];
    list.sort_unstable_by(|a, b| b.total_cmp(a));
    let lift = |v: f32, from: f32| (f64::from(v) - f64::from(from)) * scale;
    let (mut k, mut end) = (0, n);
    while k + 1 < end {
        let mid = (k + end) / 2;
        let above: f64 = list[..mid].iter().map(|v| lift(*v, list[mid]).powf(e)).sum();
        if above < 1.0 { k = mid } else { end = mid }
    }
    let from = list[k];
    // Its own probability where `w^δ` is no number to tell from 0.
    let one = |v: f32, w: f64| if v == from { w } else { (lift(v, from) + w.powf(delta)).powf(e) };
    let mut w = Bracket::new(0.0, 1.0);
    for _ in 0..200 {
        let residual = list[..=k].iter().map(|v| one(*v, w.mid())).sum::<f64>() - 1.0;
        if residual == 0.0 || w.is_narrow() {
            break;
        }
        w.update(residual);
    }
    let w = w.mid();
    let mut pu = 0.0;
    for (out, v) in out.iter_mut().zip(z) {
        let p = if *v >= from { one(*v, w) } else { 0.0 };
        pu += p * p.powf(delta);
        *out = (p * f64::from(gain)) as f32;
    }
    (lift(from, max) - w.powf(delta), pu)
}

/// A root of an increasing function, held between two points (regula falsi with the
/// Illinois rule, and bisection when that is slow).
#[derive(Clone, Copy)]
struct Bracket {
    lo: f64,
    hi: f64,
    at_lo: f64,
    at_hi: f64,
    next: f64,
    /// Updates in a row that moved the same end.
    same: i32,
}

impl Bracket {
    fn new(lo: f64, hi: f64) -> Bracket {
        Bracket { lo, hi, at_lo: f64::NAN, at_hi: f64::NAN, next: lo, same: 0 }
    }
    /// Where to evaluate next.
    fn mid(&self) -> f64 {
        self.next
    }
    fn is_narrow(&self) -> bool {
        self.hi - self.lo <= 1e-15 * self.hi
    }
    /// Takes the value at [`mid`](Bracket::mid).
    fn update(&mut self, value: f64) {
        if value < 0.0 {
            self.same = self.same.max(0) + 1;
            (self.lo, self.at_lo) = (self.next, value);
            if self.same > 1 {
                self.at_hi *= 0.5;
            }
        } else {
            self.same = self.same.min(0) - 1;
            (self.hi, self.at_hi) = (self.next, value);
            if self.same < -1 {
                self.at_lo *= 0.5;
            }
        }
        let middle = 0.5 * (self.lo + self.hi);
        self.next = if self.at_lo.is_nan() {
            self.lo
        } else if self.at_hi.is_nan() {
            self.hi
        } else if self.same.abs() > 3 {
            middle
        } else {
            let t = self.lo - self.at_lo * (self.hi - self.lo) / (self.at_hi - self.at_lo);
            if t > self.lo && t < self.hi { t } else { middle }
        };
    }
}
