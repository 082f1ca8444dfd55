"""The mappings in torch operations: for devices without a native kernel, and for export.

Thresholds are found by a fixed number of halvings with sums over rows as the only reductions, so
results are deterministic on every device, nothing waits for the device, and the graph is static.
fusedmax and oscarmax, whose solvers are sequential, visit the CPU.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ._spec import Spec

# Halvings of a bracket no wider than 1024 end below the last bit of double precision.
_STEPS = 64


def forward(z: Tensor, param: Tensor | None, mask: Tensor | None, spec: Spec) -> Tensor:
    """Π(z) with the input policy of the core: masks, -inf, NaN, +inf, empty rows."""
    if z.numel() == 0:
        return torch.empty_like(z)
    x = z if mask is None else z.masked_fill(~mask, -torch.inf)
    x = x.to(_working_dtype(z))
    theta: Tensor | float = spec.value if param is None else param.to(x.dtype)
    takes_part = x != -torch.inf
    count = takes_part.sum(spec.dim, keepdim=True)
    bad = (x.isnan() | (x == torch.inf)).any(spec.dim, keepdim=True)
    # Rows without an answer are solved as rows of zeros and overwritten.
    x = torch.where(bad | (count == 0), torch.zeros_like(x), x)
    on = x > -torch.inf
    top = x.amax(spec.dim, keepdim=True)
    if spec.name not in ("sparsehourglass", "oscarmax_approx"):  # the two that a shift would change
        x = torch.where(on, (x - top) / spec.gamma, x)
    p = _SOLVERS[spec.name](x, on, theta, spec)
    p = torch.where(on, p, torch.zeros_like(p))
    if spec.name != "budget":
        p = p / p.sum(spec.dim, keepdim=True)
    p = torch.where(count == 0, torch.zeros_like(p), p)
    return torch.where(bad, torch.full_like(p, torch.nan), p).to(z.dtype)


def _working_dtype(z: Tensor) -> torch.dtype:
    return torch.float32 if z.device.type == "mps" else torch.float64


def _halve(low: Tensor, high: Tensor, too_low: Callable[[Tensor], Tensor]) -> Tensor:
    """The root of a monotone function in [low, high]; ``too_low`` says whether it is above."""
    for _ in range(_STEPS):
        middle = low + (high - low) / 2
        up = too_low(middle)
        low, high = torch.where(up, middle, low), torch.where(up, high, middle)
    return low


def _total(x: Tensor, spec: Spec) -> Tensor:
    return x.sum(spec.dim, keepdim=True)


def _zero(x: Tensor, spec: Spec) -> Tensor:
    return torch.zeros_like(x.narrow(spec.dim, 0, 1))


def _power(x: Tensor, exponent: Tensor | float) -> Tensor:
    """``[x]₊^exponent``; a negative exponent gives 0 at 0 too."""
    on = x > 0
    return torch.where(on, torch.where(on, x, torch.ones_like(x)).pow(exponent), torch.zeros_like(x))


def _softmax(x: Tensor, on: Tensor, theta: object, spec: Spec) -> Tensor:
    return torch.where(on, x, -torch.inf).softmax(spec.dim)


def _entmax(x: Tensor, on: Tensor, alpha: Tensor | float, spec: Spec) -> Tensor:
    delta = torch.as_tensor(alpha, dtype=x.dtype, device=x.device) - 1
    return torch.where(delta > 1, _anchored(x, on, delta.clamp(min=1), spec), _tsallis(x, on, delta.clamp(max=1), spec))


def _tsallis(x: Tensor, on: Tensor, delta: Tensor, spec: Spec) -> Tensor:
    """α ≤ 2: ``p = exp(log1p(δ(x − t))/δ)`` with t in [0, (1 − d^{−δ})/δ], the log-sum-exp at δ = 0."""
    flat = delta == 0
    safe = torch.where(flat, torch.ones_like(delta), delta)
    x = torch.where(on, x, torch.zeros_like(x))

    def p(t: Tensor) -> Tensor:
        base = 1 + delta * (x - t)
        u = torch.where(flat, x - t, torch.log(base.clamp(min=torch.finfo(x.dtype).tiny)) / safe)
        exact = torch.where(flat, x - t, torch.log1p((delta * (x - t)).clamp(min=-1 + 2**-53)) / safe)
        return torch.where(on & (base > 0), torch.where(base > 0.5, exact, u).exp(), torch.zeros_like(x))

    log_d = torch.log(torch.tensor(float(x.shape[spec.dim]), dtype=x.dtype, device=x.device))
    high = torch.where(flat, log_d, -torch.expm1(-delta * log_d) / safe)
    t = _halve(_zero(x, spec), high + _zero(x, spec), lambda t: _total(p(t), spec) > 1)
    return p(t)


def _anchored(x: Tensor, on: Tensor, delta: Tensor, spec: Spec) -> Tensor:
    """α > 2: the smallest supported entry's own probability w is the unknown; differences are exact."""
    zero = _zero(x, spec)
    x = torch.where(on, x, x.new_tensor(torch.finfo(x.dtype).min / 4))
    mass = lambda a: _total(_power(delta * (x - a), 1 / delta), spec)  # noqa: E731
    edge = _halve(zero - 1 / delta, zero, lambda a: mass(a) >= 1)
    supported = on & ((x > edge) | (x == 0))
    anchor = torch.where(supported, x, zero).amin(spec.dim, keepdim=True)
    gap = torch.where(supported, delta * (x - anchor), torch.zeros_like(x))
    p = lambda w: torch.where(supported, (gap + w.pow(delta)).pow(1 / delta), torch.zeros_like(x))  # noqa: E731
    return p(_halve(zero, zero + 1, lambda w: _total(p(w), spec) < 1))


def _sparsemax(x: Tensor, on: Tensor, theta: object, spec: Spec) -> Tensor:
    return _tsallis(x, on, x.new_ones(()), spec)


def _entmax15(x: Tensor, on: Tensor, theta: object, spec: Spec) -> Tensor:
    return _tsallis(x, on, x.new_tensor(0.5), spec)


def _ev_softmax(x: Tensor, on: Tensor, eps: float, spec: Spec) -> Tensor:
    mean = _total(torch.where(on, x, torch.zeros_like(x)), spec) / on.sum(spec.dim, keepdim=True)
    weight = torch.where((x >= mean) | (x == 0), 1 + eps, eps)
    return torch.where(on, weight * x.exp(), torch.zeros_like(x))


def _sparsehourglass(z: Tensor, on: Tensor, q: float, spec: Spec) -> Tensor:
    x = torch.where(on, z / spec.gamma, torch.zeros_like(z))
    dq = q * on.sum(spec.dim, keepdim=True)
    c = (1 + dq) / (_total(x, spec).abs() + dq).clamp(min=torch.finfo(x.dtype).tiny)
    x = torch.where(on, x - torch.where(on, x, -torch.inf).amax(spec.dim, keepdim=True), x) * c
    return _sparsemax(x, on, None, spec)


def _normmax(x: Tensor, on: Tensor, alpha: Tensor | float, spec: Spec) -> Tensor:
    """``p ∝ [x − τ]₊^{1/(α−1)}`` where ``Σ[x − τ]₊^{α/(α−1)} = 1``."""
    zero = _zero(x, spec)
    tau = _halve(zero - 1, zero, lambda t: _total(_power(x - t, alpha / (alpha - 1)), spec) > 1)
    return _power(x - tau, 1 / (alpha - 1))


def _sq_pnorm_max(x: Tensor, on: Tensor, q: Tensor | float, spec: Spec) -> Tensor:
    """``p ∝ u = [x − τ]₊^{1/(q−1)}`` where ``‖u‖_q^{q−2} Σu = 1``."""
    zero = _zero(x, spec)

    def too_low(t: Tensor) -> Tensor:
        u = _power(x - t, 1 / (q - 1))
        return _total(u.pow(q), spec).pow((q - 2) / q) * _total(u, spec) > 1

    return _power(x - _halve(zero - 1, zero, too_low), 1 / (q - 1))


def _budget(x: Tensor, on: Tensor, budget: float, spec: Spec) -> Tensor:
    goal = on.sum(spec.dim, keepdim=True).clamp(max=budget)
    low = torch.where(on, x, torch.zeros_like(x)).amin(spec.dim, keepdim=True) - 1
    p = lambda t: torch.where(on, (x - t).clamp(0, 1), torch.zeros_like(x))  # noqa: E731
    return p(_halve(low, torch.zeros_like(low), lambda t: _total(p(t), spec) > goal))


def _on_the_cpu(x: Tensor, on: Tensor, theta: Tensor | float, spec: Spec) -> Tensor:
    from . import _call

    there = torch.where(on, x, -torch.inf).cpu()
    param = theta.cpu() if isinstance(theta, Tensor) else None
    gamma = spec.gamma if spec.name == "oscarmax_approx" else 1.0
    return _call.forward(there, param, None, spec._replace(gamma=gamma)).to(x.device)


_SOLVERS = {
    "softmax": _softmax,
    "sparsemax": _sparsemax,
    "entmax15": _entmax15,
    "entmax": _entmax,
    "fusedmax": _on_the_cpu,
    "oscarmax": _on_the_cpu,
    "oscarmax_approx": _on_the_cpu,
    "sq_pnorm_max": _sq_pnorm_max,
    "ev_softmax": _ev_softmax,
    "sparsehourglass": _sparsehourglass,
    "normmax": _normmax,
    "budget": _budget,
}
