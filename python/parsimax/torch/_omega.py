"""The regularisers Ω in torch operations, and their derivatives in the parameter.

All functions take probabilities ``p`` with the rows along ``spec.dim`` and ``on``, the entries that take
part; they are differentiable in ``p`` and ``theta``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._spec import Spec


def omega(p: Tensor, theta: Tensor | float, on: Tensor, spec: Spec) -> Tensor:
    """Ω(p) of every row, without γ."""
    dim = spec.dim
    if spec.name in ("softmax", "entmax15", "entmax"):
        alpha = {"softmax": 1.0, "entmax15": 1.5}.get(spec.name, theta)
        alpha = torch.as_tensor(alpha, dtype=p.dtype, device=p.device)
        return (p * _excess(_log(p), alpha - 1)).sum(dim, keepdim=True) / alpha
    if spec.name in ("normmax", "sq_pnorm_max"):
        norm = (_log_power_sum(p, theta, dim) / theta).exp()
        return norm if spec.name == "normmax" else norm.square() / 2
    half = p.square().sum(dim, keepdim=True) / 2
    return half if spec.name == "sparsemax" else half + theta * _structure(p, on, spec)


def slope(p: Tensor, theta: Tensor, on: Tensor, spec: Spec) -> Tensor:
    """∂Ω(p)/∂θ of every row, without γ."""
    dim = spec.dim
    if spec.name == "entmax":
        log_p, delta = _log(p), theta - 1
        change = log_p.square() * _psi(delta * log_p)
        excess = _excess(log_p, delta)
        return (p * (change - excess / theta)).sum(dim, keepdim=True) / theta
    if spec.name in ("normmax", "sq_pnorm_max"):
        log_sum = _log_power_sum(p, theta, dim)
        log_p = _log(p)
        share = torch.where(p > 0, (theta * log_p - log_sum).exp(), torch.zeros_like(p))
        log_norm = log_sum / theta
        bend = ((share * log_p).sum(dim, keepdim=True) - log_norm) / theta
        return bend * (log_norm if spec.name == "normmax" else 2 * log_norm).exp()
    return _structure(p, on, spec)


def _log(p: Tensor) -> Tensor:
    return torch.where(p > 0, torch.where(p > 0, p, torch.ones_like(p)).log(), torch.zeros_like(p))


def _excess(log_p: Tensor, delta: Tensor) -> Tensor:
    """``(p^δ − 1)/δ = log p · (eˣ − 1)/x`` at ``x = δ log p``; log p at δ = 0."""
    x = delta * log_p
    return log_p * _series_or(x, 1, lambda far: torch.expm1(far) / far)


def _psi(x: Tensor) -> Tensor:
    """``(x eˣ − eˣ + 1)/x²``, ½ at 0: the derivative of (eˣ−1)/x."""
    return _series_or(x, 2, lambda far: (far * far.exp() - torch.expm1(far)) / far.square())


def _series_or(x: Tensor, k: int, closed) -> Tensor:
    """``Σ xⁿ/(n!(n+k))`` near 0, where the closed form has no digits and no derivative."""
    near = x.abs() < 0.5
    small = torch.where(near, x, torch.zeros_like(x))
    series, term, factorial = torch.zeros_like(x), torch.ones_like(x), 1.0
    for n in range(18):
        series = series + term / (factorial * (n + k))
        term, factorial = term * small, factorial * (n + 1)
    return torch.where(near, series, closed(torch.where(near, torch.ones_like(x), x)))


def _log_power_sum(p: Tensor, theta: Tensor | float, dim: int) -> Tensor:
    """``log Σ p^θ``, by the largest term."""
    logs = torch.where(p > 0, theta * _log(p), torch.full_like(p, -torch.inf))
    top = logs.detach().amax(dim, keepdim=True)
    top = torch.where(top == -torch.inf, torch.zeros_like(top), top)
    total = torch.where(p > 0, (theta * _log(p) - top).exp(), torch.zeros_like(p)).sum(dim, keepdim=True)
    return torch.where(total > 0, total, torch.ones_like(total)).log() + top


def _structure(p: Tensor, on: Tensor, spec: Spec) -> Tensor:
    """``Σ|p_{i+1} − p_i|`` of neighbours that take part, or ``Σ_{i<j} max(p_i, p_j)``."""
    p, on = p.movedim(spec.dim, -1), on.movedim(spec.dim, -1)
    if spec.name == "fusedmax":
        order = (~on).to(torch.uint8).argsort(dim=-1, stable=True)
        p, on = p.gather(-1, order), on.gather(-1, order)
        value = torch.where(on[..., 1:], p.diff(dim=-1).abs(), 0).sum(-1, keepdim=True)
    else:
        p = p.sort(-1, descending=True).values
        count = on.sum(-1, keepdim=True)
        below = (count - 1 - torch.arange(p.shape[-1], device=p.device)).clamp(min=0)
        value = (below.to(p.dtype) * p).sum(-1, keepdim=True)
    return value.movedim(-1, spec.dim)
