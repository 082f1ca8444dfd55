//! Flags of `fit`, `predict` and `eval`, and the configs they resolve to.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use parsimax::registry;
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
    pub(crate) model: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) format: Option<Format>,
    pub(crate) style: Prediction,
    pub(crate) sink: Sink,
}

/// What is printed for a row.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Prediction {
    Labels,
    Probabilities,
    Json,
}

pub(crate) struct EvalConfig {
    pub(crate) model: PathBuf,
    pub(crate) data: PathBuf,
    pub(crate) format: Option<Format>,
    pub(crate) json: bool,
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
pub(crate) struct PredictArgs {
    /// Folder of the model
    model: PathBuf,
    /// Rows to predict, in the format of the training file; label columns are skipped
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The file's format, if its name does not tell
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Print probabilities instead of labels
    #[arg(long, conflicts_with = "json")]
    proba: bool,
    /// Print one JSON object per row: labels, p
    #[arg(long)]
    json: bool,
    /// Write to FILE, which appears complete or not at all
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl PredictArgs {
    pub(crate) fn resolve(self) -> PredictConfig {
        PredictConfig {
            model: self.model,
            data: self.data,
            format: self.format.map(FormatArg::resolve),
            style: match (self.proba, self.json) {
                (true, _) => Prediction::Probabilities,
                (_, true) => Prediction::Json,
                _ => Prediction::Labels,
            },
            sink: Sink::new(self.output),
        }
    }
}

#[derive(Args)]
pub(crate) struct EvalArgs {
    /// Folder of the model
    model: PathBuf,
    /// Rows with labels, in the format of the training file
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// The file's format, if its name does not tell
    #[arg(long, value_enum)]
    format: Option<FormatArg>,
    /// Print one JSON object; F1 and shares of rows are percentages
    #[arg(long)]
    json: bool,
}

impl EvalArgs {
    pub(crate) fn resolve(self) -> EvalConfig {
        EvalConfig { model: self.model, data: self.data, format: self.format.map(FormatArg::resolve), json: self.json }
    }
}
