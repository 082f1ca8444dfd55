//! AVX-512F: sixteen lanes.

use super::expo::Known;
use super::vector::{Lift, Task, Vector};
use std::arch::x86_64::*;

/// Sixteen floats in a `zmm` register.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512);

/// The bits of 1, less what makes the errors of a rough power on either side alike.
const ROUGH_ONE: f32 = ((127.0 - 0.043) * 8_388_608.0f64) as f32;

/// Powers go by sixteenths. A number `m·2ᵏ`, `m` from ¾ to 3/2, is near one of sixteen others, which the four bits below
/// the exponent name once a half has been added to the mantissa: their inverses, for mantissas from 1 to 2, their
/// logarithms, and what is left of `log₂(1 + r)/r` for `|r|` up to 1/16 (error 1.7e−7, of `r`). Next to 1 the number is 1
/// itself, on both sides, so that logarithms near 0 keep their digits.
const NEAR_INVERSE: [f32; 16] = [
    0.653_061_2,
    0.627_451,
    0.603_773_6,
    0.581_818_16,
    0.561_403_5,
    0.542_372_9,
    0.524_590_13,
    0.5,
    1.0,
    0.914_285_7,
    0.864_864_9,
    0.820_512_83,
    0.780_487_8,
    0.744_186_04,
    0.711_111_1,
    0.680_851_04,
];
const NEAR_LOG: [f32; 16] = [
    -0.385_290_12,
    -0.327_574_7,
    -0.272_079_56,
    -0.218_640_24,
    -0.167_11,
    -0.117_356_956,
    -0.069_262_58,
    0.0,
    0.0,
    0.129_283_01,
    0.209_453_33,
    0.285_402_2,
    0.357_552_05,
    0.426_264_76,
    0.491_853_06,
    0.554_588_9,
];
const LOG_REST: [f32; 4] = [-0.344_508_62, 0.481_162_07, -0.721_362_1, std::f32::consts::LOG2_E];
/// `2^{j/16}`, and `(2ᶠ − 1)/f` for `|f|` up to 1/32.
const SIXTEENTHS: [f32; 16] = [
    1.0,
    1.044_273_7,
    1.090_507_7,
    1.138_788_6,
    1.189_207_1,
    1.241_857_8,
    1.296_839_6,
    1.354_255_6,
    1.414_213_5,
    1.476_826_2,
    1.542_210_8,
    1.610_490_3,
    1.681_792_9,
    1.756_252_2,
    1.834_008_1,
    1.915_206_6,
];
const EXP_REST: [f32; 3] = [0.055_505_738, 0.240_233_56, std::f32::consts::LN_2];
/// `1.5·2¹⁹`: adding it rounds to sixteenths, whose number is in the low bits.
const ROUND_SIXTEENTHS: f32 = 786_432.0;

/// The bits of `2^{j/32}`, less `j` where the exponent ends: with all of a number of 32nds added there, the place in the
/// table cancels and the whole part remains. And `(2ᶠ − 1)/f` for `|f|` up to 1/64 (error 6e−8, of 2ᶠ).
const THIRTY_SECONDS: [u32; 32] = [
    0x3f80_0000,
    0x3f7e_cd87,
    0x3f7d_aac3,
    0x3f7c_980f,
    0x3f7b_95c2,
    0x3f7a_a43a,
    0x3f79_c3d3,
    0x3f78_f4f0,
    0x3f78_37f0,
    0x3f77_8d3a,
    0x3f76_f532,
    0x3f76_7043,
    0x3f75_fed7,
    0x3f75_a15b,
    0x3f75_583f,
    0x3f75_23f6,
    0x3f75_04f3,
    0x3f74_fbaf,
    0x3f75_08a4,
    0x3f75_2c4d,
    0x3f75_672a,
    0x3f75_b9be,
    0x3f76_248c,
    0x3f76_a81e,
    0x3f77_44fd,
    0x3f77_fbb8,
    0x3f78_ccdf,
    0x3f79_b907,
    0x3f7a_c0c7,
    0x3f7b_e4ba,
    0x3f7d_257d,
    0x3f7e_83b3,
];
const SHORT_EXP_REST: [f32; 2] = [0.240_226_5, 0.693_157_3];
/// `1.5·2¹⁸`: adding it rounds to 32nds, whose number is in the low bits.
const ROUND_THIRTY_SECONDS: f32 = 393_216.0;

/// The same in f64, for sums of powers: the middles of sixteenths of a mantissa, their logarithms, `log₂(1 + r)/r` for
/// `|r|` up to 1/31 (error 8e−12), `2^{j/16}`, and `(2ᶠ − 1)/f` (error 3e−13).
const MIDDLE_INVERSE: [f64; 16] = [
    0.969_696_969_696_969_7,
    0.914_285_714_285_714_3,
    0.864_864_864_864_864_9,
    0.820_512_820_512_820_5,
    0.780_487_804_878_048_8,
    0.744_186_046_511_627_9,
    0.711_111_111_111_111_1,
    0.680_851_063_829_787_2,
    0.653_061_224_489_795_9,
    0.627_450_980_392_156_9,
    0.603_773_584_905_660_4,
    0.581_818_181_818_181_8,
    0.561_403_508_771_929_8,
    0.542_372_881_355_932_2,
    0.524_590_163_934_426_3,
    0.507_936_507_936_507_9,
];
const MIDDLE_LOG: [f64; 16] = [
    0.044_394_119_358_453_395,
    0.129_283_016_944_966_5,
    0.209_453_365_628_949_7,
    0.285_402_218_862_248_37,
    0.357_552_004_618_083_6,
    0.426_264_754_702_097_96,
    0.491_853_096_329_674_67,
    0.554_588_851_677_637_4,
    0.614_709_844_115_208_3,
    0.672_425_341_971_495_6,
    0.727_920_454_563_199_2,
    0.781_359_713_524_659_7,
    0.832_890_014_164_741_7,
    0.882_643_049_361_841_2,
    0.930_737_337_562_886_2,
    0.977_279_923_499_916_5,
];
const WIDE_LOG_REST: [f64; 6] = [
    -0.240_730_920_493_935_8,
    0.288_860_996_382_574_56,
    -0.360_673_650_250_092_24,
    0.480_898_221_284_731_75,
    -0.721_347_520_450_839_5,
    1.442_695_040_896_229_1,
];
const WIDE_SIXTEENTHS: [f64; 16] = [
    1.0,
    1.044_273_782_427_413_8,
    1.090_507_732_665_257_7,
    1.138_788_634_756_691_6,
    1.189_207_115_002_721,
    1.241_857_812_073_484,
    1.296_839_554_651_009_6,
    1.354_255_546_936_892_7,
    std::f64::consts::SQRT_2,
    1.476_826_145_939_499_3,
    1.542_210_825_407_940_7,
    1.610_490_331_949_254_3,
    1.681_792_830_507_429,
    1.756_252_160_373_299_5,
    1.834_008_086_409_342_4,
    1.915_206_561_397_147_4,
];
const WIDE_EXP_REST: [f64; 5] = [
    0.001_333_375_639_104_990_2,
    0.009_618_317_159_439_12,
    0.055_504_108_659_393_47,
    0.240_226_506_913_184_92,
    std::f64::consts::LN_2,
];
/// `1.5·2⁴⁸`: adding it rounds to sixteenths, whose number is in the low bits.
const WIDE_ROUND_SIXTEENTHS: f64 = 422_212_465_065_984.0;

/// All lanes of each of sixteen vectors joined by an operation, one vector a lane: neighbours in four rounds, half the
/// work of a transposition. A macro, because closures are compiled without the features of their surroundings and not
/// always inlined.
macro_rules! fold {
    ($rows:ident, $join:ident) => {{
        // Within the quarters of two rows, then of four: entry j of a quarter is what is known of row 4q + j.
        macro_rules! two {
            ($r:expr) => {{
                let (a, b) = (_mm512_loadu_ps($rows.add(16 * $r)), _mm512_loadu_ps($rows.add(16 * $r + 16)));
                $join(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b))
            }};
        }
        macro_rules! four {
            ($r:expr) => {{
                let (a, b) = (two!($r), two!($r + 2));
                $join(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b))
            }};
        }
        // Then the quarters.
        macro_rules! eight {
            ($r:expr) => {{
                let (a, b) = (four!($r), four!($r + 4));
                $join(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b))
            }};
        }
        let (low, high) = (eight!(0), eight!(8));
        Avx512($join(_mm512_shuffle_f32x4::<0x88>(low, high), _mm512_shuffle_f32x4::<0xdd>(low, high)))
    }};
}

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

/// The logarithm of `1 + r` and of the number that `near` names.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn near_log(near: __m512i, r: __m512) -> __m512 {
    // SAFETY: the caller vouches for the instruction set; the tables hold sixteen floats.
    unsafe {
        let log = _mm512_permutexvar_ps(_mm512_srli_epi32::<19>(near), _mm512_loadu_ps(NEAR_LOG.as_ptr()));
        let whole = _mm512_add_ps(_mm512_getexp_ps(_mm512_castsi512_ps(near)), log);
        let mut rest = _mm512_set1_ps(LOG_REST[0]);
        for c in &LOG_REST[1..] {
            rest = _mm512_fmadd_ps(rest, r, _mm512_set1_ps(*c));
        }
        _mm512_fmadd_ps(rest, r, whole)
    }
}

/// `2^(exponent · log)`
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn exp2_of_product(log: __m512, exponent: __m512) -> __m512 {
    // SAFETY: the caller vouches for the instruction set; the table holds sixteen floats.
    unsafe {
        let magic = _mm512_set1_ps(ROUND_SIXTEENTHS);
        let places = _mm512_fmadd_ps(log, exponent, magic);
        let rounded = _mm512_sub_ps(places, magic);
        let f = _mm512_fmsub_ps(log, exponent, rounded);
        let near = _mm512_permutexvar_ps(_mm512_castps_si512(places), _mm512_loadu_ps(SIXTEENTHS.as_ptr()));
        let mut rest = _mm512_set1_ps(EXP_REST[0]);
        for c in &EXP_REST[1..] {
            rest = _mm512_fmadd_ps(rest, f, _mm512_set1_ps(*c));
        }
        // The power of two is that of the whole part.
        let is_normal = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(rounded, _mm512_set1_ps(-126.0));
        _mm512_maskz_scalef_ps(is_normal, _mm512_fmadd_ps(rest, _mm512_mul_ps(near, f), near), rounded)
    }
}

/// A look into a table of sixteen, by the four low bits.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn look(table: &[f64; 16], place: __m512i) -> __m512d {
    // SAFETY: the table holds sixteen numbers; the caller vouches for the instruction set.
    unsafe { _mm512_permutex2var_pd(_mm512_loadu_pd(table.as_ptr()), place, _mm512_loadu_pd(table.as_ptr().add(8))) }
}

/// `u^e` of positive normal numbers, to 1e−12 if the result is not above 1.
///
/// # Safety
/// The CPU has AVX-512F.
#[inline(always)]
unsafe fn wide_power(u: __m512d, e: __m512d) -> __m512d {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let place = _mm512_srli_epi64::<48>(_mm512_castpd_si512(u));
        let m = _mm512_getmant_pd::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(u);
        let r = _mm512_fmsub_pd(m, look(&MIDDLE_INVERSE, place), _mm512_set1_pd(1.0));
        let whole = _mm512_add_pd(_mm512_getexp_pd(u), look(&MIDDLE_LOG, place));
        let mut rest = _mm512_set1_pd(WIDE_LOG_REST[0]);
        for c in &WIDE_LOG_REST[1..] {
            rest = _mm512_fmadd_pd(rest, r, _mm512_set1_pd(*c));
        }
        let log = _mm512_fmadd_pd(rest, r, whole);
        let magic = _mm512_set1_pd(WIDE_ROUND_SIXTEENTHS);
        let places = _mm512_fmadd_pd(log, e, magic);
        let rounded = _mm512_sub_pd(places, magic);
        let f = _mm512_fmsub_pd(log, e, rounded);
        let near = look(&WIDE_SIXTEENTHS, _mm512_castpd_si512(places));
        let mut rest = _mm512_set1_pd(WIDE_EXP_REST[0]);
        for c in &WIDE_EXP_REST[1..] {
            rest = _mm512_fmadd_pd(rest, f, _mm512_set1_pd(*c));
        }
        // The power of two is that of the whole part.
        _mm512_scalef_pd(_mm512_fmadd_pd(rest, _mm512_mul_pd(near, f), near), rounded)
    }
}

impl Vector for Avx512 {
    const LANES: usize = 16;
    type Mask = __mmask16;
    type Wide = (__m512d, __m512d);

    #[inline(always)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,bmi1,bmi2,popcnt")]
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
    unsafe fn load_after(p: *const f32, n: usize, fill: f32) -> Self {
        let lanes = (((1u32 << n) - 1) & !1) as u16;
        // SAFETY: the masked load touches only the lanes from 1 on, which are the `n − 1` floats at `p`.
        Avx512(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), lanes, p.wrapping_sub(1)) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for sixteen writable floats.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller vouches for sixteen writable floats and their alignment.
        unsafe { _mm512_stream_ps(p, self.0) }
    }
    #[inline(always)]
    fn fence() {
        // SAFETY: every CPU of this architecture has the instruction.
        unsafe { _mm_sfence() }
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
        min(b) = _mm512_min_ps;
        fma(b, c) = _mm512_fmadd_ps;
    }

    /// As for AVX2: bits are nearly a logarithm.
    #[inline(always)]
    fn rough_power(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let (one, bits) = (_mm512_set1_ps(ROUGH_ONE), _mm512_cvtepi32_ps(_mm512_castps_si512(self.0)));
            let log = _mm512_fmadd_ps(_mm512_sub_ps(bits, one), exponent.0, one);
            let log = _mm512_max_ps(log, _mm512_setzero_ps());
            Avx512(_mm512_castsi512_ps(_mm512_cvtps_epi32(log)))
        }
    }
    #[inline(always)]
    fn rough_root(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let one = _mm512_set1_ps(ROUGH_ONE);
            let (rest, bits) =
                (_mm512_fnmadd_ps(one, exponent.0, one), _mm512_cvtepi32_ps(_mm512_castps_si512(self.0)));
            Avx512(_mm512_castsi512_ps(_mm512_cvtps_epi32(_mm512_fmadd_ps(bits, exponent.0, rest))))
        }
    }
    #[inline(always)]
    fn power(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the tables hold sixteen floats.
        unsafe {
            let near = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(0x40_0000));
            let inverse = _mm512_permutexvar_ps(_mm512_srli_epi32::<19>(near), _mm512_loadu_ps(NEAR_INVERSE.as_ptr()));
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(self.0);
            let r = _mm512_fmsub_ps(m, inverse, _mm512_set1_ps(1.0));
            Avx512(exp2_of_product(near_log(near, r), exponent.0))
        }
    }
    /// A table and two terms: products are what is dear here, and looks into tables go elsewhere.
    #[inline(always)]
    fn exp2_scaled(self, scale: Self, whole: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the table holds two vectors.
        unsafe {
            let table = THIRTY_SECONDS.as_ptr().cast::<f32>();
            let magic = _mm512_sub_ps(_mm512_set1_ps(ROUND_THIRTY_SECONDS), whole.0);
            let places = _mm512_fmadd_ps(self.0, scale.0, magic);
            let f = _mm512_fmadd_ps(self.0, scale.0, _mm512_sub_ps(magic, places));
            let places = _mm512_castps_si512(places);
            let near = _mm512_permutex2var_ps(_mm512_loadu_ps(table), places, _mm512_loadu_ps(table.add(16)));
            let near = _mm512_add_epi32(_mm512_castps_si512(near), _mm512_slli_epi32::<18>(places));
            let near = _mm512_castsi512_ps(near);
            let (second, first) = (_mm512_set1_ps(SHORT_EXP_REST[0]), _mm512_set1_ps(SHORT_EXP_REST[1]));
            Avx512(_mm512_fmadd_ps(_mm512_mul_ps(_mm512_fmadd_ps(second, f, first), f), near, near))
        }
    }
    #[inline(always)]
    fn raised(self, to: &Known) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the table holds sixteen floats.
        unsafe {
            let era = _mm512_srli_epi32::<28>(_mm512_castps_si512(self.0));
            self.raised_within(to).mul(Avx512(_mm512_permutexvar_ps(era, _mm512_loadu_ps(to.eras.as_ptr()))))
        }
    }
    #[inline(always)]
    fn raised_within(self, to: &Known) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the tables hold sixteen floats.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let place = _mm512_srli_epi32::<19>(bits);
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(self.0);
            let inverse = _mm512_permutexvar_ps(place, _mm512_loadu_ps(Known::INVERSE.as_ptr()));
            let r = _mm512_fmsub_ps(m, inverse, _mm512_set1_ps(1.0));
            let (low, high) = (_mm512_loadu_ps(to.octaves.as_ptr()), _mm512_loadu_ps(to.octaves.as_ptr().add(16)));
            let octave = _mm512_permutex2var_ps(low, _mm512_srli_epi32::<23>(bits), high);
            let whole = _mm512_mul_ps(octave, _mm512_permutexvar_ps(place, _mm512_loadu_ps(to.near.as_ptr())));
            let mut rest = _mm512_set1_ps(to.series[0]);
            if let Some([fifth, fourth]) = to.more {
                let high = _mm512_fmadd_ps(_mm512_set1_ps(fifth), r, _mm512_set1_ps(fourth));
                rest = _mm512_fmadd_ps(high, r, rest);
            }
            let rest = _mm512_fmadd_ps(rest, r, _mm512_set1_ps(to.series[1]));
            let rest = _mm512_fmadd_ps(rest, r, _mm512_set1_ps(to.series[2]));
            Avx512(_mm512_fmadd_ps(_mm512_mul_ps(rest, r), whole, whole))
        }
    }
    /// With `m = 2(1 + less)` from ¾ on.
    #[inline(always)]
    fn power_near_one(self, less: Self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the tables hold sixteen floats.
        unsafe {
            // 1 itself would be in another of the sixteen places.
            let below = _mm512_min_ps(self.0, _mm512_set1_ps(1.0 - f32::EPSILON / 2.0));
            let near = _mm512_add_epi32(_mm512_castps_si512(below), _mm512_set1_epi32(0x40_0000));
            let inverse = _mm512_permutexvar_ps(_mm512_srli_epi32::<19>(near), _mm512_loadu_ps(NEAR_INVERSE.as_ptr()));
            let is_near = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(below, _mm512_set1_ps(0.75));
            let (one, twice) = (_mm512_set1_ps(1.0), _mm512_add_ps(inverse, inverse));
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(below);
            let r = _mm512_fmsub_ps(m, inverse, one);
            let r = _mm512_mask_mov_ps(r, is_near, _mm512_fmadd_ps(less.0, twice, _mm512_sub_ps(twice, one)));
            Avx512(exp2_of_product(near_log(near, r), exponent.0))
        }
    }
    #[inline(always)]
    fn log2_of_normal(self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the tables hold sixteen floats.
        unsafe {
            let near = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(0x40_0000));
            let inverse = _mm512_permutexvar_ps(_mm512_srli_epi32::<19>(near), _mm512_loadu_ps(NEAR_INVERSE.as_ptr()));
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(self.0);
            Avx512(near_log(near, _mm512_fmsub_ps(m, inverse, _mm512_set1_ps(1.0))))
        }
    }
    #[inline(always)]
    fn power_of_log2(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        Avx512(unsafe { exp2_of_product(self.0, exponent.0) })
    }
    #[inline(always)]
    fn log2_near_one(self, less: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F; the tables hold sixteen floats.
        unsafe {
            let near = _mm512_add_epi32(_mm512_castps_si512(self.0), _mm512_set1_epi32(0x40_0000));
            let place = _mm512_srli_epi32::<19>(near);
            let inverse = _mm512_permutexvar_ps(place, _mm512_loadu_ps(NEAR_INVERSE.as_ptr()));
            let m = _mm512_getmant_ps::<_MM_MANT_NORM_1_2, _MM_MANT_SIGN_SRC>(self.0);
            let r = _mm512_fmsub_ps(m, inverse, _mm512_set1_ps(1.0));
            // Well within the two places next to 1, however `self` was rounded.
            let is_near = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(_mm512_abs_ps(less.0), _mm512_set1_ps(0.03));
            let r = _mm512_mask_mov_ps(r, is_near, less.0);
            Avx512(near_log(near, r))
        }
    }
    /// An estimate to fourteen bits and one step of Newton.
    #[inline(always)]
    fn rough_inverse(self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let estimate = _mm512_rcp14_ps(self.0);
            let step = _mm512_fnmadd_ps(self.0, estimate, _mm512_set1_ps(2.0));
            Avx512(_mm512_mul_ps(estimate, step))
        }
    }
    /// An estimate of `1/√` to fourteen bits and one step of Newton.
    #[inline(always)]
    fn scaled_root(self, factor: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let estimate = _mm512_rsqrt14_ps(_mm512_max_ps(self.0, _mm512_set1_ps(f32::MIN_POSITIVE)));
            let root = _mm512_mul_ps(self.0, estimate);
            let half = _mm512_mul_ps(root, _mm512_mul_ps(factor.0, _mm512_set1_ps(0.5)));
            // root·(3 − root·estimate)/2
            let step = _mm512_fnmadd_ps(root, estimate, _mm512_set1_ps(3.0));
            Avx512(_mm512_mul_ps(half, step))
        }
    }

    /// As whole numbers, whose order is the same: any unit takes those, and few take the maxima of floats.
    #[inline(always)]
    fn order(self, b: Self) -> (Self, Self) {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let (x, y) = (_mm512_castps_si512(self.0), _mm512_castps_si512(b.0));
            let (low, high) = (_mm512_min_epi32(x, y), _mm512_max_epi32(x, y));
            (Avx512(_mm512_castsi512_ps(low)), Avx512(_mm512_castsi512_ps(high)))
        }
    }
    /// As whole numbers, too: what is below 0 has its sign.
    #[inline(always)]
    fn positive(self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let most = _mm512_max_epi32(_mm512_castps_si512(self.0), _mm512_setzero_si512());
            Avx512(_mm512_castsi512_ps(most))
        }
    }
    /// Whole numbers until they are asked for.
    #[inline(always)]
    fn tally(self, m: __mmask16) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let n = _mm512_castps_si512(self.0);
            Avx512(_mm512_castsi512_ps(_mm512_mask_add_epi32(n, m, n, _mm512_set1_epi32(1))))
        }
    }

    /// Integers have more units than comparisons, and those of floats above 0 are not below 1.
    #[inline(always)]
    fn tally_above(self, u: Self, bit: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe {
            let one = _mm512_min_epu32(_mm512_castps_si512(u.0), _mm512_castps_si512(bit.0));
            Avx512(_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), one)))
        }
    }
    #[inline(always)]
    fn tallied(self) -> Self {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        Avx512(unsafe { _mm512_cvtepi32_ps(_mm512_castps_si512(self.0)) })
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
    fn not_below(self, b: Self) -> __mmask16 {
        // SAFETY: `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(self.0, b.0) }
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
    fn totals(self, b: Self) -> (f32, f32) {
        // SAFETY: `self` exists, so the CPU has AVX-512F, and with it AVX2.
        unsafe {
            // Halves of both added, then pairs of both side by side, and so on: lanes 0 and 2.
            macro_rules! half {
                ($v:expr) => {{
                    let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd($v)));
                    _mm256_add_ps(_mm512_castps512_ps256($v), high)
                }};
            }
            let pairs = _mm256_hadd_ps(half!(self.0), half!(b.0));
            let x = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let x = _mm_add_ps(x, _mm_movehdup_ps(x));
            (_mm_cvtss_f32(x), _mm_cvtss_f32(_mm_movehl_ps(x, x)))
        }
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
    unsafe fn expand(m: __mmask16, p: *const f32) -> Self {
        // SAFETY: the caller vouches for sixteen readable floats and for AVX-512F.
        Avx512(unsafe { _mm512_maskz_expand_ps(m, _mm512_loadu_ps(p)) })
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
    unsafe fn store_whole(self, p: *mut u32) {
        // SAFETY: the caller vouches for sixteen writable integers; `self` exists, so the CPU has AVX-512F.
        unsafe { _mm512_storeu_si512(p.cast(), _mm512_cvttps_epi32(self.0)) }
    }
    #[inline(always)]
    fn prefetch(p: *const f32) {
        // SAFETY: a prefetch reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }
    /// Four rows to a register, a quarter of each (loads and inserts), then two rounds of shuffles within quarters.
    #[inline(always)]
    unsafe fn transpose(src: *const f32, stride: usize, dst: *mut f32) {
        // SAFETY: the caller vouches for the block read and the block written.
        unsafe {
            // Rows i, i + 4, i + 8 and i + 12; columns from 4·quarter on.
            macro_rules! part {
                ($i:expr, $quarter:expr) => {
                    _mm_loadu_ps(src.add($i * stride + 4 * $quarter))
                };
            }
            macro_rules! four {
                ($i:expr, $quarter:expr) => {{
                    let v = _mm512_castps128_ps512(part!($i, $quarter));
                    let v = _mm512_insertf32x4::<1>(v, part!($i + 4, $quarter));
                    let v = _mm512_insertf32x4::<2>(v, part!($i + 8, $quarter));
                    _mm512_insertf32x4::<3>(v, part!($i + 12, $quarter))
                }};
            }
            for quarter in 0..4 {
                let (a, b, c, d) = (four!(0, quarter), four!(1, quarter), four!(2, quarter), four!(3, quarter));
                let (ab0, ab1) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
                let (cd0, cd1) = (_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
                let out = dst.add(64 * quarter);
                _mm512_storeu_ps(out, _mm512_shuffle_ps::<0x44>(ab0, cd0));
                _mm512_storeu_ps(out.add(16), _mm512_shuffle_ps::<0xee>(ab0, cd0));
                _mm512_storeu_ps(out.add(32), _mm512_shuffle_ps::<0x44>(ab1, cd1));
                _mm512_storeu_ps(out.add(48), _mm512_shuffle_ps::<0xee>(ab1, cd1));
            }
        }
    }
    /// Four rounds of shuffles: within quarters, then of quarters.
    #[inline(always)]
    unsafe fn turn_all(rows: &[Self; 16], dst: *mut f32) {
        // SAFETY: the caller vouches for the block written.
        unsafe {
            let zero = _mm512_setzero_ps();
            let (mut a, mut b) = ([zero; 16], [zero; 16]);
            for i in (0..16).step_by(2) {
                b[i] = _mm512_unpacklo_ps(rows[i].0, rows[i + 1].0);
                b[i + 1] = _mm512_unpackhi_ps(rows[i].0, rows[i + 1].0);
            }
            for i in (0..16).step_by(4) {
                a[i] = _mm512_shuffle_ps::<0x44>(b[i], b[i + 2]);
                a[i + 1] = _mm512_shuffle_ps::<0xee>(b[i], b[i + 2]);
                a[i + 2] = _mm512_shuffle_ps::<0x44>(b[i + 1], b[i + 3]);
                a[i + 3] = _mm512_shuffle_ps::<0xee>(b[i + 1], b[i + 3]);
            }
            // Now a[4q + j] has column j of each quarter, of rows 4q to 4q + 3.
            for i in (0..16).step_by(8) {
                for j in i..i + 4 {
                    b[j] = _mm512_shuffle_f32x4::<0x88>(a[j], a[j + 4]);
                    b[j + 4] = _mm512_shuffle_f32x4::<0xdd>(a[j], a[j + 4]);
                }
            }
            for j in 0..4 {
                for k in [j, j + 4] {
                    _mm512_storeu_ps(dst.add(16 * k), _mm512_shuffle_f32x4::<0x88>(b[k], b[k + 8]));
                    _mm512_storeu_ps(dst.add(16 * (k + 8)), _mm512_shuffle_f32x4::<0xdd>(b[k], b[k + 8]));
                }
            }
        }
    }
    #[inline(always)]
    unsafe fn row_sums(rows: *const f32) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { fold!(rows, _mm512_add_ps) }
    }
    #[inline(always)]
    fn quarter_sums([a, b, c, d]: [Self; 4]) -> Self {
        // SAFETY: the vectors exist, so the CPU has AVX-512F.
        unsafe {
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a.0, b.0), _mm512_unpackhi_ps(a.0, b.0));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c.0, d.0), _mm512_unpackhi_ps(c.0, d.0));
            Avx512(_mm512_add_ps(_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd)))
        }
    }
    #[inline(always)]
    fn whole_sums([a, b, c, d]: [Self; 4]) -> Self {
        // SAFETY: as above.
        unsafe {
            let ab = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a.0, b.0), _mm512_shuffle_f32x4::<0xee>(a.0, b.0));
            let cd = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(c.0, d.0), _mm512_shuffle_f32x4::<0xee>(c.0, d.0));
            Avx512(_mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(ab, cd), _mm512_shuffle_f32x4::<0xdd>(ab, cd)))
        }
    }
    #[inline(always)]
    unsafe fn row_maxima(rows: *const f32) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { fold!(rows, _mm512_max_ps) }
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
    fn wide_add_powers(
        (p, s): (Self::Wide, Self::Wide),
        z: Self,
        m: __mmask16,
        lift: Lift,
    ) -> (Self::Wide, Self::Wide) {
        // SAFETY: `z` exists, so the CPU has AVX-512F.
        unsafe {
            let (from, unit) = (_mm512_set1_pd(lift.from), _mm512_set1_pd(lift.unit));
            let (t, e) = (_mm512_set1_pd(lift.t), _mm512_set1_pd(lift.e));
            macro_rules! half {
                ($z:expr, $m:expr, $p:expr, $s:expr) => {{
                    let u = _mm512_fmadd_pd(_mm512_sub_pd(_mm512_cvtps_pd($z), from), unit, t);
                    let power = wide_power(u, e);
                    let quotient = _mm512_mul_pd(power, _mm512_rcp14_pd(u));
                    (_mm512_mask_add_pd($p, $m, $p, power), _mm512_mask_add_pd($s, $m, $s, quotient))
                }};
            }
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(z.0)));
            let low = half!(_mm512_castps512_ps256(z.0), m as u8, p.0, s.0);
            let high = half!(high, (m >> 8) as u8, p.1, s.1);
            ((low.0, high.0), (low.1, high.1))
        }
    }
    #[inline(always)]
    unsafe fn wide_store(w: (__m512d, __m512d), p: *mut f64) {
        // SAFETY: the caller vouches for sixteen writable numbers; a sum exists, so the CPU has AVX-512F.
        unsafe {
            _mm512_storeu_pd(p, w.0);
            _mm512_storeu_pd(p.add(8), w.1);
        }
    }
    #[inline(always)]
    fn wide_total(w: (__m512d, __m512d)) -> f64 {
        // SAFETY: a sum exists, so the CPU has AVX-512F.
        unsafe { _mm512_reduce_add_pd(_mm512_add_pd(w.0, w.1)) }
    }
}

#[cfg(test)]
mod tests;
