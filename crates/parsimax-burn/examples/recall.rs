//! A model that learns where to look: a query names one of eight tokens, and attention by 1.5-entmax finds it
//! among them and reads its value. `cargo run --release -p parsimax-burn --example recall`

use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::{Distribution, Int};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::attention::{AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};
use parsimax_burn::loss::SparseLossConfig;

#[derive(Module, Debug)]
struct Recall {
    names: nn::Embedding,
    values: nn::Embedding,
    attention: MultiHeadAttention,
    out: nn::Linear,
}

impl Recall {
    /// Names and values `[batch, 8]`, queries `[batch, 1]`: scores of the values, and the weights.
    fn forward(&self, names: Tensor<2, Int>, values: Tensor<2, Int>, query: Tensor<2, Int>) -> (Tensor<2>, Tensor<4>) {
        let keys = self.names.forward(names);
        let read = AttentionInput::new(self.names.forward(query), keys.clone(), keys + self.values.forward(values));
        let seen = self.attention.forward(read.with_weights());
        (self.out.forward(seen.context.squeeze_dim(1)), seen.weights.unwrap())
    }
}

fn main() {
    let device = Device::flex().autodiff();
    device.seed(1);
    let mut model = Recall {
        names: nn::EmbeddingConfig::new(16, 32).init(&device),
        values: nn::EmbeddingConfig::new(10, 32).init(&device),
        attention: MultiHeadAttentionConfig::new(32, 1).with_normalizer(NormalizerConfig::entmax15()).init(&device),
        out: nn::LinearConfig::new(32, 10).init(&device),
    };
    let loss = SparseLossConfig::new(NormalizerConfig::entmax15()).init();
    let mut adam = AdamConfig::new().init();
    for step in 0..=600 {
        let keys = Tensor::<2>::random([64, 16], Distribution::Default, &device);
        let names = keys.argsort(1).slice([0..64, 0..8]); // eight different names of sixteen
        let values = Tensor::<2>::random([64, 8], Distribution::Uniform(0.0, 10.0), &device).int();
        let (query, answer) =
            (names.clone().slice([0..64, 3..4]), values.clone().slice([0..64, 3..4]).squeeze_dim::<1>(1));
        let (scores, weights) = model.forward(names, values, query);
        let error = loss.forward(scores.clone(), answer.clone());
        if step % 100 == 0 {
            let right = scores.argmax(1).squeeze_dim::<1>(1).equal(answer).float().mean().into_scalar::<f32>();
            let support = weights.greater_elem(0.0).float().sum().into_scalar::<f32>() / 64.0;
            let error = error.clone().into_scalar::<f32>();
            println!("step {step:3}: loss {error:.4}, right {right:.2}, tokens looked at {support:.1} of 8");
        }
        let gradients = GradientsParams::from_grads(error.backward(), &model);
        model = adam.step(0.005, model, gradients);
    }
}
