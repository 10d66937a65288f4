"""GANs as wholes: small networks, few steps."""

import jax
import numpy as np
import pytest

from siloweave import ADSGAN
from siloweave.core.settings import part_of
from siloweave.errors import DataError, InputError
from siloweave.models.gan import GAN, fit_gan
from siloweave.models.settings import GANSettings
from siloweave.tables.features import Block
from siloweave.tables.keys import generator

KEY = jax.random.key(3)
SMALL = GANSettings(
    noise=4, generator=(32,), critic=(32, 32), pac=2, dropout=0.0, batch=200, epochs=1500, rate=2e-3
)
BLOCKS = (
    Block("x", 0, 1, "number"),
    Block("x", 1, 2, "categorical"),
    Block("class", 3, 4, "categorical"),
    Block("one", 7, 1, "categorical"),
    Block("flat", 8, 1, "number"),
    Block("flag", 9, 2, "categorical"),
)
CODES = {"class": slice(3, 7), "flag": slice(9, 11)}


def table(n=150):
    """Fewer rows than a batch; a constant number, one category, a class of one row, one of none."""
    rng = generator(0)
    flag = (rng.random(n) < 0.9).astype(int)
    kind = np.where(rng.random(n) < 0.3, 1, 0)
    kind[0] = 2
    X = np.zeros((n, 11), np.float32)
    X[:, 0] = rng.random(n) * 0.2 + np.where(flag, 0.5, -0.5)
    X[np.arange(n), 1 + flag] = 1
    X[np.arange(n), 3 + kind] = 1
    X[:, 7], X[:, 8] = 1, 0.25
    X[np.arange(n), 9 + flag] = 1
    return X


@pytest.fixture(scope="module")
def gan():
    return fit_gan(table(), BLOCKS, SMALL, key=KEY)


def one_hot(X, blocks=BLOCKS):
    return all(
        set(np.unique(X[:, b.start : b.start + b.size])) <= {0.0, 1.0}
        and (X[:, b.start : b.start + b.size].sum(1) == 1).all()
        for b in blocks
        if b.kind == "categorical"
    )


def test_rows_have_the_shape_of_the_features(gan):
    X = gan.sample(2_500, key=KEY)
    assert X.shape == (2_500, 11)
    assert X.dtype == np.float32
    assert one_hot(X)
    assert np.abs(X[:, [0, 8]]).max() <= 1
    assert gan.sample(0, key=KEY).shape == (0, 11)
    assert (X[:, 7] == 1).all()
    assert np.abs(X[:, 8] - 0.25).mean() < 0.2


def test_the_frequency_of_conditions_decides_how_frequent_a_rare_category_is(gan):
    real, log = (
        gan.sample(6_000, key=KEY, by=by)[:, CODES["flag"]].mean(0)[0] for by in ("real", "log")
    )
    assert real == pytest.approx(table()[:, 9].mean(), abs=0.06)
    assert log > real + 0.05


def test_numbers_follow_the_category_that_is_asked_for(gan):
    for flag, side in ((0, -1), (1, 1)):
        given = np.full((300, 11), np.nan, np.float32)
        given[:, CODES["flag"]] = np.eye(2)[flag]
        X = gan.attempt(given, key=KEY)
        assert one_hot(X)
        met = X[:, CODES["flag"]][:, flag] == 1
        assert met.mean() > 0.8
        assert (np.sign(X[met, 0]) == side).mean() > 0.8


def test_rows_may_be_asked_for_different_things(gan):
    """The network is conditioned on the rarer one; what is not asked for is free."""
    given = np.full((600, 11), np.nan, np.float32)
    given[:200, CODES["class"]] = np.eye(4)[1]
    given[200:400, CODES["class"]], given[200:400, CODES["flag"]] = np.eye(4)[0], np.eye(2)[0]
    given[400:, 1:3] = [0, 1]  # a mode, which is no condition
    X = gan.attempt(given, key=KEY)
    assert one_hot(X)
    assert X[:200, CODES["class"]][:, 1].mean() > 0.7
    assert X[200:400, CODES["flag"]][:, 0].mean() > 0.7
    free = gan.sample(600, key=KEY)
    assert X[400:, CODES["flag"]].mean(0) == pytest.approx(free[:, CODES["flag"]].mean(0), abs=0.15)
    assert gan.attempt(given[:0], key=KEY).shape == (0, 11)


def test_what_cannot_be_drawn_is_refused(gan):
    given = np.full((1, 11), np.nan, np.float32)
    given[0, CODES["class"]] = np.eye(4)[3]
    with pytest.raises(InputError, match="no real row"):
        gan.attempt(given, key=KEY)
    with pytest.raises(InputError, match=r"shape \(1, 10\); it needs \(rows, 11\)"):
        gan.attempt(given[:, 1:], key=KEY)
    given = np.full((1, 11), np.nan, np.float32)
    given[0, 0] = 0.5
    with pytest.raises(InputError, match="numbers"):
        gan.attempt(given, key=KEY)
    with pytest.raises(InputError, match="n=-1"):
        gan.sample(-1, key=KEY)


def test_keys_reproduce_fits_and_draws(gan):
    twin = fit_gan(table(), BLOCKS, SMALL, key=KEY)
    np.testing.assert_array_equal(twin.sample(50, key=KEY), gan.sample(50, key=KEY))
    assert (gan.sample(50, key=jax.random.key(9)) != gan.sample(50, key=KEY)).any()


def test_a_gan_comes_back_from_its_file_and_draws_the_same(gan, tmp_path):
    gan.save(tmp_path / "gan")
    again = GAN.load(tmp_path / "gan")
    assert (again.settings, again.heads, again.conditions) == (
        gan.settings,
        gan.heads,
        gan.conditions,
    )
    np.testing.assert_array_equal(again.sample(70, key=KEY), gan.sample(70, key=KEY))
    data = (tmp_path / "gan").read_bytes()
    (tmp_path / "gan").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="gan"):
        GAN.load(tmp_path / "gan")


@pytest.mark.parametrize("residual", [pytest.param(True, marks=pytest.mark.slow), False])
def test_ads_gan_learns_without_conditions(residual):
    small = {"generator": (32,), "critic": (32, 32), "batch": 100, "epochs": 1000}
    settings = part_of(GANSettings, ADSGAN(residual=residual, **small))
    gan = fit_gan(table(), BLOCKS, settings, key=KEY)
    X = gan.sample(2_000, key=KEY)
    assert one_hot(X)
    assert gan.conditions.width == 0
    assert X[:, 10].mean() == pytest.approx(table()[:, 10].mean(), abs=0.15)
    assert X[:, 0].mean() == pytest.approx(table()[:, 0].mean(), abs=0.25)


def test_one_column_of_numbers_is_enough():
    X = (generator(1).random((64, 1)) * 0.2 + 0.6).astype(np.float32)
    settings = GANSettings(generator=(8,), critic=(8,), pac=2, batch=32, epochs=1)
    drawn = fit_gan(X, BLOCKS[:1], settings, key=KEY).sample(400, key=KEY)
    assert drawn.shape == (400, 1)
    assert 0 < drawn.std() < 1


def test_what_cannot_be_learnt_from_is_refused():
    X = table()
    for bad in (np.nan, np.inf):
        Y = X.copy()
        Y[3, 8] = bad
        with pytest.raises(InputError, match="'flat', row 3"):
            fit_gan(Y, BLOCKS, SMALL, key=KEY)
    X[0, 0] = 3.5
    with pytest.raises(InputError, match="modes"):
        fit_gan(X, BLOCKS, SMALL, key=KEY)
    with pytest.raises(InputError, match="no rows"):
        fit_gan(X[:0], BLOCKS, SMALL, key=KEY)
