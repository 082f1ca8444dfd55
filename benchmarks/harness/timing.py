"""Interleaved timing, best of N."""

import statistics
import time
from dataclasses import dataclass, field
from typing import Callable

BURST_SECONDS = 0.002
BURST_CALLS = 8
LEAST_CALLS = 3
"""The first call of a burst finds the caches as its neighbour left them; the best of three does not."""
LONG_SECONDS = 0.02
"""What takes longer is not run again for the sake of its caches."""
QUIET_SECONDS = 0.005
"""Idle workers of a thread pool spin for some milliseconds; nobody is timed beside them."""


@dataclass
class Operation:
    """Something to time: `prepare` runs before each call, outside the clock."""

    name: str
    run: Callable[[], None]
    prepare: Callable[[], None] | None = None
    slow: bool = False
    samples: dict = field(default_factory=dict)
    """Threads → seconds, one per round: the best call of a burst."""

    def best(self, threads):
        return min(self.samples[threads])

    def spread(self, threads):
        """How far the median round lies above the best."""
        return statistics.median(self.samples[threads]) / self.best(threads) - 1


@dataclass(frozen=True)
class Effort:
    """How long a cell may take: so many rounds, fewer when the seconds are over."""

    seconds: float
    rounds: int
    least_rounds: int
    slow_rounds: int
    slow_threads: int
    """What is slow runs in the first rounds only, and only on so many threads."""


def _burst(operation):
    """The best of a few calls in a row, so that every operation meets its own data in cache."""
    best, spent = float("inf"), 0.0
    for calls in range(1, BURST_CALLS + 1):
        if operation.prepare:
            operation.prepare()
        start = time.perf_counter()
        operation.run()
        elapsed = time.perf_counter() - start
        best, spent = min(best, elapsed), spent + elapsed
        enough = calls >= LEAST_CALLS or spent > LONG_SECONDS
        if enough and spent > BURST_SECONDS:
            break
    return best


def warm_up(operations, complain):
    """One call of each; leaves out, with its reason, whatever fails."""
    working = []
    for operation in operations:
        try:
            if not operation.slow:
                operation.run()
            working.append(operation)
        except RuntimeError as error:
            complain(f"{operation.name} failed: {error}")
    return working


def interleave(operations, threads, set_threads, effort):
    """Times all operations in turn, round by round, for every number of threads.

    A round visits each operation once, so a slow moment of the machine hits all of them; the best
    over the rounds is what the machine can do. Numbers of threads come one after the other, as the
    pools of a larger one would disturb a smaller one.
    """
    for count in threads:
        set_threads(count)
        time.sleep(QUIET_SECONDS)
        start = time.perf_counter()
        for index in range(effort.rounds):
            if index >= effort.least_rounds and time.perf_counter() - start > effort.seconds / len(threads):
                break
            for operation in operations:
                if operation.slow and not (index < effort.slow_rounds and count <= effort.slow_threads):
                    continue
                if count > 1:
                    time.sleep(QUIET_SECONDS)
                operation.samples.setdefault(count, []).append(_burst(operation))
