//! The losses of the papers, written as they are printed there.

use super::*;
use crate::EvSoftmax;
use crate::loss::{Likelihood, PerturbedLog, modified_huber, modified_huber_derivative};
use crate::{MappingExt, numeric};

/// Random rows of five scores with a random distribution.
fn cases(seed: u64) -> impl Iterator<Item = ([f64; 5], [f64; 5], i64)> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..2000).map(move |_| {
        let z = std::array::from_fn(|_| 1.5 * normal(&mut random));
        let (mut y, mut class) = ([0.0; 5], [0]);
        targets(&mut random, &mut y, &mut class);
        (z, y, class[0])
    })
}

fn soft(y: &[f64]) -> Target<'_, f64> {
    Target::Soft(View::new(y, &[y.len()]).unwrap())
}

/// `½ Σ_S (z_j² − τ²)` with τ by sorting, the common term of S0 Eq. 20 and 26.
fn half_squares(z: &[f64]) -> f64 {
    let mut sorted = z.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut tau, mut size) = (0.0, 0.0, 0);
    for (i, z) in sorted.iter().enumerate() {
        sum += z;
        if 1.0 + (i + 1) as f64 * z > sum {
            (tau, size) = ((sum - 1.0) / (i + 1) as f64, i + 1);
        }
    }
    0.5 * sorted[..size].iter().map(|z| z * z - tau * tau).sum::<f64>()
}

#[test]
fn sparsemax_loss_of_martins_and_astudillo() {
    let mapping = Sparsemax::new();
    let loss = FenchelYoung::new(&mapping);
    for (z, y, k) in cases(11) {
        let class = -z[k as usize] + half_squares(&z) + 0.5;
        assert_close(value(&loss, &z, Target::Classes(&[k])), class, 2e-14);
        let proportions = -dot(&y, &z) + half_squares(&z) + 0.5 * dot(&y, &y);
        assert_close(value(&loss, &z, soft(&y)), proportions, 2e-14);
    }
}

#[test]
fn entmax_loss_of_peters_niculae_and_martins() {
    // Eq. 11: (p − e_y)ᵀz + H(p), H(p) = Σ(p − p^α)/(α(α−1)).
    for alpha in [1.2, 1.5, 1.9, 2.0, 3.0] {
        let mapping = Entmax::new(alpha).unwrap();
        for (z, _, k) in cases(12) {
            let p = mapping.apply(&z).unwrap();
            let entropy: f64 = p.iter().map(|p| (p - p.powf(alpha)) / (alpha * (alpha - 1.0))).sum();
            let expected = dot(&p, &z) - z[k as usize] + entropy;
            assert_close(value(&FenchelYoung::new(&mapping), &z, Target::Classes(&[k])), expected, 2e-14);
        }
    }
}

#[test]
fn softmax_loss_is_the_cross_entropy() {
    // −log p_k = log Σ e^z − z_k; for proportions minus the entropy of y (S0 Eq. 24).
    for (z, y, k) in cases(13) {
        let lse = z.iter().map(|z| z.exp()).sum::<f64>().ln();
        let mapping = Softmax::new();
        let loss = FenchelYoung::new(&mapping);
        assert_close(value(&loss, &z, Target::Classes(&[k])), lse - z[k as usize], 1e-14);
        let kl = numeric::negative_entropy(&y) - dot(&y, &z) + lse;
        assert_close(value(&loss, &z, soft(&y)), kl, 1e-14);
    }
}

#[test]
fn strength_rescales_the_loss() {
    // L_{γΩ}(z; y) = γ·L_Ω(z/γ; y).
    for (z, _, k) in cases(14) {
        for gamma in [0.25, 3.0] {
            let scaled: Vec<f64> = z.iter().map(|z| z / gamma).collect();
            let plain = value(&FenchelYoung::new(&Entmax15::new()), &scaled, Target::Classes(&[k]));
            let mapping = Entmax15::new().with_gamma(gamma).unwrap();
            let strong = value(&FenchelYoung::new(&mapping), &z, Target::Classes(&[k]));
            assert_close(strong, gamma * plain, 2e-14 * (1.0 + strong));
        }
    }
}

#[test]
fn binary_sparsemax_loss_is_modified_huber() {
    let mapping = Sparsemax::new();
    let loss = FenchelYoung::new(&mapping);
    for i in -300..=300 {
        let t = f64::from(i) / 100.0;
        let (value, g) = gradient(&loss, &[t, 0.0], Target::Classes(&[0])).unwrap();
        assert_close(value.value().unwrap(), modified_huber(t), 1e-15 * (1.0 + t.abs()));
        assert_close(g[0], modified_huber_derivative(t), 1e-15);
    }
    assert!(modified_huber(f64::NAN).is_nan() && modified_huber_derivative(f64::NAN).is_nan());
}

#[test]
fn perturbed_log_loss_by_hand() {
    // Sparsemax of (1, 0.8, −1) is (0.6, 0.4, 0); ε = 0.1 gives (0.7, 0.5, 0.1)/1.3.
    let mapping = Sparsemax::new();
    let loss = PerturbedLog::new(&mapping, 0.1).unwrap();
    let z = [1.0, 0.8, -1.0];
    let (value, g) = gradient(&loss, &z, Target::Classes(&[0])).unwrap();
    assert_close(value.value().unwrap(), (1.3f64 / 0.7).ln(), 1e-15);
    // J = [[½, −½], [−½, ½]] on the support, v = (−1/0.7, 0).
    assert_close(g[0], -0.5 / 0.7, 1e-15);
    assert_close(g[1], 0.5 / 0.7, 1e-15);
    assert_eq!(g[2], 0.0);
    // Outside the support: a price, no gradient.
    let (value, g) = gradient(&loss, &z, Target::Classes(&[2])).unwrap();
    assert_close(value.value().unwrap(), 13f64.ln(), 1e-15);
    assert_eq!(g, [0.0; 3]);
    // KL((½, ½, 0) ‖ (7, 5, 1)/13) = ½ log(½·13/7) + ½ log(½·13/5).
    let divergence = PerturbedLog::new(&mapping, 0.1).unwrap().divergence();
    let expected = 0.5 * (6.5f64 / 7.0).ln() + 0.5 * (6.5f64 / 5.0).ln();
    let y = [0.5, 0.5, 0.0];
    assert_close(super::value(&divergence, &z, soft(&y)), expected, 1e-15);
    assert!(
        divergence
            .hvp(
                View::new(&z, &[3]).unwrap(),
                soft(&y),
                View::new(&z, &[3]).unwrap(),
                ViewMut::new(&mut [0.0; 3], &[3]).unwrap()
            )
            .is_err()
    );
    assert!(PerturbedLog::new(&mapping, 0.0).is_err() && PerturbedLog::new(&mapping, f64::NAN).is_err());
}

#[test]
fn likelihood_of_the_training_form() {
    // z = (log 4, log 2, 0), mean log 2: weights (1 + ε, 1 + ε, ε), so p ∝ (4(1+ε), 2(1+ε), ε).
    let (eps, z) = (1e-6, [4f64.ln(), 2f64.ln(), 0.0]);
    let training = EvSoftmax::new().with_eps(eps).unwrap();
    let loss = Likelihood::new(&training);
    let total = 6.0 * (1.0 + eps) + eps;
    let (value, g) = gradient(&loss, &z, Target::Classes(&[2])).unwrap();
    assert_close(value.value().unwrap(), total.ln() - eps.ln(), 1e-14);
    for (g, expected) in g.iter().zip([4.0 * (1.0 + eps) / total, 2.0 * (1.0 + eps) / total, eps / total - 1.0]) {
        assert_close(*g, expected, 1e-15);
    }
    // KL(y ‖ p) for y = (½, ½, 0) as ε → 0, p = (⅔, ⅓, 0): ½ log(¾) + ½ log(3/2).
    let sparse = EvSoftmax::new();
    let y = [0.5, 0.5, 0.0];
    let kl = super::value(&Likelihood::new(&sparse).divergence(), &z, soft(&y));
    assert_close(kl, 0.5 * 0.75f64.ln() + 0.5 * 1.5f64.ln(), 1e-15);
    // Eq. 12: at ε = 0 the value is infinite, the gradient is the sparse p minus e_k.
    let (value, g) = gradient(&Likelihood::new(&sparse), &z, Target::Classes(&[2])).unwrap();
    assert_eq!(value, Loss::Value(f64::INFINITY));
    for (g, expected) in g.iter().zip([2.0 / 3.0, 1.0 / 3.0, -1.0]) {
        assert_close(*g, expected, 1e-15);
    }
}

#[test]
fn the_log_form_does_not_underflow() {
    // 2000 below the maximum e^z is 0 in f64; its logarithm is not lost: −log p = 2000 + log((1+ε)/ε).
    let eps = 1e-6f64;
    let value = value(&Likelihood::new(&EvSoftmax::training()), &[0.0, -2000.0], Target::Classes(&[1]));
    assert_close(value, 2000.0 + eps.ln_1p() - eps.ln(), 1e-12);
    // Nor is the logarithm of a probability next to 1: −log p = log1p(e^{−40}) ≈ e^{−40}.
    let sure = super::value(&Likelihood::new(&crate::Softmax::new()), &[40.0, 0.0], Target::Classes(&[0]));
    assert_close(sure / (-40f64).exp(), 1.0, 1e-15);
}
