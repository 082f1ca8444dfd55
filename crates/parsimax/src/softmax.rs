//! Softmax: the dense member of the family, and the baseline of every comparison.
//!
//! **Problem.** $\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma \sum_i p_i \log p_i$.
//!
//! **Closed form.** $p_i = e^{z_i/\gamma} / \sum_j e^{z_j/\gamma}$; every entry is positive.
//!
//! **Cost.** $O(d)$, one exponential per entry.
//!
//! **Jacobian.** $J = (\mathrm{diag}(p) - pp^\top)/\gamma$, symmetric; needs $p$ alone.
//!
//! **Edge cases.** An entry about 745γ below the maximum underflows to 0 in `f64`.

use crate::error::check_gamma;
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::Visit;
use crate::numeric;
use crate::registry::Entry;
use crate::separable::{Separable, separable_mapping};
use crate::single::Kernel;
use crate::threshold::exponential;
use crate::{LogMapping, Regularized, Result, Scratch};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "softmax",
    omega: "Σ p log p",
    sparsity: "dense",
    cost: "O(d)",
    reference: "Boltzmann 1868",
    takes: &["gamma"],
    build: |o| Ok(Box::new(Softmax::new().with_gamma(o.gamma())?)),
};

/// Softmax with temperature γ.
///
/// ```
/// use parsimax::{MappingExt, Softmax};
/// // e^{log 3} = 3 against e^0 = 1.
/// let p = Softmax::new().apply(&[3f64.ln(), 0.0])?;
/// assert!((p[0] - 0.75).abs() < 1e-15 && (p[1] - 0.25).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Softmax {
    gamma: f64,
}

impl Softmax {
    /// Softmax at temperature 1.
    #[must_use]
    pub fn new() -> Self {
        Self { gamma: 1.0 }
    }

    /// The same with temperature `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("softmax", gamma)?;
        Ok(Self { gamma })
    }
}

impl Default for Softmax {
    fn default() -> Self {
        Self::new()
    }
}

impl Separable for Softmax {
    fn window(&self) -> f64 {
        f64::INFINITY
    }
    fn solve(&self, z: &mut [f64], _work: &mut Vec<f64>) -> Option<f64> {
        exponential::solve(z, self.gamma);
        None
    }
    fn weight(&self, p: f64) -> f64 {
        p / self.gamma
    }
}

separable_mapping! {
    Softmax,
    "softmax",
    fn form(&self) -> Option<Form> {
        Some(Form::Entmax { alpha: 1.0, gamma: self.gamma })
    }
    fn kernel(&self) -> Option<Kernel> {
        Kernel::new(Map::Softmax, self.gamma)
    }
}

impl Regularized for Softmax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    fn omega(&self, p: &[f64]) -> f64 {
        numeric::negative_entropy(p)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        numeric::sum_by(each, |p| if p > 0.0 { p * p.ln() } else { 0.0 })
    }
}

impl LogMapping for Softmax {
    fn log_forward_row(&self, z: &[f64], out: &mut [f64], _scratch: &mut Scratch) {
        let top = numeric::max(z);
        out.iter_mut().zip(z).for_each(|(out, z)| *out = (z - top) / self.gamma);
        numeric::log_normalise(out);
    }

    fn temperature(&self) -> f64 {
        self.gamma
    }
}
