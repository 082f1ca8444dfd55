//! The encoder: bidirectional recurrent layers over the source.

use super::dropout::{Dropout, apply, mask};
use super::extent::Extent;
use super::linear::Repack;
use super::lstm::{Columns, Given, Lstm, Run};
use super::parameters::Slots;
use super::work::Work;

/// The encoder's weights, ready to use.
#[derive(Debug)]
pub(super) struct Encoder {
    size: usize,
    layers: Vec<[Lstm; 2]>,
}

/// What a pass leaves for the decoder and for the way back.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) extent: Extent,
    layers: Vec<LayerRun>,
    /// States `h` and `c` of each layer in which the decoder begins.
    pub(super) finals: Vec<[Vec<f32>; 2]>,
}

#[derive(Debug)]
struct LayerRun {
    input: Vec<f32>,
    mask: Option<Vec<f32>>,
    runs: [Run; 2],
    /// The states of both directions side by side.
    output: Vec<f32>,
}

impl Encoded {
    /// The outputs of the last layer, time by time.
    pub(super) fn states(&self) -> &[f32] {
        self.layers.last().map_or(&[], |layer| &layer.output)
    }

    pub(super) fn free(self, work: &mut Work) {
        for layer in self.layers {
            work.give(layer.input);
            work.give(layer.mask.unwrap_or_default());
            work.give(layer.output);
            layer.runs.into_iter().for_each(|run| run.free(work));
        }
        self.finals.into_iter().flatten().for_each(|state| work.give(state));
    }
}

impl Encoder {
    pub(super) fn new(slots: &Slots) -> Self {
        let pair = |slots: &[super::parameters::LstmSlots; 2]| [Lstm::new(slots[0], false), Lstm::new(slots[1], true)];
        Self { size: slots.source.columns, layers: slots.encoder.iter().map(pair).collect() }
    }

    pub(super) fn repack<'a>(&'a mut self, values: &'a [f32]) -> impl Iterator<Item = Repack<'a>> {
        self.layers.iter_mut().flatten().flat_map(|lstm| lstm.repack(values))
    }

    fn columns(&self, direction: usize) -> Columns {
        Columns { width: self.size, at: direction * self.size / 2 }
    }

    /// Reads embedded rows, time by time.
    pub(super) fn forward(
        &self,
        mut x: Vec<f32>,
        extent: Extent,
        mut dropout: Option<&mut Dropout>,
        work: &mut Work,
    ) -> Encoded {
        let mut layers: Vec<LayerRun> = Vec::with_capacity(self.layers.len());
        let mut finals = Vec::with_capacity(self.layers.len());
        for pair in &self.layers {
            if let Some(below) = layers.last() {
                x = work.take(below.output.len());
                x.copy_from_slice(&below.output);
            }
            let mask = mask(&mut dropout, x.len(), work);
            apply(&mut x, mask.as_deref());
            let mut output = work.take(x.len());
            let mut states = [(); 2].map(|()| work.take(extent.batch() * self.size));
            let runs = [0, 1].map(|i| {
                let run = pair[i].forward(&x, &extent, &mut output, self.columns(i), work);
                pair[i].final_states(&run, &output, &extent, &mut states, self.columns(i));
                run
            });
            finals.push(states);
            layers.push(LayerRun { input: std::mem::take(&mut x), mask, runs, output });
        }
        Encoded { extent, layers, finals }
    }

    /// Gradients of the embedded rows, from those of the outputs and of the final states.
    pub(super) fn backward(
        &self,
        encoded: &mut Encoded,
        mut d_states: Vec<f32>,
        d_finals: &[[Vec<f32>; 2]],
        gradients: &mut [f32],
        work: &mut Work,
    ) -> Vec<f32> {
        let Encoded { layers, extent, .. } = encoded;
        for (l, LayerRun { input, mask, runs, output }) in layers.iter_mut().enumerate().rev() {
            let mut d_x = work.take(input.len());
            for (i, run) in runs.iter_mut().enumerate() {
                let finals = [&d_finals[l][0][..], &d_finals[l][1][..]];
                let given = Given { x: input, hidden: output, finals };
                let to = (&mut d_x[..], i > 0);
                self.layers[l][i].backward(&given, run, extent, &mut d_states, self.columns(i), to, gradients, work);
            }
            apply(&mut d_x, mask.as_deref());
            work.give(std::mem::replace(&mut d_states, d_x));
        }
        d_states
    }
}
