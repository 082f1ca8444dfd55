//! How good predictions are.
//!
//! Counts of true and false positives and false negatives per label give the F1 scores. *Macro* F1 is
//! the mean of the labels' F1; *macro-PR* F1 is the harmonic mean of the mean precision and the mean
//! recall, which is what the sparsemax paper's tables hold. A ratio of nothing to nothing is 0.

use serde::Serialize;

use crate::{Error, Result, Targets};

/// Counts over rows; those of several groups of rows can be added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counts {
    /// True positives, false positives, false negatives of each label.
    labels: Vec<[usize; 3]>,
    rows: usize,
    /// Rows whose set is exactly right.
    exact: usize,
}

impl Counts {
    /// Compares predicted sets with targets.
    ///
    /// # Errors
    /// If there is another number of rows.
    pub fn new(predicted: &[Vec<usize>], targets: &Targets) -> Result<Self> {
        if predicted.len() != targets.rows() {
            return Err(Error::data("predictions", format!("one per row ({})", targets.rows()), predicted.len()));
        }
        let mut counts = Self { labels: vec![[0; 3]; targets.labels()], rows: predicted.len(), exact: 0 };
        for (row, predicted) in predicted.iter().enumerate() {
            let gold = targets.on(row);
            counts.exact += usize::from(gold == *predicted);
            for label in predicted {
                counts.labels[*label][usize::from(!gold.contains(label))] += 1;
            }
            for label in gold.iter().filter(|label| !predicted.contains(label)) {
                counts.labels[*label][2] += 1;
            }
        }
        Ok(counts)
    }

    /// Adds the counts of other rows over the same labels.
    pub fn add(&mut self, other: &Self) {
        if self.labels.is_empty() {
            self.labels = vec![[0; 3]; other.labels.len()];
        }
        for (mine, theirs) in self.labels.iter_mut().zip(&other.labels) {
            (0..3).for_each(|i| mine[i] += theirs[i]);
        }
        self.rows += other.rows;
        self.exact += other.exact;
    }

    /// F1 of all decisions together.
    #[must_use]
    pub fn micro_f1(&self) -> f64 {
        let sum = self.labels.iter().fold([0; 3], |sum, label| std::array::from_fn(|i| sum[i] + label[i]));
        f1(sum)
    }

    /// The mean of the labels' F1.
    #[must_use]
    pub fn macro_f1(&self) -> f64 {
        self.labels.iter().map(|label| f1(*label)).sum::<f64>() / self.labels.len() as f64
    }

    /// The harmonic mean of macro precision and macro recall.
    #[must_use]
    pub fn macro_pr_f1(&self) -> f64 {
        let mean = |other: usize| {
            let ratio = |label: &[usize; 3]| share(label[0], label[0] + label[other]);
            self.labels.iter().map(ratio).sum::<f64>() / self.labels.len() as f64
        };
        let (precision, recall) = (mean(1), mean(2));
        if precision + recall > 0.0 { 2.0 * precision * recall / (precision + recall) } else { 0.0 }
    }

    /// The share of wrong decisions.
    #[must_use]
    pub fn hamming(&self) -> f64 {
        share(self.labels.iter().map(|label| label[1] + label[2]).sum(), self.rows * self.labels.len())
    }

    /// The share of rows whose set is exactly right.
    #[must_use]
    pub fn subset_accuracy(&self) -> f64 {
        share(self.exact, self.rows)
    }

    /// The mean number of labels that were predicted for a row.
    #[must_use]
    pub fn labels_per_row(&self) -> f64 {
        self.labels.iter().map(|label| label[0] + label[1]).sum::<usize>() as f64 / self.rows.max(1) as f64
    }
}

fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn f1([tp, fp, fn_]: [usize; 3]) -> f64 {
    share(2 * tp, 2 * tp + fp + fn_)
}

/// Sums over rows of how far predicted distributions are from the targets.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Distances {
    rows: usize,
    squared: f64,
    jensen_shannon: f64,
}

impl Distances {
    /// Compares probabilities, `rows × labels`, with the targets as distributions. Probabilities that do
    /// not sum to 1, as of independent labels, are divided by their sum; rows without a label are skipped.
    #[must_use]
    pub fn new(p: &[f64], targets: &Targets) -> Self {
        let (k, mut distances) = (targets.labels(), Self::default());
        let (mut q, mut share) = (vec![0.0; k], vec![0.0; k]);
        for (row, p) in p.chunks_exact(k).enumerate() {
            targets.distribution(row, &mut q);
            let sum: f64 = p.iter().sum();
            if q.iter().all(|q| *q == 0.0) {
                continue;
            }
            let uniform = 1.0 / k as f64;
            share.iter_mut().zip(p).for_each(|(share, p)| *share = if sum > 0.0 { p / sum } else { uniform });
            distances.rows += 1;
            distances.squared += q.iter().zip(&share).map(|(q, p)| (q - p).powi(2)).sum::<f64>();
            distances.jensen_shannon += jensen_shannon(&q, &share);
        }
        distances
    }

    /// Adds the sums of other rows.
    pub fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.squared += other.squared;
        self.jensen_shannon += other.jensen_shannon;
    }

    /// The mean of `$\lVert q - p\rVert^2$`.
    #[must_use]
    pub fn squared_error(&self) -> f64 {
        self.squared / self.rows.max(1) as f64
    }

    /// The mean Jensen–Shannon divergence, in nats.
    #[must_use]
    pub fn jensen_shannon(&self) -> f64 {
        self.jensen_shannon / self.rows.max(1) as f64
    }
}

fn jensen_shannon(q: &[f64], p: &[f64]) -> f64 {
    let half = |a: f64, b: f64| if a > 0.0 { 0.5 * a * (2.0 * a / (a + b)).ln() } else { 0.0 };
    q.iter().zip(p).map(|(q, p)| half(*q, *p) + half(*p, *q)).sum()
}

/// All measures, F1 and shares as percentages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scores {
    /// F1 of all decisions together.
    pub micro_f1: f64,
    /// The mean of the labels' F1.
    pub macro_f1: f64,
    /// The harmonic mean of macro precision and macro recall.
    pub macro_pr_f1: f64,
    /// Wrong decisions.
    pub hamming_loss: f64,
    /// Rows whose labels are exactly right; for classes, the accuracy.
    pub subset_accuracy: f64,
    /// Labels predicted for a row, on average (a number, not a percentage).
    pub labels_per_row: f64,
    /// The mean squared distance of label proportions (no percentage).
    pub proportion_mse: f64,
    /// The mean Jensen–Shannon divergence of label proportions (no percentage).
    pub proportion_js: f64,
}

impl Scores {
    /// All measures of the same rows.
    #[must_use]
    pub fn new(counts: &Counts, distances: &Distances) -> Self {
        Self {
            micro_f1: 100.0 * counts.micro_f1(),
            macro_f1: 100.0 * counts.macro_f1(),
            macro_pr_f1: 100.0 * counts.macro_pr_f1(),
            hamming_loss: 100.0 * counts.hamming(),
            subset_accuracy: 100.0 * counts.subset_accuracy(),
            labels_per_row: counts.labels_per_row(),
            proportion_mse: distances.squared_error(),
            proportion_js: distances.jensen_shannon(),
        }
    }
}
