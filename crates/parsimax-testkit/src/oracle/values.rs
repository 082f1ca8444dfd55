//! Values: Ω(p), the regularised maximum, and the Fenchel–Young loss.
//!
//! ```text
//! max_Ω(z)  = max over the simplex of <p, z> − γΩ(p) = <p*, z> − γΩ(p*)
//! L_Ω(z; y) = γΩ(y) + max_Ω(z) − <z, y>
//! ```
//!
//! Both are evaluated as written, at the p* of the oracle.

use super::fusedmax::variation;
use super::norms::norm;
use super::oscarmax::pairwise_maxima;
use super::{Big, dot};

/// A regulariser Ω and the mapping it defines.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Regularizer {
    /// Σ p ln p: softmax.
    Shannon,
    /// ½‖p‖²: sparsemax.
    HalfSquare,
    /// (Σ p^α − 1)/(α(α−1)), at α = 1 its limit Σ p ln p: α-entmax. At α = 2 it is ½‖p‖² − ½.
    Tsallis(f64),
    /// ½‖p‖_r², 1 < r ≤ 2: sq-pnorm-max.
    HalfSquaredNorm(f64),
    /// ‖p‖_α, α > 1: normmax.
    Norm(f64),
    /// ½‖p‖² + λ Σ|pᵢ₊₁ − pᵢ|: fusedmax.
    Fused(f64),
    /// ½‖p‖² + λ Σ_{i<j} max(pᵢ, pⱼ): oscarmax.
    Oscar(f64),
}

impl Regularizer {
    /// Ω(p) for p ≥ 0.
    pub fn omega(self, p: &[Big]) -> Big {
        let half_square = || Big::half_pow(1) * dot(p, p);
        match self {
            Self::Shannon | Self::Tsallis(1.0) => p.iter().filter(|p| p.is_positive()).map(|p| p * p.ln()).sum(),
            Self::HalfSquare => half_square(),
            Self::Tsallis(alpha) => {
                let alpha = Big::from_f64(alpha);
                let power: Big = p.iter().map(|p| p.pow(&alpha)).sum();
                (power - Big::one()) / (&alpha * (&alpha - Big::one()))
            }
            Self::HalfSquaredNorm(r) => {
                let norm = norm(p, &Big::from_f64(r));
                Big::half_pow(1) * &norm * norm
            }
            Self::Norm(alpha) => norm(p, &Big::from_f64(alpha)),
            Self::Fused(lambda) => half_square() + Big::from_f64(lambda) * variation(p),
            Self::Oscar(lambda) => half_square() + Big::from_f64(lambda) * pairwise_maxima(p),
        }
    }

    /// The mapping: argmax of <p, z> − γΩ(p) over the simplex.
    pub fn map(self, z: &[f64], gamma: f64) -> Vec<Big> {
        match self {
            Self::Shannon => super::softmax(z, gamma),
            Self::HalfSquare => super::sparsemax(z, gamma),
            Self::Tsallis(alpha) => super::entmax(z, alpha, gamma),
            Self::HalfSquaredNorm(r) => super::sq_pnorm_max(z, r, gamma),
            Self::Norm(alpha) => super::normmax(z, alpha, gamma),
            Self::Fused(lambda) => super::fusedmax(z, lambda, gamma),
            Self::Oscar(lambda) => super::oscarmax(z, lambda, gamma),
        }
    }

    /// max_Ω(z), over the live entries.
    ///
    /// # Panics
    /// If every entry is removed: the maximum over nothing is no number.
    pub fn max(self, z: &[f64], gamma: f64) -> Big {
        let live: Vec<f64> = z.iter().copied().filter(|s| *s != f64::NEG_INFINITY).collect();
        assert!(!live.is_empty(), "no live entry in {z:?}");
        let p = self.map(&live, gamma);
        linear(&live, &p) - Big::from_f64(gamma) * self.omega(&p)
    }

    /// The Fenchel–Young loss against the target `y`, taken as exact, also where it misses Σy = 1 by a
    /// rounding.
    ///
    /// # Panics
    /// If `y` gives weight to a removed entry: the loss is infinite there.
    pub fn loss(self, z: &[f64], y: &[f64], gamma: f64) -> Big {
        assert_eq!(z.len(), y.len());
        let (mut scores, mut target) = (Vec::new(), Vec::new());
        for (&z, &y) in z.iter().zip(y) {
            if z != f64::NEG_INFINITY {
                scores.push(z);
                target.push(Big::from_f64(y));
            } else {
                assert_eq!(y, 0.0, "weight on a removed entry");
            }
        }
        Big::from_f64(gamma) * self.omega(&target) + self.max(&scores, gamma) - linear(&scores, &target)
    }
}

/// <z, p>.
fn linear(z: &[f64], p: &[Big]) -> Big {
    z.iter().zip(p).map(|(&z, p)| Big::from_f64(z) * p).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::{normmax_tau, to_f64};

    const ALL: [Regularizer; 11] = [
        Regularizer::Shannon,
        Regularizer::HalfSquare,
        Regularizer::Tsallis(0.5),
        Regularizer::Tsallis(1.0),
        Regularizer::Tsallis(1.3),
        Regularizer::Tsallis(1.5),
        Regularizer::Tsallis(4.0),
        Regularizer::HalfSquaredNorm(1.5),
        Regularizer::Norm(3.0),
        Regularizer::Fused(0.1),
        Regularizer::Oscar(0.1),
    ];

    #[test]
    fn known_values() {
        // log-sum-exp of two zeros is ln 2; log loss of a coin is ln 2.
        let ln2 = Big::from_usize(2).ln();
        assert_near(&[Regularizer::Shannon.max(&[0.0, 0.0], 1.0)], std::slice::from_ref(&ln2), 1e-90);
        assert_near(&[Regularizer::Shannon.loss(&[0.0; 2], &[1.0, 0.0], 1.0)], &[ln2], 1e-90);
        // sparsemax, t = 0.5: <p, z> − ½‖p‖² = 0.375 − 0.3125.
        assert_eq!(Regularizer::HalfSquare.max(&[0.5, 0.0], 1.0).to_f64(), 0.0625);
        // The sparsemax loss of two entries at distance t is (t − 1)²/4 for |t| ≤ 1.
        let loss = Regularizer::HalfSquare.loss(&[0.5, 0.0], &[1.0, 0.0], 1.0);
        assert_eq!(loss.to_f64(), 0.0625);
        let z = [0.3, -0.2, 0.7];
        let tau = normmax_tau(&z, 3.0, 0.5).expect("live") * Big::from_f64(0.5);
        assert_near(&[Regularizer::Norm(3.0).max(&z, 0.5)], &[tau], 1e-60);
    }

    #[test]
    fn tsallis_two_is_the_half_square_but_for_a_constant() {
        let mut rng = fastrand::Rng::with_seed(20);
        let z = scores(&mut rng, 5, 1.0);
        let (two, square) = (Regularizer::Tsallis(2.0), Regularizer::HalfSquare);
        let constant = Big::from_f64(0.5 * 0.7);
        assert_near(&[two.max(&z, 0.7)], &[square.max(&z, 0.7) + constant], 1e-80);
        let y = [0.5, 0.25, 0.0, 0.25, 0.0];
        assert_near(&[two.loss(&z, &y, 0.7)], &[square.loss(&z, &y, 0.7)], 1e-80);
    }

    #[test]
    fn losses_are_not_negative_and_vanish_at_their_own_prediction() {
        let mut rng = fastrand::Rng::with_seed(21);
        for omega in ALL {
            let z = scores(&mut rng, 4, 1.0);
            let y = [0.5, 0.0, 0.375, 0.125];
            assert!(omega.loss(&z, &y, 0.7).is_positive(), "{omega:?}");
            let own = to_f64(&omega.map(&z, 0.7));
            // The prediction rounded to f64 is off the simplex by 1e−16.
            assert!(omega.loss(&z, &own, 0.7).abs().to_f64() < 1e-15, "{omega:?}");
            let masked = [z.as_slice(), &[f64::NEG_INFINITY]].concat();
            let loss = omega.loss(&masked, &[0.5, 0.0, 0.375, 0.125, 0.0], 0.7);
            assert_near(&[loss], &[omega.loss(&z, &y, 0.7)], 0.0);
        }
    }

    #[test]
    fn the_mapping_is_the_gradient_of_the_maximum() {
        let mut rng = fastrand::Rng::with_seed(22);
        let h = 2f64.powi(-40);
        for omega in ALL {
            // Multiples of 2⁻²⁰, so that z ± h is exact.
            let z: Vec<f64> = scores(&mut rng, 3, 1.0).iter().map(|z| (z * 1048576.0).round() / 1048576.0).collect();
            let p = omega.map(&z, 0.7);
            let shifted = |by: f64| omega.max(&[z[0] + by, z[1], z[2]], 0.7);
            let slope = (shifted(h) - shifted(-h)) / Big::from_f64(2.0 * h);
            assert_near(&[slope], &p[..1], 1e-11);
        }
    }
}
