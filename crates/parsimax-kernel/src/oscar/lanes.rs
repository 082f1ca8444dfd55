//! Oscarmax of rows with few candidates: `LANES` rows at a time, one row a lane.
//!
//! In units of γ, with scores `x` measured from the largest, ranks `k` from 0 and `T(k)` the sum of the first `k`
//! targets `x_(k) + λk` (`oscar.rs`): `Σ [fit − t]₊ = max_k T(k) − k·t`, so that the threshold is
//! `t = max_k (T(k) − 1)/k`.
//!
//! **Few candidates.** For the highest scores of a part of the row `T` is not above that of the row, and neither is
//! `t`: the maxima of the lanes give a lower bound `t₀`. A group's last target is not below the mean of the group, nor
//! that, if it has mass, below `t`. So the last score with mass, of rank `n − 1` at most when only `n` can have mass,
//! is above `t₀ − λ(n − 1)`. Fewer are above that, and so on: with λ as by default, 64 normal scores come down to five.
//!
//! **No branches.** These are sorted by a network, every lane for itself. The fit is
//! `min_{a ≤ i} max_{b ≥ i} mean(a..b)`, a few hundred operations for all lanes. A probability is a function of the
//! score that descends in steps, and the rows are written as such.
//!
//! **Digits.** All in f32: scores are less than 3 below the largest, `x` is right to 10⁻⁷, and so are means of it.
//! What the sum of all lacks in the end is divided among those with mass.

use crate::network::{sort_eight, sort_sixteen};
use crate::scan::collect;
use crate::short::lanes_of_maxima;
use crate::vector::{MAX_LANES, Vector, outlined};

/// Candidates of a row at most.
pub(super) const SLOTS: usize = 16;

/// Largest λ: the penalties of the last ranks take no digits from the scores.
const MAX_LAMBDA: f64 = 0.125;

/// Largest penalty of a row's last rank: beyond, most rows are one group with more members than slots.
const MAX_PENALTY: f64 = 8.0;

/// Widest row.
const MAX_WIDTH: usize = 1 << 14;

/// `1/k`.
static INVERSE: [f32; SLOTS + 1] = {
    let mut table = [0.0; SLOTS + 1];
    let mut k = 1;
    while k <= SLOTS {
        table[k] = 1.0 / k as f32;
        k += 1;
    }
    table
};

/// Whether rows of width `d` are worth a try.
pub(super) fn fits(d: usize, lambda: f64) -> bool {
    lambda <= MAX_LAMBDA && lambda * (d - 1) as f64 <= MAX_PENALTY && d <= MAX_WIDTH
}

outlined! {
    /// Solves and writes what it can of `here ≤ LANES` rows that [fit](fits); a bit for every row that it did, all of
    /// them with a finite maximum and no NaN.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for that many rows of `d ≥ 1` floats, `list` is writable for `d + 2·LANES`;
    /// the CPU has the instruction set of `V`.
    pub(super) unsafe fn rows<V>(
        z: *const f32,
        out: *mut f32,
        d: usize,
        here: usize,
        strength: (f64, f64),
        list: *mut f32,
    ) -> u32 => rows_any
}

/// Scores of rows, and the frame in which they are measured.
struct Rows {
    z: *const f32,
    d: usize,
    lambda: f32,
    scale: f32,
}

/// Candidates of `LANES` rows, each at the front of its slots; behind them −∞.
struct Lists {
    z: [f32; SLOTS * MAX_LANES],
    /// A bit for every row that has any here.
    held: u32,
    /// The longest list.
    slots: usize,
}

/// # Safety
/// As [`rows`].
#[inline(always)]
unsafe fn rows_any<V: Vector>(
    z: *const f32,
    out: *mut f32,
    d: usize,
    here: usize,
    (lambda, gamma): (f64, f64),
    list: *mut f32,
) -> u32 {
    let rows = Rows { z, d, lambda: lambda as f32, scale: (1.0 / gamma) as f32 };
    // SAFETY: as the caller vouches; all buffers hold `LANES` rows of slots.
    unsafe {
        let mut across = [0.0f32; MAX_LANES * MAX_LANES];
        let (max, nans) = lanes_of_maxima::<V>(z, (d, here), &mut across);
        let (least, most) = (V::splat(f32::NEG_INFINITY), V::splat(f32::INFINITY));
        let usable = V::bits(V::and(max.gt(least), most.gt(max))) & !nans & ((1u64 << here) - 1) as u32;
        let max = max.select(V::lanes_of(usable), V::splat(0.0));

        let mut x = [least; SLOTS];
        rows.measure::<V>(&mut x[..V::LANES], across.as_ptr(), max);
        sort16(&mut x);
        let bound = rows.threshold(&x);
        let lists = rows.lists::<V>(usable, max, bound, gamma as f32, list);
        if lists.held == 0 {
            return 0;
        }

        let mut turned = [0.0f32; SLOTS * MAX_LANES];
        for k in (0..SLOTS).step_by(V::LANES) {
            V::transpose(lists.z.as_ptr().add(k), SLOTS, turned.as_mut_ptr().add(k * V::LANES));
        }
        rows.measure::<V>(&mut x, turned.as_ptr(), max);
        let mut steps = Steps { x: turned, p: [0.0; SLOTS * MAX_LANES] };
        let slots = match lists.slots {
            0..=4 => steps.solve::<V, 4>(&rows, [x[0], x[1], x[2], x[3]], sort4),
            5..=8 => steps.solve::<V, 8>(&rows, [x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]], sort8),
            _ => steps.solve::<V, 16>(&rows, x, sort16),
        };
        let mut maxima = [0.0f32; MAX_LANES];
        max.store(maxima.as_mut_ptr());
        for r in (0..here).filter(|r| lists.held >> r & 1 == 1) {
            rows.write::<V>(r, maxima[r], &steps, slots, out);
        }
        lists.held
    }
}

impl Rows {
    /// `x` of scores that lie one row a lane.
    ///
    /// # Safety
    /// `z` is readable for as many vectors; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn measure<V: Vector>(&self, x: &mut [V], z: *const f32, max: V) {
        // SAFETY: as the caller vouches.
        let scale = unsafe { V::splat(self.scale) };
        for (k, x) in x.iter_mut().enumerate() {
            // SAFETY: as the caller vouches.
            *x = unsafe { V::load(z.add(k * V::LANES)) }.sub(max).mul(scale);
        }
    }

    /// `max_k (T(k) − 1)/k` of descending scores.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn threshold<V: Vector, const N: usize>(&self, x: &[V; N]) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let (mut sum, mut most) = (V::splat(-1.0), V::splat(f32::NEG_INFINITY));
            for k in 0..N {
                sum = sum.add(x[k]);
                let penalty = V::splat(self.lambda * (0.5 * k as f32));
                most = sum.fma(V::splat(INVERSE[k + 1]), penalty).max(most);
            }
            most
        }
    }

    /// Lists the candidates of the rows whose bit is set.
    ///
    /// # Safety
    /// As [`rows`].
    #[inline(always)]
    unsafe fn lists<V: Vector>(&self, usable: u32, max: V, bound: V, gamma: f32, list: *mut f32) -> Lists {
        // SAFETY: as the caller vouches.
        unsafe {
            let (z, d) = (self.z, self.d);
            let (step, whole) = (self.lambda * gamma, self.lambda * (d - 1) as f32);
            // More than the roundings of the bound, and of everything on the way to a limit.
            let depth = bound.sub(V::splat(1e-5)).mul(V::splat(gamma));
            let size = max.max(V::splat(0.0).sub(max)).sub(depth).add(V::splat(whole * gamma));
            let mut limits = [0.0f32; MAX_LANES];
            max.add(depth).sub(size.mul(V::splat(4e-7))).store(limits.as_mut_ptr());

            let mut lists = Lists { z: [0.0; SLOTS * MAX_LANES], held: 0, slots: 0 };
            for r in 0..V::LANES {
                let mut n = 0;
                if usable >> r & 1 == 1 {
                    n = self.list::<V>(z.add(r * d), limits[r], step, list);
                    lists.held |= u32::from(n > 0) << r;
                }
                for k in (0..SLOTS).step_by(V::LANES) {
                    let here = n.saturating_sub(k).min(V::LANES);
                    let part = V::load_first(list.add(k.min(n)), here, f32::NEG_INFINITY);
                    part.store(lists.z.as_mut_ptr().add(r * SLOTS + k));
                }
                lists.slots = lists.slots.max(n);
            }
            lists
        }
    }

    /// Lists the candidates of a row, those above `limit` less the penalty of the last that can have mass; how many
    /// they are, or 0 if they are too many.
    ///
    /// # Safety
    /// As [`rows`].
    #[inline(always)]
    unsafe fn list<V: Vector>(&self, z: *const f32, limit: f32, step: f32, list: *mut f32) -> usize {
        let limit = |n: usize| limit - step * (n - 1) as f32;
        let mut n = self.d;
        // SAFETY: as the caller vouches.
        unsafe {
            for _ in 0..2 {
                let above = above::<V>(z, self.d, limit(n));
                // Most of many remain: a row that is one large group.
                if above > 4 * SLOTS && above > n - n / 8 {
                    return 0;
                }
                n = above;
            }
            let mut before = n;
            n = collect::<V>(z, self.d, limit(n), list);
            while n > SLOTS && n < before {
                before = n;
                n = collect::<V>(list, n, limit(n), list);
            }
        }
        if n > SLOTS { 0 } else { n }
    }

    /// Writes row `r`.
    ///
    /// # Safety
    /// As [`rows`]; `slots ≤ SLOTS`.
    #[inline(always)]
    unsafe fn write<V: Vector>(&self, r: usize, max: f32, steps: &Steps, slots: usize, out: *mut f32) {
        // SAFETY: the row lies within its arrays, as the caller vouches.
        unsafe {
            let (z, out) = (self.z.add(r * self.d), out.add(r * self.d));
            let (max, scale, zero) = (V::splat(max), V::splat(self.scale), V::splat(0.0));
            let mut i = 0;
            while i + 4 * V::LANES <= self.d {
                let mut x = [zero; 4];
                let mut p = [zero; 4];
                for j in 0..4 {
                    x[j] = V::load(z.add(i + j * V::LANES)).sub(max).mul(scale);
                }
                for k in (0..slots).rev() {
                    let (from, value) = steps.at::<V>(k, r);
                    for j in 0..4 {
                        p[j] = value.select(x[j].ge(from), p[j]);
                    }
                }
                for j in 0..4 {
                    p[j].store(out.add(i + j * V::LANES));
                }
                i += 4 * V::LANES;
            }
            while i < self.d {
                let n = (self.d - i).min(V::LANES);
                let x = V::load_first(z.add(i), n, f32::NEG_INFINITY).sub(max).mul(scale);
                let mut p = zero;
                for k in (0..slots).rev() {
                    let (from, value) = steps.at::<V>(k, r);
                    p = value.select(x.ge(from), p);
                }
                p.store_first(out.add(i), n);
                i += n;
            }
        }
    }
}

/// How many scores are above a limit.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn above<V: Vector>(z: *const f32, d: usize, limit: f32) -> usize {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let limit = V::splat(limit);
        let (mut i, mut n) = (0, 0);
        while i + V::LANES <= d {
            n += V::bits(V::load(z.add(i)).gt(limit)).count_ones();
            i += V::LANES;
        }
        if i < d {
            n += V::bits(V::load_first(z.add(i), d - i, f32::NEG_INFINITY).gt(limit)).count_ones();
        }
        n as usize
    }
}

/// Probabilities of scores, one row a lane: that of `x` is the entry of `p` at the first entry of `x` it is not below.
struct Steps {
    x: [f32; SLOTS * MAX_LANES],
    p: [f32; SLOTS * MAX_LANES],
}

impl Steps {
    /// A step of a row.
    ///
    /// # Safety
    /// It is one of the slots, the row a lane; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, k: usize, r: usize) -> (V, V) {
        let place = k * V::LANES + r;
        // SAFETY: as the caller vouches.
        unsafe { (V::splat(*self.x.get_unchecked(place)), V::splat(*self.p.get_unchecked(place))) }
    }

    /// The steps of candidates; how many have mass in any lane.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn solve<V: Vector, const N: usize>(
        &mut self,
        rows: &Rows,
        mut x: [V; N],
        sort: impl Fn(&mut [V; N]),
    ) -> usize {
        // SAFETY: as the caller vouches; the arrays hold `SLOTS ≥ N` vectors.
        unsafe {
            let zero = V::splat(0.0);
            sort(&mut x);
            let t = rows.threshold(&x);
            let mut fit = fit(&x, rows.lambda);
            let (mut sum, mut count, mut slots) = (V::splat(-1.0), zero, 0);
            // Equal scores are one, and no rounding may part them.
            for k in 1..N {
                fit[k] = fit[k - 1].select(x[k].ge(x[k - 1]), fit[k]);
            }
            for k in 0..N {
                let p = fit[k].sub(t);
                let has_mass = p.gt(zero);
                fit[k] = p.keep(has_mass);
                sum = sum.add(fit[k]);
                count = count.add(V::splat(1.0).keep(has_mass));
                slots = if V::bits(has_mass) != 0 { k + 1 } else { slots };
            }
            let share = sum.div(count.max(V::splat(1.0)));
            for k in 0..N {
                x[k].store(self.x.as_mut_ptr().add(k * V::LANES));
                let p = fit[k].sub(share).max(zero).keep(fit[k].gt(zero));
                p.store(self.p.as_mut_ptr().add(k * V::LANES));
            }
            slots
        }
    }
}

/// The best fit to `x_k + λk` that does not ascend.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn fit<V: Vector, const N: usize>(x: &[V; N], lambda: f32) -> [V; N] {
    // SAFETY: as the caller vouches.
    unsafe {
        let mut fit = [V::splat(f32::INFINITY); N];
        let mut target = *x;
        for k in 1..N {
            target[k] = x[k].add(V::splat(lambda * k as f32));
        }
        for a in 0..N {
            let mut mean = target;
            let mut sum = target[a];
            for b in a + 1..N {
                sum = sum.add(target[b]);
                mean[b] = sum.mul(V::splat(INVERSE[b + 1 - a]));
            }
            let mut most = mean[N - 1];
            for i in (a..N).rev() {
                most = mean[i].max(most);
                fit[i] = most.min(fit[i]);
            }
        }
        fit
    }
}

/// Puts pairs of entries in descending order, one after the other.
macro_rules! exchange {
    ($x:ident: $($i:literal $j:literal),*) => {$(
        ($x[$i], $x[$j]) = ($x[$i].max($x[$j]), $x[$i].min($x[$j]));
    )*};
}

/// Sorts in descending order, each lane for itself (Batcher's network); so do the other two.
#[inline(always)]
fn sort4<V: Vector>(x: &mut [V; 4]) {
    exchange!(x: 0 1, 2 3, 0 2, 1 3, 1 2);
}

#[inline(always)]
fn sort8<V: Vector>(x: &mut [V; 8]) {
    sort_eight!(exchange, x);
}

#[inline(always)]
fn sort16<V: Vector>(x: &mut [V; 16]) {
    sort_sixteen!(exchange, x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portable::Portable;

    /// Whether a network sorts every row of zeros and ones, and hence every row (Knuth 5.3.4).
    fn sorts<const N: usize>(sort: impl Fn(&mut [Portable; N])) -> bool {
        (0..1u32 << N).all(|ones| {
            // SAFETY: every CPU has the portable instance; the buffer holds its lanes.
            let mut x: [Portable; N] = std::array::from_fn(|k| unsafe { Portable::splat((ones >> k & 1) as f32) });
            sort(&mut x);
            let first = |x: Portable| {
                let mut lanes = [0.0; MAX_LANES];
                // SAFETY: as above.
                unsafe { x.store(lanes.as_mut_ptr()) };
                lanes[0]
            };
            x.windows(2).all(|pair| first(pair[0]) >= first(pair[1]))
        })
    }

    #[test]
    fn the_networks_sort() {
        assert!(sorts::<4>(sort4));
        assert!(sorts::<8>(sort8));
        assert!(sorts::<16>(sort16));
    }
}
