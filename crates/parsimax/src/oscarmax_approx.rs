//! The approximation of oscarmax that its paper computes (Niculae & Blondel 2017), for comparison.
//!
//! **What it is.** $p = P_\Delta(x)$, the simplex projection of the OSCAR prox
//! $x = \arg\min_x \frac12\lVert x - z/\gamma\rVert^2 + \lambda\sum_{i<j}\max(|x_i|, |x_j|)$. The paper's
//! errata says that this is not the maximiser of `$\langle p, z\rangle - \gamma\,\Omega(p)$`; that one is
//! [`Oscarmax`](crate::Oscarmax), at the same cost. The prox pools and shrinks $|z|$, so a score of −2 pays
//! more than one of −1, and the result changes when a constant is added to all scores. Where all
//! scores exceed $\gamma\lambda(d-1)$ the two agree. There is no Ω, hence no loss.
//!
//! **Algorithm and cost.** Sort $|z|/\gamma$ in descending order, subtract $\lambda(d-k)$, fit the best
//! non-increasing sequence $c$; `$x_i = \mathrm{sign}(z_i)\,[c_i]_+$`. Then project. $O(d\log d)$.
//!
//! **Jacobian.** With $s = \mathrm{sign}(x)$ and the groups $G$ of the fit, the prox has
//! $A_{ij} = s_i s_j/|G|$ within a group of $c > 0$ and 0 elsewhere; the projection has
//! $B = \mathrm{diag}(1_S) - 1_S 1_S^\top/|S|$. $J = BA/\gamma$ is **not symmetric**: a group may hold both
//! signs, with only one of them supported, and entries with $x_i = 0$ may be supported.
//! VJP `$= A\,B\,v/\gamma$`, JVP `$= B\,A\,v/\gamma$`. The VJP may reach beyond the support, so there is none
//! from the sparse row.
//!
//! **Gradient in λ.** `$\partial x_i/\partial\lambda = -s_i\,\mathrm{mean}_{k \in G}(d-k)$`, then through $B$.
//!
//! **Edge cases.** λ = 0 is sparsemax. A large λ makes every $x_i$ zero and $p$ uniform. Equal scores get
//! equal bits, and permuting the scores permutes the bits of the answer.

use crate::error::check_gamma;
use crate::numeric;
use crate::prox::{self, Block, isotonic};
use crate::registry::Entry;
use crate::threshold::linear;
use crate::{Mapping, Result, Scratch};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "oscarmax-approx",
    omega: "–",
    sparsity: "near oscarmax; for comparison only",
    cost: "O(d log d)",
    reference: "Niculae & Blondel 2017, Proposition 2",
    takes: &["lambda", "gamma"],
    build: |o| Ok(Box::new(OscarmaxApprox::new(o.lambda.unwrap_or(0.01))?.with_gamma(o.gamma())?)),
};

/// The simplex projection of the OSCAR prox, with penalty λ and strength γ: an approximation of
/// [`Oscarmax`](crate::Oscarmax), which is to be preferred.
///
/// ```
/// use parsimax::{MappingExt, Oscarmax, OscarmaxApprox};
/// // λ = 0.1: |z| = (1, 1, 0) less (0.2, 0.1, 0), the tie pooled, is (0.85, 0.85, 0), so x = (0.85, 0, −0.85):
/// // the first and the last score share their cost. τ = (0.85 − 1)/2 = −0.075.
/// let p = OscarmaxApprox::new(0.1)?.apply(&[1.0f64, 0.0, -1.0])?;
/// assert!((p[0] - 0.925).abs() < 1e-15 && (p[1] - 0.075).abs() < 1e-15);
/// // The maximiser: (1, 0, −1) − (0.2, 0.1, 0) = (0.8, −0.1, −1), τ = (0.7 − 1)/2 = −0.15.
/// let p = Oscarmax::new(0.1)?.apply(&[1.0f64, 0.0, -1.0])?;
/// assert!((p[0] - 0.95).abs() < 1e-15 && (p[1] - 0.05).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OscarmaxApprox {
    lambda: f64,
    gamma: f64,
}

impl OscarmaxApprox {
    /// The approximation of strength 1; λ finite and ≥ 0.
    pub fn new(lambda: f64) -> Result<Self> {
        prox::check_lambda("oscarmax-approx", lambda)?;
        Ok(Self { lambda, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("oscarmax-approx", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The parameter λ.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Leaves the positions in descending order of |z| in `scratch.index` and the groups of the fit in
    /// `scratch.blocks`, and returns `base`: a group's value is `c = mean + base`.
    ///
    /// Measured from the largest |z|, differences of close scores keep their digits. The order of
    /// opposite scores is fixed, too, so that sums do not depend on positions.
    fn fit(&self, z: &[f64], scratch: &mut Scratch) -> f64 {
        let Scratch { a, index, blocks, .. } = scratch;
        let lambda = self.lambda.min(prox::MAX_LAMBDA);
        let size = |i: &u32| z[*i as usize].abs();
        index.clear();
        index.extend(0..z.len() as u32);
        index.sort_unstable_by(|i, j| {
            size(j).total_cmp(&size(i)).then(z[*j as usize].total_cmp(&z[*i as usize])).then(i.cmp(j))
        });
        let largest = size(&index[0]);
        a.clear();
        // The bound keeps a quotient by a tiny γ finite.
        a.extend(index.iter().map(|i| ((size(i) - largest) / self.gamma).max(-prox::MAX_LAMBDA)));
        isotonic::fit_ranked(a, lambda, blocks);
        largest / self.gamma - lambda * (z.len() - 1) as f64
    }

    /// `x ← Ax` after [`fit`](Self::fit): the derivative of the prox.
    fn average(&self, z: &[f64], base: f64, x: &mut [f64], Scratch { index, blocks, .. }: &Scratch) {
        if self.lambda == 0.0 {
            return;
        }
        for_groups(index, blocks, |group, block| {
            let sign = |i: u32| sign(z[i as usize], block.mean + base);
            let mean = numeric::sum(group.iter().map(|i| sign(*i) * x[*i as usize])) / block.len as f64;
            for i in group {
                x[*i as usize] = sign(*i) * mean;
            }
        });
    }
}

/// Calls `visit` with the positions of each group and the group.
fn for_groups(index: &[u32], blocks: &[Block], mut visit: impl FnMut(&[u32], &Block)) {
    let mut start = 0;
    for block in blocks {
        visit(&index[start..start + block.len], block);
        start += block.len;
    }
}

/// The sign of `x` for an entry of a group with value `c`.
fn sign(z: f64, c: f64) -> f64 {
    if c > 0.0 && z != 0.0 { z.signum() } else { 0.0 }
}

/// `out = Bv`: centred on the support, 0 elsewhere. `v` may be measured from any of its entries.
fn centre(p: &[f64], v: &[f64], out: &mut [f64]) {
    let supported = || p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(_, v)| v);
    let (origin, count) = (supported().next().copied().unwrap_or(0.0), supported().count());
    let mean = numeric::sum(supported().map(|v| v - origin)) / count as f64;
    for (out, (p, v)) in out.iter_mut().zip(p.iter().zip(v)) {
        *out = if *p > 0.0 { (v - origin) - mean } else { 0.0 };
    }
}

impl Mapping for OscarmaxApprox {
    fn name(&self) -> &'static str {
        "oscarmax-approx"
    }

    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        let base = self.fit(z, scratch);
        let Scratch { a: x, index, blocks, .. } = scratch;
        let (mut positive, mut zero) = (false, false);
        for_groups(index, blocks, |group, block| {
            for i in group {
                let sign = sign(z[*i as usize], block.mean + base);
                positive |= sign > 0.0;
                zero |= sign == 0.0;
            }
        });
        // Only differences count from here on: measure x from a value near its maximum.
        let origin = match (positive, zero) {
            (true, _) => base,
            (false, true) => 0.0,
            (false, false) => -base,
        };
        x.clear();
        for_groups(index, blocks, |group, block| {
            x.extend(group.iter().map(|i| match sign(z[*i as usize], block.mean + base) {
                // c − origin, −origin and −c − origin, with a base that cancels left out.
                1.0 => block.mean,
                0.0 => -origin,
                _ if positive || zero => -(block.mean + base) - origin,
                _ => -block.mean,
            }));
        });
        let tau = linear::project(x);
        for (i, value) in index.iter().zip(x) {
            p[*i as usize] = *value;
        }
        Ok(Some(tau + origin))
    }

    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        let base = self.fit(z, scratch);
        centre(p, v, out);
        self.average(z, base, out, scratch);
        out.iter_mut().for_each(|out| *out /= self.gamma);
        Ok(())
    }

    fn jvp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        let base = self.fit(z, scratch);
        let mut moved = std::mem::take(&mut scratch.b);
        moved.clear();
        moved.extend_from_slice(v);
        self.average(z, base, &mut moved, scratch);
        centre(p, &moved, out);
        scratch.b = moved;
        out.iter_mut().for_each(|out| *out /= self.gamma);
        Ok(())
    }

    fn parameter_vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) -> Option<f64> {
        let base = self.fit(z, scratch);
        let Scratch { b: centred, index, blocks, .. } = scratch;
        centred.clear();
        centred.resize(z.len(), 0.0);
        centre(p, v, centred);
        let mut gradient = 0.0;
        for_groups(index, blocks, |group, block| {
            let signed =
                numeric::sum(group.iter().map(|i| sign(z[*i as usize], block.mean + base) * centred[*i as usize]));
            // Ranks are counted from 0: d − k is d − 1 − rank.
            gradient -= signed * ((z.len() - 1) as f64 - block.shift as f64 / block.len as f64);
        });
        Some(gradient)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prox::checks;
    use crate::{MappingExt, Oscarmax, Sparsemax};

    fn approx(lambda: f64, gamma: f64) -> OscarmaxApprox {
        OscarmaxApprox::new(lambda).unwrap().with_gamma(gamma).unwrap()
    }

    /// The definition, with the non-increasing fit from its formula `min_{a ≤ k} max_{b ≥ k} mean(a..=b)`.
    fn plain(z: &[f64], lambda: f64, gamma: f64) -> Vec<f64> {
        let d = z.len();
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|i, j| z[*j].abs().total_cmp(&z[*i].abs()));
        let t: Vec<f64> = (0..d).map(|k| z[order[k]].abs() / gamma - lambda * (d - 1 - k) as f64).collect();
        let mean = |a: usize, b: usize| t[a..=b].iter().sum::<f64>() / (b - a + 1) as f64;
        let mut x = vec![0.0; d];
        for k in 0..d {
            let best = |a: usize| (k..d).map(|b| mean(a, b)).fold(f64::NEG_INFINITY, f64::max);
            let fit = (0..=k).map(best).fold(f64::INFINITY, f64::min);
            x[order[k]] = fit.max(0.0) * if z[order[k]] < 0.0 { -1.0 } else { 1.0 };
        }
        Sparsemax::new().apply(&x).unwrap()
    }

    #[test]
    fn it_is_the_projection_of_the_prox() {
        let mut rng = fastrand::Rng::with_seed(31);
        for round in 0..4000 {
            let d = rng.usize(1..12);
            let (lambda, gamma) = (10f64.powf(rng.f64() * 3.0 - 3.0), 0.2 + rng.f64());
            // All signs, all positive, all negative.
            let offset = f64::from(round % 3 - 1) * 1.5;
            let z: Vec<f64> = checks::row(&mut rng, d, round % 5 == 0).iter().map(|z| z + offset).collect();
            let (p, q) = (approx(lambda, gamma).apply(&z).unwrap(), plain(&z, lambda, gamma));
            assert!(p.iter().zip(&q).all(|(p, q)| (p - q).abs() < 1e-13), "{z:?} {lambda} {gamma}");
        }
    }

    #[test]
    fn limits_and_the_exact_mapping() {
        let mut rng = fastrand::Rng::with_seed(32);
        let mut furthest = 0.0f64;
        for round in 0..2000 {
            let d = rng.usize(1..16);
            let (z, v) = (checks::row(&mut rng, d, round % 2 == 0), checks::row(&mut rng, d, false));
            let near = |a: &[f64], b: &[f64], tolerance: f64| a.iter().zip(b).all(|(a, b)| (a - b).abs() < tolerance);
            assert!(near(&approx(0.0, 1.0).apply(&z).unwrap(), &Sparsemax::new().apply(&z).unwrap(), 1e-15));
            assert!(near(&approx(0.0, 1.0).vjp(&z, &v).unwrap(), &Sparsemax::new().vjp(&z, &v).unwrap(), 1e-15));
            assert!(near(&approx(f64::MAX, 1.0).apply(&z).unwrap(), &vec![1.0 / d as f64; d], 1e-16));
            let exact = Oscarmax::new(0.05).unwrap();
            // Scores above λ(d − 1): the same mapping; 2⁻⁴⁰ is the rounding of the shifted scores.
            let high: Vec<f64> = z.iter().map(|z| z + 1024.0).collect();
            assert!(near(&approx(0.05, 1.0).apply(&high).unwrap(), &exact.apply(&high).unwrap(), 1e-12));
            let (p, q) = (approx(0.05, 1.0).apply(&z).unwrap(), exact.apply(&z).unwrap());
            furthest = p.iter().zip(&q).fold(furthest, |worst, (p, q)| worst.max((p - q).abs()));
        }
        // It is an approximation, and not a close one.
        assert!(furthest > 0.1, "{furthest}");
    }

    #[test]
    fn permutations_and_ties_are_exact() {
        let mut rng = fastrand::Rng::with_seed(33);
        for _ in 0..2000 {
            let d = rng.usize(1..25);
            let z = checks::row(&mut rng, d, true);
            let m = approx(rng.f64() * 0.03, 1.0);
            let p = m.apply(&z).unwrap();
            let mut order: Vec<usize> = (0..d).collect();
            rng.shuffle(&mut order);
            let shuffled = m.apply(&order.iter().map(|i| z[*i]).collect::<Vec<_>>()).unwrap();
            assert!(order.iter().zip(&shuffled).all(|(i, q)| p[*i].to_bits() == q.to_bits()));
        }
    }

    #[test]
    fn the_jacobian_is_not_symmetric() {
        // z = (1, 0, −1), λ = 0.1: one group {1, 3} of opposite signs, {2} at 0, support {1, 2}.
        let (m, z) = (approx(0.1, 1.0), [1.0, 0.0, -1.0]);
        // <v, p> = p₁ = (1 + x₁ − x₂)/2 with x₁ = (z₁ − z₃)/2 − 0.15, x₂ = 0: gradient (¼, 0, −¼).
        assert_eq!(m.vjp(&z, &[1.0, 0.0, 0.0]).unwrap(), [0.25, 0.0, -0.25]);
        // Along e₁: x₁ grows by ½, p₁ by ¼ and p₂ falls by ¼.
        let (p, mut out) = (m.apply(&z).unwrap(), [0.0; 3]);
        m.jvp_row(&z, &p, &[1.0, 0.0, 0.0], &mut out, &mut Scratch::new()).unwrap();
        assert_eq!(out, [0.25, -0.25, 0.0]);
    }

    #[test]
    fn gradients_match_differences() {
        checks::gradients(34, |lambda, gamma| Box::new(approx(lambda, gamma)));
        // Groups of opposite signs: every score beside its negative, which stays so under the direction.
        let (m, z, w, h) = (approx(0.05, 1.0), [0.3, -0.3, 0.1, 0.5, -0.5], [0.2, -0.2, 0.7, -0.1, 0.1], 1e-6);
        let at = |t: f64| m.apply(&std::array::from_fn::<f64, 5, _>(|i| z[i] + t * w[i])).unwrap();
        let (up, down, p, mut out) = (at(h), at(-h), at(0.0), [0.0; 5]);
        m.jvp_row(&z, &p, &w, &mut out, &mut Scratch::new()).unwrap();
        assert!((0..5).all(|i| ((up[i] - down[i]) / (2.0 * h) - out[i]).abs() < 1e-8));
    }

    #[test]
    fn extreme_rows() {
        checks::extremes(|lambda, gamma| Box::new(approx(lambda, gamma)));
    }

    #[test]
    fn parameters_out_of_range_are_errors() {
        for lambda in [-1e-9, f64::NAN, f64::INFINITY] {
            assert!(OscarmaxApprox::new(lambda).is_err());
        }
        assert!(approx(0.1, 1.0).with_gamma(0.0).is_err());
    }
}
