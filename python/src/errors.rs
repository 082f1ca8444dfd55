//! What goes wrong in Rust becomes a Python exception, panics included.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parsimax::Error;
use pyo3::exceptions::{PyMemoryError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Arguments with bad values are `ValueError`, things that a mapping cannot do `TypeError`, solvers
/// that fail `RuntimeError`.
pub(crate) fn to_python(mut error: Error) -> PyErr {
    // A keyword of Python's cannot name an argument.
    if let Error::Parameter { name: name @ "lambda", .. } = &mut error {
        *name = "lam";
    }
    let message = error.to_string();
    match error {
        Error::NotConverged { .. } => PyRuntimeError::new_err(message),
        Error::Unsupported { .. } => PyTypeError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

/// Runs `work` without the interpreter lock; a panic in it is a `RuntimeError`.
///
/// Work that takes less time than handing over the lock (`small`) keeps it.
pub(crate) fn guard<R: Send>(
    py: Python<'_>,
    small: bool,
    work: impl FnOnce() -> parsimax::Result<R> + Send,
) -> PyResult<R> {
    let caught = || catch_unwind(AssertUnwindSafe(work));
    let outcome = if small { caught() } else { py.detach(caught) };
    match outcome {
        Ok(result) => result.map_err(to_python),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("unknown");
            Err(PyRuntimeError::new_err(format!("parsimax: internal error, please report it: {text}")))
        }
    }
}

/// Fails with `MemoryError` when the buffers for one row of `columns` entries per thread cannot be
/// had. Rust ends the process when an allocation fails; asking first keeps the interpreter alive.
pub(crate) fn check_memory(columns: usize) -> PyResult<()> {
    // Below this the buffers fit into any allocator's spare pages.
    if columns < 1 << 14 {
        return Ok(());
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Scores, probabilities, direction, result, positions and the solver's work space, in f64.
    let bytes = columns.saturating_mul(80).saturating_mul(threads);
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| PyMemoryError::new_err(format!("parsimax: no memory for rows of {columns} entries")))
}
