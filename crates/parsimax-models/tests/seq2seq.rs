//! The model's laws: its gradient is that of its loss, padding and batches change nothing, decoders see the model that
//! was trained, and it can learn by heart.

use fastrand::Rng;
use parsimax_models::decode::{Beam, Limits, Question, Scorer, decode};
use parsimax_models::seq2seq::{Adam, Choice, Config, Pair, Seq2Seq, Translator};

fn config(attention: &str, output: &str) -> Config {
    Config {
        source_symbols: 12,
        target_symbols: 9,
        size: 8,
        layers: 2,
        dropout: 0.0,
        attention: Choice::of(attention),
        output: Choice::of(output),
    }
}

fn pairs(n: usize, seed: u64) -> Vec<Pair> {
    let mut random = Rng::with_seed(seed);
    let mut word = |symbols: u32, most: usize| (0..random.usize(1..=most)).map(|_| random.u32(4..symbols)).collect();
    (0..n).map(|_| Pair { source: word(12, 7), target: word(9, 6) }).collect()
}

fn refs(pairs: &[Pair]) -> Vec<&Pair> {
    pairs.iter().collect()
}

/// Central differences along random directions, matrix by matrix.
#[test]
fn the_gradient_is_that_of_the_loss() {
    // 1.5-entmax and sparsemax have kinks that a difference may straddle; the largest error is over directions, and
    // their tolerance is wider.
    for (attention, output, tolerance) in
        [("softmax", "softmax", 0.01), ("entmax15", "entmax15", 0.02), ("sparsemax", "softmax", 0.02)]
    {
        let pairs = pairs(5, 1);
        let batch = refs(&pairs);
        let mut model = Seq2Seq::new(config(attention, output), 3).unwrap();
        // Larger weights than at the start, so that every part matters.
        model.values_mut().iter_mut().for_each(|v| *v *= 2.0);
        let (_, gradient) = model.gradient(&batch, 0).unwrap();
        let ranges: Vec<(String, std::ops::Range<usize>)> = {
            let base = model.values().as_ptr() as usize;
            let place = |v: &[f32]| (v.as_ptr() as usize - base) / 4;
            model.named().map(|(name, _, v)| (name.to_owned(), place(v)..place(v) + v.len())).collect()
        };
        let start = model.values().to_vec();
        let mut random = Rng::with_seed(9);
        for (name, range) in ranges {
            let direction: Vec<f32> = range.clone().map(|_| 2.0 * random.f32() - 1.0).collect();
            let exact: f64 = gradient[range.clone()].iter().zip(&direction).map(|(g, d)| f64::from(g * d)).sum();
            let eps = 4e-3f32;
            let mut at = |sign: f32| {
                model.values_mut().copy_from_slice(&start);
                model.values_mut()[range.clone()].iter_mut().zip(&direction).for_each(|(v, d)| *v += sign * eps * d);
                model.loss(&batch).unwrap().loss
            };
            let numeric = (at(1.0) - at(-1.0)) / (2.0 * f64::from(eps));
            // Losses are sums of single-precision terms: some 1e−6 each, over 2·eps.
            let allowed = tolerance * exact.abs().max(0.5);
            assert!((exact - numeric).abs() <= allowed, "{attention}/{output} {name}: {exact} against {numeric}");
            model.values_mut().copy_from_slice(&start);
        }
    }
}

#[test]
fn the_loss_of_a_batch_is_that_of_its_rows() {
    let pairs = pairs(9, 2);
    let model = Seq2Seq::new(config("entmax15", "entmax15"), 5).unwrap();
    let together = model.loss(&refs(&pairs)).unwrap();
    let alone: f64 = pairs.iter().map(|pair| model.loss(&[pair]).unwrap().loss).sum();
    assert!((together.loss - alone).abs() < 1e-4 * alone, "{} and {alone}", together.loss);
    assert_eq!(together.symbols, pairs.iter().map(|p| p.target.len() + 1).sum::<usize>());
}

#[test]
fn gradients_do_not_depend_on_threads_and_follow_the_seed() {
    let pairs = pairs(9, 2);
    let model = Seq2Seq::new(Config { dropout: 0.3, ..config("entmax15", "entmax15") }, 5).unwrap();
    let run = |threads: usize, seed: u64| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| model.gradient(&refs(&pairs), seed).unwrap())
    };
    assert_eq!(run(1, 7), run(2, 7));
    assert_ne!(run(1, 7).1, run(1, 8).1);
}

#[test]
fn decoders_see_the_model_that_was_trained() {
    let pairs = pairs(6, 4);
    let model = Seq2Seq::new(config("entmax15", "softmax"), 5).unwrap();
    let sources: Vec<&[u32]> = pairs.iter().map(|p| &p.source[..]).collect();
    let mut translator = Translator::new(&model, &sources);
    for (input, pair) in pairs.iter().enumerate() {
        let mut question: Question<_> = (translator.start(input).unwrap(), translator.begin());
        let mut log_probability = 0.0;
        for symbol in pair.target.iter().copied().chain([translator.end()]) {
            let (state, next) = translator.advance(&[question.clone()]).unwrap().remove(0);
            let attention: f32 = state.attention().iter().sum();
            assert!((attention - 1.0).abs() < 1e-5 && state.attention().len() == pair.source.len());
            log_probability += next.entries().iter().find(|e| e.symbol == symbol).unwrap().log_probability;
            question = (state, symbol);
        }
        // The loss of softmax is minus the log-likelihood.
        let loss = model.loss(&[pair]).unwrap().loss;
        assert!((loss + log_probability).abs() < 1e-4 * loss, "{loss} and {log_probability}");
    }
}

/// Many words share threads and steps, and hypotheses share states; a word alone does neither.
#[test]
fn words_decoded_together_are_those_decoded_alone() {
    let pairs = pairs(40, 8);
    let mut model = Seq2Seq::new(config("entmax15", "entmax15"), 5).unwrap();
    // Larger weights than at the start, so that words differ.
    model.values_mut().iter_mut().for_each(|v| *v *= 3.0);
    let sources: Vec<&[u32]> = pairs.iter().map(|p| &p.source[..]).collect();
    let limits = Limits { max_length: 12, ..Limits::default() };
    let beams = |sources: &[&[u32]]| {
        let mut translator = Translator::new(&model, sources);
        decode(&mut translator, sources.len(), limits, |_, o| Beam::new(5, o)).unwrap()
    };
    let mut found = 0;
    for (together, source) in beams(&sources).iter().zip(&sources) {
        let alone = beams(&[source]).remove(0);
        assert_eq!(together.hypotheses.len(), alone.hypotheses.len());
        for (a, b) in together.hypotheses.iter().zip(&alone.hypotheses) {
            assert_eq!(a.symbols, b.symbols);
            // Rows of attention are as long as the longest source of a step, which moves the last bits.
            assert!((a.log_probability - b.log_probability).abs() < 1e-4, "{a:?} and {b:?}");
            found += 1;
        }
    }
    assert!(found > 40, "{found} hypotheses say something");
}

#[test]
fn a_small_model_learns_fifty_words_by_heart() {
    let mut pairs = pairs(60, 6);
    pairs.sort_by(|a, b| a.source.cmp(&b.source));
    pairs.dedup_by(|a, b| a.source == b.source);
    pairs.truncate(50);
    assert_eq!(pairs.len(), 50);
    let mut model = Seq2Seq::new(Config { size: 32, ..config("entmax15", "entmax15") }, 1).unwrap();
    let mut adam = Adam::new(model.values().len());
    let batch = refs(&pairs);
    for step in 0..400 {
        let (totals, gradient) = model.gradient(&batch, step).unwrap();
        adam.step(model.values_mut(), &gradient, 1.0 / totals.symbols as f32, 0.01);
    }
    let sources: Vec<&[u32]> = pairs.iter().map(|p| &p.source[..]).collect();
    let mut translator = Translator::new(&model, &sources);
    let beams = decode(&mut translator, pairs.len(), Limits::default(), |_, o| Beam::new(5, o)).unwrap();
    for (beam, pair) in beams.iter().zip(&pairs) {
        assert_eq!(beam.hypotheses[0].symbols, pair.target);
        assert!(beam.bound);
    }
    let counts = translator.counts();
    assert!(counts.output < 2 * counts.steps, "what was learnt by heart is nearly certain: {counts:?}");
}

#[test]
fn shapes_that_make_no_sense_are_refused_by_name() {
    let of = |change: fn(&mut Config)| {
        let mut config = config("softmax", "softmax");
        change(&mut config);
        Seq2Seq::new(config, 1).unwrap_err().to_string()
    };
    assert!(of(|c| c.size = 7).contains("size"));
    assert!(of(|c| c.layers = 0).contains("layers"));
    assert!(of(|c| c.dropout = 1.0).contains("dropout"));
    assert!(of(|c| c.attention = Choice::of("sharpmax")).contains("sharpmax"));
    assert!(of(|c| c.output = Choice::of("ev-softmax")).contains("Fenchel"));
}
