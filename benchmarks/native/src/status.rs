//! How failures cross the border: −1, and a message to be asked for.

use std::cell::RefCell;

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps the message and returns the code of a failure.
pub(crate) fn fail(message: String) -> i32 {
    LAST.with(|last| *last.borrow_mut() = message);
    -1
}

/// Shows the message of the last failure.
pub(crate) fn report<R>(show: impl FnOnce(&str) -> R) -> R {
    LAST.with(|last| show(&last.borrow()))
}

/// The code of a result.
pub(crate) fn code(result: parsimax::Result<()>) -> i32 {
    result.map_or_else(|error| fail(error.to_string()), |()| 0)
}

/// Copies as much of the text as fits and returns its full length.
///
/// # Safety
/// `buffer` has room for `capacity` bytes.
pub(crate) unsafe fn copy_text(text: &str, buffer: *mut u8, capacity: usize) -> usize {
    // SAFETY: no more than `capacity` bytes are written, and a `&str` of ours does not overlap them.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), buffer, text.len().min(capacity)) };
    text.len()
}
