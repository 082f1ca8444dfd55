"""The mappings and losses as modules."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from . import _functional as F
from . import _losses as L
from ._loss import reduction_of


class _Mapping(nn.Module):
    """A mapping with its arguments; numbers show in the representation, parameters are registered."""

    def __init__(self, function, dim: int, **arguments):
        super().__init__()
        self._function = function
        self.dim = dim
        self._names = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        arguments = {name: getattr(self, name) for name in self._names if name not in _HINTS}
        return self._function(X, dim=self.dim, mask=mask, **arguments)

    def extra_repr(self) -> str:
        shown = {name: getattr(self, name) for name in self._names if not isinstance(getattr(self, name), Tensor)}
        return ", ".join(f"{name}={value}" for name, value in {"dim": self.dim, **shown}.items())


_HINTS = frozenset({"k", "n_iter"})


class Softmax(_Mapping):
    """`softmax` as a module."""

    def __init__(self, dim: int = -1, gamma: float = 1.0):
        super().__init__(F.softmax, dim, gamma=gamma)


class Sparsemax(_Mapping):
    """`sparsemax` as a module."""

    def __init__(self, dim: int = -1, k: int | None = None):
        super().__init__(F.sparsemax, dim, k=k)


class Entmax15(_Mapping):
    """`entmax15` as a module."""

    def __init__(self, dim: int = -1, k: int | None = None):
        super().__init__(F.entmax15, dim, k=k)


class SparsemaxBisect(_Mapping):
    """`sparsemax` as a module; ``n_iter`` is a hint without effect."""

    def __init__(self, dim: int = -1, n_iter: int | None = None):
        super().__init__(F.sparsemax, dim, n_iter=n_iter)


class EntmaxBisect(_Mapping):
    """`entmax` as a module; ``alpha`` may be an ``nn.Parameter`` and learns."""

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, n_iter: int = 50):
        super().__init__(F.entmax, dim, alpha=alpha, n_iter=n_iter)


class NormmaxBisect(_Mapping):
    """`normmax` as a module; ``alpha`` may be an ``nn.Parameter``."""

    def __init__(self, alpha: float | Tensor = 2, dim: int = -1, n_iter: int = 50):
        super().__init__(F.normmax, dim, alpha=alpha, n_iter=n_iter)


class BudgetBisect(_Mapping):
    """`budget` as a module."""

    def __init__(self, budget: float = 2, dim: int = -1, n_iter: int = 50):
        super().__init__(F.budget, dim, budget=budget, n_iter=n_iter)


class Entmax(_Mapping):
    """`entmax` as a module."""

    def __init__(self, alpha: float | Tensor = 1.5, dim: int = -1, gamma: float = 1.0):
        super().__init__(F.entmax, dim, alpha=alpha, gamma=gamma)


class Fusedmax(_Mapping):
    """`fusedmax` as a module; ``lam`` may be an ``nn.Parameter``."""

    def __init__(self, lam: float | Tensor = 0.1, dim: int = -1, gamma: float = 1.0):
        super().__init__(F.fusedmax, dim, lam=lam, gamma=gamma)


class Oscarmax(_Mapping):
    """`oscarmax` as a module; ``lam`` may be an ``nn.Parameter``."""

    def __init__(self, lam: float | Tensor = 0.01, dim: int = -1, exact: bool = True, gamma: float = 1.0):
        super().__init__(F.oscarmax, dim, lam=lam, exact=exact, gamma=gamma)


class SqPnormMax(_Mapping):
    """`sq_pnorm_max` as a module."""

    def __init__(self, p: float | Tensor = 1.5, dim: int = -1, gamma: float = 1.0):
        super().__init__(F.sq_pnorm_max, dim, p=p, gamma=gamma)


class EvSoftmax(nn.Module):
    """ev-softmax: the dense training form with ``eps`` while training, the sparse form in evaluation."""

    def __init__(self, dim: int = -1, eps: float = 1e-6, gamma: float = 1.0):
        super().__init__()
        self.dim, self.eps, self.gamma = dim, eps, gamma

    def forward(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        return F.ev_softmax(X, self.eps if self.training else 0.0, self.dim, gamma=self.gamma, mask=mask)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, eps={self.eps}, gamma={self.gamma}"


class Sparsehourglass(_Mapping):
    """`sparsehourglass` as a module."""

    def __init__(self, q: float = 1.0, dim: int = -1, gamma: float = 1.0):
        super().__init__(F.sparsehourglass, dim, q=q, gamma=gamma)


class AdaptiveEntmax(nn.Module):
    """α-entmax with a learned α per head: ``α = 1 + sigmoid(a)`` (Correia, Niculae & Martins 2019).

    Scores have their heads in ``head_dim``; the parameter ``a`` starts such that α is ``initial_alpha``.
    """

    def __init__(self, num_heads: int, dim: int = -1, head_dim: int = 1, initial_alpha: float = 1.5):
        super().__init__()
        if not 1 < initial_alpha < 2:
            raise ValueError(f"AdaptiveEntmax: initial_alpha must be in (1, 2), got {initial_alpha}")
        self.dim, self.head_dim, self.num_heads = dim, head_dim, num_heads
        self.initial_alpha = initial_alpha
        self.a = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets α to ``initial_alpha`` for all heads."""
        share = self.initial_alpha - 1
        nn.init.constant_(self.a, math.log(share / (1 - share)))

    @property
    def alpha(self) -> Tensor:
        """α of every head, in (1, 2)."""
        return 1 + torch.sigmoid(self.a)

    def forward(self, X: Tensor, mask: Tensor | None = None) -> Tensor:
        shape = [1] * X.ndim
        shape[self.head_dim] = self.num_heads
        return F.entmax(X, self.alpha.view(shape), self.dim, mask=mask)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, dim={self.dim}, head_dim={self.head_dim}"


class _Loss(nn.Module):
    """A loss with its arguments, reduced over the targets that are not ignored."""

    def __init__(self, function, ignore_index: int, reduction: str, **arguments):
        super().__init__()
        reduction_of(type(self).__name__, reduction)
        self._function = function
        self.ignore_index, self.reduction = ignore_index, reduction
        self._names = tuple(arguments)
        for name, value in arguments.items():
            setattr(self, name, value)

    def forward(self, X: Tensor, target: Tensor) -> Tensor:
        arguments = {name: getattr(self, name) for name in self._names if name not in _HINTS}
        return self._function(X, target, ignore_index=self.ignore_index, reduction=self.reduction, **arguments)

    def extra_repr(self) -> str:
        return f"ignore_index={self.ignore_index}, reduction={self.reduction!r}"


class SoftmaxLoss(_Loss):
    """`softmax_loss` as a module."""

    def __init__(self, ignore_index: int = -100, reduction: str = "elementwise_mean"):
        super().__init__(L.softmax_loss, ignore_index, reduction)


class SparsemaxLoss(_Loss):
    """`sparsemax_loss` as a module."""

    def __init__(self, k: int | None = None, ignore_index: int = -100, reduction: str = "elementwise_mean"):
        super().__init__(L.sparsemax_loss, ignore_index, reduction, k=k)


class Entmax15Loss(_Loss):
    """`entmax15_loss` as a module."""

    def __init__(self, k: int | None = 100, ignore_index: int = -100, reduction: str = "elementwise_mean"):
        super().__init__(L.entmax15_loss, ignore_index, reduction, k=k)


class SparsemaxBisectLoss(_Loss):
    """`sparsemax_loss` as a module."""

    def __init__(self, n_iter: int = 50, ignore_index: int = -100, reduction: str = "elementwise_mean"):
        super().__init__(L.sparsemax_loss, ignore_index, reduction, n_iter=n_iter)


class EntmaxBisectLoss(_Loss):
    """`entmax_loss` as a module; ``alpha`` may be an ``nn.Parameter``."""

    def __init__(
        self,
        alpha: float | Tensor = 1.5,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ):
        super().__init__(L.entmax_loss, ignore_index, reduction, alpha=alpha, n_iter=n_iter)


class NormmaxBisectLoss(_Loss):
    """`normmax_loss` as a module; ``alpha`` may be an ``nn.Parameter``."""

    def __init__(
        self,
        alpha: float | Tensor = 2,
        n_iter: int = 50,
        ignore_index: int = -100,
        reduction: str = "elementwise_mean",
    ):
        super().__init__(L.normmax_loss, ignore_index, reduction, alpha=alpha, n_iter=n_iter)
