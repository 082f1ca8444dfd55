//! Recurrent layers as modules.

use super::ops::{self, LayerSpec};
use super::weights::{self, Packs};
use crate::panics::fail;
use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn::{Dropout, DropoutConfig, Initializer};
use burn::store::{ModuleSnapshot, SafetensorsStore, SafetensorsStoreError};
use burn::tensor::{Device, Tensor};
use parsimax::kernel::cells::Cell;
use std::path::Path;
use std::sync::Arc;

const NAME: &str = "recurrent";

/// Sizes of a recurrent network; [`lstm`](RecurrentConfig::lstm) and [`gru`](RecurrentConfig::gru) start one.
#[derive(Config, Debug)]
pub struct RecurrentConfig {
    /// Width of the input.
    pub input: usize,
    /// Width of the state.
    pub hidden: usize,
    /// GRU instead of LSTM.
    pub gru: bool,
    /// Layers, each on top of the one before.
    #[config(default = 1)]
    pub layers: usize,
    /// Whether each layer also runs backwards; its output is then twice as wide.
    #[config(default = false)]
    pub bidirectional: bool,
    /// Probability that an entry is dropped between two layers, while training.
    #[config(default = 0.0)]
    pub dropout: f64,
}

impl RecurrentConfig {
    /// One layer of long short-term memory.
    #[must_use]
    pub fn lstm(input: usize, hidden: usize) -> RecurrentConfig {
        RecurrentConfig::new(input, hidden, false)
    }

    /// One layer of gated recurrent units.
    #[must_use]
    pub fn gru(input: usize, hidden: usize) -> RecurrentConfig {
        RecurrentConfig::new(input, hidden, true)
    }

    fn cell(&self) -> Cell {
        if self.gru { Cell::Gru } else { Cell::Lstm }
    }

    /// Makes the network, its weights uniform in `±1/√hidden`.
    ///
    /// # Panics
    /// If a size is 0 or the probability of dropout is not in `[0, 1)`.
    #[must_use]
    pub fn init(&self, device: &Device) -> Recurrent {
        if self.input == 0 || self.hidden == 0 || self.layers == 0 {
            fail(
                NAME,
                &format!(
                    "Input, hidden and layers must be at least 1; they are {}, {} and {}.",
                    self.input, self.hidden, self.layers
                ),
            );
        }
        if !(0.0..1.0).contains(&self.dropout) {
            fail(NAME, &format!("The probability of dropout must be in [0, 1); it is {}.", self.dropout));
        }
        let directions = if self.bidirectional { 2 } else { 1 };
        let width = |layer: usize| if layer == 0 { self.input } else { directions * self.hidden };
        let level = |layer: usize| Level {
            forward: Direction::new(self, width(layer), device),
            reverse: self.bidirectional.then(|| Direction::new(self, width(layer), device)),
        };
        Recurrent {
            levels: (0..self.layers).map(level).collect(),
            dropout: DropoutConfig::new(self.dropout).init(),
            gru: self.gru,
            hidden: self.hidden,
        }
    }
}

/// Weights of one direction of a layer, in torch's names and order of gates (i, f, g, o or r, z, n).
#[derive(Module, Debug)]
pub struct Direction {
    /// `[gates · hidden, input]`
    pub weight_ih: Param<Tensor<2>>,
    /// `[gates · hidden, hidden]`
    pub weight_hh: Param<Tensor<2>>,
    /// `[gates · hidden]`
    pub bias_ih: Param<Tensor<1>>,
    /// `[gates · hidden]`
    pub bias_hh: Param<Tensor<1>>,
}

impl Direction {
    fn new(config: &RecurrentConfig, input: usize, device: &Device) -> Direction {
        let bound = 1.0 / (config.hidden as f64).sqrt();
        let uniform = Initializer::Uniform { min: -bound, max: bound };
        let rows = weights::gates(config.cell()) * config.hidden;
        Direction {
            weight_ih: uniform.init([rows, input], device),
            weight_hh: uniform.init([rows, config.hidden], device),
            bias_ih: uniform.init([rows], device),
            bias_hh: uniform.init([rows], device),
        }
    }
}

/// One layer, in one or both directions.
#[derive(Module, Debug)]
pub struct Level {
    /// From the first step to the last.
    pub forward: Direction,
    /// From the last step to the first.
    pub reverse: Option<Direction>,
}

impl Level {
    fn directions(&self) -> usize {
        1 + usize::from(self.reverse.is_some())
    }

    fn run(&self, x: Tensor<3>, state: Tensor<3>, spec: LayerSpec) -> Tensor<3> {
        let one = &self.forward;
        let (weights, biases) = match &self.reverse {
            None => ([one.weight_ih.val(), one.weight_hh.val()], [one.bias_ih.val(), one.bias_hh.val()]),
            Some(two) => (
                [(&one.weight_ih, &two.weight_ih), (&one.weight_hh, &two.weight_hh)]
                    .map(|(a, b)| Tensor::cat(vec![a.val(), b.val()], 0)),
                [(&one.bias_ih, &two.bias_ih), (&one.bias_hh, &two.bias_hh)]
                    .map(|(a, b)| Tensor::cat(vec![a.val(), b.val()], 0)),
            ),
        };
        ops::run(x, state, weights, biases, spec)
    }
}

/// Recurrent layers on top of each other. Made by [`RecurrentConfig`].
#[derive(Module, Debug)]
pub struct Recurrent {
    /// The layers, lowest first.
    pub levels: Vec<Level>,
    dropout: Dropout,
    gru: bool,
    hidden: usize,
}

/// The states of all layers after (or before) a step.
#[derive(Clone, Debug)]
pub struct State {
    /// Of each layer `[batch, lines, directions · hidden]`; the lines are `h` and, for an LSTM, `c`.
    layers: Vec<Tensor<3>>,
}

impl State {
    /// States from `h` and, for an LSTM, `c` of each layer, `[batch, directions · hidden]`.
    #[must_use]
    pub fn new(hidden: Vec<Tensor<2>>, cell: Option<Vec<Tensor<2>>>) -> State {
        let line = |tensor: Tensor<2>| tensor.unsqueeze_dim::<3>(1);
        let layers = match cell {
            None => hidden.into_iter().map(line).collect(),
            Some(cell) => {
                let both = hidden.into_iter().zip(cell);
                both.map(|(h, c)| Tensor::cat(vec![line(h), line(c)], 1)).collect()
            }
        };
        State { layers }
    }

    /// `h` of a layer, `[batch, directions · hidden]`.
    #[must_use]
    pub fn hidden(&self, layer: usize) -> Tensor<2> {
        self.layers[layer].clone().narrow(1, 0, 1).squeeze_dim(1)
    }

    /// `c` of a layer of an LSTM, `[batch, directions · hidden]`; none for a GRU.
    #[must_use]
    pub fn cell(&self, layer: usize) -> Option<Tensor<2>> {
        let tensor = &self.layers[layer];
        (tensor.dims()[1] == 2).then(|| tensor.clone().narrow(1, 1, 1).squeeze_dim(1))
    }
}

impl Recurrent {
    fn cell(&self) -> Cell {
        if self.gru { Cell::Gru } else { Cell::Lstm }
    }

    fn state_lines(&self) -> usize {
        if self.gru { 1 } else { 2 }
    }

    /// Runs over sequences `[batch, time, input]` and gives the outputs
    /// `[batch, time, directions · hidden]` and the last states.
    ///
    /// With `lengths`, row `n` ends after `lengths[n]` steps: its outputs behind that are 0, its
    /// last state is that of its last step, the reversed direction starts there, and what stands
    /// behind has no influence and no gradient.
    ///
    /// # Panics
    /// If a shape or a length does not fit.
    #[must_use]
    pub fn forward(&self, x: Tensor<3>, state: Option<&State>, lengths: Option<&[usize]>) -> (Tensor<3>, State) {
        let [_, time, _] = x.dims();
        let mut states = Vec::with_capacity(self.levels.len());
        let out = self.layers(x, state, lengths, true, |out| {
            states.push(out.clone().narrow(1, time, self.state_lines()));
            out.narrow(1, 0, time)
        });
        (out, State { layers: states })
    }

    /// The outputs alone, for which less is recorded.
    ///
    /// # Panics
    /// As [`forward`](Recurrent::forward).
    #[must_use]
    pub fn outputs(&self, x: Tensor<3>, state: Option<&State>, lengths: Option<&[usize]>) -> Tensor<3> {
        self.layers(x, state, lengths, false, |out| out)
    }

    fn layers(
        &self,
        mut x: Tensor<3>,
        state: Option<&State>,
        lengths: Option<&[usize]>,
        states: bool,
        mut each: impl FnMut(Tensor<3>) -> Tensor<3>,
    ) -> Tensor<3> {
        let lengths = self.check(&x, state, lengths);
        let [batch, _, _] = x.dims();
        for (i, level) in self.levels.iter().enumerate() {
            let start = self.start(state, i, batch, &x.device());
            let spec = LayerSpec::new(self.cell(), level.directions(), states, lengths.clone(), Arc::default());
            let input = if i > 0 { self.dropout.forward(x) } else { x };
            x = each(level.run(input, start, spec));
        }
        x
    }

    /// The state of a layer, or zeros.
    fn start(&self, state: Option<&State>, layer: usize, batch: usize, device: &Device) -> Tensor<3> {
        let width = self.levels[layer].directions() * self.hidden;
        match state {
            Some(state) => state.layers[layer].clone(),
            None => Tensor::zeros([batch, self.state_lines(), width], device),
        }
    }

    /// Prepares single steps that share the packing of the weights, as a decoder takes them.
    ///
    /// The weights are those of this moment: make a new one after each change of the weights.
    ///
    /// # Panics
    /// If the network is bidirectional, which has no single steps.
    #[must_use]
    pub fn stepper(&self) -> Stepper<'_> {
        if self.levels.iter().any(|level| level.reverse.is_some()) {
            fail(NAME, "A network that runs in both directions has no single steps.");
        }
        Stepper { network: self, packs: self.levels.iter().map(|_| Arc::default()).collect() }
    }

    /// Checks shapes; the lengths, or the full length of every row.
    fn check(&self, x: &Tensor<3>, state: Option<&State>, lengths: Option<&[usize]>) -> Arc<Vec<usize>> {
        let [batch, time, width] = x.dims();
        let [_, input] = self.levels[0].forward.weight_ih.dims();
        if width != input {
            fail(NAME, &format!("The input must be [batch, time, {input}]; it is {:?}.", x.dims()));
        }
        for (i, level) in self.levels.iter().enumerate() {
            let want = [batch, self.state_lines(), level.directions() * self.hidden];
            let Some(state) = state else { break };
            let got = state.layers.get(i).map(Tensor::dims);
            if got != Some(want) || state.layers.len() != self.levels.len() {
                fail(
                    NAME,
                    &format!("The state of layer {i} of {} must be {want:?}; it is {got:?}.", self.levels.len()),
                );
            }
        }
        let Some(lengths) = lengths else { return Arc::new(vec![time; batch]) };
        if lengths.len() != batch || lengths.iter().any(|&length| length > time) {
            fail(NAME, &format!("There must be {batch} lengths of at most {time}; they are {lengths:?}."));
        }
        Arc::new(lengths.to_vec())
    }

    /// Loads the weights that `torch.nn.LSTM` or `torch.nn.GRU` saved as safetensors, by the names
    /// of its `state_dict`: `weight_ih_l0`, `weight_hh_l0`, `bias_ih_l0`, `bias_hh_l0`, the same with
    /// `_reverse`, and so on for further layers; `prefix` stands before them, as `"encoder.rnn."`.
    ///
    /// # Errors
    /// If the file cannot be read, or a weight is missing or of another shape.
    pub fn load_torch(&mut self, file: &Path, prefix: &str) -> Result<(), SafetensorsStoreError> {
        let escaped: String =
            prefix.chars().flat_map(|c| if c.is_alphanumeric() { vec![c] } else { vec!['\\', c] }).collect();
        let name = format!(r"^{escaped}((?:weight|bias)_(?:ih|hh))_l(\d+)");
        let mut store = SafetensorsStore::from_file(file)
            .with_key_remapping(format!("{name}_reverse$"), "levels.$2.reverse.$1")
            .with_key_remapping(format!("{name}$"), "levels.$2.forward.$1");
        self.load_from(&mut store).map(|_| ())
    }
}

/// Takes single steps; made by [`Recurrent::stepper`].
#[derive(Debug)]
pub struct Stepper<'a> {
    network: &'a Recurrent,
    packs: Vec<Arc<Packs>>,
}

impl Stepper<'_> {
    /// One step: `[batch, input]` and the states before to `[batch, hidden]` and the states after.
    ///
    /// # Panics
    /// If a shape does not fit.
    #[must_use]
    pub fn step(&self, x: Tensor<2>, state: Option<&State>) -> (Tensor<2>, State) {
        let network = self.network;
        let mut x: Tensor<3> = x.unsqueeze_dim(1);
        let lengths = network.check(&x, state, None);
        let mut layers = Vec::with_capacity(network.levels.len());
        let [batch, _, _] = x.dims();
        for (i, level) in network.levels.iter().enumerate() {
            let start = network.start(state, i, batch, &x.device());
            let spec = LayerSpec::new(network.cell(), 1, true, lengths.clone(), self.packs[i].clone());
            let input = if i > 0 { network.dropout.forward(x) } else { x };
            let out = level.run(input, start, spec);
            layers.push(out.clone().narrow(1, 1, network.state_lines()));
            x = out.narrow(1, 0, 1);
        }
        (x.squeeze_dim(1), State { layers })
    }
}
