//! Supports of rows as lists, for backward passes that take powers: what is 0 takes no part in them, and few rows have
//! more than a vector or two that is not. What a list has no room for, on long rows, is gone through where it is.
//!
//! A group of rows is gone through step by step. What a step leaves in the lanes of every row is turned, so that what is
//! one number a row is worked out for all rows of the group at once.

use super::Scratch;
use super::vector::{MAX_LANES, Vector, read, write};

/// Widest row all of whose vectors are looked at. In wider ones a look at `p` tells which.
pub(super) const NARROW: usize = 128;

/// Widest row whose sums may stay in f32.
pub(super) const SHORT: usize = 512;

/// Entries in a part of a row: as many vectors as a word has bits, and sums that may stay in f32.
pub(super) const fn part<V: Vector>() -> usize {
    if SHORT < 64 * V::LANES { SHORT } else { 64 * V::LANES }
}

/// Floats that a list of every row of a group has together, at most: what a cache holds beside the rows.
const TOGETHER: usize = 1 << 12;

/// How many rows of that width are gone through together.
pub(super) const fn group<V: Vector>(d: usize) -> usize {
    match TOGETHER / d {
        0 => 1,
        rows if rows < V::LANES => rows,
        _ => V::LANES,
    }
}

/// Entries that a list holds, at most. A support of more is gone through where it is: so no row takes memory in
/// proportion to its width.
pub(super) const LISTED: usize = 1 << 13;

/// Floats that the list of a row of that width asks for: vectors are stored whole.
pub(super) const fn room(d: usize) -> usize {
    (if d < LISTED { d } else { LISTED }) + MAX_LANES
}

/// Room for `n` floats that hold nothing yet: what lists ask for is much more than most of them need, and clearing it takes
/// longer than many a row.
pub(super) fn unset(scratch: &mut Scratch, n: usize) -> *mut f32 {
    if scratch.floats.capacity() < n {
        scratch.floats.clear();
        scratch.floats.reserve(n);
    }
    scratch.floats.as_mut_ptr()
}

/// Words that remember the vectors of a row of that width.
pub(super) const fn words<V: Vector>(d: usize) -> usize {
    d.div_ceil(part::<V>())
}

/// The vectors of a part of a row of width `row` that are worth a look. If it is wide, `out` gets zeros: reading and writing at once
/// take no longer than a copy.
///
/// # Safety
/// `p` is readable and `out` writable for `d ≤ part` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn spots<V: Vector>(p: *const f32, d: usize, out: *mut f32, row: usize) -> u64 {
    if row <= NARROW {
        return u64::MAX >> (64 - d.div_ceil(V::LANES));
    }
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (zero, mut word, step) = (V::splat(0.0), 0u64, 4 * V::LANES);
        let whole = d / step * step;
        for i in (0..whole).step_by(step) {
            let mut busy = 0;
            for k in 0..4 {
                let at = i + k * V::LANES;
                busy |= u64::from(V::bits(V::load(p.add(at)).gt(zero)) != 0) << k;
                zero.store(out.add(at));
            }
            word |= busy << (i / V::LANES);
        }
        for i in (whole..d).step_by(V::LANES) {
            write(zero, out.add(i), (d - i).min(V::LANES));
            word |= 1 << (i / V::LANES);
        }
        word
    }
}

/// Entries at either end of a row that tell at a glance what it is like.
const GLANCE: usize = 128;

/// Whether more than half of a row are positive, as its ends have it.
///
/// # Safety
/// `p` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn is_dense<V: Vector>(p: *const f32, d: usize) -> bool {
    // SAFETY: both ends are within the row.
    unsafe {
        if d <= 2 * GLANCE {
            return count::<V>(p, d) * 2 > d;
        }
        count::<V>(p, GLANCE) + count::<V>(p.add(d - GLANCE), GLANCE) > GLANCE
    }
}

/// What is known of a support, by lanes: the least and the largest key, what stands beside the least, and the least
/// probability. An empty lane has infinities of the kind that any number mends.
#[derive(Clone, Copy)]
pub(super) struct Ends<V> {
    pub(super) least: V,
    pub(super) most: V,
    pub(super) beside: V,
    pub(super) p: V,
}

impl<V: Vector> Ends<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Ends<V> {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, inf) = (V::splat(0.0), V::splat(f32::INFINITY));
            Ends { least: inf, most: zero.sub(inf), beside: zero, p: inf }
        }
    }

    /// Takes in the entries of a vector that are `on`: their probabilities, keys and what stands beside them.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add(&mut self, on: V::Mask, (p, key, beside): (V, V, V)) {
        // SAFETY: as the caller vouches.
        unsafe {
            let inf = V::splat(f32::INFINITY);
            let low = key.select(on, inf);
            let is_lower = self.least.gt(low);
            self.least = low.select(is_lower, self.least);
            self.beside = beside.select(is_lower, self.beside);
            self.most = key.select(on, V::splat(f32::NEG_INFINITY)).max(self.most);
            self.p = p.select(on, inf).min(self.p);
        }
    }
}

/// A row, by pointer, and the words that remember where its support is.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) key: *const f32,
    pub(super) p: *const f32,
    pub(super) v: *const f32,
    pub(super) out: *mut f32,
    pub(super) d: usize,
    pub(super) words: *mut u64,
}

/// Notes which vectors of a row are worth a look, and asks for what else they hold. Zeros are written to `out` if others
/// are not.
///
/// # Safety
/// `p` is readable and `out` writable for `d` floats, `words`, if not aligned, for [`words`]; the CPU has the instruction
/// set of `V`.
#[inline(always)]
pub(super) unsafe fn mark<V: Vector>(row: Row) {
    let Row { key, p, v, out, d, words } = row;
    for first in (0..d).step_by(part::<V>()) {
        // SAFETY: a part is within the row, and there is a word for it.
        unsafe {
            let mut word = spots::<V>(p.add(first), (d - first).min(part::<V>()), out.add(first), d);
            words.add(first / part::<V>()).write_unaligned(word);
            while word != 0 && d > NARROW {
                let i = first + word.trailing_zeros() as usize * V::LANES;
                V::prefetch(key.add(i));
                V::prefetch(v.add(i));
                word &= word - 1;
            }
        }
    }
}

/// How many entries of a row are positive.
///
/// # Safety
/// `p` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn count<V: Vector>(p: *const f32, d: usize) -> usize {
    let mut n = 0;
    for i in (0..d).step_by(V::LANES) {
        // SAFETY: every load stays within `d` floats.
        let on = unsafe { read::<V>(p.add(i), (d - i).min(V::LANES)).gt(V::splat(0.0)) };
        n += V::bits(on).count_ones() as usize;
    }
    n
}

/// Lists the keys of the support and what stands beside them; returns how many there are, and its ends, or `None` if
/// they may be more than a list has room for. Parts of `out` may be overwritten.
///
/// # Safety
/// `key`, `p` and `v` are readable and `out` writable for `d` floats, `words`, if not aligned, for [`words`], the lists
/// for [`room`]; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn collect<V: Vector>(row: Row, (keys, beside): (*mut f32, *mut f32)) -> Option<(usize, Ends<V>)> {
    let Row { key, p, v, d, words, .. } = row;
    // SAFETY: every access stays within `d` floats, and a list ends no later than the row.
    unsafe {
        mark::<V>(row);
        let (zero, mut ends, mut n) = (V::splat(0.0), Ends::new(), 0);
        for first in (0..d).step_by(part::<V>()) {
            if n + (d - first).min(part::<V>()) > LISTED {
                return None;
            }
            let mut word = words.add(first / part::<V>()).read_unaligned();
            while word != 0 {
                let i = first + word.trailing_zeros() as usize * V::LANES;
                let len = (d - i).min(V::LANES);
                let (q, k, g) = (read::<V>(p.add(i), len), read::<V>(key.add(i), len), read::<V>(v.add(i), len));
                let on = q.gt(zero);
                k.compress(on, keys.add(n));
                n += g.compress(on, beside.add(n));
                ends.add(on, (q, k, g));
                word &= word - 1;
            }
        }
        // Vectors are read whole.
        zero.store(keys.add(n));
        zero.store(beside.add(n));
        Some((n, ends))
    }
}

/// How many entries the support of a row has whose vectors are [marked](mark), and its ends.
///
/// # Safety
/// As [`collect`], without lists.
#[inline(always)]
pub(super) unsafe fn survey<V: Vector>(row: Row) -> (usize, Ends<V>) {
    let Row { key, p, v, d, words, .. } = row;
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (mut ends, mut n) = (Ends::new(), 0);
        for first in (0..d).step_by(part::<V>()) {
            let mut word = words.add(first / part::<V>()).read_unaligned();
            while word != 0 {
                let i = first + word.trailing_zeros() as usize * V::LANES;
                let len = (d - i).min(V::LANES);
                let q = read::<V>(p.add(i), len);
                let on = q.gt(V::splat(0.0));
                ends.add(on, (q, read::<V>(key.add(i), len), read::<V>(v.add(i), len)));
                n += V::bits(on).count_ones() as usize;
                word &= word - 1;
            }
        }
        (n, ends)
    }
}

/// Writes a row whose support is listed.
///
/// # Safety
/// As [`collect`], which has seen the row; the list is readable for [`room`].
#[inline(always)]
pub(super) unsafe fn put_back<V: Vector>(row: Row, list: *const f32) {
    let Row { p, out, d, words, .. } = row;
    // SAFETY: every access stays within `d` floats, and a list ends no later than the row.
    unsafe {
        let mut n = 0;
        for first in (0..d).step_by(part::<V>()) {
            let mut word = words.add(first / part::<V>()).read_unaligned();
            while word != 0 {
                let i = first + word.trailing_zeros() as usize * V::LANES;
                let len = (d - i).min(V::LANES);
                let on = read::<V>(p.add(i), len).gt(V::splat(0.0));
                write(V::expand(on, list.add(n)), out.add(i), len);
                n += V::bits(on).count_ones() as usize;
                word &= word - 1;
            }
        }
    }
}

/// The lanes of a vector at `i` of a list of `n` that belong to it.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn within<V: Vector>(i: usize, n: usize) -> V::Mask {
    let here = (n - i).min(V::LANES);
    // SAFETY: as the caller vouches.
    unsafe { V::lanes_of(((1u64 << here) - 1) as u32) }
}

/// Sums of a list, by lanes: a part at a time in f32, and of longer lists then in f64.
pub(super) struct Sums<V: Vector, const N: usize> {
    part: [V; N],
    all: [V::Wide; N],
    is_long: bool,
}

impl<V: Vector, const N: usize> Sums<V, N> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        // SAFETY: as the caller vouches.
        unsafe { Sums { part: [V::splat(0.0); N], all: [V::wide_zero(); N], is_long: false } }
    }

    /// The sums so far of this part, to be added to.
    #[inline(always)]
    pub(super) fn part(&mut self) -> &mut [V; N] {
        &mut self.part
    }

    /// The end of a part that another follows.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn widen(&mut self) {
        self.is_long = true;
        for k in 0..N {
            self.all[k] = V::wide_add(self.all[k], self.part[k]);
            // SAFETY: as the caller vouches.
            self.part[k] = unsafe { V::splat(0.0) };
        }
    }

    /// The sums, of all lanes.
    #[inline(always)]
    pub(super) fn totals(self) -> [f64; N] {
        std::array::from_fn(|k| V::wide_total(V::wide_add(self.all[k], self.part[k])))
    }

    /// The sums.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn lanes(mut self) -> [V; N] {
        if self.is_long {
            for k in 0..N {
                let total = V::wide_total(V::wide_add(self.all[k], self.part[k])) as f32;
                // SAFETY: one float is readable; the caller vouches for the instruction set.
                self.part[k] = unsafe { V::load_first(&total, 1, 0.0) };
            }
        }
        self.part
    }
}

/// What rows have in their lanes, until it is turned into lanes of rows.
pub(super) struct Across([[f32; MAX_LANES * MAX_LANES]; 4]);

impl Across {
    pub(super) fn new() -> Across {
        Across([[0.0; MAX_LANES * MAX_LANES]; 4])
    }

    /// Keeps that of row `r` of a group.
    ///
    /// # Safety
    /// `r < LANES`.
    #[inline(always)]
    pub(super) unsafe fn put<V: Vector, const N: usize>(&mut self, r: usize, lanes: [V; N]) {
        for (to, lanes) in self.0.iter_mut().zip(lanes) {
            // SAFETY: `LANES` rows of `LANES` floats are within the array.
            unsafe { lanes.store(to.as_mut_ptr().add(r * V::LANES)) };
        }
    }

    /// The `k`-th of what was kept of row `r`.
    ///
    /// # Safety
    /// `r < LANES`, and the CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn get<V: Vector>(&self, r: usize, k: usize) -> V {
        // SAFETY: `LANES` rows of `LANES` floats are within the array.
        unsafe { V::load(self.0[k].as_ptr().add(r * V::LANES)) }
    }

    /// The sum of the lanes of the `k`-th of every row: a row a lane.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn total<V: Vector>(&self, k: usize) -> V {
        // SAFETY: the array holds `LANES` rows of `LANES` floats.
        unsafe { V::row_sums(self.0[k].as_ptr()) }
    }

    /// The largest lane of the `k`-th of every row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn most<V: Vector>(&self, k: usize) -> V {
        // SAFETY: the array holds `LANES` rows of `LANES` floats.
        unsafe { V::row_maxima(self.0[k].as_ptr()) }
    }
}
