//! Every mapping of the registry, at several parameters, with the laws it declares.
//!
//! This is the one place that says which law a mapping obeys. A mapping that is registered but not
//! declared here fails the test `every_mapping_declares_its_laws`.

use parsimax::Mapping;
use parsimax::registry::{Options, build};

/// Laws beyond those that every mapping obeys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Laws {
    /// `Π(z + c) = Π(z)`.
    pub shift_invariant: bool,
    /// `Π(Pz) = PΠ(z)`.
    pub permutation: bool,
    /// `z_i ≤ z_j` implies `p_i ≤ p_j`.
    pub monotone: bool,
    /// The Jacobian is symmetric, so that vjp = jvp.
    pub symmetric: bool,
    /// `0 ≤ p_j − p_i ≤ η(z_j − z_i)/γ` (S0 Prop. 2.4), where such an η is known.
    pub slope: Option<f64>,
    /// `Π(p) = p` for every distribution p, at γ = 1 (S4 Table 1).
    pub idempotent: bool,
    /// As γ → 0 all mass goes to the largest scores.
    pub hard_limit: bool,
    /// `Π_γ(z) = Π_1(z/γ)`.
    pub temperature: bool,
    /// Finite differences agree with the Jacobian: off where the derivative treats a step as constant
    /// and a random direction may cross it.
    pub smooth: bool,
}

/// What most mappings obey.
const REGULAR: Laws = Laws {
    shift_invariant: true,
    permutation: true,
    monotone: true,
    symmetric: true,
    slope: None,
    idempotent: false,
    hard_limit: true,
    temperature: true,
    smooth: true,
};

/// The declaration of a mapping, by registry name.
pub fn laws(name: &str, options: &Options) -> Option<Laws> {
    Some(match name {
        "softmax" => Laws { slope: Some(0.5), ..REGULAR },
        "sparsemax" => Laws { slope: Some(1.0), idempotent: true, ..REGULAR },
        // p_j − p_i = (x_j − x_i)(√p_j + √p_i) with x = z/2, and √p_i + √p_j ≤ √2.
        "entmax15" => Laws { slope: Some(0.5f64.sqrt()), ..REGULAR },
        // dp/dz = p^{2−α} ≤ 1 for α ≤ 2; unbounded beyond. α = 2 is sparsemax.
        "entmax" => {
            let alpha = options.alpha.unwrap_or(1.5);
            Laws { slope: (alpha <= 2.0).then_some(1.0), idempotent: alpha == 2.0, ..REGULAR }
        }
        // Tied maxima do not share equally in the limit: a peak at the end pays λ, one inside 2λ.
        "fusedmax" => Laws { permutation: false, monotone: false, hard_limit: false, ..REGULAR },
        "oscarmax" => Laws { slope: Some(1.0), ..REGULAR },
        // J = B·A/γ, averaging after the prox, is not symmetric.
        "oscarmax-approx" => Laws { shift_invariant: false, hard_limit: false, symmetric: false, ..REGULAR },
        "sq-pnorm-max" => Laws { idempotent: options.p == Some(2.0), ..REGULAR },
        // ‖p‖_α is 1 at every vertex: as γ → 0 the limit is the vertex, as for all others.
        "normmax" => REGULAR,
        "budget" => Laws { hard_limit: false, slope: Some(1.0), ..REGULAR },
        "sparsehourglass" => Laws {
            shift_invariant: false,
            symmetric: false,
            hard_limit: false,
            // S4 Table 1: idempotent for any q, since on the simplex Σz = 1 makes c = 1.
            idempotent: true,
            ..REGULAR
        },
        // The derivative treats the support as constant; a step across the mean is a jump.
        "ev-softmax" => Laws { hard_limit: true, ..REGULAR },
        _ => return None,
    })
}

/// A mapping under test.
pub struct Subject {
    /// Name and parameters, for messages.
    pub label: String,
    /// The registry name.
    pub name: &'static str,
    /// The parameters it was built with.
    pub options: Options,
    /// The mapping.
    pub mapping: Box<dyn Mapping>,
    /// What it obeys.
    pub laws: Laws,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.label)
    }
}

/// The parameters under which a mapping is tried.
fn variants(name: &str) -> Vec<Options> {
    let base = Options::default();
    let alpha = |alpha| Options { alpha: Some(alpha), ..base };
    let lambda = |lambda| Options { lambda: Some(lambda), ..base };
    let mut all = match name {
        "entmax" => [0.3, 1.0, 1.0001, 1.25, 1.5, 1.9, 2.0, 2.5, 4.0, 10.0].map(alpha).to_vec(),
        "normmax" => [1.2, 2.0, 3.0].map(alpha).to_vec(),
        "fusedmax" | "oscarmax" | "oscarmax-approx" => [0.0, 0.02, 0.3].map(lambda).to_vec(),
        "sq-pnorm-max" => [1.2, 1.5, 2.0].map(|p| Options { p: Some(p), ..base }).to_vec(),
        "ev-softmax" => [0.0, 1e-6].map(|eps| Options { eps: Some(eps), ..base }).to_vec(),
        "sparsehourglass" => [0.5, 1.0].map(|q| Options { q: Some(q), ..base }).to_vec(),
        "budget" => [0.5, 1.0, 2.5].map(|budget| Options { budget: Some(budget), ..base }).to_vec(),
        _ => vec![base],
    };
    // Once more at another strength.
    all.push(Options { gamma: Some(0.7), ..all[0] });
    all
}

/// Every mapping of the registry at several parameters.
///
/// # Panics
/// If a mapping cannot be built or has not declared its laws.
pub fn all() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for name in parsimax::registry::names() {
        for options in variants(name) {
            let laws = laws(name, &options).unwrap_or_else(|| panic!("{name} has declared no laws"));
            let mapping = build(name, &options).unwrap_or_else(|e| panic!("{e}"));
            let label = format!("{name} {}", describe(&options));
            subjects.push(Subject { label, name, options, mapping, laws });
        }
    }
    subjects
}

fn describe(options: &Options) -> String {
    let Options { alpha, gamma, lambda, p, eps, q, budget } = *options;
    let named = [("α", alpha), ("γ", gamma), ("λ", lambda), ("p", p), ("ε", eps), ("q", q), ("budget", budget)];
    let set = named.iter().filter_map(|(name, value)| value.map(|value| format!("{name}={value}")));
    set.collect::<Vec<_>>().join(" ")
}
