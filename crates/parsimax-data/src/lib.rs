//! From files to examples: formats, vocabularies, batches. Knows files, not models.
//!
//! Words: [`inflection`] reads the shared task on morphological inflection, [`demo`] is a small data set of our own,
//! [`vocabulary`] numbers symbols, [`buckets`] makes batches of like length. Labelled rows, read into matrices and
//! targets:
//!
//! | file | features | labels |
//! |---|---|---|
//! | ARFF, dense or sparse rows | numeric; nominal as numbers or one column per value | the last columns, columns by name, or a Mulan XML list |
//! | svmlight, several labels a row | sparse | what stands before the first blank |
//! | CSV with a head line | numeric | the last columns, or columns by name |
//!
//! All of them plain or gzipped, which is told by the first bytes. The crate knows files and not models:
//! a [`Dataset`] is numbers, names and targets. Every complaint names the file and the line
//! ([`Error`]).
//!
//! ```
//! use parsimax_data::{Labels, Options, Targets, parse_arff};
//! let text = "@relation r\n@attribute x numeric\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n0.5,1,0\n2,1,1\n";
//! let data = parse_arff("r.arff", text, &Options { labels: Labels::Last(2), ..Options::default() })?;
//! assert_eq!(data.features.row_dense(1), [2.0]);
//! assert_eq!(data.targets, Targets::Sets { names: vec!["a".into(), "b".into()], sets: vec![vec![0], vec![0, 1]] });
//! # Ok::<(), parsimax_data::Error>(())
//! ```

mod arff;
pub mod buckets;
mod dataset;
pub mod demo;
mod error;
pub mod inflection;
mod matrix;
mod source;
mod svmlight;
mod table;
mod text;
pub mod vocabulary;
mod xml;

use std::path::Path;

pub use arff::parse as parse_arff;
pub use dataset::{Dataset, Labels, Nominal, Options, Targets, Task};
pub use error::{Error, Result};
pub use matrix::Matrix;
pub use svmlight::parse as parse_svmlight;
pub use table::parse as parse_csv;
pub use xml::parse as parse_xml;

/// The formats of data files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Weka's attribute-relation file.
    Arff,
    /// `label,label index:value …`, as of LIBSVM.
    Svmlight,
    /// Comma-separated values with a head line.
    Csv,
}

impl Format {
    /// By the file's name, without `.gz`: `.arff`, `.csv`, `.svm`, `.svmlight`, `.libsvm`, `.txt`.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "arff" => Some(Self::Arff),
            "csv" => Some(Self::Csv),
            "svm" | "svmlight" | "libsvm" | "txt" | "dat" => Some(Self::Svmlight),
            _ => None,
        }
    }
}

/// Reads a data file; without a `format` its name tells.
///
/// # Errors
/// If the file cannot be read, is of no known format, or a line of it is broken.
pub fn read(path: &Path, format: Option<Format>, options: &Options) -> Result<Dataset> {
    let name = path.display().to_string();
    let Some(format) = format.or_else(|| Format::of(path)) else {
        return Err(Error::file(
            &name,
            "cannot tell the format from the name; known: .arff, .csv, .svm, each also .gz",
        ));
    };
    let text = source::read_text(path)?;
    match format {
        Format::Arff => arff::parse(&name, &text, options),
        Format::Svmlight => svmlight::parse(&name, &text, options),
        Format::Csv => table::parse(&name, &text, options),
    }
}

/// Reads the label names of a Mulan XML file.
///
/// # Errors
/// If the file cannot be read or is no list of labels.
pub fn read_labels(path: &Path) -> Result<Vec<String>> {
    xml::parse(&path.display().to_string(), &source::read_text(path)?)
}
