"""The goals, as data, and the judge.

A goal holds for every cell that it covers: one that misses decides. Times are on one thread.

Some goals are below what memory allows on the machine at hand. So that nobody has to guess which, a goal names its
floor: an operation, measured beside it, that does nothing but what no algorithm avoids, the reading and writing. What
somebody else's exponential or logarithm takes is no floor: ours may be faster. A cell that misses where the floor itself
is above the limit is out of reach.
"""

import math
import re
from dataclasses import dataclass

from .operations import (
    ADD_BACKWARD,
    ADD_THREE_BACKWARD,
    ATTENTION,
    COPY_BACKWARD,
    COPY_LOSS,
    CROSS_ENTROPY,
    MEMCPY,
    SOFTMAX,
    SOFTMAX_BACKWARD,
)
from .workloads import INPUTS, SCALE_ONE

ANY = (0, math.inf)
WORST = tuple(INPUTS)


@dataclass(frozen=True)
class Goal:
    """`operation` takes at most `limit` times as long as `reference` for these widths and inputs."""

    operation: str
    d: tuple[float, float]
    inputs: tuple[str, ...]
    limit: float
    reference: str

    def floor(self):
        """Forward, scores are read and probabilities written. Backward, probabilities are read and the gradient written;
        in a long row of few probabilities hardly anything else is, in others both factors are read. A gradient in α reads
        the scores too, because between nearly equal entries probabilities have lost the digits it needs. A loss reads
        scores and writes a gradient."""
        if self.reference in (SOFTMAX, MEMCPY):
            return MEMCPY
        if self.reference == SOFTMAX_BACKWARD:
            if "α-gradient" in self.operation:
                return ADD_THREE_BACKWARD
            return COPY_BACKWARD if self.d[0] >= 4096 else ADD_BACKWARD
        return COPY_LOSS if self.reference == CROSS_ENTROPY else None

    def covers(self, cell):
        fits = re.fullmatch(self.operation, cell["operation"]) is not None
        return fits and self.d[0] <= cell["shape"][1] <= self.d[1] and cell["input"] in self.inputs


ALPHA = r"entmax α=[\d.]+"
ALPHA_FROM_15 = r"entmax α=(1\.5|1\.75|2|3|4)"
SHARP = r"(sparsemax|entmax15)"

GOALS = [
    # operation, widths, inputs, limit, reference
    Goal("softmax forward", ANY, SCALE_ONE, 0.42, SOFTMAX),
    Goal("softmax forward", ANY, WORST, 0.5, SOFTMAX),
    Goal("sparsemax forward", (512, math.inf), SCALE_ONE, 0.22, SOFTMAX),
    Goal("sparsemax forward", (64, 64), SCALE_ONE, 0.30, SOFTMAX),
    Goal("sparsemax forward", (32768, math.inf), SCALE_ONE, 1.5, MEMCPY),
    Goal("sparsemax forward", ANY, WORST, 0.6, SOFTMAX),
    Goal("entmax15 forward", (4096, math.inf), SCALE_ONE, 0.25, SOFTMAX),
    Goal("entmax15 forward", (512, 512), SCALE_ONE, 0.30, SOFTMAX),
    Goal("entmax15 forward", (64, 64), SCALE_ONE, 0.40, SOFTMAX),
    Goal("entmax15 forward", ANY, WORST, 0.7, SOFTMAX),
    Goal(f"{ALPHA_FROM_15} forward", (4096, math.inf), SCALE_ONE, 0.4, SOFTMAX),
    Goal(r"entmax α=1\.25 forward", (4096, math.inf), SCALE_ONE, 0.8, SOFTMAX),
    Goal(f"{ALPHA} forward", (0, 512), SCALE_ONE, 1.5, SOFTMAX),
    Goal(f"{ALPHA} forward", ANY, WORST, 2.0, SOFTMAX),
    Goal(f"{SHARP} backward", (4096, math.inf), SCALE_ONE, 0.35, SOFTMAX_BACKWARD),
    Goal(f"{SHARP} backward", (0, 4095), SCALE_ONE, 0.6, SOFTMAX_BACKWARD),
    Goal(f"{SHARP} backward", ANY, WORST, 1.2, SOFTMAX_BACKWARD),
    Goal(f"{ALPHA} backward with α-gradient", ANY, SCALE_ONE, 1.0, SOFTMAX_BACKWARD),
    Goal(f"{ALPHA} backward with α-gradient", ANY, WORST, 1.2, SOFTMAX_BACKWARD),
    Goal(f"{SHARP} loss", ANY, SCALE_ONE, 0.15, CROSS_ENTROPY),
    Goal(f"{SHARP} loss", ANY, WORST, 0.25, CROSS_ENTROPY),
    Goal("sparsemax attention", (2048, 2048), SCALE_ONE, 0.45, ATTENTION),
    Goal("entmax15 attention", (2048, 2048), SCALE_ONE, 0.50, ATTENTION),
    Goal(f"{SHARP} attention", (128, 512), SCALE_ONE, 0.6, ATTENTION),
    Goal(f"{SHARP} attention", ANY, WORST, 1.0, ATTENTION),
    Goal("fusedmax forward", ANY, SCALE_ONE, 3.0, SOFTMAX),
    Goal("oscarmax forward", ANY, SCALE_ONE, 6.0, SOFTMAX),
    Goal("sq-pnorm-max forward", ANY, SCALE_ONE, 2.0, SOFTMAX),
    Goal("ev-softmax forward", ANY, SCALE_ONE, 0.6, SOFTMAX),
]

SLOPE_LIMIT = 1.1
"""Exponent of time against d, the logarithm of an O(d log d) divided out."""

SPEED_UP = 1.8
SPEED_UP_FROM_SECONDS = 150e-6
SLOWER_AT_MOST = 1.05
"""“Never slower” on a clock that is not exact."""


def judge(cells):
    """Every goal with what became of its cells: met, missed, out of reach, and as a whole.

    A goal that misses a cell within reach is missed, whatever the others are. The worst cell within reach stands for it;
    where there is none, the worst of all.
    """
    times = {_key(cell): cell["seconds"] for cell in cells if cell["threads"] == 1}
    return [_judge_one(goal, [cell for cell in cells if cell["threads"] == 1], times) for goal in GOALS]


def _judge_one(goal, cells, times):
    verdict = _describe(goal) | {"limit": goal.limit, "reference": goal.reference, "verdict": "not measured"}
    judged = []
    for cell in cells:
        at = lambda name: times.get(_key(cell | {"operation": name}))
        if goal.covers(cell) and at(goal.reference):
            floor = at(goal.floor()) if goal.reference != MEMCPY else None
            judged.append((cell["seconds"] / at(goal.reference), floor and floor / at(goal.reference), cell))
    if not judged:
        return verdict | {"cells": 0}
    met = [one for one in judged if one[0] <= goal.limit]
    missed = [one for one in judged if one[0] > goal.limit and not (one[1] and one[1] > goal.limit)]
    beyond = len(judged) - len(met) - len(missed)
    word = "missed" if missed else "out of reach" if beyond else "met"
    ratio, floor, cell = max(missed or judged, key=lambda one: one[0])
    where = {key: cell[key] for key in ("operation", "shape", "input")}
    verdict |= {"cells": len(judged), "met": len(met), "beyond": beyond, "verdict": word, "ratio": ratio, "at": where}
    return verdict | ({"floor": floor} if floor else {})


def judge_threads(cells, is_ours):
    """Two threads against one: faster where there is work, never slower where there is little."""
    by_threads = {1: {}, 2: {}}
    for cell in cells:
        if cell["threads"] in by_threads and (is_ours(cell["operation"]) or cell["operation"] == MEMCPY):
            by_threads[cell["threads"]][_key(cell)] = cell
    large, small, memory = [], [], []
    for key, one in by_threads[1].items():
        two = by_threads[2].get(key)
        if two is None:
            continue
        pair = (one["seconds"] / two["seconds"], {k: one[k] for k in ("operation", "shape", "input")})
        if one["operation"] == MEMCPY:
            memory.append(pair)
        else:
            (large if one["seconds"] >= SPEED_UP_FROM_SECONDS else small).append(pair)
    return [
        _threads_verdict("work of 150 µs and more", large, SPEED_UP),
        _threads_verdict("less work", small, 1 / SLOWER_AT_MOST),
        _threads_verdict("memcpy, for comparison", memory, None),
    ]


def _threads_verdict(what, pairs, limit):
    verdict = {"what": what, "limit": limit, "cells": len(pairs), "verdict": "not measured"}
    if pairs:
        worst = min(pairs, key=lambda pair: pair[0])
        ordered = sorted(speed_up for speed_up, _ in pairs)
        verdict |= {"worst": worst[0], "at": worst[1], "median": ordered[len(ordered) // 2]}
        verdict["fulfilled"] = sum(speed_up >= (limit or 0) for speed_up in ordered)
        verdict["verdict"] = "—" if limit is None else "met" if worst[0] >= limit else "missed"
    return verdict


def _key(cell):
    return (cell["operation"], tuple(cell["shape"]), cell["input"])


def _describe(goal):
    low, high = goal.d
    if low == high:
        widths = f"d = {low}"
    elif goal.d == ANY:
        widths = "any d"
    elif high == math.inf:
        widths = f"d ≥ {low}"
    elif low == 0:
        widths = f"d ≤ {high}"
    else:
        widths = f"{low} ≤ d ≤ {high}"
    plain = {ALPHA: "α-entmax", ALPHA_FROM_15: "α-entmax, α ≥ 1.5", SHARP: "sparsemax and entmax15"}
    operation = goal.operation
    for pattern, words in plain.items():
        operation = operation.replace(pattern, words)
    operation = operation.replace("\\.", ".")
    return {"operation": operation, "widths": widths, "inputs": "worst input" if goal.inputs == WORST else "scale ≥ 1"}
