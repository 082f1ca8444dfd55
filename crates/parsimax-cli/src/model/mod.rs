//! `parsimax fit`, `predict` and `eval`. What `predict` and `eval` do is chosen by the model's kind.

pub(crate) mod args;
pub(crate) mod data;
mod linear;

use std::path::Path;

use args::{EvalConfig, PredictConfig};

use crate::{Failure, Result};

pub(crate) use linear::fit;

/// Applies a model of any kind to a file.
pub(crate) fn predict(config: &PredictConfig) -> Result<()> {
    match kind(&config.model)?.as_str() {
        parsimax_linear::KIND => linear::predict(config),
        other => Err(unknown(&config.model, other)),
    }
}

/// Judges a model of any kind on a file.
pub(crate) fn eval(config: &EvalConfig) -> Result<()> {
    match kind(&config.model)?.as_str() {
        parsimax_linear::KIND => linear::eval(config),
        other => Err(unknown(&config.model, other)),
    }
}

fn kind(model: &Path) -> Result<String> {
    Ok(parsimax_linear::kind(model)?)
}

fn unknown(model: &Path, kind: &str) -> Failure {
    Failure::new(format!("{}: a model of kind '{kind}', which this version does not know", model.display()))
}
