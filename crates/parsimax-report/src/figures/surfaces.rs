//! Three scores (t₁, t₂, 0): a probability as a surface over the plane.

use parsimax::registry::Options;

use super::curves::{curve, p_axis};
use super::subjects::{DEFAULTS, Subject, choice, subjects};
use super::{Entry, Request};
use crate::figure::spread;
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Result, Series, Surface};

pub(super) const SPARSEMAX: Entry = Entry {
    name: "sparsemax",
    shows: "softmax and sparsemax of two scores as curves, of three as surfaces",
    after: "Martins & Astudillo 2016, Fig. 1",
    takes: &[],
    build: sparsemax,
};

pub(super) const SURFACES: Entry = Entry {
    name: "surfaces",
    shows: "Π(t₁, t₂, 0)₂ as a surface for six mappings",
    after: "Niculae & Blondel 2017, Fig. 5",
    takes: &["mapping"],
    build: surfaces,
};

const RANGE: (f64, f64) = (-3.0, 3.0);

/// Steps of 1/4: bends of sparsemax at whole numbers fall on grid lines.
const COUNT: usize = 25;

fn sparsemax(request: &Request) -> Result<Figure> {
    let own = [choice("softmax", DEFAULTS), choice("sparsemax", DEFAULTS)];
    let all = subjects(SPARSEMAX.name, request, &own)?;
    let t = spread(RANGE, 121);
    let mut series = Vec::new();
    for (kind, subject) in all.iter().enumerate() {
        series.push(Series::new(&subject.label, Ink::Kind(kind), curve(subject, &t)?));
    }
    let x = Axis::linear("t", RANGE, &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]);
    let lines = Lines { x, y: p_axis(""), key: Key::TopLeft, series };
    let mut panels = vec![Panel { title: "Π(t, 0)₁".into(), plot: Plot::Lines(lines) }];
    for subject in &all {
        let title = format!("{}(t₁, t₂, 0)₁", subject.label);
        panels.push(Panel { title, plot: Plot::Surface(surface(subject, 0)?) });
    }
    Ok(Figure {
        name: SPARSEMAX.name.into(),
        title: "Softmax and sparsemax in two and three dimensions".into(),
        subtitle: "sparsemax(z) is the distribution nearest to z; grey is exactly 0".into(),
        caption: "With two scores softmax is the logistic function and sparsemax its hard version, (t + 1)/2 between \
                  −1 and 1. With three, sparsemax is piecewise linear, and flat at exactly 0 and 1."
            .into(),
        columns: 3,
        panels,
    })
}

fn surfaces(request: &Request) -> Result<Figure> {
    let own = [
        choice("softmax", DEFAULTS),
        choice("entmax", Options { alpha: Some(1.5), ..DEFAULTS }),
        choice("sparsemax", DEFAULTS),
        choice("sq-pnorm-max", Options { p: Some(1.5), ..DEFAULTS }),
        choice("fusedmax", Options { lambda: Some(0.2), ..DEFAULTS }),
        choice("oscarmax", Options { lambda: Some(0.2), ..DEFAULTS }),
    ];
    let all = subjects(SURFACES.name, request, &own)?;
    let panel =
        |subject: &Subject| Ok(Panel { title: subject.label.clone(), plot: Plot::Surface(surface(subject, 1)?) });
    let panels = all.iter().map(panel).collect::<Result<Vec<_>>>()?;
    Ok(Figure {
        name: SURFACES.name.into(),
        title: "What the second of three scores receives".into(),
        subtitle: "Π(t₁, t₂, 0)₂; grey is exactly 0".into(),
        caption: "Softmax is positive everywhere; the others have plains at exactly 0 and plateaus at exactly 1. \
                  1.5-entmax and sq-pnorm-max turn gently where sparsemax has edges; fusedmax and oscarmax have \
                  ridges and plateaus where entries become equal."
            .into(),
        columns: panels.len().min(3),
        panels,
    })
}

/// One entry of Π(t₁, t₂, 0) over the grid.
fn surface(subject: &Subject, entry: usize) -> Result<Surface> {
    let grid = spread(RANGE, COUNT);
    let row = |&t1: &f64| grid.iter().map(|&t2| Ok(subject.apply(&[t1, t2, 0.0])?[entry])).collect();
    let values = grid.iter().map(row).collect::<Result<Vec<Vec<f64>>>>()?;
    let axis = |label: &str| Axis::linear(label, RANGE, &[-3.0, 0.0, 3.0]);
    Ok(Surface {
        x: axis("t₁"),
        y: axis("t₂"),
        z: Axis::linear("", (0.0, 1.0), &[0.0, 0.5, 1.0]),
        xs: grid.clone(),
        ys: grid.clone(),
        values,
    })
}
