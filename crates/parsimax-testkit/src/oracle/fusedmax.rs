//! fusedmax: p maximises <p, z> − γ(½‖p‖² + λ Σ|pᵢ₊₁ − pᵢ|) over the simplex.
//!
//! Removed entries are no neighbours: the row closes over them. With x = z/γ the problem is to
//! minimise P(p) = ½‖p‖² − <p, x> + λ Σ|pᵢ₊₁ − pᵢ|, three ways that share no step:
//!
//! * [`fusedmax`], any d: the total-variation prox y of x, projected onto the simplex. The prox follows
//!   the dual path: at λ = ∞ all entries form one group; as λ falls, groups split and never merge. The
//!   dual variable inside a group is affine in λ, so each split happens at a λ in closed form.
//! * [`fusedmax_brute`], d ≤ 6: every grouping, every sign of the jumps, every set of groups at zero has
//!   one candidate in closed form; the best feasible one is the optimum.
//! * [`fusedmax_gap`], any d: every u with |uⱼ| ≤ λ bounds the optimum from below by
//!   D(u) = min over the simplex of ½‖p‖² − <p, x − Dᵀu>, a plain projection. P is strongly convex, so
//!   ½‖p − p*‖² ≤ P(p) − D(u): a small gap proves p, wherever u comes from.

use super::sparsemax::project;
use super::{Big, Row, dot, zeros};

/// fusedmax of z/γ; the answer has passed its own duality gap.
pub fn fusedmax(z: &[f64], lambda: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    let lambda = weight(lambda);
    let p = project(&tv_prox(&row.x, &lambda)).0;
    let value = objective(&row.x, &lambda, &p);
    let gap = &value - dual_value(&row.x, &lambda);
    let tolerance = Big::from_f64(1e-60) * (Big::one() + value.abs());
    assert!(gap.abs() < tolerance, "duality gap {gap:?}");
    row.scatter(p)
}

/// fusedmax by enumeration, for at most six live entries.
pub fn fusedmax_brute(z: &[f64], lambda: f64, gamma: f64) -> Vec<Big> {
    let Some(row) = Row::new(z, gamma) else {
        return zeros(z.len());
    };
    assert!(row.x.len() <= 6, "enumeration of {} entries", row.x.len());
    let lambda = weight(lambda);
    let candidates = structures(row.x.len());
    let feasible = candidates.iter().filter_map(|s| candidate(&row.x, &lambda, s));
    let best = feasible.min_by_key(|p| objective(&row.x, &lambda, p));
    row.scatter(best.expect("one group of everything is feasible"))
}

/// How far `p` is from optimal in <p, z> − γΩ(p), by a dual certificate; ½γ‖p − p*‖² is at most this.
///
/// `p` is divided by its sum first. +∞ if an entry is negative or not finite, if a removed entry is
/// not 0, or if the sum is off by more than 1e−3.
pub fn fusedmax_gap(z: &[f64], lambda: f64, gamma: f64, p: &[f64]) -> f64 {
    let Some(row) = Row::new(z, gamma) else {
        return 0.0;
    };
    let Some(p) = row.feasible(p) else {
        return f64::INFINITY;
    };
    let lambda = weight(lambda);
    let gap = objective(&row.x, &lambda, &p) - dual_value(&row.x, &lambda);
    (gap * Big::from_f64(gamma)).to_f64()
}

fn weight(lambda: f64) -> Big {
    assert!(lambda >= 0.0 && lambda.is_finite(), "λ = {lambda}");
    Big::from_f64(lambda)
}

/// Σ|pᵢ₊₁ − pᵢ|.
pub(super) fn variation(p: &[Big]) -> Big {
    p.windows(2).map(|pair| (&pair[1] - &pair[0]).abs()).sum()
}

/// P(p).
fn objective(x: &[Big], lambda: &Big, p: &[Big]) -> Big {
    Big::half_pow(1) * dot(p, p) - dot(p, x) + lambda * variation(p)
}

/// D(u) for the u of the prox: uⱼ = Σ_{i<j} (yᵢ − xᵢ), forced into [−λ, λ].
fn dual_value(x: &[Big], lambda: &Big) -> Big {
    let y = tv_prox(x, lambda);
    let mut u = vec![Big::zero()];
    for i in 0..x.len() {
        let next = &u[i] + &y[i] - &x[i];
        u.push(next.max(-lambda).min(lambda.clone()));
    }
    // uⱼ belongs to the jump between j − 1 and j; there is none at the two ends.
    u[x.len()] = Big::zero();
    let tilted: Vec<Big> = (0..x.len()).map(|i| &x[i] - &u[i] + &u[i + 1]).collect();
    let p = project(&tilted).0;
    Big::half_pow(1) * dot(&p, &p) - dot(&p, &tilted)
}

/// A run of equal entries `start..end`, with the signs of the jumps before and after it (0 at the ends
/// of the row): its value is the mean of x plus λ(after − before)/length.
#[derive(Clone, Copy)]
struct Group {
    start: usize,
    end: usize,
    before: i32,
    after: i32,
}

impl Group {
    fn len(&self) -> usize {
        self.end - self.start
    }

    /// The value of the group in the prox.
    fn level(&self, x: &[Big], lambda: &Big) -> Big {
        let sum: Big = x[self.start..self.end].iter().sum();
        (sum + lambda * signed(self.after - self.before)) / Big::from_usize(self.len())
    }

    /// The greatest λ at which the group splits, with the place and the sign of the jump.
    fn split(&self, x: &[Big]) -> Option<(Big, usize, i32)> {
        let mean = self.level(x, &Big::zero());
        let mut drift = Big::zero();
        let mut best: Option<(Big, usize, i32)> = None;
        for j in self.start + 1..self.end {
            drift = drift + &mean - &x[j - 1];
            // u_j(λ) = drift + slope·λ reaches sign·λ.
            let part = Big::from_usize(j - self.start) / Big::from_usize(self.len());
            let slope = signed(self.before) + part * signed(self.after - self.before);
            let sign = if drift.is_positive() { 1 } else { -1 };
            let closing = Big::one() - signed(sign) * slope;
            if drift.is_zero() || !closing.is_positive() {
                continue;
            }
            let lambda = drift.abs() / closing;
            if best.as_ref().is_none_or(|b| lambda > b.0) {
                best = Some((lambda, j, sign));
            }
        }
        best
    }
}

/// A small integer with its sign.
fn signed(n: i32) -> Big {
    Big::from_f64(f64::from(n))
}

/// argmin of ½‖y − x‖² + λ Σ|yᵢ₊₁ − yᵢ|.
fn tv_prox(x: &[Big], lambda: &Big) -> Vec<Big> {
    let mut open = vec![Group { start: 0, end: x.len(), before: 0, after: 0 }];
    let mut y = zeros(x.len());
    while let Some(group) = open.pop() {
        match group.split(x).filter(|split| split.0 > *lambda) {
            Some((_, at, sign)) => {
                open.push(Group { end: at, after: sign, ..group });
                open.push(Group { start: at, before: sign, ..group });
            }
            None => y[group.start..group.end].fill(group.level(x, lambda)),
        }
    }
    y
}

/// A guess of what the optimum looks like: its groups, and which of them are at zero.
type Structure = Vec<(Group, bool)>;

/// Every structure of `d` entries.
fn structures(d: usize) -> Vec<Structure> {
    let mut open: Vec<Structure> = vec![Vec::new()];
    let mut complete = Vec::new();
    while let Some(prefix) = open.pop() {
        let (start, before) = prefix.last().map_or((0, 0), |(g, _)| (g.end, g.after));
        for end in start + 1..=d {
            let jumps: &[i32] = if end == d { &[0] } else { &[-1, 1] };
            for (&after, zero) in jumps.iter().flat_map(|a| [(a, false), (a, true)]) {
                let mut longer = prefix.clone();
                longer.push((Group { start, end, before, after }, zero));
                if end == d { complete.push(longer) } else { open.push(longer) }
            }
        }
    }
    complete
}

/// The only point that can be optimal with this structure, if it is on the simplex.
fn candidate(x: &[Big], lambda: &Big, structure: &Structure) -> Option<Vec<Big>> {
    let positive = || structure.iter().filter(|(_, zero)| !zero).map(|(group, _)| group);
    let size: usize = positive().map(Group::len).sum();
    if size == 0 {
        return None;
    }
    let mass: Big = positive().map(|g| g.level(x, lambda) * Big::from_usize(g.len())).sum();
    let tau = (mass - Big::one()) / Big::from_usize(size);
    let mut p = zeros(x.len());
    for group in positive() {
        let level = group.level(x, lambda) - &tau;
        if level < Big::zero() {
            return None;
        }
        p[group.start..group.end].fill(level);
    }
    Some(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::testing::{assert_near, scores};
    use crate::oracle::{sparsemax, to_f64};

    #[test]
    fn known_values() {
        // No fusing: sparsemax. Full fusing: uniform.
        let z = [0.5, 0.0, 0.25];
        assert_near(&fusedmax(&z, 0.0, 1.0), &sparsemax(&z, 1.0), 1e-90);
        assert_near(&fusedmax(&z, 10.0, 1.0), &vec![Big::one() / Big::from_usize(3); 3], 1e-90);
        // Two entries: the distance 1 shrinks by 2λ.
        assert_eq!(to_f64(&fusedmax(&[1.0, 0.0], 0.25, 1.0)), [0.75, 0.25]);
        assert_eq!(to_f64(&fusedmax(&[1.0, f64::NEG_INFINITY, 0.0], 0.25, 1.0)), [0.75, 0.0, 0.25]);
        assert_eq!(to_f64(&fusedmax(&[f64::NEG_INFINITY], 0.25, 1.0)), [0.0]);
    }

    #[test]
    fn the_path_agrees_with_enumeration() {
        let mut rng = fastrand::Rng::with_seed(16);
        for d in [1, 2, 3, 4, 4, 5, 5, 5, 6] {
            let z = scores(&mut rng, d, 1.0);
            let lambda = [0.01, 0.1, 0.3][rng.usize(..3)];
            let brute = fusedmax_brute(&z, lambda, 0.6);
            assert_near(&fusedmax(&z, lambda, 0.6), &brute, 1e-40);
        }
    }

    #[test]
    fn the_gap_proves_the_optimum_and_exposes_the_rest() {
        let mut rng = fastrand::Rng::with_seed(17);
        for d in [2, 5, 30, 100] {
            let z = scores(&mut rng, d, 1.0);
            let exact = to_f64(&fusedmax(&z, 0.05, 0.4));
            // What remains is the rounding of p to f64, times slopes of order 1.
            assert!(fusedmax_gap(&z, 0.05, 0.4, &exact) < 1e-14);
            let mut wrong = exact.clone();
            let top = (0..d).max_by(|&i, &j| exact[i].total_cmp(&exact[j])).expect("d > 0");
            wrong[top] -= 1e-3;
            wrong[(top + 1) % d] += 1e-3;
            let distance = 2.0 * 1e-6;
            assert!(fusedmax_gap(&z, 0.05, 0.4, &wrong) >= 0.5 * 0.4 * distance * 0.99);
        }
        assert_eq!(fusedmax_gap(&[0.0, 1.0], 0.1, 1.0, &[-0.5, 1.5]), f64::INFINITY);
        assert_eq!(fusedmax_gap(&[0.0, 1.0], 0.1, 1.0, &[0.5, f64::NAN]), f64::INFINITY);
    }
}
