//! What all separable mappings share: candidates in, threshold solved, values out.
//!
//! A separable mapping is `argmax <p, z> − γ Σ g(p_i)` or a relative of it: the probability of an
//! entry depends on its own score and one threshold. Its file gives three things — how far below the
//! maximum an entry may lie and still have mass ([`Separable::window`]), the solution on the entries
//! that pass ([`Separable::solve`]), and the diagonal of the Jacobian before centring
//! ([`Separable::weight`]) — and gets the dense row, the sparse row and both derivatives.
//!
//! The Jacobian is `J = diag(s) − ssᵀ/Σs` on the support, 0 elsewhere.

use crate::Float;
use crate::mapping::{Scratch, Support};
use crate::numeric;

/// The mathematics of one separable mapping.
pub(crate) trait Separable {
    /// Entries at `max − window` or below have probability 0; +∞ for dense mappings.
    fn window(&self) -> f64;

    /// Replaces the candidates (raw scores, at least one, the maximum among them) by their
    /// probabilities and returns τ.
    fn solve(&self, z: &mut [f64], work: &mut Vec<f64>) -> Option<f64>;

    /// `s_i = 1/(γ g''(p_i))` at `p_i > 0`.
    fn weight(&self, p: f64) -> f64;
}

/// Collects the entries less than `window` below the maximum into `scratch.a`, their positions into
/// `scratch.index`.
///
/// The gap is compared, not `z` with `max − window`: at a score of 10³⁰ the latter rounds to the
/// maximum and would leave nothing.
pub(crate) fn candidates(z: &[f64], window: f64, scratch: &mut Scratch) {
    let is_candidate = within(z, window);
    scratch.a.clear();
    scratch.index.clear();
    for (i, z) in z.iter().enumerate().filter(|(_, z)| is_candidate(**z)) {
        scratch.a.push(*z);
        scratch.index.push(i as u32);
    }
}

/// Whether a score of the row is less than `window` below the maximum. −∞ is not.
fn within<T: Float>(z: &[T], window: f64) -> impl Fn(T) -> bool + use<T> {
    let top = numeric::max(z);
    // Never 0, which a huge α rounds it to: the maximum is always a candidate.
    let window = window.max(f64::MIN_POSITIVE);
    move |z| top - z.widen() < window
}

/// The candidates' probabilities, found in `scratch.a`, as a sparse row.
pub(crate) fn gather(scratch: &Scratch, out: &mut Support) {
    out.clear();
    for (i, value) in scratch.index.iter().zip(&scratch.a).filter(|(_, p)| **p > 0.0) {
        out.index.push(*i);
        out.value.push(*value);
    }
}

/// Collects the candidates and solves for them.
fn solve_candidates(mapping: &impl Separable, z: &[f64], scratch: &mut Scratch) -> Option<f64> {
    candidates(z, mapping.window(), scratch);
    mapping.solve(&mut scratch.a, &mut scratch.b)
}

/// The dense row.
pub(crate) fn forward(mapping: &impl Separable, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Option<f64> {
    forward_within(mapping.window(), z, p, |z| mapping.solve(z, &mut scratch.b))
}

/// The dense row of a mapping whose [`candidates`] are within that window, which `solve` replaces by their
/// probabilities. The row's own place is room enough for them: a long row takes no memory.
pub(crate) fn forward_within<T: Float, R>(window: f64, z: &[T], p: &mut [T], solve: impl FnOnce(&mut [T]) -> R) -> R {
    let is_candidate = within(z, window);
    let mut n = 0;
    for z in z.iter().filter(|z| is_candidate(**z)) {
        p[n] = *z;
        n += 1;
    }
    let result = solve(&mut p[..n]);
    // Back to their positions, from the last on: nothing is overwritten before it has moved.
    for (i, z) in z.iter().enumerate().rev() {
        p[i] = if is_candidate(*z) {
            n -= 1;
            p[n]
        } else {
            T::default()
        };
    }
    result
}

/// The sparse row.
pub(crate) fn support(mapping: &impl Separable, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Option<f64> {
    let tau = solve_candidates(mapping, z, scratch);
    gather(scratch, out);
    tau
}

/// `Jv = s ⊙ (v − <s, v>/Σs)` on the entries with `p > 0`; the others get 0.
///
/// For α > 2 one weight may exceed all others by many orders, and `v − <s, v>/Σs` would cancel at
/// that entry. Measuring `v` from the heaviest entry's value makes that term an exact 0 and leaves a
/// mean of the other entries alone, with its digits.
pub(crate) fn vjp(mapping: &impl Separable, p: &[f64], v: &[f64], out: &mut [f64]) {
    let (mut heaviest, mut origin, mut total) = (0.0, 0.0, 0.0);
    for (i, p) in p.iter().enumerate().filter(|(_, p)| **p > 0.0) {
        // A subnormal p may have an infinite weight; its row of J is that of a huge finite one.
        let s = mapping.weight(*p).min(1e150);
        out[i] = s;
        total += s;
        if s > heaviest {
            (heaviest, origin) = (s, v[i]);
        }
    }
    let on_support = || p.iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(i, _)| i);
    let mean = numeric::sum(on_support().map(|i| out[i] * (v[i] - origin))) / total;
    for (i, p) in p.iter().enumerate() {
        out[i] = if *p > 0.0 { out[i] * ((v[i] - origin) - mean) } else { 0.0 };
    }
}

/// Implements [`Mapping`](crate::Mapping) for a [`Separable`] type; further methods of the trait may
/// follow the name.
macro_rules! separable_mapping {
    ($type:ty, $name:literal $(, $($more:tt)*)?) => {
        impl $crate::Mapping for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut $crate::Scratch) -> $crate::Result<Option<f64>> {
                Ok($crate::separable::forward(self, z, p, scratch))
            }
            fn vjp_row(&self, _z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], _scratch: &mut $crate::Scratch) -> $crate::Result<()> {
                $crate::separable::vjp(self, p, v, out);
                Ok(())
            }
            fn replace_row(&self, z: &mut [f64], scratch: &mut $crate::Scratch) -> bool {
                $crate::separable::Separable::solve(self, z, &mut scratch.b);
                true
            }
            fn reads_scores(&self) -> bool {
                false
            }
            fn has_neighbours(&self) -> bool {
                false
            }
            fn support_row(&self, z: &[f64], out: &mut $crate::Support, scratch: &mut $crate::Scratch) -> $crate::Result<Option<f64>> {
                Ok($crate::separable::support(self, z, out, scratch))
            }
            fn support_vjp_row(&self, _index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
                $crate::separable::vjp(self, p, v, out);
                Some(())
            }
            fn regularized(&self) -> Option<&dyn $crate::Regularized> {
                Some(self)
            }
            $($($more)*)?
        }
    };
}
pub(crate) use separable_mapping;

/// Implements [`Mapping`](crate::Mapping) for a mapping that has the candidates of a separable one but a
/// Jacobian of its own: the type has `gamma`, the window of its candidates, `solve(z) → τ`, which replaces
/// them by their probabilities, `vjp(p, v, out)`, and the gradient in its parameter under the name given. Further
/// methods of the trait may follow.
macro_rules! normed_mapping {
    ($type:ty, $name:literal, $gradient:ident $(, $($more:tt)*)?) => {
        impl $crate::Mapping for $type {
            fn name(&self) -> &'static str {
                $name
            }
            fn forward_row(
                &self,
                z: &[f64],
                p: &mut [f64],
                _scratch: &mut $crate::Scratch,
            ) -> $crate::Result<Option<f64>> {
                Ok(Some($crate::separable::forward_within(self.gamma, z, p, |z| self.solve(z))))
            }
            fn vjp_row(
                &self,
                _z: &[f64],
                p: &[f64],
                v: &[f64],
                out: &mut [f64],
                _scratch: &mut $crate::Scratch,
            ) -> $crate::Result<()> {
                self.vjp(p, v, out);
                Ok(())
            }
            fn replace_row(&self, z: &mut [f64], _scratch: &mut $crate::Scratch) -> bool {
                self.solve(z);
                true
            }
            fn reads_scores(&self) -> bool {
                false
            }
            fn has_neighbours(&self) -> bool {
                false
            }
            fn parameter_vjp_row(
                &self,
                _z: &[f64],
                p: &[f64],
                v: &[f64],
                _scratch: &mut $crate::Scratch,
            ) -> Option<f64> {
                Some(self.$gradient(|| p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(p, v)| (*p, *v))))
            }
            fn parameter_vjp_by(&self, row: &$crate::mapping::LongRow<'_>) -> Option<f64> {
                Some(self.$gradient(|| row.on_support()))
            }
            fn support_row(
                &self,
                z: &[f64],
                out: &mut $crate::Support,
                scratch: &mut $crate::Scratch,
            ) -> $crate::Result<Option<f64>> {
                $crate::separable::candidates(z, self.gamma, scratch);
                let tau = self.solve(&mut scratch.a);
                $crate::separable::gather(scratch, out);
                Ok(Some(tau))
            }
            fn support_vjp_row(&self, _index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
                self.vjp(p, v, out);
                Some(())
            }
            fn regularized(&self) -> Option<&dyn $crate::Regularized> {
                Some(self)
            }
            $($($more)*)?
        }
    };
}
pub(crate) use normed_mapping;

#[cfg(test)]
mod tests {
    use super::forward_within;
    use crate::{Entmax, Entmax15, Sparsemax, trial};

    #[test]
    fn rows_of_every_magnitude_keep_their_maximum() {
        trial::assert_survives(&Sparsemax::new());
        trial::assert_survives(&Entmax15::new());
        trial::assert_survives(&Entmax::new(1.3).unwrap());
        trial::assert_survives(&Entmax::new(4.0).unwrap());
    }

    #[test]
    fn candidates_find_their_way_back() {
        let mut rng = fastrand::Rng::with_seed(8);
        for round in 0..400 {
            let d = 1 + round % 23;
            let z: Vec<f64> =
                (0..d).map(|_| if rng.bool() { f64::NEG_INFINITY } else { rng.f64() * 2.0 }).chain([1.9]).collect();
            let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let want: Vec<f64> = z.iter().map(|z| if top - z < 1.0 { z + 1.0 } else { 0.0 }).collect();
            let mut p = vec![f64::NAN; z.len()];
            forward_within(1.0, &z, &mut p, |z| z.iter_mut().for_each(|z| *z += 1.0));
            assert_eq!(p, want, "{z:?}");
        }
    }
}
