//! Softmax: the mapping whose threshold, the log-sum-exp, is a closed form.

use crate::numeric;

/// Replaces raw scores by their softmax at temperature `gamma`.
pub(crate) fn solve(z: &mut [f64], gamma: f64) {
    let top = numeric::max(z);
    for z in z.iter_mut() {
        *z = ((*z - top) / gamma).exp();
    }
    let total = numeric::sum(z.iter().copied());
    for z in z.iter_mut() {
        *z /= total;
    }
}
