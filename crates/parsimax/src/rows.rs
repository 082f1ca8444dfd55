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

use crate::batch::{CleanRow, Plan, at_row};
use crate::counted::Oscar;
use crate::law::Form;
use crate::mapping::{LongRow, Scratch};
use crate::place::{Place, scattered};
use crate::{Error, Float, Mapping, Result, View, ViewMut};
use crate::{single, structured};
use std::ops::Range;

/// Applies a mapping to every row of an array.
///
/// ```
/// use parsimax::{Rows, Sparsemax, View, ViewMut};
/// let z = [1.0f32, 0.5, 0.0, /* second row */ 0.5, 0.5, f32::NEG_INFINITY];
/// let mut p = [0.0f32; 6];
/// Rows::new(&Sparsemax::new()).forward(View::new(&z, &[2, 3])?, ViewMut::new(&mut p, &[2, 3])?)?;
/// assert_eq!(p, [0.75, 0.25, 0.0, 0.5, 0.5, 0.0]);
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
    pub(crate) fn mapping(&self, row: usize) -> &M {
        &self.mappings[self.group(row)]
    }

    fn group(&self, row: usize) -> usize {
        (row / self.run) % self.mappings.len()
    }

    /// Whether all mappings compute rows of single precision as they are.
    pub(crate) fn is_single(&self) -> bool {
        self.mappings.iter().all(|m| m.kernel().is_some() || m.structured().is_some() || m.single().is_some())
    }

    /// Whether the derivative of a sparse row asks for neighbours.
    pub(crate) fn has_neighbours(&self) -> bool {
        self.mappings.iter().any(Mapping::has_neighbours)
    }

    pub(crate) fn mappings(&self) -> &[M] {
        self.mappings
    }

    pub(crate) fn name(&self) -> &'static str {
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
        let per_row = plan.map(|range| {
            let mut buffers = Buffers::default();
            range
                .map(|row| {
                    if let Some(done) = self.parameter_without_copy(&plan, &z, (&p, &v), row) {
                        return done;
                    }
                    let Buffers { gather: [gz, gp, gv], work: Work { clean, p: wp, v: wv, scratch, .. } } =
                        &mut buffers;
                    let z = plan.z.read(z.data, row, gz);
                    clean.load(z, plan.mask(row)).map_err(|i| plan.bad_score(row, i, z[i].widen()))?;
                    if clean.z.is_empty() {
                        return Ok(0.0);
                    }
                    clean.gather(pr.read(p.data, row, gp), wp);
                    clean.gather(vr.read(v.data, row, gv), wv);
                    let slope = self.mapping(row).parameter_vjp_row(&clean.z, wp, wv, scratch);
                    slope.ok_or(Error::Unsupported {
                        operation: self.name(),
                        what: "the mapping has no parameter with a gradient",
                    })
                })
                .collect::<Vec<_>>()
        });
        let mut gradient = vec![0.0; self.mappings.len()];
        for (row, value) in per_row.into_iter().flatten().enumerate() {
            gradient[self.group(row)] += value?;
        }
        Ok(gradient)
    }

    /// The gradient in the parameter from a long row without a copy of it; `None` if it needs none, or cannot do
    /// without.
    fn parameter_without_copy<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        (p, v): (&View<'_, T>, &View<'_, T>),
        row: usize,
    ) -> Option<Result<f64>> {
        if plan.z.len <= single::COPIED {
            return None;
        }
        let (mapping, z) = (self.mapping(row), scattered(plan, z.data, row));
        if let Some(i) = z.bad() {
            return Some(Err(plan.bad_score(row, i, z.score(i).widen())));
        }
        let at = |x: &View<'_, T>| x.layout.rows(plan.axis).position(row);
        let entry = |x: &View<'_, T>, (first, step): (isize, isize), i: usize| -> f64 {
            x.data[(first + i as isize * step) as usize].widen()
        };
        let (of_p, of_v) = (at(p), at(v));
        if let Some(oscar) = Oscar::of(mapping).filter(|_| size_of::<T>() == size_of::<u16>()) {
            return Some(Ok(oscar.slope(&z, |i| entry(p, of_p, i), |i| entry(v, of_v, i))));
        }
        let is_rounded = size_of::<T>() < size_of::<f64>();
        let slope = mapping.parameter_vjp_by(&LongRow {
            d: plan.z.len,
            z: &|i| z.counts(i).then(|| z.score(i).widen()),
            p: &|i| if z.counts(i) { entry(p, of_p, i) } else { 0.0 },
            v: &|i| entry(v, of_v, i),
            is_rounded,
            law: &|| mapping.form().filter(|_| is_rounded).and_then(|form| z.law(form)),
        })?;
        // Nothing takes part, and nothing depends on anything.
        Some(Ok(if slope.is_nan() && z.entries().next().is_none() { 0.0 } else { slope }))
    }

    /// [`vjp`](Rows::vjp) and [`parameter_vjp`](Rows::parameter_vjp) together: what the backward pass of a
    /// learned α needs, in one sweep where a kernel offers it (single precision, 1 ≤ α ≤ 2).
    ///
    /// # Errors
    /// As [`parameter_vjp`](Rows::parameter_vjp).
    pub fn vjp_with_parameter<T: Float>(
        &self,
        z: View<'_, T>,
        p: View<'_, T>,
        v: View<'_, T>,
        out: ViewMut<'_, T>,
    ) -> Result<Vec<f64>> {
        let plan = self.plan(&z)?;
        plan.fits("p", p.shape())?;
        plan.fits("v", v.shape())?;
        plan.fits("the output", out.shape())?;
        // All or none: a chunk that fell back would have to be swept twice.
        let kernels = self.mappings.iter().all(|m| m.kernel().is_some_and(single::has_slope));
        if T::as_f32(z.data).is_none() || !kernels {
            self.vjp(z.clone(), p.clone(), v.clone(), out)?;
            return self.parameter_vjp(z, p, v);
        }
        let chunks = plan.write(out, |rows, out| {
            let mut slopes = vec![0.0; rows.len()];
            if rows.len() == 1 && self.is_constant(&plan, &p, &v, rows.start) {
                out.fill(T::default());
                return Ok(slopes);
            }
            let done = self.by_kernel(&plan, &z, Some((&p, &v)), rows, out, Some(&mut slopes));
            done.unwrap_or(Ok(())).map(|()| slopes)
        });
        let mut gradient = vec![0.0; self.mappings.len()];
        let mut row = 0;
        for chunk in chunks {
            for slope in chunk? {
                gradient[self.group(row)] += slope;
                row += 1;
            }
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
        let tolerated = |e: &Error| policy == Policy::FillNan && matches!(e, Error::Score { .. });
        let target = out.layout.rows(plan.axis);
        if operation != Operation::Jvp && plan.would_copy::<T>(&target) && self.is_anywhere::<T>() {
            let mut first = None;
            for row in 0..plan.z.count() {
                let place = Place::at(&mut *out.data, target.position(row), plan.z.len);
                let issue = self.anywhere(&plan, z, pv, row, place).and_then(Result::err);
                first = first.or(issue.filter(|e| !tolerated(e)));
            }
            return first.map_or(Ok(()), Err);
        }
        let issues = plan.write(out, |rows, out| self.chunk(operation, &plan, z, pv, rows, out, tolerated));
        issues.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    /// Probabilities of a chunk of rows, as [`forward`](Rows::forward) has them.
    pub(crate) fn forward_chunk<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        rows: Range<usize>,
        out: &mut [T],
    ) -> Result<()> {
        self.chunk(Operation::Forward, plan, z, None, rows, out, |_| false).map_or(Ok(()), Err)
    }

    /// A chunk of a sweep; returns the first error that is not tolerated.
    #[expect(clippy::too_many_arguments, reason = "the arguments of a sweep and a part of its rows")]
    fn chunk<T: Float>(
        &self,
        operation: Operation,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        rows: Range<usize>,
        out: &mut [T],
        tolerated: impl Fn(&Error) -> bool,
    ) -> Option<Error> {
        if let (1, Operation::Vjp, Some((p, v))) = (rows.len(), operation, pv)
            && self.is_constant(plan, p, v, rows.start)
        {
            out.fill(T::default());
            return None;
        }
        // What takes the place of a long row knows `Jᵀv`, which is `Jv` for all but one mapping.
        let is_turned =
            operation == Operation::Jvp && matches!(self.mapping(rows.start).form(), Some(Form::Hourglass { .. }));
        if rows.len() == 1
            && !is_turned
            && let Some(done) = self.without_copy(plan, z, pv, rows.start, out)
        {
            return done.err().filter(|e| !tolerated(e));
        }
        let done = self
            .by_kernel(plan, z, pv, rows.clone(), out, None)
            .or_else(|| self.by_structured(plan, z, pv, rows.clone(), out));
        if let Some(done) = done {
            return done.err().filter(|e| !tolerated(e));
        }
        let pv = pv.map(|(p, v)| ((p.data, p.layout.rows(plan.axis)), (v.data, v.layout.rows(plan.axis))));
        let mut buffers = Buffers::default();
        let mut first = None;
        for (row, out) in rows.zip(out.chunks_exact_mut(plan.z.len.max(1))) {
            let Buffers { gather: [gz, gp, gv], work } = &mut buffers;
            let z = plan.z.read(z.data, row, gz);
            let pv = pv.as_ref().map(|((p, pr), (v, vr))| (pr.read(p, row, gp), vr.read(v, row, gv)));
            if let Err(error) = self.row(operation, plan, row, z, pv, out, work) {
                first = first.or(Some(error).filter(|e| !tolerated(e)));
            }
        }
        first
    }

    /// Whether a long row has a gradient of 0 because the same number comes in everywhere, as from a sum: the entries of a
    /// row sum to a constant.
    fn is_constant<T: Float>(&self, plan: &Plan<'_>, p: &View<'_, T>, v: &View<'_, T>, row: usize) -> bool {
        if plan.z.len <= single::COPIED {
            return false;
        }
        let at = |x: &View<'_, T>| x.layout.rows(plan.axis).position(row);
        let ((v_first, v_step), (p_first, _)) = (at(v), at(p));
        // Bad rows are NaN from their first entry on.
        v_step == 0 && v.data[v_first as usize].widen().is_finite() && !p.data[p_first as usize].widen().is_nan()
    }

    /// Computes a chunk of rows by the kernels of their mappings: probabilities, or `Jᵀv` where `pv` is
    /// given. `None` if the rows are not of single precision or one of their mappings has no kernel; nothing
    /// was written then.
    fn by_kernel<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        rows: Range<usize>,
        out: &mut [T],
        mut slopes: Option<&mut [f64]>,
    ) -> Option<Result<()>> {
        let (z, mut out, d) = (T::as_f32(z.data)?, T::as_f32_mut(out)?, plan.z.len);
        if d == 0 {
            return None;
        }
        let runs = self.runs(rows, |m| m.kernel().filter(|k| slopes.is_none() || single::has_slope(*k)))?;
        let (mut buffers, mut issue) = (single::Buffers::default(), None);
        for (rows, kernel) in runs {
            let part;
            (part, out) = out.split_at_mut(rows.len() * d);
            let slope = match slopes.take() {
                Some(all) => {
                    let (now, later) = all.split_at_mut(rows.len());
                    slopes = Some(later);
                    Some(now)
                }
                None => None,
            };
            let found = match pv {
                None => single::forward(kernel, plan, z, &rows, part, &mut buffers),
                Some(pv) => single::backward(kernel, plan, z, pv, &rows, part, slope, &mut buffers),
            };
            issue = issue.or(found);
        }
        Some(issue.map_or(Ok(()), Err))
    }

    /// The same by the kernels of structured mappings.
    fn by_structured<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        rows: Range<usize>,
        out: &mut [T],
    ) -> Option<Result<()>> {
        let (z, mut out, d) = (T::as_f32(z.data)?, T::as_f32_mut(out)?, plan.z.len);
        if d == 0 {
            return None;
        }
        let runs = self.runs(rows, |m| m.structured().filter(|k| pv.is_none() || k.is_symmetric()))?;
        let (mut buffers, mut issue) = (structured::Buffers::default(), None);
        for (rows, kernel) in runs {
            let part;
            (part, out) = out.split_at_mut(rows.len() * d);
            let found = match pv {
                None => structured::forward(kernel, plan, z, &rows, part, &mut buffers),
                Some(pv) => structured::backward(kernel, plan, z, pv, &rows, part, &mut buffers),
            };
            issue = issue.or(found);
        }
        Some(issue.map_or(Ok(()), Err))
    }

    /// The rows that share a kernel, one range after another; `None` if a row has none.
    fn runs<K>(&self, rows: Range<usize>, kernel: impl Fn(&M) -> Option<K>) -> Option<Vec<(Range<usize>, K)>> {
        let mut runs = Vec::new();
        let mut start = rows.start;
        while start < rows.end {
            let end = (start / self.run).saturating_add(1).saturating_mul(self.run).min(rows.end);
            runs.push((start..end, kernel(self.mapping(start))?));
            start = end;
        }
        Some(runs)
    }

    /// One row of a sweep. A row with a bad score is filled with NaN.
    #[expect(
        clippy::too_many_arguments,
        reason = "the row, its place and its buffers; a struct would only rename them"
    )]
    fn row<T: Float>(
        &self,
        operation: Operation,
        plan: &Plan<'_>,
        row: usize,
        z: &[T],
        pv: Option<(&[T], &[T])>,
        out: &mut [T],
        work: &mut Work,
    ) -> Result<()> {
        if let Some(done) = self.in_place(operation, plan, row, z, pv, out, &mut work.scratch) {
            return done;
        }
        if self.in_single(operation, plan, row, z, pv, out, work) {
            return Ok(());
        }
        let Work { clean, p, v, result, scratch, .. } = work;
        if let Err(index) = clean.load(z, plan.mask(row)) {
            out.fill(T::NAN);
            return Err(plan.bad_score(row, index, z[index].widen()));
        }
        if clean.z.is_empty() {
            out.fill(T::default());
            return Ok(());
        }
        if let Some((row_p, row_v)) = pv {
            clean.gather(row_p, p);
            clean.gather(row_v, v);
        }
        result.clear();
        result.resize(clean.z.len(), 0.0);
        let mapping = self.mapping(row);
        let done = match operation {
            Operation::Forward => mapping.forward_row(&clean.z, result, scratch).map(|_| ()),
            Operation::Vjp => mapping.vjp_row(&clean.z, p, v, result, scratch),
            Operation::Jvp => mapping.jvp_row(&clean.z, p, v, result, scratch),
        };
        clean.scatter(result, 1.0, out);
        done.map_err(|e| at_row(e, row))
    }

    /// The row without a copy, if it is in double precision, unmasked and finite throughout.
    #[expect(clippy::too_many_arguments, reason = "as for a row")]
    fn in_place<T: Float>(
        &self,
        operation: Operation,
        plan: &Plan<'_>,
        row: usize,
        z: &[T],
        pv: Option<(&[T], &[T])>,
        out: &mut [T],
        scratch: &mut Scratch,
    ) -> Option<Result<()>> {
        let (z, out) = (T::as_f64(z)?, T::as_f64_mut(out)?);
        let mapping = self.mapping(row);
        let takes_part = plan.mask(row);
        // Without a probability an entry has no derivative, whatever its score.
        let by_probabilities = operation != Operation::Forward && !mapping.reads_scores();
        // What comes in there may be no number, and 0 times that is none either: then it is taken out.
        let is_harmless = |i: usize| pv.is_none_or(|(_, v)| v[i].widen().is_finite());
        let is_fit = |(i, z): (usize, &f64)| {
            let is_gone = *z == f64::NEG_INFINITY || !takes_part(i);
            if is_gone { by_probabilities && is_harmless(i) } else { z.is_finite() }
        };
        if let (Some((p, v)), true) = (pv, z.len() > single::COPIED) {
            let is_bad = |(i, z): (usize, &f64)| (z.is_nan() || *z == f64::INFINITY) && takes_part(i);
            let score = |i: usize| Some(z[i]).filter(|z| *z > f64::NEG_INFINITY && takes_part(i));
            let (p, v) = (T::as_f64(p)?, T::as_f64(v)?);
            if !z.iter().enumerate().any(is_bad) && mapping.vjp_scattered(&score, p, v, out) {
                return Some(Ok(()));
            }
        }
        if z.is_empty() || plan.is_masked() && !by_probabilities || !z.iter().enumerate().all(is_fit) {
            return None;
        }
        let done = match (operation, pv) {
            (Operation::Forward, _) => mapping.forward_row(z, out, scratch).map(|_| ()),
            (Operation::Vjp, Some((p, v))) => mapping.vjp_row(z, T::as_f64(p)?, T::as_f64(v)?, out, scratch),
            (Operation::Jvp, Some((p, v))) => mapping.jvp_row(z, T::as_f64(p)?, T::as_f64(v)?, out, scratch),
            _ => return None,
        };
        Some(done.map_err(|e| at_row(e, row)))
    }

    /// The row as it is, if it is in single precision, without a bad score, and the mapping can; `false` if it was
    /// not computed.
    #[expect(clippy::too_many_arguments, reason = "as for a row")]
    fn in_single<T: Float>(
        &self,
        operation: Operation,
        plan: &Plan<'_>,
        row: usize,
        z: &[T],
        pv: Option<(&[T], &[T])>,
        out: &mut [T],
        Work { masked, buffers, .. }: &mut Work,
    ) -> bool {
        let parts = (self.mapping(row).single(), T::as_f32(z), T::as_f32_mut(out));
        let (Some(mapping), Some(z), Some(out)) = parts else { return false };
        let reads_scores = self.mapping(row).reads_scores();
        let takes_part = plan.mask(row);
        if let (Some((p, v)), false) = (pv, reads_scores) {
            let is_bad = |(i, z): (usize, &f32)| (z.is_nan() || *z == f32::INFINITY) && takes_part(i);
            let (Some(p), Some(v)) = (T::as_f32(p), T::as_f32(v)) else { return false };
            if operation != Operation::Vjp || z.iter().enumerate().any(is_bad) {
                return false;
            }
            mapping.vjp(z, p, v, out);
            return true;
        }
        let z = if plan.is_masked() {
            masked.clear();
            masked.extend(z.iter().enumerate().map(|(i, z)| if takes_part(i) { *z } else { f32::NEG_INFINITY }));
            masked
        } else {
            z
        };
        if !single::is_plain(z) {
            return false;
        }
        match (operation, pv) {
            (Operation::Forward, _) => mapping.forward(z, out, buffers),
            (Operation::Vjp, Some((p, v))) => {
                let (Some(p), Some(v)) = (T::as_f32(p), T::as_f32(v)) else { return false };
                mapping.vjp(z, p, v, out);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn plan<T: Float>(&self, z: &View<'_, T>) -> Result<Plan<'_>> {
        let kernel = T::as_f32(z.data).and_then(|_| self.mappings[0].kernel());
        let cost = match kernel {
            Some(kernel) => kernel.cost(),
            None if T::as_f32(z.data).is_some() => 0.0,
            None => single::DOUBLE_COST,
        };
        Ok(Plan::new(self.name(), z, self.axis, self.mask.as_ref(), self.threads)?.at_cost(cost))
    }
}

/// Memory for gathered rows, one per argument, and for the row at work.
#[derive(Default)]
struct Buffers<T> {
    gather: [Vec<T>; 3],
    work: Work,
}

/// The entries of a row that take part, and what is computed from them.
#[derive(Default)]
struct Work {
    clean: CleanRow,
    p: Vec<f64>,
    v: Vec<f64>,
    result: Vec<f64>,
    scratch: Scratch,
    /// A row in single precision with −∞ at its masked entries, and what its kernel works in.
    masked: Vec<f32>,
    buffers: single::Buffers,
}
