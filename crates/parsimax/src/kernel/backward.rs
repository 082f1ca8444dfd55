//! Vector–Jacobian products from `p` alone.
//!
//! With `s_i = p_i^{2−α}` on the support and 0 off it, `Jv = scale · s ⊙ (v − <s,v>/Σs)`:
//! softmax has `s = p` (and `Σs = 1` is not assumed), sparsemax `s = 1`, 1.5-entmax `s = √p`.
//! Two passes: the two sums, then the products. Entries of `v` off the support are masked
//! out before anything is done with them, so an infinity there does no harm.

use super::vector::Vector;
use super::{Backward, Map};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// `s` as a function of `p`.
pub(crate) trait Weight: Copy {
    /// `s(p)`; 0 where `p` is 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn weight<V: Vector>(&self, p: V) -> V;
}

/// `s = p`.
#[derive(Clone, Copy)]
struct Identity;

impl Weight for Identity {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        p
    }
}

/// `s = 1` on the support.
#[derive(Clone, Copy)]
struct Indicator;

impl Weight for Indicator {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { V::splat(1.0).keep(p.gt(V::splat(0.0))) }
    }
}

/// `s = √p`.
#[derive(Clone, Copy)]
struct Root;

impl Weight for Root {
    #[inline(always)]
    unsafe fn weight<V: Vector>(&self, p: V) -> V {
        p.sqrt()
    }
}

/// Dispatch on the mapping.
///
/// # Safety
/// `p`, `v` and `out` hold the same whole number of rows of `d ≥ 1` floats, and the CPU has
/// the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn any<V: Vector>(map: Map, job: &mut Backward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::Softmax => rows::<V, _>(Identity, job),
            Map::Sparsemax => rows::<V, _>(Indicator, job),
            Map::Entmax15 => rows::<V, _>(Root, job),
        }
    }
}

/// # Safety
/// As [`any`].
#[inline(always)]
unsafe fn rows<V: Vector, W: Weight>(weight: W, job: &mut Backward<'_>) {
    let d = job.d;
    for r in 0..job.out.len() / d {
        // SAFETY: row `r` lies within all three slices.
        unsafe {
            let (p, v) = (job.p.as_ptr().add(r * d), job.v.as_ptr().add(r * d));
            let out = job.out.as_mut_ptr().add(r * d);
            let (sv, s) = sums::<V, W>(weight, p, v, d);
            let mean = if s > 0.0 { (sv / s) as f32 } else { 0.0 };
            products::<V, W>(weight, p, v, out, d, mean, job.scale);
        }
    }
}

/// `<s, v>` and `Σ s`.
///
/// # Safety
/// `p` and `v` are readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn sums<V: Vector, W: Weight>(
    weight: W,
    p: *const f32,
    v: *const f32,
    d: usize,
) -> (f64, f64) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let (mut wide_sv, mut wide_s) = (V::wide_zero(), V::wide_zero());
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            let (mut sv, mut s) = ([zero; 2], [zero; 2]);
            let end = d.min(i + 2 * V::LANES * BLOCK);
            while i + 2 * V::LANES <= end {
                for k in 0..2 {
                    let q = V::load(p.add(i + k * V::LANES));
                    let w = weight.weight(q);
                    let g = V::load(v.add(i + k * V::LANES)).keep(q.gt(zero));
                    sv[k] = w.fma(g, sv[k]);
                    s[k] = s[k].add(w);
                }
                i += 2 * V::LANES;
            }
            wide_sv = V::wide_add(wide_sv, sv[0].add(sv[1]));
            wide_s = V::wide_add(wide_s, s[0].add(s[1]));
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(p.add(i), n, 0.0);
            let w = weight.weight(q);
            let g = V::load_first(v.add(i), n, 0.0).keep(q.gt(zero));
            wide_sv = V::wide_add(wide_sv, w.mul(g));
            wide_s = V::wide_add(wide_s, w);
            i += n;
        }
        (V::wide_total(wide_sv), V::wide_total(wide_s))
    }
}

/// `out = scale · s ⊙ (v − mean)`.
///
/// # Safety
/// `p` and `v` are readable and `out` writable for `d` floats; the CPU has the instruction
/// set of `V`.
#[inline(always)]
unsafe fn products<V: Vector, W: Weight>(
    weight: W,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
    mean: f32,
    scale: f32,
) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (mean, scale, zero) = (V::splat(mean), V::splat(scale), V::splat(0.0));
        let mut i = 0;
        while i + V::LANES <= d {
            let q = V::load(p.add(i));
            let w = weight.weight(q).mul(scale);
            let g = V::load(v.add(i)).sub(mean).keep(q.gt(zero));
            w.mul(g).store(out.add(i));
            i += V::LANES;
        }
        if i < d {
            let n = d - i;
            let q = V::load_first(p.add(i), n, 0.0);
            let w = weight.weight(q).mul(scale);
            let g = V::load_first(v.add(i), n, 0.0).sub(mean).keep(q.gt(zero));
            w.mul(g).store_first(out.add(i), n);
        }
    }
}
