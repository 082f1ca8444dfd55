//! Weights that torch saved, into the layers here.
//!
//! | torch | here |
//! |---|---|
//! | `nn.MultiheadAttention` | [`MultiHeadAttention`](crate::attention::MultiHeadAttention) |
//! | `nn.TransformerEncoderLayer`, `nn.TransformerEncoder` | [`transformer`](crate::transformer) |
//! | `nn.TransformerDecoderLayer`, `nn.TransformerDecoder` | [`transformer`](crate::transformer) |
//! | `nn.Linear`, `nn.LayerNorm`, `nn.Embedding` | those of Burn |
//!
//! Names are torch's with two exceptions that are made good on the way: the packed `in_proj_weight` and
//! `in_proj_bias` of attention are three projections here, `query`, `key` and `value`; and Burn keeps the
//! matrix of a linear layer transposed.

use burn::module::Module;
use burn::store::{
    FloatCastAdapter, ModuleAdapter, ModuleSnapshot, ModuleStore, PyTorchToBurnAdapter, SafetensorsStore, bridge,
    burn_pack,
};
use burn::tensor::TensorData;
use std::fmt;
use std::path::{Path, PathBuf};

/// Why weights could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read as safetensors.
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The file and the module are not of one kind.
    Mismatch {
        /// The file.
        path: PathBuf,
        /// Parameters that the file does not have.
        missing: Vec<String>,
        /// Tensors that the module does not have.
        unused: Vec<String>,
        /// Tensors of another shape or type.
        wrong: Vec<String>,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, problem } => write!(f, "{}: {problem}", path.display()),
            Self::Mismatch { path, missing, unused, wrong } => {
                write!(f, "{}: the weights do not fit the module", path.display())?;
                for (what, names) in [("missing", missing), ("not used", unused), ("wrong", wrong)] {
                    if !names.is_empty() {
                        write!(f, "; {what}: {}", names.join(", "))?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Loads a state dictionary of torch, saved as safetensors, into a module. Every tensor must find its place and
/// every parameter its tensor, but for the learned α of a normaliser, which torch's layers do not have.
///
/// # Errors
/// If the file cannot be read, or does not fit the module. The module may then hold some of the weights.
pub fn load<M: Module>(module: &mut M, path: impl AsRef<Path>) -> Result<(), LoadError> {
    let path = path.as_ref();
    let file = |problem: String| LoadError::File { path: path.into(), problem };
    let mut store = SafetensorsStore::from_file(path);
    let tensors = store.get_all_tensors().map_err(|error| file(error.to_string()))?;
    let mut ours = Vec::new();
    for (name, tensor) in tensors {
        let data = bridge::to_data(tensor).map_err(|error| file(format!("{name}: {error}")))?;
        ours.extend(renamed(name, data).into_iter().map(|(name, data)| bridge::from_data(data, name, None)));
    }
    let own = module.collect(None, None, false);
    let dtype = own.iter().map(|tensor| tensor.dtype).find(burn::tensor::DType::is_float);
    let adapter: Box<dyn ModuleAdapter> = match dtype {
        Some(dtype) => Box::new(PyTorchToBurnAdapter.chain(FloatCastAdapter::to(dtype))),
        None => Box::new(PyTorchToBurnAdapter),
    };
    let result = module.apply(ours, None, Some(adapter), false);
    let missing: Vec<String> =
        result.missing.into_iter().map(|(name, _)| name).filter(|name| !is_alpha(name)).collect();
    let wrong: Vec<String> = result.errors.iter().map(ToString::to_string).collect();
    if missing.is_empty() && wrong.is_empty() && result.unused.is_empty() {
        return Ok(());
    }
    Err(LoadError::Mismatch { path: path.into(), missing, unused: result.unused, wrong })
}

/// A tensor of a file of torch's, by name: what the loader uses, for inputs and outputs beside weights.
///
/// # Errors
/// If the file cannot be read or has no tensor of that name.
pub fn tensor(path: impl AsRef<Path>, name: &str) -> Result<TensorData, LoadError> {
    let path = path.as_ref();
    let file = |problem: String| LoadError::File { path: path.into(), problem };
    let mut store = SafetensorsStore::from_file(path);
    let found = store.get_tensor(name).map_err(|error| file(error.to_string()))?;
    let tensor: &burn_pack::Tensor = found.ok_or_else(|| file(format!("no tensor '{name}'")))?;
    bridge::to_data(tensor).map_err(|error| file(format!("{name}: {error}")))
}

fn is_alpha(name: &str) -> bool {
    name == "adaptive.a" || name.ends_with("normalizer.adaptive.a")
}

const PARTS: [&str; 3] = ["query", "key", "value"];

/// The tensor under our name; a packed one in its three parts.
fn renamed(name: &str, data: TensorData) -> Vec<(String, TensorData)> {
    let (prefix, last) = name.rsplit_once('.').map_or(("", name), |(prefix, last)| (prefix, last));
    let under = |own: String| if prefix.is_empty() { own } else { format!("{prefix}.{own}") };
    let single = |own: &str, data| vec![(under(own.into()), data)];
    match last {
        "in_proj_weight" => thirds(&data, "weight").into_iter().map(|(name, data)| (under(name), data)).collect(),
        "in_proj_bias" => thirds(&data, "bias").into_iter().map(|(name, data)| (under(name), data)).collect(),
        "q_proj_weight" => single("query.weight", data),
        "k_proj_weight" => single("key.weight", data),
        "v_proj_weight" => single("value.weight", data),
        _ => vec![(name.into(), data)],
    }
}

/// The three parts of a tensor along its first axis.
fn thirds(data: &TensorData, what: &str) -> Vec<(String, TensorData)> {
    let mut shape = data.shape().to_vec();
    shape[0] /= 3;
    let bytes = data.as_bytes();
    let part = bytes.len() / 3;
    let cut =
        |i: usize| TensorData::from_bytes_vec(bytes[i * part..(i + 1) * part].to_vec(), shape.clone(), data.dtype());
    (0..3).map(|i| (format!("{}.{what}", PARTS[i]), cut(i))).collect()
}
