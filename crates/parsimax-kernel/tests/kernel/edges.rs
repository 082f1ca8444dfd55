//! Inputs that break careless code.

use super::*;

const MAPS: [Map; 4] = [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::EvSoftmax];

/// Every row of `rows` against the reference, at every level.
fn check_rows(rows: &[Vec<f32>], scale: f32, what: &str) {
    for map in MAPS {
        for level in available() {
            for z in rows {
                let (p, _, status) = run(level, map, z, z.len(), scale);
                assert_eq!(status[0], Status::Ok);
                let what = format!("{level:?} {map:?} {what} d={}", z.len());
                check(&p, &reference(map, z, scale), &what);
            }
        }
    }
}

#[test]
fn no_columns_and_no_rows() {
    for map in MAPS {
        for level in available() {
            let (p, tau, status) = run(level, map, &[], 0, 1.0);
            assert!(p.is_empty());
            assert_eq!(tau, [0.0; 3]);
            assert_eq!(status, [Status::Empty; 3]);
            let (p, _, status) = run(level, map, &[], 5, 1.0);
            assert!(p.is_empty() && status.is_empty());
        }
    }
}

#[test]
fn equal_entries_share_equally() {
    for d in [1, 2, 3, 8, 64, 65, 500, 1024, 1025, 5000, 70_001] {
        for c in [0.0, -3.5, 1e6, 1e30, -1e30, f32::MIN, f32::MAX, 1e-30, 1e-42] {
            let z = vec![c; d];
            for map in MAPS {
                for level in available() {
                    let (p, _, _) = run(level, map, &z, d, 1.0);
                    check(&p, &vec![1.0 / d as f64; d], &format!("{level:?} {map:?} {c} × {d}"));
                    assert!(p.iter().all(|&v| v == p[0]), "{level:?} {map:?} {c} × {d}");
                }
            }
        }
    }
}

#[test]
fn extreme_magnitudes() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut rows = Vec::new();
    for d in [2, 9, 64, 300, 1500, 6000] {
        for sigma in [1e30, 1e-30, 1e-40, 1e6] {
            rows.push(normals(&mut rng, d, sigma));
        }
        let mut masked = normals(&mut rng, d, 1.0);
        masked[d / 2..].fill(f32::MIN);
        rows.push(masked);
    }
    check_rows(&rows, 1.0, "magnitude");
    check_rows(&rows, 1e-6, "magnitude, small scale");
    check_rows(&rows, 1e6, "magnitude, large scale");
}

#[test]
fn a_common_shift_costs_nothing() {
    let mut rng = fastrand::Rng::with_seed(6);
    let shifted = |d: usize, rng: &mut fastrand::Rng| normals(rng, d, 1.0).into_iter().map(|v| v + 1e6).collect();
    let rows: Vec<_> = [3, 64, 512, 4096].iter().map(|&d| shifted(d, &mut rng)).collect();
    check_rows(&rows, 1.0, "shifted");
}

#[test]
fn sorted_tied_and_lopsided_rows() {
    let mut rng = fastrand::Rng::with_seed(7);
    let mut rows = Vec::new();
    for d in [8, 64, 100, 513, 1024, 4097, 40_000, 50_000] {
        for sigma in [0.01, 1.0] {
            let mut up = normals(&mut rng, d, sigma);
            up.sort_by(f32::total_cmp);
            let down = up.iter().rev().copied().collect();
            rows.extend([up, down]);
        }
        // A few values only.
        rows.push((0..d).map(|_| f32::from(rng.u8(0..4)) / 8.0).collect());
        // One large entry beside many that share what is left, in several proportions.
        for gap in [0.5, 0.9, 0.999, 1.0, 1.9, 1.9999] {
            let mut z = vec![0.3f32; d];
            z[d / 3] = 0.3 + gap;
            rows.push(z.clone());
            // The same with the small ones a little apart.
            for v in &mut z {
                *v += 1e-6 * rng.f32();
            }
            rows.push(z);
        }
    }
    check_rows(&rows, 1.0, "order and ties");
}

#[test]
fn nearly_equal_rows_sum_to_one() {
    let mut rng = fastrand::Rng::with_seed(17);
    let mut rows = Vec::new();
    // A sum of hundreds, as such a row has at its bound, is not exact enough to step from it to the end.
    for d in [500, 840, 965, 1002, 1024] {
        for sigma in [5e-6, 1e-5, 3e-5, 5e-4] {
            let offset = rng.f32() * 4.0 - 2.0;
            rows.push(normals(&mut rng, d, sigma).iter().map(|z| z + offset).collect());
            rows.push((0..d).map(|_| sigma * rng.f32()).collect());
        }
    }
    check_rows(&rows, 1.0, "nearly equal");
}

/// Rows with few candidates and rows with many go different ways, and so do neighbours; every way leads to the same.
#[test]
fn any_number_of_candidates() {
    let mut rng = fastrand::Rng::with_seed(53);
    for d in [128, 200, 512, 1024] {
        let mut places: Vec<usize> = (0..d).collect();
        let sizes = [1, 2, 15, 16, 17, 33, 47, 48, 49, 64, 100];
        let mut z = vec![-20.0f32; sizes.len() * d];
        for (row, m) in z.chunks_exact_mut(d).zip(sizes) {
            rng.shuffle(&mut places);
            places[..m].iter().for_each(|at| row[*at] = 1.5);
        }
        for map in [Map::Sparsemax, Map::Entmax15] {
            for level in available() {
                let (p, tau, _) = run(level, map, &z, d, 1.0);
                for (r, m) in sizes.into_iter().enumerate() {
                    let (z, p) = (&z[r * d..][..d], &p[r * d..][..d]);
                    let share = 1.0 / m as f64;
                    // τ of m equal scores: [x − τ] = 1/m, or [x/2 − τ]² = 1/m.
                    let expected = if map == Map::Sparsemax { 1.5 - share } else { 0.75 - share.sqrt() };
                    assert!((tau[r] - expected).abs() < 4e-7, "{level:?} {map:?} d={d} m={m}: τ {}", tau[r]);
                    for (z, p) in z.iter().zip(p) {
                        let right = if *z > 0.0 { share } else { 0.0 };
                        assert!((f64::from(*p) - right).abs() <= 2.5e-7 * right, "{level:?} {map:?} d={d} m={m}: {p}");
                    }
                }
            }
        }
    }
}

/// Zeros are written by the block and candidates put in: wherever these are and the blocks end, every entry is written.
#[test]
fn few_candidates_next_to_the_ends_of_blocks() {
    let mut rng = fastrand::Rng::with_seed(57);
    for d in [4097, 4160, 5119, 5120, 5121, 8191, 8255, 12_289] {
        let mut rows = Vec::new();
        for block in [64, 1024, 4096] {
            let mut z = normals(&mut rng, d, 0.5);
            for end in (block..d).step_by(block) {
                if rng.u8(0..4) == 0 {
                    z[end - 1] = 9.0 + rng.f32();
                    z[end] = 9.0 + rng.f32();
                }
            }
            rows.push(z);
        }
        check_rows(&rows, 1.0, "blocks");
    }
}

#[test]
fn a_million_columns() {
    let mut rng = fastrand::Rng::with_seed(8);
    let d = 1 << 20;
    let mut lopsided = vec![0.1f32; d];
    lopsided[d - 1] = 0.9;
    let mut sparse = normals(&mut rng, d, 1.0);
    sparse[..d / 2].fill(f32::NEG_INFINITY);
    check_rows(&[lopsided, sparse, normals(&mut rng, d, 1e-4)], 1.0, "long");
}

#[test]
fn masked_entries_are_exactly_zero() {
    let mut rng = fastrand::Rng::with_seed(9);
    for d in [1, 2, 7, 64, 100, 1000, 5000] {
        for (sigma, padded) in [(0.001, false), (1.0, false), (1.0, true)] {
            let mut z = normals(&mut rng, d, sigma);
            let from = if padded { rng.usize(1..=d) } else { d };
            for i in 1..d {
                if i >= from || !padded && rng.bool() {
                    z[i] = f32::NEG_INFINITY;
                }
            }
            for map in MAPS {
                for level in available() {
                    let (p, _, status) = run(level, map, &z, d, 1.0);
                    assert_eq!(status, [Status::Ok]);
                    check(&p, &reference(map, &z, 1.0), &format!("{level:?} {map:?} masked"));
                    for i in 0..d {
                        assert!(z[i] > f32::NEG_INFINITY || p[i].to_bits() == 0);
                    }
                }
            }
        }
    }
}

#[test]
fn empty_and_bad_rows_leave_the_others_alone() {
    let mut rng = fastrand::Rng::with_seed(10);
    for map in MAPS {
        for d in [1, 3, 8, 64, 130, 1000, 1025, 4500, 9000] {
            for evil in [f32::NAN, -f32::NAN, f32::INFINITY] {
                let rows = 11;
                let mut z = normals(&mut rng, rows * d, 1.0);
                z[2 * d..3 * d].fill(f32::NEG_INFINITY);
                for r in [4, 5, 10] {
                    z[r * d + rng.usize(0..d)] = evil;
                }
                // Bad wins over masked.
                z[7 * d..8 * d].fill(f32::NEG_INFINITY);
                z[8 * d - 1] = evil;
                for level in available() {
                    let (p, tau, status) = run(level, map, &z, d, 1.0);
                    for r in 0..rows {
                        let (row, input) = (&p[r * d..(r + 1) * d], &z[r * d..(r + 1) * d]);
                        let what = format!("{level:?} {map:?} d={d} row {r}");
                        match r {
                            2 => {
                                assert_eq!(status[r], Status::Empty, "{what}");
                                assert!(row.iter().all(|v| v.to_bits() == 0), "{what}");
                                assert_eq!(tau[r], 0.0);
                            }
                            4 | 5 | 7 | 10 => {
                                assert_eq!(status[r], Status::Bad, "{what}");
                                assert!(row.iter().all(|v| v.is_nan()), "{what}");
                                assert!(tau[r].is_nan());
                            }
                            _ => {
                                assert_eq!(status[r], Status::Ok, "{what}");
                                check(row, &reference(map, input, 1.0), &what);
                            }
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_forced_level_is_the_one_that_runs() {
    let before = active();
    for level in Level::ALL {
        with_level(level, || {
            let expected = if level.is_available() { level } else { before };
            assert_eq!(active(), expected);
        });
        assert_eq!(active(), before);
    }
    assert!(available().any(|l| l == Level::Portable));
}

#[test]
fn the_environment_chooses_the_level() {
    let asked = std::env::var("PARSIMAX_KERNEL").unwrap_or_default();
    let expected = available().find(|l| l.name() == asked).or(available().next());
    assert_eq!(Some(active()), expected);
}

#[test]
fn large_scores_beside_small_ones() {
    // On both sides of the magnitudes at which thresholds and exponentials change their units.
    let mut rng = fastrand::Rng::with_seed(13);
    let shifts = [0.0, -40.0, 3e3, 8e3, -8.3e3, 9e3, 3e4, 7e5, -8e5, 2e6, 1e9];
    for scale in [1.0, 0.37, 3.0] {
        for d in [1, 7, 8, 20, 64, 65, 130, 1000] {
            let mut z = Vec::new();
            for shift in shifts {
                z.extend(normals(&mut rng, d, 0.7).into_iter().map(|v| v + shift));
            }
            for map in MAPS {
                for level in available() {
                    let (p, tau, status) = run(level, map, &z, d, scale);
                    assert_eq!(status, [Status::Ok; 11]);
                    for (r, row) in z.chunks(d).enumerate() {
                        let at = r * d..(r + 1) * d;
                        let what = format!("{level:?} {map:?} d={d} scale={scale} shift={}", shifts[r]);
                        check(&p[at.clone()], &reference(map, row, scale), &what);
                        let (alone, t, _) = run(level, map, row, d, scale);
                        assert!(alone == p[at] && t[0] == tau[r], "{what}: depends on its neighbours");
                    }
                }
            }
        }
    }
}

#[test]
fn no_nan_passes_for_a_number() {
    // Quiet and signalling ones of either sign, and payloads that reach the exponent when bits are moved there.
    let nans = [0x7fc0_0000, 0xffc0_0000, 0x7fc0_0001, 0x7fc0_00ff, 0xffc0_0100, 0x7f80_0001, 0xff80_0001, u32::MAX];
    let mut rng = fastrand::Rng::with_seed(92);
    let maps = [Map::Softmax, Map::Sparsemax, Map::Entmax15, Map::EvSoftmax, Map::Entmax(1.3), Map::Entmax(3.0)];
    for d in [1, 3, 11, 16, 33, 64, 100, 128, 140, 512, 1024, 1500, 4096, 5000] {
        let rows = normals(&mut rng, 3 * d, 1.0);
        for bits in nans {
            let mut z = rows.clone();
            z[d + rng.usize(0..d)] = f32::from_bits(bits);
            for (map, level) in maps.into_iter().flat_map(|map| available().map(move |level| (map, level))) {
                let (_, _, status) = run(level, map, &z, d, 0.7);
                assert_eq!(status, [Status::Ok, Status::Bad, Status::Ok], "{level:?} {map:?} d={d} {bits:x}");
            }
        }
    }
}
