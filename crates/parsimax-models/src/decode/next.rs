//! What may follow a prefix.

use super::DecodeError;

/// A symbol that may come next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry {
    /// The symbol.
    pub symbol: u32,
    /// Its probability, above 0.
    pub probability: f64,
    /// The logarithm of that, at most 0.
    pub log_probability: f64,
}

/// The non-zero part of a next-symbol distribution, most probable symbol first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Next {
    entries: Vec<Entry>,
}

/// Probabilities in single precision may add up to a little more than 1, and one of them may exceed it.
const ABOVE_ONE: f64 = 1e-4;

impl Next {
    /// From symbols with probabilities. Zeros are left out; a symbol must not come twice.
    ///
    /// # Errors
    /// If a probability is negative, above 1 or not a number.
    pub fn new(probabilities: impl IntoIterator<Item = (u32, f64)>) -> Result<Self, DecodeError> {
        let mut entries = Vec::new();
        for (symbol, value) in probabilities {
            if !(0.0..=1.0 + ABOVE_ONE).contains(&value) {
                return Err(DecodeError::NotAProbability { symbol, value });
            }
            if value > 0.0 {
                let probability = value.min(1.0);
                entries.push(Entry { symbol, probability, log_probability: probability.ln() });
            }
        }
        entries.sort_unstable_by(|a, b| b.probability.total_cmp(&a.probability).then(a.symbol.cmp(&b.symbol)));
        Ok(Self { entries })
    }

    /// From a dense row of probabilities, symbol by symbol.
    ///
    /// # Errors
    /// As [`new`](Next::new).
    pub fn from_row(row: &[f32]) -> Result<Self, DecodeError> {
        // The comparison lets NaN through, so that it is reported.
        let present = row.iter().enumerate().filter(|(_, p)| **p != 0.0);
        Self::new(present.map(|(symbol, p)| (symbol as u32, f64::from(*p))))
    }

    /// The entries, most probable first; equals in the order of their symbols.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_and_zeros_left_out() {
        let next = Next::from_row(&[0.25, 0.0, 0.5, 0.25]).expect("a distribution");
        let symbols: Vec<u32> = next.entries().iter().map(|e| e.symbol).collect();
        assert_eq!(symbols, [2, 0, 3]);
        assert_eq!(next.entries()[0].log_probability, 0.5f64.ln());
    }

    #[test]
    fn a_probability_above_one_by_rounding_counts_as_one() {
        let next = Next::from_row(&[1.000_000_1]).expect("a distribution");
        assert_eq!(next.entries()[0].log_probability, 0.0);
    }

    #[test]
    fn what_is_no_probability_is_refused_by_name() {
        for bad in [f32::NAN, -0.1, 1.5, f32::INFINITY] {
            let error = Next::from_row(&[0.5, bad]).expect_err("no probability");
            assert!(error.to_string().contains("symbol 1"), "{error}");
        }
    }
}
