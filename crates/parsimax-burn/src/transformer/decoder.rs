//! The decoder: causal attention within the sequence, attention to the encoder, two layers on each position.

use super::{Activation, TransformerConfig, feed_forward};
use crate::attention::{Attended, AttentionInput, KeyValueCache, MultiHeadAttention};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, LayerNorm, Linear};
use burn::tensor::{Bool, Device, Int, Tensor};

/// A block of the decoder; the state of `torch.nn.TransformerDecoderLayer`.
#[derive(Module, Debug)]
pub struct TransformerDecoderLayer {
    /// Causal attention within the sequence.
    pub self_attn: MultiHeadAttention,
    /// Attention to the encoder.
    pub multihead_attn: MultiHeadAttention,
    /// The first layer on each position.
    pub linear1: Linear,
    /// The second layer on each position.
    pub linear2: Linear,
    /// The norm of the attention within the sequence.
    pub norm1: LayerNorm,
    /// The norm of the attention to the encoder.
    pub norm2: LayerNorm,
    /// The norm of the layers.
    pub norm3: LayerNorm,
    dropout: Dropout,
    norm_first: bool,
    #[module(skip)]
    activation: Activation,
}

/// A stack of blocks; the state of `torch.nn.TransformerDecoder`.
#[derive(Module, Debug)]
pub struct TransformerDecoder {
    /// The blocks.
    pub layers: Vec<TransformerDecoderLayer>,
    /// The norm of the result, where there is one.
    pub norm: Option<LayerNorm>,
}

/// What a decoder reads.
#[derive(Debug, Clone)]
pub struct DecoderInput {
    target: Tensor<3>,
    memory: Tensor<3>,
    target_mask: Option<Tensor<2, Bool>>,
    memory_mask: Option<Tensor<2, Bool>>,
    weights: bool,
}

impl DecoderInput {
    /// The target so far `[batch, n, d_model]` and the result of the encoder `[batch, m, d_model]`.
    #[must_use]
    pub fn new(target: Tensor<3>, memory: Tensor<3>) -> Self {
        Self { target, memory, target_mask: None, memory_mask: None, weights: false }
    }

    /// Which positions of the target are there: `[batch, n]`; with a cache, all positions so far.
    #[must_use]
    pub fn target_mask(mut self, mask: Tensor<2, Bool>) -> Self {
        self.target_mask = Some(mask);
        self
    }

    /// Which positions of the memory are there: `[batch, m]`.
    #[must_use]
    pub fn memory_mask(mut self, mask: Tensor<2, Bool>) -> Self {
        self.memory_mask = Some(mask);
        self
    }

    /// Return the weights of the attention to the encoder, too.
    #[must_use]
    pub fn with_weights(mut self) -> Self {
        self.weights = true;
        self
    }

    fn own(&self, x: Tensor<3>) -> AttentionInput {
        let input = AttentionInput::own(x).causal();
        match &self.target_mask {
            Some(mask) => input.key_mask(mask.clone()),
            None => input,
        }
    }

    fn cross(&self, x: Tensor<3>) -> AttentionInput {
        let mut input = AttentionInput::cross(x, self.memory.clone());
        if let Some(mask) = &self.memory_mask {
            input = input.key_mask(mask.clone());
        }
        if self.weights { input.with_weights() } else { input }
    }
}

/// The keys and values of all blocks, for decoding step by step.
#[derive(Debug, Clone)]
pub struct DecoderCache {
    layers: Vec<(KeyValueCache, KeyValueCache)>,
}

impl DecoderCache {
    /// The number of steps decoded so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, |(own, _)| own.len())
    }

    /// Whether nothing was decoded yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Keeps the sequences of the batch at these places, in this order.
    pub fn select(&mut self, places: &Tensor<1, Int>) {
        for (own, cross) in &mut self.layers {
            own.select(places.clone());
            cross.select(places.clone());
        }
    }
}

impl TransformerConfig {
    /// A block of the decoder.
    ///
    /// # Panics
    /// If the heads do not divide the width, or a parameter of the mapping is out of range.
    #[must_use]
    pub fn init_decoder_layer(&self, device: &Device) -> TransformerDecoderLayer {
        let (linear1, linear2) = feed_forward::layers(self, device);
        let cross = self.cross_normalizer.as_ref().unwrap_or(&self.normalizer);
        TransformerDecoderLayer {
            self_attn: self.attention(&self.normalizer, device),
            multihead_attn: self.attention(cross, device),
            linear1,
            linear2,
            norm1: self.norm(device),
            norm2: self.norm(device),
            norm3: self.norm(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            norm_first: self.norm_first,
            activation: self.activation,
        }
    }

    /// The stack of blocks.
    ///
    /// # Panics
    /// As [`init_decoder_layer`](TransformerConfig::init_decoder_layer).
    #[must_use]
    pub fn init_decoder(&self, device: &Device) -> TransformerDecoder {
        let layers = (0..self.n_layers).map(|_| self.init_decoder_layer(device)).collect();
        TransformerDecoder { layers, norm: self.final_norm.then(|| self.norm(device)) }
    }
}

impl TransformerDecoderLayer {
    /// The target, contextualised, and the weights `[batch, heads, n, m]` of the attention to the encoder if
    /// they are asked for.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward(&self, input: DecoderInput) -> (Tensor<3>, Option<Tensor<4>>) {
        self.run(input, |attention, input| attention.forward(input), |attention, input| attention.forward(input))
    }

    /// The same for the next steps alone; earlier ones are in the caches, of the target and of the memory.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward_cached(
        &self,
        input: DecoderInput,
        own: &mut KeyValueCache,
        cross: &mut KeyValueCache,
    ) -> (Tensor<3>, Option<Tensor<4>>) {
        self.run(
            input,
            |attention, input| attention.forward_cached(input, own),
            |attention, input| attention.forward_memory(input, cross),
        )
    }

    fn run(
        &self,
        input: DecoderInput,
        own: impl FnOnce(&MultiHeadAttention, AttentionInput) -> Attended,
        cross: impl FnOnce(&MultiHeadAttention, AttentionInput) -> Attended,
    ) -> (Tensor<3>, Option<Tensor<4>>) {
        let own = |x| self.dropout.forward(own(&self.self_attn, input.own(x)).context);
        let cross = |x| {
            let attended = cross(&self.multihead_attn, input.cross(x));
            (self.dropout.forward(attended.context), attended.weights)
        };
        let layers = |x| {
            let y = feed_forward::forward((&self.linear1, &self.linear2), self.activation, &self.dropout, x);
            self.dropout.forward(y)
        };
        let x = input.target.clone();
        if self.norm_first {
            let x = x.clone() + own(self.norm1.forward(x));
            let (context, weights) = cross(self.norm2.forward(x.clone()));
            let x = x + context;
            (x.clone() + layers(self.norm3.forward(x)), weights)
        } else {
            let x = self.norm1.forward(x.clone() + own(x));
            let (context, weights) = cross(x.clone());
            let x = self.norm2.forward(x + context);
            (self.norm3.forward(x.clone() + layers(x)), weights)
        }
    }
}

impl TransformerDecoder {
    /// The target, contextualised by all blocks, and the weights of each block's attention to the encoder if
    /// they are asked for.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward(&self, input: DecoderInput) -> (Tensor<3>, Vec<Tensor<4>>) {
        self.run(input, |_, layer, input| layer.forward(input))
    }

    /// The same for the next steps alone.
    ///
    /// # Panics
    /// If a shape does not fit, or the cache is of another decoder.
    pub fn forward_cached(&self, input: DecoderInput, cache: &mut DecoderCache) -> (Tensor<3>, Vec<Tensor<4>>) {
        assert_eq!(cache.layers.len(), self.layers.len(), "the cache has as many layers as the decoder");
        self.run(input, |i, layer, input| {
            let (own, cross) = &mut cache.layers[i];
            layer.forward_cached(input, own, cross)
        })
    }

    /// An empty cache.
    #[must_use]
    pub fn cache(&self) -> DecoderCache {
        DecoderCache { layers: vec![(KeyValueCache::new(), KeyValueCache::new()); self.layers.len()] }
    }

    fn run(
        &self,
        input: DecoderInput,
        mut step: impl FnMut(usize, &TransformerDecoderLayer, DecoderInput) -> (Tensor<3>, Option<Tensor<4>>),
    ) -> (Tensor<3>, Vec<Tensor<4>>) {
        let (mut x, mut weights) = (input.target.clone(), Vec::new());
        for (i, layer) in self.layers.iter().enumerate() {
            let found;
            (x, found) = step(i, layer, DecoderInput { target: x, ..input.clone() });
            weights.extend(found);
        }
        match &self.norm {
            Some(norm) => (norm.forward(x), weights),
            None => (x, weights),
        }
    }
}
