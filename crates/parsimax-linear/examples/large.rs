//! Fits a large sparse problem and says how long it took: the native half of `benchmarks/linear.py`.
//!
//! `large FOLDER ITERATIONS THREADS`: the folder holds the parts of two CSR matrices, features and labels,
//! as raw little-endian numbers.

use std::path::Path;
use std::time::Instant;

use parsimax_linear::{Features, LossSpec, Settings, Stop, Targets, fit};

fn words(folder: &Path, name: &str) -> std::io::Result<Vec<[u8; 8]>> {
    let bytes = std::fs::read(folder.join(name))?;
    Ok(bytes.chunks_exact(8).map(|chunk| std::array::from_fn(|i| chunk[i])).collect())
}

fn counts(folder: &Path, name: &str) -> std::io::Result<Vec<usize>> {
    Ok(words(folder, name)?.into_iter().map(|bytes| u64::from_le_bytes(bytes) as usize).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, iterations, threads] = arguments.as_slice() else {
        return Err("usage: large FOLDER ITERATIONS THREADS".into());
    };
    let folder = Path::new(folder);
    let [columns, labels] = counts(folder, "shape")?[..] else { return Err("shape must hold two numbers".into()) };
    let indices = counts(folder, "x-indices")?.into_iter().map(u32::try_from).collect::<Result<_, _>>()?;
    let values = words(folder, "x-data")?.into_iter().map(f64::from_le_bytes).collect();
    let features = Features::sparse(columns, counts(folder, "x-indptr")?, indices, values)?;
    let (starts, on) = (counts(folder, "y-indptr")?, counts(folder, "y-indices")?);
    let sets = starts.windows(2).map(|pair| on[pair[0]..pair[1]].to_vec()).collect();
    let targets = Targets::sets(labels, sets)?;
    let loss = LossSpec::new("sparsemax").build()?;
    let stop = Stop { iterations: iterations.parse()?, gradient: 0.0, decrease: -1.0, ..Stop::default() };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.parse()?).build()?;
    let start = Instant::now();
    let (_, report) =
        pool.install(|| fit(&features, &targets, &loss, &Settings { l2: 1e-5, stop, ..Settings::default() }))?;
    let (seconds, peak) = (start.elapsed().as_secs_f64(), peak_megabytes());
    println!(
        "{{\"seconds\":{seconds},\"value\":{},\"iterations\":{},\"evaluations\":{},\"peak_mb\":{peak}}}",
        report.value, report.iterations, report.evaluations
    );
    Ok(())
}

/// The largest resident memory so far, as Linux tells; 0 elsewhere.
fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok()).map_or(0.0, |kb| kb / 1024.0)
}
