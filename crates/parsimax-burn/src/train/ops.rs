//! Elementwise work over whole parameters, in one pass and on all threads.

use crate::panics::fail;
#[cfg(feature = "ndarray")]
use burn::backend::NdArray;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension};
use burn::tensor::{DType, Tensor, TensorData, read_sync};
use rayon::prelude::*;

/// The numbers of one step of Adam.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// Decay of the mean of the gradients.
    pub beta_1: f32,
    /// Decay of the mean of their squares.
    pub beta_2: f32,
    /// Added to the root.
    pub epsilon: f32,
    /// Learning rate, divided by the correction of the first mean, `1 − β₁ᵗ`.
    pub rate: f32,
    /// The root of the correction of the second mean, `√(1 − β₂ᵗ)`.
    pub root: f32,
    /// What is taken off each parameter, as a share of it.
    pub decay: f32,
}

impl AdamStep {
    fn apply(self, parameter: &mut [f32], gradient: &[f32], mean: &mut [f32], square: &mut [f32]) {
        let AdamStep { beta_1, beta_2, epsilon, rate, root, decay } = self;
        for (((p, g), m), v) in parameter.iter_mut().zip(gradient).zip(mean).zip(square) {
            *m = beta_1 * *m + (1.0 - beta_1) * g;
            *v = beta_2 * *v + (1.0 - beta_2) * g * g;
            *p -= decay * *p + rate * *m / (v.sqrt() / root + epsilon);
        }
    }
}

/// Floats that a thread takes at a time.
const CHUNK: usize = 1 << 15;

/// Passes over whole parameters as operations of a backend. The bodies here go through host memory and
/// are right for any backend; Flex works in place.
#[backend_extension(Autodiff, Flex, NdArray: cfg(feature = "ndarray"))]
pub trait TrainOps: Backend {
    /// A step of Adam: the new parameter and the two means.
    fn adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        step: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let (device, dtype, shape) = (parameter.device(), parameter.dtype(), parameter.shape());
        let [mut p, g, mut m, mut v] = [parameter, gradient, mean, square].map(host::<Self>);
        step.apply(&mut p, &g, &mut m, &mut v);
        let tensor = |data| Self::float_from_data(TensorData::new(data, shape.clone()).convert_dtype(dtype), &device);
        (tensor(p), tensor(m), tensor(v))
    }

    /// The sum of two gradients.
    fn add_gradients(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        Self::float_add(a, b)
    }
}

fn host<B: Backend>(tensor: FloatTensor<B>) -> Vec<f32> {
    match read_sync(B::float_into_data(tensor)) {
        Ok(data) => data.convert::<f32>().try_to_vec().expect("numbers of the type just converted to"),
        Err(error) => fail("train", &format!("The tensor could not be read: {error:?}.")),
    }
}

/// A tensor whose memory is its own, in row-major order and single precision.
fn own(tensor: FloatTensor<Flex>) -> FloatTensor<Flex> {
    let mut tensor = tensor.to_contiguous();
    if tensor.dtype() == DType::F32
        && tensor.as_slice::<f32>().map(<[f32]>::len) == Some(tensor.storage::<f32>().len())
        && tensor.try_storage_mut::<f32>().is_some()
    {
        return tensor;
    }
    let shape = tensor.shape();
    let data = match tensor.as_slice::<f32>() {
        Some(slice) => slice.to_vec(),
        None => host::<Flex>(tensor),
    };
    Flex::float_from_data(TensorData::new(data, shape), &Default::default())
}

impl TrainOps for Flex {
    fn adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        square: FloatTensor<Self>,
        step: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        let dtype = parameter.dtype();
        let (mut p, mut m, mut v) = (own(parameter), own(mean), own(square));
        let g = own(gradient);
        {
            let chunks = p.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(g.storage::<f32>().par_chunks(CHUNK));
            let means = m.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(v.storage_mut::<f32>().par_chunks_mut(CHUNK));
            chunks.zip(means).for_each(|((p, g), (m, v))| step.apply(p, g, m, v));
        }
        if dtype != DType::F32 {
            p = Self::float_cast(p, dtype.into());
        }
        (p, m, v)
    }

    fn add_gradients(a: FloatTensor<Self>, b: FloatTensor<Self>) -> FloatTensor<Self> {
        if a.dtype() != DType::F32 || b.dtype() != DType::F32 || a.shape() != b.shape() {
            return Self::float_add(a, b);
        }
        let (mut a, b) = (own(a), b.to_contiguous());
        let right = b.as_slice::<f32>().expect("contiguous single precision");
        let chunks = a.storage_mut::<f32>().par_chunks_mut(CHUNK).zip(right.par_chunks(CHUNK));
        chunks.for_each(|(a, b)| a.iter_mut().zip(b).for_each(|(a, b)| *a += b));
        a
    }
}

#[cfg(feature = "ndarray")]
impl TrainOps for NdArray {}

/// Optimisers run without a graph.
impl<B: TrainOps, C: CheckpointStrategy> TrainOps for Autodiff<B, C> {
    fn adam(
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: FloatTensor<Self>,
        _: AdamStep,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>) {
        fail("adam", "An optimiser's step has no gradient; give it inner tensors.")
    }
}

/// A step of Adam on tensors.
pub(crate) fn adam<const D: usize>(tensors: [Tensor<D>; 4], step: AdamStep) -> [Tensor<D>; 3] {
    let [p, g, m, v] = tensors.map(Tensor::into_dispatch);
    let (p, m, v) = <Dispatch as TrainOps>::adam(p, g, m, v, step);
    [p, m, v].map(Tensor::from_dispatch)
}

/// The sum of two gradients.
pub(crate) fn add<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as TrainOps>::add_gradients(a.into_dispatch(), b.into_dispatch()))
}
