//! Examples as numbers.

use crate::seq2seq::Pair;
use parsimax_data::inflection::Example;
use parsimax_data::vocabulary::{UNKNOWN, Vocabulary, characters};
use serde::{Deserialize, Serialize};

/// The symbols of both sides.
///
/// A source is the language, then the tags, then the characters of the lemma; a target is the characters of the form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Languages, tags and characters.
    pub source: Vocabulary,
    /// Characters.
    pub target: Vocabulary,
}

/// Languages and tags carry a mark, so that they are never mistaken for a character.
fn language_symbol(language: &str) -> String {
    format!("language:{language}")
}

fn tag_symbol(tag: &str) -> String {
    format!("tag:{tag}")
}

fn source_symbols(example: &Example) -> Vec<String> {
    let language = std::iter::once(language_symbol(&example.language));
    let tags = example.tags.iter().map(|tag| tag_symbol(tag));
    language.chain(tags).chain(characters(&example.lemma).map(str::to_owned)).collect()
}

impl Task {
    /// From the training data. Characters of either side belong to both: a name is copied though its capital was only
    /// seen in lemmas.
    #[must_use]
    pub fn new(examples: &[Example]) -> Self {
        let forms = || examples.iter().flat_map(|e| e.form.iter().flat_map(|form| characters(form)));
        let lemmas = || examples.iter().flat_map(|e| characters(&e.lemma));
        let source = Vocabulary::new(
            examples.iter().flat_map(source_symbols).chain(forms().map(str::to_owned)).collect::<Vec<_>>(),
        );
        Self { source, target: Vocabulary::new(forms().chain(lemmas())) }
    }

    /// An example as numbers; what was never seen becomes the unknown symbol, and a form that is not known is empty.
    #[must_use]
    pub fn pair(&self, example: &Example) -> Pair {
        Pair {
            source: source_symbols(example).iter().map(|s| self.source.number(s)).collect(),
            target: example.form.iter().flat_map(|f| characters(f)).map(|c| self.target.number(c)).collect(),
        }
    }

    /// The names of the source positions of an example, for people.
    #[must_use]
    pub fn positions(example: &Example) -> Vec<String> {
        let tags = std::iter::once(&example.language).chain(&example.tags).cloned();
        tags.chain(characters(&example.lemma).map(str::to_owned)).collect()
    }

    /// A target as text; the unknown symbol is shown as �.
    #[must_use]
    pub fn text(&self, symbols: &[u32]) -> String {
        symbols.iter().map(|s| if *s == UNKNOWN { "�" } else { self.target.symbol(*s).unwrap_or("�") }).collect()
    }

    /// The languages, in alphabetical order.
    #[must_use]
    pub fn languages(&self) -> Vec<&str> {
        let symbols = (0..self.source.len()).filter_map(|n| self.source.symbol(n as u32));
        symbols.filter_map(|symbol| symbol.strip_prefix("language:")).collect()
    }

    /// Languages, tags and characters of an example that the model has never seen, as in "tag 'PST'".
    #[must_use]
    pub fn unseen(&self, example: &Example) -> Vec<String> {
        let kind = |position: usize| match position {
            0 => "language",
            p if p <= example.tags.len() => "tag",
            _ => "character",
        };
        let symbols = source_symbols(example).into_iter().zip(Self::positions(example)).enumerate();
        let unseen = symbols.filter(|(_, (symbol, _))| self.source.number(symbol) == UNKNOWN);
        unseen.map(|(position, (_, name))| format!("{} '{name}'", kind(position))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(lemma: &str, tags: &str, form: &str) -> Example {
        let tags = tags.split(';').map(str::to_owned).collect();
        Example { language: "x".into(), lemma: lemma.into(), tags, form: Some(form.into()) }
    }

    #[test]
    fn a_form_survives_being_numbers() {
        let seen = [example("ab", "V;PST", "abé"), example("Nb", "N", "nb")];
        let task = Task::new(&seen);
        for e in &seen {
            let pair = task.pair(e);
            assert_eq!(Some(task.text(&pair.target)), e.form);
            assert_eq!(pair.source.len(), Task::positions(e).len());
            assert!(task.unseen(e).is_empty());
        }
    }

    #[test]
    fn tags_are_not_characters_and_unseen_ones_are_named() {
        let task = Task::new(&[example("V", "V", "V")]);
        let pair = task.pair(&example("V", "V", "V"));
        assert_ne!(pair.source[1], pair.source[2]);
        assert_eq!(task.unseen(&example("Vø", "V;PST", "V")), ["tag 'PST'", "character 'ø'"]);
        let mut foreign = example("V", "V", "V");
        foreign.language = "y".into();
        assert_eq!(task.unseen(&foreign), ["language 'y'"]);
        assert_eq!(task.languages(), ["x"]);
        assert_eq!(task.text(&[1]), "�");
    }
}
