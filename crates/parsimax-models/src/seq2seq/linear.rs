//! Products with weight matrices, forwards and backwards.

use super::parameters::Slot;
use super::work::Work;
use parsimax::kernel::matmul::{Matrix, Packed, Target, multiply};
use std::ops::Range;

/// Some columns of a weight matrix of `out × in`, packed for both directions.
#[derive(Debug)]
pub(super) struct Weight {
    slot: Slot,
    columns: Range<usize>,
    forward: Packed,
    backward: Packed,
}

/// A factor that is to be packed again.
pub(super) type Repack<'a> = (&'a mut Packed, Matrix<'a>);

/// Rows of numbers that lie `stride` apart.
#[derive(Debug, Clone, Copy)]
pub(super) struct Strided<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
}

impl Weight {
    /// All columns of a matrix.
    pub(super) fn new(slot: Slot) -> Self {
        Self::columns(slot, 0..slot.columns)
    }

    /// Some columns of a matrix. Nothing is packed yet.
    pub(super) fn columns(slot: Slot, columns: Range<usize>) -> Self {
        Self { slot, columns, forward: Packed::default(), backward: Packed::default() }
    }

    /// What there is to pack for these parameters.
    pub(super) fn repack<'a>(&'a mut self, values: &'a [f32]) -> [Repack<'a>; 2] {
        let data = &self.slot.of(values)[self.columns.start..];
        let matrix = Matrix::new(data, self.slot.rows, self.columns.len(), self.slot.columns);
        [(&mut self.forward, matrix.transposed()), (&mut self.backward, matrix)]
    }

    /// `y (+)= x·Wᵀ` for `n` rows.
    pub(super) fn apply(&self, x: &[f32], n: usize, y: &mut [f32], add: bool, work: &mut Work) {
        let x = Strided { data: x, stride: self.columns.len() };
        self.apply_strided(x, n, y, self.slot.rows, add, work);
    }

    /// The same for rows that lie apart.
    pub(super) fn apply_strided(
        &self,
        x: Strided<'_>,
        n: usize,
        y: &mut [f32],
        row: usize,
        add: bool,
        work: &mut Work,
    ) {
        let x = Matrix::new(x.data, n, self.columns.len(), x.stride);
        multiply(x, &self.forward, Target { data: y, row, add }, &mut work.scratch);
    }

    /// `dx (+)= dy·W` for `n` rows of `dx` that lie `row` apart.
    pub(super) fn back(&self, dy: &[f32], n: usize, dx: &mut [f32], row: usize, add: bool, work: &mut Work) {
        let out = self.slot.rows;
        multiply(Matrix::new(dy, n, out, out), &self.backward, Target { data: dx, row, add }, &mut work.scratch);
    }

    /// `y (+)= x·W` for `n` rows: the matrix the other way round.
    pub(super) fn apply_turned(&self, x: &[f32], n: usize, y: &mut [f32], work: &mut Work) {
        self.back(x, n, y, self.columns.len(), false, work);
    }

    /// `dW = dyᵀ·x` for `n` rows.
    pub(super) fn gradient(&self, dy: &[f32], x: &[f32], n: usize, gradients: &mut [f32], work: &mut Work) {
        let (out, k) = (self.slot.rows, self.columns.len());
        let dw = &mut self.slot.of_mut(gradients)[self.columns.start..];
        work.right.pack(Matrix::new(x, n, k, k));
        let target = Target { data: dw, row: self.slot.columns, add: false };
        multiply(Matrix::new(dy, n, out, out).transposed(), &work.right, target, &mut work.scratch);
    }
}

/// Adds up the rows of `dy`.
pub(super) fn sum_rows(dy: &[f32], sum: &mut [f32]) {
    sum.fill(0.0);
    for row in dy.chunks_exact(sum.len()) {
        sum.iter_mut().zip(row).for_each(|(s, d)| *s += d);
    }
}

/// `<a, b>` in eight sums, which compilers turn into lanes.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a8.zip(b8) {
        for k in 0..8 {
            sums[k] += a[k] * b[k];
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// `y += s·x`.
pub(super) fn add_scaled(y: &mut [f32], s: f32, x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += s * x);
}

/// `y += x`.
pub(super) fn add(y: &mut [f32], x: &[f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}
