//! A figure as data: what was computed, with names and axes, before anything is drawn.

use serde::Serialize;

/// A titled grid of panels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The name by which the command line knows it.
    pub name: String,
    /// One line above the panels.
    pub title: String,
    /// The formula that the panels show, or how to read them; below the title.
    pub subtitle: String,
    /// What there is to see, in a few sentences. Pages print it; the picture alone does not.
    pub caption: String,
    /// Panels in a row.
    pub columns: usize,
    /// The panels, row by row.
    pub panels: Vec<Panel>,
}

/// One plot of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Panel {
    /// Above the plot; may be empty.
    pub title: String,
    /// What it shows.
    pub plot: Plot,
}

/// What a panel can show.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Plot {
    /// Curves in the plane.
    Lines(Lines),
    /// A function of two variables.
    Surface(Surface),
    /// Points on the triangle of three probabilities.
    Simplex(Simplex),
}

/// Curves that share two axes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lines {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// Where the curves are named.
    pub key: Key,
    /// The curves; later ones lie above earlier ones.
    pub series: Vec<Series>,
}

/// An axis: what it measures, from where to where.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Axis {
    /// The quantity, with its unit.
    pub label: String,
    /// The ends that are drawn. Points beyond them are cut off.
    pub range: (f64, f64),
    /// How values are spread over the axis.
    pub scale: Scale,
    /// The values that carry a number, within the range.
    pub ticks: Vec<f64>,
}

/// How values are spread over an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths.
    Log,
}

impl Axis {
    /// A linear axis with numbers at `ticks`.
    #[must_use]
    pub fn linear(label: &str, range: (f64, f64), ticks: &[f64]) -> Self {
        Self { label: label.into(), range, scale: Scale::Linear, ticks: ticks.to_vec() }
    }

    /// A logarithmic axis with numbers at `ticks`; everything positive.
    #[must_use]
    pub fn log(label: &str, range: (f64, f64), ticks: &[f64]) -> Self {
        Self { label: label.into(), range, scale: Scale::Log, ticks: ticks.to_vec() }
    }

    /// Where a value lies between the ends: 0 at the first, 1 at the second.
    #[must_use]
    pub fn position(&self, value: f64) -> f64 {
        let spread = |v: f64| if self.scale == Scale::Log { v.ln() } else { v };
        let (from, to) = (spread(self.range.0), spread(self.range.1));
        (spread(value) - from) / (to - from)
    }
}

/// Where the curves of a panel are named.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Key {
    /// Nowhere: the panel's title says it.
    None,
    /// A list of samples in the upper left corner, which the curves leave free.
    TopLeft,
    /// The same in the upper right corner.
    TopRight,
    /// The same in the lower right corner.
    BottomRight,
    /// Beside the right end of each curve.
    Ends,
    /// On each curve, above this value of x.
    At(f64),
}

/// One curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Its name, as it stands in the picture.
    pub name: String,
    /// How it is drawn.
    pub ink: Ink,
    /// Its points, x ascending.
    pub points: Vec<(f64, f64)>,
    /// Lower and upper edge of a band around it, one pair for each point; or nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub band: Vec<(f64, f64)>,
}

impl Series {
    /// A curve without a band.
    #[must_use]
    pub fn new(name: &str, ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, points, band: Vec::new() }
    }

    /// The same curve with a band around it: lower and upper edge at each point.
    #[must_use]
    pub fn with_band(self, band: Vec<(f64, f64)>) -> Self {
        Self { band, ..self }
    }
}

/// How a curve or a point is told from its neighbours. Colour is never the only difference.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ink {
    /// One of many kinds: a colour, a dash pattern and a marker of its own.
    Kind(usize),
    /// One of a family in order: its place, from 0 to 1, and its rank for the dash pattern.
    Order(f64, usize),
    /// What the others are compared with: grey.
    Reference,
    /// Dots over another curve, to show that two coincide.
    Overlay,
}

/// Values over a rectangular grid.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Surface {
    /// The first variable.
    pub x: Axis,
    /// The second variable.
    pub y: Axis,
    /// The value.
    pub z: Axis,
    /// Grid lines of the first variable, ascending.
    pub xs: Vec<f64>,
    /// Grid lines of the second variable, ascending.
    pub ys: Vec<f64>,
    /// `values[i][j]` belongs to `xs[i]` and `ys[j]`.
    pub values: Vec<Vec<f64>>,
}

/// Points on the triangle of three probabilities.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Simplex {
    /// The scores, which need not lie on the triangle.
    pub scores: [f64; 3],
    /// The foot of the scores on the plane through the triangle, where entries sum to 1.
    pub foot: [f64; 3],
    /// The distributions.
    pub points: Vec<SimplexPoint>,
}

/// A distribution over three entries.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SimplexPoint {
    /// What made it.
    pub name: String,
    /// How it is drawn.
    pub ink: Ink,
    /// The distribution.
    pub p: [f64; 3],
}

/// `count` values from `range.0` to `range.1`, evenly spread, both ends exact.
pub(crate) fn spread(range: (f64, f64), count: usize) -> Vec<f64> {
    let last = (count - 1) as f64;
    (0..count).map(|i| (range.0 * (last - i as f64) + range.1 * i as f64) / last).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_run_from_0_to_1() {
        let linear = Axis::linear("t", (-2.0, 6.0), &[]);
        assert_eq!([-2.0, 0.0, 6.0].map(|t| linear.position(t)), [0.0, 0.25, 1.0]);
        // log 10 is half of log 100.
        let log = Axis::log("s", (1.0, 100.0), &[]);
        assert_eq!([1.0, 100.0].map(|s| log.position(s)), [0.0, 1.0]);
        assert!((log.position(10.0) - 0.5).abs() < 1e-15);
    }

    #[test]
    fn spread_hits_both_ends_and_the_middle() {
        let t = spread((-3.0, 3.0), 121);
        assert_eq!((t[0], t[60], t[120], t.len()), (-3.0, 0.0, 3.0, 121));
        assert_eq!(t[80], 1.0);
    }
}
