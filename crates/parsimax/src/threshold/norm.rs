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

use super::{MAX_STEPS, quadratic, tsallis};
use crate::numeric;

/// Replaces the raw scores `z` by their normmax and returns τ in units of z/γ.
pub(crate) fn solve(z: &mut [f64], alpha: f64, gamma: f64, work: &mut Vec<f64>) -> f64 {
    let tau = if alpha > 2.0 {
        anchored(z, alpha - 1.0, gamma, work)
    } else if alpha == 2.0 {
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

/// Replaces `z` by the roots `[x − τ]₊^{1/m}`, `m = α − 1 > 1`, and returns τ.
fn anchored(z: &mut [f64], m: f64, gamma: f64, work: &mut Vec<f64>) -> f64 {
    let mut anchor = lowest_candidate(z, m, gamma, work);
    let floor = loop {
        work.clear();
        work.extend(z.iter().filter(|z| **z >= anchor).map(|z| (z - anchor) / gamma));
        if norm(work, 0.0, m).0 < 1.0 {
            break floor_above(work, m);
        }
        // Rounding had let in an entry without mass; the next larger one is the anchor.
        anchor = z.iter().copied().filter(|z| *z > anchor).fold(f64::INFINITY, f64::min);
    };
    for z in z.iter_mut() {
        *z = if *z >= anchor { ((*z - anchor) / gamma + floor).powf(1.0 / m) } else { 0.0 };
    }
    anchor / gamma - floor
}

/// The smallest score above τ: Newton on the norm from the left, dropping what falls below.
fn lowest_candidate(z: &[f64], m: f64, gamma: f64, active: &mut Vec<f64>) -> f64 {
    let top = numeric::max(z);
    active.clear();
    active.extend(z.iter().map(|z| (z - top) / gamma).filter(|x| *x > -1.0));
    let mut tau = -1.0;
    for _ in 0..MAX_STEPS {
        let (norm, slope) = norm(active, -tau, m);
        let next = tau + (norm - 1.0) / slope;
        // The maximum, 0, has mass: it is never dropped.
        if next.is_nan() || next <= tau || next >= 0.0 {
            break;
        }
        let step = next - tau;
        tau = next;
        active.retain(|x| *x > tau);
        if step <= 1e-16 {
            break;
        }
    }
    z.iter().copied().filter(|z| (z - top) / gamma > tau).fold(top, f64::min)
}

/// `f` with `‖gaps + f‖_a = 1`, by Newton from the right.
fn floor_above(gaps: &[f64], m: f64) -> f64 {
    // The anchor's base is the smallest of k, and the largest base is at most 1.
    let uniform = (gaps.len() as f64).powf(-m / (1.0 + m));
    let mut floor = uniform.min((1.0 - numeric::max(gaps)).max(0.0));
    for _ in 0..MAX_STEPS {
        let (norm, slope) = norm(gaps, floor, m);
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

/// `‖x + f‖_a`, `a = 1 + 1/m`, and its derivative in `f`.
fn norm(x: &[f64], f: f64, m: f64) -> (f64, f64) {
    let power = numeric::sum(x.iter().map(|x| (x + f) * (x + f).powf(1.0 / m)));
    let roots: f64 = x.iter().map(|x| (x + f).powf(1.0 / m)).sum();
    let norm = power.powf(m / (1.0 + m));
    (norm, if power > 0.0 { norm / power * roots } else { f64::INFINITY })
}
