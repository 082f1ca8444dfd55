"""Results in words and tables."""

import json

from .workloads import INPUTS, label

MARK = {"met": "✅ met", "missed": "❌ missed", "out of reach": "⛔ out of reach", "not measured": "not measured", "—": "—"}


def markdown(results):
    """The whole run as a page."""
    machine = results["machine"]
    kind = "A quick run: few shapes, inputs and rounds." if results["quick"] else "A full run."
    if results["filter"]:
        kind += f" Only what contains “{results['filter']}”."
    parts = [
        f"# Benchmark of {results['date']}",
        f"{kind} {results['seconds']:.0f} s on {machine['cores']} cores of {machine['processor']}; "
        f"PyTorch {machine['torch']}, entmax {machine['entmax']}, {machine['rustc']}, "
        f"commit {machine['commit']}, kernels: parsimax {machine['kernel']}, PyTorch {machine['torch_kernel']}.",
        _noise(results),
        _skipped(results["skipped"]),
        _differences(results["differences"]),
        "## Goals\n\nTime as a fraction of the reference, one thread. The floor is what nothing avoids: a copy of the scores, "
        "or of the gradient, or the sum of two arrays, or of three for a gradient in α. A cell whose floor is above the "
        "limit is beyond reach on this machine; a goal is missed if any other cell misses it. The numbers are those of the "
        "worst cell that misses within reach, or of the worst of all.\n\n"
        + _goals(results),
        "## Two threads\n\nHow many times faster two threads are than one.\n\n" + _threads(results["thread_goals"]),
    ]
    if results["scaling"]:
        parts.append("## Growth with d\n\n" + _scaling(results))
    for group in ("forward", "backward", "loss"):
        for threads in sorted({cell["threads"] for cell in results["cells"]}):
            table = _ratios([c for c in results["cells"] if c["group"] == group and c["threads"] == threads])
            if table:
                parts.append(f"## {group.capitalize()}, threads: {threads}\n\n{table}")
    return "\n\n".join(part for part in parts if part) + "\n"


def as_json(results):
    """The same for programs: a line a cell, and no more digits than the clock has."""
    spell = lambda value: json.dumps(_rounded(value), ensure_ascii=False)
    parts = []
    for key, value in results.items():
        lines = isinstance(value, list) and value and "[\n" + ",\n".join(map(spell, value)) + "\n]"
        parts.append(f"{json.dumps(key)}: {lines or spell(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _rounded(value):
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, (list, tuple)) else value


def summary(results):
    """What the terminal shows."""
    lines = ["", _noise(results), _skipped(results["skipped"]), "", _goals(results), "", _threads(results["thread_goals"])]
    if results["scaling"]:
        lines += ["", _scaling(results)]
    verdicts = [goal["verdict"] for goal in results["goals"] + results["thread_goals"] + results["scaling"]]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in ("met", "missed", "out of reach", "not measured"))
    return "\n".join(lines + ["", f"goals: {counts}"])


def _table(head, rows):
    """A Markdown table whose columns line up in a terminal too."""
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    spell = lambda row: "| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |"
    return "\n".join([spell(head), "|" + "|".join("-" * (width + 2) for width in widths) + "|", *map(spell, rows)])


def _noise(results):
    """Whether other work was going on, and what that did to the clock."""
    sentences = [_noise_of(int(threads), noise) for threads, noise in results["noise"].items() if noise]
    return " ".join(sentences or ["Noise: not measured."]) + f" Load when it began: {results['machine']['load']}."


def _noise_of(threads, noise):
    same = noise["same_against_same"]
    return (
        f"Noise, threads: {threads}: **{noise['words']}**. torch.softmax against itself, over {noise['cells']} cells: ratio "
        f"{same['lowest']:.2f} to {same['highest']:.2f}, nine in ten within {noise['nine_in_ten_within']:.0%} of 1; "
        f"its median round took {noise['median_round_above_best']:.0%} longer than its best."
    )


def _skipped(skipped):
    return f"Out of time, not measured: {'; '.join(skipped)}." if skipped else ""


def _differences(differences):
    if not differences:
        return ""
    listed = ", ".join(f"{mapping} {value:.1e}" for mapping, value in differences.items())
    return f"Largest difference of a probability from PyTorch and the entmax package: {listed}."


def _place(at):
    return f"{at['operation']}, {label(at['shape'])}, {INPUTS[at['input']][0]}"


def _goals(results):
    head = ["operation", "widths", "inputs", "limit", "of", "measured", "floor", "verdict", "met", "beyond", "cell"]
    rows = []
    for goal in results["goals"]:
        measured = f"{goal['ratio']:.2f}" if "ratio" in goal else ""
        place = _place(goal["at"]) if "at" in goal else ""
        facts = [goal["operation"], goal["widths"], goal["inputs"], f"≤ {goal['limit']:g}", goal["reference"]]
        floor = f"{goal['floor']:.2f}" if "floor" in goal else ""
        counts = [f"{goal['met']} of {goal['cells']}", goal["beyond"] or ""] if goal["cells"] else ["", ""]
        rows.append(facts + [measured, floor, MARK[goal["verdict"]], *counts, place])
    return _table(head, rows)


def _threads(verdicts):
    head = ["work", "limit", "worst", "median", "cells that reach it", "verdict", "worst cell"]
    rows = []
    for verdict in verdicts:
        limit = f"≥ {verdict['limit']:.2f}" if verdict["limit"] else ""
        if verdict["cells"]:
            reached = f"{verdict['fulfilled']} of {verdict['cells']}" if verdict["limit"] else ""
            facts = [f"{verdict['worst']:.2f}", f"{verdict['median']:.2f}", reached]
            rows.append([verdict["what"], limit, *facts, MARK[verdict["verdict"]], _place(verdict["at"])])
        else:
            rows.append([verdict["what"], limit, "", "", "", MARK[verdict["verdict"]], ""])
    return _table(head, rows)


def _scaling(results):
    head = ["mapping", "cost", "slope, N(0, 1)", "steepest slope", "input", "limit", "verdict"]
    rows = []
    for curve in results["scaling"]:
        plain = f"{curve['slopes']['normal']:.2f}" if "normal" in curve["slopes"] else ""
        steepest = [f"{curve['slope']:.2f}", INPUTS[curve["worst"]][0]] if curve["slopes"] else ["", ""]
        facts = [curve["mapping"], curve["cost"], plain, *steepest, f"≤ {results['slope_limit']:g}"]
        rows.append(facts + [MARK[curve["verdict"]]])
    return _table(head, rows)


def _ratios(cells):
    """Operations against shapes: the ratio for N(0, 1), and the worst over all inputs."""
    if not cells:
        return ""
    shapes = sorted({tuple(cell["shape"]) for cell in cells}, key=lambda shape: shape[1])
    reference = cells[0]["reference"]
    by_operation = {}
    for cell in cells:
        by_operation.setdefault(cell["operation"], {}).setdefault(tuple(cell["shape"]), []).append(cell)
    rows = []
    for operation, by_shape in by_operation.items():
        rows.append([operation] + [_ratio_entry(by_shape.get(shape, []), reference) for shape in shapes])
    note = f"N(0, 1) … worst input, as a fraction of {reference} (whose own line shows µs)."
    return note + "\n\n" + _table(["operation", *map(label, shapes)], rows)


def _ratio_entry(cells, reference):
    if not cells:
        return ""
    plain = next((cell for cell in cells if cell["input"] == "normal"), cells[0])
    worst = max(cells, key=lambda cell: cell["ratio"])
    if plain["operation"] == reference:
        return f"{plain['seconds'] * 1e6:.0f} µs"
    return f"{plain['ratio']:.2f} … {worst['ratio']:.2f}"
