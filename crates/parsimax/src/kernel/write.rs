//! Writing a row of probabilities once τ is known.

use super::profile::Profile;
use super::solve::{Frame, split};
use super::vector::Vector;

/// `[x − τ]₊` with τ in two parts.
#[inline(always)]
fn excess<V: Vector>(x: V, hi: V, lo: V, zero: V) -> V {
    x.sub(hi).sub(lo).max(zero)
}

/// `p = [x − τ]₊^e` for every entry, in one pass.
///
/// The last vector of a row whose width is not a multiple of the lanes overlaps the one
/// before: it writes the same numbers again.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, and they do not overlap; the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn dense<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    out: *mut f32,
    d: usize,
    frame: Frame,
    tau: f64,
) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (hi, lo) = split(tau);
        let (hi, lo, zero) = (V::splat(hi), V::splat(lo), V::splat(0.0));
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let mut i = 0;
        while i + V::LANES <= d {
            let x = V::load(z.add(i)).sub(max).mul(scale);
            prof.prob(excess(x, hi, lo, zero)).store(out.add(i));
            i += V::LANES;
        }
        if i < d {
            if d >= V::LANES {
                let x = V::load(z.add(d - V::LANES)).sub(max).mul(scale);
                prof.prob(excess(x, hi, lo, zero))
                    .store(out.add(d - V::LANES));
            } else {
                let x = V::load_first(z, d, f32::NEG_INFINITY).sub(max).mul(scale);
                prof.prob(excess(x, hi, lo, zero)).store_first(out, d);
            }
        }
    }
}

/// `p` for the `n` candidates `x` (in place), then scattered into a row of zeros.
///
/// # Safety
/// `c` is readable and writable for `n` floats rounded up to whole vectors, every
/// `index[k] < d` for `k < n`, `out` is writable for `d` floats; the CPU has the instruction
/// set of `V`.
#[inline(always)]
pub(crate) unsafe fn scattered<V: Vector, P: Profile>(
    prof: P,
    c: *mut f32,
    index: *const u32,
    n: usize,
    out: *mut f32,
    d: usize,
    tau: f64,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (hi, lo) = split(tau);
        let (hi, lo, zero) = (V::splat(hi), V::splat(lo), V::splat(0.0));
        std::ptr::write_bytes(out, 0, d);
        let mut i = 0;
        while i < n {
            let x = V::load(c.add(i));
            prof.prob(excess(x, hi, lo, zero)).store(c.add(i));
            i += V::LANES;
        }
        for k in 0..n {
            *out.add(*index.add(k) as usize) = *c.add(k);
        }
    }
}
