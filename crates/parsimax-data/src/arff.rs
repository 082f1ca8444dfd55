//! ARFF: a head of attributes, then rows of values, dense (`1,2,yes`) or sparse (`{0 1, 2 yes}`).
//!
//! An omitted entry of a sparse row is 0, and for a nominal attribute its first declared value, as in
//! Weka. Names and values may be quoted by `'` or `"` with backslash escapes. Missing values (`?`),
//! strings and dates have no place in a linear model and are complaints.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::dataset::TargetRows;
use crate::matrix::SparseRows;
use crate::text::{Words, number};
use crate::{Dataset, Error, Matrix, Nominal, Options, Result, Targets};

#[derive(Debug)]
struct Attribute {
    name: String,
    /// The declared values of a nominal attribute.
    values: Option<Vec<String>>,
}

/// What an attribute becomes.
#[derive(Debug)]
enum Role {
    /// This label.
    Label(usize),
    /// This column.
    Number(u32),
    /// One column per value, the first of them here.
    OneHot(u32, HashMap<String, u32>),
    /// This column; the value must be a declared one that spells a number.
    Spelled(u32, HashMap<String, f64>),
}

/// Reads an ARFF text; `file` is its name in complaints.
///
/// # Errors
/// If the head or a row is broken, or the labels do not fit.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Dataset> {
    let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let attributes = head(file, &mut lines)?;
    let plan = Plan::new(file, &attributes, options)?;
    let mut rows: Option<Rows> = None;
    let mut targets = plan.target_rows(file, &attributes, options)?;
    let mut labels: Vec<Cow<'_, str>> = Vec::new();
    for (line, content) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('%')) {
        let sparse = content.starts_with('{');
        let rows = rows.get_or_insert_with(|| Rows::new(sparse));
        labels.clear();
        labels.resize(plan.labels.len(), Cow::Borrowed("0"));
        let read = match rows {
            Rows::Dense(_) if sparse => Err("a sparse row among dense ones".into()),
            Rows::Sparse(_) if !sparse => Err("a dense row among sparse ones".into()),
            Rows::Dense(values) => plan.dense_row(&attributes, content, values, &mut labels),
            Rows::Sparse(rows) => plan.sparse_row(&attributes, content, rows, &mut labels),
        };
        read.map_err(|what| Error::line(file, line, what))?;
        if let Some(targets) = &mut targets {
            let cells: Vec<&str> = labels.iter().map(AsRef::as_ref).collect();
            targets.push(file, line, &cells)?;
        }
    }
    let features = match rows {
        None => return Err(Error::file(file, "there are no rows after @data")),
        Some(Rows::Dense(values)) => Matrix::Dense { columns: plan.names.len(), values },
        Some(Rows::Sparse(rows)) => rows.finish(plan.names.len()),
    };
    let label_columns = plan.labels.iter().map(|at| attributes[*at].name.clone()).collect();
    let targets = targets.map_or(Targets::None, TargetRows::finish);
    Ok(Dataset { features, feature_names: plan.names, targets, label_columns })
}

enum Rows {
    Dense(Vec<f64>),
    Sparse(SparseRows),
}

impl Rows {
    fn new(sparse: bool) -> Self {
        if sparse { Self::Sparse(SparseRows::new()) } else { Self::Dense(Vec::new()) }
    }
}

/// Reads up to `@data`.
fn head<'a>(file: &str, lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<Vec<Attribute>> {
    let mut attributes: Vec<Attribute> = Vec::new();
    for (line, content) in lines.by_ref().filter(|(_, line)| !line.is_empty() && !line.starts_with('%')) {
        let keyword = content.split(char::is_whitespace).next().unwrap_or_default();
        match keyword.to_ascii_lowercase().as_str() {
            "@relation" => {}
            "@attribute" => {
                let attribute = attribute(&content[keyword.len()..]).map_err(|what| Error::line(file, line, what))?;
                if attributes.iter().any(|known| known.name == attribute.name) {
                    return Err(Error::line(file, line, format!("attribute '{}' is declared twice", attribute.name)));
                }
                attributes.push(attribute);
            }
            "@data" if attributes.is_empty() => return Err(Error::line(file, line, "@data before any @attribute")),
            "@data" => return Ok(attributes),
            _ => {
                let what = format!("expected @relation, @attribute or @data, got '{keyword}'");
                return Err(Error::line(file, line, what));
            }
        }
    }
    Err(Error::file(file, "no @data line: not an ARFF file, or cut off"))
}

fn attribute(declaration: &str) -> std::result::Result<Attribute, String> {
    let mut words = Words::new(declaration);
    let name = words.word(&['{'])?.into_owned();
    if !words.take('{') {
        let kind = words.word(&[]).map_err(|_| format!("attribute '{name}' has no type"))?;
        return match kind.to_ascii_lowercase().as_str() {
            "numeric" | "real" | "integer" => Ok(Attribute { name, values: None }),
            _ => Err(format!("attribute '{name}' is of type {kind}; numeric and nominal ones can be read")),
        };
    }
    let mut values = Vec::new();
    loop {
        values.push(words.word(&[',', '}'])?.into_owned());
        if words.take('}') {
            return Ok(Attribute { name, values: Some(values) });
        }
        if !words.take(',') {
            return Err(format!("the values of attribute '{name}' must be separated by ',' and end with '}}'"));
        }
    }
}

/// Where each attribute goes.
struct Plan {
    roles: Vec<Role>,
    /// The attributes that are labels, in the order of the labels.
    labels: Vec<usize>,
    /// The names of the feature columns.
    names: Vec<String>,
}

impl Plan {
    fn new(file: &str, attributes: &[Attribute], options: &Options) -> Result<Self> {
        let all: Vec<String> = attributes.iter().map(|attribute| attribute.name.clone()).collect();
        let labels = options.labels.find(file, &all)?;
        let (mut roles, mut names) = (Vec::with_capacity(attributes.len()), Vec::new());
        for (at, attribute) in attributes.iter().enumerate() {
            let first = names.len() as u32;
            roles.push(match (labels.iter().position(|label| *label == at), &attribute.values) {
                (Some(label), _) => Role::Label(label),
                (None, None) => {
                    names.push(attribute.name.clone());
                    Role::Number(first)
                }
                (None, Some(values)) if options.nominal == Nominal::OneHot => {
                    names.extend(values.iter().map(|value| format!("{}={value}", attribute.name)));
                    Role::OneHot(first, values.iter().cloned().zip(0..).collect())
                }
                (None, Some(values)) => {
                    let spelled = values.iter().map(|value| number(value).map(|number| (value.clone(), number)));
                    let spelled = spelled.collect::<Option<_>>().ok_or_else(|| {
                        let name = &attribute.name;
                        Error::file(file, format!("the values of '{name}' are no numbers; read it one-hot"))
                    })?;
                    names.push(attribute.name.clone());
                    Role::Spelled(first, spelled)
                }
            });
        }
        Ok(Self { roles, labels, names })
    }

    fn target_rows(&self, file: &str, attributes: &[Attribute], options: &Options) -> Result<Option<TargetRows>> {
        if self.labels.is_empty() {
            return Ok(None);
        }
        let columns: Vec<String> = self.labels.iter().map(|at| attributes[*at].name.clone()).collect();
        let declared = attributes[self.labels[0]].values.clone();
        TargetRows::new(file, options.task, &columns, declared).map(Some)
    }

    /// Reads `a,b,c` and appends a row of features.
    fn dense_row<'a>(
        &self,
        attributes: &[Attribute],
        content: &'a str,
        out: &mut Vec<f64>,
        labels: &mut [Cow<'a, str>],
    ) -> std::result::Result<(), String> {
        let base = out.len();
        out.resize(base + self.names.len(), 0.0);
        let mut words = Words::new(content);
        for (at, role) in self.roles.iter().enumerate() {
            if at > 0 && !words.take(',') {
                return Err(format!("expected {} values, got {at}", self.roles.len()));
            }
            let word = words.word(&[',']).map_err(|what| format!("value {}: {what}", at + 1))?;
            match role {
                Role::Label(label) => labels[*label] = known(word, &attributes[at])?,
                role => {
                    let (column, value) = role.read(&word, &attributes[at].name)?;
                    out[base + column as usize] = value;
                }
            }
        }
        words.skip_blank();
        match words.rest() {
            "" => Ok(()),
            rest => Err(format!("expected {} values, got more: '{}'", self.roles.len(), start(rest))),
        }
    }

    /// Reads `{i a, j b}` and appends a row of features.
    fn sparse_row<'a>(
        &self,
        attributes: &'a [Attribute],
        content: &'a str,
        out: &mut SparseRows,
        labels: &mut [Cow<'a, str>],
    ) -> std::result::Result<(), String> {
        for (label, at) in self.labels.iter().enumerate() {
            if let Some(values) = &attributes[*at].values {
                labels[label] = Cow::Borrowed(values[0].as_str());
            }
        }
        let mut words = Words::new(content);
        words.take('{');
        let mut next = 0;
        while !words.take('}') {
            if next > 0 && !words.take(',') {
                return Err(format!("expected ',' or '}}' before '{}'", start(words.rest())));
            }
            let index = words.word(&[',', '}']).map_err(|_| "an index is missing, or the row is not closed by '}'")?;
            let index: usize = index.parse().map_err(|_| format!("'{index}' is no index of an attribute"))?;
            if index >= self.roles.len() {
                return Err(format!("attribute {index} does not exist; there are {}", self.roles.len()));
            }
            if index < next {
                return Err(format!("indices must ascend, got {index} after {}", next - 1));
            }
            let word = words.word(&[',', '}']).map_err(|_| format!("attribute {index} has no value"))?;
            (next..index).for_each(|skipped| self.roles[skipped].omitted(out));
            match &self.roles[index] {
                Role::Label(label) => labels[*label] = known(word, &attributes[index])?,
                role => {
                    let (column, value) = role.read(&word, &attributes[index].name)?;
                    out.push(column, value);
                }
            }
            next = index + 1;
        }
        self.roles[next..].iter().for_each(|role| role.omitted(out));
        out.end_row();
        words.skip_blank();
        if words.rest().is_empty() { Ok(()) } else { Err(format!("'{}' after the row's end", start(words.rest()))) }
    }
}

impl Role {
    /// The column and the value of a feature.
    fn read(&self, word: &str, name: &str) -> std::result::Result<(u32, f64), String> {
        if word == "?" {
            return Err(format!("'{name}' is missing ('?'); fill in missing values first"));
        }
        let undeclared = || format!("'{word}' is not a declared value of '{name}'");
        match self {
            Self::Number(column) => {
                number(word).map(|value| (*column, value)).ok_or_else(|| format!("'{name}': '{word}' is no number"))
            }
            Self::OneHot(first, values) => values.get(word).map(|at| (first + at, 1.0)).ok_or_else(undeclared),
            Self::Spelled(column, values) => values.get(word).map(|value| (*column, *value)).ok_or_else(undeclared),
            Self::Label(_) => Err("a label is no feature".into()),
        }
    }

    /// What a sparse row means by leaving the attribute out.
    fn omitted(&self, out: &mut SparseRows) {
        if let Self::OneHot(first, _) = self {
            out.push(*first, 1.0);
        }
    }
}

/// The value of a label, if it is a declared one.
fn known<'a>(word: Cow<'a, str>, attribute: &Attribute) -> std::result::Result<Cow<'a, str>, String> {
    match &attribute.values {
        Some(values) if !values.iter().any(|value| *value == word) => {
            Err(format!("'{word}' is not a declared value of '{}'", attribute.name))
        }
        _ => Ok(word),
    }
}

/// The beginning of a text, for a complaint.
fn start(text: &str) -> String {
    text.chars().take(20).collect()
}
