"""GANs of rows: CTGAN, ADS-GAN with both readings of identifiability, and the halves of MD-GAN.

CTGAN: Xu, Skoularidou, Cuesta-Infante & Veeramachaneni, Modeling Tabular Data using Conditional
GAN, NeurIPS 2019, with the layers and rates of its release 0.12. Numbers come as modes
(``Features.fit(..., numeric="modes")``), conditions from `models.conditional`.

ADS-GAN: Yoon, Drumright & van der Schaar, Anonymization through Data Synthesis using GANs, IEEE
JBHI 2020: the loss of the generator also rewards distance from real rows. Two readings of that
distance are in use. ``"nearest"`` is the paper's: from a generated row to its nearest real row,
features weighted by the inverse of their entropy (here among the rows of a batch). ``"pairs"`` is
synthcity's: from each generated row to one arbitrary real row, without weights. The second rewards
spread, and does not measure the nearest row.

MD-GAN: Hardy, Le Merrer & Sericola, MD-GAN: Multi-discriminator generative adversarial networks for
distributed datasets, IPDPS 2019, Algorithm 1: one generator, and one critic at each owner of rows;
here with the networks and losses of CTGAN.

**Guarantee**: none. Distance from real rows bounds nothing, in either reading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from siloweave.errors import DataError, InputError, whole
from siloweave.models.conditional import (
    Conditions,
    Drawing,
    Frequency,
    draw_places,
    draw_rows,
    drawing,
)
from siloweave.models.gan_networks import (
    Critic,
    GANState,
    Generator,
    Heads,
    Running,
    adam,
    critic_losses,
    generator_of,
    packed,
    stepped,
    stepped_average,
    to_normal,
    uniform_draws,
)
from siloweave.models.nets import Array, fresh, load_arrays, save_arrays
from siloweave.models.settings import CTABSettings, GANSettings
from siloweave.models.train import train
from siloweave.progress import Progress, silent
from siloweave.tables.arrays import Ints, Matrix
from siloweave.tables.features import Block, Layout

Settings = GANSettings | CTABSettings
_KINDS: dict[str, type[Settings]] = {
    "GANSettings": GANSettings,
    "CTABSettings": CTABSettings,
}
# A trained generator gets the batch statistics of so many rows.
_SETTLING = 10_000
# Rows drawn at once, one compiled shape.
_CHUNK = 2_000


# A trained GAN


@dataclass(frozen=True)
class GAN:
    """A trained GAN."""

    settings: Settings  # how it was trained
    heads: Heads  # outputs of the generator
    conditions: Conditions  # what it may be asked for, and how many real rows were so
    generator: Generator  # the network
    running: Running  # its batch statistics
    # Of its maker, as JSON holds it.
    note: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        settings: Settings,
        heads: Heads,
        conditions: Conditions,
        generator: Generator,
        *,
        key: Array,
        by: Frequency = "log",
        note: Mapping[str, Any] | None = None,
    ) -> GAN:
        """Compute a generator's batch statistics from 10,000 rows of its own; no real row is read.

        It works for a generator whose weights are a mean of several. `by` is how conditions were
        drawn in training.
        """
        frequencies = drawing(conditions, by)
        running = _settled(settings, heads, generator, frequencies, key)
        return cls(settings, heads, conditions, generator, running, note or {})

    def sample(self, n: int, *, key: Array, by: Frequency = "real") -> Matrix:
        """Draw feature vectors, (n, width), choices as one-hot; raises InputError where n < 0.

        By default conditions are drawn by ``"real"`` frequencies, since then all of them mix as in
        the real rows. ``"log"`` is how the reference samples: in proportion to ln(count + 1), which
        makes rare categories several times too frequent.
        """
        whole("n", n)
        return self._rows(np.full(n, -1, dtype=np.int64), by, key)

    def attempt(self, given: Matrix, *, key: Array) -> Matrix:
        """Draw one row for each row of `given`, under its rarest condition; rows may miss it.

        `given` is (n, width), NaN wherever a column is to be drawn; a choice is given as its whole
        one-hot block. Returns feature vectors alike.

        Raises:
            InputError: `given` has another width, names a number, a choice in part, or a category
                that no real row had.
        """
        return self._rows(self._places(given), "real", key)

    def _rows(self, conditions: Ints, by: Frequency, key: Array) -> Matrix:
        """Draw a row under each condition, a place in the conditional vector; -1 leaves it open."""
        X = np.zeros((len(conditions), self.heads.width), dtype=np.float32)
        frequencies = drawing(self.conditions, by)
        for i, start in enumerate(range(0, len(conditions), _CHUNK)):
            condition_key, row_key = jax.random.split(jax.random.fold_in(key, i))
            # Whole chunks, so that one program draws all of them; what is too much is cut off.
            chunk = np.resize(conditions[start : start + _CHUNK], _CHUNK)
            uniform = jax.random.uniform(condition_key, (_CHUNK,))
            drawn_places = np.asarray(draw_places(frequencies, uniform))
            places = np.where(chunk >= 0, chunk, drawn_places).astype(np.int32)
            rows = _rows_at(
                self.settings,
                self.heads,
                self.generator,
                self.running,
                jnp.asarray(places),
                row_key,
            )
            part = X[start : start + _CHUNK]
            part[:] = self.heads.vectors(np.asarray(rows)[: len(part)])
        return X

    def _places(self, given: Matrix) -> Ints:
        """Return the place of each row's rarest category that is a condition, -1 for none."""
        if np.ndim(given) != 2 or np.shape(given)[1] != self.heads.width:
            raise InputError(
                f"given has shape {np.shape(given)}; it needs (rows, {self.heads.width}), with NaN "
                "where a column is to be drawn"
            )
        numbers, _ = Layout(self.heads.blocks).known(given)
        if numbers.any():
            raise InputError(
                "given names numbers; a GAN can be asked for categories only"
            )

        rarest = np.full(len(given), -1)
        smallest_counts = np.full(len(given), np.inf)
        # One place more, for columns that are to be drawn: it is never the rarest.
        counts = np.array([*self.conditions.counts, np.inf])
        blocks = self.heads.conditional.categoricals
        for first, block in zip(self.conditions.starts, blocks, strict=True):
            part = given[:, block.start : block.stop]
            is_free = np.isnan(part[:, 0])
            codes = first + part.argmax(axis=1)
            places = np.where(is_free, self.conditions.width, codes)
            place_counts = counts[places]
            if (place_counts == 0).any():
                raise InputError("given asks for a category that no real row had")
            is_rarer = place_counts < smallest_counts
            rarest[is_rarer] = places[is_rarer]
            smallest_counts[is_rarer] = place_counts[is_rarer]
        return rarest

    def save(self, path: Path | str) -> None:
        """Write the generator as one safetensors file."""
        facts = {
            "format": "siloweave-gan",
            "kind": type(self.settings).__name__,
            "settings": asdict(self.settings),
            "blocks": [asdict(block) for block in self.heads.blocks],
            "columns": self.heads.columns,
            "counts": self.conditions.counts,
            "note": dict(self.note),
        }
        save_arrays(Path(path), (self.generator, self.running), facts)

    @classmethod
    def load(cls, path: Path | str) -> GAN:
        """Read a GAN from its file; DataError for a missing file, or another kind of file."""

        def build(facts: dict[str, Any]) -> tuple[Any, ...]:
            if facts.get("format") != "siloweave-gan":
                raise DataError(
                    f"{path} is not a stored GAN; it holds {facts.get('format')!r}"
                )
            settings: Settings = _KINDS[facts["kind"]](**facts["settings"])
            blocks = tuple(Block(**block) for block in facts["blocks"])
            heads = Heads(blocks, tuple(facts["columns"]))
            sizes = tuple(block.size for block in heads.conditional.categoricals)
            conditions = Conditions(sizes, tuple(facts["counts"]))
            generator = generator_of(settings, heads, jax.random.key(0))
            return (
                settings,
                heads,
                conditions,
                generator,
                generator.start(),
                facts["note"],
            )

        return cls(*load_arrays(Path(path), build))


def draw(
    settings: Settings,
    heads: Heads,
    generator: Generator,
    condition: Array,
    key: Array,
    running: Running | None = None,
) -> tuple[Array, Array, Running]:
    """Generate rows under conditions, (n, condition_width).

    Returns rows and the logits behind them, both (n, width), and the batch statistics, which are
    those of these rows unless `running` is given. The key draws inputs and choices.
    """
    shape = (condition.shape[0], settings.noise + heads.width)
    uniform = uniform_draws(key, shape)
    # Without the barrier the draw is fused into both that use it, and drawn again for each.
    uniform = jax.lax.optimization_barrier(uniform)  # type: ignore[no-untyped-call]
    noise = to_normal(uniform[:, : settings.noise])
    inputs = jnp.concatenate([noise, condition], axis=1)
    raw, statistics = generator(inputs, running)
    rows = heads.outputs(raw, settings.temperature, uniform[:, settings.noise :])
    return rows, raw, statistics


@eqx.filter_jit
def _rows_at(
    settings: Settings,
    heads: Heads,
    generator: Generator,
    running: Running,
    places: Array,
    key: Array,
) -> Array:
    condition = jax.nn.one_hot(places, heads.condition_width)
    rows, _, _ = draw(settings, heads, generator, condition, key, running)
    return rows


@eqx.filter_jit
def _settled(
    settings: Settings,
    heads: Heads,
    generator: Generator,
    frequencies: Drawing,
    key: Array,
) -> Running:
    """Compute batch statistics from a generator's own rows; conditions are as in training."""
    condition_key, row_key = jax.random.split(key)
    uniform = jax.random.uniform(condition_key, (_SETTLING,))
    places = draw_places(frequencies, uniform)
    condition = jax.nn.one_hot(places, heads.condition_width)
    _, _, statistics = draw(settings, heads, generator, condition, row_key)
    return statistics


# Training


class Batch(NamedTuple):
    """The arrays that one update reads, each of `batch` rows."""

    real: Array  # real rows in inner order
    met: Array  # the conditions that they were drawn by
    # The conditions of the rows generated for the critic: the same, moved by half a batch into
    # other packs. As draws are independent, that equals a random order.
    asked: Array
    again: Array  # the conditions of the rows generated for the generator's own step


@dataclass(frozen=True)
class Matching:
    """A sampler of conditions, and of real rows that meet them in another order."""

    # Of conditional columns; without any, rows are drawn uniformly.
    sizes: tuple[int, ...]
    batch: int  # rows

    def __call__(self, rows: tuple[Array, Drawing], key: Array) -> Batch:
        """Draw a batch from `rows`: vectors in inner order, and the frequencies to draw them by."""
        X, frequencies = rows
        width = sum(self.sizes)
        uniform = jax.random.uniform(key, (3, self.batch))
        if width == 0:
            index = (uniform[0] * X.shape[0]).astype(jnp.int32)
            # Rounding of a draw just below 1 must not lead past the last row.
            real = X[jnp.minimum(index, X.shape[0] - 1)]
            no_condition = jnp.zeros((self.batch, 0))
            return Batch(real, no_condition, no_condition, no_condition)

        columns = np.repeat(np.arange(len(self.sizes)), self.sizes)
        fake_places = draw_places(frequencies, uniform[0])
        real_places = jnp.roll(fake_places, self.batch // 2 + 1)
        real = X[draw_rows(columns, frequencies, real_places, uniform[1])]
        generator_places = draw_places(frequencies, uniform[2])
        return Batch(
            real,
            met=jax.nn.one_hot(real_places, width),
            asked=jax.nn.one_hot(fake_places, width),
            again=jax.nn.one_hot(generator_places, width),
        )


@dataclass(frozen=True)
class GANStep:
    """One critic step, then one generator step."""

    settings: GANSettings  # of the GAN
    heads: Heads  # outputs of the generator
    # Of features in the distance to the nearest row, inner order.
    weights: tuple[float, ...] = ()

    @eqx.filter_jit
    def start(self, key: Array) -> GANState:
        """Return the state before the first step."""
        generator, critic = fresh(_networks, self, key=key)
        generator_moments = self.optimiser(self.settings.clip).init(generator)
        critic_moments = self.optimiser().init(critic)
        return GANState(generator, critic, generator_moments, critic_moments, generator)

    def optimiser(self, clip: float | None = None) -> optax.GradientTransformation:
        """Return Adam; only for the generator is there a bound on the gradient."""
        s = self.settings
        return adam(s.rate, s.betas, decay=s.decay, clip=clip)

    def __call__(
        self, state: GANState, batch: Batch, key: Array
    ) -> tuple[GANState, Array]:
        """Update both networks; return the new state, and the critic's loss."""
        fake_key, critic_key, drawing_key, dropping_key = jax.random.split(key, 4)
        s = self.settings

        # The critic, on real rows and on generated ones.
        fake, _, _ = draw(s, self.heads, state.generator, batch.asked, fake_key)
        critic_gradient = eqx.filter_value_and_grad(self.critic_loss)
        loss, slope = critic_gradient(state.critic, batch, fake, critic_key)
        critic, critic_moments = stepped(
            self.optimiser(), state.critic, slope, state.critic_moments
        )

        # The generator, by the critic after its step.
        generator_gradient = eqx.filter_grad(self.generator_loss)
        slope = generator_gradient(
            state.generator, critic, batch, drawing_key, dropping_key
        )
        generator, moments, average = stepped_average(
            self.optimiser(s.clip),
            state.generator,
            slope,
            state.generator_moments,
            state.average,
            s.average,
        )
        return GANState(generator, critic, moments, critic_moments, average), loss

    def critic_loss(
        self, critic: Critic, batch: Batch, fake: Array, key: Array
    ) -> Array:
        """Return the mean Wasserstein loss of the packs, with gradient penalty."""
        real_packs = _packed_with(batch.real, batch.met, self.settings.pac)
        fake_packs = _packed_with(fake, batch.asked, self.settings.pac)
        penalty = self.settings.penalty
        losses = critic_losses(critic, real_packs, fake_packs, weight=penalty, key=key)
        return losses.mean()

    def generator_loss(
        self,
        generator: Generator,
        critic: Critic,
        batch: Batch,
        drawing: Array,
        dropping: Array,
    ) -> Array:
        """Return minus the critic's score, plus cross-entropy with the conditions.

        Where the settings ask for it, what identifiability rewards is subtracted. The keys draw
        rows, and dropout.
        """
        fake, raw, _ = draw(self.settings, self.heads, generator, batch.again, drawing)
        packs = _packed_with(fake, batch.again, self.settings.pac)
        masks = critic.masks(packs.shape[0], dropping)
        loss = -critic(packs, masks=masks).mean()
        if self.heads.condition_width:
            loss += self.heads.cross_entropy(raw, batch.again).mean()
        reading = self.settings.identifiability
        if reading is not None:
            distances = distance(batch.real, fake, reading, self.weights)
            loss -= self.settings.identifiability_weight * distances.mean()
        return loss


def _packed_with(rows: Array, condition: Array, pac: int) -> Array:
    """Return packs of rows with their conditions behind them, as a critic reads them."""
    return packed(jnp.concatenate([rows, condition], axis=1), pac)


def _networks(step: GANStep, *, key: Array) -> tuple[Generator, Critic]:
    generator_key, critic_key = jax.random.split(key)
    s = step.settings
    width = step.heads.width + step.heads.condition_width
    critic = Critic(width, s.critic, pac=s.pac, dropout=s.dropout, key=critic_key)
    return generator_of(s, step.heads, generator_key), critic


def distance(
    real: Array,
    fake: Array,
    reading: Literal["nearest", "pairs"],
    weights: Sequence[float] = (),
) -> Array:
    """Return how far each generated row is from as many real rows, (n,); rows are (n, width).

    With ``"pairs"`` from the real row in the same place, with ``"nearest"`` from the nearest real
    row, each feature times its weight.
    """
    # The small number keeps the slope of the root finite where both rows are equal.
    if reading == "pairs":
        return jnp.sqrt(jnp.sum((real - fake) ** 2, axis=1) + 1e-12)
    scale = jnp.asarray(weights, jnp.float32)
    x = jax.lax.stop_gradient(real) * scale
    y = fake * scale
    y_squares = jnp.sum(y**2, 1)[:, None]
    products = 2.0 * y @ x.T
    squares = y_squares - products + jnp.sum(x**2, 1)[None, :]
    nearest = jnp.argmin(jax.lax.stop_gradient(squares), axis=1)
    # Once more from the rows themselves: the difference of large squares is inexact.
    return jnp.sqrt(jnp.sum((y - x[nearest]) ** 2, axis=1) + 1e-12)


def entropy_weights(X: Matrix, heads: Heads) -> tuple[float, ...]:
    """Return the inverse entropy of each feature's block, scaled to mean 1, in inner order.

    Numbers are cut into 20 bins of equal width. A block that never varies has weight 0: no
    distance in it separates rows.
    """
    weights = np.zeros(heads.width)
    for block in heads.blocks:
        part = X[:, block.start : block.stop]
        if block.kind == "number":
            counts, _ = np.histogram(part, bins=20)
        else:
            counts = part.sum(axis=0)
        p = counts[counts > 0] / counts.sum()
        entropy = -float((p * np.log(p)).sum())
        if entropy > 1e-9:
            weights[block.start : block.stop] = 1.0 / entropy
    mean = weights.mean()
    if not mean > 0:
        mean = 1.0  # no block varies
    scaled = weights[heads.order] / mean
    return tuple(scaled.tolist())


def fit_gan(
    X: Matrix,
    blocks: Sequence[Block],
    settings: GANSettings | None = None,
    *,
    key: Array,
    progress: Progress = silent,
    store: Path | None = None,
    note: Mapping[str, Any] | None = None,
) -> GAN:
    """Train a GAN on feature vectors; its conditions are `conditional_columns`.

    Args:
        X: (rows, width), finite, numbers within -1 and 1 (``numeric="modes"`` gives such).
        blocks: What its columns are.
        settings: CTGAN's if None.
        key: A jax key, for everything random.
        progress: Called with a text and the share of the work that is done.
        store: Folder for checkpoints; a call that finds one continues from it.
        note: What shall be stored in the GAN's file, as JSON holds it.

    Raises:
        InputError: `X` does not fit, or a setting cannot be used.
        TrainingError: Training diverged.
    """
    settings = settings or GANSettings()
    layout = Layout(tuple(blocks))
    columns = conditional_columns(layout) if settings.conditional else ()
    rows = Seen.of(X, layout, columns)
    weights: tuple[float, ...] = ()
    if settings.identifiability == "nearest":
        weights = entropy_weights(X, rows.heads)
    step = GANStep(settings, rows.heads, weights)
    return rows.fit(step, key, progress, store, note)


@dataclass(frozen=True)
class Seen:
    """The rows that training reads, in inner order, and which of them meet each condition."""

    heads: Heads  # outputs of the generator
    rows: Matrix  # (rows, width), in inner order
    frequencies: Drawing  # what rows and conditions are drawn by
    conditions: Conditions  # what rows are sorted by

    @classmethod
    def of(cls, X: Matrix, layout: Layout, columns: tuple[str, ...]) -> Seen:
        """Check rows, and prepare them with the choices of some columns as conditions."""
        X = checked_numbers(layout.check(X), layout)
        heads = Heads(layout.blocks, columns)
        _, choices = heads.conditional.split(X)
        codes = choices.astype(np.int64)
        sizes = [block.size for block in heads.conditional.categoricals]
        conditions = Conditions.of(codes, sizes)
        inner_rows = np.ascontiguousarray(X[:, heads.order])
        return cls(heads, inner_rows, drawing(conditions, codes=codes), conditions)

    def fit(
        self,
        step: Any,
        key: Array,
        progress: Progress,
        store: Path | None,
        note: Mapping[str, Any] | None = None,
    ) -> GAN:
        """Train by steps of a GAN's `settings`; a batch may have more rows than there are."""
        start_key, train_key, settling_key = jax.random.split(key, 3)
        settings = step.settings
        state = train(
            step.start(start_key),
            step,
            (self.rows, self.frequencies),
            steps=settings.steps(len(self.rows)),
            batch=settings.batch,
            key=train_key,
            sampler=Matching(self.conditions.sizes, settings.batch),
            progress=progress,
            store=store,
        )
        generator = state.average
        return GAN.of(
            settings,
            self.heads,
            self.conditions,
            generator,
            key=settling_key,
            note=note,
        )


def conditional_columns(layout: Layout) -> tuple[str, ...]:
    """Return the columns whose choices are conditions: all that have no number."""
    number_columns = {block.column for block in layout.blocks if block.kind == "number"}
    choice_columns = dict.fromkeys(block.column for block in layout.categoricals)
    return tuple(column for column in choice_columns if column not in number_columns)


def checked_numbers(X: Matrix, layout: Layout) -> Matrix:
    """Refuse numbers beyond 1, which tanh cannot make; the InputError names the column."""
    numbers = [block for block in layout.blocks if block.kind == "number"]
    for block in numbers:
        largest = float(np.abs(X[:, block.start]).max(initial=0.0))
        if largest > 1.0:
            raise InputError(
                f"column {block.column!r} has a number of size {largest:.4g}, and this GAN's "
                'numbers lie between -1 and 1: fit the features with numeric="modes"'
            )
    return X


# One generator and several critics


class AskedRows(NamedTuple):
    """The conditions of generated rows, as places in the conditional vector, (batch,) int32."""

    places: Array
    again: Array


class MadeRows(NamedTuple):
    """Rows for the critics to learn from, and rows for them to judge, (batch, width)."""

    fake: Array
    again: Array


class Critics(NamedTuple):
    """One critic or generator, and the state of its optimiser."""

    net: Any
    moments: Any


def _vectors(step: GANStep, places: Array) -> Array:
    return jax.nn.one_hot(places, step.heads.condition_width)


@eqx.filter_jit
def asked_rows(
    step: GANStep,
    generator: Any,
    frequencies: Drawing,
    key: Array,
) -> tuple[AskedRows, MadeRows]:
    """Draw conditions by their frequencies in all rows, and rows of the one generator under them.

    The key is that of this update; `followed` takes the same.
    """
    places_key, again_places_key, fake_key, again_key = jax.random.split(key, 4)
    places = _condition_places(step, frequencies, places_key)
    again_places = _condition_places(step, frequencies, again_places_key)
    condition = _vectors(step, places)
    fake, _, _ = draw(step.settings, step.heads, generator, condition, fake_key)
    condition = _vectors(step, again_places)
    again, _, _ = draw(step.settings, step.heads, generator, condition, again_key)
    return AskedRows(places, again_places), MadeRows(fake, again)


def _condition_places(step: GANStep, frequencies: Drawing, key: Array) -> Array:
    """Draw the conditions of a batch; all places are 0 if no column is a condition."""
    shape = (step.settings.batch,)
    if not step.heads.condition_width:
        return jnp.zeros(shape, jnp.int32)
    return draw_places(frequencies, jax.random.uniform(key, shape))


@eqx.filter_jit
def judged(
    step: GANStep,
    sampler: Matching,
    state: Critics,
    rows: Any,
    asked: AskedRows,
    made: MadeRows,
    key: Array,
) -> tuple[Critics, Array]:
    """Take one step of a critic on its owner's rows; return it with its feedback.

    The sampler draws the owner's `rows` with conditions of their own; the key is of this owner and
    update. Returns the critic, and the gradient of minus its score with respect to ``made.again``,
    (batch, width).
    """
    batch_key, critic_key, dropping_key = jax.random.split(key, 3)

    # Algorithm 1, the worker's steps: learn from own rows and from the generated ones.
    real_batch: Batch = sampler(rows, batch_key)
    batch = Batch(
        real_batch.real,
        real_batch.met,
        _vectors(step, asked.places),
        _vectors(step, asked.again),
    )
    critic_gradient = eqx.filter_grad(step.critic_loss)
    slope = critic_gradient(state.net, batch, made.fake, critic_key)
    net, moments = stepped(step.optimiser(), state.net, slope, state.moments)

    # Then the feedback of the critic after that step, on the other generated rows.
    def loss(again: Array) -> Array:
        packs = _packed_with(again, batch.again, step.settings.pac)
        masks = net.masks(packs.shape[0], dropping_key)
        value: Array = -net(packs, masks=masks).mean()
        return value

    return Critics(net, moments), jax.grad(loss)(made.again)


@eqx.filter_jit
def followed(
    step: GANStep,
    state: Critics,
    asked: AskedRows,
    feedback: Array,
    key: Array,
) -> tuple[Critics, Array]:
    """Take one step of the generator along the mean feedback of `judged`, (batch, width).

    The key is the one of `asked_rows`. Returns the generator, and whether it is finite.
    """
    condition = _vectors(step, asked.again)
    # The key of ``made.again``, so that the rows are the same.
    row_key = jax.random.split(key, 4)[3]

    # The slope of this sum is the feedback times the rows' own slope: the chain rule.
    def loss(generator: Any) -> Array:
        fake, raw, _ = draw(step.settings, step.heads, generator, condition, row_key)
        value = (fake * feedback).sum()
        if step.heads.condition_width:
            value += step.heads.cross_entropy(raw, condition).mean()
        return value

    slope = eqx.filter_grad(loss)(state.net)
    optimiser = step.optimiser(step.settings.clip)
    net, moments = stepped(optimiser, state.net, slope, state.moments)
    weights = jax.tree.leaves(eqx.filter(net, eqx.is_inexact_array))
    is_finite = [jnp.isfinite(x).all() for x in weights]
    return Critics(net, moments), jnp.stack(is_finite).all()
