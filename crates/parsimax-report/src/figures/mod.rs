//! The figures by name: what each shows, and the function that computes it.

mod curves;
mod entropies;
mod losses;
mod simplex;
mod sparsity;
mod subjects;
mod surfaces;

use crate::{Error, Figure, Result};

pub use subjects::Request;

/// A figure's line in the table, and how to compute it.
pub struct Entry {
    /// The name, as on the command line.
    pub name: &'static str,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// The figure of the literature that it follows, or a dash.
    pub after: &'static str,
    /// The options that mean something here, beside those of its mappings.
    pub takes: &'static [&'static str],
    build: fn(&Request) -> Result<Figure>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Entry {
    /// Computes the figure.
    ///
    /// # Errors
    /// If an option means nothing here or its value is out of range, or a mapping is unknown.
    pub fn figure(&self, request: &Request) -> Result<Figure> {
        for (option, given) in request.given() {
            if !self.takes.contains(&option) {
                let expected = "absent: it means nothing here".into();
                return Err(Error::Option { figure: self.name, option, expected, got: given });
            }
        }
        (self.build)(request)
    }
}

/// All figures, in the order in which they explain.
pub const FIGURES: &[Entry] = &[
    curves::CURVES,
    curves::FAMILY,
    curves::SMOOTHED_MAX,
    losses::ENTRY,
    surfaces::SPARSEMAX,
    surfaces::SURFACES,
    simplex::ENTRY,
    sparsity::ENTRY,
    entropies::ENTRY,
];

/// The names of all figures.
#[must_use]
pub fn names() -> Vec<&'static str> {
    FIGURES.iter().map(|entry| entry.name).collect()
}

/// The entry of that name.
///
/// # Errors
/// If there is none; the error lists the names.
pub fn find(name: &str) -> Result<&'static Entry> {
    FIGURES.iter().find(|entry| entry.name == name).ok_or_else(|| Error::UnknownFigure(name.into()))
}
