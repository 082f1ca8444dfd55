//! CSV with a head line: numbers, and labels in the last columns or in columns by name.

use crate::dataset::TargetRows;
use crate::text::number;
use crate::{Dataset, Error, Matrix, Options, Result, Targets};

/// Reads a CSV text; `file` is its name in complaints.
///
/// # Errors
/// If a row has another number of cells than the head, or a feature is no number.
pub fn parse(file: &str, text: &str, options: &Options) -> Result<Dataset> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let head: Vec<String> =
        reader.headers().map_err(|error| complaint(file, &error))?.iter().map(String::from).collect();
    if head.iter().all(String::is_empty) {
        return Err(Error::file(file, "there is no head line"));
    }
    let labels = options.labels.find(file, &head)?;
    let features: Vec<usize> = (0..head.len()).filter(|column| !labels.contains(column)).collect();
    let label_columns: Vec<String> = labels.iter().map(|at| head[*at].clone()).collect();
    let known = options.known.clone();
    let mut targets = match labels.is_empty() {
        true => None,
        false => Some(TargetRows::new(file, options.task, &label_columns, known)?),
    };
    let (mut values, mut rows) = (Vec::new(), 0);
    for record in reader.records() {
        let record = record.map_err(|error| complaint(file, &error))?;
        let line = record.position().map_or(0, |position| position.line() as usize);
        for column in &features {
            let value = number(&record[*column]).ok_or_else(|| {
                Error::line(file, line, format!("'{}': '{}' is no number", head[*column], &record[*column]))
            })?;
            values.push(value);
        }
        if let Some(targets) = &mut targets {
            let cells: Vec<&str> = labels.iter().map(|at| &record[*at]).collect();
            targets.push(file, line, &cells)?;
        }
        rows += 1;
    }
    if rows == 0 {
        return Err(Error::file(file, "there are no rows after the head line"));
    }
    let feature_names: Vec<String> = features.iter().map(|at| head[*at].clone()).collect();
    let targets = targets.map_or(Targets::None, TargetRows::finish);
    Ok(Dataset { features: Matrix::Dense { columns: features.len(), values }, feature_names, targets, label_columns })
}

fn complaint(file: &str, error: &csv::Error) -> Error {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { pos, expected_len, len } => {
            let what = format!("expected {expected_len} cells, got {len}");
            Error { file: file.into(), line: pos.as_ref().map(|pos| pos.line() as usize), what }
        }
        _ => Error::file(file, error.to_string()),
    }
}
