//! The README's figures, drawn by the command line; a test there fails when they are stale.

use std::fs;

use crate::shell::{self, Outcome, cargo, root};

/// Draws every `docs/figures/NAME.svg` that the README shows.
pub(crate) fn update() -> Outcome<()> {
    let readme = fs::read_to_string(root().join("README.md")).map_err(|error| format!("README.md: {error}"))?;
    let folder = root().join("docs").join("figures");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for name in names(&readme) {
        let path = folder.join(format!("{name}.svg"));
        let path = path.to_str().ok_or("the path of the workspace is not UTF-8")?;
        shell::run(&mut cargo(&["run", "--quiet", "--package", "parsimax-cli", "--", "plot", name, "-o", path]))?;
    }
    Ok(())
}

/// The names of the figures in a text.
fn names(readme: &str) -> Vec<&str> {
    let pieces = readme.split("docs/figures/").skip(1);
    pieces.filter_map(|piece| piece.split_once(".svg").map(|(name, _)| name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_off_the_readme() {
        assert_eq!(names("![a](docs/figures/a-b.svg) and <img src=\"docs/figures/c.svg\">"), ["a-b", "c"]);
        assert!(names("nothing").is_empty());
    }
}
