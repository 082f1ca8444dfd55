//! AVX-512F: sixteen lanes.

use super::vector::{Task, Vector};
use std::arch::x86_64::*;

/// Sixteen floats in a `zmm` register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// Wrappers that only name an intrinsic.
macro_rules! wrap {
    ($($name:ident($($arg:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            // SAFETY: `self` exists, so the CPU has AVX-512F.
            Avx512(unsafe { $intrinsic(self.0 $(, $arg.0)*) })
        }
    )*};
}

impl Vector for Avx512 {
    const LANES: usize = 16;
    type Mask = __mmask16;
    type Wide = (__m512d, __m512d);

    #[inline(always)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        #[target_feature(enable = "avx512f,popcnt")]
        unsafe fn inside<T: Task>(task: T) -> T::Output {
            // SAFETY: the caller vouches for the features and for the task.
            unsafe { task.run() }
        }
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { inside(task) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller vouches for AVX-512F.
        Avx512(unsafe { _mm512_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for AVX-512F and sixteen readable floats.
        Avx512(unsafe { _mm512_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize, fill: f32) -> Self {
        // SAFETY: the masked load touches only the first `n` floats.
        Avx512(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), ((1u32 << n) - 1) as u16, p) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for sixteen writable floats.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: the masked store touches only the first `n` floats.
        unsafe { _mm512_mask_storeu_ps(p, ((1u32 << n) - 1) as u16, self.0) }
    }

    wrap! {
        add(b) = _mm512_add_ps;
        sub(b) = _mm512_sub_ps;
        mul(b) = _mm512_mul_ps;
        div(b) = _mm512_div_ps;
        sqrt() = _mm512_sqrt_ps;
        max(b) = _mm512_max_ps;
        fma(b, c) = _mm512_fmadd_ps;
    }

    #[inline(always)]
    fn gt(self, b: Self) -> __mmask16 {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, b.0) }
    }
    #[inline(always)]
    fn ge(self, b: Self) -> __mmask16 {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, b.0) }
    }
    #[inline(always)]
    fn unordered(self, b: Self) -> __mmask16 {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, b.0) }
    }
    #[inline(always)]
    fn or(a: __mmask16, b: __mmask16) -> __mmask16 {
        a | b
    }
    #[inline(always)]
    fn and(a: __mmask16, b: __mmask16) -> __mmask16 {
        a & b
    }
    #[inline(always)]
    fn bits(m: __mmask16) -> u32 {
        u32::from(m)
    }
    #[inline(always)]
    unsafe fn lanes_of(bits: u32) -> __mmask16 {
        bits as u16
    }
    #[inline(always)]
    fn select(self, m: __mmask16, other: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        Avx512(unsafe { _mm512_mask_blend_ps(m, other.0, self.0) })
    }
    #[inline(always)]
    fn keep(self, m: __mmask16) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        Avx512(unsafe { _mm512_maskz_mov_ps(m, self.0) })
    }
    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }
    #[inline(always)]
    unsafe fn compress(self, m: __mmask16, p: *mut f32) -> usize {
        // SAFETY: the caller vouches for sixteen writable floats. A compressed register
        // and a full store are faster than a compressing store.
        unsafe { _mm512_storeu_ps(p, _mm512_maskz_compress_ps(m, self.0)) };
        m.count_ones() as usize
    }
    #[inline(always)]
    unsafe fn compress_index(m: __mmask16, base: u32, p: *mut u32) {
        // SAFETY: the caller vouches for sixteen writable integers and for AVX-512F.
        unsafe {
            let lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let i = _mm512_add_epi32(lane, _mm512_set1_epi32(base as i32));
            _mm512_storeu_si512(p.cast(), _mm512_maskz_compress_epi32(m, i));
        }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    #[inline(always)]
    fn shift_exponent(self, k: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let k = _mm512_slli_epi32::<23>(_mm512_castps_si512(k.0));
            Avx512(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), k)))
        }
    }
    #[inline(always)]
    fn split_exponent(self) -> (Self, Self) {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let b = _mm512_castps_si512(self.0);
            let k = _mm512_srai_epi32::<23>(_mm512_sub_epi32(b, _mm512_set1_epi32(0x3f35_04f3)));
            let m = _mm512_sub_epi32(b, _mm512_slli_epi32::<23>(k));
            (Avx512(_mm512_castsi512_ps(m)), Avx512(_mm512_cvtepi32_ps(k)))
        }
    }
    #[inline(always)]
    unsafe fn wide_zero() -> (__m512d, __m512d) {
        // SAFETY: the caller vouches for AVX-512F.
        unsafe { (_mm512_setzero_pd(), _mm512_setzero_pd()) }
    }
    #[inline(always)]
    fn wide_add(w: (__m512d, __m512d), v: Self) -> (__m512d, __m512d) {
        // SAFETY: `v` exists, so the CPU has AVX-512F.
        unsafe {
            let high = _mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v.0));
            let lo = _mm512_cvtps_pd(_mm512_castps512_ps256(v.0));
            let hi = _mm512_cvtps_pd(_mm256_castpd_ps(high));
            (_mm512_add_pd(w.0, lo), _mm512_add_pd(w.1, hi))
        }
    }
    #[inline(always)]
    fn wide_total(w: (__m512d, __m512d)) -> f64 {
        // SAFETY: a sum exists, so the CPU has AVX-512F.
        unsafe { _mm512_reduce_add_pd(_mm512_add_pd(w.0, w.1)) }
    }
}
