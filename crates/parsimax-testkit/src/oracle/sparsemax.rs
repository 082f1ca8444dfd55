//! Euclidean projections: sparsemax, sparsehourglass, and the budget mapping.
//!
//! sparsemax: p = [x − τ]₊ with Σp = 1, x = z/γ. Sort x in descending order; the support is the
//! longest prefix k with 1 + k·x₍ₖ₎ > Σ_{j≤k} x₍ⱼ₎, and τ = (Σ_{j≤k} x₍ⱼ₎ − 1)/k.
//!
//! sparsehourglass: sparsemax(c·x) with c = (1 + dq)/(|Σx| + dq), d the number of live entries.
//! With q = 0 and Σx = 0 there is no such c; the limit c → ∞ is uniform over the greatest entries.
//!
//! budget: p = clip(x − τ, 0, 1) with Σp = B. Σp is piecewise linear in τ with its breaks at xᵢ and
//! xᵢ − 1: evaluate it at each break, and solve the linear equation between the two that enclose B.

use super::big::sum_rounded_once;
use super::{Big, Row, checked, descending, zeros};

/// sparsemax(z/γ).
pub fn sparsemax(z: &[f64], gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    row.scatter(project(&row.x).0)
}

/// The threshold τ of p = [z/γ − τ]₊; `None` if every entry is removed.
pub fn sparsemax_tau(z: &[f64], gamma: f64) -> Option<Big> {
    let row = Row::new(z, gamma)?;
    Some(&row.top + project(&row.x).1)
}

/// The projection of `x` onto the simplex and its threshold. `x` must not be empty.
pub(super) fn project(x: &[Big]) -> (Vec<Big>, Big) {
    let (mut sum, mut tau) = (Big::zero(), None);
    for (rank, &i) in descending(x).iter().enumerate() {
        let k = Big::from_usize(rank + 1);
        sum = sum + &x[i];
        if Big::one() + &k * &x[i] <= sum {
            break;
        }
        tau = Some((&sum - Big::one()) / k);
    }
    let tau = tau.expect("the first entry is always in the support");
    (checked(x.iter().map(|x| (x - &tau).positive_part()).collect()), tau)
}

/// sparsehourglass with parameter q ≥ 0.
pub fn sparsehourglass(z: &[f64], q: f64, gamma: f64) -> Vec<Big> {
    assert!(q >= 0.0 && q.is_finite(), "q = {q}");
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let total = sum_rounded_once(row.live.iter().map(|&i| z[i])) / Big::from_f64(gamma);
    let dq = Big::from_usize(row.live.len()) * Big::from_f64(q);
    let denominator = total.abs() + &dq;
    if denominator.is_zero() {
        let greatest = row.x.iter().filter(|x| x.is_zero()).count();
        let share = Big::one() / Big::from_usize(greatest);
        let pick = |x: &Big| {
            if x.is_zero() { share.clone() } else { Big::zero() }
        };
        return row.scatter(row.x.iter().map(pick).collect());
    }
    let c = (Big::one() + dq) / denominator;
    let scaled: Vec<Big> = row.x.iter().map(|x| x * &c).collect();
    row.scatter(project(&scaled).0)
}

/// The budget mapping: entries in [0, 1] that sum to `budget`, or all 1 if there are too few.
pub fn budget(z: &[f64], budget: f64, gamma: f64) -> Vec<Big> {
    assert!(budget >= 0.0 && budget.is_finite(), "budget {budget}");
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    if budget >= row.live.len() as f64 {
        return row.scatter(vec![Big::one(); row.live.len()]);
    }
    let target = Big::from_f64(budget);
    let tau = budget_tau(&row.x, &target);
    let p = clipped(&row.x, &tau);
    let defect = p.iter().sum::<Big>() - &target;
    assert!(defect.abs() < Big::from_f64(1e-61), "Σp − B = {defect:?}");
    row.scatter(p)
}

/// clip(x − τ, 0, 1).
fn clipped(x: &[Big], tau: &Big) -> Vec<Big> {
    x.iter().map(|x| (x - tau).positive_part().min(Big::one())).collect()
}

/// τ with Σ clip(x − τ, 0, 1) = target, for 0 ≤ target < d.
fn budget_tau(x: &[Big], target: &Big) -> Big {
    let mut breaks: Vec<Big> = x.iter().flat_map(|x| [x.clone(), x - Big::one()]).collect();
    breaks.sort_by(|a, b| b.cmp(a));
    // From the right, where the sum is 0, to the first break where it reaches the target.
    let mut right = (breaks[0].clone(), Big::zero());
    for tau in breaks {
        let sum: Big = clipped(x, &tau).iter().sum();
        if sum >= *target {
            let rise = &sum - &right.1;
            if rise.is_zero() {
                return tau;
            }
            let part = (target - &right.1) / rise;
            return &right.0 + part * (tau - &right.0);
        }
        right = (tau, sum);
    }
    unreachable!("at the last break every entry is 1")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::to_f64;

    #[test]
    fn sparsemax_has_its_known_values() {
        // Two entries at distance t: (1 ± t)/2, clipped.
        assert_eq!(to_f64(&sparsemax(&[0.5, 0.0], 1.0)), [0.75, 0.25]);
        assert_eq!(to_f64(&sparsemax(&[1.0, 0.0], 1.0)), [1.0, 0.0]);
        assert_eq!(to_f64(&sparsemax(&[1.0, f64::NEG_INFINITY, 0.0], 2.0)), [0.75, 0.0, 0.25]);
        assert_eq!(sparsemax_tau(&[10.5, 10.0], 1.0).map(|t| t.to_f64()), Some(9.75));
        assert_eq!(sparsemax_tau(&[], 1.0), None);
    }

    #[test]
    fn sparsemax_satisfies_its_optimality_conditions() {
        let mut rng = fastrand::Rng::with_seed(5);
        for d in 1..40 {
            let z = scores(&mut rng, d, 2.0);
            let p = sparsemax(&z, 0.9);
            let tau = sparsemax_tau(&z, 0.9).expect("live entries");
            for (&z, p) in z.iter().zip(&p) {
                let margin = Big::from_f64(z) / Big::from_f64(0.9) - &tau;
                assert!((margin.positive_part() - p).abs() < Big::from_f64(1e-90));
            }
        }
    }

    #[test]
    fn the_hourglass_is_sparsemax_for_large_q_and_on_the_line_sum_one() {
        let mut rng = fastrand::Rng::with_seed(6);
        let z = scores(&mut rng, 7, 1.0);
        assert_near(&sparsehourglass(&z, 1e40, 0.8), &sparsemax(&z, 0.8), 1e-38);
        let on_the_line = [0.75, -0.5, 0.5, 0.25];
        assert_near(&sparsehourglass(&on_the_line, 0.3, 1.0), &sparsemax(&on_the_line, 1.0), 1e-90);
        assert_eq!(to_f64(&sparsehourglass(&[1.0, 1.0, -2.0], 0.0, 1.0)), [0.5, 0.5, 0.0]);
    }

    #[test]
    fn the_budget_is_spent() {
        let mut rng = fastrand::Rng::with_seed(7);
        let z = scores(&mut rng, 9, 2.0);
        assert_near(&budget(&z, 1.0, 1.3), &sparsemax(&z, 1.3), 1e-90);
        for b in [0.0, 0.3, 2.0, 3.7, 8.999] {
            let p = budget(&z, b, 1.3);
            assert!(p.iter().all(|p| *p <= Big::one()));
        }
        assert_eq!(to_f64(&budget(&[3.0, -9.0, f64::NEG_INFINITY], 2.0, 1.0)), [1.0, 1.0, 0.0]);
        // Far apart: the budget is an integer and τ is not unique, p is.
        assert_eq!(to_f64(&budget(&[50.0, 20.0, -30.0], 2.0, 1.0)), [1.0, 1.0, 0.0]);
        assert_eq!(to_f64(&budget(&[0.5, 0.25, -30.0], 1.5, 1.0)), [0.875, 0.625, 0.0]);
    }
}
