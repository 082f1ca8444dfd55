"""Arguments of the NumPy functions, checked and brought into the form the native side reads."""

from __future__ import annotations

import operator
from typing import NamedTuple

import numpy as np

from ._table import KINDS, Groups, Kind, groups, mapping, number


class Scores(NamedTuple):
    """Scores that the core can read, and the dtype that the caller gets back."""

    z: np.ndarray
    """f16, f32, f64, or uint16 with the bits of bfloat16; aligned and in native byte order."""
    dtype: np.dtype
    axis: int


def scores(kind: Kind, z: object, axis: object) -> Scores:
    """Checks scores and axis. Integers become float64, long doubles too; bool is no score."""
    array = real(kind, "z", z)
    if array.ndim == 0:
        raise ValueError(f"{kind.name}: z must have at least one axis, got a single number")
    return Scores(bits(array), array.dtype, check_axis(kind, axis, array.ndim))


def real(kind: Kind, name: str, value: object) -> np.ndarray:
    """An array of a floating-point type that the core knows."""
    if type(value) is not np.ndarray:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{kind.name}: {name} must not be a masked array; pass mask=~{name}.mask")
        value = array_of(kind, name, value)
    dtype = value.dtype
    if dtype.kind in "iu" or (dtype.kind == "f" and (dtype.itemsize > 8 or not dtype.isnative)):
        target = np.float64 if dtype.kind in "iu" or dtype.itemsize > 8 else dtype.newbyteorder("=")
        value = value.astype(target)
    elif dtype.kind != "f" and dtype.name != "bfloat16":
        raise TypeError(f"{kind.name}: {name} must hold real numbers, got dtype {dtype}")
    return value if value.flags.aligned else value.copy()


def array_of(kind: Kind, name: str, value: object) -> np.ndarray:
    """The value as an array, or an error that names the argument."""
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{kind.name}: {name} must be an array: {error}") from None


def bits(array: np.ndarray) -> np.ndarray:
    """The array; bfloat16 as uint16, under which name the native side knows it."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def check_axis(kind: Kind, axis: object, ndim: int) -> int:
    """The axis, counted from the front."""
    try:
        index = operator.index(axis)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{kind.name}: axis must be an integer, got {type(axis).__name__}") from None
    if not -ndim <= index < ndim:
        raise ValueError(f"{kind.name}: axis must be between {-ndim} and {ndim - 1}, got {index}")
    return index % ndim


def check_mask(kind: Kind, mask: object, shape: tuple[int, ...]) -> np.ndarray | None:
    """The mask, broadcast to the scores without a copy."""
    if mask is None:
        return None
    array = array_of(kind, "mask", mask)
    if array.dtype != np.bool_:
        raise TypeError(f"{kind.name}: mask must be boolean (True = takes part), got dtype {array.dtype}")
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ValueError(f"{kind.name}: mask must broadcast to shape {shape}, got shape {array.shape}") from None


def check_out(kind: Kind, out: object, like: np.ndarray) -> np.ndarray:
    """The caller's buffer, or a new one."""
    if out is None:
        return np.empty_like(like, subok=False)
    if not isinstance(out, np.ndarray):
        raise TypeError(f"{kind.name}: out must be a NumPy array, got {type(out).__name__}")
    if out.shape != like.shape:
        raise ValueError(f"{kind.name}: out must have shape {like.shape}, got {out.shape}")
    if out.dtype != like.dtype:
        raise TypeError(f"{kind.name}: out must have dtype {like.dtype}, got {out.dtype}")
    if not out.flags.writeable:
        raise ValueError(f"{kind.name}: out must be writable")
    return out


def parameter(kind: Kind, value: object, shape: tuple[int, ...], axis: int) -> float | Groups | None:
    """A number as it is; an array spread over the rows."""
    if kind.param is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if kind.varies:
        array = real(kind, kind.param, value)
        if array.ndim > 0:
            return groups(array.astype(np.float64), kind, shape, axis)
        value = array[()]
    return number(value, kind.param, kind)


def native(kind: Kind, param: object, gamma: object, at: Scores):
    """The native mapping for these arguments."""
    strength = number(gamma, "gamma", kind) if kind.gamma else 1.0
    value = parameter(kind, param, at.z.shape, at.axis)
    if isinstance(value, Groups):
        # Rows that do not exist have no parameter to speak of.
        return value.mapping(kind, strength) if value.values.size else mapping(kind, kind.default, strength)
    return mapping(kind, value, strength)


def apply(
    name: str,
    z: object,
    param: object = None,
    axis: object = -1,
    gamma: object = 1.0,
    mask: object = None,
    out: object = None,
) -> np.ndarray:
    """Runs a mapping: the body of every function of `parsimax`."""
    kind = KINDS[name]
    at = scores(kind, z, axis)
    built = native(kind, param, gamma, at)
    mask = check_mask(kind, mask, at.z.shape)
    given = check_out(kind, out, at.z if at.z.dtype == at.dtype else at.z.view(at.dtype))
    p = given
    if out is not None and (
        not p.flags.aligned or np.may_share_memory(p, at.z) or (mask is not None and np.may_share_memory(p, mask))
    ):
        p = np.empty_like(given, order="C")
    built.forward(at.z, bits(p), at.axis, mask)
    if p is not given:
        given[...] = p
    return given
