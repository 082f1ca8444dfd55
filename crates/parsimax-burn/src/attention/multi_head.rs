//! Multi-head attention (Vaswani et al. 2017) with any mapping for its weights.

use super::KeyValueCache;
use crate::panics::fail;
use crate::{Normalizer, NormalizerConfig};
use burn::config::Config;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Initializer, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor};

/// Creates a [`MultiHeadAttention`].
#[derive(Config, Debug)]
pub struct MultiHeadAttentionConfig {
    /// The width of queries, results and, unless said otherwise, keys and values.
    pub d_model: usize,
    /// The number of heads; it divides the width.
    pub n_heads: usize,
    /// The width of the keys that come in; `None` is `d_model`.
    #[config(default = "None")]
    pub d_key: Option<usize>,
    /// The width of the values that come in; `None` is `d_model`.
    #[config(default = "None")]
    pub d_value: Option<usize>,
    /// The share of weights that is dropped in training.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the projections have a bias.
    #[config(default = true)]
    pub bias: bool,
    /// The mapping from scores to weights.
    #[config(default = "NormalizerConfig::softmax()")]
    pub normalizer: NormalizerConfig,
    /// How the projections start.
    #[config(default = "Initializer::XavierUniform { gain: 1.0 }")]
    pub initializer: Initializer,
}

/// Multi-head attention: `[Π(Q_h K_hᵀ/√d) V_h]_h W`, with the mapping Π of your choice.
///
/// With `d_key` and `d_value` of the model's width, its state is that of `torch.nn.MultiheadAttention`; see
/// [`torch`](crate::torch).
#[derive(Module, Debug)]
pub struct MultiHeadAttention {
    /// The projection of the queries.
    pub query: Linear,
    /// The projection of the keys.
    pub key: Linear,
    /// The projection of the values.
    pub value: Linear,
    /// The projection of the result.
    pub out_proj: Linear,
    /// The mapping from scores to weights.
    pub normalizer: Normalizer,
    dropout: Dropout,
    d_model: usize,
    n_heads: usize,
}

/// What attention is asked.
#[derive(Debug, Clone)]
pub struct AttentionInput {
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    key_mask: Option<Tensor<2, Bool>>,
    mask: Option<Tensor<3, Bool>>,
    causal: bool,
    weights: bool,
}

/// What attention answers.
#[derive(Debug, Clone)]
pub struct Attended {
    /// `[batch, queries, d_model]`
    pub context: Tensor<3>,
    /// `[batch, heads, queries, keys]`, before dropout, if they were asked for.
    pub weights: Option<Tensor<4>>,
}

impl AttentionInput {
    /// A sequence that attends to itself: `[batch, n, d_model]`.
    #[must_use]
    pub fn own(sequence: Tensor<3>) -> Self {
        Self::cross(sequence.clone(), sequence)
    }

    /// A sequence `[batch, n, d_model]` that attends to a memory `[batch, m, d_key]`.
    #[must_use]
    pub fn cross(query: Tensor<3>, memory: Tensor<3>) -> Self {
        Self::new(query, memory.clone(), memory)
    }

    /// Queries `[batch, n, d_model]`, keys `[batch, m, d_key]`, values `[batch, m, d_value]`.
    #[must_use]
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, key_mask: None, mask: None, causal: false, weights: false }
    }

    /// Which keys are there: `[batch, m]`, `true` for a token and `false` for padding.
    ///
    /// That is the opposite of torch's `key_padding_mask`, and the same as every other mask here.
    #[must_use]
    pub fn key_mask(mut self, mask: Tensor<2, Bool>) -> Self {
        self.key_mask = Some(mask);
        self
    }

    /// Which keys each query sees: `[batch or 1, n, m]`, `true` where it does.
    #[must_use]
    pub fn mask(mut self, mask: Tensor<3, Bool>) -> Self {
        self.mask = Some(mask);
        self
    }

    /// The query at position `i` sees the keys up to position `i`.
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Return the weights, too.
    #[must_use]
    pub fn with_weights(mut self) -> Self {
        self.weights = true;
        self
    }
}

const NAME: &str = "MultiHeadAttention";

impl MultiHeadAttentionConfig {
    /// The layer.
    ///
    /// # Panics
    /// If the heads do not divide the width, or a parameter of the mapping is out of range.
    #[must_use]
    pub fn init(&self, device: &Device) -> MultiHeadAttention {
        let (width, heads) = (self.d_model, self.n_heads);
        if heads == 0 || !width.is_multiple_of(heads) {
            fail(NAME, &format!("The number of heads must divide the width: d_model {width}, n_heads {heads}."));
        }
        let linear = |d_input: usize| {
            let config = LinearConfig::new(d_input, width).with_bias(self.bias);
            config.with_initializer(self.initializer.clone()).init(device)
        };
        MultiHeadAttention {
            query: linear(width),
            key: linear(self.d_key.unwrap_or(width)),
            value: linear(self.d_value.unwrap_or(width)),
            out_proj: linear(width),
            normalizer: self.normalizer.init_heads(heads, device),
            dropout: DropoutConfig::new(self.dropout).init(),
            d_model: width,
            n_heads: heads,
        }
    }
}

impl MultiHeadAttention {
    /// Attention of every query.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward(&self, input: AttentionInput) -> Attended {
        self.check(&input);
        let (keys, values) = self.keys_and_values(input.key.clone(), input.value.clone());
        self.attend(input, keys, values)
    }

    /// Attention of the next steps of a sequence to itself: their keys and values join the cache, and they see
    /// all steps so far. Steps that come together are causal among themselves. A key mask covers all steps, the
    /// cached ones first.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward_cached(&self, input: AttentionInput, cache: &mut KeyValueCache) -> Attended {
        self.check_widths(&input);
        let (keys, values) = self.keys_and_values(input.key.clone(), input.value.clone());
        let (keys, values) = cache.extend(keys, values);
        let input = AttentionInput { causal: true, ..input };
        self.check_masks(&input, keys.dims()[2]);
        self.attend(input, keys, values)
    }

    /// Attention to a memory whose keys and values are computed at the first step and held from then on.
    ///
    /// # Panics
    /// If a shape does not fit.
    pub fn forward_memory(&self, input: AttentionInput, cache: &mut KeyValueCache) -> Attended {
        self.check(&input);
        let (keys, values) = cache.get_or(|| self.keys_and_values(input.key.clone(), input.value.clone()));
        self.attend(input, keys, values)
    }

    /// The number of heads.
    #[must_use]
    pub fn n_heads(&self) -> usize {
        self.n_heads
    }

    fn keys_and_values(&self, key: Tensor<3>, value: Tensor<3>) -> (Tensor<4>, Tensor<4>) {
        (self.split(self.key.forward(key)), self.split(self.value.forward(value)))
    }

    /// `[batch, n, d_model]` → `[batch, heads, n, d_model/heads]`
    fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, n, _] = x.dims();
        x.reshape([batch, n, self.n_heads, self.d_model / self.n_heads]).swap_dims(1, 2)
    }

    fn attend(&self, input: AttentionInput, keys: Tensor<4>, values: Tensor<4>) -> Attended {
        let [batch, n, _] = input.query.dims();
        let m = keys.dims()[2];
        let mask = scores_mask(&input, n, m);
        // The factor on the queries: there are fewer of them than of scores.
        let scale = (self.d_model as f64 / self.n_heads as f64).sqrt().recip();
        let queries = self.split(self.query.forward(input.query).mul_scalar(scale));
        let weights = self.normalizer.forward(queries.matmul(keys.transpose()), mask);
        let kept = input.weights.then(|| weights.clone());
        let context = self.dropout.forward(weights).matmul(values);
        let context = context.swap_dims(1, 2).reshape([batch, n, self.d_model]);
        Attended { context: self.out_proj.forward(context), weights: kept }
    }

    fn check(&self, input: &AttentionInput) {
        self.check_widths(input);
        self.check_masks(input, input.key.dims()[1]);
    }

    fn check_widths(&self, input: &AttentionInput) {
        let (query, key, value) = (input.query.dims(), input.key.dims(), input.value.dims());
        let widths = [self.d_model, self.key.weight.dims()[0], self.value.weight.dims()[0]];
        let fits = [query[2], key[2], value[2]] == widths && query[0] == key[0] && key[..2] == value[..2];
        if !fits {
            let [q, k, v] = widths;
            fail(
                NAME,
                &format!(
                    "The shapes must be [b, n, {q}] for queries, [b, m, {k}] for keys and [b, m, {v}] for values; \
                     they are {query:?}, {key:?}, {value:?}."
                ),
            );
        }
    }

    fn check_masks(&self, input: &AttentionInput, m: usize) {
        let [batch, n, _] = input.query.dims();
        if let Some(mask) = input.key_mask.as_ref().map(Tensor::dims)
            && mask != [batch, m]
        {
            fail(NAME, &format!("The key mask must be [{batch}, {m}]; it is {mask:?}."));
        }
        if let Some(mask) = input.mask.as_ref().map(Tensor::dims)
            && (mask[1..] != [n, m] || (mask[0] != batch && mask[0] != 1))
        {
            fail(NAME, &format!("The mask must be [{batch} or 1, {n}, {m}]; it is {mask:?}."));
        }
    }
}

/// The masks as one, broadcast over the heads; `None` if every query sees every key.
fn scores_mask(input: &AttentionInput, n: usize, m: usize) -> Option<Tensor<4, Bool>> {
    let keys = input.key_mask.clone().map(|mask| mask.unsqueeze_dims::<4>(&[1, 2]));
    let pairs = input.mask.clone().map(|mask| mask.unsqueeze_dim::<4>(1));
    // A single query sees all there is.
    let causal = (input.causal && n > 1).then(|| causal_mask(n, m, &input.query.device()).unsqueeze());
    [keys, pairs, causal].into_iter().flatten().reduce(Tensor::bool_and)
}

/// `[n, m]`, `true` where key `j` is not after query `i`; the last query stands at the last key.
fn causal_mask(n: usize, m: usize, device: &Device) -> Tensor<2, Bool> {
    let first = m.saturating_sub(n);
    let queries = Tensor::<1, Int>::arange(0..n as i64, device).add_scalar(first as i64);
    let keys = Tensor::<1, Int>::arange(0..m as i64, device);
    keys.unsqueeze_dim::<2>(0).lower_equal(queries.unsqueeze_dim::<2>(1))
}
