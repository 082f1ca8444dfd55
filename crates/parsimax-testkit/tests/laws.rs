//! Every law over every mapping of the registry, on seeded cases.

use fastrand::Rng;
use parsimax_testkit::laws::LAWS;
use parsimax_testkit::subjects;

/// Cases per law and subject; together well above the 100,000 that the project asks of itself.
const CASES: u64 = 1000;

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

/// The families pass into their relatives at the ends of their parameters.
#[test]
fn limits() {
    use parsimax::{Entmax, Fusedmax, MappingExt, Oscarmax, Softmax, Sparsehourglass, Sparsemax, SqPnormMax};
    use parsimax_testkit::cases;
    use parsimax_testkit::laws::distance;
    let mut rng = Rng::with_seed(42);
    for _ in 0..500 {
        let d = rng.usize(1..20);
        let z = cases::normals(&mut rng, d, 1.0);
        let near = |a: Vec<f64>, b: Vec<f64>, bar: f64, what: &str| {
            assert!(distance(&a, &b) <= bar, "{what}: {:e} for {z:?}", distance(&a, &b));
        };
        let (soft, sparse) = (Softmax::new().apply(&z).unwrap(), Sparsemax::new().apply(&z).unwrap());
        // |∂p/∂α| is of order 1, so a distance of 10⁻⁹ in α moves p by as much.
        for alpha in [1.0 - 1e-9, 1.0 + 1e-9] {
            near(Entmax::new(alpha).unwrap().apply(&z).unwrap(), soft.clone(), 2e-8, "α → 1");
        }
        near(Entmax::new(2.0 + 1e-9).unwrap().apply(&z).unwrap(), sparse.clone(), 1e-7, "α → 2");
        near(Fusedmax::new(1e-12).unwrap().apply(&z).unwrap(), sparse.clone(), 1e-10, "fusedmax, λ → 0");
        near(Oscarmax::new(1e-12).unwrap().apply(&z).unwrap(), sparse.clone(), 1e-9, "oscarmax, λ → 0");
        near(SqPnormMax::new(2.0).unwrap().apply(&z).unwrap(), sparse, 1e-14, "sq-pnorm-max, p = 2");
        // As α → ∞ the window γ/(α−1) closes on the largest score, as λ → ∞ everything is one group.
        let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let hard = z.iter().map(|z| f64::from(u8::from(*z == top))).collect();
        near(Entmax::new(1e9).unwrap().apply(&z).unwrap(), hard, 0.0, "α → ∞");
        let uniform = vec![1.0 / d as f64; d];
        near(Fusedmax::new(1e6).unwrap().apply(&z).unwrap(), uniform.clone(), 1e-15, "fusedmax, λ → ∞");
        near(Oscarmax::new(1e6).unwrap().apply(&z).unwrap(), uniform, 1e-15, "oscarmax, λ → ∞");
        // S4 Table 1: at q = 0 sparsehourglass does not see the scale.
        let hourglass = Sparsehourglass::new(0.0).unwrap();
        let scaled: Vec<f64> = z.iter().map(|z| z * 8.0).collect();
        near(hourglass.apply(&z).unwrap(), hourglass.apply(&scaled).unwrap(), 1e-13, "scale invariance at q = 0");
    }
}
