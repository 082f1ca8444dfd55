//! A loss over a batch: the only place of the losses that knows shapes, masks and threads.

use super::reduction::{Loss, Reduction};
use super::row::{LossScratch, RowLoss};
use super::target::{Effective, Target, Targets, Treatment};
use crate::batch::{self, CleanRow, at_row};
use crate::counted::Oscar;
use crate::error::check;
use crate::pieces::Fused;
use crate::place::{Place, Scattered, replace, scattered, spread};
use crate::single::{self, COPIED};
use crate::view::RowLayout;
use crate::{Error, Float, Regularized, Result, View, ViewMut, numeric};
use std::ops::Range;

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
        let rows = self.sweep(&plan, None, false, |row, out, work| self.row(&plan, row, None, out, work))?;
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
        plan.rows.fits("the gradient", gradient.shape())?;
        let rows = self.sweep(&plan, Some(gradient), true, |row, out, work| self.row(&plan, row, None, out, work))?;
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
        plan.rows.fits("v", v.shape())?;
        plan.rows.fits("the output", out.shape())?;
        let v = (v.data, v.layout.rows(plan.rows.axis));
        self.sweep(&plan, Some(out), false, |row, out, work| self.row(&plan, row, Some(&v), out, work))?;
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
        let mut out = out;
        if v.is_none()
            && let Some(done) = self.without_copy(plan, row, out.as_deref_mut())
        {
            return done;
        }
        let Work { gather, clean, y, v: direction, result, scratch } = work;
        let z = plan.rows.z.read(plan.scores, row, gather);
        if let Err(index) = clean.load(z, plan.rows.mask(row)) {
            return Err(plan.rows.bad_score(row, index, z[index].widen()));
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

    /// A long row without a copy of it: its probabilities are found in the place of the gradient, or by their law. `None` if
    /// it is not one, or asks for a copy.
    fn without_copy<T: Float>(&self, plan: &Plan<'_, T>, row: usize, out: Option<&mut [T]>) -> Option<Result<f64>> {
        let d = plan.rows.z.len;
        if d <= COPIED {
            return None;
        }
        let mapping = self.rows.regularized(row).filter(|mapping| mapping.total(d) == 1.0);
        let form = mapping.map_or_else(|| self.rows.log_form(), |mapping| mapping.form());
        if mapping.is_none() && form.is_none() {
            return None;
        }
        let z = scattered(&plan.rows, plan.scores, row);
        if let Some(i) = z.bad() {
            return Some(Err(plan.rows.bad_score(row, i, z.score(i).widen())));
        }
        let n = z.entries().count();
        let (effective, y) = match plan.targets.masses(row, n, |class| z.counts(class)) {
            Ok(target) => target,
            Err(error) => return Some(Err(error)),
        };
        let Effective::Dense(weight) = effective else {
            out.into_iter().for_each(|out| out.fill(T::default()));
            return Some(Ok(if effective == Effective::Masked { f64::INFINITY } else { 0.0 }));
        };
        // Numbers of 16 bits have no digits for a loss: their place gets gradients, not probabilities.
        let is_narrow = size_of::<T>() < size_of::<f32>();
        let fused = mapping.and_then(Fused::of).filter(|_| n > 0 && size_of::<T>() < size_of::<f64>());
        let oscar = mapping.and_then(Oscar::of).filter(|_| n > 0 && is_narrow);
        let terms = fused.filter(|_| is_narrow || out.is_none()).map(|fused| fused.terms(&z, |i| y.of(i)));
        let terms = terms.or_else(|| oscar.map(|oscar| oscar.terms(&z, |i| y.of(i))));
        if let (Some((linear, of_result)), Some(mapping)) = (terms, mapping) {
            let of_target = mapping.omega_by(&|visit| z.entries().for_each(|(i, _)| visit(y.of(i))));
            let gain = plan.divisor.map_or(0.0, |divisor| weight / divisor);
            let slope = |i: usize, p: f64| T::narrow(gain * (p - y.of(i)));
            match (out.map(Place::of), fused, oscar) {
                (Some(out), Some(fused), _) => {
                    let (n, mut places) = (z.gather(out), z.entries());
                    fused.replace(out.part(n), |_, p| places.next().map_or(T::default(), |(i, _)| slope(i, p)));
                    spread(&z, n, out);
                }
                (Some(out), None, Some(oscar)) => oscar.forward(&z, out, slope),
                _ => {}
            }
            return Some(Ok(weight * (linear + mapping.gamma() * (of_target - of_result)).max(0.0)));
        }
        // Groups without a law, and without a gradient whose place they could have: one of their own, no wider than scores.
        let (is_wanted, mut spare) = (out.is_some(), Vec::new());
        let is_homeless = |mapping: &dyn Regularized| form.is_none() && mapping.structured().is_some();
        let mut out = match out {
            None if mapping.is_some_and(is_homeless) => {
                spare.resize(d, T::default());
                Some(&mut spare[..])
            }
            out => out,
        };
        let is_placed = out.as_deref_mut().is_some_and(|out| {
            let n = z.gather(Place::of(out));
            n > 0 && mapping.is_some_and(|mapping| replace(&mapping, &mut out[..n]) || sorted(mapping, &z, out))
        });
        let law = if is_placed { None } else { Some(z.law(form?)?) };
        // The probability of entry `i`, which is number `k` of those that take part.
        let p = |out: &[T], k: usize, score: f64| law.as_ref().map_or_else(|| out[k].widen(), |law| law.p(score));
        let placed = out.as_deref().unwrap_or_default();
        let entries = || z.entries().enumerate().map(|(k, (i, z))| (z, p(placed, k, z), y.of(i)));
        let (value, slope) = match (mapping, form) {
            (Some(mapping), _) => {
                let top = z.entries().map(|(_, z)| z).fold(f64::NEG_INFINITY, f64::max);
                let linear = numeric::sum(entries().filter(|(_, p, y)| p != y).map(|(z, p, y)| (z - top) * (p - y)));
                let of_target = mapping.omega_by(&|visit| entries().for_each(|(_, _, y)| visit(y)));
                let of_result = mapping.omega_by(&|visit| entries().for_each(|(_, p, _)| visit(p)));
                (linear + mapping.gamma() * (of_target - of_result), 1.0)
            }
            (None, form) => {
                let log = |z: f64| law.as_ref().map_or(0.0, |law| law.log(z));
                let terms = entries().filter(|(_, _, y)| *y > 0.0);
                (-numeric::sum(terms.map(|(z, _, y)| y * log(z))), 1.0 / form?.temperature())
            }
        };
        if let Some(out) = out.filter(|_| is_wanted) {
            let (gain, mut k) = (plan.divisor.map_or(0.0, |divisor| slope * weight / divisor), n);
            // From the last on: what is still to be moved lies before the place of its successor.
            for i in (0..d).rev() {
                let counts = z.counts(i);
                k -= usize::from(counts);
                let slope = if counts { gain * (p(out, k, z.score(i).widen()) - y.of(i)) } else { 0.0 };
                out[i] = T::narrow(slope);
            }
        }
        Some(Ok(weight * value.max(0.0)))
    }

    /// Runs `work` on every row and returns the values in row order, or the first error. A row at
    /// fault is filled with NaN.
    fn sweep<T: Float>(
        &self,
        plan: &Plan<'_, T>,
        out: Option<ViewMut<'_, T>>,
        kernels: bool,
        work: impl Fn(usize, Option<&mut [T]>, &mut Work<T>) -> Result<f64> + Sync,
    ) -> Result<Vec<f64>> {
        let len = plan.rows.z.len;
        let chunk = |rows: Range<usize>, mut out: Option<&mut [T]>| {
            let (mut buffers, mut values, mut issue) = (Work::default(), Vec::with_capacity(rows.len()), None);
            for (i, row) in rows.enumerate() {
                let mut out = out.as_mut().map(|out| &mut out[i * len..(i + 1) * len]);
                let value = work(row, out.as_deref_mut(), &mut buffers).unwrap_or_else(|error| {
                    out.into_iter().for_each(|out| out.fill(T::NAN));
                    issue.get_or_insert(error);
                    f64::NAN
                });
                values.push(value);
            }
            (values, issue)
        };
        let chunks = match out {
            Some(out) if kernels => plan.rows.write(out, |rows, out| {
                self.by_kernel(plan, rows.clone(), out).unwrap_or_else(|| chunk(rows, Some(out)))
            }),
            Some(out) => plan.rows.write(out, |rows, out| chunk(rows, Some(out))),
            None => plan.rows.map(|rows| chunk(rows, None)),
        };
        let mut all = Vec::with_capacity(plan.rows.z.count());
        for (values, issue) in chunks {
            if let Some(error) = issue {
                return Err(error);
            }
            all.extend(values);
        }
        Ok(all)
    }

    /// A chunk of rows with plain class targets in single precision, by the kernels; `None` if it is not one.
    fn by_kernel<T: Float>(
        &self,
        plan: &Plan<'_, T>,
        rows: Range<usize>,
        out: &mut [T],
    ) -> Option<(Vec<f64>, Option<Error>)> {
        let (z, mut out) = (T::as_f32(plan.scores)?, T::as_f32_mut(out)?);
        let (class, gain) = (plan.targets.plain_classes()?, plan.divisor.map_or(0.0, |divisor| 1.0 / divisor));
        let (mut buffers, mut values, mut issue) = (single::Buffers::default(), Vec::with_capacity(rows.len()), None);
        let mut start = rows.start;
        while start < rows.end {
            let run = start..start.saturating_add(self.rows.kernel_run(start)).min(rows.end);
            let kernel = self.rows.kernel(start)?;
            let part;
            (part, out) = out.split_at_mut(run.len() * plan.rows.z.len);
            let found = single::loss(kernel, &plan.rows, z, &run, &class, gain, part, &mut values, &mut buffers)?;
            issue = issue.or(found);
            start = run.end;
        }
        Some((values, issue))
    }

    /// Checks axis, mask and targets against the scores.
    fn plan<'b, T: Float>(&'b self, z: &View<'b, T>, target: Target<'b, T>) -> Result<Plan<'b, T>> {
        let operation = self.rows.name();
        let rows = batch::Plan::new(operation, z, self.axis, self.mask.as_ref(), self.threads)?;
        let targets = Targets::new(operation, target, z.shape(), rows.axis, self.treatment)?;
        let divisor = self.reduction.divisor(|| targets.mass());
        Ok(Plan { rows, scores: z.data, targets, divisor })
    }
}

/// The probabilities of a row in double precision, one behind the other, where a mapping finds them beside its scores
/// only; `false` if it does not.
fn sorted<T: Float>(mapping: &dyn Regularized, z: &Scattered<'_, T, impl Fn(usize) -> bool>, out: &mut [T]) -> bool {
    let score = |i: usize| z.counts(i).then(|| z.score(i).widen());
    if !T::as_f64_mut(out).is_some_and(|out| mapping.forward_scattered(&score, out)) {
        return false;
    }
    z.entries().enumerate().for_each(|(k, (i, _))| out[k] = out[i]);
    true
}

/// Shapes and targets, checked once per call.
struct Plan<'a, T> {
    rows: batch::Plan<'a>,
    scores: &'a [T],
    targets: Targets<'a, T>,
    divisor: Option<f64>,
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
