//! Rows of a few thousand scores, of all kinds side by side: few candidates, long lists, crowds, ties.

use super::*;

/// A row of one of ten kinds.
fn row(rng: &mut fastrand::Rng, kind: usize, d: usize) -> Vec<f32> {
    let mut z = normals(rng, d, [1.0, 2.0, 0.1, 0.01, 0.03, 1.0, 1.0, 0.3, 0.0, 1e-3][kind]);
    match kind {
        5 => z.sort_by(f32::total_cmp),
        6 => z.sort_by(|a, b| b.total_cmp(a)),
        7 => z[d / 3..].fill(f32::NEG_INFINITY),
        // Few that are equal, above as many others.
        8 => z.iter_mut().enumerate().for_each(|(i, z)| *z = if i % 700 == 3 { 0.25 } else { (i % 5) as f32 * 0.01 }),
        9 => z[d - 2] = 0.4,
        _ => {}
    }
    z
}

#[test]
fn rows_of_all_kinds_side_by_side() {
    let mut rng = fastrand::Rng::with_seed(81);
    for alpha in [1.25, 1.26, 4.0 / 3.0, 1.45, 1.6, 1.75, 1.95, 2.1, 3.0, 4.0, 9.0] {
        for d in [1025, 2500, 4096] {
            let map = Map::Entmax(alpha);
            let rows: Vec<Vec<f32>> = (0..20).map(|r| row(&mut rng, r % 10, d)).collect();
            let z = rows.concat();
            for level in available() {
                let (p, tau, status) = run(level, map, &z, d, 1.0);
                assert!(status.iter().all(|status| *status == Status::Ok));
                for (r, z) in rows.iter().enumerate() {
                    let what = format!("{level:?} α={alpha} d={d} kind {}", r % 10);
                    let p = &p[r * d..(r + 1) * d];
                    check(p, &reference(map, z, 1.0), &what);
                    let (alone, at, _) = run(level, map, z, d, 1.0);
                    let same = alone.iter().zip(p).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(same && at[0].to_bits() == tau[r].to_bits(), "{what}: differs alone");
                }
            }
        }
    }
}
