//! Seeded score vectors of every character that has broken such code before.

use fastrand::Rng;

/// A standard normal number (Box–Muller).
pub fn normal(rng: &mut Rng) -> f64 {
    let (u, v) = (1.0 - rng.f64(), rng.f64());
    (-2.0 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

/// `d` normal numbers of the given scale.
pub fn normals(rng: &mut Rng, d: usize, scale: f64) -> Vec<f64> {
    (0..d).map(|_| scale * normal(rng)).collect()
}

/// A row of `1 ..= most` scores: normal at one of many scales, on a grid (many ties), constant,
/// sorted, one peak, or shifted far from 0.
pub fn scores(rng: &mut Rng, most: usize) -> Vec<f64> {
    let d = if rng.u8(..4) == 0 { rng.usize(1..=3.min(most)) } else { rng.usize(1..=most) };
    let scale = [1e-3, 0.03, 0.3, 1.0, 1.0, 3.0, 30.0][rng.usize(..7)];
    let mut z = normals(rng, d, scale);
    match rng.u8(..8) {
        0 => z.iter_mut().for_each(|z| *z = (*z * 4.0).round() / 4.0),
        1 => z.fill(scale),
        2 => z.sort_by(f64::total_cmp),
        3 => z.sort_by(|a, b| b.total_cmp(a)),
        4 => z[rng.usize(..d)] += 2.0,
        5 => {
            let shift = [1e4, -1e6, 1e3][rng.usize(..3)];
            z.iter_mut().for_each(|z| *z += shift);
        }
        _ => {}
    }
    z
}

/// A direction with entries of order 1.
pub fn direction(rng: &mut Rng, d: usize) -> Vec<f64> {
    normals(rng, d, 1.0)
}

/// A point of the simplex with zeros in it.
pub fn distribution(rng: &mut Rng, d: usize) -> Vec<f64> {
    let mut p: Vec<f64> = (0..d).map(|_| if rng.bool() { 0.0 } else { -(1.0 - rng.f64()).ln() }).collect();
    if p.iter().all(|p| *p == 0.0) {
        p[rng.usize(..d)] = 1.0;
    }
    let total: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= total);
    p
}
