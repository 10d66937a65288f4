"""What holds of the package as a whole: no cycle, no name twice."""

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.architecture.source import Source


def module_of(source: Source) -> str:
    """The dotted name of a file of the package."""
    dotted = source.path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    return dotted.removesuffix(".__init__")


def graph(sources: Iterable[Source]) -> dict[str, set[str]]:
    """Which modules each module imports: late imports, and those for type checkers, too.

    The package's face is left out: it loads a name's module when the name is used.
    """
    known = {module_of(source): source for source in sources if module_of(source) != "siloweave"}
    found: dict[str, set[str]] = {}
    for name, source in known.items():
        targets = {
            target if target in known else target.rpartition(".")[0] for _, target in source.imports
        }
        found[name] = (targets & set(known)) - {name}
    return found


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other (strongly connected, of two or more)."""
    left = {name: set(targets) for name, targets in imports.items()}
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    while free := [n for n in left if not any(n in targets for targets in left.values())]:
        for name in free:
            del left[name]
    return [sorted(left)] if left else []


def names_twice(sources: Iterable[Source]) -> list[str]:
    """Public classes whose name stands in two files."""
    where = defaultdict(list)
    for source in sources:
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(source.path)
    return [f"{name} in {', '.join(paths)}" for name, paths in where.items() if len(paths) > 1]
