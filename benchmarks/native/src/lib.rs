//! parsimax behind a C interface, so that `benchmarks/bench.py` can time it beside PyTorch in one
//! process.
//!
//! Calls go through the public interface (`Rows`, the losses) and add nothing to it: no copy, no
//! allocation, no thread. Every function returns 0, or −1 and leaves a message for
//! [`pxb_last_error`].
//!
//! | threads | what runs |
//! |---|---|
//! | 1 | `single_threaded()` |
//! | n > 1 | the global pool of n threads, entered from the caller's thread as users do |

// A binding layer: pointers come from the other side.
#![allow(unsafe_code)]

pub mod memory;
pub mod operations;
mod status;

use parsimax::Mapping;
use parsimax::registry::{self, MAPPINGS, Options};
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicUsize, Ordering};

use status::{fail, report};

/// A mapping that the other side holds by pointer.
pub struct Handle {
    mapping: Box<dyn Mapping>,
}

static THREADS: AtomicUsize = AtomicUsize::new(1);

fn is_single_threaded() -> bool {
    THREADS.load(Ordering::Relaxed) == 1
}

/// Sets the number of threads of all later calls. The first number above 1 is the size of the pool
/// for the life of the process; another one above 1 is an error.
#[unsafe(no_mangle)]
pub extern "C" fn pxb_set_threads(threads: usize) -> i32 {
    if threads > 1 {
        // An error means that the pool exists already; its size tells whether that is fine.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
        if rayon::current_num_threads() != threads {
            return fail(format!("the pool has {} threads, not {threads}", rayon::current_num_threads()));
        }
    }
    THREADS.store(threads.max(1), Ordering::Relaxed);
    0
}

/// Builds a mapping from its name and options such as `alpha=1.25,gamma=2`; null on failure.
///
/// # Safety
/// Both arguments are C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_mapping_new(name: *const c_char, options: *const c_char) -> *mut Handle {
    // SAFETY: C strings by contract, alive during the call.
    let (name, options) = unsafe { (CStr::from_ptr(name), CStr::from_ptr(options)) };
    let built = parse(&options.to_string_lossy())
        .and_then(|options| registry::build(&name.to_string_lossy(), &options).map_err(|e| e.to_string()));
    match built {
        Ok(mapping) => Box::into_raw(Box::new(Handle { mapping })),
        Err(message) => {
            fail(message);
            std::ptr::null_mut()
        }
    }
}

/// Frees a mapping.
///
/// # Safety
/// `handle` comes from [`pxb_mapping_new`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_mapping_free(handle: *mut Handle) {
    // SAFETY: made by `Box::into_raw` in `pxb_mapping_new`, freed once by contract.
    drop(unsafe { Box::from_raw(handle) });
}

/// Writes the registry as lines `name<TAB>cost` into `buffer` and returns the bytes that takes.
///
/// # Safety
/// `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_registry(buffer: *mut u8, capacity: usize) -> usize {
    let table: String = MAPPINGS.iter().map(|entry| format!("{}\t{}\n", entry.name, entry.cost)).collect();
    // SAFETY: the room is promised by the contract.
    unsafe { status::copy_text(&table, buffer, capacity) }
}

/// Copies the message of the last failure of this thread into `buffer` and returns its length.
///
/// # Safety
/// `buffer` has room for `capacity` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_last_error(buffer: *mut u8, capacity: usize) -> usize {
    // SAFETY: the room is promised by the contract.
    report(|message| unsafe { status::copy_text(message, buffer, capacity) })
}

/// Options from `name=value` pairs, separated by commas.
fn parse(text: &str) -> Result<Options, String> {
    let mut options = Options::default();
    for pair in text.split(',').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or_else(|| format!("`{pair}` is not name=value"))?;
        let value: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
        let field = match name {
            "alpha" => &mut options.alpha,
            "gamma" => &mut options.gamma,
            "lambda" => &mut options.lambda,
            "p" => &mut options.p,
            "eps" => &mut options.eps,
            "q" => &mut options.q,
            "budget" => &mut options.budget,
            _ => return Err(format!("no option is called `{name}`")),
        };
        *field = Some(value);
    }
    Ok(options)
}
