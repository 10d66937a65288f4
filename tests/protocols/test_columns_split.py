"""Runs over split columns: what any method gets, on one that repeats what it was sent."""

import math
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.core.fit import Fit
from siloweave.core.method import Forecast, Guarantee, Method, Result
from siloweave.core.run import Synthesizer, columns_of
from siloweave.errors import BudgetError, DataError, InputError, RosterError, SchemaError
from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.privacy import Budget
from siloweave.privacy.events import NonPrivate
from siloweave.protocols.columns import ColumnsModel, columns_data, gathered, keep_decoder
from siloweave.tables import Column, Schema, read
from siloweave.tables.features import Features
from siloweave.tables.keys import generator
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame

SPLIT = {"north": ["town", "age", "seen"], "south": ["sex", "pay"], "west": ["member", "visits"]}


class Sent(Reply, frozen=True):
    rows: Released[Array]


class Send(Request[Sent], frozen=True):
    seed: int


def send(request, site):
    part = site.rows
    features = Features.fit(part.table, part.schema, key=request.seed)
    keep_decoder(site, features, b"as they are")
    part.progress("sending", 1.0)
    made = features.encode(part.table, key=request.seed)
    return Sent(site.release(NonPrivate("as it is"), "vectors", lambda: Array.of(made, "<f4")))


@dataclass(frozen=True)
class Repeats:
    """Draws rows that it was sent."""

    rows: Any
    keeps: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = frozenset()

    def shares(self, column):
        return None

    def sample(self, n, *, key, given=None):
        return self.rows[generator(key).integers(len(self.rows), size=n)]

    def save(self, path: Path):
        path.write_bytes(Array.of(self.rows, "<f4").data)


@dataclass(frozen=True)
class Plain:
    """A local decoder that changes nothing."""

    features: Features
    coder: bytes

    @property
    def width(self):
        return self.features.width

    def decode(self, part, *, key):
        return part

    def encode(self, X):
        return X

    def to_bytes(self):
        return self.coder


def coordinate(session, task):
    replies = session.ask(Send(task.seed))
    task.progress("done", 1.0)
    rows = np.concatenate([r.rows.value.numpy() for r in replies], axis=1)
    return Result(Repeats(rows), len(rows))


def loaded(path):
    rows = np.frombuffer(path.read_bytes(), "<f4")
    return Repeats(rows.reshape(len(pandas_frame()), -1))


@dataclass(frozen=True)
class Echo(Synthesizer):
    shared: bool = True
    method: ClassVar[Method] = Method(
        name="echo",
        title="Echo",
        family="none",
        split="columns",
        trust="curator",
        paper="Nobody 2024",
        guarantee=lambda synth: Guarantee("none", "Nothing."),
        visibility=lambda synth: (),
        prepare=columns_data,
        handlers=lambda synth: {Send: send},
        coordinate=coordinate,
        gather=partial(gathered, Plain),
        load=partial(ColumnsModel.read, joint=loaded, decoder=Plain),
        forecast=lambda synth, case: Forecast({}, 1.0, 1, 1.0, math.inf),
        party_share=lambda synth: 0.5,
    )


def load(path):
    return Fit.read(path, {"echo": Echo.method.load})


def split(frame, by=None):
    return {name: frame[columns] for name, columns in (by or SPLIT).items()}


@pytest.fixture(scope="module")
def fitted():
    return Echo().fit(split(pandas_frame()), SCHEMA)


def test_rows_come_back_whole_in_the_schemas_order(fitted):
    frame = pandas_frame()
    sample = fitted.sample(200, seed=3)
    assert list(sample.columns) == list(SCHEMA.names)
    pd.testing.assert_series_equal(sample.dtypes, frame.dtypes)
    known = {tuple(row) for row in frame[["town", "sex", "member", "age"]].astype(str).values}
    drawn = {tuple(row) for row in sample[["town", "sex", "member", "age"]].astype(str).values}
    assert len(drawn) > 20
    assert drawn <= known


def test_parts_are_the_columns_of_each_party_and_the_same_rows(fitted):
    whole, parts = fitted.sample(20, seed=0), fitted.sample_parts(20, seed=0)
    assert {name: list(part.columns) for name, part in parts.items()} == SPLIT
    for name, columns in SPLIT.items():
        pd.testing.assert_frame_equal(parts[name], whole[columns])


def test_polars_gives_polars():
    frame = polars_frame()
    sample = Echo().fit([frame.select(c) for c in SPLIT.values()], SCHEMA).sample(20, seed=0)
    assert isinstance(sample, pl.DataFrame)
    assert sample.schema == frame.schema


def test_columns_that_stay_with_their_parties_are_not_put_together():
    fitted = Echo(shared=False).fit(split(pandas_frame()), SCHEMA)
    assert set(fitted.sample_parts(5, seed=0)) == set(SPLIT)
    with pytest.raises(InputError, match=r"stay with their parties.*sample_parts"):
        fitted.sample(5, seed=0)
    with pytest.raises(InputError, match="given: columns stay"):
        fitted.sample_parts(5, given={"age": 30}, seed=0)


def test_what_stays_with_the_parties_is_kept_for_its_owner_alone(tmp_path):
    fitted = Echo(shared=False).fit(split(pandas_frame()), SCHEMA)
    fitted.save(tmp_path / "model")
    places = [tmp_path / "model", *(tmp_path / "model").rglob("*")]
    modes = {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in places}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert set(load(tmp_path / "model").sample_parts(3, seed=0)) == set(SPLIT)


def test_it_is_kept_as_data_and_read_again(fitted, tmp_path):
    fitted.save(tmp_path)
    again = load(tmp_path)
    pd.testing.assert_frame_equal(
        again.sample(30, seed=0).astype(str), fitted.sample(30, seed=0).astype(str)
    )
    assert again.columns == fitted.columns
    assert again.ledgers == fitted.ledgers
    with pytest.raises(DataError, match="does not know"):
        Fit.read(tmp_path, {})
    (tmp_path / "parties" / "0001" / "features.json").unlink()
    with pytest.raises(DataError, match="cannot be read as a saved fit"):
        load(tmp_path)


def test_ledgers_and_bytes_are_those_of_each_party(fitted):
    assert set(fitted.ledgers) == set(fitted.cost.parties) == set(SPLIT)
    assert all(len(entries) == 1 for entries in fitted.ledgers.values())
    assert fitted.epsilon == math.inf
    assert not fitted.private
    sent = {name: t.bytes_from_party for name, t in fitted.cost.parties.items()}
    widths = {name: one.width for name, one in fitted.model.net.decoders.items()}
    ledger = 1_000  # bytes of the message that brings it
    most = {name: 4 * 60 * width + 300 + ledger for name, width in widths.items()}
    assert all(4 * 60 * widths[name] < sent[name] < most[name] for name in sent)
    assert fitted.cost.rounds == 2  # the last one brings the ledgers


def test_what_is_given_is_met(fitted):
    rows = fitted.sample(10, given={"member": True}, balanced="sex", seed=0)
    assert rows["member"].all()
    assert sorted(rows["sex"]) == ["f"] * 5 + ["m"] * 5


def test_a_run_goes_on_where_it_was(tmp_path):
    seen = []
    again = [
        Echo().fit(
            split(pandas_frame()), SCHEMA, folder=tmp_path, progress=lambda t, d: seen.append(d)
        )
        for _ in range(2)
    ]
    pd.testing.assert_frame_equal(again[0].sample(9, seed=0), again[1].sample(9, seed=0))
    assert again[0].heads == again[1].heads
    assert seen[:4] == [0.5 / 3, 0.5 * 2 / 3, 0.5, 1.0]
    assert seen[4:] == [1.0]  # the parties answered from memory


def test_a_run_does_not_go_on_with_other_rows_or_another_schema(tmp_path):
    Echo().fit(split(pandas_frame()), SCHEMA, folder=tmp_path)
    other = split(pandas_frame())
    other["south"] = other["south"].iloc[::-1].reset_index(drop=True)
    with pytest.raises(InputError, match="party 'south': its rows changed since this run began"):
        Echo().fit(other, SCHEMA, folder=tmp_path)
    wider = Schema(
        tuple(
            msgspec.structs.replace(c, high=999) if c.name == "age" else c for c in SCHEMA.columns
        )
    )
    with pytest.raises(InputError, match=r"party 'north': its rows changed .* or the schema"):
        Echo().fit(split(pandas_frame()), wider, folder=tmp_path)
    Echo().fit(other, wider, folder=tmp_path, run="another")


def test_a_bound_is_refused():
    with pytest.raises(BudgetError, match="adds no noise"):
        Echo().fit("nowhere.csv", SCHEMA, budget=Budget(1.0, 1e-6))


def cut(frame, name, rows):
    return {**split(frame), name: split(frame)[name][:rows]}


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (lambda f: cut(f, "south", 59), RosterError, r"'south' has 59 rows .* 'north' has 60"),
        (lambda f: cut(f, "west", 0), RosterError, "'west' has no rows"),
        (lambda f: {**split(f), "east": f[["age"]]}, SchemaError, "and 'east' both .*'age'"),
        (lambda f: {**split(f), "east": f[[]]}, RosterError, "'east' has no (rows|col)"),
        (lambda f: {"north": split(f)["north"]}, SchemaError, "no party holds .*'sex'.*'visits'"),
        (lambda f: split(f.assign(x=1), {**SPLIT, "e": ["x"]}), SchemaError, "'e': .*lacks .*'x'"),
        (lambda f: f, RosterError, "give one table per party"),
        (lambda f: {}, RosterError, "no party"),
        (lambda f: {**split(f), "south": "nowhere.csv"}, DataError, "party 'south'"),
    ],
)  # fmt: skip
def test_tables_that_do_not_go_together_name_the_party(data, error, message):
    with pytest.raises(error, match=message):
        Echo().fit(data(pandas_frame()), SCHEMA)


def test_ids_may_be_shared_and_must_agree():
    schema = Schema((Column("who", "id"), Column("a", "boolean"), Column("b", "boolean")))
    one = pd.DataFrame({"who": [3, 1, 2], "a": [True, False, True]})
    other = pd.DataFrame({"who": [3, 1, 2], "b": [True, True, False]})
    fitted = Echo().fit([one, other], schema)
    assert list(fitted.sample(2, seed=0).columns) == ["who", "a", "b"]
    assert [list(p.columns) for p in fitted.sample_parts(2, seed=0).values()] == [
        ["who", "a"],
        ["who", "b"],
    ]
    with pytest.raises(RosterError, match="'party-1' and 'party-2' differ in id 'who' at row 1"):
        Echo().fit([one, other.assign(who=[3, 2, 1])], schema)
    with pytest.raises(RosterError, match="'party-2' has no column but ids"):
        Echo().fit([one.assign(b=True), other[["who"]]], schema)


@pytest.mark.parametrize("who", [[3.0, 1.0, 2.0], ["3", "1", "2"]], ids=["floats", "text"])
def test_shared_ids_agree_as_an_alignment_reads_them(who):
    schema = Schema((Column("who", "id"), Column("a", "boolean"), Column("b", "boolean")))
    one = pd.DataFrame({"who": [3, 1, 2], "a": [True, False, True]})
    other = pd.DataFrame({"who": who, "b": [True, True, False]})
    found = columns_of({"a": read(one), "b": read(other)}, schema)
    assert found == {"a": ("a",), "b": ("b",)}
    broken = other.assign(who=[3.5, 1.0, 2.0])
    with pytest.raises(DataError, match="party 'party-2': the id column 'who' holds numbers that"):
        Echo().fit([one, broken], schema)
