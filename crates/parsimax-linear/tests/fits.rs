//! Fits: gradients, optima, starts, threads, weights.

use parsimax_linear::{
    Coefficients, Features, LOGISTIC, LossSpec, Reason, Report, Settings, Standard, Stop, Targets, fit, loss_names,
    minimize,
};

fn numbers(random: &mut fastrand::Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| 2.0 * random.f64() - 1.0).collect()
}

fn sets(random: &mut fastrand::Rng, rows: usize, labels: usize) -> Targets {
    let set = |random: &mut fastrand::Rng| {
        let mut set: Vec<usize> = (0..1 + random.usize(..3)).map(|_| random.usize(..labels)).collect();
        set.sort_unstable();
        set.dedup();
        set
    };
    Targets::sets(labels, (0..rows).map(|_| set(random)).collect()).unwrap()
}

/// Half of the entries zero, dense and sparse.
fn both_forms(random: &mut fastrand::Rng, rows: usize, columns: usize) -> [Features; 2] {
    let values: Vec<f64> = numbers(random, rows * columns).into_iter().map(|x| if x < 0.0 { 0.0 } else { x }).collect();
    let (mut starts, mut indices, mut entries) = (vec![0], Vec::new(), Vec::new());
    for row in values.chunks(columns) {
        for (column, x) in row.iter().enumerate().filter(|(_, x)| **x != 0.0) {
            indices.push(column as u32);
            entries.push(*x);
        }
        starts.push(indices.len());
    }
    [Features::dense(values, columns).unwrap(), Features::sparse(columns, starts, indices, entries).unwrap()]
}

fn exact(l2: f64) -> Settings<'static> {
    Settings { l2, stop: Stop { iterations: 5000, gradient: 1e-11, decrease: 0.0, history: 10 }, ..Settings::default() }
}

fn distance(a: &Coefficients, b: &Coefficients) -> f64 {
    let pairs = a.weights().iter().chain(a.bias()).zip(b.weights().iter().chain(b.bias()));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// λ/2‖W‖² + mean loss, straight from the definition of the Fenchel–Young loss or of the logistic one.
fn objective(x: &Features, y: &Targets, name: &str, l2: f64, c: &Coefficients, y_dense: &[f64]) -> f64 {
    use parsimax::registry::{Options, build};
    let (k, z) = (y.labels(), c.scores(x).unwrap());
    let rows = z.chunks(k).zip(y_dense.chunks(k));
    let sum: f64 = if name == LOGISTIC {
        rows.map(|(z, y)| z.iter().zip(y).map(|(z, y)| (1.0 + z.exp()).ln() - y * z).sum::<f64>()).sum()
    } else {
        let mapping = build(name, &Options::default()).unwrap();
        let regularized = mapping.regularized().unwrap();
        rows.map(|(z, y)| {
            let mut p = vec![0.0; k];
            mapping.forward_row(z, &mut p, &mut parsimax::Scratch::new()).unwrap();
            let dot: f64 = z.iter().zip(y).map(|(z, y)| z * y).sum();
            regularized.gamma() * regularized.omega(y) + regularized.max_row(z, &p) - dot
        })
        .sum()
    };
    sum / x.rows() as f64 + l2 / 2.0 * c.weights().iter().map(|w| w * w).sum::<f64>()
}

fn all_losses() -> Vec<&'static str> {
    loss_names().into_iter().chain([LOGISTIC]).collect()
}

/// At the optimum no small step in any direction improves the objective, computed independently; and the
/// value that the fit reports is that objective.
#[test]
fn the_optimum_of_every_loss_is_stationary() {
    let mut random = fastrand::Rng::with_seed(1);
    let (rows, columns, labels, l2) = (40, 5, 4, 0.1);
    for name in all_losses() {
        let [x, _] = both_forms(&mut random, rows, columns);
        let y = sets(&mut random, rows, labels);
        let loss = LossSpec::new(name).build().unwrap();
        let (best, report) = fit(&x, &y, &loss, &exact(l2)).unwrap();
        let y_dense = dense_targets(&y, name == LOGISTIC, &mut random);
        let value = |c: &Coefficients| objective(&x, &y, name, l2, c, &y_dense);
        assert!((value(&best) - report.value).abs() < 1e-12, "{name}: {} {}", value(&best), report.value);
        let h = 1e-4;
        for _ in 0..30 {
            let step = numbers(&mut random, best.weights().len() + labels);
            let moved = |h: f64| {
                let add = |values: &[f64], step: &[f64]| -> Vec<f64> {
                    values.iter().zip(step).map(|(value, step)| value + h * step).collect()
                };
                let (weights, bias) = step.split_at(best.weights().len());
                Coefficients::from_parts(add(best.weights(), weights), &add(best.bias(), bias)).unwrap()
            };
            // Convex and smooth: stationary to the second order, and never below the optimum. Values of
            // size 1 carry 1e-15 of rounding, steps of 1e-4 at gradients of 1e-11 add the same.
            let (up, down) = (value(&moved(h)), value(&moved(-h)));
            assert!(up >= report.value - 1e-13 && down >= report.value - 1e-13, "{name}");
            // The curvatures of both sides agree but for the kinks of the gradient, which are O(h²).
            assert!((up - down).abs() < 1e-6, "{name}: {up} {down}");
        }
    }
}

/// The matrix of targets, written again.
fn dense_targets(y: &Targets, independent: bool, _: &mut fastrand::Rng) -> Vec<f64> {
    // A constant-score model shows the sets: Targets keeps them private, the oracle goes by `select`.
    let mut out = vec![0.0; y.rows() * y.labels()];
    for row in 0..y.rows() {
        let one = y.select(&[row]);
        let on: Vec<usize> = (0..y.labels()).filter(|label| is_on(&one, *label)).collect();
        let share = if independent { 1.0 } else { 1.0 / on.len() as f64 };
        on.iter().for_each(|label| out[row * y.labels() + label] = share);
    }
    out
}

fn is_on(one: &Targets, label: usize) -> bool {
    use parsimax_linear::metrics::Counts;
    // Predicting this label alone is right or wrong: micro F1 is 0 exactly if it is not in the set.
    Counts::new(&[vec![label]], one).unwrap().micro_f1() > 0.0
}

/// The gradient of the objective, as the minimiser sees it, is its difference quotient: a fit that stops
/// at once from a random start by a huge tolerance reports the value there, and one step of the fit from
/// there goes downhill for every loss.
#[test]
fn the_gradient_of_every_loss_leads_downhill() {
    let mut random = fastrand::Rng::with_seed(2);
    for name in all_losses() {
        for form in both_forms(&mut random, 30, 6) {
            let y = sets(&mut random, 30, 5);
            let loss = LossSpec::new(name).build().unwrap();
            let start = Coefficients::from_parts(numbers(&mut random, 30), &numbers(&mut random, 5)).unwrap();
            let at = |iterations| {
                let stop = Stop { iterations, gradient: 0.0, decrease: -1.0, history: 5 };
                let settings = Settings { l2: 0.01, stop, start: Some(&start), ..Settings::default() };
                fit(&form, &y, &loss, &settings).unwrap().1.value
            };
            let (before, after, later) = (at(0), at(1), at(20));
            assert!(after < before && later < after, "{name}: {before} {after} {later}");
        }
    }
}

#[test]
fn dense_and_sparse_rows_give_the_same_model() {
    let mut random = fastrand::Rng::with_seed(3);
    let forms = both_forms(&mut random, 300, 7);
    let y = sets(&mut random, 300, 5);
    for name in ["sparsemax", "softmax", LOGISTIC] {
        let loss = LossSpec::new(name).build().unwrap();
        let [dense, sparse] = forms.each_ref().map(|x| fit(x, &y, &loss, &exact(0.01)).unwrap().0);
        // Gradients of 1e-11 over a strong convexity of 0.01.
        assert!(distance(&dense, &sparse) < 1e-7, "{name}");
        // And so after standardisation, which sparse rows carry along without becoming dense.
        let [dense, sparse] = forms.each_ref().map(|x| {
            let standard = Standard::of(x);
            let ready = standard.apply(x);
            assert_eq!(ready.is_sparse(), x.is_sparse());
            standard.undo(&fit(&ready, &y, &loss, &exact(0.01)).unwrap().0)
        });
        assert!(distance(&dense, &sparse) < 1e-6, "{name}");
    }
}

#[test]
fn standardised_features_have_zero_mean_and_unit_deviation_and_scores_survive_the_way_back() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut values: Vec<f64> = numbers(&mut random, 200 * 3).iter().map(|x| 1e3 + 5.0 * x).collect();
    values.chunks_mut(3).for_each(|row| row[1] = 0.0);
    let x = Features::dense(values, 3).unwrap();
    let standard = Standard::of(&x);
    assert_eq!(standard.constant(), [1]);
    let ready = standard.apply(&x);
    let (mean, deviation) = ready.moments();
    // A mean of 1e3 leaves 1e-13 of rounding in each entry, divided by a deviation of about 3.
    assert!(mean.iter().all(|mean| mean.abs() < 1e-12), "{mean:?}");
    assert!([0, 2].iter().all(|at| (deviation[*at] - 1.0).abs() < 1e-12) && deviation[1] == 0.0);
    let c = Coefficients::from_parts(numbers(&mut random, 6), &[0.5, -0.5]).unwrap();
    let (a, b) = (c.scores(&ready).unwrap(), standard.undo(&c).scores(&x).unwrap());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-10));
}

#[test]
fn a_warm_start_ends_at_the_same_optimum() {
    let mut random = fastrand::Rng::with_seed(5);
    let [x, _] = both_forms(&mut random, 100, 8);
    let y = sets(&mut random, 100, 6);
    let loss = LossSpec::new("sparsemax").build().unwrap();
    let mut start = None::<Coefficients>;
    for l2 in [1.0, 0.3, 0.1, 0.03] {
        let cold = fit(&x, &y, &loss, &exact(l2)).unwrap().0;
        let warm = fit(&x, &y, &loss, &Settings { start: start.as_ref(), ..exact(l2) }).unwrap().0;
        // Gradients of 1e-11 over a strong convexity of 0.03.
        assert!(distance(&cold, &warm) < 1e-7, "{l2}: {}", distance(&cold, &warm));
        start = Some(warm);
    }
}

#[test]
fn weights_are_repetitions_and_zero_is_removal() {
    let mut random = fastrand::Rng::with_seed(6);
    let [x, _] = both_forms(&mut random, 60, 4);
    let y = sets(&mut random, 60, 4);
    let weights: Vec<usize> = (0..60).map(|_| random.usize(..4)).collect();
    let repeated: Vec<usize> = (0..60).flat_map(|row| std::iter::repeat_n(row, weights[row])).collect();
    let weights: Vec<f64> = weights.iter().map(|weight| *weight as f64).collect();
    let loss = LossSpec::new("entmax15").build().unwrap();
    let weighted = fit(&x, &y, &loss, &Settings { sample_weights: Some(&weights), ..exact(0.1) }).unwrap().0;
    let plain = fit(&x.select(&repeated), &y.select(&repeated), &loss, &exact(0.1)).unwrap().0;
    assert!(distance(&weighted, &plain) < 1e-8);
}

/// Enough work that threads are used; one thread and three give the same bits.
#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let mut random = fastrand::Rng::with_seed(7);
    for x in both_forms(&mut random, 3000, 300) {
        let y = sets(&mut random, 3000, 12);
        let loss = LossSpec::new("sparsemax").build().unwrap();
        let settings = Settings { l2: 0.01, stop: Stop { iterations: 4, ..Stop::default() }, ..Settings::default() };
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| fit(&x, &y, &loss, &settings).unwrap().0)
        };
        assert_eq!(on(1), on(3));
    }
}

/// The minimiser on functions whose minima are known.
#[test]
fn known_minima_are_found() {
    let quadratic = |x: &[f64], g: &mut [f64]| {
        let scale = |i: usize| 10f64.powi(i as i32 % 5);
        g.iter_mut().enumerate().for_each(|(i, g)| *g = scale(i) * (x[i] - i as f64));
        x.iter().enumerate().map(|(i, x)| 0.5 * scale(i) * (x - i as f64).powi(2)).sum()
    };
    let mut x = vec![0.0; 20];
    let stop = Stop { iterations: 500, gradient: 1e-10, decrease: 0.0, history: 10 };
    let report: Report = minimize(quadratic, &mut x, &stop);
    assert_eq!(report.reason, Reason::Gradient);
    assert!(x.iter().enumerate().all(|(i, x)| (x - i as f64).abs() < 1e-9), "{x:?}");
    let rosenbrock = |x: &[f64], g: &mut [f64]| {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        g.copy_from_slice(&[-2.0 * a - 400.0 * x[0] * b, 200.0 * b]);
        a * a + 100.0 * b * b
    };
    let mut x = vec![-1.2, 1.0];
    let report = minimize(rosenbrock, &mut x, &stop);
    assert!((x[0] - 1.0).abs() < 1e-6 && (x[1] - 1.0).abs() < 1e-6, "{x:?} {report:?}");
    // About forty iterations are customary for this function.
    assert!(report.iterations < 80 && report.evaluations < 120, "{report:?}");
}

#[test]
fn what_does_not_fit_is_said() {
    let x = Features::dense(vec![0.0, 1.0, 2.0], 1).unwrap();
    let loss = LossSpec::new("sparsemax").build().unwrap();
    let say = |x: &Features, y: &Targets, settings: &Settings<'_>| fit(x, y, &loss, settings).unwrap_err().to_string();
    let y = Targets::classes(2, vec![0, 1, 1]).unwrap();
    let one = Targets::classes(2, vec![1, 1, 1]).unwrap();
    assert!(say(&x, &one, &Settings::default()).contains("one class only"));
    assert!(say(&x, &y.select(&[0]), &Settings::default()).contains("one per row (3), got 1"));
    assert!(say(&x, &y, &Settings { l2: -1.0, ..Settings::default() }).contains("l2 must be"));
    let empty = Targets::sets(2, vec![vec![0], vec![], vec![1]]).unwrap();
    assert!(say(&x, &empty, &Settings::default()).contains("row 1; remove rows without labels"));
    assert!(say(&x, &y, &Settings { sample_weights: Some(&[0.0; 3]), ..Settings::default() }).contains("not all 0"));
    assert!(Features::dense(vec![f64::NAN], 1).unwrap_err().to_string().contains("finite"));
    assert!(Features::sparse(2, vec![0, 1], vec![2], vec![1.0]).unwrap_err().to_string().contains("beyond the last"));
    assert!(Targets::classes(1, vec![0]).unwrap_err().to_string().contains("at least two"));
    assert!(LossSpec::new("ev-softmax").build().unwrap_err().to_string().contains("convex loss"));
    assert!(LossSpec::new("budget").build().unwrap_err().to_string().contains("convex loss"));
    assert!(parsimax_linear::folds(3, 5, 0).unwrap_err().to_string().contains("at least 5 rows for 5 folds, got 3"));
}
