//! Names of curves: beside their ends, on them, or in a corner they leave free.

use super::canvas::{Canvas, Pen, Rect};
use super::lines::pen;
use super::text::{Anchor, Text};
use crate::{Key, Lines, Series};

const STYLE: f64 = 13.0;
const LINE: f64 = 18.0;
/// From a curve's end to its sample, the length of a sample, and how far a sample may be led to.
const LEADER: f64 = 18.0;
const SAMPLE: f64 = 30.0;
const NEAR: f64 = 30.0;

fn style() -> Text {
    Text::plain(STYLE)
}

fn widest(plot: &Lines) -> f64 {
    plot.series.iter().map(|series| style().width(&series.name)).fold(0.0, f64::max)
}

/// The room right of the frame that names at the ends need.
pub(super) fn width(plot: &Lines) -> f64 {
    LEADER + SAMPLE + 8.0 + widest(plot) + 10.0
}

pub(super) fn draw(canvas: &mut Canvas, frame: Rect, plot: &Lines) {
    match plot.key {
        Key::None => {}
        Key::Ends => ends(canvas, frame, plot),
        Key::At(x) => on_curves(canvas, frame, plot, x),
        Key::TopLeft | Key::TopRight | Key::BottomRight => list(canvas, frame, plot),
    }
}

/// Samples and names right of the frame, moved apart where curves end together, with a thin line to an end
/// that is near.
fn ends(canvas: &mut Canvas, frame: Rect, plot: &Lines) {
    let mut named: Vec<(f64, &Series)> = Vec::new();
    for series in &plot.series {
        let Some(&(_, y)) = series.points.last() else { continue };
        named.push((frame.at(1.0, plot.y.position(y).clamp(0.0, 1.0)).1, series));
    }
    named.sort_by(|a, b| a.0.total_cmp(&b.0));
    let wanted: Vec<f64> = named.iter().map(|(y, _)| *y).collect();
    let places = apart(&wanted, LINE, (frame.y + 4.0, frame.bottom() - 4.0));
    for ((end, series), place) in named.iter().zip(places) {
        let sample = frame.right() + LEADER;
        if (place - end).abs() < NEAR {
            let colour = canvas.theme.colour(series.ink);
            let leader = [(frame.right(), *end), (sample - 3.0, place)];
            canvas.line(&leader, Pen { colour, width: 1.0, dashes: &[] });
        }
        canvas.line(&[(sample, place), (sample + SAMPLE, place)], pen(canvas, series.ink));
        canvas.text(sample + SAMPLE + 8.0, place + 0.36 * STYLE, &series.name, style(), Anchor::Start);
    }
}

/// Names on the curves, above their value at `x`.
fn on_curves(canvas: &mut Canvas, frame: Rect, plot: &Lines, x: f64) {
    for series in &plot.series {
        let nearest = series.points.iter().min_by(|a, b| (a.0 - x).abs().total_cmp(&(b.0 - x).abs()));
        let Some(&(_, y)) = nearest else { continue };
        let (x, y) = frame.at(plot.x.position(x), plot.y.position(y));
        canvas.text(x, y - 6.0, &series.name, style().halo(), Anchor::Middle);
    }
}

/// A list of samples and names in a corner.
fn list(canvas: &mut Canvas, frame: Rect, plot: &Lines) {
    let (width, height) = (SAMPLE + 8.0 + widest(plot), LINE * plot.series.len() as f64);
    let x = if plot.key == Key::TopLeft { frame.x + 14.0 } else { frame.right() - width - 6.0 };
    let y = if plot.key == Key::BottomRight { frame.bottom() - height - 14.0 } else { frame.y + 10.0 };
    let box_ = [
        (x - 6.0, y - 4.0),
        (x + width + 4.0, y - 4.0),
        (x + width + 4.0, y + height + 4.0),
        (x - 6.0, y + height + 4.0),
    ];
    canvas.fill(&box_, canvas.theme.paper, 0.88);
    for (i, series) in plot.series.iter().enumerate() {
        let middle = y + LINE * (i as f64 + 0.5);
        canvas.line(&[(x, middle), (x + SAMPLE, middle)], pen(canvas, series.ink));
        canvas.text(x + SAMPLE + 8.0, middle + 0.36 * STYLE, &series.name, style(), Anchor::Start);
    }
}

/// Places near the wanted ones, which ascend, at least `gap` apart and within the range if they fit.
///
/// Isotonic regression of `wanted − i·gap`: neighbours that are too close are pooled around their mean.
fn apart(wanted: &[f64], gap: f64, range: (f64, f64)) -> Vec<f64> {
    let room = range.1 - range.0;
    let gap = if wanted.len() > 1 { gap.min(room / (wanted.len() - 1) as f64) } else { gap };
    let mut groups: Vec<(f64, usize)> = Vec::new();
    for (i, y) in wanted.iter().enumerate() {
        groups.push((y - i as f64 * gap, 1));
        while let [.., (a, m), (b, n)] = groups[..] {
            if a < b {
                break;
            }
            groups.truncate(groups.len() - 2);
            groups.push(((a * m as f64 + b * n as f64) / (m + n) as f64, m + n));
        }
    }
    let highest = range.1 - gap * wanted.len().saturating_sub(1) as f64;
    let shifts = groups.iter().flat_map(|&(shift, count)| std::iter::repeat_n(shift, count));
    shifts.enumerate().map(|(i, shift)| shift.min(highest).max(range.0) + i as f64 * gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_move_apart_as_little_as_needed() {
        assert_eq!(apart(&[10.0, 50.0], 18.0, (0.0, 100.0)), [10.0, 50.0]);
        assert_eq!(apart(&[50.0, 50.0], 18.0, (0.0, 100.0)), [41.0, 59.0]);
        // Against the edge they go one way only.
        assert_eq!(apart(&[0.0, 0.0, 0.0], 18.0, (0.0, 100.0)), [0.0, 18.0, 36.0]);
        assert_eq!(apart(&[100.0, 100.0], 18.0, (0.0, 100.0)), [82.0, 100.0]);
        // More than fit share what there is.
        assert_eq!(apart(&[5.0; 3], 18.0, (0.0, 20.0)), [0.0, 10.0, 20.0]);
    }
}
