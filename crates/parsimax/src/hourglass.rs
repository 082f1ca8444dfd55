//! Sparsehourglass: sparsemax after a scaling that trades shift invariance for scale invariance
//! (Laha et al. 2018).
//!
//! **Form.** With $x = z/\gamma$, `$\Pi(z) = \mathrm{sparsemax}(c\,x)$`,
//! $c = \frac{1 + dq}{|\sum_i x_i| + dq}$, $q \ge 0$. There is no regulariser Ω. q = 0 is invariant to
//! the scale of z; q → ∞ is sparsemax; on the simplex c = 1, so every distribution is a fixed point.
//! d counts the entries that take part.
//!
//! **Algorithm and cost.** One sum, then sparsemax of strength $g = \gamma/c$: $O(d)$.
//!
//! **Jacobian.** With the sparsemax Jacobian $P = \mathrm{diag}(1_S) - 1_S1_S^\top/|S|$, the chain rule
//! through c, and `$Pz = g\,(p - 1_S/|S|)$`,
//! `$$J = \frac{1}{g}\left(P - \frac{\mathrm{sign}(\sum z)}{1 + dq}\,\left(p - \tfrac{1_S}{|S|}\right) 1^\top\right).$$`
//! It is not symmetric, and $J^\top v$ reaches every entry: the one mapping whose derivative is not
//! confined to the support.
//!
//! **Edge cases.** At Σz = 0, where |Σz| has a kink, the sign is taken as 0. With q = 0 besides, c is
//! infinite and the value is its limit: uniform over the largest scores, with derivative 0. Ties
//! share equally. A sum that overflows counts as the largest number.

use crate::error::{check, check_gamma};
use crate::kernel::Map;
use crate::law::Form;
use crate::mapping::{Scratch, Support};
use crate::numeric;
use crate::registry::Entry;
use crate::separable;
use crate::single::{Buffers, Kernel, Single, finite};
use crate::threshold::linear;
use crate::{Float, Mapping, Result};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "sparsehourglass",
    omega: "–",
    sparsity: "zero from γ(|Σz/γ| + dq)/(1 + dq) below the maximum on",
    cost: "O(d)",
    reference: "Laha et al. 2018",
    takes: &["q", "gamma"],
    build: |o| Ok(Box::new(Sparsehourglass::new(o.q.unwrap_or(1.0))?.with_gamma(o.gamma())?)),
};

/// Sparsehourglass with parameter q and temperature γ.
///
/// ```
/// use parsimax::{MappingExt, Sparsehourglass};
/// // q = 1/2, d = 2: c = (1 + 1)/(|3| + 1) = 1/2, and sparsemax(1, 0.5) = (0.75, 0.25).
/// let p = Sparsehourglass::new(0.5)?.apply(&[2.0f64, 1.0])?;
/// assert!((p[0] - 0.75).abs() < 1e-15 && (p[1] - 0.25).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sparsehourglass {
    q: f64,
    gamma: f64,
}

impl Sparsehourglass {
    /// Sparsehourglass at temperature 1; q finite and ≥ 0.
    pub fn new(q: f64) -> Result<Self> {
        check(q >= 0.0 && q.is_finite(), "sparsehourglass", "q", "a finite number ≥ 0", q)?;
        Ok(Self { q, gamma: 1.0 })
    }

    /// The same with temperature `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("sparsehourglass", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The parameter q.
    #[must_use]
    pub fn q(&self) -> f64 {
        self.q
    }

    /// `g = γ/c = (|Σz| + γdq)/(1 + dq)` for rows of `d` entries with that sum.
    fn strength(&self, sum: f64, d: f64) -> f64 {
        strength(self.q, self.gamma, sum, d)
    }

    /// The strength of a row, in which −∞ takes no part.
    fn strength_of<T: Float>(&self, z: &[T]) -> f64 {
        self.strength(sum(z), finite(z).count() as f64)
    }

    /// What both derivatives need: g, `sign(Σz)/(1+dq)`, and 1/|S|; `None` where c is infinite.
    fn chain<T: Float>(&self, z: &[T], p: &[T]) -> Option<(f64, f64, f64)> {
        let (sum, d) = (sum(z), finite(z).count() as f64);
        let strength = self.strength(sum, d);
        let sign = if sum == 0.0 { 0.0 } else { sum.signum() };
        let size = p.iter().filter(|p| p.widen() > 0.0).count() as f64;
        (strength > 0.0).then_some((strength, sign / (1.0 + d * self.q), 1.0 / size))
    }

    fn vjp<T: Float>(&self, z: &[T], p: &[T], v: &[T], out: &mut [T]) {
        let Some((strength, along, share)) = self.chain(z, p) else {
            out.fill(T::default());
            return;
        };
        let pairs = || p.iter().zip(v).map(|(p, v)| (p.widen(), v.widen()));
        let on_support = || pairs().filter(|(p, _)| *p > 0.0);
        let mean = numeric::sum(on_support().map(|(_, v)| v)) * share;
        // Σ(p − 1/|S|) = 0, so v may be measured from its mean.
        let everywhere = along * numeric::sum(on_support().map(|(p, v)| (p - share) * (v - mean)));
        for (out, (z, (p, v))) in out.iter_mut().zip(z.iter().zip(pairs())) {
            let own = if p > 0.0 { v - mean } else { 0.0 };
            *out = T::narrow(if z.widen() > f64::NEG_INFINITY { (own - everywhere) / strength } else { 0.0 });
        }
    }
}

/// `g` of a row, as a function of all that it depends on.
pub(crate) fn strength(q: f64, gamma: f64, sum: f64, d: f64) -> f64 {
    let dq = d * q;
    // A mean of |Σz| and γ with weights 1/(1+dq) and dq/(1+dq): it cannot overflow.
    let share = if dq.is_finite() { dq / (1.0 + dq) } else { 1.0 };
    sum.abs() / (1.0 + dq) + gamma * share
}

/// The limit of an infinite c: hands every largest entry its share, and returns τ.
fn hard(z: &[f64], mut put: impl FnMut(usize, f64)) -> f64 {
    let top = numeric::max(z);
    let largest = || z.iter().enumerate().filter(|(_, z)| **z == top);
    let share = 1.0 / largest().count() as f64;
    largest().for_each(|(i, _)| put(i, share));
    // c·max − τ is the share of an entry, and c·max is infinite or, if all are 0, nothing.
    if top == 0.0 { -share } else { f64::INFINITY }
}

/// Σz to its last digit: near 0 it decides the scale of everything.
fn sum<T: Float>(z: &[T]) -> f64 {
    let largest = finite(z).fold(0.0f64, |a, z| a.max(z.abs()));
    // Rows have fewer than 2³² entries.
    let unit = if largest > 1e290 { 2f64.powi(-64) } else { 1.0 };
    (numeric::sum(finite(z).map(|z| z * unit)) / unit).clamp(-f64::MAX, f64::MAX)
}

impl Mapping for Sparsehourglass {
    fn name(&self) -> &'static str {
        "sparsehourglass"
    }
    /// τ is the threshold of the scaled scores: `p = [c·z/γ − τ]₊`.
    fn forward_row(&self, z: &[f64], p: &mut [f64], _scratch: &mut Scratch) -> Result<Option<f64>> {
        let strength = self.strength_of(z);
        if strength == 0.0 {
            p.fill(0.0);
            return Ok(Some(hard(z, |i, share| p[i] = share)));
        }
        Ok(Some(separable::forward_within(strength, z, p, |z| linear::solve(z, strength))))
    }

    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], _scratch: &mut Scratch) -> Result<()> {
        self.vjp(z, p, v, out);
        Ok(())
    }

    fn jvp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], _scratch: &mut Scratch) -> Result<()> {
        let Some((strength, along, share)) = self.chain(z, p) else {
            out.fill(0.0);
            return Ok(());
        };
        let mean = numeric::sum(p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(_, v)| *v)) * share;
        let moved = along * numeric::sum(v.iter().copied());
        for (out, (p, v)) in out.iter_mut().zip(p.iter().zip(v)) {
            *out = if *p > 0.0 { ((v - mean) - (p - share) * moved) / strength } else { 0.0 };
        }
        Ok(())
    }

    fn replace_row(&self, z: &mut [f64], _scratch: &mut Scratch) -> bool {
        let strength = self.strength_of(z);
        if strength > 0.0 {
            linear::solve(z, strength);
        }
        strength > 0.0
    }

    fn support_row(&self, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Result<Option<f64>> {
        let strength = self.strength_of(z);
        if strength == 0.0 {
            out.clear();
            return Ok(Some(hard(z, |i, share| {
                out.index.push(i as u32);
                out.value.push(share);
            })));
        }
        separable::candidates(z, strength, scratch);
        let tau = linear::solve(&mut scratch.a, strength);
        separable::gather(scratch, out);
        Ok(Some(tau))
    }

    fn has_neighbours(&self) -> bool {
        false
    }

    fn form(&self) -> Option<Form> {
        Some(Form::Hourglass { q: self.q, gamma: self.gamma })
    }

    fn single(&self) -> Option<&dyn Single> {
        Some(self)
    }
}

impl Single for Sparsehourglass {
    fn forward(&self, z: &[f32], p: &mut [f32], buffers: &mut Buffers) -> bool {
        let kernel = Kernel::new(Map::Sparsemax, self.strength_of(z));
        kernel.inspect(|kernel| kernel.forward(z, p, buffers)).is_some()
    }
    fn in_place(&self, x: &mut [f32]) -> bool {
        let kernel = Kernel::new(Map::Sparsemax, self.strength_of(x));
        kernel.inspect(|kernel| kernel.in_place(x)).is_some()
    }
    fn vjp(&self, z: &[f32], p: &[f32], v: &[f32], out: &mut [f32]) {
        self.vjp(z, p, v, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sparsemax, trial};

    #[test]
    fn it_is_sparsemax_of_the_scaled_scores() {
        let mut rng = fastrand::Rng::with_seed(41);
        for (q, gamma) in [(0.0, 1.0), (0.1, 1.0), (1.0, 0.4), (10.0, 3.0)] {
            let mapping = Sparsehourglass::new(q).unwrap().with_gamma(gamma).unwrap();
            for d in [1, 2, 20] {
                let z = trial::row(&mut rng, d, 2.0);
                let (x, dq) = (z.iter().map(|z| z / gamma), d as f64 * q);
                let c = (1.0 + dq) / (x.clone().sum::<f64>().abs() + dq);
                let scaled: Vec<f64> = x.map(|x| c * x).collect();
                trial::assert_close(
                    &trial::forward(&mapping, &z).0,
                    &trial::forward(&Sparsemax::new(), &scaled).0,
                    1e-12,
                );
            }
        }
    }

    #[test]
    fn fixed_points_scales_and_limits() {
        let mut rng = fastrand::Rng::with_seed(42);
        let z = trial::row(&mut rng, 9, 1.0);
        let p = trial::forward(&Sparsemax::new(), &z).0;
        for q in [0.0, 0.3, 2.0] {
            trial::assert_close(&trial::forward(&Sparsehourglass::new(q).unwrap(), &p).0, &p, 1e-15);
        }
        let unscaled = trial::forward(&Sparsehourglass::new(0.0).unwrap(), &z).0;
        for scale in [1e-30, 3.0, 1e30] {
            let scaled: Vec<f64> = z.iter().map(|z| scale * z).collect();
            trial::assert_close(&trial::forward(&Sparsehourglass::new(0.0).unwrap(), &scaled).0, &unscaled, 1e-13);
        }
        for q in [1e14, 1e308] {
            trial::assert_close(&trial::forward(&Sparsehourglass::new(q).unwrap(), &z).0, &p, 1e-13);
        }
    }

    #[test]
    fn an_infinite_scale_is_the_maximum() {
        let hard = Sparsehourglass::new(0.0).unwrap();
        assert_eq!(trial::forward(&hard, &[2.0, -1.0, -1.0]), (vec![1.0, 0.0, 0.0], Some(f64::INFINITY)));
        assert_eq!(trial::forward(&hard, &[1.0, 1.0, -2.0]).0, [0.5, 0.5, 0.0]);
        assert_eq!(trial::forward(&hard, &[0.0, 0.0]), (vec![0.5, 0.5], Some(-0.5)));
        assert_eq!(trial::vjp(&hard, &[2.0, -1.0, -1.0], &[1.0, 2.0, 3.0]), [0.0; 3]);
        // It is the limit: the same next to it.
        assert_eq!(trial::forward(&hard, &[2.0, -1.0, -1.0 + 1e-9]).0, [1.0, 0.0, 0.0]);
    }

    #[test]
    fn derivatives_match_differences() {
        let mut rng = fastrand::Rng::with_seed(43);
        for (q, gamma) in [(0.2, 1.0), (1.0, 0.7), (5.0, 2.0)] {
            let mapping = Sparsehourglass::new(q).unwrap().with_gamma(gamma).unwrap();
            trial::assert_derivatives(&mapping, gamma, &mut rng);
        }
    }

    #[test]
    fn hard_rows_and_bad_parameters() {
        for q in [0.0, 1e-30, 1.0, 1e30, f64::MAX] {
            trial::assert_survives(&Sparsehourglass::new(q).unwrap());
            trial::assert_survives(&Sparsehourglass::new(q).unwrap().with_gamma(1e-3).unwrap());
        }
        for q in [f64::NAN, -0.1, f64::INFINITY] {
            assert!(Sparsehourglass::new(q).is_err());
        }
    }
}
