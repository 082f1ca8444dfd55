//! α-entmax for every α > 0, its gradient in α, and its Jacobian.
//!
//! p maximises <p, x> − (Σ pᵢ^α − 1)/(α(α−1)) over the simplex, x = z/γ. With δ = α − 1 the optimality
//! condition is pᵢ^δ = δ(xᵢ − t) + 1 on the support (for α = 1: pᵢ = e^{xᵢ−t}), t fixed by Σp = 1.
//! Which unknown keeps 60 digits depends on the exponent 1/δ, which magnifies relative errors of the
//! base below δ = 1 and absolute errors above:
//!
//! * δ < 1 (negative δ too): the unknown is t. Σp is convex and decreasing in t; p_max ∈ [1/d, 1]
//!   brackets t by [0, (1 − d^{−δ})/δ] when max x = 0. The error is 1e−96/|δ|: 80 digits remain at the
//!   α next to 1.
//! * δ ≥ 1: a t would need log₁₀(1/p)·δ digits (3000 for p = 1e−3 and α = 1000). The unknown is
//!   w = pₖ of the smallest supported entry, and pᵢ^δ = δ(xᵢ − xₖ) + w^δ has only positive terms.
//!   Entry k is supported exactly if Σ_{i<k} (δ(xᵢ − xₖ))^{1/δ} < 1, so the last such k anchors.
//!   Σp is convex and increasing in w, with slope at least 1.
//!
//! **Gradient in α.** At fixed t, ∂pᵢ/∂δ = (pᵢ − pᵢ^{1−δ})/δ² − pᵢ ln pᵢ/δ, and ∂pᵢ/∂t = −pᵢ^{1−δ}.
//! Eliminating dt by Σ dp = 0, with q = p^{1−δ}/Σp^{1−δ} and H = −Σ p ln p,
//!
//! ```text
//! ∂pᵢ/∂α = (pᵢ − qᵢ)/δ² − (pᵢ ln pᵢ + qᵢ H)/δ,    at α = 1: pᵢ (Σ p ln²p − ln²pᵢ)/2.
//! ```
//!
//! This cancels near δ = 0, which costs 3·log₁₀(1/δ) of the 96 digits: 48 remain at the α next to 1.

use super::root::decreasing_root;
use super::{Big, Row, checked, descending, zeros};

/// α-entmax(z/γ).
pub fn entmax(z: &[f64], alpha: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let delta = delta(alpha);
    row.scatter(solve(&row.x, &delta).0)
}

/// The threshold τ of p = [(α−1)z/γ − τ]₊^{1/(α−1)}; `None` for α = 1 or if every entry is removed.
pub fn entmax_tau(z: &[f64], alpha: f64, gamma: f64) -> Option<Big> {
    let row = Row::new(z, gamma)?;
    let delta = delta(alpha);
    if delta.is_zero() {
        return None;
    }
    Some(solve(&row.x, &delta).1 + &delta * &row.top)
}

/// ∂p/∂α at α-entmax(z/γ), entries off the support 0.
pub fn entmax_alpha_gradient(z: &[f64], alpha: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let delta = delta(alpha);
    let p = solve(&row.x, &delta).0;
    row.scatter(alpha_gradient(&p, &delta))
}

/// J·v, J the (symmetric) Jacobian of z ↦ α-entmax(z/γ).
///
/// J = (diag(s) − ssᵀ/Σs)/γ with s = p^{2−α} on the support, summed here as
/// (Jv)ᵢ = Σⱼ sᵢsⱼ(vᵢ − vⱼ)/(γ Σs): without cancellation, whatever the range of s.
pub fn entmax_vjp(z: &[f64], alpha: f64, gamma: f64, v: &[f64]) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let delta = delta(alpha);
    let p = solve(&row.x, &delta).0;
    let gamma = Big::from_f64(gamma);
    let product = jacobian_product(&p, &delta, &row.gather(v));
    row.scatter(product.iter().map(|g| g / &gamma).collect())
}

/// α − 1, exactly.
fn delta(alpha: f64) -> Big {
    assert!(alpha > 0.0 && alpha.is_finite(), "α = {alpha}");
    Big::from_f64(alpha) - Big::one()
}

/// p and τ (in units of δx) for scores with maximum 0.
pub(super) fn solve(x: &[Big], delta: &Big) -> (Vec<Big>, Big) {
    if delta.is_zero() {
        let weights: Vec<Big> = x.iter().map(Big::exp).collect();
        return (checked(super::normalized(weights)), Big::zero());
    }
    if *delta < Big::one() { solve_for_shift(x, delta) } else { solve_for_anchor(x, delta) }
}

/// δ < 1: the unknown is the shift t.
fn solve_for_shift(x: &[Big], delta: &Big) -> (Vec<Big>, Big) {
    let exponent = Big::one() / delta;
    let base = |x: &Big, t: &Big| Big::one() + delta * (x - t);
    let power = |base: &Big| {
        if base.is_positive() { base.pow(&exponent) } else { Big::zero() }
    };
    let uniform = Big::from_usize(x.len()).pow(&-delta);
    let high = (Big::one() - uniform) / delta;
    let t = decreasing_root(Big::zero(), high, Big::zero(), |t| {
        let (mut value, mut slope) = (-Big::one(), Big::zero());
        for base in x.iter().map(|x| base(x, t)).filter(Big::is_positive) {
            let p = power(&base);
            slope = slope - &p / base;
            value = value + p;
        }
        (value, slope)
    });
    let p = x.iter().map(|x| power(&base(x, &t))).collect();
    (checked(p), delta * t - Big::one())
}

/// δ ≥ 1: the unknown is the probability w of the smallest supported entry.
fn solve_for_anchor(x: &[Big], delta: &Big) -> (Vec<Big>, Big) {
    let root = Big::one() / delta;
    let order = descending(x);
    let lift = |i: usize, k: usize| delta * (&x[i] - &x[k]);
    let above = |rank: usize| -> Vec<Big> { order[..rank].iter().map(|&i| lift(i, order[rank])).collect() };
    let supported = |rank: &usize| above(*rank).iter().map(|c| c.pow(&root)).sum::<Big>() < Big::one();
    let last = (0..x.len()).take_while(supported).last().expect("the greatest entry is supported");
    let lifts = above(last);
    let w = decreasing_root(Big::zero(), Big::one(), Big::one(), |w| {
        let w = w.positive_part();
        let wd = w.pow(delta);
        let (mut value, mut slope) = (Big::one() - &w, -Big::one());
        for base in lifts.iter().map(|c| c + &wd).filter(Big::is_positive) {
            let p = base.pow(&root);
            // dp/dw = (w/p)^{δ−1} = (w^δ/w)·(p/p^δ).
            let ratio = if w.is_zero() { Big::zero() } else { &wd / &w * &p / base };
            slope = slope - ratio;
            value = value - p;
        }
        (value, slope)
    });
    let wd = w.pow(delta);
    let mut p = zeros(x.len());
    for (&i, lift) in order.iter().zip(&lifts) {
        p[i] = (lift + &wd).pow(&root);
    }
    p[order[last]] = w;
    let tau = delta * &x[order[last]] - wd;
    (checked(p), tau)
}

/// ∂p/∂α from p; see the head of the file.
fn alpha_gradient(p: &[Big], delta: &Big) -> Vec<Big> {
    let log = |p: &Big| if p.is_positive() { p.ln() } else { Big::zero() };
    let logs: Vec<Big> = p.iter().map(log).collect();
    if delta.is_zero() {
        let second: Big = p.iter().zip(&logs).map(|(p, l)| p * l * l).sum();
        let half = Big::half_pow(1);
        return p.iter().zip(&logs).map(|(p, l)| p * (&second - l * l) * &half).collect();
    }
    let entropy = -super::dot(p, &logs);
    let q = super::normalized(curvatures(p, delta));
    let square = delta * delta;
    let entry = |i: usize| (&p[i] - &q[i]) / &square - (&p[i] * &logs[i] + &q[i] * &entropy) / delta;
    (0..p.len()).map(entry).collect()
}

/// s = p^{1−δ} = p^{2−α} on the support, 0 off it.
fn curvatures(p: &[Big], delta: &Big) -> Vec<Big> {
    let exponent = Big::one() - delta;
    p.iter().map(|p| if p.is_positive() { p.pow(&exponent) } else { Big::zero() }).collect()
}

/// J·v for γ = 1.
pub(super) fn jacobian_product(p: &[Big], delta: &Big, v: &[Big]) -> Vec<Big> {
    let s = curvatures(p, delta);
    let total: Big = s.iter().sum();
    let entry = |i: usize| {
        let pull: Big = s.iter().zip(v).map(|(s, vj)| s * (&v[i] - vj)).sum();
        &s[i] / &total * pull
    };
    (0..p.len()).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::{softmax, sparsemax, sparsemax_tau, to_f64};

    const ALPHAS: [f64; 14] =
        [0.05, 0.5, 0.999, 1.0, 1.0 + f64::EPSILON, 1.000001, 1.01, 1.25, 1.5, 2.0, 3.0, 4.0, 10.0, 1000.0];

    #[test]
    fn one_half_more_than_one_has_a_closed_form() {
        // α = 1.5, two entries at distance 2t: √p = (√(2 − t²) ± t)/2.
        let t = Big::from_f64(0.75);
        let root = (Big::from_usize(2) - &t * &t).sqrt();
        let half = Big::half_pow(1);
        let (a, b) = ((&root + &t) * &half, (&root - &t) * &half);
        assert_near(&entmax(&[1.5, 0.0], 1.5, 1.0), &[&a * &a, &b * &b], 1e-90);
    }

    #[test]
    fn both_ends_meet_softmax_and_sparsemax() {
        let mut rng = fastrand::Rng::with_seed(8);
        for _ in 0..5 {
            let z = scores(&mut rng, 6, 2.0);
            assert_near(&entmax(&z, 1.0, 0.7), &softmax(&z, 0.7), 0.0);
            // The slope in α is below 2 here, so one ulp of α moves p by less than 1e−15 and not by 0.
            assert_near(&entmax(&z, 1.0 + f64::EPSILON, 0.7), &softmax(&z, 0.7), 1e-15);
            assert_near(&entmax(&z, 1.0 - f64::EPSILON, 0.7), &softmax(&z, 0.7), 1e-15);
            assert_near(&entmax(&z, 2.0, 0.7), &sparsemax(&z, 0.7), 1e-90);
            let taus = [entmax_tau(&z, 2.0, 0.7), sparsemax_tau(&z, 0.7)].map(|t| t.expect("live"));
            assert_near(&taus[..1], &taus[1..], 1e-90);
            // The two formulations on the two sides of α = 2.
            let near = [2.0 - f64::EPSILON, 2.0 + f64::EPSILON].map(|a| entmax(&z, a, 0.7));
            assert_near(&near[0], &near[1], 1e-14);
        }
    }

    #[test]
    fn optimality_conditions_hold_for_every_alpha() {
        let mut rng = fastrand::Rng::with_seed(9);
        for alpha in ALPHAS.into_iter().filter(|&a| a != 1.0) {
            let delta = delta(alpha);
            let z: Vec<f64> = scores(&mut rng, 6, 1.0);
            let p = entmax(&z, alpha, 0.5);
            let tau = entmax_tau(&z, alpha, 0.5).expect("live");
            for (&z, p) in z.iter().zip(&p) {
                // p^δ = δx − τ on the support; δx ≤ τ off it.
                let margin = &delta * Big::from_f64(z) / Big::from_f64(0.5) - &tau;
                let fitted = if p.is_positive() { p.pow(&delta) } else { Big::zero() };
                let expected = if p.is_positive() { margin } else { margin.positive_part() };
                assert!((fitted - expected).abs() < Big::from_f64(1e-75), "α = {alpha}");
            }
        }
    }

    #[test]
    fn shifts_ties_masks_and_extremes_change_nothing() {
        for alpha in ALPHAS {
            let p = entmax(&[0.5, -0.25, 0.0], alpha, 1.0);
            let shifted = entmax(&[1e6 + 0.5, 1e6 - 0.25, f64::NEG_INFINITY, 1e6], alpha, 1.0);
            assert_near(&p[..2], &shifted[..2], 0.0);
            assert_near(&p[2..], &shifted[3..], 0.0);
            let tied = entmax(&[1e30; 3], alpha, 1.0);
            assert_near(&tied, &vec![Big::one() / Big::from_usize(3); 3], 1e-75);
            assert_eq!(to_f64(&entmax(&[4.0], alpha, 1.0)), [1.0]);
            assert!(entmax(&[], alpha, 1.0).is_empty());
            let far = entmax(&[1e30, -1e30, 1e-30], alpha, 1e-3);
            assert!(far[0] >= Big::from_f64(0.9));
        }
    }

    /// Central difference of `f` at `a` with step h, as h → 0 its error is O(h²).
    fn difference(f: impl Fn(&Big) -> Vec<Big>, a: &Big) -> Vec<Big> {
        let h = Big::from_f64(1e-25);
        let (up, down) = (f(&(a + &h)), f(&(a - &h)));
        up.iter().zip(&down).map(|(u, d)| (u - d) / (Big::from_usize(2) * &h)).collect()
    }

    #[test]
    fn the_alpha_gradient_is_the_derivative() {
        let mut rng = fastrand::Rng::with_seed(10);
        for alpha in ALPHAS {
            let z = scores(&mut rng, 5, 0.8);
            let row = Row::new(&z, 1.0).expect("live");
            let expected = difference(|d| solve(&row.x, d).0, &delta(alpha));
            let gradient = entmax_alpha_gradient(&z, alpha, 1.0);
            assert_near(&gradient, &expected, 1e-40);
            assert!(gradient.iter().sum::<Big>().abs() < Big::from_f64(1e-45));
        }
    }

    #[test]
    fn the_jacobian_product_is_the_directional_derivative() {
        let mut rng = fastrand::Rng::with_seed(11);
        for alpha in ALPHAS {
            let (z, v) = (scores(&mut rng, 5, 0.8), scores(&mut rng, 5, 1.0));
            let row = Row::new(&z, 1.0).expect("live");
            let top = crate::oracle::descending(&row.x)[0];
            let along = |s: &Big| {
                let x: Vec<Big> = (0..5).map(|i| &row.x[i] + s * Big::from_f64(v[i])).collect();
                let x: Vec<Big> = x.iter().map(|xi| xi - &x[top]).collect();
                solve(&x, &delta(alpha)).0
            };
            let expected = difference(along, &Big::zero());
            assert_near(&entmax_vjp(&z, alpha, 1.0, &v), &expected, 1e-40);
        }
    }
}
