//! The elementwise part of recurrent cells: what happens between two matrix products.
//!
//! A row holds the four blocks of one unit's numbers, `4 · width` floats. On the way in they are
//! the sums `W x + U h` without biases; the step adds the biases and leaves the activations there,
//! which is all the backward step needs besides the states; the backward step leaves the gradients
//! of the sums.
//!
//! | cell | blocks | step |
//! |---|---|---|
//! | LSTM | i, f, g, o | `c' = σ(f)·c + σ(i)·tanh(g)`, `h' = σ(o)·tanh(c')` |
//! | GRU | n, r, z, q | `n = tanh(n + σ(r)·q)`, `h' = (1 − σ(z))·n + σ(z)·h` |
//!
//! The sum of GRU's new gate comes in two blocks, `n` from the input and `q` from the state,
//! because the reset gate stands between them.

use super::dispatch;
use super::expo::exp2_nonpos;
use super::vector::{Vector, outlined};

/// Which cell a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Long short-term memory.
    Lstm,
    /// Gated recurrent unit.
    Gru,
}

/// One step of one row, `width` units.
#[derive(Debug)]
pub struct Step<'a> {
    /// Four blocks: sums on the way in, activations on the way out.
    pub gates: &'a mut [f32],
    /// Biases of the four blocks.
    pub bias: &'a [f32],
    /// The state before: `c` of an LSTM, `h` of a GRU.
    pub before: &'a [f32],
    /// `c'` of an LSTM; not touched by a GRU.
    pub cell: &'a mut [f32],
    /// `h'`.
    pub hidden: &'a mut [f32],
}

/// The backward step of one row.
#[derive(Debug)]
pub struct Back<'a> {
    /// Four blocks: activations on the way in, gradients of the sums on the way out.
    pub gates: &'a mut [f32],
    /// The state before: `c` of an LSTM, `h` of a GRU.
    pub before: &'a [f32],
    /// `c'` of an LSTM; not read for a GRU.
    pub cell: &'a [f32],
    /// Gradient of `h'`.
    pub hidden: &'a [f32],
    /// Gradient of the state that passes by the products: of `c'` on the way in and `c` on the way
    /// out for an LSTM; the direct part of `h` on the way out for a GRU.
    pub carry: &'a mut [f32],
}

/// Runs a step.
///
/// # Panics
/// If the slices are not `4 · width` and `width` long.
pub fn step(cell: Cell, job: Step<'_>) {
    let n = job.hidden.len();
    assert!(job.gates.len() == 4 * n && job.bias.len() == 4 * n && job.before.len() == n, "cell: widths agree");
    assert!(cell == Cell::Gru || job.cell.len() == n, "cell: widths agree");
    dispatch::cell_step(cell, job);
}

/// Runs a backward step.
///
/// # Panics
/// If the slices are not `4 · width` and `width` long.
pub fn back(cell: Cell, job: Back<'_>) {
    let n = job.hidden.len();
    assert!(job.gates.len() == 4 * n && job.carry.len() == n && job.before.len() == n, "cell: widths agree");
    assert!(cell == Cell::Gru || job.cell.len() == n, "cell: widths agree");
    dispatch::cell_back(cell, job);
}

/// `tanh x` of every number, within 3e−7.
pub fn tanh_all(x: &mut [f32]) {
    dispatch::tanh(x);
}

/// `σ(x)`, within 2e−7; the exponential is taken of `−|x|`, so that nothing overflows.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn sigmoid<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let below = zero.sub(x);
        let e = exp2_nonpos(zero.sub(x.max(below)).mul(V::splat(std::f32::consts::LOG2_E)));
        let top = one.select(x.gt(zero), e);
        x.select(x.unordered(x), top.div(one.add(e)))
    }
}

/// `tanh x`, within 3e−7.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn tanh<V: Vector>(x: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (zero, one) = (V::splat(0.0), V::splat(1.0));
        let below = zero.sub(x);
        let e = exp2_nonpos(zero.sub(x.max(below)).mul(V::splat(2.0 * std::f32::consts::LOG2_E)));
        let y = one.sub(e).div(one.add(e));
        x.select(x.unordered(x), y.select(x.gt(zero), zero.sub(y)))
    }
}

/// Where a row's numbers are, and how many units it has.
#[derive(Clone, Copy)]
struct Row {
    width: usize,
    gates: *mut f32,
    bias: *const f32,
    before: *const f32,
    cell: *mut f32,
    hidden: *mut f32,
    carry: *mut f32,
}

/// Reads whole vectors, or what is left of a row.
#[derive(Clone, Copy)]
struct At {
    start: usize,
    count: usize,
}

impl At {
    /// # Safety
    /// `p` is readable for `count` floats from `start` on; the CPU has the instruction set of `V`.
    #[inline(always)]
    unsafe fn load<V: Vector>(self, p: *const f32) -> V {
        // SAFETY: as the caller vouches.
        unsafe {
            if self.count == V::LANES {
                V::load(p.add(self.start))
            } else {
                V::load_first(p.add(self.start), self.count, 0.0)
            }
        }
    }

    /// A block of sums with its biases. Not a closure: those are compiled without the instruction set.
    ///
    /// # Safety
    /// As `load`, for the four blocks of `row`.
    #[inline(always)]
    unsafe fn sum<V: Vector>(self, row: Row, k: usize) -> V {
        let start = k * row.width;
        // SAFETY: as the caller vouches.
        unsafe { self.load::<V>(row.gates.add(start)).add(self.load::<V>(row.bias.add(start))) }
    }

    /// The four blocks.
    ///
    /// # Safety
    /// As `load`, for the four blocks of `row`.
    #[inline(always)]
    unsafe fn blocks<V: Vector>(self, row: Row) -> [V; 4] {
        let n = row.width;
        // SAFETY: as the caller vouches.
        unsafe {
            [
                self.load(row.gates),
                self.load(row.gates.add(n)),
                self.load(row.gates.add(2 * n)),
                self.load(row.gates.add(3 * n)),
            ]
        }
    }

    /// # Safety
    /// `p` is writable for `count` floats from `start` on.
    #[inline(always)]
    unsafe fn store<V: Vector>(self, v: V, p: *mut f32) {
        // SAFETY: as the caller vouches.
        unsafe {
            if self.count == V::LANES {
                v.store(p.add(self.start))
            } else {
                v.store_first(p.add(self.start), self.count)
            }
        }
    }
}

/// Calls `body` for each vector of a row, the last one shorter.
macro_rules! each {
    ($V:ident, $width:expr, |$at:ident| $body:block) => {
        let (mut start, width) = (0, $width);
        while start < width {
            let $at = At { start, count: $V::LANES.min(width - start) };
            $body
            start += $V::LANES;
        }
    };
}

/// # Safety
/// As [`step`] checks; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn lstm<V: Vector>(row: Row) {
    let n = row.width;
    each!(V, n, |at| {
        // SAFETY: the four blocks and the states hold `n` floats each.
        unsafe {
            let (i, f) = (sigmoid(at.sum::<V>(row, 0)), sigmoid(at.sum::<V>(row, 1)));
            let (g, o) = (tanh(at.sum::<V>(row, 2)), sigmoid(at.sum::<V>(row, 3)));
            let c = f.fma(at.load::<V>(row.before), i.mul(g));
            for (k, activation) in [i, f, g, o].into_iter().enumerate() {
                at.store(activation, row.gates.add(k * n));
            }
            at.store(c, row.cell);
            at.store(o.mul(tanh(c)), row.hidden);
        }
    });
}

/// # Safety
/// As [`step`] checks; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn gru<V: Vector>(row: Row) {
    let n = row.width;
    each!(V, n, |at| {
        // SAFETY: the four blocks and the states hold `n` floats each.
        unsafe {
            let (r, z, q) = (sigmoid(at.sum::<V>(row, 1)), sigmoid(at.sum::<V>(row, 2)), at.sum::<V>(row, 3));
            let new = tanh(r.fma(q, at.sum::<V>(row, 0)));
            for (k, activation) in [new, r, z, q].into_iter().enumerate() {
                at.store(activation, row.gates.add(k * n));
            }
            let h = at.load::<V>(row.before);
            at.store(z.fma(h.sub(new), new), row.hidden);
        }
    });
}

/// With `dh` and `dc` the gradients of `h'` and `c'`, and `t = tanh c'`:
/// `dc += dh·o·(1 − t²)`, `di = dc·g·i(1−i)`, `df = dc·c·f(1−f)`, `dg = dc·i·(1−g²)`,
/// `do = dh·t·o(1−o)`, and `dc·f` goes on to `c`.
///
/// # Safety
/// As [`back`] checks; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn lstm_back<V: Vector>(row: Row) {
    let n = row.width;
    each!(V, n, |at| {
        // SAFETY: the four blocks and the states hold `n` floats each.
        unsafe {
            let one = V::splat(1.0);
            let [i, f, g, o] = at.blocks::<V>(row);
            let (dh, t) = (at.load::<V>(row.hidden), tanh(at.load::<V>(row.cell)));
            let dc = dh.mul(o).fma(one.sub(t.mul(t)), at.load::<V>(row.carry));
            let di = dc.mul(g).mul(i.mul(one.sub(i)));
            let df = dc.mul(at.load::<V>(row.before)).mul(f.mul(one.sub(f)));
            let dg = dc.mul(i).mul(one.sub(g.mul(g)));
            let go = dh.mul(t).mul(o.mul(one.sub(o)));
            for (k, gradient) in [di, df, dg, go].into_iter().enumerate() {
                at.store(gradient, row.gates.add(k * n));
            }
            at.store(dc.mul(f), row.carry);
        }
    });
}

/// `dn = dh·(1−z)·(1−n²)`, `dz = dh·(h − n)·z(1−z)`, `dr = dn·q·r(1−r)`, `dq = dn·r`, and `dh·z`
/// goes to `h` directly.
///
/// # Safety
/// As [`back`] checks; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn gru_back<V: Vector>(row: Row) {
    let n = row.width;
    each!(V, n, |at| {
        // SAFETY: the four blocks and the states hold `n` floats each.
        unsafe {
            let one = V::splat(1.0);
            let [new, r, z, q] = at.blocks::<V>(row);
            let (dh, h) = (at.load::<V>(row.hidden), at.load::<V>(row.before));
            let dn = dh.mul(one.sub(z)).mul(one.sub(new.mul(new)));
            let dz = dh.mul(h.sub(new)).mul(z.mul(one.sub(z)));
            let dr = dn.mul(q).mul(r.mul(one.sub(r)));
            for (k, gradient) in [dn, dr, dz, dn.mul(r)].into_iter().enumerate() {
                at.store(gradient, row.gates.add(k * n));
            }
            at.store(dh.mul(z), row.carry);
        }
    });
}

/// # Safety
/// `x` is readable and writable for `width` floats; the CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn tanh_row<V: Vector>(x: *mut f32, width: usize) {
    each!(V, width, |at| {
        // SAFETY: as the caller vouches.
        unsafe { at.store(tanh(at.load::<V>(x)), x) }
    });
}

outlined! { unsafe fn run_tanh<V>(x: *mut f32, width: usize) -> () => tanh_row }
outlined! { unsafe fn run_lstm<V>(row: Row) -> () => lstm }
outlined! { unsafe fn run_gru<V>(row: Row) -> () => gru }
outlined! { unsafe fn run_lstm_back<V>(row: Row) -> () => lstm_back }
outlined! { unsafe fn run_gru_back<V>(row: Row) -> () => gru_back }

/// # Safety
/// The CPU has the instruction set of `V`.
pub(super) unsafe fn tanh_slice<V: Vector>(x: &mut [f32]) {
    // SAFETY: the slice holds what its length says; the caller vouches for the rest.
    unsafe { run_tanh::<V>(x.as_mut_ptr(), x.len()) }
}

/// # Safety
/// [`step`] has checked the lengths; the CPU has the instruction set of `V`.
pub(super) unsafe fn forward<V: Vector>(cell: Cell, job: Step<'_>) {
    let row = Row {
        width: job.hidden.len(),
        gates: job.gates.as_mut_ptr(),
        bias: job.bias.as_ptr(),
        before: job.before.as_ptr(),
        cell: job.cell.as_mut_ptr(),
        hidden: job.hidden.as_mut_ptr(),
        carry: std::ptr::null_mut(),
    };
    // SAFETY: as the caller vouches; a GRU touches neither `cell` nor `carry`, an LSTM not `carry`.
    unsafe {
        match cell {
            Cell::Lstm => run_lstm::<V>(row),
            Cell::Gru => run_gru::<V>(row),
        }
    }
}

/// # Safety
/// [`back`] has checked the lengths; the CPU has the instruction set of `V`.
pub(super) unsafe fn backward<V: Vector>(cell: Cell, job: Back<'_>) {
    let row = Row {
        width: job.hidden.len(),
        gates: job.gates.as_mut_ptr(),
        bias: std::ptr::null(),
        before: job.before.as_ptr(),
        cell: job.cell.as_ptr().cast_mut(),
        hidden: job.hidden.as_ptr().cast_mut(),
        carry: job.carry.as_mut_ptr(),
    };
    // SAFETY: as the caller vouches; a backward step only reads `cell` and `hidden`, and no `bias`.
    unsafe {
        match cell {
            Cell::Lstm => run_lstm_back::<V>(row),
            Cell::Gru => run_gru_back::<V>(row),
        }
    }
}
