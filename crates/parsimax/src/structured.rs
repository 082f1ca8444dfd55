//! Single precision for structured mappings: the bridge from batches to their kernels.
//!
//! A mapping that names such a kernel ([`Mapping::structured`](crate::Mapping::structured)) has its `f32` rows
//! computed by it; the contract and the tests are those of the rows in `f64`.

use crate::batch::Plan;
use crate::kernel::{self, Status, Structure, Structured};
use crate::single::{COPIED, bad_score, block, scores, spoil};
use crate::{Error, Float, View};
use std::ops::Range;

/// The kernel of a structured mapping.
#[derive(Debug, Clone, Copy)]
pub struct StructuredKernel(pub(crate) Structured);

impl StructuredKernel {
    /// `None` where the products of strength, penalty and width might leave the digits of `f64` that a
    /// probability in `f32` needs.
    pub(crate) fn new(structure: kernel::Structure, lambda: f64, gamma: f64) -> Option<Self> {
        let fits = (1e-6..=1e6).contains(&gamma) && (1e-12..=1e3).contains(&lambda);
        fits.then_some(Self(Structured { structure, gamma }))
    }

    /// Whether the kernel knows the Jacobian, which it then does as a symmetric one.
    pub(crate) fn is_symmetric(self) -> bool {
        true
    }
}

/// Memory of one chunk of rows.
#[derive(Default)]
pub(crate) struct Buffers {
    gather: [Vec<f32>; 3],
    status: Vec<Status>,
    work: kernel::Work,
}

/// Probabilities of rows that share a kernel; returns the first bad score.
pub(crate) fn forward(
    StructuredKernel(map): StructuredKernel,
    plan: &Plan<'_>,
    z: &[f32],
    rows: &Range<usize>,
    out: &mut [f32],
    buffers: &mut Buffers,
) -> Option<Error> {
    let Buffers { gather: [gather, ..], status, work } = buffers;
    status.clear();
    status.resize(rows.len(), Status::Ok);
    kernel::structured(map, kernel::Rows { z: scores(plan, z, rows, gather), d: plan.z.len, out, status, work });
    let first = status.iter().position(|status| *status == Status::Bad)?;
    bad_score(plan, z, rows.start + first)
}

/// `Jᵀv` of rows that share a kernel; returns the first bad score.
pub(crate) fn backward<T: Float>(
    StructuredKernel(map): StructuredKernel,
    plan: &Plan<'_>,
    z: &[f32],
    (p, v): (&View<'_, T>, &View<'_, T>),
    rows: &Range<usize>,
    out: &mut [f32],
    buffers: &mut Buffers,
) -> Option<Error> {
    let Buffers { gather: [gz, gp, gv], work, .. } = buffers;
    let d = plan.z.len;
    let p = block(&p.layout.rows(plan.axis), T::as_f32(p.data)?, rows, gp);
    let v = block(&v.layout.rows(plan.axis), T::as_f32(v.data)?, rows, gv);
    // Which entries are masked matters to neighbours alone; probabilities tell the rest.
    let z_of_rows = match map.structure {
        Structure::Fused(_) if d > COPIED && rows.len() == 1 => {
            mark(plan, z, rows.start, out);
            &[]
        }
        Structure::Fused(_) => scores(plan, z, rows, gz),
        _ => &[],
    };
    kernel::structured_backward(map, kernel::Gradients { z: z_of_rows, p, v, d, out: &mut *out, work });
    spoil(plan, z, p, rows, out)
}

/// Writes −∞ to the places of masked entries and 0 to the others.
fn mark(plan: &Plan<'_>, z: &[f32], row: usize, out: &mut [f32]) {
    let takes_part = plan.mask(row);
    plan.z.gather(z, row, out);
    for (i, out) in out.iter_mut().enumerate() {
        *out = if *out > f32::NEG_INFINITY && takes_part(i) { 0.0 } else { f32::NEG_INFINITY };
    }
}
