"""What is measured: ours, PyTorch's, the entmax package's and memcpy, over the same tensors."""

import entmax
import torch
import torch.nn.functional as F

from .timing import Operation
from .workloads import classes

SOFTMAX = "torch softmax"
SOFTMAX_AGAIN = "torch softmax again"
SOFTMAX_BACKWARD = "torch softmax backward"
CROSS_ENTROPY = "torch cross_entropy"
ATTENTION = "torch scaled_dot_product_attention"
MEMCPY = "memcpy"
COPY_BACKWARD = "memcpy, in the backward's place"
ADD_BACKWARD = "torch add, in the backward's place"
ADD_THREE_BACKWARD = "torch addcmul, in the backward's place"
COPY_LOSS = "memcpy, in the loss's place"

ALPHAS = (1.05, 1.1, 1.25, 1.5, 1.75, 2.0, 3.0, 4.0)
QUICK_ALPHAS = (1.25, 1.75, 3.0)


def mappings(native, alphas):
    """Label → (name, options) of everything the registry holds; entmax once for each α."""
    table = {name: (name, "") for name in native.registry() if name != "entmax"}
    table |= {f"entmax α={alpha:g}": ("entmax", f"alpha={alpha}") for alpha in alphas}
    return table


def forward(native, z, alphas, keep):
    """Π(z), dense and sparse, against torch.softmax into a given tensor."""
    out = torch.empty_like(z)
    operations = [
        Operation(SOFTMAX, lambda: torch.softmax(z, -1, out=out)),
        Operation(MEMCPY, native.memcpy(out, z)),
    ]
    for label, mapping in mappings(native, alphas).items():
        operations.append(Operation(f"{label} forward", native.forward(native.mapping(*mapping), z, out)))
    for name in ("sparsemax", "entmax15"):
        operations.append(Operation(f"{name} csr", native.csr(native.mapping(name), z)))
    operations.append(Operation(SOFTMAX_AGAIN, lambda: torch.softmax(z, -1, out=out)))
    for name, run in package(z).items():
        operations.append(Operation(f"{name} (entmax package)", run, slow=True))
    return [operation for operation in operations if keep(operation.name)]


def package(z):
    """The entmax package at its defaults."""
    return {
        "sparsemax": lambda: entmax.sparsemax(z, -1),
        "entmax15": lambda: entmax.entmax15(z, -1),
        "entmax_bisect": lambda: entmax.entmax_bisect(z, 1.25, -1),
    }


def backward(native, z, alphas, keep):
    """Jᵀv against the kernel that PyTorch's softmax runs in its backward pass."""
    generator = torch.Generator().manual_seed(11)
    v = torch.randn(z.shape, generator=generator).to(z.dtype)
    out = torch.empty_like(z)
    soft = torch.softmax(z, -1)

    def torch_backward():
        torch._softmax_backward_data(v, soft, -1, z.dtype, grad_input=out)

    operations = [
        Operation(SOFTMAX_BACKWARD, torch_backward),
        # What memory alone takes: one array read and one written, or two read and one written.
        Operation(COPY_BACKWARD, native.memcpy(out, v)),
        Operation(ADD_BACKWARD, lambda: torch.add(soft, v, out=out)),
        # And what a gradient in α takes, which reads scores, probabilities and gradient.
        Operation(ADD_THREE_BACKWARD, lambda: torch.addcmul(z, soft, v, out=out)),
    ]
    for label, (name, options) in mappings(native, alphas).items():
        names = [f"{label} backward"] + [f"{label} backward with α-gradient"] * (name == "entmax")
        if any(map(keep, names)):
            runs = _backward_runs(native, native.mapping(name, options), z, v, out)
            operations += [Operation(name, run) for name, run in zip(names, runs) if keep(name)]
    return operations


def _backward_runs(native, handle, z, v, out):
    """The backward pass at the mapping's own probabilities, without and with its parameter's gradient."""
    p = torch.empty_like(z)
    native.forward(handle, z, p)()
    return native.vjp(handle, z, p, v, out), native.vjp_with_parameter(handle, z, p, v, out)


def loss(native, z, alphas, keep):
    """Loss and gradient for class targets against cross_entropy forward and backward."""
    y = classes(z.shape)
    leaf = z.detach().requires_grad_()
    gradient = torch.empty_like(z)

    def forget():
        leaf.grad = None

    operations = [
        Operation(CROSS_ENTROPY, lambda: F.cross_entropy(leaf, y).backward(), prepare=forget),
        Operation(COPY_LOSS, native.memcpy(gradient, z)),
    ]
    table = {name: (name, "") for name in ("softmax", "sparsemax", "entmax15")}
    table["entmax α=1.25"] = ("entmax", "alpha=1.25")
    for label, mapping in table.items():
        operations.append(Operation(f"{label} loss", native.loss(native.mapping(*mapping), z, y, gradient)))
    return [operation for operation in operations if keep(operation.name)]


WIDTH = 64
"""Of a head."""


def attention(native, z, alphas, keep):
    """Fused attention against scaled_dot_product_attention; `z` says how many queries and what scores."""
    heads, n = z.shape
    # Scores q·k/√width are products of normal numbers: of scale σ if q is.
    sigma = z.std().item()
    generator = torch.Generator().manual_seed(13)
    q, k, v = (torch.randn(heads, n, WIDTH, generator=generator) for _ in range(3))
    q *= sigma
    out = torch.empty_like(q)
    operations = [Operation(ATTENTION, lambda: F.scaled_dot_product_attention(q, k, v))]
    for name in ("sparsemax", "entmax15"):
        operations.append(Operation(f"{name} attention", native.attention(native.mapping(name), q, k, v, out)))
    return [operation for operation in operations if keep(operation.name)]


GROUPS = {
    "forward": (forward, SOFTMAX),
    "backward": (backward, SOFTMAX_BACKWARD),
    "loss": (loss, CROSS_ENTROPY),
    "attention": (attention, ATTENTION),
}
"""Group → its operations and the one that ratios are taken of."""

FLOORS = {MEMCPY, COPY_BACKWARD, ADD_BACKWARD, ADD_THREE_BACKWARD, COPY_LOSS}
REFERENCES = {SOFTMAX, SOFTMAX_AGAIN, SOFTMAX_BACKWARD, CROSS_ENTROPY, ATTENTION} | FLOORS


def is_ours(name):
    return name not in REFERENCES and "(entmax package)" not in name


def check_results(native, z):
    """Fast and wrong is not fast: the largest difference from what the others compute."""
    z = z[:8]
    worst = {}
    for name, options, expected in (
        ("softmax", "", torch.softmax(z, -1)),
        ("sparsemax", "", entmax.sparsemax(z, -1)),
        ("entmax15", "", entmax.entmax15(z, -1)),
        ("entmax", "alpha=1.25", entmax.entmax_bisect(z, 1.25, -1)),
    ):
        p = torch.empty_like(z)
        native.forward(native.mapping(name, options), z, p)()
        worst[name] = (p - expected).abs().max().item()
    return worst
