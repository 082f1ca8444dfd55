//! Transformer blocks over attention with any mapping, pre- and post-norm. The names of their parameters are
//! those of torch's layers; see [`torch`](crate::torch).

mod decoder;
mod encoder;
mod feed_forward;

pub use decoder::{DecoderCache, DecoderInput, TransformerDecoder, TransformerDecoderLayer};
pub use encoder::{TransformerEncoder, TransformerEncoderLayer};

use crate::NormalizerConfig;
use crate::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use burn::config::Config;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// The nonlinearity between the two layers of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(x, 0)`
    Relu,
    /// `x·Φ(x)`
    Gelu,
}

/// Creates the blocks of a Transformer.
#[derive(Config, Debug)]
pub struct TransformerConfig {
    /// The width of the sequence.
    pub d_model: usize,
    /// The number of heads; it divides the width.
    pub n_heads: usize,
    /// The width between the two layers of a block.
    pub d_hidden: usize,
    /// The number of blocks of a stack.
    #[config(default = 1)]
    pub n_layers: usize,
    /// The share of weights and activations dropped in training.
    #[config(default = 0.1)]
    pub dropout: f64,
    /// Normalise before each part of a block (`true`), or after it is added (`false`).
    #[config(default = false)]
    pub norm_first: bool,
    /// Normalise the result of a stack; usual with `norm_first`.
    #[config(default = false)]
    pub final_norm: bool,
    /// The nonlinearity between the two layers of a block.
    #[config(default = "Activation::Relu")]
    pub activation: Activation,
    /// The mapping of attention within a sequence.
    #[config(default = "NormalizerConfig::softmax()")]
    pub normalizer: NormalizerConfig,
    /// The mapping of attention to the encoder; `None` is that within a sequence.
    #[config(default = "None")]
    pub cross_normalizer: Option<NormalizerConfig>,
}

impl TransformerConfig {
    fn attention(&self, normalizer: &NormalizerConfig, device: &Device) -> MultiHeadAttention {
        MultiHeadAttentionConfig::new(self.d_model, self.n_heads)
            .with_dropout(self.dropout)
            .with_normalizer(normalizer.clone())
            .init(device)
    }

    fn norm(&self, device: &Device) -> LayerNorm {
        LayerNormConfig::new(self.d_model).init(device)
    }
}
