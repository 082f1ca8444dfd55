//! Euclidean projection onto the simplex: `Σ [x_i − τ]₊ = 1`.
//!
//! On a set `A ⊇ S` of active entries the root of `Σ_A (x − τ) = 1` is `τ_A = (Σ_A x − 1)/|A|`, and
//! `τ_A ≤ τ`. Dropping the entries that are not above `τ_A` and solving again is Newton's method on
//! a convex function (Michelot 1986), so the bound of [the module](super) holds. No sort, and no copy:
//! the active entries are those of the row above the last `τ_A`.

use crate::numeric;

/// Replaces `x` by its projection onto the simplex and returns τ.
///
/// `x` must hold at least one entry, all finite.
pub(crate) fn project(x: &mut [f64]) -> f64 {
    let top = numeric::max(x);
    for x in x.iter_mut() {
        *x -= top;
    }
    let tau = shifted_threshold(x);
    for x in x.iter_mut() {
        *x = (*x - tau).max(0.0);
    }
    numeric::polish(x, 1.0, |_| 1.0);
    tau + top
}

/// Replaces raw scores by the sparsemax of strength `gamma` and returns τ.
pub(crate) fn solve(z: &mut [f64], gamma: f64) -> f64 {
    // Subtract first: the difference of two close scores is exact, their quotients by γ are not.
    let top = numeric::max(z);
    for z in z.iter_mut() {
        *z = (*z - top) / gamma;
    }
    project(z) + top / gamma
}

/// τ of entries whose maximum is 0.
fn shifted_threshold(x: &[f64]) -> f64 {
    // τ ≥ −1: an entry one below the maximum has no mass.
    let (mut tau, mut active) = (-1.0, usize::MAX);
    loop {
        let mut above = 0;
        let sum = numeric::sum(x.iter().copied().filter(|x| *x > tau).inspect(|_| above += 1));
        // Not fewer than before: τ belongs to them. More of them only if rounding has lowered it.
        if above >= active {
            return tau;
        }
        // The maximum, 0, is above every τ_A < 0, so the set never empties.
        tau = (sum - 1.0) / above as f64;
        active = above;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn projects_a_hand_computed_row() {
        // Support {1.0, 0.8}: τ = (1.8 − 1)/2 = 0.4; 0.1 < τ.
        let mut x = [1.0, 0.1, 0.8];
        let tau = project(&mut x);
        assert!((tau - 0.4).abs() < 1e-15);
        assert!((x[0] - 0.6).abs() < 1e-15 && x[1] == 0.0 && (x[2] - 0.4).abs() < 1e-15);
    }

    #[test]
    fn sum_holds_when_a_million_entries_share_little() {
        let mut x = vec![-0.5; 1_000_001];
        x[7] = 0.0;
        project(&mut x);
        assert!((numeric::sum(x.iter().copied()) - 1.0).abs() < 4e-16);
    }

    #[test]
    fn geometric_rows_need_few_passes() {
        // Built so that each pass can drop only the smallest entries; the bound still holds.
        let mut active: Vec<f64> = (0..2000).map(|i| -0.9 * (i as f64 / 2000.0).powi(8)).collect();
        let want = shifted_threshold(&active);
        let mut passes = 0;
        loop {
            let before = active.len();
            let tau = (numeric::sum(active.iter().copied()) - 1.0) / before as f64;
            active.retain(|x| *x > tau);
            passes += 1;
            if active.len() == before {
                assert_eq!(tau, want);
                break;
            }
        }
        assert!(passes <= 32, "{passes}");
    }
}
