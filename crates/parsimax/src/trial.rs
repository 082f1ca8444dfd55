//! What the unit tests of the mappings share: rows to try, and checks against differences and limits.

use crate::numeric;
use crate::{Mapping, Result, Scratch, Support};
use fastrand::Rng;

/// A row of `d` scores around 0 of the given size.
pub(crate) fn row(rng: &mut Rng, d: usize, size: f64) -> Vec<f64> {
    (0..d).map(|_| size * (rng.f64() + rng.f64() + rng.f64() - 1.5) * 2.0).collect()
}

/// Π(z) and τ.
pub(crate) fn forward(mapping: &impl Mapping, z: &[f64]) -> (Vec<f64>, Option<f64>) {
    let mut p = vec![f64::NAN; z.len()];
    let tau = mapping.forward_row(z, &mut p, &mut Scratch::new()).unwrap();
    (p, tau)
}

pub(crate) fn vjp(mapping: &impl Mapping, z: &[f64], v: &[f64]) -> Vec<f64> {
    let (p, mut out) = (forward(mapping, z).0, vec![f64::NAN; z.len()]);
    mapping.vjp_row(z, &p, v, &mut out, &mut Scratch::new()).unwrap();
    out
}

pub(crate) fn jvp(mapping: &impl Mapping, z: &[f64], v: &[f64]) -> Vec<f64> {
    let (p, mut out) = (forward(mapping, z).0, vec![f64::NAN; z.len()]);
    mapping.jvp_row(z, &p, v, &mut out, &mut Scratch::new()).unwrap();
    out
}

#[track_caller]
pub(crate) fn assert_close(a: &[f64], b: &[f64], tolerance: f64) {
    let far = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(a.len() == b.len() && far <= tolerance, "{far:e}: {a:?} {b:?}");
}

/// Entries ≥ 0, sum right within 4 ulp·√d, sparse row the same as the dense one.
#[track_caller]
pub(crate) fn assert_distribution(mapping: &impl Mapping, z: &[f64]) {
    let (p, tau) = forward(mapping, z);
    let total = mapping.total(z.len());
    let error = (numeric::sum(p.iter().copied()) - total).abs();
    let tolerance = 4.0 * f64::EPSILON * total.max(1.0) * (z.len() as f64).sqrt();
    assert!(p.iter().all(|p| *p >= 0.0) && error <= tolerance, "off by {error:e}: {p:?} for {z:?}");
    assert!(tau.is_none_or(|tau| !tau.is_nan()));
    let mut support = Support::default();
    mapping.support_row(z, &mut support, &mut Scratch::new()).unwrap();
    let mut dense = vec![0.0; z.len()];
    for (i, value) in support.index.iter().zip(&support.value) {
        assert!(*value > 0.0);
        dense[*i as usize] = *value;
    }
    assert_eq!(dense, p);
}

/// The Jacobian against central differences in random directions, at rows of scores of that size.
#[track_caller]
pub(crate) fn assert_derivatives(mapping: &impl Mapping, size: f64, rng: &mut Rng) {
    let h = 1e-6 * size;
    let mut checked = 0;
    for d in [2, 3, 8, 30] {
        for _ in 0..40 {
            let (z, u, v) = (row(rng, d, size), row(rng, d, 1.0), row(rng, d, 1.0));
            let at = |step: f64| {
                let moved: Vec<f64> = z.iter().zip(&u).map(|(z, u)| z + step * u).collect();
                forward(mapping, &moved).0
            };
            let (p, right, left) = (at(0.0), at(2.0 * h), at(-2.0 * h));
            // A kink within the step, or next to it.
            let smooth = |p: &f64| *p == 0.0 || *p == 1.0 || (*p > 1e-3 && *p < 1.0 - 1e-3);
            let same = (0..d).all(|i| (right[i] > 0.0) == (left[i] > 0.0) && (right[i] < 1.0) == (left[i] < 1.0));
            if !p.iter().all(smooth) || !same {
                continue;
            }
            checked += 1;
            let wide: Vec<f64> = (0..d).map(|i| (right[i] - left[i]) / (4.0 * h)).collect();
            let (right, left) = (at(h), at(-h));
            let difference: Vec<f64> = (0..d).map(|i| (right[i] - left[i]) / (2.0 * h)).collect();
            // Rounding leaves about 10⁻¹⁰/size, the third derivative a third of what it moved the wide one.
            let curved = (0..d).map(|i| (wide[i] - difference[i]).abs()).fold(0.0, f64::max);
            let tolerance = 4e-9 / size + curved;
            let (forwards, backwards) = (jvp(mapping, &z, &u), vjp(mapping, &z, &v));
            assert_close(&forwards, &difference, tolerance);
            let (there, back) = (numeric::dot(&v, &difference), numeric::dot(&backwards, &u));
            assert!((there - back).abs() <= 10.0 * tolerance, "{there} {back} for {z:?}");
            assert_sparse_vjp(mapping, &p, &v, &backwards);
        }
    }
    assert!(checked >= 20, "only {checked} rows were smooth");
}

/// The derivative from the support alone is the dense one, where there is such a thing.
#[track_caller]
fn assert_sparse_vjp(mapping: &impl Mapping, p: &[f64], v: &[f64], dense: &[f64]) {
    let index: Vec<u32> = (0..p.len() as u32).filter(|i| p[*i as usize] > 0.0).collect();
    let pick = |x: &[f64]| -> Vec<f64> { index.iter().map(|i| x[*i as usize]).collect() };
    let mut out = vec![f64::NAN; index.len()];
    if mapping.support_vjp_row(&index, &pick(p), &pick(v), &mut out).is_some() {
        let largest = dense.iter().fold(0.0f64, |a, b| a.max(b.abs()));
        assert_close(&out, &pick(dense), 1e-14 * largest);
    }
}

/// The gradient in the shape parameter against central differences with a step of 10⁻⁵·`scale`.
#[track_caller]
pub(crate) fn assert_parameter_gradient<M: Mapping>(
    build: impl Fn(f64) -> Result<M>,
    at: f64,
    scale: f64,
    size: f64,
    rng: &mut Rng,
) {
    let h = 1e-5 * scale;
    let mut checked = 0;
    for _ in 0..40 {
        let (z, v) = (row(rng, 7, size), row(rng, 7, 1.0));
        let [p, right, left] = [0.0, h, -h].map(|step| forward(&build(at + step).unwrap(), &z).0);
        if !p.iter().all(|p| *p == 0.0 || *p > 1e-2) || (0..7).any(|i| (right[i] > 0.0) != (left[i] > 0.0)) {
            continue;
        }
        checked += 1;
        let difference = (numeric::dot(&v, &right) - numeric::dot(&v, &left)) / (2.0 * h);
        let gradient = build(at).unwrap().parameter_vjp_row(&z, &p, &v, &mut Scratch::new()).unwrap();
        assert!((gradient - difference).abs() <= 1e-7 / scale, "{gradient} {difference} at {at}");
    }
    assert!(checked >= 10, "only {checked} rows were smooth");
}

/// Rows that break careless code: one and two entries, ties, shifts, every magnitude.
#[track_caller]
pub(crate) fn assert_survives(mapping: &impl Mapping) {
    let mut rng = Rng::with_seed(99);
    let mut rows = vec![
        vec![3.0],
        vec![-1e30],
        vec![0.0, 0.0],
        vec![1.0, -1.0],
        vec![0.7; 5],
        vec![-1e30; 7],
        vec![0.1; 1000],
        vec![1.0, 1.0, 0.0, 0.0, -1.0],
        vec![1e30, -1e30, 0.0, 1.0],
        vec![1e30, 1e30, 0.0],
        vec![1e-30, -1e-30, 0.0],
        vec![f64::MAX, -f64::MAX, 0.0],
        vec![f64::MIN_POSITIVE, 5e-324, 0.0],
    ];
    for d in [2, 3, 17, 300] {
        for size in [1e-30, 1e-12, 1e-3, 1.0, 30.0, 1e6, 1e30] {
            let z = row(&mut rng, d, size);
            rows.push(z.iter().map(|z| z + 1e6).collect());
            rows.push(z);
        }
    }
    for z in &rows {
        assert_distribution(mapping, z);
        let v = row(&mut rng, z.len(), 1.0);
        assert!(vjp(mapping, z, &v).iter().all(|g| !g.is_nan()), "the derivative at {z:?}");
        assert!(jvp(mapping, z, &v).iter().all(|g| !g.is_nan()), "the derivative at {z:?}");
        let (p, _) = forward(mapping, z);
        let gradient = mapping.parameter_vjp_row(z, &p, &v, &mut Scratch::new());
        assert!(gradient.is_none_or(|g| !g.is_nan()), "the gradient in the parameter at {z:?}");
        if z.iter().all(|x| *x == z[0]) {
            let uniform = mapping.total(z.len()) / z.len() as f64;
            assert_close(&p, &vec![uniform; z.len()], 4.0 * f64::EPSILON);
        }
    }
}
