"""What every private network over parties with different rows promises its user."""

import math
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

import siloweave as sw
from siloweave.app.study import check_budget, listed, method_of
from siloweave.errors import BudgetError, InputError, WireError
from siloweave.federation import messages
from siloweave.federation.carriers.direct import Direct
from siloweave.federation.messages import Envelope
from siloweave.models.rounds import packed
from siloweave.models.settings import AutoencoderSettings
from siloweave.models.stepwise import DiffusionSteps
from siloweave.privacy.budget import Budget, Relation
from siloweave.privacy.events import SampledSharedGaussian, SharedGaussian
from siloweave.privacy.ledger import Ledger
from tests.core.kills import WHERE, KilledError, Tap
from tests.synthesizers.cases import SCHEMA, pandas_frame, polars_frame
from tests.synthesizers.families import PRIVATE_ROW_METHODS, takes_target
from tests.synthesizers.properties import BY_SCHEMA

BUDGET = Budget(5.0, 1e-5)
_DIFFUSION = {"hidden": [6], "embed": 6, "timesteps": 5, "steps": 3, "batch": 30}
_GAN = {"generator": [6], "critic": [6], "noise": 4, "steps": 3, "ratio": 2, "batch": 30, "pool": 8}
FAST = {
    "dp_fed_tabddpm": _DIFFUSION,
    "dp_fed_point_diff": {"diffusion": _DIFFUSION},
    "dp_fed_tgan": _GAN,
}
_SLOW = pytest.mark.slow
two = pytest.mark.parametrize("name", ["dp_fed_tabddpm", "dp_fed_tgan"])
every = pytest.mark.parametrize(
    "name", ["dp_fed_tabddpm", "dp_fed_tgan", pytest.param("dp_fed_point_diff", marks=_SLOW)]
)


def made(name, **changes):
    kind = PRIVATE_ROW_METHODS[name]
    target = {"target": "member"} if takes_target(kind) else {}
    return kind(**FAST[name] | {"finest_bins": 8} | target | changes)


def parts_of(frame):
    return [frame[:20], frame[20:40], frame[40:]]


def fit(name, data=None, *, schema=SCHEMA, budget=BUDGET, changes=None, **named):
    return made(name, **(changes or {})).fit(
        parts_of(pandas_frame()) if data is None else data, schema, budget=budget,
        **{"noise": "seeded"} | named,
    )  # fmt: skip


@cache
def fitted_once(name):
    return fit(name)


def weights_in(fitted):
    net = fitted.model.net.net
    found = getattr(net, "generator", net)  # of a GAN, whose own object has no arrays
    assert any(map(eqx.is_array, jax.tree.leaves(found)))
    return packed(found)


# What is promised


_PAYING = [  # other counts make other modes of numbers, and those another program of a GAN
    pytest.param(name, relation, marks=[] if name == "dp_fed_tabddpm" or first else [_SLOW])
    for name in PRIVATE_ROW_METHODS
    for relation in Relation
    for first in [name == "dp_fed_tgan" and relation is BUDGET.relation]
]


@pytest.mark.parametrize(("name", "relation"), _PAYING)
def test_every_party_pays_for_one_look_and_every_step_and_no_more(name, relation):
    budget = Budget(5.0, 1e-5, relation=relation)
    fitted = fitted_once(name) if relation is BUDGET.relation else fit(name, budget=budget)
    for entries in fitted.ledgers.values():
        events = [entry.event for entry in entries]
        assert [type(e) for e in events] == [SharedGaussian] + 3 * [SampledSharedGaussian]
        assert {e.replace_one for e in events[1:]} == {relation is Relation.REPLACE_ONE}
        assert {e.tolerated for e in events} == {1}
    assert 0.98 * 5.0 < fitted.epsilon <= 5.0
    assert len(set(fitted.epsilons.values())) == 1


@every
def test_what_it_says_about_itself(name):
    info = listed()[name]
    assert (info.split, info.trust, info.guarantee) == ("rows", "secure-sum", "dp")
    assert fitted_once(name).info == info
    synth = method_of({"name": name, "clip": 0.5, **FAST[name]})
    assert synth.method.needs_budget(synth)
    check_budget(synth, BUDGET)
    with pytest.raises(BudgetError, match="adds noise"):
        check_budget(synth, Budget(math.inf, 1e-5))
    assert not fitted_once(name).private  # noise from a seed


@pytest.mark.parametrize("name", ["dp_fed_tabddpm", pytest.param("dp_fed_tgan", marks=_SLOW)])
def test_noise_of_the_operating_system_is_never_the_same(name):
    one, other = (fit(name, noise="os") for _ in range(2))
    assert weights_in(one) != weights_in(other)
    assert one.private


# What is made


@every
def test_samples_keep_the_schema_the_types_and_gaps(name):
    sample = fitted_once(name).sample(60, seed=0)
    assert list(sample.columns) == list(SCHEMA.names)
    pd.testing.assert_series_equal(sample.dtypes, BY_SCHEMA)
    for column in SCHEMA.columns:
        values = sample[column.name].dropna()
        if column.kind == "categorical":
            assert set(values) <= set(column.categories)
        elif column.kind in ("integer", "continuous"):
            assert column.low <= values.min()
            assert values.max() <= column.high


@every
def test_a_file_gives_the_same_rows(name, tmp_path):
    one, other = fitted_once(name), fit(name)
    assert weights_in(one) == weights_in(other)
    one.save(tmp_path)
    again = sw.load(tmp_path)
    pd.testing.assert_frame_equal(
        again.sample(40, seed=0).astype(str), one.sample(40, seed=0).astype(str)
    )
    assert (again.info, again.ledgers, again.epsilon) == (one.info, one.ledgers, one.epsilon)
    if takes_target(PRIVATE_ROW_METHODS[name]):
        assert fitted_once(name).sample(40, given={"member": True}, seed=0)["member"].all()


def test_polars_gives_polars_and_one_party_is_enough():
    fitted = fit("dp_fed_tabddpm", [polars_frame()])
    assert isinstance(fitted.sample(50, seed=0), pl.DataFrame)
    assert fitted.epsilon <= 5.0
    assert {e.event.shares for es in fitted.ledgers.values() for e in es} == {1}


@two
def test_a_party_sends_four_bytes_a_weight_and_step(name):
    fitted = fitted_once(name)
    weights = fitted.ledgers["party-1"][-1].event.dimension
    steps = FAST[name]["steps"]
    for traffic in fitted.cost.parties.values():
        assert 4 * weights * steps < traffic.bytes_from_party < 4 * weights * steps + 20_000
    assert fitted.cost.rounds == 4 + steps


def test_only_the_critic_of_a_gan_meets_rows():
    """What is summed has the critic's size."""
    fitted = fitted_once("dp_fed_tgan")
    gan = fitted.model.net.net
    width = gan.heads.width + gan.heads.condition_width
    assert fitted.ledgers["party-1"][-1].event.dimension == (width + 1) * 6 + 7


@pytest.mark.slow
def test_the_generator_moves_in_its_turn():
    still = fit("dp_fed_tgan", changes={"ratio": 99})
    assert weights_in(still) != weights_in(fitted_once("dp_fed_tgan"))


# What is refused


@every
@pytest.mark.parametrize("change", ["drop", "bound", "unseen"])
def test_rows_that_do_not_fit_are_refused_by_name(name, change):
    frame = pandas_frame()
    if change == "drop":
        frame = frame.drop(columns="age")
    elif change == "bound":
        frame.loc[0, "age"] = 17
    else:
        frame["sex"] = pd.Series(["x"] * len(frame), dtype="str")
    with pytest.raises(InputError, match="party 'b'"):
        fit(name, {"a": pandas_frame(), "b": frame}, schema=SCHEMA.refusing())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"clip": 0.0}, r"clip=0.0 must be a number in \[1e-06, 1e\+06\]"),
        ({"clip": 1e-7}, "clip=1e-07 must be"),
        ({"clip": math.nan}, "clip=nan must be"),
        ({"clip": True}, "clip=True must be"),
        ({"tolerated": 1.5}, "tolerated=1.5 must be a whole number"),
        ({"counts_share": 0.95}, "counts_share=0.95"),
        ({"tolerated": -1}, "tolerated=-1"),
        ({"target": "nobody"}, "'nobody' is no column"),
        ({"clip_range": None}, "clip_range=None would read the range of the rows"),
        ({"passes": 3.0}, "passes=3.0 does nothing here"),
        ({"wings": 2}, "DPFedTabDDPM takes no wings"),
        ({"settings": 3}, "takes no settings"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(changes, said):
    with pytest.raises(InputError, match=said):
        made("dp_fed_tabddpm", **changes).fit("no.csv", SCHEMA, budget=BUDGET)


def test_a_training_that_diverges_stops_there_and_blames_nobody(monkeypatch):
    real = DiffusionSteps.moved

    def broken(self, state, slope, key):
        moved = real(self, state, slope, key)
        return jax.tree.map(lambda x: x * math.nan if eqx.is_inexact_array(x) else x, moved)

    monkeypatch.setattr(DiffusionSteps, "moved", broken)
    with pytest.raises(InputError, match=r"^training diverged in step 1"):
        fit("dp_fed_tabddpm")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"target": "member"}, "DPFedTGAN takes no target"),
        ({"pool": 0}, "pool=0 must be a whole number"),
        ({"epochs": 3}, "DPFedTGAN takes no epochs"),
        ({"ratio": 0}, "ratio=0"),
    ],
)
def test_wrong_settings_of_a_gan_are_refused_before_anything_is_read(changes, said):
    with pytest.raises(InputError, match=said):
        made("dp_fed_tgan", **changes).fit("no.csv", SCHEMA, budget=BUDGET)


def test_point_diffusions_take_nothing_from_the_rows():
    for settings, said in (
        ({"scaled": True}, "scaled=True"),
        ({"diffusion": {"clip_range": None}}, "clip_range=None"),
        ({"autoencoder": {"hidden": [4]}}, r"autoencoder\.hidden is no setting"),
        ({"autoencoder": AutoencoderSettings()}, r"mapping.*or SphereCodeSettings"),
    ):
        with pytest.raises(InputError, match=said):
            made("dp_fed_point_diff", **settings)


@pytest.mark.parametrize("budget", [Budget(math.inf, 1e-5), Budget(0.05, 1e-7)])
def test_a_budget_without_bound_or_too_small_is_refused_before_anything_is_read(budget):
    with pytest.raises(BudgetError, match=r"finite epsilon|Nothing was read"):
        fit("dp_fed_tabddpm", ["no.csv"], budget=budget)


def test_a_budget_that_another_run_has_spent_is_refused(tmp_path):
    fit("dp_fed_tabddpm", folder=tmp_path)
    with pytest.raises(BudgetError, match="already spent"):
        fit("dp_fed_tabddpm", folder=tmp_path, run="again")


# A run that is killed


_SOON = {("dp_fed_tabddpm", 1), ("dp_fed_tabddpm", 8), ("dp_fed_tgan", 13)}
_KILLS = [
    pytest.param(name, at, marks=[] if (name, at) in _SOON else [_SLOW])
    for name in ("dp_fed_tabddpm", "dp_fed_tgan")
    for at in (1, 5, 8, 13, 18)
]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("name", "at"), _KILLS)
def test_a_killed_run_goes_on_to_the_same_model(tmp_path, monkeypatch, name, at, where):
    with monkeypatch.context() as patch:
        Tap(patch, at, where)
        with pytest.raises(KilledError):
            fit(name, folder=tmp_path)
    again = fit(name, folder=tmp_path)
    assert weights_in(again) == weights_in(fitted_once(name))
    assert [len(entries) for entries in again.ledgers.values()] == [4, 4, 4]
    assert again.epsilon == fitted_once(name).epsilon


def test_the_ledger_is_written_before_anything_leaves(tmp_path, monkeypatch):
    send, seen = Direct.send, []

    def sent(transport, name, frame):
        answer = send(transport, name, frame)
        step = messages.decode(frame, Envelope).step
        file = sorted(tmp_path.glob("parties/*/ledger.jsonl"))[0]
        seen.append((name, step, len(Ledger.read(file).entries)))
        return answer

    monkeypatch.setattr(Direct, "send", sent)
    fit("dp_fed_tabddpm", folder=tmp_path)
    paid = {step: entries for name, step, entries in seen if name == "party-1"}
    # Key exchange, counts, the beginning, three steps, and the ledgers.
    assert paid == {0: 0, 1: 1, 2: 1, 3: 2, 4: 3, 5: 4, 6: 4}


# A coordinator that does not keep to the protocol


def _no_weights(message):
    return b"no weights"


def _not_finite(message):
    return packed(message._replace(rows=message.rows * np.nan))


def _smaller_pool(message):
    return packed(message._replace(rows=message.rows[1:]))


def _wider_pool(message):
    return packed(message._replace(rows=message.rows.astype("float32")))


@pytest.mark.parametrize("wrong", [_no_weights, _not_finite, _smaller_pool, _wider_pool])
def test_requests_that_no_training_makes_are_refused(monkeypatch, wrong):
    from siloweave.methods.dp_sgd import coordinator as file

    def asking(session, task, training, keys, ask, unit):
        message = training.message(training.start(keys.initial), keys.steps)
        session.ask(ask(0, wrong(message)))

    monkeypatch.setattr(file, "_steps", asking)
    with pytest.raises(WireError, match="party 'party-1', step 0"):
        fit("dp_fed_tgan")


def test_a_step_before_the_beginning_is_refused(monkeypatch):
    from siloweave.federation.session import Session

    ask = Session.ask_present

    def skipping(self, requests, *more, **named):
        if any(type(request).__name__ == "BeginTraining" for request in requests.values()):
            return {}
        return ask(self, requests, *more, **named)

    monkeypatch.setattr(Session, "ask_present", skipping)
    with pytest.raises(WireError, match="asked to train before the training began"):
        fit("dp_fed_tabddpm")


def test_more_steps_than_were_planned_meet_the_ledger(monkeypatch):
    from siloweave.methods.dp_sgd import coordinator as file

    honest = file._steps

    def longer(*given):
        honest(*given)
        return honest(*given)

    monkeypatch.setattr(file, "_steps", longer)
    with pytest.raises(BudgetError, match="Nothing was released"):
        fit("dp_fed_tabddpm")


def test_seeds_of_the_user_reach_first_weights_and_rows_alone():
    one, other = fit("dp_fed_tabddpm", seed=1), fit("dp_fed_tabddpm", seed=2)
    assert weights_in(one) != weights_in(other)
    assert np.isfinite(np.frombuffer(weights_in(one)[-4:], "<f4")).all()
