//! `parsimax train inflection`.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::time::Duration;

use parsimax_data::inflection::{self as data, Split};
use parsimax_models::inflection::{CheckpointError, EpochRecord, Outcome, Run, Settings, TrainError, Trainer};

use super::args::{self, NewRun, Options, TrainConfig};
use super::show::Show;
use super::signals::Interrupt;
use crate::output::{Sink, to_stdout};
use crate::progress::on_threads;
use crate::{Failure, Result};

const CONFIG: &str = "config.toml";

/// Trains, from the start or from where a run stopped.
pub(crate) fn train(config: &TrainConfig) -> Result<()> {
    let interrupt = Interrupt::listen()?;
    match config {
        TrainConfig::New(run) => {
            let (trainer, _lock) = start(run)?;
            let trainer = trainer.save_every(Duration::from_secs_f64(run.save_seconds));
            go(&run.out, trainer, run.threads, &interrupt)
        }
        TrainConfig::Resume { folder, epochs, threads, save_seconds } => {
            let (trainer, options, _lock) = resume(folder, *epochs)?;
            let seconds = save_seconds.or(options.save_seconds).filter(|s| (0.0..1e9).contains(s));
            let trainer = seconds.map(Duration::from_secs_f64).into_iter().fold(trainer, Trainer::save_every);
            go(folder, trainer, threads.or(options.threads), &interrupt)
        }
    }
}

/// Reads the data and makes the run's folder.
fn start(run: &NewRun) -> Result<(Trainer, Lock)> {
    refuse_to_overwrite(&run.out)?;
    let split = Split::Train(run.setting);
    let languages = match run.languages.as_slice() {
        [all] if all == "all" => data::languages(&run.data, split)?,
        named => named.to_vec(),
    };
    let learn = data::read(&run.data, &languages, split)?;
    let validate = data::read(&run.data, &languages, Split::Dev)?;
    let lock = Lock::on(&run.out)?;
    refuse_to_overwrite(&run.out)?;
    let config = run.out.join(CONFIG);
    write_config(&config, &run.effective())?;
    let trainer = Trainer::new(&run.out, run.settings.clone(), &learn, &validate).inspect_err(|_| {
        // The error that matters is the first one.
        let _ = fs::remove_file(&config);
    })?;
    Ok((trainer, lock))
}

fn refuse_to_overwrite(folder: &Path) -> Result<()> {
    if Run::is_at(folder) {
        let what = format!("already holds a run; go on with it by: {}", command(folder));
        return Err(Failure::new(format!("{}: {what}", folder.display())));
    }
    Ok(())
}

/// A run that was saved, and the options it was started with.
fn resume(folder: &Path, epochs: Option<usize>) -> Result<(Trainer, Options, Lock)> {
    if !Run::is_at(folder) {
        return Err(Failure::new(format!("{}: there is no run to go on with", folder.display())));
    }
    let lock = Lock::on(folder)?;
    let trainer = Trainer::resume(folder)?;
    let path = folder.join(CONFIG);
    let mut options = args::read(&path)?;
    if let Some((name, written, real)) = difference(&options.settings()?, trainer.settings()) {
        let what = format!("says {name} = {written}, but the run was trained with {real}; start a new run for that");
        return Err(Failure::new(format!("{}: {what}", path.display())));
    }
    let Some(epochs) = epochs.filter(|epochs| *epochs != trainer.settings().epochs) else {
        return Ok((trainer, options, lock));
    };
    options.epochs = Some(epochs);
    write_config(&path, &options)?;
    Ok((trainer.epochs(epochs), options, lock))
}

fn write_config(path: &Path, options: &Options) -> Result<()> {
    let text = toml::to_string(options).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Sink::File(path.to_owned()).write(|out| out.write_all(text.as_bytes()))
}

/// The first setting in which two differ, with both values. Epochs may: they only say when to stop.
fn difference(written: &Settings, real: &Settings) -> Option<(String, String, String)> {
    let of = |settings: &Settings| match serde_json::to_value(settings) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (written, real) = (of(written), of(real));
    let names = real.keys().filter(|name| *name != "epochs");
    let mut different = names.filter(|name| written.get(*name) != real.get(*name));
    different.next().map(|name| (name.clone(), written[name].to_string(), real[name].to_string()))
}

fn go(folder: &Path, mut trainer: Trainer, threads: Option<usize>, interrupt: &Interrupt) -> Result<()> {
    let epochs = trainer.settings().epochs;
    let done = trainer.history().len();
    if done >= epochs {
        let more = format!("all {epochs} epochs are over; --epochs N with a larger N goes on");
        return to_stdout(|out| writeln!(out, "{}: {more}", folder.display()));
    }
    let mut show = Show::new(interrupt, trainer.history().last().copied());
    let outcome = on_threads(threads, || trainer.run(&mut show))?;
    let place = show.place();
    drop(show);
    match outcome {
        Ok(Outcome::Finished) => to_stdout(|out| writeln!(out, "{}", summary(folder, trainer.history()))),
        Ok(Outcome::Stopped) => {
            let code = interrupt.code().unwrap_or(1);
            let line = format!("stopped at {place} and saved; go on by: {}", command(folder));
            Err(Failure::Interrupted(line, code))
        }
        Err(error) => Err(failed(folder, error)),
    }
}

fn command(folder: &Path) -> String {
    format!("parsimax train inflection --resume {}", folder.display())
}

/// What to do when a run cannot go on.
fn failed(folder: &Path, error: TrainError) -> Failure {
    let what = match &error {
        TrainError::Checkpoint(CheckpointError::Io { .. }) => {
            format!("the checkpoint before is untouched; when there is room, go on by: {}", command(folder))
        }
        TrainError::Model(_) | TrainError::Decode(_) => {
            "the model has diverged; a smaller --rate or --clip may help".to_owned()
        }
        _ => return error.into(),
    };
    match Failure::from(error) {
        Failure::Message(message) => Failure::new(format!("{message}; {what}")),
        other => other,
    }
}

fn summary(folder: &Path, history: &[EpochRecord]) -> String {
    let better = |best: EpochRecord, next: &EpochRecord| if next.accuracy > best.accuracy { *next } else { best };
    let Some(best) = history.split_first().map(|(first, rest)| rest.iter().fold(*first, better)) else {
        return format!("{}: no epochs", folder.display());
    };
    let EpochRecord { epoch, accuracy, attention_nonzeros: a, output_nonzeros: o, .. } = best;
    let folder = folder.display();
    format!("best epoch {epoch}: {accuracy:.2}% right, {a:.2} attended, {o:.2} possible; saved to {folder}")
}

/// Keeps two processes from writing to one run. The system lets go of it when the process ends, however it ends; the
/// file stays, because whoever removed it could meet somebody who has just opened it.
struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Lock {
    /// Makes the folder if it is not there.
    fn on(folder: &Path) -> Result<Self> {
        let io = |path: &Path, error| Failure::io(&path.display().to_string(), &error);
        fs::create_dir_all(folder).map_err(|error| io(folder, error))?;
        let path = folder.join(".lock");
        let file = File::create(&path).map_err(|error| io(&path, error))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => {
                Err(Failure::new(format!("{}: another process is training this run", folder.display())))
            }
            Err(TryLockError::Error(error)) => Err(io(&path, error)),
        }
    }
}
