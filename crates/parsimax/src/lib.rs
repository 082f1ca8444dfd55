//! Sparse probability for neural networks: mappings from scores to probabilities that can be
//! *exactly zero*, with exact gradients and convex losses.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod budget;
mod entmax;
mod error;
mod evsoftmax;
mod explain;
mod ext;
mod float;
mod fusedmax;
mod hourglass;
pub mod loss;
mod mapping;
mod normmax;
mod numeric;
mod oscarmax;
mod oscarmax_approx;
mod prox;
pub mod registry;
mod regularized;
mod rows;
mod separable;
mod softmax;
mod sparsemax;
mod sqpnorm;
mod threshold;
#[cfg(test)]
mod trial;
mod view;

pub use budget::Budget;
pub use entmax::{Entmax, Entmax15};
pub use error::{Error, Result};
pub use evsoftmax::{EvSoftmax, belief_masses, evidential_weights, posthoc_evidential};
pub use explain::{Explanation, explain};
pub use ext::MappingExt;
pub use float::Float;
pub use fusedmax::Fusedmax;
pub use hourglass::Sparsehourglass;
pub use mapping::{Mapping, Regularized, Scratch, Support};
pub use normmax::Normmax;
pub use oscarmax::Oscarmax;
pub use oscarmax_approx::OscarmaxApprox;
pub use regularized::{Custom, Omega};
pub use rows::{Csr, Rows};
pub use softmax::Softmax;
pub use sparsemax::Sparsemax;
pub use sqpnorm::SqPnormMax;
pub use view::{View, ViewMut};

/// The example of the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
