//! Exact search, enumeration and a beam with a certificate agree on a trained model, and an ensemble is what it says.

use parsimax_data::demo::demo;
use parsimax_data::inflection::{Example, Setting, Split, read};
use parsimax_models::inflection::{
    Certificate, Decoder, EpochRecord, Observer, Prediction, Predictor, Progress, Run, Settings, Trainer, evaluate,
};
use std::path::{Path, PathBuf};

struct Quiet;

impl Observer for Quiet {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

fn trained(folder: &Path, settings: Settings, train: &[Example], validation: &[Example]) -> Run {
    Trainer::new(folder, settings, train, validation).expect("starts").run(&mut Quiet).expect("trains");
    Run::open(folder).expect("opens")
}

const EXPANSIONS: usize = 3000;

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
        // Every decoder adds the same logarithms in the same order: nothing may differ, not even the last bit.
        let best = &all.hypotheses[0];
        assert_eq!(best, &exact[i].hypotheses[0], "{word}");
        assert!(matches!(exact[i].certificate, Certificate::Search { optimal: true, .. }), "{word}");
        let mass: f64 = all.hypotheses.iter().map(|h| h.probability).sum();
        // Single precision: each of some dozen steps may miss 1 by some units of 1e-7.
        assert!((mass - 1.0).abs() < 1e-4, "{word}: {mass}");
        for beams in [&beam[i], &wide[i]] {
            match beams.certificate {
                Certificate::Beam { cover: true, bound } => {
                    assert!(bound, "{word}");
                    assert_eq!(beams.hypotheses, all.hypotheses, "{word}");
                }
                // Among words of the same probability a beam may name another one.
                Certificate::Beam { bound: true, .. } => {
                    assert_eq!(beams.hypotheses[0].probability, best.probability, "{word}");
                }
                _ => assert!(beams.hypotheses.first().is_none_or(|h| h.probability <= best.probability), "{word}"),
            }
        }
    }
    compared
}

#[test]
fn decoders_agree_on_the_embedded_words() {
    let words = demo();
    let train: Vec<Example> = words.train.into_iter().step_by(3).collect();
    let unseen: Vec<Example> = words.unseen.into_iter().map(|u| u.example).step_by(4).collect();
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let run = |which: usize| {
        let settings =
            Settings { size: 32, batch: 16, epochs: 6, rate: 4e-3, seed: which as u64, ..Settings::default() };
        trained(folders[which].path(), settings, &train, &unseen)
    };
    let one = Predictor::new(vec![run(0)]).expect("a model");
    let compared = compare(&one, &unseen);
    assert!(compared * 4 > unseen.len(), "only {compared} of {} enumerations end", unseen.len());

    // The same model twice is the model; with another one, every word of the average has some of its probability.
    let twice = Predictor::new(vec![Run::open(folders[0].path()).expect("opens"), run(1)]).expect("models");
    assert!(compare(&twice, &unseen) > 0);
    let all = Decoder::All { expansions: EXPANSIONS };
    let few = &unseen[..20];
    let (alone, together) = (one.predict(few, all).expect("decodes"), twice.predict(few, all).expect("decodes"));
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
    let settings = Settings { size: 32, batch: 16, epochs: 6, rate: 4e-3, ..Settings::default() };
    let predictor = Predictor::new(vec![trained(folder.path(), settings, &train, &validation)]).expect("a model");
    let compared = compare(&predictor, &validation);
    assert!(compared > 0, "no enumeration ends");
}
