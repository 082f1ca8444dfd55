"""Measures inflection beside PyTorch; run it by `cargo xtask bench --inflection --data DIR`.

Ours trains a model for a few epochs; then all contenders start from its weights. Each is a process of its own, because
thread pools of two runtimes in one process disturb each other. A round trains on a fixed set of batches, or decodes a
fixed list of words; training, they take turns batch by batch, so that what else the machine does falls on all of them.
Speeds are those of the best time of each batch; ratios are medians over batches and rounds, of times a moment apart.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MAPPINGS = ["entmax15", "softmax"]

# Processes of each of ours where they are compared with each other: two that do the same may differ by 3 %, even in
# medians.
COPIES = 3

# (what is done, who, beside whom, at least): ratios of characters or words per second.
GOALS = [
    ("train", "parsimax entmax15", "torch entmax15", 1.0),
    ("train, ours alone", "parsimax entmax15", "parsimax softmax", 0.97),
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
    parser.add_argument("--rounds", type=int, default=8, help="rounds of each contender (default 8)")
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
        ours, torch = (contenders[f"{who} {mapping}"][0].ask("loss")["loss"] for who in ("parsimax", "torch"))
        # Sums of single precision in another order.
        if abs(ours - torch) > 1e-4 * abs(torch):
            sys.exit(f"{mapping}: our loss is {ours}, that of PyTorch {torch}: these are different models")
        print(f"{mapping}: loss {ours:.6f}, in PyTorch {torch:.6f}")


class Times:
    """Seconds and characters or words of each contender, for the batches of all rounds one after the other."""

    def __init__(self, who):
        self.seconds, self.counts = {name: [] for name in who}, {name: [] for name in who}

    def add(self, name, answer):
        self.seconds[name] += answer["seconds"]
        self.counts[name] += answer["counts"]

    def speeds(self, rounds):
        """Characters or words per second, each batch at its best."""
        speeds = {}
        for name, seconds in self.seconds.items():
            batches = len(seconds) // rounds
            best = [min(seconds[batch::batches]) for batch in range(batches)]
            speeds[name] = sum(self.counts[name][:batches]) / sum(best)
        return speeds

    def ratio(self, ours, reference):
        return statistics.median(b / a for a, b in zip(self.seconds[ours], self.seconds[reference]))


def measure(folder, options):
    """Times, by what is done."""
    contenders = {}
    for mapping in MAPPINGS:
        ours = [options.native, "serve", folder, mapping, mapping]
        torch = [sys.executable, HERE / "inflection_torch.py", folder, mapping, mapping, options.threads]
        contenders[f"parsimax {mapping}"] = [Contender(ours, options.threads) for _ in range(COPIES)]
        contenders[f"torch {mapping}"] = [Contender(torch, options.threads)]
    compare_losses(contenders)
    batches = len(json.loads((folder / "data.json").read_text())["batches"])
    sparse = [name for name in contenders if "softmax" not in name]
    ours = [name for name in contenders if "torch" not in name]
    # What is asked in a round, and of how many processes of each.
    tasks = [
        ("decode, 100 words at once", sparse, [("decode", 500, 100)], 1),
        ("decode, word by word", sparse, [("decode", 40, 1)], 1),
        ("train", list(contenders), [("train", 1)] * batches, 1),
        ("train, ours alone", ours, [("train", 1)] * batches, COPIES),
    ]
    results = {}
    for what, who, questions, copies in tasks:
        if options.only and not what.startswith(options.only):
            continue
        results[what] = Times(who)
        for round in range(options.rounds + 1):
            for question, copy in itertools.product(questions, range(copies)):
                for name in who:
                    answer = contenders[name][copy].ask(*question)
                    if round > 0:
                        results[what].add(name, answer)
                    elif "right" in answer:
                        print(f"{what}, {name}: {answer['right']} of {sum(answer['counts'])} right")
    for contender in itertools.chain(*contenders.values()):
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
            print(f"\nsize {size}, {options.threads} threads, {options.rounds} rounds")
            times, results[size] = measure(folder, options), {}
            for what in times:
                results[size][what] = times[what].speeds(options.rounds)
                for name, speed in results[size][what].items():
                    print(f"  {what:28}{name:20}{speed:10.0f} /s")
            for what, ours, reference, limit in GOALS:
                if what in times:
                    ratio = times[what].ratio(ours, reference)
                    missed += ratio < limit
                    verdict = "met" if ratio >= limit else "MISSED"
                    print(f"  {what}: {ours} / {reference}: {ratio:.2f} (goal {limit}) {verdict}")
    if options.output:
        options.output.write_text(json.dumps(results, indent=1))
    print(f"\n{missed} goals missed" if missed else "\nall goals met")


main()
