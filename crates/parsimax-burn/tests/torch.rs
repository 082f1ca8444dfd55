//! Weights and results that torch wrote: see `fixtures/attention.py`.

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use parsimax_burn::attention::{AttentionInput, MultiHeadAttention, MultiHeadAttentionConfig};
use parsimax_burn::transformer::{Activation, DecoderInput, TransformerConfig};
use parsimax_burn::{NormalizerConfig, torch};

fn path(name: &str) -> String {
    format!("{}/tests/fixtures/{name}.safetensors", env!("CARGO_MANIFEST_DIR"))
}

fn example<const D: usize>(case: &str, name: &str) -> Tensor<D> {
    let data = torch::tensor(path(&format!("{case}.example")), name).unwrap();
    Tensor::from_data(data, &Device::flex())
}

fn loaded<M: Module>(mut module: M, case: &str) -> M {
    torch::load(&mut module, path(case)).unwrap_or_else(|error| panic!("{error}"));
    module
}

/// The first 5 and the first 3 keys are there, of 5.
fn key_mask() -> Tensor<2, Bool> {
    let values = vec![true, true, true, true, true, true, true, true, false, false];
    Tensor::from_data(TensorData::new(values, [2, 5]), &Device::flex())
}

/// torch's sums and ours round differently: 1e-5 on numbers of order 1.
fn assert_close<const D: usize>(got: Tensor<D>, want: Tensor<D>, case: &str) {
    assert_eq!(got.dims(), want.dims(), "{case}");
    let worst = (got - want).abs().max().into_data().iter::<f32>().next().unwrap();
    assert!(worst <= 1e-5, "{case}: off by {worst}");
}

fn attention(case: &str, config: MultiHeadAttentionConfig) -> MultiHeadAttention {
    loaded(config.init(&Device::flex()), case)
}

#[test]
fn attention_gives_what_torch_gives() {
    let config = MultiHeadAttentionConfig::new(8, 2);
    for (case, config) in [
        ("attention", config.clone()),
        ("attention_widths", config.clone().with_d_key(Some(6)).with_d_value(Some(7))),
        ("attention_no_bias", config.with_bias(false)),
    ] {
        let (q, k, v) = (example(case, "query"), example(case, "key"), example(case, "value"));
        let input = AttentionInput::new(q, k, v).key_mask(key_mask()).with_weights();
        let out = attention(case, config).forward(input);
        assert_close(out.context, example(case, "out"), case);
        assert_close(out.weights.unwrap(), example(case, "weights"), case);
    }
}

#[test]
fn encoders_give_what_torch_gives() {
    let config = TransformerConfig::new(8, 2, 12).with_n_layers(2);
    for (case, config) in [
        ("encoder_post", config.clone()),
        ("encoder_pre", config.with_norm_first(true).with_final_norm(true).with_activation(Activation::Gelu)),
    ] {
        let encoder = loaded(config.init_encoder(&Device::flex()), case);
        let out = encoder.forward(example(case, "x"), Some(key_mask()));
        assert_close(out, example(case, "out"), case);
    }
}

#[test]
fn decoders_give_what_torch_gives() {
    let config = TransformerConfig::new(8, 2, 12).with_n_layers(2);
    for (case, config) in
        [("decoder_post", config.clone()), ("decoder_pre", config.with_norm_first(true).with_final_norm(true))]
    {
        let decoder = loaded(config.init_decoder(&Device::flex()), case);
        let (target, memory) = (example::<3>(case, "target"), example::<3>(case, "memory"));
        let input = DecoderInput::new(target.clone(), memory.clone()).memory_mask(key_mask());
        assert_close(decoder.forward(input).0, example(case, "out"), case);
        // Step by step with the cache: the same.
        let mut cache = decoder.cache();
        let steps = (0..4).map(|i| {
            let step = target.clone().slice([0..2, i..i + 1, 0..8]);
            let input = DecoderInput::new(step, memory.clone()).memory_mask(key_mask());
            decoder.forward_cached(input, &mut cache).0
        });
        let steps = Tensor::cat(steps.collect(), 1);
        assert_close(steps, example(case, "out"), case);
    }
}

/// torch knows no α: a layer that learns one takes torch's weights and keeps its own α.
#[test]
fn weights_of_softmax_start_a_sparse_layer() {
    let config = MultiHeadAttentionConfig::new(8, 2).with_normalizer(NormalizerConfig::adaptive_entmax(1.25));
    let layer = attention("attention", config);
    let alpha = layer.normalizer.alpha().unwrap();
    assert!(alpha.iter().all(|alpha| (alpha - 1.25).abs() < 1e-6), "{alpha:?}");
}

#[test]
fn files_that_do_not_fit_are_errors_that_name_tensors() {
    let device = Device::flex();
    let mut narrow = MultiHeadAttentionConfig::new(4, 2).init(&device);
    let error = torch::load(&mut narrow, path("attention")).unwrap_err().to_string();
    assert!(error.contains("query.weight"), "{error}");
    let mut bare = MultiHeadAttentionConfig::new(8, 2).with_bias(false).init(&device);
    let error = torch::load(&mut bare, path("attention")).unwrap_err().to_string();
    assert!(error.contains("not used") && error.contains("query.bias"), "{error}");
    let mut biased = MultiHeadAttentionConfig::new(8, 2).init(&device);
    let error = torch::load(&mut biased, path("attention_no_bias")).unwrap_err().to_string();
    assert!(error.contains("missing") && error.contains("query.bias"), "{error}");
    let error = torch::load(&mut biased, path("nothing")).unwrap_err().to_string();
    assert!(error.contains("nothing.safetensors"), "{error}");
}
