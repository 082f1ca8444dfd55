"""One test for each defect that users of the package entmax meet (numbers as in the design notes)."""

import inspect

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

import parsimax.torch as pt  # noqa: E402

CPU_FUNCTIONS = [pt.sparsemax, pt.entmax15, pt.sparsemax_bisect, pt.entmax_bisect, pt.normmax_bisect, pt.budget_bisect]


@pytest.mark.parametrize("f", CPU_FUNCTIONS)
def test_1_masked_nan_and_infinite_rows(f):
    z = torch.zeros(4, 3)
    z[0] = -torch.inf
    z[1, 0] = torch.nan
    z[2, 1] = torch.inf
    z = z.requires_grad_()
    p = f(z)
    assert (p[0] == 0).all() and p[1:3].isnan().all() and p[3].isfinite().all()
    p[[0, 3]].sum().backward()
    assert (z.grad[[0, 3]] == 0).all()


@pytest.mark.parametrize("f", [pt.sparsemax, pt.entmax15, pt.entmax_bisect, pt.sparsemax_bisect])
def test_2_large_scores(f):
    z = torch.randn(50, 20, generator=torch.Generator().manual_seed(0)).round(decimals=2)
    for shift in (2.0**20, 2.0**24):
        moved = z + shift
        # Rows of large scores take another path of the kernels: two units in the last place of 1.
        torch.testing.assert_close(f(moved), f(moved - shift), atol=2.4e-7, rtol=0)
    assert (f(torch.tensor([1e30, 0.0, -1e30])) == torch.tensor([1.0, 0, 0])).all()
    smallest = torch.finfo(torch.float32).min
    p = f(torch.tensor([0.0, 0.0, smallest]))
    assert p[2] == 0 and (p[:2] - 0.5).abs().max() < 1e-7


def test_3_accuracy_at_every_alpha():
    z = torch.randn(100, 30, generator=torch.Generator().manual_seed(1))
    for alpha in (1.0001, 1.01, 1.25, 1.5, 2, 4, 10):
        p = pt.entmax_bisect(z, alpha)
        exact = pt.entmax_bisect(z.double(), alpha)
        assert (p.double() - exact).abs().max() < 1e-6
    v = torch.randn(100, 30, generator=torch.Generator().manual_seed(2))
    for alpha in (1.0, 1 + 1e-6, 1.0001, 1.001, 1.5, 2.0, 4.0):
        single = torch.tensor(alpha, requires_grad=True)
        double = torch.tensor(single.item(), dtype=torch.float64, requires_grad=True)
        (g,) = torch.autograd.grad(pt.entmax_bisect(z, single), single, v)
        (exact,) = torch.autograd.grad(pt.entmax_bisect(z.double(), double), double, v.double())
        slope = torch.func.jacfwd(lambda a: pt.entmax(z.double(), a))(double.detach())
        assert (g - exact).abs() <= 1e-4 * (v * slope).abs().sum()


def test_4_alpha_one_and_integers():
    z = torch.tensor([[1.0, 2.0, 4.0]])
    torch.testing.assert_close(pt.entmax_bisect(z, 1.0), z.softmax(-1))
    assert pt.entmax_bisect_loss(z, torch.tensor([2]), alpha=1.0).isfinite()
    torch.testing.assert_close(
        pt.entmax_bisect_loss(z, torch.tensor([1]), alpha=1.0),
        torch.nn.functional.cross_entropy(z, torch.tensor([1]), reduction="none"),
    )
    for f in CPU_FUNCTIONS:
        torch.testing.assert_close(f(z.long()), f(z))


def test_5_alpha_may_be_a_parameter():
    layer = pt.EntmaxBisect(alpha=torch.nn.Parameter(torch.tensor(1.5)))
    assert [name for name, _ in layer.named_parameters()] == ["alpha"]
    layer(torch.randn(2, 5)).square().sum().backward()
    assert layer.alpha.grad is not None and layer.alpha.grad.isfinite()
    heads = pt.AdaptiveEntmax(3)
    p = heads(torch.randn(2, 3, 4, 5))
    p.square().sum().backward()
    assert heads.a.grad.shape == (3,) and (heads.a.grad != 0).all()
    torch.testing.assert_close(heads.alpha, torch.full((3,), 1.5))


@pytest.mark.parametrize("f", [pt.sparsemax, pt.entmax15])
def test_6_any_dim_with_k(f):
    z = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
    for dim in (-3, -2, -1, 0, 1, 2):
        torch.testing.assert_close(f(z, dim=dim, k=2), f(z.movedim(dim, -1)).movedim(-1, dim))


def test_7_losses():
    z = torch.randn(4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    target = torch.tensor([0, -100, 2, 4])
    for loss in (pt.SparsemaxLoss, pt.Entmax15Loss, pt.SparsemaxBisectLoss, pt.EntmaxBisectLoss, pt.NormmaxBisectLoss):
        assert loss()(z, target).isfinite()
        assert loss(reduction="mean")(z, target) == loss(reduction="elementwise_mean")(z, target)
        nothing = loss()(z, torch.full((4,), -100))
        assert nothing == 0
        nothing.backward()
        assert (z.grad == 0).all()
        assert loss(reduction="none")(z, target)[1] == 0
    masked = z.detach().clone()
    masked[0, 3] = -torch.inf
    assert pt.entmax15_loss(masked, target).isfinite().all()
    soft = torch.softmax(z.detach() * 2, -1)
    assert pt.entmax15_loss(z, soft).shape == (4,)
    assert pt.entmax15_loss(torch.randn(2, 5, 3), torch.zeros(2, 3, dtype=torch.long)).shape == (2, 3)
    alpha = torch.tensor([[1.1], [1.5], [2.0], [3.0]], dtype=torch.float64, requires_grad=True)
    assert pt.entmax_bisect_loss(z, target, alpha).shape == (4,)
    assert gradcheck(lambda z, a: pt.entmax_bisect_loss(z, target, a), (z, alpha))
    assert gradgradcheck(lambda z, a: pt.entmax_bisect_loss(z, target, a), (z, alpha))


@pytest.mark.parametrize("f", [pt.entmax15, pt.entmax_bisect])
def test_8_double_backward_with_zeros(f):
    z = torch.tensor([[3.0, 0.0, 2.5, -4.0]], dtype=torch.float64, requires_grad=True)
    assert (f(z) == 0).any()
    (g,) = torch.autograd.grad(f(z).square().sum(), z, create_graph=True)
    (gg,) = torch.autograd.grad(g.square().sum(), z)
    assert gg.isfinite().all()
    assert gradgradcheck(f, z)


def test_9_bfloat16_over_a_vocabulary():
    z = (torch.randn(4, 32000, generator=torch.Generator().manual_seed(0)) * 0.05).bfloat16()
    for f in (pt.sparsemax, pt.entmax15, pt.entmax_bisect):
        p, exact = f(z), f(z.double())
        assert ((p > 0) == (exact > torch.finfo(torch.bfloat16).tiny)).all()
        assert (p.double().sum(-1) - 1).abs().max() < 4e-3
    # compile, torch.func and autocast: test_compile.py and test_torch.py


def test_10_budget_and_the_dtype_of_alpha():
    p = pt.budget_bisect(torch.tensor([1.0, 0.5, -torch.inf, 0.2]))
    assert p[2] == 0 and abs(p.sum() - 2) < 1e-6
    z = torch.randn(3, 4)
    assert pt.entmax_bisect(z, torch.tensor(1.5, dtype=torch.float64)).dtype == torch.float32
    alpha = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    pt.entmax_bisect(z, alpha).square().sum().backward()
    assert alpha.grad.dtype == torch.float64


def test_11_determinism_masks_and_export():
    z = torch.randn(64, 2048, generator=torch.Generator().manual_seed(0))
    for f in (pt.sparsemax, pt.entmax15, pt.entmax):
        assert torch.equal(f(z), f(z))
    from parsimax.torch import _device
    from parsimax.torch._spec import Spec

    torch.use_deterministic_algorithms(True)
    try:
        # The path of other devices sorts nothing, scans nothing and scatters nothing.
        source = inspect.getsource(_device)
        assert not any(word in source for word in ("cumsum", "scatter", "sort("))
        _device.forward(z, None, None, Spec("entmax15", float("nan"), 1.0, -1))
    finally:
        torch.use_deterministic_algorithms(False)
    mask = torch.rand(64, 2048) < 0.5
    assert (pt.entmax15(z, mask=mask)[~mask] == 0).all()

    class Model(torch.nn.Module):
        def forward(self, x):
            return pt.entmax15(x, dim=-1)

    exported = torch.export.export(Model(), (z,))
    torch.testing.assert_close(exported.module()(z), pt.entmax15(z))


def test_11_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")

    class Model(torch.nn.Module):
        def forward(self, x):
            return pt.entmax15(x, dim=-1)

    z = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    torch.onnx.export(Model(), (z,), dynamo=True, verbose=False).save(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    (got,) = session.run(None, {session.get_inputs()[0].name: z.numpy()})
    np.testing.assert_allclose(got, pt.entmax15(z).numpy(), atol=1e-7)


def test_every_name_and_signature_of_entmax():
    entmax = pytest.importorskip("entmax")
    for name in dir(entmax):
        theirs = getattr(entmax, name)
        if name.startswith("_") or not callable(theirs) or inspect.ismodule(theirs):
            continue
        ours = getattr(pt, name)
        call = lambda f: f.__init__ if inspect.isclass(f) else f  # noqa: E731
        try:
            expected = inspect.signature(call(theirs)).parameters
        except ValueError:
            continue
        got = inspect.signature(call(ours)).parameters
        wanted = [p for p in expected.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        positional = [p for p in got.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [p.name for p in positional] == [p.name for p in wanted], name
        assert [p.default for p in positional] == [p.default for p in wanted], name


def test_the_same_results_as_entmax_where_it_is_right():
    entmax = pytest.importorskip("entmax")
    z = torch.randn(20, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    target = torch.arange(20) % 10
    for name in ("sparsemax", "entmax15", "sparsemax_bisect", "entmax_bisect", "normmax_bisect", "budget_bisect"):
        torch.testing.assert_close(getattr(pt, name)(z), getattr(entmax, name)(z), atol=1e-9, rtol=0)
    for alpha in (0.05, 0.5, 1.25, 2.0):
        torch.testing.assert_close(pt.entmax_bisect(z, alpha), entmax.entmax_bisect(z, alpha), atol=1e-7, rtol=0)
    for alpha in (1.5, 5, 100, 1000):
        ours, theirs = pt.normmax_bisect(z, alpha), entmax.normmax_bisect(z, alpha)
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    names = ["sparsemax_loss", "entmax15_loss", "sparsemax_bisect_loss", "entmax_bisect_loss", "normmax_bisect_loss"]
    for name in names:
        torch.testing.assert_close(getattr(pt, name)(z, target), getattr(entmax, name)(z, target), atol=1e-8, rtol=0)
    np.testing.assert_allclose(pt.SparsemaxLoss()(z, target), entmax.SparsemaxLoss()(z, target), atol=1e-9)
