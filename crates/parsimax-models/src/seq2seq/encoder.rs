//! The encoder: bidirectional recurrent layers over the source.

use super::dropout::{Dropout, apply};
use super::lstm::{Extent, Lstm, Run};
use super::parameters::Slots;

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
    lengths: Vec<usize>,
    layers: Vec<LayerRun>,
    /// The outputs of the last layer, time by time.
    pub(super) states: Vec<f32>,
    /// States `h` and `c` of each layer in which the decoder begins.
    pub(super) finals: Vec<[Vec<f32>; 2]>,
}

#[derive(Debug)]
struct LayerRun {
    input: Vec<f32>,
    mask: Option<Vec<f32>>,
    runs: [Run; 2],
}

/// Both directions side by side.
fn beside(runs: &[Run; 2], half: usize) -> Vec<f32> {
    let rows = runs[0].hidden.chunks_exact(half).zip(runs[1].hidden.chunks_exact(half));
    rows.flat_map(|(a, b)| a.iter().chain(b)).copied().collect()
}

/// The columns of one direction.
fn side(both: &[f32], half: usize, which: usize) -> Vec<f32> {
    both.chunks_exact(2 * half).flat_map(|row| &row[which * half..][..half]).copied().collect()
}

impl Encoder {
    pub(super) fn new(slots: &Slots, values: &[f32]) -> Self {
        let pair = |slots: &[super::parameters::LstmSlots; 2]| {
            [Lstm::new(slots[0], values, false), Lstm::new(slots[1], values, true)]
        };
        Self { size: slots.source.columns, layers: slots.encoder.iter().map(pair).collect() }
    }

    /// Reads embedded rows of these lengths, longest first, time by time.
    pub(super) fn forward(
        &self,
        mut x: Vec<f32>,
        lengths: Vec<usize>,
        mut dropout: Option<&mut Dropout>,
        scratch: &mut Vec<f32>,
    ) -> Encoded {
        let (size, half) = (self.size, self.size / 2);
        let extent = Extent::new(&lengths);
        let mut layers = Vec::with_capacity(self.layers.len());
        let mut finals = Vec::with_capacity(self.layers.len());
        for pair in &self.layers {
            let mask = dropout.as_deref_mut().map(|d| d.mask(x.len()));
            apply(&mut x, mask.as_deref());
            let runs = [0, 1].map(|i| pair[i].forward(&x, &extent, scratch));
            let mut states = [0, 1].map(|_| vec![0.0; lengths.len() * size]);
            for i in 0..2 {
                let [h, c] = &mut states;
                pair[i].final_states(&runs[i], &lengths, [h, c], size, i * half);
            }
            finals.push(states);
            let output = beside(&runs, half);
            layers.push(LayerRun { input: std::mem::replace(&mut x, output), mask, runs });
        }
        Encoded { extent, lengths, layers, states: x, finals }
    }

    /// Gradients of the embedded rows, from those of the outputs and of the final states.
    pub(super) fn backward(
        &self,
        encoded: Encoded,
        mut d_states: Vec<f32>,
        d_finals: &[[Vec<f32>; 2]],
        gradients: &mut [f32],
        scratch: &mut Vec<f32>,
    ) -> Vec<f32> {
        let (size, half) = (self.size, self.size / 2);
        for (l, run) in encoded.layers.into_iter().enumerate().rev() {
            let LayerRun { input, mask, runs } = run;
            let mut total = vec![0.0; input.len()];
            for (i, run) in runs.into_iter().enumerate() {
                let d_hidden = side(&d_states, half, i);
                let finals = [&d_finals[l][0][..], &d_finals[l][1][..]];
                let lstm = &self.layers[l][i];
                let (extent, lengths) = (&encoded.extent, &encoded.lengths);
                let dx =
                    lstm.backward(&input, run, extent, lengths, d_hidden, finals, (size, i * half), gradients, scratch);
                total.iter_mut().zip(&dx).for_each(|(t, d)| *t += d);
            }
            apply(&mut total, mask.as_deref());
            d_states = total;
        }
        d_states
    }
}
