//! Laws, closed forms, hand-computed semantics and the batch policy of the losses.

mod batch;
mod closed_forms;
mod laws;
mod semantics;

use super::{BatchLoss, FenchelYoung, Loss, Reduction, RowLoss, Target};
use crate::registry::{MAPPINGS, Options};
use crate::{Entmax, Entmax15, Mapping, Regularized, Result, Softmax, Sparsemax, View, ViewMut};

/// Every regularised mapping onto the simplex: those of the registry with their defaults, and the ones
/// whose parameters deserve more than one value. A further mapping joins by one line.
fn mappings() -> Vec<Box<dyn Mapping>> {
    let mut all: Vec<Box<dyn Mapping>> = vec![
        Box::new(Softmax::new().with_gamma(0.7).unwrap()),
        Box::new(Sparsemax::new().with_gamma(2.0).unwrap()),
        Box::new(Entmax15::new().with_gamma(0.5).unwrap()),
        Box::new(Entmax::new(1.2).unwrap()),
        Box::new(Entmax::new(1.5).unwrap().with_gamma(1.7).unwrap()),
        Box::new(Entmax::new(2.0).unwrap()),
        Box::new(Entmax::new(3.0).unwrap().with_gamma(1.3).unwrap()),
    ];
    all.extend(MAPPINGS.iter().map(|entry| (entry.build)(&Options::default()).unwrap()));
    all.retain(|mapping| mapping.regularized().is_some() && mapping.total(5) == 1.0);
    all
}

/// A target of each kind for one row of five scores.
fn targets(random: &mut fastrand::Rng, y: &mut [f64; 5], class: &mut [i64; 1]) {
    class[0] = random.i64(0..5);
    y.iter_mut().for_each(|y| *y = if random.bool() { random.f64() } else { 0.0 });
    y[random.usize(..5)] += 0.1;
    let total: f64 = y.iter().sum();
    y.iter_mut().for_each(|y| *y /= total);
}

/// Calls `check` with every mapping, random scores and every kind of target.
fn for_all(seed: u64, mut check: impl FnMut(&mut fastrand::Rng, &dyn Regularized, &[f64], Target<'_, f64>)) {
    let mut random = fastrand::Rng::with_seed(seed);
    for mapping in mappings() {
        let mapping = mapping.regularized().unwrap();
        for _ in 0..200 {
            let scale = [0.3, 1.0, 3.0][random.usize(..3)];
            let z: Vec<f64> = (0..5).map(|_| scale * normal(&mut random)).collect();
            let (mut y, mut class) = ([0.0; 5], [0]);
            targets(&mut random, &mut y, &mut class);
            check(&mut random, mapping, &z, Target::Classes(&class));
            check(&mut random, mapping, &z, Target::Soft(View::new(&y, &[5]).unwrap()));
            let set: &[usize] = [&[3usize] as &[usize], &[0, 4], &[2, 1, 3]][random.usize(..3)];
            check(&mut random, mapping, &z, Target::Sets(&[set]));
        }
    }
}

/// A standard normal number (Box–Muller).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

/// The loss of one row or the reduced loss of a contiguous array.
fn value<R: RowLoss>(loss: &BatchLoss<'_, R>, z: &[f64], target: Target<'_, f64>) -> f64 {
    let result = loss.value(View::new(z, &shape(z, &target)).unwrap(), target).unwrap();
    result.value().expect("a reduced loss")
}

/// Loss and gradient of the same.
fn gradient<R: RowLoss>(loss: &BatchLoss<'_, R>, z: &[f64], target: Target<'_, f64>) -> Result<(Loss, Vec<f64>)> {
    let (mut out, shape) = (vec![7.0; z.len()], shape(z, &target));
    let result = loss.loss_and_gradient(View::new(z, &shape)?, target, ViewMut::new(&mut out, &shape)?)?;
    Ok((result, out))
}

/// The shape of contiguous scores for these targets.
fn shape(z: &[f64], target: &Target<'_, f64>) -> Vec<usize> {
    let rows = match target {
        Target::Classes(y) => y.len(),
        Target::Sets(y) => y.len(),
        Target::Soft(y) => return y.shape().to_vec(),
        Target::Labels(y) => return y.shape().to_vec(),
    };
    vec![rows, z.len() / rows]
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn assert_close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() <= tolerance, "{a} and {b} differ by {:e}", (a - b).abs());
}
