"""The bars of the Python package, measured beside torch in one process and interleaved, best of many.

python measure.py               # overhead of small calls, and time as a fraction of torch's
python measure.py --memory      # peak memory beyond the output (Linux)
"""

import subprocess
import sys
import time

# What is installed is measured, not what a build may have left beside this file.
sys.path.pop(0)

import torch  # noqa: E402

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


def memory_of(name, rows, columns, dtype, scale):
    f, dtype = getattr(px, name), getattr(torch, dtype)
    f(torch.randn(64, 2048, dtype=dtype))
    z = torch.randn(int(rows), int(columns), dtype=dtype).mul_(float(scale))
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # forget the peak so far
    before = status("VmRSS")
    p = f(z)
    beyond = status("VmHWM") - before - p.numel() * p.element_size()
    print(f"{name} {rows}×{columns} {dtype}, N(0, {scale}²): {beyond / 2**20:.2f} MB beyond the output")


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


def memory():
    for name in FORWARD:
        for rows, columns in [(4096, 512), (16, 131072), (1, 1 << 20), (1, 8 << 20)]:
            for dtype in ("float32", "float64"):
                for scale in ("1", "0.1"):
                    arguments = ["--memory", name, str(rows), str(columns), dtype, scale]
                    subprocess.run([sys.executable, __file__, *arguments], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        memory_of(*sys.argv[2:])
    elif "--memory" in sys.argv:
        memory()
    else:
        speed()
