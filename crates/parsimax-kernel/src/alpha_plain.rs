//! Backward pass of α-entmax for α ≥ 1.5 with the gradient in α, from probabilities alone.
//!
//! The head of `alpha_backward.rs` has `<v, ∂p/∂α> = Σ w p (1 − ln u)/δ²` with `u = p^δ`, and that any multiple of `s` may
//! be added to what `w` is multiplied by. So with `t = p (1 − ln u)` and `c = Σt/Σs`
//!
//! ```text
//! <v, ∂p/∂α> = Σ w (t − c s)/δ²,   Σ (t − c s) = 0
//! ```
//!
//! which knows as much of `t/s` as its rounding leaves: enough where entries differ and δ is not small. Where they hardly
//! differ, `Σ |t − c s|` is small beside `Σ t`, and the row is left to the differences of its scores.
//!
//! All entries of a row are gone through, and a group of rows pass by pass, with what is one number a row worked out for
//! all of them at once: a row by itself is a long chain of operations.

use super::backward::{MOST, Rows};
use super::supports::{Across, NARROW, SHORT, count, room};
use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::Weight;

/// Widest row.
pub(super) const WIDEST: usize = SHORT;

/// The least share of `Σ t` that half of `Σ |t − c s|` has to be.
const LEAST: f32 = 1.0 / 128.0;

/// How far apart a few entries are, relative to one of them, where all may nearly be equal.
const LEVEL: f32 = 0.05;

/// What turns probabilities into gradients in α.
#[derive(Clone, Copy)]
pub(super) struct Slope {
    /// What `log₂ p` is multiplied by to be `−ln u`.
    fall: f32,
    /// `1/δ²`
    factor: f32,
    /// A little more than the weight of an entry that is 1.
    whole: f32,
}

impl Slope {
    /// For that δ, and the factor on the weights.
    pub(super) fn new(delta: f64, scale: f32) -> Slope {
        let fall = (-delta * std::f64::consts::LN_2) as f32;
        Slope { fall, factor: (1.0 / (delta * delta)) as f32, whole: 1.000_001 * scale }
    }
}

outlined! {
    /// A group of rows; `dalpha` gets one number for each of those that are done, and the others are named by their bits.
    ///
    /// # Safety
    /// As [`rows`](super::alpha_backward::rows), for a group of `n` rows of at most [`WIDEST`] entries, with three lists
    /// for each.
    pub(super) unsafe fn plain_group<V, W: Weight>(
        weight: W,
        slope: Slope,
        rows: Rows,
        n: usize,
        lists: *mut f32,
        across: *mut Across,
        dalpha: *mut f64,
    ) -> u32 => plain_group_any
}

/// # Safety
/// As [`plain_group`].
#[inline(always)]
unsafe fn plain_group_any<V: Vector, W: Weight>(
    weight: W,
    slope: Slope,
    rows: Rows,
    n: usize,
    lists: *mut f32,
    across: *mut Across,
    dalpha: *mut f64,
) -> u32 {
    // SAFETY: row `r` lies within all of the rows for `r < n`.
    unsafe {
        let (across, place) = (&mut *across, |r: usize| lists.wrapping_add(3 * r * room(rows.d)));
        let mut todo = 0;
        for r in 0..n {
            if suits::<V>(rows.from(r)) {
                let (lanes, is_tiny) = weigh::<V, W>(weight, slope, rows.from(r), place(r));
                across.put(r, lanes);
                todo |= u32::from(!is_tiny) << r;
            }
        }
        let (s, sv, t) = (across.total::<V>(0), across.total::<V>(1), across.total::<V>(2));
        let (mut means, mut shares) = ([0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
        let mean = sv.div(s);
        mean.store(means.as_mut_ptr());
        t.div(s).store(shares.as_mut_ptr());
        // An entry by itself is 1 whatever α is.
        let is_alone = V::splat(slope.whole).ge(s);
        let is_finite = V::and(mean.ge(V::splat(-MOST)), V::splat(MOST).ge(mean));
        todo &= V::bits(is_finite);
        for r in 0..n {
            if todo >> r & 1 == 1 {
                across.put(r, multiply::<V, W>(weight, rows.from(r), place(r), means[r], shares[r]));
            }
        }
        let fits = V::or(is_alone, across.total::<V>(1).ge(t.mul(V::splat(LEAST))));
        let total = across.total::<V>(0).mul(V::splat(slope.factor));
        let mut slopes = [0.0f32; MAX_LANES];
        V::splat(0.0).select(is_alone, total).store(slopes.as_mut_ptr());
        todo &= V::bits(fits);
        for r in 0..n {
            if todo >> r & 1 == 1 {
                *dalpha.add(r) = f64::from(slopes[r]);
            }
        }
        !todo & ((1u64 << n) - 1) as u32
    }
}

/// Whether a row is likely to be told by its probabilities alone, and not so much better off with its support listed.
///
/// # Safety
/// As [`plain_group`], for one row.
#[inline(always)]
unsafe fn suits<V: Vector>(row: Rows) -> bool {
    // SAFETY: all three are within the row.
    let (first, middle, last) = unsafe { (*row.p, *row.p.add(row.d / 2), *row.p.add(row.d - 1)) };
    let near = |p: f32| (p - first).abs() < LEVEL * first;
    // SAFETY: as the caller vouches.
    !(near(middle) && near(last)) && (row.d <= NARROW || unsafe { is_crowded::<V>(row) })
}

/// Entries at either end of a wide row that tell at a glance what it is like, and how many of all these are positive, at
/// least, where going through all of a row takes no longer than listing its support.
const GLANCE: usize = 64;
const CROWD: usize = 24;

/// Whether a good part of a wide row is positive, as its ends have it.
///
/// # Safety
/// As [`plain_group`], for one row.
#[inline(always)]
unsafe fn is_crowded<V: Vector>(row: Rows) -> bool {
    // SAFETY: both ends are within the row.
    unsafe { count::<V>(row.p, GLANCE) + count::<V>(row.p.add(row.d - GLANCE), GLANCE) >= CROWD }
}

/// `Σ s`, `Σ s v` and `Σ t` of a row, by lanes; and whether it holds what is below the normal range, of which the logarithm
/// is not known, if that counts. `t` is listed, and behind it `s` if it is worth keeping.
///
/// # Safety
/// As [`plain_group`], for one row.
#[inline(always)]
unsafe fn weigh<V: Vector, W: Weight>(weight: W, slope: Slope, row: Rows, list: *mut f32) -> ([V; 3], bool) {
    let (whole, rest) = (row.d / V::LANES * V::LANES, row.d % V::LANES);
    // SAFETY: as the caller vouches.
    unsafe {
        let (mut lanes, mut tiny) = ([V::splat(0.0); 3], 0);
        for i in (0..whole).step_by(V::LANES) {
            tiny |= weigh_part::<V, W>(weight, slope, row, list, (i, V::LANES), &mut lanes);
        }
        if rest > 0 {
            tiny |= weigh_part::<V, W>(weight, slope, row, list, (whole, rest), &mut lanes);
        }
        (lanes, tiny != 0)
    }
}

/// [`weigh`] of a vector or a part of one; returns the bits of what is below the normal range.
///
/// # Safety
/// As [`weigh`].
#[inline(always)]
unsafe fn weigh_part<V: Vector, W: Weight>(
    weight: W,
    slope: Slope,
    row: Rows,
    list: *mut f32,
    (i, len): (usize, usize),
    lanes: &mut [V; 3],
) -> u32 {
    // SAFETY: every access stays within `d` floats, and those of the lists within two of them.
    unsafe {
        let (zero, one, least) = (V::splat(0.0), V::splat(1.0), V::splat(f32::MIN_POSITIVE));
        let p = read::<V>(row.p.add(i), len);
        let log = p.order(least).1.log2_of_normal();
        let s = weight.weight_by_log(p, log);
        let t = p.mul(log.fma(V::splat(slope.fall), one));
        t.store(list.add(i));
        if W::KEPT {
            s.store(list.add(room(row.d) + i));
        }
        let [total, moved, bent] = *lanes;
        *lanes = [total.add(s), s.fma(read::<V>(row.v.add(i), len), moved), bent.add(t)];
        if W::BY_LOG { V::bits(V::and(p.gt(zero), least.gt(p))) } else { 0 }
    }
}

/// Writes the products of a row; returns `Σ w (t − c s)` and half of `Σ |t − c s|`, by lanes.
///
/// # Safety
/// As [`plain_group`], for a row that has its weights.
#[inline(always)]
unsafe fn multiply<V: Vector, W: Weight>(weight: W, row: Rows, list: *const f32, mean: f32, share: f32) -> [V; 2] {
    let (whole, rest) = (row.d / V::LANES * V::LANES, row.d % V::LANES);
    // SAFETY: as the caller vouches.
    unsafe {
        let (of, mut lanes) = ([V::splat(mean), V::splat(-share)], [V::splat(0.0); 2]);
        for i in (0..whole).step_by(V::LANES) {
            multiply_part::<V, W>(weight, row, list, (i, V::LANES), of, &mut lanes);
        }
        if rest > 0 {
            multiply_part::<V, W>(weight, row, list, (whole, rest), of, &mut lanes);
        }
        lanes
    }
}

/// [`multiply`] of a vector or a part of one.
///
/// # Safety
/// As [`multiply`].
#[inline(always)]
unsafe fn multiply_part<V: Vector, W: Weight>(
    weight: W,
    row: Rows,
    list: *const f32,
    (i, len): (usize, usize),
    [mean, share]: [V; 2],
    [slope, size]: &mut [V; 2],
) {
    // SAFETY: every access stays within `d` floats, and those of the lists within two of them.
    unsafe {
        let s = match W::KEPT {
            true => V::load(list.add(room(row.d) + i)),
            false => weight.weight(read::<V>(row.p.add(i), len)),
        };
        let w = read::<V>(row.v.add(i), len).sub(mean);
        let bent = s.fma(share, V::load(list.add(i)));
        // Adding 0 leaves no −0 where the weight is 0.
        write(s.fma(w, V::splat(0.0)), row.out.add(i), len);
        // Lanes behind the row have w = −mean, of weight 0.
        (*slope, *size) = (bent.fma(w, *slope), size.add(bent.positive()));
    }
}
