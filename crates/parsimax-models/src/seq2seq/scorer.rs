//! The model as decoders see it.

use super::decoder::{Attended, Decoder, LayerStep, Memory, Span};
use super::extent::Extent;
use super::network::embed;
use super::work::Work;
use super::{Desk, Mappings, Seq2Seq};
use crate::decode::{Answer, DecodeError, Next, Question, Scorer};
use parsimax::{Rows, View, ViewMut};
use parsimax_data::vocabulary::{BEGIN, END};
use std::rc::Rc;

/// Says what may follow a prefix of a target, for a set of sources that were read once.
#[derive(Debug)]
pub struct Translator<'a> {
    model: &'a Seq2Seq,
    keys: Vec<f32>,
    states: Vec<f32>,
    spans: Vec<Span>,
    starts: Vec<Rc<[f32]>>,
    counts: Counts,
    desks: [Desk; 2],
}

/// What was seen while decoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps of single rows.
    pub steps: usize,
    /// Non-zero attention weights in them.
    pub attention: usize,
    /// Non-zero probabilities of symbols in them.
    pub output: usize,
    /// Source positions that could be attended to.
    pub positions: usize,
}

/// The input that a prefix belongs to, and `h` and `c` of each layer, then the attentional state.
#[derive(Debug, Clone)]
pub struct Prefix {
    input: usize,
    row: Rc<[f32]>,
    /// Attention weights of the step that led here.
    attention: Rc<[f32]>,
}

impl Prefix {
    /// The weights of the source positions in the step that led here; empty before the first.
    #[must_use]
    pub fn attention(&self) -> &[f32] {
        &self.attention
    }
}

/// Rows from which it pays to share a step among two threads.
const SHARED: usize = 24;

impl<'a> Translator<'a> {
    /// Reads the sources.
    #[must_use]
    pub fn new(model: &'a Seq2Seq, sources: &[&[u32]]) -> Self {
        let (network, size) = (model.network(), model.config.size);
        let mut desks = [model.desk(), model.desk()];
        let work = &mut desks[0].work;
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(sources[*i].len()));
        let extent = Extent::new(order.iter().map(|i| sources[*i].len()).collect());
        let entries = extent.entries();
        let mut x = work.take(entries * size);
        let rows = |t: usize| order[..extent.active(t)].iter().map(move |i| sources[*i][t]);
        embed(model.slots.source, &model.values, (0..extent.times()).flat_map(rows), &mut x);
        let encoded = network.encoder.forward(x, extent, None, work);
        let (mut keys, mut states) = (work.take(entries * size), work.take(entries * size));
        encoded.extent.to_rows(encoded.states(), &mut states, size);
        network.decoder.keys.apply_turned(&states, entries, &mut keys, work);
        let mut spans = vec![Span::default(); sources.len()];
        let mut starts = vec![Rc::from([]); sources.len()];
        for ((row, input), start) in order.into_iter().enumerate().zip(encoded.extent.row_starts()) {
            spans[input] = Span { start, len: sources[input].len() };
            let states = encoded.finals.iter().flatten().flat_map(|state| &state[row * size..][..size]).copied();
            starts[input] = states.chain(std::iter::repeat_n(0.0, size)).collect();
        }
        encoded.free(work);
        Self { model, keys, states, spans, starts, counts: Counts::default(), desks }
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl Drop for Translator<'_> {
    fn drop(&mut self) {
        for vector in [&mut self.keys, &mut self.states] {
            self.desks[0].work.give(std::mem::take(vector));
        }
        self.model.give_back(std::mem::take(&mut self.desks));
    }
}

/// A step of some rows, without anything that belongs to one thread.
#[derive(Clone, Copy)]
struct Stepper<'a> {
    decoder: &'a Decoder,
    mappings: &'a Mappings,
    memory: Memory<'a>,
    width: usize,
    symbols: usize,
}

/// The tensors of such a step.
struct Tensors<'a> {
    /// `h` and `c` of each layer and `o`, one row a prefix; afterwards one step on.
    rows: &'a mut [f32],
    /// Embeddings of the symbols that are read.
    embedded: &'a [f32],
    spans: &'a [Span],
    /// What comes out: attention and probabilities of symbols.
    weights: &'a mut [f32],
    p: &'a mut [f32],
}

impl<'a> Tensors<'a> {
    /// The first `n` rows, and the others.
    fn split(self, n: usize) -> [Tensors<'a>; 2] {
        let total = self.spans.len().max(1);
        fn halves<'a>(data: &'a mut [f32], n: usize, total: usize) -> (&'a mut [f32], &'a mut [f32]) {
            let row = data.len() / total;
            data.split_at_mut(n * row)
        }
        let (rows, embedded) = (halves(self.rows, n, total), self.embedded.split_at(n * (self.embedded.len() / total)));
        let (weights, p) = (halves(self.weights, n, total), halves(self.p, n, total));
        let spans = self.spans.split_at(n);
        [
            Tensors { rows: rows.0, embedded: embedded.0, spans: spans.0, weights: weights.0, p: p.0 },
            Tensors { rows: rows.1, embedded: embedded.1, spans: spans.1, weights: weights.1, p: p.1 },
        ]
    }
}

/// Copies columns `k·size..` of wide rows into rows of their own, or back.
fn gather(rows: &[f32], wide: usize, k: usize, to: &mut [f32], size: usize) {
    for (row, to) in rows.chunks_exact(wide).zip(to.chunks_exact_mut(size)) {
        to.copy_from_slice(&row[k * size..][..size]);
    }
}

fn scatter(from: &[f32], rows: &mut [f32], wide: usize, k: usize, size: usize) {
    for (row, from) in rows.chunks_exact_mut(wide).zip(from.chunks_exact(size)) {
        row[k * size..][..size].copy_from_slice(from);
    }
}

impl Stepper<'_> {
    fn run(&self, at: Tensors<'_>, work: &mut Work) -> parsimax::Result<()> {
        let (decoder, size, n) = (self.decoder, self.decoder.size, at.spans.len());
        let wide = (2 * decoder.layers.len() + 1) * size;
        let mut gates = work.take(n * 4 * size);
        let [mut below, mut hidden_before, mut cell_before, mut hidden, mut cell] =
            [(); 5].map(|()| work.take(n * size));
        decoder.embedding.apply(at.embedded, n, &mut gates, false, work);
        gather(at.rows, wide, 2 * decoder.layers.len(), &mut below, size);
        for (l, layer) in decoder.layers.iter().enumerate() {
            gather(at.rows, wide, 2 * l, &mut hidden_before, size);
            gather(at.rows, wide, 2 * l + 1, &mut cell_before, size);
            let step = LayerStep {
                below: &below,
                hidden_before: &hidden_before,
                cell_before: &cell_before,
                gates: &mut gates,
                add: l == 0,
                cell: &mut cell,
                hidden: &mut hidden,
            };
            layer.step(n, step, work);
            scatter(&hidden, at.rows, wide, 2 * l, size);
            scatter(&cell, at.rows, wide, 2 * l + 1, size);
            std::mem::swap(&mut below, &mut hidden);
        }
        // The top layer's state is below the attention.
        let (queries, mut context, mut o) = (below, hidden_before, cell_before);
        let mut scores = work.take(n * self.width);
        let mut attended =
            Attended { scores: &mut scores, weights: at.weights, context: &mut context, width: self.width };
        decoder.attend(self.mappings.attention(), self.memory, &queries, at.spans, &mut attended)?;
        decoder.combine(&context, &queries, n, &mut o, work);
        scatter(&o, at.rows, wide, 2 * decoder.layers.len(), size);
        let mut logits = work.take(n * self.symbols);
        decoder.logits(&o, n, &mut logits, work);
        let (shape, mapping) = ([n, self.symbols], &*self.mappings.output);
        Rows::new(&mapping).single_threaded().forward(View::new(&logits, &shape)?, ViewMut::new(at.p, &shape)?)?;
        let spent = [gates, queries, context, o, hidden, cell, scores, logits];
        spent.into_iter().for_each(|vector| work.give(vector));
        Ok(())
    }
}

impl Scorer for Translator<'_> {
    type State = Prefix;

    fn start(&mut self, input: usize) -> Result<Prefix, DecodeError> {
        Ok(Prefix { input, row: self.starts[input].clone(), attention: Rc::from([]) })
    }

    fn begin(&self) -> u32 {
        BEGIN
    }

    fn end(&self) -> u32 {
        END
    }

    fn advance(&mut self, questions: &[Question<Prefix>]) -> Result<Vec<Answer<Prefix>>, DecodeError> {
        if questions.is_empty() {
            return Ok(Vec::new());
        }
        let (model, n) = (self.model, questions.len());
        let (decoder, size, symbols) = (&model.network().decoder, model.config.size, model.config.target_symbols);
        let wide = (2 * decoder.layers.len() + 1) * size;
        let spans: Vec<Span> = questions.iter().map(|(prefix, _)| self.spans[prefix.input]).collect();
        let width = spans.iter().map(|span| span.len).max().unwrap_or(0).max(1);
        let [one, other] = self.desks.each_mut().map(|desk| &mut desk.work);
        let (mut rows, mut embedded) = (one.take(n * wide), one.take(n * size));
        let (mut weights, mut p) = (one.take(n * width), one.take(n * symbols));
        for (to, (prefix, _)) in rows.chunks_exact_mut(wide).zip(questions) {
            to.copy_from_slice(&prefix.row);
        }
        let read = questions.iter().map(|(_, symbol)| *symbol);
        embed(model.slots.target, &model.values, read, &mut embedded);
        let memory = Memory { keys: &self.keys, states: &self.states };
        let stepper = Stepper { decoder, mappings: &model.mappings, memory, width, symbols };
        let all = Tensors { rows: &mut rows, embedded: &embedded, spans: &spans, weights: &mut weights, p: &mut p };
        let done = if n < SHARED {
            stepper.run(all, one)
        } else {
            let [first, second] = all.split(n / 2);
            let (a, b) = rayon::join(|| stepper.run(first, one), || stepper.run(second, other));
            a.and(b)
        };
        done.map_err(|error| DecodeError::Model(Box::new(error)))?;
        let mut answers = Vec::with_capacity(n);
        for (i, (prefix, _)) in questions.iter().enumerate() {
            let next = Next::from_row(&p[i * symbols..(i + 1) * symbols])?;
            let attention = &weights[i * width..][..spans[i].len];
            self.counts.steps += 1;
            self.counts.positions += attention.len();
            self.counts.attention += attention.iter().filter(|w| **w != 0.0).count();
            self.counts.output += next.entries().len();
            let row = rows[i * wide..(i + 1) * wide].into();
            answers.push((Prefix { input: prefix.input, row, attention: attention.into() }, next));
        }
        [rows, embedded, weights, p].into_iter().for_each(|vector| self.desks[0].work.give(vector));
        Ok(answers)
    }
}
