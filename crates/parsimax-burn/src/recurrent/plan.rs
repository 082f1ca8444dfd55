//! Which rows of a batch are still running at which step, and which thread takes which rows.
//!
//! The rows of a part are sorted by falling length, so that those still running at a step are the
//! first ones, and the numbers of a step lie together: row `n` of step `s` is line
//! `offsets[s] + n`. Padding takes neither time nor memory. A reversed direction runs through the
//! same plan; only the place in the sequence that a step stands for differs.

/// The rows that one thread takes through the whole sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Places in the batch, by falling length.
    pub(crate) rows: Vec<usize>,
    /// Their lengths.
    pub(crate) lengths: Vec<usize>,
    /// First line of each step, and the number of lines.
    pub(crate) offsets: Vec<usize>,
}

impl Part {
    fn new(rows: Vec<usize>, lengths: &[usize]) -> Part {
        let lengths: Vec<usize> = rows.iter().map(|&row| lengths[row]).collect();
        let mut offsets = vec![0];
        for step in 0..lengths.first().copied().unwrap_or(0) {
            offsets.push(offsets[step] + lengths.iter().take_while(|&&length| length > step).count());
        }
        Part { rows, lengths, offsets }
    }

    /// Steps of the longest row.
    pub(crate) fn steps(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Rows that run at a step; none behind the last.
    pub(crate) fn running(&self, step: usize) -> usize {
        if step < self.steps() { self.offsets[step + 1] - self.offsets[step] } else { 0 }
    }

    /// Lines of all steps.
    pub(crate) fn lines(&self) -> usize {
        self.offsets[self.steps()]
    }

    /// The place in the sequence of row `n` at a step.
    pub(crate) fn time(&self, n: usize, step: usize, reversed: bool) -> usize {
        if reversed { self.lengths[n] - 1 - step } else { step }
    }
}

/// A part for less than this many rows is not worth a thread.
const ROWS_PER_THREAD: usize = 8;

/// Deals the rows out to at most `threads` parts of nearly equal work.
pub(crate) fn parts(lengths: &[usize], threads: usize) -> Vec<Part> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| (std::cmp::Reverse(lengths[row]), row));
    let count = threads.min(lengths.len() / ROWS_PER_THREAD).max(1);
    let deal = |part: usize| order.iter().copied().skip(part).step_by(count).collect();
    (0..count).map(|part| Part::new(deal(part), lengths)).collect()
}

/// Splits `data`, one block of `size` for each row of the batch, into the blocks of each part, in
/// the order of its rows.
pub(crate) fn blocks<'a>(parts: &[Part], data: &'a mut [f32], size: usize) -> Vec<Vec<&'a mut [f32]>> {
    let mut all: Vec<Option<&mut [f32]>> = if size == 0 {
        parts.iter().flat_map(|part| &part.rows).map(|_| Some(&mut [][..])).collect()
    } else {
        data.chunks_exact_mut(size).map(Some).collect()
    };
    let mut take = |row: usize| all[row].take().expect("each row belongs to one part");
    parts.iter().map(|part| part.rows.iter().map(|&row| take(row)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_dealt_by_falling_length() {
        let part = &parts(&[2, 0, 3, 1], 2)[0];
        // Fewer than eight rows a thread: one part. Lengths 3, 2, 1, 0 run 3, 2 and 1 rows.
        assert_eq!(part, &Part { rows: vec![2, 0, 3, 1], lengths: vec![3, 2, 1, 0], offsets: vec![0, 3, 5, 6] });
        assert_eq!((part.steps(), part.lines(), part.running(1), part.running(3)), (3, 6, 2, 0));
        assert_eq!((part.time(0, 0, true), part.time(1, 0, true), part.time(0, 2, false)), (2, 1, 2));
    }

    #[test]
    fn every_row_belongs_to_one_part() {
        let mut rng = fastrand::Rng::with_seed(71);
        for batch in [1, 7, 16, 33] {
            let lengths: Vec<usize> = (0..batch).map(|_| rng.usize(0..9)).collect();
            let parts = parts(&lengths, 3);
            let mut rows: Vec<usize> = parts.iter().flat_map(|part| part.rows.clone()).collect();
            rows.sort_unstable();
            assert_eq!(rows, (0..batch).collect::<Vec<_>>());
            assert_eq!(parts.iter().map(Part::lines).sum::<usize>(), lengths.iter().sum::<usize>());
        }
    }
}
