//! Attention against its definition in f64.

use super::*;
use parsimax::{Attention, Entmax, Entmax15, Error, EvSoftmax, Fusedmax, Mapping, Shape, Softmax, Sparsemax};

/// One attention and how to call it.
struct Case {
    shape: Shape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    scale: f32,
    causal: bool,
    keys: Option<Vec<bool>>,
    pairs: Option<Vec<bool>>,
}

impl Case {
    fn new(seed: u64, (heads, queries, keys): (usize, usize, usize), (dk, dv): (usize, usize), sigma: f32) -> Case {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let shape = Shape { heads, queries, keys, key_width: dk, value_width: dv };
        Case {
            shape,
            q: normals(rng, heads * queries * dk, sigma),
            k: normals(rng, heads * keys * dk, 1.0),
            v: normals(rng, heads * keys * dv, 1.0),
            scale: 1.0 / (dk as f32).sqrt(),
            causal: false,
            keys: None,
            pairs: None,
        }
    }

    /// Results and weights.
    fn run(&self, mapping: &impl Mapping, threads: bool) -> (Vec<f32>, Vec<f32>) {
        let s = self.shape;
        // Poisoned, so that an entry left unwritten shows.
        let mut out = vec![7.0; s.heads * s.queries * s.value_width];
        let mut weights = vec![7.0; s.heads * s.queries * s.keys];
        let mut attention = Attention::new(mapping).scale(self.scale);
        if self.causal {
            attention = attention.causal();
        }
        if let Some(mask) = &self.keys {
            attention = attention.key_mask(mask);
        }
        if let Some(mask) = &self.pairs {
            attention = attention.mask(mask);
        }
        if !threads {
            attention = attention.single_threaded();
        }
        attention.forward_with_weights(s, &self.q, &self.k, &self.v, &mut out, &mut weights).unwrap();
        let mut alone = vec![7.0; out.len()];
        attention.forward(s, &self.q, &self.k, &self.v, &mut alone).unwrap();
        assert_eq!(bits(&alone), bits(&out), "with and without weights");
        (out, weights)
    }

    fn takes_part(&self, head: usize, query: usize, key: usize) -> bool {
        let s = self.shape;
        let group = |len: usize, one: usize| head * (len / one) / s.heads;
        let keys = self.keys.as_ref().is_none_or(|m| m[group(m.len(), s.keys) * s.keys + key]);
        let pair = |m: &Vec<bool>| m[(group(m.len(), s.queries * s.keys) * s.queries + query) * s.keys + key];
        keys && self.pairs.as_ref().is_none_or(pair) && (!self.causal || key <= query)
    }

    /// Every query against the definition.
    ///
    /// Rounding moves a score by at most about δ = ε(√dk + 2)·Σ|scale·q·k|. The Jacobian of the mapping
    /// is `diag(s) − ssᵀ/Σs` with `s = p^{2−α}`, so the weights move by at most 2δΣs in total, where
    /// Σs ≤ |S|^{α−1} for α ≤ 2; above 2 they are Hölder continuous, each moves by at most
    /// (2(α−1)δ)^{1/(α−1)}. Each weight is itself exact within 1e−6 (see `check`); such errors add like
    /// a random walk.
    fn check(&self, map: Map, mapping: &impl Mapping, what: &str) {
        let s = self.shape;
        let (dk, dv) = (s.key_width, s.value_width);
        let (out, weights) = self.run(mapping, true);
        let top = self.v.iter().filter(|v| v.is_finite()).fold(0.0f32, |m, v| m.max(v.abs()));
        for row in 0..s.heads * s.queries {
            let (head, query) = (row / s.queries, row % s.queries);
            let q = &self.q[row * dk..][..dk];
            let (mut z, mut size) = (Vec::new(), 0.0f64);
            for j in 0..s.keys {
                let k = &self.k[(head * s.keys + j) * dk..][..dk];
                let terms = || q.iter().zip(k).map(|(a, b)| f64::from(self.scale) * f64::from(*a) * f64::from(*b));
                let on = self.takes_part(head, query, j);
                z.push(if on { terms().sum::<f64>() as f32 } else { f32::NEG_INFINITY });
                if on {
                    size = size.max(terms().map(f64::abs).sum());
                }
            }
            let p = reference(map, &z, 1.0);
            let support = p.iter().filter(|p| **p > 0.0).count() as f64 + 1.0;
            let delta = f64::from(f32::EPSILON) * ((dk as f64).sqrt() + 2.0) * size;
            let moved = match map {
                Map::Sparsemax => 2.0 * delta * support,
                Map::Entmax15 => 2.0 * delta * support.sqrt(),
                Map::Entmax(a) if a <= 2.0 => 2.0 * delta * support.powf(a - 1.0),
                Map::Entmax(a) => support * (2.0 * (a - 1.0) * delta).powf(1.0 / (a - 1.0)),
                _ => 2.0 * delta,
            };
            let slack = moved + 1e-6 * support.sqrt();
            let far: f64 = (0..s.keys).map(|j| (f64::from(weights[row * s.keys + j]) - p[j]).abs()).sum();
            assert!(far <= slack, "{what}, row {row}: weights {far:e} off, at most {slack:e}");
            for c in 0..dv {
                let value = |j: usize| f64::from(self.v[(head * s.keys + j) * dv + c]);
                let want: f64 = (0..s.keys).filter(|j| p[*j] > 0.0).map(|j| p[j] * value(j)).sum();
                let got = f64::from(out[row * dv + c]);
                let slack = f64::from(top) * slack;
                assert!((got - want).abs() <= slack, "{what}, row {row}, {c}: {got}, expected {want} ± {slack:e}");
            }
        }
    }

    /// All mappings at all levels.
    fn check_all(&self, what: &str) {
        for level in available() {
            with_level(level, || {
                let what = format!("{what} {level:?} {:?}", self.shape);
                self.check(Map::Softmax, &Softmax::new(), &format!("softmax {what}"));
                self.check(Map::Sparsemax, &Sparsemax::new(), &format!("sparsemax {what}"));
                self.check(Map::Entmax15, &Entmax15::new(), &format!("entmax15 {what}"));
                self.check(Map::Entmax(1.25), &Entmax::new(1.25).unwrap(), &format!("entmax 1.25 {what}"));
                self.check(Map::Entmax(3.0), &Entmax::new(3.0).unwrap(), &format!("entmax 3 {what}"));
                self.check(Map::EvSoftmax, &EvSoftmax::new(), &format!("ev-softmax {what}"));
            });
        }
    }
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn odd_sizes() {
    let mut seed = 0;
    for n in [1, 2, 7, 63, 64, 65, 130] {
        for (dk, dv) in [(1, 1), (8, 8), (33, 17), (64, 64), (80, 80)] {
            seed += 1;
            Case::new(seed, (2, n, n), (dk, dv), 1.0).check_all("odd");
        }
    }
    for (queries, keys) in [(1, 600), (50, 3), (13, 1100), (25, 2049)] {
        seed += 1;
        Case::new(seed, (1, queries, keys), (16, 40), 1.0).check_all("oblong");
    }
}

#[test]
fn peaked_and_dense() {
    for (seed, sigma) in [(1, 4.0), (2, 0.1), (3, 1e-3), (4, 0.0)] {
        Case::new(seed, (1, 49, 140), (64, 64), sigma).check_all("scale of scores");
    }
    let mut case = Case::new(5, (1, 20, 70), (24, 24), 1.0);
    case.scale = -0.3;
    case.check_all("negative scale");
    case.scale = 0.0;
    case.check_all("scale zero");
}

#[test]
fn masks_and_causality() {
    for (seed, (n, m)) in (10..).zip([(7, 7), (65, 65), (100, 40), (40, 100), (70, 1100)]) {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut case = Case::new(seed, (4, n, m), (16, 16), 1.0);
        case.causal = true;
        case.check_all("causal");
        // One mask for two heads; the second sequence has no key at all.
        case.keys = Some((0..2 * m).map(|i| i < m && rng.f32() < 0.7).collect());
        case.check_all("causal, padded");
        case.causal = false;
        case.check_all("padded");
        case.keys = None;
        case.pairs = Some((0..n * m).map(|i| i / m != 3 && rng.bool()).collect());
        case.check_all("pairs");
        let (out, weights) = case.run(&Sparsemax::new(), true);
        for head in 0..4 {
            let row = head * n + 3;
            assert!(out[row * 16..][..16].iter().chain(&weights[row * m..][..m]).all(|x| *x == 0.0));
        }
    }
}

#[test]
fn what_masked_keys_hold_does_not_matter() {
    for level in available() {
        with_level(level, || {
            for keep in [1.0, 0.5] {
                let rng = &mut fastrand::Rng::with_seed(3);
                let mut case = Case::new(2, (2, 61, 90), (16, 24), 1.0);
                case.keys = Some((0..90).map(|j| j != 40 && rng.f32() < keep).collect());
                let mut foul = Case::new(2, (2, 61, 90), (16, 24), 1.0);
                foul.keys = case.keys.clone();
                for head in 0..2 {
                    foul.k[(head * 90 + 40) * 16..][..16].fill(f32::NAN);
                    foul.v[(head * 90 + 40) * 24..][..24].fill(f32::INFINITY);
                }
                // Clean values are multiplied densely by softmax, foul ones never: the same bits.
                let same = |a: (Vec<f32>, Vec<f32>), b: (Vec<f32>, Vec<f32>)| {
                    assert_eq!(bits(&a.0), bits(&b.0));
                    assert_eq!(bits(&a.1), bits(&b.1));
                };
                same(case.run(&Softmax::new(), false), foul.run(&Softmax::new(), false));
                same(case.run(&Sparsemax::new(), false), foul.run(&Sparsemax::new(), false));
            }
        });
    }
}

#[test]
fn nan_stays_in_its_row() {
    for level in available() {
        with_level(level, || {
            let clean = Case::new(8, (2, 53, 70), (33, 20), 1.0);
            let mut foul = Case::new(8, (2, 53, 70), (33, 20), 1.0);
            foul.q[57 * 33 + 4] = f32::NAN;
            for (a, b) in [
                (clean.run(&Sparsemax::new(), true), foul.run(&Sparsemax::new(), true)),
                (clean.run(&Softmax::new(), true), foul.run(&Softmax::new(), true)),
            ] {
                for row in 0..106 {
                    let (x, y) = (&a.0[row * 20..][..20], &b.0[row * 20..][..20]);
                    let (p, w) = (&a.1[row * 70..][..70], &b.1[row * 70..][..70]);
                    if row == 57 {
                        assert!(y.iter().chain(w).all(|v| v.is_nan()));
                    } else {
                        assert!(bits(x) == bits(y) && bits(p) == bits(w), "row {row}");
                    }
                }
            }
        });
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    for level in available() {
        let mut case = Case::new(9, (5, 301, 301), (32, 48), 1.0);
        case.causal = true;
        for mapping in [Entmax::new(2.0).unwrap(), Entmax::new(1.0).unwrap()] {
            let alone = with_level(level, || case.run(&mapping, false));
            for threads in [1, 2, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (out, weights) = pool.install(|| with_level(level, || case.run(&mapping, true)));
                assert_eq!(bits(&out), bits(&alone.0), "{level:?}, {threads} threads");
                assert_eq!(bits(&weights), bits(&alone.1), "{level:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_an_error() {
    let case = Case::new(1, (2, 3, 5), (4, 6), 1.0);
    let Case { shape, q, k, v, .. } = &case;
    let mut out = vec![0.0; 2 * 3 * 6];
    let sparsemax = Sparsemax::new();
    let attention = || Attention::new(&sparsemax);
    let shape_error = |result: parsimax::Result<()>, name: &str| {
        assert!(matches!(result, Err(Error::Shape { what, .. }) if what == name), "{name}: {result:?}");
    };
    shape_error(attention().forward(*shape, &q[1..], k, v, &mut out), "q");
    shape_error(attention().forward(*shape, q, &k[1..], v, &mut out), "k");
    shape_error(attention().forward(*shape, q, k, &v[1..], &mut out), "v");
    shape_error(attention().forward(*shape, q, k, v, &mut out[1..]), "out");
    let mut short = [0.0; 7];
    shape_error(attention().forward_with_weights(*shape, q, k, v, &mut out, &mut short), "weights");
    shape_error(attention().key_mask(&[true; 7]).forward(*shape, q, k, v, &mut out), "mask");
    shape_error(attention().mask(&[true; 45]).forward(*shape, q, k, v, &mut out), "mask");
    let huge = Shape { heads: usize::MAX, queries: 3, ..*shape };
    shape_error(attention().forward(huge, q, k, v, &mut out), "q");
    let bad = attention().scale(f32::NAN).forward(*shape, q, k, v, &mut out);
    assert!(matches!(bad, Err(Error::Parameter { name: "scale", .. })), "{bad:?}");
    let fused = Fusedmax::new(0.1).unwrap();
    let bad = Attention::new(&fused).forward(*shape, q, k, v, &mut out);
    assert!(matches!(bad, Err(Error::Unsupported { .. })), "{bad:?}");
}

#[test]
fn nothing_to_do() {
    for shape in [(0, 3, 4), (2, 0, 4), (2, 3, 0)] {
        let case = Case::new(1, shape, (4, 5), 1.0);
        let (out, weights) = case.run(&Sparsemax::new(), true);
        assert!(out.iter().chain(&weights).all(|x| *x == 0.0));
    }
    // Width 0: all scores are 0, and without values there are still weights.
    let mut case = Case::new(1, (1, 3, 4), (0, 5), 1.0);
    case.scale = 1.0;
    case.check_all("keys without width");
    let case = Case::new(1, (1, 3, 4), (2, 0), 1.0);
    case.check_all("values without width");
}
