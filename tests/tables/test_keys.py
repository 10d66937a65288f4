import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from siloweave.errors import InputError
from siloweave.tables.keys import fold_in, generator

PARTS = st.lists(st.integers(-(2**70), 2**70) | st.text(max_size=5), max_size=3)


def state(key):
    return tuple(key.generate_state(4))


@given(st.integers(0, 2**64), PARTS, PARTS)
def test_paths_decide_the_child_and_compose(seed, first, second):
    whole = fold_in(seed, *first, *second)
    assert state(whole) == state(fold_in(fold_in(seed, *first), *second))
    assert (state(fold_in(seed, *first)) == state(fold_in(seed, *second))) == (first == second)


def test_numbers_and_texts_differ():
    assert state(fold_in(0, 1)) != state(fold_in(0, "1"))


def test_a_key_is_not_consumed():
    key = np.random.SeedSequence(5)
    before = (key.spawn_key, key.n_children_spawned)
    draws = [generator(key).random() for _ in range(2)]
    fold_in(key, "a")
    assert draws[0] == draws[1]
    assert (key.spawn_key, key.n_children_spawned) == before


@pytest.mark.parametrize("key", [-1, True])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(InputError, match="not a key"):
        generator(key)
