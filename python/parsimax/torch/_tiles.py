"""Attention without a gradient and without its weights: head by head, and natively where the core has a kernel.

Nothing it takes grows with the product of queries and keys: the core never writes scores to memory, and mappings
that it does not know see a few queries at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from .. import _table
from . import _functional as F
from ._call import describe, is_plain, ordinary, threads
from ._function import apply
from ._modules import AdaptiveEntmax, EvSoftmax, _Mapping

# Scores that are worth it, and scores that are written out at a time.
WORTH = 1 << 16
TILE = 1 << 15

_NAMES = {getattr(F, name): name for name in _table.KINDS if hasattr(F, name)}


def rule(mapping: object) -> Callable[[int], tuple] | None:
    """Name, parameter and strength of the mapping of a head; None if that does not describe it."""
    if mapping in _NAMES:
        kind = _table.KINDS[_NAMES[mapping]]
        return lambda head: (kind.name, kind.default, 1.0)
    if isinstance(mapping, AdaptiveEntmax) and (mapping.dim, mapping.head_dim) == (-1, 1):
        alphas = mapping.alpha.detach().double().tolist()
        return lambda head: ("entmax", alphas[head], 1.0)
    if isinstance(mapping, EvSoftmax) and mapping.dim == -1:
        return lambda head: ("ev_softmax", mapping.eps if mapping.training else 0.0, mapping.gamma)
    if isinstance(mapping, _Mapping) and mapping.dim == -1 and mapping._function in _NAMES:
        name = _NAMES[mapping._function]
        if name == "oscarmax" and not mapping.exact:
            name = "oscarmax_approx"
        kind = _table.KINDS[name]
        param = None if kind.param is None else getattr(mapping, kind.param, kind.default)
        if isinstance(param, int | float | None):
            return lambda head: (name, param, getattr(mapping, "gamma", 1.0))
    return None


def suits(layer: nn.MultiheadAttention, inputs: tuple[Tensor, ...], masks: tuple[Tensor | None, ...]) -> bool:
    """Whether a call of an attention layer, whose inputs are (batch, rows, width), may and should go this way."""
    if torch.compiler.is_compiling() or not ordinary() or (layer.training and layer.dropout > 0):
        return False
    query, key = inputs[:2]
    tensors = (*inputs, *layer.parameters())
    if not is_plain(*tensors, *masks) or torch.is_autocast_enabled("cpu"):
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return False
    scores = query.shape[0] * layer.num_heads * query.shape[1] * key.shape[1]
    return scores >= WORTH and all(t.dtype == query.dtype for t in tensors)


def attend(layer, inputs, attn_mask: Tensor | None, padding: Tensor | None, rule_of: Callable[[int], tuple]) -> Tensor:
    """The result for (batch, rows, width) inputs. Masks fit, and have a dimension of heads where they have three."""
    query, key, value = inputs
    batch, queries, width = query.shape[0], query.shape[1], layer.head_dim
    out = query.new_empty(batch, queries, layer.embed_dim)
    out.copy_(out.new_zeros(()) if layer.out_proj.bias is None else layer.out_proj.bias)
    weights, biases = layer._projections()
    for head in range(layer.num_heads):
        own = slice(head * width, (head + 1) * width)
        wq, wk, wv = (w[own] for w in weights)
        bq, bk, bv = (None if b is None else b[own] for b in biases)
        k, v = linear(key, wk, bk), linear(value, wv, bv)
        if layer.bias_k is not None:
            k = torch.cat([k, layer.bias_k[..., own].expand(batch, 1, -1)], dim=1)
            v = torch.cat([v, layer.bias_v[..., own].expand(batch, 1, -1)], dim=1)
        if layer.add_zero_attn:
            k, v = pad(k, (0, 0, 0, 1)), pad(v, (0, 0, 0, 1))
        native = _kernel(rule_of(head), query, attn_mask, padding)
        rows = queries if native and attn_mask is None else max(1, TILE * (4 if native else 1) // (batch * k.shape[1]))
        onto = layer.out_proj.weight[:, own].t()
        for first in range(0, queries, rows):
            tile = slice(first, first + rows)
            q = linear(query[:, tile], wq, bq)
            bias, allowed = _masks(layer, attn_mask, padding, head, tile, q.dtype)
            mixed = _native(native, q, k, v, allowed) if native else _plain(rule_of(head), q, k, v, bias, allowed)
            for there, part in zip(out[:, tile], mixed, strict=True):
                there.addmm_(part, onto)
    return out


def _kernel(rule: tuple, query: Tensor, attn_mask: Tensor | None, padding: Tensor | None):
    """The native mapping, where the core has attention with it: in single precision, and nothing is added to scores."""
    name, param, gamma = rule
    known = name in ("softmax", "sparsemax", "entmax15") or (name == "ev_softmax" and param == 0)
    known = known or (name == "entmax" and 1 <= param <= 16)
    adds = any(mask is not None and mask.dtype != torch.bool for mask in (attn_mask, padding))
    if not known or adds or query.dtype != torch.float32 or not 1e-6 <= gamma <= 1e6:
        return None
    return _table.mapping(_table.KINDS[name], param, float(gamma))


def _masks(layer, attn_mask, padding, head, tile, dtype):
    """What is added to the scores of some queries of a head, and which keys take part, both (batch or 1, …, keys)."""
    if attn_mask is not None:
        attn_mask = attn_mask[tile].unsqueeze(0) if attn_mask.dim() == 2 else attn_mask[:, head, tile]
    return layer._combined(attn_mask, None if padding is None else padding.unsqueeze(1), dtype)


def _native(mapping, q, k, v, allowed) -> Tensor:
    out = torch.empty_like(q)
    mask = None if allowed is None else allowed.contiguous()
    arrays = (describe(t.contiguous()) for t in (q, k, v))
    mapping.attention(*arrays, describe(out), 1 / math.sqrt(q.shape[-1]), describe(mask), threads())
    return out


def _plain(rule, q, k, v, bias, allowed) -> Tensor:
    name, param, gamma = rule
    scores = torch.bmm(q / math.sqrt(q.shape[-1]), k.transpose(1, 2))
    if bias is not None:
        scores += bias
    mask = None if allowed is None else allowed.expand_as(scores)
    return torch.bmm(apply(name, scores, param, -1, gamma, mask), v)
