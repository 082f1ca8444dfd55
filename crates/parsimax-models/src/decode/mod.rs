//! Decoding: from next-symbol distributions to whole sequences.
//!
//! A [`Scorer`] answers one question, many at a time: given a prefix and its next symbol, which symbols may
//! follow, and how probable is each? Only the symbols of non-zero probability are named, and the cost of a search
//! is proportional to them. A [`Search`] decides which prefixes to ask about; it never sees the model. [`decode`]
//! stands between the two: it runs one search for each input and puts the questions of all of them into common
//! batches.
//!
//! ```text
//! inputs ──▶ Search (one each) ──ask──▶ decode ──one batch──▶ Scorer
//!                  ▲                                            │
//!                  └──────────────── tell ◀─────────────────────┘
//! ```
//!
//! | search | finds | proof |
//! |---|---|---|
//! | [`Beam`] | good sequences, fast; width 1 is greedy | [`Beams::cover`], [`Beams::bound`] |
//! | [`BestFirst`] | the `n` most probable sequences, or all of them | [`Found::proof`] |
//! | [`Sample`] | a random sequence | none |
//! | [`Follow`] | nothing: it reads a given sequence | none |
//!
//! [`Ensemble`] is a scorer made of several: it averages their probabilities at each step.
//!
//! **Scores** are sums of logarithms in `f64`. Every logarithm is at most 0 and rounding is monotone, so a prefix
//! never scores lower than what it is extended to, in computed numbers as in exact ones: the bounds below hold to
//! the last bit of the scores that are reported.

mod beam;
mod best_first;
mod ensemble;
mod follow;
mod next;
mod sample;

pub use beam::{Beam, Beams};
pub use best_first::{BestFirst, Found, Proof};
pub use ensemble::Ensemble;
pub use follow::Follow;
pub use next::{Entry, Next};
pub use sample::Sample;

use std::cmp::Ordering;
use std::fmt;

/// A model, seen by a decoder.
pub trait Scorer {
    /// What the model must remember of a prefix; cheap to clone (a reference-counted row, say).
    type State: Clone;

    /// The state before the first symbol of an input.
    fn start(&mut self, input: usize) -> Result<Self::State, DecodeError>;

    /// The symbol that stands before the first one.
    fn begin(&self) -> u32;

    /// The symbol that ends a sequence.
    fn end(&self) -> u32;

    /// Reads one symbol on from each state: the new state, and what may follow. One answer for each question, in
    /// their order, and independent of which other questions are asked with it.
    fn advance(&mut self, questions: &[Question<Self::State>]) -> Result<Vec<Answer<Self::State>>, DecodeError>;
}

/// A state and the symbol to be read next.
pub type Question<S> = (S, u32);

/// The state after that symbol, and the symbols that may follow.
pub type Answer<S> = (S, Next);

/// A way to search: it asks about prefixes until it has none left.
pub trait Search<S> {
    /// What comes out.
    type Outcome;

    /// The questions of this round; none when the search is over.
    fn ask(&mut self) -> Vec<Question<S>>;

    /// The answers to the questions of the last [`ask`](Search::ask), in their order.
    fn tell(&mut self, answers: Vec<Answer<S>>);

    /// What was found.
    fn finish(self) -> Self::Outcome;
}

/// Where a search starts, and how far it may go.
#[derive(Debug, Clone)]
pub struct Origin<S> {
    /// The state before the first symbol.
    pub state: S,
    /// The symbol that stands before the first one.
    pub begin: u32,
    /// The symbol that ends a sequence.
    pub end: u32,
    /// Most symbols of a sequence, its end not counted.
    pub max_length: usize,
}

/// A finished sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// Its symbols, without the end.
    pub symbols: Vec<u32>,
    /// Logarithm of its probability.
    pub log_probability: f64,
}

impl Hypothesis {
    /// Its probability.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.log_probability.exp()
    }

    /// The more probable one first; among equals, the one whose symbols come first.
    fn rank(&self, other: &Self) -> Ordering {
        other.log_probability.total_cmp(&self.log_probability).then_with(|| self.symbols.cmp(&other.symbols))
    }
}

/// Why a search could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// The model gave something that is no probability.
    NotAProbability {
        /// The symbol.
        symbol: u32,
        /// What it got.
        value: f64,
    },
    /// The model gave a number of answers that is not the number of questions.
    Answers {
        /// Questions asked.
        expected: usize,
        /// Answers given.
        got: usize,
    },
    /// The members of an ensemble do not speak of the same symbols.
    Symbols(&'static str),
    /// The model failed.
    Model(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAProbability { symbol, value } => {
                write!(f, "decode: the model gave symbol {symbol} the probability {value}; expected 0 … 1")
            }
            Self::Answers { expected, got } => {
                write!(f, "decode: the model gave {got} answers; expected {expected}")
            }
            Self::Symbols(what) => write!(f, "decode: {what}"),
            Self::Model(error) => write!(f, "decode: {error}"),
        }
    }
}

impl std::error::Error for DecodeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model(error) => Some(error.as_ref()),
            _ => None,
        }
    }
}

/// How much is asked at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most symbols of a sequence, its end not counted.
    pub max_length: usize,
    /// Most questions in one batch.
    pub batch: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_length: 100, batch: 512 }
    }
}

/// Runs one search for each of `inputs` inputs, their questions in common batches.
///
/// `search` makes the search of an input from where it starts.
pub fn decode<M: Scorer, Q: Search<M::State>>(
    model: &mut M,
    inputs: usize,
    limits: Limits,
    mut search: impl FnMut(usize, Origin<M::State>) -> Q,
) -> Result<Vec<Q::Outcome>, DecodeError> {
    let (begin, end, max_length) = (model.begin(), model.end(), limits.max_length);
    let mut searches = Vec::with_capacity(inputs);
    for input in 0..inputs {
        let state = model.start(input)?;
        searches.push(search(input, Origin { state, begin, end, max_length }));
    }
    let mut active: Vec<usize> = (0..inputs).collect();
    while !active.is_empty() {
        let mut questions = Vec::new();
        let mut asked = Vec::new();
        active.retain(|&i| {
            let own = searches[i].ask();
            let is_active = !own.is_empty();
            if is_active {
                asked.push((i, own.len()));
                questions.extend(own);
            }
            is_active
        });
        let mut answers = Vec::with_capacity(questions.len());
        for batch in questions.chunks(limits.batch.max(1)) {
            let part = model.advance(batch)?;
            if part.len() != batch.len() {
                return Err(DecodeError::Answers { expected: batch.len(), got: part.len() });
            }
            answers.extend(part);
        }
        let mut answers = answers.into_iter();
        for (i, count) in asked {
            searches[i].tell(answers.by_ref().take(count).collect());
        }
    }
    Ok(searches.into_iter().map(Search::finish).collect())
}
