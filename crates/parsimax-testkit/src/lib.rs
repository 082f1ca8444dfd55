//! Oracles, laws and gradient checks that hold parsimax to its contract.
