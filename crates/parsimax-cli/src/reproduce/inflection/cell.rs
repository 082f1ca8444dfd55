//! One run of a pair of mappings: trained, judged on the test words, kept.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use parsimax_models::inflection::{
    EpochRecord, Observer, Outcome, Predictor, Progress, Run, TrainError, Trainer, evaluate,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::{json, write};
use super::{Pair, Study};
use crate::inflection::signals::Interrupt;
use crate::{Failure, Result};

/// How well a model, or several as one, does on the test words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Scores {
    /// Percent of the words, averaged over languages.
    pub(super) accuracy: f64,
    /// The same for each language.
    pub(super) languages: BTreeMap<String, f64>,
    /// Mean distance of an answer from the word.
    pub(super) levenshtein: f64,
    /// Percent of the words whose whole probability lies on one sequence.
    pub(super) one_hypothesis: f64,
    /// Percent of the words whose beam holds every sequence of non-zero probability.
    pub(super) cover_certificate: f64,
    /// Percent of the words whose answer is proven to be the most probable.
    pub(super) bound_certificate: f64,
    /// Mean number of source positions that a step along the answer attends to.
    pub(super) attention_nonzeros: f64,
    /// Mean number of characters that could have come next in a step along the answer.
    pub(super) output_nonzeros: f64,
}

/// A single run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub(super) seed: u64,
    /// The epoch of the model that was judged: the best on development words.
    pub(super) best_epoch: usize,
    pub(super) test: Scores,
    pub(super) history: Vec<EpochRecord>,
}

/// All runs of a pair as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ensemble {
    pub(super) members: u64,
    pub(super) test: Scores,
}

const RESULT: &str = "result.json";

/// The result of a run, if it is over.
pub(super) fn kept_run(study: &Study, pair: Pair, seed: u64) -> Result<Option<Trial>> {
    kept(&study.run_folder(pair, seed).join(RESULT))
}

/// Trains a run, or takes it up again, and judges it; says whether there was anything to do.
pub(super) fn run(study: &Study, pair: Pair, seed: u64, (number, jobs): (usize, usize)) -> Result<bool> {
    if kept_run(study, pair, seed)?.is_some() {
        return Ok(false);
    }
    let run = train(study, pair, seed)?;
    let (best_epoch, history) = (run.best_epoch, run.history.clone());
    let result = Trial { seed, best_epoch, test: judge(study, vec![run])?, history };
    write(&study.run_folder(pair, seed), RESULT, &json(&result)?)?;
    let line = format!("{}, seed {seed}: {:.1}% of the test words", pair.name(), result.test.accuracy);
    // If nobody reads it, the work goes on.
    let _ = writeln!(std::io::stderr(), "inflection {number}/{jobs}: {line}");
    Ok(true)
}

/// Trains a run to its end, from its beginning or from where it stands.
fn train(study: &Study, pair: Pair, seed: u64) -> Result<Run> {
    let (folder, settings) = (study.run_folder(pair, seed), study.settings(pair, seed));
    let failed = |error: TrainError| Failure::new(format!("{}: {error}", folder.display()));
    let mut trainer = if folder.join("latest.safetensors").exists() {
        Trainer::resume(&folder).map_err(failed)?
    } else {
        Trainer::new(&folder, settings.clone(), &study.train, &study.validation).map_err(failed)?
    };
    if *trainer.settings() != settings {
        return Err(Failure::new(format!("{}: a run with other settings; choose another --out", folder.display())));
    }
    let outcome = trainer.run(&mut Silent(&study.interrupt)).map_err(failed)?;
    if let (Outcome::Stopped, Some(code)) = (outcome, study.interrupt.code()) {
        let what = format!("stopped and saved; the same command goes on ({})", study.folder.display());
        return Err(Failure::Interrupted(what, code));
    }
    Run::open(&folder).map_err(failed)
}

fn ensemble_name(study: &Study, pair: Pair) -> String {
    format!("{}-ensemble-of-{}.json", pair.name(), study.seeds)
}

/// The result of all runs of a pair as one, if they were decoded. One run decides alone.
pub(super) fn kept_ensemble(study: &Study, pair: Pair) -> Result<Option<Ensemble>> {
    if study.seeds == 1 {
        return Ok(kept_run(study, pair, 1)?.map(|run| Ensemble { members: 1, test: run.test }));
    }
    kept(&study.folder.join("runs").join(ensemble_name(study, pair)))
}

/// Decodes by all runs of a pair as one, if nobody did yet.
pub(super) fn ensemble(study: &Study, pair: Pair) -> Result<()> {
    if kept_ensemble(study, pair)?.is_some() {
        return Ok(());
    }
    let read = |seed| {
        let folder = study.run_folder(pair, seed);
        Run::open(&folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
    };
    let members: Vec<Run> = (1..=study.seeds).map(read).collect::<Result<_>>()?;
    let result = Ensemble { members: study.seeds, test: judge(study, members)? };
    write(&study.folder.join("runs"), &ensemble_name(study, pair), &json(&result)?)
}

/// Decodes the test words and compares.
fn judge(study: &Study, runs: Vec<Run>) -> Result<Scores> {
    let judged = Predictor::new(runs).and_then(|predictor| evaluate(&predictor, &study.test, study.plan.beam));
    let judged = judged.map_err(|error| Failure::new(error.to_string()))?;
    Ok(Scores {
        accuracy: judged.accuracy,
        languages: judged.languages,
        levenshtein: judged.levenshtein,
        one_hypothesis: judged.one_hypothesis,
        cover_certificate: judged.cover_certificate,
        bound_certificate: judged.bound_certificate,
        attention_nonzeros: judged.attention_nonzeros,
        output_nonzeros: judged.output_nonzeros,
    })
}

/// A result that was kept, or nothing; half a result is an error.
fn kept<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Failure::new(format!("{}: not a result of ours: {error}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::io(&path.display().to_string(), &error)),
    }
}

/// Many runs at once: each says one line at its end, and all stop when they are asked to.
struct Silent<'a>(&'a Interrupt);

impl Observer for Silent<'_> {
    fn batch(&mut self, _: &Progress) -> bool {
        self.0.code().is_some()
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}
