//! Training steps of whole models on random words, one contender of `models.py`.
//!
//! It reads a number from each line of its input, takes as many steps, and answers with the seconds
//! of each, so that contenders in processes of their own take turns. The last line is the peak of its
//! memory.

mod lstm;
mod transformer;

use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::{Parser, ValueEnum};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::loss::{LossReduction, SparseLoss, SparseLossConfig};
use parsimax_burn::train::{AdamConfig, Workers};
use std::io::{BufRead, Write};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Which model.
#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// Encoder and decoder of one LSTM layer each, with global attention
    Lstm,
    /// Encoder and decoder of three Transformer blocks each
    Transformer,
}

/// What turns scores into probabilities.
#[derive(Clone, Copy, ValueEnum)]
enum Mapping {
    /// Softmax and cross-entropy
    Softmax,
    /// 1.5-entmax and its loss
    Entmax15,
    /// Entmax with a learned α in attention, and the loss of 1.5-entmax
    Learned,
}

impl Mapping {
    fn attention(self) -> NormalizerConfig {
        match self {
            Mapping::Softmax => NormalizerConfig::softmax(),
            Mapping::Entmax15 => NormalizerConfig::entmax15(),
            Mapping::Learned => NormalizerConfig::adaptive_entmax(1.5),
        }
    }

    /// The sum over the targets of a part of the batch.
    fn loss(self) -> SparseLoss {
        let output = match self {
            Mapping::Softmax => NormalizerConfig::softmax(),
            Mapping::Entmax15 | Mapping::Learned => NormalizerConfig::entmax15(),
        };
        SparseLossConfig::new(output).with_reduction(LossReduction::Sum).init()
    }
}

/// Trains a model for as many steps as its input says.
#[derive(Parser)]
struct Arguments {
    /// The model
    model: Which,
    /// The mapping
    mapping: Mapping,
    /// Threads, each with its part of the batch
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// Sizes that a model is measured at.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    time: usize,
    width: usize,
    vocabulary: usize,
}

/// A part of a batch: source, target shifted by one, target.
struct Part {
    source: Tensor<2, Int>,
    before: Tensor<2, Int>,
    target: Tensor<2, Int>,
}

/// A model that reads words and scores words.
trait Translator: Module + Clone + Send + Sync {
    /// `[batch, time, vocabulary]`
    fn scores(&self, source: Tensor<2, Int>, before: Tensor<2, Int>) -> Tensor<3>;
}

/// Random words, the same for every contender of a seed.
fn batch(sizes: Sizes, parts: usize, rng: &mut fastrand::Rng, device: &Device) -> Vec<Part> {
    let rows = sizes.batch / parts;
    let mut words = || {
        let data: Vec<i64> = (0..rows * sizes.time).map(|_| rng.i64(0..sizes.vocabulary as i64)).collect();
        Tensor::from_data(TensorData::new(data, [rows, sizes.time]), device)
    };
    (0..parts).map(|_| Part { source: words(), before: words(), target: words() }).collect()
}

/// Answers each line of the input.
fn serve<M: Translator>(mut model: M, sizes: Sizes, arguments: &Arguments, device: &Device) -> std::io::Result<()> {
    let (workers, mut adam) = (Workers::new(arguments.threads), AdamConfig::new().init());
    let (loss, mut rng) = (arguments.mapping.loss(), fastrand::Rng::with_seed(1));
    let tokens = (sizes.batch * sizes.time) as f64;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let count: usize = line?.trim().parse().unwrap_or(0);
        let mut seconds = Vec::with_capacity(count);
        let mut last = f64::NAN;
        for _ in 0..count {
            let parts = batch(sizes, workers.count(), &mut rng, device);
            let start = Instant::now();
            let step = |model: &M, part: Part| {
                let scores = model.scores(part.source, part.before);
                loss.forward(scores, part.target).div_scalar(tokens)
            };
            let (value, gradients) = workers.gradients(&model, parts, device, step);
            model = adam.step(1e-3, model, gradients);
            seconds.push(format!("{:.6}", start.elapsed().as_secs_f64()));
            last = value;
        }
        writeln!(out, "{{\"seconds\": [{}], \"loss\": {last:.6}, \"peak_kb\": {}}}", seconds.join(", "), peak())?;
        out.flush()?;
    }
    Ok(())
}

/// The most memory that the process ever held, in kB; 0 where the system does not say.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Keeps memory that was freed: what a step gives back the next one asks for, and every page that the system takes in
/// between has to be cleared again.
#[allow(unsafe_code, reason = "options of the allocator have no other door")]
fn keep_memory() {
    /// `mi_option_purge_delay`, which the bindings do not name; the one before `use_numa_nodes`.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = libmimalloc_sys::mi_option_use_numa_nodes - 1;
    // SAFETY: no other thread has been started.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) };
}

fn main() -> std::io::Result<()> {
    keep_memory();
    let arguments = Arguments::parse();
    let device = Device::default().autodiff();
    let attention = arguments.mapping.attention();
    match arguments.model {
        Which::Lstm => {
            let sizes = Sizes { batch: 64, time: 24, width: 256, vocabulary: 2000 };
            serve(lstm::Model::new(sizes, attention, &device), sizes, &arguments, &device)
        }
        Which::Transformer => {
            let sizes = Sizes { batch: 32, time: 24, width: 256, vocabulary: 8000 };
            serve(transformer::Model::new(sizes, attention, &device), sizes, &arguments, &device)
        }
    }
}
