//! Sparse probability for neural networks.
