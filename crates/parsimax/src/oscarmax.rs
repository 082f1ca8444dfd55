//! Oscarmax: equal weight for groups of entries, wherever they stand (Niculae & Blondel 2017), exactly.
//!
//! **Problem.** `$\Pi(z) = \arg\max_{p \in \Delta} \langle p, z\rangle - \gamma\,\Omega(p)$` with
//! $\Omega(p) = \frac12\lVert p\rVert^2 + \lambda\sum_{i<j} \max(p_i, p_j)$. γ multiplies both terms.
//!
//! **Closed form.** On the simplex the penalty is `$\lambda\sum_k (d-k)\,p_{(k)}$` with
//! $p_{(1)} \ge p_{(2)} \ge \dots$, and Π keeps the order of the scores. So: sort $z/\gamma$ in descending
//! order, subtract $\lambda(d-k)$, fit the best non-increasing sequence $x$, undo the sort; then
//! $p = P_\Delta(x) = [x - \tau]_+$. This is exact, as isotonic regression commutes with the shift by τ
//! and a fit under the bound $p \ge 0$ is the free fit, cut at 0. (The composition of the projection
//! with the OSCAR prox, which has absolute values and a cut of its own, is not:
//! [`OscarmaxApprox`](crate::OscarmaxApprox).)
//!
//! **Algorithm and cost.** Only entries within $\lambda(d-1) + 1$ of the maximum can have mass (in units
//! of γ): the last entry of a pooled group lies above the group's value, and that above τ. These are
//! sorted and pooled (pool adjacent violators): $O(d + c\log c)$ for $c$ candidates.
//!
//! **Jacobian.** With the pooled groups $G$ and the support $S$, a union of groups,
//! `$(Jv)_i = (\mathrm{mean}_{G_i} v - \mathrm{mean}_S\,v)/\gamma$` on $S$, 0 elsewhere. Symmetric. The
//! sparse row tells the groups, too: entries with the same probability.
//!
//! **Gradient in λ.** A group moves by $\partial x_G/\partial\lambda = -\mathrm{mean}_{k \in G}(d-k)$; then
//! `$\partial p/\partial\lambda = \partial x/\partial\lambda - \mathrm{mean}_S\,\partial x/\partial\lambda$` on $S$.
//!
//! **Edge cases.** λ = 0 is sparsemax, and tied scores are then no group; the gradient in λ is the one
//! from the right. A large λ gives the uniform distribution. Equal scores get equal bits, and permuting
//! the scores permutes the bits of the answer, as all arithmetic happens in sorted order.

use crate::counted;
use crate::error::check_gamma;
use crate::kernel::{Map, Structure};
use crate::law::Form;
use crate::mapping::{LongRow, Scores, Visit};
use crate::numeric;
use crate::prox::{self, isotonic};
use crate::registry::Entry;
use crate::single::Kernel;
use crate::structured::StructuredKernel;
use crate::threshold::linear;
use crate::{Mapping, Regularized, Result, Scratch, Support};

/// The line of the table.
pub(crate) const ENTRY: Entry = Entry {
    name: "oscarmax",
    omega: "½‖p‖² + λ Σ_{i<j} max(p_i, p_j)",
    sparsity: "as sparsemax, after groups are pooled",
    cost: "O(d log d)",
    reference: "Niculae & Blondel 2017; exact here",
    takes: &["lambda", "gamma"],
    build: |o| Ok(Box::new(Oscarmax::new(o.lambda.unwrap_or(0.01))?.with_gamma(o.gamma())?)),
};

/// Oscarmax with penalty λ on the larger entry of every pair and strength γ.
///
/// ```
/// use parsimax::{MappingExt, Oscarmax};
/// // λ = 0.1, d = 3: the larger entries pay more, (1, 0.95, 0.2) − (0.2, 0.1, 0) = (0.8, 0.85, 0.2). The
/// // first two violate the order: pooled at 0.825. τ = (1.65 − 1)/2 = 0.325, above 0.2.
/// let p = Oscarmax::new(0.1)?.apply(&[0.95f64, 0.2, 1.0])?;
/// assert_eq!(p, [0.5, 0.0, 0.5]);
/// // (1, 0.7, 0.1) becomes (0.8, 0.6, 0.1): τ = 0.2.
/// let p = Oscarmax::new(0.1)?.apply(&[0.7f64, 0.1, 1.0])?;
/// assert!((p[0] - 0.4).abs() < 1e-15 && (p[2] - 0.6).abs() < 1e-15);
/// # Ok::<(), parsimax::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Oscarmax {
    lambda: f64,
    gamma: f64,
}

impl Oscarmax {
    /// Oscarmax of strength 1; λ finite and ≥ 0.
    pub fn new(lambda: f64) -> Result<Self> {
        prox::check_lambda("oscarmax", lambda)?;
        Ok(Self { lambda, gamma: 1.0 })
    }

    /// The same with strength `gamma`, from 1e−100 to 1e100.
    pub fn with_gamma(self, gamma: f64) -> Result<Self> {
        check_gamma("oscarmax", gamma)?;
        Ok(Self { gamma, ..self })
    }

    /// The parameter λ.
    #[must_use]
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// Leaves the candidates in descending order, positions in `scratch.index` and scores measured from
    /// the top in `scratch.a`, and their pooled groups in `scratch.blocks`.
    fn pool(&self, z: &[f64], scratch: &mut Scratch) -> Penalised {
        let Scratch { a, index, blocks, .. } = scratch;
        let penalised = Penalised::new(self, numeric::max(z), z.len());
        let below = |i: u32| penalised.below(z[i as usize]);
        index.clear();
        index.extend((0..z.len() as u32).filter(|i| penalised.is_candidate(below(*i))));
        index.sort_unstable_by(|i, j| z[*j as usize].total_cmp(&z[*i as usize]).then(i.cmp(j)));
        a.clear();
        a.extend(index.iter().map(|i| below(*i)));
        isotonic::fit_ranked(a, penalised.lambda, blocks);
        penalised
    }

    /// Writes the probabilities of scores, of which one takes part, and returns τ.
    ///
    /// Without a list of entries: the probability of one is that of the group whose scores include its own. The
    /// scores are sorted in the place of the result.
    fn solve(&self, z: impl Fn(usize) -> Option<f64>, p: &mut [f64], scratch: &mut Scratch) -> f64 {
        let Scratch { a: lowest, b: value, blocks, .. } = scratch;
        let (d, mut n) = (p.len(), 0);
        let scores = || (0..d).filter_map(&z);
        let penalised = Penalised::new(self, scores().fold(f64::NEG_INFINITY, f64::max), scores().count());
        for x in scores().map(|z| penalised.below(z)).filter(|x| penalised.is_candidate(*x)) {
            p[n] = x;
            n += 1;
        }
        let sorted = &mut p[..n];
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        isotonic::fit_ranked(sorted, penalised.lambda, blocks);
        let ends = || {
            blocks.iter().scan(0, |end, block| {
                *end += block.len;
                Some(*end)
            })
        };
        lowest.clear();
        lowest.extend(ends().map(|end| sorted[end - 1]));
        isotonic::spread(blocks, sorted);
        let tau = linear::project(sorted);
        value.clear();
        value.extend(ends().map(|end| sorted[end - 1]));
        let of = |z: f64| lowest.partition_point(|lowest| *lowest > penalised.below(z));
        for (i, p) in p.iter_mut().enumerate() {
            *p = z(i).and_then(|z| value.get(of(z)).copied()).unwrap_or(0.0);
        }
        penalised.threshold(tau)
    }

    /// Leaves the support in `scratch.index`, group after group and ascending within each, `v` in that
    /// order in `scratch.b`, and the groups in `scratch.blocks`.
    fn gather(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) {
        self.pool(z, scratch);
        let Scratch { b, index, blocks, .. } = scratch;
        let mut start = 0;
        // A group has one probability; the first without mass ends the support.
        let groups = blocks.iter().take_while(|block| {
            let group = start..start + block.len;
            let supported = p[index[group.start] as usize] > 0.0;
            if supported {
                start = group.end;
                index[group].sort_unstable();
            }
            supported
        });
        let groups = groups.count();
        blocks.truncate(groups);
        index.truncate(start);
        b.clear();
        b.extend(index.iter().map(|i| v[*i as usize]));
    }
}

/// The scores of a row as the isotonic fit sees them: from the top down, in units of γ. What the penalty takes
/// from the first of them, λ(d − 1), is left out until the end.
struct Penalised {
    lambda: f64,
    gamma: f64,
    top: f64,
    lift: f64,
}

impl Penalised {
    fn new(mapping: &Oscarmax, top: f64, d: usize) -> Self {
        let lambda = mapping.lambda.min(prox::MAX_LAMBDA);
        Self { lambda, gamma: mapping.gamma, top, lift: lambda * (d - 1) as f64 }
    }

    fn below(&self, z: f64) -> f64 {
        (z - self.top) / self.gamma
    }

    /// Whether an entry that far below the top may have mass.
    fn is_candidate(&self, x: f64) -> bool {
        x > -self.lift - 1.0
    }

    /// τ of the scores themselves.
    fn threshold(&self, tau: f64) -> f64 {
        tau - self.lift + self.top / self.gamma
    }
}

impl Mapping for Oscarmax {
    fn name(&self) -> &'static str {
        "oscarmax"
    }

    fn forward_row(&self, z: &[f64], p: &mut [f64], scratch: &mut Scratch) -> Result<Option<f64>> {
        Ok(Some(self.solve(|i| Some(z[i]), p, scratch)))
    }

    fn forward_scattered(&self, z: Scores<'_>, out: &mut [f64]) -> bool {
        if (0..out.len()).all(|i| z(i).is_none()) {
            out.fill(0.0);
        } else {
            self.solve(z, out, &mut Scratch::default());
        }
        true
    }

    fn support_row(&self, z: &[f64], out: &mut Support, scratch: &mut Scratch) -> Result<Option<f64>> {
        let penalised = self.pool(z, scratch);
        let Scratch { a, index, group: order, blocks, .. } = scratch;
        isotonic::spread(blocks, a);
        let tau = penalised.threshold(linear::project(a));
        order.clear();
        order.extend(0..a.partition_point(|p| *p > 0.0) as u32);
        order.sort_unstable_by_key(|k| index[*k as usize]);
        out.clear();
        out.index.extend(order.iter().map(|k| index[*k as usize]));
        out.value.extend(order.iter().map(|k| a[*k as usize]));
        Ok(Some(tau))
    }

    fn vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], out: &mut [f64], scratch: &mut Scratch) -> Result<()> {
        self.gather(z, p, v, scratch);
        let Scratch { b: v, index, blocks, .. } = scratch;
        out.fill(0.0);
        // At λ = 0 a block of tied scores is so many groups of one.
        let lengths = blocks.iter().flat_map(|block| match self.lambda {
            0.0 => std::iter::repeat_n(1, block.len),
            _ => std::iter::repeat_n(block.len, 1),
        });
        prox::centred_means(v, lengths, |group, mean| {
            for i in &index[group] {
                out[*i as usize] = mean / self.gamma;
            }
        });
        Ok(())
    }

    /// The groups are equal probabilities, which are sorted where the gradient will be; the sums of those of more than
    /// one entry are kept, as long as they are few.
    fn vjp_scattered(&self, _z: Scores<'_>, p: &[f64], v: &[f64], out: &mut [f64]) -> bool {
        let mut n = 0;
        for p in p.iter().filter(|p| **p > 0.0) {
            out[n] = *p;
            n += 1;
        }
        let sorted = &mut out[..n];
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut groups: Vec<Pooled> = Vec::new();
        for group in sorted.chunk_by(|a, b| a == b).filter(|group| self.lambda > 0.0 && group.len() > 1) {
            if groups.len() == FEW {
                return false;
            }
            groups.push(Pooled { p: group[0], sum: 0.0, low: 0.0, len: group.len() });
        }
        let support = || p.iter().zip(v).filter(|(p, _)| **p > 0.0).map(|(p, v)| (*p, *v));
        // A constant in v takes no digits from the rest.
        let origin = support().next().map_or(0.0, |(_, v)| v);
        let all = numeric::sum(support().map(|(_, v)| v - origin)) / n as f64;
        let place = |groups: &[Pooled], p: f64| groups.binary_search_by(|group| p.total_cmp(&group.p));
        for (p, v) in support() {
            if let Ok(i) = place(&groups, p) {
                let (sum, error) = numeric::two_sum(groups[i].sum, (v - origin) - all);
                (groups[i].sum, groups[i].low) = (sum, groups[i].low + error);
            }
        }
        for (out, (p, v)) in out.iter_mut().zip(p.iter().zip(v)) {
            *out = match place(&groups, *p) {
                _ if *p <= 0.0 => 0.0,
                Ok(i) => (groups[i].sum + groups[i].low) / groups[i].len as f64 / self.gamma,
                Err(_) => ((v - origin) - all) / self.gamma,
            };
        }
        true
    }

    fn has_neighbours(&self) -> bool {
        false
    }

    fn parameter_vjp_row(&self, z: &[f64], p: &[f64], v: &[f64], scratch: &mut Scratch) -> Option<f64> {
        self.gather(z, p, v, scratch);
        let Scratch { b: v, blocks, .. } = scratch;
        let (mut gradient, mut block) = (0.0, blocks.iter());
        // −(d − k) up to a constant, which the centring removes, is the rank k; its sum over G is known.
        prox::centred_means(v, blocks.iter().map(|block| block.len), |_, mean| {
            gradient += mean * block.next().map_or(0, |block| block.shift) as f64;
        });
        Some(gradient)
    }

    fn parameter_vjp_by(&self, row: &LongRow<'_>) -> Option<f64> {
        (self.lambda > 0.0).then(|| counted::slope(row))
    }

    /// Groups are read from the row: equal probabilities. That is what
    /// [`forward_row`](Mapping::forward_row) wrote; in a narrower type two groups may have been rounded to
    /// the same value. O(|S| log |S|), for the groups are scattered.
    fn support_vjp_row(&self, _index: &[u32], p: &[f64], v: &[f64], out: &mut [f64]) -> Option<()> {
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|i, j| p[*j].total_cmp(&p[*i]));
        let sorted: Vec<f64> = order.iter().map(|i| v[*i]).collect();
        let lengths = prox::runs(order.len(), |k| self.lambda > 0.0 && p[order[k]] == p[order[k - 1]]);
        prox::centred_means(&sorted, lengths, |group, mean| {
            for i in &order[group] {
                out[*i] = mean / self.gamma;
            }
        });
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
        StructuredKernel::new(Structure::Oscar(self.lambda), self.lambda, self.gamma)
    }
}

/// Entries that share a probability, and the sum of what comes in there, in two floats.
struct Pooled {
    p: f64,
    sum: f64,
    low: f64,
    len: usize,
}

/// Entries that are sorted at a time.
const PIECE: usize = 1 << 15;

/// How many such groups are few: half a megabyte.
const FEW: usize = 1 << 14;

impl Regularized for Oscarmax {
    fn gamma(&self) -> f64 {
        self.gamma
    }
    /// ½‖p‖² + λ Σ_{i<j} max(p_i, p_j), the sum as Σ (d − k) p_(k).
    fn omega(&self, p: &[f64]) -> f64 {
        let mut sorted: Vec<f64> = p.iter().copied().filter(|p| *p > 0.0).collect();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let pairs = numeric::sum(sorted.iter().enumerate().map(|(k, value)| (p.len() - 1 - k) as f64 * value));
        0.5 * numeric::dot(&sorted, &sorted) + self.lambda * pairs
    }
    /// In pieces of the sorted entries, the largest first: none is kept.
    fn omega_by(&self, each: Visit<'_>) -> f64 {
        let (mut d, mut pairs) = (0usize, numeric::Sum::default());
        each(&mut |_| d += 1);
        let (mut bound, mut rank, mut piece) = (f64::INFINITY, 0, Vec::with_capacity(2 * PIECE));
        loop {
            piece.clear();
            each(&mut |p| {
                if p > 0.0 && p < bound {
                    piece.push(p);
                    if piece.len() == 2 * PIECE {
                        piece.select_nth_unstable_by(PIECE, |a: &f64, b| b.total_cmp(a));
                        piece.truncate(PIECE);
                    }
                }
            });
            piece.sort_unstable_by(|a, b| b.total_cmp(a));
            let Some(least) = piece.last().copied() else { break };
            // Others that equal the least may have been left out: all of them come last.
            let larger = piece.partition_point(|p| *p > least);
            for p in &piece[..larger] {
                pairs.add((d - 1 - rank) as f64 * p);
                rank += 1;
            }
            let mut count = 0;
            each(&mut |p| count += usize::from(p == least));
            // Their ranks follow one another.
            pairs.add(least * (count as f64 * ((d - 1 - rank) as f64 - 0.5 * (count - 1) as f64)));
            (bound, rank) = (least, rank + count);
        }
        0.5 * numeric::sum_by(each, |p| p * p) + self.lambda * pairs.total()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prox::checks;
    use crate::{MappingExt, Sparsemax};

    fn oscarmax(lambda: f64, gamma: f64) -> Oscarmax {
        Oscarmax::new(lambda).unwrap().with_gamma(gamma).unwrap()
    }

    /// The largest violation of the optimality conditions, from scores and probabilities alone.
    ///
    /// `p` is optimal iff, with `g = z/γ − p − τ`, every group of equal `p > 0` that takes the ranks K
    /// has `g` majorised by `(λ(d−k))_{k ∈ K}` (the convex hull of its permutations), and the entries
    /// with `p = 0` weakly so (g may be lowered): largest partial sums at most those of the weights.
    fn violation(z: &[f64], p: &[f64], lambda: f64, gamma: f64) -> f64 {
        let d = p.len();
        let mut order: Vec<usize> = (0..d).collect();
        order.sort_by(|i, j| p[*j].total_cmp(&p[*i]).then(z[*j].total_cmp(&z[*i])));
        let weight = |k: usize| lambda * (d - 1 - k) as f64;
        let support = p.iter().filter(|p| **p > 0.0).count();
        let excess: f64 = (0..support).map(|k| z[order[k]] / gamma - p[order[k]] - weight(k)).sum();
        let tau = excess / support as f64;
        let (mut sum, mut worst) = (0.0f64, (p.iter().sum::<f64>() - 1.0).abs());
        for k in 0..d {
            // Within a group `order` descends in z, hence in g: these are the largest partial sums.
            sum += z[order[k]] / gamma - p[order[k]] - tau - weight(k);
            worst = worst.max(sum);
            if p[order[k]] > 0.0 && order.get(k + 1).is_none_or(|i| p[*i] < p[order[k]]) {
                worst = worst.max(sum.abs());
                sum = 0.0;
            }
        }
        worst
    }

    #[test]
    fn random_rows_are_optimal() {
        let mut rng = fastrand::Rng::with_seed(21);
        for round in 0..6000 {
            let d = if round % 100 == 0 { 1000 } else { rng.usize(1..30) };
            let (lambda, gamma) = (10f64.powf(rng.f64() * 3.0 - 3.0), 0.2 + rng.f64());
            let z = checks::row(&mut rng, d, round % 3 == 0);
            let p = oscarmax(lambda, gamma).apply(&z).unwrap();
            // Rounding of the test's own sums of d terms of size up to λd.
            let tolerance = 1e-13 * (1.0 + d as f64) * (1.0 + lambda * d as f64).min(100.0);
            assert!(violation(&z, &p, lambda, gamma) < tolerance, "{z:?} {lambda} {gamma} {p:?}");
        }
    }

    #[test]
    fn hand_computed_rows() {
        assert_eq!(oscarmax(0.3, 1.0).apply(&[-4.0]).unwrap(), [1.0]);
        // Two entries: the larger pays λ, so the difference 0.8 shrinks to 0.6.
        let p = oscarmax(0.2, 1.0).apply(&[0.8f64, 0.0]).unwrap();
        assert!((p[0] - 0.8).abs() < 1e-15 && (p[1] - 0.2).abs() < 1e-15);
        assert_eq!(oscarmax(0.8, 1.0).apply(&[0.8, 0.0]).unwrap(), [0.5, 0.5]);
        // γ multiplies both terms of Ω.
        assert_eq!(oscarmax(0.2, 2.0).apply(&[1.6, 0.0]).unwrap(), p);
        assert_eq!(oscarmax(0.1, 1.0).apply(&[7.0; 4]).unwrap(), [0.25; 4]);
    }

    #[test]
    fn omega_counts_every_pair() {
        // Pairs of (0.5, 0.2, 0.3): max 0.5, 0.5, 0.3; ½‖p‖² = 0.19.
        assert!((oscarmax(0.1, 1.0).omega(&[0.5, 0.2, 0.3]) - (0.19 + 0.13)).abs() < 1e-15);
        assert!((oscarmax(0.1, 1.0).omega(&[0.0, 1.0, 0.0]) - (0.5 + 0.2)).abs() < 1e-15);
    }

    #[test]
    fn limits_in_lambda() {
        let mut rng = fastrand::Rng::with_seed(22);
        for round in 0..500 {
            let d = rng.usize(1..20);
            let (z, v) = (checks::row(&mut rng, d, round % 2 == 0), checks::row(&mut rng, d, false));
            let (p, plain) = (oscarmax(0.0, 1.0).apply(&z).unwrap(), Sparsemax::new().apply(&z).unwrap());
            let (g, slope) = (oscarmax(0.0, 1.0).vjp(&z, &v).unwrap(), Sparsemax::new().vjp(&z, &v).unwrap());
            for i in 0..d {
                assert!((p[i] - plain[i]).abs() < 1e-15 && (g[i] - slope[i]).abs() < 1e-15);
            }
            for lambda in [1e3, 1e30, 1e200, f64::MAX] {
                let p = oscarmax(lambda, 1.0).apply(&z).unwrap();
                let first = p[0];
                assert!(p.iter().all(|p| *p == first && (p - 1.0 / d as f64).abs() < 1e-16), "{lambda} {p:?}");
            }
        }
    }

    #[test]
    fn permutations_shifts_and_ties_are_exact() {
        let mut rng = fastrand::Rng::with_seed(23);
        for _ in 0..2000 {
            let d = rng.usize(1..25);
            // On a grid of 2⁻¹⁰, so that the shift itself is exact and ties happen.
            let z: Vec<f64> = (0..d).map(|_| f64::from(rng.i32(0..1 << 10)) / 1024.0).collect();
            let m = oscarmax(rng.f64() * 0.03, 1.0);
            let p = m.apply(&z).unwrap();
            let mut order: Vec<usize> = (0..d).collect();
            rng.shuffle(&mut order);
            let shuffled = m.apply(&order.iter().map(|i| z[*i]).collect::<Vec<_>>()).unwrap();
            assert!(order.iter().zip(&shuffled).all(|(i, q)| p[*i].to_bits() == q.to_bits()));
            assert_eq!(m.apply(&z.iter().map(|z| z + 1e6).collect::<Vec<_>>()).unwrap(), p);
            for (i, j) in (0..d).flat_map(|i| (0..i).map(move |j| (i, j))) {
                assert!(z[i] != z[j] || p[i].to_bits() == p[j].to_bits());
            }
        }
    }

    #[test]
    fn gradients_match_differences() {
        checks::gradients(24, |lambda, gamma| Box::new(oscarmax(lambda, gamma)));
    }

    #[test]
    fn the_sparse_derivative_is_the_dense_one() {
        checks::sparse_derivative(25, |lambda, gamma| Box::new(oscarmax(lambda, gamma)));
    }

    #[test]
    fn extreme_rows() {
        checks::extremes(|lambda, gamma| Box::new(oscarmax(lambda, gamma)));
    }

    #[test]
    fn parameters_out_of_range_are_errors() {
        for lambda in [-1e-9, f64::NAN, f64::INFINITY] {
            assert!(Oscarmax::new(lambda).is_err());
        }
        assert!(oscarmax(0.1, 1.0).with_gamma(0.0).is_err());
    }
}
