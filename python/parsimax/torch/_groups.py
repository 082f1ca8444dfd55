"""Entries of fusedmax and oscarmax that share a value: how they move together.

The Jacobian is constant while the groups last, so the groups carry no gradient. They are read off
the probabilities in double precision, where different groups do not coincide.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ._spec import Spec


class Groups(NamedTuple):
    """The groups of every row, rows along the last dimension."""

    label: Tensor
    """The group of every entry, counted from 0."""
    rank: Tensor
    """Entries before it in descending order (oscarmax)."""
    count: Tensor
    """Entries that take part in the row."""
    rise: Tensor
    """``sign(next group − own) − sign(own − previous group)`` (fusedmax)."""
    spec: Spec

    def mean(self, x: Tensor) -> Tensor:
        """Replaces every entry by the mean of its group."""
        x = x.movedim(self.spec.dim, -1)
        return self._mean(x).movedim(-1, self.spec.dim)

    def _mean(self, x: Tensor) -> Tensor:
        shape = torch.broadcast_shapes(x.shape, self.label.shape)
        label = self.label.expand(shape)
        zero = torch.zeros(shape, dtype=x.dtype, device=x.device)
        size = zero.scatter_add(-1, label, torch.ones_like(zero))
        total = zero.scatter_add(-1, label, x.expand(shape))
        return total.gather(-1, label) / size.gather(-1, label)

    def slope(self) -> Tensor:
        """The derivative in λ of the value of every entry's group, before the projection."""
        if self.spec.name == "fusedmax":
            # Only the ends of a group have neighbours, and their sum is spread over the group.
            slope = self._mean(self.rise)
        else:
            slope = -self._mean((self.count - 1 - self.rank).to(self.rise.dtype))
        return slope.movedim(-1, self.spec.dim)


@torch.no_grad()
def of(z: Tensor, theta: Tensor | float, mask: Tensor | None, spec: Spec) -> Groups:
    """The groups at scores ``z``."""
    from ._function import evaluate

    z = z.detach() if mask is None else z.detach().masked_fill(~mask, -torch.inf)
    z = z.double()
    if isinstance(theta, Tensor):
        theta = theta.detach().double()
        p = evaluate(z, theta, None, spec._replace(value=float("nan"))).movedim(spec.dim, -1)
        pooled = (theta > 0).expand(_with_one(z.shape, spec.dim)).movedim(spec.dim, -1)
    else:
        p = evaluate(z, None, None, spec._replace(value=theta)).movedim(spec.dim, -1)
        pooled = torch.full_like(p[..., :1], theta > 0, dtype=torch.bool)
    z = z.movedim(spec.dim, -1)
    # Entries that take part come first: in their own order, or by descending score.
    key = torch.where(z == -torch.inf, 1, 0) if spec.name == "fusedmax" else -z
    order = key.argsort(dim=-1, stable=True)
    q, x = p.gather(-1, order), z.gather(-1, order)
    step = torch.diff(q, dim=-1)
    apart = ~((step == 0) & pooled)
    first = torch.nn.functional.pad(apart.long(), (1, 0))
    label = first.cumsum(-1)
    alive = x > -torch.inf
    # A masked neighbour is no neighbour.
    sign = torch.where(alive[..., 1:], step.sign(), 0) * apart
    rise = torch.nn.functional.pad(sign, (0, 1)) - torch.nn.functional.pad(sign, (1, 0))
    back = order.argsort(-1)
    rank = back
    count = alive.sum(-1, keepdim=True)
    return Groups(label.gather(-1, back), rank, count, rise.gather(-1, back), spec)


def _with_one(shape: torch.Size, dim: int) -> list[int]:
    shape = list(shape)
    shape[dim] = 1
    return shape
