//! Two vectors that move together.
//!
//! A logarithm and an exponential in a row are a chain of some thirty dependent operations,
//! longer than a processor looks ahead. Written over a pair, every operation is issued for
//! two independent vectors in turn, and one's latency hides the other's.

use super::expo::Known;
use super::vector::{Lift, Task, Vector};

/// Twice the lanes of `V`.
#[derive(Clone, Copy)]
pub(crate) struct Pair<V>(V, V);

/// Lane-wise functions: the function of each half.
macro_rules! both {
    ($($name:ident($($arg:ident),*);)*) => {$(
        #[inline(always)]
        fn $name(self $(, $arg: Self)*) -> Self {
            Pair(self.0.$name($($arg.0),*), self.1.$name($($arg.1),*))
        }
    )*};
}

impl<V: Vector> Pair<V> {
    /// The same vector twice.
    #[inline(always)]
    pub(crate) fn twice(v: V) -> Self {
        Pair(v, v)
    }
    /// The two vectors.
    #[inline(always)]
    pub(crate) fn halves(self) -> (V, V) {
        (self.0, self.1)
    }
}

impl<V: Vector> Vector for Pair<V> {
    const LANES: usize = 2 * V::LANES;
    const FUSED: bool = V::FUSED;
    type Mask = (V::Mask, V::Mask);
    type Wide = (V::Wide, V::Wide);

    #[inline(always)]
    unsafe fn call<T: Task>(task: T) -> T::Output {
        // SAFETY: as the caller vouches.
        unsafe { V::call(task) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: as the caller vouches.
        let v = unsafe { V::splat(x) };
        Pair(v, v)
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for both halves.
        unsafe { Pair(V::load(p), V::load(p.add(V::LANES))) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize, fill: f32) -> Self {
        let low = n.min(V::LANES);
        // SAFETY: the caller vouches for `n` floats; with `n - low = 0` nothing is read.
        unsafe { Pair(V::load_first(p, low, fill), V::load_first(p.wrapping_add(low), n - low, fill)) }
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller vouches for both halves.
        unsafe {
            self.0.store(p);
            self.1.store(p.add(V::LANES));
        }
    }
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        let low = n.min(V::LANES);
        // SAFETY: the caller vouches for `n` floats.
        unsafe {
            self.0.store_first(p, low);
            self.1.store_first(p.wrapping_add(low), n - low);
        }
    }

    #[inline(always)]
    fn raised(self, to: &Known) -> Self {
        Pair(self.0.raised(to), self.1.raised(to))
    }
    #[inline(always)]
    fn raised_within(self, to: &Known) -> Self {
        Pair(self.0.raised_within(to), self.1.raised_within(to))
    }

    both! {
        add(b);
        sub(b);
        mul(b);
        div(b);
        sqrt();
        rough_inverse();
        scaled_root(factor);
        rough_power(exponent);
        power(exponent);
        power_near_one(less, exponent);
        log2_near_one(less);
        max(b);
        min(b);
        fma(b, c);
        shift_exponent(k);
    }

    #[inline(always)]
    fn gt(self, b: Self) -> Self::Mask {
        (self.0.gt(b.0), self.1.gt(b.1))
    }
    #[inline(always)]
    fn ge(self, b: Self) -> Self::Mask {
        (self.0.ge(b.0), self.1.ge(b.1))
    }
    #[inline(always)]
    fn unordered(self, b: Self) -> Self::Mask {
        (self.0.unordered(b.0), self.1.unordered(b.1))
    }
    #[inline(always)]
    fn or(a: Self::Mask, b: Self::Mask) -> Self::Mask {
        (V::or(a.0, b.0), V::or(a.1, b.1))
    }
    #[inline(always)]
    fn and(a: Self::Mask, b: Self::Mask) -> Self::Mask {
        (V::and(a.0, b.0), V::and(a.1, b.1))
    }
    #[inline(always)]
    fn bits(m: Self::Mask) -> u32 {
        V::bits(m.0) | V::bits(m.1) << (V::LANES % 32)
    }
    #[inline(always)]
    fn select(self, m: Self::Mask, other: Self) -> Self {
        Pair(self.0.select(m.0, other.0), self.1.select(m.1, other.1))
    }
    #[inline(always)]
    fn keep(self, m: Self::Mask) -> Self {
        Pair(self.0.keep(m.0), self.1.keep(m.1))
    }
    #[inline(always)]
    fn reduce_max(self) -> f32 {
        self.0.max(self.1).reduce_max()
    }
    #[inline(always)]
    unsafe fn compress(self, m: Self::Mask, p: *mut f32) -> usize {
        // SAFETY: the first half stores at most its lanes, and the second begins within them.
        unsafe {
            let n = self.0.compress(m.0, p);
            n + self.1.compress(m.1, p.add(n))
        }
    }
    #[inline(always)]
    unsafe fn compress_index(m: Self::Mask, base: u32, p: *mut u32) {
        // SAFETY: as in `compress`.
        unsafe {
            V::compress_index(m.0, base, p);
            let n = V::bits(m.0).count_ones() as usize;
            V::compress_index(m.1, base + V::LANES as u32, p.add(n));
        }
    }
    #[inline(always)]
    fn split_exponent(self) -> (Self, Self) {
        let (a, b) = (self.0.split_exponent(), self.1.split_exponent());
        (Pair(a.0, b.0), Pair(a.1, b.1))
    }
    #[inline(always)]
    unsafe fn wide_zero() -> Self::Wide {
        // SAFETY: as the caller vouches.
        unsafe { (V::wide_zero(), V::wide_zero()) }
    }
    #[inline(always)]
    fn wide_add(w: Self::Wide, v: Self) -> Self::Wide {
        (V::wide_add(w.0, v.0), V::wide_add(w.1, v.1))
    }
    #[inline(always)]
    fn wide_add_powers(
        (p, s): (Self::Wide, Self::Wide),
        z: Self,
        m: Self::Mask,
        lift: Lift,
    ) -> (Self::Wide, Self::Wide) {
        let low = V::wide_add_powers((p.0, s.0), z.0, m.0, lift);
        let high = V::wide_add_powers((p.1, s.1), z.1, m.1, lift);
        ((low.0, high.0), (low.1, high.1))
    }
    #[inline(always)]
    unsafe fn wide_store(w: Self::Wide, p: *mut f64) {
        // SAFETY: the caller vouches for both halves.
        unsafe {
            V::wide_store(w.0, p);
            V::wide_store(w.1, p.add(V::LANES));
        }
    }
    #[inline(always)]
    fn wide_total(w: Self::Wide) -> f64 {
        V::wide_total(w.0) + V::wide_total(w.1)
    }
}
