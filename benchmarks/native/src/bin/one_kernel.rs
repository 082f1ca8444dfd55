//! Runs one kernel on fixed inputs a given number of times: `one-kernel NAME TIMES`.
//!
//! `cargo xtask instructions` runs it under callgrind. The difference between two numbers of runs is
//! the kernel alone: start-up, inputs and first-time allocations cancel.

use parsimax::registry::{Options, build};
use parsimax::{Mapping, Result, Rows, View, ViewMut};
use std::process::ExitCode;

/// Rows of two widths, so that the paths for short and for long rows both count.
const SHAPES: [[usize; 2]; 2] = [[64, 64], [4, 4096]];

/// The headline kernels: mapping, α, and whether the backward pass is meant.
const KERNELS: [(&str, &str, Option<f64>, bool); 5] = [
    ("softmax", "softmax", None, false),
    ("sparsemax", "sparsemax", None, false),
    ("entmax15", "entmax15", None, false),
    ("entmax-1.25", "entmax", Some(1.25), false),
    ("sparsemax-backward", "sparsemax", None, true),
];

/// Scores, an incoming gradient and the results.
struct Batch {
    shape: [usize; 2],
    z: Vec<f32>,
    v: Vec<f32>,
    p: Vec<f32>,
    out: Vec<f32>,
}

impl Batch {
    fn new(shape: [usize; 2], random: &mut fastrand::Rng) -> Self {
        let n = shape[0] * shape[1];
        let (z, v) = (normal(random, n), normal(random, n));
        Self { shape, z, v, p: vec![0.0; n], out: vec![0.0; n] }
    }

    fn forward(&mut self, mapping: &dyn Mapping) -> Result<()> {
        let p = ViewMut::new(&mut self.p, &self.shape)?;
        Rows::new(&mapping).single_threaded().forward(View::new(&self.z, &self.shape)?, p)
    }

    fn backward(&mut self, mapping: &dyn Mapping) -> Result<()> {
        let view = |data| View::new(data, &self.shape);
        let (z, p, v) = (view(&self.z)?, view(&self.p)?, view(&self.v)?);
        Rows::new(&mapping).single_threaded().vjp(z, p, v, ViewMut::new(&mut self.out, &self.shape)?)
    }
}

/// Standard normal numbers (Box and Muller).
fn normal(random: &mut fastrand::Rng, n: usize) -> Vec<f32> {
    let mut one = || (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos();
    (0..n).map(|_| one() as f32).collect()
}

fn run(name: &str, times: usize) -> std::result::Result<(), String> {
    let names = || KERNELS.map(|kernel| kernel.0).join(", ");
    let (_, mapping, alpha, backward) =
        KERNELS.iter().find(|kernel| kernel.0 == name).ok_or_else(|| format!("`{name}` is none of {}", names()))?;
    let message = |error: parsimax::Error| error.to_string();
    let mapping = build(mapping, &Options { alpha: *alpha, ..Options::default() }).map_err(message)?;
    let mut random = fastrand::Rng::with_seed(20_160_208);
    for mut batch in SHAPES.map(|shape| Batch::new(shape, &mut random)) {
        if *backward {
            batch.forward(&*mapping).map_err(message)?;
        }
        for _ in 0..times {
            if *backward { batch.backward(&*mapping) } else { batch.forward(&*mapping) }.map_err(message)?;
        }
        std::hint::black_box((&batch.p, &batch.out));
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [list] if list == "--list" => {
            KERNELS.iter().for_each(|kernel| println!("{}", kernel.0));
            Ok(())
        }
        [name, times] => times.parse().map_err(|_| format!("`{times}` is not a number")).and_then(|n| run(name, n)),
        _ => Err("usage: one-kernel NAME TIMES | --list".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}
