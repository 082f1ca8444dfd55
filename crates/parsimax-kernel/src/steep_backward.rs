//! Backward pass of α-entmax for α > 2, where `s = p^{2−α}` grows as `p` falls: on lists of the supports of a group of
//! rows, with the smallest entry of a row as the measure of all others.
//!
//! `v` is measured from the entry with the largest `s`, so that nothing cancels against it, and so is `s`: with
//! `δ = α − 1`, the smallest probability `w` and `t = w^δ`, entries have `u = t + λ` where `λ ≥ 0` is a multiple of the
//! difference of two scores, and `x = λ/t`,
//!
//! ```text
//! s/s₀ = (1 + x)^{1/δ − 1},   Jv = s ⊙ (v − mean),
//! <v, ∂p/∂α> = (w/δ²) Σ (s/s₀) (v − mean) g,   g = x (1 − ln u) − ln(1 + x)
//! ```
//!
//! which is what the head of `alpha_backward.rs` has, measured from the smallest entry: `Σ s (v − mean) = 0`, so that a
//! multiple of `s` may be taken from what `v` is multiplied by. Nothing in it is lost in f32 but what `w` itself does not
//! know: a probability is rounded, and `p^{2−α}` magnifies the rounding of a small one beyond what the gradient may lose.
//! So `w` is taken from the scores again: from its rounded value, a step or two of Newton on `Σ (t + λ)^{1/δ} = 1` in f64
//! leave it all digits that an f32 has. Without scores `p/w` takes the place of a power of `1 + x`.

use super::expo::{exp2_nonpos, log2};
use super::supports::{Across, Ends, Row, Sums, collect, group, part, put_back, room, survey, unset, within, words};
use super::vector::{Lift, MAX_LANES, Vector, outlined, read, write};
use super::{Backward, steep_alone};

/// α > 2 without scores.
///
/// # Safety
/// As [`rows`], without scores.
pub(super) unsafe fn without_scores<V: Vector>(alpha: f64, job: &mut Backward<'_>) {
    // SAFETY: as the caller vouches; where there are no scores, their place is not looked at.
    unsafe { groups::<V, false>(Steep::new::<V>(alpha, job, job.p.as_ptr(), std::ptr::null_mut())) }
}

/// α > 2 with scores, and `<v, ∂p/∂α>` of every row.
///
/// # Safety
/// As [`alpha_backward::rows`](super::alpha_backward::rows).
pub(super) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    // SAFETY: as the caller vouches.
    unsafe { groups::<V, true>(Steep::new::<V>(alpha, job, z.as_ptr(), dalpha.as_mut_ptr())) }
}

/// The rows of a block, by pointer, and lists for a group of them.
#[derive(Clone, Copy)]
struct Steep {
    alpha: f64,
    scale: f32,
    /// Scores, or probabilities where there are none.
    key: *const f32,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    dalpha: *mut f64,
    rows: usize,
    d: usize,
    /// `scale · s` of a row whose entries are all equal.
    shared: f32,
    lists: *mut f32,
    words: *mut u64,
}

impl Steep {
    /// # Safety
    /// As [`rows`].
    unsafe fn new<V: Vector>(alpha: f64, job: &mut Backward<'_>, key: *const f32, dalpha: *mut f64) -> Steep {
        let (d, scale, rows) = (job.d, job.scale, job.out.len() / job.d);
        let size = group::<V>(d).min(rows);
        let lists = unset(job.scratch, 3 * size * room(d));
        // Two positions make room for one word.
        let words = job.scratch.positions(2 * size * words::<V>(d)).cast();
        let (p, v, out) = (job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
        let shared = (f64::from(scale) * (d as f64).powf(alpha - 2.0)).min(1e38) as f32;
        Steep { alpha, scale, key, p, v, out, dalpha, rows, d, shared, lists, words }
    }

    fn delta(&self) -> f64 {
        self.alpha - 1.0
    }

    /// Row `r` of a group.
    ///
    /// # Safety
    /// `r` is a row of a group.
    #[inline(always)]
    unsafe fn row<V: Vector>(&self, r: usize) -> Row {
        let Steep { d, words, .. } = *self;
        let at = r * d;
        // SAFETY: as the caller vouches.
        unsafe {
            let (key, p, v, out) = (self.key.add(at), self.p.add(at), self.v.add(at), self.out.add(at));
            Row { key, p, v, out, d, words: words.wrapping_add(r * self::words::<V>(d)) }
        }
    }

    /// The list of that number of row `r` of a group.
    ///
    /// # Safety
    /// `r` is a row of a group, and there are three lists.
    #[inline(always)]
    unsafe fn list(&self, number: usize, r: usize) -> *mut f32 {
        // SAFETY: as the caller vouches.
        unsafe { self.lists.add((3 * r + number) * room(self.d)) }
    }
}

outlined! {
    /// All rows, in groups.
    ///
    /// # Safety
    /// The pointers are readable for `rows` rows of `d` floats, `out` writable, `dalpha` writable for a number a row if
    /// they are `SCORED`, the lists for three of every row of a group; the CPU has the instruction set of `V`.
    unsafe fn groups<V; SCORED>(job: Steep) -> () => groups_any
}

/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn groups_any<V: Vector, const SCORED: bool>(job: Steep) {
    let (mut across, mut of, size) = (Across::new(), Measures::new(), group::<V>(job.d));
    for first in (0..job.rows).step_by(size) {
        let here = (job.rows - first).min(size);
        // SAFETY: row `r` of the group lies within the rows for `r < here`.
        unsafe {
            let job = job.past(first);
            job.list_group::<V>(here, &mut across, &mut of);
            if SCORED {
                for r in 0..here {
                    job.settle::<V>(r, &mut of);
                }
            }
            job.measure::<V, SCORED>(&mut of);
            if of.is_crowded {
                // A row by itself.
                job.weigh_crowd::<V, SCORED>(&mut of);
                job.finish::<V, SCORED>(0, &of);
                continue;
            }
            for r in 0..here {
                across.put(r, job.weigh::<V, SCORED>(r, &of));
            }
            across.total::<V>(1).div(across.total::<V>(0)).store(of.mean.as_mut_ptr());
            for r in 0..here {
                across.put(r, [job.multiply::<V, SCORED>(r, &of)]);
            }
            across.total::<V>(0).store(of.slope.as_mut_ptr());
            for r in 0..here {
                job.finish::<V, SCORED>(r, &of);
            }
        }
    }
}

/// One number for every row of a group.
struct Measures {
    n: [usize; MAX_LANES],
    /// The smallest key, and the `v` of the smallest entry.
    least: [f32; MAX_LANES],
    from: [f32; MAX_LANES],
    /// Whether all entries are equal, and the row is done; whether all of the support are.
    is_even: [bool; MAX_LANES],
    is_level: [bool; MAX_LANES],
    /// Whether the support of the only row of the group is too large for a list.
    is_crowded: bool,
    /// The smallest probability and its power δ.
    w: [f64; MAX_LANES],
    t: [f64; MAX_LANES],
    /// From differences of keys to `x`, or from keys to `p/w`.
    unit: [f32; MAX_LANES],
    /// `1 − ln t`
    log: [f32; MAX_LANES],
    /// `scale · s₀`, or infinity where f32 has no room for what is to be computed.
    gain: [f32; MAX_LANES],
    mean: [f32; MAX_LANES],
    slope: [f32; MAX_LANES],
}

impl Measures {
    fn new() -> Measures {
        let none = [0.0f32; MAX_LANES];
        Measures {
            n: [0; MAX_LANES],
            least: none,
            from: none,
            is_even: [false; MAX_LANES],
            is_level: [false; MAX_LANES],
            is_crowded: false,
            w: [0.0; MAX_LANES],
            t: [0.0; MAX_LANES],
            unit: none,
            log: none,
            gain: none,
            mean: none,
            slope: none,
        }
    }
}

/// The least `t`, and the largest weight, whose products are left to f32.
const SMALL: f32 = 1e-30;
const LARGE: f32 = 1e30;

/// The largest relative change of `t` that is the last.
const NEAR: f64 = 1e-4;

impl Steep {
    /// From row `r` on.
    ///
    /// # Safety
    /// There are at least `r` rows.
    #[inline(always)]
    unsafe fn past(self, r: usize) -> Steep {
        let at = r * self.d;
        // SAFETY: as the caller vouches.
        unsafe {
            let (key, p, v, out) = (self.key.add(at), self.p.add(at), self.v.add(at), self.out.add(at));
            Steep { key, p, v, out, dalpha: self.dalpha.wrapping_add(r), rows: self.rows - r, ..self }
        }
    }

    /// Lists the supports of a group of rows, and finds the smallest entry of each.
    ///
    /// # Safety
    /// As [`groups`], for as many rows.
    #[inline(always)]
    unsafe fn list_group<V: Vector>(&self, rows: usize, across: &mut Across, of: &mut Measures) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (zero, mut count) = (V::splat(0.0), [0.0f32; MAX_LANES]);
            of.is_crowded = false;
            for r in 0..rows {
                let row = self.row::<V>(r);
                of.is_even[r] = share_evenly::<V>(row, self.shared);
                if of.is_even[r] {
                    of.n[r] = 0;
                    continue;
                }
                let listed = collect::<V>(row, (self.list(0, r), self.list(1, r)));
                of.is_crowded |= listed.is_none();
                let (n, ends) = if let Some(listed) = listed { listed } else { survey::<V>(row) };
                let Ends { least, most, beside, p } = ends;
                (of.n[r], count[r]) = (n, n as f32);
                across.put(r, [zero.sub(least), beside, zero.sub(p), most]);
            }
            let (low, high) = (across.most::<V>(0), across.most::<V>(3));
            low.store(of.least.as_mut_ptr());
            let own = zero.sub(across.most::<V>(2));
            for r in 0..rows {
                let is_least = across.get::<V>(r, 0).ge(V::splat(of.least[r]));
                let from = across.get::<V>(r, 1).select(is_least, V::splat(f32::NEG_INFINITY));
                across.put(r, [from]);
            }
            across.most::<V>(0).store(of.from.as_mut_ptr());
            zero.sub(low).store(of.least.as_mut_ptr());
            // Equal entries share: no search, and no digits lost to it.
            let is_level = zero.ge(high.add(low));
            let share = V::splat(1.0).div(V::load(count.as_ptr()));
            let w = share.select(is_level, own);
            let mut lanes = [0.0f32; MAX_LANES];
            w.store(lanes.as_mut_ptr());
            let none = (V::wide_zero(), V::wide_zero());
            let lift = Lift { from: 0.0, unit: 1.0, t: 0.0, e: self.delta() };
            V::wide_store(V::wide_add_powers(none, w, w.gt(zero), lift).0, of.t.as_mut_ptr());
            for r in 0..rows {
                of.is_level[r] = V::bits(is_level) >> r & 1 == 1;
                of.w[r] = f64::from(lanes[r]);
            }
        }
    }

    /// The smallest probability of a row, from its scores.
    ///
    /// # Safety
    /// As [`groups`], for a row that is listed.
    #[inline(always)]
    unsafe fn settle<V: Vector>(&self, r: usize, of: &mut Measures) {
        let (delta, n) = (self.delta(), of.n[r]);
        let (mut w, mut t) = (of.w[r], of.t[r]);
        if of.is_level[r] || n == 0 || t < f64::from(SMALL) {
            return;
        }
        let (from, unit) = (f64::from(of.least[r]), delta * f64::from(self.scale));
        for _ in 0..4 {
            let lift = Lift { from, unit, t, e: 1.0 / delta };
            // SAFETY: every load stays within a list of `n` and a vector; as the caller vouches.
            let (total, weight) = unsafe {
                let mut sums = (V::wide_zero(), V::wide_zero());
                if of.is_crowded {
                    sums = self.crowd_powers::<V>(lift);
                } else {
                    for i in (0..n).step_by(V::LANES) {
                        sums = V::wide_add_powers(sums, V::load(self.list(0, r).add(i)), within::<V>(i, n), lift);
                    }
                }
                (V::wide_total(sums.0), V::wide_total(sums.1))
            };
            // The slope of the sum in w is Σ s/s₀.
            let change = (1.0 - total) / (t * weight);
            if change <= -0.5 {
                break;
            }
            w += change * w;
            if (delta * change).abs() <= NEAR {
                // (1 + change)^δ
                t *= 1.0 + delta * change * (1.0 + (delta - 1.0) / 2.0 * change * (1.0 + (delta - 2.0) / 3.0 * change));
                break;
            }
            t *= (1.0 + change).powf(delta);
        }
        (of.w[r], of.t[r]) = (w, t);
    }

    /// The powers of a row that is not listed, and their slopes.
    ///
    /// # Safety
    /// As [`groups`], for a row whose vectors are marked.
    #[inline(always)]
    unsafe fn crowd_powers<V: Vector>(&self, lift: Lift) -> (V::Wide, V::Wide) {
        // SAFETY: every access stays within `d` floats.
        unsafe {
            let Row { key, p, d, words, .. } = self.row::<V>(0);
            let mut sums = (V::wide_zero(), V::wide_zero());
            for first in (0..d).step_by(part::<V>()) {
                let mut word = words.add(first / part::<V>()).read_unaligned();
                while word != 0 {
                    let i = first + word.trailing_zeros() as usize * V::LANES;
                    let len = (d - i).min(V::LANES);
                    let on = read::<V>(p.add(i), len).gt(V::splat(0.0));
                    sums = V::wide_add_powers(sums, read::<V>(key.add(i), len), on, lift);
                    word &= word - 1;
                }
            }
            sums
        }
    }

    /// What the weights of the rows of a group need.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn measure<V: Vector, const SCORED: bool>(&self, of: &mut Measures) {
        let mut lanes = [[0.0f32; MAX_LANES]; 2];
        for r in 0..V::LANES {
            (lanes[0][r], lanes[1][r]) = (of.w[r] as f32, of.t[r] as f32);
        }
        // SAFETY: as the caller vouches.
        unsafe {
            let (w, t, one) = (V::load(lanes[0].as_ptr()), V::load(lanes[1].as_ptr()), V::splat(1.0));
            let scale = V::splat(self.scale);
            let inf = V::splat(f32::INFINITY);
            let gain = w.div(t).mul(scale);
            let fits = V::and(t.gt(V::splat(SMALL)), V::splat(LARGE).gt(gain));
            gain.select(fits, inf).store(of.gain.as_mut_ptr());
            let unit = if SCORED { V::splat((self.delta() * f64::from(self.scale)) as f32).div(t) } else { one.div(w) };
            unit.store(of.unit.as_mut_ptr());
            let log = log2(t.select(fits, one)).mul(V::splat(std::f32::consts::LN_2));
            one.sub(log).store(of.log.as_mut_ptr());
        }
    }

    /// `s/s₀` of the entries of a vector that are `on`, and `g`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn weight<V: Vector, const SCORED: bool>(
        &self,
        key: V,
        on: V::Mask,
        (least, unit, log): (V, V, V),
    ) -> (V, V) {
        let delta = self.delta();
        // SAFETY: as the caller vouches.
        unsafe {
            let one = V::splat(1.0);
            let fall = V::splat(if SCORED { 1.0 / delta - 1.0 } else { 1.0 - delta } as f32);
            if SCORED {
                let x = key.sub(least).mul(unit);
                let rise = x.add(one).log2_near_one(x);
                let s = exp2_nonpos(rise.mul(fall)).keep(on);
                let rise = rise.mul(V::splat(std::f32::consts::LN_2));
                (s, x.mul(log.sub(rise)).sub(rise).keep(on))
            } else {
                (exp2_nonpos(log2(key.mul(unit).max(one)).mul(fall)).keep(on), one)
            }
        }
    }

    /// The products of a row that is not listed: the weights are left in their place, and become products there.
    ///
    /// Its slope is `<s/s₀, (v − from) g> − mean <s/s₀, g>`, so that `g` is not needed again.
    ///
    /// # Safety
    /// As [`groups`], for a row whose vectors are marked.
    #[inline(always)]
    unsafe fn weigh_crowd<V: Vector, const SCORED: bool>(&self, of: &mut Measures) {
        // SAFETY: every access stays within `d` floats.
        unsafe {
            let Row { key, p, v, out, d, words } = self.row::<V>(0);
            let (zero, from) = (V::splat(0.0), V::splat(of.from[0]));
            let measures = (V::splat(of.least[0]), V::splat(of.unit[0]), V::splat(of.log[0]));
            let mut sums = Sums::<V, 4>::new();
            for first in (0..d).step_by(part::<V>()) {
                let mut word = words.add(first / part::<V>()).read_unaligned();
                let part = sums.part();
                while word != 0 {
                    let i = first + word.trailing_zeros() as usize * V::LANES;
                    let len = (d - i).min(V::LANES);
                    let on = read::<V>(p.add(i), len).gt(zero);
                    let (s, g) = self.weight::<V, SCORED>(read::<V>(key.add(i), len), on, measures);
                    let moved = read::<V>(v.add(i), len).sub(from).keep(on);
                    write(s, out.add(i), len);
                    part[0] = part[0].add(s);
                    part[1] = s.fma(moved, part[1]);
                    if SCORED {
                        part[2] = s.fma(g, part[2]);
                        part[3] = s.mul(g).fma(moved, part[3]);
                    }
                    word &= word - 1;
                }
                sums.widen();
            }
            let [s, sv, bent, bent_v] = sums.totals();
            of.mean[0] = (sv / s) as f32;
            of.slope[0] = (bent_v - sv / s * bent) as f32;
            let (mean, gain) = (V::splat(of.mean[0]), V::splat(of.gain[0]));
            for first in (0..d).step_by(part::<V>()) {
                let mut word = words.add(first / part::<V>()).read_unaligned();
                while word != 0 {
                    let i = first + word.trailing_zeros() as usize * V::LANES;
                    let len = (d - i).min(V::LANES);
                    let on = read::<V>(p.add(i), len).gt(zero);
                    let w = read::<V>(v.add(i), len).sub(from).sub(mean).keep(on);
                    write(read::<V>(out.add(i), len).mul(gain).mul(w), out.add(i), len);
                    word &= word - 1;
                }
            }
        }
    }

    /// `Σ s/s₀` and `Σ (s/s₀)(v − from)` of a row, by lanes; the weights take the place of the keys, and their products
    /// with `g` are listed.
    ///
    /// # Safety
    /// As [`groups`], for a row that is listed.
    #[inline(always)]
    unsafe fn weigh<V: Vector, const SCORED: bool>(&self, r: usize, of: &Measures) -> [V; 2] {
        let n = of.n[r];
        // SAFETY: every access stays within a list of `n` and a vector.
        unsafe {
            let (keys, beside, bent) = (self.list(0, r), self.list(1, r), self.list(2, r));
            let from = V::splat(of.from[r]);
            let measures = (V::splat(of.least[r]), V::splat(of.unit[r]), V::splat(of.log[r]));
            let mut sums = Sums::<V, 2>::new();
            for first in (0..n).step_by(part::<V>()) {
                if first > 0 {
                    sums.widen();
                }
                let part = sums.part();
                for i in (first..n.min(first + self::part::<V>())).step_by(V::LANES) {
                    let on = within::<V>(i, n);
                    let (s, g) = self.weight::<V, SCORED>(V::load(keys.add(i)), on, measures);
                    if SCORED {
                        s.mul(g).store(bent.add(i));
                    }
                    s.store(keys.add(i));
                    let moved = V::load(beside.add(i)).sub(from).keep(on);
                    part[0] = part[0].add(s);
                    part[1] = s.fma(moved, part[1]);
                }
            }
            sums.lanes()
        }
    }

    /// The products of a row, in the place of its weights; returns the sum of those with `g`, by lanes.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its weights.
    #[inline(always)]
    unsafe fn multiply<V: Vector, const SCORED: bool>(&self, r: usize, of: &Measures) -> V {
        let n = of.n[r];
        // SAFETY: every access stays within a list of `n` and a vector.
        unsafe {
            let (weights, beside, bent) = (self.list(0, r), self.list(1, r), self.list(2, r));
            let (from, mean, gain) = (V::splat(of.from[r]), V::splat(of.mean[r]), V::splat(of.gain[r]));
            let mut sums = Sums::<V, 1>::new();
            for first in (0..n).step_by(part::<V>()) {
                if first > 0 {
                    sums.widen();
                }
                let part = sums.part();
                for i in (first..n.min(first + self::part::<V>())).step_by(V::LANES) {
                    let w = V::load(beside.add(i)).sub(from).sub(mean).keep(within::<V>(i, n));
                    V::load(weights.add(i)).mul(gain).mul(w).store(weights.add(i));
                    if SCORED {
                        part[0] = V::load(bent.add(i)).fma(w, part[0]);
                    }
                }
            }
            sums.lanes()[0]
        }
    }

    /// Writes what was found of a row.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its products.
    #[inline(always)]
    unsafe fn finish<V: Vector, const SCORED: bool>(&self, r: usize, of: &Measures) {
        let delta = self.delta();
        // SAFETY: row `r` lies within the rows.
        unsafe {
            if of.n[r] > 0 && of.gain[r] == f32::INFINITY {
                return self.alone::<SCORED>(r);
            }
            if !of.is_even[r] && !of.is_crowded {
                put_back::<V>(self.row::<V>(r), self.list(0, r));
            }
            if SCORED {
                let slope = f64::from(of.slope[r]) * of.w[r] / (delta * delta);
                *self.dalpha.add(r) = if of.n[r] > 0 { slope } else { 0.0 };
            }
        }
    }

    /// A row that f32 has no room for.
    ///
    /// # Safety
    /// As [`groups`], for one row.
    #[cold]
    #[inline(never)]
    unsafe fn alone<const SCORED: bool>(&self, r: usize) {
        let (at, scale) = (r * self.d, f64::from(self.scale));
        // SAFETY: row `r` lies within the rows.
        unsafe {
            let row = |x: *const f32| std::slice::from_raw_parts(x.add(at), self.d);
            let (z, p, v) = (row(self.key), row(self.p), row(self.v));
            let out = std::slice::from_raw_parts_mut(self.out.add(at), self.d);
            if SCORED {
                *self.dalpha.add(r) = steep_alone::with_scores(self.alpha, scale, z, p, v, out);
            } else {
                steep_alone::without_scores(self.alpha, scale, p, v, out);
            }
        }
    }
}

/// How far ahead of where it is a pass over equal entries asks, in floats.
const AHEAD: usize = 1024;

/// `gain · (v − mean)` of a row whose keys are all equal, and its probabilities; whether it is one. If it is not, nothing
/// is written.
///
/// # Safety
/// As [`collect`].
#[inline(always)]
unsafe fn share_evenly<V: Vector>(row: Row, gain: f32) -> bool {
    let Row { key, p, v, out, d, .. } = row;
    // SAFETY: every access but those that only ask stays within `d` floats.
    unsafe {
        // Most rows are told by their ends.
        let last = d - 1;
        if !(*p > 0.0 && *p == *p.add(last) && *key == *key.add(last)) {
            return false;
        }
        // Measured from one of them, so that a constant in v takes no digits.
        let (share, level, from, gain) = (V::splat(*p), V::splat(*key), V::splat(*v), V::splat(gain));
        let mut sum = V::wide_zero();
        for first in (0..d).step_by(4 * V::LANES) {
            let (mut part, mut is_even) = (V::splat(0.0), true);
            for i in (first..d.min(first + 4 * V::LANES)).step_by(V::LANES) {
                let n = (d - i).min(V::LANES);
                for x in [key, p, v] {
                    V::prefetch(x.wrapping_add(i + AHEAD));
                }
                let (p, key) = (read_or::<V>(p.add(i), n, *p), read_or::<V>(key.add(i), n, *key));
                let is_share = V::and(p.ge(share), share.ge(p));
                let is_level = V::and(key.ge(level), level.ge(key));
                is_even &= V::bits(V::and(is_share, is_level)) == ((1u64 << V::LANES) - 1) as u32;
                part = part.add(read_or::<V>(v.add(i), n, *v).sub(from));
            }
            if !is_even {
                return false;
            }
            sum = V::wide_add(sum, part);
        }
        let mean = V::splat((V::wide_total(sum) / d as f64) as f32);
        for i in (0..d).step_by(V::LANES) {
            let n = (d - i).min(V::LANES);
            V::prefetch(out.wrapping_add(i + AHEAD));
            write(read::<V>(v.add(i), n).sub(from).sub(mean).mul(gain), out.add(i), n);
        }
        true
    }
}

/// `n ≤ LANES` floats; `fill` behind them.
///
/// # Safety
/// As [`Vector::load_first`].
#[inline(always)]
unsafe fn read_or<V: Vector>(from: *const f32, n: usize, fill: f32) -> V {
    // SAFETY: as the caller vouches.
    unsafe { if n == V::LANES { V::load(from) } else { V::load_first(from, n, fill) } }
}
