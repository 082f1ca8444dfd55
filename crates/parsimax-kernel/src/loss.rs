//! Fenchel–Young losses of class indices, with their gradient, in one sweep.
//!
//! `L = γΩ(y) + max_Ω(z) − z_y` and `∂L/∂z = p − y`. With `x = scale·(z − max)`,
//! `p = u^{1/δ}`, `u = [δx − τ]₊`, `δ = α − 1` and Tsallis' Ω the terms of the row collapse,
//! because `p^α = p·u` and `Σp = 1`:
//!
//! ```text
//! scale · L = 1/(αδ) + Σ p·u / α + τ/δ − x_y          (softmax: log Σ eˣ − x_y)
//! ```
//!
//! So the forward pass that writes `p` into the gradient also sums `p·u` over the support,
//! and nothing is read twice.

use super::route::regularised;
use super::vector::Vector;
use super::write::RowSum;
use super::{Forward, IGNORE, Loss, Map, Status};

/// Losses and gradients of a block of rows.
///
/// # Safety
/// The slices of `job` have the lengths that `Loss` promises, `d ≥ 1`, and the CPU has the
/// instruction set of `V`.
pub(crate) unsafe fn rows<V: Vector>(map: Map, job: &mut Loss<'_>) {
    let mut sums = std::mem::take(&mut job.scratch.sums);
    sums.clear();
    sums.resize(job.status.len(), RowSum::default());
    let d = job.d;
    let mut forward = Forward {
        z: job.z,
        d,
        scale: job.scale,
        out: &mut *job.grad,
        stream: job.stream,
        tau: None,
        status: &mut *job.status,
        scratch: &mut *job.scratch,
    };
    // SAFETY: as the caller vouches, and there is a sum for every row.
    unsafe { regularised::<V>(map, &mut forward, Some((job.gain, &mut sums))) };
    let alpha = match map {
        Map::Softmax | Map::EvSoftmax => 1.0,
        Map::Sparsemax => 2.0,
        Map::Entmax15 => 1.5,
        Map::Entmax(alpha) => alpha,
    };
    for (r, sum) in sums.iter().enumerate() {
        finish(alpha, job, r, *sum);
    }
    job.scratch.sums = sums;
}

/// The loss of row `r`, and the `−y` of its gradient.
fn finish(alpha: f64, job: &mut Loss<'_>, r: usize, sum: RowSum) {
    let row = r * job.d..(r + 1) * job.d;
    let target = job.target[r];
    match job.status[r] {
        _ if target == IGNORE => {
            job.grad[row].fill(0.0);
            job.loss[r] = 0.0;
        }
        Status::Empty => job.loss[r] = 0.0,
        Status::Bad => job.loss[r] = f64::NAN,
        Status::Ok => {
            let at = row.start + target as usize;
            let scale = f64::from(job.scale);
            let x = (f64::from(job.z[at]) - f64::from(sum.max)) * scale;
            let delta = alpha - 1.0;
            let value =
                if alpha == 1.0 { sum.tau - x } else { 1.0 / (alpha * delta) + sum.pu / alpha + sum.tau / delta - x };
            // Not negative by definition; rounding may say otherwise.
            job.loss[r] = value.max(0.0) / scale;
            job.grad[at] -= job.gain;
        }
    }
}
