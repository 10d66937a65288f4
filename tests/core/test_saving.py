"""A fit takes the place of whatever fit was saved in a folder, and of nothing else."""

import os
import stat

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.core.fit import _FILES
from siloweave.errors import DataError, InputError
from siloweave.privacy.budget import Budget
from tests.synthesizers.cases import SCHEMA, pandas_frame

TINY = {"diffusion": {"hidden": [8], "embed": 8, "timesteps": 5, "steps": 2, "batch": 20}}
PARTS = [["town", "age", "seen"], ["sex", "pay", "member", "visits"]]


@pytest.fixture(scope="module")
def fits():
    frame = pandas_frame()
    private = sw.TwoRound(queries=2).fit([frame], SCHEMA, budget=Budget(2.0, 1e-6))
    columns = sw.SiloFuse(**TINY).fit([frame[names] for names in PARTS], SCHEMA)
    copula = sw.GaussianCopula().fit(frame, SCHEMA)
    return {"marginals": private, "copula": copula, "columns": columns}


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def full(*args, **named):
    raise OSError("no space is left")


@pytest.mark.parametrize("before", ["marginals", "copula", "columns"])
@pytest.mark.parametrize("after", ["marginals", "copula", "columns"])
def test_a_folder_holds_the_fit_that_was_saved_last(fits, tmp_path, before, after):
    folder, plain = tmp_path / "model", tmp_path / "plain"
    fits[after].save(plain)
    fits[before].save(folder)
    fits[after].save(folder)
    again = sw.load(folder)
    assert type(again.model) is type(fits[after].model)
    shown = [one.sample(40, seed=0).astype(str) for one in (again, fits[after])]
    pd.testing.assert_frame_equal(*shown)
    inside = [{path.relative_to(top) for path in top.rglob("*")} for top in (folder, plain)]
    assert inside[0] == inside[1], "something of the fit before is left"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "plain"]


def test_every_file_is_known_as_a_part_of_a_fit(fits, tmp_path):
    found = set()
    for name, fit in fits.items():
        fit.save(tmp_path / name)
        found |= {path.name for path in (tmp_path / name).iterdir()}
    older = {"generated.json", "woven.json", "homes"}
    assert found == _FILES - older


def test_what_cannot_be_written_leaves_the_fit_before(fits, tmp_path, monkeypatch):
    folder = tmp_path / "model"
    fits["marginals"].save(folder)
    monkeypatch.setattr(type(fits["copula"].model), "save", full)
    with pytest.raises(OSError, match="no space is left"):
        fits["copula"].save(folder)
    assert sw.load(folder).info == fits["marginals"].info
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_other_files_are_never_taken_away(fits, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    fits["copula"].save(tmp_path / "model")
    with pytest.raises(InputError, match=r"holds 'model', which is no part .* empty folder"):
        fits["copula"].save(tmp_path)
    (tmp_path / "model" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds 'notes\.txt', which is no part of a saved fit"):
        fits["columns"].save(tmp_path / "model")
    with pytest.raises(InputError, match=r"notes\.txt is a file; name a folder"):
        fits["columns"].save(tmp_path / "notes.txt")
    assert sw.load(tmp_path / "model").info == fits["copula"].info
    with pytest.raises(DataError):
        sw.load(tmp_path)


def test_a_new_an_empty_and_a_linked_folder_are_taken(fits, tmp_path):
    (tmp_path / "empty").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "linked", target_is_directory=True)
    for place in ("empty", "far/away", "linked", "link"):
        fits["copula"].save(tmp_path / place)
        assert sw.load(tmp_path / place).info == fits["copula"].info
    assert (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((tmp_path / "empty").stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["copula", "columns"])
def test_an_empty_folder_that_has_to_stay_is_filled(fits, tmp_path, monkeypatch, name):
    """The working folder was replaced, and then no relative path led anywhere."""
    folder = tmp_path / "model"
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)
    number = folder.stat().st_ino
    fits[name].save(".")
    assert folder.stat().st_ino == number
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    fits[name].save(tmp_path / "plain")
    assert names_in(folder) == names_in(tmp_path / "plain")
    with pytest.raises(InputError, match="holds a fit, and no other folder can take its place"):
        fits["marginals"].save(".")
    assert sw.load(".").info == fits[name].info


def test_a_volume_and_a_folder_below_a_closed_one_are_filled(fits, tmp_path, monkeypatch):
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    fits["copula"].save(tmp_path / "volume")
    monkeypatch.undo()

    (tmp_path / "closed" / "mine").mkdir(parents=True)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(type(fits["copula"].model), "save", full)
    with pytest.raises(OSError, match="no space is left"):
        fits["copula"].save(tmp_path / "closed" / "mine")
    assert names_in(tmp_path / "closed" / "mine") == []
    monkeypatch.undo()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    fits["copula"].save(tmp_path / "closed" / "mine")
    for place in ("volume", "closed/mine"):
        assert sw.load(tmp_path / place).info == fits["copula"].info
    assert names_in(tmp_path) == ["closed", "volume"]


def zoned(rows):
    """Return a frame of hours in a time zone, beside a number."""
    hours = pd.date_range("2024-06-01", periods=rows, freq="h", tz="Europe/Berlin")
    return pd.DataFrame({"seen": hours.as_unit("us"), "x": range(rows)})


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_times_are_drawn_in_their_zone_after_a_fit_was_read(tmp_path, kind):
    """They came back in UTC without a zone, so that every clock was wrong."""
    frame = {"pandas": lambda rows: rows, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}
    rows = frame[kind](zoned(60))
    fit = sw.GaussianCopula().fit(rows, sw.Schema.detect(rows))
    fit.save(tmp_path / "model")
    again = sw.load(tmp_path / "model").sample(5, seed=0)
    drawn = fit.sample(5, seed=0)
    assert str(again["seen"].dtype if kind != "arrow" else again["seen"].type).count("Berlin") == 1
    assert again.equals(drawn)


def test_a_path_may_begin_with_the_home_folder(fits, tmp_path, monkeypatch):
    """A folder called ~ was made, from which a fit could not be read."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    fits["copula"].save("~/model")
    assert sw.load("~/model").info == fits["copula"].info
    sw.write_report(fits["copula"], "~/report.html")
    pandas_frame().to_csv("~/rows.csv", index=False)
    rows = sw.read("~/rows.csv")
    sw.TwoRound(queries=2).fit([rows], SCHEMA, budget=Budget(2.0, 1e-6), folder="~/run")
    assert names_in(tmp_path / "home") == ["model", "report.html", "rows.csv", "run"]
    assert names_in(tmp_path / "here") == []


def test_a_place_without_a_fit_is_named_with_where_one_is(fits, tmp_path):
    fits["copula"].save(tmp_path / "run" / "model")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for place, words in (
        ("nowhere", "there is no folder '.*nowhere'; check the path"),
        ("notes.txt", "is a file; give the folder in which the fit was saved"),
        ("empty", "as a saved fit: it holds none; give the folder in which it was saved"),
        ("run", "as a saved fit: it holds none; there is one in .*model"),
    ):
        with pytest.raises(DataError, match=words):
            sw.load(tmp_path / place)
    (tmp_path / "run" / "model" / "fit.json").unlink()
    with pytest.raises(DataError, match=r"as a saved fit: .*fit\.json"):
        sw.load(tmp_path / "run" / "model")
