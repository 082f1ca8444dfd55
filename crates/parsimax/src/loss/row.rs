//! One row of a loss: the trait that a loss implements, and the row it gets to see.

use crate::{Error, Float, Result, Scratch};

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

    pub(super) fn of(&self, row: usize) -> &'a M {
        self.mappings[(row / self.run) % self.mappings.len()]
    }
}

/// Losses are defined for distributions: a mapping whose rows sum to something else has none.
pub(super) fn check_simplex(operation: &'static str, total: f64) -> Result<()> {
    if total == 1.0 {
        return Ok(());
    }
    Err(Error::Unsupported { operation, what: "the rows of the mapping do not sum to 1" })
}

/// The entries of a row that take part, widened, and where they came from.
#[derive(Debug, Default)]
pub(super) struct CleanRow {
    pub(super) z: Vec<f64>,
    /// Classes of the entries, ascending; left empty when every class takes part.
    keep: Vec<u32>,
    width: usize,
}

impl CleanRow {
    /// Loads a row; the error is the index of a NaN or `+inf`.
    pub(super) fn load<T: Float>(
        &mut self,
        z: &[T],
        takes_part: impl Fn(usize) -> bool,
    ) -> std::result::Result<(), usize> {
        self.z.clear();
        self.keep.clear();
        self.width = z.len();
        for (i, score) in z.iter().enumerate() {
            let score = score.widen();
            if score == f64::NEG_INFINITY || !takes_part(i) {
                if self.keep.is_empty() {
                    self.keep.extend(0..self.z.len() as u32);
                }
                continue;
            }
            if !score.is_finite() {
                return Err(i);
            }
            if self.z.len() != i {
                self.keep.push(i as u32);
            }
            self.z.push(score);
        }
        Ok(())
    }

    /// Whether every class takes part.
    pub(super) fn is_whole(&self) -> bool {
        self.z.len() == self.width
    }

    /// Where a class is among the entries that take part.
    pub(super) fn position(&self, class: usize) -> Option<usize> {
        if self.is_whole() { Some(class) } else { self.keep.binary_search(&(class as u32)).ok() }
    }

    /// The class of an entry.
    pub(super) fn class(&self, position: usize) -> usize {
        if self.is_whole() { position } else { self.keep[position] as usize }
    }

    /// The same entries of another row.
    pub(super) fn gather<T: Float>(&self, from: &[T], to: &mut Vec<f64>) {
        to.clear();
        to.extend((0..self.z.len()).map(|i| from[self.class(i)].widen()));
    }

    /// Writes `scale · from` to the places of the entries and 0 elsewhere.
    pub(super) fn scatter<T: Float>(&self, from: &[f64], scale: f64, to: &mut [T]) {
        if self.is_whole() {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = T::narrow(scale * from));
            return;
        }
        to.fill(T::default());
        for (i, value) in self.keep.iter().zip(from) {
            to[*i as usize] = T::narrow(scale * value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_the_places_of_its_entries() {
        let gone = f32::NEG_INFINITY;
        let mut row = CleanRow::default();
        for (z, kept) in [
            (vec![1.0, 2.0, 3.0], vec![0, 1, 2]),
            (vec![gone, 2.0, 3.0], vec![1, 2]),
            (vec![1.0, gone, gone, 4.0], vec![0, 3]),
            (vec![1.0, 2.0, gone], vec![0, 1]),
            (vec![gone, gone], vec![]),
            (vec![], vec![]),
        ] {
            row.load(&z, |_| true).unwrap();
            assert_eq!((0..row.z.len()).map(|i| row.class(i)).collect::<Vec<_>>(), kept);
            for class in 0..z.len() {
                assert_eq!(row.position(class), kept.iter().position(|k| *k == class));
            }
            let mut out = vec![9.0f32; z.len()];
            row.scatter(&row.z.clone(), 2.0, &mut out);
            let expected: Vec<f32> = z.iter().map(|z| if *z == gone { 0.0 } else { 2.0 * z }).collect();
            assert_eq!(out, expected);
        }
        assert_eq!(row.load(&[0.0, f32::NAN], |i| i == 0), Ok(()));
        assert_eq!(row.load(&[0.0, f32::INFINITY], |_| true), Err(1));
    }
}
