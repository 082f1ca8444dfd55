//! The input policy, for every mapping: masks, NaN, infinities, widths, magnitudes, types, layouts,
//! threads.

use fastrand::Rng;
use half::{bf16, f16};
use parsimax::{Error, Float, MappingExt, Rows, View, ViewMut};
use parsimax_testkit::cases;
use parsimax_testkit::laws::{distance, exact_sum};
use parsimax_testkit::subjects::{self, Subject};

const INF: f64 = f64::INFINITY;

fn forward<T: Float>(subject: &Subject, z: &[T], shape: &[usize]) -> parsimax::Result<Vec<T>> {
    let mut p = vec![T::NAN; z.len()];
    Rows::new(&subject.mapping).forward(View::new(z, shape)?, ViewMut::new(&mut p, shape)?)?;
    Ok(p)
}

fn vjp<T: Float>(subject: &Subject, z: &[T], p: &[T], v: &[T], shape: &[usize]) -> parsimax::Result<Vec<T>> {
    let mut g = vec![T::NAN; z.len()];
    let view = |x| View::new(x, shape);
    Rows::new(&subject.mapping).vjp(view(z)?, view(p)?, view(v)?, ViewMut::new(&mut g, shape)?)?;
    Ok(g)
}

#[test]
fn masked_rows_are_zero_with_zero_gradient() {
    for s in subjects::all() {
        let z = [-INF, -INF, -INF, 0.3, -INF, 0.1];
        let p = forward(&s, &z, &[2, 3]).unwrap();
        assert_eq!(p[..3], [0.0; 3], "{s:?}");
        assert_eq!(p[4], 0.0, "{s:?}");
        let g = vjp(&s, &z, &p, &[1.0, 2.0, 3.0, 4.0, f64::NAN, 6.0], &[2, 3]).unwrap();
        assert_eq!(g[..3], [0.0; 3], "{s:?}");
        assert!(g[4] == 0.0 && g.iter().all(|g| g.is_finite()), "{s:?}: {g:?}");
    }
}

#[test]
fn bad_scores_are_named_and_stay_in_their_row() {
    for s in subjects::all() {
        for bad in [f64::NAN, INF] {
            let z = [0.5, 0.1, 0.2, bad, 0.5, 0.1];
            let error = forward(&s, &z, &[3, 2]).unwrap_err();
            assert!(matches!(error, Error::Score { row: 1, index: 1, .. }), "{s:?}: {error}");
            let mut p = [9.0; 6];
            let (shape, rows) = ([3, 2], Rows::new(&s.mapping));
            rows.forward_or_nan(View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
            let alone = s.mapping.apply(&[0.5, 0.1]).unwrap();
            assert_eq!(p[..2], alone, "{s:?}");
            assert!(p[2].is_nan() && p[3].is_nan(), "{s:?}: {p:?}");
            assert_eq!(p[4..], alone, "{s:?}");
        }
        // A bad score that does not take part is no score.
        let (z, mask, shape) = ([0.5, f64::NAN], [true, false], [2]);
        let mut p = [9.0; 2];
        let rows = Rows::new(&s.mapping).mask(View::new(&mask, &shape).unwrap());
        rows.forward(View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
        assert_eq!(p, [s.mapping.total(1), 0.0], "{s:?}");
    }
}

#[test]
fn widths_from_nothing_to_a_million() {
    for s in subjects::all() {
        assert_eq!(forward::<f64>(&s, &[], &[0]).unwrap(), []);
        assert_eq!(forward::<f64>(&s, &[], &[3, 0]).unwrap(), []);
        assert_eq!(forward::<f64>(&s, &[], &[0, 3]).unwrap(), []);
        for z in [-7.5, 0.0, 1e30] {
            assert_eq!(forward(&s, &[z], &[1]).unwrap(), [s.mapping.total(1)], "{s:?} of {z}");
        }
        let d = 1 << 20;
        let mut rng = Rng::with_seed(7);
        for (kind, z) in [("equal", vec![0.25; d]), ("normal", cases::normals(&mut rng, d, 1.0))] {
            let p = forward(&s, &z, &[d]).unwrap();
            let total = s.mapping.total(d);
            let tolerance = 4.0 * f64::EPSILON * (d as f64).sqrt();
            assert!((exact_sum(&p) - total).abs() <= tolerance, "{s:?}, {kind}: {:e}", exact_sum(&p) - total);
            assert!(p.iter().all(|p| *p >= 0.0), "{s:?}, {kind}");
        }
    }
}

#[test]
fn magnitudes_from_tiny_to_huge() {
    let row = [1.0, -0.25, 0.75, -1.0, 0.9999];
    for s in subjects::all() {
        for scale in [1e-300, 1e-30, 1e-10, 1e10, 1e30, 1e300] {
            let z = row.map(|z| z * scale);
            let p = forward(&s, &z, &[5]).unwrap_or_else(|e| panic!("{s:?}: {e}"));
            assert!((exact_sum(&p) - s.mapping.total(5)).abs() < 2e-15, "{s:?} at {scale:e}: {p:?}");
            let g = vjp(&s, &z, &p, &row, &[5]).unwrap();
            assert!(g.iter().all(|g| g.is_finite()), "{s:?} at {scale:e}: {g:?}");
        }
        for scale in [1e-30f32, 1e30] {
            let p = forward(&s, &row.map(|z| z as f32 * scale), &[5]).unwrap();
            let sum: f64 = p.iter().map(|p| f64::from(*p)).sum();
            assert!((sum - s.mapping.total(5)).abs() < 2e-6, "{s:?} at {scale:e}: {p:?}");
        }
    }
}

/// A narrower result is the rounding of the f64 result of the same scores.
fn rounds_the_double_result<T: Float>() {
    for s in subjects::all() {
        for seed in 0..20 {
            let z: Vec<T> = cases::scores(&mut Rng::with_seed(seed), 30).into_iter().map(T::narrow).collect();
            if !z.iter().all(|z| z.widen().is_finite()) {
                continue;
            }
            let wide: Vec<f64> = z.iter().map(|z| z.widen()).collect();
            let exact = forward(&s, &wide, &[z.len()]).unwrap();
            let p: Vec<f64> = forward(&s, &z, &[z.len()]).unwrap().iter().map(|p| p.widen()).collect();
            assert!(distance(&p, &exact) <= 2.0 * T::EPSILON.max(5e-7), "{s:?}, seed {seed}: {p:?} {exact:?}");
        }
    }
}

#[test]
fn narrow_types() {
    rounds_the_double_result::<f32>();
    rounds_the_double_result::<f16>();
    rounds_the_double_result::<bf16>();
}

#[test]
fn any_axis_and_any_strides() {
    let mut rng = Rng::with_seed(3);
    let (a, b, c) = (3, 4, 5);
    let z = cases::normals(&mut rng, a * b * c, 1.0);
    for s in subjects::all() {
        for axis in 0..3 {
            // Move the axis to the back by hand, map, and compare with the strided call.
            let (n, order) = ([a, b, c][axis], [[1, 2, 0], [0, 2, 1], [0, 1, 2]][axis]);
            let (shape, strides) = ([a, b, c], [b * c, c, 1]);
            let mut packed = Vec::new();
            let mut places = Vec::new();
            for i in 0..shape[order[0]] {
                for j in 0..shape[order[1]] {
                    for k in 0..n {
                        let place = i * strides[order[0]] + j * strides[order[1]] + k * strides[order[2]];
                        packed.push(z[place]);
                        places.push(place);
                    }
                }
            }
            let expected = forward(&s, &packed, &[packed.len() / n, n]).unwrap();
            let mut p = vec![f64::NAN; z.len()];
            let rows = Rows::new(&s.mapping).axis(axis as isize - 3);
            rows.forward(View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
            let found: Vec<f64> = places.iter().map(|i| p[*i]).collect();
            assert_eq!(found, expected, "{s:?}, axis {axis}");
            // The same through reversed strides on both sides.
            let reversed: Vec<f64> = z.iter().rev().copied().collect();
            let back = strides.map(|s| -(s as isize));
            let mut q = vec![f64::NAN; z.len()];
            let (from, to) = (
                View::strided(&reversed, &shape, &back, z.len() - 1),
                ViewMut::strided(&mut q, &shape, &back, z.len() - 1),
            );
            rows.forward(from.unwrap(), to.unwrap()).unwrap();
            q.reverse();
            assert_eq!(q, p, "{s:?}, axis {axis}");
        }
    }
}

#[test]
fn thread_count_does_not_change_a_bit() {
    let (rows, d) = (600, 257);
    let mut rng = Rng::with_seed(11);
    let z: Vec<f32> = cases::normals(&mut rng, rows * d, 1.0).iter().map(|z| *z as f32).collect();
    let shape = [rows, d];
    for s in subjects::all() {
        let run = |threads: usize, axis: isize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut p = vec![f32::NAN; z.len()];
                let view = |x| View::new(x, &shape).unwrap();
                let batch = Rows::new(&s.mapping).axis(axis);
                batch.forward(view(&z), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
                let csr = batch.csr(view(&z)).unwrap();
                let slope = batch.parameter_vjp(view(&z), view(&p), view(&z)).ok();
                (p, csr, slope)
            })
        };
        for axis in [-1, 0] {
            let one = run(1, axis);
            assert!(run(2, axis) == one && run(3, axis) == one, "{s:?}, axis {axis}");
            let mut alone = vec![f32::NAN; z.len()];
            let view = View::new(&z, &shape).unwrap();
            let serial = Rows::new(&s.mapping).axis(axis).single_threaded();
            serial.forward(view, ViewMut::new(&mut alone, &shape).unwrap()).unwrap();
            assert!(alone == one.0, "{s:?}, axis {axis}");
        }
    }
}

#[test]
fn a_batch_is_its_rows() {
    let (rows, d) = (37, 19);
    let z: Vec<f32> = cases::normals(&mut Rng::with_seed(5), rows * d, 1.0).iter().map(|z| *z as f32).collect();
    for s in subjects::all() {
        let all = forward(&s, &z, &[rows, d]).unwrap();
        for (row, p) in z.chunks(d).zip(all.chunks(d)) {
            assert_eq!(s.mapping.apply(row).unwrap(), p, "{s:?}");
        }
    }
}

#[test]
fn one_parameter_per_head() {
    use parsimax::Entmax;
    let (batch, heads, queries, keys) = (2, 3, 4, 5);
    let z = cases::normals(&mut Rng::with_seed(9), batch * heads * queries * keys, 1.0);
    let alphas = [1.2, 1.5, 3.0];
    let mappings = alphas.map(|a| Entmax::new(a).unwrap());
    let shape = [batch, heads, queries, keys];
    let view = |x| View::new(x, &shape).unwrap();
    let (mut p, v) = (vec![0.0; z.len()], z.clone());
    let rows = Rows::grouped(&mappings, queries);
    rows.forward(view(&z), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
    let slope = rows.parameter_vjp(view(&z), view(&p), view(&v)).unwrap();
    for head in 0..heads {
        let mut expected = 0.0;
        for b in 0..batch {
            for q in 0..queries {
                let start = ((b * heads + head) * queries + q) * keys;
                let row = &z[start..start + keys];
                assert_eq!(mappings[head].apply(row).unwrap(), p[start..start + keys]);
                let single = Rows::new(&mappings[head]);
                let one = |x| View::new(x, &[5]).unwrap();
                expected += single.parameter_vjp(one(row), one(&p[start..start + keys]), one(row)).unwrap()[0];
            }
        }
        assert!((slope[head] - expected).abs() < 1e-15, "{} {expected}", slope[head]);
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors_that_say_so() {
    let sparsemax = parsimax::Sparsemax::new();
    let (z, mut p) = ([0.0; 6], [0.0; 6]);
    let view = |x, shape: &[usize]| View::new(x, shape).unwrap();
    let message = |r: parsimax::Result<()>| r.unwrap_err().to_string();
    let rows = Rows::new(&sparsemax);
    let error = message(rows.forward(view(&z, &[2, 3]), ViewMut::new(&mut p, &[3, 2]).unwrap()));
    assert_eq!(error, "sparsemax: the output must be of the scores' shape [2, 3], got [3, 2]");
    let error = message(rows.clone().axis(2).forward(view(&z, &[2, 3]), ViewMut::new(&mut p, &[2, 3]).unwrap()));
    assert_eq!(error, "sparsemax: axis must be between -2 and 1 for scores of shape [2, 3], got 2");
    let mask = [true; 3];
    let masked = Rows::new(&sparsemax).mask(View::new(&mask, &[3]).unwrap());
    let error = message(masked.forward(view(&z, &[2, 3]), ViewMut::new(&mut p, &[2, 3]).unwrap()));
    assert_eq!(error, "sparsemax: the mask must be of the scores' shape [2, 3], got [3]");
    assert!(View::new(&z, &[2, 2]).is_err());
    assert!(
        parsimax::Rows::new(&sparsemax)
            .forward(View::new(&z[..1], &[]).unwrap(), ViewMut::new(&mut p[..1], &[]).unwrap())
            .is_err()
    );
}

#[test]
fn bad_parameters_are_errors_at_construction() {
    use parsimax::registry::{MAPPINGS, Options, build};
    let with = |name: &str, x: f64| {
        let mut o = Options::default();
        match name {
            "alpha" => o.alpha = Some(x),
            "gamma" => o.gamma = Some(x),
            "lambda" => o.lambda = Some(x),
            "p" => o.p = Some(x),
            "eps" => o.eps = Some(x),
            "q" => o.q = Some(x),
            _ => o.budget = Some(x),
        }
        o
    };
    for entry in MAPPINGS {
        for parameter in entry.takes {
            for bad in [f64::NAN, f64::INFINITY, -1.0] {
                let error = build(entry.name, &with(parameter, bad)).err().map(|e| e.to_string());
                let error = error.unwrap_or_else(|| panic!("{} accepts {parameter} = {bad}", entry.name));
                assert!(error.contains(parameter) && error.contains(entry.name), "{error}");
            }
        }
        for other in ["alpha", "gamma", "lambda", "p", "eps", "q", "budget"] {
            assert_eq!(
                entry.takes.contains(&other),
                build(entry.name, &with(other, if other == "eps" { 0.5 } else { 1.5 })).is_ok(),
                "{} {other}",
                entry.name
            );
        }
    }
    assert!(build("gamma", &Options::default()).is_err());
}
