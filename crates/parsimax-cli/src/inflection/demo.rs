//! `parsimax demo`: a model from nothing in a minute, and what it can prove.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use parsimax_data::demo::{self, Unseen};
use parsimax_data::inflection::Example;
use parsimax_models::inflection::{
    Decoder, Evaluation, Outcome, Prediction, Predictor, Run, Settings, Trainer, evaluate,
};

use super::predict::{certificate, probability};
use super::show::{Show, time};
use super::signals::Interrupt;
use crate::output::to_stdout;
use crate::progress::on_threads;
use crate::{Failure, Result, report};

#[derive(Args)]
#[command(after_help = "\
The words are embedded: English verbs with their irregular forms, and two languages made by rule, one
with vowel harmony (suvali) and one with vowel changes and doubling (tirona). No network, no file.")]
pub(crate) struct DemoArgs {
    /// Folder for the run; an older demo in it is replaced
    #[arg(long, value_name = "DIR", default_value = "parsimax-demo")]
    out: PathBuf,
    /// Page to write about it
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    report: PathBuf,
    /// Seconds of training; the epoch that is under way is finished
    #[arg(long, value_name = "S", default_value_t = 60.0, allow_negative_numbers = true)]
    seconds: f64,
    /// Threads; all cores if absent
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

pub(crate) struct DemoConfig {
    out: PathBuf,
    report: PathBuf,
    time: Duration,
    threads: Option<usize>,
}

impl DemoArgs {
    pub(crate) fn resolve(self) -> Result<DemoConfig> {
        let time = Duration::try_from_secs_f64(self.seconds)
            .map_err(|_| Failure::new(format!("--seconds must be at least 0; got {}", self.seconds)))?;
        Ok(DemoConfig { out: self.out, report: self.report, time, threads: self.threads })
    }
}

/// Says that a folder may be replaced.
const MARK: &str = "demo.txt";

/// A small model and small batches: many steps in a minute.
fn settings() -> Settings {
    Settings { size: 64, batch: 16, epochs: 30, rate: 2e-3, ..Settings::default() }
}

/// Trains, predicts, explains.
pub(crate) fn run(config: &DemoConfig) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    let words = demo::demo();
    let (validation, unseen) = halves(words.unseen);
    make_room(&config.out)?;
    to_stdout(|out| introduce(out, words.train.len(), config.time))?;
    let mut trainer = Trainer::new(&config.out, settings(), &words.train, &validation)?;
    let started = Instant::now();
    let outcome =
        on_threads(config.threads, || trainer.run(&mut Show::new(&interrupt, None).for_at_most(config.time)))??;
    if let (Outcome::Stopped, Some(code)) = (outcome, interrupt.code()) {
        return Err(Failure::Interrupted("the demo was stopped".into(), code));
    }
    let took = started.elapsed().as_secs_f64();
    let predictor = Predictor::new(vec![Run::open(&config.out)?])?;
    let regular: Vec<Example> = unseen.iter().filter(|u| u.is_regular).map(|u| u.example.clone()).collect();
    let shown = shown(&unseen);
    let (evaluation, predictions) = on_threads(config.threads, || {
        let all = Decoder::All { expansions: 2_000 };
        Ok::<_, Failure>((evaluate(&predictor, &regular, 5)?, predictor.predict(&shown, all)?))
    })??;
    report::write(&predictor.runs()[0], &config.report)?;
    to_stdout(|out| {
        let epochs = predictor.runs()[0].history.len();
        writeln!(out, "Learnt for {epochs} epochs in {}.\n", time(took))?;
        judge(out, &evaluation, regular.len())?;
        predictions_of(out, &shown, &predictions)?;
        try_next(out, config)
    })
}

/// Lemmas in turn: the best model is chosen by one half, and judged by the other.
fn halves(unseen: Vec<Unseen>) -> (Vec<Example>, Vec<Unseen>) {
    let (mut validation, mut judged, mut turn) = (Vec::new(), Vec::new(), false);
    let mut lemma = String::new();
    for word in unseen {
        if word.example.lemma != lemma {
            lemma.clone_from(&word.example.lemma);
            turn = !turn;
        }
        if turn {
            validation.push(word.example);
        } else {
            judged.push(word);
        }
    }
    (validation, judged)
}

/// An older demo goes; anything else stays.
fn make_room(folder: &Path) -> Result<()> {
    let io = |path: &Path| {
        let place = path.display().to_string();
        move |error| Failure::io(&place, &error)
    };
    let mark = folder.join(MARK);
    if Run::is_at(folder) && !mark.exists() {
        let what = "holds a run that is no demo; choose another folder by --out";
        return Err(Failure::new(format!("{}: {what}", folder.display())));
    }
    fs::create_dir_all(folder).map_err(io(folder))?;
    for old in ["latest.safetensors", "best.safetensors"].map(|name| folder.join(name)) {
        if old.exists() {
            fs::remove_file(&old).map_err(io(&old))?;
        }
    }
    fs::write(&mark, "A run of 'parsimax demo'. The next demo replaces it.\n").map_err(io(&mark))
}

fn introduce(out: &mut dyn Write, words: usize, time: Duration) -> std::io::Result<()> {
    writeln!(out, "A model learns to inflect words: from a lemma and tags to a form, letter by letter.")?;
    writeln!(out, "Attention and output are 1.5-entmax, so most probabilities are exactly zero.")?;
    writeln!(out, "{words} forms of three languages, about {} of training.\n", super::show::time(time.as_secs_f64()))
}

fn judge(out: &mut dyn Write, e: &Evaluation, words: usize) -> std::io::Result<()> {
    writeln!(out, "{words} regular forms of words it has never seen: {:.1}% right", e.accuracy)?;
    let languages: Vec<String> = e.languages.iter().map(|(name, right)| format!("{name} {right:.1}%")).collect();
    writeln!(out, "  {}", languages.join(", "))?;
    writeln!(
        out,
        "  a letter looks at {:.2} positions, and {:.2} letters could have come next, on average",
        e.attention_nonzeros, e.output_nonzeros
    )?;
    writeln!(
        out,
        "  {:.0}% have all probability on one word; {:.0}% of answers are proven to be the best there is\n",
        e.one_hypothesis, e.bound_certificate
    )
}

/// Some words of each language, irregular ones among them.
fn shown(unseen: &[Unseen]) -> Vec<Example> {
    let mut shown = Vec::new();
    for language in ["english", "suvali", "tirona"] {
        for (is_regular, count) in [(true, 3), (false, 2)] {
            let is_one = |u: &&Unseen| u.example.language == language && u.is_regular == is_regular;
            let all: Vec<&Unseen> = unseen.iter().filter(is_one).collect();
            let step = (all.len() / count).max(1);
            shown.extend(all.iter().step_by(step).take(count).map(|u| u.example.clone()));
        }
    }
    shown
}

fn predictions_of(out: &mut dyn Write, shown: &[Example], predictions: &[Prediction]) -> std::io::Result<()> {
    writeln!(out, "Some of them, and some irregular ones, with every word of non-zero probability:")?;
    for (example, prediction) in shown.iter().zip(predictions) {
        writeln!(out, "\n  {} {} ({})", example.lemma, example.tags.join(";"), example.language)?;
        for word in prediction.hypotheses.iter().take(4) {
            let mark = if Some(&word.form) == example.form.as_ref() { "✓" } else { " " };
            writeln!(out, "    {mark} {:<16} {}", word.form, probability(word.probability))?;
        }
        if let more @ 5.. = prediction.hypotheses.len() {
            writeln!(out, "      and {} more", more - 4)?;
        }
        if let Some(right) = example.form.as_ref().filter(|f| prediction.hypotheses.iter().all(|w| w.form != **f)) {
            writeln!(out, "      (right would be {right}, which has probability 0)")?;
        }
        writeln!(out, "      {}", certificate(prediction).unwrap_or_default())?;
    }
    Ok(())
}

fn try_next(out: &mut dyn Write, config: &DemoConfig) -> std::io::Result<()> {
    let (run, page) = (config.out.display(), config.report.display());
    writeln!(
        out,
        "\nCurves, attention, trees of hypotheses and the worst errors are in {page}: open it in a browser."
    )?;
    writeln!(out, "\nTry next")?;
    for line in [
        format!("parsimax predict {run} --language english --lemma sing --tags 'V;PST'"),
        format!("parsimax predict {run} --language suvali --lemma köl --tags 'N;ABL;PL' --decoder all"),
        "parsimax train inflection --help".to_owned(),
        "parsimax tour".to_owned(),
    ] {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}
