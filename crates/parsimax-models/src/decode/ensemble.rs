//! Several models as one.

use super::{Answer, DecodeError, Next, Question, Scorer};

/// Averages the probabilities of its members at each step.
#[derive(Debug)]
pub struct Ensemble<M> {
    members: Vec<M>,
}

impl<M: Scorer> Ensemble<M> {
    /// Models over the same symbols.
    ///
    /// # Errors
    /// If there is no member, or two of them begin or end sequences by different symbols.
    pub fn new(members: Vec<M>) -> Result<Self, DecodeError> {
        let first = members.first().ok_or(DecodeError::Symbols("an ensemble needs at least one model"))?;
        let marks = (first.begin(), first.end());
        if members.iter().any(|m| (m.begin(), m.end()) != marks) {
            return Err(DecodeError::Symbols("the models of an ensemble mark begin and end by different symbols"));
        }
        Ok(Self { members })
    }

    /// The models.
    #[must_use]
    pub fn members(&self) -> &[M] {
        &self.members
    }
}

impl<M: Scorer> Scorer for Ensemble<M> {
    type State = Vec<M::State>;

    fn start(&mut self, input: usize) -> Result<Self::State, DecodeError> {
        self.members.iter_mut().map(|m| m.start(input)).collect()
    }

    fn begin(&self) -> u32 {
        self.members[0].begin()
    }

    fn end(&self) -> u32 {
        self.members[0].end()
    }

    fn advance(&mut self, questions: &[Question<Self::State>]) -> Result<Vec<Answer<Self::State>>, DecodeError> {
        let mut states = vec![Vec::with_capacity(self.members.len()); questions.len()];
        let mut sums: Vec<Vec<(u32, f64)>> = vec![Vec::new(); questions.len()];
        let share = 1.0 / self.members.len() as f64;
        for (i, member) in self.members.iter_mut().enumerate() {
            let own: Vec<_> = questions.iter().map(|(states, symbol)| (states[i].clone(), *symbol)).collect();
            let answers = member.advance(&own)?;
            if answers.len() != own.len() {
                return Err(DecodeError::Answers { expected: own.len(), got: answers.len() });
            }
            for (q, (state, next)) in answers.into_iter().enumerate() {
                states[q].push(state);
                sums[q].extend(next.entries().iter().map(|e| (e.symbol, e.probability * share)));
            }
        }
        states.into_iter().zip(sums).map(|(states, sum)| Ok((states, Next::new(merged(sum))?))).collect()
    }
}

/// Adds up what stands under the same symbol.
fn merged(mut terms: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    // A stable sort keeps the members in order, so that sums are the same in every run.
    terms.sort_by_key(|(symbol, _)| *symbol);
    terms.dedup_by(|next, kept| {
        let is_same = next.0 == kept.0;
        if is_same {
            kept.1 += next.1;
        }
        is_same
    });
    terms
}
