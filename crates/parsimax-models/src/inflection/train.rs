//! The training loop.

use super::checkpoint::{Checkpoint, CheckpointError};
use super::error::TrainError;
use super::run::{BEST, LATEST, build, keep_examples, kept_examples, restore};
use super::task::Task;
use crate::decode::{Beam, DecodeError, Limits, decode};
use crate::seq2seq::{Adam, Choice, Pair, Seq2Seq, Totals, Translator};
use parsimax_data::buckets::{batches, epoch_seed};
use parsimax_data::inflection::Example;
use parsimax_data::vocabulary::UNKNOWN;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    /// Adam's rate at the start; it is halved when the validation loss has not fallen for some hundred steps.
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
pub(super) struct Position {
    /// Epochs that are over.
    pub(super) epoch: usize,
    /// Batches of this epoch that are over.
    batch: usize,
    steps: u64,
    rate: f32,
    /// Training loss of this epoch so far, and its symbols.
    sum: (f64, usize),
    /// The lowest validation loss, and the steps when it was reached or the rate was last halved.
    lowest: Option<(u64, f64)>,
    best: Option<(usize, f64)>,
    pub(super) history: Vec<EpochRecord>,
}

/// Steps without a lower validation loss after which the rate is halved. Counted in steps, not epochs: small data make
/// short epochs, and from one to the next the loss rises by chance.
const PATIENCE: u64 = 400;

impl Position {
    /// Halves the rate if the validation loss has not fallen for a while.
    fn think_over(&mut self, loss: f64) {
        match self.lowest {
            Some((steps, lowest)) if loss >= lowest => {
                if self.steps >= steps + PATIENCE {
                    self.rate /= 2.0;
                    self.lowest = Some((self.steps, lowest));
                }
            }
            _ => self.lowest = Some((self.steps, loss)),
        }
    }
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
    /// Of the examples, as they were kept.
    data: String,
    save_every: Duration,
}

/// What is lost at most when a run is killed.
const SAVE_EVERY: Duration = Duration::from_secs(30);

impl Trainer {
    /// A new run. Its folder is made if it is not there, and from then on holds all that the run depends on.
    ///
    /// # Errors
    /// If there is nothing to learn from, the settings make no sense, or the folder cannot be written.
    pub fn new(
        folder: &Path,
        settings: Settings,
        train: &[Example],
        validation: &[Example],
    ) -> Result<Self, TrainError> {
        check(&settings, train, validation)?;
        let task = Task::new(train);
        let model = build(&settings, &task)?;
        let adam = Adam::new(model.values().len());
        let (epoch, batch, steps, rate) = (0, 0, 0, settings.rate);
        let position =
            Position { epoch, batch, steps, rate, sum: (0.0, 0), lowest: None, best: None, history: Vec::new() };
        let [train, validation] = [train, validation].map(|examples| {
            let pairs = examples.iter().map(|example| task.pair(example)).collect::<Vec<_>>();
            (examples, pairs)
        });
        let data = keep_examples(folder, train.0, validation.0)?;
        let (folder, train, validation, save_every) = (folder.to_owned(), train.1, validation.1, SAVE_EVERY);
        let trainer = Self { folder, settings, task, model, adam, position, train, validation, data, save_every };
        trainer.save(LATEST)?;
        Ok(trainer)
    }

    /// A run that was saved, at the place where it stopped.
    ///
    /// # Errors
    /// If a file of the run cannot be read, is damaged, or does not fit the others.
    pub fn resume(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(LATEST);
        let saved = Checkpoint::read(&path)?;
        let settings: Settings = saved.noted(&path, "settings")?;
        let task: Task = saved.noted(&path, "task")?;
        let position: Position = saved.noted(&path, "position")?;
        let data: String = saved.noted(&path, "data")?;
        let mut model = build(&settings, &task)?;
        restore(&mut model, &saved, &path)?;
        let count = model.values().len();
        let moment = |name: &str| saved.numbers(&path, name, count).map(<[f32]>::to_vec);
        let (first, second) = (moment("adam.first")?, moment("adam.second")?);
        let adam = Adam { steps: position.steps, first, second };
        let kept = kept_examples(folder, &data)?;
        check(&settings, &kept[0], &kept[1])?;
        let [train, validation] = kept.map(|examples| examples.iter().map(|example| task.pair(example)).collect());
        let (folder, save_every) = (folder.to_owned(), SAVE_EVERY);
        Ok(Self { folder, settings, task, model, adam, position, train, validation, data, save_every })
    }

    /// Goes on for so many epochs in all, instead of what the settings said.
    #[must_use]
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.settings.epochs = epochs;
        self
    }

    /// Saves as often inside an epoch; what happens in training does not depend on it.
    #[must_use]
    pub fn save_every(mut self, time: Duration) -> Self {
        self.save_every = time;
        self
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
        let mut saved = Instant::now();
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
                if must_stop || saved.elapsed() >= self.save_every {
                    self.save(LATEST)?;
                    saved = Instant::now();
                }
                if must_stop {
                    return Ok(Outcome::Stopped);
                }
            }
            let record = self.end_epoch()?;
            saved = Instant::now();
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

    /// Validates, halves the rate if the loss no longer falls, remembers the best, saves.
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
        // Evenly from all of them: languages stand one after the other.
        let words: Vec<&Pair> = (0..words).map(|i| pairs[i * pairs.len() / words]).collect();
        let accuracy = accuracy(&self.model, &words, 1)?;
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
        position.think_over(validation_loss);
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
        let mut saved = Checkpoint { tensors: Vec::new(), notes: Default::default() };
        saved.note("settings", &self.settings);
        saved.note("task", &self.task);
        saved.note("position", &self.position);
        saved.note("data", &self.data);
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

/// Complains about examples that cannot be learnt from, and about settings that no model would notice.
fn check(settings: &Settings, train: &[Example], validation: &[Example]) -> Result<(), TrainError> {
    if train.is_empty() || validation.is_empty() {
        return Err(TrainError::NoData("there must be examples to learn from and examples to validate on"));
    }
    let mut all = train.iter().chain(validation);
    if all.clone().any(|example| example.form.is_none()) {
        return Err(TrainError::NoData("an example has no form: covered files cannot be learnt from"));
    }
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['\t', '\n', '\r']);
    let is_whole =
        |e: &Example| [&e.language, &e.lemma].into_iter().chain(&e.form).chain(&e.tags).all(|text| is_plain(text));
    if !all.all(is_whole) {
        return Err(TrainError::NoData("a field of an example is empty or contains a tab or a line break"));
    }
    let numbers = [
        ("batch", settings.batch as f64, settings.batch >= 1, "at least 1"),
        ("epochs", settings.epochs as f64, settings.epochs >= 1, "at least 1"),
        ("rate", f64::from(settings.rate), settings.rate > 0.0 && settings.rate.is_finite(), "above 0"),
        ("clip", f64::from(settings.clip), settings.clip > 0.0, "above 0"),
    ];
    match numbers.into_iter().find(|(_, _, is_good, _)| !is_good) {
        Some((name, got, _, expected)) => {
            Err(parsimax::Error::Parameter { operation: "train", name, expected, got }.into())
        }
        None => Ok(()),
    }
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
            // A character that the model cannot write is never right.
            let is_known = !pair.target.contains(&UNKNOWN);
            is_known && beam.hypotheses.first().is_some_and(|best| best.symbols == pair.target)
        };
        right += beams.iter().zip(part).filter(is_right).count();
        steps += translator.counts().steps;
        nonzeros += translator.counts().output;
    }
    let percent = 100.0 * right as f64 / pairs.len().max(1) as f64;
    Ok(Accuracy { percent, output_nonzeros: nonzeros as f64 / steps.max(1) as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_halved_when_the_loss_has_not_fallen_for_a_while_and_not_before() {
        let (epoch, batch, steps, rate) = (0, 0, 0, 1.0);
        let mut position =
            Position { epoch, batch, steps, rate, sum: (0.0, 0), lowest: None, best: None, history: Vec::new() };
        let mut after = |steps: u64, loss: f64| {
            position.steps = steps;
            position.think_over(loss);
            position.rate
        };
        assert_eq!(after(100, 0.5), 1.0);
        assert_eq!(after(200, 0.4), 1.0, "it falls");
        assert_eq!(after(200 + PATIENCE - 1, 0.6), 1.0, "patience");
        assert_eq!(after(200 + PATIENCE, 0.4), 0.5, "not lower is not fallen");
        assert_eq!(after(200 + 2 * PATIENCE - 1, 0.45), 0.5, "the smaller rate has its time too");
        assert_eq!(after(200 + 2 * PATIENCE, 0.41), 0.25);
        assert_eq!(after(200 + 3 * PATIENCE, 0.39), 0.25, "a new low counts anew");
        assert_eq!(after(200 + 4 * PATIENCE - 1, 0.5), 0.25);
    }
}
