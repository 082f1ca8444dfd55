"""The NumPy functions: layouts, dtypes, masks, parameters, errors."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import NAMES, entmax_by_bisection, total

import parsimax as px

ALPHAS = [0.5, 1, 1 + 1e-6, 1.0001, 1.01, 1.25, 1.5, 2, 3, 4]


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_distributions(name, rng):
    z = rng.normal(size=(50, 9)) * rng.choice([1e-3, 1, 30], size=(50, 1))
    p = getattr(px, name)(z)
    assert (p >= 0).all() and p.dtype == z.dtype and p.shape == z.shape
    np.testing.assert_allclose(p.sum(-1), total(name, 9), rtol=1e-14)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_entmax_is_its_definition(alpha, rng):
    z = rng.normal(size=(20, 7)) * 2
    expected = np.array([entmax_by_bisection(row, alpha) for row in z])
    # The bisected threshold itself loses digits for α > 2 and beside 1.
    tolerance = {4: 1e-5, 3: 1e-7, 1 + 1e-6: 1e-8, 1.0001: 1e-10}.get(alpha, 1e-12)
    np.testing.assert_allclose(px.entmax(z, alpha), expected, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_any_axis_and_layout(name, rng):
    f = getattr(px, name)
    z = rng.normal(size=(4, 5, 6)).astype(np.float32)
    for axis in range(-3, 3):
        expected = np.moveaxis(f(np.ascontiguousarray(np.moveaxis(z, axis, -1))), -1, axis)
        for same in (z, np.asfortranarray(z), z.transpose(2, 0, 1).copy().transpose(1, 2, 0), z[::-1][::-1]):
            assert np.array_equal(same, z)
            np.testing.assert_array_equal(f(same, axis=axis), expected)
    wide = rng.normal(size=(4, 12)).astype(np.float32)
    np.testing.assert_array_equal(f(wide[:, ::-2]), f(wide[:, ::-2].copy()))
    np.testing.assert_array_equal(f(np.broadcast_to(wide[0], (3, 12)))[2], f(wide[0]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8", "longdouble", ">f4"])
def test_any_dtype(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    z = np.array([[3, 2, 0], [1, 1, 1]], dtype=dtype)
    p = px.sparsemax(z)
    kept = np.dtype(dtype).kind in "fV" and np.dtype(dtype).itemsize <= 8
    assert p.dtype == (np.dtype(dtype).newbyteorder("=") if kept else np.float64)
    np.testing.assert_allclose(p.astype(float), [[1, 0, 0], [1 / 3] * 3], rtol=4e-3)
    q = px.entmax(z, alpha=1.3)
    np.testing.assert_allclose(q.astype(float), px.entmax(z.astype(float), alpha=1.3), atol=4e-3)


@pytest.mark.parametrize("z", [np.array([True, False]), np.array([1j, 2]), np.array(["a"]), np.array([None, 1])])
def test_scores_that_are_no_numbers(z):
    with pytest.raises(TypeError, match="z must hold real numbers"):
        px.sparsemax(z)


@pytest.mark.parametrize("name", NAMES)
def test_masked_is_removed(name, rng):
    f = getattr(px, name)
    z = rng.normal(size=(30, 8))
    mask = rng.random((30, 8)) < 0.7
    mask[0] = False
    padded = np.where(mask, z, -np.inf)
    p = f(z, mask=mask)
    np.testing.assert_array_equal(f(padded), p)
    np.testing.assert_array_equal(p[0], 0)
    for row in range(1, 30):
        np.testing.assert_array_equal(p[row][mask[row]], f(z[row][mask[row]]))
        assert (p[row][~mask[row]] == 0).all()
    np.testing.assert_array_equal(f(z, mask=mask[3]), f(z, mask=np.tile(mask[3], (30, 1))))
    # What the mask hides is not looked at.
    np.testing.assert_array_equal(f(np.where(mask, z, np.nan), mask=mask), p)


@pytest.mark.parametrize("name", NAMES)
def test_bad_scores_spoil_their_row_alone(name):
    f = getattr(px, name)
    z = np.zeros((4, 3))
    z[1, 2], z[2, 0] = np.nan, np.inf
    p = f(z)
    assert np.isnan(p[1:3]).all()
    np.testing.assert_array_equal(p[[0, 3]], f(z[[0, 3]]))


def test_parameters_broadcast(rng):
    z = rng.normal(size=(2, 3, 4, 5))
    one = lambda row, a: px.entmax(row, alpha=float(a))  # noqa: E731
    for shape in [(1,), (3, 1, 1), (2, 1, 1, 1), (4, 1), (2, 3, 4, 1), (2, 1, 4, 1), (1, 3, 1, 1), (1, 1, 1, 1)]:
        alpha = rng.uniform(1, 3, size=shape)
        p = px.entmax(z, alpha=alpha)
        full = np.broadcast_to(alpha, (2, 3, 4, 1))[..., 0]
        expected = np.array([one(z[i], full[i]) for i in np.ndindex(2, 3, 4)]).reshape(z.shape)
        np.testing.assert_array_equal(p, expected)
    alpha = rng.uniform(1, 3, size=(2, 1, 4, 5))
    np.testing.assert_array_equal(
        px.entmax(z, alpha=alpha, axis=1),
        np.moveaxis(px.entmax(np.moveaxis(z, 1, -1), alpha=np.moveaxis(alpha, 1, -1)), -1, 1),
    )
    lam = np.array([[0.0], [0.5]])
    assert not np.array_equal(*px.fusedmax(np.tile(z[0, 0, 0], (2, 1)), lam=lam))


def test_gamma_is_a_temperature(rng):
    z = rng.normal(size=(5, 6))
    for name in NAMES:
        if name != "sparsehourglass":
            np.testing.assert_allclose(getattr(px, name)(z, gamma=0.3), getattr(px, name)(z / 0.3), atol=1e-14)


def test_out(rng):
    z = rng.normal(size=(5, 6)).astype(np.float32)
    expected = px.entmax15(z)
    buffer = np.empty((6, 5), np.float32).T
    assert px.entmax15(z, out=buffer) is buffer
    np.testing.assert_array_equal(buffer, expected)
    assert px.entmax15(z, out=z) is z
    np.testing.assert_array_equal(z, expected)
    for bad, error, word in [
        (np.empty((5, 5), np.float32), ValueError, "shape"),
        (np.empty((5, 6)), TypeError, "dtype"),
        ([0.0], TypeError, "NumPy array"),
    ]:
        with pytest.raises(error, match=f"out.*{word}"):
            px.entmax15(z, out=bad)
    z.flags.writeable = False
    with pytest.raises(ValueError, match=r"out.*writable"):
        px.entmax15(np.ones_like(z), out=z)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda z: px.sparsemax(z, axis=2), ValueError, "axis must be between -2 and 1, got 2"),
        (lambda z: px.sparsemax(z, axis=0.5), TypeError, "axis must be an integer"),
        (lambda z: px.sparsemax(1.0), ValueError, "z must have at least one axis"),
        (lambda z: px.sparsemax(z, gamma=0), ValueError, "gamma must be"),
        (lambda z: px.sparsemax(z, gamma="1"), TypeError, "gamma must be a number"),
        (lambda z: px.sparsemax(z, mask=np.ones((3, 3), bool)), ValueError, r"mask must broadcast to shape \(2, 3\)"),
        (lambda z: px.sparsemax(z, mask=np.ones((2, 3))), TypeError, "mask must be boolean"),
        (lambda z: px.sparsemax(np.ma.masked_array(z)), TypeError, "masked array"),
        (lambda z: px.entmax(z, alpha=0), ValueError, "alpha must be"),
        (lambda z: px.entmax(z, alpha=np.nan), ValueError, "alpha must be"),
        (lambda z: px.entmax(z, alpha=[[1.5], [-1]]), ValueError, "alpha must be"),
        (lambda z: px.entmax(z, alpha=[1.5, 1.5, 1.5]), ValueError, "alpha must be a number or broadcast"),
        (lambda z: px.entmax(z, alpha="high"), TypeError, "alpha"),
        (lambda z: px.entmax(z, alpha=None) * px.entmax(z, alpha=object()), TypeError, "alpha"),
        (lambda z: px.fusedmax(z, lam=-1), ValueError, "lam"),
        (lambda z: px.oscarmax(z, lam=[[np.nan]]), ValueError, "lam"),
        (lambda z: px.sq_pnorm_max(z, p=3), ValueError, "p must be"),
        (lambda z: px.ev_softmax(z, eps=-1), ValueError, "eps must be"),
        (lambda z: px.sparsehourglass(z, q=-1), ValueError, "q must be"),
        (lambda z: px.normmax(z, alpha=0.5), ValueError, "alpha must be"),
        (lambda z: px.budget(z, budget=-1), ValueError, "budget must be"),
    ],
)
def test_errors_name_the_argument(call, error, words):
    with pytest.raises(error, match=words):
        call(np.zeros((2, 3)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (1,), (2, 1), (2, 0, 3)])
def test_small_shapes(name, shape):
    p = getattr(px, name)(np.zeros(shape))
    assert p.shape == shape
    if shape[-1] == 1:
        np.testing.assert_array_equal(p, 1)


def test_extreme_scores():
    big = np.float32([1e30, -1e30, 1e30])
    for name in NAMES:
        p = getattr(px, name)(big)
        assert np.isfinite(p).all() and p[0] == p[2], name
    row = np.arange(2**20, dtype=np.float32)
    assert px.sparsemax(row)[-1] == 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("alpha", [1.5, 2, 3])
def test_csr_is_the_dense_result(dtype, alpha, rng):
    sparse = pytest.importorskip("scipy.sparse")
    z = (rng.normal(size=(40, 30)) * 3).astype(dtype)
    mask = rng.random((40, 30)) < 0.8
    indptr, indices, data = px.entmax_csr(z, alpha=alpha, mask=mask)
    assert (indptr.dtype, indices.dtype, data.dtype) == (np.int64, np.int32, dtype)
    dense = sparse.csr_matrix((data.astype(float), indices, indptr), shape=z.shape).toarray()
    # Dense rows of single precision have kernels of their own; the support is the same.
    other = px.entmax(z, alpha=alpha, mask=mask).astype(float)
    np.testing.assert_allclose(dense, other, atol=1e-6 if dtype == np.float32 else 0)
    np.testing.assert_array_equal(dense > 0, other > 0)
    np.testing.assert_array_equal(px.entmax_csr(z.T, alpha=alpha, axis=0, mask=mask.T)[1], indices)
    with pytest.raises(ValueError, match="row 1, index 0"):
        px.entmax_csr([[0.0], [np.nan]])


def test_the_lock_is_released():
    z = np.random.default_rng(0).normal(size=(400, 8192)).astype(np.float32)
    ticks, stop = [], threading.Event()

    def watch():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    for _ in range(20):
        px.oscarmax(z[:20])
        px.entmax(z, alpha=1.3)
    end = time.perf_counter()
    stop.set()
    watcher.join()
    inside = [t for t in ticks if start < t < end]
    assert len(inside) > 10
    # Held through a whole call, the lock would leave gaps as long as the call.
    assert max(np.diff(inside)) < (end - start) / 3


def test_a_forked_child_does_not_wait_for_threads():
    z = np.random.default_rng(0).normal(size=(64, 8192)).astype(np.float32)
    expected = px.entmax15(z)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(px.entmax15(z), expected) else 1)
    for _ in range(200):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, 9)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0


def test_out_of_memory_leaves_the_interpreter_alive():
    code = """
import resource
import numpy as np, parsimax as px
z = np.zeros((1, 50_000_000), np.float32)
limit = int(open('/proc/self/statm').read().split()[0]) * 4096 + (300 << 20)
hard = resource.getrlimit(resource.RLIMIT_AS)[1]
resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
try:
    px.entmax(z, alpha=1.3)
except MemoryError as error:
    print("memory", error)
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
print("alive", px.sparsemax([1.0, 0.0])[0])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    assert "memory" in run.stdout and "alive 1.0" in run.stdout


def test_an_interrupt_leaves_the_interpreter_alive():
    # Again and again, as a person would: Python drops an interrupt that arrives in a callback.
    code = """
import os, signal, threading
import numpy as np, parsimax as px
# A job in the background of a shell inherits an ignored interrupt, and Python would leave it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
small = np.random.default_rng(0).normal(size=(64, 4096))
done = threading.Event()
def press(pause=0.2):
    while not done.wait(pause):
        os.kill(os.getpid(), signal.SIGINT)
        pause = 5
try:
    threading.Thread(target=press, daemon=True).start()
    while True:
        px.oscarmax(small)
except KeyboardInterrupt:
    done.set()
print("interrupted", px.sparsemax([1.0, 0.0])[0])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert run.returncode == 0, run.stderr
    assert "interrupted 1.0" in run.stdout


def test_torch_is_not_imported():
    code = "import parsimax, sys; parsimax.sparsemax([1.0]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_docstrings():
    import doctest

    from parsimax import _functions

    result = doctest.testmod(_functions)
    assert result.attempted > 0 and result.failed == 0
