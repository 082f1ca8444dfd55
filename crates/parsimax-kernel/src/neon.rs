//! NEON: four lanes. Part of every AArch64 machine.

use super::vector::{Lift, Task, Vector, add_powers};
use std::arch::aarch64::*;

/// Four floats.
#[derive(Clone, Copy)]
pub(crate) struct Neon(float32x4_t);

/// Wrappers that only name an intrinsic.
macro_rules! wrap {
    ($($name:ident($($arg:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            // SAFETY: every AArch64 machine has NEON.
            Neon(unsafe { $intrinsic(self.0 $(, $arg.0)*) })
        }
    )*};
}

/// Row `m` lists the bytes of the lanes whose bits are set in `m`, lowest first.
static PACK: [[u8; 16]; 16] = {
    let mut t = [[0u8; 16]; 16];
    let mut m = 0;
    while m < 16 {
        let (mut n, mut i) = (0, 0);
        while i < 4 {
            if m >> i & 1 == 1 {
                let mut b = 0;
                while b < 4 {
                    t[m][4 * n + b] = (4 * i + b) as u8;
                    b += 1;
                }
                n += 1;
            }
            i += 1;
        }
        m += 1;
    }
    t
};

impl Vector for Neon {
    const LANES: usize = 4;
    type Mask = uint32x4_t;
    type Wide = (float64x2_t, float64x2_t);

    #[inline(always)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        #[target_feature(enable = "neon")]
        unsafe fn inside<T: Task>(task: T) -> T::Output {
            // SAFETY: the caller vouches for the features and for the task.
            unsafe { task.run() }
        }
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { inside(task) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: every AArch64 machine has NEON.
        Neon(unsafe { vdupq_n_f32(x) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for four readable floats.
        Neon(unsafe { vld1q_f32(p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for four writable floats.
        unsafe { vst1q_f32(p, self.0) }
    }

    wrap! {
        add(b) = vaddq_f32;
        sub(b) = vsubq_f32;
        mul(b) = vmulq_f32;
        div(b) = vdivq_f32;
        sqrt() = vsqrtq_f32;
        max(b) = vmaxnmq_f32;
        min(b) = vminnmq_f32;
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        // SAFETY: every AArch64 machine has NEON.
        Neon(unsafe { vfmaq_f32(c.0, self.0, b.0) })
    }
    #[inline(always)]
    fn gt(self, b: Self) -> uint32x4_t {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vcgtq_f32(self.0, b.0) }
    }
    #[inline(always)]
    fn ge(self, b: Self) -> uint32x4_t {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vcgeq_f32(self.0, b.0) }
    }
    #[inline(always)]
    fn unordered(self, b: Self) -> uint32x4_t {
        // SAFETY: every AArch64 machine has NEON. A number equals itself, a NaN does not.
        unsafe { vmvnq_u32(vandq_u32(vceqq_f32(self.0, self.0), vceqq_f32(b.0, b.0))) }
    }
    #[inline(always)]
    fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vorrq_u32(a, b) }
    }
    #[inline(always)]
    fn and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vandq_u32(a, b) }
    }
    #[inline(always)]
    fn bits(m: uint32x4_t) -> u32 {
        // SAFETY: four integers are readable at the address of an array of four.
        unsafe { vaddvq_u32(vandq_u32(m, vld1q_u32([1, 2, 4, 8].as_ptr()))) }
    }
    #[inline(always)]
    fn select(self, m: uint32x4_t, other: Self) -> Self {
        // SAFETY: every AArch64 machine has NEON.
        Neon(unsafe { vbslq_f32(m, self.0, other.0) })
    }
    #[inline(always)]
    fn keep(self, m: uint32x4_t) -> Self {
        // SAFETY: every AArch64 machine has NEON.
        Neon(unsafe { vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(self.0), m)) })
    }
    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vmaxnmvq_f32(self.0) }
    }
    #[inline(always)]
    unsafe fn compress(self, m: uint32x4_t, p: *mut f32) -> usize {
        let bits = Self::bits(m);
        // SAFETY: a row of the table is sixteen bytes; the caller vouches for four floats.
        unsafe {
            let order = vld1q_u8(PACK[(bits & 15) as usize].as_ptr());
            let packed = vqtbl1q_u8(vreinterpretq_u8_f32(self.0), order);
            vst1q_f32(p, vreinterpretq_f32_u8(packed));
        }
        bits.count_ones() as usize
    }
    #[inline(always)]
    unsafe fn compress_index(m: uint32x4_t, base: u32, p: *mut u32) {
        // SAFETY: as in `compress`, for four integers.
        unsafe {
            let order = vld1q_u8(PACK[(Self::bits(m) & 15) as usize].as_ptr());
            let lane = vaddq_u32(vld1q_u32([0, 1, 2, 3].as_ptr()), vdupq_n_u32(base));
            let packed = vqtbl1q_u8(vreinterpretq_u8_u32(lane), order);
            vst1q_u32(p, vreinterpretq_u32_u8(packed));
        }
    }
    #[inline(always)]
    fn shift_exponent(self, k: Self) -> Self {
        // SAFETY: every AArch64 machine has NEON.
        unsafe {
            let k = vshlq_n_u32::<23>(vreinterpretq_u32_f32(k.0));
            Neon(vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(self.0), k)))
        }
    }
    #[inline(always)]
    fn split_exponent(self) -> (Self, Self) {
        // SAFETY: every AArch64 machine has NEON.
        unsafe {
            let b = vreinterpretq_s32_f32(self.0);
            let k = vshrq_n_s32::<23>(vsubq_s32(b, vdupq_n_s32(0x3f35_04f3)));
            let m = vsubq_s32(b, vshlq_n_s32::<23>(k));
            (Neon(vreinterpretq_f32_s32(m)), Neon(vcvtq_f32_s32(k)))
        }
    }
    #[inline(always)]
    unsafe fn wide_zero() -> (float64x2_t, float64x2_t) {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { (vdupq_n_f64(0.0), vdupq_n_f64(0.0)) }
    }
    #[inline(always)]
    fn wide_add(w: (float64x2_t, float64x2_t), v: Self) -> (float64x2_t, float64x2_t) {
        // SAFETY: every AArch64 machine has NEON.
        unsafe {
            let (lo, hi) = (vcvt_f64_f32(vget_low_f32(v.0)), vcvt_high_f64_f32(v.0));
            (vaddq_f64(w.0, lo), vaddq_f64(w.1, hi))
        }
    }
    #[inline(always)]
    fn wide_add_powers(
        (p, s): (Self::Wide, Self::Wide),
        z: Self,
        m: uint32x4_t,
        lift: Lift,
    ) -> (Self::Wide, Self::Wide) {
        let (mut lanes, mut sums) = ([0.0; 4], [[0.0; 4]; 2]);
        // SAFETY: the arrays hold four numbers; every AArch64 machine has NEON.
        unsafe {
            z.store(lanes.as_mut_ptr());
            Self::wide_store(p, sums[0].as_mut_ptr());
            Self::wide_store(s, sums[1].as_mut_ptr());
            let [p, s] = &mut sums;
            add_powers((p, s), lanes, Self::bits(m), lift);
            let [p, s] = sums.map(|sum| (vld1q_f64(sum.as_ptr()), vld1q_f64(sum.as_ptr().add(2))));
            (p, s)
        }
    }
    #[inline(always)]
    unsafe fn wide_store(w: (float64x2_t, float64x2_t), p: *mut f64) {
        // SAFETY: the caller vouches for four writable numbers.
        unsafe {
            vst1q_f64(p, w.0);
            vst1q_f64(p.add(2), w.1);
        }
    }
    #[inline(always)]
    fn wide_total(w: (float64x2_t, float64x2_t)) -> f64 {
        // SAFETY: every AArch64 machine has NEON.
        unsafe { vaddvq_f64(vaddq_f64(w.0, w.1)) }
    }
}
