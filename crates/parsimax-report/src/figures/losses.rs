//! Two classes: losses against the margin of the right one.

use parsimax::loss::modified_huber;
use parsimax::registry::Options;

use super::subjects::{DEFAULTS, Subject, choice, subjects};
use super::{Entry, Request};
use crate::figure::spread;
use crate::{Axis, Figure, Ink, Key, Lines, Panel, Plot, Result, Series};

pub(super) const ENTRY: Entry = Entry {
    name: "losses",
    shows: "Fenchel–Young losses of two classes beside hinge, logistic and Huber",
    after: "Martins & Astudillo 2016, Fig. 2",
    takes: &["mapping"],
    build: losses,
};

const RANGE: (f64, f64) = (-3.0, 3.0);

fn losses(request: &Request) -> Result<Figure> {
    let own = [
        choice("sparsemax", DEFAULTS),
        choice("entmax", Options { alpha: Some(1.5), ..DEFAULTS }),
        choice("softmax", DEFAULTS),
    ];
    let all = subjects(ENTRY.name, request, &own)?;
    let t = spread(RANGE, 121);
    let hinge = t.iter().map(|&t| (t, (1.0 - t).max(0.0))).collect();
    let mut series = vec![Series::new("hinge", Ink::Reference, hinge)];
    for (kind, subject) in all.iter().enumerate() {
        let label = if subject.label == "softmax" { "softmax = logistic" } else { &subject.label };
        series.push(Series::new(label, Ink::Kind(kind), loss(subject, &t)?));
    }
    let huber = t.iter().map(|&t| (t, modified_huber(t))).collect();
    series.push(Series::new("modified Huber", Ink::Overlay, huber));
    let lines = Lines {
        x: Axis::linear("margin t of the right class", RANGE, &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
        y: Axis::linear("loss", (-0.1, 4.1), &[0.0, 1.0, 2.0, 3.0, 4.0]),
        key: Key::TopRight,
        series,
    };
    Ok(Figure {
        name: ENTRY.name.into(),
        title: "Losses of two classes".into(),
        subtitle: "L(t) = γΩ(e₁) + max_Ω(t, 0) − t".into(),
        caption: "The sparsemax loss of two classes is the modified Huber loss. Like the hinge it is exactly 0 from a \
                  margin of 1 on, and unlike it smooth everywhere; the loss of 1.5-entmax is 0 from 2 on, the \
                  logistic loss nowhere."
            .into(),
        columns: 1,
        panels: vec![Panel { title: String::new(), plot: Plot::Lines(lines) }],
    })
}

/// The Fenchel–Young loss of z = (t, 0) for the first class.
fn loss(subject: &Subject, t: &[f64]) -> Result<Vec<(f64, f64)>> {
    let mapping = subject.regularized(ENTRY.name)?;
    let value = |&t: &f64| {
        let z = [t, 0.0];
        Ok((t, mapping.loss_row(&z, &subject.apply(&z)?, &[1.0, 0.0])))
    };
    t.iter().map(value).collect()
}
