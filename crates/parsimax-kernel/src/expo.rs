//! Elementary functions on lanes.

use super::vector::Vector;
use std::sync::LazyLock;

/// `1.5·2²³`: adding it rounds a small float to an integer held in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `2ᵗ` for `t ≤ 0`; `t < −126` (where the result would be denormal) and `−inf` give 0.
///
/// `t = n + f` with a whole `n` and `|f| ≤ ½`, and a degree-5 minimax polynomial for `2ᶠ`
/// whose relative error is 1.05e−7. The rounding of `t` itself adds `|t|` times 4e−8: small
/// against 1 whatever `t`, which is what probabilities need.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn exp2_nonpos<V: Vector>(t: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magic = V::splat(ROUND);
        let k = t.add(magic);
        let f = t.sub(k.sub(magic));
        exp2_fraction(f).shift_exponent(k).keep(t.gt(V::splat(-126.0)))
    }
}

/// The polynomial of `2ᶠ`, highest power first.
const EXP2: [f32; 6] = [0.001_330_026_5, 0.009_669_709, 0.055_505_6, 0.240_222_81, std::f32::consts::LN_2, 1.0];

/// `2ᶠ` for `|f| ≤ ½`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn exp2_fraction<V: Vector>(f: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // By halves (Estrin): the chain of dependent operations is what limits a row.
        let square = f.mul(f);
        let low = f.fma(V::splat(EXP2[4]), V::splat(EXP2[5]));
        let middle = V::splat(EXP2[2]).fma(f, V::splat(EXP2[3]));
        let high = V::splat(EXP2[0]).fma(f, V::splat(EXP2[1]));
        high.fma(square, middle).fma(square, low)
    }
}

/// `2^(z·scale − whole)` with a whole number `whole`, as long as the result is a normal number and
/// `|z·scale|` and `|whole|` are below 2²¹: [`Vector::exp2_scaled`] for any instruction set.
///
/// The nearest whole number to `z·scale` takes no subtraction of a maximum, and neither does the
/// rest: the products are exact before they are rounded, if `fma` is fused.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn exp2_scaled<V: Vector>(z: V, scale: V, whole: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magic = V::splat(ROUND).sub(whole);
        let k = z.fma(scale, magic);
        let f = z.fma(scale, magic.sub(k));
        // One term after the other: a row of these is not limited by the chain but by registers.
        let mut sum = V::splat(EXP2[0]);
        for c in &EXP2[1..] {
            sum = sum.fma(f, V::splat(*c));
        }
        sum.shift_exponent(k)
    }
}

/// `log₂ u` for positive numbers.
///
/// `u = m·2ᵏ` with `m` in `[√½, √2)`, then `log₂ m` by a degree-9 polynomial in `m − 1`
/// (relative error 3e−8). Numbers below the normal range are scaled up first, as large
/// exponents of `α` send them back into sight.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn log2<V: Vector>(u: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { log2_of_parts(parts(u)) }
}

/// `(m − 1, k)`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn parts<V: Vector>(u: V) -> (V, V) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let tiny = V::splat(f32::MIN_POSITIVE).gt(u);
        let up = u.mul(V::splat(16_777_216.0)).select(tiny, u);
        let (m, k) = up.split_exponent();
        (m.sub(V::splat(1.0)), k.sub(V::splat(24.0).keep(tiny)))
    }
}

/// `k + log₂(1 + r)`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn log2_of_parts<V: Vector>((r, k): (V, V)) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let y = log_cubic(r).mul(r).add(V::splat(-0.5)).fma(r.mul(r), r);
        y.fma(V::splat(std::f32::consts::LOG2_E), k)
    }
}

/// What `ln(1 + r)` has beyond `r − r²/2`, divided by `r³`, for `1 + r` in `[√½, √2)`.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn log_cubic<V: Vector>(r: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // c₀ + … + c₆r⁶, by halves.
        let square = r.mul(r);
        let c01 = V::splat(-0.250_013_38).fma(r, V::splat(0.333_339_1));
        let c23 = V::splat(-0.165_775_84).fma(r, V::splat(0.199_630_63));
        let c45 = V::splat(-0.142_674_94).fma(r, V::splat(0.149_147_7));
        let low = c23.fma(square, c01);
        let high = V::splat(0.087_004_35).fma(square, c45);
        high.fma(square.mul(square), low)
    }
}

/// `u ln u − q` for normal numbers `u = 1 + q ≤ 1`, given `q` to full relative accuracy, as
/// `(q² · near, far)`: near 1 the first, as `near` (which is about ½), elsewhere the second; and which.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
pub(crate) unsafe fn entropy_near_one<V: Vector>(u: V, q: V) -> (V, V, V::Mask) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (m, k) = u.split_exponent();
        let is_near = u.gt(V::splat(0.708));
        let r = q.select(is_near, m.sub(V::splat(1.0)));
        let cubic = log_cubic(r);
        // (1 + r)(r − r²/2 + r³c) − r = r²(½ + r((1 + r)c − ½))
        let near = cubic.fma(r, cubic).add(V::splat(-0.5)).fma(r, V::splat(0.5));
        let log = cubic.mul(r).add(V::splat(-0.5)).fma(r.mul(r), r);
        let log = k.fma(V::splat(std::f32::consts::LN_2), log);
        (near, u.fma(log, V::splat(0.0).sub(q)), is_near)
    }
}

/// An exponent that many numbers are raised to, with what can be worked out beforehand.
///
/// A number is `2ᵏ·c·(1 + r)`, where `c` is the middle of the sixteenth that its mantissa is in: the powers of `2ᵏ` and of `c`
/// are looked up, and that of `1 + r`, `|r| ≤ 1/33`, is a cubic, or of the fifth degree. Unlike a logarithm and an exponential this magnifies no
/// rounding, whatever the exponent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    pub(crate) e: f32,
    /// The factors of `r⁵` and `r⁴`, if large exponents ask for them; those of `r³`, `r²` and `r`.
    pub(crate) more: Option<[f32; 2]>,
    pub(crate) series: [f32; 3],
    /// The powers of the sixteen.
    pub(crate) near: [f32; 16],
    /// Those of `2ᵏ⁻³¹` and of `2³²ʲ⁻⁹⁶`, where `k` are the five lower bits of the exponent of a float and `j` the others.
    pub(crate) octaves: [f32; 32],
    /// Those of `2⁸ʲ⁻⁵⁶`, where `j` are the three bits above the three lowest.
    pub(crate) eights: [f32; 8],
    pub(crate) eras: [f32; 16],
}

/// `log₂ c`: where every row has an exponent of its own, what takes long is not the rows but these powers.
static LOG2: LazyLock<[f64; 16]> = LazyLock::new(|| Known::INVERSE.map(|inverse| -f64::from(inverse).log2()));

impl Known {
    /// `1/c`.
    pub(crate) const INVERSE: [f32; 16] = {
        let (mut inverse, mut i) = ([0.0; 16], 0);
        while i < 16 {
            inverse[i] = 32.0 / (33 + 2 * i) as f32;
            i += 1;
        }
        inverse
    };

    /// The largest number that counts as 0, and so does its power, where numbers up to 1 are raised: 2⁻³⁰.
    pub(crate) const NOTHING: f32 = f32::from_bits((127 - 30) << 23).next_down();

    pub(crate) fn new(e: f64) -> Known {
        const FAR: f64 = 1.0 / 33.0;
        const MOST_CUBIC: f64 = 4.0;
        // (1 + r)^e, with the fourth power of r put off on the second and on 1, and the fifth on the third and the first
        // (Chebyshev).
        let term = |n: u32| (0..n).fold(1.0, |p, k| p * (e - f64::from(k)) / f64::from(k + 1));
        let more = (e > MOST_CUBIC).then(|| [term(5) as f32, term(4) as f32]);
        let (fourth, fifth) = if more.is_none() { (term(4), term(5)) } else { (0.0, 0.0) };
        let one = 1.0 - fourth * FAR.powi(4) / 8.0;
        let third = term(3) + 1.25 * FAR.powi(2) * fifth;
        let second = term(2) + FAR.powi(2) * fourth;
        let first = term(1) - 0.3125 * FAR.powi(4) * fifth;
        let series = [third, second, first].map(|c| (c / one) as f32);
        let mut near = LOG2.map(|log| (one * (e * log).exp2()) as f32);
        // The power of 1 is 1, to the last digit where that can be.
        let r = Known::INVERSE[0] - 1.0;
        let high = more.map_or(series[0], |more| more[0].mul_add(r, more[1]).mul_add(r, series[0]));
        let rest = high.mul_add(r, series[1]).mul_add(r, series[2]) * r;
        let mut around = (near[0].to_bits() - 8..near[0].to_bits() + 8).map(f32::from_bits);
        near[0] = around.find(|near| rest.mul_add(*near, *near) == 1.0).unwrap_or(near[0]);
        let steps = |from: f64, by: f64| std::iter::successors(Some(from), move |p| Some(p * by)).map(|p| p as f32);
        let mut octaves = steps((-31.0 * e).exp2(), e.exp2());
        let mut eights = steps((-56.0 * e).exp2(), (8.0 * e).exp2());
        let mut eras = steps((-96.0 * e).exp2(), (32.0 * e).exp2());
        Known {
            e: e as f32,
            more,
            series,
            near,
            octaves: std::array::from_fn(|_| octaves.next().unwrap_or(0.0)),
            eights: std::array::from_fn(|_| eights.next().unwrap_or(0.0)),
            eras: std::array::from_fn(|_| eras.next().unwrap_or(0.0)),
        }
    }

    /// The same for numbers up to 1 alone, of which those up to [`NOTHING`](Known::NOTHING) have the power 0.
    pub(crate) fn within(e: f64) -> Known {
        let mut known = Known::new(e);
        known.octaves[0] = 0.0;
        known
    }
}
