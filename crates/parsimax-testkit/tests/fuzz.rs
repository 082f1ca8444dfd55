//! The fuzz targets without a fuzzer: random bytes, seeded, for a minute in all.
//!
//! `PARSIMAX_FUZZ_SECONDS` changes the time per family. A failure prints its seed and the whole case.

use fastrand::Rng;
use parsimax_testkit::fuzz::{FAMILIES, run};
use std::time::{Duration, Instant};

fn seconds() -> u64 {
    std::env::var("PARSIMAX_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(60)
}

fn fuzz(family: &str) {
    let names = FAMILIES.iter().find(|(name, _)| *name == family).expect("a known family").1;
    assert!(names.iter().all(|name| parsimax::registry::names().contains(name)), "{names:?}");
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut cases = 0u64;
    while cases < 1000 || Instant::now() < end {
        let mut rng = Rng::with_seed(cases);
        let bytes: Vec<u8> = (0..rng.usize(0..600)).map(|_| rng.u8(..)).collect();
        let caught = std::panic::catch_unwind(|| run(family, &bytes));
        assert!(caught.is_ok(), "family {family}, seed {cases}");
        cases += 1;
    }
    println!("{family}: {cases} cases");
}

#[test]
fn separable() {
    fuzz("separable");
}

#[test]
fn structured() {
    fuzz("structured");
}

#[test]
fn norms() {
    fuzz("norms");
}

#[test]
fn evidential() {
    fuzz("evidential");
}

#[test]
fn every_mapping_belongs_to_a_family() {
    for name in parsimax::registry::names() {
        assert!(FAMILIES.iter().any(|(_, names)| names.contains(&name)), "{name} is in no fuzz family");
    }
}
