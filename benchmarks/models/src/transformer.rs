//! An encoder and a decoder of three Transformer blocks each.

use crate::{Sizes, Translator};
use burn::module::{Module, Param};
use burn::nn::{Embedding, EmbeddingConfig, Initializer, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::transformer::{DecoderInput, TransformerConfig, TransformerDecoder, TransformerEncoder};

/// The model.
#[derive(Module, Debug)]
pub(crate) struct Model {
    source: Embedding,
    target: Embedding,
    places: Param<Tensor<3>>,
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
    output: Linear,
}

impl Model {
    pub(crate) fn new(sizes: Sizes, attention: NormalizerConfig, device: &Device) -> Model {
        let Sizes { width, vocabulary, time, .. } = sizes;
        let embedding = || EmbeddingConfig::new(vocabulary, width).init(device);
        let blocks =
            TransformerConfig::new(width, 4, 4 * width).with_n_layers(3).with_dropout(0.0).with_normalizer(attention);
        Model {
            source: embedding(),
            target: embedding(),
            places: Initializer::Normal { mean: 0.0, std: 0.02 }.init([1, time, width], device),
            encoder: blocks.init_encoder(device),
            decoder: blocks.init_decoder(device),
            output: LinearConfig::new(width, vocabulary).init(device),
        }
    }
}

impl Translator for Model {
    fn scores(&self, source: Tensor<2, Int>, before: Tensor<2, Int>) -> Tensor<3> {
        let memory = self.encoder.forward(self.source.forward(source) + self.places.val(), None);
        let target = self.target.forward(before) + self.places.val();
        self.output.forward(self.decoder.forward(DecoderInput::new(target, memory)).0)
    }
}
