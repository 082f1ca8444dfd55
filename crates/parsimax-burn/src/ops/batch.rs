//! From arrays to the core: which mapping a row has, and the two passes over all rows.

use crate::NormalizerConfig;
use crate::panics::{fail, or_fail};
use burn::tensor::{Element, TensorData};
use parsimax::{Error, Float, Mapping, Rows, View, ViewMut};

/// A mapping and the axis along which it runs.
#[derive(Debug, Clone)]
pub struct MapSpec {
    /// The mapping.
    pub normalizer: NormalizerConfig,
    /// The axis along which probabilities sum to 1, counted from the front.
    pub axis: usize,
}

/// A mask at its own size, and the strides that broadcast it to the scores.
#[derive(Debug)]
pub(crate) struct MaskArray {
    pub(crate) data: Vec<bool>,
    pub(crate) shape: Vec<usize>,
    pub(crate) strides: Vec<isize>,
    pub(crate) offset: usize,
}

impl MaskArray {
    /// A mask in row-major order.
    pub(crate) fn contiguous(data: Vec<bool>, shape: Vec<usize>) -> Self {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i] as isize;
        }
        Self { data, shape, strides, offset: 0 }
    }

    /// The mask as an array of the scores' shape.
    fn broadcast(&self, operation: &str, scores: &[usize]) -> View<'_, bool> {
        let fits = self.shape.len() == scores.len() && self.shape.iter().zip(scores).all(|(m, s)| *m == 1 || m == s);
        if !fits {
            let got = &self.shape;
            fail(
                operation,
                &format!("The mask must have the scores' shape {scores:?}, or 1 where it is shared; it has {got:?}."),
            );
        }
        let axes = self.shape.iter().zip(&self.strides);
        let strides: Vec<isize> = axes.map(|(n, stride)| if *n == 1 { 0 } else { *stride }).collect();
        or_fail(operation, View::strided(&self.data, scores, &strides, self.offset))
    }
}

/// The mappings of all rows.
pub(crate) struct Mappings {
    mappings: Vec<Box<dyn Mapping>>,
    /// Row `r` has the mapping `(r / run) % mappings.len()`.
    run: usize,
    /// The parameter of each mapping, where several mappings share one.
    source: Option<Vec<usize>>,
}

impl Mappings {
    /// One mapping for all rows.
    pub(crate) fn one(spec: &MapSpec) -> Self {
        let mapping = or_fail(spec.normalizer.name(), spec.normalizer.build());
        Self { mappings: vec![mapping], run: usize::MAX, source: None }
    }

    /// A mapping per entry of a parameter of shape `shape`, which has 1 along the axis and, along every other
    /// axis, 1 or the scores' length.
    pub(crate) fn by_parameter(spec: &MapSpec, values: &[f64], shape: &[usize], scores: &[usize]) -> Self {
        let name = spec.normalizer.name();
        let along = |i: usize| if i == spec.axis { shape[i] == 1 } else { shape[i] == 1 || shape[i] == scores[i] };
        if shape.len() != scores.len() || !(0..shape.len()).all(along) {
            let axis = spec.axis;
            fail(
                name,
                &format!(
                    "The parameter must have 1 along axis {axis} and 1 or the scores' length along the others; \
                     scores {scores:?}, parameter {shape:?}."
                ),
            );
        }
        let build = |value: &f64| or_fail(name, spec.normalizer.build_with(*value));
        let mappings: Vec<_> = values.iter().map(build).collect();
        if mappings.len() == 1 {
            // All rows are one group: the kernels take several of them at a time.
            return Self { mappings, run: usize::MAX, source: None };
        }
        let rows: Vec<(usize, usize)> =
            (0..shape.len()).filter(|i| *i != spec.axis && scores[*i] != 1).map(|i| (scores[i], shape[i])).collect();
        let first = rows.iter().position(|(_, own)| *own != 1).unwrap_or(rows.len());
        let last = rows.iter().rposition(|(_, own)| *own != 1).map_or(rows.len(), |last| last + 1);
        let block = rows[first..last.max(first)].iter().all(|(_, own)| *own != 1);
        if block {
            let run = rows[last..].iter().map(|(n, _)| n).product::<usize>().max(1);
            return Self { mappings, run, source: None };
        }
        let source: Vec<usize> = (0..rows.iter().map(|(n, _)| n).product()).map(|row| entry_of(row, &rows)).collect();
        let mappings = source.iter().map(|entry| build(&values[*entry])).collect();
        Self { mappings, run: 1, source: Some(source) }
    }

    fn rows<'a>(&'a self, axis: usize) -> Rows<'a, Box<dyn Mapping>> {
        Rows::grouped(&self.mappings, self.run).axis(axis as isize)
    }

    /// The gradient of the parameter from that of the mappings.
    fn to_parameter(&self, gradient: Vec<f64>, entries: usize) -> Vec<f64> {
        let Some(source) = &self.source else { return gradient };
        let mut sums = vec![0.0; entries];
        source.iter().zip(gradient).for_each(|(entry, value)| sums[*entry] += value);
        sums
    }
}

/// The entry of a parameter that row `row` uses; `axes` are the lengths of rows and parameter.
fn entry_of(row: usize, axes: &[(usize, usize)]) -> usize {
    let (mut rest, mut entry, mut stride) = (row, 0, 1);
    for (n, own) in axes.iter().rev() {
        entry += rest % n % own * stride;
        rest /= n;
        stride *= own;
    }
    entry
}

/// The arguments that both passes share.
pub(crate) struct Batch<'a> {
    pub(crate) spec: &'a MapSpec,
    pub(crate) mappings: Mappings,
    pub(crate) mask: Option<MaskArray>,
}

impl Batch<'_> {
    fn rows<'b>(&'b self, shape: &[usize]) -> Rows<'b, Box<dyn Mapping>> {
        let rows = self.mappings.rows(self.spec.axis);
        match &self.mask {
            Some(mask) => rows.mask(mask.broadcast(self.name(), shape)),
            None => rows,
        }
    }

    fn name(&self) -> &'static str {
        self.spec.normalizer.name()
    }

    /// The probabilities of all rows. A row with NaN or +∞ is NaN.
    pub(crate) fn forward<T: Float + Element>(&self, z: View<'_, T>) -> TensorData {
        let shape = z.shape().to_vec();
        let mut p = vec![T::default(); shape.iter().product()];
        let out = or_fail(self.name(), ViewMut::new(&mut p, &shape));
        or_fail(self.name(), self.rows(&shape).forward_or_nan(z, out));
        TensorData::new(p, shape)
    }

    /// `Jᵀv` of all rows.
    pub(crate) fn vjp<T: Float + Element>(&self, z: View<'_, T>, p: View<'_, T>, v: View<'_, T>) -> TensorData {
        let shape = p.shape().to_vec();
        let mut gradient = vec![T::default(); shape.iter().product()];
        let out = or_fail(self.name(), ViewMut::new(&mut gradient, &shape));
        or_fail(self.name(), self.rows(&shape).vjp_or_nan(z, p, v, out));
        TensorData::new(gradient, shape)
    }

    /// `Jᵀv` of all rows, and the gradient of a parameter with `entries` entries.
    pub(crate) fn vjp_with_parameter<T: Float + Element>(
        &self,
        z: View<'_, T>,
        p: View<'_, T>,
        v: View<'_, T>,
        entries: usize,
    ) -> (TensorData, Vec<f64>) {
        let shape = p.shape().to_vec();
        let mut gradient = vec![T::default(); shape.iter().product()];
        let out = or_fail(self.name(), ViewMut::new(&mut gradient, &shape));
        let slopes = match self.rows(&shape).vjp_with_parameter(z, p, v, out) {
            // The rows at fault are NaN already, and so is every sum over them.
            Err(Error::Score { .. }) => vec![f64::NAN; entries],
            slopes => self.mappings.to_parameter(or_fail(self.name(), slopes), entries),
        };
        (TensorData::new(gradient, shape), slopes)
    }
}
