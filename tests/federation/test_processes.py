"""Processes that an end starts: no file of a study's folder is taken for a module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from siloweave.federation import processes

OWN = str(Path(processes.__file__).resolve().parents[2])


def places(folder, monkeypatch, *entries):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(entries))
    found = processes.environment(folder).get("PYTHONPATH", "").split(os.pathsep)
    return [place for place in found if place and place != OWN]


def test_relative_places_and_those_of_the_folder_are_left_out(tmp_path, monkeypatch):
    home = tmp_path / "home"
    study, elsewhere = home / "flu", tmp_path / "elsewhere"
    (study / "store").mkdir(parents=True)
    entries = ["", ".", "lib", str(study), str(study / "store"), str(home), str(elsewhere)]
    assert places(study, monkeypatch, *entries) == [str(elsewhere)]
    (tmp_path / "link").symlink_to(study)
    assert places(study, monkeypatch, str(tmp_path / "link")) == []
    assert places(None, monkeypatch, *entries) == entries[3:]


def test_libraries_are_not_loaded_from_there_either(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(tmp_path), "", "/usr/lib"]))
    monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "own.so"))
    found = processes.environment(tmp_path)
    assert found["LD_LIBRARY_PATH"] == "/usr/lib"
    assert "LD_PRELOAD" not in found
    assert found["PATH"] == os.environ["PATH"]


MARK = "from pathlib import Path\n(Path({!r}) / __name__).touch()\n"


def test_modules_in_the_working_folder_do_not_run(tmp_path, monkeypatch):
    """Not even if it is where someone stands who starts `python -m siloweave` as it is."""
    marks, study = tmp_path / "marks", tmp_path / "flu"
    marks.mkdir()
    study.mkdir()
    for name in ("typer", "msgspec", "cryptography", "numpy"):
        (study / f"{name}.py").write_text(MARK.format(str(marks)))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", OWN]))
    isolated = processes.command("siloweave", "--help")
    subprocess.run(
        isolated, cwd=study, env=processes.environment(study), check=True, capture_output=True
    )
    monkeypatch.setenv("PYTHONPATH", OWN)
    as_it_is = [sys.executable, "-m", "siloweave", "--help"]
    subprocess.run(as_it_is, cwd=study, check=True, capture_output=True)
    assert list(marks.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="Linux")
def test_memory_that_is_free_is_given_back():
    code = """
from pathlib import Path
from siloweave.federation.processes import return_memory
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4096
pieces = [bytes(1000) for _ in range(60_000)]
last = pieces[-1]  # at the end of the heap, which else would be cut off by itself
del pieces
before = resident()
return_memory()
assert before - resident() > 20e6, (before, resident())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
