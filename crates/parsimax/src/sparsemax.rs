//! Sparsemax: the Euclidean projection of the scores onto the simplex (Martins & Astudillo 2016).
//!
//! **Problem.** $\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \frac{\gamma}{2}\lVert p\rVert^2
//! = \arg\min_{p \in \Delta} \lVert p - z/\gamma\rVert^2$.
//!
//! **Closed form.** $p_i = [z_i/\gamma - \tau]_+$ with `$\tau = (\sum_{i \in S} z_i/\gamma - 1)/|S|$`.
//!
//! **Algorithm and cost.** τ by repeated averaging over the entries still active: $O(d)$ expected, no
//! sort, no quadratic case.
//!
//! **Jacobian.** With $s = 1_S/\gamma$, `$Jv = s \odot (v - \mathrm{mean}_S\, v)$`: symmetric; needs the
//! support alone.
//!
//! **Edge cases.** An entry γ or more below the maximum is 0. Ties share their mass equally.

use crate::error::check_gamma;
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::Visit;
use crate::numeric;
use crate::registry::Entry;
use crate::separable::{Separable, separable_mapping};
use crate::single::Kernel;
use crate::threshold::linear;
use crate::{Regularized, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "sparsemax",
    omega: "½‖p‖²",
    sparsity: "zero from γ below the maximum on",
    cost: "O(d)",
    reference: "Martins & Astudillo 2016",
    takes: &["gamma"],
    build: |o| Ok(Box::new(Sparsemax::new().with_gamma(o.gamma())?)),
};

/// Sparsemax with strength γ.
///
/// ```
/// use parsimax::{MappingExt, Sparsemax};
/// // Support {1.0, 0.8}: τ = (1.8 − 1)/2 = 0.4.
/// let p = Sparsemax::new().apply(&[1.0f64, 0.8, 0.1])?;
/// assert!((p[0] - 0.6).abs() < 1e-15 && (p[1] - 0.4).abs() < 1e-15);
/// assert_eq!(p[2], 0.0);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparsemax {
    gamma: f64,
}

impl Sparsemax {
    /// Sparsemax of strength 1.
    #[must_use]
    pub fn new() -> Self {
        Self { gamma: 1.0 }
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("sparsemax", gamma)?;
        Ok(Self { gamma })
    }
}

impl Default for Sparsemax {
    fn default() -> Self {
        Self::new()
    }
}

impl Separable for Sparsemax {
    fn window(&self) -> f64 {
        self.gamma
    }
    fn solve(&self, z: &mut [f64], _work: &mut Vec<f64>) -> Option<f64> {
        Some(linear::solve(z, self.gamma))
    }
    fn weight(&self, _p: f64) -> f64 {
        1.0 / self.gamma
    }
}

separable_mapping! {
    Sparsemax,
    "sparsemax",
    fn form(&self) -> Option<Form> {
        Some(Form::Entmax { alpha: 2.0, gamma: self.gamma })
    }
    fn kernel(&self) -> Option<Kernel> {
        Kernel::new(Map::Sparsemax, self.gamma)
    }
}

impl Regularized for Sparsemax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ½‖p‖².
    fn omega(&self, p: &[f64]) -> f64 {
        0.5 * numeric::dot(p, p)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        0.5 * numeric::sum_by(each, |p| p * p)
    }
}
