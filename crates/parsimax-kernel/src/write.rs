//! Writing a row of probabilities once τ is known.

use super::profile::{At, Profile, Tau};
use super::solve::Frame;
use super::vector::{Vector, outlined};

/// Vectors whose terms are summed in f32 before the sum moves to f64.
const BLOCK: usize = 8;

/// What a row leaves behind for its loss.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowSum {
    /// Maximum of the scores.
    pub(crate) max: f32,
    /// τ relative to the maximum.
    pub(crate) tau: f64,
    /// `Σ p·u`.
    pub(crate) pu: f64,
}

outlined! {
    /// `gain · [x − τ]₊^e` for every entry, in one pass. With `LOSS` returns `Σ p·u`; without,
    /// the gain is 1 and nothing is summed.
    ///
    /// The last vector of a row whose width is not a multiple of the lanes overlaps the one
    /// before: it writes the same numbers again (and does not sum them again). Beside `out` stands whether it may be
    /// streamed, which it is if it is aligned.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats, and they do not overlap; the CPU has
    /// the instruction set of `V`.
    pub(crate) unsafe fn dense<V, P: Profile; LOSS>(
        prof: P,
        z: *const f32,
        out: (*mut f32, bool),
        d: usize,
        frame: Frame,
        tau: Tau,
        gain: f32,
    ) -> f64 => dense_any
}

/// # Safety
/// As [`dense`].
#[inline(always)]
pub(crate) unsafe fn dense_any<V: Vector, P: Profile, const LOSS: bool>(
    prof: P,
    z: *const f32,
    (out, stream): (*mut f32, bool),
    d: usize,
    frame: Frame,
    tau: Tau,
    gain: f32,
) -> f64 {
    // SAFETY: as the caller vouches.
    unsafe {
        if stream && out.align_offset(V::LANES * size_of::<f32>()) == 0 {
            dense_with::<V, P, LOSS, true>(prof, z, out, d, frame, tau, gain)
        } else {
            dense_with::<V, P, LOSS, false>(prof, z, out, d, frame, tau, gain)
        }
    }
}

/// [`dense`], streamed or not.
///
/// # Safety
/// As [`dense`]; what is streamed is aligned.
#[inline(always)]
unsafe fn dense_with<V: Vector, P: Profile, const LOSS: bool, const STREAM: bool>(
    prof: P,
    z: *const f32,
    out: *mut f32,
    d: usize,
    frame: Frame,
    tau: Tau,
    gain: f32,
) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let at = At::new(tau);
        let (max, scale, gain) = (V::splat(frame.max), V::splat(frame.scale), V::splat(gain));
        let (mut wide, none) = (V::wide_zero(), V::splat(0.0));
        // Some terms a lane are summed in f32, before the sum moves to f64.
        let (mut sum, mut terms) = (none, 0);
        let mut i = 0;
        while i + V::LANES <= d {
            let x = V::load(z.add(i)).sub(max).mul(scale);
            if P::DEAR && V::bits(at.is_above(x)) == 0 {
                none.store(out.add(i));
                i += V::LANES;
                continue;
            }
            let (u, p) = prof.prob(x, &at);
            let mut value = p;
            if LOSS {
                sum = p.fma(u, sum);
                terms += 1;
                if terms % BLOCK == 0 {
                    wide = V::wide_add(wide, sum);
                    sum = none;
                }
                value = p.mul(gain);
            }
            if STREAM {
                value.stream(out.add(i))
            } else {
                value.store(out.add(i))
            }
            i += V::LANES;
        }
        if i < d {
            let x = V::load_first(z.add(i), d - i, f32::NEG_INFINITY).sub(max).mul(scale);
            let (u, p) = prof.prob(x, &at);
            if LOSS {
                sum = p.fma(u, sum);
                p.mul(gain).store_first(out.add(i), d - i);
            } else if d >= V::LANES {
                let x = V::load(z.add(d - V::LANES)).sub(max).mul(scale);
                prof.prob(x, &at).1.store(out.add(d - V::LANES));
            } else {
                p.store_first(out, d);
            }
        }
        if LOSS { V::wide_total(V::wide_add(wide, sum)) } else { 0.0 }
    }
}

/// [`dense`] with a gain if there is one.
///
/// # Safety
/// As [`dense`].
pub(crate) unsafe fn any_dense<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    out: (*mut f32, bool),
    d: usize,
    frame: Frame,
    tau: Tau,
    gain: Option<f32>,
) -> f64 {
    // SAFETY: as the caller vouches.
    unsafe {
        match gain {
            None => dense::<V, P, false>(prof, z, out, d, frame, tau, 1.0),
            Some(gain) => dense::<V, P, true>(prof, z, out, d, frame, tau, gain),
        }
    }
}
