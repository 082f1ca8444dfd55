//! Sums that keep their digits, and the last correction of a distribution.

use crate::Float;

/// The sum of `x`, as if added in twice the working precision and rounded once.
///
/// Knuth's two-sum catches the rounding error of every addition; four independent lanes keep the
/// processor busy.
#[inline]
pub(crate) fn sum(x: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut x) = (Sum::default(), x.into_iter());
    loop {
        // Lanes that are known to the compiler stay in registers.
        for lane in 0..LANES {
            let Some(x) = x.next() else { return sum.total() };
            sum.add_to(lane, x);
        }
    }
}

/// Independent parts of a sum.
const LANES: usize = 4;

/// Such a sum while it grows.
#[derive(Default)]
pub(crate) struct Sum {
    high: [f64; LANES],
    low: [f64; LANES],
    lane: usize,
}

impl Sum {
    #[inline]
    pub(crate) fn add(&mut self, x: f64) {
        self.add_to(self.lane, x);
        self.lane = (self.lane + 1) % LANES;
    }

    #[inline]
    fn add_to(&mut self, lane: usize, x: f64) {
        let (s, e) = two_sum(self.high[lane], x);
        self.high[lane] = s;
        self.low[lane] += e;
    }

    #[inline]
    pub(crate) fn total(self) -> f64 {
        let Self { high, low, .. } = self;
        let (a, ea) = two_sum(high[0], high[1]);
        let (b, eb) = two_sum(high[2], high[3]);
        let (c, ec) = two_sum(a, b);
        c + (ea + eb + ec + (low[0] + low[1]) + (low[2] + low[3]))
    }
}

/// `Σ g(p)` of entries that are handed out.
pub(crate) fn sum_by(each: crate::mapping::Visit<'_>, g: impl Fn(f64) -> f64) -> f64 {
    let mut sum = Sum::default();
    each(&mut |p| sum.add(g(p)));
    sum.total()
}

/// [`norm`] of entries that are handed out.
pub(crate) fn norm_by(each: crate::mapping::Visit<'_>, alpha: f64) -> f64 {
    let mut top = 0.0f64;
    each(&mut |p| top = top.max(p));
    if top == 0.0 {
        return 0.0;
    }
    top * sum_by(each, |p| if p > 0.0 { (p / top).powf(alpha) } else { 0.0 }).powf(1.0 / alpha)
}

/// `a + b` and the error of that rounded sum.
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// `<a, b>` with a compensated sum.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    sum(a.iter().zip(b).map(|(a, b)| a * b))
}

/// `Σ p log p`, the negative Shannon entropy, with `0 log 0 = 0`.
pub(crate) fn negative_entropy(p: &[f64]) -> f64 {
    sum(p.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()))
}

/// `‖p‖_α` of entries ≥ 0, measured in units of the largest so that no power underflows.
pub(crate) fn norm<T: Float>(p: &[T], alpha: f64) -> f64 {
    let p = || p.iter().map(|p| p.widen());
    let top = p().fold(0.0, f64::max);
    if top == 0.0 {
        return 0.0;
    }
    top * sum(p().filter(|p| *p > 0.0).map(|p| (p / top).powf(alpha))).powf(1.0 / alpha)
}

/// `p` divided by its sum.
pub(crate) fn normalise<T: Float>(p: &mut [T]) {
    let total = sum(p.iter().map(|p| p.widen()));
    for p in p.iter_mut() {
        *p = T::narrow(p.widen() / total);
    }
}

/// Turns log-weights, the largest of which is 0, into log-probabilities.
///
/// The first largest weighs exactly 1; `log1p` keeps what the others add to it, so that the logarithm of a
/// probability close to 1 has its digits.
pub(crate) fn log_normalise(log: &mut [f64]) {
    let first = log.iter().position(|l| *l == 0.0);
    let others = log.iter().enumerate().filter(|(i, _)| Some(*i) != first);
    let total = sum(others.map(|(_, l)| l.exp())).ln_1p();
    log.iter_mut().for_each(|l| *l -= total);
}

/// The largest entry; −∞ for an empty slice.
pub(crate) fn max<T: Float>(x: &[T]) -> f64 {
    x.iter().map(|x| x.widen()).fold(f64::NEG_INFINITY, f64::max)
}

/// Moves `p` onto the simplex by one Newton step in its own coordinates.
///
/// A threshold is rounded, and with |S| supported entries its error reaches the sum |S| times. The
/// residual `r = target − Σp` is known to the last digit, and to first order the exact solution is
/// `p + r·s/Σs`, where `s` is the diagonal of the mapping's Jacobian before centring.
pub(crate) fn polish(p: &mut [f64], target: f64, weight: impl Fn(f64) -> f64) {
    let residual = target - sum(p.iter().copied());
    let total: f64 = p.iter().filter(|p| **p > 0.0).map(|p| weight(*p)).sum();
    if residual == 0.0 || !(total > 0.0 && total.is_finite()) {
        return;
    }
    let step = residual / total;
    for p in p.iter_mut().filter(|p| **p > 0.0) {
        *p = (*p + step * weight(*p)).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_keeps_what_plain_addition_drops() {
        // 1 + 10^6 · 10⁻¹⁷ = 1 + 10⁻¹¹; plain addition never leaves 1.
        let x = std::iter::once(1.0).chain(std::iter::repeat_n(1e-17, 1_000_000));
        assert!((sum(x) - (1.0 + 1e-11)).abs() < 2e-16);
    }

    #[test]
    fn polish_restores_the_sum_along_the_weights() {
        let mut p = [0.5, 0.25, 0.0, 0.2];
        polish(&mut p, 1.0, |_| 1.0);
        assert_eq!(p[2], 0.0);
        assert!((sum(p) - 1.0).abs() < 1e-16 && (p[0] - (0.5 + 0.05 / 3.0)).abs() < 1e-16);
    }
}
