//! Sq-pnorm-max: `y = u/Σu`, `u = [x − τ]₊^{1/m}`, with `m = p − 1` and `x = (z − max z)/γ`.
//!
//! Plainly: candidates within γ of the maximum, Newton for τ, write, divide by the sum. With `e = [x − τ]₊`,
//! `A = Σ e^{1/m}`, `B = Σ e^{1/m + 1}` and `C = Σ e^{1/m − 1}`, τ is the root of
//!
//! `f(τ) = A · B^{−(1−m)/(1+m)} = 1`, with `−f′/f = C/(m·A) − (1−m)/m · A/B > 0`.
//!
//! (`C·B ≥ A²` by Cauchy–Schwarz, so `f` falls.) `f` is homogeneous of degree one in `e` and nearly linear, so
//! Newton takes a few steps from anywhere; a bracket catches a step that leaves it. Since
//! `−1 ≤ τ ≤ −d^{−2m/(1+m)}`, entries γ or more below the maximum are never looked at again.
//!
//! For whole `1/m` (p = 3/2, 4/3, 5/4 …) powers are products, and at the default, p = 3/2, the sums are those
//! of `e`, `e²` and `e³`. τ is settled to what moves a probability by less than 10⁻⁶, and the sum of the row is 1 by
//! the division.
//!
//! **Jacobian.** As in the mapping's own file, from sums of `y^{1−m}`, `y^{1+m}` and their products with `v`.

use super::Status;
use super::expo::{exp2_nonpos, log2};
use super::profile::{At, Tau};
use super::scan::{collect_few, row_max};
use super::solve::{Frame, cut, make_ready};
use super::structured::Work;
use super::vector::{Vector, outlined, write};

/// Candidates that are listed at most, 128 KiB with their positions; a row with more is solved in the place of its
/// result.
const ROOM: usize = 16_384;

/// Terms that a lane adds in f32 before the sum moves to f64.
const BLOCK: usize = 16;

/// Powers of `e ≥ 0`.
pub(crate) trait Power: Copy {
    /// `e^{1/m − 1}` and `e^{1/m}`; 0 at 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn powers<V: Vector>(&self, e: V) -> (V, V);
    /// `y^{1−m}` and `y^m`; 0 at 0.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    unsafe fn split<V: Vector>(&self, y: V) -> (V, V);
}

/// `m = 1/2`.
#[derive(Clone, Copy)]
pub(crate) struct Square;

impl Power for Square {
    #[inline(always)]
    unsafe fn powers<V: Vector>(&self, e: V) -> (V, V) {
        (e, e.mul(e))
    }
    #[inline(always)]
    unsafe fn split<V: Vector>(&self, y: V) -> (V, V) {
        let root = y.sqrt();
        (root, root)
    }
}

/// Any `m` from 1/8 to 1, by logarithms.
#[derive(Clone, Copy)]
pub(crate) struct Any(f32);

impl Power for Any {
    #[inline(always)]
    unsafe fn powers<V: Vector>(&self, e: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (log, live) = (log2(e), e.gt(V::splat(0.0)));
            let less = exp2_nonpos(log.mul(V::splat(1.0 / self.0 - 1.0))).keep(live);
            (less, less.mul(e))
        }
    }
    #[inline(always)]
    unsafe fn split<V: Vector>(&self, y: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (log, live) = (log2(y), y.gt(V::splat(0.0)));
            let m = self.0;
            (exp2_nonpos(log.mul(V::splat(1.0 - m))).keep(live), exp2_nonpos(log.mul(V::splat(m))).keep(live))
        }
    }
}

/// Whole `1/m ≥ 2`, by products.
#[derive(Clone, Copy)]
pub(crate) struct Whole(u32);

impl Power for Whole {
    #[inline(always)]
    unsafe fn powers<V: Vector>(&self, e: V) -> (V, V) {
        let mut less = e;
        for _ in 2..self.0 {
            less = less.mul(e);
        }
        (less, less.mul(e))
    }
    #[inline(always)]
    unsafe fn split<V: Vector>(&self, y: V) -> (V, V) {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Any(1.0 / self.0 as f32).split(y) }
    }
}

/// Calls a function with the power of `m`.
macro_rules! by_power {
    ($m:expr, $call:ident::<$v:ident>($($arg:expr),*)) => {{
        let n = (1.0 / $m).round();
        if $m == 0.5 {
            $call::<$v, Square>(Square, $($arg),*)
        } else if n <= 8.0 && ($m * n - 1.0).abs() < 1e-9 && n >= 2.0 {
            $call::<$v, Whole>(Whole(n as u32), $($arg),*)
        } else {
            $call::<$v, Any>(Any($m as f32), $($arg),*)
        }
    }};
}

/// One row.
///
/// # Safety
/// The CPU has the instruction set of `V`; `out` is as long as `z`.
pub(crate) unsafe fn row<V: Vector>(z: &[f32], out: &mut [f32], m: f64, gamma: f64, work: &mut Work) -> Status {
    let (list, index) = work.lists(z.len().min(ROOM));
    let place = (z.as_ptr(), out.as_mut_ptr(), z.len());
    // SAFETY: the lists hold a row or `ROOM` entries, and two vectors; the caller vouches for the instruction set.
    let max = unsafe { by_power!(m, solve_row::<V>(place, m, gamma, list, index)) };
    let status = Status::of_max(max);
    if status != Status::Ok {
        out.fill(status.fill());
    }
    status
}

/// Replaces the scores of a row by its probabilities; one that is not fit is filled.
///
/// # Safety
/// The CPU has the instruction set of `V`; the row holds an entry.
pub(crate) unsafe fn in_place<V: Vector>(x: &mut [f32], m: f64, gamma: f64) -> Status {
    // SAFETY: as the caller vouches.
    let status = Status::of_max(unsafe { by_power!(m, replace_row::<V>((x.as_mut_ptr(), x.len()), m, gamma)) });
    if status != Status::Ok {
        x.fill(status.fill());
    }
    status
}

outlined! {
    /// Maximum of a row, NaN if it holds one; puts the probabilities in its place if it is finite.
    ///
    /// # Safety
    /// The row is readable and writable; the CPU has the instruction set of `V`.
    unsafe fn replace_row<V, P: Power>(power: P, row: (*mut f32, usize), m: f64, gamma: f64) -> f32 => replace_row_any
}

/// # Safety
/// As [`replace_row`].
#[inline(always)]
unsafe fn replace_row_any<V: Vector, P: Power>(power: P, (x, d): (*mut f32, usize), m: f64, gamma: f64) -> f32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let max = row_max::<V>(x, d);
        if max.is_finite() {
            all_in_place::<V, P>(power, (x, x, d), Frame { max, scale: (1.0 / gamma) as f32 }, m);
        }
        max
    }
}

/// Writes the probabilities of a row of which all entries are looked at: of scores, to the same place or another.
///
/// # Safety
/// The row is readable, its place writable for as many floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn all_in_place<V: Vector, P: Power>(
    power: P,
    (z, out, d): (*const f32, *mut f32, usize),
    frame: Frame,
    m: f64,
) {
    // SAFETY: as the caller vouches.
    unsafe {
        for k in 0..d {
            *out.add(k) = (*z.add(k) - frame.max) * frame.scale;
        }
        let factor = weigh::<V, P>(power, out, d, m);
        for k in 0..d {
            *out.add(k) *= factor;
        }
    }
}

outlined! {
    /// Maximum of a row, NaN if it holds one; writes the probabilities if it is finite.
    ///
    /// # Safety
    /// The row is readable, its place writable for as many floats, `list` and `index` for as many, or [`ROOM`], and
    /// `2·LANES` more; the CPU has the instruction set of `V`.
    unsafe fn solve_row<V, P: Power>(
        power: P,
        row: (*const f32, *mut f32, usize),
        m: f64,
        gamma: f64,
        list: *mut f32,
        index: *mut u32,
    ) -> f32 => solve_row_any
}

/// # Safety
/// As [`solve_row`].
#[inline(always)]
unsafe fn solve_row_any<V: Vector, P: Power>(
    power: P,
    (z, out, d): (*const f32, *mut f32, usize),
    m: f64,
    gamma: f64,
    list: *mut f32,
    index: *mut u32,
) -> f32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let max = row_max::<V>(z, d);
        if !max.is_finite() {
            return max;
        }
        let frame = Frame { max, scale: (1.0 / gamma) as f32 };
        let least = cut(-1.0, frame);
        let Some(n) = collect_few::<V>(z, d, least, ROOM, list, index) else {
            all_in_place::<V, P>(power, (z, out, d), frame, m);
            return max;
        };
        make_ready::<V>(list, n, frame);
        let factor = weigh::<V, P>(power, list, n, m);
        if n == d {
            for k in 0..n {
                *out.add(k) = *list.add(k) * factor;
            }
            return max;
        }
        std::ptr::write_bytes(out, 0, d);
        for k in 0..n {
            *out.add(*index.add(k) as usize) = *list.add(k) * factor;
        }
        max
    }
}

/// Turns `n` entries `x` into `u`; returns the factor that makes them probabilities.
///
/// # Safety
/// `x` is readable and writable for `n` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn weigh<V: Vector, P: Power>(power: P, x: *mut f32, n: usize, m: f64) -> f32 {
    // SAFETY: as the caller vouches.
    unsafe {
        let at = At::<V>::new(Tau::new(root::<V, P>(power, x, n, m)));
        let mut total = V::wide_zero();
        let mut i = 0;
        while i < n {
            let u = power.powers(at.excess(entries::<V>(x.add(i), n - i))).1;
            total = V::wide_add(total, u);
            write(u, x.add(i), (n - i).min(V::LANES));
            i += V::LANES;
        }
        (1.0 / V::wide_total(total)) as f32
    }
}

/// The next vector of entries, of which `left` are left; −∞ behind the last.
///
/// # Safety
/// `x` is readable for `left` floats, or a vector if those are more; the CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn entries<V: Vector>(x: *const f32, left: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe { if left >= V::LANES { V::load(x) } else { V::load_first(x, left, f32::NEG_INFINITY) } }
}

/// τ of `n` entries whose maximum is 0.
///
/// # Safety
/// `x` is readable for `n` floats.
#[inline(always)]
unsafe fn root<V: Vector, P: Power>(power: P, x: *const f32, n: usize, m: f64) -> f64 {
    if n == 1 {
        return -1.0;
    }
    // The threshold of a uniform row, −n^{−2m/(1+m)}, is the largest there is, and not above −1/n.
    let (mut low, mut high) = (-1.0f64, -1.0 / n as f64);
    // About where scores of scale 1 have it; the bracket catches what it is wrong about.
    let mut tau = -1.0 / (n as f64).sqrt().sqrt();
    for _ in 0..64 {
        // SAFETY: as the caller vouches.
        let (a, b, c) = unsafe { moments::<V, P>(power, x, n, tau) };
        // Newton's step `(1 − 1/f)·f/(−f′)`, in one division. Far to the right all powers vanish: 0/0 is a step
        // too far.
        let (above, below) = excess(a, b, m);
        let step = above * b * m / (below * (c * b - (1.0 - m) * a * a));
        if step > 0.0 {
            low = tau;
        } else {
            high = tau;
        }
        let next = tau + step;
        let is_small = step.abs() <= 4e-4 * m * -tau && remainder(step, n, (a, b, c), m) <= NOISE;
        if is_small || step.abs() * c <= NOISE * m * a {
            return next.clamp(low, high);
        }
        tau = if next >= low && next <= high { next } else { 0.5 * (low + high) };
        if high - low <= 1e-9 * -tau {
            break;
        }
    }
    tau
}

/// How much, relative to it, `A·B^{…}` may be off: that is about how far off a probability is.
const NOISE: f64 = 3e-7;

/// What a step of Newton may leave, relative to the sums: the rest of their Taylor series, with `q = 1/m`.
///
/// For `q ≤ 2` an entry of `A` leaves at most `s^q`, be it in the support before, afterwards, or both: a crowd next to the
/// threshold counts, however far its `e` are below the largest. Beyond, `½q(q−1)·e^{q−2}·s²` as well, and
/// `Σe^{q−2} ≤ n^{2/q}·A^{1−2/q}` by Hölder. An entry of `B` leaves `½q(q+1)·e^{q−1}·s²`.
fn remainder(step: f64, n: usize, (a, b, c): (f64, f64, f64), m: f64) -> f64 {
    let (q, s, n) = (1.0 / m, step.abs(), n as f64);
    let entering = if m == 0.5 { n * s * s } else { n * s.powf(q) };
    let staying = if q > 2.0 { 0.5 * q * (q - 1.0) * n.powf(2.0 * m) * a.powf(1.0 - 2.0 * m) * s * s } else { 0.0 };
    (entering + staying) / a + 0.5 * q * (q + 1.0) * c * s * s / b
}

/// `A·(1 − 1/f) = A − B^{(1−m)/(1+m)}`, as a fraction.
///
/// At p = 3/2 the power is a cube root. Near the root of `f` its third-order approximation around 1,
/// `ρ^{1/3} ≈ (1 + 2ρ)/(2 + ρ)` with `ρ = B/A³`, takes Newton as far.
#[inline(always)]
fn excess(a: f64, b: f64, m: f64) -> (f64, f64) {
    if m != 0.5 {
        return (a - ((1.0 - m) / (1.0 + m) * b.ln()).exp(), 1.0);
    }
    let cube = a * a * a;
    if 4.0 * b > cube && 4.0 * cube > b { (a * (cube - b), 2.0 * cube + b) } else { (a - b.cbrt(), 1.0) }
}

/// `A`, `B` and `C` of the file's head.
///
/// # Safety
/// As [`root`].
#[inline(always)]
unsafe fn moments<V: Vector, P: Power>(power: P, x: *const f32, n: usize, tau: f64) -> (f64, f64, f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (at, zero) = (At::<V>::new(Tau::new(tau)), V::splat(0.0));
        let mut wide = [V::wide_zero(); 3];
        let mut i = 0;
        while i < n {
            let end = n.min(i + 2 * BLOCK * V::LANES);
            let mut sums = [[zero; 3]; 2];
            while i < end {
                for (k, sum) in sums.iter_mut().enumerate() {
                    // The second vector of the last pair may lie behind the list.
                    if k == 1 && i + V::LANES >= end {
                        break;
                    }
                    let e = at.excess(entries::<V>(x.add(i + k * V::LANES), n - i - k * V::LANES));
                    let (c, a) = power.powers(e);
                    sum[0] = sum[0].add(a);
                    sum[1] = a.fma(e, sum[1]);
                    sum[2] = sum[2].add(c);
                }
                i += 2 * V::LANES;
            }
            for k in 0..3 {
                wide[k] = V::wide_add(wide[k], sums[0][k].add(sums[1][k]));
            }
        }
        (V::wide_total(wide[0]), V::wide_total(wide[1]), V::wide_total(wide[2]))
    }
}

/// `Jᵀv = Jv` of one row.
///
/// # Safety
/// The slices are of one length; the CPU has the instruction set of `V`.
pub(crate) unsafe fn backward<V: Vector>((y, v): (&[f32], &[f32]), out: &mut [f32], m: f64, gamma: f64) {
    let row = (y.as_ptr(), v.as_ptr(), out.as_mut_ptr(), y.len());
    // SAFETY: as the caller vouches.
    unsafe { by_power!(m, backward_row::<V>(row, m, gamma)) }
}

outlined! {
    /// # Safety
    /// As [`backward`], by pointer and length.
    unsafe fn backward_row<V, P: Power>(
        power: P,
        row: (*const f32, *const f32, *mut f32, usize),
        m: f64,
        gamma: f64,
    ) -> () => backward_row_any
}

/// # Safety
/// As [`backward_row`].
#[inline(always)]
unsafe fn backward_row_any<V: Vector, P: Power>(
    power: P,
    (y, v, out, d): (*const f32, *const f32, *mut f32, usize),
    m: f64,
    gamma: f64,
) {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        // Σy, Σy^{1+m}, Σy^{1−m}, Σy·v, Σy^{1−m}·v.
        let mut wide = [V::wide_zero(); 5];
        let mut i = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(y.add(i), n, 0.0);
            let live = q.gt(zero);
            if V::bits(live) != 0 {
                let g = V::load_first(v.add(i), n, 0.0).keep(live);
                let (less, part) = power.split(q);
                for (k, term) in [q, q.mul(part), less, q.mul(g), less.mul(g)].into_iter().enumerate() {
                    wide[k] = V::wide_add(wide[k], term);
                }
            }
            i += n;
        }
        let [all, lift, drop, along_y, along] = wide.map(|sum| V::wide_total(sum));
        if all.is_nan() || all <= 0.0 {
            std::slice::from_raw_parts_mut(out, d).fill(0.0);
            return;
        }
        // σ = lift·y^{1−m}, η = σ − (1−m)·y and w = v − centre, so that <y, w> = 0.
        let centre = along_y / all;
        let share = lift * (along - centre * drop) / (lift * drop - (1.0 - m) * all);
        let scale = 1.0 / (gamma * m * lift.powf(2.0 / (1.0 + m)));
        let (sigma, linear) = ((scale * lift) as f32, (scale * (1.0 - m) * share) as f32);
        let (sigma, linear, level) = (V::splat(sigma), V::splat(linear), V::splat((centre + share) as f32));
        let mut i = 0;
        while i < d {
            let n = (d - i).min(V::LANES);
            let q = V::load_first(y.add(i), n, 0.0);
            let live = q.gt(zero);
            let mut g = zero;
            if V::bits(live) != 0 {
                let w = V::load_first(v.add(i), n, 0.0).keep(live).sub(level);
                g = power.split(q).0.mul(sigma).mul(w).add(q.mul(linear)).keep(live);
            }
            if n == V::LANES {
                g.store(out.add(i))
            } else {
                g.store_first(out.add(i), n)
            }
            i += n;
        }
    }
}
