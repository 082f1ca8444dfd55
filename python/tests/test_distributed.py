"""Two processes under torchrun train the same weights as one."""

import pathlib
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "ddp.py"


def run(*command):
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_train_the_weights_of_one(tmp_path):
    options = [str(EXAMPLE), "--steps", "20", "--double"]
    run(*options, "--save", str(tmp_path / "one.pt"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
    text = run(*launcher, "--master-port", str(port), *options, "--save", str(tmp_path / "two.pt"))
    assert "2 processes" in text
    one, two = (torch.load(tmp_path / name) for name in ("one.pt", "two.pt"))
    assert one.keys() == two.keys() and "attention.mapping.a" in one
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=1e-9, rtol=0)
    torch.manual_seed(0)
    assert (one["attention.mapping.a"] != 0).all()
