//! The folder of a run, and what can be read from it.
//!
//! | file | what |
//! |---|---|
//! | `train.tsv`, `validation.tsv` | the examples, so that a run depends on nothing outside its folder |
//! | `latest.safetensors` | the last checkpoint: parameters, optimiser, position |
//! | `best.safetensors` | the parameters that did best on the validation words |
//!
//! The checkpoint comes last when a run is started: a folder without one holds no run.

use super::checkpoint::{Checkpoint, CheckpointError, write_whole};
use super::error::TrainError;
use super::task::Task;
use super::train::{EpochRecord, Position, Settings};
use crate::seq2seq::{Config, Seq2Seq};
use parsimax_data::inflection::{Example, from_tsv, to_tsv};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) const LATEST: &str = "latest.safetensors";
pub(super) const BEST: &str = "best.safetensors";
const TRAIN: &str = "train.tsv";
const VALIDATION: &str = "validation.tsv";

/// A run as it lies in its folder, finished or not: its best model and all that is known about it.
#[derive(Debug)]
pub struct Run {
    /// Where it lies.
    pub folder: PathBuf,
    /// What it was asked to do.
    pub settings: Settings,
    /// The symbols of both sides.
    pub task: Task,
    /// The model that did best on the validation words.
    pub model: Seq2Seq,
    /// The epoch it is from, counted from 1.
    pub best_epoch: usize,
    /// All epochs that are over, later ones than the best included.
    pub history: Vec<EpochRecord>,
    /// The examples that chose the best model.
    pub validation: Vec<Example>,
}

impl Run {
    /// Whether a folder holds a run.
    #[must_use]
    pub fn is_at(folder: &Path) -> bool {
        folder.join(LATEST).exists() || folder.join(BEST).exists()
    }

    /// Reads a run.
    ///
    /// # Errors
    /// If there is none, its first epoch is not over, or a file of it is damaged, is not ours, or does not fit.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let path = folder.join(BEST);
        if !path.exists() && folder.join(LATEST).exists() {
            return Err(TrainError::TooEarly(folder.to_owned()));
        }
        let best = Checkpoint::read(&path)?;
        let (settings, task): (Settings, Task) = (best.noted(&path, "settings")?, best.noted(&path, "task")?);
        let position: Position = best.noted(&path, "position")?;
        let mut model = build(&settings, &task)?;
        restore(&mut model, &best, &path)?;
        let validation = read_examples(&folder.join(VALIDATION))?;
        let (folder, best_epoch) = (folder.to_owned(), position.epoch);
        let mut run = Self { folder, settings, task, model, best_epoch, history: position.history, validation };
        run.go_on_to_latest()?;
        Ok(run)
    }

    /// Settings and history of the last checkpoint, which may be later than the best.
    fn go_on_to_latest(&mut self) -> Result<(), TrainError> {
        let path = self.folder.join(LATEST);
        if !path.exists() {
            return Ok(());
        }
        let latest = Checkpoint::read(&path)?;
        let position: Position = latest.noted(&path, "position")?;
        // A run that was killed between its two files has the later one in `best`.
        if position.history.len() >= self.history.len() {
            self.history = position.history;
            self.settings = latest.noted(&path, "settings")?;
        }
        Ok(())
    }
}

/// Puts the examples of a new run into its folder, which is made if it is not there; returns their checksum.
pub(super) fn keep_examples(folder: &Path, train: &[Example], validation: &[Example]) -> Result<String, TrainError> {
    fs::create_dir_all(folder).map_err(|error| CheckpointError::Io { path: folder.to_owned(), error })?;
    let mut hasher = crc32fast::Hasher::new();
    for (name, examples) in [(TRAIN, train), (VALIDATION, validation)] {
        let text = to_tsv(examples);
        hasher.update(text.as_bytes());
        write_whole(&folder.join(name), text.as_bytes())?;
    }
    Ok(format!("{:08x}", hasher.finalize()))
}

/// The examples of a run, to learn from and to validate on, if they are still those of `checksum`.
pub(super) fn kept_examples(folder: &Path, checksum: &str) -> Result<[Vec<Example>; 2], TrainError> {
    let (train, validation) = (read_examples(&folder.join(TRAIN))?, read_examples(&folder.join(VALIDATION))?);
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(to_tsv(&train).as_bytes());
    hasher.update(to_tsv(&validation).as_bytes());
    if format!("{:08x}", hasher.finalize()) != checksum {
        let what = format!("{TRAIN} and {VALIDATION} are no longer the examples that the run was started with");
        return Err(CheckpointError::Broken { path: folder.to_owned(), what }.into());
    }
    Ok([train, validation])
}

fn read_examples(path: &Path) -> Result<Vec<Example>, TrainError> {
    let bytes = fs::read(path).map_err(|error| CheckpointError::Io { path: path.to_owned(), error })?;
    Ok(from_tsv(&path.display().to_string(), &bytes)?)
}

/// A model that fits its settings and symbols and has learnt nothing yet.
pub(super) fn build(settings: &Settings, task: &Task) -> parsimax::Result<Seq2Seq> {
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
pub(super) fn restore(model: &mut Seq2Seq, saved: &Checkpoint, path: &Path) -> Result<(), CheckpointError> {
    let mut values = Vec::with_capacity(model.values().len());
    for (name, _, current) in model.named() {
        values.extend_from_slice(saved.numbers(path, name, current.len())?);
    }
    model.values_mut().copy_from_slice(&values);
    Ok(())
}
