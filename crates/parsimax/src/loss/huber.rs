//! The modified Huber loss: the sparsemax loss of two classes as a function of the margin.

/// The modified Huber loss of the margin $t = z_{\text{gold}} - z_{\text{other}}$ (Martins &
/// Astudillo 2016, Eq. 23):
/// `$$\ell(t) = \begin{cases} 0 & t \ge 1 \\\\ -t & t \le -1 \\\\ (t-1)^2/4 & \text{otherwise.}\end{cases}$$`
///
/// It equals the [`FenchelYoung`](super::FenchelYoung) loss of [`Sparsemax`](crate::Sparsemax) on
/// two classes, γ = 1. NaN gives NaN.
///
/// ```
/// use parsimax::loss::modified_huber;
/// // A margin of 0: (0 − 1)²/4.
/// assert_eq!(modified_huber(0.0), 0.25);
/// assert_eq!((modified_huber(1.0), modified_huber(-3.0)), (0.0, 3.0));
/// ```
#[must_use]
pub fn modified_huber(t: f64) -> f64 {
    if t >= 1.0 {
        0.0
    } else if t <= -1.0 {
        -t
    } else {
        0.25 * (t - 1.0) * (t - 1.0)
    }
}

/// The derivative of [`modified_huber`]: 0 from the margin 1 on, −1 up to −1, $(t-1)/2$ between.
///
/// ```
/// assert_eq!(parsimax::loss::modified_huber_derivative(0.5), -0.25);
/// ```
#[must_use]
pub fn modified_huber_derivative(t: f64) -> f64 {
    if t >= 1.0 {
        0.0
    } else if t <= -1.0 {
        -1.0
    } else {
        0.5 * (t - 1.0)
    }
}
