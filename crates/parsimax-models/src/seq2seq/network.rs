//! The weights of a model, ready for passes.

use super::decoder::Decoder;
use super::encoder::Encoder;
use super::linear::Repack;
use super::parameters::{Slot, Slots};
use rayon::prelude::*;

/// Encoder and decoder, packed for products.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) encoder: Encoder,
    pub(super) decoder: Decoder,
}

impl Network {
    /// A network of this shape that holds nothing yet.
    pub(super) fn new(slots: &Slots) -> Self {
        Self { encoder: Encoder::new(slots), decoder: Decoder::new(slots) }
    }

    /// Takes over new parameters.
    pub(super) fn repack(&mut self, values: &[f32]) {
        let jobs: Vec<Repack<'_>> = self.encoder.repack(values).chain(self.decoder.repack(values)).collect();
        jobs.into_par_iter().with_max_len(1).for_each(|(packed, matrix)| packed.pack(matrix));
    }
}

/// Rows of an embedding, one after another.
pub(super) fn embed(slot: Slot, values: &[f32], symbols: impl Iterator<Item = u32>, to: &mut [f32]) {
    let table = slot.of(values);
    for (row, symbol) in to.chunks_exact_mut(slot.columns).zip(symbols) {
        row.copy_from_slice(&table[symbol as usize * slot.columns..][..slot.columns]);
    }
}
