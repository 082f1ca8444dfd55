//! Beam search with two certificates of exactness.

use super::{Answer, Hypothesis, Next, Origin, Question, Search};

/// Keeps the `width` best sequences, finished or open, and extends the open ones together.
///
/// Whatever falls out leaves a trace: the score of the best sequence that was dropped. It tells in the end whether
/// the answer is the best of all ([`Beams::bound`]) and whether it is all there is ([`Beams::cover`]).
#[derive(Debug)]
pub struct Beam<S> {
    width: usize,
    origin: Origin<S>,
    open: Vec<Open<S>>,
    finished: Vec<Hypothesis>,
    dropped: f64,
    stop_when_sure: bool,
}

/// What a beam found.
#[derive(Debug, Clone, PartialEq)]
pub struct Beams {
    /// Finished sequences, most probable first, at most as many as the beam is wide.
    pub hypotheses: Vec<Hypothesis>,
    /// Every sequence of non-zero probability is among the hypotheses.
    pub cover: bool,
    /// The first hypothesis is at least as probable as every other sequence: as each prefix that was dropped or is
    /// still open, and so as everything that begins with it. Needs no sparsity.
    pub bound: bool,
}

/// A prefix; its last symbol was not read by the model yet.
#[derive(Debug, Clone)]
struct Open<S> {
    state: S,
    last: u32,
    symbols: Vec<u32>,
    score: f64,
}

/// A place in the next beam: a finished sequence of this one, or an extension.
#[derive(Clone, Copy)]
struct Candidate {
    score: f64,
    from: Source,
}

#[derive(Clone, Copy)]
enum Source {
    Finished(usize),
    Extension { parent: usize, symbol: u32 },
}

impl<S: Clone> Beam<S> {
    /// A beam of at least one sequence.
    #[must_use]
    pub fn new(width: usize, origin: Origin<S>) -> Self {
        let start = Open { state: origin.state.clone(), last: origin.begin, symbols: Vec::new(), score: 0.0 };
        Self {
            width: width.max(1),
            origin,
            open: vec![start],
            finished: Vec::new(),
            dropped: f64::NEG_INFINITY,
            stop_when_sure: false,
        }
    }

    /// Stops as soon as no open prefix can beat the best finished sequence. The best answer is the same and comes
    /// sooner; [`Beams::cover`] then holds only if nothing was open.
    #[must_use]
    pub fn stop_when_sure(mut self, yes: bool) -> Self {
        self.stop_when_sure = yes;
        self
    }

    fn best_finished(&self) -> f64 {
        self.finished.iter().map(|h| h.log_probability).fold(f64::NEG_INFINITY, f64::max)
    }

    fn best_open(&self) -> f64 {
        self.open.iter().map(|o| o.score).fold(f64::NEG_INFINITY, f64::max)
    }

    /// The extensions of a prefix that can enter the beam; the best of the others is remembered as dropped.
    fn extensions(&mut self, parent: usize, next: &Next, candidates: &mut Vec<Candidate>) {
        let Open { score, symbols, .. } = &self.open[parent];
        let is_full = symbols.len() >= self.origin.max_length;
        for (rank, entry) in next.entries().iter().enumerate() {
            let score = score + entry.log_probability;
            let may_stay = rank < self.width && (!is_full || entry.symbol == self.origin.end);
            if may_stay {
                candidates.push(Candidate { score, from: Source::Extension { parent, symbol: entry.symbol } });
            } else {
                self.dropped = self.dropped.max(score);
            }
            if rank >= self.width && !is_full {
                break;
            }
        }
    }
}

impl<S: Clone> Search<S> for Beam<S> {
    type Outcome = Beams;

    fn ask(&mut self) -> Vec<Question<S>> {
        if self.stop_when_sure && self.best_finished() >= self.best_open() {
            return Vec::new();
        }
        self.open.iter().map(|open| (open.state.clone(), open.last)).collect()
    }

    fn tell(&mut self, answers: Vec<Answer<S>>) {
        let mut candidates: Vec<Candidate> = (self.finished.iter().enumerate())
            .map(|(i, h)| Candidate { score: h.log_probability, from: Source::Finished(i) })
            .collect();
        for (parent, (_, next)) in answers.iter().enumerate() {
            self.extensions(parent, next, &mut candidates);
        }
        // A stable sort: among equals, what was finished earlier or stands earlier in the beam stays.
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score));
        if let Some(first_out) = candidates.get(self.width) {
            self.dropped = self.dropped.max(first_out.score);
        }
        candidates.truncate(self.width);
        let (mut open, mut finished) = (Vec::new(), Vec::new());
        for Candidate { score, from } in candidates {
            match from {
                Source::Finished(i) => finished.push(self.finished[i].clone()),
                Source::Extension { parent, symbol } => {
                    let mut symbols = self.open[parent].symbols.clone();
                    if symbol == self.origin.end {
                        finished.push(Hypothesis { symbols, log_probability: score });
                    } else {
                        symbols.push(symbol);
                        open.push(Open { state: answers[parent].0.clone(), last: symbol, symbols, score });
                    }
                }
            }
        }
        (self.open, self.finished) = (open, finished);
    }

    fn finish(mut self) -> Beams {
        self.finished.sort_by(Hypothesis::rank);
        let best = self.best_finished();
        let is_found = !self.finished.is_empty();
        let cover = is_found && self.open.is_empty() && self.dropped == f64::NEG_INFINITY;
        let bound = is_found && best >= self.dropped.max(self.best_open());
        Beams { hypotheses: self.finished, cover, bound }
    }
}
