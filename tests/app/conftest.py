import json
import logging
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from siloweave.app.cli import main
from siloweave.app.network import provision

SCHEMA = {
    "format": "siloweave-schema",
    "version": 1,
    "columns": [
        {"name": "age", "kind": "integer", "low": 0, "high": 99, "fallback": 0},
        {"name": "sex", "kind": "categorical", "categories": ["f", "m"], "fallback": "f"},
        {"name": "job", "kind": "categorical", "categories": ["x", "y"], "missing": True},
    ],
}
STUDY = """\
[study]
name = "small"

[schema]
file = "schema.json"

[budget]
epsilon = 1
delta = 1e-5

[method]
name = "flaim"
rounds = 2
participation = 1.0
bins = 4

[[parties]]
name = "north"
data = "north.csv"

[[parties]]
name = "south"
data = "south.csv"
"""


class Folder:
    """A study of two parties in a folder, and the command line run on it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str] | None = None) -> None:
        self.path = path
        self._capsys = capsys

    def filled(self, study: str = STUDY) -> "Folder":
        """Write two tables, their schema and a study."""
        rng = np.random.default_rng(0)
        for name in ("north", "south"):
            values = (
                rng.integers(18, 90, 40),
                rng.choice(list("fm"), 40),
                rng.choice(list("xy"), 40),
            )
            rows = [",".join(map(str, row)) for row in zip(*values, strict=True)]
            self.write(f"{name}.csv", "\n".join(["age,sex,job", *rows, ""]))
        self.write("schema.json", json.dumps(SCHEMA))
        self.write("study.toml", study)
        return self

    def refuse_misfits(self, *names: str) -> None:
        """Let all columns of some schemas refuse what does not fit them."""
        for name in names or ("schema.json",):
            schema = json.loads((self.path / name).read_text())
            for column in schema["columns"]:
                column.pop("fallback", None)
                column["outside"] = "refuse"
            self.write(name, json.dumps(schema))

    def write(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)

    def replace(self, name: str, old: str, new: str) -> None:
        text = (self.path / name).read_text()
        assert old in text
        self.write(name, text.replace(old, new, 1))

    def files(self) -> dict[str, bytes]:
        return {
            str(p.relative_to(self.path)): p.read_bytes()
            for p in sorted(self.path.rglob("*"))
            if p.is_file()
        }

    def call(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one command."""
        assert self._capsys is not None
        self._capsys.readouterr()
        code = main([str(word) for word in words])
        out, err = self._capsys.readouterr()
        return code, out, err

    def json(self, *words: object) -> dict:
        code, out, err = self.call(*words, "--json")
        assert code == 0, err
        return json.loads(out)


@pytest.fixture(autouse=True)
def log():
    """What a party or a coordinator adds to the log of its process is gone after a test."""
    log = logging.getLogger("siloweave")
    before, level = list(log.handlers), log.level
    yield
    for one in [one for one in log.handlers if one not in before]:
        log.removeHandler(one)
        with suppress(OSError):  # a disk that a test filled
            one.close()
    log.setLevel(level)


@pytest.fixture
def folder(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Folder(tmp_path, capsys).filled()


@pytest.fixture
def ends(folder):
    """Folders of the ends of a study over a network, with the parties' rows."""
    folder.replace(
        "study.toml", 'name = "flaim"\nrounds = 2\nparticipation = 1.0', 'name = "two_round"'
    )
    made = provision(folder.path, folder.path / "ends", trial=True)
    for name in ("north", "south"):
        (made[name] / f"{name}.csv").write_bytes((folder.path / f"{name}.csv").read_bytes())
    return made


def ran(path: Path, study: str | None = STUDY) -> Path:
    """Run a study in a folder, for tests that copy it and never change it.

    `study` is None where the folder's files are there.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        if study is not None:
            Folder(path).filled(study)
        assert main(["run", "study.toml"]) == 0
    return path


@pytest.fixture
def copy_of(tmp_path, capsys, monkeypatch):
    """Make a test's own folder a copy of another."""

    def copied(path: Path) -> Folder:
        shutil.copytree(path, tmp_path, dirs_exist_ok=True)
        monkeypatch.chdir(tmp_path)
        return Folder(tmp_path, capsys)

    return copied


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Files of a study that was run; copy it, never change it."""
    return ran(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def done(finished, copy_of):
    """A folder with the same study, finished."""
    return copy_of(finished)
