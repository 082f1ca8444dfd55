//! Checks that the tests of the mappings with groups share.

use crate::{Mapping, MappingExt, Scratch, Support};

/// A mapping from λ and γ.
type Build = fn(f64, f64) -> Box<dyn Mapping>;

/// Random scores, on a coarse grid if `ties` are wanted.
pub(crate) fn row(rng: &mut fastrand::Rng, d: usize, ties: bool) -> Vec<f64> {
    (0..d).map(|_| if ties { f64::from(rng.i32(-4..5)) * 0.25 } else { rng.f64() * 2.0 - 1.0 }).collect()
}

fn difference(up: &[f64], down: &[f64], h: f64) -> Vec<f64> {
    up.iter().zip(down).map(|(a, b)| (a - b) / (2.0 * h)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Compares VJP, JVP and gradient in λ with central differences at random points.
///
/// The mappings are piecewise linear in `z` and λ: away from a kink the differences are exact but for
/// rounding. A kink between the two evaluations shows as unequal one-sided slopes; such points, a few in
/// a thousand, are skipped, and the count is bounded.
pub(crate) fn gradients(seed: u64, build: Build) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut kinks, rounds, h) = (0, 3000, 1e-6);
    for _ in 0..rounds {
        let d = rng.usize(1..16);
        let (lambda, gamma) = (0.01 + 0.1 * rng.f64() * rng.f64(), 0.3 + rng.f64());
        let (z, v, w) = (row(&mut rng, d, false), row(&mut rng, d, false), row(&mut rng, d, false));
        let m = build(lambda, gamma);
        let p = m.apply(&z).unwrap();
        let mut scratch = Scratch::new();
        let (mut vjp, mut jvp) = (vec![0.0; d], vec![0.0; d]);
        m.vjp_row(&z, &p, &v, &mut vjp, &mut scratch).unwrap();
        m.jvp_row(&z, &p, &w, &mut jvp, &mut scratch).unwrap();
        let along = |t: f64| m.apply(&z.iter().zip(&w).map(|(z, w)| z + t * w).collect::<Vec<_>>()).unwrap();
        let penalty = |t: f64| build(lambda + t, gamma).apply(&z).unwrap();
        let smooth = |f: &dyn Fn(f64) -> Vec<f64>| {
            let (up, down) = (f(h), f(-h));
            (0..d).all(|i| (up[i] + down[i] - 2.0 * p[i]).abs() < 1e-12).then(|| difference(&up, &down, h))
        };
        // Rounding of p, 10⁻¹⁶, over h.
        match smooth(&along) {
            Some(slope) => {
                assert!((dot(&v, &slope) - dot(&vjp, &w)).abs() < 1e-8, "vjp {z:?} {lambda} {gamma}");
                assert!(slope.iter().zip(&jvp).all(|(a, b)| (a - b).abs() < 1e-8), "jvp {z:?} {lambda} {gamma}");
            }
            None => kinks += 1,
        }
        match smooth(&penalty) {
            Some(slope) => {
                let gradient = m.parameter_vjp_row(&z, &p, &v, &mut scratch).unwrap();
                assert!((dot(&v, &slope) - gradient).abs() < 1e-8, "λ {z:?} {lambda} {gamma}");
            }
            None => kinks += 1,
        }
    }
    assert!(kinks < rounds / 100, "{kinks}");
}

/// The VJP from the sparse row has the bits of the dense one, ties and λ = 0 included.
pub(crate) fn sparse_derivative(seed: u64, build: Build) {
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..2000 {
        let d = rng.usize(1..40);
        let m = build(if round % 7 == 0 { 0.0 } else { 0.1 * rng.f64() }, 0.5 + rng.f64());
        let (z, v) = (row(&mut rng, d, round % 2 == 0), row(&mut rng, d, false));
        let (mut p, mut dense, mut scratch, mut support) =
            (vec![0.0; d], vec![0.0; d], Scratch::new(), Support::default());
        let tau = m.forward_row(&z, &mut p, &mut scratch).unwrap();
        assert_eq!(m.support_row(&z, &mut support, &mut scratch).unwrap(), tau);
        assert!(support.index.is_sorted() && support.index.len() == p.iter().filter(|p| **p > 0.0).count());
        assert!(support.index.iter().zip(&support.value).all(|(i, value)| *value == p[*i as usize]));
        m.vjp_row(&z, &p, &v, &mut dense, &mut scratch).unwrap();
        let on: Vec<f64> = support.index.iter().map(|i| v[*i as usize]).collect();
        let mut out = vec![f64::NAN; on.len()];
        m.support_vjp_row(&support.index, &support.value, &on, &mut out).unwrap();
        for (i, g) in support.index.iter().zip(&out) {
            assert_eq!(dense[*i as usize].to_bits(), g.to_bits(), "{z:?}");
            dense[*i as usize] = 0.0;
        }
        assert!(dense.iter().all(|g| *g == 0.0));
    }
}

/// Rows of every magnitude and length: a distribution, finite gradients, no panic.
pub(crate) fn extremes(build: Build) {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut check = |z: &[f64], lambda: f64, gamma: f64| {
        let (m, d) = (build(lambda, gamma), z.len());
        let p = m.apply(z).unwrap();
        let total = crate::numeric::sum(p.iter().copied());
        assert!(p.iter().all(|p| *p >= 0.0), "{lambda} {gamma}");
        assert!((total - 1.0).abs() <= 4.0 * f64::EPSILON * (d as f64).sqrt(), "{total} {lambda} {gamma} {d}");
        let v = row(&mut rng, d, false);
        let vjp = m.vjp(z, &v).unwrap();
        assert!(vjp.iter().all(|g| g.is_finite()));
        assert!(m.parameter_vjp_row(z, &p, &v, &mut Scratch::new()).unwrap().is_finite());
    };
    for scale in [0.0, 1e-30, 1e-3, 1.0, 1e6, 1e30] {
        for lambda in [0.0, 1e-30, 1e-2, 1.0, 1e30, 1e100] {
            for gamma in [1e-30, 1.0, 1e30, 1e-100] {
                for base in [&[1.0][..], &[0.3, -0.2], &[0.0, 0.0, -1.0, 1.0, 0.9, -0.9, 0.5, 0.5]] {
                    let z: Vec<f64> = base.iter().map(|z| z * scale).collect();
                    check(&z, lambda, gamma);
                }
            }
        }
    }
    let d = 1 << 20;
    let shapes: [fn(usize) -> f64; 3] = [
        |i| if i % 2 == 0 { 1.0 } else { -1.0 },
        |i| i as f64 * 1e-6,
        |i| 0.999_99f64.powi(i as i32) * if i % 2 == 0 { 1.0 } else { -1.0 },
    ];
    for shape in shapes {
        let z: Vec<f64> = (0..d).map(shape).collect();
        check(&z, 1e-4, 1.0);
    }
    let z = row(&mut fastrand::Rng::with_seed(6), d, false);
    check(&z, 1e-7, 1.0);
}
