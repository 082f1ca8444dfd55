//! Linear models with sparse posteriors.
//!
//! Scores $z = W^\top x + b$ meet any Fenchel–Young loss of the core, or one logistic loss per label, and
//! `$$\tfrac{\lambda}{2}\lVert W\rVert^2 + \tfrac1n \textstyle\sum_i L(z_i; y_i)$$` is minimised by L-BFGS; the bias is
//! free of the penalty. Targets are sets of labels, classes, or distributions ([`Targets`]); features are
//! dense or sparse ([`Features`]). [`fit`] is one model, [`cross_validate`] a grid of them on threads,
//! [`Rule`] turns scores into labels, [`metrics`] judges, [`Model`] is what is kept on disk, and
//! [`study`] holds the two experiments of the sparsemax paper (Martins & Astudillo 2016, §4.1 and §4.2).
//!
//! Everything is deterministic: the same data and seeds give the same bits for any number of threads.

mod error;
mod features;
mod fit;
mod loss;
pub mod metrics;
mod minimize;
mod model;
mod rule;
mod search;
mod standard;
pub mod study;
mod targets;

pub use error::{Error, Result};
pub use features::Features;
pub use fit::{Coefficients, Settings, fit};
pub use loss::{LOGISTIC, Loss, LossSpec, names as loss_names};
pub use minimize::{Reason, Report, Stop, minimize};
pub use model::{Head, KIND, Model, kind};
pub use rule::Rule;
pub use search::{Cell, Grid, Metric, best, cross_validate, folds};
pub use standard::Standard;
pub use targets::{Targets, Task};
