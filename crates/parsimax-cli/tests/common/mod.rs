//! Running the binary and looking at what it leaves behind.
#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// The binary with piped streams.
pub(crate) fn parsimax(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_parsimax"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs it on `input`.
pub(crate) fn run(args: &[&str], input: &[u8]) -> Output {
    let mut child = parsimax(args).spawn().unwrap();
    // A program that fails on its arguments never reads, and the pipe may be gone.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// Standard output of a run that must succeed and stay silent on standard error.
pub(crate) fn succeeds(args: &[&str], input: &str) -> String {
    succeeds_with(args, input.as_bytes())
}

/// The same for input that is not text.
pub(crate) fn succeeds_with(args: &[&str], input: &[u8]) -> String {
    let output = run(args, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// The single line of a run that must fail with code 2 and print nothing else.
pub(crate) fn fails(args: &[&str], input: &str) -> String {
    let output = run(args, input.as_bytes());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {errors}");
    assert!(output.stdout.is_empty(), "{args:?}: partial output");
    assert!(errors.starts_with("parsimax: ") && errors.ends_with('\n'), "{args:?}: {errors}");
    assert_eq!(errors.lines().count(), 1, "{args:?}: {errors}");
    errors
}

/// A directory of its own for a test, removed at its end.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("parsimax-cli-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }

    /// The names of all files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
