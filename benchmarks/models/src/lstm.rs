//! An encoder and a decoder of one LSTM layer each, with global attention (Luong et al. 2015).

use crate::{Sizes, Translator};
use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::attention::{GlobalAttention, GlobalAttentionConfig, InputFeeding, Weighting};
use parsimax_burn::recurrent::{Recurrent, RecurrentConfig};

/// The model.
#[derive(Module, Debug)]
pub(crate) struct Model {
    source: Embedding,
    target: Embedding,
    encoder: Recurrent,
    decoder: Recurrent,
    attention: GlobalAttention,
    combine: InputFeeding,
    output: Linear,
}

impl Model {
    pub(crate) fn new(sizes: Sizes, attention: NormalizerConfig, device: &Device) -> Model {
        let Sizes { width, vocabulary, .. } = sizes;
        let embedding = || EmbeddingConfig::new(vocabulary, width).init(device);
        let weighting = Weighting::Normalized(attention);
        Model {
            source: embedding(),
            target: embedding(),
            encoder: RecurrentConfig::lstm(width, width).init(device),
            decoder: RecurrentConfig::lstm(width, width).init(device),
            attention: GlobalAttentionConfig::new(width, width).with_weighting(weighting).init(device),
            combine: InputFeeding::new(width, width, width, device),
            output: LinearConfig::new(width, vocabulary).init(device),
        }
    }
}

impl Translator for Model {
    fn scores(&self, source: Tensor<2, Int>, before: Tensor<2, Int>) -> Tensor<3> {
        let (memory, state) = self.encoder.forward(self.source.forward(source), None, None);
        let states = self.decoder.outputs(self.target.forward(before), Some(&state), None);
        let keys = self.attention.keys(memory, None);
        let (context, _) = self.attention.forward(states.clone(), &keys);
        self.output.forward(self.combine.forward(context, states))
    }
}
