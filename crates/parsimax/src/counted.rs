//! Oscarmax of long rows of 16-bit numbers, of which there are few kinds: equal scores have one probability, so scores
//! are counted, and pooled by their kind.

use crate::kernel::{Structure, Structured};
use crate::mapping::{LongRow, Mapping};
use crate::place::{Place, Scattered};
use crate::structured::StructuredKernel;
use crate::{Float, numeric};

/// Oscarmax with its constants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Oscar {
    lambda: f64,
    gamma: f64,
}

/// The pools of a row, from the largest scores on: at most as many as there are finite numbers of 16 bits.
pub(crate) struct Pools {
    /// The pool of every number, by its bits.
    of: Vec<u16>,
    /// The probability of a pool; later what comes in there.
    value: Vec<f64>,
    /// The bits of the lowest score of a pool, and by those how many entries it has.
    last: Vec<u16>,
    counts: Vec<u32>,
}

/// No pool.
const NONE: u16 = u16::MAX;

/// The bits of all numbers, from the largest down.
fn descending() -> impl Iterator<Item = u16> {
    (0..=0x7fff).rev().chain(0x8000..=u16::MAX)
}

impl Oscar {
    /// Those of a mapping that is oscarmax, with constants that its kernel takes.
    pub(crate) fn of(mapping: &(impl Mapping + ?Sized)) -> Option<Self> {
        match mapping.structured() {
            Some(StructuredKernel(Structured { structure: Structure::Oscar(lambda), gamma })) => {
                Some(Self { lambda, gamma })
            }
            _ => None,
        }
    }

    /// The pools of a row of 16-bit numbers, of which one takes part.
    ///
    /// Of a pool the sum of its scores is kept, from the largest of all down and in units of γ; the penalty is a
    /// multiple of its ranks, which follow each other. Its length stands where that of its lowest score was.
    fn pools<T: Float>(self, z: &Scattered<'_, T, impl Fn(usize) -> bool>) -> Pools {
        let mut counts = z.counted();
        let mean = |sum: f64, start: f64, len: f64| sum / len + self.lambda * (start + 0.5 * (len - 1.0));
        let (kinds, all) =
            counts.iter().fold((0, 0), |(kinds, all), n| (kinds + usize::from(*n > 0), all + *n as usize));
        let score = |bits: u16| T::from_bits(bits).widen();
        let top = descending().find(|bits| counts[usize::from(*bits)] > 0).map_or(0.0, score);
        let lowest = -self.lambda * (all.max(1) - 1) as f64 - 1.0;
        let (mut value, mut last): (Vec<f64>, Vec<u16>) = (Vec::with_capacity(kinds), Vec::with_capacity(kinds));
        // Entries of all pools before the next.
        let mut start = 0.0;
        for bits in descending() {
            let (count, x) = (counts[usize::from(bits)], (score(bits) - top) / self.gamma);
            if count == 0 || x <= lowest {
                continue;
            }
            let (mut sum, mut len) = (f64::from(count) * x, f64::from(count));
            while let (Some(below), Some(bits)) = (value.last(), last.last()) {
                let own = f64::from(counts[usize::from(*bits)]);
                if mean(*below, start - own, own) > mean(sum, start, len) {
                    break;
                }
                (sum, len, start) = (sum + below, len + own, start - own);
                value.pop();
                last.pop();
            }
            value.push(sum);
            last.push(bits);
            counts[usize::from(bits)] = len as u32;
            start += len;
        }
        let mut of = vec![NONE; 1 << 16];
        let mut pool = 0;
        for bits in descending() {
            if pool < last.len() {
                of[usize::from(bits)] = pool as u16;
                pool += usize::from(last[pool] == bits);
            }
        }
        let mut start = 0.0;
        for (value, bits) in value.iter_mut().zip(&last) {
            let len = f64::from(counts[usize::from(*bits)]);
            *value = mean(*value, start, len);
            start += len;
        }
        Pools { of, value, last, counts }
    }

    /// The pools with their probabilities.
    fn solve<T: Float>(self, z: &Scattered<'_, T, impl Fn(usize) -> bool>) -> Pools {
        let mut pools = self.pools(z);
        // Values fall: what is above the threshold comes first. They are measured from the first.
        let first = pools.value.first().copied().unwrap_or(0.0);
        let (mut sum, mut count, mut t) = (0.0, 0.0, f64::NEG_INFINITY);
        for (value, len) in pools.each() {
            let value = value - first;
            if value > t {
                (sum, count) = (sum + len * value, count + len);
                t = (sum - 1.0) / count;
            }
        }
        pools.value.iter_mut().for_each(|value| *value = (*value - first - t).max(0.0));
        let total = numeric::sum(pools.each().map(|(p, len)| p * len));
        pools.value.iter_mut().for_each(|value| *value /= total);
        pools
    }

    /// Probabilities, or what `of` makes of their places and them; 0 where an entry takes no part.
    pub(crate) fn forward<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        out: Place<'_, T>,
        of: impl Fn(usize, f64) -> T,
    ) {
        let pools = self.solve(z);
        for i in 0..out.len {
            out.set(i, if z.counts(i) { of(i, pools.p(z.score(i))) } else { T::default() });
        }
    }

    /// `Jᵀv`.
    pub(crate) fn backward<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        p: impl Fn(usize) -> f64,
        v: impl Fn(usize) -> f64,
        out: Place<'_, T>,
    ) {
        let Pools { of, mut value, counts: mut len, .. } = self.pools(z);
        value.fill(0.0);
        len.fill(0);
        let pools = value.len();
        let support = || (0..out.len).filter(|i| z.counts(*i) && p(*i) > 0.0);
        // A constant in v takes no digits from the rest.
        let origin = support().next().map_or(0.0, &v);
        let all = numeric::sum(support().map(|i| v(i) - origin)) / support().count() as f64;
        let pool = |i: usize| usize::from(of[usize::from(z.score(i).bits().unwrap_or(0))]);
        for i in support().filter(|i| pool(*i) < pools) {
            value[pool(i)] += v(i) - origin;
            len[pool(i)] += 1;
        }
        for i in 0..out.len {
            let has_mass = z.counts(i) && p(i) > 0.0 && pool(i) < pools;
            let slope = || (value[pool(i)] / f64::from(len[pool(i)]) - all) / self.gamma;
            out.set(i, T::narrow(if has_mass { slope() } else { 0.0 }));
        }
    }

    /// The gradient in λ, as the head of `oscarmax.rs` has it.
    pub(crate) fn slope<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        p: impl Fn(usize) -> f64,
        v: impl Fn(usize) -> f64,
    ) -> f64 {
        let Pools { of, mut value, last, counts } = self.pools(z);
        value.fill(0.0);
        let support = || z.entries().map(|(i, _)| i).filter(|i| p(*i) > 0.0);
        let origin = support().next().map_or(0.0, &v);
        let all = numeric::sum(support().map(|i| v(i) - origin)) / support().count().max(1) as f64;
        let (pools, mut is_there) = (value.len(), 0);
        for i in support() {
            let pool = usize::from(of[usize::from(z.score(i).bits().unwrap_or(0))]);
            if pool < pools {
                value[pool] += v(i) - origin - all;
                is_there = is_there.max(pool + 1);
            }
        }
        let mut start = 0.0;
        numeric::sum(value[..is_there].iter().zip(&last).map(|(sum, bits)| {
            let len = f64::from(counts[usize::from(*bits)]);
            start += len;
            sum * (start - len + 0.5 * (len - 1.0))
        }))
    }

    /// `<z − max z, p − y>` and `Ω(p)` of the entries that take part, of which there is one.
    pub(crate) fn terms<T: Float>(
        self,
        z: &Scattered<'_, T, impl Fn(usize) -> bool>,
        y: impl Fn(usize) -> f64,
    ) -> (f64, f64) {
        let (pools, top) = (self.solve(z), z.entries().map(|(_, z)| z).fold(f64::MIN, f64::max));
        let excess = |i: usize| pools.p(z.score(i)) - y(i);
        let terms = z.entries().map(|(i, z)| (z, excess(i))).filter(|(_, excess)| *excess != 0.0);
        let linear = numeric::sum(terms.map(|(z, excess)| (z - top) * excess));
        // Σ (d − k) p_(k), with ranks that follow each other within a pool.
        let mut left = z.entries().count() as f64;
        let penalty = numeric::sum(pools.each().map(|(p, len)| {
            left -= len;
            p * len * (left + 0.5 * (len - 1.0))
        }));
        let square = numeric::sum(pools.each().map(|(p, len)| len * p * p));
        (linear, 0.5 * square + self.lambda * penalty)
    }
}

impl Pools {
    /// The values of the pools, and how many entries each has.
    fn each(&self) -> impl Iterator<Item = (f64, f64)> {
        self.value.iter().zip(&self.last).map(|(value, bits)| (*value, f64::from(self.counts[usize::from(*bits)])))
    }

    /// The probability of a score.
    fn p<T: Float>(&self, z: T) -> f64 {
        let pool = self.of[usize::from(z.bits().unwrap_or(0))];
        self.value.get(usize::from(pool)).copied().unwrap_or(0.0)
    }
}

/// Entries that are sorted at a time: half a megabyte with what comes in there.
const PIECE: usize = 1 << 14;

/// The gradient in λ of oscarmax from probabilities, which tell groups and ranks: as the head of `oscarmax.rs` has it,
/// with the entries in pieces from the largest probability down.
pub(crate) fn slope(row: &LongRow<'_>) -> f64 {
    let origin = row.on_support().next().map_or(0.0, |(_, v)| v);
    let n = row.on_support().count() as f64;
    let all = numeric::sum(row.on_support().map(|(_, v)| v - origin)) / n;
    let (mut gradient, mut bound, mut rank) = (numeric::Sum::default(), f64::INFINITY, 0.0);
    let mut piece: Vec<(f64, f64)> = Vec::with_capacity(2 * PIECE);
    loop {
        piece.clear();
        for (p, v) in row.on_support().filter(|(p, _)| *p < bound) {
            piece.push((p, v - origin));
            if piece.len() == 2 * PIECE {
                piece.select_nth_unstable_by(PIECE, |a, b| b.0.total_cmp(&a.0));
                piece.truncate(PIECE);
            }
        }
        piece.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
        let Some((least, _)) = piece.last().copied() else { return gradient.total() };
        // The mean of a group, less that of all, by the sum of its ranks.
        let mut add = |sum: f64, len: f64| {
            gradient.add((sum / len - all) * len * (rank + 0.5 * (len - 1.0)));
            rank += len;
        };
        let larger = piece.partition_point(|(p, _)| *p > least);
        for group in piece[..larger].chunk_by(|a, b| a.0 == b.0) {
            add(numeric::sum(group.iter().map(|(_, v)| *v)), group.len() as f64);
        }
        // Others that equal the least may have been left out: all of them come last.
        let equal = || row.on_support().filter(|(p, _)| *p == least);
        add(numeric::sum(equal().map(|(_, v)| v - origin)), equal().count() as f64);
        bound = least;
    }
}
