"""Multi-head attention with any mapping, in the shape of torch's own."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from . import _functional as F
from . import _tiles
from ._modules import AdaptiveEntmax

_BY_NAME = {
    "softmax": F.softmax,
    "sparsemax": F.sparsemax,
    "entmax15": F.entmax15,
    "entmax": F.entmax,
    "fusedmax": F.fusedmax,
    "oscarmax": F.oscarmax,
    "sq_pnorm_max": F.sq_pnorm_max,
    "ev_softmax": F.ev_softmax,
    "sparsehourglass": F.sparsehourglass,
    "normmax": F.normmax,
}


class MultiheadAttention(nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` whose weights come from ``mapping``.

    ``mapping`` is a name ("softmax", "entmax15", …; "adaptive" learns an α per head), or a callable
    ``f(scores, mask=mask)`` along the last dimension of scores (batch, heads, queries, keys), a module for
    instance. All other arguments, the call and the state dict are torch's, whose weights load as they are.
    Masks are exact: a query whose keys are all masked attends to nothing, and its weights are zeros.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device=None,
        dtype=None,
        *,
        mapping: str | Callable = "entmax15",
    ):
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype
        )
        if isinstance(mapping, str) and mapping != "adaptive" and mapping not in _BY_NAME:
            known = ", ".join([*_BY_NAME, "adaptive"])
            raise ValueError(f"MultiheadAttention: mapping must be one of {known}, or a callable; got {mapping!r}")
        if mapping == "adaptive":
            mapping = AdaptiveEntmax(num_heads).to(device=device, dtype=dtype)
        self.mapping = _BY_NAME[mapping] if isinstance(mapping, str) else mapping

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """As torch's: masks are True where attention is *not* allowed, or floats to add to the scores."""
        if is_causal and attn_mask is None:
            raise RuntimeError("MultiheadAttention: is_causal needs attn_mask")
        batched = query.dim() == 3
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        attn_mask, padding = self._masks(attn_mask, key_padding_mask, query.shape[0], query.shape[1], key.shape[1])
        inputs = (query, key, value)
        if not need_weights and _tiles.suits(self, inputs, (attn_mask, padding)):
            rule = _tiles.rule(self.mapping)
            if rule is not None:
                return self._restored(_tiles.attend(self, inputs, attn_mask, padding, rule), batched), None
        weights, biases = self._projections()
        linear = torch.nn.functional.linear
        q, k, v = (linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))
        bias, allowed = self._combined(attn_mask, None if padding is None else padding[:, None, None, :], q.dtype)
        if self.bias_k is not None:
            k = torch.cat([k, self.bias_k.expand(k.shape[0], 1, -1)], dim=1)
            v = torch.cat([v, self.bias_v.expand(v.shape[0], 1, -1)], dim=1)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
        if self.add_zero_attn:
            k, v = (torch.nn.functional.pad(x, (0, 0, 0, 1)) for x in (k, v))
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
        if bias is not None:
            scores = scores + bias
        weights = self.mapping(scores, mask=allowed)
        dropped = torch.nn.functional.dropout(weights, self.dropout, self.training)
        out = self.out_proj((dropped @ v.to(dropped.dtype)).transpose(1, 2).flatten(2).to(query.dtype))
        out = self._restored(out, batched)
        if not need_weights:
            return out, None
        weights = weights.mean(1) if average_attn_weights else weights
        return out, weights if batched else weights.squeeze(0)

    def _restored(self, out: Tensor, batched: bool) -> Tensor:
        """The result with its dimensions where the caller has them."""
        if not batched:
            return out.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1)

    def _projections(self) -> tuple[tuple[Tensor, ...], tuple[Tensor | None, ...]]:
        """Weights and biases of queries, keys and values."""
        if self._qkv_same_embed_dim:
            weights = self.in_proj_weight.chunk(3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        return weights, (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)

    def _masks(self, attn_mask, padding, batch, queries, keys):
        """The masks, checked; one that differs between heads with a dimension for them."""
        for name, mask in (("attn_mask", attn_mask), ("key_padding_mask", padding)):
            if mask is None:
                continue
            if not isinstance(mask, Tensor) or not (mask.dtype == torch.bool or mask.dtype.is_floating_point):
                got = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
                raise TypeError(f"MultiheadAttention: {name} must be a boolean or floating-point tensor, got {got}")
        if attn_mask is not None:
            wanted = ((queries, keys), (batch * self.num_heads, queries, keys))
            if tuple(attn_mask.shape) not in wanted:
                raise ValueError(
                    f"MultiheadAttention: attn_mask must have shape {wanted[0]} or {wanted[1]}, "
                    f"got {tuple(attn_mask.shape)}"
                )
            if attn_mask.dim() == 3:
                attn_mask = attn_mask.unflatten(0, (batch, self.num_heads))
        if padding is not None and tuple(padding.shape) != (batch, keys):
            raise ValueError(
                f"MultiheadAttention: key_padding_mask must have shape {(batch, keys)}, got {tuple(padding.shape)}"
            )
        return attn_mask, padding

    def _combined(self, attn_mask, padding, dtype):
        """What is added to the scores, and where attention is allowed. Keys that ``add_bias_kv`` and ``add_zero_attn``
        put behind the others are never masked."""
        bias, allowed = None, None
        for mask in (attn_mask, padding):
            if mask is None:
                continue
            if mask.dtype == torch.bool:
                allowed = ~mask if allowed is None else allowed & ~mask
            else:
                bias = mask.to(dtype) if bias is None else bias + mask.to(dtype)
        extra = int(self.bias_k is not None) + int(self.add_zero_attn)
        if extra:
            pad = torch.nn.functional.pad
            bias = None if bias is None else pad(bias, (0, extra))
            allowed = None if allowed is None else pad(allowed, (0, extra), value=True)
        return bias, allowed

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        # Torch's state has no entries for a mapping that learns; it keeps its own.
        if isinstance(self.mapping, nn.Module):
            for name, value in self.mapping.state_dict().items():
                state_dict.setdefault(f"{prefix}mapping.{name}", value)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
