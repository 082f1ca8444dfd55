//! The small instruction set that every algorithm of this layer is written in.
//!
//! An implementation of [`Vector`] is a handful of one-line wrappers around the
//! intrinsics of one instruction set. The algorithms are generic over it. Those that touch
//! lanes are `#[inline(always)]` into a [`Task`], and [`Vector::call`] runs a task inside a
//! function that carries the `#[target_feature]` attribute: a function with lanes in it that
//! is inlined nowhere would be compiled without those features. What is between tasks (rows,
//! scalars, Newton loops) is ordinary generic code, compiled once.
//!
//! # Safety contract
//! Values of a `Vector` type may exist only on a CPU that has its instruction set.
//! The constructors ([`splat`](Vector::splat), the loads) are therefore `unsafe`;
//! arithmetic on values that exist already is safe.

use super::expo::{Known, exp2_nonpos, exp2_scaled, log2, log2_of_parts};

/// Most lanes that any instance has; sizes stack buffers.
pub(crate) const MAX_LANES: usize = 16;

/// Work to be compiled with the features of an instruction set.
pub(crate) trait Task {
    /// What it returns.
    type Output;
    /// Does it. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// The CPU has the instruction set that the task was written for, and what else the task
    /// itself asks for.
    unsafe fn run(self) -> Self::Output;
}

/// Defines a function that runs an `#[inline(always)]` one as a [`Task`].
macro_rules! outlined {
    (
        $(#[$meta:meta])*
        $vis:vis unsafe fn $name:ident<V $(, $g:ident: $bound:ident)* $(; $c:ident)?>(
            $($arg:ident: $ty:ty),* $(,)?
        ) -> $out:ty => $inner:ident
    ) => {
        $(#[$meta])*
        $vis unsafe fn $name<V: Vector $(, $g: $bound)* $(, const $c: bool)?>(
            $($arg: $ty),*
        ) -> $out {
            struct Call<V $(, $g: $bound)* $(, const $c: bool)?> {
                $($arg: $ty,)*
                lanes: std::marker::PhantomData<V>,
            }
            impl<V: Vector $(, $g: $bound)* $(, const $c: bool)?> $crate::vector::Task
                for Call<V $(, $g)* $(, $c)?>
            {
                type Output = $out;
                #[inline(always)]
                unsafe fn run(self) -> $out {
                    // SAFETY: as the caller of the function vouches.
                    unsafe { $inner::<V $(, $g)* $(, $c)?>($(self.$arg),*) }
                }
            }
            let lanes = std::marker::PhantomData;
            // SAFETY: as the caller vouches.
            unsafe { V::call(Call::<V $(, $g)* $(, $c)?> { $($arg,)* lanes }) }
        }
    };
}
pub(crate) use outlined;

/// A few `f32` lanes that move together.
///
/// Comparisons follow IEEE 754 (`gt` and `ge` are false for NaN). `max(a, b)` returns
/// `b` when either is NaN, as `maxps` does, or the number; callers may rely on neither.
pub(crate) trait Vector: Copy {
    /// Number of lanes.
    const LANES: usize;
    /// Whether [`fma`](Vector::fma) rounds once.
    const FUSED: bool = true;
    /// Result of a lane-wise comparison.
    type Mask: Copy;
    /// As many `f64` lanes: where long sums are collected.
    type Wide: Copy;

    /// Runs a task in a function compiled for this instruction set.
    ///
    /// # Safety
    /// The CPU has the instruction set of `Self`, and what the task asks for.
    unsafe fn call<T: Task>(task: T) -> T::Output;
    /// All lanes equal to `x`.
    ///
    /// # Safety
    /// The CPU has the instruction set of `Self`.
    unsafe fn splat(x: f32) -> Self;
    /// Reads `LANES` floats, unaligned.
    ///
    /// # Safety
    /// As `splat`, and `p` is readable for `LANES` floats.
    unsafe fn load(p: *const f32) -> Self;
    /// Reads `n ≤ LANES` floats; the other lanes are `fill`.
    ///
    /// # Safety
    /// As `splat`, and `p` is readable for `n` floats.
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize, fill: f32) -> Self {
        let mut buf = [fill; MAX_LANES];
        // SAFETY: `n ≤ LANES ≤ MAX_LANES` floats are readable at `p`.
        unsafe {
            std::ptr::copy_nonoverlapping(p, buf.as_mut_ptr(), n);
            Self::load(buf.as_ptr())
        }
    }
    /// Reads `n − 1` floats, `1 ≤ n ≤ LANES`, into the lanes from 1 on; the others are `fill`.
    ///
    /// # Safety
    /// As `splat`, and `p` is readable for `n − 1` floats.
    #[inline(always)]
    unsafe fn load_after(p: *const f32, n: usize, fill: f32) -> Self {
        let mut buf = [fill; MAX_LANES];
        // SAFETY: `n ≤ LANES ≤ MAX_LANES`, and `n − 1` floats are readable at `p`.
        unsafe {
            std::ptr::copy_nonoverlapping(p, buf.as_mut_ptr().add(1), n - 1);
            Self::load(buf.as_ptr())
        }
    }
    /// Writes `LANES` floats, unaligned.
    ///
    /// # Safety
    /// `p` is writable for `LANES` floats.
    unsafe fn store(self, p: *mut f32);
    /// Writes `LANES` floats past the caches, where the hardware can: what is not read again soon is then not fetched
    /// before it is overwritten. Other threads see it after a [`fence`](Vector::fence).
    ///
    /// # Safety
    /// `p` is writable for `LANES` floats and aligned to as many.
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: as the caller vouches.
        unsafe { self.store(p) }
    }
    /// Makes what was [streamed](Vector::stream) visible like any other store.
    #[inline(always)]
    fn fence() {}
    /// Writes the first `n ≤ LANES` lanes.
    ///
    /// # Safety
    /// `p` is writable for `n` floats.
    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        let mut buf = [0.0; MAX_LANES];
        // SAFETY: the buffer holds `LANES` floats and `n ≤ LANES` are writable at `p`.
        unsafe {
            self.store(buf.as_mut_ptr());
            std::ptr::copy_nonoverlapping(buf.as_ptr(), p, n);
        }
    }

    /// `self + b`
    fn add(self, b: Self) -> Self;
    /// `self − b`
    fn sub(self, b: Self) -> Self;
    /// `self · b`
    fn mul(self, b: Self) -> Self;
    /// `self / b`
    fn div(self, b: Self) -> Self;
    /// `1 / self` to a relative error of 1e−6, for numbers from 1e−37 to 1e37.
    #[inline(always)]
    fn rough_inverse(self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe { Self::splat(1.0) }.div(self)
    }
    /// `self` to a power, for positive normal numbers: to a relative error of 6 % for exponents up to 1, more beyond, if
    /// that is what is cheap; 0 where the result would be less than any number.
    #[inline(always)]
    fn rough_power(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe { exp2_nonpos(log2(self).mul(exponent)) }
    }
    /// The same, at least as cheaply, for numbers from 1e−12 to 1e12 and exponents up to 3.
    #[inline(always)]
    fn rough_root(self, exponent: Self) -> Self {
        self.rough_power(exponent)
    }
    /// `self` to a power, for positive normal numbers, as closely as probabilities need it: the error is some 1e−7 of the
    /// result times the size of its logarithm. What is not above 2⁻¹²⁶ is 0.
    #[inline(always)]
    fn power(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe {
            let (m, k) = self.split_exponent();
            exp2_nonpos(log2_of_parts((m.sub(Self::splat(1.0)), k)).mul(exponent))
        }
    }
    /// The same of numbers up to 1, given `less = self − 1` to full relative accuracy: where `self` is near 1 it has lost
    /// digits that a large exponent asks for.
    #[inline(always)]
    fn power_near_one(self, less: Self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe {
            let (m, k) = self.split_exponent();
            let r = less.select(self.gt(Self::splat(0.708)), m.sub(Self::splat(1.0)));
            exp2_nonpos(log2_of_parts((r, k)).mul(exponent))
        }
    }
    /// `self` to a power that is known beforehand, for positive normal numbers: to a relative error of 3e−7, or as closely as
    /// [`power`](Vector::power).
    #[inline(always)]
    fn raised(self, to: &Known) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        self.power(unsafe { Self::splat(to.e) })
    }
    /// The same, at least as cheaply, for numbers from [`Known::NOTHING`] to 1, by [`Known::within`].
    #[inline(always)]
    fn raised_within(self, to: &Known) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe { self.power(Self::splat(to.e)).keep(self.gt(Self::splat(Known::NOTHING))) }
    }
    /// `log₂ self` for positive normal numbers, given `less = self − 1` to full relative accuracy: near 1, where `self` has
    /// lost digits, the logarithm keeps those of `less`.
    #[inline(always)]
    fn log2_near_one(self, less: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe {
            let (m, k) = self.split_exponent();
            let is_near = Self::and(self.gt(Self::splat(0.708)), Self::splat(1.414).gt(self));
            log2_of_parts((less.select(is_near, m.sub(Self::splat(1.0))), k))
        }
    }
    /// `2^(self·scale − whole)` with a whole number `whole`, as long as the result is a normal number and `|self·scale|` and
    /// `|whole|` are below 2¹⁸: to a relative error of 3e−7, if [`fma`](Vector::fma) rounds once.
    #[inline(always)]
    fn exp2_scaled(self, scale: Self, whole: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe { exp2_scaled(self, scale, whole) }
    }
    /// `log₂ self` for positive normal numbers, to an error of 2e−7 of itself or of 1.
    #[inline(always)]
    fn log2_of_normal(self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe {
            let (m, k) = self.split_exponent();
            log2_of_parts((m.sub(Self::splat(1.0)), k))
        }
    }
    /// What has the logarithm `self`, to a power whose result is not above 1; 0 where it is not above 2⁻¹²⁶.
    #[inline(always)]
    fn power_of_log2(self, exponent: Self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        unsafe { exp2_nonpos(self.mul(exponent)) }
    }
    /// `√self`
    fn sqrt(self) -> Self;
    /// `factor · √self` to a relative error of 3e−7, for numbers ≥ 0; those below the normal range
    /// may come out smaller than they are.
    #[inline(always)]
    fn scaled_root(self, factor: Self) -> Self {
        self.sqrt().mul(factor)
    }
    /// The larger of the two.
    fn max(self, b: Self) -> Self;
    /// The smaller of the two, where neither is NaN.
    #[inline(always)]
    fn min(self, b: Self) -> Self {
        self.select(b.gt(self), b)
    }
    /// The smaller and the larger of two numbers, neither below 0.
    #[inline(always)]
    fn order(self, b: Self) -> (Self, Self) {
        (self.min(b), self.max(b))
    }
    /// `self` where it is above 0, `+0` elsewhere; anything for a NaN.
    #[inline(always)]
    fn positive(self) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        self.max(unsafe { Self::splat(0.0) })
    }
    /// `self · b + c`, in one rounding where the hardware has it.
    fn fma(self, b: Self, c: Self) -> Self;

    /// `self > b`
    fn gt(self, b: Self) -> Self::Mask;
    /// `self ≥ b`
    fn ge(self, b: Self) -> Self::Mask;
    /// Either is NaN.
    fn unordered(self, b: Self) -> Self::Mask;
    /// `self ≥ b`, or either is NaN.
    #[inline(always)]
    fn not_below(self, b: Self) -> Self::Mask {
        Self::or(self.ge(b), self.unordered(b))
    }
    /// Lanes in `a` or in `b`.
    fn or(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// Lanes in `a` and in `b`.
    fn and(a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// One bit a lane, lane 0 lowest.
    fn bits(m: Self::Mask) -> u32;
    /// The mask of the lanes whose bit is set, lane 0 lowest.
    ///
    /// # Safety
    /// As `splat`.
    #[inline(always)]
    unsafe fn lanes_of(bits: u32) -> Self::Mask {
        let on: [f32; MAX_LANES] = std::array::from_fn(|i| (bits >> i & 1) as f32);
        // SAFETY: the array holds `LANES` floats; the caller vouches for the rest.
        unsafe { Self::load(on.as_ptr()).gt(Self::splat(0.0)) }
    }
    /// `self` in the lanes of `m`, `other` elsewhere.
    fn select(self, m: Self::Mask, other: Self) -> Self;
    /// `self` in the lanes of `m`, `+0` elsewhere.
    fn keep(self, m: Self::Mask) -> Self;
    /// A tally, zeros to begin with, with one more in the lanes of `m`.
    #[inline(always)]
    fn tally(self, m: Self::Mask) -> Self {
        // SAFETY: `self` exists, so the CPU has the instruction set.
        self.add(unsafe { Self::splat(1.0) }.keep(m))
    }
    /// A tally with one more where `u`, which is nowhere below 0 and no NaN, is above 0. `bit` is the float of bit pattern
    /// 1, kept from the compiler, which would turn what is done with it into a comparison.
    #[inline(always)]
    fn tally_above(self, u: Self, bit: Self) -> Self {
        let _ = bit;
        // SAFETY: `self` exists, so the CPU has the instruction set.
        self.tally(u.gt(unsafe { Self::splat(0.0) }))
    }
    /// The numbers of a tally.
    #[inline(always)]
    fn tallied(self) -> Self {
        self
    }
    /// The sums of the lanes of both.
    #[inline(always)]
    fn totals(self, b: Self) -> (f32, f32) {
        let mut lanes = [[0.0f32; MAX_LANES]; 2];
        // SAFETY: both buffers hold `LANES` floats.
        unsafe {
            self.store(lanes[0].as_mut_ptr());
            b.store(lanes[1].as_mut_ptr());
        }
        (lanes[0][..Self::LANES].iter().sum(), lanes[1][..Self::LANES].iter().sum())
    }
    /// Largest lane.
    fn reduce_max(self) -> f32;

    /// Packs the lanes of `m` to the front, in order, and stores them; returns how many.
    ///
    /// # Safety
    /// `p` is writable for `LANES` floats: all of them may be overwritten.
    unsafe fn compress(self, m: Self::Mask, p: *mut f32) -> usize;
    /// Undoes [`compress`](Vector::compress): what was packed goes back to the lanes of `m`; `+0` elsewhere.
    ///
    /// # Safety
    /// As `splat`, and `p` is readable for `LANES` floats.
    #[inline(always)]
    unsafe fn expand(m: Self::Mask, p: *const f32) -> Self {
        let (mut lanes, mut n) = ([0.0; MAX_LANES], 0);
        for (i, lane) in lanes[..Self::LANES].iter_mut().enumerate() {
            // SAFETY: `n ≤ i < LANES`.
            *lane = unsafe { *p.add(n) };
            n += (Self::bits(m) >> i & 1) as usize;
        }
        // SAFETY: the array holds `LANES` floats; the caller vouches for the rest.
        unsafe { Self::load(lanes.as_ptr()) }.keep(m)
    }
    /// Stores `base + lane` for the lanes of `m`, packed like [`compress`](Vector::compress).
    ///
    /// # Safety
    /// `p` is writable for `LANES` integers, and the CPU has the instruction set.
    unsafe fn compress_index(m: Self::Mask, base: u32, p: *mut u32);
    /// Writes the whole parts of `LANES` numbers from 0 to 2³⁰.
    ///
    /// # Safety
    /// `p` is writable for `LANES` integers.
    #[inline(always)]
    unsafe fn store_whole(self, p: *mut u32) {
        let mut lanes = [0.0; MAX_LANES];
        // SAFETY: the buffer holds `LANES` floats, and the caller vouches for as many integers.
        unsafe {
            self.store(lanes.as_mut_ptr());
            lanes[..Self::LANES].iter().enumerate().for_each(|(k, x)| *p.add(k) = *x as u32);
        }
    }
    /// Asks for the cache line at `p`, which need not be readable.
    #[inline(always)]
    fn prefetch(_p: *const f32) {}
    /// Reads `LANES` rows of `LANES` floats, `stride` apart, and writes the transpose
    /// contiguously.
    ///
    /// # Safety
    /// All those floats are readable and writable, and the CPU has the instruction set.
    #[inline(always)]
    unsafe fn transpose(src: *const f32, stride: usize, dst: *mut f32) {
        for i in 0..Self::LANES {
            for j in 0..Self::LANES {
                // SAFETY: row `i`, column `j` lie within the block the caller vouches for.
                unsafe { *dst.add(j * Self::LANES + i) = *src.add(i * stride + j) }
            }
        }
    }

    /// Writes the transpose of the first `LANES` of some vectors.
    ///
    /// # Safety
    /// `dst` is writable for `LANES` vectors, and the CPU has the instruction set.
    #[inline(always)]
    unsafe fn turn_all(rows: &[Self; MAX_LANES], dst: *mut f32) {
        let mut block = std::mem::MaybeUninit::<[f32; MAX_LANES * MAX_LANES]>::uninit();
        let block = block.as_mut_ptr().cast::<f32>();
        // SAFETY: as the caller vouches; the block holds a vector for each lane.
        unsafe {
            for r in 0..Self::LANES {
                rows[r].store(block.add(r * Self::LANES));
            }
            Self::transpose(block, Self::LANES, dst);
        }
    }

    /// The sum of the lanes of each of `LANES` vectors, one a lane.
    ///
    /// # Safety
    /// `rows` is readable for `LANES` vectors, and the CPU has the instruction set.
    #[inline(always)]
    unsafe fn row_sums(rows: *const f32) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { rows_to_lanes::<Self, false>(rows) }
    }
    /// Sums of the quarters of four vectors: lane `4q + k` is that of the lanes from `4q` to `4q + 3` of vector `k`.
    #[inline(always)]
    fn quarter_sums(rows: [Self; 4]) -> Self {
        let (mut lanes, mut sums) = ([[0.0f32; MAX_LANES]; 4], [0.0f32; MAX_LANES]);
        // SAFETY: the arrays hold `LANES` floats; the vectors exist, so the CPU has the instruction set.
        unsafe {
            for k in 0..4 {
                rows[k].store(lanes[k].as_mut_ptr());
            }
            for i in 0..Self::LANES {
                sums[i] = lanes[i % 4][i / 4 * 4..][..4].iter().sum();
            }
            Self::load(sums.as_ptr())
        }
    }
    /// The sums of the lanes of each of `LANES` vectors, one a lane, from their [`quarter_sums`](Vector::quarter_sums).
    #[inline(always)]
    fn whole_sums(quarters: [Self; MAX_LANES / 4]) -> Self {
        let (mut lanes, mut sums) = ([[0.0f32; MAX_LANES]; MAX_LANES / 4], [0.0f32; MAX_LANES]);
        // SAFETY: as for the sums of quarters.
        unsafe {
            for k in 0..Self::LANES / 4 {
                quarters[k].store(lanes[k].as_mut_ptr());
            }
            for i in 0..Self::LANES {
                sums[i] = (0..Self::LANES / 4).map(|q| lanes[i / 4][4 * q + i % 4]).sum();
            }
            Self::load(sums.as_ptr())
        }
    }
    /// The largest lane of each of `LANES` vectors, one a lane.
    ///
    /// # Safety
    /// As [`row_sums`](Vector::row_sums).
    #[inline(always)]
    unsafe fn row_maxima(rows: *const f32) -> Self {
        // SAFETY: as the caller vouches.
        unsafe { rows_to_lanes::<Self, true>(rows) }
    }

    /// Adds the integer held in `k` (a float in `[-2²², 2²²]` plus `1.5·2²³`, so that its
    /// low bits are the integer) to the exponent: `self · 2^k`. No overflow handling.
    fn shift_exponent(self, k: Self) -> Self;
    /// `(m, e)` with `self = m · 2^e` and `m` in `[√½, √2)`, for positive normal numbers.
    fn split_exponent(self) -> (Self, Self);

    /// No terms yet.
    ///
    /// # Safety
    /// As `splat`.
    unsafe fn wide_zero() -> Self::Wide;
    /// Adds each lane to its `f64` lane.
    fn wide_add(w: Self::Wide, v: Self) -> Self::Wide;
    /// Adds `u^e` and `u^e/u` to two sums, in the lanes of `m`, with the `u` of numbers that a [`Lift`] tells: the first to
    /// an error of 1e−12, the second to one of 1e−4 of itself. All `u` are positive and normal, no `u^e` above 1.
    fn wide_add_powers(sums: (Self::Wide, Self::Wide), z: Self, m: Self::Mask, lift: Lift) -> (Self::Wide, Self::Wide);
    /// Writes the lanes.
    ///
    /// # Safety
    /// `p` is writable for `LANES` numbers.
    unsafe fn wide_store(w: Self::Wide, p: *mut f64);
    /// Sum of all lanes.
    fn wide_total(w: Self::Wide) -> f64;
}

/// The sum of the lanes of each of `LANES` vectors, or the `MOST` of them: one a lane.
///
/// # Safety
/// As [`Vector::row_sums`].
#[inline(always)]
unsafe fn rows_to_lanes<V: Vector, const MOST: bool>(rows: *const f32) -> V {
    let mut across = std::mem::MaybeUninit::<[f32; MAX_LANES * MAX_LANES]>::uninit();
    let across = across.as_mut_ptr().cast::<f32>();
    // SAFETY: both hold `LANES` vectors.
    unsafe {
        V::transpose(rows, V::LANES, across);
        let mut all = [V::load(across), V::load(across.add(V::LANES))];
        for j in 2..V::LANES {
            let next = V::load(across.add(j * V::LANES));
            all[j % 2] = if MOST { next.max(all[j % 2]) } else { next.add(all[j % 2]) };
        }
        if MOST { all[0].max(all[1]) } else { all[0].add(all[1]) }
    }
}

/// `u = (z − from) · unit + t`, and the exponent of its powers.
#[derive(Clone, Copy)]
pub(crate) struct Lift {
    pub(crate) from: f64,
    pub(crate) unit: f64,
    pub(crate) t: f64,
    pub(crate) e: f64,
}

/// [`Vector::wide_add_powers`] of lanes in memory, one by one.
#[inline(always)]
pub(crate) fn add_powers<const N: usize>(sums: (&mut [f64; N], &mut [f64; N]), z: [f32; N], m: u32, lift: Lift) {
    for (i, z) in z.into_iter().enumerate().filter(|(i, _)| m >> i & 1 == 1) {
        let u = (f64::from(z) - lift.from) * lift.unit + lift.t;
        let p = u.powf(lift.e);
        sums.0[i] += p;
        sums.1[i] += p / u;
    }
}

/// `n ≤ LANES` floats; zeros behind them.
///
/// # Safety
/// As [`Vector::load_first`].
#[inline(always)]
pub(crate) unsafe fn read<V: Vector>(from: *const f32, n: usize) -> V {
    // SAFETY: as the caller vouches.
    unsafe { if n == V::LANES { V::load(from) } else { V::load_first(from, n, 0.0) } }
}

/// `n ≤ LANES` floats.
///
/// # Safety
/// As [`Vector::store_first`].
#[inline(always)]
pub(crate) unsafe fn write<V: Vector>(value: V, to: *mut f32, n: usize) {
    // SAFETY: as the caller vouches.
    unsafe { if n == V::LANES { value.store(to) } else { value.store_first(to, n) } }
}
