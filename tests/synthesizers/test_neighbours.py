"""What a run under a guarantee must not show, for every method of the registry that has one.

Neighbouring tables differ in one row or in one of its values. Whether a run starts, and the types
of what it draws, are seen by everyone, so both must be the same for neighbours.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import siloweave as sw
from siloweave.app.study import method_of
from siloweave.core.method import GUARANTEED
from siloweave.methods.registry import METHODS
from siloweave.privacy.budget import Budget, Relation
from siloweave.tables import Column, Schema
from siloweave.tables.schema import outline
from tests.synthesizers import cases, test_columns, test_private_generators, test_private_rows

BUDGET = Budget(epsilon=5.0, delta=1e-5)
# Settings with which a fit takes a moment, of those whose defaults are slow.
SETTINGS = {**test_private_rows.FAST, **test_private_generators.FAST, **test_columns.FAST} | {
    "vertigan": {
        "noise": 4, "trunk": (8,), "head": (8,), "critic": (4,), "batch": 99, "made": 8,
        "rounds": 2, "critic_steps": 1,
    },
}  # fmt: skip
OWN = {"silofuse": {"privacy": "latents"}}
REPLACED = ("silofuse", "vertimrf")  # for neighbours that replace a row: their number is public
NAMES = sorted(name for name, kind in METHODS.items() if kind().info.guarantee in GUARANTEED)
EVERY = [*NAMES, "silofuse"]
WHOLE = [name for name in NAMES if METHODS[name].method.split != "rows"]  # one number of rows
SCHEMA = Schema(
    (
        Column("who", "id"),
        Column("visits", "integer", low=0, high=9, missing=True),
        Column("grade", "categorical", categories=(1, 2, 3), missing=True),
        Column("sex", "categorical", categories=("f", "m"), missing=True),
        Column("member", "boolean", missing=True),
        Column("seen", "datetime", low="2020-01-01", high="2020-01-09", missing=True),
        Column("age", "integer", low=0, high=9),
    )
).with_fallbacks()
GONE = [column.name for column in SCHEMA.columns if column.missing]
_SLOW = ("dp_ctgan", "dp_tldm", "dp_fed_point_diff")  # compiled like another one that is tested


def frame(rows=40, **changes):
    """Every column that may miss values has all of them."""
    whole = np.arange(rows)
    made = {
        "who": whole,
        "visits": whole % 10,
        "grade": whole % 3 + 1,
        "sex": np.where(whole % 2, "f", "m"),
        "member": whole % 2 == 0,
        "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(whole % 9, unit="D"),
        "age": whole % 10,
    }
    return pd.DataFrame({**made, **changes})


def with_a_gap(whole):
    """The same without a value in its first row, wherever the schema allows that."""
    found = {name: [None, *whole[name].tolist()[1:]] for name in (*GONE, "who")}
    return whole.assign(**{name: pd.Series(values) for name, values in found.items()})


def made(name):
    facts = {"name": name, **OWN.get(name, {})}
    if name in SETTINGS:
        facts |= SETTINGS[name]
    if name in cases.FAST:
        return METHODS[name](workload=[("sex", "visits"), ("grade",)], **cases.FAST[name])
    return method_of(facts)


def fit(name, parts, *, budget=BUDGET, schema=SCHEMA, **named):
    """With one party's table where there is one, and with columns divided where they are split."""
    method, data = made(name), list(parts)
    if method.method.split == "central":
        data = data[0] if len(data) == 1 else pd.concat(data)
    elif method.method.split == "columns":
        whole = pd.concat(data)
        data = [whole[["who", "visits", "grade", "sex"]], whole[["member", "seen", "age"]]]
        if name in REPLACED:
            budget = Budget(5.0, 1e-5, relation=Relation.REPLACE_ONE)
    return method.fit(data, schema, budget=budget, **named)


def some_slow(names):
    return [pytest.param(n, marks=pytest.mark.slow if n in _SLOW else ()) for n in names]


every = pytest.mark.parametrize("name", some_slow(EVERY))


def test_pandas_shows_one_missing_value_by_its_types():
    """Else the tests below could not fail."""
    one, other = frame().dtypes, with_a_gap(frame()).dtypes
    assert [name for name in one.index if one[name] != other[name]] == [
        "who", "visits", "grade", "member",
    ]  # fmt: skip


# Types


@every
def test_one_missing_value_does_not_decide_the_types_of_what_is_drawn(name, tmp_path):
    found = []
    for i, table in enumerate((frame(), with_a_gap(frame()))):
        fitted = fit(name, [table])
        fitted.save(tmp_path / str(i))
        for one in (fitted, sw.load(tmp_path / str(i))):
            for rows in (3, 30):
                found.append(one.sample(rows).dtypes)
    for other in found[1:]:
        pd.testing.assert_series_equal(other, found[0])
    assert found[0][["visits", "grade", "member", "age"]].astype(str).tolist() == [
        "Int64", "Int64", "boolean", "int64",
    ]  # fmt: skip


_KINDS = {"polars": pl.from_pandas, "arrow": pa.Table.from_pandas}


@pytest.mark.parametrize("kind", _KINDS)
def test_other_frames_draw_the_schemas_types_too(kind, tmp_path):
    found = []
    for i, table in enumerate((frame(), with_a_gap(frame()), frame(visits=np.int8(3)))):
        fitted = fit("aim", [_KINDS[kind](table)])
        fitted.save(tmp_path / str(i))
        drawn = [one.sample(30) for one in (fitted, sw.load(tmp_path / str(i)))]
        assert {type(one) for one in drawn} == {type(_KINDS[kind](table))}
        found += [
            {n: str(t) for n, t in zip(SCHEMA.names, types(one), strict=True)} for one in drawn
        ]
    assert all(one == found[0] for one in found)
    assert found[0]["visits"].lower() == "int64"


def types(drawn):
    return drawn.dtypes if isinstance(drawn, pl.DataFrame) else drawn.schema.types


def test_without_a_guarantee_the_frames_types_come_back():
    table = frame(age=np.arange(40, dtype=np.int16) % 10)
    fitted = sw.FLAIM(variant="oracle", rounds=1, participation=1.0, queries=2).fit(
        [table], SCHEMA, budget=BUDGET
    )
    assert fitted.sample(5)["age"].dtype == "int16"


def test_an_outline_by_a_schema_says_nothing_of_rows():
    tables = [
        frame(),
        with_a_gap(frame()),
        frame()[:0],
        frame(0),
        frame(sex=None, seen="2020-01-02"),
    ]
    found = [outline(sw.read(one), SCHEMA) for one in tables]
    kinds = [[one.kind(name) for name in SCHEMA.names] for one in found]
    assert all(one == kinds[0] for one in kinds)
    assert all(one.to_native().dtypes.equals(found[0].to_native().dtypes) for one in found)
    again = outline(found[0], SCHEMA)
    assert again.to_native().dtypes.equals(found[0].to_native().dtypes)


def test_a_datetime_that_is_written_in_a_format_is_drawn_as_text():
    day = Column("day", "datetime", low="2020-01-01", high="2020-12-31", format="%d.%m.%Y")
    for days in (["03.02.2020"] * 9, pd.to_datetime(["2020-02-03"] * 9)):
        table = outline(sw.read(pd.DataFrame({"day": days})), Schema((day,)).with_fallbacks())
        assert table.kind("day") == "text"


# Numbers of rows


FEW = {
    "one is empty": [40, 0],
    "one has a row": [40, 1],
    "all are empty": [0, 0],
    "a row in all": [1, 0],
    "one party, empty": [0],
}


def _few():
    for name in NAMES:
        for words, counts in FEW.items():
            if name in WHOLE and len(counts) > 1 and sum(counts) != 1:
                continue
            if name in REPLACED and not sum(counts):
                continue
            marks = [pytest.mark.slow] if name in _SLOW else []
            yield pytest.param(name, counts, marks=marks, id=f"{name}: {words}")


@pytest.mark.parametrize(("name", "counts"), list(_few()))
def test_no_number_of_rows_is_refused(name, counts):
    fitted = fit(name, [frame()[:count] for count in counts])
    assert len(fitted.sample(20)) == 20
    assert len(fitted.sample()) >= 1
    assert 0 < fitted.epsilon <= BUDGET.epsilon


def _public(name, rows):
    """What everyone sees of a run besides what was noised and paid for."""
    fitted = fit(name, [frame(), frame()[:rows]])
    paid = [[type(e.event) for e in entries] for entries in fitted.ledgers.values()]
    return paid, fitted.cost.rounds, [t.messages for t in fitted.cost.parties.values()]


@pytest.mark.parametrize("name", ["two_round", "dp_fed_tabddpm"])
def test_a_party_pays_and_answers_alike_with_a_row_and_without(name):
    assert _public(name, 0) == _public(name, 1)
