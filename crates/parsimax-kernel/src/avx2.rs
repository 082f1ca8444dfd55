//! AVX2 with FMA: eight lanes.

use super::expo::Known;
use super::vector::{Lift, Task, Vector, add_powers};
use std::arch::x86_64::*;

/// Eight floats in a `ymm` register.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256);

/// Row `m` lists the positions of the set bits of `m`, one a byte, lowest first.
static PACK: [[u8; 8]; 256] = {
    let mut t = [[0u8; 8]; 256];
    let mut m = 0;
    while m < 256 {
        let (mut n, mut i) = (0, 0);
        while i < 8 {
            if m >> i & 1 == 1 {
                t[m][n] = i as u8;
                n += 1;
            }
            i += 1;
        }
        m += 1;
    }
    t
};

/// The permutation that packs the lanes of mask `bits`.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn pack(bits: u32) -> __m256i {
    // SAFETY: a row of the table is eight bytes, which is what the load reads.
    unsafe {
        let row = PACK[(bits & 255) as usize].as_ptr();
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(row.cast()))
    }
}

/// Wrappers that only name an intrinsic.
macro_rules! wrap {
    ($($name:ident($($arg:ident),*) = $intrinsic:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            // SAFETY: `self` exists, so the CPU has AVX2 and FMA.
            Avx2(unsafe { $intrinsic(self.0 $(, $arg.0)*) })
        }
    )*};
}

/// A look into a table of sixteen, by the three low bits of `place` and the sign of `upper`.
///
/// # Safety
/// The table holds sixteen floats; the CPU has AVX2.
#[inline(always)]
unsafe fn look(table: *const f32, place: __m256i, upper: __m256) -> __m256 {
    // SAFETY: as the caller vouches.
    unsafe {
        let [low, high] = [_mm256_loadu_ps(table), _mm256_loadu_ps(table.add(8))];
        let (low, high) = (_mm256_permutevar8x32_ps(low, place), _mm256_permutevar8x32_ps(high, place));
        _mm256_blendv_ps(low, high, upper)
    }
}

impl Vector for Avx2 {
    const LANES: usize = 8;
    type Mask = __m256;
    type Wide = (__m256d, __m256d);

    #[inline(always)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,popcnt")]
        unsafe fn inside<T: Task>(task: T) -> T::Output {
            // SAFETY: the caller vouches for the features and for the task.
            unsafe { task.run() }
        }
        // SAFETY: the caller vouches for the features and for the task.
        unsafe { inside(task) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller vouches for AVX2.
        Avx2(unsafe { _mm256_set1_ps(x) })
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for AVX2 and eight readable floats.
        Avx2(unsafe { _mm256_loadu_ps(p) })
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize, fill: f32) -> Self {
        // SAFETY: the masked load touches only the first `n` floats.
        unsafe {
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let m = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lane);
            let v = _mm256_maskload_ps(p, m);
            Avx2(_mm256_blendv_ps(_mm256_set1_ps(fill), v, _mm256_castsi256_ps(m)))
        }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for eight writable floats.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller vouches for eight writable floats and their alignment.
        unsafe { _mm256_stream_ps(p, self.0) }
    }
    #[inline(always)]
    fn fence() {
        // SAFETY: every CPU of this architecture has the instruction.
        unsafe { _mm_sfence() }
    }

    wrap! {
        add(b) = _mm256_add_ps;
        sub(b) = _mm256_sub_ps;
        mul(b) = _mm256_mul_ps;
        div(b) = _mm256_div_ps;
        sqrt() = _mm256_sqrt_ps;
        max(b) = _mm256_max_ps;
        min(b) = _mm256_min_ps;
        fma(b, c) = _mm256_fmadd_ps;
    }

    /// The bits of a number, read as a whole one, are nearly its logarithm, and a logarithm written as bits is nearly
    /// the number.
    #[inline(always)]
    fn rough_power(self, exponent: Self) -> Self {
        /// The bits of 1, less what makes the errors on either side alike.
        const ONE: f32 = ((127.0 - 0.043) * 8_388_608.0f64) as f32;
        // SAFETY: `self` exists, so the CPU has AVX2 and FMA.
        unsafe {
            let (one, bits) = (_mm256_set1_ps(ONE), _mm256_cvtepi32_ps(_mm256_castps_si256(self.0)));
            let log = _mm256_fmadd_ps(_mm256_sub_ps(bits, one), exponent.0, one);
            let log = _mm256_max_ps(log, _mm256_setzero_ps());
            Avx2(_mm256_castsi256_ps(_mm256_cvtps_epi32(log)))
        }
    }
    /// Tables hold eight floats: sixteen are two of them, and 32 octaves the products of four and eight.
    #[inline(always)]
    fn raised_within(self, to: &Known) -> Self {
        if to.more.is_some() {
            // SAFETY: `self` exists, so the CPU has AVX2 and FMA.
            return unsafe { self.power(Self::splat(to.e)).keep(self.gt(Self::splat(Known::NOTHING))) };
        }
        // SAFETY: as above; the tables hold as many floats as are read.
        unsafe {
            let bits = _mm256_castps_si256(self.0);
            let (place, upper) = (_mm256_srli_epi32::<19>(bits), _mm256_castsi256_ps(_mm256_slli_epi32::<9>(bits)));
            let inverse = look(Known::INVERSE.as_ptr(), place, upper);
            let m = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f_ffff));
            let m = _mm256_castsi256_ps(_mm256_or_si256(m, _mm256_set1_epi32(0x3f80_0000)));
            let r = _mm256_fmsub_ps(m, inverse, _mm256_set1_ps(1.0));
            // The octave 8a + b − 31 is 8a − 24 and b − 7 together.
            let [low, high] = [_mm256_loadu_ps(to.octaves.as_ptr().add(24)), _mm256_loadu_ps(to.eights.as_ptr())];
            let low = _mm256_permutevar8x32_ps(low, _mm256_srli_epi32::<23>(bits));
            let high = _mm256_permutevar8x32_ps(high, _mm256_srli_epi32::<26>(bits));
            let whole = _mm256_mul_ps(_mm256_mul_ps(low, high), look(to.near.as_ptr(), place, upper));
            let rest = _mm256_fmadd_ps(_mm256_set1_ps(to.series[0]), r, _mm256_set1_ps(to.series[1]));
            let rest = _mm256_fmadd_ps(rest, r, _mm256_set1_ps(to.series[2]));
            Avx2(_mm256_fmadd_ps(_mm256_mul_ps(rest, r), whole, whole)).keep(self.gt(Self::splat(Known::NOTHING)))
        }
    }
    /// An estimate to twelve bits and one step of Newton: the unit that divides is slow and alone.
    #[inline(always)]
    fn rough_inverse(self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX2 and FMA.
        unsafe {
            let estimate = _mm256_rcp_ps(self.0);
            let step = _mm256_fnmadd_ps(self.0, estimate, _mm256_set1_ps(2.0));
            Avx2(_mm256_mul_ps(estimate, step))
        }
    }

    /// An estimate of `1/√` to twelve bits and one step of Newton: a third of the time of `sqrt`.
    #[inline(always)]
    fn scaled_root(self, factor: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX2 and FMA.
        unsafe {
            let estimate = _mm256_rsqrt_ps(_mm256_max_ps(self.0, _mm256_set1_ps(f32::MIN_POSITIVE)));
            let root = _mm256_mul_ps(self.0, estimate);
            let half = _mm256_mul_ps(root, _mm256_mul_ps(factor.0, _mm256_set1_ps(0.5)));
            // root·(3 − root·estimate)/2
            let step = _mm256_fnmadd_ps(root, estimate, _mm256_set1_ps(3.0));
            Avx2(_mm256_mul_ps(half, step))
        }
    }

    #[inline(always)]
    fn gt(self, b: Self) -> __m256 {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe { _mm256_cmp_ps::<_CMP_GT_OQ>(self.0, b.0) }
    }
    #[inline(always)]
    fn ge(self, b: Self) -> __m256 {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe { _mm256_cmp_ps::<_CMP_GE_OQ>(self.0, b.0) }
    }
    #[inline(always)]
    fn not_below(self, b: Self) -> __m256 {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe { _mm256_cmp_ps::<_CMP_NLT_UQ>(self.0, b.0) }
    }
    #[inline(always)]
    fn unordered(self, b: Self) -> __m256 {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe { _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, b.0) }
    }
    #[inline(always)]
    fn or(a: __m256, b: __m256) -> __m256 {
        // SAFETY: a mask exists, so the CPU has AVX2.
        unsafe { _mm256_or_ps(a, b) }
    }
    #[inline(always)]
    fn and(a: __m256, b: __m256) -> __m256 {
        // SAFETY: a mask exists, so the CPU has AVX2.
        unsafe { _mm256_and_ps(a, b) }
    }
    #[inline(always)]
    fn bits(m: __m256) -> u32 {
        // SAFETY: a mask exists, so the CPU has AVX2.
        unsafe { _mm256_movemask_ps(m) as u32 }
    }
    #[inline(always)]
    unsafe fn lanes_of(bits: u32) -> __m256 {
        // SAFETY: the caller vouches for AVX2.
        unsafe {
            let lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let on = _mm256_and_si256(_mm256_set1_epi32(bits as i32), lane);
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(on, lane))
        }
    }
    #[inline(always)]
    fn select(self, m: __m256, other: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX2.
        Avx2(unsafe { _mm256_blendv_ps(other.0, self.0, m) })
    }
    #[inline(always)]
    fn keep(self, m: __m256) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX2.
        Avx2(unsafe { _mm256_and_ps(self.0, m) })
    }
    #[inline(always)]
    fn totals(self, b: Self) -> (f32, f32) {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe {
            // Pairs of both side by side, halves added, pairs of pairs added: lanes 0 and 2.
            let pairs = _mm256_hadd_ps(self.0, b.0);
            let x = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let x = _mm_add_ps(x, _mm_movehdup_ps(x));
            (_mm_cvtss_f32(x), _mm_cvtss_f32(_mm_movehl_ps(x, x)))
        }
    }
    #[inline(always)]
    fn reduce_max(self) -> f32 {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe {
            let h = _mm_max_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
            let h = _mm_max_ps(h, _mm_movehl_ps(h, h));
            _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)))
        }
    }
    #[inline(always)]
    unsafe fn compress(self, m: __m256, p: *mut f32) -> usize {
        // SAFETY: the caller vouches for eight writable floats.
        unsafe {
            let bits = Self::bits(m);
            _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(self.0, pack(bits)));
            bits.count_ones() as usize
        }
    }
    #[inline(always)]
    unsafe fn compress_index(m: __m256, base: u32, p: *mut u32) {
        // SAFETY: the caller vouches for eight writable integers and for AVX2.
        unsafe {
            let i = _mm256_add_epi32(pack(Self::bits(m)), _mm256_set1_epi32(base as i32));
            _mm256_storeu_si256(p.cast(), i);
        }
    }
    #[inline(always)]
    unsafe fn store_whole(self, p: *mut u32) {
        // SAFETY: the caller vouches for eight writable integers; `self` exists, so the CPU has AVX2.
        unsafe { _mm256_storeu_si256(p.cast(), _mm256_cvttps_epi32(self.0)) }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    /// Pairs of rows by halves (loads and inserts), then two rounds of in-lane shuffles.
    #[inline(always)]
    unsafe fn transpose(src: *const f32, stride: usize, dst: *mut f32) {
        // SAFETY: the caller vouches for the block read and the block written.
        unsafe {
            // Row i in the low half, row i + 4 in the high half; columns from 4·half on.
            macro_rules! pair {
                ($i:expr, $half:expr) => {{
                    let lo = _mm_loadu_ps(src.add($i * stride + 4 * $half));
                    let hi = _mm_loadu_ps(src.add(($i + 4) * stride + 4 * $half));
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(lo), hi)
                }};
            }
            for half in 0..2 {
                let (a, b, c, d) = (pair!(0, half), pair!(1, half), pair!(2, half), pair!(3, half));
                let (ab0, ab1) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd0, cd1) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                let out = dst.add(32 * half);
                _mm256_storeu_ps(out, _mm256_shuffle_ps::<0x44>(ab0, cd0));
                _mm256_storeu_ps(out.add(8), _mm256_shuffle_ps::<0xee>(ab0, cd0));
                _mm256_storeu_ps(out.add(16), _mm256_shuffle_ps::<0x44>(ab1, cd1));
                _mm256_storeu_ps(out.add(24), _mm256_shuffle_ps::<0xee>(ab1, cd1));
            }
        }
    }
    /// Neighbours are added in three rounds: half the work of a transposition.
    #[inline(always)]
    unsafe fn row_sums(rows: *const f32) -> Self {
        // SAFETY: the caller vouches for eight readable vectors and AVX2.
        unsafe {
            let pair =
                |r: usize| _mm256_hadd_ps(_mm256_loadu_ps(rows.add(8 * r)), _mm256_loadu_ps(rows.add(8 * r + 8)));
            let (low, high) = (_mm256_hadd_ps(pair(0), pair(2)), _mm256_hadd_ps(pair(4), pair(6)));
            let first = _mm256_permute2f128_ps::<0x20>(low, high);
            let second = _mm256_permute2f128_ps::<0x31>(low, high);
            Avx2(_mm256_add_ps(first, second))
        }
    }
    #[inline(always)]
    fn shift_exponent(self, k: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe {
            let k = _mm256_slli_epi32::<23>(_mm256_castps_si256(k.0));
            Avx2(_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(self.0), k)))
        }
    }
    #[inline(always)]
    fn split_exponent(self) -> (Self, Self) {
        // SAFETY: `self` exists, so the CPU has AVX2.
        unsafe {
            let b = _mm256_castps_si256(self.0);
            let k = _mm256_srai_epi32::<23>(_mm256_sub_epi32(b, _mm256_set1_epi32(0x3f35_04f3)));
            let m = _mm256_sub_epi32(b, _mm256_slli_epi32::<23>(k));
            (Avx2(_mm256_castsi256_ps(m)), Avx2(_mm256_cvtepi32_ps(k)))
        }
    }
    #[inline(always)]
    unsafe fn wide_zero() -> (__m256d, __m256d) {
        // SAFETY: the caller vouches for AVX2.
        unsafe { (_mm256_setzero_pd(), _mm256_setzero_pd()) }
    }
    #[inline(always)]
    fn wide_add(w: (__m256d, __m256d), v: Self) -> (__m256d, __m256d) {
        // SAFETY: `v` exists, so the CPU has AVX2.
        unsafe {
            let lo = _mm256_cvtps_pd(_mm256_castps256_ps128(v.0));
            let hi = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(v.0));
            (_mm256_add_pd(w.0, lo), _mm256_add_pd(w.1, hi))
        }
    }
    #[inline(always)]
    fn wide_add_powers((p, s): (Self::Wide, Self::Wide), z: Self, m: __m256, lift: Lift) -> (Self::Wide, Self::Wide) {
        let (mut lanes, mut sums) = ([0.0; 8], [[0.0; 8]; 2]);
        // SAFETY: the arrays hold eight numbers; `z` exists, so the CPU has AVX2.
        unsafe {
            z.store(lanes.as_mut_ptr());
            Self::wide_store(p, sums[0].as_mut_ptr());
            Self::wide_store(s, sums[1].as_mut_ptr());
            let [p, s] = &mut sums;
            add_powers((p, s), lanes, Self::bits(m), lift);
            let [p, s] = sums.map(|sum| (_mm256_loadu_pd(sum.as_ptr()), _mm256_loadu_pd(sum.as_ptr().add(4))));
            (p, s)
        }
    }
    #[inline(always)]
    unsafe fn wide_store(w: (__m256d, __m256d), p: *mut f64) {
        // SAFETY: the caller vouches for eight writable numbers; a sum exists, so the CPU has AVX2.
        unsafe {
            _mm256_storeu_pd(p, w.0);
            _mm256_storeu_pd(p.add(4), w.1);
        }
    }
    #[inline(always)]
    fn wide_total(w: (__m256d, __m256d)) -> f64 {
        // SAFETY: a sum exists, so the CPU has AVX2.
        unsafe {
            let s = _mm256_add_pd(w.0, w.1);
            let s = _mm_add_pd(_mm256_castpd256_pd128(s), _mm256_extractf128_pd::<1>(s));
            _mm_cvtsd_f64(_mm_add_sd(s, _mm_unpackhi_pd(s, s)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rough_powers_are_as_rough_as_they_say() {
        if !(is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")) {
            println!("skipped: this CPU has no AVX2");
            return;
        }
        let rough = |x: f32, e: f32| {
            let mut out = [0.0f32; 8];
            // SAFETY: the CPU has AVX2 and FMA, and the array holds a vector.
            unsafe { Avx2::splat(x).rough_power(Avx2::splat(e)).store(out.as_mut_ptr()) };
            out[0]
        };
        for e in [0.1f32, 0.3, 0.5, 0.7, 0.9, 1.0] {
            for k in 0..4000 {
                let x = (-0.031 * k as f32).exp2();
                let ratio = f64::from(rough(x, e)) / f64::from(x).powf(f64::from(e));
                assert!((ratio - 1.0).abs() < 0.062, "{x}^{e}: {ratio}");
            }
        }
        assert_eq!(rough(1e-37, 4.0), 0.0);
    }
}
