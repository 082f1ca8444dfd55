"""Derivatives in torch operations, from the probabilities: for devices without a native kernel, for
forward mode, and for derivatives of derivatives.

Each function is differentiable in ``p``, ``v`` and the parameter; ``p`` carries the graph that leads
back to the scores, so any order follows. ``θ`` stands for the parameter, ``S`` for the support.

=====================  =======================================================================
softmax, ev_softmax    ``Jv = s⊙(v − <s,v>/Σs)``, s = p/γ
sparsemax              s = 1_S/γ
entmax15, entmax       s = p^{2−α}/γ
budget                 s = 1{0 < p < 1}/γ
normmax                ``Jv = b − p Σb``, b = N/(γ(α−1))·(p/N)^{2−α}⊙(v − <p,v>), N = ‖p‖_α
sq_pnorm_max           ``J = H⁻¹ − hhᵀ/Σh``, H = γ(D + k uuᵀ) by Sherman–Morrison, h = H⁻¹1
fusedmax, oscarmax     sparsemax's, then the mean over each group that shares a value
=====================  =======================================================================

The derivative in θ is ``∂p/∂θ = −J ∂_θ∇(γΩ)(p)``, or closed forms where that would cancel.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import _groups
from ._spec import Spec


def jacobian(z: Tensor, p: Tensor, v: Tensor, theta: Tensor | float, mask: Tensor | None, spec: Spec) -> Tensor:
    """``Jv = Jᵀv``."""
    p, v = _widen(p), _widen(v)
    theta = theta.to(p.dtype) if isinstance(theta, Tensor) else theta
    if spec.name == "normmax":
        return _normmax(p, v, theta, spec.gamma, spec.dim)
    if spec.name == "sq_pnorm_max":
        return _sq_pnorm(p, v, theta, spec.gamma, spec.dim)
    s = _WEIGHTS.get(spec.name, _indicator)(p, theta) / spec.gamma
    result = _centred(s, v, spec.dim)
    if spec.name in ("fusedmax", "oscarmax"):
        result = _groups.of(z, theta, mask, spec).mean(result)
    return result


def direction(z: Tensor, p: Tensor, theta: Tensor | float, mask: Tensor | None, spec: Spec) -> Tensor:
    """``∂p/∂θ``."""
    p = _widen(p)
    theta = theta.to(p.dtype) if isinstance(theta, Tensor) else torch.tensor(theta, dtype=p.dtype, device=p.device)
    if spec.name == "entmax":
        return _entmax_alpha(p, theta, spec.dim)
    if spec.name in ("fusedmax", "oscarmax"):
        return _centred(_indicator(p, theta), _groups.of(z, theta, mask, spec).slope().to(p.dtype), spec.dim)
    on, safe = p > 0, _safe(p)
    log_p = torch.where(on, safe.log(), 0)
    powers = torch.where(on, safe.pow(theta), 0)
    total = _sum(powers, spec.dim)
    total = torch.where(total > 0, total, 1)
    log_norm = total.log() / theta
    norm_slope = (_sum(powers * log_p, spec.dim) / total - log_norm) / theta
    if spec.name == "normmax":  # ∇Ω = (p/N)^{α−1}
        u = torch.where(on, ((theta - 1) * (safe.log() - log_norm)).exp(), 0)
        slope = u * (log_p - log_norm - (theta - 1) * norm_slope)
    else:  # sq-pnorm-max: ∇Ω = N^{2−q} p^{q−1}
        u = torch.where(on, ((2 - theta) * log_norm + (theta - 1) * safe.log()).exp(), 0)
        slope = u * (log_p - log_norm + (2 - theta) * norm_slope)
    return jacobian(z, p, -spec.gamma * slope, theta, mask, spec)


def _widen(x: Tensor) -> Tensor:
    return x.float() if x.dtype.itemsize < 4 else x


def _safe(p: Tensor) -> Tensor:
    return torch.where(p > 0, p, torch.ones_like(p))


def _sum(x: Tensor, dim: int) -> Tensor:
    return x.sum(dim, keepdim=True)


def _indicator(p: Tensor, _: object) -> Tensor:
    # Times p/p: the result is constant, but a NaN row stays one.
    return torch.where(p > 0, torch.ones_like(p), 0 * p.detach())


def _inside(p: Tensor, _: object) -> Tensor:
    return torch.where((p > 0) & (p < 1), torch.ones_like(p), 0 * p.detach())


def _power(p: Tensor, alpha: Tensor | float) -> Tensor:
    limit = torch.finfo(p.dtype).max ** 0.5
    return torch.where(p > 0, _safe(p).pow(2 - alpha).clamp(max=limit), 0 * p)


_WEIGHTS = {
    "softmax": lambda p, _: p,
    "ev_softmax": lambda p, _: p,
    "entmax15": lambda p, _: _power(p, 1.5),
    "entmax": _power,
    "budget": _inside,
}


def _centred(s: Tensor, v: Tensor, dim: int) -> Tensor:
    """``s⊙(v − <s,v>/Σs)``, with v measured from the heaviest entry's: see the core's separable.rs."""
    if s.shape[dim] == 0:
        return s * v
    origin = v.gather(dim, s.argmax(dim, keepdim=True).expand(_one(v.shape, dim)))
    total = _sum(s, dim)
    # A direction at an entry without weight has no say, not even NaN or infinity.
    v = torch.where(s == 0, torch.zeros_like(v), v - origin)
    mean = _sum(s * v, dim) / torch.where(total == 0, torch.ones_like(total), total)
    return s * (v - mean)


def _one(shape: torch.Size, dim: int) -> list[int]:
    shape = list(shape)
    shape[dim] = 1
    return shape


def _normmax(p: Tensor, v: Tensor, alpha: Tensor | float, gamma: float, dim: int) -> Tensor:
    on, safe = p > 0, _safe(p)
    log_norm = _log_norm(on, safe, alpha, dim)
    weight = torch.where(on, ((2 - alpha) * (safe.log() - log_norm) + log_norm).exp(), 0 * p)
    v = torch.where(on, v, torch.zeros_like(v))
    b = weight / (gamma * (alpha - 1)) * (v - _sum(p * v, dim))
    return b - p * _sum(b, dim)


def _sq_pnorm(p: Tensor, v: Tensor, q: Tensor | float, gamma: float, dim: int) -> Tensor:
    on, safe = p > 0, _safe(p)
    log_norm = _log_norm(on, safe, q, dim)
    inverse = torch.where(on, ((2 - q) * (safe.log() - log_norm)).exp() / (q - 1), 0 * p)
    # k uuᵀ with u = p^{q−1}, k = (2−q) N^{2−2q}; D⁻¹u = p N^{q−2}/(q−1).
    u = torch.where(on, ((q - 1) * (safe.log() - log_norm)).exp(), 0 * p)
    du = inverse * u
    k = (2 - q) / (1 + (2 - q) * _sum(u * du, dim))
    v = torch.where(on, v, torch.zeros_like(v))
    solve = lambda x: inverse * x - k * du * _sum(du * x, dim)  # noqa: E731
    h = solve(torch.where(on, torch.ones_like(p), 0 * p))
    total = _sum(h, dim)
    return (solve(v) - h * _sum(h * v, dim) / torch.where(total == 0, 1, total)) / gamma


def _log_norm(on: Tensor, safe: Tensor, alpha: Tensor | float, dim: int) -> Tensor:
    total = _sum(torch.where(on, safe.pow(alpha), 0 * safe), dim)
    return torch.where(total > 0, total, torch.ones_like(total)).log() / alpha


def _entmax_alpha(p: Tensor, alpha: Tensor, dim: int) -> Tensor:
    """``p/(1+E)·[R − r − δ(ℓR + rH)]``, one formula for every α: mathematics as in the core's entmax.rs."""
    on, delta = p > 0, alpha - 1
    log_p = torch.where(on, _safe(p).log(), 0 * p)
    x = -delta * log_p
    # Numerator and denominator are scaled by e^{−c}, or tiny probabilities under a large α overflow.
    limit = 0.8 * torch.tensor(torch.finfo(p.dtype).max, dtype=p.dtype).log().item()
    if p.shape[dim] == 0:
        return p
    c = (x.detach().amax(dim, keepdim=True) - limit).clamp(min=0)
    r = log_p.square() * _phi2(x, c)
    entropy = -_sum(p * log_p, dim)
    mean = _sum(p * r, dim)
    scale = (1 + delta * entropy) * (-c).exp() + delta.square() * mean
    return p * (mean - r - delta * (log_p * mean + r * entropy)) / scale


def _phi2(x: Tensor, c: Tensor) -> Tensor:
    """``e^{−c}(eˣ − 1 − x)/x²``."""
    near = x.abs() < 0.5
    small = torch.where(near, x, 0 * x)
    series = torch.ones_like(x)
    for n in range(17, 2, -1):
        series = 1 + small * series / n
    far = torch.where(near, torch.ones_like(x), x)
    plain = (torch.expm1(far.clamp(max=1.0)) - far.clamp(max=1.0)) / far.square() * (-c).exp()
    scaled = ((far - c).exp() - (1 + far) * (-c).exp()) / far.square()
    return torch.where(near, 0.5 * series * (-c).exp(), torch.where(x <= 1.0, plain, scaled))
