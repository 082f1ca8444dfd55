//! The speed of memory: what no mapping can beat.

use rayon::prelude::*;

/// Below this many bytes the copy stays on the caller's thread, as the mappings do.
const LARGE: usize = 1 << 18;

/// Copies `bytes` bytes.
///
/// # Safety
/// Both pointers have `bytes` bytes behind them, and these do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pxb_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> i32 {
    // SAFETY: valid for `bytes` bytes and disjoint by contract.
    let (to, from) = unsafe { (std::slice::from_raw_parts_mut(to, bytes), std::slice::from_raw_parts(from, bytes)) };
    if super::is_single_threaded() || bytes < LARGE {
        to.copy_from_slice(from);
    } else {
        let part = bytes.div_ceil(rayon::current_num_threads());
        to.par_chunks_mut(part).zip(from.par_chunks(part)).for_each(|(to, from)| to.copy_from_slice(from));
    }
    0
}
