//! What is wrong with a file, and where.

use std::fmt;

/// The result of every reader.
pub type Result<T> = std::result::Result<T, Error>;

/// A complaint about a file: its name, the line if one is to blame, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The file, as it was named by the caller.
    pub file: String,
    /// The line, counted from 1; `None` if the whole file is meant.
    pub line: Option<usize>,
    /// What was expected, what was found.
    pub what: String,
}

impl Error {
    /// A complaint about the whole file.
    pub(crate) fn file(file: &str, what: impl Into<String>) -> Self {
        Self { file: file.into(), line: None, what: what.into() }
    }

    /// A complaint about one line.
    pub(crate) fn line(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self { file: file.into(), line: Some(line), what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}: line {line}: {}", self.file, self.what),
            None => write!(f, "{}: {}", self.file, self.what),
        }
    }
}

impl std::error::Error for Error {}
