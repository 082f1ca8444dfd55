//! What the ways of sparsemax and 1.5-entmax through short rows share: a block of rows, and what is known of `LANES` of
//! them, one a lane.

use super::sweep::LARGE;
use super::vector::{MAX_LANES, Vector};

/// Room for floats, written before it is read. A vector that lies across two lines of the cache is two accesses.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Room<const N: usize>(std::mem::MaybeUninit<[f32; N]>);

impl<const N: usize> Room<N> {
    pub(super) const fn uninit() -> Room<N> {
        Room(std::mem::MaybeUninit::uninit())
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// A square block of lanes.
pub(super) type Block = Room<{ MAX_LANES * MAX_LANES }>;

/// What is known of `LANES` rows, one a lane.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Group {
    pub(super) max: [f32; MAX_LANES],
    /// τ as two floats to be added. If products are exact it is measured in the units of `scale·z`, and a
    /// term takes one of them; else from `scale·max`.
    pub(super) hi: [f32; MAX_LANES],
    pub(super) lo: [f32; MAX_LANES],
    /// The slope of the last step.
    pub(super) before: [f32; MAX_LANES],
    /// By how much the slope falls where τ rises by 1, as far as it is known, and the last step.
    pub(super) bend: [f32; MAX_LANES],
    pub(super) moved: [f32; MAX_LANES],
    /// Which rows of the block they are.
    pub(super) at: [u16; MAX_LANES],
    /// One bit a row: a NaN or `+inf`; nothing but `−inf`; not settled yet.
    pub(super) bad: u32,
    pub(super) empty: u32,
    /// Rows that are solved by themselves: scores so large that a threshold in their units loses digits, or wide rows
    /// with many candidates.
    pub(super) alone: u32,
    pub(super) active: u32,
    /// Rows that are guessed at, because order tells nothing of them.
    pub(super) dense: u32,
    /// Whether a row is so far from its root that writing it would be in vain.
    pub(super) far: bool,
    /// Whether the last rows here had few candidates each, as the next are likely to: a matter of speed alone.
    pub(super) sparse: bool,
}

impl Group {
    pub(super) const NEW: Group = Group {
        at: [0; MAX_LANES],
        bad: 0,
        empty: 0,
        alone: 0,
        active: 0,
        dense: 0,
        far: false,
        sparse: true,
        max: [0.0; MAX_LANES],
        hi: [-1.0; MAX_LANES],
        lo: [0.0; MAX_LANES],
        before: [f32::INFINITY; MAX_LANES],
        bend: [0.0; MAX_LANES],
        moved: [0.0; MAX_LANES],
    };

    /// Takes in the rows of the first `here` lanes: their maxima from `tops` vectors of the largest entries, and what they
    /// are fit for. Rows of `bad` hold a NaN, those of `alone` are not asked. The maxima, or 0 for an empty row.
    ///
    /// # Safety
    /// `largest` is readable for `tops` vectors, a multiple of 2; the CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn meet<V: Vector>(
        &mut self,
        (bad, alone): (u32, u32),
        here: usize,
        (largest, tops): (*const f32, usize),
        scale: V,
    ) -> V {
        // SAFETY: as the caller vouches; the arrays hold a vector.
        unsafe {
            let (zero, none) = (V::splat(0.0), V::splat(f32::NEG_INFINITY));
            let mut max = [V::load(largest), V::load(largest.add(V::LANES))];
            for k in (2..tops).step_by(2) {
                for j in 0..2 {
                    max[j] = V::load(largest.add((k + j) * V::LANES)).max(max[j]);
                }
            }
            let max = max[0].max(max[1]);
            let there = ((1u64 << here) - 1) as u32;
            self.bad = (bad | V::bits(max.ge(V::splat(f32::INFINITY)))) & there;
            self.empty = V::bits(none.ge(max)) & !alone & there;
            self.alone = (alone | V::bits(max.max(zero.sub(max)).mul(scale).ge(V::splat(LARGE)))) & there;
            self.active = there & !(self.bad | self.empty | self.alone);
            (self.far, self.dense) = (false, 0);
            // A maximum of −inf would turn differences into NaN; with 0 they stay infinite.
            let max = max.select(max.gt(none), zero);
            max.store(self.max.as_mut_ptr());
            V::splat(f32::INFINITY).store(self.before.as_mut_ptr());
            max
        }
    }

    /// Makes τ the sum of the two: `hi` its float, `lo` exactly what that loses.
    ///
    /// # Safety
    /// The CPU has the instruction set of `V`.
    #[inline(always)]
    pub(super) unsafe fn put<V: Vector>(&mut self, a: V, b: V) {
        let sum = a.add(b);
        let of_b = sum.sub(a);
        // SAFETY: the arrays hold a vector; the caller vouches for the instruction set.
        unsafe {
            sum.store(self.hi.as_mut_ptr());
            a.sub(sum.sub(of_b)).add(b.sub(of_b)).store(self.lo.as_mut_ptr());
        }
    }

    /// Makes τ the sum of the two, measured from `scale·max`, in the units that it is kept in.
    ///
    /// # Safety
    /// As [`put`](Group::put).
    #[inline(always)]
    pub(super) unsafe fn put_below<V: Vector>(&mut self, hi: V, lo: V, scale: V) {
        // SAFETY: as the caller vouches.
        unsafe {
            if V::FUSED {
                let max = V::load(self.max.as_ptr());
                let to = max.fma(scale, hi);
                let lost = max.fma(scale, V::splat(0.0).sub(to)).add(hi);
                self.put(to, lost.add(lo));
            } else {
                self.put(hi, lo);
            }
        }
    }
}

/// Rows one behind the other, and where their probabilities go.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) z: *const f32,
    pub(super) out: *mut f32,
    pub(super) d: usize,
    pub(super) rows: usize,
    pub(super) scale: f32,
    /// The number one, kept from the compiler: it would turn products with it into sums.
    pub(super) one: f32,
    /// The float of bit pattern 1, likewise.
    pub(super) bit: f32,
}

impl Rows {
    /// Without the first `n`.
    ///
    /// # Safety
    /// There are `n`.
    #[inline(always)]
    pub(super) unsafe fn from(self, n: usize) -> Rows {
        // SAFETY: as the caller vouches.
        unsafe { Rows { z: self.z.add(n * self.d), out: self.out.add(n * self.d), rows: self.rows - n, ..self } }
    }
}

/// `[x − τ]₊` of the entries of a row.
#[derive(Clone, Copy)]
pub(super) struct Excess<V> {
    scale: V,
    max: V,
    hi: V,
    lo: V,
}

impl<V: Vector> Excess<V> {
    /// # Safety
    /// The CPU has the instruction set.
    #[inline(always)]
    pub(super) unsafe fn new(rows: &Rows, group: &Group, k: usize) -> Excess<V> {
        // SAFETY: as the caller vouches.
        unsafe {
            let scale = V::splat(rows.scale);
            let (max, hi, lo) = (V::splat(-group.max[k]), V::splat(-group.hi[k]), V::splat(-group.lo[k]));
            Excess { scale, max, hi, lo }
        }
    }

    /// At `hi` alone.
    #[inline(always)]
    pub(super) fn rough(&self, z: V) -> V {
        self.above_hi(z).positive()
    }

    /// At `hi + lo`.
    #[inline(always)]
    pub(super) fn of(&self, z: V) -> V {
        self.above_hi(z).add(self.lo).positive()
    }

    #[inline(always)]
    fn above_hi(&self, z: V) -> V {
        if V::FUSED { z.fma(self.scale, self.hi) } else { z.add(self.max).mul(self.scale).add(self.hi) }
    }
}
