//! Sparse batches: what the rows hold apart from zeros.
//!
//! Rows of single precision become dense, a few at a time, and the support is picked from them: with the kernels that
//! costs less than a list of the support that is kept while it is solved. Other rows, and very long ones, keep such a
//! list and are never dense.

use crate::batch::{CleanRow, Plan, at_row};
use crate::mapping::Scratch;
use crate::{Error, Float, Mapping, Result, Rows, Support, View, single};
use std::cell::Cell;
use std::ops::Range;

/// A sparse batch: row `r` has the entries `indptr[r]..indptr[r + 1]` of `indices` and `values`.
#[derive(Debug, Clone, PartialEq)]
pub struct Csr<T> {
    /// Row pointers, one more than rows, starting with 0.
    pub indptr: Vec<usize>,
    /// Column of every stored entry, ascending within a row.
    pub indices: Vec<u32>,
    /// Probability of every stored entry.
    pub values: Vec<T>,
    /// Width of the dense array.
    pub columns: usize,
    /// Position of every stored entry among those of its row that took part, unless that is its column: neighbours
    /// are neighbours across a masked entry, which `indices` cannot tell from a zero.
    ranks: Option<Vec<u32>>,
}

impl<T: Float> Csr<T> {
    fn empty(columns: usize) -> Self {
        Self { indptr: vec![0], indices: Vec::new(), values: Vec::new(), columns, ranks: None }
    }

    /// Makes room for that many rows and entries.
    fn reserve(&mut self, rows: usize, entries: usize) {
        self.indptr.reserve_exact(rows);
        self.indices.reserve_exact(entries);
        self.values.reserve_exact(entries);
    }

    /// Parts one behind the other.
    fn joined(columns: usize, parts: Vec<Self>) -> Self {
        let mut all = Self::empty(columns);
        let entries = parts.iter().map(|part| part.indices.len()).sum();
        all.reserve(parts.iter().map(Self::rows).sum(), entries);
        all.ranks = parts.iter().any(|part| part.ranks.is_some()).then(|| Vec::with_capacity(entries));
        for part in parts {
            let base = all.indices.len();
            all.indptr.extend(part.indptr[1..].iter().map(|end| base + end));
            if let Some(ranks) = &mut all.ranks {
                ranks.extend_from_slice(part.ranks.as_ref().unwrap_or(&part.indices));
            }
            all.indices.extend(part.indices);
            all.values.extend(part.values);
        }
        all
    }

    /// The number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Columns and probabilities of a row.
    #[must_use]
    pub fn row(&self, row: usize) -> (&[u32], &[T]) {
        let range = self.indptr[row]..self.indptr[row + 1];
        (&self.indices[range.clone()], &self.values[range])
    }

    /// The rows with their zeros, in row-major order.
    #[must_use]
    pub fn to_dense(&self) -> Vec<T> {
        let mut dense = vec![T::default(); self.rows() * self.columns];
        for row in 0..self.rows() {
            let (indices, values) = self.row(row);
            for (i, p) in indices.iter().zip(values) {
                dense[row * self.columns + *i as usize] = *p;
            }
        }
        dense
    }

    /// Adds a row whose support is `indices`; `takes_part` tells which of its entries do, if not all.
    fn push(&mut self, indices: &[u32], values: &[f32], takes_part: Option<impl Fn(usize) -> bool>) {
        if takes_part.is_some() && self.ranks.is_none() {
            self.ranks = Some(self.indices.clone());
        }
        self.indices.extend_from_slice(indices);
        self.values.extend(values.iter().map(|p| T::narrow(f64::from(*p))));
        self.indptr.push(self.indices.len());
        let Some(ranks) = &mut self.ranks else { return };
        let (mut rank, mut next) = (0, 0);
        for i in indices {
            rank += match &takes_part {
                Some(takes_part) => (next..*i).filter(|i| takes_part(*i as usize)).count() as u32,
                None => *i - next,
            };
            next = *i;
            ranks.push(rank);
        }
    }
}

/// The widest rows that are written out before their support is picked: half a megabyte.
const WIDEST: usize = 1 << 17;

/// Where the rows of a chunk are dense, and the support of one of them. Each thread keeps its own for the next chunk:
/// memory that a thread gives back comes again page by page, which takes longer than what is done in it.
#[derive(Debug, Default)]
struct Room {
    dense: Vec<f32>,
    support: single::Support,
}

/// Bytes of such room that a thread keeps at most.
const SPARE: usize = 1 << 20;

thread_local! {
    static KEPT: Cell<Option<Room>> = const { Cell::new(None) };
}

impl Room {
    fn take() -> Self {
        KEPT.take().unwrap_or_default()
    }

    fn give_back(self) {
        let entries = self.dense.capacity() + self.support.value.capacity() + self.support.index.capacity();
        if entries * size_of::<f32>() <= SPARE {
            // A thread that is ending has nowhere to keep it.
            let _ = KEPT.try_with(|kept| kept.set(Some(self)));
        }
    }
}

impl<M: Mapping> Rows<'_, M> {
    /// The sparse result: support and probabilities of every row, without a dense array.
    ///
    /// # Errors
    /// As [`forward`](Rows::forward).
    pub fn csr<T: Float>(&self, z: View<'_, T>) -> Result<Csr<T>> {
        let plan = self.plan(&z)?;
        let parts = plan.map(|rows| match self.picked(&plan, &z, rows.clone()) {
            Some(part) => part,
            None => self.listed(&plan, &z, rows),
        });
        Ok(Csr::joined(plan.z.len, parts.into_iter().collect::<Result<_>>()?))
    }

    /// A chunk of rows in single precision, from the dense ones; `None` if they are not, or too long.
    fn picked<T: Float>(&self, plan: &Plan<'_>, z: &View<'_, T>, rows: Range<usize>) -> Option<Result<Csr<T>>> {
        let (scores, d) = (T::as_f32(z.data)?, plan.z.len);
        if d == 0 || d > WIDEST {
            return None;
        }
        let (mut room, mut part) = (Room::take(), Csr::empty(d));
        let filled = self.fill(plan, &View { data: scores, layout: z.layout.clone() }, rows, &mut room, &mut part);
        room.give_back();
        Some(filled.map(|()| part))
    }

    /// Appends the support of a chunk of rows to a part, by way of the dense rows.
    fn fill<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, f32>,
        rows: Range<usize>,
        Room { dense, support }: &mut Room,
        part: &mut Csr<T>,
    ) -> Result<()> {
        let (d, count) = (plan.z.len, rows.len());
        if dense.len() < count * d {
            dense.resize(count * d, 0.0);
        }
        self.forward_chunk(plan, z, rows.clone(), &mut dense[..count * d])?;
        let mut gather = Vec::new();
        for (row, p) in rows.zip(dense.chunks_exact(d)) {
            support.find(p);
            if part.rows() == 0 {
                // Rows tend to be alike.
                part.reserve(count, count * support.index.len());
            }
            let (z, unmasked) = (plan.z.read(z.data, row, &mut gather), plan.mask(row));
            let takes_part = |i: usize| z[i] > f32::NEG_INFINITY && unmasked(i);
            let is_whole = !plan.is_masked() && z.iter().fold(true, |all, z| all & (*z > f32::NEG_INFINITY));
            part.push(&support.index, &support.value, (!is_whole).then_some(takes_part));
        }
        Ok(())
    }

    /// A chunk of rows by lists of their supports.
    fn listed<T: Float>(&self, plan: &Plan<'_>, z: &View<'_, T>, rows: Range<usize>) -> Result<Csr<T>> {
        let (mut gather, mut clean, mut scratch) = (Vec::new(), CleanRow::default(), Scratch::default());
        let (mut part, mut support, mut ranks) = (Csr::empty(plan.z.len), Support::default(), Vec::new());
        for row in rows {
            let z = plan.z.read(z.data, row, &mut gather);
            clean.load(z, plan.mask(row)).map_err(|i| plan.bad_score(row, i, z[i].widen()))?;
            support.clear();
            if !clean.z.is_empty() {
                let mapping = self.mapping(row);
                mapping.support_row(&clean.z, &mut support, &mut scratch).map_err(|e| at_row(e, row))?;
            }
            part.indices.extend(support.index.iter().map(|i| clean.class(*i as usize) as u32));
            ranks.extend_from_slice(&support.index);
            part.values.extend(support.value.iter().map(|p| T::narrow(*p)));
            part.indptr.push(part.indices.len());
        }
        part.ranks = Some(ranks).filter(|ranks| *ranks != part.indices);
        Ok(part)
    }

    /// `Jᵀv` of a sparse result: `v` holds one entry per stored probability, and so does the answer. The
    /// gradient at every other position is 0. Costs O(support).
    ///
    /// # Errors
    /// If `v` has another length, or the Jacobian of the mapping is not confined to the support.
    pub fn csr_vjp<T: Float>(&self, p: &Csr<T>, v: &[T]) -> Result<Vec<T>> {
        if v.len() != p.values.len() {
            return Err(Error::Shape {
                operation: self.name(),
                what: "v",
                expected: format!("{} values, one per stored probability", p.values.len()),
                got: v.len().to_string(),
            });
        }
        let (mut gradient, mut pw, mut vw, mut out) = (Vec::with_capacity(v.len()), Vec::new(), Vec::new(), Vec::new());
        let ranks = p.ranks.as_ref().unwrap_or(&p.indices);
        for row in 0..p.rows() {
            let range = p.indptr[row]..p.indptr[row + 1];
            widen_into(&p.values[range.clone()], &mut pw);
            widen_into(&v[range.clone()], &mut vw);
            out.clear();
            out.resize(range.len(), 0.0);
            self.mapping(row).support_vjp_row(&ranks[range], &pw, &vw, &mut out).ok_or(Error::Unsupported {
                operation: self.name(),
                what: "the derivative reaches beyond the support; use the dense one",
            })?;
            gradient.extend(out.iter().map(|g| T::narrow(*g)));
        }
        Ok(gradient)
    }
}

fn widen_into<T: Float>(from: &[T], to: &mut Vec<f64>) {
    to.clear();
    to.extend(from.iter().map(|x| x.widen()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ViewMut, registry};

    /// Rows of all kinds of support, some entries −∞ and some masked.
    fn batch(rows: usize, d: usize, rng: &mut fastrand::Rng) -> (Vec<f32>, Vec<bool>) {
        let scale = |row: usize| [1e-3, 0.3, 3.0][row % 3];
        let score = |row: usize, rng: &mut fastrand::Rng| match rng.usize(0..9) {
            0 => f32::NEG_INFINITY,
            1 => 0.5 * scale(row),
            _ => scale(row) * rng.f32(),
        };
        let z = (0..rows * d).map(|i| score(i / d, rng)).collect();
        (z, (0..rows * d).map(|_| rng.usize(0..7) > 0).collect())
    }

    #[test]
    fn single_precision_is_the_dense_result_and_so_is_its_gradient() {
        let mut rng = fastrand::Rng::with_seed(91);
        for (rows, d) in [(7, 1), (19, 24), (5, 300), (2, 9000)] {
            let shape = [rows, d];
            for (entry, masked) in registry::MAPPINGS.iter().flat_map(|entry| [(entry, false), (entry, true)]) {
                let mapping = (entry.build)(&registry::Options::default()).unwrap();
                let (z, mask) = batch(rows, d, &mut rng);
                let z = || View::new(&z, &shape).unwrap();
                let mut batch = Rows::new(&mapping);
                if masked {
                    batch = batch.mask(View::new(&mask, &shape).unwrap());
                }
                let (mut p, mut gradient) = (vec![7.0f32; rows * d], vec![7.0f32; rows * d]);
                batch.forward(z(), ViewMut::new(&mut p, &shape).unwrap()).unwrap();
                let csr = batch.csr(z()).unwrap();
                assert_eq!(csr.to_dense(), p, "{} {shape:?} {masked}", entry.name);
                assert!(csr.values.iter().all(|p| *p > 0.0) && csr.rows() == rows);
                let v: Vec<f32> = (0..rows * d).map(|_| rng.f32() - 0.5).collect();
                let dense_v = View::new(&v, &shape).unwrap();
                batch
                    .vjp(z(), View::new(&p, &shape).unwrap(), dense_v, ViewMut::new(&mut gradient, &shape).unwrap())
                    .unwrap();
                let places = (0..rows).flat_map(|row| csr.row(row).0.iter().map(move |i| row * d + *i as usize));
                let places: Vec<usize> = places.collect();
                let on_support: Vec<f32> = places.iter().map(|i| v[*i]).collect();
                let Ok(thin) = batch.csr_vjp(&csr, &on_support) else { continue };
                for (at, g) in places.iter().zip(&thin) {
                    // Both are roundings of sums of up to 9000 products below 1.
                    assert!((gradient[*at] - g).abs() < 2e-5, "{} {shape:?} {at}: {} {g}", entry.name, gradient[*at]);
                }
            }
        }
    }

    #[test]
    fn a_bad_score_is_named_and_no_columns_are_no_entries() {
        let mapping = crate::Sparsemax::new();
        let z = [0.0f32, 1.0, 0.0, f32::NAN];
        let error = Rows::new(&mapping).csr(View::new(&z, &[2, 2]).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Score { row: 1, index: 1, .. }), "{error}");
        let none = Rows::new(&mapping).csr(View::<f32>::new(&[], &[3, 0]).unwrap()).unwrap();
        assert_eq!((none.rows(), none.values.len()), (3, 0));
    }
}
