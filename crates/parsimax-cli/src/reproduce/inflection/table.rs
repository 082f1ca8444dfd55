//! The results beside the paper's.

use std::fmt::Write as _;

use serde::Serialize;

use super::cell::Trial;
use super::{Plan, Row, Study};

/// Table 1 of the paper, medium setting: mean of three runs and their ensemble, in the order of the pairs.
pub(super) const PAPER: [[f64; 2]; 9] = [
    [82.55, 85.68],
    [83.20, 85.63],
    [83.13, 85.65],
    [84.88, 86.38],
    [84.93, 86.55],
    [84.93, 86.59],
    [84.95, 86.41],
    [85.03, 86.61],
    [84.96, 86.47],
];

#[derive(Serialize)]
pub(super) struct Results<'a> {
    pub(super) plan: &'a Plan,
    pub(super) seeds: u64,
    pub(super) rows: &'a [Row],
}

/// A mean over runs with so many digits; a dash where there is none yet.
fn mean(runs: &[Trial], digits: usize, of: impl Fn(&Trial) -> f64) -> String {
    match runs.len() {
        0 => "–".into(),
        n => format!("{:.digits$}", runs.iter().map(of).sum::<f64>() / n as f64),
    }
}

/// From the worst to the best run.
fn range(runs: &[Trial]) -> String {
    let all = || runs.iter().map(|run| run.test.accuracy);
    match runs.len() {
        0 => "–".into(),
        _ => format!("{:.1}–{:.1}", all().fold(f64::INFINITY, f64::min), all().fold(f64::NEG_INFINITY, f64::max)),
    }
}

pub(super) fn markdown(study: &Study, rows: &[Row]) -> String {
    let plan = &study.plan;
    let mut text = format!(
        "# Morphological inflection with sparse attention and sparse output\n\n\
         Table 1 of Peters, Niculae & Martins (2019), *Sparse Sequence-to-Sequence Models*, medium setting: percent of \
         test words that are right, averaged over languages. α of the output and of the attention: 1 is softmax, 1.5 is \
         1.5-entmax, 2 is sparsemax. Written by `parsimax reproduce inflection`.\n\n\
         | output α | attention α | mean of {n} | worst–best | ensemble of {n} | paper: mean of 3 | paper: ensemble |\n\
         |---|---|---|---|---|---|---|\n",
        n = study.seeds
    );
    for row in rows {
        let ensemble = row.ensemble.as_ref().map_or("–".into(), |e| format!("{:.2}", e.test.accuracy));
        let [single, together] = row.paper;
        let (accuracy, range) = (mean(&row.runs, 2, |r| r.test.accuracy), range(&row.runs));
        let (output, attention) = (row.output, row.attention);
        let _ = writeln!(
            text,
            "| {output} | {attention} | {accuracy} | {range} | {ensemble} | {single:.2} | {together:.2} |"
        );
    }
    text.push_str(&standing(study, rows));
    text.push_str(&protocol(study));
    text.push_str(&sparsity(rows));
    text.push_str(&languages(plan, rows));
    text.push_str(&epochs(rows));
    text
}

/// Says so if runs are missing.
fn standing(study: &Study, rows: &[Row]) -> String {
    let (done, all) = (rows.iter().map(|row| row.runs.len()).sum::<usize>(), rows.len() * study.seeds as usize);
    if done == all {
        return String::new();
    }
    format!("\n**Not finished:** {done} of {all} runs are over; means are of those. The same command goes on.\n")
}

/// What was done, and how it differs from what the paper did.
fn protocol(study: &Study) -> String {
    let plan = &study.plan;
    let names = match &plan.languages[..] {
        few if few.len() <= 12 => few.join(", "),
        many => format!("{} languages", many.len()),
    };
    format!(
        "\n**Settings.** {names}; one multilingual model on {train} training words; size {size}, 2 layers, dropout 0.3, \
         batch {batch}, Adam at {rate}, halved when the validation loss has not fallen for 400 steps, {epochs} \
         epochs, seeds 1…{seeds}. The epoch that decodes most of {validation} development words rightly (greedily; at \
         most {each} of a language) is judged on {test} test words by a beam of {beam}. The paper: 102 languages, size \
         300, three runs.\n\n\
         Numbers are to be compared down a column, not with the paper's: languages, sizes and the length of training \
         differ. A short training favours the sparse losses: softmax learns more slowly at first, and the early gap is \
         larger than the one that remains.\n",
        train = study.train.len(),
        size = plan.size,
        batch = plan.batch,
        rate = plan.rate,
        epochs = plan.epochs,
        seeds = study.seeds,
        validation = study.validation.len(),
        each = plan.validation_words,
        test = study.test.len(),
        beam = plan.beam,
    )
}

fn sparsity(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Sparsity\n\nMeans over the runs, on the test words: words whose whole probability lies on one sequence; \
         words whose beam holds every sequence of non-zero probability (cover); words whose answer is proven to be the \
         most probable one (bound); source positions attended to, and characters that may come next, in a step along the \
         answer. The \
         paper's best medium model: 66% and 79% (validation words).\n\n\
         | output α | attention α | one hypothesis, % | cover, % | bound, % | attention | output |\n|---|---|---|---|---|---|---|\n",
    );
    for Row { output, attention, runs, .. } in rows {
        let of = |digits, f: fn(&Trial) -> f64| mean(runs, digits, f);
        let _ = writeln!(
            text,
            "| {output} | {attention} | {} | {} | {} | {} | {} |",
            of(1, |r| r.test.one_hypothesis),
            of(1, |r| r.test.cover_certificate),
            of(1, |r| r.test.bound_certificate),
            of(2, |r| r.test.attention_nonzeros),
            of(2, |r| r.test.output_nonzeros),
        );
    }
    text
}

/// Accuracy of each language where they fit into a table.
fn languages(plan: &Plan, rows: &[Row]) -> String {
    if plan.languages.len() > 8 {
        return String::new();
    }
    let names = plan.languages.join(" | ");
    let line = "|---".repeat(2 + plan.languages.len());
    let mut text = format!("\n## Languages\n\nMean of the runs.\n\n| output α | attention α | {names} |\n{line}|\n");
    for Row { output, attention, runs, .. } in rows {
        let cell = |name: &String| mean(runs, 1, |r| r.test.languages.get(name).copied().unwrap_or(0.0));
        let cells: Vec<String> = plan.languages.iter().map(cell).collect();
        let _ = writeln!(text, "| {output} | {attention} | {} |", cells.join(" | "));
    }
    text
}

/// How far training had come: where the best epoch was, and what the first half of the epochs had reached.
fn epochs(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Training\n\nMeans over the runs, development words, greedy: how much the second half of the epochs still \
         brought, and which epoch was the best.\n\n\
         | output α | attention α | half-way | at the end | best epochs |\n|---|---|---|---|---|\n",
    );
    for Row { output, attention, runs, .. } in rows {
        let at = |share: f64| {
            mean(runs, 1, |r| {
                let last = r.history.len().saturating_sub(1) as f64;
                r.history.get((last * share) as usize).map_or(0.0, |epoch| epoch.accuracy)
            })
        };
        let best: Vec<String> = runs.iter().map(|r| r.best_epoch.to_string()).collect();
        let _ = writeln!(text, "| {output} | {attention} | {} | {} | {} |", at(0.5), at(1.0), best.join(", "));
    }
    text
}
