//! Normmax: a norm as the regulariser. As α grows the answer tends to a uniform distribution over a
//! chosen few (Blondel, Martins & Niculae 2020).
//!
//! **Problem.** $\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\lVert p\rVert_\alpha$,
//! $\alpha > 1$.
//!
//! **Closed form.** With $m = \alpha - 1$ and $N = \lVert p\rVert_\alpha$ the stationarity condition is
//! $(p_i/N)^m = z_i/\gamma - \tau$ on the support, so $\sum_i [z_i/\gamma - \tau]_+^{\alpha/m} = 1$ and
//! `$p \propto [z/\gamma - \tau]_+^{1/m}$`.
//!
//! **Algorithm and cost.** $O(d)$. α = 2: τ in closed form on the support. α < 2: Newton in an
//! unknown that keeps its digits as α → 1. α > 2: anchored at the smallest supported entry.
//!
//! **Jacobian.** A norm is linear along rays: its Hessian
//! $\frac{m}{N}(\mathrm{diag}(r^{m-1}) - r^m (r^m)^\top)$, $r = p/N$, is singular at $p$ itself and has
//! no inverse to put into the usual rule. On the simplex it is positive definite all the same. Solving
//! `$\gamma H\,dp = dz - d\tau$` with $\sum dp = 0$: multiplying by $r$ gives $d\tau = \langle p, dz\rangle$,
//! and what is left is
//! `$$Jv = \frac{N}{\gamma m}\left(s \odot w - p\,\langle s, w\rangle\right),\quad
//! w = v - \langle p, v\rangle,\; s_i = (p_i/N)^{1-m},$$`
//! that is `$J = \frac{N}{\gamma m}(I - p1^\top)\,\mathrm{diag}(s)\,(I - 1p^\top)$`: symmetric, $O(|S|)$,
//! from $p$ alone.
//!
//! **Gradient in α.** On the fixed support $\partial p/\partial\alpha = -\gamma J c$ with
//! `$c_i = r_i^m\,(\log r_i - \frac{m}{1+m}\sum_j r_j^\alpha \log r_j)$`.
//!
//! **Edge cases.** An entry γ or more below the maximum is 0. Ties share equally. For α > 2 the slope
//! of an entry is unbounded as its probability tends to 0; weights beyond 10¹⁵⁰ are taken as that.

use crate::error::{check, check_gamma};
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::Visit;
use crate::numeric;
use crate::registry::Entry;
use crate::separable::{self, normed_mapping};
use crate::single::{Buffers, Kernel, Single};
use crate::threshold::norm;
use crate::{Float, Regularized, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "normmax",
    omega: "‖p‖_α, α > 1",
    sparsity: "zero from γ below the maximum on",
    cost: "O(d)",
    reference: "Blondel, Martins & Niculae 2020",
    takes: &["alpha", "gamma"],
    build: |o| Ok(Box::new(Normmax::new(o.alpha.unwrap_or(2.0))?.with_gamma(o.gamma())?)),
};

/// Normmax with exponent α and strength γ.
///
/// ```
/// use parsimax::{MappingExt, Normmax};
/// // α = 2: (0.8 − τ)² + (0.6 − τ)² = 1 at τ = 0, which the third score does not exceed: p = (0.8, 0.6)/1.4.
/// let p = Normmax::new(2.0)?.apply(&[0.8f64, 0.6, 0.0])?;
/// assert!((p[0] - 4.0 / 7.0).abs() < 1e-15 && (p[1] - 3.0 / 7.0).abs() < 1e-15);
/// assert!(p[2] < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normmax {
    alpha: f64,
    gamma: f64,
}

impl Normmax {
    /// Normmax of strength 1; α finite and > 1.
    pub fn new(alpha: f64) -> Result<Self> {
        check(alpha > 1.0 && alpha.is_finite(), "normmax", "alpha", "a finite number > 1", alpha)?;
        Ok(Self { alpha, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("normmax", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The exponent α.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// `m = α − 1`.
    fn m(&self) -> f64 {
        self.alpha - 1.0
    }

    /// Replaces the candidates by their probabilities and returns τ.
    fn solve(&self, z: &mut [f64]) -> f64 {
        norm::solve(z, self.alpha, self.gamma)
    }

    /// `s` at `r = p/N`.
    fn weight(&self, r: f64) -> f64 {
        r.powf(1.0 - self.m()).min(1e150)
    }

    fn vjp<T: Float>(&self, p: &[T], v: &[T], out: &mut [T]) {
        let n = numeric::norm(p, self.alpha);
        let scale = n / (self.gamma * self.m());
        let pairs = || p.iter().zip(v).map(|(p, v)| (p.widen(), v.widen()));
        let on_support = || pairs().filter(|(p, _)| *p > 0.0);
        // The sum is 1, unless p was rounded to a narrower type.
        let total = numeric::sum(on_support().map(|(p, _)| p));
        let centre = numeric::sum(on_support().map(|(p, v)| p * v)) / total;
        let moved = |p: f64, v: f64| self.weight(p / n) * (v - centre);
        let along = numeric::sum(on_support().map(|(p, v)| moved(p, v))) / total;
        for (out, (p, v)) in out.iter_mut().zip(pairs()) {
            *out = T::narrow(if p > 0.0 { scale * (moved(p, v) - p * along) } else { 0.0 });
        }
    }

    /// `<v, ∂p/∂α>`; both factors of `(I − 1pᵀ)` act on the two vectors, so one sum is left.
    fn gradient_in_alpha<I: Iterator<Item = (f64, f64)>>(&self, pairs: impl Fn() -> I) -> f64 {
        let m = self.m();
        let n = numeric::norm_by(&|visit| pairs().for_each(|(p, _)| visit(p)), self.alpha);
        let on_support = || pairs().map(|(p, v)| (p / n, v));
        let mean_log = numeric::sum(on_support().map(|(r, _)| r.powf(self.alpha) * r.ln()));
        let c = |r: f64| r.powf(m) * (r.ln() - m / (1.0 + m) * mean_log);
        let total = numeric::sum(on_support().map(|(r, _)| r));
        let v_centre = numeric::sum(on_support().map(|(r, v)| r * v)) / total;
        let c_centre = numeric::sum(on_support().map(|(r, _)| r * c(r))) / total;
        -n / m * numeric::sum(on_support().map(|(r, v)| self.weight(r) * (v - v_centre) * (c(r) - c_centre)))
    }
}

normed_mapping! {
    Normmax,
    "normmax",
    gradient_in_alpha,
    fn single(&self) -> Option<&dyn Single> {
        Some(self)
    }
    fn form(&self) -> Option<Form> {
        Some(Form::Normmax { alpha: self.alpha, gamma: self.gamma })
    }
}

impl Normmax {
    /// The kernel of the mapping whose probabilities are the powers of those of normmax.
    fn inner(&self) -> Option<Kernel> {
        let delta = self.m() / self.alpha;
        Kernel::new(Map::Entmax(1.0 + delta), self.gamma * delta)
    }

    /// From the powers to the probabilities.
    fn take_roots(&self, p: &mut [f32]) {
        let root = |v: f32| if self.alpha == 2.0 { v.sqrt() } else { f64::from(v).powf(1.0 / self.alpha) as f32 };
        p.iter_mut().filter(|v| **v > 0.0).for_each(|v| *v = root(*v));
        let total = numeric::sum(p.iter().map(|p| p.widen()));
        p.iter_mut().for_each(|p| *p = (p.widen() / total) as f32);
    }
}

impl Single for Normmax {
    /// `p ∝ v^{1/α}`, where v is the (2 − 1/α)-entmax of strength γ(α−1)/α. Beyond α = 2 the power is a root, which
    /// magnifies the rounding of its base beyond what f32 can hide: there everything between the scores, which f32
    /// holds as they are, and the roots is in f64.
    fn forward(&self, z: &[f32], p: &mut [f32], buffers: &mut Buffers) -> bool {
        if self.alpha > 2.0 {
            separable::forward_within(self.gamma, z, p, |z| norm::steep(z, self.alpha, self.gamma));
            return true;
        }
        let Some(kernel) = self.inner() else { return false };
        kernel.forward(z, p, buffers);
        self.take_roots(p);
        true
    }
    fn in_place(&self, x: &mut [f32]) -> bool {
        if self.alpha > 2.0 {
            norm::steep(x, self.alpha, self.gamma);
            return true;
        }
        let Some(kernel) = self.inner() else { return false };
        kernel.in_place(x);
        self.take_roots(x);
        true
    }
    fn vjp(&self, _z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]) {
        self.vjp(p, v, out);
    }
}

impl Regularized for Normmax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ‖p‖_α.
    fn omega(&self, p: &[f64]) -> f64 {
        numeric::norm(p, self.alpha)
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        numeric::norm_by(each, self.alpha)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Softmax, trial};

    const ALPHAS: [f64; 9] = [1.0001, 1.05, 1.5, 2.0, 2.0001, 3.0, 10.0, 100.0, 1000.0];

    #[test]
    fn stationarity_holds_on_and_off_the_support() {
        let mut rng = fastrand::Rng::with_seed(21);
        for alpha in ALPHAS {
            for gamma in [0.3, 1.0, 7.0] {
                let mapping = Normmax::new(alpha).unwrap().with_gamma(gamma).unwrap();
                for _ in 0..50 {
                    let z = trial::row(&mut rng, 20, gamma);
                    let (p, tau) = trial::forward(&mapping, &z);
                    let (m, tau) = (alpha - 1.0, tau.unwrap());
                    let n = numeric::norm(&p, alpha);
                    for (z, p) in z.iter().zip(&p) {
                        let base = z / gamma - tau;
                        let slack = base - (p / n).powf(m);
                        // The power 1/m of a positive base may lie beneath the normal numbers; at a large
                        // α the power m magnifies the rounding of p.
                        let tiny = slack < 1e-13 || base.powf(1.0 / m) < 1e-290;
                        let rounding = 1e-13 + 1e-15 * m;
                        assert!(if *p > 1e-290 { slack.abs() < rounding } else { tiny }, "{alpha} {slack:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_large_alpha_is_uniform_over_the_support_and_a_small_one_softmax() {
        let p = trial::forward(&Normmax::new(1e12).unwrap(), &[0.3, 0.1, 0.2, -2.0]).0;
        trial::assert_close(&p, &[1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.0], 1e-10);
        let z = [0.4, -1.0, 0.3, 1.2];
        let m = 1e-9;
        let small: Vec<f64> = z.iter().map(|z| m * z).collect();
        // ‖p‖_{1+m} = 1 + m Σ p log p + O(m²).
        let p = trial::forward(&Normmax::new(1.0 + m).unwrap(), &small).0;
        trial::assert_close(&p, &trial::forward(&Softmax::new(), &z).0, 1e-6);
    }

    #[test]
    fn the_branches_meet_at_two() {
        let mut rng = fastrand::Rng::with_seed(22);
        for _ in 0..50 {
            let z = trial::row(&mut rng, 9, 1.0);
            let [below, at, above] =
                [2.0 - 1e-10, 2.0, 2.0 + 1e-10].map(|alpha| trial::forward(&Normmax::new(alpha).unwrap(), &z).0);
            trial::assert_close(&below, &at, 1e-9);
            trial::assert_close(&above, &at, 1e-9);
        }
    }

    #[test]
    fn derivatives_match_differences() {
        let mut rng = fastrand::Rng::with_seed(23);
        for alpha in [1.001, 1.05, 1.5, 2.0, 3.0, 5.0] {
            for gamma in [0.5, 2.0] {
                let mapping = Normmax::new(alpha).unwrap().with_gamma(gamma).unwrap();
                trial::assert_derivatives(&mapping, 0.2 * gamma * (alpha - 1.0f64).min(1.0), &mut rng);
            }
        }
    }

    #[test]
    fn derivatives_at_a_large_alpha_by_hand() {
        // Two equal entries: both bases are b = 2^{−m/α}. From p₁/p₂ = ((b + Δ)/b)^{1/m},
        // d log(p₁/p₂)/dΔ = 1/(mb), and dp₁ = p₁p₂ times that.
        for alpha in [10.0, 1000.0] {
            let m = alpha - 1.0;
            let base = 2f64.powf(-m / alpha);
            let g = trial::vjp(&Normmax::new(alpha).unwrap(), &[0.0, 0.0], &[1.0, 0.0]);
            assert!((g[0] / (0.25 / (m * base)) - 1.0).abs() < 1e-12, "{g:?}");
            assert!((g[0] + g[1]).abs() < 1e-18);
        }
    }

    #[test]
    fn the_gradient_in_alpha_matches_differences() {
        let mut rng = fastrand::Rng::with_seed(24);
        for alpha in [1.001f64, 1.1, 1.5, 2.5, 4.0, 20.0] {
            let scale = (alpha - 1.0).min(0.1);
            trial::assert_parameter_gradient(|a| Normmax::new(a)?.with_gamma(1.5), alpha, scale, scale, &mut rng);
        }
    }

    #[test]
    fn rows_in_single_precision_are_those_in_double_rounded() {
        let mut rng = fastrand::Rng::with_seed(25);
        for (alpha, d, size) in
            [(2.0001, 7, 1.0), (3.0, 3000, 0.01), (3.0, 3000, 1.0), (10.0, 300, 0.2), (1e3, 50, 0.5)]
        {
            let mapping = Normmax::new(alpha).unwrap().with_gamma(1.5).unwrap();
            let mut z: Vec<f32> = trial::row(&mut rng, d, size).into_iter().map(|z| z as f32).collect();
            z[d / 2] = z[0];
            z.iter_mut().skip(1).step_by(5).for_each(|z| *z = f32::NEG_INFINITY);
            let mut p = vec![f32::NAN; d];
            assert!(Single::forward(&mapping, &z, &mut p, &mut Buffers::default()));
            let (clean, mine): (Vec<f64>, Vec<f64>) =
                (z.iter().zip(&p).filter(|(z, _)| z.is_finite())).map(|(z, p)| (f64::from(*z), f64::from(*p))).unzip();
            // A root is rounded to f32, and so is its quotient.
            let want = trial::forward(&mapping, &clean).0;
            assert!(mine.iter().zip(&want).all(|(p, want)| (p - want).abs() <= 1.3e-7 * want), "{alpha} {d} {size}");
            assert!(z.iter().zip(&p).all(|(z, p)| z.is_finite() || *p == 0.0));
        }
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        for alpha in [1.0 + f64::EPSILON, 1.2, 2.0, 3.0, 1000.0, 1e300] {
            trial::assert_survives(&Normmax::new(alpha).unwrap());
            trial::assert_survives(&Normmax::new(alpha).unwrap().with_gamma(1e-3).unwrap());
        }
        for alpha in [f64::NAN, 1.0, 0.5, f64::INFINITY] {
            assert!(Normmax::new(alpha).is_err());
        }
        assert!(Normmax::new(2.0).unwrap().with_gamma(-1.0).is_err());
    }
}
