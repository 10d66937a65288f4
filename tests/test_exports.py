"""What the package exports is written down, sorted, and there."""

import ast
import importlib
import inspect
import re
import subprocess
import sys

import pytest

import siloweave
from siloweave.methods.registry import CLASSES
from tests.architecture.shape_rules import exported
from tests.architecture.source import ROOT, Source, all_sources

PACKAGE_SOURCES = [source for source in all_sources() if source.in_package]
WITH_EXPORTS = [source for source in PACKAGE_SOURCES if any(exported(source))]


def module_name(source: Source) -> str:
    dotted = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def order(name: str) -> tuple[int, list[str | tuple[int, str]]]:
    """Sort as ruff does: constants, then classes, then the rest; numbers by their value."""
    group = 0 if len(name) > 1 and name.isupper() else 1 if name[0].isupper() else 2
    pieces = re.findall(r"\d+|\D+", name)
    return group, [f"{int(piece):012d}" if piece.isdigit() else piece for piece in pieces]


def misplaced(names: list[str]) -> list[str]:
    """Name what stands in the wrong place or twice."""
    right = sorted(set(names), key=order)
    return [] if names == right else [f"{names} should read {right}"]


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def private_imports(source: Source) -> list[str]:
    """Name what a module takes from another module of ours though it starts with `_`."""
    return [
        f"{source.path}:{line}: imports {name}, which is private to its module"
        for line, name in source.imports
        if name.startswith("siloweave.") and private(name.split(".")[-1])
    ]


@pytest.mark.parametrize("source", PACKAGE_SOURCES, ids=module_name)
def test_what_is_exported_is_written_down_and_sorted(source: Source):
    names = [name for _, name in exported(source)]
    # An `__init__` that brings names together lists them; one that is a docstring alone has none.
    face = source.path.endswith("__init__.py") and source.imports
    assert names or not face, f"{source.path} has no __all__: list what others may use"
    assert not misplaced(names)


@pytest.mark.parametrize("source", WITH_EXPORTS, ids=module_name)
def test_every_export_is_there_and_says_what_it_is(source: Source):
    module = importlib.import_module(module_name(source))
    for _, name in exported(source):
        assert hasattr(module, name), f"{source.path} exports {name}, which is not there"
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{source.path} exports {name}, which has no docstring"


def test_every_method_of_the_registry_is_a_public_name():
    missing = {kind.__name__ for kind in CLASSES} - set(siloweave.__all__)
    assert not missing, f"siloweave/__init__.py does not list {missing}"


@pytest.mark.parametrize("source", PACKAGE_SOURCES, ids=module_name)
def test_modules_leave_each_others_private_names_alone(source: Source):
    assert not private_imports(source)


def test_star_imports_are_not_used():
    starred = [
        f"{source.path}:{node.lineno}"
        for source in PACKAGE_SOURCES
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    assert not starred


# Each costs a second or more, or is not installed with the package.
SLOW = {
    *("sklearn", "umap", "opendp", "dp_accounting", "jax", "mbi", "pandas", "pyarrow"),
    *("scipy.stats", "scipy.optimize", "flwr"),
}


def loaded_by(statement: str) -> set[str]:
    """Name the slow modules that a fresh interpreter loads for a statement."""
    program = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return SLOW & set(done.stdout.split())


@pytest.mark.parametrize("module", ["siloweave", "siloweave.app.cli"])
def test_asking_for_help_loads_nothing_slow(module: str):
    assert not loaded_by(f"import {module}")


def test_the_checks_above_can_fail():
    assert loaded_by("import sklearn")
    assert misplaced(["b", "a"])
    assert misplaced(["a", "a"])
    assert misplaced(["Class", "CONSTANT"])
    assert not misplaced(["AIM", "FLAIM", "Budget", "iid", "l2", "l10"])
    assert private_imports(Source("src/siloweave/x.py", "from siloweave.y import _z"))
    assert not list(exported(Source("src/siloweave/x.py", "x = ['a']")))
