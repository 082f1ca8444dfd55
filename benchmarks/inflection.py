"""Measures inflection beside PyTorch; run it by `cargo xtask bench --inflection --data DIR`.

Ours trains a model for a few epochs; then all contenders start from its weights. Each is a process of its own, because
thread pools of two runtimes in one process disturb each other. They take turns: a turn trains on a fixed set of
batches, or decodes a fixed list of words. What counts is the best turn of each, and ratios of those.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MAPPINGS = ["entmax15", "softmax"]

# (what is done, who, beside whom, at least): ratios of characters or words per second.
GOALS = [
    ("train", "parsimax entmax15", "torch entmax15", 1.0),
    ("train", "parsimax entmax15", "parsimax softmax", 0.97),
    ("decode, 100 words at once", "parsimax entmax15", "torch entmax15", 2.0),
    ("decode, word by word", "parsimax entmax15", "torch entmax15", 5.0),
]


class Contender:
    """A process that works when it is told to."""

    def __init__(self, command, threads):
        environment = os.environ | {"RAYON_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, *words):
        print(*words, file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"a contender stopped: {self.process.args}")
        return json.loads(answer)

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def arguments():
    parser = argparse.ArgumentParser(prog="cargo xtask bench --inflection", description=__doc__.splitlines()[0])
    parser.add_argument("--native", required=True, type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--data", required=True, type=pathlib.Path, help="the shared task's files")
    parser.add_argument("--size", type=int, action="append", help="only this size (default 128 and 300)")
    parser.add_argument("--epochs", type=int, default=6, help="how long the model is trained before (default 6)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default 2)")
    parser.add_argument("--folder", type=pathlib.Path, help="keep the trained models here and use them again")
    parser.add_argument("--prepare", action="store_true", help="train the models and stop")
    parser.add_argument("--only", choices=["train", "decode"], help="measure only this")
    parser.add_argument("--output", type=pathlib.Path, help="write the figures there, as JSON")
    return parser.parse_args()


def prepare(folder, size, options):
    folder = folder / f"size-{size}"
    if not (folder / "data.json").exists():
        subprocess.run([options.native, "prepare", options.data, str(size), folder, str(options.epochs)], check=True)
    return folder


def compare_losses(contenders):
    """The same weights and the same words have the same loss, or the models are not the same."""
    for mapping in MAPPINGS:
        ours, torch = (contenders[f"{who} {mapping}"].ask("loss")["loss"] for who in ("parsimax", "torch"))
        # Sums of single precision in another order.
        if abs(ours - torch) > 1e-4 * abs(torch):
            sys.exit(f"{mapping}: our loss is {ours}, that of PyTorch {torch}: these are different models")
        print(f"{mapping}: loss {ours:.6f}, in PyTorch {torch:.6f}")


def measure(folder, options):
    """Characters or words per second, by what is done and who does it."""
    contenders = {}
    for mapping in MAPPINGS:
        ours = [options.native, "serve", folder, mapping, mapping]
        torch = [sys.executable, HERE / "inflection_torch.py", folder, mapping, mapping, options.threads]
        contenders[f"parsimax {mapping}"] = Contender(ours, options.threads)
        contenders[f"torch {mapping}"] = Contender(torch, options.threads)
    compare_losses(contenders)
    batches = len(json.loads((folder / "data.json").read_text())["batches"])
    sparse = [name for name in contenders if "softmax" not in name]
    tasks = [
        ("decode, 100 words at once", sparse, ("decode", 500, 100)),
        ("decode, word by word", sparse, ("decode", 40, 1)),
        ("train", list(contenders), ("train", batches)),
    ]
    results = {}
    for what, who, question in tasks:
        if options.only and not what.startswith(options.only):
            continue
        speeds = {name: 0.0 for name in who}
        for round in range(options.rounds + 1):
            for name in who:
                answer = contenders[name].ask(*question)
                speed = sum(answer["counts"]) / sum(answer["seconds"])
                if round > 0:
                    speeds[name] = max(speeds[name], speed)
                elif "right" in answer:
                    print(f"{what}, {name}: {answer['right']} of {sum(answer['counts'])} right")
        results[what] = speeds
    for contender in contenders.values():
        contender.stop()
    return results


def main():
    options = arguments()
    results, missed = {}, 0
    with tempfile.TemporaryDirectory() as temporary:
        kept = options.folder or pathlib.Path(temporary)
        for size in options.size or [128, 300]:
            folder = prepare(kept, size, options)
            if options.prepare:
                continue
            print(f"\nsize {size}, {options.threads} threads, best of {options.rounds} turns")
            results[size] = measure(folder, options)
            for what, speeds in results[size].items():
                for name, speed in speeds.items():
                    print(f"  {what:28}{name:20}{speed:10.0f} /s")
            for what, ours, reference, limit in GOALS:
                if what in results[size]:
                    ratio = results[size][what][ours] / results[size][what][reference]
                    missed += ratio < limit
                    verdict = "met" if ratio >= limit else "MISSED"
                    print(f"  {what}: {ours} / {reference}: {ratio:.2f} (goal {limit}) {verdict}")
    if options.output:
        options.output.write_text(json.dumps(results, indent=1))
    print(f"\n{missed} goals missed" if missed else "\nall goals met")


main()
