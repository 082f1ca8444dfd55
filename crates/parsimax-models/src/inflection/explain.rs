//! A model, looked at closely: where it attends, which words it holds possible, where it is unsure.
//!
//! | function | shows | as in Peters, Niculae & Martins (2019) |
//! |---|---|---|
//! | [`survey`] | the answer to each word, with its certificates | Table 1 and the text below it |
//! | [`trees`] | all words of non-zero probability, as a tree of their beginnings | Figure 1 |
//! | [`led`] | attention, and the alternatives at each step on the way to a given word | Figures 2 and 5 |

use super::task::Task;
use crate::decode::{
    Answer, Beam, Beams, DecodeError, Entry, Follow, Hypothesis, Limits, Origin, Question, Search, decode,
};
use crate::seq2seq::{Pair, Prefix, Seq2Seq, Translator};
use parsimax_data::inflection::Example;
use parsimax_data::vocabulary::END;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Words that are decoded together.
const BATCH: usize = 256;

/// The answer to a word.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The finished sequences of the beam, most probable first.
    pub beams: Beams,
    /// The first of them as text; empty if none was finished.
    pub word: String,
    /// Whether it is the form that was asked for.
    pub is_right: bool,
}

impl Answered {
    /// The most probable word.
    #[must_use]
    pub fn best(&self) -> Option<&Hypothesis> {
        self.beams.hypotheses.first()
    }

    /// Its probability; 0 if there is none.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.best().map_or(0.0, Hypothesis::probability)
    }
}

/// Decodes words by a beam.
///
/// # Errors
/// If the model's scores are not finite.
pub fn survey(model: &Seq2Seq, task: &Task, words: &[&Example], width: usize) -> Result<Vec<Answered>, DecodeError> {
    let mut answers = Vec::with_capacity(words.len());
    for part in words.chunks(BATCH) {
        let pairs: Vec<Pair> = part.iter().map(|example| task.pair(example)).collect();
        let sources: Vec<&[u32]> = pairs.iter().map(|pair| &pair.source[..]).collect();
        let mut translator = Translator::new(model, &sources);
        let found = decode(&mut translator, part.len(), Limits::default(), |_, origin| Beam::new(width, origin))?;
        answers.extend(found.into_iter().zip(part).map(|(beams, example)| {
            let best = beams.hypotheses.first();
            let word = best.map_or_else(String::new, |best| task.text(&best.symbols));
            let is_right = best.is_some() && example.form.as_ref() == Some(&word);
            Answered { beams, word, is_right }
        }));
    }
    Ok(answers)
}

/// A step of a decoding that is led along known symbols.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The symbol that the way takes; the end at last.
    pub symbol: u32,
    /// Its probability; exactly 0 where the model rules it out.
    pub probability: f64,
    /// Weights of the source positions; they sum to 1.
    pub attention: Vec<f32>,
    /// All symbols that may come next, most probable first.
    pub next: Vec<Entry>,
}

/// The steps to given targets, one way for each source; the last step of a way is the end.
///
/// # Errors
/// If the model's scores are not finite.
pub fn led(model: &Seq2Seq, pairs: &[Pair]) -> Result<Vec<Vec<Step>>, DecodeError> {
    let mut ways = Vec::with_capacity(pairs.len());
    for part in pairs.chunks(BATCH) {
        let sources: Vec<&[u32]> = part.iter().map(|pair| &pair.source[..]).collect();
        let mut translator = Translator::new(model, &sources);
        let steps =
            decode(&mut translator, part.len(), Limits::default(), |i, origin| Follow::new(&part[i].target, origin))?;
        ways.extend(steps.into_iter().zip(part).map(|(steps, pair)| way(steps, &pair.target)));
    }
    Ok(ways)
}

/// The logarithm of the probability of a way: minus infinity if a step of it is ruled out.
#[must_use]
pub fn log_probability(way: &[Step]) -> f64 {
    way.iter().map(|step| step.probability.ln()).sum()
}

/// What the model said along a target, and what the target says.
fn way(said: Vec<Answer<Prefix>>, target: &[u32]) -> Vec<Step> {
    let symbols = target.iter().copied().chain([END]);
    let step = |((state, next), symbol): (Answer<Prefix>, u32)| {
        let next = next.entries().to_vec();
        let probability = next.iter().find(|entry| entry.symbol == symbol).map_or(0.0, |entry| entry.probability);
        Step { symbol, probability, attention: state.attention().to_vec(), next }
    };
    said.into_iter().zip(symbols).map(step).collect()
}

/// All words of non-zero probability that were found, as a tree of their beginnings.
#[derive(Debug, Clone, PartialEq)]
pub struct Tree {
    /// The root first; a node comes after its parent.
    pub nodes: Vec<Node>,
    /// Beginnings that the model read.
    pub expansions: usize,
}

/// A beginning, or a whole word if its last symbol is the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The node it goes on from; none for the root.
    pub parent: Option<usize>,
    /// Its last symbol; of no meaning for the root.
    pub symbol: u32,
    /// Probability of that symbol after the parent.
    pub probability: f64,
    /// Logarithm of the probability of the whole beginning.
    pub log_probability: f64,
    /// What it goes on to, most probable first.
    pub children: Vec<usize>,
    /// What kind of node it is.
    pub kind: Kind,
}

/// What is known about a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The model was asked how it goes on.
    Read,
    /// A whole word.
    Word,
    /// It could go on, but the search gave up before it was asked how.
    Open,
}

impl Tree {
    /// Nothing of non-zero probability is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.nodes.iter().all(|node| node.kind != Kind::Open)
    }

    /// The whole words, most probable first.
    #[must_use]
    pub fn words(&self) -> Vec<Hypothesis> {
        let words = self.nodes.iter().enumerate().filter(|(_, node)| node.kind == Kind::Word);
        let mut words: Vec<Hypothesis> = words
            .map(|(at, node)| Hypothesis { symbols: self.symbols(at), log_probability: node.log_probability })
            .collect();
        let by_score = |a: &Hypothesis, b: &Hypothesis| b.log_probability.total_cmp(&a.log_probability);
        words.sort_by(|a, b| by_score(a, b).then_with(|| a.symbols.cmp(&b.symbols)));
        words
    }

    /// Probability of all that begins with an open node: what the words lack to 1, up to rounding.
    #[must_use]
    pub fn open_mass(&self) -> f64 {
        self.nodes.iter().filter(|node| node.kind == Kind::Open).map(|node| node.log_probability.exp()).sum()
    }

    /// The symbols from the root to a node, without the end.
    fn symbols(&self, mut at: usize) -> Vec<u32> {
        let mut symbols = Vec::new();
        while let Some(parent) = self.nodes[at].parent {
            if self.nodes[at].kind != Kind::Word {
                symbols.push(self.nodes[at].symbol);
            }
            at = parent;
        }
        symbols.reverse();
        symbols
    }
}

/// The trees of some sources. A search that has read `expansions` beginnings gives up and says what is left open.
///
/// # Errors
/// If the model's scores are not finite.
pub fn trees(model: &Seq2Seq, sources: &[&[u32]], expansions: usize) -> Result<Vec<Tree>, DecodeError> {
    let mut found = Vec::with_capacity(sources.len());
    for part in sources.chunks(BATCH) {
        let mut translator = Translator::new(model, part);
        found
            .extend(decode(&mut translator, part.len(), Limits::default(), |_, origin| Grow::new(expansions, origin))?);
    }
    Ok(found)
}

/// Reads the most probable open beginning first.
struct Grow<S> {
    origin: Origin<S>,
    budget: usize,
    tree: Tree,
    /// The state before the last symbol of an open node.
    states: Vec<Option<S>>,
    open: BinaryHeap<Open>,
    asked: Vec<usize>,
}

/// A node that can be read, ordered by its probability.
struct Open {
    score: f64,
    node: usize,
}

impl Ord for Open {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.node.cmp(&self.node))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}

/// Beginnings that are read in one round.
const AT_ONCE: usize = 8;

impl<S: Clone> Grow<S> {
    fn new(budget: usize, origin: Origin<S>) -> Self {
        let root = Node {
            parent: None,
            symbol: origin.begin,
            probability: 1.0,
            log_probability: 0.0,
            children: Vec::new(),
            kind: Kind::Open,
        };
        let (states, open) = (vec![Some(origin.state.clone())], BinaryHeap::from([Open { score: 0.0, node: 0 }]));
        Self { origin, budget, tree: Tree { nodes: vec![root], expansions: 0 }, states, open, asked: Vec::new() }
    }

    fn depth(&self, mut at: usize) -> usize {
        let mut depth = 0;
        while let Some(parent) = self.tree.nodes[at].parent {
            (depth, at) = (depth + 1, parent);
        }
        depth
    }

    fn add(&mut self, parent: usize, entry: &Entry, state: &S) {
        let is_word = entry.symbol == self.origin.end;
        let node = self.tree.nodes.len();
        let log_probability = self.tree.nodes[parent].log_probability + entry.log_probability;
        self.tree.nodes.push(Node {
            parent: Some(parent),
            symbol: entry.symbol,
            probability: entry.probability,
            log_probability,
            children: Vec::new(),
            kind: if is_word { Kind::Word } else { Kind::Open },
        });
        self.tree.nodes[parent].children.push(node);
        self.states.push((!is_word).then(|| state.clone()));
        // What is too long is never read, and stays open.
        if !is_word && self.depth(node) <= self.origin.max_length {
            self.open.push(Open { score: log_probability, node });
        }
    }
}

impl<S: Clone> Search<S> for Grow<S> {
    type Outcome = Tree;

    fn ask(&mut self) -> Vec<Question<S>> {
        let room = self.budget.saturating_sub(self.tree.expansions).min(AT_ONCE);
        self.asked = (0..room).map_while(|_| self.open.pop().map(|open| open.node)).collect();
        let question = |node: &usize| Some((self.states[*node].clone()?, self.tree.nodes[*node].symbol));
        self.asked.iter().filter_map(question).collect()
    }

    fn tell(&mut self, answers: Vec<Answer<S>>) {
        self.tree.expansions += answers.len();
        for (node, (state, next)) in std::mem::take(&mut self.asked).into_iter().zip(answers) {
            self.tree.nodes[node].kind = Kind::Read;
            self.states[node] = None;
            for entry in next.entries() {
                self.add(node, entry, &state);
            }
        }
    }

    fn finish(self) -> Tree {
        self.tree
    }
}
