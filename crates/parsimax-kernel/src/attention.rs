//! Attention: `out = Π(scale · Q Kᵀ) V`, a tile of queries at a time.
//!
//! Plainly, for each query: its scores with every key, the mapping, the weighted sum of the
//! values. Three things are done differently.
//!
//! 1. Queries go in tiles whose scores fit the second-level cache, so that neither scores
//!    nor weights ever reach memory, and a mapping's kernel gets a block of rows.
//! 2. Both products run on `MR × 2` vectors held in registers. Keys are first laid out with
//!    `LANES` of them side by side, once per head; `scale` is multiplied in on the way.
//! 3. A weight of zero costs nothing: the non-zero ones of a row are listed (the kernels of long
//!    rows have the list already), and only their
//!    values are added up. Where more than a share of the weights is not zero, the product is
//!    done densely. Both ways add in the order of the keys, so they give the same bits.
//!
//! A weight of zero times a value that is not finite is NaN in the dense product and nothing
//! in the sparse one. A head whose values are not all finite is therefore never done densely:
//! what a masked key holds cannot matter.

use super::product::{MR, SPILL, dense, marks, positions, product, sparse};
use super::short::SHORT;
use super::vector::{MAX_LANES, Task, Vector};
use super::{Forward, Level, Map, Scratch, Status, active, dispatch, forward, with_level};
use std::marker::PhantomData;

/// The product is sparse up to one non-zero weight in this many.
const DENSE: usize = 3;

/// How many queries to give to [`attend`] at once: a multiple of `MR` and, for short rows, of
/// what the mappings solve together.
#[must_use]
pub fn tile_rows(keys: usize) -> usize {
    match keys {
        0..=1024 => 48,
        1025..=2730 => 24,
        2731..=5461 => 12,
        _ => MR,
    }
}

/// Rows that are mapped and multiplied together within a tile.
fn block_rows(keys: usize) -> usize {
    match keys {
        0..=512 => 48,
        513..=1024 => 24,
        _ => MR,
    }
}

/// The keys and values of one head, laid out for the instruction set that was active then.
#[derive(Clone, Debug)]
pub struct Head {
    level: Level,
    n: usize,
    dk: usize,
    dv: usize,
    /// Panels of `LANES` keys, an even number of them: `panel[c · LANES + lane]`.
    keys: Vec<f32>,
    /// The values with rows padded to whole pairs of vectors, where they are not that already.
    values: Vec<f32>,
    width: usize,
    finite: bool,
}

impl Head {
    /// No keys.
    #[must_use]
    pub fn new() -> Head {
        Head { level: active(), n: 0, dk: 0, dv: 0, keys: Vec::new(), values: Vec::new(), width: 0, finite: true }
    }

    /// Takes in `n` keys of width `dk`, multiplied by `scale`, and their values of width `dv`.
    ///
    /// # Panics
    /// If the slices do not hold `n · dk` and `n · dv` floats.
    pub fn load(&mut self, k: &[f32], v: &[f32], n: usize, (dk, dv): (usize, usize), scale: f32) {
        assert!(k.len() == n * dk && v.len() == n * dv, "attention: n · dk keys and n · dv values");
        self.level = active();
        (self.n, self.dk, self.dv) = (n, dk, dv);
        self.keys.resize(n.next_multiple_of(2 * MAX_LANES) * dk, 0.0);
        dispatch::attention(Step::Pack { k, v, scale, head: self });
        let width = self.width;
        if width != dv {
            self.values.clear();
            self.values.resize(n * width, 0.0);
            for (to, from) in self.values.chunks_exact_mut(width).zip(v.chunks_exact(dv.max(1))) {
                to[..dv].copy_from_slice(from);
            }
        }
    }
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

/// Working memory of [`attend`], reused from tile to tile.
#[derive(Clone, Debug, Default)]
pub struct Buffers {
    rest: Vec<f32>,
    scores: Vec<f32>,
    weights: Vec<f32>,
    status: Vec<Status>,
    mix: Mix,
    scratch: Scratch,
}

/// Working memory of the product with the values.
#[derive(Clone, Debug, Default)]
pub(super) struct Mix {
    /// Bits of the non-zero weights of `MR` rows.
    words: Vec<u64>,
    /// Positions of the non-zero weights of a row.
    list: Vec<u32>,
    /// Sums of `MR` rows of the dense product.
    sums: Vec<f32>,
}

/// Some queries of one head, and where their results go.
#[derive(Debug)]
pub struct Tile<'a> {
    /// Queries, `rows · dk`.
    pub q: &'a [f32],
    /// The values that the head was loaded with.
    pub v: &'a [f32],
    /// With `Some(i)`, query `r` of the tile sees the keys up to and with `i + r`.
    pub causal: Option<usize>,
    /// Which keys take part, `n` entries, and the step from one query's entries to the next's:
    /// 0 or at least `n`.
    pub mask: Option<(&'a [bool], usize)>,
    /// `rows · dv`.
    pub out: &'a mut [f32],
    /// The weights, if wanted, `rows · n`.
    pub weights: Option<&'a mut [f32]>,
    /// How many queries.
    pub rows: usize,
}

/// What runs on the instruction set of the head; the slices are as long as the comments say.
pub(super) enum Step<'a> {
    /// Keys into panels.
    Pack { k: &'a [f32], v: &'a [f32], scale: f32, head: &'a mut Head },
    /// `rows · n` scores of the first `n` keys; `scores` has room for whole blocks of `MR` rows.
    Scores { q: &'a [f32], rows: usize, head: &'a Head, n: usize, rest: &'a mut Vec<f32>, scores: &'a mut [f32] },
    /// The `dv` sums of one row of weights `p`, of which only those in `list`, ascending, may not be zero.
    Gather { p: &'a [f32], list: &'a [u32], head: &'a Head, v: &'a [f32], mix: &'a mut Mix, out: &'a mut [f32] },
    /// `rows · dv` sums of the first `n` values; `weights` has room for whole blocks of rows.
    Mix {
        weights: &'a [f32],
        n: usize,
        head: &'a Head,
        v: &'a [f32],
        likely: bool,
        mix: &'a mut Mix,
        out: &'a mut [f32],
    },
}

/// Attention of the queries of a tile. A query that no key takes part for gives zeros; one
/// whose scores hold NaN or `+inf` gives NaN.
///
/// # Panics
/// If the slices do not have the lengths that [`Tile`] states.
pub fn attend(map: Map, scale: f32, head: &Head, tile: Tile<'_>, buffers: &mut Buffers) {
    let (rows, dv) = (tile.rows, head.dv);
    assert!(tile.q.len() == rows * head.dk && tile.v.len() == head.n * dv, "attention: rows · dk queries");
    assert!(tile.out.len() == rows * dv, "attention: rows · dv results");
    let mut all_weights = tile.weights;
    if let Some(w) = &all_weights {
        assert!(w.len() == rows * head.n, "attention: rows · n weights");
    }
    let n = tile.causal.map_or(head.n, |first| head.n.min(first + rows));
    if n == 0 || rows == 0 {
        tile.out.fill(0.0);
        return;
    }
    let block = block_rows(n);
    let Buffers { rest, scores, weights, status, mix, scratch } = buffers;
    grow(scores, rows.next_multiple_of(MR) * n);
    grow(weights, block.min(rows).next_multiple_of(MR) * n);
    status.resize(block, Status::Ok);
    with_level(head.level, || {
        dispatch::attention(Step::Scores { q: tile.q, rows, head, n, rest, scores });
        for first in (0..rows).step_by(block) {
            let here = block.min(rows - first);
            let z = &mut scores[first * n..(first + here) * n];
            for (r, z) in z.chunks_exact_mut(n).enumerate() {
                hide(z, first + r, tile.causal, tile.mask);
            }
            let out = &mut tile.out[first * dv..(first + here) * dv];
            let (status, p) = (&mut status[..here], &mut weights[..here * n]);
            let mut done = false;
            if n <= SHORT {
                forward(map, Forward { z, d: n, scale, out: p, stream: false, tau: None, status, scratch });
            } else {
                // The kernels of long rows know where the weights are that may not be zero.
                done = true;
                for r in 0..here {
                    let (z, p, status) = (&z[r * n..][..n], &mut p[r * n..][..n], &mut status[r..=r]);
                    scratch.listed = None;
                    forward(map, Forward { z, d: n, scale, out: p, stream: false, tau: None, status, scratch });
                    match scratch.listed {
                        Some(count) if count * DENSE <= n => {
                            let (out, list) = (&mut out[r * dv..][..dv], &scratch.index[..count]);
                            dispatch::attention(Step::Gather { p, list, head, v: tile.v, mix, out });
                        }
                        _ => done &= status[0] != Status::Ok,
                    }
                }
            }
            if let Some(all) = all_weights.as_deref_mut() {
                let all = all[first * head.n..].chunks_exact_mut(head.n);
                for (to, from) in all.zip(weights[..here * n].chunks_exact(n)) {
                    to[..n].copy_from_slice(from);
                    to[n..].fill(0.0);
                }
            }
            if dv > 0 {
                if !done {
                    let likely = map == Map::Softmax;
                    dispatch::attention(Step::Mix { weights, n, head, v: tile.v, likely, mix, out });
                }
                for (row, status) in out.chunks_exact_mut(dv).zip(status) {
                    if *status != Status::Ok {
                        row.fill(status.fill());
                    }
                }
            }
        }
    });
}

/// Makes room without touching what is there.
fn grow(buffer: &mut Vec<f32>, n: usize) {
    if buffer.len() < n {
        buffer.resize(n, 0.0);
    }
}

/// −∞ for the keys that do not take part.
fn hide(z: &mut [f32], row: usize, causal: Option<usize>, mask: Option<(&[bool], usize)>) {
    if let Some((mask, step)) = mask {
        for (z, takes_part) in z.iter_mut().zip(&mask[row * step..]) {
            *z = if *takes_part { *z } else { f32::NEG_INFINITY };
        }
    }
    if let Some(first) = causal {
        let seen = z.len().min(first + row + 1);
        z[seen..].fill(f32::NEG_INFINITY);
    }
}

/// One step on one instruction set.
///
/// # Safety
/// The slices have the lengths that [`Step`] states, and the CPU has the instruction set of
/// `V`, which is the one that the head was loaded with.
pub(super) unsafe fn step<V: Vector>(step: Step<'_>) {
    struct Call<'a, V>(Step<'a>, PhantomData<V>);
    impl<V: Vector> Task for Call<'_, V> {
        type Output = ();
        #[inline(always)]
        unsafe fn run(self) {
            // SAFETY: as the caller of the function vouches.
            unsafe { lanes::<V>(self.0) }
        }
    }
    // SAFETY: as the caller vouches.
    unsafe { V::call(Call::<V>(step, PhantomData)) }
}

/// The same, inlined.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn lanes<V: Vector>(step: Step<'_>) {
    // SAFETY: as the caller vouches.
    unsafe {
        match step {
            Step::Pack { k, v, scale, head } => {
                head.finite = finite::<V>(v);
                pack::<V>(k, scale, head);
            }
            Step::Scores { q, rows, head, n, rest, scores } => self::scores::<V>(q, rows, head, n, rest, scores),
            Step::Gather { p, list, head, v, mix, out } => gather::<V>(p, list, head, v, mix, out),
            Step::Mix { weights, n, head, v, likely, mix, out } => {
                self::mix::<V>(weights, n, head, v, likely, mix, out);
            }
        }
    }
}

/// Whether all numbers are finite: then the sum of their products with zero is zero.
///
/// # Safety
/// The CPU has the instruction set of `V`.
#[inline(always)]
unsafe fn finite<V: Vector>(x: &[f32]) -> bool {
    // SAFETY: chunks hold four vectors.
    unsafe {
        let zero = V::splat(0.0);
        let (mut sums, chunks) = ([zero; 4], x.chunks_exact(4 * V::LANES));
        let rest = chunks.remainder().iter().all(|x| x.is_finite());
        for chunk in chunks {
            for i in 0..4 {
                sums[i] = V::load(chunk.as_ptr().add(i * V::LANES)).fma(zero, sums[i]);
            }
        }
        let sum = sums[0].add(sums[1]).add(sums[2].add(sums[3]));
        rest && V::bits(sum.unordered(sum)) == 0
    }
}

/// Keys into panels: full squares by transposition in registers, the rest one by one.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn pack<V: Vector>(k: &[f32], scale: f32, head: &mut Head) {
    let (n, dk) = (head.n, head.dk);
    head.width = head.dv.next_multiple_of(2 * V::LANES);
    for panel in 0..n.div_ceil(2 * V::LANES) * 2 {
        let first = panel * V::LANES;
        let to = &mut head.keys[first * dk..][..dk * V::LANES];
        let here = n.saturating_sub(first).min(V::LANES);
        let whole = if here == V::LANES { dk - dk % V::LANES } else { 0 };
        // SAFETY: `LANES` keys of `dk ≥ whole` floats start at `first`; the panel holds
        // `dk · LANES` floats.
        unsafe {
            for c in (0..whole).step_by(V::LANES) {
                V::transpose(k.as_ptr().add(first * dk + c), dk, to.as_mut_ptr().add(c * V::LANES));
            }
        }
        for c in whole..dk {
            for lane in 0..V::LANES {
                to[c * V::LANES + lane] = if lane < here { k[(first + lane) * dk + c] } else { 0.0 };
            }
        }
        for x in to {
            *x *= scale;
        }
    }
}

/// Scores of a tile: for each pair of panels, all blocks of `MR` queries.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn scores<V: Vector>(q: &[f32], rows: usize, head: &Head, n: usize, rest: &mut Vec<f32>, scores: &mut [f32]) {
    let (dk, pair) = (head.dk, 2 * V::LANES);
    let whole = rows - rows % MR;
    // The last queries with rows of zeros behind them, where they do not fill a block.
    rest.clear();
    rest.extend_from_slice(&q[whole * dk..]);
    rest.resize(MR * dk, 0.0);
    let mut edge = [0.0f32; MR * 2 * MAX_LANES];
    for key in (0..n).step_by(pair) {
        let here = pair.min(n - key);
        for row in (0..rows).step_by(MR) {
            let a = if row < whole { &q[row * dk..] } else { &rest[..] };
            debug_assert!(a.len() >= MR * dk && head.keys.len() >= (key + pair) * dk);
            // SAFETY: `a` holds `MR` queries and `keys` two panels from `key` on; scores has
            // room for whole blocks of rows, and `edge` for one block.
            unsafe {
                let b = head.keys.as_ptr().add(key * dk);
                let zero = [[V::splat(0.0); 2]; MR];
                let sums = product::<V>(zero, (a.as_ptr(), dk), (b, V::LANES, dk * V::LANES), dk);
                let to = scores.as_mut_ptr().add(row * n + key);
                if here == pair {
                    for r in 0..MR {
                        sums[r][0].store(to.add(r * n));
                        sums[r][1].store(to.add(r * n + V::LANES));
                    }
                } else {
                    for r in 0..MR {
                        sums[r][0].store(edge.as_mut_ptr().add(r * pair));
                        sums[r][1].store(edge.as_mut_ptr().add(r * pair + V::LANES));
                        std::ptr::copy_nonoverlapping(edge.as_ptr().add(r * pair), to.add(r * n), here);
                    }
                }
            }
        }
    }
}

/// Weighted sums of values for one row whose weights are known to be few.
///
/// # Safety
/// As [`step`]; positions in `list` are below the length of `p`.
#[inline(always)]
unsafe fn gather<V: Vector>(p: &[f32], list: &[u32], head: &Head, v: &[f32], mix: &mut Mix, out: &mut [f32]) {
    let v = if head.width == head.dv { v } else { &head.values };
    grow(&mut mix.sums, head.width);
    mix.list.resize(p.len() + SPILL, 0);
    let mut count = 0;
    for &j in list {
        mix.list[count] = j;
        count += usize::from(p[j as usize] > 0.0);
    }
    let list = &mix.list[..count];
    // SAFETY: the sums hold a row of `width` floats.
    unsafe { sparse::<V>(p.as_ptr(), list, v.as_ptr(), head.width, mix.sums.as_mut_ptr()) };
    out.copy_from_slice(&mix.sums[..head.dv]);
}

/// Weighted sums of values, a block of `MR` rows at a time. `likely`: do not look for zeros.
///
/// # Safety
/// As [`step`].
#[inline(always)]
unsafe fn mix<V: Vector>(
    weights: &[f32],
    n: usize,
    head: &Head,
    v: &[f32],
    likely: bool,
    mix: &mut Mix,
    out: &mut [f32],
) {
    let (dv, width) = (head.dv, head.width);
    let v = if width == dv { v } else { &head.values };
    debug_assert!(v.len() >= n * width);
    let step = n.div_ceil(64);
    mix.words.resize(MR * step, 0);
    mix.list.resize(n + SPILL, 0);
    grow(&mut mix.sums, MR * width);
    for (block, out) in out.chunks_mut(MR * dv).enumerate() {
        let p = &weights[block * MR * n..][..MR * n];
        let rows = out.len() / dv;
        let mut counts = [0; MR];
        if !(likely && head.finite) {
            for r in 0..rows {
                // SAFETY: the CPU has the instruction set.
                counts[r] = unsafe { marks::<V>(&p[r * n..][..n], &mut mix.words[r * step..][..step]) };
            }
        }
        let many = likely || counts.iter().sum::<usize>() * DENSE > rows * n;
        if many && head.finite {
            // SAFETY: the slices hold `MR · n`, `n · width` and `MR · width` floats.
            unsafe { dense::<V>(p.as_ptr(), n, v.as_ptr(), width, mix.sums.as_mut_ptr()) };
            for (to, from) in out.chunks_exact_mut(dv).zip(mix.sums.chunks_exact(width)) {
                to.copy_from_slice(&from[..dv]);
            }
        } else {
            for (r, to) in out.chunks_exact_mut(dv).enumerate() {
                // SAFETY: a row has at most `n` positions, all below `n`; the sums hold a row of
                // `width` floats.
                unsafe {
                    positions(&mix.words[r * step..][..step], mix.list.as_mut_ptr());
                    let list = &mix.list[..counts[r]];
                    sparse::<V>(p[r * n..].as_ptr(), list, v.as_ptr(), width, mix.sums.as_mut_ptr());
                }
                to.copy_from_slice(&mix.sums[..dv]);
            }
        }
    }
}
