"""The files that the Rust tests load are what torch writes today."""

import json
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

HERE = pathlib.Path(__file__).resolve().parents[2] / "crates" / "parsimax-burn" / "tests"


def load(path):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], np.float32).reshape(entry["shape"])
        for name, entry in header.items()
    }


@pytest.mark.skipif(not HERE.exists(), reason="the Rust sources are not here")
def test_fixtures_of_attention_are_reproduced(tmp_path):
    # MKL sums in an order of its own on every processor, unless it is told before it starts: outputs of two decoder
    # layers were 1.1e-6 apart.
    script = [sys.executable, str(HERE / "fixtures" / "attention.py"), str(tmp_path)]
    subprocess.run(script, check=True, env=os.environ | {"MKL_CBWR": "COMPATIBLE"})
    written = sorted(tmp_path.iterdir())
    assert len(written) == 14
    for path in written:
        ours, theirs = load(HERE / "fixtures" / path.name), load(path)
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            # Sums of torch may run in another order on another machine.
            np.testing.assert_allclose(ours[name], value, rtol=0, atol=1e-6, err_msg=f"{path.name}: {name}")
