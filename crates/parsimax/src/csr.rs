//! Sparse batches: what the rows hold apart from zeros.
//!
//! Rows of single precision become dense, a few at a time, and the support is picked from them: with the kernels that
//! costs less than a list of the support that is kept while it is solved. Other rows keep such a list, as long as it is
//! short; long ones go over their scores twice, first for the law of their probabilities.
//!
//! Results have exactly the memory they need. How much that is, a first pass over all rows tells; what it finds is kept as
//! long as it is little, and found again by a second pass if not.

use crate::batch::{CleanRow, Plan, at_row};
use crate::law::Form;
use crate::mapping::Scratch;
use crate::place::scattered;
use crate::{Error, Float, Mapping, Result, Rows, Support, View, single};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

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
}

/// The widest rows that are written out before their support is picked: half a megabyte.
const WIDEST: usize = 1 << 17;

/// Entries of narrower rows that are written out at a time.
const FEW: usize = 1 << 14;

/// The longest lists of candidates, and how much of a dense row is looked at at a time.
const LISTED: usize = 1 << 13;

/// Bytes of results that the first pass keeps beside the dense rows of a chunk, in lists that may be half empty.
fn spare(d: usize) -> usize {
    if d > 1024 { 1 << 17 } else { 3 << 17 }
}

/// What the rows of a chunk are worked out in: dense rows, the support of a piece of one, lists. Each thread keeps its own
/// for the next chunk: memory that a thread gives back comes again page by page, which takes longer than what is done in
/// it.
#[derive(Debug, Default)]
struct Room {
    dense: Vec<f32>,
    picked: single::Support,
    clean: CleanRow,
    support: Support,
    scratch: Scratch,
    index: Vec<u32>,
}

thread_local! {
    static SPARE: Cell<Option<Room>> = const { Cell::new(None) };
}

impl Room {
    fn take() -> Self {
        SPARE.take().unwrap_or_default()
    }

    fn give_back(self) {
        // Lists of rows that have no other way may be long.
        if self.clean.z.capacity() <= LISTED && self.dense.capacity() <= WIDEST {
            // A thread that is ending has nowhere to keep it.
            let _ = SPARE.try_with(|spare| spare.set(Some(self)));
        }
    }
}

/// Who is told of the support of rows, piece by piece and in order.
trait Sink {
    /// Some entries of a row. `ranks` are their positions among those that take part, if not their columns.
    fn take<V: Copy + Into<f64>>(&mut self, row: usize, index: &[u32], value: &[V], ranks: Option<&[u32]>);
}

/// The first pass: counts, and what is kept.
struct Counts<'a, T> {
    first: usize,
    /// One per row.
    counts: &'a mut [usize],
    /// Bytes that all threads keep, and how many they may.
    kept: &'a AtomicUsize,
    spare: usize,
    /// Whether ranks are wanted.
    is_ranked: bool,
    entries: Option<Entries<T>>,
}

/// Entries of consecutive rows.
#[derive(Debug, Default)]
struct Entries<T> {
    indices: Vec<u32>,
    values: Vec<T>,
    ranks: Vec<u32>,
}

impl<T: Float> Sink for Counts<'_, T> {
    fn take<V: Copy + Into<f64>>(&mut self, row: usize, index: &[u32], value: &[V], ranks: Option<&[u32]>) {
        let present = value.iter().filter(|p| T::narrow((**p).into()) > T::default()).count();
        self.counts[row - self.first] += present;
        let Some(entries) = &mut self.entries else { return };
        let ranks = self.is_ranked.then(|| ranks.unwrap_or(index));
        if present == index.len() {
            entries.indices.extend_from_slice(index);
            entries.values.extend(value.iter().map(|p| T::narrow((*p).into())));
            entries.ranks.extend_from_slice(ranks.unwrap_or_default());
        } else {
            for (k, (i, p)) in index.iter().zip(value).enumerate() {
                let p = T::narrow((*p).into());
                if p > T::default() {
                    entries.indices.push(*i);
                    entries.values.push(p);
                    entries.ranks.extend(ranks.map(|ranks| ranks[k]));
                }
            }
        }
        let entry = size_of::<T>() + size_of::<u32>() * (1 + usize::from(ranks.is_some()));
        if self.kept.fetch_add(present * entry, Ordering::Relaxed) + present * entry > self.spare {
            self.entries = None;
        }
    }
}

/// The second pass: the places of a chunk's entries.
struct Places<'a, T> {
    indices: &'a mut [u32],
    values: &'a mut [T],
    /// As long as the others, or empty.
    ranks: &'a mut [u32],
    next: usize,
}

impl<T: Float> Sink for Places<'_, T> {
    fn take<V: Copy + Into<f64>>(&mut self, _row: usize, index: &[u32], value: &[V], ranks: Option<&[u32]>) {
        for (k, (i, p)) in index.iter().zip(value).enumerate() {
            let p = T::narrow((*p).into());
            if p > T::default() {
                self.indices[self.next] = *i;
                self.values[self.next] = p;
                if let Some(rank) = self.ranks.get_mut(self.next) {
                    *rank = ranks.map_or(*i, |ranks| ranks[k]);
                }
                self.next += 1;
            }
        }
    }
}

/// So many entries. How many there are is known to nobody before: where there is no room for them, callers shall be able
/// to go on.
fn room_for<T: Clone>(entries: usize, value: T) -> Vec<T> {
    let mut room = Vec::new();
    assert!(room.try_reserve_exact(entries).is_ok(), "no memory for a sparse result of {entries} entries");
    room.resize(entries, value);
    room
}

impl<M: Mapping> Rows<'_, M> {
    /// The sparse result: support and probabilities of every row, without a dense array.
    ///
    /// # Errors
    /// As [`forward`](Rows::forward).
    ///
    /// # Panics
    /// If there is no memory for the result.
    pub fn csr<T: Float>(&self, z: View<'_, T>) -> Result<Csr<T>> {
        let (plan, is_ranked) = (self.plan(&z)?, self.has_neighbours());
        // The dense rows of several threads would be a megabyte and more.
        let is_heavy = T::as_f32(z.data).is_some() && (WIDEST / 2 + 1..=WIDEST).contains(&plan.z.len);
        let plan = if is_heavy { plan.single_threaded() } else { plan };
        let (mut indptr, kept, spare) = (vec![0; plan.z.count() + 1], AtomicUsize::new(0), spare(plan.z.len));
        let chunks = plan.each_row(&mut indptr[1..], |rows, counts| {
            let entries = (kept.load(Ordering::Relaxed) <= spare).then(|| Entries {
                indices: Vec::new(),
                values: Vec::new(),
                ranks: Vec::new(),
            });
            let mut sink = Counts { first: rows.start, counts, kept: &kept, spare, is_ranked, entries };
            self.supports(&plan, &z, rows.clone(), &mut sink).map(|()| (rows, sink.entries))
        });
        let mut total = 0;
        for end in &mut indptr {
            total += *end;
            *end = total;
        }
        let (mut indices, mut values) = (room_for(total, 0), room_for(total, T::default()));
        let mut ranks = room_for(if is_ranked { total } else { 0 }, 0);
        let (mut i, mut v, mut r) = (&mut indices[..], &mut values[..], &mut ranks[..]);
        let mut jobs = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let (rows, entries) = chunk?;
            let len = indptr[rows.end] - indptr[rows.start];
            let (here, values_here, ranks_here);
            (here, i) = i.split_at_mut(len);
            (values_here, v) = v.split_at_mut(len);
            (ranks_here, r) = r.split_at_mut(if is_ranked { len } else { 0 });
            jobs.push((rows, entries, Places { indices: here, values: values_here, ranks: ranks_here, next: 0 }));
        }
        let done = plan.each(&mut jobs, |(rows, entries, places)| match entries.take() {
            Some(entries) => {
                places.indices.copy_from_slice(&entries.indices);
                places.values.copy_from_slice(&entries.values);
                places.ranks.copy_from_slice(&entries.ranks);
                Ok(())
            }
            None => self.supports(&plan, &z, rows.clone(), places),
        });
        drop(jobs);
        done.into_iter().collect::<Result<()>>()?;
        let ranks = Some(ranks).filter(|ranks| is_ranked && *ranks != indices);
        Ok(Csr { indptr, indices, values, columns: plan.z.len, ranks })
    }

    /// Tells of the supports of a chunk of rows.
    fn supports<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        rows: Range<usize>,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let mut room = Room::take();
        let done = match T::as_f32(z.data) {
            // Long rows that would be copied in double precision have short lists instead.
            Some(data) if plan.z.len > 0 && plan.z.len <= if self.is_single() { WIDEST } else { LISTED } => {
                // Fewer rows at a time than a chunk has: the kernels work in as much memory again.
                let (view, few) = (View { data, layout: z.layout.clone() }, (FEW / plan.z.len).max(1));
                rows.clone()
                    .step_by(few)
                    .try_for_each(|first| self.picked(plan, &view, first..rows.end.min(first + few), &mut room, sink))
            }
            _ => self.listed(plan, z, rows, &mut room, sink),
        };
        room.give_back();
        done
    }

    /// Rows in single precision, by way of the dense ones.
    fn picked(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, f32>,
        rows: Range<usize>,
        Room { dense, picked: support, index: ranks, .. }: &mut Room,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let (d, count) = (plan.z.len, rows.len());
        if dense.len() < count * d {
            dense.resize(count * d, 0.0);
        }
        self.forward_chunk(plan, z, rows.clone(), &mut dense[..count * d])?;
        for (row, p) in rows.zip(dense.chunks_exact(d)) {
            let z = scattered(plan, z.data, row);
            // Neighbours are neighbours across entries that take no part.
            let is_ranked = self.mapping(row).has_neighbours() && (0..d).any(|i| !z.counts(i));
            let (mut rank, mut next) = (0, 0);
            for (piece, first) in p.chunks(LISTED).zip((0..).step_by(LISTED)) {
                support.find(piece);
                support.index.iter_mut().filter(|_| first > 0).for_each(|i| *i += first);
                if is_ranked {
                    ranks.clear();
                    ranks.extend(support.index.iter().map(|i| {
                        rank += (next..*i).filter(|i| z.counts(*i as usize)).count() as u32;
                        next = *i;
                        rank
                    }));
                }
                sink.take(row, &support.index, &support.value, is_ranked.then_some(&ranks[..]));
            }
        }
        Ok(())
    }

    /// Rows by lists of their supports, or by their laws.
    fn listed<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        rows: Range<usize>,
        room: &mut Room,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let mut gather = Vec::new();
        for row in rows {
            let mapping = self.mapping(row);
            if let (Some(form), true) = (mapping.form(), plan.z.len > LISTED) {
                self.by_law(form, plan, z, row, room, sink)?;
                continue;
            }
            let Room { clean, support, scratch, index, .. } = &mut *room;
            let z = plan.z.read(z.data, row, &mut gather);
            clean.load(z, plan.mask(row)).map_err(|i| plan.bad_score(row, i, z[i].widen()))?;
            support.clear();
            if !clean.z.is_empty() {
                mapping.support_row(&clean.z, support, scratch).map_err(|e| at_row(e, row))?;
            }
            index.clear();
            index.extend(support.index.iter().map(|i| clean.class(*i as usize) as u32));
            sink.take(row, index, &support.value, Some(&support.index));
        }
        Ok(())
    }

    /// A long row: by a list of what may have mass, if that is short, else by the law of its probabilities.
    fn by_law<T: Float>(
        &self,
        form: Form,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        row: usize,
        Room { clean, support, scratch, index, .. }: &mut Room,
        sink: &mut impl Sink,
    ) -> Result<()> {
        let z = scattered(plan, z.data, row);
        if let Some(i) = z.bad() {
            return Err(plan.bad_score(row, i, z.score(i).widen()));
        }
        let top = z.entries().map(|(_, z)| z).fold(f64::NEG_INFINITY, f64::max);
        let near = z.entries().filter(|(_, z)| form.window().is_none_or(|window| top - z < window || *z == top));
        index.clear();
        clean.z.clear();
        for (i, z) in near.take(LISTED + 1) {
            index.push(i as u32);
            clean.z.push(z);
        }
        if index.len() <= LISTED {
            if !index.is_empty() {
                self.mapping(row).support_row(&clean.z, support, scratch).map_err(|e| at_row(e, row))?;
                support.index.iter_mut().for_each(|i| *i = index[*i as usize]);
                sink.take(row, &support.index, &support.value, None);
            }
            return Ok(());
        }
        let Some(law) = z.law(form) else { return Ok(()) };
        support.clear();
        for (i, p) in z.entries().map(|(i, z)| (i as u32, law.p(z))).filter(|(_, p)| *p > 0.0) {
            support.index.push(i);
            support.value.push(p);
            if support.index.len() == LISTED {
                sink.take(row, &support.index, &support.value, None);
                support.clear();
            }
        }
        sink.take(row, &support.index, &support.value, None);
        Ok(())
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
