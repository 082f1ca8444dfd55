//! Symbols and their numbers.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use unicode_segmentation::UnicodeSegmentation;

/// Fills a batch up to its longest row.
pub const PAD: u32 = 0;
/// Stands for a symbol that was not in the training data.
pub const UNKNOWN: u32 = 1;
/// Stands before the first symbol of a sequence.
pub const BEGIN: u32 = 2;
/// Ends a sequence.
pub const END: u32 = 3;

const SPECIAL: [&str; 4] = ["<pad>", "<unknown>", "<begin>", "<end>"];

/// A set of symbols, each with a number. The numbers follow from the set alone: symbols in order of their text,
/// behind the special ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Vocabulary {
    symbols: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Vocabulary {
    /// From the symbols of the training data.
    pub fn new<T: AsRef<str>>(symbols: impl IntoIterator<Item = T>) -> Self {
        let known: BTreeSet<String> = symbols.into_iter().map(|s| s.as_ref().to_owned()).collect();
        let own = known.into_iter().filter(|s| !SPECIAL.contains(&s.as_str()));
        Self::numbered(SPECIAL.iter().map(|s| (*s).to_owned()).chain(own).collect())
    }

    fn numbered(symbols: Vec<String>) -> Self {
        let numbers = symbols.iter().enumerate().map(|(i, s)| (s.clone(), i as u32)).collect();
        Self { symbols, numbers }
    }

    /// How many symbols, special ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Never: the special symbols are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The number of a symbol, [`UNKNOWN`] if it has none. Special symbols cannot be spelled.
    #[must_use]
    pub fn number(&self, symbol: &str) -> u32 {
        self.numbers.get(symbol).copied().filter(|n| *n as usize >= SPECIAL.len()).unwrap_or(UNKNOWN)
    }

    /// The symbol of a number.
    #[must_use]
    pub fn symbol(&self, number: u32) -> Option<&str> {
        self.symbols.get(number as usize).map(String::as_str)
    }
}

impl From<Vocabulary> for Vec<String> {
    fn from(vocabulary: Vocabulary) -> Self {
        vocabulary.symbols
    }
}

impl TryFrom<Vec<String>> for Vocabulary {
    type Error = String;

    fn try_from(symbols: Vec<String>) -> Result<Self, String> {
        if symbols.len() < SPECIAL.len() || symbols.iter().zip(SPECIAL).any(|(a, b)| a != b) {
            return Err(format!("a vocabulary begins with {}", SPECIAL.join(", ")));
        }
        let count = symbols.len();
        let vocabulary = Self::numbered(symbols);
        if vocabulary.numbers.len() < count {
            return Err("a symbol stands in the vocabulary twice".to_owned());
        }
        Ok(vocabulary)
    }
}

/// The characters of a text as a reader sees them: letters with their marks, never half of one.
pub fn characters(text: &str) -> impl Iterator<Item = &str> {
    text.graphemes(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_the_set_alone() {
        let a = Vocabulary::new(["b", "a", "b", "ä"]);
        assert_eq!(a, Vocabulary::new(["ä", "a", "b"]));
        assert_eq!((a.number("a"), a.number("b"), a.number("z")), (4, 5, UNKNOWN));
        assert_eq!(a.symbol(6), Some("ä"));
        assert_eq!(a.symbol(7), None);
    }

    #[test]
    fn a_special_symbol_in_the_data_is_an_unknown_one() {
        assert_eq!(Vocabulary::new(["<end>", "a"]).number("<end>"), UNKNOWN);
    }

    #[test]
    fn a_vocabulary_survives_being_saved() {
        let saved = serde_json::to_string(&Vocabulary::new(["x", "é"])).expect("writes");
        let read: Vocabulary = serde_json::from_str(&saved).expect("reads");
        assert_eq!(read, Vocabulary::new(["x", "é"]));
        for bad in [r#"["a"]"#, r#"["<pad>","<unknown>","<begin>","<end>","a","a"]"#] {
            assert!(serde_json::from_str::<Vocabulary>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_letter_keeps_its_marks() {
        // g + combining tilde, and a Devanagari syllable.
        assert_eq!(characters("ag\u{303}b").collect::<Vec<_>>(), ["a", "g\u{303}", "b"]);
        assert_eq!(characters("नि").count(), 1);
    }
}
