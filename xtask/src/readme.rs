//! The README's table of mappings, generated from the registry between two markers.

use std::fs;

use parsimax::registry::{Entry, MAPPINGS};

use crate::shell::{Outcome, root};

const START: &str = "<!-- mappings: written by `cargo xtask docs` -->\n";
const END: &str = "<!-- end of mappings -->";

/// Writes the table; says whether it was stale.
pub(crate) fn update() -> Outcome<bool> {
    let (old, new) = versions()?;
    if old == new {
        return Ok(false);
    }
    fs::write(root().join("README.md"), new).map(|()| true).map_err(|error| format!("README.md: {error}"))
}

/// Fails if the table is stale.
pub(crate) fn check() -> Outcome<()> {
    let (old, new) = versions()?;
    if old == new { Ok(()) } else { Err("README.md: the table of mappings is stale; run `cargo xtask docs`".into()) }
}

/// The README as it is and as it should be.
fn versions() -> Outcome<(String, String)> {
    let old = fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    let (before, rest) = old.split_once(START).ok_or_else(|| format!("README.md lacks the marker {START}"))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| format!("README.md lacks the marker {END}"))?;
    let new = format!("{before}{START}{}{END}{after}", table());
    Ok((old, new))
}

fn table() -> String {
    let head = "| name | Ω(p) | zeros | parameters | cost | reference |\n|---|---|---|---|---|---|\n";
    MAPPINGS.iter().map(line).fold(head.into(), |table: String, line| table + &line)
}

fn line(entry: &Entry) -> String {
    let parameters: Vec<String> = entry.takes.iter().map(|name| format!("`--{name}`")).collect();
    let cells = [
        format!("`{}`", entry.name),
        entry.omega.into(),
        entry.sparsity.into(),
        parameters.join(" "),
        entry.cost.into(),
        entry.reference.into(),
    ];
    // A bar inside a cell would end it.
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_readme_is_fresh() {
        check().unwrap();
    }

    #[test]
    fn every_line_has_six_cells() {
        for entry in MAPPINGS {
            let line = line(entry).replace("\\|", "");
            assert_eq!(line.matches('|').count(), 7, "{line}");
        }
    }
}
