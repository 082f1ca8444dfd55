//! The zero of a monotone function, to the last digits of [`Big`].
//!
//! Newton's method inside a bracket: a step that would leave the bracket is replaced by a
//! bisection, so the search cannot fail, and the last steps double the digits. Each oracle checks
//! its own answer afterwards (Σp = 1), so nothing rests on the convergence theory.

use super::big::{BITS, Big};

/// Evaluations after which a search is declared broken; bisection alone needs about `BITS`.
const LIMIT: usize = 4 * BITS;

/// Finds x in `[low, high]` with f(x) = 0 for a decreasing f, given as x ↦ (f(x), f′(x)).
///
/// Newton's last step is below 2⁻¹⁶⁰ of the scale, hence its error below 2⁻³²⁰ times the curvature.
///
/// # Panics
/// If the search does not end, which means that f is not decreasing.
pub(crate) fn decreasing_root(mut low: Big, mut high: Big, start: Big, mut f: impl FnMut(&Big) -> (Big, Big)) -> Big {
    let half = Big::half_pow(1);
    let mut x = start;
    for _ in 0..LIMIT {
        let (value, slope) = f(&x);
        if value.is_zero() {
            return x;
        }
        if value.is_positive() {
            low = x.clone();
        } else {
            high = x.clone();
        }
        let scale = low.abs() + high.abs();
        if &high - &low <= &scale * Big::half_pow(BITS - 8) {
            return (low + high) * half;
        }
        let slack = &scale * Big::half_pow(BITS / 2);
        let newton = (!slope.is_zero()).then(|| &x - &value / &slope);
        let inside = newton.filter(|n| *n >= &low - &slack && *n <= &high + &slack);
        let Some(newton) = inside else {
            x = (&low + &high) * &half;
            continue;
        };
        let step = (&newton - &x).abs();
        x = newton;
        if step <= slack {
            return x;
        }
    }
    panic!("no zero between {low:?} and {high:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_roots_of_smooth_and_of_kinked_functions() {
        let two = Big::from_usize(2);
        let smooth = decreasing_root(Big::zero(), two.clone(), Big::one(), |x| (&two - x * x, -(&two * x)));
        assert!((smooth - two.sqrt()).abs() < Big::half_pow(310));

        // max(1 − 1000x, 0) − x/1000: flat to the right of its kink, steep to the left.
        let thousand = Big::from_usize(1000);
        let kinked = decreasing_root(Big::zero(), Big::from_usize(9), Big::from_usize(9), |x| {
            let steep = Big::one() - &thousand * x;
            let slope = -(Big::one() / &thousand);
            let left = steep.is_positive();
            (steep.positive_part() - x / &thousand, if left { slope - &thousand } else { slope })
        });
        let expected = Big::one() / (&thousand + Big::one() / &thousand);
        assert!((kinked - expected).abs() < Big::half_pow(310));
    }
}
