"""TabDDPM as a whole: what it learns, draws, stores and refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import DataError, InputError
from siloweave.models import diffusion
from siloweave.models.diffusion import TabDDPMModel
from siloweave.models.settings import DiffusionSettings
from siloweave.models.train import Descent, State
from siloweave.tables.features import Block, Layout
from tests.models.toys import BLOCKS, JOINT, joint_of, toy

KEY = jax.random.key(5)
TINY = DiffusionSettings(hidden=(16,), embed=16, timesteps=20, steps=3, batch=8)
SMALL = DiffusionSettings(
    hidden=(64,), embed=32, timesteps=50, steps=800, batch=256, learning_rate=4e-3, decay=0.98
)


@pytest.fixture(scope="module")
def fitted():
    return diffusion.fit(toy(4000), BLOCKS, SMALL, key=KEY)


@pytest.fixture(scope="module")
def residual():
    return diffusion.fit(toy(4000), BLOCKS, replace(SMALL, residual=True), key=KEY, labels="y")


@pytest.fixture(scope="module")
def labelled():
    return diffusion.fit(toy(4000), BLOCKS, SMALL, key=KEY, labels="y")


def assert_like_the_toy(X, off=0.04):
    assert joint_of(X) == pytest.approx(JOINT, abs=off)
    for y, mean, spread in ((0, -2.0, 0.3), (1, 1.0, 0.5)):
        x = X[X[:, 4 + y] == 1, 0]
        assert x.mean() == pytest.approx(mean, abs=0.15)
        assert x.std() == pytest.approx(spread, abs=0.15)


@pytest.mark.parametrize(
    ("sampler", "steps", "eta"),
    [
        ("ancestral", 25, None),
        ("ddim", 25, 0.0),
        ("ddim", 25, 1.0),
        ("solver", 25, 0.0),
        ("solver", 25, None),
    ],
)
def test_every_sampler_recovers_mixture_and_joint(fitted, sampler, steps, eta):
    X = fitted.sample(2000, key=KEY, sampler=sampler, steps=steps, eta=eta)
    assert_like_the_toy(X)
    assert X[:, 1:4].sum(1).tolist() == [1.0] * 2000


def test_residual_blocks_learn_mixture_and_joint_too(residual):
    assert_like_the_toy(residual.sample(2000, key=KEY))


def test_residual_blocks_have_one_width():
    with pytest.raises(InputError, match=r"hidden=\(16, 8\) must be one width.*residual=False"):
        DiffusionSettings(hidden=(16, 8), residual=True)
    with pytest.raises(InputError, match=r"hidden=\(\) must be one width"):
        DiffusionSettings(hidden=[], residual=True)


def test_blocks_have_a_rate_of_their_own():
    settings = replace(TINY, residual=True, weight_decay=0.0)
    whole, half = (replace(settings, block_rate=rate) for rate in (1.0, 0.5))
    net = diffusion.network(Layout(BLOCKS), whole, None, KEY)
    rows = diffusion.rows_of(toy(30), Layout(BLOCKS), None)

    def moved(settings):
        descent = diffusion.descent(settings, Layout(BLOCKS), None)
        state, _ = descent(descent.start(net), rows, KEY)
        return jax.tree.map(lambda after, before: np.asarray(after - before), state.net, net)

    by_whole, by_half = moved(whole), moved(half)
    assert np.array_equal(by_half.project.weight, by_whole.project.weight)
    assert np.array_equal(by_half.body.last.weight, by_whole.body.last.weight)
    for block, wholly in zip(by_half.body.blocks, by_whole.body.blocks, strict=True):
        for name in ("modulation", "first", "second"):
            step = getattr(wholly, name).weight
            assert np.abs(step).max() > 1e-4
            assert getattr(block, name).weight == pytest.approx(0.5 * step, abs=1e-6)


def test_without_blocks_there_is_no_rate_of_theirs():
    with pytest.raises(InputError, match=r"block_rate=0\.5 has no effect.*residual=True"):
        DiffusionSettings(block_rate=0.5)


def test_settings_say_how_much_noise_is_put_back(fitted):
    still = replace(fitted, settings=replace(SMALL, eta=0.0))
    for model, eta in ((fitted, 1.0), (still, 0.0)):
        drawn = model.sample(50, key=KEY)
        assert (drawn == fitted.sample(50, key=KEY, eta=eta)).all()
        assert (drawn == model.sample(50, key=KEY, sampler="solver")).all()
    assert not (fitted.sample(50, key=KEY) == still.sample(50, key=KEY)).all()


def test_few_rows_are_not_seen_too_often():
    X = toy(30)
    short = diffusion.fit(X, BLOCKS, replace(TINY, steps=50, passes=1), key=KEY)
    told = diffusion.fit(X, BLOCKS, replace(TINY, steps=4, passes=None), key=KEY)
    assert short.settings.steps == 4  # 4 x 8 rows hold 30
    assert (short.sample(9, key=KEY) == told.sample(9, key=KEY)).all()
    assert diffusion.fit(X, BLOCKS, replace(TINY, steps=5), key=KEY).settings.steps == 5


def test_smaller_tables_are_used_less_often_where_the_settings_say_from_when():
    settings = DiffusionSettings(steps=10**6, batch=100, passes=500, passes_from=10_000)
    steps = {rows: settings.taken(rows) for rows in (100, 2_500, 10_000, 20_000)}
    assert steps == {100: 50, 2_500: 6_250, 10_000: 50_000, 20_000: 100_000}
    assert replace(settings, passes=None).taken(100) == 10**6


def test_labels_follow_their_law(labelled):
    assert_like_the_toy(labelled.sample(2000, key=KEY, steps=25))
    assert labelled.label_shares == pytest.approx((0.5, 0.5), abs=0.03)
    rare = replace(labelled, label_shares=(0.95, 0.05))
    assert rare.sample(2000, key=KEY, steps=25)[:, 5].mean() == pytest.approx(0.05, abs=0.02)


def test_a_given_label_is_exact_and_other_columns_follow(labelled):
    given = np.full((2000, 6), np.nan, np.float32)
    given[:, 4:] = [0, 1]
    X = labelled.sample(2000, key=KEY, given=given, steps=25)
    assert (X[:, 5] == 1).all()
    assert X[:, 1:4].mean(0) == pytest.approx(JOINT[:, 1] / JOINT[:, 1].sum(), abs=0.05)
    assert X[:, 0].mean() == pytest.approx(1.0, abs=0.15)


def test_given_columns_stay_and_pull_the_others(fitted):
    """Replacement is not the exact law: it pulls the others towards it."""
    given = np.full((2000, 6), np.nan, np.float32)
    given[:, 1:4] = [1, 0, 0]
    once = fitted.sample(2000, key=KEY, given=given, steps=25)
    again = fitted.sample(2000, key=KEY, given=given, steps=25, resamples=4)
    truth, alone = JOINT[0, 0] / JOINT[0].sum(), JOINT[:, 0].sum()
    for X in (once, again):
        assert (X[:, 1] == 1).all()
    assert alone + 0.05 < once[:, 4].mean() < truth + 0.05
    assert abs(again[:, 4].mean() - truth) < abs(once[:, 4].mean() - truth)
    given = np.full((2000, 6), np.nan, np.float32)
    given[:, 0] = 1.1
    X = fitted.sample(2000, key=KEY, given=given, steps=25)
    assert X[:, 0].tolist() == [np.float32(1.1)] * 2000
    assert X[:, 5].mean() > 0.8


class Line(Descent):
    """A network of one number that is drawn to the rows."""

    def losses(self, net, rows, key):
        return (net - rows) ** 2


def test_the_average_follows_the_weights_at_its_own_pace():
    line = Line(replace(TINY, decay=0.75, learning_rate=0.1, steps=100), ())
    state = line.start(jnp.array(0.0))
    average = 0.0
    for step in range(40):
        state, _ = line(state, jnp.ones(3), KEY)
        decay = min(0.75, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * float(state.net)
    assert float(state.average) == pytest.approx(average, rel=1e-5)
    assert float(state.average) != pytest.approx(float(state.net), rel=1e-3)


def test_what_samples_are_the_averaged_weights(monkeypatch):
    def train(state, *_, **__):
        average = jax.tree.map(lambda x: x + 1, state.net)
        return State(state.net, average, state.moments, state.step)

    monkeypatch.setattr("siloweave.models.train.train", train)
    model = diffusion.fit(toy(30), BLOCKS, TINY, key=KEY)
    first = diffusion.network(model.layout, TINY, None, jax.random.split(KEY)[0])
    expected = np.asarray(first.project.weight) + 1
    assert np.asarray(model.net.project.weight) == pytest.approx(expected)


def test_one_key_one_model_one_table():
    a, b = (diffusion.fit(toy(30), BLOCKS, TINY, key=KEY, labels="y") for _ in range(2))
    X = a.sample(50, key=KEY)
    assert np.array_equal(X, b.sample(50, key=KEY))
    assert not np.array_equal(X, a.sample(50, key=jax.random.key(6)))
    other = diffusion.fit(toy(30), BLOCKS, TINY, key=jax.random.key(6), labels="y")
    assert not np.array_equal(X, other.sample(50, key=KEY))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("labels", [None, "y"])
def test_a_stored_model_draws_the_same_rows(tmp_path, labels, residual):
    settings = replace(TINY, residual=residual)
    model = diffusion.fit(toy(30), BLOCKS, settings, key=KEY, labels=labels)
    model.save(tmp_path / "m.safetensors")
    again = TabDDPMModel.load(tmp_path / "m.safetensors")
    assert (again.settings, again.layout, again.label) == (settings, model.layout, model.label)
    assert np.array_equal(model.sample(50, key=KEY), again.sample(50, key=KEY))


def test_what_is_no_model_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    with pytest.raises(DataError, match="not a stored model"):
        TabDDPMModel.load(path)
    path.write_bytes(b"12345678 nothing")
    with pytest.raises(DataError, match="not a stored model"):
        TabDDPMModel.load(path)


def test_a_model_of_an_older_version_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    diffusion.fit(toy(30), BLOCKS, TINY, key=KEY).save(path)
    data = path.read_bytes()
    for name, before in (("label_shares", "label_laws__"), ("clip_range", "reach_____")):
        path.write_bytes(data.replace(name.encode(), before.encode()))
        with pytest.raises(DataError, match="older siloweave"):
            TabDDPMModel.load(path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused_by_name(bad):
    X = toy(20)
    X[7, 0] = bad
    with pytest.raises(InputError, match="column 'x', row 7"):
        diffusion.fit(X, BLOCKS, TINY, key=KEY)


def test_rows_that_do_not_fit_their_blocks_are_refused():
    X = toy(20)
    with pytest.raises(InputError, match=r"shape \(20, 5\).*\(rows, 6\)"):
        diffusion.fit(X[:, :5], BLOCKS, TINY, key=KEY)
    with pytest.raises(InputError, match="no rows"):
        diffusion.fit(X[:0], BLOCKS, TINY, key=KEY)
    X[3, 1:4] = 1
    with pytest.raises(InputError, match="one-hot in column 'c'"):
        diffusion.fit(X, BLOCKS, TINY, key=KEY)
    with pytest.raises(InputError, match=r"labels='x'.*\['c', 'y'\]"):
        diffusion.fit(toy(20), BLOCKS, TINY, key=KEY, labels="x")


@pytest.mark.parametrize("wrong", [{"timesteps": 1}, {"eta": 1.5}])
def test_settings_that_give_no_walk_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        DiffusionSettings(**wrong)


def test_sampling_what_cannot_be_sampled():
    model = diffusion.fit(toy(30), BLOCKS, TINY, key=KEY)
    assert model.sample(0, key=KEY).shape == (0, 6)
    with pytest.raises(InputError, match="n=-1"):
        model.sample(-1, key=KEY)
    with pytest.raises(InputError, match=r"shape \(2, 6\)"):
        model.sample(3, key=KEY, given=np.zeros((2, 6)))
    with pytest.raises(InputError, match="resamples=2"):
        model.sample(3, key=KEY, resamples=2)
    half = np.full((3, 6), np.nan)
    half[:, 1] = 1.0
    with pytest.raises(InputError, match="some categories of column 'c'"):
        model.sample(3, key=KEY, given=half)


def fits_and_samples(X, blocks, **options):
    model = diffusion.fit(X, blocks, TINY, key=KEY, **options)
    drawn = model.sample(10, key=KEY, steps=5)
    assert drawn.shape == (10, X.shape[1])
    assert np.isfinite(drawn).all()
    return drawn


@pytest.mark.slow  # quick on a table, in tests/synthesizers/test_generators.py: one column
def test_one_constant_number_alone_and_fewer_rows_than_a_batch():
    fits_and_samples(np.zeros((3, 1), np.float32), (Block("x", 0, 1, "number"),))


def test_one_choice_alone_is_diffused_even_as_label():
    pair, only = np.eye(2, dtype=np.float32)[np.arange(30) % 2], (Block("y", 0, 2, "categorical"),)
    assert fits_and_samples(pair, only, labels="y").sum(1).tolist() == [1.0] * 10


@pytest.mark.slow  # quick on a table, in tests/synthesizers/test_generators.py: crowded tables
def test_300_binary_columns_and_a_choice_of_one():
    flags = np.random.default_rng(0).integers(2, size=(40, 300))
    X = np.concatenate([np.eye(2, dtype=np.float32)[flags].reshape(40, 600), np.ones((40, 1))], 1)
    blocks = tuple(Block(f"b{i}", 2 * i, 2, "categorical") for i in range(300))
    drawn = fits_and_samples(X, (*blocks, Block("k", 600, 1, "categorical")))
    assert drawn.sum() == 3010


def test_a_class_with_one_row_and_one_that_nobody_has():
    X = toy(30)
    X[:, 1:] = [0, 1, 0, 1, 0]
    X[0, 4:] = [0, 1]
    model = diffusion.fit(X, BLOCKS, TINY, key=KEY, labels="y")
    assert model.label_shares == pytest.approx((29 / 30, 1 / 30))
    X[0, 4:] = [1, 0]
    model = diffusion.fit(X, BLOCKS, TINY, key=KEY, labels="y")
    assert model.sample(50, key=KEY)[:, 5].sum() == 0


MATCHED = replace(SMALL, steps=60, matched=4096)


@pytest.fixture(scope="module")
def hurried():
    """A network that was trained too briefly to spread its numbers as the rows do."""
    return diffusion.fit(toy(4000), BLOCKS, replace(MATCHED, matched=0), key=KEY)


@pytest.fixture(scope="module")
def matched():
    return diffusion.fit(toy(4000), BLOCKS, MATCHED, key=KEY)


def test_a_matched_model_draws_numbers_that_spread_as_the_rows_do(hurried, matched):
    numbers = toy(4000)[:, 0]
    plain = hurried.sample(4000, key=KEY)[:, 0]
    rescaled = matched.sample(4000, key=KEY)[:, 0]
    assert abs(plain.std() - numbers.std()) > 0.1
    assert rescaled.std() == pytest.approx(numbers.std(), rel=0.04)
    assert rescaled.mean() == pytest.approx(numbers.mean(), abs=0.06)


def test_matching_trains_the_same_network(hurried, matched):
    weights = jax.tree.leaves(hurried.net)
    assert all(map(np.array_equal, weights, jax.tree.leaves(matched.net)))


def test_only_the_walk_that_was_measured_is_rescaled(hurried, matched):
    given = np.full((50, BLOCKS[-1].stop), np.nan, np.float32)
    given[:, 0] = 1.0
    ways = ({"steps": 25}, {"sampler": "ddim"}, {"eta": 0.5}, {"given": given})
    for way in ways:
        plain = hurried.sample(50, key=KEY, **way)
        assert np.array_equal(matched.sample(50, key=KEY, **way), plain)


def test_a_stored_model_is_rescaled_as_before(matched, tmp_path):
    matched.save(tmp_path / "model.safetensors")
    read = TabDDPMModel.load(tmp_path / "model.safetensors")
    assert np.array_equal(read.sample(100, key=KEY), matched.sample(100, key=KEY))


def test_a_file_with_the_scalings_of_another_walk_is_refused(matched, tmp_path):
    half = {name: array[::2] for name, array in matched.scaling.items()}
    replace(matched, scaling=half).save(tmp_path / "model.safetensors")
    with pytest.raises(DataError, match="damaged"):
        TabDDPMModel.load(tmp_path / "model.safetensors")


def test_a_label_that_is_given_is_no_fixed_cell():
    fitted = diffusion.fit(toy(1000), BLOCKS, MATCHED, key=KEY, labels="y")
    given = np.full((200, BLOCKS[-1].stop), np.nan, np.float32)
    given[:, 4:6] = [0.0, 1.0]
    rescaled = fitted.sample(200, key=KEY, given=given, sampler="solver")
    unscaled = replace(fitted, scaling={})
    plain = unscaled.sample(200, key=KEY, given=given, sampler="solver")
    assert not np.array_equal(rescaled, plain)
    assert (rescaled[:, 5] == 1.0).all()
