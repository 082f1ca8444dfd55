//! Three scores and where the mappings put them on the triangle of distributions.

use parsimax::registry::Options;

use super::subjects::{DEFAULTS, choice, subjects};
use super::{Entry, Request};
use crate::{Error, Figure, Ink, Panel, Plot, Result, Simplex, SimplexPoint};

pub(super) const ENTRY: Entry = Entry {
    name: "simplex",
    shows: "three scores and the distributions that mappings make of them",
    after: "Chen et al. 2021, Fig. 1",
    takes: &["mapping", "scores"],
    build: simplex,
};

fn simplex(request: &Request) -> Result<Figure> {
    let z = scores(&request.scores)?;
    let own = [
        choice("softmax", DEFAULTS),
        choice("sparsemax", DEFAULTS),
        choice("entmax", Options { alpha: Some(1.5), ..DEFAULTS }),
        choice("ev-softmax", DEFAULTS),
    ];
    let mut points = Vec::new();
    for (kind, subject) in subjects(ENTRY.name, request, &own)?.iter().enumerate() {
        if subject.mapping.total(3) != 1.0 {
            let expected = "a mapping whose entries sum to 1".into();
            return Err(Error::Option { figure: ENTRY.name, option: "mapping", expected, got: subject.label.clone() });
        }
        let p = subject.apply(&z)?;
        points.push(SimplexPoint { name: subject.label.clone(), ink: Ink::Kind(kind), p: [p[0], p[1], p[2]] });
    }
    let excess = (z[0] / 3.0 + z[1] / 3.0 + z[2] / 3.0) - 1.0 / 3.0;
    // The largest numbers have a foot beyond them.
    let foot = z.map(|z| (z - excess).clamp(f64::MIN, f64::MAX));
    let plot = Plot::Simplex(Simplex { scores: z, foot, points });
    Ok(Figure {
        name: ENTRY.name.into(),
        title: "Three scores on the simplex".into(),
        subtitle: "inside: three entries > 0; on an edge: two; at a corner: one".into(),
        caption: "The triangle holds all distributions over three entries. The scores z are drawn at their foot on \
                  its plane, where entries sum to 1. Sparsemax goes to the nearest point of the triangle, softmax \
                  always stays inside, ev-softmax keeps the proportions of softmax among the entries it keeps."
            .into(),
        columns: 1,
        panels: vec![Panel { title: String::new(), plot }],
    })
}

/// Three finite scores. If none are given, those of the literature, (0.4, 1.4, −0.8), moved by 0.05 at most
/// to numbers that are exact in binary: their first two differ by exactly 1, so sparsemax is at the corner.
fn scores(given: &[f64]) -> Result<[f64; 3]> {
    let wrong = |expected: &str, got: String| {
        Err(Error::Option { figure: ENTRY.name, option: "scores", expected: expected.into(), got })
    };
    match given {
        [] => Ok([0.375, 1.375, -0.75]),
        &[a, b, c] => match [a, b, c].iter().find(|z| !z.is_finite()) {
            Some(bad) => wrong("finite numbers", bad.to_string()),
            None => Ok([a, b, c]),
        },
        other => wrong("three numbers, one for each corner", format!("{} of them", other.len())),
    }
}
