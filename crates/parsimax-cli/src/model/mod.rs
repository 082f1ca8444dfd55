//! `parsimax fit`, `predict` and `eval`. What `predict` and `eval` do is chosen by what the given path is.

pub(crate) mod args;
pub(crate) mod data;
mod linear;

use std::path::{Path, PathBuf};

use args::{EvalConfig, PredictConfig, SplitArgs, WordArgs};

use crate::{Failure, Result, inflection};

pub(crate) use linear::fit;

/// Applies a model of any kind.
pub(crate) fn predict(config: &PredictConfig) -> Result<()> {
    if are_runs(&config.models)? {
        return inflection::predict(config);
    }
    if config.word != WordArgs::default() {
        return Err(not_a_run(&config.models[0]));
    }
    match kind(&config.models)?.as_str() {
        parsimax_linear::KIND => linear::predict(config),
        other => Err(unknown(&config.models[0], other)),
    }
}

/// Judges a model of any kind.
pub(crate) fn eval(config: &EvalConfig) -> Result<()> {
    if are_runs(&config.models)? {
        return inflection::eval(config);
    }
    if config.words != SplitArgs::default() {
        return Err(not_a_run(&config.models[0]));
    }
    match kind(&config.models)?.as_str() {
        parsimax_linear::KIND => linear::eval(config),
        other => Err(unknown(&config.models[0], other)),
    }
}

/// Whether the paths are runs: all of them or none.
fn are_runs(paths: &[PathBuf]) -> Result<bool> {
    let (runs, others): (Vec<_>, Vec<_>) = paths.iter().partition(|path| inflection::is_run(path));
    match (runs.first(), others.first()) {
        (Some(_), Some(other)) => Err(not_a_run(other)),
        (run, _) => Ok(run.is_some()),
    }
}

fn not_a_run(path: &Path) -> Failure {
    let what = if path.is_dir() { "not a run of 'parsimax train inflection'" } else { "no such folder" };
    Failure::new(format!("{}: {what}", path.display()))
}

fn kind(models: &[PathBuf]) -> Result<String> {
    match models {
        [model] if !model.exists() => Err(Failure::new(format!("{}: no such folder", model.display()))),
        [model] => Ok(parsimax_linear::kind(model)?),
        [first, ..] => Err(not_a_run(first)),
        [] => Err(Failure::new("a model is missing")),
    }
}

fn unknown(model: &Path, kind: &str) -> Failure {
    Failure::new(format!("{}: a model of kind '{kind}', which this version does not know", model.display()))
}
