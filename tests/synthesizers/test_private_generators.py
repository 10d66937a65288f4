"""The properties that every private central generator shares; a new one is tested by its name."""

from functools import cache

import pandas as pd
import polars as pl
import pytest

from siloweave.errors import BudgetError, InputError, RosterError
from siloweave.methods.dp_sgd.method import DPTLDM
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import NonPrivate, SampledSharedGaussian
from siloweave.tables import Column, Schema
from tests.core.kills import WHERE, KilledError, Tap
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame
from tests.synthesizers.families import PRIVATE_GENERATORS
from tests.synthesizers.properties import (
    BY_SCHEMA,
    check_crowded,
    check_kept,
    check_like_the_frame,
    crowded,
    spoilt,
)

NET = {"steps": 3, "batch": 99, "hidden": (8,), "embed": 8, "timesteps": 5}
# Settings with which a fit takes a moment; nothing is learnt in so few steps. A batch beyond the
# rows draws all of them, and one program is compiled instead of two.
FAST = {
    "dp_ctgan": {"batch": 99, "steps": 4, "ratio": 2, "generator": (8,), "critic": (8,)},
    "dp_tabddpm": NET,
    "dp_tldm": {
        "autoencoder": {"steps": 2, "batch": 99, "hidden": (8,)},
        "diffusion": {**NET, "steps": 2},
    },
}
BUDGET = Budget(epsilon=4.0, delta=1e-5)
every = pytest.mark.parametrize("name", PRIVATE_GENERATORS)


def quick_first(quick):
    """All of them, all but one marked slow: each compiles for most of a minute."""
    others = [name for name in PRIVATE_GENERATORS if name != quick]
    return [quick, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


def make(name, **changes):
    return PRIVATE_GENERATORS[name](**FAST[name] | {"finest_bins": 8} | changes)


def fit(name, data=None, schema=SCHEMA, **named):
    data = pandas_frame() if data is None else data
    return make(name).fit(data, schema, **{"budget": BUDGET, "noise": "seeded", **named})


@cache
def fitted_once(name):
    """Compiling takes seconds; what only looks at a fit shares it."""
    return fit(name)


@every
def test_samples_keep_the_schema_and_the_types(name):
    check_like_the_frame(fitted_once(name).sample(200, seed=0), 200, dtypes=BY_SCHEMA)


@every
def test_numbers_lie_as_the_paid_counts_say(name):
    fitted = fitted_once(name)
    drawn = fitted.sample_table(1_000, seed=0)
    assert fitted.model.one_way.moved(drawn, drawn) is drawn  # nothing is far off that can be moved
    plain = fitted.sample(1_000, raked=False, seed=0)
    assert not plain.equals(fitted.sample(1_000, seed=0))


@every
def test_the_whole_budget_is_in_the_ledger_and_no_more(name):
    fitted = fitted_once(name)
    assert 0.98 * BUDGET.epsilon < fitted.epsilon <= BUDGET.epsilon
    assert fitted.info.guarantee == "dp"
    assert not fitted.private  # seeded
    assert fitted.num_rows == len(fitted.sample(seed=0))


@every
def test_it_is_kept_as_data_and_read_again(name, tmp_path):
    check_kept(fitted_once(name), tmp_path)


KILLED = [  # the noisy histogram, a step, and of DP-TLDM the first step of its second stage
    ("dp_tabddpm", 2, WHERE[1]),
    ("dp_tabddpm", 5, WHERE[2]),
    ("dp_tldm", 6, WHERE[1]),
    pytest.param("dp_ctgan", 5, WHERE[0], marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("name", "at", "where"), KILLED)
def test_an_interrupted_run_goes_on_to_the_same_rows(name, at, where, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        first = Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(name, folder=tmp_path, noise="os")
    with pytest.MonkeyPatch.context() as patch:
        second = Tap(patch)
        resumed = fit(name, folder=tmp_path, noise="os")
    assert all(second.answers[step] == answer for step, answer in first.answers.items())
    ledger = next(tmp_path.rglob("ledger.jsonl")).read_bytes()
    again = fit(name, folder=tmp_path, noise="os")  # from the answers that were kept
    assert next(tmp_path.rglob("ledger.jsonl")).read_bytes() == ledger  # nothing is paid twice
    assert not list(tmp_path.rglob("training-*"))
    pd.testing.assert_frame_equal(again.sample(30, seed=0), resumed.sample(30, seed=0))
    assert again.private


def test_the_papers_scope_goes_on_where_it_was_stopped(tmp_path):
    """Killed before the answer without noise is kept: it is trained again, alike."""
    made = make("dp_tldm", scope="autoencoder")
    last = 4 + FAST["dp_tldm"]["autoencoder"]["steps"]
    with pytest.MonkeyPatch.context() as patch:
        Tap(patch, last, WHERE[1])
        with pytest.raises(KilledError):
            made.fit(pandas_frame(), SCHEMA, budget=BUDGET, folder=tmp_path)
    one, other = (
        made.fit(pandas_frame(), SCHEMA, budget=BUDGET, folder=tmp_path) for _ in range(2)
    )
    pd.testing.assert_frame_equal(one.sample(30, seed=0), other.sample(30, seed=0))
    assert sum(isinstance(e.event, NonPrivate) for e in one.ledgers["curator"]) == 1


def test_the_same_seeds_give_the_same_rows_and_polars_gives_polars():
    one = fitted_once("dp_tabddpm")
    other = fit("dp_tabddpm", {"clinic": polars_frame()})
    assert isinstance(other.sample(5, seed=0), pl.DataFrame)
    assert other.sample(40, seed=0)["age"].to_list() == one.sample(40, seed=0)["age"].to_list()
    assert list(other.ledgers) == ["clinic"]


@pytest.mark.parametrize("name", quick_first("dp_tabddpm"))
def test_odd_tables(name):
    """A constant, a number that never varies, a wide column, and fewer rows than a batch."""
    schema, frame = crowded(7, 400)
    check_crowded(fit(name, frame, schema).sample(40, seed=0), schema)


@pytest.mark.slow
@every
def test_one_column(name):
    schema = Schema((Column("sex", "categorical", categories=("f", "m")),)).with_fallbacks()
    sample = fit(name, pd.DataFrame({"sex": ["f", "m"] * 20}), schema).sample(10, seed=0)
    assert set(sample["sex"]) <= {"f", "m"}


@every
def test_what_cannot_be_paid_is_refused_before_anything_is_read(name):
    with pytest.raises(BudgetError, match=r"too small .*Not even a single step.*Nothing was read"):
        fit(name, "nowhere.csv", budget=Budget(1e-3, 1e-5))
    with pytest.raises(BudgetError, match=r"needs a finite epsilon.*which adds none"):
        fit(name, "nowhere.csv", budget=Budget(float("inf"), 1e-5))
    with pytest.raises(RosterError, match="2 parties"):
        fit(name, {"a": "nowhere.csv", "b": "nowhere.csv"})
    for wrong in ({"clip": 0.0}, {"counts_share": 1.0}, {"target": "wings"}, {"target": "pay"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            make(name, **wrong).fit("nowhere.csv", SCHEMA, budget=BUDGET)
    with pytest.raises(InputError, match="takes no wings"):
        PRIVATE_GENERATORS[name](wings=2)


def test_a_table_that_does_not_fit_releases_nothing(tmp_path):
    with pytest.raises(InputError, match="age"):
        fit("dp_tabddpm", spoilt("bound"), schema=SCHEMA.refusing(), folder=tmp_path)
    assert not list(tmp_path.rglob("ledger.jsonl"))


def test_what_would_read_rows_without_noise_is_refused():
    for wrong, words in (
        ({"diffusion": {"clip_range": None}}, "clip_range=None"),
        ({"autoencoder": {"divergence": 0.0}}, "divergence"),
        ({"autoencoder": {"batch": 8}}, "must be the same"),
    ):
        with pytest.raises(InputError, match=words):
            DPTLDM(**wrong)
    with pytest.raises(InputError, match="scope"):
        DPTLDM(scope="all")


def test_the_papers_scope_is_partial_and_its_epsilon_infinite():
    fitted = make("dp_tldm", scope="autoencoder").fit(pandas_frame(), SCHEMA, budget=BUDGET)
    events = [entry.event for entry in fitted.ledgers["curator"]]
    assert fitted.epsilon == float("inf")
    assert not fitted.private
    assert fitted.info.guarantee == "partial"
    assert "no finite epsilon" in fitted.info.statement
    assert isinstance(events[-1], NonPrivate)
    paid = [event for event in events if isinstance(event, SampledSharedGaussian)]
    assert len(paid) == FAST["dp_tldm"]["autoencoder"]["steps"] == len(events) - 2
    budget = Budget(4.0, 1e-5, relation=Relation.REPLACE_ONE)
    replaced = make("dp_tldm", scope="autoencoder").fit(pandas_frame(), SCHEMA, budget=budget)
    assert replaced.ledgers["curator"][1].event.replace_one
    assert replaced.num_rows == len(pandas_frame())
