//! Vector–Jacobian products from `p` alone.
//!
//! With `s_i = p_i^{2−α}` on the support and 0 off it, `Jv = scale · s ⊙ (v − <s,v>/Σs)`:
//! softmax has `s = p` (and `Σs = 1` is not assumed), sparsemax `s = 1`, 1.5-entmax `s = √p`.
//! Two passes: the two sums, then the products. A long row that is sparse is read once: its
//! support is listed, `v` is read there alone, and the rest is filled with zeros. Entries of `v` off the support are masked
//! out before anything is done with them, so an infinity there does no harm.

use super::scan::{collect, collect_indexed};
use super::vector::{MAX_LANES, Vector, outlined};
use super::{Backward, Map, alpha_backward};

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Widest row whose sums are finished together with those of its neighbours.
const SHORT: usize = 512;

/// `s` as a function of `p`.
pub(crate) trait Weight: Copy {
    /// Whether `p` can be expected to hold zeros.
    const SPARSE: bool = true;
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
    const SPARSE: bool = false;
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
pub(crate) unsafe fn any<V: Vector>(map: Map, job: &mut Backward<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match map {
            Map::Softmax | Map::EvSoftmax => rows::<V, _>(Identity, job),
            Map::Sparsemax => rows::<V, _>(Indicator, job),
            Map::Entmax15 => rows::<V, _>(Root, job),
            Map::Entmax(alpha) => alpha_backward::rows::<V>(alpha, job, None),
        }
    }
}

/// The rows of a block, by pointer.
#[derive(Clone, Copy)]
struct Rows {
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
    scale: f32,
}

impl Rows {
    /// From row `r` on.
    ///
    /// # Safety
    /// There are at least `r` rows.
    unsafe fn from(self, r: usize) -> Rows {
        let at = r * self.d;
        // SAFETY: as the caller vouches.
        unsafe { Rows { p: self.p.add(at), v: self.v.add(at), out: self.out.add(at), ..self } }
    }
}

/// # Safety
/// As [`any`].
unsafe fn rows<V: Vector, W: Weight>(weight: W, job: &mut Backward<'_>) {
    let (d, n) = (job.d, job.out.len() / job.d);
    let (p, v, out) = (job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
    let all = Rows { p, v, out, d, scale: job.scale };
    // SAFETY: as the caller vouches; row `r` lies within all three slices.
    unsafe {
        if d <= SHORT {
            for first in (0..n).step_by(V::LANES) {
                short_rows::<V, W>(weight, all.from(first), (n - first).min(V::LANES));
            }
        } else {
            let lists = job.scratch.lists(d + 2 * V::LANES);
            for r in 0..n {
                long_row::<V, W>(weight, all.from(r), lists);
            }
        }
    }
}

outlined! {
    /// One long row.
    ///
    /// # Safety
    /// As [`any`], with lists that are writable for `d + 2·LANES` elements.
    unsafe fn long_row<V, W: Weight>(weight: W, row: Rows, lists: (*mut f32, *mut u32)) -> ()
        => long_row_any
}

/// # Safety
/// As [`long_row`].
#[inline(always)]
unsafe fn long_row_any<V: Vector, W: Weight>(weight: W, row: Rows, (list, index): (*mut f32, *mut u32)) {
    let Rows { p, v, out, d, scale } = row;
    // SAFETY: as the caller vouches.
    unsafe {
        // A dense start of the row promises a dense row: no list for it.
        let crowded = !W::SPARSE || collect::<V>(p, 256, 0.0, list) > 64;
        let n = if crowded { d } else { collect_indexed::<V>(p, d, 0.0, 0, list, index) };
        if n > d / 8 {
            let (sv, s) = sums::<V, W>(weight, p, v, d);
            let mean = if s > 0.0 { (sv / s) as f32 } else { 0.0 };
            products::<V, W>(weight, p, v, out, d, mean, scale);
        } else {
            scattered::<V, W>(weight, (list, index, n), v, out, d, scale);
        }
    }
}

outlined! {
    /// `here ≤ LANES` short rows: their sums are left in their lanes, transposed, and finished
    /// together.
    ///
    /// # Safety
    /// As [`any`], for `here` rows of `d ≤ SHORT`.
    unsafe fn short_rows<V, W: Weight>(weight: W, rows: Rows, here: usize) -> () => short_rows_any
}

/// # Safety
/// As [`short_rows`].
#[inline(always)]
unsafe fn short_rows_any<V: Vector, W: Weight>(weight: W, rows: Rows, here: usize) {
    let Rows { p, v, out, d, scale } = rows;
    // SAFETY: row `r` lies within all three for `r < here`.
    unsafe {
        let zero = V::splat(0.0);
        let mut lane = [[0.0f32; MAX_LANES * MAX_LANES]; 2];
        for r in 0..here {
            let (sv, s) = lane_sums::<V, W>(weight, p.add(r * d), v.add(r * d), d);
            sv.store(lane[0].as_mut_ptr().add(r * V::LANES));
            s.store(lane[1].as_mut_ptr().add(r * V::LANES));
        }
        let mut total = [zero; 2];
        let mut across = [0.0f32; MAX_LANES * MAX_LANES];
        for k in 0..2 {
            V::transpose(lane[k].as_ptr(), V::LANES, across.as_mut_ptr());
            for j in 0..V::LANES {
                total[k] = total[k].add(V::load(across.as_ptr().add(j * V::LANES)));
            }
        }
        let mut means = [0.0f32; MAX_LANES];
        total[0].div(total[1]).keep(total[1].gt(zero)).store(means.as_mut_ptr());
        for r in 0..here {
            let (p, v, out) = (p.add(r * d), v.add(r * d), out.add(r * d));
            products::<V, W>(weight, p, v, out, d, means[r], scale);
        }
    }
}

/// `<s, v>` and `Σ s` lane by lane, in f32: at most `SHORT / LANES` terms each.
///
/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn lane_sums<V: Vector, W: Weight>(weight: W, p: *const f32, v: *const f32, d: usize) -> (V, V) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let (mut sv, mut s) = ([zero; 2], [zero; 2]);
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            for k in 0..2 {
                let q = V::load(p.add(i + k * V::LANES));
                let w = weight.weight(q);
                let g = V::load(v.add(i + k * V::LANES)).keep(q.gt(zero));
                sv[k] = w.fma(g, sv[k]);
                s[k] = s[k].add(w);
            }
            i += 2 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(p.add(i), n, 0.0);
            let w = weight.weight(q);
            sv[0] = w.fma(V::load_first(v.add(i), n, 0.0).keep(q.gt(zero)), sv[0]);
            s[0] = s[0].add(w);
            i += n;
        }
        (sv[0].add(sv[1]), s[0].add(s[1]))
    }
}

/// A sparse row: the product on its `n` supported entries, put into a row of zeros.
///
/// # Safety
/// `list` holds the positive entries of `p` (readable and writable up to whole vectors) and
/// `index` their positions, all below `d`; `v` is readable and `out` writable for `d` floats;
/// the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn scattered<V: Vector, W: Weight>(
    weight: W,
    (list, index, n): (*mut f32, *const u32, usize),
    v: *const f32,
    out: *mut f32,
    d: usize,
    scale: f32,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        std::ptr::write_bytes(out, 0, d);
        let mut i = 0;
        while i < n {
            weight.weight(V::load(list.add(i))).store(list.add(i));
            i += V::LANES;
        }
        let (mut sv, mut s) = (0.0, 0.0);
        for k in 0..n {
            let w = f64::from(*list.add(k));
            sv += w * f64::from(*v.add(*index.add(k) as usize));
            s += w;
        }
        let mean = if s > 0.0 { (sv / s) as f32 } else { 0.0 };
        for k in 0..n {
            let i = *index.add(k) as usize;
            *out.add(i) = *list.add(k) * scale * (*v.add(i) - mean);
        }
    }
}

/// `<s, v>` and `Σ s`.
///
/// # Safety
/// `p` and `v` are readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn sums<V: Vector, W: Weight>(weight: W, p: *const f32, v: *const f32, d: usize) -> (f64, f64) {
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
