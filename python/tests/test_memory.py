"""How much memory calls take beyond their results: at most a megabyte, however long a row is (measured by Linux)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

MEASURE = Path(__file__).parent.parent / "measure.py"
# Rows of a million: a copy of one would be seen.
ROW = ("1", str(1 << 20))

pytestmark = pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="the peak of a process cannot be reset here"
)


@pytest.mark.parametrize(
    "group",
    [
        ("loss", "sparsemax", *ROW, "float32", "0.1", "normal"),
        ("loss", "entmax", *ROW, "float32", "0.1", "normal"),
        ("loss", "fusedmax", *ROW, "float32", "0.1", "normal"),
        ("loss", "ev_softmax", *ROW, "float32", "0.1", "normal"),
        ("forward", "budget", *ROW, "float32", "0.1", "normal"),
        ("forward", "ev_softmax", *ROW, "bfloat16", "0.1", "normal"),
        ("backward", "normmax", *ROW, "float16", "0.1", "normal"),
        ("forward", "fusedmax", *ROW, "bfloat16", "0.1", "normal"),
        ("backward", "fusedmax", *ROW, "float16", "0.1", "normal"),
        ("forward", "oscarmax", *ROW, "float16", "0.1", "normal"),
        ("backward", "oscarmax", *ROW, "float64", "0.1", "normal"),
        ("others", "entmax", "2", str(1 << 19), "float32", "0.1", "normal"),
    ],
    ids=lambda group: " ".join(group),
)
def test_no_call_takes_more_than_a_megabyte_beyond_its_result(group):
    plain_heap = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_ARENA_MAX": "1"}
    command = [sys.executable, str(MEASURE), "--group", *group]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **plain_heap})
    lines = done.stdout.splitlines()
    # What torch's own layer takes is there to compare with.
    over = [line for line in lines if line.startswith("over") and "torch's" not in line]
    assert len(lines) > 2 and not over, "\n".join(over)
