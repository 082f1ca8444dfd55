//! Sparsemax and 1.5-entmax of rows from some hundred scores on: as in `ordered.rs`, but only the vectors that matter are
//! looked at twice.
//!
//! Plainly, for `LANES` rows, one a lane: the two largest of every lane, the threshold τ₀ that these alone have
//! (`ranked.rs`), write `[x − τ]₊^e` and sum what is written; where the support is large, a step from the sums over the
//! row before that, and where the sum does not stand, a Newton step and once more.
//!
//! What is done about time: τ₀ is a lower bound, and most vectors of a row hold nothing above it. Beside the largest
//! entries the first look keeps the maximum of every vector, which costs little while the row comes from memory, and if
//! the rows before had few candidates it writes zeros as it goes, so that memory is read and written all the time. After
//! it, those few vectors are read and written whose maximum is above τ₀.

use super::direct::{WIDEST, crowded, dense};
use super::group::{Block, Excess, Group, Rows};
use super::profile::Direct;
use super::ranked;
use super::vector::{MAX_LANES, Vector, write};

/// Whether rows of width `d` are served: narrower ones have too few vectors to leave any out.
pub(super) fn serves(d: usize) -> bool {
    d >= 512
}

/// How often rows are written here before they are left to `refine.rs`.
const ROUNDS: usize = 3;

/// Steps before rows are written.
const LEAPS: usize = 4;

/// A sum from which one step is likely to find the root.
const CLOSE: f32 = 1.02;

/// With no more ranks in the support than this, they are likely to be all there is of it.
const FEW: f32 = 6.5;

/// The maxima of the vectors of `LANES` rows.
type Peaks = std::mem::MaybeUninit<[f32; WIDEST]>;

/// Bits of which vectors of these rows are wanted.
type Wanted = [u64; WIDEST / 64];

/// How far thresholds may go behind the bound for which vectors were chosen, as rounding has it.
const SLACK: f32 = 5e-7;

/// A sum this far from 1 is as good as 1: no probability is off by more than their sum.
const NEAR: f32 = 4e-7;

/// How many maxima are kept of a row, some of them of nothing: bits of comparisons fill words.
fn peaks_of<V: Vector>(d: usize) -> usize {
    d.div_ceil(V::LANES).next_multiple_of(64)
}

/// Thresholds of `LANES` rows from `first` on and with `WRITE` their probabilities; what is not settled stays active, from a
/// lower bound on. `gaps` gets the distances of the largest entries from the maximum.
///
/// # Safety
/// The rows are readable and writable, of at most [`WIDEST`] floats; `gaps` is writable for `2·LANES` vectors; the CPU
/// has the instruction set.
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
        let mut peaks = Peaks::uninit();
        let peaks = peaks.as_mut_ptr().cast::<f32>();
        let cleared = WRITE && group.sparse;
        if cleared {
            survey::<V, true>(rows.from(first), group, gaps, peaks);
        } else {
            survey::<V, false>(rows.from(first), group, gaps, peaks);
        }
        group.dense = group.active & if P::CURVED { dense::<V>(gaps) } else { crowded::<V>(gaps) };
        if group.dense == group.active {
            group.sparse = false;
            return;
        }
        let ranked = ranked::solve::<V, P>(prof, gaps, &rows);
        group.put_below(ranked.hi, ranked.lo, V::splat(rows.scale));
        ranked.count.store(group.before.as_mut_ptr());
        // With many of them in the support, there are others.
        let mut left = group.active & !group.dense;
        group.sparse = 2 * left.count_ones() > group.active.count_ones();
        if WRITE && !cleared {
            clear(rows, group, left);
        }
        if left == 0 {
            return;
        }
        let wanted = above::<V>(peaks, &rows, group, ranked.hi, left);
        // In the digits that `hi` has lost, the bound may lie farther below it than it may be passed.
        let least = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()).sub(V::splat(SLACK)));
        let mut sums = [Block::uninit(); 3];
        let sums = sums.as_mut_ptr().cast::<f32>();
        if left.count_ones() < V::LANES as u32 {
            for k in 0..3 * V::LANES {
                V::splat(0.0).store(sums.add(k * V::LANES));
            }
        }
        let mut far = left & V::bits(ranked.count.gt(V::splat(if P::CURVED { FEW } else { P::ORDERED })));
        for _ in 0..if P::CURVED { 1 } else { LEAPS } {
            if far == 0 {
                break;
            }
            let f = leap::<V, P>(prof, rows, group, (far, &wanted), least, sums);
            far &= V::bits(f.gt(V::splat(CLOSE)));
        }
        for _ in 0..ROUNDS {
            let [f, g, _] = visit_all::<V, P, WRITE, false>(prof, rows, group, (left, &wanted), sums);
            let off = f.sub(V::splat(1.0));
            let near = V::splat(NEAR).ge(off.max(V::splat(0.0).sub(off)));
            let stands = V::bits(V::or(near, prof.stands((f, g), V::load(group.before.as_ptr())))) & left;
            group.active &= !stands;
            left &= !stands;
            if left == 0 {
                break;
            }
            let (hi, lo) = (V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
            // A step back does not go behind the bound, for which vectors were chosen. Rows that are settled stay.
            let next = lo.add(prof.step(f, g)).max(least.0.sub(hi).add(least.1));
            group.put(hi, next.select(V::lanes_of(left), lo));
            g.store(group.before.as_mut_ptr());
        }
        // To those that are left it says nothing: their lanes hold what neighbours made of them.
        V::splat(f32::INFINITY).store(group.before.as_mut_ptr());
    }
}

/// Writes zeros into some rows.
///
/// # Safety
/// As [`settle`].
unsafe fn clear(rows: Rows, group: &Group, mut some: u32) {
    while some != 0 {
        let r = some.trailing_zeros() as usize;
        some &= some - 1;
        // SAFETY: as the caller vouches.
        unsafe { std::ptr::write_bytes(rows.from(usize::from(group.at[r])).out, 0, rows.d) };
    }
}

/// The two largest entries of every lane, as distances from the maximum of their rows, which are told apart by what they
/// are fit for; and the maxima of vectors.
///
/// # Safety
/// As [`settle`]; `peaks` is writable for those of all rows.
#[inline(always)]
unsafe fn survey<V: Vector, const CLEAR: bool>(rows: Rows, group: &mut Group, gaps: *mut f32, peaks: *mut f32) {
    // SAFETY: as the caller vouches; the blocks hold a vector for each lane.
    unsafe {
        let mut largest = [Block::uninit(); 2];
        let largest = largest.as_mut_ptr().cast::<f32>();
        let (size, here, n) = (V::LANES * V::LANES, rows.rows.min(V::LANES), peaks_of::<V>(rows.d));
        let mut bad = 0u32;
        for r in 0..here {
            let ([first, second], nan) = look::<V, CLEAR>(&rows.from(r), (peaks.add(r * n), n));
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

/// The two largest of every lane of a row, of two neighbours the larger; whether there is a NaN. The maximum of every
/// whole vector goes to `peaks`, and −∞ behind the last, as many as it has room for.
///
/// # Safety
/// `z` is readable for `d ≥ LANES²` floats, `peaks` writable for as many as it says, a multiple of `LANES` and enough for
/// all vectors; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn look<V: Vector, const CLEAR: bool>(row: &Rows, (peaks, room): (*mut f32, usize)) -> ([V; 2], bool) {
    // SAFETY: every access stays within `d` floats; a block has a maximum for each of its vectors.
    unsafe {
        let Rows { z, out, d, .. } = *row;
        let (none, zero) = (V::splat(f32::NEG_INFINITY), V::splat(0.0));
        let (mut first, mut second) = (none, none);
        let mut nan = none.unordered(none);
        macro_rules! four {
            ($at:expr) => {
                if CLEAR {
                    for k in 0..4 {
                        zero.store(out.add($at + k * V::LANES));
                    }
                }
                let at = z.add($at);
                let (a, b) = (V::load(at), V::load(at.add(V::LANES)));
                let (c, e) = (V::load(at.add(2 * V::LANES)), V::load(at.add(3 * V::LANES)));
                nan = V::or(nan, V::or(a.unordered(b), c.unordered(e)));
                let (ab, ce) = (a.max(b), c.max(e));
                let (top, next) = (ab.max(ce), ab.min(ce));
                second = first.min(top).max(second.max(next));
                first = top.max(first);
            };
        }
        let (block, vectors) = (V::LANES * V::LANES, d / V::LANES);
        let mut i = 0;
        while i + block <= d {
            V::row_maxima(z.add(i)).store(peaks.add(i / V::LANES));
            for k in (0..V::LANES).step_by(4) {
                four!(i + k * V::LANES);
            }
            i += block;
        }
        for k in (i / V::LANES..room).step_by(V::LANES) {
            none.store(peaks.add(k));
        }
        if i / V::LANES < vectors {
            // The last block overlaps the one before and finds the same again.
            let from = vectors - V::LANES;
            V::row_maxima(z.add(from * V::LANES)).store(peaks.add(from));
        }
        while i + 4 * V::LANES <= d {
            four!(i);
            i += 4 * V::LANES;
        }
        while i < d {
            let n = (d - i).min(V::LANES);
            let v = V::load_first(z.add(i), n, f32::NEG_INFINITY);
            nan = V::or(nan, v.unordered(v));
            second = v.min(first).max(second);
            first = v.max(first);
            if CLEAR {
                write(zero, out.add(i), n);
            }
            i += n;
        }
        ([first, second], V::bits(nan) != 0)
    }
}

/// Which vectors of some rows hold an entry that may be above `bound`, a threshold in `x`, less all roundings on the way.
///
/// # Safety
/// `peaks` is readable for those of all rows; the CPU has the instruction set.
#[inline(always)]
unsafe fn above<V: Vector>(peaks: *const f32, rows: &Rows, group: &Group, bound: V, mut left: u32) -> Wanted {
    // SAFETY: as the caller vouches; the arrays hold a vector.
    unsafe {
        let (max, zero) = (V::load(group.max.as_ptr()), V::splat(0.0));
        let depth = bound.sub(V::splat(4.0 * SLACK)).div(V::splat(rows.scale));
        let room = max.max(zero.sub(max)).sub(depth).mul(V::splat(2.4e-7));
        let mut cuts = [0.0f32; MAX_LANES];
        max.add(depth).sub(room).store(cuts.as_mut_ptr());
        let mut wanted = [0; WIDEST / 64];
        let n = peaks_of::<V>(rows.d);
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let cut = V::splat(cuts[r]);
            for w in 0..n / 64 {
                let at = peaks.add(r * n + 64 * w);
                let mut word = 0;
                for k in (0..64).step_by(V::LANES) {
                    word |= u64::from(V::bits(V::load(at.add(k)).gt(cut))) << k;
                }
                wanted[r * (n / 64) + w] = word;
            }
        }
        wanted
    }
}

/// A step of the third order for the wanted rows; the sums that led to it.
///
/// # Safety
/// The rows are readable; the CPU has the instruction set.
#[inline(always)]
unsafe fn leap<V: Vector, P: Direct>(
    prof: P,
    rows: Rows,
    group: &mut Group,
    (many, wanted): (u32, &Wanted),
    least: (V, V),
    sums: *mut f32,
) -> V {
    // SAFETY: as the caller vouches.
    unsafe {
        let [f, g, n] = visit_all::<V, P, false, true>(prof, rows, group, (many, wanted), sums);
        let (is_one, hi, lo) = (V::lanes_of(many), V::load(group.hi.as_ptr()), V::load(group.lo.as_ptr()));
        let step = prof.curved_step(f, g, n).max(least.0.sub(hi).add(least.1));
        group.put(hi, step.select(is_one, lo));
        g.select(is_one, V::load(group.before.as_ptr())).store(group.before.as_mut_ptr());
        f
    }
}

/// Sums over the wanted vectors of some rows, one row a lane; other lanes hold anything. With `WRITE`, writes the rows; with
/// `COUNT`, the third sum is the number of entries, and τ is `hi`.
///
/// # Safety
/// The rows are readable and writable; the CPU has the instruction set.
#[inline(always)]
unsafe fn visit_all<V: Vector, P: Direct, const WRITE: bool, const COUNT: bool>(
    prof: P,
    rows: Rows,
    group: &Group,
    (mut left, wanted): (u32, &Wanted),
    sums: *mut f32,
) -> [V; 3] {
    // SAFETY: as the caller vouches.
    unsafe {
        let (size, parts, words) = (V::LANES * V::LANES, if COUNT { 3 } else { 2 }, peaks_of::<V>(rows.d) / 64);
        while left != 0 {
            let r = left.trailing_zeros() as usize;
            left &= left - 1;
            let row = rows.from(usize::from(group.at[r]));
            let of_row = visit::<V, P, WRITE, COUNT>(prof, &row, group, r, &wanted[r * words..][..words]);
            for k in 0..parts {
                of_row[k].store(sums.add(k * size + r * V::LANES));
            }
        }
        let n = if COUNT { V::row_sums(sums.add(2 * size)) } else { V::splat(0.0) };
        [V::row_sums(sums), V::row_sums(sums.add(size)), n]
    }
}

/// The same of one row, lane by lane.
///
/// # Safety
/// As [`visit_all`].
#[inline(always)]
unsafe fn visit<V: Vector, P: Direct, const WRITE: bool, const COUNT: bool>(
    prof: P,
    row: &Rows,
    group: &Group,
    k: usize,
    wanted: &[u64],
) -> [V; 3] {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (zero, bit, excess) = (V::splat(0.0), V::splat(row.bit), Excess::<V>::new(row, group, k));
        let (mut f, mut g, mut n) = (zero, zero, zero);
        macro_rules! look {
            ($at:expr, $len:expr) => {
                let at = row.z.add($at);
                let z = if $len == V::LANES { V::load(at) } else { V::load_first(at, $len, f32::NEG_INFINITY) };
                let u = if COUNT { excess.rough(z) } else { excess.of(z) };
                if WRITE {
                    write(prof.power(u), row.out.add($at), $len);
                }
                (f, g) = prof.take(u, f, g, bit);
                if COUNT {
                    n = n.tally_above(u, bit);
                }
            };
        }
        let whole = row.d / V::LANES;
        for (w, word) in wanted.iter().enumerate() {
            let mut left = *word;
            while left != 0 {
                let i = (64 * w + left.trailing_zeros() as usize) * V::LANES;
                left &= left - 1;
                look!(i, V::LANES);
            }
        }
        if whole * V::LANES < row.d {
            look!(whole * V::LANES, row.d - whole * V::LANES);
        }
        [f, prof.taken(g), n.tallied()]
    }
}
