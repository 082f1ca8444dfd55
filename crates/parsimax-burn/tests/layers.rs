//! What layers do beside the numbers of torch: masks, caches, sparse weights, misuse.

use burn::tensor::{Bool, Device, Distribution, Int, Tensor, TensorData};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::attention::{
    AttentionInput, AttentionScore, GlobalAttentionConfig, KeyValueCache, MultiHeadAttentionConfig, Weighting,
};
use parsimax_burn::loss::{LossKind, SparseLossConfig};

fn random<const D: usize>(shape: [usize; D]) -> Tensor<D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Device::flex())
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

fn close(a: &[f32], b: &[f32]) -> bool {
    // Sums of products of numbers of order 1 in single precision, in another order.
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-5)
}

#[test]
fn weights_are_sparse_distributions_over_the_keys_that_are_there() {
    let mask = Tensor::<2, Bool>::from_data([[true, true, true, false], [true, true, true, true]], &Device::flex());
    for normalizer in [NormalizerConfig::sparsemax(), NormalizerConfig::entmax15(), NormalizerConfig::ev_softmax()] {
        let layer = MultiHeadAttentionConfig::new(8, 2).with_normalizer(normalizer).init(&Device::flex());
        let input = AttentionInput::own(random([2, 4, 8]) * 3.0).key_mask(mask.clone()).causal().with_weights();
        let weights = numbers(layer.forward(input).weights.unwrap());
        for (row, p) in weights.chunks(4).enumerate() {
            let (batch, query) = (row / 8, row % 4);
            assert!((p.iter().sum::<f32>() - 1.0).abs() < 1e-6);
            assert!(p[query + 1..].iter().all(|p| *p == 0.0), "the future: {p:?}");
            assert!(batch == 1 || p[3] == 0.0, "padding: {p:?}");
        }
        assert!(weights.iter().filter(|p| **p == 0.0).count() > 2 * (4 * 3 + 2));
    }
}

/// A decoder that feeds one step at a time sees what it would have seen at once; a beam may be reordered.
#[test]
fn caches_change_nothing() {
    let layer = MultiHeadAttentionConfig::new(8, 2).with_normalizer(NormalizerConfig::entmax15()).init(&Device::flex());
    let x = random([2, 5, 8]);
    let at_once = numbers(layer.forward(AttentionInput::own(x.clone()).causal()).context);
    for steps in [vec![1, 1, 1, 1, 1], vec![2, 1, 2], vec![3, 2]] {
        let (mut cache, mut start, mut parts) = (KeyValueCache::new(), 0, Vec::new());
        for n in steps {
            let step = x.clone().slice([0..2, start..start + n, 0..8]);
            parts.push(layer.forward_cached(AttentionInput::own(step), &mut cache).context);
            start += n;
        }
        assert_eq!(cache.len(), 5);
        assert!(close(&numbers(Tensor::cat(parts, 1)), &at_once));
    }
    let swap = Tensor::<1, Int>::from_data([1, 0], &Device::flex());
    let (mut cache, half) = (KeyValueCache::new(), x.clone().slice([0..2, 0..3, 0..8]));
    layer.forward_cached(AttentionInput::own(half), &mut cache);
    cache.select(swap.clone());
    let rest = x.clone().select(0, swap.clone()).slice([0..2, 3..5, 0..8]);
    let got = layer.forward_cached(AttentionInput::own(rest), &mut cache).context.select(0, swap);
    let want = layer.forward(AttentionInput::own(x).causal()).context.slice([0..2, 3..5, 0..8]);
    assert!(close(&numbers(got), &numbers(want)));
}

#[test]
fn heads_have_their_own_alpha() {
    let layer = MultiHeadAttentionConfig::new(8, 4)
        .with_normalizer(NormalizerConfig::adaptive_entmax(1.7))
        .init(&Device::flex());
    let alpha = layer.normalizer.alpha().unwrap();
    assert!(alpha.len() == 4 && alpha.iter().all(|alpha| (alpha - 1.7).abs() < 1e-6), "{alpha:?}");
    assert!(format!("{}", layer.normalizer).contains("alpha"));
}

/// v·tanh(Wh + Uk + b) with W = U = 1, b = 0, v = 1 and one dimension: tanh(h + k).
#[test]
fn additive_scores_are_those_of_the_formula() {
    let device = Device::flex();
    let config = GlobalAttentionConfig::new(1, 1).with_score(AttentionScore::Additive);
    let mut layer = config.with_weighting(Weighting::Logistic).init(&device);
    let one = |shape| burn::module::Param::from_tensor(Tensor::ones(shape, &device));
    for proj in [layer.state_proj.as_mut().unwrap(), layer.key_proj.as_mut().unwrap()] {
        proj.weight = one([1, 1]);
        proj.bias = proj.bias.take().map(|_| burn::module::Param::from_tensor(Tensor::zeros([1], &device)));
    }
    layer.v = Some(burn::module::Param::from_tensor(Tensor::ones([1], &device)));
    let keys = layer.keys(Tensor::from_data([[[0.3], [-0.8]]], &device), None);
    let (context, weights) = layer.forward(Tensor::from_data([[[0.5]]], &device), &keys);
    let sigmoid = |z: f32| 1.0 / (1.0 + (-z).exp());
    let expected = [sigmoid(0.8f32.tanh()), sigmoid((-0.3f32).tanh())];
    assert!(close(&numbers(weights), &expected));
    assert!(close(&numbers(context), &[0.3 * expected[0] - 0.8 * expected[1]]));
}

/// Cross-entropy by hand, and the mean over what is not ignored.
#[test]
fn the_loss_of_softmax_is_cross_entropy() {
    let device = Device::flex();
    let scores = random([4, 6]);
    let targets = Tensor::<1, Int>::from_data([5, -1, 0, 2], &device);
    let loss = SparseLossConfig::new(NormalizerConfig::softmax()).with_ignore_index(-1).init();
    let log_p = numbers(burn::tensor::activation::log_softmax(scores.clone(), 1));
    let rows = [-log_p[5], 0.0, -log_p[12], -log_p[20]];
    assert!(close(&numbers(loss.rows::<2, 1>(scores.clone(), targets.clone())), &rows));
    assert!(close(&numbers(loss.forward(scores.clone(), targets.clone())), &[rows.iter().sum::<f32>() / 3.0]));
    // Classes along axis 1 of [n, C, …], and the likelihood, which is the same thing here.
    let turned = scores.reshape([2, 2, 6]).swap_dims(1, 2);
    let along = SparseLossConfig::new(NormalizerConfig::softmax())
        .with_ignore_index(-1)
        .with_class_axis(Some(1))
        .with_kind(LossKind::Likelihood)
        .init();
    assert!(close(&numbers(along.rows::<3, 2>(turned, targets.reshape([2, 2]))), &rows));
}

#[test]
fn nan_scores_make_a_nan_loss() {
    let loss = SparseLossConfig::new(NormalizerConfig::entmax15()).init();
    let device = Device::flex().autodiff();
    let scores = Tensor::<2>::from_data([[f32::NAN, 0.0], [1.0, 0.0]], &device).require_grad();
    let value = loss.forward(scores.clone(), Tensor::<1, Int>::from_data([0, 1], &device));
    let gradients = value.clone().backward();
    let gradient = numbers(scores.grad(&gradients).unwrap());
    assert!(numbers(value)[0].is_nan() && gradient[0].is_nan() && gradient[2].is_finite());
}

type Misuse = Box<dyn Fn() + std::panic::UnwindSafe>;

/// Calls that cannot be right, and what they say.
#[test]
fn misuse_names_shapes() {
    let attention = || MultiHeadAttentionConfig::new(8, 2).init(&Device::flex());
    let mask2 = |shape: [usize; 2]| {
        Tensor::<2, Bool>::from_data(TensorData::new(vec![true; shape[0] * shape[1]], shape), &Device::flex())
    };
    let loss = || SparseLossConfig::new(NormalizerConfig::sparsemax()).init();
    let ints = |values: Vec<i64>| {
        let n = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [n]), &Device::flex())
    };
    let cases: Vec<(Misuse, &str)> = vec![
        (Box::new(|| drop(MultiHeadAttentionConfig::new(8, 3).init(&Device::flex()))), "d_model 8, n_heads 3"),
        (Box::new(move || drop(attention().forward(AttentionInput::own(random([2, 4, 6]))))), "[2, 4, 6]"),
        (
            Box::new(move || drop(attention().forward(AttentionInput::cross(random([2, 4, 8]), random([3, 4, 8]))))),
            "[3, 4, 8]",
        ),
        (
            Box::new(move || drop(attention().forward(AttentionInput::own(random([2, 4, 8])).key_mask(mask2([2, 5]))))),
            "must be [2, 4]; it is [2, 5]",
        ),
        (
            Box::new(|| drop(GlobalAttentionConfig::new(4, 5).with_score(AttentionScore::Dot).init(&Device::flex()))),
            "d_state 4, d_key 5",
        ),
        (Box::new(|| drop(NormalizerConfig::entmax(-1.0).init(&Device::flex()))), "alpha must be"),
        (
            Box::new(|| drop(NormalizerConfig::adaptive_entmax(2.0).init(&Device::flex()))),
            "must lie in (1, 2); it is 2",
        ),
        (Box::new(move || drop(loss().forward(random([2, 3]), ints(vec![0, 1, 2])))), "must be [2] for scores [2, 3]"),
        (Box::new(move || drop(loss().forward(random([2, 3]), ints(vec![0, 3])))), "a class below 3"),
        (Box::new(move || drop(loss().forward_soft(random([2, 3]), random([2, 4])))), "shape [2, 3]; they have [2, 4]"),
        (
            Box::new(|| drop(SparseLossConfig::new(NormalizerConfig::Sparsehourglass { q: 1.0, gamma: 1.0 }).init())),
            "no Fenchel-Young loss",
        ),
        (
            Box::new(|| drop(SparseLossConfig::new(NormalizerConfig::sparsemax()).with_label_smoothing(1.5).init())),
            "label_smoothing must be",
        ),
    ];
    for (case, expected) in cases {
        let panic = std::panic::catch_unwind(case).expect_err(expected);
        let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("Tensor Operation Error") && message.contains(expected), "{expected}: {message}");
    }
}
