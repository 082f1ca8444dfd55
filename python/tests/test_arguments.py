"""Arguments that are wrong: a ValueError or TypeError that names them, never another exception and never a number."""

import numpy as np
import pytest

import parsimax
from parsimax._table import KINDS

torch = pytest.importorskip("torch")
import parsimax.torch as pt  # noqa: E402

NAMES = [name for name in KINDS if name != "oscarmax_approx"]
LOSSES = [name for name in NAMES if hasattr(parsimax, f"{name}_loss")]
Z = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
T = torch.from_numpy(Z)
ON = torch.ones(3, 4, dtype=torch.bool)
BAD_NUMBERS = (0, -1, float("nan"), float("inf"), "x", None, 1j)
OUT_OF_RANGE = {
    "alpha": (0, -1, float("nan"), float("inf")),
    "lam": (-1, float("nan"), float("inf")),
    "p": (1, 2.5, 0, float("nan")),
    "eps": (-1, 2, float("nan")),
    "q": (-1, float("nan"), float("inf")),
    "budget": (0, -1, float("nan"), float("inf")),
}


def refuses(word, function, *arguments, **options):
    with pytest.raises((TypeError, ValueError), match=word):
        function(*arguments, **options)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_functions_name_what_is_wrong(name):
    f, kind = getattr(parsimax, name), KINDS[name]
    for z in (Z + 0j, np.array([[None, 1]], object), "abc", None, Z > 0, [[1, 2], [3]], 1.0, np.zeros(3, "f4,f4")):
        refuses(r"\bz\b", f, z)
    for axis in (2, -3, 1.0, None, (0, 1), "x", 10**30):
        refuses("axis", f, Z, axis=axis)
    for mask in (np.ones((3, 4), int), np.ones((4, 3), bool), np.ones((2, 3, 4), bool), "x", [[True], [1, 2]]):
        refuses("mask", f, Z, mask=mask)
    fixed = np.empty((3, 4), np.float32)
    fixed.flags.writeable = False
    shared = np.lib.stride_tricks.as_strided(np.zeros(10, np.float32), (3, 4), (4, 4))
    for out in (np.empty((4, 3), np.float32), np.empty((3, 4)), np.empty((3, 4), int), [1], fixed, shared):
        refuses("out", f, Z, out=out)
    for gamma in (*BAD_NUMBERS, [1.0, 2.0], True):
        refuses("gamma", f, Z, gamma=gamma)
    if kind.param:
        shapes = [np.ones(shape) for shape in ((3, 4), (3, 2), (2, 1), (2, 3, 1), 4)]
        for value in (*OUT_OF_RANGE[kind.param], "x", None, 1j, True, object(), np.array(["a"]), *shapes):
            refuses(rf"\b{kind.param}\b", f, Z, **{kind.param: value})


@pytest.mark.parametrize("name", NAMES)
def test_torch_functions_name_what_is_wrong(name):
    f, kind = getattr(pt, name), KINDS[name]
    f(T)  # the short way is open from now on
    nested = torch.nested.nested_tensor([T[0], T[1, :2]])
    for z in (T + 0j, T > 0, Z, [1.0], None, T[0, 0], T.to_sparse(), T.to_sparse_csr(), nested):
        refuses("scores", f, z)
    for dim in (2, -3, 1.0, None, "x", True):
        refuses("dim", f, T, dim=dim)
    for mask in (T.int(), Z > 0, ON.t(), ON.to_sparse(), ON.to("meta")):
        refuses("mask", f, T, mask=mask)
    empty = torch.empty(3, 4)
    for out in (
        empty.t(),
        empty.double(),
        empty.numpy(),
        empty.to_sparse(),
        empty.to("meta"),
        empty[:1, :1].expand(3, 4),
    ):
        refuses("out", f, T, out=out)
    refuses("out", f, T.clone().requires_grad_(), out=empty)
    for gamma in (*BAD_NUMBERS, torch.ones(2)):
        refuses("gamma", f, T, gamma=gamma)
    if kind.param:
        for value in (
            *OUT_OF_RANGE[kind.param],
            "x",
            None,
            1j,
            torch.ones(3, 4),
            torch.ones(2, 1),
            Z,
            torch.tensor(1j),
        ):
            refuses(rf"\b{kind.param}\b", f, T, **{kind.param: value})
    if kind.varies:
        wrong = torch.tensor([[1.5], [-1.0], [1.2]])
        for value in (wrong, wrong.clone().requires_grad_(), torch.full((3, 1), 1.5).to_sparse(), wrong.to("meta")):
            refuses(rf"\b{kind.param}\b", f, T, **{kind.param: value})


@pytest.mark.parametrize("name", LOSSES)
def test_numpy_losses_name_what_is_wrong(name):
    f, y, soft = getattr(parsimax, f"{name}_loss"), [0, 1, 2], np.full((3, 4), 0.25, np.float32)
    for target in (
        [0, 1, 4],
        [0, 1, -1],
        [0.0, 1.0, 2.0],
        [0, 1],
        None,
        "abc",
        soft + 0j,
        -soft,
        soft * np.nan,
        2 * soft,
    ):
        refuses("target|class|distribution", f, Z, target)
    for target in (
        np.zeros((3, 4), bool),
        [{0}, {1}, set()],
        [{0}, {1}, {9}],
        [{0}, {1}, {-1}],
        [{0}, {1}, {"a"}],
        [{0}],
    ):
        refuses("target|label|set", f, Z, target)
    for reduction in ("avg", None, []):
        refuses("reduction", f, Z, y, reduction=reduction)
    for smoothing in (1.5, -0.1, float("nan"), "a"):
        refuses("label_smoothing", f, Z, y, label_smoothing=smoothing)
    for weight in ([1, 2], [1, 2, 3, -1.0], [1j] * 4, "a", [[1, 2], [3, 4]]):
        refuses("weight", f, Z, y, weight=weight)
    for index in ("a", 1.5, 10**30):
        refuses("ignore_index", f, Z, y, ignore_index=index)


@pytest.mark.parametrize("name", LOSSES)
def test_torch_losses_name_what_is_wrong(name):
    f, y, soft = getattr(pt, f"{name}_loss"), torch.tensor([0, 1, 2]), torch.full((3, 4), 0.25)
    wrong = [torch.tensor([0, 1, 4]), torch.tensor([0, 1, -1]), y.float(), y.tolist(), y[:2], y.to("meta"), ~ON]
    for target in (*wrong, soft + 0j, soft.to_sparse(), soft.to("meta"), -soft, 2 * soft):
        refuses("target|class|distribution|set", f, T, target)
    for reduction in ("avg", None, []):
        refuses("reduction", f, T, y, reduction=reduction)
    refuses("label_smoothing", f, T, y, label_smoothing=2)
    ones = torch.ones(4)
    for weight in ([1.0] * 4, ones[:3], -ones, ones.int(), ones.to("meta"), ones.to_sparse()):
        refuses("weight", f, T, y, weight=weight)
    for index in ("a", 1.5, 10**30):
        refuses("ignore_index", f, T, y, ignore_index=index)


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_view_is_read_as_what_it_is(name):
    f = getattr(pt, name)
    torch.testing.assert_close(f(torch._neg_view(T)), f(-T))


@pytest.mark.parametrize("name", LOSSES)
def test_sets_weigh_the_same_however_they_are_written(name):
    labels = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]], bool)
    sets, soft = [{0, 1}, {1}, {2, 3}], (labels / labels.sum(-1, keepdims=True)).astype(np.float32)
    f, g = getattr(parsimax, f"{name}_loss"), getattr(pt, f"{name}_loss")
    for options in ({}, {"label_smoothing": 0.1}, {"weight": np.float32([1, 2, 3, 4])}):
        tensors = {k: torch.from_numpy(v) if k == "weight" else v for k, v in options.items()}
        for reduction in ("none", "sum", "mean"):
            want, gradient = f(Z, sets, reduction=reduction, return_grad=True, **options)
            np.testing.assert_allclose(f(Z, labels, reduction=reduction, **options), want, rtol=1e-6)
            if reduction != "mean":
                np.testing.assert_allclose(f(Z, soft, reduction=reduction, **options), want, rtol=1e-5)
            leaf = T.clone().requires_grad_()
            value = g(leaf, torch.from_numpy(labels), reduction=reduction, **tensors)
            np.testing.assert_allclose(value.detach(), want, rtol=1e-5)
            value.sum().backward()
            np.testing.assert_allclose(leaf.grad, gradient, atol=1e-6)
