"""A coordinator that lies to parties that train networks, or that judge a synthetic table."""

from dataclasses import replace

import numpy as np
import pytest

import siloweave as sw
from siloweave.federation.site import Terms
from siloweave.privacy import gradients
from siloweave.privacy.budget import Budget, Relation
from siloweave.protocols import scoring
from siloweave.protocols.scoring import score_parties
from siloweave.tables.features import Features
from tests.guarantees.test_lying_coordinator import (
    SCHEMA,
    by_columns,
    check,
    fit_of,
    neighbours,
    same_keys,
    some_and_all,
)
from tests.guarantees.test_private_rounds import coins
from tests.synthesizers.families import PRIVATE_GENERATORS, PRIVATE_ROW_METHODS, takes_target

__all__ = ["same_keys"]  # for every test here

NET = {"steps": 2, "batch": 30, "hidden": [4], "embed": 4, "timesteps": 3}
GAN = {"generator": [4], "critic": [4], "noise": 2, "ratio": 2, "steps": 2, "batch": 30}
TWO = {"autoencoder": {"steps": 2, "batch": 30, "hidden": [4]}, "diffusion": NET}
SETTINGS = {
    "dp_fed_tabddpm": NET,
    "dp_fed_point_diff": {"diffusion": NET},
    "dp_fed_tgan": {**GAN, "pool": 6},
    "dp_ctgan": GAN,
    "dp_tabddpm": NET,
    "dp_tldm": TWO,
    "vertigan": {
        "noise": 4, "trunk": (6,), "head": (6,), "critic": (4,), "batch": 30, "made": 4,
        "rounds": 2, "critic_steps": 1,
    },
}  # fmt: skip


def network(name, **named):
    if name == "vertigan":
        made = sw.VertiGAN(**SETTINGS[name], finest_bins=4)
        return fit_of(made, arranged=by_columns, **named)
    kind = {**PRIVATE_ROW_METHODS, **PRIVATE_GENERATORS}[name]
    central = name in PRIVATE_GENERATORS
    target = {"target": "sex"} if takes_target(kind) else {}
    made = kind(**SETTINGS[name], finest_bins=4, **target)
    return fit_of(made, arranged=(lambda parts: parts[0]) if central else list, **named)


def scores(split, relation):
    def study(parts):
        data = parts if split == "rows" else by_columns(parts)
        return lambda: score_parties(
            data, neighbours(relation)[0][1], SCHEMA, bins=4, split=split, noise="seeded",
            budget=Budget(6.0, 1e-5, relation=relation),
        )  # fmt: skip

    study.dropouts = 0
    return study, relation


REPLACED = {"relation": Relation.REPLACE_ONE}
STUDIES = {name: network(name) for name in SETTINGS} | {
    "dp_fed_tabddpm, rows replaced": network("dp_fed_tabddpm", **REPLACED),
    "dp_tabddpm, rows replaced": network("dp_tabddpm", **REPLACED),
    "vertigan, rows replaced": network("vertigan", **REPLACED),
    "scores of rows": scores("rows", Relation.ADD_REMOVE),
    "scores of columns": scores("columns", Relation.REPLACE_ONE),
}
_SLOW = {"dp_fed_point_diff", "dp_ctgan", "dp_tldm"}  # compiled like another one that is not
_EVERY = [pytest.param(n, marks=pytest.mark.slow if n in _SLOW else ()) for n in STUDIES]


@pytest.fixture(autouse=True)
def same_coins(monkeypatch):
    """Neighbours draw the same rows but for the last."""
    monkeypatch.setattr(gradients, "drawn", coins)


@some_and_all
@pytest.mark.parametrize("name", _EVERY)
def test_no_lie_shows_what_was_not_paid_for(name, most):
    assert check(*STUDIES[name], most) > 1 / 4


# Parties that believe a message


def any_encoder(patch):
    """A party that encodes its rows by whatever facts it is sent, and refuses those that misfit."""
    read = Features.from_json

    def strict(text):
        features = read(text)
        return replace(features, schema=features.schema.refusing())

    patch.setattr(Features, "from_json", strict)
    patch.setattr(Features, "cover", lambda self, schema: True)


def any_shares(patch):
    """A party that takes the shares that it is sent for what they say they are."""

    def shares(request, site):
        return [np.asarray(one.numpy(), np.float64) for one in request.shares]

    patch.setattr(scoring, "_shares", shares)


def any_cohort(patch):
    """A party that adds up with whomever a message names, and tolerates as few as that says."""
    patch.setattr(Terms, "check_cohort", lambda *said: None)


@pytest.mark.parametrize(
    ("believe", "name", "path"),
    [
        (any_encoder, "dp_fed_tabddpm", ("features",)),
        (any_shares, "scores of rows", ("shares",)),
        (any_cohort, "dp_fed_tabddpm", ("tolerated",)),
    ],
)
def test_a_party_that_believes_a_message_is_caught(believe, name, path, monkeypatch):
    believe(monkeypatch)
    with pytest.raises(AssertionError, match=r"zCDP for|depends on rows"):
        check(*STUDIES[name], None, path)
