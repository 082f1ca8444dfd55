//! Chores of the parsimax workspace: `cargo xtask test`, `docs`, `wheel`, `bench`, `instructions`.
//!
//! A chore is a module with a `run`; this file only names them.

mod bench;
mod docs;
mod figures;
mod formulas;
mod instructions;
mod katex;
mod python;
mod readme;
mod shell;
mod test;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the parsimax workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Check formatting, lints, tests and documentation
    Test {
        /// Leave out formatting, lints and documentation
        #[arg(long)]
        fast: bool,
    },
    /// Write the README's table and figures and build the documentation with its formulas
    Docs {
        /// Change nothing; fail if the table is stale, a formula would break or rustdoc warns
        #[arg(long)]
        check: bool,
    },
    /// Measure parsimax beside PyTorch and judge its goals; --help lists the options
    #[command(disable_help_flag = true)]
    Bench {
        /// Options of benchmarks/bench.py
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Count the instructions of the headline kernels; fail if one grew by more than 10%
    Instructions {
        /// Write the counts down instead
        #[arg(long)]
        record: bool,
    },
    /// Build the Python wheel that a user would install
    Wheel,
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Test { fast } => test::run(fast),
        Chore::Docs { check: true } => docs::check(),
        Chore::Docs { check: false } => docs::build(),
        Chore::Bench { options } => bench::run(&options),
        Chore::Instructions { record } => instructions::run(record),
        Chore::Wheel => python::wheel(),
    };
    match done {
        Ok(line) => {
            println!("xtask: {line}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}
