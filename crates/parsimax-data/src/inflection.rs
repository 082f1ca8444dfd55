//! Morphological inflection: from a lemma and tags to a form.
//!
//! The files of the CoNLL–SIGMORPHON 2018 shared task, one example a line, fields separated by tabs:
//!
//! ```text
//! lemma   form   tag;tag;…        <language>-train-low, -train-medium, -train-high, -dev, -test
//! lemma   tag;tag;…               <language>-covered-test
//! ```
//!
//! They are read from a folder, from a folder of `.tar.gz` archives, or straight from one archive; where the
//! folders are inside does not matter, the file's name says what it is. [`to_tsv`] and [`from_tsv`] keep examples of
//! several languages in one file: the same fields behind a column for the language.

use crate::{Error, Result};
use flate2::read::GzDecoder;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A lemma, its tags, and the form if it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// The language's name, as in the file's name.
    pub language: String,
    /// The dictionary form.
    pub lemma: String,
    /// What it should become.
    pub tags: Vec<String>,
    /// The inflected form; covered test files do not tell.
    pub form: Option<String>,
}

/// How much training data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// About 100 words a language.
    Low,
    /// About 1,000.
    Medium,
    /// About 10,000.
    High,
}

/// A part of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// To learn from.
    Train(Setting),
    /// To choose by.
    Dev,
    /// To report on.
    Test,
    /// Test without the answers.
    CoveredTest,
}

impl Setting {
    const ALL: [(&str, Self); 3] = [("low", Self::Low), ("medium", Self::Medium), ("high", Self::High)];
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, s)| s == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, setting)| *setting);
        known.ok_or_else(|| format!("unknown setting '{text}'; expected low, medium or high"))
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Train(setting) => write!(f, "train-{setting}"),
            Self::Dev => f.write_str("dev"),
            Self::Test => f.write_str("test"),
            Self::CoveredTest => f.write_str("covered-test"),
        }
    }
}

impl FromStr for Split {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "dev" => Ok(Self::Dev),
            "test" => Ok(Self::Test),
            "covered-test" => Ok(Self::CoveredTest),
            _ => {
                let setting = text.strip_prefix("train-").and_then(|setting| setting.parse().ok());
                setting.map(Self::Train).ok_or_else(|| {
                    format!("unknown split '{text}'; expected train-low, train-medium, train-high, dev, test or covered-test")
                })
            }
        }
    }
}

impl Split {
    /// The language of a file that holds this split.
    fn language_of(self, file_name: &str) -> Option<&str> {
        let language = file_name.strip_suffix(&self.to_string())?.strip_suffix('-')?;
        // `x-covered-test` ends in `-test` too.
        let is_covered = self == Self::Test && language.ends_with("-covered");
        (!language.is_empty() && !is_covered).then_some(language)
    }
}

/// The examples of some languages, language by language as asked for.
///
/// # Errors
/// If nothing can be read, a language is not there, or a line is malformed.
pub fn read(path: &Path, languages: &[String], split: Split) -> Result<Vec<Example>> {
    let mut files = files(path, split, &|language| languages.iter().any(|l| l == language))?;
    let mut examples = Vec::new();
    for language in languages {
        let Some(file) = files.remove(language) else {
            return Err(missing(path, language, split));
        };
        examples.extend(parse(language, &file.name, &file.bytes, split)?);
    }
    Ok(examples)
}

/// The languages that have a split, in alphabetical order.
///
/// # Errors
/// If nothing can be read.
pub fn languages(path: &Path, split: Split) -> Result<Vec<String>> {
    Ok(files(path, split, &|_| true)?.into_keys().collect())
}

/// The examples of one file of a split.
///
/// # Errors
/// If a line is malformed: its number is in the error.
pub fn parse(language: &str, file: &str, bytes: &[u8], split: Split) -> Result<Vec<Example>> {
    lines(file, bytes, |fields| {
        let (lemma, form, tags) = match (split, fields) {
            (Split::CoveredTest, [lemma, tags]) => (lemma, None, tags),
            (Split::CoveredTest, _) => return Err(expected("lemma and tags, separated by a tab", fields)),
            (_, [lemma, form, tags]) => (lemma, Some(*form), tags),
            _ => return Err(expected("lemma, form and tags, separated by tabs", fields)),
        };
        example(language, lemma, form, tags)
    })
}

/// Examples of several languages as one text: language, lemma, form and tags, separated by tabs. A form that is not
/// known is left out.
#[must_use]
pub fn to_tsv(examples: &[Example]) -> String {
    let mut text = String::new();
    for Example { language, lemma, tags, form } in examples {
        let form = form.as_ref().map_or(String::new(), |form| format!("{form}\t"));
        text += &format!("{language}\t{lemma}\t{form}{}\n", tags.join(";"));
    }
    text
}

/// Reads what [`to_tsv`] wrote.
///
/// # Errors
/// If a line is malformed: its number is in the error.
pub fn from_tsv(file: &str, bytes: &[u8]) -> Result<Vec<Example>> {
    lines(file, bytes, |fields| match fields {
        [language, lemma, form, tags] => example(language, lemma, Some(form), tags),
        [language, lemma, tags] => example(language, lemma, None, tags),
        _ => Err(expected("language, lemma, form and tags, separated by tabs", fields)),
    })
}

fn expected(what: &str, fields: &[&str]) -> String {
    format!("expected {what}; got {} fields", fields.len())
}

/// An example of the fields of a line; a complaint if one is empty.
fn example(language: &str, lemma: &str, form: Option<&str>, tags: &str) -> std::result::Result<Example, String> {
    let fields = [("language", Some(language)), ("lemma", Some(lemma)), ("form", form), ("tag list", Some(tags))];
    if let Some((name, _)) = fields.iter().find(|(_, field)| field.is_some_and(|field| field.trim().is_empty())) {
        return Err(format!("the {name} is empty"));
    }
    Ok(Example {
        language: language.to_owned(),
        lemma: lemma.to_owned(),
        tags: tags.split(';').map(str::to_owned).collect(),
        form: form.map(str::to_owned),
    })
}

/// Reads line by line; a complaint gets its place.
fn lines(
    file: &str,
    bytes: &[u8],
    read: impl Fn(&[&str]) -> std::result::Result<Example, String>,
) -> Result<Vec<Example>> {
    let mut examples = Vec::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        let text = std::str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"));
        let example = text.and_then(|text| read(&text.split('\t').collect::<Vec<_>>()));
        examples.push(example.map_err(|what| Error::line(file, number + 1, what))?);
    }
    Ok(examples)
}

/// What the system said of a file.
fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    move |error| Error::file(&path.display().to_string(), error.to_string())
}

/// A file of the split, whole.
struct Content {
    name: String,
    bytes: Vec<u8>,
}

fn missing(path: &Path, language: &str, split: Split) -> Error {
    let known = languages(path, split).unwrap_or_default();
    let what = if known.is_empty() {
        format!("no file named <language>-{split}, here or in an archive (.tar.gz)")
    } else {
        let some = known.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if known.len() > 8 { ", …" } else { "" };
        format!("no {split} data for '{language}'; there are {} languages: {some}{more}", known.len())
    };
    Error::file(&path.display().to_string(), what)
}

/// The files of a split below a path, by language; the first of a name counts.
fn files(path: &Path, split: Split, wanted: &dyn Fn(&str) -> bool) -> Result<BTreeMap<String, Content>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        if std::fs::metadata(&path).map_err(io(&path))?.is_dir() {
            // The last goes first from a stack.
            waiting.extend(entries(&path)?.into_iter().rev());
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
            unpack(&path, split, wanted, &mut found)?;
        } else if let Some(language) = split.language_of(name).filter(|l| wanted(l) && !found.contains_key(*l)) {
            let bytes = std::fs::read(&path).map_err(io(&path))?;
            found.insert(language.to_owned(), Content { name: path.display().to_string(), bytes });
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = std::fs::read_dir(folder).and_then(|entries| entries.map(|e| Ok(e?.path())).collect());
    let mut paths: Vec<PathBuf> = read.map_err(io(folder))?;
    paths.sort();
    Ok(paths)
}

fn unpack(
    path: &Path,
    split: Split,
    wanted: &dyn Fn(&str) -> bool,
    found: &mut BTreeMap<String, Content>,
) -> Result<()> {
    let file = File::open(path).map_err(io(path))?;
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    for entry in archive.entries().map_err(io(path))? {
        let mut entry = entry.map_err(io(path))?;
        let inside = entry.path().map_err(io(path))?.into_owned();
        let name = inside.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let language = split.language_of(name).filter(|l| wanted(l) && !found.contains_key(*l));
        if let (Some(language), true) = (language, entry.header().entry_type().is_file()) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(io(path))?;
            let name = format!("{}!{}", path.display(), inside.display());
            found.insert(language.to_owned(), Content { name, bytes });
        }
    }
    Ok(())
}
