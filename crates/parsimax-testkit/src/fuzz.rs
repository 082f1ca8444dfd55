//! Bytes to calls: what the coverage-guided fuzz targets and the plain fuzz test share.
//!
//! The bytes choose a mapping of the family, its parameters (sane and absurd ones), the number type,
//! a mask and raw score bits. Whatever they say, every call must end, return a typed error or a
//! distribution, and leave nothing undefined.

use crate::laws::exact_sum;
use parsimax::registry::{Options, build};
use parsimax::{Error, Float, Mapping, Rows, View, ViewMut};

/// Families of mappings; a fuzz target each.
pub const FAMILIES: &[(&str, &[&str])] = &[
    ("separable", &["softmax", "sparsemax", "entmax15", "entmax"]),
    ("structured", &["fusedmax", "oscarmax", "oscarmax-approx"]),
    ("norms", &["sq-pnorm-max", "normmax", "budget"]),
    ("evidential", &["ev-softmax", "sparsehourglass"]),
];

/// A reader of bytes that never runs dry.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn word(&mut self) -> u64 {
        (0..8).fold(0, |word, _| word << 8 | u64::from(self.byte()))
    }

    /// A number of a chosen character: raw bits, a normal magnitude, a tie, or a special value.
    fn score(&mut self) -> f64 {
        let kind = self.byte();
        match kind % 16 {
            0 => f64::from_bits(self.word()),
            1 => [f64::NEG_INFINITY, 0.0, -0.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 1e30, -1e30]
                [usize::from(kind / 32)],
            2 if kind > 200 => [f64::NAN, f64::INFINITY][usize::from(self.byte() % 2)],
            3..=6 => f64::from(self.byte() as i8) / 16.0,
            _ => f64::from(self.word() as u32 as i32) / f64::from(1u32 << 29),
        }
    }

    fn parameter(&mut self) -> Option<f64> {
        match self.byte() % 8 {
            0 => None,
            1 => Some(self.score()),
            2 => Some(1.0 + f64::from(self.byte()) * 1e-6),
            3 => Some(f64::from(self.byte()) * 4.0),
            _ => Some(f64::from(self.byte()) / 64.0),
        }
    }
}

/// Runs one case of a family.
///
/// # Panics
/// If the case breaks the contract; the message says how.
pub fn run(family: &str, bytes: &[u8]) {
    let (_, names) = FAMILIES.iter().find(|(name, _)| *name == family).expect("a known family");
    let mut bytes = Bytes(bytes);
    let name = names[usize::from(bytes.byte()) % names.len()];
    let parameter = bytes.parameter();
    let mut options = Options { gamma: bytes.parameter().filter(|_| true), ..Options::default() };
    match name {
        "entmax" | "normmax" => options.alpha = parameter,
        "fusedmax" | "oscarmax" | "oscarmax-approx" => options.lambda = parameter,
        "sq-pnorm-max" => options.p = parameter,
        "budget" => options.budget = parameter,
        "ev-softmax" => options.eps = parameter,
        "sparsehourglass" => options.q = parameter,
        _ => {}
    }
    let single = bytes.byte() % 2 == 0;
    match build(name, &options) {
        Ok(mapping) if single => rows::<f32>(mapping.as_ref(), &options, &mut bytes),
        Ok(mapping) => rows::<f64>(mapping.as_ref(), &options, &mut bytes),
        Err(Error::Parameter { .. }) => {}
        Err(other) => panic!("{name} {options:?}: {other}"),
    }
}

fn bad_score(z: f64) -> bool {
    z.is_nan() || z == f64::INFINITY
}

fn rows<T: Float>(mapping: &dyn Mapping, options: &Options, bytes: &mut Bytes<'_>) {
    let (count, d) = (usize::from(bytes.byte() % 3), usize::from(bytes.byte() % 24));
    let z: Vec<T> = (0..count * d).map(|_| T::narrow(bytes.score())).collect();
    let mask: Vec<bool> = z.iter().map(|_| !bytes.byte().is_multiple_of(8)).collect();
    let v: Vec<T> = z.iter().map(|_| T::narrow(f64::from(bytes.byte() as i8))).collect();
    let shape = [count, d];
    let context = || format!("{} {options:?} mask {mask:?} of {z:?}", mapping.name());
    let view = |x| View::new(x, &shape).expect("the shape fits");
    let rows = Rows::new(&mapping).mask(View::new(&mask, &shape).expect("the shape fits"));
    let (mut p, mut g) = (vec![T::NAN; z.len()], vec![T::NAN; z.len()]);
    let checked = rows.forward(view(&z), ViewMut::new(&mut p, &shape).expect("the shape fits"));
    let mut unchecked = p.clone();
    let output = ViewMut::new(&mut unchecked, &shape).expect("the shape fits");
    rows.forward_or_nan(view(&z), output).unwrap_or_else(|e| panic!("{e}: {}", context()));
    let bad = |row: usize| (0..d).find(|i| mask[row * d + i] && bad_score(z[row * d + i].widen()));
    match (&checked, (0..count).find_map(|row| bad(row).map(|index| (row, index)))) {
        (Ok(()), None) => {}
        (Err(Error::Score { row, index, .. }), Some(place)) => assert_eq!((*row, *index), place, "{}", context()),
        (found, place) => panic!("{found:?} but bad score at {place:?}: {}", context()),
    }
    let gradient = ViewMut::new(&mut g, &shape).expect("the shape fits");
    rows.vjp_or_nan(view(&z), view(&p), view(&v), gradient).unwrap_or_else(|e| panic!("{e}: {}", context()));
    for row in 0..count {
        let range = row * d..(row + 1) * d;
        let wide: Vec<f64> = p[range.clone()].iter().map(|p| p.widen()).collect();
        if bad(row).is_some() {
            assert!(wide.iter().all(|p| p.is_nan()), "{wide:?}: {}", context());
            continue;
        }
        let taking_part = |i: &usize| mask[row * d + i] && z[row * d + i].widen() > f64::NEG_INFINITY;
        let live = (0..d).filter(taking_part).count();
        let total = if live == 0 { 0.0 } else { mapping.total(live) };
        let tolerance = 4.0 * T::EPSILON * total.max(1.0) * (d as f64).sqrt();
        assert!(wide.iter().all(|p| *p >= 0.0), "negative or NaN in {wide:?}: {}", context());
        assert!((exact_sum(&wide) - total).abs() <= tolerance, "sum of {wide:?} is not {total}: {}", context());
        assert!((0..d).all(|i| taking_part(&i) || wide[i] == 0.0), "mass on a masked entry of {wide:?}: {}", context());
        let slope: Vec<f64> = g[range].iter().map(|g| g.widen()).collect();
        assert!(slope.iter().all(|g| !g.is_nan()), "NaN in the gradient {slope:?}: {}", context());
        assert!((0..d).all(|i| taking_part(&i) || slope[i] == 0.0), "gradient on a masked entry: {}", context());
    }
}
