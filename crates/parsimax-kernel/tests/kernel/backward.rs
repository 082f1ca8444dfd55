//! Vector–Jacobian products against the formula in f64.

use super::*;

/// `s = p^{2−α}` on the support, by the definition of the mapping.
fn weight(map: Map, p: f64) -> f64 {
    match map {
        _ if p <= 0.0 => 0.0,
        Map::Softmax | Map::EvSoftmax => p,
        Map::Entmax(a) => p.powf(2.0 - a),
        Map::Sparsemax => 1.0,
        Map::Entmax15 => p.sqrt(),
    }
}

/// `scale · s ⊙ (v − <s,v>/Σs)`.
pub(super) fn reference_vjp(map: Map, p: &[f32], v: &[f32], scale: f32) -> Vec<f64> {
    let s: Vec<f64> = p.iter().map(|&p| weight(map, f64::from(p))).collect();
    let total: f64 = s.iter().sum();
    let sv: f64 = s.iter().zip(v).filter(|(s, _)| **s > 0.0).map(|(s, &v)| s * f64::from(v)).sum();
    let mean = if total > 0.0 { sv / total } else { 0.0 };
    let one = |(s, &v): (&f64, &f32)| {
        if *s > 0.0 { f64::from(scale) * s * (f64::from(v) - mean) } else { 0.0 }
    };
    s.iter().zip(v).map(one).collect()
}

fn run_backward(level: Level, map: Map, p: &[f32], v: &[f32], d: usize, scale: f32) -> Vec<f32> {
    let mut out = vec![7.0; p.len()];
    with_level(level, || {
        let mut scratch = Scratch::new();
        backward(map, Backward { p, v, d, scale, out: &mut out, scratch: &mut scratch });
    });
    out
}

#[test]
fn products_match_the_formula() {
    let mut rng = fastrand::Rng::with_seed(11);
    let maps = [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::EvSoftmax, Map::Entmax(1.1), Map::Entmax(1.75)];
    for map in maps {
        for d in [1, 2, 7, 8, 33, 64, 200, 512, 1000, 4097, 20_000] {
            for sigma in [0.001, 0.1, 1.0, 4.0] {
                let z = normals(&mut rng, 5 * d, sigma);
                let mut v = normals(&mut rng, 5 * d, 1.0);
                for level in available() {
                    let (p, _, _) = run(level, map, &z, d, 1.0);
                    // Whatever comes in off the support must not come out.
                    for i in 0..p.len() {
                        if p[i] == 0.0 && rng.u8(0..4) == 0 {
                            v[i] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][rng.usize(0..3)];
                        } else if !v[i].is_finite() {
                            v[i] = 0.5;
                        }
                    }
                    let got = run_backward(level, map, &p, &v, d, 0.7);
                    for r in 0..5 {
                        let at = r * d..(r + 1) * d;
                        let want = reference_vjp(map, &p[at.clone()], &v[at.clone()], 0.7);
                        for (i, (&a, &b)) in got[at].iter().zip(&want).enumerate() {
                            // v is of order one, s at most one.
                            let close = (f64::from(a) - b).abs() <= 2e-6;
                            assert!(close, "{level:?} {map:?} d={d} σ={sigma} [{i}]: {a} for {b}");
                            assert!(p[r * d + i] > 0.0 || a == 0.0);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_of_zeros_has_no_gradient() {
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15] {
        for level in available() {
            let (p, v) = (vec![0.0; 50], vec![f32::NAN; 50]);
            assert!(run_backward(level, map, &p, &v, 25, 1.0).iter().all(|&g| g == 0.0));
        }
    }
}

/// Long rows are read as the row before them was: sparse or crowded, alone or behind any other, the numbers are the same.
#[test]
fn a_gradient_does_not_depend_on_its_neighbours() {
    let mut rng = fastrand::Rng::with_seed(67);
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::Entmax(1.3)] {
        for d in [40, 64, 100, 300, 700, 4117, 40_000] {
            let rows = 7;
            let mut p = vec![0.0f32; rows * d];
            for (r, row) in p.chunks_exact_mut(d).enumerate() {
                // From hardly any support to all of it, in an order of every change.
                let share = [1.0, 0.0, 0.001, 1.0, 0.02, 0.002, 0.5][r];
                row.iter_mut().for_each(|p| *p = if rng.f64() < share { rng.f32() / d as f32 } else { 0.0 });
            }
            let v = normals(&mut rng, rows * d, 1.0);
            for level in available() {
                let together = run_backward(level, map, &p, &v, d, 1.5);
                for (r, row) in together.chunks_exact(d).enumerate() {
                    let at = r * d..(r + 1) * d;
                    let alone = run_backward(level, map, &p[at.clone()], &v[at], d, 1.5);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert!(bits(row) == bits(&alone), "{level:?} {map:?} d={d} row {r}");
                }
            }
        }
    }
}

/// A bad row is told apart at every width, and a masked row or one with a gradient that is not finite is none.
#[test]
fn rows_of_nan_are_told() {
    let mut rng = fastrand::Rng::with_seed(71);
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::Entmax(1.3), Map::Entmax(3.0)] {
        for d in [1, 5, 64, 100, 300, 700] {
            let z = normals(&mut rng, 3 * d, 1.0);
            for level in available() {
                let (mut p, _, _) = run(level, map, &z, d, 1.0);
                p[d..2 * d].fill(0.0);
                let v: Vec<f32> = p.iter().map(|p| if *p > 0.0 { 0.5 } else { f32::NAN }).collect();
                let is_told = |p: &[f32]| {
                    let mut out = vec![7.0; p.len()];
                    let mut scratch = Scratch::new();
                    let (out, scratch) = (&mut out, &mut scratch);
                    with_level(level, || backward(map, Backward { p, v: &v, d, scale: 1.0, out, scratch }))
                };
                assert!(!is_told(&p), "{level:?} {map:?} d={d}");
                p[2 * d..].fill(f32::NAN);
                assert!(is_told(&p), "{level:?} {map:?} d={d}");
            }
        }
    }
}
