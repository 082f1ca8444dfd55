//! Inflection: `parsimax train inflection`, and what `eval` and `predict` do with its runs.

pub(crate) mod args;
pub(crate) mod demo;
mod eval;
mod predict;
mod show;
pub(crate) mod signals;
mod train;

use std::path::{Path, PathBuf};

use parsimax_models::inflection::{CheckpointError, Predictor, Run, TrainError};

use crate::{Failure, Result};

pub(crate) use eval::eval;
pub(crate) use predict::predict;
pub(crate) use train::train;

/// Whether a path is the folder of a run.
pub(crate) fn is_run(path: &Path) -> bool {
    Run::is_at(path)
}

/// The models of some runs, which decide together.
fn predictor(folders: &[PathBuf]) -> Result<Predictor> {
    let runs = folders.iter().map(|folder| Run::open(folder)).collect::<std::result::Result<_, _>>()?;
    Ok(Predictor::new(runs)?)
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Checkpoint(CheckpointError::Io { path, error }) => {
                Failure::io(&path.display().to_string(), &error)
            }
            error => Failure::new(error.to_string()),
        }
    }
}
