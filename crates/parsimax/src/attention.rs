//! Attention with sparse weights: `out = Π(scale · Q Kᵀ) V` for many heads, without ever writing the
//! matrix of scores to memory.
//!
//! Arrays are contiguous and in single precision. With `H` heads (those of all sequences of a batch, one
//! after another), queries are `[H, n_q, dk]`, keys `[H, n_k, dk]`, values `[H, n_k, dv]`, results
//! `[H, n_q, dv]` and weights `[H, n_q, n_k]`.
//!
//! | a query has | its result |
//! |---|---|
//! | finite scores | the values weighted by `Π` |
//! | a mask that is `false`, or a score of `-inf` | that key takes no part, whatever its key and value hold |
//! | no key that takes part | zeros |
//! | NaN or `+inf` among the scores that take part | NaN; other queries are untouched |
//!
//! Queries are cut into tiles by the shape alone, so the results have the same bits for any number of
//! threads.

use crate::error::check;
use crate::kernel::attention::{Buffers, Head, Tile, attend, tile_rows};
use crate::kernel::{active, with_level};
use crate::{Error, Mapping, Result};

/// Sizes of the arrays of one attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Heads, times sequences of the batch.
    pub heads: usize,
    /// Queries of a head.
    pub queries: usize,
    /// Keys of a head.
    pub keys: usize,
    /// Width of a query and of a key.
    pub key_width: usize,
    /// Width of a value and of a result.
    pub value_width: usize,
}

/// Which keys take part, shared by groups of heads.
#[derive(Debug, Clone, Copy)]
enum Mask<'a> {
    None,
    /// `[groups, n_k]`
    Keys(&'a [bool]),
    /// `[groups, n_q, n_k]`
    Pairs(&'a [bool]),
}

/// Attention whose weights come from a mapping.
///
/// ```
/// use parsimax::{Attention, Shape, Sparsemax};
/// let shape = Shape { heads: 1, queries: 1, keys: 3, key_width: 1, value_width: 2 };
/// let (q, k, v) = ([1.0], [1.0, 0.5, 0.0], [1.0, 0.0, 0.0, 1.0, 5.0, 5.0]);
/// let mut out = [0.0; 2];
/// Attention::new(&Sparsemax::new()).forward(shape, &q, &k, &v, &mut out)?;
/// assert_eq!(out, [0.75, 0.25]); // weights (0.75, 0.25, 0)
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Attention<'a, M> {
    mapping: &'a M,
    scale: Option<f32>,
    mask: Mask<'a>,
    causal: bool,
    threads: bool,
}

const OPERATION: &str = "attention";

/// Multiply-adds of both products from which on a thread pool brings more than it costs.
#[cfg(feature = "rayon")]
const PARALLEL: usize = 6_000_000;

/// Heads prepared together when there are threads to share them; bounds the memory.
#[cfg(feature = "rayon")]
const HEADS: usize = 64;

impl<'a, M: Mapping> Attention<'a, M> {
    /// Attention with the scale `1/√dk`, every key seen by every query.
    pub fn new(mapping: &'a M) -> Self {
        Self { mapping, scale: None, mask: Mask::None, causal: false, threads: true }
    }

    /// The factor on the scores `q·k`.
    #[must_use]
    pub fn scale(mut self, scale: f32) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Query `i` sees the keys `0..=i` only.
    #[must_use]
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Which keys take part: `[groups, n_k]`, where each group covers as many consecutive heads as the
    /// others. For padding, a group is a sequence of the batch.
    #[must_use]
    pub fn key_mask(mut self, mask: &'a [bool]) -> Self {
        self.mask = Mask::Keys(mask);
        self
    }

    /// Which keys take part for which query: `[groups, n_q, n_k]`, groups as in
    /// [`key_mask`](Attention::key_mask).
    #[must_use]
    pub fn mask(mut self, mask: &'a [bool]) -> Self {
        self.mask = Mask::Pairs(mask);
        self
    }

    /// Stay on the caller's thread. The results are the same.
    #[must_use]
    pub fn single_threaded(mut self) -> Self {
        self.threads = false;
        self
    }

    /// Writes the attention of every query.
    ///
    /// # Errors
    /// If a length does not fit the shape, the scale is not finite, or the mapping has no single-precision
    /// kernel.
    pub fn forward(&self, shape: Shape, q: &[f32], k: &[f32], v: &[f32], out: &mut [f32]) -> Result<()> {
        self.run(shape, (q, k, v), out, None)
    }

    /// The same, and the weights of every query.
    ///
    /// # Errors
    /// As [`forward`](Attention::forward).
    pub fn forward_with_weights(
        &self,
        shape: Shape,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        out: &mut [f32],
        weights: &mut [f32],
    ) -> Result<()> {
        self.run(shape, (q, k, v), out, Some(weights))
    }

    fn run(
        &self,
        shape: Shape,
        (q, k, v): (&[f32], &[f32], &[f32]),
        out: &mut [f32],
        weights: Option<&mut [f32]>,
    ) -> Result<()> {
        let Shape { heads, queries, keys, key_width: dk, value_width: dv } = shape;
        let kernel = self.mapping.kernel().ok_or(Error::Unsupported {
            operation: self.mapping.name(),
            what: "attention needs a mapping with a single-precision kernel",
        })?;
        fits("q", [heads, queries, dk], q.len())?;
        fits("k", [heads, keys, dk], k.len())?;
        fits("v", [heads, keys, dv], v.len())?;
        fits("out", [heads, queries, dv], out.len())?;
        if let Some(w) = &weights {
            fits("weights", [heads, queries, keys], w.len())?;
        }
        let run = self.heads_per_mask(shape)?;
        let scale = self.scale.unwrap_or(1.0 / (dk.max(1) as f32).sqrt());
        check(scale.is_finite(), OPERATION, "scale", "finite", f64::from(scale))?;
        if out.is_empty() && weights.as_ref().is_none_or(|w| w.is_empty()) {
            return Ok(());
        }

        let rows = tile_rows(keys);
        let level = active();
        let load = |(head, h): (&mut Head, usize)| {
            let (k, v) = (&k[h * keys * dk..][..keys * dk], &v[h * keys * dv..][..keys * dv]);
            with_level(level, || head.load(k, v, keys, (dk, dv), scale));
        };
        let work = |buffers: &mut Buffers, head: &Head, h: usize, part: Part<'_>| {
            let first = part.tile * rows;
            let here = rows.min(queries - first);
            let mask = match self.mask {
                Mask::None => None,
                Mask::Keys(m) => Some((&m[h / run * keys..][..keys], 0)),
                Mask::Pairs(m) => Some((&m[(h / run * queries + first) * keys..][..here * keys], keys)),
            };
            let tile = Tile {
                q: &q[(h * queries + first) * dk..][..here * dk],
                v: &v[h * keys * dv..][..keys * dv],
                causal: self.causal.then_some(first),
                mask,
                out: part.out,
                weights: part.weights,
                rows: here,
            };
            attend(kernel.map, kernel.scale, head, tile, buffers);
        };

        let mut parts = Part::cut(shape, rows, out, weights).into_iter();
        let tiles = queries.div_ceil(rows);
        #[cfg(feature = "rayon")]
        if self.threads && heads * queries * keys * (dk + dv) >= PARALLEL {
            use rayon::prelude::*;
            let mut loaded = vec![Head::new(); heads.min(HEADS)];
            for first in (0..heads).step_by(HEADS) {
                let here = HEADS.min(heads - first);
                loaded[..here].par_iter_mut().enumerate().for_each(|(i, head)| load((head, first + i)));
                let parts: Vec<_> = parts.by_ref().take(here * tiles).enumerate().collect();
                parts.into_par_iter().for_each_init(Buffers::default, |buffers, (i, part)| {
                    work(buffers, &loaded[i / tiles], first + i / tiles, part);
                });
            }
            return Ok(());
        }
        let (mut head, mut buffers) = (Head::new(), Buffers::default());
        for h in 0..heads {
            load((&mut head, h));
            parts.by_ref().take(tiles).for_each(|part| work(&mut buffers, &head, h, part));
        }
        Ok(())
    }

    /// How many heads share a mask.
    fn heads_per_mask(&self, shape: Shape) -> Result<usize> {
        let (len, one) = match self.mask {
            Mask::None => return Ok(1),
            Mask::Keys(mask) => (mask.len(), shape.keys),
            Mask::Pairs(mask) => (mask.len(), shape.queries.saturating_mul(shape.keys)),
        };
        let groups = len.checked_div(one).unwrap_or(1);
        if groups * one == len && groups > 0 && shape.heads.is_multiple_of(groups) {
            return Ok((shape.heads / groups).max(1));
        }
        Err(Error::Shape {
            operation: OPERATION,
            what: "mask",
            expected: format!("of length {one} times a divisor of {}", shape.heads),
            got: format!("{len}"),
        })
    }
}

/// The places of the results of one tile.
struct Part<'a> {
    tile: usize,
    out: &'a mut [f32],
    weights: Option<&'a mut [f32]>,
}

impl<'a> Part<'a> {
    /// All tiles of all heads, in order.
    fn cut(shape: Shape, rows: usize, mut out: &'a mut [f32], mut weights: Option<&'a mut [f32]>) -> Vec<Self> {
        let mut parts = Vec::with_capacity(shape.heads * shape.queries.div_ceil(rows));
        for _ in 0..shape.heads {
            for (tile, first) in (0..shape.queries).step_by(rows).enumerate() {
                let here = rows.min(shape.queries - first);
                let (part, rest) = out.split_at_mut(here * shape.value_width);
                out = rest;
                let part_weights = weights.take().map(|w| {
                    let (part, rest) = w.split_at_mut(here * shape.keys);
                    weights = Some(rest);
                    part
                });
                parts.push(Part { tile, out: part, weights: part_weights });
            }
        }
        parts
    }
}

/// Checks the length of an array.
fn fits(what: &'static str, shape: [usize; 3], len: usize) -> Result<()> {
    let expected = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
    if expected == Some(len) {
        return Ok(());
    }
    let [a, b, c] = shape;
    let (expected, got) = (format!("of length {a}·{b}·{c}"), format!("{len}"));
    Err(Error::Shape { operation: OPERATION, what, expected, got })
}
