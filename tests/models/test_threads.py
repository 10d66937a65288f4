"""Pieces side by side: results do not depend on how many threads there are."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import numpy as np
import pytest

from siloweave.models import junction_tree, threads
from siloweave.models.estimate import Measurement, fit
from siloweave.models.mrf import MRF
from siloweave.models.threads import each, single_blas, thread_count
from siloweave.tables.codes import Domain

DOMAIN = Domain(("a", "b", "c", "d", "e"), (16, 5, 9, 7, 40))
CLIQUES = (("a", "b", "e"), ("b", "c", "d"), ("c", "d", "e"), ("a", "c"))


@pytest.fixture
def with_threads(monkeypatch):
    """Return a function after which pieces run in so many threads."""
    pools = []

    def use(count):
        pools.append(ThreadPoolExecutor(max(1, count - 1)))
        monkeypatch.setattr(threads, "thread_count", lambda: count)
        monkeypatch.setattr(threads, "_pool", lambda: pools[-1])

    yield use
    for pool in pools:
        pool.shutdown()


@pytest.fixture
def shared_tables(monkeypatch):
    """Let threads share tables of few cells."""
    monkeypatch.setattr(junction_tree, "_SHARED", 256)
    monkeypatch.setattr(junction_tree, "_ALIGNED", 4)
    junction_tree._small_link.cache_clear()
    junction_tree.Propagation.over.cache_clear()
    yield
    junction_tree._small_link.cache_clear()
    junction_tree.Propagation.over.cache_clear()


def measured():
    rng = np.random.default_rng(0)
    shapes = [DOMAIN.shape(clique) for clique in CLIQUES]
    counts = [rng.gamma(0.3, 10.0, size=shape) for shape in shapes]
    return [Measurement(c, y, 2.0) for c, y in zip(CLIQUES, counts, strict=True)]


def bytes_of_a_fit():
    junction_tree._small_link.cache_clear()
    junction_tree.Propagation.over.cache_clear()
    model = fit(DOMAIN, measured(), sweeps=4, tolerance=0.0)
    pairs = [(a, b) for i, a in enumerate(DOMAIN.names) for b in DOMAIN.names[i + 1 :]]
    tables = [*model.potentials.values(), *model.beliefs, *model.marginals(pairs)]
    return [np.ascontiguousarray(table).tobytes() for table in tables]


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_results_come_in_the_order_of_pieces(with_threads, count):
    with_threads(count)
    assert each(lambda i: i * i, range(50)) == [i * i for i in range(50)]
    assert each(str, []) == []


def test_two_pieces_run_at_the_same_time(with_threads):
    with_threads(2)
    both = Barrier(2, timeout=30)
    assert sorted(each(lambda _: both.wait(), [0, 1])) == [0, 1]


@pytest.mark.parametrize("wrong", [0, 7])
def test_an_error_of_a_piece_is_raised_once_all_threads_are_done(with_threads, wrong):
    with_threads(3)
    running = []

    def task(i):
        running.append(i)
        try:
            if i == wrong:
                raise ValueError(f"piece {i}")
        finally:
            running.remove(i)

    with pytest.raises(ValueError, match=f"piece {wrong}"):
        each(task, range(8))
    assert not running


def test_a_piece_may_have_pieces_of_its_own(with_threads):
    with_threads(2)
    assert each(lambda i: sum(each(lambda j: i * j, range(9))), range(9)) == [
        36 * i for i in range(9)
    ]


def test_busy_helpers_are_not_waited_for(with_threads):
    with_threads(2)
    begun, free = Event(), Event()
    busy = threads._pool().submit(lambda: (begun.set(), free.wait(30)))
    begun.wait(30)
    assert each(str, range(5)) == list("01234")
    assert not busy.done()
    free.set()


def test_numpy_treats_errors_in_helpers_as_where_they_were_asked_for(with_threads):
    with_threads(2)
    both = Barrier(2, timeout=30)

    def task(_):
        both.wait()
        return np.array([1.0]) / np.array([0.0])

    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        each(task, [0, 1])
    with np.errstate(divide="ignore"):
        assert [float(x[0]) for x in each(task, [0, 1])] == [np.inf, np.inf]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"OPENBLAS_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OPENBLAS_NUM_THREADS": "0"}, 1),
        ({"OPENBLAS_NUM_THREADS": "many"}, 6),
        ({}, 6),
    ],
)
def test_settings_of_numpy_bound_the_threads(monkeypatch, settings, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert thread_count.__wrapped__() == expected


@pytest.mark.parametrize(("cores", "expected"), [(1, 1), (64, 8)])
def test_cores_bound_the_threads(monkeypatch, cores, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert thread_count.__wrapped__() == expected


def test_a_forked_process_makes_helpers_of_its_own():
    program = """
import os
from siloweave.models import threads
threads.thread_count = lambda: 2
assert threads.each(str, range(4)) == list("0123")
child = os.fork()
if not child:
    os._exit(0 if threads.each(str, range(4)) == list("0123") else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    source = {"PYTHONPATH": str(Path(threads.__file__).parents[2])}
    command = [sys.executable, "-W", "ignore", "-c", program]
    subprocess.run(command, check=True, timeout=60, env=os.environ | source)


def blas_threads():
    return {pool["num_threads"] for pool in threads._blas().select(user_api="blas").info()}


def test_blas_has_one_thread_until_the_last_block_ends():
    with threads._blas().limit(limits=2, user_api="blas"):
        first, second = single_blas(), single_blas()
        first.__enter__()
        second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == {2}


def test_a_model_is_the_same_with_any_number_of_threads(with_threads, shared_tables):
    with_threads(1)
    alone = bytes_of_a_fit()
    for count in (2, 3):
        with_threads(count)
        assert bytes_of_a_fit() == alone


def test_a_model_is_the_same_whether_threads_share_its_tables(with_threads, request):
    with_threads(1)
    whole = bytes_of_a_fit()
    request.getfixturevalue("shared_tables")
    assert bytes_of_a_fit() == whole


@pytest.mark.parametrize("shape", [(7, 300), (300, 7), (4, 5, 64), (3, 3, 5, 41), (2, 2, 2, 160)])
def test_shared_tables_are_multiplied_and_summed_as_whole_ones(with_threads, shared_tables, shape):
    with_threads(3)
    names = tuple("abcd"[: len(shape)])
    domain = Domain(names, shape)
    rng = np.random.default_rng(1)
    table = rng.random(shape)
    for size in range(len(shape) + 1):
        for start in range(len(shape) - size + 1):
            kept = names[start : start + size]
            link = junction_tree.Link(domain, names, kept)
            gone = tuple(i for i, name in enumerate(names) if name not in kept)
            sums = link.reduce(table.reshape(-1))
            np.testing.assert_allclose(sums, table.sum(axis=gone).reshape(-1), rtol=1e-12)
            factor = rng.random(domain.shape(kept))
            product = table.copy()
            link.multiply(product.reshape(-1), factor.reshape(-1))
            thin = [n if name in kept else 1 for name, n in zip(names, shape, strict=True)]
            assert np.array_equal(product, table * factor.reshape(thin))


def test_models_with_the_same_potentials_share_their_beliefs():
    model = fit(DOMAIN, measured(), sweeps=1)
    copies = {clique: table.copy() for clique, table in model.potentials.items()}
    same, other = MRF(DOMAIN, copies, model.total), MRF(DOMAIN, copies, model.total)
    other.potentials["a", "c"] = other.potentials["a", "c"] + 1e-3 * np.arange(16)[:, None]
    assert same.beliefs is model.beliefs
    assert other.beliefs is not model.beliefs


def test_beliefs_are_not_kept_for_models_that_nobody_has():
    from siloweave.models import mrf

    model = fit(DOMAIN, measured(), sweeps=1)
    assert model.beliefs
    held = [one for one in mrf._calibrated if one is model]
    assert held == [model]
    del held
    before = len(mrf._calibrated)
    del model
    assert len(mrf._calibrated) == before - 1
