//! One row of a loss: the trait that a loss implements, and the row it gets to see.

use crate::law::Form;
use crate::single::Kernel;
use crate::{Error, Regularized, Result, Scratch};

/// The target of one clean row: non-negative, sums to 1.
#[derive(Debug, Clone, Copy)]
pub enum RowTarget<'a> {
    /// All mass on this entry. Rows of a large vocabulary never hold a dense target.
    Class(usize),
    /// A distribution over the entries of the row.
    Dense(&'a [f64]),
}

impl RowTarget<'_> {
    /// Calls `f(i, y_i)` for every entry with mass.
    pub fn for_each(&self, mut f: impl FnMut(usize, f64)) {
        match self {
            Self::Class(k) => f(*k, 1.0),
            Self::Dense(y) => y.iter().enumerate().filter(|(_, y)| **y > 0.0).for_each(|(i, y)| f(i, *y)),
        }
    }

    /// Replaces `p` by `p − y`.
    pub fn subtract_from(&self, p: &mut [f64]) {
        match self {
            Self::Class(k) => p[*k] -= 1.0,
            Self::Dense(y) => p.iter_mut().zip(*y).for_each(|(p, y)| *p -= y),
        }
    }

    /// $\sum_c y_c \log y_c$.
    #[must_use]
    pub fn negative_entropy(&self) -> f64 {
        match self {
            Self::Class(_) => 0.0,
            Self::Dense(y) => crate::numeric::negative_entropy(y),
        }
    }
}

/// Buffers that a loss may use while it works on a row; reused from row to row.
#[derive(Debug, Default)]
pub struct LossScratch {
    /// The buffers of the mapping.
    pub mapping: Scratch,
    /// Free for the loss.
    pub a: Vec<f64>,
    /// Free for the loss.
    pub b: Vec<f64>,
    /// All zeros between two uses.
    pub(super) zeros: Vec<f64>,
}

/// The loss of one row. [`BatchLoss`](super::BatchLoss) does the rest: shapes, masks, targets,
/// weights, reductions, threads.
///
/// Contract of every method: `row` is the row's number in the batch; `z` holds at least one entry and
/// only finite ones; all slices have the same length; outputs are overwritten.
pub trait RowLoss: Send + Sync {
    /// The name of the loss in error messages.
    fn name(&self) -> &'static str;

    /// Returns the loss of the row, ≥ 0 and possibly `+inf`, never NaN, and writes its gradient in `z`.
    fn loss_row(
        &self,
        row: usize,
        z: &[f64],
        y: RowTarget<'_>,
        gradient: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<f64>;

    /// The kernel that computes the loss of class targets in single precision, if there is one for this row.
    #[doc(hidden)]
    fn kernel(&self, _row: usize) -> Option<Kernel> {
        None
    }

    /// The mapping of a row whose Fenchel–Young loss this is.
    #[doc(hidden)]
    fn regularized(&self, _row: usize) -> Option<&dyn Regularized> {
        None
    }

    /// How a probability depends on its score, where the loss is its negative logarithm.
    #[doc(hidden)]
    fn log_form(&self) -> Option<Form> {
        None
    }

    /// The number of rows from this one on that share its kernel.
    #[doc(hidden)]
    fn kernel_run(&self, _row: usize) -> usize {
        usize::MAX
    }

    /// Writes the product of the Hessian in `z` with `v`.
    fn hvp_row(
        &self,
        _row: usize,
        _z: &[f64],
        _y: RowTarget<'_>,
        _v: &[f64],
        _out: &mut [f64],
        _scratch: &mut LossScratch,
    ) -> Result<()> {
        Err(Error::Unsupported { operation: self.name(), what: "the loss has no Hessian-vector product" })
    }
}

/// One mapping for all rows, or one per group of rows.
#[derive(Debug)]
pub(super) struct Group<'a, M: ?Sized> {
    mappings: Vec<&'a M>,
    run: usize,
}

impl<M: ?Sized> Clone for Group<'_, M> {
    fn clone(&self) -> Self {
        Self { mappings: self.mappings.clone(), run: self.run }
    }
}

impl<'a, M: ?Sized> Group<'a, M> {
    pub(super) fn one(mapping: &'a M) -> Self {
        Self { mappings: vec![mapping], run: usize::MAX }
    }

    /// Row `r` uses `mappings[(r / run) % mappings.len()]`.
    pub(super) fn many(operation: &'static str, mappings: &'a [M], run: usize) -> Result<Self>
    where
        M: Sized,
    {
        if mappings.is_empty() || run == 0 {
            return Err(Error::Shape {
                operation,
                what: "the groups",
                expected: "at least one mapping, and runs of at least one row".into(),
                got: format!("{} mappings, runs of {run}", mappings.len()),
            });
        }
        Ok(Self { mappings: mappings.iter().collect(), run })
    }

    /// The number of rows from this one on that share its mapping.
    pub(super) fn run_from(&self, row: usize) -> usize {
        self.run - row % self.run
    }

    pub(super) fn of(&self, row: usize) -> &'a M {
        self.reference(row)
    }

    /// The same by its place.
    pub(super) fn reference(&self, row: usize) -> &&'a M {
        &self.mappings[(row / self.run) % self.mappings.len()]
    }
}

/// Losses are defined for distributions: a mapping whose rows sum to something else has none.
pub(super) fn check_simplex(operation: &'static str, total: f64) -> Result<()> {
    if total == 1.0 {
        return Ok(());
    }
    Err(Error::Unsupported { operation, what: "the rows of the mapping do not sum to 1" })
}
