//! Shapes, masks, bad input, narrow types and threads.

use super::*;
use crate::Error;

const GONE: f64 = f64::NEG_INFINITY;

#[test]
fn classes_may_lie_along_any_axis() {
    // [n, C, d] with the classes in the middle equals the transposed array with classes last.
    let mut random = fastrand::Rng::with_seed(21);
    let (n, c, d) = (3, 4, 5);
    let z: Vec<f64> = (0..n * c * d).map(|_| normal(&mut random)).collect();
    let classes: Vec<i64> = (0..n * d).map(|i| if i == 4 { -100 } else { random.i64(0..c as i64) }).collect();
    let mapping = Entmax15::new();
    let loss = FenchelYoung::new(&mapping);
    let mut middle = vec![0.0; z.len()];
    let a = loss
        .clone()
        .axis(1)
        .loss_and_gradient(
            View::new(&z, &[n, c, d]).unwrap(),
            Target::Classes(&classes),
            ViewMut::new(&mut middle, &[n, c, d]).unwrap(),
        )
        .unwrap();
    let strides = [(c * d) as isize, 1, d as isize];
    let mut last = vec![0.0; z.len()];
    let b = loss
        .loss_and_gradient(
            View::strided(&z, &[n, d, c], &strides, 0).unwrap(),
            Target::Classes(&classes),
            ViewMut::strided(&mut last, &[n, d, c], &strides, 0).unwrap(),
        )
        .unwrap();
    assert_eq!((a, middle), (b, last));
}

#[test]
fn masked_entries_are_removed() {
    let mapping = Entmax15::new();
    let weights = [1.0, 9.0, 2.0, 3.0];
    let few = [1.0, 2.0, 3.0];
    let loss = FenchelYoung::new(&mapping).label_smoothing(0.2).unwrap();
    let short = loss.clone().class_weights(&few).unwrap();
    let (value, g) = gradient(&short, &[0.3, -0.2, 0.9], Target::Classes(&[2])).unwrap();
    let padded = loss.class_weights(&weights).unwrap();
    let expected = (value, vec![g[0], 0.0, g[1], g[2]]);
    assert_eq!(gradient(&padded, &[0.3, GONE, -0.2, 0.9], Target::Classes(&[3])).unwrap(), expected);
    // A mask hides anything, NaN too.
    let mask = [true, false, true, true];
    let masked = padded.mask(View::new(&mask, &[1, 4]).unwrap());
    assert_eq!(gradient(&masked, &[0.3, f64::NAN, -0.2, 0.9], Target::Classes(&[3])).unwrap(), expected);
}

#[test]
fn a_masked_target_costs_infinity_and_has_no_gradient() {
    let infinite = Loss::Value(f64::INFINITY);
    for mapping in mappings() {
        let loss = FenchelYoung::new(mapping.regularized().unwrap()).reduction(Reduction::Sum);
        let z = [0.5, GONE, 0.1, 1.0, 0.0, 0.2];
        let (value, g) = gradient(&loss, &z, Target::Classes(&[1, 1])).unwrap();
        assert_eq!((&value, &g[..3]), (&infinite, &[0.0; 3][..]));
        assert!(g[3..].iter().all(|g| g.is_finite()) && g[3..].iter().any(|g| *g != 0.0));
        let y = [0.5, 0.25, 0.25];
        let soft = Target::Soft(View::new(&y, &[1, 3]).unwrap());
        assert_eq!(gradient(&loss, &z[..3], soft).unwrap(), (infinite.clone(), vec![0.0; 3]));
        assert_eq!(gradient(&loss, &z[..3], Target::Sets(&[&[0, 1]])).unwrap().0, infinite);
        // Nothing takes part.
        assert_eq!(gradient(&loss, &[GONE; 3], Target::Classes(&[0])).unwrap(), (infinite.clone(), vec![0.0; 3]));
        assert_eq!(gradient(&loss, &[GONE; 3], Target::Classes(&[-100])).unwrap().0, Loss::Value(0.0));
        // A masked class of weight 0 asks for nothing.
        let weighted = loss.class_weights(&[1.0, 0.0, 1.0]).unwrap();
        assert_eq!(gradient(&weighted, &z[..3], Target::Classes(&[1])).unwrap(), (Loss::Value(0.0), vec![0.0; 3]));
    }
}

#[test]
fn scores_at_the_end_of_the_range_do_not_make_nan() {
    let mapping = Softmax::new();
    let loss = FenchelYoung::new(&mapping);
    for big in [1e30, 1e300, f64::MAX] {
        let (value, g) = gradient(&loss, &[big, -big, 0.0], Target::Classes(&[1])).unwrap();
        assert_eq!(value, Loss::Value(2.0 * big));
        assert_eq!(g, [1.0, -1.0, 0.0]);
    }
}

#[test]
fn bad_scores_name_row_and_index() {
    let mapping = Sparsemax::new();
    let loss = FenchelYoung::new(&mapping);
    for bad in [f64::NAN, f64::INFINITY] {
        let z = [0.0, 1.0, 2.0, 0.0, 0.5, bad];
        let mut g = [7.0; 6];
        let error = loss
            .loss_and_gradient(
                View::new(&z, &[3, 2]).unwrap(),
                Target::Classes(&[0, 0, 1]),
                ViewMut::new(&mut g, &[3, 2]).unwrap(),
            )
            .unwrap_err();
        assert!(matches!(error, Error::Score { row: 2, index: 1, .. }), "{error}");
        // The row is NaN, the others are written: row 1 leads by 2.
        assert!(g[4].is_nan() && g[5].is_nan());
        assert_eq!(g[2..4], [0.0, 0.0]);
    }
}

#[test]
fn bad_targets_name_the_row() {
    let mapping = Sparsemax::new();
    let loss = FenchelYoung::new(&mapping);
    let z = [0.0; 6];
    let fails = |target: Target<'_, f64>, at: usize, word: &str| {
        let error = loss.value(View::new(&z, &[2, 3]).unwrap(), target).unwrap_err();
        assert!(matches!(error, Error::Target { row, .. } if row == at), "{error}");
        assert!(error.to_string().contains(word), "{error}");
    };
    fails(Target::Classes(&[0, 3]), 1, "below 3");
    fails(Target::Classes(&[-1, 0]), 0, "got -1");
    fails(Target::Sets(&[&[0], &[]]), 1, "empty");
    fails(Target::Sets(&[&[0, 1, 0], &[1]]), 0, "label 0 twice");
    fails(Target::Sets(&[&[0], &[1, 3]]), 1, "label 3");
    let soft = |y: &[f64; 6], at, word| fails(Target::Soft(View::new(y, &[2, 3]).unwrap()), at, word);
    soft(&[1.0, 0.0, 0.0, 0.5, 0.6, 0.0], 1, "a sum of 1.1");
    soft(&[1.5, -0.5, 0.0, 0.5, 0.5, 0.0], 0, "-0.5 at index 1");
    soft(&[1.0, 0.0, 0.0, 0.5, 0.5, f64::NAN], 1, "NaN at index 2");
}

#[test]
fn shapes_are_checked() {
    let mapping = Sparsemax::new();
    let loss = FenchelYoung::new(&mapping);
    let z = [0.0; 6];
    let view = |shape: &[usize]| View::new(&z, shape).unwrap();
    assert!(loss.value(view(&[2, 3]), Target::Classes(&[0])).is_err());
    assert!(loss.value(view(&[2, 3]), Target::Sets(&[&[0]])).is_err());
    assert!(loss.value(view(&[2, 3]), Target::Soft(view(&[3, 2]))).is_err());
    assert!(loss.clone().axis(2).value(view(&[2, 3]), Target::Classes(&[0, 0])).is_err());
    let mut g = [0.0; 6];
    let wrong = ViewMut::new(&mut g, &[3, 2]).unwrap();
    assert!(loss.loss_and_gradient(view(&[2, 3]), Target::Classes(&[0, 0]), wrong).is_err());
    let mask = [true; 3];
    assert!(loss.clone().mask(View::new(&mask, &[3]).unwrap()).value(view(&[2, 3]), Target::Classes(&[0, 0])).is_err());
    // No rows, and rows without entries.
    let none = View::<f64>::new(&[], &[0, 3]).unwrap();
    assert_eq!(loss.value(none, Target::Classes(&[])).unwrap(), Loss::Value(0.0));
    let thin = || View::<f64>::new(&[], &[2, 0]).unwrap();
    assert!(loss.value(thin(), Target::Classes(&[0, 0])).is_err());
    assert!(loss.value(thin(), Target::Soft(thin())).is_err());
    let empty = ViewMut::new(&mut [], &[2, 0]).unwrap();
    let ignored = loss.loss_and_gradient(thin(), Target::Classes(&[-100, -100]), empty);
    assert_eq!(ignored.unwrap(), Loss::Value(0.0));
}

#[test]
fn one_mapping_per_row() {
    let alphas = [1.2, 1.5, 2.0, 3.0];
    let mappings: Vec<_> = alphas.iter().map(|alpha| Entmax::new(*alpha).unwrap()).collect();
    let z = [0.3, 0.5, -0.4].repeat(4);
    let classes = [0, 1, 2, 0];
    let grouped = FenchelYoung::grouped(&mappings, 1).unwrap().reduction(Reduction::None);
    let (rows, g) = gradient(&grouped, &z, Target::Classes(&classes)).unwrap();
    for (i, mapping) in mappings.iter().enumerate() {
        let (value, single) = gradient(&FenchelYoung::new(mapping), &z[..3], Target::Classes(&classes[i..=i])).unwrap();
        assert_eq!((value.value(), &single[..]), (Some(rows.rows().unwrap()[i]), &g[3 * i..3 * i + 3]));
    }
}

#[test]
fn narrow_types() {
    let z32 = [0.3f32, -1.0, 0.7, 0.1];
    let z64 = z32.map(f64::from);
    let mapping = Entmax15::new();
    let loss = FenchelYoung::new(&mapping);
    let (value, g64) = gradient(&loss, &z64, Target::Classes(&[1])).unwrap();
    let mut g32 = [0.0f32; 4];
    let view = View::new(&z32, &[1, 4]).unwrap();
    let narrow = loss.loss_and_gradient(view, Target::Classes(&[1]), ViewMut::new(&mut g32, &[1, 4]).unwrap()).unwrap();
    // Single precision has a kernel of its own: a few ulp, where other types are rounded once.
    assert!((narrow.value().unwrap() - value.value().unwrap()).abs() < 1e-6);
    assert!(g32.iter().zip(&g64).all(|(a, b)| (f64::from(*a) - b).abs() < 5e-7));
    #[cfg(feature = "half")]
    {
        // ⅓ in bf16 is off by a thousandth; three of them are still a distribution.
        let third = half::bf16::from_f64(1.0 / 3.0);
        let (z, y) = ([half::bf16::ZERO; 3], [third; 3]);
        let soft = Target::Soft(View::new(&y, &[1, 3]).unwrap());
        let value = loss.value(View::new(&z, &[1, 3]).unwrap(), soft).unwrap().value().unwrap();
        assert!(value < 1e-15);
    }
}

#[cfg(feature = "rayon")]
#[test]
fn the_number_of_threads_does_not_show() {
    let mut random = fastrand::Rng::with_seed(22);
    let (n, c) = (700, 128);
    let z: Vec<f64> = (0..n * c).map(|_| 3.0 * normal(&mut random)).collect();
    let classes: Vec<i64> = (0..n).map(|_| random.i64(-1..c as i64)).collect();
    let weights: Vec<f64> = (0..c).map(|_| random.f64()).collect();
    let mapping = Entmax15::new();
    let loss = FenchelYoung::new(&mapping).ignore_index(-1).class_weights(&weights).unwrap();
    let run = |loss: &FenchelYoung<'_, Entmax15>| {
        let (value, g) = gradient(loss, &z, Target::Classes(&classes)).unwrap();
        (value.value().unwrap().to_bits(), g.iter().map(|g| g.to_bits()).collect::<Vec<_>>())
    };
    let expected = run(&loss.clone().single_threaded());
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(pool.install(|| run(&loss)), expected);
    }
    // The first error in row order, whoever meets one first.
    let mut bad = z.clone();
    (bad[40 * c + 3], bad[650 * c]) = (f64::NAN, f64::NAN);
    let classes = vec![0; n];
    let error = gradient(&loss, &bad, Target::Classes(&classes)).unwrap_err();
    assert!(matches!(error, Error::Score { row: 40, index: 3, .. }), "{error}");
}
