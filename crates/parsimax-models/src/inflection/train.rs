//! The training loop, and the folder in which a run lives.

use super::checkpoint::{Checkpoint, CheckpointError};
use super::task::Task;
use crate::decode::{Beam, DecodeError, Limits, decode};
use crate::seq2seq::{Adam, Choice, Config, Pair, Seq2Seq, Totals, Translator};
use parsimax_data::buckets::{batches, epoch_seed};
use parsimax_data::inflection::Example;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What a run is asked to do. Together with the data it decides everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Over source positions.
    pub attention: Choice,
    /// Over characters.
    pub output: Choice,
    /// Width of embeddings and states.
    pub size: usize,
    /// Recurrent layers.
    pub layers: usize,
    /// Share of activations that is dropped.
    pub dropout: f32,
    /// Examples in a batch.
    pub batch: usize,
    /// Passes over the data.
    pub epochs: usize,
    /// Adam's rate at the start; it is halved when the validation loss rises.
    pub rate: f32,
    /// Longest gradient, of the mean over symbols.
    pub clip: f32,
    /// Decides where training starts, in which order, and what is dropped.
    pub seed: u64,
    /// Words that are decoded after each epoch to choose the best model; 0 means all.
    pub validation_words: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            attention: Choice::of("entmax15"),
            output: Choice::of("entmax15"),
            size: 128,
            layers: 2,
            dropout: 0.3,
            batch: 64,
            epochs: 60,
            rate: 1e-3,
            clip: 5.0,
            seed: 1,
            validation_words: 0,
        }
    }
}

/// An epoch, afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Counted from 1.
    pub epoch: usize,
    /// Mean training loss of a symbol.
    pub train_loss: f64,
    /// Mean validation loss of a symbol.
    pub validation_loss: f64,
    /// Percentage of validation words that are right.
    pub accuracy: f64,
    /// Mean number of source positions that are attended to.
    pub attention_nonzeros: f64,
    /// Mean number of characters that may come next.
    pub output_nonzeros: f64,
    /// The rate in that epoch.
    pub rate: f32,
}

/// Where a run stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Position {
    /// Epochs that are over.
    epoch: usize,
    /// Batches of this epoch that are over.
    batch: usize,
    steps: u64,
    rate: f32,
    /// Training loss of this epoch so far, and its symbols.
    sum: (f64, usize),
    best: Option<(usize, f64)>,
    history: Vec<EpochRecord>,
}

/// What a run shows while it goes on.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Counted from 1.
    pub epoch: usize,
    /// Of so many.
    pub epochs: usize,
    /// Batches of this epoch that are over.
    pub batch: usize,
    /// Of so many.
    pub batches: usize,
    /// Mean training loss of a symbol in this epoch.
    pub loss: f64,
    /// Target symbols of the last batch.
    pub symbols: usize,
}

/// Somebody who watches a run and may stop it.
pub trait Observer {
    /// After each batch; `true` asks to save and stop.
    fn batch(&mut self, progress: &Progress) -> bool;
    /// After each epoch.
    fn epoch(&mut self, record: &EpochRecord);
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All epochs are over.
    Finished,
    /// It was asked to stop, and saved.
    Stopped,
}

/// Why a run could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainError {
    /// The settings make no sense, or scores are no longer finite.
    Model(parsimax::Error),
    /// A checkpoint cannot be written or read.
    Checkpoint(CheckpointError),
    /// Decoding failed.
    Decode(DecodeError),
    /// Nothing to learn from.
    NoData(&'static str),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => write!(f, "{error}"),
            Self::Checkpoint(error) => write!(f, "{error}"),
            Self::Decode(error) => write!(f, "{error}"),
            Self::NoData(what) => write!(f, "train: {what}"),
        }
    }
}

impl std::error::Error for TrainError {}

impl From<parsimax::Error> for TrainError {
    fn from(error: parsimax::Error) -> Self {
        Self::Model(error)
    }
}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<DecodeError> for TrainError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// A run in its folder.
#[derive(Debug)]
pub struct Trainer {
    folder: PathBuf,
    settings: Settings,
    task: Task,
    model: Seq2Seq,
    adam: Adam,
    position: Position,
    train: Vec<Pair>,
    validation: Vec<Pair>,
}

const LATEST: &str = "latest.safetensors";
const BEST: &str = "best.safetensors";

/// Batches between two checkpoints of a long epoch.
const SAVE_EVERY: usize = 200;

impl Trainer {
    /// A new run.
    ///
    /// # Errors
    /// If there is nothing to learn from or the settings make no sense.
    pub fn new(
        folder: &Path,
        settings: Settings,
        train: &[Example],
        validation: &[Example],
    ) -> Result<Self, TrainError> {
        let task = Task::new(train);
        let model = build(&settings, &task)?;
        let adam = Adam::new(model.values().len());
        let (epoch, batch, steps, rate) = (0, 0, 0, settings.rate);
        let position = Position { epoch, batch, steps, rate, sum: (0.0, 0), best: None, history: Vec::new() };
        let folder = folder.to_owned();
        let mut trainer =
            Self { folder, settings, task, model, adam, position, train: Vec::new(), validation: Vec::new() };
        trainer.give(train, validation)?;
        Ok(trainer)
    }

    /// A run that was saved, at the place where it stopped. The data must be what it was.
    ///
    /// # Errors
    /// If the checkpoint cannot be read, is damaged, or does not fit its own settings.
    pub fn resume(folder: &Path, train: &[Example], validation: &[Example]) -> Result<Self, TrainError> {
        let path = folder.join(LATEST);
        let saved = Checkpoint::read(&path)?;
        let settings: Settings = saved.noted(&path, "settings")?;
        let task: Task = saved.noted(&path, "task")?;
        let position: Position = saved.noted(&path, "position")?;
        let mut model = build(&settings, &task)?;
        restore(&mut model, &saved, &path)?;
        let count = model.values().len();
        let moment = |name: &str| saved.numbers(&path, name, count).map(<[f32]>::to_vec);
        let (first, second) = (moment("adam.first")?, moment("adam.second")?);
        let adam = Adam { steps: position.steps, first, second };
        let folder = folder.to_owned();
        let mut trainer =
            Self { folder, settings, task, model, adam, position, train: Vec::new(), validation: Vec::new() };
        trainer.give(train, validation)?;
        Ok(trainer)
    }

    /// The best model of a run, with its symbols.
    ///
    /// # Errors
    /// As [`resume`](Trainer::resume).
    pub fn best(folder: &Path) -> Result<(Task, Seq2Seq), TrainError> {
        let path = folder.join(BEST);
        let saved = Checkpoint::read(&path)?;
        let task: Task = saved.noted(&path, "task")?;
        let mut model = build(&saved.noted(&path, "settings")?, &task)?;
        restore(&mut model, &saved, &path)?;
        Ok((task, model))
    }

    fn give(&mut self, train: &[Example], validation: &[Example]) -> Result<(), TrainError> {
        if train.is_empty() || validation.is_empty() {
            return Err(TrainError::NoData("there must be examples to learn from and examples to validate on"));
        }
        if train.iter().chain(validation).any(|example| example.form.is_none()) {
            return Err(TrainError::NoData("an example has no form: covered files cannot be learnt from"));
        }
        if self.settings.batch == 0 {
            return Err(TrainError::NoData("a batch must hold at least one example"));
        }
        self.train = train.iter().map(|example| self.task.pair(example)).collect();
        self.validation = validation.iter().map(|example| self.task.pair(example)).collect();
        Ok(())
    }

    /// What the run was asked to do.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The epochs so far.
    #[must_use]
    pub fn history(&self) -> &[EpochRecord] {
        &self.position.history
    }

    /// The model as it is now.
    #[must_use]
    pub fn model(&self) -> &Seq2Seq {
        &self.model
    }

    /// Goes on until all epochs are over or the observer asks to stop; saves after each epoch and in between.
    ///
    /// # Errors
    /// If the model diverges or a checkpoint cannot be written.
    pub fn run(&mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        let lengths: Vec<usize> = self.train.iter().map(|pair| 64 * pair.source.len() + pair.target.len()).collect();
        while self.position.epoch < self.settings.epochs {
            let seed = epoch_seed(self.settings.seed, self.position.epoch as u64);
            let order = batches(&lengths, self.settings.batch, seed);
            while self.position.batch < order.len() {
                let symbols = self.step(&order[self.position.batch])?;
                self.position.batch += 1;
                let (loss, seen) = self.position.sum;
                let progress = Progress {
                    epoch: self.position.epoch + 1,
                    epochs: self.settings.epochs,
                    batch: self.position.batch,
                    batches: order.len(),
                    loss: loss / seen as f64,
                    symbols,
                };
                let must_stop = observer.batch(&progress);
                if must_stop || self.position.batch.is_multiple_of(SAVE_EVERY) {
                    self.save(LATEST)?;
                }
                if must_stop {
                    return Ok(Outcome::Stopped);
                }
            }
            let record = self.end_epoch()?;
            observer.epoch(&record);
        }
        Ok(Outcome::Finished)
    }

    /// One batch; returns its symbols.
    fn step(&mut self, batch: &[usize]) -> Result<usize, TrainError> {
        let pairs: Vec<&Pair> = batch.iter().map(|i| &self.train[*i]).collect();
        let seed = epoch_seed(!self.settings.seed, self.position.steps);
        let (clip, rate) = (self.settings.clip, self.position.rate);
        let totals = self.model.train_step(&pairs, seed, &mut self.adam, clip, rate)?;
        self.position.steps += 1;
        self.position.sum.0 += totals.loss;
        self.position.sum.1 += totals.symbols;
        Ok(totals.symbols)
    }

    /// Validates, halves the rate if the loss has risen, remembers the best, saves.
    fn end_epoch(&mut self) -> Result<EpochRecord, TrainError> {
        let pairs: Vec<&Pair> = self.validation.iter().collect();
        let mut totals = Totals::default();
        for batch in pairs.chunks(256) {
            totals.add(&self.model.loss(batch)?);
        }
        let validation_loss = totals.loss / totals.symbols as f64;
        let words = match self.settings.validation_words {
            0 => pairs.len(),
            n => n.min(pairs.len()),
        };
        let accuracy = accuracy(&self.model, &pairs[..words], 1)?;
        let position = &mut self.position;
        let record = EpochRecord {
            epoch: position.epoch + 1,
            train_loss: position.sum.0 / position.sum.1 as f64,
            validation_loss,
            accuracy: accuracy.percent,
            attention_nonzeros: totals.attention.1 as f64 / totals.attention.0 as f64,
            output_nonzeros: accuracy.output_nonzeros,
            rate: position.rate,
        };
        if position.history.last().is_some_and(|last| validation_loss > last.validation_loss) {
            position.rate /= 2.0;
        }
        position.history.push(record);
        position.epoch += 1;
        (position.batch, position.sum) = (0, (0.0, 0));
        let is_best = position.best.is_none_or(|(_, best)| record.accuracy > best);
        if is_best {
            position.best = Some((record.epoch, record.accuracy));
            self.save(BEST)?;
        }
        self.save(LATEST)?;
        Ok(record)
    }

    fn save(&self, name: &str) -> Result<(), CheckpointError> {
        let mut saved = Checkpoint { tensors: Vec::new(), notes: std::collections::HashMap::new() };
        saved.note("settings", &self.settings);
        saved.note("task", &self.task);
        saved.note("position", &self.position);
        let named = self.model.named().map(|(name, shape, values)| (name.to_owned(), shape.to_vec(), values.to_vec()));
        saved.tensors.extend(named);
        if name == LATEST {
            for (name, moment) in [("adam.first", &self.adam.first), ("adam.second", &self.adam.second)] {
                saved.tensors.push((name.to_owned(), vec![moment.len()], moment.clone()));
            }
        }
        saved.write(&self.folder.join(name))
    }
}

fn build(settings: &Settings, task: &Task) -> parsimax::Result<Seq2Seq> {
    let config = Config {
        source_symbols: task.source.len(),
        target_symbols: task.target.len(),
        size: settings.size,
        layers: settings.layers,
        dropout: settings.dropout,
        attention: settings.attention.clone(),
        output: settings.output.clone(),
    };
    Seq2Seq::new(config, settings.seed)
}

/// Puts saved parameters into a model of the same shape.
fn restore(model: &mut Seq2Seq, saved: &Checkpoint, path: &Path) -> Result<(), CheckpointError> {
    let mut values = Vec::with_capacity(model.values().len());
    for (name, _, current) in model.named() {
        values.extend_from_slice(saved.numbers(path, name, current.len())?);
    }
    model.values_mut().copy_from_slice(&values);
    Ok(())
}

/// How many words a model gets right, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Accuracy {
    /// Of all words.
    pub percent: f64,
    /// Mean number of characters that may come next.
    pub output_nonzeros: f64,
}

/// Decodes words by a beam of some width and compares.
///
/// # Errors
/// If the model's scores are not finite.
pub fn accuracy(model: &Seq2Seq, pairs: &[&Pair], width: usize) -> Result<Accuracy, DecodeError> {
    let (mut right, mut steps, mut nonzeros) = (0, 0, 0);
    for part in pairs.chunks(256) {
        let sources: Vec<&[u32]> = part.iter().map(|pair| &pair.source[..]).collect();
        let mut translator = Translator::new(model, &sources);
        let beams = decode(&mut translator, part.len(), Limits::default(), |_, o| Beam::new(width, o))?;
        let is_right = |(beam, pair): &(&crate::decode::Beams, &&Pair)| {
            beam.hypotheses.first().is_some_and(|best| best.symbols == pair.target)
        };
        right += beams.iter().zip(part).filter(is_right).count();
        steps += translator.counts().steps;
        nonzeros += translator.counts().output;
    }
    let percent = 100.0 * right as f64 / pairs.len().max(1) as f64;
    Ok(Accuracy { percent, output_nonzeros: nonzeros as f64 / steps.max(1) as f64 })
}
