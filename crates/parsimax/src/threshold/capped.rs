//! Euclidean projection onto the capped simplex: `Σ clip(x_i − τ, 0, 1) = B`, `0 < B < d`.
//!
//! Let `x_k` be the ⌈B⌉-th largest score. It has mass (else at most ⌈B⌉ − 1 < B entries had any), and
//! τ may be taken at or above `x_k − 1` (else ⌈B⌉ ≥ B entries were full). So `u = x_k − τ ∈ (0, 1]`, and
//! with the gaps `g_i = x_i − x_k`, which are exact, an entry is full if `g ≥ 1`, empty if `g ≤ −1`, and
//! of the others each has exactly one kink in `u`: it leaves 0 at `u = −g` if `g ≤ 0`, and reaches 1 at
//! `u = 1 − g` if `g > 0`. The sum is increasing in `u`; halving the kinks around their median finds
//! the piece that holds the root in O(d), and on it `u` is a closed form. No sort. Scores far above or
//! below the anchor, of any magnitude, do not touch its digits.

use crate::{Float, numeric};
use std::cmp::Ordering;

/// Where the clipping starts, for one row.
pub(crate) struct Capped {
    anchor: f64,
    gamma: f64,
    u: f64,
    /// What the entries that are neither empty nor full must gain for the sum to hold to its last digit.
    correction: f64,
}

impl Capped {
    /// Solves for `0 < budget < z.len()`; `work` has room for the scores.
    pub(crate) fn solve<T: Float>(z: &[T], budget: f64, gamma: f64, work: &mut [T]) -> Self {
        work.copy_from_slice(z);
        let rank = budget.ceil() as usize - 1;
        let (_, anchor, _) = work.select_nth_unstable_by(rank, |a, b| descending(*a, *b));
        let anchor = anchor.widen();
        let gap = |z: T| (z.widen() - anchor) / gamma;
        let (mut full, mut open) = (0usize, 0);
        for z in z {
            if gap(*z) >= 1.0 {
                full += 1;
            } else if gap(*z) > -1.0 {
                work[open] = *z;
                open += 1;
            }
        }
        let u = solve_gaps(&mut work[..open], gap, budget - full as f64);
        let mut capped = Self { anchor, gamma, u, correction: 0.0 };
        let sum = numeric::sum(z.iter().map(|z| capped.value(z.widen())));
        let inside = z.iter().filter(|z| is_inside(capped.value(z.widen()))).count();
        if inside > 0 {
            capped.correction = (budget - sum) / inside as f64;
        }
        capped
    }

    /// The same by passes over scores of which each stands for so many, and which are more than the budget.
    pub(crate) fn by_passes(scores: impl Iterator<Item = (f64, f64)> + Clone, budget: f64, gamma: f64) -> Self {
        let mut capped = Self { anchor: ranked(scores.clone(), budget.ceil()), gamma, u: 0.0, correction: 0.0 };
        // The sum is a broken line in u: Newton inside a bracket that is halved where a step would leave it.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..200 {
            let (mut slope, u) = (0.0, capped.u);
            let sum = numeric::sum(scores.clone().map(|(z, n)| {
                let raw = (z - capped.anchor) / gamma + u;
                slope += if is_inside(raw) { n } else { 0.0 };
                n * raw.clamp(0.0, 1.0)
            }));
            *(if sum < budget { &mut low } else { &mut high }) = u;
            let next = u + (budget - sum) / slope;
            let next = if next > low && next < high { next } else { low + 0.5 * (high - low) };
            if sum == budget || next == u || next == low || next == high {
                break;
            }
            capped.u = next;
        }
        let inside = |capped: &Self, z: f64| is_inside(capped.value(z));
        let sum = numeric::sum(scores.clone().map(|(z, n)| n * capped.value(z)));
        let count: f64 = scores.filter(|(z, _)| inside(&capped, *z)).map(|(_, n)| n).sum();
        if count > 0.0 {
            capped.correction = (budget - sum) / count;
        }
        capped
    }

    /// The probability of a score.
    pub(crate) fn value(&self, z: f64) -> f64 {
        let raw = (z - self.anchor) / self.gamma + self.u;
        if is_inside(raw) { (raw + self.correction).clamp(0.0, 1.0) } else { raw.clamp(0.0, 1.0) }
    }

    /// τ in units of z/γ.
    pub(crate) fn tau(&self) -> f64 {
        self.anchor / self.gamma - self.u
    }
}

/// The score of that rank, counted from 1 at the largest, by passes over scores of which each stands for so many: its
/// bits, eight at a time.
fn ranked(scores: impl Iterator<Item = (f64, f64)> + Clone, rank: f64) -> f64 {
    // Larger numbers have larger keys; −0 is 0.
    let key = |z: f64| {
        let bits = (z + 0.0).to_bits();
        if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
    };
    let (mut known, mut above) = (0u64, 0.0);
    for shift in (0..64).step_by(8).rev() {
        let mut counts = [0.0; 256];
        let is_open = |key: u64| shift == 56 || key >> (shift + 8) == known;
        for (k, n) in scores.clone().map(|(z, n)| (key(z), n)).filter(|(k, _)| is_open(*k)) {
            counts[(k >> shift) as usize & 255] += n;
        }
        let mut digit = 255;
        while digit > 0 && above + counts[digit] < rank {
            above += counts[digit];
            digit -= 1;
        }
        known = known << 8 | digit as u64;
    }
    f64::from_bits(if known >> 63 == 1 { known & !(1 << 63) } else { !known })
}

/// Whether an entry is neither empty nor full.
pub(crate) fn is_inside(p: f64) -> bool {
    p > 0.0 && p < 1.0
}

/// Where the entry of gap `g` bends.
fn kink(g: f64) -> f64 {
    if g > 0.0 { 1.0 - g } else { -g }
}

/// Larger scores first. −0 and 0 are the same score.
fn descending<T: Float>(a: T, b: T) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

/// `u` with `Σ clip(g + u, 0, 1) = target`, for scores with gaps in (−1, 1).
fn solve_gaps<T: Float>(z: &mut [T], gap: impl Fn(T) -> f64, target: f64) -> f64 {
    // z[first..last] have their kink between `low` and `high`; of the others, those on a slope are
    // counted by their number and sum, those that are full by their number.
    let (mut first, mut last) = (0, z.len());
    let (mut low, mut high) = (0.0, 1.0);
    let (mut slopes, mut slope_sum, mut full) = (0usize, 0.0, 0usize);
    while first < last {
        let middle = first + (last - first) / 2;
        z[first..last].select_nth_unstable_by(middle - first, |a, b| kink(gap(*a)).total_cmp(&kink(gap(*b))));
        let pivot = kink(gap(z[middle]));
        let open = numeric::sum(z[first..last].iter().map(|z| (gap(*z) + pivot).clamp(0.0, 1.0)));
        let value = open + (slope_sum + slopes as f64 * pivot) + full as f64;
        if value < target {
            // The root is to the right: what bends here or before has bent.
            low = pivot;
            let bent = &z[first..=middle];
            let started = || bent.iter().map(|z| gap(*z)).filter(|g| *g <= 0.0);
            slopes += started().count();
            full += bent.len() - started().count();
            slope_sum += numeric::sum(started());
            first = middle + 1;
        } else {
            high = pivot;
            let straight = &z[middle..last];
            let sloping = || straight.iter().map(|z| gap(*z)).filter(|g| *g > 0.0);
            slopes += sloping().count();
            slope_sum += numeric::sum(sloping());
            last = middle;
        }
    }
    if slopes == 0 {
        // The sum is flat here and already right.
        return high;
    }
    ((target - full as f64 - slope_sum) / slopes as f64).clamp(low, high)
}
