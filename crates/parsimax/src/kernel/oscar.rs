//! Oscarmax: the best non-increasing fit to the sorted, penalised scores, projected onto the simplex.
//!
//! Plainly: sort, pool, threshold, write. In units of the scores, with `l = λγ` and ranks `k` from 0: fit
//! `x_0 ≥ x_1 ≥ …` to `z_(k) + l·k`, find `Σ [x − t]₊ = γ`, and `p = [x − t]₊/γ`.
//!
//! **Without the sort.** Let `T(k)` be the sum of the first `k` targets. The fit is the slope of the least
//! concave function above `T`, and it bends only where `T` touches it; `Σ [x − t]₊ = max_k T(k) − k·t`. Scores
//! are counted into buckets by value: `T` is then known where one bucket ends and the next begins, say at `a`
//! and `b`, and so is a first majorant `M`, below the true one, with a first threshold `t₀`, below the true
//! one (a maximum over fewer `k`). Right of the last touch `k₀` with slope above `t₀`, let `M` go on with slope
//! `t₀`. Where `T` stays below `M`, nothing bends and nothing has mass that had none:
//! `T(k) − k·t₀ ≤ T(k₀) − k₀·t₀` and `t ≥ t₀` give `T(k) − k·t ≤ T(k₀) − k₀·t`.
//!
//! Within a bucket of `n` scores between `low` and `high` with sum `s`, both `T(a) + (k−a)·high + l·Σ ranks`
//! and `T(b) − (b−k)·low − l·Σ ranks` are above `T` and convex in `k`, hence below their chords. The lower of
//! the two chords exceeds that of `T` by `r·q/(r+q)` at most, at the share `q/(r+q)` of the way, where
//! `r = n·high − s` and `q = s − n·low`. `M` is a straight line there. So one comparison clears a bucket, and
//! only the scores of buckets that are not cleared are sorted: those around a bend.
//!
//! **Cost.** O(d) where groups are few; sorting what could not be cleared, O(d log d), at worst.

mod lanes;

use super::Status;
use super::scan::{collect_indexed, lane_maxima};
use super::structured::{Rows, Work};
use super::vector::{Vector, outlined};

/// Lists up to this length are sorted at once.
const FEW: usize = 32;

/// Buckets at most.
const BUCKETS: usize = 1024;

/// More candidates than this are not listed but looked up in the row again and again: with λ as by default, all
/// of a long row are candidates, and lists of them would take twice its memory.
const MANY: usize = 1 << 14;

/// Scores that are looked at between two questions whether the list is full.
const STRIDE: usize = 4096;

/// The candidates of a row: `LISTED` with their places, or those of the whole row that are above a limit.
#[derive(Clone, Copy)]
struct Candidates<'a, const LISTED: bool> {
    z: &'a [f32],
    index: &'a [u32],
    limit: f32,
}

impl<const LISTED: bool> Candidates<'_, LISTED> {
    #[inline(always)]
    fn has(&self, z: f32) -> bool {
        LISTED || z > self.limit
    }
    /// Every candidate with its number.
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = (usize, f32)> {
        self.z.iter().copied().enumerate().filter(|(_, z)| self.has(*z))
    }
    /// The place in the row of the candidate with a number.
    #[inline(always)]
    fn place(&self, number: usize) -> usize {
        if LISTED { self.index[number] as usize } else { number }
    }
    /// The lowest of them, with minima that need not wait for each other.
    fn lowest(&self) -> f32 {
        let lower = |low: f32, z: f32| if z < low && self.has(z) { z } else { low };
        let mut lanes = [f32::INFINITY; 16];
        let chunks = self.z.chunks_exact(16);
        let rest = chunks.remainder().iter().fold(f32::INFINITY, |low, z| lower(low, *z));
        for chunk in chunks {
            lanes.iter_mut().zip(chunk).for_each(|(low, z)| *low = lower(*low, *z));
        }
        lanes.iter().fold(rest, |low, z| low.min(*z))
    }
}

/// Scores that lie together in the order of all: how many, their sum, measured from the largest score, and
/// the rank of the first.
#[derive(Clone, Copy, Debug)]
struct Pool {
    start: usize,
    len: usize,
    sum: f64,
    /// The mean of the targets.
    value: f64,
}

impl Pool {
    fn new(start: usize, len: usize, sum: f64, l: f64) -> Pool {
        let value = sum / len as f64 + l * (start as f64 + 0.5 * (len - 1) as f64);
        Pool { start, len, sum, value }
    }
}

/// Working memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    buckets: Vec<Bucket>,
    /// Scores to be sorted, as keys that ascend while scores descend, above their place in the list.
    keys: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    len: usize,
    sum: f64,
    is_sorted: bool,
    p: f32,
}

outlined! {
    /// The maximum of a row (NaN if it holds one); the score at or below which its entries are no candidates, being
    /// `window` or more below it; and how many candidates it listed, more than `MANY` if that was not all.
    ///
    /// # Safety
    /// `z` is readable for `d` floats; `list` and `index` are writable for `d`, or for `MANY` and a `STRIDE` if
    /// that is less, and `2·LANES`; the CPU has the instruction set of `V`.
    unsafe fn survey<V>(z: *const f32, d: usize, window: f64, list: *mut f32, index: *mut u32) -> (f32, f32, usize)
        => survey_any
}

/// # Safety
/// As [`survey`].
#[inline(always)]
unsafe fn survey_any<V: Vector>(
    z: *const f32,
    d: usize,
    window: f64,
    list: *mut f32,
    index: *mut u32,
) -> (f32, f32, usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (m, nan) = lane_maxima::<V>(z, d);
        let max = m.reduce_max();
        if nan || !max.is_finite() {
            return (if nan { f32::NAN } else { max }, 0.0, 0);
        }
        // The step down covers the rounding of the limit.
        let limit = ((f64::from(max) - window * (1.0 + 1e-6)) as f32).next_down();
        let (mut from, mut n) = (0, 0);
        while from < d && n <= MANY {
            let len = STRIDE.min(d - from);
            n += collect_indexed::<V>(z.add(from), len, limit, from as u32, list.add(n), index.add(n));
            from += len;
        }
        (max, limit, n)
    }
}

/// Rows of width `d`: first those of a group that can be solved side by side, then the others.
///
/// # Safety
/// The slices hold as many rows as `status`; the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: Rows<'_>, lambda: f64, gamma: f64) {
    let Rows { z, d, out, status, work } = job;
    let group = V::LANES * d;
    for ((z, out), status) in z.chunks(group).zip(out.chunks_mut(group)).zip(status.chunks_mut(V::LANES)) {
        let mut solved = 0;
        if lanes::fits(d, lambda) {
            let (list, _) = work.lists(d);
            // SAFETY: the chunks hold as many rows as `status`, the list a row and two vectors; the caller vouches
            // for the instruction set.
            solved = unsafe { lanes::rows::<V>(z.as_ptr(), out.as_mut_ptr(), d, status.len(), (lambda, gamma), list) };
        }
        for (r, ((z, out), status)) in z.chunks(d).zip(out.chunks_mut(d)).zip(status).enumerate() {
            // SAFETY: the caller vouches for the instruction set.
            *status = if solved >> r & 1 == 1 { Status::Ok } else { unsafe { row::<V>(z, out, lambda, gamma, work) } };
        }
    }
}

/// One row.
///
/// # Safety
/// The CPU has the instruction set of `V`.
unsafe fn row<V: Vector>(z: &[f32], out: &mut [f32], lambda: f64, gamma: f64, work: &mut Work) -> Status {
    let l = lambda * gamma;
    // An entry with mass is above the value of its group, less the last penalty of it.
    let window = l * (z.len() - 1) as f64 + gamma;
    let (list, index) = work.lists(z.len().min(MANY + STRIDE));
    // SAFETY: the lists hold two vectors more than that; the caller vouches for the instruction set.
    let (max, limit, n) = unsafe { survey::<V>(z.as_ptr(), z.len(), window, list, index) };
    let status = Status::of_max(max);
    out.fill(status.fill());
    if status == Status::Ok {
        // SAFETY: that is how many were written.
        unsafe { work.hold(n) };
        let Work { list, index, oscar, .. } = work;
        if n <= MANY {
            oscar.solve(Candidates::<true> { z: list, index, limit }, max, l, gamma, out);
        } else {
            oscar.solve(Candidates::<false> { z, index: &[], limit }, max, l, gamma, out);
        }
    }
    status
}

/// The bits of a score, in an order that descends.
fn key(z: f32, place: usize) -> u64 {
    // +0 and −0 are one score.
    let bits = (z + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    u64::from(!ascending) << 32 | place as u64
}

impl Pools {
    /// Writes the probabilities of the candidates.
    fn solve<const LISTED: bool>(
        &mut self,
        candidates: Candidates<'_, LISTED>,
        max: f32,
        l: f64,
        gamma: f64,
        out: &mut [f32],
    ) {
        let list = candidates.z;
        self.keys.clear();
        self.pools.clear();
        if list.len() <= FEW {
            self.keys.extend(candidates.each().map(|(number, z)| key(z, number)));
            self.keys.sort_unstable();
            append(&mut self.pools, (list, &self.keys), f64::from(max), l);
            let t = threshold(&self.pools, gamma);
            self.scatter(candidates, self.keys.len(), t, gamma, out);
            return;
        }
        let lowest = candidates.lowest();
        let count = (list.len() / 16).clamp(16, BUCKETS);
        // Monotone in z, rounding included, so that buckets are in order.
        let inverse = (count as f64 / (f64::from(max) - f64::from(lowest)).max(1e-30)) as f32;
        let last = (count - 1) as f32;
        let bucket = |z: f32| {
            let place = (max - z) * inverse;
            // SAFETY: between 0 and the last bucket, and no NaN: scores are finite and not above the maximum.
            unsafe { (if place < last { place } else { last }).to_int_unchecked::<i32>() as usize }
        };
        let n = self.count(candidates, count, max, bucket);
        self.pool_buckets((&[], &[]), f64::from(max), l);
        let t = threshold(&self.pools, gamma);
        if self.doubt(1.0 / f64::from(inverse), l, t) {
            for (number, z) in candidates.each() {
                if self.buckets[bucket(z)].is_sorted {
                    self.keys.push(key(z, number));
                }
            }
            self.keys.sort_unstable();
            let keys = std::mem::take(&mut self.keys);
            self.pool_buckets((list, &keys), f64::from(max), l);
            self.keys = keys;
        }
        let t = threshold(&self.pools, gamma);
        match self.spread(t, gamma) {
            Some((_, 0.0)) => {}
            Some((low, high)) if low == high && n == out.len() => out.fill(high),
            _ => candidates.each().for_each(|(number, z)| out[candidates.place(number)] = self.buckets[bucket(z)].p),
        }
        self.scatter(candidates, n, t, gamma, out);
    }

    /// Counts and sums of the buckets; the count of all.
    fn count<const LISTED: bool>(
        &mut self,
        all: Candidates<'_, LISTED>,
        count: usize,
        max: f32,
        bucket: impl Fn(f32) -> usize,
    ) -> usize {
        self.buckets.clear();
        self.buckets.resize(count, Bucket::default());
        let top = f64::from(max);
        for (_, z) in all.each() {
            let bucket = &mut self.buckets[bucket(z)];
            bucket.len += 1;
            bucket.sum += f64::from(z) - top;
        }
        if LISTED { all.z.len() } else { self.buckets.iter().map(|bucket| bucket.len).sum() }
    }

    /// Pools the buckets, those that are sorted entry by entry.
    fn pool_buckets(&mut self, (list, keys): (&[f32], &[u64]), top: f64, l: f64) {
        self.pools.clear();
        let mut next = 0;
        for b in 0..self.buckets.len() {
            let Bucket { len, sum, is_sorted, .. } = self.buckets[b];
            if is_sorted {
                append(&mut self.pools, (list, &keys[next..next + len]), top, l);
                next += len;
            } else if len > 0 {
                let start = end(&self.pools);
                push(&mut self.pools, Pool::new(start, len, sum, l), l);
            }
        }
    }

    /// Marks the buckets in which the fit may bend; whether there are any.
    fn doubt(&mut self, width: f64, l: f64, t: f64) -> bool {
        let (mut pools, mut found) = (self.pools.iter(), false);
        let (mut until, mut slope, mut gap, mut rank) = (0, 0.0, 0.0f64, 0usize);
        for (b, bucket) in self.buckets.iter_mut().enumerate().filter(|(_, bucket)| bucket.len > 0) {
            if rank == until {
                // The majorant's next piece, or the line of the threshold once that is steeper.
                let pool = pools.next().filter(|pool| pool.value > t);
                (until, slope) = pool.map_or((usize::MAX, t), |pool| (pool.start + pool.len, pool.value));
                gap = 0.0;
            }
            let n = bucket.len as f64;
            let (high, low) = (-(b as f64) * width * (1.0 - 1e-6), -((b + 1) as f64) * width * (1.0 + 1e-6));
            let (r, q) = ((n * high - bucket.sum).max(0.0), (bucket.sum - n * low).max(0.0));
            let mean = bucket.sum / n + l * (rank as f64 + 0.5 * (n - 1.0));
            let next = gap + (slope - mean) * n;
            let share = if r + q > 0.0 { q / (r + q) } else { 0.0 };
            bucket.is_sorted = bucket.len > 1 && r * share > (1.0 - share) * gap.max(0.0) + share * next.max(0.0);
            found |= bucket.is_sorted;
            (gap, rank) = (next, rank + bucket.len);
        }
        found
    }

    /// Gives every bucket that is not sorted its probability; the smallest and the largest of them.
    fn spread(&mut self, t: f64, gamma: f64) -> Option<(f32, f32)> {
        let (mut rank, mut at, mut found) = (0, 0, None);
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.len > 0) {
            while self.pools[at].start + self.pools[at].len <= rank {
                at += 1;
            }
            if !bucket.is_sorted {
                bucket.p = probability(&self.pools[at], t, gamma);
                let (low, high) = found.unwrap_or((bucket.p, bucket.p));
                found = Some((bucket.p.min(low), bucket.p.max(high)));
            }
            rank += bucket.len;
        }
        found
    }

    /// Writes the probabilities of the entries that were sorted, of `n` candidates.
    fn scatter<const LISTED: bool>(
        &self,
        candidates: Candidates<'_, LISTED>,
        n: usize,
        t: f64,
        gamma: f64,
        out: &mut [f32],
    ) {
        let mut put = |keys: &[u64], p: f32| {
            keys.iter().for_each(|key| out[candidates.place(*key as u32 as usize)] = p);
        };
        if self.keys.len() == n {
            for pool in &self.pools {
                match probability(pool, t, gamma) {
                    0.0 => break,
                    p => put(&self.keys[pool.start..pool.start + pool.len], p),
                }
            }
            return;
        }
        let (mut rank, mut next, mut at) = (0, 0, 0);
        for bucket in self.buckets.iter().filter(|bucket| bucket.len > 0) {
            let end = rank + bucket.len;
            while bucket.is_sorted && rank < end {
                while self.pools[at].start + self.pools[at].len <= rank {
                    at += 1;
                }
                let pool = &self.pools[at];
                let len = (pool.start + pool.len).min(end) - rank;
                put(&self.keys[next..next + len], probability(pool, t, gamma));
                (rank, next) = (rank + len, next + len);
            }
            rank = end;
        }
    }
}

fn probability(pool: &Pool, t: f64, gamma: f64) -> f32 {
    ((pool.value - t) / gamma).max(0.0) as f32
}

/// The rank behind the last pool.
fn end(pools: &[Pool]) -> usize {
    pools.last().map_or(0, |last| last.start + last.len)
}

/// Appends a pool, joining it with those before it that it is not below (pool adjacent violators).
#[inline(always)]
fn push(pools: &mut Vec<Pool>, mut next: Pool, l: f64) {
    while let Some(last) = pools.last().filter(|last| last.value <= next.value) {
        next = Pool::new(last.start, last.len + next.len, last.sum + next.sum, l);
        pools.pop();
    }
    pools.push(next);
}

/// Appends sorted scores; equal ones enter as one, for no rounding may part them.
fn append(pools: &mut Vec<Pool>, (list, keys): (&[f32], &[u64]), top: f64, l: f64) {
    let mut k = 0;
    while k < keys.len() {
        let len = keys[k..].iter().take_while(|key| **key >> 32 == keys[k] >> 32).count();
        let y = f64::from(list[keys[k] as u32 as usize]) - top;
        let start = end(pools);
        push(pools, Pool::new(start, len, len as f64 * y, l), l);
        k += len;
    }
}

/// `t` with `Σ [x − t]₊ = total` for pools of descending value.
fn threshold(pools: &[Pool], total: f64) -> f64 {
    // Measured from the first: a single pool, however far from 0, then divides the total evenly.
    let first = pools[0].value;
    let (mut sum, mut count, mut t) = (0.0, 0.0, f64::NEG_INFINITY);
    for pool in pools {
        let x = pool.value - first;
        if x <= t {
            break;
        }
        sum += x * pool.len as f64;
        count += pool.len as f64;
        t = (sum - total) / count;
    }
    first + t
}
