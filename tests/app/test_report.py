"""From a fit to its record: what it shows, to whom, and in which words."""

import re
from dataclasses import replace
from datetime import date

import msgspec
import numpy as np
import pytest

from siloweave.app.report import _axis_edges, _fallback_words, labels_of, record_of
from siloweave.core.views import View
from siloweave.methods.aim.method import AIM
from siloweave.methods.central.method import GaussianCopula
from siloweave.methods.flaim.method import FLAIM
from siloweave.methods.registry import load
from siloweave.privacy.budget import Budget
from siloweave.privacy.events import Gaussian
from siloweave.report.page import render
from siloweave.report.record import Record
from siloweave.tables import Column, Schema
from siloweave.tables.codes import Encoder
from siloweave.tables.table import Table

SCHEMA = Schema(
    (
        Column("year", "integer", low=1999, high=2003),
        Column("pay", "integer", low=0, high=1_499_999),
        Column("score", "continuous", low=0.0, high=1.0),
        Column("seen", "datetime", low="2020-01-01", high="2020-12-31", missing=True),
        Column("ill", "boolean", from_data=("kind",)),
    )
).with_fallbacks()


def rows(count, seed):
    rng = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01", "us") + rng.integers(0, 366, count) * np.timedelta64(1, "D")
    return Table.from_columns(
        {
            "year": (rng.integers(1999, 2004, count), None),
            "pay": (rng.integers(0, 1_500_000, count), None),
            "score": (rng.random(count), None),
            "seen": (days, np.zeros(count, dtype=bool)),
            "ill": (rng.random(count) < 0.5, None),
        }
    )


@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("year", "1999", "2003"),
        ("pay", "0 to 187499", "1312500 to 1499999"),
        ("score", "0 to 0.125", "0.875 to 1"),
        ("seen", "2020-01-01 to 2020-02-15", "missing"),
        ("ill", "False", "True"),
    ],
)
def test_labels_are_what_a_reader_would_write(name, first, last):
    labels = labels_of(Encoder(SCHEMA, 8), name)
    assert (labels[0], labels[-1]) == (first, last)
    assert not any("e+" in label for label in labels)


@pytest.fixture(scope="module")
def tables():
    return [rows(60, 0), rows(50, 1)]


@pytest.fixture(scope="module")
def flaim(tables):
    method = FLAIM(rounds=1, participation=1.0, bins=4, workload=[("year", "ill"), ("pay", "ill")])
    return method.fit(tables, SCHEMA, budget=Budget(1.0, 1e-5))


def lines(fitted):
    return [(s.who, s.sees, s.protected_by) for s in record_of(fitted, "a").visibility]


def test_who_saw_what_is_what_the_fit_states(flaim, copula):
    for fitted in (flaim, copula):
        stated = fitted.info.visibility
        assert lines(fitted) == [(v.who, v.sees, v.protected_by) for v in stated]
    other = msgspec.structs.replace(flaim.info, visibility=(View("a cat", "mice", "fur"),))
    assert lines(replace(flaim, info=other)) == [("a cat", "mice", "fur")]


def test_an_oracle_shows_exact_counts_and_protects_nothing_that_follows(tables):
    method = FLAIM(
        variant="oracle", rounds=1, participation=1.0, bins=4, workload=[("year", "ill")]
    )
    oracle = lines(method.fit(tables, SCHEMA, budget=Budget(1.0, 1e-5)))
    assert ("the coordinator", "exact counts of each party", "nothing") in oracle
    why = "nothing: exact counts decide what is measured"
    assert {how for who, _, how in oracle if who in ("readers", "the other parties")} == {why}


def test_a_saved_fit_has_its_lines_and_that_it_was_simulated(flaim, copula, tmp_path):
    for i, fitted in enumerate((flaim, replace(copula, simulated=False))):
        fitted.save(tmp_path / str(i))
        again = load(tmp_path / str(i))
        assert again.info.visibility == fitted.info.visibility != ()
        assert again.simulated == record_of(again, "a").simulated == (i == 0)


def test_a_fact_from_rows_makes_the_badge_amber(flaim):
    record = record_of(flaim, "a")
    page = render(record)
    assert 'class="card verdict caution"' in page
    assert "1 column with facts from rows, not declared:</b> ill</p>" in page
    encoder = replace(flaim.model.encoder, schema=SCHEMA.declared())
    reviewed = replace(flaim, model=replace(flaim.model, encoder=encoder))
    page = render(record_of(reviewed, "a"))
    assert 'class="card verdict good"' in page
    assert "not declared" not in page


def test_an_id_whose_kind_came_from_rows_counts(tables):
    ids = Column("id", "id", from_data=("kind",))
    schema = Schema((ids, *SCHEMA.declared().columns)).with_fallbacks()
    record = record_of(GaussianCopula().fit(_with_ids(tables[0]), schema), "a")
    assert {f.column for f in record.schema_facts if f.how == "free"} == {"id"}


def _with_ids(table):
    columns = {name: (table.values(name), table.missing(name)) for name in table.names}
    return Table.from_columns({"id": (np.arange(table.num_rows), None), **columns})


def test_the_public_record_is_the_same_whatever_the_rows_are(flaim, tables):
    """All that the rows add to a record is in the part that the public copy drops."""
    with_rows = record_of(flaim, "a", owner=tables).public()
    others = record_of(flaim, "a", owner=[rows(500, 2)]).public()
    without = record_of(flaim, "a")
    assert with_rows.owner is None
    fields = [name for name in without.__struct_fields__ if name != "created"]
    for name in fields:
        assert getattr(with_rows, name) == getattr(others, name) == getattr(without, name), name


def test_a_record_says_where_bins_begin_and_end(flaim, tables):
    """What has no bins has no edges."""
    record = record_of(flaim, "a", owner=tables)
    for view in (record.synthetic, record.owner):
        edges = {m.column: m.edges for m in view.marginals}
        assert edges["year"] == (1999, 2001, 2002, 2003, 2004)
        assert edges["ill"] is msgspec.UNSET
    assert Record.from_json(record.to_json()) == record


def test_edges_are_numbers_of_an_axis_and_dates_are_days():
    encoder = Encoder(SCHEMA, 4)
    assert _axis_edges(encoder, "pay") == (0, 375_000, 750_000, 1_125_000, 1_500_000)
    assert _axis_edges(encoder, "score") == (0.0, 0.25, 0.5, 0.75, 1.0)
    days = _axis_edges(encoder, "seen")
    first = (date(2020, 1, 1) - date(1970, 1, 1)).days
    assert (days[0], days[-1]) == (first, first + 366)


def test_a_record_of_an_earlier_version_keeps_its_digest(flaim):
    """It says nothing of edges, and neither does its JSON when it is read and written."""
    record = record_of(flaim, "a")
    plain = tuple(
        msgspec.structs.replace(m, edges=msgspec.UNSET, others=msgspec.UNSET)
        for m in record.synthetic.marginals
    )
    view = msgspec.structs.replace(record.synthetic, marginals=plain)
    early = msgspec.structs.replace(record, synthetic=view)
    assert "edges" not in early.to_json()
    assert Record.from_json(early.to_json()).digest() == early.digest()
    assert "share of rows per bin" in render(early)


def test_the_owner_sees_how_far_the_synthetic_table_is(flaim, tables):
    owner = record_of(flaim, "a", owner=tables).owner
    assert set(owner.workload_errors) == {"over the queries", "over their closure"}
    assert all(0 < error < 2 for error in owner.workload_errors.values())
    assert set(owner.tvd) == {"1-way", "2-way", "3-way"}
    counts = {m.column: m.proportions for m in owner.marginals}
    assert counts["ill"][1] == pytest.approx(
        np.mean([*tables[0].values("ill"), *tables[1].values("ill")])
    )


def test_a_report_counts_the_rows_of_the_table_it_is_about(flaim):
    assert record_of(flaim, "a").synthetic.num_rows == round(flaim.model.mrf.total)
    assert record_of(flaim, "a", synthetic=flaim.sample_table(7, seed=0)).synthetic.num_rows == 7


def test_a_fact_that_came_from_rows_is_named_once(flaim):
    page = render(record_of(flaim, "a"))
    assert page.count("taken from the rows") == 1
    assert "one added or removed" in page


# Generators


WIDE = Schema(
    (
        Column("name", "categorical", categories=tuple(f"n{i}" for i in range(300)), missing=True),
        Column("ill", "boolean"),
    )
).with_fallbacks()


def people(count, seed):
    rng = np.random.default_rng(seed)
    names = np.array([f"n{i}" for i in (300 * rng.random(count) ** 6).astype(int)], dtype=object)
    return Table.from_columns({"name": (names, None), "ill": (rng.random(count) < 0.5, None)})


@pytest.fixture(scope="module")
def copula(tables):
    return GaussianCopula().fit(tables[0], SCHEMA)


def test_a_generator_is_told_in_plain_words(copula, tables):
    record = record_of(copula, "a", owner=tables[:1])
    assert (record.private, record.epsilon_spent) == (False, np.inf)
    assert "trained on the rows without noise" in record.not_private_reason
    assert record.parties[0].rows_public == 60
    told = {sight.who: sight.protected_by for sight in record.visibility}
    assert told == {
        "the curator": "nothing; it is trusted",
        "readers": "nothing: no noise was added",
    }
    assert record.owner.workload_errors == {}
    assert set(record.owner.tvd) == {"1-way", "2-way", "3-way"}
    page = render(record.public())
    assert "pass it and this page on only to those who may see the rows" in page
    assert "no curve to draw" in page
    assert ">inf" not in page


def test_a_generators_public_record_is_the_same_whatever_the_rows_are(copula, tables):
    drawn = copula.sample_table(50, seed=0)
    with_rows = record_of(copula, "a", owner=tables, synthetic=drawn).public()
    without = record_of(copula, "a", synthetic=drawn)
    for name in without.__struct_fields__:
        if name != "created":
            assert getattr(with_rows, name) == getattr(without, name), name
    assert with_rows.owner is None


def test_a_wide_column_is_shown_by_its_frequent_values_of_the_synthetic_table():
    fitted, real = GaussianCopula().fit(people(400, 0), WIDE), people(400, 1)
    record = record_of(fitted, "a", owner=[real])
    (wide, _), (owned, _) = record.synthetic.marginals, record.owner.marginals
    assert len(wide.labels) == 41
    assert wide.labels[-1] == "all others"
    # 300 names and missing values are 301 codes, of which 40 are shown.
    assert wide.others == owned.others == 261
    assert "others</text>" in render(record, audience="owner")
    assert wide.labels == owned.labels
    assert not wide.missing
    assert sum(wide.proportions) == pytest.approx(1.0)
    assert owned.proportions[0] == pytest.approx(np.mean(real.values("name") == "n0"))
    kept = [np.mean(real.values("name") == label) for label in owned.labels[:-1]]
    assert owned.proportions[-1] == pytest.approx(1.0 - sum(kept))


def test_what_a_part_covers_and_what_it_does_not(copula):
    (name, entries), *_ = copula.ledgers.items()
    paid = msgspec.structs.replace(entries[0], event=Gaussian(sigma=4.0, sensitivity=1.0))
    info = msgspec.structs.replace(copula.info, guarantee="partial", statement="Counts only.")
    partial = replace(
        copula, info=info, budget=Budget(2.0, 1e-5), ledgers={name: (paid, *entries[1:])}
    )
    record = record_of(partial, "a")
    (warning,) = record.warnings
    assert "ε = 1.02 at δ = 1e-5" in warning
    assert "weights of GaussianCopula; shares of every column; number of rows" in warning
    assert "encoders" not in warning
    page = render(record)
    assert "Partly private" in page
    assert "NOT PRIVATE" in page
    assert record_of(copula, "a").warnings == ()


def test_settings_within_settings_are_told_by_name(copula):
    nested = replace(copula, settings={"a": {"b": [1, 2], "c": {"d": None}}, "e": {1, 2}})
    settings = record_of(nested, "a").settings
    assert settings == {"a.b": [1, 2], "a.c.d": None, "e": "{1, 2}"}
    assert "1, 2" in render(record_of(nested, "a"))


def test_bars_are_equally_wide_where_the_model_cut_bins_by_rows():
    rng = np.random.default_rng(2)
    schema = Schema(
        (Column("x", "continuous", low=0.0, high=1.0), Column("ill", "boolean"))
    ).with_fallbacks()
    ill = rng.random(2000) < 0.5
    real = Table.from_columns({"x": (rng.beta(1, 4, 2000), None), "ill": (ill, None)})
    fitted = AIM(workload=[("x", "ill")], bins=8).fit(real, schema, budget=Budget(20.0, 1e-6))
    assert fitted.model.encoder.cuts
    record = record_of(fitted, "t", owner=[real])
    expected = np.histogram(real.values("x"), 8, (0.0, 1.0))[0] / 2000
    drawn, owner = (view.marginals[0] for view in (record.synthetic, record.owner))
    assert drawn.labels == owner.labels == labels_of(Encoder(schema, 8), "x")
    assert owner.proportions == pytest.approx(expected, abs=1e-3)
    assert drawn.proportions == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize("kind", ["integer", "continuous"])
def test_many_zeros_have_a_bar_of_their_own(kind):
    rng = np.random.default_rng(4)
    hours = np.where(rng.random(2000) < 0.85, 0, rng.integers(1, 100, 2000))
    hours = hours.astype(np.int64 if kind == "integer" else np.float64)
    schema = Schema((Column("hours", kind, low=0, high=99), Column("ill", "boolean")))
    table = {"hours": (hours, None), "ill": (rng.random(2000) < 0.5, None)}
    real = Table.from_columns(table)
    fitted = GaussianCopula().fit(real, schema.with_fallbacks())
    record = record_of(fitted, "t", owner=[real])
    drawn, owner = (view.marginals[0] for view in (record.synthetic, record.owner))
    assert drawn.labels[0] == "0"
    assert not drawn.logarithmic
    assert owner.proportions[0] == pytest.approx(np.mean(hours == 0))
    page = render(record, audience="owner")
    assert re.search(r">0: [\d.]+% synthetic, 8[\d.]+% real</text>", page)


def test_bars_of_skewed_columns_grow_by_a_factor():
    rng = np.random.default_rng(3)
    schema = Schema(
        (Column("pay", "integer", low=0, high=99_999), Column("ill", "boolean"))
    ).with_fallbacks()
    pay = np.where(rng.random(2000) < 0.6, 0, np.exp(rng.normal(6, 1.5, 2000)).clip(0, 99_999))
    table = {"pay": (pay.astype(np.int64), None), "ill": (rng.random(2000) < 0.5, None)}
    real = Table.from_columns(table)
    aim = AIM(bins=8).fit(real, schema, budget=Budget(20.0, 1e-6))
    copula = GaussianCopula().fit(real, schema)
    for fitted in (aim, copula):
        record = record_of(fitted, "t", owner=[real])
        drawn, owner = (view.marginals[0] for view in (record.synthetic, record.owner))
        assert drawn.logarithmic
        assert drawn.labels == owner.labels
        assert drawn.labels[:3] == ("0", "1", "2")
        assert owner.proportions[0] == pytest.approx(np.mean(real.values("pay") == 0))
        assert sum(drawn.proportions) == pytest.approx(1.0)
        assert not record.synthetic.marginals[1].logarithmic
        assert "logarithmic axis" in render(record)


def test_who_ran_it_is_what_the_caller_says(copula, monkeypatch):
    monkeypatch.setenv("USER", "canary")
    record = record_of(copula, "a", run_by="Ada, data office")
    assert record.run_by == "Ada, data office"
    assert set(record.versions) == {"Python", "jax", "numpy", "opendp", "dp-accounting"}
    assert "canary" not in record.to_json()
    assert record_of(copula, "a").run_by == ""


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (
            Column("age", "integer", low=17, high=90, fallback="low"),
            "an unreadable or missing cell becomes 17",
        ),
        (
            Column("age", "integer", low=17, high=90, fallback=40, missing=True),
            "an unreadable cell becomes 40",
        ),
        (
            Column("pay", "categorical", categories=("low", "high"), fallback="low"),
            "any other cell becomes low",
        ),
    ],
)
def test_the_value_of_cells_that_do_not_fit_is_named(column, text):
    assert _fallback_words(column) == text
