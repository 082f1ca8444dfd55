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
//! probabilities, rounded to f32, have lost them. Unless δ is small, nothing much cancels in
//! `−δ² g/u₀ = q (1 − ln u₀ − ln(1+q)) − ln(1+q)` either, which takes fewer operations.
//!
//! One pass takes all sums: `Σ s w g = Σ s v' g − (Σ s v'/Σs) Σ s g` with `v'` measured from that of the largest entry,
//! which leaves behind whatever all of `v` have in common. Rows go in groups, and those most of whose entries are 0 on
//! lists of their supports (`supports.rs`).

use super::expo::{entropy_near_one, exp2_nonpos, log2};
use super::supports::{Across, NARROW, Row, Sums, count, group, mark, part, put_back, room, words};
use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::{Identity, Indicator, Power, Root, Weight};
use super::{Backward, steep_backward};

/// `u/u₀` is not known more closely than this.
const GRAIN: f32 = 1e-7;

/// The least δ whose gradients lose nothing that counts to what cancels: near the largest entry `q/δ|ln p₀|` of
/// `ln(1 + q)`'s last digits, and there are at least two entries there, so that `|ln p₀| ≥ ln 2`.
const STEEP: f64 = 0.1;

/// Backward pass of a block of rows at scores `z`; `dalpha` gets one number a row.
///
/// # Safety
/// The slices of `job` have the lengths that `Backward` promises, `z` that of `job.p`, `d ≥ 1`,
/// `dalpha` has one number a row, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    // SAFETY: as the caller vouches.
    unsafe {
        if alpha > 2.0 {
            steep_backward::rows::<V>(alpha, job, z, dalpha);
        } else if alpha == 2.0 {
            groups::<V, _>(Indicator(job.scale), Rows::new::<V>(alpha, job, z, dalpha));
        } else if alpha == 1.5 {
            groups::<V, _>(Root(job.scale), Rows::new::<V>(alpha, job, z, dalpha));
        } else if alpha == 1.0 {
            groups::<V, _>(Identity(job.scale), Rows::new::<V>(alpha, job, z, dalpha));
        } else {
            groups::<V, _>(Power::new(alpha, job.scale), Rows::new::<V>(alpha, job, z, dalpha));
        }
    }
}

/// The rows of a block, by pointer, and lists for a group of them.
#[derive(Clone, Copy)]
struct Rows {
    delta: f64,
    scale: f32,
    z: *const f32,
    p: *const f32,
    v: *const f32,
    out: *mut f32,
    dalpha: *mut f64,
    rows: usize,
    d: usize,
    lists: *mut f32,
    words: *mut u64,
}

outlined! {
    /// All rows, in groups.
    ///
    /// # Safety
    /// The pointers are readable for `rows` rows of `d` floats, `out` writable, `dalpha` writable for a number a row, the
    /// lists for three of every row of a group; the CPU has the instruction set of `V`.
    unsafe fn groups<V, W: Weight>(weight: W, rows: Rows) -> () => groups_any
}

/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn groups_any<V: Vector, W: Weight>(weight: W, rows: Rows) {
    let (mut across, mut of, size) = (Across::new(), Measures::new(), group::<V>(rows.d));
    for first in (0..rows.rows).step_by(size) {
        let here = (rows.rows - first).min(size);
        // SAFETY: row `r` of the group lies within the rows for `r < here`.
        unsafe {
            let rows = rows.past(first);
            rows.list_group::<V>(here, &mut across, &mut of);
            for r in 0..here {
                across.put(r, rows.weigh::<V, W>(weight, r, &of));
            }
            let (s, sv) = (across.total::<V>(0), across.total::<V>(1));
            let (sg, svg) = (across.total::<V>(2), across.total::<V>(3));
            let mean = sv.div(s).keep(s.gt(V::splat(0.0)));
            mean.store(of.mean.as_mut_ptr());
            // The weights carry the factor `scale`; the gradient in α does not.
            let slope = svg.sub(mean.mul(sg)).mul(V::load(of.factor.as_ptr())).div(V::splat(rows.scale));
            slope.keep(s.gt(V::splat(0.0))).store(of.slope.as_mut_ptr());
            for r in 0..here {
                rows.multiply::<V>(r, &of);
                *rows.dalpha.add(r) = f64::from(of.slope[r]);
            }
        }
    }
}

/// Where scores, probabilities and `v` of a row are found, and where its weights are left: as it is, or on lists.
#[derive(Clone, Copy)]
struct Place {
    z: *const f32,
    p: *const f32,
    v: *const f32,
    weights: *mut f32,
    n: usize,
    is_list: bool,
}

/// What there is one of for every row of a group.
struct Measures {
    place: [Place; MAX_LANES],
    /// The largest score, and its `v`.
    top: [f32; MAX_LANES],
    from: [f32; MAX_LANES],
    /// From differences of scores to `q`.
    to_q: [f32; MAX_LANES],
    /// `1/u₀`
    inverse: [f32; MAX_LANES],
    /// `ln p₀`, and `1 − ln u₀`.
    log_top: [f32; MAX_LANES],
    less_log: [f32; MAX_LANES],
    /// `u₀/δ²`, for `e²/u₀ = (u₀/δ²) q²` far from 0.
    far: [f32; MAX_LANES],
    /// What the sum of the products is multiplied by.
    factor: [f32; MAX_LANES],
    mean: [f32; MAX_LANES],
    slope: [f32; MAX_LANES],
}

impl Measures {
    fn new() -> Measures {
        let (nowhere, none) = (std::ptr::null(), [0.0; MAX_LANES]);
        let place = Place { z: nowhere, p: nowhere, v: nowhere, weights: nowhere.cast_mut(), n: 0, is_list: false };
        let place = [place; MAX_LANES];
        let (top, from, to_q, inverse, log_top) = (none, none, none, none, none);
        let (less_log, far, factor, mean, slope) = (none, none, none, none, none);
        Measures { place, top, from, to_q, inverse, log_top, less_log, far, factor, mean, slope }
    }
}

impl Rows {
    /// # Safety
    /// As [`rows`].
    unsafe fn new<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) -> Rows {
        let (d, scale, rows, dalpha) = (job.d, job.scale, dalpha.len(), dalpha.as_mut_ptr());
        let size = group::<V>(d).min(rows);
        let lists = job.scratch.floats(3 * size * room(d));
        // Two positions make room for one word.
        let words = job.scratch.positions(2 * size * words::<V>(d)).cast();
        let (z, p, v, out) = (z.as_ptr(), job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
        Rows { delta: alpha - 1.0, scale, z, p, v, out, dalpha, rows, d, lists, words }
    }

    /// From row `r` on.
    ///
    /// # Safety
    /// There are at least `r` rows.
    #[inline(always)]
    unsafe fn past(self, r: usize) -> Rows {
        let at = r * self.d;
        // SAFETY: as the caller vouches.
        unsafe {
            let (z, p, v, out) = (self.z.add(at), self.p.add(at), self.v.add(at), self.out.add(at));
            Rows { z, p, v, out, dalpha: self.dalpha.add(r), rows: self.rows - r, ..self }
        }
    }

    /// Row `r` of a group.
    ///
    /// # Safety
    /// `r` is a row of a group.
    #[inline(always)]
    unsafe fn row<V: Vector>(&self, r: usize) -> Row {
        let (d, at) = (self.d, r * self.d);
        // SAFETY: as the caller vouches.
        unsafe {
            let (key, p, v, out) = (self.z.add(at), self.p.add(at), self.v.add(at), self.out.add(at));
            Row { key, p, v, out, d, words: self.words.wrapping_add(r * words::<V>(d)) }
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

    /// Lists the supports of a group of rows, and finds the largest entry of each.
    ///
    /// # Safety
    /// As [`groups`], for as many rows.
    #[inline(always)]
    unsafe fn list_group<V: Vector>(&self, rows: usize, across: &mut Across, of: &mut Measures) {
        // SAFETY: as the caller vouches.
        unsafe {
            for r in 0..rows {
                let tops;
                (of.place[r], tops) = self.place::<V>(r);
                across.put(r, tops);
            }
            let (score, top) = (across.most::<V>(0), across.most::<V>(2));
            score.store(of.top.as_mut_ptr());
            for r in 0..rows {
                let is_top = across.get::<V>(r, 0).ge(V::splat(of.top[r]));
                let from = across.get::<V>(r, 1).select(is_top, V::splat(f32::NEG_INFINITY));
                across.put(r, [from]);
            }
            across.most::<V>(0).store(of.from.as_mut_ptr());
            self.measure(top, of);
        }
    }

    /// Where a row is found from now on; and by lanes the largest score of its support, its `v`, and the largest
    /// probability.
    ///
    /// # Safety
    /// As [`groups`], for one row.
    #[inline(always)]
    unsafe fn place<V: Vector>(&self, r: usize) -> (Place, [V; 3]) {
        // SAFETY: every access stays within `d` floats, and a list ends no later than the row.
        unsafe {
            let row @ Row { key: z, p, v, out, d, words } = self.row::<V>(r);
            let mut tops = Tops::new();
            if d <= NARROW || mark::<V>(row) * V::LANES * 4 > d && count::<V>(p, d) * 2 > d {
                for i in (0..d).step_by(V::LANES) {
                    let len = (d - i).min(V::LANES);
                    tops.add(read::<V>(z.add(i), len), read::<V>(p.add(i), len), read::<V>(v.add(i), len));
                }
                return (Place { z, p, v, weights: out, n: d, is_list: false }, tops.lanes());
            }
            let (zs, ps, vs, mut n) = (self.list(0, r), self.list(1, r), self.list(2, r), 0);
            for first in (0..d).step_by(part::<V>()) {
                let mut word = words.add(first / part::<V>()).read_unaligned();
                while word != 0 {
                    let i = first + word.trailing_zeros() as usize * V::LANES;
                    let len = (d - i).min(V::LANES);
                    let (z, p, v) = (read::<V>(z.add(i), len), read::<V>(p.add(i), len), read::<V>(v.add(i), len));
                    let on = tops.add(z, p, v);
                    z.compress(on, zs.add(n));
                    v.compress(on, vs.add(n));
                    n += p.compress(on, ps.add(n));
                    word &= word - 1;
                }
            }
            (Place { z: zs, p: ps, v: vs, weights: ps, n, is_list: true }, tops.lanes())
        }
    }

    /// What the gradients of the rows of a group need, from the largest probability of every row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn measure<V: Vector>(&self, top: V, of: &mut Measures) {
        let (delta, scale) = (self.delta as f32, self.scale);
        // SAFETY: as the caller vouches.
        unsafe {
            let one = V::splat(1.0);
            // A row of zeros has no largest entry; nothing of what follows is looked at.
            let log = log2(one.select(V::splat(f32::MIN_POSITIVE).gt(top), top));
            let u = exp2_nonpos(log.mul(V::splat(delta)));
            let inverse = one.div(u);
            let square = V::splat(if delta > 0.0 { (1.0 / (self.delta * self.delta)).min(1e30) as f32 } else { 0.0 });
            let log = log.mul(V::splat(std::f32::consts::LN_2));
            let far = u.mul(square);
            inverse.mul(V::splat(delta * scale)).store(of.to_q.as_mut_ptr());
            inverse.store(of.inverse.as_mut_ptr());
            log.store(of.log_top.as_mut_ptr());
            one.sub(log.mul(V::splat(delta))).store(of.less_log.as_mut_ptr());
            far.store(of.far.as_mut_ptr());
            let factor = if self.delta >= STEEP { far } else { V::splat(-1.0) };
            factor.store(of.factor.as_mut_ptr());
        }
    }

    /// `Σ s`, `Σ s v'`, and, but for a factor, `Σ s g` and `Σ s v' g` of a row, by lanes; its weights stay in their place.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its place.
    #[inline(always)]
    unsafe fn weigh<V: Vector, W: Weight>(&self, weight: W, r: usize, of: &Measures) -> [V; 4] {
        let Place { z, p, v, weights, n, .. } = of.place[r];
        // SAFETY: every access stays within `n` floats.
        unsafe {
            let (top, from, one) = (V::splat(of.top[r]), V::splat(of.from[r]), V::splat(1.0));
            let (to_q, inverse, less_log) = (V::splat(of.to_q[r]), V::splat(of.inverse[r]), V::splat(of.less_log[r]));
            let mut sums = Sums::<V, 4>::new();
            for first in (0..n).step_by(part::<V>()) {
                if first > 0 {
                    sums.widen();
                }
                let sums = sums.part();
                for i in (first..n.min(first + part::<V>())).step_by(V::LANES) {
                    let len = (n - i).min(V::LANES);
                    let p = read::<V>(p.add(i), len);
                    let on = p.gt(V::splat(0.0));
                    let gap = read::<V>(z.add(i), len).sub(top).keep(on);
                    let q = gap.mul(to_q);
                    let u = q.add(one).max(V::splat(GRAIN));
                    let s = weight.weight_at(p, u, inverse);
                    let g = if self.delta >= STEEP {
                        let log = u.log2_near_one(q).mul(V::splat(std::f32::consts::LN_2));
                        q.mul(less_log.sub(log)).sub(log)
                    } else {
                        self.bend(gap, (u, q), (V::splat(of.log_top[r]), inverse, V::splat(of.far[r])))
                    };
                    write(s, weights.add(i), len);
                    let sv = read::<V>(v.add(i), len).sub(from).keep(on).mul(s);
                    sums[0] = sums[0].add(s);
                    sums[1] = sums[1].add(sv);
                    sums[2] = s.fma(g, sums[2]);
                    sums[3] = sv.fma(g, sums[3]);
                }
            }
            sums.lanes()
        }
    }

    /// `g` of differences from the largest score, for any δ.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn bend<V: Vector>(&self, gap: V, (u, q): (V, V), (log_top, inverse, far): (V, V, V)) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let e = gap.mul(V::splat(self.scale));
            let (near, away, is_near) = entropy_near_one(u, q);
            let near = e.mul(e).mul(inverse).mul(near);
            e.fma(log_top, near.select(is_near, away.mul(far)))
        }
    }

    /// Writes the products of a row.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its weights.
    #[inline(always)]
    unsafe fn multiply<V: Vector>(&self, r: usize, of: &Measures) {
        let Place { v, weights, n, is_list, .. } = of.place[r];
        // SAFETY: every access stays within `n` floats.
        unsafe {
            let (from, mean) = (V::splat(of.from[r]), V::splat(of.mean[r]));
            for i in (0..n).step_by(V::LANES) {
                let len = (n - i).min(V::LANES);
                let s = read::<V>(weights.add(i), len);
                let w = read::<V>(v.add(i), len).sub(from).sub(mean).keep(s.gt(V::splat(0.0)));
                write(s.mul(w), weights.add(i), len);
            }
            if is_list {
                put_back::<V>(self.row::<V>(r), weights);
            }
        }
    }
}

/// The largest score of the support, its `v`, and the largest probability, by lanes.
struct Tops<V> {
    score: V,
    beside: V,
    p: V,
}

impl<V: Vector> Tops<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Tops<V> {
        // SAFETY: as the caller vouches.
        unsafe { Tops { score: V::splat(f32::NEG_INFINITY), beside: V::splat(0.0), p: V::splat(0.0) } }
    }

    /// A vector more; returns which of it are in the support.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add(&mut self, z: V, p: V, v: V) -> V::Mask {
        // SAFETY: as the caller vouches.
        unsafe {
            let on = p.gt(V::splat(0.0));
            let z = z.select(on, V::splat(f32::NEG_INFINITY));
            let is_higher = z.gt(self.score);
            self.score = z.select(is_higher, self.score);
            self.beside = v.select(is_higher, self.beside);
            self.p = p.max(self.p);
            on
        }
    }

    #[inline(always)]
    fn lanes(self) -> [V; 3] {
        [self.score, self.beside, self.p]
    }
}
