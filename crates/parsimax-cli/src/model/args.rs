//! Flags of `fit`, `predict` and `eval`, and the configs they resolve to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use parsimax::registry;
use parsimax_data::inflection::Split;
use parsimax_data::{Format, Labels, Nominal, Task};
use parsimax_linear::{LOGISTIC, LossSpec, Metric, Rule, loss_names};

use crate::args::{Parameters, unknown};
use crate::output::Sink;
use crate::{Failure, Result};

/// What to fit, with every choice made that does not need the data.
pub(crate) struct FitConfig {
    pub(crate) data: PathBuf,
    pub(crate) format: Option<Format>,
    pub(crate) labels: LabelSource,
    pub(crate) task: Task,
    pub(crate) nominal: Nominal,
    pub(crate) loss: LossSpec,
    pub(crate) l2: Option<f64>,
    pub(crate) rule: Option<Rule>,
    pub(crate) folds: usize,
    pub(crate) metric: Option<Metric>,
    pub(crate) seed: u64,
    pub(crate) warm_start: bool,
    pub(crate) standardize: Option<bool>,
    pub(crate) iterations: usize,
    pub(crate) threads: Option<usize>,
    pub(crate) output: PathBuf,
    pub(crate) json: bool,
}

/// Where the names of the labels come from.
pub(crate) enum LabelSource {
    Columns(Labels),
    Xml(PathBuf),
}

pub(crate) struct PredictConfig {
    pub(crate) models: Vec<PathBuf>,
    pub(crate) data: Option<PathBuf>,
    pub(crate) format: Option<Format>,
    pub(crate) style: Prediction,
    pub(crate) sink: Sink,
    pub(crate) word: WordArgs,
    pub(crate) threads: Option<usize>,
}

/// What is printed for a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Prediction {
    Labels,
    Probabilities,
    Json,
}

pub(crate) struct EvalConfig {
    pub(crate) models: Vec<PathBuf>,
    pub(crate) data: PathBuf,
    pub(crate) format: Option<Format>,
    pub(crate) json: bool,
    pub(crate) words: SplitArgs,
    pub(crate) threads: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum FormatArg {
    Arff,
    Svmlight,
    Csv,
}

impl FormatArg {
    fn resolve(self) -> Format {
        match self {
            Self::Arff => Format::Arff,
            Self::Svmlight => Format::Svmlight,
            Self::Csv => Format::Csv,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum NominalArg {
    OneHot,
    Numeric,
}

#[derive(Clone, Copy, ValueEnum)]
enum MetricArg {
    Micro,
    Macro,
    MacroPr,
}

#[derive(Args)]
#[command(after_help = "\
With one label column the model predicts classes, with several any number of labels per row.
Without --l2, the constant is chosen from 1e-8 … 100 by cross-validation, and so is the prediction
rule without --delta, --p0 or --temperature.

Examples:
  parsimax fit --data train.arff --labels 6 --loss sparsemax --cv 5 -o model
  parsimax fit --data train.arff --xml labels.xml --loss softmax --l2 0.1 --p0 0.3333 -o model")]
pub(crate) struct FitArgs {
    /// Training rows: ARFF, svmlight or CSV, plain or gzipped
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Folder that the model is written to
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,
    /// The last N columns are labels
    #[arg(long, value_name = "N", conflicts_with = "xml")]
    labels: Option<usize>,
    /// Mulan's XML list of the labels
    #[arg(long, value_name = "FILE")]
    xml: Option<PathBuf>,
    /// The label columns hold shares that sum to 1
    #[arg(long)]
    proportions: bool,
    /// How nominal features become numbers
    #[arg(long, value_enum, default_value = "one-hot")]
    nominal: NominalArg,
    /// The file's format, if its name does not tell
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// logistic (each label on its own), or a mapping with a convex loss
    #[arg(long, default_value = "sparsemax", value_name = "NAME")]
    loss: String,
    /// Regularisation constant λ of λ/2·‖W‖²
    #[arg(long, value_name = "L", allow_negative_numbers = true)]
    l2: Option<f64>,
    /// Labels above this probability are on (for --loss logistic)
    #[arg(long, value_name = "D", group = "rule", allow_negative_numbers = true)]
    delta: Option<f64>,
    /// Labels above this share are on (for distributions)
    #[arg(long, value_name = "P", group = "rule", allow_negative_numbers = true)]
    p0: Option<f64>,
    /// Labels in the support of the mapping at T times the scores are on
    #[arg(long, value_name = "T", group = "rule", allow_negative_numbers = true)]
    temperature: Option<f64>,
    /// Folds of the cross-validation
    #[arg(long, value_name = "K", default_value_t = 5)]
    cv: usize,
    /// What cross-validation looks at, for labels: F1 of all decisions, the mean F1 of the labels, or the
    /// harmonic mean of macro precision and recall
    #[arg(long, value_enum)]
    metric: Option<MetricArg>,
    /// Seed that shuffles the rows into folds
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Start each fit along the path of constants where the one before ended
    #[arg(long)]
    warm_start: bool,
    /// Give features zero mean and unit deviation; the default for dense files
    #[arg(long, conflicts_with = "no_standardize")]
    standardize: bool,
    /// Leave features as they are; the default for sparse files
    #[arg(long)]
    no_standardize: bool,
    /// Largest number of L-BFGS iterations of a fit
    #[arg(long, value_name = "N", default_value_t = 100)]
    max_iter: usize,
    /// Threads; all cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    parameters: Parameters,
}

impl FitArgs {
    pub(crate) fn resolve(self) -> Result<FitConfig> {
        let rule = match (self.delta.or(self.p0), self.temperature) {
            (Some(limit), _) => Some(Rule::Threshold(limit).check()?),
            (_, Some(t)) => Some(Rule::Support(t).check()?),
            _ => None,
        };
        let loss = loss(&self.loss, &self.parameters)?;
        if self.temperature.is_some() && loss.name == LOGISTIC {
            return Err(Failure::new("--temperature does not apply to logistic, whose support is every label"));
        }
        let labels = match (self.labels, self.xml) {
            (_, Some(xml)) => LabelSource::Xml(xml),
            (Some(n), _) => LabelSource::Columns(Labels::Last(n)),
            // A format that marks its labels; the others complain.
            (None, None) => LabelSource::Columns(Labels::IfPresent(Vec::new())),
        };
        Ok(FitConfig {
            data: self.data,
            format: self.format.map(FormatArg::resolve),
            labels,
            task: if self.proportions { Task::Proportions } else { Task::Auto },
            nominal: match self.nominal {
                NominalArg::OneHot => Nominal::OneHot,
                NominalArg::Numeric => Nominal::Numeric,
            },
            loss,
            l2: self.l2,
            rule,
            folds: self.cv,
            metric: self.metric.map(|metric| match metric {
                MetricArg::Micro => Metric::MicroF1,
                MetricArg::Macro => Metric::MacroF1,
                MetricArg::MacroPr => Metric::MacroPrF1,
            }),
            seed: self.seed,
            warm_start: self.warm_start,
            standardize: if self.standardize { Some(true) } else { self.no_standardize.then_some(false) },
            iterations: self.max_iter,
            threads: self.threads,
            output: self.output,
            json: self.json,
        })
    }
}

/// The loss by name, with its parameters; built once, so that a mistake is found before the data are read.
fn loss(name: &str, parameters: &Parameters) -> Result<LossSpec> {
    if name != LOGISTIC {
        let entry = registry::find(name).map_err(|_| unknown(name))?;
        if !loss_names().contains(&entry.name) {
            let known = loss_names().join(", ");
            return Err(Failure::new(format!("{name} has no convex loss; known: {LOGISTIC}, {known}")));
        }
    }
    let spec = LossSpec { name: name.into(), parameters: parameters.given().map(|(n, v)| (n.into(), v)).collect() };
    spec.build()?;
    Ok(spec)
}

#[derive(Args)]
#[command(after_help = "\
A linear model (made by 'parsimax fit') predicts the rows of --data. A run of 'parsimax train inflection'
inflects --lemma by --tags, or the lines of standard input: 'lemma<TAB>tags' with --language, otherwise
'language<TAB>lemma<TAB>tags'. Several runs decide together: their probabilities are averaged.

Certificates of a beam: 'cover' says that every word of non-zero probability was kept, 'bound' that no
other word can be more probable. 'exact' finds the most probable word and proves it, 'all' every word of
non-zero probability; both say so if they gave up.

Examples:
  parsimax predict model --data rows.arff
  parsimax predict run --language english --lemma draw --tags 'V;V.PTCP;PST'
  parsimax predict run-1 run-2 run-3 --language english --json < english-covered-test")]
pub(crate) struct PredictArgs {
    /// Folder of a model, or of one or more runs
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Print one JSON object per row or word
    #[arg(long)]
    json: bool,
    /// Write to FILE, which appears complete or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Threads; all cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Rows to predict, in the format of the training file; label columns are skipped
    #[arg(long, value_name = "FILE", help_heading = "Linear models")]
    data: Option<PathBuf>,
    /// The file's format, if its name does not tell
    #[arg(long, value_enum, help_heading = "Linear models")]
    format: Option<FormatArg>,
    /// Print probabilities instead of labels
    #[arg(long, conflicts_with = "json", help_heading = "Linear models")]
    proba: bool,
    #[command(flatten)]
    word: WordArgs,
}

/// A word to inflect, and how to search for its form.
#[derive(Args, Clone, Default, PartialEq)]
#[command(next_help_heading = "Runs of inflection")]
pub(crate) struct WordArgs {
    /// The language; not needed if the run knows one only
    #[arg(long, value_name = "NAME")]
    pub(crate) language: Option<String>,
    /// The word as it stands in a dictionary; without it, lines are read from standard input
    #[arg(long, value_name = "WORD", requires = "tags")]
    pub(crate) lemma: Option<String>,
    /// What it should become, tags separated by ';'
    #[arg(long, value_name = "TAGS", requires = "lemma")]
    pub(crate) tags: Option<String>,
    /// How to search [beam]
    #[arg(long, value_enum)]
    pub(crate) decoder: Option<DecoderArg>,
    /// Width of the beam [5]
    #[arg(long, value_name = "N")]
    pub(crate) beam: Option<usize>,
    /// Prefixes that 'exact' and 'all' may look at before they give up [10000]
    #[arg(long, value_name = "N")]
    pub(crate) expansions: Option<usize>,
    /// Words that 'sample' draws [5]
    #[arg(long, value_name = "N")]
    pub(crate) samples: Option<usize>,
    /// Seed of 'sample' [1]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
}

/// The searches by name.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum DecoderArg {
    /// Keeps the best prefixes, with certificates
    Beam,
    /// Keeps the best prefix only
    Greedy,
    /// The most probable word, proven
    Exact,
    /// Every word of non-zero probability
    All,
    /// Words at random
    Sample,
}

impl PredictArgs {
    pub(crate) fn resolve(self) -> PredictConfig {
        PredictConfig {
            models: self.models,
            data: self.data,
            format: self.format.map(FormatArg::resolve),
            style: match (self.proba, self.json) {
                (true, _) => Prediction::Probabilities,
                (_, true) => Prediction::Json,
                _ => Prediction::Labels,
            },
            sink: Sink::new(self.output),
            word: self.word,
            threads: self.threads,
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
A linear model is judged on a file of labelled rows. A run of 'parsimax train inflection' is judged on a
split of the shared task's files; several runs decide together: their probabilities are averaged. Its
JSON keys are accuracy (the mean over languages), languages, levenshtein, one_hypothesis,
cover_certificate, bound_certificate, attention_nonzeros, output_nonzeros and words_per_second.

Examples:
  parsimax eval model --data test.arff
  parsimax eval run --data conll2018 --split dev
  parsimax eval run-1 run-2 run-3 --data conll2018 --split test --languages english --json")]
pub(crate) struct EvalArgs {
    /// Folder of a model, or of one or more runs
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<PathBuf>,
    /// Rows with labels, in the format of the training file; for runs the folder or archive of the task
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// Print one JSON object; F1, accuracy and shares are percentages
    #[arg(long)]
    json: bool,
    /// Threads; all cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The file's format, if its name does not tell
    #[arg(long, value_enum, help_heading = "Linear models")]
    format: Option<FormatArg>,
    #[command(flatten)]
    words: SplitArgs,
}

/// The words to judge a run on.
#[derive(Args, Clone, Default, PartialEq)]
#[command(next_help_heading = "Runs of inflection")]
pub(crate) struct SplitArgs {
    /// dev, test, train-low, train-medium or train-high [dev]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<Split>,
    /// Languages, separated by commas; without it those that the run has learnt
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) languages: Option<Vec<String>>,
    /// Width of the beam [5]
    #[arg(long, value_name = "N")]
    pub(crate) beam: Option<usize>,
}

impl EvalArgs {
    pub(crate) fn resolve(self) -> EvalConfig {
        EvalConfig {
            models: self.models,
            data: self.data,
            format: self.format.map(FormatArg::resolve),
            json: self.json,
            words: self.words,
            threads: self.threads,
        }
    }
}
