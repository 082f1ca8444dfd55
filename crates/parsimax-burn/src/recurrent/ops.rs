//! The operation behind the recurrent layers, and its backward pass.

use super::sequence::{self, Gradient, Layer, Saved, Wanted};
use super::weights::{self, Packs, Weights};
use crate::panics::fail;
#[cfg(feature = "ndarray")]
use burn::backend::NdArray;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Tensor, TensorData, read_sync};
use parsimax::kernel::cells::Cell;
use std::sync::{Arc, Mutex};

const NAME: &str = "recurrent";

/// What a layer is besides its tensors.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    pub(crate) cell: Cell,
    pub(crate) directions: usize,
    /// Whether the last states follow the outputs.
    pub(crate) states: bool,
    /// The length of each row.
    pub(crate) lengths: Arc<Vec<usize>>,
    /// The weights as the products want them.
    pub(crate) packs: Arc<Packs>,
    /// Where the forward pass leaves what the backward pass needs.
    tape: Option<Arc<Mutex<Option<Saved>>>>,
    /// Which gradients are wanted.
    wanted: Wanted,
}

impl LayerSpec {
    pub(crate) fn new(
        cell: Cell,
        directions: usize,
        states: bool,
        lengths: Arc<Vec<usize>>,
        packs: Arc<Packs>,
    ) -> LayerSpec {
        let wanted = Wanted { input: true, state: true, weights: true };
        LayerSpec { cell, directions, states, lengths, packs, tape: None, wanted }
    }

    /// The sizes, read off the shapes.
    fn layer(&self, x: &[usize], bias: usize) -> Layer {
        Layer {
            cell: self.cell,
            input: x[2],
            hidden: bias / (self.directions * weights::gates(self.cell)),
            directions: self.directions,
            time: x[1],
            states: self.states,
        }
    }
}

/// The tensors of a layer: input, state, and the four of the weights.
type Inputs<B> = [FloatTensor<B>; 6];

/// The recurrent layers as operations of a backend. The bodies here go through host memory and are
/// right for any backend; Flex has its own.
#[backend_extension(Autodiff, Flex, NdArray: cfg(feature = "ndarray"))]
pub trait RecurrentOps: Backend {
    /// A layer over whole sequences: `[batch, time, input]` to `[batch, time (+ states), directions · hidden]`.
    fn recurrent(
        x: FloatTensor<Self>,
        state: FloatTensor<Self>,
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        bias_input: FloatTensor<Self>,
        bias_hidden: FloatTensor<Self>,
        spec: LayerSpec,
    ) -> FloatTensor<Self> {
        let (device, dtype) = (x.device(), x.dtype());
        let shape = x.shape().to_vec();
        let data = [x, state, input, hidden, bias_input, bias_hidden].map(host::<Self>);
        let (out, shape) = forward(&shape, data.each_ref().map(Vec::as_slice), &spec);
        Self::float_from_data(TensorData::new(out, shape).convert_dtype(dtype), &device)
    }

    /// The gradients of all tensors of [`recurrent`](RecurrentOps::recurrent); those not wanted are empty.
    #[allow(clippy::too_many_arguments, clippy::type_complexity)]
    fn recurrent_vjp(
        x: FloatTensor<Self>,
        state: FloatTensor<Self>,
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        bias_input: FloatTensor<Self>,
        bias_hidden: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        spec: LayerSpec,
    ) -> (
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
        FloatTensor<Self>,
    ) {
        let (device, dtype) = (x.device(), x.dtype());
        let inputs = [x, state, input, hidden, bias_input, bias_hidden];
        let shapes = inputs.each_ref().map(|tensor| tensor.shape().to_vec());
        let data = inputs.map(host::<Self>);
        let slopes = backward(&shapes[0], data.each_ref().map(Vec::as_slice), &host::<Self>(gradient), &spec);
        let tensor = |(data, shape): (Vec<f32>, Vec<usize>)| {
            Self::float_from_data(fitting(data, shape).convert_dtype(dtype), &device)
        };
        tuple(pairs(slopes, shapes).map(tensor))
    }
}

type FloatTuple<B> = (FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>, FloatTensor<B>);

fn tuple<T>([a, b, c, d, e, f]: [T; 6]) -> (T, T, T, T, T, T) {
    (a, b, c, d, e, f)
}

fn pairs(slopes: [Vec<f32>; 6], shapes: [Vec<usize>; 6]) -> [(Vec<f32>, Vec<usize>); 6] {
    let mut shapes = shapes.into_iter();
    slopes.map(|slope| (slope, shapes.next().unwrap_or_default()))
}

/// Data of the shape, or nothing where nothing was wanted.
fn fitting(data: Vec<f32>, shape: Vec<usize>) -> TensorData {
    if data.len() == shape.iter().product::<usize>() {
        TensorData::new(data, shape)
    } else {
        TensorData::new(data, [0])
    }
}

/// The contents of a tensor as single-precision numbers, which the kernels compute in.
fn host<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    match read_sync(B::float_into_data(tensor)) {
        Ok(data) => data.convert::<f32>().try_to_vec().expect("numbers of the type just converted to"),
        Err(error) => fail(NAME, &format!("The tensor could not be read: {error:?}.")),
    }
}

fn parts<'a>([_, _, input, hidden, bias_input, bias_hidden]: [&'a [f32]; 6]) -> Weights<'a> {
    Weights { input, hidden, bias_input, bias_hidden }
}

/// The output and its shape.
fn forward(shape: &[usize], data: [&[f32]; 6], spec: &LayerSpec) -> (Vec<f32>, Vec<usize>) {
    let layer = spec.layer(shape, data[4].len());
    let (out, saved) = sequence::forward(&layer, data[0], data[1], parts(data), &spec.packs, &spec.lengths);
    if let Some(tape) = &spec.tape {
        *tape.lock().expect("nobody panics with the tape in hand") = Some(saved);
    }
    (out, vec![shape[0], layer.output_lines(), layer.directions * layer.hidden])
}

/// The six gradients.
fn backward(shape: &[usize], data: [&[f32]; 6], gradient: &[f32], spec: &LayerSpec) -> [Vec<f32>; 6] {
    let layer = spec.layer(shape, data[4].len());
    let tape = spec.tape.as_ref().unwrap_or_else(|| fail(NAME, "The backward pass follows a forward pass."));
    let saved = tape.lock().expect("nobody panics with the tape in hand").take();
    // The graph is used up by a backward pass; should it run twice, the trace is made again.
    let saved =
        saved.unwrap_or_else(|| sequence::forward(&layer, data[0], data[1], parts(data), &spec.packs, &spec.lengths).1);
    let slopes = (data[0], data[1], gradient);
    let Gradient { input, state, weights } =
        sequence::backward(&layer, slopes, parts(data), &spec.packs, saved, spec.wanted);
    let [a, b, c, d] = weights;
    [input, state, a, b, c, d]
}

/// Runs with the tensors' own memory where they are single precision; strided ones are copied.
fn with_slices<R>(inputs: &Inputs<Flex>, body: impl FnOnce([&[f32]; 6]) -> R) -> R {
    let contiguous = inputs.each_ref().map(|tensor| tensor.to_contiguous());
    if contiguous.iter().all(|tensor| tensor.dtype() == DType::F32) {
        body(contiguous.each_ref().map(|tensor| tensor.as_slice::<f32>().expect("contiguous single precision")))
    } else {
        let data = contiguous.map(host::<Flex>);
        body(data.each_ref().map(Vec::as_slice))
    }
}

impl RecurrentOps for Flex {
    fn recurrent(
        x: FloatTensor<Self>,
        state: FloatTensor<Self>,
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        bias_input: FloatTensor<Self>,
        bias_hidden: FloatTensor<Self>,
        spec: LayerSpec,
    ) -> FloatTensor<Self> {
        let (dtype, shape) = (x.dtype(), x.shape().to_vec());
        let inputs = [x, state, input, hidden, bias_input, bias_hidden];
        let (out, shape) = with_slices(&inputs, |data| forward(&shape, data, &spec));
        Self::float_from_data(typed(TensorData::new(out, shape), dtype), &Default::default())
    }

    fn recurrent_vjp(
        x: FloatTensor<Self>,
        state: FloatTensor<Self>,
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        bias_input: FloatTensor<Self>,
        bias_hidden: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        spec: LayerSpec,
    ) -> FloatTuple<Self> {
        let dtype = x.dtype();
        let inputs = [x, state, input, hidden, bias_input, bias_hidden];
        let shapes = inputs.each_ref().map(|tensor| tensor.shape().to_vec());
        let gradient = gradient.to_contiguous();
        let slopes = with_slices(&inputs, |data| match gradient.as_slice::<f32>() {
            Some(slice) if dtype == DType::F32 => backward(&shapes[0], data, slice, &spec),
            _ => backward(&shapes[0], data, &host::<Flex>(gradient.clone()), &spec),
        });
        let tensor = |(data, shape): (Vec<f32>, Vec<usize>)| {
            Self::float_from_data(typed(fitting(data, shape), dtype), &Default::default())
        };
        tuple(pairs(slopes, shapes).map(tensor))
    }
}

/// The data in a number type; the memory moves where it has that type already.
fn typed(data: TensorData, dtype: DType) -> TensorData {
    if dtype == DType::F32 { data } else { data.convert_dtype(dtype) }
}

#[cfg(feature = "ndarray")]
impl RecurrentOps for NdArray {}

#[derive(Debug)]
struct RecurrentBackward;

impl<B: RecurrentOps> Backward<B, 6> for RecurrentBackward {
    type State = (Inputs<B>, LayerSpec);

    fn backward(self, ops: Ops<Self::State, 6>, grads: &mut Gradients, _: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let ([x, state, input, hidden, bias_input, bias_hidden], mut spec) = ops.state;
        let tracked = ops.parents.each_ref().map(Option::is_some);
        spec.wanted = Wanted { input: tracked[0], state: tracked[1], weights: tracked[2..].contains(&true) };
        let (a, b, c, d, e, f) = B::recurrent_vjp(x, state, input, hidden, bias_input, bias_hidden, gradient, spec);
        for (parent, slope) in ops.parents.into_iter().zip([a, b, c, d, e, f]) {
            if let Some(parent) = parent {
                grads.register::<B>(parent.id, slope);
            }
        }
    }
}

impl<B: RecurrentOps, C: CheckpointStrategy> RecurrentOps for Autodiff<B, C> {
    fn recurrent(
        x: FloatTensor<Self>,
        state: FloatTensor<Self>,
        input: FloatTensor<Self>,
        hidden: FloatTensor<Self>,
        bias_input: FloatTensor<Self>,
        bias_hidden: FloatTensor<Self>,
        mut spec: LayerSpec,
    ) -> FloatTensor<Self> {
        let ((x, n0), (s, n1), (i, n2)) = (x.into_parts(), state.into_parts(), input.into_parts());
        let ((h, n3), (bi, n4), (bh, n5)) = (hidden.into_parts(), bias_input.into_parts(), bias_hidden.into_parts());
        match RecurrentBackward.prepare::<C>([n0, n1, n2, n3, n4, n5]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                spec.tape = Some(Arc::default());
                let kept = [x.clone(), s.clone(), i.clone(), h.clone(), bi.clone(), bh.clone()];
                let out = B::recurrent(x, s, i, h, bi, bh, spec.clone());
                prep.finish((kept, spec), out)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::recurrent(x, s, i, h, bi, bh, spec)),
        }
    }

    fn recurrent_vjp(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: LayerSpec,
    ) -> FloatTuple<Self> {
        fail(
            NAME,
            "The second derivative of a recurrent layer is not implemented; detach the gradient before using it.",
        )
    }
}

/// Runs the operation on tensors.
pub(crate) fn run(
    x: Tensor<3>,
    state: Tensor<3>,
    weights: [Tensor<2>; 2],
    biases: [Tensor<1>; 2],
    spec: LayerSpec,
) -> Tensor<3> {
    let ([input, hidden], [bias_input, bias_hidden]) = (weights, biases);
    Tensor::from_dispatch(<Dispatch as RecurrentOps>::recurrent(
        x.into_dispatch(),
        state.into_dispatch(),
        input.into_dispatch(),
        hidden.into_dispatch(),
        bias_input.into_dispatch(),
        bias_hidden.into_dispatch(),
        spec,
    ))
}
