"""Sparse probability for neural networks: mappings from scores to probabilities that can be exactly
zero, with exact gradients and convex losses, natively fast.

The functions here take NumPy arrays. `parsimax.torch` has the same names for PyTorch tensors, with
gradients, and is a drop-in for the package ``entmax``; it is only imported when asked for.
"""

import os as _os

from . import _native
from ._functions import (
    budget,
    entmax,
    entmax15,
    entmax_csr,
    ev_softmax,
    fusedmax,
    normmax,
    oscarmax,
    softmax,
    sparsehourglass,
    sparsemax,
    sq_pnorm_max,
)
from ._native import __version__

__all__ = [
    "__version__",
    "budget",
    "entmax",
    "entmax15",
    "entmax_csr",
    "ev_softmax",
    "fusedmax",
    "normmax",
    "oscarmax",
    "softmax",
    "sparsehourglass",
    "sparsemax",
    "sq_pnorm_max",
]

if hasattr(_os, "register_at_fork"):
    # A child of fork has no threads but its own; waiting for the pool would be forever.
    _os.register_at_fork(after_in_child=_native.after_fork)
