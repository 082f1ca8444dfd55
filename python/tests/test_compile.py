"""torch.compile with full graphs, the operators' registrations, and tracing."""

import shutil

import pytest

torch = pytest.importorskip("torch")
import parsimax.torch as pt  # noqa: E402

NAMES = ["sparsemax", "entmax15", "entmax", "fusedmax", "sparsehourglass", "ev_softmax"]


def scores(*shape, seed=0, grad=False):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_(grad)


@pytest.mark.parametrize(
    "backend",
    ["aot_eager", pytest.param("inductor", marks=pytest.mark.skipif(not shutil.which("g++"), reason="needs g++"))],
)
def test_mappings_compile_into_one_graph(backend):
    def f(z, mask):
        return torch.stack([getattr(pt, name)(z * 2, mask=mask) for name in NAMES]).square().sum(0)

    z, mask = scores(6, 9, grad=True), scores(6, 9, seed=1) < 1
    expected = f(z, mask)
    (gradient,) = torch.autograd.grad(expected.sum(), z)
    torch._dynamo.reset()
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    got = compiled(z, mask)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), z)[0], gradient)
    with torch.no_grad():
        torch.testing.assert_close(compiled(z.detach(), mask), expected)


def test_learned_alpha_and_losses_compile():
    torch.manual_seed(0)
    layer, attention = pt.AdaptiveEntmax(2), pt.MultiheadAttention(8, 2, batch_first=True, mapping="adaptive")
    head = torch.nn.Linear(8, 5)

    def f(x, target):
        x, _ = attention(x, x, x)
        x = x + layer(x.unflatten(-1, (2, 4)).transpose(1, 2)).transpose(1, 2).flatten(2)
        scores = head(x).flatten(0, 1)
        alpha = 1 + torch.sigmoid(layer.a[:1])
        return pt.entmax15_loss(scores, target, reduction="mean") + pt.entmax_loss(scores, target, alpha).mean()

    x, target = torch.randn(3, 4, 8), torch.arange(12) % 5
    target[3] = -100
    parameters = [*layer.parameters(), *attention.parameters(), *head.parameters()]
    expected = f(x, target)
    gradients = torch.autograd.grad(expected, parameters)
    torch._dynamo.reset()
    got = torch.compile(f, fullgraph=True, backend="aot_eager")(x, target)
    torch.testing.assert_close(got, expected)
    for ours, theirs in zip(torch.autograd.grad(got, parameters), gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dynamic", [False, True])
def test_shapes_may_change(dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(lambda z: pt.entmax15(z, dim=0), fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for n in (3, 5, 7):
        z = scores(n, n + 1)
        torch.testing.assert_close(compiled(z), pt.entmax15(z, dim=0))


def test_the_operators_are_registered_right():
    z, v = scores(3, 5, grad=True), scores(3, 5, seed=1)
    alpha = torch.tensor([[1.2], [1.5], [2.0]], requires_grad=True)
    mask = torch.ones(3, 5, dtype=torch.bool)
    ops = torch.ops.parsimax
    p = pt.entmax(z, alpha).detach()
    utils = ("test_schema", "test_autograd_registration", "test_faketensor")
    for op, arguments in [
        (ops.forward, (z, None, None, "sparsemax", float("nan"), 1.0, -1)),
        (ops.forward, (z, alpha, mask, "entmax", float("nan"), 1.0, -1)),
        (ops.vjp, (z.detach(), p, v, alpha.detach(), mask, "entmax", float("nan"), 1.0, -1, False)),
        (ops.parameter_vjp, (z.detach(), p, v, alpha.detach(), mask, "entmax", 1.0, -1)),
    ]:
        torch.library.opcheck(op.default, arguments, test_utils=utils)


def test_fake_tensors_and_meta():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        z = torch.empty(3, 4)
        assert pt.entmax15(z).shape == (3, 4)
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda z: pt.sparsemax(z) * 2)(scores(2, 3))
    z = scores(2, 3, seed=5)
    torch.testing.assert_close(graph(z), pt.sparsemax(z) * 2)


def test_torch_jit_trace():
    z = scores(3, 4)
    traced = torch.jit.trace(lambda z: pt.entmax15(z), scores(3, 4, seed=1), check_trace=False)
    torch.testing.assert_close(traced(z), pt.entmax15(z))
