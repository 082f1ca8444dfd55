//! Products with weight matrices, forwards and backwards.

use parsimax::kernel::matmul::{Matrix, Packed, Target, multiply};

/// A weight matrix of `out × in`, packed for both directions.
#[derive(Debug)]
pub(super) struct Weight {
    forward: Packed,
    backward: Packed,
}

impl Weight {
    /// From the first `columns` of rows that are `stride` apart.
    pub(super) fn new(data: &[f32], rows: usize, columns: usize, stride: usize) -> Self {
        let matrix = Matrix::new(data, rows, columns, stride);
        Self { forward: Packed::new(matrix.transposed()), backward: Packed::new(matrix) }
    }

    /// `y (+)= x·Wᵀ` for `n` rows.
    pub(super) fn apply(&self, x: &[f32], n: usize, y: &mut [f32], add: bool, scratch: &mut Vec<f32>) {
        let (k, out) = self.forward.shape();
        multiply(Matrix::new(x, n, k, k), &self.forward, Target { data: y, row: out, add }, scratch);
    }

    /// `dx (+)= dy·W` for `n` rows.
    pub(super) fn back(&self, dy: &[f32], n: usize, dx: &mut [f32], add: bool, scratch: &mut Vec<f32>) {
        let (out, k) = self.backward.shape();
        multiply(Matrix::new(dy, n, out, out), &self.backward, Target { data: dx, row: k, add }, scratch);
    }
}

/// `dW += dyᵀ·x` for `n` rows, where `dW` has rows of `stride` floats.
pub(super) fn gradient(dy: &[f32], x: &[f32], n: usize, dw: &mut [f32], stride: usize, scratch: &mut Vec<f32>) {
    if n == 0 {
        return;
    }
    let (out, k) = (dy.len() / n, x.len() / n);
    let x = Packed::new(Matrix::new(x, n, k, k));
    multiply(Matrix::new(dy, n, out, out).transposed(), &x, Target { data: dw, row: stride, add: true }, scratch);
}

/// Adds up the rows of `dy`.
pub(super) fn add_rows(dy: &[f32], sum: &mut [f32]) {
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
