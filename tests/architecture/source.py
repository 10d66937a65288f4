"""A source file as the rules see it: its text, its tree, and the full names in it."""

import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "src/siloweave/"
LAYOUT_TOKENS = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


@dataclass(frozen=True)
class Source:
    """One text file of the project; `path` counts from the root, with forward slashes."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def in_package(self) -> bool:
        return self.is_python and self.path.startswith(PACKAGE)

    @property
    def layer(self) -> str:
        """Name the folder below the package, or the module if it lies at the package's root."""
        return self.path.removeprefix(PACKAGE).split("/")[0].removesuffix(".py")

    @property
    def package(self) -> str:
        """Name the package that holds this module, as relative imports count from it."""
        return ".".join(self.path.removeprefix("src/").split("/")[:-1])

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def imports(self) -> list[tuple[int, str]]:
        """List line and full name of all imports: late ones, and those by a constant name."""
        found = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                found += [(node.lineno, name.name) for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                module = self.absolute(node)
                found += [(node.lineno, f"{module}.{name.name}") for name in node.names]
            elif isinstance(node, ast.Call) and is_import_call(node):
                argument = node.args[0] if node.args else None
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    found.append((node.lineno, argument.value))
        return found

    @cached_property
    def names(self) -> dict[str, str]:
        """Map each local name that an import binds to the full name behind it."""
        bound = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    first = name.name.split(".")[0]
                    bound[name.asname or first] = name.name if name.asname else first
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    bound[name.asname or name.name] = f"{self.absolute(node)}.{name.name}"
        return bound

    @cached_property
    def code_lines(self) -> set[int]:
        """Collect the numbers of lines that hold code: no comment, blank line or docstring."""
        lines: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in LAYOUT_TOKENS:
                lines.update(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if is_docstring(node):
                lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return lines

    def absolute(self, node: ast.ImportFrom) -> str:
        """Spell out the module of `from X import ...`, relative or not."""
        if not node.level:
            return node.module or ""
        parts = self.package.split(".")
        parents = parts[: len(parts) - node.level + 1]
        return ".".join([*parents, node.module] if node.module else parents)

    def full_name(self, node: ast.AST) -> str:
        """Spell out `np.random.seed` as `numpy.random.seed`; empty if it starts elsewhere."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, "")
        if isinstance(node, ast.Attribute):
            start = self.full_name(node.value)
            return f"{start}.{node.attr}" if start else ""
        return ""

    def references(self) -> Iterator[tuple[int, str]]:
        """Yield line and full name of everything imported that is mentioned."""
        yield from self.imports
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute) and (name := self.full_name(node)):
                yield node.lineno, name

    def calls(self) -> Iterator[tuple[ast.Call, str]]:
        """Yield every call with the full name of what is called, empty if unknown."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, self.full_name(node.func)


def is_docstring(node: ast.AST) -> bool:
    """Tell whether a node is a string that stands alone as a statement."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def is_import_call(node: ast.Call) -> bool:
    """Tell whether a call imports by name: `import_module(...)` or `__import__(...)`."""
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in {"import_module", "__import__"}


def within(name: str, *modules: str) -> bool:
    """Tell whether a full name is one of the modules or lies inside one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def project_files() -> list[Path]:
    """List the files that git tracks or would track; without git, all but hidden folders."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        found = (path for path in ROOT.rglob("*") if path.is_file())
        return [path for path in found if not hidden(path.relative_to(ROOT))]
    return [path for name in listed if name and (path := ROOT / name).is_file()]


def hidden(path: Path) -> bool:
    """Tell whether any part of a path is hidden or a cache."""
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


@cache
def all_sources() -> tuple[Source, ...]:
    """Read every text file of the project."""
    sources = []
    for path in sorted(project_files()):
        data = path.read_bytes()
        if b"\0" in data:
            continue
        name = path.relative_to(ROOT).as_posix()
        sources.append(Source(name, data.decode("utf-8", errors="replace")))
    return tuple(sources)
