"""What the tests share: seeded scores and slow references written from the definitions."""

import numpy as np
import pytest

NAMES = [
    "softmax",
    "sparsemax",
    "entmax15",
    "entmax",
    "fusedmax",
    "oscarmax",
    "sq_pnorm_max",
    "ev_softmax",
    "sparsehourglass",
    "normmax",
    "budget",
]


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def total(name, d):
    """What the rows of a mapping sum to."""
    return min(2.0, d) if name == "budget" else 1.0


def entmax_by_bisection(z, alpha):
    """α-entmax of one row from the definition, by bisection on the threshold in f64."""
    z = np.asarray(z, np.float64)
    z = z - z.max()
    if alpha == 1:
        return np.exp(z) / np.exp(z).sum()
    x = (alpha - 1) * z
    low, high = (-1.0, 0.0) if alpha > 1 else (-(float(len(z)) ** (1 - alpha)) - 1, x.min())
    if alpha > 1:
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if (np.maximum(x - middle, 0) ** (1 / (alpha - 1))).sum() > 1 else (low, middle)
        p = np.maximum(x - low, 0) ** (1 / (alpha - 1))
    else:
        # (α−1)z ≥ 0; τ below all of it, and p = (x − τ)^{1/(α−1)} falls as τ does.
        low, high = -(float(len(z)) ** (1 - alpha)), 0.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if ((x - middle) ** (1 / (alpha - 1))).sum() < 1 else (low, middle)
        p = (x - low) ** (1 / (alpha - 1))
    return p / p.sum()
