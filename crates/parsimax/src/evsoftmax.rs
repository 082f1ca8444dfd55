//! Ev-softmax: softmax over the scores that are at least their mean (Chen et al. 2021).
//!
//! **Form.** `$p_k \propto 1\{z_k \ge \bar z\}\,e^{z_k/\gamma}$` with the mean $\bar z$ of the entries that
//! take part. There is no regulariser Ω: the map jumps where a score crosses the mean. Several modes
//! survive where sparsemax would keep one. For d = 2 it is the arg max.
//!
//! **Training form.** `$p_k \propto (1\{z_k \ge \bar z\} + \varepsilon)\,e^{z_k/\gamma}$`, ε = 10⁻⁶: dense, so that
//! a likelihood exists (Eq. 10). [`LogMapping`] gives its logarithm without underflow.
//!
//! **Algorithm and cost.** $O(d)$. Which scores reach the mean is decided without rounding error, so
//! ties are right and the maximum is always in.
//!
//! **Jacobian.** With the indicator held constant, as it is away from the jumps,
//! $J = (\mathrm{diag}(p) - pp^\top)/\gamma$ in both forms (Eq. 9): symmetric; needs $p$ alone.
//!
//! **Edge cases.** Equal rows are uniform. τ is $\bar z/\gamma$ in the sparse form; the training form,
//! which has no zeros, has none.
//!
//! **Post-hoc evidential sparsification** (Itkina et al. 2020; App. A of the paper). From the features
//! φ and the last layer (β, bias) come the evidential weights
//! $w_k = b_k - \bar b + \sum_j \varphi_j(\beta_{jk} - \bar\beta_j)$; with $w^\pm = \max(0, \pm w)$ the belief
//! mass of the single class k, by Dempster's rule, is
//! $$m_k \propto e^{-w_k^-}\Big(e^{w_k^+} - 1 + \prod_{\ell \ne k}(1 - e^{-w_\ell^-})\Big),$$
//! and `$p_k \propto 1\{m_k \ne 0\}\,e^{w_k}$`. It equals ev-softmax of $\beta^\top\varphi + b$ wherever no
//! score is exactly the mean. Inference only.

use crate::error::{check, check_gamma};
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::{Scratch, Support};
use crate::numeric;
use crate::registry::Entry;
use crate::single::Kernel;
use crate::threshold::mean;
use crate::{Error, LogMapping, Mapping, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "ev-softmax",
    omega: "–",
    sparsity: "zero below the mean; dense with ε > 0",
    cost: "O(d)",
    reference: "Chen et al. 2021",
    takes: &["eps", "gamma"],
    build: |o| Ok(Box::new(EvSoftmax::new().with_eps(o.eps.unwrap_or(0.0))?.with_gamma(o.gamma())?)),
};

/// Ev-softmax, sparse or in its training form, with temperature γ.
///
/// ```
/// use parsimax::{EvSoftmax, MappingExt};
/// // The mean of (log 3, 0, −2) is −0.3: two scores reach it, and 3 : 1 is their ratio.
/// let p = EvSoftmax::new().apply(&[3f64.ln(), 0.0, -2.0])?;
/// assert!((p[0] - 0.75).abs() < 1e-15 && (p[1] - 0.25).abs() < 1e-15);
/// assert_eq!(p[2], 0.0);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvSoftmax {
    eps: f64,
    gamma: f64,
}

impl EvSoftmax {
    /// The sparse form, for inference, at temperature 1.
    #[must_use]
    pub fn new() -> Self {
        Self { eps: 0.0, gamma: 1.0 }
    }

    /// The training form with the paper's ε = 10⁻⁶, at temperature 1.
    #[must_use]
    pub fn training() -> Self {
        Self { eps: 1e-6, gamma: 1.0 }
    }

    /// The same with weight `eps`, from 0 to 1, for scores below the mean.
    pub fn with_eps(self, eps: f64) -> Result<Self> {
        check((0.0..=1.0).contains(&eps), "ev-softmax", "eps", "a number from 0 to 1", eps)?;
        Ok(Self { eps, ..self })
    }

    /// The same with temperature `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("ev-softmax", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The weight ε of scores below the mean; 0 in the sparse form.
    #[must_use]
    pub fn eps(&self) -> f64 {
        self.eps
    }

    /// The temperature γ.
    #[must_use]
    pub fn gamma(&self) -> f64 {
        self.gamma
    }

    /// Writes, for each score of a row, whether it is at least the mean: the support of the sparse form.
    pub fn support_mask(&self, z: &[f64], mask: &mut [bool], scratch: &mut Scratch) {
        let mut mean = mean::of(z, &mut scratch.b);
        for (mask, z) in mask.iter_mut().zip(z) {
            *mask = mean.admits(*z);
        }
    }

    /// Weights not yet divided by their sum, handed to `put`; returns τ.
    fn weigh(&self, z: &[f64], scratch: &mut Vec<f64>, mut put: impl FnMut(usize, f64)) -> Option<f64> {
        let top = numeric::max(z);
        let mut mean = mean::of(z, scratch);
        for (i, z) in z.iter().enumerate() {
            let weight = if mean.admits(*z) { 1.0 + self.eps } else { self.eps };
            put(i, if weight > 0.0 { weight * ((z - top) / self.gamma).exp() } else { 0.0 });
        }
        (self.eps == 0.0).then(|| mean.value() / self.gamma)
    }

    fn vjp(&self, p: &[f64], v: &[f64], out: &mut [f64]) {
        let mean = numeric::dot(p, v) / numeric::sum(p.iter().copied());
        for (out, (p, v)) in out.iter_mut().zip(p.iter().zip(v)) {
            *out = if *p > 0.0 { p * (v - mean) / self.gamma } else { 0.0 };
        }
    }
}

impl Default for EvSoftmax {
    fn default() -> Self {
        Self::new()
    }
}

impl LogMapping for EvSoftmax {
    /// In the sparse form scores below the mean get −∞.
    fn log_forward_row(&self, z: &[f64], out: &mut [f64], scratch: &mut Scratch) {
        let top = numeric::max(z);
        let mut mean = mean::of(z, &mut scratch.b);
        // The maximum is inside: measured from its weight, 1 + ε, no weight exceeds 1.
        let outside = self.eps.ln() - self.eps.ln_1p();
        for (out, z) in out.iter_mut().zip(z) {
            *out = (z - top) / self.gamma + if mean.admits(*z) { 0.0 } else { outside };
        }
        numeric::log_normalise(out);
    }

    fn temperature(&self) -> f64 {
        self.gamma
    }
    fn log_form(&self) -> Option<Form> {
        self.form()
    }
}

impl Mapping for EvSoftmax {
    fn name(&self) -> &'static str {
        "ev-softmax"
    }
    fn logarithmic(&self) -> Option<&dyn LogMapping> {
        Some(self)
    }
    fn kernel(&self) -> Option<Kernel> {
        if self.eps == 0.0 { Kernel::new(Map::EvSoftmax, self.gamma) } else { None }
    }

    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        let tau = self.weigh(z, &mut scratch.b, |i, weight| p[i] = weight);
        numeric::normalise(p);
        Ok(tau)
    }
    fn vjp_row(&self, _z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], _scratch: &mut Scratch) -> Result<()> {
        self.vjp(p, v, out);
        Ok(())
    }
    fn replace_row(&self, z: &mut [f64], scratch: &mut Scratch) -> bool {
        let top = numeric::max(z);
        let least = {
            let mut mean = mean::of(z, &mut scratch.b);
            z.iter().copied().filter(|z| mean.admits(*z)).fold(top, f64::min)
        };
        for z in z.iter_mut() {
            let weight = if *z >= least { 1.0 + self.eps } else { self.eps };
            *z = if weight > 0.0 { weight * ((*z - top) / self.gamma).exp() } else { 0.0 };
        }
        numeric::normalise(z);
        true
    }
    fn reads_scores(&self) -> bool {
        false
    }
    fn has_neighbours(&self) -> bool {
        false
    }
    fn form(&self) -> Option<Form> {
        Some(Form::Evidence { eps: self.eps, gamma: self.gamma })
    }
    fn support_row(&self, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Result<Option<f64>> {
        out.clear();
        let tau = self.weigh(z, &mut scratch.b, |i, weight| {
            if weight > 0.0 {
                out.index.push(i as u32);
                out.value.push(weight);
            }
        });
        let total = numeric::sum(out.value.iter().copied());
        out.value.iter_mut().for_each(|value| *value /= total);
        Ok(tau)
    }
    fn support_vjp_row(&self, _index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
        self.vjp(p, v, out);
        Some(())
    }
}

/// The distribution of post-hoc evidential sparsification, from features φ (J), the weights β of the last
/// layer (J × K, row-major) and its bias (K).
///
/// ```
/// // One feature: w = (2, 0.5, −2.5) is already centred; the third class has no belief mass.
/// let p = parsimax::posthoc_evidential(&[1.0], &[2.0, 0.5, -2.5], &[0.0, 0.0, 0.0])?;
/// assert!((p[0] - 1.0 / (1.0 + (-1.5f64).exp())).abs() < 1e-15 && p[2] == 0.0);
/// # Ok::<(), parsimax::Error>(())
/// ```
///
/// # Errors
/// If the lengths do not fit together, there is no class, or a weight is not finite.
pub fn posthoc_evidential(phi: &[f64], beta: &[f64], bias: &[f64]) -> Result<Vec<f64>> {
    let w = evidential_weights(phi, beta, bias)?;
    let top = numeric::max(&w);
    let exclusion = Exclusion::new(&w);
    let mut p: Vec<f64> =
        (0..w.len()).map(|k| if exclusion.evidence(k) > 0.0 { (w[k] - top).exp() } else { 0.0 }).collect();
    if p.iter().all(|p| *p == 0.0) {
        // No evidence for or against anything: all weights are 0, up to rounding.
        p = w.iter().map(|w| if *w == top { 1.0 } else { 0.0 }).collect();
    }
    numeric::normalise(&mut p);
    Ok(p)
}

/// The evidential weights `w_k`: positive for classes that the features speak for, negative for those that
/// they speak against. They sum to 0.
///
/// # Errors
/// If the lengths do not fit together, there is no class, or a weight is not finite.
pub fn evidential_weights(phi: &[f64], beta: &[f64], bias: &[f64]) -> Result<Vec<f64>> {
    let shape = |what, expected, got: usize| Error::Shape {
        operation: "post-hoc evidential",
        what,
        expected,
        got: got.to_string(),
    };
    let classes = bias.len();
    if classes == 0 {
        return Err(shape("bias", "at least one number".into(), 0));
    }
    if beta.len() != phi.len() * classes {
        let expected = format!("{} × {classes} numbers, features times classes", phi.len());
        return Err(shape("beta", expected, beta.len()));
    }
    let mean = |x: &[f64]| numeric::sum(x.iter().copied()) / classes as f64;
    let bias_mean = mean(bias);
    let row_means: Vec<f64> = beta.chunks_exact(classes).map(mean).collect();
    let weight = |k: usize| {
        let features = phi.iter().zip(beta.chunks_exact(classes).zip(&row_means));
        let w = bias[k] - bias_mean + numeric::sum(features.map(|(phi, (row, mean))| phi * (row[k] - mean)));
        let bad = Error::Score { operation: "post-hoc evidential", row: 0, index: k, value: w };
        if w.is_finite() { Ok(w) } else { Err(bad) }
    };
    (0..classes).map(weight).collect()
}

/// The belief mass that Dempster's rule gives to each single class, from its evidential weights. What is
/// missing to 1 belongs to sets of several classes.
#[must_use]
pub fn belief_masses(w: &[f64]) -> Vec<f64> {
    // All sets together: Σ_k (e^{w_k⁺} − 1) + 1 − Π_k (1 − e^{−w_k⁻}), where the first factor is 1 if w_k > 0.
    // In units of e^{max w⁺}, so that nothing overflows.
    let unit = numeric::max(w).max(0.0);
    let scale = (-unit).exp();
    let support = |w: f64| {
        if w <= 0.0 {
            0.0
        } else if w < 1.0 {
            w.exp_m1() * scale
        } else {
            (w - unit).exp() - scale
        }
    };
    let exclusion = Exclusion::new(w);
    let contradicted = if exclusion.open > 0 { 0.0 } else { exclusion.product };
    let total = numeric::sum(w.iter().map(|w| support(*w))) + scale * (1.0 - contradicted);
    (0..w.len()).map(|k| w[k].min(0.0).exp() * (support(w[k]) + scale * exclusion.without(k)) / total).collect()
}

/// `Π_{ℓ≠k} (1 − e^{−w_ℓ⁻})` for every k.
struct Exclusion<'a> {
    w: &'a [f64],
    /// How many classes nothing contradicts: each is a factor 0.
    open: usize,
    /// The product of the other factors.
    product: f64,
}

impl<'a> Exclusion<'a> {
    fn new(w: &'a [f64]) -> Self {
        let against = w.iter().filter(|w| **w < 0.0);
        Self { w, open: w.len() - against.clone().count(), product: against.map(|w| contradiction(*w)).product() }
    }

    fn without(&self, k: usize) -> f64 {
        match self.open {
            0 => {
                // Weights sum to 0, so only rounding makes all of them negative.
                let others = self.w.iter().enumerate().filter(|(l, _)| *l != k);
                others.map(|(_, w)| contradiction(*w)).product()
            }
            1 if self.w[k] >= 0.0 => self.product,
            _ => 0.0,
        }
    }

    /// `e^{w_k⁺} − 1 + Π_{ℓ≠k} (1 − e^{−w_ℓ⁻})`: zero exactly where the belief mass is.
    fn evidence(&self, k: usize) -> f64 {
        self.w[k].max(0.0).exp_m1() + self.without(k)
    }
}

/// `1 − e^{−w⁻}`: how far the evidence excludes a class.
fn contradiction(w: f64) -> f64 {
    -w.min(0.0).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Softmax, trial};

    #[test]
    fn the_support_is_what_reaches_the_mean() {
        let mut rng = fastrand::Rng::with_seed(61);
        for gamma in [0.5, 1.0, 3.0] {
            let mapping = EvSoftmax::new().with_gamma(gamma).unwrap();
            for d in [1, 2, 3, 30] {
                let z = trial::row(&mut rng, d, 2.0);
                let mean = z.iter().sum::<f64>() / d as f64;
                let kept: Vec<f64> = z.iter().copied().filter(|z| *z >= mean - 1e-12).collect();
                let softmax = trial::forward(&Softmax::new().with_gamma(gamma).unwrap(), &kept).0;
                let (p, tau) = trial::forward(&mapping, &z);
                let nonzero: Vec<f64> = p.iter().copied().filter(|p| *p > 0.0).collect();
                trial::assert_close(&nonzero, &softmax, 1e-15);
                assert!((tau.unwrap() - mean / gamma).abs() < 1e-14);
                let mut mask = vec![false; d];
                mapping.support_mask(&z, &mut mask, &mut Scratch::new());
                assert!(p.iter().zip(&mask).all(|(p, mask)| (*p > 0.0) == *mask));
            }
        }
    }

    #[test]
    fn ties_with_the_mean_are_in() {
        let p = trial::forward(&EvSoftmax::new(), &[0.1, 0.3, 0.2, 0.1 + 0.2]).0;
        assert!(p[0] == 0.0 && p[2] == 0.0 && p[1] > 0.0 && p[3] > 0.0);
        let p = trial::forward(&EvSoftmax::new(), &[1.0, 2.0, 3.0]).0;
        assert!(p[0] == 0.0 && p[1] > 0.0);
        // Two entries: the arg max, or both.
        assert_eq!(trial::forward(&EvSoftmax::new(), &[1.0, 1.0 + f64::EPSILON]).0, [0.0, 1.0]);
        assert_eq!(trial::forward(&EvSoftmax::new(), &[0.3, 0.3]).0, [0.5, 0.5]);
    }

    #[test]
    fn the_training_form_and_its_logarithm() {
        // Weights 1 + ε and ε: 1.25·e¹ against 0.25·e⁰.
        let mapping = EvSoftmax::new().with_eps(0.25).unwrap();
        let (p, tau) = trial::forward(&mapping, &[1.0, 0.0]);
        let expected = 5.0 * 1f64.exp() / (5.0 * 1f64.exp() + 1.0);
        assert!((p[0] - expected).abs() < 1e-15 && tau.is_none());
        let mut log = [0.0; 2];
        for mapping in [mapping, EvSoftmax::training(), EvSoftmax::training().with_gamma(0.3).unwrap()] {
            let p = trial::forward(&mapping, &[1.0, 0.0]).0;
            mapping.log_forward_row(&[1.0, 0.0], &mut log, &mut Scratch::new());
            trial::assert_close(&log, &[p[0].ln(), p[1].ln()], 1e-14);
        }
        // p₂ = ε e^{−1000} underflows; its logarithm does not. log(1 + ε) = ε − ε²/2 + …
        EvSoftmax::training().log_forward_row(&[1000.0, 0.0], &mut log, &mut Scratch::new());
        assert!((log[1] - (1e-6f64.ln() - 1000.0 - 1e-6f64.ln_1p())).abs() < 1e-12 && log[0] == 0.0);
        EvSoftmax::new().log_forward_row(&[1000.0, 0.0], &mut log, &mut Scratch::new());
        assert_eq!(log, [0.0, f64::NEG_INFINITY]);
    }

    #[test]
    fn derivatives_match_differences() {
        let mut rng = fastrand::Rng::with_seed(62);
        for mapping in [EvSoftmax::new(), EvSoftmax::new().with_eps(0.3).unwrap()] {
            trial::assert_derivatives(&mapping.with_gamma(0.8).unwrap(), 0.8, &mut rng);
        }
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        for mapping in [EvSoftmax::new(), EvSoftmax::training(), EvSoftmax::new().with_eps(1.0).unwrap()] {
            trial::assert_survives(&mapping);
            trial::assert_survives(&mapping.with_gamma(1e-3).unwrap());
        }
        for eps in [f64::NAN, -1e-9, 1.5, f64::INFINITY] {
            assert!(EvSoftmax::new().with_eps(eps).is_err());
        }
    }

    #[test]
    fn posthoc_equals_ev_softmax_of_the_scores() {
        let mut rng = fastrand::Rng::with_seed(63);
        for (features, classes) in [(1, 1), (1, 2), (4, 3), (7, 10), (16, 50)] {
            for _ in 0..50 {
                let (phi, beta) = (trial::row(&mut rng, features, 1.0), trial::row(&mut rng, features * classes, 1.0));
                let bias = trial::row(&mut rng, classes, 1.0);
                let z: Vec<f64> = (0..classes)
                    .map(|k| bias[k] + (0..features).map(|j| phi[j] * beta[j * classes + k]).sum::<f64>())
                    .collect();
                let p = posthoc_evidential(&phi, &beta, &bias).unwrap();
                trial::assert_close(&p, &trial::forward(&EvSoftmax::new(), &z).0, 1e-14);
                let w = evidential_weights(&phi, &beta, &bias).unwrap();
                assert!(numeric::sum(w.iter().copied()).abs() < 1e-12);
                let masses = belief_masses(&w);
                assert!(p.iter().zip(&masses).all(|(p, mass)| (*p > 0.0) == (*mass > 0.0)));
            }
        }
        assert_eq!(posthoc_evidential(&[1.0], &[0.5, 0.5], &[2.0, 2.0]).unwrap(), [0.5, 0.5]);
        assert!(posthoc_evidential(&[1.0], &[0.5], &[2.0, 2.0]).is_err());
        assert!(posthoc_evidential(&[], &[], &[]).is_err());
        assert!(posthoc_evidential(&[f64::NAN], &[0.5, 0.5], &[2.0, 2.0]).is_err());
    }

    #[test]
    fn belief_masses_follow_dempsters_rule() {
        // w = (1, −0.4, −0.6): the sets {k}, {k, l} and the whole, fused one piece of evidence at a time.
        let w = [1.0f64, -0.4, -0.6];
        let mut fused = [0.0; 8];
        fused[7] = 1.0;
        for (k, w) in w.iter().enumerate() {
            // Evidence for k points to the set {k}, evidence against it to the complement.
            let focal = if *w > 0.0 { 1usize << k } else { 7 & !(1usize << k) };
            let mut next = [0.0; 8];
            for (set, mass) in fused.iter().enumerate() {
                next[set & focal] += mass * (1.0 - (-w.abs()).exp());
                next[set] += mass * (-w.abs()).exp();
            }
            fused = next;
        }
        let consistent: f64 = fused[1..].iter().sum();
        let masses = belief_masses(&w);
        trial::assert_close(&masses, &[1, 2, 4].map(|set: usize| fused[set] / consistent), 1e-15);
        // Without evidence all belief stays with the whole; strong evidence does not overflow.
        assert_eq!(belief_masses(&[0.0, 0.0]), [0.0, 0.0]);
        trial::assert_close(&belief_masses(&[2000.0, -2000.0]), &[1.0, 0.0], 1e-15);
    }
}
