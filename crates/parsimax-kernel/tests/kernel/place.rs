//! Rows in the place of their result, against those beside it, at every level.

use super::backward::reference_vjp;
use super::*;

const MAPS: [Map; 9] = [
    Map::Softmax,
    Map::Sparsemax,
    Map::Entmax15,
    Map::EvSoftmax,
    Map::Entmax(1.1),
    Map::Entmax(1.25),
    Map::Entmax(4.0 / 3.0),
    Map::Entmax(1.75),
    Map::Entmax(3.0),
];

/// Rows with supports of every kind.
fn rows(rng: &mut fastrand::Rng, d: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = [1e-3, 0.1, 1.0, 6.0].iter().map(|sigma| normals(rng, d, *sigma)).collect();
    rows.push(vec![-2.5; d]);
    rows.push(normals(rng, d, 0.3).iter().map(|z| if rng.u8(..3) == 0 { f32::NEG_INFINITY } else { *z }).collect());
    let mut ascending = normals(rng, d, 1.0);
    ascending.sort_by(f32::total_cmp);
    rows.push(ascending);
    rows
}

#[test]
fn probabilities_take_the_place_of_scores() {
    let mut rng = fastrand::Rng::with_seed(71);
    for d in [1, 7, 33, 1000, 20_011] {
        for (kind, z) in rows(&mut rng, d).into_iter().enumerate() {
            for map in MAPS {
                let want = reference(map, &z, 0.8);
                for level in available() {
                    let what = format!("{map:?} {level:?} d = {d} kind {kind}");
                    let mut x = z.clone();
                    let status = with_level(level, || in_place(map, &mut x, 0.8));
                    if z.iter().all(|z| *z == f32::NEG_INFINITY) {
                        assert_eq!((status, x), (Status::Empty, vec![0.0; d]), "{what}");
                    } else {
                        assert_eq!(status, Status::Ok, "{what}");
                        check(&x, &want, &what);
                    }
                }
            }
        }
    }
    for (bad, status) in [(f32::NAN, Status::Bad), (f32::INFINITY, Status::Bad), (f32::NEG_INFINITY, Status::Empty)] {
        for (map, level) in MAPS.into_iter().flat_map(|map| available().map(move |level| (map, level))) {
            let mut x = vec![bad; 300];
            x[..40].fill(if status == Status::Bad { 0.5 } else { bad });
            assert_eq!(with_level(level, || in_place(map, &mut x, 1.0)), status, "{map:?} {level:?}");
            assert!(x.iter().all(|x| if status == Status::Bad { x.is_nan() } else { *x == 0.0 }), "{map:?} {level:?}");
        }
    }
}

#[test]
fn gradients_take_the_place_of_those_they_come_from() {
    let mut rng = fastrand::Rng::with_seed(72);
    for d in [1, 7, 33, 1000, 20_011] {
        for (kind, z) in rows(&mut rng, d).into_iter().enumerate() {
            for map in MAPS {
                let (p, ..) = run_with(active(), map, &z, d, 0.8, false);
                // What lies off the support does no harm, whatever it is.
                let v: Vec<f32> =
                    p.iter().map(|p| if *p > 0.0 { 3.0 + normal(&mut rng) } else { f32::INFINITY }).collect();
                let want = reference_vjp(map, &p, &v, 0.8);
                for level in available() {
                    let mut out = v.clone();
                    let is_done = with_level(level, || backward_in_place(map, &p, &mut out, 0.8));
                    assert_eq!(is_done, map != Map::Entmax(3.0));
                    for (out, want) in out.iter().zip(&want).filter(|_| is_done) {
                        // A few roundings of numbers up to 7.
                        let error = (f64::from(*out) - want).abs();
                        assert!(error <= 2e-6, "{map:?} {level:?} d = {d} kind {kind}: {out} {want}");
                    }
                }
            }
        }
    }
}
