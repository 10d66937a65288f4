"""Training by sampling: a condition on one choice, and real rows that meet it.

A conditional generator is told one category of one column. While it learns, the column is drawn
uniformly and the category in proportion to ln(count + 1), so that rare ones are met, and the
critic is shown real rows of that category (Xu, Skoularidou, Cuesta-Infante & Veeramachaneni,
Modeling Tabular Data using Conditional GAN, NeurIPS 2019). Rows are found through one table of row
numbers per column, sorted by category: two gathers a draw, so that whole epochs stay compiled.

Rows from a trained GAN: plain, or told a condition each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from siloweave.errors import DataError, InputError
from siloweave.models.gan_networks import (
    TINY,
    ConvGenerator,
    Heads,
    Running,
    generator_of,
    to_normal,
)
from siloweave.models.layout import Layout
from siloweave.models.nets import load_arrays, save_arrays
from siloweave.models.settings import CTABSettings, GANSettings
from siloweave.tables.features import Block

if TYPE_CHECKING:
    from siloweave.models.ctab import ConvGenerator
    from siloweave.models.gan_networks import PlainGenerator, ResidualGenerator
    from siloweave.models.settings import CTABSettings, GANSettings


Array = jax.Array
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Conditions:
    """The conditions that a table offers: all categories of some columns, side by side.

    Attributes:
        sizes: Categories of each column.
        counts: Real rows of each category, columns one after the other.

    Example:
        >>> conditions = Conditions((2, 2), (1, 3, 0, 4))
        >>> conditions.law("real").round(3).tolist()
        [0.125, 0.375, 0.0, 0.5]
        >>> conditions.law("log").round(3).tolist()
        [0.167, 0.333, 0.0, 0.5]
    """

    sizes: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of conditions: the length of a conditional vector."""
        return sum(self.sizes)

    @cached_property
    def starts(self) -> Ints:
        """Place of each column's first category."""
        return np.cumsum([0, *self.sizes[:-1]])[: len(self.sizes)]

    @cached_property
    def columns(self) -> Ints:
        """The column of each condition."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def law(self, law: Literal["log", "real"]) -> NDArray[np.float64]:
        """Probability of each condition: columns equally likely, and within one by counts.

        Args:
            law: ``"log"``: in proportion to ln(count + 1), how a generator is trained and how
                the reference samples. ``"real"``: in proportion to the counts, so that the mix
                of all conditions has the real frequencies.

        Raises:
            InputError: The law is unknown.
        """
        if law not in ("log", "real"):
            raise InputError(f"law={law!r} is unknown; use 'log' or 'real'")
        counts = np.array(self.counts, dtype=np.float64)
        weights = np.log1p(counts) if law == "log" else counts
        sums = np.bincount(self.columns, weights, minlength=len(self.sizes))
        return np.asarray(weights / sums[self.columns] / max(len(self.sizes), 1))

    def shares(self, column: int) -> tuple[float, ...]:
        """Share of the real rows that each category of a column has.

        Example:
            >>> Conditions((2, 2), (1, 3, 0, 4)).shares(0)
            (0.25, 0.75)
        """
        counts = np.array(self.counts, dtype=np.float64)[self.columns == column]
        return tuple((counts / counts.sum()).tolist())


@dataclass(frozen=True)
class RowTable:
    """Where the real rows of each condition are.

    Attributes:
        order: (rows, columns): row numbers, sorted by the category in each column.
        conditions: What they are sorted by.
    """

    order: NDArray[np.int32]
    conditions: Conditions


def row_table(codes: Ints, sizes: Sequence[int]) -> RowTable:
    """Sort rows by the category of each column.

    Args:
        codes: (rows, columns), category of each row.
        sizes: Categories of each column.

    Example:
        >>> table = row_table(np.array([[1], [0], [1]]), (2,))
        >>> table.order[:, 0].tolist(), table.conditions.counts
        ([1, 0, 2], (1, 2))
    """
    counts = [np.bincount(codes[:, j], minlength=size) for j, size in enumerate(sizes)]
    flat = np.concatenate(counts) if counts else np.zeros(0, dtype=np.int64)
    order = np.argsort(codes, axis=0, kind="stable").astype(np.int32)
    return RowTable(order, Conditions(tuple(sizes), tuple(flat.tolist())))


class Drawing(NamedTuple):
    """What rows and their conditions are drawn by; arrays, so tables of a shape share a program.

    Attributes:
        order: `RowTable.order`.
        ends: (conditions,), where each ends in [0, 1] by the law of training.
        last: The last condition that has any probability.
        counts: (conditions,), rows of each.
        before: (conditions,), rows of the column's conditions before it.
    """

    order: Array
    ends: Array
    last: Array
    counts: Array
    before: Array


def drawing(table: RowTable, law: Literal["log", "real"] = "log") -> Drawing:
    """What a row table is drawn by: columns equally often, conditions by a law of their counts."""
    conditions = table.conditions
    counts = np.array(conditions.counts, dtype=np.int64)
    if not counts.size:
        nothing = np.zeros(0, np.int32)
        ends, last, before = np.zeros(0, np.float32), 0, nothing
    else:
        ends, last = _ends(conditions.law(law))
        before = np.concatenate([[0], np.cumsum(counts)])[:-1]
        before = before - before[conditions.starts][conditions.columns]
    whole = (np.int32(last), counts.astype(np.int32), before.astype(np.int32))
    return Drawing(*(jnp.asarray(x) for x in (table.order, ends, *whole)))


def _ends(law: NDArray[np.float64]) -> tuple[NDArray[np.float32], int]:
    """Where each place ends in [0, 1], and the last that has any probability."""
    ends = np.cumsum(law)
    last = int(np.flatnonzero(law)[-1])
    ends[last:] = 1.0
    return ends.astype(np.float32), last


def draw_conditions(law: NDArray[np.float64], uniform: Array) -> Array:
    """Draw places in the conditional vector by a law over them, from uniform draws.

    Example:
        >>> draw_conditions(np.array([0.0, 0.5, 0.0, 0.5]), jnp.array([0.0, 0.49, 0.5])).tolist()
        [1, 1, 3]
    """
    ends, last = _ends(law)
    return _placed(jnp.asarray(ends), jnp.int32(last), uniform)


def draw_by(drawing: Drawing, uniform: Array) -> Array:
    """Draw places by the law of training, from uniform draws."""
    return _placed(drawing.ends, drawing.last, uniform)


def _placed(ends: Array, last: Array, uniform: Array) -> Array:
    return jnp.minimum(jnp.searchsorted(ends, uniform, "right"), last).astype(jnp.int32)


def draw_rows(columns: Ints, drawing: Drawing, places: Array, uniform: Array) -> Array:
    """Draw for each condition one real row that meets it, uniformly.

    Args:
        columns: `Conditions.columns`.
        drawing: What is drawn by.
        places: Conditions that one real row or more meets.
        uniform: Which of them: a draw from [0, 1) for each place.

    Returns:
        Row numbers, as many as places.
    """
    many = drawing.counts[places]
    pick = jnp.minimum((uniform * many).astype(jnp.int32), many - 1)
    return drawing.order[drawing.before[places] + pick, jnp.asarray(columns, jnp.int32)[places]]


Matrix = NDArray[np.float32]
_Rows = tuple[Matrix, NDArray[np.int32]]
_SETTLING = 10_000
_CHUNK = 2_000  # rows drawn at once, one compiled shape


@dataclass(frozen=True)
class GAN:
    """A trained GAN.

    Attributes:
        settings: How it was trained.
        heads: Outputs of the generator.
        conditions: What it may be asked for, and how many real rows were so.
        generator: The network.
        running: Its batch statistics.
        note: What its maker wants kept in the same file, as JSON holds it.
    """

    settings: GANSettings | CTABSettings
    heads: Heads
    conditions: Conditions
    generator: ResidualGenerator | PlainGenerator | ConvGenerator
    running: Running
    note: Mapping[str, Any] = field(default_factory=dict)

    def sample(self, n: int, *, key: Array, law: Literal["real", "log"] = "real") -> Matrix:
        """Draw rows.

        Args:
            n: Rows.
            key: A jax key.
            law: How conditions are drawn. ``"real"``, by the real frequencies, is the default, for
                then the mix of all conditions is the real one. ``"log"`` is how the reference
                samples: in proportion to ln(count + 1), which makes rare categories several times
                too frequent.

        Returns:
            Feature vectors, (n, width); choices as one-hot.

        Raises:
            InputError: `n` is negative.
        """
        if n < 0:
            raise InputError(f"n={n} rows cannot be drawn; give 0 or more")
        return self._rows(np.full(n, -1, dtype=np.int64), law, key)

    def attempt(self, given: Matrix, *, key: Array) -> Matrix:
        """Draw one row for each row of `given`, told its rarest condition; rows may miss it.

        Args:
            given: (n, width), NaN wherever a column is to be drawn; a choice is given as its
                whole one-hot block.
            key: A jax key.

        Returns:
            Feature vectors, (n, width); choices as one-hot.

        Raises:
            InputError: `given` has another width, names a number, a choice in part, or a category
                that no real row had.
        """
        return self._rows(self._asked(self._wanted(given)), "real", key)

    def _rows(self, asked: NDArray[np.int64], law: Literal["real", "log"], key: Array) -> Matrix:
        """A row for each condition that is asked for, -1 where a law draws it."""
        chunks = []
        for i, start in enumerate(range(0, len(asked), _CHUNK)):
            a, b = jax.random.split(jax.random.fold_in(key, i))
            told = np.resize(asked[start : start + _CHUNK], _CHUNK)
            places = np.where(told >= 0, told, self._free(law, a))
            chunks.append(self._draw(places.astype(np.int32), b))
        return self._joined(chunks, len(asked))

    def _free(self, law: Literal["real", "log"], key: Array) -> NDArray[np.int32]:
        """Conditions that a law draws, as many as a chunk has rows."""
        if self.conditions.width == 0:
            return np.zeros(_CHUNK, dtype=np.int32)
        return np.asarray(
            draw_conditions(self.conditions.law(law), jax.random.uniform(key, (_CHUNK,)))
        )

    def _draw(self, places: NDArray[np.int32], key: Array) -> _Rows:
        rows = np.asarray(
            _drawn(
                self.settings, self.heads, self.generator, self.running, jnp.asarray(places), key
            )
        )
        return rows[:, : len(self.heads.free.numbers)], self.heads.codes(rows)

    def _joined(self, chunks: Sequence[_Rows], n: int) -> Matrix:
        if not chunks:
            return np.zeros((0, self.heads.width), dtype=np.float32)
        numbers, codes = (np.concatenate(parts)[:n] for parts in zip(*chunks, strict=True))
        return self.heads.join(numbers, codes)

    def _wanted(self, given: Matrix) -> NDArray[np.int32]:
        """Code of each choice in inner order, -1 where it is free."""
        if np.ndim(given) != 2 or np.shape(given)[1] != self.heads.width:
            raise InputError(
                f"given has shape {np.shape(given)}; it needs (rows, {self.heads.width}), with NaN "
                "where a column is to be drawn"
            )
        numbers, _ = Layout(self.heads.blocks).known(given)
        if numbers.any():
            raise InputError("given names numbers; a GAN can be asked for categories only")
        wanted = np.full((len(given), len(self.heads.parts)), -1, dtype=np.int32)
        for j, block in enumerate(self.heads.parts):
            part = given[:, block.start : block.start + block.size]
            rows = ~np.isnan(part[:, 0])
            wanted[rows, j] = part[rows].argmax(axis=1)
        return wanted

    def _asked(self, wanted: NDArray[np.int32]) -> NDArray[np.int64]:
        """Place of the rarest wanted category that is a condition, -1 for none."""
        starts, counts = self.conditions.starts, np.array([*self.conditions.counts, np.inf])
        codes = wanted[:, len(self.heads.free.choices) :]
        places = np.where(codes >= 0, starts[None, :] + codes, self.conditions.width)
        if places.shape[1] == 0:
            return np.full(len(wanted), -1, dtype=np.int64)
        if (counts[places] == 0).any():
            raise InputError("given asks for a category that no real row had")
        best = places[np.arange(len(places)), counts[places].argmin(axis=1)]
        return np.where(best == self.conditions.width, -1, best)

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
        """Read what `save` wrote.

        Raises:
            DataError: When the file is missing or no such file.
        """
        kinds = {"GANSettings": GANSettings, "CTABSettings": CTABSettings}
        found: list[tuple[GANSettings | CTABSettings, Heads, Conditions, dict[str, Any]]] = []

        def build(
            facts: dict[str, Any],
        ) -> tuple[ResidualGenerator | PlainGenerator | ConvGenerator, Running]:
            if facts.get("format") != "siloweave-gan":
                raise DataError(f"{path} is not a stored GAN; it holds {facts.get('format')!r}")
            settings: GANSettings | CTABSettings = kinds[facts["kind"]](**facts["settings"])
            heads = Heads(
                tuple(Block(**block) for block in facts["blocks"]), tuple(facts["columns"])
            )
            sizes = tuple(block.size for block in heads.conditional.choices)
            counts = tuple(facts["counts"])
            found.append((settings, heads, Conditions(sizes, counts), facts["note"]))
            generator = generator_of(settings, heads, jax.random.key(0))
            return generator, generator.start()

        generator, running = load_arrays(Path(path), build)
        settings, heads, conditions, note = found[0]
        return cls(settings, heads, conditions, generator, running, note)


@eqx.filter_jit
def _drawn(
    settings: GANSettings | CTABSettings,
    heads: Heads,
    generator: ResidualGenerator | PlainGenerator | ConvGenerator,
    running: Running,
    places: Array,
    key: Array,
) -> Array:
    """Rows that are asked for, in inner order."""
    asked = jax.nn.one_hot(places, heads.condition_width)
    return draw(settings, heads, generator, asked, key, running)[0]


def draw(
    settings: GANSettings | CTABSettings,
    heads: Heads,
    generator: ResidualGenerator | PlainGenerator | ConvGenerator,
    asked: Array,
    key: Array,
    running: Running | None = None,
) -> tuple[Array, Array, Running]:
    """Generate rows that are asked for.

    Args:
        settings: Noise and temperature.
        heads: Outputs of the generator.
        generator: The network.
        asked: Conditions, (n, condition_width).
        key: Noise of the inputs and of the choices.
        running: Batch statistics; those of these rows if None.

    Returns:
        Rows, the logits behind them, and the statistics; the first two (n, width).
    """
    shape = (asked.shape[0], settings.noise + heads.width)
    uniform = jax.random.uniform(key, shape, minval=TINY, maxval=1.0 - TINY)
    # Without the barrier the draw is fused into both that use it, and drawn again for each.
    uniform = jax.lax.optimization_barrier(uniform)  # type: ignore[no-untyped-call]
    noise = to_normal(uniform[:, : settings.noise])
    raw, seen = generator(jnp.concatenate([noise, asked], axis=1), running)
    return heads.outputs(raw, settings.temperature, uniform[:, settings.noise :]), raw, seen


@eqx.filter_jit
def settle(
    settings: GANSettings | CTABSettings,
    heads: Heads,
    generator: ResidualGenerator | PlainGenerator | ConvGenerator,
    conditions: Conditions,
    key: Array,
) -> Running:
    """Batch statistics of a generator for rows drawn one by one, from 10,000 rows of its own.

    Conditions follow the law of training. No real row is read, and it works for a generator whose
    weights are a mean of several.
    """
    a, b = jax.random.split(key)
    asked = jnp.zeros((_SETTLING, 0))
    if conditions.width:
        places = draw_conditions(conditions.law("log"), jax.random.uniform(a, (_SETTLING,)))
        asked = jax.nn.one_hot(places, conditions.width)
    return draw(settings, heads, generator, asked, b)[2]
