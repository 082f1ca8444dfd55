//! Attention of one decoder state to a sequence: Luong's scores, Bahdanau's score, and input feeding.

use crate::panics::fail;
use crate::{Normalizer, NormalizerConfig};
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::tensor::{Bool, Device, Tensor, activation};
use serde::{Deserialize, Serialize};

/// How a state `h` and a key `k` are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttentionScore {
    /// `h·k` (Luong et al. 2015).
    Dot,
    /// `h·(W k)` (Luong et al. 2015).
    General,
    /// `v·tanh(W [h; k])` (Luong et al. 2015).
    Concat,
    /// `v·tanh(W h + U k + b)` (Bahdanau et al. 2015; Martins & Astudillo 2016, Eq. 33).
    Additive,
}

/// What becomes of the scores.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weighting {
    /// A distribution over the keys.
    Normalized(NormalizerConfig),
    /// A sigmoid for each key by itself: no distribution (Martins & Astudillo 2016, Section 4.3).
    Logistic,
}

/// Creates a [`GlobalAttention`].
#[derive(Config, Debug)]
pub struct GlobalAttentionConfig {
    /// The width of the state.
    pub d_state: usize,
    /// The width of the keys.
    pub d_key: usize,
    /// How a state and a key are compared.
    #[config(default = "AttentionScore::General")]
    pub score: AttentionScore,
    /// The width between the layers of the concatenated and the additive score; `None` is the state's.
    #[config(default = "None")]
    pub d_hidden: Option<usize>,
    /// What becomes of the scores.
    #[config(default = "Weighting::Normalized(NormalizerConfig::softmax())")]
    pub weighting: Weighting,
}

/// Attention of a state to the keys of a sequence.
#[derive(Module, Debug)]
pub struct GlobalAttention {
    /// `W` of the score, on the state; that of the general score maps keys to the state's width.
    pub state_proj: Option<Linear>,
    /// `W` or `U` of the score, on the keys.
    pub key_proj: Option<Linear>,
    /// `v` of the concatenated and the additive score.
    pub v: Option<Param<Tensor<1>>>,
    /// The mapping from scores to weights; `None` for independent sigmoids.
    pub normalizer: Option<Normalizer>,
    #[module(skip)]
    score: AttentionScore,
    d_state: usize,
    d_key: usize,
}

const NAME: &str = "GlobalAttention";

impl GlobalAttentionConfig {
    /// The weights are a distribution by this mapping.
    #[must_use]
    pub fn with_normalizer(self, normalizer: NormalizerConfig) -> Self {
        self.with_weighting(Weighting::Normalized(normalizer))
    }

    /// The layer.
    ///
    /// # Panics
    /// If the score is a dot product of unequal widths, or a parameter of the mapping is out of range.
    #[must_use]
    pub fn init(&self, device: &Device) -> GlobalAttention {
        let (s, k) = (self.d_state, self.d_key);
        if self.score == AttentionScore::Dot && s != k {
            fail(NAME, &format!("The dot product needs one width: d_state {s}, d_key {k}."));
        }
        let hidden = self.d_hidden.unwrap_or(s);
        let linear = |from, to, bias| LinearConfig::new(from, to).with_bias(bias).init(device);
        let layered = matches!(self.score, AttentionScore::Concat | AttentionScore::Additive);
        GlobalAttention {
            state_proj: layered.then(|| linear(s, hidden, self.score == AttentionScore::Additive)),
            key_proj: match self.score {
                AttentionScore::Dot => None,
                AttentionScore::General => Some(linear(k, s, false)),
                AttentionScore::Concat | AttentionScore::Additive => Some(linear(k, hidden, false)),
            },
            v: layered.then(|| {
                let bound = (hidden as f64).sqrt().recip();
                Initializer::Uniform { min: -bound, max: bound }.init([hidden], device)
            }),
            normalizer: match &self.weighting {
                Weighting::Normalized(config) => Some(config.init(device)),
                Weighting::Logistic => None,
            },
            score: self.score,
            d_state: s,
            d_key: k,
        }
    }
}

/// The keys of a sequence, projected once for all states that will ask.
#[derive(Debug, Clone)]
pub struct GlobalKeys {
    values: Tensor<3>,
    projected: Tensor<3>,
    mask: Option<Tensor<2, Bool>>,
}

impl GlobalAttention {
    /// The keys `[batch, m, d_key]` of a sequence, which are its values, too, and which of them are there.
    ///
    /// # Panics
    /// If the width or the mask `[batch, m]` does not fit.
    pub fn keys(&self, keys: Tensor<3>, mask: Option<Tensor<2, Bool>>) -> GlobalKeys {
        let shape = keys.dims();
        if shape[2] != self.d_key {
            fail(NAME, &format!("The keys must be [batch, m, {}]; they are {shape:?}.", self.d_key));
        }
        if let Some(mask) = mask.as_ref().map(Tensor::dims)
            && mask != shape[..2]
        {
            fail(NAME, &format!("The mask must be [{}, {}]; it is {mask:?}.", shape[0], shape[1]));
        }
        let projected = self.key_proj.as_ref().map_or_else(|| keys.clone(), |proj| proj.forward(keys.clone()));
        GlobalKeys { values: keys, projected, mask }
    }

    /// The contexts `[batch, n, d_key]` of the states `[batch, n, d_state]` and their weights `[batch, n, m]`.
    ///
    /// # Panics
    /// If the shape of the states does not fit the keys.
    pub fn forward(&self, states: Tensor<3>, keys: &GlobalKeys) -> (Tensor<3>, Tensor<3>) {
        let (shape, batch) = (states.dims(), keys.values.dims()[0]);
        if shape[0] != batch || shape[2] != self.d_state {
            fail(NAME, &format!("The states must be [{batch}, n, {}]; they are {shape:?}.", self.d_state));
        }
        let scores = match (&self.state_proj, &self.v) {
            (Some(proj), Some(v)) => {
                // [batch, n, 1, hidden] + [batch, 1, m, hidden]
                let states = proj.forward(states).unsqueeze_dim::<4>(2);
                let hidden = (states + keys.projected.clone().unsqueeze_dim::<4>(1)).tanh();
                hidden.matmul(v.val().reshape([1, 1, -1, 1])).squeeze_dim::<3>(3)
            }
            _ => states.matmul(keys.projected.clone().transpose()),
        };
        let mask = keys.mask.clone().map(|mask| mask.unsqueeze_dim::<3>(1));
        let weights = match (&self.normalizer, mask) {
            (Some(normalizer), mask) => normalizer.forward(scores, mask),
            (None, None) => activation::sigmoid(scores),
            (None, Some(mask)) => {
                let shape = scores.dims();
                activation::sigmoid(scores).mask_fill(mask.bool_not().expand(shape), 0.0)
            }
        };
        (weights.clone().matmul(keys.values.clone()), weights)
    }

    /// How states and keys are compared.
    #[must_use]
    pub fn score(&self) -> AttentionScore {
        self.score
    }
}

/// Luong's attentional state `tanh(W [context; state])`, and its way back into the next step of the decoder.
#[derive(Module, Debug)]
pub struct InputFeeding {
    /// `W`
    pub combine: Linear,
    d_out: usize,
}

impl InputFeeding {
    /// The layer for contexts of width `d_key`, states of width `d_state` and results of width `d_out`.
    #[must_use]
    pub fn new(d_key: usize, d_state: usize, d_out: usize, device: &Device) -> Self {
        Self { combine: LinearConfig::new(d_key + d_state, d_out).with_bias(false).init(device), d_out }
    }

    /// The attentional states of contexts `[batch, n, d_key]` and states `[batch, n, d_state]`.
    pub fn forward(&self, context: Tensor<3>, state: Tensor<3>) -> Tensor<3> {
        self.combine.forward(Tensor::cat(vec![context, state], 2)).tanh()
    }

    /// The input `[batch, d_in + d_out]` of the decoder's next step: the embedded token `[batch, d_in]` and the
    /// attentional state of the last step, zeros at the first.
    ///
    /// # Panics
    /// If the previous state is not `[batch, d_out]`.
    pub fn feed(&self, token: Tensor<2>, previous: Option<Tensor<2>>) -> Tensor<2> {
        let batch = token.dims()[0];
        let previous = previous.unwrap_or_else(|| Tensor::zeros([batch, self.d_out], (&token.device(), token.dtype())));
        if previous.dims() != [batch, self.d_out] {
            let got = previous.dims();
            fail("InputFeeding", &format!("The previous state must be [{batch}, {}]; it is {got:?}.", self.d_out));
        }
        Tensor::cat(vec![token, previous], 1)
    }
}
