//! The operations give what the core gives: values and gradients, whatever the layout of the tensors.

use burn::tensor::{Bool, DType, Device, Tensor, TensorData};
use parsimax::{Rows, View, ViewMut, registry};
use parsimax_burn::{NormalizerConfig, normalize, normalize_with};

const SHAPE: [usize; 4] = [2, 3, 4, 5];

fn numbers(seed: u64, n: usize) -> Vec<f64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| 4.0 * rng.f64() - 2.0).collect()
}

fn configs() -> Vec<NormalizerConfig> {
    registry::names().into_iter().map(|name| NormalizerConfig::named(name).unwrap()).collect()
}

/// Forward and gradient of the core in the number type `T`, rows along `axis`.
fn core<T: parsimax::Float>(
    config: &NormalizerConfig,
    (z, v): (&[T], &[T]),
    axis: usize,
    mask: Option<&[bool]>,
) -> (Vec<T>, Vec<T>) {
    let mapping = config.build().unwrap();
    let mut rows = Rows::new(&mapping).axis(axis as isize);
    if let Some(mask) = mask {
        rows = rows.mask(View::new(mask, &SHAPE).unwrap());
    }
    let view = |data| View::<T>::new(data, &SHAPE).unwrap();
    let (mut p, mut g) = (vec![T::default(); z.len()], vec![T::default(); z.len()]);
    rows.forward(view(z), ViewMut::new(&mut p, &SHAPE).unwrap()).unwrap();
    rows.vjp(view(z), view(&p), view(v), ViewMut::new(&mut g, &SHAPE).unwrap()).unwrap();
    (p, g)
}

fn typed(values: &[f64], dtype: DType) -> TensorData {
    TensorData::new(values.to_vec(), SHAPE).convert_dtype(dtype)
}

/// A tensor of the data as it comes, and the same numbers as a view with other strides.
fn layouts(data: &TensorData, device: &Device) -> Vec<Tensor<4>> {
    let plain = Tensor::<4>::from_data(data.clone(), (device, data.dtype()));
    let turned = Tensor::from_data(plain.clone().permute([3, 1, 0, 2]).into_data(), (device, data.dtype()));
    let doubled = Tensor::cat(vec![plain.clone(), plain.clone()], 2).slice([0..2, 0..3, 4..8, 0..5]);
    vec![plain, turned.permute([2, 1, 3, 0]), doubled]
}

fn values(tensor: Tensor<4>) -> Vec<f64> {
    tensor.into_data().convert::<f64>().try_to_vec().unwrap()
}

/// Value and gradient of `Σ v·Π(z)` by the operation, for `z` given as a tensor.
fn by_operation(
    z: &Tensor<4>,
    v: &TensorData,
    axis: usize,
    mask: Option<&[bool]>,
    config: &NormalizerConfig,
) -> (Vec<f64>, Vec<f64>) {
    let device = z.device();
    let mask = mask.map(|m| Tensor::<4, Bool>::from_data(TensorData::new(m.to_vec(), SHAPE), &device));
    let p = normalize(z.clone(), axis, mask, config);
    let v = Tensor::<4>::from_data(v.clone(), (&device, v.dtype()));
    let gradients = (p.clone() * v).sum().backward();
    (values(p), values(z.grad(&gradients).unwrap()))
}

fn parity<T: parsimax::Float + burn::tensor::Element>(dtype: DType) {
    let device = Device::flex().autodiff();
    let n = SHAPE.iter().product();
    let (z, v) = (typed(&numbers(1, n), dtype), typed(&numbers(2, n), dtype));
    let (zs, vs) = (z.try_to_vec::<T>().unwrap(), v.try_to_vec::<T>().unwrap());
    let mask: Vec<bool> = numbers(3, n).iter().map(|x| *x > -1.0).collect();
    for config in configs() {
        for axis in 0..4 {
            for mask in [None, Some(&mask[..])] {
                let (p, g) = core::<T>(&config, (&zs, &vs), axis, mask);
                let wide = |x: &[T]| x.iter().map(|x| x.widen()).collect::<Vec<_>>();
                for tensor in layouts(&z, &device) {
                    let tensor = tensor.detach().require_grad();
                    // The same code on the same numbers: the same bits.
                    let (got_p, got_g) = by_operation(&tensor, &v, axis, mask, &config);
                    assert_eq!(got_p, wide(&p), "{config:?} axis {axis}");
                    assert_eq!(got_g, wide(&g), "{config:?} axis {axis}");
                }
            }
        }
    }
}

#[test]
fn adapter_is_core_in_single_precision() {
    parity::<f32>(DType::F32);
}

#[test]
fn adapter_is_core_in_double_precision() {
    parity::<f64>(DType::F64);
}

#[test]
fn adapter_is_core_in_half_precision() {
    parity::<burn::tensor::f16>(DType::F16);
    parity::<burn::tensor::bf16>(DType::BF16);
}

/// A mask of shape [2, 1, 1, 5] is the same as the full mask that it stands for.
#[test]
fn masks_are_broadcast_over_heads() {
    let device = Device::flex();
    let z = Tensor::<4>::from_data(typed(&numbers(4, 120), DType::F32), (&device, DType::F32));
    let small = Tensor::<4, Bool>::from_data(
        TensorData::new(vec![true, true, false, true, false, true, false, true, true, true], [2, 1, 1, 5]),
        &device,
    );
    for config in configs() {
        let shared = normalize(z.clone(), 3, Some(small.clone()), &config);
        let full = normalize(z.clone(), 3, Some(small.clone().expand(SHAPE)), &config);
        let copied = small.clone().repeat(&[1, 3, 4, 1]);
        let copied = normalize(z.clone(), 3, Some(copied), &config);
        let zeros = shared.clone().slice([0..1, 0..3, 0..4, 2..3]).into_data();
        assert!(zeros.iter::<f32>().all(|p| p == 0.0));
        assert_eq!(values(shared.clone()), values(full));
        assert_eq!(values(shared), values(copied));
    }
}

/// α as a number, per head, per sequence, per row, and per sequence and query: a shape that no grouping of
/// the rows expresses. The sum over what shares an α is the gradient of that α.
#[test]
fn parameters_of_every_shape_get_the_gradient_of_the_core() {
    let device = Device::flex().autodiff();
    for (config, low) in [
        (NormalizerConfig::entmax(1.5), 1.1),
        (NormalizerConfig::Normmax { alpha: 2.0, gamma: 1.0 }, 1.5),
        (NormalizerConfig::SqPnormMax { p: 1.5, gamma: 0.7 }, 1.2),
        (NormalizerConfig::fusedmax(0.1), 0.05),
        (NormalizerConfig::oscarmax(0.01), 0.02),
    ] {
        for shape in [[1, 1, 1, 1], [1, 3, 1, 1], [2, 1, 1, 1], [2, 3, 4, 1], [2, 1, 4, 1], [1, 3, 4, 1]] {
            let count = shape.iter().product();
            let own: Vec<f64> = numbers(5, count).iter().map(|x| low + 0.2 * (x + 2.0)).collect();
            let (z, v) = (numbers(6, 120), numbers(7, 120));
            let (p, dz, da) = per_row(&config, &z, &v, &own, shape);
            let tensor = |x: &[f64], shape: [usize; 4]| {
                Tensor::<4>::from_data(TensorData::new(x.to_vec(), shape), (&device, DType::F64)).require_grad()
            };
            let (zt, at) = (tensor(&z, SHAPE), tensor(&own, shape));
            let got = normalize_with(zt.clone(), at.clone(), 3, None, &config);
            let gradients = (got.clone() * tensor(&v, SHAPE)).sum().backward();
            assert_eq!(values(got), p, "{config:?} {shape:?}");
            assert_eq!(values(zt.grad(&gradients).unwrap()), dz, "{config:?} {shape:?}");
            for (got, want) in values(at.grad(&gradients).unwrap()).iter().zip(&da) {
                // The same slopes, added in another order.
                assert!((got - want).abs() <= 1e-13 * (1.0 + want.abs()), "{config:?} {shape:?}: {got} {want}");
            }
            // The gradient of the parameter alone: scores that are not tracked.
            let alone = normalize_with(zt.clone().detach(), at.clone(), 3, None, &config);
            let gradients = (alone * tensor(&v, SHAPE)).sum().backward();
            assert!(at.grad(&gradients).is_some());
        }
    }
}

/// Row by row with the parameter of each row: probabilities, gradient in the scores, in the parameter.
fn per_row(
    config: &NormalizerConfig,
    z: &[f64],
    v: &[f64],
    own: &[f64],
    shape: [usize; 4],
) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut p, mut dz, mut da) = (vec![0.0; 120], vec![0.0; 120], vec![0.0; own.len()]);
    for row in 0..24 {
        let at = [row / 12, row / 4 % 3, row % 4];
        let entry = at.iter().zip(shape).fold(0, |entry, (i, n)| entry * n + i % n);
        let config = match config {
            NormalizerConfig::Entmax { gamma, .. } => NormalizerConfig::Entmax { alpha: own[entry], gamma: *gamma },
            NormalizerConfig::Normmax { gamma, .. } => NormalizerConfig::Normmax { alpha: own[entry], gamma: *gamma },
            NormalizerConfig::SqPnormMax { gamma, .. } => NormalizerConfig::SqPnormMax { p: own[entry], gamma: *gamma },
            NormalizerConfig::Fusedmax { .. } => NormalizerConfig::fusedmax(own[entry]),
            NormalizerConfig::Oscarmax { .. } => NormalizerConfig::oscarmax(own[entry]),
            other => panic!("no parameter: {other:?}"),
        };
        let mapping = config.build().unwrap();
        let rows = Rows::new(&mapping);
        let range = 5 * row..5 * row + 5;
        let view = |x| View::<f64>::new(x, &[5]).unwrap();
        let (mut pr, mut gr) = ([0.0; 5], [0.0; 5]);
        rows.forward(view(&z[range.clone()]), ViewMut::new(&mut pr, &[5]).unwrap()).unwrap();
        let out = ViewMut::new(&mut gr, &[5]).unwrap();
        let slope = rows.vjp_with_parameter(view(&z[range.clone()]), view(&pr), view(&v[range.clone()]), out).unwrap();
        p[range.clone()].copy_from_slice(&pr);
        dz[range].copy_from_slice(&gr);
        da[entry] += slope[0];
    }
    (p, dz, da)
}

/// In single precision α per head gets, bit for bit, what the core's kernel computes.
#[test]
fn alpha_gets_exactly_the_gradient_of_the_core() {
    let device = Device::flex().autodiff();
    let (z, v): (Vec<f32>, Vec<f32>) =
        (numbers(8, 120).iter().map(|x| *x as f32).collect(), numbers(9, 120).iter().map(|x| *x as f32).collect());
    let alphas = [1.2f32, 1.5, 1.9];
    let mappings = alphas.map(|alpha| parsimax::Entmax::new(f64::from(alpha)).unwrap());
    let rows = Rows::grouped(&mappings, 4);
    let view = |x| View::<f32>::new(x, &SHAPE).unwrap();
    let (mut p, mut dz) = (vec![0.0f32; 120], vec![0.0f32; 120]);
    rows.forward(view(&z), ViewMut::new(&mut p, &SHAPE).unwrap()).unwrap();
    let slopes = rows.vjp_with_parameter(view(&z), view(&p), view(&v), ViewMut::new(&mut dz, &SHAPE).unwrap()).unwrap();
    let tensor = |x: &[f32], shape: [usize; 4]| {
        Tensor::<4>::from_data(TensorData::new(x.to_vec(), shape), (&device, DType::F32)).require_grad()
    };
    let (zt, at) = (tensor(&z, SHAPE), tensor(&alphas, [1, 3, 1, 1]));
    let out = normalize_with(zt.clone(), at.clone(), 3, None, &NormalizerConfig::entmax(1.5));
    let gradients = (out.clone() * tensor(&v, SHAPE)).sum().backward();
    assert_eq!(out.into_data().try_to_vec::<f32>().unwrap(), p);
    assert_eq!(zt.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap(), dz);
    let got = at.grad(&gradients).unwrap().into_data().try_to_vec::<f32>().unwrap();
    assert_eq!(got, slopes.iter().map(|slope| *slope as f32).collect::<Vec<_>>());
}

#[test]
fn rows_with_nan_become_nan_and_others_do_not() {
    let device = Device::flex().autodiff();
    for config in configs() {
        let z = Tensor::<2>::from_data([[0.0, f32::NAN, 1.0], [0.5, 0.1, 0.3]], &device).require_grad();
        let p = normalize(z.clone(), 1, None, &config);
        let gradients =
            (p.clone() * Tensor::<2>::from_data([[1.0, 2.0, 3.0], [1.0, 0.0, 0.0]], &device)).sum().backward();
        for tensor in [p, z.grad(&gradients).unwrap()] {
            let data = tensor.into_data().try_to_vec::<f32>().unwrap();
            assert!(
                data[..3].iter().all(|x| x.is_nan()) && data[3..].iter().all(|x| x.is_finite()),
                "{config:?} {data:?}"
            );
        }
    }
}

#[test]
fn empty_tensors_stay_empty() {
    let device = Device::flex();
    for config in configs() {
        let p = normalize(Tensor::<2>::zeros([0, 3], &device), 1, None, &config);
        assert_eq!(p.dims(), [0, 3]);
    }
}

#[test]
#[should_panic(expected = "The mask must have the scores' shape [2, 3], or 1 along axes that share it; it has [2, 2]")]
fn a_mask_of_the_wrong_size_names_the_shapes() {
    let device = Device::flex();
    let mask = Tensor::<2, Bool>::from_data([[true, true], [true, true]], &device);
    normalize(Tensor::<2>::zeros([2, 3], &device), 1, Some(mask), &NormalizerConfig::sparsemax());
}

#[test]
#[should_panic(expected = "The axis must be below 2 for scores of shape [2, 3]; it is 2.")]
fn an_axis_out_of_range_names_the_shape() {
    normalize(Tensor::<2>::zeros([2, 3], &Device::flex()), 2, None, &NormalizerConfig::sparsemax());
}

#[test]
#[should_panic(expected = "scores [2, 3], parameter [3, 1]")]
fn a_parameter_of_the_wrong_shape_names_the_shapes() {
    let device = Device::flex();
    let config = NormalizerConfig::entmax(1.5);
    normalize_with(Tensor::<2>::zeros([2, 3], &device), Tensor::ones([3, 1], &device), 1, None, &config);
}

#[test]
#[should_panic(expected = "alpha must be")]
fn a_parameter_out_of_range_says_so() {
    let device = Device::flex();
    let config = NormalizerConfig::entmax(1.5);
    normalize_with(Tensor::<2>::zeros([2, 3], &device), Tensor::zeros([1, 1], &device), 1, None, &config);
}
