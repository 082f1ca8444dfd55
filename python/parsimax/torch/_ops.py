"""The operators that compilers see: forward, both derivatives and the losses, with fake and autograd
registrations.

Eager code does not come here: `_function` calls the native side directly.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _call, _device, _formulas
from ._spec import Spec


@torch.library.custom_op("parsimax::forward", mutates_args=())
def forward(
    z: Tensor, param: Tensor | None, mask: Tensor | None, name: str, value: float, gamma: float, dim: int
) -> Tensor:
    """Π(z)."""
    spec = Spec(name, value, gamma, dim)
    if _call.is_plain(z, param, mask):
        return _call.forward(z, param, mask, spec)
    return _device.forward(z, param, mask, spec)


@torch.library.custom_op("parsimax::vjp", mutates_args=())
def vjp(
    z: Tensor,
    p: Tensor,
    v: Tensor,
    param: Tensor | None,
    mask: Tensor | None,
    name: str,
    value: float,
    gamma: float,
    dim: int,
    forward_mode: bool,
) -> Tensor:
    """Jᵀv; Jv in forward mode."""
    spec = Spec(name, value, gamma, dim)
    if _call.is_plain(z, p, v, param, mask):
        return _call.vjp(z, p, v, param, mask, spec, forward_mode)
    if name == "oscarmax_approx":  # known to the native side alone
        there = [None if t is None else t.cpu() for t in (z, p, v, param, mask)]
        return _call.vjp(*there, spec, forward_mode).to(p.device)
    theta = value if param is None else param
    return _formulas.jacobian(z, p, v, theta, mask, spec).to(p.dtype)


@torch.library.custom_op("parsimax::parameter_vjp", mutates_args=())
def parameter_vjp(
    z: Tensor, p: Tensor, v: Tensor, param: Tensor, mask: Tensor | None, name: str, gamma: float, dim: int
) -> Tensor:
    """The gradient of <v, Π(z)> in the parameter."""
    spec = Spec(name, float("nan"), gamma, dim)
    if _call.is_plain(z, p, v, param, mask):
        return _call.parameter_vjp(z, p, v, param, mask, spec)
    slope = _formulas.direction(z, p, param, mask, spec)
    return (slope * v).sum_to_size(param.shape).to(param.dtype)


@forward.register_fake
def _(z, param, mask, name, value, gamma, dim):
    return torch.empty_like(z)


@vjp.register_fake
def _(z, p, v, param, mask, name, value, gamma, dim, forward_mode):
    return torch.empty_like(p)


@parameter_vjp.register_fake
def _(z, p, v, param, mask, name, gamma, dim):
    return torch.empty_like(param)


def _setup(ctx, inputs, output):
    z, param, mask, *spec = inputs
    ctx.save_for_backward(z, param, mask, output)
    ctx.spec = spec


def _backward(ctx, v):
    z, param, mask, p = ctx.saved_tensors
    name, value, gamma, dim = ctx.spec
    dz = dparam = None
    if ctx.needs_input_grad[0]:
        dz = vjp(z, p, v, param, mask, name, value, gamma, dim, False)
    if ctx.needs_input_grad[1]:
        dparam = parameter_vjp(z, p, v, param, mask, name, gamma, dim)
    return dz, dparam, None, None, None, None, None


forward.register_autograd(_backward, setup_context=_setup)


def batched(info, in_dims, tensors, ndim):
    """Tensors with their batch dimension in front and ``ndim`` dimensions behind it."""
    out = []
    for t, d in zip(tensors, in_dims, strict=True):
        if t is not None and d is not None:
            t = t.movedim(d, 0)
            t = t.reshape(t.shape[0], *(1,) * (ndim + 1 - t.ndim), *t.shape[1:])
        out.append(t)
    z, d = out[0], in_dims[0]
    if d is None:
        out[0] = z.expand(info.batch_size, *z.shape)
    return out


@forward.register_vmap
def _(info, in_dims, z, param, mask, name, value, gamma, dim):
    ndim = z.ndim - (in_dims[0] is not None)
    z, param, mask = batched(info, in_dims[:3], (z, param, mask), ndim)
    mask = None if mask is None else mask.expand(z.shape)
    return forward(z, param, mask, name, value, gamma, dim), 0


@vjp.register_vmap
def _(info, in_dims, z, p, v, param, mask, name, value, gamma, dim, forward_mode):
    ndim = z.ndim - (in_dims[0] is not None)
    z, p, v, param, mask = batched(info, in_dims[:5], (z, p, v, param, mask), ndim)
    p, v = p.expand(z.shape), v.expand(z.shape)
    mask = None if mask is None else mask.expand(z.shape)
    return vjp(z, p, v, param, mask, name, value, gamma, dim, forward_mode), 0
