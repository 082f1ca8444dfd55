//! Running other programs from the root of the workspace.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a chore has to say at its end: a closing line, or what went wrong.
pub(crate) type Outcome<T = String> = Result<T, String>;

/// The root of the workspace that cargo runs us in; two checkouts may share one compiled xtask.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let manifest = PathBuf::from(manifest);
    manifest.parent().map_or(manifest.clone(), Path::to_path_buf)
}

/// A program that starts in the root of the workspace.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(arguments).current_dir(root());
    command
}

/// The cargo that runs us.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments)
}

/// Runs to the end, output shown.
pub(crate) fn run(command: &mut Command) -> Outcome<()> {
    let status = command.status().map_err(|error| format!("{}: {error}", spell(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed", spell(command))) }
}

/// Runs to the end, output shown, every line of it also given to `look`.
pub(crate) fn run_watched(command: &mut Command, mut look: impl FnMut(&str)) -> Outcome<()> {
    let problem = |error: std::io::Error, command: &Command| format!("{}: {error}", spell(command));
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| problem(error, command))?;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).split(b'\n')) {
        let line = line.map_err(|error| problem(error, command))?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        look(&line);
    }
    let status = child.wait().map_err(|error| problem(error, command))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed", spell(command))) }
}

/// Standard output of a program that must succeed.
pub(crate) fn capture(command: &mut Command) -> Outcome {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| format!("{}: {error}", spell(command)))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{} failed", spell(command)))
    }
}

/// Whether the program starts and succeeds, output hidden.
pub(crate) fn works(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn spell(command: &Command) -> String {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|argument| argument.to_string_lossy());
    std::iter::once(name.into()).chain(arguments).collect::<Vec<_>>().join(" ")
}
