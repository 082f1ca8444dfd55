//! Narrow rows of sparsemax and 1.5-entmax, whose last step must not lead beyond an entry unseen.

use super::*;

const NARROW: [usize; 9] = [2, 7, 16, 17, 33, 48, 64, 100, 128];

/// Rows side by side against the reference, at every level.
fn check_rows(map: Map, z: &[f32], d: usize, scale: f32, what: &str) {
    for level in available() {
        let (p, _, _) = run(level, map, z, d, scale);
        for (r, (p, z)) in p.chunks(d).zip(z.chunks(d)).enumerate() {
            check(p, &reference(map, z, scale), &format!("{level:?} {map:?} {what} d={d} row {r}"));
        }
    }
}

#[test]
fn crowds_next_to_the_threshold() {
    let mut rng = fastrand::Rng::with_seed(117);
    for map in [Map::Sparsemax, Map::Entmax15] {
        let (inner, _) = shape(map);
        for d in NARROW {
            for near in [0.1f32, 1e-2, 1e-3, 1e-4, 1e-6] {
                for sigma in [0.02f32, 0.3, 1.0, 3.0] {
                    // Half of a row that the others come next to the threshold of, on either side: they move it, and
                    // steps from either side have entries to pass.
                    let mut z = Vec::new();
                    for _ in 0..19 {
                        let mut row = normals(&mut rng, d, sigma);
                        let (half, others) = row.split_at_mut(d.div_ceil(2));
                        let (_, tau, _) = run(Level::Portable, map, half, half.len(), 1.0);
                        others.iter_mut().for_each(|z| *z = (tau[0] / inner) as f32 + near * normal(&mut rng));
                        rng.shuffle(&mut row);
                        z.extend(row);
                    }
                    check_rows(map, &z, d, 1.0, &format!("σ={sigma}, others within {near}"));
                }
            }
        }
    }
}

#[test]
fn one_large_entry_and_a_crowd_far_below() {
    for map in [Map::Sparsemax, Map::Entmax15] {
        let (inner, _) = shape(map);
        for d in NARROW {
            for depth in [0.2, 0.5, 0.9, 0.99, 0.9999, 1.0, 1.0001] {
                // From the maximum less one, the crowd is a large sum of small terms: a first step has far to go, and the
                // parabola through all of them may have no root.
                let mut z = vec![(3.25 - depth / inner) as f32; 3 * d];
                for (r, row) in z.chunks_mut(d).enumerate() {
                    row[(5 * r) % d] = 3.25;
                    row[(5 * r + 1) % d] = 3.25 - [0.0, 0.3, 1.5][r];
                }
                check_rows(map, &z, d, 1.0, &format!("{depth} below"));
            }
        }
    }
}

/// What a lane adds up has no other lanes to share its rounding with.
#[test]
fn equal_shares_are_as_exact_as_a_float() {
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in NARROW {
            for m in [1, 2, 3, 5, 11, 23, 47, 95, 127].into_iter().filter(|m| *m <= d) {
                let mut z = vec![-20.0f32; d];
                (0..m).for_each(|k| z[(d - 1) * k / m] = 0.7);
                for level in available() {
                    let (p, _, _) = run(level, map, &z, d, 1.0);
                    let share = 1.0 / p.iter().filter(|p| **p > 0.0).count() as f64;
                    for p in p.into_iter().filter(|p| *p > 0.0) {
                        let off = (f64::from(p) - share).abs() / share;
                        assert!(off <= 2.5e-7, "{level:?} {map:?} d={d} m={m}: {p} is off by {off:e}");
                    }
                }
            }
        }
    }
}
