//! From scores to labels: the prediction rules of the sparsemax paper.

use serde::{Deserialize, Serialize};

use crate::loss::Work;
use crate::{Coefficients, Error, Features, Loss, Result};

/// Which labels are on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "rule", content = "value")]
pub enum Rule {
    /// Those whose probability exceeds this: δ for independent logistics, p₀ for distributions.
    Threshold(f64),
    /// Those in the support of Π(t·z).
    Support(f64),
    /// The most probable one.
    Argmax,
}

impl Rule {
    /// Checks the parameter.
    ///
    /// # Errors
    /// If a threshold is negative or a temperature is not positive.
    pub fn check(self) -> Result<Self> {
        match self {
            Self::Threshold(t) if !(t >= 0.0 && t.is_finite()) => {
                Err(Error::Option { name: "the threshold", expected: "a number ≥ 0", got: t.to_string() })
            }
            Self::Support(t) if !(t > 0.0 && t.is_finite()) => {
                Err(Error::Option { name: "temperature", expected: "a number > 0", got: t.to_string() })
            }
            rule => Ok(rule),
        }
    }

    /// The labels of every row of scores that are on.
    pub(crate) fn decide(self, scores: &[f64], labels: usize, loss: &Loss) -> Result<Vec<Vec<usize>>> {
        let temperature = if let Self::Support(t) = self { t } else { 1.0 };
        let p = probabilities(scores, labels, loss, temperature)?;
        Ok(p.chunks_exact(labels).map(|p| self.pick(p)).collect())
    }

    /// The labels that are on, given the probabilities of a row (at the rule's own temperature).
    pub(crate) fn pick(self, p: &[f64]) -> Vec<usize> {
        let above = |limit: f64| (0..p.len()).filter(|label| p[*label] > limit).collect();
        match self {
            Self::Threshold(limit) => above(limit),
            Self::Support(_) => above(0.0),
            Self::Argmax => {
                let best = (0..p.len()).fold(0, |best, label| if p[label] > p[best] { label } else { best });
                vec![best]
            }
        }
    }
}

/// Probabilities Π(t·z) of every row of scores.
pub(crate) fn probabilities(scores: &[f64], labels: usize, loss: &Loss, temperature: f64) -> Result<Vec<f64>> {
    let (mut p, mut work) = (scores.to_vec(), Work::default());
    for (row, p) in p.chunks_exact_mut(labels).enumerate() {
        if p.iter().any(|z| !z.is_finite()) {
            return Err(Error::data("scores", "finite numbers", format!("an overflow in row {row}")));
        }
        loss.probabilities(p, temperature, &mut work)?;
    }
    Ok(p)
}

impl Coefficients {
    /// The probabilities of every row, `rows × labels`.
    ///
    /// # Errors
    /// If the number of features is another, or a score overflows.
    pub fn probabilities(&self, features: &Features, loss: &Loss) -> Result<Vec<f64>> {
        probabilities(&self.scores(features)?, self.labels(), loss, 1.0)
    }

    /// The labels of every row that are on.
    ///
    /// # Errors
    /// As [`probabilities`](Coefficients::probabilities).
    pub fn decide(&self, features: &Features, loss: &Loss, rule: Rule) -> Result<Vec<Vec<usize>>> {
        rule.decide(&self.scores(features)?, self.labels(), loss)
    }
}
