//! The sheet that everything is drawn on: SVG as text, in pixels, two decimals at most.
//!
//! Plotters draws axes and grids through [`Frame`], its backend for this sheet. Its coordinates are whole
//! numbers, so the frame counts tenths of a pixel; curves drawn in whole pixels would have steps.

use std::convert::Infallible;
use std::fmt::Write as _;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontStyle,
    FontTransform,
};

use super::Size;
use super::text::{Anchor, FAMILIES, LINE, Text};
use crate::{Colour, Theme};

/// Tenths of a pixel in a pixel.
pub(super) const UNITS: f64 = 10.0;

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rect {
    pub(super) fn without_top(self, height: f64) -> Self {
        Self { y: self.y + height, height: self.height - height, ..self }
    }

    pub(super) fn without_right(self, width: f64) -> Self {
        Self { width: self.width - width, ..self }
    }

    pub(super) fn right(self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(self) -> f64 {
        self.y + self.height
    }

    /// The point at a share of the width and of the height, the latter from below.
    pub(super) fn at(self, x: f64, y: f64) -> (f64, f64) {
        (self.x + x * self.width, self.bottom() - y * self.height)
    }
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pen<'a> {
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) dashes: &'a [f64],
}

/// A growing SVG document.
pub(super) struct Canvas {
    size: Size,
    pub(super) theme: Theme,
    body: String,
}

impl Canvas {
    pub(super) fn new(size: Size, theme: Theme) -> Self {
        Self { size, theme, body: String::new() }
    }

    /// The whole document, with a title and a description for those who listen.
    pub(super) fn finish(self, title: &str, description: &str) -> String {
        let Size { width, height } = self.size;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" role=\"img\" font-family=\"{FAMILIES}\">\n\
             <title>{}</title>\n<desc>{}</desc>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n{}</svg>\n",
            escaped(title),
            escaped(description),
            hex(self.theme.paper),
            self.body
        )
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.body.write_fmt(arguments);
    }

    /// A broken line through points.
    pub(super) fn line(&mut self, points: &[(f64, f64)], pen: Pen<'_>) {
        if points.len() < 2 {
            return;
        }
        let dashes: Vec<String> = pen.dashes.iter().map(|d| number(*d)).collect();
        let dashes =
            if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{}\"", dashes.join(" ")) };
        // Dots are dashes of no length with round ends.
        let cap = if pen.dashes.first().is_some_and(|d| *d < 1.0) { " stroke-linecap=\"round\"" } else { "" };
        self.put(format_args!(
            "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}{cap}/>\n",
            path(points),
            hex(pen.colour),
            number(pen.width),
        ));
    }

    /// A filled polygon; `opacity` 1 hides what lies below.
    pub(super) fn fill(&mut self, points: &[(f64, f64)], colour: Colour, opacity: f64) {
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{}\"", number(opacity)) } else { String::new() };
        self.put(format_args!("<path d=\"{}z\" fill=\"{}\"{opacity}/>\n", path(points), hex(colour)));
    }

    /// A circle, filled or as a ring.
    pub(super) fn circle(&mut self, (x, y): (f64, f64), radius: f64, colour: Colour, filled: bool) {
        let (x, y, radius, colour) = (number(x), number(y), number(radius), hex(colour));
        let style = if filled {
            format!("fill=\"{colour}\"")
        } else {
            format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"")
        };
        self.put(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {style}/>\n"));
    }

    /// A line of text on its base line.
    pub(super) fn text(&mut self, x: f64, y: f64, text: &str, style: Text, anchor: Anchor) {
        let colour = if style.faint { self.theme.faint } else { self.theme.ink };
        self.write_text((x, y), text, style, anchor, colour, "");
    }

    fn write_text(&mut self, (x, y): (f64, f64), text: &str, style: Text, anchor: Anchor, colour: Colour, more: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if style.bold { " font-weight=\"600\"" } else { "" };
        let halo = if style.halo {
            let paper = hex(self.theme.paper);
            format!(" stroke=\"{paper}\" stroke-width=\"4\" stroke-linejoin=\"round\" paint-order=\"stroke\"")
        } else {
            String::new()
        };
        let (x, y, size, colour) = (number(x), number(y), number(style.size), hex(colour));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{colour}\"{anchor}{weight}{halo}{more}>{}</text>\n",
            escaped(text)
        ));
    }

    /// Opens a group in which shapes share a thin edge.
    pub(super) fn open_mesh(&mut self, colour: Colour) {
        self.put(format_args!(
            "<g stroke=\"{}\" stroke-opacity=\".35\" stroke-width=\".6\" stroke-linejoin=\"round\">\n",
            hex(colour)
        ));
    }

    /// Closes the group.
    pub(super) fn close_mesh(&mut self) {
        self.body.push_str("</g>\n");
    }
}

/// Points as a path: the first absolute, the others relative, in tenths of a pixel.
fn path(points: &[(f64, f64)]) -> String {
    let mut out = String::new();
    let mut last = (0i64, 0i64);
    let tenth = |v: i64| number(v as f64 / 10.0);
    for (i, &(x, y)) in points.iter().enumerate() {
        // Rounded before the difference is taken, so that errors do not add up.
        let here = ((x * 10.0).round() as i64, (y * 10.0).round() as i64);
        let (dx, dy) = (tenth(here.0 - last.0), tenth(here.1 - last.1));
        let gap = if dy.starts_with('-') { "" } else { " " };
        let _ = write!(out, "{}{dx}{gap}{dy}", if i == 0 { 'M' } else { 'l' });
        last = here;
    }
    out
}

/// A number with two decimals at most.
pub(super) fn number(x: f64) -> String {
    let text = format!("{x:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// A colour as six digits.
pub(crate) fn hex((r, g, b): Colour) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Text with the characters escaped that mean something in XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The sheet as plotters sees it, in tenths of a pixel.
pub(super) struct Frame<'a>(pub(super) &'a mut Canvas);

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

fn pixels((x, y): BackendCoord) -> (f64, f64) {
    (f64::from(x) / UNITS, f64::from(y) / UNITS)
}

fn pen<S: BackendStyle>(style: &S) -> Pen<'static> {
    Pen { colour: style.color().rgb, width: f64::from(style.stroke_width()) / UNITS, dashes: &[] }
}

impl DrawingBackend for Frame<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        (self.0.size.width * UNITS as u32, self.0.size.height * UNITS as u32)
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, point: BackendCoord, colour: BackendColor) -> Drawn {
        let (x, y) = pixels(point);
        let side = 1.0 / UNITS;
        self.0.fill(&[(x, y), (x + side, y), (x + side, y + side), (x, y + side)], colour.rgb, colour.alpha);
        Ok(())
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, a: BackendCoord, b: BackendCoord, style: &S, fill: bool) -> Drawn {
        let corners = [a, (b.0, a.1), b, (a.0, b.1)];
        if fill { self.fill_polygon(corners, style) } else { self.draw_path(corners.into_iter().chain([a]), style) }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        if style.color().alpha > 0.0 {
            self.0.line(&path.into_iter().map(pixels).collect::<Vec<_>>(), pen(style));
        }
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(&mut self, centre: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        self.0.circle(pixels(centre), f64::from(radius) / UNITS, style.color().rgb, fill);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        if style.color().alpha > 0.0 {
            let points: Vec<_> = path.into_iter().map(pixels).collect();
            self.0.fill(&points, style.color().rgb, style.color().alpha);
        }
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        let size = style.size() / LINE / UNITS;
        let bold = matches!(style.style(), FontStyle::Bold);
        let anchor = match style.anchor().h_pos {
            HPos::Left => Anchor::Start,
            HPos::Center => Anchor::Middle,
            HPos::Right => Anchor::End,
        };
        let (x, y) = pixels(at);
        // From the anchor to the base line: the height of a capital, half of it, or the depth of a g.
        let drop = match style.anchor().v_pos {
            VPos::Top => 0.73 * size,
            VPos::Center => 0.36 * size,
            VPos::Bottom => -0.22 * size,
        };
        let angle = match style.transform() {
            FontTransform::None => 0,
            FontTransform::Rotate90 => 90,
            FontTransform::Rotate180 => 180,
            FontTransform::Rotate270 => 270,
        };
        let turn = format!(" transform=\"rotate({angle} {} {})\"", number(x), number(y));
        let turn = if angle == 0 { "" } else { &turn };
        let style_ = Text { bold, ..Text::plain(size) };
        self.0.write_text((x, y + drop), text, style_, anchor, style.color().rgb, turn);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([1.0, -0.001, 0.25, -3.105, 12.3].map(number), ["1", "0", "0.25", "-3.1", "12.3"]);
    }

    #[test]
    fn relative_steps_do_not_drift() {
        // A thousand steps of 0.04 pixels, each below half a tenth, still arrive.
        let points: Vec<(f64, f64)> = (0..=1000).map(|i| (f64::from(i) * 0.04, 0.0)).collect();
        let path = path(&points);
        let sum: f64 =
            path.split(['M', 'l']).skip(1).map(|s| s.split(' ').next().unwrap().parse::<f64>().unwrap()).sum();
        // Sums of tenths in binary: 400 of them.
        assert!((sum - 40.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escaped("a < b & \"c\""), "a &lt; b &amp; &quot;c&quot;");
    }
}
