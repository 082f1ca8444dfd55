//! Sparse probability for neural networks: mappings from scores to probabilities that can be
//! *exactly zero*, with exact gradients and convex losses.
//!
//! ```
//! use parsimax::{Entmax, MappingExt, Sparsemax};
//! let z = [1.0f64, 0.8, 0.1];
//! let p = Sparsemax::new().apply(&z)?; // (0.6, 0.4, 0), the last exactly
//! let gradient = Entmax::new(1.3)?.vjp(&z, &[1.0, 0.0, 0.0])?;
//! # assert!(p[2] == 0.0 && gradient[0] > 0.0);
//! # Ok::<(), parsimax::Error>(())
//! ```
//!
//! # The one idea
//!
//! Scores are $z \in \mathbb{R}^d$, probabilities $p$ lie in the simplex $\Delta$, and
//! `$[t]_+ = \max(t, 0)$`. For a convex regulariser $\Omega$ and a strength $\gamma > 0$,
//! `$$\Pi_\Omega(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\Omega(p), \qquad
//! \max_\Omega(z) = \max_{p \in \Delta} \langle p, z\rangle - \gamma\Omega(p).$$`
//! The mapping is the gradient of the smoothed maximum, and the pair brings a convex loss,
//! `$L(z; y) = \gamma\Omega(y) + \max_\Omega(z) - \langle z, y\rangle \ge 0$`, whose gradient is
//! `$\Pi_\Omega(z) - y$`. The support $S$ of $p$ is where it is not zero, the threshold $\tau$ what an
//! entry must exceed to be there. Letters mean the same on every page: α chooses within a family, λ
//! weighs a structure, γ is the temperature.
//!
//! # Where things are
//!
//! | you have | you want | take |
//! |---|---|---|
//! | one row | probabilities, a gradient | [`MappingExt`] on any mapping |
//! | an array, masks, an axis, threads | the same for every row; sparse rows | [`Rows`] |
//! | queries, keys and values | attention with sparse weights | [`Attention`] |
//! | scores and targets | a loss and its gradient | [`loss`] |
//! | a name from a user | a mapping | [`registry`] |
//! | a row to explain | support, τ, entropy, Ω | [`explain()`] |
//! | an Ω of your own | a mapping | [`regularized::Custom`] |
//!
//! # The mappings
//!
//! [`softmax`], [`sparsemax`], [`entmax`] (1.5 and any α > 0), [`fusedmax`], [`oscarmax`] and the
//! [approximation](oscarmax_approx) of its paper, [`sqpnorm`], [`evsoftmax`], [`hourglass`],
//! [`normmax`], [`budget`]: each page has the problem, the closed form, the algorithm and its cost,
//! the Jacobian, the edge cases and the reference. [`registry::MAPPINGS`] is the table of them.
//!
//! # What input may contain
//!
//! `-inf` and a `false` in the mask take an entry out: probability and gradient exactly 0, and nothing
//! else changes. A row without entries is a row of zeros. NaN and `+inf` are an [`Error`] that names row
//! and index, or a row of NaN where you ask for that. Bad parameters are errors at construction.
//! Nothing panics on input.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod attention;
mod batch;
pub mod budget;
mod counted;
mod csr;
pub mod entmax;
mod error;
pub mod evsoftmax;
mod explain;
mod ext;
mod float;
pub mod fusedmax;
pub mod hourglass;
mod law;
pub mod loss;
mod mapping;
pub mod normmax;
mod numeric;
pub mod oscarmax;
pub mod oscarmax_approx;
mod pieces;
mod place;
mod prox;
pub mod registry;
pub mod regularized;
mod rows;
mod separable;
mod single;
pub mod softmax;
pub mod sparsemax;
pub mod sqpnorm;
mod structured;
mod threshold;
mod transpose;
#[cfg(test)]
mod trial;
mod view;

#[doc(hidden)]
pub use parsimax_kernel as kernel;

pub use attention::{Attention, Shape};
pub use budget::Budget;
pub use csr::Csr;
pub use entmax::{Entmax, Entmax15};
pub use error::{Error, Result};
pub use evsoftmax::{EvSoftmax, belief_masses, evidential_weights, posthoc_evidential};
pub use explain::{Explanation, explain};
pub use ext::MappingExt;
pub use float::Float;
pub use fusedmax::Fusedmax;
pub use hourglass::Sparsehourglass;
pub use mapping::{LogMapping, Mapping, Regularized, Scratch, Support};
pub use normmax::Normmax;
pub use oscarmax::Oscarmax;
pub use oscarmax_approx::OscarmaxApprox;
pub use regularized::{Custom, Omega};
pub use rows::Rows;
pub use softmax::Softmax;
pub use sparsemax::Sparsemax;
pub use sqpnorm::SqPnormMax;
pub use view::{View, ViewMut};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
