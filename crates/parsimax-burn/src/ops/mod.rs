//! The custom operation behind every layer: a mapping of the core, along any axis of a tensor.
//!
//! ```text
//! map ── Dispatch ──▶ Autodiff ──▶ Flex            the tensor's own memory, strided or not
//!                        │    └──▶ other backends  through host memory
//!                        └─ keeps p (and z where the Jacobian needs it) for vjp
//! ```
//!
//! The second derivative of a mapping is not implemented: Burn's dispatch has no second order, and asking for
//! it by types (`Autodiff<Autodiff<B>>`) panics with a message.

mod autodiff;
mod batch;
mod flex;
pub(crate) mod host;

pub use batch::MapSpec;

use crate::NormalizerConfig;
use crate::panics::fail;
#[cfg(feature = "ndarray")]
use burn::backend::NdArray;
use burn::backend::tensor::{BoolTensor, FloatTensor};
use burn::backend::{Backend, Dispatch, ExtensionType, backend_extension};
use burn::tensor::{Bool, Tensor};

/// A mask, or none.
#[derive(ExtensionType, Debug, Clone)]
pub enum MaskInput<B: Backend> {
    /// Every entry takes part.
    Absent,
    /// `true` where an entry takes part; its shape is that of the scores, or 1 where it is shared.
    Present(BoolTensor<B>),
}

/// The mappings of the core as operations of a backend. The bodies here go through host memory and are right
/// for any backend; Flex has its own.
#[backend_extension(Autodiff, Flex, NdArray: cfg(feature = "ndarray"))]
pub trait MappingOps: Backend {
    /// Probabilities of every row along the axis.
    fn map(scores: FloatTensor<Self>, #[extension_type] mask: MaskInput<Self>, spec: MapSpec) -> FloatTensor<Self> {
        host::map::<Self>(scores, mask, spec)
    }

    /// The same with the mapping's shape parameter from a tensor.
    fn map_with(
        scores: FloatTensor<Self>,
        parameter: FloatTensor<Self>,
        #[extension_type] mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> FloatTensor<Self> {
        host::map_with::<Self>(scores, parameter, mask, spec)
    }

    /// The gradient in the scores from that in the probabilities.
    fn map_vjp(
        scores: FloatTensor<Self>,
        probabilities: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        #[extension_type] mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> FloatTensor<Self> {
        host::map_vjp::<Self>(scores, probabilities, gradient, mask, spec)
    }

    /// The gradients in the scores and in the parameter.
    fn map_with_vjp(
        scores: FloatTensor<Self>,
        probabilities: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        parameter: FloatTensor<Self>,
        #[extension_type] mask: MaskInput<Self>,
        spec: MapSpec,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        host::map_with_vjp::<Self>(scores, probabilities, gradient, parameter, mask, spec)
    }
}

#[cfg(feature = "ndarray")]
impl MappingOps for NdArray {}

/// Probabilities of every row of `scores` along `dim`.
///
/// `mask` is `true` where an entry takes part; its shape is that of the scores, or 1 along axes that share it.
/// An entry that takes no part has probability and gradient 0, and a row without entries is a row of zeros. A
/// row that holds NaN or `+inf` becomes NaN.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use parsimax_burn::{NormalizerConfig, normalize};
/// let scores = Tensor::<2>::from_data([[1.0, 0.5, 0.0]], &Device::default());
/// let p = normalize(scores, 1, None, &NormalizerConfig::sparsemax());
/// assert_eq!(p.into_data().try_to_vec::<f32>().unwrap(), [0.75, 0.25, 0.0]);
/// ```
///
/// # Panics
/// If `dim` or the mask does not fit the scores, or a parameter of the mapping is out of range.
pub fn normalize<const D: usize>(
    scores: Tensor<D>,
    dim: usize,
    mask: Option<Tensor<D, Bool>>,
    normalizer: &NormalizerConfig,
) -> Tensor<D> {
    let spec = checked(&scores, dim, mask.as_ref(), normalizer);
    let mask = mask.map_or(MaskInput::Absent, |mask| MaskInput::Present(mask.into_dispatch()));
    Tensor::from_dispatch(<Dispatch as MappingOps>::map(scores.into_dispatch(), mask, spec))
}

/// The same with the mapping's shape parameter (α of entmax and normmax, λ of fusedmax and oscarmax, p of
/// sq-pnorm-max) from a tensor, which receives its gradient. The tensor has 1 along `dim` and, along every
/// other axis, 1 or the length of the scores: `[1, 1, 1, 1]` is one number, `[1, heads, 1, 1]` one per head,
/// `[batch, heads, queries, 1]` one per row.
///
/// # Panics
/// As [`normalize`]; also if the parameter does not fit the scores or the mapping has none.
pub fn normalize_with<const D: usize>(
    scores: Tensor<D>,
    parameter: Tensor<D>,
    dim: usize,
    mask: Option<Tensor<D, Bool>>,
    normalizer: &NormalizerConfig,
) -> Tensor<D> {
    let spec = checked(&scores, dim, mask.as_ref(), normalizer);
    let mask = mask.map_or(MaskInput::Absent, |mask| MaskInput::Present(mask.into_dispatch()));
    let (scores, parameter) = (scores.into_dispatch(), parameter.into_dispatch());
    Tensor::from_dispatch(<Dispatch as MappingOps>::map_with(scores, parameter, mask, spec))
}

/// Checks what can be checked before a backend is chosen.
fn checked<const D: usize>(
    scores: &Tensor<D>,
    dim: usize,
    mask: Option<&Tensor<D, Bool>>,
    normalizer: &NormalizerConfig,
) -> MapSpec {
    let (name, shape) = (normalizer.name(), scores.dims());
    if dim >= D {
        fail(name, &format!("The axis must be below {D} for scores of shape {shape:?}; it is {dim}."));
    }
    if let Some(mask) = mask.map(Tensor::dims)
        && !(0..D).all(|i| mask[i] == 1 || mask[i] == shape[i])
    {
        let want = "or 1 along axes that share it";
        fail(name, &format!("The mask must have the scores' shape {shape:?}, {want}; it has {mask:?}."));
    }
    MapSpec { normalizer: normalizer.clone(), axis: dim }
}

#[cfg(test)]
mod tests;
