//! Sequence to sequence with sparse attention and a sparse output (Peters, Niculae & Martins 2019).
//!
//! A bidirectional LSTM reads the source; an LSTM with global attention and input feeding writes the target. Any
//! mapping serves as attention, any regularised mapping with its Fenchel–Young loss as output.
//!
//! The model is small and its steps are short, so a framework would spend its time between operations. Passes are
//! therefore written out over the core's kernels, forwards and backwards: a whole sequence is a handful of matrix
//! products, and what is zero is skipped. Parameters lie in one vector, which makes the optimiser, checkpoints and
//! sums of gradients one loop each.
//!
//! | file | what it does |
//! |---|---|
//! | `parameters.rs` | where each matrix lies, by name |
//! | `extent.rs`, `work.rs` | sequences without padding, and memory that is used again |
//! | `linear.rs`, `lstm.rs` | products and recurrent layers, both ways |
//! | `encoder.rs`, `decoder.rs`, `network.rs` | the two halves and the whole, ready to run |
//! | `pass.rs`, `back.rs` | loss and gradient of a batch |
//! | `adam.rs`, `dropout.rs` | what training needs besides |
//! | `scorer.rs` | the model as decoders see it |

mod adam;
mod back;
mod decoder;
mod dropout;
mod encoder;
mod extent;
mod linear;
mod lstm;
mod network;
mod parameters;
mod pass;
mod scorer;
mod work;

pub use adam::Adam;
pub use pass::Totals;
pub use scorer::{Counts, Prefix, Translator};

use dropout::Dropout;
use network::Network;
use parameters::Slots;
use parsimax::registry::{self, Options};
use parsimax::{Error, Mapping, Regularized};
use parsimax_data::buckets::epoch_seed;
use pass::{Learnt, pass};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, OnceLock, PoisonError};
use work::Work;

/// A source and a target, as numbers of symbols; the end of the target is understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pair {
    /// At least one symbol.
    pub source: Vec<u32>,
    /// Without begin and end.
    pub target: Vec<u32>,
}

/// A mapping by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// As in the registry of mappings.
    pub mapping: String,
    /// α, where it applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
}

impl Choice {
    /// A mapping at its defaults.
    #[must_use]
    pub fn of(mapping: &str) -> Self {
        Self { mapping: mapping.to_owned(), alpha: None }
    }

    fn build(&self) -> parsimax::Result<Box<dyn Mapping>> {
        registry::build(&self.mapping, &Options { alpha: self.alpha, ..Options::default() })
    }
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Symbols of the source vocabulary.
    pub source_symbols: usize,
    /// Symbols of the target vocabulary.
    pub target_symbols: usize,
    /// Width of embeddings and states; even.
    pub size: usize,
    /// Recurrent layers of encoder and decoder.
    pub layers: usize,
    /// Share of activations that training drops.
    pub dropout: f32,
    /// Over source positions.
    pub attention: Choice,
    /// Over target symbols.
    pub output: Choice,
}

/// The two mappings of a model.
pub(crate) struct Mappings {
    attention: Box<dyn Mapping>,
    output: Box<dyn Mapping>,
}

impl Mappings {
    fn new(config: &Config) -> parsimax::Result<Self> {
        let (attention, output) = (config.attention.build()?, config.output.build()?);
        if output.regularized().is_none() {
            return Err(Error::Unsupported { operation: output.name(), what: "a Fenchel–Young loss" });
        }
        Ok(Self { attention, output })
    }

    fn attention(&self) -> &dyn Mapping {
        &*self.attention
    }

    fn output(&self) -> &dyn Regularized {
        self.output.regularized().expect("checked when the mappings were built")
    }
}

/// A model: its shape and what it has learnt.
pub struct Seq2Seq {
    config: Config,
    slots: Slots,
    mappings: Mappings,
    values: Vec<f32>,
    /// The parameters as passes use them, once somebody asks; and memory for the next time.
    network: OnceLock<Network>,
    /// What each target symbol adds to the sums of the decoder's first layer.
    symbol_sums: OnceLock<Vec<f32>>,
    spare: Mutex<Option<Network>>,
    desks: Mutex<Vec<Desk>>,
    gradients: Vec<f32>,
}

/// What a part of a batch needs to be worked on.
#[derive(Debug, Default)]
struct Desk {
    work: Work,
    gradients: Vec<f32>,
}

impl std::fmt::Debug for Seq2Seq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seq2Seq").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Numbers that a thread takes at a time in sums over all parameters.
const CHUNK: usize = 1 << 15;

impl Seq2Seq {
    /// A model that has learnt nothing yet.
    ///
    /// # Errors
    /// If a mapping is unknown or has no loss, or a size makes no sense.
    pub fn new(config: Config, seed: u64) -> parsimax::Result<Self> {
        let sizes = [
            ("size", config.size, config.size >= 2 && config.size.is_multiple_of(2), "even and at least 2"),
            ("layers", config.layers, config.layers >= 1, "at least 1"),
            ("source_symbols", config.source_symbols, config.source_symbols > 4, "more than the 4 special ones"),
            ("target_symbols", config.target_symbols, config.target_symbols > 4, "more than the 4 special ones"),
        ];
        for (name, got, is_good, expected) in sizes {
            if !is_good {
                return Err(Error::Parameter { operation: "seq2seq", name, expected, got: got as f64 });
            }
        }
        if !(0.0..1.0).contains(&config.dropout) {
            let got = f64::from(config.dropout);
            return Err(Error::Parameter { operation: "seq2seq", name: "dropout", expected: "in [0, 1)", got });
        }
        let (slots, mappings) = (Slots::new(&config), Mappings::new(&config)?);
        let values = slots.random(&config, seed);
        let (network, symbol_sums) = (OnceLock::new(), OnceLock::new());
        let (spare, desks) = (Mutex::new(None), Mutex::new(Vec::new()));
        Ok(Self { config, slots, mappings, values, network, symbol_sums, spare, desks, gradients: Vec::new() })
    }

    /// Its shape.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// All parameters.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All parameters, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        // What was packed is no longer true.
        self.symbol_sums.take();
        if let Some(network) = self.network.take() {
            *self.spare.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(network);
        }
        &mut self.values
    }

    /// Name, rows, columns and place of each matrix among the parameters.
    pub fn named(&self) -> impl Iterator<Item = (&str, [usize; 2], &[f32])> {
        self.slots.named.iter().map(|(name, slot)| (name.as_str(), [slot.rows, slot.columns], slot.of(&self.values)))
    }

    /// The parameters, packed for products.
    fn network(&self) -> &Network {
        self.network.get_or_init(|| {
            let spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut network = spare.unwrap_or_else(|| Network::new(&self.slots));
            network.repack(&self.values);
            network
        })
    }

    /// What each target symbol adds to the sums of the decoder's first layer: decoders read them again and again.
    fn symbol_sums(&self) -> &[f32] {
        self.symbol_sums.get_or_init(|| {
            let (n, size) = (self.config.target_symbols, self.config.size);
            let mut sums = vec![0.0; n * 4 * size];
            let embeddings = self.slots.target.of(&self.values);
            self.network().decoder.embedding.apply(embeddings, n, &mut sums, false, &mut Work::default());
            sums
        })
    }

    fn learnt(&self) -> Learnt<'_> {
        Learnt { slots: &self.slots, values: &self.values, network: self.network(), mappings: &self.mappings }
    }

    /// A desk that is free, or a new one.
    fn desk(&self) -> Desk {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_back(&self, desks: [Desk; 2]) {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner).extend(desks);
    }

    /// The loss of a batch without dropout.
    ///
    /// # Errors
    /// If scores are not finite: the model has diverged.
    pub fn loss(&self, batch: &[&Pair]) -> parsimax::Result<Totals> {
        let (model, parts) = (self.learnt(), cut(batch));
        let [mut one, mut other] = [self.desk(), self.desk()];
        let (a, b) = rayon::join(
            || pass(model, &parts[0], None, None, &mut one.work),
            || pass(model, &parts[1], None, None, &mut other.work),
        );
        self.give_back([one, other]);
        Ok(sum(a?, b?))
    }

    /// The loss of a batch, and its gradient in all parameters, summed over symbols. `seed` decides what is dropped;
    /// the result does not depend on the number of threads.
    ///
    /// # Errors
    /// As [`loss`](Seq2Seq::loss).
    pub fn gradient(&self, batch: &[&Pair], seed: u64) -> parsimax::Result<(Totals, Vec<f32>)> {
        let mut gradients = Vec::new();
        let totals = self.gradient_into(batch, seed, &mut gradients)?;
        Ok((totals, gradients))
    }

    /// One step of training: the mean gradient over symbols, no longer than `clip`, through Adam.
    ///
    /// # Errors
    /// As [`loss`](Seq2Seq::loss).
    pub fn train_step(
        &mut self,
        batch: &[&Pair],
        seed: u64,
        adam: &mut Adam,
        clip: f32,
        rate: f32,
    ) -> parsimax::Result<Totals> {
        let mut gradients = std::mem::take(&mut self.gradients);
        let totals = self.gradient_into(batch, seed, &mut gradients)?;
        adam.clipped_step(self.values_mut(), &gradients, 1.0 / totals.symbols as f64, clip, rate);
        self.gradients = gradients;
        Ok(totals)
    }

    /// The gradient into memory that is used again.
    fn gradient_into(&self, batch: &[&Pair], seed: u64, gradients: &mut Vec<f32>) -> parsimax::Result<Totals> {
        let (model, parts, count) = (self.learnt(), cut(batch), self.values.len());
        let [mut one, mut other] = [self.desk(), self.desk()];
        gradients.resize(count, 0.0);
        other.gradients.resize(count, 0.0);
        let part = |which: usize, gradients: &mut [f32], work: &mut Work| {
            let dropout = Dropout::new(self.config.dropout, epoch_seed(seed, which as u64));
            pass(model, &parts[which], dropout, Some(gradients), work)
        };
        let (a, b) =
            rayon::join(|| part(0, gradients, &mut one.work), || part(1, &mut other.gradients, &mut other.work));
        if !parts[1].is_empty() {
            let chunks = gradients.par_chunks_mut(CHUNK).zip(other.gradients.par_chunks(CHUNK));
            chunks.for_each(|(total, part)| linear::add(total, part));
        }
        self.give_back([one, other]);
        Ok(sum(a?, b?))
    }
}

/// The two parts of a batch: always the same, so that sums of gradients do not depend on the number of threads. Like
/// lengths stand together in a batch, so every other row makes parts that take equally long.
fn cut<'a>(batch: &[&'a Pair]) -> [Vec<&'a Pair>; 2] {
    [0, 1].map(|first| batch.iter().skip(first).step_by(2).copied().collect())
}

fn sum(mut a: Totals, b: Totals) -> Totals {
    a.add(&b);
    a
}
