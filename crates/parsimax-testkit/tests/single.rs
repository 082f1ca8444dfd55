//! Single precision beside double precision: the kernels against the plain code, on random batches of every width and
//! character, on every instruction set that the machine has.
//!
//! Where a row goes depends on its width, on how many of its scores count and on its neighbours; no list of examples knows
//! all the ways. So batches are drawn at random, whole rows of a common fate beside mixed ones, for some seconds a family.
//! `PARSIMAX_FUZZ_SECONDS` changes the time. A failure prints its seed.

use fastrand::Rng;
use parsimax::kernel::{Level, available, with_level};
use parsimax::loss::{FenchelYoung, Loss, Reduction, Target};
use parsimax::registry::{Options, build};
use parsimax::{Mapping, Rows, View, ViewMut};
use parsimax_testkit::cases::normal;
use parsimax_testkit::fuzz::FAMILIES;
use parsimax_testkit::laws::exact_sum;
use std::time::{Duration, Instant};

/// Around the limits of the ways that rows may take.
const WIDTHS: [usize; 41] = [
    1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 47, 48, 49, 63, 64, 65, 80, 100, 127, 128, 129, 200, 255, 256,
    257, 500, 511, 512, 513, 1000, 1024, 1025, 3000, 4096, 4097, 9000,
];

/// Failures after which a family gives up: one tells little of what they have in common.
const SOME: usize = 12;

/// Scores in a batch, at most.
const MOST: usize = 60_000;

/// Rows of one width.
struct Batch {
    d: usize,
    z: Vec<f32>,
    v: Vec<f32>,
}

impl Batch {
    fn draw(rng: &mut Rng) -> Self {
        let d = WIDTHS[rng.usize(..WIDTHS.len())];
        let rows = rng.usize(1..=(MOST / d).min(70));
        let alike = rng.bool();
        let mut fate = Fate::draw(rng);
        let (mut z, mut v) = (Vec::new(), Vec::new());
        for _ in 0..rows {
            if !alike {
                fate = Fate::draw(rng);
            }
            z.extend(fate.row(rng, d));
            let size = [1.0, 1.0, 1e-3, 100.0][rng.usize(..4)];
            let shift = [0.0, 0.0, 5.0][rng.usize(..3)];
            v.extend((0..d).map(|_| (size * (normal(rng) + shift)) as f32));
        }
        Self { d, z, v }
    }

    fn shape(&self) -> [usize; 2] {
        [self.z.len() / self.d, self.d]
    }
}

/// What the scores of a row are like.
#[derive(Clone, Copy)]
struct Fate {
    scale: f64,
    shift: f64,
    /// The distance of scores that lie on a grid.
    grid: f64,
    masked: f64,
    order: i8,
    peaks: usize,
}

impl Fate {
    fn draw(rng: &mut Rng) -> Self {
        let scale = [1e-30, 1e-6, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 2.0, 10.0, 1e4, 1e20, 0.0][rng.usize(..13)];
        let shift = if rng.u8(..3) == 0 { [1.0, -1e3, 3e3, 1e5, -1e6][rng.usize(..5)] } else { 0.0 };
        let grid = if rng.u8(..4) == 0 { scale * [0.25, 1.0][rng.usize(..2)] } else { 0.0 };
        let masked = if rng.u8(..3) == 0 { rng.f64() } else { 0.0 };
        let order = if rng.u8(..4) == 0 { [1, -1][rng.usize(..2)] } else { 0 };
        Self { scale, shift, grid, masked, order, peaks: if rng.u8(..5) == 0 { rng.usize(1..4) } else { 0 } }
    }

    fn row(&self, rng: &mut Rng, d: usize) -> Vec<f32> {
        let on_grid = |z: f64| if self.grid > 0.0 { (z / self.grid).round() * self.grid } else { z };
        let mut z: Vec<f32> = (0..d).map(|_| (on_grid(self.scale * normal(rng)) + self.shift) as f32).collect();
        for _ in 0..self.peaks {
            z[rng.usize(..d)] += 0.9;
        }
        match self.order {
            1 => z.sort_by(f32::total_cmp),
            -1 => z.sort_by(|a, b| b.total_cmp(a)),
            _ => {}
        }
        z.iter_mut().filter(|_| rng.f64() < self.masked).for_each(|z| *z = f32::NEG_INFINITY);
        z
    }
}

/// A mapping of the family with parameters that people take, at the limits of the ways too.
fn draw(rng: &mut Rng, names: &[&str]) -> (String, Box<dyn Mapping>) {
    let name = names[rng.usize(..names.len())];
    let mut pick = |some: &[f64]| Some(some[rng.usize(..some.len())]);
    let mut options = Options { gamma: pick(&[1.0, 1.0, 1.0, 0.5, 3.0]), ..Options::default() };
    match name {
        "entmax" => {
            let known = [
                1.0, 1.0001, 1.05, 1.1, 1.125, 1.2, 1.25, 1.3, 1.5, 1.6, 1.75, 1.9, 2.0, 2.1, 2.5, 3.0, 4.0, 7.0, 10.0,
            ];
            options.alpha = pick(&known);
        }
        "normmax" => options.alpha = pick(&[1.2, 1.5, 2.0, 3.0, 5.0]),
        "fusedmax" | "oscarmax" | "oscarmax-approx" => options.lambda = pick(&[0.0, 0.001, 0.01, 0.1, 1.0]),
        "sq-pnorm-max" => options.p = pick(&[1.1, 1.2, 1.5, 1.8, 1.9, 2.0]),
        "budget" => options.budget = pick(&[0.5, 1.0, 2.0, 3.5]),
        "ev-softmax" => options.eps = pick(&[0.0, 0.0, 1e-6]),
        "sparsehourglass" => options.q = pick(&[0.5, 1.0, 3.0]),
        _ => {}
    }
    let mapping = build(name, &options).unwrap_or_else(|e| panic!("{e}"));
    (format!("{name} {options:?}"), mapping)
}

fn widen(x: &[f32]) -> Vec<f64> {
    x.iter().map(|x| f64::from(*x)).collect()
}

/// One batch at one level: probabilities, sparse rows, products with the Jacobian, losses. The first thing that is wrong.
fn check(mapping: &dyn Mapping, batch: &Batch) -> Result<(), String> {
    let (shape, d) = (batch.shape(), batch.d);
    let (z, v) = (widen(&batch.z), widen(&batch.v));
    let rows = Rows::new(&mapping).single_threaded();
    let narrow = |x| View::new(x, &shape).unwrap();
    let wide = |x| View::new(x, &shape).unwrap();
    let (mut p, mut exact, mut want) = (vec![f32::NAN; z.len()], vec![f64::NAN; z.len()], vec![f64::NAN; z.len()]);
    rows.forward(narrow(&batch.z), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
    rows.forward(wide(&z), ViewMut::new(&mut exact, &shape).unwrap()).unwrap();
    for (r, ((p, exact), z)) in p.chunks(d).zip(exact.chunks(d)).zip(batch.z.chunks(d)).enumerate() {
        if mapping.name() == "ev-softmax" && touches_mean(z) {
            continue;
        }
        within(farthest(p, exact), 1e-6, || format!("row {r}, a probability"))?;
        if z.iter().zip(p).any(|(z, p)| !z.is_finite() && *p != 0.0) {
            return Err(format!("row {r}: mass on a masked entry"));
        }
        let live = z.iter().filter(|z| z.is_finite()).count();
        let total = if live == 0 { 0.0 } else { mapping.total(live) };
        let most = 4.0 * f64::from(f32::EPSILON) * total.max(1.0) * (d as f64).sqrt();
        within((exact_sum(&widen(p)) - total).abs(), most, || format!("row {r}, the sum"))?;
    }
    if rows.csr(narrow(&batch.z)).unwrap().to_dense() != p {
        return Err("sparse rows are not the dense ones".into());
    }
    // From the same probabilities, so that both speak of the same support.
    let (mut g, own) = (vec![f32::NAN; z.len()], widen(&p));
    rows.vjp(narrow(&batch.z), narrow(&p), narrow(&batch.v), ViewMut::new(&mut g, &shape).unwrap()).unwrap();
    rows.vjp(wide(&z), wide(&own), wide(&v), ViewMut::new(&mut want, &shape).unwrap()).unwrap();
    let is_grouped = GROUPED.contains(&mapping.name());
    for (r, (g, want)) in g.chunks(d).zip(want.chunks(d)).enumerate() {
        let row = r * d..(r + 1) * d;
        let own = &own[row.clone()];
        if is_grouped && (groups(own) != groups(&exact[row]) || torn(own, want)) {
            continue;
        }
        let largest = |x: &[f64]| x.iter().fold(0.0f64, |a, x| a.max(x.abs()));
        let size = largest(want) + largest(&v[r * d..][..d]);
        // Weights are powers, whose relative error grows with their logarithm.
        within(farthest(g, want) / size, 5e-6, || format!("row {r}, a gradient, in units of {size:e}"))?;
    }
    let Some(regularized) = mapping.regularized().filter(|m| m.total(d) == 1.0) else { return Ok(()) };
    // A class that takes part; rows that are masked as a whole have none.
    let class = |z: &[f32]| z.iter().position(|z| z.is_finite()).map_or(-100, |k| k as i64);
    let classes: Vec<i64> = batch.z.chunks(d).map(class).collect();
    let loss = FenchelYoung::new(regularized).single_threaded().reduction(Reduction::None);
    let found = loss
        .loss_and_gradient(narrow(&batch.z), Target::Classes(&classes), ViewMut::new(&mut g, &shape).unwrap())
        .unwrap();
    let wanted = loss.loss_and_gradient(wide(&z), Target::Classes(&classes), ViewMut::new(&mut want, &shape).unwrap());
    let (Loss::Rows(found), Loss::Rows(wanted)) = (found, wanted.unwrap()) else { unreachable!("no reduction") };
    within(farthest(&g, &want), 1e-6, || "a gradient of the loss".into())?;
    for (r, (a, b)) in found.iter().zip(&wanted).enumerate() {
        let off = if a == b { 0.0 } else { (a - b).abs() / (1.0 + b.abs()) };
        within(off, 1e-6, || format!("row {r}, the loss {b}"))?;
    }
    Ok(())
}

/// Mappings whose groups are equal probabilities. Where rounding makes two groups one, the Jacobian of single precision is
/// that of the coarser groups; double precision still tells them apart.
const GROUPED: [&str; 3] = ["fusedmax", "oscarmax", "oscarmax-approx"];

/// How many stretches of equal probabilities there are, and how many kinds.
fn groups(p: &[f64]) -> (usize, usize) {
    let mut kinds: Vec<u64> = p.iter().filter(|p| **p > 0.0).map(|p| p.to_bits()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    (p.windows(2).filter(|pair| pair[0] != pair[1]).count(), kinds.len())
}

/// Whether a score is so near to the mean of the row that rounding decides on which side it lies.
fn touches_mean(z: &[f32]) -> bool {
    let live: Vec<f64> = z.iter().filter(|z| z.is_finite()).map(|z| f64::from(*z)).collect();
    let mean = live.iter().sum::<f64>() / live.len() as f64;
    let size = live.iter().fold(0.0f64, |a, z| a.max(z.abs()));
    live.iter().any(|z| (z - mean).abs() <= 1e-15 * size)
}

/// Whether neighbours of one probability have different gradients: their groups meet where rounding decides.
fn torn(p: &[f64], gradient: &[f64]) -> bool {
    let of_one = |p: &[f64]| p[0] > 0.0 && p[0] == p[1];
    p.windows(2).zip(gradient.windows(2)).any(|(p, g)| of_one(p) && g[0] != g[1])
}

fn within(off: f64, most: f64, what: impl Fn() -> String) -> Result<(), String> {
    if off <= most { Ok(()) } else { Err(format!("{} is off by {off:e} where {most:e} is allowed", what())) }
}

/// The largest difference; NaN counts as infinitely far.
fn farthest(x: &[f32], want: &[f64]) -> f64 {
    x.iter().zip(want).map(|(x, y)| (f64::from(*x) - y).abs()).fold(0.0, |a, b| {
        if b >= a {
            b
        } else if b < a {
            a
        } else {
            f64::INFINITY
        }
    })
}

fn family(name: &str) {
    let names = FAMILIES.iter().find(|(family, _)| *family == name).expect("a known family").1;
    let seconds = std::env::var("PARSIMAX_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(30);
    let end = Instant::now() + Duration::from_secs(seconds);
    let levels: Vec<Level> = available().collect();
    let (mut seed, mut wrong) = (0u64, Vec::new());
    while (seed < 300 || Instant::now() < end) && wrong.len() < SOME {
        let mut rng = Rng::with_seed(seed);
        let (what, mapping) = draw(&mut rng, names);
        let batch = Batch::draw(&mut rng);
        for level in &levels {
            if let Err(problem) = with_level(*level, || check(&*mapping, &batch)) {
                wrong.push(format!("seed {seed}, {level:?}, {what}, {:?}, {problem}", batch.shape()));
            }
        }
        seed += 1;
    }
    println!("{name}: {seed} batches on {} levels", levels.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn separable() {
    family("separable");
}

#[test]
fn structured() {
    family("structured");
}

#[test]
fn norms() {
    family("norms");
}

#[test]
fn evidential() {
    family("evidential");
}
