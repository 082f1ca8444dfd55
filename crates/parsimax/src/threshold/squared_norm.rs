//! The threshold of sq-pnorm-max, in an unknown that loses no digits.
//!
//! With `m = p − 1 ∈ (0, 1]`, `x = z/γ` and `u_i = [x_i − τ]₊^{1/m}` the solution is `u/Σu` at the τ
//! where `f(τ) = Σu · ‖u‖_p^{p−2} = 1`, and `max x − 1 ≤ τ ≤ max x − d^{−2m/(1+m)}`. As `m → 0` every
//! base `x_i − τ` tends to 1 and the power magnifies its rounding `1/m` times. So, as for α-entmax,
//! the unknown is `s` in `x_i − τ = 1 + m(y_i − s)`, where `y = (x − max x)/m`: then
//! `u_i = exp(log1p(m(y_i − s))/m)`.
//!
//! With averages `⟨·⟩` under `u/Σu`, `e = y − s`, `b = 1 + m·e`, `E = ⟨e⟩` and `B = ⟨b⟩ = 1 + mE`,
//!
//! `log f = m/(1+m) · G`, `G = 2 log Σu − (1−m)/m · log1p(mE)`,
//! `−d log f/ds = m·D`, `D = 1/B + m ⟨(e−E)²/b⟩/B²`.
//!
//! `D > 0`, so `f` falls and the root is one; no term cancels, and `m → 0` is `2·lse(y) − ⟨y⟩`.
//! `f` is homogeneous in `[x − τ]₊` and nearly linear: Newton on `f` itself, from `s = 0`, inside a
//! bracket that bisects should a step ever leave it. Each step is two passes over the candidates.

use super::MAX_STEPS;
use super::tsallis::power;
use crate::numeric;

/// Replaces the raw scores `z` by their sq-pnorm-max with `p = 1 + m` and returns τ in units of z/γ.
pub(crate) fn solve(z: &mut [f64], m: f64, gamma: f64) -> f64 {
    let top = numeric::max(z);
    for z in z.iter_mut() {
        *z = (*z - top) / gamma / m;
    }
    let s = root(z.iter().map(|y| (*y, 1.0)), m);
    for y in z.iter_mut() {
        *y = power(m, *y - s);
    }
    numeric::normalise(z);
    top / gamma + (m * s - 1.0)
}

/// `s` with `f = 1` for `y` whose maximum is 0, each with the number of times it is there.
pub(crate) fn root(y: impl Iterator<Item = (f64, f64)> + Clone, m: f64) -> f64 {
    // The largest threshold belongs to the uniform row; a little slack keeps that root inside.
    let count: f64 = y.clone().map(|(_, n)| n).sum();
    let uniform = -f64::exp_m1(-2.0 * m / (1.0 + m) * count.ln()) / m;
    let (mut low, mut high) = (0.0, (uniform * (1.0 + 1e-12)).min(1.0 / m));
    let mut s = 0.0;
    for _ in 0..MAX_STEPS {
        let step = newton_step(y.clone(), m, s);
        if step > 0.0 {
            low = s;
        } else {
            high = s;
        }
        let next = s + step;
        s = if next >= low && next <= high { next } else { 0.5 * (low + high) };
        // Steps of this size are the rounding of G; the one before was already taken in full.
        if step.abs() <= SETTLED * (1.0 + s) || high - low <= SETTLED * high {
            break;
        }
    }
    s
}

/// The relative size of a step below which only rounding moves the iterate.
const SETTLED: f64 = 8.0 * f64::EPSILON;

/// Newton's step on `f − 1` at `s`; positive exactly where `f > 1`.
fn newton_step(y: impl Iterator<Item = (f64, f64)> + Clone, m: f64, s: f64) -> f64 {
    let terms = || y.clone().map(|(y, n)| (n * power(m, y - s), y - s)).filter(|(u, _)| *u > 0.0);
    let mass = numeric::sum(terms().map(|(u, _)| u));
    let mean = numeric::sum(terms().map(|(u, e)| u * e)) / mass;
    let spread = terms().map(|(u, e)| u / (1.0 + m * e) * (e - mean) * (e - mean)).sum::<f64>() / mass;
    let base = 1.0 + m * mean;
    let g = 2.0 * mass.ln() - (1.0 - m) / m * (m * mean).ln_1p();
    let slope = 1.0 / base + m * spread / (base * base);
    -f64::exp_m1(-m / (1.0 + m) * g) / (m * slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_steps_suffice_whatever_m_and_d() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut most = 0;
        for m in [1e-9, 1e-3, 0.1, 0.5, 0.9, 0.999, 1.0] {
            for d in [2, 10, 1000] {
                for power in [0.2, 1.0, 8.0] {
                    let y: Vec<f64> = (0..d).map(|i| if i == 0 { 0.0 } else { -rng.f64().powf(power) / m }).collect();
                    let (mut s, mut steps) = (0.0, 0);
                    loop {
                        let step = newton_step(y.iter().map(|y| (*y, 1.0)), m, s);
                        steps += 1;
                        if step.abs() <= SETTLED * (1.0 + s) || steps > 100 {
                            break;
                        }
                        s += step;
                    }
                    assert!(steps <= 20, "{steps} steps at m = {m}, d = {d}, power {power}");
                    most = steps.max(most);
                }
            }
        }
        assert!(most <= 20, "{most}");
    }
}
