//! Mappings in which the probability of an entry is a function of its score and of a few numbers of the row. The
//! function is found by passes over the scores, which are kept nowhere.
//!
//! Slower than the kernels, and for results that have no place for a dense row: sparse ones, losses without a gradient,
//! rows of 16-bit numbers.

use crate::threshold::capped::Capped;
use crate::threshold::mean::Mean;
use crate::threshold::norm::Roots;
use crate::threshold::{anchored, squared_norm, tsallis};
use crate::{hourglass, numeric};

/// Such a mapping with its constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Form {
    /// The α-entmax of strength γ, α > 0.
    Entmax {
        /// α.
        alpha: f64,
        /// γ.
        gamma: f64,
    },
    /// Normmax of strength γ, α > 1: up to α = 2 powers of an entmax, beyond it roots of their own.
    Normmax {
        /// α.
        alpha: f64,
        /// γ.
        gamma: f64,
    },
    /// Sq-pnorm-max of strength γ, where p = 1 + m < 2.
    SquaredNorm {
        /// m.
        m: f64,
        /// γ.
        gamma: f64,
    },
    /// Sparsemax of a strength that depends on the sum of the scores.
    Hourglass {
        /// q.
        q: f64,
        /// γ.
        gamma: f64,
    },
    /// Softmax of weights that are ε below the mean and 1 + ε else.
    Evidence {
        /// ε.
        eps: f64,
        /// γ.
        gamma: f64,
    },
    /// Entries in [0, 1] that share a budget.
    Budget {
        /// The budget.
        budget: f64,
        /// γ.
        gamma: f64,
    },
}

/// The probability of a score of one row.
pub(crate) enum Law {
    /// α ≤ 2: `power((z − max z)/γ − t)`, over its sum.
    Smooth { delta: f64, gamma: f64, top: f64, t: f64, total: f64 },
    /// α > 2, over its sum.
    Steep { lift: anchored::Lift, total: f64 },
    /// A power of another, over its sum.
    Power { base: Box<Law>, exponent: f64, total: f64 },
    /// Roots, over their sum.
    Root { roots: Roots, total: f64 },
    /// `power((z − max z)/mγ − s)`, over its sum.
    Squared { m: f64, gamma: f64, top: f64, s: f64, total: f64 },
    /// `w exp((z − max z)/γ)` over its sum, where w is 1 from `least` on and `outside` below.
    Weighted { gamma: f64, top: f64, least: f64, outside: f64, total: f64 },
    /// A budget; `None` if it is enough for everybody.
    Capped(Option<Capped>),
}

impl Form {
    /// Entries at this distance below the maximum, or further, have no mass, and what has is as if they were not there;
    /// `None` if there is no such distance.
    pub(crate) fn window(self) -> Option<f64> {
        match self {
            Self::Entmax { alpha, gamma } if alpha > 1.0 => Some(gamma / (alpha - 1.0)),
            Self::Normmax { gamma, .. } | Self::SquaredNorm { gamma, .. } => Some(gamma),
            _ => None,
        }
    }

    /// γ.
    pub(crate) fn temperature(self) -> f64 {
        match self {
            Self::Entmax { gamma, .. }
            | Self::Normmax { gamma, .. }
            | Self::SquaredNorm { gamma, .. }
            | Self::Hourglass { gamma, .. }
            | Self::Evidence { gamma, .. }
            | Self::Budget { gamma, .. } => gamma,
        }
    }

    /// The law of a row, given by its finite scores, each with the number of times it is there; `None` if there are none.
    pub(crate) fn law(self, scores: impl Iterator<Item = (f64, f64)> + Clone) -> Option<Law> {
        let top = scores.clone().map(|(z, _)| z).fold(f64::NEG_INFINITY, f64::max);
        if top == f64::NEG_INFINITY {
            return None;
        }
        let mut law = match self {
            Self::Budget { budget, gamma } => {
                let count: f64 = scores.clone().map(|(_, n)| n).sum();
                return Some(Law::Capped((budget < count).then(|| Capped::by_passes(scores, budget, gamma))));
            }
            Self::Hourglass { q, gamma } => {
                let sum = numeric::sum(scores.clone().map(|(z, n)| n * z)).clamp(-f64::MAX, f64::MAX);
                let count: f64 = scores.clone().map(|(_, n)| n).sum();
                // Without any strength the largest share everything.
                let gamma = hourglass::strength(q, gamma, sum, count).max(f64::MIN_POSITIVE);
                return Self::Entmax { alpha: 2.0, gamma }.law(scores);
            }
            Self::Normmax { alpha, gamma } if alpha > 2.0 => {
                Law::Root { roots: Roots::of(scores.clone(), alpha - 1.0, gamma), total: 1.0 }
            }
            Self::SquaredNorm { m, gamma } => {
                let s = squared_norm::root(scores.clone().map(|(z, n)| ((z - top) / gamma / m, n)), m);
                Law::Squared { m, gamma, top, s, total: 1.0 }
            }
            Self::Normmax { alpha, gamma } => {
                let delta = (alpha - 1.0) / alpha;
                let base = Self::Entmax { alpha: 1.0 + delta, gamma: gamma * delta }.law(scores.clone())?;
                Law::Power { base: Box::new(base), exponent: 1.0 / alpha, total: 1.0 }
            }
            Self::Evidence { eps, gamma } => {
                let mut work = Vec::new();
                let mut mean = Mean::new(scores.clone(), &mut work);
                let least = scores.clone().map(|(z, _)| z).filter(|z| mean.admits(*z)).fold(top, f64::min);
                Law::Weighted { gamma, top, least, outside: eps / (1.0 + eps), total: 1.0 }
            }
            Self::Entmax { alpha, gamma } if alpha > 2.0 => {
                Law::Steep { lift: anchored::by_passes(scores.clone(), top, alpha - 1.0, gamma), total: 1.0 }
            }
            Self::Entmax { alpha, gamma } => {
                let delta = alpha - 1.0;
                let t = tsallis::threshold(scores.clone().map(|(z, n)| ((z - top) / gamma, n)), delta);
                Law::Smooth { delta, gamma, top, t, total: 1.0 }
            }
        };
        let sum = numeric::sum(scores.map(|(z, n)| n * law.p(z)));
        match &mut law {
            Law::Smooth { total, .. }
            | Law::Steep { total, .. }
            | Law::Power { total, .. }
            | Law::Root { total, .. }
            | Law::Squared { total, .. }
            | Law::Weighted { total, .. } => *total = sum,
            Law::Capped(_) => {}
        }
        Some(law)
    }
}

impl Law {
    /// The probability of a score.
    pub(crate) fn p(&self, z: f64) -> f64 {
        match self {
            Self::Smooth { delta, gamma, top, t, total } => tsallis::power(*delta, (z - top) / gamma - t) / total,
            Self::Steep { lift, total } => lift.p(z) / total,
            Self::Root { roots, total } => roots.of_score(z) / total,
            Self::Squared { m, gamma, top, s, total } => tsallis::power(*m, (z - top) / gamma / m - s) / total,
            Self::Power { base, exponent, total } => base.p(z).powf(*exponent) / total,
            Self::Weighted { gamma, top, least, outside, total } => {
                let weight = if z >= *least { 1.0 } else { *outside };
                if weight > 0.0 { weight * ((z - top) / gamma).exp() / total } else { 0.0 }
            }
            Self::Capped(capped) => capped.as_ref().map_or(1.0, |capped| capped.value(z)),
        }
    }
}

impl Law {
    /// Its logarithm, also where the probability itself underflows.
    pub(crate) fn log(&self, z: f64) -> f64 {
        match self {
            Self::Weighted { gamma, top, least, outside, total } => {
                (z - top) / gamma + if z >= *least { 0.0 } else { outside.ln() } - total.ln()
            }
            _ => self.p(z).ln(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Options, build};
    use crate::{Budget, Entmax, Mapping, trial};

    #[test]
    fn laws_are_the_mappings() {
        let mut rng = fastrand::Rng::with_seed(61);
        let alphas = [0.3, 0.9, 1.0, 1.1, 1.5, 1.75, 2.0, 2.5, 4.0, 10.0];
        let entmax =
            alphas.map(|alpha| Box::new(Entmax::new(alpha).unwrap().with_gamma(0.7).unwrap()) as Box<dyn Mapping>);
        let budget = [0.3, 1.0, 2.5, 7.0, 300.0]
            .map(|budget| Box::new(Budget::new(budget).unwrap().with_gamma(0.7).unwrap()) as Box<dyn Mapping>);
        let named = ["ev-softmax", "sparsehourglass", "normmax"].map(|name| build(name, &Options::default()).unwrap());
        let flat = build("normmax", &Options { alpha: Some(1.3), ..Options::default() }).unwrap();
        let steep = [2.3, 7.0].map(|alpha| Options { alpha: Some(alpha), gamma: Some(0.7), ..Options::default() });
        let steep = steep.map(|options| build("normmax", &options).unwrap());
        let squared = [1.01, 1.5, 1.9].map(|p| Options { p: Some(p), gamma: Some(0.7), ..Options::default() });
        let squared = squared.map(|options| build("sq-pnorm-max", &options).unwrap());
        let trained = build("ev-softmax", &Options { eps: Some(1e-6), ..Options::default() }).unwrap();
        let others = named.into_iter().chain([flat, trained]).chain(steep).chain(squared);
        for mapping in entmax.into_iter().chain(budget).chain(others) {
            let form = mapping.form().unwrap();
            for round in 0..200 {
                let (d, size) = (1 + round % 50, [1e-6, 0.1, 1.0, 30.0][round % 4]);
                let mut z = trial::row(&mut rng, d, size);
                if round % 3 == 0 {
                    // Ties.
                    z.iter_mut().for_each(|z| *z = (4.0 * *z / size).round() * size / 4.0);
                }
                let law = form.law(z.iter().map(|z| (*z, 1.0))).unwrap();
                let p: Vec<f64> = z.iter().map(|z| law.p(*z)).collect();
                trial::assert_close(&p, &trial::forward(&mapping, &z).0, 1e-14);
            }
        }
    }

    #[test]
    fn a_score_may_stand_for_many() {
        for alpha in [0.5, 1.0, 1.5, 1.9, 3.0] {
            let form = Form::Entmax { alpha, gamma: 1.0 };
            let (once, thrice) = ([0.3, 0.2, 0.2, 0.2, -0.1], [(0.3, 1.0), (0.2, 3.0), (-0.1, 1.0)]);
            let once = form.law(once.iter().map(|z| (*z, 1.0))).unwrap();
            let thrice = form.law(thrice.iter().copied()).unwrap();
            for z in [0.3, 0.2, -0.1] {
                assert!((once.p(z) - thrice.p(z)).abs() < 1e-15, "{alpha} {z}");
            }
        }
        assert!(Form::Entmax { alpha: 1.5, gamma: 1.0 }.law(std::iter::empty()).is_none());
    }
}
