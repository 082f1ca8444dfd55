"""Measures training steps of whole models beside PyTorch; run it by `cargo xtask bench --models`.

Every contender is a process of its own, because thread pools of two runtimes in one process disturb
each other. All are started at once and wait; they take a few steps in turn, round after round. What
counts beside PyTorch is the best step of each, and ratios of those. Our own models are told apart by
less than two processes of the same differ, so several of each take single steps in turn, and the median
of the ratios of neighbouring steps counts.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MAPPINGS = ["softmax", "entmax15", "learned"]
TOKENS = {"lstm": 64 * 24, "transformer": 32 * 24}

# What, of what, at least: ratios of tokens per second.
GOALS = [
    ("parsimax softmax", "torch softmax", 0.9),
    ("parsimax entmax15", "torch softmax", 0.9),
    ("parsimax entmax15", "torch entmax15", 1.5),
    ("parsimax learned", "torch learned", 1.5),
]
KEPT = 0.97
"""Of the tokens per second of softmax, by each of our sparse models."""

COPIES = 3
"""Processes of each of ours where they are compared with each other."""


class Contender:
    """A process that trains when it is told to."""

    def __init__(self, command, threads):
        environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.seconds, self.peak = [], 0

    def run(self, steps, counts=True):
        print(steps, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"a contender stopped: {self.process.args}")
        answer = json.loads(answer)
        self.peak = answer["peak_kb"]
        if counts:
            self.seconds += answer["seconds"]
        return answer["seconds"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench --models", description=__doc__.splitlines()[0])
    parser.add_argument("--native", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--model", choices=list(TOKENS), action="append", help="only this model")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each contender (default 15)")
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn (default 2)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default 2)")
    parser.add_argument("--ours", action="store_true", help="only our models, beside each other")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures there, as JSON")
    return parser.parse_args()


def measure(model, options):
    """Best seconds and peak memory of every contender."""
    contenders = {}
    for mapping in MAPPINGS:
        ours = [options.native, model, mapping, "--threads", str(options.threads)]
        torch = [sys.executable, HERE / "models_torch.py", model, mapping, str(options.threads)]
        contenders[f"parsimax {mapping}"] = Contender(ours, options.threads)
        contenders[f"torch {mapping}"] = Contender(torch, options.threads)
    for contender in contenders.values():
        contender.run(2, counts=False)
    for _ in range(options.rounds):
        for contender in contenders.values():
            contender.run(options.steps)
    for contender in contenders.values():
        contender.stop()
    return {
        name: {"best": min(it.seconds), "median": sorted(it.seconds)[len(it.seconds) // 2], "peak_mb": it.peak / 1024}
        for name, it in contenders.items()
    }


def compare_ours(model, options):
    """Tokens per second of our sparse models as a share of softmax's: medians of neighbouring steps, by mapping and by
    copy of softmax, which says how far such a median is to be trusted."""
    ours = lambda mapping: Contender([options.native, model, mapping, "--threads", str(options.threads)], options.threads)
    copies = [{mapping: ours(mapping) for mapping in MAPPINGS} for _ in range(COPIES)]
    ratios = {mapping: [] for mapping in MAPPINGS[1:]}
    for copy in copies:
        for contender in copy.values():
            contender.run(2, counts=False)
    steps = options.rounds * options.steps
    for step in range(steps):
        for copy in copies:
            order = list(copy) if step % 2 == 0 else list(reversed(copy))
            seconds = {mapping: copy[mapping].run(1)[0] for mapping in order}
            for mapping, these in ratios.items():
                these.append(seconds["softmax"] / seconds[mapping])
    same = [copy["softmax"].seconds for copy in copies]
    apart = [statistics.median(a / b for a, b in zip(same[0], other)) for other in same[1:]]
    for copy in copies:
        for contender in copy.values():
            contender.stop()
    return {mapping: statistics.median(these) for mapping, these in ratios.items()}, apart


def judge_ours(model, options):
    """Prints how our models compare; returns the figures and how many goals they miss."""
    kept, apart = compare_ours(model, options)
    steps = options.rounds * options.steps * COPIES
    print(f"\n{model}, ours beside each other: medians of {steps} pairs of steps, {COPIES} processes of each")
    for mapping, ratio in kept.items():
        print(f"  parsimax {mapping} / parsimax softmax: {ratio:.3f} (goal {KEPT}) {'met' if ratio >= KEPT else 'MISSED'}")
    print(f"  parsimax softmax / itself: {', '.join(f'{ratio:.3f}' for ratio in apart)}")
    return {"kept": kept, "softmax against itself": apart}, sum(ratio < KEPT for ratio in kept.values())


def main():
    options = arguments()
    results, missed = {}, 0
    for model in options.model or TOKENS:
        figures, misses = judge_ours(model, options)
        missed += misses
        if options.ours:
            results[model] = figures
            continue
        results[model] = measure(model, options)
        base = results[model]["torch softmax"]["best"]
        print(f"\n{model}, {options.threads} threads: best of {options.rounds * options.steps} steps")
        print(f"{'':22}{'ms':>8}{'median':>8}{'tokens/s':>10}{'× torch':>9}{'peak MB':>9}")
        for name, it in results[model].items():
            speed = TOKENS[model] / it["best"]
            print(
                f"{name:22}{1e3 * it['best']:8.1f}{1e3 * it['median']:8.1f}{speed:10.0f}"
                f"{base / it['best']:9.2f}{it['peak_mb']:9.0f}"
            )
        for ours, reference, limit in GOALS:
            ratio = results[model][reference]["best"] / results[model][ours]["best"]
            missed += ratio < limit
            print(f"  {ours} / {reference}: {ratio:.2f} (goal {limit}) {'met' if ratio >= limit else 'MISSED'}")
        for mapping in MAPPINGS:
            ours, torch = (results[model][f"{who} {mapping}"]["peak_mb"] for who in ("parsimax", "torch"))
            missed += ours >= torch
            print(f"  peak memory, {mapping}: {ours:.0f} MB of {torch:.0f} {'met' if ours < torch else 'MISSED'}")
        results[model] |= figures
    if options.output:
        options.output.write_text(json.dumps(results, indent=1))
    print(f"\n{missed} goals missed" if missed else "\nall goals met")


main()
