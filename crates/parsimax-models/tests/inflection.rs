//! A run that is taken up again is the run that was never interrupted, and a damaged one is refused.

use parsimax_data::demo::demo;
use parsimax_data::inflection::Example;
use parsimax_models::inflection::{
    Checkpoint, EpochRecord, Observer, Outcome, Progress, Run, Settings, Trainer, accuracy,
};
use parsimax_models::seq2seq::{Choice, Pair};
use std::fs;
use std::path::Path;

/// Stops after so many batches.
struct StopAfter(usize);

impl Observer for StopAfter {
    fn batch(&mut self, _: &Progress) -> bool {
        self.0 = self.0.saturating_sub(1);
        self.0 == 0
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

fn data() -> (Vec<Example>, Vec<Example>) {
    let demo = demo();
    let unseen = demo.unseen.into_iter().map(|u| u.example);
    (demo.train.into_iter().step_by(20).collect(), unseen.step_by(10).collect())
}

fn settings() -> Settings {
    Settings { size: 16, batch: 16, epochs: 3, ..Settings::default() }
}

fn finish(trainer: &mut Trainer) {
    assert_eq!(trainer.run(&mut StopAfter(usize::MAX)).expect("trains"), Outcome::Finished);
}

#[test]
fn a_run_taken_up_again_is_the_run_that_never_stopped() {
    let (train, validation) = data();
    let [whole, parts] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let mut trainer = Trainer::new(whole.path(), settings(), &train, &validation).expect("starts");
    finish(&mut trainer);

    let mut other = Trainer::new(parts.path(), settings(), &train, &validation).expect("starts");
    // In the middle of an epoch, in the middle of the next, at the end of one.
    let per_epoch = train.len().div_ceil(16);
    for stop in [3, per_epoch, per_epoch - 3] {
        assert_eq!(other.run(&mut StopAfter(stop)).expect("trains"), Outcome::Stopped);
        other = Trainer::resume(parts.path()).expect("goes on");
    }
    finish(&mut other);
    assert_eq!(trainer.history(), other.history());
    assert!(trainer.model().values() == other.model().values(), "bit for bit");
    let read = |folder: &Path, name: &str| fs::read(folder.join(name)).expect("a file");
    for name in ["latest.safetensors", "best.safetensors", "train.tsv", "validation.tsv"] {
        assert!(read(whole.path(), name) == read(parts.path(), name), "{name}");
    }
}

#[test]
fn the_loss_falls_and_the_best_model_is_kept() {
    let (train, validation) = data();
    let folder = tempfile::tempdir().expect("a folder");
    let wanted = Settings { epochs: 6, output: Choice::of("sparsemax"), ..settings() };
    let mut trainer = Trainer::new(folder.path(), wanted, &train, &validation).expect("starts");
    finish(&mut trainer);
    let history = trainer.history();
    assert!(history[5].train_loss < 0.8 * history[0].train_loss, "{history:?}");
    assert!(history[5].validation_loss < history[0].validation_loss, "{history:?}");
    let run = Run::open(folder.path()).expect("reads");
    assert_eq!(run.model.config().target_symbols, run.task.target.len());
    assert_eq!((run.history.as_slice(), &run.settings), (history, trainer.settings()));
    assert_eq!(run.validation, validation);
    // The model is the one of its epoch, not the last one.
    let pairs: Vec<Pair> = validation.iter().map(|example| run.task.pair(example)).collect();
    let measured = accuracy(&run.model, &pairs.iter().collect::<Vec<_>>(), 1).expect("decodes").percent;
    let best = history.iter().map(|record| record.accuracy).fold(0.0, f64::max);
    assert_eq!((history[run.best_epoch - 1].accuracy, measured), (best, best));
}

#[test]
fn a_damaged_checkpoint_is_refused_and_says_so() {
    let (train, validation) = data();
    let folder = tempfile::tempdir().expect("a folder");
    let resume = || Trainer::resume(folder.path()).map(|_| ()).expect_err("refused").to_string();
    assert!(resume().contains("latest.safetensors"), "{}", resume());

    let mut trainer = Trainer::new(folder.path(), settings(), &train, &validation).expect("starts");
    trainer.run(&mut StopAfter(2)).expect("trains");
    let path = folder.path().join("latest.safetensors");
    let good = fs::read(&path).expect("reads");

    fs::write(&path, &good[..good.len() / 2]).expect("writes");
    assert!(resume().contains("not a whole checkpoint"), "{}", resume());
    let mut flipped = good.clone();
    let middle = flipped.len() - 1000;
    flipped[middle] ^= 1;
    fs::write(&path, &flipped).expect("writes");
    assert!(resume().contains("checksum"), "{}", resume());
    fs::write(&path, b"something else entirely").expect("writes");
    assert!(resume().contains("not a whole checkpoint"), "{}", resume());

    let mut foreign = Checkpoint { tensors: vec![("x".into(), vec![1], vec![1.0])], notes: Default::default() };
    foreign.write(&path).expect("writes");
    assert!(resume().contains("not a checkpoint of a run"), "{}", resume());

    fs::write(&path, &good).expect("writes");
    foreign = Checkpoint::read(&path).expect("reads");
    foreign.tensors.retain(|(name, _, _)| name != "output.bias");
    foreign.write(&path).expect("writes");
    assert!(resume().contains("there is no 'output.bias'"), "{}", resume());

    fs::write(&path, &good).expect("writes");
    let words = folder.path().join("train.tsv");
    let text = fs::read_to_string(&words).expect("reads");
    fs::write(&words, text.replacen('a', "b", 1)).expect("writes");
    assert!(resume().contains("no longer the examples"), "{}", resume());
    fs::write(&words, "a\tb\n").expect("writes");
    assert!(resume().contains("train.tsv: line 1: expected language"), "{}", resume());
    fs::remove_file(&words).expect("removes");
    assert!(resume().contains("train.tsv"), "{}", resume());
    let early = Run::open(folder.path()).expect_err("no epoch is over").to_string();
    assert!(early.contains("first epoch is not over"), "{early}");
    assert!(!folder.path().join("latest.safetensors.part").exists());
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_old_one() {
    let (train, validation) = data();
    let folder = tempfile::tempdir().expect("a folder");
    let mut trainer = Trainer::new(folder.path(), settings(), &train, &validation).expect("starts");
    let before = fs::read(folder.path().join("latest.safetensors")).expect("a checkpoint");
    // Something is in the way of the file beside it.
    fs::create_dir(folder.path().join("latest.safetensors.part")).expect("a folder");
    let error = trainer.run(&mut StopAfter(1)).expect_err("nowhere to save").to_string();
    assert!(error.contains("latest.safetensors"), "{error}");
    assert!(before == fs::read(folder.path().join("latest.safetensors")).expect("a checkpoint"));
    let error = Trainer::new(Path::new("/proc/no/folder"), settings(), &train, &validation).expect_err("nowhere");
    assert!(error.to_string().contains("/proc/no/folder"), "{error}");
}

#[test]
fn nothing_to_learn_from_is_an_error() {
    let (train, validation) = data();
    let of = |train: &[Example], validation: &[Example], settings: Settings| {
        Trainer::new(Path::new("."), settings, train, validation).map(|_| ()).expect_err("refused").to_string()
    };
    assert!(of(&train, &[], settings()).contains("validate"));
    assert!(of(&train, &validation, Settings { batch: 0, ..settings() }).contains("batch"));
    assert!(of(&train, &validation, Settings { size: 3, ..settings() }).contains("size"));
    let covered = [Example { form: None, ..train[0].clone() }];
    assert!(of(&covered, &validation, settings()).contains("covered"));
}
