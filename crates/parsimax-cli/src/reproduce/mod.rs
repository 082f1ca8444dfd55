//! `parsimax reproduce`: experiments of the papers, each with a table, its numbers as JSON, and the
//! paper's own numbers beside them.

mod inflection;
mod multilabel;
mod proportions;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::output::Sink;
use crate::{Failure, Result};

/// Which experiment, with its data and where its results go.
pub(crate) enum ReproduceConfig {
    MultiLabel { data: PathBuf, out: Place },
    LabelProportions { draws: usize, out: Place },
    Inflection(Box<inflection::InflectionArgs>),
}

/// Where results go, and what they depend on.
pub(crate) struct Place {
    pub(crate) folder: PathBuf,
    pub(crate) seed: u64,
    pub(crate) threads: Option<usize>,
}

#[derive(Args)]
pub(crate) struct ReproduceArgs {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Table 2 of the sparsemax paper: multi-label classification with three losses
    Multilabel {
        /// Folder with the Mulan files of scene, emotions, birds and CAL500
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Figure 3 of the sparsemax paper: label proportions of simulated documents
    LabelProportions {
        /// Draws of topics and documents over which errors are averaged
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
        draws: usize,
        #[command(flatten)]
        place: PlaceArgs,
    },
    /// Table 1 of the sparse sequence-to-sequence paper: inflection, attention × output
    Inflection(Box<inflection::InflectionArgs>),
}

#[derive(Args)]
struct PlaceArgs {
    /// Folder for the results, made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Seed of folds and simulated data
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Threads; all cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl PlaceArgs {
    fn resolve(self) -> Place {
        Place { folder: self.out, seed: self.seed, threads: self.threads }
    }
}

impl ReproduceArgs {
    pub(crate) fn resolve(self) -> ReproduceConfig {
        match self.experiment {
            Experiment::Multilabel { data, place } => ReproduceConfig::MultiLabel { data, out: place.resolve() },
            Experiment::LabelProportions { draws, place } => {
                ReproduceConfig::LabelProportions { draws, out: place.resolve() }
            }
            Experiment::Inflection(args) => ReproduceConfig::Inflection(args),
        }
    }
}

pub(crate) fn run(config: &ReproduceConfig) -> Result<()> {
    match config {
        ReproduceConfig::MultiLabel { data, out } => multilabel::run(data, out),
        ReproduceConfig::LabelProportions { draws, out } => proportions::run(*draws, out),
        ReproduceConfig::Inflection(args) => inflection::run(args),
    }
}

/// Writes a result file; it appears complete or not at all.
fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::io(&folder.display().to_string(), &error))?;
    Sink::File(folder.join(name)).write(|out| out.write_all(text.as_bytes()))
}

/// JSON with line breaks, for results that are kept.
fn json(value: &impl serde::Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::new(format!("JSON: {error}")))?;
    Ok(text + "\n")
}
