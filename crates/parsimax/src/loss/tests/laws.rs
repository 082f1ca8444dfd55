//! What holds for every mapping and every kind of target.

use super::*;
use crate::EvSoftmax;
use crate::loss::{Likelihood, PerturbedLog};
use crate::{MappingExt, Scratch};

/// A random direction, and the scores a step before and after along it.
fn line(random: &mut fastrand::Rng, z: &[f64], h: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let v: Vec<f64> = z.iter().map(|_| normal(random)).collect();
    let at = |h: f64| z.iter().zip(&v).map(|(z, v)| z + h * v).collect();
    (at(-h), at(h), v)
}

/// Whether the support is the same on both sides and no probability is about to leave it: where finite
/// differences mean something. (For α > 2 the derivative is unbounded at the border.)
fn is_smooth(mapping: &dyn Mapping, before: &[f64], after: &[f64]) -> bool {
    let p = |z: &[f64]| {
        let mut p = vec![0.0; z.len()];
        mapping.forward_row(z, &mut p, &mut Scratch::new()).unwrap();
        p
    };
    p(before).iter().zip(p(after)).all(|(a, b)| (*a > 0.0) == (b > 0.0) && (*a == 0.0 || a.min(b) > 1e-2))
}

#[test]
fn losses_are_not_negative_and_zero_where_prediction_and_target_agree() {
    for_all(1, |_, mapping, z, target| {
        let loss = FenchelYoung::new(mapping);
        assert!(value(&loss, z, target) >= 0.0);
        let p = MappingExt::apply(&mapping, z).unwrap();
        let own = value(&loss, z, Target::Soft(View::new(&p, &[5]).unwrap()));
        assert!(own == 0.0, "{}: {own:e}", mapping.name());
    });
}

#[test]
fn the_gradient_is_that_of_the_value() {
    let mut checked = 0;
    for_all(2, |random, mapping, z, target| {
        // Central differences with h = 10⁻⁵: 10⁻¹⁰ from the third derivative, 10⁻¹¹ from rounding.
        let h = 1e-5;
        let (before, after, v) = line(random, z, h);
        if !is_smooth(&mapping, &before, &after) {
            return;
        }
        checked += 1;
        let loss = FenchelYoung::new(mapping).label_smoothing(0.1 * random.f64()).unwrap();
        let (_, g) = gradient(&loss, z, target.clone()).unwrap();
        let slope = (value(&loss, &after, target.clone()) - value(&loss, &before, target)) / (2.0 * h);
        assert_close(dot(&g, &v), slope, 1e-7 * (1.0 + slope.abs()));
    });
    assert!(checked > 1000, "{checked}");
}

#[test]
fn the_hessian_vector_product_is_the_derivative_of_the_gradient() {
    let weights = [0.5, 1.0, 2.0, 3.0, 0.25];
    let mut checked = 0;
    for_all(3, |random, mapping, z, target| {
        let h = 1e-6;
        let (before, after, v) = line(random, z, h);
        if !is_smooth(&mapping, &before, &after) {
            return;
        }
        checked += 1;
        let loss = FenchelYoung::new(mapping).class_weights(&weights).unwrap().reduction(Reduction::Sum);
        let (mut hv, shape) = (vec![0.0; 5], shape(z, &target));
        let view = |x| View::new(x, &shape).unwrap();
        loss.hvp(view(z), target.clone(), view(&v), ViewMut::new(&mut hv, &shape).unwrap()).unwrap();
        let g = |z: &[f64]| gradient(&loss, z, target.clone()).unwrap().1;
        for ((hv, a), b) in hv.iter().zip(g(&after)).zip(g(&before)) {
            assert_close(*hv, (a - b) / (2.0 * h), 1e-5 * (1.0 + hv.abs()));
        }
    });
    assert!(checked > 1000, "{checked}");
}

#[test]
fn losses_are_convex_along_lines() {
    for_all(4, |random, mapping, z, target| {
        let loss = FenchelYoung::new(mapping);
        let (a, b, _) = line(random, z, 2.0);
        let t = random.f64();
        let between: Vec<f64> = a.iter().zip(&b).map(|(a, b)| (1.0 - t) * a + t * b).collect();
        let chord = (1.0 - t) * value(&loss, &a, target.clone()) + t * value(&loss, &b, target.clone());
        assert!(value(&loss, &between, target) <= chord + 1e-13 * (1.0 + chord));
    });
}

#[test]
fn a_class_is_its_one_hot_distribution() {
    for_all(8, |_, mapping, z, target| {
        let Target::Classes(&[k]) = target else { return };
        let mut y = [0.0; 5];
        y[k as usize] = 1.0;
        let loss = FenchelYoung::new(mapping);
        let (by_class, g) = gradient(&loss, z, target).unwrap();
        let (by_mass, h) = gradient(&loss, z, Target::Soft(View::new(&y, &[1, 5]).unwrap())).unwrap();
        assert_close(by_class.value().unwrap(), by_mass.value().unwrap(), 1e-14);
        assert_eq!(g, h);
    });
}

#[test]
fn a_constant_changes_nothing() {
    for_all(5, |_, mapping, z, target| {
        // 2¹⁰ moves scores of this size by at most an ulp of 2¹⁰, 10⁻¹³.
        let moved: Vec<f64> = z.iter().map(|z| z + 1024.0).collect();
        let loss = FenchelYoung::new(mapping);
        assert_close(value(&loss, z, target.clone()), value(&loss, &moved, target), 1e-12);
    });
}

#[test]
fn the_margin_is_exact() {
    for (alpha, gamma) in [(1.2, 1.0), (1.5, 1.0), (1.5, 0.3), (2.0, 1.0), (2.0, 4.0), (3.0, 1.0), (3.0, 2.5)] {
        let mapping = Entmax::new(alpha).unwrap().with_gamma(gamma).unwrap();
        let loss = FenchelYoung::new(&mapping);
        let margin = gamma / (alpha - 1.0);
        let at = |lead: f64| gradient(&loss, &[0.0, lead, -1.0], Target::Classes(&[1])).unwrap();
        for lead in [margin, 1.5 * margin, 1e30] {
            assert_eq!(at(lead), (Loss::Value(0.0), vec![0.0; 3]));
        }
        // The loss grows like a power of the missing margin; 20 % are enough for it to show.
        assert!(at(0.8 * margin).0.value().unwrap() > 0.0);
    }
}

#[test]
fn the_perturbed_log_loss_has_the_gradient_of_its_value() {
    let mut checked = 0;
    for_all(6, |random, mapping, z, target| {
        let h = 1e-6;
        let (before, after, v) = line(random, z, h);
        if !is_smooth(&mapping, &before, &after) {
            return;
        }
        checked += 1;
        let mapping: &dyn Mapping = &mapping;
        let loss = PerturbedLog::new(mapping, 0.05).unwrap();
        let (_, g) = gradient(&loss, z, target.clone()).unwrap();
        let slope = (value(&loss, &after, target.clone()) - value(&loss, &before, target.clone())) / (2.0 * h);
        assert_close(dot(&g, &v), slope, 1e-5 * (1.0 + slope.abs()));
        let divergence = PerturbedLog::new(mapping, 0.05).unwrap().divergence();
        assert_eq!(gradient(&divergence, z, target.clone()).unwrap().1, g);
        assert!(value(&divergence, z, target.clone()) <= value(&loss, z, target));
    });
    assert!(checked > 1000, "{checked}");
}

#[test]
fn the_likelihood_has_the_derivatives_of_its_value() {
    let mean = |z: &[f64]| z.iter().sum::<f64>() / z.len() as f64;
    let training = EvSoftmax::training().with_gamma(0.6).unwrap();
    let loss = Likelihood::new(&training);
    let mut checked = 0;
    for_all(7, |random, _, z, target| {
        let h = 1e-5;
        let (before, after, v) = line(random, z, h);
        let support = |z: &[f64]| z.iter().map(|x| *x >= mean(z)).collect::<Vec<_>>();
        if support(&before) != support(&after) {
            return;
        }
        checked += 1;
        let g = |z: &[f64]| gradient(&loss, z, target.clone()).unwrap().1;
        let slope = (value(&loss, &after, target.clone()) - value(&loss, &before, target.clone())) / (2.0 * h);
        assert_close(dot(&g(z), &v), slope, 1e-7 * (1.0 + slope.abs()));
        let (mut hv, shape) = (vec![0.0; 5], shape(z, &target));
        let view = |x| View::new(x, &shape).unwrap();
        loss.hvp(view(z), target.clone(), view(&v), ViewMut::new(&mut hv, &shape).unwrap()).unwrap();
        for ((hv, a), b) in hv.iter().zip(g(&after)).zip(g(&before)) {
            assert_close(*hv, (a - b) / (2.0 * h), 1e-6 * (1.0 + hv.abs()));
        }
    });
    assert!(checked > 1000, "{checked}");
}
