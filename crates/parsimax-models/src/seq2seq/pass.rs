//! One pass over a batch with the answers at hand: the loss, and its gradient by the way back.

use super::decoder::{Attended, Decoder, Memory, Span};
use super::dropout::{Dropout, apply};
use super::encoder::{Encoded, Encoder};
use super::linear::{add_rows, add_scaled, gradient};
use super::parameters::{Slot, Slots};
use super::{Mappings, Pair};
use parsimax::loss::{FenchelYoung, Reduction, Target};
use parsimax::{View, ViewMut};
use parsimax_data::vocabulary::{BEGIN, END, PAD};

/// The weights of a model, ready for passes.
#[derive(Debug)]
pub(super) struct Weights<'a> {
    pub(super) slots: &'a Slots,
    pub(super) values: &'a [f32],
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
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
struct Trace {
    embedded: Vec<f32>,
    embedded_mask: Option<Vec<f32>>,
    layers: Vec<LayerTrace>,
    scores: Vec<f32>,
    weights: Vec<f32>,
    mixed: Vec<f32>,
    /// `o` as it is and as it goes on, with dropout.
    plain: Vec<f32>,
    output_mask: Option<Vec<f32>>,
    output: Vec<f32>,
}

/// States have one time more: the first is where the decoder begins.
struct LayerTrace {
    gates: Vec<f32>,
    both: Vec<f32>,
    mask: Option<Vec<f32>>,
    hidden: Vec<f32>,
    cell: Vec<f32>,
}

impl<'a> Weights<'a> {
    pub(super) fn new(slots: &'a Slots, values: &'a [f32]) -> Self {
        Self { slots, values, encoder: Encoder::new(slots, values), decoder: Decoder::new(slots, values) }
    }

    /// Rows of an embedding, one after another.
    pub(super) fn embed(&self, slot: Slot, symbols: impl Iterator<Item = u32>) -> Vec<f32> {
        let table = slot.of(self.values);
        symbols.flat_map(|s| &table[s as usize * slot.columns..][..slot.columns]).copied().collect()
    }
}

/// A batch, rows sorted by the length of their source, longest first.
struct Sorted<'a> {
    rows: Vec<&'a Pair>,
    times: (usize, usize),
}

impl<'a> Sorted<'a> {
    fn new(batch: &[&'a Pair]) -> Self {
        let mut rows = batch.to_vec();
        rows.sort_by_key(|pair| std::cmp::Reverse(pair.source.len()));
        let longest = rows.iter().map(|pair| pair.target.len() + 1).max().unwrap_or(0);
        let times = (rows.first().map_or(0, |pair| pair.source.len()), longest);
        Self { rows, times }
    }

    fn sources(&self) -> impl Iterator<Item = u32> {
        (0..self.times.0).flat_map(|t| self.rows.iter().map(move |r| r.source.get(t).copied().unwrap_or(PAD)))
    }

    /// What the decoder reads, and what it should say.
    fn inputs(&self) -> impl Iterator<Item = u32> {
        (0..self.times.1).flat_map(|t| {
            let read = move |r: &&Pair| if t == 0 { BEGIN } else { r.target.get(t - 1).copied().unwrap_or(PAD) };
            self.rows.iter().map(read)
        })
    }

    fn answers(&self) -> Vec<i64> {
        let say = |t: usize, r: &Pair| match t.cmp(&r.target.len()) {
            std::cmp::Ordering::Less => r.target[t],
            std::cmp::Ordering::Equal => END,
            std::cmp::Ordering::Greater => PAD,
        };
        (0..self.times.1).flat_map(|t| self.rows.iter().map(move |r| i64::from(say(t, r)))).collect()
    }
}

/// The loss of a batch, summed over symbols. With `gradients`, its gradient is added to them.
pub(super) fn pass(
    weights: &Weights<'_>,
    mappings: &Mappings,
    batch: &[&Pair],
    mut dropout: Option<Dropout>,
    gradients: Option<&mut [f32]>,
) -> parsimax::Result<Totals> {
    let sorted = Sorted::new(batch);
    let (b, size) = (sorted.rows.len(), weights.decoder.size);
    if b == 0 {
        return Ok(Totals::default());
    }
    let scratch = &mut Vec::new();
    let x = weights.embed(weights.slots.source, sorted.sources());
    let lengths: Vec<usize> = sorted.rows.iter().map(|r| r.source.len()).collect();
    let spans: Vec<Span> = (0..b).map(|row| Span { start: row, stride: b, len: lengths[row] }).collect();
    let encoded = weights.encoder.forward(x, lengths, dropout.as_mut(), scratch);
    let mut keys = vec![0.0; encoded.states.len()];
    weights.decoder.keys.apply(&encoded.states, encoded.extent.rows(), &mut keys, false, scratch);
    let memory = Memory { keys: &keys, states: &encoded.states };

    let inputs: Vec<u32> = sorted.inputs().collect();
    let width = sorted.times.0;
    let trace = forward(weights, mappings, &inputs, &spans, memory, &encoded, width, dropout.as_mut(), scratch)?;
    let n = inputs.len();
    let logits = weights.decoder.logits(&trace.output, n, scratch);
    let answers = sorted.answers();
    let symbols = answers.iter().filter(|a| **a != i64::from(PAD)).count();
    let shape = [n, weights.slots.target.rows];
    let mut d_logits = vec![0.0; logits.len()];
    let loss = FenchelYoung::new(mappings.output())
        .ignore_index(i64::from(PAD))
        .reduction(Reduction::Sum)
        .single_threaded()
        .loss_and_gradient(
            View::new(&logits, &shape)?,
            Target::Classes(&answers),
            ViewMut::new(&mut d_logits, &shape)?,
        )?;
    let used = answers.iter().zip(trace.weights.chunks_exact(width)).filter(|(a, _)| **a != i64::from(PAD));
    let nonzero = used.map(|(_, weights)| weights.iter().filter(|p| **p != 0.0).count()).sum();
    let totals = Totals { loss: loss.value().unwrap_or(f64::NAN), symbols, attention: (symbols, nonzero) };
    if let Some(gradients) = gradients {
        let back = Way { weights, mappings, spans: &spans, width, b, size };
        back.run(&sorted, &inputs, trace, encoded, &keys, &d_logits, gradients, scratch)?;
    }
    Ok(totals)
}

#[expect(clippy::too_many_arguments, reason = "the tensors of the decoder's pass")]
fn forward(
    weights: &Weights<'_>,
    mappings: &Mappings,
    inputs: &[u32],
    spans: &[Span],
    memory: Memory<'_>,
    encoded: &Encoded,
    width: usize,
    mut dropout: Option<&mut Dropout>,
    scratch: &mut Vec<f32>,
) -> parsimax::Result<Trace> {
    let decoder = &weights.decoder;
    let (n, b, size) = (inputs.len(), spans.len(), decoder.size);
    let mut mask = |count: usize| dropout.as_deref_mut().map(|d| d.mask(count));
    let mut embedded = weights.embed(weights.slots.target, inputs.iter().copied());
    let embedded_mask = mask(n * size);
    apply(&mut embedded, embedded_mask.as_deref());
    let layers = (decoder.layers.iter().zip(&encoded.finals).enumerate()).map(|(l, (_, [h, c]))| {
        let begin = |state: &[f32]| state.iter().copied().chain(std::iter::repeat_n(0.0, n * size)).collect();
        let mask = if l > 0 { mask(n * size) } else { None };
        let (gates, both) = (vec![0.0; n * 4 * size], vec![0.0; n * 2 * size]);
        LayerTrace { gates, both, mask, hidden: begin(h), cell: begin(c) }
    });
    let layers: Vec<LayerTrace> = layers.collect();
    let output_mask = mask(n * size);
    let (scores, attention) = (vec![0.0; n * width], vec![0.0; n * width]);
    let (mixed, plain, output) = (vec![0.0; n * 2 * size], vec![0.0; n * size], vec![0.0; n * size]);
    let mut trace =
        Trace { embedded, embedded_mask, layers, scores, weights: attention, mixed, plain, output_mask, output };
    decoder.embedding.apply(&trace.embedded, n, &mut trace.layers[0].gates, false, scratch);
    for first in (0..n).step_by(b) {
        step(decoder, mappings, first, spans, memory, width, &mut trace, scratch)?;
    }
    Ok(trace)
}

/// One time of the decoder: rows `first..first + b` of the trace.
#[expect(clippy::too_many_arguments, reason = "the tensors of one step")]
fn step(
    decoder: &Decoder,
    mappings: &Mappings,
    first: usize,
    spans: &[Span],
    memory: Memory<'_>,
    width: usize,
    trace: &mut Trace,
    scratch: &mut Vec<f32>,
) -> parsimax::Result<()> {
    let (b, size) = (spans.len(), decoder.size);
    let rows = first * size..(first + b) * size;
    for l in 0..decoder.layers.len() {
        let (below, own) = trace.layers.split_at_mut(l);
        let own = &mut own[0];
        // From below: the attentional state of the last step, or what the layer below says now.
        let mut input = match below.last() {
            None if first == 0 => vec![0.0; b * size],
            None => trace.output[rows.start - b * size..rows.start].to_vec(),
            Some(below) => below.hidden[rows.start + b * size..rows.end + b * size].to_vec(),
        };
        apply(&mut input, own.mask.as_ref().map(|m| &m[rows.clone()]));
        let both = &mut own.both[2 * rows.start..2 * rows.end];
        interleave(&input, &own.hidden[rows.clone()], both, size);
        let (earlier, cell) = own.cell.split_at_mut(rows.end);
        let gates = &mut own.gates[4 * rows.start..4 * rows.end];
        let hidden = &mut own.hidden[rows.end..];
        decoder.layers[l].step(both, b, gates, l == 0, &earlier[rows.start..], cell, hidden, scratch);
    }
    let top = &trace.layers[trace.layers.len() - 1].hidden[rows.end..rows.end + b * size];
    let mixed = &mut trace.mixed[2 * rows.start..2 * rows.end];
    for (row, h) in mixed.chunks_exact_mut(2 * size).zip(top.chunks_exact(size)) {
        row[size..].copy_from_slice(h);
    }
    let at = first * width..(first + b) * width;
    let (scores, weights) = (&mut trace.scores[at.clone()], &mut trace.weights[at]);
    decoder.attend(mappings.attention(), memory, spans, &mut Attended { scores, weights, mixed, width })?;
    let plain = &mut trace.plain[rows.clone()];
    decoder.combine(mixed, b, plain, scratch);
    trace.output[rows.clone()].copy_from_slice(plain);
    apply(&mut trace.output[rows.clone()], trace.output_mask.as_ref().map(|m| &m[rows]));
    Ok(())
}

/// Rows of `a` and `b` side by side.
pub(super) fn interleave(a: &[f32], b: &[f32], to: &mut [f32], size: usize) {
    for ((a, b), to) in a.chunks_exact(size).zip(b.chunks_exact(size)).zip(to.chunks_exact_mut(2 * size)) {
        to[..size].copy_from_slice(a);
        to[size..].copy_from_slice(b);
    }
}

/// The way back through a pass.
struct Way<'a> {
    weights: &'a Weights<'a>,
    mappings: &'a Mappings,
    spans: &'a [Span],
    width: usize,
    b: usize,
    size: usize,
}

/// Gradients that go from a step to the one before it.
struct Carried {
    /// Of the attentional state.
    feed: Vec<f32>,
    /// Of `h` and `c` of each layer.
    states: Vec<[Vec<f32>; 2]>,
}

impl Way<'_> {
    #[expect(clippy::too_many_arguments, reason = "what a backward pass is given, and where its results go")]
    fn run(
        &self,
        sorted: &Sorted<'_>,
        inputs: &[u32],
        mut trace: Trace,
        encoded: Encoded,
        keys: &[f32],
        d_logits: &[f32],
        gradients: &mut [f32],
        scratch: &mut Vec<f32>,
    ) -> parsimax::Result<()> {
        let (decoder, slots) = (&self.weights.decoder, self.weights.slots);
        let (b, size, n) = (self.b, self.size, inputs.len());
        let mut d_output = vec![0.0; n * size];
        decoder.output.back(d_logits, n, &mut d_output, false, scratch);
        gradient(d_logits, &trace.output, n, slots.output.of_mut(gradients), size, scratch);
        add_rows(d_logits, slots.output_bias.of_mut(gradients));

        let zeros = || vec![0.0; b * size];
        let mut carried =
            Carried { feed: zeros(), states: decoder.layers.iter().map(|_| [zeros(), zeros()]).collect() };
        let memory = Memory { keys, states: &encoded.states };
        let (mut d_keys, mut d_states) = (vec![0.0; keys.len()], vec![0.0; keys.len()]);
        // Gradients of the sums under the tanh, of all steps.
        let mut d_sums = vec![0.0; n * size];
        for first in (0..n).step_by(b).rev() {
            let d_memory = [&mut d_keys[..], &mut d_states[..]];
            self.step(first, &mut trace, memory, &d_output, &mut d_sums, &mut carried, d_memory, scratch)?;
        }
        gradient(&d_sums, &trace.mixed, n, slots.combine.of_mut(gradients), 2 * size, scratch);
        for (l, (layer, run)) in decoder.layers.iter().zip(&trace.layers).enumerate() {
            self.layer_gradients(l, &layer.slots, run, n, gradients, scratch);
        }
        let first = &trace.layers[0].gates;
        gradient(first, &trace.embedded, n, slots.decoder[0].input.of_mut(gradients), 2 * size, scratch);
        let mut d_embedded = vec![0.0; n * size];
        decoder.embedding.back(first, n, &mut d_embedded, false, scratch);
        apply(&mut d_embedded, trace.embedded_mask.as_deref());
        scatter(slots.target, inputs.iter().copied(), &d_embedded, gradients);

        // Keys: ⟨h, s·W⟩, so dW = sᵀ·dK and ds += dK·Wᵀ.
        let rows = encoded.extent.rows();
        gradient(&encoded.states, &d_keys, rows, slots.keys.of_mut(gradients), size, scratch);
        decoder.keys.back(&d_keys, rows, &mut d_states, true, scratch);
        let d_source = self.weights.encoder.backward(encoded, d_states, &carried.states, gradients, scratch);
        scatter(slots.source, sorted.sources(), &d_source, gradients);
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "the tensors of one step")]
    fn step(
        &self,
        first: usize,
        trace: &mut Trace,
        memory: Memory<'_>,
        d_output: &[f32],
        d_sums: &mut [f32],
        carried: &mut Carried,
        d_memory: [&mut [f32]; 2],
        scratch: &mut Vec<f32>,
    ) -> parsimax::Result<()> {
        let (decoder, b, size) = (&self.weights.decoder, self.b, self.size);
        let rows = first * size..(first + b) * size;
        let d_o = &mut carried.feed;
        d_o.iter_mut().zip(&d_output[rows.clone()]).for_each(|(f, d)| *f += d);
        apply(d_o, trace.output_mask.as_ref().map(|m| &m[rows.clone()]));
        let d_sum = &mut d_sums[rows.clone()];
        for ((to, d), y) in d_sum.iter_mut().zip(d_o.iter()).zip(&trace.plain[rows.clone()]) {
            *to = d * (1.0 - y * y);
        }
        let mut d_mixed = vec![0.0; b * 2 * size];
        decoder.combine.back(d_sum, b, &mut d_mixed, false, scratch);
        let at = first * self.width..(first + b) * self.width;
        let attended = Attended {
            scores: &mut trace.scores[at.clone()],
            weights: &mut trace.weights[at],
            mixed: &mut trace.mixed[2 * rows.start..2 * rows.end],
            width: self.width,
        };
        decoder.attend_back(self.mappings.attention(), memory, self.spans, &attended, &mut d_mixed, d_memory)?;
        // The gradient of what a layer says now, from above; its own state adds the rest.
        let mut from_above: Vec<f32> = d_mixed.chunks_exact(2 * size).flat_map(|row| &row[size..]).copied().collect();
        let mut d_both = vec![0.0; b * 2 * size];
        for l in (0..decoder.layers.len()).rev() {
            let [d_hidden, d_cell] = &mut carried.states[l];
            d_hidden.iter_mut().zip(&from_above).for_each(|(d, a)| *d += a);
            let own = &mut trace.layers[l];
            let (before, cell) = own.cell.split_at(rows.end);
            let gates = &mut own.gates[4 * rows.start..4 * rows.end];
            let before = &before[rows.start..];
            decoder.layers[l].back(b, gates, before, &cell[..b * size], d_hidden, d_cell, &mut d_both, scratch);
            for (row, both) in d_both.chunks_exact(2 * size).enumerate() {
                from_above[row * size..][..size].copy_from_slice(&both[..size]);
                d_hidden[row * size..][..size].copy_from_slice(&both[size..]);
            }
            apply(&mut from_above, own.mask.as_ref().map(|m| &m[rows.clone()]));
        }
        carried.feed = from_above;
        Ok(())
    }

    /// Gradients of a decoder layer's weights but those of the embedding.
    fn layer_gradients(
        &self,
        l: usize,
        slots: &super::parameters::LstmSlots,
        run: &LayerTrace,
        n: usize,
        gradients: &mut [f32],
        scratch: &mut Vec<f32>,
    ) {
        let size = self.size;
        let mut both = vec![0.0; 4 * size * 2 * size];
        gradient(&run.gates, &run.both, n, &mut both, 2 * size, scratch);
        let columns = slots.input.columns;
        let skip = if l == 0 { size } else { 0 };
        for (row, both) in both.chunks_exact(2 * size).enumerate() {
            let input = &mut slots.input.of_mut(gradients)[row * columns + skip..][..size];
            add_scaled(input, 1.0, &both[..size]);
            add_scaled(&mut slots.hidden.of_mut(gradients)[row * size..][..size], 1.0, &both[size..]);
        }
        for slot in slots.biases {
            add_rows(&run.gates, slot.of_mut(gradients));
        }
    }
}

/// Adds gradients of embedded symbols to their rows. Padding is a symbol that nobody reads.
fn scatter(slot: Slot, symbols: impl Iterator<Item = u32>, d: &[f32], gradients: &mut [f32]) {
    let table = slot.of_mut(gradients);
    for (symbol, row) in symbols.zip(d.chunks_exact(slot.columns)).filter(|(symbol, _)| *symbol != PAD) {
        add_scaled(&mut table[symbol as usize * slot.columns..][..slot.columns], 1.0, row);
    }
}
