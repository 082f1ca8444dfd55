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
//! Rows whose probabilities tell all that counts are gone through without scores (`alpha_plain.rs`). The others take
//! three passes: the largest entry; `s`, `s g` and the mean of `v`; the products with `w`. Rows go in groups, and those
//! most of whose entries are 0 on lists of their supports (`supports.rs`).

use super::alpha_plain::{Slope, WIDEST, plain_group};
use super::expo::{Known, entropy_near_one, exp2_nonpos, log2};
use super::supports::{
    Across, LISTED, NARROW, Row, Sums, count, group, is_dense, mark, part, put_back, room, unset, words,
};
use super::vector::{MAX_LANES, Vector, outlined, read, write};
use super::weight::{Identity, Indicator, Power, Quotient, Root, Weight};
use super::{Backward, backward, steep_backward};

/// How far ahead of where they are passes ask, in floats.
const AHEAD: usize = 1024;

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
            return steep_backward::rows::<V>(alpha, job, z, dalpha);
        }
        let (scale, exponent) = (job.scale, 2.0 - alpha);
        let rows = Rows::new::<V>(alpha, job, z, dalpha);
        if alpha == 2.0 {
            groups::<V, _, true>(Indicator(scale), rows);
        } else if alpha == 1.5 {
            groups::<V, _, true>(Root(scale), rows);
        } else if alpha == 1.0 {
            groups::<V, _, false>(Identity(scale), rows);
        } else if alpha > 1.5 {
            groups::<V, _, true>(Power::new(&Known::new(exponent), scale), rows);
        } else if rows.delta >= STEEP {
            groups::<V, _, true>(Quotient(Power::new(&Known::new(exponent), scale)), rows);
        } else {
            groups::<V, _, false>(Quotient(Power::new(&Known::new(exponent), scale)), rows);
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
    /// Which rows of a group are gone through here.
    pick: *const usize,
}

outlined! {
    /// All rows, in groups; whether δ is `STEEP`.
    ///
    /// # Safety
    /// The pointers are readable for `rows` rows of `d` floats, `out` writable, `dalpha` writable for a number a row, the
    /// lists for three of every row of a group; the CPU has the instruction set of `V`.
    unsafe fn groups<V, W: Weight; IS_STEEP>(weight: W, rows: Rows) -> () => groups_any
}

/// # Safety
/// As [`groups`].
#[inline(always)]
unsafe fn groups_any<V: Vector, W: Weight, const IS_STEEP: bool>(weight: W, rows: Rows) {
    let (mut across, mut of, size) = (Across::new(), Measures::new(), group::<V>(rows.d));
    for first in (0..rows.rows).step_by(size) {
        let here = (rows.rows - first).min(size);
        // SAFETY: row `r` of the group lies within the rows for `r < here`.
        unsafe {
            let mut rows = rows.past(first);
            let all = ((1u64 << here) - 1) as u32;
            let is_plain = W::PLAIN && rows.d <= WIDEST;
            let left = if is_plain { rows.plain::<V, W>(weight, here, &mut across) } else { all };
            if left == 0 {
                continue;
            }
            let (mut here, mut pick) = (0, [0usize; MAX_LANES]);
            for r in 0..V::LANES {
                pick[here] = r;
                here += (left >> r & 1) as usize;
            }
            rows.pick = pick.as_ptr();
            rows.list_group::<V, IS_STEEP>(here, &mut across, &mut of);
            if of.place[0].is_crowded {
                // A row by itself.
                *rows.dalpha = rows.crowd::<V, W, IS_STEEP>(weight, &of);
                continue;
            }
            for r in 0..here {
                across.put(r, rows.weigh::<V, W, IS_STEEP>(weight, r, &of));
            }
            let s = across.total::<V>(0);
            across.total::<V>(1).div(s).keep(s.gt(V::splat(0.0))).store(of.mean.as_mut_ptr());
            for r in 0..here {
                across.put(r, [rows.multiply::<V>(r, &of)]);
            }
            // The weights carry the factor `scale`; the gradient in α does not.
            let slope = across.total::<V>(0).mul(V::load(of.factor.as_ptr())).div(V::splat(rows.scale));
            slope.keep(s.gt(V::splat(0.0))).store(of.slope.as_mut_ptr());
            for r in 0..here {
                *rows.dalpha.add(*rows.pick.add(r)) = f64::from(of.slope[r]);
            }
        }
    }
}

/// Where scores, probabilities and `v` of a row are found, and where its weights and their products with `g` are left: as
/// it is, or on lists.
#[derive(Clone, Copy)]
struct Place {
    z: *const f32,
    p: *const f32,
    v: *const f32,
    weights: *mut f32,
    bent: *mut f32,
    n: usize,
    is_list: bool,
    /// Whether the row is too wide for that: products with `g` are left nowhere then.
    is_crowded: bool,
    /// What `v` is measured from: that of one of the support, which leaves behind whatever all of them have in common.
    from: f32,
}

/// What there is one of for every row of a group.
struct Measures {
    place: [Place; MAX_LANES],
    /// The largest score.
    top: [f32; MAX_LANES],
    /// From differences of scores to `q`.
    to_q: [f32; MAX_LANES],
    /// `1/u₀`
    inverse: [f32; MAX_LANES],
    /// `ln p₀`, and `1 − ln u₀` in units of `ln 2`.
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
        let (nowhere, none) = (std::ptr::null::<f32>(), [0.0; MAX_LANES]);
        let (weights, bent) = (nowhere.cast_mut(), nowhere.cast_mut());
        let (n, is_list, is_crowded, from) = (0, false, false, 0.0);
        let place = Place { z: nowhere, p: nowhere, v: nowhere, weights, bent, n, is_list, is_crowded, from };
        let place = [place; MAX_LANES];
        let (top, to_q, inverse, log_top, less_log) = (none, none, none, none, none);
        let (far, factor, mean, slope) = (none, none, none, none);
        Measures { place, top, to_q, inverse, log_top, less_log, far, factor, mean, slope }
    }
}

impl Rows {
    /// # Safety
    /// As [`rows`].
    unsafe fn new<V: Vector>(alpha: f64, job: &mut Backward<'_>, z: &[f32], dalpha: &mut [f64]) -> Rows {
        let (d, scale, rows, dalpha) = (job.d, job.scale, dalpha.len(), dalpha.as_mut_ptr());
        let size = group::<V>(d).min(rows);
        let lists = unset(job.scratch, 3 * size * room(d));
        // Two positions make room for one word.
        let words = job.scratch.positions(2 * size * words::<V>(d)).cast();
        let (z, p, v, out) = (z.as_ptr(), job.p.as_ptr(), job.v.as_ptr(), job.out.as_mut_ptr());
        let pick = std::ptr::null();
        Rows { delta: alpha - 1.0, scale, z, p, v, out, dalpha, rows, d, lists, words, pick }
    }

    /// Goes through the rows of a group that their probabilities tell all about; returns the bits of the others.
    ///
    /// # Safety
    /// As [`groups`], for `n` rows of at most [`WIDEST`] entries.
    #[inline(always)]
    unsafe fn plain<V: Vector, W: Weight>(&self, weight: W, n: usize, across: &mut Across) -> u32 {
        let Rows { p, v, out, d, dalpha, lists, .. } = *self;
        let slope = Slope::new(self.delta, self.scale);
        // SAFETY: as the caller vouches.
        unsafe { plain_group::<V, W>(weight, slope, backward::Rows { p, v, out, d }, n, lists, across, dalpha) }
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
        let d = self.d;
        // SAFETY: as the caller vouches.
        unsafe {
            let at = *self.pick.add(r) * d;
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
    unsafe fn list_group<V: Vector, const IS_STEEP: bool>(&self, rows: usize, across: &mut Across, of: &mut Measures) {
        // SAFETY: as the caller vouches.
        unsafe {
            for r in 0..rows {
                let tops;
                (of.place[r], tops) = self.place::<V>(r);
                across.put(r, tops);
            }
            across.most::<V>(0).store(of.top.as_mut_ptr());
            self.measure::<V, IS_STEEP>(across.most::<V>(1), of);
        }
    }

    /// Where a row is found from now on; and by lanes the largest score of its support, and the largest probability.
    ///
    /// # Safety
    /// As [`groups`], for one row.
    #[inline(always)]
    unsafe fn place<V: Vector>(&self, r: usize) -> (Place, [V; 2]) {
        // SAFETY: every access stays within `d` floats, and a list ends no later than the row.
        unsafe {
            let row @ Row { key: z, p, v, d, words, .. } = self.row::<V>(r);
            let (zs, ps, vs) = (self.list(0, r), self.list(1, r), self.list(2, r));
            let (zero, mut tops) = (V::splat(0.0), Tops::new());
            let is_wide = d > NARROW;
            let (is_long, mut stays) = (d > LISTED, !is_wide || is_dense::<V>(p, d));
            if is_long && !stays {
                mark::<V>(row);
                let busy: usize =
                    (0..self::words::<V>(d)).map(|k| words.add(k).read_unaligned().count_ones() as usize).sum();
                stays = busy * V::LANES > LISTED && count::<V>(p, d) > LISTED;
            }
            if stays {
                tops = Tops::over(z, p, d);
                if is_wide || tops.n * 2 > d {
                    return (self.whole::<V>(row, zs), tops.most);
                }
            }
            if !is_long {
                mark::<V>(row);
            }
            let mut n = 0;
            for first in (0..d).step_by(part::<V>()) {
                let mut word = words.add(first / part::<V>()).read_unaligned();
                while word != 0 {
                    let i = first + word.trailing_zeros() as usize * V::LANES;
                    let len = (d - i).min(V::LANES);
                    let (z, p, v) = (read::<V>(z.add(i), len), read::<V>(p.add(i), len), read::<V>(v.add(i), len));
                    let on = p.gt(zero);
                    if is_wide {
                        tops.add(z, p);
                    }
                    z.compress(on, zs.add(n));
                    v.compress(on, vs.add(n));
                    n += p.compress(on, ps.add(n));
                    word &= word - 1;
                }
            }
            // Vectors are read whole.
            zero.store(ps.add(n));
            let from = if n > 0 { *vs } else { 0.0 };
            (Place { z: zs, p: ps, v: vs, weights: ps, bent: zs, n, is_list: true, is_crowded: false, from }, tops.most)
        }
    }

    /// A row as it is, whose products with `g` go to that list if it has room for them.
    ///
    /// # Safety
    /// As [`groups`], for one row.
    #[inline(always)]
    unsafe fn whole<V: Vector>(&self, Row { key: z, p, v, out, d, .. }: Row, bent: *mut f32) -> Place {
        // SAFETY: the first of a support is within the row.
        let from = unsafe { *v.add(first_of::<V>(p, d)) };
        Place { z, p, v, weights: out, bent, n: d, is_list: false, is_crowded: d > LISTED, from }
    }

    /// Writes the products of a row that is too wide for lists; returns its gradient in α.
    ///
    /// That is `<s, (v − from) g> − mean <s, g>`, so that `g` is not needed again.
    ///
    /// # Safety
    /// As [`groups`], for the first row of a group, which has its place.
    #[inline(always)]
    unsafe fn crowd<V: Vector, W: Weight, const IS_STEEP: bool>(&self, weight: W, of: &Measures) -> f64 {
        let Place { p, v, weights: out, n: d, .. } = of.place[0];
        // SAFETY: every access but those that only ask stays within `d` floats.
        unsafe {
            let (entry, zero, mut sums) = (Entry::<V>::new(0, of), V::splat(0.0), Sums::<V, 4>::new());
            for first in (0..d).step_by(part::<V>()) {
                let part = sums.part();
                for i in (first..d.min(first + self::part::<V>())).step_by(V::LANES) {
                    let len = (d - i).min(V::LANES);
                    V::prefetch(p.wrapping_add(i + AHEAD));
                    V::prefetch(v.wrapping_add(i + AHEAD));
                    V::prefetch(entry.place.z.wrapping_add(i + AHEAD));
                    if V::bits(read::<V>(p.add(i), len).gt(zero)) == 0 {
                        write(zero, out.add(i), len);
                        continue;
                    }
                    let (s, g, moved) = self.entries::<V, W, IS_STEEP>(weight, (i, len), &entry);
                    write(s, out.add(i), len);
                    let bent = s.mul(g);
                    part[0] = part[0].add(s);
                    part[1] = moved.fma(s, part[1]);
                    part[2] = part[2].add(bent);
                    part[3] = moved.fma(bent, part[3]);
                }
                sums.widen();
            }
            let [s, sv, bent, bent_v] = sums.totals();
            let mean = if s > 0.0 { sv / s } else { 0.0 };
            let (from, centre) = (entry.from, V::splat(mean as f32));
            for i in (0..d).step_by(V::LANES) {
                let len = (d - i).min(V::LANES);
                V::prefetch(v.wrapping_add(i + AHEAD));
                let s = read::<V>(out.add(i), len);
                let w = read::<V>(v.add(i), len).sub(from).sub(centre).keep(s.gt(zero));
                write(s.mul(w), out.add(i), len);
            }
            let slope = (bent_v - mean * bent) * f64::from(of.factor[0]) / f64::from(self.scale);
            if s > 0.0 { slope } else { 0.0 }
        }
    }

    /// What the gradients of the rows of a group need, from the largest probability of every row.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn measure<V: Vector, const IS_STEEP: bool>(&self, top: V, of: &mut Measures) {
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
            let less_log = one.sub(log.mul(V::splat(delta))).mul(V::splat(std::f32::consts::LOG2_E));
            less_log.store(of.less_log.as_mut_ptr());
            far.store(of.far.as_mut_ptr());
            let factor = if IS_STEEP { far.mul(V::splat(std::f32::consts::LN_2)) } else { V::splat(-1.0) };
            factor.store(of.factor.as_mut_ptr());
        }
    }

    /// `Σ s` and `Σ s v` of a row, by lanes; its weights stay in their place, and so do their products with `g`, but for a
    /// factor.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its place.
    #[inline(always)]
    unsafe fn weigh<V: Vector, W: Weight, const IS_STEEP: bool>(&self, weight: W, r: usize, of: &Measures) -> [V; 2] {
        let n = of.place[r].n;
        // SAFETY: every access stays within `n` floats.
        unsafe {
            let (mut sums, entry) = (Sums::<V, 2>::new(), Entry::new(r, of));
            for first in (0..n).step_by(part::<V>()) {
                if first > 0 {
                    sums.widen();
                }
                let (here, sums) = ((n - first).min(part::<V>()), sums.part());
                let rest = here % V::LANES;
                for i in (first..first + here - rest).step_by(V::LANES) {
                    self.weigh_part::<V, W, IS_STEEP>(weight, (i, V::LANES), &entry, sums);
                }
                if rest > 0 {
                    self.weigh_part::<V, W, IS_STEEP>(weight, (n - rest, rest), &entry, sums);
                }
            }
            sums.lanes()
        }
    }

    /// [`weigh`](Rows::weigh) of a vector or a part of one.
    ///
    /// # Safety
    /// As [`weigh`](Rows::weigh).
    #[inline(always)]
    unsafe fn weigh_part<V: Vector, W: Weight, const IS_STEEP: bool>(
        &self,
        weight: W,
        (i, len): (usize, usize),
        entry: &Entry<V>,
        sums: &mut [V; 2],
    ) {
        let Place { v, weights, bent, .. } = entry.place;
        // SAFETY: as the caller vouches.
        unsafe {
            V::prefetch(v.wrapping_add(i + AHEAD));
            let (s, g, moved) = self.entries::<V, W, IS_STEEP>(weight, (i, len), entry);
            write(s, weights.add(i), len);
            write(s.mul(g), bent.add(i), len);
            sums[0] = sums[0].add(s);
            sums[1] = moved.fma(s, sums[1]);
        }
    }

    /// Weights, `g` and `v − from` of a vector or a part of one, but for a factor.
    ///
    /// # Safety
    /// As [`weigh`](Rows::weigh).
    #[inline(always)]
    unsafe fn entries<V: Vector, W: Weight, const IS_STEEP: bool>(
        &self,
        weight: W,
        (i, len): (usize, usize),
        entry: &Entry<V>,
    ) -> (V, V, V) {
        let Place { z, p, v, .. } = entry.place;
        // SAFETY: as the caller vouches.
        unsafe {
            let p = read::<V>(p.add(i), len);
            let on = p.gt(V::splat(0.0));
            let gap = read::<V>(z.add(i), len).sub(entry.top).keep(on);
            let q = gap.mul(entry.to_q);
            let u = q.add(V::splat(1.0)).max(V::splat(GRAIN));
            let s = weight.weight_at(p, u, entry.inverse);
            let g = if IS_STEEP {
                let log = u.log2_near_one(q);
                q.mul(entry.less_log.sub(log)).sub(log)
            } else {
                self.bend(gap, (u, q), entry)
            };
            (s, g, read::<V>(v.add(i), len).sub(entry.from).keep(on))
        }
    }

    /// `g` of differences from the largest score, for any δ.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn bend<V: Vector>(&self, gap: V, (u, q): (V, V), entry: &Entry<V>) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let e = gap.mul(V::splat(self.scale));
            let (near, away, is_near) = entropy_near_one(u, q);
            let near = e.mul(e).mul(entry.inverse).mul(near);
            e.fma(entry.log_top, near.select(is_near, away.mul(entry.far)))
        }
    }

    /// Writes the products of a row; returns the sum of those with `g`, by lanes.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its weights.
    #[inline(always)]
    unsafe fn multiply<V: Vector>(&self, r: usize, of: &Measures) -> V {
        let place @ Place { weights, n, is_list, .. } = of.place[r];
        // SAFETY: every access stays within `n` floats.
        unsafe {
            let (from, mean, mut sums) = (V::splat(place.from), V::splat(of.mean[r]), Sums::<V, 1>::new());
            for first in (0..n).step_by(part::<V>()) {
                if first > 0 {
                    sums.widen();
                }
                let (here, [sum]) = ((n - first).min(part::<V>()), sums.part());
                let rest = here % V::LANES;
                for i in (first..first + here - rest).step_by(V::LANES) {
                    *sum = place.multiply::<V>((i, V::LANES), (from, mean), *sum);
                }
                if rest > 0 {
                    *sum = place.multiply::<V>((n - rest, rest), (from, mean), *sum);
                }
            }
            if is_list {
                put_back::<V>(self.row::<V>(r), weights);
            }
            sums.lanes()[0]
        }
    }
}

impl Place {
    /// The products of a vector or a part of one; returns the sum of those with `g` so far.
    ///
    /// # Safety
    /// As [`groups`], for a row that has its weights.
    #[inline(always)]
    unsafe fn multiply<V: Vector>(&self, (i, len): (usize, usize), (from, mean): (V, V), sum: V) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            let s = read::<V>(self.weights.add(i), len);
            let w = read::<V>(self.v.add(i), len).sub(from).sub(mean).keep(s.gt(V::splat(0.0)));
            write(s.mul(w), self.weights.add(i), len);
            read::<V>(self.bent.add(i), len).fma(w, sum)
        }
    }
}

/// The first entry of a row that is positive, or just the first.
///
/// # Safety
/// `p` is readable for `d` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn first_of<V: Vector>(p: *const f32, d: usize) -> usize {
    for i in (0..d).step_by(V::LANES) {
        // SAFETY: every load stays within `d` floats.
        let on = V::bits(unsafe { read::<V>(p.add(i), (d - i).min(V::LANES)).gt(V::splat(0.0)) });
        if on != 0 {
            return i + on.trailing_zeros() as usize;
        }
    }
    0
}

/// What the entries of a row are measured by.
struct Entry<V> {
    place: Place,
    from: V,
    top: V,
    to_q: V,
    inverse: V,
    log_top: V,
    less_log: V,
    far: V,
}

impl<V: Vector> Entry<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new(r: usize, of: &Measures) -> Entry<V> {
        // SAFETY: as the caller vouches.
        unsafe {
            let (top, to_q, inverse) = (V::splat(of.top[r]), V::splat(of.to_q[r]), V::splat(of.inverse[r]));
            let (log_top, less_log, far) = (V::splat(of.log_top[r]), V::splat(of.less_log[r]), V::splat(of.far[r]));
            let place = of.place[r];
            Entry { place, from: V::splat(place.from), top, to_q, inverse, log_top, less_log, far }
        }
    }
}

/// The largest score of the support and the largest probability, by lanes, and how many were seen.
struct Tops<V> {
    most: [V; 2],
    n: usize,
}

impl<V: Vector> Tops<V> {
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn new() -> Tops<V> {
        // SAFETY: as the caller vouches.
        unsafe { Tops { most: [V::splat(f32::NEG_INFINITY), V::splat(0.0)], n: 0 } }
    }

    /// Those of a whole row.
    ///
    /// # Safety
    /// `z` and `p` are readable for `d` floats; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn over(z: *const f32, p: *const f32, d: usize) -> Tops<V> {
        let rest = d % V::LANES;
        // SAFETY: every load stays within `d` floats.
        unsafe {
            let mut tops = Tops::new();
            for i in (0..d - rest).step_by(V::LANES) {
                V::prefetch(z.wrapping_add(i + AHEAD));
                V::prefetch(p.wrapping_add(i + AHEAD));
                tops.add(V::load(z.add(i)), V::load(p.add(i)));
            }
            if rest > 0 {
                tops.add(read::<V>(z.add(d - rest), rest), read::<V>(p.add(d - rest), rest));
            }
            tops
        }
    }

    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn add(&mut self, z: V, p: V) {
        // SAFETY: as the caller vouches.
        unsafe {
            let on = p.gt(V::splat(0.0));
            let [score, most] = self.most;
            self.most = [z.select(on, V::splat(f32::NEG_INFINITY)).max(score), p.max(most)];
            self.n += V::bits(on).count_ones() as usize;
        }
    }
}
