//! Table 1 of the sparse sequence-to-sequence paper (Peters, Niculae & Martins 2019), medium setting: attention and
//! output each softmax, 1.5-entmax or sparsemax; several runs of each pair, alone and as an ensemble.
//!
//! ```text
//! data ──▶ jobs: 9 pairs × seeds ──▶ run (a folder that can be taken up again) ──▶ result.json
//!                                      all seeds of a pair ──▶ ensemble.json ──▶ inflection.md, inflection.json
//! ```
//!
//! Whatever is finished is read, not repeated; whatever was begun goes on from its last checkpoint. Jobs run side by
//! side, each on one thread: the bits of a run do not depend on it, and nothing waits for anything.

mod cell;
mod table;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use parsimax_data::inflection::{self as data, Example, Setting, Split};
use parsimax_models::inflection::Settings;
use parsimax_models::seq2seq::Choice;
use serde::{Deserialize, Serialize};

use super::{json, write};
use crate::inflection::signals::Interrupt;
use crate::output::to_stdout;
use crate::{Failure, Result};
use cell::{Ensemble, Trial};

/// What the runs of a study depend on besides the data. How many seeds there are is not among it: more can be added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) languages: Vec<String>,
    pub(crate) size: usize,
    pub(crate) epochs: usize,
    pub(crate) batch: usize,
    /// Adam's rate at the start.
    pub(crate) rate: f32,
    /// Development words of each language that choose the best epoch.
    pub(crate) validation_words: usize,
    /// Width of the beam that decodes the test words.
    pub(crate) beam: usize,
}

/// What was asked for; what is absent is taken from the quick or the full plan.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InflectionArgs {
    /// Folder or .tar.gz with the files of the CoNLL–SIGMORPHON 2018 shared task
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Folder for runs and results; what is finished there is not run again
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Five languages and a small model: half an hour on two quiet cores
    #[arg(long)]
    quick: bool,
    /// Languages, separated by commas; all that have medium data if absent
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    languages: Vec<String>,
    /// Runs of each pair; more can be added later [default: 3; quick: 2]
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// Width of embeddings and states [default: 300; quick: 64]
    #[arg(long, value_name = "N")]
    size: Option<usize>,
    /// Passes over the data [default: 60; quick: 50]
    #[arg(long, value_name = "N")]
    epochs: Option<usize>,
    /// Words in a batch [default: 64; quick: 16]
    #[arg(long, value_name = "N")]
    batch: Option<usize>,
    /// Adam's rate at the start [default: 0.001]
    #[arg(long, value_name = "R")]
    rate: Option<f32>,
    /// Jobs side by side, each on one thread; as many as cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

const QUICK_LANGUAGES: [&str; 5] = ["english", "german", "spanish", "turkish", "finnish"];

/// The mappings of the grid with their α, as in the paper.
const MAPPINGS: [(&str, f64); 3] = [("softmax", 1.0), ("entmax15", 1.5), ("sparsemax", 2.0)];

/// A pair of mappings.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pair {
    output: (&'static str, f64),
    attention: (&'static str, f64),
}

impl Pair {
    fn all() -> Vec<Self> {
        MAPPINGS.iter().flat_map(|&output| MAPPINGS.map(|attention| Self { output, attention })).collect()
    }

    fn name(self) -> String {
        format!("output-{}-attention-{}", self.output.0, self.attention.0)
    }
}

/// Where everything is, and what is asked of it.
struct Study {
    plan: Plan,
    seeds: u64,
    folder: PathBuf,
    train: Vec<Example>,
    validation: Vec<Example>,
    test: Vec<Example>,
    interrupt: Interrupt,
}

impl InflectionArgs {
    fn seeds(&self) -> u64 {
        self.seeds.unwrap_or(if self.quick { 2 } else { 3 })
    }

    fn plan(&self) -> Result<Plan> {
        let languages = match (&self.languages[..], self.quick) {
            ([], true) => QUICK_LANGUAGES.map(str::to_owned).to_vec(),
            ([], false) => data::languages(&self.data, Split::Train(Setting::Medium))?,
            (named, _) => named.to_vec(),
        };
        let of =
            |given: Option<usize>, quick: usize, full: usize| given.unwrap_or(if self.quick { quick } else { full });
        let plan = Plan {
            languages,
            size: of(self.size, 64, 300),
            epochs: of(self.epochs, 50, 60),
            batch: of(self.batch, 16, 64),
            // At twice as much some runs with softmax as output hardly learned: sparse attention had narrowed to about
            // one position in the first epoch.
            rate: self.rate.unwrap_or(1e-3),
            validation_words: 100,
            beam: 5,
        };
        let least = [("seeds", self.seeds() as usize), ("epochs", plan.epochs), ("batch", plan.batch)];
        if let Some((name, _)) = least.iter().find(|(_, n)| *n == 0) {
            return Err(Failure::new(format!("--{name} must be at least 1, got 0")));
        }
        if plan.languages.is_empty() {
            return Err(Failure::new(format!("{}: no file named <language>-train-medium", self.data.display())));
        }
        Ok(plan)
    }
}

impl Study {
    fn new(args: &InflectionArgs) -> Result<Self> {
        let plan = args.plan()?;
        let read = |split| data::read(&args.data, &plan.languages, split);
        let (train, validation, test) = (read(Split::Train(Setting::Medium))?, read(Split::Dev)?, read(Split::Test)?);
        let validation = thinned(&validation, &plan);
        let (folder, seeds) = (args.out.clone(), args.seeds());
        let study = Self { folder, seeds, plan, train, validation, test, interrupt: Interrupt::listen()? };
        study.claim()?;
        Ok(study)
    }

    /// Results of one plan do not mix with those of another.
    fn claim(&self) -> Result<()> {
        let path = self.folder.join("plan.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            return write(&self.folder, "plan.json", &json(&self.plan)?);
        };
        match serde_json::from_str::<Plan>(&text) {
            Ok(plan) if plan == self.plan => Ok(()),
            Ok(_) => Err(Failure::new(format!(
                "{}: holds results of another plan (languages, size, epochs, batch or rate differ); choose another --out",
                path.display()
            ))),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
        }
    }

    fn settings(&self, pair: Pair, seed: u64) -> Settings {
        let (attention, output) = (Choice::of(pair.attention.0), Choice::of(pair.output.0));
        let Plan { size, epochs, batch, rate, .. } = self.plan;
        Settings { attention, output, size, epochs, batch, rate, seed, ..Settings::default() }
    }

    fn run_folder(&self, pair: Pair, seed: u64) -> PathBuf {
        self.folder.join("runs").join(format!("{}-seed-{seed}", pair.name()))
    }
}

/// The same share of the words of each language, spread over its file.
fn thinned(examples: &[Example], plan: &Plan) -> Vec<Example> {
    let mut kept = Vec::new();
    for language in &plan.languages {
        let own: Vec<&Example> = examples.iter().filter(|e| e.language == *language).collect();
        let count = own.len().min(plan.validation_words);
        kept.extend((0..count).map(|i| own[i * own.len() / count].clone()));
    }
    kept
}

/// All results of a pair, as far as there are any.
#[derive(Debug, Clone, Serialize)]
struct Row {
    output: f64,
    attention: f64,
    /// Mean accuracy of single runs and accuracy of the ensemble in the paper.
    paper: [f64; 2],
    runs: Vec<Trial>,
    ensemble: Option<Ensemble>,
}

pub(super) fn run(args: &InflectionArgs) -> Result<()> {
    let study = Study::new(args)?;
    let (pairs, published) = (Pair::all(), Mutex::new(()));
    publish(&study)?;
    let jobs: Vec<(Pair, u64)> =
        (1..=study.seeds).flat_map(|seed| pairs.iter().map(move |pair| (*pair, seed))).collect();
    let threads = args.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
    side_by_side(threads, jobs.len(), |i| {
        if cell::run(&study, jobs[i].0, jobs[i].1, (i + 1, jobs.len()))? {
            let _one_at_a_time = published.lock();
            publish(&study)?;
        }
        Ok(())
    })?;
    side_by_side(threads, pairs.len(), |i| cell::ensemble(&study, pairs[i]))?;
    let report = publish(&study)?;
    to_stdout(|out| write!(out, "{report}"))
}

/// Writes the table as far as it is known, so that a study that is stopped shows what it has.
fn publish(study: &Study) -> Result<String> {
    let mut rows = Vec::new();
    for (pair, paper) in Pair::all().into_iter().zip(table::PAPER) {
        let runs = (1..=study.seeds).map(|seed| cell::kept_run(study, pair, seed));
        let runs = runs.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect();
        let ensemble = cell::kept_ensemble(study, pair)?;
        rows.push(Row { output: pair.output.1, attention: pair.attention.1, paper, runs, ensemble });
    }
    let report = table::markdown(study, &rows);
    write(
        &study.folder,
        "inflection.json",
        &json(&table::Results { plan: &study.plan, seeds: study.seeds, rows: &rows })?,
    )?;
    write(&study.folder, "inflection.md", &report)?;
    Ok(report)
}

/// Does jobs on so many threads, each in a pool of one; after a failure nothing new is begun.
fn side_by_side(threads: usize, jobs: usize, job: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let is_failed = || failed.lock().is_ok_and(|failed| failed.is_some());
    let work = || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let pool = pool.map_err(|error| Failure::new(format!("cannot start threads: {error}")))?;
        while !is_failed() {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= jobs {
                break;
            }
            pool.install(|| job(i))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.min(jobs) {
            scope.spawn(|| {
                if let (Err(failure), Ok(mut failed)) = (work(), failed.lock()) {
                    failed.get_or_insert(failure);
                }
            });
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}
