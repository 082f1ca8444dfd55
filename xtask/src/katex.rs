//! KaTeX beside the generated pages, so that formulas render without a network.
//!
//! The files come from Debian's package if it is installed, else from npm, else from Debian by
//! apt-get; they are kept in the target directory, so later builds fetch nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::docs::target_directory;
use crate::shell::{self, Outcome, program};

/// The version that `docs/katex-header.html` names for pages that have no files beside them.
const VERSION: &str = "0.19.1";

/// Where Debian's packages libjs-katex and fonts-katex put their files.
const DEBIAN: &str = "/usr/share/javascript/katex";

/// The files a page needs: the name beside the pages, and the names they are shipped under.
const FILES: [(&str, &[&str]); 3] = [
    ("katex.js", &["katex.min.js", "katex.js"]),
    ("katex.css", &["katex.min.css", "katex.css"]),
    ("auto-render.js", &["contrib/auto-render.min.js", "contrib/auto-render.js"]),
];

/// Copies KaTeX into `to`.
pub(crate) fn install(to: &Path) -> Outcome<()> {
    let from = find()?;
    fs::create_dir_all(to.join("fonts")).map_err(|error| at(to, &error))?;
    for (name, shipped) in FILES {
        let source = shipped.iter().map(|name| from.join(name)).find(|path| path.exists());
        let source = source.ok_or_else(|| format!("{}: {} is missing", from.display(), shipped[0]))?;
        copy(&source, &to.join(name))?;
    }
    let fonts = from.join("fonts");
    for font in fs::read_dir(&fonts).map_err(|error| at(&fonts, &error))? {
        let font = font.map_err(|error| at(&fonts, &error))?.path();
        if let (Some(name), true) = (font.file_name(), font.extension().is_some_and(|e| e == "woff2")) {
            copy(&font, &to.join("fonts").join(name))?;
        }
    }
    Ok(())
}

/// A directory that holds KaTeX, fetched if need be.
fn find() -> Outcome<PathBuf> {
    let kept = target_directory()?.join(format!("katex-{VERSION}"));
    let unpacked = kept.join("package").join("dist");
    let debian = PathBuf::from(DEBIAN);
    if unpacked.exists() {
        return Ok(unpacked);
    }
    if debian.exists() {
        return Ok(debian);
    }
    if shell::works(&mut program("npm", &["--version"])) {
        fs::create_dir_all(&kept).map_err(|error| at(&kept, &error))?;
        let package = format!("katex@{VERSION}");
        shell::capture(program("npm", &["pack", "--silent", &package]).current_dir(&kept))?;
        let archive = format!("katex-{VERSION}.tgz");
        shell::run(program("tar", &["-xzf", &archive]).current_dir(&kept))?;
        return Ok(unpacked);
    }
    shell::run(&mut program("apt-get", &["install", "-y", "libjs-katex", "fonts-katex"]))
        .map_err(|problem| format!("KaTeX needs npm, or Debian's packages libjs-katex and fonts-katex: {problem}"))?;
    Ok(debian)
}

fn copy(from: &Path, to: &Path) -> Outcome<()> {
    fs::copy(from, to).map(|_| ()).map_err(|error| at(from, &error))
}

fn at(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_names_the_same_version_and_files() {
        let header = fs::read_to_string(shell::root().join("docs/katex-header.html")).unwrap();
        assert!(header.contains(&format!("katex@{VERSION}/")));
        for (name, shipped) in FILES {
            assert!(header.contains(&format!("\"{name}\"")) && header.contains(shipped[0]), "{name}");
        }
    }
}
