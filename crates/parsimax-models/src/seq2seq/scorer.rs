//! The model as decoders see it.

use super::decoder::{Attended, Decoder, Memory, Span};
use super::extent::Extent;
use super::linear::Strided;
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

/// Sources that were read: keys and states row by row, where each source's are, and where the decoder begins.
struct Read {
    keys: Vec<f32>,
    states: Vec<f32>,
    spans: Vec<Span>,
    /// `h` and `c` of each layer and zeros, source by source.
    starts: Vec<f32>,
}

fn read(model: &Seq2Seq, sources: &[&[u32]], work: &mut Work) -> Read {
    let (network, size) = (model.network(), model.config.size);
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
    let wide = network.decoder.wide();
    let mut starts = work.zeros(sources.len() * wide);
    for ((row, input), start) in order.into_iter().enumerate().zip(encoded.extent.row_starts()) {
        spans[input] = Span { start, len: sources[input].len() };
        let to = starts[input * wide..].chunks_exact_mut(size);
        let states = encoded.finals.iter().flatten().map(|state| &state[row * size..][..size]);
        to.zip(states).for_each(|(to, state)| to.copy_from_slice(state));
    }
    encoded.free(work);
    Read { keys, states, spans, starts }
}

impl<'a> Translator<'a> {
    /// Reads the sources.
    #[must_use]
    pub fn new(model: &'a Seq2Seq, sources: &[&[u32]]) -> Self {
        let mut desks = [model.desk(), model.desk()];
        let wide = model.network().decoder.wide();
        let [one, other] = desks.each_mut().map(|desk| &mut desk.work);
        let both = if sources.len() < SHARED { sources.len() } else { sources.len() / 2 };
        let (first, second) = sources.split_at(both);
        let (mut all, rest) = if second.is_empty() {
            (read(model, first, one), None)
        } else {
            let (all, rest) = rayon::join(|| read(model, first, one), || read(model, second, other));
            (all, Some(rest))
        };
        if let Some(rest) = rest {
            let entries = all.keys.len() / model.config.size;
            all.spans.extend(rest.spans.iter().map(|span| Span { start: span.start + entries, ..*span }));
            for (to, from) in
                [&mut all.keys, &mut all.states, &mut all.starts].into_iter().zip([rest.keys, rest.states, rest.starts])
            {
                to.extend_from_slice(&from);
                other.give(from);
            }
        }
        let starts = all.starts.chunks_exact(wide).map(Rc::from).collect();
        one.give(all.starts);
        Self { model, keys: all.keys, states: all.states, spans: all.spans, starts, counts: Counts::default(), desks }
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
    /// What each symbol adds to the sums of the first layer.
    table: &'a [f32],
    symbols: usize,
}

/// Questions without what belongs to one thread. Prefixes that differ in their last symbol only have one state; what
/// follows from the state alone is computed once.
struct Asked {
    /// The different states, `h` and `c` of each layer and `o`.
    parents: Vec<f32>,
    /// Of each question: its state, its symbol, its source.
    of: Vec<usize>,
    read: Vec<u32>,
    spans: Vec<Span>,
}

/// How far back a state is looked for among those of the same input.
const WINDOW: usize = 16;

impl Asked {
    fn new(questions: &[Question<Prefix>], spans: &[Span], wide: usize, work: &mut Work) -> Self {
        let mut different: Vec<&Rc<[f32]>> = Vec::with_capacity(questions.len());
        let of = questions.iter().map(|(prefix, _)| {
            let near = different.len().saturating_sub(WINDOW);
            let known = different[near..].iter().position(|row| Rc::ptr_eq(row, &prefix.row));
            known.map_or_else(
                || {
                    different.push(&prefix.row);
                    different.len() - 1
                },
                |at| near + at,
            )
        });
        let of: Vec<usize> = of.collect();
        let mut parents = work.take(different.len() * wide);
        for (to, row) in parents.chunks_exact_mut(wide).zip(different) {
            to.copy_from_slice(row);
        }
        let read = questions.iter().map(|(_, symbol)| *symbol).collect();
        Self { parents, of, read, spans: questions.iter().map(|(prefix, _)| spans[prefix.input]).collect() }
    }
}

/// What comes out, question by question.
struct Told {
    /// As the parents, one step on.
    rows: Vec<f32>,
    weights: Vec<f32>,
    width: usize,
    p: Vec<f32>,
}

impl Stepper<'_> {
    /// The recurrent layers.
    fn layers(&self, asked: &Asked, rows: &mut [f32], work: &mut Work) {
        let (decoder, size, n) = (self.decoder, self.decoder.size, asked.of.len());
        let (wide, top) = (decoder.wide(), 2 * decoder.layers.len() * size);
        let different = asked.parents.len() / wide;
        let (mut sums, mut gates) = (work.take(different * 4 * size), work.take(n * 4 * size));
        for (l, layer) in decoder.layers.iter().enumerate() {
            let part = |at: usize| Strided { data: &asked.parents[at..], stride: wide };
            layer.own.apply_strided(part(2 * l * size), different, &mut sums, 4 * size, false, work);
            if l == 0 {
                layer.below.apply_strided(part(top), different, &mut sums, 4 * size, true, work);
            }
            for (gates, of) in gates.chunks_exact_mut(4 * size).zip(&asked.of) {
                gates.copy_from_slice(&sums[of * 4 * size..][..4 * size]);
            }
            if l == 0 {
                for (gates, symbol) in gates.chunks_exact_mut(4 * size).zip(&asked.read) {
                    super::linear::add(gates, &self.table[*symbol as usize * 4 * size..][..4 * size]);
                }
            } else {
                let below = Strided { data: &rows[2 * (l - 1) * size..], stride: wide };
                layer.below.apply_strided(below, n, &mut gates, 4 * size, true, work);
            }
            let each = rows.chunks_exact_mut(wide).zip(gates.chunks_exact_mut(4 * size)).zip(&asked.of);
            for ((row, gates), of) in each {
                let before = &asked.parents[of * wide + (2 * l + 1) * size..][..size];
                let (hidden, cell) = row[2 * l * size..][..2 * size].split_at_mut(size);
                layer.cell(gates, before, cell, hidden);
            }
        }
        work.give(sums);
        work.give(gates);
    }

    fn run(&self, asked: Asked, work: &mut Work) -> parsimax::Result<Told> {
        let (decoder, size, n) = (self.decoder, self.decoder.size, asked.of.len());
        let (wide, top) = (decoder.wide(), 2 * decoder.layers.len() * size);
        let mut rows = work.take(n * wide);
        self.layers(&asked, &mut rows, work);
        let [mut queries, mut context, mut o] = [(); 3].map(|()| work.take(n * size));
        for (query, row) in queries.chunks_exact_mut(size).zip(rows.chunks_exact(wide)) {
            query.copy_from_slice(&row[top - 2 * size..top - size]);
        }
        let width = asked.spans.iter().map(|span| span.len).max().unwrap_or(0).max(1);
        let (mut scores, mut weights) = (work.take(n * width), work.take(n * width));
        let mut attended = Attended { scores: &mut scores, weights: &mut weights, context: &mut context, width };
        decoder.attend(self.mappings.attention(), self.memory, &queries, &asked.spans, &mut attended)?;
        decoder.combine(&context, &queries, n, &mut o, work);
        for (row, o) in rows.chunks_exact_mut(wide).zip(o.chunks_exact(size)) {
            row[top..].copy_from_slice(o);
        }
        let (mut logits, mut p) = (work.take(n * self.symbols), work.take(n * self.symbols));
        decoder.logits(&o, n, &mut logits, work);
        let (shape, mapping) = ([n, self.symbols], &*self.mappings.output);
        Rows::new(&mapping).single_threaded().forward(View::new(&logits, &shape)?, ViewMut::new(&mut p, &shape)?)?;
        let spent = [asked.parents, queries, context, o, scores, logits];
        spent.into_iter().for_each(|vector| work.give(vector));
        Ok(Told { rows, weights, width, p })
    }
}

impl Translator<'_> {
    /// Keeps the memory of answers for the next ones.
    fn give<const N: usize>(&mut self, told: [(usize, Told); N]) {
        for (desk, told) in told {
            [told.rows, told.weights, told.p].into_iter().for_each(|vector| self.desks[desk].work.give(vector));
        }
    }

    /// The answers to some questions, from what came out.
    fn answers(
        &mut self,
        questions: &[Question<Prefix>],
        told: &Told,
        answers: &mut Vec<Answer<Prefix>>,
    ) -> Result<(), DecodeError> {
        let symbols = self.model.config.target_symbols;
        let wide = told.rows.len() / questions.len().max(1);
        for (i, (prefix, _)) in questions.iter().enumerate() {
            let next = Next::from_row(&told.p[i * symbols..(i + 1) * symbols])?;
            let attention = &told.weights[i * told.width..][..self.spans[prefix.input].len];
            self.counts.steps += 1;
            self.counts.positions += attention.len();
            self.counts.attention += attention.iter().filter(|w| **w != 0.0).count();
            self.counts.output += next.entries().len();
            let row = told.rows[i * wide..(i + 1) * wide].into();
            answers.push((Prefix { input: prefix.input, row, attention: attention.into() }, next));
        }
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
        let (model, failed) = (self.model, |error: parsimax::Error| DecodeError::Model(Box::new(error)));
        let decoder = &model.network().decoder;
        let memory = Memory { keys: &self.keys, states: &self.states };
        let (table, symbols) = (model.symbol_sums(), model.config.target_symbols);
        let stepper = Stepper { decoder, mappings: &model.mappings, memory, table, symbols };
        let [one, other] = self.desks.each_mut().map(|desk| &mut desk.work);
        let mut answers = Vec::with_capacity(questions.len());
        if questions.len() < SHARED {
            let told = stepper.run(Asked::new(questions, &self.spans, decoder.wide(), one), one).map_err(failed)?;
            self.answers(questions, &told, &mut answers)?;
            self.give([(0, told)]);
            return Ok(answers);
        }
        let (first, second) = questions.split_at(questions.len() / 2);
        let a = Asked::new(first, &self.spans, decoder.wide(), one);
        let b = Asked::new(second, &self.spans, decoder.wide(), other);
        let (a, b) = rayon::join(|| stepper.run(a, one), || stepper.run(b, other));
        let (a, b) = (a.map_err(failed)?, b.map_err(failed)?);
        self.answers(first, &a, &mut answers)?;
        self.answers(second, &b, &mut answers)?;
        self.give([(0, a), (1, b)]);
        Ok(answers)
    }
}
