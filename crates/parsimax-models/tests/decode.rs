//! The decoders against brute force on toy models whose every sequence can be listed.

use parsimax_models::decode::{
    Answer, Beam, BestFirst, DecodeError, Ensemble, Hypothesis, Limits, Next, Proof, Question, Sample, Scorer, decode,
};
use std::collections::HashMap;

const BEGIN: u32 = 0;
const END: u32 = 1;

/// A random model: what may follow depends on the whole prefix, through a hash of it. From `depth` symbols on
/// nothing but the end follows.
#[derive(Clone)]
struct Toy {
    seed: u64,
    symbols: u32,
    /// Most symbols that may follow a prefix.
    support: usize,
    depth: usize,
    /// How many prefixes were read.
    read: usize,
}

impl Toy {
    fn sparse(seed: u64) -> Self {
        Self { seed, symbols: 6, support: 2, depth: 6, read: 0 }
    }

    fn dense(seed: u64) -> Self {
        Self { seed, symbols: 4, support: 4, depth: 4, read: 0 }
    }

    fn next(&self, input: usize, prefix: &[u32]) -> Vec<(u32, f64)> {
        if prefix.len() >= self.depth {
            return vec![(END, 1.0)];
        }
        let mix = |h: u64, x: u64| (h ^ x).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let hash = prefix.iter().fold(mix(self.seed, input as u64), |h, s| mix(h, u64::from(*s) + 1));
        let mut random = fastrand::Rng::with_seed(hash);
        let mut symbols: Vec<u32> = (1..=self.symbols).collect();
        random.shuffle(&mut symbols);
        symbols.truncate(random.usize(1..=self.support));
        let weights: Vec<f64> = symbols.iter().map(|_| random.f64() + 0.01).collect();
        let total: f64 = weights.iter().sum();
        symbols.into_iter().zip(weights).map(|(s, w)| (s, w / total)).collect()
    }

    /// Every sequence of non-zero probability, by recursion.
    fn brute_force(&self, input: usize) -> Vec<Hypothesis> {
        let mut all = Vec::new();
        let mut stack = vec![(Vec::new(), 0.0)];
        while let Some((symbols, score)) = stack.pop() {
            for (symbol, p) in self.next(input, &symbols) {
                let score: f64 = score + p.ln();
                if symbol == END {
                    all.push(Hypothesis { symbols: symbols.clone(), log_probability: score });
                } else {
                    let mut longer = symbols.clone();
                    longer.push(symbol);
                    stack.push((longer, score));
                }
            }
        }
        all.sort_by(|a, b| b.log_probability.total_cmp(&a.log_probability).then(a.symbols.cmp(&b.symbols)));
        all
    }
}

impl Scorer for Toy {
    type State = (usize, Vec<u32>);

    fn start(&mut self, input: usize) -> Result<Self::State, DecodeError> {
        Ok((input, Vec::new()))
    }

    fn begin(&self) -> u32 {
        BEGIN
    }

    fn end(&self) -> u32 {
        END
    }

    fn advance(&mut self, questions: &[Question<Self::State>]) -> Result<Vec<Answer<Self::State>>, DecodeError> {
        self.read += questions.len();
        let answer = |((input, prefix), symbol): &Question<Self::State>| {
            let mut prefix = prefix.clone();
            if *symbol != BEGIN {
                prefix.push(*symbol);
            }
            let next = Next::new(self.next(*input, &prefix))?;
            Ok(((*input, prefix), next))
        };
        questions.iter().map(answer).collect()
    }
}

/// A toy with a quirk.
struct Odd {
    toy: Toy,
    /// Whatever the input, it reads this one.
    input: Option<usize>,
    /// So many questions go unanswered.
    forgets: usize,
}

impl From<Toy> for Odd {
    fn from(toy: Toy) -> Self {
        Self { toy, input: None, forgets: 0 }
    }
}

impl Scorer for Odd {
    type State = <Toy as Scorer>::State;

    fn start(&mut self, input: usize) -> Result<Self::State, DecodeError> {
        self.toy.start(self.input.unwrap_or(input))
    }

    fn begin(&self) -> u32 {
        BEGIN
    }

    fn end(&self) -> u32 {
        END
    }

    fn advance(&mut self, questions: &[Question<Self::State>]) -> Result<Vec<Answer<Self::State>>, DecodeError> {
        self.toy.advance(&questions[self.forgets..])
    }
}

const INPUTS: usize = 7;
const SEEDS: u64 = 40;

fn models() -> impl Iterator<Item = Toy> {
    (0..SEEDS).flat_map(|seed| [Toy::sparse(seed), Toy::dense(seed)])
}

#[test]
fn enumeration_lists_exactly_what_brute_force_lists() {
    for mut model in models() {
        let found = decode(&mut model, INPUTS, Limits::default(), |_, o| BestFirst::all(1_000_000, o)).unwrap();
        for (input, found) in found.iter().enumerate() {
            assert_eq!(found.hypotheses, model.brute_force(input));
            assert!(found.is_complete());
            assert_eq!(found.proof, Proof::Optimal);
            let total: f64 = found.hypotheses.iter().map(Hypothesis::probability).sum();
            assert!((total - 1.0).abs() < 1e-12, "{total}");
        }
    }
}

#[test]
fn exact_search_finds_the_best_however_many_it_asks_about_at_once() {
    for mut model in models() {
        for at_once in [1, 3, 16] {
            for count in [1, 4] {
                let search = |_, o| BestFirst::new(count, 1_000_000, o).at_once(at_once);
                let found = decode(&mut model, INPUTS, Limits::default(), search).unwrap();
                for (input, found) in found.iter().enumerate() {
                    let all = model.brute_force(input);
                    assert_eq!(found.hypotheses, all[..count.min(all.len())]);
                    assert_eq!(found.proof, Proof::Optimal);
                }
            }
        }
    }
}

#[test]
fn exact_search_reads_no_prefix_less_probable_than_the_best_sequence() {
    for mut model in models() {
        model.read = 0;
        decode(&mut model, 1, Limits::default(), |_, o| BestFirst::new(1, 1_000_000, o)).unwrap();
        let best = model.brute_force(0)[0].log_probability;
        let mut needed = 0;
        let mut stack = vec![(Vec::new(), 0.0)];
        while let Some((symbols, score)) = stack.pop() {
            needed += 1;
            for (symbol, p) in model.next(0, &symbols) {
                let score: f64 = score + p.ln();
                if symbol != END && score >= best {
                    let mut longer = symbols.clone();
                    longer.push(symbol);
                    stack.push((longer, score));
                }
            }
        }
        assert!(model.read <= needed, "{} read, {needed} needed", model.read);
    }
}

#[test]
fn a_search_that_gives_up_says_by_how_much_it_may_be_wrong() {
    let mut open_gaps = 0;
    for mut model in models() {
        for expansions in [1, 3, 10] {
            let found = decode(&mut model, INPUTS, Limits::default(), |_, o| BestFirst::new(1, expansions, o)).unwrap();
            for (input, found) in found.iter().enumerate() {
                assert!(found.expansions <= expansions);
                let best = model.brute_force(input)[0].log_probability;
                let first = found.hypotheses.first().map_or(f64::NEG_INFINITY, |h| h.log_probability);
                match found.proof {
                    Proof::Optimal => assert_eq!(first, best),
                    Proof::GaveUp { gap } => {
                        open_gaps += 1;
                        assert!(first + gap >= best || gap.is_infinite(), "{first} + {gap} < {best}");
                        assert!(found.open_mass > 0.0);
                    }
                }
            }
        }
    }
    assert!(open_gaps > 100, "the budgets must bite: {open_gaps}");
}

#[test]
fn the_mass_that_was_not_looked_at_is_what_is_missing() {
    for mut model in models() {
        for expansions in [1, 5, 20] {
            let found = decode(&mut model, INPUTS, Limits::default(), |_, o| BestFirst::all(expansions, o)).unwrap();
            for found in found {
                let total: f64 = found.hypotheses.iter().map(Hypothesis::probability).sum();
                assert!((total + found.open_mass - 1.0).abs() < 1e-12, "{total} + {}", found.open_mass);
            }
        }
    }
}

#[test]
fn certificates_of_a_beam_are_never_wrong() {
    let mut certified = [0; 2];
    let mut uncertified = 0;
    for mut model in models() {
        for width in [1, 2, 5, 50] {
            for sure in [false, true] {
                let search = |_, o| Beam::new(width, o).stop_when_sure(sure);
                let beams = decode(&mut model, INPUTS, Limits::default(), search).unwrap();
                for (input, beams) in beams.iter().enumerate() {
                    let all = model.brute_force(input);
                    assert!(beams.hypotheses.len() <= width);
                    if beams.cover {
                        assert_eq!(beams.hypotheses, all);
                        assert!(beams.bound, "what is complete holds the best");
                    }
                    if beams.bound {
                        assert_eq!(beams.hypotheses[0].log_probability, all[0].log_probability);
                    }
                    certified[0] += usize::from(beams.cover);
                    certified[1] += usize::from(beams.bound);
                    uncertified += usize::from(!beams.bound);
                }
            }
        }
    }
    assert!(certified[0] > 300 && certified[1] > certified[0] && uncertified > 100, "{certified:?} {uncertified}");
}

#[test]
fn a_beam_wide_enough_covers_everything() {
    for mut model in models() {
        let beams = decode(&mut model, INPUTS, Limits::default(), |_, o| Beam::new(10_000, o)).unwrap();
        for (input, beams) in beams.iter().enumerate() {
            assert!(beams.cover && beams.bound);
            assert_eq!(beams.hypotheses, model.brute_force(input));
        }
    }
}

#[test]
fn a_beam_of_one_is_greedy() {
    for mut model in models() {
        let beams = decode(&mut model, 1, Limits::default(), |_, o| Beam::new(1, o)).unwrap();
        let mut symbols = Vec::new();
        let greedy = loop {
            let next = Next::new(model.next(0, &symbols)).unwrap();
            match next.entries()[0].symbol {
                END => break symbols,
                symbol => symbols.push(symbol),
            }
        };
        assert_eq!(beams[0].hypotheses[0].symbols, greedy);
    }
}

#[test]
fn results_do_not_depend_on_how_questions_are_batched() {
    for mut model in models().take(20) {
        let mut results = [1, 3, 512].map(|batch| {
            let limits = Limits { batch, ..Limits::default() };
            decode(&mut model, INPUTS, limits, |_, o| Beam::new(3, o)).unwrap()
        });
        let last = results[2].clone();
        assert!(results.iter_mut().all(|r| *r == last));
    }
}

#[test]
fn a_length_limit_is_seen_in_the_certificates() {
    let mut bitten = 0;
    for mut model in models() {
        let limits = Limits { max_length: 2, ..Limits::default() };
        let beams = decode(&mut model, INPUTS, limits, |_, o| Beam::new(100, o)).unwrap();
        let found = decode(&mut model, INPUTS, limits, |_, o| BestFirst::new(1, 1000, o)).unwrap();
        for (input, (beams, found)) in beams.iter().zip(&found).enumerate() {
            let all = model.brute_force(input);
            let is_cut = all.iter().any(|h| h.symbols.len() > 2);
            assert_eq!(beams.cover, !is_cut);
            assert!(beams.hypotheses.iter().all(|h| h.symbols.len() <= 2));
            if beams.bound {
                assert_eq!(beams.hypotheses[0].log_probability, all[0].log_probability);
            }
            match found.proof {
                Proof::Optimal => assert_eq!(found.hypotheses[0], all[0]),
                Proof::GaveUp { .. } => bitten += 1,
            }
        }
    }
    assert!(bitten > 50, "{bitten}");
}

#[test]
fn samples_follow_the_distribution() {
    const DRAWS: usize = 20_000;
    let model = Toy::dense(3);
    let mut same = Odd { input: Some(0), ..Odd::from(model.clone()) };
    let draws = decode(&mut same, DRAWS, Limits::default(), |i, o| Sample::new(i as u64, o)).unwrap();
    let mut counts: HashMap<Vec<u32>, usize> = HashMap::new();
    for draw in draws {
        *counts.entry(draw.expect("the toy always ends").symbols).or_default() += 1;
    }
    let all = model.brute_force(0);
    assert!(all.len() > 20);
    for h in &all {
        let (p, seen) = (h.probability(), counts.remove(&h.symbols).unwrap_or(0) as f64 / DRAWS as f64);
        // Five standard deviations of a frequency.
        let allowed = 5.0 * (p * (1.0 - p) / DRAWS as f64).sqrt() + 1e-12;
        assert!((seen - p).abs() <= allowed, "{:?}: {seen} drawn, {p} expected", h.symbols);
    }
    assert!(counts.is_empty(), "sequences of probability zero were drawn: {counts:?}");
}

#[test]
fn an_ensemble_averages_probabilities_at_each_step() {
    for seed in 0..10 {
        let members = [Toy::sparse(seed), Toy::sparse(seed + 100), Toy::sparse(seed + 200)];
        let mut ensemble = Ensemble::new(members.to_vec()).unwrap();
        let found = decode(&mut ensemble, 3, Limits::default(), |_, o| BestFirst::all(1_000_000, o)).unwrap();
        for (input, found) in found.iter().enumerate() {
            assert!(found.is_complete());
            for h in &found.hypotheses {
                let steps = (0..=h.symbols.len()).map(|n| {
                    let symbol = h.symbols.get(n).copied().unwrap_or(END);
                    let of =
                        |m: &Toy| m.next(input, &h.symbols[..n]).iter().find(|e| e.0 == symbol).map_or(0.0, |e| e.1);
                    members.iter().map(of).sum::<f64>() / 3.0
                });
                let expected: f64 = steps.map(f64::ln).sum();
                assert!((h.log_probability - expected).abs() < 1e-12 * expected.abs().max(1.0));
            }
        }
    }
}

#[test]
fn an_ensemble_of_none_is_refused() {
    assert!(Ensemble::<Toy>::new(Vec::new()).is_err());
}

#[test]
fn an_answer_too_few_is_an_error() {
    let mut forgetful = Odd { forgets: 1, ..Odd::from(Toy::sparse(1)) };
    let error = decode(&mut forgetful, 4, Limits::default(), |_, o| Beam::new(2, o)).unwrap_err();
    assert_eq!(error.to_string(), "decode: the model gave 3 answers; expected 4");
}
