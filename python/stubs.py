"""Writes the .pyi files of the public modules from what the modules are; ``--check`` only compares.

python stubs.py [--check]
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import sys

HERE = pathlib.Path(__file__).parent / "parsimax"
HEAD = "# Written by stubs.py; do not edit.\n"

NUMPY = {
    "z": "ArrayLike",
    "target": "ArrayLike | Sequence[Collection[int]]",
    "alpha": "ArrayLike",
    "lam": "ArrayLike",
    "p": "ArrayLike",
    "eps": "float",
    "q": "float",
    "budget": "float",
    "axis": "int",
    "gamma": "float",
    "exact": "bool",
    "mask": "ArrayLike | None",
    "out": "NDArray[Any] | None",
    "reduction": "str",
    "ignore_index": "int",
    "label_smoothing": "float",
    "weight": "ArrayLike | None",
    "return_grad": "bool",
}
TORCH = {
    "dim": "int | None",
    "gamma": "float",
    "mask": "Tensor | None",
    "ignore_index": "int",
    "reduction": "str",
    "label_smoothing": "float",
    "weight": "Tensor | None",
    "device": "torch.device | str | None",
    "dtype": "torch.dtype | None",
}


def parameters(function, types: dict[str, str], options=None) -> str:
    """The parameters as source text; ``**options`` spelt out."""
    parts, starred = [], False
    found = list(inspect.signature(function).parameters.values())
    if found and found[-1].kind is inspect.Parameter.VAR_KEYWORD:
        found = found[:-1] + [p for p in inspect.signature(options).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for p in found:
        if p.kind is p.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        annotated = p.annotation is not p.empty and p.annotation != "object"
        kind = p.annotation if annotated else types.get(p.name)
        text = p.name if kind is None else f"{p.name}: {kind}"
        if p.default is not p.empty:
            text += f"{' = ' if kind else '='}{p.default!r}"
        parts.append(text)
    return ", ".join(parts)


def numpy_stub() -> str:
    import parsimax
    from parsimax import _losses

    lines = [
        HEAD,
        "from collections.abc import Collection, Sequence",
        "from typing import Any\n",
        "from numpy.typing import ArrayLike, NDArray\n",
    ]
    for name in parsimax.__all__:
        value = getattr(parsimax, name)
        if not callable(value):
            lines.append(f"{name}: {type(value).__name__}")
            continue
        result = {"entmax_csr": "tuple[NDArray[Any], NDArray[Any], NDArray[Any]]"}.get(name, "NDArray[Any]")
        result = "Any" if name.endswith("_loss") else result
        lines.append(f"def {name}({parameters(value, NUMPY, _losses.loss)}) -> {result}: ...")
    return "\n".join(lines) + "\n"


def torch_stub() -> str:
    module = importlib.import_module("parsimax.torch")
    from parsimax.torch import _loss

    lines = [HEAD, "from collections.abc import Callable\n", "import torch", "from torch import Tensor, nn\n"]
    for name in module.__all__:
        value = getattr(module, name)
        if not inspect.isclass(value):
            lines.append(f"def {name}({parameters(value, TORCH, _loss.loss)}) -> Tensor: ...")
            continue
        base = "nn.MultiheadAttention" if name == "MultiheadAttention" else "nn.Module"
        forward = inspect.signature(value.forward).return_annotation
        lines.append(f"class {name}({base}):")
        for attribute, prop in vars(value).items():
            if isinstance(prop, property):
                lines += ["    @property", f"    def {attribute}(self) -> {prop.fget.__annotations__['return']}: ..."]
        lines.append(f"    def __init__({parameters(value.__init__, TORCH)}) -> None: ...")
        lines.append(f"    def forward({parameters(value.forward, TORCH)}) -> {forward}: ...")
    return "\n".join(lines) + "\n"


def main() -> int:
    stale = []
    for path, text in [(HERE / "__init__.pyi", numpy_stub()), (HERE / "torch" / "__init__.pyi", torch_stub())]:
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                stale.append(str(path))
        else:
            path.write_text(text)
    if stale:
        print(f"stale: {', '.join(stale)}; run python stubs.py", file=sys.stderr)
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
