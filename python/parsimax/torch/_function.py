"""The differentiable mapping, and which way a call takes.

1. Compilers get the operators of `_ops`.
2. Plain CPU tensors without gradient go straight to the native side.
3. Everything else goes through `Map`, which knows backward, forward mode, `torch.func.vmap` and, by the
   formulas of `_formulas`, derivatives of any order.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .. import _table
from . import _call, _device, _formulas
from ._call import FLOATS, _interpreters, _modes, _tracing, is_plain, ordinary
from ._spec import Spec, check_mask, dense, dimension, parameter, scores

_SYMMETRIC_ONLY = frozenset({"oscarmax_approx"})


def evaluate(z: Tensor, param: Tensor | None, mask: Tensor | None, spec: Spec) -> Tensor:
    """Π(z) without a graph, on any device and under any transform."""
    if ordinary() and is_plain(z, param, mask):
        return _call.forward(z.detach(), param, mask, spec)
    if torch.onnx.is_in_onnx_export():
        return _device.forward(z, param, mask, spec)
    return torch.ops.parsimax.forward(z, param, mask, *spec)


class Map(torch.autograd.Function):
    """Π(z) of scores, parameter and mask."""

    @staticmethod
    def forward(z, param, mask, spec):
        return evaluate(z, param, mask, spec)

    @staticmethod
    def setup_context(ctx, inputs, output):
        z, param, mask, ctx.spec = inputs
        ctx.save_for_backward(z, param, mask, output)
        ctx.save_for_forward(z, param, mask, output)

    @staticmethod
    def backward(ctx, v):
        z, param, mask, p = ctx.saved_tensors
        spec, need_z, need_param = ctx.spec, ctx.needs_input_grad[0], ctx.needs_input_grad[1]
        dz = dparam = None
        if not torch.is_grad_enabled() and ordinary() and is_plain(z, p, v, param, mask):
            if need_param:
                dz, dparam = _call.backward(z, p, v, param, mask, spec)
            elif need_z:
                dz = _call.vjp(z, p, v, param, mask, spec)
            return dz if need_z else None, dparam, None, None
        theta = spec.value if param is None else param
        if spec.name in _SYMMETRIC_ONLY:
            dz = Linear.apply(z, p, v, param, mask, spec, False)
            if need_param:
                raise NotImplementedError(f"{spec.name}: no second derivative in {spec.kind.param}")
            return dz, None, None, None
        if need_z:
            dz = _formulas.jacobian(z, p, v, theta, mask, spec).to(z.dtype)
        if need_param:
            slope = _formulas.direction(z, p, theta, mask, spec)
            dparam = (slope * v).sum_to_size(param.shape).to(param.dtype)
        return dz, dparam, None, None

    @staticmethod
    def jvp(ctx, dz, dparam, _mask, _spec):
        z, param, mask, p = ctx.saved_tensors
        spec = ctx.spec
        theta = spec.value if param is None else param
        out = torch.zeros_like(p)
        if dz is not None:
            if spec.name in _SYMMETRIC_ONLY:
                out = out + Linear.apply(z, p, dz, param, mask, spec, True)
            else:
                out = out + _formulas.jacobian(z, p, dz, theta, mask, spec).to(p.dtype)
        if dparam is not None:
            out = out + (_formulas.direction(z, p, theta, mask, spec) * dparam).to(p.dtype)
        return out

    @staticmethod
    def vmap(info, in_dims, z, param, mask, spec):
        from ._ops import batched

        ndim = z.ndim - (in_dims[0] is not None)
        z, param, mask = batched(info, in_dims[:3], (z, param, mask), ndim)
        mask = None if mask is None else mask.expand(z.shape)
        return Map.apply(z, param, mask, spec), 0


# `Map.apply` without its inspection of signatures, which only transforms need: ten times the rest.
_map = super(torch.autograd.Function, Map).apply


class Linear(torch.autograd.Function):
    """``Jᵀv`` (or ``Jv``) natively, for mappings whose Jacobian is constant around almost every z."""

    @staticmethod
    def forward(z, p, v, param, mask, spec, forward_mode):
        return torch.ops.parsimax.vjp(z, p, v, param, mask, *spec, forward_mode)

    @staticmethod
    def setup_context(ctx, inputs, output):
        z, p, _, param, mask, ctx.spec, ctx.forward_mode = inputs
        ctx.save_for_backward(z, p, param, mask)
        ctx.save_for_forward(z, p, param, mask)

    @staticmethod
    def backward(ctx, g):
        z, p, param, mask = ctx.saved_tensors
        return None, None, Linear.apply(z, p, g, param, mask, ctx.spec, not ctx.forward_mode), None, None, None, None

    @staticmethod
    def jvp(ctx, _z, _p, dv, *_):
        z, p, param, mask = ctx.saved_tensors
        return Linear.apply(z, p, dv, param, mask, ctx.spec, ctx.forward_mode)

    @staticmethod
    def vmap(info, in_dims, z, p, v, param, mask, spec, forward_mode):
        from ._ops import batched

        ndim = z.ndim - (in_dims[0] is not None)
        z, p, v, param, mask = batched(info, in_dims[:5], (z, p, v, param, mask), ndim)
        return Linear.apply(z, p.expand(z.shape), v.expand(z.shape), param, mask, spec, forward_mode), 0


# The native mappings of calls with plain numbers, by everything that identifies them.
_fast: dict[tuple, object] = {}
_is_grad_enabled = torch.is_grad_enabled
_is_autocast = torch._C._is_any_autocast_enabled
_empty_like = torch.empty_like
_strided = torch.strided
_floats = FLOATS.get
_get_num_threads = torch.get_num_threads


def apply(name, z, param=None, dim=-1, gamma=1.0, mask=None, out=None):
    """Runs a mapping on a tensor: the body of every function of `parsimax.torch`."""
    if is_compiling():
        return _general(name, z, param, dim, gamma, mask, out)
    if (
        mask is None
        and out is None
        and type(z) is Tensor
        and z.is_cpu
        and (code := _floats(z.dtype)) is not None
        and z.layout is _strided
        and z.is_contiguous()
        and not z.is_neg()
        and not z.is_nested
        and not (z.requires_grad and _is_grad_enabled())
        and type(dim) is int
        and (dim == -1 or dim == z.ndim - 1)
        and (code > 1 or not _is_autocast())  # autocast concerns narrow scores alone
        and _interpreters() is None  # the four lines of `ordinary`, without the call
        and _modes() == 0
        and forward_ad._current_level < 0
        and _tracing() is None
    ):
        try:
            mapping = _fast[name, param, gamma]
        except (KeyError, TypeError):
            return _general(name, z, param, dim, gamma, mask, out)
        count = z.numel()
        if count and z.ndim:
            columns = z.size(-1)
            p = _empty_like(z)
            large = count >= 65536 and _get_num_threads() > 1
            mapping.forward_packed(z.data_ptr(), p.data_ptr(), count // columns, columns, code, large)
            return p
    return _general(name, z, param, dim, gamma, mask, out)


def _general(name, z, param, dim, gamma, mask, out):
    kind = _table.KINDS[name]
    z = scores(kind, z)
    dim = dimension(kind, dim, z.ndim)
    strength = _table.number(gamma, "gamma", kind)
    theta, value = parameter(kind, param, z, dim)
    mask = check_mask(kind, mask, z)
    spec = Spec(name, value, strength, dim)
    if theta is None and not torch.compiler.is_compiling():
        # Checks the numbers, and remembers them for the fast way.
        _remember(name, param, gamma, _table.mapping(kind, value if kind.param else None, strength))
    z = _autocast(z)
    if out is not None:
        return _into(out, z, theta, mask, spec)
    return mapped(z, theta, mask, spec)


def mapped(z: Tensor, theta: Tensor | None, mask: Tensor | None, spec: Spec) -> Tensor:
    """Π(z), differentiable, whoever watches."""
    compiling = torch.compiler.is_compiling()
    if spec.name == "sparsehourglass" and (compiling or z.requires_grad or not ordinary()):
        return hourglass(z, spec.value, mask, spec)
    if compiling:
        if torch.onnx.is_in_onnx_export():  # other runtimes do not have our operators
            return _device.forward(z, theta, mask, spec)
        return torch.ops.parsimax.forward(z, theta, mask, *spec)
    return (_map if ordinary() else Map.apply)(z, theta, mask, spec)


def _remember(name, param, gamma, mapping):
    if len(_fast) >= 512:
        _fast.clear()
    if isinstance(param, int | float | None) and isinstance(gamma, int | float):
        _fast[name, param, gamma] = mapping


def _autocast(z: Tensor) -> Tensor:
    """As softmax does: narrow scores are mapped in single precision where autocast is on."""
    if z.dtype in (torch.float16, torch.bfloat16) and torch.is_autocast_enabled(z.device.type):
        return z.float()
    return z


def _into(out, z, theta, mask, spec):
    kind = spec.kind
    if not isinstance(out, Tensor):
        raise TypeError(f"{kind.name}: out must be a tensor, got {type(out).__name__}")
    dense(kind, "out", out, z.device)
    if out.shape != z.shape:
        raise ValueError(f"{kind.name}: out must have shape {tuple(z.shape)}, got {tuple(out.shape)}")
    if out.dtype != z.dtype:
        raise TypeError(f"{kind.name}: out must have dtype {z.dtype}, got {out.dtype}")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (z, theta, out)):
        raise ValueError(f"{kind.name}: out does not go with gradients; use torch.no_grad()")
    if out.numel() and _reach(out) is None:
        raise ValueError(f"{kind.name}: out must have a place of its own for every entry")
    if z.numel() and ordinary() and is_plain(z, theta, mask, out) and not _overlaps(out, z, mask):
        _call.forward(z.detach(), theta, mask, spec, out)
        torch.autograd.graph.increment_version(out)
        return out
    return out.copy_(evaluate(z, theta, mask, spec))


def _overlaps(out: Tensor, *inputs: Tensor | None) -> bool:
    """Whether a result could not be written while the others are read."""
    low, high = out.data_ptr(), out.data_ptr() + ((_reach(out) or 0) + 1) * out.element_size()
    for t in inputs:
        if t is not None and t.numel():
            span = sum((n - 1) * s for s, n in zip(t.stride(), t.shape, strict=True))
            if t.data_ptr() < high and low < t.data_ptr() + (span + 1) * t.element_size():
                return True
    return False


def _reach(t: Tensor) -> int | None:
    """How far the last entry is from the first; None if entries share a place."""
    steps = sorted((abs(s), n) for s, n in zip(t.stride(), t.shape, strict=True) if n > 1)
    reach = 0
    for step, n in steps:
        if step <= reach:
            return None
        reach += step * (n - 1)
    return reach


def hourglass(z: Tensor, q: float, mask: Tensor | None, spec: Spec) -> Tensor:
    """sparsemax(c·z), c by torch operations: the derivative is not symmetric, the chain rule knows it."""
    dtype, z = z.dtype, z.float() if z.dtype.itemsize < 4 else z
    on = z > -torch.inf if mask is None else mask & (z > -torch.inf)
    x = torch.where(on, z / spec.gamma, torch.zeros_like(z))
    dq = q * on.sum(spec.dim, keepdim=True).to(z.dtype)
    scale = x.sum(spec.dim, keepdim=True).abs() + dq
    c = (1 + dq) / torch.where(scale > 0, scale, torch.full_like(scale, torch.finfo(z.dtype).tiny ** 0.5))
    # The sum of a row with NaN or +inf makes its c so.
    x = torch.where(on, c * x, x.new_full((), -torch.inf))
    return mapped(x, None, None, Spec("sparsemax", float("nan"), 1.0, spec.dim)).to(dtype)
