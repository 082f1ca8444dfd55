//! Losses as operations of candle: value and gradient in one sweep.

use crate::array::{Generic, Number, view, with_type};
use crate::{Normalizer, refuse};
use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor};
use parsimax::loss::{FenchelYoung, Loss, Reduction, Target};
use parsimax::{Float, ViewMut};
use std::sync::Mutex;

struct LossOp {
    normalizer: Normalizer,
    targets: Vec<i64>,
    shape: Shape,
    ignore: Option<i64>,
    reduction: Reduction,
    /// The gradient that the forward pass found.
    slope: Mutex<Option<Tensor>>,
}

pub(crate) fn run(
    normalizer: Normalizer,
    scores: &Tensor,
    targets: &Tensor,
    ignore: Option<i64>,
    reduction: Reduction,
) -> Result<Tensor> {
    let shape = targets.shape().clone();
    let targets = targets.flatten_all()?.to_dtype(DType::I64)?.to_vec1()?;
    scores.apply_op1(LossOp { normalizer, targets, shape, ignore, reduction, slope: Mutex::new(None) })
}

struct Sweep<'a> {
    op: &'a LossOp,
    storage: &'a CpuStorage,
    layout: &'a Layout,
}

impl Generic for Sweep<'_> {
    type Output = (CpuStorage, Shape);

    fn run<T: Number>(self) -> Result<Self::Output> {
        let (op, name) = (self.op, self.op.normalizer.name());
        let mapping = op.normalizer.build()?;
        let Some(mapping) = mapping.regularized() else {
            candle_core::bail!("{name}: the mapping has no regulariser and so no Fenchel–Young loss")
        };
        let mut loss = FenchelYoung::new(mapping).reduction(op.reduction);
        if let Some(index) = op.ignore {
            loss = loss.ignore_index(index);
        }
        let mut slope = vec![<T as Default>::default(); self.layout.shape().elem_count()];
        let out = ViewMut::new(&mut slope, self.layout.dims()).map_err(refuse)?;
        let scores = view::<T>(self.storage, self.layout)?;
        let value = loss.loss_and_gradient(scores, Target::Classes(&op.targets), out).map_err(refuse)?;
        let slope = Tensor::from_vec(slope, self.layout.shape(), &Device::Cpu)?;
        *op.slope.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(slope);
        let narrow = |x: f64| <T as Float>::narrow(x);
        Ok(match value {
            Loss::Value(value) => (T::to_cpu_storage_owned(vec![narrow(value)]), Shape::from(())),
            Loss::Rows(rows) => (T::to_cpu_storage_owned(rows.into_iter().map(narrow).collect()), op.shape.clone()),
        })
    }
}

impl CustomOp1 for LossOp {
    fn name(&self) -> &'static str {
        self.normalizer.name()
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        with_type(self.name(), storage, Sweep { op: self, storage, layout })
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, v: &Tensor) -> Result<Option<Tensor>> {
        let slope = self.slope.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let Some(slope) = slope else { candle_core::bail!("{}: no forward pass came before", self.name()) };
        let v = if v.rank() == 0 { v.clone() } else { v.unsqueeze(v.rank())? };
        Ok(Some(slope.broadcast_mul(&v)?))
    }
}
