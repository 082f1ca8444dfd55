//! One layer over whole sequences, forward and backward, on plain slices.
//!
//! Plainly, a step is `gates = W x + U h`, the cell, and on to the next. Here `W x` of all steps is
//! one product, each thread takes its rows through the whole sequence without waiting for the
//! others, and the gradients of the weights are one product over all steps at the end.
//!
//! Every row of the batch has a block in the output: `time` steps of `directions · hidden` floats,
//! then, if asked for, the last `h` and, for an LSTM, the last `c`. The states that are passed in
//! have the layout of those last lines.

use super::plan::{self, Part};
use super::weights::{self, Packs, Slopes, Weights};
use parsimax::kernel::cells::{Back, Cell, Step, back, step};
use parsimax::kernel::matmul::{Matrix, Packed, Target, multiply};
use rayon::prelude::*;

/// Sizes of a layer and of what it is given.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    pub(crate) cell: Cell,
    pub(crate) input: usize,
    pub(crate) hidden: usize,
    pub(crate) directions: usize,
    pub(crate) time: usize,
    /// Whether the last states follow the outputs.
    pub(crate) states: bool,
}

impl Layer {
    /// Floats of one step of the output.
    fn width(&self) -> usize {
        self.directions * self.hidden
    }

    /// Lines of a state: `h`, and `c` of an LSTM.
    pub(crate) fn state_lines(&self) -> usize {
        if self.cell == Cell::Lstm { 2 } else { 1 }
    }

    /// Lines of a row's block in the output.
    pub(crate) fn output_lines(&self) -> usize {
        self.time + if self.states { self.state_lines() } else { 0 }
    }
}

/// What the backward pass needs of the forward pass, for one direction of one part.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Activations, `lines · 4 hidden`.
    gates: Vec<f32>,
    /// `h` before each step, `lines · hidden`.
    hidden: Vec<f32>,
    /// `c` after each step, `lines · hidden`; empty for a GRU.
    cells: Vec<f32>,
}

/// What a forward pass leaves behind.
#[derive(Clone, Debug)]
pub(crate) struct Saved {
    parts: Vec<Part>,
    traces: Vec<Vec<Trace>>,
}

/// Which gradients are wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) input: bool,
    pub(crate) state: bool,
    pub(crate) weights: bool,
}

/// Gradients of a layer; those not wanted are empty.
#[derive(Debug)]
pub(crate) struct Gradient {
    pub(crate) input: Vec<f32>,
    pub(crate) state: Vec<f32>,
    /// Input, hidden, and the two biases, directions one behind the other.
    pub(crate) weights: [Vec<f32>; 4],
}

/// Runs a layer over `x` (`batch · time · input`) from `state` (`batch` blocks).
pub(crate) fn forward(
    layer: &Layer,
    x: &[f32],
    state: &[f32],
    weights: Weights<'_>,
    packs: &Packs,
    lengths: &[usize],
) -> (Vec<f32>, Saved) {
    let packed = packs.forward(layer.cell, weights, layer.directions);
    let parts = plan::parts(lengths, rayon::current_num_threads());
    let size = layer.output_lines() * layer.width();
    let mut out = vec![0.0; lengths.len() * size];
    let jobs: Vec<_> = parts.iter().zip(plan::blocks(&parts, &mut out, size)).collect();
    let run = |(part, mut out): (&Part, Vec<&mut [f32]>)| {
        let direction = |d: usize| Run { layer, part, d, x, state }.forward(&packed[d], &mut out);
        (0..layer.directions).map(direction).collect()
    };
    let traces = jobs.into_par_iter().map(run).collect();
    (out, Saved { parts, traces })
}

/// Gradients from that of the output.
pub(crate) fn backward(
    layer: &Layer,
    (x, state, slope): (&[f32], &[f32], &[f32]),
    weights: Weights<'_>,
    packs: &Packs,
    saved: Saved,
    wanted: Wanted,
) -> Gradient {
    let packed = packs.backward(layer.cell, weights, layer.directions);
    let Saved { parts, traces } = saved;
    let batch: usize = parts.iter().map(|part| part.rows.len()).sum();
    let (x_size, s_size) = (layer.time * layer.input, layer.state_lines() * layer.width());
    let mut dx = vec![0.0; if wanted.input { batch * x_size } else { 0 }];
    let mut ds = vec![0.0; if wanted.state { batch * s_size } else { 0 }];
    let dx_blocks = plan::blocks(&parts, &mut dx, if wanted.input { x_size } else { 0 });
    let ds_blocks = plan::blocks(&parts, &mut ds, if wanted.state { s_size } else { 0 });
    let jobs: Vec<_> = parts.iter().zip(traces).zip(dx_blocks.into_iter().zip(ds_blocks)).collect();
    let slopes: Vec<Vec<Slopes>> = jobs
        .into_par_iter()
        .map(|((part, traces), (mut dx, mut ds))| {
            let each = traces.into_iter().enumerate();
            let run = |(d, trace)| {
                Run { layer, part, d, x, state }.backward(trace, slope, &packed[d], wanted, (&mut dx, &mut ds))
            };
            each.map(run).collect()
        })
        .collect();
    Gradient { input: dx, state: ds, weights: total(layer, slopes) }
}

/// Sums over parts, in their order, and puts the directions one behind the other.
fn total(layer: &Layer, slopes: Vec<Vec<Slopes>>) -> [Vec<f32>; 4] {
    let mut sums = slopes.into_iter().reduce(|mut sums, part| {
        sums.iter_mut().zip(&part).for_each(|(sum, part)| sum.add(part));
        sums
    });
    let mut all: [Vec<f32>; 4] = Default::default();
    for direction in sums.iter_mut().flatten() {
        let stored = std::mem::take(direction).stored(layer.cell);
        all.iter_mut().zip(stored).for_each(|(all, one)| if all.is_empty() { *all = one } else { all.extend(one) });
    }
    all
}

/// One direction of one part.
struct Run<'a> {
    layer: &'a Layer,
    part: &'a Part,
    d: usize,
    x: &'a [f32],
    state: &'a [f32],
}

impl Run<'_> {
    fn reversed(&self) -> bool {
        self.d == 1
    }

    /// Where row `n` at `step` is in a block of lines of the layer's width.
    fn place(&self, n: usize, step: usize) -> std::ops::Range<usize> {
        self.line(self.part.time(n, step, self.reversed()))
    }

    /// Where this direction's part of a line is.
    fn line(&self, line: usize) -> std::ops::Range<usize> {
        let start = line * self.layer.width() + self.d * self.layer.hidden;
        start..start + self.layer.hidden
    }

    /// Line `k` of the state that row `n` starts from.
    fn start(&self, n: usize, k: usize) -> &[f32] {
        let size = self.layer.state_lines() * self.layer.width();
        &self.state[self.part.rows[n] * size..][..size][self.line(k)]
    }

    /// The inputs in the order of the plan.
    fn gather(&self) -> Vec<f32> {
        let (part, width, time) = (self.part, self.layer.input, self.layer.time);
        let mut lines = Vec::with_capacity(part.lines() * width);
        for s in 0..part.steps() {
            for n in 0..part.running(s) {
                let at = part.rows[n] * time + part.time(n, s, self.reversed());
                lines.extend_from_slice(&self.x[at * width..][..width]);
            }
        }
        lines
    }

    fn forward(&self, packed: &weights::Forward, out: &mut [&mut [f32]]) -> Trace {
        let (layer, part, h) = (self.layer, self.part, self.layer.hidden);
        let [of_input, of_hidden] = weights::columns(layer.cell, h);
        let mut scratch = Vec::new();
        let mut trace = Trace {
            gates: vec![0.0; part.lines() * 4 * h],
            hidden: vec![0.0; part.lines() * h],
            cells: vec![0.0; if layer.cell == Cell::Lstm { part.lines() * h } else { 0 }],
        };
        let lines = self.gather();
        let to = Target { data: &mut trace.gates[of_input.start..], row: 4 * h, add: false };
        multiply(Matrix::new(&lines, part.lines(), layer.input, layer.input), &packed.input, to, &mut scratch);
        drop(lines);
        for n in 0..part.running(0) {
            trace.hidden[n * h..][..h].copy_from_slice(self.start(n, 0));
        }
        // A product with zeros changes nothing.
        let at_rest = trace.hidden[..part.running(0) * h].iter().all(|&x| x == 0.0);
        for s in 0..part.steps() {
            let (first, running) = (part.offsets[s], part.running(s));
            if s > 0 || !at_rest {
                let left = Matrix::new(&trace.hidden[first * h..], running, h, h);
                let to = Target { data: &mut trace.gates[first * 4 * h + of_hidden.start..], row: 4 * h, add: true };
                multiply(left, &packed.hidden, to, &mut scratch);
            }
            self.cells(s, &packed.bias, &mut trace, out);
        }
        if layer.states {
            self.ends(&trace, out);
        }
        trace
    }

    /// The elementwise part of a step.
    fn cells(&self, s: usize, bias: &[f32], trace: &mut Trace, out: &mut [&mut [f32]]) {
        let (part, h, first) = (self.part, self.layer.hidden, self.part.offsets[s]);
        let lstm = self.layer.cell == Cell::Lstm;
        let (earlier, now) = trace.cells.split_at_mut(if lstm { first * h } else { 0 });
        for n in 0..part.running(s) {
            let hidden = &mut out[n][self.place(n, s)];
            let before = match (lstm, s) {
                (true, 0) => self.start(n, 1),
                (true, _) => &earlier[(part.offsets[s - 1] + n) * h..][..h],
                (false, _) => &trace.hidden[(first + n) * h..][..h],
            };
            let gates = &mut trace.gates[(first + n) * 4 * h..][..4 * h];
            let cell = if lstm { &mut now[n * h..][..h] } else { &mut [] };
            step(self.layer.cell, Step { gates, bias, before, cell, hidden });
            if n < part.running(s + 1) {
                trace.hidden[(part.offsets[s + 1] + n) * h..][..h].copy_from_slice(hidden);
            }
        }
    }

    /// Writes the last states behind the outputs; a row without steps ends where it started.
    fn ends(&self, trace: &Trace, out: &mut [&mut [f32]]) {
        let (part, h, time) = (self.part, self.layer.hidden, self.layer.time);
        for (n, &length) in part.lengths.iter().enumerate() {
            if length == 0 {
                for k in 0..self.layer.state_lines() {
                    out[n][self.line(time + k)].copy_from_slice(self.start(n, k));
                }
                continue;
            }
            let last = self.place(n, length - 1);
            out[n].copy_within(last, self.line(time).start);
            if self.layer.cell == Cell::Lstm {
                let cell = &trace.cells[(part.offsets[length - 1] + n) * h..][..h];
                out[n][self.line(time + 1)].copy_from_slice(cell);
            }
        }
    }

    fn backward(
        &self,
        mut trace: Trace,
        slope: &[f32],
        packed: &weights::Backward,
        wanted: Wanted,
        (dx, ds): (&mut [&mut [f32]], &mut [&mut [f32]]),
    ) -> Slopes {
        let (layer, part, h) = (self.layer, self.part, self.layer.hidden);
        let of_hidden = weights::columns(layer.cell, h)[1].clone();
        let rows = part.rows.len();
        let (mut dh, mut carry, mut scratch) = (vec![0.0; rows * h], vec![0.0; rows * h], Vec::new());
        if layer.states {
            self.start_from_ends(slope, &mut dh, &mut carry);
        }
        for s in (0..part.steps()).rev() {
            self.cells_back(s, slope, &mut trace, &mut dh, &mut carry);
            if s == 0 && !wanted.state {
                break;
            }
            let (first, running) = (part.offsets[s], part.running(s));
            let add = layer.cell == Cell::Gru;
            if add {
                dh[..running * h].copy_from_slice(&carry[..running * h]);
            }
            let left = Matrix::new(&trace.gates[first * 4 * h + of_hidden.start..], running, of_hidden.len(), 4 * h);
            multiply(left, &packed.hidden, Target { data: &mut dh, row: h, add }, &mut scratch);
        }
        if wanted.state {
            for n in 0..rows {
                ds[n][self.line(0)].copy_from_slice(&dh[n * h..][..h]);
                if layer.cell == Cell::Lstm {
                    ds[n][self.line(1)].copy_from_slice(&carry[n * h..][..h]);
                }
            }
        }
        if wanted.input {
            self.input_back(&trace, &packed.input, dx, &mut scratch);
        }
        if wanted.weights { self.slopes(&trace, &mut scratch) } else { Slopes::default() }
    }

    /// The block of row `n` in the gradient of the output.
    fn slope<'s>(&self, slope: &'s [f32], n: usize) -> &'s [f32] {
        let size = self.layer.output_lines() * self.layer.width();
        &slope[self.part.rows[n] * size..][..size]
    }

    fn start_from_ends(&self, slope: &[f32], dh: &mut [f32], carry: &mut [f32]) {
        let (h, time) = (self.layer.hidden, self.layer.time);
        for n in 0..self.part.rows.len() {
            let slope = self.slope(slope, n);
            dh[n * h..][..h].copy_from_slice(&slope[self.line(time)]);
            if self.layer.cell == Cell::Lstm {
                carry[n * h..][..h].copy_from_slice(&slope[self.line(time + 1)]);
            }
        }
    }

    /// The elementwise part of a backward step.
    fn cells_back(&self, s: usize, slope: &[f32], trace: &mut Trace, dh: &mut [f32], carry: &mut [f32]) {
        let (part, h, first) = (self.part, self.layer.hidden, self.part.offsets[s]);
        let lstm = self.layer.cell == Cell::Lstm;
        for n in 0..part.running(s) {
            let hidden = &mut dh[n * h..][..h];
            let own = &self.slope(slope, n)[self.place(n, s)];
            hidden.iter_mut().zip(own).for_each(|(to, from)| *to += from);
            let before = match (lstm, s) {
                (true, 0) => self.start(n, 1),
                (true, _) => &trace.cells[(part.offsets[s - 1] + n) * h..][..h],
                (false, _) => &trace.hidden[(first + n) * h..][..h],
            };
            let cell = if lstm { &trace.cells[(first + n) * h..][..h] } else { &[][..] };
            let gates = &mut trace.gates[(first + n) * 4 * h..][..4 * h];
            back(self.layer.cell, Back { gates, before, cell, hidden, carry: &mut carry[n * h..][..h] });
        }
    }

    /// Adds the gradient of the input to its rows.
    fn input_back(&self, trace: &Trace, packed: &Packed, dx: &mut [&mut [f32]], scratch: &mut Vec<f32>) {
        let (layer, part, width) = (self.layer, self.part, self.layer.input);
        let mut lines = vec![0.0; part.lines() * width];
        let to = Target { data: &mut lines, row: width, add: false };
        multiply(self.of_input(trace), packed, to, scratch);
        for s in 0..part.steps() {
            for n in 0..part.running(s) {
                let at = part.time(n, s, self.reversed()) * layer.input;
                let from = &lines[(part.offsets[s] + n) * width..][..width];
                dx[n][at..][..width].iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
        }
    }

    /// The gradients of the sums that the input feeds.
    fn of_input<'t>(&self, trace: &'t Trace) -> Matrix<'t> {
        let [columns, _] = weights::columns(self.layer.cell, self.layer.hidden);
        Matrix::new(&trace.gates[columns.start..], self.part.lines(), columns.len(), 4 * self.layer.hidden)
    }

    /// The gradients of the weights: one product over all steps each.
    fn slopes(&self, trace: &Trace, scratch: &mut Vec<f32>) -> Slopes {
        let (layer, lines, h) = (self.layer, self.part.lines(), self.layer.hidden);
        let [_, of_hidden] = weights::columns(layer.cell, h);
        let mut product = |left: Matrix<'_>, right: &[f32], width: usize| {
            let mut data = vec![0.0; left.shape.1 * width];
            let right = Packed::new(Matrix::new(right, lines, width, width));
            multiply(left.transposed(), &right, Target { data: &mut data, row: width, add: false }, scratch);
            data
        };
        let mut bias = vec![0.0; 4 * h];
        for line in trace.gates.chunks_exact(4 * h) {
            bias.iter_mut().zip(line).for_each(|(to, from)| *to += from);
        }
        let input = product(self.of_input(trace), &self.gather(), layer.input);
        let left = Matrix::new(&trace.gates[of_hidden.start..], lines, of_hidden.len(), 4 * h);
        Slopes { input, hidden: product(left, &trace.hidden, h), bias }
    }
}
