//! Burn's ndarray backend beside flex: it has none of this crate's own code and goes through host memory, as any
//! other backend would. `cargo test -p parsimax-burn --features ndarray --test other_backend`
#![cfg(feature = "ndarray")]

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use parsimax::registry;
use parsimax_burn::loss::SparseLossConfig;
use parsimax_burn::recurrent::RecurrentConfig;
use parsimax_burn::train::{AdamConfig, Workers};
use parsimax_burn::{NormalizerConfig, normalize, normalize_with};

fn random<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| 4.0 * rng.f32() - 2.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("single precision")
}

/// What `work` gives on either backend; the second is flex.
#[expect(deprecated, reason = "Burn recommends flex, and the other backend is what is wanted here")]
fn both<R>(work: impl Fn(&Device) -> R) -> [R; 2] {
    [Device::ndarray(), Device::flex()].map(|device| work(&device.autodiff()))
}

fn close(got: &[Vec<f32>], want: &[Vec<f32>], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (got, want) in got.iter().zip(want) {
        assert_eq!(got.len(), want.len(), "{what}");
        // The products of the layers around run in another order there.
        let fits = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * (1.0 + b.abs());
        assert!(got.iter().zip(want).all(fits), "{what}: {got:?} for {want:?}");
    }
}

#[test]
fn every_mapping_has_the_same_bits() {
    for name in registry::names() {
        let [got, want] = both(|device| {
            let scores = random(1, [2, 3, 4], device).require_grad();
            let mask = TensorData::new(vec![true, false, true, true, true, true, false, true], [2, 1, 4]);
            let mask = Tensor::<3, Bool>::from_data(mask, device);
            let p = normalize(scores.clone(), 2, Some(mask), &NormalizerConfig::named(name).unwrap());
            let gradients = (p.clone() * random(2, [2, 3, 4], device)).sum().backward();
            [values(p), values(scores.grad(&gradients).unwrap())]
        });
        assert_eq!(got, want, "{name}");
    }
}

#[test]
fn so_has_a_parameter() {
    let [got, want] = both(|device| {
        let scores = random(1, [2, 3, 4], device).require_grad();
        let alpha = Tensor::<3>::from_data([[[1.2f32], [1.5], [1.9]]], device).require_grad();
        let p = normalize_with(scores.clone(), alpha.clone(), 2, None, &NormalizerConfig::entmax(1.5));
        let gradients = (p.clone() * random(2, [2, 3, 4], device)).sum().backward();
        [values(p), values(scores.grad(&gradients).unwrap()), values(alpha.grad(&gradients).unwrap())]
    });
    assert_eq!(got, want);
}

#[test]
fn losses_are_the_same() {
    let soft = TensorData::new(vec![0.5f32, 0.5, 0.0, 0.0, 0.0, 0.25, 0.25, 0.5, 1.0, 0.0, 0.0, 0.0], [3, 4]);
    for config in [NormalizerConfig::softmax(), NormalizerConfig::sparsemax(), NormalizerConfig::entmax15()] {
        let loss = SparseLossConfig::new(config.clone()).init();
        let [got, want] = both(|device| {
            let scores = random(3, [3, 4], device).require_grad();
            let classes = Tensor::<1, Int>::from_data([2, 0, 1], device);
            let value = loss.forward(scores.clone(), classes);
            let value = value + loss.forward_soft(scores.clone(), Tensor::from_data(soft.clone(), device));
            let gradients = value.clone().backward();
            vec![values(value), values(scores.grad(&gradients).unwrap())]
        });
        close(&got, &want, &format!("{config:?}"));
    }
}

#[test]
fn recurrent_layers_are_the_same() {
    for config in [RecurrentConfig::lstm(3, 4), RecurrentConfig::gru(3, 4)] {
        let flex = config.init(&Device::flex().autodiff());
        let [got, want] = both(|device| {
            let (layer, x) = (flex.clone().fork(device), random(4, [2, 5, 3], device).require_grad());
            let out = layer.outputs(x.clone(), None, None);
            let gradients = (out.clone() * random(5, [2, 5, 4], device)).sum().backward();
            vec![values(out), values(x.grad(&gradients).unwrap())]
        });
        close(&got, &want, &format!("{config:?}"));
    }
}

#[test]
fn training_is_the_same() {
    let flex = LinearConfig::new(3, 2).init(&Device::flex().autodiff());
    let [got, want] = both(|device| {
        let (mut layer, mut adam) = (flex.clone().fork(device), AdamConfig::new().init());
        for step in 0..3 {
            let parts = vec![random(step, [4, 3], device), random(100 + step, [4, 3], device)];
            let loss = |layer: &Linear, x: Tensor<2>| layer.forward(x).square().sum();
            let (_, gradients) = Workers::new(2).gradients(&layer, parts, device, loss);
            layer = adam.step(0.1, layer, gradients);
        }
        vec![values(layer.weight.val()), values(layer.bias.unwrap().val())]
    });
    close(&got, &want, "Adam");
}
