//! Exact search, enumeration and a beam with a certificate agree on a trained model, and an ensemble is what it says.

use parsimax_data::demo::demo;
use parsimax_data::inflection::{Example, Setting, Split, read};
use parsimax_models::inflection::{
    Certificate, Decoder, EpochRecord, Observer, Prediction, Predictor, Progress, Run, Settings, Trainer, Word,
    evaluate,
};
use parsimax_models::seq2seq::Choice;
use std::path::{Path, PathBuf};

struct Quiet;

impl Observer for Quiet {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

/// Small, and soon sure of itself.
fn settings() -> Settings {
    Settings { size: 32, batch: 16, epochs: 6, rate: 4e-3, ..Settings::default() }
}

fn trained(folder: &Path, settings: Settings, train: &[Example], validation: &[Example]) -> Run {
    Trainer::new(folder, settings, train, validation).expect("starts").run(&mut Quiet).expect("trains");
    Run::open(folder).expect("opens")
}

const EXPANSIONS: usize = 300;

/// Single precision: a product of matrices may round otherwise in another batch, in each of some dozen steps.
const ROUNDING: f64 = 1e-4;

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= ROUNDING * a.max(b)
}

/// The words that matter: those that rounding cannot make or unmake.
fn certain(prediction: &Prediction) -> Vec<&Word> {
    prediction.hypotheses.iter().filter(|word| word.probability > ROUNDING).collect()
}

/// The same best word, unless two are equally good.
fn assert_same_best(a: &Prediction, b: &Prediction, word: &str) {
    let (first, other) = (&a.hypotheses[0], &b.hypotheses[0]);
    assert!(is_near(first.probability, other.probability), "{word}: {first:?} {other:?}");
    let is_tie = a.hypotheses.get(1).is_some_and(|second| is_near(first.probability, second.probability));
    assert!(is_tie || first.form == other.form, "{word}: {first:?} {other:?}");
}

/// Compares on every word whose enumeration ends; returns how many these are.
fn compare(predictor: &Predictor, words: &[Example]) -> usize {
    let by = |decoder| predictor.predict(words, decoder).expect("decodes");
    let all = by(Decoder::All { expansions: EXPANSIONS });
    let exact = by(Decoder::Exact { expansions: EXPANSIONS });
    let (beam, wide) = (by(Decoder::Beam(5)), by(Decoder::Beam(50)));
    let is_complete = |p: &Prediction| matches!(p.certificate, Certificate::Search { complete: true, .. });
    let mut compared = 0;
    for (i, all) in all.iter().enumerate().filter(|(_, all)| is_complete(all)) {
        compared += 1;
        let word = &words[i].lemma;
        assert_same_best(all, &exact[i], word);
        assert!(matches!(exact[i].certificate, Certificate::Search { optimal: true, .. }), "{word}");
        let mass: f64 = all.hypotheses.iter().map(|h| h.probability).sum();
        assert!((mass - 1.0).abs() < ROUNDING, "{word}: {mass}");
        for beams in [&beam[i], &wide[i]] {
            match beams.certificate {
                Certificate::Beam { cover: true, bound } => {
                    assert!(bound, "{word}");
                    let same = |(a, b): (&&Word, &&Word)| is_near(a.probability, b.probability);
                    let (a, b) = (certain(all), certain(beams));
                    assert!(a.len() == b.len() && a.iter().zip(&b).all(same), "{word}: {a:?} {b:?}");
                    assert_same_best(all, beams, word);
                }
                Certificate::Beam { bound: true, .. } => assert_same_best(all, beams, word),
                _ => {
                    let best = all.hypotheses[0].probability * (1.0 + ROUNDING);
                    assert!(beams.hypotheses.first().is_none_or(|h| h.probability <= best), "{word}");
                }
            }
        }
    }
    compared
}

#[test]
fn decoders_agree_on_the_embedded_words() {
    let words = demo();
    let train: Vec<Example> = words.train.into_iter().filter(|e| e.language == "english").step_by(2).collect();
    let unseen = words.unseen.into_iter().map(|u| u.example).filter(|e| e.language == "english");
    let unseen: Vec<Example> = unseen.step_by(2).collect();
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let run = |which: usize| {
        let settings = Settings { output: Choice::of("sparsemax"), seed: which as u64, ..settings() };
        trained(folders[which].path(), settings, &train, &unseen)
    };
    let one = Predictor::new(vec![run(0)]).expect("a model");
    let compared = compare(&one, &unseen);
    assert!(compared * 10 > unseen.len(), "only {compared} of {} enumerations end", unseen.len());

    // Two models decide together, and otherwise than one.
    let two = Predictor::new(vec![Run::open(folders[0].path()).expect("opens"), run(1)]).expect("models");
    assert!(compare(&two, &unseen) > 0);
    let all = Decoder::All { expansions: EXPANSIONS };
    let few = &unseen[..20];
    let (alone, together) = (one.predict(few, all).expect("decodes"), two.predict(few, all).expect("decodes"));
    assert_ne!(alone, together);
    let judged = evaluate(&one, &unseen, 5).expect("judges");
    assert!(judged.one_hypothesis <= judged.cover_certificate && judged.cover_certificate <= judged.bound_certificate);
    assert!((1.0..30.0).contains(&judged.output_nonzeros) && (1.0..30.0).contains(&judged.attention_nonzeros));
}

#[test]
fn decoders_agree_on_real_words() {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let root = std::env::var_os("PARSIMAX_DATA").map_or(beside, PathBuf::from).join("conll2018");
    if !root.is_dir() {
        eprintln!("skipped: no conll2018 data; set PARSIMAX_DATA to the folder that holds it");
        return;
    }
    let english = ["english".to_owned()];
    let train = read(&root, &english, Split::Train(Setting::Medium)).expect("reads");
    let validation: Vec<Example> = read(&root, &english, Split::Dev).expect("reads").into_iter().step_by(10).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let predictor = Predictor::new(vec![trained(folder.path(), settings(), &train, &validation)]).expect("a model");
    let compared = compare(&predictor, &validation);
    assert!(compared > 0, "no enumeration ends");
}
