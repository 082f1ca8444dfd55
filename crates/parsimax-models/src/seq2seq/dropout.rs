//! Dropout whose masks follow from a seed.

use super::work::Work;
use fastrand::Rng;

/// Draws masks. Without it nothing is dropped.
#[derive(Debug)]
pub(super) struct Dropout {
    random: Rng,
    rate: f32,
}

impl Dropout {
    /// Masks of a seed; `None` if nothing is to be dropped.
    pub(super) fn new(rate: f32, seed: u64) -> Option<Self> {
        (rate > 0.0).then(|| Self { random: Rng::with_seed(seed), rate })
    }

    /// Factors: 0 with the probability of the rate, else what keeps the mean.
    fn fill(&mut self, mask: &mut [f32]) {
        // Sixteen random bits decide, four decisions a draw.
        let limit = (f64::from(self.rate) * 65536.0) as u64;
        let keep = 1.0 / (1.0 - self.rate);
        for four in mask.chunks_mut(4) {
            let bits = self.random.u64(..);
            for (k, factor) in four.iter_mut().enumerate() {
                *factor = if bits >> (16 * k) & 0xffff < limit { 0.0 } else { keep };
            }
        }
    }
}

/// A mask of `n` factors, if anything is to be dropped.
pub(super) fn mask(dropout: &mut Option<&mut Dropout>, n: usize, work: &mut Work) -> Option<Vec<f32>> {
    dropout.as_deref_mut().map(|dropout| {
        let mut mask = work.take(n);
        dropout.fill(&mut mask);
        mask
    })
}

/// Multiplies by a mask, if there is one.
pub(super) fn apply(values: &mut [f32], mask: Option<&[f32]>) {
    if let Some(mask) = mask {
        values.iter_mut().zip(mask).for_each(|(v, m)| *v *= m);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_keep_the_mean_and_follow_the_seed() {
        let of = |seed| mask(&mut Dropout::new(0.3, seed).as_mut(), 100_001, &mut Work::default()).expect("drops");
        let mask = of(5);
        let dropped = mask.iter().filter(|m| **m == 0.0).count() as f64 / mask.len() as f64;
        // Five standard deviations of a frequency of 0.3 among 100,001.
        assert!((dropped - 0.3).abs() < 5.0 * (0.21f64 / 1e5).sqrt(), "{dropped}");
        assert_eq!(mask, of(5));
        assert_ne!(mask, of(6));
        assert!(Dropout::new(0.0, 5).is_none());
    }
}
