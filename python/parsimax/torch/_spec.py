"""How a call is described: which mapping, its constants, and where its rows lie."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .._table import KINDS, Kind, number


class Spec(NamedTuple):
    """A mapping without its tensors. ``dim`` is negative, so that batch dimensions may be put in front."""

    name: str
    value: float
    """The parameter where it is a number; NaN where the mapping has none or it is a tensor."""
    gamma: float
    dim: int

    @property
    def kind(self) -> Kind:
        return KINDS[self.name]


def scores(kind: Kind, z: object) -> Tensor:
    """A floating-point tensor; integers become the default dtype."""
    if not isinstance(z, Tensor):
        raise TypeError(f"{kind.name}: the scores must be a tensor, got {type(z).__name__}")
    dense(kind, "the scores", z)
    if z.dtype.is_floating_point:
        if z.dtype.itemsize < 2:
            raise TypeError(f"{kind.name}: the scores must be float16, bfloat16, float32 or float64, got {z.dtype}")
        return z
    if z.dtype.is_complex or z.dtype == torch.bool:
        raise TypeError(f"{kind.name}: the scores must hold real numbers, got {z.dtype}")
    return z.to(torch.get_default_dtype())


def dense(kind: Kind, name: str, t: Tensor, device: torch.device | None = None) -> None:
    """Checks that a tensor is no sparse, nested or quantised one, and where it is."""
    if t.layout is not torch.strided or t.is_nested or t.is_quantized:
        what = "a nested tensor" if t.is_nested else "a quantised tensor" if t.is_quantized else f"layout {t.layout}"
        raise TypeError(f"{kind.name}: {name} must be a dense tensor, got {what}")
    # A number may be anywhere that has one.
    if device is not None and t.device != device and (t.ndim > 0 or t.is_meta):
        raise ValueError(f"{kind.name}: {name} must be on the device of the scores, {device}, got {t.device}")


def dimension(kind: Kind, dim: object, ndim: int) -> int:
    """The dimension, counted from the end."""
    if isinstance(dim, bool) or not isinstance(dim, int | torch.SymInt):
        raise TypeError(f"{kind.name}: dim must be an integer, got {type(dim).__name__}")
    if ndim == 0:
        raise ValueError(f"{kind.name}: the scores must have at least one dimension, got a single number")
    if not -ndim <= dim < ndim:
        raise ValueError(f"{kind.name}: dim must be between {-ndim} and {ndim - 1}, got {dim}")
    return dim if dim < 0 else dim - ndim


def parameter(kind: Kind, param: object, z: Tensor, dim: int) -> tuple[Tensor | None, float]:
    """A parameter as a tensor that broadcasts with the scores, or as a number."""
    if kind.param is None:
        return None, float("nan")
    if isinstance(param, Tensor):
        if param.dtype.is_complex or param.dtype == torch.bool:
            raise TypeError(f"{kind.name}: {kind.param} must hold real numbers, got {param.dtype}")
        dense(kind, kind.param, param, z.device)
        if not kind.varies:
            return None, number(param, kind.param, kind)
        own = (1,) * (z.ndim - param.ndim) + tuple(param.shape)
        fits = len(own) == z.ndim and all(n == 1 or n == m for n, m in zip(own, z.shape, strict=True))
        if not fits or own[dim] != 1:
            wanted = list(z.shape)
            wanted[dim] = 1
            raise ValueError(
                f"{kind.name}: {kind.param} must be a number or broadcast to {tuple(wanted)} "
                f"(size 1 in dim), got shape {tuple(param.shape)}"
            )
        return param, float("nan")
    return None, number(param, kind.param, kind)


def check_mask(kind: Kind, mask: object, z: Tensor) -> Tensor | None:
    """A boolean tensor that broadcasts to the scores."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{kind.name}: mask must be a boolean tensor (True = takes part), got {got}")
    dense(kind, "mask", mask, z.device)
    own = (1,) * (z.ndim - mask.ndim) + tuple(mask.shape)
    if len(own) != z.ndim or any(n != 1 and n != m for n, m in zip(own, z.shape, strict=True)):
        raise ValueError(f"{kind.name}: mask must broadcast to shape {tuple(z.shape)}, got {tuple(mask.shape)}")
    return mask.expand(z.shape)
