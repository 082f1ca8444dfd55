//! `parsimax predict` with runs.

use std::io::{self, BufRead, Write};

use parsimax_data::inflection::Example;
use parsimax_models::inflection::{Certificate, Decoder, Prediction, Predictor};
use serde::Serialize;

use super::eval::BEAM;
use super::predictor;
use crate::model::args::{DecoderArg, PredictConfig, Prediction as Style, WordArgs};
use crate::progress::on_threads;
use crate::{Failure, Result};

/// Inflects a word, or the words of standard input.
pub(crate) fn predict(config: &PredictConfig) -> Result<()> {
    if config.data.is_some() || config.format.is_some() || config.style == Style::Probabilities {
        let what =
            "--data, --format and --proba do not apply to runs: give --lemma and --tags, or lines on standard input";
        return Err(Failure::new(what));
    }
    let decoder = decoder(&config.word)?;
    let predictor = predictor(&config.models)?;
    let examples = examples(&config.word, &predictor)?;
    warn(&predictor, &examples);
    let predictions = on_threads(config.threads, || predictor.predict(&examples, decoder))??;
    config.sink.write(|out| {
        for (i, (example, prediction)) in examples.iter().zip(&predictions).enumerate() {
            match config.style {
                Style::Json => json(out, example, prediction)?,
                _ => {
                    if i > 0 {
                        writeln!(out)?;
                    }
                    text(out, example, prediction)?;
                }
            }
        }
        Ok(())
    })
}

/// The search; an option of another one is a mistake.
fn decoder(word: &WordArgs) -> Result<Decoder> {
    let decoder = word.decoder.unwrap_or(DecoderArg::Beam);
    let is_search = matches!(decoder, DecoderArg::Exact | DecoderArg::All);
    let misplaced = [
        ("--beam", word.beam.is_some(), decoder == DecoderArg::Beam, "beam"),
        ("--expansions", word.expansions.is_some(), is_search, "exact and all"),
        ("--samples", word.samples.is_some(), decoder == DecoderArg::Sample, "sample"),
        ("--seed", word.seed.is_some(), decoder == DecoderArg::Sample, "sample"),
    ];
    if let Some((flag, _, _, of)) = misplaced.iter().find(|(_, is_given, applies, _)| *is_given && !applies) {
        return Err(Failure::new(format!("{flag} applies to --decoder {of} only")));
    }
    let positive = |flag: &str, value: Option<usize>, default: usize| match value {
        Some(0) => Err(Failure::new(format!("{flag} must be at least 1"))),
        value => Ok(value.unwrap_or(default)),
    };
    let expansions = positive("--expansions", word.expansions, 10_000)?;
    Ok(match decoder {
        DecoderArg::Beam => Decoder::Beam(positive("--beam", word.beam, BEAM)?),
        DecoderArg::Greedy => Decoder::Beam(1),
        DecoderArg::Exact => Decoder::Exact { expansions },
        DecoderArg::All => Decoder::All { expansions },
        DecoderArg::Sample => {
            Decoder::Sample { count: positive("--samples", word.samples, 5)?, seed: word.seed.unwrap_or(1) }
        }
    })
}

/// The words that are asked for.
fn examples(word: &WordArgs, predictor: &Predictor) -> Result<Vec<Example>> {
    let known = predictor.runs()[0].task.languages();
    let language = match (&word.language, known.as_slice()) {
        (Some(language), _) => Some(language.as_str()),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    if let (Some(lemma), Some(tags)) = (&word.lemma, &word.tags) {
        let which = || Failure::new(format!("--language is missing; the run knows {}", known.join(", ")));
        return Ok(vec![example(language.ok_or_else(which)?, lemma, tags).map_err(Failure::new)?]);
    }
    let mut examples = Vec::new();
    for (number, line) in io::stdin().lock().split(b'\n').enumerate() {
        let line = line.map_err(|error| Failure::io("standard input", &error))?;
        if let Some(read) = of_line(&line, language).transpose() {
            let place = |what: String| Failure::new(format!("standard input: line {}: {what}", number + 1));
            examples.push(read.map_err(place)?);
        }
    }
    Ok(examples)
}

/// A line of words; nothing if it is blank.
fn of_line(line: &[u8], language: Option<&str>) -> std::result::Result<Option<Example>, String> {
    let line = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.trim().is_empty() {
        return Ok(None);
    }
    match (line.split('\t').collect::<Vec<_>>().as_slice(), language) {
        ([lemma, tags], Some(language)) => example(language, lemma, tags).map(Some),
        ([language, lemma, tags], _) => example(language, lemma, tags).map(Some),
        ([_, _], None) => Err("no language: give --language, or language, lemma and tags, separated by tabs".into()),
        (fields, _) => Err(format!("expected lemma and tags, separated by a tab; got {} fields", fields.len())),
    }
}

fn example(language: &str, lemma: &str, tags: &str) -> std::result::Result<Example, String> {
    for (name, field) in [("language", language), ("lemma", lemma), ("tag list", tags)] {
        if field.trim().is_empty() {
            return Err(format!("the {name} is empty"));
        }
    }
    let tags = tags.split(';').map(|tag| tag.trim().to_owned()).collect();
    Ok(Example { language: language.to_owned(), lemma: lemma.to_owned(), tags, form: None })
}

/// Warnings that are printed one by one.
const WARNINGS: usize = 10;

/// What a model has never seen it cannot know; the answer may still be right.
fn warn(predictor: &Predictor, examples: &[Example]) {
    let mut err = io::stderr().lock();
    let strange = examples.iter().map(|e| (e, predictor.unseen(e))).filter(|(_, unseen)| !unseen.is_empty());
    let strange: Vec<_> = strange.collect();
    // Nobody may read these; the answer comes all the same.
    for (example, unseen) in strange.iter().take(WARNINGS) {
        let what = unseen.join(", ");
        let is_foreign = what.starts_with("language");
        let known = predictor.runs()[0].task.languages().join(", ");
        let known = if is_foreign { format!(" (it knows {known})") } else { String::new() };
        let _ = writeln!(err, "parsimax: warning: {}: the model has never seen {what}{known}", example.lemma);
    }
    if strange.len() > WARNINGS {
        let _ = writeln!(err, "parsimax: warning: and so for {} words more", strange.len() - WARNINGS);
    }
}

#[derive(Serialize)]
struct Line<'a> {
    language: &'a str,
    lemma: &'a str,
    tags: String,
    #[serde(flatten)]
    prediction: &'a Prediction,
}

fn json(out: &mut dyn Write, example: &Example, prediction: &Prediction) -> io::Result<()> {
    let Example { language, lemma, tags, .. } = example;
    let line = Line { language, lemma, tags: tags.join(";"), prediction };
    writeln!(out, "{}", serde_json::to_string(&line)?)
}

fn text(out: &mut dyn Write, example: &Example, prediction: &Prediction) -> io::Result<()> {
    writeln!(out, "{} {} ({})", example.lemma, example.tags.join(";"), example.language)?;
    let width = prediction.hypotheses.iter().map(|word| word.form.chars().count()).max().unwrap_or(0);
    for word in &prediction.hypotheses {
        writeln!(out, "  {:<width$}  {}", word.form, probability(word.probability))?;
    }
    if prediction.hypotheses.is_empty() {
        writeln!(out, "  no word")?;
    }
    match certificate(prediction) {
        Some(line) => writeln!(out, "  {line}"),
        None => Ok(()),
    }
}

/// With digits where they matter; 1 only if it is 1.
pub(crate) fn probability(p: f64) -> String {
    match p {
        1.0.. => "1".into(),
        0.9999.. => format!("1 − {:.1e}", 1.0 - p),
        0.001.. => format!("{p:.4}"),
        _ => format!("{p:.1e}"),
    }
}

/// What is known about the first word, as a sentence.
pub(crate) fn certificate(prediction: &Prediction) -> Option<String> {
    let count = prediction.hypotheses.len();
    let all = match count {
        1 => "all probability is on this word".to_owned(),
        n => format!("these {n} are all words of non-zero probability"),
    };
    let sentence = match prediction.certificate {
        _ if count == 0 => return None,
        Certificate::Beam { cover: true, .. } => format!("certified (cover): {all}"),
        Certificate::Beam { bound: true, .. } => "certified (bound): no other word can be more probable".into(),
        Certificate::Beam { .. } => "no certificate: a better word may have been dropped".into(),
        Certificate::Search { complete: true, expansions, .. } => {
            format!("proven after {expansions} prefixes: {all}")
        }
        Certificate::Search { optimal: true, expansions, .. } => {
            format!("proven after {expansions} prefixes: no word is more probable")
        }
        Certificate::Search { gap, open_mass, expansions, .. } => {
            let gap = gap.map_or(String::new(), |gap| format!(" with a gap of {gap:.4} in the logarithm"));
            format!(
                "gave up after {expansions} prefixes{gap}; {} of the probability was not looked at",
                probability(open_mass)
            )
        }
        Certificate::None {} => return None,
    };
    Some(sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probability_is_one_only_if_it_is() {
        assert_eq!([1.0, 0.999_998, 0.5, 0.000_012].map(probability), ["1", "1 − 2.0e-6", "0.5000", "1.2e-5"]);
    }

    #[test]
    fn lines_have_two_fields_or_three() {
        let of =
            |line: &str, language| of_line(line.as_bytes(), language).map(|e| e.map(|e| (e.language, e.tags.len())));
        assert_eq!(of("draw\tV;PST\r", Some("x")), Ok(Some(("x".into(), 2))));
        assert_eq!(of("y\tdraw\tV", Some("x")), Ok(Some(("y".into(), 1))));
        assert_eq!(of("  ", None), Ok(None));
        assert!(of("draw\tV", None).is_err_and(|e| e.contains("--language")));
        assert!(of("draw", Some("x")).is_err_and(|e| e.contains("got 1 fields")));
        assert!(of("\tV", Some("x")).is_err_and(|e| e.contains("lemma is empty")));
    }
}
