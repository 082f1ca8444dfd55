//! Keys and values that a decoder has computed already.

use burn::tensor::Tensor;

/// The keys and values of the steps so far, each `[batch, heads, steps, width]`.
#[derive(Debug, Clone, Default)]
pub struct KeyValueCache {
    held: Option<(Tensor<4>, Tensor<4>)>,
}

impl KeyValueCache {
    /// Nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of steps held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.as_ref().map_or(0, |(keys, _)| keys.dims()[2])
    }

    /// Whether nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the steps and returns all of them.
    pub(super) fn extend(&mut self, keys: Tensor<4>, values: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let joined = match self.held.take() {
            Some((k, v)) => (Tensor::cat(vec![k, keys], 2), Tensor::cat(vec![v, values], 2)),
            None => (keys, values),
        };
        self.held = Some(joined.clone());
        joined
    }

    /// What is held, or else what `compute` gives, which is then held: for keys that do not change from step to
    /// step, those of an encoder.
    pub(super) fn get_or(&mut self, compute: impl FnOnce() -> (Tensor<4>, Tensor<4>)) -> (Tensor<4>, Tensor<4>) {
        self.held.get_or_insert_with(compute).clone()
    }

    /// Keeps the sequences of the batch at these places, in this order: what a beam search does between steps.
    pub fn select(&mut self, places: Tensor<1, burn::tensor::Int>) {
        if let Some((k, v)) = self.held.take() {
            self.held = Some((k.select(0, places.clone()), v.select(0, places)));
        }
    }
}
