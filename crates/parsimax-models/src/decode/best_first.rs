//! Exact search: always the most probable prefix first.

use super::{Answer, Hypothesis, Next, Origin, Question, Search};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// Finds the `count` most probable sequences, and proves it.
///
/// A prefix is at least as probable as everything that begins with it. So prefixes wait in a queue ordered by
/// probability, the best is extended, and once the best one that waits is less probable than the worst of `count`
/// finished sequences, nothing better can come. With `count` without limit the queue runs empty: the sequences are
/// then all that have non-zero probability.
///
/// The queue holds one place for each prefix that was read, which stands for all of its extensions not yet tried;
/// so memory grows with what was read, not with the vocabulary.
#[derive(Debug)]
pub struct BestFirst<S> {
    origin: Origin<S>,
    count: usize,
    budget: Budget,
    queue: BinaryHeap<Waiting<S>>,
    /// The prefixes whose answers are awaited; empty symbols for the start.
    asked: Vec<Prefix>,
    finished: Vec<Hypothesis>,
    expansions: usize,
    /// Probability and best score of prefixes that reached the length limit.
    cut: (f64, f64),
}

/// What an exact search may spend.
#[derive(Debug, Clone, Copy)]
struct Budget {
    expansions: usize,
    at_once: usize,
}

/// What an exact search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Sequences, most probable first.
    pub hypotheses: Vec<Hypothesis>,
    /// Whether these are the best.
    pub proof: Proof,
    /// Probability of everything that was not looked at: an upper bound on what any other sequence has.
    pub open_mass: f64,
    /// Prefixes that the model read.
    pub expansions: usize,
}

impl Found {
    /// Nothing of non-zero probability is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.open_mass == 0.0
    }
}

/// What is known about the answer of an exact search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Proof {
    /// No other sequence is more probable than those found.
    Optimal,
    /// The search ended before it could tell.
    GaveUp {
        /// By how much the logarithm of the probability of the first sequence might be beaten; infinite if none was
        /// found.
        gap: f64,
    },
}

#[derive(Debug, Clone)]
struct Prefix {
    symbols: Vec<u32>,
    score: f64,
}

/// A prefix that was read.
#[derive(Debug)]
struct Read<S> {
    prefix: Prefix,
    state: S,
    next: Next,
}

/// The extensions of a prefix from `entry` on.
#[derive(Debug)]
struct Waiting<S> {
    read: Rc<Read<S>>,
    entry: usize,
    score: f64,
}

impl<S> Waiting<S> {
    /// The first extension of `read` from `entry` on that does not end the sequence.
    fn from(read: Rc<Read<S>>, mut entry: usize, end: u32) -> Option<Self> {
        while read.next.entries().get(entry)?.symbol == end {
            entry += 1;
        }
        let score = read.prefix.score + read.next.entries()[entry].log_probability;
        Some(Self { read, entry, score })
    }

    fn symbol(&self) -> u32 {
        self.read.next.entries()[self.entry].symbol
    }

    /// The probability of all these extensions.
    fn mass(&self, end: u32) -> f64 {
        let rest = self.read.next.entries()[self.entry..].iter().filter(|e| e.symbol != end);
        self.read.prefix.score.exp() * rest.map(|e| e.probability).sum::<f64>()
    }
}

impl<S> Ord for Waiting<S> {
    fn cmp(&self, other: &Self) -> Ordering {
        // Among equals the longer prefix: it is nearer to its end. Then the one whose symbols come first.
        let (a, b) = (&self.read.prefix.symbols, &other.read.prefix.symbols);
        self.score
            .total_cmp(&other.score)
            .then_with(|| a.len().cmp(&b.len()))
            .then_with(|| (b, other.symbol()).cmp(&(a, self.symbol())))
    }
}

impl<S> PartialOrd for Waiting<S> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<S> PartialEq for Waiting<S> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<S> Eq for Waiting<S> {}

impl<S: Clone> BestFirst<S> {
    /// A search for the `count` most probable sequences that gives up after the model has read `expansions`
    /// prefixes.
    #[must_use]
    pub fn new(count: usize, expansions: usize, origin: Origin<S>) -> Self {
        Self {
            origin,
            count: count.max(1),
            budget: Budget { expansions, at_once: 1 },
            queue: BinaryHeap::new(),
            asked: Vec::new(),
            finished: Vec::new(),
            expansions: 0,
            cut: (0.0, f64::NEG_INFINITY),
        }
    }

    /// All sequences of non-zero probability, unless there are too many.
    #[must_use]
    pub fn all(expansions: usize, origin: Origin<S>) -> Self {
        Self::new(usize::MAX, expansions, origin)
    }

    /// Asks about the `n` best prefixes at once: fewer rounds, and perhaps some that were not needed.
    #[must_use]
    pub fn at_once(mut self, n: usize) -> Self {
        self.budget.at_once = n.max(1);
        self
    }

    /// The score of the last sequence that would be given out, once there are enough.
    fn goal(&self) -> f64 {
        if self.finished.len() < self.count {
            return f64::NEG_INFINITY;
        }
        self.finished[self.count - 1].log_probability
    }

    fn finished(&mut self, hypothesis: Hypothesis) {
        let at = self.finished.partition_point(|h| h.rank(&hypothesis).is_lt());
        self.finished.insert(at, hypothesis);
        self.finished.truncate(self.count);
    }

    fn take(&mut self) -> Option<Question<S>> {
        // Equals are looked at too: the order among them is then that of their symbols, as everywhere.
        let is_needed = self.queue.peek().is_some_and(|top| top.score >= self.goal());
        let best = if is_needed { self.queue.pop()? } else { return None };
        self.queue.extend(Waiting::from(best.read.clone(), best.entry + 1, self.origin.end));
        let mut symbols = best.read.prefix.symbols.clone();
        symbols.push(best.symbol());
        self.asked.push(Prefix { symbols, score: best.score });
        Some((best.read.state.clone(), best.symbol()))
    }

    /// Whether prefixes wait that could matter.
    fn is_open(&self) -> bool {
        self.queue.peek().is_some_and(|top| top.score >= self.goal())
    }
}

impl<S: Clone> Search<S> for BestFirst<S> {
    type Outcome = Found;

    fn ask(&mut self) -> Vec<Question<S>> {
        if self.expansions == 0 {
            self.asked = vec![Prefix { symbols: Vec::new(), score: 0.0 }];
            return vec![(self.origin.state.clone(), self.origin.begin)];
        }
        self.asked.clear();
        let room = self.budget.expansions.saturating_sub(self.expansions).min(self.budget.at_once);
        (0..room).map_while(|_| self.take()).collect()
    }

    fn tell(&mut self, answers: Vec<Answer<S>>) {
        self.expansions += answers.len();
        let asked = std::mem::take(&mut self.asked);
        for (prefix, (state, next)) in asked.into_iter().zip(answers) {
            if let Some(end) = next.entries().iter().find(|e| e.symbol == self.origin.end) {
                let log_probability = prefix.score + end.log_probability;
                self.finished(Hypothesis { symbols: prefix.symbols.clone(), log_probability });
            }
            let is_full = prefix.symbols.len() >= self.origin.max_length;
            let Some(waiting) = Waiting::from(Rc::new(Read { prefix, state, next }), 0, self.origin.end) else {
                continue;
            };
            if is_full {
                self.cut = (self.cut.0 + waiting.mass(self.origin.end), self.cut.1.max(waiting.score));
            } else {
                self.queue.push(waiting);
            }
        }
    }

    fn finish(self) -> Found {
        let first = self.finished.first().map_or(f64::NEG_INFINITY, |h| h.log_probability);
        let goal = self.goal();
        let best_open = self.queue.peek().map_or(f64::NEG_INFINITY, |top| top.score);
        let is_proven = !self.is_open() && self.cut.1 <= goal || best_open.max(self.cut.1) == f64::NEG_INFINITY;
        let proof = if is_proven && !self.finished.is_empty() {
            Proof::Optimal
        } else {
            Proof::GaveUp { gap: (best_open.max(self.cut.1) - first).max(0.0) }
        };
        let waiting: f64 = self.queue.iter().map(|w| w.mass(self.origin.end)).sum();
        Found { open_mass: waiting + self.cut.0, hypotheses: self.finished, proof, expansions: self.expansions }
    }
}
