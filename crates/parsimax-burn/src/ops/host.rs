//! The operations through host memory: right for any backend, whatever its tensors are.

use super::batch::{Batch, MapSpec, Mappings, MaskArray};
use super::{MappingOps, MaskInput};
use crate::panics::fail;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, Element, TensorData, bf16, f16, read_sync};
use parsimax::{Float, View};

/// The contents of a tensor, in row-major order.
pub(crate) fn read<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    match read_sync(B::float_into_data(tensor)) {
        Ok(data) => data,
        Err(error) => fail("read", &format!("The tensor could not be read: {error:?}.")),
    }
}

/// The contents of a tensor of any number type.
pub(crate) fn numbers<B: Backend>(tensor: FloatTensor<B>) -> Vec<f64> {
    read::<B>(tensor).convert::<f64>().try_to_vec().expect("numbers of the type just converted to")
}

/// A tensor of parameters from its values, in the number type and on the device of `like`.
pub(crate) fn parameter_like<B: Backend>(values: Vec<f64>, like: &FloatTensor<B>) -> FloatTensor<B> {
    let data = TensorData::new(values, like.shape()).convert_dtype(like.dtype());
    B::float_from_data(data, &like.device())
}

/// The contents of a mask.
pub(crate) fn mask<B: Backend>(mask: MaskInput<B>) -> Option<MaskArray> {
    let MaskInput::Present(mask) = mask else { return None };
    let shape = mask.shape().to_vec();
    let data = read_sync(B::bool_into_data(mask)).expect("a mask that can be read");
    Some(MaskArray::contiguous(data.iter::<bool>().collect(), shape))
}

/// Runs a generic expression for the number type of a tensor.
macro_rules! for_type {
    ($operation:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            other => fail($operation, &format!("The scores must be of type f64, f32, f16 or bf16, not {other:?}.")),
        }
    };
}
pub(crate) use for_type;

/// The contents as an array of the core.
pub(crate) fn view<T: Float + Element>(data: &TensorData) -> View<'_, T> {
    let slice = data.as_slice::<T>().unwrap_or_else(|error| fail("read", &format!("{error:?}")));
    View::new(slice, data.shape()).expect("a tensor holds as many numbers as its shape says")
}

pub(super) fn map<B: MappingOps>(scores: FloatTensor<B>, mask: MaskInput<B>, spec: MapSpec) -> FloatTensor<B> {
    let batch = Batch { spec: &spec, mappings: Mappings::one(&spec), mask: self::mask(mask) };
    let (device, z) = (scores.device(), read::<B>(scores));
    let p = for_type!(spec.normalizer.name(), z.dtype(), T => batch.forward(view::<T>(&z)));
    B::float_from_data(p, &device)
}

pub(super) fn map_with<B: MappingOps>(
    scores: FloatTensor<B>,
    parameter: FloatTensor<B>,
    mask: MaskInput<B>,
    spec: MapSpec,
) -> FloatTensor<B> {
    let batch = Batch { spec: &spec, mappings: by_parameter::<B>(&spec, parameter, &scores), mask: self::mask(mask) };
    let (device, z) = (scores.device(), read::<B>(scores));
    let p = for_type!(spec.normalizer.name(), z.dtype(), T => batch.forward(view::<T>(&z)));
    B::float_from_data(p, &device)
}

pub(super) fn map_vjp<B: MappingOps>(
    scores: FloatTensor<B>,
    probabilities: FloatTensor<B>,
    gradient: FloatTensor<B>,
    mask: MaskInput<B>,
    spec: MapSpec,
) -> FloatTensor<B> {
    let batch = Batch { spec: &spec, mappings: Mappings::one(&spec), mask: self::mask(mask) };
    let device = probabilities.device();
    let (z, p, v) = (read::<B>(scores), read::<B>(probabilities), read::<B>(gradient));
    let out = for_type!(spec.normalizer.name(), z.dtype(), T => batch.vjp::<T>(view(&z), view(&p), view(&v)));
    B::float_from_data(out, &device)
}

pub(super) fn map_with_vjp<B: MappingOps>(
    scores: FloatTensor<B>,
    probabilities: FloatTensor<B>,
    gradient: FloatTensor<B>,
    parameter: FloatTensor<B>,
    mask: MaskInput<B>,
    spec: MapSpec,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let mappings = by_parameter::<B>(&spec, parameter.clone(), &probabilities);
    let batch = Batch { spec: &spec, mappings, mask: self::mask(mask) };
    let (device, entries) = (probabilities.device(), parameter.shape().num_elements());
    let (z, p, v) = (read::<B>(scores), read::<B>(probabilities), read::<B>(gradient));
    let (out, slopes) = for_type!(spec.normalizer.name(), z.dtype(), T => {
        batch.vjp_with_parameter::<T>(view(&z), view(&p), view(&v), entries)
    });
    (B::float_from_data(out, &device), parameter_like::<B>(slopes, &parameter))
}

/// The mappings of a parameter tensor.
pub(super) fn by_parameter<B: Backend>(spec: &MapSpec, parameter: FloatTensor<B>, scores: &FloatTensor<B>) -> Mappings {
    let shape = parameter.shape().to_vec();
    Mappings::by_parameter(spec, &numbers::<B>(parameter), &shape, &scores.shape().to_vec())
}
