//! `cargo xtask test`: everything that must hold before a change is taken.

use std::time::Instant;

use crate::docs;
use crate::shell::{self, Outcome, cargo, program};

/// Sets up what is missing, takes every step and counts the tests.
pub(crate) fn run(fast: bool) -> Outcome {
    let start = Instant::now();
    let mut steps = Steps::default();
    let mut passed = 0;
    if !fast {
        steps.take("setup", set_up);
        steps.take("format", || shell::run(&mut cargo(&["fmt", "--all", "--check"])));
        let clippy = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        steps.take("lints", || shell::run(&mut cargo(&clippy)));
    }
    // One failing binary must not hide the others.
    let test = ["test", "--workspace", "--no-fail-fast"];
    steps.take("tests", || shell::run_watched(&mut cargo(&test), |line| passed += tests_passed(line)));
    // The same contract on the instruction set of every machine.
    // By the workspace, not the package: the features stay the same, and nothing is built again.
    let contract = ["test", "--workspace", "--test", "policy", "--test", "accuracy"];
    steps.take("tests on the portable kernels", || {
        let mut command = cargo(&contract);
        shell::run_watched(command.env("PARSIMAX_KERNEL", "portable"), |line| passed += tests_passed(line))
    });
    let bare = ["check", "--package", "parsimax", "--no-default-features"];
    steps.take("core without default features", || shell::run(&mut cargo(&bare)));
    steps.take("Python", || crate::python::test().map(|count| passed += count));
    if !fast {
        steps.take("documentation", || docs::check().map(|line| println!("{line}")));
    }
    println!();
    if !steps.failed.is_empty() {
        return Err(format!("failed: {} ({passed} tests passed)", steps.failed.join(", ")));
    }
    if passed == 0 {
        return Err("no test ran".into());
    }
    Ok(format!("all is well: {passed} tests passed, {} steps, {} s", steps.taken, start.elapsed().as_secs()))
}

/// Steps go on after one has failed, so that one run shows all that is wrong.
#[derive(Default)]
struct Steps {
    taken: usize,
    failed: Vec<&'static str>,
}

impl Steps {
    fn take(&mut self, name: &'static str, step: impl FnOnce() -> Outcome<()>) {
        println!("\n== {name}");
        self.taken += 1;
        if let Err(problem) = step() {
            println!("{problem}");
            self.failed.push(name);
        }
    }
}

/// Adds the parts of the toolchain that a minimal installation lacks.
fn set_up() -> Outcome<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if shell::works(&mut cargo(&[subcommand, "--version"])) {
            println!("{component} is here");
        } else {
            shell::run(&mut program("rustup", &["component", "add", component]))?;
        }
    }
    Ok(())
}

/// The count in a line such as "test result: ok. 12 passed; 0 failed; …"; 0 for any other line.
fn tests_passed(line: &str) -> usize {
    let summary = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
    let count = summary.and_then(|(_, counts)| counts.split_once(" passed"));
    count.and_then(|(count, _)| count.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted() {
        assert_eq!(tests_passed("test result: ok. 12 passed; 0 failed; 1 ignored; finished in 0.00s"), 12);
        assert_eq!(tests_passed("test result: FAILED. 3 passed; 1 failed"), 3);
        assert_eq!(tests_passed("test one ... ok"), 0);
        assert_eq!(tests_passed("7 passed"), 0);
    }

    #[test]
    fn a_failed_step_is_remembered_and_the_next_is_taken() {
        let mut steps = Steps::default();
        steps.take("first", || Err("broken".into()));
        steps.take("second", || Ok(()));
        assert_eq!((steps.taken, steps.failed.as_slice()), (2, &["first"][..]));
    }
}
