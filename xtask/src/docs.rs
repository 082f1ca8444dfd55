//! `cargo xtask docs`: the README's table and figures and rustdoc with rendered formulas.

use std::path::PathBuf;

use crate::shell::{self, Outcome, cargo, root};
use crate::{figures, formulas, katex, readme};

/// Writes what is generated, builds the pages and puts KaTeX beside them.
pub(crate) fn build() -> Outcome {
    if readme::update()? {
        println!("README.md: the table of mappings is new");
    }
    figures::update()?;
    for file in formulas::repair()? {
        println!("{}: formulas are in backticks now", file.display());
    }
    rustdoc(&[])?;
    let pages = target_directory()?.join("doc");
    katex::install(&pages.join("katex"))?;
    Ok(format!("the documentation is at {}", pages.join("parsimax").join("index.html").display()))
}

/// Changes nothing: the table must be fresh, formulas whole and rustdoc silent.
pub(crate) fn check() -> Outcome {
    readme::check()?;
    formulas::check()?;
    rustdoc(&["-D", "warnings"])?;
    Ok("the table is fresh, formulas are whole, rustdoc is silent".into())
}

fn rustdoc(flags: &[&str]) -> Outcome<()> {
    let header = root().join("docs").join("katex-header.html");
    let header = header.to_str().ok_or("the path of the workspace is not UTF-8")?;
    // Encoded flags are separated by a byte that no path holds, so spaces need no quotes.
    let flags = [&["--html-in-header", header], flags].concat().join("\x1f");
    // Libraries only: the binary `parsimax` would overwrite the pages of the crate `parsimax`.
    let mut command = cargo(&["doc", "--workspace", "--lib", "--no-deps"]);
    shell::run(command.env("CARGO_ENCODED_RUSTDOCFLAGS", flags))
}

/// Where cargo puts what it builds.
pub(crate) fn target_directory() -> Outcome<PathBuf> {
    let metadata = shell::capture(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    metadata["target_directory"].as_str().map(PathBuf::from).ok_or("cargo metadata names no target directory".into())
}
