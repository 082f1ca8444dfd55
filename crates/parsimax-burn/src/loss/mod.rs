//! Losses over the core's loss-with-gradient.
//!
//! The forward pass of a tracked loss computes the gradient in the same sweep and keeps it; the backward pass
//! scales it. Probabilities and targets are never written out: for a vocabulary of 32000 words there are the
//! scores and their gradient, and nothing else of that size.

mod ops;

pub use ops::{LossOps, LossSpec, TargetInput};

use crate::NormalizerConfig;
use crate::panics::{fail, or_fail};
use burn::backend::Dispatch;
use burn::config::Config;
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use parsimax::loss::Reduction;
use serde::{Deserialize, Serialize};

/// Which loss of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loss", rename_all = "kebab-case")]
pub enum LossKind {
    /// The Fenchel–Young loss: cross-entropy for softmax, the sparsemax loss for sparsemax, the entmax losses.
    FenchelYoung,
    /// The negative log-likelihood of softmax and ev-softmax.
    Likelihood,
    /// The log loss of probabilities moved away from 0 by ε, for any mapping.
    PerturbedLog {
        /// ε > 0.
        epsilon: f64,
    },
}

/// What becomes of the losses of the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossReduction {
    /// The mean over the targets that are not ignored.
    Mean,
    /// The sum.
    Sum,
}

/// Creates a [`SparseLoss`].
#[derive(Config, Debug)]
pub struct SparseLossConfig {
    /// The mapping that the loss belongs to.
    pub normalizer: NormalizerConfig,
    /// Which loss.
    #[config(default = "LossKind::FenchelYoung")]
    pub kind: LossKind,
    /// The share of every target that goes to all classes alike.
    #[config(default = 0.0)]
    pub label_smoothing: f64,
    /// Rows of this class take no part.
    #[config(default = -100)]
    pub ignore_index: i64,
    /// A weight per class.
    #[config(default = "None")]
    pub class_weights: Option<Vec<f64>>,
    /// The axis of the classes; `None` is the last.
    #[config(default = "None")]
    pub class_axis: Option<usize>,
    /// What becomes of the losses of the rows.
    #[config(default = "LossReduction::Mean")]
    pub reduction: LossReduction,
}

/// A loss of scores against targets. It has no parameters to learn.
#[derive(Module, Debug)]
pub struct SparseLoss {
    #[module(skip)]
    config: SparseLossConfig,
}

const NAME: &str = "SparseLoss";

impl SparseLossConfig {
    /// The loss.
    ///
    /// # Panics
    /// If the mapping has no such loss, or a parameter is out of range.
    #[must_use]
    pub fn init(&self) -> SparseLoss {
        if matches!(self.normalizer, NormalizerConfig::AdaptiveEntmax { .. }) {
            fail(NAME, "The α of a loss is fixed; take entmax with the α of your choice.");
        }
        or_fail(NAME, ops::check(&self.spec(0, Reduction::Mean)));
        SparseLoss { config: self.clone() }
    }

    fn spec(&self, axis: usize, reduction: Reduction) -> LossSpec {
        LossSpec {
            normalizer: self.normalizer.clone(),
            kind: self.kind,
            axis,
            label_smoothing: self.label_smoothing,
            ignore_index: self.ignore_index,
            class_weights: self.class_weights.clone(),
            reduction,
        }
    }

    fn reduction(&self) -> Reduction {
        match self.reduction {
            LossReduction::Mean => Reduction::Mean,
            LossReduction::Sum => Reduction::Sum,
        }
    }
}

impl SparseLoss {
    /// The loss of scores against class indices.
    ///
    /// A row of scores with NaN or `+inf` makes the loss NaN.
    ///
    /// # Shapes
    /// - scores: `[…, classes]`, or with the classes along another axis
    /// - targets: the scores' without the classes; `E = D − 1`
    /// - output: `[1]`
    ///
    /// # Panics
    /// If the shapes do not fit or a target is no class.
    pub fn forward<const D: usize, const E: usize>(&self, scores: Tensor<D>, targets: Tensor<E, Int>) -> Tensor<1> {
        Tensor::from_dispatch(self.of_classes(scores, targets, self.config.reduction()))
    }

    /// The loss of every row against class indices: 0 where the target is ignored.
    ///
    /// # Panics
    /// As [`forward`](SparseLoss::forward).
    pub fn rows<const D: usize, const E: usize>(&self, scores: Tensor<D>, targets: Tensor<E, Int>) -> Tensor<E> {
        Tensor::from_dispatch(self.of_classes(scores, targets, Reduction::None))
    }

    /// The loss of scores against distributions of the same shape, which receive no gradient.
    ///
    /// # Panics
    /// If the shapes do not fit or a target is no distribution.
    pub fn forward_soft<const D: usize>(&self, scores: Tensor<D>, targets: Tensor<D>) -> Tensor<1> {
        Tensor::from_dispatch(self.of_distributions(scores, targets, self.config.reduction()))
    }

    /// The loss of every row against distributions; `E = D − 1`.
    ///
    /// # Panics
    /// As [`forward_soft`](SparseLoss::forward_soft).
    pub fn rows_soft<const D: usize, const E: usize>(&self, scores: Tensor<D>, targets: Tensor<D>) -> Tensor<E> {
        Tensor::from_dispatch(self.of_distributions(scores, targets, Reduction::None))
    }

    /// What the loss was made from.
    #[must_use]
    pub fn config(&self) -> &SparseLossConfig {
        &self.config
    }

    fn of_classes<const D: usize, const E: usize>(
        &self,
        scores: Tensor<D>,
        targets: Tensor<E, Int>,
        reduction: Reduction,
    ) -> burn::backend::DispatchTensor {
        let axis = self.axis(scores.dims());
        let (shape, got) = (scores.dims(), targets.dims());
        let rows: Vec<usize> = (0..D).filter(|i| *i != axis).map(|i| shape[i]).collect();
        if rows != got {
            fail(
                NAME,
                &format!(
                    "The targets must be {rows:?} for scores {shape:?} with classes along axis {axis}; \
                     they are {got:?}."
                ),
            );
        }
        let target = TargetInput::Classes(targets.into_dispatch());
        <Dispatch as LossOps>::loss(scores.into_dispatch(), target, self.config.spec(axis, reduction))
    }

    fn of_distributions<const D: usize>(
        &self,
        scores: Tensor<D>,
        targets: Tensor<D>,
        reduction: Reduction,
    ) -> burn::backend::DispatchTensor {
        let axis = self.axis(scores.dims());
        let (shape, got) = (scores.dims(), targets.dims());
        if shape != got {
            fail(NAME, &format!("Soft targets must have the scores' shape {shape:?}; they have {got:?}."));
        }
        let target = TargetInput::Soft(targets.into_dispatch());
        <Dispatch as LossOps>::loss(scores.into_dispatch(), target, self.config.spec(axis, reduction))
    }

    fn axis<const D: usize>(&self, shape: [usize; D]) -> usize {
        let axis = self.config.class_axis.unwrap_or(D - 1);
        if axis >= D {
            fail(NAME, &format!("The axis of the classes must be below {D} for scores {shape:?}; it is {axis}."));
        }
        axis
    }
}
