//! One error type: which operation, what it expected, what it got.

use std::fmt;

/// The result of every fallible operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, in one sentence that names the place.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Error {
    /// A parameter is outside its range.
    Parameter {
        /// The operation that takes the parameter.
        operation: &'static str,
        /// The parameter's name.
        name: &'static str,
        /// Its range, in words.
        expected: &'static str,
        /// The value that was given.
        got: f64,
    },
    /// Two lengths or shapes that must agree do not.
    Shape {
        /// The operation that was called.
        operation: &'static str,
        /// Which argument has the wrong shape.
        what: &'static str,
        /// The shape that would fit.
        expected: String,
        /// The shape that was given.
        got: String,
    },
    /// A score is NaN or +∞, which no mapping is defined for.
    Score {
        /// The operation that met the score.
        operation: &'static str,
        /// The row, counted from 0 in the order of the outer axes.
        row: usize,
        /// The position within the row.
        index: usize,
        /// The score itself.
        value: f64,
    },
    /// A target of a loss is not one: a class out of range, or weights that are no distribution.
    Target {
        /// The loss.
        operation: &'static str,
        /// The row of the target.
        row: usize,
        /// What a target must be.
        expected: String,
        /// What was given.
        got: String,
    },
    /// The mapping has no such thing, for the reason given.
    Unsupported {
        /// The mapping.
        operation: &'static str,
        /// What was asked of it.
        what: &'static str,
    },
    /// An iterative solver stopped at its limit before it reached its tolerance.
    NotConverged {
        /// The solver.
        operation: &'static str,
        /// The row it was solving.
        row: usize,
        /// The iterations it made.
        iterations: usize,
        /// How far from optimal the last iterate is.
        residual: f64,
    },
    /// No mapping has this name.
    UnknownMapping(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { operation, name, expected, got } => {
                write!(f, "{operation}: {name} must be {expected}, got {got}")
            }
            Self::Shape { operation, what, expected, got } => {
                write!(f, "{operation}: {what} must be {expected}, got {got}")
            }
            Self::Score { operation, row, index, value } => {
                write!(
                    f,
                    "{operation}: row {row}, index {index}: the score is {value}; scores must be finite, or -inf to mask an entry"
                )
            }
            Self::Target { operation, row, expected, got } => {
                write!(f, "{operation}: row {row}: the target must be {expected}, got {got}")
            }
            Self::Unsupported { operation, what } => write!(f, "{operation}: {what}"),
            Self::NotConverged { operation, row, iterations, residual } => {
                write!(f, "{operation}: row {row}: not converged after {iterations} iterations, residual {residual:e}")
            }
            Self::UnknownMapping(name) => {
                write!(f, "unknown mapping '{name}'; known: {}", crate::registry::names().join(", "))
            }
        }
    }
}

impl std::error::Error for Error {}

/// Checks a parameter once, at construction.
pub(crate) fn check(
    ok: bool,
    operation: &'static str,
    name: &'static str,
    expected: &'static str,
    got: f64,
) -> Result<()> {
    if ok { Ok(()) } else { Err(Error::Parameter { operation, name, expected, got }) }
}

/// The check that every mapping makes of its strength γ. The range keeps γ, 1/γ and their products with
/// scores of any usual size away from overflow.
pub(crate) fn check_gamma(operation: &'static str, gamma: f64) -> Result<()> {
    check((1e-100..=1e100).contains(&gamma), operation, "gamma", "a number from 1e-100 to 1e100", gamma)
}
