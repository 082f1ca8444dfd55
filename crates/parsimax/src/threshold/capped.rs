//! Euclidean projection onto the capped simplex: `Σ clip(x_i − τ, 0, 1) = B`, `0 < B < d`.
//!
//! Let `x_k` be the ⌈B⌉-th largest score. It has mass (else at most ⌈B⌉ − 1 < B entries had any), and
//! τ may be taken at or above `x_k − 1` (else ⌈B⌉ ≥ B entries were full). So `u = x_k − τ ∈ (0, 1]`, and
//! with the gaps `g_i = x_i − x_k`, which are exact, an entry is full if `g ≥ 1`, empty if `g ≤ −1`, and
//! of the others each has exactly one kink in `u`: it leaves 0 at `u = −g` if `g ≤ 0`, and reaches 1 at
//! `u = 1 − g` if `g > 0`. The sum is increasing in `u`; halving the kinks around their median finds
//! the piece that holds the root in O(d), and on it `u` is a closed form. No sort. Scores far above or
//! below the anchor, of any magnitude, do not touch its digits.

use crate::numeric;

/// Where the clipping starts, for one row.
pub(crate) struct Capped {
    anchor: f64,
    gamma: f64,
    u: f64,
    /// What the entries that are neither empty nor full must gain for the sum to hold to its last digit.
    correction: f64,
}

impl Capped {
    /// Solves for `0 < budget < z.len()`. `work` is scratch memory.
    pub(crate) fn solve(z: &[f64], budget: f64, gamma: f64, work: &mut Vec<f64>) -> Self {
        work.clear();
        work.extend_from_slice(z);
        let rank = budget.ceil() as usize - 1;
        let (_, anchor, _) = work.select_nth_unstable_by(rank, |a, b| b.total_cmp(a));
        let anchor = *anchor;
        let mut full = 0usize;
        work.clear();
        for z in z {
            let gap = (z - anchor) / gamma;
            if gap >= 1.0 {
                full += 1;
            } else if gap > -1.0 {
                work.push(gap);
            }
        }
        let u = solve_gaps(work, budget - full as f64);
        let mut capped = Self { anchor, gamma, u, correction: 0.0 };
        let sum = numeric::sum(z.iter().map(|z| capped.value(*z)));
        let inside = z.iter().filter(|z| is_inside(capped.value(**z))).count();
        if inside > 0 {
            capped.correction = (budget - sum) / inside as f64;
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

/// Whether an entry is neither empty nor full.
pub(crate) fn is_inside(p: f64) -> bool {
    p > 0.0 && p < 1.0
}

/// Where the entry of gap `g` bends.
fn kink(g: f64) -> f64 {
    if g > 0.0 { 1.0 - g } else { -g }
}

/// `u` with `Σ clip(g + u, 0, 1) = target`, for gaps in (−1, 1).
fn solve_gaps(gaps: &mut [f64], target: f64) -> f64 {
    // gaps[first..last] have their kink between `low` and `high`; of the others, those on a slope are
    // counted by their number and sum, those that are full by their number.
    let (mut first, mut last) = (0, gaps.len());
    let (mut low, mut high) = (0.0, 1.0);
    let (mut slopes, mut slope_sum, mut full) = (0usize, 0.0, 0usize);
    while first < last {
        let middle = first + (last - first) / 2;
        gaps[first..last].select_nth_unstable_by(middle - first, |a, b| kink(*a).total_cmp(&kink(*b)));
        let pivot = kink(gaps[middle]);
        let open = numeric::sum(gaps[first..last].iter().map(|g| (g + pivot).clamp(0.0, 1.0)));
        let value = open + (slope_sum + slopes as f64 * pivot) + full as f64;
        if value < target {
            // The root is to the right: what bends here or before has bent.
            low = pivot;
            let bent = &gaps[first..=middle];
            let started = || bent.iter().filter(|g| **g <= 0.0);
            slopes += started().count();
            full += bent.len() - started().count();
            slope_sum += numeric::sum(started().copied());
            first = middle + 1;
        } else {
            high = pivot;
            let straight = &gaps[middle..last];
            let sloping = || straight.iter().filter(|g| **g > 0.0);
            slopes += sloping().count();
            slope_sum += numeric::sum(sloping().copied());
            last = middle;
        }
    }
    if slopes == 0 {
        // The sum is flat here and already right.
        return high;
    }
    ((target - full as f64 - slope_sum) / slopes as f64).clamp(low, high)
}
