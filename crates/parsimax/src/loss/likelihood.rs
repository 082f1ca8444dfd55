//! Negative log-likelihood and Kullback–Leibler divergence of mappings that have a log form.
//!
//! **Value.** $-\sum_c y_c \log p_c$; the divergence $\mathrm{KL}(y \Vert p)$ adds $\sum_c y_c \log y_c$.
//! Logarithms come from the mapping, never from a probability that underflowed.
//!
//! **Gradient.** The mappings here are weighted softmaxes, $p_i \propto w_i e^{z_i/\gamma}$ with weights
//! that are constant around almost every $z$. So $\nabla_z(-\log p_k) = (p - e_k)/\gamma$ whatever the
//! weights: for the training form of ev-softmax, `$w_i = 1\{z_i \ge \bar z\} + \varepsilon$`, this is
//! $p - e_k$ at every ε, and as ε → 0 it tends to the sparse $p$ minus $e_k$ (Chen et al. 2021, Eq. 10
//! and 12). At ε = 0 the value is `+inf` for a target outside the support, and the gradient is that limit.
//!
//! **Hessian.** $(\mathrm{diag}(p) - pp^\top)/\gamma^2$.

use super::BatchLoss;
use super::row::{LossScratch, RowLoss, RowTarget};
use crate::law::Form;
use crate::{LogMapping, Result, numeric};

const NAME: &str = "likelihood";

/// The negative log-likelihood of a [`LogMapping`], over a batch.
///
/// ```
/// use parsimax::loss::{Likelihood, Target};
/// use parsimax::{EvSoftmax, View};
/// let training = EvSoftmax::training(); // ε = 10⁻⁶
/// // Mean 0.5, so the weights are (1 + ε, ε): −log p₁ = log((1 + ε)e + ε) − log ε.
/// let loss = Likelihood::new(&training).value(View::new(&[1.0f64, 0.0], &[1, 2])?, Target::Classes(&[1]))?;
/// let expected = ((1.0 + 1e-6) * 1f64.exp() + 1e-6).ln() - 1e-6f64.ln();
/// assert!((loss.value().unwrap() - expected).abs() < 1e-14);
/// # Ok::<(), parsimax::Error>(())
/// ```
pub type Likelihood<'a, L> = BatchLoss<'a, LikelihoodRow<'a, L>>;

/// The negative log-likelihood of one row: what [`Likelihood`] is made of.
#[derive(Debug)]
pub struct LikelihoodRow<'a, L: ?Sized> {
    mapping: &'a L,
    divergence: bool,
}

impl<L: ?Sized> Clone for LikelihoodRow<'_, L> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'a, L: LogMapping + ?Sized> BatchLoss<'a, LikelihoodRow<'a, L>> {
    /// One mapping for all rows.
    pub fn new(mapping: &'a L) -> Self {
        Self::of_rows(LikelihoodRow { mapping, divergence: false })
    }

    /// $\mathrm{KL}(y \Vert p)$: smaller by the entropy of the target, 0 where $p = y$, and with the same
    /// gradient.
    #[must_use]
    pub fn divergence(mut self) -> Self {
        self.rows.divergence = true;
        self
    }
}

impl<L: LogMapping + ?Sized> RowLoss for LikelihoodRow<'_, L> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn loss_row(
        &self,
        _row: usize,
        z: &[f64],
        y: RowTarget<'_>,
        gradient: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<f64> {
        self.mapping.log_forward_row(z, gradient, &mut scratch.mapping);
        let mut loss = 0.0;
        match (y, self.divergence) {
            (RowTarget::Dense(y), true) => {
                // Term by term: each is y·log(y/p), and 0 where they agree.
                let terms = y.iter().zip(&*gradient).filter(|(y, _)| **y > 0.0);
                terms.for_each(|(y, log_p)| loss += y * (y.ln() - log_p));
            }
            _ => y.for_each(|i, y| loss -= y * gradient[i]),
        }
        gradient.iter_mut().for_each(|log_p| *log_p = log_p.exp());
        y.subtract_from(gradient);
        let gamma = self.mapping.temperature();
        gradient.iter_mut().for_each(|g| *g /= gamma);
        Ok(loss.max(0.0))
    }

    fn log_form(&self) -> Option<Form> {
        self.mapping.log_form().filter(|_| !self.divergence)
    }

    fn hvp_row(
        &self,
        _row: usize,
        z: &[f64],
        _y: RowTarget<'_>,
        v: &[f64],
        out: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<()> {
        self.mapping.log_forward_row(z, out, &mut scratch.mapping);
        out.iter_mut().for_each(|log_p| *log_p = log_p.exp());
        let (mean, gamma) = (numeric::dot(out, v), self.mapping.temperature());
        out.iter_mut().zip(v).for_each(|(out, v)| *out *= (v - mean) / (gamma * gamma));
        Ok(())
    }
}
