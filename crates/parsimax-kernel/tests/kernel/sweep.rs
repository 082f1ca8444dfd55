//! Long rows with many candidates: crowds at the threshold, samples that mislead, large scores.

use super::*;

/// A row against the reference, at every level, and its τ against a supported entry.
fn check_row(map: Map, z: &[f32], scale: f32, what: &str) {
    let want = reference(map, z, scale);
    for level in available() {
        let (p, tau, _) = run(level, map, z, z.len(), scale);
        let what = format!("{level:?} {map:?} {what} d={}", z.len());
        check(&p, &want, &what);
        let (inner, e) = shape(map);
        let top = (0..z.len()).max_by(|a, b| z[*a].total_cmp(&z[*b])).unwrap();
        let from_top = inner * f64::from(scale) * f64::from(z[top]) - want[top].powf(1.0 / e);
        // The scale of the kernel is an f32.
        assert!((tau[0] - from_top).abs() < 3e-7 * (1.0 + from_top.abs()), "{what}: τ = {}, {from_top}", tau[0]);
    }
}

#[test]
fn crowds_at_the_threshold() {
    let mut rng = fastrand::Rng::with_seed(81);
    for map in [Map::Sparsemax, Map::Entmax15] {
        let (inner, e) = shape(map);
        for d in [1500, 9001, 40_000, 300_000] {
            for (crowd, shift) in [(40, 0.0), (900, 3.0), (d / 3, -20.0), (d / 3, 700.0), (d / 3, 9000.0)] {
                let mut z: Vec<f32> = normals(&mut rng, d, 0.02);
                let p = reference(map, &z, 1.0);
                let top = (0..d).max_by(|a, b| p[*a].total_cmp(&p[*b])).unwrap();
                // Where the threshold is, in units of the scores, before the crowd comes.
                let at = f64::from(z[top]) - p[top].powf(1.0 / e) / inner;
                for z in &mut z {
                    if rng.usize(0..d) < crowd {
                        *z = (at + 1e-6 * (rng.f64() - 0.5)) as f32;
                    }
                }
                z.iter_mut().for_each(|z| *z += shift);
                check_row(map, &z, 1.0, &format!("crowd of {crowd}, {shift}"));
            }
        }
    }
}

#[test]
fn samples_that_mislead() {
    let mut rng = fastrand::Rng::with_seed(82);
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in [1100, 4096, 33_000] {
            // Periods that samples of vectors may fall in step with, high and low.
            for (period, height) in [(128, 0.2), (256, -0.2), (257, 0.05), (d / 127, 0.3), (d / 31, -0.3)] {
                let mut z = normals(&mut rng, d, 0.01);
                for (i, z) in z.iter_mut().enumerate().filter(|(i, _)| i % period < 16) {
                    *z += height * (1.0 + 0.1 * (i % 7) as f32);
                }
                check_row(map, &z, [1.0, 0.3, 2.5][rng.usize(0..3)], &format!("period {period}, {height}"));
            }
        }
    }
}

#[test]
fn what_the_first_chunk_does_not_tell() {
    let mut rng = fastrand::Rng::with_seed(83);
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in [5000, 20_003, 66_000] {
            for sigma in [1e-4, 0.01, 0.1] {
                // An entry or a whole end that is far above the rest, at any scale.
                for (from, height) in [(d - 1, 0.7), (d - 7, 100.7), (d / 2, 50.0), (d - 3, 1e20), (d / 3, -1e20)] {
                    let mut z = normals(&mut rng, d, sigma);
                    z[from..].iter_mut().for_each(|z| *z += height);
                    z.iter_mut().for_each(|z| *z += 100.0);
                    check_row(map, &z, 1.0, &format!("σ = {sigma}, {height} from {from} on"));
                }
                // One that makes the row bad, and only that row.
                for value in [f32::NAN, f32::INFINITY] {
                    let mut z = normals(&mut rng, 3 * d, sigma);
                    z[d + 4100 + rng.usize(0..d - 4100)] = value;
                    for level in available() {
                        let (p, _, status) = run(level, map, &z, d, 1.0);
                        assert_eq!(status, [Status::Ok, Status::Bad, Status::Ok]);
                        assert!(p[d..2 * d].iter().all(|p| p.is_nan()));
                        check(&p[..d], &reference(map, &z[..d], 1.0), "the row before");
                        check(&p[2 * d..], &reference(map, &z[2 * d..], 1.0), "the row after");
                    }
                }
            }
        }
    }
}
