//! Minimising a smooth convex function by L-BFGS.
//!
//! The history and the two-loop recursion are the crate `lbfgs`, which keeps its vectors from the first
//! iteration to the last; here is the line search around them. A step must satisfy the strong Wolfe
//! conditions (Nocedal & Wright 2006, §3.5): enough decrease, and a slope that has become flatter, which
//! keeps the curvature pairs positive. Trials are cubic interpolations, kept inside the bracket.

use lbfgs::Lbfgs;

/// When to stop, and how much to remember.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stop {
    /// The largest number of iterations.
    pub iterations: usize,
    /// Stop when no entry of the gradient is larger than this.
    pub gradient: f64,
    /// Stop when an iteration improves the value by less than this, relative to the value or 1;
    /// negative means never.
    pub decrease: f64,
    /// Curvature pairs to keep.
    pub history: usize,
}

impl Default for Stop {
    /// 100 iterations, gradient 10⁻⁵, decrease 2.2·10⁻⁹, 10 pairs: the customary values.
    fn default() -> Self {
        Self { iterations: 100, gradient: 1e-5, decrease: 2.220_446_049_250_313e-9, history: 10 }
    }
}

/// Why it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The gradient is small enough.
    Gradient,
    /// The value hardly changes any more.
    Decrease,
    /// The iterations are used up.
    Iterations,
    /// No step along the descent direction improves the value: the precision is exhausted.
    NoProgress,
}

/// How a minimisation went.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The value at the end.
    pub value: f64,
    /// Iterations made.
    pub iterations: usize,
    /// Evaluations of the function.
    pub evaluations: usize,
    /// Why it stopped.
    pub reason: Reason,
}

/// Minimises from `x`, which becomes the minimiser; `f` returns the value and writes the gradient.
pub fn minimize(mut f: impl FnMut(&[f64], &mut [f64]) -> f64, x: &mut Vec<f64>, stop: &Stop) -> Report {
    let n = x.len();
    // Curvature pairs are safe by the line search; the crate's own limit is absolute, which would
    // reject good pairs of small problems.
    let mut memory = Lbfgs::<f64>::new(n.max(1), stop.history.max(1)).with_sy_epsilon(f64::MIN_POSITIVE);
    let (mut gradient, mut direction) = (vec![0.0; n], vec![0.0; n]);
    let mut trial = Trial { x: vec![0.0; n], gradient: vec![0.0; n], evaluations: 1 };
    let mut value = f(x, &mut gradient);
    let report = |value, iterations, evaluations, reason| Report { value, iterations, evaluations, reason };
    let mut fresh = true;
    for iteration in 0.. {
        if max_abs(&gradient) <= stop.gradient {
            return report(value, iteration, trial.evaluations, Reason::Gradient);
        }
        if iteration >= stop.iterations {
            return report(value, iteration, trial.evaluations, Reason::Iterations);
        }
        memory.update_hessian(&gradient, x);
        let found = loop {
            direction.copy_from_slice(&gradient);
            memory.apply_hessian(&mut direction);
            direction.iter_mut().for_each(|d| *d = -*d);
            let slope = dot(&gradient, &direction);
            // The first step has length 1: the gradient's own says nothing about the scale of the weights.
            let first = if fresh { 1.0 / dot(&gradient, &gradient).sqrt() } else { 1.0 };
            let found = if slope < 0.0 { trial.search(&mut f, x, value, &direction, slope, first) } else { None };
            if found.is_some() || fresh {
                break found;
            }
            // A history that misleads is forgotten, and the gradient tried once.
            memory.reset();
            memory.update_hessian(&gradient, x);
            fresh = true;
        };
        let Some(next) = found else { return report(value, iteration, trial.evaluations, Reason::NoProgress) };
        fresh = false;
        std::mem::swap(x, &mut trial.x);
        std::mem::swap(&mut gradient, &mut trial.gradient);
        let decrease = (value - next) / value.abs().max(next.abs()).max(1.0);
        value = next;
        if stop.decrease >= 0.0 && decrease <= stop.decrease && max_abs(&gradient) > stop.gradient {
            return report(value, iteration + 1, trial.evaluations, Reason::Decrease);
        }
    }
    report(value, stop.iterations, trial.evaluations, Reason::Iterations)
}

/// The point that the line search looks at.
struct Trial {
    x: Vec<f64>,
    gradient: Vec<f64>,
    evaluations: usize,
}

/// A step, the value there, and the slope.
#[derive(Clone, Copy)]
struct Point {
    step: f64,
    value: f64,
    slope: f64,
}

impl Trial {
    /// A step that satisfies the strong Wolfe conditions, or at least improves the value; the trial
    /// holds the point, and its value is returned.
    fn search(
        &mut self,
        f: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
        x: &[f64],
        value: f64,
        direction: &[f64],
        slope: f64,
        first: f64,
    ) -> Option<f64> {
        const ENOUGH: f64 = 1e-4;
        const FLATTER: f64 = 0.9;
        const TRIALS: usize = 30;
        // Near the minimum differences of the value are rounding; there the slope alone decides.
        let noise = 16.0 * f64::EPSILON * value.abs().max(1.0);
        let start = Point { step: 0.0, value, slope };
        // The interval from `low` (the best step with enough decrease) towards `high` holds good steps.
        let (mut low, mut high, mut step) = (start, None::<Point>, first);
        for _ in 0..TRIALS {
            let here = self.evaluate(f, x, direction, step);
            let too_high = here.value.is_nan() || here.value > value + ENOUGH * step * slope + noise;
            if too_high || here.value > low.value + noise && low.step > 0.0 {
                high = Some(here);
            } else if here.slope.abs() <= -FLATTER * slope {
                return Some(here.value);
            } else {
                if here.slope * (high.map_or(1.0, |high| high.step - low.step)) >= 0.0 {
                    high = Some(low);
                }
                low = here;
            }
            step = match high {
                None => 2.0 * step.max(low.step),
                Some(high) => between(low, high),
            };
            let width = high.map_or(f64::INFINITY, |high| (high.step - low.step).abs());
            if width <= 1e-12 * low.step.max(1e-8) {
                break;
            }
        }
        if low.step == 0.0 {
            return None;
        }
        let here = self.evaluate(f, x, direction, low.step);
        (here.value < value).then_some(here.value)
    }

    fn evaluate(
        &mut self,
        f: &mut impl FnMut(&[f64], &mut [f64]) -> f64,
        x: &[f64],
        direction: &[f64],
        step: f64,
    ) -> Point {
        self.x.iter_mut().zip(x.iter().zip(direction)).for_each(|(t, (x, d))| *t = x + step * d);
        self.evaluations += 1;
        let value = f(&self.x, &mut self.gradient);
        Point { step, value, slope: dot(&self.gradient, direction) }
    }
}

/// The minimum of the cubic through two points with their slopes, kept a tenth away from both ends.
fn between(a: Point, b: Point) -> f64 {
    let width = b.step - a.step;
    let middle = a.step + 0.5 * width;
    if !(b.value.is_finite() && b.slope.is_finite()) {
        return a.step + 0.1 * width;
    }
    let d1 = a.slope + b.slope - 3.0 * (a.value - b.value) / (a.step - b.step);
    let square = d1 * d1 - a.slope * b.slope;
    if square < 0.0 {
        return middle;
    }
    let d2 = square.sqrt().copysign(width);
    let step = b.step - width * (b.slope + d2 - d1) / (b.slope - a.slope + 2.0 * d2);
    let share = (step - a.step) / width;
    if share.is_finite() { a.step + share.clamp(0.1, 0.9) * width } else { middle }
}

/// Eight sums at a time, which the compiler turns into vector instructions; the order is fixed.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; 8];
    let (a_chunks, b_chunks) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a_chunks.remainder().iter().zip(b_chunks.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_chunks.zip(b_chunks) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum::<f64>() + rest
}

fn max_abs(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |max: f64, value| max.max(value.abs()))
}
