//! svmlight rows with any number of labels: `label,label index:value index:value # remark`.
//!
//! Indices count from 1, unless a 0 occurs in the file. A row that begins with an index, or with a
//! blank, has no labels. `qid:…` is not a feature and is skipped. A row may hold one label and the next
//! three; if no row holds more than one and none is empty, the labels are classes ([`Task::Auto`]).

use crate::matrix::SparseRows;
use crate::text::number;
use crate::{Dataset, Error, Options, Result, Targets, Task};

/// Reads an svmlight text; `file` is its name in complaints.
///
/// # Errors
/// If a row is broken, a label is unknown, or an index is beyond the number of columns asked for.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Dataset> {
    let mut rows = SparseRows::new();
    let mut names = Names::new(options.known.clone());
    let (mut sets, mut zero_based) = (Vec::new(), false);
    for (at, content) in text.lines().enumerate() {
        let content = content.split('#').next().unwrap_or_default();
        if content.trim().is_empty() {
            continue;
        }
        let complain = |what: String| Error::line(file, at + 1, what);
        let (labels, entries) = split(content);
        let mut set = Vec::new();
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            set.push(names.position(label).ok_or_else(|| complain(format!("label '{label}' is unknown")))?);
        }
        set.sort_unstable();
        set.dedup();
        sets.push(set);
        let mut last = None;
        for entry in entries.split_whitespace().filter(|entry| !entry.starts_with("qid:")) {
            let (index, value) = read_entry(entry).map_err(complain)?;
            if last.is_some_and(|last| index <= last) {
                return Err(complain(format!("indices must ascend, got {index} after {}", last.unwrap_or(0))));
            }
            last = Some(index);
            zero_based |= index == 0;
            rows.push(index, value);
        }
        rows.end_row();
    }
    if sets.is_empty() {
        return Err(Error::file(file, "there are no rows"));
    }
    if !zero_based {
        rows.shift_columns();
    }
    let used = rows.max_column().map_or(0, |column| column as usize + 1);
    let columns = options.columns.unwrap_or(used);
    if used > columns {
        return Err(Error::file(file, format!("{columns} features are expected, but the file uses {used}")));
    }
    let targets = targets(file, options.task, names.finish(&mut sets), sets)?;
    let feature_names = (0..columns).map(|column| column.to_string()).collect();
    Ok(Dataset { features: rows.finish(columns), feature_names, targets, label_columns: Vec::new() })
}

/// Labels and entries of a row.
fn split(content: &str) -> (&str, &str) {
    let (first, rest) = content.split_once(char::is_whitespace).unwrap_or((content, ""));
    if first.contains(':') { ("", content) } else { (first, rest) }
}

fn read_entry(entry: &str) -> std::result::Result<(u32, f64), String> {
    let parts = entry.split_once(':').and_then(|(index, value)| Some((index.parse().ok()?, number(value)?)));
    parts.filter(|(index, _)| *index < u32::MAX).ok_or_else(|| format!("expected index:value, got '{entry}'"))
}

fn targets(file: &str, task: Task, names: Vec<String>, sets: Vec<Vec<usize>>) -> Result<Targets> {
    let single = sets.iter().all(|set| set.len() == 1);
    match task {
        Task::Proportions => Err(Error::file(file, "svmlight files hold labels, not proportions")),
        Task::MultiClass if !single => Err(Error::file(file, "classes need exactly one label in every row")),
        Task::MultiClass => Ok(Targets::Classes { names, classes: sets.iter().map(|set| set[0]).collect() }),
        Task::Auto if single => Ok(Targets::Classes { names, classes: sets.iter().map(|set| set[0]).collect() }),
        Task::Auto | Task::MultiLabel => Ok(Targets::Sets { names, sets }),
    }
}

/// Labels by name; those of a file are ordered, by value where they are numbers.
struct Names {
    names: Vec<String>,
    at: std::collections::HashMap<String, usize>,
    fixed: bool,
}

impl Names {
    fn new(known: Option<Vec<String>>) -> Self {
        let fixed = known.is_some();
        let names = known.unwrap_or_default();
        let at = names.iter().cloned().zip(0..).collect();
        Self { names, at, fixed }
    }

    fn position(&mut self, label: &str) -> Option<usize> {
        if let Some(at) = self.at.get(label) {
            return Some(*at);
        }
        if self.fixed {
            return None;
        }
        self.names.push(label.into());
        self.at.insert(label.into(), self.names.len() - 1);
        Some(self.names.len() - 1)
    }

    /// The names in order; the sets are renumbered.
    fn finish(self, sets: &mut [Vec<usize>]) -> Vec<String> {
        if self.fixed {
            return self.names;
        }
        let mut order: Vec<usize> = (0..self.names.len()).collect();
        let numbers: Option<Vec<f64>> = self.names.iter().map(|name| number(name)).collect();
        match &numbers {
            Some(values) => order.sort_by(|a, b| values[*a].total_cmp(&values[*b])),
            None => order.sort_by(|a, b| self.names[*a].cmp(&self.names[*b])),
        }
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
        for set in sets {
            set.iter_mut().for_each(|label| *label = place[*label]);
            set.sort_unstable();
        }
        order.iter().map(|old| self.names[*old].clone()).collect()
    }
}
