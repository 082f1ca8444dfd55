//! Losses: Fenchel–Young for every regularised mapping, likelihoods for the others, one batch API.
//!
//! **The Fenchel–Young loss** of a mapping $\Pi = \arg\max_{p \in \Delta} \langle p, z\rangle -
//! \gamma\Omega(p)$ is
//! $$L(z; y) = \gamma\Omega(y) + \max_\Omega(z) - \langle z, y\rangle \ge 0, \qquad
//! \nabla_z L = \Pi(z) - y, \qquad \nabla^2_z L = J_\Pi(z).$$
//! It is convex, differentiable, and 0 exactly where $\Pi(z) = y$. It is the cross-entropy (up to the
//! entropy of $y$) for softmax, the sparsemax loss for sparsemax, the entmax loss for entmax.
//!
//! | loss | of | value for a target $y$ | gradient in $z$ | Hessian–vector product |
//! |---|---|---|---|---|
//! | [`FenchelYoung`] | a [`Regularized`](crate::Regularized) mapping | above | $p - y$ | $Jv$ |
//! | [`PerturbedLog`] | any [`Mapping`](crate::Mapping) | $-\sum_c y_c \log\frac{\varepsilon + p_c}{1 + K\varepsilon}$ | $-J^\top\frac{y}{\varepsilon + p}$ | none |
//! | [`Likelihood`] | a [`LogMapping`](crate::LogMapping) | $-\sum_c y_c \log p_c$ | $(p - y)/\gamma$ | softmax's |
//! | [`modified_huber`] | a binary margin | the sparsemax loss of two classes | | |
//!
//! The last two batch losses also come as a Kullback–Leibler divergence, which is smaller by the
//! entropy of $y$ ([`PerturbedLog::divergence`], [`Likelihood::divergence`]).
//!
//! **Everything around the formula is shared** ([`BatchLoss`]): arrays of any shape and axis, masks,
//! threads, and
//!
//! - *targets* ([`Target`]): a class index, a distribution, or a set of labels per row;
//! - *label smoothing* ε: the target becomes `$(1-\varepsilon)\,y + \varepsilon/d$`, where $d$ counts
//!   the entries that take part;
//! - *class weights* $w$: the row's weight is $W = \sum_c w_c y_c$ and its target $w \odot y / W$, so
//!   its gradient is $W p - w \odot y$: that of a weighted cross-entropy, for every mapping. For a
//!   class target without smoothing this is $w_k$ times the plain loss;
//! - *ignore index*: rows of that class have loss 0 and gradient 0, and their scores are not read;
//! - *reductions* ([`Reduction`]): none, sum, mean.
//!
//! | a row | its loss | its gradient |
//! |---|---|---|
//! | ignored, or of weight 0 | 0 | 0 |
//! | `-inf` or masked entries | as if they were not there | 0 there |
//! | the target has mass on a masked entry | `+inf`, whatever the other scores | 0: the loss is constant in every score that takes part |
//! | NaN or `+inf` in an entry that takes part | an error that names row and index | NaN |
//! | no target: class out of range, no distribution, empty or repeating set | an error that names the row | NaN, or nothing written |
//!
//! Sums over rows run in row order with compensated addition: results have the same bits whatever the
//! number of threads.

mod batch;
mod fenchel_young;
mod huber;
mod likelihood;
mod perturbed;
mod reduction;
mod row;
mod target;
#[cfg(test)]
mod tests;

pub use batch::BatchLoss;
pub use fenchel_young::{FenchelYoung, FenchelYoungRow};
pub use huber::{modified_huber, modified_huber_derivative};
pub use likelihood::{Likelihood, LikelihoodRow};
pub use perturbed::{PerturbedLog, PerturbedLogRow};
pub use reduction::{Loss, Reduction};
pub use row::{LossScratch, RowLoss, RowTarget};
pub use target::Target;
