//! Adam, one pass over each parameter.
//!
//! With gradient `g`, `m ← β₁m + (1−β₁)g`, `v ← β₂v + (1−β₂)g²`, and the parameter loses
//! `η · m/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)` and, with decay `w`, the share `η·w` of itself (AdamW).

use super::ops::{self, AdamStep};
use burn::config::Config;
use burn::optim::{AdamState, AdaptiveMomentumState, ModuleOptimizer, Optimizer};
use burn::tensor::{Device, Tensor};

/// The constants of [`Adam`].
#[derive(Config, Debug)]
pub struct AdamConfig {
    /// Decay of the mean of the gradients.
    #[config(default = 0.9)]
    pub beta_1: f32,
    /// Decay of the mean of their squares.
    #[config(default = 0.999)]
    pub beta_2: f32,
    /// Added to the root.
    #[config(default = 1e-8)]
    pub epsilon: f32,
    /// Decay of the parameters themselves, apart from the gradient.
    #[config(default = 0.0)]
    pub weight_decay: f32,
}

impl AdamConfig {
    /// An optimiser of whole modules.
    #[must_use]
    pub fn init(&self) -> ModuleOptimizer {
        ModuleOptimizer::from(Adam { config: self.clone() })
    }
}

/// Adam for one parameter; [`AdamConfig::init`] makes one of all parameters of a module. What it remembers
/// has Burn's own type, so that a run saved with one can go on with the other.
#[derive(Clone, Debug)]
pub struct Adam {
    config: AdamConfig,
}

impl Optimizer for Adam {
    type State<const D: usize> = AdamState<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let zeros = || Tensor::zeros(tensor.dims(), &tensor.device());
        let (time, mean, square) = match state.map(|state| state.momentum) {
            Some(state) => (state.time, state.moment_1, state.moment_2),
            None => (0, zeros(), zeros()),
        };
        let (time, config) = (time + 1, &self.config);
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(time as f64);
        let step = AdamStep {
            beta_1: config.beta_1,
            beta_2: config.beta_2,
            epsilon: config.epsilon,
            rate: (rate / correction(config.beta_1)) as f32,
            root: correction(config.beta_2).sqrt() as f32,
            decay: rate as f32 * config.weight_decay,
        };
        let [tensor, mean, square] = ops::adam([tensor, gradient, mean, square], step);
        (tensor, Some(AdamState::new(AdaptiveMomentumState::new(time, mean, square))))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        AdamState::new(state.momentum.to_device(device))
    }
}
