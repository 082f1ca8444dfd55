//! Every kernel at every level that this machine has, against plain f64 code.

mod abreast;
mod alpha;
mod attention;
mod backward;
mod cells;
mod edges;
mod forward;
mod loss;
mod matmul;
mod place;
mod ranked;
mod structured;
mod sweep;
mod together;
mod verge;

use parsimax_kernel::*;

/// Calls [`forward`] at a level; returns the probabilities, τ and statuses. Streamed or not, and without τ, they are the
/// same.
fn run(level: Level, map: Map, z: &[f32], d: usize, scale: f32) -> (Vec<f32>, Vec<f64>, Vec<Status>) {
    let stored = run_with(level, map, z, d, scale, false);
    let streamed = run_with(level, map, z, d, scale, true);
    let bits = |p: &[f32]| p.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
    assert!(bits(&stored.0) == bits(&streamed.0), "{map:?} of rows of {d} at {level:?} differ when streamed");
    assert_eq!(stored.2, streamed.2);
    let (mut out, mut status) = (vec![7.0; z.len()], vec![Status::Bad; stored.2.len()]);
    with_level(level, || {
        let (out, status, scratch) = (&mut out, &mut status, &mut Scratch::new());
        forward(map, Forward { z, d, scale, out, stream: false, tau: None, status, scratch });
    });
    assert!(bits(&stored.0) == bits(&out), "{map:?} of rows of {d} at {level:?} differ without τ");
    assert_eq!(stored.2, status);
    stored
}

/// [`run`], streamed or not.
fn run_with(
    level: Level,
    map: Map,
    z: &[f32],
    d: usize,
    scale: f32,
    stream: bool,
) -> (Vec<f32>, Vec<f64>, Vec<Status>) {
    let rows = z.len().checked_div(d).unwrap_or(3);
    // Poisoned, so that an entry left unwritten shows.
    let mut out = vec![7.0; z.len()];
    let mut tau = vec![7.0; rows];
    let mut status = vec![Status::Bad; rows];
    with_level(level, || {
        assert_eq!(active(), level);
        let mut scratch = Scratch::new();
        let (status, scratch) = (&mut status, &mut scratch);
        forward(map, Forward { z, d, scale, out: &mut out, stream, tau: Some(&mut tau), status, scratch });
    });
    (out, tau, status)
}

/// A standard normal number (Box–Muller).
fn normal(rng: &mut fastrand::Rng) -> f32 {
    let r = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
    (r * (std::f64::consts::TAU * rng.f64()).cos()) as f32
}

/// `n` normal numbers of the given scale.
fn normals(rng: &mut fastrand::Rng, n: usize, sigma: f32) -> Vec<f32> {
    (0..n).map(|_| sigma * normal(rng)).collect()
}

/// Factor and power of a thresholded mapping: `[inner·x − τ]₊^e`.
fn shape(map: Map) -> (f64, f64) {
    match map {
        Map::Softmax | Map::EvSoftmax => unreachable!("no threshold"),
        Map::Sparsemax => (1.0, 1.0),
        Map::Entmax15 => (0.5, 2.0),
        Map::Entmax(a) => (a - 1.0, 1.0 / (a - 1.0)),
    }
}

/// The mapping by its definition, in f64; thresholds by bisection until nothing moves.
fn reference(map: Map, z: &[f32], scale: f32) -> Vec<f64> {
    let max = z.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return vec![0.0; z.len()];
    }
    let x: Vec<f64> = z.iter().map(|&v| (f64::from(v) - f64::from(max)) * f64::from(scale)).collect();
    // Closer to 1 than f32 can tell apart, α-entmax is softmax.
    if map == Map::Softmax || matches!(map, Map::Entmax(alpha) if alpha - 1.0 < 1e-7) {
        let total: f64 = x.iter().map(|v| v.exp()).sum();
        return x.iter().map(|v| v.exp() / total).collect();
    }
    if map == Map::EvSoftmax {
        let live = || z.iter().filter(|v| **v > f32::NEG_INFINITY).map(|&v| f64::from(v));
        let mean = live().sum::<f64>() / live().count() as f64;
        let least = mean.min(f64::from(max));
        let weight = |i: usize| {
            if f64::from(z[i]) >= least { x[i].exp() } else { 0.0 }
        };
        let total: f64 = (0..z.len()).map(weight).sum();
        return (0..z.len()).map(|i| weight(i) / total).collect();
    }
    if let Map::Entmax(alpha) = map {
        return if alpha < 2.0 {
            below_two(&x, alpha - 1.0)
        } else {
            above_two(z, (alpha - 1.0, (alpha - 1.0) * f64::from(scale)))
        };
    }
    let (inner, e) = shape(map);
    let power = move |u: f64| {
        if e == 1.0 {
            u
        } else if e == 2.0 {
            u * u
        } else {
            u.powf(e)
        }
    };
    let p = |t: f64| x.iter().map(move |v| power((inner * v - t).max(0.0)));
    let (mut lo, mut hi) = (-1.0, 0.0);
    for _ in 0..64 {
        let mid = 0.5 * (lo + hi);
        if p(mid).sum::<f64>() >= 1.0 { lo = mid } else { hi = mid }
    }
    p(lo).collect()
}

/// Entmax for 1 < α < 2: `exp(log1p(δ(x − t))/δ)`, which loses nothing as δ → 0.
fn below_two(x: &[f64], delta: f64) -> Vec<f64> {
    let p = |t: f64| {
        x.iter().map(move |v| {
            let w = delta * (v - t);
            if w <= -1.0 { 0.0 } else { (w.ln_1p() / delta).exp() }
        })
    };
    let (mut lo, mut hi) = (0.0, (x.len() as f64).ln().min(1.0 / delta));
    for _ in 0..64 {
        let mid = 0.5 * (lo + hi);
        if p(mid).sum::<f64>() >= 1.0 { lo = mid } else { hi = mid }
    }
    p(lo).collect()
}

/// Entmax for α > 2, anchored at the smallest supported entry, whose probability is the unknown. Differences of scores are
/// exact; those of distances from the maximum are not, and powers below 1 are steep.
fn above_two(z: &[f32], (delta, scale): (f64, f64)) -> Vec<f64> {
    let e = 1.0 / delta;
    let mut sorted: Vec<f64> = z.iter().map(|v| f64::from(*v)).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let max = sorted[0];
    sorted.retain(|v| (max - v) * scale <= 1.0);
    let mass = |k: usize| sorted[..k].iter().map(|v| ((v - sorted[k]) * scale).powf(e)).sum::<f64>();
    let (mut k, mut end) = (0, sorted.len());
    while k + 1 < end {
        let mid = (k + end) / 2;
        if mass(mid) < 1.0 { k = mid } else { end = mid }
    }
    let anchor = sorted[k];
    let one = |v: f64, w: f64| match (v - anchor) * scale {
        dv if dv < 0.0 => 0.0,
        0.0 => w,
        dv => (dv + w.powf(delta)).powf(e),
    };
    let (mut lo, mut hi) = (0.0, 1.0);
    for _ in 0..64 {
        let mid = 0.5 * (lo + hi);
        if sorted.iter().map(|&v| one(v, mid)).sum::<f64>() < 1.0 { lo = mid } else { hi = mid }
    }
    z.iter().map(|&v| one(f64::from(v), lo)).collect()
}

/// One row against its reference: distance, sum, sign, support away from ties.
fn check(p: &[f32], want: &[f64], what: &str) {
    let mut sum = 0.0;
    for (i, (&a, &b)) in p.iter().zip(want).enumerate() {
        assert!((f64::from(a) - b).abs() <= 1e-6, "{what}: p[{i}] = {a}, expected {b}");
        assert!(a >= 0.0, "{what}: p[{i}] = {a} is negative");
        assert!(a > 0.0 || b < 3e-7, "{what}: p[{i}] lost, expected {b}");
        sum += f64::from(a);
    }
    // Four ulp of one, times √d.
    let slack = 4.0 * f64::from(f32::EPSILON) * (p.len() as f64).sqrt();
    assert!((sum - 1.0).abs() <= slack, "{what}: the row sums to 1 + {:e}", sum - 1.0);
}
