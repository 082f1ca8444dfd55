//! Any differentiable Ω, in `f64`: a slow solver with a certificate.
//!
//! Maximises <p, z> − γΩ(p) over the simplex by accelerated projected gradients: from an extrapolated
//! point step along the gradient, project, and restart the acceleration whenever it points uphill.
//! The step length adapts to the gradient alone, because differences of function values drown in
//! rounding long before the answer is sharp. The result carries its Frank–Wolfe gap
//! maxᵢ gᵢ − <g, p>, g = z − γ∇Ω(p), which bounds the suboptimality of p for every convex Ω.

/// What [`maximize_on_simplex`] found.
#[derive(Clone, Debug)]
pub struct Solution {
    /// The distribution.
    pub p: Vec<f64>,
    /// No feasible point is better than `p` by more than this.
    pub gap: f64,
    /// Iterations used.
    pub iterations: usize,
}

/// Maximises <p, z> − γΩ(p) over the simplex.
///
/// `gradient(p, g)` writes ∇Ω(p) into `g` and must be finite on the whole simplex. Stops when the gap
/// is at most `tolerance` or after `limit` iterations, and returns the best point seen.
///
/// # Panics
/// If `z` is empty or holds a number that is not finite.
pub fn maximize_on_simplex(
    z: &[f64],
    gamma: f64,
    gradient: impl Fn(&[f64], &mut [f64]),
    tolerance: f64,
    limit: usize,
) -> Solution {
    let d = z.len();
    assert!(d > 0 && z.iter().all(|z| z.is_finite()), "scores {z:?}");
    // The gradient of what is minimised, γΩ(p) − <p, z>.
    let slope = |p: &[f64]| {
        let mut g = vec![0.0; d];
        gradient(p, &mut g);
        g.iter().zip(z).map(|(g, z)| gamma * g - z).collect::<Vec<f64>>()
    };
    let mut p = vec![1.0 / d as f64; d];
    let mut best = Solution { gap: gap(&slope(&p), &p), p: p.clone(), iterations: 0 };
    let (mut from, mut momentum, mut curvature) = (p.clone(), 1.0f64, gamma);
    for iteration in 1..=limit {
        let at = slope(&from);
        let (next, after) = step(&from, &at, &mut curvature, &slope);
        let now = gap(&after, &next);
        if now < best.gap {
            best = Solution { p: next.clone(), gap: now, iterations: iteration };
        }
        if best.gap <= tolerance {
            break;
        }
        let uphill: f64 = (0..d).map(|i| (from[i] - next[i]) * (next[i] - p[i])).sum();
        let grown = if uphill > 0.0 { 1.0 } else { (1.0 + (1.0 + 4.0 * momentum * momentum).sqrt()) / 2.0 };
        let push = if uphill > 0.0 { 0.0 } else { (momentum - 1.0) / grown };
        // Projected, so that Ω is only asked about distributions.
        from = project((0..d).map(|i| next[i] + push * (next[i] - p[i])).collect());
        (p, momentum) = (next, grown);
    }
    best
}

/// One projected step from `from`, with the gradient where it lands; `curvature` is raised until the
/// gradient changes by no more than it promises.
fn step(from: &[f64], at: &[f64], curvature: &mut f64, slope: &impl Fn(&[f64]) -> Vec<f64>) -> (Vec<f64>, Vec<f64>) {
    *curvature *= 0.9;
    loop {
        let next = project(from.iter().zip(at).map(|(p, g)| p - g / *curvature).collect());
        let after = slope(&next);
        let moved: Vec<f64> = next.iter().zip(from).map(|(a, b)| a - b).collect();
        let square: f64 = moved.iter().map(|m| m * m).sum();
        let bend: f64 = (0..moved.len()).map(|i| (after[i] - at[i]) * moved[i]).sum();
        // Below 1e−14 the difference of gradients is rounding.
        if bend <= *curvature * square || square < 1e-28 {
            return (next, after);
        }
        *curvature *= 2.0;
    }
}

/// The Frank–Wolfe gap <g, p> − min g of a minimisation with gradient g.
fn gap(g: &[f64], p: &[f64]) -> f64 {
    let least = g.iter().copied().fold(f64::INFINITY, f64::min);
    g.iter().zip(p).map(|(g, p)| (g - least) * p).sum()
}

/// Projection onto the simplex, by sorting.
fn project(x: Vec<f64>) -> Vec<f64> {
    let mut sorted = x.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let top = sorted[0];
    let (mut sum, mut tau) = (0.0, -1.0);
    for (k, &x) in sorted.iter().enumerate() {
        // Shifted by the maximum, so that a large common term costs no digit.
        sum += x - top;
        let candidate = (sum - 1.0) / (k + 1) as f64;
        if x - top > candidate {
            tau = candidate;
        }
    }
    x.iter().map(|x| (x - top - tau).max(0.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::scores;
    use crate::oracle::{Regularizer, max_error};

    /// Solves with Ω's gradient and compares with the oracle of `omega`.
    fn compare(seed: u64, omega: Regularizer, tolerance: f64, gradient: impl Fn(&[f64], &mut [f64])) {
        let mut rng = fastrand::Rng::with_seed(seed);
        for d in [1, 2, 5, 12] {
            let z = scores(&mut rng, d, 1.0);
            let found = maximize_on_simplex(&z, 0.7, &gradient, 1e-15, 20_000);
            let error = max_error(&found.p, &omega.map(&z, 0.7));
            assert!(error < tolerance, "{omega:?}, d = {d}: error {error:e}, {found:?}");
        }
    }

    #[test]
    fn reaches_the_oracles() {
        compare(23, Regularizer::HalfSquare, 1e-14, |p, g| g.copy_from_slice(p));
        compare(24, Regularizer::Tsallis(3.0), 1e-10, |p, g| {
            g.iter_mut().zip(p).for_each(|(g, p)| *g = p * p / 2.0);
        });
        compare(25, Regularizer::Tsallis(1.5), 1e-10, |p, g| {
            g.iter_mut().zip(p).for_each(|(g, p)| *g = 2.0 * p.sqrt());
        });
        compare(26, Regularizer::HalfSquaredNorm(1.5), 1e-10, |p, g| {
            let norm = p.iter().map(|p| p.powf(1.5)).sum::<f64>().powf(2.0 / 3.0);
            g.iter_mut().zip(p).for_each(|(g, p)| *g = (norm * p).sqrt());
        });
    }

    #[test]
    fn the_gap_bounds_the_error_when_the_limit_comes_first() {
        let z = [0.4, 0.1, -0.3, 0.2];
        let rough = maximize_on_simplex(&z, 1.0, |p, g| g.copy_from_slice(p), 0.0, 1);
        let exact = Regularizer::HalfSquare.map(&z, 1.0);
        // ½‖p − p*‖² ≤ gap.
        let error = max_error(&rough.p, &exact);
        assert!(0.5 * error * error <= rough.gap + 1e-15, "{rough:?}");
    }
}
