//! The triangle of three probabilities, seen from straight above.

use super::canvas::{Canvas, Pen, Rect};
use super::text::{Anchor, Text};
use crate::{Colour, Ink, Simplex, SimplexPoint};

/// The height of the triangle over its side.
const TALL: f64 = 0.866_025_403_784_438_6;
/// Scores are drawn up to this distance from the middle, in sides; farther ones are pointed at.
const REACH: f64 = 1.25;
/// Room for the list of points.
const LIST: f64 = 270.0;

/// From points of the plane of sum 1 to the sheet.
struct View {
    origin: (f64, f64),
    side: f64,
}

/// A point of the plane in sides of the triangle: e₁ left, e₂ right, e₃ on top.
fn flat(p: [f64; 3]) -> (f64, f64) {
    (p[1] + p[2] / 2.0, p[2] * TALL)
}

impl View {
    /// The view that holds the triangle and the points given.
    fn new(rect: Rect, points: &[(f64, f64)]) -> Self {
        let fold = |pick: fn(&(f64, f64)) -> f64| {
            points.iter().map(pick).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)))
        };
        let ((left, right), (bottom, top)) = (fold(|p| p.0), fold(|p| p.1));
        let (width, height) = (rect.width - 90.0, rect.height - 90.0);
        let side = (width / (right - left)).min(height / (top - bottom)).max(1.0);
        let x = rect.x + 45.0 + (width - side * (right - left)) / 2.0 - side * left;
        let y = rect.y + 45.0 + (height + side * (top - bottom)) / 2.0 + side * bottom;
        Self { origin: (x, y), side }
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.origin.0 + self.side * x, self.origin.1 - self.side * y)
    }
}

const CORNERS: [[f64; 3]; 3] = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];

pub(super) fn draw(canvas: &mut Canvas, rect: Rect, plot: &Simplex) {
    let (foot, far) = within_reach(plot.foot);
    let mut all = CORNERS.map(flat).to_vec();
    all.push(foot);
    let view = View::new(rect.without_right(LIST), &all);
    triangle(canvas, &view);
    let start = view.place(foot);
    let thread = Pen { colour: canvas.theme.reference, width: 1.2, dashes: &[3.0, 3.0] };
    let ends: Vec<_> = plot.points.iter().map(|point| view.place(flat(point.p))).collect();
    for end in &ends {
        canvas.line(&[start, *end], thread);
    }
    names(canvas, &view);
    if far {
        pointer(canvas, view.place(flat([1.0 / 3.0; 3])), start);
    } else {
        cross(canvas, start);
    }
    let above = if foot.1 < 0.0 { 20.0 } else { -10.0 };
    canvas.text(
        start.0,
        start.1 + above,
        if far { "z, farther out" } else { "z" },
        Text::bold(13.0).halo(),
        Anchor::Middle,
    );
    for (i, point) in plot.points.iter().enumerate() {
        // Points in one place become rings around each other.
        let below = ends[..i].iter().filter(|other| (other.0 - ends[i].0).hypot(other.1 - ends[i].1) < 3.0).count();
        marker(canvas, ends[i], point.ink, 5.5 + 4.5 * below as f64, below == 0);
    }
    list(canvas, rect, plot);
}

/// The point itself, or the one in its direction that still fits.
fn within_reach(foot: [f64; 3]) -> ((f64, f64), bool) {
    // Far out only the direction counts; scores may be as large as numbers get.
    let largest = foot.iter().fold(1e6f64, |a, b| a.max(b.abs()));
    let foot = flat(foot.map(|z| z / largest * 1e6));
    let middle = flat([1.0 / 3.0; 3]);
    let (dx, dy) = (foot.0 - middle.0, foot.1 - middle.1);
    let distance = dx.hypot(dy);
    if distance <= REACH {
        return (foot, false);
    }
    ((middle.0 + dx / distance * REACH, middle.1 + dy / distance * REACH), true)
}

/// The edges, and lines of equal probability at every fifth.
fn triangle(canvas: &mut Canvas, view: &View) {
    let corners = CORNERS.map(|corner| view.place(flat(corner)));
    canvas.fill(&corners, canvas.theme.zero, 0.45);
    let grid = Pen { colour: canvas.theme.grid, width: 1.0, dashes: &[] };
    for share in [0.2, 0.4, 0.6, 0.8] {
        for entry in 0..3 {
            let mut ends = [[0.0; 3]; 2];
            for (end, other) in ends.iter_mut().zip([1, 2]) {
                end[entry] = share;
                end[(entry + other) % 3] = 1.0 - share;
            }
            canvas.line(&ends.map(|end| view.place(flat(end))), grid);
        }
    }
    let edge = Pen { colour: canvas.theme.faint, width: 1.4, dashes: &[] };
    canvas.line(&[corners[0], corners[1], corners[2], corners[0]], edge);
}

/// The corners' names, readable across threads.
fn names(canvas: &mut Canvas, view: &View) {
    let style = Text::plain(13.0).halo();
    let [a, b, c] = CORNERS.map(|corner| view.place(flat(corner)));
    canvas.text(a.0 - 10.0, a.1 + 22.0, "(1, 0, 0)", style, Anchor::Middle);
    canvas.text(b.0 + 10.0, b.1 + 22.0, "(0, 1, 0)", style, Anchor::Middle);
    canvas.text(c.0, c.1 - 16.0, "(0, 0, 1)", style, Anchor::Middle);
}

fn cross(canvas: &mut Canvas, (x, y): (f64, f64)) {
    let pen = Pen { colour: canvas.theme.ink, width: 2.2, dashes: &[] };
    canvas.line(&[(x - 5.0, y - 5.0), (x + 5.0, y + 5.0)], pen);
    canvas.line(&[(x - 5.0, y + 5.0), (x + 5.0, y - 5.0)], pen);
}

/// The head of an arrow at `to`, away from `from`.
fn pointer(canvas: &mut Canvas, from: (f64, f64), to: (f64, f64)) {
    let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let at = |along: f64, across: f64| (to.0 + along * dx - across * dy, to.1 + along * dy + across * dx);
    canvas.fill(&[at(0.0, 0.0), at(-14.0, 6.0), at(-14.0, -6.0)], canvas.theme.ink, 1.0);
}

/// A shape of the kind's own: circle, square, triangle, diamond; filled, or as an outline.
fn marker(canvas: &mut Canvas, (x, y): (f64, f64), ink: Ink, radius: f64, filled: bool) {
    let colour = canvas.theme.colour(ink);
    let kind = if let Ink::Kind(kind) = ink { kind % 4 } else { 0 };
    let corners: &[(f64, f64)] = match kind {
        0 => return canvas.circle((x, y), radius, colour, filled),
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.25), (1.1, 0.8), (-1.1, 0.8)],
        _ => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    };
    let points: Vec<_> = corners.iter().map(|(dx, dy)| (x + dx * radius, y + dy * radius)).collect();
    outline_or_fill(canvas, points, colour, filled);
}

fn outline_or_fill(canvas: &mut Canvas, mut points: Vec<(f64, f64)>, colour: Colour, filled: bool) {
    if filled {
        return canvas.fill(&points, colour, 1.0);
    }
    points.extend_from_within(..1);
    canvas.line(&points, Pen { colour, width: 2.0, dashes: &[] });
}

/// What each marker stands for, with the numbers: exact zeros have no decimals.
fn list(canvas: &mut Canvas, rect: Rect, plot: &Simplex) {
    let x = rect.right() - LIST + 24.0;
    let step = 44.0f64.min((rect.height - 40.0) / (plot.points.len() + 1) as f64);
    let mut y = rect.y + 30.0;
    cross(canvas, (x, y - 4.0));
    entry(canvas, (x, y), "scores z", &plot.scores.map(score), step);
    for SimplexPoint { name, ink, p } in &plot.points {
        y += step;
        marker(canvas, (x, y - 4.0), *ink, 5.5, true);
        entry(canvas, (x, y), name, &p.map(probability), step);
    }
}

fn entry(canvas: &mut Canvas, (x, y): (f64, f64), name: &str, values: &[String; 3], step: f64) {
    let values = format!("({})", values.join(", "));
    canvas.text(x + 16.0, y, name, Text::bold(13.0), Anchor::Start);
    if step > 36.0 {
        canvas.text(x + 16.0, y + 18.0, &values, Text::plain(13.0).faint(), Anchor::Start);
    }
}

/// A score to three decimals; very large ones with an exponent.
fn score(z: f64) -> String {
    let text = if z.abs() < 1e6 { ((z * 1e3).round() / 1e3).to_string() } else { format!("{z:.2e}") };
    text.replace('-', "−")
}

/// 0 and 1 only where they are exact.
fn probability(p: f64) -> String {
    match p {
        0.0 | 1.0 => p.to_string(),
        p if p < 5e-4 => format!("{p:.0e}").replace('-', "−"),
        p => format!("{:.3}", p.min(0.999)),
    }
}
