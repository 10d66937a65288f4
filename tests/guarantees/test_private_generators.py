"""DP-CTGAN, DP-TabDDPM and DP-TLDM on neighbours: the whole run, from rows to weights, replayed."""

import ast
from pathlib import Path

import jax
import msgspec
import numpy as np
import pandas as pd
import pytest

import siloweave
from siloweave.algorithms import private_central
from siloweave.algorithms.private_generators import PRIVATE_GENERATORS
from siloweave.privacy import Budget, Gaussian, Relation, SampledGaussian, bookkeeping
from siloweave.privacy import accountants as ac
from siloweave.privacy.events import order_of
from siloweave.privacy.gradients import Private
from siloweave.tables import Column, Schema
from tests.guarantees.replay import record, replay
from tests.guarantees.steps import taped

SCHEMA = Schema(
    (
        Column("size", "continuous", low=-4.0, high=4.0),
        Column("kind", "categorical", categories=("a", "b", "c")),
        Column("sex", "categorical", categories=("f", "m")),
    )
)
NET = {"hidden": (4,), "embed": 4, "timesteps": 4, "steps": 4}
# A batch beyond the rows draws all of them: one program is compiled instead of two. One method
# draws some rows only, as all would.
SETTINGS = {
    "dp_ctgan": {"batch": 99, "steps": 4, "ratio": 2, "generator": (4,), "critic": (4,)},
    "dp_tabddpm": {"batch": 12, **NET},
    "dp_tldm": {
        "autoencoder": {"batch": 99, "steps": 3, "hidden": (4,), "latent": 2},
        "diffusion": {"batch": 99, **NET},
    },
}
PAID = {"dp_ctgan": 4, "dp_tabddpm": 4, "dp_tldm": 7}
BUDGET = Budget(epsilon=5.0, delta=1e-5)


def frame(rows=40):
    """Rows whose last one is far from all others."""
    rng = np.random.default_rng(1)
    made = pd.DataFrame(
        {
            "size": rng.uniform(-1, 0, rows),
            "kind": rng.choice(["a", "b"], rows),
            "sex": rng.choice(["f", "m"], rows),
        }
    )
    made.loc[rows - 1] = [4.0, "c", "f"]
    return made


def own_program(name, clip):
    """Settings of each clip alone: one program serves all clips, and it keeps its tape."""
    rate, made = 1e-3 * (1 + clip), SETTINGS[name]
    if name == "dp_tldm":
        return {part: {**chosen, "learning_rate": rate} for part, chosen in made.items()}
    return {**made, "critic_rate" if name == "dp_ctgan" else "learning_rate": rate}


def run(name, table, clip, *, budget=BUDGET, heard=None, target="sex", noise="seeded", seed=0):
    kind = PRIVATE_GENERATORS[name]
    chosen = {"target": target} if kind.takes_target else {}
    made = kind(settings=own_program(name, clip), clip=clip, bins=6, **chosen)
    told = (lambda text, done: heard.append(text)) if heard is not None else (lambda *_: None)
    return made.fit(table, SCHEMA, budget=budget, noise=noise, seed=seed, progress=told)


def weights(fitted, folder):
    fitted.save(folder)
    return (folder / "model.safetensors").read_bytes(), (folder / "features.json").read_text()


def neighbours(name, folder, clip, **named):
    """A run on all rows, and its replay without the last one."""
    table, found = frame(), []
    with taped() as first:
        tape = record(lambda: found.append(run(name, table, clip, **named)))
    with taped(first) as second:
        twin = replay(tape, lambda: found.append(run(name, table[:-1], clip, **named)))
    models = [weights(one, folder / str(i)) for i, one in enumerate(found)]
    return found, (first, second), twin, models


@pytest.mark.parametrize("name", PRIVATE_GENERATORS)
def test_a_row_moves_what_was_paid_for_and_nothing_else(name, tmp_path):
    clip = 0.125
    (fitted, _), (first, second), twin, models = neighbours(name, tmp_path, clip)
    paid = fitted.ledgers["curator"]
    steps = paid[-1].event
    assert [type(entry.event) for entry in paid] == [Gaussian, Gaussian, SampledGaussian]
    assert steps.count == PAID[name] == len(first.exact) == len(second.exact)
    (width,) = set(first.widths)
    assert 1.0 <= width / (clip * steps.noise_multiplier) < 1.000001
    assert 0.5 * clip < max(second.moved) <= clip * (1 + 1e-5)
    twin.require(l2=np.sqrt(len(SCHEMA.columns)))
    assert max(twin.distances("l2")) > 0
    twin.require_paid([entry.event for entry in paid])
    assert models[0] == models[1]


@pytest.mark.parametrize("relation", Relation)
def test_the_noise_is_the_least_that_the_ledger_reads_as_the_budget(relation):
    budget, heard = Budget(2.0, 1e-5, relation=relation), []
    fitted = run("dp_tabddpm", frame(), 0.5, budget=budget, heard=heard)
    assert any("step 4 of 4" in text for text in heard)
    assert not any("loss" in text for text in heard)
    assert 0.99 * budget.epsilon < fitted.epsilon <= budget.epsilon
    *looks, steps = [entry.event for entry in fitted.ledgers["curator"]]
    less = msgspec.structs.replace(steps, noise_multiplier=steps.noise_multiplier * 0.997)
    assert (order_of(steps) is None) is (relation is Relation.REPLACE_ONE)  # rows are public there
    assert ac.epsilon([*looks, less], budget.delta) > budget.epsilon
    assert fitted.settings["noise_multiplier"] == steps.noise_multiplier
    if relation is Relation.REPLACE_ONE:
        assert steps.replace_one
        assert fitted.num_rows == len(frame())
        assert [event.sensitivity for event in looks] == pytest.approx([np.sqrt(6)])
    else:
        assert [event.sensitivity for event in looks] == [1.0, np.sqrt(3)]


# Known faults are seen


def test_mutants_are_seen(tmp_path, monkeypatch):
    """No clip, a divisor that counts the batch, frequencies that nobody paid for: all at once."""
    real = Private.__call__

    def unclipped(squares, mask, clip):
        return squares**0.5, mask.astype("float32")

    def counted(self, loss, model, batch, key):
        slope, value = real(self, loss, model, batch, key)
        return jax.tree.map(lambda x: x * self.batch / (batch.mask.sum() + 1), slope), value

    def law(self, features):
        return np.bincount(self.owned.codes.column("sex"), minlength=2).tolist()

    monkeypatch.setattr(bookkeeping, "_scale", unclipped)
    monkeypatch.setattr(Private, "__call__", counted)
    monkeypatch.setattr(private_central.Work, "law", law)
    found, (_, second), _, _ = neighbours("dp_tabddpm", tmp_path, 0.126)
    assert max(second.moved) > 0.126 * 1.01
    one, other = (fitted.model.net for fitted in found)
    assert one.label_law != other.label_law
    assert not np.array_equal(one.net.project.weight, other.net.project.weight)


# Nobody can choose what is to be secret


def test_secrets_are_made_in_one_place_and_from_the_owners_entropy():
    """One file alone makes private gradients and gives samplers a key, and asks for a secret."""
    root = Path(siloweave.__file__).parent
    makers = {}
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            keyed = name == "Poisson" and len(node.args) + len(node.keywords) > 1
            if name in ("Private", "BatchClipped", "secret_key") or keyed:
                makers.setdefault(name, set()).add(path.name)
    assert set(makers) == {"Private", "Poisson", "secret_key"}
    asking = makers.pop("secret_key")
    assert asking == {"private_central.py", "vertigan.py"}
    assert all(files == {"private_central.py"} for files in makers.values())


def test_two_runs_of_the_operating_systems_entropy_differ():
    """The same seed, and yet other counts, batches and noise; a test's noise is marked."""
    one, other = (run("dp_tabddpm", frame(), 0.5, noise="os", seed=3) for _ in range(2))
    assert one.private
    assert one.info.guarantee == "dp"
    assert not one.sample(30, seed=0).equals(other.sample(30, seed=0))
    assert not run("dp_tabddpm", frame(), 0.5).private


@pytest.mark.parametrize(
    "made",
    [
        siloweave.DPTabDDPM(),
        siloweave.DPTLDM(),
        siloweave.DPFedTabDDPM(),
        siloweave.DPFedPointDiff(),
    ],
)
def test_private_diffusions_take_all_paid_steps_and_draw_as_they_were_measured(made):
    """Decisions 0022 and 0023: whose figures are on record, and whose steps tell no count."""
    found = made.network()
    whole = found[0] if isinstance(found, tuple) else found
    own = whole.get("diffusion", whole)
    assert (own["passes"], own["eta"]) == (None, 0.0)
