//! Adam (Kingma & Ba 2015), over all parameters at once.

use super::CHUNK;
use rayon::prelude::*;

/// The optimiser's memory: as much again as the parameters, twice.
#[derive(Debug, Clone, PartialEq)]
pub struct Adam {
    /// Steps taken.
    pub steps: u64,
    /// Running means of gradients.
    pub first: Vec<f32>,
    /// Running means of their squares.
    pub second: Vec<f32>,
}

const BETA: (f32, f32) = (0.9, 0.999);
const EPSILON: f32 = 1e-8;

impl Adam {
    /// Before the first step, for `n` parameters.
    #[must_use]
    pub fn new(n: usize) -> Self {
        Self { steps: 0, first: vec![0.0; n], second: vec![0.0; n] }
    }

    /// A step along `scale · gradients`, shortened to the length `clip` if it is longer.
    pub fn clipped_step(&mut self, values: &mut [f32], gradients: &[f32], scale: f64, clip: f32, rate: f32) {
        let norm = square(gradients).sqrt() * scale;
        let scale = scale * (f64::from(clip) / norm.max(f64::MIN_POSITIVE)).min(1.0);
        self.step(values, gradients, scale as f32, rate);
    }

    /// Moves the parameters against `scale · gradients`.
    pub fn step(&mut self, values: &mut [f32], gradients: &[f32], scale: f32, rate: f32) {
        self.steps += 1;
        let power = i32::try_from(self.steps).unwrap_or(i32::MAX);
        let correct = (1.0 - BETA.0.powi(power), 1.0 - BETA.1.powi(power));
        let rate = rate / correct.0;
        let root = correct.1.sqrt().recip();
        let values = values.par_chunks_mut(CHUNK).zip(gradients.par_chunks(CHUNK));
        let moments = self.first.par_chunks_mut(CHUNK).zip(self.second.par_chunks_mut(CHUNK));
        values.zip(moments).for_each(|((values, gradients), (first, second))| {
            for ((v, g), (m, s)) in values.iter_mut().zip(gradients).zip(first.iter_mut().zip(second)) {
                let g = g * scale;
                *m = BETA.0 * *m + (1.0 - BETA.0) * g;
                *s = BETA.1 * *s + (1.0 - BETA.1) * g * g;
                *v -= rate * *m / (s.sqrt() * root + EPSILON);
            }
        });
    }
}

/// The sum of squares. It is cut the same way for any number of threads, so it has the same bits.
fn square(gradients: &[f32]) -> f64 {
    let part = |chunk: &[f32]| {
        let mut sums = [0.0f64; 4];
        for four in chunk.chunks(4) {
            sums.iter_mut().zip(four).for_each(|(sum, g)| *sum += f64::from(*g) * f64::from(*g));
        }
        sums.iter().sum::<f64>()
    };
    gradients.par_chunks(CHUNK).map(part).collect::<Vec<f64>>().iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_step_is_the_rate_against_the_sign() {
        let (mut adam, mut values) = (Adam::new(3), [1.0f32, 1.0, 1.0]);
        adam.step(&mut values, &[5.0, -0.1, 0.0], 2.0, 0.01);
        for (value, expected) in values.iter().zip([0.99, 1.01, 1.0]) {
            assert!((value - expected).abs() < 1e-6, "{value}");
        }
    }

    #[test]
    fn a_long_gradient_is_shortened() {
        // Adam does not see the length of its first step; its memory does.
        let (mut adam, mut values) = (Adam::new(2), [0.0f32; 2]);
        adam.clipped_step(&mut values, &[6.0, 8.0], 0.5, 1.0, 0.01);
        for (m, expected) in adam.first.iter().zip([0.06, 0.08]) {
            assert!((m - expected).abs() < 1e-7, "{m}");
        }
        let mut adam = Adam::new(2);
        adam.clipped_step(&mut values, &[6.0, 8.0], 0.05, 1.0, 0.01);
        assert!((adam.first[0] - 0.03).abs() < 1e-7, "a short one is not");
    }

    #[test]
    fn a_parabola_is_descended() {
        let (mut adam, mut x) = (Adam::new(1), [3.0f32]);
        for _ in 0..2000 {
            let g = 2.0 * (x[0] - 1.0);
            adam.step(&mut x, &[g], 1.0, 0.01);
        }
        assert!((x[0] - 1.0).abs() < 1e-3, "{}", x[0]);
    }
}
