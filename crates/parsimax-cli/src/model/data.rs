//! From files to what models take: where the readers and the linear models meet.

use std::path::Path;

use parsimax_data::{Dataset, Matrix};
use parsimax_linear::{Features, Head, Targets};

use crate::{Failure, Result};

/// The matrix in the form that models take.
pub(crate) fn features(matrix: Matrix) -> Result<Features> {
    Ok(match matrix {
        Matrix::Dense { columns, values } => Features::dense(values, columns)?,
        Matrix::Sparse { columns, starts, indices, values } => Features::sparse(columns, starts, indices, values)?,
    })
}

/// The targets in the form that models take; `None` if the file has none.
pub(crate) fn targets(targets: parsimax_data::Targets) -> Result<Option<Targets>> {
    Ok(match targets {
        parsimax_data::Targets::None => None,
        parsimax_data::Targets::Sets { names, sets } => Some(Targets::sets(names.len(), sets)?),
        parsimax_data::Targets::Classes { names, classes } => Some(Targets::classes(names.len(), classes)?),
        parsimax_data::Targets::Proportions { names, shares } => Some(Targets::shares(names.len(), shares)?),
    })
}

/// Drops rows without a label; how many went.
pub(crate) fn labelled(features: Features, targets: Targets) -> Result<(Features, Targets, usize)> {
    let rows = targets.labelled();
    if rows.is_empty() {
        return Err(Failure::new("no row has a label"));
    }
    match targets.rows() - rows.len() {
        0 => Ok((features, targets, 0)),
        dropped => Ok((features.select(&rows), targets.select(&rows), dropped)),
    }
}

/// Complains if the file's features are not those of the model.
pub(crate) fn check_features(file: &Path, data: &Dataset, head: &Head) -> Result<()> {
    let complain = |what: String| Err(Failure::new(format!("{}: {what}", file.display())));
    let pairs = data.feature_names.iter().zip(&head.features).enumerate();
    if let Some((at, (got, expected))) = pairs.into_iter().find(|(_, (got, expected))| got != expected) {
        return complain(format!("feature {} is '{got}', but the model was fitted with '{expected}'", at + 1));
    }
    if data.feature_names.len() != head.features.len() {
        let (got, expected) = (data.feature_names.len(), head.features.len());
        return complain(format!("{got} features, but the model was fitted with {expected}"));
    }
    Ok(())
}

/// Renumbers classes by the model's names: files may declare them in another order.
pub(crate) fn align(file: &Path, targets: parsimax_data::Targets, labels: &[String]) -> Result<parsimax_data::Targets> {
    let parsimax_data::Targets::Classes { names, mut classes } = targets else { return Ok(targets) };
    let place: Vec<Option<usize>> = names.iter().map(|name| labels.iter().position(|label| label == name)).collect();
    for class in &mut classes {
        *class = place[*class].ok_or_else(|| {
            Failure::new(format!("{}: class '{}' is unknown to the model", file.display(), names[*class]))
        })?;
    }
    Ok(parsimax_data::Targets::Classes { names: labels.to_vec(), classes })
}
