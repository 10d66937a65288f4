"""A folder that came with programs in it: none of them runs, whatever they are called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from siloweave.app.party_files import unknown_files
from siloweave.federation import engine, processes
from tests.app.processes import LAST_S, Ends, over_network, provisioned, small, told
from tests.federation.engines import body_in, coordinator, envelope, free_port
from tests.federation.engines import provisioned as ends_of

pytestmark = pytest.mark.engine
pytest.importorskip("flwr", reason="needs the flower extra: make engine")

RECORD = """
import atexit, os, sys
def record():
    names = {{name.partition(".")[0] for name in sys.modules}}
    with open(os.path.join({!r}, str(os.getpid())), "w") as file:
        file.write("\\n".join(sorted(names)))
atexit.register(record)
"""
MARK = "import os\nopen(os.path.join({!r}, __name__), 'w').close()\n"
NODE = """
import sys
from pathlib import Path
from tests.federation.engines import echo, party
with party(Path(sys.argv[1]).parent, "lab", int(sys.argv[2])):
    input()
"""


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The top-level names of all modules that a party, its node and the other ends import."""
    path = tmp_path_factory.mktemp("imported")
    recorded = path / "recorded"
    recorded.mkdir()
    place = path / "first"
    place.mkdir()
    (place / "sitecustomize.py").write_text(RECORD.format(str(recorded)))
    home = path / "home"
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(place), *filter(None, sys.path)]))
        port = free_port()
        ends_of(home)
        with coordinator(home, port) as link:
            node = subprocess.Popen(
                [sys.executable, "-c", NODE, str(home / "lab"), str(port)], stdin=subprocess.PIPE
            )
            link.send("lab", envelope("lab"))
            node.communicate(b"\n")
    names = set()
    for file in recorded.iterdir():
        names |= set(file.read_text().split())
    return names - {"__main__", "__mp_main__", "sitecustomize", "tests", "siloweave"}


def filled(folder, marks, names):
    """Write a module of each name into a folder, which leaves a mark if it runs."""
    marks.mkdir()
    for name in (*names, "sitecustomize", "usercustomize"):
        (folder / f"{name}.py").write_text(MARK.format(str(marks)))


def test_modules_in_a_study_folder_are_not_run_by_the_engine(imported, tmp_path, monkeypatch):
    """As at a party that did not look for them: its node and the coordinator's processes."""
    assert {"flwr", "httpx", "msgspec", "cryptography", "uvicorn"} <= imported
    ends_of(tmp_path)
    port, marks = free_port(), tmp_path / "marks"
    filled(tmp_path / "lab", marks, imported)
    for name in (*imported, "sitecustomize"):
        (tmp_path / "office" / f"{name}.py").write_text(MARK.format(str(marks)))
    monkeypatch.chdir(tmp_path / "lab")
    others = [place for place in sys.path if place and Path(place) != tmp_path / "lab"]
    # A relative place is the folder's to fill, as where one says PYTHONPATH=.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(others))
    code = f"import os; os.environ['PYTHONPATH'] += os.pathsep + '.'\n{NODE}"
    with coordinator(tmp_path, port) as link:
        node = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(tmp_path / "lab"), str(port)],
            stdin=subprocess.PIPE,
        )
        assert body_in(link.send("lab", envelope("lab", b"carried"))) == b"carried"
        node.communicate(b"\n")
    assert list(marks.iterdir()) == []


def test_a_party_starts_nothing_beside_them_and_names_them(imported, folder):
    small(folder)
    north = provisioned(folder, "127.0.0.1")["north"]
    marks = folder.path / "marks"
    filled(north, marks, imported)
    command = processes.command(
        "siloweave", "party", "start", str(north), "--data", str(folder.path / "north.csv"),
        "--superlink", f"127.0.0.1:{free_port()}", "--wait", "3",
    )  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        command, cwd=north, env=environment, capture_output=True, text=True, timeout=LAST_S
    )
    assert done.returncode == 2
    said = told(done.stderr)
    assert "which siloweave did not write there and does not expect" in said
    assert f"and {len(imported) + 2 - 5} more" in said
    assert list(marks.iterdir()) == []
    assert not (north / "engine" / "node.log").exists()


def test_what_a_study_leaves_in_a_partys_folder_is_expected(folder):
    """Or a party could not be started again."""
    small(folder)
    made = provisioned(folder, "127.0.0.1")
    with Ends(folder.path, made, over_network(free_port())) as ends:
        ends.start_all()
        assert ends.ended() == 0, ends.said("coordinator")
        ends.kill("north")
    for name in ends.parties:
        assert (made[name] / engine.HOME / "node.log").exists()
        assert unknown_files(made[name]) == []
