"""The .pyi files say what the modules are."""

import ast
import importlib.util
import inspect
import pathlib

import pytest

import parsimax
from parsimax import _native

PACKAGE = pathlib.Path(parsimax.__file__).parent
SOURCE = pathlib.Path(__file__).parents[1]


def test_public_stubs_are_fresh():
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("stubs", SOURCE / "stubs.py")
    stubs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    for path, text in [("__init__.pyi", stubs.numpy_stub()), ("torch/__init__.pyi", stubs.torch_stub())]:
        assert (PACKAGE / path).read_text() == text, f"{path} is stale: run python stubs.py"
        ast.parse(text)
    assert (PACKAGE / "py.typed").exists()


def test_the_native_stub_is_fresh():
    tree = ast.parse((PACKAGE / "_native.pyi").read_text())
    stubs = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in dir(_native) if not name.startswith("_")}
    assert public == set(stubs)
    methods = {node.name: node for node in stubs["Mapping"].body if isinstance(node, ast.FunctionDef)}
    attributes = {node.target.id for node in stubs["Mapping"].body if isinstance(node, ast.AnnAssign)}
    assert {name for name in dir(_native.Mapping) if not name.startswith("_")} == (
        methods.keys() - {"__new__"}
    ) | attributes
    for name, node in methods.items():
        real = inspect.signature(_native.Mapping if name == "__new__" else getattr(_native.Mapping, name)).parameters
        arguments = [a.arg for a in node.args.args]
        skip = 1 if name == "__new__" else 0
        assert arguments[skip:] == list(real), name
        defaults = [ast.literal_eval(d) for d in node.args.defaults]
        shown = [p.default for p in real.values() if p.default is not p.empty]
        # Negative numbers show as an ellipsis in the native signature.
        assert [... if s is ... else d for d, s in zip(defaults, shown, strict=True)] == shown, name


def test_every_public_thing_has_a_docstring():
    torch = pytest.importorskip("parsimax.torch")
    sklearn = pytest.importorskip("parsimax.sklearn")
    for module in (parsimax, torch, sklearn):
        assert module.__doc__
        for name in module.__all__:
            value = getattr(module, name)
            assert not callable(value) or (value.__doc__ or "").strip(), name
