"""What methods that train networks share: models behind one interface, data, checks, a forecast.

The networks are those of the papers that each method names, such as Xu et al. 2019, "Modeling
tabular data using conditional GAN". A forecast counts multiplications as usual, six per weight and
row that is trained on (Kaplan et al. 2020, arXiv 2001.08361, section 2.1); what a core does in a
second was fitted to runs of the results page, so expect a factor of three either way.

**Guarantee**: none of its own; what a run releases is in its ledger. A forecast reads no row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from siloweave.core.conditional import Generator
from siloweave.core.method import (
    Forecast,
    MethodSettings,
    QuestionCounts,
    Setup,
    target_of,
)
from siloweave.core.party import OwnerData
from siloweave.errors import InputError
from siloweave.federation.site import Site
from siloweave.tables.arrays import Matrix
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Block, Features, Layout
from siloweave.tables.keys import Key, generator
from siloweave.tables.schema import Schema, check_columns, check_learnable
from siloweave.tables.table import Table

if TYPE_CHECKING:
    from siloweave.models.train import Look

_T = TypeVar("_T")
_WALKS = 4


def owner_data(table: Table, setup: Setup, party: str) -> OwnerData:
    """Check that a party's rows fit the schema, and return them as its data."""
    check_columns(setup.schema, table)
    Encoder(setup.schema).encode(table)
    return OwnerData(table, setup.schema)


def check_trainable(synth: MethodSettings, schema: Schema) -> None:
    """Refuse a schema from which no network can learn, and a target without few classes.

    Raises:
        SchemaError: There is no column but ids, or bounds are not there or too large.
        InputError: There is no such target, or it has too many classes.
    """
    check_learnable(schema)
    Features.declared(schema)
    target = target_of(synth)
    if target is None:
        return
    if target not in schema.names:
        raise InputError(
            f"target={target!r} is no column of the schema; choose from {', '.join(schema.names)}"
        )
    blocks = Features.declared(schema.select([target])).blocks
    if [block.kind for block in blocks] != ["categorical"]:
        raise InputError(
            f"target={target!r} is no choice among few classes; give a column that is boolean, or "
            "has at most 256 categories or 20 whole numbers"
        )


def saved_bytes(model: Any) -> bytes:
    """Return a model as the bytes of its file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        model.save(file)
        return file.read_bytes()


def from_bytes(data: bytes, load: Callable[[Path], _T]) -> _T:
    """Read a model with `load` from the bytes of its file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        file.write_bytes(data)
        return load(file)


def remember_step(name: str, number: int, arrays: bytes, site: Site[Any]) -> None:
    """Store a party's state after so many steps, beside that of the step before.

    The earlier one may be asked for again. `name` is that of the two slots.
    """
    site.remember(f"{name}{number % 2}", number.to_bytes(8, "big") + arrays)


def recalled_step(name: str, number: int, site: Site[Any]) -> bytes | None:
    """Return the state that `remember_step` stored after so many steps; None if it is not there."""
    stored = site.recall(f"{name}{number % 2}") or b""
    return stored[8:] if stored[:8] == number.to_bytes(8, "big") else None


# Keys and columns


def jax_key(key: Key) -> Any:
    """Derive a key of JAX from one of ours."""
    import jax

    return jax.random.key(int(generator(key).integers(2**31)))


def split_key(key: Key) -> tuple[Any, Any]:
    """Return two keys of JAX: for a coder and for the distribution of its latents."""
    import jax

    first, second = jax.random.split(jax_key(key))
    return first, second


def single_choices(blocks: Iterable[Block]) -> dict[str, Block]:
    """Return the columns that are one choice and nothing else, with their blocks."""
    by_column: dict[str, list[Block]] = {}
    for block in blocks:
        by_column.setdefault(block.column, []).append(block)

    choices: dict[str, Block] = {}
    for column, column_blocks in by_column.items():
        first = column_blocks[0]
        if len(column_blocks) == 1 and first.kind == "categorical":
            choices[column] = first
    return choices


def way_of(fixed: Matrix) -> dict[str, Any]:
    """Return how to sample a diffusion in which values are fixed; NaN in `fixed` is free.

    Where something is fixed, each step is walked several times: nearer to the conditional
    distribution.
    """
    if np.isnan(fixed).all():
        return {"sampler": "solver"}
    return {"sampler": "ddim", "eta": 1.0, "resamples": _WALKS}


# Fitted networks as generators of feature vectors


@dataclass(frozen=True)
class NetworkModel(Generator):
    """A fitted network behind the interface of `Generator`: it draws with our keys.

    Attributes:
        net: The fitted model of `models`.
    """

    net: Any
    keeps: ClassVar[bool] = True

    @property
    def looks(self) -> tuple[Look, ...]:
        """Measurements on rows that training held back; empty for networks that hold none back."""
        looks: tuple[Look, ...] = getattr(self.net, "looks", ())
        return looks

    def save(self, path: Path) -> None:
        """Write the model as one safetensors file."""
        self.net.save(path)


@dataclass(frozen=True)
class GANModel(NetworkModel):
    """A `GAN` as a generator: a category that it is asked for becomes more frequent.

    Not all rows have it.
    """

    keeps: ClassVar[bool] = False

    @property
    def takes(self) -> frozenset[str]:
        """The columns of categories that the GAN's condition knows."""
        numbers = {
            block.column for block in self.net.heads.blocks if block.kind == "number"
        }
        return frozenset(self.net.heads.columns) - numbers

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return how frequent each option of a column was in the rows; None if that is unknown."""
        names = [block.column for block in self.net.heads.conditional.categoricals]
        if names.count(column) != 1 or column not in self.takes:
            return None  # no condition, or one in digits
        shares: tuple[float, ...] = self.net.conditions.shares(names.index(column))
        return shares

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows; some rows may lack a category that they were to have."""
        rows: Matrix
        if given is None:
            rows = self.net.sample(n, key=jax_key(key))
        else:
            rows = self.net.attempt(given, key=jax_key(key))
        return rows

    @classmethod
    def load(cls, path: Path) -> GANModel:
        """Read a model from its file."""
        from siloweave.models.gan import GAN

        return cls(GAN.load(path))


@dataclass(frozen=True)
class DiffusionModel(NetworkModel):
    """A `TabDDPM` as a generator, conditioned on its label.

    Given values of other columns replace drawn ones at every step.
    """

    @property
    def takes(self) -> frozenset[str]:
        """The columns that it can be conditioned on: all of them."""
        return frozenset(block.column for block in self.net.layout.blocks)

    def shares(self, column: str) -> tuple[float, ...] | None:
        """Return how frequent each option of the label was; None for other columns."""
        label = self.net.label
        if label is None or column != label.column:
            return None
        return tuple(self.net.label_shares)

    def sample(self, n: int, *, key: Key, given: Matrix | None = None) -> Matrix:
        """Draw rows that have the given values."""
        label = self.net.label
        way: dict[str, Any] = {}
        if given is not None:
            # The label is a condition of the network; only other columns are fixed.
            conditions = range(label.start, label.stop) if label else range(0)
            way = way_of(np.delete(given, conditions, axis=1))
        rows: Matrix = self.net.sample(n, key=jax_key(key), given=given, **way)
        return rows

    @classmethod
    def load(cls, path: Path) -> DiffusionModel:
        """Read a model from its file."""
        from siloweave.models.diffusion import TabDDPMModel

        return cls(TabDDPMModel.load(path))


@dataclass(frozen=True)
class LatentModel(DiffusionModel):
    """A `LatentDiffusion` as a generator, conditioned on its label and on sphere codes."""

    @property
    def takes(self) -> frozenset[str]:
        """The columns that it can be conditioned on: the label, or all with sphere codes."""
        if hasattr(self.net.settings.autoencoder, "per_bit"):
            return super().takes
        return (
            frozenset()
            if self.net.label is None
            else frozenset({self.net.label.column})
        )

    @classmethod
    def load(cls, path: Path) -> LatentModel:
        """Read a model from its file."""
        from siloweave.models.latent import LatentDiffusion

        return cls(LatentDiffusion.load(path))


# Forecasts

_MODES = 10  # a number's choice under mode-specific normalisation
_START_S = 8.0  # libraries and report
_ROW_S = 4e-6  # encoding or sampling a value
_COMPILE_S = 25.0  # of one stage of training, the first time
_PRIVATE_COMPILE_S = 60.0  # the same with noise
_MULTIPLY_S = 2e-11  # one multiplication of training
_PRIVATE = 1.8  # how much dearer it is with noise
_BASE_MB = 600.0  # libraries and programs
_COPIES = 6  # arrays as large as the rows' vectors
_MULTIPLIED = 6.0  # multiplications a weight and row
_NOT_WIDTHS = ("betas",)


def training_forecast(
    setup: Setup,
    rows: int,
    settings: Mapping[str, Any],
    questions: QuestionCounts,
    sent: Callable[[int, int], int],
    *,
    numeric: Any = "quantile",
    private: bool = False,
    bounded: bool = True,
) -> Forecast:
    """Forecast the time, messages and errors of a training.

    Args:
        setup: Schema and budget.
        rows: A guess of how many there are.
        settings: Of the networks, with the steps or epochs that they are trained for.
        questions: How often a party is asked each question, at most.
        sent: Bytes that a party sends and receives, from the networks' weights and the entries of a
            row's vector.
        numeric: What a number becomes, see `Features.fit`.
        private: Whether every step is one of DP-SGD.
        bounded: Whether `passes` bounds how often a row is seen.
    """
    schema = setup.schema
    width = max(Layout(foreseen_blocks(schema, numeric)).width, 1)
    stages = list(_stages(settings, width, rows, bounded))
    weights = sum(count for count, _ in _networks(settings, width))

    notes = [
        f"memory and time are guesses for {rows:,} rows: expect a factor of three either way"
    ]
    has_length = all(rows_read is not None for _, rows_read in stages)
    if not has_length:
        notes.append(
            "the settings do not show how much the training is: no time is printed"
        )

    # Six multiplications for each weight and row that is read.
    multiplied = sum(
        _MULTIPLIED * count * (rows_read or 0.0) for count, rows_read in stages
    )
    compile_seconds = _PRIVATE_COMPILE_S if private else _COMPILE_S
    dearer = _PRIVATE if private else 1.0
    seconds = _START_S + 2 * _ROW_S * rows * len(schema.columns)
    seconds += len(stages) * compile_seconds
    seconds += _MULTIPLY_S * dearer * multiplied
    known_seconds: float | None = None
    if has_length:
        known_seconds = seconds
    memory_bytes = _COPIES * 4 * rows * width + 16 * 4 * weights
    return Forecast(
        questions,
        _BASE_MB + memory_bytes / 1e6,
        sent(weights, width),
        known_seconds,
        setup.budget.epsilon,
        notes=tuple(notes),
    )


def foreseen_blocks(schema: Schema, numeric: Any) -> tuple[Block, ...]:
    """Return the blocks of a row's vector, roughly: how many modes there are follows from rows."""
    blocks = list[Block]()
    start = 0
    for block in Features.declared(schema).blocks:
        # Blocks move behind those that modes add before them.
        blocks.append(replace(block, start=start))
        if numeric == "modes" and block.kind == "number":
            blocks.append(Block(block.column, blocks[-1].stop, _MODES, "categorical"))
        start = blocks[-1].stop
    return tuple(blocks)


def _networks(settings: Mapping[str, Any], width: int) -> Iterator[tuple[int, str]]:
    """Yield the number of weights and the name of every network in the settings, at any depth."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _networks(value, width)
        elif name not in _NOT_WIDTHS and _is_widths(value):
            outer = width * (value[0] + value[-1])
            inner = sum(inputs * outputs for inputs, outputs in pairwise(value))
            yield outer + inner, name


def _is_widths(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        return False
    return all(isinstance(size, int) and size >= 1 for size in value)


def _bounds(settings: Mapping[str, Any], weights: int, rows: int) -> Iterator[float]:
    """Yield the most rows that a stage can read, for each setting that bounds its length."""
    row_work = _MULTIPLIED * weights
    passes = settings.get("passes")
    work = settings.get("work")  # 10^12 multiplications
    minutes = settings.get("minutes")

    yield float("inf")
    if passes is not None:
        yield float(passes) * rows
    if work is not None:
        yield float(work) * 1e12 / row_work
    if minutes is not None:
        yield 60.0 * float(minutes) / (_MULTIPLY_S * row_work)


def _stages(
    settings: Mapping[str, Any], width: int, rows: int, bounded: bool
) -> Iterator[tuple[int, float | None]]:
    """Yield each stage of training: the number of its weights, and of the rows that it reads.

    None stands for rows that the settings do not show.
    """
    flat = {
        name: value
        for name, value in settings.items()
        if not isinstance(value, Mapping)
    }
    weights = sum(count for count, _ in _networks(flat, width))
    if weights and "steps" in flat:
        rows_read = float(flat["steps"]) * float(flat.get("batch", rows))
        if bounded:
            rows_read = min(rows_read, *_bounds(flat, weights, rows))
        yield weights, rows_read
    elif weights and "epochs" in flat:
        yield weights, float(flat["epochs"]) * rows
    # Convolutions: their weights are not in the settings.
    elif weights or "epochs" in flat:
        yield weights, None
    for value in settings.values():
        if isinstance(value, Mapping):
            yield from _stages(value, width, rows, bounded)
