//! How many entries survive as scores grow.

use parsimax::MappingExt;
use parsimax::registry::{MAPPINGS, Options};

use super::subjects::{Choice, DEFAULTS, Subject, choice, subjects};
use super::{Entry, Request};
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Result, Series};

pub(super) const ENTRY: Entry = Entry {
    name: "sparsity",
    shows: "entries that are not zero, against the scale of normally distributed scores",
    after: "–",
    takes: &["mapping"],
    build: sparsity,
};

/// The length of a row, and the rows that a mean is taken over.
const ENTRIES: usize = 64;
const ROWS: usize = 200;
const SEED: u64 = 1868;

/// More curves than these would bury each other's bands.
const WITH_BANDS: usize = 3;

fn sparsity(request: &Request) -> Result<Figure> {
    let all = subjects(ENTRY.name, request, &registry())?;
    // Five steps to a doubling would be 0.2; eight to a factor of ten hit 0.1, 1 and 10.
    let scales: Vec<f64> = (-8..=12).map(|i| 10f64.powf(f64::from(i) / 8.0)).collect();
    let rows = normal_rows();
    let mut series = Vec::new();
    for (kind, subject) in all.iter().enumerate() {
        series.push(survivors(subject, Ink::Kind(kind), &scales, &rows, all.len() <= WITH_BANDS)?);
    }
    let with_bands = series.iter().any(|series| !series.band.is_empty());
    let lines = Lines {
        x: Axis::log("scale s of the scores", (0.1, scales[scales.len() - 1]), &[0.1, 0.3, 1.0, 3.0, 10.0, 30.0]),
        y: Axis::log("entries > 0, mean", (0.9, 72.0), &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]),
        key: Key::Ends,
        series,
    };
    let band = if with_bands { "; bands hold the middle 80% of rows" } else { "" };
    Ok(Figure {
        name: ENTRY.name.into(),
        title: "How many entries survive".into(),
        subtitle: format!("support of Π(s·z) for z of {ENTRIES} standard normal scores, mean of {ROWS} rows{band}"),
        caption: "Softmax keeps all entries at any scale and ev-softmax the better half; for the others scale, or \
                  1/γ, sets how many survive. Sparsehourglass depends on the sum of the scores as well."
            .into(),
        columns: 1,
        panels: vec![Panel { title: String::new(), plot: Plot::Lines(lines) }],
    })
}

/// The whole registry, with an α that sets entmax apart from entmax15.
fn registry() -> Vec<Choice> {
    let options = |name| match name {
        "entmax" => Options { alpha: Some(1.25), ..DEFAULTS },
        "normmax" => Options { alpha: Some(3.0), ..DEFAULTS },
        _ => DEFAULTS,
    };
    MAPPINGS.iter().map(|entry| choice(entry.name, options(entry.name))).collect()
}

/// Rows of standard normal scores, the same on every machine.
fn normal_rows() -> Vec<Vec<f64>> {
    let mut rng = fastrand::Rng::with_seed(SEED);
    // Box and Muller; 1 − u is never 0.
    let mut normal = || {
        let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
        radius * (std::f64::consts::TAU * rng.f64()).cos()
    };
    (0..ROWS).map(|_| (0..ENTRIES).map(|_| normal()).collect()).collect()
}

/// Mean size of the support at every scale, and the deciles around it if asked for.
fn survivors(subject: &Subject, ink: Ink, scales: &[f64], rows: &[Vec<f64>], bands: bool) -> Result<Series> {
    let mut series = Series::new(&subject.label, ink, Vec::new());
    for &scale in scales {
        let mut sizes = Vec::with_capacity(rows.len());
        for row in rows {
            let z: Vec<f64> = row.iter().map(|z| z * scale).collect();
            sizes.push(subject.mapping.support(&z)?.index.len());
        }
        series.points.push((scale, sizes.iter().sum::<usize>() as f64 / sizes.len() as f64));
        if bands {
            sizes.sort_unstable();
            series.band.push((sizes[sizes.len() / 10] as f64, sizes[sizes.len() * 9 / 10] as f64));
        }
    }
    Ok(series)
}
