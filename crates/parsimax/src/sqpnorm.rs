//! Sq-pnorm-max: a squared p-norm as the regulariser, between sparsemax (p = 2) and the hard maximum
//! (p → 1) (Niculae & Blondel 2017).
//!
//! **Problem.** $\Pi(z) = \arg\max_{y \in \Delta} \langle y, z\rangle - \frac{\gamma}{2}\lVert y\rVert_p^2$,
//! $1 < p \le 2$. (The answer is called $y$ here, since p names the norm; $m = p - 1$.)
//!
//! **Closed form.** With $u_i = [z_i/\gamma - \tau]_+^{1/m}$, $y = u/\sum u$ at the τ where
//! $\lVert u\rVert_p^{p-2} \sum u = 1$: the stationarity condition
//! `$\lVert y\rVert_p^{1-m}\, y_i^m = z_i/\gamma - \tau$` on the support.
//!
//! **Algorithm and cost.** $O(d)$: that equation has one unknown and one root. Newton in an unknown
//! that keeps its digits as p → 1; p = 2 is sparsemax and solved as such.
//!
//! **Jacobian.** The Hessian is a diagonal plus rank one, and Sherman–Morrison leaves, on the support
//! and with $N = \lVert y\rVert_p$,
//! `$$H^{-1} = \frac{1}{\gamma m N^2}\left(\mathrm{diag}(\sigma) - (1-m)\,yy^\top\right),\quad
//! \sigma_i = N^{1+m} y_i^{1-m}.$$`
//! With `$\eta = \sigma - (1-m)\,y$` and $w = v - \langle y, v\rangle$, the rule $J = H^{-1} - hh^\top/\sum h$
//! becomes
//! `$$Jv = \frac{1}{\gamma m N^2}\left(\sigma \odot w - \eta\,\frac{\langle \eta, w\rangle}{\sum\eta}\right),$$`
//! symmetric, $O(|S|)$, from $y$ alone. $\sum\eta \ge m$ (Cauchy–Schwarz), so nothing is divided by 0.
//!
//! **Gradient in p.** Differentiating the stationarity condition in m on the fixed support,
//! $\partial y/\partial p = -\gamma J c$ with
//! `$$c_i = N^{1-m} y_i^m \left[\log\frac{y_i}{N} + \frac{1-m}{1+m}\,(M - \log N)\right],\quad
//! M = \frac{\sum_i y_i^p \log y_i}{\sum_i y_i^p}.$$`
//!
//! **Edge cases.** An entry γ or more below the maximum is 0. Ties share equally. As p → 1 the scores
//! act as if divided by p − 1.

use crate::error::{check, check_gamma};
use crate::kernel::{Map, Structure};
use crate::law::Form;
use crate::mapping::Visit;
use crate::numeric;
use crate::registry::Entry;
use crate::separable::normed_mapping;
use crate::single::Kernel;
use crate::structured::StructuredKernel;
use crate::threshold::{linear, squared_norm};
use crate::{Regularized, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "sq-pnorm-max",
    omega: "½‖p‖_p², 1 < p ≤ 2",
    sparsity: "zero from γ below the maximum on",
    cost: "O(d)",
    reference: "Niculae & Blondel 2017",
    takes: &["p", "gamma"],
    build: |o| Ok(Box::new(SqPnormMax::new(o.p.unwrap_or(1.5))?.with_gamma(o.gamma())?)),
};

/// Sq-pnorm-max with exponent p and strength γ.
///
/// ```
/// use parsimax::{MappingExt, SqPnormMax};
/// // p = 3/2, so m = 1/2: from y = (0.8, 0.2) back to its scores. N = (0.8^1.5 + 0.2^1.5)^{2/3}, and
/// // √N·(√0.8 − √0.2) is the difference of scores that y belongs to.
/// let n = (0.8f64.powf(1.5) + 0.2f64.powf(1.5)).powf(2.0 / 3.0);
/// let gap = n.sqrt() * (0.8f64.sqrt() - 0.2f64.sqrt());
/// let y = SqPnormMax::new(1.5)?.apply(&[gap, 0.0])?;
/// assert!((y[0] - 0.8).abs() < 1e-15 && (y[1] - 0.2).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SqPnormMax {
    p: f64,
    gamma: f64,
}

impl SqPnormMax {
    /// Sq-pnorm-max of strength 1; 1 < p ≤ 2.
    pub fn new(p: f64) -> Result<Self> {
        check(p > 1.0 && p <= 2.0, "sq-pnorm-max", "p", "above 1 and at most 2", p)?;
        Ok(Self { p, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("sq-pnorm-max", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The exponent p.
    #[must_use]
    pub fn p(&self) -> f64 {
        self.p
    }

    /// `m = p − 1`.
    fn m(&self) -> f64 {
        self.p - 1.0
    }

    /// Replaces the candidates by their probabilities and returns τ.
    fn solve(&self, z: &mut [f64]) -> f64 {
        if self.p == 2.0 { linear::solve(z, self.gamma) } else { squared_norm::solve(z, self.m(), self.gamma) }
    }
}

/// σ, η and Σ of a row, in the notation of the file's head: all of the Jacobian but a factor.
///
/// As m → 0, `η = σ − (1−m)y` and its sum are O(m) differences of numbers of order 1. Written with
/// `y^{1+m} − y` and `y^{1−m} − y` they keep their digits.
struct Curvature {
    m: f64,
    /// `Σ y^{1+m} − 1`.
    lift: f64,
    /// `Σ η`.
    total: f64,
}

impl Curvature {
    /// That of a row, given its support.
    fn new<I: Iterator<Item = f64>>(support: impl Fn() -> I, m: f64) -> Self {
        let lift = numeric::sum(support().map(|y| raised(y, m)));
        let drop = numeric::sum(support().map(|y| raised(y, -m)));
        // Σ y^{1+m} · Σ y^{1−m} − 1 + m; the first-order terms of lift + drop cancel one by one.
        let both = numeric::sum(support().map(|y| {
            let x = m * y.ln();
            if x > -1.0 { 4.0 * y * (0.5 * x).sinh().powi(2) } else { raised(y, m) + raised(y, -m) }
        }));
        Self { m, lift, total: both + lift * drop + m }
    }

    fn sigma(&self, y: f64) -> f64 {
        (1.0 + self.lift) * (y + raised(y, -self.m))
    }

    fn eta(&self, y: f64) -> f64 {
        (1.0 + self.lift) * raised(y, -self.m) + (self.lift + self.m) * y
    }

    /// `m N²`, with which `H^{-1}` was multiplied.
    fn scale(&self) -> f64 {
        self.m * (self.lift.ln_1p() * 2.0 / (1.0 + self.m)).exp()
    }
}

/// `y^{1+m} − y`.
fn raised(y: f64, m: f64) -> f64 {
    let x = m * y.ln();
    if x.abs() < 1.0 { y * x.exp_m1() } else { y.powf(1.0 + m) - y }
}

/// `Jᵀv` of an entry with mass, as a function of its probability and of what comes in there, given those of all of
/// them.
///
/// Probabilities are measured by their sum: rounded to a narrower type, many small ones miss 1 by more than `Σ y^p` is,
/// and the curvature would have no digits.
pub(crate) fn slopes<I: Iterator<Item = (f64, f64)>>(
    on_support: impl Fn() -> I,
    m: f64,
    gamma: f64,
) -> impl Fn(f64, f64) -> f64 {
    let total = numeric::sum(on_support().map(|(y, _)| y));
    let pairs = || on_support().map(|(y, v)| (y / total, v));
    let curvature = Curvature::new(|| pairs().map(|(y, _)| y), m);
    let scale = 1.0 / (gamma * curvature.scale());
    let centre = numeric::sum(pairs().map(|(y, v)| y * v));
    let along = numeric::sum(pairs().map(|(y, v)| curvature.eta(y) * (v - centre))) / curvature.total;
    move |y, v| {
        let y = y / total;
        scale * (curvature.sigma(y) * (v - centre) - curvature.eta(y) * along)
    }
}

impl SqPnormMax {
    fn vjp(&self, y: &[f64], v: &[f64], out: &mut [f64]) {
        let on_support = || y.iter().zip(v).filter(|(y, _)| **y > 0.0).map(|(y, v)| (*y, *v));
        let slope = slopes(on_support, self.m(), self.gamma);
        for (out, (y, v)) in out.iter_mut().zip(y.iter().zip(v)) {
            *out = if *y > 0.0 { slope(*y, *v) } else { 0.0 };
        }
    }

    /// `<v, ∂y/∂p>`.
    fn gradient_in_p<I: Iterator<Item = (f64, f64)>>(&self, on_support: impl Fn() -> I) -> f64 {
        let (m, total) = (self.m(), numeric::sum(on_support().map(|(y, _)| y)));
        let on_support = || on_support().map(|(y, v)| (y / total, v));
        let curvature = Curvature::new(|| on_support().map(|(y, _)| y), m);
        let log_norm = curvature.lift.ln_1p() / (1.0 + m);
        let mean_log = numeric::sum(on_support().map(|(y, _)| y.powf(1.0 + m) * y.ln())) / (1.0 + curvature.lift);
        let shift = (1.0 - m) / (1.0 + m) * (mean_log - log_norm) - log_norm;
        let c = |y: f64| ((1.0 - m) * log_norm + m * y.ln()).exp() * (y.ln() + shift);
        let v_centre = numeric::sum(on_support().map(|(y, v)| y * v));
        let c_centre = numeric::sum(on_support().map(|(y, _)| y * c(y)));
        let terms = |f: &dyn Fn(f64, f64, f64) -> f64| {
            numeric::sum(on_support().map(|(y, v)| f(y, v - v_centre, c(y) - c_centre)))
        };
        let direct = terms(&|y, v, c| curvature.sigma(y) * v * c);
        let (v_along, c_along) = (terms(&|y, v, _| curvature.eta(y) * v), terms(&|y, _, c| curvature.eta(y) * c));
        -(direct - v_along * c_along / curvature.total) / curvature.scale()
    }
}

normed_mapping! {
    SqPnormMax,
    "sq-pnorm-max",
    gradient_in_p,
    fn form(&self) -> Option<Form> {
        let Self { p, gamma } = *self;
        Some(if p == 2.0 { Form::Entmax { alpha: p, gamma } } else { Form::SquaredNorm { m: self.m(), gamma } })
    }
    fn kernel(&self) -> Option<Kernel> {
        if self.p == 2.0 { Kernel::new(Map::Sparsemax, self.gamma) } else { None }
    }
    fn structured(&self) -> Option<StructuredKernel> {
        // Nearer to 1 the power 1/m magnifies the rounding of its base beyond what f32 can hide.
        let fits = (0.125..0.99).contains(&self.m());
        if fits { StructuredKernel::new(Structure::SquaredNorm(self.m()), 1.0, self.gamma) } else { None }
    }
}

impl Regularized for SqPnormMax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ½‖p‖_p².
    fn omega(&self, p: &[f64]) -> f64 {
        0.5 * numeric::norm(p, self.p).powi(2)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        0.5 * numeric::norm_by(each, self.p).powi(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial;
    use crate::{Softmax, Sparsemax};

    const EXPONENTS: [f64; 7] = [1.0001, 1.01, 1.1, 1.5, 1.9, 1.999, 2.0];

    #[test]
    fn stationarity_holds_on_and_off_the_support() {
        let mut rng = fastrand::Rng::with_seed(11);
        for p in EXPONENTS {
            for gamma in [0.3, 1.0, 7.0] {
                let mapping = SqPnormMax::new(p).unwrap().with_gamma(gamma).unwrap();
                for _ in 0..50 {
                    let z = trial::row(&mut rng, 20, gamma);
                    let (y, tau) = trial::forward(&mapping, &z);
                    let (m, tau) = (p - 1.0, tau.unwrap());
                    let n = numeric::norm(&y, p);
                    for (z, y) in z.iter().zip(&y) {
                        let price = n.powf(1.0 - m) * y.powf(m);
                        let slack = z / gamma - tau - price;
                        // A base below 1 may be positive and its power 1/m beneath the normal numbers.
                        let tiny = slack < 1e-13 || (slack + price).powf(1.0 / m) < 1e-290;
                        assert!(if *y > 1e-290 { slack.abs() < 1e-13 } else { tiny }, "{p} {slack:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_limits_are_sparsemax_and_softmax() {
        let mut rng = fastrand::Rng::with_seed(12);
        for _ in 0..50 {
            let z = trial::row(&mut rng, 9, 1.0);
            let sparsemax = trial::forward(&Sparsemax::new(), &z).0;
            assert_eq!(trial::forward(&SqPnormMax::new(2.0).unwrap(), &z).0, sparsemax);
            trial::assert_close(&trial::forward(&SqPnormMax::new(2.0 - 1e-9).unwrap(), &z).0, &sparsemax, 1e-7);
            // ½‖y‖_p² = ½ + m Σ y log y + O(m²): at scores of size m, softmax up to O(m).
            let m = 1e-9;
            let small: Vec<f64> = z.iter().map(|z| m * z).collect();
            let softmax = trial::forward(&Softmax::new(), &z).0;
            trial::assert_close(&trial::forward(&SqPnormMax::new(1.0 + m).unwrap(), &small).0, &softmax, 1e-6);
        }
    }

    #[test]
    fn derivatives_match_differences() {
        let mut rng = fastrand::Rng::with_seed(13);
        for p in EXPONENTS {
            for gamma in [0.5, 2.0] {
                let mapping = SqPnormMax::new(p).unwrap().with_gamma(gamma).unwrap();
                // Scores so close that the support holds several entries at every p.
                trial::assert_derivatives(&mapping, gamma * (p - 1.0), &mut rng);
            }
        }
    }

    #[test]
    fn the_gradient_in_p_matches_differences() {
        let mut rng = fastrand::Rng::with_seed(14);
        for p in [1.001, 1.01, 1.1, 1.5, 1.9, 1.999] {
            trial::assert_parameter_gradient(|p| SqPnormMax::new(p)?.with_gamma(1.5), p, p - 1.0, p - 1.0, &mut rng);
        }
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        for p in [1.0 + f64::EPSILON, 1.000001, 1.3, 1.7, 2.0] {
            trial::assert_survives(&SqPnormMax::new(p).unwrap());
            trial::assert_survives(&SqPnormMax::new(p).unwrap().with_gamma(1e-3).unwrap());
        }
        for p in [f64::NAN, 1.0, 0.5, 2.0001, f64::INFINITY] {
            assert!(SqPnormMax::new(p).is_err());
        }
        assert!(SqPnormMax::new(1.5).unwrap().with_gamma(0.0).is_err());
    }
}
