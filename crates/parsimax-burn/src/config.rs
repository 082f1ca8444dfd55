//! Which mapping turns scores into probabilities, as a value that can be saved.

use parsimax::registry::{self, Options};
use parsimax::{Mapping, Result};
use serde::{Deserialize, Serialize};

/// The name and parameters of a mapping: every one of [`parsimax::registry`], and 1.x-entmax whose α is
/// learned.
///
/// It is saved as a table with the mapping's name; parameters that are left out take their defaults.
///
/// ```
/// use parsimax_burn::NormalizerConfig;
/// let config = NormalizerConfig::entmax(1.3);
/// let text = serde_json::to_string(&config).unwrap();
/// assert_eq!(text, r#"{"mapping":"entmax","alpha":1.3,"gamma":1.0}"#);
/// let sparse: NormalizerConfig = serde_json::from_str(r#"{"mapping":"sparsemax"}"#).unwrap();
/// assert_eq!(sparse, NormalizerConfig::sparsemax());
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mapping", rename_all = "kebab-case", deny_unknown_fields)]
pub enum NormalizerConfig {
    /// Softmax.
    Softmax {
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Sparsemax.
    Sparsemax {
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// 1.5-entmax.
    Entmax15 {
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// α-entmax with a fixed α; the operations take a tensor of α instead.
    Entmax {
        /// α > 0: 1 is softmax, 2 is sparsemax.
        #[serde(default = "default_alpha")]
        alpha: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Fusedmax: neighbours are drawn to the same weight.
    Fusedmax {
        /// The weight λ of the total variation.
        #[serde(default = "default_fused_lambda")]
        lambda: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Oscarmax: entries with similar scores are drawn to the same weight.
    Oscarmax {
        /// The weight λ of the pairwise maximum norm.
        #[serde(default = "default_oscar_lambda")]
        lambda: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Oscarmax as its paper computes it.
    OscarmaxApprox {
        /// The weight λ of the pairwise maximum norm.
        #[serde(default = "default_oscar_lambda")]
        lambda: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Squared p-norms.
    SqPnormMax {
        /// The norm's p.
        #[serde(default = "default_alpha")]
        p: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Evidential softmax.
    EvSoftmax {
        /// ε of the training form; 0 is the sparse form.
        #[serde(default)]
        eps: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Sparsehourglass.
    Sparsehourglass {
        /// q ≥ 0.
        #[serde(default = "one")]
        q: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Normmax.
    Normmax {
        /// The norm's α.
        #[serde(default = "two")]
        alpha: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// Weights up to 1 that sum to a budget.
    Budget {
        /// The sum of a row.
        #[serde(default = "two")]
        budget: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
    /// α-entmax whose α ∈ (1, 2) is learned, one per head: see [`AdaptiveEntmax`](crate::AdaptiveEntmax).
    AdaptiveEntmax {
        /// The α that training starts from, in (1, 2).
        #[serde(default = "default_alpha")]
        alpha: f64,
        /// The temperature γ.
        #[serde(default = "one")]
        gamma: f64,
    },
}

fn one() -> f64 {
    1.0
}

fn two() -> f64 {
    2.0
}

fn default_alpha() -> f64 {
    1.5
}

fn default_fused_lambda() -> f64 {
    0.1
}

fn default_oscar_lambda() -> f64 {
    0.01
}

impl burn::config::Config for NormalizerConfig {}

impl NormalizerConfig {
    /// Softmax.
    #[must_use]
    pub fn softmax() -> Self {
        Self::Softmax { gamma: 1.0 }
    }

    /// Sparsemax.
    #[must_use]
    pub fn sparsemax() -> Self {
        Self::Sparsemax { gamma: 1.0 }
    }

    /// 1.5-entmax.
    #[must_use]
    pub fn entmax15() -> Self {
        Self::Entmax15 { gamma: 1.0 }
    }

    /// α-entmax with a fixed α.
    #[must_use]
    pub fn entmax(alpha: f64) -> Self {
        Self::Entmax { alpha, gamma: 1.0 }
    }

    /// α-entmax with a learned α ∈ (1, 2), which starts at `alpha`.
    #[must_use]
    pub fn adaptive_entmax(alpha: f64) -> Self {
        Self::AdaptiveEntmax { alpha, gamma: 1.0 }
    }

    /// Fusedmax.
    #[must_use]
    pub fn fusedmax(lambda: f64) -> Self {
        Self::Fusedmax { lambda, gamma: 1.0 }
    }

    /// Oscarmax.
    #[must_use]
    pub fn oscarmax(lambda: f64) -> Self {
        Self::Oscarmax { lambda, gamma: 1.0 }
    }

    /// Evidential softmax, in its sparse form.
    #[must_use]
    pub fn ev_softmax() -> Self {
        Self::EvSoftmax { eps: 0.0, gamma: 1.0 }
    }

    /// The mapping of that name in the registry, with its default parameters.
    ///
    /// # Errors
    /// If the registry has no such name.
    pub fn named(name: &str) -> Result<Self> {
        registry::find(name)?;
        Ok(match name {
            "sparsemax" => Self::sparsemax(),
            "entmax15" => Self::entmax15(),
            "entmax" => Self::entmax(default_alpha()),
            "fusedmax" => Self::fusedmax(default_fused_lambda()),
            "oscarmax" => Self::oscarmax(default_oscar_lambda()),
            "oscarmax-approx" => Self::OscarmaxApprox { lambda: default_oscar_lambda(), gamma: 1.0 },
            "sq-pnorm-max" => Self::SqPnormMax { p: default_alpha(), gamma: 1.0 },
            "ev-softmax" => Self::ev_softmax(),
            "sparsehourglass" => Self::Sparsehourglass { q: 1.0, gamma: 1.0 },
            "normmax" => Self::Normmax { alpha: two(), gamma: 1.0 },
            "budget" => Self::Budget { budget: two(), gamma: 1.0 },
            _ => Self::softmax(),
        })
    }

    /// The same mapping with another temperature γ: scores are divided by it.
    #[must_use]
    pub fn with_gamma(mut self, value: f64) -> Self {
        let (Self::Softmax { gamma }
        | Self::Sparsemax { gamma }
        | Self::Entmax15 { gamma }
        | Self::Entmax { gamma, .. }
        | Self::Fusedmax { gamma, .. }
        | Self::Oscarmax { gamma, .. }
        | Self::OscarmaxApprox { gamma, .. }
        | Self::SqPnormMax { gamma, .. }
        | Self::EvSoftmax { gamma, .. }
        | Self::Sparsehourglass { gamma, .. }
        | Self::Normmax { gamma, .. }
        | Self::Budget { gamma, .. }
        | Self::AdaptiveEntmax { gamma, .. }) = &mut self;
        *gamma = value;
        self
    }

    /// The name by which the registry knows the mapping.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.entry().0
    }

    /// The mapping itself.
    ///
    /// # Errors
    /// If a parameter is out of range.
    pub fn build(&self) -> Result<Box<dyn Mapping>> {
        let (name, options) = self.entry();
        registry::build(name, &options)
    }

    /// The mapping with another value of its shape parameter: α, λ or p. A value for a mapping that has none
    /// is an error.
    pub(crate) fn build_with(&self, value: f64) -> Result<Box<dyn Mapping>> {
        let (name, mut options) = self.entry();
        match self {
            Self::Fusedmax { .. } | Self::Oscarmax { .. } | Self::OscarmaxApprox { .. } => options.lambda = Some(value),
            Self::SqPnormMax { .. } => options.p = Some(value),
            _ => options.alpha = Some(value),
        }
        registry::build(name, &options)
    }

    /// Whether the backward pass in single precision needs the probabilities alone: the scores are then not
    /// kept. True of the mappings whose Jacobian is a function of the probabilities and whose kernels use that.
    pub(crate) fn forgets_scores(&self) -> bool {
        match self {
            Self::Softmax { gamma } | Self::Sparsemax { gamma } | Self::Entmax15 { gamma } => kernel_gamma(*gamma),
            Self::EvSoftmax { eps, gamma } => *eps == 0.0 && kernel_gamma(*gamma),
            Self::Entmax { alpha, gamma } => kernel_alpha(*alpha) && kernel_gamma(*gamma),
            _ => false,
        }
    }

    /// The mapping's line in the registry and its options.
    fn entry(&self) -> (&'static str, Options) {
        let with = |gamma: &f64| Options { gamma: Some(*gamma), ..Options::default() };
        match self {
            Self::Softmax { gamma } => ("softmax", with(gamma)),
            Self::Sparsemax { gamma } => ("sparsemax", with(gamma)),
            Self::Entmax15 { gamma } => ("entmax15", with(gamma)),
            Self::Entmax { alpha, gamma } | Self::AdaptiveEntmax { alpha, gamma } => {
                ("entmax", Options { alpha: Some(*alpha), ..with(gamma) })
            }
            Self::Fusedmax { lambda, gamma } => ("fusedmax", Options { lambda: Some(*lambda), ..with(gamma) }),
            Self::Oscarmax { lambda, gamma } => ("oscarmax", Options { lambda: Some(*lambda), ..with(gamma) }),
            Self::OscarmaxApprox { lambda, gamma } => {
                ("oscarmax-approx", Options { lambda: Some(*lambda), ..with(gamma) })
            }
            Self::SqPnormMax { p, gamma } => ("sq-pnorm-max", Options { p: Some(*p), ..with(gamma) }),
            Self::EvSoftmax { eps, gamma } => ("ev-softmax", Options { eps: Some(*eps), ..with(gamma) }),
            Self::Sparsehourglass { q, gamma } => ("sparsehourglass", Options { q: Some(*q), ..with(gamma) }),
            Self::Normmax { alpha, gamma } => ("normmax", Options { alpha: Some(*alpha), ..with(gamma) }),
            Self::Budget { budget, gamma } => ("budget", Options { budget: Some(*budget), ..with(gamma) }),
        }
    }
}

/// Temperatures that the single-precision kernels of the core take.
fn kernel_gamma(gamma: f64) -> bool {
    (1e-6..=1e6).contains(&gamma)
}

/// The α that the single-precision kernels of the core take.
fn kernel_alpha(alpha: f64) -> bool {
    (1.0..=16.0).contains(&alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mapping_of_the_registry_has_its_config() {
        for name in registry::names() {
            let config = NormalizerConfig::named(name).unwrap();
            assert_eq!(config.name(), name);
            assert_eq!(config.build().unwrap().name(), name);
            let text = serde_json::to_string(&config).unwrap();
            assert!(text.starts_with(&format!(r#"{{"mapping":"{name}""#)), "{text}");
            let short = format!(r#"{{"mapping":"{name}"}}"#);
            for text in [text, short] {
                assert_eq!(serde_json::from_str::<NormalizerConfig>(&text).unwrap(), config, "{text}");
            }
        }
    }

    #[test]
    fn bad_values_and_names_are_errors() {
        assert!(NormalizerConfig::entmax(-1.0).build().is_err());
        assert!(NormalizerConfig::softmax().with_gamma(0.0).build().is_err());
        assert!(NormalizerConfig::named("maxout").is_err());
        assert!(serde_json::from_str::<NormalizerConfig>(r#"{"mapping":"softmax","alpha":1.5}"#).is_err());
    }

    /// Wherever scores are forgotten a kernel must be there to do without them.
    #[test]
    fn scores_are_forgotten_only_where_a_kernel_runs() {
        for name in registry::names() {
            for gamma in [1.0, 0.3, 1e7] {
                let config = NormalizerConfig::named(name).unwrap().with_gamma(gamma);
                let kernel = config.build().unwrap().kernel().is_some();
                assert!(kernel || !config.forgets_scores(), "{config:?}");
            }
        }
        for alpha in [0.5, 1.0, 1.3, 2.0, 16.0, 17.0] {
            let config = NormalizerConfig::entmax(alpha);
            assert!(config.build().unwrap().kernel().is_some() || !config.forgets_scores(), "{alpha}");
        }
    }
}
