"""The bars of the Python package, measured beside torch in one process and interleaved, best of many.

python measure.py               # overhead of small calls, and time as a fraction of torch's
python measure.py --memory      # peak memory beyond the output (Linux), of all mappings or of those named behind it
"""

import os
import subprocess
import sys
import time

# What is installed is measured, not what a build may have left beside this file.
sys.path.pop(0)

import numpy as np  # noqa: E402
import torch  # noqa: E402

import parsimax  # noqa: E402
import parsimax.torch as px  # noqa: E402


def best(functions, repeats, number=1):
    """The shortest time of each function, in seconds."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            for _ in range(number):
                function()
            times[i] = min(times[i], (time.perf_counter() - start) / number)
    return times


def show(title, functions, repeats, number=1):
    times = best(list(functions.values()), repeats, number)
    ratios = ", ".join(f"{name} {t / times[0]:.2f}" for name, t in zip(functions, times, strict=True))
    print(f"{title}: torch {times[0] * 1e6:.1f} µs; {ratios}")


def speed():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    z = torch.randn(4, 8)
    px.sparsemax(z)
    times = best([lambda: torch.softmax(z, -1), lambda: px.sparsemax(z), lambda: px.entmax15(z)], 50, 2000)
    print(
        "overhead on 4×8, µs: softmax of torch {:.2f}, sparsemax {:.2f}, entmax15 {:.2f}".format(
            *(t * 1e6 for t in times)
        )
    )
    for n, d in [(4096, 64), (1024, 512), (256, 4096), (64, 32768), (16, 131072)]:
        z = torch.randn(n, d)
        v, alpha = torch.randn(n, d), torch.tensor(1.7, requires_grad=True)
        names = ["softmax", "sparsemax", "entmax15", "ev_softmax", "fusedmax", "oscarmax", "sq_pnorm_max"]
        forward = {"torch": lambda: torch.softmax(z, -1), **{k: (lambda f=getattr(px, k): f(z)) for k in names}}
        forward |= {f"entmax {a}": (lambda a=a: px.entmax(z, a)) for a in (1.25, 1.7, 3.0)}
        show(f"forward {n}×{d}", forward, 25)
        leaf = z.requires_grad_()
        graphs = {"torch": torch.softmax(leaf, -1), "sparsemax": px.sparsemax(leaf), "entmax15": px.entmax15(leaf)}
        backward = {k: (lambda p=p: torch.autograd.grad(p, leaf, v, retain_graph=True)) for k, p in graphs.items()}
        p = px.entmax(leaf, alpha)
        backward["entmax 1.7 and alpha"] = lambda: torch.autograd.grad(p, (leaf, alpha), v, retain_graph=True)
        show(f"backward {n}×{d}", backward, 25)
    for n, d in [(256, 32000), (64, 128256)]:
        z, target = torch.randn(n, d, requires_grad=True), torch.randint(d, (n,))
        losses = {"torch": torch.nn.functional.cross_entropy}
        losses |= {k: (lambda z, t, f=getattr(px, f"{k}_loss"): f(z, t, reduction="mean")) for k in names[:3]}
        both = {k: (lambda f=f: torch.autograd.grad(f(z, target), z)) for k, f in losses.items()}
        show(f"loss and gradient {n}×{d}", both, 15)


def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


# Whoever measures many calls in one process wants what was freed to be gone: no page of one call serves the next.
PLAIN_HEAP = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}


def beyond(call):
    """Bytes at the peak of a call beyond those held before and those of the arrays it returns."""
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # forget the peak so far
    before = status("VmRSS")
    result = call()
    arrays = result if isinstance(result, (tuple, list)) else [result]
    return status("VmHWM") - before - sum(a.nbytes for a in arrays if a is not None)


def scores(rows, columns, dtype="float32", scale=1.0, kind="normal"):
    """Rows of scores; the smaller the scale, the larger the support."""
    torch.manual_seed(0)
    z = torch.randn(rows, columns)
    if kind == "ascending":
        z = z.sort().values
    return z.mul_(scale).to(getattr(torch, dtype))


def forwards(f, z):
    """Ways to call a mapping, by what is unusual about them: functions that return all that is new."""
    rows, columns = z.shape
    mask = torch.rand(rows, columns) < 0.8
    sparse = torch.rand(rows, columns) < 0.2
    yield "plain", lambda: f(z)
    yield "mask", lambda: f(z, mask=mask)
    yield "mask that leaves little", lambda: f(z, mask=sparse)
    yield "gamma", lambda: f(z, gamma=0.7)
    if z.dtype == torch.float32:
        columnar, wide = z.t().contiguous(), torch.stack([z, z], dim=-1)
        yield "first axis", lambda: f(columnar, dim=0)
        yield "first axis, mask", lambda: f(columnar, dim=0, mask=mask.t())
        yield "columns one behind the other", lambda: f(columnar.t())
        yield "every other score", lambda: f(wide[..., 0])
        out = torch.empty_like(z).fill_(0)
        yield "out", lambda: [f(z, out=out)][1:]
        array, place = columnar.numpy(), np.ones((rows, columns), np.float32, order="F")
        yield "NumPy, Fortran order", lambda: getattr(parsimax, f.__name__)(array.T)
        yield "NumPy, out in Fortran order", lambda: [getattr(parsimax, f.__name__)(array.T, out=place)][1:]
        yield "NumPy, from the last on", lambda: getattr(parsimax, f.__name__)(z.numpy()[:, ::-1])


def backwards(f, z):
    """Backward passes, as `forwards`."""
    leaf, v = z.clone().requires_grad_(), torch.randn(z.shape).to(z.dtype)
    mask = torch.rand(z.shape) < 0.8
    p, q = f(leaf), f(leaf, mask=mask)
    yield "plain", lambda: torch.autograd.grad(p, leaf, v, retain_graph=True)
    yield "a gradient that is expanded", lambda: torch.autograd.grad(p, leaf, v[:1, :1].expand_as(p), retain_graph=True)
    yield "mask", lambda: torch.autograd.grad(q, leaf, v, retain_graph=True)


def losses(name, z):
    """Losses with their gradient, as `forwards`."""
    f, (rows, columns) = getattr(px, f"{name}_loss"), z.shape
    leaf, classes = z.clone().requires_grad_(), torch.randint(columns, (rows,))
    soft, labels = torch.rand(z.shape), torch.zeros(z.shape, dtype=torch.bool)
    soft /= soft.sum(-1, keepdim=True)
    labels[:, ::1000] = True
    mask = torch.rand(z.shape) < 0.8
    mask[torch.arange(rows), classes] = True

    def run(target, **options):
        (gradient,) = torch.autograd.grad(f(leaf, target, reduction="sum", **options), leaf)
        return gradient

    yield "classes", lambda: run(classes)
    yield "classes, mask", lambda: run(classes, mask=mask)
    yield "classes, smoothing", lambda: run(classes, label_smoothing=0.1)
    yield "distributions", lambda: run(soft)
    yield "sets", lambda: run(labels)
    array, of_array = z.numpy(), getattr(parsimax, f"{name}_loss")
    if name != "oscarmax":  # it needs a place for probabilities
        yield "classes, no gradient", lambda: f(z, classes)
        yield "NumPy, sets, no gradient", lambda: of_array(array, labels.numpy())
    yield "NumPy, distributions", lambda: of_array(array, soft.numpy(), return_grad=True)[1:]
    yield "NumPy, sets", lambda: of_array(array, labels.numpy(), return_grad=True)[1:]


def others(z):
    """What is neither: learned parameters, sparse results, attention."""
    rows = len(z)
    leaf, v = z.clone().requires_grad_(), torch.randn(z.shape)
    alpha = torch.linspace(1.2, 1.8, rows).reshape(rows, 1).requires_grad_()
    p = px.entmax(leaf, alpha)
    yield "entmax, alpha of every row", lambda: px.entmax(z, alpha.detach())
    yield "its backward", lambda: torch.autograd.grad(p, (leaf, alpha), v, retain_graph=True)
    mask = torch.rand(z.shape).numpy() < 0.8
    for scale, dtype in [(1.0, "float32"), (0.01, "float32"), (0.01, "float64"), (0.01, "float16")]:
        array = (scale * z).numpy().astype(dtype)
        label = f"entmax_csr of N(0, {scale}²), {dtype}"
        yield label, lambda: parsimax.entmax_csr(array, 1.5)
        yield f"{label}, mask", lambda: parsimax.entmax_csr(array, 1.5, mask=mask)
        yield f"{label}, α = 3", lambda: parsimax.entmax_csr(array, 3.0)
    across = z.t().contiguous().t()
    for name in ("softmax", "sparsemax", "entmax", "fusedmax", "oscarmax", "sq_pnorm_max", "normmax"):
        yield f"{name}, rows across each other", lambda f=getattr(px, name): f(across)
    x = torch.randn(1, 1024, 64)
    masks = {"": None, ", mask": torch.rand(1024, 1024) < 0.2, ", bias": torch.randn(1024, 1024)}
    layers = [(f"ours, {name}", px.MultiheadAttention(64, 4, batch_first=True, mapping=name)) for name in ATTENTION]
    for kind, layer in [*layers, ("torch's", torch.nn.MultiheadAttention(64, 4, batch_first=True))]:
        for label, attn_mask in masks.items():
            yield f"attention of 1024 queries, {kind}{label}", lambda: attended(layer, x, attn_mask)


ATTENTION = ("sparsemax", "entmax15", "fusedmax", "adaptive")


@torch.no_grad()
def attended(layer, x, attn_mask):
    return layer(x, x, x, need_weights=False, attn_mask=attn_mask)[0]


def memory_of(group, name, *shape_dtype_scale):
    """Measures one group of calls and says how much of each is beyond its output."""
    rows, columns, dtype, scale, kind = shape_dtype_scale
    label = f"{name} {group} {rows}×{columns} {dtype} {kind} {scale}"
    f = getattr(px, name, None)

    def cases(z):
        if group == "others":
            return others(z)
        return losses(name, z) if group == "loss" else {"forward": forwards, "backward": backwards}[group](f, z)

    # Modules, pools and tables are loaded by calls that do not count.
    for _, call in cases(scores(512, 2048, dtype)):
        call()
    for what, call in cases(scores(int(rows), int(columns), dtype, float(scale), kind)):
        extra = beyond(call) / 2**20
        print(f"{'over' if extra > 1 else 'ok  '} {extra:8.2f} MB  {label}: {what}", flush=True)


FORWARD = (
    "softmax",
    "sparsemax",
    "entmax15",
    "entmax",
    "fusedmax",
    "oscarmax",
    "sq_pnorm_max",
    "ev_softmax",
    "sparsehourglass",
    "normmax",
    "budget",
)
BACKWARD = tuple(name for name in FORWARD if name != "budget")
LOSSES = ("softmax", "sparsemax", "entmax15", "entmax", "fusedmax", "oscarmax", "sq_pnorm_max", "normmax", "ev_softmax")


def memory(names):
    """Every mapping, or the ones named: at most a megabyte beyond the output is what the package promises."""
    chosen = [n for n in FORWARD if not names or n in names]
    for name in chosen:
        for shape in [("4096", "512"), ("16", "131072"), ("1", str(4 << 20))]:
            for dtype in ("float32", "float64", "float16", "bfloat16"):
                for scale in ("1", "0.1", "0.01") if dtype == "float32" else ("0.1",):
                    measured("forward", name, *shape, dtype, scale, "normal")
                    if name in BACKWARD:
                        measured("backward", name, *shape, dtype, scale, "normal")
            measured("forward", name, *shape, "float32", "1", "ascending")
            if name in LOSSES:
                measured("loss", name, *shape, "float32", "0.1", "normal")
    if not names or "others" in names:
        for shape in [("4096", "512"), ("2", str(2 << 20))]:
            measured("others", "entmax", *shape, "float32", "0.1", "normal")


def measured(*arguments):
    """One group of calls in a process of its own."""
    subprocess.run([sys.executable, __file__, "--group", *arguments], check=True, env={**os.environ, **PLAIN_HEAP})


if __name__ == "__main__":
    if "--group" in sys.argv:
        memory_of(*sys.argv[2:])
    elif "--memory" in sys.argv:
        memory(sys.argv[2:])
    else:
        speed()
