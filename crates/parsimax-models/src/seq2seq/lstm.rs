//! An LSTM over a whole sequence of a batch.
//!
//! `W x` of all entries is one product; then each time adds `U h` of the rows that are still there. Both directions of
//! a layer write their states side by side: a direction owns some columns of rows that are wider.

use super::extent::Extent;
use super::linear::{Repack, Strided, Weight, sum_rows};
use super::parameters::LstmSlots;
use super::work::Work;
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
}

impl Run {
    pub(super) fn free(self, work: &mut Work) {
        work.give(self.gates);
        work.give(self.cell);
    }
}

/// The columns of a direction: `width` numbers a row, its own from `at` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Columns {
    pub(super) width: usize,
    pub(super) at: usize,
}

impl Columns {
    fn of(self, row: usize, h: usize) -> std::ops::Range<usize> {
        let start = row * self.width + self.at;
        start..start + h
    }
}

/// A time of the pass: which, the one before it, and how many rows come from there.
struct Moment {
    t: usize,
    before: Option<(usize, usize)>,
}

/// What the way back is given.
pub(super) struct Given<'a> {
    pub(super) x: &'a [f32],
    /// States, in the columns of this direction.
    pub(super) hidden: &'a [f32],
    /// Gradients of the final states `h` and `c`, in those columns.
    pub(super) finals: [&'a [f32]; 2],
}

/// Biases of an LSTM, added up.
pub(super) fn sum_biases(slots: &LstmSlots, values: &[f32], to: &mut Vec<f32>) {
    let [a, b] = slots.biases.map(|slot| slot.of(values));
    to.clear();
    to.extend(a.iter().zip(b).map(|(a, b)| a + b));
}

/// The gradient of the sums is that of either bias.
pub(super) fn bias_gradients(slots: &LstmSlots, d_sums: &[f32], gradients: &mut [f32], work: &mut Work) {
    let mut sums = work.take(slots.biases[0].rows);
    sum_rows(d_sums, &mut sums);
    slots.biases.iter().for_each(|slot| slot.of_mut(gradients).copy_from_slice(&sums));
    work.give(sums);
}

impl Lstm {
    pub(super) fn new(slots: LstmSlots, reverse: bool) -> Self {
        let (input, hidden) = (Weight::new(slots.input), Weight::new(slots.hidden));
        Self { slots, input, hidden, bias: Vec::new(), reverse }
    }

    pub(super) fn repack<'a>(&'a mut self, values: &'a [f32]) -> impl Iterator<Item = Repack<'a>> {
        sum_biases(&self.slots, values, &mut self.bias);
        self.input.repack(values).into_iter().chain(self.hidden.repack(values))
    }

    fn width(&self) -> usize {
        self.slots.hidden.columns
    }

    /// Times in the order of the pass.
    fn moments(&self, extent: &Extent) -> Vec<Moment> {
        let forwards = |t: usize| Moment { t, before: (t > 0).then(|| (t - 1, extent.active(t))) };
        let backwards = |t: usize| {
            let rows = extent.active(t + 1);
            Moment { t, before: (rows > 0).then_some((t + 1, rows)) }
        };
        if self.reverse {
            (0..extent.times()).rev().map(backwards).collect()
        } else {
            (0..extent.times()).map(forwards).collect()
        }
    }

    /// Reads `x` and writes the states into some columns of `hidden`.
    pub(super) fn forward(
        &self,
        x: &[f32],
        extent: &Extent,
        hidden: &mut [f32],
        columns: Columns,
        work: &mut Work,
    ) -> Run {
        let (h, n) = (self.width(), extent.entries());
        let (mut gates, mut cell, zero) = (work.take(n * 4 * h), work.take(n * h), work.zeros(h));
        self.input.apply(x, n, &mut gates, false, work);
        for Moment { t, before } in self.moments(extent) {
            let own = extent.at(t);
            let block = &mut gates[own.start * 4 * h..own.end * 4 * h];
            let (from, rows) = before.map_or((0, 0), |(from, rows)| (extent.at(from).start, rows));
            if rows > 0 {
                let states = Strided { data: &hidden[columns.of(from, 0).start..], stride: columns.width };
                self.hidden.apply_strided(states, rows, block, 4 * h, true, work);
            }
            for (row, gates) in block.chunks_exact_mut(4 * h).enumerate() {
                let (now, last) = (own.start + row, from + row);
                let [cell, before] = match row < rows {
                    true => cell.get_disjoint_mut([now * h..(now + 1) * h, last * h..(last + 1) * h]),
                    false => cell.get_disjoint_mut([now * h..(now + 1) * h, 0..0]),
                }
                .expect("two times do not overlap");
                let before = if row < rows { &*before } else { &zero };
                let hidden = &mut hidden[columns.of(now, h)];
                step(Cell::Lstm, Step { gates, bias: &self.bias, before, cell, hidden });
            }
        }
        work.give(zero);
        Run { gates, cell }
    }

    /// The entry at which the pass leaves a row.
    fn last(&self, row: usize, extent: &Extent) -> usize {
        let t = if self.reverse { 0 } else { extent.lengths()[row] - 1 };
        extent.at(t).start + row
    }

    /// The states `h` and `c` in which rows are left, into some columns.
    pub(super) fn final_states(
        &self,
        run: &Run,
        hidden: &[f32],
        extent: &Extent,
        into: &mut [Vec<f32>; 2],
        columns: Columns,
    ) {
        let h = self.width();
        for row in 0..extent.batch() {
            let (last, to) = (self.last(row, extent), columns.of(row, h));
            into[0][to.clone()].copy_from_slice(&hidden[columns.of(last, h)]);
            into[1][to].copy_from_slice(&run.cell[last * h..(last + 1) * h]);
        }
    }

    /// Gradients from those of the states (which are spent) and of the final states: writes those of the weights, and
    /// writes or adds that of the input.
    #[expect(clippy::too_many_arguments, reason = "what a backward pass is given, and where its results go")]
    pub(super) fn backward(
        &self,
        given: &Given<'_>,
        run: &mut Run,
        extent: &Extent,
        d_hidden: &mut [f32],
        columns: Columns,
        (d_x, add): (&mut [f32], bool),
        gradients: &mut [f32],
        work: &mut Work,
    ) {
        let (h, n) = (self.width(), extent.entries());
        let mut carry = work.take(extent.batch() * h);
        for row in 0..extent.batch() {
            let from = columns.of(row, h);
            super::linear::add(&mut d_hidden[columns.of(self.last(row, extent), h)], &given.finals[0][from.clone()]);
            carry[row * h..(row + 1) * h].copy_from_slice(&given.finals[1][from]);
        }
        let zero = work.zeros(h);
        for Moment { t, before } in self.moments(extent).into_iter().rev() {
            let own = extent.at(t);
            let block = &mut run.gates[own.start * 4 * h..own.end * 4 * h];
            let (from, rows) = before.map_or((0, 0), |(from, rows)| (extent.at(from).start, rows));
            for (row, gates) in block.chunks_exact_mut(4 * h).enumerate() {
                let (now, last) = (own.start + row, from + row);
                let before = if row < rows { &run.cell[last * h..(last + 1) * h] } else { &zero[..] };
                let cell = &run.cell[now * h..(now + 1) * h];
                let hidden = &d_hidden[columns.of(now, h)];
                back(Cell::Lstm, Back { gates, before, cell, hidden, carry: &mut carry[row * h..(row + 1) * h] });
            }
            if rows > 0 {
                let to = &mut d_hidden[columns.of(from, 0).start..];
                self.hidden.back(block, rows, to, columns.width, true, work);
            }
        }
        self.input.back(&run.gates, n, d_x, self.slots.input.columns, add, work);
        self.input.gradient(&run.gates, given.x, n, gradients, work);
        let states = self.states_before(given.hidden, extent, columns, work);
        self.hidden.gradient(&run.gates, &states, n, gradients, work);
        bias_gradients(&self.slots, &run.gates, gradients, work);
        [carry, zero, states].into_iter().for_each(|vector| work.give(vector));
    }

    /// For each entry the state that went into it.
    fn states_before(&self, hidden: &[f32], extent: &Extent, columns: Columns, work: &mut Work) -> Vec<f32> {
        let h = self.width();
        let mut states = work.take(extent.entries() * h);
        for Moment { t, before } in self.moments(extent) {
            let (from, rows) = before.map_or((0, 0), |(from, rows)| (extent.at(from).start, rows));
            let own = extent.at(t);
            for (row, state) in states[own.start * h..own.end * h].chunks_exact_mut(h).enumerate() {
                if row < rows {
                    state.copy_from_slice(&hidden[columns.of(from + row, h)]);
                } else {
                    state.fill(0.0);
                }
            }
        }
        states
    }
}
