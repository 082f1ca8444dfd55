//! The instance for every machine: eight lanes in an array, left to the compiler to
//! vectorise as far as the baseline instruction set allows.

use super::vector::{Lift, Task, Vector, add_powers};

/// Eight floats and plain arithmetic.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Portable([f32; 8]);

/// What an expression of the lane is in each of them, as an array. Written out: a loop would be unrolled all the same, and
/// thousands of loops keep the compiler busy for minutes.
macro_rules! each {
    (|$i:ident| $e:expr) => {
        [
            each!(@ $i 0 $e), each!(@ $i 1 $e), each!(@ $i 2 $e), each!(@ $i 3 $e),
            each!(@ $i 4 $e), each!(@ $i 5 $e), each!(@ $i 6 $e), each!(@ $i 7 $e),
        ]
    };
    (@ $i:ident $n:literal $e:expr) => {{
        #[allow(non_upper_case_globals)]
        const $i: usize = $n;
        $e
    }};
}

/// Lane-wise function of two vectors.
macro_rules! lanes {
    ($a:expr, $b:expr, |$x:ident, $y:ident| $e:expr) => {{
        let (a, b) = ($a.0, $b.0);
        Portable(each!(|i| {
            let ($x, $y) = (a[i], b[i]);
            $e
        }))
    }};
}

/// Lane-wise comparison; a mask is all ones or all zeros in a lane.
macro_rules! compare {
    ($a:expr, $b:expr, |$x:ident, $y:ident| $e:expr) => {{
        let (a, b) = ($a.0, $b.0);
        each!(|i| {
            let ($x, $y) = (a[i], b[i]);
            if $e { u32::MAX } else { 0 }
        })
    }};
}

impl Vector for Portable {
    const LANES: usize = 8;
    const FUSED: bool = false;
    type Mask = [u32; 8];
    type Wide = [f64; 8];

    #[inline(never)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        // SAFETY: the caller vouches for the task.
        unsafe { task.run() }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Portable([x; 8])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: eight floats are readable at `p`; an array of floats needs no more.
        Portable(unsafe { p.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: eight floats are writable at `p`.
        unsafe { p.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    fn add(self, b: Self) -> Self {
        lanes!(self, b, |x, y| x + y)
    }
    #[inline(always)]
    fn sub(self, b: Self) -> Self {
        lanes!(self, b, |x, y| x - y)
    }
    #[inline(always)]
    fn mul(self, b: Self) -> Self {
        lanes!(self, b, |x, y| x * y)
    }
    #[inline(always)]
    fn div(self, b: Self) -> Self {
        lanes!(self, b, |x, y| x / y)
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        lanes!(self, self, |x, _y| x.sqrt())
    }
    #[inline(always)]
    fn max(self, b: Self) -> Self {
        lanes!(self, b, |x, y| if x > y { x } else { y })
    }
    // Two roundings: without the hardware instruction a fused multiply-add is a library call.
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul(b).add(c)
    }
    #[inline(always)]
    fn gt(self, b: Self) -> [u32; 8] {
        compare!(self, b, |x, y| x > y)
    }
    #[inline(always)]
    fn ge(self, b: Self) -> [u32; 8] {
        compare!(self, b, |x, y| x >= y)
    }
    #[inline(always)]
    fn unordered(self, b: Self) -> [u32; 8] {
        compare!(self, b, |x, y| x.is_nan() | y.is_nan())
    }
    #[inline(always)]
    fn or(a: [u32; 8], b: [u32; 8]) -> [u32; 8] {
        each!(|i| a[i] | b[i])
    }
    #[inline(always)]
    fn and(a: [u32; 8], b: [u32; 8]) -> [u32; 8] {
        each!(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn bits(m: [u32; 8]) -> u32 {
        let b: [u32; 8] = each!(|i| m[i] & (1 << i));
        ((b[0] | b[1]) | (b[2] | b[3])) | ((b[4] | b[5]) | (b[6] | b[7]))
    }
    #[inline(always)]
    fn select(self, m: [u32; 8], other: Self) -> Self {
        Portable(each!(|i| f32::from_bits(self.0[i].to_bits() & m[i] | other.0[i].to_bits() & !m[i])))
    }
    #[inline(always)]
    fn keep(self, m: [u32; 8]) -> Self {
        Portable(each!(|i| f32::from_bits(self.0[i].to_bits() & m[i])))
    }
    #[inline(always)]
    fn reduce_max(self) -> f32 {
        let mut m = self.0[0];
        each!(|i| m = if self.0[i] > m { self.0[i] } else { m });
        m
    }
    #[inline(always)]
    unsafe fn compress(self, m: [u32; 8], p: *mut f32) -> usize {
        let mut n = 0;
        each!(|i| {
            // SAFETY: `n ≤ i < 8`, and eight floats are writable.
            unsafe { *p.add(n) = self.0[i] };
            n += (m[i] & 1) as usize;
        });
        n
    }
    #[inline(always)]
    unsafe fn compress_index(m: [u32; 8], base: u32, p: *mut u32) {
        let mut n = 0;
        each!(|i| {
            // SAFETY: `n ≤ i < 8`, and eight integers are writable.
            unsafe { *p.add(n) = base + i as u32 };
            n += (m[i] & 1) as usize;
        });
    }
    #[inline(always)]
    fn shift_exponent(self, k: Self) -> Self {
        Portable(each!(|i| f32::from_bits(self.0[i].to_bits().wrapping_add(k.0[i].to_bits() << 23))))
    }
    #[inline(always)]
    fn split_exponent(self) -> (Self, Self) {
        let bits: [i32; 8] = each!(|i| self.0[i].to_bits() as i32);
        let k: [i32; 8] = each!(|i| bits[i].wrapping_sub(0x3f35_04f3) >> 23);
        let m = each!(|i| f32::from_bits(bits[i].wrapping_sub(k[i] << 23) as u32));
        (Portable(m), Portable(each!(|i| k[i] as f32)))
    }
    #[inline(always)]
    unsafe fn wide_zero() -> [f64; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    fn wide_add(w: [f64; 8], v: Self) -> [f64; 8] {
        each!(|i| w[i] + f64::from(v.0[i]))
    }
    #[inline(always)]
    fn wide_add_powers((mut p, mut s): ([f64; 8], [f64; 8]), z: Self, m: [u32; 8], lift: Lift) -> ([f64; 8], [f64; 8]) {
        add_powers((&mut p, &mut s), z.0, Self::bits(m), lift);
        (p, s)
    }
    #[inline(always)]
    unsafe fn wide_store(w: [f64; 8], p: *mut f64) {
        // SAFETY: the caller vouches for eight writable numbers.
        unsafe { p.cast::<[f64; 8]>().write_unaligned(w) }
    }
    #[inline(always)]
    fn wide_total(w: [f64; 8]) -> f64 {
        ((w[0] + w[4]) + (w[2] + w[6])) + ((w[1] + w[5]) + (w[3] + w[7]))
    }
}
