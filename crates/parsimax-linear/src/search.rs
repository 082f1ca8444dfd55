//! k-fold cross-validation over regularisation constants and prediction rules.
//!
//! A model is fitted per fold and λ and judged by every rule. Counts and errors are summed over the
//! folds and measured once: every training row is predicted by the one model that has not seen it, and
//! a label that a fold happens to lack does not distort the mean.

use rand::seq::SliceRandom;
use rand::{SeedableRng, rngs::ChaCha8Rng};
use rayon::prelude::*;

use crate::metrics::{Counts, Distances};
use crate::rule::probabilities;
use crate::{Coefficients, Error, Features, Loss, Result, Rule, Settings, Stop, Targets, fit};

/// What to try, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// The regularisation constants.
    pub l2: Vec<f64>,
    /// The prediction rules.
    pub rules: Vec<Rule>,
    /// The number of folds.
    pub folds: usize,
    /// Shuffles the rows before they are cut into folds.
    pub seed: u64,
    /// Each fit along the path, from the largest λ down, starts where the one before ended.
    pub warm_start: bool,
    /// When a fit stops.
    pub stop: Stop,
}

/// What models are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Micro F1, larger is better.
    MicroF1,
    /// The mean of the labels' F1, larger is better.
    MacroF1,
    /// The harmonic mean of macro precision and recall, larger is better.
    MacroPrF1,
    /// Rows that are exactly right, larger is better.
    Accuracy,
    /// Squared error of the probabilities, smaller is better.
    SquaredError,
}

/// A constant and a rule, with what the folds say of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The regularisation constant.
    pub l2: f64,
    /// The prediction rule.
    pub rule: Rule,
    /// Decisions over all folds.
    pub counts: Counts,
    /// Distances over all folds.
    pub distances: Distances,
}

impl Cell {
    /// The metric, turned so that larger is better.
    #[must_use]
    pub fn merit(&self, metric: Metric) -> f64 {
        match metric {
            Metric::MicroF1 => self.counts.micro_f1(),
            Metric::MacroF1 => self.counts.macro_f1(),
            Metric::MacroPrF1 => self.counts.macro_pr_f1(),
            Metric::Accuracy => self.counts.subset_accuracy(),
            Metric::SquaredError => -self.distances.squared_error(),
        }
    }
}

/// The cell with the best metric; of equal ones the one with the larger λ, then the earlier rule.
#[must_use]
pub fn best(cells: &[Cell], metric: Metric) -> Option<&Cell> {
    cells.iter().reduce(|best, cell| {
        let (a, b) = (best.merit(metric), cell.merit(metric));
        if b > a || b == a && cell.l2 > best.l2 { cell } else { best }
    })
}

/// The rows of every fold: shuffled, and of sizes that differ by one at most.
///
/// # Errors
/// If there are fewer rows than folds, or fewer than two folds.
pub fn folds(rows: usize, folds: usize, seed: u64) -> Result<Vec<Vec<usize>>> {
    if folds < 2 {
        return Err(Error::Option { name: "the number of folds", expected: "at least 2", got: folds.to_string() });
    }
    if rows < folds {
        return Err(Error::data("cross-validation", format!("at least {folds} rows for {folds} folds"), rows));
    }
    let mut order: Vec<usize> = (0..rows).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    Ok((0..folds).map(|fold| order[rows * fold / folds..rows * (fold + 1) / folds].to_vec()).collect())
}

/// A fold as training and validation rows.
struct Split {
    train: (Features, Targets),
    held_out: (Features, Targets),
}

/// Tries every cell of the grid on threads; `done` is called after every fit.
///
/// # Errors
/// If the data do not fit the grid; see [`fit`] and [`folds`].
pub fn cross_validate(
    features: &Features,
    targets: &Targets,
    loss: &Loss,
    grid: &Grid,
    done: &(dyn Fn() + Sync),
) -> Result<Vec<Cell>> {
    let mut path = grid.l2.clone();
    path.sort_by(|a, b| b.total_cmp(a));
    let folds = folds(features.rows(), grid.folds, grid.seed)?;
    let splits: Vec<Split> = (0..folds.len()).map(|fold| split(features, targets, &folds, fold)).collect();
    // Warm starts make a chain of each fold; cold ones are all independent.
    let chains: Vec<(usize, &[f64])> = if grid.warm_start {
        (0..splits.len()).map(|fold| (fold, path.as_slice())).collect()
    } else {
        (0..splits.len()).flat_map(|fold| path.chunks(1).map(move |l2| (fold, l2))).collect()
    };
    let judged: Vec<Vec<Cell>> = chains
        .into_par_iter()
        .map(|(fold, path)| chain(&splits[fold], loss, grid, path, done))
        .collect::<Result<_>>()?;
    let mut cells: Vec<Cell> = Vec::new();
    for cell in judged.into_iter().flatten() {
        match cells.iter_mut().find(|known| known.l2 == cell.l2 && known.rule == cell.rule) {
            None => cells.push(cell),
            Some(known) => {
                known.counts.add(&cell.counts);
                known.distances.add(&cell.distances);
            }
        }
    }
    Ok(cells)
}

fn split(features: &Features, targets: &Targets, folds: &[Vec<usize>], fold: usize) -> Split {
    let others = folds.iter().enumerate().filter(|(at, _)| *at != fold);
    let mut train: Vec<usize> = others.flat_map(|(_, rows)| rows.iter().copied()).collect();
    train.sort_unstable();
    let pick = |rows: &[usize]| (features.select(rows), targets.select(rows));
    Split { train: pick(&train), held_out: pick(&folds[fold]) }
}

/// Fits along the path and judges every model by every rule.
fn chain(split: &Split, loss: &Loss, grid: &Grid, path: &[f64], done: &(dyn Fn() + Sync)) -> Result<Vec<Cell>> {
    let (mut cells, mut start) = (Vec::new(), None::<Coefficients>);
    for l2 in path {
        let settings = Settings { l2: *l2, stop: grid.stop, start: start.as_ref(), ..Settings::default() };
        let (model, _) = fit(&split.train.0, &split.train.1, loss, &settings)?;
        let (features, targets) = &split.held_out;
        let scores = model.scores(features)?;
        let p = probabilities(&scores, targets.labels(), loss, 1.0)?;
        let distances = Distances::new(&p, targets);
        for rule in &grid.rules {
            let predicted = match rule {
                Rule::Support(_) => rule.decide(&scores, targets.labels(), loss)?,
                rule => p.chunks_exact(targets.labels()).map(|p| rule.pick(p)).collect(),
            };
            cells.push(Cell { l2: *l2, rule: *rule, counts: Counts::new(&predicted, targets)?, distances });
        }
        start = grid.warm_start.then_some(model);
        done();
    }
    Ok(cells)
}
