//! α-entmax with any α on long rows: few passes where every term is a power.
//!
//! A power costs as much as reading the entry ten times, so what counts is how often the
//! whole row is evaluated. The root for a sample of the row, with as small a share of the
//! mass, is within a few percent; from there steps of the third order need two passes. One more
//! that only confirms them is left out: how much residual a step leaves is known from the step before.
//!
//! The sample is solved by the same code as any list, by rough powers for a start. With `p = u^{1/δ}` a share `1/s` of the
//! mass is `Σ (s^δ u)^{1/δ} = 1`: the entries are multiplied by `s^δ`, and so is τ.

use super::alpha::{Above, Below};
use super::level::equals;
use super::pair::Pair;
use super::profile::{At, Profile, Slope, Tau};
use super::solve::Frame;
use super::vector::{MAX_LANES, Vector, outlined};

/// Vectors in a sample.
const SAMPLE: usize = 64;

/// Lists at least this many vectors long are sampled first.
const LONG: usize = 4 * SAMPLE;

/// Lists at least this many vectors long are worth rough powers first.
const SHORT: usize = 8;

/// Entries of a row that are looked at together.
const CHUNK: usize = 512;

/// Passes before the slower, safer way is taken.
const PASSES: usize = 10;

/// Four vectors that move together: a power is a chain of some forty dependent operations, and
/// a processor that waits for one looks ahead over three of them at most.
type Four<V> = Pair<Pair<V>>;

/// Terms that a lane adds in f32 before the sum moves to f64.
const BLOCK: usize = 16;

outlined! {
    /// `Σ f(u)` and `Σ g(u)` over `len` entries.
    ///
    /// # Safety
    /// `z` is readable for `len` floats; the CPU has the instruction set of `V`.
    unsafe fn sums<V, P: Slope; READY>(
        prof: P,
        z: *const f32,
        len: usize,
        frame: Frame,
        tau: Tau,
    ) -> (f64, f64) => sums_any
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn sums_any<V: Vector, P: Slope, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    tau: Tau,
) -> (f64, f64) {
    // SAFETY: every load stays within `len` floats.
    unsafe {
        let at = At::new(tau);
        let (max, scale, zero) = (Four::<V>::splat(frame.max), Four::<V>::splat(frame.scale), Four::<V>::splat(0.0));
        let (mut wf, mut wg) = (Four::<V>::wide_zero(), Four::<V>::wide_zero());
        let lanes = Four::<V>::LANES;
        let mut i = 0;
        while i < len {
            let (mut f, mut g) = (zero, zero);
            let end = len.min(i + lanes * BLOCK);
            while i + lanes <= end {
                let x = Four::<V>::load(z.add(i));
                let (a, b) = prof.terms(if READY { x } else { x.sub(max).mul(scale) }, &at);
                f = f.add(a);
                g = g.add(b);
                i += lanes;
            }
            if i < end {
                let x = Four::<V>::load_first(z.add(i), end - i, f32::NEG_INFINITY);
                let (a, b) = prof.terms(if READY { x } else { x.sub(max).mul(scale) }, &at);
                f = f.add(a);
                g = g.add(b);
                i = end;
            }
            wf = Four::<V>::wide_add(wf, f);
            wg = Four::<V>::wide_add(wg, g);
        }
        (Four::<V>::wide_total(wf), Four::<V>::wide_total(wg))
    }
}

outlined! {
    /// `Σp`, `Σ p/u` and `Σ p/u²` over `len` entries.
    ///
    /// # Safety
    /// As [`sums`].
    unsafe fn three_sums<V, P: Profile; READY>(
        prof: P,
        z: *const f32,
        len: usize,
        frame: Frame,
        tau: Tau,
    ) -> (f64, f64, f64) => three_sums_any
}

/// # Safety
/// As [`sums`].
#[inline(always)]
unsafe fn three_sums_any<V: Vector, P: Profile, const READY: bool>(
    prof: P,
    z: *const f32,
    len: usize,
    frame: Frame,
    tau: Tau,
) -> (f64, f64, f64) {
    // SAFETY: every load stays within `len` floats.
    unsafe {
        let (at, lanes) = (At::new(tau), Pair::<V>::LANES);
        let (cut, none, zero) = (At::new(tau), V::splat(f32::NEG_INFINITY), Pair::<V>::splat(0.0));
        let (max, scale) = (V::splat(frame.max), V::splat(frame.scale));
        let mut list = std::mem::MaybeUninit::<[f32; CHUNK + 4 * MAX_LANES]>::uninit();
        let list = list.as_mut_ptr().cast::<f32>();
        let mut wide = [Pair::<V>::wide_zero(); 3];
        for first in (0..len).step_by(CHUNK) {
            // Entries that have no part in the sums cost more in powers than in being left out.
            let (mut i, mut n, end) = (first, 0, len.min(first + CHUNK));
            while i < end {
                let here = (end - i).min(V::LANES);
                let x =
                    if here == V::LANES { V::load(z.add(i)) } else { V::load_first(z.add(i), here, f32::NEG_INFINITY) };
                let x = if READY { x } else { x.sub(max).mul(scale) };
                n += x.compress(cut.is_above(x), list.add(n));
                i += here;
            }
            none.store(list.add(n));
            none.store(list.add(n + V::LANES));
            let (mut f, mut g, mut h) = (zero, zero, zero);
            for k in (0..n).step_by(lanes) {
                let (u, p) = prof.prob(Pair::<V>::load(list.add(k)), &at);
                // Where `p` vanished its quotients do as well.
                let inverse = u.rough_inverse().keep(p.gt(zero));
                let slope = p.mul(inverse);
                f = f.add(p);
                g = g.add(slope);
                h = slope.fma(inverse, h);
            }
            wide = [Pair::<V>::wide_add(wide[0], f), Pair::<V>::wide_add(wide[1], g), Pair::<V>::wide_add(wide[2], h)];
        }
        (Pair::<V>::wide_total(wide[0]), Pair::<V>::wide_total(wide[1]), Pair::<V>::wide_total(wide[2]))
    }
}

outlined! {
    /// `gain · [x − τ]₊^e` for every entry. With `LOSS` returns `Σ p·u`; without, the gain is 1
    /// and nothing is summed.
    ///
    /// # Safety
    /// `z` is readable and `out` writable for `d` floats, and they do not overlap; the CPU has
    /// the instruction set of `V`.
    pub(crate) unsafe fn write<V, P: Profile; LOSS>(
        prof: P,
        z: *const f32,
        out: *mut f32,
        d: usize,
        frame: Frame,
        tau: Tau,
        gain: f32,
    ) -> f64 => write_any
}

/// # Safety
/// As [`write`].
#[inline(always)]
unsafe fn write_any<V: Vector, P: Profile, const LOSS: bool>(
    prof: P,
    z: *const f32,
    out: *mut f32,
    d: usize,
    frame: Frame,
    tau: Tau,
    gain: f32,
) -> f64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        if is_even::<V>(z, d, frame.max) {
            let (u, p) = prof.prob(V::splat(0.0), &At::new(tau));
            // Lanes are equal: the largest is each of them.
            let p = p.reduce_max();
            std::slice::from_raw_parts_mut(out, d).fill(p * gain);
            return d as f64 * f64::from(p) * f64::from(u.reduce_max());
        }
        let at = At::new(tau);
        let (max, scale, gain) = (Four::<V>::splat(frame.max), Four::<V>::splat(frame.scale), Four::<V>::splat(gain));
        let mut wide = Four::<V>::wide_zero();
        let lanes = Four::<V>::LANES;
        let mut i = 0;
        while i + lanes <= d {
            let (u, p) = prof.prob(Four::<V>::load(z.add(i)).sub(max).mul(scale), &at);
            if LOSS {
                wide = Four::<V>::wide_add(wide, p.mul(u));
                p.mul(gain).store(out.add(i));
            } else {
                p.store(out.add(i));
            }
            i += lanes;
        }
        if i < d {
            let x = Four::<V>::load_first(z.add(i), d - i, f32::NEG_INFINITY).sub(max).mul(scale);
            let (u, p) = prof.prob(x, &at);
            if LOSS {
                wide = Four::<V>::wide_add(wide, p.mul(u));
            }
            p.mul(gain).store_first(out.add(i), d - i);
        }
        if LOSS { Four::<V>::wide_total(wide) } else { 0.0 }
    }
}

/// Whether all entries of a row equal its maximum.
///
/// # Safety
/// As [`write`].
unsafe fn is_even<V: Vector>(z: *const f32, d: usize, max: f32) -> bool {
    // SAFETY: as the caller vouches.
    unsafe { *z == max && *z.add(d / 2) == max && *z.add(d - 1) == max && all_equal::<V>((z, d), max) == Some(d) }
}

outlined! {
    /// How many entries of a row there are, if all of them equal one score or are masked.
    ///
    /// # Safety
    /// As [`write`].
    unsafe fn all_equal<V>(row: (*const f32, usize), max: f32) -> Option<usize> => equals
}

/// A sample of a list, and the share `s` of the list that one of its entries stands for.
struct Sample {
    x: [f32; (SAMPLE + 1) * MAX_LANES],
    len: usize,
    share: f64,
    /// `s^δ`, the factor on the entries and on τ.
    factor: f64,
}

/// The frame of entries that are measured already.
const MEASURED: Frame = Frame { max: 0.0, scale: 1.0 };

impl Sample {
    /// Vectors spread over the list; `None` if they cannot be scaled.
    ///
    /// # Safety
    /// `z` is readable for `len ≥ SAMPLE · LANES` floats.
    unsafe fn new<V: Vector, const READY: bool>(delta: f64, z: *const f32, len: usize, frame: Frame) -> Option<Sample> {
        let share = len as f64 / (SAMPLE * V::LANES) as f64;
        let factor = share.powf(delta);
        // Far from the ends of the range, so that neither products nor quotients leave it.
        if factor > 1e18 {
            return None;
        }
        let mut x = [0.0f32; (SAMPLE + 1) * MAX_LANES];
        let stride = (len - V::LANES) / (SAMPLE - 1);
        for k in 0..SAMPLE {
            for i in 0..V::LANES {
                // SAFETY: the last vector read ends within the list.
                let v = unsafe { *z.add(k * stride + i) };
                let v = if READY { v } else { (v - frame.max) * frame.scale };
                x[k * V::LANES + i] = v * factor as f32;
            }
        }
        Some(Sample { x, len: SAMPLE * V::LANES, share, factor })
    }
}

/// `1 < α < 2` on long rows. `NEAR` keeps the digits of `u − 1` where `u` is near 1, which large
/// exponents ask for.
#[derive(Clone, Copy)]
pub(crate) struct Smooth<const NEAR: bool> {
    delta: f64,
    e: f32,
    prof: Below,
}

impl<const NEAR: bool> Smooth<NEAR> {
    pub(crate) fn new(alpha: f64) -> Self {
        Smooth { delta: alpha - 1.0, e: (1.0 / (alpha - 1.0)) as f32, prof: Below::new(alpha) }
    }
}

impl<const NEAR: bool> Smooth<NEAR> {
    /// A guess at τ from a sample, or from all of a short list: no bound, it may lie on either side.
    ///
    /// # Safety
    /// As [`sums`].
    unsafe fn guess<V: Vector, const READY: bool>(
        &self,
        z: *const f32,
        len: usize,
        frame: Frame,
        start: f64,
    ) -> Option<f64> {
        // SAFETY: as the caller vouches.
        unsafe {
            if len < LONG * V::LANES {
                return self.roughly::<V, READY>((z, len), frame, start);
            }
            let sample = Sample::new::<V, READY>(self.delta, z, len, frame)?;
            let (x, from) = ((sample.x.as_ptr(), sample.len), (start * sample.factor).max(-1.0));
            let mut tau = self.roughly::<V, true>(x, MEASURED, from)?;
            if self.e > ROUGH {
                return Some((tau / sample.factor).max(start));
            }
            // One good step takes off what rough powers add.
            let (f, g) = sums::<V, Self, true>(*self, x.0, x.1, MEASURED, Tau::new(tau));
            tau += self.prof.step_wide(f, g);
            (tau < 0.0).then(|| (tau / sample.factor).max(start))
        }
    }

    /// τ of a list up to a few percent, by rough powers unless the exponent is too large for them.
    ///
    /// # Safety
    /// As [`sums`].
    unsafe fn roughly<V: Vector, const READY: bool>(
        &self,
        (z, len): (*const f32, usize),
        frame: Frame,
        start: f64,
    ) -> Option<f64> {
        let (mut tau, is_rough) = (start, self.e <= ROUGH);
        for _ in 0..PASSES {
            // SAFETY: as the caller vouches.
            let (f, g) = unsafe {
                if is_rough {
                    sums::<V, Rough, READY>(Rough(self.e), z, len, frame, Tau::new(tau))
                } else {
                    sums::<V, Self, READY>(*self, z, len, frame, Tau::new(tau))
                }
            };
            tau += self.prof.step_wide(f, g);
            if (f - 1.0).abs() < if is_rough { 0.1 } else { 0.02 } {
                break;
            }
        }
        // Also false for a NaN, which a sample without support brings.
        (tau < 0.0).then_some(tau)
    }
}

/// The largest exponent up to which rough powers are good for a guess.
const ROUGH: f32 = 2.5;

/// Rough powers to an exponent.
#[derive(Clone, Copy)]
struct Rough(f32);

impl Slope for Rough {
    const ROUGH: bool = false;
    const DEAR: bool = true;
    fn inner(&self) -> f32 {
        1.0 / self.0
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = at.rough(x);
            let on = u.gt(V::splat(0.0));
            let u = u.max(V::splat(f32::MIN_POSITIVE));
            let p = u.rough_power(V::splat(self.0)).keep(on);
            (p, p.mul(u.rough_inverse()))
        }
    }
    fn step_wide(&self, _: f64, _: f64) -> f64 {
        0.0
    }
}

/// Smaller than any `u > 0`, as −τ is at least `d^{1−α}`, and so small that its powers vanish.
const TINY: f32 = f32::MIN_POSITIVE;

impl<const NEAR: bool> Slope for Smooth<NEAR> {
    const ROUGH: bool = false;
    const DEAR: bool = true;
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.prof.inner()
    }
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: as the caller vouches.
        let (u, p) = unsafe { self.prob(x, at) };
        (p, p.div(u))
    }
    #[inline(always)]
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        self.prof.step_wide(f, g)
    }
}

impl<const NEAR: bool> Profile for Smooth<NEAR> {
    #[inline(always)]
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.prof.step(f, g) }
    }
    #[inline(always)]
    unsafe fn unsettled<V: Vector>(&self, sums: (V, V), before: V, step: V, n: V) -> V::Mask {
        // SAFETY: as the caller vouches.
        unsafe { self.prof.unsettled(sums, before, step, n) }
    }
    #[inline(always)]
    fn unsettled_wide(&self, sums: (f64, f64), before: f64, step: f64, n: f64) -> bool {
        self.prof.unsettled_wide(sums, before, step, n)
    }
    /// `u` is not 0 but [`TINY`] where `p` is 0.
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let u = at.excess(x).max(V::splat(TINY));
            let e = V::splat(self.e);
            (u, if NEAR { u.power_near_one(at.below_one(x), e) } else { u.power(e) })
        }
    }

    /// From the guess along the curve that shares value, slope and curvature with the sum (`settle.rs`): a step from a
    /// residual `r` leaves about `c·r³`, with a `c` that the last two residuals tell.
    unsafe fn root<V: Vector, const READY: bool>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> Tau {
        // SAFETY: as the caller vouches.
        unsafe {
            if !READY && is_even::<V>(z, len, frame.max) {
                return Tau::new(-(len as f64).powf(-self.delta));
            }
            let is_long = len >= if self.e > ROUGH { LONG } else { SHORT } * V::LANES;
            let Some(mut tau) = (if is_long { self.guess::<V, READY>(z, len, frame, start) } else { None }) else {
                return self.prof.root::<V, READY>(z, len, frame, start);
            };
            let mut before: Option<f64> = None;
            for _ in 0..PASSES {
                let (f, g, h) = three_sums::<V, Self, READY>(*self, z, len, frame, Tau::new(tau));
                if g <= 0.0 || f.is_nan() {
                    break;
                }
                let (size, y) = ((f - 1.0).abs(), g / h);
                let rise = ((1.0 - f) / (y * g)).max(-1.0).ln_1p() * self.delta;
                tau = start.max(tau - y * rise.exp_m1());
                let left = before.map_or(3.0, |r| (size / (r * r * r)).clamp(0.3, 30.0));
                if left * size * size * size <= 3e-7 {
                    return Tau::new(tau);
                }
                before = Some(size);
            }
            self.prof.root::<V, READY>(z, len, frame, start)
        }
    }
}

/// `α > 2` on long rows.
#[derive(Clone, Copy)]
pub(crate) struct Steep {
    delta: f64,
    prof: Above,
}

impl Steep {
    pub(crate) fn new(alpha: f64) -> Steep {
        Steep { delta: alpha - 1.0, prof: Above::new(alpha) }
    }
}

impl Slope for Steep {
    const ROUGH: bool = Above::ROUGH;
    const DEAR: bool = Above::DEAR;
    #[inline(always)]
    fn inner(&self) -> f32 {
        self.prof.inner()
    }
    /// `p` and `p/u`, the slope of `p` in τ but for its factor.
    #[inline(always)]
    unsafe fn terms<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (u, p) = self.prof.prob(x, at);
            (p, p.div(u).keep(u.gt(V::splat(0.0))))
        }
    }
    fn step_wide(&self, f: f64, g: f64) -> f64 {
        self.prof.step_wide(f, g)
    }
}

impl Profile for Steep {
    unsafe fn step<V: Vector>(&self, f: V, g: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe { self.prof.step(f, g) }
    }
    unsafe fn unsettled<V: Vector>(&self, sums: (V, V), before: V, step: V, n: V) -> V::Mask {
        // SAFETY: as the caller vouches.
        unsafe { self.prof.unsettled(sums, before, step, n) }
    }
    fn unsettled_wide(&self, sums: (f64, f64), before: f64, step: f64, n: f64) -> bool {
        self.prof.unsettled_wide(sums, before, step, n)
    }
    #[inline(always)]
    unsafe fn prob<V: Vector>(&self, x: V, at: &At<V>) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe { self.prof.prob(x, at) }
    }

    /// Newton in the probability `q = (−τ)^{1/δ}` of the maximum, in which equal entries make
    /// a straight line, from the guess and within what is known of `q`. Done when the residual
    /// is small: where an entry sits on the threshold no prediction holds. If it does not get
    /// small, the careful way finds the entry.
    unsafe fn root<V: Vector, const READY: bool>(&self, z: *const f32, len: usize, frame: Frame, start: f64) -> Tau {
        // SAFETY: as the caller vouches.
        unsafe {
            if !READY && is_even::<V>(z, len, frame.max) {
                return Tau::new(-(len as f64).powf(-self.delta));
            }
            if len < LONG * V::LANES {
                return self.prof.root::<V, READY>(z, len, frame, start);
            }
            let (low, high) = (1.0 / len as f64, (-start).clamp(0.0, 1.0).powf(1.0 / self.delta));
            let found = Sample::new::<V, READY>(self.delta, z, len, frame).and_then(|sample| {
                let (x, n) = (sample.x.as_ptr(), sample.len);
                let most = (high * sample.share).min(1.0);
                let q =
                    self.settle::<V, true>((x, n), (MEASURED, 0.0), 1.0 / n as f64, (1.0 / n as f64, most), 0.01)?;
                let q = (q / sample.share).max(low).min(high.max(low));
                self.settle::<V, READY>((z, len), (frame, 0.0), q, (low, high), close_to(q))
            });
            match found {
                Some(q) => Tau::new(-q.powf(self.delta)),
                None => self.prof.root::<V, READY>(z, len, frame, start),
            }
        }
    }

    const REFRAMES: bool = true;

    /// Differences from the maximum are rounded, and where the support reaches far below it an entry next to the threshold
    /// feels that: `p = u^{1/δ}` is steep there. Differences from a score next to the threshold are exact where it is steep,
    /// and rounded where it is not; so the frame moves there, until no score is nearer.
    unsafe fn framed_root<V: Vector>(&self, z: *const f32, len: usize, first: Frame, start: f64) -> (Frame, Tau) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (mut frame, mut tau) = (first, self.root::<V, false>(z, len, first, start));
            let mut q = (-tau.value()).powf(1.0 / self.delta);
            for _ in 0..FRAMES {
                let to = (f64::from(frame.max) + tau.value() / f64::from(frame.scale)) as f32;
                let is_felt = (ROUNDING * tau.value().abs()).powf(1.0 / self.delta) > FELT;
                if !is_felt || !to.is_finite() || to == frame.max || is_even::<V>(z, len, first.max) {
                    break;
                }
                frame.max = to;
                // As the vectors have it.
                let top = f64::from((first.max - to) * first.scale);
                let found = self.settle::<V, false>((z, len), (frame, top), q, (1.0 / len as f64, 1.0), close_to(q));
                tau = match found {
                    Some(q) => Tau::new(top - q.powf(self.delta)),
                    None => self.prof.root_below::<V, false>(z, len, frame, (top, top - 1.0)),
                };
                q = found.unwrap_or_else(|| (top - tau.value()).powf(1.0 / self.delta));
            }
            (frame, tau)
        }
    }
}

/// How often a frame is moved, at most: twice reaches the threshold from anywhere, unless what was found there is new.
const FRAMES: usize = 4;

/// How far a difference may be off, relative to it, and how much a probability may be.
const ROUNDING: f64 = 1.2e-7;
const FELT: f64 = 2e-7;

/// The residual of a sum that says nothing: powers are no better, and their error grows with the logarithm.
fn close_to(q: f64) -> f64 {
    2.5e-7 - 4e-8 * q.log2()
}

impl Steep {
    /// Newton in `q` from a first value and within bounds, until the residual is at most `close`; `None` if it does not get
    /// there. In a frame where the maximum is at `top`.
    ///
    /// # Safety
    /// As [`sums`].
    unsafe fn settle<V: Vector, const READY: bool>(
        &self,
        (z, len): (*const f32, usize),
        (frame, top): (Frame, f64),
        first: f64,
        (mut low, mut high): (f64, f64),
        close: f64,
    ) -> Option<f64> {
        let mut q = first;
        for _ in 0..PASSES {
            let tau = Tau::new(top - q.powf(self.delta));
            // SAFETY: as the caller vouches.
            let (f, g) = unsafe { sums::<V, Steep, READY>(*self, z, len, frame, tau) };
            if (f - 1.0).abs() <= close {
                return Some(q);
            }
            (low, high) = if f < 1.0 { (low.max(q), high) } else { (low, high.min(q)) };
            let next = q + (1.0 - f) / (q.powf(self.delta - 1.0) * g);
            q = if next >= low && next <= high { next } else { 0.5 * (low + high) };
        }
        None
    }
}
