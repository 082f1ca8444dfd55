//! A sequence that is given.

use super::{Answer, Origin, Question, Search};

/// Reads a given sequence and keeps what the model said at each step: the state, with whatever the model remembers in
/// it, and all symbols that could have come next.
#[derive(Debug)]
pub struct Follow<'a, S> {
    symbols: &'a [u32],
    question: Option<Question<S>>,
    steps: Vec<Answer<S>>,
}

impl<'a, S: Clone> Follow<'a, S> {
    /// Along `symbols`; the last step is the one after them, where the sequence should end.
    #[must_use]
    pub fn new(symbols: &'a [u32], origin: Origin<S>) -> Self {
        Self { symbols, question: Some((origin.state, origin.begin)), steps: Vec::new() }
    }
}

impl<S: Clone> Search<S> for Follow<'_, S> {
    /// One answer more than there are symbols.
    type Outcome = Vec<Answer<S>>;

    fn ask(&mut self) -> Vec<Question<S>> {
        self.question.take().into_iter().collect()
    }

    fn tell(&mut self, answers: Vec<Answer<S>>) {
        for (state, next) in answers {
            if let Some(symbol) = self.symbols.get(self.steps.len()) {
                self.question = Some((state.clone(), *symbol));
            }
            self.steps.push((state, next));
        }
    }

    fn finish(self) -> Vec<Answer<S>> {
        self.steps
    }
}
