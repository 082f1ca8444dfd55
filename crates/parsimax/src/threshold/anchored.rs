//! α-entmax for α > 2, anchored at its smallest supported entry.
//!
//! For large α an entry just above τ has `p = (x − τ)^{1/(α−1)}`: one rounding error of τ moves it
//! by 2·10⁻² at α = 10. The probability `w` of the smallest supported entry `z_k` is a better
//! unknown. With `m = α − 1`,
//!
//! `p_i = (m(z_i − z_k)/γ + w^m)^{1/m}`.
//!
//! The differences are exact to their last digit, `Σp` has slope ≥ 1 in `w`, and `∂p_i/∂w ≤ 1`, so
//! nothing is magnified. Each `p_i` is an m-norm in `w`, hence convex, and Newton from the right
//! never passes the root. `k` is the last entry in descending order for which
//! `C(z_k) = Σ_{z_i > z_k} (m(z_i − z_k)/γ)^{1/m} < 1`; `C` grows as `z_k` falls, so `k` is found by
//! halving.

use super::MAX_STEPS;
use crate::numeric;

/// Replaces the raw scores `z` by their α-entmax with `m = α − 1 > 1`, and returns τ in the units
/// of `m·z/γ`. `work` is scratch memory.
pub(crate) fn solve(z: &mut [f64], m: f64, gamma: f64, work: &mut Vec<f64>) -> f64 {
    work.clear();
    work.extend_from_slice(z);
    let anchor = smallest_supported(work, m, gamma);
    let gap = |z: f64| m * ((z - anchor) / gamma);
    work.clear();
    work.extend(z.iter().filter(|z| **z >= anchor).map(|z| gap(*z)));
    let w = anchor_probability(work, m);
    let floor = w.powf(m);
    for z in z.iter_mut() {
        *z = if *z >= anchor { lifted(gap(*z), w, floor, m) } else { 0.0 };
    }
    numeric::polish(z, 1.0, |p| (w / p).powf(m - 1.0));
    m * (anchor / gamma) - floor
}

fn root(x: f64, m: f64) -> f64 {
    x.powf(1.0 / m)
}

/// `(gap + w^m)^{1/m}` with `floor = w^m`, which may underflow: the anchor itself has exactly `w`.
fn lifted(gap: f64, w: f64, floor: f64, m: f64) -> f64 {
    if gap == 0.0 { w } else { root(gap + floor, m) }
}

/// The smallest score that still gets mass, by halving the set around its median.
fn smallest_supported(z: &mut [f64], m: f64, gamma: f64) -> f64 {
    // z[..known] are supported and at least as large as everything in z[known..open].
    let (mut known, mut open) = (0, z.len());
    let mut anchor = numeric::max(z);
    while known < open {
        let middle = known + (open - known) / 2;
        z[known..open].select_nth_unstable_by(middle - known, |a, b| b.total_cmp(a));
        let pivot = z[middle];
        let above = numeric::sum(z[..middle].iter().map(|z| root(m * ((z - pivot) / gamma), m)));
        if above < 1.0 {
            anchor = pivot;
            known = middle + 1;
        } else {
            open = middle;
        }
    }
    anchor
}

/// `w` with `Σ (gap + w^m)^{1/m} = 1`, by Newton from the right.
fn anchor_probability(gaps: &[f64], m: f64) -> f64 {
    // The anchor is the smallest of k probabilities, and every p is at least its gap^{1/m}.
    let others = numeric::sum(gaps.iter().map(|g| root(*g, m)));
    let mut w = (1.0 / gaps.len() as f64).min((1.0 - others).max(0.0));
    for _ in 0..MAX_STEPS {
        let floor = w.powf(m);
        let excess = numeric::sum(gaps.iter().map(|g| lifted(*g, w, floor, m)).chain([-1.0]));
        let slope: f64 = gaps.iter().map(|g| (w / lifted(*g, w, floor, m)).powf(m - 1.0)).sum();
        let next = w - excess / slope;
        if next.is_nan() || next >= w || next <= 0.0 {
            break;
        }
        let step = w - next;
        w = next;
        if step <= 1e-17 {
            break;
        }
    }
    w
}
