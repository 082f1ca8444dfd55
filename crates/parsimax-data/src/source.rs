//! Files as text: plain or gzipped, told by the first two bytes.

use std::io::{self, Read};
use std::path::Path;

use crate::{Error, Result};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The whole file as text.
pub(crate) fn read_text(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Error::file(&name, reason(&error)))?;
    let bytes = if bytes.starts_with(&GZIP) { unzip(&name, &bytes)? } else { bytes };
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Error::line(&name, line, "not UTF-8 text")
    })
}

fn unzip(name: &str, bytes: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    // Several members in one file are one text, as for gunzip.
    let read = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut text);
    read.map_err(|error| Error::file(name, format!("a broken gzip file: {}", reason(&error))))?;
    Ok(text)
}

/// "No such file or directory (os error 2)": the number helps nobody.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
