//! A small data set written for parsimax: English verbs, and two languages made by rule.
//!
//! It is embedded, so that a model can be trained with no file and no network. A lemma is either learnt from, in all
//! of its forms that were drawn, or never seen.

mod english;
mod harmony;

use crate::inflection::Example;
use fastrand::Rng;

/// Examples to learn from, and examples of lemmas that are not among them.
#[derive(Debug, Clone)]
pub struct Demo {
    /// To learn from.
    pub train: Vec<Example>,
    /// Unseen lemmas.
    pub unseen: Vec<Unseen>,
}

/// An example whose lemma is not in the training data.
#[derive(Debug, Clone)]
pub struct Unseen {
    /// The example.
    pub example: Example,
    /// Whether it follows the rules of its language, so that it can be known at all.
    pub is_regular: bool,
}

/// One lemma in so many is left out of the training data.
const LEFT_OUT: usize = 8;

/// The data set; always the same.
#[must_use]
pub fn demo() -> Demo {
    let mut demo = Demo { train: Vec::new(), unseen: Vec::new() };
    let verbs = english::verbs();
    // Irregular verbs are many in the list and must be learnt one by one: only regular ones are left out in turn,
    // and a few irregular ones for the honest view.
    let english = verbs.iter().map(|verb| {
        let forms = verb.forms().into_iter().map(|(form, tags)| (form, tags.to_owned())).collect();
        (verb.lemma.to_owned(), verb.is_regular, forms)
    });
    demo.add("english", english, 4);
    let by_rule = |stems: Vec<String>, forms: fn(&str) -> Vec<(String, String)>| {
        stems.into_iter().map(move |stem| {
            let all = forms(&stem);
            (stem, true, all)
        })
    };
    demo.add("suvali", by_rule(harmony::suvali_stems(240), harmony::suvali), 5);
    demo.add("tirona", by_rule(harmony::tirona_stems(240), harmony::tirona), 5);
    demo
}

type Paradigm = (String, bool, Vec<(String, String)>);

impl Demo {
    /// Adds a language, with at most `per_lemma` forms of each lemma, drawn at random.
    fn add(&mut self, language: &str, paradigms: impl Iterator<Item = Paradigm>, per_lemma: usize) {
        let mut random = Rng::with_seed(language.len() as u64);
        for (i, (lemma, is_regular, mut forms)) in paradigms.enumerate() {
            random.shuffle(&mut forms);
            forms.truncate(per_lemma);
            for (form, tags) in forms {
                let tags = tags.split(';').map(str::to_owned).collect();
                let (language, lemma) = (language.to_owned(), lemma.clone());
                let example = Example { language, lemma, tags, form: Some(form) };
                if i % LEFT_OUT == LEFT_OUT - 1 {
                    self.unseen.push(Unseen { example, is_regular });
                } else {
                    self.train.push(example);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn unseen_lemmas_are_unseen_and_every_language_has_both() {
        let demo = demo();
        let key = |e: &Example| (e.language.clone(), e.lemma.clone());
        let seen: BTreeSet<_> = demo.train.iter().map(key).collect();
        assert!(demo.unseen.iter().all(|u| !seen.contains(&key(&u.example))));
        for language in ["english", "suvali", "tirona"] {
            let train = demo.train.iter().filter(|e| e.language == language).count();
            let unseen = demo.unseen.iter().filter(|u| u.example.language == language && u.is_regular).count();
            assert!(train > 800 && unseen > 100, "{language}: {train} and {unseen}");
        }
    }

    #[test]
    fn the_data_set_is_always_the_same() {
        assert_eq!(demo().train, demo().train);
    }

    #[test]
    fn characters_of_unseen_words_are_known() {
        let demo = demo();
        let known: BTreeSet<char> = demo.train.iter().flat_map(|e| e.lemma.chars()).collect();
        let used = demo.unseen.iter().flat_map(|u| u.example.form.iter().flat_map(|f| f.chars()));
        for c in used {
            assert!(known.contains(&c), "{c}");
        }
    }
}
