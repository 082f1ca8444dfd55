//! Fenchel–Young losses of a mapping over arrays.

use parsimax::loss::{BatchLoss, FenchelYoung, Likelihood, Loss, Reduction, RowLoss, Target};
use parsimax::{Float, Mapping as CoreMapping, Regularized, Result, View, ViewMut};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::array::Array;

/// Targets as they come from Python.
pub(crate) enum Targets {
    Classes(Vec<i64>),
    Soft(Array),
    Sets(Vec<Vec<usize>>),
    Labels(Array),
}

/// Everything around the formula.
pub(crate) struct Settings {
    pub(crate) axis: isize,
    pub(crate) mask: Option<Array>,
    pub(crate) reduction: Reduction,
    pub(crate) ignore_index: i64,
    pub(crate) label_smoothing: f64,
    pub(crate) weights: Option<Vec<f64>>,
    pub(crate) threads: bool,
}

/// Reads the name of a reduction.
pub(crate) fn reduction(name: &str) -> PyResult<Reduction> {
    Ok(match name {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        "mean" => Reduction::Mean,
        _ => return Err(PyValueError::new_err(format!("reduction must be none, sum or mean, got {name}"))),
    })
}

/// The Fenchel–Young loss of every row, or the likelihood of a mapping that has no other; or one number. The gradient goes
/// into `gradient` if it is given.
pub(crate) fn run<T: Float>(
    mappings: &[Box<dyn CoreMapping>],
    run: usize,
    z: View<'_, T>,
    target: Target<'_, T>,
    gradient: Option<ViewMut<'_, T>>,
    mask: Option<View<'_, bool>>,
    settings: &Settings,
) -> Result<Vec<f64>> {
    if let Some(mapping) = mappings.first().and_then(|mapping| mapping.logarithmic()) {
        return finish(Likelihood::new(mapping), z, target, gradient, mask, settings);
    }
    let regularized: Vec<&dyn Regularized> = mappings.iter().filter_map(|mapping| mapping.regularized()).collect();
    finish(FenchelYoung::grouped(&regularized, run)?, z, target, gradient, mask, settings)
}

fn finish<'a, T: Float, R: RowLoss>(
    mut loss: BatchLoss<'a, R>,
    z: View<'_, T>,
    target: Target<'_, T>,
    gradient: Option<ViewMut<'_, T>>,
    mask: Option<View<'a, bool>>,
    settings: &'a Settings,
) -> Result<Vec<f64>> {
    loss = loss
        .axis(settings.axis)
        .ignore_index(settings.ignore_index)
        .reduction(settings.reduction)
        .label_smoothing(settings.label_smoothing)?;
    if let Some(mask) = mask {
        loss = loss.mask(mask);
    }
    if let Some(weights) = &settings.weights {
        loss = loss.class_weights(weights)?;
    }
    if !settings.threads {
        loss = loss.single_threaded();
    }
    let value = match gradient {
        Some(gradient) => loss.loss_and_gradient(z, target, gradient)?,
        None => loss.value(z, target)?,
    };
    Ok(match value {
        Loss::Rows(rows) => rows,
        Loss::Value(value) => vec![value],
    })
}

impl<'py> FromPyObject<'_, 'py> for Targets {
    type Error = PyErr;

    /// `("classes", int64 array)`, `("soft", array)`, `("sets", list of lists)` or `("labels", array of booleans)`.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let (kind, value): (String, Bound<'py, PyAny>) = object.extract()?;
        Ok(match kind.as_str() {
            "classes" => {
                let array: numpy::PyReadonlyArray1<'_, i64> = value.extract()?;
                Self::Classes(array.as_array().to_vec())
            }
            "soft" => Self::Soft(value.extract()?),
            "sets" => Self::Sets(value.extract()?),
            "labels" => Self::Labels(value.extract()?),
            _ => return Err(PyTypeError::new_err("unknown kind of target")),
        })
    }
}
