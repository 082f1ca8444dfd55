//! The experiments of the sparsemax paper, as functions of data and seeds.

pub mod multilabel;
pub mod proportions;
