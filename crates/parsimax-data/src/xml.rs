//! Mulan's list of labels: `<labels><label name="…"/>…</labels>`, possibly nested.

use crate::{Error, Result};

/// Reads the names of all labels, parents before their children; `file` is its name in complaints.
///
/// # Errors
/// If the text is no XML or has no labels.
pub fn parse(file: &str, text: &str) -> Result<Vec<String>> {
    let document = roxmltree::Document::parse(text).map_err(|error| {
        let line = error.pos().row as usize;
        Error::line(file, line, format!("broken XML: {error}"))
    })?;
    let labels = document.descendants().filter(|node| node.is_element() && node.tag_name().name() == "label");
    let mut names = Vec::new();
    for label in labels {
        let line = document.text_pos_at(label.range().start).row as usize;
        let name = label.attribute("name").ok_or_else(|| Error::line(file, line, "a label without a name"))?;
        names.push(name.to_owned());
    }
    if names.is_empty() { Err(Error::file(file, "no label is listed")) } else { Ok(names) }
}
