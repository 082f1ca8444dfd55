//! Which instance runs: detected once, or forced.

use super::{
    Backward, Forward, Gradients, IGNORE, Loss, Map, Rows, Status, Structured, Work, attention, cells, matmul,
};
use std::cell::Cell;
use std::sync::OnceLock;

/// An instruction set that the kernels are instantiated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// Plain Rust over arrays of eight floats.
    Portable,
    /// x86-64 with AVX2, FMA and BMI, eight lanes.
    Avx2,
    /// The same with AVX-512 (F, VL, BW, DQ), sixteen lanes.
    Avx512,
    /// AArch64, four lanes.
    Neon,
}

impl Level {
    /// All of them, best first.
    pub const ALL: [Level; 4] = [Level::Avx512, Level::Avx2, Level::Neon, Level::Portable];

    /// The name that `PARSIMAX_KERNEL` understands.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }

    /// Whether this machine can run it.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("bmi1")
                    && is_x86_feature_detected!("bmi2")
                    && is_x86_feature_detected!("popcnt")
            }
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                Level::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
            }
            #[cfg(target_arch = "aarch64")]
            Level::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }
}

/// The levels that this machine can run, best first.
pub fn available() -> impl Iterator<Item = Level> {
    Level::ALL.into_iter().filter(|l| l.is_available())
}

/// The level of this process: `PARSIMAX_KERNEL` if it names one that is available, else
/// the best there is. Read once.
fn default_level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| {
        let best = available().next().unwrap_or(Level::Portable);
        let Ok(name) = std::env::var("PARSIMAX_KERNEL") else {
            return best;
        };
        available().find(|l| l.name() == name).unwrap_or(best)
    })
}

thread_local! {
    static FORCED: Cell<Option<Level>> = const { Cell::new(None) };
}

/// The level that kernels called from this thread run at.
///
/// A level that was asked for but is not available shows here as the one that runs instead.
#[must_use]
pub fn active() -> Level {
    FORCED.get().unwrap_or_else(default_level)
}

/// Runs `f` with the kernels of this thread forced to `level`; if it is not available, to
/// the level that would run anyway. Work that `f` moves to other threads is not affected.
pub fn with_level<R>(level: Level, f: impl FnOnce() -> R) -> R {
    struct Restore(Option<Level>);
    impl Drop for Restore {
        fn drop(&mut self) {
            FORCED.set(self.0);
        }
    }
    let _restore = Restore(FORCED.get());
    if level.is_available() {
        FORCED.set(Some(level));
    }
    f()
}

/// Calls a function with the vector type of the active level.
macro_rules! run {
    ($module:ident::$entry:ident($($arg:expr),*)) => {
        match active() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level is active only if it is available, and the lengths were checked.
            Level::Avx2 => unsafe { super::$module::$entry::<super::avx2::Avx2>($($arg),*) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx512 => unsafe { super::$module::$entry::<super::avx512::Avx512>($($arg),*) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: as above.
            Level::Neon => unsafe { super::$module::$entry::<super::neon::Neon>($($arg),*) },
            // SAFETY: every machine is portable, and the lengths were checked.
            _ => unsafe { super::$module::$entry::<super::portable::Portable>($($arg),*) },
        }
    };
}

/// Probabilities of a block of rows.
///
/// # Panics
/// If the slices do not have the lengths that [`Forward`] states.
pub fn forward(map: Map, mut job: Forward<'_>) {
    let n = job.status.len() * job.d;
    assert!(job.z.len() == n && job.out.len() == n, "forward: z and out hold rows · d floats");
    if let Some(t) = &job.tau {
        assert!(t.len() == job.status.len(), "forward: one τ a row");
    }
    if job.d == 0 {
        job.status.fill(Status::Empty);
        if let Some(t) = job.tau {
            t.fill(0.0);
        }
        return;
    }
    run!(route::forward(map.resolve(), &mut job));
}

/// Vector–Jacobian products of a block of rows. Returns whether any row of `p` is filled with NaN, as bad rows are: what
/// is written for those says nothing.
///
/// # Panics
/// If the slices do not have the lengths that [`Backward`] states.
pub fn backward(map: Map, mut job: Backward<'_>) -> bool {
    let n = job.out.len();
    assert!(job.p.len() == n && job.v.len() == n, "backward: p, v and out are of one length");
    if n == 0 {
        return false;
    }
    assert!(job.d > 0 && n.is_multiple_of(job.d), "backward: whole rows");
    run!(backward::any(map.resolve(), &mut job))
}

/// Backward pass of α-entmax at scores `z` with the gradient in α: `dalpha[r] = <v_r, ∂p_r/∂α>`.
///
/// # Panics
/// If the slices do not have the lengths that [`Backward`] states, or α is out of range.
pub fn alpha_backward(alpha: f64, mut job: Backward<'_>, z: &[f32], dalpha: &mut [f64]) {
    let n = job.out.len();
    assert!(Map::Entmax(alpha).is_valid(), "alpha_backward: α is finite and at least 1");
    assert!(job.p.len() == n && job.v.len() == n, "backward: p, v and out are of one length");
    assert!(z.len() == n, "alpha_backward: z is of the length of p");
    assert!(dalpha.len() * job.d == n, "alpha_backward: one number a row");
    if n == 0 {
        dalpha.fill(0.0);
        return;
    }
    run!(alpha_backward::rows(alpha, &mut job, z, dalpha));
}

/// Losses and gradients of a block of rows.
///
/// # Panics
/// If the slices do not have the lengths that [`Loss`] states, a target is out of range, or
/// the mapping has no such loss (ev-softmax).
pub fn loss(map: Map, mut job: Loss<'_>) {
    let rows = job.status.len();
    let n = rows * job.d;
    assert!(map.is_valid(), "loss: α is finite and at least 1");
    assert!(map != Map::EvSoftmax, "loss: ev-softmax is not a regularised mapping");
    assert!(job.z.len() == n && job.grad.len() == n, "loss: z and grad hold rows · d floats");
    assert!(job.target.len() == rows && job.loss.len() == rows, "loss: one target a row");
    let fits = |&t: &u32| t == IGNORE || (t as usize) < job.d;
    assert!(job.target.iter().all(fits), "loss: targets are below d");
    if job.d == 0 {
        job.status.fill(Status::Empty);
        job.loss.fill(0.0);
        return;
    }
    run!(loss::rows(map.resolve(), &mut job));
}

/// Replaces the scores of a row of at least one entry by its probabilities: [`forward`] without memory for either.
///
/// # Panics
/// If the row is empty.
pub fn in_place(map: Map, x: &mut [f32], scale: f32) -> Status {
    assert!(!x.is_empty(), "in_place: at least one score");
    run!(place::forward(map.resolve(), x, scale))
}

/// Replaces the gradient `v` in the probabilities `p` of a row by `Jᵀv`: [`backward`] without memory for either.
/// `false` if the mapping needs more, and nothing was changed.
///
/// # Panics
/// If the slices are not of one length.
pub fn backward_in_place(map: Map, p: &[f32], v: &mut [f32], scale: f32) -> bool {
    assert!(p.len() == v.len(), "backward_in_place: slices of one length");
    run!(place::backward(map.resolve(), p, v, scale))
}

/// Replaces the scores of a row of at least one entry, all finite, by its probabilities under a structured mapping.
///
/// # Panics
/// If the row is empty.
pub fn structured_in_place(map: Structured, x: &mut [f32], work: &mut Work) -> Status {
    assert!(!x.is_empty(), "structured_in_place: at least one score");
    run!(structured::in_place(map, x, work))
}

/// The positive entries of a row and their places, in place of what the lists held.
pub fn support(p: &[f32], value: &mut Vec<f32>, index: &mut Vec<u32>) {
    run!(scan::positive(p, value, index));
}

/// Probabilities of a block of rows under a structured mapping.
///
/// # Panics
/// If the slices do not have the lengths that [`Rows`] states.
pub fn structured(map: Structured, job: Rows<'_>) {
    let n = job.status.len() * job.d;
    assert!(job.d > 0 && job.z.len() == n && job.out.len() == n, "structured: z and out hold rows · d floats");
    run!(structured::forward(map, job));
}

/// Vector–Jacobian products of a block of rows under a structured mapping; the Jacobian is symmetric.
///
/// # Panics
/// If the slices do not have the lengths that [`Gradients`] states.
pub fn structured_backward(map: Structured, job: Gradients<'_>) {
    let n = job.out.len();
    assert!(job.d > 0 && n.is_multiple_of(job.d), "structured_backward: whole rows");
    let fits = |x: &[f32]| x.len() == n;
    assert!(
        fits(job.p) && fits(job.v) && (job.z.is_empty() || fits(job.z)),
        "structured_backward: slices of one length"
    );
    run!(structured::backward(map, job));
}

/// One step of attention, whose caller has checked the lengths.
pub(super) fn attention(step: attention::Step<'_>) {
    run!(attention::step(step));
}

/// Lanes of the active level's vectors.
pub(super) fn lanes() -> usize {
    run!(matmul::lanes())
}

/// A product whose caller has checked the shapes and forced the level of the packed factor.
pub(super) fn multiply(a: matmul::Matrix<'_>, b: &matmul::Packed, c: matmul::Target<'_>, scratch: &mut [f32]) {
    run!(matmul::blocks(a, b, c, scratch));
}

/// The hyperbolic tangent of every number.
pub(super) fn tanh(x: &mut [f32]) {
    run!(cells::tanh_slice(x));
}

/// A step of a recurrent cell, whose caller has checked the lengths.
pub(super) fn cell_step(cell: cells::Cell, job: cells::Step<'_>) {
    run!(cells::forward(cell, job));
}

/// A backward step of a recurrent cell, whose caller has checked the lengths.
pub(super) fn cell_back(cell: cells::Cell, job: cells::Back<'_>) {
    run!(cells::backward(cell, job));
}
