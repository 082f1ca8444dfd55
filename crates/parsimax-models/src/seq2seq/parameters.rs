//! The numbers that are learnt, in one piece of memory, and where each matrix lies in it.

use super::Config;
use fastrand::Rng;

/// A matrix, or a vector as a matrix of one column, in the parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    start: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Slot {
    pub(super) fn of(self, values: &[f32]) -> &[f32] {
        &values[self.start..self.start + self.rows * self.columns]
    }

    pub(super) fn of_mut(self, values: &mut [f32]) -> &mut [f32] {
        &mut values[self.start..self.start + self.rows * self.columns]
    }
}

/// An LSTM of one layer and direction; gates in the order i, f, g, o.
#[derive(Debug, Clone, Copy)]
pub(super) struct LstmSlots {
    pub(super) input: Slot,
    pub(super) hidden: Slot,
    pub(super) biases: [Slot; 2],
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) source: Slot,
    pub(super) target: Slot,
    /// Layer by layer, forwards and backwards.
    pub(super) encoder: Vec<[LstmSlots; 2]>,
    pub(super) decoder: Vec<LstmSlots>,
    pub(super) keys: Slot,
    pub(super) combine: Slot,
    pub(super) output: Slot,
    pub(super) output_bias: Slot,
    /// Name and place of all of them, in order.
    pub(super) named: Vec<(String, Slot)>,
}

struct Builder {
    named: Vec<(String, Slot)>,
    next: usize,
}

impl Builder {
    fn add(&mut self, name: &str, rows: usize, columns: usize) -> Slot {
        let slot = Slot { start: self.next, rows, columns };
        self.next += rows * columns;
        self.named.push((name.to_owned(), slot));
        slot
    }

    fn lstm(&mut self, prefix: &str, suffix: &str, input: usize, hidden: usize) -> LstmSlots {
        LstmSlots {
            input: self.add(&format!("{prefix}.weight_ih_{suffix}"), 4 * hidden, input),
            hidden: self.add(&format!("{prefix}.weight_hh_{suffix}"), 4 * hidden, hidden),
            biases: ["ih", "hh"].map(|kind| self.add(&format!("{prefix}.bias_{kind}_{suffix}"), 4 * hidden, 1)),
        }
    }
}

impl Slots {
    pub(super) fn new(config: &Config) -> Self {
        let (size, half) = (config.size, config.size / 2);
        let mut b = Builder { named: Vec::new(), next: 0 };
        let source = b.add("encoder.embedding.weight", config.source_symbols, size);
        let target = b.add("decoder.embedding.weight", config.target_symbols, size);
        let encoder = (0..config.layers)
            .map(|l| ["", "_reverse"].map(|way| b.lstm("encoder.rnn", &format!("l{l}{way}"), size, half)))
            .collect();
        let decoder = (0..config.layers)
            .map(|l| b.lstm("decoder.rnn", &format!("l{l}"), if l == 0 { 2 * size } else { size }, size))
            .collect();
        let keys = b.add("attention.linear_in.weight", size, size);
        let combine = b.add("attention.linear_out.weight", size, 2 * size);
        let output = b.add("output.weight", config.target_symbols, size);
        let output_bias = b.add("output.bias", config.target_symbols, 1);
        Self { source, target, encoder, decoder, keys, combine, output, output_bias, named: b.named }
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.named.iter().map(|(_, slot)| slot.rows * slot.columns).sum()
    }

    /// Embeddings are normal, so that symbols can be told apart from the first step; everything else is uniform in
    /// ±1/√n, where n is the width of a state for recurrent layers and of the input for the others.
    pub(super) fn random(&self, config: &Config, seed: u64) -> Vec<f32> {
        let mut random = Rng::with_seed(seed);
        let mut values = Vec::with_capacity(self.count());
        for (name, slot) in &self.named {
            let count = slot.rows * slot.columns;
            if name.ends_with("embedding.weight") {
                values.extend((0..count).map(|_| normal(&mut random)));
                continue;
            }
            let width = match name.as_str() {
                name if name.contains(".rnn.") => slot.rows / 4,
                "output.bias" => config.size,
                _ => slot.columns,
            };
            let bound = 1.0 / (width as f32).sqrt();
            values.extend((0..count).map(|_| (2.0 * random.f32() - 1.0) * bound));
        }
        values
    }
}

/// A standard normal number, by Box and Muller.
fn normal(random: &mut Rng) -> f32 {
    let (u, v) = (1.0 - random.f64(), random.f64());
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}
