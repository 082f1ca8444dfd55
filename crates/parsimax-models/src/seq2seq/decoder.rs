//! The decoder: recurrent layers, attention over the source, and what both say about the next symbol.
//!
//! One step, for each row: with the embedding `e` of the last symbol and the attentional state `o` of the last step
//! (input feeding),
//!
//! ```text
//! h₁ = LSTM₁([e; o]),  h₂ = LSTM₂(h₁),  p = Π(⟨h₂, K s⟩ over source states s),  c = Σ p s,  o = tanh(W [c; h₂])
//! ```
//!
//! The product with embeddings is taken for all steps at once. States of zero weight cost nothing, on the way back
//! too.

use super::linear::{Repack, Weight, add_scaled, dot};
use super::lstm::sum_biases;
use super::parameters::{LstmSlots, Slots};
use super::work::Work;
use parsimax::kernel::cells::{Back, Cell, Step, back, step, tanh_all};
use parsimax::{Mapping, Rows, View, ViewMut};

/// The decoder's weights, ready to use.
#[derive(Debug)]
pub(super) struct Decoder {
    pub(super) size: usize,
    pub(super) layers: Vec<Layer>,
    /// The first layer's weights of the embedding.
    pub(super) embedding: Weight,
    /// Source states to keys.
    pub(super) keys: Weight,
    /// Of the context and of the state.
    pub(super) combine: [Weight; 2],
    pub(super) output: Weight,
    output_slot: super::parameters::Slot,
    output_bias: Vec<f32>,
}

/// A recurrent layer: what comes from below, and its own state.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) slots: LstmSlots,
    pub(super) below: Weight,
    pub(super) own: Weight,
    bias: Vec<f32>,
}

/// Where the source states of a row lie in the memory: rows `start..start + len`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Span {
    /// The floats of all its states.
    fn of(self, size: usize) -> std::ops::Range<usize> {
        self.start * size..(self.start + self.len) * size
    }
}

/// Source states, as keys and as they are, row by row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory<'a> {
    pub(super) keys: &'a [f32],
    pub(super) states: &'a [f32],
}

/// Attention of some rows: scores and weights, `width` of each a row; beyond a row's source `−∞` and 0.
#[derive(Debug)]
pub(super) struct Attended<'a> {
    pub(super) scores: &'a mut [f32],
    pub(super) weights: &'a mut [f32],
    pub(super) context: &'a mut [f32],
    pub(super) width: usize,
}

/// The tensors of a step of one layer.
#[derive(Debug)]
pub(super) struct LayerStep<'a> {
    /// What comes from below.
    pub(super) below: &'a [f32],
    /// Its own `h` and `c` before.
    pub(super) hidden_before: &'a [f32],
    pub(super) cell_before: &'a [f32],
    /// What else is to be added to the sums, if `add` says so; activations afterwards.
    pub(super) gates: &'a mut [f32],
    pub(super) add: bool,
    pub(super) cell: &'a mut [f32],
    pub(super) hidden: &'a mut [f32],
}

/// The tensors of a step of one layer on the way back.
#[derive(Debug)]
pub(super) struct LayerBack<'a> {
    /// Activations; gradients of the sums afterwards.
    pub(super) gates: &'a mut [f32],
    pub(super) cell_before: &'a [f32],
    pub(super) cell: &'a [f32],
    /// Gradient of `h'`; that of `h` afterwards.
    pub(super) d_hidden: &'a mut [f32],
    /// Gradient of `c'`; that of `c` afterwards.
    pub(super) d_cell: &'a mut [f32],
    /// Gradient of what comes from below.
    pub(super) d_below: &'a mut [f32],
}

impl Decoder {
    pub(super) fn new(slots: &Slots) -> Self {
        let size = slots.target.columns;
        Self {
            size,
            layers: slots.decoder.iter().enumerate().map(|(l, slots)| Layer::new(*slots, l, size)).collect(),
            embedding: Weight::columns(slots.decoder[0].input, 0..size),
            keys: Weight::new(slots.keys),
            combine: [0..size, size..2 * size].map(|columns| Weight::columns(slots.combine, columns)),
            output: Weight::new(slots.output),
            output_slot: slots.output_bias,
            output_bias: Vec::new(),
        }
    }

    pub(super) fn repack<'a>(&'a mut self, values: &'a [f32]) -> impl Iterator<Item = Repack<'a>> {
        self.output_bias.clear();
        self.output_bias.extend_from_slice(self.output_slot.of(values));
        let single = [&mut self.embedding, &mut self.keys, &mut self.output].into_iter().chain(&mut self.combine);
        let layers = self.layers.iter_mut().flat_map(|layer| {
            sum_biases(&layer.slots, values, &mut layer.bias);
            [&mut layer.below, &mut layer.own]
        });
        single.chain(layers).flat_map(|weight| weight.repack(values))
    }

    /// Numbers that a prefix is: `h` and `c` of each layer and `o`.
    pub(super) fn wide(&self) -> usize {
        (2 * self.layers.len() + 1) * self.size
    }

    /// Scores of the target symbols of `n` rows.
    pub(super) fn logits(&self, o: &[f32], n: usize, logits: &mut [f32], work: &mut Work) {
        logits.chunks_exact_mut(self.output_bias.len()).for_each(|row| row.copy_from_slice(&self.output_bias));
        self.output.apply(o, n, logits, true, work);
    }

    /// Weights and contexts for some queries.
    pub(super) fn attend(
        &self,
        mapping: &dyn Mapping,
        memory: Memory<'_>,
        queries: &[f32],
        spans: &[Span],
        to: &mut Attended<'_>,
    ) -> parsimax::Result<()> {
        let (size, width) = (self.size, to.width);
        for ((span, query), scores) in
            spans.iter().zip(queries.chunks_exact(size)).zip(to.scores.chunks_exact_mut(width))
        {
            let keys = memory.keys[span.of(size)].chunks_exact(size);
            scores.iter_mut().zip(keys).for_each(|(z, key)| *z = dot(query, key));
            scores[span.len..].fill(f32::NEG_INFINITY);
        }
        let shape = [spans.len(), width];
        let rows = Rows::new(&mapping).single_threaded();
        rows.forward(View::new(to.scores, &shape)?, ViewMut::new(to.weights, &shape)?)?;
        for ((span, context), weights) in
            spans.iter().zip(to.context.chunks_exact_mut(size)).zip(to.weights.chunks_exact(width))
        {
            context.fill(0.0);
            let states = memory.states[span.of(size)].chunks_exact(size);
            for (p, state) in weights.iter().zip(states).filter(|(p, _)| **p != 0.0) {
                add_scaled(context, *p, state);
            }
        }
        Ok(())
    }

    /// The way back, from gradients of contexts: those of the queries grow by what comes through the scores; those of
    /// keys and states are added up.
    #[expect(clippy::too_many_arguments, reason = "the tensors of attention, and their gradients")]
    pub(super) fn attend_back(
        &self,
        mapping: &dyn Mapping,
        memory: Memory<'_>,
        queries: &[f32],
        spans: &[Span],
        (scores, weights, width): (&[f32], &[f32], usize),
        d_context: &[f32],
        d_queries: &mut [f32],
        d_memory: [&mut [f32]; 2],
        work: &mut Work,
    ) -> parsimax::Result<()> {
        let (size, n) = (self.size, spans.len());
        let [d_keys, d_states] = d_memory;
        let (mut d_weights, mut d_scores) = (work.zeros(n * width), work.take(n * width));
        for (row, span) in spans.iter().enumerate() {
            let d_context = &d_context[row * size..][..size];
            let states = memory.states[span.of(size)].chunks_exact(size);
            let d_states = d_states[span.of(size)].chunks_exact_mut(size);
            let own = row * width..(row + 1) * width;
            let each = weights[own.clone()].iter().zip(&mut d_weights[own]).zip(states.zip(d_states));
            for ((p, d_weight), (state, d_state)) in each.filter(|((p, _), _)| **p != 0.0) {
                *d_weight = dot(d_context, state);
                add_scaled(d_state, *p, d_context);
            }
        }
        let shape = [n, width];
        let (z, p, v) = (View::new(scores, &shape)?, View::new(weights, &shape)?, View::new(&d_weights, &shape)?);
        Rows::new(&mapping).single_threaded().vjp(z, p, v, ViewMut::new(&mut d_scores, &shape)?)?;
        for (row, span) in spans.iter().enumerate() {
            let query = &queries[row * size..][..size];
            let d_query = &mut d_queries[row * size..][..size];
            let keys = memory.keys[span.of(size)].chunks_exact(size);
            let d_keys = d_keys[span.of(size)].chunks_exact_mut(size);
            let each = d_scores[row * width..].iter().zip(keys.zip(d_keys));
            for (d, (key, d_key)) in each.filter(|(d, _)| **d != 0.0) {
                add_scaled(d_query, *d, key);
                add_scaled(d_key, *d, query);
            }
        }
        work.give(d_weights);
        work.give(d_scores);
        Ok(())
    }

    /// `o = tanh(W [c; h])`.
    pub(super) fn combine(&self, context: &[f32], hidden: &[f32], n: usize, o: &mut [f32], work: &mut Work) {
        self.combine[0].apply(context, n, o, false, work);
        self.combine[1].apply(hidden, n, o, true, work);
        tanh_all(&mut o[..n * self.size]);
    }
}

impl Layer {
    fn new(slots: LstmSlots, layer: usize, size: usize) -> Self {
        let columns = slots.input.columns;
        // The first layer's embedding has a product of its own.
        let below = Weight::columns(slots.input, if layer == 0 { size..columns } else { 0..columns });
        Self { slots, below, own: Weight::new(slots.hidden), bias: Vec::new() }
    }

    /// A step of `n` rows.
    pub(super) fn step(&self, n: usize, to: LayerStep<'_>, work: &mut Work) {
        let size = self.bias.len() / 4;
        self.below.apply(to.below, n, to.gates, to.add, work);
        self.own.apply(to.hidden_before, n, to.gates, true, work);
        for row in 0..n {
            let own = row * size..(row + 1) * size;
            let gates = &mut to.gates[4 * row * size..][..4 * size];
            self.cell(gates, &to.cell_before[own.clone()], &mut to.cell[own.clone()], &mut to.hidden[own]);
        }
    }

    /// What happens in one row after the products: sums without biases to activations and states.
    pub(super) fn cell(&self, gates: &mut [f32], before: &[f32], cell: &mut [f32], hidden: &mut [f32]) {
        step(Cell::Lstm, Step { gates, bias: &self.bias, before, cell, hidden });
    }

    /// The way back of `n` rows.
    pub(super) fn back(&self, n: usize, to: LayerBack<'_>, work: &mut Work) {
        let size = self.bias.len() / 4;
        for row in 0..n {
            let own = row * size..(row + 1) * size;
            back(
                Cell::Lstm,
                Back {
                    gates: &mut to.gates[4 * row * size..][..4 * size],
                    before: &to.cell_before[own.clone()],
                    cell: &to.cell[own.clone()],
                    hidden: &to.d_hidden[own.clone()],
                    carry: &mut to.d_cell[own],
                },
            );
        }
        self.below.back(to.gates, n, to.d_below, size, false, work);
        self.own.back(to.gates, n, to.d_hidden, size, false, work);
    }
}
