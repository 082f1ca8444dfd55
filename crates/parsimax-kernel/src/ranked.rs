//! Thresholds of a few candidates a row by their order, one row a lane.
//!
//! Plainly: of every lane of a row keep its two largest scores, put them in order, and solve on them. They are a subset
//! of the row, so that their τ is a lower bound; and it is τ itself unless three of the support share a lane. Comparing
//! and exchanging is what vectors do fastest: a network of some hundred exchanges puts the candidates of `LANES` rows in
//! order in the time of two Newton steps, and then nothing is left to iterate.

use super::group::Rows;
use super::network::{sort_eight, sort_sixteen};
use super::profile::Direct;
use super::vector::{MAX_LANES, Vector};

/// Candidates that are put in order: of more, those nearest to the maximum.
pub(super) const RANKS: usize = 16;

/// What the ranks tell of every row.
pub(super) struct Ranked<V> {
    /// τ of the candidates, measured from the maximum, as two floats to be added.
    pub(super) hi: V,
    pub(super) lo: V,
    /// How many of them are in the support.
    pub(super) count: V,
}

/// The two largest of every lane of a row, of two neighbours the larger; whether there is a NaN.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn two_largest<V: Vector>(z: *const f32, d: usize) -> ([V; 2], bool) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let (mut first, mut second) = (none, none);
        let mut nan = none.unordered(none);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            let (a, b) = (V::load(z.add(i)), V::load(z.add(i + V::LANES)));
            let (c, e) = (V::load(z.add(i + 2 * V::LANES)), V::load(z.add(i + 3 * V::LANES)));
            nan = V::or(nan, V::or(a.unordered(b), c.unordered(e)));
            let (ab, ce) = (a.max(b), c.max(e));
            let (top, next) = (ab.max(ce), ab.min(ce));
            second = first.min(top).max(second.max(next));
            first = top.max(first);
            i += 4 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            nan = V::or(nan, v.unordered(v));
            second = v.min(first).max(second);
            first = v.max(first);
            i += n;
        }
        ([first, second], V::bits(nan) != 0)
    }
}

/// Solves on the ranks: `gaps` holds `2·LANES` vectors of distances `scale·(max − z)`, the largest of every lane first.
///
/// # Safety
/// `gaps` is readable for `2·LANES` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn solve<V: Vector, P: Direct>(prof: P, gaps: *const f32, rows: &Rows) -> Ranked<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let (one, bit) = (V::splat(rows.one), V::splat(rows.bit));
        let y = nearest::<V>(gaps);
        let t = prof.by_rank(&y, one);
        // One Newton step takes what rounding has left: the order is not asked again.
        let zero = V::splat(0.0);
        let (mut f, mut g, mut count) = ([zero; 4], [zero; 4], [zero; 4]);
        for k in (0..RANKS).step_by(4) {
            for j in 0..4 {
                let u = t.sub(y[k + j]).positive();
                (f[j], g[j]) = prof.take(u, f[j], g[j], bit);
                if !P::LOOKS_TWICE {
                    count[j] = count[j].tally_above(u, bit);
                }
            }
        }
        let (f, g) = (together(f), prof.taken_of(g));
        // The slope of sparsemax is the number of entries.
        let count = if P::LOOKS_TWICE { g } else { tallied(count) };
        Ranked { hi: zero.sub(t), lo: prof.step(f, g), count }
    }
}

/// The sum of four.
#[inline(always)]
fn together<V: Vector>(x: [V; 4]) -> V {
    x[0].add(x[1]).add(x[2].add(x[3]))
}

/// The sum of four tallies.
#[inline(always)]
pub(super) fn tallied<V: Vector>(n: [V; 4]) -> V {
    together([n[0].tallied(), n[1].tallied(), n[2].tallied(), n[3].tallied()])
}

/// The [`RANKS`] smallest of the gaps of every lane, in ascending order; behind the last, ∞. Of the second largest
/// entries of two lanes the smaller one is left out where there are many.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn nearest<V: Vector>(gaps: *const f32) -> [V; RANKS] {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut y = [V::splat(f32::INFINITY); RANKS];
        for j in 0..RANKS.min(2 * V::LANES) {
            y[j] = V::load(gaps.add(j * V::LANES));
        }
        sort(&mut y);
        if V::LANES == MAX_LANES {
            let mut next = [y[0]; RANKS / 2];
            for j in 0..RANKS / 2 {
                let pair = gaps.add((RANKS + j) * V::LANES);
                next[j] = V::load(pair).order(V::load(pair.add(RANKS / 2 * V::LANES))).0;
            }
            sort_half(&mut next);
            // The smaller ones of two ascending sequences, one of them backwards, rise and then fall.
            for j in 0..RANKS / 2 {
                let at = RANKS - 1 - j;
                y[at] = y[at].order(next[j]).0;
            }
            merge(&mut y);
        }
        y
    }
}

/// Exchanges what is in the wrong order.
macro_rules! exchange {
    ($y:ident: $($i:literal $j:literal),* $(,)?) => {$(
        ($y[$i], $y[$j]) = $y[$i].order($y[$j]);
    )*};
}

/// Ascending order, lane by lane.
#[inline(always)]
fn sort<V: Vector>(y: &mut [V; RANKS]) {
    sort_sixteen!(exchange, y);
}

/// The same for half as many.
#[inline(always)]
fn sort_half<V: Vector>(y: &mut [V; RANKS / 2]) {
    sort_eight!(exchange, y);
}

/// Ascending order of what rises and then falls.
#[inline(always)]
fn merge<V: Vector>(y: &mut [V; RANKS]) {
    exchange!(y: 0 8, 1 9, 2 10, 3 11, 4 12, 5 13, 6 14, 7 15);
    exchange!(y: 0 4, 1 5, 2 6, 3 7, 8 12, 9 13, 10 14, 11 15);
    exchange!(y: 0 2, 1 3, 4 6, 5 7, 8 10, 9 11, 12 14, 13 15);
    exchange!(y: 0 1, 2 3, 4 5, 6 7, 8 9, 10 11, 12 13, 14 15);
}
