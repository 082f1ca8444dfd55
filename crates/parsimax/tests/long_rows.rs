//! Rows too long to be copied go ways of their own, which must lead to the same place.
#![cfg(feature = "half")]

use half::bf16;
use parsimax::registry::{self, Options};
use parsimax::{Float, Rows, View, ViewMut};

fn row<T>(x: &[T]) -> View<'_, T> {
    View::new(x, &[1, x.len()]).unwrap()
}

fn narrowed<T: Float>(x: &[f64]) -> Vec<T> {
    x.iter().map(|x| T::narrow(*x)).collect()
}

/// `<Ju, v>`, `<u, Jᵀv>`, and the size of what is summed.
fn both_sides<T: Float>(name: &str, z: &[f64], mask: &[bool], u: &[f64], v: &[f64]) -> [f64; 3] {
    let (d, shape) = (z.len(), [1, z.len()]);
    let mapping = (registry::find(name).unwrap().build)(&Options::default()).unwrap();
    let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
    let [z, u, v] = [z, u, v].map(narrowed::<T>);
    let [mut p, mut ju, mut jtv] = std::array::from_fn(|_| vec![T::default(); d]);
    rows.forward(row(&z), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
    rows.jvp(row(&z), row(&p), row(&u), ViewMut::new(&mut ju, &shape).unwrap()).unwrap();
    rows.vjp(row(&z), row(&p), row(&v), ViewMut::new(&mut jtv, &shape).unwrap()).unwrap();
    let terms = |a: &[T], b: &[T]| a.iter().zip(b).map(|(a, b)| a.widen() * b.widen()).collect::<Vec<_>>();
    let (left, right) = (terms(&ju, &v), terms(&u, &jtv));
    let size = left.iter().chain(&right).map(|x| x.abs()).sum();
    [left.iter().sum(), right.iter().sum(), size]
}

/// A constant tells apart the sides of the one Jacobian that is not symmetric.
#[test]
fn products_from_both_sides_agree() {
    let (d, mut rng) = (70_000, fastrand::Rng::with_seed(161));
    let mut z: Vec<f64> = (0..d).map(|_| -rng.f64()).collect();
    let mut mask: Vec<bool> = (0..d).map(|_| rng.f32() < 0.9).collect();
    let mut v: Vec<f64> = (0..d).map(|_| 0.1 * rng.f64()).collect();
    // A few scores stand out, and so do their gradients.
    for (k, i) in [500, 9_000, 40_000].into_iter().enumerate() {
        (z[i], v[i], mask[i]) = (1.0 - 0.1 * k as f64, 1.0 / (1 + k) as f64, true);
    }
    for u in [vec![1.0; d], (0..d).map(|_| rng.f64()).collect()] {
        for entry in registry::MAPPINGS {
            for (narrow, [left, right, size]) in [
                (0.0, both_sides::<f64>(entry.name, &z, &mask, &u, &v)),
                (1e-5, both_sides::<f32>(entry.name, &z, &mask, &u, &v)),
                (2e-2, both_sides::<bf16>(entry.name, &z, &mask, &u, &v)),
            ] {
                let what = format!("{}: {left} and {right}, of {size}", entry.name);
                assert!((left - right).abs() <= narrow * size + 1e-9, "{what}");
            }
        }
    }
}
