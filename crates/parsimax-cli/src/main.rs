//! The parsimax command line.
fn main() {}
