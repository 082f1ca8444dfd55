//! A model that learns where to look: eight tokens have a name and a value each, and attention by 1.5-entmax finds the
//! one that the query names and reads its value. `cargo run --release -p parsimax-burn --example recall`

use burn::optim::{AdamConfig, GradientsParams};
use burn::prelude::*;
use burn::tensor::Distribution;
use parsimax_burn::{NormalizerConfig, attention::*, loss::SparseLossConfig};

#[derive(Module, Debug)]
struct Recall {
    names: nn::Embedding,
    values: nn::Embedding,
    attention: GlobalAttention,
    output: nn::Linear,
}

fn main() {
    let device = Device::flex().autodiff();
    device.seed(1);
    let mut model = Recall {
        names: nn::EmbeddingConfig::new(16, 32).init(&device),
        values: nn::EmbeddingConfig::new(10, 32).init(&device),
        attention: GlobalAttentionConfig::new(32, 32).with_normalizer(NormalizerConfig::entmax15()).init(&device),
        output: nn::LinearConfig::new(32, 10).init(&device),
    };
    let (loss, mut adam) = (SparseLossConfig::new(NormalizerConfig::entmax15()).init(), AdamConfig::new().init());
    for step in 0..=600 {
        // Eight different names of sixteen; the first is asked for, and attention knows no places.
        let names = Tensor::<2>::random([64, 16], Distribution::Default, &device).argsort(1).narrow(1, 0, 8);
        let values = Tensor::<2>::random([64, 8], Distribution::Uniform(0.0, 10.0), &device).int();
        let names = model.names.forward(names);
        let tokens = model.attention.keys(names.clone() + model.values.forward(values.clone()), None);
        let (read, weights) = model.attention.forward(names.narrow(1, 0, 1), &tokens);
        let error = loss.forward(model.output.forward(read), values.narrow(1, 0, 1));
        if step % 100 == 0 {
            let seen = weights.greater_elem(0.0).float().sum().into_scalar::<f32>() / 64.0;
            println!("step {step:3}: loss {:.4}, tokens seen {seen:.1} of 8", error.clone().into_scalar::<f32>());
        }
        let gradients = GradientsParams::from_grads(error.backward(), &model);
        model = adam.step(0.005, model, gradients);
    }
}
