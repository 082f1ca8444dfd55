//! The threshold of α-entmax for 0 < α ≤ 2, in an unknown that loses no digits.
//!
//! With δ = α − 1 and scores shifted so that their maximum is 0, `p_i = exp(log1p(δ(x_i − t))/δ)`
//! and `Σp = 1` at some `t ∈ [0, (1 − d^{−δ})/δ]`. As δ → 0, `t` becomes the log-sum-exp and `p` the
//! softmax: there is no special case and no jump. (The usual unknown τ = δt − 1 loses `1/δ` digits.)
//!
//! Newton runs on the norm `F^δ = 1` with `F = Σp`. Its step, `F·(1 − F^{−δ})/(δ·Σp^{2−α})`, is the
//! full answer `log F` at α = 1 and Michelot's step at α = 2. For 0 < δ ≤ 1 the norm is convex and
//! falling, for δ < 0 the generalised mean `F^δ` is concave and rising: either way the iterates
//! climb to the root from `t = 0` without passing it.

use super::MAX_STEPS;
use crate::numeric;

/// Replaces `x` (maximum 0) by its α-entmax, α = 1 + δ ≤ 2, and returns `t`.
pub(crate) fn solve(x: &mut [f64], delta: f64) -> f64 {
    let weight = |p: f64| p.powf(1.0 - delta);
    let t = threshold(x.iter().map(|x| (*x, 1.0)), delta);
    for x in x.iter_mut() {
        *x = power(delta, *x - t);
    }
    numeric::polish(x, 1.0, weight);
    t
}

/// `t` of entries (maximum 0) of which each stands for so many.
pub(crate) fn threshold(entries: impl Iterator<Item = (f64, f64)> + Clone, delta: f64) -> f64 {
    let mut t = 0.0;
    for _ in 0..MAX_STEPS {
        let powers = || entries.clone().map(|(x, n)| (power(delta, x - t), n)).filter(|(p, _)| *p > 0.0);
        let mass = numeric::sum(powers().map(|(p, n)| n * p));
        let slope: f64 = powers().map(|(p, n)| n * p.powf(1.0 - delta)).sum();
        let next = t + mass * log_deformed(delta, mass) / slope;
        if next.is_nan() || next <= t {
            break;
        }
        let step = next - t;
        t = next;
        if step <= 1e-17 * t {
            break;
        }
    }
    t
}

/// `exp(log1p(δu)/δ) = (1 + δu)^{1/δ}`, 0 where the base is not positive, `exp(u)` at δ = 0.
pub(crate) fn power(delta: f64, u: f64) -> f64 {
    let base = delta * u;
    if base <= -1.0 {
        0.0
    } else if delta == 0.0 {
        u.exp()
    } else {
        (base.ln_1p() / delta).exp()
    }
}

/// `(1 − m^{−δ})/δ`, `log m` at δ = 0.
fn log_deformed(delta: f64, m: f64) -> f64 {
    if delta == 0.0 { m.ln() } else { -(-delta * m.ln()).exp_m1() / delta }
}
