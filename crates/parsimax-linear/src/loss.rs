//! The losses of a linear model: every Fenchel–Young loss of the core, and one logistic per label.

use std::collections::BTreeMap;
use std::sync::Arc;

use parsimax::registry::{self, Options};
use parsimax::{Mapping, Regularized, Scratch};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The name of the loss that treats every label on its own.
pub const LOGISTIC: &str = "logistic";

/// A loss by name: what a model file keeps of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossSpec {
    /// A regularised mapping of the registry, or [`LOGISTIC`].
    pub name: String,
    /// Its parameters, such as `alpha`; absent ones take the mapping's default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, f64>,
}

impl LossSpec {
    /// A loss with default parameters.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), parameters: BTreeMap::new() }
    }

    /// Builds the loss.
    ///
    /// # Errors
    /// If the name is unknown, the mapping has no regulariser, or a parameter is unfit.
    pub fn build(&self) -> Result<Loss> {
        if self.name == LOGISTIC {
            return match self.parameters.keys().next() {
                None => Ok(Loss(Kind::Logistic)),
                Some(name) => Err(Error::data("logistic loss", "no parameters", name)),
            };
        }
        let mapping: Arc<dyn Mapping> = registry::build(&self.name, &self.options()?)?.into();
        if mapping.regularized().is_none() || mapping.total(4) != 1.0 {
            let expected = format!("a mapping with a convex loss: {LOGISTIC}, {}", names().join(", "));
            return Err(Error::data("loss", expected, &self.name));
        }
        Ok(Loss(match mapping.regularized() {
            Some(softmax) if self.name == "softmax" => Kind::Softmax { gamma: softmax.gamma(), mapping },
            _ => Kind::FenchelYoung(mapping),
        }))
    }

    fn options(&self) -> Result<Options> {
        let mut options = Options::default();
        for (name, value) in &self.parameters {
            let slot = match name.as_str() {
                "alpha" => &mut options.alpha,
                "gamma" => &mut options.gamma,
                "lambda" => &mut options.lambda,
                "p" => &mut options.p,
                "eps" => &mut options.eps,
                "q" => &mut options.q,
                "budget" => &mut options.budget,
                _ => return Err(Error::data("loss", "a parameter of a mapping", name)),
            };
            *slot = Some(*value);
        }
        Ok(options)
    }
}

/// The mappings of the registry that have a Fenchel–Young loss.
#[must_use]
pub fn names() -> Vec<&'static str> {
    let good = |mapping: &dyn Mapping| mapping.regularized().is_some() && mapping.total(4) == 1.0;
    let entries = registry::MAPPINGS.iter();
    entries.filter(|e| (e.build)(&Options::default()).is_ok_and(|m| good(&m))).map(|e| e.name).collect()
}

/// A convex loss of a row of scores, whose gradient is `p − y`.
#[derive(Clone)]
pub struct Loss(Kind);

#[derive(Clone)]
enum Kind {
    /// $L(z; y) = \gamma\Omega(y) + \max_\Omega(z) - \langle z, y\rangle$.
    FenchelYoung(Arc<dyn Mapping>),
    /// The same for softmax, where $\max_\Omega$ is a logarithm and no entropy needs to be summed.
    Softmax { gamma: f64, mapping: Arc<dyn Mapping> },
    /// $\sum_k \log(1 + e^{z_k}) - y_k z_k$.
    Logistic,
}

impl std::fmt::Debug for Loss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.0 {
            Kind::FenchelYoung(mapping) | Kind::Softmax { mapping, .. } => mapping.name(),
            Kind::Logistic => LOGISTIC,
        })
    }
}

/// Memory for one row, reused from row to row.
#[derive(Debug, Default)]
pub(crate) struct Work {
    scratch: Scratch,
    p: Vec<f64>,
}

impl Loss {
    /// Whether every label is a question of its own, with any number of them on.
    #[must_use]
    pub fn is_independent(&self) -> bool {
        matches!(self.0, Kind::Logistic)
    }

    /// The part of a row's loss that does not depend on the scores: $\gamma\Omega(y)$.
    pub(crate) fn constant(&self, y: &[f64]) -> f64 {
        match &self.0 {
            Kind::FenchelYoung(mapping) | Kind::Softmax { mapping, .. } => {
                mapping.regularized().map_or(0.0, |r| r.gamma() * r.omega(y))
            }
            Kind::Logistic => 0.0,
        }
    }

    /// The loss of one row, given its [`constant`](Loss::constant); the scores `z` are replaced by the
    /// gradient `p − y`.
    pub(crate) fn row(&self, z: &mut [f64], y: &[f64], constant: f64, work: &mut Work) -> Result<f64> {
        match &self.0 {
            Kind::FenchelYoung(mapping) => {
                let Some(regularized) = mapping.regularized() else { return Ok(f64::NAN) };
                work.p.resize(z.len(), 0.0);
                mapping.forward_row(z, &mut work.p, &mut work.scratch)?;
                let loss = regularized_loss(regularized, z, &work.p, y, constant);
                z.iter_mut().zip(work.p.iter().zip(y)).for_each(|(z, (p, y))| *z = p - y);
                Ok(loss)
            }
            Kind::Softmax { gamma, .. } => Ok((softmax_row(z, y, *gamma) + constant).max(0.0)),
            Kind::Logistic => Ok(logistic_row(z, y)),
        }
    }

    /// Writes the probabilities of one row over its scores `t·z`.
    pub(crate) fn probabilities(&self, z: &mut [f64], temperature: f64, work: &mut Work) -> Result<()> {
        match &self.0 {
            Kind::FenchelYoung(mapping) | Kind::Softmax { mapping, .. } => {
                work.p.clear();
                work.p.extend(z.iter().map(|z| z * temperature));
                mapping.forward_row(&work.p, z, &mut work.scratch)?;
            }
            Kind::Logistic => z.iter_mut().for_each(|z| *z = sigmoid(*z * temperature)),
        }
        Ok(())
    }
}

/// $\langle z - \max z, p - y\rangle + \gamma\Omega(y) - \gamma\Omega(p)$: no large terms to cancel.
fn regularized_loss(mapping: &dyn Regularized, z: &[f64], p: &[f64], y: &[f64], constant: f64) -> f64 {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let linear: f64 = z.iter().zip(p.iter().zip(y)).map(|(z, (p, y))| (z - top) * (p - y)).sum();
    (linear + constant - mapping.gamma() * mapping.omega(p)).max(0.0)
}

/// $\gamma\log\sum_k e^{z_k/\gamma} - \langle z, y\rangle$; the scores become $p - y$.
fn softmax_row(z: &mut [f64], y: &[f64], gamma: f64) -> f64 {
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut sum, mut linear) = (0.0, 0.0);
    for (z, y) in z.iter_mut().zip(y) {
        let gap = *z - top;
        linear += gap * y;
        *z = (gap / gamma).exp();
        sum += *z;
    }
    z.iter_mut().zip(y).for_each(|(z, y)| *z = *z / sum - y);
    gamma * sum.ln() - linear
}

/// $\sum_k \log(1 + e^{z_k}) - y_k z_k$; the scores become $\sigma(z) - y$.
fn logistic_row(z: &mut [f64], y: &[f64]) -> f64 {
    // Factors 1 + e^{−|z|} lie in 1…2: a product of as many as here is far from overflow, and its logarithm the
    // sum of theirs to 1e−16 each.
    const FACTORS: usize = 256;
    let mut loss = 0.0;
    for (z, y) in z.chunks_mut(FACTORS).zip(y.chunks(FACTORS)) {
        let mut product = 1.0;
        for (z, y) in z.iter_mut().zip(y) {
            let e = (-z.abs()).exp();
            product *= 1.0 + e;
            loss += z.max(0.0) - y * *z;
            let above = if *z >= 0.0 { 1.0 } else { e };
            *z = above / (1.0 + e) - y;
        }
        loss += product.ln();
    }
    loss
}

/// $\sigma(z)$ without overflow on either side.
fn sigmoid(z: f64) -> f64 {
    let e = (-z.abs()).exp();
    let above = if z >= 0.0 { 1.0 } else { e };
    above / (1.0 + e)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every loss, at random scores and distributions: the row becomes the slope of the loss.
    #[test]
    fn the_gradient_is_the_difference_quotient() {
        let mut specs: Vec<LossSpec> =
            names().into_iter().chain(std::iter::once(LOGISTIC)).map(LossSpec::new).collect();
        specs.push(LossSpec { name: "softmax".into(), parameters: [("gamma".into(), 0.5)].into() });
        let mut random = fastrand::Rng::with_seed(8);
        let mut work = Work::default();
        for spec in specs {
            let loss = spec.build().unwrap();
            for _ in 0..50 {
                let mut y: Vec<f64> = (0..5).map(|_| random.f64()).collect();
                let sum: f64 = y.iter().sum();
                y.iter_mut().for_each(|y| *y /= sum);
                let constant = loss.constant(&y);
                let z: Vec<f64> = (0..5).map(|_| 4.0 * random.f64() - 2.0).collect();
                let mut gradient = z.clone();
                let value = loss.row(&mut gradient, &y, constant, &mut work).unwrap();
                assert!(value >= 0.0, "{spec:?}: {value}");
                for at in 0..5 {
                    // The gradients are continuous with kinks: an error of O(h) at worst, and of 1e-10 by rounding.
                    let h = 1e-6;
                    let mut at_step = |step: f64| {
                        let mut moved = z.clone();
                        moved[at] += step;
                        loss.row(&mut moved, &y, constant, &mut work).unwrap()
                    };
                    let quotient = (at_step(h) - at_step(-h)) / (2.0 * h);
                    assert!((quotient - gradient[at]).abs() < 1e-5, "{spec:?}: {quotient} and {}", gradient[at]);
                }
            }
        }
    }
}
