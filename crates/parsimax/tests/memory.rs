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
            // A large penalty on ascending scores is what the hulls of a string still grow with.
            let lambdas = if kind < 3 { &[1e-4, 0.1, 3.0][..] } else { &[1e-4, 0.1] };
            for masked in [false, true] {
                if masked {
                    z.iter_mut().filter(|_| random.f32() < 0.1).for_each(|z| *z = f32::NEG_INFINITY);
                }
                for lambda in lambdas {
                    let mapping = fusedmax(*lambda);
                    let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
                    let bytes = peak(|| Rows::new(&mapping).forward(z, p).unwrap());
                    assert!(bytes < MEGABYTE, "kind {kind}, penalty {lambda}, {shape:?}: {bytes} bytes");
                }
            }
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
