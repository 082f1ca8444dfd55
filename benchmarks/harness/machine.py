"""What the numbers were measured on and with."""

import os
import platform
import subprocess
from importlib.metadata import version

import torch


def describe(root):
    """Processor, versions and commit; nothing that names a person or a host."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": version("torch"),
        "entmax": version("entmax"),
        "rustc": _first_line(["rustc", "--version"], root),
        "commit": _first_line(["git", "describe", "--always", "--dirty"], root),
        "load": round(os.getloadavg()[0], 1),
        "kernel": os.environ.get("PARSIMAX_KERNEL", "detected"),
        "torch_kernel": torch.backends.cpu.get_cpu_capability(),
    }


def _processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            facts = dict(line.split(":", 1) for line in lines if ":" in line)
    except OSError:
        return platform.processor()
    name = {key.strip(): value.strip() for key, value in facts.items()}.get("model name", platform.machine())
    flags = facts.get("flags\t\t", "")
    widest = next((word for flag, word in (("avx512f", "AVX-512"), ("avx2", "AVX2")) if f" {flag} " in flags), None)
    return f"{name}, {widest}" if widest else name


def _first_line(command, root):
    try:
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return result.stdout.strip().splitlines()[0]
