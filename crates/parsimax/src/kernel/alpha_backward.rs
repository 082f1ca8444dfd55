//! Backward pass of α-entmax with the gradient in α.
//!
//! In the scores: `s = p^{2−α}` on the support, `w = v − <s,v>/Σs` and `Jv = scale · s ⊙ w`.
//!
//! In α: with `δ = α − 1`, `x = scale · z` and `u = δx − τ`, `p = u^{1/δ}`, so
//! `δ · ∂p_i/∂α = s_i (x_i − τ') − p_i ln p_i` where `τ'` keeps the sum at 1. Against `v` the `τ'`
//! turns `v` into `w`, for which `Σ s w = 0`; with that and `x = (u + τ)/δ`,
//! `<v, ∂p/∂α> = Σ w p (1 − ln u)/δ²`, and any multiple of `s` may be added to `p (1 − ln u)`.
//! Measured from the largest entry, `e = x − x₀ ≤ 0`, `q = δe/u₀`, that leaves
//!
//! ```text
//! <v, ∂p/∂α> = −Σ s w g,   g = e ln p₀ + (e²/u₀) h(q),   h(q) = ((1+q) ln(1+q) − q)/q²
//! ```
//!
//! which divides by no power of δ and adds what is not negative to what is not negative. Between
//! nearly equal entries it lives on the differences of scores, which are exact, where the
//! probabilities, rounded to f32, have lost them.
//!
//! One pass takes all sums: `Σ s w g = Σ s v' g − (Σ s v'/Σs) Σ s g` with `v' = v − <p,v>`, which has left
//! behind whatever all of `v` have in common. Rows up to [`SHORT`] wide go `LANES` at a time: what is one
//! number a row is worked out for all of them at once.

use super::backward::SHORT;
use super::expo::{entropy_near_one, exp2_nonpos, log2};
use super::pair::Pair;
use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::{Identity, Indicator, Power, Root, Weight};
use super::{Backward, steep_backward};

/// `u/u₀` is not known more closely than this.
const GRAIN: f32 = 1e-7;

/// Backward pass of a block of rows at scores `z`; `dalpha` gets one number a row.
///
/// # Safety
/// The slices of `job` have the lengths that `Backward` promises, `z` that of `job.p`, `d ≥ 1`,
/// `dalpha` has one number a row, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    let (p, v, out) = (job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
    let rows = Rows { z: z.as_ptr(), p, v, out, d: job.d, delta: alpha - 1.0, scale: job.scale };
    // SAFETY: as the caller vouches.
    unsafe {
        if alpha > 2.0 {
            steep_backward::rows::<V>(alpha, job, z, dalpha);
        } else if alpha == 2.0 {
            groups::<V, _>(Indicator(job.scale), rows, (dalpha.as_mut_ptr(), dalpha.len()));
        } else if alpha == 1.5 {
            groups::<V, _>(Root(job.scale), rows, (dalpha.as_mut_ptr(), dalpha.len()));
        } else if alpha == 1.0 {
            groups::<V, _>(Identity(job.scale), rows, (dalpha.as_mut_ptr(), dalpha.len()));
        } else {
            groups::<V, _>(Power::new(alpha, job.scale), rows, (dalpha.as_mut_ptr(), dalpha.len()));
        }
    }
}

/// The rows of a block, by pointer.
#[derive(Clone, Copy)]
struct Rows {
    z: *const f32,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    d: usize,
    delta: f64,
    scale: f32,
}

impl Rows {
    /// From entry `at` on.
    ///
    /// # Safety
    /// There are at least `at` entries.
    #[inline(always)]
    unsafe fn past(self, at: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe {
            let (z, p, v, out) = (self.z.add(at), self.p.add(at), self.v.add(at), self.out.add(at));
            Rows { z, p, v, out, ..self }
        }
    }
}

outlined! {
    /// All rows, in groups.
    ///
    /// # Safety
    /// `dalpha` is writable for a number a row, the pointers are readable, `out` writable, for as many rows of `d`
    /// floats; the CPU has the instruction set of `V`.
    unsafe fn groups<V, W: Weight>(weight: W, rows: Rows, dalpha: (*mut f64, usize)) -> () => groups_any
}

/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn groups_any<V: Vector, W: Weight>(weight: W, rows: Rows, (dalpha, n): (*mut f64, usize)) {
    // SAFETY: as the caller vouches.
    let dalpha = unsafe { std::slice::from_raw_parts_mut(dalpha, n) };
    let d = rows.d;
    // A long row has work enough by itself, and eight of them no room in the cache.
    let group = if d <= part::<V>() { V::LANES } else { 1 };
    let mut across = Across::new();
    let (mut bends, mut means, mut slopes) = (Bends::new(), [0.0f32; MAX_LANES], [0.0f32; MAX_LANES]);
    for (g, dalpha) in dalpha.chunks_mut(group).enumerate() {
        // SAFETY: row `r` of the group lies within the rows for `r < dalpha.len()`.
        unsafe {
            let rows = rows.past(g * group * d);
            let zero = V::splat(0.0);
            for r in 0..dalpha.len() {
                across.put(r, tops::<V>(rows.past(r * d)));
            }
            let (top_score, top) = (across.most::<V>(0), across.most::<V>(1));
            let middle = across.total::<V>(2);
            bends.fill(&rows, top_score, top, middle);
            for r in 0..dalpha.len() {
                across.put(r, row_sums::<V, W>(weight, rows.past(r * d), &bends.of(r)));
            }
            let (s, sv) = (across.total::<V>(0), across.total::<V>(1));
            let (sg, svg) = (across.total::<V>(2), across.total::<V>(3));
            let mean = sv.div(s).keep(s.gt(zero));
            mean.add(middle).store(means.as_mut_ptr());
            // The weights carry the factor `scale`; the gradient in α does not.
            let slope = mean.mul(sg).sub(svg).div(V::splat(rows.scale));
            slope.keep(s.gt(zero)).store(slopes.as_mut_ptr());
            for r in 0..dalpha.len() {
                products::<V>(rows.past(r * d), means[r]);
            }
        }
        for (dalpha, slope) in dalpha.iter_mut().zip(slopes) {
            *dalpha = f64::from(slope);
        }
    }
}

/// Sums that rows have in their lanes, until they are turned into lanes of rows.
struct Across([[f32; MAX_LANES * MAX_LANES]; 4]);

impl Across {
    fn new() -> Across {
        Across([[0.0; MAX_LANES * MAX_LANES]; 4])
    }

    /// Keeps those of row `r` of a group.
    ///
    /// # Safety
    /// `r < LANES`.
    #[inline(always)]
    unsafe fn put<V: Vector, const N: usize>(&mut self, r: usize, sums: [V; N]) {
        for (to, sum) in self.0.iter_mut().zip(sums) {
            // SAFETY: `LANES` rows of `LANES` floats are within the array.
            unsafe { sum.store(to.as_mut_ptr().add(r * V::LANES)) };
        }
    }

    /// The sum of the lanes of the `k`-th of every row: a row a lane.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn total<V: Vector>(&self, k: usize) -> V {
        // SAFETY: the array holds `LANES` rows of `LANES` floats.
        unsafe { V::row_sums(self.0[k].as_ptr()) }
    }

    /// The largest lane of the `k`-th of every row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn most<V: Vector>(&self, k: usize) -> V {
        // SAFETY: the array holds `LANES` rows of `LANES` floats.
        unsafe { V::row_maxima(self.0[k].as_ptr()) }
    }
}

/// The largest score of the support, its probability, and `<p, v>`, by lanes.
struct Tops<V> {
    score: V,
    p: V,
    pv: V,
}

impl<V: Vector> Tops<V> {
    /// A vector more.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add(&mut self, z: V, p: V, v: V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let on = p.gt(V::splat(0.0));
            self.p = p.max(self.p);
            self.score = z.select(on, V::splat(f32::NEG_INFINITY)).max(self.score);
            self.pv = p.fma(v.keep(on), self.pv);
        }
    }
}

/// # Safety
/// As [`groups`], for one row.
#[inline(always)]
unsafe fn tops<V: Vector>(row: Rows) -> [V; 3] {
    let step = part::<V>();
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let zero = V::splat(0.0);
        let mut tops = Tops { score: V::splat(f32::NEG_INFINITY), p: zero, pv: zero };
        for first in (0..row.d).step_by(step) {
            let part = Rows { d: (row.d - first).min(step), ..row.past(first) };
            let whole = part.d / V::LANES;
            // In a long row most of `z` and `v` need not be read; in a short one a look costs more than reading.
            let mut word = if row.d > step { busy::<V>(part.p, part.d) } else { u64::MAX };
            while word.trailing_zeros() < whole as u32 {
                let i = word.trailing_zeros() as usize * V::LANES;
                tops.add(V::load(part.z.add(i)), V::load(part.p.add(i)), V::load(part.v.add(i)));
                word &= word - 1;
            }
            let (i, n) = (whole * V::LANES, part.d % V::LANES);
            if n > 0 {
                tops.add(read(part.z.add(i), n), read(part.p.add(i), n), read(part.v.add(i), n));
            }
        }
        [tops.score, tops.p, tops.pv]
    }
}

/// What `g` needs of its row, and the middle of `v`.
#[derive(Clone, Copy)]
struct Bend {
    top_score: f32,
    /// From differences of scores to `q`.
    to_q: f32,
    scale: f32,
    log_top: f32,
    /// `1/u₀`
    inverse: f32,
    /// `u₀/δ²`, for `e²/u₀ = (u₀/δ²) q²` far from 0.
    far: f32,
    middle: f32,
}

/// The same of a group of rows.
struct Bends {
    scale: f32,
    known: [[f32; MAX_LANES]; 6],
}

impl Bends {
    fn new() -> Bends {
        Bends { scale: 1.0, known: [[0.0; MAX_LANES]; 6] }
    }

    /// From the largest score of every row, its probability, and the middle of `v`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn fill<V: Vector>(&mut self, rows: &Rows, top_score: V, top: V, middle: V) {
        let (delta, scale) = (rows.delta as f32, rows.scale);
        self.scale = scale;
        // SAFETY: as the caller vouches.
        unsafe {
            // A row of zeros has no largest entry; nothing of what follows is looked at.
            let log = log2(V::splat(1.0).select(V::splat(f32::MIN_POSITIVE).gt(top), top));
            let u = exp2_nonpos(log.mul(V::splat(delta)));
            let inverse = V::splat(1.0).div(u);
            let square = V::splat(if delta > 0.0 { (1.0 / (rows.delta * rows.delta)).min(1e30) as f32 } else { 0.0 });
            let to_q = inverse.mul(V::splat(delta * scale));
            let log = log.mul(V::splat(std::f32::consts::LN_2));
            let known = [top_score, to_q, log, inverse, u.mul(square), middle];
            for (to, lanes) in self.known.iter_mut().zip(known) {
                lanes.store(to.as_mut_ptr());
            }
        }
    }

    #[inline(always)]
    fn of(&self, r: usize) -> Bend {
        let [top_score, to_q, log_top, inverse, far, middle] = self.known.map(|of| of[r]);
        Bend { top_score, to_q, scale: self.scale, log_top, inverse, far, middle }
    }
}

impl Bend {
    /// `g` of differences from the largest score, and `u/u₀`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn at<V: Vector>(&self, gap: V) -> (V, V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let (e, q) = (gap.mul(V::splat(self.scale)), gap.mul(V::splat(self.to_q)));
            let u = q.add(V::splat(1.0)).max(V::splat(GRAIN));
            let (near, far, is_near) = entropy_near_one(u, q);
            let near = e.mul(e).mul(V::splat(self.inverse)).mul(near);
            let bent = near.select(is_near, far.mul(V::splat(self.far)));
            (e.fma(V::splat(self.log_top), bent), u)
        }
    }
}

/// `Σs`, `Σ s v'`, `Σ s g`, `Σ s v' g` of a row, by lanes; the weights stay in `out`.
///
/// # Safety
/// As [`groups`], for one row.
#[inline(always)]
unsafe fn row_sums<V: Vector, W: Weight>(weight: W, row: Rows, bend: &Bend) -> [V; 4] {
    // SAFETY: the parts are within the row.
    unsafe {
        let step = part::<V>();
        if row.d <= step {
            return sums::<V, W>(weight, row, bend);
        }
        let mut wide = [V::wide_zero(); 4];
        for at in (0..row.d).step_by(step) {
            let part = Rows { d: (row.d - at).min(step), ..row.past(at) };
            let sums = sums::<V, W>(weight, part, bend);
            for k in 0..4 {
                wide[k] = V::wide_add(wide[k], sums[k]);
            }
        }
        let mut totals = [V::splat(0.0); 4];
        for k in 0..4 {
            totals[k] = V::load_first(&(V::wide_total(wide[k]) as f32), 1, 0.0);
        }
        totals
    }
}

/// Entries in a part of a row: as many vectors as a word has bits, and sums that may stay in f32.
const fn part<V: Vector>() -> usize {
    if SHORT < 64 * V::LANES { SHORT } else { 64 * V::LANES }
}

/// A bit for every vector of a part of a row that has a positive entry. Found without a branch, and then
/// followed bit by bit: which vectors have one is anybody's guess.
///
/// # Safety
/// `x` is readable for `d ≤ part` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn busy<V: Vector>(x: *const f32, d: usize) -> u64 {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let (zero, mut word, mut i) = (V::splat(0.0), 0u64, 0);
        while i + V::LANES <= d {
            word |= u64::from(V::bits(V::load(x.add(i)).gt(zero)) != 0) << (i / V::LANES);
            i += V::LANES;
        }
        if i < d {
            word |= u64::from(V::bits(V::load_first(x.add(i), d - i, 0.0).gt(zero)) != 0) << (i / V::LANES);
        }
        word
    }
}

/// # Safety
/// As [`row_sums`], for `d ≤ part`.
#[inline(always)]
unsafe fn sums<V: Vector, W: Weight>(weight: W, row: Rows, bend: &Bend) -> [V; 4] {
    // SAFETY: every access stays within `d` floats.
    unsafe {
        let mut sums = Sums::<Pair<V>>::new();
        let lanes = Pair::<V>::LANES;
        let (whole, mut word) = (row.d / lanes, busy::<Pair<V>>(row.p, row.d));
        if (word.count_ones() as usize) < row.d.div_ceil(lanes) {
            std::ptr::write_bytes(row.out, 0, row.d);
        }
        while word.trailing_zeros() < whole as u32 {
            let i = word.trailing_zeros() as usize * lanes;
            let (z, p, v) = (row.z.add(i), row.p.add(i), row.v.add(i));
            sums.add(weight, bend, Pair::load(z), Pair::load(p), Pair::load(v)).store(row.out.add(i));
            word &= word - 1;
        }
        let ((s, t), (sv, tv), (sg, tg)) = (sums.s.halves(), sums.sv.halves(), sums.sg.halves());
        let (svg, tvg) = sums.svg.halves();
        let mut sums = Sums { s: s.add(t), sv: sv.add(tv), sg: sg.add(tg), svg: svg.add(tvg) };
        let mut i = whole * lanes;
        while word != 0 && i < row.d {
            let n = (row.d - i).min(V::LANES);
            let (z, p, v) = (row.z.add(i), row.p.add(i), row.v.add(i));
            write(sums.add(weight, bend, read(z, n), read(p, n), read(v, n)), row.out.add(i), n);
            i += n;
        }
        [sums.s, sums.sv, sums.sg, sums.svg]
    }
}

/// `Σs`, `Σ s v'`, `Σ s g`, `Σ s v' g`, by lanes.
struct Sums<V> {
    s: V,
    sv: V,
    sg: V,
    svg: V,
}

impl<V: Vector> Sums<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Sums<V> {
        // SAFETY: as the caller vouches.
        let zero = unsafe { V::splat(0.0) };
        Sums { s: zero, sv: zero, sg: zero, svg: zero }
    }

    /// A vector more; returns its weights.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add<W: Weight>(&mut self, weight: W, bend: &Bend, z: V, p: V, v: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let (on, top) = (p.gt(V::splat(0.0)), V::splat(bend.top_score));
            let (g, u) = bend.at(z.select(on, top).sub(top));
            let w = weight.weight_at(p, u, V::splat(bend.inverse));
            let wv = v.sub(V::splat(bend.middle)).keep(on).mul(w);
            self.s = self.s.add(w);
            self.sv = self.sv.add(wv);
            self.sg = w.fma(g, self.sg);
            self.svg = wv.fma(g, self.svg);
            w
        }
    }
}

/// The products, from the weights in `out`.
///
/// # Safety
/// As [`groups`], for one row.
#[inline(always)]
unsafe fn products<V: Vector>(row: Rows, mean: f32) {
    let step = part::<V>();
    // SAFETY: every access stays within `d` floats.
    unsafe {
        for first in (0..row.d).step_by(step) {
            let d = (row.d - first).min(step);
            let (whole, mut word) = (d / V::LANES, busy::<V>(row.out.add(first), d));
            while word.trailing_zeros() < whole as u32 {
                let i = first + word.trailing_zeros() as usize * V::LANES;
                let s = V::load(row.out.add(i));
                let w = V::load(row.v.add(i)).sub(V::splat(mean)).keep(s.gt(V::splat(0.0)));
                w.mul(s).store(row.out.add(i));
                word &= word - 1;
            }
            if word != 0 {
                let (i, n) = (first + whole * V::LANES, d % V::LANES);
                let s = read::<V>(row.out.add(i), n);
                let w = read::<V>(row.v.add(i), n).sub(V::splat(mean)).keep(s.gt(V::splat(0.0)));
                w.mul(s).store_first(row.out.add(i), n);
            }
        }
    }
}
