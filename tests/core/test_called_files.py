"""Files of the package that a run calls, and hand-overs between them: upper ends, decision 0001."""

import sys
import threading
from dataclasses import dataclass, field
from inspect import CO_NEWLOCALS
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
# Those of hand-overs leave room for a few more: what a run calls differs a little between machines.


def people(rows=300):
    rng = np.random.default_rng(0)
    columns = {
        "sex": rng.choice(["f", "m"], rows), "age": rng.integers(18, 90, rows),
        "job": rng.choice(list("abcd"), rows), "pay": rng.normal(size=rows),
    }  # fmt: skip
    return pd.DataFrame(columns)


@dataclass
class Walk:
    """What a run calls of the package.

    Attributes:
        files: Files with a function that the run calls.
        hand_overs: Pairs of files of which the first calls the second, or has a library call it.
    """

    files: set = field(default_factory=set)
    hand_overs: set = field(default_factory=set)


def walk_of(run):
    """Follow a run through the package; importing a module does not count."""
    walk = Walk()

    def follow(frame, event, arg):
        code = frame.f_code
        is_function = code.co_flags & CO_NEWLOCALS  # neither a module's body nor a class's
        if event != "call" or not is_function or not code.co_filename.startswith(PACKAGE):
            return
        walk.files.add(code.co_filename)
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            walk.hand_overs.add((caller.f_code.co_filename, code.co_filename))

    before = sys.getprofile()
    sys.setprofile(follow)
    threading.setprofile(follow)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return walk


def check_walk(walk, method, *, files, hand_overs):
    assert any(method in file for file in walk.files)
    assert len(walk.files) <= files
    assert len(walk.hand_overs) <= hand_overs


def test_a_study_with_flaim(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    people().to_csv("people.csv", index=False)
    assert not main(["init", "people.csv"])
    study = Path("study.toml")
    study.write_text(study.read_text().replace('name = "aim"', 'name = "flaim"'))

    walk = walk_of(lambda: main(["run", "study.toml"]))
    assert Path("run/report.html").is_file()
    check_walk(walk, "flaim", files=81, hand_overs=335)


def test_fits_of_counts():
    schema = sw.Schema(COLUMNS).with_fallbacks()
    # With seeded noise a run makes the same choices each time.
    paid = {"budget": sw.Budget(1.0, 1e-6), "noise": "seeded"}
    halves = [people().iloc[:150], people().iloc[150:]]
    flaim, aim, secure = sw.FLAIM(rounds=3), sw.AIM(), sw.SecureTwoRound()
    walk = walk_of(lambda: flaim.fit(halves, schema, **paid))
    check_walk(walk, "flaim", files=53, hand_overs=185)

    walk = walk_of(lambda: aim.fit(people(), schema, **paid))
    check_walk(walk, "aim", files=50, hand_overs=180)

    walk = walk_of(lambda: secure.fit(columns_apart(), schema, **paid))
    check_walk(walk, "secure_two_round", files=56, hand_overs=200)


def columns_apart():
    return [people()[["sex", "age"]], people()[["job", "pay"]]]


def test_a_diffusion_of_one_owner():
    table, schema, diffusion = people(), sw.Schema(COLUMNS).with_fallbacks(), sw.TabDDPM(steps=20)
    walk = walk_of(lambda: diffusion.fit(table, schema, seed=0))
    check_walk(walk, "diffusion", files=42, hand_overs=130)


def test_a_diffusion_over_split_columns():
    schema = sw.Schema(COLUMNS).with_fallbacks()
    silofuse = sw.SiloFuse(diffusion={"steps": 5})
    walk = walk_of(lambda: silofuse.fit(columns_apart(), schema, seed=0))
    check_walk(walk, "silofuse", files=52, hand_overs=170)
