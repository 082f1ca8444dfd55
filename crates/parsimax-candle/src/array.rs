//! Tensors of candle as arrays of the core, and back.

use crate::refuse;
use candle_core::{CpuStorage, Error, Layout, Result, Storage, Tensor};
use parsimax::{Float, View};

/// An error for tensors that live elsewhere.
pub(crate) fn on_cpu(operation: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.device().is_cpu() {
        return Ok(());
    }
    let place = tensor.device().location();
    candle_core::bail!(
        "{operation}: runs on the CPU only; the tensor is on {place:?}, move it by to_device(&Device::Cpu)"
    )
}

/// A number type that both sides know.
pub(crate) trait Number: Float + candle_core::WithDType {}
impl<T: Float + candle_core::WithDType> Number for T {}

/// Work that is generic over the number type.
pub(crate) trait Generic {
    type Output;
    fn run<T: Number>(self) -> Result<Self::Output>;
}

/// Runs `work` for the number type of a storage.
pub(crate) fn with_type<G: Generic>(operation: &'static str, storage: &CpuStorage, work: G) -> Result<G::Output> {
    match storage {
        CpuStorage::F32(_) => work.run::<f32>(),
        CpuStorage::F64(_) => work.run::<f64>(),
        CpuStorage::F16(_) => work.run::<half::f16>(),
        CpuStorage::BF16(_) => work.run::<half::bf16>(),
        _ => candle_core::bail!("{operation}: the scores must be of type f64, f32, f16 or bf16"),
    }
}

/// A storage as an array, without a copy.
pub(crate) fn view<'a, T: Number>(storage: &'a CpuStorage, layout: &Layout) -> Result<View<'a, T>> {
    let strides: Vec<isize> = layout.stride().iter().map(|&stride| stride as isize).collect();
    View::strided(storage.as_slice::<T>()?, layout.dims(), &strides, layout.start_offset()).map_err(refuse)
}

/// The memory of a tensor on the CPU.
pub(crate) fn cpu<'a>(operation: &'static str, storage: &'a Storage) -> Result<&'a CpuStorage> {
    match storage {
        Storage::Cpu(storage) => Ok(storage),
        _ => Err(Error::Msg(format!("{operation}: the gradient is not on the CPU")).bt()),
    }
}
