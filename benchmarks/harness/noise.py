"""How far the clock of this run can be trusted."""

import statistics


def assess(rounds):
    """`rounds`: for every cell the (best, spread) of torch.softmax and of the same again.

    Two measurements of one thing should agree: their ratio is what a ratio of two different things
    is uncertain by.
    """
    ratios = sorted(again[0] / first[0] for first, again in rounds)
    spreads = [first[1] for first, _ in rounds]
    if not ratios:
        return None
    off = sorted(abs(ratio - 1) for ratio in ratios)
    quantile = off[min(len(off) - 1, int(0.9 * len(off)))]
    return {
        "cells": len(ratios),
        "same_against_same": {"lowest": ratios[0], "median": statistics.median(ratios), "highest": ratios[-1]},
        "nine_in_ten_within": quantile,
        "median_round_above_best": statistics.median(spreads),
        "words": _words(quantile),
    }


def _words(quantile):
    for limit, word in ((0.03, "quiet"), (0.08, "slightly noisy"), (0.2, "noisy")):
        if quantile <= limit:
            return word
    return "too noisy to judge by"
