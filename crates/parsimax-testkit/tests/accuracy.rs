//! Digits: every mapping against 60-digit arithmetic that shares no code with it.
//!
//! The bars are |p − p*| ≤ 2·10⁻¹⁵·√d in `f64` and ≤ 10⁻⁶ in `f32`, at every α, shift and scale of the
//! grid; supports equal away from ties; and for the gradient in α an error, relative to Σ|v_i ∂p_i/∂α|,
//! of at most 10⁻⁹ in `f64` and 10⁻⁴ in `f32`.

use fastrand::Rng;
use parsimax::registry::{Options, build};
use parsimax::{Entmax, Entmax15, Float, Mapping, MappingExt, Rows, Scratch, Softmax, Sparsemax, View, ViewMut};
use parsimax_testkit::cases;
use parsimax_testkit::oracle::{self, Big};

const ALPHAS: [f64; 10] = [1.0, 1.0 + 1e-6, 1.0001, 1.01, 1.25, 1.5, 2.0, 3.0, 4.0, 10.0];
const SHIFTS: [f64; 3] = [0.0, 1e4, 1e6];
const SCALES: [f64; 5] = [1e-3, 0.1, 1.0, 5.0, 30.0];
const WIDTHS: [usize; 4] = [1, 2, 7, 33];

/// Scores of the grid, rounded to `T` so that the oracle sees what the mapping sees.
fn grid<T: Float>() -> impl Iterator<Item = Vec<f64>> {
    let mut rng = Rng::with_seed(2019);
    let places = SHIFTS.into_iter().flat_map(|shift| SCALES.map(|scale| (shift, scale)));
    let places: Vec<_> = places.flat_map(|(shift, scale)| WIDTHS.map(|d| (shift, scale, d))).collect();
    places.into_iter().map(move |(shift, scale, d)| {
        let z = cases::normals(&mut rng, d, scale);
        z.into_iter().map(|z| T::narrow(z + shift).widen()).collect()
    })
}

/// Runs a mapping on `T` and returns its probabilities, widened.
fn apply<T: Float>(mapping: &impl Mapping, z: &[f64]) -> Vec<f64> {
    let z: Vec<T> = z.iter().map(|z| T::narrow(*z)).collect();
    mapping.apply(&z).unwrap().into_iter().map(T::widen).collect()
}

fn bar<T: Float>(d: usize) -> f64 {
    if T::EPSILON < 1e-10 { 2e-15 * (d as f64).sqrt() } else { 1e-6 }
}

/// Checks values, and supports where the exact probability is clear of both 0 and rounding.
fn check<T: Float>(what: &str, z: &[f64], p: &[f64], exact: &[Big]) {
    let error = oracle::max_error(p, exact);
    assert!(error <= bar::<T>(z.len()), "{what}: error {error:e} for {z:?}: {p:?}");
    for (p, exact) in p.iter().zip(exact) {
        let exact = exact.to_f64();
        assert!(exact > 0.0 || *p == 0.0 || *p <= bar::<T>(1), "{what}: {p} instead of 0 for {z:?}");
        assert!(exact < bar::<T>(1) || *p > 0.0, "{what}: 0 instead of {exact} for {z:?}");
    }
}

fn entmax_family<T: Float>() {
    for z in grid::<T>() {
        for alpha in ALPHAS {
            let exact = oracle::entmax(&z, alpha, 1.0);
            let p = apply::<T>(&Entmax::new(alpha).unwrap(), &z);
            check::<T>(&format!("entmax α = {alpha}"), &z, &p, &exact);
            match alpha {
                1.0 => check::<T>("softmax", &z, &apply::<T>(&Softmax::new(), &z), &exact),
                1.5 => check::<T>("entmax15", &z, &apply::<T>(&Entmax15::new(), &z), &exact),
                2.0 => check::<T>("sparsemax", &z, &apply::<T>(&Sparsemax::new(), &z), &exact),
                _ => {}
            }
        }
    }
}

#[test]
fn entmax_in_double_precision() {
    entmax_family::<f64>();
}

#[test]
fn entmax_in_single_precision() {
    entmax_family::<f32>();
}

/// The gradient in α, from the probabilities that a backward pass would have saved.
fn alpha_gradient<T: Float>(bar: f64) {
    let mut rng = Rng::with_seed(7);
    for z in grid::<T>() {
        let v: Vec<f64> = cases::direction(&mut rng, z.len()).iter().map(|v| T::narrow(*v).widen()).collect();
        for alpha in ALPHAS {
            let slope = oracle::to_f64(&oracle::entmax_alpha_gradient(&z, alpha, 1.0));
            let terms = slope.iter().zip(&v).map(|(s, v)| s * v);
            let (exact, scale) = terms.fold((0.0, 0.0), |(sum, abs), t| (sum + t, abs + t.abs()));
            let mapping = Entmax::new(alpha).unwrap();
            let narrow = |x: &[f64]| x.iter().map(|x| T::narrow(*x)).collect::<Vec<T>>();
            let (z, v) = (narrow(&z), narrow(&v));
            let p = mapping.apply(&z).unwrap();
            let shape = [z.len()];
            let view = |x| View::new(x, &shape).unwrap();
            let rows = Rows::new(&mapping);
            let alone = rows.parameter_vjp(view(&z), view(&p), view(&v)).unwrap()[0];
            let mut out = vec![T::default(); z.len()];
            let place = ViewMut::new(&mut out, &shape).unwrap();
            let fused = rows.vjp_with_parameter(view(&z), view(&p), view(&v), place).unwrap()[0];
            for (how, found) in [("alone", alone), ("fused", fused)] {
                let error = (found - exact).abs();
                // Among ties alone the gradient is 0, which the oracle knows to some 90 places; a probability
                // below the smallest f32 is gone, and its share of the gradient with it.
                let least = if T::EPSILON < 1e-10 || how == "alone" { 1e-60 } else { f64::from(f32::MIN_POSITIVE) };
                assert!(error <= bar * scale + least, "{how}, α = {alpha}: {found} against {exact}, {error:e}, {z:?}");
            }
        }
    }
}

#[test]
fn gradient_in_alpha_in_double_precision() {
    alpha_gradient::<f64>(1e-9);
}

#[test]
fn gradient_in_alpha_in_single_precision() {
    alpha_gradient::<f32>(1e-4);
}

/// Scores at 10⁶ lie on multiples of 1/16 in f32, so that entries sit on the threshold itself, where support
/// and gradient jump: neither may see an entry that is not there.
#[test]
fn edges_of_the_support_in_single_precision() {
    let mut rng = Rng::with_seed(1234);
    for _ in 0..400 {
        let d = [2, 3, 5, 8, 16, 33][rng.usize(..6)];
        let scale = [0.1, 0.3, 1.0, 3.0][rng.usize(..4)];
        let narrow = |x: f64| f64::from(x as f32);
        let z: Vec<f64> = cases::normals(&mut rng, d, scale).into_iter().map(|z| narrow(z + 1e6)).collect();
        let v: Vec<f64> = cases::direction(&mut rng, d).into_iter().map(narrow).collect();
        for alpha in [1.5, 1.75, 2.0, 3.0, 8.0] {
            let mapping = Entmax::new(alpha).unwrap();
            let p = apply::<f32>(&mapping, &z);
            check::<f32>(&format!("edge, α = {alpha}"), &z, &p, &oracle::entmax(&z, alpha, 1.0));
            let slope = oracle::to_f64(&oracle::entmax_alpha_gradient(&z, alpha, 1.0));
            let terms = slope.iter().zip(&v).map(|(s, v)| s * v);
            let (exact, size) = terms.fold((0.0, 0.0), |(sum, abs), t| (sum + t, abs + t.abs()));
            let [z, p, v] = [&z, &p, &v].map(|x| x.iter().map(|x| *x as f32).collect::<Vec<_>>());
            let (shape, mut out) = ([d], vec![0.0; d]);
            let view = |x| View::new(x, &shape).unwrap();
            let place = ViewMut::new(&mut out, &shape).unwrap();
            let found = Rows::new(&mapping).vjp_with_parameter(view(&z), view(&p), view(&v), place).unwrap()[0];
            // Below α = 2 an entry on the threshold may have the probability that the rounding of τ, at most
            // 6·10⁻⁸, gives it, and no more than the power 2 − α of it as its weight.
            let slack = if alpha < 2.0 { 6e-8 } else { 1e-30 };
            let error = (found - exact).abs();
            assert!(error <= 1e-4 * size + slack, "α = {alpha}: {found} against {exact}, {error:e}, {z:?} {p:?}");
        }
    }
}

/// Wide rows in order, as the longest of the grid is 33, and rows whose scores are hardly told apart.
#[test]
fn wide_and_narrow_rows_in_single_precision() {
    let mut rng = Rng::with_seed(5);
    for (d, scale) in [(4096, 1.0), (4096, 0.1), (4096, 0.01), (600, 0.01), (64, 1e-3), (200, 1e-3), (64, 1e-4)] {
        let mut z: Vec<f64> = cases::normals(&mut rng, d, scale).into_iter().map(|z| f64::from(z as f32)).collect();
        z.sort_by(f64::total_cmp);
        for alpha in [2.5, 3.0, 4.0, 8.0, 10.0] {
            let what = format!("ascending, d = {d}, scale = {scale}, α = {alpha}");
            let p = apply::<f32>(&Entmax::new(alpha).unwrap(), &z);
            check::<f32>(&what, &z, &p, &oracle::entmax(&z, alpha, 1.0));
        }
    }
}

/// Jv against the exact Jacobian, relative to its largest entry.
#[test]
fn entmax_vjp() {
    let mut rng = Rng::with_seed(8);
    for z in grid::<f64>() {
        let v = cases::direction(&mut rng, z.len());
        for alpha in ALPHAS {
            let mapping = Entmax::new(alpha).unwrap();
            let exact = oracle::to_f64(&oracle::entmax_vjp(&z, alpha, 1.0, &v));
            let found = mapping.vjp(&z, &v).unwrap();
            let scale = exact.iter().fold(1.0f64, |m, x| m.max(x.abs()));
            // p carries an absolute error of about 10⁻¹⁶; p^{2−α} magnifies it at tiny p for α > 2.
            let p = mapping.apply(&z).unwrap();
            let smallest = p.iter().copied().filter(|p| *p > 0.0).fold(1.0, f64::min);
            let magnified = if alpha > 2.0 { alpha / smallest } else { (1.0 / smallest.max(1e-3)).sqrt() * 10.0 };
            let error = found.iter().zip(&exact).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(error <= 1e-15 * scale * magnified * 20.0, "α = {alpha}: {error:e} of {scale:e}, {z:?}");
        }
    }
}

/// Every other mapping, at one strength beside 1.
fn the_rest_of_the_registry<T: Float>() {
    type Exact = fn(&[f64], f64, f64) -> Vec<Big>;
    let cases: &[(&str, &[f64], Exact)] = &[
        ("sq-pnorm-max", &[1.1, 1.5, 1.9, 2.0], oracle::sq_pnorm_max),
        ("normmax", &[1.2, 2.0, 3.0], oracle::normmax),
        ("budget", &[0.5, 1.0, 2.0, 7.5], oracle::budget),
        ("sparsehourglass", &[0.1, 1.0, 10.0], oracle::sparsehourglass),
        ("ev-softmax", &[0.0, 1e-6], |z, eps, gamma| match eps {
            0.0 => oracle::ev_softmax(z, gamma),
            _ => oracle::ev_softmax_training(z, eps, gamma),
        }),
    ];
    for (name, parameters, exact) in cases {
        for parameter in *parameters {
            for gamma in [1.0, 0.5] {
                let mut options = Options { gamma: Some(gamma), ..Options::default() };
                match *name {
                    "sq-pnorm-max" => options.p = Some(*parameter),
                    "normmax" => options.alpha = Some(*parameter),
                    "budget" => options.budget = Some(*parameter),
                    "sparsehourglass" => options.q = Some(*parameter),
                    _ => options.eps = Some(*parameter),
                }
                let mapping = build(name, &options).unwrap();
                for z in grid::<T>() {
                    let p = apply::<T>(&mapping, &z);
                    let what = format!("{name} {parameter} γ = {gamma}");
                    check::<T>(&what, &z, &p, &exact(&z, *parameter, gamma));
                }
            }
        }
    }
}

#[test]
fn the_rest_of_the_registry_in_double_precision() {
    the_rest_of_the_registry::<f64>();
}

#[test]
fn the_rest_of_the_registry_in_single_precision() {
    the_rest_of_the_registry::<f32>();
}

fn structured_mappings<T: Float>() {
    let mut rng = Rng::with_seed(5);
    for lambda in [0.0, 0.01, 0.1, 1.0] {
        for gamma in [1.0, 0.5] {
            let options = Options { lambda: Some(lambda), gamma: Some(gamma), ..Options::default() };
            let (fused, oscar) = (build("fusedmax", &options).unwrap(), build("oscarmax", &options).unwrap());
            for z in grid::<T>() {
                check::<T>("fusedmax", &z, &apply::<T>(&fused, &z), &oracle::fusedmax(&z, lambda, gamma));
                check::<T>("oscarmax", &z, &apply::<T>(&oscar, &z), &oracle::oscarmax(&z, lambda, gamma));
            }
            for _ in 0..12 {
                let d = rng.usize(1..=5);
                let z = cases::normals(&mut rng, d, 0.5);
                let z: Vec<f64> = z.into_iter().map(|z| T::narrow(z).widen()).collect();
                check::<T>("fusedmax", &z, &apply::<T>(&fused, &z), &oracle::fusedmax_brute(&z, lambda, gamma));
                check::<T>("oscarmax", &z, &apply::<T>(&oscar, &z), &oracle::oscarmax_brute(&z, lambda, gamma));
            }
        }
    }
}

#[test]
fn structured_mappings_in_double_precision() {
    structured_mappings::<f64>();
}

#[test]
fn structured_mappings_in_single_precision() {
    structured_mappings::<f32>();
}

/// τ as documented: p = [(α−1)z/γ − τ]₊^{1/(α−1)}.
#[test]
fn thresholds() {
    for z in grid::<f64>() {
        for alpha in [1.25, 1.5, 2.0, 4.0] {
            let mapping = Entmax::new(alpha).unwrap().with_gamma(0.5).unwrap();
            let mut p = vec![0.0; z.len()];
            let tau = mapping.forward_row(&z, &mut p, &mut Scratch::new()).unwrap().unwrap();
            let exact = oracle::entmax_tau(&z, alpha, 0.5).unwrap().to_f64();
            assert!((tau - exact).abs() <= 4e-16 * (1.0 + exact.abs()), "α = {alpha}: τ = {tau}, {exact}");
        }
    }
}
