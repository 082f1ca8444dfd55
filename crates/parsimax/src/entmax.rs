//! α-entmax: the family between softmax (α = 1) and sparsemax (α = 2), and beyond on both sides
//! (Peters, Niculae & Martins 2019; Correia, Niculae & Martins 2019).
//!
//! **Problem.** `$\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\,\Omega_\alpha(p)$` with
//! the negative Tsallis entropy $\Omega_\alpha(p) = \frac{1}{\alpha(\alpha-1)}(\sum_i p_i^\alpha - 1)$,
//! which is $\sum p \log p$ at α = 1.
//!
//! **Closed form.** $p_i = [(\alpha-1) z_i/\gamma - \tau]_+^{1/(\alpha-1)}$. For 0 < α < 1 every entry
//! is positive and the tails are heavy; for α > 1 entries γ/(α−1) below the maximum are exactly 0.
//!
//! **Algorithm and cost.** $O(d)$ to find the candidates. α = 1.5: τ in closed form on the support.
//! α ≤ 2: Newton in an unknown that passes into the log-sum-exp as α → 1. α > 2: anchored at the
//! smallest supported entry. Neither loses digits at any α (see `threshold`).
//!
//! **Jacobian.** With $s_i = p_i^{2-\alpha}/\gamma$ on the support,
//! $Jv = s \odot (v - \langle s, v\rangle/\sum s)$: symmetric; needs $p$ alone.
//!
//! **Gradient in α.** With δ = α−1, $\ell_i = \log p_i$, `$H = -\sum p\,\ell$`,
//! $\varphi_2(x) = (e^x - 1 - x)/x^2$, `$r_i = \ell_i^2\,\varphi_2(-\delta\ell_i)$`, `$R = \sum p\,r$` and
//! $E = \delta H + \delta^2 R$,
//! $$\frac{\partial p_i}{\partial \alpha} = \frac{p_i}{1+E}\left[R - r_i - \delta(\ell_i R + r_i H)\right].$$
//! It divides by no power of δ, so it holds, to the last digits, at α = 1 as everywhere.
//!
//! **Edge cases.** Ties share equally at every α.

use crate::error::{check, check_gamma};
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::Visit;
use crate::numeric;
use crate::registry::Entry;
use crate::separable::{Separable, separable_mapping};
use crate::single::Kernel;
use crate::threshold::{anchored, exponential, linear, quadratic, tsallis};
use crate::{Regularized, Result};

/// The lines of the table.
pub(crate) const ENTRY_15: Entry = Entry {
    name: "entmax15",
    omega: "Tsallis, α = 1.5",
    sparsity: "zero from 2γ below the maximum on",
    cost: "O(d)",
    reference: "Peters, Niculae & Martins 2019",
    takes: &["gamma"],
    build: |o| Ok(Box::new(Entmax15::new().with_gamma(o.gamma())?)),
};
pub(crate) const ENTRY: Entry = Entry {
    name: "entmax",
    omega: "Tsallis, any α > 0",
    sparsity: "α ≤ 1 dense; else zero from γ/(α−1) below the maximum on",
    cost: "O(d); α > 2 and dense: O(d log d)",
    reference: "Peters, Niculae & Martins 2019; Correia, Niculae & Martins 2019",
    takes: &["alpha", "gamma"],
    build: |o| Ok(Box::new(Entmax::new(o.alpha.unwrap_or(1.5))?.with_gamma(o.gamma())?)),
};

/// 1.5-entmax, whose threshold has a closed form.
///
/// ```
/// use parsimax::{Entmax15, MappingExt};
/// // x = z/2 = (0.4, −0.4): (0.4−τ)² + (−0.4−τ)² = 1 gives τ = −√0.34; p = (0.4 + √0.34)² …
/// let p = Entmax15::new().apply(&[0.8f64, -0.8])?;
/// assert!((p[0] - (0.4 + 0.34f64.sqrt()).powi(2)).abs() < 1e-15);
/// assert_eq!(Entmax15::new().apply(&[2.0, 0.0])?, [1.0, 0.0]);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entmax15 {
    gamma: f64,
}

impl Entmax15 {
    /// 1.5-entmax of strength 1.
    #[must_use]
    pub fn new() -> Self {
        Self { gamma: 1.0 }
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("entmax15", gamma)?;
        Ok(Self { gamma })
    }
}

impl Default for Entmax15 {
    fn default() -> Self {
        Self::new()
    }
}

impl Separable for Entmax15 {
    fn window(&self) -> f64 {
        2.0 * self.gamma
    }
    fn solve(&self, z: &mut [f64], _work: &mut Vec<f64>) -> Option<f64> {
        Some(quadratic::solve(z, self.gamma))
    }
    fn weight(&self, p: f64) -> f64 {
        p.sqrt() / self.gamma
    }
}

separable_mapping! {
    Entmax15,
    "entmax15",
    fn form(&self) -> Option<Form> {
        Some(Form::Entmax { alpha: 1.5, gamma: self.gamma })
    }
    fn kernel(&self) -> Option<Kernel> {
        Kernel::new(Map::Entmax15, self.gamma)
    }
}

impl Regularized for Entmax15 {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    fn omega(&self, p: &[f64]) -> f64 {
        negative_tsallis(p, 1.5)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        negative_tsallis_by(each, 1.5)
    }
}

/// α-entmax for any α > 0.
///
/// ```
/// use parsimax::{Entmax, MappingExt, Sparsemax};
/// // α = 3 on two entries: √(2·0.02 − τ) + √(−τ) = 1 gives √(−τ) = 0.48, so p = (0.52, 0.48).
/// let p = Entmax::new(3.0)?.apply(&[0.02f64, 0.0])?;
/// assert!((p[0] - 0.52).abs() < 1e-15 && (p[1] - 0.48).abs() < 1e-15);
/// // α = 2 is sparsemax.
/// assert_eq!(Entmax::new(2.0)?.apply(&[1.0f64, 0.8, 0.1])?, Sparsemax::new().apply(&[1.0, 0.8, 0.1])?);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entmax {
    alpha: f64,
    gamma: f64,
}

impl Entmax {
    /// α-entmax of strength 1; α finite and > 0.
    pub fn new(alpha: f64) -> Result<Self> {
        check(alpha > 0.0 && alpha.is_finite(), "entmax", "alpha", "a finite number > 0", alpha)?;
        Ok(Self { alpha, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("entmax", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The parameter α.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }
}

impl Separable for Entmax {
    fn window(&self) -> f64 {
        if self.alpha <= 1.0 { f64::INFINITY } else { self.gamma / (self.alpha - 1.0) }
    }

    fn solve(&self, z: &mut [f64], work: &mut Vec<f64>) -> Option<f64> {
        let (delta, gamma) = (self.alpha - 1.0, self.gamma);
        if delta == 0.0 {
            exponential::solve(z, gamma);
            None
        } else if delta == 0.5 {
            Some(quadratic::solve(z, gamma))
        } else if delta == 1.0 {
            Some(linear::solve(z, gamma))
        } else if delta > 1.0 {
            Some(anchored::solve(z, delta, gamma, work))
        } else {
            let top = numeric::max(z);
            for z in z.iter_mut() {
                *z = (*z - top) / gamma;
            }
            let t = tsallis::solve(z, delta);
            // (1 + δ(x − t)) = δz/γ − τ.
            Some(delta * (top / gamma + t) - 1.0)
        }
    }

    fn weight(&self, p: f64) -> f64 {
        p.powf(2.0 - self.alpha) / self.gamma
    }
}

separable_mapping! {
    Entmax,
    "entmax",
    /// From the scores: between nearly equal entries the gradient lives in differences of `p` that a `p`
    /// rounded to single precision no longer has.
    fn parameter_vjp_row(&self, z: &[f64], _p: &[f64], v: &[f64], scratch: &mut crate::Scratch) -> Option<f64> {
        let mut p = std::mem::take(&mut scratch.c);
        p.clear();
        p.resize(z.len(), 0.0);
        crate::separable::forward(self, z, &mut p, scratch);
        let gradient =
            alpha_gradient(|| p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(p, v)| (*p, *v)), self.alpha);
        scratch.c = p;
        Some(gradient)
    }
    fn parameter_vjp_by(&self, row: &crate::mapping::LongRow<'_>) -> Option<f64> {
        let Some(law) = (row.law)() else { return Some(alpha_gradient(|| row.on_support(), self.alpha)) };
        let pairs = || (0..row.d).filter_map(|i| Some((law.p((row.z)(i)?), (row.v)(i))));
        Some(alpha_gradient(|| pairs().filter(|(p, _)| *p > 0.0), self.alpha))
    }
    fn form(&self) -> Option<Form> {
        Some(Form::Entmax { alpha: self.alpha, gamma: self.gamma })
    }
    fn kernel(&self) -> Option<Kernel> {
        // Below 1 the tails are heavy and dense, far above 2 powers leave the range of f32.
        if (1.0..=16.0).contains(&self.alpha) { Kernel::new(Map::Entmax(self.alpha), self.gamma) } else { None }
    }
}

impl Regularized for Entmax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    fn omega(&self, p: &[f64]) -> f64 {
        negative_tsallis(p, self.alpha)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        negative_tsallis_by(each, self.alpha)
    }
}

/// `(Σp^α − 1)/(α(α−1))` for a distribution, as `Σ p·(p^δ − 1)/(δα)`: no cancellation near α = 1.
fn negative_tsallis(p: &[f64], alpha: f64) -> f64 {
    let delta = alpha - 1.0;
    if delta == 0.0 {
        return numeric::negative_entropy(p);
    }
    numeric::sum(p.iter().filter(|p| **p > 0.0).map(|p| p * (delta * p.ln()).exp_m1())) / (delta * alpha)
}

/// The same of entries that are handed out.
fn negative_tsallis_by(each: Visit<'_>, alpha: f64) -> f64 {
    let delta = alpha - 1.0;
    let term = |log: f64| if delta == 0.0 { log } else { (delta * log).exp_m1() / (delta * alpha) };
    numeric::sum_by(each, |p| if p > 0.0 { p * term(p.ln()) } else { 0.0 })
}

/// `<v, ∂p/∂α>` by the formula of the file's head, with its bracket rearranged into differences,
/// `(R − r_i)(1 + δH) − δ(ℓ_i + H)R`, measured from the largest entry: equal entries cancel exactly,
/// also when `p` was rounded and sums to 1 only nearly.
///
/// Numerator and denominator are linear in `r`, which grows like p^{−δ}. Both are scaled by e^{−c}
/// with `c` large enough that a tiny probability under a large α does not overflow.
fn alpha_gradient<I: Iterator<Item = (f64, f64)>>(support: impl Fn() -> I, alpha: f64) -> f64 {
    let delta = alpha - 1.0;
    let steepest = support().map(|(p, _)| -delta * p.ln()).fold(0.0, f64::max);
    let c = (steepest - 600.0).max(0.0);
    let curvature = |p: f64| p.ln() * p.ln() * phi2(-delta * p.ln(), c);
    let top = support().map(|(p, _)| p).fold(0.0, f64::max);
    let (log, bend) = (|p: f64| (p / top).ln(), |p: f64| curvature(p) - curvature(top));
    let mass = numeric::sum(support().map(|(p, _)| p));
    let mean_log = numeric::sum(support().map(|(p, _)| p * log(p))) / mass;
    let mean_bend = numeric::sum(support().map(|(p, _)| p * bend(p))) / mass;
    let entropy = -(top.ln() + mean_log);
    let mean = curvature(top) + mean_bend;
    let bracket = |p: f64| (mean_bend - bend(p)) * (1.0 + delta * entropy) - delta * (log(p) - mean_log) * mean;
    let scale = (1.0 + delta * entropy) * (-c).exp() + delta * delta * mean;
    numeric::sum(support().map(|(p, v)| v * p * bracket(p))) / scale
}

/// `e^{−c}·(eˣ − 1 − x)/x²`; ½·e^{−c} at `x = 0`.
fn phi2(x: f64, c: f64) -> f64 {
    if x.abs() < 0.5 {
        // Taylor, 1/2·(1 + x/3·(1 + x/4·(…))); the first term left out is below 10⁻¹⁸.
        let series = (0..15).rev().fold(1.0, |tail, n| 1.0 + x * tail / f64::from(n + 3));
        0.5 * series * (-c).exp()
    } else if c == 0.0 {
        (x.exp_m1() - x) / (x * x)
    } else {
        ((x - c).exp() - (1.0 + x) * (-c).exp()) / (x * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phi2_has_no_seam() {
        assert_eq!(phi2(0.0, 0.0), 0.5);
        for x in [-0.5, 0.5] {
            let closed = (f64::exp_m1(x) - x) / (x * x);
            let inside = x * (1.0 - 1e-12);
            assert!((phi2(inside, 0.0) - closed).abs() < 1e-12 && (phi2(x, 0.0) - closed).abs() < 1e-15);
        }
    }

    #[test]
    fn the_gradient_in_alpha_does_not_overflow() {
        // p₂ = w → 0 under α = 10: p₂^{1−α} = 10⁵⁴⁰ is beyond f64, the gradient is not. Two entries with
        // (δΔ + w^δ)^{1/δ} + w = 1 have δΔ = 1 at w = 0, and ∂w/∂δ = −∂(δΔ)^{1/δ}/∂δ = −1/δ².
        let g = alpha_gradient(|| [(1.0 - 1e-60, 0.0), (1e-60, 1.0)].into_iter(), 10.0);
        assert!((g + 1.0 / 81.0).abs() < 1e-12, "{g}");
    }
}
