"""The mappings on NumPy arrays.

Common to all functions:

- ``z``: scores of any shape and memory layout. float16, bfloat16 (``ml_dtypes``), float32 and float64
  give a result of their own dtype; integers give float64.
- ``axis``: where the probabilities of a row lie.
- ``gamma``: the strength γ > 0 of the regulariser; ``Π_γΩ(z) = Π_Ω(z/γ)``.
- ``mask``: booleans that broadcast to ``z``; entries where it is False do not take part: their
  probability is 0 and the others are what they would be without them. A score of ``-inf`` does the
  same. A row in which nothing takes part is a row of zeros.
- ``out``: an array of the result's shape and dtype to write to.
- A row that holds NaN or ``+inf`` (in an entry that takes part) is a row of NaN.

Work is done in native threads with the interpreter lock released.
"""

from __future__ import annotations

import numpy as np

from . import _arrays
from ._arrays import apply
from ._table import KINDS


def softmax(z, axis=-1, *, gamma=1.0, mask=None, out=None):
    """softmax: ``p_i = exp(z_i/γ) / Σ_j exp(z_j/γ)``, with Ω(p) = Σ p log p. Dense.

    >>> softmax([0.0, 0.0])
    array([0.5, 0.5])
    """
    return apply("softmax", z, None, axis, gamma, mask, out)


def sparsemax(z, axis=-1, *, gamma=1.0, mask=None, out=None):
    """sparsemax: the point of the simplex nearest to ``z/γ`` (Martins & Astudillo 2016).

    Ω(p) = ½‖p‖²; ``p_i = [z_i/γ − τ]₊`` with τ such that Σp = 1. Zero from γ below the maximum on.
    ``J = diag(s) − ssᵀ/|S|`` with s the indicator of the support S.

    >>> sparsemax([1.0, 0.2, 0.0])
    array([0.9, 0.1, 0. ])
    """
    return apply("sparsemax", z, None, axis, gamma, mask, out)


def entmax15(z, axis=-1, *, gamma=1.0, mask=None, out=None):
    """1.5-entmax: ``p_i = [z_i/(2γ) − τ]₊²`` (Peters, Niculae & Martins 2019).

    Between softmax and sparsemax; zero from 2γ below the maximum on. ``Jv = s⊙(v − <s,v>/Σs)`` with
    ``s = √p/γ``.

    >>> entmax15([2.0, 0.0])
    array([1., 0.])
    """
    return apply("entmax15", z, None, axis, gamma, mask, out)


def entmax(z, alpha=1.5, axis=-1, *, gamma=1.0, mask=None, out=None):
    """α-entmax for any α > 0: ``p_i = [(α−1)z_i/γ − τ]₊^{1/(α−1)}``.

    Ω is the negative Tsallis entropy ``(Σp^α − 1)/(α(α−1))``. α = 1 is softmax, 1.5 is `entmax15`, 2 is
    `sparsemax`; below 1 the result is dense with heavy tails. Exact at every α.

    alpha: a number, or an array that broadcasts with ``z`` and has size 1 along ``axis`` (an α per row,
    per head, …).

    >>> entmax([[1.0, 0.0], [1.0, 0.0]], alpha=[[1.0], [2.0]]).round(3)
    array([[0.731, 0.269],
           [1.   , 0.   ]])
    """
    return apply("entmax", z, alpha, axis, gamma, mask, out)


def fusedmax(z, lam=0.1, axis=-1, *, gamma=1.0, mask=None, out=None):
    """fusedmax: sparse, and neighbours share values (Niculae & Blondel 2017).

    Ω(p) = ½‖p‖² + λ Σ|p_{i+1} − p_i|. The projection onto the simplex of the one-dimensional
    total-variation prox of ``z/γ``; both exact. ``lam`` may be an array like `entmax`'s alpha.

    >>> fusedmax([1.0, 0.9, 0.0], lam=0.1)
    array([0.5, 0.5, 0. ])
    """
    return apply("fusedmax", z, lam, axis, gamma, mask, out)


def oscarmax(z, lam=0.01, axis=-1, *, exact=True, gamma=1.0, mask=None, out=None):
    """oscarmax: sparse, and entries of similar score share values wherever they are.

    Ω(p) = ½‖p‖² + λ Σ_{i<j} max(p_i, p_j). ``exact=False`` gives the approximation of Niculae &
    Blondel (2017), the simplex projection of the OSCAR prox. ``lam`` may be an array like
    `entmax`'s alpha.
    """
    return apply("oscarmax" if exact else "oscarmax_approx", z, lam, axis, gamma, mask, out)


def sq_pnorm_max(z, p=1.5, axis=-1, *, gamma=1.0, mask=None, out=None):
    """sq-pnorm-max: Ω(x) = ½‖x‖_p² for 1 < p ≤ 2 (Niculae & Blondel 2017). p = 2 is sparsemax."""
    return apply("sq_pnorm_max", z, p, axis, gamma, mask, out)


def ev_softmax(z, eps=0.0, axis=-1, *, gamma=1.0, mask=None, out=None):
    """ev-softmax: softmax over the entries that are not below the mean (Chen et al. 2021).

    ``eps > 0`` is the training form: weights ``(1{z_k ≥ mean} + ε) e^{z_k}``, dense.
    """
    return apply("ev_softmax", z, eps, axis, gamma, mask, out)


def sparsehourglass(z, q=1.0, axis=-1, *, gamma=1.0, mask=None, out=None):
    """sparsehourglass: sparsemax of ``c·z`` with ``c = (1 + dq)/(|Σz| + dq)`` (Laha et al. 2018)."""
    return apply("sparsehourglass", z, q, axis, gamma, mask, out)


def normmax(z, alpha=2.0, axis=-1, *, gamma=1.0, mask=None, out=None):
    """normmax: Ω(p) = ‖p‖_α, α > 1. ``alpha`` may be an array like `entmax`'s."""
    return apply("normmax", z, alpha, axis, gamma, mask, out)


def budget(z, budget=2.0, axis=-1, *, gamma=1.0, mask=None, out=None):
    """Entries in [0, 1] that sum to the budget: ``p_i = clip(z_i/γ − τ, 0, 1)``.

    A budget at or above the number of entries gives ones.
    """
    return apply("budget", z, budget, axis, gamma, mask, out)


def entmax_csr(z, alpha=1.5, axis=-1, *, gamma=1.0, mask=None):
    """The sparse result of `entmax`: ``(indptr, indices, data)``, without a dense array.

    Row ``r`` (rows in C order of the other axes) has the probabilities ``data[indptr[r]:indptr[r+1]]``
    at the columns ``indices[indptr[r]:indptr[r+1]]``, ascending. For a matrix,
    ``scipy.sparse.csr_matrix((data, indices, indptr), shape=z.shape)``. NaN and ``+inf`` are a
    ValueError that names row and index.

    >>> entmax_csr([[3.0, 0.0, 0.0], [1.0, 1.0, -5.0]], alpha=2)
    (array([0, 1, 3]), array([0, 0, 1], dtype=int32), array([1. , 0.5, 0.5]))
    """
    kind = KINDS["entmax"]
    at = _arrays.scores(kind, z, axis)
    native = _arrays.native(kind, alpha, gamma, at)
    mask = _arrays.check_mask(kind, mask, at.z.shape)
    indptr, indices, data = native.csr(at.z, at.axis, mask)
    # Columns fit 31 bits in all but absurd cases; sparse libraries want signed indices.
    indices = indices.view(np.int32) if at.z.shape[at.axis] <= 1 << 31 else indices.astype(np.int64)
    return indptr, indices, data.view(at.dtype)
