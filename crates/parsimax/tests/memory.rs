//! How much memory a call takes beyond its output, counted by the allocator itself.

// An allocator is an unsafe trait; this one counts and hands over to the system's.
#![allow(unsafe_code)]

use parsimax::loss::{FenchelYoung, Target};
use parsimax::registry::{Options, build};
use parsimax::{Mapping, Rows, Scratch, View, ViewMut};
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

/// Those and some with an exponent.
fn mappings() -> Vec<Box<dyn Mapping>> {
    let entmax = |alpha| build("entmax", &Options { alpha: Some(alpha), ..Options::default() }).unwrap();
    let named = NAMED.map(|name| build(name, &Options::default()).unwrap());
    let steep = build("normmax", &Options { alpha: Some(3.0), ..Options::default() }).unwrap();
    named.into_iter().chain([steep]).chain([1.1, 1.25, 1.75, 2.5, 3.0, 8.0].map(entmax)).collect()
}

/// Oscarmax with a penalty.
fn oscarmax(lambda: f64) -> Box<dyn Mapping> {
    build("oscarmax", &Options { lambda: Some(lambda), ..Options::default() }).unwrap()
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
            for mapping in mappings() {
                for threads in [false, true] {
                    let rows = Rows::new(&mapping);
                    let rows = if threads { rows } else { rows.single_threaded() };
                    let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
                    let bytes = peak(|| rows.forward(z, p).unwrap());
                    assert!(bytes < MEGABYTE, "{} of {shape:?}: {bytes} bytes", mapping.name());
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
            // Hourglass needs its scores beside the gradient.
            if mapping.name() == "sparsehourglass" {
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

/// A learned α: the gradients in the scores and in α, against those of the same row in double precision.
#[test]
fn gradients_in_alpha_take_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    for shape in [[16, 65_536], [1, 1 << 20]] {
        let n = shape[0] * shape[1];
        let (mut p, mut gradient) = (vec![0.0f32; n], vec![0.0f32; n]);
        let (mut wide_p, mut want, mut expanded) = (vec![0.0; n], vec![0.0; n], vec![0.0f32; n]);
        let widen = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
        for (kind, z) in inputs(n).into_iter().enumerate() {
            for alpha in [1.0, 1.05, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 8.0] {
                let mapping = build("entmax", &Options { alpha: Some(alpha), ..Options::default() }).unwrap();
                let (rows, v_values) = (Rows::new(&mapping), z.iter().rev().map(|z| 1.0 + z).collect::<Vec<f32>>());
                let [at, v] = [&z, &v_values].map(|x| View::new(x, &shape).unwrap());
                rows.forward(at.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
                let (pv, out, mut slope) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape), 0.0);
                let out = out.unwrap();
                let bytes = peak(|| slope = rows.vjp_with_parameter(at.clone(), pv, v.clone(), out).unwrap()[0]);
                assert!(bytes < MEGABYTE, "kind {kind} of {shape:?}, α = {alpha}: {bytes} bytes");
                let (all, out) = (View::strided(&[2.0f32], &shape, &[0, 0], 0), ViewMut::new(&mut expanded, &shape));
                let pv = View::new(&p, &shape).unwrap();
                let bytes = peak(|| drop(rows.vjp_with_parameter(at, pv, all.unwrap(), out.unwrap()).unwrap()));
                assert!(bytes < MEGABYTE, "an expanded gradient of {shape:?}, α = {alpha}: {bytes} bytes");
                let (z, v) = (widen(&z), widen(&v_values));
                let [z, v] = [&z, &v].map(|x| View::new(x, &shape).unwrap());
                rows.forward(z.clone(), ViewMut::new(&mut wide_p, &shape).unwrap()).unwrap();
                let (wide_p, out) = (View::new(&wide_p, &shape).unwrap(), ViewMut::new(&mut want, &shape).unwrap());
                let in_alpha = rows.vjp_with_parameter(z, wide_p, v, out).unwrap()[0];
                assert!(
                    (slope - in_alpha).abs() <= 1e-3 * (1.0 + in_alpha.abs()),
                    "{kind} {alpha}: {slope} {in_alpha}"
                );
                let size = want.iter().fold(0.0f64, |size, g| size.max(g.abs()));
                for (g, want) in gradient.iter().zip(&want) {
                    assert!((f64::from(*g) - want).abs() <= 1e-4 * size, "{kind} {alpha}: {g} {want} of {size}");
                }
            }
        }
    }
}

/// Mappings whose gradient in the parameter is found from rows that are handed out, entry by entry.
fn with_parameter() -> Vec<Box<dyn Mapping>> {
    let of = |name: &str, alpha: f64| build(name, &Options { alpha: Some(alpha), ..Options::default() }).unwrap();
    let entmax = [0.8, 1.0, 1.25, 2.0, 3.0].map(|alpha| of("entmax", alpha));
    let normmax = [1.5, 2.0, 3.0].map(|alpha| of("normmax", alpha));
    let fused = [1e-4, 0.1, 3.0].map(fusedmax).into_iter().chain([1e-6, 0.01].map(oscarmax));
    let squared = build("sq-pnorm-max", &Options::default()).unwrap();
    entmax.into_iter().chain(normmax).chain([squared]).chain(fused).collect()
}

#[test]
fn gradients_in_parameters_take_less_than_a_megabyte() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let masks = masks(n);
    for z in inputs(n) {
        let wide: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
        for mapping in with_parameter() {
            for mask in [None, Some(&masks[1])] {
                in_parameter(&mapping, &wide, mask, shape, 1e-9);
                in_parameter(&mapping, &z, mask, shape, 1e-4);
            }
            #[cfg(feature = "half")]
            in_parameter(&mapping, &z.iter().map(|z| half::f16::from_f32(*z)).collect::<Vec<_>>(), None, shape, 0.05);
        }
    }
}

/// Beside that of the entries that take part, widened, by themselves; within a part of the sum of its terms.
fn in_parameter<T: parsimax::Float>(
    mapping: &dyn Mapping,
    z: &[T],
    mask: Option<&Vec<bool>>,
    shape: [usize; 2],
    tolerance: f64,
) {
    let n = z.len();
    let (mut p, v) = (vec![T::default(); n], z.iter().rev().map(|z| T::narrow(1.0 + z.widen())).collect::<Vec<T>>());
    let rows =
        mask.map_or_else(|| Rows::new(&mapping), |mask| Rows::new(&mapping).mask(View::new(mask, &shape).unwrap()));
    let [at, of_v] = [z, &v].map(|x| View::new(x, &shape).unwrap());
    rows.forward(at.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
    let (of_p, mut slope) = (View::new(&p, &shape).unwrap(), f64::NAN);
    let bytes = peak(|| slope = rows.parameter_vjp(at, of_p, of_v).unwrap()[0]);
    assert!(bytes < MEGABYTE, "{}: {bytes} bytes", mapping.name());
    let kept =
        |x: &[T]| (0..n).filter(|i| mask.is_none_or(|mask| mask[*i])).map(|i| x[i].widen()).collect::<Vec<f64>>();
    let (z, mut p, v) = (kept(z), kept(&p), kept(&v));
    mapping.forward_row(&z, &mut p, &mut Scratch::new()).unwrap();
    let terms = |v: &[f64]| mapping.parameter_vjp_row(&z, &p, v, &mut Scratch::new()).unwrap();
    let (want, size) = (terms(&v), terms(&v.iter().map(|v| v * v).collect::<Vec<_>>()));
    let name = mapping.name();
    assert!((slope - want).abs() <= tolerance * (1.0 + want.abs() + size.abs()), "{name}: {slope} {want}");
}

/// What a sum hands back is one number for all of the row; its gradient is 0 and takes no memory, nor does that of groups
/// in double precision.
#[test]
fn gradients_in_double_precision_take_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let (mut p, mut gradient, masks) = (vec![0.0; n], vec![0.0; n], masks(n));
    for (z, mask) in inputs(n).into_iter().zip([&masks[0], &masks[1], &masks[2], &masks[0]]) {
        let z: Vec<f64> = z.into_iter().map(f64::from).collect();
        let v: Vec<f64> = z.iter().rev().copied().collect();
        let oscarmax = [1e-6, 0.01]
            .map(|lambda| build("oscarmax", &Options { lambda: Some(lambda), ..Options::default() }).unwrap());
        for mapping in [fusedmax(1e-4), fusedmax(0.1), fusedmax(0.0)].into_iter().chain(oscarmax) {
            let (z, rows, name) = (View::new(&z, &shape).unwrap(), Rows::new(&mapping), mapping.name());
            rows.forward(z.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
            let p = View::new(&p, &shape).unwrap();
            for v in [View::new(&v, &shape).unwrap(), View::strided(&[2.0], &shape, &[0, 0], 0).unwrap()] {
                let out = ViewMut::new(&mut gradient, &shape).unwrap();
                let bytes = peak(|| rows.vjp(z.clone(), p.clone(), v, out).unwrap());
                assert!(bytes < MEGABYTE, "gradient of {name}: {bytes} bytes");
                assert!(gradient.iter().sum::<f64>().abs() < 1e-6, "{name}");
            }
        }
        // What is masked is not there: the others have what they have without it.
        let kept = |x: &[f64]| (0..n).filter(|i| mask[*i]).map(|i| x[i]).collect::<Vec<_>>();
        let (few, of_few) = (kept(&z), kept(&v));
        let (mut few_p, mut few_gradient) = (few.clone(), few.clone());
        for mapping in [fusedmax(0.1), build("oscarmax", &Options::default()).unwrap()] {
            let (name, shape_of_few) = (mapping.name(), [1, few.len()]);
            let at = |x| View::new(x, &shape_of_few).unwrap();
            let plain = Rows::new(&mapping);
            plain.forward(at(&few), ViewMut::new(&mut few_p, &shape_of_few).unwrap()).unwrap();
            let out = ViewMut::new(&mut few_gradient, &shape_of_few).unwrap();
            plain.vjp(at(&few), at(&few_p), at(&of_few), out).unwrap();
            let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
            let at = |x| View::new(x, &shape).unwrap();
            let bytes = peak(|| rows.forward(at(&z), ViewMut::new(&mut p, &shape).unwrap()).unwrap());
            assert!(bytes < MEGABYTE && kept(&p) == few_p, "{name} with a mask: {bytes} bytes");
            let out = ViewMut::new(&mut gradient, &shape).unwrap();
            let bytes = peak(|| rows.vjp(at(&z), at(&p), at(&v), out).unwrap());
            assert!(bytes < MEGABYTE, "gradient of {name} with a mask: {bytes} bytes");
            for (g, want) in kept(&gradient).iter().zip(&few_gradient) {
                assert!((g - want).abs() < 1e-12, "gradient of {name} with a mask: {g} {want}");
            }
        }
    }
}

#[test]
fn rows_across_each_other_take_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let (rows, d) = (3, 300_001);
    let shape = [rows, d];
    let (mut p, mut want) = (vec![0.0f32; rows * d], vec![0.0f32; rows * d]);
    for z in inputs(rows * d) {
        for mapping in in_place() {
            let z = View::new(&z, &shape).unwrap();
            Rows::new(&mapping).forward(z.clone(), ViewMut::new(&mut want, &shape).unwrap()).unwrap();
            // Fortran order: the rows begin one behind the other.
            let out = ViewMut::strided(&mut p, &shape, &[1, 3], 0).unwrap();
            let bytes = peak(|| Rows::new(&mapping).forward(z, out).unwrap());
            assert!(bytes < MEGABYTE, "{}: {bytes} bytes", mapping.name());
            for row in 0..rows {
                assert!((0..d).all(|i| p[3 * i + row] == want[row * d + i]), "{}", mapping.name());
            }
        }
    }
}

/// Results that leave entries between them alone, and rows that do not follow each other.
#[test]
fn results_with_gaps_take_less_than_a_megabyte() {
    let _quiet = QUIET.lock();
    let (shape, d) = ([2, 1 << 18], 1 << 18);
    let n = 2 * d;
    let (mut p, mut gradient, mut array) = (vec![0.0f32; n], vec![0.0f32; n], vec![7.0f32; 3 * n]);
    let mask: Vec<bool> = (0..n).map(|i| i % 5 != 3).collect();
    for z in inputs(n) {
        let v: Vec<f32> = z.iter().rev().copied().collect();
        for mapping in in_place() {
            let (name, plain) = (mapping.name(), Rows::new(&mapping));
            let masked = plain.clone().mask(View::new(&mask, &shape).unwrap());
            for (rows, strides) in [(&plain, [2 * d, 2]), (&masked, [1, 3]), (&plain, [d + 8, 1])] {
                // Rows of oscarmax are sorted in a place that has no gaps.
                if name == "oscarmax" && strides[1] != 1 {
                    continue;
                }
                let [at, of_v] = [&z, &v].map(|x| View::new(x, &shape).unwrap());
                rows.forward(at.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
                rows.vjp(
                    at.clone(),
                    View::new(&p, &shape).unwrap(),
                    of_v.clone(),
                    ViewMut::new(&mut gradient, &shape).unwrap(),
                )
                .unwrap();
                let size = gradient.iter().fold(0.0f32, |size, g| size.max(g.abs()));
                for backward in [false, true] {
                    array.fill(7.0);
                    let of_p = View::new(&p, &shape).unwrap();
                    let out = ViewMut::strided(&mut array, &shape, &strides.map(|s| s as isize), 0).unwrap();
                    let bytes = peak(|| match backward {
                        false => rows.forward(at.clone(), out).unwrap(),
                        true => rows.vjp(at.clone(), of_p, of_v.clone(), out).unwrap(),
                    });
                    assert!(bytes < MEGABYTE, "{name} by {strides:?}, backward {backward}: {bytes} bytes");
                    let (want, near) = if backward { (&gradient, 1e-4 * size) } else { (&p, 1e-6) };
                    for (row, want) in want.chunks(d).enumerate() {
                        for (i, want) in want.iter().enumerate() {
                            let at = row * strides[0] + i * strides[1];
                            assert!((array[at] - want).abs() <= near, "{name} {backward}: {} {want}", array[at]);
                            array[at] = 7.0;
                        }
                    }
                    assert!(array.iter().all(|x| *x == 7.0), "{name} writes beside its place");
                }
            }
        }
    }
}

#[test]
fn a_budget_with_a_mask_takes_less_than_a_megabyte_beyond_the_output() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 20], 1 << 20);
    let (mut p, mut want, masks) = (vec![0.0f32; n], vec![0.0f32; n], masks(n));
    for z in inputs(n) {
        for (budget, mask) in [0.5, 2.0, 1000.0].into_iter().zip(&masks) {
            let mapping = build("budget", &Options { budget: Some(budget), ..Options::default() }).unwrap();
            let gone: Vec<f32> = z.iter().zip(mask).map(|(z, m)| if *m { *z } else { f32::NEG_INFINITY }).collect();
            let gone = View::new(&gone, &shape).unwrap();
            Rows::new(&mapping).forward(gone, ViewMut::new(&mut want, &shape).unwrap()).unwrap();
            let rows = Rows::new(&mapping).mask(View::new(mask, &shape).unwrap());
            let (z, out) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
            let bytes = peak(|| rows.forward(z, out).unwrap());
            assert!(bytes < MEGABYTE, "{bytes} bytes");
            assert!(p.iter().zip(&want).all(|(p, want)| (p - want).abs() < 1e-6));
        }
    }
}

/// The arrays of a sparse result are all that it takes, whatever share of the entries it has.
#[test]
fn sparse_results_take_less_than_a_megabyte_beyond_their_arrays() {
    let _quiet = QUIET.lock();
    let alphas = [0.8, 1.0, 1.25, 1.5, 1.75, 2.0, 3.0];
    for shape in [[4096, 256], [64, 16_384], [8, 1 << 17], [8, (1 << 17) + 8], [1, 1 << 20]] {
        let n = shape[0] * shape[1];
        for z in inputs(n) {
            let wide: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
            for alpha in alphas {
                let mapping = build("entmax", &Options { alpha: Some(alpha), ..Options::default() }).unwrap();
                sparse(&mapping, &z, shape, 4e-7);
                sparse(&mapping, &wide, shape, 1e-12);
            }
        }
    }
}

fn sparse<T: parsimax::Float>(mapping: &dyn Mapping, z: &[T], shape: [usize; 2], tolerance: f64) {
    let (mut result, z) = (None, View::new(z, &shape).unwrap());
    let bytes = peak(|| result = Some(Rows::new(&mapping).csr(z.clone()).unwrap()));
    let csr = result.unwrap();
    let own = 8 * csr.indptr.capacity() + 4 * csr.indices.capacity() + size_of::<T>() * csr.values.capacity();
    let least = 8 * csr.indptr.len() + (4 + size_of::<T>()) * csr.values.len();
    assert!(
        own == least && bytes < own + MEGABYTE,
        "{} of {shape:?}: {} bytes beyond {own}",
        mapping.name(),
        bytes - own
    );
    let mut dense = vec![T::default(); shape[0] * shape[1]];
    Rows::new(&mapping).forward(z, ViewMut::new(&mut dense, &shape).unwrap()).unwrap();
    for (p, want) in csr.to_dense().iter().zip(&dense) {
        assert!((p.widen() - want.widen()).abs() < tolerance, "{shape:?}: {p:?} {want:?}");
    }
}

/// Targets of all kinds, with smoothing and weights, against the loss of the same row in `f64` and in pieces.
#[test]
fn losses_of_every_target_take_less_than_a_megabyte_beyond_their_gradient() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let mut random = fastrand::Rng::with_seed(1312);
    let mut soft: Vec<f32> = (0..n).map(|_| if random.f32() < 0.3 { random.f32() } else { 0.0 }).collect();
    let total: f64 = soft.iter().map(|y| f64::from(*y)).sum();
    soft.iter_mut().for_each(|y| *y = (f64::from(*y) / total) as f32);
    let labels: Vec<bool> = (0..n).map(|i| i % 1000 == 7).collect();
    let set: Vec<usize> = (0..n).filter(|i| labels[*i]).collect();
    let (sets, weights) = ([&set[..]], (0..n).map(|i| 0.5 + (i % 3) as f64).collect::<Vec<_>>());
    let mut gradient = vec![0.0f32; n];
    for z in inputs(n) {
        for mapping in in_place().iter().filter(|mapping| mapping.regularized().is_some()) {
            let (name, plain) = (mapping.name(), FenchelYoung::new(mapping.regularized().unwrap()));
            let targets = [
                Target::Classes(&[5]),
                Target::Soft(View::new(&soft, &shape).unwrap()),
                Target::Labels(View::new(&labels, &shape).unwrap()),
                Target::Sets(&sets),
            ];
            let smooth = plain.clone().label_smoothing(0.1).unwrap();
            let weighted = smooth.clone().class_weights(&weights).unwrap();
            let mut found = Vec::new();
            for (i, target) in targets.into_iter().enumerate() {
                for loss in [&plain, &smooth, &weighted] {
                    let mut value = f64::NAN;
                    let (z, out) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
                    let target = target.clone();
                    let bytes = peak(|| value = loss.loss_and_gradient(z, target, out).unwrap().value().unwrap());
                    assert!(bytes < MEGABYTE, "{name}, target {i}: {bytes} bytes");
                    // p − y sums to 0, and no loss is negative.
                    let sum: f64 = gradient.iter().map(|g| f64::from(*g)).sum();
                    assert!(sum.abs() < 4e-4 && value >= 0.0 && value.is_finite(), "{name}, target {i}: {sum} {value}");
                    found.push(value);
                }
            }
            // A set is a set, however it is written.
            assert_eq!(found[6..9], found[9..12], "{name}");
        }
    }
}

/// Without a gradient there is no place for probabilities at all.
#[test]
fn losses_without_a_gradient_take_less_than_a_megabyte() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let mut gradient = vec![0.0f32; n];
    for z in inputs(n) {
        let entmax = [0.8, 1.0, 1.25, 1.5, 2.0, 3.0].map(|alpha| ("entmax", Some(alpha)));
        let normmax = [1.5, 2.0, 3.0].map(|alpha| ("normmax", Some(alpha)));
        let of = |(name, alpha)| build(name, &Options { alpha, ..Options::default() }).unwrap();
        let separable = entmax.into_iter().chain(normmax).chain([("sq-pnorm-max", None)]).map(of);
        for mapping in separable.chain([0.0, 1e-4, 0.1, 3.0].map(fusedmax)) {
            let name = mapping.name();
            let loss = FenchelYoung::new(mapping.regularized().unwrap());
            let (z, target, mut value) = (View::new(&z, &shape).unwrap(), Target::Classes(&[5]), f64::NAN);
            let bytes = peak(|| value = loss.value(z.clone(), target.clone()).unwrap().value().unwrap());
            assert!(bytes < MEGABYTE, "{name}: {bytes} bytes");
            let out = ViewMut::new(&mut gradient, &shape).unwrap();
            let want = loss.loss_and_gradient(z, target, out).unwrap().value().unwrap();
            assert!((value - want).abs() <= 1e-6 * (1.0 + want), "{name}: {value} {want}");
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
        let entmax = [3.0, 8.0].map(|alpha| Options { alpha: Some(alpha), ..Options::default() });
        let entmax = entmax.map(|options| build("entmax", &options).unwrap());
        let named = NAMED.into_iter().chain(["entmax", "oscarmax"]);
        for mapping in named.map(|name| build(name, &Options::default()).unwrap()).chain([steep]).chain(entmax) {
            let (z, p) = (View::new(&z, &shape).unwrap(), ViewMut::new(&mut p, &shape).unwrap());
            let bytes = peak(|| Rows::new(&mapping).forward(z, p).unwrap());
            assert!(bytes < MEGABYTE, "{}: {bytes} bytes", mapping.name());
        }
    }
}

/// Where there is neither a law nor a gradient's place, probabilities take a row of their own and no more.
#[test]
fn losses_of_groups_take_a_row_at_most() {
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let (mut narrow, mut gradient, mask) = (vec![0.0f32; n], vec![0.0; n], &masks(n)[0]);
    let class = [mask.iter().position(|takes_part| *takes_part).unwrap() as i64];
    for z in inputs(n) {
        let wide: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
        for mapping in [fusedmax(0.1), oscarmax(1e-6), oscarmax(0.01)] {
            let (name, loss) = (mapping.name(), FenchelYoung::new(mapping.regularized().unwrap()));
            let loss = loss.mask(View::new(mask, &shape).unwrap());
            let (at, wide, mut values) =
                (View::new(&z, &shape).unwrap(), View::new(&wide, &shape).unwrap(), [f64::NAN; 4]);
            let target = || Target::Classes(&class);
            let bytes = peak(|| values[0] = loss.value(at.clone(), target()).unwrap().value().unwrap());
            assert!(bytes < 4 * n + MEGABYTE, "{name}: {bytes} bytes");
            let bytes =
                peak(|| values[1] = loss.value(wide.clone(), Target::Classes(&class)).unwrap().value().unwrap());
            assert!(bytes < 8 * n + MEGABYTE, "{name} in double precision: {bytes} bytes");
            let out = ViewMut::new(&mut narrow, &shape).unwrap();
            values[2] = loss.loss_and_gradient(at, target(), out).unwrap().value().unwrap();
            let out = ViewMut::new(&mut gradient, &shape).unwrap();
            let target = Target::Classes(&class);
            let bytes = peak(|| values[3] = loss.loss_and_gradient(wide, target, out).unwrap().value().unwrap());
            assert!(bytes < MEGABYTE, "{name} with its gradient: {bytes} bytes");
            assert!(values[0] == values[2] || name == "fusedmax", "{name}: {values:?}");
            assert!(values.iter().all(|value| (value - values[1]).abs() <= 1e-6 * (1.0 + values[1])), "{values:?}");
            let sum: f64 = gradient.iter().sum();
            assert!(sum.abs() < 1e-9, "{name}: {sum}");
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

/// Oscarmax pools as many kinds of scores as there are, here almost all that 16 bits can tell.
#[cfg(feature = "half")]
#[test]
fn scores_of_every_kind_are_counted_in_less_than_a_megabyte() {
    use half::f16;
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 17], 1 << 17);
    let every = (0..n).map(|i| f16::from_bits((i * 7) as u16)).map(|z| if z.is_finite() { z } else { f16::ZERO });
    let z: Vec<f16> = every.collect();
    let wide: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
    for lambda in [1e-11, 1e-8] {
        let options = Options { lambda: Some(lambda), gamma: Some(1e6), ..Options::default() };
        let mapping = build("oscarmax", &options).unwrap();
        let (mut p, mut gradient, mut want) = (vec![f16::ZERO; n], vec![f16::ZERO; n], vec![0.0; n]);
        let [at, v] = [&z, &z].map(|x| View::new(x, &shape).unwrap());
        let rows = Rows::new(&mapping);
        let bytes = peak(|| rows.forward(at.clone(), ViewMut::new(&mut p, &shape).unwrap()).unwrap());
        assert!(bytes < MEGABYTE, "{bytes} bytes");
        rows.forward(View::new(&wide, &shape).unwrap(), ViewMut::new(&mut want, &shape).unwrap()).unwrap();
        assert!(p.iter().zip(&want).all(|(p, want)| (f64::from(*p) - want).abs() <= want / 1024.0 + 6e-8));
        let (of_p, out) = (View::new(&p, &shape).unwrap(), ViewMut::new(&mut gradient, &shape).unwrap());
        let bytes = peak(|| rows.vjp(at, of_p, v, out).unwrap());
        assert!(bytes < MEGABYTE, "gradient: {bytes} bytes");
    }
}

/// Losses of narrow numbers have the digits of the scores; their gradients are rounded once.
#[cfg(feature = "half")]
#[test]
fn losses_of_narrow_rows_take_less_than_a_megabyte_beyond_their_gradient() {
    use half::bf16;
    let _quiet = QUIET.lock();
    let (shape, n) = ([1, 1 << 18], 1 << 18);
    let (mut gradient, mut wide_gradient, masks) = (vec![bf16::ZERO; n], vec![0.0; n], masks(n));
    let entmax = [1.5, 3.0].map(|alpha| ("entmax", Some(alpha)));
    let named = [("normmax", Some(3.0)), ("sq-pnorm-max", None)];
    let of = |(name, alpha)| build(name, &Options { alpha, ..Options::default() }).unwrap();
    let mappings: Vec<_> = entmax
        .into_iter()
        .chain(named)
        .map(of)
        .chain([1e-4, 0.1, 3.0].map(fusedmax))
        .chain([1e-6, 0.01].map(oscarmax))
        .collect();
    for z in inputs(n) {
        let z: Vec<bf16> = z.iter().map(|z| bf16::from_f32(*z)).collect();
        let wide: Vec<f64> = z.iter().map(|z| f64::from(*z)).collect();
        for (mapping, mask) in mappings.iter().zip(masks.iter().cycle()) {
            let (name, class) = (mapping.name(), [mask.iter().position(|takes_part| *takes_part).unwrap() as i64]);
            let loss = FenchelYoung::new(mapping.regularized().unwrap()).mask(View::new(mask, &shape).unwrap());
            let (mut value, mut alone) = (f64::NAN, f64::NAN);
            let at = View::new(&z, &shape).unwrap();
            let out = ViewMut::new(&mut gradient, &shape).unwrap();
            let target = || Target::Classes(&class);
            let bytes = peak(|| value = loss.loss_and_gradient(at.clone(), target(), out).unwrap().value().unwrap());
            assert!(bytes < MEGABYTE, "{name}: {bytes} bytes");
            let bytes = peak(|| alone = loss.value(at, Target::Classes(&class)).unwrap().value().unwrap());
            assert!(bytes < MEGABYTE && alone == value, "{name} alone: {bytes} bytes, {alone} {value}");
            let (at, out) = (View::new(&wide, &shape).unwrap(), ViewMut::new(&mut wide_gradient, &shape).unwrap());
            let want = loss.loss_and_gradient(at, Target::Classes(&class), out).unwrap().value().unwrap();
            assert!((value - want).abs() <= 1e-6 * (1.0 + want), "{name}: {value} {want}");
            for (g, want) in gradient.iter().zip(&wide_gradient) {
                assert!((f64::from(*g) - want).abs() <= want.abs() / 256.0 + 1e-8, "{name}: {g} {want}");
            }
        }
    }
}

/// Probabilities and gradients of a row of narrow numbers take no memory, and are those of the row in `f64`.
#[cfg(feature = "half")]
fn narrow<T: parsimax::Float>(shape: [usize; 2], z: &[T], masks: &[Vec<bool>]) {
    let n = z.len();
    let (mut p, mut gradient) = (vec![T::default(); n], vec![T::default(); n]);
    let (mut wide_p, mut wide_gradient) = (vec![0.0; n], vec![0.0; n]);
    let widen = |x: &[T]| x.iter().map(|x| x.widen()).collect::<Vec<f64>>();
    let entmax = [0.8, 1.25, 3.0].map(|alpha| ("entmax", Some(alpha)));
    let named = ["softmax", "sparsemax", "entmax15", "budget", "sq-pnorm-max"].map(|name| (name, None));
    let normmax = [1.5, 3.0].map(|alpha| ("normmax", Some(alpha)));
    let of = |(name, alpha)| build(name, &Options { alpha, gamma: Some(0.7), ..Options::default() }).unwrap();
    let fused = [0.0, 1e-4, 0.1, 3.0].map(fusedmax).into_iter().chain([0.0, 1e-9, 1e-6, 0.01].map(oscarmax));
    for mapping in named.into_iter().chain(entmax).chain(normmax).map(of).chain(fused) {
        let name = mapping.name();
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
            if name == "oscarmax" {
                // In double precision equal probabilities tell groups, which these no longer do.
                let places: Vec<usize> = (0..n).filter(|i| mask[*i]).collect();
                let [z, p] = [&widen(z), &p].map(|x| places.iter().map(|i| x[*i]).collect::<Vec<f64>>());
                let mut kept = z.clone();
                mapping.vjp_row(&z, &p, &z, &mut kept, &mut Scratch::new()).unwrap();
                wide_gradient.fill(0.0);
                places.iter().zip(kept).for_each(|(i, g)| wide_gradient[*i] = g);
            }
            for (g, want) in gradient.iter().zip(&wide_gradient) {
                assert!((g.widen() - want).abs() <= T::EPSILON * want.abs() + 1e-7, "{name}: {g:?} {want}");
            }
        }
    }
}
