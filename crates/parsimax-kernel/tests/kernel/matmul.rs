//! Products against plain f64 loops.

use super::*;
use parsimax_kernel::matmul::{Matrix, Packed, Target, multiply};

/// `C = start + A·B` in f64, and the sum of the absolute terms, which bounds the rounding.
fn plain(a: Matrix<'_>, b: Matrix<'_>, i: usize, j: usize) -> (f64, f64) {
    let terms = (0..a.shape.1)
        .map(|k| f64::from(a.data[i * a.row + k * a.column]) * f64::from(b.data[k * b.row + j * b.column]));
    terms.fold((0.0, 0.0), |(sum, size), t| (sum + t, size + t.abs()))
}

/// Multiplies at a level with a wider `C`, whose margin must stay as it was.
fn check(level: Level, a: Matrix<'_>, b: Matrix<'_>, add: bool) {
    let ((m, k), n) = (a.shape, b.shape.1);
    let row = n + 3;
    let mut c = vec![7.0; m * row];
    let packed = with_level(level, || Packed::new(b));
    assert_eq!(packed.shape(), b.shape);
    multiply(a, &packed, Target { data: &mut c, row, add }, &mut Vec::new());
    for i in 0..m {
        for j in 0..n {
            let (sum, size) = plain(a, b, i, j);
            let want = sum + if add { 7.0 } else { 0.0 };
            // A chain of k roundings, each at most half a unit of a partial sum.
            let bound = (size + 7.0) * 6e-8 * (k as f64 + 2.0);
            let got = f64::from(c[i * row + j]);
            assert!((got - want).abs() <= bound, "{level:?} {m}×{k}×{n} ({i}, {j}): {got} for {want}");
        }
        assert!(c[i * row + n..(i + 1) * row].iter().all(|&x| x == 7.0), "the margin of row {i}");
    }
}

#[test]
fn products_of_any_shape_are_right_at_every_level() {
    let mut rng = fastrand::Rng::with_seed(51);
    let shapes =
        [(1, 1, 1), (5, 3, 2), (6, 16, 16), (7, 17, 33), (32, 300, 40), (97, 257, 19), (200, 8, 31), (13, 520, 5)];
    for (m, k, n) in shapes {
        let (a, b) = (normals(&mut rng, m * k, 1.0), normals(&mut rng, k * n, 1.0));
        let (left, right) = (Matrix::new(&a, m, k, k), Matrix::new(&b, k, n, n));
        let (left_t, right_t) = (Matrix::new(&a, k, m, m).transposed(), Matrix::new(&b, n, k, k).transposed());
        for level in available() {
            check(level, left, right, false);
            check(level, left_t, right, true);
            check(level, left, right_t, true);
            check(level, left_t, right_t, false);
        }
    }
}

#[test]
fn a_factor_packed_over_another_is_as_good_as_new() {
    let mut rng = fastrand::Rng::with_seed(53);
    let (a, b) = (normals(&mut rng, 4 * 60, 1.0), normals(&mut rng, 60 * 60, 1.0));
    for level in available() {
        with_level(level, || {
            let mut used = Packed::new(Matrix::new(&b, 60, 60, 60));
            for (k, n) in [(60, 37), (9, 60), (60, 60), (1, 3)] {
                let right = Matrix::new(&b, k, n, 60);
                used.pack(right);
                let product = |packed: &Packed| {
                    let mut c = vec![0.0; 4 * n];
                    multiply(
                        Matrix::new(&a, 4, k, 60),
                        packed,
                        Target { data: &mut c, row: n, add: false },
                        &mut Vec::new(),
                    );
                    c
                };
                assert_eq!(product(&used), product(&Packed::new(right)), "{level:?} {k}×{n}");
            }
        });
    }
}

#[test]
fn nothing_to_add_up_is_zero() {
    let mut c = vec![7.0; 6];
    let packed = Packed::new(Matrix::new(&[], 0, 3, 3));
    multiply(Matrix::new(&[], 2, 0, 0), &packed, Target { data: &mut c, row: 3, add: true }, &mut Vec::new());
    assert_eq!(c, [7.0; 6]);
    multiply(Matrix::new(&[], 2, 0, 0), &packed, Target { data: &mut c, row: 3, add: false }, &mut Vec::new());
    assert_eq!(c, [0.0; 6]);
}

#[test]
fn a_row_of_the_product_does_not_depend_on_the_others() {
    let mut rng = fastrand::Rng::with_seed(52);
    let (m, k, n) = (23, 70, 45);
    let (a, b) = (normals(&mut rng, m * k, 1.0), normals(&mut rng, k * n, 1.0));
    for level in available() {
        let packed = with_level(level, || Packed::new(Matrix::new(&b, k, n, n)));
        let product = |rows: usize, first: usize| {
            let mut c = vec![0.0; rows * n];
            let left = Matrix::new(&a[first * k..], rows, k, k);
            multiply(left, &packed, Target { data: &mut c, row: n, add: false }, &mut Vec::new());
            c
        };
        let all = product(m, 0);
        for i in 0..m {
            assert_eq!(product(1, i), all[i * n..(i + 1) * n], "{level:?}, row {i}");
        }
    }
}
