//! Morphological inflection: train, keep, take up again.
//!
//! ```text
//! files ──▶ examples ──▶ Task (vocabularies) ──▶ pairs ──▶ Trainer ──▶ run folder
//!                                                  ▲           │  checkpoint after each epoch, and in between
//!                                                  └── resume ─┘
//! ```
//!
//! Everything that happens in training follows from the settings, their seed and how many batches were seen: shuffling
//! and dropout are functions of these, not of a generator's state. So a run that is taken up again goes on bit for bit
//! as if it had never stopped.

mod checkpoint;
mod error;
pub mod explain;
mod run;
mod task;
mod train;

pub use checkpoint::{Checkpoint, CheckpointError};
pub use error::TrainError;
pub use run::Run;
pub use task::Task;
pub use train::{Accuracy, EpochRecord, Observer, Outcome, Progress, Settings, Trainer, accuracy};
