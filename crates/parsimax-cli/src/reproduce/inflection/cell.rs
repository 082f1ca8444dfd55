//! One run of a pair of mappings: trained, judged on the test words, kept.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use parsimax_models::decode::{self, Beam, Beams, Limits, Scorer, decode};
use parsimax_models::inflection::{EpochRecord, Observer, Progress, Run, Task, TrainError, Trainer};
use parsimax_models::seq2seq::{Counts, Translator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::{json, write};
use super::{Pair, Study};
use crate::{Failure, Result};

/// How well a model, or several as one, does on the test words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Scores {
    /// Percent of the words, averaged over languages.
    pub(super) accuracy: f64,
    /// The same for each language.
    pub(super) languages: BTreeMap<String, f64>,
    /// Percent of the words whose whole probability lies on one sequence.
    pub(super) one_hypothesis: f64,
    /// Percent of the words whose beam holds every sequence of non-zero probability.
    pub(super) cover_certificate: f64,
    /// Percent of the words whose answer is proven to be the most probable.
    pub(super) bound_certificate: f64,
}

/// A single run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Trial {
    pub(super) seed: u64,
    /// The epoch of the model that was judged: the best on development words.
    pub(super) best_epoch: usize,
    pub(super) test: Scores,
    /// Mean non-zeros of a step on the test words, and positions there are.
    pub(super) attention_nonzeros: f64,
    pub(super) source_length: f64,
    pub(super) output_nonzeros: f64,
    pub(super) history: Vec<EpochRecord>,
}

/// All runs of a pair as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ensemble {
    pub(super) members: u64,
    pub(super) test: Scores,
}

const RESULT: &str = "result.json";

/// The result of a run, which is trained or taken up again if it has none yet.
pub(super) fn run(study: &Study, pair: Pair, seed: u64, (number, jobs): (usize, usize)) -> Result<Trial> {
    let folder = study.run_folder(pair, seed);
    if let Some(result) = kept(&folder.join(RESULT))? {
        return Ok(result);
    }
    let run = train(study, pair, seed)?;
    let mut counts = Counts::default();
    let test = judge(study, &run.task, |sources, n| {
        let mut translator = Translator::new(&run.model, sources);
        let beams = search(&mut translator, n, study.plan.beam);
        let seen = translator.counts();
        counts.steps += seen.steps;
        counts.attention += seen.attention;
        counts.output += seen.output;
        counts.positions += seen.positions;
        beams
    })?;
    let mean = |sum: usize| sum as f64 / counts.steps.max(1) as f64;
    let result = Trial {
        seed,
        best_epoch: run.best_epoch,
        test,
        attention_nonzeros: mean(counts.attention),
        source_length: mean(counts.positions),
        output_nonzeros: mean(counts.output),
        history: run.history,
    };
    write(&folder, RESULT, &json(&result)?)?;
    let line = format!("{}, seed {seed}: {:.1}% of the test words", pair.name(), result.test.accuracy);
    // If nobody reads it, the work goes on.
    let _ = writeln!(std::io::stderr(), "inflection {number}/{jobs}: {line}");
    Ok(result)
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
    trainer.run(&mut Silent).map_err(failed)?;
    Run::open(&folder).map_err(failed)
}

/// The result of all runs of a pair as one, decoded if there is none yet.
pub(super) fn ensemble(study: &Study, pair: Pair) -> Result<Ensemble> {
    let (folder, name) = (study.folder.join("runs"), format!("{}-ensemble-of-{}.json", pair.name(), study.seeds));
    if let Some(result) = kept(&folder.join(&name))? {
        return Ok(result);
    }
    let read = |seed| {
        let folder = study.run_folder(pair, seed);
        Run::open(&folder).map_err(|error| Failure::new(format!("{}: {error}", folder.display())))
    };
    let members: Vec<Run> = (1..=study.seeds).map(read).collect::<Result<_>>()?;
    let Some(first) = members.first().filter(|first| members.iter().all(|run| run.task == first.task)) else {
        return Err(Failure::new(format!("{}: the runs do not know the same symbols", pair.name())));
    };
    let test = judge(study, &first.task, |sources, n| {
        let translators = members.iter().map(|run| Translator::new(&run.model, sources)).collect();
        search(&mut decode::Ensemble::new(translators)?, n, study.plan.beam)
    })?;
    let result = Ensemble { members: study.seeds, test };
    write(&folder, &name, &json(&result)?)?;
    Ok(result)
}

fn search<M: Scorer>(model: &mut M, inputs: usize, width: usize) -> Answered {
    decode(model, inputs, Limits::default(), |_, origin| Beam::new(width, origin))
}

type Answered = std::result::Result<Vec<Beams>, decode::DecodeError>;

/// Decodes the test words and compares.
fn judge(study: &Study, task: &Task, mut answer: impl FnMut(&[&[u32]], usize) -> Answered) -> Result<Scores> {
    let (mut one, mut cover, mut bound) = (0, 0, 0);
    let mut right: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for part in study.test.chunks(256) {
        let pairs: Vec<_> = part.iter().map(|example| task.pair(example)).collect();
        let sources: Vec<&[u32]> = pairs.iter().map(|pair| &pair.source[..]).collect();
        let beams = answer(&sources, part.len()).map_err(|error| Failure::new(error.to_string()))?;
        for (example, found) in part.iter().zip(&beams) {
            let word = found.hypotheses.first().map(|best| task.text(&best.symbols));
            let own = right.entry(&example.language).or_default();
            *own = (own.0 + usize::from(word == example.form), own.1 + 1);
            one += usize::from(found.cover && found.hypotheses.len() == 1);
            cover += usize::from(found.cover);
            bound += usize::from(found.bound);
        }
    }
    let percent = |n: usize, of: usize| 100.0 * n as f64 / of.max(1) as f64;
    let languages: BTreeMap<String, f64> =
        right.into_iter().map(|(language, (right, of))| (language.to_owned(), percent(right, of))).collect();
    Ok(Scores {
        accuracy: languages.values().sum::<f64>() / languages.len().max(1) as f64,
        languages,
        one_hypothesis: percent(one, study.test.len()),
        cover_certificate: percent(cover, study.test.len()),
        bound_certificate: percent(bound, study.test.len()),
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

/// Many runs at once: each says one line at its end.
struct Silent;

impl Observer for Silent {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}
