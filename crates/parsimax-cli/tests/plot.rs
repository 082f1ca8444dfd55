//! `parsimax plot` as a user meets it.

mod common;

use common::{Scratch, fails, succeeds};

/// The names in the first column of the table.
fn names() -> Vec<String> {
    let list = succeeds(&["plot", "--list"], "");
    list.lines().skip(1).map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn every_figure_of_the_list_renders_in_every_format() {
    let scratch = Scratch::new("plot");
    assert_eq!(names().len(), 9);
    for name in names() {
        let paths = ["svg", "png", "html", "json", "csv"].map(|ending| scratch.path(&format!("{name}.{ending}")));
        let mut args = vec!["plot", &name];
        for path in &paths {
            args.extend(["-o", path]);
        }
        assert_eq!(succeeds(&args, ""), "");
        let starts: [&[u8]; 5] = [b"<svg ", b"\x89PNG\r\n\x1a\n", b"<!DOCTYPE html>", b"{", b"panel,series,"];
        for (path, start) in paths.iter().zip(starts) {
            assert!(std::fs::read(path).unwrap().starts_with(start), "{path}");
        }
    }
}

#[test]
fn options_reach_the_picture() {
    let scratch = Scratch::new("plot-options");
    let png = scratch.path("a.png");
    succeeds(&["plot", "family", "--width", "400", "--height", "300", "--scale", "2", "-o", &png], "");
    // The header of a PNG holds width and height as big-endian numbers.
    let bytes = std::fs::read(&png).unwrap();
    assert_eq!((&bytes[16..20], &bytes[20..24]), (&800u32.to_be_bytes()[..], &600u32.to_be_bytes()[..]));
    let svg = succeeds(&["plot", "family", "--alpha", "1,1.7", "-o", "-"], "");
    assert!(svg.contains("α = 1.7") && !svg.contains("α = 4"));
    let svg = succeeds(&["plot", "simplex", "--scores", "-1,2,0.5", "-m", "fusedmax", "--lam", "0.3", "-o", "-"], "");
    assert!(svg.contains("(−1, 2, 0.5)") && svg.contains("fusedmax, λ = 0.3"));
    let (light, dark) = (&["plot", "losses", "-o", "-"][..], &["plot", "losses", "--dark", "-o", "-"][..]);
    assert!(succeeds(light, "").contains("fill=\"#ffffff\"") && !succeeds(dark, "").contains("#ffffff"));
}

#[test]
fn every_mistake_is_one_line_and_leaves_no_file() {
    let scratch = Scratch::new("plot-mistakes");
    let svg = scratch.path("a.svg");
    for (args, expected) in [
        (&["curvs", "-o", &svg][..], "unknown figure 'curvs'; did you mean 'curves'?"),
        (&["curves", "-m", "sparsmax", "-o", &svg], "unknown mapping 'sparsmax'; did you mean 'sparsemax'?"),
        (&["curves", "-o", &scratch.path("a.gif")], "a.gif: the ending chooses the format"),
        (&["curves", "-o", &scratch.path("a")], "must be svg, png, html, json or csv"),
        (&["curves", "-o", &scratch.path("no/such/a.svg")], "No such file"),
        (&["curves"], "--output"),
        (&["-o", &svg], "NAME"),
        (&["simplex", "--scores", "1,nan,2", "-o", &svg], "scores must be finite numbers, got NaN"),
        (&["simplex", "--scores", "1,2,3,4", "-o", &svg], "scores must be three numbers"),
        (&["simplex", "--scores", "1,two", "-o", &svg], "invalid value 'two'"),
        (&["losses", "--scores", "1,2,3", "-o", &svg], "scores must be absent"),
        (&["losses", "-m", "ev-softmax", "-o", &svg], "regulariser"),
        (&["family", "--gamma", "0", "-o", &svg], "gamma must be"),
        (&["family", "--q", "1", "-o", &svg], "q must be absent"),
        (&["curves", "--width", "3", "-o", &svg], "--width must be from 240 to 8192, got 3"),
        (&["curves", "--scale", "nan", "-o", &svg], "--scale must be"),
    ] {
        let line = fails(&[&["plot"], args].concat(), "");
        assert!(line.contains(expected), "{args:?}: {line}");
    }
    assert_eq!(scratch.names(), [""; 0]);
}

#[test]
fn a_file_is_replaced_only_by_a_whole_picture() {
    let scratch = Scratch::new("plot-replace");
    let path = scratch.file("a.svg", b"old");
    fails(&["plot", "family", "--alpha", "0", "-o", &path], "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    succeeds(&["plot", "family", "-o", &path], "");
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("</svg>\n"));
    assert_eq!(scratch.names(), ["a.svg"]);
}

/// The figures of the README, by the paths in it: `docs/figures/NAME.svg`.
#[test]
fn the_figures_of_the_readme_are_fresh() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let shown: Vec<&str> = readme
        .split("docs/figures/")
        .skip(1)
        .filter_map(|rest| rest.split_once(".svg").map(|(name, _)| name))
        .collect();
    assert!(shown.len() >= 2, "{shown:?}");
    for name in shown {
        let old = std::fs::read_to_string(root.join(format!("docs/figures/{name}.svg"))).unwrap();
        assert!(old.len() < 200_000, "{name}.svg has {} bytes", old.len());
        let new = succeeds(&["plot", name, "-o", "-"], "");
        assert!(old == new, "docs/figures/{name}.svg is stale; run `cargo xtask docs`");
    }
}
