//! The mappings as operations of candle.

use crate::array::{Generic, Number, cpu, view, with_type};
use crate::{Normalizer, refuse};
use candle_core::{CpuStorage, CustomOp1, CustomOp2, DType, Layout, Result, Shape, Tensor};
use parsimax::{Mapping, Rows, ViewMut};

/// A mapping along an axis.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) normalizer: Normalizer,
    pub(crate) axis: usize,
}

/// A mapping whose shape parameter is a tensor.
#[derive(Debug)]
pub(crate) struct MapWith {
    pub(crate) normalizer: Normalizer,
    pub(crate) axis: usize,
}

/// The mappings of all rows: row `r` has `mappings[(r / run) % mappings.len()]`.
struct Groups {
    mappings: Vec<Box<dyn Mapping>>,
    run: usize,
    axis: usize,
}

impl Groups {
    fn one(normalizer: &Normalizer, axis: usize) -> Result<Groups> {
        Ok(Groups { mappings: vec![normalizer.build()?], run: usize::MAX, axis })
    }

    /// A mapping for each entry of a parameter.
    fn by_parameter(normalizer: &Normalizer, axis: usize, scores: &[usize], parameter: &Tensor) -> Result<Groups> {
        let values = parameter.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let mappings = values.iter().map(|&value| normalizer.build_with(value)).collect::<Result<Vec<_>>>()?;
        if mappings.len() == 1 {
            return Ok(Groups { mappings, run: usize::MAX, axis });
        }
        let (shape, name) = (parameter.dims(), normalizer.name());
        let rows = (0..scores.len()).filter(|&i| i != axis);
        let own: Vec<usize> = rows.clone().filter(|&i| shape.get(i) != Some(&1) && scores[i] != 1).collect();
        let whole = own.iter().all(|&i| shape.get(i) == Some(&scores[i]));
        let (first, last) = (own.first().copied().unwrap_or(0), own.last().copied().unwrap_or(0));
        let together = rows.clone().all(|i| i < first || i > last || scores[i] == 1 || own.contains(&i));
        if shape.len() != scores.len() || shape[axis] != 1 || !whole || !together || mappings.is_empty() {
            candle_core::bail!(
                "{name}: the parameter is one number, or 1 along axis {axis} and whole along neighbouring axes; scores {scores:?}, parameter {shape:?}"
            );
        }
        let run = rows.filter(|&i| i > last).map(|i| scores[i]).product::<usize>().max(1);
        Ok(Groups { mappings, run, axis })
    }

    fn rows(&self) -> Rows<'_, Box<dyn Mapping>> {
        Rows::grouped(&self.mappings, self.run).axis(self.axis as isize)
    }
}

struct Forward<'a> {
    groups: Groups,
    storage: &'a CpuStorage,
    layout: &'a Layout,
}

impl Generic for Forward<'_> {
    type Output = (CpuStorage, Shape);

    fn run<T: Number>(self) -> Result<Self::Output> {
        let mut p = vec![<T as Default>::default(); self.layout.shape().elem_count()];
        let out = ViewMut::new(&mut p, self.layout.dims()).map_err(refuse)?;
        self.groups.rows().forward_or_nan(view::<T>(self.storage, self.layout)?, out).map_err(refuse)?;
        Ok((T::to_cpu_storage_owned(p), self.layout.shape().clone()))
    }
}

/// `Jᵀv`, and the gradient of each mapping's parameter if it is wanted.
struct Backward<'a> {
    groups: Groups,
    tensors: [(&'a CpuStorage, &'a Layout); 3],
    parameter: bool,
}

impl Generic for Backward<'_> {
    type Output = (Tensor, Vec<f64>);

    fn run<T: Number>(self) -> Result<Self::Output> {
        let [z, p, v] = self.tensors;
        let (z, p, v) = (view::<T>(z.0, z.1)?, view::<T>(p.0, p.1)?, view::<T>(v.0, v.1)?);
        let shape = p.shape().to_vec();
        let mut slope = vec![<T as Default>::default(); shape.iter().product()];
        let out = ViewMut::new(&mut slope, &shape).map_err(refuse)?;
        let rows = self.groups.rows();
        let slopes = if self.parameter {
            rows.vjp_with_parameter(z, p, v, out).map_err(refuse)?
        } else {
            rows.vjp_or_nan(z, p, v, out).map_err(refuse)?;
            Vec::new()
        };
        Ok((Tensor::from_vec(slope, shape, &candle_core::Device::Cpu)?, slopes))
    }
}

/// Runs the backward pass on the memory of scores, probabilities and gradient.
fn backward(
    name: &'static str,
    groups: Groups,
    [z, p, v]: [&Tensor; 3],
    parameter: bool,
) -> Result<(Tensor, Vec<f64>)> {
    let ((sz, lz), (sp, lp), (sv, lv)) = (z.storage_and_layout(), p.storage_and_layout(), v.storage_and_layout());
    let scores = cpu(name, &sz)?;
    let tensors = [(scores, lz), (cpu(name, &sp)?, lp), (cpu(name, &sv)?, lv)];
    with_type(name, scores, Backward { groups, tensors, parameter })
}

impl CustomOp1 for Map {
    fn name(&self) -> &'static str {
        self.normalizer.name()
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let groups = Groups::one(&self.normalizer, self.axis)?;
        with_type(self.name(), storage, Forward { groups, storage, layout })
    }

    fn bwd(&self, z: &Tensor, p: &Tensor, v: &Tensor) -> Result<Option<Tensor>> {
        let groups = Groups::one(&self.normalizer, self.axis)?;
        Ok(Some(backward(self.name(), groups, [z, p, v], false)?.0))
    }
}

impl CustomOp2 for MapWith {
    fn name(&self) -> &'static str {
        self.normalizer.name()
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
        parameter: &CpuStorage,
        of_parameter: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let values = with_type(self.name(), parameter, Copied { storage: parameter, layout: of_parameter })?;
        let groups = Groups::by_parameter(&self.normalizer, self.axis, layout.dims(), &values)?;
        with_type(self.name(), storage, Forward { groups, storage, layout })
    }

    fn bwd(&self, z: &Tensor, a: &Tensor, p: &Tensor, v: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let groups = Groups::by_parameter(&self.normalizer, self.axis, z.dims(), a)?;
        let (dz, da) = backward(self.name(), groups, [z, p, v], true)?;
        let da = Tensor::from_vec(da, a.shape(), &candle_core::Device::Cpu)?.to_dtype(a.dtype())?;
        Ok((Some(dz), Some(da)))
    }
}

/// A small tensor of parameters, copied out of its storage.
struct Copied<'a> {
    storage: &'a CpuStorage,
    layout: &'a Layout,
}

impl Generic for Copied<'_> {
    type Output = Tensor;

    fn run<T: Number>(self) -> Result<Tensor> {
        let (data, layout) = (self.storage.as_slice::<T>()?, self.layout);
        let place = |mut entry: usize| {
            let axes = layout.dims().iter().zip(layout.stride()).rev();
            axes.fold(layout.start_offset(), |at, (n, stride)| {
                let here = entry % n;
                entry /= n;
                at + here * stride
            })
        };
        let values: Vec<T> = (0..layout.shape().elem_count()).map(|entry| data[place(entry)]).collect();
        Tensor::from_vec(values, layout.shape(), &candle_core::Device::Cpu)
    }
}
