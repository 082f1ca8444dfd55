//! The loss as an operation: value and gradient in one sweep of the core.

use super::LossKind;
use crate::NormalizerConfig;
use crate::ops::host::{for_type, read, view as host_view};
use crate::panics::{fail, or_fail};
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, ExtensionType, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Element, TensorData, bf16, f16, read_sync};
use parsimax::loss::{BatchLoss, FenchelYoung, Likelihood, Loss, PerturbedLog, Reduction, RowLoss, Target};
use parsimax::{Error, EvSoftmax, Float, Result, Softmax, View, ViewMut};

/// A loss and all that belongs to it.
#[derive(Debug, Clone)]
pub struct LossSpec {
    /// The mapping.
    pub normalizer: NormalizerConfig,
    /// Which of its losses.
    pub kind: LossKind,
    /// The axis of the classes, counted from the front.
    pub axis: usize,
    /// The share of every target that goes to all classes alike.
    pub label_smoothing: f64,
    /// Rows of this class take no part.
    pub ignore_index: i64,
    /// A weight per class.
    pub class_weights: Option<Vec<f64>>,
    /// What becomes of the losses of the rows.
    pub reduction: Reduction,
}

/// What the rows should have been.
#[derive(ExtensionType, Debug, Clone)]
pub enum TargetInput<B: Backend> {
    /// A class per row.
    Classes(IntTensor<B>),
    /// A distribution per row.
    Soft(FloatTensor<B>),
}

/// The losses of the core as operations of a backend.
#[backend_extension(Autodiff, Flex, NdArray: cfg(feature = "ndarray"))]
pub trait LossOps: Backend {
    /// The loss: `[1]`, or one per row.
    fn loss(
        scores: FloatTensor<Self>,
        #[extension_type] target: TargetInput<Self>,
        spec: LossSpec,
    ) -> FloatTensor<Self> {
        let device = scores.device();
        let (loss, _) = by_host::<Self>(scores, target, &spec, false);
        Self::float_from_data(loss, &device)
    }

    /// The loss and the gradient of its sum in the scores.
    fn loss_with_gradient(
        scores: FloatTensor<Self>,
        #[extension_type] target: TargetInput<Self>,
        spec: LossSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let device = scores.device();
        let (loss, gradient) = by_host::<Self>(scores, target, &spec, true);
        (Self::float_from_data(loss, &device), Self::float_from_data(gradient, &device))
    }

    /// The gradient times what arrives at the loss, which is `[1]` or one number per row.
    fn scale_gradient(gradient: FloatTensor<Self>, arriving: FloatTensor<Self>, axis: usize) -> FloatTensor<Self> {
        let mut shape = gradient.shape();
        if arriving.shape().num_elements() == 1 {
            shape = burn::tensor::Shape::from(vec![1; shape.num_dims()]);
        } else {
            shape[axis] = 1;
        }
        Self::float_mul(gradient, Self::float_reshape(arriving, shape))
    }
}

#[cfg(feature = "ndarray")]
impl LossOps for burn::backend::NdArray {}

impl LossOps for Flex {
    fn loss(scores: FloatTensor<Self>, target: TargetInput<Self>, spec: LossSpec) -> FloatTensor<Self> {
        Self::float_from_data(by_flex(scores, target, &spec, false).0, &Default::default())
    }

    fn loss_with_gradient(
        scores: FloatTensor<Self>,
        target: TargetInput<Self>,
        spec: LossSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let (loss, gradient) = by_flex(scores, target, &spec, true);
        let tensor = |data| Self::float_from_data(data, &Default::default());
        (tensor(loss), tensor(gradient))
    }

    fn scale_gradient(gradient: FloatTensor<Self>, arriving: FloatTensor<Self>, axis: usize) -> FloatTensor<Self> {
        if arriving.shape().num_elements() != 1 {
            let mut shape = gradient.shape();
            shape[axis] = 1;
            return Self::float_mul(gradient, Self::float_reshape(arriving, shape));
        }
        // Most losses are the last word: a factor of 1.
        let factor = read::<Self>(arriving).iter::<f64>().next().unwrap_or(1.0);
        if factor == 1.0 { gradient } else { Self::float_mul_scalar(gradient, factor.into()) }
    }
}

fn by_host<B: Backend>(
    scores: FloatTensor<B>,
    target: TargetInput<B>,
    spec: &LossSpec,
    gradient: bool,
) -> (TensorData, TensorData) {
    let z = read::<B>(scores);
    match target {
        TargetInput::Classes(classes) => {
            let classes = classes_of::<B>(classes);
            for_type!(NAME, z.dtype(), T => run(spec, host_view::<T>(&z), Target::Classes(&classes), gradient))
        }
        TargetInput::Soft(y) => {
            let y = read::<B>(y);
            for_type!(NAME, z.dtype(), T => run(spec, host_view::<T>(&z), Target::Soft(host_view(&y)), gradient))
        }
    }
}

fn by_flex(
    scores: FloatTensor<Flex>,
    target: TargetInput<Flex>,
    spec: &LossSpec,
    gradient: bool,
) -> (TensorData, TensorData) {
    macro_rules! view {
        ($tensor:expr, $T:ty) => {{
            let layout = $tensor.layout();
            let (shape, strides) = (layout.shape(), layout.strides());
            or_fail(NAME, View::strided($tensor.storage::<$T>(), shape, strides, layout.start_offset()))
        }};
    }
    match target {
        TargetInput::Classes(classes) => {
            let classes = classes_of::<Flex>(classes);
            for_type!(NAME, scores.dtype(), T => run(spec, view!(scores, T), Target::Classes(&classes), gradient))
        }
        TargetInput::Soft(y) => {
            if y.dtype() != scores.dtype() {
                let (z, y) = (scores.dtype(), y.dtype());
                fail(NAME, &format!("Soft targets must be of the scores' type {z:?}; they are {y:?}."));
            }
            for_type!(NAME, scores.dtype(), T => run(spec, view!(scores, T), Target::Soft(view!(y, T)), gradient))
        }
    }
}

fn classes_of<B: Backend>(classes: IntTensor<B>) -> Vec<i64> {
    let data = read_sync(B::int_into_data(classes)).expect("targets that can be read");
    data.iter::<i64>().collect()
}

const NAME: &str = "SparseLoss";

/// The loss and, if it is asked for, its gradient.
fn run<T: Float + Element>(
    spec: &LossSpec,
    z: View<'_, T>,
    target: Target<'_, T>,
    with_gradient: bool,
) -> (TensorData, TensorData) {
    let shape = z.shape().to_vec();
    let mut gradient = vec![T::default(); if with_gradient { shape.iter().product() } else { 0 }];
    let rows: Vec<usize> = (0..shape.len()).filter(|i| *i != spec.axis).map(|i| shape[i]).collect();
    let out = with_gradient.then(|| or_fail(NAME, ViewMut::new(&mut gradient, &shape)));
    let loss = with_loss(spec, Call { spec, z, target, out });
    let values = match loss {
        Ok(Loss::Value(value)) => vec![T::narrow(value)],
        Ok(Loss::Rows(values)) => values.into_iter().map(T::narrow).collect(),
        // Burn's tensors carry NaN on; the gradient of the row at fault is NaN already.
        Err(Error::Score { .. }) => {
            vec![T::NAN; if spec.reduction == Reduction::None { rows.iter().product() } else { 1 }]
        }
        Err(error) => fail(NAME, &error.to_string()),
    };
    let loss = TensorData::new(values, if spec.reduction == Reduction::None { rows } else { vec![1] });
    let empty = if with_gradient { shape } else { vec![0] };
    (loss, TensorData::new(gradient, empty))
}

/// Checks that the mapping has the loss and that the parameters are in range.
pub(super) fn check(spec: &LossSpec) -> Result<()> {
    struct Nothing;
    impl Work for Nothing {
        type Result = ();
        fn with<R: RowLoss>(self, _: BatchLoss<'_, R>) -> Result<()> {
            Ok(())
        }
    }
    with_loss(spec, Nothing)
}

/// What is done with a loss, whichever it is.
trait Work {
    type Result;
    fn with<R: RowLoss>(self, loss: BatchLoss<'_, R>) -> Result<Self::Result>;
}

struct Call<'a, T> {
    spec: &'a LossSpec,
    z: View<'a, T>,
    target: Target<'a, T>,
    out: Option<ViewMut<'a, T>>,
}

impl<T: Float> Work for Call<'_, T> {
    type Result = Loss;

    fn with<R: RowLoss>(self, loss: BatchLoss<'_, R>) -> Result<Loss> {
        let loss = loss.axis(self.spec.axis as isize).reduction(self.spec.reduction);
        match self.out {
            Some(out) => loss.loss_and_gradient(self.z, self.target, out),
            None => loss.value(self.z, self.target),
        }
    }
}

/// Builds the loss of the specification and works with it.
fn with_loss<W: Work>(spec: &LossSpec, work: W) -> Result<W::Result> {
    match (spec.kind, &spec.normalizer) {
        (LossKind::FenchelYoung, normalizer) => {
            let mapping = normalizer.build()?;
            let regularized = mapping.regularized().ok_or(Error::Unsupported {
                operation: normalizer.name(),
                what: "the mapping has no Fenchel-Young loss; it comes from no regulariser",
            })?;
            work.with(treated(FenchelYoung::new(regularized), spec)?)
        }
        (LossKind::PerturbedLog { epsilon }, normalizer) => {
            let mapping = normalizer.build()?;
            work.with(treated(PerturbedLog::new(&mapping, epsilon)?, spec)?)
        }
        (LossKind::Likelihood, NormalizerConfig::Softmax { gamma }) => {
            work.with(treated(Likelihood::new(&Softmax::new().with_gamma(*gamma)?), spec)?)
        }
        (LossKind::Likelihood, NormalizerConfig::EvSoftmax { eps, gamma }) => {
            let mapping = EvSoftmax::new().with_eps(*eps)?.with_gamma(*gamma)?;
            work.with(treated(Likelihood::new(&mapping), spec)?)
        }
        (LossKind::Likelihood, other) => Err(Error::Unsupported {
            operation: other.name(),
            what: "only softmax and ev-softmax have a likelihood; take a Fenchel-Young or a perturbed log loss",
        }),
    }
}

/// The treatment of targets, which all losses share.
fn treated<'a, R: RowLoss>(loss: BatchLoss<'a, R>, spec: &'a LossSpec) -> Result<BatchLoss<'a, R>> {
    let loss = loss.label_smoothing(spec.label_smoothing)?.ignore_index(spec.ignore_index);
    match &spec.class_weights {
        Some(weights) => loss.class_weights(weights),
        None => Ok(loss),
    }
}

/// The backward pass: the gradient is there already.
#[derive(Debug)]
struct LossBackward;

#[derive(Debug, Clone)]
struct Kept<B: Backend> {
    gradient: FloatTensor<B>,
    axis: usize,
}

impl<B: LossOps, const N: usize> Backward<B, N> for LossBackward {
    type State = Kept<B>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _: &mut Checkpointer) {
        let arriving = grads.consume::<B>(&ops.node);
        let mut parents = ops.parents.into_iter();
        let scores = parents.next().flatten();
        if parents.next().flatten().is_some() {
            fail(NAME, "Soft targets receive no gradient; detach them.");
        }
        if let Some(parent) = scores {
            let Kept { gradient, axis } = ops.state;
            grads.register::<B>(parent.id, B::scale_gradient(gradient, arriving, axis));
        }
    }
}

impl<B: LossOps, C: CheckpointStrategy> LossOps for Autodiff<B, C> {
    fn loss(scores: FloatTensor<Self>, target: TargetInput<Self>, spec: LossSpec) -> FloatTensor<Self> {
        macro_rules! tracked {
            ($nodes:expr, $z:expr, $target:expr) => {
                match LossBackward.prepare::<C>($nodes).compute_bound().stateful() {
                    OpsKind::Tracked(prep) => {
                        let axis = spec.axis;
                        let (loss, gradient) = B::loss_with_gradient($z, $target, spec);
                        prep.finish(Kept { gradient, axis }, loss)
                    }
                    OpsKind::UnTracked(prep) => prep.finish(B::loss($z, $target, spec)),
                }
            };
        }
        let (z, node) = scores.into_parts();
        match target {
            TargetInput::Classes(y) => tracked!([node], z, TargetInput::Classes(y)),
            TargetInput::Soft(y) => {
                let (y, target) = y.into_parts();
                tracked!([node, target], z, TargetInput::Soft(y))
            }
        }
    }

    fn loss_with_gradient(
        scores: FloatTensor<Self>,
        target: TargetInput<Self>,
        spec: LossSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let target = match target {
            TargetInput::Classes(y) => TargetInput::Classes(y),
            TargetInput::Soft(y) => TargetInput::Soft(y.into_parts().0),
        };
        let (z, node) = scores.into_parts();
        match Backward::<B, 1>::prepare::<C>(LossBackward, [node]).compute_bound().stateful() {
            OpsKind::Tracked(_) => fail(NAME, "The second derivative of a loss is not implemented."),
            OpsKind::UnTracked(_) => {
                let (loss, gradient) = B::loss_with_gradient(z, target, spec);
                (Self::from_inner(loss), Self::from_inner(gradient))
            }
        }
    }
}
