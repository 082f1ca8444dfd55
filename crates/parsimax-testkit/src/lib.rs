//! What holds parsimax to its contract: cases to try, the laws that each mapping declares, the
//! input policy, written once and run over every mapping of the registry, and slow exact oracles.

pub mod cases;
pub mod fuzz;
pub mod laws;
pub mod oracle;
pub mod subjects;
