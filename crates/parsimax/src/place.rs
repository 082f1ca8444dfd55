//! Long rows that would have to be copied, because a mask takes entries out of them, because they are not contiguous, or
//! because their numbers are too narrow to compute with: they are computed without a copy.
//!
//! In single and double precision what takes part moves to the place of the result, is replaced there by its
//! probabilities, and these move back to where they belong.
//!
//! A row of 16-bit numbers has at most 65,536 different scores. They are counted, and where a probability is a function of
//! its score that function is found from the counts and looked up in a table. Its gradient comes from two walks over the
//! row. Fusedmax goes by its pieces (`pieces.rs`), oscarmax by its pools (`counted.rs`).

use crate::batch::Plan;
use crate::counted::Oscar;
use crate::law::{Form, Law};
use crate::mapping::Scratch;
use crate::pieces::Fused;
use crate::single::{self, COPIED};
use crate::{Float, Mapping, Result, Rows, View, hourglass, numeric, sqpnorm};
use std::cell::Cell;

/// A row as it lies in memory, and what its mask leaves of it.
pub(crate) struct Scattered<'a, T, F> {
    data: &'a [T],
    first: isize,
    step: isize,
    len: usize,
    takes_part: F,
}

impl<'a, T: Float, F: Fn(usize) -> bool> Scattered<'a, T, F> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn score(&self, i: usize) -> T {
        self.data[(self.first + i as isize * self.step) as usize]
    }

    /// Whether an entry takes part.
    pub(crate) fn counts(&self, i: usize) -> bool {
        self.score(i).widen() > f64::NEG_INFINITY && (self.takes_part)(i)
    }

    /// An entry that should take part and cannot.
    pub(crate) fn bad(&self) -> Option<usize> {
        (0..self.len).find(|i| {
            let score = self.score(*i).widen();
            (score.is_nan() || score == f64::INFINITY) && (self.takes_part)(*i)
        })
    }

    /// The scores that take part, and where they are.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (usize, f64)> + Clone + use<'_, 'a, T, F> {
        (0..self.len).filter(|i| self.counts(*i)).map(|i| (i, self.score(i).widen()))
    }

    /// Moves the scores that take part to the front of a place; returns how many they are.
    pub(crate) fn gather(&self, out: Place<'_, T>) -> usize {
        let mut n = 0;
        for i in (0..self.len).filter(|i| self.counts(*i)) {
            out.set(n, self.score(i));
            n += 1;
        }
        n
    }

    /// How many of the scores that take part have these bits, if they have 16.
    pub(crate) fn counted(&self) -> Vec<u32> {
        let mut counts = vec![0; 1 << 16];
        for bits in self.entries().filter_map(|(i, _)| self.score(i).bits()) {
            counts[usize::from(bits)] += 1;
        }
        counts
    }

    /// How the probabilities depend on the scores; `None` if nothing takes part.
    pub(crate) fn law(&self, form: Form) -> Option<Law> {
        if size_of::<T>() == size_of::<u16>() {
            let counts = self.counted();
            let there = counts.iter().enumerate().filter(|(_, n)| **n > 0);
            return form.law(there.map(|(bits, n)| (T::from_bits(bits as u16).widen(), f64::from(*n))));
        }
        form.law(self.entries().map(|(_, z)| (z, 1.0)))
    }
}

/// A row of an array.
pub(crate) fn scattered<'a, T: Float>(
    plan: &'a Plan<'_>,
    data: &'a [T],
    row: usize,
) -> Scattered<'a, T, impl Fn(usize) -> bool + 'a> {
    let (first, step) = plan.z.position(row);
    Scattered { data, first, step, len: plan.z.len, takes_part: plan.mask(row) }
}

/// The place of a result, whose entries may lie apart.
pub(crate) struct Place<'a, T> {
    cells: &'a [Cell<T>],
    first: isize,
    step: isize,
    pub(crate) len: usize,
}

// By hand: what it refers to need not be `Copy`.
impl<T> Clone for Place<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Place<'_, T> {}

impl<'a, T: Float> Place<'a, T> {
    /// A slice.
    pub(crate) fn of(out: &'a mut [T]) -> Self {
        let len = out.len();
        Self { cells: Cell::from_mut(out).as_slice_of_cells(), first: 0, step: 1, len }
    }

    /// Entries of an array, the first of them and the distance between neighbours.
    pub(crate) fn at(data: &'a mut [T], (first, step): (isize, isize), len: usize) -> Self {
        Self { cells: Cell::from_mut(data).as_slice_of_cells(), first, step, len }
    }

    /// The first of them.
    pub(crate) fn part(self, len: usize) -> Self {
        Self { len, ..self }
    }

    fn cell(self, i: usize) -> &'a Cell<T> {
        &self.cells[(self.first + i as isize * self.step) as usize]
    }

    pub(crate) fn get(self, i: usize) -> T {
        self.cell(i).get()
    }

    pub(crate) fn set(self, i: usize, x: T) {
        self.cell(i).set(x);
    }

    fn fill(self, x: T) {
        (0..self.len).for_each(|i| self.set(i, x));
    }
}

/// Replaces the scores of a row by its probabilities where they are; `false` if the mapping cannot.
pub(crate) fn replace<T: Float>(mapping: &impl Mapping, x: &mut [T]) -> bool {
    if let Some(x) = T::as_f64_mut(x) {
        return mapping.replace_row(x, &mut Scratch::default());
    }
    T::as_f32_mut(x).is_some_and(|x| single::in_place(mapping, x))
}

impl<M: Mapping> Rows<'_, M> {
    /// A long row without a copy of it: its probabilities, or `Jᵀv = Jv` where `pv` is given. `None` if it needs none
    /// anyway, or cannot do without.
    pub(crate) fn without_copy<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        row: usize,
        out: &mut [T],
    ) -> Option<Result<()>> {
        let is_narrow = size_of::<T>() < size_of::<f32>();
        if plan.z.len <= COPIED || !is_narrow && (pv.is_some() || !plan.is_masked() && plan.z.is_contiguous()) {
            return None;
        }
        if is_narrow {
            return self.anywhere(plan, z, pv, row, Place::of(out));
        }
        let (z, mapping) = (scattered(plan, z.data, row), self.mapping(row));
        if let Some(i) = z.bad() {
            out.fill(T::NAN);
            return Some(Err(plan.bad_score(row, i, z.score(i).widen())));
        }
        if through_place(&z, out, |x| replace(mapping, x)) {
            return Some(Ok(()));
        }
        let score = |i: usize| z.counts(i).then(|| z.score(i).widen());
        if T::as_f64_mut(out).is_some_and(|out| mapping.forward_scattered(&score, out)) {
            return Some(Ok(()));
        }
        by_law(mapping.form()?, &z, Place::of(out))?;
        Some(Ok(()))
    }

    /// The same of a row whose result may lie anywhere, or is too narrow for more than a result; slower. `None` if the
    /// mapping has no such way, and then nothing was written.
    pub(crate) fn anywhere<T: Float>(
        &self,
        plan: &Plan<'_>,
        z: &View<'_, T>,
        pv: Option<(&View<'_, T>, &View<'_, T>)>,
        row: usize,
        out: Place<'_, T>,
    ) -> Option<Result<()>> {
        let (z, mapping) = (scattered(plan, z.data, row), self.mapping(row));
        let (form, fused) = (mapping.form(), Fused::of(mapping).filter(|_| size_of::<T>() < size_of::<f64>()));
        let oscar = Oscar::of(mapping).filter(|_| size_of::<T>() == size_of::<u16>());
        if form.is_none() && fused.is_none() && oscar.is_none() {
            return None;
        }
        if let Some(i) = z.bad() {
            out.fill(T::NAN);
            return Some(Err(plan.bad_score(row, i, z.score(i).widen())));
        }
        if let Some((p, v)) = pv {
            let at = |x: &View<'_, T>| x.layout.rows(plan.axis).position(row);
            let row =
                |(first, step)| move |x: &View<'_, T>, i: usize| x.data[(first + i as isize * step) as usize].widen();
            let (pr, vr) = (row(at(p)), row(at(v)));
            let (p, v) = (|i: usize| pr(p, i), |i: usize| vr(v, i));
            match (form, fused, oscar) {
                (Some(form), ..) => backward(form, &z, p, v, out),
                (None, Some(fused), _) => fused.backward(&z, p, v, out),
                (None, None, oscar) => oscar?.backward(&z, p, v, out),
            }
            return Some(Ok(()));
        }
        if let Some(form) = form {
            by_law(form, &z, out)?;
        } else if let Some(oscar) = oscar {
            oscar.forward(&z, out, |_, p| T::narrow(p));
        } else {
            let n = z.gather(out);
            fused?.replace(out.part(n), |_, p| T::narrow(p));
            spread(&z, n, out);
        }
        Some(Ok(()))
    }

    /// Whether [`anywhere`](Rows::anywhere) serves all mappings.
    pub(crate) fn is_anywhere<T: Float>(&self) -> bool {
        let by_pieces = |mapping: &M| size_of::<T>() < size_of::<f64>() && Fused::of(mapping).is_some();
        let by_counts = |mapping: &M| size_of::<T>() == size_of::<u16>() && Oscar::of(mapping).is_some();
        self.mappings().iter().all(|mapping| mapping.form().is_some() || by_pieces(mapping) || by_counts(mapping))
    }
}

/// The probabilities of a row as its law has them.
fn by_law<T: Float>(form: Form, z: &Scattered<'_, T, impl Fn(usize) -> bool>, out: Place<'_, T>) -> Option<()> {
    match z.law(form) {
        Some(law) if size_of::<T>() == size_of::<u16>() => by_table(&law, z, out)?,
        Some(law) => {
            for i in 0..out.len {
                out.set(i, T::narrow(if z.counts(i) { law.p(z.score(i).widen()) } else { 0.0 }));
            }
        }
        None => out.fill(T::default()),
    }
    Some(())
}

/// The probabilities of a row in the place of its result, by what replaces scores there; `false` if that asks for a
/// copy.
fn through_place<T: Float>(
    z: &Scattered<'_, T, impl Fn(usize) -> bool>,
    out: &mut [T],
    replace: impl FnOnce(&mut [T]) -> bool,
) -> bool {
    let n = z.gather(Place::of(out));
    if n > 0 && !replace(&mut out[..n]) {
        return false;
    }
    if n < out.len() {
        spread(z, n, Place::of(out));
    }
    true
}

/// Moves the first `n` numbers to the places of the entries that take part, and 0 to the others.
pub(crate) fn spread<T: Float>(z: &Scattered<'_, T, impl Fn(usize) -> bool>, mut n: usize, out: Place<'_, T>) {
    // From the last on: what is still to be moved lies before the place of its successor.
    for i in (0..out.len).rev() {
        let counts = z.counts(i);
        n -= usize::from(counts);
        out.set(i, if counts { out.get(n) } else { T::default() });
    }
}

/// The probabilities of a row of 16-bit numbers.
fn by_table<T: Float>(law: &Law, z: &Scattered<'_, T, impl Fn(usize) -> bool>, out: Place<'_, T>) -> Option<()> {
    let value = |bits: u16| T::from_bits(bits).widen();
    let table: Vec<T> =
        (0..=u16::MAX).map(|bits| T::narrow(if value(bits).is_finite() { law.p(value(bits)) } else { 0.0 })).collect();
    for i in 0..out.len {
        out.set(i, if z.counts(i) { table[usize::from(z.score(i).bits()?)] } else { T::default() });
    }
    Some(())
}

/// `Jᵀv` from scores, probabilities and an incoming gradient.
fn backward<T: Float>(
    form: Form,
    z: &Scattered<'_, T, impl Fn(usize) -> bool>,
    p: impl Fn(usize) -> f64,
    v: impl Fn(usize) -> f64,
    out: Place<'_, T>,
) {
    let d = out.len;
    let on_support = || (0..d).map(|i| (i, p(i))).filter(|(_, p)| *p > 0.0);
    match form {
        Form::Hourglass { q, gamma } => {
            let (sum, n) = (numeric::sum(z.entries().map(|(_, z)| z)), z.entries().count() as f64);
            let (strength, share) = (hourglass::strength(q, gamma, sum, n), 1.0 / on_support().count() as f64);
            let along = if sum == 0.0 { 0.0 } else { sum.signum() / (1.0 + n * q) };
            let mean = numeric::sum(on_support().map(|(i, _)| v(i))) * share;
            let everywhere = along * numeric::sum(on_support().map(|(i, p)| (p - share) * (v(i) - mean)));
            for i in 0..d {
                let own = if p(i) > 0.0 { v(i) - mean } else { 0.0 };
                let slope = if strength > 0.0 && z.counts(i) { (own - everywhere) / strength } else { 0.0 };
                out.set(i, T::narrow(slope));
            }
        }
        Form::Normmax { alpha, gamma } => {
            let m = alpha - 1.0;
            let n = numeric::norm_by(&|visit| on_support().for_each(|(_, p)| visit(p)), alpha);
            let total = numeric::sum(on_support().map(|(_, p)| p));
            let centre = numeric::sum(on_support().map(|(i, p)| p * v(i))) / total;
            let moved = |i: usize, p: f64| (p / n).powf(1.0 - m).min(1e150) * (v(i) - centre);
            let along = numeric::sum(on_support().map(|(i, p)| moved(i, p))) / total;
            for i in 0..d {
                let p = p(i);
                out.set(i, T::narrow(if p > 0.0 { n / (gamma * m) * (moved(i, p) - p * along) } else { 0.0 }));
            }
        }
        Form::SquaredNorm { m, gamma } => {
            let slope = sqpnorm::slopes(|| on_support().map(|(i, p)| (p, v(i))), m, gamma);
            for i in 0..d {
                let p = p(i);
                out.set(i, T::narrow(if p > 0.0 { slope(p, v(i)) } else { 0.0 }));
            }
        }
        _ => from_probabilities(form, p, v, out),
    }
}

/// `s ⊙ (v − <s, v>/Σs)` on the support, 0 elsewhere: for softmax and its relatives `s = p/γ`, for entmax `s = p^{2−α}/γ`, for a budget 1/γ on what is neither
/// empty nor full.
fn from_probabilities<T: Float>(form: Form, p: impl Fn(usize) -> f64, v: impl Fn(usize) -> f64, out: Place<'_, T>) {
    let (gamma, weight): (f64, &dyn Fn(f64) -> f64) = match form {
        Form::Budget { gamma, .. } => (gamma, &|p| if p < 1.0 { 1.0 } else { 0.0 }),
        Form::Evidence { gamma, .. } => (gamma, &|p| p),
        Form::Entmax { alpha: 1.0, gamma } => (gamma, &|p| p),
        Form::Entmax { alpha: 1.5, gamma } => (gamma, &f64::sqrt),
        Form::Entmax { alpha: 2.0, gamma } => (gamma, &|_| 1.0),
        // A subnormal p may have an infinite weight.
        Form::Entmax { alpha, gamma } | Form::Normmax { alpha, gamma } => {
            (gamma, &move |p: f64| p.powf(2.0 - alpha).min(1e150))
        }
        Form::Hourglass { gamma, .. } | Form::SquaredNorm { gamma, .. } => (gamma, &|_| 1.0),
    };
    let weigh = |p: f64| if p > 0.0 { weight(p) } else { 0.0 };
    // Measured from where the weight is largest: that entry, and a constant in v, takes no digits from the rest.
    let (mut heaviest, mut origin) = (0.0, 0.0);
    for i in 0..out.len {
        let s = weigh(p(i));
        if s > heaviest {
            (heaviest, origin) = (s, v(i));
        }
    }
    let d = out.len;
    let on_support = || (0..d).map(|i| (i, weigh(p(i)))).filter(|(_, s)| *s > 0.0);
    let total = numeric::sum(on_support().map(|(_, s)| s));
    let mean = numeric::sum(on_support().map(|(i, s)| s * (v(i) - origin))) / total;
    for i in 0..d {
        let s = weigh(p(i));
        out.set(i, T::narrow(if s > 0.0 { s * (v(i) - origin - mean) / gamma } else { 0.0 }));
    }
}
