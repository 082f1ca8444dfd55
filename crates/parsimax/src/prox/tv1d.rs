//! The proximal operator of one-dimensional total variation:
//! `argmin_x ½‖x − y‖² + λ Σ |x_{i+1} − x_i|`.
//!
//! **As a string.** Let `r_k = y_1 + … + y_k`. The solution's partial sums are the shortest path from
//! `(0, 0)` to `(d, r_d)` inside the tube `r_k ± λ`: a taut string. `x` is its slope, constant between
//! two bends, so the entries between two bends form a fused group.
//!
//! **Algorithm.** From the last bend on, keep the convex minorant of the tube's upper wall and the
//! concave majorant of its lower wall, as far as the tube has been seen. The string's next slope lies
//! between the first slope `l` of the majorant and the first slope `u` of the minorant. A new point of
//! the tube is appended to both, joining segments from the end until they are convex and concave
//! again. If that makes `l > u`, one of them has become a single segment, say the majorant: then the
//! string bends at the end of the minorant's first segment, which is final. From the new bend the
//! majorant is still one segment: before the new point it lay below the line of slope `u`, and the
//! line to the new point is steeper than that.
//!
//! **Cost.** A point enters each hull once, and every join or bend removes a segment for good: O(d) in
//! the worst case. (Restarting both hulls at a bend, as the direct algorithm does, is O(d²).)
//!
//! **Digits.** A segment carries the sum of its own entries, not a difference of partial sums, and its
//! distance from the walls as an integer multiple of λ ([`Block`]).
//!
//! **Ties.** Equal neighbours end in one group: if `x_i > x_{i+1}`, the string touches a wall between
//! them, and then `y_i ≥ x_i > x_{i+1} ≥ y_{i+1}`. They enter as one, so that it is true of every
//! rounding, too.
//!
//! Davies & Kovac 2001; Condat 2013 for the direct algorithm.

use super::Block;

/// Scratch memory: both hulls.
#[derive(Debug, Default)]
pub(crate) struct Tube {
    upper: Hull,
    lower: Hull,
}

/// The segments from the last bend on; those before `head` are spent.
#[derive(Debug, Default)]
struct Hull {
    segments: Vec<Block>,
    head: usize,
}

impl Hull {
    fn clear(&mut self) {
        self.segments.clear();
        self.head = 0;
    }

    fn reset_to(&mut self, segment: Block) {
        self.clear();
        self.segments.push(segment);
    }

    /// The segment that leaves the last bend.
    fn first(&self) -> Block {
        self.segments[self.head]
    }

    fn is_single(&self) -> bool {
        self.segments.len() - self.head == 1
    }

    fn pop_first(&mut self) -> Block {
        self.head += 1;
        self.segments[self.head - 1]
    }

    /// Appends a segment, joining it with those before it for as long as `corner(before, after)` denies
    /// that the two make a corner.
    fn push(&mut self, mut next: Block, lambda: f64, corner: impl Fn(&Block, &Block) -> bool) {
        while self.segments.len() > self.head {
            let last = self.segments[self.segments.len() - 1];
            if corner(&last, &next) {
                break;
            }
            self.segments.pop();
            next = last.join(next, lambda);
        }
        self.segments.push(next);
    }
}

/// Replaces `x` by its prox. Entries of a group get the same bits.
pub(crate) fn prox(x: &mut [f64], lambda: f64, Tube { upper, lower }: &mut Tube) {
    let d = x.len();
    if d < 2 || lambda == 0.0 {
        return;
    }
    upper.clear();
    lower.clear();
    let (mut bend, mut seen) = (0, 0);
    while seen < d {
        let run = equal_run(&x[seen..], lambda);
        // The tube begins and ends in a point, where its walls meet.
        let wall = i64::from(seen == 0) - i64::from(seen + run.len == d);
        upper.push(run.shifted(wall, lambda), lambda, |before, after| after.exceeds(before, lambda));
        lower.push(run.shifted(-wall, lambda), lambda, |before, after| before.exceeds(after, lambda));
        seen += run.len;
        while lower.first().exceeds(&upper.first(), lambda) {
            let (followed, other) = match (upper.is_single(), lower.is_single()) {
                (false, true) => (&mut *upper, &mut *lower),
                (true, false) => (&mut *lower, &mut *upper),
                // Two single segments cross by rounding alone.
                _ => break,
            };
            let last = followed.pop_first();
            other.reset_to(other.first().without(last, lambda));
            // What has been seen is no longer needed: the answer may take its place.
            x[bend..bend + last.len].fill(last.mean);
            bend += last.len;
        }
    }
    // Both hulls now end in the same point, so what is left is one straight piece.
    let mut rest = upper.pop_first();
    while upper.head < upper.segments.len() {
        rest = rest.join(upper.pop_first(), lambda);
    }
    x[bend..].fill(rest.mean);
}

/// The equal entries that `x` begins with, as one block.
fn equal_run(x: &[f64], lambda: f64) -> Block {
    let first = Block::new(x[0], 0, lambda);
    x[1..].iter().take_while(|y| **y == x[0]).fold(first, |run, _| run.join(first, lambda))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(y: &[f64], lambda: f64) -> Vec<f64> {
        let mut x = y.to_vec();
        prox(&mut x, lambda, &mut Tube::default());
        x
    }

    /// The largest violation of the optimality conditions: with `u_k = Σ_{i≤k} (y_i − x_i)`, `|u_k| ≤ λ`,
    /// `u_k = λ·sign(x_k − x_{k+1})` at a step, and `u_d = 0`.
    fn violation(y: &[f64], x: &[f64], lambda: f64) -> f64 {
        let (mut u, mut worst) = (0.0f64, 0.0f64);
        for k in 0..x.len() {
            u += y[k] - x[k];
            worst = worst.max(match x.get(k + 1) {
                None => u.abs(),
                Some(next) if *next == x[k] => u.abs() - lambda,
                Some(next) => (u - lambda * (x[k] - next).signum()).abs(),
            });
        }
        worst
    }

    #[test]
    fn hand_computed_rows() {
        // Two entries move towards each other by λ until they meet.
        assert_eq!(solve(&[1.0, 0.0], 0.25), [0.75, 0.25]);
        assert_eq!(solve(&[1.0, 0.0], 0.5), [0.5, 0.5]);
        assert_eq!(solve(&[1.0, 0.0], 7.0), [0.5, 0.5]);
        // A peak comes down by 2λ, its neighbours rise by λ.
        assert_eq!(solve(&[0.0, 2.0, 0.5], 0.25), [0.25, 1.5, 0.75]);
        // At λ = 0.75 the peak has met the right: (2 + 0.5 − λ)/2 = 0.875, and the left is at λ.
        assert_eq!(solve(&[0.0, 2.0, 0.5], 0.75), [0.75, 0.875, 0.875]);
        assert_eq!(solve(&[3.0], 1.0), [3.0]);
        assert_eq!(solve(&[3.0, 1.0], 0.0), [3.0, 1.0]);
        assert_eq!(solve(&[], 1.0), [0.0; 0]);
    }

    #[test]
    fn random_rows_are_optimal() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..4000 {
            let d = rng.usize(1..40);
            let lambda = 10f64.powf(rng.f64() * 4.0 - 3.0);
            // Every third row on a coarse grid, so that ties and exact touches happen.
            let y: Vec<f64> = (0..d)
                .map(|_| if round % 3 == 0 { f64::from(rng.i32(-3..4)) } else { rng.f64() * 4.0 - 2.0 })
                .collect();
            let lambda = if round % 3 == 0 { lambda.ceil() / 2.0 } else { lambda };
            let x = solve(&y, lambda);
            // d·ulp(d·max|y|) bounds the rounding of the test's own partial sums.
            assert!(violation(&y, &x, lambda) < 1e-12 * (1.0 + lambda), "{y:?} {lambda} {x:?}");
        }
    }

    #[test]
    fn scores_ulps_apart_lose_no_more_than_an_ulp() {
        // |x − y| ≤ 2λ holds exactly; the last digit of x is rounded.
        let mut rng = fastrand::Rng::with_seed(4);
        for _ in 0..1000 {
            let lambda = 10f64.powf(-14.0 - rng.f64() * 6.0);
            let y: Vec<f64> = (0..rng.usize(1..1000)).map(|_| 1.0 + f64::from(rng.u8(0..64)) * f64::EPSILON).collect();
            let worst = solve(&y, lambda).iter().zip(&y).fold(0.0, |worst, (x, y)| f64::max(worst, (x - y).abs()));
            assert!(worst <= 2.0 * lambda + f64::EPSILON, "{} {lambda}", (worst - 2.0 * lambda) / f64::EPSILON);
        }
    }

    #[test]
    fn equal_neighbours_stay_equal() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..2000 {
            let y: Vec<f64> = (0..30).map(|_| f64::from(rng.i32(0..4)) * 0.1).collect();
            let x = solve(&y, rng.f64() * 0.3 + 1e-6);
            for k in 1..y.len() {
                assert!(y[k] != y[k - 1] || x[k].to_bits() == x[k - 1].to_bits());
            }
        }
    }

    #[test]
    fn long_rows_of_every_shape() {
        // Inputs on which restarting at each bend, or keeping long hulls, would be quadratic.
        let d = 1 << 20;
        type Shape = (&'static str, fn(usize) -> f64);
        let shapes: [Shape; 6] = [
            ("alternating", |i| if i % 2 == 0 { 1.0 } else { -1.0 }),
            ("rising", |i| i as f64 * 1e-3),
            ("falling", |i| -(i as f64) * 1e-3),
            ("geometric", |i| 0.999_99f64.powi(i as i32) * if i % 2 == 0 { 1.0 } else { -1.0 }),
            ("parabola", |i| (i as f64 * 1e-6 - 0.5).powi(2)),
            ("sawtooth", |i| (i % 1000) as f64 * 1e-3),
        ];
        for (name, shape) in shapes {
            let y: Vec<f64> = (0..d).map(shape).collect();
            for lambda in [1e-3, 1.0, 1e3] {
                let x = solve(&y, lambda);
                // The test's own sum u of a million terms of size up to 10³ rounds by 10⁻⁷ at most.
                assert!(violation(&y, &x, lambda) < 1e-5 * (1.0 + lambda), "{name} {lambda}");
            }
        }
    }
}
