//! The mapping of any differentiable regulariser (Niculae & Blondel 2017, §3.1).
//!
//! **Problem.** `$\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\,\Omega(p)$` for a convex Ω that
//! the user gives with its gradient and Hessian.
//!
//! **Algorithm and cost.** FISTA (Beck & Teboulle 2009) on $\Omega(p) - \langle p, z/\gamma\rangle$ with
//! projection onto the simplex: expected $O(d)$ and two gradients of Ω per iteration. The step is found
//! by backtracking, momentum restarts when it points uphill (O'Donoghue & Candès 2015). Points at which
//! Ω is evaluated are on the simplex, always. It ends when the Frank–Wolfe gap
//! $\langle g, p\rangle - \min_i g_i$, $g = \nabla\Omega(p) - z/\gamma$, is at most the tolerance: by
//! convexity the objective is then within the tolerance of its optimum, whatever Ω.
//!
//! **Jacobian.** With $H = \gamma\nabla^2\Omega(p)$ on the support, $h = H^{-1}1$,
//! $J = H^{-1} - hh^\top/\sum h$: symmetric. J needs H only along directions that sum to 0, where it may
//! be positive definite although H is singular (any norm). So the system is solved there: with the
//! entry k of least curvature as $-\sum_{i \ne k}$ of the others, $R_{ij} = H_{ij} - H_{ik} - H_{kj} + H_{kk}$
//! and $J v = (R^{-1}u, -\sum R^{-1}u)$, $u_i = v_i - v_k$. One Cholesky factor, $O(|S|^3)$.
//!
//! **Edge cases.** $\nabla\Omega$ must be finite on the whole simplex, zeros included; where it is not, the
//! gap never closes and the row is reported as not converged. The same holds for an Ω so badly scaled
//! that the tolerance is below the rounding error of its gradient. Iterations grow with the root of
//! the ratio of curvatures on the support: tens to hundreds are usual, and an Ω that is very steep at
//! tiny probabilities ($\lVert p\rVert_{1.2}^2$, say) may need the limit raised.

use crate::error::{check, check_gamma};
use crate::mapping::Scratch;
use crate::numeric;
use crate::threshold::linear;
use crate::{Error, Mapping, Regularized, Result};

/// A convex function on the simplex, with its derivatives.
pub trait Omega: Send + Sync {
    /// Ω(p).
    fn value(&self, p: &[f64]) -> f64;

    /// Writes ∇Ω(p).
    fn gradient(&self, p: &[f64], out: &mut [f64]);

    /// Writes the rows and columns of ∇²Ω(p) that `support` names, row-major: `out` has
    /// `support.len()²` entries.
    fn hessian(&self, p: &[f64], support: &[usize], out: &mut [f64]);
}

/// The mapping of a user's Ω.
///
/// ```
/// use parsimax::{Custom, MappingExt, Omega};
/// /// ½ Σ a p²: entries with a large `a` are dear.
/// struct Weighted(Vec<f64>);
/// impl Omega for Weighted {
///     fn value(&self, p: &[f64]) -> f64 {
///         0.5 * p.iter().zip(&self.0).map(|(p, a)| a * p * p).sum::<f64>()
///     }
///     fn gradient(&self, p: &[f64], out: &mut [f64]) {
///         for ((out, p), a) in out.iter_mut().zip(p).zip(&self.0) {
///             *out = a * p;
///         }
///     }
///     fn hessian(&self, _p: &[f64], support: &[usize], out: &mut [f64]) {
///         out.fill(0.0);
///         for (k, i) in support.iter().enumerate() {
///             out[k * support.len() + k] = self.0[*i];
///         }
///     }
/// }
/// // a₁p₁ − z₁ = a₂p₂ − z₂ with z = 0: p ∝ 1/a = (1, 1/3).
/// let p = Custom::new(Weighted(vec![1.0, 3.0])).apply(&[0.0f64, 0.0])?;
/// assert!((p[0] - 0.75).abs() < 1e-9 && (p[1] - 0.25).abs() < 1e-9);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Custom<O> {
    omega: O,
    gamma: f64,
    tolerance: f64,
    max_iterations: usize,
}

impl<O: Omega> Custom<O> {
    /// The mapping of Ω at strength 1, tolerance 10⁻¹² and at most 10,000 iterations.
    pub fn new(omega: O) -> Self {
        Self { omega, gamma: 1.0, tolerance: 1e-12, max_iterations: 10_000 }
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("custom", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The same with another bound, finite and > 0, on the Frank–Wolfe gap, in units of scores over γ.
    pub fn with_tolerance(self, tolerance: f64) -> Result<Self> {
        let ok = tolerance > 0.0 && tolerance.is_finite();
        check(ok, "custom", "tolerance", "a finite number > 0", tolerance)?;
        Ok(Self { tolerance, ..self })
    }

    /// The same with another limit on iterations, at least 1.
    pub fn with_max_iterations(self, max_iterations: usize) -> Result<Self> {
        check(max_iterations > 0, "custom", "max_iterations", "at least 1", max_iterations as f64)?;
        Ok(Self { max_iterations, ..self })
    }

    /// Ω itself.
    #[must_use]
    pub fn regularizer(&self) -> &O {
        &self.omega
    }

    /// FISTA from `p`, a point of the simplex, at the scores `x`. `memory` holds four rows.
    fn minimise(&self, x: &[f64], p: &mut [f64], memory: &mut [f64]) -> Result<()> {
        let d = x.len();
        let (y, rest) = memory.split_at_mut(d);
        let (slope, rest) = rest.split_at_mut(d);
        let (next, next_slope) = rest.split_at_mut(d);
        let (mut step, mut momentum) = (1.0, 1.0f64);
        y.copy_from_slice(p);
        self.omega.gradient(p, slope);
        let mut residual = gap(x, p, slope);
        for iteration in 0..self.max_iterations {
            if residual <= self.tolerance {
                return Ok(());
            }
            // `slope` is ∇Ω(y). Full backtracking: the step may grow again, and halves until it fits.
            step = f64::min(step * 1.1, 1e12);
            loop {
                for i in 0..d {
                    next[i] = y[i] + step * (x[i] - slope[i]);
                }
                linear::project(next);
                self.omega.gradient(next, next_slope);
                if fits(y, slope, next, next_slope, step) || step < 1e-15 {
                    break;
                }
                step *= 0.5;
            }
            let next_residual = gap(x, next, next_slope);
            if !next_residual.is_finite() {
                // Ω has no gradient there. The iterate before is the last good one.
                return Err(not_converged(iteration, next_residual));
            }
            residual = next_residual;
            let uphill: f64 = (0..d).map(|i| (y[i] - next[i]) * (next[i] - p[i])).sum();
            let weight = if uphill > 0.0 {
                momentum = 1.0;
                0.0
            } else {
                let before = momentum;
                momentum = 0.5 * (1.0 + (1.0 + 4.0 * before * before).sqrt());
                (before - 1.0) / momentum
            };
            for i in 0..d {
                y[i] = next[i] + weight * (next[i] - p[i]);
            }
            p.copy_from_slice(next);
            if weight == 0.0 {
                slope.copy_from_slice(next_slope);
            } else {
                if y.iter().any(|y| *y < 0.0) {
                    linear::project(y);
                }
                self.omega.gradient(y, slope);
            }
        }
        if residual <= self.tolerance {
            return Ok(());
        }
        Err(not_converged(self.max_iterations, residual))
    }
}

/// The row is filled in by whoever knows it.
fn not_converged(iterations: usize, residual: f64) -> Error {
    Error::NotConverged { operation: "custom", row: 0, iterations, residual }
}

/// The Frank–Wolfe gap of `Ω(p) − <p, x>`, an upper bound on its distance to the optimum.
fn gap(x: &[f64], p: &[f64], slope: &[f64]) -> f64 {
    let mut lowest = f64::INFINITY;
    for g in slope.iter().zip(x).map(|(g, x)| g - x) {
        if g.is_nan() {
            return f64::INFINITY;
        }
        lowest = g.min(lowest);
    }
    numeric::sum((0..x.len()).filter(|i| p[*i] > 0.0).map(|i| p[i] * ((slope[i] - x[i]) - lowest)))
}

/// Whether `Ω(next) ≤ Ω(y) + <∇Ω(y), Δ> + ‖Δ‖²/(2·step)`, in a form that works near the optimum too.
///
/// There the values of Ω agree to all digits while `‖Δ‖²` is far smaller still. For a convex Ω the
/// left side exceeds the linear part by at most `<∇Ω(next) − ∇Ω(y), Δ>`, which has its digits.
fn fits(y: &[f64], slope: &[f64], next: &[f64], next_slope: &[f64], step: f64) -> bool {
    let (mut bend, mut square, mut rounding) = (0.0, 0.0, 0.0);
    for i in 0..y.len() {
        let delta = next[i] - y[i];
        bend += (next_slope[i] - slope[i]) * delta;
        square += delta * delta;
        rounding += (next_slope[i].abs() + slope[i].abs()) * delta.abs();
    }
    bend <= 0.5 * square / step + 4.0 * f64::EPSILON * rounding
}

impl<O: Omega> Mapping for Custom<O> {
    fn name(&self) -> &'static str {
        "custom"
    }

    /// # Errors
    /// If the tolerance was not reached within the limit; `p` is then the last iterate.
    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        let (top, d) = (numeric::max(z), z.len());
        let Scratch { a, .. } = scratch;
        a.clear();
        a.extend(z.iter().map(|z| ((z - top) / self.gamma).max(-f64::MAX)));
        a.resize(5 * d, 0.0);
        let (x, memory) = a.split_at_mut(d);
        // The projection of the scores is feasible and has already dropped what is hopeless.
        p.copy_from_slice(x);
        linear::project(p);
        self.minimise(x, p, memory)?;
        let slope = &mut memory[..d];
        self.omega.gradient(p, slope);
        let shifted = numeric::sum((0..d).filter(|i| p[*i] > 0.0).map(|i| p[i] * (x[i] - slope[i])));
        Ok(Some(top / self.gamma + shifted))
    }

    /// # Errors
    /// If ∇²Ω(p) is not positive definite along the support: then Π has no derivative there.
    fn vjp_row(&self, _z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        out.fill(0.0);
        let mut support: Vec<usize> = (0..p.len()).filter(|i| p[*i] > 0.0).collect();
        let n = support.len();
        let Scratch { a, b, .. } = scratch;
        a.clear();
        a.resize(n * n, 0.0);
        self.omega.hessian(p, &support, a);
        let Some(k) = (0..n).min_by(|i, j| a[i * n + i].total_cmp(&a[j * n + j])) else { return Ok(()) };
        let others = || (0..n).filter(|i| *i != k);
        b.clear();
        b.extend(others().flat_map(|i| others().map(move |j| (i, j))).map(|(i, j)| {
            // Sums of pairs: the result is symmetric to the last digit.
            (a[i * n + j] + a[k * n + k]) - (a[i * n + k] + a[k * n + j])
        }));
        if !cholesky(b, n - 1) {
            let what = "the Hessian of Ω is not positive definite along the support, so there is no derivative";
            return Err(Error::Unsupported { operation: "custom", what });
        }
        let k = support.remove(k);
        a.clear();
        a.extend(support.iter().map(|i| (v[*i] - v[k]) / self.gamma));
        solve(b, a);
        for (i, moved) in support.iter().zip(a.iter()) {
            out[*i] = *moved;
        }
        out[k] = -numeric::sum(a.iter().copied());
        Ok(())
    }

    fn regularized(&self) -> Option<&dyn Regularized> {
        Some(self)
    }
}

impl<O: Omega> Regularized for Custom<O> {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    fn omega(&self, p: &[f64]) -> f64 {
        self.omega.value(p)
    }
}

/// Replaces the lower triangle of a symmetric matrix by its Cholesky factor; `false` if a pivot is not
/// positive beyond rounding.
fn cholesky(a: &mut [f64], n: usize) -> bool {
    for i in 0..n {
        let (above, row) = a.split_at_mut(i * n);
        let diagonal = row[i];
        for j in 0..i {
            let other = &above[j * n..j * n + j + 1];
            let dot: f64 = row[..j].iter().zip(other).map(|(a, b)| a * b).sum();
            row[j] = (row[j] - dot) / other[j];
        }
        let pivot = diagonal - row[..i].iter().map(|l| l * l).sum::<f64>();
        // NaN and +∞ are no pivots either.
        if !(pivot > 4.0 * n as f64 * f64::EPSILON * diagonal && pivot.is_finite()) {
            return false;
        }
        row[i] = pivot.sqrt();
    }
    true
}

/// Replaces `x` by `A⁻¹x`, given the Cholesky factor of `A`.
fn solve(factor: &[f64], x: &mut [f64]) {
    let n = x.len();
    for i in 0..n {
        let dot: f64 = factor[i * n..i * n + i].iter().zip(&*x).map(|(l, x)| l * x).sum();
        x[i] = (x[i] - dot) / factor[i * n + i];
    }
    for i in (0..n).rev() {
        x[i] /= factor[i * n + i];
        for j in 0..i {
            x[j] -= factor[i * n + j] * x[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entmax15, Normmax, Sparsemax, SqPnormMax, trial};

    /// ½ pᵀQp with the matrix `Q = I + ½(shifted identity and its transpose)`, scaled.
    struct Quadratic {
        scale: f64,
        coupling: f64,
    }

    impl Quadratic {
        fn entry(&self, i: usize, j: usize) -> f64 {
            self.scale
                * if i == j {
                    1.0
                } else if i.abs_diff(j) == 1 {
                    self.coupling
                } else {
                    0.0
                }
        }
    }

    impl Omega for Quadratic {
        fn value(&self, p: &[f64]) -> f64 {
            let mut slope = vec![0.0; p.len()];
            self.gradient(p, &mut slope);
            0.5 * numeric::dot(p, &slope)
        }
        fn gradient(&self, p: &[f64], out: &mut [f64]) {
            for (i, out) in out.iter_mut().enumerate() {
                let near = i.saturating_sub(1)..(i + 2).min(p.len());
                *out = near.map(|j| self.entry(i, j) * p[j]).sum();
            }
        }
        fn hessian(&self, _p: &[f64], support: &[usize], out: &mut [f64]) {
            let cells = support.iter().flat_map(|i| support.iter().map(move |j| (*i, *j)));
            for (out, (i, j)) in out.iter_mut().zip(cells) {
                *out = self.entry(i, j);
            }
        }
    }

    /// `‖p‖_a` to the power `k`, over `k`: a norm for k = 1, half its square for k = 2, and, up to a
    /// factor, the Tsallis entropy for k = a.
    struct NormPower {
        a: f64,
        k: f64,
        scale: f64,
    }

    impl Omega for NormPower {
        fn value(&self, p: &[f64]) -> f64 {
            self.scale * numeric::norm(p, self.a).powf(self.k) / self.k
        }
        fn gradient(&self, p: &[f64], out: &mut [f64]) {
            let n = numeric::norm(p, self.a);
            for (out, p) in out.iter_mut().zip(p) {
                *out = self.scale * n.powf(self.k - self.a) * p.powf(self.a - 1.0);
            }
        }
        fn hessian(&self, p: &[f64], support: &[usize], out: &mut [f64]) {
            let (n, m) = (numeric::norm(p, self.a), self.a - 1.0);
            for (r, i) in support.iter().enumerate() {
                for (c, j) in support.iter().enumerate() {
                    let outer = (self.k - self.a) * n.powf(self.k - 2.0 * self.a) * (p[*i] * p[*j]).powf(m);
                    let own = if i == j { m * n.powf(self.k - self.a) * p[*i].powf(m - 1.0) } else { 0.0 };
                    out[r * support.len() + c] = self.scale * (outer + own);
                }
            }
        }
    }

    /// Forward and derivative agree with the closed form.
    fn assert_same(custom: &impl Mapping, closed: &impl Mapping, size: f64, tolerance: f64) {
        let mut rng = fastrand::Rng::with_seed(71);
        for d in [1, 2, 5, 20] {
            for _ in 0..25 {
                let (z, v) = (trial::row(&mut rng, d, size), trial::row(&mut rng, d, 1.0));
                let ((p, tau), (q, closed_tau)) = (trial::forward(custom, &z), trial::forward(closed, &z));
                trial::assert_close(&p, &q, tolerance);
                assert!((tau.unwrap() - closed_tau.unwrap()).abs() < tolerance);
                // Away from a kink, where the supports differ or nearly do.
                if q.iter().all(|q| *q == 0.0 || *q > 1e-2) {
                    let slack = tolerance * 1e3 / size;
                    trial::assert_close(&trial::vjp(custom, &z, &v), &trial::vjp(closed, &z, &v), slack);
                }
                let (a, b) = (custom.regularized().unwrap(), closed.regularized().unwrap());
                assert!((a.max_row(&z, &p) - b.max_row(&z, &q)).abs() < 1e-11);
            }
        }
    }

    #[test]
    fn half_the_square_is_sparsemax() {
        for (scale, gamma) in [(1.0, 1.0), (1.0, 0.2), (1e-3, 1e3), (500.0, 2e-3)] {
            let custom = Custom::new(Quadratic { scale, coupling: 0.0 }).with_gamma(gamma).unwrap();
            let custom = custom.with_tolerance(1e-12 * scale).unwrap();
            assert_same_scores(&custom, scale * gamma);
        }
    }

    fn assert_same_scores(custom: &Custom<Quadratic>, strength: f64) {
        let closed = Sparsemax::new().with_gamma(strength).unwrap();
        let mut rng = fastrand::Rng::with_seed(72);
        for d in [1, 2, 5, 40] {
            let (z, v) = (trial::row(&mut rng, d, strength), trial::row(&mut rng, d, 1.0));
            trial::assert_close(&trial::forward(custom, &z).0, &trial::forward(&closed, &z).0, 1e-10);
            let slack = 1e-12 / strength;
            trial::assert_close(&trial::vjp(custom, &z, &v), &trial::vjp(&closed, &z, &v), slack);
        }
    }

    #[test]
    fn powers_of_norms_have_closed_forms() {
        let squared = Custom::new(NormPower { a: 1.5, k: 2.0, scale: 1.0 });
        assert_same(&squared, &SqPnormMax::new(1.5).unwrap(), 1.0, 1e-8);
        // A norm, whose Hessian is singular.
        let norm = Custom::new(NormPower { a: 2.0, k: 1.0, scale: 1.0 }).with_gamma(0.7).unwrap();
        assert_same(&norm, &Normmax::new(2.0).unwrap().with_gamma(0.7).unwrap(), 0.5, 1e-8);
        // (Σp^{3/2} − 1)/(3/4) but for its constant.
        let tsallis = Custom::new(NormPower { a: 1.5, k: 1.5, scale: 2.0 });
        let mut rng = fastrand::Rng::with_seed(73);
        for d in [1, 2, 5, 20] {
            let z = trial::row(&mut rng, d, 1.0);
            trial::assert_close(&trial::forward(&tsallis, &z).0, &trial::forward(&Entmax15::new(), &z).0, 1e-8);
        }
    }

    #[test]
    fn coupled_entries_are_optimal_and_differentiable() {
        let mut rng = fastrand::Rng::with_seed(74);
        let custom = Custom::new(Quadratic { scale: 1.0, coupling: 0.4 }).with_gamma(0.5).unwrap();
        trial::assert_derivatives(&custom, 0.5, &mut rng);
        trial::assert_distribution(&custom, &trial::row(&mut rng, 30, 1.0));
    }

    #[test]
    fn a_limit_that_is_hit_is_reported_and_leaves_the_last_iterate() {
        let custom = Custom::new(NormPower { a: 1.5, k: 2.0, scale: 1.0 }).with_max_iterations(2).unwrap();
        let mut p = [0.0; 3];
        let error = custom.forward_row(&[0.3, 0.1, 0.0], &mut p, &mut Scratch::new()).unwrap_err();
        assert!(matches!(error, Error::NotConverged { iterations: 2, residual, .. } if residual > 1e-12), "{error}");
        assert!((p.iter().sum::<f64>() - 1.0).abs() < 1e-15 && p.iter().all(|p| *p >= 0.0));
    }

    #[test]
    fn a_flat_omega_has_no_derivative_and_a_wild_one_no_answer() {
        let flat = Custom::new(Quadratic { scale: 0.0, coupling: 0.0 });
        let mut out = [1.0; 2];
        let error = flat.vjp_row(&[0.0; 2], &[0.5; 2], &[1.0, 2.0], &mut out, &mut Scratch::new());
        assert!(matches!(error, Err(Error::Unsupported { .. })) && out == [0.0; 2]);
        let wild = Custom::new(Quadratic { scale: f64::NAN, coupling: 0.0 }).with_max_iterations(20).unwrap();
        let error = wild.forward_row(&[0.0; 2], &mut out, &mut Scratch::new());
        assert!(matches!(error, Err(Error::NotConverged { .. })));
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        trial::assert_survives(&Custom::new(Quadratic { scale: 1.0, coupling: 0.0 }));
        let build = || Custom::new(Quadratic { scale: 1.0, coupling: 0.0 });
        assert!(build().with_gamma(0.0).is_err() && build().with_tolerance(0.0).is_err());
        assert!(build().with_tolerance(f64::NAN).is_err() && build().with_max_iterations(0).is_err());
    }
}
