"""Replies with seeded noise are never sent again by a run that says its noise is private."""

import numpy as np
import pytest

from siloweave.errors import InputError
from siloweave.methods.aim.method import AIM
from siloweave.privacy.budget import Budget
from siloweave.tables import Column, Schema, Table

SCHEMA = Schema((Column("sex", "categorical", categories=("f", "m")),)).with_fallbacks()
ROWS = Table.from_columns({"sex": (np.array(["f", "m", "m"] * 20, dtype=object), None)})


def fit(folder, noise):
    budget = Budget(epsilon=3.0, delta=1e-5)
    return AIM().fit(ROWS, SCHEMA, budget=budget, seed=3, folder=folder, noise=noise)


def test_a_folder_with_seeded_noise_stays_one(tmp_path):
    assert not fit(tmp_path, "seeded").private
    with pytest.raises(InputError, match="has noise from a seed"):
        fit(tmp_path, "os")
    assert not fit(tmp_path, "seeded").private


def test_a_private_folder_that_is_seeded_later_is_not_called_private(tmp_path):
    assert fit(tmp_path, "os").private
    assert not fit(tmp_path, "seeded").private
