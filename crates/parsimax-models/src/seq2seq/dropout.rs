//! Dropout whose masks follow from a seed.

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
    pub(super) fn mask(&mut self, n: usize) -> Vec<f32> {
        // Sixteen random bits decide, four decisions a draw.
        let limit = (f64::from(self.rate) * 65536.0) as u64;
        let keep = 1.0 / (1.0 - self.rate);
        let mut mask = Vec::with_capacity(n + 3);
        while mask.len() < n {
            let bits = self.random.u64(..);
            mask.extend((0..4).map(|k| if bits >> (16 * k) & 0xffff < limit { 0.0 } else { keep }));
        }
        mask.truncate(n);
        mask
    }
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
        let mask = Dropout::new(0.3, 5).expect("drops").mask(100_001);
        let dropped = mask.iter().filter(|m| **m == 0.0).count() as f64 / mask.len() as f64;
        // Five standard deviations of a frequency of 0.3 among 100,001.
        assert!((dropped - 0.3).abs() < 5.0 * (0.21f64 / 1e5).sqrt(), "{dropped}");
        assert_eq!(mask, Dropout::new(0.3, 5).expect("drops").mask(100_001));
        assert!(Dropout::new(0.0, 5).is_none());
    }
}
