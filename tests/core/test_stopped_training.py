"""A training that was stopped goes on with the settings that it began with, or not at all."""

from contextlib import suppress
from shutil import rmtree

import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import InputError
from siloweave.models import train
from siloweave.privacy.budget import Budget
from tests.core.kills import KilledError, Tap
from tests.synthesizers.cases import SCHEMA, pandas_frame

TINY = {"hidden": [8], "embed": 8, "timesteps": 5, "steps": 6, "batch": 20}
BUDGET = Budget(epsilon=5.0, delta=1e-5)
PARTS = [["town", "age", "seen"], ["sex", "pay", "member", "visits"]]


def tabddpm(folder, *, target=None, seed=0, **changed):
    made = sw.TabDDPM(target=target, **(TINY | changed))
    return made.fit(pandas_frame(), SCHEMA, folder=folder, seed=seed)


def private(folder, *, clip=1.0, seed=0, **changed):
    made = sw.DPTabDDPM(clip=clip, **(TINY | changed))
    return made.fit(pandas_frame(), SCHEMA, folder=folder, seed=seed, budget=BUDGET)


def silofuse(folder, *, seed=0, **changed):
    parts = [pandas_frame()[names] for names in PARTS]
    made = sw.SiloFuse(diffusion=TINY | changed)
    return made.fit(parts, SCHEMA, folder=folder, seed=seed)


def stop(fit, folder):
    """Stop in the middle of the first training, with a checkpoint or a step behind it."""
    if fit is private:
        with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
            Tap(patch, 6)
            fit(folder)
        assert list(folder.rglob("training-*"))
        return
    kept = train.Keeper.keep

    def stopped(self, step, arrays):
        kept(self, step, arrays)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(train.Keeper, "keep", stopped)
        fit(folder)
    assert list(folder.rglob("training.json"))


@pytest.mark.parametrize(
    ("fit", "change", "words"),
    [
        (tabddpm, {"learning_rate": 0.5}, r"settings\.learning_rate = 0\.\d+, and now 0\.5"),
        (tabddpm, {"steps": 7}, r"settings\.steps = 6, and now 7"),
        (tabddpm, {"target": "sex"}, "target = None, and now 'sex'"),
        (tabddpm, {"seed": 1}, "seed = 0, and now 1"),
        (private, {"learning_rate": 0.5}, r"settings\.learning_rate = 0\.\d+, and now 0\.5"),
        (private, {"clip": 2.0}, r"settings\.clip = 1\.0, and now 2\.0"),
        (silofuse, {"steps": 7}, r"settings\.diffusion\.steps = 6, and now 7"),
        (
            silofuse,
            {"learning_rate": 0.5},
            r"settings\.diffusion\.learning_rate = 0\.\d+, and now 0\.5",
        ),
    ],
)
def test_other_settings_are_refused_and_named(fit, change, words, tmp_path):
    stop(fit, tmp_path)
    with pytest.raises(InputError, match=f"run 'run' was stopped while it trained with .*{words}"):
        fit(tmp_path, **change)


@pytest.mark.parametrize("fit", [tabddpm, silofuse])
def test_the_same_settings_go_on_and_a_removed_training_begins_anew(fit, tmp_path):
    stop(fit, tmp_path / "stopped")
    whole, again = fit(tmp_path / "whole"), fit(tmp_path / "stopped")
    pd.testing.assert_frame_equal(whole.sample(30, seed=0), again.sample(30, seed=0))
    stop(fit, tmp_path / "removed")
    for place in tmp_path.glob("removed/**/training-*"):
        rmtree(place)
    fit(tmp_path / "removed", steps=7)
    assert not list(tmp_path.rglob("training-*"))


def test_what_began_with_facts_that_are_gone_is_refused(tmp_path):
    stop(tabddpm, tmp_path)
    (folder,) = tmp_path.rglob("training-*")
    (note,) = (file for file in folder.iterdir() if "." not in file.name)
    note.unlink()
    with pytest.raises(InputError, match=f"remove {folder}"):
        tabddpm(tmp_path)


def test_a_run_that_trained_nothing_takes_other_settings(tmp_path):
    """It stopped before: there is nothing to go on with."""
    with pytest.MonkeyPatch.context() as patch, suppress(KilledError):
        Tap(patch, 1)
        tabddpm(tmp_path)
    assert list(tmp_path.rglob("training-*"))
    tabddpm(tmp_path, steps=7)
