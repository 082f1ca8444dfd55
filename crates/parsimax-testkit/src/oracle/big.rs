//! A 96-digit real number: the arithmetic every oracle computes in.
//!
//! [`Big`] is a binary float with a significand of [`BITS`] bits and an exponent that does not
//! overflow in practice. Scores and parameters enter exactly ([`Big::from_f64`]); each operation
//! rounds once; [`Big::to_f64`] rounds once more, to nearest even. 320 bits hold the difference of
//! any two `f64` between 1e−30 and 1e30 exactly, and leave 36 digits of guard over the 60 that the
//! oracles promise.
//!
//! The arithmetic is that of the crate `dashu-float`. Its `exp` and `ln` agree bit for bit with
//! those of `astro-float` at 256 and at 320 bits; it was preferred because it converts to `f64`
//! with correct rounding, has no exponent limit in reach, and is the better kept of the two.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::OnceLock;

use dashu_float::round::mode::HalfEven;
use dashu_float::{Context, FBig};
use dashu_int::IBig;

/// Bits of the significand: 96 decimal digits.
pub const BITS: usize = 320;

type Inner = FBig<HalfEven, 2>;

/// Bits after the binary point inside [`Big::exp`].
const FRACTION: isize = 448;

/// How often [`Big::exp`] halves its argument before the series.
const HALVINGS: usize = 24;

/// ln 2 in fixed point, computed once.
fn ln2_fixed() -> &'static IBig {
    static LN2: OnceLock<IBig> = OnceLock::new();
    LN2.get_or_init(|| {
        let ln2 = Context::<HalfEven>::new(FRACTION as usize + 32).ln(Inner::from(2).repr(), None);
        (ln2.expect("2 has a logarithm").value() << FRACTION).to_int().value()
    })
}

/// A real number to 96 digits. Never infinite, never NaN: operations without a result panic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Big(Inner);

impl Big {
    /// The number that `x` is, without rounding.
    ///
    /// # Panics
    /// If `x` is not finite.
    pub fn from_f64(x: f64) -> Self {
        let exact = Inner::try_from(x).unwrap_or_else(|_| panic!("Big::from_f64: {x} is no number"));
        Self(exact.with_precision(BITS).value())
    }

    /// The integer `n`.
    pub fn from_usize(n: usize) -> Self {
        Self(Inner::from(n).with_precision(BITS).value())
    }

    /// 0.
    pub fn zero() -> Self {
        Self::from_usize(0)
    }

    /// 1.
    pub fn one() -> Self {
        Self::from_usize(1)
    }

    /// 2⁻ⁿ, the unit of every tolerance here.
    pub fn half_pow(n: usize) -> Self {
        Self(Inner::from_parts(1.into(), -(n as isize)).with_precision(BITS).value())
    }

    /// The nearest `f64`, ties to even; ±∞ beyond its range.
    ///
    /// Below the normal range the library rounds twice, so those are rounded here: a subnormal is
    /// an integer multiple of 2⁻¹⁰⁷⁴, and that integer is its bit pattern.
    pub fn to_f64(&self) -> f64 {
        if self.abs() >= Self::half_pow(1022) {
            return self.0.to_f64().value();
        }
        let multiple = (self.abs().0 << 1074).to_int().value();
        let size = f64::from_bits(u64::try_from(multiple).expect("at most 2⁵²"));
        if *self < Self::zero() { -size } else { size }
    }

    /// Whether the number is exactly 0.
    pub fn is_zero(&self) -> bool {
        self.0 == Inner::ZERO
    }

    /// Whether the number is greater than 0.
    pub fn is_positive(&self) -> bool {
        *self > Self::zero()
    }

    /// |x|.
    pub fn abs(&self) -> Self {
        if *self < Self::zero() { -self } else { self.clone() }
    }

    /// max(x, 0), written `[x]₊` in the formulas.
    pub fn positive_part(&self) -> Self {
        if self.is_positive() { self.clone() } else { Self::zero() }
    }

    /// eˣ, and 0 where x < −1e18.
    ///
    /// In fixed point with 448 bits of fraction: x = k·ln 2 + r, the series of e^y − 1 for y = r/2²⁴, and
    /// 24 squarings, which cost 24 of the 128 guard bits. Five times faster than the library's own
    /// function, which bounds its error as it goes; the tests hold the two to be equal.
    ///
    /// # Panics
    /// If x > 1e18.
    pub fn exp(&self) -> Self {
        if *self < Self::from_f64(-1e18) {
            return Self::zero();
        }
        assert!(*self <= Self::from_f64(1e18), "exp({self:?})");
        let fixed = (self.0.clone() << FRACTION).to_int().value();
        let k = (self / Self::from_f64(std::f64::consts::LN_2)).0.to_int().value();
        let mut power = (fixed - &k * ln2_fixed()) >> HALVINGS;
        let small = power.clone();
        let mut y = power.clone();
        for n in 2..20 {
            power = ((power * &small) >> FRACTION as usize) / n;
            y += &power;
        }
        for _ in 0..HALVINGS {
            y = (&y << 1) + ((&y * &y) >> FRACTION as usize);
        }
        let exponent = isize::try_from(k).expect("|k| < 2e18") - FRACTION;
        let value = Inner::from_parts(y + (IBig::ONE << FRACTION as usize), exponent);
        Self(value.with_precision(BITS).value())
    }

    /// eˣ by the arbitrary-precision library alone.
    #[cfg(test)]
    fn exp_by_library(&self) -> Self {
        Self(context().exp(self.0.repr(), None).expect("in range").value())
    }

    /// ln x.
    ///
    /// From the `f64` logarithm y₀: ln x = y₀ + ln(x·e^{−y₀}), whose argument is 1 + r with |r| near
    /// 1e−16, so four terms of 2·artanh(r/(2+r)) are enough. Ten times faster than the series that
    /// serves when x is outside the range of `f64`.
    ///
    /// # Panics
    /// If x ≤ 0.
    pub fn ln(&self) -> Self {
        assert!(self.is_positive(), "ln({self:?})");
        let near = self.to_f64();
        if !near.is_normal() {
            return self.ln_by_series();
        }
        let start = Self::from_f64(near.ln());
        let ratio = self * (-&start).exp();
        let s = (&ratio - Self::one()) / (&ratio + Self::one());
        let square = &s * &s;
        let (mut power, mut sum) = (s, Self::zero());
        for odd in (1..12).step_by(2) {
            sum = sum + &power / Self::from_usize(odd);
            power = &power * &square;
        }
        start + Self::from_usize(2) * sum
    }

    /// ln x by the arbitrary-precision library alone.
    fn ln_by_series(&self) -> Self {
        let rounded = context().ln(self.0.repr(), None).unwrap_or_else(|e| panic!("ln({self:?}): {e:?}"));
        Self(rounded.value())
    }

    /// √x.
    ///
    /// # Panics
    /// If x < 0.
    pub fn sqrt(&self) -> Self {
        let rounded = context().sqrt(self.0.repr()).unwrap_or_else(|e| panic!("sqrt({self:?}): {e:?}"));
        Self(rounded.value())
    }

    /// xʸ for x ≥ 0, with 0ʸ = 0 for y > 0 and x⁰ = 1.
    ///
    /// # Panics
    /// If x < 0, or x = 0 and y < 0.
    pub fn pow(&self, y: &Self) -> Self {
        let one = Self::one();
        if y.is_zero() || *self == one {
            return one;
        }
        if *y == one {
            return self.clone();
        }
        if self.is_zero() {
            assert!(y.is_positive(), "0 to the power {y:?}");
            return Self::zero();
        }
        if *y == Self::from_usize(2) {
            return self * self;
        }
        if *y == Self::half_pow(1) {
            return self.sqrt();
        }
        (y * self.ln()).exp()
    }
}

fn context() -> Context<HalfEven> {
    Context::new(BITS)
}

/// The sign of Σ terms, without any rounding.
pub fn sign_of_exact_sum(terms: impl IntoIterator<Item = f64>) -> Ordering {
    exact_sum(terms).partial_cmp(&Inner::ZERO).expect("finite")
}

/// Σ terms with one rounding, at the end.
pub fn sum_rounded_once(terms: impl IntoIterator<Item = f64>) -> Big {
    Big(exact_sum(terms).with_precision(BITS).value())
}

/// Σ terms; precision 0 is the library's word for "never round".
fn exact_sum(terms: impl IntoIterator<Item = f64>) -> Inner {
    terms
        .into_iter()
        .fold(Inner::ZERO, |sum, term| sum + Inner::try_from(term).expect("finite term").with_precision(0).value())
}

impl fmt::Debug for Big {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e}", self.0.to_decimal().value())
    }
}

impl Neg for &Big {
    type Output = Big;
    fn neg(self) -> Big {
        Big(-&self.0)
    }
}

impl Neg for Big {
    type Output = Big;
    fn neg(self) -> Big {
        Big(-self.0)
    }
}

/// The four operators, for every mix of owned and borrowed operands.
macro_rules! operator {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait<&Big> for &Big {
            type Output = Big;
            fn $method(self, other: &Big) -> Big {
                Big($trait::$method(&self.0, &other.0))
            }
        }
        impl $trait<Big> for &Big {
            type Output = Big;
            fn $method(self, other: Big) -> Big {
                $trait::$method(self, &other)
            }
        }
        impl $trait<&Big> for Big {
            type Output = Big;
            fn $method(self, other: &Big) -> Big {
                $trait::$method(&self, other)
            }
        }
        impl $trait<Big> for Big {
            type Output = Big;
            fn $method(self, other: Big) -> Big {
                $trait::$method(&self, &other)
            }
        }
    )*};
}
operator!(Add add, Sub sub, Mul mul, Div div);

impl Sum for Big {
    fn sum<I: Iterator<Item = Self>>(terms: I) -> Self {
        terms.fold(Self::zero(), |sum, term| sum + term)
    }
}

impl<'a> Sum<&'a Big> for Big {
    fn sum<I: Iterator<Item = &'a Self>>(terms: I) -> Self {
        terms.fold(Self::zero(), |sum, term| sum + term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn big(x: f64) -> Big {
        Big::from_f64(x)
    }

    /// |a − b| ≤ 2⁻³⁰⁰ (1 + |b|).
    fn assert_close(a: &Big, b: &Big) {
        assert!((a - b).abs() <= Big::half_pow(300) * (Big::one() + b.abs()), "{a:?} and {b:?}");
    }

    #[test]
    fn constants_agree_with_their_published_digits() {
        // e, ln 2 and √2, OEIS A001113, A002162, A002193.
        let e = "2.71828182845904523536028747135266249775724709369995957496696762772407663";
        let ln2 = "6.9314718055994530941723212145817656807550013436025525412068000949339362";
        let root2 = "1.41421356237309504880168872420969807856967187537694807317667973799073247";
        for (value, digits) in
            [(big(1.0).exp(), e), (big(2.0).ln(), ln2), (big(2.0).ln_by_series(), ln2), (big(2.0).sqrt(), root2)]
        {
            let text = format!("{value:?}");
            assert_eq!(&text[..70], &digits[..70]);
        }
    }

    #[test]
    fn logarithm_agrees_with_the_series_everywhere() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..100 {
            let x = big((rng.f64() * 1400.0 - 700.0).exp());
            assert_close(&x.ln(), &x.ln_by_series());
        }
        for tiny in [1e-12, 1e-17, 1e-40, 1e-80] {
            let x = big(1.0) + big(tiny);
            let relative = x.ln() / x.ln_by_series() - Big::one();
            assert!(relative.abs() * big(tiny) < Big::half_pow(310), "{relative:?}");
        }
        let outside = Big::half_pow(3000);
        assert_close(&outside.ln(), &(big(-3000.0) * big(2.0).ln()));
    }

    #[test]
    fn exponential_agrees_with_the_library_everywhere() {
        let mut rng = fastrand::Rng::with_seed(15);
        for _ in 0..300 {
            let x = big((rng.f64() - 0.5) * 10f64.powi(rng.i32(-110..12))) / big(3.0);
            let relative = x.exp() / x.exp_by_library() - Big::one();
            assert!(relative.abs() <= Big::half_pow(319), "{x:?}: {relative:?}");
        }
    }

    #[test]
    fn exponential_inverts_the_logarithm() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..50 {
            let x = big(rng.f64() * 60.0 - 30.0);
            assert_close(&x.exp().ln(), &x);
            assert_close(&(x.exp() * (-&x).exp()), &Big::one());
        }
        assert!(big(-1e30).exp().is_zero());
    }

    #[test]
    fn powers_agree_with_products_and_roots() {
        let x = big(1.7);
        assert_close(&x.pow(&big(3.0)), &(&x * &x * &x));
        assert_close(&x.pow(&big(0.25)), &x.sqrt().sqrt());
        assert_close(&(x.pow(&big(-2.5)) * x.pow(&big(2.5))), &Big::one());
        assert!(Big::zero().pow(&big(0.3)).is_zero());
    }

    #[test]
    fn rounding_to_f64_is_to_nearest_also_below_the_normal_range() {
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            // The standard library parses decimals with correct rounding: an independent witness.
            let x = big((rng.f64() - 0.5) * 2f64.powi(rng.i32(-1080..1000))) / big(3.0);
            let witness: f64 = format!("{x:?}").parse().expect("a decimal");
            assert_eq!(x.to_f64(), witness, "{x:?}");
        }
        let smallest = Big::half_pow(1074);
        let half = Big::half_pow(1);
        assert_eq!(smallest.to_f64(), 5e-324);
        assert_eq!((&smallest * &half).to_f64(), 0.0, "the tie goes to even");
        assert_eq!((smallest * (half + Big::half_pow(60))).to_f64(), 5e-324);
        // A tie of the normal range that only the 200th bit breaks.
        let tie = Big::one() + Big::half_pow(53);
        assert_eq!(tie.to_f64(), 1.0);
        assert_eq!((tie + Big::half_pow(200)).to_f64(), 1.0 + f64::EPSILON);
    }

    #[test]
    fn exact_sums_see_terms_that_rounding_would_lose() {
        assert_eq!(sign_of_exact_sum([1e300, 1e-300, -1e300]), Ordering::Greater);
        assert_eq!(sign_of_exact_sum([1e300, -1e300]), Ordering::Equal);
        assert_eq!(sum_rounded_once([1e300, 1e-300, -1e300]), big(1e-300));
    }
}
