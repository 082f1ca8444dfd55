//! The decoder: recurrent layers, attention over the source, and what both say about the next symbol.
//!
//! One step, for each row: with the embedding `e` of the last symbol and the attentional state `o` of the last step
//! (input feeding),
//!
//! ```text
//! h₁ = LSTM₁([e; o]),  h₂ = LSTM₂(h₁),  p = Π(⟨h₂, K s⟩ over source states s),  c = Σ p s,  o = tanh(W [c; h₂])
//! ```
//!
//! The product with embeddings is taken for all steps at once; `o` and the state of the first layer are multiplied
//! together. States of zero weight cost nothing, on the way back too.

use super::linear::{Weight, add_scaled, dot};
use super::parameters::{LstmSlots, Slots};
use parsimax::kernel::cells::{Back, Cell, Step, back, step};
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
    pub(super) combine: Weight,
    pub(super) output: Weight,
    pub(super) output_bias: Vec<f32>,
}

/// A recurrent layer whose inputs lie side by side: from below, and its own state.
#[derive(Debug)]
pub(super) struct Layer {
    pub(super) slots: LstmSlots,
    pub(super) both: Weight,
    bias: Vec<f32>,
}

/// Where the source states of a row lie: rows `start`, `start + stride`, … of the memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) len: usize,
}

impl Span {
    /// Index and floats of each state.
    fn states<'a>(&self, memory: &'a [f32], size: usize) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let Span { start, stride, len } = *self;
        (0..len).map(move |s| &memory[(start + s * stride) * size..][..size])
    }

    fn at(&self, s: usize, size: usize) -> std::ops::Range<usize> {
        let start = (self.start + s * self.stride) * size;
        start..start + size
    }
}

/// Source states, as keys and as they are.
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
    /// `[c; h]` of each row; the second half is the query.
    pub(super) mixed: &'a mut [f32],
    pub(super) width: usize,
}

impl Decoder {
    pub(super) fn new(slots: &Slots, values: &[f32]) -> Self {
        let size = slots.target.columns;
        let plain = |slot: super::parameters::Slot| Weight::new(slot.of(values), slot.rows, slot.columns, slot.columns);
        let keys = slots.keys.of(values);
        // Keys are `W·s` seen from the query: ⟨h, s·W⟩, so the matrix is taken the other way round.
        let turned: Vec<f32> = (0..size * size).map(|i| keys[i % size * size + i / size]).collect();
        Self {
            size,
            layers: slots.decoder.iter().enumerate().map(|(l, slots)| Layer::new(*slots, l, size, values)).collect(),
            embedding: Weight::new(slots.decoder[0].input.of(values), 4 * size, size, 2 * size),
            keys: Weight::new(&turned, size, size, size),
            combine: plain(slots.combine),
            output: plain(slots.output),
            output_bias: slots.output_bias.of(values).to_vec(),
        }
    }

    /// Scores of the target symbols of `n` rows.
    pub(super) fn logits(&self, o: &[f32], n: usize, scratch: &mut Vec<f32>) -> Vec<f32> {
        let mut logits: Vec<f32> = self.output_bias.iter().copied().cycle().take(n * self.output_bias.len()).collect();
        self.output.apply(o, n, &mut logits, true, scratch);
        logits
    }

    /// Weights and contexts for the queries in `mixed`.
    pub(super) fn attend(
        &self,
        mapping: &dyn Mapping,
        memory: Memory<'_>,
        spans: &[Span],
        to: &mut Attended<'_>,
    ) -> parsimax::Result<()> {
        let (size, width) = (self.size, to.width);
        to.scores.fill(f32::NEG_INFINITY);
        for (row, span) in spans.iter().enumerate() {
            let query = &to.mixed[(2 * row + 1) * size..][..size];
            let scores = &mut to.scores[row * width..][..span.len];
            scores.iter_mut().zip(span.states(memory.keys, size)).for_each(|(z, key)| *z = dot(query, key));
        }
        let shape = [spans.len(), width];
        let rows = Rows::new(&mapping).single_threaded();
        rows.forward(View::new(to.scores, &shape)?, ViewMut::new(to.weights, &shape)?)?;
        for (row, span) in spans.iter().enumerate() {
            let context = &mut to.mixed[2 * row * size..][..size];
            context.fill(0.0);
            let weights = &to.weights[row * width..][..span.len];
            for (p, state) in weights.iter().zip(span.states(memory.states, size)).filter(|(p, _)| **p != 0.0) {
                add_scaled(context, *p, state);
            }
        }
        Ok(())
    }

    /// The way back: `d_mixed` holds gradients of `[c; h]`, of which the second half grows by what comes through the
    /// scores; gradients of keys and states are added up.
    pub(super) fn attend_back(
        &self,
        mapping: &dyn Mapping,
        memory: Memory<'_>,
        spans: &[Span],
        at: &Attended<'_>,
        d_mixed: &mut [f32],
        d_memory: [&mut [f32]; 2],
    ) -> parsimax::Result<()> {
        let (size, width, n) = (self.size, at.width, spans.len());
        let [d_keys, d_states] = d_memory;
        let mut d_weights = vec![0.0; n * width];
        for (row, span) in spans.iter().enumerate() {
            let d_context = &d_mixed[2 * row * size..][..size];
            let weights = &at.weights[row * width..][..span.len];
            for (s, state) in span.states(memory.states, size).enumerate().filter(|(s, _)| weights[*s] != 0.0) {
                d_weights[row * width + s] = dot(d_context, state);
                add_scaled(&mut d_states[span.at(s, size)], weights[s], d_context);
            }
        }
        let mut d_scores = vec![0.0; n * width];
        let shape = [n, width];
        let (z, p, v) = (View::new(at.scores, &shape)?, View::new(at.weights, &shape)?, View::new(&d_weights, &shape)?);
        Rows::new(&mapping).single_threaded().vjp(z, p, v, ViewMut::new(&mut d_scores, &shape)?)?;
        for (row, span) in spans.iter().enumerate() {
            let query = &at.mixed[(2 * row + 1) * size..][..size];
            let d_query = &mut d_mixed[(2 * row + 1) * size..][..size];
            let scores = &d_scores[row * width..][..span.len];
            for (s, key) in span.states(memory.keys, size).enumerate().filter(|(s, _)| scores[*s] != 0.0) {
                add_scaled(d_query, scores[s], key);
                add_scaled(&mut d_keys[span.at(s, size)], scores[s], query);
            }
        }
        Ok(())
    }

    /// `o = tanh(W [c; h])`.
    pub(super) fn combine(&self, mixed: &[f32], n: usize, o: &mut [f32], scratch: &mut Vec<f32>) {
        self.combine.apply(mixed, n, o, false, scratch);
        o[..n * self.size].iter_mut().for_each(|x| *x = x.tanh());
    }
}

impl Layer {
    fn new(slots: LstmSlots, layer: usize, size: usize, values: &[f32]) -> Self {
        let (input, hidden) = (slots.input.of(values), slots.hidden.of(values));
        let skip = if layer == 0 { size } else { 0 };
        let rows = input.chunks_exact(slots.input.columns).zip(hidden.chunks_exact(size));
        let both: Vec<f32> = rows.flat_map(|(i, h)| i[skip..].iter().chain(h)).copied().collect();
        let bias = slots.biases[0].of(values).iter().zip(slots.biases[1].of(values)).map(|(a, b)| a + b).collect();
        Self { slots, both: Weight::new(&both, 4 * size, 2 * size, 2 * size), bias }
    }

    /// A step of `n` rows. `gates` holds what else is to be added to the sums, if `add` says so.
    #[expect(clippy::too_many_arguments, reason = "the tensors of one step")]
    pub(super) fn step(
        &self,
        both: &[f32],
        n: usize,
        gates: &mut [f32],
        add: bool,
        before: &[f32],
        cell: &mut [f32],
        hidden: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let size = self.bias.len() / 4;
        self.both.apply(both, n, gates, add, scratch);
        for row in 0..n {
            let own = row * size..(row + 1) * size;
            step(
                Cell::Lstm,
                Step {
                    gates: &mut gates[4 * row * size..][..4 * size],
                    bias: &self.bias,
                    before: &before[own.clone()],
                    cell: &mut cell[own.clone()],
                    hidden: &mut hidden[own],
                },
            );
        }
    }

    /// The way back of `n` rows: `gates` become gradients of the sums, `carry` moves from `c'` to `c`, and the gradients
    /// of both inputs are written.
    #[expect(clippy::too_many_arguments, reason = "the tensors of one step")]
    pub(super) fn back(
        &self,
        n: usize,
        gates: &mut [f32],
        before: &[f32],
        cell: &[f32],
        d_hidden: &[f32],
        carry: &mut [f32],
        d_both: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let size = self.bias.len() / 4;
        for row in 0..n {
            let own = row * size..(row + 1) * size;
            back(
                Cell::Lstm,
                Back {
                    gates: &mut gates[4 * row * size..][..4 * size],
                    before: &before[own.clone()],
                    cell: &cell[own.clone()],
                    hidden: &d_hidden[own.clone()],
                    carry: &mut carry[own],
                },
            );
        }
        self.both.back(gates, n, d_both, false, scratch);
    }
}
