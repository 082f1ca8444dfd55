//! The fused layers against Burn's own, and the laws of lengths and steps.

use burn::module::{Module, Param};
use burn::nn::{GruConfig, Linear, LstmConfig};
use burn::tensor::{Device, Tensor, TensorData};
use parsimax_burn::recurrent::{Direction, Recurrent, RecurrentConfig, State};

/// Sums of up to 20·7 products and a chain of seven cells, each step within a few 1e−7.
const CLOSE: f32 = 1e-5;

fn random<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| 2.0 * rng.f32() - 1.0).collect();
    Tensor::from_data(TensorData::new(data, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_to_vec().expect("single precision")
}

#[track_caller]
fn assert_close<const D: usize>(what: &str, got: Tensor<D>, want: Tensor<D>) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    for (i, (got, want)) in values(got).into_iter().zip(values(want)).enumerate() {
        let bound = CLOSE * want.abs().max(1.0);
        assert!((got - want).abs() <= bound, "{what}, entry {i}: {got} for {want}");
    }
}

/// A direction with weights from a seed, all tracked.
fn seeded(network: Recurrent, seed: u64, device: &Device) -> Recurrent {
    let mut seed = seed;
    let mut fill = |direction: Direction| {
        seed += 4;
        Direction {
            weight_ih: Param::from_tensor(random(direction.weight_ih.dims(), seed, device)),
            weight_hh: Param::from_tensor(random(direction.weight_hh.dims(), seed + 1, device)),
            bias_ih: Param::from_tensor(random(direction.bias_ih.dims(), seed + 2, device)),
            bias_hh: Param::from_tensor(random(direction.bias_hh.dims(), seed + 3, device)),
        }
    };
    let mut network = network;
    for level in &mut network.levels {
        level.forward = fill(level.forward.clone());
        level.reverse = level.reverse.take().map(&mut fill);
    }
    network
}

/// Gate `k` of `[gates · hidden, columns]`, as a linear map of Burn, which stores the transpose.
fn gate(weight: &Param<Tensor<2>>, bias: &Param<Tensor<1>>, k: usize, hidden: usize) -> Linear {
    let weight = weight.val().narrow(0, k * hidden, hidden).transpose();
    let bias = bias.val().narrow(0, k * hidden, hidden);
    Linear { weight: Param::from_tensor(weight.detach()), bias: Some(Param::from_tensor(bias.detach())) }
}

/// The gradient of a weight matrix of ours from those of Burn's gates.
fn stacked(gates: Vec<Tensor<2>>) -> Tensor<2> {
    Tensor::cat(gates.into_iter().map(Tensor::transpose).collect(), 0)
}

struct Sizes {
    batch: usize,
    time: usize,
    input: usize,
    hidden: usize,
}

const SIZES: [Sizes; 3] = [
    Sizes { batch: 20, time: 7, input: 5, hidden: 12 },
    Sizes { batch: 1, time: 1, input: 1, hidden: 1 },
    Sizes { batch: 3, time: 4, input: 9, hidden: 8 },
];

#[test]
fn an_lstm_is_that_of_burn_in_value_and_gradient() {
    let device = Device::default().autodiff();
    for Sizes { batch, time, input, hidden } in SIZES {
        let ours = seeded(RecurrentConfig::lstm(input, hidden).init(&device), 1, &device);
        let mut theirs = LstmConfig::new(input, hidden, true).init(&device);
        let one = ours.levels[0].forward.clone();
        {
            let gates = [
                Some(&mut theirs.input_gate),
                theirs.forget_gate.as_mut(),
                Some(&mut theirs.cell_gate),
                Some(&mut theirs.output_gate),
            ];
            for (k, controller) in gates.into_iter().flatten().enumerate() {
                controller.input_transform = gate(&one.weight_ih, &one.bias_ih, k, hidden);
                controller.hidden_transform = gate(&one.weight_hh, &one.bias_hh, k, hidden);
            }
        }
        let weight = random([batch, time, hidden], 9, &device);
        let x = random([batch, time, input], 8, &device).require_grad();
        let (out, state) = ours.forward(x.clone(), None, None);
        let y = x.clone().detach().require_grad();
        let (want, last) = theirs.forward(y.clone(), None);
        assert_close("outputs", out.clone(), want.clone());
        assert_close("h", state.hidden(0), last.hidden.clone());
        assert_close("c", state.cell(0).expect("an LSTM"), last.cell.clone());
        let loss =
            |out: Tensor<3>, h: Tensor<2>, c: Tensor<2>| (out * weight.clone()).sum() + h.square().sum() + c.sum();
        let slopes = loss(out, state.hidden(0), state.cell(0).expect("an LSTM")).backward();
        let their_slopes = loss(want, last.hidden, last.cell).backward();
        assert_close("dx", x.grad(&slopes).expect("tracked"), y.grad(&their_slopes).expect("tracked"));
        let forget = theirs.forget_gate.as_ref().expect("not coupled");
        let gates = [&theirs.input_gate, forget, &theirs.cell_gate, &theirs.output_gate];
        let of = |linear: &Linear| linear.weight.grad(&their_slopes).expect("tracked");
        let bias = |linear: &Linear| linear.bias.as_ref().expect("a bias").grad(&their_slopes).expect("tracked");
        let input = gates.iter().map(|gate| of(&gate.input_transform)).collect();
        let hidden = gates.iter().map(|gate| of(&gate.hidden_transform)).collect();
        assert_close("dW", one.weight_ih.grad(&slopes).expect("tracked"), stacked(input));
        assert_close("dU", one.weight_hh.grad(&slopes).expect("tracked"), stacked(hidden));
        let biases = Tensor::cat(gates.iter().map(|gate| bias(&gate.input_transform)).collect(), 0);
        assert_close("db", one.bias_ih.grad(&slopes).expect("tracked"), biases.clone());
        assert_close("db", one.bias_hh.grad(&slopes).expect("tracked"), biases);
    }
}

#[test]
fn a_gru_is_that_of_burn_in_value_and_gradient() {
    let device = Device::default().autodiff();
    for Sizes { batch, time, input, hidden } in SIZES {
        let ours = seeded(RecurrentConfig::gru(input, hidden).init(&device), 2, &device);
        let mut theirs = GruConfig::new(input, hidden, true).init(&device);
        let one = ours.levels[0].forward.clone();
        let gates = [&mut theirs.reset_gate, &mut theirs.update_gate, &mut theirs.new_gate];
        for (k, controller) in gates.into_iter().enumerate() {
            controller.input_transform = gate(&one.weight_ih, &one.bias_ih, k, hidden);
            controller.hidden_transform = gate(&one.weight_hh, &one.bias_hh, k, hidden);
        }
        let weight = random([batch, time, hidden], 9, &device);
        let start = random([batch, hidden], 10, &device).require_grad();
        let x = random([batch, time, input], 8, &device).require_grad();
        let (out, _) = ours.forward(x.clone(), Some(&State::new(vec![start.clone()], None)), None);
        let (y, begin) = (x.clone().detach().require_grad(), start.clone().detach().require_grad());
        let want = theirs.forward(y.clone(), Some(begin.clone()));
        assert_close("outputs", out.clone(), want.clone());
        let slopes = (out * weight.clone()).sum().backward();
        let their_slopes = (want * weight).sum().backward();
        assert_close("dx", x.grad(&slopes).expect("tracked"), y.grad(&their_slopes).expect("tracked"));
        assert_close("dh", start.grad(&slopes).expect("tracked"), begin.grad(&their_slopes).expect("tracked"));
        let gates = [&theirs.reset_gate, &theirs.update_gate, &theirs.new_gate];
        let of = |linear: &Linear| linear.weight.grad(&their_slopes).expect("tracked");
        let bias = |linear: &Linear| linear.bias.as_ref().expect("a bias").grad(&their_slopes).expect("tracked");
        let inputs = gates.iter().map(|gate| of(&gate.input_transform)).collect();
        let hiddens = gates.iter().map(|gate| of(&gate.hidden_transform)).collect();
        assert_close("dW", one.weight_ih.grad(&slopes).expect("tracked"), stacked(inputs));
        assert_close("dU", one.weight_hh.grad(&slopes).expect("tracked"), stacked(hiddens));
        let input_bias = Tensor::cat(gates.iter().map(|gate| bias(&gate.input_transform)).collect(), 0);
        let hidden_bias = Tensor::cat(gates.iter().map(|gate| bias(&gate.hidden_transform)).collect(), 0);
        assert_close("db of the input", one.bias_ih.grad(&slopes).expect("tracked"), input_bias);
        assert_close("db of the state", one.bias_hh.grad(&slopes).expect("tracked"), hidden_bias);
    }
}

fn networks(device: &Device) -> Vec<Recurrent> {
    let configs = [RecurrentConfig::lstm(4, 6), RecurrentConfig::gru(4, 6)];
    let deep = |config: RecurrentConfig| config.with_layers(2).with_bidirectional(true);
    let all = configs.into_iter().flat_map(|config| [config.clone(), deep(config)]);
    all.map(|config| seeded(config.init(device), 3, device)).collect()
}

#[test]
fn a_padded_row_is_the_row_alone() {
    let device = Device::default();
    let lengths = [3, 5, 1, 0, 5, 2, 4, 3, 5, 1, 2, 2, 4, 5, 3, 1, 2];
    let x = random([lengths.len(), 5, 4], 21, &device);
    for network in networks(&device) {
        let (out, state) = network.forward(x.clone(), None, Some(&lengths));
        for (n, &length) in lengths.iter().enumerate() {
            let row = out.clone().narrow(0, n, 1);
            let padding = values(row.clone());
            let end = padding.len() / 5 * length;
            assert!(padding[end..].iter().all(|&y| y == 0.0), "outputs behind the end are 0");
            if length == 0 {
                assert!(values(state.hidden(0).narrow(0, n, 1)).iter().all(|&h| h == 0.0), "no step was taken");
                continue;
            }
            let (alone, end) = network.forward(x.clone().narrow(0, n, 1).narrow(1, 0, length), None, None);
            // Rows do not depend on each other, bit for bit.
            assert_eq!(values(row.narrow(1, 0, length)), values(alone), "row {n}");
            for layer in 0..network.levels.len() {
                assert_eq!(values(state.hidden(layer).narrow(0, n, 1)), values(end.hidden(layer)), "row {n}");
            }
        }
    }
}

#[test]
fn what_stands_behind_the_end_has_neither_influence_nor_gradient() {
    let device = Device::default().autodiff();
    let lengths = [2, 4, 1];
    let x = random([3, 4, 4], 22, &device);
    for network in networks(&device) {
        let mut poison = values(x.clone());
        for (n, &length) in lengths.iter().enumerate() {
            poison[n * 16 + length * 4..(n + 1) * 16].fill(f32::NAN);
        }
        let poisoned = Tensor::from_data(TensorData::new(poison, [3, 4, 4]), &device).require_grad();
        let (clean, bad) =
            (network.forward(x.clone(), None, Some(&lengths)), network.forward(poisoned.clone(), None, Some(&lengths)));
        assert_eq!(values(clean.0), values(bad.0.clone()));
        let slopes = bad.0.square().sum().backward();
        let dx = values(poisoned.grad(&slopes).expect("tracked"));
        for (n, &length) in lengths.iter().enumerate() {
            assert!(dx[n * 16 + length * 4..(n + 1) * 16].iter().all(|&g| g == 0.0), "row {n}");
            assert!(dx[n * 16..n * 16 + length * 4].iter().all(|&g| g.is_finite() && g != 0.0), "row {n}");
        }
    }
}

/// Central differences along a random direction, in single precision: with steps of 1e−2 the third
/// derivative contributes about 1e−4 and rounding 1e−6 / 1e−2.
#[test]
fn gradients_of_deep_networks_match_differences() {
    let device = Device::default().autodiff();
    let lengths = [3, 1, 4];
    for network in networks(&device) {
        let x = random([3, 4, 4], 23, &device).require_grad();
        let lines = network.levels[0].reverse.is_some();
        let width = if lines { 12 } else { 6 };
        let lstm = network.forward(x.clone(), None, None).1.cell(0).is_some();
        let part = |seed: u64| -> Vec<Tensor<2>> {
            (0..network.levels.len() as u64).map(|i| random([3, width], seed + i, &device).require_grad()).collect()
        };
        let (h, c) = (part(30), part(40));
        let state = |h: &[Tensor<2>], c: &[Tensor<2>]| State::new(h.to_vec(), lstm.then(|| c.to_vec()));
        let value = |x: Tensor<3>, state: State| {
            let (out, end) = network.forward(x, Some(&state), Some(&lengths));
            let mut total = out.square().sum();
            for layer in 0..network.levels.len() {
                total = total
                    + end.hidden(layer).sum()
                    + end.cell(layer).map_or(end.hidden(layer).sum(), |c| c.square().sum());
            }
            total
        };
        let slopes = value(x.clone(), state(&h, &c)).backward();
        let scalar = |t: Tensor<1>| f64::from(values(t)[0]);
        let e = 1e-2;
        let along = random([3, 4, 4], 24, &device);
        let moved = |by: f64| scalar(value(x.clone().detach() + along.clone() * by, state(&h, &c)));
        let want = (moved(e) - moved(-e)) / (2.0 * e);
        let got = scalar((x.grad(&slopes).expect("tracked") * along.clone()).sum());
        assert!((got - want).abs() < 2e-3 * want.abs().max(1.0), "dx: {got} for {want}");
        for (which, parts) in [("dh", &h), ("dc", &c)] {
            if which == "dc" && !lstm {
                continue;
            }
            let along = random([3, width], 25, &device);
            let moved = |by: f64| {
                let mut other = parts.clone();
                other[0] = other[0].clone().detach() + along.clone() * by;
                scalar(value(x.clone(), if which == "dh" { state(&other, &c) } else { state(&h, &other) }))
            };
            let want = (moved(e) - moved(-e)) / (2.0 * e);
            let got = scalar((parts[0].grad(&slopes).expect("tracked") * along.clone()).sum());
            assert!((got - want).abs() < 2e-3 * want.abs().max(1.0), "{which}: {got} for {want}");
        }
    }
}

#[test]
fn single_steps_are_the_sequence() {
    let device = Device::default().autodiff();
    for config in [RecurrentConfig::lstm(4, 6).with_layers(2), RecurrentConfig::gru(4, 6).with_layers(2)] {
        let network = seeded(config.init(&device), 5, &device);
        let x = random([17, 3, 4], 26, &device).require_grad();
        let (want, end) = network.forward(x.clone(), None, None);
        let y = x.clone().detach().require_grad();
        let (stepper, mut state, mut outputs) = (network.stepper(), None, Vec::new());
        for t in 0..3 {
            let (out, next) = stepper.step(y.clone().narrow(1, t, 1).squeeze_dim(1), state.as_ref());
            outputs.push(out.unsqueeze_dim::<3>(1));
            state = Some(next);
        }
        let out = Tensor::cat(outputs, 1);
        assert_eq!(values(out.clone()), values(want.clone()));
        assert_eq!(values(state.expect("three steps").hidden(1)), values(end.hidden(1)));
        let (slopes, their_slopes) = (out.square().sum().backward(), want.square().sum().backward());
        assert_close("dx", y.grad(&slopes).expect("tracked"), x.grad(&their_slopes).expect("tracked"));
        for level in &network.levels {
            let [a, b] = [&slopes, &their_slopes].map(|slopes| level.forward.weight_hh.grad(slopes).expect("tracked"));
            assert_close("dU", a, b);
        }
    }
}

#[test]
fn the_same_call_gives_the_same_bits() {
    let device = Device::default().autodiff();
    for network in networks(&device) {
        let x = random([33, 6, 4], 27, &device);
        let run = || {
            let (out, _) = network.forward(x.clone(), None, None);
            let slopes = out.clone().square().sum().backward();
            (values(out), values(network.levels[0].forward.weight_ih.grad(&slopes).expect("tracked")))
        };
        assert_eq!(run(), run());
    }
}

#[test]
fn outputs_alone_are_those_of_forward() {
    let device = Device::default();
    for network in networks(&device) {
        let x = random([3, 5, 4], 28, &device);
        assert_eq!(values(network.outputs(x.clone(), None, None)), values(network.forward(x, None, None).0));
    }
}

#[test]
fn dropout_acts_between_layers_and_only_while_training() {
    let device = Device::default().autodiff();
    let config = RecurrentConfig::lstm(4, 6).with_layers(2).with_dropout(0.5);
    let network = config.init(&device);
    let x = random([3, 5, 4], 29, &device);
    let once = values(network.outputs(x.clone(), None, None));
    assert_ne!(once, values(network.outputs(x.clone(), None, None)), "half of the entries are drawn anew");
    let valid = network.valid();
    let x = x.inner();
    assert_eq!(values(valid.outputs(x.clone(), None, None)), values(valid.outputs(x, None, None)));
}

/// The message of a panic.
fn message(f: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let error = std::panic::catch_unwind(f).expect_err("a panic");
    error.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn wrong_shapes_are_named() {
    let device = Device::default();
    let network = || RecurrentConfig::lstm(4, 6).init(&Device::default());
    let x = || Tensor::<3>::zeros([2, 5, 4], &Device::default());
    assert!(
        message(move || drop(network().forward(Tensor::zeros([2, 5, 3], &device), None, None)))
            .contains("[batch, time, 4]")
    );
    assert!(message(move || drop(network().forward(x(), None, Some(&[5])))).contains("2 lengths of at most 5"));
    assert!(message(move || drop(network().forward(x(), None, Some(&[5, 6])))).contains("2 lengths of at most 5"));
    let state = || State::new(vec![Tensor::zeros([2, 5], &Device::default())], None);
    assert!(message(move || drop(network().forward(x(), Some(&state()), None))).contains("[2, 2, 6]"));
    let both = || RecurrentConfig::lstm(4, 6).with_bidirectional(true).init(&Device::default());
    assert!(message(move || drop(both().stepper())).contains("both directions"));
    assert!(message(|| drop(RecurrentConfig::gru(0, 6).init(&Device::default()))).contains("at least 1"));
}
