//! Sparse attention for [Burn](burn): the mappings of [`parsimax`] as differentiable operations on
//! tensors, and the layers and losses that use them.
//!
//! Burn's own attention writes softmax into its code. Here the mapping is a value: every layer that
//! normalises scores takes a [`NormalizerConfig`], and all of them reach the core through one custom
//! operation. On the flex backend the core's kernels read the tensor's own memory and their result
//! becomes the next tensor without a copy; any other backend goes through host memory and gives the
//! same numbers.

// Burn itself prefers flex by now; whoever turns the other backend on knows.
#![cfg_attr(feature = "ndarray", allow(deprecated))]

pub mod attention;
mod config;
pub mod loss;
mod normalizer;
pub mod ops;
mod panics;
pub mod recurrent;
pub mod torch;
pub mod train;
pub mod transformer;

pub use config::NormalizerConfig;
pub use normalizer::{AdaptiveEntmax, Normalizer};
pub use ops::{normalize, normalize_with};
