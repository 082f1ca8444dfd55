//! Slow exact answers: what every mapping should have returned, to 60 digits.
//!
//! The oracles share nothing with the fast code. They take `f64` scores and parameters as exact
//! numbers, use the plainest method that is certain (a full sort and a closed form, a root of a
//! monotone function, enumeration), compute in [`Big`] with 96 digits, and assert their own
//! optimality conditions before they answer. Entries of `−∞` are removed: they get 0 and take part
//! in nothing. A row without any other entry is a row of zeros.
//!
//! | question | oracle |
//! |---|---|
//! | softmax, ev-softmax | [`softmax`], [`ev_softmax`], [`ev_softmax_training`] |
//! | projections onto the simplex and the capped simplex | [`sparsemax`], [`sparsehourglass`], [`budget`] |
//! | α-entmax, its gradient in α, its Jacobian | [`entmax`], [`entmax_alpha_gradient`], [`entmax_vjp`] |
//! | norms as regularisers | [`sq_pnorm_max`], [`normmax`] |
//! | structure | [`fusedmax`], [`oscarmax`], each with a brute force and a duality gap |
//! | Ω, max_Ω, Fenchel–Young losses | [`Regularizer`] |
//! | any differentiable Ω, in `f64` | [`maximize_on_simplex`] |
//!
//! Invalid arguments (NaN, `+∞`, γ ≤ 0, …) panic: an oracle is asked about valid input only.

pub mod big;
mod convex;
mod entmax;
mod evsoftmax;
mod fusedmax;
mod norms;
mod oscarmax;
mod root;
mod sparsemax;
mod values;

pub use big::Big;
pub use convex::{Solution, maximize_on_simplex};
pub use entmax::{entmax, entmax_alpha_gradient, entmax_tau, entmax_vjp};
pub use evsoftmax::{ev_softmax, ev_softmax_training, softmax};
pub use fusedmax::{fusedmax, fusedmax_brute, fusedmax_gap};
pub use norms::{normmax, normmax_tau, sq_pnorm_max};
pub use oscarmax::{oscarmax, oscarmax_brute, oscarmax_gap};
pub use sparsemax::{budget, sparsehourglass, sparsemax, sparsemax_tau};
pub use values::Regularizer;

/// Each number rounded to the nearest `f64`.
pub fn to_f64(values: &[Big]) -> Vec<f64> {
    values.iter().map(Big::to_f64).collect()
}

/// maxᵢ |pᵢ − exactᵢ|, computed in [`Big`]; +∞ if some pᵢ is not finite.
///
/// # Panics
/// If the lengths differ.
pub fn max_error(p: &[f64], exact: &[Big]) -> f64 {
    assert_eq!(p.len(), exact.len());
    let errors = p.iter().zip(exact).map(|(&a, b)| match a.is_finite() {
        true => (Big::from_f64(a) - b).abs().to_f64(),
        false => f64::INFINITY,
    });
    errors.fold(0.0, f64::max)
}

/// The entries of one row that take part, as x = (z − max z)/γ ≤ 0.
///
/// Subtracting the maximum first is exact, so that a common shift of the scores costs no digit.
struct Row {
    /// Length of the row, removed entries included.
    len: usize,
    /// Positions of the entries that take part.
    live: Vec<usize>,
    /// Their scores, shifted and scaled.
    x: Vec<Big>,
    /// max z / γ, what was subtracted.
    top: Big,
}

impl Row {
    /// `None` if no entry takes part.
    fn new(z: &[f64], gamma: f64) -> Option<Self> {
        assert!(gamma > 0.0 && gamma.is_finite(), "γ = {gamma}");
        assert!(!z.iter().any(|&s| s.is_nan() || s == f64::INFINITY), "scores {z:?}");
        let live: Vec<usize> = (0..z.len()).filter(|&i| z[i].is_finite()).collect();
        let max = live.iter().map(|&i| z[i]).reduce(f64::max)?;
        let (max, gamma) = (Big::from_f64(max), Big::from_f64(gamma));
        let x = live.iter().map(|&i| (Big::from_f64(z[i]) - &max) / &gamma).collect();
        Some(Self { len: z.len(), live, x, top: max / gamma })
    }

    /// Puts one value per live entry back into a row of zeros.
    fn scatter(&self, values: Vec<Big>) -> Vec<Big> {
        let mut row = zeros(self.len);
        for (&i, value) in self.live.iter().zip(values) {
            row[i] = value;
        }
        row
    }

    /// The live entries of a claimed distribution divided by their sum, if they come near to one.
    fn feasible(&self, p: &[f64]) -> Option<Vec<Big>> {
        assert_eq!(p.len(), self.len, "one probability per score");
        let valid = p.iter().all(|&p| p >= 0.0 && p.is_finite());
        let outside = (0..p.len()).any(|i| p[i] != 0.0 && !self.live.contains(&i));
        let near = (p.iter().sum::<f64>() - 1.0).abs() <= 1e-3;
        (valid && near && !outside).then(|| normalized(self.gather(p)))
    }

    /// The live entries of a vector that belongs to the row.
    fn gather(&self, v: &[f64]) -> Vec<Big> {
        assert_eq!(v.len(), self.len, "one number per score");
        self.live.iter().map(|&i| Big::from_f64(v[i])).collect()
    }
}

/// d zeros.
fn zeros(d: usize) -> Vec<Big> {
    vec![Big::zero(); d]
}

/// `values` divided by their sum.
fn normalized(values: Vec<Big>) -> Vec<Big> {
    let sum: Big = values.iter().sum();
    values.iter().map(|v| v / &sum).collect()
}

/// <a, b>.
fn dot(a: &[Big], b: &[Big]) -> Big {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Positions of `x` from the greatest to the smallest, ties in order of position.
fn descending(x: &[Big]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&i, &j| x[j].cmp(&x[i]));
    order
}

/// Asserts Σp = 1 to 60 digits and p ≥ 0, then passes `p` on.
fn checked(p: Vec<Big>) -> Vec<Big> {
    let defect = p.iter().sum::<Big>() - Big::one();
    assert!(defect.abs() < Big::from_f64(1e-61), "Σp − 1 = {defect:?}");
    assert!(p.iter().all(|p| *p >= Big::zero()), "a negative probability in {p:?}");
    p
}

#[cfg(test)]
mod testing {
    //! What the tests of the oracles share.
    use super::Big;

    /// A row of `d` scores, spread over ±`scale`.
    pub(super) fn scores(rng: &mut fastrand::Rng, d: usize, scale: f64) -> Vec<f64> {
        (0..d).map(|_| (rng.f64() * 2.0 - 1.0) * scale).collect()
    }

    /// |a − b| ≤ tolerance, entry by entry.
    #[track_caller]
    pub(super) fn assert_near(a: &[Big], b: &[Big], tolerance: f64) {
        assert_eq!(a.len(), b.len());
        for (i, (x, y)) in a.iter().zip(b).enumerate() {
            assert!((x - y).abs() <= Big::from_f64(tolerance), "entry {i}: {x:?} and {y:?}");
        }
    }
}
