//! Solvers for the threshold τ that the sparse mappings share.
//!
//! Every one of them finds the root of a monotone function of one unknown. Where the function is
//! convex, Newton's method started on the proper side never oversteps and has no slow case: if
//! `f` is the value and `g` the slope, convexity gives `f_new/f_old + g_new/g_old ≤ 1`, so the
//! product `f·g` falls at least fourfold per step. From `f·g ≤ d` down to the rounding error of
//! `f` that is at most `½·log₂(d/ε)` steps, about 36 for a million entries in `f64`; two to six are
//! usual.

pub(crate) mod anchored;
pub(crate) mod capped;
pub(crate) mod exponential;
pub(crate) mod linear;
pub(crate) mod mean;
pub(crate) mod norm;
pub(crate) mod quadratic;
pub(crate) mod squared_norm;
pub(crate) mod tsallis;

/// A bound on Newton steps that no input reaches (see the module's argument); it only turns an
/// unforeseen cycle of rounding errors into an end.
pub(crate) const MAX_STEPS: usize = 128;
