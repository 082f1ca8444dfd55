//! The native half of the Python package: converts arguments, releases the interpreter lock, calls
//! the core, maps errors. Shapes, defaults and dtypes are settled in Python; mathematics in the core.

mod array;
mod errors;
mod linear;
mod loss;
mod mapping;

use pyo3::prelude::*;

/// Natively compiled parts of parsimax. Use the functions of `parsimax` instead.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(mapping::after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(linear::fit_linear, module)?)?;
    module.add_class::<mapping::Mapping>()
}
