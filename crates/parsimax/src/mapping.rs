//! The two traits of the crate: [`Mapping`] (forward and derivatives of one row) and
//! [`Regularized`] (the same, born from a regulariser Ω, which brings a loss).
//!
//! A mapping sees one clean row at a time: finite `f64` scores, at least one of them. Masks,
//! `-inf`, NaN, narrower types, axes, strides and threads are the business of
//! [`Rows`](crate::Rows), so a mapping's file holds nothing but its mathematics.

use crate::Result;
use crate::law::{Form, Law};
use crate::prox::Block;
use crate::prox::tv1d::Tube;
use crate::single::{Kernel, Single};
use crate::structured::StructuredKernel;

/// Buffers that a mapping may use while it works on a row. Reused from row to row: after the
/// first rows nothing is allocated.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) a: Vec<f64>,
    pub(crate) b: Vec<f64>,
    pub(crate) c: Vec<f64>,
    pub(crate) index: Vec<u32>,
    pub(crate) group: Vec<u32>,
    pub(crate) tube: Tube,
    pub(crate) blocks: Vec<Block>,
}

impl Scratch {
    /// Empty buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

/// A sparse row: positions and values of the entries that are not zero.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Support {
    /// Positions, ascending.
    pub index: Vec<u32>,
    /// The probability at each position, all > 0.
    pub value: Vec<f64>,
}

impl Support {
    /// Forgets the row, keeps the memory.
    pub fn clear(&mut self) {
        self.index.clear();
        self.value.clear();
    }
}

/// A map from scores to probabilities, with its derivatives.
///
/// Contract of every method: `z` holds at least one entry and only finite ones; all slices have
/// the same length; outputs are overwritten. `p` is what [`forward_row`](Mapping::forward_row)
/// returned for `z` (possibly rounded to a narrower type).
pub trait Mapping: Send + Sync {
    /// The name by which the registry, the command line and error messages know the mapping.
    fn name(&self) -> &'static str;

    /// Writes Π(z) into `p` and returns the threshold τ, if the mapping has one.
    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>>;

    /// Writes `Jᵀv` into `out`: the gradient in `z` of `<v, Π(z)>`.
    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()>;

    /// Writes `Jv` into `out`: the derivative of Π(z) in the direction `v`. The same as
    /// [`vjp_row`](Mapping::vjp_row) wherever the Jacobian is symmetric, which is so for every
    /// mapping that comes from a regulariser.
    fn jvp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        self.vjp_row(z, p, v, out, scratch)
    }

    /// The gradient of `<v, Π(z)>` in the mapping's shape parameter (α of entmax and normmax, λ of
    /// fusedmax and oscarmax, p of sq-pnorm-max); `None` where there is none.
    fn parameter_vjp_row(&self, _z: &[f64], _p: &[f64], _v: &[f64], _scratch: &mut Scratch) -> Option<f64> {
        None
    }

    /// Writes the support of Π(z) and its values into `out` and returns τ.
    ///
    /// The default computes the row in scratch memory; mappings that know their candidates never
    /// write a zero.
    fn support_row(&self, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Result<Option<f64>> {
        let mut p = std::mem::take(&mut scratch.c);
        p.clear();
        p.resize(z.len(), 0.0);
        let tau = self.forward_row(z, &mut p, scratch);
        out.clear();
        for (i, p) in p.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            out.index.push(i as u32);
            out.value.push(*p);
        }
        scratch.c = p;
        tau
    }

    /// `Jv` restricted to the support, in O(|S|): `index` and `p` are a row of the sparse result,
    /// `v` the direction at the same positions. Entries outside the support have derivative 0.
    /// `None` where the Jacobian cannot be had from the support alone.
    fn support_vjp_row(&self, _index: &[u32], _p: &[f64], _v: &[f64], _out: &mut [f64]) -> Option<()> {
        None
    }

    /// The mapping as a regularised one, where it is: the door to Ω, max_Ω and the loss.
    fn regularized(&self) -> Option<&dyn Regularized> {
        None
    }

    /// The mapping with logarithms, where it has them: the door to a likelihood.
    fn logarithmic(&self) -> Option<&dyn LogMapping> {
        None
    }

    /// Replaces the scores of a row by Π(z); `false` if the mapping needs them beside it, and then nothing was changed.
    #[doc(hidden)]
    fn replace_row(&self, _z: &mut [f64], _scratch: &mut Scratch) -> bool {
        false
    }

    /// How a probability depends on its score, where that and a few numbers of the row are all there is to it.
    #[doc(hidden)]
    fn form(&self) -> Option<Form> {
        None
    }

    /// Writes Π(z) into `out`, 0 where an entry takes no part, without memory in proportion to the row; `false` if the
    /// mapping has no such way, and then `out` may hold anything.
    #[doc(hidden)]
    fn forward_scattered(&self, _z: Scores<'_>, _out: &mut [f64]) -> bool {
        false
    }

    /// The same for `Jᵀv`. The probabilities are exactly those of [`forward_row`](Mapping::forward_row).
    #[doc(hidden)]
    fn vjp_scattered(&self, _z: Scores<'_>, _p: &[f64], _v: &[f64], _out: &mut [f64]) -> bool {
        false
    }

    /// The gradient in the shape parameter of a long row without memory in proportion to it; `None` if the mapping has
    /// no such way.
    #[doc(hidden)]
    fn parameter_vjp_by(&self, _row: &LongRow<'_>) -> Option<f64> {
        None
    }

    /// Whether a derivative from the support alone asks which of its entries are neighbours.
    #[doc(hidden)]
    fn has_neighbours(&self) -> bool {
        true
    }

    /// Whether the derivatives in z are functions of more than the probabilities, so that scores and masks are needed.
    #[doc(hidden)]
    fn reads_scores(&self) -> bool {
        true
    }

    /// The single-precision kernel that computes the mapping, if there is one.
    #[doc(hidden)]
    fn kernel(&self) -> Option<Kernel> {
        None
    }

    /// The single-precision kernel of a mapping with groups or norms, if there is one.
    #[doc(hidden)]
    fn structured(&self) -> Option<StructuredKernel> {
        None
    }

    /// The mapping by single rows in single precision, where it needs no wider ones.
    #[doc(hidden)]
    fn single(&self) -> Option<&dyn Single> {
        None
    }

    /// The sum of every row: 1, but for [`Budget`](crate::Budget).
    fn total(&self, _d: usize) -> f64 {
        1.0
    }
}

/// A row whose entries are handed out by their place.
pub struct LongRow<'a> {
    pub(crate) d: usize,
    pub(crate) z: Scores<'a>,
    /// Probabilities, 0 where an entry takes no part.
    pub(crate) p: &'a dyn Fn(usize) -> f64,
    pub(crate) v: &'a dyn Fn(usize) -> f64,
    /// Whether scores and probabilities are in a narrower type than they are computed in.
    pub(crate) is_rounded: bool,
    /// How the probabilities depend on the scores, if they were rounded.
    pub(crate) law: &'a dyn Fn() -> Option<Law>,
}

impl LongRow<'_> {
    /// Probabilities above 0, and what comes in there.
    pub(crate) fn on_support(&self) -> impl Iterator<Item = (f64, f64)> {
        (0..self.d).map(|i| ((self.p)(i), i)).filter(|(p, _)| *p > 0.0).map(|(p, i)| (p, (self.v)(i)))
    }
}

/// The scores of a row by their place; `None` where an entry takes no part.
pub(crate) type Scores<'a> = &'a dyn Fn(usize) -> Option<f64>;

/// Hands out the entries of a row, one by one.
pub(crate) type Visit<'a> = &'a dyn Fn(&mut dyn FnMut(f64));

/// A mapping that is `argmax <p, z> − γΩ(p)` over the simplex.
pub trait Regularized: Mapping {
    /// The strength γ of the regulariser.
    fn gamma(&self) -> f64;

    /// Ω(p), without γ.
    fn omega(&self, p: &[f64]) -> f64;

    /// The same of entries that `each` hands out one by one, in their order and as often as it is asked to.
    #[doc(hidden)]
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        let mut p = Vec::new();
        each(&mut |entry| p.push(entry));
        self.omega(&p)
    }

    /// `max_Ω(z) = <p, z> − γΩ(p)` at `p = Π(z)`: a smoothed maximum of the scores.
    fn max_row(&self, z: &[f64], p: &[f64]) -> f64 {
        let top = crate::numeric::max(z);
        let below = crate::numeric::sum(z.iter().zip(p).filter(|(_, p)| **p > 0.0).map(|(z, p)| (z - top) * p));
        top * self.total(z.len()) + (below - self.gamma() * self.omega(p))
    }

    /// The Fenchel–Young loss `γΩ(y) + max_Ω(z) − <z, y> ≥ 0` at `p = Π(z)`.
    ///
    /// Written as `<z − max z, p − y> + γ(Ω(y) − Ω(p))`, which is exactly 0 when `p = y`.
    fn loss_row(&self, z: &[f64], p: &[f64], y: &[f64]) -> f64 {
        let top = crate::numeric::max(z);
        let linear = crate::numeric::sum(
            z.iter().zip(p.iter().zip(y)).filter(|(_, (p, y))| p != y).map(|(z, (p, y))| (z - top) * (p - y)),
        );
        (linear + self.gamma() * (self.omega(y) - self.omega(p))).max(0.0)
    }
}

/// A mapping `p_i ∝ w_i·exp(z_i/γ)` that can say log p where p itself would underflow: what a likelihood
/// needs. The weights may depend on z, but are constant around almost every z.
pub trait LogMapping: Send + Sync {
    /// Writes log Π(z) into `out`; −∞ where the probability is 0.
    fn log_forward_row(&self, z: &[f64], out: &mut [f64], scratch: &mut Scratch);

    /// The temperature γ.
    fn temperature(&self) -> f64;

    /// How a probability depends on its score, as [`Mapping::form`].
    #[doc(hidden)]
    fn log_form(&self) -> Option<Form> {
        None
    }
}

/// References and boxes of mappings are mappings, and regularised where what they hold is.
macro_rules! delegate {
    ($($pointer:ty),*) => {$(
impl<M: Mapping + ?Sized> Mapping for $pointer {
    fn name(&self) -> &'static str {
        (**self).name()
    }
    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        (**self).forward_row(z, p, scratch)
    }
    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        (**self).vjp_row(z, p, v, out, scratch)
    }
    fn jvp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        (**self).jvp_row(z, p, v, out, scratch)
    }
    fn parameter_vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) -> Option<f64> {
        (**self).parameter_vjp_row(z, p, v, scratch)
    }
    fn support_row(&self, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Result<Option<f64>> {
        (**self).support_row(z, out, scratch)
    }
    fn support_vjp_row(&self, index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
        (**self).support_vjp_row(index, p, v, out)
    }
    fn regularized(&self) -> Option<&dyn Regularized> {
        (**self).regularized()
    }
    fn logarithmic(&self) -> Option<&dyn LogMapping> {
        (**self).logarithmic()
    }
    fn replace_row(&self, z: &mut [f64], scratch: &mut Scratch) -> bool {
        (**self).replace_row(z, scratch)
    }
    fn form(&self) -> Option<Form> {
        (**self).form()
    }
    fn forward_scattered(&self, z: Scores<'_>, out: &mut [f64]) -> bool {
        (**self).forward_scattered(z, out)
    }
    fn vjp_scattered(&self, z: Scores<'_>, p: &[f64], v: &[f64], out: &mut [f64]) -> bool {
        (**self).vjp_scattered(z, p, v, out)
    }
    fn parameter_vjp_by(&self, row: &LongRow<'_>) -> Option<f64> {
        (**self).parameter_vjp_by(row)
    }
    fn has_neighbours(&self) -> bool {
        (**self).has_neighbours()
    }
    fn reads_scores(&self) -> bool {
        (**self).reads_scores()
    }
    fn kernel(&self) -> Option<Kernel> {
        (**self).kernel()
    }
    fn structured(&self) -> Option<StructuredKernel> {
        (**self).structured()
    }
    fn single(&self) -> Option<&dyn Single> {
        (**self).single()
    }
    fn total(&self, d: usize) -> f64 {
        (**self).total(d)
    }
}
impl<M: Regularized + ?Sized> Regularized for $pointer {
    fn gamma(&self) -> f64 {
        (**self).gamma()
    }
    fn omega(&self, p: &[f64]) -> f64 {
        (**self).omega(p)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        (**self).omega_by(each)
    }
    fn max_row(&self, z: &[f64], p: &[f64]) -> f64 {
        (**self).max_row(z, p)
    }
    fn loss_row(&self, z: &[f64], p: &[f64], y: &[f64]) -> f64 {
        (**self).loss_row(z, p, y)
    }
}
    )*};
}

delegate!(&M, Box<M>);
