//! The operations on the flex backend: the core reads the tensors where they lie, whatever their strides, and
//! the memory it wrote becomes the next tensor.

use super::batch::{Batch, MapSpec, Mappings, MaskArray};
use super::host::{by_parameter, for_type, parameter_like};
use super::{MappingOps, MaskInput};
use crate::panics::{fail, or_fail};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Flex, TensorMetadata};
use burn::tensor::{DType, TensorData, bf16, f16};
use parsimax::View;

type Floats = FloatTensor<Flex>;

/// A tensor as an array of the core, without a copy.
macro_rules! view {
    ($tensor:expr, $T:ty) => {{
        let layout = $tensor.layout();
        or_fail("flex", View::strided($tensor.storage::<$T>(), layout.shape(), layout.strides(), layout.start_offset()))
    }};
}

/// A tensor of the data, whose memory moves.
pub(crate) fn tensor(data: TensorData) -> Floats {
    Flex::float_from_data(data, &Default::default())
}

/// A mask at its own size: flex keeps truth values as bytes.
pub(crate) fn mask(mask: MaskInput<Flex>) -> Option<MaskArray> {
    let MaskInput::Present(mask) = mask else { return None };
    let layout = mask.layout();
    let data = mask.storage::<u8>().iter().map(|byte| *byte != 0).collect();
    let (shape, strides) = (layout.shape().to_vec(), layout.strides().to_vec());
    Some(MaskArray { data, shape, strides, offset: layout.start_offset() })
}

/// Two tensors of one call must be of one number type.
fn same_type(operation: &str, tensors: [&Floats; 3]) -> DType {
    let types = tensors.map(|tensor| tensor.dtype());
    if types.iter().any(|dtype| *dtype != types[0]) {
        fail(operation, &format!("Scores, probabilities and gradient must be of one type; they are {types:?}."));
    }
    types[0]
}

impl MappingOps for Flex {
    fn map(scores: Floats, mask: MaskInput<Self>, spec: MapSpec) -> Floats {
        let batch = Batch { spec: &spec, mappings: Mappings::one(&spec), mask: self::mask(mask) };
        tensor(for_type!(spec.normalizer.name(), scores.dtype(), T => batch.forward(view!(scores, T))))
    }

    fn map_with(scores: Floats, parameter: Floats, mask: MaskInput<Self>, spec: MapSpec) -> Floats {
        let mappings = by_parameter::<Self>(&spec, parameter, &scores);
        let batch = Batch { spec: &spec, mappings, mask: self::mask(mask) };
        tensor(for_type!(spec.normalizer.name(), scores.dtype(), T => batch.forward(view!(scores, T))))
    }

    fn map_vjp(scores: Floats, p: Floats, gradient: Floats, mask: MaskInput<Self>, spec: MapSpec) -> Floats {
        let name = spec.normalizer.name();
        let batch = Batch { spec: &spec, mappings: Mappings::one(&spec), mask: self::mask(mask) };
        tensor(for_type!(name, same_type(name, [&scores, &p, &gradient]), T => {
            batch.vjp::<T>(view!(scores, T), view!(p, T), view!(gradient, T))
        }))
    }

    fn map_with_vjp(
        scores: Floats,
        p: Floats,
        gradient: Floats,
        parameter: Floats,
        mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> (Floats, Floats) {
        let name = spec.normalizer.name();
        let mappings = by_parameter::<Self>(&spec, parameter.clone(), &p);
        let batch = Batch { spec: &spec, mappings, mask: self::mask(mask) };
        let entries = parameter.shape().num_elements();
        let (out, slopes) = for_type!(name, same_type(name, [&scores, &p, &gradient]), T => {
            batch.vjp_with_parameter::<T>(view!(scores, T), view!(p, T), view!(gradient, T), entries)
        });
        (tensor(out), parameter_like::<Self>(slopes, &parameter))
    }
}
