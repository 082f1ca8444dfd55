//! Every kernel at every level that this machine has, against plain f64 code.

mod backward;
mod edges;
mod forward;

use super::*;

/// Calls [`forward`] at a level; returns the probabilities, τ and statuses.
pub(super) fn run(
    level: Level,
    map: Map,
    z: &[f32],
    d: usize,
    scale: f32,
) -> (Vec<f32>, Vec<f64>, Vec<Status>) {
    let rows = z.len().checked_div(d).unwrap_or(3);
    // Poisoned, so that an entry left unwritten shows.
    let mut out = vec![7.0; z.len()];
    let mut tau = vec![7.0; rows];
    let mut status = vec![Status::Bad; rows];
    with_level(level, || {
        assert_eq!(active(), level);
        let mut scratch = Scratch::new();
        forward(
            map,
            Forward {
                z,
                d,
                scale,
                out: &mut out,
                tau: Some(&mut tau),
                status: &mut status,
                scratch: &mut scratch,
            },
        );
    });
    (out, tau, status)
}

/// A standard normal number (Box–Muller).
pub(super) fn normal(rng: &mut fastrand::Rng) -> f32 {
    let r = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    (r * (std::f64::consts::TAU * rng.f64()).cos()) as f32
}

/// `n` normal numbers of the given scale.
pub(super) fn normals(rng: &mut fastrand::Rng, n: usize, sigma: f32) -> Vec<f32> {
    (0..n).map(|_| sigma * normal(rng)).collect()
}

/// Factor and power of a thresholded mapping: `[inner·x − τ]₊^e`.
fn shape(map: Map) -> (f64, f64) {
    match map {
        Map::Softmax => unreachable!("softmax has no threshold"),
        Map::Sparsemax => (1.0, 1.0),
        Map::Entmax15 => (0.5, 2.0),
    }
}

/// The mapping by its definition, in f64; thresholds by bisection until nothing moves.
pub(super) fn reference(map: Map, z: &[f32], scale: f32) -> Vec<f64> {
    let max = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return vec![0.0; z.len()];
    }
    let x: Vec<f64> = z
        .iter()
        .map(|&v| (f64::from(v) - f64::from(max)) * f64::from(scale))
        .collect();
    if map == Map::Softmax {
        let total: f64 = x.iter().map(|v| v.exp()).sum();
        return x.iter().map(|v| v.exp() / total).collect();
    }
    let (inner, e) = shape(map);
    let power = move |u: f64| if e == 1.0 { u } else if e == 2.0 { u * u } else { u.powf(e) };
    let p = |t: f64| x.iter().map(move |v| power((inner * v - t).max(0.0)));
    let (mut lo, mut hi) = (-1.0, 0.0);
    for _ in 0..64 {
        let mid = 0.5 * (lo + hi);
        if p(mid).sum::<f64>() >= 1.0 {
            lo = mid
        } else {
            hi = mid
        }
    }
    p(lo).collect()
}

/// One row against its reference: distance, sum, sign, support away from ties.
pub(super) fn check(p: &[f32], want: &[f64], what: &str) {
    let mut sum = 0.0;
    for (i, (&a, &b)) in p.iter().zip(want).enumerate() {
        assert!(
            (f64::from(a) - b).abs() <= 1e-6,
            "{what}: p[{i}] = {a}, expected {b}"
        );
        assert!(a >= 0.0, "{what}: p[{i}] = {a} is negative");
        assert!(a > 0.0 || b < 3e-7, "{what}: p[{i}] lost, expected {b}");
        sum += f64::from(a);
    }
    // Four ulp of one, times √d.
    let slack = 4.0 * f64::from(f32::EPSILON) * (p.len() as f64).sqrt();
    assert!(
        (sum - 1.0).abs() <= slack,
        "{what}: the row sums to 1 + {:e}",
        sum - 1.0
    );
}
