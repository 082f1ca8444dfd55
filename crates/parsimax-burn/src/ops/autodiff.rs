//! The backward passes of the operations.

use super::batch::MapSpec;
use super::{MappingOps, MaskInput};
use crate::panics::fail;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Autodiff, AutodiffBackend, Backend, TensorMetadata};
use burn::tensor::DType;

/// What a forward pass leaves to its backward pass.
#[derive(Debug, Clone)]
struct Saved<B: Backend> {
    /// Absent where the Jacobian is a function of the probabilities.
    scores: Option<FloatTensor<B>>,
    probabilities: FloatTensor<B>,
    mask: Option<BoolTensor<B>>,
    spec: MapSpec,
}

impl<B: Backend> Saved<B> {
    fn mask(&self) -> MaskInput<B> {
        self.mask.clone().map_or(MaskInput::Absent, MaskInput::Present)
    }

    /// The scores, or something of their shape where nobody reads them.
    fn scores(&self) -> FloatTensor<B> {
        self.scores.clone().unwrap_or_else(|| self.probabilities.clone())
    }
}

/// The mask for the backend below.
fn inner<B: Backend, C: CheckpointStrategy>(mask: MaskInput<Autodiff<B, C>>) -> Option<BoolTensor<B>> {
    match mask {
        MaskInput::Absent => None,
        MaskInput::Present(mask) => Some(mask),
    }
}

fn input<B: Backend>(mask: Option<BoolTensor<B>>) -> MaskInput<B> {
    mask.map_or(MaskInput::Absent, MaskInput::Present)
}

#[derive(Debug)]
struct MapBackward;

impl<B: MappingOps> Backward<B, 1> for MapBackward {
    type State = Saved<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let [Some(parent)] = ops.parents else { return };
        let saved = ops.state;
        let (scores, mask) = (saved.scores(), saved.mask());
        grads.register::<B>(parent.id, B::map_vjp(scores, saved.probabilities, gradient, mask, saved.spec));
    }
}

#[derive(Debug)]
struct MapWithBackward;

impl<B: MappingOps> Backward<B, 2> for MapWithBackward {
    type State = (Saved<B>, FloatTensor<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let [scores, parameter] = ops.parents;
        let (saved, values) = ops.state;
        let (z, mask) = (saved.scores(), saved.mask());
        let (dz, da) = B::map_with_vjp(z, saved.probabilities, gradient, values, mask, saved.spec);
        if let Some(parent) = scores {
            grads.register::<B>(parent.id, dz);
        }
        if let Some(parent) = parameter {
            grads.register::<B>(parent.id, da);
        }
    }
}

/// Stands in for the backward pass of a backward pass, which does not exist.
#[derive(Debug)]
struct SecondOrder;

impl<B: Backend, const N: usize> Backward<B, N> for SecondOrder {
    type State = ();

    fn backward(self, _: Ops<(), N>, _: &mut Gradients, _: &mut Checkpointer) {
        no_second_order("the mappings");
    }
}

fn no_second_order(name: &str) -> ! {
    fail(name, "The second derivative of a mapping is not implemented; detach the gradient before using it.")
}

impl<B: MappingOps, C: CheckpointStrategy> MappingOps for Autodiff<B, C> {
    fn map(scores: FloatTensor<Self>, mask: MaskInput<Self>, spec: MapSpec) -> FloatTensor<Self> {
        let ((z, node), mask) = (scores.into_parts(), inner(mask));
        match MapBackward.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let forget = z.dtype() == DType::F32 && spec.normalizer.forgets_scores();
                let scores = (!forget).then(|| z.clone());
                let probabilities = B::map(z, input(mask.clone()), spec.clone());
                let mask = mask.filter(|_| !forget);
                prep.finish(Saved { scores, probabilities: probabilities.clone(), mask, spec }, probabilities)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::map(z, input(mask), spec)),
        }
    }

    fn map_with(
        scores: FloatTensor<Self>,
        parameter: FloatTensor<Self>,
        mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> FloatTensor<Self> {
        let ((z, nz), (a, na), mask) = (scores.into_parts(), parameter.into_parts(), inner(mask));
        match MapWithBackward.prepare::<C>([nz, na]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                // The gradient in α is taken from differences of scores: p alone has lost them near ties.
                let scores = Some(z.clone());
                let probabilities = B::map_with(z, a.clone(), input(mask.clone()), spec.clone());
                let saved = Saved { scores, probabilities: probabilities.clone(), mask, spec };
                prep.finish((saved, a), probabilities)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::map_with(z, a, input(mask), spec)),
        }
    }

    fn map_vjp(
        scores: FloatTensor<Self>,
        probabilities: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> FloatTensor<Self> {
        let ((z, nz), (p, np), (v, nv)) = (scores.into_parts(), probabilities.into_parts(), gradient.into_parts());
        match Backward::<B, 3>::prepare::<C>(SecondOrder, [nz, np, nv]).compute_bound().stateful() {
            OpsKind::Tracked(_) => no_second_order(spec.normalizer.name()),
            OpsKind::UnTracked(prep) => prep.finish(B::map_vjp(z, p, v, input(inner(mask)), spec)),
        }
    }

    fn map_with_vjp(
        scores: FloatTensor<Self>,
        probabilities: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        parameter: FloatTensor<Self>,
        mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let ((z, nz), (p, np)) = (scores.into_parts(), probabilities.into_parts());
        let ((v, nv), (a, na)) = (gradient.into_parts(), parameter.into_parts());
        match Backward::<B, 4>::prepare::<C>(SecondOrder, [nz, np, nv, na]).compute_bound().stateful() {
            OpsKind::Tracked(_) => no_second_order(spec.normalizer.name()),
            OpsKind::UnTracked(_) => {
                let (dz, da) = B::map_with_vjp(z, p, v, a, input(inner(mask)), spec);
                (Self::from_inner(dz), Self::from_inner(da))
            }
        }
    }
}
