//! One pass over a batch with the answers at hand: the loss, and what the way back needs.
//!
//! The encoder sorts rows by the length of their source, the decoder by that of their target, so that neither spends
//! anything on padding.

use super::back::Way;
use super::decoder::{Attended, LayerStep, Memory, Span};
use super::dropout::{Dropout, apply, mask};
use super::encoder::Encoded;
use super::extent::Extent;
use super::network::{Network, embed};
use super::parameters::Slots;
use super::work::Work;
use super::{Mappings, Pair};
use parsimax::loss::{FenchelYoung, Reduction, Target};
use parsimax::{View, ViewMut};
use parsimax_data::vocabulary::{BEGIN, END};

/// A model as a pass sees it.
#[derive(Clone, Copy)]
pub(super) struct Learnt<'a> {
    pub(super) slots: &'a Slots,
    pub(super) values: &'a [f32],
    pub(super) network: &'a Network,
    pub(super) mappings: &'a Mappings,
}

/// What a pass adds up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Losses of all symbols.
    pub loss: f64,
    /// Target symbols, ends included.
    pub symbols: usize,
    /// Steps of attention, and non-zero weights in them.
    pub attention: (usize, usize),
}

impl Totals {
    /// Adds another pass.
    pub fn add(&mut self, other: &Totals) {
        self.loss += other.loss;
        self.symbols += other.symbols;
        self.attention.0 += other.attention.0;
        self.attention.1 += other.attention.1;
    }
}

/// The decoder's tensors over all steps, time by time.
pub(super) struct Trace {
    pub(super) embedded: Vec<f32>,
    pub(super) embedded_mask: Option<Vec<f32>>,
    pub(super) layers: Vec<LayerTrace>,
    pub(super) scores: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) context: Vec<f32>,
    /// `o` as it is and as it goes on, with dropout.
    pub(super) plain: Vec<f32>,
    pub(super) output_mask: Option<Vec<f32>>,
    pub(super) output: Vec<f32>,
}

pub(super) struct LayerTrace {
    pub(super) gates: Vec<f32>,
    /// What came from below and from the state before.
    pub(super) below: Vec<f32>,
    pub(super) before: Vec<f32>,
    pub(super) mask: Option<Vec<f32>>,
    pub(super) hidden: Vec<f32>,
    pub(super) cell: Vec<f32>,
    /// `h` and `c` in which the decoder begins.
    pub(super) start: [Vec<f32>; 2],
}

impl Trace {
    pub(super) fn free(self, work: &mut Work) {
        for layer in self.layers {
            let LayerTrace { gates, below, before, mask, hidden, cell, start: [h, c] } = layer;
            let all = [gates, below, before, hidden, cell, h, c, mask.unwrap_or_default()];
            all.into_iter().for_each(|vector| work.give(vector));
        }
        let masks = [self.embedded_mask, self.output_mask].map(Option::unwrap_or_default);
        let rest = [self.embedded, self.scores, self.weights, self.context, self.plain, self.output];
        masks.into_iter().chain(rest).for_each(|vector| work.give(vector));
    }
}

/// A batch in the order of the encoder and in that of the decoder, each with the longest first.
pub(super) struct Sorted<'a> {
    sources: Vec<&'a Pair>,
    targets: Vec<&'a Pair>,
    /// The row of the encoder for each row of the decoder.
    pub(super) rows: Vec<usize>,
    /// Of the targets with their ends.
    pub(super) extent: Extent,
}

impl<'a> Sorted<'a> {
    fn new(batch: &[&'a Pair]) -> Self {
        let mut sources = batch.to_vec();
        sources.sort_by_key(|pair| std::cmp::Reverse(pair.source.len()));
        let mut rows: Vec<usize> = (0..sources.len()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(sources[*row].target.len()));
        let targets: Vec<&Pair> = rows.iter().map(|row| sources[*row]).collect();
        let extent = Extent::new(targets.iter().map(|pair| pair.target.len() + 1).collect());
        Self { sources, targets, rows, extent }
    }

    /// What the encoder reads, time by time.
    pub(super) fn sources(&self) -> impl Iterator<Item = u32> {
        let times = self.sources.first().map_or(0, |pair| pair.source.len());
        (0..times).flat_map(|t| self.sources.iter().map_while(move |pair| pair.source.get(t).copied()))
    }

    /// The rows of the decoder that are there at each time.
    fn each(&self) -> impl Iterator<Item = (usize, &Pair)> {
        let rows = |t: usize| self.targets[..self.extent.active(t)].iter().map(move |pair| (t, *pair));
        (0..self.extent.times()).flat_map(rows)
    }

    /// What the decoder reads.
    pub(super) fn inputs(&self) -> impl Iterator<Item = u32> {
        self.each().map(|(t, pair)| if t == 0 { BEGIN } else { pair.target[t - 1] })
    }

    /// What it should say.
    fn answers(&self) -> Vec<i64> {
        self.each().map(|(t, pair)| i64::from(pair.target.get(t).copied().unwrap_or(END))).collect()
    }
}

/// The loss of a batch, summed over symbols. With `gradients`, its gradient is written there.
pub(super) fn pass(
    model: Learnt<'_>,
    batch: &[&Pair],
    mut dropout: Option<Dropout>,
    gradients: Option<&mut [f32]>,
    work: &mut Work,
) -> parsimax::Result<Totals> {
    if batch.is_empty() {
        gradients.into_iter().for_each(|gradients| gradients.fill(0.0));
        return Ok(Totals::default());
    }
    let (sorted, decoder, size) = (Sorted::new(batch), &model.network.decoder, model.slots.source.columns);
    let source = Extent::new(sorted.sources.iter().map(|pair| pair.source.len()).collect());
    let entries = source.entries();
    let mut x = work.take(entries * size);
    embed(model.slots.source, model.values, sorted.sources(), &mut x);
    let encoded = model.network.encoder.forward(x, source, dropout.as_mut(), work);
    let (mut keys, mut states) = (work.take(entries * size), work.take(entries * size));
    encoded.extent.to_rows(encoded.states(), &mut states, size);
    decoder.keys.apply_turned(&states, entries, &mut keys, work);
    let memory = Memory { keys: &keys, states: &states };
    let starts = encoded.extent.row_starts();
    let span = |row: &usize| Span { start: starts[*row], len: encoded.extent.lengths()[*row] };
    let spans: Vec<Span> = sorted.rows.iter().map(span).collect();

    let forward = Forward { model, sorted: &sorted, spans: &spans, memory, width: encoded.extent.times().max(1) };
    let mut trace = forward.trace(&encoded, dropout.as_mut(), work);
    for t in 0..sorted.extent.times() {
        forward.step(t, &mut trace, work)?;
    }
    let (totals, d_logits) = forward.loss(&trace, work)?;
    if let Some(gradients) = gradients {
        Way { forward: &forward }.run(&mut trace, encoded, &d_logits, gradients, work)?;
    } else {
        encoded.free(work);
    }
    trace.free(work);
    [keys, states, d_logits].into_iter().for_each(|vector| work.give(vector));
    Ok(totals)
}

/// The decoder's way through a batch.
#[derive(Clone, Copy)]
pub(super) struct Forward<'a> {
    pub(super) model: Learnt<'a>,
    pub(super) sorted: &'a Sorted<'a>,
    /// In the order of the decoder.
    pub(super) spans: &'a [Span],
    pub(super) memory: Memory<'a>,
    /// The longest source.
    pub(super) width: usize,
}

impl Forward<'_> {
    pub(super) fn size(&self) -> usize {
        self.model.network.decoder.size
    }

    /// What is known before the first step.
    fn trace(&self, encoded: &Encoded, mut dropout: Option<&mut Dropout>, work: &mut Work) -> Trace {
        let (decoder, slots) = (&self.model.network.decoder, self.model.slots);
        let (n, size) = (self.sorted.extent.entries(), self.size());
        let mut embedded = work.take(n * size);
        embed(slots.target, self.model.values, self.sorted.inputs(), &mut embedded);
        let embedded_mask = mask(&mut dropout, n * size, work);
        apply(&mut embedded, embedded_mask.as_deref());
        let mut layers = Vec::with_capacity(decoder.layers.len());
        for (l, finals) in encoded.finals.iter().enumerate() {
            let mask = if l > 0 { mask(&mut dropout, n * size, work) } else { None };
            let start = [0, 1].map(|i| {
                let mut start = work.take(finals[i].len());
                for (to, row) in start.chunks_exact_mut(size).zip(&self.sorted.rows) {
                    to.copy_from_slice(&finals[i][row * size..][..size]);
                }
                start
            });
            let gates = work.take(n * 4 * size);
            let [below, before, hidden, cell] = [(); 4].map(|()| work.take(n * size));
            layers.push(LayerTrace { gates, below, before, mask, hidden, cell, start });
        }
        decoder.embedding.apply(&embedded, n, &mut layers[0].gates, false, work);
        let output_mask = mask(&mut dropout, n * size, work);
        let [scores, weights] = [(); 2].map(|()| work.take(n * self.width));
        let [context, plain, output] = [(); 3].map(|()| work.take(n * size));
        Trace { embedded, embedded_mask, layers, scores, weights, context, plain, output_mask, output }
    }

    /// One time of the decoder.
    fn step(&self, t: usize, trace: &mut Trace, work: &mut Work) -> parsimax::Result<()> {
        let (decoder, extent, size) = (&self.model.network.decoder, &self.sorted.extent, self.size());
        let (at, b) = (extent.at(t), extent.active(t));
        let rows = at.start * size..at.end * size;
        // The rows of the time before that are still there.
        let last = t.checked_sub(1).map(|t| extent.at(t).start * size..(extent.at(t).start + b) * size);
        for (l, layer) in decoder.layers.iter().enumerate() {
            let (beneath, own) = trace.layers.split_at_mut(l);
            let own = &mut own[0];
            let below = &mut own.below[rows.clone()];
            match (beneath.last(), &last) {
                (Some(beneath), _) => below.copy_from_slice(&beneath.hidden[rows.clone()]),
                (None, Some(last)) => below.copy_from_slice(&trace.output[last.clone()]),
                (None, None) => below.fill(0.0),
            }
            apply(below, own.mask.as_ref().map(|mask| &mask[rows.clone()]));
            let (earlier, hidden) = own.hidden.split_at_mut(rows.start);
            let (cells, cell) = own.cell.split_at_mut(rows.start);
            let [hidden_before, cell_before] = match &last {
                Some(last) => [&earlier[last.clone()], &cells[last.clone()]],
                None => [&own.start[0][..], &own.start[1][..]],
            };
            own.before[rows.clone()].copy_from_slice(hidden_before);
            let gates = &mut own.gates[4 * rows.start..4 * rows.end];
            let add = l == 0;
            layer.step(b, LayerStep { below, hidden_before, cell_before, gates, add, cell, hidden }, work);
        }
        let queries = &trace.layers[trace.layers.len() - 1].hidden[rows.clone()];
        let places = at.start * self.width..at.end * self.width;
        let mut attended = Attended {
            scores: &mut trace.scores[places.clone()],
            weights: &mut trace.weights[places],
            context: &mut trace.context[rows.clone()],
            width: self.width,
        };
        let mapping = self.model.mappings.attention();
        decoder.attend(mapping, self.memory, queries, &self.spans[..b], &mut attended)?;
        let plain = &mut trace.plain[rows.clone()];
        decoder.combine(&trace.context[rows.clone()], queries, b, plain, work);
        let output = &mut trace.output[rows.clone()];
        output.copy_from_slice(plain);
        apply(output, trace.output_mask.as_ref().map(|mask| &mask[rows]));
        Ok(())
    }

    /// What the pass adds up, and the gradient of the scores of symbols.
    fn loss(&self, trace: &Trace, work: &mut Work) -> parsimax::Result<(Totals, Vec<f32>)> {
        let (n, classes) = (self.sorted.extent.entries(), self.model.slots.target.rows);
        let (mut logits, mut d_logits) = (work.take(n * classes), work.take(n * classes));
        self.model.network.decoder.logits(&trace.output, n, &mut logits, work);
        let (answers, shape) = (self.sorted.answers(), [n, classes]);
        let loss = FenchelYoung::new(self.model.mappings.output())
            .reduction(Reduction::Sum)
            .single_threaded()
            .loss_and_gradient(
                View::new(&logits, &shape)?,
                Target::Classes(&answers),
                ViewMut::new(&mut d_logits, &shape)?,
            )?;
        work.give(logits);
        let nonzero = trace.weights[..n * self.width].iter().filter(|p| **p != 0.0).count();
        Ok((Totals { loss: loss.value().unwrap_or(f64::NAN), symbols: n, attention: (n, nonzero) }, d_logits))
    }
}
