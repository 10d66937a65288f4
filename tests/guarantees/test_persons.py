"""A person as the unit of DP-SGD: her rows are drawn together, and their sum is clipped once."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.models.nets import Dense
from siloweave.privacy import gradients
from siloweave.privacy.gradients import drawn, factors, summed
from siloweave.privacy.mechanisms import SeededEntropy
from tests.guarantees.test_gradients import (
    CLIP,
    CRITIC,
    MODEL,
    nested,
    reconstruct,
    shrunk,
    twice,
    written_out,
)

KEY = jax.random.key(5)
MOST = 5
# Places of the rows of six persons, of whom the third has one row and the last has five.
MEMBERS = np.array([[0, 1, -1, -1, -1], [2, 3, 4, -1, -1], [5, -1, -1, -1, -1],
                    [6, 7, -1, -1, -1], [8, 9, 10, 11, -1], [12, 13, 14, 15, 16]])  # fmt: skip
ROWS = 17
LOSSES = {"reconstruct": reconstruct, "twice": twice}


def rows_of(seed, scale=1.0, rows=ROWS):
    random = np.random.default_rng(seed)
    spread = scale * np.exp(random.normal(size=(rows, 1)))
    return (random.normal(size=(rows, 4)) * spread).astype(np.float32)


@eqx.filter_jit
def compiled(loss, model, rows, mask, clip, rows_per_unit):
    return factors(
        loss, model, rows, mask, clip=clip, key=KEY, layer=Dense, rows_per_unit=rows_per_unit
    )


def booked(loss, rows, members, clip=CLIP, model=MODEL):
    """The clipped sum of all persons, and the norms; keys go by the place in the batch."""
    at = members.ravel()
    taken, mask = jnp.asarray(rows[np.maximum(at, 0)]), jnp.asarray(at >= 0)
    found = compiled(loss, model, taken, mask, jnp.float32(clip), members.shape[1])
    order = gradients._order_of(model, Dense)
    with jax.enable_x64(True):
        start = np.zeros(gradients.flat_size(model))
        made = gradients._added(start, found.dense, found.rest, found.scale, order=order)
    return np.asarray(made), np.asarray(found.norms)


@eqx.filter_jit
def gradients_of(loss, model, rows, keys):
    return jax.vmap(eqx.filter_grad(loss), (None, 0, 0))(model, rows, keys)


def per_person(loss, rows, members, model=MODEL):
    """A gradient per person, (persons, size), by what JAX does of its own with every row."""
    at = members.ravel()
    tree = gradients_of(loss, model, rows[np.maximum(at, 0)], jax.random.split(KEY, len(at)))
    leaves = jax.tree.leaves(tree)
    each = np.concatenate([np.asarray(x, np.float64).reshape(len(at), -1) for x in leaves], 1)
    each[at < 0] = 0.0
    return each.reshape(*members.shape, -1).sum(1)


def oracle(loss, rows, members, clip=CLIP, model=MODEL):
    every = per_person(loss, rows, members, model)
    norms = np.linalg.norm(every, axis=1)
    return np.minimum(1.0, clip / np.maximum(norms, 1e-30)) @ every, norms


@pytest.mark.parametrize("clip", [1e-2, CLIP, 1e6])
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_clipped_sum_is_that_of_explicit_gradients_of_persons(loss, clip):
    made, norms = booked(loss, rows_of(0), MEMBERS, clip)
    wanted, exact = oracle(loss, rows_of(0), MEMBERS, clip)
    np.testing.assert_allclose(made, wanted, rtol=5e-3, atol=1e-4 * min(clip, np.abs(wanted).max()))
    np.testing.assert_allclose(norms, exact, rtol=5e-3)
    assert (norms >= exact * (1 - 1e-5)).all()


@pytest.mark.parametrize("clip", [0.05, 1e6])
def test_a_critics_penalty_is_book_kept_for_persons_too(clip):
    made, norms = booked(written_out, rows_of(1), MEMBERS, clip, CRITIC)
    wanted, exact = oracle(nested, rows_of(1), MEMBERS, clip, CRITIC)
    np.testing.assert_allclose(made, wanted, rtol=1e-2, atol=2e-4 * min(clip, np.abs(wanted).max()))
    assert (norms >= exact * (1 - 1e-5)).all()


def test_one_row_a_person_is_the_program_of_rows_bit_for_bit():
    rows, entropy = rows_of(2), SeededEntropy
    picked = np.arange(3, 12)
    same = {"clip": CLIP, "layer": Dense}
    one = summed(reconstruct, MODEL, rows, picked, entropy=entropy(1), **same)
    other = summed(reconstruct, MODEL, rows, picked[:, None], entropy=entropy(1), **same)
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("most", [1, 2, 5, 60])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_a_person_of_equal_rows_moves_a_sum_by_one_clip_at_most(most, scale):
    """All her rows say the same: her gradient is as many times as long, and clipped once."""
    rows = np.repeat(rows_of(3, scale, rows=1), most, axis=0)
    members = np.arange(most)[None, :]
    found = summed(twice_alike, MODEL, rows, members, clip=CLIP, layer=Dense,
                   entropy=SeededEntropy(0))  # fmt: skip
    assert np.linalg.norm(found) <= CLIP
    if scale >= 1:
        assert np.linalg.norm(found) > 0.99 * CLIP


def twice_alike(model, row, key):
    """A loss that draws nothing: equal rows have equal gradients."""
    return jnp.sum((model.decoder(jnp.tanh(model.encoder(row)) * model.scale) - row) ** 2)


def test_rows_that_cancel_are_never_longer_than_they_are_booked():
    """Two rows pull against each other, and what is left of them is rounding; so is its norm."""

    def pull(model, row, key):
        return row[0] * model.encoder(jnp.ones(4)).sum()

    rows = np.zeros((4, 4), np.float32)
    rows[:, 0] = [1e3, -1e3, 1e3, np.nextafter(np.float32(-1e3), np.float32(0))]
    members = np.arange(4).reshape(1, 4)
    for clip in (1e-6, 1e-3, CLIP):
        found = summed(pull, MODEL, rows, members, clip=clip, layer=Dense, entropy=SeededEntropy(0))
        assert np.linalg.norm(found) <= clip


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_a_person_with_a_row_whose_gradient_is_not_finite_counts_nothing(bad):
    rows = rows_of(4)
    rows[9, 2] = bad  # of the fifth person, who has four rows
    found, norms = booked(reconstruct, rows, MEMBERS)
    others = MEMBERS.copy()
    others[4] = -1
    without, _ = booked(reconstruct, rows_of(4), others)
    np.testing.assert_array_equal(found, without)
    assert norms[4] == 0


def test_what_lies_at_padded_places_reaches_nothing():
    """A padded place is filled with the first row of the table, here one that is not finite."""
    rows = rows_of(5)
    members = MEMBERS[1:]  # the first person is not drawn
    whole, _ = booked(reconstruct, rows, members)
    rows[0] = np.nan
    odd, _ = booked(reconstruct, rows, members)
    np.testing.assert_array_equal(whole, odd)


def farthest(make):
    """The largest distance between neighbours: all rows of one person less."""
    found = 0.0
    for seed in range(6):
        rows = rows_of(seed, scale=10.0 ** (seed % 3))
        person = (4, 5, 1)[seed % 3]
        mine = MEMBERS[person][MEMBERS[person] >= 0]
        rows[mine] = rows[mine[0]] * 5  # her rows are alike and far from all others
        without = MEMBERS.copy()
        without[person] = -1
        found = max(found, np.linalg.norm(make(rows, MEMBERS) - make(rows, without)))
    return found


def test_the_sensitivity_is_that_of_one_person_and_is_reached():
    assert 0.98 * CLIP < farthest(lambda rows, at: booked(reconstruct, rows, at)[0]) <= CLIP


def clip_per_row(rows, members):
    """Mutant: every row gets the whole clip, as if it were a person."""
    return booked(reconstruct, rows, members.reshape(-1, 1))[0]


def clip_the_longest_row(rows, members):
    """Mutant: the norm is that of a person's longest row."""
    each = per_person(reconstruct, rows, members.reshape(-1, 1)).reshape(*members.shape, -1)
    norms = np.linalg.norm(each, axis=2).max(1)
    return np.minimum(1.0, CLIP / np.maximum(norms, 1e-30)) @ each.sum(1)


def clip_without_cross_terms(rows, members):
    """Mutant: squared norms of rows are added up, as if their gradients were orthogonal."""
    each = per_person(reconstruct, rows, members.reshape(-1, 1)).reshape(*members.shape, -1)
    norms = np.sqrt((each**2).sum((1, 2)))
    return np.minimum(1.0, CLIP / np.maximum(norms, 1e-30)) @ each.sum(1)


@pytest.mark.parametrize("mutant", [clip_per_row, clip_the_longest_row, clip_without_cross_terms])
def test_mutants_that_clip_less_than_a_persons_sum_move_further(mutant):
    assert farthest(mutant) > 1.5 * CLIP


def test_the_oracles_own_clip_stays_within():
    assert farthest(lambda rows, at: sum(map(shrunk, per_person(reconstruct, rows, at)))) <= (
        CLIP * (1 + 1e-9)
    )


def test_many_persons_are_summed_in_programs_of_one_shape():
    """Batches of a few rows each take several turns, and nobody is counted twice or left out."""
    persons, most = 200, 3
    rows = rows_of(6, rows=persons * most)
    members = np.arange(persons * most).reshape(persons, most)
    members[::2, 2] = -1
    found = summed(
        twice_alike, MODEL, rows, members, clip=CLIP, layer=Dense, entropy=SeededEntropy(0)
    )
    every = sum(booked(twice_alike, rows, members[i : i + 50])[0] for i in range(0, persons, 50))
    np.testing.assert_allclose(found, every, rtol=1e-9, atol=1e-9)
    none = summed(twice_alike, MODEL, rows, members[:0], clip=CLIP, layer=Dense,
                  entropy=SeededEntropy(0))  # fmt: skip
    assert not none.any()


def test_persons_are_drawn_by_one_coin_each():
    """In every step a person's rows are in together or not at all, at the rate of persons."""
    entropy = SeededEntropy(7)
    counts = np.zeros(40)
    for step in range(500):
        counts[drawn(40, 0.3, entropy=entropy.at(f"step {step}"))] += 1
    assert abs(counts.mean() / 500 - 0.3) < 0.01
    assert counts.std() < 20  # sqrt(500 * 0.3 * 0.7) is 10.2
