//! Backward pass of α-entmax, in the scores and in α.
//!
//! In the scores: `s = p^{2−α}` on the support and `Jv = scale · s ⊙ (v − <s,v>/Σs)`.
//! In α, with `δ = α − 1`, `ℓ = ln p`, `H = −Σpℓ`, `r = ℓ²φ₂(−δℓ)`, `φ₂(y) = (eʸ−1−y)/y²`,
//! `R = Σpr`, `E = δH + δ²R`:
//!
//! ```text
//! <v, ∂p/∂α> = [ R <p,v> − <pr,v> − δ (R <pℓ,v> + H <pr,v>) ] / (1 + E)
//! ```
//!
//! which cancels nowhere, α = 1 included. The two share their logarithms, and since
//! `p·e^{−δℓ} = s`, a large `r` comes from `s` for free: `pr = (s − p + δpℓ)/δ²`.
//!
//! The support is listed first; everything is computed on the list. For α > 2, where `s`
//! of a small `p` exceeds every f32, the list is worked in f64, and `v` is measured from
//! the entry with the largest `s` so that nothing cancels against it.

use super::Backward;
use super::expo::{exp2_nonpos, log2};
use super::scan::collect_indexed;
use super::vector::{Vector, outlined};

/// The sums over the support of one row.
#[derive(Default)]
struct Sums {
    s: f64,
    sv: f64,
    pv: f64,
    pl: f64,
    plv: f64,
    pr: f64,
    prv: f64,
}

impl Sums {
    #[inline(always)]
    fn add(&mut self, (p, l, s, pr): (f64, f64, f64, f64), v: f64) {
        self.s += s;
        self.sv += s * v;
        self.pv += p * v;
        self.pl += p * l;
        self.plv += p * l * v;
        self.pr += pr;
        self.prv += pr * v;
    }
    /// `<v, ∂p/∂α>`.
    fn in_alpha(&self, delta: f64) -> f64 {
        let (h, r) = (-self.pl, self.pr);
        let e = delta * h + delta * delta * r;
        (r * self.pv - self.prv - delta * (r * self.plv + h * self.prv)) / (1.0 + e)
    }
}

/// Backward pass of a block of rows; `dalpha`, if wanted, gets one number a row.
///
/// # Safety
/// The slices of `job` have the lengths that `Backward` promises, `d ≥ 1`, `dalpha` has one
/// number a row, and the CPU has the instruction set of `V`.
pub(crate) unsafe fn rows<V: Vector>(alpha: f64, job: &mut Backward<'_>, mut dalpha: Option<&mut [f64]>) {
    let d = job.d;
    let delta = alpha - 1.0;
    let room = d + 2 * V::LANES;
    let (list, index) = job.scratch.lists(4 * room);
    for r in 0..job.out.len() / d {
        // SAFETY: row `r` lies within all three slices, and the scratch has four lists.
        unsafe {
            let (p, v) = (job.p.as_ptr().add(r * d), job.v.as_ptr().add(r * d));
            let out = std::slice::from_raw_parts_mut(job.out.as_mut_ptr().add(r * d), d);
            let n = support::<V>(p, d, list, index);
            let index = std::slice::from_raw_parts(index, n);
            out.fill(0.0);
            let sums = if delta <= 1.0 {
                let lists = [list, list.add(room), list.add(2 * room), list.add(3 * room)];
                narrow::<V>(delta, lists, index, v, out, job.scale)
            } else {
                wide(delta, list, index, v, out, f64::from(job.scale))
            };
            if let Some(a) = dalpha.as_deref_mut() {
                a[r] = if n > 0 { sums.in_alpha(delta) } else { 0.0 };
            }
        }
    }
}

/// `α ≤ 2`: logarithms and powers in f32 lanes, sums in f64.
///
/// # Safety
/// `lists[0]` holds `p` at the positions `index`, all below `out.len()`; the four lists are
/// writable for that many floats rounded up to whole vectors; `v` is readable at those
/// positions; the CPU has the instruction set of `V`.
unsafe fn narrow<V: Vector>(
    delta: f64,
    lists: [*mut f32; 4],
    index: &[u32],
    v: *const f32,
    out: &mut [f32],
    scale: f32,
) -> Sums {
    // SAFETY: as the caller vouches.
    unsafe {
        let [ps, ls, ss, rs] = lists;
        logarithms::<V>(delta, lists, index.len());
        let mut sums = Sums::default();
        for (k, &i) in index.iter().enumerate() {
            let number = |list: *mut f32| f64::from(*list.add(k));
            let v = f64::from(*v.add(i as usize));
            sums.add((number(ps), number(ls), number(ss), number(rs)), v);
        }
        let mean = if sums.s > 0.0 { (sums.sv / sums.s) as f32 } else { 0.0 };
        for (k, &i) in index.iter().enumerate() {
            out[i as usize] = *ss.add(k) * scale * (*v.add(i as usize) - mean);
        }
        sums
    }
}

outlined! {
    /// Lists the positive entries of `p`.
    ///
    /// # Safety
    /// As `collect_indexed`.
    unsafe fn support<V>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize
        => support_any
}

/// # Safety
/// As [`support`].
#[inline(always)]
unsafe fn support_any<V: Vector>(p: *const f32, d: usize, list: *mut f32, index: *mut u32) -> usize {
    // SAFETY: as the caller vouches.
    unsafe { collect_indexed::<V>(p, d, 0.0, 0, list, index) }
}

outlined! {
    /// From `n` entries `p` in the first list: `ℓ`, `s` and `pr` into the others.
    ///
    /// # Safety
    /// As [`narrow`].
    unsafe fn logarithms<V>(delta: f64, lists: [*mut f32; 4], n: usize) -> () => logarithms_any
}

/// # Safety
/// As [`logarithms`].
#[inline(always)]
unsafe fn logarithms_any<V: Vector>(delta: f64, [ps, ls, ss, rs]: [*mut f32; 4], n: usize) {
    // SAFETY: as the caller vouches.
    unsafe {
        let (one, small) = (V::splat(1.0), delta as f32);
        let (delta, rest) = (V::splat(small), V::splat((1.0 - delta) as f32));
        let inverse = V::splat(1.0 / (small * small));
        let mut i = 0;
        while i < n {
            let p = V::load(ps.add(i));
            let bits = log2(p);
            let (l, s) = (bits.mul(V::splat(std::f32::consts::LN_2)), exp2_nonpos(bits.mul(rest)));
            let y = V::splat(0.0).sub(delta.mul(l));
            // φ₂ by its series below 1 (the next term is y⁸/10! < 3e−7), directly above.
            let mut phi = V::splat(1.0 / 362_880.0).fma(y, V::splat(1.0 / 40_320.0));
            for c in [5040.0, 720.0, 120.0, 24.0, 6.0, 2.0] {
                phi = phi.fma(y, V::splat(1.0 / c));
            }
            let series = p.mul(l).mul(l).mul(phi);
            let direct = s.sub(p).sub(p.mul(y)).mul(inverse);
            l.store(ls.add(i));
            s.store(ss.add(i));
            direct.select(y.gt(one), series).store(rs.add(i));
            i += V::LANES;
        }
    }
}

/// `α > 2`, in f64.
///
/// # Safety
/// `ps` holds `p` at the positions `index`, all below `out.len()`, and `v` is readable there.
unsafe fn wide(delta: f64, ps: *const f32, index: &[u32], v: *const f32, out: &mut [f32], scale: f64) -> Sums {
    // SAFETY: as the caller vouches.
    unsafe {
        let p = |k: usize| f64::from(*ps.add(k));
        let value = |k: usize| f64::from(*v.add(index[k] as usize));
        // The largest s belongs to the smallest p.
        let least = (0..index.len()).min_by(|&a, &b| p(a).total_cmp(&p(b))).unwrap_or(0);
        let from = if index.is_empty() { 0.0 } else { value(least) };
        let mut sums = Sums::default();
        for k in 0..index.len() {
            let (p, l) = (p(k), p(k).ln());
            let y = -delta * l;
            let s = p * y.exp();
            let phi = if y < 1e-2 { 0.5 + y / 6.0 + y * y / 24.0 } else { (y.exp_m1() - y) / (y * y) };
            sums.add((p, l, s, p * l * l * phi), value(k) - from);
        }
        let mean = if sums.s > 0.0 { sums.sv / sums.s } else { 0.0 };
        for (k, &i) in index.iter().enumerate() {
            let s = p(k) * (-delta * p(k).ln()).exp();
            out[i as usize] = (s * scale * (value(k) - from - mean)) as f32;
        }
        sums
    }
}
