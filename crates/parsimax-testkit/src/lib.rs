//! What holds parsimax to its contract: cases to try, the laws that each mapping declares, and the
//! input policy, written once and run over every mapping of the registry.

pub mod cases;
pub mod fuzz;
pub mod laws;
pub mod subjects;
