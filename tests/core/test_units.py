"""Fits whose budget is of a person: from every source, resumed, saved, and what is refused."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.core import party as runs
from siloweave.errors import BudgetError, InputError, RosterError, SchemaError, UnitError
from siloweave.federation.site import FolderStore
from siloweave.privacy.budget import Budget, Relation
from siloweave.tables import Column, Encoder, Schema, read
from siloweave.tables import units as units_module
from siloweave.tables.ids import id_texts
from tests.tables.databases import in_duckdb, in_sqlite, needs_duckdb

SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m"), missing=True),
        Column("town", "categorical", categories=("Ulm", "Bonn", "Jena"), missing=True),
        Column("age", "integer", low=0, high=99, missing=True),
        Column("who", "id"),
    )
).with_fallbacks()
PERSON = Budget(5.0, 1e-5, unit="who", rows_per_unit=3)
AIM = sw.AIM(rounds_per_column=1, sweeps=2, final_sweeps=2)
TWO_ROUND = sw.TwoRound(final_sweeps=2)


def visits(people=30, rows=200, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "sex": rng.choice(["f", "m"], rows),
            "town": rng.choice(["Ulm", "Bonn", "Jena"], rows),
            "age": rng.integers(0, 100, rows),
            "who": rng.integers(0, people, rows),
        }
    )


class Taken:
    """Which rows take part, for as long as it lasts."""

    def __init__(self, patch):
        self.tables, honest = [], units_module.bounded_rows

        def bounded(table, column, most, secret, *, ordered=True):
            kept = honest(table, column, most, secret, ordered=ordered)
            self.tables.append(kept)
            return kept

        patch.setattr(runs, "bounded_rows", bounded)

    @property
    def most(self):
        return max(max(Counter(id_texts(t, "who")).values()) for t in self.tables)

    def shown(self):
        return [
            sorted(map(str, table.to_native().itertuples(index=False))) for table in self.tables
        ]


@pytest.fixture
def taken(monkeypatch):
    return Taken(monkeypatch)


SOURCES = {
    "a frame": lambda frame, folder: frame,
    "a CSV file": lambda frame, folder: written(frame, folder / "rows.csv"),
    "a Parquet file": lambda frame, folder: written(frame, folder / "rows.parquet"),
    "SQLite": lambda frame, folder: in_sqlite(read(frame), folder),
    "DuckDB": lambda frame, folder: in_duckdb(read(frame), folder),
}


def written(frame, path):
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize(
    "source",
    [pytest.param(name, marks=needs_duckdb if name == "DuckDB" else ()) for name in SOURCES],
)
@pytest.mark.parametrize("synth", [AIM, sw.GaussianCopula()], ids=lambda synth: synth.info.title)
def test_a_person_has_at_most_so_many_rows_from_every_source(source, synth, taken, tmp_path):
    frame = visits()
    budget = PERSON if synth is AIM else Budget(float("inf"), 1e-5, unit="who", rows_per_unit=3)
    fitted = synth.fit(SOURCES[source](frame, tmp_path), SCHEMA, budget=budget)
    (table,) = taken.tables
    assert taken.most == 3
    assert table.num_rows == sum(min(n, 3) for n in Counter(frame["who"]).values()) < len(frame)
    if synth is AIM:
        assert fitted.epsilon <= 5.0
        first = next(iter(fitted.ledgers.values()))[0].event
        assert first.sensitivity >= 3.0
        assert fitted.sample(9)["who"].nunique() == 9  # ids are drawn anew


def test_a_run_that_continues_keeps_the_same_rows_and_another_run_does_not(taken, tmp_path):
    frame = visits()
    for folder in ("a", "a", "b"):
        AIM.fit(frame, SCHEMA, budget=PERSON, folder=tmp_path / folder)
    one, again, other = taken.shown()
    assert one == again != other
    secret = tmp_path / "a" / "parties" / "0000" / "store"
    assert any("units" in str(path) or path.is_file() for path in secret.rglob("*"))


def test_each_party_bounds_its_own_rows(taken):
    parts = [visits(seed=1), visits(seed=2), visits(seed=3)]
    fitted = TWO_ROUND.fit(parts, SCHEMA, budget=PERSON)
    assert [t.num_rows for t in taken.tables] == [
        sum(min(n, 3) for n in Counter(part["who"]).values()) for part in parts
    ]
    for entries in fitted.ledgers.values():
        assert all(entry.event.sensitivity >= 3.0 for entry in entries)


def test_a_fit_says_what_it_protected_when_it_is_read_again(tmp_path):
    budget = Budget(5.0, 1e-5, "who", rows_per_unit=3, parties_per_unit=2)
    fitted = TWO_ROUND.fit([visits(seed=s) for s in range(3)], SCHEMA, budget=budget)
    fitted.save(tmp_path / "fit")
    loaded = sw.load(tmp_path / "fit")
    assert loaded.budget == budget
    assert loaded.ledger.epsilon_at_parties == fitted.ledger.epsilon_at_parties > 2 * fitted.epsilon
    assert "a unit with rows at 2 parties: epsilon" in str(fitted.ledger)
    vanished = replace(fitted, settings={**fitted.settings, "vanished": ["gone"]})
    assert vanished.ledger.epsilon_at_parties == float("inf")
    stored = json.loads((tmp_path / "fit" / "fit.json").read_text())
    assert (stored.pop("rows_per_unit"), stored.pop("parties_per_unit")) == (3, 2)
    stored["unit"] = "patient"  # as versions wrote it that took any word, and protected a row
    (tmp_path / "fit" / "fit.json").write_text(json.dumps(stored))
    assert sw.load(tmp_path / "fit").budget.by_row


def test_a_ledger_of_three_rows_is_not_continued_with_five(tmp_path):
    AIM.fit(visits(), SCHEMA, budget=PERSON, folder=tmp_path)
    for other in (replace_budget(rows_per_unit=5), Budget(5.0, 1e-5)):
        with pytest.raises(BudgetError, match="do not add up"):
            AIM.fit(visits(), SCHEMA, budget=other, folder=tmp_path)


def replace_budget(**named):
    return Budget(**{"epsilon": 5.0, "delta": 1e-5, "unit": "who", "rows_per_unit": 3} | named)


def test_a_ledger_of_a_version_that_took_any_word_is_continued_as_one_of_rows(tmp_path):
    row = Budget(5.0, 1e-5)
    AIM.fit(visits(), SCHEMA, budget=row, folder=tmp_path)
    store = tmp_path / "parties" / "0000" / "store"
    kept = FolderStore(store)
    kept.put("neighbours", b'["patient","add_remove"]')
    again = AIM.fit(visits(), SCHEMA, budget=row, folder=tmp_path)
    assert again.epsilon <= 5.0
    kept.put("neighbours", b'["patient","replace_one"]')
    with pytest.raises(BudgetError, match="do not add up"):
        AIM.fit(visits(), SCHEMA, budget=row, folder=tmp_path)


# Refused before a row is read


class Unreadable:
    """A source of rows that fails the test if it is read."""

    def __getattr__(self, name):
        raise AssertionError(f"the rows were looked at ({name})")


@pytest.mark.parametrize("synth", [AIM, TWO_ROUND, sw.GaussianCopula(), sw.SecureTwoRound()])
@pytest.mark.parametrize("unit", ["age", "patient"])
def test_a_unit_that_is_no_id_column_is_refused(synth, unit):
    epsilon = float("inf") if synth.info.guarantee == "none" else 1.0
    budget = Budget(epsilon, 1e-5, unit=unit, rows_per_unit=2)
    data = Unreadable() if synth.method.split == "central" else [Unreadable(), Unreadable()]
    with pytest.raises(SchemaError, match=f"unit = '{unit}' is .*name one of 'who'"):
        synth.fit(data, SCHEMA, budget=budget)


@pytest.mark.parametrize(
    ("synth", "missing"),
    [
        (sw.DistAIM(), "opened later are priced for single rows"),
        (sw.VertiGAN(), "clip the gradient of each row"),
        (sw.VertiMRF(encoding="fm"), "sketches of rows"),
        (sw.SiloFuse(privacy="latents"), "latent of each row"),
    ],
)
def test_methods_that_know_no_bound_for_several_rows_say_so(synth, missing):
    with pytest.raises(UnitError, match=missing) as caught:
        synth.fit([Unreadable(), Unreadable()], SCHEMA, budget=PERSON)
    assert isinstance(caught.value, NotImplementedError)
    assert isinstance(caught.value, BudgetError)


@pytest.mark.parametrize("synth", [sw.VertiMRF(), sw.SiloFuse(privacy="latents")])
def test_methods_of_replaced_rows_take_no_other_unit(synth):
    with pytest.raises(BudgetError, match="which is for unit = 'row'"):
        synth.fit([Unreadable(), Unreadable()], SCHEMA, budget=replace_budget(rows_per_unit=1))
    with pytest.raises(BudgetError, match="number of rows is not public"):
        replace_budget(relation=Relation.REPLACE_ONE)


def test_codes_do_not_say_whose_they_are():
    codes = Encoder(SCHEMA).encode(read(visits()))
    with pytest.raises(SchemaError, match="codes, which do not say whose"):
        AIM.fit(codes, SCHEMA, budget=PERSON)


def test_rows_without_an_id_are_refused_at_the_party_and_nothing_is_written(tmp_path):
    frame = visits().astype({"who": "Int64"})
    frame.loc[3:5, "who"] = pd.NA
    parts = {"north": visits(seed=1), "south": frame, "west": visits(seed=2)}
    with pytest.raises(SchemaError, match="party 'south': 3 rows have no id in 'who'"):
        TWO_ROUND.fit(parts, SCHEMA, budget=PERSON, folder=tmp_path / "run")
    assert not list(tmp_path.rglob("ledger.jsonl"))
    with pytest.raises(SchemaError, match="party 'south': the table lacks the id column 'who'"):
        TWO_ROUND.fit({**parts, "south": frame.drop(columns="who")}, SCHEMA, budget=PERSON)
    lacks = Schema((*SCHEMA.columns[:3], Column("who", "id", missing=True))).with_fallbacks()
    assert TWO_ROUND.fit(parts, lacks, budget=PERSON).epsilon <= 5.0


# Columns at several parties


SPLIT = {"north": ["sex", "who"], "south": ["town", "age", "who"]}


def split(frame):
    return {name: frame[columns] for name, columns in SPLIT.items()}


def test_parties_with_different_columns_keep_the_same_rows(taken):
    """By a public key, although one writes ids as numbers and the other as text."""
    frame = visits()
    parts = split(frame)
    parts["south"] = parts["south"].assign(who=frame["who"].astype(str))
    fitted = sw.SecureTwoRound(final_sweeps=2).fit(parts, SCHEMA, budget=PERSON)
    north, south = taken.tables
    assert id_texts(north, "who") == id_texts(south, "who")
    assert taken.most == 3
    assert fitted.epsilon <= 5.0
    sexes = Counter(zip(north.values("sex"), north.values("who"), strict=True))
    assert sexes <= Counter(zip(frame["sex"], frame["who"], strict=True))


def test_all_parties_with_different_columns_hold_the_id():
    parts = split(visits())
    parts["south"] = parts["south"].drop(columns="who")
    with pytest.raises(SchemaError, match="party 'south': the table lacks the id column 'who'"):
        sw.SecureTwoRound().fit(parts, SCHEMA, budget=PERSON)


def test_parties_with_other_people_in_their_rows_are_refused():
    frame = visits()
    parts = split(frame)
    parts["south"] = parts["south"].assign(who=frame["who"].to_numpy()[::-1].copy())
    with pytest.raises((RosterError, InputError), match=r"differ in id 'who'|rows and party"):
        sw.SecureTwoRound().fit(parts, SCHEMA, budget=PERSON)


def test_what_is_kept_with_different_columns_follows_from_the_runs_name(taken):
    for run in ("a", "a", "b"):
        sw.SecureTwoRound(final_sweeps=2).fit(split(visits()), SCHEMA, budget=PERSON, run=run)
    one, _, again, _, other, _ = taken.shown()
    assert one == again != other
