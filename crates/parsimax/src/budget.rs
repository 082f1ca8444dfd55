//! Budget: entries between 0 and 1 that share a budget other than 1 (Martins & Kreutzer 2017, with a
//! cap of 1 on every entry).
//!
//! **Problem.** $\Pi(z) = \arg\max_p \langle p, z\rangle - \frac{\gamma}{2}\lVert p\rVert^2$ over the
//! capped simplex `$\{p \in [0,1]^d : \sum_i p_i = B\}$`, that is the Euclidean projection of z/γ onto it.
//!
//! **Closed form.** $p_i = \mathrm{clip}(z_i/\gamma - \tau, 0, 1)$ with $\sum_i p_i = \min(B, d)$. B = 1 is
//! sparsemax; an integer B and γ → 0 select the B largest scores.
//!
//! **Algorithm and cost.** The ⌈B⌉-th largest score is the anchor; the kinks of the others are halved
//! around their median. Expected $O(d)$, no sort, exact.
//!
//! **Jacobian.** On the entries strictly inside (0, 1), the set $I$:
//! `$Jv = 1_I \odot (v - \mathrm{mean}_I\, v)/\gamma$`; entries that are empty or full have derivative 0.
//! Symmetric; needs $p$ alone.
//!
//! **Edge cases.** B ≥ d: every entry is 1 and the derivative 0. Ties share equally. A score may lie any
//! distance above the others: it is full, and the rest is as if it were not there.
//!
//! **Loss.** The Fenchel–Young loss is that of the capped simplex: its targets have entries in [0, 1]
//! that sum to min(B, d), such as the indicator of B labels. A class index or a distribution is such
//! a target for B = 1 only.

use crate::error::{check, check_gamma};
use crate::law::Form;
use crate::mapping::{Scratch, Visit};
use crate::numeric;
use crate::registry::Entry;
use crate::single::{Buffers, Single, finite};
use crate::threshold::capped::{Capped, is_inside};
use crate::{Float, Mapping, Regularized, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "budget",
    omega: "½‖p‖² over 0 ≤ p ≤ 1, Σp = budget",
    sparsity: "zero below a threshold, one from γ above it on",
    cost: "O(d)",
    reference: "Martins & Kreutzer 2017",
    takes: &["budget", "gamma"],
    build: |o| Ok(Box::new(Budget::new(o.budget.unwrap_or(2.0))?.with_gamma(o.gamma())?)),
};

/// Entries in [0, 1] that sum to a budget, with strength γ.
///
/// ```
/// use parsimax::{Budget, MappingExt};
/// // 1.5 among three: the first is full, and 0.3 − τ + 0.2 − τ = 0.5 gives τ = 0.
/// let p = Budget::new(1.5)?.apply(&[2.0f64, 0.3, 0.2])?;
/// assert_eq!(p[0], 1.0);
/// assert!((p[1] - 0.3).abs() < 1e-15 && (p[2] - 0.2).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget {
    budget: f64,
    gamma: f64,
}

impl Budget {
    /// A budget, finite and > 0, with strength 1.
    pub fn new(budget: f64) -> Result<Self> {
        check(budget > 0.0 && budget.is_finite(), "budget", "budget", "a finite number > 0", budget)?;
        Ok(Self { budget, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("budget", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The budget.
    #[must_use]
    pub fn budget(&self) -> f64 {
        self.budget
    }

    /// Writes the probabilities of a row, in which −∞ takes no part, and returns τ.
    fn solve<T: Float>(&self, z: &[T], p: &mut [T]) -> f64 {
        if self.budget >= finite(z).count() as f64 {
            for (p, z) in p.iter_mut().zip(z) {
                *p = T::narrow(if z.widen() > f64::NEG_INFINITY { 1.0 } else { 0.0 });
            }
            // Any τ up to here fills every entry.
            return finite(z).fold(f64::INFINITY, f64::min) / self.gamma - 1.0;
        }
        let capped = Capped::solve(z, self.budget, self.gamma, p);
        for (p, z) in p.iter_mut().zip(z) {
            *p = T::narrow(capped.value(z.widen()));
        }
        capped.tau()
    }

    fn vjp<T: Float>(&self, p: &[T], v: &[T], out: &mut [T]) {
        let inside = || p.iter().zip(v).filter(|(p, _)| is_inside(p.widen()));
        let mean = numeric::sum(inside().map(|(_, v)| v.widen())) / inside().count() as f64;
        for (out, (p, v)) in out.iter_mut().zip(p.iter().zip(v)) {
            *out = T::narrow(if is_inside(p.widen()) { (v.widen() - mean) / self.gamma } else { 0.0 });
        }
    }
}

impl Mapping for Budget {
    fn name(&self) -> &'static str {
        "budget"
    }
    fn forward_row(&self, z: &[f64], p: &mut [f64], _scratch: &mut Scratch) -> Result<Option<f64>> {
        Ok(Some(self.solve(z, p)))
    }
    fn vjp_row(&self, _z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], _scratch: &mut Scratch) -> Result<()> {
        self.vjp(p, v, out);
        Ok(())
    }
    fn reads_scores(&self) -> bool {
        false
    }
    fn form(&self) -> Option<Form> {
        Some(Form::Budget { budget: self.budget, gamma: self.gamma })
    }
    fn has_neighbours(&self) -> bool {
        false
    }
    fn support_vjp_row(&self, _index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
        self.vjp(p, v, out);
        Some(())
    }
    fn regularized(&self) -> Option<&dyn Regularized> {
        Some(self)
    }
    fn single(&self) -> Option<&dyn Single> {
        Some(self)
    }
    fn total(&self, d: usize) -> f64 {
        self.budget.min(d as f64)
    }
}

impl Single for Budget {
    fn forward(&self, z: &[f32], p: &mut [f32], _buffers: &mut Buffers) -> bool {
        self.solve(z, p);
        true
    }
    fn vjp(&self, _z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]) {
        self.vjp(p, v, out);
    }
}

impl Regularized for Budget {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sparsemax, trial};

    #[test]
    fn every_entry_is_its_clipped_score() {
        let mut rng = fastrand::Rng::with_seed(31);
        for budget in [0.01, 0.5, 1.0, 1.7, 2.0, 5.0, 18.999, 19.5, 20.0, 300.0] {
            for (gamma, size) in [(1.0, 0.1), (1.0, 1.0), (1.0, 10.0), (0.3, 1.0), (7.0, 1.0)] {
                let mapping = Budget::new(budget).unwrap().with_gamma(gamma).unwrap();
                for round in 0..60 {
                    let mut z = trial::row(&mut rng, 20, size);
                    if round % 3 == 0 {
                        // Half-integers: ties with each other and with the kinks.
                        z.iter_mut().for_each(|z| *z = (2.0 * *z).round() / 2.0);
                    }
                    trial::assert_distribution(&mapping, &z);
                    let (p, tau) = trial::forward(&mapping, &z);
                    for (z, p) in z.iter().zip(&p) {
                        let clipped = (z / gamma - tau.unwrap()).clamp(0.0, 1.0);
                        assert!((p - clipped).abs() < 1e-14, "{budget} {gamma} {size}: {p} {clipped}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_budget_of_one_is_sparsemax() {
        let mut rng = fastrand::Rng::with_seed(32);
        for d in [1, 2, 3, 50] {
            let z = trial::row(&mut rng, d, 1.0);
            let expected = trial::forward(&Sparsemax::new(), &z).0;
            trial::assert_close(&trial::forward(&Budget::new(1.0).unwrap(), &z).0, &expected, 2e-16);
        }
    }

    #[test]
    fn scores_far_away_do_not_cost_digits() {
        let p = trial::forward(&Budget::new(1.5).unwrap(), &[1e30, 0.3, 0.1, -1e30]).0;
        // 0.3 − τ + 0.1 − τ = 0.5.
        trial::assert_close(&p, &[1.0, 0.35, 0.15, 0.0], 1e-16);
    }

    #[test]
    fn a_small_strength_selects_the_largest() {
        let mapping = Budget::new(2.0).unwrap().with_gamma(1e-6).unwrap();
        assert_eq!(trial::forward(&mapping, &[0.1, 0.4, 0.3, 0.2]).0, [0.0, 1.0, 1.0, 0.0]);
    }

    #[test]
    fn derivatives_match_differences() {
        let mut rng = fastrand::Rng::with_seed(33);
        for budget in [0.5, 1.0, 1.7, 2.5] {
            trial::assert_derivatives(&Budget::new(budget).unwrap().with_gamma(1.5).unwrap(), 1.0, &mut rng);
        }
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        for budget in [1e-3, 0.5, 1.0, 2.0, 2.5, 7.3, 299.5, 1e300] {
            trial::assert_survives(&Budget::new(budget).unwrap());
            trial::assert_survives(&Budget::new(budget).unwrap().with_gamma(1e-3).unwrap());
        }
        for budget in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            assert!(Budget::new(budget).is_err());
        }
    }
}
