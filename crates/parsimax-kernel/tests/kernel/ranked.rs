//! Short and middling rows of sparsemax and 1.5-entmax: what order alone tells, and where it misleads.

use super::*;

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
fn a_support_that_shares_lanes() {
    let mut rng = fastrand::Rng::with_seed(91);
    for map in [Map::Sparsemax, Map::Entmax15] {
        for d in [64, 128, 131, 512, 1024, 1500, 4096, 5000] {
            // As many entries as can be in the support, all of them in one lane or in neighbouring ones, beside others
            // that are out of it or nearly so.
            for (many, lanes) in [(1, 1), (2, 1), (3, 1), (5, 2), (9, 3), (14, 5), (17, 4), (40, 7), (60, 16)] {
                let mut z = Vec::new();
                for r in 0..19 {
                    let mut row = normals(&mut rng, d, 0.3);
                    row.iter_mut().for_each(|z| *z -= 2.5);
                    for k in 0..many {
                        let at = (16 * (k / lanes) + k % lanes + 5 * r) % d;
                        row[at] = 0.4 / many as f32 * rng.f32();
                    }
                    z.extend(row);
                }
                check_rows(map, &z, d, [1.0, 0.7][many % 2], &format!("{many} entries in {lanes} lanes"));
            }
        }
    }
}

#[test]
fn ties_at_the_threshold_of_the_largest() {
    for map in [Map::Sparsemax, Map::Entmax15] {
        let (inner, _) = shape(map);
        for d in [128, 512, 4096] {
            for others in [1, 3, 15, 16, 17, 50] {
                // The largest has all there is; the others are on the threshold, or next to it on either side.
                let mut z = vec![-9.0f32; 3 * d];
                for (row, off) in z.chunks_mut(d).zip([0.0, 1e-6, -1e-6]) {
                    row[d / 2] = 1.5;
                    (0..others).for_each(|k| row[(7 * k) % (d / 2)] = (1.5 - 1.0 / inner + off) as f32);
                }
                check_rows(map, &z, d, 1.0, &format!("{others} at the threshold"));
            }
        }
    }
}
