//! Mappings with groups or norms: what their rows share.
//!
//! These need more than one threshold over the scores, so a row is looked at with vectors (maximum, candidates)
//! and solved on what is left, mostly in `f64`. γ and the penalties stay in `f64`: they multiply differences
//! that may be many times as large as a probability.

use super::tv::{Hulls, Piece};
use super::vector::{MAX_LANES, Vector};
use super::{Status, fused, groups, narrow, norm, oscar};

/// Which mapping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Structure {
    /// Penalty λ on the steps between neighbours.
    Fused(f64),
    /// Penalty λ on the larger entry of every pair.
    Oscar(f64),
    /// A squared norm of exponent `1 + m`, where `1/8 ≤ m < 1`.
    SquaredNorm(f64),
}

/// A structured mapping and its strength γ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Structured {
    /// Which mapping.
    pub structure: Structure,
    /// Its strength.
    pub gamma: f64,
}

/// Working memory, reused from row to row; as large as the candidates of a row, which may be all of it.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Filled by pointer, and then [held](Work::hold).
    pub(super) list: Vec<f32>,
    pub(super) index: Vec<u32>,
    /// Room alone, for rows that are solved side by side.
    pub(super) lanes: Vec<f32>,
    pub(super) pieces: Vec<Piece>,
    pub(super) hulls: Hulls,
    pub(super) oscar: oscar::Pools,
    pub(super) table: groups::Table,
}

impl Work {
    /// Room for the candidates of a row of width `d`.
    pub(super) fn lists(&mut self, d: usize) -> (*mut f32, *mut u32) {
        let n = d + 2 * MAX_LANES;
        // Room alone: what nobody has written takes no memory, and most rows have few candidates.
        self.list.clear();
        self.index.clear();
        self.list.reserve(n);
        self.index.reserve(n);
        (self.list.as_mut_ptr(), self.index.as_mut_ptr())
    }

    /// Makes the first `n` of the [lists](Work::lists) their contents.
    ///
    /// # Safety
    /// So many were written to each.
    pub(super) unsafe fn hold(&mut self, n: usize) {
        debug_assert!(n <= self.list.capacity() && n <= self.index.capacity());
        // SAFETY: as the caller vouches.
        unsafe {
            self.list.set_len(n);
            self.index.set_len(n);
        }
    }
}

/// Rows of width `d` and where their probabilities go.
#[derive(Debug)]
pub struct Rows<'a> {
    /// Scores, `rows · d`.
    pub z: &'a [f32],
    /// Width of a row, at least 1.
    pub d: usize,
    /// Probabilities, `rows · d`.
    pub out: &'a mut [f32],
    /// What became of each row.
    pub status: &'a mut [Status],
    /// Working memory.
    pub work: &'a mut Work,
}

/// Rows of scores, probabilities and an incoming gradient, and where `Jᵀv = Jv` goes.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// Scores, of which only −∞ is looked at; empty if `out` holds −∞ in the places of masked entries.
    pub z: &'a [f32],
    /// Probabilities that the forward pass wrote.
    pub p: &'a [f32],
    /// Incoming gradient.
    pub v: &'a [f32],
    /// Width of a row, at least 1.
    pub d: usize,
    /// Gradient in the scores.
    pub out: &'a mut [f32],
    /// Working memory.
    pub work: &'a mut Work,
}

/// # Safety
/// The slices have the lengths that `Rows` promises, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(Structured { structure, gamma }: Structured, job: Rows<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match structure {
            Structure::Fused(lambda) => fused::forward::<V>(job, lambda, gamma),
            Structure::Oscar(lambda) => oscar::forward::<V>(job, lambda, gamma),
            Structure::SquaredNorm(0.5) if job.d <= narrow::NARROW => narrow::forward::<V>(job, gamma),
            Structure::SquaredNorm(m) => each(job, |z, out, work| norm::row::<V>(z, out, m, gamma, work)),
        }
    }
}

/// Replaces a row of scores, at least one and all finite, by its probabilities.
///
/// # Safety
/// The CPU has the instruction set of `V`.
pub(crate) unsafe fn in_place<V: Vector>(
    Structured { structure, gamma }: Structured,
    x: &mut [f32],
    work: &mut Work,
) -> Status {
    // SAFETY: as the caller vouches.
    unsafe {
        match structure {
            Structure::Fused(lambda) => fused::in_place::<V>(x, lambda, gamma, &mut work.hulls),
            Structure::Oscar(lambda) => oscar::in_place::<V>(x, lambda, gamma, &mut work.oscar),
            Structure::SquaredNorm(m) => norm::in_place::<V>(x, m, gamma),
        }
    }
}

/// Row by row.
fn each(job: Rows<'_>, mut solve: impl FnMut(&[f32], &mut [f32], &mut Work) -> Status) {
    let Rows { z, d, out, status, work } = job;
    for ((z, out), status) in z.chunks_exact(d).zip(out.chunks_exact_mut(d)).zip(status) {
        *status = solve(z, out, work);
    }
}

/// # Safety
/// The slices have the lengths that `Gradients` promises, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn backward<V: Vector>(Structured { structure, gamma }: Structured, job: Gradients<'_>) {
    let Gradients { z, p, v, d, out, work } = job;
    for (r, out) in out.chunks_exact_mut(d).enumerate() {
        let row = |x: &'_ [f32]| -> *const f32 { x[r * d..(r + 1) * d].as_ptr() };
        // SAFETY: the rows lie within their slices; the caller vouches for the instruction set.
        unsafe {
            let slice = |x| std::slice::from_raw_parts(row(x), d);
            let (z, p, v) = ((!z.is_empty()).then(|| slice(z)), slice(p), slice(v));
            match structure {
                Structure::Fused(_) => groups::neighbours::<V>(z, (p, v), out, gamma, work),
                Structure::Oscar(_) => groups::anywhere::<V>((p, v), out, gamma, work),
                Structure::SquaredNorm(m) => norm::backward::<V>((p, v), out, m, gamma),
            }
        }
    }
}
