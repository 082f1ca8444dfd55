//! Rows with few candidates: picked out, solved one row a lane, and put into rows of zeros.
//!
//! Plainly, for each row: list the entries above a lower bound on τ, find τ on the list, write the probabilities of the
//! list. Which lanes of which tiles hold any is known from their maxima (`tiles.rs`); bits of 64 comparisons with these
//! stand in one word. Since the list of a row goes into its lane at once, nothing is turned into lanes. A row with more
//! than [`MOST`] candidates is given up.

use super::profile::Direct;
use super::solve::solve_lanes;
use super::tiles::{self, TALL};
use super::vector::{MAX_LANES, Vector};

/// Most candidates of a row; a multiple of 4.
const MOST: usize = 64;

/// Entries whose comparisons fill a word.
const WORD: usize = 64;

/// `LANES` rows: where they are, and what is known of them, one a lane.
pub(super) struct Rows<V> {
    pub(super) z: *const f32,
    pub(super) out: *mut f32,
    pub(super) d: usize,
    /// The maxima of their tiles.
    pub(super) maxima: *const f32,
    pub(super) max: V,
    /// `x = scale·(z − max)`.
    pub(super) scale: V,
    /// Lower bounds on τ, as far as rounding lets them be, measured in `x`.
    pub(super) bound: V,
    /// One bit a row: the rows to be solved.
    pub(super) wanted: u32,
}

/// Candidates in the lanes of their rows, and where they stand.
#[repr(C, align(64))]
struct Lists {
    x: [f32; (MOST + 4) * MAX_LANES],
    place: [u32; (MOST + 4) * MAX_LANES],
    count: [usize; MAX_LANES],
}

/// τ of the rows with few candidates, as two floats to be added, and one bit a row for these; with `WRITE` their
/// probabilities, into zeros. Other lanes hold anything.
///
/// # Safety
/// The wanted rows are readable and writable; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn solve<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: &Rows<V>) -> (u32, V, V) {
    // SAFETY: as the caller vouches; the lists have a lane for every row.
    unsafe {
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        if rows.wanted == 0 {
            return (0, zero, zero);
        }
        let mut lists = std::mem::MaybeUninit::<Lists>::uninit();
        let lists = lists.as_mut_ptr();
        let x = (&raw mut (*lists).x).cast::<f32>();
        for k in 0..MOST + 4 {
            none.store(x.add(k * V::LANES));
        }
        (*lists).count = [0; MAX_LANES];

        // 1. Candidates: above the bound, less all roundings on the way.
        let bound = rows.bound.sub(V::splat(1e-6));
        let depth = bound.sub(V::splat(1e-6)).div(rows.scale);
        let room = rows.max.max(zero.sub(rows.max)).sub(depth).mul(V::splat(2.4e-7));
        let mut cuts = [0.0f32; MAX_LANES];
        rows.max.add(depth).sub(room).store(cuts.as_mut_ptr());
        let (mut done, mut slots) = (0u32, 0);
        let mut left = rows.wanted;
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let maxima = rows.maxima.add(r * tiles::count::<V>(rows.d) * V::LANES);
            if let Some(n) = pick::<V>(rows.z.add(r * rows.d), rows.d, maxima, cuts[r], lists, r) {
                done |= 1 << r;
                slots = slots.max(n);
                (*lists).count[r] = n;
            }
        }
        if done == 0 {
            return (0, zero, zero);
        }

        // 2. Thresholds, one row a lane. A lane that was given up holds what came of it.
        let slots = slots.next_multiple_of(4);
        for k in 0..slots {
            let at = x.add(k * V::LANES);
            V::load(at).sub(rows.max).mul(rows.scale).store(at);
        }
        let mut counts = [0.0f32; MAX_LANES];
        for (count, n) in counts.iter_mut().zip(&(*lists).count) {
            *count = *n as f32;
        }
        let (hi, lo) = solve_lanes::<V, P>(prof, x, slots, bound, V::load(counts.as_ptr()));

        // 3. Probabilities.
        if WRITE {
            for k in 0..slots {
                let at = x.add(k * V::LANES);
                prof.power(V::load(at).sub(hi).sub(lo).max(zero)).store(at);
            }
            let mut left = done;
            while left != 0 {
                let r = left.trailing_zeros() as usize;
                left &= left - 1;
                let out = rows.out.add(r * rows.d);
                for k in 0..(*lists).count[r] {
                    let at = k * V::LANES + r;
                    *out.add((*lists).place[at] as usize) = *x.add(at);
                }
            }
        }
        (done, hi, lo)
    }
}

/// Puts the entries of a row above `cut` into lane `r` of the lists; how many, or `None` if they are too many.
///
/// Most lanes of tiles hold none, and of those that do most hold one. So every entry of theirs is written to the next
/// place of the list, which moves on only if it was one: the processor has nothing to guess.
///
/// # Safety
/// `z` is readable for `d` floats, and so are the maxima of its tiles; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn pick<V: Vector>(
    z: *const f32,
    d: usize,
    maxima: *const f32,
    cut: f32,
    lists: *mut Lists,
    r: usize,
) -> Option<usize> {
    // SAFETY: every access stays within `d` floats, and within the lists while `n ≤ MOST`.
    unsafe {
        let (x, place) = ((&raw mut (*lists).x).cast::<f32>(), (&raw mut (*lists).place).cast::<u32>());
        let (tiles, limit) = (tiles::count::<V>(d), V::splat(cut));
        let (mut n, mut t) = (0usize, 0);
        while t < tiles {
            let mut bits = 0u64;
            for k in 0..(WORD / V::LANES).min(tiles - t) {
                bits |= u64::from(V::bits(V::load(maxima.add((t + k) * V::LANES)).gt(limit))) << (k * V::LANES);
            }
            while bits != 0 {
                let at = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if n > MOST - TALL {
                    return None;
                }
                let from = (t + at / V::LANES) * TALL * V::LANES + at % V::LANES;
                macro_rules! put {
                    ($j:expr) => {
                        let v = *z.add($j);
                        *x.add(n * V::LANES + r) = v;
                        *place.add(n * V::LANES + r) = $j as u32;
                        n += usize::from(v > cut);
                    };
                }
                if from + (TALL - 1) * V::LANES < d {
                    for k in 0..TALL {
                        put!(from + k * V::LANES);
                    }
                } else {
                    for j in (from..d).step_by(V::LANES) {
                        put!(j);
                    }
                }
            }
            t += WORD / V::LANES;
        }
        *x.add(n * V::LANES + r) = f32::NEG_INFINITY;
        Some(n)
    }
}
