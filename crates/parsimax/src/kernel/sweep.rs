//! Sparsemax and 1.5-entmax of long rows with many candidates: a few sweeps over the whole row, and no list.
//!
//! Plainly: guess τ from a sample, take the sums of a Newton step over all entries until τ stands, write
//! `[x − τ]₊^e`. A sweep costs as little as reading: τ is measured in the units of `scale·z`, so that an entry takes
//! one product, one maximum and its sums; and the fewer sweeps the better. For 1.5-entmax the number of entries in
//! the support is taken along in the first one. With it, what is left of `Σu² = 1` is a parabola that is exact while
//! the support stands, so that an error of the guess comes back as its third power. For sparsemax a step is exact while
//! the support stands, and how many steps that takes depends on the few entries next to the threshold. If the sample
//! finds a minority in the support, one sweep lists whatever may be in it, and the rest is done on the list
//! (`shortlist.rs`); else the second sweep lists what is between a bound on either side of the threshold.

use super::profile::{Direct, STEPS, Tau};
use super::shortlist;
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

/// How far the mass above the last threshold of a sample may be from its share, by a factor.
const SAMPLED: f64 = 1.2;

/// Standard deviations by which the threshold of a sample may be off.
const DEVIATIONS: f64 = 2.5;

/// The part of a row in the support from which on a list of it is not worth its making.
const FEW: f64 = 0.25;

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
pub(super) struct Row {
    pub(super) z: *const f32,
    pub(super) d: usize,
    pub(super) scale: f32,
}

/// What a sample tells of a row.
#[derive(Clone, Copy)]
pub(super) struct Guess {
    /// The threshold.
    pub(super) tau: f64,
    /// By how much it may well be too high.
    pub(super) margin: f64,
    /// How many entries of the row are above it.
    many: f64,
}

/// `gain·p` of a row from a `start` that is not right of τ; returns τ, measured from the maximum, and `Σ p·u` of a loss,
/// or `None` if the row is not for this way: then nothing was written.
///
/// # Safety
/// `z` is readable and `out` writable for `d` floats, and they do not overlap; `list` is writable for
/// [`shortlist::ROOM`] floats, or for `d` if that is less, and a vector more; the CPU has the instruction set of `V`.
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
    let guess = unsafe { sample::<V, P>(prof, row, start as f32) };
    if P::LOOKS_TWICE && guess.many <= FEW * row.d as f64 {
        // SAFETY: as above.
        if let Some(tau) = unsafe { shortlist::root::<V, P>(prof, row, start, guess, list) } {
            return Some(tau);
        }
    }
    let mut tau = start.max(guess.tau);
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
    unsafe fn sample<V, P: Direct>(prof: P, row: Row, start: f32) -> Guess => sample_any
}

/// # Safety
/// As [`sample`].
#[inline(always)]
unsafe fn sample_any<V: Vector, P: Direct>(prof: P, row: Row, start: f32) -> Guess {
    // SAFETY: the last vector ends within the row.
    unsafe {
        let vectors = (row.d / (16 * V::LANES)).clamp(SAMPLE.0, SAMPLE.1) & !3;
        let stride = (row.d - V::LANES) / (vectors - 1);
        let share = row.d as f64 / (vectors * V::LANES) as f64;
        let (scale, zero) = (V::splat(row.scale), V::splat(0.0));
        // Where Newton's step leads that is not right of the root of the sample.
        let (mut tau, mut left, mut many) = (start, start, 0.0);
        for n in 0..SAMPLE_STEPS {
            let back = V::splat(-tau);
            let mut sums = Lanes::<V>::new();
            for i in (0..vectors).step_by(4) {
                for k in 0..4 {
                    let u = V::load(row.z.add((i + k) * stride)).fma(scale, back).positive();
                    sums.add::<P, true>(prof, k, u);
                }
            }
            let [f, g, above] = sums.total::<P>();
            let (f, g) = f.totals(g);
            let count = if P::CURVED { above.totals(zero).0 } else { g };
            let (f, g) = (f64::from(f) * share, f64::from(g) * share);
            if g <= 0.0 {
                tau = left;
                continue;
            }
            many = f64::from(count) * share;
            if f >= 1.0 {
                left = tau + prof.step_wide(f, g) as f32;
            }
            tau += match n {
                _ if P::CURVED => prof.leap(Sums { f, g, count: Some(many) }),
                0 => prof.step_wide(f, g),
                // Tails fall more quickly than lines: Newton's step for the root of the sum is exact for flat ones.
                _ => 2.0 * (f - f.sqrt()) / g,
            } as f32;
            if f <= SAMPLED && f * SAMPLED >= 1.0 {
                break;
            }
        }
        // A sum of n terms that are scattered like those of a tail is off by √(2/n) of itself, and the terms are its
        // n-th part.
        let margin = DEVIATIONS * (2.0 * share / many).sqrt() / many;
        Guess { tau: f64::from(tau), margin, many }
    }
}

/// Sums of a step, lane by lane, four of each so that none waits for the one before.
struct Lanes<V> {
    f: [V; 4],
    g: [V; 4],
    n: [V; 4],
}

impl<V: Vector> Lanes<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Self {
        // SAFETY: as the caller vouches.
        let zero = unsafe { V::splat(0.0) };
        Self { f: [zero; 4], g: [zero; 4], n: [zero; 4] }
    }
    /// Adds the terms of `u` in place `k`, and with `COUNT` counts those above 0. Of sparsemax, their number is the
    /// slope.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add<P: Direct, const COUNT: bool>(&mut self, prof: P, k: usize, u: V) {
        // SAFETY: as the caller vouches.
        unsafe {
            if P::CURVED {
                (self.f[k], self.g[k]) = prof.gather(u, self.f[k], self.g[k], V::splat(1.0));
            } else {
                self.f[k] = self.f[k].add(u);
            }
            if COUNT || !P::CURVED {
                self.n[k] = self.n[k].tally(u.gt(V::splat(0.0)));
            }
        }
    }
    /// `Σf`, `Σg` and the number of entries, as far as they were asked for.
    #[inline(always)]
    fn total<P: Direct>(&self) -> [V; 3] {
        let Self { f, g, n } = self;
        let count = (n[0].tallied().add(n[1].tallied())).add(n[2].tallied().add(n[3].tallied()));
        let slope = if P::CURVED { g[0].add(g[1]).add(g[2].add(g[3])) } else { count };
        [f[0].add(f[1]).add(f[2].add(f[3])), slope, count]
    }
}
/// What is asked of a sweep.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    /// The number of entries in the support, too.
    pub(super) count: bool,
    /// At a τ of two floats; else at its first.
    pub(super) fine: bool,
}

outlined! {
    /// `Σf`, `Σg` and, if asked for, the number of entries in the support.
    ///
    /// # Safety
    /// As [`row`].
    pub(super) unsafe fn sums<V, P: Direct>(prof: P, row: Row, tau: Tau, ask: Ask) -> Sums => sums_any
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
        let scale = V::splat(row.scale);
        let (hi, lo) = (V::splat(-tau.hi), V::splat(-tau.lo));
        let mut wide = [V::wide_zero(); 3];
        macro_rules! excess {
            ($z:expr) => {{
                let u = $z.fma(scale, hi);
                if FINE { u.add(lo) } else { u }.positive()
            }};
        }
        let (group, mut i) = (4 * V::LANES, 0);
        while i < row.d {
            let mut sums = Lanes::<V>::new();
            let end = row.d.min(i + group * BLOCK);
            while i + group <= end {
                for k in 0..4 {
                    sums.add::<P, COUNT>(prof, k, excess!(V::load(row.z.add(i + k * V::LANES))));
                }
                i += group;
            }
            while i < end && end == row.d {
                let len = (end - i).min(V::LANES);
                sums.add::<P, COUNT>(prof, 0, excess!(V::load_first(row.z.add(i), len, f32::NEG_INFINITY)));
                i += len;
            }
            let total = sums.total::<P>();
            for k in 0..3 {
                wide[k] = V::wide_add(wide[k], total[k]);
            }
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
