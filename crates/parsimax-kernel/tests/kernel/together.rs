//! Rows of sparsemax and 1.5-entmax that are solved together: the last step must not lead beyond an entry unseen, and
//! neighbours must not be seen at all.

use super::*;

const NARROW: [usize; 11] = [2, 7, 16, 17, 33, 48, 49, 57, 64, 100, 128];

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

#[test]
fn ties_far_from_zero_among_masked_entries() {
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in NARROW {
            for shift in [0.0f32, -1000.0, 1000.0, 3e5, -1e6] {
                // Ties one after another, so that some lanes have several and others none.
                let mut z = Vec::new();
                for m in 1..=d {
                    let mut row = vec![f32::NEG_INFINITY; d];
                    (0..m).for_each(|k| row[(k * 16 + k * 16 / d) % d] = shift);
                    z.extend(row);
                }
                check_rows(map, &z, d, 1.0, &format!("ties at {shift}"));
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

/// Rows that order tells all of, crowded ones and ones between, in every mixture.
fn mixture(rng: &mut fastrand::Rng, rows: usize, d: usize, crowds: bool) -> Vec<f32> {
    let mut sigma = 1.0;
    (0..rows)
        .flat_map(|r| {
            if !crowds || r % 40 == 0 {
                sigma = [3.0, 1.0, 0.5, 0.3, 0.1, 0.01, 0.0][rng.usize(..7)];
            }
            normals(rng, d, sigma)
        })
        .collect()
}

#[test]
fn a_row_has_the_same_bits_whatever_its_neighbours_are() {
    let mut rng = fastrand::Rng::with_seed(118);
    for map in [Map::Sparsemax, Map::Entmax15] {
        for (d, rows) in
            [(33, 300), (49, 300), (57, 300), (64, 300), (100, 300), (512, 70), (700, 70), (1024, 50), (4096, 40)]
        {
            for crowds in [false, true] {
                let z = mixture(&mut rng, rows, d, crowds);
                check_rows(map, &z, d, 1.0, "mixture");
                for level in available() {
                    let (p, tau, _) = run(level, map, &z, d, 1.0);
                    for (r, (p, z)) in p.chunks(d).zip(z.chunks(d)).enumerate() {
                        let (alone, alone_tau, _) = run(level, map, z, d, 1.0);
                        assert_eq!(alone, p, "{level:?} {map:?} d={d} row {r}");
                        assert_eq!(alone_tau[0], tau[r], "{level:?} {map:?} d={d} row {r}");
                    }
                }
            }
        }
    }
}

/// What the rows of the call before were like is a matter of speed alone.
#[test]
fn a_call_has_the_same_bits_whatever_came_before() {
    let mut rng = fastrand::Rng::with_seed(119);
    for d in [49, 64, 512, 1024, 4096] {
        let [dense, between, sparse] = [0.01, 0.1, 1.0].map(|sigma| normals(&mut rng, 70 * d, sigma));
        for (level, map) in available().flat_map(|level| [(level, Map::Sparsemax), (level, Map::Entmax15)]) {
            let mut scratch = Scratch::new();
            for z in [&sparse, &dense, &sparse, &between, &dense, &dense, &between, &sparse] {
                let (mut out, mut status) = (vec![7.0; z.len()], vec![Status::Bad; 70]);
                with_level(level, || {
                    let (out, status, scratch) = (&mut out, &mut status, &mut scratch);
                    forward(map, Forward { z, d, scale: 1.0, out, stream: false, tau: None, status, scratch });
                });
                assert_eq!(out, run(level, map, z, d, 1.0).0, "{level:?} {map:?} d={d}");
            }
        }
    }
}

#[test]
fn a_nan_in_any_place_spoils_its_row_and_no_other() {
    let mut rng = fastrand::Rng::with_seed(120);
    for sigma in [1.0, 0.01] {
        for d in [49, 64, 600] {
            let clean = normals(&mut rng, 40 * d, sigma);
            for place in (0..d).step_by(d.div_ceil(64)) {
                let (mut z, row) = (clean.clone(), place % 40);
                z[row * d + place] = f32::NAN;
                for level in available() {
                    let (p, _, status) = run(level, Map::Sparsemax, &z, d, 1.0);
                    for r in 0..40 {
                        assert_eq!(status[r] == Status::Bad, r == row, "{level:?} d={d} place {place} row {r}");
                        let is_nan = p[r * d..(r + 1) * d].iter().all(|p| p.is_nan());
                        assert_eq!(is_nan, r == row, "{level:?} d={d} place {place} row {r}");
                    }
                }
            }
        }
    }
}

/// Supports that order cannot see whole: three in a lane, two lanes with two each, more than it ranks.
#[test]
fn supports_in_unlucky_places() {
    let mut rng = fastrand::Rng::with_seed(121);
    let places: [&[usize]; 5] =
        [&[3, 19, 35], &[3, 19, 35, 51], &[0, 16, 8, 24], &[1, 17, 9, 25, 33, 41], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]];
    for gap in [0.0f32, 1e-3, 0.05] {
        let mut z = Vec::new();
        for places in places {
            let mut row: Vec<f32> = normals(&mut rng, 64, 1.0).iter().map(|z| z - 9.0).collect();
            places.iter().enumerate().for_each(|(k, place)| row[*place] = 1.0 - gap * k as f32);
            z.extend(row);
        }
        for map in [Map::Sparsemax, Map::Entmax15] {
            check_rows(map, &z, 64, 1.0, &format!("gap {gap}"));
        }
    }
}
