//! The second part of every block: two layers on each position by itself.

use super::{Activation, TransformerConfig};
use burn::nn::{Dropout, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, activation};

/// The two layers of a block.
pub(super) fn layers(config: &TransformerConfig, device: &Device) -> (Linear, Linear) {
    let (width, hidden) = (config.d_model, config.d_hidden);
    (LinearConfig::new(width, hidden).init(device), LinearConfig::new(hidden, width).init(device))
}

/// `linear2(activation(linear1(x)))`
pub(super) fn forward(
    (linear1, linear2): (&Linear, &Linear),
    function: Activation,
    dropout: &Dropout,
    x: Tensor<3>,
) -> Tensor<3> {
    let hidden = linear1.forward(x);
    let hidden = match function {
        Activation::Relu => activation::relu(hidden),
        Activation::Gelu => activation::gelu(hidden),
    };
    linear2.forward(dropout.forward(hidden))
}
