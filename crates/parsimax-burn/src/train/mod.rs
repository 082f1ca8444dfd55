//! What a training step needs besides the model: threads and an optimiser.
//!
//! On a CPU the flex backend keeps few of its operations busy on more than one core. [`Workers`] cuts
//! the batch instead: each part goes through the whole model, forward and backward, on a thread of its
//! own, and the gradients are added. [`Adam`] reads and writes every parameter once.
//!
//! A binary that trains does well to bring an allocator such as mimalloc and to have it keep what is freed
//! (`MIMALLOC_PURGE_DELAY=-1`): a step frees hundreds of megabytes that the next one asks for again.
//!
//! ```
//! use burn::nn::{Linear, LinearConfig};
//! use burn::tensor::{Device, Distribution, Tensor};
//! use parsimax_burn::train::{AdamConfig, Workers};
//! let device = Device::default().autodiff();
//! let mut model = LinearConfig::new(4, 1).init(&device);
//! let mut adam = AdamConfig::new().init();
//! let workers = Workers::new(2);
//! let loss = |model: &Linear, x: Tensor<2>| model.forward(x).square().sum().div_scalar(8.0);
//! let mut losses = Vec::new();
//! for _ in 0..20 {
//!     let halves = (0..2).map(|_| Tensor::random([4, 4], Distribution::Default, &device)).collect();
//!     let (value, gradients) = workers.gradients(&model, halves, &device, loss);
//!     model = adam.step(0.05, model, gradients);
//!     losses.push(value);
//! }
//! assert!(losses[19] < losses[0]);
//! ```

mod adam;
mod ops;
mod workers;

pub use adam::{Adam, AdamConfig};
pub use ops::{AdamStep, TrainOps};
pub use workers::Workers;
