//! Isotonic regression of ranked scores: the best non-increasing fit to `y_k + λk`, where
//! `y_0 ≥ y_1 ≥ …` are sorted scores.
//!
//! `argmin ½ Σ_k (x_k − y_k − λk)²  subject to  x_0 ≥ x_1 ≥ …`
//!
//! **Algorithm.** Pool adjacent violators: append the entries one by one, and while the last block's
//! mean is not below the one before it, join the two. Every join removes a block: O(d).
//!
//! **Ties.** Equal scores violate the order for every λ > 0 (their targets rise by λ), so they end in
//! one block. They enter as one, which makes it true of every rounding, too.
//!
//! **Digits.** A block's mean is `mean(y) + λ·mean(k)`, from a sum of scores in two floats and an exact
//! sum of ranks ([`Block`]).
//!
//! Ayer et al. 1955; Barlow et al. 1972.

use super::Block;

/// Writes the blocks of the fit to descending scores into `blocks`, in order. A block's `mean` is the
/// value of the fit and its `shift` the sum of its ranks, counted from 0.
pub(crate) fn fit_ranked(sorted: &[f64], lambda: f64, blocks: &mut Vec<Block>) {
    blocks.clear();
    let mut k = 0;
    while k < sorted.len() {
        let mut next = Block::new(sorted[k], k as i64, lambda);
        while sorted.get(k + next.len) == Some(&sorted[k]) {
            next = next.join(Block::new(sorted[k], (k + next.len) as i64, lambda), lambda);
        }
        k += next.len;
        push_decreasing(blocks, next, lambda);
    }
}

fn push_decreasing(blocks: &mut Vec<Block>, mut next: Block, lambda: f64) {
    while let Some(last) = blocks.last().filter(|last| !last.exceeds(&next, lambda)) {
        next = last.join(next, lambda);
        blocks.pop();
    }
    blocks.push(next);
}

/// Writes the value of each block to its entries.
pub(crate) fn spread(blocks: &[Block], x: &mut [f64]) {
    let mut start = 0;
    for block in blocks {
        x[start..start + block.len].fill(block.mean);
        start += block.len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(sorted: &[f64], lambda: f64) -> Vec<f64> {
        let (mut blocks, mut x) = (Vec::new(), vec![0.0; sorted.len()]);
        fit_ranked(sorted, lambda, &mut blocks);
        spread(&blocks, &mut x);
        x
    }

    #[test]
    fn hand_computed_rows() {
        // Targets 0, −1 + ½, −1.25 + 1: the last two violate; their mean is (−0.5 − 0.25)/2.
        assert_eq!(fit(&[0.0, -1.0, -1.25], 0.5), [0.0, -0.375, -0.375]);
        // A tie: targets 0 and 1.
        assert_eq!(fit(&[0.0, 0.0], 1.0), [0.5, 0.5]);
        assert_eq!(fit(&[0.0, -1.0], 0.0), [0.0, -1.0]);
        assert_eq!(fit(&[], 1.0), [0.0; 0]);
    }

    #[test]
    fn random_rows_are_optimal() {
        // With t the targets: x non-increasing, Σ_{i≤k} (t − x) ≤ 0, and = 0 at the end of every group.
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..4000 {
            let d = rng.usize(1..40);
            let lambda = 10f64.powf(rng.f64() * 4.0 - 3.0);
            let mut y: Vec<f64> = (0..d).map(|_| -rng.f64() * 4.0).collect();
            y.sort_unstable_by(|a, b| b.total_cmp(a));
            let x = fit(&y, lambda);
            let mut sum = 0.0f64;
            for k in 0..d {
                sum += y[k] + lambda * k as f64 - x[k];
                let ends = k + 1 == d || x[k + 1] < x[k];
                // Rounding of at most 40 terms of size 40λ + 4.
                let tolerance = 1e-12 * (1.0 + lambda);
                assert!(k == 0 || x[k] <= x[k - 1]);
                assert!(if ends { sum.abs() <= tolerance } else { sum <= tolerance }, "{y:?} {lambda}");
            }
        }
    }
}
