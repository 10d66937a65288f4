"""A column of 10,000 declared values, as a user has it in a CSV file: a clear and quick end."""

import numpy as np
import pandas as pd
import pytest

import siloweave as sw
from siloweave.errors import CapacityError
from siloweave.tables import Column, Schema

ROWS = 2_000
VALUES = tuple(f"code {k}" for k in range(10_000))
SCHEMA = Schema(
    (
        Column("sex", "categorical", categories=("f", "m")),
        Column("area", "categorical", categories=("town", "land", "sea")),
        Column("code", "categorical", categories=VALUES),
    )
).with_fallbacks()
BUDGET = sw.Budget(1.0, 1e-5)
NETS = {"noise": 4, "trunk": (8,), "head": (8,), "critic": (4,), "made": 8, "rounds": 2}
TINY = {"hidden": [8], "embed": 8, "steps": 3, "batch": 16, "timesteps": 5}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Half of all people have the first code, and the others any."""
    rng, file = np.random.default_rng(0), tmp_path_factory.mktemp("wide") / "people.csv"
    frame = pd.DataFrame({c.name: rng.choice(c.categories, ROWS) for c in SCHEMA.columns})
    frame["sex"] = rng.choice(["f", "m"], ROWS, p=[0.8, 0.2])
    frame.loc[rng.random(ROWS) < 0.5, "code"] = VALUES[0]
    frame.to_csv(file, index=False)
    return sw.read(file)


def split(table):
    return {"tax": table.select(["sex", "code"]), "town": table.select(["area"])}


def halves(table):
    return {name: table.take(range(k, ROWS, 2)) for k, name in enumerate(("north", "south"))}


FITS = {
    "distaim": (sw.DistAIM(rounds=1, participation=1.0), halves, BUDGET),
    "privmrf": (sw.PrivMRF(), lambda table: table, BUDGET),
    "vertigan": (sw.VertiGAN(**NETS, critic_steps=2, finest_bins=8), split, BUDGET),
    "e2e_distr": (
        sw.E2EDistr(autoencoder={"hidden": [8]}, diffusion=TINY),
        split,
        None,
    ),
    "silofuse": (sw.SiloFuse(diffusion=TINY), split, None),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[pytest.mark.slow] if n in ("e2e_distr", "vertigan") else [])
        for n in FITS
    ],
)
def test_a_column_of_ten_thousand_values_is_modelled(name, table):
    synth, parts, budget = FITS[name]
    fitted = synth.fit(parts(table), SCHEMA, budget=budget)
    assert budget is None or fitted.epsilon <= budget.epsilon
    drawn = fitted.sample_table(ROWS, seed=0).to_native()
    assert set(drawn["code"]) <= set(VALUES)
    if name in ("distaim", "privmrf"):  # counts, not a network of three steps
        assert (np.array(drawn["sex"]) == "f").mean() == pytest.approx(0.8, abs=0.05)
        assert 0.3 < (np.array(drawn["code"]) == VALUES[0]).mean() < 0.7


def test_distaim_foresees_the_coins_of_wide_tables(table):
    """The coordinator deals them to the last party: nearly all bytes of the run."""
    synth, parts, budget = FITS["distaim"]
    sent = synth.fit(parts(table), SCHEMA, budget=budget).cost.parties
    most = max(one.bytes_from_party + one.bytes_to_party for one in sent.values())
    found = synth.forecast(SCHEMA, rows=ROWS, budget=budget, parties=2)
    assert most > 2e7
    assert 0.5 < found.bytes_per_party / most < 2
    assert not any("will not be measured" in note for note in found.notes)
    many = Column("country", "categorical", categories=tuple(map(str, range(30))))
    wider = synth.forecast(
        Schema((*SCHEMA.columns, many)).with_fallbacks(), rows=ROWS, budget=budget, parties=2
    )
    assert "1 pair of columns has more than 251,658 cells and will not be measured" in wider.notes
    few = SCHEMA.select(["sex", "area"])
    narrow = synth.forecast(few, rows=ROWS, budget=budget, parties=2)
    assert found.memory_mb > narrow.memory_mb + 50


@pytest.mark.parametrize("name", ["distaim", "privmrf"])
def test_two_such_columns_are_refused_together_and_left_out_by_default(name, table):
    """A table of 100,000,000 cells."""
    columns = (*SCHEMA.columns, Column("more", "categorical", categories=VALUES))
    data = table.to_native()
    more = sw.Table.from_columns({n: (np.array(data[n]), None) for n in SCHEMA.names}
                                 | {"more": (np.array(data["code"]), None)})  # fmt: skip
    synth, parts, budget = FITS[name]
    asked = type(synth)(workload=[("code", "more")])
    with pytest.raises(CapacityError, match="100,000,000"):
        asked.fit(parts(more), Schema(columns).with_fallbacks(), budget=budget)
    schema = Schema(columns).with_fallbacks()
    found = synth.forecast(schema, rows=ROWS, budget=budget, parties=2)
    assert any("not in the workload, for which 80 MB have no room" in note for note in found.notes)
