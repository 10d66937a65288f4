"""What must be written beside things, and what must not be in any file."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.rule import Rule, algorithm_file, any_text, package_code
from tests.architecture.source import Source, is_docstring

CITATION = re.compile(r"[A-Z][\w'-]+.*\b(19|20)\d\d\b", re.DOTALL)
# Written in pieces, so that this file does not break its own rule.
MACHINE = re.compile(
    r"(?<![\w.}])/" + r"(work|farm|root|tmp|home|Users|opt)/\w" + r"|[A-Z]:\\" + r"Users\\"
)
INDEX = re.compile(
    r"python"
    r"hosted\.org|pypi\.org/"
    r"simple|registry\."
    r"npmjs|-"
    r"-(extra-)?index-url"
)


def algorithm_text(source: Source) -> list[str]:
    """An algorithm says what it guarantees, and whose idea it is."""
    text = ast.get_docstring(source.tree) or ""
    problems = []
    if "**Guarantee" not in text:
        problems.append(
            f"{source.path}:1: the module docstring has no **Guarantee** block: what is "
            "protected, from whom, under which neighbouring relation, and what is assumed public"
        )
    if not CITATION.search(text):
        problems.append(f"{source.path}:1: the module docstring cites no paper (author and year)")
    return problems


def exported(source: Source) -> Iterator[tuple[int, str]]:
    """Yield line and name of what `__all__` lists; nothing if there is none."""
    for node in source.tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__":
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            for item in value.elts if isinstance(value, ast.List | ast.Tuple) else []:
                yield item.lineno, str(ast.literal_eval(item))


def definitions(source: Source) -> dict[str, bool]:
    """Map each name bound at the top of a module to whether its purpose is written there.

    An imported name counts as documented: its own module answers for it.
    """
    lines = source.text.splitlines()
    found: dict[str, bool] = {}
    body = [*source.tree.body, *(n for n in source.tree.body if isinstance(n, ast.If | ast.Try))]
    followers = [*body[1:], None] if body else []
    for node, following in zip(body, followers, strict=True):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found[node.name] = bool(ast.get_docstring(node))
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            above = lines[node.lineno - 2].lstrip() if node.lineno > 1 else ""
            beside = lines[(node.end_lineno or node.lineno) - 1]
            said = above.startswith("#") or "# " in beside or "#: " in beside
            said = said or (following is not None and is_docstring(following))
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update((t.id, said) for t in targets if isinstance(t, ast.Name))
        else:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Import | ast.ImportFrom):
                    for name in inner.names:
                        found[name.asname or name.name.split(".")[0]] = True
    return found


def public_names(source: Source) -> list[str]:
    """What a module exports exists, and says what it is."""
    known = definitions(source)
    if "__getattr__" in known:
        return []
    problems = []
    for line, name in exported(source):
        if name not in known:
            problems.append(f"{source.path}:{line}: exports {name}, which it does not define")
        elif not known[name] and not name.startswith("__"):
            problems.append(f"{source.path}:{line}: exports {name}, which has no docstring")
    return problems


def addresses(source: Source) -> list[str]:
    """Nothing in the repository depends on the machine that it was written on."""
    return [
        f"{source.path}:{number}: {kind} {found.group()!r}: leave it to the reader's machine"
        for number, line in enumerate(source.text.splitlines(), start=1)
        for kind, pattern in (("machine path", MACHINE), ("package index", INDEX))
        if (found := pattern.search(line))
    ]


SHAPE_RULES = (
    Rule(
        "an algorithm states its guarantee and its source",
        algorithm_text,
        algorithm_file,
        bad=(
            ("src/siloweave/protocols/x.py", "x = 1"),
            ("src/siloweave/protocols/x.py", '"""X. Doe and Poe, X, 2020."""'),
            ("src/siloweave/protocols/x.py", '"""X.\n\n**Guarantee.** All of it.\n"""'),
        ),
        good=(
            (
                "src/siloweave/protocols/x.py",
                '"""X.\n\nDoe and Poe, X, VLDB 2020.\n\n**Guarantee.** Rows, from all.\n"""',
            ),
            ("src/siloweave/protocols/__init__.py", "x = 1"),
        ),
    ),
    Rule(
        "what is exported exists and is documented",
        public_names,
        package_code,
        bad=(
            ("src/siloweave/x.py", "__all__ = ['missing']"),
            ("src/siloweave/x.py", "__all__ = ['f']\n\ndef f(): ..."),
            ("src/siloweave/x.py", "__all__ = ['A']\n\nclass A:\n    x = 1"),
            ("src/siloweave/x.py", "__all__ = ['C']\n\nC = 1"),
        ),
        good=(
            ("src/siloweave/x.py", "__all__ = ['C']\n\n# The constant.\nC = 1"),
            ("src/siloweave/x.py", "__all__ = ['C']\n\nC = 1\n'''The constant.'''"),
            ("src/siloweave/x.py", "__all__ = ['f']\n\ndef f():\n    '''Do.'''"),
            ("src/siloweave/x.py", "from siloweave.tables import A\n__all__ = ['A']"),
        ),
    ),
    Rule(
        "no machine path and no index address",
        addresses,
        any_text,
        bad=(
            ("README.md", "see /" + "work/main/x.py"),
            ("docs/x.md", "`/" + "tmp/out.csv`"),
            ("src/siloweave/x.py", "HOME = '/" + "root/x'"),
            ("Makefile", "pip install -" + "-index-url X"),
            ("x.lock", "https://files.python" + "hosted.org/x"),
        ),
        good=(
            ("README.md", "see https://example.org/" + "work/main and src/tmp/x"),
            ("scripts/lock", "uv pip compile --no-emit" + "-index-url"),
        ),
    ),
)
