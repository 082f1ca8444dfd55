//! Figure 3 of the sparsemax paper: two errors against the length of documents.

use std::fmt::Write as _;
use std::time::Instant;

use parsimax_linear::study::proportions::{self, LOSSES, Outcome, Setting};
use parsimax_report::render::svg;
use parsimax_report::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Series, Size, Theme};
use serde::Serialize;

use super::{Place, json, write};
use crate::Result;
use crate::output::to_stdout;
use crate::progress::{Progress, on_threads};

#[derive(Serialize)]
struct Results {
    seed: u64,
    draws: usize,
    threads: usize,
    seconds: f64,
    outcomes: Vec<Outcome>,
}

pub(super) fn run(draws: usize, place: &Place) -> Result<()> {
    let settings = proportions::settings();
    let progress = Progress::new("label-proportions", settings.len() * draws);
    let start = Instant::now();
    let (outcomes, threads) = on_threads(place.threads, || {
        (proportions::run(&settings, place.seed, draws, &|| progress.advance()), rayon::current_num_threads())
    })?;
    drop(progress);
    let seconds = start.elapsed().as_secs_f64();
    let results = Results { seed: place.seed, draws, threads, seconds, outcomes: outcomes? };
    let report = markdown(&results, &settings);
    write(&place.folder, "label-proportions.json", &json(&results)?)?;
    let figure = figure(&results);
    write(&place.folder, "label-proportions.svg", &svg(&figure, &Theme::light(), Size::of(&figure)))?;
    write(&place.folder, "label-proportions.md", &report)?;
    to_stdout(|out| write!(out, "{report}"))
}

/// Both losses at a setting: softmax, sparsemax.
fn pair(results: &Results, setting: Setting) -> Option<[&Outcome; 2]> {
    let find = |loss: &str| results.outcomes.iter().find(|o| o.setting == setting && o.loss == loss);
    Some([find(LOSSES[0])?, find(LOSSES[1])?])
}

fn mixture(uniform: bool) -> &'static str {
    if uniform { "uniform" } else { "random" }
}

fn markdown(results: &Results, settings: &[Setting]) -> String {
    let mut text = String::from(
        "# Label proportions of simulated documents\n\n\
         Figure 3 of Martins & Astudillo (2016), *From Softmax to Sparsemax*, which gives curves without numbers. \
         Written by `parsimax reproduce label-proportions`.\n\n\
         ![Mean squared error and Jensen–Shannon divergence against document length](label-proportions.svg)\n\n\
         The paper's finding: the losses are alike for short documents; once the average length exceeds 400 words, \
         sparsemax is better. \"Logistic\" is the softmax loss. MSE is the mean of ‖q − p‖², JS the mean \
         Jensen–Shannon divergence in nats; support is the number of labels with a share in sparsemax's prediction. Every number is a mean over draws of \
         topics and documents; ± is the standard deviation between them.\n\n\
         | K | mixture | length | MSE logistic | MSE sparsemax | ratio | JS logistic | JS sparsemax | ratio | support |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    for setting in settings {
        let Some([soft, sparse]) = pair(results, *setting) else { continue };
        let Setting { labels, uniform, length } = setting;
        let _ = writeln!(
            text,
            "| {labels} | {} | {length} | {:.4} ± {:.4} | {:.4} ± {:.4} | {:.2} | {:.4} | {:.4} | {:.2} | {:.2} |",
            mixture(*uniform),
            soft.mse,
            soft.mse_deviation,
            sparse.mse,
            sparse.mse_deviation,
            sparse.mse / soft.mse,
            soft.js,
            sparse.js,
            sparse.js / soft.js,
            sparse.support
        );
    }
    text.push_str(
        "\n**Where sparsemax overtakes:** the first length from which on its error is the smaller one at every length.\n\n\
         | K | mixture | MSE | JS |\n|---|---|---|---|\n",
    );
    for labels in [10, 50] {
        for uniform in [true, false] {
            let panel: Vec<Setting> =
                settings.iter().copied().filter(|s| s.labels == labels && s.uniform == uniform).collect();
            let [mse, js] = [|o: &Outcome| o.mse, |o: &Outcome| o.js].map(|of| crossover(results, &panel, of));
            let _ = writeln!(text, "| {labels} | {} | {mse} | {js} |", mixture(uniform));
        }
    }
    text.push_str(
        "\n**What the paper leaves open,** as chosen here: the number of a document's labels is Poisson(2), drawn again \
         until it lies in 1…K; labels are uniform without replacement; topics are rows of U(0, 1) numbers divided by \
         their sum; the vocabulary has K words; the length is Poisson; features are standardised word frequencies; \
         1200 training and 1000 test documents. λ from 10⁻⁹…1 by 5-fold cross-validation on the squared error, L-BFGS \
         with at most 100 iterations.\n",
    );
    let Results { seconds, draws, threads, seed, .. } = results;
    let count = settings.len();
    let _ = writeln!(text, "\n{count} settings × {draws} draws in {seconds:.0} s on {threads} threads, seed {seed}.");
    text
}

/// The first length from which on sparsemax has the smaller error.
fn crossover(results: &Results, panel: &[Setting], of: fn(&Outcome) -> f64) -> String {
    let better = |setting: &Setting| pair(results, *setting).is_some_and(|[soft, sparse]| of(sparse) < of(soft));
    let behind = panel.iter().rposition(|setting| !better(setting)).map_or(0, |at| at + 1);
    panel.get(behind).map_or("never".into(), |setting| setting.length.to_string())
}

/// Both errors against the length, for both kinds of mixtures.
fn figure(results: &Results) -> Figure {
    let mut panels = Vec::new();
    for (name, of) in
        [("mean squared error", (|o| o.mse) as fn(&Outcome) -> f64), ("Jensen–Shannon divergence", |o| o.js)]
    {
        for uniform in [true, false] {
            let title = format!("{name}, {} mixtures", mixture(uniform));
            panels.push(Panel { title, plot: Plot::Lines(curves(results, uniform, of)) });
        }
    }
    Figure {
        name: "label-proportions".into(),
        title: "Label proportions of simulated documents".into(),
        subtitle: format!("means of {} draws of topics, K labels over K words", results.draws),
        caption: "Sparsemax overtakes the softmax loss (logistic) as documents grow longer.".into(),
        columns: 2,
        panels,
    }
}

fn curves(results: &Results, uniform: bool, of: fn(&Outcome) -> f64) -> Lines {
    let mut series = Vec::new();
    for labels in [10, 50] {
        for (loss, shown) in LOSSES.iter().zip(["logistic", "sparsemax"]) {
            let mine = results
                .outcomes
                .iter()
                .filter(|o| o.setting.labels == labels && o.setting.uniform == uniform && o.loss == *loss);
            let points = mine.map(|o| (o.setting.length as f64, of(o))).collect();
            series.push(Series::new(&format!("{shown}, K = {labels}"), Ink::Kind(series.len()), points));
        }
    }
    let top = series.iter().flat_map(|s| &s.points).fold(0.0, |top: f64, (_, y)| top.max(*y));
    // A number every 0.05, and room above the curves for their names.
    let ticks: Vec<f64> = (0..=(top / 0.05).ceil() as usize + 1).map(|tick| tick as f64 * 0.05).collect();
    let y = Axis::linear("", (0.0, ticks[ticks.len() - 1]), &ticks);
    let x = Axis::linear("document length (words)", (0.0, 2000.0), &[0.0, 500.0, 1000.0, 1500.0, 2000.0]);
    Lines { x, y, key: Key::TopRight, series }
}
