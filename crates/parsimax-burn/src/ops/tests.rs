//! The path of other backends beside that of flex, and the second order that is not there.

use super::{MapSpec, MappingOps, MaskInput, host};
use crate::NormalizerConfig;
use burn::backend::ops::{BoolTensorOps, FloatTensorOps};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, AutodiffBackend, Flex};
use burn::tensor::TensorData;
use parsimax::registry;

const SHAPE: [usize; 3] = [2, 3, 4];

fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| 4.0 * rng.f32() - 2.0).collect()
}

fn floats(seed: u64, shape: [usize; 3]) -> FloatTensor<Flex> {
    let data = TensorData::new(numbers(seed, shape.iter().product()), shape);
    Flex::float_from_data(data, &Default::default())
}

fn masks() -> [MaskInput<Flex>; 2] {
    let data = TensorData::new(vec![true, false, true, true, true, true, false, true], [2, 1, 4]);
    [MaskInput::Absent, MaskInput::Present(Flex::bool_from_data(data, &Default::default()))]
}

fn data(tensor: FloatTensor<Flex>) -> TensorData {
    host::read::<Flex>(tensor)
}

#[test]
fn the_path_through_host_memory_gives_the_same_bits() {
    for name in registry::names() {
        for mask in masks() {
            let spec = MapSpec { normalizer: NormalizerConfig::named(name).unwrap(), axis: 2 };
            let (z, v) = (Flex::float_swap_dims(floats(1, [2, 4, 3]), 1, 2), floats(2, SHAPE));
            let p = Flex::map(z.clone(), mask.clone(), spec.clone());
            let by_host = host::map::<Flex>(z.clone(), mask.clone(), spec.clone());
            assert_eq!(data(p.clone()), data(by_host), "{name}");
            let g = Flex::map_vjp(z.clone(), p.clone(), v.clone(), mask.clone(), spec.clone());
            let by_host = host::map_vjp::<Flex>(z.clone(), p.clone(), v.clone(), mask.clone(), spec.clone());
            assert_eq!(data(g), data(by_host), "{name}");
        }
    }
}

#[test]
fn so_does_a_parameter() {
    let spec = MapSpec { normalizer: NormalizerConfig::entmax(1.5), axis: 2 };
    let alpha = Flex::float_add_scalar(Flex::float_mul_scalar(floats(3, [1, 3, 1]), 0.1.into()), 1.5.into());
    for mask in masks() {
        let (z, v) = (floats(4, SHAPE), floats(5, SHAPE));
        let p = Flex::map_with(z.clone(), alpha.clone(), mask.clone(), spec.clone());
        let by_host = host::map_with::<Flex>(z.clone(), alpha.clone(), mask.clone(), spec.clone());
        assert_eq!(data(p.clone()), data(by_host));
        let pair = Flex::map_with_vjp(z.clone(), p.clone(), v.clone(), alpha.clone(), mask.clone(), spec.clone());
        let by_host = host::map_with_vjp::<Flex>(z, p, v, alpha.clone(), mask, spec.clone());
        assert_eq!(data(pair.0), data(by_host.0));
        assert_eq!(data(pair.1), data(by_host.1));
    }
}

type Once = Autodiff<Flex>;

/// The backward pass on a tracked tensor, as a second derivative would call it.
fn second_order(track: bool) -> FloatTensor<Once> {
    let spec = MapSpec { normalizer: NormalizerConfig::entmax15(), axis: 2 };
    let z = Once::from_inner(floats(6, SHAPE));
    let z = Once::float_set_require_grad(z, track);
    let p = Once::map(z.clone(), MaskInput::Absent, spec.clone());
    Once::map_vjp(z, p, Once::from_inner(floats(7, SHAPE)), MaskInput::Absent, spec)
}

#[test]
#[should_panic(expected = "The second derivative of a mapping is not implemented")]
fn a_second_derivative_is_a_clear_error() {
    second_order(true);
}

#[test]
fn a_gradient_of_constants_is_none() {
    let spec = MapSpec { normalizer: NormalizerConfig::entmax15(), axis: 2 };
    let p = Flex::map(floats(6, SHAPE), MaskInput::Absent, spec.clone());
    let expected = Flex::map_vjp(floats(6, SHAPE), p, floats(7, SHAPE), MaskInput::Absent, spec);
    assert_eq!(data(Once::inner(second_order(false))), data(expected));
}
