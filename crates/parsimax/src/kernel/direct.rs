//! Sparsemax and 1.5-entmax on short rows: a few passes over whole rows, and no list.
//!
//! Plainly, for each row: maximum, a lower bound on τ, Newton steps, write `[x − τ]₊^e`. Where
//! a term costs five instructions, gathering the candidates of a row of 64 costs more than it
//! saves, and on dense rows it saves nothing. So every pass runs over all entries of a row, and
//! what comes between two passes (the sum over lanes, the division, the question whether to go
//! on) is done for `LANES` rows at once: their lane sums are transposed, one row per lane. Rows
//! that have settled take no part in later passes.
//!
//! The bound comes from sixteen maxima a row, or as many as two vectors hold (even and odd vectors of the row,
//! each entry in one of them): a subset of the row, whose τ is a lower bound and already close. For
//! sparsemax it is τ itself unless two of the support share a lane, which on scattered scores is
//! the exception; so its first pass writes, and most rows see no other. What is added to a lane's
//! sums does not depend on the neighbours, so neither does the row.

use super::profile::{Direct, STEPS, Tau};
use super::solve::Frame;
use super::sweep::LARGE;
use super::vector::{MAX_LANES, Vector, outlined};
use super::write::{RowSum, any_dense};
use super::{Forward, Status, long, picked};

/// Width from which on it is worth to look for rows with few candidates.
const WIDE: usize = 128;

/// A sum of terms beyond which the next step hardly finds the root.
const FAR: f32 = 1.25;

/// Most groups of `LANES` rows that go through the steps together: what one waits for, the others
/// fill with work.
const GROUPS: usize = 4;

/// Floats that the rows of such groups may have, so that they stay in the first-level cache.
const ROOM: usize = 2048;

/// Floats that the rows of one group may have. Wider rows leave lanes empty: what is done for all lanes at once is
/// little beside such rows, and a second look at them is not to wait for the next cache.
const GROUP_ROOM: usize = 4096;

/// The number of maxima in the support beyond which a row counts as dense: half of them.
fn dense_from<V: Vector>() -> f32 {
    (V::PARTS * V::LANES) as f32 * 0.5
}

/// How many rows of width `d` go through the steps together.
fn together<V: Vector>(d: usize) -> usize {
    if V::LANES * d <= GROUP_ROOM {
        V::LANES * (ROOM / (V::LANES * d)).clamp(1, GROUPS)
    } else {
        (GROUP_ROOM / d).clamp(1, V::LANES)
    }
}

/// A square block of lanes, written before it is read.
type Block = std::mem::MaybeUninit<[f32; MAX_LANES * MAX_LANES]>;

/// What is known of `LANES` rows, one a lane.
#[derive(Clone, Copy)]
struct Group {
    /// One bit a row: a NaN or `+inf`; nothing but `−inf`; not settled yet.
    bad: u32,
    empty: u32,
    /// Scores so large that a threshold in their units loses digits.
    large: u32,
    active: u32,
    /// Rows whose probabilities are written.
    written: u32,
    max: [f32; MAX_LANES],
    /// Whether a row is so far from its root that writing it would be in vain.
    far: bool,
    /// τ as two floats to be added. If products are exact it is measured in the units of `scale·z`, and a
    /// term takes one of them; else, and before the rows are looked at, from `scale·max`.
    hi: [f32; MAX_LANES],
    lo: [f32; MAX_LANES],
    /// The slope of the last step.
    before: [f32; MAX_LANES],
}

impl Group {
    const NEW: Group = Group {
        bad: 0,
        empty: 0,
        large: 0,
        active: 0,
        written: 0,
        far: false,
        max: [0.0; MAX_LANES],
        hi: [-1.0; MAX_LANES],
        lo: [0.0; MAX_LANES],
        before: [f32::INFINITY; MAX_LANES],
    };

    /// Makes τ the sum of the two: `hi` its float, `lo` exactly what that loses.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn put<V: Vector>(&mut self, a: V, b: V) {
        let sum = a.add(b);
        let of_b = sum.sub(a);
        // SAFETY: the arrays hold a vector; the caller vouches for the instruction set.
        unsafe {
            sum.store(self.hi.as_mut_ptr());
            a.sub(sum.sub(of_b)).add(b.sub(of_b)).store(self.lo.as_mut_ptr());
        }
    }
}

/// Rows one behind the other, and where their probabilities go.
#[derive(Clone, Copy)]
struct Rows {
    z: *const f32,
    out: *mut f32,
    d: usize,
    rows: usize,
    scale: f32,
    /// The number one, kept from the compiler: it would turn products with it into sums.
    one: f32,
}

impl Rows {
    /// Without the first `n`.
    ///
    /// # Safety
    /// There are `n`.
    #[inline(always)]
    unsafe fn from(self, n: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { Rows { z: self.z.add(n * self.d), out: self.out.add(n * self.d), rows: self.rows - n, ..self } }
    }
}

/// Forward pass of a block of short rows. `loss` as in `long::forward`.
///
/// # Safety
/// The slices of `job` have the lengths that `Forward` promises, `d ≥ 1`, and the CPU has
/// the instruction set of `V`.
pub(crate) unsafe fn forward<V: Vector, P: Direct>(prof: P, job: &mut Forward<'_>, loss: Option<(f32, &mut [RowSum])>) {
    let d = job.d;
    let scale = prof.inner() * job.scale;
    let (gain, mut sums) = loss.unzip();
    let rows = job.status.len();
    let many = together::<V>(d);
    let mut groups = [Group::NEW; GROUPS];
    let one = std::hint::black_box(1.0f32);
    for first in (0..rows).step_by(many) {
        let here = (rows - first).min(many);
        // SAFETY: `here` rows of `d` floats start at row `first`.
        unsafe {
            let z = job.z.as_ptr().add(first * d);
            let out = job.out.as_mut_ptr().add(first * d);
            let block = Rows { z, out, d, rows: here, scale, one };
            let plain = match gain {
                None => solve_groups::<V, P, true>(prof, block, &raw mut groups),
                Some(_) => solve_groups::<V, P, false>(prof, block, &raw mut groups),
            };
            if plain && gain.is_none() && job.tau.is_none() {
                job.status[first..first + here].fill(Status::Ok);
                continue;
            }
            for r in 0..here {
                let (group, k) = (&groups[r / V::LANES], r % V::LANES);
                let (max, tau) = (group.max[k], f64::from(group.hi[k]) + f64::from(group.lo[k]));
                let top = f64::from(scale) * f64::from(max);
                let tau = if V::FUSED { tau - top } else { tau };
                let status = Status::from_flags(group.bad >> k & 1 == 1, group.empty >> k & 1 == 1);
                job.status[first + r] = status;
                if status == Status::Ok && group.large >> k & 1 == 1 {
                    long::one_row::<V, P, P>((prof, prof), job, first + r, gain, sums.as_deref_mut());
                    continue;
                }
                if let Some(t) = job.tau.as_deref_mut() {
                    t[first + r] = status.tau(top + tau);
                }
                let (z, out) = (z.add(r * d), out.add(r * d));
                if status != Status::Ok {
                    std::slice::from_raw_parts_mut(out, d).fill(status.fill());
                } else if let Some(sums) = sums.as_deref_mut() {
                    let pu = any_dense::<V, P>(prof, z, (out, false), d, Frame { max, scale }, Tau::new(tau), gain);
                    sums[first + r] = RowSum { max, tau, pu };
                }
            }
        }
    }
}

outlined! {
    /// Thresholds of at most `GROUPS · LANES` rows, and their probabilities if `WRITE`; whether all are
    /// fit.
    ///
    /// # Safety
    /// The rows are readable and writable, `groups` is writable; the CPU has the instruction set of `V`.
    unsafe fn solve_groups<V, P: Direct; WRITE>(
        prof: P,
        rows: Rows,
        groups: *mut [Group; GROUPS],
    ) -> bool => solve_groups_any
}

/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn solve_groups_any<V: Vector, P: Direct, const WRITE: bool>(
    prof: P,
    rows: Rows,
    groups: *mut [Group; GROUPS],
) -> bool {
    // SAFETY: rows and buffers are in bounds as the caller vouches.
    unsafe {
        let groups = &mut (&mut *groups)[..rows.rows.div_ceil(V::LANES)];
        let mut tops = [Block::uninit(); 2 * GROUPS];
        let tops = tops.as_mut_ptr().cast::<f32>();
        let size = V::PARTS * V::LANES * V::LANES;
        let mut unfit = 0;
        for (g, group) in groups.iter_mut().enumerate() {
            survey::<V>(rows.from(g * V::LANES), group, tops.add(g * size));
            unfit |= group.bad | group.empty | group.large;
        }
        let mut slopes = [V::splat(0.0); GROUPS];
        for _ in 0..P::FIRST_STEPS {
            for (g, group) in groups.iter_mut().enumerate() {
                slopes[g] = first_step::<V, P>(prof, group, tops.add(g * size), V::splat(rows.one));
            }
        }
        for (g, group) in groups.iter_mut().enumerate().filter(|_| rows.d >= WIDE) {
            // How many of the maxima share the mass: a count, or with Σu² = 1 or a little more the square of Σu.
            let dense = match P::LOOKS_TWICE {
                true => slopes[g].gt(V::splat(dense_from::<V>())),
                false => slopes[g].mul(slopes[g]).gt(V::splat(1.8 * dense_from::<V>())),
            };
            let dense = V::bits(dense);
            settle_sparse::<V, P, WRITE>(prof, rows.from(g * V::LANES), group, !dense);
        }
        for (group, slope) in groups.iter_mut().zip(slopes).filter(|_| P::LOOKS_TWICE) {
            leap::<V>(group, slope, rows.d);
        }
        for group in groups.iter_mut().filter(|_| V::FUSED) {
            let (max, scale) = (V::load(group.max.as_ptr()), V::splat(rows.scale));
            let (hi, lo) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
            let to = max.fma(scale, hi);
            let lost = max.fma(scale, V::splat(0.0).sub(to)).add(hi);
            group.put(to, lost.add(lo));
        }
        let mut going = true;
        let mut n = 0;
        while going && n < STEPS {
            // Sums of all groups, then what follows from them for all groups.
            let mut sums = [(V::splat(0.0), V::splat(0.0)); GROUPS];
            let fine = n > 0 || P::LOOKS_TWICE;
            for (g, group) in groups.iter().enumerate().filter(|(_, group)| group.active != 0) {
                let rows = rows.from(g * V::LANES);
                sums[g] = match (fine, group.far) {
                    (true, false) if P::LOOKS_TWICE => passes::<V, P, WRITE, true>(prof, rows, group),
                    (true, _) => passes::<V, P, false, true>(prof, rows, group),
                    (false, _) => passes::<V, P, false, false>(prof, rows, group),
                };
            }
            going = false;
            for (g, group) in groups.iter_mut().enumerate().filter(|(_, group)| group.active != 0) {
                advance::<V, P>(prof, group, sums[g], fine, rows.d);
                going |= group.active != 0;
            }
            n += 1;
        }
        if WRITE && !P::LOOKS_TWICE {
            for r in 0..rows.rows {
                let (group, k) = (&groups[r / V::LANES], r % V::LANES);
                if group.written >> k & 1 == 0 {
                    pass::<V, P, true, true>(prof, rows, r, group, k);
                }
            }
        }
        unfit == 0
    }
}

/// Maxima of the first `LANES` rows: of the rows into `group`, of their parts, as `x`, into `tops`, one
/// row per lane.
///
/// # Safety
/// The rows are readable, `tops` is writable for `PARTS·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn survey<V: Vector>(rows: Rows, group: &mut Group, tops: *mut f32) {
    // SAFETY: as the caller vouches; the block holds two vectors for each lane.
    unsafe {
        let (zero, none, scales) = (V::splat(0.0), V::splat(f32::NEG_INFINITY), V::splat(rows.scale));
        let mut parts = [Block::uninit(); 2];
        let parts = parts.as_mut_ptr().cast::<f32>();
        let here = rows.rows.min(V::LANES);
        (group.bad, group.far, group.written) = (0, false, 0);
        for r in 0..V::LANES {
            let to = parts.add(V::PARTS * r * V::LANES);
            let mut maxima = [none; 2];
            if r < here {
                let nan;
                (maxima, nan) = two_maxima::<V>(rows.z.add(r * rows.d), rows.d);
                group.bad |= u32::from(nan) << r;
            }
            if V::PARTS == 1 {
                maxima[0].max(maxima[1]).store(to);
            } else {
                maxima[0].store(to);
                maxima[1].store(to.add(V::LANES));
            }
        }
        for part in 0..V::PARTS {
            V::transpose(parts.add(part * V::LANES), V::PARTS * V::LANES, tops.add(part * V::LANES * V::LANES));
        }
        let mut max = [V::load(tops), V::load(tops.add(V::LANES))];
        for j in 2..V::PARTS * V::LANES {
            max[j % 2] = V::load(tops.add(j * V::LANES)).max(max[j % 2]);
        }
        let max = max[0].max(max[1]);
        group.bad |= V::bits(max.ge(V::splat(f32::INFINITY)));
        group.empty = V::bits(none.ge(max));
        group.large = V::bits(max.max(zero.sub(max)).mul(scales).ge(V::splat(LARGE)));
        group.active = !(group.bad | group.empty | group.large) & ((1u64 << here) - 1) as u32;
        // A maximum of −inf would turn differences into NaN; with 0 they stay −inf.
        let max = max.select(max.gt(none), zero);
        max.store(group.max.as_mut_ptr());
        for j in 0..V::PARTS * V::LANES {
            let t = tops.add(j * V::LANES);
            V::load(t).sub(max).mul(scales).store(t);
        }
        V::splat(-1.0).store(group.hi.as_mut_ptr());
        zero.store(group.lo.as_mut_ptr());
        V::splat(f32::INFINITY).store(group.before.as_mut_ptr());
    }
}

/// A Newton step on the maxima: from the left, every iterate is a lower bound. Returns the slope there.
///
/// # Safety
/// `tops` is readable for `PARTS·LANES` vectors; the CPU has the instruction set.
#[inline(always)]
unsafe fn first_step<V: Vector, P: Direct>(prof: P, group: &mut Group, tops: *const f32, one: V) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let (zero, hi) = (V::splat(0.0), V::load(group.hi.as_ptr()));
        let back = zero.sub(hi);
        let (mut f, mut g) = ([zero; 4], [zero; 4]);
        for j in 0..V::PARTS * V::LANES {
            let u = V::load(tops.add(j * V::LANES)).fma(one, back).max(zero);
            (f[j % 4], g[j % 4]) = prof.gather(u, f[j % 4], g[j % 4], one);
        }
        let slope = g[0].add(g[1]).add(g[2].add(g[3]));
        let step = prof.step(f[0].add(f[1]).add(f[2].add(f[3])), slope);
        group.put(hi, step);
        slope
    }
}

/// Solves, and with `WRITE` writes, the rows of a group that have few candidates, `among` some.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn settle_sparse<V: Vector, P: Direct, const WRITE: bool>(prof: P, rows: Rows, group: &mut Group, among: u32) {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let (hi, lo) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        let (max, scale) = (V::load(group.max.as_ptr()), V::splat(rows.scale));
        let Rows { z, out, d, .. } = rows;
        let of_group = picked::Rows { z, out, d, max, scale, bound: hi.add(lo), wanted: group.active & among };
        let (done, t, rest) = picked::solve::<V, P, WRITE>(prof, &of_group);
        let is_done = V::lanes_of(done);
        group.put(t.select(is_done, hi), rest.select(is_done, lo));
        group.active &= !done;
        if WRITE {
            group.written = done;
        }
    }
}

/// A guess of τ for the rows of sparsemax with most of their maxima in the support, and so many others of which
/// nothing is known. `slope` is the number of those maxima.
///
/// If every maximum stood for κ entries, τ would be larger by `(1 − 1/κ)/slope`. What the maxima have in the mean,
/// `1/slope`, against how far the largest is above their mean tells how dense the row is; on normal scores the κ
/// below saves two of five passes. A guess may be on either side of τ: from the right, the next step goes to the left.
///
/// # Safety
/// The CPU has the instruction set.
#[inline(always)]
unsafe fn leap<V: Vector>(group: &mut Group, slope: V, d: usize) {
    // SAFETY: the caller vouches for the instruction set; the arrays hold a vector.
    unsafe {
        let most = slope.gt(V::splat(dense_from::<V>()));
        group.far = group.active & V::bits(most) != 0;
        if group.far {
            let (zero, one) = (V::splat(0.0), V::splat(1.0));
            let (hi, lo) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
            let spread = zero.sub(hi).fma(slope, V::splat(-1.0)).max(V::splat(1e-3));
            // No more than half of what each stands for.
            let half = (d as f32 / (2 * V::PARTS * V::LANES) as f32).max(1.5);
            let share = V::splat(1.0 / half).max(one.div(V::splat(0.43).div(spread).add(V::splat(1.2))));
            group.put(hi, one.sub(share).div(slope).keep(most).add(lo));
        }
    }
}

/// A Newton step of the rows that are active, and which of them stay so.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn advance<V: Vector, P: Direct>(prof: P, group: &mut Group, (f, g): (V, V), fine: bool, d: usize) {
    // SAFETY: the caller vouches for the instruction set; the arrays hold a vector.
    unsafe {
        let (h, l) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        let b = V::load(group.before.as_ptr());
        let step = prof.step(f, g);
        let unsettled = prof.goes_on((f, g), b, step, V::splat(d as f32));
        let was = V::lanes_of(group.active);
        let moves = if fine && P::LOOKS_TWICE { V::and(was, unsettled) } else { was };
        // Rows that stay make a step of zero, which moves nothing: if results were chosen lane by lane,
        // compilers would write them by masked stores, which some CPUs do slowly.
        let step = step.keep(moves);
        // A first step was taken at `hi` alone.
        group.put(h, if fine { l.add(step) } else { step.select(was, l) });
        // After a step back nothing is known of the slope.
        V::splat(f32::INFINITY).select(V::splat(0.0).gt(step), g).store(group.before.as_mut_ptr());
        if P::LOOKS_TWICE {
            // A row that has settled where nothing was written waits for a pass that writes.
            if fine && !group.far {
                group.active &= V::bits(unsettled);
            }
            // Two passes in a row that write nothing would be one too many.
            group.far = !group.far && group.active & V::bits(f.gt(V::splat(FAR))) != 0;
        } else {
            group.active &= V::bits(unsettled);
        }
    }
}

/// Two vectors of maxima that share no entry; whether there is a NaN.
///
/// # Safety
/// `z` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
pub(super) unsafe fn two_maxima<V: Vector>(z: *const f32, d: usize) -> ([V; 2], bool) {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let none = V::splat(f32::NEG_INFINITY);
        let mut m = [none; 2];
        let mut nan = none.unordered(none);
        let mut i = 0;
        while i + 2 * V::LANES <= d {
            let (a, b) = (V::load(z.add(i)), V::load(z.add(i + V::LANES)));
            m = [a.max(m[0]), b.max(m[1])];
            nan = V::or(nan, a.unordered(b));
            i += 2 * V::LANES;
        }
        let mut k = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            m[k] = v.max(m[k]);
            nan = V::or(nan, v.unordered(v));
            i += n;
            k = 1;
        }
        (m, V::bits(nan) != 0)
    }
}

/// The two sums of every active row, one row per lane; other lanes hold anything.
///
/// # Safety
/// As [`solve_groups`].
#[inline(always)]
unsafe fn passes<V: Vector, P: Direct, const WRITE: bool, const FINE: bool>(
    prof: P,
    rows: Rows,
    group: &Group,
) -> (V, V) {
    // SAFETY: as the caller vouches; the buffers hold a vector for each lane.
    unsafe {
        let (mut f, mut g) = (Block::uninit(), Block::uninit());
        let (fs, gs) = (f.as_mut_ptr().cast::<f32>(), g.as_mut_ptr().cast::<f32>());
        if group.active.count_ones() < V::LANES as u32 {
            for r in 0..V::LANES {
                V::splat(0.0).store(fs.add(r * V::LANES));
                V::splat(0.0).store(gs.add(r * V::LANES));
            }
        }
        let mut left = group.active;
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let (f, g) = pass::<V, P, WRITE, FINE>(prof, rows, r, group, r);
            f.store(fs.add(r * V::LANES));
            g.store(gs.add(r * V::LANES));
        }
        (V::row_sums(fs), V::row_sums(gs))
    }
}

/// The two sums of a row at `τ = hi + lo`, lane by lane; writes its probabilities if `WRITE`.
/// Without `FINE`, τ is `hi`.
///
/// Comparisons and maxima share their units with additions, and products have their own: the
/// additions that can are written as products with one.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn pass<V: Vector, P: Direct, const WRITE: bool, const FINE: bool>(
    prof: P,
    rows: Rows,
    r: usize,
    group: &Group,
    k: usize,
) -> (V, V) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let Rows { z, out, d, .. } = rows.from(r);
        let (scale, one, zero) = (V::splat(rows.scale), V::splat(rows.one), V::splat(0.0));
        let (max, hi, lo) = (V::splat(-group.max[k]), V::splat(-group.hi[k]), V::splat(-group.lo[k]));
        let excess = |z: V| {
            let u = if V::FUSED { z.fma(scale, hi) } else { z.add(max).mul(scale).add(hi) };
            if FINE { u.fma(one, lo).max(zero) } else { u.max(zero) }
        };
        let (mut f, mut g) = ([zero; 4], [zero; 2]);
        let mut i = 0;
        while i + 4 * V::LANES <= d {
            for k in 0..4 {
                let u = excess(V::load(z.add(i + k * V::LANES)));
                if WRITE {
                    prof.power(u).store(out.add(i + k * V::LANES));
                }
                (f[k], g[k % 2]) = prof.gather(u, f[k], g[k % 2], one);
            }
            i += 4 * V::LANES;
        }
        while i + V::LANES <= d {
            let u = excess(V::load(z.add(i)));
            if WRITE {
                prof.power(u).store(out.add(i));
            }
            (f[0], g[0]) = prof.gather(u, f[0], g[0], one);
            i += V::LANES;
        }
        if i < d {
            let u = excess(V::load_first(z.add(i), d - i, f32::NEG_INFINITY));
            (f[1], g[1]) = prof.gather(u, f[1], g[1], one);
            if WRITE && d >= V::LANES {
                // The last vector overlaps the one before and writes the same numbers again.
                prof.power(excess(V::load(z.add(d - V::LANES)))).store(out.add(d - V::LANES));
            } else if WRITE {
                prof.power(u).store_first(out, d);
            }
        }
        (f[0].add(f[1]).add(f[2].add(f[3])), g[0].add(g[1]))
    }
}
