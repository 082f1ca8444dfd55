//! Long rows that would have to be copied, because a mask takes entries out of them, because they are not contiguous, or
//! because their numbers are too narrow to compute with: they are computed without a copy.
//!
//! In single and double precision what takes part moves to the place of the result, is replaced there by its
//! probabilities, and these move back to where they belong.
//!
//! A row of 16-bit numbers has at most 65,536 different scores. They are counted, the threshold is that of the counts, and
//! every score is looked up in a table of probabilities. Its gradient comes from two walks over the row.

use crate::batch::Plan;
use crate::mapping::Scratch;
use crate::single::{self, COPIED};
use crate::threshold::tsallis;
use crate::{Float, Mapping, Result, Rows, View, numeric};

/// A row as it lies in memory, and what its mask leaves of it.
struct Scattered<'a, T, F> {
    data: &'a [T],
    first: isize,
    step: isize,
    takes_part: F,
}

impl<T: Float, F: Fn(usize) -> bool> Scattered<'_, T, F> {
    fn score(&self, i: usize) -> T {
        self.data[(self.first + i as isize * self.step) as usize]
    }

    /// Whether an entry takes part.
    fn counts(&self, i: usize) -> bool {
        self.score(i).widen() > f64::NEG_INFINITY && (self.takes_part)(i)
    }

    /// Whether it should and cannot.
    fn is_bad(&self, i: usize) -> bool {
        let score = self.score(i).widen();
        (score.is_nan() || score == f64::INFINITY) && (self.takes_part)(i)
    }
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
        let (first, step) = plan.z.position(row);
        let z = Scattered { data: z.data, first, step, takes_part: plan.mask(row) };
        let tsallis = self.mapping(row).tsallis();
        if is_narrow && tsallis.is_none() {
            return None;
        }
        if let Some(i) = (0..out.len()).find(|i| z.is_bad(*i)) {
            out.fill(T::NAN);
            return Some(Err(plan.bad_score(row, i, z.score(i).widen())));
        }
        match (tsallis.filter(|_| is_narrow), pv) {
            (Some(of), None) => by_values(of, &z, out),
            (Some(of), Some((p, v))) => {
                let at = |x: &View<'_, T>| x.layout.rows(plan.axis).position(row);
                let row = |(first, step)| {
                    move |x: &View<'_, T>, i: usize| x.data[(first + i as isize * step) as usize].widen()
                };
                let (pr, vr) = (row(at(p)), row(at(v)));
                from_probabilities(of, |i| pr(p, i), |i| vr(v, i), out);
                Some(())
            }
            (None, _) => self.through_place(row, &z, out),
        }
        .map(Ok)
    }

    /// The probabilities of a row in the place of its result; `None` if the mapping asks for a copy.
    fn through_place<T: Float>(
        &self,
        row: usize,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        out: &mut [T],
    ) -> Option<()> {
        let mut n = 0;
        for i in 0..out.len() {
            out[n] = z.score(i);
            n += usize::from(z.counts(i));
        }
        if n > 0 {
            let (mapping, part) = (self.mapping(row), &mut out[..n]);
            let is_done = match T::as_f64_mut(part) {
                Some(part) => mapping.replace_row(part, &mut Scratch::default()),
                None => single::in_place(mapping, T::as_f32_mut(part)?),
            };
            if !is_done {
                return None;
            }
        }
        if n < out.len() {
            // From the last on: what is still to be moved lies before the place of its successor.
            for i in (0..out.len()).rev() {
                let counts = z.counts(i);
                n -= usize::from(counts);
                out[i] = if counts { out[n] } else { T::default() };
            }
        }
        Some(())
    }
}

/// The α-entmax of strength γ of a row of 16-bit numbers.
fn by_values<T: Float>(
    (alpha, gamma): (f64, f64),
    z: &Scattered<'_, T, impl Fn(usize) -> bool>,
    out: &mut [T],
) -> Option<()> {
    let mut counts = vec![0u32; 1 << 16];
    let mut top = f64::NEG_INFINITY;
    for i in (0..out.len()).filter(|i| z.counts(*i)) {
        counts[usize::from(z.score(i).bits()?)] += 1;
        top = top.max(z.score(i).widen());
    }
    if top == f64::NEG_INFINITY {
        out.fill(T::default());
        return Some(());
    }
    let x = |bits: usize| (T::from_bits(bits as u16).widen() - top) / gamma;
    let entries = counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(bits, n)| (x(bits), f64::from(*n)));
    let t = tsallis::threshold(entries.clone(), alpha - 1.0);
    let power = |x: f64| tsallis::power(alpha - 1.0, x - t);
    let total = numeric::sum(entries.map(|(x, n)| n * power(x)));
    let table: Vec<T> = (counts.iter().enumerate())
        .map(|(bits, n)| if *n > 0 { T::narrow(power(x(bits)) / total) } else { T::default() })
        .collect();
    for (i, out) in out.iter_mut().enumerate() {
        *out = if z.counts(i) { table[usize::from(z.score(i).bits()?)] } else { T::default() };
    }
    Some(())
}

/// `s ⊙ (v − <s, v>/Σs)` with `s = p^{2−α}/γ` on the support, 0 elsewhere.
fn from_probabilities<T: Float>(
    (alpha, gamma): (f64, f64),
    p: impl Fn(usize) -> f64,
    v: impl Fn(usize) -> f64,
    out: &mut [T],
) {
    let weight = |p: f64| match alpha {
        1.0 => p,
        1.5 => p.sqrt(),
        2.0 => 1.0,
        _ => p.powf(2.0 - alpha),
    };
    let Some(first) = (0..out.len()).find(|i| p(*i) > 0.0) else { return out.fill(T::default()) };
    // A constant in v takes no digits from the rest.
    let (origin, d) = (v(first), out.len());
    let on_support = || (0..d).filter(|i| p(*i) > 0.0);
    let total = numeric::sum(on_support().map(|i| weight(p(i))));
    let mean = numeric::sum(on_support().map(|i| weight(p(i)) * (v(i) - origin))) / total;
    for (i, out) in out.iter_mut().enumerate() {
        let p = p(i);
        *out = T::narrow(if p > 0.0 { weight(p) * (v(i) - origin - mean) / gamma } else { 0.0 });
    }
}
