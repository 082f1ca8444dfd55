//! `cargo xtask instructions`: how many instructions the headline kernels execute.
//!
//! Counts do not depend on how busy the machine is, so they can fail a check where times cannot. The
//! instruction set is forced, so they do not depend on the processor either; a new compiler may move
//! them, and then they are recorded again.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::bench::target_directory;
use crate::shell::{self, Outcome, cargo, program, root};

const RECORD: &str = "benchmarks/instructions.json";
const KERNEL: &str = "avx2";
/// In percent.
const GROWTH: u64 = 10;
/// The second run does this much more than the first; the difference is the kernel alone.
const TIMES: [u64; 2] = [1, 5];

type Counts = BTreeMap<String, u64>;

/// Counts, and compares with what was recorded or records.
pub(crate) fn run(record: bool) -> Outcome {
    if !shell::works(&mut program("valgrind", &["--version"])) {
        return Err("valgrind is missing: install it (on Debian and Ubuntu: apt-get install valgrind)".into());
    }
    let build = ["build", "--release", "--package", "parsimax-bench-native", "--bin", "one-kernel"];
    shell::run(&mut cargo(&build))?;
    let target = target_directory()?;
    let binary = target.join("release").join(format!("one-kernel{}", std::env::consts::EXE_SUFFIX));
    let mut counts = Counts::new();
    for kernel in shell::capture(&mut program(&binary, &["--list"]))?.lines() {
        counts.insert(kernel.into(), count_kernel(&binary, kernel, &target)?);
    }
    let path = root().join(RECORD);
    if record {
        let text = format!("{:#}\n", json!({ "kernel": KERNEL, "rustc": compiler()?, "instructions": counts }));
        std::fs::write(path, text).map_err(|error| format!("{RECORD}: {error}"))?;
        return Ok(format!("recorded {} kernels in {RECORD}", counts.len()));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("{RECORD}: {error}; `cargo xtask instructions --record` writes it"))?;
    let recorded: Value = serde_json::from_str(&text).map_err(|error| format!("{RECORD}: {error}"))?;
    let (table, grown) = compare(&counts, &recorded);
    print!("{table}");
    if recorded["rustc"].as_str() != Some(&compiler()?) {
        println!("recorded with another compiler: {}", recorded["rustc"]);
    }
    if grown.is_empty() {
        Ok(format!("{} kernels within {GROWTH}% of {RECORD}", counts.len()))
    } else {
        Err(format!("more than {GROWTH}% above {RECORD}: {}", grown.join(", ")))
    }
}

/// A line per kernel, and the kernels that grew too much or were never recorded.
fn compare(counts: &Counts, recorded: &Value) -> (String, Vec<String>) {
    let mut table = format!("{:<20} {:>14} {:>14} {:>8}\n", "instructions a run", "recorded", "now", "change");
    let mut grown = Vec::new();
    for (kernel, now) in counts {
        let before = recorded["instructions"][kernel.as_str()].as_u64();
        let (recorded, change) = match before {
            Some(before) => (before.to_string(), format!("{:+.1}%", (*now as f64 / before as f64 - 1.0) * 100.0)),
            None => ("—".into(), "new".into()),
        };
        let _ = writeln!(table, "{kernel:<20} {recorded:>14} {now:>14} {change:>8}");
        if before.is_none_or(|before| now * 100 > before * (100 + GROWTH)) {
            grown.push(kernel.clone());
        }
    }
    (table, grown)
}

/// Instructions of one run of a kernel.
fn count_kernel(binary: &Path, kernel: &str, target: &Path) -> Outcome<u64> {
    let [few, many] = TIMES.map(|times| count_process(binary, kernel, times, target));
    let more = TIMES[1] - TIMES[0];
    Ok(many?.saturating_sub(few?) / more)
}

/// Instructions of a whole process.
fn count_process(binary: &Path, kernel: &str, times: u64, target: &Path) -> Outcome<u64> {
    let file = target.join(format!("callgrind.{kernel}.{times}"));
    let output = format!("--callgrind-out-file={}", file.display());
    let mut command = program("valgrind", &["--quiet", "--tool=callgrind", &output]);
    command.arg(binary).args([kernel, &times.to_string()]).env("PARSIMAX_KERNEL", KERNEL);
    shell::run(&mut command)?;
    let profile = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    total(&profile).ok_or_else(|| format!("{} holds no total", file.display()))
}

/// The number in callgrind's line `totals: 1234`.
fn total(profile: &str) -> Option<u64> {
    profile.lines().find_map(|line| line.strip_prefix("totals:")?.split_whitespace().next()?.parse().ok())
}

fn compiler() -> Outcome {
    let version = shell::capture(&mut program("rustc", &["--version"]))?;
    Ok(version.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_from_a_profile() {
        assert_eq!(total("version: 1\nevents: Ir\nfn=(1)\n5 7\ntotals: 1234\n"), Some(1234));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn growth_beyond_the_limit_and_unknown_kernels_are_named() {
        let recorded = json!({ "instructions": { "same": 100, "slower": 100, "faster": 100 } });
        let counts = [("same", 110), ("slower", 111), ("faster", 50), ("new", 1)];
        let counts = counts.map(|(kernel, count)| (kernel.to_owned(), count)).into();
        let (table, grown) = compare(&counts, &recorded);
        assert_eq!(grown, ["new", "slower"]);
        assert!(table.contains("-50.0%"), "{table}");
    }
}
