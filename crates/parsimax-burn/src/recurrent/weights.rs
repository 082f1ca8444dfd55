//! The weights of one direction, in the order and the packing that the products want.

use parsimax::kernel::cells::Cell;
use parsimax::kernel::matmul::{Matrix, Packed};
use std::sync::OnceLock;

/// How the four blocks of the kernel (`4 · hidden` columns) are fed: an LSTM's input and state both
/// fill all of them, a GRU's input fills the first three (n, r, z) and its state the last three (r, z, q).
pub(crate) fn columns(cell: Cell, hidden: usize) -> [std::ops::Range<usize>; 2] {
    match cell {
        Cell::Lstm => [0..4 * hidden, 0..4 * hidden],
        Cell::Gru => [0..3 * hidden, hidden..4 * hidden],
    }
}

/// Gates of the stored weights: i, f, g, o of an LSTM and r, z, n of a GRU, as torch has them.
pub(crate) fn gates(cell: Cell) -> usize {
    match cell {
        Cell::Lstm => 4,
        Cell::Gru => 3,
    }
}

/// Weights of one direction as they are stored: `[gates · hidden, …]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    pub(crate) input: &'a [f32],
    pub(crate) hidden: &'a [f32],
    pub(crate) bias_input: &'a [f32],
    pub(crate) bias_hidden: &'a [f32],
}

impl<'a> Weights<'a> {
    /// The weights of a direction, of which `count` are stored one behind the other.
    pub(crate) fn direction(self, d: usize, count: usize) -> Weights<'a> {
        let part = |data: &'a [f32]| &data[d * (data.len() / count)..][..data.len() / count];
        Weights {
            input: part(self.input),
            hidden: part(self.hidden),
            bias_input: part(self.bias_input),
            bias_hidden: part(self.bias_hidden),
        }
    }

    /// The input's weights with a GRU's new gate first.
    fn input_in_kernel_order(&self, cell: Cell) -> Vec<f32> {
        let mut data = self.input.to_vec();
        if cell == Cell::Gru {
            data.rotate_right(self.input.len() / 3);
        }
        data
    }

    /// The biases of the four blocks.
    fn bias(&self, cell: Cell) -> Vec<f32> {
        let sum = |i: usize| self.bias_input[i] + self.bias_hidden[i];
        match cell {
            Cell::Lstm => (0..self.bias_input.len()).map(sum).collect(),
            Cell::Gru => {
                let (n, new) = (self.bias_input.len() / 3, 2 * self.bias_input.len() / 3);
                let gates = (0..2 * n).map(sum);
                let (first, last) = (&self.bias_input[new..], &self.bias_hidden[new..]);
                first.iter().copied().chain(gates).chain(last.iter().copied()).collect()
            }
        }
    }
}

/// Gradients of one direction, in the kernel's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slopes {
    pub(crate) input: Vec<f32>,
    pub(crate) hidden: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

impl Slopes {
    /// Adds another part's.
    pub(crate) fn add(&mut self, other: &Slopes) {
        let pairs = [(&mut self.input, &other.input), (&mut self.hidden, &other.hidden), (&mut self.bias, &other.bias)];
        for (to, from) in pairs {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }

    /// Input, hidden and the two biases in the order of the stored weights.
    pub(crate) fn stored(mut self, cell: Cell) -> [Vec<f32>; 4] {
        match cell {
            Cell::Lstm => [self.input, self.hidden, self.bias.clone(), self.bias],
            Cell::Gru => {
                let n = self.bias.len() / 4;
                let third = self.input.len() / 3;
                self.input.rotate_left(third);
                let mut bias_input = self.bias[..3 * n].to_vec();
                bias_input.rotate_left(n);
                [self.input, self.hidden, bias_input, self.bias[n..].to_vec()]
            }
        }
    }
}

/// What a forward pass multiplies with.
#[derive(Debug)]
pub(crate) struct Forward {
    pub(crate) input: Packed,
    pub(crate) hidden: Packed,
    pub(crate) bias: Vec<f32>,
}

/// What a backward pass multiplies with.
#[derive(Debug)]
pub(crate) struct Backward {
    pub(crate) input: Packed,
    pub(crate) hidden: Packed,
}

impl Forward {
    pub(crate) fn new(cell: Cell, weights: Weights<'_>) -> Forward {
        let rows = weights.bias_input.len();
        let transposed = |data: &[f32]| Packed::new(matrix(data, rows).transposed());
        let (input, hidden) =
            rayon::join(|| transposed(&weights.input_in_kernel_order(cell)), || transposed(weights.hidden));
        Forward { input, hidden, bias: weights.bias(cell) }
    }
}

impl Backward {
    pub(crate) fn new(cell: Cell, weights: Weights<'_>) -> Backward {
        let rows = weights.bias_input.len();
        let (input, hidden) = rayon::join(
            || Packed::new(matrix(&weights.input_in_kernel_order(cell), rows)),
            || Packed::new(matrix(weights.hidden, rows)),
        );
        Backward { input, hidden }
    }
}

fn matrix(data: &[f32], rows: usize) -> Matrix<'_> {
    let columns = data.len() / rows;
    Matrix::new(data, rows, columns, columns)
}

/// The packed weights of all directions, made when first needed. Steps of one sequence share them.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    forward: OnceLock<Vec<Forward>>,
    backward: OnceLock<Vec<Backward>>,
}

impl Packs {
    pub(crate) fn forward(&self, cell: Cell, weights: Weights<'_>, directions: usize) -> &[Forward] {
        let pack = || (0..directions).map(|d| Forward::new(cell, weights.direction(d, directions))).collect();
        self.forward.get_or_init(pack)
    }

    pub(crate) fn backward(&self, cell: Cell, weights: Weights<'_>, directions: usize) -> &[Backward] {
        let pack = || (0..directions).map(|d| Backward::new(cell, weights.direction(d, directions))).collect();
        self.backward.get_or_init(pack)
    }
}
