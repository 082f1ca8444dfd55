//! Where results go and how they are spelled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use parsimax::Explanation;

use crate::{Failure, Result};

/// How a row is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Format {
    /// Probabilities separated by spaces.
    Text,
    /// One JSON object.
    Json,
}

/// Where rows are written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sink {
    Stdout,
    File(PathBuf),
}

impl Sink {
    /// Nothing and `-` are standard output.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        match path {
            Some(path) if path.as_os_str() != "-" => Self::File(path),
            _ => Self::Stdout,
        }
    }

    /// Lets `body` write; a file appears complete or not at all.
    pub(crate) fn write(&self, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        match self {
            Self::Stdout => to_stdout(body),
            Self::File(path) => to_file(path, body).map_err(|error| Failure::io(&path.display().to_string(), &error)),
        }
    }
}

/// Lets `body` write to standard output.
pub(crate) fn to_stdout(body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    body(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::io("standard output", &error))
}

/// Writes beside `path` and renames, so that no reader ever meets half a file.
fn to_file(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // A link is followed, so that what it points at is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let present = fs::metadata(&path).ok();
    if present.as_ref().is_some_and(|file| !file.is_file()) {
        // A device or a pipe cannot be replaced; a directory fails here, with its reason.
        return fill(OpenOptions::new().write(true).open(&path)?, body).map(|_| ());
    }
    let (temporary, file) = create_beside(&path)?;
    let done = fill(file, body).and_then(|file| {
        if let Some(present) = &present {
            file.set_permissions(present.permissions())?;
        }
        file.sync_all()?;
        fs::rename(&temporary, &path)
    });
    if done.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    done
}

/// A new file in the directory of `path`, where a rename is atomic.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("not the name of a file"))?;
    for attempt in 0..100 {
        let mut temporary = std::ffi::OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}.{attempt}.tmp", std::process::id()));
        let temporary = path.with_file_name(temporary);
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (temporary, file)),
        }
    }
    Err(io::Error::other("its directory is full of temporary files"))
}

fn fill(file: File, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::new(file);
    body(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Probabilities separated by spaces, and a line break.
pub(crate) fn text_row(out: &mut dyn Write, p: &[f64]) -> io::Result<()> {
    list(out, p, " ", number)?;
    writeln!(out)
}

/// `{"p":[…],"support":[…],"tau":…,"entropy":…}` and a line break.
pub(crate) fn json_row(out: &mut dyn Write, row: &Explanation) -> io::Result<()> {
    // JSON has no infinities; a threshold beyond f64 is no threshold.
    let tau = row.tau.filter(|tau| tau.is_finite()).map_or("null".into(), number);
    write!(out, "{{\"p\":[")?;
    list(out, &row.p, ",", number)?;
    write!(out, "],\"support\":[")?;
    list(out, &row.support, ",", |i| i.to_string())?;
    writeln!(out, "],\"tau\":{tau},\"entropy\":{}}}", number(row.entropy))
}

fn list<T: Copy>(out: &mut dyn Write, items: &[T], separator: &str, spell: impl Fn(T) -> String) -> io::Result<()> {
    for (i, item) in items.iter().enumerate() {
        write!(out, "{}{}", if i == 0 { "" } else { separator }, spell(*item))?;
    }
    Ok(())
}

/// A number of at most six digits, for people.
pub(crate) fn short(x: f64) -> String {
    let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    number(rounded)
}

/// The shortest decimal that reads back as the same number; very small and very large ones with an
/// exponent.
fn number(x: f64) -> String {
    if x == 0.0 || (1e-5..1e16).contains(&x.abs()) { x.to_string() } else { format!("{x:e}") }
}

/// Lines of a table with aligned columns; the last is left ragged.
pub(crate) fn columns<const N: usize>(out: &mut dyn Write, lines: &[[String; N]]) -> io::Result<()> {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for line in lines {
        let padded: Vec<String> = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        writeln!(out, "{}", padded.join("  ").trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for x in [0.0, 1.0, 0.1, 1.0 / 3.0, 1e-5, 9.9e-6, 1e-300, 5e-324, 1e15, 1e16, 1e30, f64::MAX, -0.25] {
            assert_eq!(number(x).parse::<f64>().unwrap().to_bits(), x.to_bits());
            assert!(number(x).len() <= 24, "{}", number(x));
        }
        assert_eq!((number(1.0), number(0.0), number(1e-30)), ("1".into(), "0".into(), "1e-30".into()));
    }

    #[test]
    fn columns_align() {
        let mut out = Vec::new();
        let line = |a: &str, b: &str| [a.to_string(), b.to_string()];
        columns(&mut out, &[line("½", "x"), line("abc", "y")]).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "½    x\nabc  y\n");
    }

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let directory = std::env::temp_dir().join(format!("parsimax-output-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("p.txt");
        fs::write(&path, "old").unwrap();
        let failed = to_file(&path, |out| {
            out.write_all(b"half of the n")?;
            Err(io::Error::other("the disk is full"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(&directory).unwrap();
    }
}
