//! Sequences of several lengths, time by time and without padding.

use std::ops::Range;

/// The rows of a batch over time, longest first: at time `t` the first `active[t]` of them are still there. Numbers are
/// kept time by time, those of time `t` in rows `at(t)`, and nothing is kept for what is not there.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    lengths: Vec<usize>,
    active: Vec<usize>,
    /// Where each time starts, and where the last one ends.
    starts: Vec<usize>,
}

impl Extent {
    /// Of rows of these lengths, longest first.
    pub(super) fn new(lengths: Vec<usize>) -> Self {
        let times = lengths.first().copied().unwrap_or(0);
        let active: Vec<usize> = (0..times).map(|t| lengths.partition_point(|length| *length > t)).collect();
        let mut starts = vec![0; times + 1];
        for t in 0..times {
            starts[t + 1] = starts[t] + active[t];
        }
        Self { lengths, active, starts }
    }

    /// Lengths of the rows, longest first.
    pub(super) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// How many rows there are.
    pub(super) fn batch(&self) -> usize {
        self.lengths.len()
    }

    /// The longest length.
    pub(super) fn times(&self) -> usize {
        self.active.len()
    }

    /// Rows that are there at a time; none after the end.
    pub(super) fn active(&self, t: usize) -> usize {
        self.active.get(t).copied().unwrap_or(0)
    }

    /// All entries: the sum of lengths.
    pub(super) fn entries(&self) -> usize {
        self.starts[self.times()]
    }

    /// Entries of a time.
    pub(super) fn at(&self, t: usize) -> Range<usize> {
        self.starts[t]..self.starts[t + 1]
    }

    /// Where the sequence of each row starts if they are kept row by row.
    pub(super) fn row_starts(&self) -> Vec<usize> {
        let sum = |next: &mut usize, length: &usize| Some(std::mem::replace(next, *next + length));
        self.lengths.iter().scan(0, sum).collect()
    }

    /// For each entry time by time, its place row by row.
    fn places(&self) -> impl Iterator<Item = usize> {
        let starts = self.row_starts();
        (0..self.times()).flat_map(move |t| starts[..self.active[t]].iter().map(move |s| s + t).collect::<Vec<_>>())
    }

    /// From time by time to row by row, `size` numbers an entry.
    pub(super) fn to_rows(&self, from: &[f32], to: &mut [f32], size: usize) {
        for (entry, place) in from.chunks_exact(size).zip(self.places()) {
            to[place * size..][..size].copy_from_slice(entry);
        }
    }

    /// The way back.
    pub(super) fn to_times(&self, from: &[f32], to: &mut [f32], size: usize) {
        for (entry, place) in to.chunks_exact_mut(size).zip(self.places()) {
            entry.copy_from_slice(&from[place * size..][..size]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_those_of_the_lengths_both_ways() {
        let extent = Extent::new(vec![3, 2, 2, 1]);
        assert_eq!((0..4).map(|t| extent.active(t)).collect::<Vec<_>>(), [4, 3, 1, 0]);
        assert_eq!((extent.entries(), extent.at(1)), (8, 4..7));
        // Entry (row, time) is 10·row + time.
        let by_time = [0.0, 10.0, 20.0, 30.0, 1.0, 11.0, 21.0, 2.0];
        let (mut by_row, mut back) = ([0.0; 8], [0.0; 8]);
        extent.to_rows(&by_time, &mut by_row, 1);
        assert_eq!(by_row, [0.0, 1.0, 2.0, 10.0, 11.0, 20.0, 21.0, 30.0]);
        extent.to_times(&by_row, &mut back, 1);
        assert_eq!(back, by_time);
        assert_eq!(Extent::new(Vec::new()).entries(), 0);
    }
}
