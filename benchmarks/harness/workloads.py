"""What is measured on: the shapes and inputs of the goals."""

import math

import torch

SHAPES = [(4096, 64), (1024, 512), (256, 4096), (64, 32768), (16, 131072)]
VOCABULARIES = [(256, 32000), (64, 128256)]
QUICK_SHAPES = [(4096, 64), (256, 4096), (64, 32768)]
QUICK_VOCABULARIES = [(64, 32000)]

ATTENTIONS = [(64, 128), (32, 256), (16, 512), (8, 2048)]
"""Heads and queries; a head has as many keys as queries."""
QUICK_ATTENTIONS = [(16, 256), (2, 2048)]
ATTENTION_INPUTS = ["normal", "peaked", "dense"]

SCALE_ONE = ("normal", "peaked")
"""The inputs of the goals' first column: scores of scale 1 and more."""

QUICK_INPUTS = ["normal", "dense"]


def _padded(shape, normal):
    """Rows that end early: between a quarter and all of a row takes part."""
    rows, d = shape
    generator = torch.Generator().manual_seed(7)
    lengths = (d * (0.25 + 0.75 * torch.rand(rows, 1, generator=generator))).ceil()
    return normal.masked_fill(torch.arange(d) >= lengths, -math.inf)


INPUTS = {
    "normal": ("N(0, 1)", lambda shape, normal: normal),
    "peaked": ("N(0, 2²)", lambda shape, normal: 2 * normal),
    "intermediate": ("N(0, 0.1²)", lambda shape, normal: 0.1 * normal),
    "dense": ("N(0, 0.01²)", lambda shape, normal: 0.01 * normal),
    "equal": ("all equal", lambda shape, normal: torch.ones_like(normal)),
    "padded": ("−inf padding", _padded),
    "ascending": ("sorted up", lambda shape, normal: normal.sort(dim=-1).values),
    "descending": ("sorted down", lambda shape, normal: normal.sort(dim=-1, descending=True).values),
}
"""Name → how tables call it, and how it is made from standard normal numbers."""


def scores(shape, name, dtype=torch.float32):
    """Scores of that shape: the same ones in every run."""
    generator = torch.Generator().manual_seed(shape[0] * 1_000_003 + shape[1])
    normal = torch.randn(shape, generator=generator)
    return INPUTS[name][1](shape, normal).to(dtype).contiguous()


def classes(shape):
    """A class per row, in the part of a row that is never padding."""
    generator = torch.Generator().manual_seed(shape[0] + shape[1])
    return torch.randint(0, shape[1] // 4, (shape[0],), generator=generator)


def label(shape):
    """Such as 256×4096."""
    return f"{shape[0]}×{shape[1]}"
