//! Why a run could not go on.

use super::checkpoint::CheckpointError;
use crate::decode::DecodeError;
use std::fmt;
use std::path::PathBuf;

/// Why a run could not go on.
#[derive(Debug)]
#[non_exhaustive]
pub enum TrainError {
    /// The settings make no sense, or scores are no longer finite.
    Model(parsimax::Error),
    /// A file of the run cannot be written or read.
    Checkpoint(CheckpointError),
    /// Decoding failed.
    Decode(DecodeError),
    /// Examples that the run keeps cannot be read.
    Data(parsimax_data::Error),
    /// Nothing to learn from.
    NoData(&'static str),
    /// The run has no best model yet: its first epoch is not over.
    TooEarly(PathBuf),
    /// Two runs that should decide together do not write the same characters.
    Strangers(PathBuf, PathBuf),
}

impl fmt::Display for TrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(error) => write!(f, "{error}"),
            Self::Checkpoint(error) => write!(f, "{error}"),
            Self::Decode(error) => write!(f, "{error}"),
            Self::Data(error) => write!(f, "{error}"),
            Self::NoData(what) => write!(f, "train: {what}"),
            Self::TooEarly(folder) => {
                write!(f, "{}: there is no model yet, because the run's first epoch is not over", folder.display())
            }
            Self::Strangers(a, b) => {
                let (a, b) = (a.display(), b.display());
                write!(f, "{a} and {b} do not write the same characters: only runs on the same words can be averaged")
            }
        }
    }
}

impl std::error::Error for TrainError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Model(error) => Some(error),
            Self::Checkpoint(error) => Some(error),
            Self::Decode(error) => Some(error),
            Self::Data(error) => Some(error),
            Self::NoData(_) | Self::TooEarly(_) | Self::Strangers(..) => None,
        }
    }
}

impl From<parsimax::Error> for TrainError {
    fn from(error: parsimax::Error) -> Self {
        Self::Model(error)
    }
}

impl From<CheckpointError> for TrainError {
    fn from(error: CheckpointError) -> Self {
        Self::Checkpoint(error)
    }
}

impl From<DecodeError> for TrainError {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<parsimax_data::Error> for TrainError {
    fn from(error: parsimax_data::Error) -> Self {
        Self::Data(error)
    }
}
