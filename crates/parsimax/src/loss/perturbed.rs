//! The ε-perturbed log loss (Martins & Astudillo 2016, Eq. 18) of any mapping, and its divergence.
//!
//! **Value.** Sparse probabilities have no logarithm where they are 0; perturbed ones have:
//! $$L(z; y) = -\sum_c y_c \log\frac{\varepsilon + p_c}{1 + K\varepsilon}, \qquad p = \Pi(z),$$
//! with $K$ the number of entries that take part. The ε-KL divergence adds $\sum_c y_c \log y_c$.
//!
//! **Gradient.** $J^\top v$ with $v_c = -y_c/(\varepsilon + p_c)$. The loss is not convex, and it has no
//! gradient outside the support: a gold label that is not in it stays there.

use super::BatchLoss;
use super::row::{Group, LossScratch, RowLoss, RowTarget, check_simplex};
use crate::error::check;
use crate::{Mapping, Result};

const NAME: &str = "perturbed log loss";

/// The ε-perturbed log loss of a mapping, over a batch.
///
/// ```
/// use parsimax::loss::{PerturbedLog, Target};
/// use parsimax::{Sparsemax, View};
/// // p = (1, 0): with ε = 0.1, class 1 costs −log(0.1/1.2) = log 12.
/// let z = View::new(&[3.0f64, 0.0], &[1, 2])?;
/// let value = PerturbedLog::new(&Sparsemax::new(), 0.1)?.value(z, Target::Classes(&[1]))?.value();
/// assert!((value.unwrap() - 12f64.ln()).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
pub type PerturbedLog<'a, M> = BatchLoss<'a, PerturbedLogRow<'a, M>>;

/// The ε-perturbed log loss of one row: what [`PerturbedLog`] is made of.
#[derive(Debug)]
pub struct PerturbedLogRow<'a, M: ?Sized> {
    mappings: Group<'a, M>,
    epsilon: f64,
    divergence: bool,
}

impl<M: ?Sized> Clone for PerturbedLogRow<'_, M> {
    fn clone(&self) -> Self {
        Self { mappings: self.mappings.clone(), ..*self }
    }
}

impl<'a, M: Mapping + ?Sized> BatchLoss<'a, PerturbedLogRow<'a, M>> {
    /// One mapping for all rows; `epsilon` is finite and > 0. `M` may be `dyn Mapping`.
    pub fn new(mapping: &'a M, epsilon: f64) -> Result<Self> {
        check(epsilon > 0.0 && epsilon.is_finite(), NAME, "epsilon", "a finite number > 0", epsilon)?;
        Ok(Self::of_rows(PerturbedLogRow { mappings: Group::one(mapping), epsilon, divergence: false }))
    }

    /// The ε-KL divergence: smaller by the entropy of the target, and with the same gradient. It is 0
    /// where the perturbed probabilities equal the target.
    #[must_use]
    pub fn divergence(mut self) -> Self {
        self.rows.divergence = true;
        self
    }
}

impl<M: Mapping + ?Sized> RowLoss for PerturbedLogRow<'_, M> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn loss_row(
        &self,
        row: usize,
        z: &[f64],
        y: RowTarget<'_>,
        gradient: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<f64> {
        let mapping = self.mappings.of(row);
        check_simplex(NAME, mapping.total(z.len()))?;
        let LossScratch { mapping: inner, a: p, b: v, .. } = scratch;
        for buffer in [&mut *p, &mut *v] {
            buffer.clear();
            buffer.resize(z.len(), 0.0);
        }
        mapping.forward_row(z, p, inner)?;
        let norm = (z.len() as f64 * self.epsilon).ln_1p();
        let mut loss = if self.divergence { y.negative_entropy() } else { 0.0 };
        y.for_each(|i, y| {
            loss += y * (norm - log_sum(p[i], self.epsilon));
            v[i] = -y / (self.epsilon + p[i]);
        });
        mapping.vjp_row(z, p, v, gradient, inner)?;
        Ok(loss.max(0.0))
    }
}

/// `log(p + ε)`, accurate also near `p = 1`, where the logarithm is small.
fn log_sum(p: f64, epsilon: f64) -> f64 {
    if p > 0.5 { ((p - 1.0) + epsilon).ln_1p() } else { (p + epsilon).ln() }
}
