//! A mapping, built by name, applied to arrays.

use std::sync::atomic::{AtomicBool, Ordering};

use numpy::{PyArray1, PyReadonlyArray1};
use parsimax::loss::Target;
use parsimax::registry::{self, Options};
use parsimax::{Attention, Csr, Mapping as CoreMapping, Rows, Shape, View, ViewMut};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::array::{Array, Dtype, packed, with_float};
use crate::errors::{check_memory, guard, to_python};
use crate::loss::{self, Settings, Targets};

/// Whether the thread pool may be used at all: not in a child of `fork`, which has no pool.
static POOL: AtomicBool = AtomicBool::new(true);

/// Called in children of `fork`.
#[pyfunction]
pub(crate) fn after_fork() {
    POOL.store(false, Ordering::Relaxed);
}

/// Below this many entries the interpreter lock is kept.
const SMALL: usize = 4096;

/// A mapping with its parameters; one of them may vary from row to row.
///
/// Row `r` uses the value `values[(r // run) % len(values)]` of the option `varying`.
#[pyclass(frozen, module = "parsimax._native")]
pub(crate) struct Mapping {
    mappings: Vec<Box<dyn CoreMapping>>,
    run: usize,
}

/// Sets an option by the core's name.
fn set(options: &mut Options, name: &str, value: f64) -> PyResult<()> {
    let slot = match name {
        "alpha" => &mut options.alpha,
        "gamma" => &mut options.gamma,
        "lambda" => &mut options.lambda,
        "p" => &mut options.p,
        "eps" => &mut options.eps,
        "q" => &mut options.q,
        "budget" => &mut options.budget,
        _ => return Err(PyTypeError::new_err(format!("unknown option {name}"))),
    };
    *slot = Some(value);
    Ok(())
}

impl Mapping {
    /// The mapping over rows, as the arguments say.
    fn rows<'a>(
        &'a self,
        axis: isize,
        mask: Option<&'a Array>,
        threads: bool,
    ) -> PyResult<Rows<'a, Box<dyn CoreMapping>>> {
        let mut rows = Rows::grouped(&self.mappings, self.run).axis(axis);
        if let Some(mask) = mask {
            rows = rows.mask(mask.view::<bool>()?);
        }
        Ok(if threads && POOL.load(Ordering::Relaxed) { rows } else { rows.single_threaded() })
    }
}

/// What all calls share: memory for a row, and whether the work is small.
fn prepare(z: &Array, axis: isize) -> PyResult<bool> {
    let axis = if axis < 0 { axis + z.shape.len() as isize } else { axis };
    let columns = usize::try_from(axis).ok().and_then(|axis| z.shape.get(axis)).copied();
    check_memory(columns.unwrap_or(0))?;
    Ok(z.len() <= SMALL)
}

#[pymethods]
impl Mapping {
    #[new]
    #[pyo3(signature = (name, options, varying = None, values = None, run = 1))]
    fn new(
        name: &str,
        options: Vec<(String, f64)>,
        varying: Option<&str>,
        values: Option<PyReadonlyArray1<'_, f64>>,
        run: usize,
    ) -> PyResult<Self> {
        let mut base = Options::default();
        for (name, value) in &options {
            set(&mut base, name, *value)?;
        }
        let build = |options: &Options| registry::build(name, options).map_err(to_python);
        let mappings = match (varying, &values) {
            (Some(varying), Some(values)) => values
                .as_array()
                .iter()
                .map(|value| {
                    set(&mut base, varying, *value)?;
                    build(&base)
                })
                .collect::<PyResult<Vec<_>>>()?,
            (None, None) => vec![build(&base)?],
            _ => return Err(PyTypeError::new_err("varying and values come together")),
        };
        if mappings.is_empty() || run == 0 {
            return Err(PyValueError::new_err("values must hold at least one number, run must be positive"));
        }
        let run = if values.is_none() { usize::MAX } else { run };
        Ok(Self { mappings, run })
    }

    /// Writes the probabilities of `z` into `out`; rows with NaN or +inf are NaN.
    #[pyo3(signature = (z, out, axis = -1, mask = None, threads = true))]
    fn forward(
        &self,
        py: Python<'_>,
        z: Array,
        mut out: Array,
        axis: isize,
        mask: Option<Array>,
        threads: bool,
    ) -> PyResult<()> {
        if z.len() == 0 {
            return Ok(());
        }
        let small = prepare(&z, axis)?;
        let rows = self.rows(axis, mask.as_ref(), threads)?;
        let inputs: Vec<&Array> = [Some(&z), mask.as_ref()].into_iter().flatten().collect();
        with_float!(z.dtype, T => {
            let (z, out) = (z.view::<T>()?, out.view_mut::<T>(&inputs)?);
            guard(py, small, || rows.forward_or_nan(z, out))
        })
    }

    /// The same for rows that lie one behind the other at an address: the short way for tensors.
    #[pyo3(signature = (z, out, rows, columns, code, threads))]
    #[expect(clippy::too_many_arguments, reason = "numbers only: the cheapest call there is")]
    fn forward_packed(
        &self,
        py: Python<'_>,
        z: usize,
        out: usize,
        rows: usize,
        columns: usize,
        code: u8,
        threads: bool,
    ) -> PyResult<()> {
        check_memory(columns)?;
        let (shape, len) = ([rows, columns], rows * columns);
        let sweep = self.rows(-1, None, threads)?;
        with_float!(Dtype::from_code(code)?, T => {
            let (z, out) = packed::<T>(z, out, len)?;
            guard(py, len <= SMALL, || sweep.forward_or_nan(View::new(z, &shape)?, ViewMut::new(out, &shape)?))
        })
    }

    /// Writes `Jᵀv` (with `forward_mode`: `Jv`) at scores `z` and probabilities `p` into `out`.
    #[pyo3(signature = (z, p, v, out, axis = -1, mask = None, forward_mode = false, threads = true))]
    #[expect(clippy::too_many_arguments, reason = "the arrays of the formula, and how to read them")]
    fn vjp(
        &self,
        py: Python<'_>,
        z: Array,
        p: Array,
        v: Array,
        mut out: Array,
        axis: isize,
        mask: Option<Array>,
        forward_mode: bool,
        threads: bool,
    ) -> PyResult<()> {
        if z.len() == 0 {
            return Ok(());
        }
        let small = prepare(&z, axis)?;
        let rows = self.rows(axis, mask.as_ref(), threads)?;
        let inputs: Vec<&Array> = [Some(&z), Some(&p), Some(&v), mask.as_ref()].into_iter().flatten().collect();
        with_float!(z.dtype, T => {
            let (z, p, v) = (z.view::<T>()?, p.view::<T>()?, v.view::<T>()?);
            let out = out.view_mut::<T>(&inputs)?;
            guard(py, small, || if forward_mode { rows.jvp(z, p, v, out) } else { rows.vjp_or_nan(z, p, v, out) })
        })
    }

    /// The gradient of `<v, Π(z)>` in each of the varying option's values; with `out`, `Jᵀv` goes there in the
    /// same sweep.
    #[pyo3(signature = (z, p, v, axis = -1, mask = None, threads = true, out = None))]
    #[expect(clippy::too_many_arguments, reason = "the arrays of the formula, and how to read them")]
    fn parameter_vjp<'py>(
        &self,
        py: Python<'py>,
        z: Array,
        p: Array,
        v: Array,
        axis: isize,
        mask: Option<Array>,
        threads: bool,
        mut out: Option<Array>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let small = prepare(&z, axis)?;
        let rows = self.rows(axis, mask.as_ref(), threads)?;
        let inputs: Vec<&Array> = [Some(&z), Some(&p), Some(&v), mask.as_ref()].into_iter().flatten().collect();
        let gradient = with_float!(z.dtype, T => {
            let (z, p, v) = (z.view::<T>()?, p.view::<T>()?, v.view::<T>()?);
            let out = out.as_mut().map(|out| out.view_mut::<T>(&inputs)).transpose()?;
            let both = || match out {
                Some(out) => rows.vjp_with_parameter(z, p, v, out),
                None => rows.parameter_vjp(z, p, v),
            };
            guard(py, small, || match both() {
                // As everywhere in Python, a bad score is no error; its gradient is no number.
                Err(parsimax::Error::Score { .. }) => Ok(vec![f64::NAN; self.mappings.len()]),
                other => other,
            })
        })?;
        Ok(PyArray1::from_vec(py, gradient))
    }

    /// The sparse result `(indptr, indices, data)`.
    #[pyo3(signature = (z, axis = -1, mask = None, threads = true))]
    fn csr<'py>(
        &self,
        py: Python<'py>,
        z: Array,
        axis: isize,
        mask: Option<Array>,
        threads: bool,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let small = prepare(&z, axis)?;
        let rows = self.rows(axis, mask.as_ref(), threads)?;
        // Sixteen-bit numbers leave as their bits.
        match z.dtype {
            Dtype::F16 => {
                let z = z.view::<half::f16>()?;
                sparse(py, guard(py, small, || rows.csr(z))?, half::f16::to_bits)
            }
            Dtype::Bf16 => {
                let z = z.view::<half::bf16>()?;
                sparse(py, guard(py, small, || rows.csr(z))?, half::bf16::to_bits)
            }
            Dtype::F32 => {
                let z = z.view::<f32>()?;
                sparse(py, guard(py, small, || rows.csr(z))?, |p| p)
            }
            Dtype::F64 => {
                let z = z.view::<f64>()?;
                sparse(py, guard(py, small, || rows.csr(z))?, |p| p)
            }
            Dtype::Bool => Err(PyTypeError::new_err("scores must be floating-point")),
        }
    }

    /// The Fenchel–Young loss: one value per row, or one in all. Writes the gradient in the scores into
    /// `gradient` if it is given. `None` if a score that takes part is NaN or +inf.
    #[pyo3(signature = (z, target, gradient = None, axis = -1, mask = None, reduction = "none", ignore_index = -100,
                        label_smoothing = 0.0, weights = None, threads = true))]
    #[expect(clippy::too_many_arguments, reason = "what the losses of torch take")]
    fn loss<'py>(
        &self,
        py: Python<'py>,
        z: Array,
        target: Targets,
        mut gradient: Option<Array>,
        axis: isize,
        mask: Option<Array>,
        reduction: &str,
        ignore_index: i64,
        label_smoothing: f64,
        weights: Option<Vec<f64>>,
        threads: bool,
    ) -> PyResult<Option<Bound<'py, PyArray1<f64>>>> {
        let small = prepare(&z, axis)?;
        let reduction = loss::reduction(reduction)?;
        let threads = threads && POOL.load(Ordering::Relaxed);
        let settings = Settings { axis, mask, reduction, ignore_index, label_smoothing, weights, threads };
        let sets: Vec<&[usize]> = match &target {
            Targets::Sets(sets) => sets.iter().map(Vec::as_slice).collect(),
            _ => Vec::new(),
        };
        let soft = if let Targets::Soft(y) | Targets::Labels(y) = &target { Some(y) } else { None };
        let inputs: Vec<&Array> = [Some(&z), soft, settings.mask.as_ref()].into_iter().flatten().collect();
        let values = with_float!(z.dtype, T => {
            let target = match &target {
                Targets::Classes(classes) => Target::Classes(classes),
                Targets::Soft(y) => Target::Soft(y.view::<T>()?),
                Targets::Sets(_) => Target::Sets(&sets),
                Targets::Labels(y) => Target::Labels(y.view::<bool>()?),
            };
            let gradient = gradient.as_mut().map(|out| out.view_mut::<T>(&inputs)).transpose()?;
            let mask = settings.mask.as_ref().map(Array::view::<bool>).transpose()?;
            let z = z.view::<T>()?;
            guard(py, small, || {
                match loss::run(&self.mappings, self.run, z, target, gradient, mask, &settings) {
                    Err(parsimax::Error::Score { .. }) => Ok(None),
                    other => other.map(Some),
                }
            })
        })?;
        Ok(values.map(|values| PyArray1::from_vec(py, values)))
    }

    /// Attention `Π(scale · q kᵀ) v` in single precision.
    ///
    /// Arrays are (heads, rows, width) and contiguous; `mask` is (groups, queries or 1, keys), true = takes part,
    /// where a group is so many consecutive heads. `False` if the mapping has no kernel for it, and nothing was written.
    #[pyo3(signature = (q, k, v, out, scale, mask = None, threads = true))]
    #[expect(clippy::too_many_arguments, reason = "the arrays of the formula, and how to read them")]
    fn attention(
        &self,
        py: Python<'_>,
        q: Array,
        k: Array,
        v: Array,
        mut out: Array,
        scale: f32,
        mask: Option<Array>,
        threads: bool,
    ) -> PyResult<bool> {
        let [mapping] = &self.mappings[..] else { return Ok(false) };
        let (&[heads, queries, key_width], &[_, keys, value_width]) = (&q.shape[..], &v.shape[..]) else {
            return Err(PyValueError::new_err("q, k and v must have three axes"));
        };
        let shape = Shape { heads, queries, keys, key_width, value_width };
        let inputs: Vec<&Array> = [Some(&q), Some(&k), Some(&v), mask.as_ref()].into_iter().flatten().collect();
        let is_row_mask = mask.as_ref().is_some_and(|mask| mask.shape.get(1) == Some(&1) && queries != 1);
        let (q, k, v) = (q.packed::<f32>()?, k.packed::<f32>()?, v.packed::<f32>()?);
        let mask = mask.as_ref().map(Array::packed::<bool>).transpose()?;
        let mut attention = Attention::new(mapping).scale(scale);
        attention = match mask {
            Some(mask) if is_row_mask => attention.key_mask(mask),
            Some(mask) => attention.mask(mask),
            None => attention,
        };
        if !threads || !POOL.load(Ordering::Relaxed) {
            attention = attention.single_threaded();
        }
        let out = out.packed_mut::<f32>(&inputs)?;
        guard(py, false, || match attention.forward(shape, q, k, v, out) {
            Err(parsimax::Error::Unsupported { .. }) => Ok(false),
            other => other.map(|()| true),
        })
    }

    /// The name by which the core knows the mapping.
    #[getter]
    fn name(&self) -> &'static str {
        self.mappings[0].name()
    }
}

/// The three arrays of a sparse result. Numbers of the same size are converted where they are.
fn sparse<'py, T, N: numpy::Element>(
    py: Python<'py>,
    csr: Csr<T>,
    number: impl Fn(T) -> N,
) -> PyResult<Bound<'py, PyTuple>> {
    let indptr: Vec<i64> = csr.indptr.into_iter().map(|i| i as i64).collect();
    let values: Vec<N> = csr.values.into_iter().map(number).collect();
    let arrays = (PyArray1::from_vec(py, indptr), PyArray1::from_vec(py, csr.indices), PyArray1::from_vec(py, values));
    arrays.into_pyobject(py)
}
