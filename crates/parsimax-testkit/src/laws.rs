//! The laws, each a function of a subject and a source of cases that says what it found broken.

use crate::cases;
use crate::subjects::Subject;
use fastrand::Rng;
use parsimax::{Mapping, MappingExt, Rows, Scratch, View, ViewMut};

/// What a law returns: nothing, or the case that breaks it.
pub type Verdict = Result<(), String>;

/// A law and its name.
pub type Law = (&'static str, fn(&Subject, &mut Rng) -> Verdict);

/// All laws, in the order in which they are tried. A law that a subject has not declared passes.
pub const LAWS: &[Law] = &[
    ("simplex", simplex),
    ("ties share equally", ties),
    ("shift invariance", shift),
    ("permutation", permutation),
    ("monotone, bounded slope", monotone),
    ("idempotence", idempotence),
    ("zero-temperature limit", hard_limit),
    ("temperature is division", temperature),
    ("masked = removed", masked),
    ("sparse = dense", sparse),
    ("Jacobian: symmetric, zero sums", jacobian),
    ("finite differences in z", differences),
    ("finite differences in the parameter", parameter_differences),
    ("optimality against random competitors", optimality),
    ("gradient of max_Ω is p", envelope),
    ("Fenchel–Young loss", loss),
];

fn require(ok: bool, what: impl Fn() -> String) -> Verdict {
    if ok { Ok(()) } else { Err(what()) }
}

fn apply(subject: &Subject, z: &[f64]) -> Result<Vec<f64>, String> {
    subject.mapping.apply(z).map_err(|e| format!("{e} for {z:?}"))
}

/// The largest difference between entries.
pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The sum without rounding error to speak of (Neumaier).
pub fn exact_sum(x: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for &x in x {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() { (sum - next) + x } else { (x - next) + sum };
        sum = next;
    }
    sum + lost
}

/// No negative entry, sum 1 within 4 ulp·√d.
fn simplex(subject: &Subject, rng: &mut Rng) -> Verdict {
    let z = cases::scores(rng, 40);
    let p = apply(subject, &z)?;
    let total = subject.mapping.total(z.len());
    let tolerance = 4.0 * f64::EPSILON * total.max(1.0) * (z.len() as f64).sqrt();
    require(p.iter().all(|p| *p >= 0.0) && (exact_sum(&p) - total).abs() <= tolerance, || {
        format!("sum − {total} = {:e} of {p:?} for {z:?}", exact_sum(&p) - total)
    })
}

/// Equal scores get equal probabilities (where order does not matter), equal rows are uniform.
fn ties(subject: &Subject, rng: &mut Rng) -> Verdict {
    let d = rng.usize(1..40);
    let z = vec![cases::normal(rng) * 10.0; d];
    let p = apply(subject, &z)?;
    let uniform = subject.mapping.total(d) / d as f64;
    require(p.iter().all(|p| (p - uniform).abs() <= 4.0 * f64::EPSILON), || format!("{p:?} for {z:?}"))?;
    if !subject.laws.permutation {
        return Ok(());
    }
    let mut z = cases::scores(rng, 20);
    let (i, j) = (rng.usize(..z.len()), rng.usize(..z.len()));
    z[i] = z[j];
    let p = apply(subject, &z)?;
    require(p[i] == p[j], || format!("p[{i}] ≠ p[{j}] in {p:?} for {z:?}"))
}

fn shift(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.shift_invariant {
        return Ok(());
    }
    // Scores on a grid of 2⁻¹⁰ and a whole shift: the shifted scores are exact.
    let z: Vec<f64> = cases::scores(rng, 20).iter().map(|z| ((z % 64.0) * 1024.0).round() / 1024.0).collect();
    let c = f64::from(rng.i32(-1_000_000..1_000_000));
    let shifted: Vec<f64> = z.iter().map(|z| z + c).collect();
    let (p, q) = (apply(subject, &z)?, apply(subject, &shifted)?);
    // With γ ≠ 1, (z − max)/γ is the same number in both; ev-softmax compares with a rounded mean.
    require(distance(&p, &q) <= 2e-15 * (z.len() as f64).sqrt(), || {
        format!("{:e} for {z:?} + {c}: {p:?} {q:?}", distance(&p, &q))
    })
}

fn permutation(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.permutation {
        return Ok(());
    }
    let z = cases::scores(rng, 20);
    let mut order: Vec<usize> = (0..z.len()).collect();
    rng.shuffle(&mut order);
    let shuffled: Vec<f64> = order.iter().map(|i| z[*i]).collect();
    let (p, q) = (apply(subject, &z)?, apply(subject, &shuffled)?);
    let p: Vec<f64> = order.iter().map(|i| p[*i]).collect();
    require(distance(&p, &q) <= 2e-15 * (z.len() as f64).sqrt(), || format!("{z:?} in order {order:?}: {p:?} {q:?}"))
}

fn monotone(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.monotone {
        return Ok(());
    }
    let z = cases::scores(rng, 20);
    let p = apply(subject, &z)?;
    let (i, j) = (rng.usize(..z.len()), rng.usize(..z.len()));
    let (low, high) = if z[i] <= z[j] { (i, j) } else { (j, i) };
    require(p[low] <= p[high], || format!("p[{low}] > p[{high}] in {p:?} for {z:?}"))?;
    let Some(slope) = subject.laws.slope else { return Ok(()) };
    let gamma = subject.options.gamma.unwrap_or(1.0);
    let bound = slope * (z[high] - z[low]) / gamma;
    require(p[high] - p[low] <= bound * (1.0 + 1e-12) + 4e-15, || {
        format!("p[{high}] − p[{low}] > {slope}·Δz in {p:?} for {z:?}")
    })
}

fn idempotence(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.idempotent || subject.options.gamma.is_some() {
        return Ok(());
    }
    let d = rng.usize(1..20);
    let p = cases::distribution(rng, d);
    let q = apply(subject, &p)?;
    require(distance(&p, &q) <= 1e-15 * (p.len() as f64).sqrt(), || format!("{p:?} becomes {q:?}"))
}

/// S0 Prop. 2.1: as the scores grow, all mass goes to the largest ones, shared equally.
fn hard_limit(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.hard_limit {
        return Ok(());
    }
    let mut z: Vec<f64> = (0..rng.usize(1..12)).map(|_| f64::from(rng.i8(-3..3))).collect();
    // Heavy tails (α < 1) need a long way: p falls only like z^{−1/(1−α)}.
    z.iter_mut().for_each(|z| *z *= 1e12);
    let top = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let winners = z.iter().filter(|z| **z == top).count() as f64;
    let expected: Vec<f64> = z.iter().map(|z| if *z == top { 1.0 / winners } else { 0.0 }).collect();
    let p = apply(subject, &z)?;
    require(distance(&p, &expected) < 1e-7, || format!("{p:?} for {z:?}"))
}

fn temperature(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.temperature {
        return Ok(());
    }
    // Powers of two divide exactly.
    let gamma = [0.25, 0.5, 2.0, 8.0][rng.usize(..4)];
    let one = parsimax::registry::Options { gamma: Some(1.0), ..subject.options };
    let hot = parsimax::registry::Options { gamma: Some(gamma), ..subject.options };
    let build = |o| parsimax::registry::build(subject.name, o).map_err(|e| e.to_string());
    let z = cases::scores(rng, 20);
    let divided: Vec<f64> = z.iter().map(|z| z / gamma).collect();
    let p = build(&hot)?.apply(&z).map_err(|e| e.to_string())?;
    let q = build(&one)?.apply(&divided).map_err(|e| e.to_string())?;
    require(distance(&p, &q) <= 4e-15, || format!("γ = {gamma}, {z:?}: {p:?} {q:?}"))
}

/// A mask, −inf, or leaving the entry out: one result.
fn masked(subject: &Subject, rng: &mut Rng) -> Verdict {
    let z = cases::scores(rng, 20);
    let keep: Vec<bool> = z.iter().map(|_| rng.bool()).collect();
    let removed: Vec<f64> = z.iter().zip(&keep).filter(|(_, k)| **k).map(|(z, _)| *z).collect();
    let infinite: Vec<f64> = z.iter().zip(&keep).map(|(z, k)| if *k { *z } else { f64::NEG_INFINITY }).collect();
    let small = if removed.is_empty() { vec![] } else { apply(subject, &removed)? };
    let mut small = small.into_iter();
    let expected: Vec<f64> = keep.iter().map(|k| if *k { small.next().unwrap_or(f64::NAN) } else { 0.0 }).collect();
    let shape = [z.len()];
    let mut p = vec![f64::NAN; z.len()];
    let rows = Rows::new(&subject.mapping);
    let view = |x| View::new(x, &shape).map_err(|e| e.to_string());
    let forward = |rows: &Rows<'_, Box<dyn Mapping>>, z: &[f64], p: &mut [f64]| {
        rows.forward(View::new(z, &shape)?, ViewMut::new(p, &shape)?)
    };
    let mask = View::new(&keep, &shape).map_err(|e| e.to_string())?;
    forward(&rows.clone().mask(mask.clone()), &z, &mut p).map_err(|e| e.to_string())?;
    require(p == expected, || format!("mask {keep:?} of {z:?}: {p:?} instead of {expected:?}"))?;
    forward(&rows, &infinite, &mut p).map_err(|e| e.to_string())?;
    require(p == expected, || format!("{infinite:?}: {p:?} instead of {expected:?}"))?;
    let v = cases::direction(rng, z.len());
    let mut gradient = vec![f64::NAN; z.len()];
    let out = ViewMut::new(&mut gradient, &shape).map_err(|e| e.to_string())?;
    rows.clone().mask(mask).vjp(view(&z)?, view(&p)?, view(&v)?, out).map_err(|e| e.to_string())?;
    let zero_where_masked = gradient.iter().zip(&keep).all(|(g, k)| *k || *g == 0.0);
    require(zero_where_masked && gradient.iter().all(|g| g.is_finite()), || {
        format!("gradient {gradient:?}, mask {keep:?}")
    })
}

fn sparse(subject: &Subject, rng: &mut Rng) -> Verdict {
    let mut z = cases::scores(rng, 30);
    if rng.bool() {
        let i = rng.usize(..z.len());
        z[i] = f64::NEG_INFINITY;
    }
    let p = apply(subject, &z)?;
    let shape = [1, z.len()];
    let view = View::new(&z, &shape).map_err(|e| e.to_string())?;
    let rows = Rows::new(&subject.mapping);
    let csr = rows.csr(view.clone()).map_err(|e| e.to_string())?;
    require(csr.to_dense() == p && csr.values.iter().all(|p| *p > 0.0), || format!("{csr:?} for {p:?}"))?;
    let v = cases::direction(rng, z.len());
    let on_support: Vec<f64> = csr.indices.iter().map(|i| v[*i as usize]).collect();
    let Ok(thin) = rows.csr_vjp(&csr, &on_support) else { return Ok(()) };
    let dense = subject.mapping.vjp(&z, &v).map_err(|e| e.to_string())?;
    let mut expected = vec![0.0; z.len()];
    csr.indices.iter().zip(&thin).for_each(|(i, g)| expected[*i as usize] = *g);
    let scale = dense.iter().fold(1.0f64, |m, g| m.max(g.abs()));
    require(distance(&expected, &dense) <= 1e-12 * scale, || format!("{z:?}: {expected:?} {dense:?}"))
}

/// Rows whose derivative exists in a neighbourhood: no ties and nothing close to a threshold.
fn smooth_scores(subject: &Subject, rng: &mut Rng) -> Option<(Vec<f64>, Vec<f64>)> {
    let d = rng.usize(1..12);
    let scale = [0.1, 0.5, 2.0][rng.usize(..3)];
    let z = cases::normals(rng, d, scale);
    let p = apply(subject, &z).ok()?;
    // Small probabilities are steep for α > 2 and near a kink for α ≤ 2.
    p.iter().all(|p| *p == 0.0 || *p > 1e-2).then_some((z, p))
}

fn jacobian(subject: &Subject, rng: &mut Rng) -> Verdict {
    let Some((z, p)) = smooth_scores(subject, rng) else { return Ok(()) };
    let d = z.len();
    let (u, v, ones) = (cases::direction(rng, d), cases::direction(rng, d), vec![1.0; d]);
    let product = |v: &[f64], transposed: bool| {
        let (mut out, mut scratch) = (vec![0.0; d], Scratch::new());
        let row = if transposed { Mapping::vjp_row } else { Mapping::jvp_row };
        row(&subject.mapping, &z, &p, v, &mut out, &mut scratch).map(|()| out).map_err(|e| e.to_string())
    };
    let (jv, jtu) = (product(&v, false)?, product(&u, true)?);
    let scale = 1.0 + jv.iter().chain(&jtu).fold(0.0f64, |m, x| m.max(x.abs())) * d as f64;
    require((dot(&u, &jv) - dot(&v, &jtu)).abs() <= 1e-11 * scale, || format!("<u, Jv> ≠ <Jᵀu, v> for {z:?}"))?;
    require(exact_sum(&jv).abs() <= 1e-11 * scale, || format!("1ᵀJv = {:e} for {z:?}", exact_sum(&jv)))?;
    if subject.laws.shift_invariant {
        let j1 = product(&ones, false)?;
        require(j1.iter().all(|x| x.abs() <= 1e-11 * scale), || format!("J1 = {j1:?} for {z:?}"))?;
    }
    if subject.laws.symmetric {
        let ju = product(&u, false)?;
        require(distance(&ju, &jtu) <= 1e-11 * scale, || format!("Ju ≠ Jᵀu for {z:?}"))?;
    }
    Ok(())
}

/// Central differences at two steps that agree with each other say what the derivative is.
fn derivative(f: impl Fn(f64) -> Result<f64, String>) -> Result<Option<f64>, String> {
    let at = |h: f64| Ok::<_, String>((f(h)? - f(-h)?) / (2.0 * h));
    let (coarse, fine) = (at(2e-5)?, at(1e-5)?);
    let smooth = (coarse - fine).abs() <= 1e-6 * (1.0 + fine.abs());
    Ok(smooth.then_some((4.0 * fine - coarse) / 3.0))
}

fn differences(subject: &Subject, rng: &mut Rng) -> Verdict {
    if !subject.laws.smooth {
        return Ok(());
    }
    let Some((z, _)) = smooth_scores(subject, rng) else { return Ok(()) };
    let (u, v) = (cases::direction(rng, z.len()), cases::direction(rng, z.len()));
    let along = |h: f64| {
        let moved: Vec<f64> = z.iter().zip(&u).map(|(z, u)| z + h * u).collect();
        Ok(dot(&v, &apply(subject, &moved)?))
    };
    let Some(expected) = derivative(along)? else { return Ok(()) };
    let gradient = subject.mapping.vjp(&z, &v).map_err(|e| e.to_string())?;
    let found = dot(&gradient, &u);
    require((found - expected).abs() <= 1e-6 * (1.0 + expected.abs()), || {
        format!("{found} against {expected} for {z:?} along {u:?}")
    })
}

/// The same mapping with its shape parameter moved by `h`.
fn nudged(subject: &Subject, h: f64) -> Option<Box<dyn Mapping>> {
    let mut options = subject.options;
    let parameter = match subject.name {
        "entmax" | "normmax" => &mut options.alpha,
        "fusedmax" | "oscarmax" | "oscarmax-approx" => &mut options.lambda,
        "sq-pnorm-max" => &mut options.p,
        _ => return None,
    };
    *parameter = Some(parameter.as_ref()? + h);
    parsimax::registry::build(subject.name, &options).ok()
}

fn parameter_differences(subject: &Subject, rng: &mut Rng) -> Verdict {
    if nudged(subject, 2e-5).is_none() || nudged(subject, -2e-5).is_none() {
        return Ok(());
    }
    let Some((z, p)) = smooth_scores(subject, rng) else { return Ok(()) };
    let v = cases::direction(rng, z.len());
    let Some(found) = subject.mapping.parameter_vjp_row(&z, &p, &v, &mut Scratch::new()) else { return Ok(()) };
    let along = |h: f64| {
        let mapping = nudged(subject, h).ok_or("no such parameter")?;
        Ok(dot(&v, &mapping.apply(&z).map_err(|e| e.to_string())?))
    };
    let Some(expected) = derivative(along)? else { return Ok(()) };
    require((found - expected).abs() <= 1e-6 * (1.0 + expected.abs()), || {
        format!("{found} against {expected} for {z:?}, v = {v:?}")
    })
}

/// No point of the simplex does better than Π(z).
fn optimality(subject: &Subject, rng: &mut Rng) -> Verdict {
    let Some(regularized) = subject.mapping.regularized() else { return Ok(()) };
    if subject.name == "budget" {
        // Its domain is the capped simplex; its own file tests the optimality conditions there.
        return Ok(());
    }
    let z = cases::scores(rng, 12);
    let p = apply(subject, &z)?;
    let best = regularized.max_row(&z, &p);
    let value = |q: &[f64]| dot(q, &z) - regularized.gamma() * regularized.omega(q);
    let scale = z.iter().fold(1.0f64, |m, z| m.max(z.abs()));
    let far = cases::distribution(rng, z.len());
    // A competitor nearby is the sharper test: mass moved from one entry to another.
    let mut near = p.clone();
    let (i, j) = (rng.usize(..z.len()), rng.usize(..z.len()));
    let moved = near[i].min(10f64.powi(-rng.i32(1..6)));
    near[i] -= moved;
    near[j] += moved;
    for q in [far, near] {
        require(value(&q) <= best + 1e-14 * scale, || format!("{q:?} beats {p:?} for {z:?}"))?;
    }
    Ok(())
}

/// Danskin: the gradient of the smoothed maximum is the mapping.
fn envelope(subject: &Subject, rng: &mut Rng) -> Verdict {
    let Some(regularized) = subject.mapping.regularized() else { return Ok(()) };
    let d = rng.usize(1..12);
    let z = cases::normals(rng, d, 1.0);
    let u = cases::direction(rng, d);
    let p = apply(subject, &z)?;
    let along = |h: f64| {
        let moved: Vec<f64> = z.iter().zip(&u).map(|(z, u)| z + h * u).collect();
        Ok(regularized.max_row(&moved, &apply(subject, &moved)?))
    };
    let h = 1e-5;
    let slope: f64 = (along(h)? - along(-h).map_err(|e: String| e)?) / (2.0 * h);
    require((slope - dot(&p, &u)).abs() <= 1e-4, || format!("{slope} against {} for {z:?}", dot(&p, &u)))
}

/// L ≥ 0, shift invariant, zero at y = p, and its gradient is p − y.
fn loss(subject: &Subject, rng: &mut Rng) -> Verdict {
    let Some(regularized) = subject.mapping.regularized() else { return Ok(()) };
    if subject.name == "budget" {
        return Ok(());
    }
    let d = rng.usize(1..10);
    let z = cases::normals(rng, d, 1.0);
    let p = apply(subject, &z)?;
    let y = cases::distribution(rng, d);
    let at = |z: &[f64]| Ok::<_, String>(regularized.loss_row(z, &apply(subject, z)?, &y));
    require(at(&z)? >= 0.0 && regularized.loss_row(&z, &p, &p) == 0.0, || format!("{z:?}, {y:?}"))?;
    // Fenchel–Young losses dominate half the squared distance where Ω is 1-strongly convex; here only
    // the sign and the gradient are common to all.
    let u = cases::direction(rng, d);
    let h = 1e-5;
    let moved = |h: f64| z.iter().zip(&u).map(|(z, u)| z + h * u).collect::<Vec<_>>();
    let slope = (at(&moved(h))? - at(&moved(-h))?) / (2.0 * h);
    let expected = dot(&p, &u) - dot(&y, &u);
    require((slope - expected).abs() <= 1e-4, || format!("{slope} against {expected} for {z:?}, {y:?}"))
}
