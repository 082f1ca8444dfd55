//! Weights, smoothing, ignored rows and reductions, against numbers worked out by hand.
//!
//! All with softmax scores (log 1, log 2, log 5), so p = (1, 2, 5)/8 and −log p = (log 8, log 4, log 1.6).

use super::*;

fn z() -> [f64; 3] {
    [0.0, 2f64.ln(), 5f64.ln()]
}

const P: [f64; 3] = [0.125, 0.25, 0.625];

fn surprise() -> [f64; 3] {
    [8f64.ln(), 4f64.ln(), 1.6f64.ln()]
}

fn rows(n: usize) -> Vec<f64> {
    z().repeat(n)
}

fn assert_all_close(a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(a, b)| assert_close(*a, *b, 1e-14));
}

#[test]
fn reductions() {
    let [a, b, _] = surprise();
    let mapping = Softmax::new();
    let loss = |reduction| FenchelYoung::new(&mapping).reduction(reduction);
    let classes = [0, 1];
    let (result, g) = gradient(&loss(Reduction::None), &rows(2), Target::Classes(&classes)).unwrap();
    assert_all_close(result.rows().unwrap(), &[a, b]);
    let plain = [P[0] - 1.0, P[1], P[2], P[0], P[1] - 1.0, P[2]];
    assert_all_close(&g, &plain);
    let (result, g) = gradient(&loss(Reduction::Sum), &rows(2), Target::Classes(&classes)).unwrap();
    assert_close(result.value().unwrap(), a + b, 1e-14);
    assert_all_close(&g, &plain);
    let (result, g) = gradient(&loss(Reduction::Mean), &rows(2), Target::Classes(&classes)).unwrap();
    assert_close(result.value().unwrap(), (a + b) / 2.0, 1e-14);
    assert_all_close(&g, &plain.map(|g| g / 2.0));
}

#[test]
fn ignored_rows_are_zero_and_do_not_count() {
    let [a, b, _] = surprise();
    let mapping = Softmax::new();
    // NaN in an ignored row is never read.
    let scores = [z(), [f64::NAN; 3], z()].concat();
    for ignore in [-100, -1, 7, 2] {
        let loss = FenchelYoung::new(&mapping).ignore_index(ignore);
        let classes = [0, ignore, 1];
        let (mean, g) = gradient(&loss, &scores, Target::Classes(&classes)).unwrap();
        assert_close(mean.value().unwrap(), (a + b) / 2.0, 1e-14);
        assert_eq!(g[3..6], [0.0; 3]);
        assert_close(g[6], P[0] / 2.0, 1e-15);
        let none = gradient(&loss.reduction(Reduction::None), &scores, Target::Classes(&classes)).unwrap().0;
        assert_eq!(none.rows().unwrap()[1], 0.0);
    }
    for reduction in [Reduction::Mean, Reduction::Sum] {
        let loss = FenchelYoung::new(&mapping).reduction(reduction);
        assert_eq!(
            gradient(&loss, &rows(2), Target::Classes(&[-100, -100])).unwrap(),
            (Loss::Value(0.0), vec![0.0; 6])
        );
    }
}

#[test]
fn class_weights_as_in_cross_entropy() {
    // torch: l_n = w_{y_n}·(−log p_{y_n}); the mean divides by Σ w_{y_n}.
    let [_, b, c] = surprise();
    let mapping = Softmax::new();
    let loss = FenchelYoung::new(&mapping).class_weights(&[2.0, 0.5, 1.0]).unwrap();
    let (mean, g) = gradient(&loss, &rows(3), Target::Classes(&[1, 2, -100])).unwrap();
    assert_close(mean.value().unwrap(), (0.5 * b + c) / 1.5, 1e-14);
    let expected = [0.5 * P[0], 0.5 * (P[1] - 1.0), 0.5 * P[2], P[0], P[1], P[2] - 1.0, 0.0, 0.0, 0.0];
    assert_all_close(&g, &expected.map(|g| g / 1.5));
    // Targets of weight 0 only: torch divides 0 by 0.
    let loss = FenchelYoung::new(&mapping).class_weights(&[0.0, 1.0, 1.0]).unwrap();
    assert_eq!(gradient(&loss, &z(), Target::Classes(&[0])).unwrap(), (Loss::Value(0.0), vec![0.0; 3]));
}

#[test]
fn label_smoothing_as_in_cross_entropy() {
    // torch: (1 − ε)(−log p_k) + ε/C Σ_c (−log p_c) = −Σ y' log p with y' = (0.1, 0.8, 0.1) for ε = 0.3,
    // k = 1. The Fenchel–Young loss is that minus the entropy of y'.
    let [a, b, c] = surprise();
    let mapping = Softmax::new();
    let loss = FenchelYoung::new(&mapping).label_smoothing(0.3).unwrap();
    let torch = 0.7 * b + 0.1 * (a + b + c);
    let entropy = -(0.2 * 0.1f64.ln() + 0.8 * 0.8f64.ln());
    let (value, g) = gradient(&loss, &z(), Target::Classes(&[1])).unwrap();
    assert_close(value.value().unwrap(), torch - entropy, 1e-14);
    assert_all_close(&g, &[P[0] - 0.1, P[1] - 0.8, P[2] - 0.1]);
}

#[test]
fn weights_and_smoothing_together() {
    // torch with w = (2, ½, 1): (1 − ε) w_k(−log p_k) + ε/C Σ_c w_c(−log p_c) = −Σ q log p with
    // q = w ⊙ y' = (0.2, 0.4, 0.1): the gradient is W p − q, W = 0.7. The mean divides by w_k = ½.
    let [a, b, c] = surprise();
    let mapping = Softmax::new();
    let weights = [2.0, 0.5, 1.0];
    let loss = FenchelYoung::new(&mapping).label_smoothing(0.3).unwrap().class_weights(&weights).unwrap();
    let torch = 0.7 * 0.5 * b + 0.1 * (2.0 * a + 0.5 * b + c);
    let tilted = [2.0 / 7.0, 4.0 / 7.0, 1.0 / 7.0];
    let entropy = -tilted.iter().map(|y: &f64| y * y.ln()).sum::<f64>();
    let (value, g) = gradient(&loss, &z(), Target::Classes(&[1])).unwrap();
    assert_close(value.value().unwrap(), (torch - 0.7 * entropy) / 0.5, 1e-14);
    assert_all_close(&g, &[0.7 * P[0] - 0.2, 0.7 * P[1] - 0.4, 0.7 * P[2] - 0.1].map(|g| g / 0.5));
    // Soft targets: the same q, but the mean divides by the number of rows.
    let y = [0.0, 1.0, 0.0];
    let soft = gradient(&loss, &z(), Target::Soft(View::new(&y, &[1, 3]).unwrap())).unwrap().1;
    assert_all_close(&soft, &g.iter().map(|g| g * 0.5).collect::<Vec<_>>());
}

#[test]
fn sets_are_uniform_and_a_set_of_one_is_a_class() {
    let mapping = Sparsemax::new();
    let weights = [2.0, 0.5, 1.0];
    let loss = FenchelYoung::new(&mapping).class_weights(&weights).unwrap();
    let by_class = gradient(&loss, &rows(2), Target::Classes(&[0, 1])).unwrap();
    assert_eq!(gradient(&loss, &rows(2), Target::Sets(&[&[0], &[1]])).unwrap(), by_class);
    // {0, 1} is y = (½, ½, 0); with softmax KL(y ‖ p) = ½ log(½·8) + ½ log(½·4).
    let mapping = Softmax::new();
    let loss = FenchelYoung::new(&mapping);
    let expected = 0.5 * 4f64.ln() + 0.5 * 2f64.ln();
    assert_close(value(&loss, &z(), Target::Sets(&[&[1, 0]])), expected, 1e-14);
}

#[test]
fn sums_of_soft_targets_are_divided_out() {
    // Off by 2⁻¹⁴ < 10⁻⁴: accepted, and the gradient still sums to 0.
    let y = [0.5 + 1.0 / 16384.0, 0.25, 0.25];
    let mapping = Sparsemax::new();
    let g = gradient(&FenchelYoung::new(&mapping), &z(), Target::Soft(View::new(&y, &[1, 3]).unwrap())).unwrap().1;
    assert_close(g.iter().sum(), 0.0, 1e-15);
}

#[test]
fn parameters_are_checked() {
    let mapping = Softmax::new();
    for epsilon in [-0.1, 1.0, f64::NAN] {
        assert!(FenchelYoung::new(&mapping).label_smoothing(epsilon).is_err());
    }
    for weight in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(FenchelYoung::new(&mapping).class_weights(&[1.0, weight]).is_err());
    }
    let short = FenchelYoung::new(&mapping).class_weights(&[1.0, 1.0]).unwrap();
    assert!(gradient(&short, &z(), Target::Classes(&[0])).unwrap_err().to_string().contains("class_weights"));
    assert!(FenchelYoung::<Softmax>::grouped(&[], 1).is_err());
    assert!(FenchelYoung::grouped(&[mapping], 0).is_err());
}
