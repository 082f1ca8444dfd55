//! The adapter gives the core's numbers, whatever the type, the axis and the strides.

use candle_core::{DType, Device, Result, Tensor, Var};
use parsimax::loss::{FenchelYoung, Target};
use parsimax::registry::{self, Options};
use parsimax::{Entmax, Rows, View, ViewMut};
use parsimax_candle::{Normalizer, Reduction};

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..n).map(|_| 4.0 * rng.f32() - 2.0).collect()
}

/// Value and gradient of the core for rows of a contiguous array.
fn core(name: &str, z: &[f32], v: &[f32], shape: &[usize], axis: isize) -> (Vec<f32>, Vec<f32>) {
    let mapping = registry::build(name, &Options::default()).expect("a mapping");
    let rows = Rows::new(&mapping).axis(axis);
    let (mut p, mut slope) = (vec![0.0; z.len()], vec![0.0; z.len()]);
    let view = |data| View::new(data, shape).expect("a shape");
    rows.forward(view(z), ViewMut::new(&mut p, shape).expect("a shape")).expect("finite scores");
    rows.vjp(view(z), view(&p), view(v), ViewMut::new(&mut slope, shape).expect("a shape")).expect("finite scores");
    (p, slope)
}

fn flat(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().and_then(|t| t.to_vec1()).expect("single precision")
}

#[test]
fn every_mapping_is_the_core_along_every_axis() -> Result<()> {
    let shape = [3, 4, 5];
    let (z, v) = (random(60, 1), random(60, 2));
    for name in registry::names() {
        let normalizer = Normalizer::named(name)?;
        let scores = Var::from_vec(z.clone(), &shape, &Device::Cpu)?;
        let weights = Tensor::from_vec(v.clone(), &shape, &Device::Cpu)?;
        for axis in 0..3 {
            let p = normalizer.forward(&scores, axis)?;
            let slopes = (&p * &weights)?.sum_all()?.backward()?;
            let (want, slope) = core(name, &z, &v, &shape, axis as isize);
            assert_eq!(flat(&p), want, "{name}, axis {axis}");
            assert_eq!(flat(slopes.get(&scores).expect("tracked")), slope, "{name}, axis {axis}");
        }
    }
    Ok(())
}

#[test]
fn strided_and_shifted_tensors_are_read_where_they_lie() -> Result<()> {
    let whole = Var::from_vec(random(120, 3), (6, 4, 5), &Device::Cpu)?;
    let part = whole.as_tensor().narrow(0, 2, 3)?.transpose(0, 2)?;
    assert!(!part.is_contiguous());
    for name in ["softmax", "sparsemax", "entmax15", "fusedmax", "ev-softmax"] {
        let normalizer = Normalizer::named(name)?;
        for axis in 0..3 {
            let (here, there) = (normalizer.forward(&part, axis)?, normalizer.forward(&part.contiguous()?, axis)?);
            assert_eq!(flat(&here), flat(&there), "{name}, axis {axis}");
            let weights = Tensor::from_vec(random(60, 4), part.shape(), &Device::Cpu)?;
            let slope = |p: &Tensor| -> Result<Vec<f32>> {
                Ok(flat((p * &weights)?.sum_all()?.backward()?.get(&whole).expect("tracked")))
            };
            assert_eq!(slope(&here)?, slope(&there)?, "{name}, axis {axis}");
        }
    }
    Ok(())
}

#[test]
fn alpha_gets_the_gradient_of_the_core() -> Result<()> {
    let (z, v) = (random(48, 5), random(48, 6));
    let scores = Var::from_vec(z.clone(), (2, 3, 2, 4), &Device::Cpu)?;
    let weights = Tensor::from_vec(v.clone(), (2, 3, 2, 4), &Device::Cpu)?;
    let alphas = [1.2f32, 1.5, 1.9];
    let heads = Var::from_vec(alphas.to_vec(), (1, 3, 1, 1), &Device::Cpu)?;
    let p = Normalizer::named("entmax")?.forward_with(&scores, &heads, 3)?;
    let slopes = (&p * &weights)?.sum_all()?.backward()?;
    let mappings: Vec<_> = alphas.iter().map(|&a| Entmax::new(f64::from(a)).expect("in range")).collect();
    let rows = Rows::grouped(&mappings, 2);
    let (mut want, mut dz) = (vec![0.0f32; 48], vec![0.0f32; 48]);
    let shape = [2, 3, 2, 4];
    let view = |data| View::new(data, &shape).expect("a shape");
    rows.forward(view(&z), ViewMut::new(&mut want, &shape).expect("a shape")).expect("finite");
    let out = ViewMut::new(&mut dz, &shape).expect("a shape");
    let da = rows.vjp_with_parameter(view(&z), view(&want), view(&v), out).expect("finite");
    assert_eq!(flat(&p), want);
    assert_eq!(flat(slopes.get(&scores).expect("tracked")), dz);
    let got = flat(slopes.get(&heads).expect("tracked"));
    assert_eq!(got, da.iter().map(|&a| a as f32).collect::<Vec<_>>());
    // One number for all rows gets the sum of what each row asks for.
    let one = Var::new(1.5f32, &Device::Cpu)?;
    let p = Normalizer::named("entmax")?.forward_with(&scores, &one, 3)?;
    let slopes = (&p * &weights)?.sum_all()?.backward()?;
    let all = slopes.get(&one).expect("tracked").to_scalar::<f32>()?;
    let each = Var::from_vec(vec![1.5f32; 12], (2, 3, 2, 1), &Device::Cpu)?;
    let p = Normalizer::named("entmax")?.forward_with(&scores, &each, 3)?;
    let slopes = (&p * &weights)?.sum_all()?.backward()?;
    let sum: f32 = flat(slopes.get(&each).expect("tracked")).iter().sum();
    // Twelve roundings of numbers below 1.
    assert!((all - sum).abs() < 2e-6, "{all} for {sum}");
    Ok(())
}

#[test]
fn losses_and_their_gradients_are_the_core() -> Result<()> {
    let (z, targets) = (random(24, 7), [0i64, 3, -100, 1, 2, 2]);
    let scores = Var::from_vec(z.clone(), (2, 3, 4), &Device::Cpu)?;
    let classes = Tensor::from_vec(targets.to_vec(), (2, 3), &Device::Cpu)?;
    for name in ["softmax", "sparsemax", "entmax15", "entmax"] {
        let mapping = registry::build(name, &Options::default()).expect("a mapping");
        let regularized = mapping.regularized().expect("a regulariser");
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let loss = Normalizer::named(name)?.loss(&scores, &classes, Some(-100), reduction)?;
            let mut slope = vec![0.0f32; 24];
            let out = ViewMut::new(&mut slope, &[2, 3, 4]).expect("a shape");
            let core = FenchelYoung::new(regularized).reduction(reduction).ignore_index(-100);
            let want =
                core.loss_and_gradient(View::new(&z, &[2, 3, 4]).expect("a shape"), Target::Classes(&targets), out);
            let want = want.expect("good targets");
            let values: Vec<f32> = want
                .rows()
                .map_or(vec![want.value().unwrap_or(0.0)], <[f64]>::to_vec)
                .iter()
                .map(|&x| x as f32)
                .collect();
            assert_eq!(flat(&loss), values, "{name}");
            let slopes = loss.sum_all()?.backward()?;
            assert_eq!(flat(slopes.get(&scores).expect("tracked")), slope, "{name}");
        }
    }
    Ok(())
}

#[test]
fn narrow_types_are_rounded_once() -> Result<()> {
    let wide = Tensor::from_vec(random(20, 8), (4, 5), &Device::Cpu)?;
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let z = wide.to_dtype(dtype)?;
        let p = Normalizer::named("sparsemax")?.forward(&z, 1)?;
        assert_eq!(p.dtype(), dtype);
        let exact = Normalizer::named("sparsemax")?.forward(&z.to_dtype(DType::F64)?, 1)?;
        let [got, want] =
            [p.to_dtype(DType::F64)?, exact].map(|t| t.flatten_all().and_then(|t| t.to_vec1::<f64>()).expect("double"));
        // Half a unit in the last place of bf16 below 1 is 2⁻⁹.
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() <= 1.0 / 512.0));
    }
    Ok(())
}

#[test]
fn what_cannot_be_right_is_an_error() -> Result<()> {
    let scores = Tensor::zeros((2, 3), DType::F32, &Device::Cpu)?;
    let text = |result: Result<Tensor>| result.expect_err("an error").to_string();
    assert!(Normalizer::named("maxout").is_err());
    assert!(Normalizer::entmax(-1.0).is_err());
    let entmax = Normalizer::named("entmax")?;
    assert!(entmax.forward(&scores, 2).is_err());
    assert!(text(entmax.forward(&scores.to_dtype(DType::I64)?, 1)).contains("must be of type"));
    let alpha = |shape: &[usize]| Tensor::full(1.5f32, shape, &Device::Cpu).expect("a tensor");
    assert!(text(entmax.forward_with(&scores, &alpha(&[2, 3]), 1)).contains("whole along"));
    assert!(text(entmax.forward_with(&scores, &alpha(&[3]), 1)).contains("whole along"));
    let classes = |data: Vec<i64>| Tensor::new(data, &Device::Cpu).expect("a tensor");
    assert!(text(entmax.loss(&scores, &classes(vec![0]), None, Reduction::Mean)).contains("[2]"));
    assert!(entmax.loss(&scores, &classes(vec![0, 3]), None, Reduction::Mean).is_err(), "class 3 of 3");
    assert!(
        text(Normalizer::named("ev-softmax")?.loss(&scores, &classes(vec![0, 1]), None, Reduction::Mean))
            .contains("regulariser")
    );
    Ok(())
}
