//! Linear models: read, fit or load, report.

use std::io::Write;

use parsimax_data::{Labels, Nominal, Options, Task as FileTask};
use parsimax_linear::metrics::{Counts, Distances, Scores};
use parsimax_linear::study::multilabel;
use parsimax_linear::{Features, Grid, Head, KIND, Loss, Metric, Model, Rule, Settings, Standard, Stop, Targets, Task};
use serde::Serialize;

use super::args::{EvalConfig, FitConfig, LabelSource, PredictConfig, Prediction};
use super::data;
use crate::output::{self, to_stdout};
use crate::progress::{Progress, on_threads};
use crate::{Failure, Result};

/// What `fit` says at its end.
#[derive(Serialize)]
struct Fitted {
    rows: usize,
    dropped: usize,
    features: usize,
    labels: usize,
    loss: String,
    l2: f64,
    #[serde(flatten)]
    rule: Rule,
    /// The best cell's metric over the folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    validation: Option<f64>,
    iterations: usize,
    objective: f64,
}

/// Reads, tunes, fits and saves.
pub(crate) fn fit(config: &FitConfig) -> Result<()> {
    let options = Options {
        labels: match &config.labels {
            LabelSource::Columns(labels) => labels.clone(),
            LabelSource::Xml(path) => Labels::Named(parsimax_data::read_labels(path)?),
        },
        task: match (&config.labels, config.task) {
            (LabelSource::Xml(_), FileTask::Auto) => FileTask::MultiLabel,
            (_, task) => task,
        },
        nominal: config.nominal,
        ..Options::default()
    };
    let file = parsimax_data::read(&config.data, config.format, &options)?;
    let names = (file.feature_names, file.targets.names().to_vec(), file.label_columns);
    let targets = data::targets(file.targets)?.ok_or_else(|| {
        Failure::new(format!("{}: say which columns are labels by --labels N or --xml FILE", config.data.display()))
    })?;
    let (features, targets, dropped) = data::labelled(data::features(file.features)?, targets)?;
    let loss = config.loss.build()?;
    let standard = config.standardize.unwrap_or(!features.is_sparse()).then(|| Standard::of(&features));
    let ready = standard.as_ref().map_or_else(|| features.clone(), |standard| standard.apply(&features));
    note_constant(standard.as_ref(), &features, &names.0);
    let (choice, (fitted, report)) = on_threads(config.threads, || {
        let choice = choose(config, &ready, &targets, &loss)?;
        let settings = Settings { l2: choice.l2, stop: stop(config), ..Settings::default() };
        Ok::<_, Failure>((choice, parsimax_linear::fit(&ready, &targets, &loss, &settings)?))
    })??;
    let coefficients = standard.as_ref().map_or_else(|| fitted.clone(), |standard| standard.undo(&fitted));
    let (feature_names, labels, label_columns) = names;
    let summary = Fitted {
        rows: features.rows(),
        dropped,
        features: features.columns(),
        labels: targets.labels(),
        loss: config.loss.name.clone(),
        l2: choice.l2,
        rule: choice.rule,
        validation: choice.validation,
        iterations: report.iterations,
        objective: report.value,
    };
    let head = Head {
        kind: KIND.into(),
        format: 1,
        loss: config.loss.clone(),
        task: targets.task(),
        decision: choice.rule,
        l2: choice.l2,
        labels,
        label_columns,
        features: feature_names,
        nominal: if config.nominal == Nominal::OneHot { "one-hot".into() } else { "numeric".into() },
        weights: String::new(),
    };
    Model { head, coefficients }.save(&config.output)?;
    to_stdout(|out| report_fit(out, config, &summary))
}

/// A feature that is the same everywhere is worth a word: it is often a mistake in the file.
fn note_constant(standard: Option<&Standard>, features: &Features, names: &[String]) {
    let measured;
    let constant = match standard {
        Some(standard) => standard.constant(),
        None => {
            measured = Standard::of(features);
            measured.constant()
        }
    };
    let Some(first) = constant.first() else { return };
    let first = &names[*first];
    let what = match constant.len() {
        1 => format!("feature '{first}' is"),
        n => format!("{n} features ('{first}' and others) are"),
    };
    let _ = writeln!(std::io::stderr(), "parsimax: note: {what} the same in every row and cannot tell rows apart");
}

fn stop(config: &FitConfig) -> Stop {
    Stop { iterations: config.iterations, ..Stop::default() }
}

struct Choice {
    l2: f64,
    rule: Rule,
    validation: Option<f64>,
}

/// The constant and the rule: as given, or by cross-validation.
fn choose(config: &FitConfig, features: &Features, targets: &Targets, loss: &Loss) -> Result<Choice> {
    let rules = match (targets.task(), config.rule) {
        (Task::MultiClass, None) => vec![Rule::Argmax],
        (_, Some(rule)) => vec![rule],
        (Task::Proportions, None) => vec![Rule::Support(1.0)],
        (Task::MultiLabel, None) => rules(&config.loss.name, targets.labels()),
    };
    if let (Some(l2), [rule]) = (config.l2, rules.as_slice()) {
        return Ok(Choice { l2, rule: *rule, validation: None });
    }
    let paper = multilabel::grid(&config.loss.name, targets.labels(), config.seed);
    let grid = Grid {
        l2: config.l2.map_or(paper.l2, |l2| vec![l2]),
        rules,
        folds: config.folds,
        seed: config.seed,
        warm_start: config.warm_start,
        stop: stop(config),
    };
    let metric = match targets.task() {
        Task::MultiLabel => config.metric.unwrap_or(Metric::MicroF1),
        Task::MultiClass => config.metric.unwrap_or(Metric::Accuracy),
        Task::Proportions => Metric::SquaredError,
    };
    let progress = Progress::new("cross-validation", grid.l2.len() * grid.folds.max(1));
    let cells = parsimax_linear::cross_validate(features, targets, loss, &grid, &|| progress.advance())?;
    let best = parsimax_linear::best(&cells, metric).ok_or_else(|| Failure::new("the grid is empty"))?;
    let merit = best.merit(metric);
    let validation = Some(if metric == Metric::SquaredError { -merit } else { 100.0 * merit });
    Ok(Choice { l2: best.l2, rule: best.rule, validation })
}

/// The paper's rules for its losses; thresholds for mappings without zeros, temperatures for the others.
fn rules(loss: &str, labels: usize) -> Vec<Rule> {
    multilabel::grid(loss, labels, 0).rules
}

fn report_fit(out: &mut dyn Write, config: &FitConfig, fitted: &Fitted) -> std::io::Result<()> {
    if config.json {
        return writeln!(out, "{}", serde_json::to_string(fitted)?);
    }
    let rule = match fitted.rule {
        Rule::Threshold(t) => format!("threshold {}", output::short(t)),
        Rule::Support(t) => format!("support at temperature {}", output::short(t)),
        Rule::Argmax => "largest score".into(),
    };
    let Fitted { rows, features, labels, .. } = fitted;
    writeln!(out, "{rows} rows ({} without labels dropped), {features} features, {labels} labels", fitted.dropped)?;
    writeln!(out, "loss {}, l2 {}, {rule}, {} iterations", fitted.loss, output::short(fitted.l2), fitted.iterations)?;
    if let Some(validation) = fitted.validation {
        writeln!(out, "cross-validation {validation:.4}")?;
    }
    writeln!(out, "saved to {}", config.output.display())
}

/// A model and the rows it is applied to.
fn load(
    model: &std::path::Path,
    file: &std::path::Path,
    format: Option<parsimax_data::Format>,
    labelled: bool,
) -> Result<(Model, Features, Option<Targets>)> {
    let model = Model::load(model)?;
    let head = &model.head;
    let columns = head.label_columns.clone();
    let options = Options {
        labels: if labelled && !columns.is_empty() { Labels::Named(columns) } else { Labels::IfPresent(columns) },
        task: match head.task {
            Task::MultiLabel => FileTask::MultiLabel,
            Task::MultiClass => FileTask::MultiClass,
            Task::Proportions => FileTask::Proportions,
        },
        nominal: if head.nominal == "numeric" { Nominal::Numeric } else { Nominal::OneHot },
        columns: Some(head.features.len()),
        known: Some(head.labels.clone()),
    };
    // Rows to predict may have no labels, which are then no classes either.
    let options = if labelled { options } else { Options { task: predict_task(options.task, head), ..options } };
    let mut data = parsimax_data::read(file, format, &options)?;
    data::check_features(file, &data, head)?;
    let found = std::mem::replace(&mut data.targets, parsimax_data::Targets::None);
    let targets = if labelled { data::targets(data::align(file, found, &head.labels)?)? } else { None };
    Ok((model, data::features(data.features)?, targets))
}

/// svmlight rows without labels are read as empty sets.
fn predict_task(task: FileTask, head: &Head) -> FileTask {
    if head.label_columns.is_empty() { FileTask::MultiLabel } else { task }
}

/// Predicts every row of a file.
pub(crate) fn predict(config: &PredictConfig) -> Result<()> {
    let data = config.data.as_ref().ok_or_else(|| Failure::new("--data is missing: the rows to predict"))?;
    let (model, features, _) = load(&config.models[0], data, config.format, false)?;
    let names = &model.head.labels;
    let sets = model.decide(&features)?;
    let p = model.coefficients.probabilities(&features, &model.loss()?)?;
    config.sink.write(|out| {
        for (set, p) in sets.iter().zip(p.chunks_exact(names.len())) {
            let labels: Vec<&str> = set.iter().map(|label| names[*label].as_str()).collect();
            match config.style {
                Prediction::Labels => writeln!(out, "{}", labels.join(","))?,
                Prediction::Probabilities => output::text_row(out, p)?,
                Prediction::Json => writeln!(out, "{}", serde_json::json!({ "labels": labels, "p": p }))?,
            }
        }
        Ok(())
    })
}

/// What `eval` prints.
#[derive(Serialize)]
struct Evaluation {
    rows: usize,
    dropped: usize,
    #[serde(flatten)]
    scores: Scores,
}

/// Judges the model on a file.
pub(crate) fn eval(config: &EvalConfig) -> Result<()> {
    let (model, features, targets) = load(&config.models[0], &config.data, config.format, true)?;
    let targets = targets.ok_or_else(|| Failure::new(format!("{}: no labels", config.data.display())))?;
    let (features, targets, dropped) = data::labelled(features, targets)?;
    let counts = Counts::new(&model.decide(&features)?, &targets)?;
    let distances = Distances::new(&model.coefficients.probabilities(&features, &model.loss()?)?, &targets);
    let scores = Scores::new(&counts, &distances);
    let evaluation = Evaluation { rows: features.rows(), dropped, scores };
    to_stdout(|out| {
        if config.json {
            return writeln!(out, "{}", serde_json::to_string(&evaluation)?);
        }
        let percent = |value: f64| format!("{value:.2} %");
        let lines = [
            ["rows".into(), format!("{} ({} without labels dropped)", evaluation.rows, dropped)],
            ["micro F1".into(), percent(scores.micro_f1)],
            ["macro F1".into(), percent(scores.macro_f1)],
            ["macro-PR F1".into(), percent(scores.macro_pr_f1)],
            ["Hamming loss".into(), percent(scores.hamming_loss)],
            ["subset accuracy".into(), percent(scores.subset_accuracy)],
            ["labels per row".into(), format!("{:.3}", scores.labels_per_row)],
            ["proportions, MSE".into(), format!("{:.5}", scores.proportion_mse)],
            ["proportions, JS".into(), format!("{:.5}", scores.proportion_js)],
        ];
        output::columns(out, &lines)
    })
}
