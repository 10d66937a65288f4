import json
import tracemalloc

import msgspec
import numpy as np
import polars as pl
import pytest
from tests.evaluate.made import people, shuffled

from siloweave.errors import DataError, InputError, SchemaError
from siloweave.evaluate import scoring
from siloweave.evaluate.histograms import column_histograms, worst_pairs
from siloweave.evaluate.predictive import Trees, svm_misclassification, utilities
from siloweave.evaluate.score_sheet import GROUPS, Heading, Sheet, jackknife, make_sides
from siloweave.evaluate.scores import Associations, Scores
from siloweave.evaluate.scoring import score
from siloweave.evaluate.similarity import (
    associations,
    column_pair_trends,
    column_similarity,
    marginal_tvd,
)
from siloweave.models.mrf import MRF
from siloweave.report.page import pair_chart
from siloweave.tables import Column, Encoder, Schema, Table, align

EVERY = {
    *("column similarity", "correlation similarity", "statistical similarity"),
    *("Jensen-Shannon similarity", "Kolmogorov-Smirnov similarity"),
    *("resemblance (SiloFuse)", "resemblance (DP-TLDM)", "propensity", "discriminator AUC"),
    *("logistic detection", "utility", "utility (mean over columns)", "SVM misclassification"),
    *("XGB-C2ST", "utility of every column", "mutual-information error"),
    *("average JSD", "average Wasserstein distance", "3-way TVD", "4-way TVD"),
    *("workload error (closure)", "workload error (queries)"),
    *("column shapes", "column pair trends", "column pair trends (all pairs)"),
}
INVENTED = {"largest invented link", "mean invented link"}
SINGLE = {  # measures of single columns, which a shuffled table passes
    *("column similarity", "statistical similarity", "Jensen-Shannon similarity"),
    *("Kolmogorov-Smirnov similarity", "average JSD", "average Wasserstein distance"),
    "column shapes",
}


@pytest.fixture(scope="module")
def real():
    return people(0)


@pytest.fixture(scope="module")
def holdout():
    return people(1)


@pytest.fixture(scope="module")
def fresh(real, holdout):
    return score(real, people(2), holdout=holdout, target="rich")


@pytest.fixture(scope="module")
def mixed(real, holdout):
    return score(real, shuffled(real, 5), holdout=holdout)


@pytest.fixture
def quick(monkeypatch):
    """Fewer trees, for tests that do not ask how good they are."""
    few = Trees(5, 4, 0.3)
    monkeypatch.setattr("siloweave.evaluate.predictive.SHORT", few)
    monkeypatch.setattr("siloweave.evaluate.discriminator.LONG", few)
    monkeypatch.setattr("siloweave.evaluate.scoring.XGBOOST", few)


def share(part):
    """Where a value lies between floor (0) and ceiling (1)."""
    return (part.value - part.floor) / (part.ceiling - part.floor)


def test_everything_is_measured_or_has_its_reason(fresh):
    assert set(fresh.names) == EVERY | {"utility of 'rich'", "prediction of 'rich'"}
    gaps = {gap.name: gap.reason for gap in fresh.not_measured}
    assert set(gaps) == {"5-way TVD", "negative log-likelihood"} | INVENTED
    assert all("every pair of columns" in gaps[name] for name in INVENTED)
    assert gaps["5-way TVD"] == "5-way marginals take 5 columns; the tables have 4"
    assert "encoder=" in gaps["negative log-likelihood"]
    assert len(fresh.names) == len(set(fresh.names))
    assert all(np.isfinite([p.value, p.ceiling, p.floor]).all() for p in fresh.parts)


def test_invented_links_are_found_and_named(quick):
    rng = np.random.default_rng(0)
    code, died = rng.integers(0, 40, 2_000), rng.random(2_000) < 0.03
    drawn = np.where(code >= 8, rng.random(2_000) < 0.3, died)
    real, synthetic = ({"code": code.astype(str), "died": d} for d in (died, drawn))
    scores = score(pl.DataFrame(real), pl.DataFrame(synthetic))
    for name in INVENTED:
        part = scores[name]
        assert part.value > 0.25
        assert part.floor < 0.1
        assert part.note.startswith("over 1 pair that is independent")
        assert "largest for code and died" in part.note


@pytest.mark.parametrize("name", sorted(EVERY - SINGLE - {"SVM misclassification"}))
def test_fresh_rows_are_at_the_ceiling(fresh, name):
    part = fresh[name]
    room = 0.2 * abs(part.ceiling - part.floor)
    low, high = part.interval or (part.value, part.value)
    assert low - room < part.ceiling < high + room


@pytest.mark.parametrize("name", sorted(EVERY - SINGLE))
def test_shuffled_columns_are_at_the_floor(mixed, name):
    assert abs(share(mixed[name])) < 0.25


@pytest.mark.parametrize("name", sorted(SINGLE))
def test_single_columns_do_not_see_shuffling(mixed, name):
    part = mixed[name]
    assert part.value == pytest.approx(part.floor)
    assert part.value == pytest.approx(0 if part.better == "lower" else 100)


def test_a_copy_is_at_the_best(real, holdout):
    found = score(real, real, holdout=holdout)
    best = {"of 100": 100, "%": 100, "% of real": 100}
    skipped = {"utility (mean over columns)", "propensity", "resemblance (SiloFuse)"}
    for part in found.parts:
        if part.family in ("discriminability", "utility") or part.name in skipped:
            worst = part.ceiling - 0.25 * abs(part.ceiling - part.floor)
            assert part.better == "lower" or part.value > worst, part.name
        else:
            assert part.value == pytest.approx(best.get(part.unit, 0), abs=1e-6), part.name
    assert found["utility"].value == 100


def test_resemblances_are_means_of_their_parts(fresh):
    shared = [
        *("column similarity", "correlation similarity", "Jensen-Shannon similarity"),
        "Kolmogorov-Smirnov similarity",
    ]
    for whole, last in (("SiloFuse", "propensity"), ("DP-TLDM", "statistical similarity")):
        parts = [fresh[name] for name in (*shared, last)]
        for side in ("value", "ceiling", "floor"):
            expected = np.mean([getattr(part, side) for part in parts])
            assert getattr(fresh[f"resemblance ({whole})"], side) == pytest.approx(expected)


def test_intervals_hold_the_value_and_say_how_they_came(fresh):
    banded = {part.name for part in fresh.parts if part.interval}
    assert banded >= {
        *("resemblance (SiloFuse)", "resemblance (DP-TLDM)", "propensity", "utility"),
        *("column shapes", "column pair trends", "average JSD"),
    }
    for part in fresh.parts:
        if part.interval:
            assert part.interval[0] <= part.value <= part.interval[1]
            assert part.interval[0] < part.interval[1] or part.name == "statistical similarity"
        assert bool(part.interval) == bool(part.interval_by)


def test_the_jackknife_finds_the_standard_error_of_a_mean():
    rng = np.random.default_rng(0)
    values, groups = rng.normal(5, 2, 4000), np.arange(4000) % GROUPS
    found = [
        jackknife(x.mean(), [x[groups != g].mean() for g in range(GROUPS)], 99.0)
        for x in (rng.choice(values, 4000) for _ in range(60))
    ]
    halves = [(high - low) / 2 for low, high in found]
    expected = 2.262 * 2 / np.sqrt(4000)
    assert np.mean(halves) == pytest.approx(expected, rel=0.1)
    assert jackknife(0.5, [], 1.0) is None


@pytest.mark.usefixtures("quick")
def test_without_a_holdout_halves_are_compared(real, mixed):
    found = score(real, shuffled(real, 5), seed=3)
    assert "one random half of the real rows" in found.settings.ceiling
    assert found.settings.rows == {"real": 400, "synthetic": 400}
    assert "400 holdout rows" in mixed.settings.ceiling
    assert abs(share(found["column pair trends"])) < 0.25
    assert found["correlation similarity"].ceiling > 85


def test_the_floor_keeps_every_column_and_no_relation(real):
    sides = make_sides(align({"real": real, "synthetic": real}), 0)
    for column in sides.tables.columns:
        ours, theirs = (column.values[name] for name in sides.floor)
        np.testing.assert_array_equal(np.sort(ours), np.sort(theirs))
        assert not np.array_equal(ours, theirs)
    assert sides.tables.num_rows["half"] + sides.tables.num_rows["other half"] == 400


@pytest.mark.usefixtures("quick")
def test_seeds(real):
    small = people(3, 19)
    first, again, other = (score(real[:60], small, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first["propensity"].value != other["propensity"].value


def test_json_and_text(fresh):
    assert Scores.from_json(fresh.to_json()) == fresh
    assert json.loads(fresh.to_json())["settings"]["seed"] == 0
    assert fresh.to_dict()["parts"][0]["name"] == "column similarity"
    text = str(fresh)
    assert all(name in text for name in fresh.names)
    assert "not measured: 5-way TVD: 5-way marginals take 5 columns" in text
    assert len({line.index("higher") for line in text.splitlines() if "  higher  " in line}) == 1
    with pytest.raises(InputError, match="not a file of scores"):
        Scores.from_json('{"parts": 3}')
    with pytest.raises(InputError, match="'5-way TVD' was not measured: 5-way marginals"):
        fresh["5-way TVD"]
    with pytest.raises(InputError, match="there is no score 'x'; there are column similarity"):
        fresh["x"]


def test_what_plots_need(fresh, real):
    drawn = {column.name: column for column in fresh.columns}
    assert list(drawn) == ["age", "pay", "job", "rich"]
    for column in drawn.values():
        assert len(column.real) == len(column.synthetic) <= 30
        assert len(column.edges) == (len(column.real) + 1 if column.kind == "numeric" else 0)
        for place, shares in enumerate((column.real, column.synthetic)):
            outside = column.below[place] + column.above[place]
            assert sum(shares) + outside + column.missing[place] == pytest.approx(1)
        assert 0 <= column.distance < 0.2
    shares = real["job"].value_counts(sort=True, normalize=True)
    assert drawn["job"].cells == tuple(shares["job"])
    assert drawn["job"].real == pytest.approx(shares["proportion"])
    matrix = np.array(fresh.associations.real)
    assert matrix.shape == (4, 4)
    expected = np.corrcoef(real["age"], real["pay"])[0, 1]
    assert matrix[0, 1] == pytest.approx(expected)
    assert {name for name, _ in fresh.distinguishing} == {"age", "pay", "job", "rich"}


@pytest.mark.usefixtures("quick")
def test_what_takes_longer_is_measured_where_asked_for(real, holdout, monkeypatch):
    monkeypatch.setattr("siloweave.evaluate.scoring.LIGHTGBM", Trees(8, 4, 0.3))
    found = score(real, shuffled(real, 5), holdout=holdout[:150], thorough=True, detector_rows=200)
    usual = score(real, shuffled(real, 5), holdout=holdout[:150], detector_rows=200)
    longer = {"LightGBM-C2ST", "alpha-precision", "beta-recall"}
    assert set(found.names) - set(usual.names) == longer
    for name in ("LightGBM-C2ST", "XGB-C2ST"):
        assert found[name].floor < found[name].ceiling
        assert "rounds on 200 rows of either table, the ceiling on 150;" in found[name].note
        low, high = found[name].interval
        assert low <= found[name].value <= high
    assert found["beta-recall"].value == pytest.approx(found["beta-recall"].floor, abs=8)
    assert found["beta-recall"].note.startswith("400 rows of either table")
    assert found["XGB-C2ST"] == usual["XGB-C2ST"]
    assert found.settings.caps["rows of XGB-C2ST"] == 200


@pytest.mark.usefixtures("quick")
def test_a_detection_score_of_counts_that_agree_too_well_says_so(real):
    too_high = "too high: single columns agree better than chance allows"
    assert too_high in score(real, shuffled(real, 5))["XGB-C2ST"].note
    assert too_high not in score(real, people(7, len(real)))["XGB-C2ST"].note


@pytest.mark.usefixtures("quick")
def test_progress_moves_to_the_end():
    told = []
    score(people(0, 40), people(1, 40), progress=lambda text, done: told.append(done))
    assert told == sorted(told)
    assert (told[0], told[-1]) == (0.0, 1.0)


@pytest.mark.usefixtures("quick")
def test_only_numbers():
    one = people(0, 60).select("age", "pay")
    found = score(one, one)
    gaps = {gap.name: gap.reason for gap in found.not_measured}
    assert gaps["average JSD"] == "the tables have no categorical column"
    assert "3" in gaps["correlation similarity"]
    assert "no categorical column" in gaps["SVM misclassification"]
    note = found["resemblance (SiloFuse)"].note
    assert "NOT the whole: correlation similarity could not be measured" in note
    assert "NOT the whole" in str(found)


@pytest.mark.usefixtures("quick")
def test_only_categories():
    one = people(0, 60).select("job", "rich").with_columns(other=pl.col("job"))
    found = score(one, one)
    gaps = {gap.name for gap in found.not_measured}
    assert gaps >= {"Kolmogorov-Smirnov similarity", "average Wasserstein distance"}
    assert "Kolmogorov-Smirnov" in found["resemblance (DP-TLDM)"].note


@pytest.mark.usefixtures("quick")
def test_constant_and_half_missing_columns():
    real = people(0, 80).with_columns(
        flat=pl.lit("same"),
        level=pl.lit(2.5),
        job=pl.when(pl.int_range(80) % 2 == 0).then("job"),
        age=pl.when(pl.int_range(80) % 3 == 0).then("age"),
    )
    found = score(real, real)
    assert "without columns of one real value: flat, level" in found["utility"].note
    assert found["average Wasserstein distance"].note.endswith("level")
    assert found["column similarity"].value == pytest.approx(100)


@pytest.mark.usefixtures("quick")
def test_every_column_constant():
    flat = pl.DataFrame({"a": ["x"] * 30, "b": [2.5] * 30})
    found = score(flat, flat)
    gaps = {gap.name: gap.reason for gap in found.not_measured}
    assert "there is no target to predict" in gaps["utility"]
    assert found["column shapes"].value == 100


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_handful_of_rows(count):
    schema = Schema(
        (
            Column("x", "continuous", low=0.0, high=9.0),
            Column("c", "categorical", categories=("a", "b")),
        )
    )
    few = pl.DataFrame({"x": np.arange(count) + 0.5, "c": ["a", "b", "a", "b", "a"][:count]})
    found = score(few, few, schema=schema)
    gaps = {gap.name: gap.reason for gap in found.not_measured}
    if count < 3:
        assert "fewer than 3 folds" in gaps["propensity"]
        assert "fewer than 3 folds" in gaps["utility"]
    if count == 1:
        assert found["column shapes"].ceiling is None
    assert found["column shapes"].value == 100
    assert found["column shapes"].interval is None
    assert "NaN" not in str(found)


@pytest.mark.usefixtures("quick")
def test_a_target_of_one_class(real):
    flat = real[:60].with_columns(rich=pl.lit(value=True))
    found = score(flat, flat, target="rich")
    gaps = {gap.name: gap.reason for gap in found.not_measured}
    assert "the real rows have one value" in gaps["utility of 'rich'"]
    assert "has one value" in gaps["SVM misclassification"]


@pytest.mark.usefixtures("quick")
def test_bad_input(real):
    with pytest.raises(InputError, match="target='sex' is no column; choose from age, pay, job"):
        score(real, real, target="sex")
    named = real.with_columns(who=pl.int_range(400).cast(str))
    with pytest.raises(InputError, match="target='who' holds ids"):
        score(named, named, target="who")
    with pytest.raises(InputError, match="max_rows=3 must be a whole number, 30 or more"):
        score(real, real, max_rows=3)
    with pytest.raises(InputError, match="detector_rows=3 must be a whole number, 30 or more"):
        score(real, real, detector_rows=3)
    with pytest.raises(InputError, match="encoder is missing"):
        score(real, real, model=MRF)
    with pytest.raises(SchemaError, match="different columns"):
        score(real, real.drop("job"))
    with pytest.raises(DataError, match="synthetic has no rows"):
        score(real, real[:0])


class Coins:
    """A model that gives every row the same probability."""

    def __init__(self, probability):
        self.probability = probability

    def log_density(self, codes):
        with np.errstate(divide="ignore"):
            return np.log(np.full(codes.num_rows, self.probability))


@pytest.mark.usefixtures("quick")
def test_likelihood_where_there_is_a_model():
    schema = Schema((Column("c", "categorical", categories=("a", "b")), Column("d", "boolean")))
    rows = pl.DataFrame({"c": ["a", "b"] * 20, "d": [True, True, False, False] * 10})
    encoder = Encoder(schema)
    found = score(rows, rows, schema=schema, model=Coins(0.125), encoder=encoder)
    part = found["negative log-likelihood"]
    assert part.value == pytest.approx(np.log(8))
    assert part.floor == pytest.approx(np.log(4))
    assert part.ceiling is None
    assert "memorised" in part.note
    with pytest.raises(InputError, match="40 of 40 rows have probability 0"):
        score(rows, rows, schema=schema, model=Coins(0.0), encoder=encoder)[part.name]
    unseen = rows.with_columns(c=pl.lit("z"))
    found = score(rows, rows, holdout=unseen, schema=schema, model=Coins(0.5), encoder=encoder)
    with pytest.raises(InputError, match="was not measured"):
        found[part.name]


@pytest.mark.usefixtures("quick")
def test_a_hundred_thousand_categories_take_little_memory():
    rng = np.random.default_rng(0)
    values = tuple(f"v{i}" for i in range(100_000))
    kinds = [Column(name, "categorical", categories=values) for name in ("wide", "too")]
    schema = Schema((*kinds, Column("x", "continuous")))
    one = pl.DataFrame(
        {"wide": values, "too": rng.permutation(values), "x": rng.normal(size=100_000)}
    )
    both = align({"real": one, "synthetic": one}, schema)
    assert both.column("wide").levels == 100_001
    names = ("real", "synthetic")
    tracemalloc.start()
    assert column_similarity(both, *names) == pytest.approx(1)
    np.testing.assert_allclose(associations(both, "real"), 1)
    assert column_pair_trends(both, *names, strong=True).percent == pytest.approx(100)
    assert marginal_tvd(both, *names, 3, key=0) == pytest.approx(0)
    assert utilities(both, *names[:1], names[1:], key=0, max_rows=60).ratio("synthetic")[0] > 0
    assert svm_misclassification(both, *names, key=0, max_rows=60) <= 1
    assert len(column_histograms(both, *names)[0].cells) == 30
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100e6  # one table of all pairs would take 80 GB


def test_what_is_no_number_is_not_measured(real):
    sheet = Sheet(make_sides(align({"real": real, "synthetic": real}), 0))
    odd = {"synthetic": float("nan"), "floor": 0.0, "other half": float("inf")}
    assert not sheet.add(Heading("a", "f", "higher", "u", "s"), lambda a, b: odd[b])
    assert sheet.gaps[0].reason.startswith("it came out as nan")
    odd["synthetic"] = 1.0
    assert sheet.add(Heading("b", "f", "higher", "u", "s"), lambda a, b: odd[b])
    assert (sheet.parts[0].value, sheet.parts[0].ceiling, sheet.parts[0].floor) == (1.0, None, 0.0)


def test_the_forecast_of_a_score_grows_with_rows_columns_and_classes():
    def foreseen(rows, columns, labels, thorough=False):
        made = {
            f"c{i}": (np.arange(rows) % labels if labels else np.arange(rows) * 0.5, None)
            for i in range(columns)
        }
        kinds = tuple(
            Column(name, "categorical", tuple(range(labels)))
            if labels
            else Column(name, "continuous", low=0.0, high=float(rows))
            for name in made
        )
        table = Table.from_columns(made)
        tables = align({"real": table, "synthetic": table}, Schema(kinds))
        return scoring.expected_seconds(tables, 6_000, 50_000, thorough=thorough)

    # Measured on one core: 50 s with 6,000 rows of 40 numbers, 34 s with 25 columns of 6 labels.
    assert 25 < foreseen(6_000, 40, 0) < 100
    assert 17 < foreseen(6_000, 25, 6) < 68
    assert foreseen(200, 5, 0) < 7 < foreseen(6_000, 10, 5)
    assert foreseen(50_000, 15, 6) + 5 < foreseen(50_000, 15, 6, thorough=True)


def test_stages_say_how_long_all_of_it_takes_where_that_is_long():
    texts = []
    for seconds in (3.0, 62.0):
        scoring.with_forecast(lambda text, done: texts.append(text), seconds)("reading", 0.0)
    assert texts == ["reading", "reading (about 62 s of one core in all)"]


def histograms_of(real, synthetic, **columns):
    """The cells of columns that are made of arrays, by name."""
    tables = {}
    for i, name in enumerate((real, synthetic)):
        parts = {column: (values[i], None) for column, values in columns.items()}
        tables[name] = Table.from_columns(parts)
    both = align(tables)
    return {column.name: column for column in column_histograms(both, real, synthetic)}


def test_cells_of_whole_numbers_begin_and_end_at_whole_numbers():
    rng = np.random.default_rng(0)
    ages = rng.integers(17, 91, 5000)
    cells = histograms_of("real", "synthetic", age=(ages, ages + 50))["age"]
    edges = np.array(cells.edges)
    assert cells.whole
    assert (edges == edges.astype(int)).all()
    assert (np.diff(edges)[:-1] == 3).all()
    # Per year real ages are even; what is beyond the cells has a share of its own.
    density = np.array(cells.real) / np.diff(edges)
    assert density == pytest.approx(np.full(len(density), 1 / 74), rel=0.35)
    for place, shares in enumerate((cells.real, cells.synthetic)):
        total = sum(shares) + cells.below[place] + cells.above[place]
        assert total == pytest.approx(1)
    assert cells.above[1] == pytest.approx(np.mean(ages + 50 >= edges[-1]))
    assert cells.above[1] > 0.5


def test_a_short_range_of_whole_numbers_has_a_cell_for_each():
    few = np.repeat([1, 2, 3, 16], [5, 3, 1, 1])
    cells = histograms_of("real", "synthetic", n=(few, few))["n"]
    assert cells.edges == tuple(range(1, 18))
    assert cells.real[:3] == pytest.approx((0.5, 0.3, 0.1))
    assert cells.real[-1] == pytest.approx(0.1)


@pytest.mark.parametrize("kind", [np.int64, np.float64])
@pytest.mark.parametrize("share", [0.05, 0.85])
def test_many_zeros_have_a_cell_of_their_own(kind, share):
    rng = np.random.default_rng(0)
    values = np.where(rng.random(4000) < share, 0, rng.integers(1, 400, 4000)).astype(kind)
    cells = histograms_of("real", "synthetic", hours=(values, values))["hours"]
    assert len(cells.real) <= 30
    holds_zeros_alone = cells.real[0] == pytest.approx(np.mean(values == 0))
    assert holds_zeros_alone == (share == 0.85)
    assert sum(cells.real) + cells.below[0] + cells.above[0] == pytest.approx(1)


def test_the_last_cell_of_a_continuum_holds_its_end():
    values = np.linspace(0.0, 1.0, 11) + 0.25
    cells = histograms_of("real", "synthetic", x=(values, values))["x"]
    total = sum(cells.real) + cells.below[0] + cells.above[0]
    assert total == pytest.approx(1)
    assert not cells.whole


def test_the_pair_that_differs_most_is_drawn_first():
    rng = np.random.default_rng(1)
    size = rng.normal(50, 9, 400)
    tables = {}
    for name, joined in (("real", True), ("synthetic", False)):
        sex = np.where(size > 50, "m", "f")
        if not joined:
            sex = rng.permutation(sex)
        noise = rng.choice(np.array(["a", "b"]), 400)
        missing = rng.random(400) < 0.1
        tables[name] = Table.from_columns(
            {
                "size": (size, missing),
                "sex": (sex.astype(object), None),
                "noise": (noise.astype(object), None),
            }
        )
    both = align(tables)
    links = Associations(
        names=both.names,
        real=tuple(map(tuple, associations(both, "real").tolist())),
        synthetic=tuple(map(tuple, associations(both, "synthetic").tolist())),
    )
    pairs = worst_pairs(both, links, "real", "synthetic")
    assert len(pairs) == 3
    first = pairs[0]
    assert first.columns == ("size", "sex")
    assert first.strengths[0] > first.strengths[1] + 0.4
    row_labels, column_labels = first.labels
    assert row_labels[-1] == "missing"
    assert len(row_labels) == 11
    for grid in (first.real, first.synthetic):
        assert np.shape(grid) == (len(row_labels), len(column_labels))
        assert np.sum(grid) == pytest.approx(1)
    real = np.array(first.real)
    # In the real table sizes decide the sex: small ones have one sex, and large ones the other.
    assert (real[0] > 0).sum() == (real[-2] > 0).sum() == 1
    chart = pair_chart(msgspec.to_builtins(first))
    assert chart.title == "size and sex"
    assert chart.svg.count("<rect") == 2 * (11 * 2 + 1)
