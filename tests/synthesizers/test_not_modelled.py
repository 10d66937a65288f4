"""Every method leaves ids and texts out, and its rows have them drawn anew; decimals are kept."""

from dataclasses import replace
from functools import cache

import msgspec
import numpy as np
import pandas as pd
import pytest

from siloweave.methods.registry import METHODS
from siloweave.tables import Column, Schema
from tests.synthesizers.cases import SCHEMA, pandas_frame
from tests.synthesizers.families import SYNTHESIZERS
from tests.synthesizers.test_columns import split
from tests.synthesizers.test_visibility import CASES

KEY, MAIL = r"P[0-9]{7}", r"[^@]+@example\.(com|net|org)"
WHOLE = Schema((
    Column("key", "id", format=KEY),
    *(msgspec.structs.replace(c, decimals=2) if c.kind == "continuous" else c
      for c in SCHEMA.columns),
    Column("mail", "text", format="email"),
    Column("note", "text"),
    Column("remark", "text", missing=True),
)).with_fallbacks()  # fmt: skip
FIRST = {case.name: case for case in reversed(CASES.values())}  # one case of each method
APART = ("silofuse apart", pytest.param("e2e_distr apart", marks=pytest.mark.slow))
QUICK = {*SYNTHESIZERS, "gaussian_copula", "tabddpm", "silofuse"}  # the others take seconds each
every = pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in FIRST]
)


def frame(seed=0):
    rows = pandas_frame(seed=seed)
    rng = np.random.default_rng(seed)
    left_out = {
        "key": [f"P{n:07d}" for n in rng.permutation(10**7)[: len(rows)]],
        "mail": [f"u{n}@hospital.example" for n in rng.permutation(len(rows))],
        "note": [f"came on day {n}, left" for n in rng.permutation(len(rows))],
        "remark": [None] * len(rows),
    }
    return rows.assign(pay=rows["pay"].round(2), **left_out)[list(WHOLE.names)]


def data_of(case):
    """As the case has it; where columns are split every party has the key."""
    rows = frame()
    given = case.data(0)
    if isinstance(given, pd.DataFrame):
        return rows
    if isinstance(given, list):
        return [rows[:20], rows[20:40], rows[40:]]
    return {
        name: rows[["key", *part, *(["mail", "note", "remark"] if name == "north" else [])]]
        for name, part in split(rows).items()
    }


@cache
def fitted(name):
    case = CASES.get(name) or FIRST[name]
    return replace(case, data=lambda _: data_of(case), schema=WHOLE).run()[0]


def check(sample, rows):
    assert list(sample.columns) == list(WHOLE.names)
    real = frame()
    assert sample["key"].str.fullmatch(KEY).all()
    assert sample["key"].is_unique
    assert sample["mail"].str.fullmatch(MAIL).all()
    assert sample["note"].is_unique
    assert sample["remark"].isna().all()
    for name in ("key", "mail", "note"):
        assert not set(sample[name]) & set(real[name])
    pay = sample["pay"].dropna()
    assert len(sample) == rows
    assert len(pay) > 0
    assert (pay.round(2) == pay).all()


def test_every_method_is_here():
    assert set(FIRST) == set(METHODS)


@every
def test_what_is_not_modelled_is_drawn_anew_and_decimals_are_kept(name):
    one = fitted(name)
    first = one.sample(40, seed=1)
    check(first, 40)
    pd.testing.assert_frame_equal(first, one.sample(40, seed=1))
    assert not set(first["key"]) & set(one.sample(40, seed=2)["key"])


@pytest.mark.parametrize("name", APART)
def test_an_id_is_the_same_at_every_party(name):
    parts = fitted(name).sample_parts(40, seed=1)
    keys = [part.pop("key") for part in parts.values()]
    assert all(one.tolist() == keys[0].tolist() for one in keys)
    whole = pd.concat([keys[0], *parts.values()], axis=1)
    check(whole[list(WHOLE.names)], 40)
