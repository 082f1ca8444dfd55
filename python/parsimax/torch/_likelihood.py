"""The likelihood of ev-softmax on tensors: natively on the CPU, by torch operations elsewhere and under transforms."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .. import _table
from ._call import is_plain, ordinary
from ._loss import check_target, classes_of, dense, divisor, natively, reduce, settled, tilt
from ._spec import Spec, check_mask


def likelihood(
    X,
    target,
    eps,
    *,
    dim=None,
    gamma=1.0,
    mask=None,
    ignore_index=-100,
    reduction="none",
    label_smoothing=0.0,
    weight=None,
) -> Tensor:
    """``−Σ y log p`` for ``p ∝ (1{z ≥ mean z} + eps)·exp(z/γ)``; the weights are constants for the gradient."""
    kind = _table.KINDS["ev_softmax"]
    z, dim = classes_of(kind, X, dim)
    strength, eps = _table.number(gamma, "gamma", kind), _table.number(eps, "eps", kind)
    if not torch.compiler.is_compiling():
        _table.mapping(kind, eps, strength)
    mask = check_mask(kind, mask, z)
    settings = settled(kind, reduction, ignore_index, label_smoothing, weight, z, dim)
    spec = Spec(kind.name, eps, strength, dim)
    check_target(kind, target, z, dim, ignore_index)
    if not torch.compiler.is_compiling() and ordinary() and is_plain(z, mask, target):
        return Native.apply(z, mask, target, spec, settings)
    return by_operations(z, mask, target, spec, settings)


class Native(torch.autograd.Function):
    """Loss and gradient of plain CPU tensors in one native sweep."""

    @staticmethod
    def forward(ctx, z, mask, target, spec, settings):
        ctx.save_for_backward(z, mask, target)
        ctx.spec, ctx.settings = spec, settings
        found = natively(z.detach(), None, mask, target, spec, settings, ctx.needs_input_grad[0])
        if found is None:  # a score is NaN or +inf
            found = by_operations(z.detach(), mask, target, spec, settings), None
        value, ctx.gradient = found
        return value

    @staticmethod
    def backward(ctx, g):
        z, mask, target = ctx.saved_tensors
        create, dz = torch.is_grad_enabled(), None
        if not create and ordinary() and is_plain(g):
            # The first backward takes the gradient that forward left; a second one sweeps again.
            dz, ctx.gradient = ctx.gradient, None
            if dz is None:
                dz = (natively(z.detach(), None, mask, target, ctx.spec, ctx.settings, True) or (None, None))[1]
        if dz is None:
            with torch.enable_grad():
                leaf = z if create else z.detach().requires_grad_()
                value = by_operations(leaf, mask, target, ctx.spec, ctx.settings)
                (dz,) = torch.autograd.grad(value, leaf, g, create_graph=create)
        elif g.ndim == 0 and ctx.settings.reduction != "none":
            if g.item() != 1:
                dz.mul_(g)
        else:
            dz.mul_(g.unsqueeze(ctx.spec.dim))
        return dz, None, None, None, None


def by_operations(z: Tensor, mask: Tensor | None, target: Tensor, spec: Spec, settings) -> Tensor:
    """The loss in torch operations, differentiable."""
    dim = spec.dim
    soft = target.dtype.is_floating_point or target.dtype == torch.bool
    y, counts = dense(target, z, dim, settings.ignore_index, soft)
    over = divisor(target, y, counts, spec, settings)
    wide = z.float() if z.dtype.itemsize < 4 else z
    # What does not count may hold anything.
    wide = torch.where(counts, wide, torch.zeros_like(wide))
    on = wide > -torch.inf if mask is None else mask & (wide > -torch.inf)
    y, share = tilt(y.to(wide.dtype), on, spec, settings)
    value = values(wide, on, y, spec)
    if share is not None:
        # A row of weight 0 has no loss, not even an infinite one.
        counts, value = counts & (share > 0), share * torch.where(share > 0, value, 0)
    return reduce(torch.where(counts, value, torch.zeros_like(value)).to(z.dtype), over, spec, settings)


def values(z: Tensor, on: Tensor, y: Tensor, spec: Spec) -> Tensor:
    """The loss of every row, keeping the dimension."""
    dim = spec.dim
    log_p = log_probabilities(z, on, spec)
    value = -(y * torch.where((y > 0) & on, log_p, torch.zeros_like(log_p))).sum(dim, keepdim=True)
    lost = ((y > 0) & ~on).any(dim, keepdim=True)
    value = torch.where(lost, torch.full_like(value, torch.inf), value)
    return torch.where((z.isnan() & on).any(dim, keepdim=True), torch.full_like(value, torch.nan), value)


def log_probabilities(z: Tensor, on: Tensor, spec: Spec) -> Tensor:
    """``log p`` where entries take part; other entries hold nothing of use."""
    dim = spec.dim
    some = on.any(dim, keepdim=True)
    fixed = torch.where(on, z, torch.zeros_like(z)).detach()
    mean = fixed.sum(dim, keepdim=True) / on.sum(dim, keepdim=True).clamp(min=1)
    top = torch.where(on, z, -torch.inf).detach().amax(dim, keepdim=True)
    # A rounded mean may exceed every entry; the largest ones are always in the support.
    inside = (fixed >= mean) | (fixed == top)
    outside = math.log(spec.value) if spec.value > 0 else -math.inf
    logits = z / spec.gamma + torch.where(inside, torch.full_like(z, math.log1p(spec.value)), outside)
    logits = torch.where(on, logits, torch.where(some, -torch.inf, torch.zeros_like(logits)))
    return logits - logits.logsumexp(dim, keepdim=True)
