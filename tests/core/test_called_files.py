"""How many files of the package a run calls into: upper ends, by decisions 0001 and 0056."""

import sys
import threading
from pathlib import Path

import numpy as np
import pandas as pd

import siloweave as sw
from siloweave.app.cli import main

PACKAGE = str(Path(sw.__file__).parent)
COLUMNS = (
    sw.Column("sex", "categorical", categories=("f", "m")),
    sw.Column("age", "integer", low=0, high=120),
    sw.Column("job", "categorical", categories=("a", "b", "c", "d")),
    sw.Column("pay", "continuous", low=-10, high=10),
)


# A ceiling rises where a file of several subjects is cut for its readers, as tables/read.py was.


def people(rows=300):
    rng = np.random.default_rng(0)
    columns = {
        "sex": rng.choice(["f", "m"], rows), "age": rng.integers(18, 90, rows),
        "job": rng.choice(list("abcd"), rows), "pay": rng.normal(size=rows),
    }  # fmt: skip
    return pd.DataFrame(columns)


def called_files(run):
    """Files of the package with a function that `run` calls; importing a module does not count."""
    found = set()

    def seen(frame, event, arg):
        code = frame.f_code
        function = code.co_flags & 0x2  # CO_NEWLOCALS: neither a module's body nor a class's
        if event == "call" and function and code.co_filename.startswith(PACKAGE):
            found.add(code.co_filename)

    before = sys.getprofile()
    sys.setprofile(seen)
    threading.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return found


def test_a_study_with_flaim(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    assert not main(["init", "people.csv"])
    study = Path("study.toml")
    study.write_text(study.read_text().replace('name = "aim"', 'name = "flaim"'))

    found = called_files(lambda: main(["run", "study.toml"]))
    assert Path("run/report.html").is_file()
    assert any("flaim" in file for file in found)
    assert len(found) <= 78


def test_a_diffusion_of_one_owner():
    table, schema, diffusion = people(), sw.Schema(COLUMNS).with_fallbacks(), sw.TabDDPM(steps=20)
    found = called_files(lambda: diffusion.fit(table, schema, seed=0))
    assert any("diffusion" in file for file in found)
    assert len(found) <= 43


def test_a_diffusion_over_split_columns():
    halves, schema = (
        [people()[["sex", "age"]], people()[["job", "pay"]]],
        sw.Schema(COLUMNS).with_fallbacks(),
    )
    silofuse = sw.SiloFuse(diffusion={"steps": 5})
    found = called_files(lambda: silofuse.fit(halves, schema, seed=0))
    assert any("silofuse" in file for file in found)
    assert len(found) <= 53
