//! What the rows should be: sets of labels, classes, or distributions over labels.

use crate::{Error, Result};

/// One target per row, over `labels` labels.
#[derive(Debug, Clone, PartialEq)]
pub struct Targets {
    labels: usize,
    rows: Rows,
}

#[derive(Debug, Clone, PartialEq)]
enum Rows {
    Sets(Vec<Vec<usize>>),
    Classes(Vec<usize>),
    Shares(Vec<f64>),
}

/// What kind of question the targets answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Any number of labels per row.
    MultiLabel,
    /// One class per row.
    MultiClass,
    /// A distribution over the labels per row.
    Proportions,
}

impl Targets {
    /// A set of labels per row, ascending; empty sets stand for rows without a label.
    ///
    /// # Errors
    /// If a label is out of range, or there are fewer than two labels.
    pub fn sets(labels: usize, sets: Vec<Vec<usize>>) -> Result<Self> {
        check_labels(labels)?;
        let good = |set: &Vec<usize>| {
            set.windows(2).all(|pair| pair[0] < pair[1]) && set.last().is_none_or(|last| *last < labels)
        };
        match sets.iter().position(|set| !good(set)) {
            Some(row) => Err(Error::data(
                "targets",
                format!("ascending labels below {labels}"),
                format!("{:?} in row {row}", sets[row]),
            )),
            None => Ok(Self { labels, rows: Rows::Sets(sets) }),
        }
    }

    /// A class per row.
    ///
    /// # Errors
    /// If a class is out of range, or only one class occurs.
    pub fn classes(labels: usize, classes: Vec<usize>) -> Result<Self> {
        check_labels(labels)?;
        if let Some(class) = classes.iter().find(|class| **class >= labels) {
            return Err(Error::data("targets", format!("classes below {labels}"), class));
        }
        Ok(Self { labels, rows: Rows::Classes(classes) })
    }

    /// A distribution per row: `rows × labels` shares, each row with sum 1.
    ///
    /// # Errors
    /// If a row is no distribution.
    pub fn shares(labels: usize, shares: Vec<f64>) -> Result<Self> {
        check_labels(labels)?;
        if !shares.len().is_multiple_of(labels) {
            return Err(Error::data("targets", format!("rows of {labels} shares"), shares.len()));
        }
        for (row, shares) in shares.chunks_exact(labels).enumerate() {
            // Shares that were divided in f64 sum to 1 within a few ulp per label.
            let sum: f64 = shares.iter().sum();
            if !shares.iter().all(|share| *share >= 0.0) || (sum - 1.0).abs() > 1e-9 {
                return Err(Error::data("targets", "shares ≥ 0 with sum 1", format!("sum {sum} in row {row}")));
            }
        }
        Ok(Self { labels, rows: Rows::Shares(shares) })
    }

    /// The kind of question.
    #[must_use]
    pub fn task(&self) -> Task {
        match self.rows {
            Rows::Sets(_) => Task::MultiLabel,
            Rows::Classes(_) => Task::MultiClass,
            Rows::Shares(_) => Task::Proportions,
        }
    }

    /// The number of labels.
    #[must_use]
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        match &self.rows {
            Rows::Sets(sets) => sets.len(),
            Rows::Classes(classes) => classes.len(),
            Rows::Shares(shares) => shares.len() / self.labels,
        }
    }

    /// The rows that have a label.
    #[must_use]
    pub fn labelled(&self) -> Vec<usize> {
        match &self.rows {
            Rows::Sets(sets) => (0..sets.len()).filter(|row| !sets[*row].is_empty()).collect(),
            _ => (0..self.rows()).collect(),
        }
    }

    /// The rows of these numbers, in this order.
    ///
    /// # Panics
    /// If a number is out of range.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let picked = match &self.rows {
            Rows::Sets(sets) => Rows::Sets(rows.iter().map(|row| sets[*row].clone()).collect()),
            Rows::Classes(classes) => Rows::Classes(rows.iter().map(|row| classes[*row]).collect()),
            Rows::Shares(shares) => {
                let row = |row: &usize| &shares[row * self.labels..(row + 1) * self.labels];
                Rows::Shares(rows.iter().flat_map(row).copied().collect())
            }
        };
        Self { labels: self.labels, rows: picked }
    }

    /// The labels that are on in a row.
    pub(crate) fn on(&self, row: usize) -> Vec<usize> {
        match &self.rows {
            Rows::Sets(sets) => sets[row].clone(),
            Rows::Classes(classes) => vec![classes[row]],
            Rows::Shares(shares) => {
                let shares = &shares[row * self.labels..(row + 1) * self.labels];
                (0..self.labels).filter(|label| shares[*label] > 0.0).collect()
            }
        }
    }

    /// The target of a row as a distribution; uniform over a set, zeros for an empty one.
    pub(crate) fn distribution(&self, row: usize, out: &mut [f64]) {
        out.fill(0.0);
        match &self.rows {
            Rows::Shares(shares) => out.copy_from_slice(&shares[row * self.labels..(row + 1) * self.labels]),
            Rows::Classes(classes) => out[classes[row]] = 1.0,
            Rows::Sets(sets) => sets[row].iter().for_each(|label| out[*label] = 1.0 / sets[row].len() as f64),
        }
    }

    /// The numbers that a loss compares with: distributions, or 0 and 1 for independent labels.
    pub(crate) fn matrix(&self, independent: bool) -> Result<Vec<f64>> {
        let mut out = vec![0.0; self.rows() * self.labels];
        for (row, out) in out.chunks_exact_mut(self.labels).enumerate() {
            match &self.rows {
                Rows::Sets(sets) if independent => sets[row].iter().for_each(|label| out[*label] = 1.0),
                Rows::Sets(sets) if sets[row].is_empty() => {
                    let got = format!("none in row {row}; remove rows without labels first");
                    return Err(Error::data("targets", "at least one label in every row", got));
                }
                _ => self.distribution(row, out),
            }
        }
        Ok(out)
    }

    /// How many labels or classes occur at all.
    pub(crate) fn distinct(&self) -> usize {
        let mut seen = vec![false; self.labels];
        (0..self.rows()).for_each(|row| self.on(row).into_iter().for_each(|label| seen[label] = true));
        seen.iter().filter(|seen| **seen).count()
    }
}

fn check_labels(labels: usize) -> Result<()> {
    if labels >= 2 { Ok(()) } else { Err(Error::data("targets", "at least two labels or classes", labels)) }
}
