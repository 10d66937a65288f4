"""The properties that every central generator shares; a new one is tested by being listed.

Compiling is what costs here, a program for each network, table and power of two of rows drawn, so
most tests look at one fit and draw 33 to 64 rows.
"""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.errors import BudgetError, DataError, InputError, QuestionError, SchemaError
from siloweave.methods.registry import load
from siloweave.privacy.budget import Budget
from siloweave.privacy.ledger import Ledger
from siloweave.tables import Column, Schema
from siloweave.tables.features import OneWay
from tests.synthesizers.cases import SCHEMA, TOWNS, pandas_frame, polars_frame
from tests.synthesizers.families import GENERATORS, takes_target
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

# Settings with which a fit takes a moment; nothing is learnt in so few steps.
_GAN = {"batch": 20, "pac": 2, "epochs": 1, "generator": (8,), "critic": (8,)}
_STEPS = {"steps": 3, "batch": 16, "hidden": (8,)}
_DIFFUSION = {**_STEPS, "embed": 8, "timesteps": 5}
FAST = {
    "ctgan": _GAN,
    "copula_gan": _GAN,
    "ads_gan": {**_GAN, "pac": 1},
    "ctab_gan": {"batch": 20, "epochs": 1, "channels": 2},
    "tabddpm": _DIFFUSION,
    "latent_diff": {"autoencoder": _STEPS, "diffusion": _DIFFUSION},
    "tldm": {"autoencoder": _STEPS, "diffusion": _DIFFUSION},
    "e2e": {"autoencoder": {"hidden": (8,)}, "diffusion": _DIFFUSION},
    "point_diff": {"diffusion": _DIFFUSION},
}
KEEPS = {"gaussian_copula", "tabddpm", "point_diff"}  # any column, a number too
KNOWS = {"gaussian_copula", "copula_gan", "ctgan", "ctab_gan"}  # which categories rows had
TARGET = "member"
every = pytest.mark.parametrize("name", GENERATORS)


def sooner(*names):
    """The copula and these on an odd table; the others, each a program or two, when slow."""
    quick = {"gaussian_copula", *names}
    return pytest.mark.parametrize(
        "name", [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in GENERATORS]
    )


def made(name, target=None):
    named = {} if target is None else {"target": target}
    return GENERATORS[name](**FAST.get(name, {}), **named)


def fit(name, data=None, schema=SCHEMA, **named):
    """With the target, where one is taken, on the tables of `cases`."""
    data = pandas_frame() if data is None else data
    target = TARGET if takes_target(GENERATORS[name]) and schema is SCHEMA else None
    return made(name, target).fit(data, schema, **named)


@cache
def fitted_once(name):
    """Compiling takes seconds; what only looks at a fit shares it."""
    return fit(name)


@every
def test_samples_keep_the_schema_and_the_types(name):
    check_like_the_frame(fitted_once(name).sample(60, seed=0), 60)


@every
def test_polars_gives_polars(name):
    frame = polars_frame()
    sample = fit(name, frame).sample(50, seed=0)
    assert isinstance(sample, pl.DataFrame)
    assert sample.schema == frame.schema


@every
def test_the_same_seed_gives_the_same_rows(name):
    check_seeds(fitted_once(name), fit(name))
    assert len(fitted_once(name).sample(seed=0)) == len(pandas_frame())


@every
def test_it_is_kept_as_data_and_read_again(name, tmp_path):
    check_kept(fitted_once(name), tmp_path, load)
    (tmp_path / "features.json").write_text("{")
    with pytest.raises((DataError, SchemaError)):
        load(tmp_path)


def test_rows_are_raked_to_the_columns_as_they_were_released(tmp_path):
    """A network that has learnt nothing yet; also after it was saved."""
    fitted = fitted_once("tabddpm")
    fitted.save(tmp_path)

    def distance(rows):
        one_way = fitted.model.one_way
        pairs = zip(one_way.codes(sw.read(rows)), one_way.shares, strict=True)
        return sum(abs(np.bincount(c, minlength=len(s)) / len(rows) - s).sum() for c, s in pairs)

    as_drawn, raked = (distance(fitted.sample(150, raked=way, seed=0)) for way in (False, True))
    assert raked < 0.8 * as_drawn
    again = load(tmp_path).sample(150, seed=0)
    assert again.astype(str).equals(fitted.sample(150, seed=0).astype(str))


def test_numbers_that_choosing_leaves_far_off_are_moved(monkeypatch):
    fitted = fitted_once("gaussian_copula")

    def seen(one_way, table, pool):
        assert pool.num_rows >= 1.5 * table.num_rows
        return table.take(range(7))

    monkeypatch.setattr(OneWay, "moved", seen)
    assert (len(fitted.sample(150, seed=0)), len(fitted.sample(150, raked=False, seed=0))) == (
        7,
        150,
    )


def test_more_rows_are_drawn_where_a_model_makes_some_values_too_rarely():
    fitted, asked = fitted_once("gaussian_copula"), []
    block = next(b for b in fitted.model.features.blocks if b.kind == "categorical")

    class Lopsided:
        """One category comes half as often as it should."""

        def sample(self, n, *, key, given=None):
            asked.append(n)
            X = fitted.model.net.sample(4 * n, key=key)
            rare = X[:, block.start : block.stop].argmax(1) == 0
            kept = np.flatnonzero(~rare | (np.arange(len(X)) % 2 == 0))
            return X[kept[:n]]

    plain = fitted.sample_table(1_000, seed=0)
    odd = replace(fitted, model=replace(fitted.model, net=Lopsided())).sample_table(1_000, seed=0)
    assert asked[0] == 2_500
    assert len(asked) == 2
    assert sum(asked) <= 5_000

    one_way, codes = fitted.model.one_way, fitted.model.one_way.codes
    place = [cells.column.name for cells in one_way.cells].index(block.column)
    shares = [np.bincount(codes(rows)[place]) / 1_000 for rows in (odd, plain)]
    assert shares[0] == pytest.approx(shares[1], abs=0.02)


@every
def test_nothing_is_promised_and_the_ledger_says_so(name, tmp_path):
    fitted = fit(name, folder=tmp_path)
    assert not fitted.private
    assert fitted.epsilon == math.inf
    assert fitted.info.guarantee == "none"
    (file,) = tmp_path.glob("parties/*/ledger.jsonl")
    assert len(Ledger.read(file).entries) == 4
    assert "epsilon infinite" in str(fitted.ledger)
    traffic = fitted.cost.parties["curator"]
    assert traffic.bytes_from_party > traffic.bytes_to_party > 0


@every
def test_a_bound_is_refused_before_anything_is_read(name):
    with pytest.raises(BudgetError, match=r"adds no noise at these settings.*epsilon = 1\.0"):
        fit(name, "nowhere.csv", budget=Budget(1.0, 1e-6))
    assert fitted_once(name).budget == Budget(math.inf, 1e-6)


@every
def test_wrong_settings_are_refused_before_anything_is_read(name):
    kind = GENERATORS[name]
    wrong = {"family": "none"} if name == "gaussian_copula" else {"wings": 2}
    with pytest.raises(InputError, match=r"takes no wings|family"):
        kind(**wrong)
    for target, why in {
        "wings": "is no column",
        "pay": "is no choice",
        "seen": "is no choice",
    }.items():
        with pytest.raises(InputError, match=f"takes no target|target='{target}' {why}"):
            kind(target=target).fit("nowhere.csv", SCHEMA)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (sw.LatentDiff, {"diffusion": {"step": 1}}, r"diffusion\.step is no setting"),
        (sw.LatentDiff, {"autoencoder": {"batch": 0}}, r"autoencoder: batch=0"),
        (sw.TLDM, {"diffusion": {"hidden": "wide"}}, r"diffusion\.hidden='wide' cannot"),
        (sw.E2E, {"autoencoder": 3}, r"autoencoder=3 must be a mapping"),
        (sw.E2E, {"diffusion": {"prediction": "noise"}}, r"joint=True needs"),
        (sw.PointDiff, {"autoencoder": {"per_bit": 0.5}}, r"autoencoder: per_bit=0\.5"),
        (sw.CTGAN, {"batch": 1.5}, r"batch=1\.5 must be a whole number"),
    ],
)
def test_an_error_names_the_path_of_a_setting(kind, settings, message):
    with pytest.raises(InputError, match=message):
        kind(**settings)


def test_settings_of_the_papers_stay_beneath_those_of_the_user():
    tldm = sw.TLDM(diffusion={"steps": 7}).settings()
    assert tldm["diffusion"]["prediction"] == "noise"
    assert tldm["diffusion"]["steps"] == 7
    assert tldm["autoencoder"]["divergence"] > 0
    assert sw.E2E().settings()["joint"]
    assert sw.E2E().settings()["diffusion"]["eta"] == 0.0  # decision 0022
    assert sw.E2EDistr().settings() == sw.E2E().settings() | {"shared": True}
    ads = sw.ADSGAN(identifiability="pairs", epochs=1).settings()
    assert (ads["identifiability"], ads["epochs"], ads["pac"]) == ("pairs", 1, 1)
    assert sw.LatentDiff(autoencoder={"per_bit": 2}).settings()["autoencoder"] == {"per_bit": 2.0}
    with pytest.raises(InputError, match="identifiability='far'"):
        sw.ADSGAN(identifiability="far").settings()


# Rows that are given some of their columns


@every
def test_what_is_given_is_in_every_row(name):
    model = fitted_once(name)
    sample = model.sample(40, given={"sex": None, "member": True}, seed=0)
    assert sample["sex"].isna().all()
    assert sample["member"].all()
    assert sample["town"].nunique() > 1
    pd.testing.assert_series_equal(sample.dtypes, pandas_frame().dtypes)
    again = model.sample(40, given={"sex": None, "member": True}, seed=0)
    pd.testing.assert_frame_equal(sample, again)


@every
def test_each_row_may_be_given_something_else(name):
    wanted = pd.DataFrame({"town": ["Ulm", None, "Bonn"] * 15, "member": [True, False, None] * 15})
    wanted["member"] = wanted["member"].astype("boolean")
    sample = fitted_once(name).sample(given=wanted, seed=0)
    assert len(sample) == 45
    for column in wanted:
        there = wanted[column].notna()
        assert (sample[column][there].astype(object) == wanted[column][there].astype(object)).all()


@every
def test_numbers_are_given_exactly_or_called_too_rare(name):
    model, given = fitted_once(name), {"age": 33, "pay": 0.1234567891, "seen": "2021-02-03"}
    if name not in KEEPS:
        with pytest.raises(InputError, match=r"40 of 40 rows were not met.*\(0\.00%\) matched in"):
            model.sample(40, given=given, tries=1, seed=0)
        return
    sample = model.sample(40, given={**given, "visits": None}, seed=0)
    assert sample["age"].tolist() == [33] * 40
    assert sample["pay"].tolist() == [0.1234567891] * 40
    assert (sample["seen"] == pd.Timestamp("2021-02-03")).all()
    assert sample["visits"].isna().all()


@every
def test_missing_cells_are_drawn_by_models_that_follow_numbers(name):
    rows = pandas_frame(12)
    rows.loc[0:5, "town"] = None
    model = fitted_once(name)
    if name not in KEEPS:
        with pytest.raises(QuestionError, match="cannot draw the rest of a row given a number"):
            model.impute(rows, seed=0)
        towns = pd.DataFrame({"town": ["Ulm", None]})
        assert model.impute(towns, seed=0)["town"].tolist()[0] == "Ulm"
        return
    filled = model.impute(rows, seed=0)
    assert filled.notna().all().all()
    assert (filled.dtypes == rows.dtypes).all()
    for column in rows:
        there = rows[column].notna()
        assert (filled[column][there] == rows[column][there]).all()
    with pytest.raises(QuestionError, match="log_prob"):
        model.log_prob(rows)
    shares = model.predict_proba(rows, "town", draws=2, seed=0)
    assert shares.sum(axis=1).round(9).eq(1.0).all()


@every
def test_classes_are_balanced(name):
    model = fitted_once(name)
    towns = model.sample(40, balanced="town", given={"member": False}, seed=0)
    counts = towns["town"].value_counts()[lambda c: c > 0]
    assert counts.max() - counts.min() <= 1
    if name in KNOWS:
        assert sorted(counts.index) == sorted(TOWNS[:3])  # no row was elsewhere
    assert not towns["member"].any()
    if takes_target(GENERATORS[name]):
        assert model.sample(40, balanced=True, seed=0)[TARGET].sum() == 20
    else:
        with pytest.raises(InputError, match="balanced=True needs a target"):
            model.sample(40, balanced=True, seed=0)


@every
def test_what_cannot_be_given_is_refused(name):
    model = fitted_once(name)
    wrong = [
        ({"given": {"wings": 2}}, "given names 'wings', and rows can be given only sex, town"),
        ({"given": {"age": 17}}, "given: column 'age'.*outside its bounds"),
        ({"given": {"age": None}}, "given: column 'age' has no missing values"),
        ({"given": {"age": [18, 19]}}, "'age' has several values"),
        ({"given": {"town": "Rome"}}, "given: column 'town': 'Rome' is not one of its"),
        ({"given": pd.DataFrame({"age": [20, 30]})}, "num_rows=5, but given has 2 rows"),
        ({"balanced": "age"}, "balanced='age' is no column of classes"),
        ({"balanced": "wings"}, "balanced='wings' is no column of classes"),
        ({"balanced": "sex", "given": {"sex": "f"}}, "given and balanced both name 'sex'"),
        ({"given": {"sex": "f"}, "tries": 0}, "tries=0"),
    ]
    for arguments, message in wrong:
        with pytest.raises(InputError, match=message):
            model.sample(5, **arguments, seed=0)
    with pytest.raises(InputError, match="num_rows=-1"):
        model.sample(-1, seed=0)
    if name in KNOWS:
        with pytest.raises(InputError, match="'town' to be 'elsewhere', which no row had"):
            model.sample(5, given={"town": "elsewhere"}, seed=0)


@every
def test_no_rows_are_no_trouble(name):
    model = fitted_once(name)
    assert len(model.sample(0, seed=0)) == len(model.sample(0, given={"sex": "f"}, seed=0)) == 0


# Odd tables


@sooner("ctgan", "tabddpm")
def test_crowded_tables(name):
    schema, frame = crowded(40, 3000, flags=60)
    model = fit(name, frame, schema)
    sample = model.sample(40, seed=0)
    check_crowded(sample, schema)
    assert sample[list(frame.columns[3:])].nunique().max() == 2
    assert model.sample(40, given={"flag 3": True}, seed=0)["flag 3"].all()


@sooner("ctgan")
def test_one_row(name):
    schema = SCHEMA.select(["town", "age", "pay"])
    frame = pandas_frame()[["town", "age", "pay"]].dropna()[:1]
    sample = fit(name, frame, schema).sample(40, seed=0)
    assert len(sample) == 40
    assert set(sample["town"]) <= set(TOWNS)
    assert sample["age"].tolist() == frame["age"].tolist() * 40


@sooner("tabddpm")  # of GANs: tests/models/test_gan.py
def test_one_column_of_fewer_rows_than_a_batch(name):
    frame = pd.DataFrame({"pay": np.linspace(-2.0, 2.0, 11)})
    sample = fit(
        name, frame, Schema((Column("pay", "continuous", low=-3.0, high=3.0),)).with_fallbacks()
    ).sample(40, seed=0)
    assert sample["pay"].between(-3, 3).all()
    assert list(sample.columns) == ["pay"]


@every
@every_fault
def test_rows_that_do_not_fit_are_refused(name, fault):
    with pytest.raises(InputError, match=NAMED[fault]):
        fit(name, spoilt(fault))


def test_a_table_too_wide_for_ctab_gan_is_refused_before_anything_is_released(tmp_path):
    names = [f"c{i:03d}" for i in range(120)]
    schema = Schema(
        tuple(Column(name, "categorical", categories=tuple("vwxyz")) for name in names)
    ).with_fallbacks()
    rows = pd.DataFrame({name: list("vwxyz") * 4 for name in names})
    with pytest.raises(InputError, match="1,200 entries, above 32 x 32"):
        sw.CTABGAN(epochs=0).fit(rows, schema, folder=tmp_path)
    (path,) = tmp_path.rglob("ledger.jsonl")
    assert Ledger.read(path).entries == ()


def test_a_copula_keeps_rank_correlations_of_codes_dates_and_their_names():
    rng = np.random.default_rng(7)
    base = rng.integers(1, 6, 2000)
    answers = {f"q{i}": np.clip(base + rng.integers(-1, 2, 2000), 1, 5) for i in range(3)}
    frame = pd.DataFrame(answers)
    frame["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(frame["q0"], unit="D")
    frame["name"] = np.array(["never", "rarely", "some", "often", "always"])[frame["q0"] - 1]
    frame.loc[rng.random(2000) < 0.2, "q2"] = np.nan
    drawn = sw.GaussianCopula().fit(frame, sw.Schema.detect(frame), seed=0).sample(3000, seed=1)

    def ranks(rows):
        numbers = rows.drop(columns="name").assign(day=rows["day"].dt.day).astype(float)
        return numbers.corr("spearman").to_numpy()

    np.testing.assert_allclose(ranks(drawn), ranks(frame), atol=0.05)
    named = frame.groupby("q0")["name"].first()
    assert (drawn["q0"].map(named) == drawn["name"]).mean() > 0.98
