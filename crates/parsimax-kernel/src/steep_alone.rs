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
///
/// Entries are kept nowhere, so that a row takes no memory: each pass computes them again.
pub(super) fn with_scores(alpha: f64, scale: f64, z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]) -> f64 {
    let delta = alpha - 1.0;
    out.fill(0.0);
    let support = || (0..p.len()).filter(|i| p[*i] > 0.0);
    let Some(least) = support().min_by(|a, b| z[*a].total_cmp(&z[*b])) else { return 0.0 };
    let (from, own) = (f64::from(z[least]), f64::from(p[least]));
    let lifts = || support().map(|i| (i, (f64::from(z[i]) - from) * delta * scale));
    if lifts().all(|(_, lift)| lift == 0.0) {
        level(delta, scale, support(), v, out);
        return 0.0;
    }
    let lifted = Lifted { curve: Curve::refined(delta, own, lifts().map(|(_, lift)| lift)), lifts };
    slope_above(scale, &lifted, f64::from(v[least]), v, out)
}

/// `Jv` into `out` where all of the support are equal, and stay so whatever α is.
fn level(delta: f64, scale: f64, support: impl Iterator<Item = usize> + Clone, v: &[f32], out: &mut [f32]) {
    let n = support.clone().count() as f64;
    let gain = scale * n.powf(delta - 1.0).min(MOST);
    // Measured from one of them, so that a constant in v takes no digits.
    let from = support.clone().next().map_or(0.0, |i| f64::from(v[i]));
    let mean = support.clone().map(|i| f64::from(v[i]) - from).sum::<f64>() / n + from;
    support.for_each(|i| out[i] = (gain * (f64::from(v[i]) - mean)) as f32);
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

/// Entries by how far their `u` is above that of the smallest.
struct Curve {
    delta: f64,
    /// `u` of the smallest entry.
    t: f64,
    anchor: Entry,
    /// What is to be added to every `u`.
    shift: f64,
}

impl Curve {
    fn new(delta: f64, w: f64) -> Curve {
        let log_w = w.ln();
        let s = ((1.0 - delta) * log_w).exp().min(MOST);
        let anchor = Entry { p: w, log: delta * log_w, s, ..Entry::default() };
        Curve { delta, t: (delta * log_w).exp(), anchor, shift: 0.0 }
    }

    /// That of a row, given the probability of the smallest entry up to its rounding.
    fn refined(delta: f64, own: f64, lifts: impl Iterator<Item = f64> + Clone) -> Curve {
        let (mut w, mut curve) = (own, Curve::new(delta, own));
        for _ in 0..4 {
            curve = Curve::new(delta, w);
            let (mut last, mut total, mut weight) = (curve.anchor, 0.0, 0.0);
            for lift in lifts.clone() {
                last = curve.next(lift, last);
                (total, weight) = (total + last.p, weight + last.s);
            }
            // The slope of the sum in w is Σ (w/p)^{δ−1}.
            let step = (1.0 - total) * curve.anchor.s / weight;
            if step.abs() <= 1e-9 * w || w + step <= 0.5 * w {
                break;
            }
            w += step;
            let shift = (delta * w.ln()).exp() - curve.t;
            if shift.abs() <= NEAR * curve.t {
                curve.shift = shift;
                break;
            }
        }
        curve
    }

    /// The entry at that height, behind another: neighbours are often equal.
    fn next(&self, lift: f64, last: Entry) -> Entry {
        if lift == last.lift { last } else { self.at(lift) }
    }

    fn at(&self, lift: f64) -> Entry {
        let entry = if lift == 0.0 {
            self.anchor
        } else {
            let log = (lift + self.t).ln();
            let p = (log / self.delta).exp();
            Entry { lift, p, log, s: p / (lift + self.t) }
        };
        if self.shift == 0.0 { entry } else { entry.shifted(self) }
    }
}

/// The largest relative change of a `u` that its powers follow by their series, to all digits that count.
const NEAR: f64 = 1e-4;

impl Entry {
    /// The entry with the threshold moved from `u = lift + t` to `u + shift`.
    fn shifted(self, &Curve { delta, t, shift, .. }: &Curve) -> Entry {
        let u = self.lift + t;
        let x = shift / u;
        let log = x * (1.0 - x * (0.5 - x / 3.0));
        let y = log / delta;
        let p = self.p * (1.0 + y * (1.0 + y * (0.5 + y / 6.0)));
        Entry { log: self.log + log, p, s: (p / (u + shift)).min(MOST), ..self }
    }
}

/// The support of a row, by place and height.
struct Lifted<F> {
    curve: Curve,
    lifts: F,
}

impl<F: Fn() -> I, I: Iterator<Item = (usize, f64)>> Lifted<F> {
    /// Every entry and what `of` makes of it, once for equal neighbours.
    fn each<R: Copy>(&self, of: impl Fn(&Entry) -> R, mut visit: impl FnMut(usize, &Entry, R)) {
        let mut last = self.curve.at(0.0);
        let mut value = of(&last);
        for (i, lift) in (self.lifts)() {
            if lift != last.lift {
                last = self.curve.at(lift);
                value = of(&last);
            }
            visit(i, &last, value);
        }
    }
}

/// `Jv` into `out` and `<v, ∂p/∂α>`, as the head of `entmax.rs` has it: with `ln p = ln u/δ` and
/// `r = (1/u − 1 + ln u)/δ²`. `v` is measured from that of the smallest entry, which has the largest `s`.
fn slope_above<F: Fn() -> I, I: Iterator<Item = (usize, f64)>>(
    scale: f64,
    on: &Lifted<F>,
    from: f64,
    v: &[f32],
    out: &mut [f32],
) -> f64 {
    let delta = on.curve.delta;
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
    let (mut s, mut sv, mut entropy, mut mass) = (0.0, 0.0, 0.0, 0.0);
    on.each(bend, |i, entry, bend| {
        let v = f64::from(v[i]) - from;
        (s, sv) = (s + entry.s, sv + entry.s * v);
        (entropy, mass) = (entropy - entry.p * entry.log / delta, mass + entry.p * bend);
    });
    let mean = sv / s;
    let whole = 1.0 + delta * entropy + delta * delta * mass;
    let share = 1.0 / whole;
    let turn = |entry: &Entry| {
        let r = bend(entry);
        entry.p * share * (mass - r - (entry.log * mass + delta * r * entropy))
    };
    // `Σ s w = 0`, so a multiple of `s` may be taken from what `w` is multiplied by: with that of the dominant
    // entry it cancels against nothing, and among ties all is 0.
    let dominant = on.curve.at(0.0);
    let its = turn(&dominant) / dominant.s;
    let mut slope = 0.0;
    on.each(turn, |i, entry, turn| {
        // Against what sums to 0 any number may be taken from v: the mean leaves the least to cancel.
        let w = f64::from(v[i]) - from - mean;
        out[i] = (entry.s * scale * w) as f32;
        slope += w * (turn - entry.s * its);
    });
    slope
}
