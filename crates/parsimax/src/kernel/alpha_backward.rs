//! Backward pass of α-entmax with the gradient in α.
//!
//! In the scores: `s = p^{2−α}` on the support, `w = v − <s,v>/Σs` and `Jv = scale · s ⊙ w`.
//!
//! In α: with `δ = α − 1`, `x = scale · z` and `u = δx − τ`, `p = u^{1/δ}`, so
//! `δ · ∂p_i/∂α = s_i (x_i − τ') − p_i ln p_i` where `τ'` keeps the sum at 1. Against `v` the `τ'`
//! turns `v` into `w`, for which `Σ s w = 0`; with that and `x = (u + τ)/δ`,
//! `<v, ∂p/∂α> = Σ w p (1 − ln u)/δ²`, and any multiple of `s` may be added to `p (1 − ln u)`.
//! Measured from the largest entry, `e = x − x₀ ≤ 0`, `q = δe/u₀`, that leaves
//!
//! ```text
//! <v, ∂p/∂α> = −Σ s w g,   g = e ln p₀ + (e²/u₀) h(q),   h(q) = ((1+q) ln(1+q) − q)/q²
//! ```
//!
//! which divides by no power of δ and adds what is not negative to what is not negative. Between
//! nearly equal entries it lives on the differences of scores, which are exact, where the
//! probabilities, rounded to f32, have lost them. `Σ s w g` is taken as a covariance, so that the
//! rounding of the mean does not matter.

use super::Backward;
use super::backward::{Identity, Indicator, Power, Root, Weight};
use super::expo::{exp2_nonpos, log2};
use super::scan::collect_indexed;
use super::vector::{MAX_LANES, Vector, outlined};

/// `|q|` up to which `h` is summed as a series.
const NEAR: f32 = 0.25;

/// Vectors whose lanes are summed in f32 before the sum moves to f64.
const FEW: usize = 16;

/// `(−1)ⁿ/((n+1)(n+2))` from n = 8 down to 0.
const SERIES: [f32; 9] =
    [1.0 / 90.0, -1.0 / 72.0, 1.0 / 56.0, -1.0 / 42.0, 1.0 / 30.0, -1.0 / 20.0, 1.0 / 12.0, -1.0 / 6.0, 0.5];

/// Backward pass of a block of rows at scores `z`; `dalpha` gets one number a row.
///
/// # Safety
/// The slices of `job` have the lengths that `Backward` promises, `z` that of `job.p`, `d ≥ 1`,
/// `dalpha` has one number a row, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    // SAFETY: as the caller vouches.
    unsafe {
        if alpha > 2.0 {
            above_rows::<V>(alpha, job, z, dalpha);
        } else if alpha == 2.0 {
            each::<V, _>(Indicator(job.scale), alpha, job, z, dalpha);
        } else if alpha == 1.5 {
            each::<V, _>(Root(job.scale), alpha, job, z, dalpha);
        } else if alpha == 1.0 {
            each::<V, _>(Identity(job.scale), alpha, job, z, dalpha);
        } else {
            each::<V, _>(Power::new(alpha, job.scale), alpha, job, z, dalpha);
        }
    }
}

/// One row, by pointer.
#[derive(Clone, Copy)]
struct Row {
    z: *const f32,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
    delta: f64,
    scale: f32,
}

/// # Safety
/// As [`rows`].
unsafe fn each<V: Vector, W: Weight>(weight: W, alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    let (d, scale) = (job.d, job.scale);
    for (r, slope) in dalpha.iter_mut().enumerate() {
        // SAFETY: row `r` lies within all four slices.
        unsafe {
            let (z, p, v) = (z.as_ptr().add(r * d), job.p.as_ptr().add(r * d), job.v.as_ptr().add(r * d));
            let out = job.out.as_mut_ptr().add(r * d);
            *slope = one_row::<V, W>(weight, Row { z, p, v, out, d, delta: alpha - 1.0, scale });
        }
    }
}

outlined! {
    /// `Jv` into `out`, and `<v, ∂p/∂α>`.
    ///
    /// # Safety
    /// The pointers are readable, `out` writable, for `d` floats; the CPU has the instruction set.
    unsafe fn one_row<V, W: Weight>(weight: W, row: Row) -> f64 => one_row_any
}

/// # Safety
/// As [`one_row`].
#[inline(always)]
unsafe fn one_row_any<V: Vector, W: Weight>(weight: W, row: Row) -> f64 {
    // SAFETY: as the caller vouches.
    unsafe {
        let first = weigh::<V, W>(weight, row);
        if first.s <= 0.0 {
            return 0.0;
        }
        let bend = Bend::new(&row, &first);
        let [swg, sg, sw] = finish::<V>(row, &bend, (first.sv / first.s) as f32);
        // The weights carry the factor `scale`; the gradient in α does not.
        -(swg - sg / first.s * sw) / f64::from(row.scale)
    }
}

/// `n ≤ LANES` floats; zeros behind them.
///
/// # Safety
/// As [`Vector::load_first`].
#[inline(always)]
unsafe fn read<V: Vector>(from: *const f32, n: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe { if n == V::LANES { V::load(from) } else { V::load_first(from, n, 0.0) } }
}

/// # Safety
/// As [`Vector::store_first`].
#[inline(always)]
unsafe fn write<V: Vector>(value: V, to: *mut f32, n: usize) {
    // SAFETY: as the caller vouches.
    unsafe { if n == V::LANES { value.store(to) } else { value.store_first(to, n) } }
}

/// What the first pass finds: `Σs`, `<s,v>`, the largest score of the support and its probability.
struct First {
    s: f64,
    sv: f64,
    top_score: f32,
    top: f32,
}

/// Leaves the weights in `out`, zeros off the support.
///
/// # Safety
/// As [`one_row`].
#[inline(always)]
unsafe fn weigh<V: Vector, W: Weight>(weight: W, row: Row) -> First {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (zero, low) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let (mut s, mut sv, mut top_score, mut top) = (V::wide_zero(), V::wide_zero(), low, zero);
        let (mut few, mut few_v) = (zero, zero);
        let mut i = 0;
        while i < row.d {
            if i.is_multiple_of(FEW * V::LANES) {
                (s, sv) = (V::wide_add(s, few), V::wide_add(sv, few_v));
                (few, few_v) = (zero, zero);
            }
            let n = (row.d - i).min(V::LANES);
            let p = read::<V>(row.p.add(i), n);
            let on = p.gt(zero);
            if V::bits(on) == 0 {
                write(zero, row.out.add(i), n);
                i += n;
                continue;
            }
            let w = weight.weight(p);
            write(w, row.out.add(i), n);
            let v = read::<V>(row.v.add(i), n).keep(on);
            few = few.add(w);
            few_v = w.fma(v, few_v);
            top = p.max(top);
            top_score = read::<V>(row.z.add(i), n).select(on, low).max(top_score);
            i += n;
        }
        (s, sv) = (V::wide_add(s, few), V::wide_add(sv, few_v));
        let (top_score, top) = (top_score.reduce_max(), top.reduce_max());
        First { s: V::wide_total(s), sv: V::wide_total(sv), top_score, top }
    }
}

/// What `g` needs of its row.
struct Bend {
    top_score: f32,
    /// From differences of scores to `q`.
    to_q: f32,
    scale: f32,
    log_top: f32,
    /// `1/u₀`
    inverse: f32,
    /// `u₀/δ²`, for `e²/u₀ = (u₀/δ²) q²` far from 0.
    far: f32,
}

impl Bend {
    #[inline(always)]
    fn new(row: &Row, first: &First) -> Bend {
        let (delta, scale) = (row.delta, f64::from(row.scale));
        let log_top = f64::from(first.top).ln();
        let u = (delta * log_top).exp();
        Bend {
            top_score: first.top_score,
            to_q: (delta * scale / u) as f32,
            scale: row.scale,
            log_top: log_top as f32,
            inverse: (1.0 / u) as f32,
            far: if delta > 0.0 { (u / (delta * delta)).min(1e30) as f32 } else { 0.0 },
        }
    }

    /// `g` of scores.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn of<V: Vector>(&self, z: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let gap = z.sub(V::splat(self.top_score));
            let (e, q) = (gap.mul(V::splat(self.scale)), gap.mul(V::splat(self.to_q)));
            // h = Σ (−q)ⁿ/((n+1)(n+2)); the term after the last is below 1e−8.
            let mut h = V::splat(-1.0 / 110.0);
            for c in SERIES {
                h = h.fma(q, V::splat(c));
            }
            let mut bent = e.mul(e).mul(V::splat(self.inverse)).mul(h);
            let far = V::splat(-NEAR).gt(q);
            if V::bits(far) != 0 {
                let u = q.add(V::splat(1.0)).max(V::splat(1e-30));
                let log = log2(u).mul(V::splat(std::f32::consts::LN_2));
                bent = u.fma(log, V::splat(0.0).sub(q)).mul(V::splat(self.far)).select(far, bent);
            }
            e.fma(V::splat(self.log_top), bent)
        }
    }
}

/// The products into `out`, and `Σ s w g`, `Σ s g`, `Σ s w`.
///
/// # Safety
/// As [`one_row`], after [`weigh`].
#[inline(always)]
unsafe fn finish<V: Vector>(row: Row, bend: &Bend, mean: f32) -> [f64; 3] {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let (mut swg, mut sg, mut total) = (V::wide_zero(), V::wide_zero(), V::wide_zero());
        let (mut few_swg, mut few_sg, mut few) = (zero, zero, zero);
        let mut i = 0;
        while i < row.d {
            if i.is_multiple_of(FEW * V::LANES) {
                (swg, sg, total) = (V::wide_add(swg, few_swg), V::wide_add(sg, few_sg), V::wide_add(total, few));
                (few_swg, few_sg, few) = (zero, zero, zero);
            }
            let n = (row.d - i).min(V::LANES);
            let s = read::<V>(row.out.add(i), n);
            let on = s.gt(zero);
            if V::bits(on) != 0 {
                let sw = read::<V>(row.v.add(i), n).sub(V::splat(mean)).keep(on).mul(s);
                let g = bend.of(read::<V>(row.z.add(i), n).select(on, V::splat(bend.top_score)));
                write(sw, row.out.add(i), n);
                few_swg = sw.fma(g, few_swg);
                few_sg = s.fma(g, few_sg);
                few = few.add(sw);
            }
            i += n;
        }
        (swg, sg, total) = (V::wide_add(swg, few_swg), V::wide_add(sg, few_sg), V::wide_add(total, few));
        [V::wide_total(swg), V::wide_total(sg), V::wide_total(total)]
    }
}

/// α > 2 without scores, on the list of the support. `v` is measured from the entry with the largest `s`, so
/// that nothing cancels against it.
///
/// # Safety
/// As [`rows`], without scores.
pub(super) unsafe fn above_two<V: Vector>(alpha: f64, job: &mut Backward<'_>) {
    let d = job.d;
    let room = d + 2 * MAX_LANES;
    for r in 0..job.out.len() / d {
        let at = r * d..(r + 1) * d;
        let (list, index) = job.scratch.lists(2 * room);
        let (p, v, out) = (&job.p[at.clone()], &job.v[at.clone()], &mut job.out[at]);
        out.fill(0.0);
        // SAFETY: the lists have room for a row and two vectors, twice; the caller vouches for the rest.
        unsafe {
            let n = support::<V>(p.as_ptr(), d, list, index);
            let (list, weights) = (std::slice::from_raw_parts(list, n), list.add(room));
            let index = std::slice::from_raw_parts(index, n);
            let (mut least, mut from) = (f32::INFINITY, 0.0);
            for (p, i) in list.iter().zip(index) {
                if *p < least {
                    (least, from) = (*p, v[*i as usize]);
                }
            }
            if n == 0 {
                continue;
            }
            if (2.0 - alpha) * f64::from(least).log2() > LARGE {
                above_two_alone(alpha, f64::from(job.scale), p, v, out);
                continue;
            }
            let s = weigh_list::<V>((2.0 - alpha) as f32, list.as_ptr(), n, weights);
            let weights = std::slice::from_raw_parts(weights, n);
            let dot = |(s, i): (&f32, &u32)| f64::from(*s) * f64::from(v[*i as usize] - from);
            let mean = (weights.iter().zip(index).map(dot).sum::<f64>() / s) as f32;
            for (s, i) in weights.iter().zip(index) {
                out[*i as usize] = s * job.scale * (v[*i as usize] - from - mean);
            }
        }
    }
}

/// The largest exponent of 2 in a weight that is left to f32.
const LARGE: f64 = 100.0;

outlined! {
    /// `p^exponent` of a list into `weights`; returns their sum.
    ///
    /// # Safety
    /// `list` is readable and `weights` writable for `n` floats; the CPU has the instruction set of `V`.
    unsafe fn weigh_list<V>(exponent: f32, list: *const f32, n: usize, weights: *mut f32) -> f64 => weigh_list_any
}

/// # Safety
/// As [`weigh_list`].
#[inline(always)]
unsafe fn weigh_list_any<V: Vector>(exponent: f32, list: *const f32, n: usize, weights: *mut f32) -> f64 {
    // SAFETY: every access stays within `n` floats.
    unsafe {
        let mut sum = V::wide_zero();
        for i in (0..n).step_by(V::LANES) {
            let here = (n - i).min(V::LANES);
            let p = read::<V>(list.add(i), here);
            let s = exp2_nonpos(log2(p).mul(V::splat(exponent))).keep(p.gt(V::splat(0.0)));
            sum = V::wide_add(sum, s);
            write(s, weights.add(i), here);
        }
        V::wide_total(sum)
    }
}

/// A row whose largest `s` exceeds every f32, in f64.
fn above_two_alone(alpha: f64, scale: f64, p: &[f32], v: &[f32], out: &mut [f32]) {
    let on = || (0..p.len()).filter(|&i| p[i] > 0.0);
    let weight = |i: usize| ((2.0 - alpha) * f64::from(p[i]).ln()).exp().min(MOST);
    let Some(least) = on().min_by(|&a, &b| p[a].total_cmp(&p[b])) else { return };
    let moved = |i: usize| f64::from(v[i]) - f64::from(v[least]);
    let (s, sv) = on().fold((0.0, 0.0), |(s, sv), i| (s + weight(i), sv + weight(i) * moved(i)));
    on().for_each(|i| out[i] = (weight(i) * scale * (moved(i) - sv / s)) as f32);
}

/// Weights beyond this are as good as infinite, and their products are numbers.
const MOST: f64 = 1e150;

/// α > 2 with scores. `p^{2−α}` magnifies the rounding of a small probability beyond what the gradient may
/// lose, so the probabilities of the support are taken from the scores again, in f64: measured from the
/// smallest entry, whose own probability is known up to its rounding, one or two steps of Newton away from
/// all digits.
///
/// # Safety
/// As [`rows`].
unsafe fn above_rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    let (d, delta, scale) = (job.d, alpha - 1.0, f64::from(job.scale));
    let mut on = Vec::new();
    for (r, slope) in dalpha.iter_mut().enumerate() {
        let at = r * d..(r + 1) * d;
        let (list, index) = job.scratch.lists(d + 2 * MAX_LANES);
        let (p, v, z, out) = (&job.p[at.clone()], &job.v[at.clone()], &z[at.clone()], &mut job.out[at]);
        // SAFETY: the lists have room for a row and two vectors; the caller vouches for the rest.
        let support = unsafe {
            let n = support::<V>(p.as_ptr(), d, list, index);
            std::slice::from_raw_parts(index, n)
        };
        out.fill(0.0);
        *slope = 0.0;
        let Some(&least) = support.iter().min_by(|a, b| z[**a as usize].total_cmp(&z[**b as usize])) else { continue };
        let (from, own) = (f64::from(z[least as usize]), f64::from(p[least as usize]));
        let lifts = support.iter().map(|i| (f64::from(z[*i as usize]) - from) * delta * scale);
        on.clear();
        on.extend(lifts.map(|lift| Entry { lift, ..Entry::default() }));
        refine(delta, own, &mut on);
        *slope = slope_above(delta, scale, &on, support, v, out);
    }
}

outlined! {
    /// The positions of the entries above 0, at `index`; returns how many.
    ///
    /// # Safety
    /// As [`collect_indexed`].
    unsafe fn support<V>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize => support_any
}

/// # Safety
/// As [`support`].
#[inline(always)]
unsafe fn support_any<V: Vector>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { collect_indexed::<V>(p, d, 0.0, 0, list, index) }
}

/// An entry of the support.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// `u` less that of the smallest entry.
    lift: f64,
    p: f64,
    /// `ln u`
    log: f64,
    /// `p^{2−α}`
    s: f64,
}

/// Fills in the entries, given the probability of the smallest up to its rounding.
fn refine(delta: f64, own: f64, on: &mut [Entry]) {
    let mut w = own;
    for _ in 0..4 {
        let log_w = w.ln();
        let t = (delta * log_w).exp();
        let anchor = Entry { lift: 0.0, p: w, log: delta * log_w, s: ((1.0 - delta) * log_w).exp().min(MOST) };
        let (mut last, mut total, mut weight) = (anchor, 0.0, 0.0);
        for entry in on.iter_mut() {
            // Neighbours are often equal.
            if entry.lift == 0.0 {
                *entry = anchor;
            } else if entry.lift == last.lift {
                *entry = last;
            } else {
                let log = (entry.lift + t).ln();
                let p = (log / delta).exp();
                *entry = Entry { p, log, s: p / (entry.lift + t), ..*entry };
                last = *entry;
            }
            (total, weight) = (total + entry.p, weight + entry.s);
        }
        // The slope of the sum in w is Σ (w/p)^{δ−1}.
        let step = (1.0 - total) * anchor.s / weight;
        if step.abs() <= 1e-9 * w || w + step <= 0.5 * w {
            break;
        }
        w += step;
    }
}

/// `Jv` into `out` and `<v, ∂p/∂α>`, as the head of `entmax.rs` has it: with `ln p = ln u/δ` and
/// `r = (1/u − 1 + ln u)/δ²`.
fn slope_above(delta: f64, scale: f64, on: &[Entry], support: &[u32], v: &[f32], out: &mut [f32]) -> f64 {
    let bend = |entry: &Entry| {
        let l = entry.log;
        // (e^{−l} − 1 + l), by its series near 0.
        let sum = if l.abs() < 1e-2 {
            l * l * (0.5 - l * (1.0 / 6.0 - l * (1.0 / 24.0 - l / 120.0)))
        } else {
            // p^{2−α}/p is 1/u without an overflow of its own.
            entry.s / entry.p - 1.0 + l
        };
        sum / (delta * delta)
    };
    let dominant = on.iter().zip(support).max_by(|a, b| a.0.s.total_cmp(&b.0.s));
    let from = dominant.map_or(0.0, |(_, i)| f64::from(v[*i as usize]));
    let (mut s, mut sv, mut entropy, mut mass) = (0.0, 0.0, 0.0, 0.0);
    for (entry, i) in on.iter().zip(support) {
        let v = f64::from(v[*i as usize]) - from;
        (s, sv) = (s + entry.s, sv + entry.s * v);
        (entropy, mass) = (entropy - entry.p * entry.log / delta, mass + entry.p * bend(entry));
    }
    let mean = sv / s;
    let whole = 1.0 + delta * entropy + delta * delta * mass;
    let turn = |entry: &Entry| {
        let r = bend(entry);
        entry.p / whole * (mass - r - (entry.log * mass + delta * r * entropy))
    };
    // `Σ s w = 0`, so a multiple of `s` may be taken from what `w` is multiplied by: with that of the dominant
    // entry it cancels against nothing, and among ties all is 0.
    let (most, its) = dominant.map_or((1.0, 0.0), |(entry, _)| (entry.s, turn(entry)));
    let mut slope = 0.0;
    for (entry, i) in on.iter().zip(support) {
        // Against what sums to 0 any number may be taken from v: the mean leaves the least to cancel.
        let w = f64::from(v[*i as usize]) - from - mean;
        out[*i as usize] = (entry.s * scale * w) as f32;
        slope += w * (turn(entry) - entry.s / most * its);
    }
    slope
}
