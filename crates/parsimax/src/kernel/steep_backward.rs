//! Backward pass of α-entmax for α > 2, where `s = p^{2−α}` grows as `p` falls: on the list of the support,
//! with the smallest entry as the measure of all others.

use super::Backward;
use super::expo::{exp2_nonpos, log2};
use super::level::equals;
use super::scan::support;
use super::vector::{MAX_LANES, Vector, outlined, read, write};

/// α > 2 without scores, on the list of the support. `v` is measured from the entry with the largest `s`, so
/// that nothing cancels against it.
///
/// # Safety
/// As [`rows`], without scores.
pub(super) unsafe fn without_scores<V: Vector>(alpha: f64, job: &mut Backward<'_>) {
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
                alone(alpha, f64::from(job.scale), p, v, out);
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
fn alone(alpha: f64, scale: f64, p: &[f32], v: &[f32], out: &mut [f32]) {
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
/// As [`alpha_backward::rows`](super::alpha_backward::rows).
pub(super) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    let (d, delta, scale) = (job.d, alpha - 1.0, f64::from(job.scale));
    let mut on = Vec::new();
    let shared = (scale * (d as f64).powf(delta - 1.0)).min(1e38) as f32;
    for (r, slope) in dalpha.iter_mut().enumerate() {
        let at = r * d..(r + 1) * d;
        {
            let (p, v, out) = (&job.p[at.clone()], &job.v[at.clone()], &mut job.out[at.clone()]);
            let row = Even { z: z[at.clone()].as_ptr(), p: p.as_ptr(), v: v.as_ptr(), out: out.as_mut_ptr(), d };
            // SAFETY: the slices hold `d` floats; the caller vouches for the instruction set.
            if unsafe { even::<V>(row, shared) } {
                *slope = 0.0;
                continue;
            }
        }
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
        if on.iter().all(|entry| entry.lift == 0.0) {
            level(delta, scale, support, v, out);
            continue;
        }
        refine(delta, own, &mut on);
        *slope = slope_above(delta, scale, &mut on, support, v, out);
    }
}

/// A row, by pointer.
#[derive(Clone, Copy)]
struct Even {
    z: *const f32,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
}

outlined! {
    /// `gain · (v − mean)` into `out`, if all scores of a row are equal and all of them are in the support.
    ///
    /// # Safety
    /// The pointers are readable, `out` writable, for `d` floats; the CPU has the instruction set of `V`.
    unsafe fn even<V>(row: Even, gain: f32) -> bool => even_any
}

/// # Safety
/// As [`even`].
#[inline(always)]
unsafe fn even_any<V: Vector>(row: Even, gain: f32) -> bool {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let d = row.d;
        if equals::<V>((row.z, d), *row.z) != Some(d) || equals::<V>((row.p, d), *row.p) != Some(d) || *row.p <= 0.0 {
            return false;
        }
        // Measured from one of them, so that a constant in v takes no digits.
        let (from, gain, mut sum) = (V::splat(*row.v), V::splat(gain), V::wide_zero());
        for i in (0..d).step_by(V::LANES) {
            let n = (d - i).min(V::LANES);
            let is_here = V::lanes_of(((1u64 << n) - 1) as u32);
            sum = V::wide_add(sum, read::<V>(row.v.add(i), n).sub(from).keep(is_here));
        }
        let mean = V::splat((V::wide_total(sum) / d as f64) as f32);
        for i in (0..d).step_by(V::LANES) {
            let n = (d - i).min(V::LANES);
            let v = read::<V>(row.v.add(i), n).sub(from).sub(mean);
            write(v.mul(gain), row.out.add(i), n);
        }
        true
    }
}

/// `Jv` into `out` where all of the support are equal, and stay so whatever α is.
fn level(delta: f64, scale: f64, support: &[u32], v: &[f32], out: &mut [f32]) {
    let n = support.len() as f64;
    let gain = scale * n.powf(delta - 1.0).min(MOST);
    // Measured from one of them, so that a constant in v takes no digits.
    let from = f64::from(v[support[0] as usize]);
    let mean = support.iter().map(|i| f64::from(v[*i as usize]) - from).sum::<f64>() / n + from;
    support.iter().for_each(|i| out[*i as usize] = (gain * (f64::from(v[*i as usize]) - mean)) as f32);
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
    /// `r` of [`slope_above`].
    bend: f64,
}

/// Fills in the entries, given the probability of the smallest up to its rounding.
fn refine(delta: f64, own: f64, on: &mut [Entry]) {
    let mut w = own;
    for _ in 0..4 {
        let log_w = w.ln();
        let t = (delta * log_w).exp();
        let s = ((1.0 - delta) * log_w).exp().min(MOST);
        let anchor = Entry { p: w, log: delta * log_w, s, ..Entry::default() };
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
        let shift = (delta * w.ln()).exp() - t;
        if shift.abs() <= NEAR * t {
            on.iter_mut().for_each(|entry| entry.shift(delta, t, shift));
            break;
        }
    }
}

/// The largest relative change of a `u` that its powers follow by their series, to all digits that count.
const NEAR: f64 = 1e-4;

impl Entry {
    /// Moves the threshold from `u = lift + t` to `u + shift`.
    fn shift(&mut self, delta: f64, t: f64, shift: f64) {
        let u = self.lift + t;
        let x = shift / u;
        let log = x * (1.0 - x * (0.5 - x / 3.0));
        let y = log / delta;
        self.log += log;
        self.p *= 1.0 + y * (1.0 + y * (0.5 + y / 6.0));
        self.s = (self.p / (u + shift)).min(MOST);
    }
}

/// `Jv` into `out` and `<v, ∂p/∂α>`, as the head of `entmax.rs` has it: with `ln p = ln u/δ` and
/// `r = (1/u − 1 + ln u)/δ²`.
fn slope_above(delta: f64, scale: f64, on: &mut [Entry], support: &[u32], v: &[f32], out: &mut [f32]) -> f64 {
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
    let mut last = Entry { lift: f64::NAN, ..Entry::default() };
    for entry in on.iter_mut() {
        entry.bend = if entry.lift == last.lift { last.bend } else { bend(entry) };
        last = *entry;
    }
    let dominant = on.iter().zip(support).max_by(|a, b| a.0.s.total_cmp(&b.0.s));
    let from = dominant.map_or(0.0, |(_, i)| f64::from(v[*i as usize]));
    let (mut s, mut sv, mut entropy, mut mass) = (0.0, 0.0, 0.0, 0.0);
    for (entry, i) in on.iter().zip(support) {
        let v = f64::from(v[*i as usize]) - from;
        (s, sv) = (s + entry.s, sv + entry.s * v);
        (entropy, mass) = (entropy - entry.p * entry.log / delta, mass + entry.p * entry.bend);
    }
    let mean = sv / s;
    let whole = 1.0 + delta * entropy + delta * delta * mass;
    let share = 1.0 / whole;
    let turn = |entry: &Entry| {
        let r = entry.bend;
        entry.p * share * (mass - r - (entry.log * mass + delta * r * entropy))
    };
    // `Σ s w = 0`, so a multiple of `s` may be taken from what `w` is multiplied by: with that of the dominant
    // entry it cancels against nothing, and among ties all is 0.
    let its = dominant.map_or(0.0, |(entry, _)| turn(entry) / entry.s);
    let mut slope = 0.0;
    for (entry, i) in on.iter().zip(support) {
        // Against what sums to 0 any number may be taken from v: the mean leaves the least to cancel.
        let w = f64::from(v[*i as usize]) - from - mean;
        out[*i as usize] = (entry.s * scale * w) as f32;
        slope += w * (turn(entry) - entry.s * its);
    }
    slope
}
