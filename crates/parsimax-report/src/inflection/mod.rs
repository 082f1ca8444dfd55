//! The page about a model that inflects words: how it learnt, how sparse it is, where it attends, which words it holds
//! possible, and where it is wrong.
//!
//! [`Report`] is plain data; [`page`] makes one HTML file of it that needs no network, no script and no other file,
//! follows the reader's choice of light or dark, fits a phone and can be printed. Every text of the data is escaped.

mod attention;
mod curves;
mod errors;
mod forced;
mod sparsity;
mod style;
mod tree;

use crate::render::{escaped, styled_page};
use std::fmt::Write as _;

/// What the page shows.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    /// The head line.
    pub title: String,
    /// A sentence below it.
    pub subtitle: String,
    /// What was set, name and value.
    pub settings: Vec<(String, String)>,
    /// The figures that matter most, with what they mean.
    pub headlines: Vec<(String, String)>,
    /// One record for each epoch.
    pub epochs: Vec<Epoch>,
    /// The epoch of the model that is shown, counted from 1.
    pub best_epoch: usize,
    /// How often how many entries are not zero.
    pub sparsity: Sparsity,
    /// Where the model attends while it writes its answer.
    pub maps: Vec<AttentionMap>,
    /// Words the model holds possible.
    pub trees: Vec<Tree>,
    /// Ways to the right word.
    pub forced: Vec<Forced>,
    /// Wrong answers, the worst first.
    pub errors: Vec<Mistake>,
    /// How many answers were wrong, and of how many.
    pub wrong: (usize, usize),
}

/// An epoch of training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Epoch {
    /// Counted from 1.
    pub epoch: usize,
    /// Mean training loss of a symbol.
    pub train_loss: f64,
    /// Mean validation loss of a symbol.
    pub validation_loss: f64,
    /// Percent of the validation words that are right.
    pub accuracy: f64,
    /// Mean number of source positions that are attended to.
    pub attention_nonzeros: f64,
    /// Mean number of characters that may come next.
    pub output_nonzeros: f64,
}

/// Histograms: entry `n` counts how often exactly `n` entries were not zero.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sparsity {
    /// Source positions attended to in a step.
    pub attention: Vec<usize>,
    /// Mean number of source positions there are.
    pub positions: f64,
    /// Characters that may come next in a step.
    pub output: Vec<usize>,
    /// Characters there are.
    pub symbols: usize,
    /// Words of non-zero probability for a question.
    pub hypotheses: Vec<usize>,
    /// Questions with more than could be told.
    pub uncounted: usize,
}

/// A question to the model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Of the lemma.
    pub language: String,
    /// The dictionary form.
    pub lemma: String,
    /// What it should become.
    pub tags: Vec<String>,
    /// The right answer.
    pub form: String,
}

/// Weights of source positions, one row for each character that was written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AttentionMap {
    /// What was asked.
    pub asked: Asked,
    /// What the model answered.
    pub answer: String,
    /// Names of the source positions.
    pub positions: Vec<String>,
    /// How many of them, from the first on, are not characters.
    pub tags: usize,
    /// What was written, and the weights of the positions.
    pub rows: Vec<(String, Vec<f32>)>,
}

/// Words of non-zero probability as a tree of their beginnings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tree {
    /// What was asked.
    pub asked: Asked,
    /// The root first; a child comes after its parent.
    pub nodes: Vec<Node>,
    /// The words with their probabilities, most probable first.
    pub words: Vec<(String, f64)>,
    /// Probability of what was not looked at; exactly 0 if nothing is missing.
    pub open: f64,
    /// Beginnings that were read.
    pub expansions: usize,
}

/// A beginning of words.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its last character.
    pub text: String,
    /// Probability of all words that begin like this.
    pub probability: f64,
    /// Its continuations.
    pub children: Vec<usize>,
    /// What it is.
    pub kind: Kind,
}

/// What a node of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It goes on.
    Inner,
    /// It ends a word.
    Word,
    /// Nobody asked how it goes on.
    Open,
}

/// The way to the right word, with what else was possible.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Forced {
    /// What was asked.
    pub asked: Asked,
    /// What the model answered.
    pub answer: String,
    /// Character by character, the end included.
    pub steps: Vec<ForcedStep>,
    /// Probability of the right word, which may be exactly 0.
    pub probability: f64,
}

/// A step of such a way.
#[derive(Debug, Clone, PartialEq)]
pub struct ForcedStep {
    /// The right character; nothing is the end.
    pub right: Option<String>,
    /// All that may come, most probable first; nothing is the end. The right one is missing if its probability is 0.
    pub next: Vec<(Option<String>, f64)>,
}

/// A wrong answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Mistake {
    /// What was asked.
    pub asked: Asked,
    /// What the model answered.
    pub answer: String,
    /// Its probability.
    pub probability: f64,
    /// Probability of the right word, which may be exactly 0.
    pub right_probability: f64,
    /// Characters to be changed, added or taken away.
    pub distance: usize,
    /// What is known about the answer.
    pub certificate: &'static str,
}

/// The report as one file.
#[must_use]
pub fn page(report: &Report) -> String {
    let sections = [
        ("learning", "Learning", curves::section(report)),
        ("sparsity", "Sparsity", sparsity::section(&report.sparsity)),
        ("attention", "Attention", attention::section(&report.maps)),
        ("hypotheses", "All words of non-zero probability", tree::section(&report.trees)),
        ("forced", "On the way to the right word", forced::section(&report.forced)),
        ("errors", "Worst errors", errors::section(&report.errors, report.wrong)),
    ];
    let mut body = head(report);
    body.push_str("<nav aria-label=\"Sections\"><ul>\n");
    for (id, name, _) in &sections {
        let _ = writeln!(body, "<li><a href=\"#{id}\">{name}</a></li>");
    }
    body.push_str("</ul></nav>\n");
    for (id, name, text) in &sections {
        let _ = write!(body, "<section id=\"{id}\">\n<h2>{name}</h2>\n{text}</section>\n");
    }
    body.push_str("<footer>Written by parsimax: <code>parsimax report</code></footer>\n");
    styled_page(&report.title, &style::rules(), &body)
}

fn head(report: &Report) -> String {
    let mut text = format!("<header>\n<h1>{}</h1>\n<p>{}</p>\n", escaped(&report.title), escaped(&report.subtitle));
    text.push_str("<dl class=\"headlines\">\n");
    for (value, meaning) in &report.headlines {
        let _ = writeln!(text, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(meaning), escaped(value));
    }
    text.push_str("</dl>\n<details>\n<summary>Settings</summary>\n<dl class=\"settings\">\n");
    for (name, value) in &report.settings {
        let _ = writeln!(text, "<div><dt>{}</dt><dd>{}</dd></div>", escaped(name), escaped(value));
    }
    text.push_str("</dl>\n</details>\n</header>\n");
    text
}

/// What was asked, as a heading.
fn heading(asked: &Asked, answer: Option<&str>) -> String {
    let Asked { language, lemma, tags, form } = asked;
    let (lemma, form) = (escaped(lemma), escaped(form));
    let answer = match answer {
        Some(answer) if answer == asked.form => " <span class=\"right\">✓ right</span>".to_owned(),
        Some(answer) => format!(" <span class=\"wrong\">✗ answered <q>{}</q></span>", escaped(answer)),
        None => String::new(),
    };
    format!(
        "<h3><span lang=\"und\">{lemma} → {form}</span>{answer}</h3>\n<p class=\"asked\">{} · {}</p>\n",
        escaped(language),
        escaped(&tags.join(";"))
    )
}

/// A probability for people: exact 0 and 1 are told from what is near them.
fn percent(p: f64) -> String {
    match 100.0 * p {
        0.0 => "0".into(),
        100.0 => "100%".into(),
        q if q < 0.1 => "<0.1%".into(),
        q if q > 99.9 => ">99.9%".into(),
        q => format!("{q:.1}%"),
    }
}

/// A character that can be seen.
fn visible(text: &str) -> String {
    if text.trim().is_empty() { "␣".repeat(text.chars().count().max(1)) } else { escaped(text) }
}

/// What scrolls on its own where it is too wide, by keyboard too.
fn scrolling(label: &str, inside: &str) -> String {
    format!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n{inside}</div>\n", escaped(label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_probabilities_are_told_from_near_ones() {
        let all = [0.0, 1e-9, 0.664, 1.0 - 1e-9, 1.0].map(percent);
        assert_eq!(all, ["0", "<0.1%", "66.4%", ">99.9%", "100%"]);
    }

    #[test]
    fn spaces_can_be_seen() {
        assert_eq!([visible(" "), visible(""), visible("<")], ["␣", "␣", "&lt;"]);
    }
}
