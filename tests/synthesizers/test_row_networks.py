"""The properties that every network over parties with different rows shares."""

import math
from functools import cache

import polars as pl
import pytest

from siloweave.app.study import listed, method_of
from siloweave.errors import BudgetError, InputError, RosterError
from siloweave.privacy.budget import Budget, Relation
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame
from tests.synthesizers.families import ROW_METHODS, takes_target
from tests.synthesizers.properties import (
    NAMED,
    check_crowded,
    check_kept,
    check_like_the_frame,
    check_seeds,
    crowded,
    every_fault,
    spoilt,
)

_GAN = {"batch": 20, "pac": 2, "generator": [8], "critic": [8]}
_DIFFUSION = {"batch": 16, "hidden": [8], "embed": 8, "timesteps": 5}
FAST = {
    "fed_tgan": _GAN,
    "md_tgan": _GAN,
    "fed_tabddpm": _DIFFUSION,
    "fed_point_diff": {"diffusion": _DIFFUSION | {"steps": 6, "matched": 0}},
}
SOONER = {"fed_tabddpm"}  # CTGAN's rounds are tested in tests/methods/test_fed_tgan.py
every = pytest.mark.parametrize(
    "name", [n if n in SOONER else pytest.param(n, marks=pytest.mark.slow) for n in ROW_METHODS]
)


def made(name, target=None):
    named = {} if target is None else {"target": target}
    return ROW_METHODS[name](rounds=1, **FAST[name], **named)


def parts_of(frame):
    return [frame[:20], frame[20:40], frame[40:]]


def fit(name, data=None, schema=SCHEMA, **named):
    target = "member" if takes_target(ROW_METHODS[name]) and schema is SCHEMA else None
    return made(name, target).fit(
        parts_of(pandas_frame()) if data is None else data, schema, **named
    )


@cache
def fitted_once(name):
    return fit(name)


@every
def test_samples_keep_the_schema_the_types_and_gaps(name):
    check_like_the_frame(fitted_once(name).sample(60, seed=0), 60)


@every
def test_the_same_seed_gives_the_same_rows_and_a_file_too(name, tmp_path):
    fitted = fitted_once(name)
    check_seeds(fitted, fit(name))
    check_kept(fitted, tmp_path)
    assert len(fitted.sample(seed=0)) == fitted.num_rows == 60


@every
def test_polars_gives_polars(name):
    assert isinstance(fit(name, parts_of(polars_frame())).sample(50, seed=0), pl.DataFrame)


@every
def test_nothing_is_promised(name):
    fitted = fitted_once(name)
    assert fitted.epsilon == math.inf
    assert not fitted.private
    assert set(fitted.epsilons.values()) == {math.inf}
    with pytest.raises(BudgetError, match=r"adds no noise.*epsilon = 1\.0"):
        fit(name, "nowhere.csv", budget=Budget(1.0, 1e-6, "row", Relation.ADD_REMOVE))
    assert listed()[name].guarantee == "none"
    assert listed()[name].split == "rows"
    synth = method_of({"name": name, "rounds": 3})
    assert not synth.method.needs_budget(synth)


@every
def test_what_is_given_is_in_every_row(name):
    sample = fitted_once(name).sample(40, given={"member": True, "sex": None}, seed=0)
    assert sample["member"].all()
    assert sample["sex"].isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ROW_METHODS)
def test_one_category_a_wide_column_and_a_party_of_one_row(name):
    schema, frame = crowded(41, 300)
    check_crowded(fit(name, [frame[:40], frame[40:]], schema).sample(40, seed=0), schema)


@every
@every_fault
def test_rows_that_do_not_fit_are_refused_by_name(name, fault):
    with pytest.raises(InputError, match=f"party 'b'.*{NAMED[fault]}"):
        fit(name, {"a": pandas_frame(), "b": spoilt(fault)})


@every
def test_one_table_without_rows_is_that_of_one_party(name):
    with pytest.raises(RosterError, match="party 'party-1' has no rows"):
        fit(name, pandas_frame().head(0))
