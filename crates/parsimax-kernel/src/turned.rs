//! Sparsemax and 1.5-entmax on narrow rows of which order tells too little: all entries turned into lanes, one row a lane.
//!
//! Plainly, for each row: maximum, a guess at τ from the largest entries, steps on all entries until the support stands,
//! write `[x − τ]₊^e`. A row of 64 is four vectors: what is to be found out within them (a maximum, a sum, a count) costs
//! more than to look at them. Once `LANES` rows have been transposed, nothing crosses lanes any more, every loop is as
//! long as a row is wide, and what becomes of a lane does not depend on its neighbours.
//!
//! Few looks at all entries are needed, because each of them sees how far its own step leads. While the support stands,
//! the sum is a polynomial of τ, of degree one (sparsemax) or two (1.5-entmax), whose coefficients a look takes: its root
//! is τ. Whether the support stands is told by the two entries next to the threshold, one on either side, which cost one
//! comparison each. So a row settles in the look that first sees its support, or in the next one.
//!
//! After the first look entries are kept as their distances from the first guess. Those that matter are small, so that
//! hardly anything is rounded any more, however large the scores.

use super::group::{Excess, Group, Rows};
use super::profile::{Direct, STEPS};
use super::quarters::crowded;
use super::ranked::tallied;
use super::sweep::LARGE;
use super::vector::{MAX_LANES, Vector};

/// Widest row that is served: in wider ones order tells enough to leave most entries alone (`direct.rs`).
pub(super) const NARROW: usize = 64;

/// Groups of `LANES` rows that are solved in turn: what one waits for, the other fills with work.
const TWO: usize = 2;

/// Columns are served by fours, and in four parts.
const STEP: usize = 16;

/// Most mass that entries may have which a step takes into the support or out of it, unseen by the step.
const STRAY: f32 = 4e-7;

/// A sum of terms whose rounding shows: the step from it is exact to as much as the sum is more than 1.
const FAR: f32 = 1.5;

/// Looks after which no more is hoped of parabolas, and steps are taken that cannot miss.
const LEAPS: usize = 8;

/// What comes before the passes, for one group: all columns, the largest of every two and of every four.
#[repr(align(64))]
struct Columns {
    all: [f32; NARROW * MAX_LANES],
    pairs: [f32; NARROW / 2 * MAX_LANES],
    fours: [f32; NARROW / 4 * MAX_LANES],
}

impl Columns {
    /// Where its parts begin.
    ///
    /// # Safety
    /// `columns` points to one, which need not have been written.
    #[inline(always)]
    unsafe fn parts(columns: *mut Columns) -> [*mut f32; 3] {
        // SAFETY: as the caller vouches.
        unsafe {
            let (all, pairs, fours) = (&raw mut (*columns).all, &raw mut (*columns).pairs, &raw mut (*columns).fours);
            [all.cast(), pairs.cast(), fours.cast()]
        }
    }
}

/// What is known of the rows of a group, one a lane. τ is measured as in [`Group`].
#[derive(Clone, Copy)]
struct Lanes<V> {
    max: V,
    /// The guess at τ; where the last sums were taken, from there; the step that followed from them.
    guess: V,
    moved: V,
    step: V,
    /// One bit a row: not settled yet.
    active: u32,
}

impl<V: Vector> Lanes<V> {
    /// `x` less the guess.
    #[inline(always)]
    fn above_guess(&self, z: V, scale: V, minus: V) -> V {
        if V::FUSED { z.fma(scale, minus) } else { z.sub(self.max).mul(scale).add(minus) }
    }
}

/// Thresholds of the first `n` rows of some groups, of at most [`NARROW`] scores each, and their probabilities if `WRITE`.
/// If not `all` are wanted, rows that are not crowded (`quarters.rs`) are left active, and the others called dense. Rows
/// that are `APART` were put together; others follow each other from the first on.
///
/// # Safety
/// The rows are readable and writable, and fill the groups but for the last; vectors have sixteen lanes, and the CPU has
/// their instruction set.
#[inline(always)]
pub(super) unsafe fn solve<V: Vector, P: Direct, const WRITE: bool, const APART: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    n: usize,
    all: bool,
) {
    // SAFETY: rows and buffers are in bounds as the caller vouches.
    unsafe {
        let mut columns = std::mem::MaybeUninit::<[Columns; TWO]>::uninit();
        let columns = columns.as_mut_ptr().cast::<Columns>();
        for (i, two) in groups[..n.div_ceil(V::LANES)].chunks_mut(TWO).enumerate() {
            let left = n - i * TWO * V::LANES;
            solve_two::<V, P, APART>(prof, rows, two, left, columns, all);
            for (g, group) in two.iter().enumerate().filter(|_| WRITE) {
                write::<V, P, APART>(prof, rows, group, (left - g * V::LANES).min(V::LANES));
            }
        }
    }
}

/// Where the rows of a group begin. Those that follow each other are not asked one by one.
#[inline(always)]
fn start<const APART: bool>(rows: &Rows, group: &Group) -> impl Fn(usize) -> usize {
    let (d, at, first) = (rows.d, group.at, usize::from(group.at[0]));
    move |r| d * if APART { usize::from(at[r]) } else { first + r }
}

/// Maxima, thresholds and what is wrong with the first `n` rows of one or two groups.
///
/// # Safety
/// As [`solve`]; there are as many columns as groups.
#[inline(always)]
unsafe fn solve_two<V: Vector, P: Direct, const APART: bool>(
    prof: P,
    rows: Rows,
    groups: &mut [Group],
    n: usize,
    columns: *mut Columns,
    all: bool,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, scale, many) = (V::splat(0.0), V::splat(rows.scale), groups.len());
        let nothing = Lanes { max: zero, guess: zero, moved: zero, step: zero, active: 0 };
        let mut lanes = [nothing; TWO];
        for (g, group) in groups.iter_mut().enumerate() {
            let here = (n - g * V::LANES).min(V::LANES);
            turn::<V, APART>(&rows, group, here, columns.add(g));
            lanes[g] = survey::<V>(rows, here, group, columns.add(g));
            if !all {
                let [_, _, fours] = Columns::parts(columns.add(g));
                group.dense = lanes[g].active & crowded::<V, P>(fours, lanes[g].max, scale);
                group.active = lanes[g].active & !group.dense;
                lanes[g].active = group.dense;
            }
        }
        let slots = rows.d.next_multiple_of(STEP);
        for g in 0..many {
            let [_, _, fours] = Columns::parts(columns.add(g));
            guess::<V, P>(prof, rows, &mut lanes[g], fours, slots / 4);
        }
        for g in 0..many {
            let [_, pairs, fours] = Columns::parts(columns.add(g));
            let (some, n) = if P::CURVED { (pairs, slots / 2) } else { (fours, slots / 4) };
            guess::<V, P>(prof, rows, &mut lanes[g], some, n);
        }
        for (g, group) in groups.iter().enumerate() {
            let [all, _, _] = Columns::parts(columns.add(g));
            let next = rows.z.wrapping_add((usize::from(group.at[0]) + TWO * V::LANES) * rows.d);
            look::<V, P, true>(prof, rows, &mut lanes[g], all, scale, true, next);
        }
        let mut looks = 1;
        while lanes[0].active | lanes[1].active != 0 && looks < STEPS {
            for g in 0..many {
                if lanes[g].active != 0 {
                    let [all, _, _] = Columns::parts(columns.add(g));
                    look::<V, P, false>(prof, rows, &mut lanes[g], all, scale, looks < LEAPS, rows.z);
                }
            }
            looks += 1;
        }
        for (group, lanes) in groups.iter_mut().zip(&lanes) {
            group.put(lanes.guess, lanes.moved.add(lanes.step));
        }
    }
}

/// Turns the first `here` rows of a group into lanes. The first one fills the others; behind a row is `−inf`, which adds
/// exactly nothing.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn turn<V: Vector, const APART: bool>(rows: &Rows, group: &Group, here: usize, columns: *mut Columns) {
    // SAFETY: as the caller vouches.
    unsafe {
        let start = start::<APART>(rows, group);
        let mut starts = [rows.z.add(start(0)); MAX_LANES];
        for r in 1..here {
            starts[r] = rows.z.add(start(r));
        }
        let [all, _, _] = Columns::parts(columns);
        let mut at = 0;
        while at < rows.d {
            let n = (rows.d - at).min(V::LANES);
            V::turn(starts.as_ptr(), at, n, f32::NEG_INFINITY, all.add(at * V::LANES));
            at += V::LANES;
        }
    }
}

/// Maxima, what the first `here` rows are fit for, and the largest of every two and four columns, as far from each other as
/// can be: neighbours are often alike.
///
/// # Safety
/// As [`solve`]; the columns have been turned.
#[inline(always)]
unsafe fn survey<V: Vector>(rows: Rows, here: usize, group: &mut Group, columns: *mut Columns) -> Lanes<V> {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, none, scale) = (V::splat(0.0), V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let (mut max, mut nan) = ([none; 4], none.unordered(none));
        let quarter = rows.d.next_multiple_of(STEP) / 4;
        let [all, pairs, fours] = Columns::parts(columns);
        for i in (0..quarter).step_by(4) {
            for k in 0..4 {
                let (at, far) = ((i + k) * V::LANES, quarter * V::LANES);
                let (a, b) = (V::load(all.add(at)), V::load(all.add(at + far)));
                let (c, e) = (V::load(all.add(at + 2 * far)), V::load(all.add(at + 3 * far)));
                nan = V::or(nan, V::or(a.unordered(b), c.unordered(e)));
                let (ab, ce) = (a.max(b), c.max(e));
                ab.store(pairs.add(2 * at));
                ce.store(pairs.add(2 * at + V::LANES));
                let four = ab.max(ce);
                four.store(fours.add(at));
                max[k] = four.max(max[k]);
            }
        }
        let max = max[0].max(max[1]).max(max[2].max(max[3]));
        let here = ((1u64 << here) - 1) as u32;
        group.bad = here & (V::bits(nan) | V::bits(max.ge(V::splat(f32::INFINITY))));
        group.empty = here & V::bits(none.ge(max));
        group.alone = here & V::bits(max.max(zero.sub(max)).mul(scale).ge(V::splat(LARGE)));
        // A maximum of −inf would turn differences into NaN; with 0 they stay infinite.
        let max = max.select(max.gt(none), zero);
        max.store(group.max.as_mut_ptr());
        let least = V::splat(-1.0);
        let guess = if V::FUSED { max.fma(scale, least) } else { least };
        group.active = 0;
        Lanes { max, guess, moved: zero, step: zero, active: here & !(group.bad | group.empty | group.alone) }
    }
}

/// A Newton step on some of the entries: τ of some is not right of τ of all.
///
/// # Safety
/// `some` is readable for `n` vectors, a multiple of 4; the CPU has the instruction set.
#[inline(always)]
unsafe fn guess<V: Vector, P: Direct>(prof: P, rows: Rows, lanes: &mut Lanes<V>, some: *const f32, n: usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one, scale) = (V::splat(0.0), V::splat(rows.one), V::splat(rows.scale));
        let minus = zero.sub(lanes.guess);
        let (mut f, mut g) = ([zero; 4], [zero; 4]);
        for i in (0..n).step_by(4) {
            for k in 0..4 {
                let z = V::load(some.add((i + k) * V::LANES));
                let u = lanes.above_guess(z, scale, minus).positive();
                (f[k], g[k]) = prof.gather(u, f[k], g[k], one);
            }
        }
        let (f, g) = (f[0].add(f[1]).add(f[2].add(f[3])), g[0].add(g[1]).add(g[2].add(g[3])));
        lanes.guess = lanes.guess.add(prof.step(f, g));
    }
}

/// Looks at all entries, the `FIRST` time as scores, which become distances from the guess: sums, the step that follows
/// from them, and which rows that leaves unsettled. From `next` on other rows will be read.
///
/// # Safety
/// `all` is readable and writable for the columns of the rows; the CPU has the instruction set.
#[inline(always)]
unsafe fn look<V: Vector, P: Direct, const FIRST: bool>(
    prof: P,
    rows: Rows,
    lanes: &mut Lanes<V>,
    all: *mut f32,
    scale: V,
    leaps: bool,
    next: *const f32,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one, none) = (V::splat(0.0), V::splat(rows.one), V::splat(f32::NEG_INFINITY));
        let was = V::lanes_of(lanes.active);
        if FIRST {
            // A hair to the left, so that rounding does not put it right of the root.
            let size = lanes.guess.max(zero.sub(lanes.guess)).add(V::splat(1.0));
            lanes.guess = size.fma(V::splat(-2.0 * f32::EPSILON), lanes.guess);
        } else {
            lanes.moved = lanes.moved.add(lanes.step).select(was, lanes.moved);
        }
        let minus = zero.sub(lanes.guess);
        // From the left of the root no entry comes in: which is next below need not be known.
        let looks_below = P::CURVED || !FIRST;
        let (mut sum, mut g, mut below) = (zero, [zero; 4], [zero; 4]);
        let mut next_above = [V::splat(f32::INFINITY); 4];
        let mut next_below = [if looks_below { none } else { zero }; 4];
        let slots = rows.d.next_multiple_of(STEP);
        for first in (0..slots).step_by(STEP) {
            // Sums of few, then the sum of those: a lane has no others to share its rounding with.
            let mut f = [zero; 4];
            for i in (first..first + STEP).step_by(4) {
                for k in 0..4 {
                    let at = (i + k) * V::LANES;
                    let z = V::load(all.add(at));
                    let v = if FIRST { lanes.above_guess(z, scale, minus) } else { z.sub(lanes.moved) };
                    if FIRST {
                        v.store(all.add(at));
                        // What the next groups will read is on its way while these are worked on.
                        V::prefetch(next.wrapping_add(at));
                    }
                    next_above[k] = next_above[k].nearest_above(v);
                    if looks_below {
                        next_below[k] = next_below[k].nearest_below(v);
                    }
                    below[k] = below[k].tally_below(v);
                    let u = v.positive();
                    if P::CURVED {
                        (f[k], g[k]) = prof.gather(u, f[k], g[k], one);
                    } else {
                        f[k] = u.fma(one, f[k]);
                    }
                }
            }
            sum = sum.add(f[0].add(f[1]).add(f[2].add(f[3])));
        }
        let (f, g) = (sum, g[0].add(g[1]).add(g[2].add(g[3])));
        let n = V::splat(slots as f32).sub(tallied(below));
        let (step, exact) = root::<V, P>(prof, f, g, n, leaps);
        let next_above = next_above[0].min(next_above[1]).min(next_above[2].min(next_above[3]));
        let next_below = next_below[0].max(next_below[1]).max(next_below[2].max(next_below[3]));
        // How far the step goes beyond an entry.
        let beyond = step.sub(next_above).max(next_below.sub(step)).max(zero);
        let beyond = beyond.select(exact, step.max(zero.sub(step)));
        let stray = V::splat(rows.d as f32).mul(beyond).mul(if P::CURVED { beyond } else { V::splat(1.0) });
        lanes.step = step.select(was, lanes.step);
        lanes.active &= V::bits(V::or(stray.gt(V::splat(STRAY)), f.gt(V::splat(FAR))));
    }
}

/// The step to the root of what the sum over a support of `n` entries is, and where it is one.
///
/// The parabola of 1.5-entmax, `n t² − 2 g t + f = 1`, may have none if entries far out take part; then Newton's step on
/// the norm leads on, which from the left never passes the root.
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn root<V: Vector, P: Direct>(prof: P, f: V, g: V, n: V, leaps: bool) -> (V, V::Mask) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        if !P::CURVED {
            return (prof.step(f, n), one.gt(zero));
        }
        let rest = f.sub(one);
        let square = g.mul(g).sub(n.mul(rest));
        let exact = square.ge(if leaps { zero } else { V::splat(f32::INFINITY) });
        let leap = rest.div(g.add(square.max(zero).sqrt()));
        (leap.select(exact, prof.step(f, g)), exact)
    }
}

/// Writes the first `here` rows of a group.
///
/// # Safety
/// As [`solve`].
#[inline(always)]
unsafe fn write<V: Vector, P: Direct, const APART: bool>(prof: P, rows: Rows, group: &Group, here: usize) {
    // SAFETY: every access stays within the row.
    unsafe {
        let (d, start) = (rows.d, start::<APART>(&rows, group));
        for r in 0..here {
            let at = start(r);
            let (z, out) = (rows.z.add(at), rows.out.add(at));
            let excess = Excess::<V>::new(&rows, group, r);
            let mut i = 0;
            while i + 4 * V::LANES <= d {
                for k in 0..4 {
                    let at = i + k * V::LANES;
                    prof.power(excess.of(V::load(z.add(at)))).store(out.add(at));
                }
                i += 4 * V::LANES;
            }
            while i < d {
                let n = (d - i).min(V::LANES);
                prof.power(excess.of(V::load_first(z.add(i), n, f32::NEG_INFINITY))).store_first(out.add(i), n);
                i += n;
            }
        }
    }
}
