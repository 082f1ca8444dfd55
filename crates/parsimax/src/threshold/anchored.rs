//! α-entmax for α > 2, anchored at its smallest supported entry.
//!
//! For large α an entry just above τ has `p = (x − τ)^{1/(α−1)}`: one rounding error of τ moves it
//! by 2·10⁻² at α = 10. The probability `w` of the smallest supported entry `z_k` is a better
//! unknown. With `m = α − 1`,
//!
//! `p_i = (m(z_i − z_k)/γ + w^m)^{1/m}`.
//!
//! The differences are exact to their last digit, `Σp` has slope ≥ 1 in `w`, and `∂p_i/∂w ≤ 1`, so
//! nothing is magnified. Each `p_i` is an m-norm in `w`, hence convex, and Newton from the right
//! never passes the root. `k` is the last entry in descending order for which
//! `C(z_k) = Σ_{z_i > z_k} (m(z_i − z_k)/γ)^{1/m} < 1`; `C` grows as `z_k` falls, so `k` is found by
//! halving.

use super::MAX_STEPS;
use crate::numeric;

/// Replaces the raw scores `z` by their α-entmax with `m = α − 1 > 1`, and returns τ in the units
/// of `m·z/γ`. `work` is scratch memory.
pub(crate) fn solve(z: &mut [f64], m: f64, gamma: f64, work: &mut Vec<f64>) -> f64 {
    let lift = if z.len() > LISTED {
        by_passes(z.iter().map(|z| (*z, 1.0)), numeric::max(z), m, gamma)
    } else {
        by_list(z, m, gamma, work)
    };
    z.iter_mut().for_each(|z| *z = lift.p(*z));
    numeric::polish(z, 1.0, |p| (lift.w / p).powf(m - 1.0));
    m * (lift.anchor / gamma) - lift.floor
}

/// More scores are not listed: half a megabyte.
const LISTED: usize = 1 << 16;

/// [`solve`] by a list of the scores.
fn by_list(z: &[f64], m: f64, gamma: f64, work: &mut Vec<f64>) -> Lift {
    work.clear();
    work.extend_from_slice(z);
    let anchor = smallest_supported(work, m, gamma);
    work.clear();
    work.extend(z.iter().filter(|z| **z >= anchor).map(|z| m * ((z - anchor) / gamma)));
    let w = anchor_probability(work.iter().map(|gap| (*gap, 1.0)), m);
    Lift { anchor, w, floor: w.powf(m), m, gamma }
}

fn root(x: f64, m: f64) -> f64 {
    x.powf(1.0 / m)
}

/// `(gap + w^m)^{1/m}` with `floor = w^m`, which may underflow: the anchor itself has exactly `w`.
fn lifted(gap: f64, w: f64, floor: f64, m: f64) -> f64 {
    if gap == 0.0 { w } else { root(gap + floor, m) }
}

/// The smallest score that still gets mass, by halving the set around its median.
fn smallest_supported(z: &mut [f64], m: f64, gamma: f64) -> f64 {
    // z[..known] are supported and at least as large as everything in z[known..open].
    let (mut known, mut open) = (0, z.len());
    let mut anchor = numeric::max(z);
    while known < open {
        let middle = known + (open - known) / 2;
        z[known..open].select_nth_unstable_by(middle - known, |a, b| b.total_cmp(a));
        let pivot = z[middle];
        let above = numeric::sum(z[..middle].iter().map(|z| root(m * ((z - pivot) / gamma), m)));
        if above < 1.0 {
            anchor = pivot;
            known = middle + 1;
        } else {
            open = middle;
        }
    }
    anchor
}

/// `w` with `Σ (gap + w^m)^{1/m} = 1`, by Newton from the right. Each gap stands for so many.
fn anchor_probability(gaps: impl Iterator<Item = (f64, f64)> + Clone, m: f64) -> f64 {
    // The anchor is the smallest of k probabilities, and every p is at least its gap^{1/m}.
    let others = numeric::sum(gaps.clone().map(|(g, n)| n * root(g, m)));
    let count: f64 = gaps.clone().map(|(_, n)| n).sum();
    let mut w = (1.0 / count).min((1.0 - others).max(0.0));
    for _ in 0..MAX_STEPS {
        let floor = w.powf(m);
        let excess = numeric::sum(gaps.clone().map(|(g, n)| n * lifted(g, w, floor, m)).chain([-1.0]));
        let slope: f64 = gaps.clone().map(|(g, n)| n * (w / lifted(g, w, floor, m)).powf(m - 1.0)).sum();
        let next = w - excess / slope;
        if next.is_nan() || next >= w || next <= 0.0 {
            break;
        }
        let step = w - next;
        w = next;
        if step <= 1e-17 {
            break;
        }
    }
    w
}

/// A row of α-entmax without a list of its scores: its anchor and that entry's probability.
pub(crate) struct Lift {
    anchor: f64,
    w: f64,
    floor: f64,
    m: f64,
    gamma: f64,
}

impl Lift {
    /// The probability of a score.
    pub(crate) fn p(&self, z: f64) -> f64 {
        let Self { anchor, w, floor, m, gamma } = *self;
        if z >= anchor { lifted(m * ((z - anchor) / gamma), w, floor, m) } else { 0.0 }
    }
}

/// [`solve`] by passes over scores of which each stands for so many; `top` is the largest.
///
/// `C^m` is nearly linear in the pivot (for equal scores it is), so that its root is bracketed by false position, the
/// stale end halved (Illinois), until no score is left between the ends.
pub(crate) fn by_passes(scores: impl Iterator<Item = (f64, f64)> + Clone, top: f64, m: f64, gamma: f64) -> Lift {
    let excess = |pivot: f64| {
        let above = scores.clone().filter(|(z, _)| *z > pivot);
        numeric::sum(above.map(|(z, n)| n * root(m * ((z - pivot) / gamma), m))).powf(m) - 1.0
    };
    // Scores at `low` and below have no mass, those at `high` and above do.
    let (mut low, mut high) = (top - gamma / m, top);
    let (mut at_low, mut at_high, mut halvings) = (excess(low), excess(high), 0);
    loop {
        // The nearest scores inside decide whether there is anything left to ask.
        let mut inside = scores.clone().map(|(z, _)| z).filter(|z| *z > low && *z < high);
        let Some(first) = inside.next() else { break };
        let (least, most) = inside.fold((first, first), |(a, b), z| (a.min(z), b.max(z)));
        let guess = high - (high - low) * (at_high / (at_high - at_low));
        halvings += 1;
        let is_late = halvings % 4 == 0;
        let pivot = if is_late || !(guess > low && guess < high) { low + 0.5 * (high - low) } else { guess };
        // A score that is there: every question settles at least one.
        let pivot = pivot.clamp(least, most);
        let value = excess(pivot);
        if value < 0.0 {
            (high, at_high, at_low) = (pivot, value, 0.5 * at_low);
        } else {
            (low, at_low, at_high) = (pivot, value, 0.5 * at_high);
        }
    }
    let anchor = scores.clone().map(|(z, _)| z).filter(|z| *z >= high).fold(top, f64::min);
    let gaps = scores.filter(|(z, _)| *z >= anchor).map(|(z, n)| (m * ((z - anchor) / gamma), n));
    let w = anchor_probability(gaps, m);
    Lift { anchor, w, floor: w.powf(m), m, gamma }
}
