//! Views of arrays: a slice, a shape and strides. The only place that knows memory layout.

use crate::{Error, Result};
use std::ops::Range;

/// Shape, strides and offset of an array in a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
}

impl Layout {
    fn contiguous(shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i] * shape[i].max(1) as isize;
        }
        Self { shape: shape.to_vec(), strides, offset: 0 }
    }

    fn check(self, len: usize) -> Result<Self> {
        let fail = |expected: String| Error::Shape {
            operation: "view",
            what: "the slice",
            expected,
            got: format!("{len} elements"),
        };
        if self.shape.len() != self.strides.len() {
            return Err(Error::Shape {
                operation: "view",
                what: "strides",
                expected: format!("one per axis ({})", self.shape.len()),
                got: self.strides.len().to_string(),
            });
        }
        if self.shape.contains(&0) {
            return Ok(self);
        }
        let too_large = || fail(format!("large enough for shape {:?} with strides {:?}", self.shape, self.strides));
        let (mut low, mut high) = (0isize, 0isize);
        for (n, s) in self.shape.iter().zip(&self.strides) {
            let span = isize::try_from(n - 1).ok().and_then(|n| n.checked_mul(*s)).ok_or_else(too_large)?;
            let end = if span < 0 { &mut low } else { &mut high };
            *end = end.checked_add(span).ok_or_else(too_large)?;
        }
        let offset = isize::try_from(self.offset).map_err(|_| too_large())?;
        let first = offset.checked_add(low).ok_or_else(too_large)?;
        let last = offset.checked_add(high).ok_or_else(too_large)?;
        if first < 0 || last >= len as isize { Err(too_large()) } else { Ok(self) }
    }

    /// Whether no two positions share an element: each stride must step over all smaller ones.
    fn is_injective(&self) -> bool {
        let mut axes: Vec<_> = self.shape.iter().zip(&self.strides).filter(|(n, _)| **n > 1).collect();
        axes.sort_by_key(|(_, s)| s.unsigned_abs());
        let mut reach = 0;
        axes.iter().all(|(n, s)| {
            let fits = s.unsigned_abs() > reach;
            reach += s.unsigned_abs() * (*n - 1);
            fits
        })
    }

    /// The rows along `axis`.
    pub(crate) fn rows(&self, axis: usize) -> RowLayout {
        let outer = |v: &[usize]| [&v[..axis], &v[axis + 1..]].concat();
        RowLayout {
            shape: outer(&self.shape),
            strides: [&self.strides[..axis], &self.strides[axis + 1..]].concat(),
            offset: self.offset,
            len: self.shape[axis],
            step: self.strides[axis],
        }
    }
}

/// The rows of an array along one axis.
#[derive(Debug, Clone)]
pub(crate) struct RowLayout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    offset: usize,
    /// Entries in a row.
    pub(crate) len: usize,
    /// Distance between neighbours of a row.
    step: isize,
}

impl RowLayout {
    /// The number of rows.
    pub(crate) fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether the rows lie one behind the other, each of them contiguous.
    pub(crate) fn is_packed(&self) -> bool {
        let mut expected = self.len as isize;
        (self.len <= 1 || self.step == 1)
            && self.shape.iter().zip(&self.strides).rev().all(|(n, s)| {
                let fits = *n == 1 || *s == expected;
                expected *= *n as isize;
                fits
            })
    }

    /// Where rows that are not contiguous leave no gaps: groups of them, each of which lies side by side. The rows in the
    /// order in which they begin, and how many make a group.
    pub(crate) fn interleaved(&self) -> Option<(Vec<usize>, usize)> {
        let across = usize::try_from(self.step).ok().filter(|step| *step > 1)?;
        let mut order: Vec<usize> = (0..self.count()).collect();
        order.sort_unstable_by_key(|row| self.start(*row));
        let is_next = |(place, row): (usize, &usize)| {
            let begin = place / across * across * self.len + place % across;
            self.start(*row) == (self.offset + begin) as isize
        };
        (order.len().is_multiple_of(across) && order.iter().enumerate().all(is_next)).then_some((order, across))
    }

    /// Whether each row is contiguous.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.len <= 1 || self.step == 1
    }

    /// The position of a row's first entry.
    fn start(&self, row: usize) -> isize {
        let (mut rest, mut start) = (row, self.offset as isize);
        for (n, s) in self.shape.iter().zip(&self.strides).rev() {
            start += (rest % n) as isize * s;
            rest /= n;
        }
        start
    }

    /// The rows of a range as one slice where rows are packed.
    pub(crate) fn packed<'a, T>(&self, data: &'a [T], rows: &Range<usize>) -> &'a [T] {
        &data[self.offset + rows.start * self.len..self.offset + rows.end * self.len]
    }

    /// The position of a row's first entry and the distance between its neighbours.
    pub(crate) fn position(&self, row: usize) -> (isize, isize) {
        (self.start(row), self.step)
    }

    /// All rows as one mutable slice where they are packed.
    pub(crate) fn packed_mut<'a, T>(&self, data: &'a mut [T]) -> &'a mut [T] {
        let total = self.count() * self.len;
        if total == 0 { &mut [] } else { &mut data[self.offset..self.offset + total] }
    }

    /// Row `row`, borrowed if it is contiguous, gathered into `buffer` if not.
    pub(crate) fn read<'a, T: Copy>(&self, data: &'a [T], row: usize, buffer: &'a mut Vec<T>) -> &'a [T] {
        let start = self.start(row);
        if self.len == 0 {
            &[]
        } else if self.step == 1 || self.len == 1 {
            &data[start as usize..start as usize + self.len]
        } else {
            buffer.clear();
            buffer.extend((0..self.len).map(|i| data[(start + i as isize * self.step) as usize]));
            buffer
        }
    }

    /// Copies a row.
    pub(crate) fn gather<T: Copy>(&self, data: &[T], row: usize, to: &mut [T]) {
        let start = self.start(row);
        for (i, to) in to.iter_mut().enumerate() {
            *to = data[(start + i as isize * self.step) as usize];
        }
    }

    /// Writes a row.
    pub(crate) fn write<T: Copy>(&self, data: &mut [T], row: usize, values: &[T]) {
        let start = self.start(row);
        for (i, value) in values.iter().enumerate() {
            data[(start + i as isize * self.step) as usize] = *value;
        }
    }
}

/// A read-only array: any number of axes, any strides (zero and negative ones too).
#[derive(Debug, Clone)]
pub struct View<'a, T> {
    pub(crate) data: &'a [T],
    pub(crate) layout: Layout,
}

impl<'a, T> View<'a, T> {
    /// The slice as an array in row-major order; its length must be the product of `shape`.
    pub fn new(data: &'a [T], shape: &[usize]) -> Result<Self> {
        check_len(data.len(), shape)?;
        Ok(Self { data, layout: Layout::contiguous(shape) })
    }

    /// The array whose entry at index `(i, j, …)` is `data[offset + i·strides[0] + j·strides[1] + …]`.
    /// A stride of 0 repeats an axis, which is how a mask or a parameter is broadcast.
    pub fn strided(data: &'a [T], shape: &[usize], strides: &[isize], offset: usize) -> Result<Self> {
        let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset };
        Ok(Self { layout: layout.check(data.len())?, data })
    }

    /// The lengths of the axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }
}

/// A mutable array. No two positions may share an element.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    pub(crate) data: &'a mut [T],
    pub(crate) layout: Layout,
}

impl<'a, T> ViewMut<'a, T> {
    /// The slice as an array in row-major order; its length must be the product of `shape`.
    pub fn new(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        check_len(data.len(), shape)?;
        Ok(Self { data, layout: Layout::contiguous(shape) })
    }

    /// Like [`View::strided`]; strides under which two positions coincide are an error.
    pub fn strided(data: &'a mut [T], shape: &[usize], strides: &[isize], offset: usize) -> Result<Self> {
        let layout = Layout { shape: shape.to_vec(), strides: strides.to_vec(), offset }.check(data.len())?;
        if !layout.is_injective() {
            return Err(Error::Shape {
                operation: "view",
                what: "the strides of an output",
                expected: "such that no two positions share an element".into(),
                got: format!("{strides:?} for shape {shape:?}"),
            });
        }
        Ok(Self { data, layout })
    }

    /// The lengths of the axes.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }
}

fn check_len(len: usize, shape: &[usize]) -> Result<()> {
    let product = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    if product == Some(len) {
        return Ok(());
    }
    Err(Error::Shape {
        operation: "view",
        what: "the slice",
        expected: format!("as long as the product of shape {shape:?}"),
        got: format!("{len} elements"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_along_the_first_axis_are_columns() {
        let data = [1, 2, 3, 4, 5, 6];
        let rows = View::new(&data, &[2, 3]).unwrap().layout.rows(0);
        assert_eq!((rows.count(), rows.len, rows.is_packed()), (3, 2, false));
        assert_eq!(rows.read(&data, 1, &mut Vec::new()), [2, 5]);
    }

    #[test]
    fn strides_may_be_negative_or_zero_but_not_outside() {
        let data = [1, 2, 3];
        let reversed = View::strided(&data, &[3], &[-1], 2).unwrap();
        assert_eq!(reversed.layout.rows(0).read(&data, 0, &mut Vec::new()), [3, 2, 1]);
        assert!(View::strided(&data, &[4, 3], &[0, 1], 0).is_ok());
        assert!(View::strided(&data, &[2, 3], &[1, 1], 0).is_err());
        assert!(View::strided(&data, &[3], &[-1], 1).is_err());
        assert!(View::strided(&data, &[2, usize::MAX], &[isize::MAX, 1], 0).is_err());
    }

    #[test]
    fn outputs_may_not_overlap() {
        let mut data = [0; 6];
        assert!(ViewMut::strided(&mut data, &[2, 3], &[1, 2], 0).is_ok());
        assert!(ViewMut::strided(&mut data, &[2, 3], &[1, 1], 0).is_err());
        assert!(ViewMut::strided(&mut data, &[2, 3], &[0, 1], 0).is_err());
    }

    #[test]
    fn rows_that_lie_across_each_other_leave_no_gap() {
        let data = [0.0f32; 48];
        let rows = |shape: &[usize], strides: &[isize], axis: usize| {
            View::strided(&data, shape, strides, 0).unwrap().layout.rows(axis).interleaved()
        };
        assert_eq!(rows(&[2, 12], &[1, 2], 1), Some((vec![0, 1], 2)));
        assert_eq!(rows(&[2, 12, 2], &[24, 2, 1], 1), Some((vec![0, 1, 2, 3], 2)));
        // Fortran order: the row that begins second is the third.
        assert_eq!(rows(&[2, 2, 6], &[1, 2, 4], 2), Some((vec![0, 2, 1, 3], 4)));
        assert_eq!(rows(&[1, 12], &[24, 2], 1), None);
        assert_eq!(rows(&[2, 12], &[24, 2], 1), None);
        assert_eq!(rows(&[2, 12], &[12, 1], 1), None);
        assert_eq!(rows(&[2, 6], &[1, 3], 1), None);
    }

    #[test]
    fn packed_means_one_behind_the_other() {
        let data = [0.0f32; 24];
        let view = |shape: &[usize], strides: &[isize]| View::strided(&data, shape, strides, 0).unwrap().layout;
        assert!(view(&[2, 3, 4], &[12, 4, 1]).rows(2).is_packed());
        assert!(!view(&[3, 2, 4], &[4, 12, 1]).rows(2).is_packed());
        assert!(!view(&[2, 3, 4], &[12, 4, 1]).rows(1).is_packed());
        assert!(view(&[2, 3, 1], &[3, 1, 7]).rows(2).is_packed());
    }
}
