//! Sequences at random.

use super::{Answer, Hypothesis, Origin, Question, Search};

/// Draws one sequence from the model's distribution.
#[derive(Debug)]
pub struct Sample<S> {
    origin: Origin<S>,
    random: fastrand::Rng,
    question: Option<Question<S>>,
    symbols: Vec<u32>,
    score: f64,
    is_finished: bool,
}

impl<S: Clone> Sample<S> {
    /// The same seed draws the same sequence.
    #[must_use]
    pub fn new(seed: u64, origin: Origin<S>) -> Self {
        let question = Some((origin.state.clone(), origin.begin));
        let random = fastrand::Rng::with_seed(seed);
        Self { origin, random, question, symbols: Vec::new(), score: 0.0, is_finished: false }
    }
}

impl<S: Clone> Search<S> for Sample<S> {
    /// Nothing if the length limit came before the end.
    type Outcome = Option<Hypothesis>;

    fn ask(&mut self) -> Vec<Question<S>> {
        self.question.take().into_iter().collect()
    }

    fn tell(&mut self, answers: Vec<Answer<S>>) {
        for (state, next) in answers {
            let total: f64 = next.entries().iter().map(|e| e.probability).sum();
            let mut left = self.random.f64() * total;
            let drawn = next.entries().iter().find(|e| {
                left -= e.probability;
                left < 0.0
            });
            // Rounding may leave a crumb behind the last entry.
            let Some(entry) = drawn.or(next.entries().last()) else { return };
            self.score += entry.log_probability;
            if entry.symbol == self.origin.end {
                self.is_finished = true;
            } else if self.symbols.len() < self.origin.max_length {
                self.symbols.push(entry.symbol);
                self.question = Some((state, entry.symbol));
            }
        }
    }

    fn finish(self) -> Option<Hypothesis> {
        self.is_finished.then_some(Hypothesis { symbols: self.symbols, log_probability: self.score })
    }
}
