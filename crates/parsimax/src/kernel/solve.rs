//! Finding τ: one long list of entries, or one row per lane.
//!
//! Plainly: start left of the root and repeat `τ += step(Σ f(u), Σ g(u))` with
//! `u = [x − τ]₊` until nothing changes (see `profile.rs` for why that is fast).
//!
//! What is done about rounding: `x = (z − max)·scale` enters through one fused
//! multiply-add and τ is kept as two floats, so `u` has a relative error of one or two
//! ulp however small it is against τ. A million entries that share a small mass beside
//! one large entry then still sum to what they should. Sums run in f32 for at most
//! [`BLOCK`] terms a lane and are collected in f64.

use super::profile::{Profile, STEPS};
use super::vector::Vector;

/// Terms that a lane adds in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// The frame in which entries are measured: `x = (z − max)·scale`.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) max: f32,
    pub(crate) scale: f32,
}

/// τ as two floats whose sum carries about 48 bits.
#[inline(always)]
pub(crate) fn split(tau: f64) -> (f32, f32) {
    let hi = tau as f32;
    (hi, (tau - f64::from(hi)) as f32)
}

/// `[ (z − max)·scale − τ ]₊` with τ in two parts.
#[inline(always)]
pub(crate) fn excess<V: Vector>(z: V, max: V, scale: V, hi: V, lo: V, zero: V) -> V {
    z.sub(max).fms(scale, hi).sub(lo).max(zero)
}

/// `Σ f(u)` and `Σ g(u)` over `len` entries.
///
/// # Safety
/// `z` is readable for `len` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn sums<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    tau: f64,
) -> (f64, f64) {
    // SAFETY: every load stays within `len` floats; the caller vouches for the rest.
    unsafe {
        let (hi, lo) = split(tau);
        let (hi, lo, zero) = (V::splat(hi), V::splat(lo), V::splat(0.0));
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let (mut wf, mut wg) = (V::wide_zero(), V::wide_zero());
        let mut i = 0;
        while i + 4 * V::LANES <= len {
            let (mut f, mut g) = ([zero; 4], [zero; 4]);
            let end = len.min(i + 4 * V::LANES * BLOCK);
            while i + 4 * V::LANES <= end {
                for k in 0..4 {
                    let v = V::load(z.add(i + k * V::LANES));
                    let (a, b) = prof.terms(excess(v, max, scale, hi, lo, zero));
                    f[k] = f[k].add(a);
                    g[k] = g[k].add(b);
                }
                i += 4 * V::LANES;
            }
            wf = V::wide_add(wf, f[0].add(f[1]).add(f[2].add(f[3])));
            wg = V::wide_add(wg, g[0].add(g[1]).add(g[2].add(g[3])));
        }
        while i < len {
            let n = (len - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            let (a, b) = prof.terms(excess(v, max, scale, hi, lo, zero));
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
#[inline(always)]
pub(crate) unsafe fn solve<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    start: f64,
) -> f64 {
    let (mut tau, mut before) = (start, f64::INFINITY);
    for _ in 0..STEPS {
        // SAFETY: as the caller vouches.
        let (f, g) = unsafe { sums::<V, P>(prof, z, len, frame, tau) };
        let step = prof.step_wide(f, g);
        tau += step;
        if !prof.unsettled_wide((f, g), before, step, len as f64) {
            break;
        }
        before = g;
    }
    tau
}

/// A lower bound on τ from a few entries of the row: τ of a subset is not right of τ of
/// all, and neither is any Newton iterate. Four steps take most of the way.
///
/// # Safety
/// As [`sums`].
#[inline(always)]
pub(crate) unsafe fn bound<V: Vector, P: Profile>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
) -> f64 {
    let mut tau = -1.0;
    for _ in 0..4 {
        // SAFETY: as the caller vouches.
        let (f, g) = unsafe { sums::<V, P>(prof, z, len, frame, tau) };
        tau += prof.step_wide(f, g);
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

/// τ of `LANES` rows at once, one row per lane.
///
/// Slot `k` of `c` holds entry `k` of every row; short rows are padded with `−inf`, which
/// adds exactly nothing, and a lane that has settled keeps its τ: a row's result does not
/// depend on its neighbours.
///
/// # Safety
/// `c` is readable for `slots · LANES` floats, `slots` is a multiple of 4, and the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn solve_lanes<V: Vector, P: Profile>(
    prof: P,
    c: *const f32,
    slots: usize,
    max: V,
    scale: V,
    start: V,
    counts: V,
) -> (V, V) {
    // SAFETY: every load stays within `slots` vectors.
    unsafe {
        let zero = V::splat(0.0);
        let (mut hi, mut lo) = (start, zero);
        let mut before = V::splat(f32::INFINITY);
        let mut active = counts.gt(zero);
        for _ in 0..STEPS {
            let (mut f, mut g) = ([zero; 4], [zero; 4]);
            let mut i = 0;
            while i < slots {
                for k in 0..4 {
                    let v = V::load(c.add((i + k) * V::LANES));
                    let (a, b) = prof.terms(excess(v, max, scale, hi, lo, zero));
                    f[k] = f[k].add(a);
                    g[k] = g[k].add(b);
                }
                i += 4;
            }
            let f = f[0].add(f[1]).add(f[2].add(f[3]));
            let g = g[0].add(g[1]).add(g[2].add(g[3]));
            let step = prof.step(f, g).keep(active);
            // hi + lo + step without loss: Knuth's two-sum, then renormalise.
            let s = hi.add(step);
            let t = s.sub(hi);
            let e = hi.sub(s.sub(t)).add(step.sub(t)).add(lo);
            hi = s.add(e);
            lo = e.sub(hi.sub(s));
            active = V::and(active, prof.unsettled((f, g), before, step, counts));
            if V::bits(active) == 0 {
                break;
            }
            before = g;
        }
        (hi, lo)
    }
}
