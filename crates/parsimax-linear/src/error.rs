//! What goes wrong when a model is fitted, applied, saved or loaded.

use std::fmt;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// A sentence that says operation, expected, got.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// Lengths that must agree do not, or a number is no number.
    Data {
        /// What was looked at.
        what: &'static str,
        /// What it should have been.
        expected: String,
        /// What it was.
        got: String,
    },
    /// An option is out of its range.
    Option {
        /// Its name.
        name: &'static str,
        /// Its range, in words.
        expected: &'static str,
        /// What was given.
        got: String,
    },
    /// The core refused: an unknown mapping, a parameter out of range.
    Core(parsimax::Error),
    /// A model file cannot be written or read.
    File {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
}

impl Error {
    pub(crate) fn data(what: &'static str, expected: impl Into<String>, got: impl ToString) -> Self {
        Self::Data { what, expected: expected.into(), got: got.to_string() }
    }

    pub(crate) fn file(path: &std::path::Path, reason: impl ToString) -> Self {
        let reason = reason.to_string();
        // "No such file or directory (os error 2)": the number helps nobody.
        let reason = reason.split(" (os error").next().unwrap_or(&reason).to_owned();
        Self::File { path: path.display().to_string(), reason }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { what, expected, got } => write!(f, "{what}: expected {expected}, got {got}"),
            Self::Option { name, expected, got } => write!(f, "{name} must be {expected}, got {got}"),
            Self::Core(error) => write!(f, "{error}"),
            Self::File { path, reason } => write!(f, "{path}: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<parsimax::Error> for Error {
    fn from(error: parsimax::Error) -> Self {
        Self::Core(error)
    }
}
