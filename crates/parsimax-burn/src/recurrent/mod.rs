//! Recurrent layers, each one operation: a sequence in, a sequence out.
//!
//! A framework that runs an LSTM step by step records dozens of small operations for every word.
//! Here a layer is one operation with a backward pass of its own, for LSTM and GRU, in one or both
//! directions, over sequences of different lengths. What it computes is what `torch.nn.LSTM` and
//! `torch.nn.GRU` compute, and weights saved by those load by name ([`Recurrent::load_torch`]).
//!
//! ```text
//! module.rs     layers, dropout between them, states, weights by torch's names
//!    ▼
//! ops.rs        the operation: dispatch, autodiff, tensors as slices
//!    ▼
//! sequence.rs   forward and backward of a layer on slices; one thread, one share of the rows
//!    ▼
//! plan.rs       who runs when          weights.rs   what the products want
//! ```
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use parsimax_burn::recurrent::RecurrentConfig;
//! let device = Device::default();
//! let encoder = RecurrentConfig::lstm(8, 16).with_layers(2).with_bidirectional(true).init(&device);
//! let words = Tensor::<3>::random([3, 5, 8], Distribution::Default, &device);
//! // Rows of length 5, 2 and 4: what stands behind the end of a row does not matter.
//! let (out, state) = encoder.forward(words, None, Some(&[5, 2, 4]));
//! assert_eq!(out.dims(), [3, 5, 32]);
//! assert_eq!(state.hidden(1).dims(), [3, 32]);
//! ```

mod module;
mod ops;
mod plan;
mod sequence;
mod weights;

pub use module::{Direction, Level, Recurrent, RecurrentConfig, State, Stepper};
pub use ops::{LayerSpec, RecurrentOps};
