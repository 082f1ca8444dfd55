//! §4.2 of the sparsemax paper: three losses on one multi-label data set, each tuned by cross-validation.
//!
//! Rows without labels are dropped from both splits and features standardised by the training split.
//! The grids are the paper's: λ from 10⁻⁸ to 10², ten thresholds or temperatures. Micro and macro columns
//! are tuned separately, each on its own metric, and the chosen cell is fitted again on all training
//! rows.

use serde::Serialize;

use crate::metrics::{Counts, Distances, Scores};
use crate::{Features, Grid, LOGISTIC, LossSpec, Metric, Result, Rule, Settings, Standard, Stop, Targets};
use crate::{best, cross_validate, fit};

/// The losses of the paper's table, in its order.
pub const LOSSES: [&str; 3] = [LOGISTIC, "softmax", "sparsemax"];

/// Fits that cross-validation makes for one loss, for a bar of progress.
pub const FITS: usize = 11 * 5;

/// Training and test rows of a data set.
#[derive(Debug, Clone)]
pub struct Splits {
    /// The training rows.
    pub train: (Features, Targets),
    /// The test rows.
    pub test: (Features, Targets),
}

/// What was chosen for one metric, and how it does on the test rows.
#[derive(Debug, Clone, Serialize)]
pub struct Choice {
    /// The metric it was tuned on.
    pub tuned_on: Metric,
    /// The regularisation constant.
    pub l2: f64,
    /// The prediction rule.
    pub rule: Rule,
    /// The metric over the folds, as a percentage.
    pub validation: f64,
    /// L-BFGS iterations of the fit on all training rows.
    pub iterations: usize,
    /// The test rows.
    pub test: Scores,
}

/// The grid of the paper for a loss over `labels` labels.
#[must_use]
pub fn grid(loss: &str, labels: usize, seed: u64) -> Grid {
    let tenths = 1..=10;
    let rules = tenths.map(|n| match loss {
        LOGISTIC => Rule::Threshold(0.05 * f64::from(n)),
        "softmax" => Rule::Threshold(f64::from(n) / labels as f64),
        _ => Rule::Support(0.5 * f64::from(n)),
    });
    let l2 = (-8..=2).map(|exponent| 10f64.powi(exponent)).collect();
    Grid { l2, rules: rules.collect(), folds: 5, seed, warm_start: false, stop: Stop::default() }
}

/// Drops rows without labels and standardises both splits by the training rows.
#[must_use]
pub fn prepare(splits: &Splits) -> Splits {
    let labelled = |(features, targets): &(Features, Targets)| {
        let rows = targets.labelled();
        (features.select(&rows), targets.select(&rows))
    };
    let (train, test) = (labelled(&splits.train), labelled(&splits.test));
    let standard = Standard::of(&train.0);
    Splits { train: (standard.apply(&train.0), train.1), test: (standard.apply(&test.0), test.1) }
}

/// Tunes and tests one loss on prepared splits: the choice by micro F1 and the choice by macro-PR F1.
///
/// # Errors
/// See [`cross_validate`].
pub fn run(splits: &Splits, loss: &str, seed: u64, done: &(dyn Fn() + Sync)) -> Result<[Choice; 2]> {
    let (features, targets) = &splits.train;
    let grid = grid(loss, targets.labels(), seed);
    let loss = LossSpec::new(loss).build()?;
    let cells = cross_validate(features, targets, &loss, &grid, done)?;
    let choose = |metric| {
        let cell = best(&cells, metric).ok_or_else(|| crate::Error::data("grid", "at least one cell", 0))?;
        let settings = Settings { l2: cell.l2, stop: grid.stop, ..Settings::default() };
        let (model, report) = fit(features, targets, &loss, &settings)?;
        let (features, targets) = &splits.test;
        let counts = Counts::new(&model.decide(features, &loss, cell.rule)?, targets)?;
        let distances = Distances::new(&model.probabilities(features, &loss)?, targets);
        Ok::<_, crate::Error>(Choice {
            tuned_on: metric,
            l2: cell.l2,
            rule: cell.rule,
            validation: 100.0 * cell.merit(metric),
            iterations: report.iterations,
            test: Scores::new(&counts, &distances),
        })
    };
    Ok([choose(Metric::MicroF1)?, choose(Metric::MacroPrF1)?])
}
