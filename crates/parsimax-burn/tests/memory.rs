//! What the operations allocate on flex: their result, and nothing of the size of a tensor beside it.

use burn::backend::Flex;
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Device, Int, Tensor, TensorData};
use parsimax::loss::{FenchelYoung, Target};
use parsimax::{Rows, View, ViewMut};
use parsimax_burn::NormalizerConfig;
use parsimax_burn::loss::SparseLossConfig;
use parsimax_burn::ops::{MapSpec, MappingOps, MaskInput};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static GLOBAL: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes allocated while `work` runs, the least of some runs: a copy is made in every one of them, while a thread of
/// the pool makes buffers of its own whenever it first gets something to do, which another program's load decides.
fn allocated<R>(mut work: impl FnMut() -> R) -> (R, usize) {
    let run = |_| {
        let region = Region::new(GLOBAL);
        let result = work();
        let change = region.change();
        let grown = usize::try_from(change.bytes_reallocated.max(0)).unwrap_or(0);
        (result, change.bytes_allocated + grown)
    };
    (0..5).map(run).min_by_key(|(_, bytes)| *bytes).expect("five runs")
}

fn random(rng: &mut fastrand::Rng, shape: [usize; 2]) -> FloatTensor<Flex> {
    let values = (0..shape[0] * shape[1]).map(|_| rng.f32()).collect::<Vec<_>>();
    Flex::float_from_data(TensorData::new(values, shape), &Default::default())
}

/// One test, because the count is of the whole process. The core by itself uses some buffers; beyond them an
/// operation allocates its result and no copy of an argument.
#[test]
fn nothing_of_the_size_of_a_tensor_is_copied() {
    let shape = [512, 1000];
    let tensor = shape[0] * shape[1] * size_of::<f32>();
    // The result, shapes and boxes: a copy would be a whole tensor more.
    let expected = tensor - tensor / 16..tensor + tensor / 16;
    let mut rng = fastrand::Rng::with_seed(1);
    for normalizer in [NormalizerConfig::softmax(), NormalizerConfig::sparsemax(), NormalizerConfig::entmax15()] {
        let (z, v) = (random(&mut rng, shape), random(&mut rng, shape));
        let view = |x: &'_ FloatTensor<Flex>| x.as_slice::<f32>().unwrap().to_vec();
        let (z_values, v_values, mut out) = (view(&z), view(&v), vec![0.0; shape[0] * shape[1]]);
        let mapping = normalizer.build().unwrap();
        let rows = Rows::new(&mapping);
        let array = |x| View::new(x, &shape).unwrap();
        let spec = MapSpec { normalizer, axis: 1 };

        let core = |out: &mut [f32]| rows.forward(array(&z_values), ViewMut::new(out, &shape).unwrap()).unwrap();
        let (_, buffers) = allocated(|| core(&mut out));
        let (p, bytes) = allocated(|| Flex::map(z.clone(), MaskInput::Absent, spec.clone()));
        let own = bytes.saturating_sub(buffers);
        assert!(expected.contains(&own), "{spec:?}: {own} bytes for {tensor}");

        let p_values = view(&p);
        let core = |out: &mut [f32]| {
            rows.vjp(array(&z_values), array(&p_values), array(&v_values), ViewMut::new(out, &shape).unwrap()).unwrap();
        };
        let (_, buffers) = allocated(|| core(&mut out));
        let (_, bytes) = allocated(|| Flex::map_vjp(z.clone(), p.clone(), v.clone(), MaskInput::Absent, spec.clone()));
        let own = bytes.saturating_sub(buffers);
        assert!(expected.contains(&own), "{spec:?}: {own} bytes for {tensor}");
    }
    the_gradient_is_all_that_a_loss_allocates(&mut rng);
}

/// A loss over a vocabulary of 32000 words: no probabilities, no dense targets, one gradient.
fn the_gradient_is_all_that_a_loss_allocates(rng: &mut fastrand::Rng) {
    let shape = [16, 32_000];
    let tensor = shape[0] * shape[1] * size_of::<f32>();
    let expected = tensor - tensor / 16..tensor + tensor / 16;
    let device = Device::flex().autodiff();
    for normalizer in [NormalizerConfig::softmax(), NormalizerConfig::sparsemax(), NormalizerConfig::entmax15()] {
        let values: Vec<f32> = (0..shape[0] * shape[1]).map(|_| rng.f32()).collect();
        let classes: Vec<i64> = (0..shape[0]).map(|_| rng.i64(0..32_000)).collect();
        let mapping = normalizer.build().unwrap();
        let mut gradient = vec![0.0f32; values.len()];
        let core = |gradient: &mut [f32]| {
            let out = ViewMut::new(gradient, &shape).unwrap();
            let loss = FenchelYoung::new(mapping.regularized().unwrap());
            loss.loss_and_gradient(View::new(&values, &shape).unwrap(), Target::Classes(&classes), out).unwrap();
        };
        let (_, buffers) = allocated(|| core(&mut gradient));
        let scores = Tensor::<2>::from_data(TensorData::new(values.clone(), shape), &device).require_grad();
        let targets = Tensor::<1, Int>::from_data(TensorData::new(classes.clone(), [shape[0]]), &device);
        let loss = SparseLossConfig::new(normalizer.clone()).init();
        let (gradients, bytes) = allocated(|| loss.forward(scores.clone(), targets.clone()).backward());
        let own = bytes.saturating_sub(buffers);
        assert!(expected.contains(&own), "{normalizer:?}: {own} bytes for {tensor}");
        let got = scores.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap();
        assert_eq!(got, gradient, "{normalizer:?}");
    }
}
