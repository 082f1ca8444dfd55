//! Fitting one model: $\frac{\lambda}{2}\lVert W\rVert^2 + \sum_i w_i L(z_i; y_i) / \sum_i w_i$ over
//! weights and bias, the bias free of the penalty.

use crate::features::column_sums;
use crate::loss::Work;
use crate::minimize::{Report, Stop, minimize};
use crate::{Error, Features, Loss, Result, Targets};

/// Weights and bias of a linear model.
#[derive(Debug, Clone, PartialEq)]
pub struct Coefficients {
    /// `features × labels`, row-major, and then one bias per label.
    pub(crate) values: Vec<f64>,
    /// The number of labels.
    pub(crate) labels: usize,
}

impl Coefficients {
    /// All zeros.
    #[must_use]
    pub fn zeros(features: usize, labels: usize) -> Self {
        Self { values: vec![0.0; (features + 1) * labels], labels }
    }

    /// From their parts: `features × labels` weights, row-major, and a bias per label.
    ///
    /// # Errors
    /// If the lengths do not fit.
    pub fn from_parts(mut weights: Vec<f64>, bias: &[f64]) -> Result<Self> {
        if bias.is_empty() || !weights.len().is_multiple_of(bias.len()) {
            return Err(Error::data("weights", format!("rows of {} labels", bias.len()), weights.len()));
        }
        weights.extend_from_slice(bias);
        Ok(Self { values: weights, labels: bias.len() })
    }

    /// The weights, `features × labels`.
    #[must_use]
    pub fn weights(&self) -> &[f64] {
        self.split().0
    }

    /// The bias of each label.
    #[must_use]
    pub fn bias(&self) -> &[f64] {
        self.split().1
    }

    /// The number of labels.
    #[must_use]
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The number of features.
    #[must_use]
    pub fn features(&self) -> usize {
        self.values.len() / self.labels - 1
    }

    fn split(&self) -> (&[f64], &[f64]) {
        self.values.split_at(self.values.len() - self.labels)
    }

    /// The scores $XW + b$, row after row.
    ///
    /// # Errors
    /// If the number of features is another.
    pub fn scores(&self, features: &Features) -> Result<Vec<f64>> {
        if features.columns() != self.features() {
            return Err(Error::data(
                "features",
                format!("{} columns, as in training", self.features()),
                features.columns(),
            ));
        }
        let mut scores = vec![0.0; features.rows() * self.labels];
        features.map_scores(self.weights(), self.bias(), &mut scores, |_, _| ());
        Ok(scores)
    }
}

/// What a fit is given besides the data.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings<'a> {
    /// The weight λ of $\frac12\lVert W\rVert^2$.
    pub l2: f64,
    /// When to stop.
    pub stop: Stop,
    /// A weight per row; all 1 if absent.
    pub sample_weights: Option<&'a [f64]>,
    /// Where to start; zeros if absent.
    pub start: Option<&'a Coefficients>,
    /// No bias at all.
    pub without_bias: bool,
}

/// Fits weights and bias to features and targets.
///
/// ```
/// use parsimax_linear::{Features, LossSpec, Settings, Targets, fit};
/// let x = Features::dense(vec![0.0, 1.0, 2.0, 3.0], 1)?;
/// let y = Targets::classes(2, vec![0, 0, 1, 1])?;
/// let (model, _) = fit(&x, &y, &LossSpec::new("sparsemax").build()?, &Settings { l2: 1e-3, ..Settings::default() })?;
/// let z = model.scores(&x)?;
/// assert!(z[0] > z[1] && z[6] < z[7]);
/// # Ok::<(), parsimax_linear::Error>(())
/// ```
///
/// # Errors
/// If the shapes do not fit, only one class occurs, or an option is out of range.
pub fn fit(
    features: &Features,
    targets: &Targets,
    loss: &Loss,
    settings: &Settings<'_>,
) -> Result<(Coefficients, Report)> {
    let objective = Objective::new(features, targets, loss, settings)?;
    let mut coefficients = match settings.start {
        Some(start) => start.clone(),
        None => Coefficients::zeros(features.columns(), targets.labels()),
    };
    let expected = (features.columns() + 1) * targets.labels();
    if coefficients.values.len() != expected {
        return Err(Error::data("the start", format!("{expected} coefficients"), coefficients.values.len()));
    }
    let mut scores = vec![0.0; features.rows() * targets.labels()];
    let mut trouble = None;
    let evaluate = |x: &[f64], gradient: &mut [f64]| {
        objective.evaluate(x, &mut scores, gradient).unwrap_or_else(|error| {
            trouble.get_or_insert(error);
            f64::NAN
        })
    };
    let report = minimize(evaluate, &mut coefficients.values, &settings.stop);
    match trouble {
        // Trials of the line search may leave the range of f64; only a result that did is an error.
        Some(error) if !report.value.is_finite() => Err(error),
        _ => Ok((coefficients, report)),
    }
}

/// The function that is minimised.
#[derive(Debug)]
pub(crate) struct Objective<'a> {
    features: &'a Features,
    loss: &'a Loss,
    y: Vec<f64>,
    /// The part of each row's loss that its target alone decides.
    constants: Vec<f64>,
    labels: usize,
    l2: f64,
    /// The share of each row in the mean.
    shares: Option<Vec<f64>>,
    without_bias: bool,
}

impl<'a> Objective<'a> {
    pub(crate) fn new(
        features: &'a Features,
        targets: &'a Targets,
        loss: &'a Loss,
        settings: &Settings<'_>,
    ) -> Result<Self> {
        if features.rows() != targets.rows() {
            return Err(Error::data("targets", format!("one per row ({})", features.rows()), targets.rows()));
        }
        if !(settings.l2 >= 0.0 && settings.l2.is_finite()) {
            return Err(Error::Option { name: "l2", expected: "a number ≥ 0", got: settings.l2.to_string() });
        }
        if !loss.is_independent() && targets.distinct() < 2 {
            return Err(Error::data("targets", "at least two classes among the rows", "one class only"));
        }
        let y = targets.matrix(loss.is_independent())?;
        let shares = settings.sample_weights.map(|weights| shares(weights, features.rows())).transpose()?;
        let (labels, l2) = (targets.labels(), settings.l2);
        let constants = y.chunks_exact(labels).map(|y| loss.constant(y)).collect();
        Ok(Self { features, loss, y, constants, labels, l2, shares, without_bias: settings.without_bias })
    }

    /// The value at `x`; writes the gradient, with `scores` as memory.
    pub(crate) fn evaluate(&self, x: &[f64], scores: &mut [f64], gradient: &mut [f64]) -> Result<f64> {
        let k = self.labels;
        let (weights, bias) = x.split_at(x.len() - k);
        let share = 1.0 / self.features.rows() as f64;
        let losses = self.features.map_scores(weights, bias, scores, |first, z| {
            let (mut sum, mut work) = (0.0, Work::default());
            for (at, z) in z.chunks_exact_mut(k).enumerate() {
                let row = first + at;
                if z.iter().any(|z| !z.is_finite()) {
                    return Err(Error::data("scores", "finite numbers", format!("an overflow in row {row}")));
                }
                let weight = self.shares.as_ref().map_or(share, |shares| shares[row]);
                sum += weight * self.loss.row(z, &self.y[row * k..(row + 1) * k], self.constants[row], &mut work)?;
                z.iter_mut().for_each(|g| *g *= weight);
            }
            Ok(sum)
        });
        let mut value = 0.0;
        for loss in losses {
            value += loss?;
        }
        let (weight_gradient, bias_gradient) = gradient.split_at_mut(weights.len());
        self.features.transposed_product(scores, k, weights, self.l2, weight_gradient);
        if self.without_bias {
            bias_gradient.fill(0.0);
        } else {
            bias_gradient.copy_from_slice(&column_sums(scores, k));
        }
        Ok(value + 0.5 * self.l2 * weights.iter().map(|w| w * w).sum::<f64>())
    }
}

/// Weights divided by their sum.
fn shares(weights: &[f64], rows: usize) -> Result<Vec<f64>> {
    if weights.len() != rows {
        return Err(Error::data("sample weights", format!("one per row ({rows})"), weights.len()));
    }
    let sum: f64 = weights.iter().sum();
    if !(weights.iter().all(|weight| *weight >= 0.0) && sum > 0.0 && sum.is_finite()) {
        return Err(Error::data("sample weights", "finite numbers ≥ 0, not all 0", format!("sum {sum}")));
    }
    Ok(weights.iter().map(|weight| weight / sum).collect())
}
