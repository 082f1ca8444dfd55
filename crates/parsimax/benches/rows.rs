//! Micro-benchmarks for development: `cargo bench -p parsimax`, or with a filter such as
//! `cargo bench -p parsimax -- forward::sparsemax`.
//!
//! They tell whether a change helped. What holds against other libraries is `cargo xtask bench`'s
//! business.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use parsimax::loss::{FenchelYoung, Target};
use parsimax::registry::{self, Options};
use parsimax::{Mapping, Rows, View, ViewMut};

fn main() {
    divan::main();
}

/// A short row, a long one, and one beyond the caches: about as many scores each.
const WIDTHS: [usize; 3] = [64, 4096, 131_072];
const SCORES: usize = 1 << 17;

/// Mapping and α, for the operations that are tuned.
const TUNED: [&str; 5] = ["softmax", "sparsemax", "entmax15", "entmax 1.25", "entmax 3"];

/// From a name of the registry, with α behind it.
fn build(label: &str) -> Box<dyn Mapping> {
    let (name, alpha) = label.split_once(' ').map_or((label, None), |(name, alpha)| (name, alpha.parse().ok()));
    registry::build(name, &Options { alpha, ..Options::default() }).expect("a mapping of the registry")
}

/// Rows of standard normal scores (Box and Muller), the same in every run.
fn normal(seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut one = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
    (0..SCORES).map(|_| one() as f32).collect()
}

fn view(data: &[f32], d: usize) -> View<'_, f32> {
    View::new(data, &[SCORES / d, d]).expect("whole rows")
}

fn view_mut(data: &mut [f32], d: usize) -> ViewMut<'_, f32> {
    ViewMut::new(data, &[SCORES / d, d]).expect("whole rows")
}

fn forward_of(bencher: Bencher<'_, '_>, mapping: &dyn Mapping, d: usize) {
    let (z, mut p) = (normal(1), vec![0.0; SCORES]);
    let rows = Rows::new(&mapping).single_threaded();
    bencher
        .counter(BytesCount::of_slice(&z))
        .bench_local(|| rows.forward(black_box(view(&z, d)), view_mut(&mut p, d)).expect("finite scores"));
}

#[divan::bench_group(sample_count = 40)]
mod forward {
    use super::{Bencher, WIDTHS, build, forward_of};

    #[divan::bench(args = WIDTHS)]
    fn softmax(bencher: Bencher<'_, '_>, d: usize) {
        forward_of(bencher, &*build("softmax"), d);
    }

    #[divan::bench(args = WIDTHS)]
    fn sparsemax(bencher: Bencher<'_, '_>, d: usize) {
        forward_of(bencher, &*build("sparsemax"), d);
    }

    #[divan::bench(args = WIDTHS)]
    fn entmax15(bencher: Bencher<'_, '_>, d: usize) {
        forward_of(bencher, &*build("entmax15"), d);
    }

    #[divan::bench(args = WIDTHS)]
    fn entmax_1_25(bencher: Bencher<'_, '_>, d: usize) {
        forward_of(bencher, &*build("entmax 1.25"), d);
    }

    #[divan::bench(args = WIDTHS)]
    fn entmax_3(bencher: Bencher<'_, '_>, d: usize) {
        forward_of(bencher, &*build("entmax 3"), d);
    }
}

/// Every mapping of the registry at one width.
#[divan::bench(args = registry::names(), sample_count = 20)]
fn registry_4096(bencher: Bencher<'_, '_>, name: &str) {
    forward_of(bencher, &*build(name), 4096);
}

#[divan::bench(args = TUNED, sample_count = 40)]
fn backward_4096(bencher: Bencher<'_, '_>, label: &str) {
    let d = 4096;
    let (mapping, z, v) = (build(label), normal(1), normal(2));
    let (mut p, mut out) = (vec![0.0; SCORES], vec![0.0; SCORES]);
    let rows = Rows::new(&mapping).single_threaded();
    rows.forward(view(&z, d), view_mut(&mut p, d)).expect("finite scores");
    bencher.counter(BytesCount::of_slice(&z)).bench_local(|| {
        rows.vjp(black_box(view(&z, d)), view(&p, d), view(&v, d), view_mut(&mut out, d)).expect("finite scores");
    });
}

#[divan::bench(args = TUNED, sample_count = 40)]
fn loss_4096(bencher: Bencher<'_, '_>, label: &str) {
    let d = 4096;
    let (mapping, z, mut gradient) = (build(label), normal(1), vec![0.0; SCORES]);
    let classes: Vec<i64> = (0..SCORES / d).map(|row| (row * 131 % d) as i64).collect();
    let loss = FenchelYoung::new(mapping.regularized().expect("a regularised mapping")).single_threaded();
    bencher.counter(BytesCount::of_slice(&z)).bench_local(|| {
        let target = Target::Classes(&classes);
        loss.loss_and_gradient(black_box(view(&z, d)), target, view_mut(&mut gradient, d)).expect("finite scores")
    });
}
