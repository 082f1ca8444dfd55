//! Panics in Burn's own style. Burn's operations have no error to return: a call that cannot be right ends
//! with a message that names the operation and the shapes.

/// Ends the operation.
#[track_caller]
pub(crate) fn fail(operation: &str, reason: &str) -> ! {
    panic!("=== Tensor Operation Error ===\n  Operation: '{operation}'\n  Reason:\n    1. {reason}\n");
}

/// The value, or the end of the operation with what the core says.
#[track_caller]
pub(crate) fn or_fail<T>(operation: &str, result: parsimax::Result<T>) -> T {
    result.unwrap_or_else(|error| fail(operation, &error.to_string()))
}
