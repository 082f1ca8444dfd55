//! Standardisation: zero mean and unit deviation, and the way back into the weights.

use crate::{Coefficients, Features};

/// Mean and deviation of every feature of the training rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Standard {
    mean: Vec<f64>,
    deviation: Vec<f64>,
    constant: Vec<usize>,
}

impl Standard {
    /// Measures the features. Those that are the same in every row are divided by 1: they become zero.
    #[must_use]
    pub fn of(features: &Features) -> Self {
        let (mean, mut deviation) = features.moments();
        // A column of equal numbers has a deviation of a few ulp of its mean, by the rounding of the mean.
        let still = |column: &usize| deviation[*column] <= 1e-13 * mean[*column].abs().max(f64::MIN_POSITIVE);
        let constant: Vec<usize> = (0..mean.len()).filter(still).collect();
        constant.iter().for_each(|column| deviation[*column] = 1.0);
        Self { mean, deviation, constant }
    }

    /// The features that are the same in every row.
    #[must_use]
    pub fn constant(&self) -> &[usize] {
        &self.constant
    }

    /// The features with zero mean and unit deviation.
    #[must_use]
    pub fn apply(&self, features: &Features) -> Features {
        features.standardized(&self.mean, &self.deviation)
    }

    /// The coefficients for the features as they are, from those for standardised ones.
    #[must_use]
    pub fn undo(&self, standardized: &Coefficients) -> Coefficients {
        let (mut out, k) = (standardized.clone(), standardized.labels());
        let (weights, bias) = out.values.split_at_mut(standardized.weights().len());
        for (column, weights) in weights.chunks_exact_mut(k).enumerate() {
            for (weight, bias) in weights.iter_mut().zip(bias.iter_mut()) {
                *weight /= self.deviation[column];
                *bias -= self.mean[column] * *weight;
            }
        }
        out
    }
}
