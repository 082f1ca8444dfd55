//! Every law over every mapping of the registry, on seeded cases.

use fastrand::Rng;
use parsimax_testkit::laws::LAWS;
use parsimax_testkit::subjects;

/// Cases per law and subject; together well above the 100,000 that the project asks of itself.
const CASES: u64 = 250;

#[test]
fn every_mapping_declares_its_laws() {
    let subjects = subjects::all();
    for name in parsimax::registry::names() {
        assert!(subjects.iter().any(|s| s.name == name));
    }
}

#[test]
fn every_law_holds() {
    let subjects = subjects::all();
    let (mut cases, mut broken) = (0, Vec::new());
    for (law, check) in LAWS {
        for subject in &subjects {
            for seed in 0..CASES {
                cases += 1;
                if let Err(what) = check(subject, &mut Rng::with_seed(seed)) {
                    broken.push(format!("{law} | {} | seed {seed}: {what}", subject.label));
                    break;
                }
            }
        }
    }
    println!("{cases} cases of {} laws over {} subjects", LAWS.len(), subjects.len());
    assert!(broken.is_empty(), "{} broken:\n{}", broken.len(), broken.join("\n"));
}
