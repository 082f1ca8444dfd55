//! `parsimax report`: a run as one page, from its curves to its worst errors.

use std::path::{Path, PathBuf};

use clap::Args;
use parsimax_data::inflection::Example;
use parsimax_data::vocabulary::END;
use parsimax_models::decode::{DecodeError, Hypothesis};
use parsimax_models::inflection::explain::{self, Answered, Step};
use parsimax_models::inflection::{Run, Settings, Task};
use parsimax_models::seq2seq::{Choice, Pair};
use parsimax_report::inflection as page;

use crate::output::Sink;
use crate::{Failure, Result};

#[derive(Args)]
#[command(after_help = "\
The page needs no network and no other file. Words are taken evenly from the validation words that the
run keeps.

Example:
  parsimax report runs/english -o report.html")]
pub(crate) struct ReportArgs {
    /// Folder of a run of `parsimax train inflection`
    run: PathBuf,
    /// Page to write, which appears complete or not at all; '-' is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Validation words that are decoded; 0 means all
    #[arg(long, value_name = "N", default_value_t = Scope::DEFAULT.words)]
    words: usize,
    /// Words in each section that shows single words
    #[arg(long, value_name = "N", default_value_t = Scope::DEFAULT.examples)]
    examples: usize,
}

/// Which run, and where its page goes.
pub(crate) struct ReportConfig {
    run: PathBuf,
    sink: Sink,
    scope: Scope,
}

/// How much is looked at.
#[derive(Debug, Clone, Copy)]
struct Scope {
    words: usize,
    examples: usize,
}

impl Scope {
    const DEFAULT: Self = Self { words: 1000, examples: 6 };
}

impl ReportArgs {
    pub(crate) fn resolve(self) -> ReportConfig {
        let scope = Scope { words: self.words, examples: self.examples };
        ReportConfig { run: self.run, sink: Sink::new(Some(self.output)), scope }
    }
}

/// Width of the beam, beginnings that a tree may read, and lines of the table of errors.
const BEAM: usize = 5;
const EXPANSIONS: usize = 400;
const ERRORS: usize = 20;

pub(crate) fn run(config: &ReportConfig) -> Result<()> {
    let run = open(&config.run)?;
    let html = html(&run, config.scope)?;
    config.sink.write(|out| out.write_all(html.as_bytes()))
}

fn open(folder: &Path) -> Result<Run> {
    if !Run::is_at(folder) {
        return Err(Failure::new(format!("{}: no run of 'parsimax train inflection' is there", folder.display())));
    }
    Run::open(folder).map_err(|error| Failure::new(error.to_string()))
}

/// Writes the page of a run, which appears complete or not at all.
pub(crate) fn write(run: &Run, path: &Path) -> Result<()> {
    let html = html(run, Scope::DEFAULT)?;
    Sink::File(path.to_owned()).write(|out| out.write_all(html.as_bytes()))
}

/// The page of a run.
fn html(run: &Run, scope: Scope) -> Result<String> {
    let report = Looked::new(run, scope).and_then(|looked| looked.report(scope.examples));
    let report = report.map_err(|error| Failure::new(format!("{}: {error}", run.folder.display())))?;
    Ok(page::page(&report))
}

/// A run and what it says of some validation words.
struct Looked<'a> {
    run: &'a Run,
    words: Vec<&'a Example>,
    pairs: Vec<Pair>,
    answers: Vec<Answered>,
    /// The ways to the right words.
    ways: Vec<Vec<Step>>,
}

type Decoded<T> = std::result::Result<T, DecodeError>;

impl<'a> Looked<'a> {
    fn new(run: &'a Run, scope: Scope) -> Decoded<Self> {
        let all = run.validation.len();
        let count = if scope.words == 0 { all } else { scope.words.min(all) };
        // Evenly from all of them: languages stand one after the other.
        let words: Vec<&Example> = (0..count).map(|i| &run.validation[i * all / count]).collect();
        let pairs: Vec<Pair> = words.iter().map(|word| run.task.pair(word)).collect();
        let answers = explain::survey(&run.model, &run.task, &words, BEAM)?;
        let ways = explain::led(&run.model, &pairs)?;
        Ok(Self { run, words, pairs, answers, ways })
    }

    fn report(&self, examples: usize) -> Decoded<page::Report> {
        let Run { settings, history, best_epoch, .. } = self.run;
        let wrong = self.answers.iter().filter(|answer| !answer.is_right).count();
        Ok(page::Report {
            title: "Inflection, learnt sparsely".into(),
            subtitle: self.subtitle(),
            settings: settings_of(settings, self.run),
            headlines: self.headlines(),
            epochs: history.iter().map(epoch).collect(),
            best_epoch: *best_epoch,
            sparsity: self.sparsity(),
            maps: self.maps(examples)?,
            trees: self.trees(examples)?,
            forced: self.forced(examples),
            errors: self.errors(),
            wrong: (wrong, self.words.len()),
        })
    }

    fn languages(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.words.iter().map(|word| &word.language[..]).collect();
        names.dedup();
        names
    }

    fn subtitle(&self) -> String {
        let Settings { attention, output, .. } = &self.run.settings;
        let names = match &self.languages()[..] {
            few if few.len() <= 8 => few.join(", "),
            many => format!("{} languages", many.len()),
        };
        format!("{names}: {} in attention, {} in the output.", name(attention), name(output))
    }

    fn headlines(&self) -> Vec<(String, String)> {
        let count = self.words.len();
        let share = |is_so: &dyn Fn(&Answered) -> bool| {
            let n = self.answers.iter().filter(|answer| is_so(answer)).count();
            format!("{:.1}%", 100.0 * n as f64 / count.max(1) as f64)
        };
        let one = |a: &Answered| a.beams.cover && a.beams.hypotheses.len() == 1;
        let line = |value: String, meaning: &str| (value, meaning.to_owned());
        vec![
            line(share(&|a| a.is_right), &format!("of {count} validation words right (beam of {BEAM})")),
            line(share(&one), "of them with one possible word"),
            line(share(&|a| a.beams.cover), "with a cover certificate: every possible word was seen"),
            line(share(&|a| a.beams.bound), "with a bound certificate: no word is more probable"),
        ]
    }

    fn sparsity(&self) -> page::Sparsity {
        let steps = || self.ways.iter().flatten();
        let nonzeros = |step: &Step| step.attention.iter().filter(|weight| **weight != 0.0).count();
        let positions: usize = steps().map(|step| step.attention.len()).sum();
        let covered = || self.answers.iter().filter(|answer| answer.beams.cover);
        page::Sparsity {
            attention: histogram(steps().map(nonzeros)),
            positions: positions as f64 / steps().count().max(1) as f64,
            output: histogram(steps().map(|step| step.next.len())),
            symbols: self.run.task.target.len(),
            hypotheses: histogram(covered().map(|answer| answer.beams.hypotheses.len())),
            uncounted: self.answers.len() - covered().count(),
        }
    }

    /// The first `count` of the words for which `rank` is high, taken from all languages in turn.
    fn choose<K: PartialOrd>(&self, count: usize, rank: impl Fn(usize) -> K) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.words.len()).collect();
        order.sort_by(|a, b| rank(*b).partial_cmp(&rank(*a)).unwrap_or(std::cmp::Ordering::Equal));
        let languages = self.languages();
        let mut taken = vec![0; languages.len()];
        let mut turns: Vec<(usize, usize, usize)> = Vec::new();
        for (place, word) in order.into_iter().enumerate() {
            let language = languages.iter().position(|name| *name == self.words[word].language).unwrap_or(0);
            turns.push((taken[language], place, word));
            taken[language] += 1;
        }
        turns.sort_unstable();
        turns.into_iter().take(count).map(|(_, _, word)| word).collect()
    }

    /// Right answers that change their lemma.
    fn maps(&self, count: usize) -> Decoded<Vec<page::AttentionMap>> {
        let rank = |i: usize| {
            let changes = self.words[i].form.as_deref() != Some(&self.words[i].lemma[..]);
            (self.answers[i].is_right, changes, self.pairs[i].source.len() <= 16)
        };
        let chosen: Vec<usize> =
            self.choose(count, rank).into_iter().filter(|i| self.answers[*i].best().is_some()).collect();
        let target = |i: usize| self.answers[i].best().map_or_else(Vec::new, |best| best.symbols.clone());
        let pairs: Vec<Pair> =
            chosen.iter().map(|i| Pair { source: self.pairs[*i].source.clone(), target: target(*i) }).collect();
        let ways = explain::led(&self.run.model, &pairs)?;
        let map = |(i, way): (usize, Vec<Step>)| page::AttentionMap {
            asked: asked(self.words[i]),
            answer: self.answers[i].word.clone(),
            positions: Task::positions(self.words[i]),
            tags: 1 + self.words[i].tags.len(),
            rows: way
                .into_iter()
                .map(|step| (self.shown(step.symbol).unwrap_or("end".into()), step.attention))
                .collect(),
        };
        Ok(chosen.into_iter().zip(ways).map(map).collect())
    }

    /// Where the model hesitates most between words that were all seen.
    fn trees(&self, count: usize) -> Decoded<Vec<page::Tree>> {
        let chosen = self.choose(count, |i| (self.answers[i].beams.cover, entropy(&self.answers[i].beams.hypotheses)));
        let sources: Vec<&[u32]> = chosen.iter().map(|i| &self.pairs[*i].source[..]).collect();
        let trees = explain::trees(&self.run.model, &sources, EXPANSIONS)?;
        Ok(chosen.into_iter().zip(trees).map(|(i, tree)| self.tree(i, &tree)).collect())
    }

    fn tree(&self, i: usize, tree: &explain::Tree) -> page::Tree {
        let nodes = tree.nodes.iter().enumerate().map(|(at, node)| page::Node {
            text: if at == 0 { String::new() } else { self.shown(node.symbol).unwrap_or_default() },
            probability: node.log_probability.exp(),
            children: node.children.clone(),
            kind: match node.kind {
                explain::Kind::Read => page::Kind::Inner,
                explain::Kind::Word => page::Kind::Word,
                explain::Kind::Open => page::Kind::Open,
            },
        });
        let words = tree.words().iter().map(|word| (self.run.task.text(&word.symbols), word.probability())).collect();
        let (asked, open, expansions) = (asked(self.words[i]), tree.open_mass(), tree.expansions);
        page::Tree { asked, nodes: nodes.collect(), words, open, expansions }
    }

    /// Ways with a few places where the model hesitates, wrong answers first.
    fn forced(&self, count: usize) -> Vec<page::Forced> {
        let branches = |i: usize| self.ways[i].iter().filter(|step| (2..=BEAM).contains(&step.next.len())).count();
        let way = |i: usize| page::Forced {
            asked: asked(self.words[i]),
            answer: self.answers[i].word.clone(),
            steps: self.ways[i].iter().map(|step| self.step(step)).collect(),
            probability: explain::log_probability(&self.ways[i]).exp(),
        };
        let is_clear = |i: usize| (1..=3).contains(&branches(i)) && self.ways[i].len() <= 14;
        let rank = |i: usize| (is_clear(i), branches(i), !self.answers[i].is_right);
        self.choose(count, rank).into_iter().map(way).collect()
    }

    fn step(&self, step: &Step) -> page::ForcedStep {
        let next = step.next.iter().map(|entry| (self.shown(entry.symbol), entry.probability)).collect();
        page::ForcedStep { right: self.shown(step.symbol), next }
    }

    /// Wrong answers, the surest first; among equals those that are further off.
    fn errors(&self) -> Vec<page::Mistake> {
        let wrong = (0..self.words.len()).filter(|i| !self.answers[*i].is_right);
        let mut errors: Vec<page::Mistake> = wrong.map(|i| self.mistake(i)).collect();
        errors.sort_by(|a, b| b.probability.total_cmp(&a.probability).then_with(|| b.distance.cmp(&a.distance)));
        errors.truncate(ERRORS);
        errors
    }

    fn mistake(&self, i: usize) -> page::Mistake {
        let (asked, answer) = (asked(self.words[i]), &self.answers[i]);
        page::Mistake {
            distance: strsim::levenshtein(&answer.word, &asked.form),
            asked,
            answer: answer.word.clone(),
            probability: answer.probability(),
            right_probability: explain::log_probability(&self.ways[i]).exp(),
            certificate: match (answer.beams.cover, answer.beams.bound) {
                (true, true) => "cover, bound",
                (true, false) => "cover",
                (false, true) => "bound",
                (false, false) => "none",
            },
        }
    }

    /// A symbol as text; nothing is the end.
    fn shown(&self, symbol: u32) -> Option<String> {
        (symbol != END).then(|| self.run.task.text(&[symbol]))
    }
}

fn asked(example: &Example) -> page::Asked {
    let Example { language, lemma, tags, form } = example.clone();
    page::Asked { language, lemma, tags, form: form.unwrap_or_default() }
}

fn epoch(record: &parsimax_models::inflection::EpochRecord) -> page::Epoch {
    page::Epoch {
        epoch: record.epoch,
        train_loss: record.train_loss,
        validation_loss: record.validation_loss,
        accuracy: record.accuracy,
        attention_nonzeros: record.attention_nonzeros,
        output_nonzeros: record.output_nonzeros,
    }
}

fn name(choice: &Choice) -> String {
    choice.alpha.map_or_else(|| choice.mapping.clone(), |alpha| format!("{} (α = {alpha})", choice.mapping))
}

fn settings_of(settings: &Settings, run: &Run) -> Vec<(String, String)> {
    let pair = |name: &str, value: String| (name.to_owned(), value);
    vec![
        pair("attention", name(&settings.attention)),
        pair("output", name(&settings.output)),
        pair("size", settings.size.to_string()),
        pair("layers", settings.layers.to_string()),
        pair("parameters", run.model.values().len().to_string()),
        pair("dropout", settings.dropout.to_string()),
        pair("batch", settings.batch.to_string()),
        pair("epochs", format!("{} of {}", run.history.len(), settings.epochs)),
        pair("rate at the start", settings.rate.to_string()),
        pair("clip", settings.clip.to_string()),
        pair("seed", settings.seed.to_string()),
        pair("validation words", run.validation.len().to_string()),
        pair("source symbols", run.task.source.len().to_string()),
        pair("target symbols", run.task.target.len().to_string()),
    ]
}

/// Entry `n` counts how often `n` came.
fn histogram(values: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut counts = Vec::new();
    for n in values {
        if counts.len() <= n {
            counts.resize(n + 1, 0);
        }
        counts[n] += 1;
    }
    counts
}

/// Of the probabilities of some words: how much the model hesitates between them.
fn entropy(words: &[Hypothesis]) -> f64 {
    words.iter().map(|word| -word.probability() * word.log_probability).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts() {
        assert_eq!(histogram([1, 3, 1].into_iter()), [0, 2, 0, 1]);
    }

    #[test]
    fn hesitation_is_largest_between_equals() {
        let words = |p: [f64; 2]| p.map(|p| Hypothesis { symbols: Vec::new(), log_probability: p.ln() });
        // ln 2 for two equals, by hand.
        assert!((entropy(&words([0.5, 0.5])) - std::f64::consts::LN_2).abs() < 1e-15);
        assert!(entropy(&words([0.9, 0.1])) < entropy(&words([0.6, 0.4])));
    }
}
