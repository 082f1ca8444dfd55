//! Morphological inflection: train, keep, take up again, predict, judge.
//!
//! ```text
//! files ──▶ examples ──▶ Task (vocabularies) ──▶ pairs ──▶ Trainer ──▶ run folder
//!                                                  ▲           │  checkpoint after each epoch, and in between
//!                                                  └── resume ─┘
//! run folders ──▶ Run ──▶ Predictor (an ensemble if there are several) ──▶ predictions ──▶ evaluation
//! ```
//!
//! Everything that happens in training follows from the settings, their seed and how many batches were seen: shuffling
//! and dropout are functions of these, not of a generator's state. So a run that is taken up again goes on bit for bit
//! as if it had never stopped.

mod checkpoint;
mod error;
mod evaluate;
pub mod explain;
mod predict;
mod run;
mod task;
mod train;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use error::TrainError;
pub use evaluate::{Evaluation, evaluate};
pub use predict::{Certificate, Decoder, Prediction, Predictor, Word};
pub use run::Run;
pub use task::Task;
pub use train::{Accuracy, EpochRecord, Observer, Outcome, Progress, Settings, Trainer, accuracy};
