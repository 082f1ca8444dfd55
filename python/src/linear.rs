//! Linear models: arrays from Python, a fit in `parsimax-linear`, arrays back.

use std::collections::BTreeMap;

use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use parsimax_linear::{Error, Features, LossSpec, Settings, Stop, Targets, fit};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// Weights (features × labels), bias, iterations, value of the objective, whether it converged.
type Fitted<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray1<f64>>, usize, f64, bool);

fn to_python(error: Error) -> PyErr {
    match error {
        Error::Core(error) => crate::errors::to_python(error),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// Compressed sparse rows: indptr, indices, data and the number of columns.
#[derive(FromPyObject)]
pub(crate) struct Csr<'py>(PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, i64>, PyReadonlyArray1<'py, f64>, usize);

/// Dense or sparse rows.
#[derive(FromPyObject)]
pub(crate) enum Rows<'py> {
    /// A two-dimensional array.
    Dense(PyReadonlyArray2<'py, f64>),
    /// The parts of a SciPy CSR matrix.
    Sparse(Csr<'py>),
}

impl Rows<'_> {
    fn features(&self) -> PyResult<Features> {
        let index = |value: &i64| usize::try_from(*value).map_err(|_| PyValueError::new_err("an index is negative"));
        match self {
            Self::Dense(x) => {
                let view = x.as_array();
                Features::dense(view.iter().copied().collect(), view.ncols())
            }
            Self::Sparse(Csr(starts, indices, values, columns)) => {
                let starts = starts.as_array().iter().map(index).collect::<PyResult<_>>()?;
                let narrow =
                    |value: &i64| u32::try_from(*value).map_err(|_| PyValueError::new_err("a column is negative"));
                let indices = indices.as_array().iter().map(narrow).collect::<PyResult<_>>()?;
                Features::sparse(*columns, starts, indices, values.as_array().to_vec())
            }
        }
        .map_err(to_python)
    }
}

/// What the rows should be.
#[derive(FromPyObject)]
pub(crate) enum Answers<'py> {
    /// A class per row.
    Classes(PyReadonlyArray1<'py, i64>),
    /// A distribution per row.
    Shares(PyReadonlyArray2<'py, f64>),
}

impl Answers<'_> {
    fn targets(&self, labels: usize) -> PyResult<Targets> {
        match self {
            Self::Classes(classes) => {
                let class =
                    |value: &i64| usize::try_from(*value).map_err(|_| PyValueError::new_err("a class is negative"));
                Targets::classes(labels, classes.as_array().iter().map(class).collect::<PyResult<_>>()?)
            }
            Self::Shares(shares) => Targets::shares(labels, shares.as_array().iter().copied().collect()),
        }
        .map_err(to_python)
    }
}

/// Fits a linear model to rows `x` and to a class or a distribution for each of them.
#[pyfunction]
#[pyo3(signature = (x, y, labels, loss, parameters, l2, max_iter, tol, sample_weight, fit_intercept))]
#[allow(clippy::too_many_arguments, reason = "they are the estimator's, and only Python calls it")]
pub(crate) fn fit_linear<'py>(
    py: Python<'py>,
    x: Rows<'py>,
    y: Answers<'py>,
    labels: usize,
    loss: String,
    parameters: BTreeMap<String, f64>,
    l2: f64,
    max_iter: usize,
    tol: f64,
    sample_weight: Option<PyReadonlyArray1<'py, f64>>,
    fit_intercept: bool,
) -> PyResult<Fitted<'py>> {
    let features = x.features()?;
    let targets = y.targets(labels)?;
    let weights = sample_weight.map(|weights| weights.as_array().to_vec());
    let loss = LossSpec { name: loss, parameters }.build().map_err(to_python)?;
    let work = || {
        let stop = Stop { iterations: max_iter, gradient: tol, decrease: -1.0, ..Stop::default() };
        let settings =
            Settings { l2, stop, sample_weights: weights.as_deref(), start: None, without_bias: !fit_intercept };
        fit(&features, &targets, &loss, &settings)
    };
    let caught = py.detach(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)));
    let (model, report) = caught
        .map_err(|_| PyRuntimeError::new_err("parsimax: internal error, please report it"))?
        .map_err(to_python)?;
    let shape = [model.features(), model.labels()];
    let weights = model.weights().to_vec().into_pyarray(py).reshape(shape)?;
    let converged = report.reason != parsimax_linear::Reason::Iterations;
    Ok((weights, model.bias().to_vec().into_pyarray(py), report.iterations, report.value, converged))
}
