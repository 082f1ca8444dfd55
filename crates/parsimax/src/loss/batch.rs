//! A loss over a batch: the only place of the losses that knows shapes, masks and threads.

use super::reduction::{Loss, Reduction};
use super::row::{CleanRow, LossScratch, RowLoss};
use super::target::{Effective, Target, Targets, Treatment};
use crate::error::check;
use crate::view::RowLayout;
use crate::{Error, Float, Result, View, ViewMut};

/// A loss of rows of scores against targets, with its derivatives in the scores.
///
/// It is built by [`FenchelYoung`](super::FenchelYoung), [`PerturbedLog`](super::PerturbedLog),
/// [`Likelihood`](super::Likelihood), or from any [`RowLoss`]. Defaults: classes along the last axis,
/// no mask, no smoothing, no class weights, ignore index −100, [`Reduction::Mean`].
/// [The module](super) says what each of them means and what happens to unusual rows.
#[derive(Debug, Clone)]
pub struct BatchLoss<'a, R> {
    pub(super) rows: R,
    axis: isize,
    mask: Option<View<'a, bool>>,
    treatment: Treatment<'a>,
    reduction: Reduction,
    threads: bool,
}

impl<'a, R: RowLoss> BatchLoss<'a, R> {
    /// The batch form of a loss that is defined for one row.
    pub fn of_rows(rows: R) -> Self {
        let treatment = Treatment { smoothing: 0.0, weights: None, ignore: -100 };
        Self { rows, axis: -1, mask: None, treatment, reduction: Reduction::Mean, threads: true }
    }

    /// The axis of the classes; negative axes count from the end. Scores of shape `[n, C, …]` with
    /// targets of shape `[n, …]` take 1.
    #[must_use]
    pub fn axis(mut self, axis: isize) -> Self {
        self.axis = axis;
        self
    }

    /// A mask of the same shape as the scores; `true` means that the entry takes part.
    #[must_use]
    pub fn mask(mut self, mask: View<'a, bool>) -> Self {
        self.mask = Some(mask);
        self
    }

    /// Moves the share ε ∈ [0, 1) of every target to the uniform distribution over the entries that
    /// take part.
    pub fn label_smoothing(mut self, epsilon: f64) -> Result<Self> {
        check((0.0..1.0).contains(&epsilon), self.rows.name(), "label_smoothing", "in [0, 1)", epsilon)?;
        self.treatment.smoothing = epsilon;
        Ok(self)
    }

    /// A weight per class, finite and ≥ 0.
    pub fn class_weights(mut self, weights: &'a [f64]) -> Result<Self> {
        for weight in weights {
            let good = *weight >= 0.0 && weight.is_finite();
            check(good, self.rows.name(), "class_weights", "finite numbers ≥ 0", *weight)?;
        }
        self.treatment.weights = Some(weights);
        Ok(self)
    }

    /// Rows whose class is `index` take no part. Any value will do, a valid class too.
    #[must_use]
    pub fn ignore_index(mut self, index: i64) -> Self {
        self.treatment.ignore = index;
        self
    }

    /// What becomes of the losses of the rows.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }

    /// Stay on the caller's thread. The results are the same.
    #[must_use]
    pub fn single_threaded(mut self) -> Self {
        self.threads = false;
        self
    }

    /// The loss.
    ///
    /// # Errors
    /// If shapes or axis do not fit, a target is not one, or a score that takes part is NaN or `+inf`.
    pub fn value<T: Float>(&self, z: View<'_, T>, target: Target<'_, T>) -> Result<Loss> {
        let plan = self.plan(&z, target)?;
        let rows = self.sweep(&plan, None, |row, out, work| self.row(&plan, row, None, out, work))?;
        Ok(self.reduction.reduce(rows, plan.divisor))
    }

    /// The loss; its gradient in the scores is written into `gradient` in the same sweep.
    ///
    /// # Errors
    /// As [`value`](BatchLoss::value). Where a single row is at fault its gradient is NaN and all other
    /// rows are written.
    pub fn loss_and_gradient<T: Float>(
        &self,
        z: View<'_, T>,
        target: Target<'_, T>,
        gradient: ViewMut<'_, T>,
    ) -> Result<Loss> {
        let plan = self.plan(&z, target)?;
        plan.fits("the gradient", gradient.shape())?;
        let rows = self.sweep(&plan, Some(gradient), |row, out, work| self.row(&plan, row, None, out, work))?;
        Ok(self.reduction.reduce(rows, plan.divisor))
    }

    /// Writes the product of the loss's Hessian with `v`, row by row (rows do not interact). For a
    /// Fenchel–Young loss that is $Jv$ of the mapping, times the row's weight and the reduction's
    /// factor.
    ///
    /// # Errors
    /// As [`loss_and_gradient`](BatchLoss::loss_and_gradient); also if the loss has no such product.
    pub fn hvp<T: Float>(
        &self,
        z: View<'_, T>,
        target: Target<'_, T>,
        v: View<'_, T>,
        out: ViewMut<'_, T>,
    ) -> Result<()> {
        let plan = self.plan(&z, target)?;
        plan.fits("v", v.shape())?;
        plan.fits("the output", out.shape())?;
        let v = (v.data, v.layout.rows(plan.axis));
        self.sweep(&plan, Some(out), |row, out, work| self.row(&plan, row, Some(&v), out, work))?;
        Ok(())
    }

    /// One row: its loss, and its gradient or, if `v` is given, Hessian–vector product in `out`.
    fn row<T: Float>(
        &self,
        plan: &Plan<'_, T>,
        row: usize,
        v: Option<&(&[T], RowLayout)>,
        out: Option<&mut [T]>,
        work: &mut Work<T>,
    ) -> Result<f64> {
        let nothing = |out: Option<&mut [T]>| out.into_iter().for_each(|out| out.fill(T::default()));
        if plan.targets.is_ignored(row) {
            nothing(out);
            return Ok(0.0);
        }
        let Work { gather, clean, y, v: direction, result, scratch } = work;
        let z = plan.z.read(plan.scores, row, gather);
        if let Err(index) = clean.load(z, plan.mask(row)) {
            return Err(Error::Score { operation: self.rows.name(), row, index, value: z[index].widen() });
        }
        let effective = plan.targets.effective(row, clean, y, gather)?;
        let Some((target, weight)) = effective.target(y) else {
            nothing(out);
            return Ok(if effective == Effective::Masked { f64::INFINITY } else { 0.0 });
        };
        result.clear();
        result.resize(clean.z.len(), 0.0);
        let loss = if let Some((data, layout)) = v {
            clean.gather(layout.read(data, row, gather), direction);
            self.rows.hvp_row(row, &clean.z, target, direction, result, scratch).map(|()| 0.0)
        } else {
            self.rows.loss_row(row, &clean.z, target, result, scratch)
        };
        let loss = loss.map_err(|error| at_row(error, row))?;
        if let Some(out) = out {
            clean.scatter(result, plan.divisor.map_or(0.0, |divisor| weight / divisor), out);
        }
        Ok(weight * loss)
    }

    /// Runs `work` on every row and returns the values in row order, or the first error. A row at
    /// fault is filled with NaN.
    fn sweep<T: Float>(
        &self,
        plan: &Plan<'_, T>,
        out: Option<ViewMut<'_, T>>,
        work: impl Fn(usize, Option<&mut [T]>, &mut Work<T>) -> Result<f64> + Sync,
    ) -> Result<Vec<f64>> {
        let (count, len) = (plan.z.count(), plan.z.len);
        let mut values = vec![0.0; count];
        let Some(out) = out.filter(|_| len > 0) else {
            self.jobs(plan, 0, &mut values, None, &work)?;
            return Ok(values);
        };
        let target = out.layout.rows(plan.axis);
        if target.is_packed() {
            self.jobs(plan, 0, &mut values, Some(target.packed_mut(out.data)), &work)?;
            return Ok(values);
        }
        // Rows that are not contiguous are computed block by block into packed memory and put in place
        // by the caller's thread.
        let block = plan.chunk_rows() * 16;
        let mut packed = vec![T::default(); block.min(count) * len];
        let mut issue = Ok(());
        for first in (0..count).step_by(block) {
            let values = &mut values[first..count.min(first + block)];
            let packed = &mut packed[..values.len() * len];
            issue = issue.and(self.jobs(plan, first, values, Some(&mut *packed), &work));
            for (row, part) in packed.chunks_exact(len).enumerate() {
                target.write(out.data, first + row, part);
            }
        }
        issue.map(|()| values)
    }

    /// Splits rows into chunks of a fixed size, so that the split does not depend on the threads, and
    /// works through them.
    fn jobs<T: Float>(
        &self,
        plan: &Plan<'_, T>,
        first: usize,
        values: &mut [f64],
        out: Option<&mut [T]>,
        work: &(impl Fn(usize, Option<&mut [T]>, &mut Work<T>) -> Result<f64> + Sync),
    ) -> Result<()> {
        let (chunk, len) = (plan.chunk_rows(), plan.z.len);
        let mut parts = out.map(|out| out.chunks_mut(chunk * len));
        let jobs: Vec<_> = values
            .chunks_mut(chunk)
            .enumerate()
            .map(|(k, values)| (first + k * chunk, values, parts.as_mut().and_then(Iterator::next)))
            .collect();
        let run = |buffers: &mut Work<T>, (first, values, mut out): (usize, &mut [f64], Option<&mut [T]>)| {
            let mut issue = Ok(());
            for (i, value) in values.iter_mut().enumerate() {
                let mut out = out.as_mut().map(|out| &mut out[i * len..(i + 1) * len]);
                match work(first + i, out.as_deref_mut(), buffers) {
                    Ok(loss) => *value = loss,
                    Err(error) => {
                        out.into_iter().for_each(|out| out.fill(T::NAN));
                        issue = issue.and(Err(error));
                    }
                }
            }
            issue
        };
        #[cfg(feature = "rayon")]
        if self.threads && plan.is_large() {
            use rayon::prelude::*;
            let issues: Vec<_> = jobs.into_par_iter().map_init(Work::default, run).collect();
            return issues.into_iter().collect();
        }
        let mut buffers = Work::default();
        jobs.into_iter().map(|job| run(&mut buffers, job)).fold(Ok(()), Result::and)
    }

    /// Checks axis, mask and targets against the scores.
    fn plan<'b, T: Float>(&'b self, z: &View<'b, T>, target: Target<'b, T>) -> Result<Plan<'b, T>> {
        let (operation, shape) = (self.rows.name(), z.shape());
        let axes = shape.len() as isize;
        let axis = if self.axis < 0 { self.axis + axes } else { self.axis };
        if axis < 0 || axis >= axes {
            return Err(Error::Shape {
                operation,
                what: "axis",
                expected: format!("between {} and {} for scores of shape {shape:?}", -axes, axes - 1),
                got: self.axis.to_string(),
            });
        }
        let axis = axis as usize;
        if shape[axis] > u32::MAX as usize {
            return Err(Error::Shape {
                operation,
                what: "a row",
                expected: format!("at most {} entries long", u32::MAX),
                got: shape[axis].to_string(),
            });
        }
        let targets = Targets::new(operation, target, shape, axis, self.treatment)?;
        let mut plan = Plan {
            operation,
            shape: shape.to_vec(),
            axis,
            scores: z.data,
            z: z.layout.rows(axis),
            mask: None,
            divisor: self.reduction.divisor(|| targets.mass()),
            targets,
        };
        if let Some(mask) = &self.mask {
            plan.fits("the mask", mask.shape())?;
            plan.mask = Some((mask.data, mask.layout.rows(axis)));
        }
        Ok(plan)
    }
}

/// Shapes and targets, checked once per call.
struct Plan<'a, T> {
    operation: &'static str,
    shape: Vec<usize>,
    axis: usize,
    scores: &'a [T],
    z: RowLayout,
    mask: Option<(&'a [bool], RowLayout)>,
    targets: Targets<'a, T>,
    divisor: Option<f64>,
}

impl<T> Plan<'_, T> {
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

    /// Whether an entry of a row takes part.
    fn mask(&self, row: usize) -> impl Fn(usize) -> bool {
        let start = self.mask.as_ref().map(|(data, rows)| (*data, rows.position(row)));
        move |i| start.as_ref().is_none_or(|(data, (first, step))| data[(first + i as isize * step) as usize])
    }

    /// Rows per chunk: a fixed amount of work, and never so few that its buffers are the larger part.
    fn chunk_rows(&self) -> usize {
        (16_384 / self.z.len.max(1)).clamp(1, 1 << 16).next_multiple_of(8)
    }

    /// Below this a thread pool costs more than it brings.
    #[cfg(feature = "rayon")]
    fn is_large(&self) -> bool {
        self.z.count() * self.z.len >= 65_536
    }
}

/// Memory for one row, reused from row to row.
#[derive(Default)]
struct Work<T> {
    gather: Vec<T>,
    clean: CleanRow,
    y: Vec<f64>,
    v: Vec<f64>,
    result: Vec<f64>,
    scratch: LossScratch,
}

/// Puts the row into errors that a mapping raised without knowing it.
fn at_row(error: Error, row: usize) -> Error {
    match error {
        Error::NotConverged { operation, iterations, residual, .. } => {
            Error::NotConverged { operation, row, iterations, residual }
        }
        other => other,
    }
}
