"""The list of what is taken of Flower: complete, and there in the installed version."""

import ast
import re
from functools import reduce
from importlib import import_module, util
from pathlib import Path

import pytest

from siloweave.federation import flower_parts
from siloweave.federation.flower_parts import IMPORTED

HERE = Path(__file__).parents[2]
SOURCE = HERE / "src" / "siloweave" / "federation"


def imported(text):
    """All names of Flower's that a source imports, each with its module."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "flwr":
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "flwr"}
    return found


def there(module, name):
    """What has a name in a module of the installed version."""
    return reduce(getattr, name.split("."), import_module(module))


def test_every_import_is_listed_and_nothing_else():
    used = set().union(*(imported(path.read_text()) for path in SOURCE.glob("*.py")))
    listed = {f"{part.module}.{name}" for part in IMPORTED for name in part.names}
    modules = {part.module for part in IMPORTED}
    assert used <= listed | modules | {name.rpartition(".")[0] for name in listed}, used - listed
    for part in IMPORTED:  # as itself, or by its module's name
        assert any(name.startswith(part.module) for name in used), part.module
    assert imported("import flwr.app\ndef f():\n    from flwr.x import y") == {
        "flwr.app",
        "flwr.x.y",
    }


@pytest.mark.parametrize("part", IMPORTED, ids=lambda part: part.module)
def test_the_test_that_fails_first_is_there(part):
    place, _, name = part.test.rpartition("::")
    file = HERE / (place or "tests/federation/test_engine.py")
    if name.startswith("tests/"):  # a file, with what is to be seen of it
        file, name = HERE / name.split(",")[0], "test_"
    assert re.search(rf"^def {name}", file.read_text(), re.MULTILINE)


@pytest.mark.engine
@pytest.mark.parametrize("part", IMPORTED, ids=lambda part: part.module)
def test_every_part_is_there_in_the_installed_version(part):
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    assert util.find_spec(part.module) is not None
    for name in part.names:
        if name != "HttpGrid._client":  # of an instance, below
            there(part.module, name)


@pytest.mark.engine
def test_what_is_patched_is_there_in_the_installed_version():
    pytest.importorskip("flwr", reason="needs the flower extra: make engine")
    grid = there("flwr.superlink.grid", "HttpGrid")("127.0.0.1:9", token="none")
    assert "_client" in vars(grid)
    identity = there("flwr.supercore.task_identity", "TaskIdentity")
    identity.task_id, identity.run_id, identity.node_id = 1, 2, 3
    content = there("flwr.app", "RecordDict")()
    message = there("flwr.app", "Message")(content, dst_node_id=4, message_type="query")
    assert "_message_id" in vars(message.metadata)
    assert all(flower_parts.RELIED_ON.values())
