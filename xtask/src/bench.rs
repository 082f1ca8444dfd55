//! `cargo xtask bench`: builds what the benchmarks need and runs them.
//!
//! PyTorch and the entmax package live in a virtual environment under the target directory. It is made
//! once; later runs only look whether the versions are still the ones asked for.

use std::path::{Path, PathBuf};

use crate::shell::{self, Outcome, cargo, program, root};

const REQUIREMENTS: &str = "benchmarks/requirements.txt";

/// Benchmarks of whole models: the flag, the script, and what cargo builds where.
const MODELS: [(&str, &str, &[&str], &str); 2] = [
    ("--models", "benchmarks/models.py", &["--package", "parsimax-bench-models"], "parsimax-bench-models"),
    (
        "--inflection",
        "benchmarks/inflection.py",
        &["--package", "parsimax-models", "--example", "inflection_speed"],
        "examples/inflection_speed",
    ),
];

/// Sets up, builds and measures; the arguments go to `benchmarks/bench.py`, or with `--models` or `--inflection` to
/// `benchmarks/models.py` or `benchmarks/inflection.py`.
pub(crate) fn run(arguments: &[String]) -> Outcome {
    let target = target_directory()?;
    let python = environment(&target.join("bench-venv"))?;
    for (flag, script, what, binary) in MODELS {
        let Some(place) = arguments.iter().position(|argument| argument == flag) else { continue };
        shell::run(cargo(&["build", "--release"]).args(what))?;
        let binary = format!("{binary}{}", std::env::consts::EXE_SUFFIX);
        let mut command = program(&python, &[script, "--native"]);
        let rest = arguments.iter().enumerate().filter(|(i, _)| *i != place).map(|(_, argument)| argument);
        shell::run(command.arg(target.join("release").join(binary)).args(rest))?;
        return Ok("measured".into());
    }
    shell::run(&mut cargo(&["build", "--release", "--package", "parsimax-bench-native"]))?;
    let library = format!("{}parsimax_bench{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let mut command = program(&python, &["benchmarks/bench.py", "--native"]);
    // Idle workers of PyTorch's pool sleep instead of spinning: on two cores they would take one of ours.
    command.env("OMP_WAIT_POLICY", "PASSIVE").env("GOMP_SPINCOUNT", "0").env("KMP_BLOCKTIME", "0");
    shell::run(command.arg(target.join("release").join(library)).args(arguments))?;
    Ok("measured".into())
}

/// Where cargo builds.
pub(crate) fn target_directory() -> Outcome<PathBuf> {
    let metadata = shell::capture(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_str(&metadata).map_err(|e| format!("cargo metadata: {e}"))?;
    let directory = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(directory.into())
}

/// The Python of an environment that holds everything in `requirements.txt`.
fn environment(folder: &Path) -> Outcome<PathBuf> {
    let python = folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if !shell::works(&mut program(&python, &["--version"])) {
        create(folder)?;
    }
    if !shell::works(&mut program(&python, &["-m", "pip", "--version"])) {
        return Err(format!("pip is missing in {}: delete that folder, install pip and try again", shown(folder)));
    }
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", REQUIREMENTS];
    shell::run(&mut program(&python, &install)).map_err(|_| format!("pip could not install {REQUIREMENTS}"))?;
    Ok(python)
}

fn create(folder: &Path) -> Outcome<()> {
    if !shell::works(&mut program("python3", &["--version"])) {
        return Err("python3 is missing: the benchmarks compare with PyTorch and need Python 3.10 or later".into());
    }
    println!("making a virtual environment in {}; PyTorch is a large download", shown(folder));
    shell::run(program("python3", &["-m", "venv"]).arg(folder)).map_err(|_| {
        // Half an environment would be taken for a whole one next time.
        let _ = std::fs::remove_dir_all(folder);
        "python3 could not make a virtual environment: its modules venv and ensurepip (pip) are needed".into()
    })
}

/// The path as seen from the root of the workspace.
fn shown(folder: &Path) -> String {
    folder.strip_prefix(root()).unwrap_or(folder).display().to_string()
}
