//! Weights saved by torch load by name and give torch's outputs and gradients.
//!
//! The files are written by `fixtures/recurrent.py`: two layers in both directions over rows of
//! length 5, 2 and 4, and the gradients of the sum of squares of outputs and last states.

use burn::module::{Module, Param};
use burn::store::{ModuleSnapshot, SafetensorsStore};
use burn::tensor::{Device, Tensor};
use parsimax_burn::recurrent::{Recurrent, RecurrentConfig};
use std::path::PathBuf;

/// What torch was given and what it answered.
#[derive(Module, Debug)]
struct Case {
    x: Param<Tensor<3>>,
    dx: Param<Tensor<3>>,
    out: Param<Tensor<3>>,
    hidden: Param<Tensor<3>>,
    cell: Param<Tensor<3>>,
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.safetensors"))
}

fn case(name: &str, device: &Device) -> Case {
    let empty = |shape: [usize; 3]| Param::from_tensor(Tensor::zeros(shape, device));
    let (x, last) = ([3, 5, 3], [4, 3, 4]);
    let mut case = Case { x: empty(x), dx: empty(x), out: empty([3, 5, 8]), hidden: empty(last), cell: empty(last) };
    let mut store = SafetensorsStore::from_file(file(name)).with_key_remapping(r"^case\.", "");
    case.load_from(&mut store).expect("the fixture loads");
    case
}

/// Within 1e−5: both sides compute in single precision, each step within a few 1e−7.
#[track_caller]
fn assert_close<const D: usize>(what: &str, got: Tensor<D>, want: Tensor<D>) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    let [got, want]: [Vec<f32>; 2] =
        [got, want].map(|tensor| tensor.into_data().try_to_vec().expect("single precision"));
    for (got, want) in got.into_iter().zip(want) {
        assert!((got - want).abs() <= 1e-5 * want.abs().max(1.0), "{what}: {got} for {want}");
    }
}

fn matches_torch(name: &str, config: RecurrentConfig) {
    let device = Device::default().autodiff();
    let config = config.with_layers(2).with_bidirectional(true);
    let load = |prefix: &str| -> Recurrent {
        let mut network = config.init(&device);
        network.load_torch(&file(name), prefix).expect("torch's weights load");
        network
    };
    let (network, slopes_of_torch, case) = (load(""), load("grad."), case(name, &device));
    let x = case.x.val().detach().require_grad();
    let (out, state) = network.forward(x.clone(), None, Some(&[5, 2, 4]));
    assert_close("outputs", out.clone(), case.out.val());
    let mut loss = out.square().sum();
    for layer in 0..2 {
        // Torch stacks layers and directions along the first axis; here directions lie side by side.
        let side_by_side = |last: &Param<Tensor<3>>| {
            let [a, b] = [0, 1].map(|d| last.val().narrow(0, 2 * layer + d, 1).squeeze_dim::<2>(0));
            Tensor::cat(vec![a, b], 1)
        };
        assert_close("h", state.hidden(layer), side_by_side(&case.hidden));
        loss = loss + state.hidden(layer).square().sum();
        if let Some(cell) = state.cell(layer) {
            assert_close("c", cell.clone(), side_by_side(&case.cell));
            loss = loss + cell.square().sum();
        }
    }
    let slopes = loss.backward();
    assert_close("dx", x.grad(&slopes).expect("tracked"), case.dx.val());
    for (ours, torch) in network.levels.iter().zip(&slopes_of_torch.levels) {
        let reverse = |level: &parsimax_burn::recurrent::Level| level.reverse.clone().expect("both directions");
        for (ours, torch) in [(ours.forward.clone(), torch.forward.clone()), (reverse(ours), reverse(torch))] {
            assert_close("dW", ours.weight_ih.grad(&slopes).expect("tracked"), torch.weight_ih.val());
            assert_close("dU", ours.weight_hh.grad(&slopes).expect("tracked"), torch.weight_hh.val());
            assert_close("db", ours.bias_ih.grad(&slopes).expect("tracked"), torch.bias_ih.val());
            assert_close("db", ours.bias_hh.grad(&slopes).expect("tracked"), torch.bias_hh.val());
        }
    }
}

#[test]
fn an_lstm_of_torch_gives_the_same_numbers() {
    matches_torch("lstm", RecurrentConfig::lstm(3, 4));
}

#[test]
fn a_gru_of_torch_gives_the_same_numbers() {
    matches_torch("gru", RecurrentConfig::gru(3, 4));
}

#[test]
fn weights_that_do_not_fit_are_an_error() {
    let device = Device::default();
    let mut network = RecurrentConfig::lstm(3, 5).with_layers(2).with_bidirectional(true).init(&device);
    assert!(network.load_torch(&file("lstm"), "").is_err(), "another width");
    let mut network = RecurrentConfig::lstm(3, 4).with_layers(3).with_bidirectional(true).init(&device);
    assert!(network.load_torch(&file("lstm"), "").is_err(), "a layer is missing");
    assert!(network.load_torch(&file("nowhere"), "").is_err(), "no file");
}
