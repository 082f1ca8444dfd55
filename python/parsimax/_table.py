"""The mappings by name: which parameter each has, its default, and what applies to it.

One line per mapping; the NumPy functions, the torch functions and the tests read it.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from . import _native


class Kind(NamedTuple):
    """What the package knows of a mapping."""

    name: str
    """The Python name."""
    core: str
    """The name in the core's registry."""
    param: str | None = None
    """The parameter, by its Python name."""
    option: str | None = None
    """The parameter, by the core's name."""
    default: float | None = None
    varies: bool = False
    """Whether the parameter may be an array and has a gradient."""
    gamma: bool = True
    """Whether there is a strength γ."""
    loss: bool = True
    """Whether it comes from a regulariser Ω, and so has a Fenchel–Young loss."""


KINDS = {
    kind.name: kind
    for kind in [
        Kind("softmax", "softmax"),
        Kind("sparsemax", "sparsemax"),
        Kind("entmax15", "entmax15"),
        Kind("entmax", "entmax", "alpha", "alpha", 1.5, varies=True),
        Kind("fusedmax", "fusedmax", "lam", "lambda", 0.1, varies=True),
        Kind("oscarmax", "oscarmax", "lam", "lambda", 0.01, varies=True),
        Kind("oscarmax_approx", "oscarmax-approx", "lam", "lambda", 0.01, varies=True, loss=False),
        Kind("sq_pnorm_max", "sq-pnorm-max", "p", "p", 1.5, varies=True),
        Kind("ev_softmax", "ev-softmax", "eps", "eps", 0.0, loss=False),
        Kind("sparsehourglass", "sparsehourglass", "q", "q", 1.0, loss=False),
        Kind("normmax", "normmax", "alpha", "alpha", 2.0, varies=True),
        Kind("budget", "budget", "budget", "budget", 2.0, loss=False),
    ]
}


@lru_cache(maxsize=512)
def mapping(kind: Kind, param: float | None, gamma: float) -> _native.Mapping:
    """The native mapping with one value of its parameter."""
    return _native.Mapping(kind.core, _options(kind, param, gamma))


def _options(kind: Kind, param: float | None, gamma: float) -> list[tuple[str, float]]:
    options = [(kind.option, param)] if kind.option and param is not None else []
    return [*options, ("gamma", gamma)] if kind.gamma else options


class Groups(NamedTuple):
    """A parameter that varies: its values, one after another, in the order of the rows.

    Row ``r`` uses ``values[(r // run) % len(values)]``. ``shape`` is the shape of the parameter
    that ``values`` fills; it broadcasts with the scores.
    """

    values: np.ndarray
    run: int
    shape: tuple[int, ...]

    def mapping(self, kind: Kind, gamma: float) -> _native.Mapping:
        """The native mapping with a value per group of rows."""
        return _native.Mapping(kind.core, _options(kind, None, gamma), kind.option, self.values, self.run)


def groups(param: np.ndarray, kind: Kind, shape: tuple[int, ...], axis: int) -> Groups:
    """Spreads a parameter over the rows of scores of a shape; ``axis`` is not negative."""
    own = (1,) * (len(shape) - param.ndim) + param.shape
    if len(own) != len(shape) or own[axis] != 1 or any(n not in (1, m) for n, m in zip(own, shape, strict=True)):
        wanted = (*shape[:axis], 1, *shape[axis + 1 :])
        raise ValueError(
            f"{kind.name}: {kind.param} must be a number or broadcast to {wanted} "
            f"(size 1 along the axis), got shape {tuple(param.shape)}"
        )
    outer = [(n, m) for i, (n, m) in enumerate(zip(own, shape, strict=True)) if i != axis]
    wide = [i for i, (n, _) in enumerate(outer) if n > 1]
    first, last = (wide[0], wide[-1]) if wide else (0, -1)
    if all(n == m for n, m in outer[first : last + 1]):
        run = 1
        for _, m in outer[last + 1 :]:
            run *= m
        return Groups(np.ascontiguousarray(param, dtype=np.float64).reshape(-1), max(run, 1), own)
    full = (*shape[:axis], 1, *shape[axis + 1 :])
    values = np.broadcast_to(param.reshape(own), full).astype(np.float64).reshape(-1)
    return Groups(values, 1, full)


def integer(value: object, name: str, kind: Kind) -> int:
    """A Python integer of 64 bits, or an error that names the argument."""
    try:
        index = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{kind.name}: {name} must be an integer, got {type(value).__name__}") from None
    if not -(1 << 63) <= index < 1 << 63:
        raise ValueError(f"{kind.name}: {name} must be an integer of 64 bits, got {index}")
    return index


def number(value: object, name: str, kind: Kind) -> float:
    """A Python number, or an error that names the argument."""
    if isinstance(value, bool | str | bytes | complex):
        raise TypeError(f"{kind.name}: {name} must be a number, got {type(value).__name__}")
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(f"{kind.name}: {name} must be a number, got {type(value).__name__}") from None
