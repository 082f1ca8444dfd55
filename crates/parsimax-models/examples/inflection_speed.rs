//! Our side of `benchmarks/inflection.py`, which measures training and decoding beside PyTorch.
//!
//! ```text
//! inflection_speed prepare DATA SIZE FOLDER EPOCHS     trains, and writes the weights, batches and words for both sides
//! inflection_speed serve FOLDER ATTENTION OUTPUT       reads questions, answers in JSON: loss, train N, decode N BATCH
//! ```

use parsimax_data::buckets::{batches, epoch_seed};
use parsimax_data::inflection::{Setting, Split, read};
use parsimax_models::decode::{Beam, Limits, decode};
use parsimax_models::inflection::{EpochRecord, Observer, Progress, Run, Settings, Task, Trainer};
use parsimax_models::seq2seq::{Adam, Choice, Config, Pair, Seq2Seq, Translator};
use serde_json::{Value, json};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::time::Instant;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const LANGUAGES: [&str; 5] = ["english", "german", "spanish", "turkish", "finnish"];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["prepare", data, size, folder, epochs] => {
            prepare(Path::new(data), size.parse()?, Path::new(folder), epochs.parse()?)
        }
        ["serve", folder, attention, output] => serve(Path::new(folder), attention, output),
        _ => Err("usage: prepare DATA SIZE FOLDER EPOCHS, or serve FOLDER ATTENTION OUTPUT".into()),
    }
}

struct Epochs;

impl Observer for Epochs {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, record: &EpochRecord) {
        println!("epoch {}: {:.1}% right, loss {:.4}", record.epoch, record.accuracy, record.validation_loss);
    }
}

fn prepare(data: &Path, size: usize, folder: &Path, epochs: usize) -> Outcome {
    let languages = LANGUAGES.map(str::to_owned);
    let train = read(data, &languages, Split::Train(Setting::Medium))?;
    let validation = read(data, &languages, Split::Dev)?;
    std::fs::create_dir_all(folder)?;
    let settings = Settings { size, epochs, validation_words: 200, ..Settings::default() };
    Trainer::new(folder, settings.clone(), &train, &validation)?.run(&mut Epochs)?;
    let task = Task::new(&train);
    let numbers = |pair: &Pair| json!([pair.source, pair.target]);
    let pairs: Vec<Pair> = train.iter().map(|example| task.pair(example)).collect();
    let lengths: Vec<usize> = pairs.iter().map(|pair| 64 * pair.source.len() + pair.target.len()).collect();
    // Eight batches of an epoch, as they come: of all lengths.
    let chosen = batches(&lengths, settings.batch, epoch_seed(settings.seed, 0)).into_iter().step_by(10);
    let chosen: Vec<Vec<Value>> = chosen.map(|batch| batch.iter().map(|i| numbers(&pairs[*i])).collect()).collect();
    let words: Vec<Value> = validation.iter().step_by(validation.len() / 500).map(|e| numbers(&task.pair(e))).collect();
    let sizes = json!({
        "symbols": [task.source.len(), task.target.len()],
        "size": size, "layers": settings.layers, "dropout": settings.dropout,
    });
    let both = json!({ "sizes": sizes, "batches": chosen, "words": words });
    Ok(std::fs::write(folder.join("data.json"), both.to_string())?)
}

fn pair(value: &Value) -> Outcome<Pair> {
    let (source, target) = serde_json::from_value(value.clone())?;
    Ok(Pair { source, target })
}

fn serve(folder: &Path, attention: &str, output: &str) -> Outcome {
    let data: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("data.json"))?)?;
    let sizes = &data["sizes"];
    let symbols: [usize; 2] = serde_json::from_value(sizes["symbols"].clone())?;
    let config = Config {
        source_symbols: symbols[0],
        target_symbols: symbols[1],
        size: serde_json::from_value(sizes["size"].clone())?,
        layers: serde_json::from_value(sizes["layers"].clone())?,
        dropout: serde_json::from_value(sizes["dropout"].clone())?,
        attention: Choice::of(attention),
        output: Choice::of(output),
    };
    let mut model = Seq2Seq::new(config, 1)?;
    let trained = Run::open(folder)?.model;
    model.values_mut().copy_from_slice(trained.values());
    let list = |value: &Value| -> Outcome<Vec<Pair>> { value.as_array().ok_or("a list")?.iter().map(pair).collect() };
    let batches: Outcome<Vec<Vec<Pair>>> = data["batches"].as_array().ok_or("batches")?.iter().map(list).collect();
    let (adam, batches, words) = (Adam::new(trained.values().len()), batches?, list(&data["words"])?);
    let mut server = Server { model, adam, batches, words, steps: 0 };
    for line in std::io::stdin().lock().lines() {
        println!("{}", server.answer(&line?)?);
    }
    Ok(())
}

struct Server {
    model: Seq2Seq,
    adam: Adam,
    batches: Vec<Vec<Pair>>,
    words: Vec<Pair>,
    steps: usize,
}

impl Server {
    fn answer(&mut self, question: &str) -> Outcome<Value> {
        match question.split_whitespace().collect::<Vec<_>>()[..] {
            ["loss"] => {
                let totals = self.model.loss(&self.batches[0].iter().collect::<Vec<_>>())?;
                Ok(json!({ "loss": totals.loss / totals.symbols as f64 }))
            }
            ["train", steps] => self.train(steps.parse()?),
            ["decode", words, batch] => self.decode(words.parse()?, batch.parse()?),
            _ => Err("a question is: loss, train N, or decode N BATCH".into()),
        }
    }

    /// Steps as the trainer takes them.
    fn train(&mut self, steps: usize) -> Outcome<Value> {
        let (mut seconds, mut counts) = (Vec::new(), Vec::new());
        for _ in 0..steps {
            let batch: Vec<&Pair> = self.batches[self.steps % self.batches.len()].iter().collect();
            let start = Instant::now();
            let totals = self.model.train_step(&batch, self.steps as u64, &mut self.adam, 5.0, 1e-3)?;
            seconds.push(start.elapsed().as_secs_f64());
            counts.push(totals.symbols);
            self.steps += 1;
        }
        Ok(json!({ "seconds": seconds, "counts": counts }))
    }

    fn decode(&mut self, words: usize, batch: usize) -> Outcome<Value> {
        let (mut seconds, mut counts, mut right) = (Vec::new(), Vec::new(), 0);
        for part in self.words[..words.min(self.words.len())].chunks(batch) {
            let start = Instant::now();
            let sources: Vec<&[u32]> = part.iter().map(|pair| &pair.source[..]).collect();
            let mut translator = Translator::new(&self.model, &sources);
            let beams = decode(&mut translator, part.len(), Limits::default(), |_, origin| Beam::new(5, origin))?;
            seconds.push(start.elapsed().as_secs_f64());
            counts.push(part.len());
            let best = beams.iter().map(|beam| beam.hypotheses.first().map(|best| &best.symbols));
            right += best.zip(part).filter(|(best, pair)| *best == Some(&pair.target)).count();
        }
        Ok(json!({ "seconds": seconds, "counts": counts, "right": right }))
    }
}
