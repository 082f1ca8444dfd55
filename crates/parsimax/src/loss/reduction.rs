//! From one loss per row to the result: nothing, the sum, or the mean.

use crate::numeric;

/// How the losses of the rows become the result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reduction {
    /// One value per row, 0 for ignored rows. The gradient is that of their sum.
    None,
    /// The sum over the rows.
    Sum,
    /// The sum over the rows, divided by the number of targets that are not ignored.
    ///
    /// With class weights the divisor is, as in `torch.nn.functional.cross_entropy`, the sum of the
    /// targets' weights for class indices (and of their mean weight for label sets), and the number
    /// of rows for soft targets. A divisor of 0 (all ignored) gives 0 with gradient 0.
    #[default]
    Mean,
}

/// The result of a loss over a batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Loss {
    /// The loss of every row, in the order of the outer axes: the answer to [`Reduction::None`].
    Rows(Vec<f64>),
    /// The sum or the mean.
    Value(f64),
}

impl Loss {
    /// The sum or mean, if the loss was reduced.
    #[must_use]
    pub fn value(&self) -> Option<f64> {
        match self {
            Self::Rows(_) => None,
            Self::Value(value) => Some(*value),
        }
    }

    /// The loss of every row, if it was not reduced.
    #[must_use]
    pub fn rows(&self) -> Option<&[f64]> {
        match self {
            Self::Rows(rows) => Some(rows),
            Self::Value(_) => None,
        }
    }
}

impl Reduction {
    /// What the losses of the rows, and so their gradients, are divided by; `mass` is the divisor of
    /// the mean. `None` stands for a mean over nothing, which is 0.
    pub(super) fn divisor(self, mass: impl FnOnce() -> f64) -> Option<f64> {
        match self {
            Self::None | Self::Sum => Some(1.0),
            Self::Mean => Some(mass()).filter(|mass| *mass > 0.0),
        }
    }

    /// Reduces the losses of the rows.
    pub(super) fn reduce(self, rows: Vec<f64>, divisor: Option<f64>) -> Loss {
        match (self, divisor) {
            (Self::None, _) => Loss::Rows(rows),
            (_, None) => Loss::Value(0.0),
            (_, Some(divisor)) => Loss::Value(total(&rows) / divisor),
        }
    }
}

/// The compensated sum, in row order. Infinite losses are kept out of the compensation, which would
/// make NaN of them; losses are never negative, so one of them decides the sum.
fn total(rows: &[f64]) -> f64 {
    if rows.contains(&f64::INFINITY) { f64::INFINITY } else { numeric::sum(rows.iter().copied()) }
}
