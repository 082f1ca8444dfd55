//! The binary as a user meets it: what it prints, where it complains, what it leaves on disk.

mod common;

use common::{Scratch, fails, parsimax, run, succeeds};
use parsimax::registry::{self, MAPPINGS};

fn numbers(line: &str) -> Vec<f64> {
    line.split(' ').map(|word| word.parse().unwrap()).collect()
}

#[test]
fn every_mapping_runs_and_sums_to_its_total() {
    for entry in MAPPINGS {
        let mapping = registry::build(entry.name, &registry::Options::default()).unwrap();
        let out = succeeds(&["map", entry.name], "0.5 1.5 -inf 0.25\n1e-30, 2e-30, 3e-30, 0\n");
        assert_eq!(out.lines().count(), 2, "{}", entry.name);
        for (line, d) in out.lines().zip([3, 4]) {
            let p = numbers(line);
            assert_eq!(p.len(), 4);
            let sum: f64 = p.iter().sum();
            assert!((sum - mapping.total(d)).abs() < 1e-12, "{}: {line}", entry.name);
        }
        assert_eq!(numbers(out.lines().next().unwrap())[2], 0.0);
    }
}

#[test]
fn the_probabilities_are_the_librarys_to_the_last_bit() {
    use parsimax::MappingExt;
    for entry in MAPPINGS {
        let z = [0.3, -1.0 / 3.0, 0.9, 0.123_456_789_012_345_68];
        let mapping = registry::build(entry.name, &registry::Options::default()).unwrap();
        let out = succeeds(&["map", entry.name], &z.map(|z| z.to_string()).join("\t"));
        assert_eq!(numbers(out.trim_end()), mapping.apply(&z).unwrap(), "{}", entry.name);
    }
}

#[test]
fn huge_and_tiny_scores_are_numbers_like_others() {
    for entry in MAPPINGS {
        let out = succeeds(&["map", entry.name], "1e30 -1e30 0\n-1e30 -1e30 -1e30\n1e-30 -1e-30 0\n");
        for p in out.lines().flat_map(numbers) {
            assert!((0.0..=1.0).contains(&p), "{}: {out}", entry.name);
        }
    }
}

#[test]
fn a_row_of_masks_is_a_row_of_zeros() {
    for entry in MAPPINGS {
        assert_eq!(succeeds(&["map", entry.name], "-inf -inf\n"), "0 0\n");
        let json = succeeds(&["map", entry.name, "--json"], "-inf -inf\n");
        assert_eq!(json, "{\"p\":[0,0],\"support\":[],\"tau\":null,\"entropy\":0}\n");
    }
}

#[test]
fn text_is_plain_and_short() {
    assert_eq!(succeeds(&["map", "sparsemax"], "3 1 0\n0.5,0.5,-inf\n"), "1 0 0\n0.5 0.5 0\n");
    assert_eq!(succeeds(&["map", "sparsemax", "--gamma", "4", "-"], "# scores\n\n2\t0 # two\n"), "0.75 0.25\n");
}

#[test]
fn json_has_support_threshold_and_entropy() {
    for entry in MAPPINGS {
        let out = succeeds(&["map", "--json", entry.name], "1.0 0.8 -inf 0.1\n9 0 0 0\n");
        for line in out.lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let p: Vec<f64> = row["p"].as_array().unwrap().iter().map(|p| p.as_f64().unwrap()).collect();
            let support: Vec<u64> = row["support"].as_array().unwrap().iter().map(|i| i.as_u64().unwrap()).collect();
            let positive: Vec<u64> = (0..).zip(&p).filter(|(_, p)| **p > 0.0).map(|(i, _)| i).collect();
            assert_eq!(support, positive, "{}", entry.name);
            assert!(row["tau"].is_null() || row["tau"].is_f64() || row["tau"].is_i64());
            let entropy: f64 = -p.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>();
            assert!((row["entropy"].as_f64().unwrap() - entropy).abs() < 1e-12, "{}: {line}", entry.name);
        }
    }
    // τ = (1.0 + 0.8 − 1)/2.
    let out = succeeds(&["map", "--json", "sparsemax"], "1.0 0.8 0.1");
    let row: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!((row["tau"].as_f64().unwrap() - 0.4).abs() < 1e-15);
    assert!(succeeds(&["map", "--json", "softmax"], "1 2").contains("\"tau\":null"));
}

#[test]
fn the_list_has_a_line_for_every_mapping() {
    let out = succeeds(&["map", "--list"], "");
    assert_eq!(out.lines().count(), 1 + MAPPINGS.len());
    for (line, entry) in out.lines().skip(1).zip(MAPPINGS) {
        assert!(line.starts_with(entry.name) && line.contains(entry.omega) && line.ends_with(entry.reference));
        assert!(entry.takes.iter().all(|name| line.contains(&format!("--{name}"))));
    }
}

/// A `.npy` file of `f64`, or of `f32` in Fortran order.
fn npy(descr: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

#[test]
fn npy_files_are_read() {
    let scratch = Scratch::new("npy");
    let doubles = |z: &[f64]| z.iter().flat_map(|z| z.to_le_bytes()).collect::<Vec<u8>>();
    let rows = scratch.file("rows.npy", &npy("<f8", "False", "(2, 3)", &doubles(&[3.0, 1.0, 0.0, 0.0, 0.0, 5.0])));
    assert_eq!(succeeds(&["map", "sparsemax", &rows], ""), "1 0 0\n0 0 1\n");
    let singles: Vec<u8> = [3f32, 0.0, 1.0, 0.0, 0.0, 5.0].iter().flat_map(|z| z.to_le_bytes()).collect();
    let columns = scratch.file("columns.npy", &npy("<f4", "True", "(2, 3)", &singles));
    assert_eq!(succeeds(&["map", "sparsemax", &columns], ""), "1 0 0\n0 0 1\n");
    let cube = npy("<f8", "False", "(2, 1, 2)", &doubles(&[1.0, 0.0, 0.0, 1.0]));
    assert_eq!(common::succeeds_with(&["map", "sparsemax"], &cube), "1 0\n0 1\n");
    let line = scratch.file("line.npy", &npy("<f8", "False", "(2,)", &doubles(&[0.0, 9.0])));
    assert_eq!(succeeds(&["map", "sparsemax", &line], ""), "0 1\n");

    let nan = scratch.file("nan.npy", &npy("<f8", "False", "(2, 1, 2)", &doubles(&[0.0, 0.0, 0.0, f64::NAN])));
    assert!(fails(&["map", "softmax", &nan], "").contains("nan.npy: entry [1, 0, 1]: the score is NaN"));
    let short = scratch.file("short.npy", &npy("<f8", "False", "(2,)", &[0; 15]));
    assert!(fails(&["map", "softmax", &short], "").contains("short.npy: shape (2,) of <f8 needs 16 bytes"));
    let text = scratch.file("text.npy", b"1 2 3\n");
    assert!(fails(&["map", "softmax", &text], "").contains("text.npy: not a .npy file"));
}

#[test]
fn every_mistake_is_one_line_and_exit_code_2() {
    let scratch = Scratch::new("mistakes");
    let ragged = scratch.file("ragged.txt", b"1 2 3\n\n1 2 3 4\n");
    let empty = scratch.file("empty.txt", b"");
    let missing = scratch.path("missing.txt");
    let odd_name = scratch.file("odd\nname.txt", b"");
    for (args, input, expected) in [
        (&["map", "sparsemax", &ragged][..], "", "ragged.txt: line 3: 4 numbers, but line 1 has 3"),
        (&["map", "sparsemax", &empty], "", "empty.txt: empty"),
        (&["map", "sparsemax", &missing], "", "missing.txt: No such file"),
        (&["map", "sparsemax", &odd_name], "", "odd\\nname.txt"),
        (&["map", "sparsemax", &scratch.path(".")], "", "directory"),
        (&["map", "sparsemax"], "", "standard input: empty"),
        (&["map", "sparsemax"], "# only this\n", "standard input: no scores"),
        (&["map", "sparsemax"], "1 2\n3 four\n", "standard input: line 2, field 2: 'four' is not a number"),
        (&["map", "sparsemax"], "1,,2\n", "line 1, field 2: empty"),
        (&["map", "sparsemax"], "1 2\n3 nan\n", "standard input: line 2, field 2: the score is NaN"),
        (&["map", "sparsemax"], "+inf 2\n", "standard input: line 1, field 1: the score is inf"),
        (&["map", "sparsemax"], "1 -1e999\n", "line 1, field 2: -1e999 is out of range"),
        (&["map", "sparsmax"], "1\n", "unknown mapping 'sparsmax'; did you mean 'sparsemax'?"),
        (&["map", ""], "1\n", "known: softmax"),
        (&["map", "sparsemax", "--alpha", "2"], "1\n", "--alpha does not apply to sparsemax, which takes --gamma"),
        (&["map", "entmax", "--alpha", "-1"], "1\n", "entmax: alpha must be"),
        (&["map", "entmax", "--alpha", "nan"], "1\n", "got NaN"),
        (&["map", "sparsemax", "--gamma", "0"], "1\n", "sparsemax: gamma must be"),
        (&["map", "sparsemax", "--gamma", "two"], "1\n", "invalid value 'two'"),
        (&["map", "sparsemax", "--gama", "2"], "1\n", "--gamma"),
        (&["map", "sparsemax", "--gamma"], "1\n", "--gamma"),
        (&["map", "sparsemax", "-", "-"], "1\n", "unexpected argument"),
        (&["map"], "1\n", "NAME"),
        (&["mop"], "1\n", "unrecognized subcommand 'mop'"),
        (&[], "", "map, demo or fit"),
        (&["map", "sparsemax", "-o", &scratch.path("no/such/p.txt")], "1\n", "No such file"),
        (&["map", "sparsemax", "-o", &scratch.path(".")], "1\n", "directory"),
    ] {
        let line = fails(args, input);
        assert!(line.contains(expected), "{args:?}: {line}");
    }
}

#[test]
fn every_parameter_of_every_mapping_is_checked() {
    let mut all: Vec<&str> = MAPPINGS.iter().flat_map(|entry| entry.takes).copied().collect();
    all.sort_unstable();
    all.dedup();
    for entry in MAPPINGS {
        for name in &all {
            let line = fails(&["map", entry.name, &format!("--{name}"), "nan"], "1 2\n");
            let expected = if entry.takes.contains(name) { "got NaN" } else { "does not apply to" };
            assert!(line.contains(expected) && line.contains(name) && line.contains(entry.name), "{line}");
        }
    }
}

#[test]
fn invalid_text_is_refused() {
    let output = run(&["map", "softmax"], b"1 2\n\xff\xfe\n");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "parsimax: standard input: line 2: not UTF-8 text, nor a .npy file\n"
    );
}

#[test]
fn output_files_appear_complete_or_not_at_all() {
    let scratch = Scratch::new("output");
    let path = scratch.path("p.txt");
    fails(&["map", "sparsemax", "--output", &path], "1 2\n3\n");
    assert_eq!(scratch.names(), [""; 0]);
    assert_eq!(succeeds(&["map", "sparsemax", "--output", &path], "2 0\n"), "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1 0\n");
    // A failure leaves what was there; success replaces it, even when it is also the input.
    fails(&["map", "sparsemax", "-o", &path], "2 0\nx\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1 0\n");
    succeeds(&["map", "sparsemax", "-o", &path, &path], "");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "1 0\n");
    assert_eq!(scratch.names(), ["p.txt"]);
    assert_eq!(succeeds(&["map", "sparsemax", "-o", "-"], "2 0\n"), "1 0\n");
}

#[cfg(unix)]
#[test]
fn output_follows_links_and_fills_devices() {
    let scratch = Scratch::new("links");
    let (target, link) = (scratch.file("target.txt", b"old"), scratch.path("link.txt"));
    std::os::unix::fs::symlink(&target, &link).unwrap();
    succeeds(&["map", "sparsemax", "-o", &link], "2 0\n");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "1 0\n");
    assert_eq!(succeeds(&["map", "sparsemax", "-o", "/dev/null"], "2 0\n"), "");
    if std::path::Path::new("/dev/full").exists() {
        assert!(fails(&["map", "sparsemax", "-o", "/dev/full"], "2 0\n").contains("/dev/full: No space left"));
    }
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    use std::io::{BufRead, BufReader, Write};
    let mut child = parsimax(&["map", "sparsemax"]).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all("0.1 0.2 0.3 0.4 0.5\n".repeat(100_000).as_bytes()).unwrap();
    drop(stdin);
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    // The reader is dropped here, with most of the output unread.
    let output = child.wait_with_output().unwrap();
    assert_eq!(numbers(first.trim_end()).len(), 5);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn help_and_version_are_no_errors() {
    assert!(succeeds(&["--help"], "").contains("Usage: parsimax"));
    assert!(succeeds(&["map", "--help"], "").contains("--alpha"));
    assert_eq!(succeeds(&["--version"], ""), format!("parsimax {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_tour_compares_every_mapping_without_colours_in_a_pipe() {
    let out = succeeds(&["tour"], "");
    assert!(!out.contains('\x1b') && out.lines().all(|line| line.chars().count() <= 80));
    for name in registry::names() {
        assert_eq!(out.lines().filter(|line| line.split(' ').next() == Some(name)).count(), 3, "{name}");
    }
}
