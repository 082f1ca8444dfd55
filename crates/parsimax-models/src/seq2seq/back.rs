//! The way back through a pass: from the gradient of the scores of symbols to that of all parameters.

use super::decoder::LayerBack;
use super::dropout::apply;
use super::encoder::Encoded;
use super::linear::{add, sum_rows};
use super::lstm::bias_gradients;
use super::parameters::Slot;
use super::pass::{Forward, Trace};
use super::work::Work;

/// The way back.
pub(super) struct Way<'a> {
    pub(super) forward: &'a Forward<'a>,
}

/// Gradients that go from a step to the one before it, in the order of the decoder.
struct Carried {
    /// Of the attentional state.
    feed: Vec<f32>,
    /// Of `h` and `c` of each layer.
    states: Vec<[Vec<f32>; 2]>,
    /// Of keys and source states, added up over steps.
    d_keys: Vec<f32>,
    d_states: Vec<f32>,
    /// Of the sums under the tanh, of all steps.
    d_sums: Vec<f32>,
    /// Of contexts and of what a layer says, of one step.
    d_context: Vec<f32>,
    from_above: Vec<f32>,
}

impl Carried {
    fn new(forward: &Forward<'_>, work: &mut Work) -> Self {
        let (size, batch) = (forward.size(), forward.spans.len() * forward.size());
        let memory = forward.memory.keys.len();
        Self {
            feed: work.zeros(batch),
            states: forward
                .model
                .network
                .decoder
                .layers
                .iter()
                .map(|_| [work.zeros(batch), work.zeros(batch)])
                .collect(),
            d_keys: work.zeros(memory),
            d_states: work.zeros(memory),
            d_sums: work.take(forward.sorted.extent.entries() * size),
            d_context: work.take(batch),
            from_above: work.take(batch),
        }
    }

    fn free(self, work: &mut Work) {
        self.states.into_iter().flatten().for_each(|vector| work.give(vector));
        let rest = [self.feed, self.d_keys, self.d_states, self.d_sums, self.d_context, self.from_above];
        rest.into_iter().for_each(|vector| work.give(vector));
    }
}

impl Way<'_> {
    pub(super) fn run(
        &self,
        trace: &mut Trace,
        mut encoded: Encoded,
        d_logits: &[f32],
        gradients: &mut [f32],
        work: &mut Work,
    ) -> parsimax::Result<()> {
        let Forward { model, sorted, .. } = self.forward;
        let (decoder, slots, size, n) =
            (&model.network.decoder, model.slots, self.forward.size(), sorted.extent.entries());
        let mut d_output = work.take(n * size);
        decoder.output.back(d_logits, n, &mut d_output, size, false, work);
        decoder.output.gradient(d_logits, &trace.output, n, gradients, work);
        sum_rows(d_logits, slots.output_bias.of_mut(gradients));
        let mut carried = Carried::new(self.forward, work);
        for t in (0..sorted.extent.times()).rev() {
            self.step(t, trace, &d_output, &mut carried, work)?;
        }
        self.decoder_gradients(trace, &carried, gradients, work);
        // `d_output` is spent.
        let mut d_embedded = d_output;
        decoder.embedding.back(&trace.layers[0].gates, n, &mut d_embedded, size, false, work);
        apply(&mut d_embedded, trace.embedded_mask.as_deref());
        scatter(slots.target, sorted.inputs(), &d_embedded, gradients);
        work.give(d_embedded);
        self.source(&mut encoded, carried, gradients, work);
        encoded.free(work);
        Ok(())
    }

    /// One time of the decoder.
    fn step(
        &self,
        t: usize,
        trace: &mut Trace,
        d_output: &[f32],
        carried: &mut Carried,
        work: &mut Work,
    ) -> parsimax::Result<()> {
        let Forward { model, sorted, spans, memory, width } = *self.forward;
        let (decoder, extent, size) = (&model.network.decoder, &sorted.extent, self.forward.size());
        let (at, b) = (extent.at(t), extent.active(t));
        let (rows, block) = (at.start * size..at.end * size, b * size);
        let Carried { feed, states, d_keys, d_states, d_sums, d_context, from_above } = carried;
        let feed = &mut feed[..block];
        add(feed, &d_output[rows.clone()]);
        apply(feed, trace.output_mask.as_ref().map(|mask| &mask[rows.clone()]));
        let d_sum = &mut d_sums[rows.clone()];
        for ((to, d), y) in d_sum.iter_mut().zip(&*feed).zip(&trace.plain[rows.clone()]) {
            *to = d * (1.0 - y * y);
        }
        let (d_context, from_above) = (&mut d_context[..block], &mut from_above[..block]);
        decoder.combine[0].back(d_sum, b, d_context, size, false, work);
        decoder.combine[1].back(d_sum, b, from_above, size, false, work);
        let queries = &trace.layers[trace.layers.len() - 1].hidden[rows.clone()];
        let places = at.start * width..at.end * width;
        let attended = (&trace.scores[places.clone()], &trace.weights[places], width);
        let (mapping, spans, d_memory) =
            (model.mappings.attention(), &spans[..b], [&mut d_keys[..], &mut d_states[..]]);
        decoder.attend_back(mapping, memory, queries, spans, attended, d_context, from_above, d_memory, work)?;
        let last = t.checked_sub(1).map(|t| extent.at(t).start * size);
        for (l, layer) in decoder.layers.iter().enumerate().rev() {
            let own = &mut trace.layers[l];
            let [d_hidden, d_cell] = &mut states[l];
            let (d_hidden, d_cell) = (&mut d_hidden[..block], &mut d_cell[..block]);
            add(d_hidden, from_above);
            let gates = &mut own.gates[4 * rows.start..4 * rows.end];
            let cell_before = last.map_or(&own.start[1][..block], |last| &own.cell[last..last + block]);
            let cell = &own.cell[rows.clone()];
            layer.back(b, LayerBack { gates, cell_before, cell, d_hidden, d_cell, d_below: from_above }, work);
            apply(from_above, own.mask.as_ref().map(|mask| &mask[rows.clone()]));
        }
        feed.copy_from_slice(from_above);
        Ok(())
    }

    /// Gradients of the decoder's weights, each one product over all steps.
    fn decoder_gradients(&self, trace: &Trace, carried: &Carried, gradients: &mut [f32], work: &mut Work) {
        let (decoder, n) = (&self.forward.model.network.decoder, self.forward.sorted.extent.entries());
        let top = &trace.layers[trace.layers.len() - 1].hidden;
        decoder.combine[0].gradient(&carried.d_sums, &trace.context, n, gradients, work);
        decoder.combine[1].gradient(&carried.d_sums, top, n, gradients, work);
        decoder.embedding.gradient(&trace.layers[0].gates, &trace.embedded, n, gradients, work);
        for (layer, run) in decoder.layers.iter().zip(&trace.layers) {
            layer.below.gradient(&run.gates, &run.below, n, gradients, work);
            layer.own.gradient(&run.gates, &run.before, n, gradients, work);
            bias_gradients(&layer.slots, &run.gates, gradients, work);
        }
    }

    /// The rest of the way, through the keys and the encoder.
    fn source(&self, encoded: &mut Encoded, mut carried: Carried, gradients: &mut [f32], work: &mut Work) {
        let Forward { model, sorted, memory, .. } = *self.forward;
        let (decoder, slots, size) = (&model.network.decoder, model.slots, self.forward.size());
        let entries = encoded.extent.entries();
        // Keys: ⟨h, s·W⟩, so dW = sᵀ·dK and ds += dK·Wᵀ.
        decoder.keys.gradient(memory.states, &carried.d_keys, entries, gradients, work);
        decoder.keys.apply(&carried.d_keys, entries, &mut carried.d_states, true, work);
        let mut d_states = work.take(entries * size);
        encoded.extent.to_times(&carried.d_states, &mut d_states, size);
        let finals: Vec<[Vec<f32>; 2]> = (carried.states.iter())
            .map(|states| {
                [0, 1].map(|i| {
                    let mut finals = work.take(states[i].len());
                    for (from, row) in states[i].chunks_exact(size).zip(&sorted.rows) {
                        finals[row * size..][..size].copy_from_slice(from);
                    }
                    finals
                })
            })
            .collect();
        let d_source = model.network.encoder.backward(encoded, d_states, &finals, gradients, work);
        scatter(slots.source, sorted.sources(), &d_source, gradients);
        finals.into_iter().flatten().chain([d_source]).for_each(|vector| work.give(vector));
        carried.free(work);
    }
}

/// Adds up the gradients of embedded symbols.
fn scatter(slot: Slot, symbols: impl Iterator<Item = u32>, d: &[f32], gradients: &mut [f32]) {
    let table = slot.of_mut(gradients);
    table.fill(0.0);
    for (symbol, row) in symbols.zip(d.chunks_exact(slot.columns)) {
        add(&mut table[symbol as usize * slot.columns..][..slot.columns], row);
    }
}
