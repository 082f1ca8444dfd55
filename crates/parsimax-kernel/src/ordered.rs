//! Sparsemax and 1.5-entmax of rows of middling width: the order of the largest entries tells where to begin, and the
//! pass that writes tells whether that was the end.
//!
//! Plainly, for `LANES` rows, one a lane: the two largest of every lane, the threshold that these alone have
//! (`ranked.rs`), write `[x − τ]₊^e` and sum what is written. On scattered scores that is all for most rows of sparsemax.
//! A row of 1.5-entmax has a larger support, so that some of it is missing from the largest entries: a look at the row
//! takes sums, number of entries included, and what follows from these is off by the third power of what it was.
//! A row whose sum does not stand moves on by a Newton step and is written again.

use super::direct::dense;
use super::group::{Block, Excess, Group, Rows};
use super::profile::Direct;
use super::ranked;
use super::refine::passes;
use super::vector::Vector;

/// How often rows are written here before they are left to `refine.rs`.
const ROUNDS: usize = 3;

/// Thresholds of `LANES` rows from `first` on and with `WRITE` their probabilities; what is not settled stays active, from a
/// lower bound on. `gaps` gets the distances of the largest entries from the maximum.
///
/// # Safety
/// The rows are readable and writable, `gaps` is writable for `2·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn settle<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    first: usize,
    group: &mut Group,
    gaps: *mut f32,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        survey::<V>(rows.from(first), group, gaps);
        group.dense = group.active & dense::<V>(gaps);
        if group.dense == group.active {
            return;
        }
        let ranked = ranked::solve::<V, P>(prof, gaps, &rows);
        group.put_below(ranked.hi, ranked.lo, V::splat(rows.scale));
        ranked.count.store(group.before.as_mut_ptr());
        // With many of them in the support, there are others.
        let mut left = group.active & !group.dense & V::bits(V::splat(P::ORDERED).gt(ranked.count));
        if P::CURVED {
            let many = left & V::bits(ranked.count.gt(V::splat(FEW)));
            if many != 0 {
                leap::<V, P>(prof, rows, group, many);
            }
        }
        for _ in 0..ROUNDS {
            if left == 0 {
                break;
            }
            let (f, g) = passes::<V, P, WRITE, true>(prof, rows, group, left);
            let stands = V::bits(prof.stands((f, g), V::load(group.before.as_ptr()))) & left;
            group.active &= !stands;
            left &= !stands;
            if left != 0 {
                let step = prof.step(f, g).keep(V::lanes_of(left));
                group.put(V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()).add(step));
                g.store(group.before.as_mut_ptr());
            }
        }
        // To those that are left it says nothing: their lanes hold what neighbours made of them.
        V::splat(f32::INFINITY).store(group.before.as_mut_ptr());
    }
}

/// With no more ranks in the support than this, they are likely to be all there is of it.
const FEW: f32 = 6.5;

/// The two largest entries of every lane, as distances from the maximum of their rows, which are told apart by what they
/// are fit for.
///
/// # Safety
/// As [`settle`].
#[inline(always)]
unsafe fn survey<V: Vector>(rows: Rows, group: &mut Group, gaps: *mut f32) {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane.
    unsafe {
        let mut largest = [Block::uninit(); 2];
        let largest = largest.as_mut_ptr().cast::<f32>();
        let (size, here) = (V::LANES * V::LANES, rows.rows.min(V::LANES));
        let mut bad = 0u32;
        for r in 0..here {
            let ([first, second], nan) = ranked::two_largest::<V>(rows.z.add(r * rows.d), rows.d);
            first.store(largest.add(r * V::LANES));
            second.store(largest.add(size + r * V::LANES));
            bad |= u32::from(nan) << r;
        }
        for r in here..V::LANES {
            V::splat(f32::NEG_INFINITY).store(largest.add(r * V::LANES));
            V::splat(f32::NEG_INFINITY).store(largest.add(size + r * V::LANES));
        }
        V::transpose(largest, V::LANES, gaps);
        V::transpose(largest.add(size), V::LANES, gaps.add(size));
        let max = group.meet((bad, 0), here, (gaps, V::LANES), V::splat(rows.scale));
        for gap in (0..2 * V::LANES).map(|j| gaps.add(j * V::LANES)) {
            max.sub(V::load(gap)).mul(V::splat(rows.scale)).store(gap);
        }
    }
}

/// A step of the third order for the wanted rows.
///
/// # Safety
/// The rows are readable; the CPU has the instruction set.
#[inline(always)]
unsafe fn leap<V: Vector, P: Direct>(prof: P, rows: Rows, group: &mut Group, wanted: u32) {
    // SAFETY: as the caller vouches.
    unsafe {
        let [f, g, n] = count::<V, P>(prof, rows, group, wanted);
        let step = prof.curved_step(f, g, n);
        // The sums were taken at `hi` alone.
        let lo = V::load(group.lo.as_ptr());
        group.put(V::load(group.hi.as_ptr()), step.select(V::lanes_of(wanted), lo));
    }
}

/// The sums of a step of the third order over the wanted rows at `hi`, one row a lane; other lanes hold anything.
///
/// # Safety
/// The rows are readable; the CPU has the instruction set.
#[inline(always)]
pub(super) unsafe fn count<V: Vector, P: Direct>(prof: P, rows: Rows, group: &Group, wanted: u32) -> [V; 3] {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane.
    unsafe {
        let mut blocks = [Block::uninit(); 3];
        let blocks = blocks.as_mut_ptr().cast::<f32>();
        let (size, zero) = (V::LANES * V::LANES, V::splat(0.0));
        if wanted.count_ones() < V::LANES as u32 {
            for k in 0..3 * V::LANES {
                zero.store(blocks.add(k * V::LANES));
            }
        }
        let mut left = wanted;
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let [f, g, n] = sums::<V, P>(prof, rows.from(usize::from(group.at[r])), group, r);
            f.store(blocks.add(r * V::LANES));
            g.store(blocks.add(size + r * V::LANES));
            n.store(blocks.add(2 * size + r * V::LANES));
        }
        [V::row_sums(blocks), V::row_sums(blocks.add(size)), V::row_sums(blocks.add(2 * size))]
    }
}

/// The sums of a step of the third order over row `k` of a group, lane by lane.
///
/// # Safety
/// The row is readable; the CPU has the instruction set.
#[inline(always)]
unsafe fn sums<V: Vector, P: Direct>(prof: P, rows: Rows, group: &Group, k: usize) -> [V; 3] {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let Rows { z, d, .. } = rows;
        let (zero, bit, excess) = (V::splat(0.0), V::splat(rows.bit), Excess::<V>::new(&rows, group, k));
        let (mut f, mut g, mut n) = ([zero; 4], [zero; 2], [zero; 2]);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            for j in 0..4 {
                let u = excess.rough(V::load(z.add(i + j * V::LANES)));
                (f[j], g[j % 2]) = prof.take(u, f[j], g[j % 2], bit);
                n[j % 2] = n[j % 2].tally_above(u, bit);
            }
            i += 4 * V::LANES;
        }
        while i < d {
            let len = (d - i).min(V::LANES);
            let u = excess.rough(V::load_first(z.add(i), len, f32::NEG_INFINITY));
            (f[0], g[0]) = prof.take(u, f[0], g[0], bit);
            n[0] = n[0].tally_above(u, bit);
            i += len;
        }
        let f = f[0].add(f[1]).add(f[2].add(f[3]));
        [f, prof.taken(g[0]).add(prof.taken(g[1])), n[0].tallied().add(n[1].tallied())]
    }
}
