//! Rows of α-entmax beyond α = 2 whose powers leave the range of f32: one by one, in f64.

/// A row whose largest `s` exceeds every f32, in f64.
pub(super) fn without_scores(alpha: f64, scale: f64, p: &[f32], v: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    let on = || (0..p.len()).filter(|&i| p[i] > 0.0);
    let weight = |i: usize| ((2.0 - alpha) * f64::from(p[i]).ln()).exp().min(MOST);
    let Some(least) = on().min_by(|&a, &b| p[a].total_cmp(&p[b])) else { return };
    let moved = |i: usize| f64::from(v[i]) - f64::from(v[least]);
    let (s, sv) = on().fold((0.0, 0.0), |(s, sv), i| (s + weight(i), sv + weight(i) * moved(i)));
    on().for_each(|i| out[i] = (weight(i) * scale * (moved(i) - sv / s)) as f32);
}

/// Weights beyond this are as good as infinite, and their products are numbers.
const MOST: f64 = 1e150;

/// A row with scores, given its support. `p^{2−α}` magnifies the rounding of a small probability beyond what the gradient
/// may lose, so the probabilities are taken from the scores again: measured from the smallest entry, whose own probability
/// is known up to its rounding, one or two steps of Newton away from all digits. Returns `<v, ∂p/∂α>`.
pub(super) fn with_scores(alpha: f64, scale: f64, z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]) -> f64 {
    let delta = alpha - 1.0;
    out.fill(0.0);
    let support: Vec<u32> = (0..p.len() as u32).filter(|i| p[*i as usize] > 0.0).collect();
    let Some(&least) = support.iter().min_by(|a, b| z[**a as usize].total_cmp(&z[**b as usize])) else { return 0.0 };
    let (from, own) = (f64::from(z[least as usize]), f64::from(p[least as usize]));
    let lifts = support.iter().map(|i| (f64::from(z[*i as usize]) - from) * delta * scale);
    let mut on: Vec<Entry> = lifts.map(|lift| Entry { lift, ..Entry::default() }).collect();
    if on.iter().all(|entry| entry.lift == 0.0) {
        level(delta, scale, &support, v, out);
        return 0.0;
    }
    refine(delta, own, &mut on);
    slope_above(delta, scale, &mut on, &support, v, out)
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
