//! Lines of numbers separated by spaces, tabs or commas.

/// Columns, the line of every row (from 1), and the scores. Errors name the line.
pub(super) fn parse(bytes: &[u8]) -> Result<(usize, Vec<usize>, Vec<f64>), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
        format!("line {line}: not UTF-8 text, nor a .npy file")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (mut z, mut lines, mut columns) = (Vec::new(), Vec::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split('#').next().unwrap_or("").trim();
        if content.is_empty() {
            continue;
        }
        let before = z.len();
        parse_line(content, &mut z).map_err(|problem| format!("line {number}, {problem}"))?;
        let found = z.len() - before;
        match lines.first() {
            None => columns = found,
            Some(first) if found != columns => {
                let s = if found == 1 { "" } else { "s" };
                return Err(format!("line {number}: {found} number{s}, but line {first} has {columns}"));
            }
            Some(_) => {}
        }
        lines.push(number);
    }
    if lines.is_empty() { Err("no scores: only blank lines and comments".into()) } else { Ok((columns, lines, z)) }
}

/// Appends the numbers of a line. Between commas there must be at least one.
fn parse_line(line: &str, z: &mut Vec<f64>) -> Result<(), String> {
    let before = z.len();
    for part in line.split(',') {
        let mut words = part.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(format!("field {}: empty; there must be a number between commas", z.len() - before + 1));
        }
        for word in words {
            z.push(parse_number(word).map_err(|problem| format!("field {}: {problem}", z.len() - before + 1))?);
        }
    }
    Ok(())
}

fn parse_number(word: &str) -> Result<f64, String> {
    let shown: String = word.chars().take(40).collect();
    let value: f64 = word.parse().map_err(|_| format!("'{shown}' is not a number"))?;
    // "-1e400" must not become -inf, which is a mask.
    if value.is_infinite() && word.contains(|c: char| c.is_ascii_digit()) {
        return Err(format!("{shown} is out of range: the largest number is about 1.8e308"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_tabs_and_commas_separate() {
        let (columns, lines, z) = parse(b"1 2\t3\n# note\n\n4, 5,6 # more\r\n 7,-inf -Infinity\n").unwrap();
        assert_eq!((columns, lines), (3, vec![1, 4, 5]));
        assert_eq!(z, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, f64::NEG_INFINITY, f64::NEG_INFINITY]);
    }

    #[test]
    fn a_byte_order_mark_is_no_number() {
        assert_eq!(parse("\u{feff}1 2".as_bytes()).unwrap().2, [1.0, 2.0]);
    }

    #[test]
    fn complaints_name_line_and_field() {
        for (text, expected) in [
            ("1 2 3\n\n1 2 3 4", "line 3: 4 numbers, but line 1 has 3"),
            ("1 2 3\n1", "line 2: 1 number, but line 1 has 3"),
            ("1 2\n3 x4", "line 2, field 2: 'x4' is not a number"),
            ("1,,2", "line 1, field 2: empty; there must be a number between commas"),
            ("1,2,", "line 1, field 3: empty; there must be a number between commas"),
            ("1 -1e400", "line 1, field 2: -1e400 is out of range: the largest number is about 1.8e308"),
            ("#", "no scores: only blank lines and comments"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), expected);
        }
        assert_eq!(parse(b"1\n\xff").unwrap_err(), "line 2: not UTF-8 text, nor a .npy file");
    }
}
