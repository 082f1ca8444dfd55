//! How much memory a call takes beyond its output, counted by the allocator itself.

// An allocator is an unsafe trait; this one counts and hands over to the system's.
#![allow(unsafe_code)]

use parsimax::loss::{FenchelYoung, Target};
use parsimax::registry::{Options, build};
use parsimax::{Mapping, Rows, View, ViewMut};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// One measurement at a time.
static QUIET: Mutex<()> = Mutex::new(());

struct Counting;

// SAFETY: every request goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller vouches.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes at the peak of `work` beyond those held before.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    work();
    PEAK.load(Ordering::Relaxed) - before
}

const MEGABYTE: usize = 1 << 20;

/// Scores of several kinds of support: sparse, dense, equal, ascending.
fn inputs(d: usize) -> Vec<Vec<f32>> {
    let mut random = fastrand::Rng::with_seed(1309);
    let mut normal = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
    let sparse: Vec<f32> = (0..d).map(|_| normal() as f32).collect();
    let dense = sparse.iter().map(|z| 0.01 * z).collect();
    let mut ascending = sparse.clone();
    ascending.sort_by(f32::total_cmp);
    vec![sparse, dense, vec![1.0; d], ascending]
}

/// Whose rows need no list of their own length in either precision.
const NAMED: [&str; 8] =
    ["softmax", "sparsemax", "entmax15", "ev-softmax", "sparsehourglass", "normmax", "budget", "sq-pnorm-max"];

/// Mappings, with the α of those that have one.
fn mappings() -> Vec<(Box<dyn Mapping>, f64)> {
    let entmax = |alpha| (build("entmax", &Options { alpha: Some(alpha), ..Options::default() }).unwrap(), alpha);
    let named = NAMED.map(|name| (build(name, &Options::default()).unwrap(), 0.0));
    let steep = (build("normmax", &Options { alpha: Some(3.0), ..Options::default() }).unwrap(), 0.0);
    named.into_iter().chain([steep]).chain([1.1, 1.25, 1.75, 3.0].map(entmax)).collect()
}

/// Fusedmax with a penalty.
fn fusedmax(lambda: f64) -> Box<dyn Mapping> {
    build("fusedmax", &Options { lambda: Some(lambda), ..Options::default() }).unwrap()
}

#[test]
fn single_precision_takes_less_than_a_megabyte_beyond_its_output() {
    let _quiet = QUIET.lock();
    for shape in [[4096, 64], [256, 1024], [16, 65_536], [1, 1 << 20]] {
        let n = shape[0] * shape[1];
        let (mut p, mut gradient) = (vec![0.0f32; n], vec![0.0f32; n]);
        for z in inputs(n) {
            for (mapping, alpha) in mappings() {
                for threads in [false, true] {
                    let rows = Rows::new(&mapping);
                    let rows = if threads { rows } else { rows.single_threaded() };
                    let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
                    let bytes = peak(|| rows.forward(z, p).unwrap());
                    assert!(bytes < MEGABYTE, "{} of {shape:?}: {bytes} bytes", mapping.name());
                }
                // Beyond α = 2 the backward pass lists the support, which is small but for equal scores.
                if alpha > 2.0 {
                    continue;
                }
                let bytes = peak(|| {
                    let [z, p, v] = [&z, &p, &z].map(|x| View::new(x, &shape).unwrap());
                    Rows::new(&mapping).vjp(z, p, v, ViewMut::new(&mut gradient, &shape).unwrap()).unwrap();
                });
                assert!(bytes < MEGABYTE, "gradient of {} of {shape:?}: {bytes} bytes", mapping.name());
            }
        }
    }
}

#[test]
fn neighbours_are_fused_in_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let mut random = fastrand::Rng::with_seed(1310);
    for shape in [[256, 1024], [64, 16_384], [16, 65_536], [1, 1 << 20]] {
        let n = shape[0] * shape[1];
        let mut p = vec![0.0f32; n];
        let mut all = inputs(n);
        // Ascending and dense: the string bends at every score, and looks far ahead for it.
        all.push(all[3].iter().map(|z| 0.01 * z).collect());
        for (kind, mut z) in all.into_iter().enumerate() {
            let lambdas = [1e-4, 0.1, 3.0, 100.0];
            for masked in [false, true] {
                if masked {
                    z.iter_mut().filter(|_| random.f32() < 0.1).for_each(|z| *z = f32::NEG_INFINITY);
                }
                for lambda in lambdas {
                    let mapping = fusedmax(lambda);
                    let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
                    let bytes = peak(|| Rows::new(&mapping).forward(z, p).unwrap());
                    assert!(bytes < MEGABYTE, "kind {kind}, penalty {lambda}, {shape:?}: {bytes} bytes");
                }
            }
        }
    }
}

/// Everything that has a long row solved in the place of its result, with its options.
fn in_place() -> Vec<Box<dyn Mapping>> {
    let of = |name: &str, options: Options| build(name, &options).unwrap();
    let named = NAMED.into_iter().filter(|name| *name != "budget").map(|name| of(name, Options::default()));
    let entmax = [1.1, 1.25, 1.75, 3.0].map(|alpha| of("entmax", Options { alpha: Some(alpha), ..Options::default() }));
    let steep = of("normmax", Options { alpha: Some(3.0), ..Options::default() });
    let strong = of("sparsemax", Options { gamma: Some(0.3), ..Options::default() });
    let oscarmax = [1e-6, 0.01].map(|lambda| of("oscarmax", Options { lambda: Some(lambda), ..Options::default() }));
    let fused = [1e-4, 0.1, 3.0].map(fusedmax);
    named.chain(entmax).chain([steep, strong]).chain(oscarmax).chain(fused).collect()
}

/// Masks of a row: most of it takes part, little of it, one half.
fn masks(n: usize) -> Vec<Vec<bool>> {
    let mut random = fastrand::Rng::with_seed(1311);
    let mut share = |share: f32| (0..n).map(|_| random.f32() < share).collect();
    vec![share(0.9), share(0.1), (0..n).map(|i| i < n / 2).collect()]
}

#[test]
fn masks_and_strides_take_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let (mut p, masks) = (vec![0.0f32; n], masks(n));
    for z in inputs(n) {
        // Every score twice: a row of every other one is not contiguous.
        let twice: Vec<f32> = z.iter().flat_map(|z| [*z, -9.0]).collect();
        for mapping in in_place() {
            let (name, rows) = (mapping.name(), Rows::new(&mapping));
            for mask in &masks {
                let rows = rows.clone().mask(View::new(mask, &shape).unwrap());
                let (z, out) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
                let bytes = peak(|| rows.forward(z, out).unwrap());
                assert!(bytes < MEGABYTE, "{name} with a mask: {bytes} bytes");
                assert!(p.iter().zip(mask).all(|(p, takes_part)| *takes_part || *p == 0.0), "{name}");
                let sum: f64 = p.iter().map(|p| f64::from(*p)).sum();
                assert!((sum - 1.0).abs() < 4e-7 * (n as f64).sqrt(), "{name} with a mask sums to {sum}");
            }
            let scattered = View::strided(&twice, &shape, &[0, 2], 0).unwrap();
            let bytes = peak(|| rows.forward(scattered, ViewMut::new(&mut p, &shape).unwrap()).unwrap());
            assert!(bytes < MEGABYTE, "{name} of every other score: {bytes} bytes");
            let mut want = vec![0.0f32; n];
            rows.forward(View::new(&z, &shape).unwrap(), ViewMut::new(&mut want, &shape).unwrap()).unwrap();
            for (p, want) in p.iter().zip(&want) {
                assert!((p - want).abs() < 1e-6, "{name} of every other score: {p} {want}");
            }
        }
    }
}

#[test]
fn gradients_of_masked_rows_and_of_groups_take_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let (mut p, mut gradient, masks) = (vec![0.0f32; n], vec![0.0f32; n], masks(n));
    for z in inputs(n) {
        for mapping in in_place() {
            // Hourglass needs its scores beside the gradient; beyond α = 2 entmax lists the support.
            if mapping.name() == "sparsehourglass" || mapping.name() == "entmax" {
                continue;
            }
            for mask in &masks {
                let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
                let [z, v] = [&z, &z].map(|x| View::new(x, &shape).unwrap());
                rows.forward(z.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
                let (p, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
                let bytes = peak(|| rows.vjp(z, p, v, out).unwrap());
                assert!(bytes < MEGABYTE, "gradient of {} with a mask: {bytes} bytes", mapping.name());
            }
        }
        for name in ["softmax", "sparsemax", "entmax15", "entmax", "ev-softmax"] {
            let mapping = build(name, &Options::default()).unwrap();
            let (z, rows) = (View::new(&z, &shape).unwrap(), Rows::new(&mapping));
            rows.forward(z.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
            // What a sum hands back: one number for all of the row.
            let v = View::strided(&[2.0f32], &shape, &[0, 0], 0).unwrap();
            let (p, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
            let bytes = peak(|| rows.vjp(z, p, v, out).unwrap());
            assert!(bytes < MEGABYTE, "gradient of {name} from an expanded one: {bytes} bytes");
            assert!(gradient.iter().all(|g| g.abs() < 1e-6), "{name}");
        }
    }
}

#[test]
fn losses_take_less_than_a_megabyte_beyond_their_gradient() {
    let _quiet = QUIET.lock();
    let shape = [4, 1 << 18];
    let n = shape[0] * shape[1];
    let mut gradient = vec![0.0f32; n];
    for z in inputs(n) {
        for name in ["softmax", "sparsemax", "entmax15"] {
            let mapping = build(name, &Options::default()).unwrap();
            let loss = FenchelYoung::new(mapping.regularized().unwrap());
            let (z, gradient) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
            let target = Target::Classes(&[0, 1, 2, 3]);
            let bytes = peak(|| drop(loss.loss_and_gradient(z, target, gradient).unwrap()));
            assert!(bytes < MEGABYTE, "{name}: {bytes} bytes");
        }
    }
}

#[test]
fn losses_of_masked_rows_take_less_than_a_megabyte_beyond_their_gradient() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let (mut gradient, mut want) = (vec![0.0f32; n], vec![0.0f32; n]);
    for (z, mask) in inputs(n).into_iter().flat_map(|z| masks(n).into_iter().map(move |mask| (z.clone(), mask))) {
        let class = mask.iter().position(|takes_part| *takes_part).unwrap();
        let gone: Vec<f32> = z.iter().zip(&mask).map(|(z, m)| if *m { *z } else { f32::NEG_INFINITY }).collect();
        let entmax = [1.25, 3.0].map(|alpha| ("entmax", Options { alpha: Some(alpha), ..Options::default() }));
        let named = ["softmax", "sparsemax", "entmax15"].map(|name| (name, Options::default()));
        for (name, options) in named.into_iter().chain(entmax) {
            let mapping = build(name, &Options { gamma: Some(0.7), ..options }).unwrap();
            let (loss, target) = (FenchelYoung::new(mapping.regularized().unwrap()), [class as i64]);
            let (z, gone) = (View::new(&z, &shape).unwrap(), View::new(&gone, &shape).unwrap());
            let out = ViewMut::new(&mut want, &shape).unwrap();
            let expected = loss.loss_and_gradient(gone, Target::Classes(&target), out).unwrap().value().unwrap();
            let (loss, mut value) = (loss.mask(View::new(&mask, &shape).unwrap()), 0.0);
            let out = ViewMut::new(&mut gradient, &shape).unwrap();
            let bytes = peak(|| {
                value = loss.loss_and_gradient(z, Target::Classes(&target), out).unwrap().value().unwrap();
            });
            assert!(bytes < MEGABYTE, "{name}: {bytes} bytes");
            assert!((value - expected).abs() <= 1e-5 * (1.0 + expected), "{name}: {value} {expected}");
            for (g, want) in gradient.iter().zip(&want) {
                assert!((g - want).abs() <= 1e-6, "{name}: {g} {want}");
            }
        }
    }
}

#[test]
fn rows_in_double_precision_are_not_copied() {
    let _quiet = QUIET.lock();
    let shape = [1, 1 << 20];
    let mut p = vec![0.0; shape[1]];
    for z in inputs(shape[1]) {
        let z: Vec<f64> = z.into_iter().map(f64::from).collect();
        let steep = build("normmax", &Options { alpha: Some(3.0), ..Options::default() }).unwrap();
        let named = NAMED.into_iter().chain(["entmax", "oscarmax"]);
        for mapping in named.map(|name| build(name, &Options::default()).unwrap()).chain([steep]) {
            let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
            let bytes = peak(|| Rows::new(&mapping).forward(z, p).unwrap());
            assert!(bytes < MEGABYTE, "{}: {bytes} bytes", mapping.name());
        }
    }
}

#[test]
fn masked_rows_in_double_precision_are_not_copied() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let (mut p, mut gradient, masks) = (vec![0.0; n], vec![0.0; n], masks(n));
    for z in inputs(n) {
        let z: Vec<f64> = z.into_iter().map(f64::from).collect();
        let named = NAMED.into_iter().filter(|name| *name != "budget").chain(["entmax"]);
        for mapping in named.map(|name| build(name, &Options::default()).unwrap()) {
            for mask in &masks {
                let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
                let [z, v] = [&z, &z].map(|x| View::new(x, &shape).unwrap());
                let bytes = peak(|| rows.forward(z.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap());
                assert!(bytes < MEGABYTE, "{}: {bytes} bytes", mapping.name());
                let sum: f64 = p.iter().sum();
                assert!((sum - 1.0).abs() < 1e-9, "{} sums to {sum}", mapping.name());
                if mapping.name() != "sparsehourglass" {
                    let (p, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
                    let bytes = peak(|| rows.vjp(z, p, v, out).unwrap());
                    assert!(bytes < MEGABYTE, "gradient of {}: {bytes} bytes", mapping.name());
                }
            }
        }
    }
}

#[cfg(feature = "half")]
#[test]
fn narrow_rows_are_not_widened() {
    use half::{bf16, f16};
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let masks = masks(n);
    for z in inputs(n) {
        narrow(shape, &z.iter().map(|z| f16::from_f32(*z)).collect::<Vec<_>>(), &masks);
        narrow(shape, &z.iter().map(|z| bf16::from_f32(*z)).collect::<Vec<_>>(), &masks);
    }
}

/// Probabilities and gradients of a row of narrow numbers take no memory, and are those of the row in `f64`.
#[cfg(feature = "half")]
fn narrow<T: parsimax::Float>(shape: [usize; 2], z: &[T], masks: &[Vec<bool>]) {
    let n = z.len();
    let (mut p, mut gradient) = (vec![T::default(); n], vec![T::default(); n]);
    let (mut wide_p, mut wide_gradient) = (vec![0.0; n], vec![0.0; n]);
    let widen = |x: &[T]| x.iter().map(|x| x.widen()).collect::<Vec<f64>>();
    for (name, alpha) in [("softmax", None), ("sparsemax", None), ("entmax15", None), ("entmax", Some(1.25))] {
        let mapping = build(name, &Options { alpha, gamma: Some(0.7), ..Options::default() }).unwrap();
        for mask in masks {
            let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
            let at = View::new(z, &shape).unwrap();
            let bytes = peak(|| rows.forward(at.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap());
            assert!(bytes < MEGABYTE, "{name}: {bytes} bytes");
            let wide = widen(z);
            let wide = View::new(&wide, &shape).unwrap();
            rows.forward(wide.clone(), ViewMut::new(&mut wide_p, &shape).unwrap()).unwrap();
            for (p, want) in p.iter().zip(&wide_p) {
                // A unit of the last digit, or of the smallest number that is not 0.
                assert!((p.widen() - want).abs() <= T::EPSILON * want + 1e-7, "{name}: {p:?} {want}");
            }
            let (pv, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
            let bytes = peak(|| rows.vjp(at.clone(), pv, at.clone(), out).unwrap());
            assert!(bytes < MEGABYTE, "gradient of {name}: {bytes} bytes");
            let p = widen(&p);
            let (pv, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut wide_gradient, &shape).unwrap());
            rows.vjp(wide.clone(), pv, wide, out).unwrap();
            for (g, want) in gradient.iter().zip(&wide_gradient) {
                assert!((g.widen() - want).abs() <= T::EPSILON * want.abs() + 1e-7, "{name}: {g:?} {want}");
            }
        }
    }
}
