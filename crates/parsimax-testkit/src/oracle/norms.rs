//! Norms as regularisers: sq-pnorm-max (Ω = ½‖p‖_r², 1 < r ≤ 2) and normmax (Ω = ‖p‖_α, α > 1).
//!
//! **sq-pnorm-max.** On the support xᵢ − n^{2−r} pᵢ^{r−1} = τ with n = ‖p‖_r. For a given n this is
//! r-entmax of x·n^{r−2}/(r−1). A greater n flattens that distribution, so n ↦ ‖p(n)‖_r − n decreases
//! (slope at most −1) and has one zero in [d^{1/r−1}, 1]: a root within a root.
//!
//! **normmax.** On the support xᵢ − (pᵢ/n)^{α−1} = τ with n = ‖p‖_α, hence p = n·u with
//! u = [x − τ]₊^{1/(α−1)}. Taking α-norms gives Σ [xᵢ − τ]₊^{α/(α−1)} = 1, convex and decreasing in τ,
//! with τ in [−1, −d^{1/α−1}] when max x = 0; then p = u/Σu. The maximum of the problem is τ itself.

use super::entmax::{jacobian_product, solve};
use super::root::decreasing_root;
use super::{Big, Row, checked, normalized, zeros};

/// argmax of <p, z> − γ·½‖p‖_r² over the simplex, 1 < r ≤ 2.
pub fn sq_pnorm_max(z: &[f64], r: f64, gamma: f64) -> Vec<Big> {
    assert!(r > 1.0 && r <= 2.0, "r = {r}");
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let r = Big::from_f64(r);
    let delta = &r - Big::one();
    let at = |n: &Big| {
        let scale = n.pow(&(&delta - Big::one())) / &delta;
        let x: Vec<Big> = row.x.iter().map(|x| x * &scale).collect();
        let p = solve(&x, &delta).0;
        (p, x)
    };
    let low = Big::from_usize(row.x.len()).pow(&(Big::one() / &r - Big::one()));
    let n = decreasing_root(low, Big::one(), Big::one(), |n| {
        let (p, x) = at(n);
        let norm = norm(&p, &r);
        // x(n) ∝ n^{δ−1}, so dp/dn = J·x·(δ − 1)/n, and d‖p‖ = Σ (p/‖p‖)^δ dp.
        let moved = jacobian_product(&p, &delta, &x);
        let slope: Big = p.iter().zip(&moved).map(|(p, m)| (p / &norm).pow(&delta) * m).sum();
        let slope = slope * (&delta - Big::one()) / n - Big::one();
        (norm - n, slope)
    });
    row.scatter(at(&n).0)
}

/// argmax of <p, z> − γ‖p‖_α over the simplex, α > 1.
pub fn normmax(z: &[f64], alpha: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let tau = norm_threshold(&row.x, alpha);
    let exponent = Big::one() / (Big::from_f64(alpha) - Big::one());
    let u = row.x.iter().map(|x| (x - &tau).positive_part().pow(&exponent)).collect();
    row.scatter(checked(normalized(u)))
}

/// The threshold τ of p ∝ [z/γ − τ]₊^{1/(α−1)}; γτ is the value of the maximum.
pub fn normmax_tau(z: &[f64], alpha: f64, gamma: f64) -> Option<Big> {
    let row = Row::new(z, gamma)?;
    Some(norm_threshold(&row.x, alpha) + &row.top)
}

/// τ with Σ [x − τ]₊^{α/(α−1)} = 1, for max x = 0.
fn norm_threshold(x: &[Big], alpha: f64) -> Big {
    assert!(alpha > 1.0 && alpha.is_finite(), "α = {alpha}");
    let alpha = Big::from_f64(alpha);
    let beta = &alpha / (&alpha - Big::one());
    let high = -Big::from_usize(x.len()).pow(&(Big::one() / &alpha - Big::one()));
    let tau = decreasing_root(-Big::one(), high, -Big::one(), |tau| {
        let (mut value, mut slope) = (-Big::one(), Big::zero());
        for base in x.iter().map(|x| x - tau).filter(Big::is_positive) {
            let power = base.pow(&beta);
            slope = slope - &beta * &power / base;
            value = value + power;
        }
        (value, slope)
    });
    let margins = x.iter().map(|x| (x - &tau).positive_part());
    let defect = margins.map(|m| m.pow(&beta)).sum::<Big>() - Big::one();
    assert!(defect.abs() < Big::from_f64(1e-61), "Σ[x − τ]^β − 1 = {defect:?}");
    tau
}

/// ‖p‖_r for p ≥ 0.
pub(super) fn norm(p: &[Big], r: &Big) -> Big {
    p.iter().map(|p| p.pow(r)).sum::<Big>().pow(&(Big::one() / r))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::{sparsemax, to_f64};

    #[test]
    fn the_square_of_the_euclidean_norm_is_sparsemax() {
        let mut rng = fastrand::Rng::with_seed(12);
        let z = scores(&mut rng, 7, 1.0);
        assert_near(&sq_pnorm_max(&z, 2.0, 0.6), &sparsemax(&z, 0.6), 1e-90);
    }

    /// On the support γ∇Ω(p) + τ = z, off it γ∇Ω(p) + τ ≥ z, for the same τ.
    fn assert_stationary(z: &[f64], gamma: f64, p: &[Big], gradient: impl Fn(&Big) -> Big) {
        let slack = |i: usize| Big::from_f64(z[i]) / Big::from_f64(gamma) - gradient(&p[i]);
        let top = crate::oracle::descending(p)[0];
        let tau = slack(top);
        for i in 0..z.len() {
            let excess = slack(i) - &tau;
            let excess = if p[i].is_positive() { excess.abs() } else { excess };
            assert!(excess < Big::from_f64(1e-70), "entry {i} of {z:?}: {excess:?}");
        }
    }

    #[test]
    fn sq_pnorm_max_is_stationary() {
        let mut rng = fastrand::Rng::with_seed(13);
        for r in [1.0001, 1.1, 1.5, 1.9] {
            let z = scores(&mut rng, 4, 0.5);
            let p = sq_pnorm_max(&z, r, 0.7);
            let r = Big::from_f64(r);
            let n = norm(&p, &r);
            let gradient = |p: &Big| n.pow(&(Big::from_usize(2) - &r)) * p.pow(&(&r - Big::one()));
            assert_stationary(&z, 0.7, &p, gradient);
        }
    }

    #[test]
    fn normmax_is_stationary_and_its_value_is_its_threshold() {
        let mut rng = fastrand::Rng::with_seed(14);
        for alpha in [1.01, 1.5, 2.0, 4.0, 1000.0] {
            let z = scores(&mut rng, 6, 0.6);
            let p = normmax(&z, alpha, 0.7);
            let order = Big::from_f64(alpha);
            let n = norm(&p, &order);
            assert_stationary(&z, 0.7, &p, |p| (p / &n).pow(&(&order - Big::one())));
            let linear: Big = z.iter().zip(&p).map(|(&z, p)| Big::from_f64(z) * p).sum();
            let value = linear / Big::from_f64(0.7) - n;
            assert_near(&[value], &[normmax_tau(&z, alpha, 0.7).expect("live")], 1e-60);
        }
    }

    #[test]
    fn ties_masks_and_single_entries() {
        assert_eq!(to_f64(&normmax(&[3.0, f64::NEG_INFINITY], 3.0, 1.0)), [1.0, 0.0]);
        assert_eq!(to_f64(&normmax(&[3.0; 4], 3.0, 1.0)), [0.25; 4]);
        assert_eq!(to_f64(&sq_pnorm_max(&[1e6, f64::NEG_INFINITY, 1e6], 1.3, 1.0)), [0.5, 0.0, 0.5]);
        assert_eq!(to_f64(&sq_pnorm_max(&[2.0], 1.3, 1.0)), [1.0]);
        assert_eq!(to_f64(&normmax(&[f64::NEG_INFINITY], 1.5, 1.0)), [0.0]);
    }
}
