//! The threshold of 1.5-entmax: `Σ [x_i − τ]₊² = 1`.
//!
//! With the support known, τ is the smaller root of a quadratic: `τ = M − √((1 − V)/k)` with the
//! mean `M`, the squared deviation `V = Σ(x − M)²` and the size `k` of the support. The support
//! comes from Newton on the norm `‖[x − τ]₊‖₂ = 1`, a convex function that is nearly linear, from
//! the left. As soon as the closed form on the active entries keeps all of them it is exact.

use super::MAX_STEPS;
use crate::numeric;

/// Replaces raw scores by the 1.5-entmax of strength `gamma` and returns τ in the units of z/(2γ).
pub(crate) fn solve(z: &mut [f64], gamma: f64) -> f64 {
    let top = numeric::max(z);
    for z in z.iter_mut() {
        *z = (*z - top) / (2.0 * gamma);
    }
    let tau = shifted_threshold(z);
    for z in z.iter_mut() {
        let root = (*z - tau).max(0.0);
        *z = root * root;
    }
    numeric::polish(z, 1.0, f64::sqrt);
    tau + top / (2.0 * gamma)
}

/// τ of entries whose maximum is 0.
fn shifted_threshold(x: &[f64]) -> f64 {
    let mut tau = -1.0;
    for _ in 0..MAX_STEPS {
        let active = || x.iter().copied().filter(|x| *x > tau);
        let mut k = 0.0;
        let sum = numeric::sum(active().inspect(|_| k += 1.0));
        let mean = sum / k;
        let spread = numeric::sum(active().map(|x| (x - mean) * (x - mean)));
        if spread <= 1.0 {
            let root = mean - ((1.0 - spread) / k).sqrt();
            let lowest = active().fold(f64::INFINITY, f64::min);
            if lowest > root {
                return root;
            }
        }
        // Newton on the norm, from the left: with F = Σ(x−τ)² and G = Σ(x−τ) the step is
        // (√F − 1)·√F / G.
        let (f, g) = active().fold((0.0, 0.0), |(f, g), x| (f + (x - tau) * (x - tau), g + (x - tau)));
        let norm = f64::sqrt(f);
        let next = tau + (norm - 1.0) * norm / g;
        if next.is_nan() || next <= tau {
            // Only rounding is left between the iterate and the root: a tie at the threshold.
            return tau;
        }
        tau = next.min(-f64::MIN_POSITIVE);
    }
    tau
}
