//! Words of one run, or of several that decide together.

use super::error::TrainError;
use super::run::Run;
use crate::decode::{
    Beam, Beams, BestFirst, DecodeError, Ensemble, Follow, Found, Hypothesis, Limits, Origin, Proof, Sample, Search,
    decode,
};
use crate::seq2seq::{Prefix, Translator};
use parsimax_data::buckets::epoch_seed;
use parsimax_data::inflection::Example;
use rayon::prelude::*;
use serde::Serialize;

/// Models that can be asked for words; the probabilities of several are averaged at each step.
#[derive(Debug)]
pub struct Predictor {
    runs: Vec<Run>,
}

/// How words are searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoder {
    /// The best of so many prefixes at a time; 1 is greedy.
    Beam(usize),
    /// The most probable word, proven; gives up after so many expansions.
    Exact {
        /// Prefixes that the model may read.
        expansions: usize,
    },
    /// All words of non-zero probability; gives up after so many expansions.
    All {
        /// Prefixes that the model may read.
        expansions: usize,
    },
    /// Random words.
    Sample {
        /// How many.
        count: usize,
        /// The same seed draws the same words.
        seed: u64,
    },
}

/// A word that a model may write.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Word {
    /// Its characters.
    pub form: String,
    /// Above 0.
    pub probability: f64,
}

/// What is known about the first word.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Certificate {
    /// Of a beam.
    Beam {
        /// Every word of non-zero probability was kept.
        cover: bool,
        /// No other word can be more probable.
        bound: bool,
    },
    /// Of a search that looks at the most probable prefix first.
    Search {
        /// No other word is more probable.
        optimal: bool,
        /// Every word of non-zero probability was found.
        complete: bool,
        /// By how much the logarithm of the probability might be beaten, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        gap: Option<f64>,
        /// Probability of what was not looked at.
        open_mass: f64,
        /// Prefixes that the model read.
        expansions: usize,
    },
    /// Of words drawn at random.
    None {},
}

/// What a model says of a lemma and its tags.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// Most probable first; drawn words in the order in which they were drawn. Empty if no word ended in time.
    pub hypotheses: Vec<Word>,
    /// What is known about the first of them.
    pub certificate: Certificate,
    /// The symbols of each word.
    #[serde(skip)]
    symbols: Vec<Vec<u32>>,
}

/// Steps along answers, and the non-zeros in them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NonZeros {
    pub(super) steps: usize,
    pub(super) output: usize,
    /// Attention has steps of its own: one of each member.
    pub(super) attention: (usize, usize),
}

/// Words that are decoded together.
const TOGETHER: usize = 100;

impl Predictor {
    /// Of runs that write the same characters.
    ///
    /// # Errors
    /// If there is no run, or two of them do not write the same characters.
    pub fn new(runs: Vec<Run>) -> Result<Self, TrainError> {
        let first = runs.first().ok_or(TrainError::NoData("there must be at least one run"))?;
        if let Some(other) = runs.iter().find(|run| run.task.target != first.task.target) {
            return Err(TrainError::Strangers(first.folder.clone(), other.folder.clone()));
        }
        Ok(Self { runs })
    }

    /// Its runs.
    #[must_use]
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Languages, tags and characters of an example that some model has never seen.
    #[must_use]
    pub fn unseen(&self, example: &Example) -> Vec<String> {
        let mut all = Vec::new();
        for name in self.runs.iter().flat_map(|run| run.task.unseen(example)) {
            if !all.contains(&name) {
                all.push(name);
            }
        }
        all
    }

    /// One prediction for each example, in their order; forms are not looked at. Examples are decoded in batches, and
    /// batches side by side.
    ///
    /// # Errors
    /// If the scores of a model are not finite.
    pub fn predict(&self, examples: &[Example], decoder: Decoder) -> Result<Vec<Prediction>, TrainError> {
        let parts: Result<Vec<_>, DecodeError> = examples
            .par_chunks(TOGETHER)
            .enumerate()
            .map(|(part, examples)| self.with_models(examples, |models| self.batch(models, examples, decoder, part)))
            .collect();
        Ok(parts?.into_iter().flatten().collect())
    }

    /// The non-zeros of each step along the first word of each prediction.
    pub(super) fn non_zeros(&self, examples: &[Example], predictions: &[Prediction]) -> Result<NonZeros, TrainError> {
        let parts: Result<Vec<NonZeros>, DecodeError> = examples
            .par_chunks(TOGETHER)
            .zip(predictions.par_chunks(TOGETHER))
            .map(|(examples, predictions)| {
                self.with_models(examples, |models| {
                    let none: &[u32] = &[];
                    let steps = decode(models, examples.len(), Limits::default(), |i, origin| {
                        Follow::new(predictions[i].symbols.first().map_or(none, |s| s), origin)
                    })?;
                    let steps = steps.into_iter().flatten();
                    let mut sum = NonZeros::default();
                    for (states, next) in steps {
                        sum.steps += 1;
                        sum.output += next.entries().len();
                        for state in &states {
                            sum.attention.0 += 1;
                            sum.attention.1 += state.attention().iter().filter(|w| **w != 0.0).count();
                        }
                    }
                    Ok(sum)
                })
            })
            .collect();
        Ok(parts?.into_iter().fold(NonZeros::default(), |a, b| NonZeros {
            steps: a.steps + b.steps,
            output: a.output + b.output,
            attention: (a.attention.0 + b.attention.0, a.attention.1 + b.attention.1),
        }))
    }

    /// Lets all models read the sources of some examples.
    fn with_models<T>(
        &self,
        examples: &[Example],
        work: impl FnOnce(&mut Ensemble<Translator<'_>>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let members = self.runs.iter().map(|run| {
            let sources: Vec<Vec<u32>> = examples.iter().map(|example| run.task.pair(example).source).collect();
            Translator::new(&run.model, &sources.iter().map(Vec::as_slice).collect::<Vec<_>>())
        });
        work(&mut Ensemble::new(members.collect())?)
    }

    fn batch(
        &self,
        models: &mut Ensemble<Translator<'_>>,
        examples: &[Example],
        decoder: Decoder,
        part: usize,
    ) -> Result<Vec<Prediction>, DecodeError> {
        let count = examples.len();
        match decoder {
            Decoder::Beam(width) => {
                let found = run(models, count, |_, origin| Beam::new(width, origin))?;
                let of = |Beams { hypotheses, cover, bound }: Beams| {
                    self.prediction(hypotheses, Certificate::Beam { cover, bound })
                };
                Ok(found.into_iter().map(of).collect())
            }
            Decoder::Exact { expansions } => {
                let found = run(models, count, |_, origin| BestFirst::new(1, expansions, origin))?;
                Ok(found.into_iter().map(|found| self.searched(found)).collect())
            }
            Decoder::All { expansions } => {
                let found = run(models, count, |_, origin| BestFirst::all(expansions, origin).at_once(8))?;
                Ok(found.into_iter().map(|found| self.searched(found)).collect())
            }
            Decoder::Sample { count: each, seed } => {
                let mut drawn = vec![Vec::new(); count];
                for draw in 0..each {
                    let found = run(models, count, |i, origin| {
                        let word = (part * TOGETHER + i) as u64;
                        Sample::new(epoch_seed(epoch_seed(seed, word), draw as u64), origin)
                    })?;
                    drawn.iter_mut().zip(found).for_each(|(drawn, found)| drawn.extend(found));
                }
                Ok(drawn.into_iter().map(|words| self.prediction(words, Certificate::None {})).collect())
            }
        }
    }

    fn searched(&self, found: Found) -> Prediction {
        let (optimal, gap) = match found.proof {
            Proof::Optimal => (true, None),
            Proof::GaveUp { gap } => (false, Some(gap).filter(|gap| gap.is_finite())),
        };
        let (complete, open_mass, expansions) = (found.is_complete(), found.open_mass, found.expansions);
        let certificate = Certificate::Search { optimal, complete, gap, open_mass, expansions };
        self.prediction(found.hypotheses, certificate)
    }

    fn prediction(&self, found: Vec<Hypothesis>, certificate: Certificate) -> Prediction {
        let task = &self.runs[0].task;
        let word = |h: &Hypothesis| Word { form: task.text(&h.symbols), probability: h.probability() };
        let hypotheses = found.iter().map(word).collect();
        Prediction { hypotheses, certificate, symbols: found.into_iter().map(|h| h.symbols).collect() }
    }
}

/// One search for each example.
fn run<Q: Search<Vec<Prefix>>>(
    models: &mut Ensemble<Translator<'_>>,
    count: usize,
    search: impl FnMut(usize, Origin<Vec<Prefix>>) -> Q,
) -> Result<Vec<Q::Outcome>, DecodeError> {
    decode(models, count, Limits::default(), search)
}

impl Prediction {
    /// All probability is on one word.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let is_complete = match self.certificate {
            Certificate::Beam { cover, .. } => cover,
            Certificate::Search { complete, .. } => complete,
            Certificate::None {} => false,
        };
        is_complete && self.hypotheses.len() == 1
    }
}
