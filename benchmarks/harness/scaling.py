"""How time grows with d: every mapping from 2^6 to 2^20, with a fitted exponent."""

import math

import torch

from .goals import SLOPE_LIMIT
from .operations import mappings
from .timing import Operation, interleave, warm_up
from .workloads import scores

EXPONENTS = range(6, 21)
QUICK_EXPONENTS = (6, 10, 14, 17, 20)
LEAST_POINTS = 4
TOTAL = 20
"""Every width is measured on 2^20 scores in all, so that caches hold the same share of each."""

INPUTS = ["normal", "dense", "equal", "ascending", "descending"]
QUICK_INPUTS = ["normal", "descending"]
ALPHAS = (1.25, 3.0)


def measure(run, effort):
    """Seconds a row for every mapping, input and width, on one thread."""
    native, quick = run.native, run.options.quick
    costs = native.registry()
    curves = {}
    for exponent in QUICK_EXPONENTS if quick else EXPONENTS:
        shape = (2 ** (TOTAL - exponent), 2**exponent)
        if run.out_of_time(1.0, f"scaling at d = 2^{exponent}"):
            continue
        run.say(f"scaling d = 2^{exponent}")
        for name in QUICK_INPUTS if quick else INPUTS:
            z = scores(shape, name)
            out = torch.empty_like(z)
            operations = [
                Operation(label, native.forward(native.mapping(*mapping), z, out))
                for label, mapping in mappings(native, ALPHAS).items()
                if run.keep(label)
            ]
            run.set_threads(1)
            operations = warm_up(operations, run.say)
            interleave(operations, [1], run.set_threads, effort)
            for operation in operations:
                # A mapping that costs more for some parameters is held to what it costs for others.
                cost = costs[operation.name.split(" ")[0]].split(";")[0]
                curve = curves.setdefault(operation.name, {"mapping": operation.name, "cost": cost, "inputs": {}})
                curve["inputs"].setdefault(name, []).append((shape[1], operation.best(1) / shape[0]))
    return [_judged(curve) for curve in curves.values()]


def _judged(curve):
    """Steepest of all inputs decides."""
    log_factor = "log" in curve["cost"]
    fitted = {name: slope(points, log_factor) for name, points in curve["inputs"].items() if len(points) >= LEAST_POINTS}
    if not fitted:
        return curve | {"slopes": {}, "verdict": "not measured"}
    worst = max(fitted, key=fitted.get)
    verdict = "met" if fitted[worst] <= SLOPE_LIMIT else "missed"
    return curve | {"slopes": fitted, "worst": worst, "slope": fitted[worst], "verdict": verdict}


def slope(points, log_factor):
    """Least squares through (log d, log time); an O(d log d) is divided by its logarithm first."""
    x = [math.log2(d) for d, _ in points]
    y = [math.log2(seconds / (math.log2(d) if log_factor else 1)) for d, seconds in points]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y))
    return covariance / sum((a - mean_x) ** 2 for a in x)
