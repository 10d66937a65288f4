"""Questions about many rows with evidence of their own, against all cells of a small model."""

import itertools

import numpy as np
import pytest

from siloweave.errors import DataError
from siloweave.models import evidence
from siloweave.models.evidence import UNKNOWN, complete, log_probability, shares
from siloweave.models.mrf import MRF
from siloweave.tables.codes import Domain
from tests.models.small import joint

DOMAIN = Domain(("a", "b", "c", "d", "e"), (2, 3, 2, 4, 3))


def model(cliques=(("a", "b"), ("b", "c", "d"), ("a", "d")), seed=0):
    """A model with a loop, an attribute that hangs together with nothing, and an empty cell."""
    rng = np.random.default_rng(seed)
    potentials = {clique: rng.normal(size=DOMAIN.shape(clique)) for clique in cliques}
    potentials["e",] = np.array([0.0, 1.0, -np.inf])
    return MRF(DOMAIN, potentials, 100.0)


def patterns(rows_each=3, seed=1):
    """Possible rows with every set of unknown cells."""
    rng = np.random.default_rng(seed)
    sizes = np.array(DOMAIN.sizes) - np.array([0, 0, 0, 0, 1])  # the last code of e never occurs
    sets = np.array(list(itertools.product([False, True], repeat=5)))
    is_open = np.repeat(sets, rows_each, axis=0)
    codes = rng.integers(0, sizes, is_open.shape)
    return np.where(is_open, UNKNOWN, codes)


def known_of(codes):
    return dict(zip(DOMAIN.names, codes.T, strict=True))


def at(codes):
    """What a row leaves of the joint table."""
    return tuple(slice(None) if code == UNKNOWN else slice(code, code + 1) for code in codes)


@pytest.fixture(params=[1, 40, 1 << 21], ids=["a row at once", "a few cells", "all at once"])
def _cells_at_once(request, monkeypatch):
    monkeypatch.setattr(evidence, "_CELLS", request.param)


@pytest.mark.usefixtures("_cells_at_once")
def test_what_rows_know_has_the_probability_of_its_cells():
    mrf, codes = model(), patterns()
    expected = [joint(mrf)[at(row)].sum() for row in codes]
    assert np.allclose(np.exp(log_probability(mrf, known_of(codes))), expected, rtol=1e-10)


@pytest.mark.usefixtures("_cells_at_once")
@pytest.mark.parametrize("name", DOMAIN.names)
def test_shares_are_the_conditional_distribution(name):
    mrf, codes = model(), patterns()
    place = DOMAIN.position(name)
    expected = []
    for row in codes.copy():
        row[place] = UNKNOWN
        cells = joint(mrf)[at(row)].sum(axis=tuple(k for k in range(5) if k != place))
        expected.append(cells / cells.sum())
    found = shares(mrf, known_of(codes), name)
    assert np.allclose(found, expected, rtol=1e-10)
    assert np.allclose(found.sum(axis=1), 1.0)


@pytest.mark.usefixtures("_cells_at_once")
def test_drawn_rows_keep_what_they_know_and_repeat_with_the_key():
    codes = patterns()
    drawn = np.stack(complete(model(), known_of(codes), key=3).columns, axis=1)
    again = np.stack(complete(model(), known_of(codes), key=3).columns, axis=1)
    assert (drawn == again).all()
    assert (drawn >= 0).all()
    assert (drawn[codes != UNKNOWN] == codes[codes != UNKNOWN]).all()
    assert (drawn[:, 4] < 2).all()


@pytest.mark.parametrize(
    "row",
    [
        (UNKNOWN, 1, UNKNOWN, 2, UNKNOWN),
        (1, UNKNOWN, UNKNOWN, UNKNOWN, 0),
        (UNKNOWN, UNKNOWN, 1, UNKNOWN, UNKNOWN),
        (UNKNOWN,) * 5,
    ],
)
def test_drawn_cells_follow_the_exact_conditional_distribution(row):
    mrf, count = model(), 40_000
    drawn = complete(mrf, known_of(np.tile(row, (count, 1))), key=0)
    seen = np.bincount(drawn.flat(DOMAIN.names), minlength=DOMAIN.size()).reshape(DOMAIN.sizes)
    cells = joint(mrf)[at(row)]
    expected = (cells / cells.sum() * count).reshape(-1)
    possible = expected > 5.0
    counts = seen[at(row)].reshape(-1)
    assert counts.sum() == count
    chi_squared = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    assert chi_squared < possible.sum() + 5.0 * np.sqrt(2.0 * possible.sum())


def test_rows_that_the_model_rules_out_are_named():
    mrf = model()
    impossible = {"e": np.array([0, 2]), "a": np.array([0, UNKNOWN])}
    assert log_probability(mrf, impossible).tolist()[1] == -np.inf
    assert np.isfinite(log_probability(mrf, impossible)[0])
    with pytest.raises(DataError, match="probability 0"):
        complete(mrf, impossible, key=0)
    with pytest.raises(DataError, match="probability 0"):
        shares(mrf, impossible, "a")
    with pytest.raises(DataError, match=r"known\['a'\] has codes outside 0..1"):
        log_probability(mrf, {"a": np.array([2])})


def test_no_rows_and_nothing_known_are_answered_too():
    mrf, none = model(), np.zeros(0, dtype=np.int64)
    assert log_probability(mrf, {"a": none}).shape == (0,)
    assert shares(mrf, {"a": none}, "b").shape == (0, 3)
    assert complete(mrf, {"a": none}, key=0).num_rows == 0
    nothing = {"a": np.full(2, UNKNOWN)}
    assert log_probability(mrf, nothing).tolist() == [0.0, 0.0]
    marginal = joint(mrf).sum(axis=(0, 2, 3, 4))
    assert np.allclose(shares(mrf, nothing, "b"), marginal)
    # What is asked for is not peeked at.
    peeked = {"b": np.zeros(2, dtype=np.int64)}
    assert np.allclose(shares(mrf, peeked, "b"), marginal)
