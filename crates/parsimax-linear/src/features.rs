//! Feature matrices and their two products with a linear model.
//!
//! A model has weights $W$ ($D \times K$, row-major) and a bias $b$. Fitting needs $Z = XW + b$ and
//! $X^\top G$ again and again. Dense rows go to a matrix product; sparse rows are kept twice, by rows for
//! the first product and by columns for the second, so that every entry of either result is summed by
//! one thread in one order: the same bits for any number of threads.

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, s};
use rayon::prelude::*;

use crate::{Error, Result};

/// Rows of a product that are one piece of work.
const ROWS: usize = 256;
/// Features of a product that are one piece of work.
const COLUMNS: usize = 128;
/// Multiplications below which threads cost more than they bring.
const SMALL: usize = 1 << 22;

/// Examples in rows, features in columns.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    rows: usize,
    columns: usize,
    entries: Entries,
    /// Subtracted from every row, without being stored in it.
    shift: Option<Vec<f64>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Entries {
    Dense(Vec<f64>),
    Sparse { by_row: Compressed, by_column: Compressed },
}

/// Compressed sparse lines: rows or columns.
#[derive(Debug, Clone, PartialEq)]
struct Compressed {
    starts: Vec<usize>,
    indices: Vec<u32>,
    values: Vec<f64>,
}

impl Compressed {
    fn line(&self, at: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        let range = self.starts[at]..self.starts[at + 1];
        self.indices[range.clone()].iter().zip(&self.values[range]).map(|(index, value)| (*index as usize, *value))
    }

    /// The same entries, by the other axis, which has `lines` lines.
    fn transposed(&self, lines: usize) -> Self {
        let mut starts = vec![0; lines + 1];
        self.indices.iter().for_each(|index| starts[*index as usize + 1] += 1);
        (0..lines).for_each(|line| starts[line + 1] += starts[line]);
        let (mut next, mut indices) = (starts.clone(), vec![0; self.indices.len()]);
        let mut values = vec![0.0; self.values.len()];
        for line in 0..self.starts.len() - 1 {
            for (index, value) in self.line(line) {
                indices[next[index]] = line as u32;
                values[next[index]] = value;
                next[index] += 1;
            }
        }
        Self { starts, indices, values }
    }
}

impl Features {
    /// From all entries, row after row.
    ///
    /// # Errors
    /// If the length is no multiple of the columns, or an entry is not finite.
    pub fn dense(values: Vec<f64>, columns: usize) -> Result<Self> {
        if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
            let got = format!("{} numbers in {columns} columns", values.len());
            return Err(Error::data("features", "whole rows of at least one column", got));
        }
        check_finite(&values)?;
        Ok(Self { rows: values.len() / columns, columns, entries: Entries::Dense(values), shift: None })
    }

    /// From compressed sparse rows; columns must ascend within a row.
    ///
    /// # Errors
    /// If the parts do not fit together, or an entry is not finite.
    pub fn sparse(columns: usize, starts: Vec<usize>, indices: Vec<u32>, values: Vec<f64>) -> Result<Self> {
        let bad = |got: &str| Err(Error::data("sparse features", "compressed rows with ascending columns", got));
        if columns == 0 || starts.len() < 2 {
            return bad("no rows or no columns");
        }
        let ascending = starts[0] == 0 && starts.windows(2).all(|pair| pair[0] <= pair[1]);
        if !ascending || starts.last() != Some(&indices.len()) || indices.len() != values.len() {
            return bad("parts of different lengths");
        }
        for row in starts.windows(2).map(|pair| &indices[pair[0]..pair[1]]) {
            if row.windows(2).any(|pair| pair[0] >= pair[1]) {
                return bad("a row whose columns do not ascend");
            }
            if row.last().is_some_and(|last| *last as usize >= columns) {
                return bad("a column beyond the last");
            }
        }
        check_finite(&values)?;
        let rows = starts.len() - 1;
        let by_row = Compressed { starts, indices, values };
        let by_column = by_row.transposed(columns);
        Ok(Self { rows, columns, entries: Entries::Sparse { by_row, by_column }, shift: None })
    }

    /// The number of examples.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of features.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether only the entries that are not zero are stored.
    #[must_use]
    pub fn is_sparse(&self) -> bool {
        matches!(self.entries, Entries::Sparse { .. })
    }

    /// The examples of these numbers, in this order.
    ///
    /// # Panics
    /// If a number is out of range.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let entries = match &self.entries {
            Entries::Dense(values) => {
                let row = |row: &usize| &values[row * self.columns..(row + 1) * self.columns];
                Entries::Dense(rows.iter().flat_map(row).copied().collect())
            }
            Entries::Sparse { by_row, .. } => {
                let (mut starts, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
                for row in rows {
                    let range = by_row.starts[*row]..by_row.starts[row + 1];
                    indices.extend_from_slice(&by_row.indices[range.clone()]);
                    values.extend_from_slice(&by_row.values[range]);
                    starts.push(indices.len());
                }
                let by_row = Compressed { starts, indices, values };
                let by_column = by_row.transposed(self.columns);
                Entries::Sparse { by_row, by_column }
            }
        };
        Self { rows: rows.len(), columns: self.columns, entries, shift: self.shift.clone() }
    }

    /// Mean and (population) deviation of every column.
    #[must_use]
    pub fn moments(&self) -> (Vec<f64>, Vec<f64>) {
        let n = self.rows as f64;
        let (mut mean, mut square) = (vec![0.0; self.columns], vec![0.0; self.columns]);
        self.for_each(|_, column, value| mean[column] += value / n);
        // Second pass around the mean: no digits are lost to a large mean.
        let mut stored = vec![0usize; self.columns];
        self.for_each(|_, column, value| {
            square[column] += (value - mean[column]).powi(2);
            stored[column] += 1;
        });
        for column in 0..self.columns {
            square[column] += (self.rows - stored[column]) as f64 * mean[column].powi(2);
        }
        (mean, square.iter().map(|square| (square / n).sqrt()).collect())
    }

    /// `(x − mean) / deviation` for every column. Sparse rows stay sparse: the mean is carried along.
    pub(crate) fn standardized(&self, mean: &[f64], deviation: &[f64]) -> Self {
        let scaled = |compressed: &Compressed, by_row: bool| {
            let mut out = compressed.clone();
            for line in 0..out.starts.len() - 1 {
                for at in out.starts[line]..out.starts[line + 1] {
                    out.values[at] /= deviation[if by_row { out.indices[at] as usize } else { line }];
                }
            }
            out
        };
        let (entries, shift) = match &self.entries {
            Entries::Dense(values) => {
                let rows = values.chunks_exact(self.columns);
                let value = |(x, (mean, deviation)): (&f64, (&f64, &f64))| (x - mean) / deviation;
                let entries = rows.flat_map(|row| row.iter().zip(mean.iter().zip(deviation)).map(value)).collect();
                (Entries::Dense(entries), None)
            }
            Entries::Sparse { by_row, by_column } => {
                let shift = mean.iter().zip(deviation).map(|(mean, deviation)| mean / deviation).collect();
                let entries = Entries::Sparse { by_row: scaled(by_row, true), by_column: scaled(by_column, false) };
                (entries, Some(shift))
            }
        };
        Self { rows: self.rows, columns: self.columns, entries, shift }
    }

    fn for_each(&self, mut visit: impl FnMut(usize, usize, f64)) {
        match &self.entries {
            Entries::Dense(values) => {
                values.iter().enumerate().for_each(|(at, x)| visit(at / self.columns, at % self.columns, *x));
            }
            Entries::Sparse { by_row, .. } => {
                (0..self.rows).for_each(|row| by_row.line(row).for_each(|(column, x)| visit(row, column, x)));
            }
        }
    }

    /// Computes the scores $XW + b$ of runs of rows and hands each run to `work`; the results in order.
    ///
    /// `work` gets the first row of the run and its scores, which it may change.
    pub(crate) fn map_scores<R: Send>(
        &self,
        weights: &[f64],
        bias: &[f64],
        out: &mut [f64],
        work: impl Fn(usize, &mut [f64]) -> R + Sync,
    ) -> Vec<R> {
        let k = bias.len();
        let bias = match &self.shift {
            None => bias.to_vec(),
            Some(shift) => {
                let mut bias = bias.to_vec();
                for (shift, weights) in shift.iter().zip(weights.chunks_exact(k)) {
                    bias.iter_mut().zip(weights).for_each(|(b, w)| *b -= shift * w);
                }
                bias
            }
        };
        let run = |(at, out): (usize, &mut [f64])| {
            let first = at * ROWS;
            out.chunks_exact_mut(k).for_each(|row| row.copy_from_slice(&bias));
            self.add_scores(first, weights, out, k);
            work(first, out)
        };
        if self.work(k) < SMALL {
            out.chunks_mut(ROWS * k).enumerate().map(run).collect()
        } else {
            out.par_chunks_mut(ROWS * k).enumerate().map(run).collect()
        }
    }

    /// Multiplications of one product.
    fn work(&self, k: usize) -> usize {
        match &self.entries {
            Entries::Dense(values) => values.len() * k,
            Entries::Sparse { by_row, .. } => by_row.values.len() * k,
        }
    }

    fn add_scores(&self, first: usize, weights: &[f64], out: &mut [f64], k: usize) {
        let rows = out.len() / k;
        match &self.entries {
            Entries::Dense(values) => {
                let x = &values[first * self.columns..(first + rows) * self.columns];
                let (x, w) = (matrix(x, self.columns), matrix(weights, k));
                general_mat_mul(1.0, &x, &w, 1.0, &mut matrix_mut(out, k));
            }
            Entries::Sparse { by_row, .. } => {
                for (row, out) in out.chunks_exact_mut(k).enumerate() {
                    for (column, x) in by_row.line(first + row) {
                        let weights = &weights[column * k..(column + 1) * k];
                        out.iter_mut().zip(weights).for_each(|(out, w)| *out += x * w);
                    }
                }
            }
        }
    }

    /// Writes $X^\top G + \lambda W$ for the gradient in the weights.
    pub(crate) fn transposed_product(&self, g: &[f64], k: usize, weights: &[f64], l2: f64, out: &mut [f64]) {
        let sums = self.shift.as_ref().map(|_| column_sums(g, k));
        let run = |(at, out): (usize, &mut [f64])| {
            let first = at * COLUMNS;
            let weights = &weights[first * k..first * k + out.len()];
            out.iter_mut().zip(weights).for_each(|(out, w)| *out = l2 * w);
            self.add_transposed(first, g, out, k);
            if let (Some(shift), Some(sums)) = (&self.shift, &sums) {
                for (shift, out) in shift[first..].iter().zip(out.chunks_exact_mut(k)) {
                    out.iter_mut().zip(sums).for_each(|(out, sum)| *out -= shift * sum);
                }
            }
        };
        if self.work(k) < SMALL {
            out.chunks_mut(COLUMNS * k).enumerate().for_each(run);
        } else {
            out.par_chunks_mut(COLUMNS * k).enumerate().for_each(run);
        }
    }

    fn add_transposed(&self, first: usize, g: &[f64], out: &mut [f64], k: usize) {
        let columns = out.len() / k;
        match &self.entries {
            Entries::Dense(values) => {
                let x = matrix(values, self.columns);
                let x = x.slice(s![.., first..first + columns]);
                general_mat_mul(1.0, &x.t(), &matrix(g, k), 1.0, &mut matrix_mut(out, k));
            }
            Entries::Sparse { by_column, .. } => {
                for (column, out) in out.chunks_exact_mut(k).enumerate() {
                    for (row, x) in by_column.line(first + column) {
                        let g = &g[row * k..(row + 1) * k];
                        out.iter_mut().zip(g).for_each(|(out, g)| *out += x * g);
                    }
                }
            }
        }
    }
}

/// A row-major matrix over a slice, whose length is a multiple of the columns.
fn matrix(values: &[f64], columns: usize) -> ArrayView2<'_, f64> {
    let shape = (values.len() / columns, columns);
    ArrayView2::from_shape(shape, values).expect("whole rows")
}

/// The same, to write.
fn matrix_mut(values: &mut [f64], columns: usize) -> ArrayViewMut2<'_, f64> {
    let shape = (values.len() / columns, columns);
    ArrayViewMut2::from_shape(shape, values).expect("whole rows")
}

/// The sum of every column of a row-major matrix.
pub(crate) fn column_sums(values: &[f64], k: usize) -> Vec<f64> {
    let mut sums = vec![0.0; k];
    for row in values.chunks_exact(k) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
    }
    sums
}

fn check_finite(values: &[f64]) -> Result<()> {
    match values.iter().position(|value| !value.is_finite()) {
        None => Ok(()),
        Some(at) => Err(Error::data("features", "finite numbers", format!("{} at entry {at}", values[at]))),
    }
}
