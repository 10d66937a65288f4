import json
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import CapacityError, DataError, InputError
from siloweave.models import train as training
from siloweave.models.train import TrainingError, mean_gradient, plan_of, train

KEY = jax.random.key(7)
ROWS = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


class State(NamedTuple):
    weight: jax.Array
    steps: jax.Array


FRESH = State(jnp.zeros(3), jnp.int32(0))


def loss_of(weight, row, key):
    noise = 0.1 * jax.random.uniform(key, (3,))
    return jnp.sum((weight - row - noise) ** 2)


def update(state, batch, key):
    gradient, loss = mean_gradient(loss_of, state.weight, batch, key)
    return State(state.weight - 0.05 * gradient, state.steps + 1), loss


def run(steps=30, **changes):
    given = {"steps": steps, "batch": 8, "key": KEY, "epoch_steps": 4, **changes}
    return train(FRESH, update, ROWS, **given)


def same(a, b):
    return all(
        np.array_equal(np.asarray(x), np.asarray(y))
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


def test_the_same_key_gives_the_same_bits_whatever_the_stretches():
    first = run()
    assert int(first.steps) == 30
    assert same(first, run())
    assert same(first, run(epoch_steps=7))
    assert not same(first, run(key=jax.random.key(8)))
    assert np.isfinite(first.weight).all()


def test_a_loop_in_plain_python_gives_the_same_state():
    plan = plan_of(None, jnp.asarray(ROWS), batch=8, key=KEY, most=30)
    index = plan.picks(0, 30)
    state = FRESH
    for step in range(30):
        _, key = jax.random.split(jax.random.fold_in(KEY, step))
        state, _ = update(state, jnp.asarray(ROWS)[index[step]], key)
    np.testing.assert_allclose(state.weight, run().weight, rtol=1e-5)


class StopError(Exception):
    pass


def stop_at(share):
    def progress(text, done):
        if done >= share:
            raise StopError

    return progress


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_an_interrupted_run_goes_on_to_the_same_bits(tmp_path, seconds):
    whole = run()
    kept = {"store": tmp_path, "checkpoint_seconds": seconds}
    with pytest.raises(StopError):
        run(**kept, progress=stop_at(0.5))
    facts = json.loads((tmp_path / "training.json").read_text())
    assert 15 <= facts["step"] < 30
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    heard = []
    assert same(run(**kept, progress=lambda text, done: heard.append(done)), whole)
    assert heard[0] >= 0.5
    assert same(run(**kept), whole)  # finished: nothing is trained again


def test_more_steps_go_on_from_the_last_checkpoint(tmp_path):
    run(20, store=tmp_path)
    assert same(run(30, store=tmp_path), run(30))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"batch": 9}, "batch"),
        ({"key": jax.random.key(1)}, "data"),
        ({"sampler": lambda rows, key: rows[:8]}, "sampler"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change, named):
    run(4, store=tmp_path)
    with pytest.raises(DataError, match=f"its {named} differs"):
        run(store=tmp_path, **change)


@pytest.mark.parametrize("damage", ["training.json", "state-4.safetensors"])
def test_a_damaged_checkpoint_is_refused(tmp_path, damage):
    run(4, store=tmp_path)
    (tmp_path / damage).write_bytes(b"{")
    with pytest.raises(DataError, match="cannot be read as a checkpoint"):
        run(store=tmp_path)


class Explodes(eqx.Module):
    at: int
    loss: bool

    def __call__(self, state, batch, key):
        now = state.steps == self.at
        weight = jnp.where(now & (not self.loss), jnp.inf, state.weight + 1)
        return State(weight, state.steps + 1), jnp.where(now & self.loss, jnp.nan, 1.0)


@pytest.mark.parametrize("in_loss", [True, False])
def test_divergence_is_detected_and_the_last_good_state_kept(tmp_path, in_loss):
    with pytest.raises(TrainingError, match="training diverged") as caught:
        train(FRESH, Explodes(17, in_loss), ROWS, steps=40, batch=4, key=KEY, epoch_steps=4,
              store=tmp_path)  # fmt: skip
    error = caught.value
    assert error.state_step <= 17 < error.step <= error.state_step + 4
    assert not in_loss or error.step == 18
    np.testing.assert_array_equal(error.state.weight, np.full(3, error.state_step, np.float32))
    facts = json.loads((tmp_path / "training.json").read_text())
    assert facts["step"] == error.state_step
    after = train(FRESH, Explodes(-1, True), ROWS, steps=40, batch=4, key=KEY, store=tmp_path)
    assert float(after.weight[0]) == 40


def test_every_epoch_is_a_permutation_cut_into_whole_batches():
    plan = plan_of(None, jnp.zeros((41, 1)), batch=8, key=KEY, most=10)
    index = plan.picks(0, 10)
    for epoch in (index[:5], index[5:]):
        assert len(set(epoch.ravel().tolist())) == 40
    assert not np.array_equal(np.sort(index[:5].ravel()), np.sort(index[5:].ravel()))
    np.testing.assert_array_equal(plan.picks(3, 4)[:4], index[3:7])


def test_a_sampler_of_the_models_own_runs_inside_the_loop():
    def first_rows(rows, key):
        return rows["table"][:2] + 0 * jax.random.uniform(key)

    rows = {"table": ROWS, "other": np.arange(3)}
    end = train(FRESH, update, rows, steps=5, batch=2, key=KEY, sampler=first_rows)
    assert int(end.steps) == 5


def test_equal_updates_share_one_program():
    traced = []

    def counted(state, batch, key):
        traced.append(1)
        return update(state, batch, key)

    for seed in range(3):
        train(FRESH, counted, ROWS, steps=9, batch=8, key=jax.random.key(seed), epoch_steps=4)
    assert len(traced) == 1


def test_progress_tells_step_loss_and_time_from_the_start():
    heard = []
    run(progress=lambda text, done: heard.append((text, done)))
    assert heard[0] == ("compiling", 0.0)
    assert heard[1][0].startswith("step 1 of 30, loss ")
    assert any(" left" in text for text, _ in heard)
    assert heard[-1][1] == 1.0
    assert [done for _, done in heard] == sorted(done for _, done in heard)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch": 41}, "batch = 41 is more than the 40 rows"),
        ({"batch": 0}, "batch=0 must be a whole number, 1 or more"),
        ({"steps": -1}, "steps=-1"),
    ],
)
def test_bad_arguments_are_named(change, message):
    with pytest.raises(InputError, match=message):
        run(**change)


def test_bad_rows_are_named():
    broken = ROWS.copy()
    broken[5, 1] = np.nan
    given = {"steps": 2, "batch": 2, "key": KEY}
    with pytest.raises(InputError, match="first in row 5"):
        train(FRESH, update, broken, **given)
    with pytest.raises(InputError, match="no rows"):
        train(FRESH, update, ROWS[:0], **given)
    with pytest.raises(InputError, match="one leading axis"):
        train(FRESH, update, {"a": ROWS, "b": ROWS[:3]}, **given)


def test_updates_that_change_shapes_are_refused():
    given = {"steps": 2, "batch": 2, "key": KEY}
    with pytest.raises(InputError, match="shape"):
        train(FRESH, lambda s, b, k: (State(s.weight[:2], s.steps), 0.0), ROWS, **given)
    with pytest.raises(InputError, match="structure"):
        train(FRESH, lambda s, b, k: ((s, s), 0.0), ROWS, **given)
    with pytest.raises(InputError, match="loss has shape"):
        train(FRESH, lambda s, b, k: (s, jnp.zeros(2)), ROWS, **given)


@pytest.mark.parametrize(
    "text",
    [
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8.00GiB.\nlong trace",
        "INTERNAL: CUDA error: out of memory",
    ],
)
def test_a_device_without_memory_is_named_with_what_to_do(text, monkeypatch, tmp_path):
    real, calls = training._advance, []

    def exhausted(*given):
        calls.append(given)
        if len(calls) == 3:
            raise jax.errors.JaxRuntimeError(text)
        return real(*given)

    monkeypatch.setattr(training, "_advance", exhausted)
    with pytest.raises(CapacityError, match=r"batch = 8\. .*JAX_PLATFORMS=cpu") as caught:
        run(store=tmp_path / "a")
    assert "8.00GiB" not in str(caught.value)  # it may follow from a party's number of rows
    assert jax.devices()[0].device_kind in str(caught.value)
    monkeypatch.setattr(training, "_advance", real)
    assert same(run(store=tmp_path / "a"), run())  # what was done is kept


def test_other_errors_of_a_device_are_its_own(monkeypatch):
    def broken(*given):
        raise jax.errors.JaxRuntimeError("INTERNAL: the driver is gone")

    monkeypatch.setattr(training, "_advance", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="driver is gone"):
        run()
