//! The table of mappings: names, facts and constructors.
//!
//! Whoever takes a mapping's name from a user — the command line, a config file, a framework's
//! layer — builds it here. A mapping's own file holds its line; this file lists them.

use crate::{Error, Mapping, Result};
use crate::{
    budget, entmax, evsoftmax, fusedmax, hourglass, normmax, oscarmax, oscarmax_approx, softmax, sparsemax, sqpnorm,
};

/// What the table says of a mapping, and how to build it.
pub struct Entry {
    /// The name, as on the command line.
    pub name: &'static str,
    /// The regulariser Ω, or a dash where there is none.
    pub omega: &'static str,
    /// When entries are zero.
    pub sparsity: &'static str,
    /// Time for a row of d entries.
    pub cost: &'static str,
    /// Where it was introduced.
    pub reference: &'static str,
    /// The options that apply.
    pub takes: &'static [&'static str],
    /// Builds it; options that are absent take their defaults.
    pub build: fn(&Options) -> Result<Box<dyn Mapping>>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Parameters by name; `None` means the mapping's default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Options {
    /// α of entmax (default 1.5) and normmax (default 2).
    pub alpha: Option<f64>,
    /// The strength γ (default 1).
    pub gamma: Option<f64>,
    /// λ of fusedmax (default 0.1) and oscarmax (default 0.01).
    pub lambda: Option<f64>,
    /// p of sq-pnorm-max (default 1.5).
    pub p: Option<f64>,
    /// ε of ev-softmax's training form (default 0: the sparse form).
    pub eps: Option<f64>,
    /// q of sparsehourglass (default 1).
    pub q: Option<f64>,
    /// The budget of budget (default 2).
    pub budget: Option<f64>,
}

impl Options {
    pub(crate) fn gamma(&self) -> f64 {
        self.gamma.unwrap_or(1.0)
    }

    /// The options that are set, by name.
    fn given(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("alpha", self.alpha),
            ("gamma", self.gamma),
            ("lambda", self.lambda),
            ("p", self.p),
            ("eps", self.eps),
            ("q", self.q),
            ("budget", self.budget),
        ];
        all.into_iter().filter_map(|(name, value)| value.map(|value| (name, value)))
    }
}

/// All mappings, in the order of the documentation.
pub const MAPPINGS: &[Entry] = &[
    softmax::ENTRY,
    sparsemax::ENTRY,
    entmax::ENTRY_15,
    entmax::ENTRY,
    fusedmax::ENTRY,
    oscarmax::ENTRY,
    oscarmax_approx::ENTRY,
    sqpnorm::ENTRY,
    evsoftmax::ENTRY,
    hourglass::ENTRY,
    normmax::ENTRY,
    budget::ENTRY,
];

/// The names of all mappings.
#[must_use]
pub fn names() -> Vec<&'static str> {
    MAPPINGS.iter().map(|entry| entry.name).collect()
}

/// The entry of that name.
///
/// # Errors
/// If there is none; the error lists the names.
pub fn find(name: &str) -> Result<&'static Entry> {
    MAPPINGS.iter().find(|entry| entry.name == name).ok_or_else(|| Error::UnknownMapping(name.into()))
}

/// Builds a mapping from its name and options.
///
/// ```
/// use parsimax::registry::{Options, build};
/// let entmax = build("entmax", &Options { alpha: Some(1.7), ..Options::default() })?;
/// assert_eq!(entmax.name(), "entmax");
/// assert!(build("sparsemax", &Options { alpha: Some(1.7), ..Options::default() }).is_err());
/// # Ok::<(), parsimax::Error>(())
/// ```
///
/// # Errors
/// If the name is unknown, an option does not apply to the mapping, or its value is out of range.
pub fn build(name: &str, options: &Options) -> Result<Box<dyn Mapping>> {
    let entry = find(name)?;
    if let Some((option, value)) = options.given().find(|(option, _)| !entry.takes.contains(option)) {
        return Err(Error::Parameter {
            operation: entry.name,
            name: option,
            expected: "absent: it has no meaning here",
            got: value,
        });
    }
    (entry.build)(options)
}
