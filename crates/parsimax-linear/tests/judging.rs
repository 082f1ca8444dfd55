//! Folds, rules, metrics, cross-validation and model files.

use parsimax_linear::metrics::{Counts, Distances};
use parsimax_linear::study::proportions::{self, Setting};
use parsimax_linear::{
    Coefficients, Features, Grid, Head, KIND, LossSpec, Metric, Model, Rule, Stop, Targets, Task, best, cross_validate,
    folds, kind,
};

#[test]
fn folds_partition_the_rows_and_depend_on_the_seed() {
    for (rows, count) in [(5, 5), (23, 5), (100, 3)] {
        let parts = folds(rows, count, 7).unwrap();
        let mut all: Vec<usize> = parts.concat();
        all.sort_unstable();
        assert_eq!(all, (0..rows).collect::<Vec<_>>());
        assert!(parts.iter().all(|part| part.len() == rows / count || part.len() == rows / count + 1));
        assert_eq!(parts, folds(rows, count, 7).unwrap());
    }
    assert_ne!(folds(23, 5, 7).unwrap(), folds(23, 5, 8).unwrap());
}

#[test]
fn metrics_are_those_computed_by_hand() {
    // Label 0: tp 1, fp 1, fn 0. Label 1: tp 1, fp 0, fn 1. Label 2: fn 0, fp 0, tp 0.
    let targets = Targets::sets(3, vec![vec![0, 1], vec![1]]).unwrap();
    let counts = Counts::new(&[vec![0, 1], vec![0]], &targets).unwrap();
    // Micro: 2·2 / (2·2 + 1 + 1). F1 of the labels: 2/3, 2/3, 0.
    assert!((counts.micro_f1() - 4.0 / 6.0).abs() < 1e-15);
    assert!((counts.macro_f1() - 4.0 / 9.0).abs() < 1e-15);
    // Macro precision (½ + 1 + 0)/3 = ½ and macro recall (1 + ½ + 0)/3 = ½.
    assert!((counts.macro_pr_f1() - 0.5).abs() < 1e-15);
    // Two of six decisions are wrong, one of two sets is right.
    assert!((counts.hamming() - 2.0 / 6.0).abs() < 1e-15 && counts.subset_accuracy() == 0.5);
    assert_eq!(counts.labels_per_row(), 1.5);
    // Counts of two halves are those of the whole.
    let mut sum = Counts::new(&[vec![0, 1]], &targets.select(&[0])).unwrap();
    sum.add(&Counts::new(&[vec![0]], &targets.select(&[1])).unwrap());
    assert_eq!(sum, counts);
}

#[test]
fn distances_are_those_computed_by_hand() {
    let targets = Targets::sets(2, vec![vec![0], vec![0, 1]]).unwrap();
    let distances = Distances::new(&[0.0, 1.0, 0.5, 0.5], &targets);
    // (1, 0) against (0, 1): squared distance 2, divergence log 2; the second row is exact.
    assert!((distances.squared_error() - 1.0).abs() < 1e-15);
    assert!((distances.jensen_shannon() - 0.5 * 2f64.ln()).abs() < 1e-15);
    // Independent probabilities are divided by their sum.
    assert_eq!(Distances::new(&[0.0, 0.3, 0.9, 0.9], &targets), distances);
}

#[test]
fn rules_pick_what_they_say() {
    // One feature that is 1: the scores are the weights.
    let x = Features::dense(vec![1.0], 1).unwrap();
    let c = Coefficients::from_parts(vec![1.0, 0.8, 0.1], &[0.0; 3]).unwrap();
    let pick = |name: &str, rule| c.decide(&x, &LossSpec::new(name).build().unwrap(), rule).unwrap()[0].clone();
    // sparsemax: (0.6, 0.4, 0); at t = 6 the gap of 1.2 leaves the first alone.
    assert_eq!(pick("sparsemax", Rule::Support(1.0)), [0, 1]);
    assert_eq!(pick("sparsemax", Rule::Support(6.0)), [0]);
    assert_eq!(pick("sparsemax", Rule::Threshold(0.5)), [0]);
    assert_eq!(pick("sparsemax", Rule::Argmax), [0]);
    // σ(1) = 0.73, σ(0.8) = 0.69, σ(0.1) = 0.52.
    assert_eq!(pick("logistic", Rule::Threshold(0.6)), [0, 1]);
    assert_eq!(pick("softmax", Rule::Threshold(1.0)), [] as [usize; 0]);
    assert!(Rule::Support(0.0).check().is_err() && Rule::Threshold(-0.1).check().is_err());
}

fn blobs(rows: usize) -> (Features, Targets) {
    let mut random = fastrand::Rng::with_seed(12);
    let classes: Vec<usize> = (0..rows).map(|row| row % 3).collect();
    let values =
        classes.iter().flat_map(|class| [0, 1, 2].map(|at| f64::from(u8::from(at == *class)))).collect::<Vec<_>>();
    let values = values.iter().map(|x| x + 0.8 * (random.f64() - 0.5)).collect();
    (Features::dense(values, 3).unwrap(), Targets::classes(3, classes).unwrap())
}

#[test]
fn cross_validation_finds_the_sensible_constant_warm_or_cold_on_any_threads() {
    let (x, y) = blobs(90);
    let loss = LossSpec::new("sparsemax").build().unwrap();
    let grid = |warm_start| Grid {
        l2: vec![1e-3, 1e6],
        rules: vec![Rule::Argmax],
        folds: 5,
        seed: 1,
        warm_start,
        stop: Stop { iterations: 2000, gradient: 1e-9, decrease: 0.0, history: 10 },
    };
    let count = std::sync::atomic::AtomicUsize::new(0);
    let done = || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let cold = cross_validate(&x, &y, &loss, &grid(false), &done).unwrap();
    assert_eq!(count.into_inner(), 10);
    let chosen = best(&cold, Metric::Accuracy).unwrap();
    assert!(chosen.l2 == 1e-3 && chosen.merit(Metric::Accuracy) > 0.95, "{}", chosen.merit(Metric::Accuracy));
    let warm = cross_validate(&x, &y, &loss, &grid(true), &|| ()).unwrap();
    for (cold, warm) in cold.iter().zip(&warm) {
        assert_eq!((cold.l2, &cold.counts), (warm.l2, &warm.counts));
        // Gradients of 1e-9 over a strong convexity of 1e-3: probabilities agree within 1e-5.
        assert!((cold.distances.squared_error() - warm.distances.squared_error()).abs() < 1e-5);
    }
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    assert_eq!(one.install(|| cross_validate(&x, &y, &loss, &grid(false), &|| ()).unwrap()), cold);
}

#[test]
fn a_model_survives_the_disk_and_a_newer_one_replaces_it() {
    let folder = std::env::temp_dir().join(format!("parsimax-linear-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let head = Head {
        kind: KIND.into(),
        format: 1,
        loss: LossSpec { name: "entmax".into(), parameters: [("alpha".into(), 1.3)].into() },
        task: Task::MultiLabel,
        decision: Rule::Support(2.5),
        l2: 0.1,
        labels: vec!["a".into(), "b \"c\"".into()],
        label_columns: vec!["a".into(), "b \"c\"".into()],
        features: vec!["x".into(), "y".into()],
        nominal: "one-hot".into(),
        weights: String::new(),
    };
    let coefficients = Coefficients::from_parts(vec![0.1, -1.0 / 3.0, 1e-300, 4.0], &[f64::MIN_POSITIVE, 2.0]).unwrap();
    let model = Model { head, coefficients };
    model.save(&folder).unwrap();
    let read = Model::load(&folder).unwrap();
    assert_eq!(read.coefficients, model.coefficients);
    assert_eq!(
        (read.head.loss.clone(), read.head.decision, read.head.labels.clone()),
        (model.head.loss.clone(), Rule::Support(2.5), model.head.labels.clone())
    );
    let newer = Model { coefficients: Coefficients::zeros(2, 2), ..model };
    newer.save(&folder).unwrap();
    assert_eq!(Model::load(&folder).unwrap().coefficients, newer.coefficients);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "old weights and temporary files are gone");
    assert_eq!(kind(&folder).unwrap(), "linear");
    let json = folder.join("model.json");
    let text = std::fs::read_to_string(&json).unwrap();
    std::fs::write(&json, text.replace("\"linear\"", "\"sequence\"")).unwrap();
    assert!(Model::load(&folder).unwrap_err().to_string().contains("kind 'sequence'"));
    std::fs::write(&json, text.replace("\"y\"", "\"y\", \"z\"")).unwrap();
    assert!(Model::load(&folder).unwrap_err().to_string().contains("shapes do not fit"));
    std::fs::write(&json, "{").unwrap();
    assert!(Model::load(&folder).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(Model::load(&folder).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn simulated_documents_are_what_they_should_be() {
    let setting = Setting { labels: 10, uniform: false, length: 500 };
    let [train, test] = proportions::generate(setting, 3).unwrap();
    assert_eq!((train.0.rows(), test.0.rows(), train.0.columns()), (1200, 1000, 10));
    assert_eq!(train, proportions::generate(setting, 3).unwrap()[0]);
    assert_ne!(train.0, proportions::generate(setting, 4).unwrap()[0].0);
    let (mean, _) = train.0.moments();
    // Frequencies of ten words sum to 1.
    assert!((mean.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    // A Poisson(2) that is not 0 (nor above 10) has mean 2/(1 − e⁻²) = 2.313; 1200 documents have a
    // standard error of 0.036.
    let labels = Counts::new(&vec![vec![]; 1200], &train.1).unwrap();
    let per_row = labels.hamming() * 10.0;
    assert!((per_row - 2.313).abs() < 0.15, "{per_row}");
}
