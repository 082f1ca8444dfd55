//! Parts on threads give the gradients of the whole batch, and Adam is Burn's.

use burn::module::Module;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use parsimax_burn::train::{AdamConfig, Workers};

#[derive(Module, Debug)]
struct Net {
    first: Linear,
    second: Linear,
}

fn random<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| 2.0 * rng.f32() - 1.0).collect();
    Tensor::from_data(TensorData::new(data, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("single precision")
}

fn net(device: &Device) -> Net {
    Net { first: LinearConfig::new(5, 300).init(device), second: LinearConfig::new(300, 3).init(device) }
}

/// The mean over 12 rows, as a sum.
fn loss(net: &Net, x: Tensor<2>) -> Tensor<1> {
    net.second.forward(Relu::new().forward(net.first.forward(x))).square().sum().div_scalar(12.0)
}

#[test]
fn parts_add_up_to_the_batch() {
    let device = Device::default().autodiff();
    let (net, x) = (net(&device), random([12, 5], 1, &device));
    let whole = loss(&net, x.clone());
    let value = f64::from(whole.clone().into_scalar::<f32>());
    let mut want = GradientsParams::from_grads(whole.backward(), &net);
    let weight = values(want.remove::<2>(net.first.weight.id).expect("tracked"));
    for (workers, parts) in [(1, 1), (2, 2), (2, 3), (3, 2)] {
        let cut = || x.clone().chunk(parts, 0);
        let run = || Workers::new(workers).gradients(&net, cut(), &device, loss);
        let (sum, mut gradients) = run();
        // Sums of twelve rows in another order.
        assert!((sum - value).abs() < 1e-5 * value.abs(), "{sum} for {value}");
        assert_eq!(gradients.len(), 4);
        let got = values(gradients.remove::<2>(net.first.weight.id).expect("tracked"));
        for (got, want) in got.iter().zip(&weight) {
            assert!((got - want).abs() < 1e-5, "{got} for {want}");
        }
        let again = values(run().1.remove::<2>(net.first.weight.id).expect("tracked"));
        assert_eq!(got, again, "the same call gives the same bits");
    }
}

#[test]
fn no_parts_have_no_gradients() {
    let device = Device::default().autodiff();
    let (value, gradients) = Workers::new(2).gradients(&net(&device), Vec::<Tensor<2>>::new(), &device, loss);
    assert!(value == 0.0 && gradients.is_empty());
}

#[test]
fn adam_is_that_of_burn() {
    let device = Device::default().autodiff();
    let start = net(&device);
    let (mut ours, mut theirs) = (start.clone(), start);
    let mut adam = AdamConfig::new().init();
    let mut burn = burn::optim::AdamConfig::new().with_epsilon(1e-8).init();
    for step in 0..5 {
        let x = random([12, 5], 2 + step, &device);
        let gradients = |net: &Net| GradientsParams::from_grads(loss(net, x.clone()).backward(), net);
        ours = adam.step(0.01, ours.clone(), gradients(&ours));
        theirs = burn.step(0.01, theirs.clone(), gradients(&theirs));
        let pairs = [(&ours.first, &theirs.first), (&ours.second, &theirs.second)];
        for (a, b) in pairs {
            for (a, b) in values(a.weight.val()).into_iter().zip(values(b.weight.val())) {
                // Steps of 0.01 whose roundings differ by a few units; a gradient near 0 may turn one of
                // them by its square root's error.
                assert!((a - b).abs() < 2e-5, "step {step}: {a} for {b}");
            }
        }
    }
}

#[test]
fn decay_takes_a_share_of_each_parameter() {
    let device = Device::default().autodiff();
    let net = net(&device);
    let mut adam = AdamConfig::new().with_weight_decay(0.5).init();
    let zero = || Tensor::<2>::zeros([12, 5], &device);
    // Without input the first weight has no gradient but decay: w − 0.1·0.5·w.
    let gradients = GradientsParams::from_grads(loss(&net, zero()).backward(), &net);
    let before = values(net.first.weight.val());
    let after = values(adam.step(0.1, net, gradients).first.weight.val());
    for (before, after) in before.into_iter().zip(after) {
        assert!((after - 0.95 * before).abs() < 1e-7, "{after} for 0.95 · {before}");
    }
}
