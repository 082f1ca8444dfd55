//! What is shown of a model is what the decoders say of it.

use parsimax_data::demo::demo;
use parsimax_data::inflection::Example;
use parsimax_data::vocabulary::END;
use parsimax_models::decode::{BestFirst, Limits, decode};
use parsimax_models::inflection::explain::{Kind, led, log_probability, survey, trees};
use parsimax_models::inflection::{EpochRecord, Observer, Outcome, Progress, Run, Settings, Task, Trainer};
use parsimax_models::seq2seq::{Choice, Config, Pair, Seq2Seq, Translator};

struct Silent;

impl Observer for Silent {
    fn batch(&mut self, _: &Progress) -> bool {
        false
    }

    fn epoch(&mut self, _: &EpochRecord) {}
}

/// A model that knows a little, and words it has not seen.
fn run(output: &str) -> (tempfile::TempDir, Run) {
    let demo = demo();
    let train: Vec<Example> = demo.train.into_iter().filter(|e| e.language == "english").collect();
    let unseen = demo.unseen.into_iter().map(|u| u.example).filter(|e| e.language == "english");
    let folder = tempfile::tempdir().expect("a folder");
    let output = Choice::of(output);
    let settings = Settings { size: 32, batch: 16, epochs: 5, rate: 4e-3, output, ..Settings::default() };
    let validation: Vec<Example> = unseen.take(24).collect();
    let mut trainer = Trainer::new(folder.path(), settings, &train, &validation).expect("starts");
    assert_eq!(trainer.run(&mut Silent).expect("trains"), Outcome::Finished);
    let run = Run::open(folder.path()).expect("opens");
    (folder, run)
}

/// Probabilities are single-precision numbers rounded once: a row of `n` of them sums to 1 within `n` halves of an ulp.
const ROW: f64 = 1e-5;

#[test]
fn attention_and_alternatives_of_every_step_are_distributions() {
    let (_folder, run) = run("entmax15");
    let pairs: Vec<Pair> = run.validation.iter().map(|example| run.task.pair(example)).collect();
    let ways = led(&run.model, &pairs).expect("decodes");
    assert_eq!(ways.len(), pairs.len());
    let mut zeros = 0;
    for (way, pair) in ways.iter().zip(&pairs) {
        let symbols: Vec<u32> = way.iter().map(|step| step.symbol).collect();
        assert_eq!(symbols, [&pair.target[..], &[END]].concat());
        for step in way {
            assert_eq!(step.attention.len(), pair.source.len());
            let sum: f64 = step.attention.iter().map(|w| f64::from(*w)).sum();
            assert!((sum - 1.0).abs() < ROW, "{sum}");
            let sum: f64 = step.next.iter().map(|entry| entry.probability).sum();
            assert!((sum - 1.0).abs() < ROW, "{sum}");
            let own = step.next.iter().find(|entry| entry.symbol == step.symbol).map_or(0.0, |e| e.probability);
            assert_eq!(step.probability, own);
            zeros += step.attention.iter().filter(|w| **w == 0.0).count();
        }
    }
    assert!(zeros > 0, "1.5-entmax rules positions out");
}

#[test]
fn a_tree_holds_what_enumeration_finds() {
    let (_folder, run) = run("sparsemax");
    let pairs: Vec<Pair> = run.validation.iter().map(|example| run.task.pair(example)).collect();
    let sources: Vec<&[u32]> = pairs.iter().map(|pair| &pair.source[..]).collect();
    let budget = 400;
    let trees = trees(&run.model, &sources, budget).expect("decodes");
    let mut translator = Translator::new(&run.model, &sources);
    let found = decode(&mut translator, sources.len(), Limits::default(), |_, o| BestFirst::all(budget, o));
    let (mut complete, mut branching) = (0, 0);
    for (tree, found) in trees.iter().zip(found.expect("decodes")) {
        let words = tree.words();
        let total: f64 = words.iter().map(|word| word.probability()).sum();
        // One rounding in single precision at each of at most a hundred steps.
        assert!(total <= 1.0 + 100.0 * ROW, "{total}");
        assert!((total + tree.open_mass() - 1.0).abs() < 100.0 * ROW, "{total} + {}", tree.open_mass());
        assert_eq!(tree.is_complete(), found.is_complete());
        if tree.is_complete() {
            complete += 1;
            branching += usize::from(words.len() > 1);
            assert_eq!(words, found.hypotheses);
        }
        for (at, node) in tree.nodes.iter().enumerate() {
            assert!(node.parent.is_none_or(|parent| parent < at && tree.nodes[parent].children.contains(&at)));
            assert_eq!(node.children.is_empty(), node.kind != Kind::Read);
        }
    }
    assert!(complete > 0 && branching > 0, "{complete} complete trees, {branching} of more than one word");
}

#[test]
fn a_search_that_gives_up_says_so() {
    let task = Task::new(&demo().train);
    let (source_symbols, target_symbols) = (task.source.len(), task.target.len());
    let (attention, output) = (Choice::of("softmax"), Choice::of("softmax"));
    let config = Config { source_symbols, target_symbols, size: 8, layers: 1, dropout: 0.0, attention, output };
    let model = Seq2Seq::new(config, 1).expect("a model");
    let source = task.pair(&demo().unseen[0].example).source;
    for budget in [0, 1, 50] {
        let tree = trees(&model, &[&source], budget).expect("decodes").remove(0);
        assert!(!tree.is_complete());
        assert_eq!(tree.expansions, budget);
        // Softmax gives every word a probability: what is found and what is open are all there is.
        let found: f64 = tree.words().iter().map(|word| word.probability()).sum();
        assert!((found + tree.open_mass() - 1.0).abs() < 100.0 * ROW, "{found} + {}", tree.open_mass());
    }
}

#[test]
fn answers_agree_with_the_way_to_them() {
    let (_folder, run) = run("entmax15");
    let words: Vec<&Example> = run.validation.iter().collect();
    let answers = survey(&run.model, &run.task, &words, 5).expect("decodes");
    let mut compared = 0;
    for (example, answer) in words.iter().zip(&answers) {
        assert_eq!(answer.is_right, example.form.as_deref() == Some(&answer.word[..]));
        let Some(best) = answer.best() else { continue };
        let pair = Pair { source: run.task.pair(example).source, target: best.symbols.clone() };
        let way = led(&run.model, &[pair]).expect("decodes").remove(0);
        // The same numbers, summed in the same order.
        assert_eq!(log_probability(&way), best.log_probability);
        compared += 1;
    }
    assert!(compared > 0);
}
