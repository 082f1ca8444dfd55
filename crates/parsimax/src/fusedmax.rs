//! Fusedmax: attention to contiguous segments of equal weight (Niculae & Blondel 2017).
//!
//! **Problem.** `$\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\,\Omega(p)$` with
//! $\Omega(p) = \frac12\lVert p\rVert^2 + \lambda\sum_i |p_{i+1} - p_i|$. γ multiplies both terms.
//!
//! **Closed form.** $p = P_\Delta(x)$, the simplex projection of the total-variation prox
//! $x = \arg\min_x \frac12\lVert x - z/\gamma\rVert^2 + \lambda\sum_i |x_{i+1} - x_i|$. The composition is
//! exact: the prox commutes with the shift by τ, and cutting it at 0 costs no optimality.
//!
//! **Algorithm and cost.** The prox by a taut string, the projection by repeated averaging: $O(d)$, the
//! prox also in the worst case. Scores are measured from their maximum and cut at $-4\lambda - 1$ below
//! it (in units of γ), which changes no probability: $\max x \ge -2\lambda$, so $\tau \ge -2\lambda - 1$,
//! and an entry $2\lambda$ or more below a level never joins a group above that level, wherever it
//! lies. So neither a large shift nor a score of −10³⁰ takes digits from the rest.
//!
//! **Jacobian.** The prox averages within its groups of fused neighbours, the projection centres on the
//! support $S$, a union of groups: `$(Jv)_i = (\mathrm{mean}_{G_i} v - \mathrm{mean}_S\, v)/\gamma$` on $S$,
//! 0 elsewhere. Symmetric. The groups are those of the prox of $z$; the sparse row tells them, too:
//! neighbours in $S$ with the same probability.
//!
//! **Gradient in λ.** A group moves by
//! $\partial x_G/\partial\lambda = (\mathrm{sign}(x_{next} - x_G) - \mathrm{sign}(x_G - x_{prev}))/|G|$, 0 for
//! a neighbour that is missing; then `$\partial p/\partial\lambda = \partial x/\partial\lambda -
//! \mathrm{mean}_S\,\partial x/\partial\lambda$` on $S$.
//!
//! **Edge cases.** λ = 0 is sparsemax, and neighbours with equal scores are then no group; the gradient
//! in λ is the one from the right. A large λ gives the uniform distribution. Where the groups change
//! the Jacobian jumps; it is then that of the coarser groups. Masked entries are no neighbours: those
//! on either side of a gap are.

use crate::error::check_gamma;
use crate::kernel::{Map, Structure};
use crate::law::Form;
use crate::mapping::{LongRow, Scores, Visit};
use crate::numeric;
use crate::pieces::Fused;
use crate::prox::{self, tv1d};
use crate::registry::Entry;
use crate::single::Kernel;
use crate::structured::StructuredKernel;
use crate::threshold::linear;
use crate::{Mapping, Regularized, Result, Scratch};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "fusedmax",
    omega: "½‖p‖² + λ Σ|p_{i+1} − p_i|",
    sparsity: "as sparsemax, after neighbours are fused",
    cost: "O(d)",
    reference: "Niculae & Blondel 2017",
    takes: &["lambda", "gamma"],
    build: |o| Ok(Box::new(Fusedmax::new(o.lambda.unwrap_or(0.1))?.with_gamma(o.gamma())?)),
};

/// Fusedmax with penalty λ on the steps between neighbours and strength γ.
///
/// ```
/// use parsimax::{Fusedmax, MappingExt};
/// // λ = 0.1: the prox of (1, 0.95, 0.2) fuses the first two at (1.95 − 0.1)/2 = 0.925 and lifts the
/// // last to 0.3. Support {1, 2}: τ = (1.85 − 1)/2 = 0.425.
/// let p = Fusedmax::new(0.1)?.apply(&[1.0f64, 0.95, 0.2])?;
/// assert_eq!(p, [0.5, 0.5, 0.0]);
/// // Further apart they do not fuse: the prox of (1, 0.7, 0.1) is (0.9, 0.7, 0.2), and τ = 0.3.
/// let p = Fusedmax::new(0.1)?.apply(&[1.0f64, 0.7, 0.1])?;
/// assert!((p[0] - 0.6).abs() < 1e-15 && (p[1] - 0.4).abs() < 1e-15);
/// assert_eq!(p[2], 0.0);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fusedmax {
    lambda: f64,
    gamma: f64,
}

impl Fusedmax {
    /// Fusedmax of strength 1; λ finite and ≥ 0.
    pub fn new(lambda: f64) -> Result<Self> {
        prox::check_lambda("fusedmax", lambda)?;
        Ok(Self { lambda, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("fusedmax", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The parameter λ.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Writes the prox into `x`, measured from the top score, and returns the top score. Values that
    /// cannot have mass are not exact (see the head of the file).
    fn prox(&self, z: &[f64], x: &mut [f64], tube: &mut tv1d::Tube) -> f64 {
        x.copy_from_slice(z);
        self.prox_in_place(x, tube)
    }

    /// The same of scores in `x` itself.
    fn prox_in_place(&self, x: &mut [f64], tube: &mut tv1d::Tube) -> f64 {
        let lambda = self.lambda.min(prox::MAX_LAMBDA);
        let (top, floor) = (numeric::max(x), -4.0 * lambda - 1.0);
        for x in x.iter_mut() {
            *x = ((*x - top) / self.gamma).max(floor);
        }
        tv1d::prox(x, lambda, tube);
        top
    }

    /// For the gradient in λ: leaves the prox in `scratch.a`, the positions of the support in `scratch.index` and `v` at
    /// those positions in `scratch.b`.
    fn gather(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) {
        let Scratch { a, b, index, tube, .. } = scratch;
        a.clear();
        a.resize(z.len(), 0.0);
        self.prox(z, a, tube);
        index.clear();
        index.extend((0..p.len() as u32).filter(|i| p[*i as usize] > 0.0));
        b.clear();
        b.extend(index.iter().map(|i| v[*i as usize]));
    }
}

/// The lengths of the groups: neighbours among the positions `index` whose value is the same.
fn groups<'a>(index: &'a [u32], value: impl Fn(usize) -> f64 + 'a) -> impl Iterator<Item = usize> + 'a {
    prox::runs(index.len(), move |k| index[k] == index[k - 1] + 1 && value(k) == value(k - 1))
}

impl Mapping for Fusedmax {
    fn name(&self) -> &'static str {
        "fusedmax"
    }

    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        let top = self.prox(z, p, &mut scratch.tube);
        let tau = linear::project(p);
        Ok(Some(tau + top / self.gamma))
    }

    fn replace_row(&self, z: &mut [f64], scratch: &mut Scratch) -> bool {
        self.prox_in_place(z, &mut scratch.tube);
        linear::project(z);
        true
    }

    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        // The prox is where the gradient will be: a long row takes no memory.
        self.prox(z, out, &mut scratch.tube);
        let support = || p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(_, v)| *v);
        // A constant in v takes no digits from the rest.
        let origin = support().next().unwrap_or(0.0);
        let all = numeric::sum(support().map(|v| v - origin)) / support().count() as f64;
        let mut start = 0;
        while start < p.len() {
            let (value, mut end) = (out[start], start + 1);
            if p[start] <= 0.0 {
                out[start] = 0.0;
            } else {
                while self.lambda > 0.0 && end < p.len() && p[end] > 0.0 && out[end] == value {
                    end += 1;
                }
                let mean = numeric::sum(v[start..end].iter().map(|v| v - origin)) / (end - start) as f64;
                out[start..end].fill((mean - all) / self.gamma);
            }
            start = end;
        }
        Ok(())
    }

    /// As above for entries some of which take no part: the prox is that of the others, closed up. Groups are gone through
    /// from the last on, so that what is still to be read lies before what is written.
    fn vjp_scattered(&self, z: Scores<'_>, p: &[f64], v: &[f64], out: &mut [f64]) -> bool {
        let mut n = 0;
        for z in (0..p.len()).filter_map(z) {
            out[n] = z;
            n += 1;
        }
        if n > 0 {
            self.prox_in_place(&mut out[..n], &mut tv1d::Tube::default());
        }
        let support = || p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(_, v)| *v);
        let origin = support().next().unwrap_or(0.0);
        let all = numeric::sum(support().map(|v| v - origin)) / support().count() as f64;
        let mut end = p.len();
        while end > 0 {
            let (mut start, mut len) = (end - 1, 0usize);
            if z(start).is_some() {
                n -= 1;
                len = usize::from(p[start] > 0.0);
                let before = |start: usize| (0..start).rev().find(|i| z(*i).is_some()).filter(|i| p[*i] > 0.0);
                while let Some(i) = before(start).filter(|_| len > 0 && self.lambda > 0.0 && out[n - 1] == out[n]) {
                    (start, n, len) = (i, n - 1, len + 1);
                }
            }
            let group = || (start..end).filter(|i| z(*i).is_some());
            let mean = numeric::sum(group().filter(|_| len > 0).map(|i| v[i] - origin)) / len.max(1) as f64;
            for i in start..end {
                out[i] = if len > 0 && z(i).is_some() { (mean - all) / self.gamma } else { 0.0 };
            }
            end = start;
        }
        true
    }

    fn parameter_vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) -> Option<f64> {
        self.gather(z, p, v, scratch);
        let Scratch { a: x, b: v, index, .. } = scratch;
        let mut gradient = 0.0;
        // Σ_{i ∈ G} (v_i − mean_S v)·∂x_G/∂λ: the |G| of the sum cancels that of the formula.
        prox::centred_means(v, groups(index, |k| x[index[k] as usize]), |group, mean| {
            let (first, last) = (index[group.start] as usize, index[group.end - 1] as usize);
            let previous = if first == 0 { 0.0 } else { step(x[first] - x[first - 1]) };
            let next = x.get(last + 1).map_or(0.0, |next| step(next - x[last]));
            gradient += (next - previous) * mean;
        });
        Some(gradient)
    }

    fn parameter_vjp_by(&self, row: &LongRow<'_>) -> Option<f64> {
        Some(Fused::of(self)?.slope(row))
    }

    /// Groups are read from the row: neighbouring positions with equal probability. That is what
    /// [`forward_row`](Mapping::forward_row) wrote; in a narrower type two groups may have been rounded to
    /// the same value.
    fn support_vjp_row(&self, index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
        let visit = |group: std::ops::Range<usize>, mean: f64| out[group].fill(mean / self.gamma);
        if self.lambda == 0.0 {
            prox::centred_means(v, prox::runs(v.len(), |_| false), visit);
        } else {
            prox::centred_means(v, groups(index, |k| p[k]), visit);
        }
        Some(())
    }

    fn regularized(&self) -> Option<&dyn Regularized> {
        Some(self)
    }

    fn form(&self) -> Option<Form> {
        (self.lambda == 0.0).then_some(Form::Entmax { alpha: 2.0, gamma: self.gamma })
    }

    fn kernel(&self) -> Option<Kernel> {
        if self.lambda == 0.0 { Kernel::new(Map::Sparsemax, self.gamma) } else { None }
    }

    fn structured(&self) -> Option<StructuredKernel> {
        StructuredKernel::new(Structure::Fused(self.lambda), self.lambda, self.gamma)
    }
}

/// The sign of a step between neighbours, 0 where there is none.
fn step(difference: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { difference.signum() }
}

impl Regularized for Fusedmax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ½‖p‖² + λ Σ|p_{i+1} − p_i|.
    fn omega(&self, p: &[f64]) -> f64 {
        let variation = numeric::sum(p.windows(2).map(|pair| (pair[1] - pair[0]).abs()));
        0.5 * numeric::dot(p, p) + self.lambda * variation
    }
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        let (mut variation, mut before) = (numeric::Sum::default(), None);
        each(&mut |p: f64| variation.add((p - before.replace(p).unwrap_or(p)).abs()));
        0.5 * numeric::sum_by(each, |p| p * p) + self.lambda * variation.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prox::checks;
    use crate::{MappingExt, Sparsemax};

    fn fusedmax(lambda: f64, gamma: f64) -> Fusedmax {
        Fusedmax::new(lambda).unwrap().with_gamma(gamma).unwrap()
    }

    /// The largest violation of the optimality conditions, from scores and probabilities alone.
    ///
    /// With the subgradient `s_i ∈ [−λ, λ]` of step i (λ·sign at a step, 0 outside the row),
    /// `z_i/γ − p_i − (s_{i−1} − s_i) = τ − ν_i`, where `ν_i ≥ 0` and 0 on the support. So
    /// `s_i = s_{i−1} − g_i − ν_i` with `g = z/γ − p − τ`: the set of possible `s_i` is an interval.
    fn violation(z: &[f64], p: &[f64], lambda: f64, gamma: f64) -> f64 {
        let d = p.len();
        let at = |i: isize| if (0..d as isize).contains(&i) { p[i as usize] } else { 0.0 };
        let bound = |i: isize| match i {
            i if i < 0 || i == d as isize - 1 => (0.0, 0.0),
            i if at(i + 1) > at(i) => (lambda, lambda),
            i if at(i + 1) < at(i) => (-lambda, -lambda),
            _ => (-lambda, lambda),
        };
        // τ from the sum over the support, where every run of it has known ends.
        let (mut total, mut count) = (0.0, 0.0);
        for i in 0..d as isize {
            if at(i) > 0.0 {
                total += z[i as usize] / gamma - at(i);
                count += 1.0;
                total -= if at(i - 1) == 0.0 { bound(i - 1).0 } else { 0.0 };
                total += if at(i + 1) == 0.0 { bound(i).0 } else { 0.0 };
            }
        }
        let tau = total / count;
        let (mut low, mut high, mut worst) = (0.0f64, 0.0f64, 0.0f64);
        for i in 0..d {
            let g = z[i] / gamma - p[i] - tau;
            low = if p[i] > 0.0 { low - g } else { f64::NEG_INFINITY };
            high -= g;
            let (l, h) = bound(i as isize);
            worst = worst.max(l - high).max(low - h);
            (low, high) = (low.max(l).min(h), high.min(h).max(l));
        }
        worst.max((p.iter().sum::<f64>() - 1.0).abs())
    }

    #[test]
    fn random_rows_are_optimal() {
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..6000 {
            let d = if round % 100 == 0 { 1000 } else { rng.usize(1..30) };
            let (lambda, gamma) = (10f64.powf(rng.f64() * 3.0 - 2.5), 0.2 + rng.f64());
            let z = checks::row(&mut rng, d, round % 3 == 0);
            let p = fusedmax(lambda, gamma).apply(&z).unwrap();
            // Rounding of the test's own sums of d terms of size up to λd.
            let tolerance = 1e-13 * (1.0 + d as f64) * (1.0 + lambda * d as f64).min(100.0);
            assert!(violation(&z, &p, lambda, gamma) < tolerance, "{z:?} {lambda} {gamma} {p:?}");
        }
    }

    #[test]
    fn hand_computed_rows() {
        // λ = 0.1 on (1, 0, 1): prox (0.9, 0.2, 0.9); support {1, 3} with τ = 0.4.
        let p = fusedmax(0.1, 1.0).apply(&[1.0, 0.0, 1.0]).unwrap();
        assert_eq!(p, [0.5, 0.0, 0.5]);
        // The same scores twice as large under γ = 2: γ multiplies both terms of Ω.
        assert_eq!(fusedmax(0.1, 2.0).apply(&[2.0, 0.0, 2.0]).unwrap(), p);
        assert_eq!(fusedmax(0.3, 1.0).apply(&[-4.0]).unwrap(), [1.0]);
        // Two entries: the difference 0.8 shrinks by 2λ to 0.6.
        let p = fusedmax(0.1, 1.0).apply(&[0.8f64, 0.0]).unwrap();
        assert!((p[0] - 0.8).abs() < 1e-15 && (p[1] - 0.2).abs() < 1e-15);
        assert_eq!(fusedmax(0.4, 1.0).apply(&[0.8, 0.0]).unwrap(), [0.5, 0.5]);
        assert_eq!(fusedmax(0.1, 1.0).apply(&[7.0; 4]).unwrap(), [0.25; 4]);
    }

    #[test]
    fn omega_max_and_loss() {
        // p = (0.8, 0.2), λ = 0.1: Ω = 0.34 + 0.06; max = 0.64 − 0.40; loss of class 2 = γΩ(e₂) + max − 0.
        let (m, z, p) = (fusedmax(0.1, 1.0), [0.8, 0.0], [0.8, 0.2]);
        assert!((m.omega(&p) - 0.40).abs() < 1e-15);
        assert!((m.max_row(&z, &p) - 0.24).abs() < 1e-15);
        assert!((m.loss_row(&z, &p, &[0.0, 1.0]) - (0.6 + 0.24)).abs() < 1e-15);
    }

    #[test]
    fn limits_in_lambda() {
        let mut rng = fastrand::Rng::with_seed(12);
        for round in 0..500 {
            let d = rng.usize(1..20);
            let (z, v) = (checks::row(&mut rng, d, round % 2 == 0), checks::row(&mut rng, d, false));
            assert_eq!(
                fusedmax(0.0, 0.7).apply(&z).unwrap(),
                Sparsemax::new().with_gamma(0.7).unwrap().apply(&z).unwrap()
            );
            let plain = Sparsemax::new().vjp(&z, &v).unwrap();
            for (a, b) in fusedmax(0.0, 1.0).vjp(&z, &v).unwrap().iter().zip(&plain) {
                assert!((a - b).abs() < 1e-15);
            }
            for lambda in [1e3, 1e30, 1e200, f64::MAX] {
                let p = fusedmax(lambda, 1.0).apply(&z).unwrap();
                let first = p[0];
                assert!(p.iter().all(|p| *p == first && (p - 1.0 / d as f64).abs() < 1e-16), "{lambda} {p:?}");
            }
        }
    }

    #[test]
    fn shifts_and_far_scores_take_no_digits() {
        // Scores on a grid of 2⁻²⁰, so that the shift itself is exact.
        let mut rng = fastrand::Rng::with_seed(13);
        for _ in 0..500 {
            let mut z: Vec<f64> = (0..12).map(|_| f64::from(rng.i32(0..1 << 21)) / f64::from(1 << 20)).collect();
            let m = fusedmax(0.05, 1.0);
            let p = m.apply(&z).unwrap();
            assert_eq!(m.apply(&z.iter().map(|z| z + 1e6).collect::<Vec<_>>()).unwrap(), p);
            // A score 4λ + 1 below the top and one 10³⁰ below are the same.
            z[5] = -2.0;
            let near = m.apply(&z).unwrap();
            z[5] = -1e30;
            assert_eq!(m.apply(&z).unwrap(), near);
        }
    }

    #[test]
    fn gradients_match_differences() {
        checks::gradients(14, |lambda, gamma| Box::new(fusedmax(lambda, gamma)));
    }

    #[test]
    fn the_sparse_derivative_is_the_dense_one() {
        checks::sparse_derivative(15, |lambda, gamma| Box::new(fusedmax(lambda, gamma)));
    }

    #[test]
    fn extreme_rows() {
        checks::extremes(|lambda, gamma| Box::new(fusedmax(lambda, gamma)));
    }

    #[test]
    fn the_gradient_in_lambda_at_zero_is_the_one_from_the_right() {
        // The tied pair moves as one, by −1/2 each, the last by +1; centred: (−1/2, −1/2, 1).
        let (m, z) = (fusedmax(0.0, 1.0), [0.1, 0.1, 0.0]);
        let p = m.apply(&z).unwrap();
        let g = |v: [f64; 3]| m.parameter_vjp_row(&z, &p, &v, &mut Scratch::new()).unwrap();
        assert!((g([1.0, 0.0, 0.0]) + 0.5).abs() < 1e-15 && (g([0.0, 0.0, 1.0]) - 1.0).abs() < 1e-15);
    }

    #[test]
    fn parameters_out_of_range_are_errors() {
        for lambda in [-1e-9, f64::NAN, f64::INFINITY] {
            assert!(Fusedmax::new(lambda).is_err());
        }
        assert!(fusedmax(0.1, 1.0).with_gamma(0.0).is_err());
    }
}
