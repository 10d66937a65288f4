"""What can be computed exactly: schedules, samplers' tables, the multinomial chain, layouts."""

from dataclasses import replace
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from siloweave.errors import InputError
from siloweave.models.denoiser import (
    Denoiser,
    Rows,
    draw,
    forward_codes,
    log_kept_or_fresh,
    posterior,
    prior_divergence,
    row_bound,
    row_cross_entropy,
    row_losses,
)
from siloweave.models.diffusion import kept_variance, walk
from siloweave.models.nets import (
    MLP,
    Dense,
    Options,
    ResidualBlocks,
    averaged,
    fresh,
    normalised,
)
from siloweave.models.settings import CHOICE_LOSSES, DiffusionSettings
from siloweave.models.train import Descent
from siloweave.privacy import gradients
from siloweave.privacy.gradients import factors
from siloweave.tables.features import Block, Layout

KEY = jax.random.key(3)
PAPER = DiffusionSettings(prediction="noise")
BLOCKS = (
    Block("a", 0, 3, "categorical"),
    Block("b", 3, 1, "number"),
    Block("c", 4, 2, "categorical"),
    Block("d", 6, 3, "categorical"),
)


class Told(Descent):
    """The descent of a denoiser, without a table."""

    def losses(self, net, rows, key):
        return row_losses(net, rows, key, self.groups, kept_variance("cosine", 10), PAPER)


def chain(schedule, T):
    """ᾱ and the matrices of the forward chain's single steps, K = 4, by multiplication."""
    kept = kept_variance(schedule, T)
    alphas = kept / np.append(1.0, kept[:-1])
    steps = [a * np.eye(4) + (1 - a) / 4 for a in alphas]
    return kept, steps


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_schedules_fall_from_almost_one_to_almost_nothing(schedule):
    kept = kept_variance(schedule, 1000)
    assert (np.diff(kept) < 0).all()
    assert kept[0] > 0.999
    assert kept[-1] < 1e-4


def test_the_cosine_schedule_is_the_published_formula():
    T = 50
    kept = kept_variance("cosine", T)
    clock = (np.arange(1, T) / T + 0.008) / 1.008
    formula = np.cos(clock * np.pi / 2) ** 2 / np.cos(0.008 / 1.008 * np.pi / 2) ** 2
    assert kept[:-1] == pytest.approx(formula, rel=1e-9)
    assert kept[-1] == pytest.approx(kept[-2] * 0.001, rel=1e-6)  # β capped at 0.999


def test_the_linear_schedule_has_the_published_ends():
    kept = kept_variance("linear", 1000)
    betas = 1 - kept / np.append(1.0, kept[:-1])
    assert betas[[0, -1]] == pytest.approx([1e-4, 0.02], rel=1e-6)


def test_ancestral_steps_are_the_posterior_of_the_gaussian_chain():
    kept = kept_variance("cosine", 20)
    plan = walk(kept, "ancestral")
    for i, t in enumerate(plan.times[:-1]):
        a, before = kept[t], kept[t - 1]
        beta = 1 - a / before
        mean_x = np.sqrt(1 - beta) * (1 - before) / (1 - a)
        mean_clean = np.sqrt(before) * beta / (1 - a)
        variance = beta * (1 - before) / (1 - a)
        found = (plan.x[i], plan.clean[i], plan.noise[i] ** 2)
        assert found == pytest.approx((mean_x, mean_clean, variance), rel=1e-6)
    assert (plan.clean[-1], plan.x[-1], plan.noise[-1]) == pytest.approx((1, 0, 0), abs=1e-9)


@pytest.mark.parametrize("eta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("sampler", ["ddim", "solver"])
def test_a_sampler_that_knows_the_clean_row_arrives_there(sampler, eta):
    """And on the way it is at the right distance: x = √ᾱ clean + √(1-ᾱ) noise."""
    plan = walk(kept_variance("cosine", 1000), sampler, 10, eta)
    clean, rng = 1.7, np.random.default_rng(0)
    x = np.sqrt(plan.kept[0]) * clean + np.sqrt(1 - plan.kept[0]) * rng.normal(size=200_000)
    for i in range(10):
        z = rng.normal(size=x.shape)
        x = plan.x[i] * x + (plan.clean[i] + plan.last[i]) * clean + plan.noise[i] * z
        left = plan.kept_next[i]
        assert x.mean() == pytest.approx(np.sqrt(left) * clean, abs=0.02)
        assert x.std() == pytest.approx(np.sqrt(1 - left), abs=0.02)


def solved(sampler, steps):
    """Standard deviation that a sampler ends with, x_0 ~ N(0, 0.5²), its x̂_0 exact."""
    plan = walk(kept_variance("cosine", 1000), sampler, steps)
    x, last = 1.0, 0.0
    for i in range(steps):
        a = plan.kept[i]
        clean = np.sqrt(a) * 0.25 / (a * 0.25 + 1 - a) * x
        x = plan.x[i] * x + plan.clean[i] * clean + plan.last[i] * last
        last = clean
    return x


def test_the_solver_is_of_second_order():
    errors = {s: [abs(solved(s, n) - 0.5) for n in (20, 40)] for s in ("ddim", "solver")}
    assert errors["solver"][0] < errors["ddim"][0] / 3
    assert errors["solver"][0] / errors["solver"][1] > 2.5
    assert errors["ddim"][0] / errors["ddim"][1] < 2.5


def ends(sampler, eta, steps, spread):
    """As `solved`, of x_0 ~ N(0, spread²) and with noise: the covariance of x and the last x̂_0."""
    plan = walk(kept_variance("cosine", 1000), sampler, steps, eta)
    both = np.diag([1.0, 0.0])
    for i, a in enumerate(plan.kept):
        gain = np.sqrt(a) * spread**2 / (a * spread**2 + 1 - a)
        step = np.array([[plan.x[i] + plan.clean[i] * gain, plan.last[i]], [gain, 0.0]])
        both = step @ both @ step.T + np.diag([plan.noise[i] ** 2, 0.0])
    return np.sqrt(both[0, 0])


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("spread", [0.05, 0.2, 1.0])
def test_fifty_steps_of_the_solver_keep_how_wide_a_law_is(eta, spread):
    assert ends("solver", eta, 50, spread) == pytest.approx(spread, rel=0.02)
    assert ends("ddim", eta, 50, spread) < 0.98 * spread


def test_noise_that_is_put_back_forgets_an_early_error():
    """A network that is wrong at much noise only: what is left of it at the end."""
    left = {}
    for eta in (0.0, 1.0):
        plan = walk(kept_variance("cosine", 1000), "solver", 50, eta)
        off = last = 0.0  # from the right path, whose law is N(0, 0.2²)
        for i, a in enumerate(plan.kept):
            clean = np.sqrt(a) * 0.04 / (a * 0.04 + 1 - a) * off + 0.1 * (a < 0.3)
            off = plan.x[i] * off + plan.clean[i] * clean + plan.last[i] * last
            last = clean
        left[eta] = abs(off)
    assert left[1.0] < left[0.0] / 2


def test_few_steps_that_cannot_be_walked_are_refused():
    kept = kept_variance("cosine", 100)
    for steps in (1, 101):
        with pytest.raises(InputError, match=f"steps={steps} .* 2 ... 100"):
            walk(kept, "ddim", steps)
    with pytest.raises(InputError, match="sampler='euler'"):
        walk(kept, "euler")
    for eta in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match=f"eta={eta} is not in"):
            walk(kept, "solver", eta=eta)
    with pytest.raises(InputError, match="schedule='quadratic'"):
        kept_variance("quadratic", 10)
    with pytest.raises(InputError, match="timesteps=1 "):
        kept_variance("cosine", 1)


def test_log_space_sums_hold_at_the_edges():
    log_p = jnp.log(jnp.array([1.0, 0.0, 0.0]))
    for kept in (0.0, 1e-12, 0.3, 1.0):
        p = np.exp(np.asarray(log_kept_or_fresh(log_p, jnp.array(kept), 3)))
        assert p == pytest.approx(kept * np.array([1, 0, 0]) + (1 - kept) / 3, abs=1e-6)
        assert np.isfinite(p).all()


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_multinomial_posterior_is_bayes_rule_over_the_chain(schedule):
    """q(x_s | x_t, x_0) from products of single-step matrices, for neighbours and for strides."""
    kept, steps = chain(schedule, 12)
    for t, s in [(11, 10), (5, 4), (1, 0), (11, 3), (6, 0)]:
        to_s = np.linalg.multi_dot([np.eye(4), *steps[: s + 1], np.eye(4)])
        s_to_t = np.linalg.multi_dot([np.eye(4), *steps[s + 1 : t + 1], np.eye(4)])
        for x0 in range(4):
            for xt in range(4):
                joint = to_s[x0] * s_to_t[:, xt]
                log_x0 = jnp.log(jnp.eye(4)[x0])[None] + 0.0
                found = posterior(log_x0, jnp.array([xt]), jnp.array([kept[t]]), jnp.array(kept[s]))
                assert np.exp(found[0]) == pytest.approx(joint / joint.sum(), abs=2e-5)


def test_the_forward_draw_has_the_forward_law():
    codes = jnp.full((60_000, 1), 2)
    drawn = np.asarray(
        forward_codes(jax.random.uniform(KEY, (2, 60_000, 1)), codes, jnp.array(0.4), 5)
    )
    shares = np.bincount(drawn.ravel(), minlength=5) / codes.size
    assert shares == pytest.approx([0.12, 0.12, 0.52, 0.12, 0.12], abs=0.01)


def test_drawing_by_inversion_has_the_law_that_is_asked_for():
    p = np.array([0.5, 0.0, 0.2, 0.3])
    uniform = jax.random.uniform(KEY, (60_000, 1))
    drawn = np.asarray(draw(uniform, jnp.log(jnp.tile(jnp.array(p), (60_000, 1, 1)))))
    assert np.bincount(drawn.ravel(), minlength=4) / 60_000 == pytest.approx(p, abs=0.01)
    assert not (drawn == 1).any()


def test_the_bound_is_never_negative_and_nothing_at_the_truth():
    kept = kept_variance("cosine", 12)
    rng = np.random.default_rng(1)
    clean, noisy = (jnp.asarray(rng.integers(4, size=(200, 3))) for _ in range(2))
    t = rng.integers(1, 12, size=200)
    a, before = (jnp.asarray(kept[t - k], jnp.float32)[:, None] for k in (0, 1))
    options = Options(((3, 4),))
    guess = options.log_softmax(jnp.asarray(rng.normal(size=(200, 12)), jnp.float32))
    loss = np.asarray(row_bound(options, guess, clean, noisy, a, before))
    assert (loss >= -1e-5).all()
    assert loss.max() > 0.1
    known = jnp.where(options.flags(clean), 0.0, -69.0)
    loss = np.asarray(row_bound(options, known, clean, noisy, a, before))
    assert loss == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_bound_is_the_divergence_of_the_posteriors_for_choices_of_any_size(schedule):
    """Against posteriors of one choice at a time, true and of the model, in double precision."""
    kept, rng, n = kept_variance(schedule, 50), np.random.default_rng(4), 60
    options = Options(((2, 2), (1, 3), (1, 7)))
    clean, noisy = (jnp.asarray(rng.integers(options.sizes, size=(n, 4))) for _ in range(2))
    logits = jnp.asarray(3.0 * rng.normal(size=(n, 14)), jnp.float32)
    t = rng.integers(1, 50, size=n)
    a, before = (jnp.asarray(kept[t - k], jnp.float32)[:, None] for k in (0, 1))
    log_x0 = options.log_softmax(logits)
    found = row_bound(options, log_x0, clean, noisy, a, before)
    wanted = np.zeros(n)
    for j, size in enumerate(options.sizes):
        own = np.asarray(logits, np.float64)[:, options.categorical == j]
        chance = np.exp(own) / np.exp(own).sum(1, keepdims=True)
        assert np.exp(log_x0[:, options.categorical == j]) == pytest.approx(chance, abs=1e-6)
        ratio = kept[t] / kept[t - 1]
        reached = ratio[:, None] * np.eye(size)[noisy[:, j]] + (1 - ratio[:, None]) / size
        laws = []
        for law in (np.eye(size)[clean[:, j]], chance):
            start = kept[t - 1][:, None] * law + (1 - kept[t - 1][:, None]) / size
            laws.append(reached * start / (reached * start).sum(1, keepdims=True))
        wanted += (laws[0] * np.log(laws[0] / laws[1])).sum(1)
    assert np.asarray(found) == pytest.approx(wanted, rel=2e-3, abs=2e-5)


@pytest.mark.parametrize("choices", CHOICE_LOSSES)
def test_losses_and_their_slopes_are_finite_where_the_network_is_sure_and_wrong(choices):
    options = Options(((1, 2), (1, 5)))
    kept = kept_variance("cosine", 1000)
    clean, noisy = jnp.array([[0, 3]] * 1000), jnp.array([[1, 2]] * 1000)
    t = np.arange(1000)
    a, before = (jnp.asarray(np.append(1.0, kept)[t + k], jnp.float32)[:, None] for k in (1, 0))

    def loss(logits):
        log_x0 = options.log_softmax(logits)
        if choices == "bound":
            return row_bound(options, log_x0, clean, noisy, a, before)
        return row_cross_entropy(options, log_x0, clean, noisy, a)

    logits = jnp.array([[-300.0, 300.0, 0.0, 0.0, 0.0, -300.0, 300.0]] * 1000)
    slope = jax.grad(lambda x: loss(x).sum())(logits)
    assert np.isfinite(loss(logits)).all()
    assert np.isfinite(slope).all()


def test_the_surprise_is_that_of_bayes_rule_and_the_bound_at_time_0():
    rng, kept = np.random.default_rng(2), 0.7
    options = Options(((2, 3),))
    guess = options.log_softmax(jnp.asarray(rng.normal(size=(8, 6)), jnp.float32))
    clean, noisy = (jnp.asarray(rng.integers(3, size=(8, 2))) for _ in range(2))
    seen = kept * np.eye(3)[np.asarray(noisy)] + (1 - kept) / 3  # q(x_t | x_0) of each x_0
    law = np.exp(np.asarray(guess, np.float64)).reshape(8, 2, 3) * seen
    law /= law.sum(-1, keepdims=True)
    wanted = -np.log(np.take_along_axis(law, np.asarray(clean)[..., None], -1)).sum((1, 2))
    level = jnp.full((8, 1), kept)
    found = row_cross_entropy(options, guess, clean, noisy, level)
    assert np.asarray(found) == pytest.approx(wanted, rel=1e-5)
    found = row_bound(options, guess, clean, noisy, level, jnp.ones((8, 1)))
    assert np.asarray(found) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("choices", CHOICE_LOSSES)
def test_both_losses_are_least_at_the_law_given_the_other_columns(choices):
    """Every clean and noisy row of two columns, weighed by its chance: no slope is left there."""
    law = np.array([[0.3, 0.05, 0.1], [0.02, 0.33, 0.2]])
    rows = np.array([(i, j) for i in range(2) for j in range(3)])
    kept, before = 0.6, 0.8
    seen = [kept * np.eye(size) + (1 - kept) / size for size in (2, 3)]
    clean, noisy = (np.array(x) for x in zip(*product(rows, rows), strict=True))
    chance = law[clean[:, 0], clean[:, 1]] * np.prod(
        [seen[j][clean[:, j], noisy[:, j]] for j in range(2)], axis=0
    )
    given = [seen[1].T @ law.T, seen[0].T @ law]  # (noisy value of the other, own clean value)
    given = [np.log(x / x.sum(1, keepdims=True)) for x in given]
    told = np.concatenate([given[0][noisy[:, 1]], given[1][noisy[:, 0]]], axis=1)
    options = Options.of((2, 3))
    a, s = jnp.full((36, 1), kept), jnp.full((36, 1), before)

    def loss(logits):
        log_x0 = options.log_softmax(logits[place])
        if choices == "bound":
            each = row_bound(options, log_x0, jnp.asarray(clean), jnp.asarray(noisy), a, s)
        else:
            each = row_cross_entropy(options, log_x0, jnp.asarray(clean), jnp.asarray(noisy), a)
        return jnp.asarray(chance) @ each

    place = 3 * noisy[:, 0] + noisy[:, 1]  # the network sees nothing but the noisy row
    best = jnp.zeros((6, 5)).at[place].set(told)
    assert np.abs(jax.grad(loss)(best)).max() < 1e-6
    other = best + 0.1 * jax.random.normal(KEY, best.shape)
    assert float(loss(other)) > float(loss(best)) + 1e-4


def test_the_divergence_at_the_end_of_the_chain():
    kept, size = 0.25, 3
    p = kept * np.eye(size)[0] + (1 - kept) / size
    assert float(prior_divergence(kept, size)) == pytest.approx(
        (p * np.log(p * size)).sum(), abs=1e-5
    )
    assert float(prior_divergence(1e-9, size)) == pytest.approx(0.0, abs=1e-6)


def test_with_a_network_that_says_nothing_the_loss_is_known():
    """Zero weights predict noise 0 and uniform choices: of numbers 1, of choices by the chain."""
    layout, T = Layout((Block("x", 0, 1, "number"), Block("c", 1, 4, "categorical"))), 6
    settings = DiffusionSettings(hidden=(8,), embed=8, timesteps=T)
    net = jax.tree.map(jnp.zeros_like, Denoiser(5, 5, 0, settings, key=KEY))
    n = 60_000
    rows = Rows(jnp.zeros((n, 1)), jnp.ones((n, 1), jnp.int32), jnp.zeros(n, jnp.int32))
    kept, steps = chain("cosine", T)
    paper = replace(PAPER, choices="bound")
    found = np.asarray(row_losses(net, rows, KEY, layout.groups, kept, paper)).mean()
    flat, bound, entropy, reached = np.full(4, 0.25), 0.0, 0.0, np.eye(4)[1]
    for t in range(T):
        before, reached = reached, reached @ steps[t]
        for xt in range(4):
            truth = before * steps[t][:, xt]
            model = flat * steps[t][:, xt]
            truth, model = truth / truth.sum(), model / model.sum()
            bound += reached[xt] * (truth * np.log(np.maximum(truth, 1e-30) / model)).sum()
            entropy -= reached[xt] * np.log(reached[xt]) / T  # reached is symmetric, and sums to 1
    end = reached
    bound += (end * np.log(end * 4)).sum()
    assert found == pytest.approx(1.0 + bound, abs=0.02)
    found = np.asarray(row_losses(net, rows, KEY, layout.groups, kept, PAPER)).mean()
    assert found == pytest.approx((1.0 + entropy) / 2, abs=0.01)


def test_layouts_go_both_ways_and_put_equal_sizes_together():
    layout = Layout(BLOCKS)
    assert layout.groups == ((1, 2), (2, 3))
    X = np.array([[0, 1, 0, 0.5, 1, 0, 0, 0, 1], [1, 0, 0, -2, 0, 1, 1, 0, 0]], np.float32)
    numbers, codes = layout.split(layout.check(X))
    assert numbers.tolist() == [[0.5], [-2.0]]
    assert codes.tolist() == [[0, 1, 2], [1, 0, 0]]
    assert np.array_equal(layout.join(numbers, codes), X)


@pytest.mark.parametrize("residual", [False, True])
def test_private_gradients_know_every_layer_of_the_denoiser(residual):
    """Book-kept sums agree with a gradient per row, so no parameter is left out."""
    settings = DiffusionSettings(hidden=(6, 6), embed=4, timesteps=10, residual=residual)
    net = Denoiser(6, 6, 2, settings, key=KEY)
    rows = Rows(jax.random.normal(KEY, (5, 2)), jnp.ones((5, 1), jnp.int32), jnp.arange(5) % 2)
    descent = Told(settings, ((1, 4),))
    mask = np.array([True, True, False, True, True])
    kept = factors(descent.one, net, rows, jnp.asarray(mask), clip=0.5, key=KEY, layer=Dense)
    with jax.enable_x64(True):
        order = gradients._order_of(net, Dense)
        start = np.zeros(gradients.flat_size(net))
        total = gradients._added(start, kept.dense, kept.rest, kept.scale, order=order)
    every = jax.vmap(eqx.filter_grad(descent.one), (None, 0, 0))(
        net, rows, jax.random.split(KEY, 5)
    )
    flat = np.concatenate([np.asarray(x).reshape(5, -1) for x in jax.tree.leaves(every)], 1)
    norms = np.linalg.norm(flat, axis=1)
    assert np.asarray(kept.norms) == pytest.approx(norms * mask, rel=1e-3)
    assert np.asarray(total) == pytest.approx((np.minimum(1, 0.5 / norms) * mask) @ flat, abs=1e-4)


def test_a_residual_block_is_the_published_formula():
    net = ResidualBlocks(3, 1, 2, condition=4, key=KEY, act="tanh")
    x, condition = np.array([[1.0, 2.0, 6.0]]), np.array([[0.5, -1.0, 0.25, 2.0]])

    def dense(layer, x):
        return x @ np.asarray(layer.weight) + np.asarray(layer.bias)

    def standard(x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5)

    (block,) = net.blocks
    scale, shift = np.split(dense(block.modulation, condition), 2, axis=1)
    read = (1 + scale) * standard(x) + shift
    h = x + dense(block.second, np.tanh(dense(block.first, read)))
    expected = dense(net.last, np.tanh(standard(h)))
    found = net(jnp.asarray(x), jnp.asarray(condition))
    assert np.asarray(found) == pytest.approx(expected, rel=1e-5)


def test_residual_blocks_drop_units_where_a_key_is_given():
    net = ResidualBlocks(40, 2, 3, condition=4, key=KEY, dropout=0.5)
    x, condition = jnp.ones((2, 40)).at[:, :7].set(3.0), jnp.ones((1, 4))
    assert np.array_equal(net(x, condition), net(x, condition))
    assert not np.array_equal(net(x, condition, key=KEY), net(x, condition))


def test_equal_units_are_normalised_to_nothing_and_nothing_is_divided_by_0():
    assert np.asarray(normalised(jnp.full((2, 5), 7.0))).tolist() == [[0.0] * 5] * 2


def test_the_moving_average_moves_by_its_share():
    old, new = MLP(2, (), 1, key=KEY), MLP(2, (), 1, key=jax.random.key(9))
    mixed = averaged(old, new, 0.75, 1_000)
    expected = 0.75 * old.layers[0].weight + 0.25 * new.layers[0].weight
    assert np.asarray(mixed.layers[0].weight) == pytest.approx(np.asarray(expected), rel=1e-6)


def test_the_moving_average_soon_forgets_the_first_weights():
    average, fixed = MLP(2, (), 1, key=KEY), MLP(2, (), 1, key=jax.random.key(9))
    for step in range(20):
        average = averaged(average, fixed, 0.99, step)
    found, expected = (np.asarray(net.layers[0].weight) for net in (average, fixed))
    assert found == pytest.approx(expected, abs=1e-5)


def scaled(*, key):
    return Dense(400, 50, key=key, scale=3.0), MLP(100, (200,), 60, key=key)


def test_layers_that_are_drawn_at_once_have_the_law_of_layers_that_draw_themselves():
    at_once, themselves = fresh(scaled, key=KEY), scaled(key=KEY)
    again, other = fresh(scaled, key=KEY), fresh(scaled, key=jax.random.key(9))
    for found, own in zip(jax.tree.leaves(at_once), jax.tree.leaves(themselves), strict=True):
        assert found.shape == own.shape
    layers = [(net[0], *net[1].layers) for net in (at_once, themselves, again, other)]
    for found, own, same, different in zip(*layers, strict=True):
        for weights in (found.weight, own.weight):
            assert np.abs(weights).max() <= found.bound
            assert float(weights.std()) == pytest.approx(found.bound / 3**0.5, rel=0.03)
        assert np.array_equal(found.weight, same.weight)
        assert not np.array_equal(found.weight, different.weight)
        assert abs(np.corrcoef(np.ravel(found.weight), np.ravel(own.weight))[0, 1]) < 0.05
