//! Drawing: any [`Figure`] as SVG, as PNG, as a page; its numbers as JSON and CSV.

mod canvas;
mod data;
mod labels;
mod lines;
mod page;
mod pixels;
mod simplex;
mod surface;
mod text;

use crate::{Figure, Plot, Theme};
use canvas::{Canvas, Rect};
use text::Anchor;

pub(crate) use canvas::{escaped, hex};
pub use data::{csv, json};
pub(crate) use page::styled_page;
pub use page::{figure_page, page};
pub use pixels::png;
pub(crate) use text::Text;

/// Width and height of a picture in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// From left to right.
    pub width: u32,
    /// From top to bottom.
    pub height: u32,
}

/// Room for the title and the line below it.
const HEAD: f64 = 66.0;

impl Size {
    /// The smallest and largest side that a picture may have.
    pub const SIDES: std::ops::RangeInclusive<u32> = 240..=8192;

    /// The size at which the figure's text and panels have room.
    #[must_use]
    pub fn of(figure: &Figure) -> Self {
        let columns = figure.columns.max(1);
        let rows = figure.panels.len().div_ceil(columns);
        let solid = figure.panels.iter().any(|panel| matches!(panel.plot, Plot::Surface(_)));
        let (width, height) = match (columns, solid) {
            (1, false) => (760, 440),
            (1, true) => (560, 460),
            (2, _) => (480, 380),
            (3, _) => (350, 310),
            _ => (245, 190),
        };
        Self { width: width * columns as u32, height: height * rows as u32 + HEAD as u32 }
    }
}

/// The figure as an SVG document: text stays text, no reference leaves the file.
#[must_use]
pub fn svg(figure: &Figure, theme: &Theme, size: Size) -> String {
    let mut canvas = Canvas::new(size, theme.clone());
    let (title, subtitle) = (Text::bold(18.0), Text::plain(14.0).faint());
    canvas.text(20.0, 30.0, &figure.title, title, Anchor::Start);
    canvas.text(20.0, 52.0, &figure.subtitle, subtitle, Anchor::Start);
    let columns = figure.columns.max(1);
    let rows = figure.panels.len().div_ceil(columns).max(1);
    let width = (f64::from(size.width) - 16.0) / columns as f64;
    let height = (f64::from(size.height) - HEAD - 8.0) / rows as f64;
    for (i, panel) in figure.panels.iter().enumerate() {
        let x = 8.0 + width * (i % columns) as f64;
        let y = HEAD + height * (i / columns) as f64;
        let mut rect = Rect { x, y, width, height };
        if !panel.title.is_empty() {
            let left = if matches!(panel.plot, Plot::Lines(_)) { 40.0 } else { 12.0 };
            canvas.text(x + left, y + 18.0, &panel.title, Text::bold(13.0), Anchor::Start);
            rect = rect.without_top(26.0);
        }
        match &panel.plot {
            Plot::Lines(plot) => lines::draw(&mut canvas, rect, plot),
            Plot::Surface(plot) => surface::draw(&mut canvas, rect, plot),
            Plot::Simplex(plot) => simplex::draw(&mut canvas, rect, plot),
        }
    }
    canvas.finish(&figure.title, &figure.caption)
}
