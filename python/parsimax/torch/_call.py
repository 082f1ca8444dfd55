"""Calls of the native side with the memory of plain CPU tensors: no copy, no dispatcher."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _native, _table
from ._spec import Spec

FLOATS = {torch.float16: 0, torch.bfloat16: 1, torch.float32: 2, torch.float64: 3}
CODES = {**FLOATS, torch.bool: 4}

_functorch = torch._C._functorch
_interpreters = _functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_tracing = torch._C._get_tracing_state
_is_batched = _functorch.is_legacy_batchedtensor


def ordinary() -> bool:
    """Whether tensors are what they seem: nobody traces, transforms or intercepts."""
    return _interpreters() is None and _modes() == 0 and forward_ad._current_level < 0 and _tracing() is None


def is_plain(*tensors: Tensor | None) -> bool:
    """Whether all tensors have memory that the native side can read."""
    for t in tensors:
        if t is not None and not (
            type(t) in _PLAIN and t.is_cpu and t.layout is torch.strided and not t.is_neg() and not _is_batched(t)
        ):
            return False
    return True


_PLAIN = (Tensor, torch.nn.Parameter)


def describe(t: Tensor | None) -> tuple | None:
    """What the native side needs to know of a tensor."""
    return None if t is None else (t.data_ptr(), CODES[t.dtype], tuple(t.shape), t.stride())


def threads() -> bool:
    return torch.get_num_threads() > 1


def native(spec: Spec, param: Tensor | None, shape: torch.Size) -> tuple[_native.Mapping, tuple[int, ...] | None]:
    """The native mapping, and the shape of its parameter's gradient."""
    if param is None:
        return _table.mapping(spec.kind, spec.value if spec.kind.param else None, spec.gamma), None
    values = param.detach().to(torch.float64).cpu().numpy()
    grouped = _table.groups(values, spec.kind, tuple(shape), spec.dim % len(shape))
    if not grouped.values.size:
        return _table.mapping(spec.kind, spec.kind.default, spec.gamma), grouped.shape
    return grouped.mapping(spec.kind, spec.gamma), grouped.shape


def forward(z: Tensor, param: Tensor | None, mask: Tensor | None, spec: Spec, out: Tensor | None = None) -> Tensor:
    """Π(z)."""
    mapping, _ = native(spec, param, z.shape)
    if out is None:
        out = torch.empty_like(z)
    mapping.forward(describe(z), describe(out), spec.dim, describe(mask), threads())
    return out


def vjp(
    z: Tensor, p: Tensor, v: Tensor, param: Tensor | None, mask: Tensor | None, spec: Spec, forward_mode: bool = False
) -> Tensor:
    """Jᵀv, or Jv in forward mode."""
    mapping, _ = native(spec, param, z.shape)
    out = torch.empty_like(p)
    v = v.to(z.dtype)
    mapping.vjp(describe(z), describe(p), describe(v), describe(out), spec.dim, describe(mask), forward_mode, threads())
    return out


def backward(
    z: Tensor, p: Tensor, v: Tensor, param: Tensor, mask: Tensor | None, spec: Spec
) -> tuple[Tensor, Tensor]:
    """Jᵀv and the gradient of <v, Π(z)> in the parameter, of its shape and dtype, in one sweep."""
    out = torch.empty_like(p)
    if z.numel() == 0:
        return out, torch.zeros_like(param)
    mapping, shape = native(spec, param, z.shape)
    arrays = describe(z), describe(p), describe(v.to(z.dtype))
    gradient = mapping.parameter_vjp(*arrays, spec.dim, describe(mask), threads(), describe(out))
    return out, torch.from_numpy(gradient).reshape(shape).sum_to_size(param.shape).to(param.dtype)


def parameter_vjp(z: Tensor, p: Tensor, v: Tensor, param: Tensor, mask: Tensor | None, spec: Spec) -> Tensor:
    """The gradient in the parameter alone. The sweep that also finds Jᵀv is the fast one."""
    return backward(z, p, v, param, mask, spec)[1]
