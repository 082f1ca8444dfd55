//! An LSTM over a whole sequence of a batch.
//!
//! Rows are sorted by length, longest first, so the rows that are still there at time `t` are the first
//! `active[t]`. Everything is stored time by time: entry `(t, row)` is row `t·batch + row`. What lies beyond the end
//! of a row is zero, forwards and backwards, so that sums over all of them are right.

use super::linear::{Weight, add_rows, gradient};
use super::parameters::LstmSlots;
use parsimax::kernel::cells::{Back, Cell, Step, back, step};

/// The weights of one layer and direction, ready to use.
#[derive(Debug)]
pub(super) struct Lstm {
    slots: LstmSlots,
    input: Weight,
    hidden: Weight,
    bias: Vec<f32>,
    reverse: bool,
}

/// What a pass leaves for the way back.
#[derive(Debug)]
pub(super) struct Run {
    /// Activations of the four gates; gradients of their sums after the way back.
    gates: Vec<f32>,
    cell: Vec<f32>,
    /// The outputs.
    pub(super) hidden: Vec<f32>,
}

/// The rows of a batch over time.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    pub(super) batch: usize,
    /// Rows that are there at each time; does not grow.
    pub(super) active: Vec<usize>,
}

impl Extent {
    /// Of rows of these lengths, longest first.
    pub(super) fn new(lengths: &[usize]) -> Self {
        let times = lengths.first().copied().unwrap_or(0);
        let active = (0..times).map(|t| lengths.partition_point(|length| *length > t)).collect();
        Self { batch: lengths.len(), active }
    }

    pub(super) fn rows(&self) -> usize {
        self.batch * self.active.len()
    }
}

/// The values of time `t` to be written, those of the time before it, and how many rows come from there.
fn two_times(
    values: &mut [f32],
    t: usize,
    before: Option<(usize, usize)>,
    block: usize,
) -> (&mut [f32], &[f32], usize) {
    match before {
        None => (&mut values[t * block..(t + 1) * block], &[], 0),
        Some((from, rows)) if from < t => {
            let (earlier, later) = values.split_at_mut(t * block);
            (&mut later[..block], &earlier[from * block..], rows)
        }
        Some((from, rows)) => {
            let (earlier, later) = values.split_at_mut(from * block);
            (&mut earlier[t * block..], &later[..block], rows)
        }
    }
}

impl Lstm {
    pub(super) fn new(slots: LstmSlots, values: &[f32], reverse: bool) -> Self {
        let weight =
            |slot: super::parameters::Slot| Weight::new(slot.of(values), slot.rows, slot.columns, slot.columns);
        let bias = slots.biases.map(|slot| slot.of(values));
        let bias = bias[0].iter().zip(bias[1]).map(|(a, b)| a + b).collect();
        Self { slots, input: weight(slots.input), hidden: weight(slots.hidden), bias, reverse }
    }

    fn width(&self) -> usize {
        self.slots.hidden.columns
    }

    /// Times in the order of the pass, each with the time before it and how many rows come from there.
    fn times(&self, extent: &Extent) -> Vec<(usize, Option<(usize, usize)>)> {
        let active = &extent.active;
        let forwards = |t: usize| (t, (t > 0).then(|| (t - 1, active[t])));
        let backwards = |t: usize| (t, active.get(t + 1).map(|n| (t + 1, *n)));
        if self.reverse {
            (0..active.len()).rev().map(backwards).collect()
        } else {
            (0..active.len()).map(forwards).collect()
        }
    }

    pub(super) fn forward(&self, x: &[f32], extent: &Extent, scratch: &mut Vec<f32>) -> Run {
        let (h, b, n) = (self.width(), extent.batch, extent.rows());
        let mut gates = vec![0.0; n * 4 * h];
        let (mut cell, mut hidden) = (vec![0.0; n * h], vec![0.0; n * h]);
        self.input.apply(x, n, &mut gates, false, scratch);
        let zero = vec![0.0; h];
        for (t, before) in self.times(extent) {
            let block = &mut gates[t * b * 4 * h..(t + 1) * b * 4 * h];
            if let Some((from, rows)) = before {
                self.hidden.apply(&hidden[from * b * h..], rows, block, true, scratch);
            }
            block[extent.active[t] * 4 * h..].fill(0.0);
            let (now, last, rows) = two_times(&mut cell, t, before, b * h);
            for row in 0..extent.active[t] {
                let own = row * h..(row + 1) * h;
                step(
                    Cell::Lstm,
                    Step {
                        gates: &mut block[row * 4 * h..(row + 1) * 4 * h],
                        bias: &self.bias,
                        before: if row < rows { &last[own.clone()] } else { &zero },
                        cell: &mut now[own.clone()],
                        hidden: &mut hidden[t * b * h..][own],
                    },
                );
            }
        }
        Run { gates, cell, hidden }
    }

    /// The time at which the pass leaves a row of some length.
    fn last(&self, length: usize) -> usize {
        if self.reverse { 0 } else { length - 1 }
    }

    /// The states `h` and `c` in which rows of these lengths are left, into columns of `width` from `at` on.
    pub(super) fn final_states(&self, run: &Run, lengths: &[usize], into: [&mut [f32]; 2], width: usize, at: usize) {
        let h = self.width();
        for (states, to) in [&run.hidden, &run.cell].into_iter().zip(into) {
            for (row, length) in lengths.iter().enumerate() {
                let from = (self.last(*length) * lengths.len() + row) * h;
                to[row * width + at..][..h].copy_from_slice(&states[from..from + h]);
            }
        }
    }

    /// Gradients from those of the outputs and of the final states (columns of `width` from `at` on): adds to those
    /// of the weights, and returns that of the input.
    #[expect(clippy::too_many_arguments, reason = "what a backward pass is given, and where its results go")]
    pub(super) fn backward(
        &self,
        x: &[f32],
        mut run: Run,
        extent: &Extent,
        lengths: &[usize],
        mut d_hidden: Vec<f32>,
        finals: [&[f32]; 2],
        (width, at): (usize, usize),
        gradients: &mut [f32],
        scratch: &mut Vec<f32>,
    ) -> Vec<f32> {
        let (h, b, n) = (self.width(), extent.batch, extent.rows());
        let mut carry = vec![0.0; b * h];
        for (row, length) in lengths.iter().enumerate() {
            let to = (self.last(*length) * b + row) * h;
            let from = &finals[0][row * width + at..][..h];
            d_hidden[to..to + h].iter_mut().zip(from).for_each(|(d, f)| *d += f);
            carry[row * h..(row + 1) * h].copy_from_slice(&finals[1][row * width + at..][..h]);
        }
        let zero = vec![0.0; h];
        for (t, before) in self.times(extent).into_iter().rev() {
            let block = &mut run.gates[t * b * 4 * h..(t + 1) * b * 4 * h];
            for row in 0..extent.active[t] {
                let last = before.filter(|(_, rows)| row < *rows).map(|(from, _)| (from * b + row) * h);
                let at = (t * b + row) * h;
                back(
                    Cell::Lstm,
                    Back {
                        gates: &mut block[row * 4 * h..(row + 1) * 4 * h],
                        before: last.map_or(&zero[..], |from| &run.cell[from..from + h]),
                        cell: &run.cell[at..at + h],
                        hidden: &d_hidden[at..at + h],
                        carry: &mut carry[row * h..(row + 1) * h],
                    },
                );
            }
            if let Some((from, rows)) = before {
                self.hidden.back(block, rows, &mut d_hidden[from * b * h..], true, scratch);
            }
        }
        self.weight_gradients(x, &run, b, gradients, scratch);
        let mut dx = vec![0.0; x.len()];
        self.input.back(&run.gates, n, &mut dx, false, scratch);
        dx
    }

    fn weight_gradients(&self, x: &[f32], run: &Run, b: usize, gradients: &mut [f32], scratch: &mut Vec<f32>) {
        let (h, slots) = (self.width(), &self.slots);
        let n = run.hidden.len() / h;
        gradient(&run.gates, x, n, slots.input.of_mut(gradients), slots.input.columns, scratch);
        // Gates of a time with the states of the time before: both are shifted views.
        let rest = n - b;
        let (gates, states) = if self.reverse {
            (&run.gates[..rest * 4 * h], &run.hidden[b * h..])
        } else {
            (&run.gates[b * 4 * h..], &run.hidden[..rest * h])
        };
        gradient(gates, states, rest, slots.hidden.of_mut(gradients), h, scratch);
        for slot in slots.biases {
            add_rows(&run.gates, slot.of_mut(gradients));
        }
    }
}
