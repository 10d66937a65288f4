"""Trainings that end by the clock, or where rows held back no longer gain."""

from itertools import count

import jax
import numpy as np
import pytest

import siloweave as sw
from siloweave.errors import InputError
from siloweave.models import diffusion, train
from siloweave.models.settings import DiffusionSettings
from siloweave.models.train import WatchedState
from siloweave.tables.features import Block
from tests.models.toys import BLOCKS as TOY
from tests.models.toys import toy

KEY = jax.random.key(3)
SMALL = {"hidden": (16,), "embed": 8, "timesteps": 20, "batch": 16, "passes": None}
BLOCKS = (Block("x", 0, 1, "number"), Block("y", 1, 1, "number"))


def noise(rows):
    return np.random.default_rng(0).normal(size=(rows, 2)).astype(np.float32)


def fitted(rows, progress=lambda text, done: None, store=None, **changes):
    settings = DiffusionSettings(**{**SMALL, **changes})
    return diffusion.fit(rows, BLOCKS, settings, key=KEY, progress=progress, store=store)


@pytest.fixture
def clock(monkeypatch):
    """A clock that is a second further at every look."""
    ticks = count()
    monkeypatch.setattr(train.time, "monotonic", lambda: float(next(ticks)))


@pytest.fixture
def states(monkeypatch):
    """All states between stretches, as the watch leaves them."""
    seen = []
    before = train.TrainingWatch.__call__

    def call(watch, state, step):
        after = before(watch, state, step)
        seen.append((step, after))
        return after

    monkeypatch.setattr(train.TrainingWatch, "__call__", call)
    return seen


def test_the_clock_ends_a_training_and_the_rate_falls_with_the_time(clock, states):
    told = []
    fitted(noise(64), steps=10**6, minutes=0.5, progress=lambda text, done: told.append(text))
    shares = [float(state.share) for _, (state, _, _) in states]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert 3 < states[-1][0] < 10**6
    assert [is_over for _, (_, _, is_over) in states] == [False] * (len(states) - 1) + [True]
    assert any("left at most" in text for text in told)


def test_a_training_with_time_to_spare_takes_all_steps(states):
    fitted(noise(64), steps=12, minutes=1e6)
    step, (state, _, is_over) = states[-1]
    assert (step, float(state.share), is_over) == (12, 1.0, True)


def test_the_time_before_an_interruption_counts(tmp_path, clock, states, monkeypatch):
    def interrupted(text, done):
        if len(states) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted(noise(64), steps=10**6, minutes=0.5, store=tmp_path, progress=interrupted)
    spent = float(states[-1][1][0].share)
    states.clear()
    fitted(noise(64), steps=10**6, minutes=0.5, store=tmp_path)
    assert float(states[0][1][0].share) >= spent > 0.0
    assert states[0][0] > 0


def test_rows_held_back_end_a_training_that_memorises(states):
    rows = noise(40)
    fitted(rows, steps=4000, hidden=(128, 128), learning_rate=1e-2, decay=0.9, watched=0.5)
    step, (state, note, is_over) = states[-1]
    assert is_over
    assert step < 4000
    assert isinstance(state, WatchedState)
    assert 0 < int(state.best_step) < step
    assert "on rows held back" in note


def test_the_network_that_was_best_on_rows_held_back_is_the_one_that_draws(states):
    model = fitted(noise(64), steps=200, watched=0.25)
    best = jax.tree.leaves(states[-1][1][0].best)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(model.net), best, strict=True))


def test_waves_are_learned_with_and_stored(tmp_path):
    X, blocks = toy(400), TOY
    settings = DiffusionSettings(**SMALL, steps=60, waves=4)
    model = diffusion.fit(X, blocks, settings, key=KEY)
    model.save(tmp_path / "m.safetensors")
    again = diffusion.TabDDPMModel.load(tmp_path / "m.safetensors")
    assert np.array_equal(model.sample(20, key=KEY), again.sample(20, key=KEY))
    plain = diffusion.fit(X, blocks, DiffusionSettings(**SMALL, steps=60), key=KEY)
    assert model.net.project.weight.shape[0] - plain.net.project.weight.shape[0] == 8


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("minutes", 0),
        ("minutes", -1.0),
        ("watched", 1.0),
        ("work", 0.0),
        ("waves", -1),
        ("waves", 17),
    ],
)
def test_settings_out_of_bounds_are_named(setting, value):
    with pytest.raises(InputError, match=setting):
        DiffusionSettings(**{setting: value})


def test_a_larger_network_takes_fewer_steps_for_the_same_work():
    rows = noise(64)
    small = fitted(rows, steps=500, work=3e-6)
    large = fitted(rows, steps=500, work=3e-6, hidden=(32, 32))
    assert 1 < large.settings.steps < small.settings.steps < 500


def test_a_share_that_holds_nothing_back_is_named():
    with pytest.raises(InputError, match=r"watched=0\.01"):
        fitted(noise(20), steps=5, watched=0.01)


@pytest.mark.parametrize("setting", [{"minutes": 1.0}, {"watched": 0.1}])
@pytest.mark.parametrize(
    "kind", [sw.FedTabDDPM, sw.FedPointDiff, sw.DPTabDDPM, sw.DPFedPointDiff, sw.E2E]
)
def test_where_a_training_cannot_end_early_it_is_refused_by_name(kind, setting):
    own = kind in (sw.FedTabDDPM, sw.DPTabDDPM)
    (name,) = setting
    with pytest.raises(InputError, match=name):
        kind(**setting) if own else kind(diffusion=setting)


def test_looks_at_rows_held_back_are_kept_with_the_model(tmp_path):
    model = fitted(noise(64), steps=200, watched=0.25)
    assert len(model.looks) >= 2
    assert [look.step for look in model.looks] == sorted({look.step for look in model.looks})
    assert model.looks[-1].step <= 200
    assert all(np.isfinite(look.loss) and look.seconds >= 0 for look in model.looks)
    model.save(tmp_path / "m.safetensors")
    assert diffusion.TabDDPMModel.load(tmp_path / "m.safetensors").looks == model.looks
    assert fitted(noise(64), steps=20).looks == ()


def test_the_owners_report_shows_the_loss_by_seconds(tmp_path):
    rows = sw.Table.from_columns({name: (noise(80)[:, i], None) for i, name in enumerate("xy")})
    schema = sw.Schema(tuple(sw.Column(n, "continuous", low=-9, high=9) for n in "xy"))
    small = {**SMALL, "steps": 40}
    for watched in (0.25, 0.0):
        fit = sw.PointDiff(diffusion={**small, "watched": watched}).fit(rows, schema, seed=0)
        page = sw.write_report(fit, tmp_path / "report.html", audience="owner", data=rows)
        assert ("Loss of rows held back" in page.read_text("utf-8")) == (watched > 0)
        public = sw.write_report(fit, tmp_path / "public.html")
        assert "Loss of rows held back" not in public.read_text("utf-8")
