//! What can be wrong with a request for a figure.

use std::fmt;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in one sentence.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A mapping's own complaint: an unknown name, a parameter out of range.
    Mapping(parsimax::Error),
    /// No figure has this name.
    UnknownFigure(String),
    /// An option that the figure cannot honour.
    Option {
        /// The figure that was asked for.
        figure: &'static str,
        /// The option.
        option: &'static str,
        /// What would be right, in words.
        expected: String,
        /// What was given.
        got: String,
    },
    /// The picture cannot be drawn as pixels.
    Pixels(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mapping(error) => error.fmt(f),
            Self::UnknownFigure(name) => {
                write!(f, "unknown figure '{name}' (known: {})", crate::figures::names().join(", "))
            }
            Self::Option { figure, option, expected, got } => {
                write!(f, "{figure}: {option} must be {expected}, got {got}")
            }
            Self::Pixels(reason) => write!(f, "PNG: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<parsimax::Error> for Error {
    fn from(error: parsimax::Error) -> Self {
        Self::Mapping(error)
    }
}
