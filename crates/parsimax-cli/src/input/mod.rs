//! Tables of scores, from text or `.npy`, checked before anything is computed.

mod npy;
mod text;

use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

use crate::{Failure, Result};

/// Where scores come from.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Source {
    Stdin,
    File(PathBuf),
}

impl Source {
    /// Nothing and `-` are standard input.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        match path {
            Some(path) if path.as_os_str() != "-" => Self::File(path),
            _ => Self::Stdin,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Stdin => "standard input".into(),
            Self::File(path) => path.display().to_string(),
        }
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        match self {
            Self::Stdin => {
                let mut bytes = Vec::new();
                io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
            }
            Self::File(path) => fs::read(path),
        }
    }
}

/// At least one row, at least one column, and scores that are finite or `-inf`.
#[derive(Debug)]
pub(crate) struct Table {
    name: String,
    z: Vec<f64>,
    columns: usize,
    places: Places,
}

/// What an error message calls an entry.
#[derive(Debug)]
enum Places {
    /// The line of every row, counted from 1.
    Lines(Vec<usize>),
    /// The shape of an array, indexed from 0.
    Array(Vec<usize>),
}

/// Reads all of `source`.
pub(crate) fn read(source: &Source) -> Result<Table> {
    let name = source.name();
    let bytes = source.bytes().map_err(|error| Failure::io(&name, &error))?;
    let claims_npy = matches!(source, Source::File(path) if path.extension().is_some_and(|e| e == "npy"));
    parse(name, &bytes, claims_npy)
}

fn parse(name: String, bytes: &[u8], claims_npy: bool) -> Result<Table> {
    let parsed = if bytes.is_empty() {
        Err("empty: there are no scores to map".into())
    } else if claims_npy || bytes.starts_with(npy::MAGIC) {
        npy::parse(bytes).map(|(shape, z)| (z, shape.last().copied().unwrap_or(0), Places::Array(shape)))
    } else {
        text::parse(bytes).map(|(columns, lines, z)| (z, columns, Places::Lines(lines)))
    };
    let (z, columns, places) = parsed.map_err(|problem: String| Failure::new(format!("{name}: {problem}")))?;
    let table = Table { name, z, columns, places };
    match table.z.iter().position(|z| z.is_nan() || *z == f64::INFINITY) {
        None => Ok(table),
        Some(at) => {
            let (row, index, value) = (at / columns, at % columns, table.z[at]);
            let place = table.place(row, Some(index));
            Err(Failure::new(format!("{place}: the score is {value}; scores must be finite, or -inf to mask an entry")))
        }
    }
}

impl Table {
    /// All rows, one after the other.
    pub(crate) fn scores(&self) -> &[f64] {
        &self.z
    }

    /// The length of a row.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// A library error, with the place in the file of the row that it speaks of.
    pub(crate) fn locate(&self, error: parsimax::Error) -> Failure {
        match error {
            parsimax::Error::Score { row, .. } | parsimax::Error::NotConverged { row, .. } => {
                Failure::new(format!("{}: {error}", self.place(row, None)))
            }
            other => other.into(),
        }
    }

    fn place(&self, row: usize, index: Option<usize>) -> String {
        match &self.places {
            Places::Lines(lines) => {
                let line = lines.get(row).copied().unwrap_or(0);
                let field = index.map_or(String::new(), |index| format!(", field {}", index + 1));
                format!("{}: line {line}{field}", self.name)
            }
            Places::Array(shape) => {
                let axes = shape.split_last().map_or(&[][..], |(_, outer)| outer);
                let mut position = unravel(row, axes);
                position.extend(index);
                let position: Vec<String> = position.iter().map(usize::to_string).collect();
                format!("{}: entry [{}]", self.name, position.join(", "))
            }
        }
    }
}

/// The index along every axis of the entry at `at` in row-major order.
fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut index: Vec<usize> = shape
        .iter()
        .rev()
        .map(|n| {
            let i = at % n;
            at /= n;
            i
        })
        .collect();
    index.reverse();
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: &[u8], claims_npy: bool) -> String {
        match parse("scores".into(), bytes, claims_npy) {
            Err(Failure::Message(message)) => message,
            other => panic!("{other:?} must fail"),
        }
    }

    #[test]
    fn bad_scores_have_a_line_and_a_field() {
        assert!(message(b"1 2\n\n# note\n3,NaN\n", false).starts_with("scores: line 4, field 2: the score is NaN"));
        assert!(message(b"1 inf\n", false).starts_with("scores: line 1, field 2: the score is inf"));
    }

    #[test]
    fn emptiness_is_an_error() {
        assert!(message(b"", false).contains("empty"));
        assert!(message(b"", true).contains("empty"));
        assert!(message(b"# nothing\n\n", false).contains("no scores"));
    }

    #[test]
    fn unravel_counts_the_last_axis_fastest() {
        assert_eq!(unravel(7, &[2, 4]), [1, 3]);
        assert_eq!(unravel(0, &[]), [0usize; 0]);
    }
}
