//! Targets: what the rows should have been. Checked before or while they are used, smoothed,
//! weighted, and expressed over the entries of a row that take part.

use super::row::RowTarget;
use crate::batch::CleanRow;
use crate::numeric;
use crate::view::RowLayout;
use crate::{Error, Float, Result, View};

/// The targets of a batch, one per row, in the order of the outer axes.
///
/// ```
/// use parsimax::loss::{FenchelYoung, Target};
/// use parsimax::{Sparsemax, View};
/// let (z, y) = ([0.5f64, 0.5, -3.0], [0.5, 0.5, 0.0]);
/// let loss = |target| FenchelYoung::new(&Sparsemax::new()).value(View::new(&z, &[1, 3])?, target);
/// // p = (½, ½, 0). For class 0: max_Ω = 0.5 − ½·½ = ¼, so L = ½ + ¼ − 0.5 = ¼.
/// assert_eq!(loss(Target::Classes(&[0]))?.value(), Some(0.25));
/// // The set {0, 1} and the distribution y are what sparsemax predicts: no loss.
/// assert_eq!(loss(Target::Sets(&[&[0, 1]]))?.value(), Some(0.0));
/// assert_eq!(loss(Target::Soft(View::new(&y, &[1, 3])?))?.value(), Some(0.0));
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone)]
pub enum Target<'a, T> {
    /// A class per row, in `0..C` or equal to the ignore index.
    Classes(&'a [i64]),
    /// A distribution per row, in an array of the scores' shape: non-negative, and its sum within
    /// 10⁻⁴ of 1 (16 ulp of 1 for types narrower than that). A sum that is off by more than the
    /// rounding of `f64` is divided out.
    Soft(View<'a, T>),
    /// A set of labels per row, each with the same mass: not empty, no label twice.
    Sets(&'a [&'a [usize]]),
    /// The same as an array of the scores' shape, `true` at the labels.
    Labels(View<'a, bool>),
}

/// How targets are changed before they meet a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Treatment<'a> {
    pub(super) smoothing: f64,
    pub(super) weights: Option<&'a [f64]>,
    pub(super) ignore: i64,
}

/// Targets that fit the batch. Classes and sets are known to be good, distributions are checked row
/// by row.
pub(super) struct Targets<'a, T> {
    operation: &'static str,
    source: Target<'a, T>,
    /// The rows of targets that are arrays.
    layout: Option<RowLayout>,
    rows: usize,
    classes: usize,
    treatment: Treatment<'a>,
}

/// What a row's target amounts to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Effective {
    /// No loss: weight 0.
    Nothing,
    /// Mass on an entry that does not take part.
    Masked,
    /// A class among the entries that take part, and the weight of the row.
    Class(usize, f64),
    /// The distribution is in the caller's buffer; the weight of the row.
    Dense(f64),
}

impl Effective {
    /// The target and the weight, if the row has a finite loss; `y` is the caller's buffer.
    pub(super) fn target<'a>(&self, y: &'a [f64]) -> Option<(RowTarget<'a>, f64)> {
        match self {
            Self::Nothing | Self::Masked => None,
            Self::Class(k, weight) => Some((RowTarget::Class(*k), *weight)),
            Self::Dense(weight) => Some((RowTarget::Dense(y), *weight)),
        }
    }
}

impl<'a, T: Float> Targets<'a, T> {
    /// Checks the targets against the `shape` of the scores, whose classes lie along `axis`.
    pub(super) fn new(
        operation: &'static str,
        source: Target<'a, T>,
        shape: &[usize],
        axis: usize,
        treatment: Treatment<'a>,
    ) -> Result<Self> {
        let classes = shape[axis];
        let rows = shape.iter().enumerate().filter(|(i, _)| *i != axis).map(|(_, n)| n).product();
        let fits = |ok: bool, what, expected: String, got: String| {
            if ok { Ok(()) } else { Err(Error::Shape { operation, what, expected, got }) }
        };
        if let Some(weights) = treatment.weights {
            let expected = format!("one per class ({classes})");
            fits(weights.len() == classes, "class_weights", expected, weights.len().to_string())?;
        }
        let layout = match &source {
            Target::Classes(y) => {
                fits(y.len() == rows, "the target", format!("one class per row ({rows})"), y.len().to_string())?;
                check_classes(operation, y, classes, treatment.ignore)?;
                None
            }
            Target::Sets(y) => {
                fits(y.len() == rows, "the target", format!("one set per row ({rows})"), y.len().to_string())?;
                check_sets(operation, y, classes)?;
                None
            }
            Target::Soft(y) => {
                let expected = format!("of the scores' shape {shape:?}");
                fits(y.shape() == shape, "the target", expected, format!("{:?}", y.shape()))?;
                Some(y.layout.rows(axis))
            }
            Target::Labels(y) => {
                let expected = format!("of the scores' shape {shape:?}");
                fits(y.shape() == shape, "the target", expected, format!("{:?}", y.shape()))?;
                Some(y.layout.rows(axis))
            }
        };
        Ok(Self { operation, source, layout, rows, classes, treatment })
    }

    /// The class of a row, `None` if it is ignored, where targets are classes and nothing else is asked of
    /// them.
    pub(super) fn plain_classes(&self) -> Option<impl Fn(usize) -> Option<u32> + Sync> {
        let plain = self.treatment.weights.is_none() && self.treatment.smoothing == 0.0;
        let (Target::Classes(y), true) = (&self.source, plain) else { return None };
        let ignore = self.treatment.ignore;
        Some(move |row: usize| (y[row] != ignore).then_some(y[row] as u32))
    }

    /// Whether the row takes no part at all.
    pub(super) fn is_ignored(&self, row: usize) -> bool {
        matches!(&self.source, Target::Classes(y) if y[row] == self.treatment.ignore)
    }

    /// The divisor of the mean.
    pub(super) fn mass(&self) -> f64 {
        let weight = |class: usize| self.treatment.weights.map_or(1.0, |w| w[class]);
        match &self.source {
            Target::Soft(_) => self.rows as f64,
            Target::Classes(y) => {
                numeric::sum(y.iter().filter(|y| **y != self.treatment.ignore).map(|y| weight(*y as usize)))
            }
            Target::Sets(sets) => {
                let mean = |set: &[usize]| numeric::sum(set.iter().map(|c| weight(*c))) / set.len() as f64;
                numeric::sum(sets.iter().map(|set| mean(set)))
            }
            Target::Labels(_) if self.treatment.weights.is_none() => self.rows as f64,
            // A row without a label is an error of its own.
            Target::Labels(_) => numeric::sum((0..self.rows).map(|row| {
                let is_label = self.labels(row);
                let labels = || (0..self.classes).filter(|class| is_label(*class));
                numeric::sum(labels().map(weight)) / labels().count().max(1) as f64
            })),
        }
    }

    /// The target of a row over the entries that take part; a dense one is written into `y`.
    pub(super) fn effective(
        &self,
        row: usize,
        clean: &CleanRow,
        y: &mut Vec<f64>,
        gather: &mut Vec<T>,
    ) -> Result<Effective> {
        let Treatment { smoothing, weights, .. } = self.treatment;
        if let (Target::Classes(classes), 0.0) = (&self.source, smoothing) {
            let class = classes[row] as usize;
            let weight = weights.map_or(1.0, |w| w[class]);
            return Ok(match clean.position(class) {
                _ if weight == 0.0 => Effective::Nothing,
                None => Effective::Masked,
                Some(k) => Effective::Class(k, weight),
            });
        }
        y.clear();
        y.resize(clean.z.len(), 0.0);
        if !self.write_masses(row, clean, y, gather)? {
            return Ok(Effective::Masked);
        }
        if smoothing > 0.0 {
            let share = smoothing / y.len() as f64;
            y.iter_mut().for_each(|y| *y = (1.0 - smoothing) * *y + share);
        }
        Ok(match self.tilt(clean, y) {
            0.0 => Effective::Nothing,
            weight => Effective::Dense(weight),
        })
    }

    /// Writes the masses, before smoothing and weights, of the entries that take part; `false` if an
    /// entry that does not would have mass of a weight that is not 0.
    fn write_masses(&self, row: usize, clean: &CleanRow, y: &mut [f64], gather: &mut Vec<T>) -> Result<bool> {
        let mut inside = true;
        let mut put = |class: usize, mass: f64| match clean.position(class) {
            Some(k) => y[k] = mass,
            None => inside &= self.treatment.weights.is_some_and(|w| w[class] == 0.0),
        };
        match &self.source {
            Target::Classes(classes) => put(classes[row] as usize, 1.0),
            Target::Sets(sets) => sets[row].iter().for_each(|class| put(*class, 1.0 / sets[row].len() as f64)),
            Target::Labels(_) => {
                let (is_label, count) = (self.labels(row), self.label_count(row)?);
                (0..self.classes).filter(|class| is_label(*class)).for_each(|class| put(class, 1.0 / count));
            }
            Target::Soft(view) => {
                let rows = self.layout.as_ref().expect("a soft target has a layout");
                let masses = rows.read(view.data, row, gather);
                let scale =
                    check_distribution(self.operation, row, masses.iter().map(|mass| mass.widen()), T::EPSILON)?;
                for (class, mass) in masses.iter().enumerate().filter(|(_, mass)| mass.widen() > 0.0) {
                    put(class, mass.widen() / scale);
                }
            }
        }
        Ok(inside)
    }

    /// Which classes are labels of a row.
    fn labels(&self, row: usize) -> impl Fn(usize) -> bool + '_ {
        let at = self.layout.as_ref().map_or((0, 0), |layout| layout.position(row));
        let data = if let Target::Labels(view) = &self.source { view.data } else { &[] };
        move |class| data[(at.0 + class as isize * at.1) as usize]
    }

    /// How many there are, at least one.
    fn label_count(&self, row: usize) -> Result<f64> {
        let is_label = self.labels(row);
        match (0..self.classes).filter(|class| is_label(*class)).count() {
            0 => Err(Error::Target {
                operation: self.operation,
                row,
                expected: "a set of labels, not empty".into(),
                got: "the empty set".into(),
            }),
            count => Ok(count as f64),
        }
    }

    /// The target of a row that is not copied: `counts` says which entries take part, `n` how many do.
    pub(super) fn masses(
        &'a self,
        row: usize,
        n: usize,
        counts: impl Fn(usize) -> bool,
    ) -> Result<(Effective, Masses<'a>)> {
        let Treatment { smoothing, weights, .. } = self.treatment;
        let mut masses = Masses {
            raw: self.raw(row)?,
            kept: 1.0 - smoothing,
            share: smoothing / n.max(1) as f64,
            weights,
            total: 1.0,
        };
        let is_weighed = |class: usize| weights.is_none_or(|w| w[class] != 0.0);
        let is_lost = |class: usize| !counts(class) && (masses.raw)(class) > 0.0 && is_weighed(class);
        if (0..self.classes).any(is_lost) {
            return Ok((Effective::Masked, masses));
        }
        if weights.is_some() {
            masses.total = numeric::sum((0..self.classes).filter(|i| counts(*i)).map(|i| masses.of(i)));
        }
        let weight = if weights.is_some() { masses.total } else { 1.0 };
        Ok((if weight == 0.0 { Effective::Nothing } else { Effective::Dense(weight) }, masses))
    }

    /// The mass of a class, before smoothing and weights.
    fn raw(&'a self, row: usize) -> Result<Box<dyn Fn(usize) -> f64 + 'a>> {
        Ok(match &self.source {
            Target::Classes(classes) => {
                let own = classes[row] as usize;
                Box::new(move |class| if class == own { 1.0 } else { 0.0 })
            }
            Target::Sets(sets) => {
                let mut set = sets[row].to_vec();
                set.sort_unstable();
                Box::new(move |class| if set.binary_search(&class).is_ok() { 1.0 / set.len() as f64 } else { 0.0 })
            }
            Target::Labels(_) => {
                let (is_label, count) = (self.labels(row), self.label_count(row)?);
                Box::new(move |class| if is_label(class) { 1.0 / count } else { 0.0 })
            }
            Target::Soft(view) => {
                let (first, step) = self.layout.as_ref().map_or((0, 0), |layout| layout.position(row));
                let mass = move |class: usize| view.data[(first + class as isize * step) as usize].widen();
                let scale = check_distribution(self.operation, row, (0..self.classes).map(mass), T::EPSILON)?;
                Box::new(move |class| mass(class) / scale)
            }
        })
    }

    /// Replaces `y` by `w ⊙ y / W` and returns `W = <w, y>`: 1 without weights.
    fn tilt(&self, clean: &CleanRow, y: &mut [f64]) -> f64 {
        let Some(weights) = self.treatment.weights else { return 1.0 };
        y.iter_mut().enumerate().for_each(|(i, y)| *y *= weights[clean.class(i)]);
        let weight = numeric::sum(y.iter().copied());
        if weight > 0.0 {
            y.iter_mut().for_each(|y| *y /= weight);
        }
        weight
    }
}

/// The masses of a row's target by class, for entries that take part.
pub(super) struct Masses<'a> {
    raw: Box<dyn Fn(usize) -> f64 + 'a>,
    /// The share that smoothing leaves, and what it adds to every entry.
    kept: f64,
    share: f64,
    weights: Option<&'a [f64]>,
    /// `<w, y>`.
    total: f64,
}

impl Masses<'_> {
    /// The mass of a class that takes part.
    pub(super) fn of(&self, class: usize) -> f64 {
        let smooth = self.kept * (self.raw)(class) + self.share;
        smooth * self.weights.map_or(1.0, |weights| weights[class]) / self.total
    }
}

fn check_classes(operation: &'static str, y: &[i64], classes: usize, ignore: i64) -> Result<()> {
    let good = |y: i64| y == ignore || usize::try_from(y).is_ok_and(|y| y < classes);
    match y.iter().position(|y| !good(*y)) {
        None => Ok(()),
        Some(row) => Err(Error::Target {
            operation,
            row,
            expected: format!("a class below {classes}, or {ignore} to ignore the row"),
            got: y[row].to_string(),
        }),
    }
}

fn check_sets(operation: &'static str, sets: &[&[usize]], classes: usize) -> Result<()> {
    let mut sorted = Vec::new();
    for (row, set) in sets.iter().enumerate() {
        sorted.clear();
        sorted.extend_from_slice(set);
        sorted.sort_unstable();
        let repeats = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        let got = match (sorted.last(), repeats) {
            (None, _) => "the empty set".into(),
            (Some(largest), _) if *largest >= classes => format!("label {largest}"),
            (_, Some(pair)) => format!("label {} twice", pair[0]),
            _ => continue,
        };
        let expected = format!("a set of labels below {classes}, not empty, none twice");
        return Err(Error::Target { operation, row, expected, got });
    }
    Ok(())
}

/// What to divide the masses by: 1, or their sum where it is off by more than the rounding of `f64`.
fn check_distribution(
    operation: &'static str,
    row: usize,
    masses: impl Iterator<Item = f64> + Clone,
    epsilon: f64,
) -> Result<f64> {
    let fail = |expected: &str, got| Err(Error::Target { operation, row, expected: expected.into(), got });
    // Not `m < 0`: NaN is no mass either.
    if let Some((i, mass)) = masses.clone().enumerate().find(|(_, m)| !(*m >= 0.0 && m.is_finite())) {
        return fail("a distribution: no negative mass, none infinite", format!("{mass} at index {i}"));
    }
    let sum = numeric::sum(masses);
    let off = (sum - 1.0).abs();
    if off > f64::max(1e-4, 16.0 * epsilon) {
        return fail("a distribution: masses that sum to 1", format!("a sum of {sum}"));
    }
    Ok(if off <= 1e-13 { 1.0 } else { sum })
}
