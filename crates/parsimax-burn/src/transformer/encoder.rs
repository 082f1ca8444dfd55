//! The encoder: attention within the sequence, then two layers on each position.

use super::{Activation, TransformerConfig, feed_forward};
use crate::attention::{AttentionInput, MultiHeadAttention};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, LayerNorm, Linear};
use burn::tensor::{Bool, Device, Tensor};

/// A block of the encoder; the state of `torch.nn.TransformerEncoderLayer`.
#[derive(Module, Debug)]
pub struct TransformerEncoderLayer {
    /// Attention within the sequence.
    pub self_attn: MultiHeadAttention,
    /// The first layer on each position.
    pub linear1: Linear,
    /// The second layer on each position.
    pub linear2: Linear,
    /// The norm of the attention.
    pub norm1: LayerNorm,
    /// The norm of the layers.
    pub norm2: LayerNorm,
    dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: Activation,
}

/// A stack of blocks; the state of `torch.nn.TransformerEncoder`.
#[derive(Module, Debug)]
pub struct TransformerEncoder {
    /// The blocks.
    pub layers: Vec<TransformerEncoderLayer>,
    /// The norm of the result, where there is one.
    pub norm: Option<LayerNorm>,
}

impl TransformerConfig {
    /// A block of the encoder.
    ///
    /// # Panics
    /// If the heads do not divide the width, or a parameter of the mapping is out of range.
    #[must_use]
    pub fn init_encoder_layer(&self, device: &Device) -> TransformerEncoderLayer {
        let (linear1, linear2) = feed_forward::layers(self, device);
        TransformerEncoderLayer {
            self_attn: self.attention(&self.normalizer, device),
            linear1,
            linear2,
            norm1: self.norm(device),
            norm2: self.norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            norm_first: self.norm_first,
            activation: self.activation,
        }
    }

    /// The stack of blocks.
    ///
    /// # Panics
    /// As [`init_encoder_layer`](TransformerConfig::init_encoder_layer).
    #[must_use]
    pub fn init_encoder(&self, device: &Device) -> TransformerEncoder {
        let layers = (0..self.n_layers).map(|_| self.init_encoder_layer(device)).collect();
        TransformerEncoder { layers, norm: self.final_norm.then(|| self.norm(device)) }
    }
}

impl TransformerEncoderLayer {
    /// The sequence `[batch, n, d_model]`, contextualised. `key_mask` `[batch, n]` is `true` for tokens and
    /// `false` for padding.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward(&self, x: Tensor<3>, key_mask: Option<Tensor<2, Bool>>) -> Tensor<3> {
        self.forward_with_weights(x, key_mask, false).0
    }

    /// The same, and the weights `[batch, heads, n, n]` if they are asked for.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward_with_weights(
        &self,
        x: Tensor<3>,
        key_mask: Option<Tensor<2, Bool>>,
        weights: bool,
    ) -> (Tensor<3>, Option<Tensor<4>>) {
        let attend = |x: Tensor<3>| {
            let mut input = AttentionInput::own(x);
            if let Some(mask) = key_mask {
                input = input.key_mask(mask);
            }
            let attended = self.self_attn.forward(if weights { input.with_weights() } else { input });
            (self.dropout.forward(attended.context), attended.weights)
        };
        let layers = |x| {
            let y = feed_forward::forward((&self.linear1, &self.linear2), self.activation, &self.dropout, x);
            self.dropout.forward(y)
        };
        if self.norm_first {
            let (context, weights) = attend(self.norm1.forward(x.clone()));
            let x = x + context;
            let y = layers(self.norm2.forward(x.clone()));
            (x + y, weights)
        } else {
            let (context, weights) = attend(x.clone());
            let x = self.norm1.forward(x + context);
            (self.norm2.forward(x.clone() + layers(x)), weights)
        }
    }
}

impl TransformerEncoder {
    /// The sequence `[batch, n, d_model]`, contextualised by all blocks.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward(&self, x: Tensor<3>, key_mask: Option<Tensor<2, Bool>>) -> Tensor<3> {
        let x = self.layers.iter().fold(x, |x, layer| layer.forward(x, key_mask.clone()));
        match &self.norm {
            Some(norm) => norm.forward(x),
            None => x,
        }
    }
}
