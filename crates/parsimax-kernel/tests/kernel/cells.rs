//! Recurrent cells against their formulas in f64, and their gradients against differences.

use super::*;
use parsimax_kernel::cells::{Back, Cell, Step, back, step, tanh_all};

const CELLS: [Cell; 2] = [Cell::Lstm, Cell::Gru];

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `(h', c')` of one unit from its four sums and the state before.
fn plain(cell: Cell, sums: [f64; 4], before: f64) -> (f64, f64) {
    let [a, b, c, d] = sums;
    match cell {
        Cell::Lstm => {
            let state = sigmoid(b) * before + sigmoid(a) * c.tanh();
            (sigmoid(d) * state.tanh(), state)
        }
        Cell::Gru => {
            let (new, z) = ((a + sigmoid(b) * d).tanh(), sigmoid(c));
            ((1.0 - z) * new + z * before, 0.0)
        }
    }
}

/// The four sums of unit `j`, biases included.
fn sums(gates: &[f32], bias: &[f32], n: usize, j: usize) -> [f64; 4] {
    std::array::from_fn(|k| f64::from(gates[k * n + j]) + f64::from(bias[k * n + j]))
}

#[test]
fn steps_follow_their_formulas_at_every_level() {
    let mut rng = fastrand::Rng::with_seed(61);
    for (cell, scale) in CELLS.into_iter().flat_map(|cell| [(cell, 1.0), (cell, 30.0)]) {
        for n in [1, 7, 8, 19, 32] {
            let (gates, bias) = (normals(&mut rng, 4 * n, scale), normals(&mut rng, 4 * n, 0.5));
            let before = normals(&mut rng, n, 1.0);
            for level in available() {
                let (mut work, mut state, mut hidden) = (gates.clone(), vec![0.0; n], vec![0.0; n]);
                let job =
                    Step { gates: &mut work, bias: &bias, before: &before, cell: &mut state, hidden: &mut hidden };
                with_level(level, || step(cell, job));
                for j in 0..n {
                    let (h, c) = plain(cell, sums(&gates, &bias, n, j), f64::from(before[j]));
                    // A few functions within 3e−7 each, on states of size up to 4; sums of size
                    // 100 are rounded by up to 4e−6 before that.
                    let bound = 2e-6 + 1e-6 * f64::from(scale);
                    assert!((f64::from(hidden[j]) - h).abs() < bound, "{cell:?} {level:?}: {} for {h}", hidden[j]);
                    assert!((f64::from(state[j]) - c).abs() < bound, "{cell:?} {level:?}: {} for {c}", state[j]);
                }
            }
        }
    }
}

#[test]
fn tangents_are_those_of_f64() {
    let mut rng = fastrand::Rng::with_seed(63);
    for level in available() {
        for n in [0, 1, 15, 16, 100] {
            let x = normals(&mut rng, n, 3.0);
            let mut y = x.clone();
            with_level(level, || tanh_all(&mut y));
            for (x, y) in x.iter().zip(y) {
                // Of values below 1, a little more than two units of the last place.
                assert!((f64::from(y) - f64::from(*x).tanh()).abs() < 3e-7, "{level:?}: tanh {x} is not {y}");
            }
        }
    }
}

#[test]
fn gradients_are_those_of_the_formulas() {
    let mut rng = fastrand::Rng::with_seed(62);
    for cell in CELLS {
        for n in [1, 8, 13] {
            let (gates, bias) = (normals(&mut rng, 4 * n, 1.0), normals(&mut rng, 4 * n, 0.5));
            let (before, dh, dc) = (normals(&mut rng, n, 1.0), normals(&mut rng, n, 1.0), normals(&mut rng, n, 1.0));
            for level in available() {
                let (mut work, mut state, mut hidden) = (gates.clone(), vec![0.0; n], vec![0.0; n]);
                let mut carry = dc.clone();
                with_level(level, || {
                    let forward =
                        Step { gates: &mut work, bias: &bias, before: &before, cell: &mut state, hidden: &mut hidden };
                    step(cell, forward);
                    let job = Back { gates: &mut work, before: &before, cell: &state, hidden: &dh, carry: &mut carry };
                    back(cell, job);
                });
                for j in 0..n {
                    let (at, b) = (sums(&gates, &bias, n, j), f64::from(before[j]));
                    let value = |sums: [f64; 4], b: f64| {
                        let (h, c) = plain(cell, sums, b);
                        f64::from(dh[j]) * h + f64::from(dc[j]) * c
                    };
                    // Central differences of size 1e−5 are right to 1e−9; the kernel to 1e−6.
                    let e = 1e-5;
                    for k in 0..4 {
                        let moved = |by: f64| value(std::array::from_fn(|i| at[i] + if i == k { by } else { 0.0 }), b);
                        let want = (moved(e) - moved(-e)) / (2.0 * e);
                        let got = f64::from(work[k * n + j]);
                        assert!((got - want).abs() < 5e-6, "{cell:?} {level:?} block {k}: {got} for {want}");
                    }
                    let want = (value(at, b + e) - value(at, b - e)) / (2.0 * e);
                    assert!((f64::from(carry[j]) - want).abs() < 5e-6, "{cell:?}: {} for {want}", carry[j]);
                }
            }
        }
    }
}

#[test]
fn a_number_that_is_none_stays_visible() {
    for cell in CELLS {
        for level in available() {
            for k in 0..4 {
                let mut gates = [0.5; 12];
                gates[3 * k + 1] = f32::NAN;
                let (bias, before, mut state, mut hidden) = ([0.0; 12], [0.25; 3], [0.0; 3], [0.0; 3]);
                let job =
                    Step { gates: &mut gates, bias: &bias, before: &before, cell: &mut state, hidden: &mut hidden };
                with_level(level, || step(cell, job));
                assert!(hidden[1].is_nan() && hidden[0].is_finite() && hidden[2].is_finite(), "{cell:?} {level:?} {k}");
            }
        }
    }
}
