//! The direction of dependencies, held by a test: see ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::process::Command;

/// What each crate may depend on, among the crates of this workspace (tests aside).
const MAY_USE: &[(&str, &[&str])] = &[
    ("parsimax-kernel", &[]),
    ("parsimax", &["parsimax-kernel"]),
    ("parsimax-candle", &["parsimax"]),
    ("parsimax-bench-models", &["parsimax", "parsimax-burn"]),
    ("parsimax-testkit", &["parsimax"]),
    ("parsimax-report", &["parsimax"]),
    ("parsimax-data", &[]),
    ("parsimax-linear", &["parsimax"]),
    ("parsimax-cli", &["parsimax", "parsimax-data", "parsimax-linear", "parsimax-models", "parsimax-report"]),
    ("parsimax-burn", &["parsimax"]),
    ("parsimax-python", &["parsimax", "parsimax-linear"]),
    ("xtask", &["parsimax"]),
    ("parsimax-bench-native", &["parsimax"]),
    ("parsimax-models", &["parsimax", "parsimax-data"]),
];

/// Crates from outside that the core may use without being asked again.
const CORE_MAY_USE: &[&str] = &["half", "parsimax-kernel", "rayon"];

/// The normal dependencies of every member, read off `cargo metadata`.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline", "--manifest-path", manifest])
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let normal = |package: &serde_json::Value| {
        let all = package["dependencies"].as_array().expect("dependencies");
        all.iter().filter(|d| d["kind"].is_null()).map(|d| text(&d["name"])).collect()
    };
    packages.iter().map(|package| (text(&package["name"]), normal(package))).collect()
}

#[test]
fn crates_depend_in_one_direction() {
    for (name, used) in dependencies() {
        let rule = MAY_USE.iter().find(|(crate_name, _)| *crate_name == name);
        let (_, allowed) = rule.unwrap_or_else(|| panic!("{name} has no place in the house yet"));
        let ours = used.iter().filter(|d| MAY_USE.iter().any(|(member, _)| member == d));
        for dependency in ours {
            assert!(allowed.contains(&dependency.as_str()), "{name} may not use {dependency}");
        }
        if name == "parsimax-kernel" {
            assert!(used.is_empty(), "the kernels use {used:?}");
        }
        if name == "parsimax" {
            assert!(used.iter().all(|d| CORE_MAY_USE.contains(&d.as_str())), "the core uses {used:?}");
        }
    }
}

/// Within the core: mapping files stand on solvers and never on each other, solvers on numbers only.
#[test]
fn files_of_the_core_depend_in_one_direction() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../parsimax/src");
    let registry = std::fs::read_to_string(source.join("registry.rs")).expect("registry.rs");
    let mappings: Vec<String> = std::fs::read_dir(&source)
        .expect("the core's source")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .filter(|module| registry.contains(&format!("{module}::ENTRY")))
        .collect();
    assert!(mappings.len() >= 9, "{mappings:?}");
    let reads = |file: &std::path::Path| {
        let text = std::fs::read_to_string(file).expect("a source file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
    };
    let uses = |file: &std::path::Path, module: &str| {
        let code = reads(file);
        code.contains(&format!("crate::{module}")) || code.contains(&format!(" {module}::"))
    };
    for mapping in &mappings {
        let file = source.join(format!("{mapping}.rs"));
        for other in mappings.iter().filter(|other| *other != mapping) {
            assert!(!uses(&file, other), "{mapping}.rs uses {other}.rs");
        }
    }
    for folder in ["threshold", "prox"] {
        let Ok(entries) = std::fs::read_dir(source.join(folder)) else { continue };
        for file in entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()) {
            for upper in mappings.iter().map(String::as_str).chain(["rows", "loss", "mapping", "registry"]) {
                assert!(!reads(&file).contains(&format!("crate::{upper}")), "{} uses {upper}", file.display());
            }
        }
    }
}
