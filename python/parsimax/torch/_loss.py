"""Fenchel–Young losses on tensors: ``L(z; y) = γΩ(y) + max_Ω(z) − <z, y>``.

The gradient in the scores is Π(z) − y, in the parameter γ(∂Ω(y) − ∂Ω(p))/∂θ. `Fused` computes value and
gradient natively in one sweep; `Value` is the same in torch operations, on any device and under any
transform. Both are differentiable to any order: the probabilities in the gradient carry a graph.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .. import _table
from . import _call, _omega
from ._call import describe, is_plain, ordinary, threads
from ._function import _autocast, mapped
from ._spec import Spec, check_mask, dimension, parameter, scores
from ._spec import dense as check_dense


class Settings(NamedTuple):
    """How rows become the result."""

    reduction: str
    ignore_index: int
    label_smoothing: float = 0.0
    weight: Tensor | None = None


REDUCTIONS = {"none": "none", "sum": "sum", "mean": "mean", "elementwise_mean": "mean"}


def reduction_of(name: str, reduction: object) -> str:
    """The reduction, in either spelling."""
    if not isinstance(reduction, str) or reduction not in REDUCTIONS:
        wanted = "'elementwise_mean', 'mean', 'sum' or 'none'"
        raise ValueError(f"{name}_loss: reduction must be {wanted}, got {reduction!r}")
    return REDUCTIONS[reduction]


def loss(
    name,
    X,
    target,
    param=None,
    *,
    dim=None,
    gamma=1.0,
    mask=None,
    ignore_index=-100,
    reduction="none",
    label_smoothing=0.0,
    weight=None,
):
    """The body of every loss."""
    kind = _table.KINDS[name]
    z, dim = classes_of(kind, X, dim)
    strength = _table.number(gamma, "gamma", kind)
    theta, value = parameter(kind, param, z, dim)
    mask = check_mask(kind, mask, z)
    settings = settled(kind, reduction, ignore_index, label_smoothing, weight, z, dim)
    spec = Spec(name, value, strength, dim)
    if theta is None and not torch.compiler.is_compiling():
        _table.mapping(kind, value if kind.param else None, strength)
    soft = check_target(kind, target, z, dim, ignore_index)
    if not torch.compiler.is_compiling() and ordinary() and is_plain(z, theta, mask, target):
        return Fused.apply(z, theta, mask, target, spec, settings)
    y, counts = dense(target, z, dim, ignore_index, soft)
    over = divisor(target, y, counts, spec, settings)
    return reduce(rows(z, theta, mask, y, counts, spec, settings), over, spec, settings)


def classes_of(kind, X: object, dim: int | None) -> tuple[Tensor, int]:
    """The scores, and the dimension of the classes: 1 where there is such a one, as for cross_entropy."""
    z = _autocast(scores(kind, X))
    return z, dimension(kind, (1 if z.ndim > 1 else 0) if dim is None else dim, z.ndim)


def settled(kind, reduction, ignore_index: object, smoothing: object, weight: object, z: Tensor, dim: int) -> Settings:
    """The settings, checked."""
    name, classes = kind.name, z.shape[dim]
    ignore_index = _table.integer(ignore_index, "ignore_index", kind)
    if not isinstance(smoothing, (int, float)) or not 0 <= smoothing < 1:
        raise ValueError(f"{name}_loss: label_smoothing must be a number in [0, 1), got {smoothing!r}")
    reduction = reduction_of(name, reduction)
    if weight is None:
        return Settings(reduction, ignore_index, float(smoothing))
    if not isinstance(weight, Tensor) or not weight.dtype.is_floating_point:
        raise TypeError(f"{name}_loss: weight must be a floating-point tensor, got {type(weight).__name__}")
    check_dense(kind, "weight", weight, z.device)
    if tuple(weight.shape) != (classes,):
        raise ValueError(f"{name}_loss: weight must have shape ({classes},), got {tuple(weight.shape)}")
    if not torch.compiler.is_compiling() and not bool(((weight >= 0) & weight.isfinite()).all()):
        raise ValueError(f"{name}_loss: weight must hold finite numbers ≥ 0")
    return Settings(reduction, ignore_index, float(smoothing), weight.detach())


def along(weight: Tensor, z: Tensor, dim: int) -> Tensor:
    """Class weights, ready to be multiplied with scores."""
    return weight.to(z.dtype).view(-1, *(1,) * (-dim - 1))


def tilt(y: Tensor, on: Tensor, spec, settings) -> tuple[Tensor, Tensor | None]:
    """Smoothed and weighted targets, ``w ⊙ y / W``, and the weights ``W = <w, y>`` of the rows (None: all 1)."""
    if settings.label_smoothing:
        share = settings.label_smoothing / on.sum(spec.dim, keepdim=True).clamp(min=1).to(y.dtype)
        y = (1 - settings.label_smoothing) * y + share * on
    if settings.weight is None:
        return y, None
    tilted = along(settings.weight, y, spec.dim) * y
    total = tilted.sum(spec.dim, keepdim=True)
    return torch.where(total > 0, tilted / torch.where(total > 0, total, 1), y), total


def divisor(target: Tensor, y: Tensor, counts: Tensor, spec, settings) -> Tensor | None:
    """What a mean divides by: rows, or the weights of their labels, as for torch's cross_entropy."""
    if settings.reduction != "mean":
        return None
    if settings.weight is None or target.dtype.is_floating_point:
        return counts.sum()
    return (along(settings.weight, y, spec.dim) * y).sum()


def check_target(kind, target: object, z: Tensor, dim: int, ignore: int) -> bool:
    """Whether targets are soft: of the scores' shape. Classes have one dimension less."""
    name = f"{kind.name}_loss"
    if not isinstance(target, Tensor):
        raise TypeError(f"{name}: target must be a tensor, got {type(target).__name__}")
    check_dense(kind, "target", target, z.device)
    rows = list(z.shape)
    del rows[dim]
    soft = target.dtype.is_floating_point or target.dtype == torch.bool
    if tuple(target.shape) != (tuple(z.shape) if soft else tuple(rows)) or target.dtype.is_complex:
        raise ValueError(
            f"{name}: target must be integer classes of shape {tuple(rows)}, or distributions or booleans of shape "
            f"{tuple(z.shape)}; got {target.dtype} of shape {tuple(target.shape)}"
        )
    return soft


def dense(target: Tensor, z: Tensor, dim: int, ignore: int, soft: bool) -> tuple[Tensor, Tensor]:
    """Targets as distributions, and which rows count (keeping ``dim``)."""
    if soft:
        y = target.to(z.dtype)
        if target.dtype == torch.bool:
            y = y / y.sum(dim, keepdim=True)
        return y, torch.ones_like(z.narrow(dim, 0, 1), dtype=torch.bool)
    target = target.long().unsqueeze(dim)
    counts = target != ignore
    classes = torch.arange(z.shape[dim], device=z.device).view(-1, *(1,) * (-dim - 1))
    return ((classes == target) & counts).to(z.dtype), counts


def rows(z, theta, mask, y, counts, spec, settings) -> Tensor:
    """The loss of every row (keeping ``dim``), in torch operations."""
    wide = z.float() if z.dtype.itemsize < 4 else z
    # What does not count may hold anything.
    wide = torch.where(counts, wide, torch.zeros_like(wide))
    p = mapped(wide, theta, mask, spec)
    on = wide > -torch.inf if mask is None else mask & (wide > -torch.inf)
    parameter = spec.value if theta is None else theta.to(wide.dtype)
    y, weight = tilt(y.to(wide.dtype), on, spec, settings)
    if torch.compiler.is_compiling():
        # One derivative is all that compilers ask for.
        value = value_of(wide.detach(), p.detach(), y, _detached(parameter), on, spec)
        step = torch.where(on, wide, 0) - torch.where(on, wide, 0).detach()
        value = value + ((p.detach() - y) * step).sum(spec.dim, keepdim=True)
        if theta is not None:
            value = value + spec.gamma * slopes(p.detach(), y, parameter.detach(), on, spec) * (
                parameter - parameter.detach()
            )
    else:
        value = Value.apply(wide, p, y, parameter, on, spec)
    if weight is not None:
        # A row of weight 0 has no loss, not even an infinite one.
        counts, value = counts & (weight > 0), weight * torch.where(weight > 0, value, 0)
    return torch.where(counts, value, torch.zeros_like(value)).to(z.dtype)


def _detached(x):
    return x.detach() if isinstance(x, Tensor) else x


def value_of(z, p, y, theta, on, spec) -> Tensor:
    """``<z − max z, p − y> + γ(Ω(y) − Ω(p))``: nothing large cancels."""
    dim = spec.dim
    safe = torch.where(on, z, torch.full_like(z, -torch.inf))
    top = safe.amax(dim, keepdim=True)
    gap = torch.where(on & (p != y), z - top, torch.zeros_like(z))
    linear = (gap * (p - y)).sum(dim, keepdim=True)
    value = linear + spec.gamma * (_omega.omega(y, theta, on, spec) - _omega.omega(p, theta, on, spec))
    lost = ((y > 0) & ~on).any(dim, keepdim=True)
    value = torch.where(lost, torch.full_like(value, torch.inf), value.clamp(min=0))
    return torch.where(p.isnan().any(dim, keepdim=True), torch.full_like(value, torch.nan), value)


def slopes(p, y, theta, on, spec) -> Tensor:
    return _omega.slope(y, theta, on, spec) - _omega.slope(p, theta, on, spec)


class Value(torch.autograd.Function):
    """The loss of rows whose probabilities are known. Its derivative in them is 0: they are optimal."""

    generate_vmap_rule = True

    @staticmethod
    def forward(z, p, y, theta, on, spec):
        return value_of(z, p, y, theta, on, spec)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, p, y, theta, on, ctx.spec = inputs
        ctx.theta = None if isinstance(theta, Tensor) else theta
        ctx.save_for_backward(p, y, theta if isinstance(theta, Tensor) else None, on)
        ctx.save_for_forward(p, y, theta if isinstance(theta, Tensor) else None, on)

    @staticmethod
    def backward(ctx, g):
        p, y, theta, on = ctx.saved_tensors
        lost = ((y > 0) & ~on).any(ctx.spec.dim, keepdim=True)
        dz = g * torch.where(on & ~lost, p - y, torch.zeros_like(p))
        dtheta = None
        if theta is not None and ctx.needs_input_grad[3]:
            change = torch.where(lost, torch.zeros_like(g), ctx.spec.gamma * slopes(p, y, theta, on, ctx.spec))
            dtheta = (g * change).sum_to_size(theta.shape)
        return dz, None, None, dtheta, None, None

    @staticmethod
    def jvp(ctx, dz, _p, _y, dtheta, _on, _spec):
        p, y, theta, on = ctx.saved_tensors
        lost = ((y > 0) & ~on).any(ctx.spec.dim, keepdim=True)
        out = torch.zeros_like(p.sum(ctx.spec.dim, keepdim=True))
        if dz is not None:
            step = torch.where(on & ~lost, dz, torch.zeros_like(dz))
            out = out + ((p - y) * step).sum(ctx.spec.dim, keepdim=True)
        if theta is not None and dtheta is not None:
            out = out + torch.where(lost, 0, ctx.spec.gamma * slopes(p, y, theta, on, ctx.spec) * dtheta)
        return out


def reduce(values: Tensor, over: Tensor | None, spec, settings) -> Tensor:
    """Rows to the result; a mean over nothing is 0."""
    if settings.reduction == "none":
        return values.squeeze(spec.dim)
    total = values.sum()
    return total if over is None else total / torch.where(over > 0, over, 1)


class Fused(torch.autograd.Function):
    """Loss and gradient of plain CPU tensors in one native sweep, reduction included."""

    @staticmethod
    def forward(ctx, z, theta, mask, target, spec, settings):
        ctx.save_for_backward(z, theta, mask, target)
        ctx.spec, ctx.settings = spec, settings
        value, ctx.gradient = sweep(z, theta, mask, target, spec, settings, ctx.needs_input_grad[0])
        return value

    @staticmethod
    def backward(ctx, g):
        z, theta, mask, target = ctx.saved_tensors
        spec, settings = ctx.spec, ctx.settings
        need_z, need_theta = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled() or not (ordinary() and is_plain(g)):
            return *derivatives(z, theta, mask, target, spec, settings, g, need_z, need_theta), None, None, None, None
        dz = dtheta = None
        if need_z:
            # The first backward takes the gradient that forward left; a second one sweeps again.
            dz, ctx.gradient = ctx.gradient, None
            if dz is None:
                _, dz = sweep(z, theta, mask, target, spec, settings, True)
            if g.ndim == 0 and settings.reduction != "none":
                if g.item() != 1:
                    dz.mul_(g)
            else:
                dz.mul_(g.unsqueeze(spec.dim))
        if need_theta:
            _, dtheta = derivatives(z, theta, mask, target, spec, settings, g, False, True)
        return dz, dtheta, None, None, None, None


def natively(z, theta, mask, target, spec, settings, with_gradient) -> tuple[Tensor, Tensor | None] | None:
    """The result, and the gradient of its sum; None if a score that takes part is NaN or +inf."""
    mapping, _ = _call.native(spec, theta, z.shape)
    gradient = torch.empty_like(z, memory_format=torch.contiguous_format) if with_gradient else None
    if target.dtype.is_floating_point:
        target = target.to(z.dtype)
        wanted = ("soft", describe(target))
    elif target.dtype == torch.bool:
        wanted = ("labels", describe(target))
    else:
        wanted = ("classes", target.reshape(-1).long().numpy())
    values = mapping.loss(
        describe(z),
        wanted,
        describe(gradient),
        spec.dim,
        describe(mask),
        settings.reduction,
        settings.ignore_index,
        settings.label_smoothing,
        None if settings.weight is None else settings.weight.double().tolist(),
        threads(),
    )
    if values is None:
        return None
    shape = list(z.shape)
    del shape[spec.dim]
    return torch.from_numpy(values).reshape(shape if settings.reduction == "none" else ()).to(z.dtype), gradient


def sweep(z, theta, mask, target, spec, settings, with_gradient) -> tuple[Tensor, Tensor | None]:
    """The same; rows with NaN or +inf are NaN, the others what they are."""
    z, theta = z.detach(), _detached(theta)
    found = natively(z, theta, mask, target, spec, settings, with_gradient)
    if found is not None:
        return found
    soft = target.dtype.is_floating_point or target.dtype == torch.bool
    y, counts = dense(target, z, spec.dim, settings.ignore_index, soft)
    over = divisor(target, y, counts, spec, settings)
    value = reduce(rows(z, theta, mask, y, counts, spec, settings), over, spec, settings)
    return value, derivatives(z, theta, mask, target, spec, settings, torch.ones_like(value), with_gradient, False)[0]


def derivatives(z, theta, mask, target, spec, settings, g, need_z, need_theta):
    """``g·(p − y)`` and ``g·γ∂(Ω(y) − Ω(p))/∂θ``, differentiable."""
    soft = target.dtype.is_floating_point or target.dtype == torch.bool
    y, counts = dense(target, z, spec.dim, settings.ignore_index, soft)
    wide = z.float() if z.dtype.itemsize < 4 else z
    wide = torch.where(counts, wide, torch.zeros_like(wide))
    p = mapped(wide, theta, mask, spec)
    on = wide > -torch.inf if mask is None else mask & (wide > -torch.inf)
    over = divisor(target, y, counts, spec, settings)
    y, weight = tilt(y.to(wide.dtype), on, spec, settings)
    keep = counts & ~((y > 0) & ~on).any(spec.dim, keepdim=True)
    if settings.reduction == "none":
        g = g.unsqueeze(spec.dim)
    elif over is not None:
        g = g / torch.where(over > 0, over, 1)
    if weight is not None:
        g, keep = g * weight, keep & (weight > 0)
    g = torch.where(keep, g, torch.zeros_like(g))
    dz = dtheta = None
    if need_z:
        bad = p.isnan()
        dz = (g * torch.where((on & keep) | bad, p - y, torch.zeros_like(p))).to(z.dtype)
    if need_theta:
        change = spec.gamma * slopes(p, y, theta.to(wide.dtype), on, spec)
        dtheta = (g * change).sum_to_size(theta.shape).to(theta.dtype)
    return dz, dtheta
