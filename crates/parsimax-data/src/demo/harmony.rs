//! Two languages made by rule.
//!
//! **Suvali** nouns take suffixes whose vowels agree with the last vowel of the stem, front (e, i, ö, ü) or back
//! (a, ı, o, u), and high ones with its roundness too: number, possessor and case, in that order.
//!
//! **Tirona** verbs change their stem: the first vowel is raised in the past (a→e, e→i, o→u; i and u stay), the
//! first syllable is doubled in the frequentative, the subject is a prefix, and a plural subject adds `-mi`.

use fastrand::Rng;
use std::collections::BTreeSet;

const VOWELS: [char; 8] = ['a', 'ı', 'o', 'u', 'e', 'i', 'ö', 'ü'];

/// Vowels that agree with the last vowel of a word: the low one of a suffix and the high one.
fn harmony(word: &str) -> (char, char) {
    match word.chars().rev().find(|c| VOWELS.contains(c)) {
        Some('a' | 'ı') | None => ('a', 'ı'),
        Some('o' | 'u') => ('a', 'u'),
        Some('e' | 'i') => ('e', 'i'),
        Some(_) => ('e', 'ü'),
    }
}

/// Adds a suffix: `A` is a low vowel, `I` a high one, a leading `+` is a consonant that stands only after a vowel.
fn suffixed(word: &str, suffix: &str) -> String {
    let mut word = word.to_owned();
    let after_vowel = word.ends_with(VOWELS);
    let mut rest = suffix;
    if let Some(linked) = suffix.strip_prefix('+') {
        rest = if after_vowel { linked } else { &linked[1..] };
    }
    for c in rest.chars() {
        let (low, high) = harmony(&word);
        word.push(match c {
            'A' => low,
            'I' => high,
            c => c,
        });
    }
    word
}

const NUMBERS: [(&str, &str); 2] = [("SG", ""), ("PL", "lAr")];
const OWNERS: [(&str, &str); 3] = [("", ""), ("PSS1S", "+mIm"), ("PSS3S", "+sI")];
const CASES: [(&str, &str); 4] = [("NOM", ""), ("GEN", "+nIn"), ("LOC", "dA"), ("ABL", "dAn")];

/// Every form of a noun of Suvali, with its tags.
pub(super) fn suvali(stem: &str) -> Vec<(String, String)> {
    let mut forms = Vec::new();
    for (number, plural) in NUMBERS {
        for (owner, possessive) in OWNERS {
            for (case, ending) in CASES {
                let form = suffixed(&suffixed(&suffixed(stem, plural), possessive), ending);
                let tags = ["N", case, number, owner].into_iter().filter(|t| !t.is_empty());
                forms.push((form, tags.collect::<Vec<_>>().join(";")));
            }
        }
    }
    forms
}

const SUBJECTS: [(&str, &str, &str); 4] =
    [("1;SG", "na", ""), ("2;SG", "ti", ""), ("3;SG", "", ""), ("1;PL", "na", "mi")];

/// Every form of a verb of Tirona, with its tags.
pub(super) fn tirona(stem: &str) -> Vec<(String, String)> {
    let mut forms = Vec::new();
    for (aspect, doubled) in [("", false), ("FREQ", true)] {
        for (tense, raised) in [("PRS", false), ("PST", true)] {
            for (subject, prefix, suffix) in SUBJECTS {
                let stem = if raised { raise(stem) } else { stem.to_owned() };
                let double = if doubled { &stem[..2] } else { "" };
                let tags = ["V", tense, aspect, subject].into_iter().filter(|t| !t.is_empty());
                forms.push((format!("{prefix}{double}{stem}{suffix}"), tags.collect::<Vec<_>>().join(";")));
            }
        }
    }
    forms
}

fn raise(stem: &str) -> String {
    let mut is_first = true;
    let raised = stem.chars().map(|c| match c {
        'a' | 'e' | 'o' | 'i' | 'u' if is_first => {
            is_first = false;
            match c {
                'a' => 'e',
                'e' => 'i',
                'o' => 'u',
                other => other,
            }
        }
        c => c,
    });
    raised.collect()
}

/// Stems of two or three syllables, each once.
pub(super) fn stems(count: usize, vowels: &[char], consonants: &str, seed: u64) -> Vec<String> {
    let mut random = Rng::with_seed(seed);
    let consonants: Vec<char> = consonants.chars().collect();
    let mut seen = BTreeSet::new();
    let mut stems = Vec::new();
    while stems.len() < count {
        let mut stem = String::new();
        for _ in 0..random.usize(2..=3) {
            stem.push(consonants[random.usize(..consonants.len())]);
            stem.push(vowels[random.usize(..vowels.len())]);
        }
        if random.bool() {
            stem.push(consonants[random.usize(..consonants.len())]);
        }
        if seen.insert(stem.clone()) {
            stems.push(stem);
        }
    }
    stems
}

/// Stems of Suvali, whose vowels agree among themselves.
pub(super) fn suvali_stems(count: usize) -> Vec<String> {
    let (back, front) = VOWELS.split_at(4);
    let mut all = stems(count / 2, back, "bdgklmnprstvyz", 11);
    all.extend(stems(count - count / 2, front, "bdgklmnprstvyz", 12));
    Rng::with_seed(13).shuffle(&mut all);
    all
}

/// Stems of Tirona.
pub(super) fn tirona_stems(count: usize) -> Vec<String> {
    stems(count, &['a', 'e', 'i', 'o', 'u'], "bdfhjklmnprstw", 21)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(forms: &[(String, String)], tags: &str) -> String {
        forms.iter().find(|(_, t)| t == tags).expect("a form").0.clone()
    }

    #[test]
    fn suffixes_of_suvali_agree_with_the_stem() {
        let of = |stem, tags| form(&suvali(stem), tags);
        assert_eq!(of("tural", "N;GEN;PL"), "turalların");
        assert_eq!(of("kitöm", "N;LOC;SG"), "kitömde");
        assert_eq!(of("kitöm", "N;GEN;SG"), "kitömün");
        assert_eq!(of("suva", "N;GEN;SG"), "suvanın");
        assert_eq!(of("suva", "N;ABL;PL;PSS1S"), "suvalarımdan");
        assert_eq!(of("zoru", "N;NOM;SG;PSS3S"), "zorusu");
    }

    #[test]
    fn stems_of_tirona_change_with_tense_and_aspect() {
        let of = |stem, tags| form(&tirona(stem), tags);
        assert_eq!(of("kalo", "V;PRS;3;SG"), "kalo");
        assert_eq!(of("kalo", "V;PST;1;SG"), "nakelo");
        assert_eq!(of("kalo", "V;PST;FREQ;1;PL"), "nakekelomi");
        assert_eq!(of("wupe", "V;PST;2;SG"), "tiwupe");
    }
}
