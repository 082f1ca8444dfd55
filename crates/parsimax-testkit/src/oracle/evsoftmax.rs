//! softmax and ev-softmax: exponentials, normalised.
//!
//! softmax: pᵢ = e^{xᵢ}/Σ e^{xⱼ}, x = z/γ. ev-softmax keeps the entries with zᵢ ≥ mean(z), the
//! comparison made without rounding, and normalises over them; its training form keeps the others
//! too, with weight ε: pᵢ ∝ (1{zᵢ ≥ mean} + ε)·e^{xᵢ}. A temperature moves scores and mean alike,
//! so the support does not depend on γ.

use std::cmp::Ordering;

use super::big::sign_of_exact_sum;
use super::{Big, Row, checked, normalized, zeros};

/// softmax(z/γ).
pub fn softmax(z: &[f64], gamma: f64) -> Vec<Big> {
    weighted(z, gamma, |_| Big::one())
}

/// ev-softmax(z/γ): softmax over the entries that are not below the mean.
pub fn ev_softmax(z: &[f64], gamma: f64) -> Vec<Big> {
    ev_softmax_training(z, 0.0, gamma)
}

/// The training form of ev-softmax: entries below the mean keep the weight ε, the others 1 + ε.
pub fn ev_softmax_training(z: &[f64], eps: f64, gamma: f64) -> Vec<Big> {
    let eps = Big::from_f64(eps);
    weighted(z, gamma, |i| match above_mean(z, i) {
        true => Big::one() + &eps,
        false => eps.clone(),
    })
}

/// pᵢ ∝ weight(i)·exp(zᵢ/γ) over the live entries.
fn weighted(z: &[f64], gamma: f64, weight: impl Fn(usize) -> Big) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let terms = row.live.iter().zip(&row.x).map(|(&i, x)| weight(i) * x.exp()).collect();
    row.scatter(checked(normalized(terms)))
}

/// zₖ ≥ mean of the live scores, exactly: Σⱼ (zₖ − zⱼ) ≥ 0.
fn above_mean(z: &[f64], k: usize) -> bool {
    let live = z.iter().copied().filter(|s| s.is_finite());
    sign_of_exact_sum(live.flat_map(|s| [z[k], -s])) != Ordering::Less
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::to_f64;

    const MASKED: f64 = f64::NEG_INFINITY;

    #[test]
    fn softmax_of_two_is_the_logistic_function() {
        let e = Big::one().exp();
        let expected = [&e / (&e + Big::one()), Big::one() / (&e + Big::one())];
        assert_near(&softmax(&[3.0, 1.0], 2.0), &expected, 1e-90);
        assert_near(&softmax(&[1e30, 1e30], 1.0), &[Big::half_pow(1), Big::half_pow(1)], 0.0);
    }

    #[test]
    fn ev_softmax_drops_what_is_below_the_mean() {
        // Mean 0: the second entry is on it and stays.
        let p = ev_softmax(&[1.0, 0.0, -1.0, MASKED], 1.0);
        let e = Big::one().exp();
        let expected = [&e / (&e + Big::one()), Big::one() / (&e + Big::one()), Big::zero(), Big::zero()];
        assert_near(&p, &expected, 1e-90);
        // Three equal entries, whose mean in f64 exceeds them.
        let p = to_f64(&ev_softmax(&[0.1; 3], 1.0));
        assert_eq!(p, [1.0 / 3.0; 3]);
        assert_eq!(to_f64(&ev_softmax(&[MASKED, MASKED], 1.0)), [0.0, 0.0]);
    }

    #[test]
    fn the_training_form_tends_to_both_limits() {
        let mut rng = fastrand::Rng::with_seed(4);
        let z = scores(&mut rng, 6, 3.0);
        assert_near(&ev_softmax_training(&z, 1e-50, 0.7), &ev_softmax(&z, 0.7), 1e-46);
        assert_near(&ev_softmax_training(&z, 1e50, 0.7), &softmax(&z, 0.7), 1e-49);
    }
}
