"""Latents of several parties as one table's: what SiloFuse and E2EDistr hear, checked and in order.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse" (ICDE), Algorithm 1, line 6: latents side by side.

**Guarantee**: none of its own; it reads what was sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.errors import WireError
from siloweave.federation.messages import Array

if TYPE_CHECKING:
    from siloweave.models.layout import Spots

__all__ = [
    "Sent",
    "checked",
    "checked_spots",
    "one_hot",
    "side_by_side",
    "spots_of",
    "told_classes",
]

_OPTIONS = 2**16  # of a choice among latents, at most: a table of its points is made


@dataclass(frozen=True)
class Sent:
    """Latents as they came.

    Attributes:
        latents: Every party's, in roster order.
        columns: Which column each stands for, alike.
        classes: One-hot classes of the target, and at whose place in the roster; None without.
        one_way: How single columns are distributed, as far as it was told.
        spots: Choices that are points among each party's latents; of nobody, or of all.
    """

    latents: Sequence[Matrix]
    columns: Sequence[tuple[str, ...]]
    classes: tuple[int, Matrix] | None = None
    one_way: Sequence[str] = ()
    spots: Sequence[Spots] = ()


def checked(name: str, array: Array, rows: int | None) -> Matrix:
    """A party's matrix; raises WireError, naming the party, unless it fits what came before."""
    try:
        Z = np.asarray(array.numpy(), dtype=np.float32)
    except WireError as error:
        raise WireError(f"party {name!r}: {error}") from error
    if Z.ndim != 2 or len(Z) != (len(Z) if rows is None else rows):
        raise WireError(
            f"party {name!r} sent latents of shape {Z.shape}; a row per person is wanted, as many "
            "as the parties before it sent"
        )
    return Z


def told_classes(V: Matrix) -> Array:
    """Classes of one-hot rows, in the smallest numbers that hold them; `one_hot` reads them."""
    return Array.of(V.argmax(1), "<u1" if V.shape[1] <= 256 else "<u4")


def one_hot(name: str, array: Array, options: int, rows: int) -> Matrix:
    """Classes as one-hot rows; raises WireError, naming the party, unless they fit."""
    codes = array.numpy().astype(np.int64)
    if codes.shape != (rows,) or not (codes < options).all():
        raise WireError(f"party {name!r} sent classes that do not fit its {rows} rows")
    return np.asarray(np.eye(options, dtype=np.float32)[codes])


def spots_of(sent: Sent, places: Sequence[int]) -> Spots:
    """The parties' spots where `side_by_side` put their latents; none if nobody named any."""
    new = {place: i for i, place in enumerate(places)}
    found, start = [], 0
    for i, (Z, spots) in enumerate(zip(sent.latents, sent.spots, strict=False)):
        found += [s._replace(start=new[start + s.start]) for s in spots]
        start += Z.shape[1]
        if sent.classes is not None and sent.classes[0] == i:
            start += sent.classes[1].shape[1]
    return tuple(sorted(found))


def side_by_side(
    sent: Sent, names: Sequence[str], target: str | None
) -> tuple[Matrix, int, dict[str, Any]]:
    """Latents in the schema's order where each stands for a column, classes behind them.

    Args:
        sent: What came.
        names: Columns in the schema's order.
        target: The column that was told.

    Returns:
        The rows, how many entries of a row are latents, and the facts that `JointModel` needs:
        `places` of these entries in the parties' parts side by side, `columns`, `label`, and
        `one_way` as it was told.
    """
    columns = [column for part in sent.columns for column in part]
    places: list[int] = []
    start = 0
    classes: list[int] = []
    for i, Z in enumerate(sent.latents):
        places += range(start, start + Z.shape[1])
        start += Z.shape[1]
        if sent.classes is not None and sent.classes[0] == i:
            classes = list(range(start, start + sent.classes[1].shape[1]))
            start += len(classes)
    order = list(range(len(columns)))
    if all(columns):  # the same order, and so the same law, however columns are split
        rank = {name: i for i, name in enumerate(names)}
        order = sorted(order, key=lambda j: rank[columns[j]])  # stable within a column
    V = np.concatenate(sent.latents, axis=1)[:, order]
    if sent.classes is not None:
        V = np.concatenate([V, sent.classes[1]], axis=1)
    facts = {
        "places": [places[j] for j in order] + classes,
        "columns": [columns[j] for j in order],
        "label": target if classes else None,
        "one_way": list(sent.one_way),
    }
    return V, len(columns), facts


def checked_spots(
    name: str, told: Sequence[tuple[int, int, int]], columns: tuple[str, ...]
) -> Spots:
    """A party's spots; raises WireError, naming it, where one does not fit its latents."""
    from siloweave.models.layout import Spot

    free = 0
    for first, dimensions, options in told:
        column = set(columns[first : first + dimensions])
        fits = free <= first <= len(columns) - dimensions and 1 <= dimensions < max(options, 2)
        if not (fits and options <= _OPTIONS and len(column) == 1 and "" not in column):
            raise WireError(
                f"party {name!r} says that {dimensions} latents from {first} on are a choice among "
                f"{options}, which does not fit the {len(columns)} latents that it names"
            )
        free = first + dimensions
    return tuple(Spot(*spot) for spot in told)
