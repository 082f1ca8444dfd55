//! Sparsemax and 1.5-entmax of long rows with many candidates: a few sweeps over the whole row.
//!
//! Plainly: guess τ from a sample, take the sums of a Newton step over all entries until τ stands, write
//! `[x − τ]₊^e`. A sweep costs as little as reading: τ is measured in the units of `scale·z`, so that an entry takes
//! one product, one maximum and its sums; and the fewer sweeps the better. Not even the maximum of the row is asked for: a
//! score that is +∞ shows in the sums, and NaN where probabilities are written; then the row is left to others.
//!
//! If the sample finds a minority in the support, one sweep lists whatever may be in it, and the rest is done on the list
//! (`shortlist.rs`). Else, for 1.5-entmax the number of entries in the support is taken along in the first sweep. With it,
//! what is left of `Σu² = 1` is a parabola that is exact while the support stands, so that an error of the guess comes back
//! as its third power. For sparsemax, what is next to the threshold is listed (`band.rs`).

use super::profile::{Direct, Tau};
use super::solve::{Frame, floor32};
use super::vector::{Vector, outlined};
use super::{band, shortlist};

/// Largest `|scale·z|` of a row's maximum, and largest |τ|, for which τ is kept in the units of `scale·z`.
pub(super) const LARGE: f32 = 8192.0;

/// Largest `|scale·z|` for which a τ rounded to f32 is as good as any to take sums at.
const FINE: f64 = 4.0;

/// Sweeps before the slower, safer way is taken.
const SWEEPS: usize = 12;

/// Groups of four vectors whose terms are summed in f32 before the sums move to f64.
const BLOCK: usize = 16;

/// Vectors in a sample.
const SAMPLE: (usize, usize) = (32, 128);

/// Steps on the sample at most.
const SAMPLE_STEPS: usize = 8;

/// How far the mass above the last threshold of a sample may be from its share, by a factor.
const SAMPLED: f64 = 1.2;

/// Standard deviations by which the threshold of a sample may be off.
const DEVIATIONS: f64 = 2.0;

/// Rows up to this long are asked for while the one before is written: two of them fit well into a second-level cache.
const NEXT: usize = 65_536;

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
    pub(super) many: f64,
}

/// `gain·p` of a row from a `start` that is not right of τ; returns τ, measured like the start from the maximum of the
/// frame, be it that of the row or not, and `Σ p·u` of a loss; or `None` if the row is not for this way: then `out` may hold
/// anything.
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
        if tau.abs() >= f64::from(LARGE) {
            return None;
        }
        let stream = stream && out.align_offset(V::LANES * size_of::<f32>()) == 0;
        let pu = write::<V, P>(prof, row, Output { out, stream, gain }, Tau::new(tau))?;
        Some((Tau::new(tau - top), pu))
    }
}

/// τ in the units of `scale·z`; `None` if it does not settle.
///
/// # Safety
/// As [`row`].
unsafe fn root<V: Vector, P: Direct>(prof: P, row: Row, start: f64, list: *mut f32) -> Option<f64> {
    // SAFETY: as the caller vouches.
    unsafe {
        let guess = sample::<V, P>(prof, row, start as f32);
        if !guess.tau.is_finite() {
            return None;
        }
        if let Some(tau) = shortlist::root::<V, P>(prof, row, start, guess, list) {
            return Some(tau);
        }
        match P::CURVED {
            true => steps::<V, P>(prof, row, start, guess.tau),
            false => band::root::<V, P>(prof, row, start, guess, list),
        }
    }
}

/// τ by steps from a guess, each of which is a sweep.
///
/// # Safety
/// As [`row`].
unsafe fn steps<V: Vector, P: Direct>(prof: P, row: Row, start: f64, guess: f64) -> Option<f64> {
    let mut tau = start.max(guess);
    let mut before = f64::INFINITY;
    for n in 0..SWEEPS {
        let fine = tau.abs() >= FINE;
        if !fine {
            tau = f64::from(floor32(tau));
        }
        // SAFETY: as the caller vouches.
        let sums = unsafe { sums::<V, P>(prof, row, Tau::new(tau), Ask { count: n == 0, fine }) };
        if !sums.f.is_finite() {
            return None;
        }
        if sums.g <= 0.0 {
            // Right of all entries.
            if tau <= start {
                return None;
            }
            tau = start;
            continue;
        }
        let step = prof.leap(sums);
        tau = start.max(tau + step);
        if prof.is_swept(sums, before, step, row.d as f64) {
            return Some(tau);
        }
        // After a step back nothing is known of the slope.
        before = if step < 0.0 { f64::INFINITY } else { sums.g };
    }
    None
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
        let (mut tau, mut left, mut many, mut slope) = (start, start, 0.0, 0.0);
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
            (many, slope) = (f64::from(count) * share, g);
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
        // A sum of n terms that are scattered like those of a tail is off by √(2/n) of itself, one of their squares by
        // √(6/n), and it falls by as much over as large a part of their mean.
        let (spread, mean) = if P::CURVED { (6.0, slope / many) } else { (2.0, 1.0 / many) };
        let margin = DEVIATIONS * (spread * share / many).sqrt() * mean;
        Guess { tau: f64::from(tau), margin, many }
    }
}

/// Sums of a step, lane by lane, four of each so that none waits for the one before.
pub(super) struct Lanes<V> {
    f: [V; 4],
    g: [V; 4],
    n: [V; 4],
}

impl<V: Vector> Lanes<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
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
    pub(super) unsafe fn add<P: Direct, const COUNT: bool>(&mut self, prof: P, k: usize, u: V) {
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
    pub(super) fn total<P: Direct>(&self) -> [V; 3] {
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
pub(super) unsafe fn sums_of<V: Vector, P: Direct, const COUNT: bool, const FINE: bool>(
    prof: P,
    row: Row,
    tau: Tau,
) -> Sums {
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

/// Where probabilities go, and how.
#[derive(Clone, Copy)]
struct Output {
    out: *mut f32,
    stream: bool,
    /// Factor on the probabilities of a loss.
    gain: Option<f32>,
}

outlined! {
    /// The probabilities; `Σ p·u` of a loss. `None` if a score is NaN.
    ///
    /// # Safety
    /// As [`row`].
    unsafe fn write<V, P: Direct>(prof: P, row: Row, output: Output, tau: Tau) -> Option<f64> => write_any
}

/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_any<V: Vector, P: Direct>(prof: P, row: Row, output: Output, tau: Tau) -> Option<f64> {
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
) -> Option<f64> {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (scale, zero, gain) = (V::splat(row.scale), V::splat(0.0), V::splat(gain));
        let (hi, lo) = (V::splat(-tau.hi), V::splat(-tau.lo));
        let (mut wide, mut nan) = (V::wide_zero(), zero.gt(zero));
        // Writing past the caches leaves time to read what is likely to be the next row.
        let is_next_asked = STREAM && row.d <= NEXT;
        let mut i = 0;
        while i < row.d {
            let mut sum = [zero; 2];
            let end = row.d.min(i + 2 * V::LANES * BLOCK);
            while i + 2 * V::LANES <= end {
                let z = [V::load(row.z.add(i)), V::load(row.z.add(i + V::LANES))];
                nan = V::or(nan, z[0].unordered(z[1]));
                for k in 0..2 {
                    if is_next_asked {
                        V::prefetch(row.z.wrapping_add(row.d + i + k * V::LANES));
                    }
                    let u = z[k].fma(scale, hi).add(lo).max(zero);
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
                let z = V::load_first(row.z.add(i), n, f32::NEG_INFINITY);
                nan = V::or(nan, z.unordered(z));
                let u = z.fma(scale, hi).add(lo).max(zero);
                let p = prof.power(u);
                sum[0] = p.fma(u, sum[0]);
                if LOSS { p.mul(gain) } else { p }.store_first(out.add(i), n);
                i += n;
            }
            if LOSS {
                wide = V::wide_add(wide, sum[0].add(sum[1]));
            }
        }
        (V::bits(nan) == 0).then(|| if LOSS { V::wide_total(wide) } else { 0.0 })
    }
}
