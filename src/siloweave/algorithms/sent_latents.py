"""Latents of several parties as one table's: what SiloFuse and E2EDistr hear, checked and in order.

Shankar, Brouwer, Hai & Chen 2024, "SiloFuse" (ICDE), Algorithm 1, line 6: latents side by side.

**Guarantee**: none of its own; it reads what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from siloweave.algorithms.generated import Matrix
from siloweave.errors import WireError
from siloweave.federation.expected import WHOLE, CheckedReply
from siloweave.federation.messages import Array, Released
from siloweave.tables.bins import BINNED
from siloweave.tables.codes import options_of
from siloweave.tables.one_way import OneWay
from siloweave.tables.schema import Column, Schema

if TYPE_CHECKING:
    from siloweave.models.layout import SphereCodes

__all__ = [
    "Sent",
    "check_all_told",
    "check_same_rows",
    "checked_spots",
    "classes_of",
    "law_of",
    "one_hot",
    "side_by_side",
    "spots_of",
    "told_classes",
]

_OPTIONS = 2**16  # of a choice among latents, at most: a table of its points is made
_CLASSES = 256  # of a target of numbers, at most: with more it is no single choice


class Telling(Protocol):
    """What a reply may tell beside latents. Conforming: `Coded`, `Begun`."""

    @property
    def classes(self) -> tuple[Released[Array], ...]:
        """(rows,) of the target, at the party that holds it; empty elsewhere."""

    @property
    def options(self) -> tuple[Released[int], ...]:
        """How many classes there are, alike."""

    @property
    def one_way(self) -> tuple[Released[str], ...]:
        """How single columns are distributed, where they are put together."""


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
    spots: Sequence[SphereCodes] = ()


def told_classes(V: Matrix) -> Array:
    """Classes of one-hot rows, in the smallest numbers that hold them; `one_hot` reads them."""
    return Array.of(V.argmax(1), "<u1" if V.shape[1] <= 256 else "<u4")


def one_hot(name: str, array: Array, options: int, rows: int) -> Matrix:
    """Classes as one-hot rows; raises WireError, naming the party, unless they fit."""
    codes = CheckedReply(name).array("classes", array, WHOLE, (rows,), least=0, most=options - 1)
    return np.asarray(np.eye(options, dtype=np.float32)[codes])


def classes_of(name: str, reply: Telling, target: Column | None, rows: int) -> Matrix | None:
    """The target's classes as one-hot rows, where a party holds it.

    Args:
        name: The party.
        reply: What it told.
        target: The target where the party holds it; None elsewhere, and nothing may be told.
        rows: Of all parties.

    Raises:
        WireError: They do not fit; names the party.
    """
    said, times = CheckedReply(name), 0 if target is None else 1
    said.items("lists of classes", reply.classes, count=times)
    said.items("numbers of options", reply.options, count=times)
    if target is None:
        return None
    most = _CLASSES if target.kind in BINNED else options_of(target)
    options = said.number("options", reply.options[0].value, least=1, most=most)
    return one_hot(name, reply.classes[0].value, options, rows)


def law_of(name: str, reply: Telling, schema: Schema, shared: bool) -> tuple[str, ...]:
    """How single columns of a party are distributed, as JSON; nothing where columns stay apart.

    Args:
        name: The party.
        reply: What it told.
        schema: Of its columns.
        shared: Whether columns are put together.

    Raises:
        WireError: It tells of other columns, of shares that they cannot have, or of some where
            nothing is shared; names the party.
    """
    said = CheckedReply(name)
    for law in said.items("laws of columns", reply.one_way, count=1 if shared else 0):
        said.json("one_way", law.value, lambda data: OneWay.from_json(data).check(schema))
    return tuple(law.value for law in reply.one_way)


def check_same_rows(counts: Mapping[str, int]) -> None:
    """Refuse parties that do not have the same rows, naming two of them; one of them is wrong."""
    first = next(iter(counts), "")
    for name in counts:
        if counts[name] != counts[first]:
            raise WireError(
                f"parties {first!r} and {name!r} sent {counts[first]:,} and {counts[name]:,} rows, "
                "and must hold the same people. Nothing was made of it: find out what runs at "
                "these parties, and start a new run"
            )


def check_all_told(name: str, columns: tuple[str, ...], own: Sequence[str]) -> None:
    """Refuse latents that leave a party's columns out; names the party.

    Args:
        name: The party.
        columns: Which column each latent stands for; "" where they stand for all.
        own: Columns that it codes.
    """
    missing = [one for one in own if one not in columns] if "" not in columns else []
    if missing:
        raise CheckedReply(name).wrong(f"no latents of {missing[0]!r}", "all of its columns")


def spots_of(sent: Sent, places: Sequence[int]) -> SphereCodes:
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
) -> SphereCodes:
    """A party's spots; raises WireError, naming it, where one does not fit its latents."""
    from siloweave.models.layout import SphereCode

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
    return tuple(SphereCode(*spot) for spot in told)
