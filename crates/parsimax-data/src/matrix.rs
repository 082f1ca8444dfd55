//! Rows of numbers, dense or sparse.

/// A matrix of features, one row per example.
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix {
    /// All entries, row after row.
    Dense {
        /// The number of columns.
        columns: usize,
        /// `rows × columns` entries.
        values: Vec<f64>,
    },
    /// Compressed sparse rows: row `i` has its entries at `starts[i]..starts[i + 1]`.
    Sparse {
        /// The number of columns.
        columns: usize,
        /// One more than there are rows, ascending from 0.
        starts: Vec<usize>,
        /// The columns of the entries, ascending within a row.
        indices: Vec<u32>,
        /// The entries.
        values: Vec<f64>,
    },
}

impl Matrix {
    /// The number of columns.
    #[must_use]
    pub fn columns(&self) -> usize {
        match self {
            Self::Dense { columns, .. } | Self::Sparse { columns, .. } => *columns,
        }
    }

    /// One row with its zeros.
    #[must_use]
    pub fn row_dense(&self, row: usize) -> Vec<f64> {
        match self {
            Self::Dense { columns, values } => values[row * columns..(row + 1) * columns].to_vec(),
            Self::Sparse { columns, starts, indices, values } => {
                let mut out = vec![0.0; *columns];
                for at in starts[row]..starts[row + 1] {
                    out[indices[at] as usize] = values[at];
                }
                out
            }
        }
    }
}

/// A sparse matrix while it is read.
#[derive(Debug)]
pub(crate) struct SparseRows {
    starts: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f64>,
}

impl SparseRows {
    pub(crate) fn new() -> Self {
        Self { starts: vec![0], indices: Vec::new(), values: Vec::new() }
    }

    /// Adds an entry to the row at hand; zeros are not kept.
    pub(crate) fn push(&mut self, column: u32, value: f64) {
        if value != 0.0 {
            self.indices.push(column);
            self.values.push(value);
        }
    }

    /// Ends the row at hand.
    pub(crate) fn end_row(&mut self) {
        self.starts.push(self.indices.len());
    }

    /// The largest column of all entries.
    pub(crate) fn max_column(&self) -> Option<u32> {
        self.indices.iter().copied().max()
    }

    /// Moves all columns by one to the left: files count from 1.
    pub(crate) fn shift_columns(&mut self) {
        self.indices.iter_mut().for_each(|index| *index -= 1);
    }

    pub(crate) fn finish(self, columns: usize) -> Matrix {
        Matrix::Sparse { columns, starts: self.starts, indices: self.indices, values: self.values }
    }
}
