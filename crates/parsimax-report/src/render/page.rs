//! Pages: one file that needs no other, in the reader's choice of light or dark.

use std::fmt::Write as _;

use super::canvas::{escaped, hex};
use super::{Size, svg};
use crate::{Figure, Theme};

/// A page around `body`, which is HTML. Drawings in it may be those of the light theme: where the reader
/// prefers dark, their colours are exchanged.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    styled_page(title, "", body)
}

/// The same with rules of its own.
pub(crate) fn styled_page(title: &str, rules: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{}</title>\n<style>\n{}{rules}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escaped(title),
        style()
    )
}

/// The page of one figure: picture, caption, and where the idea comes from.
#[must_use]
pub fn figure_page(figure: &Figure, after: &str, size: Size) -> String {
    let drawing = svg(figure, &Theme::light(), size);
    let source = if after == "–" { String::new() } else { format!(" After {}.", escaped(after)) };
    let body = format!(
        "<figure>\n{drawing}<figcaption>{}{source}</figcaption>\n</figure>\n\
         <footer>Drawn by parsimax: <code>parsimax plot {}</code></footer>\n",
        escaped(&figure.caption),
        escaped(&figure.name)
    );
    page(&figure.title, &body)
}

/// The rules of every page.
fn style() -> String {
    let (light, dark) = (Theme::light(), Theme::dark());
    let mut out = format!(
        "body {{ margin: 0; background: {}; color: {}; font: 16px/1.5 Inter, system-ui, sans-serif; }}\n\
         main {{ max-width: 1080px; margin: 0 auto; padding: 24px 16px; }}\n\
         figure {{ margin: 0; }}\n\
         figure svg {{ display: block; max-width: 100%; height: auto; }}\n\
         figcaption {{ max-width: 44em; margin: 16px 20px; }}\n\
         footer {{ margin: 32px 20px 0; color: {}; font-size: 14px; }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         body {{ background: {}; color: {}; }}\nfooter {{ color: {}; }}\n",
        hex(light.paper),
        hex(light.ink),
        hex(light.faint),
        hex(dark.paper),
        hex(dark.ink),
        hex(dark.faint)
    );
    for (from, to) in light.all().into_iter().zip(dark.all()) {
        let (from, to) = (hex(from), hex(to));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "svg [fill=\"{from}\"] {{ fill: {to}; }} svg [stroke=\"{from}\"] {{ stroke: {to}; }}");
    }
    out.push_str("}\n");
    out
}
