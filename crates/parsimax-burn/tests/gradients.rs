//! Every layer's gradient beside finite differences, in double precision.
//!
//! The derivative along a random direction in all parameters and inputs at once is compared with central
//! differences of steps h = 10⁻⁵ and 2h, combined so that their errors of order h² cancel. What is left is h⁴ of the
//! fifth derivative and rounding of some 10⁻¹⁶/10⁻⁵ of the terms: 10⁻⁷ relative to the size of the sum leaves room
//! for curvature and none for a wrong term.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Bool, DType, Device, FloatDType, Gradients, Int, Tensor, TensorData};
use parsimax_burn::attention::{
    AttentionInput, AttentionScore, GlobalAttentionConfig, InputFeeding, MultiHeadAttentionConfig, Weighting,
};
use parsimax_burn::loss::{LossKind, LossReduction, SparseLossConfig};
use parsimax_burn::transformer::{Activation, DecoderInput, TransformerConfig};
use parsimax_burn::{AdaptiveEntmax, NormalizerConfig};
use std::sync::OnceLock;

fn device() -> Device {
    static DOUBLE: OnceLock<()> = OnceLock::new();
    DOUBLE.get_or_init(|| Device::flex().configure(FloatDType::F64).expect("flex computes in f64"));
    Device::flex().autodiff()
}

fn noise<const D: usize>(rng: &mut fastrand::Rng, shape: [usize; D]) -> Tensor<D> {
    let values = (0..shape.iter().product()).map(|_| 2.0 * rng.f64() - 1.0).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(values, shape), (&device(), DType::F64))
}

/// Moves every parameter along the direction.
struct Shift {
    rng: fastrand::Rng,
    step: f64,
}

impl ModuleMapper for Shift {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let direction = noise(&mut self.rng, param.shape().dims());
        let (id, value) = (param.id, param.val());
        Param::initialized(id, (value.detach() + direction * self.step).detach().require_grad())
    }
}

/// Gives every parameter values between ½ and 1 of either sign.
struct Replace {
    rng: fastrand::Rng,
}

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let values = noise(&mut self.rng, param.shape().dims());
        let away_from_zero = values.clone() * 0.5 + values.sign() * 0.5;
        Param::initialized(param.id, away_from_zero.detach().require_grad())
    }
}

/// Adds up the gradients along the direction.
struct Slope<'a> {
    rng: fastrand::Rng,
    gradients: &'a Gradients,
    sum: f64,
    seen: usize,
}

impl Slope<'_> {
    fn add<const D: usize>(&mut self, value: &Tensor<D>) {
        let direction = noise(&mut self.rng, value.dims());
        let gradient = value.grad(self.gradients).expect("every parameter has a gradient");
        let gradient = Tensor::from_data(gradient.into_data(), (&device(), DType::F64));
        self.sum += (direction * gradient).sum().into_data().iter::<f64>().next().unwrap();
        self.seen += 1;
    }
}

impl ModuleVisitor for Slope<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.add(&param.val());
    }
}

/// Checks the derivative of `loss(module, inputs)` in all parameters and inputs.
fn check<M: Module>(module: M, shapes: &[[usize; 3]], loss: impl Fn(&M, &[Tensor<3>]) -> Tensor<1>) {
    for seed in 0..3 {
        let mut rng = fastrand::Rng::with_seed(100 + seed);
        // Not the start, where weights depend on a generator that all tests share and biases are 0.
        let module = module.clone().map(&mut Replace { rng: fastrand::Rng::with_seed(200 + seed) });
        let inputs: Vec<Tensor<3>> = shapes.iter().map(|shape| noise(&mut rng, *shape).require_grad()).collect();
        let direction = 300 + seed;
        let gradients = loss(&module, &inputs).backward();
        let mut slope = Slope { rng: fastrand::Rng::with_seed(direction), gradients: &gradients, sum: 0.0, seen: 0 };
        module.visit(&mut slope);
        inputs.iter().for_each(|input| slope.add(input));
        assert!(slope.seen > shapes.len() || module.num_params() == 0);
        let at = |step: f64| {
            let mut shift = Shift { rng: fastrand::Rng::with_seed(direction), step };
            let module = module.clone().map(&mut shift);
            let inputs: Vec<_> =
                inputs.iter().map(|x| x.clone().detach() + noise(&mut shift.rng, x.dims()) * step).collect();
            loss(&module, &inputs).into_data().iter::<f64>().next().unwrap()
        };
        let central = |h: f64| (at(h) - at(-h)) / (2.0 * h);
        let expected = (4.0 * central(1e-5) - central(2e-5)) / 3.0;
        let error = (slope.sum - expected).abs();
        assert!(error <= 1e-7 * (1.0 + expected.abs()), "seed {seed}: {} beside {expected}", slope.sum);
    }
}

/// A scalar that depends on every entry in its own way.
fn spread<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let factors = noise(&mut fastrand::Rng::with_seed(7), x.dims());
    (x * factors).sum()
}

fn key_mask(lengths: &[usize], n: usize) -> Tensor<2, Bool> {
    let values = lengths.iter().flat_map(|length| (0..n).map(move |i| i < *length)).collect::<Vec<_>>();
    Tensor::from_data(TensorData::new(values, [lengths.len(), n]), &device())
}

fn normalizers() -> [NormalizerConfig; 4] {
    [
        NormalizerConfig::softmax(),
        NormalizerConfig::entmax15(),
        NormalizerConfig::adaptive_entmax(1.4),
        NormalizerConfig::fusedmax(0.05),
    ]
}

#[test]
fn normalizers_and_learned_alpha() {
    let device = device();
    for config in normalizers() {
        check(config.init(&device), &[[2, 3, 5]], |layer, x| spread(layer.forward(x[0].clone(), None)));
    }
    check(AdaptiveEntmax::new(3, 1.7, 0.8, &device), &[[2, 3, 5]], |layer, x| {
        spread(layer.forward(x[0].clone(), None))
    });
}

#[test]
fn multi_head_attention() {
    let device = device();
    for normalizer in normalizers() {
        let config = MultiHeadAttentionConfig::new(6, 2).with_normalizer(normalizer);
        check(config.init(&device), &[[2, 4, 6]], |layer, x| {
            let input = AttentionInput::own(x[0].clone()).causal().key_mask(key_mask(&[4, 3], 4)).with_weights();
            let out = layer.forward(input);
            spread(out.context) + spread(out.weights.unwrap())
        });
        let config = config.with_d_key(Some(3)).with_d_value(Some(5));
        check(config.init(&device), &[[2, 3, 6], [2, 4, 3], [2, 4, 5]], |layer, x| {
            spread(layer.forward(AttentionInput::new(x[0].clone(), x[1].clone(), x[2].clone())).context)
        });
    }
}

#[test]
fn global_attention_and_input_feeding() {
    let device = device();
    for score in [AttentionScore::Dot, AttentionScore::General, AttentionScore::Concat, AttentionScore::Additive] {
        for weighting in [Weighting::Normalized(NormalizerConfig::sparsemax()), Weighting::Logistic] {
            let config = GlobalAttentionConfig::new(4, 4).with_score(score).with_weighting(weighting);
            check(config.init(&device), &[[2, 3, 4], [2, 5, 4]], |layer, x| {
                let keys = layer.keys(x[1].clone(), Some(key_mask(&[5, 2], 5)));
                let (context, weights) = layer.forward(x[0].clone(), &keys);
                spread(context) + spread(weights)
            });
        }
    }
    check(InputFeeding::new(4, 3, 5, &device), &[[2, 1, 4], [2, 1, 3]], |layer, x| {
        let state = layer.forward(x[0].clone(), x[1].clone());
        let token = x[1].clone().squeeze_dim::<2>(1);
        spread(layer.feed(token.clone(), Some(state.squeeze_dim::<2>(1)))) + spread(layer.feed(token, None))
    });
}

#[test]
fn transformer_blocks() {
    let device = device();
    for norm_first in [false, true] {
        let config = TransformerConfig::new(4, 2, 6)
            .with_n_layers(2)
            .with_dropout(0.0)
            .with_norm_first(norm_first)
            .with_final_norm(norm_first)
            .with_activation(Activation::Gelu)
            .with_normalizer(NormalizerConfig::entmax15())
            .with_cross_normalizer(Some(NormalizerConfig::adaptive_entmax(1.3)));
        check(config.init_encoder(&device), &[[2, 4, 4]], |layer, x| {
            spread(layer.forward(x[0].clone(), Some(key_mask(&[4, 2], 4))))
        });
        check(config.init_decoder(&device), &[[2, 3, 4], [2, 4, 4]], |layer, x| {
            let input = DecoderInput::new(x[0].clone(), x[1].clone()).memory_mask(key_mask(&[4, 2], 4));
            spread(layer.forward(input).0)
        });
    }
}

#[test]
fn losses() {
    let device = device();
    let classes = Tensor::<2, Int>::from_data([[0, 3, -100], [2, 1, 4]], &device);
    let mappings = [NormalizerConfig::softmax(), NormalizerConfig::sparsemax(), NormalizerConfig::entmax(1.3)];
    for normalizer in mappings {
        for smoothing in [0.0, 0.1] {
            for (kind, reduction) in [
                (LossKind::FenchelYoung, LossReduction::Mean),
                (LossKind::FenchelYoung, LossReduction::Sum),
                (LossKind::PerturbedLog { epsilon: 0.01 }, LossReduction::Mean),
            ] {
                let config = SparseLossConfig::new(normalizer.clone()).with_kind(kind);
                let config = config.with_label_smoothing(smoothing).with_reduction(reduction);
                let weights = vec![0.5, 1.0, 2.0, 1.5, 1.0];
                check(config.init(), &[[2, 3, 5]], |loss, x| loss.forward(x[0].clone(), classes.clone()) * 3.0);
                let config = config.with_class_weights(Some(weights));
                check(config.init(), &[[2, 3, 5]], |loss, x| spread(loss.rows::<3, 2>(x[0].clone(), classes.clone())));
                let soft = burn::tensor::activation::softmax(noise(&mut fastrand::Rng::with_seed(9), [2, 3, 5]), 2);
                check(config.init(), &[[2, 3, 5]], |loss, x| loss.forward_soft(x[0].clone(), soft.clone().detach()));
            }
        }
    }
}
