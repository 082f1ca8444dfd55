//! A function of two variables in parallel projection, facets painted from the back to the front.

use super::canvas::{Canvas, Pen, Rect};
use super::lines::signed;
use super::text::{Anchor, Text};
use crate::Surface;
use crate::theme::cividis;

/// The turn of the ground and the height of the eye, in degrees: both variables grow away from the viewer.
const TURN: f64 = 42.0;
const RISE: f64 = 27.0;
/// Height of the box over the side of its ground.
const HEIGHT: f64 = 0.75;

/// From the unit cube to the sheet.
struct View {
    centre: (f64, f64),
    scale: f64,
}

impl View {
    /// The view that fills the rectangle, leaving room for the numbers.
    fn new(rect: Rect) -> Self {
        let (sin, cos) = TURN.to_radians().sin_cos();
        let (rise, level) = RISE.to_radians().sin_cos();
        let (width, height) = (sin + cos, (sin + cos) * rise + HEIGHT * level);
        let scale = ((rect.width - 62.0) / width).min((rect.height - 52.0) / height).max(1.0);
        // The middle of the box is not the middle of its outline: left and right reach differ.
        let across = rect.x + rect.width / 2.0 + 8.0 - scale * (cos - sin) / 2.0;
        Self { centre: (across, rect.y + 8.0 + scale * (HEIGHT * level + (sin + cos) * rise)), scale }
    }

    /// The place of a point of the cube; the front corner of the ground is the centre.
    fn place(&self, x: f64, y: f64, z: f64) -> (f64, f64) {
        let (sin, cos) = TURN.to_radians().sin_cos();
        let (rise, level) = RISE.to_radians().sin_cos();
        let (across, depth) = (x * cos - y * sin, x * sin + y * cos);
        let up = depth * rise + z * HEIGHT * level;
        (self.centre.0 + self.scale * across, self.centre.1 - self.scale * up)
    }
}

pub(super) fn draw(canvas: &mut Canvas, rect: Rect, plot: &Surface) {
    let view = View::new(rect);
    walls(canvas, &view, plot);
    facets(canvas, &view, plot);
    numbers(canvas, &view, plot);
}

/// The ground and the two walls behind the surface, with their grid.
fn walls(canvas: &mut Canvas, view: &View, plot: &Surface) {
    let grid = Pen { colour: canvas.theme.grid, width: 1.0, dashes: &[] };
    let edge = Pen { colour: canvas.theme.faint, ..grid };
    let mut line = |pen, corners: &[(f64, f64, f64)]| {
        let points: Vec<_> = corners.iter().map(|&(x, y, z)| view.place(x, y, z)).collect();
        canvas.line(&points, pen);
    };
    for x in plot.x.ticks.iter().map(|t| plot.x.position(*t)) {
        line(grid, &[(x, 0.0, 0.0), (x, 1.0, 0.0), (x, 1.0, 1.0)]);
    }
    for y in plot.y.ticks.iter().map(|t| plot.y.position(*t)) {
        line(grid, &[(0.0, y, 0.0), (1.0, y, 0.0), (1.0, y, 1.0)]);
    }
    for z in plot.z.ticks.iter().map(|t| plot.z.position(*t)) {
        line(grid, &[(0.0, 1.0, z), (1.0, 1.0, z), (1.0, 0.0, z)]);
    }
    line(edge, &[(0.0, 1.0, 1.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0)]);
}

/// The cells of the grid from the back to the front. Exact zeros have a colour of their own.
fn facets(canvas: &mut Canvas, view: &View, plot: &Surface) {
    canvas.open_mesh(canvas.theme.paper);
    // Both variables grow away from the viewer, so descending order is from the back to the front.
    for i in (1..plot.xs.len()).rev() {
        for j in (1..plot.ys.len()).rev() {
            let corners = [(i - 1, j - 1), (i, j - 1), (i, j), (i - 1, j)];
            let zeros = corners.iter().filter(|(i, j)| plot.values[*i][*j] == 0.0).count();
            if matches!(zeros, 1..=3) {
                // The border of the zeros runs through the cell; ties of two scores lie on this diagonal.
                facet(canvas, view, plot, &[corners[0], corners[2], corners[3]]);
                facet(canvas, view, plot, &corners[..3]);
            } else {
                facet(canvas, view, plot, &corners);
            }
        }
    }
    canvas.close_mesh();
}

/// A cell or a half of one, coloured by the mean of its corners.
fn facet(canvas: &mut Canvas, view: &View, plot: &Surface, corners: &[(usize, usize)]) {
    let heights: Vec<f64> = corners.iter().map(|&(i, j)| plot.z.position(plot.values[i][j])).collect();
    let place = |(&(i, j), height): (&(usize, usize), &f64)| {
        view.place(plot.x.position(plot.xs[i]), plot.y.position(plot.ys[j]), *height)
    };
    let points: Vec<_> = corners.iter().zip(&heights).map(place).collect();
    let zero = corners.iter().all(|&(i, j)| plot.values[i][j] == 0.0);
    let mean = heights.iter().sum::<f64>() / heights.len() as f64;
    canvas.fill(&points, if zero { canvas.theme.zero } else { cividis(mean) }, 1.0);
}

/// Numbers and names along the edges in front.
fn numbers(canvas: &mut Canvas, view: &View, plot: &Surface) {
    let (small, name) = (Text::plain(12.0).faint(), Text::plain(13.0));
    for tick in &plot.x.ticks {
        let (x, y) = view.place(plot.x.position(*tick), 0.0, 0.0);
        canvas.text(x + 5.0, y + 13.0, &signed(*tick), small, Anchor::Start);
    }
    for tick in &plot.y.ticks {
        let (x, y) = view.place(0.0, plot.y.position(*tick), 0.0);
        canvas.text(x - 4.0, y + 15.0, &signed(*tick), small, Anchor::End);
    }
    for tick in &plot.z.ticks {
        let (x, y) = view.place(0.0, 1.0, plot.z.position(*tick));
        canvas.text(x - 6.0, y + 1.0, &signed(*tick), small, Anchor::End);
    }
    let (x, y) = view.place(0.75, 0.0, 0.0);
    canvas.text(x + 14.0, y + 22.0, &plot.x.label, name, Anchor::Start);
    let (x, y) = view.place(0.0, 0.75, 0.0);
    canvas.text(x - 14.0, y + 22.0, &plot.y.label, name, Anchor::End);
}
