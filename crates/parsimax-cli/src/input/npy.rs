//! NumPy's `.npy` files: `\x93NUMPY`, version, header length, a Python dict, the raw entries.
//!
//! The reader is strict: three keys, a simple dtype, exactly as many bytes as the shape needs. The
//! size is checked against the bytes at hand before memory is taken, so a lying header costs nothing.

/// The first bytes of every `.npy` file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// The shape, and the entries in row-major order.
pub(super) fn parse(bytes: &[u8]) -> Result<(Vec<usize>, Vec<f64>), String> {
    let (header, data) = split(bytes)?;
    let Header { descr, fortran_order, shape } = Header::parse(header)?;
    let dtype = Dtype::parse(&descr)?;
    if shape.is_empty() {
        return Err("the array is a single number; rows need at least one axis".into());
    }
    let count = shape.iter().try_fold(1usize, |n, axis| n.checked_mul(*axis));
    match count.and_then(|n| n.checked_mul(dtype.size)) {
        Some(0) => return Err(format!("no scores: the array has shape {}", tuple(&shape))),
        Some(expected) if expected == data.len() => {}
        expected => {
            let expected = expected.map_or("more than the machine can address".into(), |n| n.to_string());
            return Err(format!(
                "shape {} of {descr} needs {expected} bytes, the file has {}",
                tuple(&shape),
                data.len()
            ));
        }
    }
    let z: Vec<f64> = data.chunks_exact(dtype.size).map(|entry| dtype.decode(entry)).collect();
    let z = if fortran_order { row_major(&z, &shape) } else { z };
    Ok((shape, z))
}

/// The text of the header and the bytes after it.
fn split(bytes: &[u8]) -> Result<(&str, &[u8]), String> {
    let truncated = || String::from("the .npy header is cut off");
    let rest = bytes.strip_prefix(MAGIC).ok_or("not a .npy file: it does not start with \\x93NUMPY")?;
    let (version, rest) = rest.split_at_checked(2).ok_or_else(truncated)?;
    let (length, rest) = match version[0] {
        1 => rest.split_at_checked(2),
        2 | 3 => rest.split_at_checked(4),
        other => return Err(format!("version {other} of the .npy format is unknown; 1 to 3 are known")),
    }
    .ok_or_else(truncated)?;
    let length = length.iter().rev().fold(0usize, |n, byte| (n << 8) | usize::from(*byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(truncated)?;
    Ok((std::str::from_utf8(header).map_err(|_| "the .npy header is not text")?, data))
}

/// The dict of the header.
#[derive(Debug, PartialEq)]
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Header {
    /// Reads `{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }`.
    fn parse(text: &str) -> Result<Self, String> {
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        let mut cursor = Cursor(text.trim());
        cursor.expect("{")?;
        while !cursor.accept("}") {
            let key = cursor.string()?;
            cursor.expect(":")?;
            match key {
                "descr" => descr = Some(cursor.string()?.to_string()),
                "fortran_order" => fortran_order = Some(cursor.boolean()?),
                "shape" => shape = Some(cursor.shape()?),
                other => return Err(format!("the .npy header has an unknown key '{other}'")),
            }
            if !cursor.accept(",") && !cursor.0.starts_with('}') {
                return Err(cursor.complaint("',' or '}'"));
            }
        }
        if !cursor.0.is_empty() {
            return Err(cursor.complaint("the end"));
        }
        let missing = |key: &str| format!("the .npy header lacks '{key}'");
        Ok(Self {
            descr: descr.ok_or_else(|| missing("descr"))?,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }
}

/// What is left of the header.
struct Cursor<'a>(&'a str);

impl<'a> Cursor<'a> {
    fn accept(&mut self, token: &str) -> bool {
        let found = self.0.strip_prefix(token);
        if let Some(rest) = found {
            self.0 = rest.trim_start();
        }
        found.is_some()
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.accept(token) { Ok(()) } else { Err(self.complaint(&format!("'{token}'"))) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.0.starts_with('"') { '"' } else { '\'' };
        let (text, rest) = self
            .0
            .strip_prefix(quote)
            .and_then(|rest| rest.split_once(quote))
            .ok_or_else(|| self.complaint("a plain string (structured dtypes are not supported)"))?;
        self.0 = rest.trim_start();
        Ok(text)
    }

    fn boolean(&mut self) -> Result<bool, String> {
        if self.accept("True") {
            Ok(true)
        } else if self.accept("False") {
            Ok(false)
        } else {
            Err(self.complaint("True or False"))
        }
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        self.expect("(")?;
        let mut shape = Vec::new();
        while !self.accept(")") {
            let digits = self.0.len() - self.0.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (axis, rest) = self.0.split_at(digits);
            shape.push(axis.parse().map_err(|_| self.complaint("the length of an axis"))?);
            self.0 = rest.trim_start();
            if !self.accept(",") && !self.0.starts_with(')') {
                return Err(self.complaint("',' or ')'"));
            }
        }
        Ok(shape)
    }

    fn complaint(&self, expected: &str) -> String {
        let found: String = self.0.chars().take(20).collect();
        format!("the .npy header must have {expected} where it has '{found}'")
    }
}

/// A number type and its byte order.
struct Dtype {
    size: usize,
    float: bool,
    big_endian: bool,
}

impl Dtype {
    fn parse(descr: &str) -> Result<Self, String> {
        let unsupported = || format!("dtype '{descr}' is not supported; f4, f8, i4 and i8 are");
        let mut letters = descr.chars();
        let big_endian = match letters.next() {
            Some('<') => false,
            Some('>') => true,
            Some('=') => cfg!(target_endian = "big"),
            _ => return Err(unsupported()),
        };
        match letters.as_str() {
            "f4" => Ok(Self { size: 4, float: true, big_endian }),
            "f8" => Ok(Self { size: 8, float: true, big_endian }),
            "i4" => Ok(Self { size: 4, float: false, big_endian }),
            "i8" => Ok(Self { size: 8, float: false, big_endian }),
            _ => Err(unsupported()),
        }
    }

    /// The number in `size` bytes; integers beyond 2⁵³ are rounded.
    fn decode(&self, entry: &[u8]) -> f64 {
        let byte = |i: usize| u64::from(if self.big_endian { entry[i] } else { entry[self.size - 1 - i] });
        let bits = (0..self.size).fold(0, |bits, i| (bits << 8) | byte(i));
        match (self.float, self.size) {
            (true, 4) => f64::from(f32::from_bits(bits as u32)),
            (true, _) => f64::from_bits(bits),
            (false, 4) => f64::from(bits as u32 as i32),
            (false, _) => bits as i64 as f64,
        }
    }
}

/// Entries in Fortran order (first axis fastest), put in row-major order (last axis fastest).
fn row_major(z: &[f64], shape: &[usize]) -> Vec<f64> {
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for axis in shape {
        strides.push(stride);
        stride *= axis;
    }
    let mut index = vec![0; shape.len()];
    let mut out = Vec::with_capacity(z.len());
    for _ in 0..z.len() {
        out.push(z[index.iter().zip(&strides).map(|(i, stride)| i * stride).sum::<usize>()]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    out
}

/// A shape as Python writes it.
fn tuple(shape: &[usize]) -> String {
    let axes: Vec<String> = shape.iter().map(usize::to_string).collect();
    if let [axis] = axes.as_slice() { format!("({axis},)") } else { format!("({})", axes.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(header.len()).unwrap().to_le_bytes();
        [MAGIC, &[1, 0], &length, header.as_bytes(), data].concat()
    }

    fn dict(descr: &str, fortran: &str, shape: &str) -> String {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}          \n")
    }

    #[test]
    fn every_number_type_is_read() {
        let expected = [1.0, -2.0, 3.0];
        let values = [1i8, -2, 3];
        let bytes = |f: fn(i8) -> Vec<u8>| values.iter().flat_map(|x| f(*x)).collect::<Vec<u8>>();
        for (descr, data) in [
            ("<f4", bytes(|x| f32::from(x).to_le_bytes().to_vec())),
            (">f4", bytes(|x| f32::from(x).to_be_bytes().to_vec())),
            ("<f8", bytes(|x| f64::from(x).to_le_bytes().to_vec())),
            (">f8", bytes(|x| f64::from(x).to_be_bytes().to_vec())),
            ("<i4", bytes(|x| i32::from(x).to_le_bytes().to_vec())),
            (">i4", bytes(|x| i32::from(x).to_be_bytes().to_vec())),
            ("<i8", bytes(|x| i64::from(x).to_le_bytes().to_vec())),
            (">i8", bytes(|x| i64::from(x).to_be_bytes().to_vec())),
        ] {
            let (shape, z) = parse(&file(&dict(descr, "False", "(3,)"), &data)).unwrap();
            assert_eq!((shape, z.as_slice()), (vec![3], &expected[..]), "{descr}");
        }
    }

    #[test]
    fn fortran_order_is_put_in_rows() {
        // [[0, 1, 2], [3, 4, 5]] has columns (0, 3), (1, 4), (2, 5).
        let data: Vec<u8> = [0i32, 3, 1, 4, 2, 5].iter().flat_map(|x| x.to_le_bytes()).collect();
        let (shape, z) = parse(&file(&dict("<i4", "True", "(2, 3)"), &data)).unwrap();
        assert_eq!((shape, z), (vec![2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
        // Three axes: entry [i, j, k] of shape (2, 2, 2) lies at i + 2j + 4k and holds 4i + 2j + k.
        let z = row_major(&[0.0, 4.0, 2.0, 6.0, 1.0, 5.0, 3.0, 7.0], &[2, 2, 2]);
        assert_eq!(z, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let good = file(&dict("<f4", "False", "(1,)"), &[0; 4]);
        assert!(parse(&good).is_ok());
        for (bytes, expected) in [
            (b"1 2 3".to_vec(), "not a .npy file"),
            (good[..9].to_vec(), "cut off"),
            (good[..20].to_vec(), "cut off"),
            ([MAGIC, &[9, 0, 0, 0]].concat(), "version 9"),
            (file(&dict("<f4", "False", "(1,)"), &[0; 3]), "shape (1,) of <f4 needs 4 bytes, the file has 3"),
            (file(&dict("<f4", "False", "(1,)"), &[0; 5]), "needs 4 bytes"),
            (file(&dict("<f8", "False", "(4611686018427387904, 4)"), &[]), "more than the machine can address"),
            (file(&dict("<f8", "False", "(99999999999999999999999,)"), &[]), "the length of an axis"),
            (file(&dict("<f4", "False", "()"), &[0; 4]), "single number"),
            (file(&dict("<f4", "False", "(0, 3)"), &[]), "no scores: the array has shape (0, 3)"),
            (file(&dict("<c8", "False", "(1,)"), &[0; 8]), "dtype '<c8' is not supported"),
            (file(&dict("|u1", "False", "(1,)"), &[0]), "dtype '|u1'"),
            (file(&dict("<f4", "Maybe", "(1,)"), &[0; 4]), "True or False"),
            (file(&dict("<f4", "False", "(1 2)"), &[0; 4]), "',' or ')'"),
            (file(&dict("<f4", "False", "(-1,)"), &[0; 4]), "the length of an axis"),
            (file("{'descr': [('a', '<f4')], }", &[0; 4]), "structured"),
            (file("{'descr': '<f4', }", &[0; 4]), "lacks 'fortran_order'"),
            (file("{'colour': 'red', }", &[0; 4]), "unknown key 'colour'"),
            (file("{} x", &[0; 4]), "the end"),
            (file("", &[]), "'{'"),
        ] {
            let problem = parse(&bytes).unwrap_err();
            assert!(problem.contains(expected), "{problem} / {expected}");
        }
    }
}
