"""Run the notebooks of docs/tutorials and store what they show.

python tools/notebooks.py [NAME ...]

Jupyter runs them too. This needs no kernel, so the tests run every notebook in the environment that
they have.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

TUTORIALS = Path(__file__).parent.parent / "docs" / "tutorials"
SHOWN = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def lines(text: str) -> list[str]:
    """A text as notebooks store it."""
    return text.splitlines(keepends=True)


def typed(source: str) -> list[dict[str, Any]]:
    """Do what Jupyter does with a cell of shell commands, or of a file's text.

    Raises:
        ValueError: A command failed, or the cell's first line names something else.
    """
    first, _, rest = source.partition("\n")
    magic, *words = first.split()
    if magic == "%%writefile":
        Path(*words).write_text(rest + "\n", "utf-8")
        return [{"name": "stdout", "output_type": "stream", "text": [f"Writing {words[0]}\n"]}]
    if magic != "%%bash":
        raise ValueError(f"{first!r} is neither %%bash nor %%writefile FILE")
    # The command `siloweave` of this environment; plain text, 80 columns wide.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plain = {**os.environ, "PATH": path, "FORCE_COLOR": "", "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-e", "-c", rest],
        env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise ValueError(f"{rest}\nended with {done.returncode}: {done.stdout}")
    return [{"name": "stdout", "output_type": "stream", "text": lines(done.stdout)}]


def outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell, and return what it prints and its last value as a notebook stores them."""
    if source.startswith("%%"):
        return typed(source)
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": lines(text)})
    if value is not None and not source.endswith(";"):  # as in Jupyter
        data = {"text/plain": lines(repr(value))}
        for kind, method in SHOWN.items():
            if hasattr(value, method):
                data = {kind: lines(getattr(value, method)())} | data
        result = {"data": data, "execution_count": number, "metadata": {}}
        found.append(result | {"output_type": "execute_result"})
    return found


def run(notebook: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Run a notebook in a new folder, and yield the outputs of one cell of code after the other."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with TemporaryDirectory() as folder, contextlib.chdir(folder):
        for number, cell in enumerate(cells, 1):
            yield outputs("".join(cell["source"]), names, number)


def block(source: str) -> str:
    """Return a cell of code as a page shows it: commands as they are typed, a file by its name."""
    first, _, rest = source.partition("\n")
    if source.startswith("%%bash"):
        return f"```bash\n{rest}\n```"
    if source.startswith("%%writefile"):
        name = first.split()[1]
        return f"`{name}`:\n\n```{Path(name).suffix.removeprefix('.')}\n{rest}\n```"
    return f"```python\n{source}\n```"


def page(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page in Markdown."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(block(text))
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text")})
            shown = next((data[kind] for kind in SHOWN if kind in data), None)
            if shown is None:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
            else:  # a blank line would end the element
                html = re.sub(r"\n\s*\n", "\n", "".join(shown).strip())
                parts.append(f'<div class="shown">\n{html}\n</div>')
    parts.append(f"[This page as a notebook]({name}.ipynb)")
    return "\n\n".join(parts) + "\n"


def main(names: list[str]) -> None:
    """Run the notebooks of these names, or all, and write them with their outputs."""
    for path in [TUTORIALS / f"{name}.ipynb" for name in names] or sorted(
        TUTORIALS.glob("*.ipynb")
    ):
        notebook = json.loads(path.read_text("utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        for number, (cell, found) in enumerate(zip(cells, run(notebook), strict=True), 1):
            cell |= {"execution_count": number, "outputs": found}
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
