"""What a fit is asked for and cannot do is refused in words; what it can do, it does exactly."""

import math

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import DataError, InputError, SchemaError
from tests.synthesizers.cases import BUDGET

HUGE = 2**60
SCHEMA = sw.Schema((
    sw.Column("n", "integer", low=0, high=HUGE, missing=True),
    sw.Column("at", "datetime", low="0900-01-01T00:00:00.0", high="2020-01-01T00:00:00.0"),
    sw.Column("c", "categorical", categories=("a", "b")),
)).with_fallbacks()  # fmt: skip
ROWS = pd.DataFrame({
    "n": pd.array([None, *np.arange(99) * 2**50], dtype="Int64"),
    "at": np.arange(100) * np.timedelta64(1, "D") + np.datetime64("1999-01-01", "us"),
    "c": ["a", "b"] * 50,
})  # fmt: skip


@pytest.fixture(scope="module")
def copula():
    return sw.GaussianCopula().fit(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def graphical():
    return sw.AIM(workload=[("c", "n")]).fit(ROWS, SCHEMA, budget=BUDGET)


@pytest.mark.parametrize("number", [2**53 + 1, HUGE - 1, 7])
def test_a_whole_number_that_is_given_keeps_its_digits(copula, number):
    assert copula.sample(3, given={"n": number}, seed=0)["n"].tolist() == [number] * 3
    frame = pd.DataFrame({"n": pd.array([number, None], dtype="Int64")})
    assert copula.sample(given=frame, seed=0)["n"].tolist()[0] == number


def test_a_moment_that_is_given_keeps_its_microseconds(copula):
    moment = np.datetime64("1999-01-02T03:04:05.678901", "us")
    assert (copula.sample(3, given={"at": moment}, seed=0)["at"].to_numpy() == moment).all()


@pytest.mark.parametrize("nothing", [None, math.nan, pd.NA, pd.NaT], ids=repr)
def test_every_way_to_say_that_a_value_is_missing_is_understood(copula, nothing):
    assert copula.sample(3, given={"n": nothing}, seed=0)["n"].isna().all()
    with pytest.raises(SchemaError, match="'c' has no missing values in the schema"):
        copula.sample(3, given={"c": nothing}, seed=0)


@pytest.mark.parametrize("rows", [2.5, 2.0, True, "3", [3]], ids=repr)
def test_only_whole_numbers_of_rows_are_drawn(copula, graphical, rows):
    for fitted in (copula, graphical):
        with pytest.raises(InputError, match="must be a whole number, 0 or more"):
            fitted.sample(rows, seed=0)
        with pytest.raises(InputError, match="num_rows=-1 must be a whole number, 0 or more"):
            fitted.sample(-1, seed=0)
        assert len(fitted.sample(np.int64(3), seed=0)) == 3


METHODS = [
    sw.AIM, sw.TwoRound, sw.GaussianCopula, sw.CTGAN, sw.TabDDPM, sw.DPCTGAN, sw.FedTGAN,
    sw.DPFedTabDDPM, sw.SiloFuse, sw.VertiGAN,
]  # fmt: skip


def asked(method, frame):
    """A frame as a method takes it, and the budget that it needs."""
    one, none = method.method.split == "central", method().info.guarantee == "none"
    return (frame if one else [frame]), sw.Budget(math.inf if none else 4.0, 1e-5)


@pytest.mark.parametrize("method", METHODS, ids=lambda one: one.__name__)
def test_a_table_of_ids_alone_is_refused(method, tmp_path):
    data, budget = asked(method, pd.DataFrame({"who": range(30)}))
    with pytest.raises(SchemaError, match="no column but ids; there is nothing to learn"):
        method().fit(
            data,
            sw.Schema((sw.Column("who", "id"),)).with_fallbacks(),
            budget=budget,
            folder=tmp_path,
        )
    assert not list(tmp_path.rglob("ledger.jsonl"))


@pytest.mark.parametrize("method", METHODS[2:], ids=lambda one: one.__name__)
def test_numbers_without_a_sum_of_squares_are_refused(method, tmp_path):
    frame = pd.DataFrame({"x": np.linspace(-1e200, 1e200, 30)})
    schema = sw.Schema((sw.Column("x", "continuous", low=-1e200, high=1e200),)).with_fallbacks()
    data, budget = asked(method, frame)
    with pytest.raises(SchemaError, match=r"'x': low=-1e\+200 is beyond 1e\+100 in size"):
        method().fit(data, schema, budget=budget, folder=tmp_path)
    assert not list(tmp_path.rglob("ledger.jsonl"))
    with pytest.raises(DataError, match="real: column 'x' holds numbers beyond"):
        sw.score(frame, frame)


@pytest.mark.parametrize("form", ["%Y-%m-%d", "%d.%m.%Y", "%%Y %Y%m%d", None])
def test_dates_before_the_year_1000_go_back_as_they_came(form):
    schema = sw.Schema(
        (sw.Column("d", "datetime", low="0001-01-01", high="1001-01-01", format=form),)
    ).with_fallbacks()
    days = sw.Table.from_columns({"d": (np.array(["0001-01-02", "0999-12-31", "1000-01-01"],
                                                 dtype="datetime64[us]"), None)})  # fmt: skip
    encoder = sw.Encoder(schema, bins=10**6)
    codes = encoder.encode(days)
    text = sw.Table.from_columns({"d": (np.array(["x"], dtype=object), None)})
    written = encoder.decode(codes, key=0, like=text)
    assert written.kind("d") == "text"
    assert encoder.encode(written).columns[0].tolist() == codes.columns[0].tolist()
