//! Batches: any number of axes, masks, the input policy, narrower types and threads.
//!
//! A row goes through four stations: it is borrowed or gathered, its masked entries are taken out,
//! its mapping runs on what is left, and the result is written where it belongs with exact zeros at
//! the masked entries. Mappings therefore never see a mask, and padding never changes a result.
//!
//! | a row holds | its probabilities | its gradient |
//! |---|---|---|
//! | finite scores | Π(z) | `Jᵀv` |
//! | `-inf`, or an entry whose mask is `false` | 0 there; the rest as if it were not there | 0 there |
//! | nothing that takes part | zeros | zeros |
//! | NaN or `+inf` in an entry that takes part | an error that names row and index; with the `_or_nan` methods a row of NaN | the same |
//!
//! Rows are independent and sums over rows run in row order, so results have the same bits whatever
//! the number of threads.

use crate::mapping::Scratch;
use crate::view::RowLayout;
use crate::{Error, Float, Mapping, Result, Support, View, ViewMut};

/// Applies a mapping to every row of an array.
///
/// ```
/// use parsimax::{Rows, Sparsemax, View, ViewMut};
/// let z = [1.0f32, 0.2, 0.0, /* second row */ 0.5, 0.5, f32::NEG_INFINITY];
/// let mut p = [0.0f32; 6];
/// Rows::new(&Sparsemax::new()).forward(View::new(&z, &[2, 3])?, ViewMut::new(&mut p, &[2, 3])?)?;
/// assert_eq!(p, [0.9, 0.1, 0.0, 0.5, 0.5, 0.0]);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug)]
pub struct Rows<'a, M> {
    mappings: &'a [M],
    run: usize,
    axis: isize,
    mask: Option<View<'a, bool>>,
    threads: bool,
}

// By hand: mappings themselves need not be `Clone`.
impl<M> Clone for Rows<'_, M> {
    fn clone(&self) -> Self {
        Self { mask: self.mask.clone(), ..*self }
    }
}

/// Which derivative, if any, a sweep over the rows computes.
#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Forward,
    Vjp,
    Jvp,
}

/// What to do with a row that holds NaN or +∞.
#[derive(Clone, Copy, PartialEq)]
enum Policy {
    Report,
    FillNan,
}

impl<'a, M: Mapping> Rows<'a, M> {
    /// One mapping for all rows, along the last axis.
    pub fn new(mapping: &'a M) -> Self {
        Self::grouped(std::slice::from_ref(mapping), usize::MAX)
    }

    /// A mapping per group of rows: row `r` uses `mappings[(r / run) % mappings.len()]`.
    ///
    /// Scores of shape `[batch, heads, queries, keys]` with one α per head take `run = queries`; one α
    /// per row takes `run = 1` and as many mappings as rows.
    ///
    /// # Panics
    /// If `mappings` is empty or `run` is 0.
    pub fn grouped(mappings: &'a [M], run: usize) -> Self {
        assert!(!mappings.is_empty() && run > 0, "Rows::grouped needs a mapping and a run of at least one row");
        Self { mappings, run, axis: -1, mask: None, threads: true }
    }

    /// The axis along which probabilities sum to 1; negative axes count from the end.
    #[must_use]
    pub fn axis(mut self, axis: isize) -> Self {
        self.axis = axis;
        self
    }

    /// A mask of the same shape as the scores; `true` means that the entry takes part. Broadcast it
    /// with a stride of 0.
    #[must_use]
    pub fn mask(mut self, mask: View<'a, bool>) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Stay on the caller's thread. The results are the same.
    #[must_use]
    pub fn single_threaded(mut self) -> Self {
        self.threads = false;
        self
    }

    /// The mapping of a row.
    fn mapping(&self, row: usize) -> &M {
        &self.mappings[self.group(row)]
    }

    fn group(&self, row: usize) -> usize {
        (row / self.run) % self.mappings.len()
    }

    fn name(&self) -> &'static str {
        self.mappings[0].name()
    }

    /// Writes the probabilities of every row into `p`.
    ///
    /// # Errors
    /// If shapes or axis do not fit, or a score that takes part is NaN or `+inf`: then its row is NaN
    /// and all other rows are written.
    pub fn forward<T: Float>(&self, z: View<'_, T>, p: ViewMut<'_, T>) -> Result<()> {
        self.sweep(Operation::Forward, Policy::Report, &z, None, p)
    }

    /// The same, but a row that holds NaN or `+inf` is filled with NaN and is no error.
    ///
    /// # Errors
    /// If shapes or axis do not fit.
    pub fn forward_or_nan<T: Float>(&self, z: View<'_, T>, p: ViewMut<'_, T>) -> Result<()> {
        self.sweep(Operation::Forward, Policy::FillNan, &z, None, p)
    }

    /// Writes `Jᵀv` of every row into `out`, at scores `z` with probabilities `p`.
    ///
    /// # Errors
    /// As [`forward`](Rows::forward).
    pub fn vjp<T: Float>(&self, z: View<'_, T>, p: View<'_, T>, v: View<'_, T>, out: ViewMut<'_, T>) -> Result<()> {
        self.sweep(Operation::Vjp, Policy::Report, &z, Some((&p, &v)), out)
    }

    /// The same, but a row that holds NaN or `+inf` is filled with NaN and is no error.
    ///
    /// # Errors
    /// As [`forward_or_nan`](Rows::forward_or_nan).
    pub fn vjp_or_nan<T: Float>(
        &self,
        z: View<'_, T>,
        p: View<'_, T>,
        v: View<'_, T>,
        out: ViewMut<'_, T>,
    ) -> Result<()> {
        self.sweep(Operation::Vjp, Policy::FillNan, &z, Some((&p, &v)), out)
    }

    /// Writes `Jv` of every row into `out`: forward-mode differentiation.
    ///
    /// # Errors
    /// As [`forward`](Rows::forward).
    pub fn jvp<T: Float>(&self, z: View<'_, T>, p: View<'_, T>, v: View<'_, T>, out: ViewMut<'_, T>) -> Result<()> {
        self.sweep(Operation::Jvp, Policy::Report, &z, Some((&p, &v)), out)
    }

    /// The gradient of `Σ_rows <v, Π(z)>` in the shape parameter (α, λ or p) of each mapping of
    /// [`grouped`](Rows::grouped).
    ///
    /// # Errors
    /// As [`forward`](Rows::forward); also if the mapping has no parameter with a gradient.
    pub fn parameter_vjp<T: Float>(&self, z: View<'_, T>, p: View<'_, T>, v: View<'_, T>) -> Result<Vec<f64>> {
        let plan = self.plan(&z)?;
        plan.fits("p", p.shape())?;
        plan.fits("v", v.shape())?;
        let (pr, vr) = (p.layout.rows(plan.axis), v.layout.rows(plan.axis));
        let per_row = self.chunks(&plan, |range| {
            let mut row_buffers = Buffers::default();
            range
                .map(|row| {
                    let Buffers { gather: [gz, gp, gv, _], clean, .. } = &mut row_buffers;
                    let z = plan.z.read(z.data, row, gz);
                    let (p, v) = (pr.read(p.data, row, gp), vr.read(v.data, row, gv));
                    match clean.load(z, Some((p, v)), plan.mask(row)) {
                        Content::Empty => Ok(0.0),
                        Content::Bad(index) => Err(self.bad_score(row, index, z[index].widen())),
                        Content::Clean | Content::Compact => self
                            .mapping(row)
                            .parameter_vjp_row(&clean.z, &clean.p, &clean.v, &mut clean.scratch)
                            .ok_or(Error::Unsupported {
                                operation: self.name(),
                                what: "the mapping has no parameter with a gradient",
                            }),
                    }
                })
                .collect::<Vec<_>>()
        });
        let mut gradient = vec![0.0; self.mappings.len()];
        for (row, value) in per_row.into_iter().flatten().enumerate() {
            gradient[self.group(row)] += value?;
        }
        Ok(gradient)
    }

    /// The sparse result: support and probabilities of every row, without dense rows.
    ///
    /// # Errors
    /// As [`forward`](Rows::forward).
    pub fn csr<T: Float>(&self, z: View<'_, T>) -> Result<Csr<T>> {
        let plan = self.plan(&z)?;
        let parts = self.chunks(&plan, |range| {
            let (mut buffers, mut support, mut part) =
                (Buffers::<T>::default(), Support::default(), Csr::empty(plan.z.len));
            for row in range {
                let Buffers { gather: [gz, ..], clean, .. } = &mut buffers;
                let z = plan.z.read(z.data, row, gz);
                support.clear();
                match clean.load(z, None, plan.mask(row)) {
                    Content::Empty => {}
                    Content::Bad(index) => return Err(self.bad_score(row, index, z[index].widen())),
                    Content::Clean | Content::Compact => {
                        let mapping = self.mapping(row);
                        mapping.support_row(&clean.z, &mut support, &mut clean.scratch).map_err(|e| at_row(e, row))?;
                    }
                }
                part.indices.extend(support.index.iter().map(|i| clean.keep[*i as usize]));
                part.ranks.extend_from_slice(&support.index);
                part.values.extend(support.value.iter().map(|p| T::narrow(*p)));
                part.indptr.push(part.indices.len());
            }
            Ok(part)
        });
        let mut all = Csr::empty(plan.z.len);
        for part in parts {
            let part = part?;
            let base = all.indices.len();
            all.indptr.extend(part.indptr[1..].iter().map(|end| base + end));
            all.indices.extend(part.indices);
            all.ranks.extend(part.ranks);
            all.values.extend(part.values);
        }
        Ok(all)
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
        for row in 0..p.rows() {
            let range = p.indptr[row]..p.indptr[row + 1];
            widen_into(&p.values[range.clone()], &mut pw);
            widen_into(&v[range.clone()], &mut vw);
            out.clear();
            out.resize(range.len(), 0.0);
            self.mapping(row).support_vjp_row(&p.ranks[range], &pw, &vw, &mut out).ok_or(Error::Unsupported {
                operation: self.name(),
                what: "the derivative reaches beyond the support; use the dense one",
            })?;
            gradient.extend(out.iter().map(|g| T::narrow(*g)));
        }
        Ok(gradient)
    }

    /// One pass over all rows: the body of forward, vjp and jvp.
    fn sweep<T: Float>(
        &self,
        operation: Operation,
        policy: Policy,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        out: ViewMut<'_, T>,
    ) -> Result<()> {
        let plan = self.plan(z)?;
        plan.fits("the output", out.shape())?;
        if let Some((p, v)) = pv {
            plan.fits("p", p.shape())?;
            plan.fits("v", v.shape())?;
        }
        let pv = pv.map(|(p, v)| ((p.data, p.layout.rows(plan.axis)), (v.data, v.layout.rows(plan.axis))));
        let work = |rows: std::ops::Range<usize>, out: &mut [T]| {
            let mut buffers = Buffers::default();
            let mut first = None;
            for (row, out) in rows.zip(out.chunks_exact_mut(plan.z.len)) {
                let Buffers { gather: [gz, gp, gv, _], clean, .. } = &mut buffers;
                let z = plan.z.read(z.data, row, gz);
                let pv = pv.as_ref().map(|((p, pr), (v, vr))| (pr.read(p, row, gp), vr.read(v, row, gv)));
                if let Err(error) = self.row(operation, policy, row, z, pv, plan.mask(row), out, clean) {
                    first.get_or_insert(error);
                }
            }
            first
        };
        let target = out.layout.rows(plan.axis);
        let issue = if plan.z.len == 0 || plan.z.count() == 0 {
            None
        } else if target.is_packed() {
            let chunk = plan.chunk_rows();
            let data = target.packed_mut(out.data);
            self.map_chunks_mut(&plan, data, |k, part| {
                let first = k * chunk;
                work(first..first + part.len() / plan.z.len, part)
            })
        } else {
            // Rows that are not contiguous are computed block by block into packed memory and put in
            // place by the caller's thread.
            let (count, chunk) = (plan.z.count(), plan.chunk_rows());
            let block = chunk * 16;
            let mut packed = vec![T::default(); block.min(count) * plan.z.len];
            let mut issue = None;
            for first in (0..count).step_by(block) {
                let rows = block.min(count - first);
                let packed = &mut packed[..rows * plan.z.len];
                let found = self.map_chunks_mut(&plan, packed, |k, part| {
                    let start = first + k * chunk;
                    work(start..start + part.len() / plan.z.len, part)
                });
                issue = issue.or(found);
                for (row, values) in packed.chunks_exact(plan.z.len).enumerate() {
                    target.write(out.data, first + row, values);
                }
            }
            issue
        };
        issue.map_or(Ok(()), Err)
    }

    /// One row of a sweep.
    #[expect(
        clippy::too_many_arguments,
        reason = "the row, its place and its buffers; a struct would only rename them"
    )]
    fn row<T: Float>(
        &self,
        operation: Operation,
        policy: Policy,
        row: usize,
        z: &[T],
        pv: Option<(&[T], &[T])>,
        mask: impl Fn(usize) -> bool,
        out: &mut [T],
        clean: &mut Clean,
    ) -> Result<()> {
        let mapping = self.mapping(row);
        match clean.load(z, pv, mask) {
            Content::Empty => out.fill(T::default()),
            Content::Bad(index) => {
                out.fill(T::NAN);
                if policy == Policy::Report {
                    return Err(self.bad_score(row, index, z[index].widen()));
                }
            }
            content => {
                let Clean { z, p, v, out: result, keep, scratch } = clean;
                result.clear();
                result.resize(z.len(), 0.0);
                let done = match operation {
                    Operation::Forward => mapping.forward_row(z, result, scratch).map(|_| ()),
                    Operation::Vjp => mapping.vjp_row(z, p, v, result, scratch),
                    Operation::Jvp => mapping.jvp_row(z, p, v, result, scratch),
                };
                if content == Content::Clean {
                    for (out, value) in out.iter_mut().zip(result.iter()) {
                        *out = T::narrow(*value);
                    }
                } else {
                    out.fill(T::default());
                    for (i, value) in keep.iter().zip(result.iter()) {
                        out[*i as usize] = T::narrow(*value);
                    }
                }
                done.map_err(|e| at_row(e, row))?;
            }
        }
        Ok(())
    }

    fn bad_score(&self, row: usize, index: usize, value: f64) -> Error {
        Error::Score { operation: self.name(), row, index, value }
    }

    /// Checks axis and mask against the scores.
    fn plan<T>(&self, z: &View<'_, T>) -> Result<Plan<'_>> {
        let shape = z.shape();
        let axes = shape.len() as isize;
        let axis = if self.axis < 0 { self.axis + axes } else { self.axis };
        if axis < 0 || axis >= axes {
            return Err(Error::Shape {
                operation: self.name(),
                what: "axis",
                expected: format!("between {} and {} for scores of shape {shape:?}", -axes, axes - 1),
                got: self.axis.to_string(),
            });
        }
        let axis = axis as usize;
        if shape[axis] > u32::MAX as usize {
            return Err(Error::Shape {
                operation: self.name(),
                what: "a row",
                expected: format!("at most {} entries long", u32::MAX),
                got: shape[axis].to_string(),
            });
        }
        let plan = Plan { operation: self.name(), shape: shape.to_vec(), axis, z: z.layout.rows(axis), mask: None };
        let Some(mask) = &self.mask else { return Ok(plan) };
        plan.fits("the mask", mask.shape())?;
        Ok(Plan { mask: Some((mask.data, mask.layout.rows(axis))), ..plan })
    }

    /// Runs `work` over fixed chunks of rows and returns the results in order.
    fn chunks<R: Send>(&self, plan: &Plan<'_>, work: impl Fn(std::ops::Range<usize>) -> R + Sync) -> Vec<R> {
        let (count, chunk) = (plan.z.count(), plan.chunk_rows());
        let range = |k: usize| k * chunk..((k + 1) * chunk).min(count);
        let chunks = count.div_ceil(chunk);
        #[cfg(feature = "rayon")]
        if self.threads && plan.is_large() {
            use rayon::prelude::*;
            return (0..chunks).into_par_iter().map(|k| work(range(k))).collect();
        }
        (0..chunks).map(|k| work(range(k))).collect()
    }

    /// Runs `work` over fixed chunks of packed rows and returns the first error in row order.
    fn map_chunks_mut<T: Send>(
        &self,
        plan: &Plan<'_>,
        data: &mut [T],
        work: impl Fn(usize, &mut [T]) -> Option<Error> + Sync,
    ) -> Option<Error> {
        let chunk = plan.chunk_rows() * plan.z.len;
        #[cfg(feature = "rayon")]
        if self.threads && plan.is_large() {
            use rayon::prelude::*;
            let issues: Vec<_> = data.par_chunks_mut(chunk).enumerate().map(|(k, part)| work(k, part)).collect();
            return issues.into_iter().flatten().next();
        }
        data.chunks_mut(chunk).enumerate().map(|(k, part)| work(k, part)).fold(None, Option::or)
    }
}

/// Shapes, checked once per call.
struct Plan<'a> {
    operation: &'static str,
    shape: Vec<usize>,
    axis: usize,
    z: RowLayout,
    mask: Option<(&'a [bool], RowLayout)>,
}

impl Plan<'_> {
    fn fits(&self, what: &'static str, shape: &[usize]) -> Result<()> {
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

    /// Whether entry `i` of a row takes part.
    fn mask(&self, row: usize) -> impl Fn(usize) -> bool {
        let start = self.mask.as_ref().map(|(data, rows)| (*data, rows.position(row)));
        move |i| start.as_ref().is_none_or(|(data, (first, step))| data[(first + i as isize * step) as usize])
    }

    /// Rows per chunk: a fixed amount of work, so that the split does not depend on the threads.
    fn chunk_rows(&self) -> usize {
        (16_384 / self.z.len.max(1)).clamp(1, 1 << 16).next_multiple_of(8)
    }

    /// Below this a thread pool costs more than it brings.
    #[cfg(feature = "rayon")]
    fn is_large(&self) -> bool {
        self.z.count() * self.z.len >= 65_536
    }
}

/// What a row turned out to hold.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    /// Finite scores only: the loaded row is the row.
    Clean,
    /// Masked entries were taken out; `keep` says where the rest belongs.
    Compact,
    /// Nothing takes part.
    Empty,
    /// NaN or +∞ at this index.
    Bad(usize),
}

/// Memory for gathered rows, one per argument, and for the cleaned row.
#[derive(Default)]
struct Buffers<T> {
    gather: [Vec<T>; 4],
    clean: Clean,
}

/// The entries of a row that take part, widened.
#[derive(Default)]
pub(crate) struct Clean {
    z: Vec<f64>,
    p: Vec<f64>,
    v: Vec<f64>,
    out: Vec<f64>,
    keep: Vec<u32>,
    scratch: Scratch,
}

impl Clean {
    fn load<T: Float>(&mut self, z: &[T], pv: Option<(&[T], &[T])>, takes_part: impl Fn(usize) -> bool) -> Content {
        self.z.clear();
        self.keep.clear();
        for (i, score) in z.iter().enumerate() {
            let score = score.widen();
            if score == f64::NEG_INFINITY || !takes_part(i) {
                continue;
            }
            if !score.is_finite() {
                return Content::Bad(i);
            }
            self.z.push(score);
            self.keep.push(i as u32);
        }
        if self.z.is_empty() {
            return Content::Empty;
        }
        let clean = self.z.len() == z.len();
        if let Some((p, v)) = pv {
            self.p.clear();
            self.v.clear();
            self.p.extend(self.keep.iter().map(|i| p[*i as usize].widen()));
            self.v.extend(self.keep.iter().map(|i| v[*i as usize].widen()));
        }
        if clean { Content::Clean } else { Content::Compact }
    }
}

fn widen_into<T: Float>(from: &[T], to: &mut Vec<f64>) {
    to.clear();
    to.extend(from.iter().map(|x| x.widen()));
}

/// Puts the row into errors that a mapping raised without knowing it.
fn at_row(error: Error, at: usize) -> Error {
    match error {
        Error::NotConverged { operation, iterations, residual, .. } => {
            Error::NotConverged { operation, row: at, iterations, residual }
        }
        other => other,
    }
}

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
    /// Position of every stored entry among those of its row that took part: neighbours are neighbours
    /// across a masked entry, which `indices` cannot tell from a zero.
    ranks: Vec<u32>,
}

impl<T: Float> Csr<T> {
    fn empty(columns: usize) -> Self {
        Self { indptr: vec![0], indices: Vec::new(), values: Vec::new(), columns, ranks: Vec::new() }
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
}
