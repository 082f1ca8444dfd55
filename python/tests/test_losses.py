"""The losses: NumPy = torch = definition, targets, reductions, derivatives."""

import numpy as np
import pytest

import parsimax as px

torch = pytest.importorskip("torch")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

import parsimax.torch as pt  # noqa: E402
from parsimax.torch import _loss  # noqa: E402

NAMES = ["softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "oscarmax", "sq_pnorm_max", "normmax"]
WITH_PARAMETER = {
    "entmax": [1.0, 1.3, 1.5, 2.0, 3.0],
    "fusedmax": [0.02, 0.1, 0.3, 0.05, 0.2],
    "oscarmax": [0.02, 0.1, 0.3, 0.05, 0.2],
    "sq_pnorm_max": [1.1, 1.3, 1.5, 1.7, 1.9],
    "normmax": [1.1, 1.3, 1.5, 2.0, 3.0],
}


def scores(*shape, seed=0, dtype=torch.float64, grad=False):
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return z.requires_grad_(grad)


def targets(seed=0):
    generator = torch.Generator().manual_seed(seed)
    soft = torch.rand(5, 4, generator=generator, dtype=torch.float64)
    soft[0, 0] = 0
    soft /= soft.sum(1, keepdim=True)
    sets = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 1]], dtype=torch.bool)
    return {"classes": torch.tensor([0, 3, -100, 1, 2]), "soft": soft, "sets": sets}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["classes", "soft", "sets"])
def test_value_and_gradient(name, kind):
    """L = <p − y, z> + γ(Ω(y) − Ω(p)) ≥ 0, with gradient p − y; natively, in torch and in NumPy."""
    target = targets()[kind]
    z = scores(5, 4, grad=True)
    native = getattr(pt, f"{name}_loss")(z, target)
    y, counts = _loss.dense(target, z, -1, -100, kind != "classes")
    spec = _loss.Spec(name, _loss._table.KINDS[name].default or float("nan"), 1.0, -1)
    formula = _loss.rows(z, None, None, y, counts, spec, _loss.Settings("none", -100)).squeeze(-1)
    torch.testing.assert_close(native, formula, atol=1e-14, rtol=1e-12)
    assert (native >= 0).all()
    (gradient,) = torch.autograd.grad(native.sum(), z, retain_graph=True)
    expected = torch.where(counts, getattr(pt, name)(z) - y, 0).detach()
    torch.testing.assert_close(gradient, expected, atol=1e-14, rtol=0)
    torch.testing.assert_close(torch.autograd.grad(formula.sum(), z)[0], expected, atol=1e-14, rtol=0)
    values, slope = getattr(px, f"{name}_loss")(z.detach().numpy(), target.numpy(), return_grad=True)
    np.testing.assert_array_equal(values, native.detach().numpy())
    np.testing.assert_allclose(slope, gradient.numpy(), atol=1e-15)
    # A second backward through the same graph.
    torch.testing.assert_close(torch.autograd.grad(native.sum() * 2, z)[0], 2 * expected)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    f = getattr(pt, f"{name}_loss")
    for target in targets().values():
        for reduction in ("none", "sum", "mean"):
            g = lambda z: f(z, target, reduction=reduction)  # noqa: B023, E731
            assert gradcheck(g, scores(5, 4, grad=True), check_forward_ad=True)
        assert gradgradcheck(g, scores(5, 4, seed=1, grad=True))


@pytest.mark.parametrize("name", WITH_PARAMETER)
def test_derivatives_in_the_parameter(name):
    f = getattr(pt, f"{name}_loss")
    values = torch.tensor(WITH_PARAMETER[name], dtype=torch.float64)
    for target in targets().values():
        for param in (values[:, None].clone().requires_grad_(), values[1].clone().requires_grad_()):
            z = scores(5, 4, seed=3, grad=True)
            assert gradcheck(lambda z, a: f(z, target, a), (z, param), check_forward_ad=True)  # noqa: B023
            assert gradgradcheck(lambda z, a: f(z, target, a, reduction="mean"), (z, param))  # noqa: B023


@pytest.mark.parametrize("name", NAMES)
def test_torch_func(name):
    f = getattr(pt, f"{name}_loss")
    z, target = scores(5, 4), torch.tensor([0, 3, 1, 1, 2])
    g = lambda row, t: f(row, t)  # noqa: E731
    torch.testing.assert_close(torch.func.vmap(g)(z, target), f(z, target))
    per_sample = torch.func.vmap(torch.func.grad(g))(z, target)
    y = torch.nn.functional.one_hot(target, 4)
    torch.testing.assert_close(per_sample, getattr(pt, name)(z) - y)
    hessian = torch.func.hessian(g)(z[0], target[0])
    torch.testing.assert_close(hessian, torch.func.jacrev(getattr(pt, name))(z[0]))


def test_shapes_and_reductions():
    z = scores(3, 4, 5, 2, grad=True)
    target = torch.randint(4, (3, 5, 2), generator=torch.Generator().manual_seed(0))
    target[0, 0, 0] = target[2, 1, 1] = 7
    rows = pt.entmax15_loss(z, target, ignore_index=7)
    assert rows.shape == (3, 5, 2)
    flat = pt.entmax15_loss(z.movedim(1, -1).reshape(-1, 4), target.reshape(-1), ignore_index=7)
    torch.testing.assert_close(rows.reshape(-1), flat)
    assert rows[0, 0, 0] == 0
    for reduction in ("mean", "elementwise_mean"):
        mean = pt.Entmax15Loss(ignore_index=7, reduction=reduction)(z, target)
        torch.testing.assert_close(mean, rows.sum() / 28)
    torch.testing.assert_close(pt.Entmax15Loss(ignore_index=7, reduction="sum")(z, target), rows.sum())
    assert pt.Entmax15Loss(ignore_index=7, reduction="none")(z, target).shape == (3, 5, 2)
    single = pt.sparsemax_loss(scores(4), torch.tensor(2))
    assert single.shape == ()
    alpha = torch.rand(3, 1, 5, 2, dtype=torch.float64) + 1
    assert pt.entmax_loss(z, target, alpha, ignore_index=7).shape == (3, 5, 2)


def test_numpy_options(rng):
    z = rng.normal(size=(6, 4))
    target = rng.integers(4, size=6)
    rows = px.sparsemax_loss(z, target)
    np.testing.assert_allclose(px.sparsemax_loss(z, target, reduction="mean"), rows.mean())
    np.testing.assert_allclose(px.sparsemax_loss(z.T, target, axis=0), rows)
    sets = [{int(t)} for t in target]
    np.testing.assert_allclose(px.sparsemax_loss(z, sets), rows)
    assert px.sparsemax_loss(z, [{0, 1}, [2], (1, 3), [0], [1], [2, 3]]).shape == (6,)
    assert not np.allclose(px.sparsemax_loss(z, target, label_smoothing=0.1), rows)
    weighted = px.sparsemax_loss(z, target, weight=[1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(weighted, rows * (target + 1))
    cross_entropy = torch.nn.functional.cross_entropy(torch.from_numpy(z), torch.from_numpy(target), reduction="none")
    np.testing.assert_allclose(px.softmax_loss(z, target), cross_entropy.numpy(), rtol=1e-12)
    for bad, words in [
        ([0, 1], "target must be"),
        (np.zeros((6, 4)), "row 0.*distribution"),
        ([{9}, *sets[1:]], "label 9"),
    ]:
        with pytest.raises(ValueError, match=words):
            px.sparsemax_loss(z, bad)
    with pytest.raises(ValueError, match="reduction must be"):
        px.sparsemax_loss(z, target, reduction="elementwise")


def test_bad_scores_spoil_their_row_alone():
    z = scores(4, 3)
    z[1, 0] = torch.nan
    z[2, 1] = torch.inf
    target = torch.tensor([0, 1, -100, 2])
    leaf = z.clone().requires_grad_()
    rows = pt.entmax15_loss(leaf, target)
    assert rows.isnan().tolist() == [False, True, False, False]
    rows.sum().backward()
    assert leaf.grad.isnan().any(1).tolist() == [False, True, False, False]
    assert (leaf.grad[2] == 0).all()
    values, gradient = px.entmax15_loss(z.numpy(), target.numpy(), return_grad=True)
    np.testing.assert_allclose(values, rows.detach().numpy())
    np.testing.assert_allclose(gradient, leaf.grad.numpy())
    assert pt.entmax15_loss(z, target, reduction="mean").isnan()
    assert np.isnan(px.entmax15_loss(z.numpy(), target.numpy(), reduction="sum"))


def test_narrow_scores_and_masks():
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        z = scores(4, 300, dtype=dtype, grad=True)
        mask = torch.rand(4, 300, generator=torch.Generator().manual_seed(0)) < 0.9
        mask[:, 0] = True
        loss = pt.entmax15_loss(z, torch.zeros(4, dtype=torch.long), mask=mask, reduction="mean")
        loss.backward()
        assert loss.dtype == z.grad.dtype == dtype and (z.grad[~mask] == 0).all()
        exact = pt.entmax15_loss(z.detach().double(), torch.zeros(4, dtype=torch.long), mask=mask, reduction="mean")
        torch.testing.assert_close(loss.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


TREATMENTS = [
    {"label_smoothing": 0.1},
    {"weight": [1.0, 0.5, 2.0, 0.25]},
    {"label_smoothing": 0.3, "weight": [1.0, 0, 2, 3]},
]


@pytest.mark.parametrize("treatment", TREATMENTS, ids=["smoothed", "weighted", "both"])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("kind", ["classes", "soft", "sets"])
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax", "ev_softmax"])
def test_smoothing_and_weights(name, kind, reduction, treatment):
    """Natively, by torch operations (as a second derivative takes them), and in NumPy: the same."""
    target, z = targets()[kind], scores(5, 4, grad=True)
    mask = torch.ones(5, 4, dtype=torch.bool)
    if kind == "classes":
        mask[0, 1] = mask[3, 3] = False
    options = {k: torch.tensor(v, dtype=z.dtype) if k == "weight" else v for k, v in treatment.items()}
    value = getattr(pt, f"{name}_loss")(z, target, mask=mask, reduction=reduction, **options)
    (gradient,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    values, slope = getattr(px, f"{name}_loss")(
        z.detach().numpy(), target.numpy(), mask=mask.numpy(), reduction=reduction, return_grad=True, **treatment
    )
    # A likelihood near 0 is a difference of logarithms of order 1: 1e-13 is a few hundred ulp of them.
    np.testing.assert_allclose(value.detach().numpy(), values, atol=1e-13)
    np.testing.assert_allclose(gradient.detach().numpy(), slope, atol=1e-14)
    (once,) = torch.autograd.grad(
        getattr(pt, f"{name}_loss")(z, target, mask=mask, reduction=reduction, **options).sum(), z
    )
    torch.testing.assert_close(once, gradient.detach(), atol=1e-14, rtol=0)


@pytest.mark.parametrize("treatment", TREATMENTS, ids=["smoothed", "weighted", "both"])
@pytest.mark.parametrize("kind", ["classes", "soft"])
def test_softmax_has_the_gradient_of_torchs_cross_entropy(kind, treatment):
    target, z = targets()[kind], scores(5, 4, grad=True)
    options = {k: torch.tensor(v, dtype=z.dtype) if k == "weight" else v for k, v in treatment.items()}
    ours = torch.autograd.grad(pt.softmax_loss(z, target, reduction="mean", **options), z)[0]
    theirs = torch.autograd.grad(torch.nn.functional.cross_entropy(z, target, **options), z)[0]
    torch.testing.assert_close(ours, theirs, atol=1e-14, rtol=0)


def test_ev_softmax_loss_is_the_likelihood():
    z, target = scores(5, 4, grad=True), targets()["classes"]
    value = pt.ev_softmax_loss(z, target, eps=1e-3)
    p = pt.ev_softmax(z.detach(), eps=1e-3)
    rows = torch.tensor([0, 1, 3, 4])
    torch.testing.assert_close(value.detach()[rows], -p[rows, target[rows]].log(), atol=1e-14, rtol=1e-12)
    assert value[2] == 0
    assert gradcheck(lambda z: pt.ev_softmax_loss(z, target, eps=1e-3), z)
    assert gradgradcheck(lambda z: pt.ev_softmax_loss(z, target, eps=1e-3), z)
    # At ε = 0: infinite outside the support, with the gradient of the limit.
    z = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    value = pt.ev_softmax_loss(z, torch.tensor([1]), eps=0.0)
    assert value.item() == float("inf")
    np.testing.assert_array_equal(torch.autograd.grad(value.sum(), z)[0].numpy(), [[1.0, -1.0]])
    loss, slope = px.ev_softmax_loss(z.detach().numpy(), np.array([1]), eps=0.0, return_grad=True)
    assert loss[0] == np.inf
    np.testing.assert_array_equal(slope, [[1.0, -1.0]])


def test_bad_smoothing_and_weights_are_said():
    z, target = scores(5, 4), targets()["classes"]
    for options, message in [
        ({"label_smoothing": 1.0}, r"sparsemax_loss: label_smoothing must be a number in \[0, 1\), got 1.0"),
        ({"weight": torch.ones(3)}, r"sparsemax_loss: weight must have shape \(4,\), got \(3,\)"),
        ({"weight": -torch.ones(4)}, "sparsemax_loss: weight must hold finite numbers ≥ 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            pt.sparsemax_loss(z, target, **options)
    with pytest.raises(TypeError, match="sparsemax_loss: weight must be a floating-point tensor, got list"):
        pt.sparsemax_loss(z, target, weight=[1, 1, 1, 1])
