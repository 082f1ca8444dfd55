//! The mappings of [`parsimax`] for [candle](candle_core): scores to probabilities that can be exactly
//! zero, with the gradient in the scores and in α, and the losses that go with them.
//!
//! A [`Normalizer`] names a mapping of the core's registry and its parameters. The core reads the
//! tensors where they lie, whatever their strides, and its result becomes the next tensor without a
//! copy. Only the CPU is served; another device is an error that says so.
//!
//! ```
//! use candle_core::{Device, Tensor, Var};
//! use parsimax_candle::Normalizer;
//! let scores = Var::new(&[[1.0f32, 0.5, 0.0]], &Device::Cpu)?;
//! let p = Normalizer::named("sparsemax")?.forward(&scores, 1)?;
//! assert_eq!(p.to_vec2::<f32>()?, [[0.75, 0.25, 0.0]]);
//! // The support is {0, 1}; its Jacobian takes (1, 0, 0) to (½, −½, 0).
//! let first = (p * Tensor::new(&[1.0f32, 0.0, 0.0], &Device::Cpu)?.unsqueeze(0)?)?.sum_all()?;
//! let slope = first.backward()?.get(&scores).expect("tracked").to_vec2::<f32>()?;
//! assert_eq!(slope, [[0.5, -0.5, 0.0]]);
//! # Ok::<(), candle_core::Error>(())
//! ```
//!
//! An entry of `−inf` takes no part: its probability and its gradient are 0. A row of nothing else is
//! a row of zeros; a row that holds NaN or `+inf` becomes NaN.

mod array;
mod loss;
mod map;

use candle_core::{D, Error, Result, Tensor, shape::Dim};
pub use parsimax::loss::Reduction;
pub use parsimax::registry::Options;
use parsimax::{Mapping, registry};

/// A mapping and its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalizer {
    name: &'static str,
    options: Options,
}

/// What the core says, as an error of candle.
fn refuse(error: parsimax::Error) -> Error {
    Error::Msg(error.to_string()).bt()
}

impl Normalizer {
    /// A mapping of the registry with its default parameters: `"softmax"`, `"sparsemax"`, `"entmax15"`,
    /// `"entmax"`, `"fusedmax"` and so on.
    ///
    /// # Errors
    /// If the registry has no such name.
    pub fn named(name: &str) -> Result<Normalizer> {
        Normalizer::with_options(name, Options::default())
    }

    /// A mapping with parameters.
    ///
    /// # Errors
    /// If the name is unknown, an option has no meaning for the mapping, or a value is out of range.
    pub fn with_options(name: &str, options: Options) -> Result<Normalizer> {
        registry::build(name, &options).map_err(refuse)?;
        Ok(Normalizer { name: registry::find(name).map_err(refuse)?.name, options })
    }

    /// α-entmax.
    ///
    /// # Errors
    /// If α is out of range.
    pub fn entmax(alpha: f64) -> Result<Normalizer> {
        Normalizer::with_options("entmax", Options { alpha: Some(alpha), ..Options::default() })
    }

    /// The mapping's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    fn build(&self) -> Result<Box<dyn Mapping>> {
        registry::build(self.name, &self.options).map_err(refuse)
    }

    /// The mapping with another value of its shape parameter: α, λ or p.
    fn build_with(&self, value: f64) -> Result<Box<dyn Mapping>> {
        let mut options = self.options;
        match self.name {
            "fusedmax" | "oscarmax" | "oscarmax-approx" => options.lambda = Some(value),
            "sq-pnorm-max" => options.p = Some(value),
            _ => options.alpha = Some(value),
        }
        registry::build(self.name, &options).map_err(refuse)
    }

    /// Probabilities of every row along `dim`, with the gradient in the scores.
    ///
    /// # Errors
    /// If there is no such axis, the numbers are not floats, or the tensor is not on the CPU.
    pub fn forward<I: Dim>(&self, scores: &Tensor, dim: I) -> Result<Tensor> {
        let axis = dim.to_index(scores.shape(), self.name)?;
        array::on_cpu(self.name, scores)?;
        scores.apply_op1(map::Map { normalizer: *self, axis })
    }

    /// The same with the shape parameter (α of entmax and normmax, λ of fusedmax and oscarmax, p of
    /// sq-pnorm-max) from a tensor, which gets its gradient. It is one number, or has the scores'
    /// rank: 1 along `dim`, the scores' length along some neighbouring axes and 1 along the others, as
    /// `[1, heads, 1, 1]` for one α a head.
    ///
    /// # Errors
    /// As [`forward`](Normalizer::forward); also if the parameter does not fit, is out of range, or
    /// the mapping has none.
    pub fn forward_with<I: Dim>(&self, scores: &Tensor, parameter: &Tensor, dim: I) -> Result<Tensor> {
        let axis = dim.to_index(scores.shape(), self.name)?;
        array::on_cpu(self.name, scores)?;
        array::on_cpu(self.name, parameter)?;
        scores.apply_op2(parameter, map::MapWith { normalizer: *self, axis })
    }

    /// The Fenchel–Young loss of the mapping against class indices, one for each row along the last
    /// axis (an integer tensor of the scores' other axes), with the gradient in the scores. Rows whose
    /// class is `ignore` do not count. With `Reduction::None` the losses of the rows come in the
    /// targets' shape, otherwise one number. No tensor of probabilities is built.
    ///
    /// # Errors
    /// If shapes do not fit, a class is out of range, a score is NaN or `+inf`, or the mapping has no
    /// such loss.
    pub fn loss(&self, scores: &Tensor, targets: &Tensor, ignore: Option<i64>, reduction: Reduction) -> Result<Tensor> {
        let axis = D::Minus1.to_index(scores.shape(), self.name)?;
        array::on_cpu(self.name, scores)?;
        array::on_cpu(self.name, targets)?;
        if targets.dims() != &scores.dims()[..axis] {
            candle_core::bail!(
                "{}: the targets of scores {:?} have shape {:?}, not {:?}",
                self.name,
                scores.dims(),
                &scores.dims()[..axis],
                targets.dims()
            );
        }
        loss::run(*self, scores, targets, ignore, reduction)
    }
}
