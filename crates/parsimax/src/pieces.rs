//! Fusedmax of long rows whose probabilities have no place in single precision: rows of 16-bit numbers, losses without
//! a gradient, results with gaps, gradients in λ.
//!
//! The kernel hands out the pieces of the prox one by one and keeps none of them, and so does everything here: what
//! needs another pass asks for them again. Scores must be exact in single precision.

use crate::kernel::{self, Structure, Structured};
use crate::mapping::{LongRow, Mapping};
use crate::place::{Place, Scattered};
use crate::structured::StructuredKernel;
use crate::{Float, numeric};
use std::cell::Cell;
use std::ops::Range;

/// Fusedmax with its constants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fused {
    lambda: f64,
    gamma: f64,
}

impl Fused {
    /// Those of a mapping that is fusedmax, with constants that its kernel takes.
    pub(crate) fn of(mapping: &(impl Mapping + ?Sized)) -> Option<Self> {
        match mapping.structured() {
            Some(StructuredKernel(Structured { structure: Structure::Fused(lambda), gamma })) => {
                Some(Self { lambda, gamma })
            }
            _ => None,
        }
    }

    /// Calls `visit` with the pieces of the prox of `n` finite scores and their values, in units of γ and measured from
    /// the largest score; −∞ for what is too low to have mass. A score is not asked for once its piece has been
    /// visited.
    fn each(self, n: usize, z: &impl Fn(usize) -> f64, visit: impl FnMut(Range<usize>, f64)) {
        kernel::fused_pieces(n, |i| z(i) as f32, (self.lambda, self.gamma), visit);
    }

    /// t with `Σ [x − t]₊ = 1` over the values of the prox.
    ///
    /// The values are sorted into bins, and those of the bin that holds t into finer ones, until t does not depend on
    /// how they lie within theirs.
    pub(crate) fn threshold(self, n: usize, z: &impl Fn(usize) -> f64) -> f64 {
        // The largest value is 2λ below the largest score at most, and t no more than 1 below that.
        let mut rounds = vec![Round::new(-2.0 * self.lambda - 1.0 - 1e-9, 0.0)];
        // What lies above the bin that holds t.
        let (mut count, mut sum) = (0.0, 0.0);
        let mut bins = vec![Bin::default(); BINS];
        loop {
            bins.fill(Bin::default());
            self.each(n, z, |piece, x| {
                let (last, before) = (rounds[rounds.len() - 1], &rounds[..rounds.len() - 1]);
                if x >= rounds[0].low && before.iter().all(|round| round.bin(x) == round.chosen) {
                    bins[last.bin(x)].add(x, piece.len() as f64);
                }
            });
            let last = rounds.len() - 1;
            let Round { low, width, .. } = rounds[last];
            let mut chosen = BINS - 1;
            while chosen > 0 {
                let (n, s) = (count + bins[chosen].count, sum + bins[chosen].sum);
                if s - n * (low + chosen as f64 * width) >= 1.0 {
                    break;
                }
                (count, sum, chosen) = (n, s, chosen - 1);
            }
            let Bin { count: here, sum: of_them, least, most } = bins[chosen];
            let (with, without) = ((sum + of_them - 1.0) / (count + here), (sum - 1.0) / count);
            if here == 0.0 || count > 0.0 && without >= most {
                return without;
            }
            if with <= least || rounds.len() == ROUNDS {
                return with;
            }
            rounds[last].chosen = chosen;
            let low = low + chosen as f64 * width;
            rounds.push(Round::new(low, low + width));
        }
    }

    /// Replaces finite scores by what `of` makes of their number and their probability.
    pub(crate) fn replace<T: Float>(self, x: Place<'_, T>, mut of: impl FnMut(usize, f64) -> T) {
        if x.len == 0 {
            return;
        }
        let z = |i: usize| x.get(i).widen();
        let t = self.threshold(x.len, &z);
        self.each(x.len, &z, |piece, value| {
            piece.for_each(|i| x.set(i, of(i, (value - t).max(0.0))));
        });
    }

    /// `Jᵀv` of a row: the groups are the pieces of the prox, whatever the probabilities were rounded to.
    pub(crate) fn backward<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        p: impl Fn(usize) -> f64,
        v: impl Fn(usize) -> f64,
        out: Place<'_, T>,
    ) {
        let (mut n, (origin, all)) = (z.gather(out), mean(out.len, &p, &v));
        let mut places = z.entries().map(|(i, _)| i);
        self.each(n, &|k| out.get(k).widen(), |piece, _| {
            let (mut sum, mut len) = (numeric::Sum::default(), 0usize);
            for i in places.by_ref().take(piece.len()).filter(|i| p(*i) > 0.0) {
                sum.add(v(i) - origin);
                len += 1;
            }
            let slope = if len > 0 { (sum.total() / len as f64 - all) / self.gamma } else { 0.0 };
            piece.for_each(|k| out.set(k, T::narrow(slope)));
        });
        // From the last on: what is still to be moved lies before the place of its successor.
        for i in (0..out.len).rev() {
            let counts = z.counts(i);
            n -= usize::from(counts);
            out.set(i, if counts && p(i) > 0.0 { out.get(n) } else { T::default() });
        }
    }

    /// The gradient in λ, as the head of `fusedmax.rs` has it. Probabilities that were not rounded tell the groups.
    pub(crate) fn slope(self, row: &LongRow<'_>) -> f64 {
        let ranked = Ranked::new(row.d, |i| (row.z)(i).is_some());
        let (origin, all) = mean(row.d, row.p, row.v);
        // The mean of the last piece, and whether its predecessor is below it.
        let (mut gradient, mut last, mut value) = (numeric::Sum::default(), (0.0, 0.0), f64::NAN);
        let visit = |piece: Range<usize>, x: f64| {
            let step = if x == value || value.is_nan() { 0.0 } else { (x - value).signum() };
            let (mean, before) = last;
            gradient.add((step - before) * mean);
            let (mut sum, len) = (numeric::Sum::default(), piece.len() as f64);
            let has_mass = (row.p)(ranked.place(piece.start)) > 0.0;
            piece.filter(|_| has_mass).for_each(|k| sum.add((row.v)(ranked.place(k)) - origin));
            (last, value) = ((if has_mass { sum.total() / len - all } else { 0.0 }, step), x);
        };
        if row.is_rounded {
            self.each(ranked.count, &|k| (row.z)(ranked.place(k)).unwrap_or(0.0), visit);
        } else {
            runs(ranked.count, |k| (row.p)(ranked.place(k)), visit);
        }
        let (mean, before) = last;
        gradient.add(-before * mean);
        gradient.total()
    }

    /// `<z − max z, p − y>` and `Ω(p)` of the entries that take part, of which there is one.
    pub(crate) fn terms<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        y: impl Fn(usize) -> f64,
    ) -> (f64, f64) {
        let ranked = Ranked::new(z.len(), |i| z.counts(i));
        let score = |k: usize| z.score(ranked.place(k)).widen();
        let (t, top) = (self.threshold(ranked.count, &score), z.entries().map(|(_, z)| z).fold(f64::MIN, f64::max));
        let [mut linear, mut square, mut variation] = [(); 3].map(|()| numeric::Sum::default());
        let mut before = None;
        self.each(ranked.count, &score, |piece, value| {
            let p = (value - t).max(0.0);
            square.add(piece.len() as f64 * p * p);
            variation.add((p - before.replace(p).unwrap_or(p)).abs());
            for i in piece.map(|k| ranked.place(k)) {
                let excess = p - y(i);
                if excess != 0.0 {
                    linear.add((z.score(i).widen() - top) * excess);
                }
            }
        });
        (linear.total(), 0.5 * square.total() + self.lambda * variation.total())
    }
}

/// Calls `visit` with neighbours of one value, and it.
fn runs(n: usize, value: impl Fn(usize) -> f64, mut visit: impl FnMut(Range<usize>, f64)) {
    let mut start = 0;
    for end in 1..=n {
        if end == n || value(end) != value(start) {
            visit(start..end, value(start));
            start = end;
        }
    }
}

/// The mean of `v` over the support, as some entry of it and a difference: a constant in `v` takes no digits from the
/// rest.
fn mean(d: usize, p: impl Fn(usize) -> f64, v: impl Fn(usize) -> f64) -> (f64, f64) {
    let support = || (0..d).filter(|i| p(*i) > 0.0);
    let origin = support().next().map_or(0.0, &v);
    (origin, numeric::sum(support().map(|i| v(i) - origin)) / support().count() as f64)
}

/// Bins of a round: with their memory, 128 KiB.
const BINS: usize = 4096;

/// After so many rounds a bin is as narrow as values are exact.
const ROUNDS: usize = 5;

/// Values that are near each other.
#[derive(Clone, Copy)]
struct Bin {
    count: f64,
    sum: f64,
    least: f64,
    most: f64,
}

impl Default for Bin {
    fn default() -> Self {
        Self { count: 0.0, sum: 0.0, least: f64::INFINITY, most: f64::NEG_INFINITY }
    }
}

impl Bin {
    fn add(&mut self, x: f64, n: f64) {
        self.count += n;
        self.sum += n * x;
        (self.least, self.most) = (self.least.min(x), self.most.max(x));
    }
}

/// Bins between two values, and the one of them that a finer round is about.
#[derive(Clone, Copy)]
struct Round {
    low: f64,
    width: f64,
    chosen: usize,
}

impl Round {
    fn new(low: f64, high: f64) -> Self {
        Self { low, width: (high - low) / BINS as f64, chosen: 0 }
    }

    /// The bin of a value; what is below the first or above the last is in those.
    fn bin(&self, x: f64) -> usize {
        (((x - self.low) / self.width) as usize).min(BINS - 1)
    }
}

/// The entries of a row that take part, by their number among them.
struct Ranked<F> {
    takes_part: F,
    count: usize,
    is_whole: bool,
    /// The place of every `step`-th of them.
    marks: Vec<u32>,
    step: usize,
    /// A number and its place: most often the next that is asked for is near.
    last: Cell<(usize, usize)>,
}

/// Places that are remembered at most, a quarter of a megabyte.
const MARKS: usize = 1 << 16;

impl<F: Fn(usize) -> bool> Ranked<F> {
    fn new(d: usize, takes_part: F) -> Self {
        let (step, mut count, mut marks) = (64.max(d.div_ceil(MARKS)), 0, Vec::new());
        let is_whole = (0..d).all(&takes_part);
        if is_whole {
            return Self { takes_part, count: d, is_whole, marks, step, last: Cell::new((0, 0)) };
        }
        marks.reserve_exact(d.div_ceil(step));
        for i in (0..d).filter(|i| takes_part(*i)) {
            if count % step == 0 {
                marks.push(i as u32);
            }
            count += 1;
        }
        let first = marks.first().map_or(0, |first| *first as usize);
        Self { takes_part, count, is_whole, marks, step, last: Cell::new((0, first)) }
    }

    fn place(&self, k: usize) -> usize {
        if self.is_whole {
            return k;
        }
        let (mut number, mut place) = self.last.get();
        if k.abs_diff(number) >= self.step {
            (number, place) = (k / self.step * self.step, self.marks[k / self.step] as usize);
        }
        while number < k {
            place += 1;
            number += usize::from((self.takes_part)(place));
        }
        while number > k {
            place -= 1;
            number -= usize::from((self.takes_part)(place));
        }
        self.last.set((number, place));
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threshold::linear;

    #[test]
    fn the_threshold_is_that_of_the_values() {
        let mut rng = fastrand::Rng::with_seed(71);
        for (round, lambda) in (0..300).map(|round| (round, [1e-6, 0.01, 0.3, 5.0, 900.0][round % 5])) {
            let size = [1e-4, 0.1, 1.0, 30.0][round % 4];
            let z: Vec<f64> = (0..1 + round * 7).map(|_| f64::from((size * (rng.f64() - 0.5)) as f32)).collect();
            let fused = Fused { lambda, gamma: 0.7 };
            let mut x = vec![f64::NAN; z.len()];
            fused.each(z.len(), &|i| z[i], |piece, value| x[piece].fill(value));
            let lowest = x.iter().copied().filter(|x| x.is_finite()).fold(0.0, f64::min) - 10.0;
            x.iter_mut().for_each(|x| *x = x.max(lowest));
            let want = linear::project(&mut x);
            let t = fused.threshold(z.len(), &|i| z[i]);
            assert!((t - want).abs() < 1e-12 * (1.0 + lambda), "λ = {lambda}, d = {}: {t} {want}", z.len());
        }
    }

    #[test]
    fn numbers_find_their_places() {
        let mut rng = fastrand::Rng::with_seed(72);
        for d in [1, 70, 5000] {
            for share in [1.0, 0.9, 0.05] {
                let mask: Vec<bool> = (0..d).map(|_| rng.f64() < share).collect();
                let places: Vec<usize> = (0..d).filter(|i| mask[*i]).collect();
                let ranked = Ranked::new(d, |i| mask[i]);
                assert_eq!(ranked.count, places.len());
                for k in
                    (0..places.len()).chain((0..200).filter(|_| !places.is_empty()).map(|_| rng.usize(..places.len())))
                {
                    assert_eq!(ranked.place(k), places[k]);
                }
            }
        }
    }
}
