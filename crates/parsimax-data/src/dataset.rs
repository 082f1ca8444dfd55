//! What a file holds once it is read, and how it should be read.

use crate::{Error, Matrix, Result};

/// Features, targets and their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset {
    /// One row per example.
    pub features: Matrix,
    /// One name per column of the features.
    pub feature_names: Vec<String>,
    /// One target per example.
    pub targets: Targets,
    /// The names of the columns that the targets came from; empty for svmlight.
    pub label_columns: Vec<String>,
}

/// What the rows are labelled with.
#[derive(Debug, Clone, PartialEq)]
pub enum Targets {
    /// The file has no labels.
    None,
    /// A set of labels per row, possibly empty.
    Sets {
        /// The names of the labels.
        names: Vec<String>,
        /// Positions in `names`, ascending.
        sets: Vec<Vec<usize>>,
    },
    /// One class per row.
    Classes {
        /// The names of the classes.
        names: Vec<String>,
        /// A position in `names` per row.
        classes: Vec<usize>,
    },
    /// A distribution per row.
    Proportions {
        /// The names of the labels.
        names: Vec<String>,
        /// `rows × names` shares, each row with sum 1.
        shares: Vec<f64>,
    },
}

impl Targets {
    /// The names of the labels or classes.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::None => &[],
            Self::Sets { names, .. } | Self::Classes { names, .. } | Self::Proportions { names, .. } => names,
        }
    }
}

/// Which columns are labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    /// The last so many.
    Last(usize),
    /// Those of these names, all of which must be there.
    Named(Vec<String>),
    /// Those of these names, or none of them if the file has no labels.
    IfPresent(Vec<String>),
}

/// How nominal features become numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nominal {
    /// A column of 0 and 1 for each value.
    #[default]
    OneHot,
    /// The number that the value spells.
    Numeric,
}

/// What the label columns say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Task {
    /// One column: its values are classes. Several: each says whether its label is on.
    #[default]
    Auto,
    /// Each column says, by 0 or 1, whether its label is on.
    MultiLabel,
    /// The one column holds the class.
    MultiClass,
    /// The columns hold the shares of the labels.
    Proportions,
}

/// How a file is to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which columns are labels; of no meaning for svmlight.
    pub labels: Labels,
    /// What they say.
    pub task: Task,
    /// How nominal features become numbers.
    pub nominal: Nominal,
    /// The number of features, for formats that do not say it; more than the file uses are zeros.
    pub columns: Option<usize>,
    /// The known labels, for formats that do not list them; new ones are then an error.
    pub known: Option<Vec<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            labels: Labels::IfPresent(Vec::new()),
            task: Task::Auto,
            nominal: Nominal::OneHot,
            columns: None,
            known: None,
        }
    }
}

impl Labels {
    /// For each column whether it is a label: positions in the order of the labels.
    pub(crate) fn find(&self, file: &str, columns: &[String]) -> Result<Vec<usize>> {
        match self {
            Self::Last(0) => Err(Error::file(file, "the number of labels must be at least 1")),
            Self::Last(n) if *n >= columns.len() => Err(Error::file(
                file,
                format!("{n} labels were asked for, which leaves no feature: the file has {} columns", columns.len()),
            )),
            Self::Last(n) => Ok((columns.len() - n..columns.len()).collect()),
            Self::Named(names) => names.iter().map(|name| position(file, columns, name)).collect(),
            Self::IfPresent(names) => {
                let found = names.iter().filter(|name| columns.contains(name)).count();
                match found {
                    0 => Ok(Vec::new()),
                    _ => names.iter().map(|name| position(file, columns, name)).collect(),
                }
            }
        }
    }
}

fn position(file: &str, columns: &[String], name: &str) -> Result<usize> {
    let found = columns.iter().position(|column| column == name);
    found.ok_or_else(|| Error::file(file, format!("no column is named '{name}', which is a label")))
}

/// Collects the targets of rows whose label cells come as text.
#[derive(Debug)]
pub(crate) struct TargetRows {
    task: Task,
    names: Vec<String>,
    sets: Vec<Vec<usize>>,
    classes: Vec<usize>,
    shares: Vec<f64>,
    /// Whether the class names are fixed beforehand.
    fixed: bool,
}

impl TargetRows {
    /// `columns` names the label columns, `declared` the values of the only one where the file lists them.
    pub(crate) fn new(file: &str, task: Task, columns: &[String], declared: Option<Vec<String>>) -> Result<Self> {
        let task = match task {
            Task::Auto if columns.len() == 1 => Task::MultiClass,
            Task::Auto => Task::MultiLabel,
            task => task,
        };
        if task == Task::MultiClass && columns.len() > 1 {
            return Err(Error::file(file, format!("classes need one label column, got {}", columns.len())));
        }
        let fixed = declared.is_some();
        let names = if task == Task::MultiClass { declared.unwrap_or_default() } else { columns.to_vec() };
        Ok(Self { task, names, sets: Vec::new(), classes: Vec::new(), shares: Vec::new(), fixed })
    }

    /// Adds a row of label cells.
    pub(crate) fn push(&mut self, file: &str, line: usize, cells: &[&str]) -> Result<()> {
        match self.task {
            Task::MultiClass | Task::Auto => {
                let class = match self.names.iter().position(|name| name == cells[0]) {
                    Some(class) => class,
                    None if self.fixed => {
                        return Err(Error::line(
                            file,
                            line,
                            format!("'{}' is not one of the declared classes", cells[0]),
                        ));
                    }
                    None => {
                        self.names.push(cells[0].into());
                        self.names.len() - 1
                    }
                };
                self.classes.push(class);
            }
            Task::MultiLabel => {
                let mut set = Vec::new();
                for (label, cell) in cells.iter().enumerate() {
                    match cell.parse::<f64>() {
                        Ok(1.0) => set.push(label),
                        Ok(0.0) => {}
                        _ => {
                            let name = &self.names[label];
                            return Err(Error::line(
                                file,
                                line,
                                format!("label '{name}' must be 0 or 1, got '{cell}'"),
                            ));
                        }
                    }
                }
                self.sets.push(set);
            }
            Task::Proportions => {
                let shares: Vec<f64> = cells.iter().map(|cell| cell.parse().unwrap_or(f64::NAN)).collect();
                let sum: f64 = shares.iter().sum();
                // Decimals of a few digits are distributions too.
                if !shares.iter().all(|share| *share >= 0.0) || (sum - 1.0).abs() > 1e-4 {
                    let what = format!("shares must be numbers ≥ 0 with sum 1, got {}", cells.join(" "));
                    return Err(Error::line(file, line, what));
                }
                self.shares.extend(shares.iter().map(|share| share / sum));
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Targets {
        let Self { task, names, sets, classes, shares, .. } = self;
        match task {
            Task::MultiClass | Task::Auto => Targets::Classes { names, classes },
            Task::MultiLabel => Targets::Sets { names, sets },
            Task::Proportions => Targets::Proportions { names, shares },
        }
    }
}
