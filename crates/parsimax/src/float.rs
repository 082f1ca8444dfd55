//! The number types a row may have.
//!
//! Every solver works in `f64`. Rows of narrower types are widened on the way in (exactly) and
//! rounded once on the way out, so that an `f32`, `f16` or `bf16` result is the rounding of the
//! `f64` one. Single precision has kernels of its own for the mappings where speed matters.

use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    #[cfg(feature = "half")]
    impl Sealed for half::f16 {}
    #[cfg(feature = "half")]
    impl Sealed for half::bf16 {}
}

/// A floating-point type that rows may be made of: `f64`, `f32` and, with the feature `half`,
/// `f16` and `bf16`.
pub trait Float: sealed::Sealed + Copy + Default + PartialOrd + Debug + Send + Sync + 'static {
    /// Not a number.
    const NAN: Self;
    /// The distance from 1 to the next larger number.
    const EPSILON: f64;

    /// The exact value in double precision.
    fn widen(self) -> f64;

    /// The nearest value of this type.
    fn narrow(x: f64) -> Self;

    /// The bits of a number that has 16 of them.
    fn bits(self) -> Option<u16> {
        None
    }

    /// The number of these bits, if it has 16 of them; else 0.
    fn from_bits(_bits: u16) -> Self {
        Self::default()
    }

    /// The slice itself when `Self` is `f64`: the path without a copy.
    fn as_f64(_row: &[Self]) -> Option<&[f64]> {
        None
    }

    /// The slice itself when `Self` is `f32`: the path of the kernels.
    fn as_f32(_row: &[Self]) -> Option<&[f32]> {
        None
    }

    /// The mutable slice itself when `Self` is `f64`.
    fn as_f64_mut(_row: &mut [Self]) -> Option<&mut [f64]> {
        None
    }

    /// The mutable slice itself when `Self` is `f32`.
    fn as_f32_mut(_row: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

impl Float for f64 {
    const NAN: Self = f64::NAN;
    const EPSILON: f64 = f64::EPSILON;
    fn widen(self) -> f64 {
        self
    }
    fn narrow(x: f64) -> Self {
        x
    }
    fn as_f64(row: &[Self]) -> Option<&[f64]> {
        Some(row)
    }
    fn as_f64_mut(row: &mut [Self]) -> Option<&mut [f64]> {
        Some(row)
    }
}

impl Float for f32 {
    const NAN: Self = f32::NAN;
    const EPSILON: f64 = f32::EPSILON as f64;
    fn widen(self) -> f64 {
        f64::from(self)
    }
    fn narrow(x: f64) -> Self {
        x as f32
    }
    fn as_f32(row: &[Self]) -> Option<&[f32]> {
        Some(row)
    }
    fn as_f32_mut(row: &mut [Self]) -> Option<&mut [f32]> {
        Some(row)
    }
}

#[cfg(feature = "half")]
macro_rules! half_float {
    ($t:ty, $epsilon:expr) => {
        impl Float for $t {
            const NAN: Self = <$t>::NAN;
            const EPSILON: f64 = $epsilon;
            fn widen(self) -> f64 {
                self.to_f64()
            }
            fn narrow(x: f64) -> Self {
                <$t>::from_f64(x)
            }
            fn bits(self) -> Option<u16> {
                Some(self.to_bits())
            }
            fn from_bits(bits: u16) -> Self {
                <$t>::from_bits(bits)
            }
        }
    };
}

#[cfg(feature = "half")]
half_float!(half::f16, 1.0 / 1024.0);
#[cfg(feature = "half")]
half_float!(half::bf16, 1.0 / 128.0);
