"""What training a generator will take, from the schema, its settings and a guess of the rows.

**Guarantee**: reads no row. The count of multiplications is the usual one, six for each weight and
row that is trained on (Kaplan et al. 2020, "Scaling laws for neural language models", section 2.1);
what a core does in a second was fitted to runs of the results page, so expect a factor of three
either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from siloweave.algorithms.prediction import Prediction
from siloweave.methods.central.method import CentralGenerator
from siloweave.methods.dp_sgd.method import PrivateTraining, check_affordable
from siloweave.methods.fed_tgan.method import RowsSplit
from siloweave.privacy.budget import Budget
from siloweave.protocols.columns import ColumnsSplit
from siloweave.tables.codes import Encoder
from siloweave.tables.features import Features
from siloweave.tables.schema import Schema

__all__ = ["predict_training"]

_MODES = 10  # a number's choice under mode-specific normalisation
_START_S, _ROW_S = 8.0, 4e-6  # libraries and report; encoding or sampling a value
_COMPILE_S, _PRIVATE_COMPILE_S = 25.0, 60.0  # of one stage of training, the first time
_MULTIPLY_S, _PRIVATE = 2e-11, 1.8  # one multiplication of training; how much dearer with noise
_BASE_MB, _COPIES = 600.0, 6  # libraries and programs; arrays as large as the rows' vectors
_NOT_WIDTHS = ("betas",)

_Generator = CentralGenerator | PrivateTraining | ColumnsSplit | RowsSplit


def predict_training(
    generator: _Generator,
    schema: Schema,
    budget: Budget,
    rows: int,
    parties: int = 1,
) -> Prediction:
    """Predict a generator's run.

    Args:
        generator: What will run.
        schema: Public facts about the columns.
        budget: What a row may cost.
        rows: A guess of how many there are.
        parties: Among how many columns, or rows, are spread.

    Raises:
        InputError: A setting is wrong.
        BudgetError: It does not pay for the steps of a private training.
        SchemaError: A bound is not declared.
    """
    settings = generator.chosen()
    private = isinstance(generator, PrivateTraining)
    if isinstance(generator, RowsSplit):
        settings = generator.lasting(settings, rows)
    if isinstance(generator, PrivateTraining):
        check_affordable(generator.plan(Encoder(schema, generator.bins), budget), parties)
    width, columns = _width(generator, schema), len(schema.columns)
    bounded = not (private or isinstance(generator, RowsSplit) or settings.get("joint"))
    work = list(_stages(settings, width, rows, bounded))
    weights = sum(weights for weights, _ in _networks(settings, width))
    known = all(seen is not None for _, seen in work)
    trained = sum(6.0 * count * (seen or 0.0) for count, seen in work)
    notes = [f"memory and time are guesses for {rows:,} rows: expect a factor of three either way"]
    if not known:
        notes.append("how much the training is cannot be read off its settings: no time is told")
    seconds = _START_S + 2 * _ROW_S * rows * columns
    seconds += len(work) * (_PRIVATE_COMPILE_S if private else _COMPILE_S)
    seconds += _MULTIPLY_S * (_PRIVATE if private else 1.0) * trained
    rounds, size = _moves(generator, schema, rows, parties, weights, width)
    return Prediction(
        rounds,
        _BASE_MB + (_COPIES * 4 * rows * width + 16 * 4 * weights) / 1e6,
        size,
        seconds if known else None,
        budget.epsilon,
        notes=tuple(notes),
    )


def _moves(
    generator: _Generator, schema: Schema, rows: int, parties: int, weights: int, width: int
) -> tuple[int, int]:
    """Questions to a party, and bytes that it sends and receives."""
    if isinstance(generator, ColumnsSplit):
        return generator.moves(schema, rows, parties)
    if isinstance(generator, RowsSplit | PrivateTraining):
        return generator.moves(weights)
    return 1, int(4 * weights + 300 * width)


def _width(generator: _Generator, schema: Schema) -> int:
    """Entries of a row's vector, roughly."""
    width = Features.declared(schema).width
    coding: Any = generator.base if isinstance(generator, PrivateTraining) else generator
    if coding.numeric == "modes":
        numbers = [c for c in schema.columns if c.kind in ("integer", "continuous", "datetime")]
        width += _MODES * len(numbers)
    return max(width, 1)


def _networks(settings: Mapping[str, Any], width: int) -> Iterator[tuple[int, str]]:
    """Weights of every network in the settings, at any depth, and what it is called."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _networks(value, width)
        elif name not in _NOT_WIDTHS and _is_widths(value):
            inner = sum(a * b for a, b in pairwise(value))
            yield width * (value[0] + value[-1]) + inner, name


def _is_widths(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        return False
    return all(isinstance(size, int) and size >= 1 for size in value)


def _stages(
    settings: Mapping[str, Any], width: int, rows: int, bounded: bool
) -> Iterator[tuple[int, float | None]]:
    """Weights and rows seen of each stage of training; None where the settings do not tell.

    A bound on how often a row is seen holds where `bounded`.
    """
    own = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    weights = sum(count for count, _ in _networks(own, width))
    if weights and "steps" in own:
        seen = float(own["steps"]) * float(own.get("batch", rows))
        passes = own.get("passes") if bounded else None
        yield weights, seen if passes is None else min(seen, float(passes) * rows)
    elif weights and "epochs" in own:
        yield weights, float(own["epochs"]) * rows
    elif weights or "epochs" in own:  # convolutions: their weights are not in the settings
        yield weights, None
    for value in settings.values():
        if isinstance(value, Mapping):
            yield from _stages(value, width, rows, bounded)
