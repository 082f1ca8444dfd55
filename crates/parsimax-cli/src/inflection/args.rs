//! Flags of `train inflection`, the same as a TOML file, and the config that both resolve to.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use parsimax::registry::{self, Entry};
use parsimax_data::inflection::Setting;
use parsimax_models::inflection::Settings;
use parsimax_models::seq2seq::Choice;
use serde::{Deserialize, Serialize};

use crate::args::unknown;
use crate::{Failure, Result};

/// What to train.
#[derive(Args)]
pub(crate) struct TrainArgs {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Learn to inflect words: from a lemma and tags to a form
    Inflection(Box<InflectionArgs>),
}

#[derive(Args)]
#[command(after_help = "\
DIR holds the files of the CoNLL–SIGMORPHON shared task, named <language>-train-medium, <language>-dev
and so on, one 'lemma<TAB>form<TAB>tag;tag;…' a line; they may lie in folders or in .tar.gz archives.
The model learns from the training split and is chosen by its accuracy on the development split.

RUN gets the configuration (config.toml), the examples, the last checkpoint and the best model. It is
written so that a crash at any moment leaves it whole. Ctrl-C saves and stops; --resume goes on, bit
for bit as if nothing had happened, and needs nothing but RUN.

A configuration file holds the same options as 'name = value', such as 'languages = [\"english\"]' and
'validation_words = 500'. What the command line says wins.

Examples:
  parsimax train inflection --data conll2018 --languages english,german --setting medium --out run
  parsimax train inflection --config run/config.toml --seed 2 --out run-2
  parsimax train inflection --resume run
  parsimax train inflection --resume run --epochs 80")]
struct InflectionArgs {
    /// Go on with RUN where it stopped; only --epochs, --threads and --save-seconds go with it
    #[arg(long, value_name = "RUN", conflicts_with = "config")]
    resume: Option<PathBuf>,
    /// Read options from a TOML file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// All options, from the command line or from a file.
#[derive(Args, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Options {
    /// Folder or archive of the shared task's files
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Languages, separated by commas; 'all' takes every one that has the setting
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) languages: Option<Vec<String>>,
    /// How much to learn from: low, medium or high (100, 1,000 or 10,000 words a language) [medium]
    #[arg(long)]
    pub(crate) setting: Option<Setting>,
    /// Folder for the run, which must not hold one yet
    #[arg(long, value_name = "RUN")]
    pub(crate) out: Option<PathBuf>,
    /// Mapping of the attention [entmax15]
    #[arg(long, value_name = "MAPPING", help_heading = "Model")]
    attention: Option<String>,
    /// Its α, if it takes one
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = "Model")]
    attention_alpha: Option<f64>,
    /// Mapping of the output, trained by its Fenchel–Young loss [entmax15]
    #[arg(long, value_name = "MAPPING", help_heading = "Model")]
    output: Option<String>,
    /// Its α, if it takes one
    #[arg(long, value_name = "A", allow_negative_numbers = true, help_heading = "Model")]
    output_alpha: Option<f64>,
    /// Width of embeddings and states; even [128]
    #[arg(long, value_name = "N", help_heading = "Model")]
    size: Option<usize>,
    /// Recurrent layers of encoder and decoder [2]
    #[arg(long, value_name = "N", help_heading = "Model")]
    layers: Option<usize>,
    /// Share of activations that is dropped [0.3]
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = "Training")]
    dropout: Option<f32>,
    /// Words in a batch [64]
    #[arg(long, value_name = "N", help_heading = "Training")]
    batch: Option<usize>,
    /// Passes over the data [60]
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(crate) epochs: Option<usize>,
    /// Adam's rate, halved when the validation loss no longer falls [0.001]
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = "Training")]
    rate: Option<f32>,
    /// Longest gradient [5]
    #[arg(long, value_name = "C", allow_negative_numbers = true, help_heading = "Training")]
    clip: Option<f32>,
    /// Decides where training starts, in which order, and what is dropped [1]
    #[arg(long, value_name = "N", help_heading = "Training")]
    seed: Option<u64>,
    /// Words that are decoded after each epoch to choose the best model; 0 means all [0]
    #[arg(long, value_name = "N", help_heading = "Training")]
    validation_words: Option<usize>,
    /// Threads; all cores if absent. Results do not depend on them
    #[arg(long, value_name = "N", help_heading = "Training")]
    pub(crate) threads: Option<usize>,
    /// Seconds between checkpoints inside an epoch [30]
    #[arg(long, value_name = "S", allow_negative_numbers = true, help_heading = "Training")]
    pub(crate) save_seconds: Option<f64>,
}

/// What to train, with every choice made that does not need the data.
pub(crate) enum TrainConfig {
    /// A new run.
    New(Box<NewRun>),
    /// A run that was saved.
    Resume { folder: PathBuf, epochs: Option<usize>, threads: Option<usize>, save_seconds: Option<f64> },
}

pub(crate) struct NewRun {
    pub(crate) data: PathBuf,
    pub(crate) languages: Vec<String>,
    pub(crate) setting: Setting,
    pub(crate) out: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) threads: Option<usize>,
    pub(crate) save_seconds: f64,
}

const SAVE_SECONDS: f64 = 30.0;

impl TrainArgs {
    pub(crate) fn resolve(self) -> Result<TrainConfig> {
        let Task::Inflection(args) = self.task;
        args.resolve()
    }
}

impl InflectionArgs {
    fn resolve(self) -> Result<TrainConfig> {
        if let Some(folder) = self.resume {
            let Options { epochs, threads, save_seconds, .. } = self.options;
            if self.options != (Options { epochs, threads, save_seconds, ..Options::default() }) {
                let what = "--resume goes on with the run's own options; only --epochs, --threads and --save-seconds \
                            can be given with it";
                return Err(Failure::new(what));
            }
            check_seconds(save_seconds)?;
            return Ok(TrainConfig::Resume { folder, epochs, threads, save_seconds });
        }
        let from_file = self.config.as_deref().map(read).transpose()?.unwrap_or_default();
        let options = self.options.or(from_file);
        let settings = options.settings()?;
        check_seconds(options.save_seconds)?;
        let missing = |flag: &str, what: &str| Failure::new(format!("{flag} is missing: {what}"));
        let languages = options.languages.unwrap_or_default();
        if languages.is_empty() {
            return Err(missing("--languages", "which to learn, as in --languages english,german"));
        }
        if let Some(twice) = (1..languages.len()).find(|i| languages[..*i].contains(&languages[*i])) {
            return Err(Failure::new(format!("--languages names '{}' twice", languages[twice])));
        }
        Ok(TrainConfig::New(Box::new(NewRun {
            data: options.data.ok_or_else(|| missing("--data", "the folder or archive of the shared task's files"))?,
            languages,
            setting: options.setting.unwrap_or(Setting::Medium),
            out: options.out.ok_or_else(|| missing("--out", "the folder for the run"))?,
            settings,
            threads: options.threads,
            save_seconds: options.save_seconds.unwrap_or(SAVE_SECONDS),
        })))
    }
}

fn check_seconds(seconds: Option<f64>) -> Result<()> {
    match seconds {
        Some(s) if !(0.0..1e9).contains(&s) => Err(Failure::new(format!("--save-seconds must be at least 0; got {s}"))),
        _ => Ok(()),
    }
}

/// Reads a configuration file.
pub(crate) fn read(path: &Path) -> Result<Options> {
    let place = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(&place, &error))?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let line = line.map_or(String::new(), |line| format!(" line {line}:"));
        Failure::new(format!("{place}:{line} {}", error.message().replace('\n', " ")))
    })
}

impl Options {
    /// These, and where nothing is said, the others.
    fn or(self, other: Self) -> Self {
        Self {
            data: self.data.or(other.data),
            languages: self.languages.or(other.languages),
            setting: self.setting.or(other.setting),
            out: self.out.or(other.out),
            // A mapping comes with its α: another mapping has another one.
            attention_alpha: self.attention_alpha.or(other.attention_alpha.filter(|_| self.attention.is_none())),
            attention: self.attention.or(other.attention),
            output_alpha: self.output_alpha.or(other.output_alpha.filter(|_| self.output.is_none())),
            output: self.output.or(other.output),
            size: self.size.or(other.size),
            layers: self.layers.or(other.layers),
            dropout: self.dropout.or(other.dropout),
            batch: self.batch.or(other.batch),
            epochs: self.epochs.or(other.epochs),
            rate: self.rate.or(other.rate),
            clip: self.clip.or(other.clip),
            seed: self.seed.or(other.seed),
            validation_words: self.validation_words.or(other.validation_words),
            threads: self.threads.or(other.threads),
            save_seconds: self.save_seconds.or(other.save_seconds),
        }
    }

    /// What the library is asked to do.
    pub(crate) fn settings(&self) -> Result<Settings> {
        let d = Settings::default();
        Ok(Settings {
            attention: choice("attention", self.attention.as_deref(), self.attention_alpha, d.attention)?,
            output: choice("output", self.output.as_deref(), self.output_alpha, d.output)?,
            size: self.size.unwrap_or(d.size),
            layers: self.layers.unwrap_or(d.layers),
            dropout: self.dropout.unwrap_or(d.dropout),
            batch: self.batch.unwrap_or(d.batch),
            epochs: self.epochs.unwrap_or(d.epochs),
            rate: self.rate.unwrap_or(d.rate),
            clip: self.clip.unwrap_or(d.clip),
            seed: self.seed.unwrap_or(d.seed),
            validation_words: self.validation_words.unwrap_or(d.validation_words),
        })
    }
}

impl NewRun {
    /// Every option with the value that counts.
    pub(crate) fn effective(&self) -> Options {
        let Settings { attention, output, size, layers, dropout, batch, epochs, rate, clip, seed, validation_words } =
            self.settings.clone();
        Options {
            data: Some(self.data.clone()),
            languages: Some(self.languages.clone()),
            setting: Some(self.setting),
            out: Some(self.out.clone()),
            attention: Some(attention.mapping),
            attention_alpha: attention.alpha,
            output: Some(output.mapping),
            output_alpha: output.alpha,
            size: Some(size),
            layers: Some(layers),
            dropout: Some(dropout),
            batch: Some(batch),
            epochs: Some(epochs),
            rate: Some(rate),
            clip: Some(clip),
            seed: Some(seed),
            validation_words: Some(validation_words),
            threads: self.threads,
            save_seconds: Some(self.save_seconds),
        }
    }
}

/// A mapping by name; a mistake is found before the data are read.
fn choice(what: &str, name: Option<&str>, alpha: Option<f64>, default: Choice) -> Result<Choice> {
    let choice = name.map_or(default, Choice::of);
    let entry: &Entry = registry::find(&choice.mapping).map_err(|_| unknown(&choice.mapping))?;
    if alpha.is_some() && !entry.takes.contains(&"alpha") {
        return Err(Failure::new(format!("--{what}-alpha does not apply to {}, which takes no α", entry.name)));
    }
    let mapping = registry::build(entry.name, &registry::Options { alpha, ..Default::default() })?;
    if what == "output" && mapping.regularized().is_none() {
        return Err(Failure::new(format!("{} has no convex loss, so it cannot be trained as --output", entry.name)));
    }
    Ok(Choice { mapping: entry.name.to_owned(), alpha })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Options {
        let text = "data = 'd'\nlanguages = ['a', 'b']\nsetting = 'low'\nout = 'o'\nattention = 'entmax'\n\
                    attention_alpha = 1.3\noutput = 'sparsemax'\nsize = 10\nlayers = 1\ndropout = 0.1\nbatch = 3\n\
                    epochs = 2\nrate = 0.01\nclip = 1.0\nseed = 9\nvalidation_words = 7\nthreads = 1\nsave_seconds = 5.0\n";
        toml::from_str(text).expect("a configuration")
    }

    #[test]
    fn the_effective_configuration_reads_back_as_itself() {
        let options = all();
        let args = InflectionArgs { resume: None, config: None, options: options.clone() };
        let Ok(TrainConfig::New(run)) = args.resolve() else { panic!("a new run") };
        let text = toml::to_string(&run.effective()).expect("writes");
        assert!(toml::from_str::<Options>(&text).expect("reads") == options, "{text}");
        assert_eq!(run.settings.attention, Choice { mapping: "entmax".into(), alpha: Some(1.3) });
    }

    #[test]
    fn the_command_line_wins() {
        let flags = Options { size: Some(64), attention: Some("softmax".into()), ..Options::default() };
        let options = flags.or(all());
        assert_eq!((options.size, options.batch), (Some(64), Some(3)));
        // The file's α belongs to the file's mapping.
        assert_eq!(options.settings().expect("good").attention, Choice::of("softmax"));
    }
}
