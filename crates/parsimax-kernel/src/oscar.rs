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
//! **Few candidates.** Rows of which few scores can have mass are solved side by side (`oscar/lanes.rs`); others are
//! counted, searched and written with vectors (`oscar/passes.rs`), and the hundreds of buckets between are `f64`.
//!
//! **Cost.** O(d) where groups are few; sorting what could not be cleared, O(d log d), at worst.

mod lanes;
mod passes;

use super::Status;
use super::structured::Rows;
use super::tv::Scores;
use super::vector::Vector;
use passes::{Scale, Step};
use std::cell::Cell;

/// Rows up to this width are sorted at once.
const FEW: usize = 32;

/// Buckets at most, a power of two.
const BUCKETS: usize = 256;

/// Stretches of neighbouring buckets that are searched for on their own.
const RANGES: usize = 8;

/// Steps that are looked for in every score at once; more of them are looked up score by score.
const STEPS: usize = 32;

/// Up to this range of scores, in units of γ, their differences from the largest are counted as they round to f32,
/// which moves a probability by less than 5·10⁻⁷.
const NEAR: f64 = 16.0;

/// Scores that lie together in the order of all: how many, their sum, measured from the largest score, and
/// the rank of the first.
#[derive(Clone, Copy, Debug)]
struct Pool {
    start: f64,
    len: f64,
    sum: f64,
    /// The sum of the targets.
    mass: f64,
}

impl Pool {
    fn new(start: f64, len: f64, sum: f64, l: f64) -> Pool {
        Pool { start, len, sum, mass: sum + l * len * (start + 0.5 * (len - 1.0)) }
    }
    fn end(&self) -> f64 {
        self.start + self.len
    }
    fn value(&self) -> f64 {
        self.mass / self.len
    }
    fn exceeds(&self, other: &Pool) -> bool {
        self.mass * other.len > other.mass * self.len
    }
}

/// Working memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    pools: Vec<Pool>,
    /// One more than there are: scores too low to matter share the last.
    buckets: Vec<Bucket>,
    tables: Vec<u64>,
    /// Scores to be sorted, as keys that ascend while scores descend, above their place in the row.
    keys: Vec<u64>,
    steps: Vec<Step>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    len: usize,
    sum: f64,
    is_sorted: bool,
    p: f32,
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
            *status = Status::Ok;
            if solved >> r & 1 == 0 {
                // SAFETY: the caller vouches for the instruction set.
                *status = unsafe { row::<V>(z, out, lambda, gamma, &mut work.oscar) };
            }
        }
    }
}

/// One row.
///
/// # Safety
/// The CPU has the instruction set of `V`.
unsafe fn row<V: Vector>(z: &[f32], out: &mut [f32], lambda: f64, gamma: f64, pools: &mut Pools) -> Status {
    let l = lambda * gamma;
    // An entry with mass is above the value of its group, less the last penalty of it.
    let window = l * (z.len() - 1) as f64 + gamma;
    // SAFETY: the caller vouches for the instruction set.
    let (max, lowest) = unsafe { passes::survey::<V>(z.as_ptr(), z.len(), window) };
    let status = Status::of_max(max);
    if status != Status::Ok {
        out.fill(status.fill());
    } else if z.len() <= FEW {
        pools.sort_all(z, (max, lowest), l, gamma, out);
    } else {
        let scale = Scale::new((max, lowest), buckets(z.len()));
        // SAFETY: as above; both slices have the length of the row.
        unsafe {
            let (t, is_stepped) = pools.solve::<V>(z, scale, l, gamma);
            if is_stepped {
                passes::write::<V>(z.as_ptr(), out.as_mut_ptr(), z.len(), max, &raw const pools.steps[..]);
            } else {
                pools.look_up(z, scale, t, gamma, Cell::from_mut(out).as_slice_of_cells());
            }
        }
    }
    status
}

/// Replaces the scores of a row, all finite, by its probabilities.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn in_place<V: Vector>(x: &mut [f32], lambda: f64, gamma: f64, pools: &mut Pools) -> Status {
    let (d, l) = (x.len(), lambda * gamma);
    if d <= FEW {
        let mut z = [0.0; FEW];
        z[..d].copy_from_slice(x);
        // SAFETY: as the caller vouches.
        return unsafe { row::<V>(&z[..d], x, lambda, gamma, pools) };
    }
    // SAFETY: as the caller vouches.
    unsafe {
        let (max, lowest) = passes::survey::<V>(x.as_ptr(), d, l * (d - 1) as f64 + gamma);
        let status = Status::of_max(max);
        if status != Status::Ok {
            x.fill(status.fill());
            return status;
        }
        let scale = Scale::new((max, lowest), buckets(d));
        let (t, is_stepped) = pools.solve::<V>(x, scale, l, gamma);
        if is_stepped {
            let place = x.as_mut_ptr();
            passes::write::<V>(place, place, d, max, &raw const pools.steps[..]);
        } else {
            let place = Cell::from_mut(x).as_slice_of_cells();
            pools.look_up(place, scale, t, gamma, place);
        }
        status
    }
}

/// How many buckets the scores of a row are put in.
fn buckets(d: usize) -> usize {
    (d / 32).clamp(16, BUCKETS).next_power_of_two()
}

/// The bits of a score, in an order that descends.
fn key(z: f32, place: usize) -> u64 {
    // +0 and −0 are one score.
    let bits = (z + 0.0).to_bits();
    let ascending = if bits >> 31 == 0 { bits | 0x8000_0000 } else { !bits };
    u64::from(!ascending) << 32 | place as u64
}

/// Its place.
fn place(key: u64) -> usize {
    key as u32 as usize
}

impl Pools {
    /// A row of few scores, of which those not below the lowest are candidates.
    fn sort_all(&mut self, z: &[f32], (max, lowest): (f32, f32), l: f64, gamma: f64, out: &mut [f32]) {
        self.keys.clear();
        self.keys.extend(z.iter().enumerate().filter(|(_, z)| **z >= lowest).map(|(i, z)| key(*z, i)));
        self.keys.sort_unstable();
        let mut stack = Stack::new(&mut self.pools, l);
        stack.append((z, &self.keys), f64::from(max));
        stack.end();
        let t = threshold(&self.pools, gamma);
        out.fill(0.0);
        for pool in &self.pools {
            let p = probability(pool, t, gamma);
            self.keys[pool.start as usize..pool.end() as usize].iter().for_each(|key| out[place(*key)] = p);
        }
    }

    /// The threshold of a row of many, and whether its probabilities are few, those of the steps; else they are
    /// [looked up](Pools::look_up).
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn solve<V: Vector>(&mut self, z: &[f32], scale: Scale, l: f64, gamma: f64) -> (f64, bool) {
        self.buckets.clear();
        self.buckets.resize(scale.count + 1, Bucket::default());
        self.keys.clear();
        if scale.range() <= NEAR * gamma {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { self.count::<V>(z, scale) };
        } else {
            self.count_wide(z, scale);
        }
        self.pool_buckets(z, scale, l);
        let t = threshold(&self.pools, gamma);
        let ranges = self.doubt(scale, l, t);
        for range in ranges.into_iter().flatten() {
            let from = self.keys.len();
            // SAFETY: as above.
            unsafe { passes::between::<V>(z, scale, range, |z, i| self.keys.push(key(z, i))) };
            self.keys[from..].sort_unstable();
        }
        if !self.keys.is_empty() {
            self.pool_buckets(z, scale, l);
        }
        let t = threshold(&self.pools, gamma);
        (t, self.find_steps(z, scale, t, gamma))
    }

    /// Counts and sums of the buckets, from differences that are rounded to f32.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn count<V: Vector>(&mut self, z: &[f32], scale: Scale) {
        for z in z.chunks(passes::TALLIED) {
            self.tables.clear();
            self.tables.resize(passes::TABLES * (scale.count + 1), 0);
            // SAFETY: the tables are as large as the scale asks for; the caller vouches for the instruction set.
            unsafe { passes::tally::<V>(z.as_ptr(), z.len(), scale, self.tables.as_mut_ptr()) };
            for (b, bucket) in self.buckets[..scale.count].iter_mut().enumerate() {
                let (len, sum) = passes::tallied(&self.tables, b, scale);
                bucket.len += len;
                bucket.sum -= sum;
            }
        }
    }

    /// The same for scores so far apart that these differences would lack digits.
    fn count_wide(&mut self, z: &[f32], scale: Scale) {
        let top = f64::from(scale.max);
        for z in z {
            let bucket = &mut self.buckets[scale.bucket(*z)];
            bucket.len += 1;
            bucket.sum += f64::from(*z) - top;
        }
        self.buckets[scale.count] = Bucket::default();
    }

    /// Pools the buckets, those that are sorted entry by entry.
    fn pool_buckets(&mut self, z: &[f32], scale: Scale, l: f64) {
        let (mut stack, mut next) = (Stack::new(&mut self.pools, l), 0);
        for &Bucket { len, sum, is_sorted, .. } in &self.buckets {
            if is_sorted {
                stack.append((z, &self.keys[next..next + len]), f64::from(scale.max));
                next += len;
            } else if len > 0 {
                stack.push(len as f64, sum);
            }
        }
        stack.end();
    }

    /// Marks the buckets in which the fit may bend; the ranges that they lie in.
    fn doubt(&mut self, scale: Scale, l: f64, t: f64) -> [Option<(usize, usize)>; RANGES] {
        let (mut ranges, mut found) = ([None; RANGES], 0);
        let (mut pools, width) = (self.pools.iter(), scale.width());
        let (mut until, mut slope, mut gap, mut rank) = (0.0, 0.0, 0.0f64, 0.0);
        // Whether nothing but empty buckets lies behind the last range.
        let mut goes_on = false;
        for b in 0..scale.count {
            let bucket = &mut self.buckets[b];
            if bucket.len == 0 {
                continue;
            }
            if rank == until {
                // The majorant's next piece, or the line of the threshold once that is steeper.
                let pool = pools.next().filter(|pool| pool.value() > t);
                (until, slope) = pool.map_or((f64::INFINITY, t), |pool| (pool.end(), pool.value()));
                gap = 0.0;
            }
            let n = bucket.len as f64;
            let (high, low) = (-(b as f64) * width * (1.0 - 1e-6), -((b + 1) as f64) * width * (1.0 + 1e-6));
            let (r, q) = ((n * high - bucket.sum).max(0.0), (bucket.sum - n * low).max(0.0));
            let next = gap + slope * n - Pool::new(rank, n, bucket.sum, l).mass;
            // `r·q/(r+q)` above what the gap has at the share `q/(r+q)` of the way.
            bucket.is_sorted = bucket.len > 1 && r * q > r * gap.max(0.0) + q * next.max(0.0);
            (gap, rank) = (next, rank + n);
            if bucket.is_sorted {
                if !goes_on && found < RANGES {
                    ranges[found] = Some((b, b + 1));
                    found += 1;
                } else if let Some((_, end)) = &mut ranges[found - 1] {
                    // The last of many ranges takes in what lies between.
                    for between in &mut self.buckets[*end..b] {
                        between.is_sorted = between.len > 0;
                    }
                    *end = b + 1;
                }
            }
            goes_on = self.buckets[b].is_sorted;
        }
        ranges
    }

    /// Finds the scores at which the probability falls, if these are few.
    fn find_steps(&mut self, z: &[f32], scale: Scale, t: f64, gamma: f64) -> bool {
        self.steps.clear();
        let (mut b, mut end, mut sorted) = (0, self.buckets[0].len, 0);
        for pool in &self.pools {
            let p = probability(pool, t, gamma);
            if p == 0.0 || self.steps.len() == STEPS {
                return p == 0.0;
            }
            // The bucket of the last score, and how many of the keys are those of buckets before it.
            let last = pool.end() as usize - 1;
            while end <= last {
                sorted += if self.buckets[b].is_sorted { self.buckets[b].len } else { 0 };
                b += 1;
                end += self.buckets[b].len;
            }
            let Bucket { len, is_sorted, .. } = self.buckets[b];
            let depth =
                if is_sorted { scale.max - z[place(self.keys[sorted + last - (end - len)])] } else { scale.depth(b) };
            self.steps.push(Step { depth, p });
        }
        true
    }

    /// Writes the probability of every score, perhaps in its own place: that of its bucket, or its own if that was
    /// sorted.
    fn look_up<Z: Scores>(&mut self, z: Z, scale: Scale, t: f64, gamma: f64, out: &[Cell<f32>]) {
        let (mut rank, mut at) = (0.0, 0);
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.len > 0) {
            while self.pools[at].end() <= rank {
                at += 1;
            }
            bucket.p = probability(&self.pools[at], t, gamma);
            rank += bucket.len as f64;
        }
        for (i, out) in out.iter().enumerate() {
            out.set(self.buckets[scale.bucket(z.score(i))].p);
        }
        let (mut rank, mut next, mut at) = (0.0, 0, 0);
        for bucket in &self.buckets {
            let behind = if bucket.is_sorted { next + bucket.len } else { next };
            for (k, key) in self.keys[next..behind].iter().enumerate() {
                while self.pools[at].end() <= rank + k as f64 {
                    at += 1;
                }
                out[place(*key)].set(probability(&self.pools[at], t, gamma));
            }
            (rank, next) = (rank + bucket.len as f64, behind);
        }
    }
}

fn probability(pool: &Pool, t: f64, gamma: f64) -> f32 {
    ((pool.value() - t) / gamma).max(0.0) as f32
}

/// Pools of descending value, to which scores are appended (pool adjacent violators). The last one is at hand.
struct Stack<'a> {
    pools: &'a mut Vec<Pool>,
    last: Pool,
    l: f64,
}

impl Stack<'_> {
    /// None yet.
    fn new(pools: &mut Vec<Pool>, l: f64) -> Stack<'_> {
        pools.clear();
        Stack { pools, last: Pool::new(0.0, 0.0, 0.0, l), l }
    }

    /// Appends `len` scores with a sum, joining them with those before that they are not below.
    #[inline(always)]
    fn push(&mut self, len: f64, sum: f64) {
        let next = Pool::new(self.last.end(), len, sum, self.l);
        if self.last.exceeds(&next) {
            self.pools.push(self.last);
            self.last = next;
            return;
        }
        self.join(self.last, next);
        while let Some(before) = self.pools.last().copied().filter(|before| !before.exceeds(&self.last)) {
            self.join(before, self.last);
            self.pools.pop();
        }
    }

    #[inline(always)]
    fn join(&mut self, a: Pool, b: Pool) {
        self.last = Pool::new(a.start, a.len + b.len, a.sum + b.sum, self.l);
    }

    /// Appends sorted scores; equal ones enter as one, for no rounding may part them.
    fn append(&mut self, (z, keys): (&[f32], &[u64]), top: f64) {
        let mut k = 0;
        while k < keys.len() {
            let len = keys[k..].iter().take_while(|key| **key >> 32 == keys[k] >> 32).count();
            let y = f64::from(z[place(keys[k])]) - top;
            self.push(len as f64, len as f64 * y);
            k += len;
        }
    }

    /// That was all.
    fn end(self) {
        self.pools.push(self.last);
    }
}

/// `t` with `Σ [x − t]₊ = total` for pools of descending value.
fn threshold(pools: &[Pool], total: f64) -> f64 {
    // Measured from the first: a single pool, however far from 0, then divides the total evenly.
    let first = pools[0].value();
    let (mut sum, mut count, mut t) = (0.0, 0.0, f64::NEG_INFINITY);
    for pool in pools {
        let x = pool.value() - first;
        if x <= t {
            break;
        }
        sum += x * pool.len;
        count += pool.len;
        t = (sum - total) / count;
    }
    first + t
}
