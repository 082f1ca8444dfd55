//! Powers and logarithms, as close as probabilities need them.

use super::super::{dispatch, vector::outlined};
use super::*;

outlined! {
    /// `x^e` of sixteen numbers, plainly and with `x − 1` known.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`; the pointers hold sixteen floats.
    unsafe fn powers<V>(x: *const f32, less: *const f32, e: f32, out: *mut [f32; 16]) -> () => powers_any
}

/// # Safety
/// As [`powers`].
#[inline(always)]
unsafe fn powers_any<V: Vector>(x: *const f32, less: *const f32, e: f32, out: *mut [f32; 16]) {
    // SAFETY: as the caller vouches.
    unsafe {
        V::load(x).power(V::splat(e)).store(out.cast());
        V::load(x).power_near_one(V::load(less), V::splat(e)).store(out.add(1).cast());
    }
}

#[test]
fn powers_are_as_close_as_probabilities_need() {
    if !dispatch::available().any(|level| level == dispatch::Level::Avx512) {
        return;
    }
    let mut rng = fastrand::Rng::with_seed(74);
    for e in [0.1f32, 0.25, 1.0 / 3.0, 1.0, 4.0 / 3.0, 3.3, 10.0, 1000.0, 1e5] {
        for round in 0..2000 {
            // Near 1, where large exponents leave something, and everywhere.
            let less: [f64; 16] = std::array::from_fn(|_| match round % 3 {
                0 => -rng.f64() / f64::from(e.max(1.0)),
                1 => -rng.f64(),
                _ => (-80.0 * rng.f64()).exp() - 1.0,
            });
            let less = less.map(|w| (w as f32).max(f32::MIN_POSITIVE - 1.0));
            let x = less.map(|w| 1.0 + w).map(|x| x.max(1e-36));
            let mut out = [[0.0f32; 16]; 2];
            // SAFETY: the CPU has the instruction set, and the arrays hold sixteen floats.
            unsafe { powers::<Avx512>(x.as_ptr(), less.as_ptr(), e, out.as_mut_ptr()) };
            for i in 0..16 {
                let want = f64::from(x[i]).powf(f64::from(e));
                assert!((f64::from(out[0][i]) - want).abs() < 1.5e-7, "{}^{e}: {} for {want}", x[i], out[0][i]);
                let want = if x[i] > 1e-36 { (1.0 + f64::from(less[i])).powf(f64::from(e)) } else { want };
                assert!((f64::from(out[1][i]) - want).abs() < 1.5e-7, "{}^{e}: {} for {want}", x[i], out[1][i]);
            }
        }
    }
}

outlined! {
    /// `x^e` of sixteen numbers, for any numbers and for those up to 1.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`; the pointers hold sixteen floats.
    unsafe fn raise<V>(x: *const f32, any: *const Known, within: *const Known, out: *mut [f32; 16]) -> () => raise_any
}

/// # Safety
/// As [`raise`].
#[inline(always)]
unsafe fn raise_any<V: Vector>(x: *const f32, any: *const Known, within: *const Known, out: *mut [f32; 16]) {
    // SAFETY: as the caller vouches.
    unsafe {
        V::load(x).raised(&*any).store(out.cast());
        V::load(x).raised_within(&*within).store(out.add(1).cast());
    }
}

#[test]
fn known_powers_magnify_no_rounding() {
    if !dispatch::available().any(|level| level == dispatch::Level::Avx512) {
        return;
    }
    let mut rng = fastrand::Rng::with_seed(79);
    for e in [-0.95f64, -2.0 / 3.0, -0.1, 0.1, 0.25, 1.0 / 3.0, 0.9, 4.0 / 3.0, 2.0, 3.3, 4.1, 6.5, 9.0] {
        let (any, within) = (Known::new(e), Known::within(e));
        for _ in 0..2000 {
            let deep = -40.0f32.min(100.0 / e.max(0.1) as f32);
            let mut x: [f32; 16] = std::array::from_fn(|_| (deep * rng.f32()).exp2());
            (x[0], x[1]) = (1.0, Known::NOTHING);
            let mut out = [[0.0f32; 16]; 2];
            // SAFETY: the CPU has the instruction set, and the arrays hold sixteen floats.
            unsafe { raise::<Avx512>(x.as_ptr(), &raw const any, &raw const within, out.as_mut_ptr()) };
            assert!((out[0][0] - 1.0).abs().max((out[1][0] - 1.0).abs()) < 1e-7);
            assert_eq!(out[1][1], 0.0);
            for (x, [any, within]) in (0..16).map(|i| (x[i], [out[0][i], out[1][i]])) {
                let want = f64::from(x).powf(e);
                // What is below the least normal float may be taken for 0.
                let least = f64::from(f32::MIN_POSITIVE);
                assert!((f64::from(any) - want).abs() < 4e-7 * want + least, "{x}^{e}: {any} for {want}");
                assert!(x < 2e-9 || (f64::from(within) / want - 1.0).abs() < 3e-7, "{x}^{e}: {within} for {want}");
            }
        }
    }
}

outlined! {
    /// Logarithms of sixteen numbers and what they have beyond 1, and sums of powers `(z + t)^e`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`; the pointers hold sixteen numbers.
    unsafe fn logs<V>(less: *const f32, lift: Lift, out: *mut f32, sums: *mut f64) -> () => logs_any
}

/// # Safety
/// As [`logs`].
#[inline(always)]
unsafe fn logs_any<V: Vector>(less: *const f32, lift: Lift, out: *mut f32, sums: *mut f64) {
    // SAFETY: as the caller vouches.
    unsafe {
        let less = V::load(less);
        less.add(V::splat(1.0)).log2_near_one(less).store(out);
        let none = (V::wide_zero(), V::wide_zero());
        let (all, zero) = (V::lanes_of(u32::MAX), V::splat(0.0));
        V::wide_store(V::wide_add_powers(none, less.max(zero), all, lift).0, sums);
    }
}

#[test]
fn logarithms_keep_digits_near_one_and_wide_powers_keep_twelve() {
    if !dispatch::available().any(|level| level == dispatch::Level::Avx512) {
        return;
    }
    let mut rng = fastrand::Rng::with_seed(75);
    for round in 0..6000 {
        // On both sides of 1, however near, and far above it.
        let less: [f32; 16] = std::array::from_fn(|_| match round % 4 {
            0 => -rng.f32() * 0.99,
            1 => (rng.f32() - 0.5) / 8.0,
            2 => (rng.f32() - 0.5) * (-20.0 * rng.f32()).exp(),
            _ => (60.0 * rng.f32()).exp(),
        });
        let lift = Lift { from: -0.25, unit: 1e-27, t: (-60.0 * rng.f64()).exp() / 2.0, e: 0.1 + 0.8 * rng.f64() };
        let (mut out, mut sums) = ([0.0f32; 16], [0.0f64; 16]);
        // SAFETY: the CPU has the instruction set, and the arrays hold sixteen numbers.
        unsafe { logs::<Avx512>(less.as_ptr(), lift, out.as_mut_ptr(), sums.as_mut_ptr()) };
        for i in 0..16 {
            let want = f64::from(less[i]).ln_1p() / std::f64::consts::LN_2;
            // What 1 + less has lost where it is not near 1.
            let slack = 3e-7 * want.abs() + if less[i].abs() < 0.03 { 0.0 } else { 2e-7 };
            assert!((f64::from(out[i]) - want).abs() <= slack, "log of 1 + {}: {} for {want}", less[i], out[i]);
            let want = ((f64::from(less[i].max(0.0)) + 0.25) * 1e-27 + lift.t).powf(lift.e);
            assert!((sums[i] - want).abs() < 1e-12, "{} for {want}", sums[i]);
        }
    }
}
