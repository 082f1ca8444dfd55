//! How good words are, and how sure the models were of them.

use super::error::TrainError;
use super::predict::{Certificate, Decoder, Prediction, Predictor};
use parsimax_data::inflection::Example;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Instant;

/// What came out. Shares are percentages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Evaluation {
    /// Words that are right: the mean over languages.
    pub accuracy: f64,
    /// Words that are right, language by language.
    pub languages: BTreeMap<String, f64>,
    /// Mean distance of an answer from the word: over the words of a language, then over languages.
    pub levenshtein: f64,
    /// Words with all probability on one sequence.
    pub one_hypothesis: f64,
    /// Words whose beam kept every sequence of non-zero probability.
    pub cover_certificate: f64,
    /// Words whose answer is proven to be the most probable one.
    pub bound_certificate: f64,
    /// Mean number of source positions that a step along the answer attends to.
    pub attention_nonzeros: f64,
    /// Mean number of characters that could have come next in a step along the answer.
    pub output_nonzeros: f64,
    /// Of decoding, everything else aside.
    pub words_per_second: f64,
}

/// Decodes examples by a beam of some width and compares with their forms.
///
/// # Errors
/// If there is no example, one has no form, or the scores of a model are not finite.
pub fn evaluate(predictor: &Predictor, examples: &[Example], width: usize) -> Result<Evaluation, TrainError> {
    if examples.is_empty() || examples.iter().any(|example| example.form.is_none()) {
        return Err(TrainError::NoData("to be judged there must be words, each with its form"));
    }
    let started = Instant::now();
    let predictions = predictor.predict(examples, Decoder::Beam(width))?;
    let words_per_second = examples.len() as f64 / started.elapsed().as_secs_f64();
    let non_zeros = predictor.non_zeros(examples, &predictions)?;

    // Words, right ones, and the sum of distances of each language.
    let mut languages: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
    for (example, prediction) in examples.iter().zip(&predictions) {
        let form = example.form.as_deref().unwrap_or_default();
        let answer = prediction.hypotheses.first().map_or("", |word| &word.form);
        let entry = languages.entry(&example.language).or_default();
        entry.0 += 1.0;
        entry.1 += if answer == form { 1.0 } else { 0.0 };
        entry.2 += strsim::levenshtein(answer, form) as f64;
    }
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / languages.len() as f64;
    let share = |is_so: &dyn Fn(&Prediction) -> bool| {
        100.0 * predictions.iter().filter(|p| is_so(p)).count() as f64 / predictions.len() as f64
    };
    Ok(Evaluation {
        accuracy: mean(&mut languages.values().map(|(words, right, _)| 100.0 * right / words)),
        levenshtein: mean(&mut languages.values().map(|(words, _, distance)| distance / words)),
        languages: languages
            .iter()
            .map(|(name, (words, right, _))| ((*name).to_owned(), 100.0 * right / words))
            .collect(),
        one_hypothesis: share(&Prediction::is_certain),
        cover_certificate: share(&|p| matches!(p.certificate, Certificate::Beam { cover: true, .. })),
        bound_certificate: share(&|p| matches!(p.certificate, Certificate::Beam { bound: true, .. })),
        attention_nonzeros: non_zeros.attention.1 as f64 / non_zeros.attention.0 as f64,
        output_nonzeros: non_zeros.output as f64 / non_zeros.steps as f64,
        words_per_second,
    })
}
