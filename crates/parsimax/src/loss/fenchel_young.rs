//! The Fenchel–Young loss of a regularised mapping (Blondel, Martins & Niculae 2020).
//!
//! **Value.** With $p = \Pi(z)$ and $\max_\Omega(z) = \langle p, z\rangle - \gamma\Omega(p)$,
//! `$$L(z; y) = \gamma\Omega(y) + \max_\Omega(z) - \langle z, y\rangle
//! = \langle z - \max z,\; p - y\rangle + \gamma(\Omega(y) - \Omega(p)).$$`
//! The second form has no large terms to cancel and is exactly 0 where $p = y$. For a class target $k$
//! the first term needs $p$ on its support and $p_k$ alone.
//!
//! **Derivatives.** $\nabla_z L = p - y$; the Hessian is the mapping's Jacobian, which carries $1/\gamma$
//! already: $\gamma L_\Omega(z/\gamma)$ has the Hessian $J_\Omega(z/\gamma)/\gamma$.
//!
//! **Names in the papers.** Softmax: cross-entropy minus the entropy of $y$. Sparsemax: the sparsemax
//! loss (Martins & Astudillo 2016, Eq. 20 and 26). Entmax: the entmax loss (Peters, Niculae & Martins
//! 2019, Eq. 11), 0 exactly from a margin of γ/(α−1) on.

use super::BatchLoss;
use super::row::{Group, LossScratch, RowLoss, RowTarget, check_simplex};
use crate::single::Kernel;
use crate::{Regularized, Result, numeric};

const NAME: &str = "Fenchel-Young loss";

/// The Fenchel–Young loss of a regularised mapping, over a batch.
///
/// ```
/// use parsimax::loss::{FenchelYoung, Target};
/// use parsimax::{Sparsemax, View, ViewMut};
/// // Row 0: p = (0.6, 0.4), so max_Ω = 0.6 + 0.32 − ½·0.52 = 0.66 and L = ½ + 0.66 − 0.8 = 0.36.
/// // Row 1: class 1 leads by more than 1, so L = 0.
/// let z = [1.0f64, 0.8, 0.0, 1.5];
/// let mut gradient = [0.0; 4];
/// let loss = FenchelYoung::new(&Sparsemax::new()).loss_and_gradient(
///     View::new(&z, &[2, 2])?,
///     Target::Classes(&[1, 1]),
///     ViewMut::new(&mut gradient, &[2, 2])?,
/// )?;
/// assert!((loss.value().unwrap() - 0.36 / 2.0).abs() < 1e-15);
/// // (p − y)/2
/// assert!((gradient[0] - 0.3).abs() < 1e-15 && (gradient[1] + 0.3).abs() < 1e-15);
/// assert_eq!(gradient[2..], [0.0, 0.0]);
/// # Ok::<(), parsimax::Error>(())
/// ```
pub type FenchelYoung<'a, M> = BatchLoss<'a, FenchelYoungRow<'a, M>>;

/// The Fenchel–Young loss of one row: what [`FenchelYoung`] is made of.
#[derive(Debug)]
pub struct FenchelYoungRow<'a, M: ?Sized> {
    mappings: Group<'a, M>,
}

impl<M: ?Sized> Clone for FenchelYoungRow<'_, M> {
    fn clone(&self) -> Self {
        Self { mappings: self.mappings.clone() }
    }
}

impl<'a, M: Regularized + ?Sized> BatchLoss<'a, FenchelYoungRow<'a, M>> {
    /// One mapping for all rows. `M` may be `dyn Regularized`.
    pub fn new(mapping: &'a M) -> Self {
        Self::of_rows(FenchelYoungRow { mappings: Group::one(mapping) })
    }

    /// A mapping per group of rows: row `r` uses `mappings[(r / run) % mappings.len()]`, as in
    /// [`Rows::grouped`](crate::Rows::grouped). One α per row takes `run = 1`.
    ///
    /// # Errors
    /// If `mappings` is empty or `run` is 0.
    pub fn grouped(mappings: &'a [M], run: usize) -> Result<Self>
    where
        M: Sized,
    {
        Ok(Self::of_rows(FenchelYoungRow { mappings: Group::many(NAME, mappings, run)? }))
    }
}

impl<M: Regularized + ?Sized> RowLoss for FenchelYoungRow<'_, M> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn loss_row(
        &self,
        row: usize,
        z: &[f64],
        y: RowTarget<'_>,
        gradient: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<f64> {
        let mapping = self.mappings.of(row);
        check_simplex(NAME, mapping.total(z.len()))?;
        mapping.forward_row(z, gradient, &mut scratch.mapping)?;
        let top = numeric::max(z);
        let loss = if (lowest(z, y) - top).is_infinite() {
            // The difference of the scores is beyond the range of f64.
            f64::INFINITY
        } else {
            match y {
                RowTarget::Class(k) => class_loss(mapping, z, gradient, k, top, &mut scratch.zeros),
                RowTarget::Dense(y) => mapping.loss_row(z, gradient, y),
            }
        };
        y.subtract_from(gradient);
        Ok(loss)
    }

    fn kernel(&self, row: usize) -> Option<Kernel> {
        self.mappings.of(row).kernel()
    }

    fn regularized(&self, row: usize) -> Option<&dyn Regularized> {
        Some(self.mappings.reference(row))
    }

    fn kernel_run(&self, row: usize) -> usize {
        self.mappings.run_from(row)
    }

    fn hvp_row(
        &self,
        row: usize,
        z: &[f64],
        _y: RowTarget<'_>,
        v: &[f64],
        out: &mut [f64],
        scratch: &mut LossScratch,
    ) -> Result<()> {
        let mapping = self.mappings.of(row);
        check_simplex(NAME, mapping.total(z.len()))?;
        let LossScratch { mapping: inner, a: p, .. } = scratch;
        p.clear();
        p.resize(z.len(), 0.0);
        mapping.forward_row(z, p, inner)?;
        mapping.jvp_row(z, p, v, out, inner)
    }
}

/// The lowest score that the target has mass on.
fn lowest(z: &[f64], y: RowTarget<'_>) -> f64 {
    let mut lowest = f64::INFINITY;
    y.for_each(|i, _| lowest = lowest.min(z[i]));
    lowest
}

/// The loss for all mass on entry `k`, without a dense target; `top` is the largest score.
fn class_loss<M: Regularized + ?Sized>(
    mapping: &M,
    z: &[f64],
    p: &[f64],
    k: usize,
    top: f64,
    zeros: &mut Vec<f64>,
) -> f64 {
    let others = z.iter().zip(p).enumerate().filter(|(i, (_, p))| **p > 0.0 && *i != k);
    let linear = numeric::sum(others.map(|(_, (z, p))| (z - top) * p)) + (z[k] - top) * (p[k] - 1.0);
    (linear + mapping.gamma() * (vertex_omega(mapping, k, z.len(), zeros) - mapping.omega(p))).max(0.0)
}

/// Ω of the vertex $e_k$ among `d` entries. It depends on both for structured regularisers (the ends of
/// a fused row have one neighbour), so it is asked for at the vertex itself; `zeros` is zero before and
/// after.
fn vertex_omega<M: Regularized + ?Sized>(mapping: &M, k: usize, d: usize, zeros: &mut Vec<f64>) -> f64 {
    zeros.resize(d, 0.0);
    zeros[k] = 1.0;
    let omega = mapping.omega(zeros);
    zeros[k] = 0.0;
    omega
}
