//! SIMD kernels of parsimax: plain slices of `f32` rows in, slices out.
//!
//! The only crate with `unsafe` code, bindings aside, and the only one that knows processors. Users of parsimax have no
//! need of it: `parsimax::Rows` checks, spreads over threads and calls. Each
//! algorithm is written once, over the trait of `vector.rs`; the instances (AVX2, AVX-512,
//! NEON and a portable one) only say how eight floats are added. `dispatch.rs` picks one at
//! run time.
//!
//! Every function takes a block of rows of width `d`, stored one after another, and a
//! `scale` (`1/γ`) that multiplies the differences `z − max z`. A row's result depends on
//! that row alone, bit for bit, however rows are grouped into blocks. Nothing is allocated
//! per row: the caller owns a [`Scratch`] that grows to what was needed.
//!
//! | file | what it does |
//! |---|---|
//! | `dispatch.rs`, `route.rs` | the entry points: which instruction set, which algorithm |
//! | `scan.rs`, `solve.rs`, `write.rs` | the steps: maxima and candidates, the threshold, the output |
//! | `profile.rs` | what tells sparsemax from entmax; why Newton has no slow case |
//! | `short.rs`, `long.rs` | maxima and bounds of short rows together; the steps composed for long rows alone |
//! | `direct.rs`, `group.rs`, `ranked.rs`, `refine.rs` | sparsemax and 1.5-entmax of rows up to a few thousand scores: the ways they go |
//! | `ordered.rs`, `peaks.rs` | rows from 128 scores on by order and a check; of wide ones, of the few vectors that matter |
//! | `crowded.rs` | wide rows with much of a row in the support: few passes over whole rows |
//! | `alpha.rs`, `alpha_backward.rs`, `steep_backward.rs`, `steep_alone.rs` | entmax with any α, and its gradient in α; α > 2 apart |
//! | `alpha_plain.rs` | the same from probabilities alone, for rows that they tell all about |
//! | `supports.rs` | supports of a group of rows as lists, for backward passes that take powers |
//! | `anchored.rs`, `survey.rs`, `settle.rs`, `finish.rs`, `level.rs`, `sorted.rs` | entmax with α ≥ 1.1 on short rows: by steps, or by order |
//! | `verge.rs` | entmax with α < 1.1, which verges on softmax |
//! | `upright.rs`, `topmost.rs` | the same on narrow rows and crowded ones: whole rows in lanes |
//! | `abreast.rs`, `lists.rs` | entmax with α ≥ 1.25 on rows of a few thousand scores: candidates of several rows at once |
//! | `quarters.rs`, `looks.rs` | sparsemax and 1.5-entmax of narrow rows: by order and a check, else by looks at whole rows |
//! | `sweep.rs`, `shortlist.rs`, `band.rs` | sparsemax and 1.5-entmax of long rows with many candidates |
//! | `dense.rs` | entmax with any α on long rows, in few passes |
//! | `place.rs` | long rows in the place of their result, where no other memory is wanted |
//! | `softmax.rs`, `evsoftmax.rs` | mappings that need `exp` |
//! | `backward.rs`, `long_backward.rs`, `weight.rs` | vector–Jacobian products, and what an entry weighs in them |
//! | `structured.rs`, `fused.rs`, `fused/`, `tv.rs`, `groups.rs` | fusedmax and the Jacobian of groups; short rows in lanes |
//! | `oscar.rs`, `oscar/` | oscarmax: few candidates in lanes, other rows by passes |
//! | `network.rs` | which places a sorting network exchanges |
//! | `norm.rs`, `narrow.rs` | sq-pnorm-max; narrow rows of its default in lanes |
//! | `loss.rs` | Fenchel–Young losses with their gradient |
//! | `attention.rs`, `product.rs` | scores, mapping and weighted values in one pass over tiles |
//! | `matmul.rs`, `cells.rs` | products with a packed matrix, and the gates of recurrent cells |
#![allow(unsafe_code)]

mod abreast;
mod alpha;
mod alpha_backward;
mod alpha_plain;
mod anchored;
pub mod attention;
mod backward;
mod band;
pub mod cells;
mod crowded;
mod dense;
mod direct;
mod dispatch;
mod evsoftmax;
mod expo;
mod finish;
mod fused;
mod group;
mod groups;
mod level;
mod lists;
mod long;
mod long_backward;
mod looks;
mod loss;
pub mod matmul;
mod narrow;
mod network;
mod norm;
mod ordered;
mod oscar;
mod pair;
mod peaks;
mod place;
mod portable;
mod product;
mod profile;
mod quarters;
mod ranked;
mod refine;
mod route;
mod scan;
mod settle;
mod short;
mod shortlist;
mod softmax;
mod solve;
mod sorted;
mod steep_alone;
mod steep_backward;
mod structured;
mod supports;
mod survey;
mod sweep;
mod topmost;
mod tv;
mod upright;
mod vector;
mod verge;
mod weight;
mod write;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

pub use dispatch::{
    Level, active, alpha_backward, available, backward, backward_in_place, forward, in_place, loss, structured,
    structured_backward, structured_in_place, support, with_level,
};
pub use fused::fused_pieces;
pub use structured::{Gradients, Rows, Structure, Structured, Work};

/// Which mapping a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Map {
    /// `exp(x)/Σ`; τ is the log-sum-exp of `x`.
    Softmax,
    /// `[x − τ]₊`.
    Sparsemax,
    /// `[x/2 − τ]₊²`.
    Entmax15,
    /// `[(α−1)x − τ]₊^{1/(α−1)}` for any finite α ≥ 1. The special cases above are taken where
    /// they apply.
    Entmax(f64),
    /// Softmax over the entries not below the mean; τ is the log-sum-exp of those.
    EvSoftmax,
}

impl Map {
    /// The closed form of this mapping, if it has one.
    ///
    /// Within 1e−7 of α = 1 the mapping differs from softmax by less than f32 can show.
    fn resolve(self) -> Map {
        match self {
            Map::Entmax(a) if a - 1.0 < 1e-7 => Map::Softmax,
            Map::Entmax(1.5) => Map::Entmax15,
            Map::Entmax(2.0) => Map::Sparsemax,
            other => other,
        }
    }

    /// What an entry with probability `p > 0` adds to Ω, the regulariser whose maximum the mapping finds.
    #[must_use]
    pub fn omega(self, p: f64) -> f64 {
        match self.resolve() {
            Map::Softmax | Map::EvSoftmax => p * p.ln(),
            Map::Sparsemax => 0.5 * p * (p - 1.0),
            Map::Entmax15 => (p * p.sqrt() - p) / 0.75,
            Map::Entmax(alpha) => p * ((alpha - 1.0) * p.ln()).exp_m1() / (alpha * (alpha - 1.0)),
        }
    }

    /// Whether the parameter is in range.
    fn is_valid(self) -> bool {
        !matches!(self, Map::Entmax(a) if !(1.0..f64::INFINITY).contains(&a))
    }
}

/// What became of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// A distribution was written.
    #[default]
    Ok,
    /// Every entry is `−inf`, or there is none: a row of zeros.
    Empty,
    /// A NaN or `+inf` was found: the row is filled with NaN.
    Bad,
}

impl Status {
    fn from_flags(bad: bool, empty: bool) -> Status {
        match (bad, empty) {
            (true, _) => Status::Bad,
            (false, true) => Status::Empty,
            (false, false) => Status::Ok,
        }
    }

    /// From a maximum that is NaN when any entry is.
    fn of_max(max: f32) -> Status {
        Status::from_flags(max.is_nan() || max == f32::INFINITY, max == f32::NEG_INFINITY)
    }

    /// What the entries of a row that is not `Ok` become.
    fn fill(self) -> f32 {
        if self == Status::Bad { f32::NAN } else { 0.0 }
    }

    /// τ of a row: meaningless for an empty one (0) and NaN for a bad one.
    fn tau(self, tau: f64) -> f64 {
        if self == Status::Ok { tau } else { f64::from(self.fill()) }
    }
}

/// Working memory, reused from call to call.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    floats: Vec<f32>,
    index: Vec<u32>,
    sums: Vec<write::RowSum>,
    /// How many candidates the last long row had, whose positions are in `index`, if they were listed.
    listed: Option<usize>,
    /// What the last long row was like, which the next one is likely to be too: a matter of speed alone.
    habit: long::Habit,
    /// Room for what is known of rows that go through the steps together.
    groups: Option<Box<[group::Group; quarters::GROUPS]>>,
}

impl Scratch {
    /// An empty one; it grows on first use.
    #[must_use]
    pub fn new() -> Scratch {
        Scratch::default()
    }

    /// How much memory it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        4 * (self.floats.capacity() + self.index.capacity())
            + self.sums.capacity() * std::mem::size_of::<write::RowSum>()
    }

    /// Room for `n` floats.
    fn floats(&mut self, n: usize) -> *mut f32 {
        if self.floats.len() < n {
            self.floats.resize(n, 0.0);
        }
        self.floats.as_mut_ptr()
    }

    /// Room for `n` positions.
    fn positions(&mut self, n: usize) -> *mut u32 {
        if self.index.len() < n {
            self.index.resize(n, 0);
        }
        self.index.as_mut_ptr()
    }

    /// Room for `n` floats and `n` positions.
    fn lists(&mut self, n: usize) -> (*mut f32, *mut u32) {
        (self.floats(n), self.positions(n))
    }
}

/// A forward pass: `status.len()` rows of width `d`.
#[derive(Debug)]
pub struct Forward<'a> {
    /// Scores, `rows · d`.
    pub z: &'a [f32],
    /// Width of a row.
    pub d: usize,
    /// `1/γ`, positive and finite.
    pub scale: f32,
    /// Probabilities, `rows · d`.
    pub out: &'a mut [f32],
    /// Whether the output may be written past the caches: it is part of one that they could not hold.
    pub stream: bool,
    /// τ of each row, if wanted, in the units of the mapping's formula.
    pub tau: Option<&'a mut [f64]>,
    /// What became of each row.
    pub status: &'a mut [Status],
    /// Working memory.
    pub scratch: &'a mut Scratch,
}

/// A vector–Jacobian product from probabilities `p` and an incoming gradient `v`.
///
/// The Jacobian is symmetric, so this is the Jacobian–vector product too. Entries outside
/// the support get exactly 0, whatever `v` holds there; a row of zeros gives zeros.
#[derive(Debug)]
pub struct Backward<'a> {
    /// Probabilities that the forward pass wrote, `rows · d`.
    pub p: &'a [f32],
    /// Incoming gradient, `rows · d`.
    pub v: &'a [f32],
    /// Width of a row.
    pub d: usize,
    /// `1/γ`, positive and finite.
    pub scale: f32,
    /// Gradient in the scores, `rows · d`.
    pub out: &'a mut [f32],
    /// Working memory.
    pub scratch: &'a mut Scratch,
}

/// A target that says: this row does not count.
pub const IGNORE: u32 = u32::MAX;

/// Fenchel–Young losses of class indices, with the gradient `gain · (p − y)`.
///
/// An ignored or empty row has loss 0 and gradient 0, a bad one NaN throughout.
#[derive(Debug)]
pub struct Loss<'a> {
    /// Scores, `rows · d`.
    pub z: &'a [f32],
    /// Width of a row.
    pub d: usize,
    /// `1/γ`, positive and finite.
    pub scale: f32,
    /// The true class of each row, below `d`, or [`IGNORE`].
    pub target: &'a [u32],
    /// Factor on the gradient, for instance one over the number of rows.
    pub gain: f32,
    /// Loss of each row, without the gain.
    pub loss: &'a mut [f64],
    /// Gradient in the scores, `rows · d`.
    pub grad: &'a mut [f32],
    /// As in [`Forward`].
    pub stream: bool,
    /// What became of each row.
    pub status: &'a mut [Status],
    /// Working memory.
    pub scratch: &'a mut Scratch,
}
