"""The losses as functions. Common arguments:

- ``X``: scores, classes along ``dim`` (1 where there is such a dimension, as for cross_entropy).
- ``target``: integer classes of the shape of X without ``dim``; or distributions, or booleans that mark
  a set of labels, of the shape of X.
- ``ignore_index``: rows of this class have loss 0 and gradient 0.
- ``reduction``: ``"none"``, ``"sum"``, ``"mean"`` (also spelt ``"elementwise_mean"``): the mean divides by
  the rows that are not ignored, with weights by the sum of their labels' weights.
- ``label_smoothing``: this share of every target moves to the uniform distribution.
- ``weight``: a weight per class, with the meaning it has for torch's cross_entropy.
"""

from __future__ import annotations

from torch import Tensor

from ._likelihood import likelihood
from ._loss import loss


def softmax_loss(X: Tensor, target: Tensor, **options):
    """Cross-entropy minus the entropy of the target."""
    return loss("softmax", X, target, **options)


def sparsemax_loss(X: Tensor, target: Tensor, k: int | None = None, **options):
    """The sparsemax loss. ``k`` is a hint without effect."""
    return loss("sparsemax", X, target, **options)


def entmax15_loss(X: Tensor, target: Tensor, k: int | None = None, **options):
    """The 1.5-entmax loss. ``k`` is a hint without effect."""
    return loss("entmax15", X, target, **options)


def entmax_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, **options):
    """The α-entmax loss; differentiable in ``alpha``, which has size 1 along the classes."""
    return loss("entmax", X, target, alpha, **options)


def fusedmax_loss(X: Tensor, target: Tensor, lam: float | Tensor = 0.1, **options):
    """The Fenchel–Young loss of fusedmax; differentiable in ``lam``."""
    return loss("fusedmax", X, target, lam, **options)


def oscarmax_loss(X: Tensor, target: Tensor, lam: float | Tensor = 0.01, **options):
    """The Fenchel–Young loss of oscarmax; differentiable in ``lam``."""
    return loss("oscarmax", X, target, lam, **options)


def sq_pnorm_max_loss(X: Tensor, target: Tensor, p: float | Tensor = 1.5, **options):
    """The Fenchel–Young loss of sq-pnorm-max; differentiable in ``p``."""
    return loss("sq_pnorm_max", X, target, p, **options)


def normmax_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 2.0, **options):
    """The Fenchel–Young loss of normmax; differentiable in ``alpha``."""
    return loss("normmax", X, target, alpha, **options)


def ev_softmax_loss(X: Tensor, target: Tensor, eps: float = 1e-6, **options):
    """The negative log-likelihood of ev-softmax in its training form, weights ``1{z ≥ mean z} + eps``.

    The gradient is p − y; as ``eps`` goes to 0, p tends to the sparse probabilities (Chen et al. 2021). At
    ``eps=0`` a target outside the support has loss ``inf``.
    """
    return likelihood(X, target, eps, **options)


def sparsemax_bisect_loss(X: Tensor, target: Tensor, n_iter: int = 50, **options):
    """`sparsemax_loss`; the hint ``n_iter`` has no effect."""
    return loss("sparsemax", X, target, **options)


def entmax_bisect_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 1.5, n_iter: int = 50, **options):
    """`entmax_loss`; the hint ``n_iter`` has no effect."""
    return loss("entmax", X, target, alpha, **options)


def normmax_bisect_loss(X: Tensor, target: Tensor, alpha: float | Tensor = 2, n_iter: int = 50, **options):
    """`normmax_loss`; the hint ``n_iter`` has no effect."""
    return loss("normmax", X, target, alpha, **options)
