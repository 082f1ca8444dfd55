//! `parsimax eval` on runs.

use std::io::Write;

use parsimax_data::inflection::{self as data, Split};
use parsimax_models::inflection::{Evaluation, Predictor, evaluate};

use super::predictor;
use crate::model::args::EvalConfig;
use crate::output::{self, to_stdout};
use crate::progress::on_threads;
use crate::{Failure, Result};

/// The width of a beam, if nothing is said.
pub(crate) const BEAM: usize = 5;

/// Judges runs on a split of the task.
pub(crate) fn eval(config: &EvalConfig) -> Result<()> {
    if config.format.is_some() {
        return Err(Failure::new("--format does not apply to runs, which read the shared task's files"));
    }
    let split = config.words.split.unwrap_or(Split::Dev);
    if split == Split::CoveredTest {
        return Err(Failure::new("--split covered-test has no forms to compare with; use test"));
    }
    let predictor = predictor(&config.models)?;
    let known = || predictor.runs()[0].task.languages().into_iter().map(str::to_owned).collect();
    let languages: Vec<String> = config.words.languages.clone().unwrap_or_else(known);
    let examples = data::read(&config.data, &languages, split)?;
    let strange: Vec<String> = examples.iter().filter_map(|e| predictor.unseen(e).into_iter().next()).collect();
    if let Some(first) = strange.first() {
        let (some, all) = (strange.len(), examples.len());
        let what = format!("{some} of {all} words contain something that the model has never seen, such as {first}");
        let _ = writeln!(std::io::stderr(), "parsimax: warning: {what}");
    }
    let beam = config.words.beam.unwrap_or(BEAM).max(1);
    let evaluation = on_threads(config.threads, || evaluate(&predictor, &examples, beam))??;
    to_stdout(|out| {
        if config.json {
            return writeln!(out, "{}", serde_json::to_string(&evaluation)?);
        }
        table(out, &predictor, &evaluation, &format!("{} of {split}, beam {beam}", examples.len()))
    })
}

fn table(out: &mut dyn Write, predictor: &Predictor, e: &Evaluation, what: &str) -> std::io::Result<()> {
    let percent = |value: f64| format!("{value:.2} %");
    let runs = match predictor.runs() {
        [run] => format!("epoch {} of {}", run.best_epoch, run.folder.display()),
        runs => format!("{} runs, averaged", runs.len()),
    };
    let mut lines = vec![["model".into(), runs], ["words".into(), what.into()]];
    lines.extend(e.languages.iter().map(|(name, accuracy)| [format!("accuracy, {name}"), percent(*accuracy)]));
    lines.extend([
        ["accuracy, mean of languages".into(), percent(e.accuracy)],
        ["Levenshtein distance".into(), format!("{:.4}", e.levenshtein)],
        ["one hypothesis".into(), percent(e.one_hypothesis)],
        ["certificate, cover".into(), percent(e.cover_certificate)],
        ["certificate, bound".into(), percent(e.bound_certificate)],
        ["non-zeros of attention".into(), format!("{:.3}", e.attention_nonzeros)],
        ["non-zeros of output".into(), format!("{:.3}", e.output_nonzeros)],
        ["words per second".into(), format!("{:.0}", e.words_per_second)],
    ]);
    output::columns(out, &lines)
}
