//! Type: sizes in pixels, and widths measured with the font that this crate carries.

use std::sync::Once;

use plotters::style::{FontDesc, FontFamily, FontStyle, register_font};

/// The font and what may stand in for it.
pub(super) const FAMILIES: &str = "Inter, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif";

pub(super) const REGULAR: &[u8] = include_bytes!("../../fonts/Inter-Regular.ttf");
pub(super) const SEMIBOLD: &[u8] = include_bytes!("../../fonts/Inter-SemiBold.ttf");
pub(super) const FAMILY: &str = "Inter";

/// Plotters calls the height of a line a font's size; this is a line in ems.
pub(super) const LINE: f64 = 1.24;

/// A size, a weight and a rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Text {
    pub(super) size: f64,
    pub(super) bold: bool,
    pub(super) faint: bool,
    pub(super) halo: bool,
}

impl Text {
    pub(crate) fn plain(size: f64) -> Self {
        Self { size, bold: false, faint: false, halo: false }
    }

    pub(super) fn bold(size: f64) -> Self {
        Self { bold: true, ..Self::plain(size) }
    }

    /// Of second rank.
    pub(super) fn faint(self) -> Self {
        Self { faint: true, ..self }
    }

    /// With a rim of paper, to be read across lines.
    pub(super) fn halo(self) -> Self {
        Self { halo: true, ..self }
    }

    /// The width of a line of text, with a little room for fonts that run wider.
    pub(crate) fn width(self, text: &str) -> f64 {
        // Measured a hundred times as large, because the answer is a whole number.
        let size = self.size * LINE * 100.0;
        let style = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        let measured = font(size, style).layout_box(text);
        let width = measured.map_or(0.6 * size * text.chars().count() as f64, |(from, to)| f64::from(to.0 - from.0));
        width / 100.0 * 1.06
    }
}

/// Where text lies relative to its point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The embedded font in plotters' terms; `size` is the height of a line.
pub(super) fn font(size: f64, style: FontStyle) -> FontDesc<'static> {
    static REGISTER: Once = Once::new();
    REGISTER.call_once(|| {
        // If the font could not be read, widths are estimated; a test reads it.
        let _ = register_font(FAMILY, FontStyle::Normal, REGULAR);
        let _ = register_font(FAMILY, FontStyle::Bold, SEMIBOLD);
    });
    FontDesc::new(FontFamily::Name(FAMILY), size, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_come_from_the_font() {
        let text = Text::plain(16.0);
        assert!(text.width("iiii") < 0.6 * text.width("mmmm"));
        assert!(Text::bold(16.0).width("sparsemax") > text.width("sparsemax"));
        // A digit of Inter is 0.62 em wide, 1 is narrower.
        let digit = text.width("0000") / 4.0 / 16.0;
        assert!((0.55..0.72).contains(&digit), "{digit}");
    }
}
