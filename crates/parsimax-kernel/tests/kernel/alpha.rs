//! α-entmax: every α, and the gradient in α.

use super::*;

const ALPHAS: [f64; 17] =
    [1.0, 1.00001, 1.001, 1.02, 1.1, 1.25, 1.4, 1.5, 1.66, 1.9, 1.999, 2.0, 2.001, 2.4, 3.0, 5.0, 10.0];

#[test]
fn rows_match_the_reference() {
    let mut rng = fastrand::Rng::with_seed(21);
    for alpha in ALPHAS {
        for d in [1, 2, 3, 8, 20, 64, 65, 200, 512, 1100, 4096, 10_001] {
            for (sigma, shift) in [(1e-3, 0.0), (0.03, 0.0), (0.3, 1e6), (1.0, 0.0), (4.0, 1e6)] {
                let map = Map::Entmax(alpha);
                let z: Vec<f32> = normals(&mut rng, 2 * d, sigma).into_iter().map(|v| v + shift).collect();
                for level in available() {
                    let (p, _, status) = run(level, map, &z, d, 1.0);
                    assert_eq!(status, [Status::Ok; 2]);
                    for r in 0..2 {
                        let at = r * d..(r + 1) * d;
                        let want = reference(map, &z[at.clone()], 1.0);
                        check(&p[at], &want, &format!("{level:?} α={alpha} d={d} σ={sigma}"));
                    }
                }
            }
        }
    }
}

#[test]
fn ties_gaps_and_magnitudes() {
    let mut rng = fastrand::Rng::with_seed(22);
    for alpha in ALPHAS {
        let mut rows = Vec::new();
        for d in [2, 9, 64, 700, 5000] {
            for c in [0.0, 1e6, -1e30, 1e-40] {
                rows.push(vec![c; d]);
            }
            rows.push((0..d).map(|_| f32::from(rng.u8(0..3)) / 4.0).collect());
            rows.push(normals(&mut rng, d, 1e30));
            rows.push(normals(&mut rng, d, 1e-30));
            // Two scores whose gap puts the second on the edge of the support.
            let gap = (1.0 / (alpha - 1.0)) as f32;
            for g in [gap, gap * (1.0 - 1e-6), gap * (1.0 + 1e-6), 0.5 * gap] {
                let mut z = vec![f32::NEG_INFINITY; d];
                z[0] = 0.25;
                z[d - 1] = 0.25 - g;
                if z[d - 1].is_finite() {
                    rows.push(z);
                }
            }
            let mut z = vec![0.3f32; d];
            z[d / 2] = 0.5;
            rows.push(z);
        }
        for z in &rows {
            for level in available() {
                let (p, _, _) = run(level, Map::Entmax(alpha), z, z.len(), 1.0);
                let want = reference(Map::Entmax(alpha), z, 1.0);
                let what = format!("{level:?} α={alpha} d={} z={:?}", z.len(), &z[..2]);
                check(&p, &want, &what);
            }
        }
    }
}

#[test]
fn equal_rows_share_and_rows_with_equal_maxima_do_not() {
    for alpha in [1.3, 1.75, 2.2, 3.0, 6.0] {
        for d in [33, 64, 100, 300, 4096, 5000] {
            let masked: Vec<f32> = (0..d).map(|i| if i % 3 == 1 { f32::NEG_INFINITY } else { 0.7 }).collect();
            // Every maximum of a part is the same, but not every entry.
            let mut notched = vec![0.7; d];
            notched[d / 3] = 0.7 - 1e-3;
            for z in [vec![0.7; d], masked, notched] {
                for level in available() {
                    let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                    check(&p, &reference(Map::Entmax(alpha), &z, 1.0), &format!("{level:?} α={alpha} d={d}"));
                }
            }
        }
    }
}

/// Powers below 1 are steep where they begin, so that an entry next to the threshold feels the last digit of its distance
/// from the maximum, if that is far above.
#[test]
fn a_crowd_at_the_threshold_far_below_the_maximum() {
    let mut rng = fastrand::Rng::with_seed(28);
    for alpha in [2.001, 2.2, 2.5, 3.0, 4.0, 7.0, 10.0] {
        for d in [40, 300, 1100, 4097, 9000, 20_011] {
            for (lead, sigma, scale) in [(0.9, 1e-3, 1.0 / 3.0), (0.4, 1e-4, 1.0), (2.0, 0.01, 0.2), (0.1, 1e-6, 1.0)] {
                let lead = lead * 2.0 / (alpha - 1.0) as f32;
                let mut z = normals(&mut rng, 4 * d, sigma);
                (0..4).for_each(|r| z[r * d + rng.usize(..d)] += lead);
                for level in available() {
                    let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, scale);
                    for (p, z) in p.chunks(d).zip(z.chunks(d)) {
                        let what = format!("{level:?} α={alpha} d={d} lead={lead} σ={sigma}");
                        check(p, &reference(Map::Entmax(alpha), z, scale), &what);
                    }
                }
            }
        }
    }
}

#[test]
fn the_gradient_of_equal_rows_is_a_difference_from_the_mean() {
    let mut rng = fastrand::Rng::with_seed(27);
    for alpha in [2.2, 3.0, 4.0] {
        for d in [1, 5, 64, 700] {
            let (z, p, v) = (vec![0.3; d], vec![1.0 / d as f32; d], normals(&mut rng, d, 1.0));
            let mean = v.iter().map(|v| f64::from(*v)).sum::<f64>() / d as f64;
            let gain = (d as f64).powf(alpha - 2.0);
            for level in available() {
                let (out, da) = gradient(level, alpha, (&z, &p), &v, d);
                assert_eq!(da, [0.0]);
                for (out, v) in out.iter().zip(&v) {
                    let want = gain * (f64::from(*v) - mean);
                    assert!(
                        (f64::from(*out) - want).abs() < 1e-6 * gain,
                        "{level:?} α={alpha} d={d}: {out} for {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn nearly_equal_rows() {
    let mut rng = fastrand::Rng::with_seed(26);
    for alpha in [1.3, 1.6, 1.75, 1.95, 2.2, 3.0, 4.0] {
        for d in [3, 17, 64, 100, 300, 900] {
            // The width of a row, in units of what `u` of equal entries would be.
            for width in [1e-3, 0.1, 0.5, 1.0, 2.0, 4.0] {
                let unit = width * (d as f64).powf(1.0 - alpha) / (alpha - 1.0);
                let lopsided = |rng: &mut fastrand::Rng| (0.7 + unit * rng.f64().powi(3)) as f32;
                let z: Vec<f32> = (0..20 * d).map(|_| lopsided(&mut rng)).collect();
                for level in available() {
                    let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                    for (p, z) in p.chunks(d).zip(z.chunks(d)) {
                        check(p, &reference(Map::Entmax(alpha), z, 1.0), &format!("{level:?} α={alpha} d={d} {width}"));
                    }
                }
            }
        }
    }
}

fn gradient(level: Level, alpha: f64, (z, p): (&[f32], &[f32]), v: &[f32], d: usize) -> (Vec<f32>, Vec<f64>) {
    let (mut out, mut da) = (vec![7.0; p.len()], vec![7.0; p.len() / d]);
    with_level(level, || {
        let mut scratch = Scratch::new();
        let job = Backward { p, v, d, scale: 1.0, out: &mut out, scratch: &mut scratch };
        alpha_backward(alpha, job, z, &mut da);
    });
    (out, da)
}

#[test]
fn the_gradient_in_alpha_matches_the_formula_in_f64() {
    let mut rng = fastrand::Rng::with_seed(23);
    for alpha in ALPHAS {
        for d in [2, 7, 64, 300, 3000] {
            for sigma in [0.05, 1.0] {
                let z = normals(&mut rng, 3 * d, sigma);
                let v = normals(&mut rng, 3 * d, 1.0);
                for level in available() {
                    let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                    let (_, da) = gradient(level, alpha, (&z, &p), &v, d);
                    for r in 0..3 {
                        let at = r * d..(r + 1) * d;
                        let want = in_alpha(alpha - 1.0, &p[at.clone()], &v[at]);
                        let what = format!("{level:?} α={alpha} d={d} σ={sigma}");
                        // Logarithms of f32 entries, squared, weighted by p.
                        let slack = 2e-6 * (1.0 + (d as f64).ln().powi(2));
                        assert!((da[r] - want).abs() < slack, "{what}: {} for {want}", da[r]);
                    }
                }
            }
        }
    }
}

#[test]
fn the_gradients_of_a_row_do_not_depend_on_its_neighbours() {
    let mut rng = fastrand::Rng::with_seed(25);
    for alpha in [1.0, 1.25, 1.5, 1.75, 2.0, 3.0] {
        for d in [1, 7, 24, 64, 65, 300, 512, 700, 3000] {
            let rows = 19;
            let z: Vec<f32> = (0..rows).flat_map(|r| normals(&mut rng, d, [0.01, 0.3, 2.0][r % 3])).collect();
            let v = normals(&mut rng, rows * d, 1.0);
            for level in available() {
                let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                let (out, da) = gradient(level, alpha, (&z, &p), &v, d);
                for r in 0..rows {
                    let at = r * d..(r + 1) * d;
                    let (alone, slope) = gradient(level, alpha, (&z[at.clone()], &p[at.clone()]), &v[at.clone()], d);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    let what = format!("{level:?} α={alpha} d={d}");
                    assert_eq!((bits(&alone), slope[0].to_bits()), (bits(&out[at]), da[r].to_bits()), "{what}");
                }
            }
        }
    }
}

/// Rows that hardly differ, and those that do, in the same group: what is taken from probabilities and what is taken from
/// scores is the same gradient. Errors are of the sum of the terms of the gradient, which is what the bar is on.
#[test]
fn near_ties_and_rows_apart_have_the_gradient_of_the_formula() {
    let mut rng = fastrand::Rng::with_seed(29);
    for alpha in [1.5, 1.6, 1.75, 1.9, 2.0] {
        for d in [1, 2, 5, 16, 33, 64, 127, 200, 512] {
            let rows = 35;
            let sigma = |r: usize| [0.0, 1e-3, 0.01, 0.03, 0.1, 1.0, 5.0][r % 7];
            let z: Vec<f32> = (0..rows).flat_map(|r| normals(&mut rng, d, sigma(r))).collect();
            let mut v = normals(&mut rng, rows * d, 1.0);
            for level in available() {
                let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                for (v, p) in v.iter_mut().zip(&p) {
                    // What is not finite does no harm off the support.
                    if *p == 0.0 && rng.u8(0..50) == 0 {
                        *v = f32::INFINITY;
                    } else if !v.is_finite() {
                        *v = 0.5;
                    }
                }
                let (out, da) = gradient(level, alpha, (&z, &p), &v, d);
                for r in 0..rows {
                    let at = r * d..(r + 1) * d;
                    let exact = reference(Map::Entmax(alpha), &z[at.clone()], 1.0);
                    let stored: Vec<f64> = p[at.clone()].iter().map(|&p| f64::from(p)).collect();
                    // Nearly equal entries are told by scores alone, and an entry on the threshold, whose probability the
                    // rounding of τ gives or takes, by what was stored.
                    let is_near = [exact, stored].iter().any(|p| {
                        let terms = terms_in_alpha(alpha - 1.0, p);
                        let on = terms.iter().zip(&v[at.clone()]).filter(|(t, _)| **t != 0.0);
                        let on = on.map(|(t, &v)| t * f64::from(v));
                        let (sum, size) = on.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()));
                        (da[r] - sum).abs() <= 1e-4 * size + 1e-12
                    });
                    let what = format!("{level:?} α={alpha} d={d} row {r}");
                    assert!(is_near, "{what}: {}", da[r]);
                    assert!(sigma(r) > 0.0 || da[r] == 0.0, "{what}: equal entries have a gradient of {}", da[r]);
                    let products = backward::reference_vjp(Map::Entmax(alpha), &p[at.clone()], &v[at.clone()], 1.0);
                    for (i, (&a, &b)) in out[at].iter().zip(&products).enumerate() {
                        // v is of order one, s at most one.
                        assert!((f64::from(a) - b).abs() <= 4e-6, "{what} [{i}]: {a} for {b}");
                        assert!(p[r * d + i] > 0.0 || a == 0.0);
                    }
                }
            }
        }
    }
}

/// Supports that no list has room for: few kinds of scores, some of a row here and there, most of it. Errors are measured
/// by the largest weight.
#[test]
fn long_rows_with_much_support_have_the_gradient_of_the_formula() {
    let mut rng = fastrand::Rng::with_seed(30);
    let d = 20_011;
    for alpha in [1.0, 1.05, 1.5, 1.7, 2.0, 2.3, 3.0, 9.0] {
        // What sets the entries of such a row apart.
        let unit = ((d as f64).powf(1.0 - alpha) / (alpha - 1.0).max(0.1)).max(1e-30) as f32;
        let mut some = vec![-40.0; d];
        some.iter_mut().skip(3).step_by(2).for_each(|z| *z = unit * rng.u8(0..3) as f32);
        let few = (0..d).map(|_| unit * rng.u8(0..4) as f32).collect();
        for (kind, z) in [few, some, normals(&mut rng, d, unit)].into_iter().enumerate() {
            let mut v: Vec<f32> = normals(&mut rng, d, 1.0).iter().map(|v| 3.0 + v).collect();
            let exact = reference(Map::Entmax(alpha), &z, 1.0);
            let s: Vec<f64> = exact.iter().map(|p| if *p > 0.0 { p.powf(2.0 - alpha) } else { 0.0 }).collect();
            let (total, most) = (s.iter().sum::<f64>(), s.iter().fold(0.0, |most: f64, s| most.max(*s)));
            let mean = s.iter().zip(&v).map(|(s, v)| s * f64::from(*v)).sum::<f64>() / total;
            let terms = terms_in_alpha(alpha - 1.0, &exact);
            let slope: f64 =
                terms.iter().zip(&v).map(|(t, v)| if *t == 0.0 { 0.0 } else { t * (f64::from(*v) - mean) }).sum();
            let size: f64 = terms.iter().filter(|t| **t != 0.0).map(|t| t.abs()).sum();
            // What is not finite does no harm off the support.
            (v.iter_mut().zip(&z)).filter(|(_, z)| **z == -40.0 && alpha > 1.0).for_each(|(v, _)| *v = f32::NAN);
            for level in available() {
                let (p, _, _) = run(level, Map::Entmax(alpha), &z, d, 1.0);
                let (out, da) = gradient(level, alpha, (&z, &p), &v, d);
                let what = format!("{level:?} α={alpha} kind {kind}");
                assert!((da[0] - slope).abs() <= 1e-4 * size + 1e-12, "{what}: {} for {slope} of {size}", da[0]);
                for i in 0..d {
                    let want = if s[i] > 0.0 { s[i] * (f64::from(v[i]) - mean) } else { 0.0 };
                    assert!((f64::from(out[i]) - want).abs() <= 1e-4 * most, "{what} [{i}]: {} for {want}", out[i]);
                }
            }
        }
    }
}

/// `<v, ∂p/∂α>` in f64, from the stored `p`.
fn in_alpha(delta: f64, p: &[f32], v: &[f32]) -> f64 {
    let p: Vec<f64> = p.iter().map(|&p| f64::from(p)).collect();
    terms_in_alpha(delta, &p).iter().zip(v).map(|(t, &v)| if *t == 0.0 { 0.0 } else { t * f64::from(v) }).sum()
}

/// `∂p/∂α`.
fn terms_in_alpha(delta: f64, p: &[f64]) -> Vec<f64> {
    let logs = |&p: &f64| {
        let (l, y) = (p.ln(), -delta * p.ln());
        let phi = if y < 1e-3 { 0.5 + y / 6.0 + y * y / 24.0 } else { (y.exp_m1() - y) / (y * y) };
        if p > 0.0 { (p, l, l * l * phi) } else { (0.0, 0.0, 0.0) }
    };
    let on: Vec<(f64, f64, f64)> = p.iter().map(logs).collect();
    let h: f64 = -on.iter().map(|(p, l, _)| p * l).sum::<f64>();
    let big: f64 = on.iter().map(|(p, _, r)| p * r).sum();
    let e = delta * h + delta * delta * big;
    on.iter().map(|(p, l, r)| p / (1.0 + e) * (big - r - delta * (l * big + r * h))).collect()
}

#[test]
fn the_gradient_in_alpha_matches_differences() {
    let mut rng = fastrand::Rng::with_seed(24);
    for alpha in [1.2, 1.6, 1.9, 2.3, 3.0] {
        let z = normals(&mut rng, 20, 1.0);
        let v = normals(&mut rng, 20, 1.0);
        let side = |a: f64| -> f64 {
            let p = reference(Map::Entmax(a), &z, 1.0);
            p.iter().zip(&v).map(|(p, &v)| p * f64::from(v)).sum()
        };
        let want = (side(alpha + 1e-6) - side(alpha - 1e-6)) / 2e-6;
        for level in available() {
            let (p, _, _) = run(level, Map::Entmax(alpha), &z, 20, 1.0);
            let (_, da) = gradient(level, alpha, (&z, &p), &v, 20);
            assert!((da[0] - want).abs() < 1e-4, "{level:?} α={alpha}: {} for {want}", da[0]);
        }
    }
}

#[test]
fn beyond_two_the_product_stays_finite() {
    // s = p^{−8} of the second entry is far beyond f32; the product is not.
    let p = [0.999_f32, 1e-6, 0.001, 0.0];
    let v = [1.0, 2.0, -1.0, f32::NAN];
    let s: Vec<f64> = p[..3].iter().map(|&p| f64::from(p).powf(-8.0)).collect();
    let others = s[0] * (2.0 - 1.0) + s[2] * (2.0 + 1.0);
    for level in available() {
        let mut out = [7.0f32; 4];
        with_level(level, || {
            let mut scratch = Scratch::new();
            backward(
                Map::Entmax(10.0),
                Backward { p: &p, v: &v, d: 4, scale: 1.0, out: &mut out, scratch: &mut scratch },
            );
        });
        let total: f64 = s.iter().sum();
        let want = s[1] / total * others;
        assert!((f64::from(out[1]) / want - 1.0).abs() < 1e-5, "{} for {want}", out[1]);
        assert_eq!(out[3], 0.0);
    }
}

#[test]
fn equal_probabilities_stay_equal_whatever_alpha_is() {
    let mut rng = fastrand::Rng::with_seed(29);
    for alpha in [2.4, 3.0, 5.0] {
        for n in [1usize, 2, 7, 64] {
            // As many that are far below, and have no mass.
            let z: Vec<f32> = (0..2 * n).map(|i| if i % 2 == 0 { 0.7 } else { -40.0 }).collect();
            let v = normals(&mut rng, 2 * n, 1.0);
            let mean = (0..n).map(|i| f64::from(v[2 * i])).sum::<f64>() / n as f64;
            for level in available() {
                let (p, _, _) = run(level, Map::Entmax(alpha), &z, 2 * n, 1.0);
                let (g, slope) = gradient(level, alpha, (&z, &p), &v, 2 * n);
                assert_eq!(slope, [0.0], "{level:?} α={alpha} n={n}");
                for (i, g) in g.iter().enumerate() {
                    let s = (n as f64).powf(alpha - 2.0);
                    let want = if i % 2 == 0 { s * (f64::from(v[i]) - mean) } else { 0.0 };
                    assert!((f64::from(*g) - want).abs() <= 1e-6 * s, "{level:?} α={alpha} n={n}: {g} {want}");
                }
            }
        }
    }
}
