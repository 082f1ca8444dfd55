//! Which scores are at least the mean of their row: decided exactly.
//!
//! The rounded mean of equal scores may exceed all of them, and a support that depends on the last
//! digit of a sum changes with the order of the row. `z_k ≥ mean` is `d·z_k − Σz ≥ 0`. A compensated
//! sum decides almost always; where it comes too close to 0, both are written as sums of doubles
//! without any rounding (Shewchuk 1997) and the sign is that of the largest.

use crate::numeric;

/// The mean of a row, as a threshold.
pub(crate) struct Mean<'a, I> {
    /// Scores, each with the number of times it is there.
    z: I,
    count: f64,
    /// A power of two that keeps the sum and its products in range.
    unit: f64,
    sum: f64,
    /// Twice what the compensated sum and a rounded product may be off.
    doubt: f64,
    /// −Σz without rounding, once it is needed.
    exact: &'a mut Vec<f64>,
    last: Option<(f64, bool)>,
}

/// Of a row with at least one entry. `work` is scratch memory.
pub(crate) fn of<'a>(
    z: &'a [f64],
    work: &'a mut Vec<f64>,
) -> Mean<'a, impl Iterator<Item = (f64, f64)> + Clone + use<'a>> {
    Mean::new(z.iter().map(|z| (*z, 1.0)), work)
}

impl<'a, I: Iterator<Item = (f64, f64)> + Clone> Mean<'a, I> {
    /// Of scores of which each stands for so many; there is one.
    pub(crate) fn new(z: I, work: &'a mut Vec<f64>) -> Self {
        let largest = z.clone().fold(0.0f64, |a, (z, _)| a.max(z.abs()));
        let unit = if largest > 2f64.powi(600) {
            2f64.powi(-600)
        } else if largest < 2f64.powi(-400) {
            2f64.powi(600)
        } else {
            1.0
        };
        work.clear();
        let sum = numeric::sum(z.clone().map(|(z, n)| n * (z * unit)));
        let count: f64 = z.clone().map(|(_, n)| n).sum();
        let doubt = 8.0 * f64::EPSILON * (largest * unit) * count;
        Self { z, count, unit, sum, doubt, exact: work, last: None }
    }

    /// The mean itself, rounded.
    pub(crate) fn value(&self) -> f64 {
        self.sum / self.count / self.unit
    }

    /// Whether `score` is at least the mean.
    pub(crate) fn admits(&mut self, score: f64) -> bool {
        let (count, scaled) = (self.count, score * self.unit);
        let distance = count * scaled - self.sum;
        if distance.abs() > self.doubt {
            return distance > 0.0;
        }
        // Ties come in crowds: the answer for one is the answer for all.
        if let Some((known, answer)) = self.last
            && known == score
        {
            return answer;
        }
        if self.exact.is_empty() {
            // Scores that stand for many are narrow: the product is exact.
            for (z, n) in self.z.clone() {
                grow(self.exact, -n * (z * self.unit));
            }
        }
        let mut difference = self.exact.clone();
        let product = count * scaled;
        grow(&mut difference, product);
        grow(&mut difference, count.mul_add(scaled, -product));
        let answer = difference.iter().rev().find(|x| **x != 0.0).is_none_or(|x| *x > 0.0);
        self.last = Some((score, answer));
        answer
    }
}

/// Adds `x` to a sum of doubles that do not overlap, smallest first, without rounding.
fn grow(parts: &mut Vec<f64>, x: f64) {
    let mut carry = x;
    let mut kept = 0;
    for i in 0..parts.len() {
        let (sum, error) = numeric::two_sum(carry, parts[i]);
        if error != 0.0 {
            parts[kept] = error;
            kept += 1;
        }
        carry = sum;
    }
    parts.truncate(kept);
    parts.push(carry);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(z: &[f64]) -> Vec<bool> {
        let mut work = Vec::new();
        let mut mean = of(z, &mut work);
        z.iter().map(|z| mean.admits(*z)).collect()
    }

    #[test]
    fn equal_scores_are_at_least_their_mean() {
        for score in [0.1, -1e30, 1e-310, f64::MAX, 1.0 / 3.0, 0.0] {
            for d in [1, 2, 3, 7, 10, 1000] {
                assert!(admitted(&vec![score; d]).iter().all(|admitted| *admitted), "{score} {d}");
            }
        }
    }

    #[test]
    fn the_last_digit_decides() {
        // The mean of (x, y, (x+y)/2) is the third, exactly; one digit more on the first and it is not.
        assert_eq!(admitted(&[0.25, 0.75, 0.5]), [false, true, true]);
        assert_eq!(admitted(&[0.25 + f64::EPSILON, 0.75, 0.5]), [false, true, false]);
        assert_eq!(admitted(&[0.25 - f64::EPSILON, 0.75, 0.5]), [false, true, true]);
        // 1e16 + 1 − 1e16 sums to 1, a third of which is below 1 though plain addition gives 0.
        assert_eq!(admitted(&[1e16, 1.0, -1e16]), [true, true, false]);
        assert_eq!(admitted(&[1e16, 0.0, -1e16, 1e-9]), [true, false, false, true]);
    }

    #[test]
    fn neighbouring_numbers_compare_as_integers_do() {
        // 1024 + n·2⁻⁴² for small n are neighbours; comparing them with their mean is comparing the n.
        let mut rng = fastrand::Rng::with_seed(51);
        for _ in 0..2000 {
            let n: Vec<i64> = (0..rng.usize(1..40)).map(|_| i64::from(rng.u8(..4))).collect();
            let z: Vec<f64> = n.iter().map(|n| 1024.0 + *n as f64 * 2f64.powi(-42)).collect();
            let (count, sum) = (n.len() as i64, n.iter().sum());
            let expected: Vec<bool> = n.iter().map(|n| n * count >= sum).collect();
            assert_eq!(admitted(&z), expected, "{n:?}");
        }
    }
}
