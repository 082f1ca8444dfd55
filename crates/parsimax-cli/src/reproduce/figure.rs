//! Panels of curves as SVG: two columns, linear axes from zero, one legend.

use std::fmt::Write as _;

/// A line through points.
pub(super) struct Curve {
    pub(super) name: String,
    /// Which of the two colours.
    pub(super) color: usize,
    pub(super) dashed: bool,
    pub(super) points: Vec<(f64, f64)>,
}

/// Axes with curves.
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) x: String,
    pub(super) curves: Vec<Curve>,
}

/// Blue and vermilion of Okabe and Ito, which colour-blind readers can tell apart; the marks differ too.
const COLORS: [&str; 2] = ["#0072B2", "#D55E00"];
const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 300.0;
const TOP: f64 = 56.0;
/// Space inside a panel: left, right, top, bottom.
const MARGIN: [f64; 4] = [58.0, 14.0, 34.0, 46.0];

/// The panels, two to a row, under a title, with a legend below.
pub(super) fn figure(title: &str, panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(2);
    let (width, height) = (2.0 * WIDTH, TOP + rows as f64 * HEIGHT + 44.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#222\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"32\" text-anchor=\"middle\" font-size=\"18\">{title}</text>\n",
        width / 2.0
    );
    for (at, panel) in panels.iter().enumerate() {
        let (x, y) = ((at % 2) as f64 * WIDTH, TOP + (at / 2) as f64 * HEIGHT);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        draw(&mut svg, panel);
        svg.push_str("</g>\n");
    }
    if let Some(panel) = panels.first() {
        for (at, curve) in panel.curves.iter().enumerate() {
            let (x, y) = (60.0 + at as f64 * 205.0, height - 20.0);
            line(&mut svg, curve, &format!("{x},{y} {},{y}", x + 40.0));
            mark(&mut svg, curve, x + 20.0, y);
            let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", x + 48.0, y + 4.0, curve.name);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, panel: &Panel) {
    let [left, right, top, bottom] = MARGIN;
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let x_max = points().fold(0.0, |max: f64, point| max.max(point.0));
    let step = step(points().fold(0.0, |max: f64, point| max.max(point.1)));
    let y_max = step * (points().fold(0.0, |max: f64, point| max.max(point.1)) / step).ceil();
    let x_at = |x: f64| left + (WIDTH - left - right) * x / x_max;
    let y_at = |y: f64| HEIGHT - bottom - (HEIGHT - top - bottom) * y / y_max;
    let middle = (left + WIDTH - right) / 2.0;
    let _ =
        writeln!(svg, "<text x=\"{middle}\" y=\"20\" text-anchor=\"middle\" font-size=\"14\">{}</text>", panel.title);
    let ticks = (y_max / step).round() as usize;
    for (value, y) in (0..=ticks).map(|tick| tick as f64 * step).map(|value| (value, y_at(value))) {
        let end = WIDTH - right;
        let _ = writeln!(svg, "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{end}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>");
        let (x, y) = (left - 6.0, y + 4.0);
        let _ = writeln!(svg, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>", tick(value, step));
    }
    for length in (0..=4).map(|tick| x_max * f64::from(tick) / 4.0) {
        let (x, y) = (x_at(length), HEIGHT - bottom + 18.0);
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{length:.0}</text>");
    }
    let y = HEIGHT - bottom + 37.0;
    let _ = writeln!(svg, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", panel.x);
    for curve in &panel.curves {
        let places: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| (x_at(*x), y_at(*y))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        line(svg, curve, &path.join(" "));
        places.iter().for_each(|(x, y)| mark(svg, curve, *x, *y));
    }
}

fn line(svg: &mut String, curve: &Curve, points: &str) {
    let dash = if curve.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
    let color = COLORS[curve.color];
    let _ = writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>");
}

/// A disc for the first colour, a square for the second.
fn mark(svg: &mut String, curve: &Curve, x: f64, y: f64) {
    let color = COLORS[curve.color];
    let _ = match curve.color {
        0 => writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{color}\"/>"),
        _ => {
            let (x, y) = (x - 3.5, y - 3.5);
            writeln!(svg, "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"7\" height=\"7\" fill=\"{color}\"/>")
        }
    };
}

/// The distance of ticks: 1, 2 or 5 times a power of ten, about five of them up to `max`.
fn step(max: f64) -> f64 {
    let rough = (max / 5.0).max(1e-9);
    let power = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    power * factors.into_iter().find(|factor| factor * power >= rough).unwrap_or(10.0)
}

/// A tick's number, with the digits that the step needs.
fn tick(value: f64, step: f64) -> String {
    let digits = (-step.log10()).ceil().max(0.0) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (max, expected) in [(1.0, 0.2), (0.14, 0.05), (0.09, 0.02), (37.0, 10.0)] {
            assert!((step(max) - expected).abs() < 1e-12 * expected, "{max}: {}", step(max));
        }
        assert_eq!((tick(0.15, 0.05), tick(10.0, 5.0)), ("0.15".into(), "10".into()));
    }

    #[test]
    fn every_curve_is_drawn_in_every_panel_and_in_the_legend() {
        let curve = |color| Curve { name: "c".into(), color, dashed: false, points: vec![(1.0, 0.1), (2.0, 0.2)] };
        let panel = || Panel { title: "t".into(), x: "x".into(), curves: vec![curve(0), curve(1)] };
        let svg = figure("f", &[panel(), panel()]);
        assert_eq!(svg.matches("<polyline").count(), 2 * 2 + 2);
        assert_eq!(svg.matches("<circle").count(), 2 * 2 + 1);
    }
}
