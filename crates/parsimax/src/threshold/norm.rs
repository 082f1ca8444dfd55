//! The threshold of normmax: `Σ [x_i − τ]₊^a = 1` with `a = α/(α−1)`, and `p ∝ [x − τ]₊^{1/(α−1)}`.
//!
//! `v_i = [x_i − τ]₊^a` is itself a distribution, the (2 − 1/α)-entmax of the scores times `a`, and
//! `p ∝ v^{1/α}`. For α ≤ 2 that is the way: the solvers of entmax lose no digits, and the exponent
//! 1/(α−1) ≥ 1 magnifies nothing.
//!
//! For α > 2 the power is a root, steep at 0, and the base of the smallest supported entry `z_k`
//! decides its digits. So that base, `f = x_k − τ`, is the unknown: `x_i − τ = (z_i − z_k)/γ + f` with
//! exact differences. The norm `‖(z − z_k)/γ + f‖_a` is convex in `f`, and Newton from the right never
//! passes the root. (Unlike α-entmax, whose equation is steep in its smallest entry, this one hardly
//! sees it: `f` is known to an absolute 10⁻¹⁶, and an entry that close above τ has `p` to 10⁻¹⁶·f^{1/m − 1}
//! only. The scores would need more digits to say more.)
//!
//! No list of what is above τ is kept: powers cost far more than passing over the entries without one, and a long row
//! takes no memory.

use super::{MAX_STEPS, quadratic, tsallis};
use crate::{Float, numeric};

/// Replaces the raw scores `z` by their normmax and returns τ in units of z/γ.
pub(crate) fn solve(z: &mut [f64], alpha: f64, gamma: f64) -> f64 {
    if alpha > 2.0 {
        return steep(z, alpha, gamma);
    }
    let tau = if alpha == 2.0 {
        let tau = quadratic::solve(z, 0.5 * gamma);
        z.iter_mut().for_each(|v| *v = v.sqrt());
        tau
    } else {
        let (top, delta) = (numeric::max(z), (alpha - 1.0) / alpha);
        for z in z.iter_mut() {
            *z = (*z - top) / gamma / delta;
        }
        let t = tsallis::solve(z, delta);
        z.iter_mut().for_each(|v| *v = v.powf(1.0 / alpha));
        top / gamma + (delta * t - 1.0)
    };
    numeric::normalise(z);
    tau
}

/// [`solve`] for α > 2, in any precision: all but the result is in `f64`.
pub(crate) fn steep<T: Float>(z: &mut [T], alpha: f64, gamma: f64) -> f64 {
    let tau = anchored(z, alpha - 1.0, gamma);
    numeric::normalise(z);
    tau
}

/// Replaces `z` by the roots `[x − τ]₊^{1/m}`, `m = α − 1 > 1`, and returns τ.
fn anchored<T: Float>(z: &mut [T], m: f64, gamma: f64) -> f64 {
    let roots = Roots::of(wide(z), m, gamma);
    for z in z.iter_mut() {
        *z = T::narrow(roots.of_score(z.widen()));
    }
    roots.anchor / gamma - roots.floor
}

/// The roots of a row as a function of its scores.
pub(crate) struct Roots {
    m: f64,
    gamma: f64,
    /// The smallest score above τ, and its base.
    anchor: f64,
    floor: f64,
}

impl Roots {
    /// Those of finite scores, each with the number of times it is there.
    pub(crate) fn of(z: impl Iterator<Item = (f64, f64)> + Clone, m: f64, gamma: f64) -> Self {
        let mut anchor = lowest_candidate(z.clone(), m, gamma);
        let floor = loop {
            let gaps = z.clone().filter(|(z, _)| *z >= anchor).map(|(z, n)| ((z - anchor) / gamma, n));
            if norm(gaps.clone(), 0.0, m).0 < 1.0 {
                break floor_above(gaps, m);
            }
            // Rounding had let in an entry without mass; the next larger one is the anchor.
            anchor = z.clone().map(|(z, _)| z).filter(|z| *z > anchor).fold(f64::INFINITY, f64::min);
        };
        Self { m, gamma, anchor, floor }
    }

    /// The root of a score.
    pub(crate) fn of_score(&self, z: f64) -> f64 {
        if z >= self.anchor { ((z - self.anchor) / self.gamma + self.floor).powf(1.0 / self.m) } else { 0.0 }
    }
}

/// The entries, widened, each once.
fn wide<T: Float>(z: &[T]) -> impl Iterator<Item = (f64, f64)> + Clone {
    z.iter().map(|z| (z.widen(), 1.0))
}

/// The smallest score above τ: Newton on the norm from the left, dropping what falls below.
fn lowest_candidate(z: impl Iterator<Item = (f64, f64)> + Clone, m: f64, gamma: f64) -> f64 {
    let top = z.clone().map(|(z, _)| z).fold(f64::NEG_INFINITY, f64::max);
    let mut tau = -1.0;
    for _ in 0..MAX_STEPS {
        let below = z.clone().map(|(z, n)| ((z - top) / gamma, n)).filter(|(x, _)| *x > tau);
        let (norm, slope) = norm(below, -tau, m);
        let next = tau + (norm - 1.0) / slope;
        // The maximum, 0, has mass: it is never dropped.
        if next.is_nan() || next <= tau || next >= 0.0 {
            break;
        }
        let step = next - tau;
        tau = next;
        if step <= 1e-16 {
            break;
        }
    }
    z.map(|(z, _)| z).filter(|z| (z - top) / gamma > tau).fold(top, f64::min)
}

/// `f` with `‖gaps + f‖_a = 1`, by Newton from the right.
fn floor_above(gaps: impl Iterator<Item = (f64, f64)> + Clone, m: f64) -> f64 {
    // The anchor's base is the smallest of k, and the largest base is at most 1.
    let uniform = gaps.clone().map(|(_, n)| n).sum::<f64>().powf(-m / (1.0 + m));
    let mut floor = uniform.min((1.0 - gaps.clone().map(|(x, _)| x).fold(0.0, f64::max)).max(0.0));
    for _ in 0..MAX_STEPS {
        let (norm, slope) = norm(gaps.clone(), floor, m);
        let next = (floor - (norm - 1.0) / slope).max(0.0);
        if next.is_nan() || next >= floor {
            break;
        }
        let step = floor - next;
        floor = next;
        if step <= 0.25 * f64::EPSILON * floor {
            break;
        }
    }
    floor
}

/// `‖x + f‖_a`, `a = 1 + 1/m`, and its derivative in `f`; each `x` is there so many times.
fn norm(x: impl Iterator<Item = (f64, f64)>, f: f64, m: f64) -> (f64, f64) {
    let mut roots = 0.0;
    let power = numeric::sum(x.map(|(x, n)| {
        let root = n * (x + f).powf(1.0 / m);
        roots += root;
        (x + f) * root
    }));
    let norm = power.powf(m / (1.0 + m));
    (norm, if power > 0.0 { norm / power * roots } else { f64::INFINITY })
}
