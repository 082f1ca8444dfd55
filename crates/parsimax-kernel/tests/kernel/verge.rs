//! α-entmax next to softmax.

use super::*;

const ALPHAS: [f64; 6] = [1.0 + 1e-9, 1.0001, 1.01, 1.04, 1.08, 1.0999];

/// Rows of many characters, `d` wide.
fn mixture(rng: &mut fastrand::Rng, d: usize, n: usize) -> Vec<f32> {
    let mut z = Vec::new();
    for r in 0..n {
        let mut row = normals(rng, d, [1.0, 0.0, 2.0, 1e-3, 30.0, 0.3, 1.0][r % 7]);
        match r % 11 {
            1 => row.sort_by(f32::total_cmp),
            2 => row.sort_by(|a, b| b.total_cmp(a)),
            // What is far above the others, and what is a crowd far below.
            3 => row[(7 * r) % d] += 20.0,
            4 => row.iter_mut().step_by(3).for_each(|z| *z = f32::NEG_INFINITY),
            5 => row.iter_mut().take(d.saturating_sub(3)).for_each(|z| *z = f32::NEG_INFINITY),
            6 => row.iter_mut().for_each(|z| *z += 1e4),
            7 => row.fill(f32::NEG_INFINITY),
            8 => row[d / 2] = f32::NAN,
            _ => {}
        }
        z.extend(row);
    }
    z
}

#[test]
fn rows_of_all_characters_match_the_reference_side_by_side() {
    let mut rng = fastrand::Rng::with_seed(151);
    for alpha in ALPHAS {
        for d in [1, 5, 16, 40, 64, 97, 300, 1024, 5000] {
            let (map, n) = (Map::Entmax(alpha), 37);
            let z = mixture(&mut rng, d, n);
            for level in available() {
                let (p, tau, status) = run(level, map, &z, d, 0.7);
                for (r, z) in z.chunks(d).enumerate() {
                    let (p, what) = (&p[r * d..(r + 1) * d], format!("{level:?} α={alpha} d={d} row {r}"));
                    let (alone, tau_alone, _) = run(level, map, z, d, 0.7);
                    let bits = |p: &[f32]| p.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
                    assert!(bits(p) == bits(&alone), "{what} depends on its neighbours");
                    assert_eq!(tau[r].to_bits(), tau_alone[0].to_bits(), "{what}");
                    match status[r] {
                        Status::Ok => check(p, &reference(map, z, 0.7), &what),
                        Status::Empty => assert!(p.iter().all(|p| *p == 0.0), "{what}"),
                        Status::Bad => assert!(p.iter().all(|p| p.is_nan()), "{what}"),
                    }
                    let is_bad = z.iter().any(|z| z.is_nan());
                    assert_eq!(status[r] == Status::Bad, is_bad, "{what}");
                }
            }
        }
    }
}
