//! Finding τ: one long list of entries, or one row per lane.
//!
//! Plainly: start left of the root and repeat `τ += step(Σ f(u), Σ g(u))` with
//! `u = [x − τ]₊` until nothing changes (see `profile.rs` for why that is fast).
//!
//! What is done about rounding. The root is found for `x = (z − max)·scale` as rounded to
//! f32, and every pass rounds it alike. The residual is taken at a τ that is an f32, rounded
//! down so that it stays left of the root; the last step is added in f64 and the output is
//! computed with τ in two floats ([`Tau`]). `x − τ` is exact when it is small against τ,
//! so every `u` has a relative error of an ulp or two, and a million entries that share a
//! small mass beside one large entry still sum to what they should. Sums run in f32 for at
//! most [`BLOCK`] terms a lane and are collected in f64.
//!
//! What is done about time: a long list is first solved on every eighth vector of it, for
//! an eighth of the mass. From that guess, on whichever side of the root it lies, one
//! Newton step over all entries lands left of the root and close to it.

use super::pair::Pair;
use super::profile::{At, Profile, STEPS, Slope, Tau};
use super::vector::{Vector, outlined};

/// Terms that a lane adds in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Lists at least this long are sampled first.
const SAMPLED: usize = 256;

/// The frame in which entries are measured: `x = (z − max)·scale`.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) max: f32,
    pub(crate) scale: f32,
}

/// The largest f32 that is not above `tau`.
#[inline(always)]
pub(super) fn floor32(tau: f64) -> f32 {
    let t = tau as f32;
    if f64::from(t) > tau { t.next_down() } else { t }
}

/// `(z − max)·scale`, or `z` itself when the list holds such differences already.
#[inline(always)]
fn measure<V: Vector, const READY: bool>(z: V, max: V, scale: V) -> V {
    if READY { z } else { z.sub(max).mul(scale) }
}

outlined! {
    /// Replaces the scores of a list, in place, by `x = (z − max)·scale`.
    ///
    /// # Safety
    /// `list` is readable and writable for `len` floats rounded up to whole vectors; the CPU
    /// has the instruction set of `V`.
    pub(crate) unsafe fn make_ready<V>(list: *mut f32, len: usize, frame: Frame) -> () => ready
}

/// # Safety
/// As [`make_ready`].
#[inline(always)]
unsafe fn ready<V: Vector>(list: *mut f32, len: usize, frame: Frame) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let mut i = 0;
        while i < len {
            V::load(list.add(i)).sub(max).mul(scale).store(list.add(i));
            i += V::LANES;
        }
    }
}

outlined! {
    /// `Σ f(u)` and `Σ g(u)` over `len` entries.
    ///
    /// # Safety
    /// `z` is readable for `len` floats; the CPU has the instruction set of `V`.
    pub(crate) unsafe fn sums<V, P: Slope; READY>(
        prof: P,
        z: *const f32,
        len: usize,
        frame: Frame,
        tau: Tau,
    ) -> (f64, f64) => sums_any
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn sums_any<V: Vector, P: Slope, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    tau: Tau,
) -> (f64, f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        if P::DEAR && len > V::LANES {
            sums_of::<Pair<V>, P, READY>(prof, z, len, frame, tau)
        } else {
            sums_of::<V, P, READY>(prof, z, len, frame, tau)
        }
    }
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn sums_of<V: Vector, P: Slope, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    tau: Tau,
) -> (f64, f64) {
    // SAFETY: every load stays within `len` floats; the caller vouches for the rest.
    unsafe {
        let (at, zero) = (At::new(tau), V::splat(0.0));
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let (mut wf, mut wg) = (V::wide_zero(), V::wide_zero());
        // Dear terms fill the registers on their own.
        let unroll = if P::DEAR { 1 } else { 4 };
        let group = unroll * V::LANES;
        let mut i = 0;
        while i + group <= len {
            let (mut f, mut g) = ([zero; 4], [zero; 4]);
            let end = len.min(i + group * BLOCK);
            while i + group <= end {
                for k in 0..unroll {
                    let x = measure::<V, READY>(V::load(z.add(i + k * V::LANES)), max, scale);
                    let (a, b) = prof.terms(x, &at);
                    f[k] = f[k].add(a);
                    g[k] = g[k].add(b);
                }
                i += group;
            }
            wf = V::wide_add(wf, f[0].add(f[1]).add(f[2].add(f[3])));
            wg = V::wide_add(wg, g[0].add(g[1]).add(g[2].add(g[3])));
        }
        while i < len {
            let n = (len - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            let x = measure::<V, READY>(v, max, scale);
            let (a, b) = prof.terms(x, &at);
            wf = V::wide_add(wf, a);
            wg = V::wide_add(wg, b);
            i += n;
        }
        (V::wide_total(wf), V::wide_total(wg))
    }
}

/// τ for `len` entries, from a start that is not right of it.
///
/// # Safety
/// As [`sums`].
pub(crate) unsafe fn solve<V: Vector, P: Profile, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    start: f64,
) -> f64 {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut tau = start;
        if len >= SAMPLED {
            let guess = sampled::<V, P, READY>(prof, z, len, frame, start as f32);
            if guess > start as f32 {
                let (f, g) = sums::<V, P, READY>(prof, z, len, frame, Tau::new(f64::from(guess)));
                // Far right of the root the step may fall behind what was known before.
                if g > 0.0 {
                    tau = start.max(f64::from(guess) + prof.step_wide(f, g));
                }
            }
        }
        let mut before = f64::INFINITY;
        for _ in 0..STEPS {
            let from = if P::ROUGH { f64::from(floor32(tau)) } else { tau };
            let (f, g) = sums::<V, P, READY>(prof, z, len, frame, Tau::new(from));
            let step = prof.step_wide(f, g);
            tau = from + step;
            if !prof.unsettled_wide((f, g), before, step, len as f64) {
                break;
            }
            // After a step back nothing is known of the slope.
            before = if step < 0.0 { f64::INFINITY } else { g };
        }
        tau
    }
}

outlined! {
    /// A guess at τ: the root for every eighth vector of the list and as small a share of the
    /// mass. Not a bound: the sample may be lucky or unlucky.
    ///
    /// # Safety
    /// As [`sums`], with at least eight vectors.
    unsafe fn sampled<V, P: Profile; READY>(
        prof: P,
        z: *const f32,
        len: usize,
        frame: Frame,
        start: f32,
    ) -> f32 => sampled_any
}

/// # Safety
/// As [`sampled`].
#[inline(always)]
unsafe fn sampled_any<V: Vector, P: Profile, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    start: f32,
) -> f32 {
    // SAFETY: every load stays within `len` floats.
    unsafe {
        let (max, scale, zero) = (V::splat(frame.max), V::splat(frame.scale), V::splat(0.0));
        let vectors = len / (8 * V::LANES);
        let share = len as f64 / (vectors * V::LANES) as f64;
        let mut tau = start;
        for _ in 0..8 {
            let at = At::new(Tau::new(f64::from(tau)));
            let (mut wf, mut wg) = (V::wide_zero(), V::wide_zero());
            let mut i = 0;
            while i < vectors {
                let (mut f, mut g) = (zero, zero);
                let end = vectors.min(i + BLOCK);
                while i < end {
                    let x = measure::<V, READY>(V::load(z.add(8 * i * V::LANES)), max, scale);
                    let (a, b) = prof.terms(x, &at);
                    f = f.add(a);
                    g = g.add(b);
                    i += 1;
                }
                wf = V::wide_add(wf, f);
                wg = V::wide_add(wg, g);
            }
            let (f, g) = (V::wide_total(wf) * share, V::wide_total(wg) * share);
            if g <= 0.0 || f <= 1.001 {
                break;
            }
            tau += prof.step_wide(f, g) as f32;
        }
        tau
    }
}

/// A lower bound on τ from a few entries of the row: τ of a subset is not right of τ of
/// all, and neither is any Newton iterate from the left.
///
/// # Safety
/// As [`sums`].
pub(crate) unsafe fn bound<V: Vector, P: Slope>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    start: f64,
    steps: usize,
) -> f64 {
    let mut tau = start;
    for _ in 0..steps {
        // SAFETY: as the caller vouches.
        let (f, g) = unsafe { sums::<V, P, false>(prof, z, len, frame, Tau::new(f64::from(tau as f32))) };
        tau += prof.step_wide(f, g);
        if f < 1.01 {
            break;
        }
    }
    tau
}

/// The score at or below which an entry is zero for certain, given a lower bound on τ.
/// Steps back by more than all roundings on the way, so that no supported entry is lost.
#[inline(always)]
pub(crate) fn cut(tau: f32, frame: Frame) -> f32 {
    let depth = (tau - 1e-6) / frame.scale;
    frame.max + depth - (frame.max.abs() + depth.abs()) * 2.4e-7
}

/// τ of `LANES` rows at once, one row per lane, as two floats to be added.
///
/// Slot `k` of `c` holds `x` of entry `k` of every row; short rows are padded with `−inf`,
/// which adds exactly nothing, and a lane that has settled keeps its τ: a row's result does
/// not depend on its neighbours.
///
/// # Safety
/// `c` is readable for `slots · LANES` floats, `slots` is a multiple of 4, and the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn solve_lanes<V: Vector, P: Profile>(
    prof: P,
    c: *const f32,
    slots: usize,
    start: V,
    counts: V,
) -> (V, V) {
    // SAFETY: every load stays within `slots` vectors.
    unsafe {
        let zero = V::splat(0.0);
        let hair = V::splat(1.0 + f32::EPSILON);
        let (mut tau, mut step) = (start, zero);
        let mut before = V::splat(f32::INFINITY);
        let mut active = counts.gt(zero);
        for _ in 0..STEPS {
            // A hair to the left (τ is negative): rounding must not carry it past the root.
            tau = tau.add(step).mul(hair).select(active, tau);
            let at = At::lanes(tau);
            let (mut f, mut g) = ([zero; 4], [zero; 4]);
            let mut i = 0;
            while i < slots {
                for k in 0..4 {
                    let x = V::load(c.add((i + k) * V::LANES));
                    let (a, b) = prof.terms(x, &at);
                    f[k] = f[k].add(a);
                    g[k] = g[k].add(b);
                }
                i += 4;
            }
            let f = f[0].add(f[1]).add(f[2].add(f[3]));
            let g = g[0].add(g[1]).add(g[2].add(g[3]));
            step = prof.step(f, g).select(active, step);
            active = V::and(active, prof.unsettled((f, g), before, step, counts));
            if V::bits(active) == 0 {
                break;
            }
            before = V::splat(f32::INFINITY).select(zero.gt(step), g);
        }
        (tau, step)
    }
}
