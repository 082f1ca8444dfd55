//! What a sweep over the rows of an array needs, whoever makes it: shapes checked once, entries that take
//! part, chunks, threads.
//!
//! Rows are cut into chunks whose size depends on the row length alone and results come back in row
//! order, so nothing that is computed here depends on the number of threads.

use crate::view::RowLayout;
use crate::{Error, Float, Result, View, ViewMut};
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
        let plan = Self { operation, shape: shape.to_vec(), axis, z: z.layout.rows(axis), mask: None, threads };
        let Some(mask) = mask else { return Ok(plan) };
        plan.fits("the mask", mask.shape())?;
        Ok(Self { mask: Some((mask.data, mask.layout.rows(axis))), ..plan })
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

    /// Rows per chunk: a fixed amount of work. Short rows come in eights, as the kernels take them.
    fn chunk_rows(&self) -> usize {
        let rows = (16_384 / self.z.len.max(1)).clamp(1, 1 << 16);
        if rows < 8 { rows } else { rows.next_multiple_of(8) }
    }

    /// Whether a thread pool would bring more than it costs.
    #[cfg(feature = "rayon")]
    fn is_parallel(&self) -> bool {
        self.threads && self.z.count() * self.z.len >= 65_536
    }

    /// Runs `work` over chunks of rows and returns the results in order.
    pub(crate) fn map<R: Send>(&self, work: impl Fn(Range<usize>) -> R + Sync) -> Vec<R> {
        let (count, chunk) = (self.z.count(), self.chunk_rows());
        let range = |k: usize| k * chunk..((k + 1) * chunk).min(count);
        let chunks = count.div_ceil(chunk);
        #[cfg(feature = "rayon")]
        if self.is_parallel() {
            use rayon::prelude::*;
            return (0..chunks).into_par_iter().map(|k| work(range(k))).collect();
        }
        (0..chunks).map(|k| work(range(k))).collect()
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
            return self.write_packed(0, target.packed_mut(out.data), &work);
        }
        // Rows that are not contiguous are computed block by block into packed memory and put in place by
        // the caller's thread.
        let block = (65_536 / len).clamp(1, 16 * self.chunk_rows()).next_multiple_of(self.chunk_rows());
        let mut packed = vec![T::default(); block.min(count) * len];
        let mut results = Vec::new();
        for first in (0..count).step_by(block) {
            let packed = &mut packed[..block.min(count - first) * len];
            results.extend(self.write_packed(first, packed, &work));
            for (row, values) in packed.chunks_exact(len).enumerate() {
                target.write(out.data, first + row, values);
            }
        }
        results
    }

    fn write_packed<T: Float, R: Send>(
        &self,
        first: usize,
        out: &mut [T],
        work: &(impl Fn(Range<usize>, &mut [T]) -> R + Sync),
    ) -> Vec<R> {
        let (chunk, len) = (self.chunk_rows(), self.z.len);
        let run = |(k, part): (usize, &mut [T])| {
            let start = first + k * chunk;
            work(start..start + part.len() / len, part)
        };
        #[cfg(feature = "rayon")]
        if self.is_parallel() {
            use rayon::prelude::*;
            return out.par_chunks_mut(chunk * len).enumerate().map(run).collect();
        }
        out.chunks_mut(chunk * len).enumerate().map(run).collect()
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
