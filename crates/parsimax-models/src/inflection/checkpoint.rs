//! What a run has learnt so far, in one file that is either whole or not there.
//!
//! A safetensors file: the parameters by name, the optimiser's memory, and in its header everything else as JSON, with
//! a checksum over all of it. The same contents are always the same bytes. It is written beside its place, flushed, and moved there, so that whoever reads it sees
//! the last whole one, whatever happened.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Named matrices and whatever belongs to them.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Name, shape and numbers of each tensor.
    pub tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
    /// JSON by key.
    pub notes: BTreeMap<String, String>,
}

/// Why a checkpoint could not be written or read.
#[derive(Debug)]
#[non_exhaustive]
pub enum CheckpointError {
    /// The system would not let us.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// It is there, but not a whole checkpoint of ours.
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Broken { path, what } => write!(f, "{}: {what}", path.display()),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Broken { .. } => None,
        }
    }
}

/// The key of our part of the header. It is one string, because the header has no order of its own.
const HEADER: &str = "parsimax";

/// Our part of the header.
#[derive(Serialize, Deserialize)]
struct Header {
    crc32: String,
    notes: BTreeMap<String, String>,
}

/// Over the names and bytes of tensors in the order of their names, and over the notes.
fn checksum(mut tensors: Vec<(&str, &[u8])>, notes: &BTreeMap<String, String>) -> String {
    tensors.sort_by_key(|(name, _)| *name);
    let notes = notes.iter().map(|(key, note)| (key.as_str(), note.as_bytes()));
    let mut hasher = crc32fast::Hasher::new();
    for (name, bytes) in tensors.into_iter().chain(notes) {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    format!("{:08x}", hasher.finalize())
}

/// Writes a file so that it is whole or not there: beside its place, flushed, moved.
///
/// # Errors
/// What the system says; nothing is left behind then.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let io = |error| CheckpointError::Io { path: path.to_owned(), error };
    let mut beside = path.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    });
    written.map_err(|error| {
        // The error that matters is the first one.
        let _ = fs::remove_file(&beside);
        io(error)
    })?;
    // The folder's entry is flushed too, where the system knows how.
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

impl Checkpoint {
    /// Writes it.
    ///
    /// # Errors
    /// What the system says, a full disk for instance; the file that was there before is untouched then.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let broken = |what: String| CheckpointError::Broken { path: path.to_owned(), what };
        let bytes: Vec<Vec<u8>> =
            self.tensors.iter().map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
        let named: Vec<(&str, &[u8])> =
            self.tensors.iter().zip(&bytes).map(|((name, _, _), bytes)| (name.as_str(), &bytes[..])).collect();
        let header = Header { crc32: checksum(named, &self.notes), notes: self.notes.clone() };
        let header = serde_json::to_string(&header).map_err(|error| broken(error.to_string()))?;
        let notes = HashMap::from([(HEADER.to_owned(), header)]);
        let views = self.tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
            TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.as_str(), view))
        });
        let views: Vec<_> = views.collect::<Result<_, _>>().map_err(|error| broken(error.to_string()))?;
        let file = safetensors::serialize(views, Some(notes)).map_err(|error| broken(error.to_string()))?;
        write_whole(path, &file)
    }

    /// Reads one.
    ///
    /// # Errors
    /// If it cannot be read, is no safetensors file, or its numbers are not those that were written.
    pub fn read(path: &Path) -> Result<Self, CheckpointError> {
        let broken = |what: String| CheckpointError::Broken { path: path.to_owned(), what };
        let bytes = fs::read(path).map_err(|error| CheckpointError::Io { path: path.to_owned(), error })?;
        let not_whole = |error: safetensors::SafeTensorError| broken(format!("not a whole checkpoint: {error}"));
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(not_whole)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(not_whole)?;
        let foreign = || broken("not a checkpoint of parsimax: its header does not say so".to_owned());
        let header = header.metadata().as_ref().and_then(|metadata| metadata.get(HEADER)).ok_or_else(foreign)?;
        let damaged = || broken("damaged: its contents do not match their checksum".to_owned());
        let Header { crc32, notes } = serde_json::from_str(header).map_err(|_| damaged())?;
        let views = tensors.tensors();
        if crc32 != checksum(views.iter().map(|(name, view)| (name.as_str(), view.data())).collect(), &notes) {
            return Err(damaged());
        }
        let mut tensors = Vec::with_capacity(views.len());
        for (name, view) in &views {
            if view.dtype() != Dtype::F32 {
                return Err(broken(format!("tensor '{name}' is {:?}; expected F32", view.dtype())));
            }
            let values = view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
            tensors.push((name.clone(), view.shape().to_vec(), values));
        }
        tensors.sort_by(|a: &(String, _, _), b| a.0.cmp(&b.0));
        Ok(Self { tensors, notes })
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, key: &str, value: &impl Serialize) {
        let json = serde_json::to_string(value).expect("plain data has a JSON form");
        self.notes.insert(key.to_owned(), json);
    }

    /// A note of a file.
    pub(crate) fn noted<T: DeserializeOwned>(&self, path: &Path, key: &str) -> Result<T, CheckpointError> {
        let broken = |what: String| CheckpointError::Broken { path: path.to_owned(), what };
        let json = self.notes.get(key).ok_or_else(|| broken(format!("not a checkpoint of a run: no '{key}'")))?;
        serde_json::from_str(json).map_err(|error| broken(format!("'{key}' cannot be read: {error}")))
    }

    /// The numbers of a tensor of a known length.
    pub(crate) fn numbers(&self, path: &Path, name: &str, count: usize) -> Result<&[f32], CheckpointError> {
        let found = self.tensors.iter().find(|(n, _, values)| n == name && values.len() == count);
        found.map(|(_, _, values)| &values[..]).ok_or_else(|| {
            let what = match self.tensors.iter().find(|(n, _, _)| n == name) {
                None => format!("does not fit its settings: there is no '{name}'"),
                Some((_, shape, _)) => {
                    format!("does not fit its settings: '{name}' is {shape:?}; expected {count} numbers")
                }
            };
            CheckpointError::Broken { path: path.to_owned(), what }
        })
    }
}
