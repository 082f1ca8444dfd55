//! Models on disk: a folder with `model.json` and the weights as safetensors.
//!
//! The JSON names the weights' file, whose name carries a hash of its content. The weights are written
//! first, then `model.json` replaces the old one in a single rename, then old weights are removed: a
//! reader meets the old model or the new one, never a mixture.

use std::fs;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView, serialize};
use serde::{Deserialize, Serialize};

use crate::{Coefficients, Error, Features, Loss, LossSpec, Result, Rule, Task};

const HEAD: &str = "model.json";

/// A fitted model with everything that is needed to apply it to another file.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// What is known of it besides the numbers.
    pub head: Head,
    /// Weights and bias for the features as they are.
    pub coefficients: Coefficients,
}

/// The part of a model that is written as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The kind of model: always "linear" here.
    pub kind: String,
    /// The version of this format.
    pub format: u32,
    /// The loss.
    pub loss: LossSpec,
    /// What the model predicts.
    pub task: Task,
    /// Which labels are on.
    pub decision: Rule,
    /// The regularisation constant.
    pub l2: f64,
    /// The names of the labels or classes.
    pub labels: Vec<String>,
    /// The columns of the training file that held the labels; empty if the format has none.
    pub label_columns: Vec<String>,
    /// The names of the features.
    pub features: Vec<String>,
    /// How nominal features were read: "one-hot" or "numeric".
    pub nominal: String,
    /// The file of the weights, set by [`Model::save`].
    #[serde(default)]
    pub weights: String,
}

/// The value of "kind" in a linear model's JSON.
pub const KIND: &str = "linear";

/// The kind of the model in a folder, whatever it is.
///
/// # Errors
/// If there is no `model.json` with a kind.
pub fn kind(folder: &Path) -> Result<String> {
    let path = folder.join(HEAD);
    let text = fs::read_to_string(&path).map_err(|error| Error::file(&path, error))?;
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| Error::file(&path, error))?;
    let kind = value.get("kind").and_then(serde_json::Value::as_str);
    kind.map(str::to_owned).ok_or_else(|| Error::file(&path, "not a model: it has no \"kind\""))
}

impl Model {
    /// Builds the loss, for [`Coefficients::probabilities`] and [`Coefficients::decide`].
    ///
    /// # Errors
    /// As [`LossSpec::build`].
    pub fn loss(&self) -> Result<Loss> {
        self.head.loss.build()
    }

    /// The labels of every row that are on.
    ///
    /// # Errors
    /// If the features do not fit.
    pub fn decide(&self, features: &Features) -> Result<Vec<Vec<usize>>> {
        self.coefficients.decide(features, &self.loss()?, self.head.decision)
    }

    /// Writes the model into a folder, which is made if it is not there.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn save(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(|error| Error::file(folder, error))?;
        let c = &self.coefficients;
        let (weights, bias) = (bytes(c.weights()), bytes(c.bias()));
        let view = |shape, data| TensorView::new(Dtype::F64, shape, data).map_err(|error| Error::file(folder, error));
        let tensors =
            [("weights", view(vec![c.features(), c.labels()], &weights)?), ("bias", view(vec![c.labels()], &bias)?)];
        let tensors = serialize(tensors, None).map_err(|error| Error::file(folder, error))?;
        let name = format!("weights-{:016x}.safetensors", hash(&tensors));
        replace(&folder.join(&name), &tensors)?;
        let head = Head { weights: name.clone(), ..self.head.clone() };
        let mut text = serde_json::to_string_pretty(&head).map_err(|error| Error::file(folder, error))?;
        text.push('\n');
        replace(&folder.join(HEAD), text.as_bytes())?;
        remove_other_weights(folder, &name);
        Ok(())
    }

    /// Reads a model from its folder.
    ///
    /// # Errors
    /// If a file is missing, broken, or the model of another kind.
    pub fn load(folder: &Path) -> Result<Self> {
        let found = kind(folder)?;
        let path = folder.join(HEAD);
        if found != KIND {
            return Err(Error::file(&path, format!("a model of kind '{found}', not '{KIND}'")));
        }
        let text = fs::read_to_string(&path).map_err(|error| Error::file(&path, error))?;
        let head: Head = serde_json::from_str(&text).map_err(|error| Error::file(&path, error))?;
        let path = folder.join(&head.weights);
        let content = fs::read(&path).map_err(|error| Error::file(&path, error))?;
        let tensors = SafeTensors::deserialize(&content).map_err(|error| Error::file(&path, error))?;
        let expected = [vec![head.features.len(), head.labels.len()], vec![head.labels.len()]];
        let [weights, bias] = ["weights", "bias"].map(|name| tensor(&path, &tensors, name));
        let ((weight_shape, weights), (bias_shape, bias)) = (weights?, bias?);
        if [weight_shape, bias_shape] != expected {
            return Err(Error::file(&path, format!("the shapes do not fit {HEAD}")));
        }
        Ok(Self { coefficients: Coefficients::from_parts(weights, &bias)?, head })
    }
}

fn tensor(path: &Path, tensors: &SafeTensors<'_>, name: &str) -> Result<(Vec<usize>, Vec<f64>)> {
    let view = tensors.tensor(name).map_err(|error| Error::file(path, error))?;
    if view.dtype() != Dtype::F64 {
        return Err(Error::file(path, format!("{name} must be F64, got {:?}", view.dtype())));
    }
    let number = |bytes: &[u8]| f64::from_le_bytes(std::array::from_fn(|i| bytes[i]));
    Ok((view.shape().to_vec(), view.data().chunks_exact(8).map(number).collect()))
}

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// FNV-1a: enough to tell the weights of two models apart.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Writes beside the file and renames, so that no reader meets half of it.
fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|error| {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        Error::file(path, error)
    })
}

/// Weights that no `model.json` names any more; if they cannot be removed they only take space.
fn remove_other_weights(folder: &Path, keep: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("weights-") && name.ends_with(".safetensors") && name != keep {
            let _ = fs::remove_file(entry.path());
        }
    }
}
