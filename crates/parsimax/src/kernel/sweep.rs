//! Sparsemax and 1.5-entmax of long rows with many candidates: a few sweeps over the whole row, and no list.
//!
//! Plainly: guess τ from a sample, take the sums of a Newton step over all entries until τ stands, write
//! `[x − τ]₊^e`. A sweep costs as little as reading: τ is measured in the units of `scale·z`, so that an entry takes
//! one product, one maximum and its sums; and the fewer sweeps the better. For 1.5-entmax the number of entries in
//! the support is taken along in the first one. With it, what is left of `Σu² = 1` is a parabola that is exact while
//! the support stands, so that an error of the guess comes back as its third power. For sparsemax a step is exact while
//! the support stands, and how many steps that takes depends on the few entries next to the threshold: the second
//! sweep lists those between a bound on either side of it, and the rest is done on them.

use super::profile::{Direct, STEPS, Tau};
use super::solve::{Frame, floor32};
use super::vector::{Vector, outlined};

/// Largest `|scale·z|` of a row's maximum for which τ is kept in the units of `scale·z`.
pub(super) const LARGE: f32 = 8192.0;

/// Largest `|scale·z|` for which a τ rounded to f32 is as good as any to take sums at.
const FINE: f64 = 4.0;

/// Sweeps before the slower, safer way is taken.
const SWEEPS: usize = 12;

/// The part of a step by which the next threshold is looked for further on.
const BEYOND: f64 = 0.25;

/// What rounding may take from a bound.
const WIDER: f64 = 1.0 + 1e-6;

/// Entries next to the threshold that are listed at most.
const LISTED: usize = 1024;

/// Groups of four vectors whose terms are summed in f32 before the sums move to f64.
const BLOCK: usize = 16;

/// Vectors in a sample.
const SAMPLE: (usize, usize) = (32, 128);

/// Steps on the sample at most.
const SAMPLE_STEPS: usize = 8;

/// What a Newton step needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sums {
    /// `Σ u^e`
    pub(crate) f: f64,
    /// Its slope, but for a factor.
    pub(crate) g: f64,
    /// How many entries are in the support, if they were counted.
    pub(crate) count: Option<f64>,
}

/// A row and its scale.
#[derive(Clone, Copy)]
struct Row {
    z: *const f32,
    d: usize,
    scale: f32,
}

/// `gain·p` of a row from a `start` that is not right of τ; returns τ, measured from the maximum, and `Σ p·u` of a loss,
/// or `None` if the row is not for this way: then nothing was written.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, and they do not overlap; `list` is writable for `2·LISTED` floats,
/// or for `d` if that is less, and a vector more; the CPU has the instruction set of `V`.
pub(crate) unsafe fn row<V: Vector, P: Direct>(
    prof: P,
    (z, d): (*const f32, usize),
    (out, stream): (*mut f32, bool),
    frame: Frame,
    start: f64,
    gain: Option<f32>,
    list: *mut f32,
) -> Option<(Tau, f64)> {
    if !V::FUSED || (frame.max * frame.scale).abs() >= LARGE || d < SAMPLE.0 * V::LANES {
        return None;
    }
    let row = Row { z, d, scale: frame.scale };
    let top = f64::from(frame.scale) * f64::from(frame.max);
    // SAFETY: as the caller vouches.
    unsafe {
        let tau = root::<V, P>(prof, row, top + start, list)?;
        let stream = stream && out.align_offset(V::LANES * size_of::<f32>()) == 0;
        let pu = write::<V, P>(prof, row, Output { out, stream, gain }, Tau::new(tau));
        Some((Tau::new(tau - top), pu))
    }
}

/// τ in the units of `scale·z`; `None` if it does not settle.
///
/// # Safety
/// As [`row`].
unsafe fn root<V: Vector, P: Direct>(prof: P, row: Row, start: f64, list: *mut f32) -> Option<f64> {
    // SAFETY: as the caller vouches.
    let mut tau = start.max(unsafe { sample::<V, P>(prof, row, start as f32) });
    let mut before = f64::INFINITY;
    // How far below the next τ the root is not, if that is known.
    let mut depth: Option<f64> = None;
    for n in 0..SWEEPS {
        let fine = tau.abs() >= FINE;
        if !fine {
            tau = f64::from(floor32(tau));
        }
        let ask = Ask { count: n == 0 && P::CURVED, fine };
        let mut is_crowded = false;
        let sums = match depth.take() {
            // SAFETY: as above.
            None => unsafe { sums::<V, P>(prof, row, Tau::new(tau), ask) },
            Some(depth) => {
                // SAFETY: as above.
                let (sums, listed) = unsafe { narrow::<V, P>(prof, row, Tau::new(tau), -depth as f32, list) };
                is_crowded = listed > LISTED;
                if !is_crowded && sums.f <= 1.0 {
                    // SAFETY: so many were listed.
                    return Some(tau + unsafe { settle::<V, P>(prof, (list, listed), sums, -depth) });
                }
                sums
            }
        };
        if sums.g <= 0.0 {
            // Right of all entries.
            if tau <= start {
                return None;
            }
            tau = start;
            continue;
        }
        let step = prof.leap(sums);
        let next = start.max(tau + step);
        if prof.is_swept(sums, before, step, row.d as f64) {
            return Some(next);
        }
        if P::LOOKS_TWICE && sums.f > 1.0 {
            // A step leaves a small part of itself to the next one: not far right of where it leads is the root.
            let beyond = BEYOND * step;
            (tau, depth) = (next + beyond, Some(beyond * WIDER));
        } else if P::LOOKS_TWICE && !is_crowded {
            // The root is between the two.
            depth = Some((tau - next) * WIDER);
        } else {
            tau = next;
        }
        // After a step back nothing is known of the slope.
        before = if step < 0.0 { f64::INFINITY } else { sums.g };
    }
    None
}

/// τ less the threshold `s` at which sums were taken, given a lower bound on it and the entries between, as `x − s`.
///
/// # Safety
/// `list` is readable for `n` floats; the CPU has the instruction set of `V`.
unsafe fn settle<V: Vector, P: Direct>(prof: P, (list, n): (*const f32, usize), above: Sums, bound: f64) -> f64 {
    let (mut tau, mut before) = (bound, f64::INFINITY);
    for _ in 0..STEPS {
        let at = Tau::new(tau);
        let between = Row { z: list, d: n, scale: 1.0 };
        // SAFETY: as the caller vouches.
        let sums = unsafe { sums::<V, P>(prof, between, at, Ask { count: false, fine: true }) };
        // Those above have as much more as the threshold is lower.
        let (f, g) = (sums.f + above.f - above.g * at.value(), sums.g + above.g);
        tau = at.value() + prof.step_wide(f, g);
        if g >= before {
            break;
        }
        before = g;
    }
    tau
}

outlined! {
    /// A guess at τ: the root for some vectors of the row and as small a share of the mass. Not a bound: the sample
    /// may be lucky or unlucky.
    ///
    /// # Safety
    /// As [`row`].
    unsafe fn sample<V, P: Direct>(prof: P, row: Row, start: f32) -> f64 => sample_any
}

/// # Safety
/// As [`sample`].
#[inline(always)]
unsafe fn sample_any<V: Vector, P: Direct>(prof: P, row: Row, start: f32) -> f64 {
    // SAFETY: the last vector ends within the row.
    unsafe {
        let vectors = (row.d / (16 * V::LANES)).clamp(SAMPLE.0, SAMPLE.1) & !1;
        let stride = (row.d - V::LANES) / (vectors - 1);
        let share = row.d as f32 / (vectors * V::LANES) as f32;
        let (scale, zero, one) = (V::splat(row.scale), V::splat(0.0), V::splat(1.0));
        let mut tau = start;
        for _ in 0..SAMPLE_STEPS {
            let back = V::splat(-tau);
            let (mut f, mut g, mut n) = ([zero; 2], [zero; 2], [zero; 2]);
            for i in (0..vectors).step_by(2) {
                for k in 0..2 {
                    let u = V::load(row.z.add((i + k) * stride)).fma(scale, back).max(zero);
                    (f[k], g[k]) = prof.gather(u, f[k], g[k], one);
                    if P::CURVED {
                        n[k] = n[k].add(one.keep(u.gt(zero)));
                    }
                }
            }
            let (f, g) = f[0].add(f[1]).totals(g[0].add(g[1]));
            let (f, g) = (f64::from(f * share), f64::from(g * share));
            if g <= 0.0 || f <= 1.001 {
                break;
            }
            let count = P::CURVED.then(|| f64::from(n[0].add(n[1]).totals(zero).0 * share));
            tau += prof.leap(Sums { f, g, count }) as f32;
            if f <= 1.05 {
                break;
            }
        }
        f64::from(tau)
    }
}

/// What is asked of a sweep.
#[derive(Clone, Copy)]
struct Ask {
    /// The number of entries in the support, too.
    count: bool,
    /// At a τ of two floats; else at its first.
    fine: bool,
}

outlined! {
    /// `Σf`, `Σg` and, if asked for, the number of entries in the support.
    ///
    /// # Safety
    /// As [`row`].
    unsafe fn sums<V, P: Direct>(prof: P, row: Row, tau: Tau, ask: Ask) -> Sums => sums_any
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn sums_any<V: Vector, P: Direct>(prof: P, row: Row, tau: Tau, ask: Ask) -> Sums {
    // SAFETY: as the caller vouches.
    unsafe {
        match ask {
            Ask { count: true, fine: true } => sums_of::<V, P, true, true>(prof, row, tau),
            Ask { count: true, fine: false } => sums_of::<V, P, true, false>(prof, row, tau),
            Ask { count: false, fine: true } => sums_of::<V, P, false, true>(prof, row, tau),
            Ask { count: false, fine: false } => sums_of::<V, P, false, false>(prof, row, tau),
        }
    }
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn sums_of<V: Vector, P: Direct, const COUNT: bool, const FINE: bool>(prof: P, row: Row, tau: Tau) -> Sums {
    // SAFETY: every load stays within `d` floats.
    unsafe {
        let (scale, zero, one) = (V::splat(row.scale), V::splat(0.0), V::splat(1.0));
        let (hi, lo) = (V::splat(-tau.hi), V::splat(-tau.lo));
        let mut wide = [V::wide_zero(); 3];
        macro_rules! gather {
            ($z:expr, $f:expr, $g:expr, $n:expr) => {
                let u = $z.fma(scale, hi);
                let u = if FINE { u.add(lo) } else { u }.max(zero);
                ($f, $g) = prof.gather(u, $f, $g, one);
                if COUNT {
                    $n = $n.add(one.keep(u.gt(zero)));
                }
            };
        }
        let (group, mut i) = (4 * V::LANES, 0);
        while i < row.d {
            let (mut f, mut g, mut n) = ([zero; 4], [zero; 4], [zero; 2]);
            let end = row.d.min(i + group * BLOCK);
            while i + group <= end {
                for k in 0..4 {
                    gather!(V::load(row.z.add(i + k * V::LANES)), f[k], g[k], n[k % 2]);
                }
                i += group;
            }
            while i < end && end == row.d {
                let len = (end - i).min(V::LANES);
                gather!(V::load_first(row.z.add(i), len, f32::NEG_INFINITY), f[0], g[0], n[0]);
                i += len;
            }
            wide[0] = V::wide_add(wide[0], f[0].add(f[1]).add(f[2].add(f[3])));
            wide[1] = V::wide_add(wide[1], g[0].add(g[1]).add(g[2].add(g[3])));
            wide[2] = V::wide_add(wide[2], n[0].add(n[1]));
        }
        let [f, g, count] = [V::wide_total(wide[0]), V::wide_total(wide[1]), V::wide_total(wide[2])];
        Sums { f, g, count: COUNT.then_some(count) }
    }
}

outlined! {
    /// The sums at τ, and the entries that are not above it by less than `−width`, as their distance from it, in `list`:
    /// how many, or more than [`LISTED`] if those were too many.
    ///
    /// # Safety
    /// As [`row`].
    unsafe fn narrow<V, P: Direct>(prof: P, row: Row, tau: Tau, width: f32, list: *mut f32) -> (Sums, usize) => narrow_any
}

/// # Safety
/// As [`narrow`].
#[inline(always)]
unsafe fn narrow_any<V: Vector, P: Direct>(prof: P, row: Row, tau: Tau, width: f32, list: *mut f32) -> (Sums, usize) {
    // SAFETY: every load stays within `d` floats; between two looks at its length, which is at most `LISTED` then, the
    // list grows by as many as are looked at.
    unsafe {
        let (scale, zero, one) = (V::splat(row.scale), V::splat(0.0), V::splat(1.0));
        let (hi, lo, width) = (V::splat(-tau.hi), V::splat(-tau.lo), V::splat(width));
        let mut wide = [V::wide_zero(); 2];
        let (mut n, mut i) = (0, 0);
        let step = 2 * V::LANES;
        while i < row.d {
            let (mut f, mut g) = ([zero; 2], [zero; 2]);
            let end = row.d.min(i + step * BLOCK);
            while i < end {
                let x: [V; 2] = if i + step <= row.d {
                    [V::load(row.z.add(i)), V::load(row.z.add(i + V::LANES))]
                } else {
                    let n = row.d - i;
                    let rest =
                        V::load_first(row.z.add(i + n.min(V::LANES)), n.saturating_sub(V::LANES), f32::NEG_INFINITY);
                    [V::load_first(row.z.add(i), n.min(V::LANES), f32::NEG_INFINITY), rest]
                };
                let x = [x[0].fma(scale, hi).add(lo), x[1].fma(scale, hi).add(lo)];
                let near = [V::and(x[0].gt(width), zero.ge(x[0])), V::and(x[1].gt(width), zero.ge(x[1]))];
                for k in 0..2 {
                    (f[k], g[k]) = prof.gather(x[k].max(zero), f[k], g[k], one);
                }
                if V::bits(V::or(near[0], near[1])) != 0 {
                    n += x[0].compress(near[0], list.add(n));
                    n += x[1].compress(near[1], list.add(n));
                }
                i += step;
            }
            wide[0] = V::wide_add(wide[0], f[0].add(f[1]));
            wide[1] = V::wide_add(wide[1], g[0].add(g[1]));
            if n > LISTED {
                break;
            }
        }
        if n > LISTED {
            return (sums_of::<V, P, false, true>(prof, row, tau), n);
        }
        (Sums { f: V::wide_total(wide[0]), g: V::wide_total(wide[1]), count: None }, n)
    }
}

/// Where probabilities go, and how.
#[derive(Clone, Copy)]
struct Output {
    out: *mut f32,
    stream: bool,
    /// Factor on the probabilities of a loss.
    gain: Option<f32>,
}

outlined! {
    /// The probabilities; `Σ p·u` of a loss.
    ///
    /// # Safety
    /// As [`row`].
    unsafe fn write<V, P: Direct>(prof: P, row: Row, output: Output, tau: Tau) -> f64 => write_any
}

/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_any<V: Vector, P: Direct>(prof: P, row: Row, output: Output, tau: Tau) -> f64 {
    let Output { out, stream, gain } = output;
    // SAFETY: as the caller vouches.
    unsafe {
        match (gain, stream) {
            (None, false) => write_to::<V, P, false, false>(prof, row, out, tau, 1.0),
            (None, true) => write_to::<V, P, false, true>(prof, row, out, tau, 1.0),
            (Some(gain), false) => write_to::<V, P, true, false>(prof, row, out, tau, gain),
            (Some(gain), true) => write_to::<V, P, true, true>(prof, row, out, tau, gain),
        }
    }
}

/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_to<V: Vector, P: Direct, const LOSS: bool, const STREAM: bool>(
    prof: P,
    row: Row,
    out: *mut f32,
    tau: Tau,
    gain: f32,
) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (scale, zero, gain) = (V::splat(row.scale), V::splat(0.0), V::splat(gain));
        let (hi, lo) = (V::splat(-tau.hi), V::splat(-tau.lo));
        let mut wide = V::wide_zero();
        let mut i = 0;
        while i < row.d {
            let mut sum = [zero; 2];
            let end = row.d.min(i + 2 * V::LANES * BLOCK);
            while i + 2 * V::LANES <= end {
                for k in 0..2 {
                    let u = V::load(row.z.add(i + k * V::LANES)).fma(scale, hi).add(lo).max(zero);
                    let mut p = prof.power(u);
                    if LOSS {
                        sum[k] = p.fma(u, sum[k]);
                        p = p.mul(gain);
                    }
                    let to = out.add(i + k * V::LANES);
                    if STREAM { p.stream(to) } else { p.store(to) }
                }
                i += 2 * V::LANES;
            }
            while i < end && end == row.d {
                let n = (end - i).min(V::LANES);
                let u = V::load_first(row.z.add(i), n, f32::NEG_INFINITY).fma(scale, hi).add(lo).max(zero);
                let p = prof.power(u);
                sum[0] = p.fma(u, sum[0]);
                if LOSS { p.mul(gain) } else { p }.store_first(out.add(i), n);
                i += n;
            }
            if LOSS {
                wide = V::wide_add(wide, sum[0].add(sum[1]));
            }
        }
        if LOSS { V::wide_total(wide) } else { 0.0 }
    }
}
