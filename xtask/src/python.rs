//! The Python package: `cargo xtask wheel`, and its part of `cargo xtask test`.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::target_directory;
use crate::shell::{self, Outcome, program};

/// What the package is tested with, besides itself.
const TESTED_WITH: &[&str] =
    &["torch==2.13.*", "numpy", "entmax==1.3", "pytest>=8", "scipy", "scikit-learn>=1.6", "ml_dtypes", "setuptools"];

/// What builds it.
const BUILT_WITH: &[&str] = &["maturin>=1.10,<2"];

/// Builds the wheel that a user would install and says where it is.
pub(crate) fn wheel() -> Outcome {
    let path = build()?;
    Ok(format!("pip install {}", path.display()))
}

/// Installs the wheel into its own environment and runs the Python tests; the number that passed.
pub(crate) fn test() -> Outcome<usize> {
    let wheel = build()?;
    let environment = Environment::with("test", TESTED_WITH)?;
    let wheel = wheel.display().to_string();
    shell::run(&mut environment.python(&[
        "-m",
        "pip",
        "install",
        "--quiet",
        "--force-reinstall",
        "--no-deps",
        &wheel,
    ]))?;
    let mut passed = 0;
    // From the root, where the installed package is the one that is found.
    let pytest = ["-m", "pytest", "--config-file", "python/pyproject.toml", "python/tests", "benchmarks/tests"];
    let outcome = shell::run_watched(&mut environment.python(&pytest), |line| passed += tests_passed(line));
    outcome.map(|()| passed)
}

fn build() -> Outcome<PathBuf> {
    let out = target_directory()?.join("wheels");
    // Wheels of earlier builds would be mistaken for this one.
    if out.exists() {
        std::fs::remove_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    }
    let place = out.display().to_string();
    let build = ["-m", "maturin", "build", "--release", "--manifest-path", "python/Cargo.toml", "--out", &place];
    shell::run(&mut Environment::with("build", BUILT_WITH)?.python(&build))?;
    let entries = std::fs::read_dir(&out).map_err(|error| format!("{place}: {error}"))?;
    let wheel = entries.flatten().map(|entry| entry.path()).find(|path| path.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| format!("maturin left no wheel in {place}"))
}

/// A virtual environment with fixed packages, made anew whenever they change.
struct Environment(PathBuf);

impl Environment {
    fn with(name: &str, packages: &[&str]) -> Outcome<Self> {
        let environment = Self(target_directory()?.join("python").join(name));
        let stamp = environment.0.join("packages.txt");
        let wanted = packages.join("\n");
        if std::fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
            return Ok(environment);
        }
        let place = environment.0.display().to_string();
        shell::run(&mut program("python3", &["-m", "venv", "--clear", &place])).map_err(|problem| {
            format!("{problem}\nthe Python tests need Python ≥ 3.10 with venv (on Debian: apt install python3-venv)")
        })?;
        let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        shell::run(environment.python(&install).args(packages))?;
        std::fs::write(&stamp, wanted).map_err(|error| format!("{}: {error}", stamp.display()))?;
        Ok(environment)
    }

    fn python(&self, arguments: &[&str]) -> Command {
        let bin = self.0.join("bin");
        let mut command = program(bin.join("python"), arguments);
        // Programs that the tests start must be those of the environment.
        let path = std::env::var_os("PATH").unwrap_or_default();
        let paths = std::iter::once(bin.as_path().to_path_buf()).chain(std::env::split_paths(&path));
        if let Ok(joined) = std::env::join_paths(paths) {
            command.env("PATH", joined);
        }
        command.env("VIRTUAL_ENV", Path::new(&self.0));
        command
    }
}

/// The count in pytest's last line, such as "3 failed, 412 passed in 61.20s"; 0 for any other line.
fn tests_passed(line: &str) -> usize {
    let Some((before, _)) = line.split_once(" passed") else { return 0 };
    if !line.contains(" in ") {
        return 0;
    }
    before.rsplit(' ').next().and_then(|count| count.trim_start_matches('=').parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_are_counted() {
        assert_eq!(tests_passed("412 passed in 61.20s (0:01:01)"), 412);
        assert_eq!(tests_passed("3 failed, 412 passed, 2 warnings in 61.20s"), 412);
        assert_eq!(tests_passed("tests/test_numpy.py ....  passed"), 0);
    }
}
