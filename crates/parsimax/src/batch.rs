//! What a sweep over the rows of an array needs, whoever makes it: shapes checked once, entries that take
//! part, chunks, threads.
//!
//! Rows are cut into chunks whose size depends on the row length alone and results come back in row
//! order, so nothing that is computed here depends on the number of threads. How long the first chunks
//! take tells whether others are asked to help: that depends on mapping, rows and processor.

use crate::view::RowLayout;
use crate::{Error, Float, Result, View, ViewMut, transpose};
use std::ops::Range;

/// Axis, shapes and mask of a call, checked.
pub(crate) struct Plan<'a> {
    operation: &'static str,
    shape: Vec<usize>,
    /// The axis, counted from the front.
    pub(crate) axis: usize,
    /// The rows of the scores.
    pub(crate) z: RowLayout,
    mask: Option<(&'a [bool], RowLayout)>,
    #[cfg_attr(not(feature = "rayon"), expect(dead_code, reason = "one thread is all there is"))]
    threads: bool,
    /// Nanoseconds that an entry takes, at least; 0 if nobody can tell.
    #[cfg_attr(not(feature = "rayon"), expect(dead_code, reason = "one thread is all there is"))]
    cost: f64,
}

impl<'a> Plan<'a> {
    /// Checks axis and mask against the scores.
    pub(crate) fn new<T>(
        operation: &'static str,
        z: &View<'_, T>,
        axis: isize,
        mask: Option<&View<'a, bool>>,
        threads: bool,
    ) -> Result<Self> {
        let shape = z.shape();
        let axes = shape.len() as isize;
        let from_front = if axis < 0 { axis + axes } else { axis };
        if from_front < 0 || from_front >= axes {
            return Err(Error::Shape {
                operation,
                what: "axis",
                expected: format!("between {} and {} for scores of shape {shape:?}", -axes, axes - 1),
                got: axis.to_string(),
            });
        }
        let axis = from_front as usize;
        if shape[axis] > u32::MAX as usize {
            return Err(Error::Shape {
                operation,
                what: "a row",
                expected: format!("at most {} entries long", u32::MAX),
                got: shape[axis].to_string(),
            });
        }
        let plan =
            Self { operation, shape: shape.to_vec(), axis, z: z.layout.rows(axis), mask: None, threads, cost: 0.0 };
        let Some(mask) = mask else { return Ok(plan) };
        plan.fits("the mask", mask.shape())?;
        Ok(Self { mask: Some((mask.data, mask.layout.rows(axis))), ..plan })
    }

    /// The same with what an entry takes, in nanoseconds, at least.
    pub(crate) fn at_cost(self, cost: f64) -> Self {
        Self { cost, ..self }
    }

    /// The same on the caller's thread alone.
    pub(crate) fn single_threaded(self) -> Self {
        Self { threads: false, ..self }
    }

    /// Checks the shape of another argument.
    pub(crate) fn fits(&self, what: &'static str, shape: &[usize]) -> Result<()> {
        if shape == self.shape {
            return Ok(());
        }
        Err(Error::Shape {
            operation: self.operation,
            what,
            expected: format!("of the scores' shape {:?}", self.shape),
            got: format!("{shape:?}"),
        })
    }

    /// Whether a mask was given.
    pub(crate) fn is_masked(&self) -> bool {
        self.mask.is_some()
    }

    /// Whether entry `i` of a row takes part, as far as the mask says.
    pub(crate) fn mask(&self, row: usize) -> impl Fn(usize) -> bool {
        let start = self.mask.as_ref().map(|(data, rows)| (*data, rows.position(row)));
        move |i| start.as_ref().is_none_or(|(data, (first, step))| data[(first + i as isize * step) as usize])
    }

    /// The error of a score that is NaN or +∞.
    pub(crate) fn bad_score(&self, row: usize, index: usize, value: f64) -> Error {
        Error::Score { operation: self.operation, row, index, value }
    }

    /// Rows per chunk: as many floats as stay in a cache beside what is computed from them. Rows come in sixteens, as the
    /// kernels take them.
    fn chunk_rows(&self) -> usize {
        let len = self.z.len.max(1);
        let floats = if len > 1024 { 65_536 } else { 16_384 };
        let rows = (floats / len).clamp(1, 1 << 16);
        if rows < 16 { rows } else { rows.next_multiple_of(16) }
    }

    /// Runs `work` over chunks of rows and returns the results in order.
    pub(crate) fn map<R: Send>(&self, work: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
        self.each_row(&mut vec![(); self.z.count()], |rows, _| work(rows))
    }

    /// The same with a place for a number of every row.
    pub(crate) fn each_row<N: Send, R: Send>(
        &self,
        numbers: &mut [N],
        work: impl Fn(Range<usize>, &mut [N]) -> R + Sync,
    ) -> Vec<R> {
        self.chunks(0, 1, numbers, &work)
    }

    /// Runs `work` over pieces of the work that somebody else has cut, and returns the results in order.
    pub(crate) fn each<J: Send, R: Send>(&self, jobs: &mut [J], work: impl Fn(&mut J) -> R + Sync) -> Vec<R> {
        #[cfg(feature = "rayon")]
        if self.threads {
            let expected = self.cost * (self.z.count() * self.z.len) as f64;
            return threads::run(jobs, 1, expected, &|_, job: &mut [J]| work(&mut job[0]));
        }
        jobs.iter_mut().map(work).collect()
    }

    /// Runs `work` over chunks of rows together with the place of their result, packed, and returns what
    /// it returns in order.
    pub(crate) fn write<T: Float, R: Send>(
        &self,
        out: ViewMut<'_, T>,
        work: impl Fn(Range<usize>, &mut [T]) -> R + Sync,
    ) -> Vec<R> {
        let (count, len) = (self.z.count(), self.z.len);
        if len == 0 {
            return self.map(|range| work(range, &mut []));
        }
        let target = out.layout.rows(self.axis);
        if target.is_packed() {
            return self.chunks(0, len, target.packed_mut(out.data), &work);
        }
        if len * size_of::<T>() > BLOCK
            && let Some((order, across)) = target.interleaved()
        {
            return self.write_across(target.packed_mut(out.data), &order, across, &work);
        }
        if len * size_of::<T>() > BLOCK && target.is_contiguous() {
            let place = |row| target.position(row).0 as usize;
            return (0..count).map(|row| work(row..row + 1, &mut out.data[place(row)..place(row) + len])).collect();
        }
        // Rows that are not contiguous are computed block by block into packed memory and put in place by
        // the caller's thread.
        let chunks = BLOCK / (self.chunk_rows() * len * size_of::<T>());
        let block = chunks.max(1) * self.chunk_rows();
        let mut packed = vec![T::default(); block.min(count) * len];
        let mut results = Vec::new();
        for first in (0..count).step_by(block) {
            let packed = &mut packed[..block.min(count - first) * len];
            results.extend(self.chunks(first, len, packed, &work));
            for (row, values) in packed.chunks_exact(len).enumerate() {
                target.write(out.data, first + row, values);
            }
        }
        results
    }

    /// Whether results would be copied in proportion to a row.
    pub(crate) fn would_copy<T>(&self, target: &RowLayout) -> bool {
        let is_long = self.z.len * size_of::<T>() > BLOCK;
        is_long && !target.is_contiguous() && target.interleaved().is_none()
    }

    /// The same where long rows lie across each other, `across` of them side by side: each is computed as if it lay there
    /// by itself, and all are turned in the end. Place `i` has row `order[i]`.
    fn write_across<T: Float, R: Send>(
        &self,
        data: &mut [T],
        order: &[usize],
        across: usize,
        work: &(impl Fn(Range<usize>, &mut [T]) -> R + Sync),
    ) -> Vec<R> {
        let len = self.z.len;
        // A chunk has no more than one row of this length.
        let results = self.chunks(0, len, data, &|place: Range<usize>, part: &mut [T]| {
            work(order[place.start]..order[place.start] + 1, part)
        });
        for rows in data.chunks_exact_mut(across * len) {
            transpose::in_place(rows, across, len, BLOCK / size_of::<T>());
        }
        let mut results: Vec<_> = order.iter().zip(results).collect();
        results.sort_unstable_by_key(|(row, _)| **row);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Runs `work` over chunks of the rows from `first` on, each with its part of `out`, which has `len` entries a row.
    fn chunks<T: Send, R: Send>(
        &self,
        first: usize,
        len: usize,
        out: &mut [T],
        work: &(impl Fn(Range<usize>, &mut [T]) -> R + Sync),
    ) -> Vec<R> {
        let size = self.chunk_rows() * len;
        let run = |chunk: usize, part: &mut [T]| {
            let start = first + chunk * self.chunk_rows();
            work(start..start + part.len() / len, part)
        };
        #[cfg(feature = "rayon")]
        if self.threads {
            let expected = self.cost * (out.len() / len * self.z.len) as f64;
            return threads::run(out, size, expected, &run);
        }
        out.chunks_mut(size).enumerate().map(|(chunk, part)| run(chunk, part)).collect()
    }
}

/// Bytes of rows that are computed before they are put in place, if they are not contiguous there.
const BLOCK: usize = 768 << 10;

/// Chunks of an array on several threads: the caller's and those of the pool.
#[cfg(feature = "rayon")]
mod threads {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Instant;

    /// Nanoseconds of work left from which on it pays to ask others: waking them takes some ten thousand.
    const WORTH: usize = 60_000;

    /// Nanoseconds that are expected from which on nobody waits for the first chunk to tell.
    const CERTAIN: f64 = 120_000.0;

    /// How often the caller looks whether the others are done before it sleeps: waking up takes longer than they do. After
    /// the first looks it lets others have the processor: they may be those that it waits for.
    const LOOKS: usize = 1280;
    const SPINS: usize = 1024;

    /// Runs `work` over chunks of `size` entries, which is expected to take so many nanoseconds at least, and returns
    /// what it returns in their order.
    pub(super) fn run<T: Send, R: Send>(
        entries: &mut [T],
        size: usize,
        expected: f64,
        work: &(impl Fn(usize, &mut [T]) -> R + Sync),
    ) -> Vec<R> {
        let (is_certain, start) = (expected >= CERTAIN, Instant::now());
        let mut chunks = Chunks { entries, size, next: 0 };
        let mut results = Vec::with_capacity(chunks.count());
        while chunks.count() > 0 {
            let left = start.elapsed().as_nanos() as usize * chunks.count();
            if chunks.count() > 1 && (is_certain || left > WORTH * results.len() && !results.is_empty()) {
                let parties = rayon::current_num_threads().min(chunks.count());
                results.extend(share(chunks, parties, work));
                break;
            }
            results.extend(chunks.take(1).map(|(chunk, part)| work(chunk, part)));
        }
        results
    }

    /// Chunks that nobody has begun.
    struct Chunks<'a, T> {
        entries: &'a mut [T],
        size: usize,
        next: usize,
    }

    impl<'a, T> Chunks<'a, T> {
        fn count(&self) -> usize {
            self.entries.len().div_ceil(self.size)
        }

        /// The number of the first and the entries of some of them.
        fn take(&mut self, count: usize) -> Option<(usize, &'a mut [T])> {
            let first = self.next;
            let len = self.entries.len().min(count * self.size);
            let part;
            (part, self.entries) = std::mem::take(&mut self.entries).split_at_mut(len);
            self.next += count;
            (len > 0).then_some((first, part))
        }
    }

    /// The same with the help of others. Each takes a part of what is left, large at first, until nothing is: whoever
    /// comes late finds less to do.
    fn share<T: Send, R: Send>(
        chunks: Chunks<'_, T>,
        parties: usize,
        work: &(impl Fn(usize, &mut [T]) -> R + Sync),
    ) -> Vec<R> {
        let size = chunks.size;
        let (chunks, done, gone) = (Mutex::new(chunks), Mutex::new(Vec::new()), AtomicUsize::new(0));
        let next = || {
            let mut chunks = lock(&chunks);
            let count = chunks.count() / (2 * parties);
            chunks.take(count.max(1))
        };
        let labour = || {
            let mut mine = Vec::new();
            while let Some((first, part)) = next() {
                mine.extend((first..).zip(part.chunks_mut(size)).map(|(chunk, part)| (chunk, work(chunk, part))));
            }
            lock(&done).extend(mine);
            gone.fetch_add(1, Ordering::Release);
        };
        rayon::in_place_scope(|scope| {
            (1..parties).for_each(|_| scope.spawn(|_| labour()));
            labour();
            // One of the pool finds something else to do, or does what it has asked for itself.
            let looks = if rayon::current_thread_index().is_some() { 0 } else { LOOKS };
            let _ = (0..looks).find(|look| {
                let wait = if *look < SPINS { std::hint::spin_loop } else { std::thread::yield_now };
                wait();
                gone.load(Ordering::Acquire) == parties
            });
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_unstable_by_key(|(chunk, _)| *chunk);
        done.into_iter().map(|(_, result)| result).collect()
    }

    /// Whoever panicked with a lock in hand left nothing half done: a panic of one is a panic of all in the end.
    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_chunk_once_and_in_order() {
            for (len, size) in [(0, 3), (1, 3), (9, 3), (1000, 7), (100, 1)] {
                for (parties, is_shared) in [(1, false), (1, true), (2, true), (5, true)] {
                    let mut entries = vec![0; len];
                    let work = |chunk: usize, part: &mut [usize]| {
                        part.iter_mut().for_each(|entry| *entry += chunk + 1);
                        (chunk, part.len())
                    };
                    let results: Vec<_> = match is_shared {
                        true => share(Chunks { entries: &mut entries, size, next: 0 }, parties, &work),
                        false => run(&mut entries, size, 0.0, &work),
                    };
                    let expected = (0..len.div_ceil(size)).map(|chunk| (chunk, size.min(len - chunk * size)));
                    assert!(results.into_iter().eq(expected), "{len} by {size}, {parties}");
                    assert!(entries.iter().enumerate().all(|(i, entry)| *entry == i / size + 1));
                }
            }
        }

        #[test]
        fn a_panic_reaches_the_caller() {
            let work = |chunk: usize, _: &mut [u8]| assert!(chunk != 40, "on purpose");
            let shared = || share(Chunks { entries: &mut [0; 100], size: 1, next: 0 }, 3, &work).len();
            assert!(std::panic::catch_unwind(shared).is_err());
        }
    }
}

/// Puts the row into errors that a mapping raised without knowing it.
pub(crate) fn at_row(error: Error, row: usize) -> Error {
    match error {
        Error::NotConverged { operation, iterations, residual, .. } => {
            Error::NotConverged { operation, row, iterations, residual }
        }
        other => other,
    }
}

/// The entries of a row that take part, widened, and where they came from.
#[derive(Debug, Default)]
pub(crate) struct CleanRow {
    pub(crate) z: Vec<f64>,
    /// Classes of the entries, ascending; left empty when every class takes part.
    keep: Vec<u32>,
    width: usize,
}

impl CleanRow {
    /// Loads a row; the error is the index of a NaN or `+inf`.
    pub(crate) fn load<T: Float>(
        &mut self,
        z: &[T],
        takes_part: impl Fn(usize) -> bool,
    ) -> std::result::Result<(), usize> {
        self.z.clear();
        self.keep.clear();
        self.width = z.len();
        for (i, score) in z.iter().enumerate() {
            let score = score.widen();
            if score == f64::NEG_INFINITY || !takes_part(i) {
                if self.keep.is_empty() {
                    self.keep.extend(0..self.z.len() as u32);
                }
                continue;
            }
            if !score.is_finite() {
                return Err(i);
            }
            if self.z.len() != i {
                self.keep.push(i as u32);
            }
            self.z.push(score);
        }
        Ok(())
    }

    /// Whether every class takes part.
    pub(crate) fn is_whole(&self) -> bool {
        self.z.len() == self.width
    }

    /// Where a class is among the entries that take part.
    pub(crate) fn position(&self, class: usize) -> Option<usize> {
        if self.is_whole() { Some(class) } else { self.keep.binary_search(&(class as u32)).ok() }
    }

    /// The class of an entry.
    pub(crate) fn class(&self, position: usize) -> usize {
        if self.is_whole() { position } else { self.keep[position] as usize }
    }

    /// The same entries of another row.
    pub(crate) fn gather<T: Float>(&self, from: &[T], to: &mut Vec<f64>) {
        to.clear();
        to.extend((0..self.z.len()).map(|i| from[self.class(i)].widen()));
    }

    /// Writes `scale · from` to the places of the entries and 0 elsewhere.
    pub(crate) fn scatter<T: Float>(&self, from: &[f64], scale: f64, to: &mut [T]) {
        if self.is_whole() {
            to.iter_mut().zip(from).for_each(|(to, from)| *to = T::narrow(scale * from));
            return;
        }
        to.fill(T::default());
        for (i, value) in self.keep.iter().zip(from) {
            to[*i as usize] = T::narrow(scale * value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_the_places_of_its_entries() {
        let gone = f32::NEG_INFINITY;
        let mut row = CleanRow::default();
        for (z, kept) in [
            (vec![1.0, 2.0, 3.0], vec![0, 1, 2]),
            (vec![gone, 2.0, 3.0], vec![1, 2]),
            (vec![1.0, gone, gone, 4.0], vec![0, 3]),
            (vec![1.0, 2.0, gone], vec![0, 1]),
            (vec![gone, gone], vec![]),
            (vec![], vec![]),
        ] {
            row.load(&z, |_| true).unwrap();
            assert_eq!((0..row.z.len()).map(|i| row.class(i)).collect::<Vec<_>>(), kept);
            for class in 0..z.len() {
                assert_eq!(row.position(class), kept.iter().position(|k| *k == class));
            }
            let mut out = vec![9.0f32; z.len()];
            row.scatter(&row.z.clone(), 2.0, &mut out);
            let expected: Vec<f32> = z.iter().map(|z| if *z == gone { 0.0 } else { 2.0 * z }).collect();
            assert_eq!(out, expected);
        }
        assert_eq!(row.load(&[0.0, f32::NAN], |i| i == 0), Ok(()));
        assert_eq!(row.load(&[0.0, f32::INFINITY], |_| true), Err(1));
    }
}
