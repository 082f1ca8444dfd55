//! The mapping as a layer, with a learned α where the configuration asks for one.

use crate::panics::{fail, or_fail};
use crate::{NormalizerConfig, normalize, normalize_with};
use burn::module::{Content, DisplaySettings, Module, ModuleDisplay, Param};
use burn::tensor::{Bool, Device, Tensor, activation};

/// Turns scores into probabilities. Created by [`NormalizerConfig::init`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct Normalizer {
    #[module(skip)]
    config: NormalizerConfig,
    /// The learned α, where there is one.
    pub adaptive: Option<AdaptiveEntmax>,
}

impl NormalizerConfig {
    /// The layer, with one α for all rows where α is learned.
    ///
    /// # Panics
    /// If a parameter of the mapping is out of range.
    #[must_use]
    pub fn init(&self, device: &Device) -> Normalizer {
        self.init_heads(1, device)
    }

    /// The layer for scores `[batch, heads, …]`, with one α per head where α is learned.
    ///
    /// # Panics
    /// If a parameter of the mapping is out of range.
    #[must_use]
    pub fn init_heads(&self, heads: usize, device: &Device) -> Normalizer {
        or_fail(self.name(), self.build());
        let adaptive = match self {
            Self::AdaptiveEntmax { alpha, gamma } => Some(AdaptiveEntmax::new(heads, *alpha, *gamma, device)),
            _ => None,
        };
        Normalizer { config: self.clone(), adaptive }
    }
}

impl Normalizer {
    /// Probabilities along the last axis.
    ///
    /// # Shapes
    /// - scores: `[batch, heads, …, n]`; any shape where α is not learned per head
    /// - mask: that of the scores, or 1 along axes that share it; `true` where an entry takes part
    ///
    /// # Panics
    /// As [`normalize`].
    pub fn forward<const D: usize>(&self, scores: Tensor<D>, mask: Option<Tensor<D, Bool>>) -> Tensor<D> {
        match &self.adaptive {
            Some(adaptive) => adaptive.forward(scores, mask),
            None => normalize(scores, D - 1, mask, &self.config),
        }
    }

    /// What the layer was made from; a learned α has moved since.
    #[must_use]
    pub fn config(&self) -> &NormalizerConfig {
        &self.config
    }

    /// α of each head, where it is learned.
    #[must_use]
    pub fn alpha(&self) -> Option<Vec<f64>> {
        self.adaptive.as_ref().map(AdaptiveEntmax::alpha)
    }
}

impl ModuleDisplay for Normalizer {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let content = content.add("mapping", &self.config.name().to_string());
        match self.alpha() {
            Some(alpha) => content.add("alpha", &format!("{alpha:?}")).optional(),
            None => content.optional(),
        }
    }
}

/// α-entmax that learns its α, one per head (Correia, Niculae & Martins 2019).
///
/// The parameter is `a`, and `α = 1 + sigmoid(a)` lies in (1, 2): between softmax and sparsemax.
#[derive(Module, Debug)]
pub struct AdaptiveEntmax {
    /// One number per head.
    pub a: Param<Tensor<1>>,
    gamma: f64,
}

impl AdaptiveEntmax {
    /// The layer for `heads` heads, which all start at `alpha`, with temperature `gamma`.
    ///
    /// # Panics
    /// If `alpha` is not in (1, 2), or `gamma` is out of range.
    #[must_use]
    pub fn new(heads: usize, alpha: f64, gamma: f64, device: &Device) -> Self {
        if !(alpha > 1.0 && alpha < 2.0) {
            fail("AdaptiveEntmax", &format!("The initial α must lie in (1, 2); it is {alpha}."));
        }
        let config = NormalizerConfig::Entmax { alpha, gamma };
        or_fail("AdaptiveEntmax", config.build());
        // The inverse of α = 1 + 1/(1 + e^−a).
        let a = ((alpha - 1.0) / (2.0 - alpha)).ln();
        Self { a: Param::from_tensor(Tensor::full([heads], a, device)), gamma }
    }

    /// Probabilities along the last axis, with the α of each head.
    ///
    /// # Shapes
    /// - scores: `[batch, heads, …, n]`; any shape if there is one head
    ///
    /// # Panics
    /// If the scores have another number of heads, or the mask does not fit.
    pub fn forward<const D: usize>(&self, scores: Tensor<D>, mask: Option<Tensor<D, Bool>>) -> Tensor<D> {
        let [heads] = self.a.shape().dims();
        let mut shape = [1; D];
        if heads != 1 {
            if D < 3 || scores.dims()[1] != heads {
                let got = scores.dims();
                fail(
                    "AdaptiveEntmax",
                    &format!("The scores must be [batch, {heads}, …, n], one α per head; got {got:?}."),
                );
            }
            shape[1] = heads;
        }
        let alpha = (activation::sigmoid(self.a.val()) + 1.0).reshape(shape);
        let config = NormalizerConfig::Entmax { alpha: 1.5, gamma: self.gamma };
        normalize_with(scores, alpha, D - 1, mask, &config)
    }

    /// α of each head, to read or to log.
    #[must_use]
    pub fn alpha(&self) -> Vec<f64> {
        let alpha = activation::sigmoid(self.a.val().detach()) + 1.0;
        alpha.into_data().iter::<f64>().collect()
    }
}
