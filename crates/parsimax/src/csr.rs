//! Sparse batches: what the rows hold apart from zeros.

use crate::Float;

/// A sparse batch: row `r` has the entries `indptr[r]..indptr[r + 1]` of `indices` and `values`.
#[derive(Debug, Clone, PartialEq)]
pub struct Csr<T> {
    /// Row pointers, one more than rows, starting with 0.
    pub indptr: Vec<usize>,
    /// Column of every stored entry, ascending within a row.
    pub indices: Vec<u32>,
    /// Probability of every stored entry.
    pub values: Vec<T>,
    /// Width of the dense array.
    pub columns: usize,
    /// Position of every stored entry among those of its row that took part: neighbours are neighbours
    /// across a masked entry, which `indices` cannot tell from a zero.
    pub(crate) ranks: Vec<u32>,
}

impl<T: Float> Csr<T> {
    pub(crate) fn empty(columns: usize) -> Self {
        Self { indptr: vec![0], indices: Vec::new(), values: Vec::new(), columns, ranks: Vec::new() }
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Columns and probabilities of a row.
    #[must_use]
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        let range = self.indptr[row]..self.indptr[row + 1];
        (&self.indices[range.clone()], &self.values[range])
    }

    /// The rows with their zeros, in row-major order.
    #[must_use]
    pub fn to_dense(&self) -> Vec<T> {
        let mut dense = vec![T::default(); self.rows() * self.columns];
        for row in 0..self.rows() {
            let (indices, values) = self.row(row);
            for (i, p) in indices.iter().zip(values) {
                dense[row * self.columns + *i as usize] = *p;
            }
        }
        dense
    }
}
