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
from ._losses import (
    entmax15_loss,
    entmax_loss,
    ev_softmax_loss,
    fusedmax_loss,
    normmax_loss,
    oscarmax_loss,
    softmax_loss,
    sparsemax_loss,
    sq_pnorm_max_loss,
)
from ._native import __version__

__all__ = [
    "__version__",
    "budget",
    "entmax",
    "entmax15",
    "entmax15_loss",
    "entmax_csr",
    "entmax_loss",
    "ev_softmax",
    "ev_softmax_loss",
    "fusedmax",
    "fusedmax_loss",
    "normmax",
    "normmax_loss",
    "oscarmax",
    "oscarmax_loss",
    "softmax",
    "softmax_loss",
    "sparsehourglass",
    "sparsemax",
    "sparsemax_loss",
    "sq_pnorm_max",
    "sq_pnorm_max_loss",
]

if hasattr(_os, "register_at_fork"):
    # A child of fork has no threads but its own; waiting for the pool would be forever.
    _os.register_at_fork(after_in_child=_native.after_fork)
