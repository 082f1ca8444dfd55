//! Fenchel–Young losses against their definition.

use super::*;

/// `γΩ(p)` up to the constant that makes Ω of a vertex 0, in units of γ.
fn omega(map: Map, p: &[f64]) -> f64 {
    let alpha = match map {
        Map::Softmax | Map::EvSoftmax => 1.0,
        Map::Sparsemax => 2.0,
        Map::Entmax15 => 1.5,
        Map::Entmax(a) => a,
    };
    let on = p.iter().filter(|p| **p > 0.0);
    if alpha == 1.0 {
        on.map(|p| p * p.ln()).sum()
    } else {
        (on.map(|p| p.powf(alpha)).sum::<f64>() - 1.0) / (alpha * (alpha - 1.0))
    }
}

fn run_loss(
    level: Level,
    map: Map,
    z: &[f32],
    d: usize,
    target: &[u32],
    scale: f32,
) -> (Vec<f64>, Vec<f32>, Vec<Status>) {
    let rows = target.len();
    let (mut value, mut grad) = (vec![7.0; rows], vec![7.0; z.len()]);
    let mut status = vec![Status::Ok; rows];
    with_level(level, || {
        let mut scratch = Scratch::new();
        let job = Loss {
            z,
            d,
            scale,
            target,
            gain: 0.5,
            loss: &mut value,
            grad: &mut grad,
            stream: scale != 1.0,
            status: &mut status,
            scratch: &mut scratch,
        };
        loss(map, job);
    });
    (value, grad, status)
}

#[test]
fn losses_and_gradients_match_the_definition() {
    let mut rng = fastrand::Rng::with_seed(31);
    let alphas = [1.0001, 1.02, 1.09, 1.3, 3.0].map(Map::Entmax);
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15].into_iter().chain(alphas) {
        for d in [1, 2, 9, 64, 500, 1025, 6000] {
            for sigma in [0.01, 1.0, 3.0] {
                for scale in [1.0, 0.4] {
                    let z = normals(&mut rng, 10 * d, sigma);
                    let target: Vec<u32> = (0..10).map(|_| rng.u32(0..d as u32)).collect();
                    for level in available() {
                        let (value, grad, _) = run_loss(level, map, &z, d, &target, scale);
                        for r in 0..10 {
                            let row = &z[r * d..(r + 1) * d];
                            let y = target[r] as usize;
                            let p = reference(map, row, scale);
                            // L = γΩ(y) − γΩ(p) + <z, p − y>, and Ω(y) = 0.
                            let zy = f64::from(row[y]);
                            let inner: f64 = p.iter().zip(row).map(|(p, &z)| p * (f64::from(z) - zy)).sum();
                            let want = inner - omega(map, &p) / f64::from(scale);
                            let what = format!("{level:?} {map:?} d={d} σ={sigma}");
                            let slack = 1e-6 * (1.0 + want.abs());
                            assert!((value[r] - want).abs() < slack, "{what}: {} for {want}", value[r]);
                            for i in 0..d {
                                let g = 0.5 * (p[i] - f64::from(u8::from(i == y)));
                                let close = (f64::from(grad[r * d + i]) - g).abs() <= 1e-6;
                                assert!(close, "{what} [{i}]: {} for {g}", grad[r * d + i]);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_loss_does_not_depend_on_its_neighbours() {
    let mut rng = fastrand::Rng::with_seed(32);
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::Entmax(1.1), Map::Entmax(1.75), Map::Entmax(3.0)] {
        for d in [7, 33, 64, 65, 300, 1025] {
            // Some rows are settled while others of their group take another step.
            let rows = 40;
            let z: Vec<f32> = (0..rows)
                .flat_map(|_| {
                    let (sigma, grid) = ([0.01, 0.3, 1.0, 3.0][rng.usize(..4)], [0.0, 0.075][rng.usize(..2)]);
                    let on_grid = |z: f32| if grid > 0.0 { (z / grid).round() * grid } else { z };
                    normals(&mut rng, d, sigma).into_iter().map(on_grid).collect::<Vec<_>>()
                })
                .collect();
            let target: Vec<u32> = (0..rows).map(|_| rng.u32(0..d as u32)).collect();
            for level in available() {
                let (value, grad, _) = run_loss(level, map, &z, d, &target, 1.0);
                for r in 0..rows {
                    let row = r * d..(r + 1) * d;
                    let (alone, alone_grad, _) = run_loss(level, map, &z[row.clone()], d, &target[r..=r], 1.0);
                    let what = format!("{level:?} {map:?} d={d} row {r}");
                    assert_eq!(value[r].to_bits(), alone[0].to_bits(), "{what}: {} and alone {}", value[r], alone[0]);
                    assert!(grad[row] == alone_grad, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_clear_lead_costs_exactly_nothing() {
    for (map, lead) in [(Map::Sparsemax, 1.0), (Map::Entmax15, 2.0)] {
        for d in [3, 64, 2000, 9000] {
            let mut z = vec![-1.0; d];
            z[1] = lead;
            for level in available() {
                let (value, grad, _) = run_loss(level, map, &z, d, &[1], 1.0);
                assert_eq!(value[0], 0.0, "{level:?} {map:?} d={d}");
                assert!(grad.iter().all(|&g| g == 0.0));
            }
        }
    }
}

#[test]
fn ignored_empty_and_bad_rows() {
    let d = 40;
    let mut z = vec![0.5f32; 4 * d];
    z[d..2 * d].fill(f32::NEG_INFINITY);
    z[2 * d + 3] = f32::NAN;
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::Entmax(1.7)] {
        for level in available() {
            let (value, grad, status) = run_loss(level, map, &z, d, &[IGNORE, 0, 1, 2], 1.0);
            assert_eq!(status, [Status::Ok, Status::Empty, Status::Bad, Status::Ok]);
            assert_eq!(value[..2], [0.0, 0.0]);
            assert!(grad[..2 * d].iter().all(|&g| g == 0.0));
            assert!(value[2].is_nan() && grad[2 * d..3 * d].iter().all(|g| g.is_nan()));
            assert!(value[3] > 0.0 && grad[3 * d + 2] < 0.0);
        }
    }
}
