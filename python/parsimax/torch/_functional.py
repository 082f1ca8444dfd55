"""The mappings on tensors, and the names of the package ``entmax``.

Scores may have any floating dtype, shape and strides; integers are taken as the default dtype. The
result has the dtype of the scores (under autocast narrow scores give float32, as softmax does). All are
differentiable in the scores, and in the parameter where it may be a tensor, to any order.
``mask`` is boolean, True = takes part; see `parsimax` for the input policy.
"""

from __future__ import annotations

from torch import Tensor

from ._function import apply


def softmax(X: Tensor, dim: int = -1, *, gamma: float = 1.0, mask: Tensor | None = None, out: Tensor | None = None):
    """softmax: ``p_i ∝ exp(z_i/γ)``, with masks: a row in which nothing takes part is zeros."""
    return apply("softmax", X, None, dim, gamma, mask, out)


def sparsemax(
    X: Tensor,
    dim: int = -1,
    k: int | None = None,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """sparsemax: ``p_i = [z_i/γ − τ]₊``, the projection onto the simplex. ``k`` is a hint without effect."""
    return apply("sparsemax", X, None, dim, gamma, mask, out)


def entmax15(
    X: Tensor,
    dim: int = -1,
    k: int | None = None,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """1.5-entmax: ``p_i = [z_i/(2γ) − τ]₊²``. ``k`` is a hint without effect."""
    return apply("entmax15", X, None, dim, gamma, mask, out)


def entmax(
    X: Tensor,
    alpha: float | Tensor = 1.5,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """α-entmax for any α > 0: ``p_i = [(α−1)z_i/γ − τ]₊^{1/(α−1)}``; α = 1 is softmax, 2 sparsemax.

    ``alpha`` may be a tensor that broadcasts with the scores and has size 1 in ``dim``; it gets its
    gradient, exact at every α (α = 1 too).
    """
    return apply("entmax", X, alpha, dim, gamma, mask, out)


def fusedmax(
    X: Tensor,
    lam: float | Tensor = 0.1,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """fusedmax: Ω(p) = ½‖p‖² + λ Σ|p_{i+1} − p_i|; differentiable in ``lam``."""
    return apply("fusedmax", X, lam, dim, gamma, mask, out)


def oscarmax(
    X: Tensor,
    lam: float | Tensor = 0.01,
    dim: int = -1,
    *,
    exact: bool = True,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """oscarmax: Ω(p) = ½‖p‖² + λ Σ_{i<j} max(p_i, p_j); differentiable in ``lam``.

    ``exact=False``: the approximation of Niculae & Blondel (2017), for comparison.
    """
    return apply("oscarmax" if exact else "oscarmax_approx", X, lam, dim, gamma, mask, out)


def sq_pnorm_max(
    X: Tensor,
    p: float | Tensor = 1.5,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """sq-pnorm-max: Ω(x) = ½‖x‖_p², 1 < p ≤ 2; differentiable in ``p``."""
    return apply("sq_pnorm_max", X, p, dim, gamma, mask, out)


def ev_softmax(
    X: Tensor,
    eps: float = 0.0,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """ev-softmax: softmax over the entries that reach the mean; ``eps > 0`` is the dense training form."""
    return apply("ev_softmax", X, eps, dim, gamma, mask, out)


def sparsehourglass(
    X: Tensor,
    q: float = 1.0,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """sparsehourglass: sparsemax of ``c·z/γ`` with ``c = (1 + dq)/(|Σz/γ| + dq)``."""
    return apply("sparsehourglass", X, q, dim, gamma, mask, out)


def normmax(
    X: Tensor,
    alpha: float | Tensor = 2.0,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """normmax: Ω(p) = ‖p‖_α, α > 1; differentiable in ``alpha``."""
    return apply("normmax", X, alpha, dim, gamma, mask, out)


def budget(
    X: Tensor,
    budget: float = 2.0,
    dim: int = -1,
    *,
    gamma: float = 1.0,
    mask: Tensor | None = None,
    out: Tensor | None = None,
):
    """Entries in [0, 1] that sum to the budget: ``p_i = clip(z_i/γ − τ, 0, 1)``."""
    return apply("budget", X, budget, dim, gamma, mask, out)


def sparsemax_bisect(X: Tensor, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True):
    """`sparsemax`; the hints ``n_iter`` and ``ensure_sum_one`` have no effect, the result is exact."""
    return apply("sparsemax", X, None, dim)


def entmax_bisect(X: Tensor, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50, ensure_sum_one: bool = True):
    """`entmax`; the hints ``n_iter`` and ``ensure_sum_one`` have no effect, the result is exact."""
    return apply("entmax", X, alpha, dim)


def normmax_bisect(X: Tensor, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50):
    """`normmax`; the hint ``n_iter`` has no effect."""
    return apply("normmax", X, alpha, dim)


def budget_bisect(X: Tensor, budget: float = 2, dim: int = -1, n_iter: int = 50):
    """`budget`; the hint ``n_iter`` has no effect."""
    return apply("budget", X, budget, dim)
