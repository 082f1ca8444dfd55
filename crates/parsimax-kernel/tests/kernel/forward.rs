//! Random rows of many widths and scales.

use super::*;

const MAPS: [Map; 4] = [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::EvSoftmax];

#[test]
fn rows_match_the_reference() {
    let mut rng = fastrand::Rng::with_seed(1);
    let widths = [
        1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 128, 129, 255, 511, 512, 513, 777, 1000, 1023,
        1024, 1025, 1500, 4095, 4096, 4097, 5000, 9001,
    ];
    for map in MAPS {
        for d in widths {
            for sigma in [1e-4, 0.01, 0.1, 1.0, 5.0] {
                let rows = rng.usize(1..12);
                let scale = [1.0, 0.37, 3.0][rng.usize(0..3)];
                let z = normals(&mut rng, rows * d, sigma);
                let want: Vec<_> = z.chunks(d).map(|r| reference(map, r, scale)).collect();
                for level in available() {
                    let (p, _, status) = run(level, map, &z, d, scale);
                    for r in 0..rows {
                        let what = format!("{level:?} {map:?} d={d} σ={sigma} row {r}");
                        assert_eq!(status[r], Status::Ok, "{what}");
                        check(&p[r * d..(r + 1) * d], &want[r], &what);
                    }
                }
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_neighbours() {
    let mut rng = fastrand::Rng::with_seed(2);
    for map in MAPS.into_iter().chain([1.01, 1.3, 1.75, 2.5].map(Map::Entmax)) {
        for d in [1, 6, 40, 64, 100, 300, 512, 1024, 3000] {
            let rows = 21;
            let mut z = Vec::new();
            for _ in 0..rows {
                // Sparse and dense rows side by side, and some that are unfit.
                let sigma = [1e-3, 0.05, 1.0, 4.0][rng.usize(0..4)];
                z.extend(normals(&mut rng, d, sigma));
                match rng.usize(0..8) {
                    0 => *z.last_mut().unwrap() = f32::NAN,
                    1 => *z.last_mut().unwrap() = f32::NEG_INFINITY,
                    _ => {}
                }
            }
            for level in available() {
                let (p, tau, status) = run(level, map, &z, d, 1.0);
                for r in 0..rows {
                    let row = &z[r * d..(r + 1) * d];
                    let (q, t, s) = run(level, map, row, d, 1.0);
                    assert_eq!(s[0], status[r]);
                    assert_eq!(t[0].to_bits(), tau[r].to_bits());
                    let bits = |p: &[f32]| p.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&q), bits(&p[r * d..(r + 1) * d]), "{level:?} {map:?} d={d}");
                }
            }
        }
    }
}

#[test]
fn levels_agree_on_the_support() {
    let mut rng = fastrand::Rng::with_seed(3);
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in [10, 64, 500, 2000, 10_000] {
            let z = normals(&mut rng, 8 * d, 0.5);
            let (p, _, _) = run(Level::Portable, map, &z, d, 1.0);
            for level in available() {
                let (q, _, _) = run(level, map, &z, d, 1.0);
                for i in 0..p.len() {
                    // An entry whose probability is rounding noise is a tie.
                    let same = (p[i] > 0.0) == (q[i] > 0.0);
                    assert!(same || p[i].max(q[i]) < 1e-7, "{level:?} {map:?} d={d} entry {i}");
                }
            }
        }
    }
}

#[test]
fn the_threshold_reproduces_the_row() {
    let mut rng = fastrand::Rng::with_seed(4);
    for map in [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::Entmax(1.2), Map::Entmax(1.8)] {
        for d in [5, 64, 600, 5000] {
            let z = normals(&mut rng, 3 * d, 1.0);
            for level in available() {
                let (p, tau, _) = run(level, map, &z, d, 2.0);
                for i in 0..z.len() {
                    let x = 2.0 * f64::from(z[i]);
                    let again = match map {
                        Map::Softmax => (x - tau[i / d]).exp(),
                        _ => {
                            let (inner, e) = shape(map);
                            (inner * x - tau[i / d]).max(0.0).powf(e)
                        }
                    };
                    assert!((again - f64::from(p[i])).abs() < 1e-6, "{level:?} {map:?} d={d}");
                }
            }
        }
    }
}
