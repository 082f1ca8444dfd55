//! Sq-pnorm-max at its default, p = 3/2, on narrow rows: one row per lane.
//!
//! `y = e²/Σe²` with `e = [x − τ]₊`, by the Newton steps of `norm.rs`. There a row of 64 spends its time
//! between the passes: lists of a few candidates, three sums over lanes, divisions that wait for them. Here
//! `LANES` rows are transposed once, so that every vector holds a column of them; thresholds, sums and
//! steps are lanes from the start, and only the output is written row by row.
//!
//! Sums are f32: of at most [`NARROW`] terms, so that τ is right to a few parts in 10⁷ of the largest `e`,
//! as are the terms themselves.

use super::Status;
use super::structured::Rows;
use super::vector::{MAX_LANES, Vector, outlined};

/// Widest row that is transposed.
pub(crate) const NARROW: usize = 128;

/// More steps than halving a bracket takes from 1 to the spacing of f32.
const STEPS: usize = 64;

/// Rows that are solved together, as columns; written before they are read.
type Columns = std::mem::MaybeUninit<[f32; NARROW * MAX_LANES]>;

/// What is known of `LANES` rows.
struct Solved {
    /// One bit a row: a NaN or `+inf`; nothing but `−inf`.
    bad: u32,
    empty: u32,
    max: [f32; MAX_LANES],
    tau: [f32; MAX_LANES],
    /// `1/Σe²`
    factor: [f32; MAX_LANES],
}

/// Probabilities of rows of at most [`NARROW`] scores.
///
/// # Safety
/// The slices hold as many rows as `status`; the CPU has the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector>(job: Rows<'_>, gamma: f64) {
    let Rows { z, d, out, status, .. } = job;
    assert!(d <= NARROW, "a row too wide to be transposed");
    let group = V::LANES * d;
    let groups = z.chunks(group).zip(out.chunks_mut(group)).zip(status.chunks_mut(V::LANES));
    for ((z, out), status) in groups {
        // SAFETY: the chunks hold as many rows as `status`; the caller vouches for the rest.
        let solved = unsafe { solve::<V>(z.as_ptr(), out.as_mut_ptr(), d, status.len(), (1.0 / gamma) as f32) };
        for (r, (row, status)) in out.chunks_mut(d).zip(status).enumerate() {
            *status = Status::from_flags(solved.bad >> r & 1 == 1, solved.empty >> r & 1 == 1);
            if *status != Status::Ok {
                row.fill(status.fill());
            }
        }
    }
}

outlined! {
    /// Solves and writes `here ≤ LANES` rows.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for that many rows of `d ≤ NARROW`; the CPU has the instruction set
    /// of `V`.
    unsafe fn solve<V>(z: *const f32, out: *mut f32, d: usize, here: usize, scale: f32) -> Solved => solve_any
}

/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn solve_any<V: Vector>(z: *const f32, out: *mut f32, d: usize, here: usize, scale: f32) -> Solved {
    // SAFETY: as the caller vouches; the buffer holds `NARROW` columns.
    unsafe {
        let mut columns = Columns::uninit();
        let columns = columns.as_mut_ptr().cast::<f32>();
        let width = d.next_multiple_of(V::LANES);
        turn::<V>(z, d, here, columns);

        // 1. Maxima.
        let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
        let mut most = [none; 4];
        let mut nan = none.unordered(none);
        let column = |j: usize| V::load(columns.add(j * V::LANES));
        for j in (0..width).step_by(4) {
            let c = [column(j), column(j + 1), column(j + 2), column(j + 3)];
            nan = V::or(nan, V::or(c[0].unordered(c[1]), c[2].unordered(c[3])));
            for k in 0..4 {
                most[k] = c[k].max(most[k]);
            }
        }
        let max = most[0].max(most[1]).max(most[2].max(most[3]));
        let bad = V::bits(nan) | V::bits(max.ge(V::splat(f32::INFINITY)));
        let empty = V::bits(none.ge(max));
        // A maximum of −inf would turn differences into NaN; with 0 they stay −inf.
        let max = max.select(max.gt(none), zero);

        // 2. `x`, and how many are candidates.
        let (scales, one, floor) = (V::splat(scale), V::splat(1.0), V::splat(-1.0));
        let mut count = [zero; 2];
        for j in 0..width {
            let x = column(j).sub(max).mul(scales);
            x.store(columns.add(j * V::LANES));
            count[j % 2] = count[j % 2].add(one.keep(x.gt(floor)));
        }

        // 3. Thresholds, sums, probabilities.
        let tau = root::<V>(columns, width, count[0].add(count[1]).max(one), !(bad | empty));
        let (total, ..) = moments::<V>(columns, width, tau);
        let mut solved = Solved { bad, empty, max: [0.0; MAX_LANES], tau: [0.0; MAX_LANES], factor: [0.0; MAX_LANES] };
        max.store(solved.max.as_mut_ptr());
        tau.store(solved.tau.as_mut_ptr());
        one.div(total).store(solved.factor.as_mut_ptr());
        for r in 0..here {
            let (max, tau, factor) = (V::splat(solved.max[r]), V::splat(solved.tau[r]), V::splat(solved.factor[r]));
            let (z, out) = (z.add(r * d), out.add(r * d));
            let probability = |z: V| {
                let e = z.sub(max).mul(scales).sub(tau).max(zero);
                e.mul(e).mul(factor)
            };
            let mut i = 0;
            while i + V::LANES <= d {
                probability(V::load(z.add(i))).store(out.add(i));
                i += V::LANES;
            }
            if i < d {
                probability(V::load_first(z.add(i), d - i, f32::NEG_INFINITY)).store_first(out.add(i), d - i);
            }
        }
        solved
    }
}

/// Transposes `here ≤ LANES` rows; what is missing of rows or columns to whole blocks is `−inf`.
///
/// # Safety
/// `z` is readable for `here` rows of `d`, `columns` writable for `d` vectors, rounded up to `LANES`; the CPU has
/// the instruction set.
#[inline(always)]
unsafe fn turn<V: Vector>(z: *const f32, d: usize, here: usize, columns: *mut f32) {
    // SAFETY: as the caller vouches; a block that is not whole is put together first.
    unsafe {
        let mut c = 0;
        while here == V::LANES && c + V::LANES <= d {
            V::transpose(z.add(c), d, columns.add(c * V::LANES));
            c += V::LANES;
        }
        while c < d {
            let n = (d - c).min(V::LANES);
            let mut block = [f32::NEG_INFINITY; MAX_LANES * MAX_LANES];
            for r in 0..here {
                let row = V::load_first(z.add(r * d + c), n, f32::NEG_INFINITY);
                row.store(block.as_mut_ptr().add(r * V::LANES));
            }
            V::transpose(block.as_ptr(), V::LANES, columns.add(c * V::LANES));
            c += V::LANES;
        }
    }
}

/// τ of the rows in `active`, from their numbers of candidates.
///
/// Newton's step on `f = A·B^{−1/3}` is `A·(1 − ρ^{1/3})·B/2` over `C·B − A²/2`, with `ρ = B/A³`. Near the root,
/// `ρ^{1/3} ≈ (1 + 2ρ)/(2 + ρ)` to third order; far from it the sign is right and the step too short, never
/// too long.
///
/// # Safety
/// As [`moments`].
#[inline(always)]
unsafe fn root<V: Vector>(x: *const f32, width: usize, n: V, active: u32) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one, half) = (V::splat(0.0), V::splat(1.0), V::splat(0.5));
        // The threshold of a uniform row is the largest there is, and not above −1/n.
        let (mut low, mut high) = (V::splat(-1.0), zero.sub(one.div(n)));
        // About where scores of scale 1 have it.
        let mut tau = zero.sub(one.div(n.sqrt().sqrt()));
        let mut going = V::lanes_of(active);
        for _ in 0..STEPS {
            let (a, b, c) = moments::<V>(x, width, tau);
            let (square, cube) = (a.mul(a), a.mul(a).mul(a));
            let above = a.mul(cube.sub(b)).mul(b).mul(half);
            let below = cube.add(cube).add(b).mul(c.mul(b).sub(square.mul(half)));
            let step = above.div(below);
            let right = step.gt(zero);
            low = tau.select(right, low);
            high = high.select(right, tau);
            let next = tau.add(step);
            let inside = V::and(next.ge(low), high.ge(next));
            // What the step leaves, as in `norm.rs`, and what it does to probabilities: either may be noise.
            let size = step.max(zero.sub(step));
            let (square, noise) = (size.mul(size), V::splat(3e-7));
            let left = n.mul(square).mul(b).max(c.mul(square).mul(V::splat(3.0)).mul(a));
            let far = V::and(left.gt(noise.mul(a).mul(b)), size.mul(c).gt(noise.mul(half).mul(a)));
            let free = next.select(inside, low.add(high).mul(half));
            tau = free.select(far, next.max(low).min(high)).select(going, tau);
            let far = V::and(far, high.sub(low).gt(tau.mul(V::splat(-1e-7))));
            going = V::and(going, far);
            if V::bits(going) == 0 {
                break;
            }
        }
        tau
    }
}

/// `Σe²`, `Σe³` and `Σe` of every row.
///
/// # Safety
/// `x` is readable for `width` vectors, a multiple of 4; the CPU has the instruction set.
#[inline(always)]
unsafe fn moments<V: Vector>(x: *const f32, width: usize, tau: V) -> (V, V, V) {
    // SAFETY: as the caller vouches.
    unsafe {
        let zero = V::splat(0.0);
        let mut sums = [[zero; 3]; 2];
        for j in (0..width).step_by(4) {
            for k in 0..4 {
                let e = V::load(x.add((j + k) * V::LANES)).sub(tau).max(zero);
                let [a, b, c] = &mut sums[k % 2];
                let square = e.mul(e);
                *a = a.add(square);
                *b = square.fma(e, *b);
                *c = c.add(e);
            }
        }
        let [first, second] = sums;
        (first[0].add(second[0]), first[1].add(second[1]), first[2].add(second[2]))
    }
}
