//! §4.1 of the sparsemax paper: label proportions of simulated documents.
//!
//! A document has N labels, N from Poisson(2) conditioned on 1…K, drawn without replacement; their
//! shares are equal (*uniform*) or from a flat Dirichlet (*random*). Its length is Poisson(L), and its
//! words come from the mixture of the labels' topics. A topic is a row of K numbers from U(0, 1), divided
//! by their sum; the vocabulary has K words. Features are standardised word frequencies. Softmax
//! ("logistic" in the paper) and sparsemax losses are compared; λ is chosen from 10⁻⁹…1 by 5-fold
//! cross-validation on the squared error. Ten topics over ten words are near each other in one draw and
//! far apart in the next, which alone moves the errors by a third: every setting is run on several draws
//! of topics and documents, and means are reported.

use rand::seq::index::sample;
use rand::{Rng, RngExt, SeedableRng, rngs::ChaCha8Rng};
use rand_distr::{Binomial, Distribution, Exp1, Poisson};
use rayon::prelude::*;
use serde::Serialize;

use crate::metrics::Distances;
use crate::{Error, Features, Grid, LossSpec, Metric, Result, Rule, Settings, Standard, Stop, Targets};
use crate::{best, cross_validate, fit};

/// One point of the figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Setting {
    /// Labels, topics and words.
    pub labels: usize,
    /// Equal shares of a document's labels, or random ones.
    pub uniform: bool,
    /// The mean length of a document.
    pub length: usize,
}

/// What one loss reaches on the test documents.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The point of the figure.
    pub setting: Setting,
    /// The loss.
    pub loss: String,
    /// The λ chosen by cross-validation, for each draw of topics.
    pub l2: Vec<f64>,
    /// The mean squared error of the proportions.
    pub mse: f64,
    /// Its standard deviation between draws of topics.
    pub mse_deviation: f64,
    /// The mean Jensen–Shannon divergence.
    pub js: f64,
    /// Labels with a share in the prediction, on average.
    pub support: f64,
}

/// What one loss reaches on one draw of topics.
struct Trial {
    l2: f64,
    mse: f64,
    js: f64,
    support: f64,
}

/// The two losses, "logistic" being the paper's name for softmax's here.
pub const LOSSES: [&str; 2] = ["softmax", "sparsemax"];

/// Training and test documents.
const DOCUMENTS: [usize; 2] = [1200, 1000];

/// The settings of the figure.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let mut all = Vec::new();
    for labels in [10, 50] {
        for uniform in [true, false] {
            all.extend((1..=10).map(|step| Setting { labels, uniform, length: 200 * step }));
        }
    }
    all
}

/// Documents with their proportions.
///
/// # Errors
/// If the setting has fewer than two labels or no words.
pub fn generate(setting: Setting, seed: u64) -> Result<[(Features, Targets); 2]> {
    let k = setting.labels;
    // The topics are those of a number of labels, whatever the length: the curves of a panel share them.
    let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_mul(1000).wrapping_add(k as u64));
    let topics: Vec<Vec<f64>> = (0..k).map(|_| topic(k, &mut random)).collect();
    let stream = setting.length as u64 * 2 + u64::from(setting.uniform);
    random.set_stream(stream);
    let mut part = |documents| {
        let (mut x, mut y) = (Vec::with_capacity(documents * k), Vec::with_capacity(documents * k));
        for _ in 0..documents {
            let shares = shares(k, setting.uniform, &mut random)?;
            x.extend(words(&topics, &shares, setting.length, &mut random)?);
            y.extend(shares);
        }
        Ok::<_, Error>((Features::dense(x, k)?, Targets::shares(k, y)?))
    };
    Ok([part(DOCUMENTS[0])?, part(DOCUMENTS[1])?])
}

fn topic(words: usize, random: &mut impl Rng) -> Vec<f64> {
    let weights: Vec<f64> = (0..words).map(|_| random.random::<f64>()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// The shares of a document's labels.
fn shares(k: usize, uniform: bool, random: &mut impl Rng) -> Result<Vec<f64>> {
    let poisson = Poisson::new(2.0).map_err(|error| Error::data("Poisson", "a mean", error))?;
    let count = loop {
        let count: f64 = poisson.sample(random);
        if (1.0..=k as f64).contains(&count) {
            break count as usize;
        }
    };
    let weights: Vec<f64> = (0..count).map(|_| if uniform { 1.0 } else { Exp1.sample(random) }).collect();
    let sum: f64 = weights.iter().sum();
    let mut shares = vec![0.0; k];
    for (label, weight) in sample(random, k, count).into_iter().zip(weights) {
        shares[label] = weight / sum;
    }
    Ok(shares)
}

/// The frequencies of the words of a document: a multinomial as a chain of binomials.
fn words(topics: &[Vec<f64>], shares: &[f64], length: usize, random: &mut impl Rng) -> Result<Vec<f64>> {
    let poisson = Poisson::new(length as f64).map_err(|error| Error::data("Poisson", "a mean > 0", error))?;
    let total = (poisson.sample(random) as u64).max(1);
    let (mut left, mut mass) = (total, 1.0f64);
    let mut out = Vec::with_capacity(topics.len());
    for word in 0..topics.len() {
        let p: f64 = topics.iter().zip(shares).map(|(topic, share)| share * topic[word]).sum();
        let last = word + 1 == topics.len();
        let chance = if last { 1.0 } else { (p / mass).clamp(0.0, 1.0) };
        let binomial = Binomial::new(left, chance).map_err(|error| Error::data("Binomial", "a chance", error))?;
        let drawn = binomial.sample(random);
        out.push(drawn as f64 / total as f64);
        left -= drawn;
        mass = (mass - p).max(f64::MIN_POSITIVE);
    }
    Ok(out)
}

/// Runs the settings on threads, both losses each, on `draws` draws of topics; `done` is called after each
/// draw of each setting.
///
/// # Errors
/// See [`generate`] and [`cross_validate`].
pub fn run(settings: &[Setting], seed: u64, draws: usize, done: &(dyn Fn() + Sync)) -> Result<Vec<Outcome>> {
    let jobs: Vec<(Setting, u64)> = settings
        .iter()
        .flat_map(|setting| (0..draws as u64).map(|draw| (*setting, seed.wrapping_mul(1000).wrapping_add(draw))))
        .collect();
    let trials: Vec<Vec<Trial>> = jobs
        .par_iter()
        .map(|(setting, seed)| {
            let parts = generate(*setting, *seed)?;
            let standard = Standard::of(&parts[0].0);
            let parts = parts.map(|(features, targets)| (standard.apply(&features), targets));
            let both = LOSSES.iter().map(|loss| trial(loss, &parts, *seed)).collect();
            done();
            both
        })
        .collect::<Result<_>>()?;
    let mut outcomes = Vec::new();
    for (setting, trials) in settings.iter().zip(trials.chunks_exact(draws.max(1))) {
        for (at, loss) in LOSSES.iter().enumerate() {
            outcomes.push(summary(*setting, loss, &trials.iter().map(|both| &both[at]).collect::<Vec<_>>()));
        }
    }
    Ok(outcomes)
}

fn summary(setting: Setting, loss: &str, trials: &[&Trial]) -> Outcome {
    let mean = |of: fn(&Trial) -> f64| trials.iter().map(|trial| of(trial)).sum::<f64>() / trials.len() as f64;
    let mse = mean(|trial| trial.mse);
    let squares: f64 = trials.iter().map(|trial| (trial.mse - mse).powi(2)).sum();
    Outcome {
        setting,
        loss: loss.into(),
        l2: trials.iter().map(|trial| trial.l2).collect(),
        mse,
        mse_deviation: (squares / (trials.len() as f64 - 1.0).max(1.0)).sqrt(),
        js: mean(|trial| trial.js),
        support: mean(|trial| trial.support),
    }
}

fn trial(name: &str, parts: &[(Features, Targets); 2], seed: u64) -> Result<Trial> {
    let [train, test] = parts;
    let loss = LossSpec::new(name).build()?;
    let l2 = (-9..=0).map(|exponent| 10f64.powi(exponent)).collect();
    let grid = Grid { l2, rules: vec![Rule::Support(1.0)], folds: 5, seed, warm_start: true, stop: Stop::default() };
    let cells = cross_validate(&train.0, &train.1, &loss, &grid, &|| ())?;
    let l2 = best(&cells, Metric::SquaredError).map_or(0.0, |cell| cell.l2);
    let (model, _) = fit(&train.0, &train.1, &loss, &Settings { l2, stop: grid.stop, ..Settings::default() })?;
    let p = model.probabilities(&test.0, &loss)?;
    let distances = Distances::new(&p, &test.1);
    let support = p.iter().filter(|p| **p > 0.0).count() as f64 / test.0.rows() as f64;
    Ok(Trial { l2, mse: distances.squared_error(), js: distances.jensen_shannon(), support })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_the_mean_of_its_draws() {
        let trials =
            [(1e-3, 0.1, 0.4, 3.0), (1e-2, 0.3, 0.2, 5.0)].map(|(l2, mse, js, support)| Trial { l2, mse, js, support });
        let setting = Setting { labels: 10, uniform: true, length: 200 };
        let outcome = summary(setting, "sparsemax", &[&trials[0], &trials[1]]);
        assert_eq!(outcome.l2, [1e-3, 1e-2]);
        let near = |a: f64, b: f64| (a - b).abs() < 1e-15;
        assert!(near(outcome.mse, 0.2) && near(outcome.js, 0.3) && near(outcome.support, 4.0), "{outcome:?}");
        assert!(near(outcome.mse_deviation, 0.02f64.sqrt()), "of a sample: {}", outcome.mse_deviation);
        let one = summary(setting, "sparsemax", &[&trials[0]]);
        assert_eq!((one.mse, one.mse_deviation), (0.1, 0.0));
    }
}
