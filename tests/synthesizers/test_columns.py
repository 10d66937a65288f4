"""The properties that every method for split columns shares; a new one is tested by being listed.

Compiling is what costs here, so most tests look at one fit and draw few rows.
"""

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import BudgetError, DataError, InputError, QuestionError, RosterError
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import SCHEMA, pandas_frame
from tests.synthesizers.families import COLUMN_METHODS
from tests.synthesizers.properties import check_kept, check_like_the_frame, check_seeds

_STEPS = {"steps": 3, "batch": 16, "hidden": (8,)}
_DIFFUSION = {**_STEPS, "embed": 8, "timesteps": 5}
# Settings with which a fit takes a moment; a method that is not here is tested where it is built.
FAST = {
    "silofuse": {"diffusion": _DIFFUSION},
    "e2e_distr": {"autoencoder": {"hidden": (8,)}, "diffusion": _DIFFUSION},
}
NAMES = [name for name in COLUMN_METHODS if name in FAST]
TARGET = "member"
SPLIT = {"north": ["town", "age", "seen"], "south": ["sex", "pay"], "west": ["member", "visits"]}
every = pytest.mark.parametrize("name", NAMES)
slowly = pytest.mark.parametrize(
    "name", [n if n == "silofuse" else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)


def split(frame, by=None):
    return {name: frame[columns] for name, columns in (by or SPLIT).items()}


def made(name, target=TARGET, **given):
    return COLUMN_METHODS[name](target=target, **FAST[name], **given)


def fit(name, data=None, schema=SCHEMA, target=TARGET, **named):
    data = split(pandas_frame()) if data is None else data
    return made(name, target).fit(data, schema, **named)


@cache
def fitted_once(name):
    return fit(name)


@every
def test_samples_keep_the_schema_and_the_types(name):
    check_like_the_frame(fitted_once(name).sample(60, seed=0), 60)


@every
def test_the_same_seed_gives_the_same_rows(name):
    check_seeds(fitted_once(name), fit(name))


@every
def test_it_is_kept_as_data_and_read_again(name, tmp_path):
    check_kept(fitted_once(name), tmp_path)
    assert sw.load(tmp_path).columns == fitted_once(name).columns
    for place in ("parties/0000/coder.safetensors", "model.safetensors"):
        (tmp_path / place).write_bytes(b"nothing")
        with pytest.raises(DataError, match="is not a stored model"):
            sw.load(tmp_path)


@every
def test_missing_cells_are_drawn_or_refused_by_name(name):
    model, rows = fitted_once(name), pandas_frame(12)
    rows.loc[0:5, "town"] = None
    if name != "silofuse":
        with pytest.raises(QuestionError, match="cannot draw the rest of a row given a number"):
            model.impute(rows, seed=0)
        return
    filled = model.impute(rows, seed=0)
    assert filled.notna().all().all()
    assert (filled["pay"][rows["pay"].notna()] == rows["pay"].dropna()).all()


@every
def test_parts_are_the_rows_of_the_whole(name):
    fitted = fitted_once(name)
    whole, parts = fitted.sample(30, seed=0), fitted.sample_parts(30, seed=0)
    for party, columns in SPLIT.items():
        pd.testing.assert_frame_equal(parts[party], whole[columns])


@slowly
def test_classes_that_are_given_are_met(name):
    rows = fitted_once(name).sample(16, given={TARGET: True}, balanced="sex", seed=0)
    assert rows[TARGET].all()
    assert sorted(rows["sex"]) == ["f"] * 8 + ["m"] * 8


@every
def test_nothing_is_promised_and_every_ledger_says_so(name, tmp_path):
    fitted = fit(name, folder=tmp_path)
    assert not fitted.private
    assert fitted.epsilon == math.inf
    assert fitted.info.guarantee == "none"
    assert fitted.info.split == "columns"
    files = sorted(tmp_path.glob("parties/*/ledger.jsonl"))
    assert [Ledger.read(file).owner for file in files] == list(SPLIT)
    assert all("epsilon infinite" in line for line in str(fitted.ledger).splitlines())
    assert all(t.bytes_from_party > 0 for t in fitted.cost.parties.values())
    assert not list(tmp_path.rglob("training-*"))


@every
def test_a_bound_is_refused_before_anything_is_read(name):
    with pytest.raises(BudgetError, match=r"adds no noise.*epsilon = 1\.0"):
        fit(name, "nowhere.csv", budget=Budget(1.0, 1e-6))


@every
def test_wrong_settings_are_refused_before_anything_is_read(name):
    kind = COLUMN_METHODS[name]
    with pytest.raises(InputError, match="takes no wings"):
        kind(wings=2)
    with pytest.raises(InputError, match=r"diffusion\.wings is no setting"):
        kind(diffusion={"wings": 2})
    for target, why in {"wings": "is no column", "pay": "is no choice"}.items():
        with pytest.raises(InputError, match=f"target='{target}' {why}"):
            kind(target=target).fit("nowhere.csv", SCHEMA)


@pytest.mark.slow
@every
def test_odd_parties_are_served(name):
    frame = pandas_frame()[["sex", "town", "age", "member"]].assign(town="Ulm")  # a constant
    schema = SCHEMA.select(list(frame.columns))
    parts = [frame[[column]] for column in frame.columns]  # a party for each, the target's too
    sample = fit(name, parts, schema).sample(20, seed=0)
    assert list(sample.columns) == list(frame.columns)
    known = {"Ulm"} if name == "silofuse" else set(SCHEMA["town"].categories)
    assert set(sample["town"]) <= known  # three steps teach an autoencoder nothing


@pytest.mark.slow
@every
def test_a_party_of_one_row_and_a_single_party(name):
    frame = pandas_frame()
    assert len(fit(name, split(frame[:1])).sample(5, seed=0)) == 5
    alone = fit(name, [frame])
    assert len(alone.sample(5, seed=0)) == 5
    assert list(alone.cost.parties) == ["party-1"]


@every
def test_other_rows_stop_before_anything_is_released(name, tmp_path):
    parts = split(pandas_frame())
    parts["south"] = parts["south"][:-1]
    with pytest.raises(RosterError, match="'south' has 59 rows"):
        fit(name, parts, folder=tmp_path)
    assert not list(tmp_path.iterdir())


@slowly
def test_ids_are_made_anew(name):
    schema = Schema((Column("who", "id"), *SCHEMA.columns)).with_fallbacks()
    frame = pandas_frame()
    parts = {n: p.assign(who=np.arange(60) + 7) for n, p in split(frame).items()}
    sample = fit(name, parts, schema).sample(3, seed=0)
    assert list(sample.columns) == list(schema.names)
