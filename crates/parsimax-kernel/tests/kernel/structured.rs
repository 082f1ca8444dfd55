//! Structured mappings against their rows in `f64`, at every level.

use super::*;
use parsimax::registry::{Options, build};
use parsimax::{Mapping, Rows as Batch, Scratch as RowScratch, View};

/// Probabilities and statuses of a kernel.
fn forward_at(level: Level, map: Structured, z: &[f32], d: usize) -> (Vec<f32>, Vec<Status>) {
    let (mut out, mut status) = (vec![7.0; z.len()], vec![Status::Bad; z.len() / d]);
    with_level(level, || {
        assert_eq!(active(), level);
        structured(map, Rows { z, d, out: &mut out, status: &mut status, work: &mut Work::default() });
    });
    (out, status)
}

fn backward_at(level: Level, map: Structured, (z, p, v): (&[f32], &[f32], &[f32]), d: usize) -> Vec<f32> {
    let mut out = vec![7.0; z.len()];
    with_level(level, || {
        structured_backward(map, Gradients { z, p, v, d, out: &mut out, work: &mut Work::default() });
    });
    out
}

/// Of strength 1.
fn plain(structure: Structure) -> Structured {
    Structured { structure, gamma: 1.0 }
}

/// Names, options and kernels of what is tried.
fn subjects() -> Vec<(String, Box<dyn Mapping>, Structured)> {
    let mut all = Vec::new();
    let mut add = |name: &str, options: Options, structure: Structure| {
        let map = Structured { structure, gamma: options.gamma.unwrap() };
        all.push((format!("{name} {options:?}"), build(name, &options).unwrap(), map));
    };
    for lambda in [1e-3, 0.02, 0.1, 30.0] {
        for gamma in [1.0, 0.6] {
            let options = Options { lambda: Some(lambda), gamma: Some(gamma), ..Options::default() };
            add("fusedmax", options, Structure::Fused(lambda));
            add("oscarmax", options, Structure::Oscar(lambda));
        }
    }
    for p in [1.125, 1.25, 1.4, 1.5, 1.75, 1.95] {
        for gamma in [1.0, 0.6] {
            let options = Options { p: Some(p), gamma: Some(gamma), ..Options::default() };
            add("sq-pnorm-max", options, Structure::SquaredNorm(p - 1.0));
        }
    }
    all
}

/// Rows of one width, of every kind.
fn rows(rng: &mut fastrand::Rng, d: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = [0.01, 0.1, 1.0, 5.0].iter().map(|sigma| normals(rng, d, *sigma)).collect();
    rows.push(vec![0.25; d]);
    rows.push((0..d).map(|_| rng.i32(-3..4) as f32 * 0.125).collect());
    rows.push(normals(rng, d, 1.0).iter().map(|z| z + 1e4).collect());
    rows.push(normals(rng, d, 0.3).iter().map(|z| if rng.f32() < 0.4 { f32::NEG_INFINITY } else { *z }).collect());
    let mut sorted = normals(rng, d, 1.0);
    sorted.sort_by(f32::total_cmp);
    rows.push(sorted.clone());
    sorted.reverse();
    rows.push(sorted);
    rows.push((0..d).map(|i| -((i % 7) as f32)).collect());
    let mut lonely = normals(rng, d, 1e-3);
    lonely[d / 2] = 1.5;
    rows.push(lonely);
    // A crowd just above the threshold: what Newton takes for the scale of things is far from theirs.
    for lead in [0.5, 0.8, 0.9, 0.99] {
        let mut crowd = vec![0.25; d];
        crowd[d / 2] += lead;
        rows.push(crowd);
    }
    rows
}

/// The row in `f64`, masked entries left out.
fn in_double(mapping: &dyn Mapping, z: &[f32], p: Option<(&[f32], &[f32])>) -> Vec<f64> {
    let keep: Vec<usize> = (0..z.len()).filter(|i| z[*i] > f32::NEG_INFINITY).collect();
    let mut out = vec![0.0; z.len()];
    if keep.is_empty() {
        return out;
    }
    let pick = |x: &[f32]| keep.iter().map(|i| f64::from(x[*i])).collect::<Vec<_>>();
    let (z, mut row) = (pick(z), vec![0.0; keep.len()]);
    match p {
        None => drop(mapping.forward_row(&z, &mut row, &mut RowScratch::new()).unwrap()),
        Some((p, v)) => mapping.vjp_row(&z, &pick(p), &pick(v), &mut row, &mut RowScratch::new()).unwrap(),
    }
    keep.iter().zip(&row).for_each(|(i, value)| out[*i] = *value);
    out
}

#[test]
fn rows_of_every_kind_and_width() {
    let mut rng = fastrand::Rng::with_seed(51);
    for (what, mapping, map) in subjects() {
        // The last is longer than the lists, which most of its kinds then do without.
        for d in [1, 2, 3, 7, 8, 9, 31, 64, 65, 200, 513, 1500, 20_011] {
            for (kind, z) in rows(&mut rng, d).into_iter().enumerate() {
                let want = in_double(&mapping, &z, None);
                for level in available() {
                    let (p, status) = forward_at(level, map, &z, d);
                    let what = format!("{what} {level:?} d = {d} kind {kind}");
                    if want.iter().sum::<f64>() == 0.0 {
                        assert_eq!(status, [Status::Empty], "{what}");
                        assert!(p.iter().all(|p| *p == 0.0), "{what}");
                    } else {
                        assert_eq!(status, [Status::Ok], "{what}");
                        check(&p, &want, &what);
                        // What takes part by itself, in its own place.
                        let taken = || (0..d).filter(|i| z[*i] > f32::NEG_INFINITY);
                        let mut x: Vec<f32> = taken().map(|i| z[i]).collect();
                        let status = with_level(level, || structured_in_place(map, &mut x, &mut Work::default()));
                        assert_eq!(status, Status::Ok, "{what}");
                        check(&x, &taken().map(|i| want[i]).collect::<Vec<_>>(), &what);
                    }
                }
            }
        }
    }
}

#[test]
fn gradients_of_every_kind_and_width() {
    let mut rng = fastrand::Rng::with_seed(52);
    for (what, mapping, map) in subjects() {
        // Norms multiply the rounding of a power by 1/m.
        let tolerance = if let Structure::SquaredNorm(m) = map.structure { 1e-6 / m } else { 1e-6 };
        for d in [1, 2, 9, 64, 65, 513, 1500] {
            let v = normals(&mut rng, d, 1.0);
            for (kind, z) in rows(&mut rng, d).into_iter().enumerate() {
                let (p, _) = forward_at(active(), map, &z, d);
                let want = in_double(&mapping, &z, Some((&p, &v)));
                let largest = want.iter().fold(1.0f64, |m, g| m.max(g.abs()));
                for level in available() {
                    let g = backward_at(level, map, (&z, &p, &v), d);
                    for (i, (g, want)) in g.iter().zip(&want).enumerate() {
                        let error = (f64::from(*g) - want).abs();
                        assert!(error <= tolerance * largest, "{what} {level:?} d = {d} kind {kind} {i}: {g} {want}");
                    }
                }
            }
        }
    }
}

#[test]
fn bad_empty_and_masked_rows() {
    let mut rng = fastrand::Rng::with_seed(53);
    for (what, mapping, map) in subjects() {
        let d = 40;
        let mut z = normals(&mut rng, 4 * d, 1.0);
        z[d + 3] = f32::NAN;
        z[2 * d..3 * d].fill(f32::NEG_INFINITY);
        z[3 * d + 39] = f32::INFINITY;
        for level in available() {
            let (p, status) = forward_at(level, map, &z, d);
            assert_eq!(status, [Status::Ok, Status::Bad, Status::Empty, Status::Bad], "{what}");
            assert!(p[d..2 * d].iter().chain(&p[3 * d..]).all(|p| p.is_nan()), "{what}");
            assert!(p[2 * d..3 * d].iter().all(|p| *p == 0.0), "{what}");
        }
        // A mask and −∞ are the same, and so is leaving the entries out; for the gradient, too.
        let (mut z, v) = (normals(&mut rng, d, 0.3), normals(&mut rng, d, 1.0));
        let mask: Vec<bool> = (0..d).map(|_| rng.f32() < 0.6).collect();
        let batch = Batch::new(&mapping).mask(View::new(&mask, &[1, d]).unwrap());
        let (mut p, mut g) = (vec![0.0f32; d], vec![0.0f32; d]);
        let at = |x| View::new(x, &[1, d]).unwrap();
        batch.forward(at(&z), parsimax::ViewMut::new(&mut p, &[1, d]).unwrap()).unwrap();
        batch.vjp(at(&z), at(&p), at(&v), parsimax::ViewMut::new(&mut g, &[1, d]).unwrap()).unwrap();
        (0..d).filter(|i| !mask[*i]).for_each(|i| z[i] = f32::NEG_INFINITY);
        assert_eq!(forward_at(active(), map, &z, d).0, p, "{what}");
        assert_eq!(backward_at(active(), map, (&z, &p, &v), d), g, "{what}");
    }
}

#[test]
fn a_row_does_not_feel_its_neighbours() {
    let mut rng = fastrand::Rng::with_seed(54);
    for (what, _, map) in subjects() {
        for d in [1, 5, 37, 64, 128, 129] {
            // Twelve kinds: a group of lanes and some that are left over.
            let mut all = rows(&mut rng, d);
            all[3][d / 2] = f32::NAN;
            let together = all.concat();
            for level in available() {
                let (p, status) = forward_at(level, map, &together, d);
                for (r, z) in all.iter().enumerate() {
                    let (alone, its) = forward_at(level, map, z, d);
                    let bits = |p: &[f32]| p.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
                    assert_eq!(its[0], status[r], "{what} {level:?} d = {d} row {r}");
                    assert_eq!(bits(&alone), bits(&p[r * d..(r + 1) * d]), "{what} {level:?} d = {d} row {r}");
                }
            }
        }
    }
}

#[test]
fn more_candidates_than_are_listed() {
    let mut rng = fastrand::Rng::with_seed(55);
    // Candidates are at most 5 below the maximum: most of a row, but not all.
    let (d, options) = (40_000, Options { lambda: Some(1e-4), ..Options::default() });
    let (mapping, map) = (build("oscarmax", &options).unwrap(), plain(Structure::Oscar(1e-4)));
    for sigma in [0.01, 1.0, 1.5] {
        let mut z = normals(&mut rng, d, sigma);
        z.iter_mut().filter(|_| rng.f32() < 0.1).for_each(|z| *z = f32::NEG_INFINITY);
        let want = in_double(&mapping, &z, None);
        for level in available() {
            check(&forward_at(level, map, &z, d).0, &want, &format!("{sigma} {level:?}"));
        }
    }
}

/// Long rows with ties and masks, of which more entries are candidates than a list holds.
fn long_rows(rng: &mut fastrand::Rng, d: usize) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = [0.01, 0.3, 1.0].iter().map(|sigma| normals(rng, d, *sigma)).collect();
    rows.push(vec![0.25; d]);
    // Ties of neighbours and of others.
    rows.push((0..d).map(|i| ((i / 3) % 5) as f32 * 0.125).collect());
    rows.push((0..d).map(|_| rng.i32(-2..3) as f32 * 0.01).collect());
    // A score far above the others, which a large penalty takes down to them.
    rows.push(normals(rng, d, 0.01).iter().enumerate().map(|(i, z)| z + 50.0 * f32::from(i == d / 3)).collect());
    rows.push((0..d).map(|i| i as f32 * 1e-6).collect());
    for k in 0..rows.len() {
        let mut masked = rows[k].clone();
        masked.iter_mut().filter(|_| rng.f32() < 0.1).for_each(|z| *z = f32::NEG_INFINITY);
        // A gap between the halves, and both ends.
        masked[d / 2..d / 2 + 300].fill(f32::NEG_INFINITY);
        masked[..5].fill(f32::NEG_INFINITY);
        masked[d - 70..].fill(f32::NEG_INFINITY);
        rows.push(masked);
    }
    rows
}

#[test]
fn neighbours_of_more_candidates_than_are_listed() {
    let mut rng = fastrand::Rng::with_seed(56);
    for d in [20_011, 40_000] {
        for (kind, z) in long_rows(&mut rng, d).into_iter().enumerate() {
            for (lambda, gamma) in [(1e-4, 1.0), (0.1, 1.0), (0.1, 4.0), (0.4, 0.6), (2.0, 1.0), (60.0, 1.0)] {
                let options = Options { lambda: Some(lambda), gamma: Some(gamma), ..Options::default() };
                let mapping = build("fusedmax", &options).unwrap();
                let map = Structured { structure: Structure::Fused(lambda), gamma };
                let want = in_double(&mapping, &z, None);
                for level in available() {
                    let what = format!("{lambda} {gamma} {level:?} d = {d} kind {kind}");
                    let (p, status) = forward_at(level, map, &z, d);
                    assert_eq!(status, [Status::Ok], "{what}");
                    check(&p, &want, &what);
                    for i in 1..d {
                        assert!(z[i] != z[i - 1] || p[i].to_bits() == p[i - 1].to_bits(), "{what}: {i} is parted");
                    }
                }
            }
        }
    }
}

#[test]
fn groups_that_span_many_buckets() {
    let mut rng = fastrand::Rng::with_seed(57);
    // Clusters of 500 scores that λ pools, and so far apart that it does not pool two: sixteen groups, of which about
    // twelve have mass, each bent at its ends alone. With fewer scores to a cluster there are more groups than steps.
    for (size, clusters) in [(500, 16), (8, 400)] {
        let reach = 0.07 / size as f64;
        let lambda = reach / size as f64;
        let mapping = build("oscarmax", &Options { lambda: Some(lambda), ..Options::default() }).unwrap();
        let map = plain(Structure::Oscar(lambda));
        let mut z: Vec<f32> =
            (0..size * clusters).map(|i| (-1.2 * reach * (i / size) as f64 - 0.9 * reach * rng.f64()) as f32).collect();
        rng.shuffle(&mut z);
        let want = in_double(&mapping, &z, None);
        for level in available() {
            check(&forward_at(level, map, &z, z.len()).0, &want, &format!("{size} {level:?}"));
        }
    }
}

#[test]
fn two_neighbours_that_meet_have_one_value() {
    let mut rng = fastrand::Rng::with_seed(58);
    let (mapping, map) = (build("fusedmax", &Options::default()).unwrap(), plain(Structure::Fused(0.1)));
    for _ in 0..300 {
        let mut z = vec![-9.0f32; 40];
        for k in 0..6 {
            let at = 1 + 6 * k + rng.usize(..4);
            (z[at], z[at + 1]) = (rng.f32() * 0.2, rng.f32() * 0.2);
        }
        let want = in_double(&mapping, &z, None);
        for level in available() {
            let (p, _) = forward_at(level, map, &z, z.len());
            check(&p, &want, &format!("{z:?} {level:?}"));
            for k in (1..40).filter(|k| p[*k] > 0.0 && p[*k - 1] > 0.0) {
                assert_eq!(p[k].to_bits(), p[k - 1].to_bits(), "{z:?} {level:?}");
            }
        }
    }
}
