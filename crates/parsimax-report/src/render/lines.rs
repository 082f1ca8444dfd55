//! Curves in the plane: axes and grid by plotters, curves cut to the frame, names by `labels`.

use plotters::chart::ChartBuilder;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::IntoDrawingArea;
use plotters::style::{Color, FontStyle, RGBColor, ShapeStyle, TextStyle};
use plotters_backend::BackendColor;

use super::canvas::{Canvas, Frame, Pen, Rect, UNITS};
use super::labels;
use super::text::{LINE, font};
use crate::theme::dashes;
use crate::{Axis, Ink, Key, Lines, Series};

/// Pixels of an axis' numbers and label.
const BELOW: f64 = 40.0;
const TICKS: f64 = 36.0;
const LABEL: f64 = 22.0;

/// A point as shares of the frame.
type Point = (f64, f64);

pub(super) fn draw(canvas: &mut Canvas, rect: Rect, plot: &Lines) {
    let room = if plot.key == Key::Ends { labels::width(plot) } else { 12.0 };
    let frame = axes(canvas, rect.without_right(room), plot);
    for series in &plot.series {
        band(canvas, frame, plot, series);
    }
    for series in &plot.series {
        let points = series.points.iter().map(|&(x, y)| (plot.x.position(x), plot.y.position(y)));
        for piece in cut(&points.collect::<Vec<_>>()) {
            let piece: Vec<_> = piece.iter().map(|&(x, y)| frame.at(x, y)).collect();
            canvas.line(&piece, pen(canvas, series.ink));
        }
    }
    labels::draw(canvas, frame, plot);
}

/// The pen of a curve.
pub(super) fn pen(canvas: &Canvas, ink: Ink) -> Pen<'static> {
    let width = match ink {
        Ink::Kind(_) | Ink::Order(..) => 2.2,
        Ink::Reference => 1.6,
        Ink::Overlay => 3.4,
    };
    Pen { colour: canvas.theme.colour(ink), width, dashes: dashes(ink) }
}

/// Draws axes, grid and numbers, and returns the frame that curves go into.
fn axes(canvas: &mut Canvas, rect: Rect, plot: &Lines) -> Rect {
    let units = |pixels: f64| (pixels * UNITS).round() as i32;
    let colour = |(r, g, b)| RGBColor(r, g, b);
    let theme = canvas.theme.clone();
    let style = |size: f64, rgb| {
        let color = BackendColor { alpha: 1.0, rgb };
        TextStyle { color, ..TextStyle::from(font(size * LINE * UNITS, FontStyle::Normal)) }
    };
    let stroke = |ink, width: f64| ShapeStyle {
        color: colour(ink).to_rgba(),
        filled: false,
        stroke_width: (width * UNITS) as u32,
    };
    let (x_label, y_label) = (plot.x.label.clone(), plot.y.label.clone());
    let left = if y_label.is_empty() { TICKS } else { TICKS + LABEL };
    let sheet = Frame(canvas).into_drawing_area();
    let area = sheet.shrink((units(rect.x), units(rect.y)), (units(rect.width), units(rect.height)));
    let (x, y) = (&plot.x, &plot.y);
    let chart = ChartBuilder::on(&area)
        .margin_top(units(6.0))
        .x_label_area_size(units(BELOW))
        .y_label_area_size(units(left))
        .build_cartesian_2d(Ticked(x.clone()), Ticked(y.clone()));
    let Ok(mut chart) = chart else { unreachable!("drawing on a string cannot fail") };
    let drawn = chart
        .configure_mesh()
        .bold_line_style(stroke(theme.grid, 1.0))
        .light_line_style(colour(theme.grid).mix(0.0))
        .axis_style(stroke(theme.faint, 1.0))
        .set_all_tick_mark_size(units(4.0))
        .label_style(style(12.0, theme.faint))
        .axis_desc_style(style(13.0, theme.ink))
        .x_labels(x.ticks.len().max(1))
        .y_labels(y.ticks.len().max(1))
        .x_label_formatter(&|tick| signed(*tick))
        .y_label_formatter(&|tick| signed(*tick))
        .x_desc(x_label)
        .y_desc(y_label)
        .draw();
    debug_assert!(drawn.is_ok());
    let (columns, rows) = chart.plotting_area().get_pixel_range();
    let pixels = |unit: i32| f64::from(unit) / UNITS;
    Rect {
        x: pixels(columns.start),
        y: pixels(rows.start),
        width: pixels(columns.end - columns.start),
        height: pixels(rows.end - rows.start),
    }
}

/// An axis as plotters' charts take it: it knows its own ticks.
struct Ticked(Axis);

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.0.position(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.0.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.0.range.0..self.0.range.1
    }
}

/// A short number with a true minus sign.
pub(super) fn signed(value: f64) -> String {
    super::canvas::number(value).replace('-', "−")
}

fn band(canvas: &mut Canvas, frame: Rect, plot: &Lines, series: &Series) {
    if series.band.is_empty() {
        return;
    }
    let edge = |pick: fn(&(f64, f64)) -> f64| {
        let points = series.points.iter().zip(&series.band);
        points.map(move |(point, band)| {
            let (x, y) = (plot.x.position(point.0), plot.y.position(pick(band)));
            frame.at(x.clamp(0.0, 1.0), y.clamp(0.0, 1.0))
        })
    };
    let outline: Vec<_> = edge(|band| band.1).chain(edge(|band| band.0).rev()).collect();
    canvas.fill(&outline, canvas.theme.colour(series.ink), 0.16);
}

/// The pieces of a broken line that lie inside the unit square, cut where they cross its edge.
fn cut(points: &[Point]) -> Vec<Vec<Point>> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    for pair in points.windows(2) {
        let Some((from, to)) = inside(pair[0], pair[1]) else { continue };
        match pieces.last_mut() {
            Some(piece) if piece.last() == Some(&from) => piece.push(to),
            _ => pieces.push(vec![from, to]),
        }
    }
    pieces
}

/// The part of a segment inside the unit square (Liang & Barsky 1984).
fn inside(a: Point, b: Point) -> Option<(Point, Point)> {
    let (dx, dy) = (b.0 - a.0, b.1 - a.1);
    let (mut from, mut to) = (0.0f64, 1.0f64);
    for (step, room) in [(-dx, a.0), (dx, 1.0 - a.0), (-dy, a.1), (dy, 1.0 - a.1)] {
        if step == 0.0 {
            if room < 0.0 {
                return None;
            }
        } else if step < 0.0 {
            from = from.max(room / step);
        } else {
            to = to.min(room / step);
        }
    }
    if from > to {
        return None;
    }
    let at = |share: f64| (a.0 + share * dx, a.1 + share * dy);
    // The ends themselves, to the bit, so that pieces join.
    Some((if from == 0.0 { a } else { at(from) }, if to == 1.0 { b } else { at(to) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_the_frame() {
        // Up through the top at x = 0.5, back at x = 0.75: from (0.5, 1) to (0.75, 1) nothing is inside.
        let pieces = cut(&[(0.0, 0.5), (0.25, 0.5), (0.75, 1.5), (0.75, 0.5), (1.0, 0.5)]);
        assert_eq!(pieces, [vec![(0.0, 0.5), (0.25, 0.5), (0.5, 1.0)], vec![(0.75, 1.0), (0.75, 0.5), (1.0, 0.5)]]);
        assert!(cut(&[(-1.0, -1.0), (2.0, -0.5)]).is_empty());
    }

    #[test]
    fn minus_is_a_minus_sign() {
        assert_eq!(["−3", "0.5"], [signed(-3.0), signed(0.5)]);
    }
}
