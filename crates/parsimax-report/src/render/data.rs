//! The numbers of a figure, for those who want to draw it themselves.

use std::fmt::Write as _;

use crate::{Figure, Plot};

/// Everything that the figure holds, as JSON.
#[must_use]
pub fn json(figure: &Figure) -> String {
    // A tree of numbers, strings and lists has no way to fail.
    let mut text = serde_json::to_string_pretty(figure).unwrap_or_default();
    text.push('\n');
    text
}

/// The points of every panel, one to a line: panel, series, x, y, value and, for bands, lower and upper.
/// Columns that a panel has no use for are empty.
#[must_use]
pub fn csv(figure: &Figure) -> String {
    let mut out = String::from("panel,series,x,y,value,lower,upper\n");
    let mut line = |arguments: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{arguments}");
    };
    for panel in &figure.panels {
        let title = quoted(&panel.title);
        match &panel.plot {
            Plot::Lines(plot) => {
                for series in &plot.series {
                    let name = quoted(&series.name);
                    for (i, (x, y)) in series.points.iter().enumerate() {
                        let band = series.band.get(i).map_or(",".into(), |(low, high)| format!("{low},{high}"));
                        line(format_args!("{title},{name},{x},{y},,{band}"));
                    }
                }
            }
            Plot::Surface(plot) => {
                for (x, row) in plot.xs.iter().zip(&plot.values) {
                    for (y, value) in plot.ys.iter().zip(row) {
                        line(format_args!("{title},,{x},{y},{value},,"));
                    }
                }
            }
            Plot::Simplex(plot) => {
                // Entries are numbered by x.
                let named = |name: &str, values: &[f64; 3]| values.map(|value| (quoted(name), value));
                let rows = std::iter::once(named("scores", &plot.scores));
                let rows = rows.chain(plot.points.iter().map(|point| named(&point.name, &point.p)));
                for (entry, (name, value)) in rows.flat_map(|row| (1..).zip(row)) {
                    line(format_args!("{title},{name},{entry},,{value},,"));
                }
            }
        }
    }
    out
}

/// A field in quotes, as it may hold commas.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
