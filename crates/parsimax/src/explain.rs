//! Rows with everything a reader may ask of them: probabilities, support, threshold, entropy, and
//! the numbers of the problem they solve.
//!
//! This is the slow, talkative way to a result — for inspection, reports and the command line.
//! Training and inference use [`Rows`](crate::Rows).

use crate::mapping::Scratch;
use crate::numeric;
use crate::{Error, Mapping, Result};

/// One row, explained.
#[derive(Debug, Clone, PartialEq)]
pub struct Explanation {
    /// Π(z), as long as the row of scores; masked entries are 0.
    pub p: Vec<f64>,
    /// The positions with p > 0, ascending.
    pub support: Vec<usize>,
    /// The threshold τ; `None` for a mapping without one and for a row without entries.
    pub tau: Option<f64>,
    /// The Shannon entropy `$-\sum_i p_i \log p_i$`, in nats.
    pub entropy: f64,
    /// The regulariser Ω(p), where the mapping has one.
    pub omega: Option<f64>,
    /// The smoothed maximum max_Ω(z), where the mapping has a regulariser.
    pub max: Option<f64>,
}

/// Explains every row of a row-major table of `columns` columns.
///
/// `-inf` masks an entry: it is 0 and the others are as if it were not there. A row whose entries are
/// all masked is a row of zeros.
///
/// ```
/// use parsimax::{Sparsemax, explain};
/// // Support {1.0, 0.8}: τ = (1.8 − 1)/2 = 0.4, and H = −0.6 log 0.6 − 0.4 log 0.4.
/// let row = &explain(&Sparsemax::new(), &[1.0, 0.8, 0.1], 3)?[0];
/// assert_eq!(row.support, [0, 1]);
/// assert!((row.tau.unwrap() - 0.4).abs() < 1e-15);
/// assert!((row.entropy - 0.6730116670092565).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
///
/// # Errors
/// If `z` is no whole number of rows, or a score is NaN or `+inf`.
pub fn explain(mapping: &(impl Mapping + ?Sized), z: &[f64], columns: usize) -> Result<Vec<Explanation>> {
    if columns == 0 || !z.len().is_multiple_of(columns) {
        return Err(Error::Shape {
            operation: "explain",
            what: "the scores",
            expected: format!("a whole number of rows of {columns} entries, at least one to a row"),
            got: format!("{} entries", z.len()),
        });
    }
    let mut scratch = Scratch::new();
    z.chunks_exact(columns).enumerate().map(|(row, z)| explain_row(mapping, row, z, &mut scratch)).collect()
}

fn explain_row(mapping: &(impl Mapping + ?Sized), row: usize, z: &[f64], scratch: &mut Scratch) -> Result<Explanation> {
    if let Some(index) = z.iter().position(|z| z.is_nan() || *z == f64::INFINITY) {
        return Err(Error::Score { operation: mapping.name(), row, index, value: z[index] });
    }
    let kept: Vec<usize> = (0..z.len()).filter(|i| z[*i] > f64::NEG_INFINITY).collect();
    let mut p = vec![0.0; z.len()];
    if kept.is_empty() {
        return Ok(Explanation { p, support: Vec::new(), tau: None, entropy: 0.0, omega: None, max: None });
    }
    let scores: Vec<f64> = kept.iter().map(|i| z[*i]).collect();
    let mut dense = vec![0.0; scores.len()];
    let tau = mapping.forward_row(&scores, &mut dense, scratch).map_err(|mut error| {
        if let Error::NotConverged { row: at, .. } = &mut error {
            *at = row;
        }
        error
    })?;
    for (i, value) in kept.iter().zip(&dense) {
        p[*i] = *value;
    }
    let regularized = mapping.regularized();
    Ok(Explanation {
        support: (0..p.len()).filter(|i| p[*i] > 0.0).collect(),
        tau,
        // A single certain entry has entropy 0, not −0.
        entropy: 0.0 - numeric::negative_entropy(&p),
        omega: regularized.map(|r| r.omega(&dense)),
        max: regularized.map(|r| r.max_row(&scores, &dense)),
        p,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, Options};
    use crate::{MappingExt, Softmax, Sparsemax};

    #[test]
    fn every_mapping_is_explained_as_it_is_applied() {
        let z = [0.3, -1.0, 0.9, 0.9, 0.25, -4.0];
        for entry in registry::MAPPINGS {
            let mapping = registry::build(entry.name, &Options::default()).unwrap();
            let row = &explain(&mapping, &z, z.len()).unwrap()[0];
            assert_eq!(row.p, mapping.apply(&z).unwrap(), "{}", entry.name);
            assert!(row.support.iter().all(|i| row.p[*i] > 0.0));
            assert_eq!(row.support.len(), row.p.iter().filter(|p| **p > 0.0).count());
            assert_eq!(row.omega.is_some(), mapping.regularized().is_some());
            assert_eq!(row.max.is_some(), mapping.regularized().is_some());
        }
    }

    #[test]
    fn masked_entries_keep_their_place() {
        let masked = f64::NEG_INFINITY;
        let row = &explain(&Sparsemax::new(), &[masked, 1.0, masked, 0.8], 4).unwrap()[0];
        assert_eq!(row.support, [1, 3]);
        assert_eq!((row.p[0], row.p[2]), (0.0, 0.0));
        // The support of {1.0, 0.8}: τ = 0.4; max_Ω = <p, z> − ½‖p‖² = 0.92 − 0.26.
        assert!((row.tau.unwrap() - 0.4).abs() < 1e-15);
        assert!((row.max.unwrap() - 0.66).abs() < 1e-15);
    }

    #[test]
    fn an_empty_row_is_zeros_and_a_certain_one_has_no_entropy() {
        let rows = explain(&Softmax::new(), &[f64::NEG_INFINITY, f64::NEG_INFINITY, 1e30, 0.0], 2).unwrap();
        assert_eq!(rows[0].p, [0.0, 0.0]);
        assert_eq!((rows[0].support.len(), rows[0].tau, rows[0].entropy), (0, None, 0.0));
        assert_eq!(rows[1].p, [1.0, 0.0]);
        assert!(rows[1].entropy == 0.0 && rows[1].entropy.is_sign_positive());
    }

    #[test]
    fn bad_scores_and_shapes_are_named() {
        let error = explain(&Softmax::new(), &[0.0, 1.0, 0.0, f64::NAN], 2).unwrap_err();
        assert!(matches!(error, Error::Score { row: 1, index: 1, .. }));
        assert!(explain(&Softmax::new(), &[0.0, 1.0, 2.0], 2).is_err());
        assert!(explain(&Softmax::new(), &[], 0).is_err());
    }
}
