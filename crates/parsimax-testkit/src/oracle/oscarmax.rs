//! oscarmax: p maximises <p, z> − γ(½‖p‖² + λ Σ_{i<j} max(pᵢ, pⱼ)) over the simplex.
//!
//! With x = z/γ the problem is to minimise P(p) = ½‖p‖² − <p, x> + λ Σ_{i<j} max(pᵢ, pⱼ), three ways:
//!
//! * [`oscarmax`], any d: sort x in descending order; on that order the penalty is Σ wₖpₖ with
//!   wₖ = λ(d−k). The best non-increasing fit of x − w, by the min–max formula
//!   yₖ = min_{a≤k} max_{b≥k} mean(a..b), projected onto the simplex.
//! * [`oscarmax_brute`], d ≤ 6: every ranking of the entries with ties, with the last rank at zero or
//!   not, has one candidate in closed form; the best feasible one is the optimum. Nothing is assumed
//!   about the order of p.
//! * [`oscarmax_gap`], any d: for p ≥ 0 the penalty is the maximum of <u, p> over all u whose k
//!   greatest entries sum to at most w₁ + … + wₖ, for each k. Any such u bounds the optimum from below
//!   by D(u) = min over the simplex of ½‖p‖² − <p, x − u>, and ½‖p − p*‖² ≤ P(p) − D(u).

use super::sparsemax::project;
use super::{Big, Row, descending, dot, zeros};

/// oscarmax of z/γ; the answer has passed its own duality gap.
pub fn oscarmax(z: &[f64], lambda: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let lambda = weight(lambda);
    let p = project(&ordered_fit(&row.x, &lambda)).0;
    let value = objective(&row.x, &lambda, &p);
    let gap = &value - dual_value(&row.x, &lambda);
    let tolerance = Big::from_f64(1e-60) * (Big::one() + value.abs());
    assert!(gap.abs() < tolerance, "duality gap {gap:?}");
    row.scatter(p)
}

/// oscarmax by enumeration, for at most six live entries.
pub fn oscarmax_brute(z: &[f64], lambda: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let d = row.x.len();
    assert!(d <= 6, "enumeration of {d} entries");
    let lambda = weight(lambda);
    let rankings = (0..d.pow(d as u32)).filter_map(|code| ranking(code, d));
    let feasible =
        rankings.flat_map(|ranks| [false, true].map(|last_is_zero| candidate(&row.x, &lambda, &ranks, last_is_zero)));
    let best = feasible.flatten().min_by_key(|p| objective(&row.x, &lambda, p));
    row.scatter(best.expect("one group of everything is feasible"))
}

/// How far `p` is from optimal in <p, z> − γΩ(p), by a dual certificate; ½γ‖p − p*‖² is at most this.
///
/// `p` is divided by its sum first. +∞ if an entry is negative or not finite, if a removed entry is
/// not 0, or if the sum is off by more than 1e−3.
pub fn oscarmax_gap(z: &[f64], lambda: f64, gamma: f64, p: &[f64]) -> f64 {
    let Some(row) = Row::new(z, gamma) else {
        return 0.0;
    };
    let Some(p) = row.feasible(p) else {
        return f64::INFINITY;
    };
    let lambda = weight(lambda);
    let gap = objective(&row.x, &lambda, &p) - dual_value(&row.x, &lambda);
    (gap * Big::from_f64(gamma)).to_f64()
}

fn weight(lambda: f64) -> Big {
    assert!(lambda >= 0.0 && lambda.is_finite(), "λ = {lambda}");
    Big::from_f64(lambda)
}

/// Σ_{i<j} max(pᵢ, pⱼ), by its definition.
pub(super) fn pairwise_maxima(p: &[Big]) -> Big {
    let pairs = (0..p.len()).flat_map(|i| (0..i).map(move |j| (i, j)));
    pairs.fold(Big::zero(), |sum, (i, j)| sum + if p[i] > p[j] { &p[i] } else { &p[j] })
}

/// P(p).
fn objective(x: &[Big], lambda: &Big, p: &[Big]) -> Big {
    Big::half_pow(1) * dot(p, p) - dot(p, x) + lambda * pairwise_maxima(p)
}

/// D(u) for u = x − y, y the ordered fit, lowered by a constant if it violates its bounds.
fn dual_value(x: &[Big], lambda: &Big) -> Big {
    let d = x.len();
    let y = ordered_fit(x, lambda);
    let u: Vec<Big> = x.iter().zip(&y).map(|(x, y)| x - y).collect();
    let (mut used, mut allowed, mut excess) = (Big::zero(), Big::zero(), Big::zero());
    for (rank, &i) in descending(&u).iter().enumerate() {
        used = used + &u[i];
        allowed = allowed + lambda * Big::from_usize(d - 1 - rank);
        excess = excess.max((&used - &allowed) / Big::from_usize(rank + 1));
    }
    // Lowering every entry of u by c makes it feasible and lowers D(u) by c.
    let p = project(&y).0;
    Big::half_pow(1) * dot(&p, &p) - dot(&p, &y) - excess
}

/// The best fit y of x − w that is non-increasing in the order of x, in the positions of x.
fn ordered_fit(x: &[Big], lambda: &Big) -> Vec<Big> {
    let d = x.len();
    let order = descending(x);
    let mut prefix = vec![Big::zero()];
    for (rank, &i) in order.iter().enumerate() {
        let target = &x[i] - lambda * Big::from_usize(d - 1 - rank);
        prefix.push(&prefix[rank] + target);
    }
    let mut fit: Vec<Option<Big>> = vec![None; d];
    for a in 0..d {
        // The greatest mean of a..=b over b ≥ k, for k from the right.
        let mut greatest: Option<Big> = None;
        for k in (a..d).rev() {
            let mean = (&prefix[k + 1] - &prefix[a]) / Big::from_usize(k + 1 - a);
            let max = greatest.map_or(mean.clone(), |g| g.max(mean));
            fit[k] = Some(fit[k].take().map_or(max.clone(), |f| f.min(max.clone())));
            greatest = Some(max);
        }
    }
    let mut y = zeros(d);
    for (&i, value) in order.iter().zip(fit) {
        y[i] = value.expect("a = 0 covers every k");
    }
    y
}

/// The digits of `code` in base d as ranks, 0 the greatest; `None` if a rank in between is empty.
fn ranking(mut code: usize, d: usize) -> Option<Vec<usize>> {
    let mut ranks = Vec::with_capacity(d);
    for _ in 0..d {
        ranks.push(code % d);
        code /= d;
    }
    let last = *ranks.iter().max()?;
    (0..last).all(|rank| ranks.contains(&rank)).then_some(ranks)
}

/// The only point that can be optimal with these ranks, if it is on the simplex.
fn candidate(x: &[Big], lambda: &Big, ranks: &[usize], last_is_zero: bool) -> Option<Vec<Big>> {
    let groups = ranks.iter().max()? + usize::from(!last_is_zero);
    // The mean of x − w over each group: its entries occupy the next places of the order.
    let (mut levels, mut sizes, mut place) = (Vec::new(), Vec::new(), 0);
    for rank in 0..groups {
        let members: Vec<usize> = (0..x.len()).filter(|&i| ranks[i] == rank).collect();
        let places = place..place + members.len();
        place = places.end;
        let penalty: usize = places.map(|k| x.len() - 1 - k).sum();
        let sum: Big = members.iter().map(|&i| &x[i]).sum();
        sizes.push(Big::from_usize(members.len()));
        levels.push((sum - lambda * Big::from_usize(penalty)) / &sizes[rank]);
    }
    if groups == 0 {
        return None;
    }
    let tau = (dot(&levels, &sizes) - Big::one()) / Big::from_usize(place);
    let level = |i: usize| levels.get(ranks[i]).map_or(Big::zero(), |level| level - &tau);
    let p: Vec<Big> = (0..x.len()).map(level).collect();
    p.iter().all(|p| *p >= Big::zero()).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::{sparsemax, to_f64};

    #[test]
    fn known_values() {
        let z = [0.5, 0.0, 0.25];
        assert_near(&oscarmax(&z, 0.0, 1.0), &sparsemax(&z, 1.0), 1e-90);
        assert_near(&oscarmax(&z, 10.0, 1.0), &vec![Big::one() / Big::from_usize(3); 3], 1e-90);
        // Two entries: only the greater pays λ.
        assert_eq!(to_f64(&oscarmax(&[0.0, 0.75], 0.25, 1.0)), [0.25, 0.75]);
        assert_eq!(to_f64(&oscarmax(&[0.0, f64::NEG_INFINITY, 0.75], 0.25, 1.0)), [0.25, 0.0, 0.75]);
        assert_eq!(to_f64(&oscarmax(&[f64::NEG_INFINITY], 0.25, 1.0)), [0.0]);
    }

    #[test]
    fn the_fit_agrees_with_enumeration() {
        let mut rng = fastrand::Rng::with_seed(18);
        for d in [1, 2, 3, 4, 4, 4, 5, 5, 5, 6] {
            let z = scores(&mut rng, d, 1.0);
            let lambda = [0.01, 0.1, 0.3][rng.usize(..3)];
            let brute = oscarmax_brute(&z, lambda, 0.6);
            assert_near(&oscarmax(&z, lambda, 0.6), &brute, 1e-40);
        }
    }

    #[test]
    fn the_gap_proves_the_optimum_and_exposes_the_rest() {
        let mut rng = fastrand::Rng::with_seed(19);
        for d in [2, 5, 30, 100] {
            let z = scores(&mut rng, d, 1.0);
            let lambda = 0.5 / d as f64;
            let exact = to_f64(&oscarmax(&z, lambda, 0.4));
            // What remains is the rounding of p to f64, times slopes of order 1.
            assert!(oscarmax_gap(&z, lambda, 0.4, &exact) < 1e-14);
            let mut wrong = exact.clone();
            let top = (0..d).max_by(|&i, &j| exact[i].total_cmp(&exact[j])).expect("d > 0");
            wrong[top] -= 1e-3;
            wrong[(top + 1) % d] += 1e-3;
            let distance = 2.0 * 1e-6;
            assert!(oscarmax_gap(&z, lambda, 0.4, &wrong) >= 0.5 * 0.4 * distance * 0.99);
        }
        assert_eq!(oscarmax_gap(&[0.0, 1.0], 0.1, 1.0, &[0.5, 0.4]), f64::INFINITY);
    }
}
