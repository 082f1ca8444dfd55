//! PNG: the SVG document painted by resvg, with the font of this crate and no other.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use super::text::{FAMILY, REGULAR, SEMIBOLD};
use crate::{Error, Result};

/// Paints an SVG document of this crate, `scale` pixels to each of its own.
///
/// # Errors
/// If the text is no SVG document, or the picture would be empty or larger than memory allows.
pub fn png(svg: &str, scale: f32) -> Result<Vec<u8>> {
    let wrong = |reason: String| Error::Pixels(reason);
    let options = Options { fontdb: fonts(), font_family: FAMILY.into(), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|error| wrong(error.to_string()))?;
    let side = |pixels: f32| (pixels * scale).round() as u32;
    let (width, height) = (side(tree.size().width()), side(tree.size().height()));
    let mut pixmap = Pixmap::new(width, height).ok_or_else(|| wrong(format!("{width}×{height} is no size")))?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
    pixmap.encode_png().map_err(|error| wrong(error.to_string()))
}

/// The embedded font, whatever the machine has.
fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(REGULAR.to_vec());
        fonts.load_font_data(SEMIBOLD.to_vec());
        fonts.set_sans_serif_family(FAMILY);
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}
