"""Fenchel–Young losses on NumPy arrays.

For a mapping Π with regulariser Ω, ``L(z; y) = γΩ(y) + max_Ω(z) − <z, y> ≥ 0``: convex, with gradient
``Π(z) − y``, and 0 exactly where Π(z) = y. It is the cross-entropy for softmax, the sparsemax and entmax
losses for theirs.

Common to all functions:

- ``target``: integer classes, of the shape of ``z`` without ``axis``; or soft targets, floating-point
  distributions of the shape of ``z``; or sets of labels, as booleans of the shape of ``z`` or as a
  sequence with a collection of labels per row (the target is uniform over the set).
- ``reduction``: ``"none"`` (a value per row), ``"sum"``, or ``"mean"`` over the rows that are not ignored.
- ``ignore_index``: rows of this class have loss 0 and gradient 0, and do not count.
- ``label_smoothing`` moves that share of every target to the uniform distribution; ``weight`` holds a
  weight per class.
- ``return_grad=True`` gives ``(loss, gradient)``, the gradient of the sum of the result.
- ``gamma``, ``mask``, NaN: as for the mappings. A target on a masked entry has loss ``inf``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from ._arrays import Scores, bits, check_mask, native, real, scores
from ._table import KINDS, Kind, integer, number


def softmax_loss(z, target, axis=-1, **options):
    """The Fenchel–Young loss of softmax: cross-entropy minus the entropy of the target."""
    return loss("softmax", z, target, None, axis, **options)


def sparsemax_loss(z, target, axis=-1, **options):
    """The sparsemax loss (Martins & Astudillo 2016): 0 from a margin of γ on.

    >>> sparsemax_loss([[1.0, 0.8]], [1]).round(3)
    array([0.36])
    """
    return loss("sparsemax", z, target, None, axis, **options)


def entmax15_loss(z, target, axis=-1, **options):
    """The 1.5-entmax loss (Peters, Niculae & Martins 2019): 0 from a margin of 2γ on."""
    return loss("entmax15", z, target, None, axis, **options)


def entmax_loss(z, target, alpha=1.5, axis=-1, **options):
    """The α-entmax loss: 0 from a margin of γ/(α−1) on. ``alpha`` as for `parsimax.entmax`."""
    return loss("entmax", z, target, alpha, axis, **options)


def fusedmax_loss(z, target, lam=0.1, axis=-1, **options):
    """The Fenchel–Young loss of `parsimax.fusedmax`."""
    return loss("fusedmax", z, target, lam, axis, **options)


def oscarmax_loss(z, target, lam=0.01, axis=-1, **options):
    """The Fenchel–Young loss of `parsimax.oscarmax`."""
    return loss("oscarmax", z, target, lam, axis, **options)


def sq_pnorm_max_loss(z, target, p=1.5, axis=-1, **options):
    """The Fenchel–Young loss of `parsimax.sq_pnorm_max`."""
    return loss("sq_pnorm_max", z, target, p, axis, **options)


def normmax_loss(z, target, alpha=2.0, axis=-1, **options):
    """The Fenchel–Young loss of `parsimax.normmax`."""
    return loss("normmax", z, target, alpha, axis, **options)


def ev_softmax_loss(z, target, eps=1e-6, axis=-1, **options):
    """The negative log-likelihood of ev-softmax in its training form, weights ``1{z ≥ mean z} + eps``.

    ev-softmax has no regulariser, so this is no Fenchel–Young loss; its gradient is (p − y)/γ all the same. At
    ``eps=0`` a target outside the support has loss ``inf``, and the gradient is the limit (Chen et al. 2021).
    """
    return loss("ev_softmax", z, target, eps, axis, **options)


def loss(
    name: str,
    z: object,
    target: object,
    param: object,
    axis: object,
    *,
    gamma: object = 1.0,
    mask: object = None,
    reduction: str = "none",
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    weight: object = None,
    return_grad: bool = False,
) -> Any:
    """The body of every loss: checks, the native call, and the dtype of the result."""
    kind = KINDS[name]
    at = scores(kind, z, axis)
    mapping = native(kind, param, gamma, at)
    mask = check_mask(kind, mask, at.z.shape)
    wanted = targets(kind, target, at)
    if reduction not in ("none", "sum", "mean"):
        raise ValueError(f"{name}_loss: reduction must be 'none', 'sum' or 'mean', got {reduction!r}")
    smoothing = number(label_smoothing, "label_smoothing", kind)
    weights = None if weight is None else class_weights(kind, weight)
    gradient = np.empty(at.z.shape, at.dtype) if return_grad else None
    ignore = integer(ignore_index, "ignore_index", kind)

    def call(array: np.ndarray) -> np.ndarray | None:
        out = None if gradient is None else bits(gradient)
        return mapping.loss(array, wanted, out, at.axis, mask, reduction, ignore, smoothing, weights)

    values = call(at.z)
    if values is None:
        values = spoilt(call, at, wanted, mask, reduction, ignore, gradient)
    shape = at.z.shape[: at.axis] + at.z.shape[at.axis + 1 :] if reduction == "none" else ()
    result = values.reshape(shape).astype(at.dtype)
    result = result if reduction == "none" else result[()]
    return (result, gradient) if return_grad else result


def class_weights(kind: Kind, weight: object) -> list[float]:
    """A weight per class; how many there must be, the native side knows."""
    array = real(kind, "weight", weight)
    if array.ndim != 1:
        raise ValueError(f"{kind.name}_loss: weight must hold a number per class, got shape {array.shape}")
    return array.astype(np.float64).tolist()


def spoilt(call, at: Scores, wanted, mask, reduction, ignore, gradient) -> np.ndarray:
    """The loss where scores are NaN or +inf: their rows are NaN, the others what they are."""
    plain = at.z.view(at.dtype)
    bad = np.isnan(plain) | (plain == np.inf)
    bad = bad if mask is None else bad & mask
    rows = bad.any(axis=at.axis, keepdims=True)
    if wanted[0] == "classes":
        rows &= np.expand_dims((wanted[1] != ignore).reshape(np.squeeze(rows, at.axis).shape), at.axis)
    values = call(bits(np.where(rows, np.zeros_like(plain), plain)))
    if gradient is not None:
        np.copyto(gradient, np.nan, where=rows)
    if reduction != "none":
        return np.full(1, np.nan)
    values[rows.ravel()] = np.nan
    return values


def targets(kind: Kind, target: object, at: Scores) -> tuple[str, Any]:
    """What kind of target it is, in the form that the native side reads."""
    rows = at.z.shape[: at.axis] + at.z.shape[at.axis + 1 :]
    if isinstance(target, Sequence) and any(isinstance(labels, Set) for labels in target):
        return sets(kind, target, rows)
    try:
        array = np.asarray(target)
    except ValueError:  # ragged
        return sets(kind, target, rows)
    if array.dtype.kind in "iu" and array.shape == rows:
        return "classes", np.ascontiguousarray(array, dtype=np.int64).ravel()
    if array.dtype == np.bool_ and array.shape == at.z.shape:
        if not array.any(axis=at.axis).all():
            raise ValueError(f"{kind.name}_loss: target must hold at least one label in every row")
        return "labels", array
    if (array.dtype.kind == "f" or array.dtype.name == "bfloat16") and array.shape == at.z.shape:
        return "soft", bits(real(kind, "target", array.astype(at.dtype, copy=False)))
    if isinstance(target, Sequence) and array.dtype.kind in "iu" and len(rows) == 1 and len(array) == rows[0]:
        return sets(kind, target, rows)
    raise ValueError(
        f"{kind.name}_loss: target must be integer classes of shape {rows}, a distribution or booleans of shape "
        f"{at.z.shape}, or a collection of labels per row; got {array.dtype} of shape {array.shape}"
    )


def sets(kind: Kind, target: Any, rows: tuple[int, ...]) -> tuple[str, list[list[int]]]:
    """A set of labels per row."""
    count = int(np.prod(rows, dtype=np.int64))
    if len(target) != count:
        raise ValueError(f"{kind.name}_loss: target must hold one set of labels per row ({count}), got {len(target)}")
    try:
        found = [sorted(operator.index(label) for label in labels) for labels in target]
    except TypeError:
        raise TypeError(f"{kind.name}_loss: target must hold sets of integer labels") from None
    if any(labels and not 0 <= labels[0] <= labels[-1] < 1 << 63 for labels in found):
        raise ValueError(f"{kind.name}_loss: target must hold sets of labels, which are classes from 0 on")
    return "sets", found
