//! The threshold of α-entmax for α > 2 in rows of few candidates: one row per lane, by order.
//!
//! For α > 2 supports are small, and what makes the threshold hard to find is the entry just above it, near which
//! the sum has no slope to speak of or too much of it. In descending order that entry is found without a guess: the
//! `k`-th is supported if those above it, measured from it, have less than all the mass. And in its own probability
//! `w` the sum is convex, so that Newton's steps from above, `w ≤ 1 − S` where the others have `S` at `w = 0`, do
//! not pass the root.

use super::anchored::{Anchored, Place, TINY};
use super::vector::{MAX_LANES, Vector};

/// Most candidates that a row may have here.
pub(super) const MOST: usize = 32;

/// Slots that are looked at no sooner for a guess.
const FEW: usize = 8;

/// Steps at most; the pass that writes the row tells if they were not enough.
const STEPS: usize = 12;

/// A residual that is rounding noise.
const NOISE: f32 = 1e-7;

/// Candidates in descending order, one row per lane, of the rows that are asked for.
struct Order<'a> {
    sorted: *mut f32,
    kept: &'a [usize; MAX_LANES],
    asked: u32,
}

/// Thresholds of the rows that are `asked` for, of which each has at least one candidate and at most [`MOST`]; those
/// of other lanes are anything.
///
/// # Safety
/// `c` is readable for as many vectors as the longest of these rows has candidates; behind those of a shorter one it
/// holds `−inf`. The CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn place<V: Vector>(
    prof: &Anchored,
    c: *const f32,
    kept: &[usize; MAX_LANES],
    asked: u32,
) -> Place<V> {
    let mut sorted = std::mem::MaybeUninit::<[f32; MOST * MAX_LANES]>::uninit();
    let sorted = sorted.as_mut_ptr().cast::<f32>();
    let order = Order { sorted, kept, asked };
    let longest = (0..V::LANES).filter(|r| asked >> r & 1 == 1).map(|r| kept[r]).max().unwrap_or(0);
    // SAFETY: `longest` vectors are readable, and at most `MOST` are written.
    unsafe {
        let slots = longest.next_power_of_two();
        for k in 0..slots {
            let z = if k < longest { V::load(c.add(k * V::LANES)) } else { V::splat(f32::NEG_INFINITY) };
            z.store(sorted.add(k * V::LANES));
        }
        sort::<V>(sorted, slots);
        // Rough powers tell to one or two entries which is the last; with good ones it is the same, guess or no guess.
        let guess = (slots > FEW).then(|| order.search::<V, true>(prof, 1.0, None).0);
        let (last, above) = order.search::<V, false>(prof, 1.0, guess.as_ref());
        order.newton::<V>(prof, &last, above)
    }
}

/// Sorts the lanes of `n` vectors, a power of two, each for itself, in descending order (Batcher's network).
///
/// # Safety
/// `x` is readable and writable for `n` vectors; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn sort<V: Vector>(x: *mut f32, n: usize) {
    let mut p = 1;
    while p < n {
        let mut k = p;
        while k > 0 {
            for first in (k % p..n - k).step_by(2 * k) {
                for i in first..(first + k).min(n - k) {
                    // Both in one run of `2p`, a power of two.
                    if (i ^ (i + k)) < 2 * p {
                        // SAFETY: `i + k < n`.
                        unsafe {
                            let (a, b) = (x.add(i * V::LANES), x.add((i + k) * V::LANES));
                            let (v, w) = (V::load(a), V::load(b));
                            v.max(w).store(a);
                            w.select(v.gt(w), v).store(b);
                        }
                    }
                }
            }
            k /= 2;
        }
        p *= 2;
    }
}

impl Order<'_> {
    /// The entry of every lane at its place.
    ///
    /// # Safety
    /// The places are below the number of slots; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, place: &[usize; MAX_LANES]) -> V {
        let mut entries = [0.0f32; MAX_LANES];
        // SAFETY: as the caller vouches.
        unsafe {
            for r in 0..V::LANES {
                entries[r] = *self.sorted.add(place[r] * V::LANES + r);
            }
            V::load(entries.as_ptr())
        }
    }

    /// What the entries above that of each row's place have, measured from it; more than all is as good as all.
    ///
    /// # Safety
    /// The places are below the number of slots and at most `most`; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn above<V: Vector, const ROUGH: bool>(
        &self,
        prof: &Anchored,
        place: &[usize; MAX_LANES],
        most: usize,
    ) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, one, tiny) = (V::splat(0.0), V::splat(1.0), V::splat(TINY));
            let (scale, e, from) = (V::splat(prof.scale), V::splat(prof.e), self.at::<V>(place));
            let mut sum = zero;
            for k in 0..most {
                let u = V::load(self.sorted.add(k * V::LANES)).sub(from).mul(scale);
                let is_above = u.gt(zero);
                // One entry that has more than all is enough.
                let u = one.select(u.gt(one), u).max(tiny);
                sum = sum.add(if ROUGH { u.rough_power(e) } else { prof.power(u) }.keep(is_above));
            }
            sum
        }
    }

    /// The place of the smallest entry in every row above which there is less than `mass`, and how much there is.
    /// Looks at `guess` first, if there is one, and then further and further away.
    ///
    /// # Safety
    /// As [`place`].
    #[inline(always)]
    unsafe fn search<V: Vector, const ROUGH: bool>(
        &self,
        prof: &Anchored,
        mass: f32,
        guess: Option<&[usize; MAX_LANES]>,
    ) -> ([usize; MAX_LANES], V) {
        // SAFETY: places stay below the number of candidates of their row.
        unsafe {
            // Less for certain; not for certain; to be looked at.
            let (mut yes, mut no, mut look) = ([0usize; MAX_LANES], [1usize; MAX_LANES], [0usize; MAX_LANES]);
            let mut have = V::splat(0.0);
            for r in (0..V::LANES).filter(|r| self.asked >> r & 1 == 1) {
                no[r] = self.kept[r];
            }
            let mut round = 0;
            loop {
                let mut most = 0;
                for r in 0..V::LANES {
                    // Twice as far as long as none has failed, then between; next to a guess before.
                    let next = match guess {
                        Some(guess) if round == 0 => guess[r],
                        Some(guess) if round == 1 => {
                            guess[r] + usize::from(yes[r] == guess[r]) - usize::from(yes[r] < guess[r])
                        }
                        _ if no[r] == self.kept[r] => 2 * yes[r] + 1,
                        _ => (yes[r] + no[r]) / 2,
                    };
                    look[r] = next.clamp(yes[r], no[r] - 1);
                    most = if look[r] > yes[r] { most.max(look[r]) } else { most };
                }
                let is_open = (0..V::LANES).any(|r| yes[r] + 1 < no[r]);
                round += 1;
                if !is_open {
                    return (yes, have);
                }
                if most == 0 {
                    continue;
                }
                let sum = self.above::<V, ROUGH>(prof, &look, most);
                let (less, mut moved) = (V::bits(V::splat(mass).gt(sum)), 0u32);
                for r in 0..V::LANES {
                    if look[r] == yes[r] {
                        continue;
                    }
                    if less >> r & 1 == 1 {
                        yes[r] = look[r];
                        moved |= 1 << r;
                    } else {
                        no[r] = look[r];
                    }
                }
                have = sum.select(V::lanes_of(moved), have);
            }
        }
    }

    /// Thresholds, given the smallest supported entries.
    ///
    /// # Safety
    /// As [`place`].
    #[inline(always)]
    unsafe fn newton<V: Vector>(&self, prof: &Anchored, last: &[usize; MAX_LANES], above: V) -> Place<V> {
        // SAFETY: places stay below the number of candidates of their row.
        unsafe {
            let (zero, one, scale, tiny) = (V::splat(0.0), V::splat(1.0), V::splat(prof.scale), V::splat(TINY));
            let from = self.at::<V>(last);
            let slots = 1 + (0..V::LANES).filter(|r| self.asked >> r & 1 == 1).map(|r| last[r]).max().unwrap_or(0);
            let mut ties = zero;
            for k in 0..slots {
                let z = V::load(self.sorted.add(k * V::LANES));
                ties = ties.add(one.keep(V::and(z.ge(from), from.ge(z))));
            }
            let mut w = one.sub(above).div(ties.max(one)).max(tiny);
            let mut active = V::lanes_of(self.asked);
            for _ in 0..STEPS {
                let level = prof.steepen(w).max(tiny);
                let (mut f, mut g) = (zero, zero);
                for k in 0..slots {
                    let z = V::load(self.sorted.add(k * V::LANES));
                    let u = z.sub(from).fma(scale, level).max(tiny);
                    let p = prof.power(u).keep(z.ge(from));
                    (f, g) = (f.add(p), p.fma(u.rough_inverse(), g));
                }
                // The slope in w is Σ (p/u) · w^{δ−1}.
                let excess = f.sub(one);
                let share = excess.div(level.mul(g));
                let to = w.sub(w.mul(share)).max(tiny);
                w = to.select(active, w);
                // What a step leaves is about δ/2 times the residual times the share of `w` that it took.
                let left = excess.mul(share).mul(V::splat(prof.steep));
                let open = V::and(excess.max(zero.sub(excess)).gt(V::splat(NOISE)), left.gt(V::splat(NOISE)));
                active = V::and(active, open);
                if V::bits(active) == 0 {
                    break;
                }
            }
            Place { from, level: prof.steepen(w).max(tiny) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::portable::Portable;
    use super::*;

    #[test]
    fn every_lane_is_sorted_for_itself() {
        const LANES: usize = Portable::LANES;
        let mut rng = fastrand::Rng::with_seed(71);
        for n in [1, 2, 4, 8, 16, MOST] {
            let x: Vec<f32> = (0..n * LANES).map(|_| f32::from(rng.u8(0..20))).collect();
            let mut sorted = x.clone();
            // SAFETY: the portable path asks for no instruction set, and there are `n` vectors.
            unsafe { sort::<Portable>(sorted.as_mut_ptr(), n) };
            let lane = |x: &[f32], r: usize| x.iter().copied().skip(r).step_by(LANES).collect::<Vec<_>>();
            for r in 0..LANES {
                let mut want = lane(&x, r);
                want.sort_by(|a, b| b.total_cmp(a));
                assert_eq!(lane(&sorted, r), want, "n = {n}");
            }
        }
    }

    /// A row that misses its threshold is solved again elsewhere, so that only this shows it.
    #[test]
    fn thresholds_need_no_second_look() {
        const LANES: usize = Portable::LANES;
        let mut rng = fastrand::Rng::with_seed(72);
        for alpha in [2.001, 2.2, 3.0, 4.0, 8.0] {
            let (prof, scale) = (Anchored::new(alpha, 1.0), f64::from(Anchored::new(alpha, 1.0).scale));
            for (n, width) in [1, 2, 5, 17, MOST].into_iter().flat_map(|n| [1e-3, 0.03, 0.3, 3.0].map(|w| (n, w))) {
                let z: Vec<f32> = (0..n * LANES).map(|_| width * rng.f32()).collect();
                // SAFETY: the portable path asks for no instruction set, and there are `n` vectors.
                let place = unsafe { place::<Portable>(&prof, z.as_ptr(), &[n; MAX_LANES], (1 << LANES) - 1) };
                let (mut from, mut level) = ([0.0f32; LANES], [0.0f32; LANES]);
                // SAFETY: the arrays hold a vector.
                unsafe {
                    place.from.store(from.as_mut_ptr());
                    place.level.store(level.as_mut_ptr());
                }
                for r in 0..LANES {
                    let u = |z: f32| (f64::from(z) - f64::from(from[r])) * scale + f64::from(level[r]);
                    let p = |z: f32| u(z).max(0.0).powf(1.0 / (alpha - 1.0));
                    let sum: f64 = z.iter().skip(r).step_by(LANES).map(|z| p(*z)).sum();
                    assert!((sum - 1.0).abs() < 4e-7, "α = {alpha}, n = {n}, width = {width}: {sum}");
                }
            }
        }
    }
}
