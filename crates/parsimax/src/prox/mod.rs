//! Proximal operators that fuse entries into groups, and what the mappings built on them share.
//!
//! [`tv1d`] fuses neighbours, [`isotonic`] fuses neighbours in the order of the scores. Both pool
//! [`Block`]s of entries, and both leave a result whose Jacobian averages within each group. The
//! projection onto the simplex keeps groups whole, so for either mapping, with S the support,
//!
//! `Jv = (mean_G v − mean_S v)/γ` on every group `G ⊆ S`, 0 elsewhere ([`centred_means`]).

#[cfg(test)]
pub(crate) mod checks;
pub(crate) mod isotonic;
pub(crate) mod tv1d;

use std::ops::Range;

use crate::error::check;
use crate::numeric::{self, two_sum};

/// A penalty above this acts as this: sums of a whole row of it, squared ranks included, stay
/// finite. Only scores that differ by 10²⁷⁰ could tell.
pub(crate) const MAX_LAMBDA: f64 = 1e280;

/// The check of a penalty λ.
pub(crate) fn check_lambda(operation: &'static str, lambda: f64) -> crate::Result<()> {
    check(lambda >= 0.0 && lambda.is_finite(), operation, "lambda", "a finite number ≥ 0", lambda)
}

/// Entries with the common value `mean = (Σy + shift·λ)/len`.
///
/// The sum is held in two floats and the multiple of λ as an integer, so that blocks can be joined
/// and split many times and their means still carry one rounding error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    high: f64,
    low: f64,
    pub(crate) shift: i64,
    pub(crate) len: usize,
    pub(crate) mean: f64,
}

impl Block {
    /// A single entry `y + shift·λ`.
    pub(crate) fn new(y: f64, shift: i64, lambda: f64) -> Self {
        Self { high: y, low: 0.0, shift, len: 1, mean: y + shift as f64 * lambda }
    }

    /// The block with `shift` more of λ.
    pub(crate) fn shifted(self, shift: i64, lambda: f64) -> Self {
        self.add(0.0, 0.0, self.shift + shift, self.len, lambda)
    }

    /// Both blocks as one.
    pub(crate) fn join(self, other: Self, lambda: f64) -> Self {
        self.add(other.high, other.low, other.shift + self.shift, other.len + self.len, lambda)
    }

    /// What is left of the block when `part` is taken out.
    pub(crate) fn without(self, part: Self, lambda: f64) -> Self {
        self.add(-part.high, -part.low, self.shift - part.shift, self.len - part.len, lambda)
    }

    fn add(self, high: f64, low: f64, shift: i64, len: usize, lambda: f64) -> Self {
        let (sum, error) = two_sum(self.high, high);
        let (high, low) = two_sum(sum, error + (self.low + low));
        let (sum, error) = two_sum(high, shift as f64 * lambda);
        let mean = (sum + (error + low)) / len as f64;
        Self { high, low, shift, len, mean }
    }

    /// Whether this block's exact mean is above the other's.
    ///
    /// Rounded means decide unless they are ulps apart: then how far each block's sum is from a common
    /// mean does. Pooling by rounded means alone lets wrong decisions of an ulp add up.
    pub(crate) fn exceeds(&self, other: &Self, lambda: f64) -> bool {
        let gap = self.mean - other.mean;
        if gap.abs() > 4.0 * f64::EPSILON * self.mean.abs() {
            return gap > 0.0;
        }
        let excess = |block: &Self| {
            let (sum, error) = two_sum(block.high, block.shift as f64 * lambda);
            let len = block.len as f64;
            ((-self.mean).mul_add(len, sum) + (error + block.low)) / len
        };
        excess(self) > excess(other)
    }
}

/// The lengths of the runs of `0..n`, where `joined(k)` says that `k` continues the run of `k − 1`.
pub(crate) fn runs(n: usize, joined: impl Fn(usize) -> bool) -> impl Iterator<Item = usize> {
    let mut start = 0;
    std::iter::from_fn(move || {
        if start == n {
            return None;
        }
        let mut end = start + 1;
        while end < n && joined(end) {
            end += 1;
        }
        let len = end - start;
        start = end;
        Some(len)
    })
}

/// Calls `visit(G, mean_G v − mean v)` for every group `G` of consecutive entries, given by the
/// lengths of the groups.
///
/// `v` is measured from its first entry: a constant in `v`, which the derivative does not feel, then
/// takes no digits from the rest.
pub(crate) fn centred_means(v: &[f64], lengths: impl Iterator<Item = usize>, mut visit: impl FnMut(Range<usize>, f64)) {
    let Some(&origin) = v.first() else { return };
    let mean = |v: &[f64]| numeric::sum(v.iter().map(|v| v - origin)) / v.len() as f64;
    let all = mean(v);
    let mut start = 0;
    for len in lengths {
        let group = start..start + len;
        start = group.end;
        visit(group.clone(), mean(&v[group]) - all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_survive_joining_and_splitting() {
        // 0.1 + 10¹⁶ − 10¹⁶: one float would return 0.
        let (small, large) = (Block::new(0.1, 1, 0.5), Block::new(1e16, 0, 0.5));
        let rest = small.join(large, 0.5).without(large, 0.5);
        assert_eq!((rest.mean, rest.len, rest.shift), (0.6, 1, 1));
    }

    #[test]
    fn runs_partition_the_row() {
        assert_eq!(runs(6, |k| [2, 3, 5].contains(&k)).collect::<Vec<_>>(), [1, 3, 2]);
        assert_eq!(runs(0, |_| true).count(), 0);
    }

    #[test]
    fn centred_means_do_not_feel_a_constant() {
        let mut seen = Vec::new();
        centred_means(&[1e6 + 1.0, 1e6 + 3.0, 1e6 + 5.0], [2, 1].into_iter(), |g, m| seen.push((g, m)));
        assert_eq!(seen, [(0..2, -1.0), (2..3, 2.0)]);
    }
}
