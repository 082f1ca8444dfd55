//! Characters per second of training, and words per second of decoding, on the shared task's data:
//! `cargo run --release -p parsimax-models --example inflection_speed -- DATA SIZE [softmax|entmax15|sparsemax]`.

use parsimax_data::inflection::{Setting, Split, read};
use parsimax_models::inflection::{EpochRecord, Observer, Progress, Settings, Trainer, accuracy};
use parsimax_models::seq2seq::{Choice, Pair};
use std::time::Instant;

struct Clock {
    started: Instant,
    symbols: usize,
    seconds: f64,
}

impl Observer for Clock {
    fn batch(&mut self, progress: &Progress) -> bool {
        // The first batches warm up caches and pools.
        if progress.batch <= 5 {
            (self.started, self.symbols) = (Instant::now(), 0);
        } else {
            self.symbols += progress.symbols;
        }
        self.seconds = self.started.elapsed().as_secs_f64();
        progress.batch >= progress.batches || self.seconds > 20.0
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let data = arguments.next().ok_or("which data?")?;
    let size = arguments.next().ok_or("which size?")?.parse()?;
    let mapping = arguments.next().unwrap_or_else(|| "entmax15".to_owned());
    let languages = ["english", "german", "spanish", "turkish", "finnish"].map(str::to_owned);
    let path = std::path::Path::new(&data);
    let train = read(path, &languages, Split::Train(Setting::Medium))?;
    let validation = read(path, &languages, Split::Dev)?;
    let folder = std::env::temp_dir().join("parsimax-inflection-speed");
    std::fs::create_dir_all(&folder)?;
    let choice = Choice::of(&mapping);
    let settings = Settings { size, attention: choice.clone(), output: choice, epochs: 1, ..Settings::default() };
    let mut trainer = Trainer::new(&folder, settings, &train, &validation)?;
    let mut clock = Clock { started: Instant::now(), symbols: 0, seconds: 0.0 };
    trainer.run(&mut clock)?;
    println!("{mapping}, size {size}: {:.0} characters/s in training", clock.symbols as f64 / clock.seconds);
    let task = parsimax_models::inflection::Task::new(&train);
    let pairs: Vec<Pair> = validation.iter().take(500).map(|e| task.pair(e)).collect();
    let refs: Vec<&Pair> = pairs.iter().collect();
    let started = Instant::now();
    accuracy(trainer.model(), &refs, 5)?;
    println!("{:.0} words/s, beam 5, in batches", refs.len() as f64 / started.elapsed().as_secs_f64());
    Ok(())
}
