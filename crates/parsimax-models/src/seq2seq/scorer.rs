//! The model as decoders see it.

use super::Seq2Seq;
use super::decoder::{Attended, Memory, Span};
use super::pass::Weights;
use crate::decode::{Answer, DecodeError, Next, Question, Scorer};
use parsimax::{Rows, View, ViewMut};
use parsimax_data::vocabulary::{BEGIN, END};
use std::rc::Rc;

/// Says what may follow a prefix of a target, for a set of sources that were read once.
#[derive(Debug)]
pub struct Translator<'a> {
    model: &'a Seq2Seq,
    weights: Weights<'a>,
    keys: Vec<f32>,
    states: Vec<f32>,
    spans: Vec<Span>,
    starts: Vec<Rc<[f32]>>,
    counts: Counts,
    scratch: Vec<f32>,
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

impl<'a> Translator<'a> {
    /// Reads the sources.
    #[must_use]
    pub fn new(model: &'a Seq2Seq, sources: &[&[u32]]) -> Self {
        let weights = Weights::new(&model.slots, &model.values);
        let size = model.config.size;
        let scratch = &mut Vec::new();
        let mut order: Vec<usize> = (0..sources.len()).collect();
        order.sort_by_key(|i| std::cmp::Reverse(sources[*i].len()));
        let b = sources.len();
        let times = order.first().map_or(0, |i| sources[*i].len());
        let symbols = (0..times).flat_map(|t| order.iter().map(move |i| sources[*i].get(t).copied().unwrap_or(0)));
        let x = weights.embed(model.slots.source, symbols);
        let lengths: Vec<usize> = order.iter().map(|i| sources[*i].len()).collect();
        let encoded = weights.encoder.forward(x, lengths, None, scratch);
        let mut keys = vec![0.0; encoded.states.len()];
        weights.decoder.keys.apply(&encoded.states, encoded.extent.rows(), &mut keys, false, scratch);
        let mut spans = vec![Span { start: 0, stride: b, len: 0 }; b];
        let mut starts = vec![Rc::from([]); b];
        for (row, input) in order.into_iter().enumerate() {
            spans[input] = Span { start: row, stride: b, len: sources[input].len() };
            let states = encoded.finals.iter().flatten().flat_map(|state| &state[row * size..][..size]).copied();
            starts[input] = states.chain(std::iter::repeat_n(0.0, size)).collect();
        }
        let (states, counts, scratch) = (encoded.states, Counts::default(), Vec::new());
        Self { model, weights, keys, states, spans, starts, counts, scratch }
    }

    /// What was seen so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Embeddings, states and attention of the questions, one step on: the new rows, attention weights and `o`.
    fn step(&mut self, questions: &[Question<Prefix>]) -> parsimax::Result<Stepped> {
        let (decoder, size, n) = (&self.weights.decoder, self.model.config.size, questions.len());
        let scratch = &mut self.scratch;
        let part = |k: usize| -> Vec<f32> {
            questions.iter().flat_map(|(prefix, _)| &prefix.row[k * size..][..size]).copied().collect()
        };
        let embedded = self.weights.embed(self.model.slots.target, questions.iter().map(|(_, symbol)| *symbol));
        let mut gates = vec![0.0; n * 4 * size];
        decoder.embedding.apply(&embedded, n, &mut gates, false, scratch);
        let mut below = part(2 * decoder.layers.len());
        let mut states = Vec::with_capacity(2 * decoder.layers.len() + 1);
        for (l, layer) in decoder.layers.iter().enumerate() {
            let mut both = vec![0.0; n * 2 * size];
            super::pass::interleave(&below, &part(2 * l), &mut both, size);
            let (mut cell, mut hidden) = (vec![0.0; n * size], vec![0.0; n * size]);
            layer.step(&both, n, &mut gates, l == 0, &part(2 * l + 1), &mut cell, &mut hidden, scratch);
            below.clone_from(&hidden);
            states.extend([hidden, cell]);
        }
        let spans: Vec<Span> = questions.iter().map(|(prefix, _)| self.spans[prefix.input]).collect();
        let width = spans.iter().map(|span| span.len).max().unwrap_or(0);
        let (mut scores, mut weights) = (vec![0.0; n * width], vec![0.0; n * width]);
        let mut mixed = vec![0.0; n * 2 * size];
        super::pass::interleave(&vec![0.0; n * size], &below, &mut mixed, size);
        let memory = Memory { keys: &self.keys, states: &self.states };
        let mut attended = Attended { scores: &mut scores, weights: &mut weights, mixed: &mut mixed, width };
        decoder.attend(self.model.mappings.attention(), memory, &spans, &mut attended)?;
        let mut o = vec![0.0; n * size];
        decoder.combine(&mixed, n, &mut o, scratch);
        let logits = decoder.logits(&o, n, scratch);
        states.push(o);
        let attention = spans.iter().zip(weights.chunks_exact(width.max(1))).map(|(s, w)| w[..s.len].into()).collect();
        Ok(Stepped { states, attention, logits })
    }
}

/// A step of all rows: `h` and `c` of each layer and `o`, attention weights, scores of symbols.
struct Stepped {
    states: Vec<Vec<f32>>,
    attention: Vec<Rc<[f32]>>,
    logits: Vec<f32>,
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
        let (size, n) = (self.model.config.size, questions.len());
        let failed = |error: parsimax::Error| DecodeError::Model(Box::new(error));
        let Stepped { states, attention, logits } = self.step(questions).map_err(failed)?;
        let symbols = logits.len() / n.max(1);
        let shape = [n, symbols];
        let mut p = vec![0.0; logits.len()];
        let mapping = &*self.model.mappings.output;
        let rows = Rows::new(&mapping).single_threaded();
        let views = View::new(&logits, &shape).and_then(|z| Ok((z, ViewMut::new(&mut p, &shape)?)));
        views.and_then(|(z, p)| rows.forward(z, p)).map_err(failed)?;
        let mut answers = Vec::with_capacity(n);
        for (i, ((prefix, _), attention)) in questions.iter().zip(attention).enumerate() {
            let next = Next::from_row(&p[i * symbols..(i + 1) * symbols])?;
            self.counts.steps += 1;
            self.counts.positions += attention.len();
            self.counts.attention += attention.iter().filter(|w| **w != 0.0).count();
            self.counts.output += next.entries().len();
            let row = states.iter().flat_map(|state| &state[i * size..][..size]).copied().collect();
            answers.push((Prefix { input: prefix.input, row, attention }, next));
        }
        Ok(answers)
    }
}
