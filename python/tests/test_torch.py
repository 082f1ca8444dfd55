"""The mappings on tensors: parity, derivatives of every order, transforms, dtypes, errors."""

import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import NAMES, total

import parsimax as px

torch = pytest.importorskip("torch")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402

import parsimax.torch as pt  # noqa: E402
from parsimax.torch import _call, _device, _function  # noqa: E402
from parsimax.torch._spec import Spec  # noqa: E402

WITH_PARAMETER = {
    "entmax": [1.0, 1.3, 1.5, 2.0, 3.0, 0.6],
    "fusedmax": [0.02, 0.1, 0.3, 0.05, 0.2, 0.01],
    "oscarmax": [0.02, 0.1, 0.3, 0.05, 0.2, 0.01],
    "sq_pnorm_max": [1.1, 1.3, 1.5, 1.7, 1.9, 1.6],
    "normmax": [1.1, 1.3, 1.5, 2.0, 3.0, 4.0],
}


def scores(*shape, seed=0, dtype=torch.float64, grad=False):
    z = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return z.requires_grad_(grad)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_same_as_numpy(name, dtype):
    z = scores(3, 4, 5, dtype=dtype)
    mask = torch.rand(3, 1, 5, generator=torch.Generator().manual_seed(1)) < 0.7
    for dim in (-1, 1, 0):
        for m in (None, mask):
            ours = getattr(pt, name)(z, dim=dim, mask=m)
            theirs = getattr(px, name)(z.numpy(), axis=dim, mask=None if m is None else m.numpy())
            assert ours.dtype == dtype
            np.testing.assert_array_equal(ours.numpy(), theirs)


@pytest.mark.parametrize("name", NAMES)
def test_first_derivative(name):
    f = getattr(pt, name)
    z = scores(3, 5, grad=True)
    assert gradcheck(f, z, check_forward_ad=True, check_batched_grad=True)
    mask = torch.tensor([[True, True, False, True, True], [False] * 5, [True] * 5])
    assert gradcheck(lambda z: f(z, mask=mask), z, check_forward_ad=True)
    assert gradcheck(lambda z: f(z, dim=0, gamma=0.7), z, check_forward_ad=True)


@pytest.mark.parametrize("name", NAMES)
def test_second_derivative(name):
    f = getattr(pt, name)
    assert gradgradcheck(f, scores(3, 5, grad=True))
    mask = torch.tensor([[True, True, False, True, True], [False] * 5, [True] * 5])
    assert gradgradcheck(lambda z: f(z, mask=mask, gamma=0.7), scores(3, 5, seed=2, grad=True))


@pytest.mark.parametrize("name", WITH_PARAMETER)
def test_derivatives_in_the_parameter(name):
    f = getattr(pt, name)
    values = torch.tensor(WITH_PARAMETER[name], dtype=torch.float64)
    for shape in [(2, 3, 1), (3, 1), (1,), ()]:
        param = values[: max(1, int(np.prod(shape)))].reshape(shape).clone().requires_grad_()
        z = scores(2, 3, 5, seed=len(shape), grad=True)
        assert gradcheck(f, (z, param), check_forward_ad=True)
    param = values.reshape(2, 3, 1).clone().requires_grad_()
    assert gradgradcheck(f, (scores(2, 3, 5, seed=5, grad=True), param))
    mask = torch.rand(2, 3, 5, generator=torch.Generator().manual_seed(3)) < 0.8
    assert gradcheck(lambda z, a: f(z, a, mask=mask, gamma=1.3), (scores(2, 3, 5, seed=5, grad=True), param))


def test_the_approximation_of_oscarmax_has_a_derivative():
    z = scores(3, 5, grad=True)
    f = lambda z: pt.oscarmax(z, 0.05, exact=False)  # noqa: E731
    assert gradcheck(f, z, check_forward_ad=True)
    assert gradgradcheck(f, z)


@pytest.mark.parametrize("name", NAMES)
def test_the_device_path(name):
    """The pure torch path that other devices take, on CPU tensors."""
    kind = _function._table.KINDS[name]
    for seed, (dtype, tolerance) in enumerate([(torch.float64, 1e-13), (torch.float32, 1e-6), (torch.bfloat16, 4e-3)]):
        z = scores(20, 9, seed=seed, dtype=dtype) * torch.logspace(-2, 1.3, 20)[:, None].to(dtype)
        z[1, 2] = -torch.inf
        z[2] = -torch.inf
        z[3, 0], z[4, 1] = torch.nan, torch.inf
        mask = torch.rand(20, 9, generator=torch.Generator().manual_seed(seed)) < 0.8
        for gamma in (1.0, 0.5):
            spec = Spec(name, kind.default if kind.param else float("nan"), gamma, -1)
            expected = getattr(pt, name)(z, gamma=gamma, mask=mask)
            torch.testing.assert_close(
                _device.forward(z, None, mask, spec), expected, atol=tolerance, rtol=0, equal_nan=True
            )
    if kind.varies:
        param = torch.tensor(WITH_PARAMETER[name], dtype=torch.float64)[:, None]
        z = scores(6, 9)
        spec = Spec(name, float("nan"), 1.0, -1)
        torch.testing.assert_close(
            _device.forward(z, param, None, spec), getattr(pt, name)(z, param), atol=1e-12, rtol=0
        )


@pytest.mark.parametrize("name", NAMES)
def test_other_devices_take_the_device_path(name, monkeypatch):
    """Forward, gradient and loss where no tensor is plain, as on a GPU."""
    z = scores(4, 6, grad=True)
    v = scores(4, 6, seed=9)
    f = getattr(pt, name)
    expected = f(z)
    (gradient,) = torch.autograd.grad(expected, z, v)
    monkeypatch.setattr(_function, "is_plain", lambda *_: False)
    monkeypatch.setattr(_call, "is_plain", lambda *_: False)
    got = f(z)
    torch.testing.assert_close(got, expected, atol=1e-13, rtol=0)
    torch.testing.assert_close(torch.autograd.grad(got, z, v)[0], gradient, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_torch_func(name):
    f = getattr(pt, name)
    z = scores(4, 3, 5)
    expected = f(z)
    for in_dim in (0, 1):
        got = torch.func.vmap(f, in_dims=in_dim, out_dims=in_dim)(z)
        torch.testing.assert_close(got, expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.vmap(f))(z), expected)
    row, v = scores(5, seed=3), scores(5, seed=4)
    jacobian = torch.autograd.functional.jacobian(f, row)
    torch.testing.assert_close(torch.func.jacrev(f)(row), jacobian)
    torch.testing.assert_close(torch.func.jacfwd(f)(row), jacobian)
    torch.testing.assert_close(torch.func.jvp(f, (row,), (v,))[1], jacobian @ v)
    torch.testing.assert_close(torch.func.vjp(f, row)[1](v)[0], jacobian.T @ v)
    g = lambda z: (f(z) * v).sum() + f(z).square().sum()  # noqa: E731
    hessian = torch.autograd.functional.hessian(g, row)
    torch.testing.assert_close(torch.func.hessian(g)(row), hessian)
    torch.testing.assert_close(torch.func.jacrev(torch.func.grad(g))(row), hessian)
    per_sample = torch.func.vmap(torch.func.grad(g))(z.reshape(-1, 5))
    torch.testing.assert_close(per_sample[0], torch.func.grad(g)(z[0, 0]))


@pytest.mark.parametrize("name", WITH_PARAMETER)
def test_torch_func_in_the_parameter(name):
    f = getattr(pt, name)
    z = scores(3, 5)
    values = torch.tensor(WITH_PARAMETER[name][:3], dtype=torch.float64)
    expected = torch.stack([f(z, float(a)) for a in values])
    torch.testing.assert_close(torch.func.vmap(f, in_dims=(None, 0))(z, values), expected)
    torch.testing.assert_close(
        torch.func.vmap(f)(expected, values),
        torch.stack([f(e, float(a)) for e, a in zip(expected, values, strict=True)]),
    )
    slope = torch.func.jacfwd(lambda a: f(z, a))(values[1])
    torch.testing.assert_close(slope, torch.func.jacrev(lambda a: f(z, a))(values[1]))
    step = 1e-6
    numeric = (f(z, values[1] + step) - f(z, values[1] - step)) / (2 * step)
    torch.testing.assert_close(slope, numeric, atol=1e-7, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_narrow_dtypes(name, dtype):
    z = scores(4, 300, dtype=dtype).requires_grad_()
    p = getattr(pt, name)(z)
    assert p.dtype == dtype
    exact = getattr(pt, name)(z.detach().double())
    torch.testing.assert_close(p.detach().double(), exact, atol=0, rtol=torch.finfo(dtype).eps)
    p.backward(torch.ones_like(p))
    assert z.grad.dtype == dtype and z.grad.isfinite().all()


def test_autocast():
    z = scores(4, 300, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert pt.entmax15(z).dtype == torch.float32
        assert pt.sparsemax_loss(z, torch.zeros(4, dtype=torch.long)).dtype == torch.float32
    assert pt.entmax15(z).dtype == torch.bfloat16


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name):
    f = getattr(pt, name)
    z = scores(4, 5, 6, dtype=torch.float32)
    for same in (z.transpose(0, 2).contiguous().transpose(0, 2), z[:, ::2], z.expand(2, 4, 5, 6), z[..., 1:]):
        packed = same.contiguous()
        torch.testing.assert_close(f(same), f(packed), rtol=0, atol=0)
        a, b = same.detach().requires_grad_(), packed.detach().requires_grad_()
        v = scores(*same.shape, seed=3, dtype=torch.float32)
        f(a).backward(v)
        f(b).backward(v)
        torch.testing.assert_close(a.grad, b.grad)


def test_out_and_no_grad():
    z = scores(3, 4, grad=True)
    buffer = torch.empty(3, 4, dtype=torch.float64)
    with pytest.raises(ValueError, match="out does not go with gradients"):
        pt.entmax15(z, out=buffer)
    with torch.no_grad():
        assert pt.entmax15(z, out=buffer) is buffer
        assert not pt.entmax15(z).requires_grad
    torch.testing.assert_close(buffer, pt.entmax15(z.detach()))
    with torch.inference_mode():
        torch.testing.assert_close(pt.entmax15(z), buffer)


@pytest.mark.parametrize("name", NAMES)
def test_small_shapes(name):
    f = getattr(pt, name)
    for shape in [(0,), (0, 3), (3, 0), (1,), (2, 1), (2, 0, 3)]:
        z = torch.zeros(shape, requires_grad=True)
        p = f(z)
        assert p.shape == z.shape
        p.sum().backward()
        assert z.grad.shape == z.shape and z.grad.abs().sum() == 0


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z: pt.sparsemax([1.0]), TypeError, "scores must be a tensor"),
        (lambda z: pt.sparsemax(z > 0), TypeError, "scores must hold real numbers"),
        (lambda z: pt.sparsemax(z, dim=2), ValueError, "dim must be between -2 and 1, got 2"),
        (lambda z: pt.sparsemax(z, dim=0.5), TypeError, "dim must be an integer"),
        (lambda z: pt.sparsemax(z[0, 0]), ValueError, "at least one dimension"),
        (lambda z: pt.sparsemax(z, gamma=-1), ValueError, "gamma must be"),
        (lambda z: pt.sparsemax(z, mask=torch.ones(3, 3, dtype=torch.bool)), ValueError, "mask must broadcast"),
        (lambda z: pt.sparsemax(z, mask=torch.ones(2, 3)), TypeError, "mask must be a boolean tensor"),
        (lambda z: pt.sparsemax(z, out=torch.empty(2)), ValueError, "out must have shape"),
        (lambda z: pt.sparsemax(z, out=torch.empty(2, 3).double()), TypeError, "out must have dtype"),
        (lambda z: pt.entmax(z, 0), ValueError, "alpha must be"),
        (lambda z: pt.entmax(z, torch.tensor([[1.5], [-1.0]])), ValueError, "alpha must be"),
        (lambda z: pt.entmax(z, torch.ones(3)), ValueError, "alpha must be a number or broadcast"),
        (lambda z: pt.entmax(z, "x"), TypeError, "alpha must be a number"),
        (lambda z: pt.fusedmax(z, -1), ValueError, "lam"),
        (lambda z: pt.sq_pnorm_max(z, 3), ValueError, "p must be"),
        (lambda z: pt.sparsemax_loss(z, torch.tensor([0, 5])), ValueError, "row 1.*class"),
        (lambda z: pt.sparsemax_loss(z, torch.tensor([0])), ValueError, "target must be"),
        (lambda z: pt.sparsemax_loss(z, [0, 1]), TypeError, "target must be a tensor"),
        (lambda z: pt.sparsemax_loss(z, torch.tensor([0, 1]), reduction="max"), ValueError, "reduction must be"),
        (lambda z: pt.SparsemaxLoss(reduction="max"), ValueError, "reduction must be"),
        (lambda z: pt.entmax_loss(z, torch.tensor([0, 1]), torch.ones(2)), ValueError, "alpha must be"),
        (lambda z: pt.MultiheadAttention(4, 2, mapping="nomax"), ValueError, "mapping must be one of"),
        (lambda z: pt.AdaptiveEntmax(2, initial_alpha=2), ValueError, "initial_alpha"),
    ],
)
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call(torch.zeros(2, 3))


# What a row of two million scores needs beyond its result, in kilobytes, in a process of its own.
LONG_ROWS = """
import torch, parsimax.torch as px

def peak(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(key))

def beyond(call):
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")
    before = peak("VmRSS")
    result = call()
    return peak("VmHWM") - before - result.nbytes // 1024

z = torch.randn(1, 1 << 21)
mask, out, twice = torch.rand(z.shape) < 0.9, torch.ones_like(z), torch.stack([z, z], -1)
narrow = z.bfloat16()
for name in ("softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "oscarmax", "ev_softmax", "normmax"):
    f = getattr(px, name)
    f(z[:, :70000].contiguous(), mask=mask[:, :70000])
    print(name, "mask", beyond(lambda: f(z, mask=mask)))
    print(name, "strides", beyond(lambda: f(twice[..., 0])))
    print(name, "out", beyond(lambda: f(z, out=out)[:0]))
    if name in ("softmax", "sparsemax", "entmax15", "entmax"):
        print(name, "bfloat16", beyond(lambda: f(narrow, mask=mask)))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="Linux alone tells the peak of a call")
def test_long_rows_take_a_megabyte_beyond_their_result():
    # What is freed goes back at once, so that no page of one call serves the next.
    heap = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
    code, env = [sys.executable, "-c", LONG_ROWS], {**os.environ, **heap}
    run = subprocess.run(code, capture_output=True, text=True, timeout=300, check=False, env=env)
    assert run.returncode == 0, run.stderr
    lines = [line.split() for line in run.stdout.splitlines()]
    assert len(lines) == 8 * 3 + 4
    assert all(int(kilobytes) <= 1024 for *_, kilobytes in lines), run.stdout


def test_masked_long_rows_are_those_without_the_masked_entries():
    torch.manual_seed(3)
    z = torch.randn(1, 66_000)
    mask = torch.rand(z.shape) < 0.7
    for name in NAMES:
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            f, x = getattr(pt, name), (0.3 * z).to(dtype)
            p = f(x, mask=mask)
            assert (p[~mask] == 0).all()
            # Two orders of summation in single precision, or a unit of the last of eight binary digits.
            close = {"atol": 1e-6, "rtol": 2e-2 if dtype == torch.bfloat16 else 1e-4}
            torch.testing.assert_close(p[mask], f(x[mask]), **close)


def test_out_is_written_in_place_whatever_its_strides():
    z = torch.randn(5, 6)
    expected = pt.entmax15(z)
    for out in (torch.empty(5, 6), torch.empty(6, 5).t(), torch.empty(5, 12)[:, ::2], torch.empty(1, 6).expand(5, 6)):
        if out.stride(0) == 0:
            with pytest.raises(ValueError, match="out must have a place of its own"):
                pt.entmax15(z, out=out)
            continue
        version = out._version
        assert pt.entmax15(z, out=out) is out
        assert out._version > version
        torch.testing.assert_close(out, expected, atol=0, rtol=0)
    shifted = torch.cat([z.flatten(), torch.zeros(1)])
    pt.entmax15(shifted[:30].view(5, 6), out=shifted[1:].view(5, 6))
    torch.testing.assert_close(shifted[1:].view(5, 6), expected, atol=0, rtol=0)


def test_random_shapes_sum_to_one():
    generator = np.random.default_rng(11)
    for _ in range(300):
        name = NAMES[generator.integers(len(NAMES))]
        shape = tuple(generator.integers(1, 7, size=generator.integers(1, 5)))
        dim = int(generator.integers(-len(shape), len(shape)))
        z = torch.from_numpy(generator.normal(size=shape) * 10.0 ** generator.integers(-3, 3))
        p = getattr(pt, name)(z, dim=dim)
        torch.testing.assert_close(p.sum(dim), torch.full_like(p.sum(dim), total(name, shape[dim])))
