"""Runs over split columns: what any method gets, on one that repeats what it was sent."""

import math
import stat
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest

from siloweave.app.report import record_of
from siloweave.core.fit import Fit
from siloweave.core.method import Forecast, Guarantee, Method, Result
from siloweave.core.party import columns_of
from siloweave.core.run import Synthesizer
from siloweave.errors import (
    BudgetError,
    DataError,
    InputError,
    RosterError,
    SchemaError,
    WireError,
)
from siloweave.federation.messages import Array, Released, Reply, Request
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import NonPrivate
from siloweave.privacy.ledger import Ledger
from siloweave.protocols.columns import (
    ColumnsModel,
    columns_data,
    decoded_rows,
    keep_decoder,
    with_decoding,
)
from siloweave.tables import Column, Schema, read, write
from siloweave.tables.constraints import CategoryRanges, FixedCombinations, Unique
from siloweave.tables.features import Features
from siloweave.tables.keys import generator
from siloweave.tables.modelled import Modelled
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame
from tests.synthesizers.networked import fit_over_frames

SPLIT = {"north": ["town", "age", "seen"], "south": ["sex", "pay"], "west": ["member", "visits"]}


class Sent(Reply, frozen=True):
    rows: Released[Array]


class Send(Request[Sent], frozen=True):
    seed: int


def send(request, site):
    part = site.rows
    features = Features.fit(part.table, part.schema, key=request.seed)
    keep_decoder(site, features, Plain(features.width))
    site.progress("sending", 1.0)
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
    """A party's coder that changes nothing."""

    width: int

    def decode(self, part, *, key):
        return part

    def encode_known(self, X):
        return X

    def save(self, path: Path):
        path.write_text(str(self.width))

    @classmethod
    def load(cls, path: Path):
        return cls(int(path.read_text()))


def coordinate(session, task):
    replies = session.ask(Send(task.seed))
    task.progress("done", 1.0)
    parts = [r.rows.value.numpy() for r in replies]
    rows = np.concatenate(parts, axis=1)
    return Result(Repeats(rows), len(rows), parts=tuple(one.shape[1] for one in parts))


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
        decode=partial(decoded_rows, Plain.load),
        load=partial(ColumnsModel.read, joint=loaded, coder=Plain.load),
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
    assert seen[:5] == [0.5 / 3, 0.5 * 2 / 3, 0.5, 1.0, 1.0]
    assert seen[5:] == [1.0, 1.0]  # the parties answered from memory


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
    ).with_fallbacks()
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
    schema = Schema(
        (Column("who", "id"), Column("a", "boolean"), Column("b", "boolean"))
    ).with_fallbacks()
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
    schema = Schema(
        (Column("who", "id"), Column("a", "boolean"), Column("b", "boolean"))
    ).with_fallbacks()
    one = pd.DataFrame({"who": [3, 1, 2], "a": [True, False, True]})
    other = pd.DataFrame({"who": who, "b": [True, True, False]})
    found = columns_of({"a": read(one), "b": read(other)}, schema)
    assert found == {"a": ("a",), "b": ("b",)}
    broken = other.assign(who=[3.5, 1.0, 2.0])
    with pytest.raises(RosterError, match="'party-1' and 'party-2' differ in id 'who' at row 0"):
        Echo().fit([one, broken], schema)


# Constraints over a network, where the parties decode


@dataclass(frozen=True)
class FarEcho(Echo):
    """The same, whose parties may be elsewhere."""

    method: ClassVar[Method] = replace(
        Echo.method,
        handlers=with_decoding(lambda synth: {Send: send}, Plain.load),
        decode=partial(decoded_rows, Plain.load),
        forecast=lambda synth, case: Forecast({Send: 1}, 1.0, 1, 1.0, math.inf),
    )


AT_ONE = FixedCombinations(("town", "age"), (("Ulm", 30), ("Bonn", 40), ("Jena", 41)))
AT_TWO = CategoryRanges("age", "member", ((True, 35, None), (False, None, 35)))


def ages(frame):
    """Rows that keep what is at one party; half of them break what is at two."""
    return frame.assign(age=frame["town"].astype("str").map(dict(AT_ONE.rows)).astype(int))


def constrained(*rules, frame=None, **settings):
    data = split(ages(pandas_frame()) if frame is None else frame)
    schema = Schema(SCHEMA.columns, rules).with_fallbacks()
    return SimpleNamespace(synth=FarEcho(**settings), data=lambda s: data, schema=schema, fit={})


def texts(tables, tmp_path):
    for i, table in enumerate(tables):
        write(table, tmp_path / f"{i}.csv")
    return [(tmp_path / f"{i}.csv").read_text() for i in range(len(tables))]


@pytest.mark.parametrize("rows", [30, 900])
@pytest.mark.parametrize("rules", [(AT_ONE,), (AT_TWO,), (AT_ONE, AT_TWO)], ids=["1", "2", "both"])
def test_rows_over_a_network_keep_constraints_as_those_of_one_process(rules, rows, tmp_path):
    case = constrained(*rules)
    here = case.synth.fit(case.data(0), case.schema, noise="seeded")
    there, _ = fit_over_frames(case, tmp_path / "net", rows=rows)
    drawn = there.sample_table(rows, seed=0)
    one, other = texts([here.sample_table(rows, seed=0), drawn], tmp_path)
    assert one == other
    assert there.schema == here.schema
    assert there.columns == {name: tuple(own) for name, own in SPLIT.items()}
    assert not any(wrong.any() for wrong in Modelled(case.schema).broken(drawn).values())
    assert set(there.part_tables(rows, seed=0)["south"].names) == set(SPLIT["south"])


def test_categories_on_which_ranges_depend_keep_their_frequency():
    """Members break their range more often than others; they are not replaced by others."""
    rule = CategoryRanges("age", "member", ((True, 85, None),))
    frame = pandas_frame(600).assign(member=[True, False] * 300)
    fitted = FarEcho().fit(split(frame), Schema(SCHEMA.columns, (rule,)).with_fallbacks())
    drawn = fitted.sample(2_000, seed=0)
    assert drawn["age"][drawn["member"]].min() >= 85
    assert 0.45 < drawn["member"].mean() < 0.55


def test_rows_that_hardly_ever_keep_a_constraint_end_a_run_by_its_name(tmp_path, monkeypatch):
    case = constrained(CategoryRanges("age", "member", ((True, 18, 19), (False, 89, 90))))
    with pytest.raises(InputError, match=r"range of age by member: .* are too rare"):
        fit_over_frames(case, tmp_path / "few", rows=30)
    monkeypatch.setattr("siloweave.core.constrained._LARGEST_BATCH", 2_000)
    with pytest.raises(InputError, match="parties decoded rows 32 times"):
        fit_over_frames(case, tmp_path / "many", rows=3_000)


def test_a_party_whose_rows_break_its_constraint_says_to_the_coordinator_nothing_of_them(tmp_path):
    frame = ages(pandas_frame())
    frame.loc[[3, 5], "age"] = 31
    with pytest.raises(WireError, match="failed with SchemaError") as refused:
        fit_over_frames(constrained(AT_ONE, frame=frame), tmp_path)
    assert " 2 " not in str(refused.value)
    assert Ledger.read(tmp_path / "north" / "ledger.jsonl").entries == ()


def test_columns_that_stay_keep_what_is_never_drawn_again_and_nothing_else(tmp_path):
    case = constrained(AT_ONE, shared=False)
    here = case.synth.fit(case.data(0), case.schema, noise="seeded")
    fit_over_frames(case, tmp_path / "net", rows=50)
    for name, table in here.part_tables(50, seed=0).items():
        kept = read(tmp_path / "net" / name / "kept.parquet")
        one, other = texts([table, kept.select(list(table.names))], tmp_path)
        assert one == other
    refused = {AT_TWO: "stay apart", Unique(("pay",)): "cannot be drawn again"}
    refused[CategoryRanges("age", "town", (("Ulm", 30, 30),))] = "cannot be drawn again"
    for rule, words in refused.items():
        with pytest.raises(InputError, match=words):
            fit_over_frames(constrained(AT_ONE, rule, shared=False), tmp_path / "other")


def test_a_constraint_that_rows_proposed_is_named_where_columns_stay_at_their_parties(tmp_path):
    rule = msgspec.structs.replace(AT_ONE, from_data=True)
    fitted, _ = fit_over_frames(constrained(rule, shared=False), tmp_path, rows=50)
    facts = [f for f in record_of(fitted, "a").schema_facts if f.kind == "constraint"]
    assert [(f.facts, f.how) for f in facts] == [(rule.words, "free")]
