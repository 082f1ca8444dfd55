"""Measures parsimax and judges its goals; run it by `cargo xtask bench`.

Everything runs in this process, interleaved, best of N. Results go to benchmarks/results.
"""

import argparse
import datetime
import os
import pathlib
import time

import torch

from harness import chart, goals, machine, noise, operations, report, scaling, workloads
from harness.native import Native
from harness.timing import Effort, interleave, warm_up

HERE = pathlib.Path(__file__).resolve().parent
QUICK_SECONDS = 45


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench", description="Measure parsimax beside PyTorch.")
    parser.add_argument("--native", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="fewer shapes, inputs and rounds: under a minute")
    parser.add_argument("--filter", default="", help="only operations, shapes or inputs that contain this text")
    parser.add_argument("--threads", default="1,2", help="numbers of threads, separated by commas (default 1,2)")
    parser.add_argument("--rounds", type=int, help="rounds at most (default 40, quick 6)")
    parser.add_argument("--level", choices=["avx2", "avx512"], help="force both sides to an instruction set")
    parser.add_argument("--no-scaling", action="store_true", help="leave out time against d")
    parser.add_argument("--models", action="store_true", help="training steps of whole models instead; has its own --help")
    parser.add_argument("--output", type=pathlib.Path, default=HERE / "results", help="folder of the results")
    options = parser.parse_args()
    try:
        options.threads = [int(count) for count in options.threads.split(",")]
    except ValueError:
        parser.error(f"--threads takes numbers separated by commas, not {options.threads!r}")
    if min(options.threads) < 1:
        parser.error("--threads takes numbers of at least 1")
    if len({count for count in options.threads if count > 1}) > 1:
        parser.error("--threads takes one number above 1: a process has one pool")
    if options.level:
        # Both look when they first compute, which is later than this.
        os.environ |= {"PARSIMAX_KERNEL": options.level, "ATEN_CPU_CAPABILITY": options.level}
    return options


class Run:
    """One run: what was asked for, and what was measured so far."""

    def __init__(self, options):
        self.options = options
        self.native = Native(options.native)
        self.cells, self.repeats, self.differences, self.skipped = [], {}, {}, []
        self.machine = machine.describe(HERE.parent)
        self.start = time.perf_counter()

    def say(self, text):
        print(f"[{time.perf_counter() - self.start:6.1f} s] {text}", flush=True)

    def set_threads(self, count):
        torch.set_num_threads(count)
        self.native.set_threads(count)

    def effort(self, quick_seconds, full_seconds):
        if self.options.quick:
            return Effort(quick_seconds, self.options.rounds or 6, least_rounds=1, slow_rounds=1, slow_threads=1)
        return Effort(full_seconds, self.options.rounds or 40, least_rounds=3, slow_rounds=2, slow_threads=1)

    def out_of_time(self, share, what):
        """Whether a quick run has used up this share of its minute."""
        late = self.options.quick and time.perf_counter() - self.start > share * QUICK_SECONDS
        if late:
            self.skipped.append(what)
        return late

    def keep(self, *texts):
        return any(self.options.filter in text for text in texts)

    def cell(self, group, shape, name, effort):
        """Measures all operations of a group on one input."""
        place = (workloads.label(shape), workloads.INPUTS[name][0])
        if self.out_of_time(0.8, f"{group} {' '.join(place)}"):
            return
        build, reference = operations.GROUPS[group]
        alphas = operations.QUICK_ALPHAS if self.options.quick else operations.ALPHAS
        keep = lambda operation: operation in operations.REFERENCES or self.keep(operation, name, *place)
        self.set_threads(max(self.options.threads))
        z = workloads.scores(shape, name)
        kept = build(self.native, z, alphas, keep)
        if self.options.filter and all(operation.name in operations.REFERENCES for operation in kept):
            return
        self.say(f"{group} {' '.join(place)}")
        if group == "forward":
            self.compare(z)
        kept = warm_up(kept, self.say)
        interleave(kept, self.options.threads, self.set_threads, effort)
        self.collect(group, shape, name, reference, {operation.name: operation for operation in kept})

    def compare(self, z):
        for mapping, difference in operations.check_results(self.native, z).items():
            self.differences[mapping] = max(difference, self.differences.get(mapping, 0.0))

    def collect(self, group, shape, name, reference, measured):
        for threads in self.options.threads:
            base = measured[reference].best(threads)
            for operation in measured.values():
                if threads not in operation.samples:
                    continue
                best = operation.best(threads)
                cell = {"group": group, "operation": operation.name, "shape": list(shape), "input": name}
                cell |= {"threads": threads, "seconds": best, "reference": reference, "ratio": best / base}
                cell |= {"rounds": len(operation.samples[threads]), "spread": operation.spread(threads)}
                self.cells.append(cell)
            if operations.SOFTMAX_AGAIN in measured:
                pair = (measured[operations.SOFTMAX], measured[operations.SOFTMAX_AGAIN])
                repeats = self.repeats.setdefault(threads, [])
                repeats.append([(one.best(threads), one.spread(threads)) for one in pair])

    def measure(self):
        quick = self.options.quick
        inputs = workloads.QUICK_INPUTS if quick else list(workloads.INPUTS)
        plan = [("forward", shape) for shape in (workloads.QUICK_SHAPES if quick else workloads.SHAPES)]
        plan += [("backward", shape) for _, shape in plan]
        plan += [("loss", shape) for shape in (workloads.QUICK_VOCABULARIES if quick else workloads.VOCABULARIES)]
        effort = self.effort(1.0, 4.5)
        cells = [(group, shape, name) for group, shape in plan for name in inputs]
        attentions = workloads.QUICK_ATTENTIONS if quick else workloads.ATTENTIONS
        kinds = [name for name in workloads.ATTENTION_INPUTS if name in inputs]
        cells += [("attention", shape, name) for shape in attentions for name in kinds]
        if quick:
            # What comes last is what a slow machine leaves out.
            cells.sort(key=lambda cell: inputs.index(cell[2]))
        for group, shape, name in cells:
            self.cell(group, shape, name, effort)

    def results(self, curves):
        return {
            "date": datetime.date.today().isoformat(),
            "quick": self.options.quick,
            "filter": self.options.filter,
            "seconds": time.perf_counter() - self.start,
            "machine": self.machine,
            "skipped": self.skipped,
            "noise": {threads: noise.assess(repeats) for threads, repeats in self.repeats.items()},
            "differences": self.differences,
            "goals": goals.judge(self.cells),
            "thread_goals": goals.judge_threads(self.cells, operations.is_ours),
            "slope_limit": goals.SLOPE_LIMIT,
            "scaling": curves,
            "cells": self.cells,
        }


def main():
    options = arguments()
    run = Run(options)
    run.measure()
    curves = []
    if not options.no_scaling:
        effort = run.effort(0.05, 0.6)
        curves = scaling.measure(run, effort)
    results = run.results(curves)
    options.output.mkdir(parents=True, exist_ok=True)
    name = [results["date"], *(["quick"] if options.quick else []), *([options.level] if options.level else [])]
    stem = options.output / "-".join(name)
    written = [stem.with_suffix(".json"), stem.with_suffix(".md")]
    written[0].write_text(report.as_json(results))
    written[1].write_text(report.markdown(results))
    for suffix, draw in (("", chart.ratios), ("-scaling", chart.scaling)):
        picture = draw(results)
        if picture:
            written.append(stem.with_name(f"{stem.name}{suffix}.svg"))
            written[-1].write_text(picture)
    print(report.summary(results))
    run.say("wrote " + ", ".join(str(path) for path in written))


if __name__ == "__main__":
    main()
